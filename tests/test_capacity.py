"""What would make a plan fit, and how far one can be stretched: against trying every value."""

import dataclasses

import pytest
from hypothesis import given, settings

from costmodel import (
    Cluster,
    IllegalPlan,
    InvalidValue,
    Plan,
    Transformer,
    estimate,
    load_cluster,
    load_model,
    search,
)
from costmodel.description.labels import CAPACITIES
from costmodel.evaluation.capacity import (
    FINDERS,
    deepened,
    fewest_gpus,
    largest_batch,
    largest_micro_batch,
    longest_sequence,
    most_layers,
)
from costmodel.evaluation.verdicts import verdict
from tests.drawing import legal, questions, quick

LLAMA = load_model("llama3-8b")
NODE = load_cluster("dgx-h100", gpus=8)
PLAN = Plan(global_batch=64, seq_len=8192, tensor_parallel=2, pipeline_parallel=2, data_parallel=2, micro_batch=1)
SMALL = Transformer(name="small", layers=6, hidden=768, heads=12, kv_heads=12, feed_forward=3072, vocabulary=32000)
QUESTIONS = {
    "sequence": {"global_batch": 64}, "batch": {"seq_len": 8192}, "micro-batch": {"global_batch": 64, "seq_len": 8192},
    "layers": {"global_batch": 64, "seq_len": 8192}, "gpus": {"global_batch": 64, "seq_len": 8192},
}  # fmt: skip

SURE = {"fit_probability": 0.9}


def node_of(gpus: int, memory: float) -> Cluster:
    """A node whose GPUs have little memory, so that what fits ends soon."""
    cluster = load_cluster("dgx-h100", gpus=8)
    device = dataclasses.replace(cluster.device, memory=memory, usable_memory=memory)
    inner = dataclasses.replace(cluster.levels[0], size=gpus)
    return dataclasses.replace(cluster, device=device, levels=(inner,), gpus=gpus)


@settings(quick, max_examples=15)
@given(questions())
def test_every_offered_change_is_one_that_fits_and_costs_what_it_says(question):
    found = legal(question)
    judged = verdict(found)
    assert judged.fits == (judged.margin >= 0.0)
    assert not (judged.fits and judged.fixes)
    assert sum(size for _, size in judged.largest) == pytest.approx(max(stage.total for stage in found.memory.stages))
    costs = [fix.cost for fix in judged.fixes]
    assert costs == sorted(costs)
    for fix in judged.fixes[:3]:
        again = estimate(found.model, found.cluster, fix.estimate.plan, found.framework)
        assert again.fits
        assert again.step_time - found.step_time == pytest.approx(fix.cost)


def test_a_plan_that_fits_needs_no_fix():
    judged = verdict(estimate(LLAMA, NODE, dataclasses.replace(PLAN, tensor_parallel=4, data_parallel=1)))
    assert judged.fits
    assert judged.fixes == []
    assert str(judged).startswith("fits with probability")


def test_a_plan_that_does_not_fit_says_where_and_what_would_help():
    plan = Plan(global_batch=64, seq_len=8192, tensor_parallel=4, pipeline_parallel=4, data_parallel=4)
    judged = verdict(estimate(load_model("llama3-70b"), load_cluster("dgx-h100", gpus=64), plan))
    assert (judged.fits, judged.stage, judged.phase) == (False, 0, "backward")
    assert judged.largest[0][0] == "activations"
    assert "stage 0 at its backward needs" in str(judged)
    assert "Would fit: " in str(judged)


# How far a question goes: every value tried by hand


@pytest.mark.parametrize(
    ("gpus", "memory", "dimensions"),
    [
        (8, 6.1e9, {}), (6, 8e9, {"context_parallel": [3], "tensor_parallel": [2]}),
        (6, 6.6e9, {"context_parallel": [3, 2], "recompute": ["none"]}),
    ],
)  # fmt: skip
def test_no_longer_sequence_fits_than_the_one_that_is_found(gpus, memory, dimensions):
    node = node_of(gpus, memory)
    found = longest_sequence(SMALL, node, global_batch=12, **dimensions)
    longer = range(found.value + 128, 2 * found.value, 128)
    assert not [n for n in longer if search(SMALL, node, global_batch=12, seq_len=n, top=1, **dimensions).ranked]
    assert found.value == found.plan.seq_len and found.fits and found.ended_by == "memory"
    best = search(SMALL, node, global_batch=12, seq_len=found.value, top=1, **dimensions).best
    assert best.plan == found.plan and best.step_time == found.best.step_time


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "memory"), [(6, 5.2e9), (8, 5.2e9)])
@pytest.mark.parametrize("dimensions", [{}, {"pipeline_parallel": [1], "tensor_parallel": [1]}, {"recompute": ["none"]}])
def test_no_larger_batch_fits_at_once_than_the_one_that_is_found(gpus, memory, dimensions):
    node, question = node_of(gpus, memory), {"seq_len": 1024, "top": 1, **dimensions}
    found = largest_batch(SMALL, node, seq_len=1024, **dimensions)
    copies = [d for d in range(1, gpus + 1) if gpus % d == 0]

    def at_once(batch: int) -> bool:
        return any(
            search(SMALL, node, **question, global_batch=batch, data_parallel=d, micro_batch=batch // d).ranked
            for d in copies if batch % d == 0
        )  # fmt: skip

    assert found.plan.micro_batches == 1 and found.plan.global_batch == found.value
    assert at_once(found.value)
    assert not any(map(at_once, range(found.value + 1, found.value + 4 * gpus + 1)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpus", "memory", "stages"),
    [(4, 5.2e9, [1, 2]), (6, 5.2e9, [1, 2]), (4, 5.5e9, [4, 3, 2]), (6, 6.5e9, [4, 3, 2])],
)  # fmt: skip
def test_no_deeper_model_fits_than_the_one_that_is_found(gpus, memory, stages):
    node, question = node_of(gpus, memory), {"global_batch": 12, "seq_len": 2048, "pipeline_parallel": stages, "top": 1}
    found = most_layers(SMALL, node, **{name: value for name, value in question.items() if name != "top"})
    deeper = range(found.value + 1, 2 * found.value + 4 * gpus)
    assert not [n for n in deeper if search(deepened(SMALL, n), node, **question).ranked]
    assert found.fits and found.value == found.model.layers
    assert f"with {found.value} layers" in found.model.name


@pytest.mark.parametrize("batch", [8, 24, 60])
def test_the_largest_micro_batch_is_the_last_divisor_that_fits(batch):
    node, question = node_of(6, 5.5e9), {"global_batch": batch, "seq_len": 2048}
    sizes = [n for n in range(1, batch + 1) if batch % n == 0]
    fitting = [n for n in sizes if search(SMALL, node, micro_batch=n, top=1, **question).ranked]
    assert largest_micro_batch(SMALL, node, **question).value == max(fitting)


@pytest.mark.parametrize("framework", ["megatron-core", "fsdp2"])
@pytest.mark.parametrize("batch", [72, 512])
def test_the_fewest_gpus_are_the_first_on_which_a_search_finds_a_plan(framework, batch):
    large, options = load_model("llama3-70b"), {"global_batch": batch, "seq_len": 4096, "framework": framework}
    found = fewest_gpus(large, NODE, most=160, **options)
    sizes = (1, 2, 4, *range(8, 161, 8))
    fitting = [gpus for gpus in sizes if search(large, NODE.with_gpus(gpus), top=1, **options).ranked]
    assert found.value == min(fitting) == found.plan.gpus


def test_one_plan_of_bad_degrees_says_little_of_a_model_that_others_fit():
    of_one = longest_sequence(LLAMA, NODE, Plan(global_batch=8, seq_len=1, zero_stage=1))
    of_all = longest_sequence(LLAMA, NODE, global_batch=64)
    assert of_all.value > 100 * of_one.value
    assert (of_all.plan.tensor_parallel, of_all.plan.recompute) == (8, "full")


def test_a_plan_that_is_held_is_stretched_as_it_is():
    # as sure as for what is chosen among many
    wide, long = largest_micro_batch(LLAMA, NODE, PLAN), longest_sequence(LLAMA, NODE, PLAN)
    fitting = [n for n in (1, 2, 4, 8, 16, 32) if estimate(LLAMA, NODE, dataclasses.replace(PLAN, micro_batch=n), **SURE).fits]
    assert wide.value == max(fitting)
    assert wide.plan == estimate(LLAMA, NODE, dataclasses.replace(PLAN, micro_batch=wide.value)).plan
    assert not estimate(LLAMA, NODE, dataclasses.replace(PLAN, seq_len=long.value + 128), **SURE).fits
    deep = most_layers(LLAMA, NODE, PLAN)
    assert not any(estimate(deepened(LLAMA, deep.value + more), NODE, PLAN, **SURE).fits for more in (1, 2, 3))
    few = fewest_gpus(LLAMA, load_cluster("dgx-h100"), PLAN)
    assert few.plan == dataclasses.replace(PLAN, data_parallel=few.plan.data_parallel).resolve(few.best.framework)
    with pytest.raises(IllegalPlan, match="tensor_parallel=3"):
        longest_sequence(LLAMA, NODE, dataclasses.replace(PLAN, tensor_parallel=3))


@pytest.mark.slow
@pytest.mark.parametrize("find", FINDERS)
def test_every_capacity_gives_the_same_kind_of_answer(find):
    node = load_cluster("dgx-h100", gpus=8)
    found = FINDERS[find](LLAMA, node, **QUESTIONS[find])
    again = search(
        found.model, found.best.cluster, global_batch=found.plan.global_batch, seq_len=found.plan.seq_len,
        micro_batch=found.plan.micro_batch, data_parallel=found.plan.data_parallel, top=1,
    ).best  # fmt: skip
    assert again.plan == found.plan
    words, thing, *_ = CAPACITIES[find]
    assert found.said().lower().startswith(words.lower()) and thing in found.said() and f"{found.value:,}" in found.said()
    assert found.to_dict()["found"] == found.value and found.offers == []
    surer = FINDERS[find](LLAMA, node, fit_probability=0.95, **QUESTIONS[find])
    assert surer.value >= found.value if find == "gpus" else surer.value < found.value or find == "micro-batch"
    assert surer.best.fit_probability >= 0.95 - 1e-9


@pytest.mark.parametrize("find", [find for find in FINDERS if find != "layers"])
def test_where_nothing_fits_every_capacity_offers_what_would(find):
    huge = load_model("llama3-70b")
    most = {"most": 4} if find == "gpus" else {}
    found = FINDERS[find](huge, load_cluster("dgx-h100", gpus=4), **QUESTIONS[find], **most)
    assert (found.value, found.fits) == (None, False) and "GiB more than a GPU" in found.why_none()
    assert "adapter=qlora" in [offer.change for offer in found.offers] and all(offer.best.fits for offer in found.offers)
    assert not any("=any" in offer.change for offer in found.offers)  # what was looked for is no dimension that was asked
    with pytest.raises(IllegalPlan, match="GiB more than a GPU"):
        _ = found.plan
    held = Plan(global_batch=8, seq_len=8192, tensor_parallel=4)
    alone = FINDERS[find](huge, load_cluster("dgx-h100", gpus=4), held, **most)
    assert not alone.fits and "GiB more than a GPU" in alone.why_none()


def test_a_model_of_one_layer_may_be_too_deep():
    found = most_layers(load_model("llama3-70b"), node_of(2, 8e9), global_batch=8, seq_len=4096)
    assert not found.fits and found.smallest.model.layers == 1


def test_what_ends_a_capacity_beside_memory_is_said():
    gpt = load_model("gpt2-xl")
    assert longest_sequence(gpt, NODE, global_batch=8).said().endswith("1,024 tokens, all the positions that gpt2-xl has learned")
    odd = dataclasses.replace(SMALL, learned_positions=1000)
    assert longest_sequence(odd, NODE, global_batch=8).value == 1000
    assert longest_sequence(SMALL, NODE, global_batch=8, most=1024).ended_by == "the most that is tried"
    assert largest_micro_batch(SMALL, NODE, global_batch=8, seq_len=1024).ended_by == "all that a copy takes in a step"


@pytest.mark.parametrize(
    ("find", "given", "words"),
    [
        ("sequence", {"seq_len": 4096}, "seq_len=4096: expected nothing: it is what is looked for"),
        ("batch", {"micro_batch": 2}, "micro_batch=2: expected nothing"),
        ("micro-batch", {"micro_batch": 2}, "micro_batch=2: expected nothing"),
        ("layers", {"tensor_paralel": 2}, "tensor_paralel=2: expected a field of Plan"),
        ("gpus", {"fit_probability": 2.0}, "fit_probability=2.0"),
        ("gpus", {"plan": PLAN}, "beside a plan"),
        ("layers", {"plan": PLAN, "tensor_parallel": 2}, "beside a plan"),
        ("sequence", {"global_batch": 0}, "global_batch=0"),
        ("batch", {"data_parallel": 0}, "data_parallel=0"),
    ],
)
def test_a_capacity_refuses_what_it_does_not_take(find, given, words):
    with pytest.raises(InvalidValue, match=words):
        FINDERS[find](LLAMA, NODE, **{**QUESTIONS[find], **given})
    with pytest.raises(InvalidValue, match="answer"):
        verdict(PLAN)


@pytest.mark.parametrize("find", FINDERS)
def test_numbers_that_go_by_their_names_are_refused_at_the_place_of_a_plan(find):
    with pytest.raises(InvalidValue, match="plan=64: expected a Plan, .*; global_batch=... and seq_len=... go by their names"):
        FINDERS[find]("llama3-8b", "dgx-h100", 64, 4096)
