"""Every public description and result says itself in a few lines, can stand in a set, has its docs, and draws its figures."""

import ast
import dataclasses
import inspect
import json
import re
from collections.abc import Hashable
from pathlib import Path

import plotly.graph_objects as go
import pytest

import costmodel as cm
from costmodel.cli.advice import as_options
from costmodel.plots.kinds import KINDS
from costmodel.studies.rematerialisation.study import curve
from costmodel.text.results import brief
from costmodel.traces.builder import RoleBuilder
from costmodel.traces.memory import memory_of_trace
from costmodel.traces.pricing import price_trace
from tests.commanding import RECORD

MODEL, CLUSTER = cm.load_model("llama3-8b"), cm.load_cluster("dgx-h100", gpus=8)
PLAN = cm.Plan(global_batch=8, seq_len=2048, pipeline_parallel=2)
CLASSES = [name for name in cm.__all__ if inspect.isclass(getattr(cm, name)) and not issubclass(getattr(cm, name), Exception)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One of each public class, by its name, and results of functions whose class isn't public."""
    step = cm.estimate(MODEL, CLUSTER, PLAN)
    path = tmp_path_factory.mktemp("runs") / "runs.jsonl"
    path.write_text(json.dumps(RECORD), encoding="utf-8")
    (record,) = cm.load_runs(path)
    builder = RoleBuilder(0, [0])
    builder.storage_born(2**26, kind="weight", parameter="layer.weight")
    for _ in range(2):
        builder.kernel("aten.mm", [(4096, 4096)] * 2, ["bfloat16"] * 2, 2.0**26, 2.0**25, 2.0**37, phase="forward")
        builder.step_boundary()
    traced = cm.Trace(roles=(builder.role(),), world_size=1)
    chain = cm.load_network("vgg-16").chain(cm.load_device("v100-sxm-16gb"), minibatch=64)
    found = cm.search(MODEL, CLUSTER, global_batch=8, seq_len=2048, keep_evaluated=True)
    layers = cm.uniform_chain(10, forward=1e-3, output_bytes=1e6)
    tower = cm.Tower(model=dataclasses.replace(MODEL, vocabulary=1, patch_values=588, causal=False), tokens=256)
    things = [
        MODEL, CLUSTER, CLUSTER.device, CLUSTER.device.efficiency, CLUSTER.levels[0], step.framework, PLAN, step, found,
        cm.verdict(step), cm.largest_micro_batch(MODEL, CLUSTER, PLAN), cm.ledger(MODEL, CLUSTER, PLAN),
        cm.timeline(MODEL, CLUSTER, PLAN), cm.simulate(MODEL, CLUSTER, PLAN), cm.Group(ranks=8),
        cm.pipeline_schedule("1f1b", stages=2, micro_batches=4), cm.collective_time("all-reduce", 2**20, 8, CLUSTER),
        cm.time_to_train(step, tokens=1e12), cm.goodput(cm.Reliability(), 8, 8e9), cm.Reliability(), cm.Tariff(gpu_hour=2.0),
        chain, chain.layers[0], cm.partition(chain, machines=[8], bandwidths=[1.25e9]),
        cm.Peer(name="a", samples_per_second=1.0, upload=1e6, download=1e6),
        cm.design_cluster(MODEL, cm.candidates("h100-sxm", [8, 16]), global_batch=64, seq_len=2048),
        cm.read_launch(cm.write_launch("megatron", step.plan, MODEL), gpus=8),
        cm.compare({"one": step, "two": step}), cm.cards(MODEL, ["h100-sxm"], adapter="lora"), cm.diagnose(step, step_time=9.0),
        cm.gpus_in_time(MODEL, [CLUSTER], tokens=1e9, days=30.0, tensor_parallel=1, pipeline_parallel=1, global_batch=64),
        cm.compare_systems(chain, cm.load_cluster("dgx-1v", gpus=32)), cm.batch_scaling(1000.0, 5000.0),
        cm.StepsCurve(staleness=(0.0, 100.0), updates=(1000.0, 2000.0)), cm.Staleness({"stage 0": (0.0, 1.0)}),
        cm.ScalingLaw(name="mine", form="additive", parameter_scale=406.4, token_scale=410.7, parameter_exponent=0.34,
                      token_exponent=0.28, floor=1.69),
        cm.Stragglers(), cm.Filters(), cm.NVLinkMachine(nvlink_bandwidth=1e11, cpu_bandwidth=1e10),
        cm.PCIeMachine(gpus_per_switch=4, cpu_bandwidth=1e10, gpu_bandwidth=1e10),
        cm.Sweep(path=Path("cells"), cells=4, resumed=0, plans=9, failed=0),
        cm.unlike_groups(MODEL, {"one": [CLUSTER], "two": [CLUSTER]}, global_batch=8, seq_len=2048, between="100 Gbit/s"),
        cm.whatif(MODEL, CLUSTER, global_batch=8, seq_len=2048, tensor_parallel=2),
        step.memory, step.memory.timeline(), step.question, cm.load_network("vgg-16"), cm.roofline(step),
        cm.scaling(MODEL, CLUSTER, gpus=[4, 8], global_batch=8, seq_len=2048),
        cm.heat_map(
            MODEL, CLUSTER, across=("tensor_parallel", [1, 2]), down=("micro_batch", [1, 2]), global_batch=8, seq_len=2048
        ),
        cm.checkpoint(layers), curve(layers), cm.balanced_stages(MODEL, CLUSTER, PLAN),
        cm.data_parallel_step(chain, cm.load_cluster("dgx-1v"), 8),
        cm.parameter_server(1e9, compute_time=0.5, workers=16, servers=2, bandwidth=10e9),
        cm.byteps(1e9, gpu_machines=32, cpu_machines=16, bandwidth=11.25e9),
        cm.Rollouts(samples=16, mean_length=1000),
        cm.post_training(MODEL, CLUSTER, PLAN, cm.Rollouts(samples=16, mean_length=1000)),
        tower, cm.multimodal(MODEL, CLUSTER, PLAN, [tower]),
        cm.search_multimodal(MODEL, CLUSTER, [tower], global_batch=8, seq_len=4096, tensor_parallel=[4], zero_stage=[1]),
        record, traced, price_trace(traced, cm.load_cluster("dgx-h100", gpus=1)), memory_of_trace(traced, CLUSTER),
    ]  # fmt: skip
    return {type(thing).__name__: thing for thing in things}


def test_every_public_class_is_here(made):
    assert {*CLASSES} <= {*made}


def test_every_public_name_has_its_docs():
    for name in cm.__all__:
        words = inspect.getdoc(getattr(cm, name)) or ""
        assert words.splitlines() and words.splitlines()[0].strip().endswith((".", ":", "`")), name
        if callable(getattr(cm, name)) and not inspect.isclass(getattr(cm, name)):
            taken = [one for one in inspect.signature(getattr(cm, name)).parameters if one not in ("args", "kwargs")]
            assert not taken or "Parameters\n----------" in words, name


def test_every_text_is_short_and_narrow(made):
    for name, thing in made.items():
        lines = repr(thing).splitlines()
        assert 1 <= len(lines) <= 10 and max(map(len, lines)) <= 80, f"{name}:\n{thing!r}"
        assert type(thing).__name__ in lines[0]


def test_whatever_can_be_compared_can_stand_in_a_set(made):
    for name, thing in made.items():
        assert isinstance(thing, Hashable), name
        assert thing == thing and len({thing, thing}) == 1
        assert {thing: "kept"}[thing] == "kept"


def test_equal_results_of_two_runs_are_one_member_of_a_set():
    again = [cm.estimate(MODEL, CLUSTER, PLAN) for _ in range(2)]
    assert again[0] is not again[1] and len({*again}) == 1
    found = [cm.search(MODEL, CLUSTER, global_batch=8, seq_len=2048, top=2) for _ in range(2)]
    assert found[0] == found[1] and len({*found}) == 1
    other = dataclasses.replace(CLUSTER.device, dense_peak={**CLUSTER.device.dense_peak, "bf16": 1e15})
    assert other != CLUSTER.device and len({other, CLUSTER.device}) == 2


def test_a_plan_s_text_makes_the_plan():
    for plan in (PLAN, cm.estimate(MODEL, CLUSTER, PLAN).plan, dataclasses.replace(PLAN, recompute="full", bucket_bytes=25e6)):
        assert eval(brief(plan), {"Plan": cm.Plan}) == plan
    assert "zero_stage" not in repr(PLAN)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_figure_of_a_result_is_drawn_and_others_are_refused_with_the_list(made, kind):
    thing = made[kind.__name__]
    for name in KINDS[kind]:
        assert isinstance(thing.plot(name), go.Figure)
    assert thing.plot() == thing.plot(next(iter(KINDS[kind])))
    with pytest.raises(cm.InvalidValue, match="expected one of " + ", ".join(KINDS[kind])):
        thing.plot("pie")


def test_what_has_nothing_to_draw_says_why():
    none = cm.search(cm.load_model("llama3-70b"), CLUSTER.with_gpus(1), global_batch=8, seq_len=2048)
    with pytest.raises(cm.IllegalPlan, match="none of 8 legal plans of llama3-70b fits"):
        none.plot()


OPTION = re.compile(r"(?<![\w-])--(?:device|cluster|gpus|nodes|network|set|model|dtype|global-batch|seq-len|framework)\b")


@pytest.mark.slow
def test_no_message_of_the_library_names_an_option_of_the_command_line():
    """Texts in the source, docstrings and comments aside; what launch files say is their own."""
    root = Path(cm.__file__).parent
    doors = ("cli", "app", "page", "interop/launchers/dialects", "text/suggestions.py", "text/other_names.py")
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).as_posix().startswith(doors) or path.name == "__main__.py":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        assert not [one.value for one in texts if id(one) not in docs and OPTION.search(one.value)], path


@pytest.mark.parametrize(
    ("raised", "call", "option"),
    [
        (lambda: cm.load_model("h100-sxm"), "machine('h100-sxm')", "--device h100-sxm"),
        (lambda: cm.load_device("dgx-h100"), "load_cluster('dgx-h100')", "--cluster dgx-h100"),
        (lambda: cm.estimate(cm.load_model("gpt2-xl"), CLUSTER, cm.Plan(global_batch=8, seq_len=4096)),
         "replace(model, {'learned_positions': 4096})", "--set model.learned_positions=4096"),
    ],
)  # fmt: skip
def test_advice_is_a_call_in_python_and_an_option_on_the_command_line(raised, call, option):
    with pytest.raises(cm.CostModelError) as refused:
        raised()
    assert call in str(refused.value) and "--" not in str(refused.value)
    assert option in as_options(str(refused.value)) and call not in as_options(str(refused.value))
