"""One definition, many engines: plain Python, NumPy columns, Numba, SymPy and JavaScript give the same digits."""

import ast
import dataclasses
import importlib
import itertools
import json
import math
import os
import pkgutil
import random
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import costmodel
from costmodel import formulas, load_cluster, load_framework, load_model
from costmodel.arithmetic.whole_numbers import divisors
from costmodel.compilation import algebra as symbolic
from costmodel.compilation import machine_code, tape, vector_code
from costmodel.compilation.fields import LANES
from costmodel.description.plan import SCHEDULES, Plan
from costmodel.description.question import Question
from costmodel.evaluation import engine
from costmodel.evaluation.estimation import TIME_PARTS
from costmodel.formulas import bucket_rules, quantities, synchronisation
from costmodel.formulas.convolution import counts
from costmodel.formulas.network import collectives
from costmodel.formulas.pipeline import spans
from costmodel.formulas.settings import ATTENTION_KINDS, BATCHINGS, DISPATCHERS, FORMATS
from costmodel.formulas.training_step import step
from costmodel.formulas.transformer.adapters import KINDS
from costmodel.text.errors import IllegalPlan, InvalidValue
from tests.drawing import ITERATION, PARTLY, WHOLE

PACKAGE = Path(costmodel.__file__).parent
SAME = 1e-12
ROWS = 24
THIRD = 3

MODULES = {
    info.name.rpartition(".")[2]: importlib.import_module(info.name)
    for info in pkgutil.walk_packages(formulas.__path__, f"{formulas.__name__}.") if not info.ispkg
}
FORMULAS = {
    f"{module}.{name}": formula
    for module, content in MODULES.items()
    for name, formula in vars(content).items()
    if isinstance(formula, types.FunctionType) and formula.__module__ == content.__name__ and not name.startswith("_")
}
TUPLES = quantities.Inputs._fields
STEP = "training_step.step"
IN_KERNELS = {
    info.rpartition(".")[2] for path in PACKAGE.rglob("*kernel.py")
    for info in re.findall(r"^from costmodel\.formulas\.([\w.]+) import", path.read_text(encoding="utf-8"), re.MULTILINE)
}  # fmt: skip
"""Modules whose formulas Numba compiles as parts of kernels. No kernel has those of the others: searches run vector code."""
PARTS_OF_A_STEP = {
    "gradients.fullest_stage", "gradients.summed", "layer.layer_work", "memory.fullest_stage", "memory.stage_bills",
    "training_step.layer_pass",
}  # fmt: skip
"""Formulas that take seconds to trace or compile: compared within whole steps, which have their operations in them."""
COMPILED = [name for name in FORMULAS if not name.startswith("settings.") and
            name not in PARTS_OF_A_STEP | {STEP}]  # fmt: skip
"""Formulas that are compared one by one as vector code: not steps, which are compared on thousands of plans, nor what turns a
plan's choices to what they take, which no search compiles."""
LARGE = {STEP, "settings.settings", "settings.settings_of_model", "settings.widths", "stage.stage_pass",
         "stage.unsynchronised_pass"}  # fmt: skip
"""Others that take seconds to trace. A step's trace is compared as the page's JavaScript, always."""

DIFFERENCES = {STEP, "memory.stage_memory"}
"""Formulas of which a part is the small difference of sums, which algebra adds in another order."""


def apart(names, slow):
    """Names as parameters of a test; for some of them it is slow."""
    return [pytest.param(name, marks=pytest.mark.slow if name in slow else ()) for name in names]


SETTINGS = [  # model, cluster, GPUs, framework: dense, grouped queries, windows, latent attention, experts, tied
    ("gpt3-13b", "selene", 64, "megatron-lm-2021"),
    ("llama3-70b", "dgx-h100", 256, "megatron-core"),
    ("gemma3-12b", "dgx-h100", 32, "fsdp2"),
    ("deepseek-v3", "dgx-h100", 1024, "megatron-core"),
    ("mixtral-8x7b", "dgx-a100", 64, "megatron-core"),
    ("llama4-maverick", "dgx-h100", 1024, "megatron-core"),
    ("gpt-oss-120b", "dgx-b200", 128, "megatron-core"),
    ("bloom-7b1", "jean-zay-a100", 48, "megatron-deepspeed"),
    ("falcon-7b", "gcp-a3-mega", 16, "deepspeed"),
]


COMPRESSED = [
    {"compression": "bf16"}, {"compression": "int8"}, {"compression": "top-k", "compression_density": 0.01},
    {"compression": "power-sgd", "compression_rank": 4},
]  # fmt: skip

# Drawing


def drawn_modules(draw, framework):
    """Sets of modules that a framework recomputes."""
    known = framework.recompute_modules
    return ["+".join(draw.sample(known, draw.randint(1, len(known)))) for _ in range(3)] if known else []


def drawn_plan(draw, model, gpus, framework):
    """A plan of the right world size, legal or not."""
    degrees = []
    left = gpus
    for dimension, most in (("tensor", min(8, model.heads)), ("context", 4), ("pipeline", model.layers)):
        degrees.append(draw.choice(divisors(left, most if dimension in framework.dimensions else 1)))
        left //= degrees[-1]
    t, c, p = degrees
    micro_batch = draw.choice([1, 1, 2, 4])
    schedule = draw.choice(framework.schedules) if p > 1 else "1f1b"
    ranks = left * c
    return Plan(
        global_batch=left * micro_batch * draw.choice([1, 2, p, 2 * p, 4 * p, 96]), seq_len=draw.choice([2048, 8192, 32768]),
        tensor_parallel=t, context_parallel=c, pipeline_parallel=p, data_parallel=left, micro_batch=micro_batch,
        expert_parallel=draw.choice(divisors(math.gcd(model.experts, ranks * t), 64)) if model.experts else 1,
        virtual_stages=draw.choice(divisors(max(model.layers // p, 1), 8)) if schedule == "interleaved" else 1,
        schedule=schedule, sequence_parallel=draw.random() < 0.5 if t > 1 else False,
        zero_stage=draw.choice([s for s in framework.zero_stages if p == 1 or s <= framework.largest_pipelined_zero_stage]),
        shard_group=draw.choice([None, *divisors(ranks, ranks)]),
        recompute=draw.choice(["none", "full", "selective", 2, 3, *drawn_modules(draw, framework)]),
        rank_order=draw.choice(list(itertools.permutations(("tensor", "context", "data", "pipeline")))),
    )  # fmt: skip


def drawn_options(draw):
    """What holds for all plans of an evaluation."""
    return {
        "attention": draw.choice(["flash", "flash", *ATTENTION_KINDS]), "fused_cross_entropy": draw.random() < 0.5,
        "overlap_gradients": draw.random() < 0.5, "overlap_parameters": draw.random() < 0.5,
        "overlap_tensor": draw.random() < 0.5, "overlap_pipeline": draw.random() < 0.5,
        "overlap_experts": draw.random() < 0.5, "dispatcher": draw.choice(DISPATCHERS),
        "dtype": draw.choice(["bf16", "bf16", "fp16"]), "gradient_bytes": draw.choice([2, 4]),
        "optimizer_offload": draw.choice([0.0, 0.0, 0.5, 1.0]), "activation_offload": draw.choice([0.0, 0.0, 0.25]),
        **draw.choice([{}, {}, *COMPRESSED]),
        **draw.choice([{}, *({"batching": name, "mean_length": draw.choice([60.0, 100.0, None])} for name in BATCHINGS[1:])]),
    }  # fmt: skip


def legal_plans(draw, setting, wanted, **settings):
    """Legal plans with what formulas take beside them; a third of them in eight bits where the device has them."""
    model, framework = load_model(setting[0]), load_framework(setting[3])
    cluster = load_cluster(setting[1], gpus=setting[2])
    if "fp8" in cluster.device.dense_peak and "fp8" in framework.dtypes and draw.random() < 0.33:
        settings["dtype"] = "fp8"
    settings |= draw.choice([{}] * 4 + PARTLY + [WHOLE, ITERATION] * (not model.experts))
    settings["context_communication"] = draw.choice(framework.context_communications)
    plans = []
    for _ in range(200 * wanted):
        try:
            plan = dataclasses.replace(drawn_plan(draw, model, setting[2], framework), **settings)
            plan.check(model, cluster, framework)
        except (IllegalPlan, InvalidValue):  # of ZeRO stages that don't go with compressed gradients
            continue
        plans.append(plan)
        if len(plans) == wanted:
            break
    assert len(plans) == wanted, f"{setting}: only {len(plans)} legal plans drawn"
    return model, cluster, framework, plans


def fixed_numbers(model, cluster, framework, plan):
    return Question(model, cluster, framework).inputs(plan)


def logarithmic(low, high):
    return lambda draw: math.exp(draw.uniform(math.log(low), math.log(high)))


def one_of(*values):
    return lambda draw: float(draw.choice(values))


def drawn_memory(draw):
    return quantities.Memory(*(draw.uniform(1e6, 1e10) for _ in quantities.Memory._fields))


def drawn_contents(draw):
    return quantities.Contents(*(draw.uniform(1e6, 1e10) for _ in quantities.Contents._fields))


def drawn_tuple(kind, draw):
    return kind(*(draw.uniform(1e4, 1e8) for _ in kind._fields))


def drawn_place(draw):
    layers = draw.choice([0, 1, 12])
    drawn = layers, draw.randint(0, layers), draw.choice([0, 1, 3]), draw.randint(0, 1), draw.randint(0, 1)
    return quantities.Place(*map(float, drawn))


def drawn_passes(draw):
    forward, weight, data = (draw.uniform(1e-3, 1.0) for _ in range(3))
    return spans.PassSpan(forward, weight, forward + weight + data)


def drawn_links(draw):
    lines = [collectives.LinearCost(draw.uniform(1e-5, 1e-3), draw.uniform(1e-12, 1e-10)) for _ in range(5)]
    rest = [draw.uniform(low, 10.0 * low) for low in (1e-12, 1e-13, 1e7, 1e-12, 1e-6, 1e-6, 1e-6)]
    return collectives.GroupLinks(float(draw.choice([0, 1])), 1e-5, *lines[:3], draw.uniform(1.0, 2.0), *lines[3:], *rest)


def drawn_group(draw):
    shard, copies = float(draw.choice([1, 2, 8])), float(draw.choice([1, 4]))
    links = [drawn_links(draw) for _ in range(3)]
    slow = draw.uniform(1.0, 3.0), 1e-4, 2e-4
    return synchronisation.ReplicaGroups(shard * copies, shard, links[0], copies, links[1], shard, links[2], *slow)


def drawn_window(draw):
    """A sliding window: half of them such that Winograd's algorithm serves."""
    side, kernel, stride = draw.choice([7, 56, 224]), draw.choice([1, 3, 3, 5, 7]), draw.choice([1, 1, 2])
    sizes = (draw.choice([1, 32]), draw.choice([4, 64]), side, side, draw.choice([8, 256]), kernel, kernel, stride)
    out = -(-side // stride)
    return counts.SlidingWindow(*map(float, (*sizes, out, out, draw.choice([1, 1, 4]))))


SCALARS = {
    "places": one_of(1, 2, 8, 64), "base": logarithmic(0.1, 2.0), "exponent": one_of(0, 1, 2, 5, 8, 16, 31),

    "members": one_of(1, 2, 4, 8, 64),
    "ranks": one_of(1, 2, 3, 4, 8, 12, 16, 64, 256, 1024), "stride": one_of(1, 2, 4, 8, 16, 64),
    "elements": logarithmic(1.0, 1e11), "multiprocessors": one_of(0, 108),
    "nbytes": logarithmic(1.0, 1e11), "quality": logarithmic(0.3, 1.0), "launch": logarithmic(1e-6, 1e-4),
    "size": one_of(1, 4, 8, 32, 72), "seq_len": one_of(128, 2048, 8192, 131072), "window": one_of(128, 4096, 1e18),
    "power": one_of(2, 2, 2.2, 5, 80), "fraction": logarithmic(1e-6, 0.99),
    "causal": one_of(0, 1), "first": one_of(0, 1), "last": one_of(0, 1), "sharded": one_of(0, 1), "separate": one_of(0, 1),
    "front": lambda draw: drawn_passes(draw), "inner": lambda draw: drawn_passes(draw),
    "back": lambda draw: drawn_passes(draw), "down": lambda draw: drawn_passes(draw),
    "share": one_of(0.5, 0.6), "first_flash": one_of(0.4, 1.0),
    "schedule": one_of(*SCHEDULES.values()), "stages": one_of(1, 2, 4, 8, 12), "stage": one_of(0, 1, 3),
    "position": one_of(0, 1, 5, 40), "experts": one_of(0, 1, 8), "mixed": one_of(0, 1), "rank": one_of(0, 1, 2, 5),
    "virtual_stages": one_of(1, 2, 4), "micro_batches": one_of(1, 2, 8, 24, 96), "layers": one_of(1, 2, 8, 31, 80, 126),
    "groups": one_of(0, 1, 8, 64), "m": one_of(0, 1, 100, 4096), "n": one_of(0, 1, 768, 8192), "k": one_of(0, 64, 5120),
    "element_bytes": one_of(1, 2, 4), "flop_rate": logarithmic(1e13, 2e15), "kernels": one_of(0, 1, 6),
    "tokens": one_of(1, 512, 8192, 32768), "heads_share": one_of(1, 0.5, 0.125), "width": one_of(0, 1024, 14336),
    "busy": logarithmic(1e-3, 2e-3), "host": logarithmic(1e-3, 2e-3), "passes": one_of(0, 2, 9),
    "forward": logarithmic(1e-4, 1.0), "data": logarithmic(1e-4, 1.0), "weight": logarithmic(1e-4, 1.0),
    "nparameters": logarithmic(1e6, 1e10), "dense": logarithmic(1e6, 1e10), "routed": one_of(0, 1e6, 1e9),
    "shard": one_of(1, 8, 64), "expert_shard": one_of(1, 4), "gpus": one_of(8, 64, 1024), "a": one_of(8, 12, 4096),
    "b": one_of(1, 3, 8), "one": lambda draw: drawn_memory(draw), "other": lambda draw: drawn_memory(draw),
    "bill": lambda draw: drawn_memory(draw),
    "sliding": lambda draw: drawn_window(draw), "dilation": one_of(1, 1, 2),
    "usual_dtype": one_of(*range(len(FORMATS))), "transposed": one_of(0, 1), "rule": one_of(*bucket_rules.CODES.values()),
    "kind": one_of(*range(len(KINDS))), "bucket_bytes": one_of(-1, 4e7), "prefetch_bytes": one_of(-1, 1e6),
    "zero_stage": one_of(0, 1, 3), "usual": one_of(*bucket_rules.CODES.values()), "replicated_buckets": one_of(-1, 2),
    "mtbf": logarithmic(1e4, 1e7), "loss": logarithmic(3.0, 9.0), "floor": logarithmic(1.0, 2.0),
    "parameters": logarithmic(1e8, 1e12), "parameter_scale": logarithmic(2.0, 40.0), "token_scale": logarithmic(2.0, 40.0),
    "parameter_exponent": logarithmic(0.25, 0.5), "token_exponent": logarithmic(0.25, 0.5),
}  # fmt: skip
"""How to draw an argument by its name; any other is a positive number of ordinary size."""


@pytest.fixture(scope="module")
def settings():
    """A legal plan of each setting in a mix of settings, as the tuples that formulas take, by argument name."""
    draw = random.Random(1)
    rows = []
    for row in range(ROWS):
        *things, plans = legal_plans(draw, SETTINGS[row % len(SETTINGS)], 1, **drawn_options(draw))
        known = fixed_numbers(*things, plans[0])._asdict()
        drawn = random.Random(row)
        known |= {"contents": drawn_contents(drawn), "factors": drawn_tuple(quantities.LowRankSizes, drawn)}
        known |= {"kinds": quantities.Kinds(*(drawn_tuple(quantities.LayerBytes, drawn) for _ in range(2)))}
        known |= {"place": drawn_place(drawn)}
        known |= {name: drawn_tuple(quantities.ExchangeTime, drawn) for name in ("part", "beside", "besides")}
        known |= {"mixture": known["model"].experts, "adapter": known["settings"].adapter}
        known |= {"units": synchronisation.LayerExchanges(known["part"], known["beside"], known["part"])}
        known |= {"links": drawn_links(drawn), "line": drawn_links(drawn).simple, "group": drawn_group(drawn)}
        known |= {"moved": drawn_tuple(quantities.LayerTraffic, drawn)}
        known |= {"cast": drawn_tuple(quantities.Cast, drawn), "owned": drawn_tuple(quantities.RankParameters, drawn)}
        known |= {"dense_group": drawn_group(drawn), "routed_group": drawn_group(drawn)}
        known |= {"body": drawn_tuple(quantities.Layer, drawn)}
        beside = rows[drawn.randrange(len(rows))] if rows else known
        model, cluster, framework = things
        resolved = Question(model, cluster, framework).resolved(plans[0])
        known |= {"choices": resolved.choices, "targets": drawn_tuple(quantities.AdapterTargets, drawn)}
        known |= {"defaults": framework.defaults(resolved.synchronisation, resolved.dtype)}
        known |= {"figures": cluster.device.figures(resolved.dtype), "level": cluster.figures()[0]}
        known |= {"recomputed": resolved.choices.recompute, "lengths": known["settings"].lengths}
        known |= {"longest": known["settings"].seq_len}
        known |= {"other_settings": beside["settings"], "other_plan": beside["plan"]}
        rows.append(known | {"payload": drawn_tuple(quantities.Payload, drawn)})
    return rows


def arguments(formula, settings):
    """One tuple of arguments a row."""
    draw = random.Random(formula.__qualname__)
    names = tape.arguments_of(formula)

    def argument(name, row):
        if name in row:
            return row[name]
        assert name not in TUPLES, f"{formula.__qualname__} takes {name}, which this test must draw"
        return SCALARS.get(name, logarithmic(1.0, 1e4))(draw)

    return [tuple(argument(name, row) for name in names) for row in settings]


def leaves(value):
    """The numbers in a result, tuples flattened."""
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def columns(rows):
    """Equal tuples of numbers, as one tuple of columns."""
    first = rows[0]
    if isinstance(first, tuple):
        parts = [columns([row[i] for row in rows]) for i in range(len(first))]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    return np.array(rows, dtype=float)


def by_python(formula, rows):
    table = np.array([[float(leaf) for leaf in leaves(formula(*row))] for row in rows])
    assert np.isfinite(table).all(), "not finite"
    return table


def differ(expected, found, near=False):
    """Largest relative difference; `near` sets it against the quantity's largest over the rows, for differences of sums."""
    scale = np.abs(expected).max(axis=0, keepdims=True) if near else np.abs(expected)
    off = np.abs(expected - found)
    return float(np.max(np.where(off == 0.0, 0.0, off / np.where(scale > 0.0, scale, 1e-300))))


# Formula by formula


@pytest.mark.parametrize("module", MODULES)
def test_numpy_columns_give_what_plain_python_gives(module, settings):
    for name in (name for name in FORMULAS if name.rpartition(".")[0] == module):
        rows = arguments(FORMULAS[name], settings)
        expected = by_python(FORMULAS[name], rows)
        with np.errstate(all="ignore"):
            result = leaves(FORMULAS[name](*columns(rows)))
        found = np.array([np.broadcast_to(leaf, len(rows)) for leaf in result], dtype=float).T
        assert differ(expected, found) <= SAME, name


@pytest.mark.slow
@pytest.mark.parametrize("name", apart([name for name in FORMULAS if name not in PARTS_OF_A_STEP], LARGE))
def test_sympy_gives_what_plain_python_gives(name, settings):
    formula = FORMULAS[name]
    rows = arguments(formula, settings)
    expected = by_python(formula, rows)
    traced = symbolic.trace(formula, *map(opened, rows[0]))
    compiled = traced.function()
    found = []
    for row in rows:
        values = dict(paths(tape.arguments_of(formula), row))
        found.append(compiled(*(values[path] for path in traced.symbols)))
    assert differ(expected, np.array(found), near=name in DIFFERENCES) <= SAME


def opened(value):
    """None for every number."""
    return type(value)(*map(opened, value)) if isinstance(value, tuple) else None


def paths(names, values, prefix=""):
    """Every number in nested tuples with its dotted path."""
    for name, value in zip(names, values, strict=True):
        if isinstance(value, tuple):
            yield from paths(value._fields, value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def taken_down(formula):
    """A formula's tape, with all its arguments left open, and the places of its results."""
    taped = tape.Tape()
    result = formula(**tape.opened(formula, (), lambda path, _: tape.Value(taped, taped.put("input", given=path))))
    return taped, [taped.place(leaf) for leaf in leaves(result)]


def called(name, settings):
    """The other formulas that one calls, all the way down."""
    names, seen = {formula.__code__: other for other, formula in FORMULAS.items()}, set()
    row = arguments(FORMULAS[name], settings[:1])[0]
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: seen.add(frame.f_code) if event == "call" else None)
    try:
        FORMULAS[name](*row)
    finally:
        sys.setprofile(before)
    return {names[code] for code in seen if code in names} - {name}


def test_what_is_compared_within_whole_steps_is_part_of_them(settings):
    uncompressed = next(row for row in settings if not row["settings"].compression.kind)
    assert called(STEP, settings) | called(STEP, [uncompressed]) >= PARTS_OF_A_STEP


@pytest.mark.parametrize("module", sorted(IN_KERNELS))
def test_numba_gives_what_plain_python_gives(module, settings):
    import numba

    from costmodel.compilation import jit

    jit.register(*FORMULAS.values())
    chosen = [name for name in FORMULAS if name.startswith(f"{module}.")]
    rows = {name: arguments(FORMULAS[name], settings) for name in chosen}
    given, calls = {}, []
    for name in chosen:
        words = []
        for place, word in enumerate(tape.arguments_of(FORMULAS[name])):
            word = word if word in settings[0] else f"{name.replace('.', '_')}_{word}"
            given[word] = [row[place] for row in rows[name]]
            words.append(word)
        calls.append(f"f_{len(calls)}({', '.join(words)}),")
    space = {f"f_{k}": FORMULAS[name] for k, name in enumerate(chosen)}
    exec(f"def call({', '.join(given)}):\n    return ({' '.join(calls)})", space)
    exec(f"def outer({', '.join(given)}):\n    return call({', '.join(given)})", space)
    jit.register(space["call"])  # Numba compiles anew what is called from elsewhere than from its like: two layers cost less
    call = numba.njit(error_model="numpy")(space["outer"])
    results = [call(*row) for row in zip(*given.values(), strict=True)]
    for k, name in enumerate(chosen):
        expected = by_python(FORMULAS[name], rows[name])
        found = np.array([[float(leaf) for leaf in leaves(result[k])] for result in results])
        assert differ(expected, found) <= SAME, name


@pytest.fixture(scope="module")
def by_vector_code(settings):
    """What every formula without powers gives as vector code, called block by block; of all in one compilation."""
    bodies, given = {}, {}
    for name, formula in FORMULAS.items():
        taped, results = taken_down(formula) if name in COMPILED else (None, ())
        if results and not any(operation.name == "pow" for operation in taped.operations):
            inputs = [place for place, operation in enumerate(taped.operations) if operation.name == "input"]
            table = vector_code.Operands(tuple(inputs), LANES, False)
            bodies[name] = vector_code.body(name.replace(".", "_"), taped, [table], results)
            given[name] = ([taped.operations[place].given for place in inputs], len(results))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine_code, "cache_folder", lambda: None)
        sources = [body.source for body in bodies.values()]
        code = machine_code.compiled("formulas", {body.name: 3 for body in bodies.values()}, lambda: (sources, {})).functions
    found = {}
    for name, (inputs, count) in given.items():
        names = tape.arguments_of(FORMULAS[name])
        rows = [dict(paths(names, row)) for row in arguments(FORMULAS[name], settings)]
        table = np.array([[row[path] for path in inputs] for row in rows], dtype=float)
        table = np.ascontiguousarray(table.reshape(-1, LANES, len(inputs)).transpose(0, 2, 1))
        out, own = np.empty((ROWS // LANES, count, LANES)), np.empty(max(1, bodies[name].kept))
        for block, result in zip(table, out, strict=True):
            code[bodies[name].name](block.ctypes.data, result.ctypes.data, own.ctypes.data)
        found[name] = out.transpose(0, 2, 1).reshape(ROWS, count)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_vector_code_gives_what_plain_python_gives(name, settings, by_vector_code):
    if name not in by_vector_code:
        pytest.skip("a power, which no step takes and vector code hasn't")
    assert differ(by_python(FORMULAS[name], arguments(FORMULAS[name], settings)), by_vector_code[name]) <= SAME


FLAT = "const flat = (value) => typeof value === 'object' ? Object.values(value).flatMap(flat) : [Number(value)];"


def by_node(formulas, settings, folder):
    """What formulas give under Node, by their names, each printed with all its arguments left open; of all in one run."""
    if shutil.which("node") is None:
        pytest.skip("no node")

    def plain(value):
        if not isinstance(value, tuple):
            return value
        return {f: plain(v) for f, v in value._asdict().items()} if hasattr(value, "_fields") else list(map(plain, value))

    lines = [FLAT, "const found = {};"]
    for name, formula in formulas.items():
        rows = json.dumps([[plain(a) for a in row] for row in arguments(formula, settings)])
        lines.append(f"{{{symbolic.javascript(formula, *map(opened, arguments(formula, settings)[0]))}\n"
                     f"found['{name}'] = {rows}.map((row) => flat({formula.__name__}(...row)));}}")  # fmt: skip
    program = folder / "formulas.js"
    program.write_text("\n".join([*lines, "console.log(JSON.stringify(found));"]))
    ran = subprocess.run(["node", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def all_by_node(settings, tmp_path_factory):
    return by_node(FORMULAS, settings, tmp_path_factory.mktemp("printed"))


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMULAS)
def test_javascript_gives_what_plain_python_gives(name, settings, all_by_node):
    expected = by_python(FORMULAS[name], arguments(FORMULAS[name], settings))
    assert differ(expected, np.array(all_by_node[name], dtype=float)) <= SAME


def test_a_step_in_javascript_has_the_bits_of_python(settings, tmp_path):
    """The same operations in the same order: of the basic ones, roots and roundings IEEE 754 leaves one result."""
    expected = by_python(step, arguments(step, settings))
    same = expected == np.array(by_node({STEP: step}, settings, tmp_path)[STEP], dtype=float)
    assert same.mean() > 0.99, "logarithms and powers alone may differ in their last bit"


def test_what_is_given_to_javascript_is_a_number_in_it():
    level = quantities.LevelNumbers(8.0, None, 1e9)
    network = quantities.NetworkNumbers(level, level, level)
    text = symbolic.javascript(MODULES["collectives"].ring_latency, 16.0, 1.0, network, load_framework("megatron-core").numbers())
    assert text.startswith("function ring_latency(ranks, stride, network, software) {")
    assert set(re.findall(r"[a-z]\w*(?:\.\w+)+", text)) - {"Math.min", "Math.max", "Math.ceil"} <= {
        "network.node.latency", "network.leaf.latency", "network.spine.latency"
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("by", ["network.leaf.bandwidth", "device.flop_rate", "software.memory.fixed", "device.memory_bandwidth"])
@pytest.mark.parametrize("of", ["total", "memory.total"])
def test_a_derivative_is_the_slope_of_the_formula(by, of, settings):
    tuples = tape.arguments_of(step)
    head, *path = by.split(".")
    for row in settings[::12]:
        at = part_of(row[head], path)
        given = [replaced(row[name], path, None) if name == head else row[name] for name in tuples]
        slope = symbolic.derivative(step, *given, by=by, of=of).function()
        h = 1e-6 * at

        def value(x, row=row):
            result = step(*(replaced(row[name], path, x) if name == head else row[name] for name in tuples))
            return part_of(result, of.split("."))

        central = (value(at + h) - value(at - h)) / (2.0 * h)
        (found,) = slope(at)
        assert found * at == pytest.approx(central * at, rel=1e-4, abs=1e-7 * value(at))


def part_of(value, path):
    for field in path:
        value = getattr(value, field)
    return value


def replaced(value, path, new):
    first, *rest = path
    return value._replace(**{first: replaced(getattr(value, first), rest, new) if rest else new})


def test_a_number_given_stays_a_number_and_none_becomes_a_symbol():
    level = quantities.LevelNumbers(8.0, None, 1e9)
    network = quantities.NetworkNumbers(level, level, level)
    software = load_framework("megatron-core").numbers()
    traced = symbolic.trace(MODULES["collectives"].ring_latency, 16.0, 1.0, network, software)
    assert set(traced.symbols) <= {"network.node.latency", "network.leaf.latency", "network.spine.latency"}
    assert symbolic.trace(MODULES["collectives"].members_inside, 16.0, 1.0, 8.0).expression == 8.0


def test_latex_of_every_part_is_written():
    text = symbolic.latex(MODULES["compute"].gemm)
    assert r"\max" in text
    assert "1.0" not in text
    assert len(symbolic.latex(MODULES["communication"].boundary)) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: symbolic.trace(MODULES["collectives"].members_inside, 1.0, 2.0, 3.0, 4.0),
        lambda: symbolic.trace(step, quantities.LevelNumbers(1.0, 1.0, 1.0)),
        lambda: symbolic.javascript(MODULES["collectives"].members_inside, 1.0, 2.0, 3.0, 4.0),
        lambda: symbolic.javascript(step, quantities.LevelNumbers(1.0, 1.0, 1.0)),
        lambda: symbolic.javascript(MODULES["collectives"].members_inside, "8"),
        lambda: symbolic.derivative(step, by="model.colour", of="total"),
        lambda: symbolic.derivative(MODULES["compute"].gemm, by="m", of="total"),
        lambda: symbolic.derivative(MODULES["communication"].boundary, by="model.hidden"),
    ],
)
def test_a_wrong_trace_is_refused_in_one_line(wrong):
    with pytest.raises(InvalidValue) as refused:
        wrong()
    assert "\n" not in str(refused.value)


def test_a_formula_that_branches_is_refused():
    with pytest.raises(TypeError, match=r"ops\.where"):
        symbolic.trace(lambda nbytes: 1.0 if nbytes > 2.0 else 0.0)


# Whole


def run(name, fixed, table):
    return engine.evaluate(fixed, table, name)


def batches_of(count):
    """Setting, fixed tuples and columns of two batches of so many legal plans in each setting."""
    draw = random.Random(2)
    batches = []
    for setting in SETTINGS:
        for _ in range(2):
            settings = drawn_options(draw)
            model, cluster, framework, plans = legal_plans(draw, setting, count, global_batch=1536, seq_len=8192, **settings)
            table = np.array([plan.numbers(framework, model.layers) for plan in plans]).T
            fixed = fixed_numbers(model, cluster, framework, plans[0])
            batches.append((setting[0], fixed, table))
    return batches


@pytest.fixture(scope="module")
def evaluated():
    return batches_of(20)


def beside_its_step(table):
    """Parts of steps, their bubbles with the whole step added: a bubble is what sums differ by, to a rounding of these."""
    rows = {part: k for k, part in enumerate(engine.PARTS)}
    made = table.copy()
    made[rows["bubble"]] += table[rows["total"]]
    return made


@pytest.mark.slow
def test_engines_agree_on_every_part_of_thousands_of_legal_plans():
    batches = batches_of(120)
    assert sum(table.shape[1] for _, _, table in batches) >= 2000
    for model, fixed, table in batches:
        expected = run("python", fixed, table[:, ::THIRD])  # a thousand times as slow
        columns, compiled = (beside_its_step(run(other, fixed, table)) for other in ("numpy", "numba"))
        assert differ(columns, compiled) <= SAME, model
        for found in (columns, compiled):
            assert differ(beside_its_step(expected), found[:, ::THIRD]) <= SAME, model


def test_chunks_and_threads_change_no_bit(evaluated):
    _, fixed, table = evaluated[0]
    many = np.tile(table, 4096 * 5 // table.shape[1] + 1)
    few = run("numba", fixed, table)
    assert np.array_equal(run("numba", fixed, many), np.tile(few, many.shape[1] // table.shape[1]))


def test_auto_takes_python_for_a_handful_and_vector_code_for_thousands():
    assert engine.choose(1) == "python"
    assert engine.choose(engine.COMPILE_FROM + 1) == "numba"


@pytest.mark.slow
def test_nothing_is_compiled_for_one_search_that_nobody_compiled_for_before(monkeypatch, tmp_path):
    script = (
        "import json, sys, costmodel\n"
        "from costmodel.evaluation import engine\n"
        "model, cluster = costmodel.load_model('llama3-70b'), costmodel.load_cluster('dgx-h100', gpus=64)\n"
        "found = costmodel.search(model, cluster, global_batch=1024, seq_len=8192, top=3)\n"
        "loaded = 'costmodel.compilation.programs' in sys.modules\n"
        "engine.compile_once([])\n"
        "print(json.dumps([found.considered, loaded, engine.is_compiled(), [one.step_time for one in found.ranked]]))"
    )
    monkeypatch.setenv("COSTMODEL_CACHE_DIR", str(tmp_path))
    first, again = (
        json.loads(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
        for _ in range(2)
    )
    assert first[0] == again[0] > engine.COMPILED_FROM
    assert first[1:3] == [False, True] and again[1:3] == [True, True]
    assert first[3] == pytest.approx(again[3], rel=1e-12)


def test_the_parts_of_a_step_add_up(evaluated):
    rows = {part: k for k, part in enumerate(engine.PARTS)}
    held = [rows[part] for part in engine.PARTS if part.startswith("memory_") and part != "memory_total"]
    for model, fixed, table in evaluated:
        out = run("numpy", fixed, table)
        assert np.isfinite(out).all(), model
        assert (out[rows["total"]] > 0.0).all(), model
        times = out[[rows[part] for part in TIME_PARTS]]
        np.testing.assert_allclose(times.sum(axis=0), out[rows["total"]], rtol=SAME, err_msg=model)
        np.testing.assert_allclose(out[held].sum(axis=0), out[rows["memory_total"]], rtol=SAME, err_msg=model)
        assert (out[held] >= 0.0).all(), model
        assert (times >= -SAME * out[rows["total"]]).all(), model


# The compiled cache

COMPARE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import costmodel
from costmodel.description.question import Question
from costmodel.evaluation import engine
assert costmodel.__file__.startswith(sys.argv[1]), costmodel.__file__
model, framework = costmodel.load_model("llama3-8b"), costmodel.load_framework("megatron-core")
cluster = costmodel.load_cluster("dgx-h100", gpus=32)
plan = costmodel.Plan(global_batch=64, seq_len=8192, tensor_parallel=2, pipeline_parallel=4, data_parallel=4)
table = np.array([plan.numbers(framework, model.layers)]).T
inputs = Question(model, cluster, framework).inputs(plan)
python, compiled = (engine.evaluate(inputs, table, name)[:, 0].tolist() for name in ("python", "numba"))
from costmodel.compilation import jit
print(json.dumps([python, compiled, str(jit._FOLDER)]))
"""


def compared(package, **environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "COSTMODEL_CACHE_DIR")}
    ran = subprocess.run(
        [sys.executable, "-c", COMPARE, str(package)],
        env={**kept, "PYTHONDONTWRITEBYTECODE": "1", **environment}, capture_output=True, text=True, cwd=package,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def edit(file, name, pattern):
    """Replace what the function `name` returns by `pattern` of it."""
    text = file.read_text()
    function = next(node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name)
    value = next(node for node in reversed(function.body) if isinstance(node, ast.Return)).value
    old = ast.get_source_segment(text, value)
    file.write_text(text.replace(old, pattern.format(old)))


def copied(folder):
    shutil.copytree(PACKAGE, folder / "costmodel", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.slow
def test_an_edited_formula_never_meets_a_stale_kernel(tmp_path):
    package, cache = copied(tmp_path / "copy"), str(tmp_path / "cache")
    python, compiled, folder = compared(package, COSTMODEL_CACHE_DIR=cache)
    assert folder.startswith(cache)
    assert list(Path(folder).rglob("*.code")), "no kernel was cached"
    assert compiled == pytest.approx(python, rel=SAME)
    edit(package / "costmodel" / "formulas" / "pipeline" / "spans.py", spans.span.__name__, "2.0 * ({})")
    edited, recompiled, other = compared(package, COSTMODEL_CACHE_DIR=cache)
    assert other != folder
    part = engine.PARTS.index("bubble")
    assert edited[part] > 1.1 * python[part]
    assert recompiled == pytest.approx(edited, rel=SAME)


@pytest.mark.slow
def test_an_install_with_nowhere_to_write_compiles_without_a_cache(tmp_path):
    python, compiled, folder = compared(copied(tmp_path), HOME="/proc/none", XDG_CACHE_HOME="/proc/none")
    assert folder == "None"
    assert compiled == pytest.approx(python, rel=SAME)
    assert not [*tmp_path.rglob("*.nbi"), *tmp_path.rglob("*.code")]
