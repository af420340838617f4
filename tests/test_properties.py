"""What must hold for every plan, whatever the constants: monotone, conserving, finite, repeatable, refused in words."""

import dataclasses
import inspect
import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from costmodel import (
    Cluster,
    CostModelError,
    Device,
    Efficiency,
    Framework,
    IllegalPlan,
    InvalidValue,
    Level,
    Plan,
    Transformer,
    load_cluster,
    load_framework,
    load_model,
)  # fmt: skip
from costmodel.arithmetic.whole_numbers import divisors
from costmodel.description.plan import SCHEDULES, explain
from costmodel.evaluation.estimation import estimate
from costmodel.evaluation.plan_search import search
from costmodel.evaluation.selection import NEAR
from costmodel.evaluation.simplicity import simplest_first
from costmodel.formulas import legality
from costmodel.formulas.pipeline import layout
from costmodel.formulas.quantities import Place, Step
from costmodel.formulas.transformer import memory
from tests.drawing import MODELS, legal, questions, quick


def numbers_of(step: Step) -> list[float]:
    return [*step[:-1], *step.memory]


# Every answer


@quick
@given(questions())
def test_every_legal_plan_has_finite_parts_that_add_up(question):
    found = legal(question)
    assert all(math.isfinite(value) for value in numbers_of(found.step))
    assert found.step_time > 0.0
    assert found.memory.total > 0.0
    assert sum(found.times.values()) == pytest.approx(found.step_time, rel=1e-12)
    assert sum(found.step.memory[1:]) == pytest.approx(found.memory.total, rel=1e-12)
    assert all(value >= -1e-12 * found.step_time for value in found.times.values())
    assert all(value >= 0.0 for value in found.step.memory)
    assert found.step.hardware_flop >= found.step.model_flop > 0.0
    assert 0.0 < found.causal_mfu <= found.mfu
    assert 0.0 < found.mfu <= found.hfu


@quick
@given(questions())
def test_no_plan_beats_the_peak_of_its_device(question):
    assume(question[2].attention != "flash")  # flash skips the scores above the diagonal, which `mfu` counts
    found = legal(question)
    assert found.causal_mfu < 1.2  # of a peak that some devices exceed when they boost


# Monotone


def faster_network(cluster, factor, level):
    levels = [
        dataclasses.replace(one, bandwidth=one.bandwidth * factor) if level in (None, i) else one
        for i, one in enumerate(cluster.levels)
    ]
    return dataclasses.replace(cluster, levels=levels)


@quick
@given(questions(offload=[0.0]), st.floats(1.01, 20.0), st.sampled_from([None, 0, 1]))
def test_a_faster_network_never_takes_longer(question, factor, level):
    before = legal(question)
    model, cluster, plan, framework = question
    after = estimate(model, faster_network(cluster, factor, level), plan, framework)
    assert after.step_time <= before.step_time * (1 + 1e-12)
    assert after.step.memory == before.step.memory


@quick
@given(questions(offload=[0.0]), st.floats(1.01, 20.0))
def test_a_lower_latency_never_takes_longer(question, factor):
    before = legal(question)
    model, cluster, plan, framework = question
    levels = [dataclasses.replace(level, latency=level.latency / factor) for level in cluster.levels]
    after = estimate(model, dataclasses.replace(cluster, levels=levels), plan, framework)
    assert after.step_time <= before.step_time * (1 + 1e-12)


@quick
@given(questions(offload=[0.0]), st.floats(1.01, 20.0), st.sampled_from(["dense_peak", "memory_bandwidth", "host_bandwidth"]))
def test_a_faster_device_never_takes_longer(question, factor, what):
    # zero-bubble schedules fill their bubbles with weight passes, so that faster products can leave more of it
    assume(question[2].schedule in ("gpipe", "1f1b", "interleaved"))
    assume(question[2].resolve(question[3]).zero_stage != 3)  # there, longer passes hide more of the gathering
    before = legal(question)
    model, cluster, plan, framework = question
    value = getattr(cluster.device, what)
    scaled = {dtype: rate * factor for dtype, rate in value.items()} if what == "dense_peak" else value * factor
    device = dataclasses.replace(cluster.device, **{what: scaled})
    after = estimate(model, dataclasses.replace(cluster, device=device), plan, framework)
    assert after.step_time <= before.step_time * (1 + 1e-12)


def test_a_faster_device_never_takes_longer_where_activations_are_offloaded():
    model, cluster, framework = load_model("gemma3-4b"), load_cluster("dgx-h100", gpus=8), "megatron-core"
    plan = Plan(global_batch=16, seq_len=32768, tensor_parallel=8, micro_batch=4, overlap_tensor=True, activation_offload=0.5)
    scaled = {dtype: 12 * rate for dtype, rate in cluster.device.dense_peak.items()}
    faster = dataclasses.replace(cluster, device=dataclasses.replace(cluster.device, dense_peak=scaled))
    before, after = (estimate(model, one, plan, framework).step_time for one in (cluster, faster))
    assert after <= before * (1 + 1e-12)


def test_what_is_offloaded_is_what_is_saved():
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    plan = Plan(global_batch=64, seq_len=8192, tensor_parallel=8, recompute="full")
    plain, offloaded = (
        estimate(model, cluster, dataclasses.replace(plan, activation_offload=share)) for share in (0.0, 1.0)
    )
    saved = 64 * (plain.memory.activations - offloaded.memory.activations)
    transfer = 2 * saved / cluster.device.host_bandwidth
    assert offloaded.step_time - plain.step_time <= transfer


@pytest.mark.slow
@quick
@given(questions(models=st.sampled_from(MODELS).map(load_model), frameworks=["deepspeed", "fsdp2"], pipelines=False, zero=[0]))
def test_each_zero_stage_holds_no_more_than_the_one_before(question):
    model, cluster, plan, framework = question
    assume(plan.expert_parallel == 1)
    # on one rank DeepSpeed's shard spares nothing, and its update holds the shard's gradients in 32 bit beside those of 16
    assume(framework.buckets != "deepspeed" or plan.copies * plan.context_parallel > 1)
    held = []
    for stage in framework.zero_stages:
        try:
            held.append(estimate(model, cluster, dataclasses.replace(plan, zero_stage=stage), framework).memory.total)
        except IllegalPlan:
            assume(False)
    # DeepSpeed adds buckets of gradients to shards, and gathers a billion weights, however few a shard spares; FSDP2 gathers
    # the vocabulary's at least, of which two ranks spare a half
    room = 5e9 if framework.buckets == "deepspeed" else 2.0 * model.vocabulary * model.hidden
    assert all(after <= before + room for before, after in itertools.pairwise(held))


def test_zero_stage_3_holds_no_more_than_stage_2_where_experts_are_split_over_all_ranks():
    model, cluster = load_model("qwen3-30b-a3b"), load_cluster("dgx-b200", gpus=2)
    plan = Plan(global_batch=16, seq_len=4096, data_parallel=2, expert_parallel=2)
    second, third = (
        estimate(model, cluster, dataclasses.replace(plan, zero_stage=stage), "fsdp2").memory.total for stage in (2, 3)
    )
    assert third <= second


@quick
@given(
    questions(models=st.sampled_from(MODELS).map(load_model), frameworks=["deepspeed", "fsdp2"], pipelines=False, zero=[1, 2, 3])
)
def test_a_larger_shard_group_holds_no_more(question):
    model, cluster, plan, framework = question
    assume(plan.expert_parallel == 1)
    ranks = plan.data_parallel * plan.context_parallel
    held = [
        legal((model, cluster, dataclasses.replace(plan, shard_group=group), framework)).memory.total
        for group in divisors(ranks, ranks)
    ]
    assert held == sorted(held, reverse=True)


@quick
@given(questions(offload=[0.0]), st.sampled_from([("none", "selective"), ("selective", "full"), ("none", 2), (2, "full")]))
def test_recomputing_more_never_saves_time(question, pair):
    model, cluster, plan, framework = question
    assume(plan.resolve(framework).zero_stage != 3)  # as above
    less, more = (legal((model, cluster, dataclasses.replace(plan, recompute=kind), framework)) for kind in pair)
    assert more.step_time >= less.step_time * (1 - 1e-12)
    assert more.step.hardware_flop >= less.step.hardware_flop


# Conserving


@quick
@given(questions())
def test_the_shards_of_all_ranks_hold_at_least_the_model(question):
    legal(question)
    model, _, plan, framework = question
    plan = plan.resolve(framework)
    settings, numbers = plan.settings(framework), plan.numbers(framework, model.layers)
    p = plan.pipeline_parallel
    known = {
        "model": model.numbers(), "settings": settings, "plan": numbers, "layers": float(model.layers), "stages": float(p),
        "virtual_stages": float(plan.virtual_stages),
    }  # fmt: skip
    first, middle, last = called(layout.stage_layers, **known)
    stages = [(first, 1.0, 0.0), *[(middle, 0.0, 0.0)] * (p - 2), (last, 0.0, 1.0)] if p > 1 else [(first, 1.0, 1.0)]
    assert sum(layers for layers, _, _ in stages) == model.layers
    ranks = plan.tensor_parallel * plan.context_parallel * plan.data_parallel
    held = [
        ranks * called(memory.states, **known | {"place": Place(
            layers, called(layout.rank_experts, **known | {"rank": float(rank), "layers": layers}), float(rank), embedding, head
        )})[0]
        for rank, (layers, embedding, head) in enumerate(stages)
    ]
    assert sum(held) >= model.parameters * settings.widths.parameter * (1 - 1e-12)


def called(formula, **known):
    """A formula's value, its arguments found by their names."""
    arguments = inspect.signature(formula).parameters.values()
    return formula(*(known.get(one.name, one.default) for one in arguments))



# Search


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("llama3.2-1b", "fsdp2"), ("llama3-8b", "megatron-core"), ("deepseek-v2-lite", "megatron-core"),
        ("gpt2-xl", "megatron-lm-2021"),
    ],
)
def test_search_finds_what_trying_every_plan_finds(name, framework):
    model, software, cluster = load_model(name), load_framework(framework), load_cluster("dgx-h100", gpus=8)
    software = dataclasses.replace(software, grouped_zero_stages=(), rank_orders=software.rank_orders[:1])
    space = {
        "tensor_parallel": [1, 2, 4, 8], "context_parallel": [1, 2], "pipeline_parallel": [1, 2, 4], "virtual_stages": [1, 2],
        "micro_batch": [1, 2, 3], "zero_stage": list(software.zero_stages), "recompute": ["none", "selective", "full", 2],
        "expert_parallel": [1, 2, 8] if model.experts else [1], "dispatcher": [software.dispatcher], "overlap_experts": [False],
    }  # fmt: skip
    tried, legal_ones = 0, []
    for values in itertools.product(*space.values()):
        chosen = dict(zip(space, values, strict=True))
        inside = chosen["tensor_parallel"] * chosen["context_parallel"] * chosen["pipeline_parallel"]
        if 8 % inside:
            continue
        copies = 8 // inside * chosen["context_parallel"]
        if copies == 1 and not model.experts and chosen["zero_stage"] != software.zero_stages[0]:
            continue  # the same plan under another name
        tried += 1
        try:
            plan = Plan(global_batch=32, seq_len=1024, data_parallel=8 // inside, **chosen)
            legal_ones.append(estimate(model, cluster, plan, software))
        except IllegalPlan:
            continue
    legal_ones = [dataclasses.replace(one, required_probability=0.9) for one in legal_ones]  # as a search asks
    fit = sorted((one for one in legal_ones if one.fits), key=lambda one: one.step_time)
    misses = [one for one in legal_ones if not one.fits]
    found = search(model, cluster, global_batch=32, seq_len=1024, framework=software, top=100_000, engine="numpy", **space)
    assert (found.considered, found.evaluated, found.fitting) == (tried, len(legal_ones), len(fit))
    assert sum(found.rejected.values()) == tried - len(legal_ones)
    times, first = [one.step_time for one in found.ranked], simplest_first(fit)[0]
    assert times[0] == pytest.approx(first.step_time, rel=1e-12)  # the simplest of those tied with the fastest, then by time
    assert times[1:] == sorted(times[1:])
    by_plan = {dataclasses.replace(one.plan, shard_group=None): one.step_time for one in fit}
    rows = [[dataclasses.replace(plan, shard_group=None) for plan in (one.plan, *twins)]
            for one, twins in zip(found.ranked, found.twins, strict=True)]  # fmt: skip
    assert len(by_plan) == len(fit) == sum(map(len, rows)) and set(by_plan) == {plan for row in rows for plan in row}
    for time, row in zip(times, rows, strict=True):  # twins are no further from each other than from the one that is shown
        assert [by_plan[plan] for plan in row] == pytest.approx([time] * len(row), rel=2e-3)
        assert by_plan[row[0]] == pytest.approx(time, rel=1e-12)
    assert all(one.fits for one in found.ranked)
    near = [one for one in misses if one.memory.total <= NEAR * (one.memory.total + one.memory_margin)]
    nearest = min((one.step_time for one in near), default=math.inf)
    if found.closest_miss is None:
        assert not near or nearest >= found.best.step_time * (1 - 1e-12)
    else:
        assert found.closest_miss.step_time == pytest.approx(nearest, rel=1e-12)


def test_a_search_over_everything_lets_no_legal_plan_of_8_gpus_be_faster():
    model, cluster = load_model("llama3.2-1b"), load_cluster("dgx-h100", gpus=8)
    best = search(model, cluster, global_batch=64, seq_len=8192).best
    for t, p, b, stage, recompute in itertools.product([1, 2, 4, 8], [1, 2, 4, 8], [1, 2, 4, 8], [0, 1, 2, 3], ["none", "full"]):
        if t * p > 8:
            continue
        plan = Plan(
            global_batch=64, seq_len=8192, tensor_parallel=t, pipeline_parallel=p, data_parallel=8 // (t * p), micro_batch=b,
            zero_stage=stage, recompute=recompute,
        )  # fmt: skip
        try:
            other = estimate(model, cluster, plan)
        except IllegalPlan:
            continue
        other = dataclasses.replace(other, required_probability=0.9)
        assert not other.fits or other.step_time >= best.step_time * (1 - 1e-12), plan


# Repeatable


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "fewer"), [  # plain Python takes milliseconds for a plan
    ("python", {"zero_stage": [0, 1], "expert_parallel": [1, 4]}), ("numpy", {}), ("numba", {}),
])  # fmt: skip
def test_many_threads_get_the_same_bits(engine, fewer):
    model, cluster = load_model("mixtral-8x7b"), load_cluster("dgx-h100", gpus=32)

    def once(_=0):
        found = search(
            model, cluster, global_batch=128, seq_len=8192, engine=engine, top=5, tensor_parallel=4, micro_batch=[1, 2],
            recompute=["none", 2], context_parallel=1, pipeline_parallel=[1, 2], **fewer,
        )  # fmt: skip
        return found.considered, found.rejected, [(one.plan, one.step) for one in found.ranked]

    alone = once()
    assert alone[2]
    with ThreadPoolExecutor(8) as pool:
        assert all(found == alone for found in pool.map(once, range(16)))


# Refusals


OF_FRAMEWORK = ("zero_stage", "zero_pipeline", "degrees_of_framework", "schedule_of_framework", "dtype_of_framework")
SPOILED = (
    "global_batch", "tensor_parallel", "data_parallel", "virtual_stages", "schedule", "seq_len", "expert_parallel",
    "expert_tensor_parallel", "shard_group", "zero_stage",
)  # fmt: skip


@quick
@given(questions(), st.sampled_from(SPOILED), st.data())
def test_an_illegal_plan_is_refused_in_one_line_that_names_the_reason(question, field, data):
    model, cluster, plan, framework = question
    kinds = {"schedule": st.sampled_from(list(SCHEDULES)), "zero_stage": st.integers(0, 3)}
    value = data.draw(kinds.get(field, st.integers(1, 300)))
    try:
        estimate(model, cluster, dataclasses.replace(plan, **{field: value}), framework)
    except IllegalPlan as refused:
        assert_explained(refused.reason, str(refused), plan)


def assert_explained(reason, message, plan):
    assert reason in (*legality.Violations._fields, *OF_FRAMEWORK)
    assert "\n" not in message
    assert message.isprintable()
    assert len(message) < 400
    fields = {field.name for field in dataclasses.fields(plan)}
    assert any(f"{field}=" in message for field in fields), message


@pytest.mark.parametrize("reason", legality.Violations._fields)
def test_every_rule_has_its_words(reason):
    for name in MODELS:
        plan = Plan(global_batch=7, seq_len=100, tensor_parallel=3, pipeline_parallel=5, shard_group=9, attention="unfused")
        assert_explained(reason, explain(reason, plan, load_model(name), load_cluster("dgx-h100", gpus=8)), plan)


NAN, HUGE = math.nan, 10**30
JUNK = [NAN, math.inf, -math.inf, 0, -1, True, 2.5, HUGE, -HUGE, 1e300, "x", "", b"x", [], [1], {}, (1, 2), object(), 1 + 2j]
GOOD = {
    Plan: Plan(global_batch=8, seq_len=2048),
    Transformer: load_model("llama3-8b"),
    Device: load_cluster("dgx-h100").device,
    Efficiency: load_cluster("dgx-h100").device.efficiency,
    Cluster: load_cluster("dgx-h100", gpus=16),
    Level: load_cluster("dgx-h100").levels[0],
    Framework: load_framework("fsdp2"),
}
FIELDS = [
    pytest.param(kind, field, id=f"{kind.__name__}.{field.name}")
    for kind, good in GOOD.items() for field in dataclasses.fields(good)
]  # fmt: skip


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_bad_value_is_refused_in_one_line_that_names_its_field_or_is_taken(kind, field):
    for junk in JUNK:
        try:
            dataclasses.replace(GOOD[kind], **{field.name: junk})
        except InvalidValue as refused:
            assert "\n" not in str(refused)
            assert len(str(refused)) < 400
            assert refused.expected


WHOLE = [
    *[(Plan, name) for name in ("global_batch", "seq_len", "tensor_parallel", "context_parallel", "expert_parallel",
      "expert_tensor_parallel", "pipeline_parallel", "virtual_stages", "data_parallel", "micro_batch", "shard_group",
      "recompute")],
    *[(Transformer, name) for name in ("layers", "hidden", "heads", "vocabulary", "kv_heads", "head_dim", "value_head_dim",
      "norms_per_layer", "feed_forward")],
    (Cluster, "gpus"), (Level, "size"),
]  # fmt: skip
REAL = [
    *[(Device, name) for name in ("memory", "memory_bandwidth", "host_bandwidth", "usable_memory")],
    *[(Efficiency, name) for name in ("attention_forward", "attention_backward", "memory")], (Level, "bandwidth"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "field"), WHOLE, ids=[f"{kind.__name__}.{field}" for kind, field in WHOLE])
def test_a_count_that_is_none_is_refused_by_name(kind, field):
    for value in (0, -1, True, 2.5, NAN, math.inf, HUGE, "0", "8.5", "eight", "", "8e0", "8 GPUs", b"8", [8]):
        if field == "recompute" and value is True:
            assert dataclasses.replace(GOOD[kind], recompute=True).recompute == "full", "a switch there, beside a count"
            continue
        with pytest.raises(InvalidValue, match=field) as refused:
            dataclasses.replace(GOOD[kind], **{field: value})
        assert field in refused.value.field, value


@pytest.mark.parametrize(("kind", "field"), WHOLE, ids=[f"{kind.__name__}.{field}" for kind, field in WHOLE])
def test_a_text_is_kept_as_the_count_that_it_writes(kind, field):
    """Or refused as that count is, of a field that can't have it beside the others."""
    if field == "recompute":
        return  # words, beside which a count is one as a number only
    told = []
    for value in ("8", 8):
        try:
            told.append(getattr(dataclasses.replace(GOOD[kind], **{field: value}), field))
        except InvalidValue as refused:
            told.append(str(refused))
    assert told[0] == told[1]
    assert type(told[0]) in (int, str)


def test_a_degree_in_a_text_is_the_whole_number():
    assert repr(Plan(tensor_parallel="8").tensor_parallel) == "8"


@pytest.mark.parametrize(("kind", "field"), REAL, ids=[f"{kind.__name__}.{field}" for kind, field in REAL])
@pytest.mark.parametrize("value", [0, -1.0, True, NAN, math.inf, -math.inf, 1e300, "8", [8.0], None], ids=repr)
def test_a_quantity_that_is_none_is_refused_by_name(kind, field, value):
    if field == "usable_memory" and value is None:
        return  # the label's
    with pytest.raises(InvalidValue, match=field) as refused:
        dataclasses.replace(GOOD[kind], **{field: value})
    assert field in refused.value.field


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("value", [0, -1.0, True, NAN, math.inf, 1e300, "8", None], ids=repr)
def test_a_peak_that_is_none_is_refused_by_name(dtype, value):
    with pytest.raises(InvalidValue, match=rf"dense_peak\.{dtype}"):
        dataclasses.replace(GOOD[Device], dense_peak={"bf16": 1e15, dtype: value})


def test_every_refusal_is_a_cost_model_error():
    with pytest.raises(CostModelError):
        Plan(global_batch=0, seq_len=1)
    with pytest.raises(CostModelError):
        estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), Plan(global_batch=8, seq_len=1024, data_parallel=1))


def test_a_search_reports_every_combination_once():
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    seen = []
    result = search(model, cluster, global_batch=16, seq_len=2048, progress=lambda done, whole: seen.append((done, whole)))
    assert sum(done for done, _ in seen) == result.considered
    assert {whole for _, whole in seen} == {result.considered}


@pytest.mark.parametrize("arguments", [(8, None, None), (None, 8, None), (None, None, {})])
def test_what_is_no_description_and_names_none_is_refused_in_one_line(arguments):
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    good = (model, cluster, Plan(global_batch=8, seq_len=1024, data_parallel=8))
    given = [bad if bad is not None else fine for bad, fine in zip(arguments, good, strict=True)]
    with pytest.raises(InvalidValue, match="which .* gives"):
        estimate(*given)


@pytest.mark.parametrize("framework", ["nemo", "megatron-core", "fsdp2", "hf-trainer", "deepspeed"])
@pytest.mark.parametrize("flag", ["overlap_gradients", "overlap_parameters", "overlap_tensor", "overlap_pipeline"])
def test_hiding_an_exchange_never_lengthens_the_step(framework, flag):
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=32)
    splits = ({"data_parallel": 32}, {"tensor_parallel": 4, "data_parallel": 8}, {"pipeline_parallel": 4, "data_parallel": 8})
    for degrees in splits:
        if framework == "fsdp2" and "pipeline_parallel" in degrees:
            continue
        has = load_framework(framework).dimensions
        if any(name.removesuffix("_parallel") not in (*has, "data") for name in degrees):
            continue
        zero = 1 if "pipeline_parallel" in degrees and framework != "hf-trainer" else None
        plan = Plan(global_batch=128, seq_len=4096, zero_stage=zero, **degrees)
        times = [
            estimate(model, cluster, dataclasses.replace(plan, **{flag: value}), framework).step_time
            for value in (False, True)
        ]
        assert times[1] <= times[0] * (1 + 1e-9)


def test_the_host_updates_ten_billion_offloaded_parameters_in_2_57_seconds_however_many_gpus_it_has():  # ren2021, table 4
    model = dataclasses.replace(load_model("llama3-8b"), layers=40)
    for gpus in (1, 8):
        plan = Plan(global_batch=gpus, seq_len=512, data_parallel=gpus, zero_stage=2)
        cluster = load_cluster("dgx-h100", gpus=gpus)
        offloaded = dataclasses.replace(plan, optimizer_offload=1.0)
        update = estimate(model, cluster, offloaded, "deepspeed").step.optimizer
        transfers = model.parameters / gpus * 4.0 / cluster.device.host_bandwidth
        assert update == pytest.approx(2.57 * model.parameters / 1e10 + transfers, rel=0.02)
