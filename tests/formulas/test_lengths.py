"""Samples of unlike lengths: what closed forms say of them, against lengths that are drawn and batches that are made of them."""

import dataclasses
import math

import numpy as np
import pytest

from calibration.validate.unstated import VALUES
from costmodel import Plan, estimate, load_cluster, load_framework, load_model, machine, search
from costmodel.evaluation.counted_memory import Count, counted
from costmodel.evaluation.notes import notes
from costmodel.formulas.quantities import SampleLengths
from costmodel.formulas.settings import BATCHINGS
from costmodel.formulas.transformer import flops, lengths
from costmodel.formulas.transformer.lengths import local_tokens
from costmodel.studies.data_parallel import expected_largest
from costmodel.text.errors import IllegalPlan, InvalidValue
from costmodel.traces.allocator import Allocator

MODEL, CLUSTER = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
SHAPES = [(2000.0, 4000.0), (400.0, 4096.0), (3500.0, 4096.0), (50.0, 8192.0), (700.0, 2048.0)]


def drawn(mean, longest, count, seed=0):
    """Lengths of the distribution that a mean and a longest one stand for, by its inverse."""
    return longest * (1.0 - np.random.default_rng(seed).random(count) ** (mean / (longest - mean)))


def numbers(batching, mean, longest):
    return SampleLengths(lengths.CODES[batching], mean, longest)


def asked(batching, mean_length, micro_batch=4, global_batch=512, **fields):
    plan = Plan(global_batch=global_batch, seq_len=4096, micro_batch=micro_batch, zero_stage=1, batching=batching,
                mean_length=mean_length, **fields)  # fmt: skip
    return estimate(MODEL, CLUSTER, plan)


@pytest.mark.parametrize(("mean", "longest"), SHAPES)
def test_lengths_that_are_drawn_have_the_mean_and_the_tokens_of_the_closed_form(mean, longest):
    some = drawn(mean, longest, 1_000_000)
    assert some.mean() == pytest.approx(mean, rel=0.005)
    own = lengths.own_sample(numbers("packed", mean, longest), longest)
    assert own == pytest.approx((some**2).sum() / some.sum(), rel=0.01)


@pytest.mark.parametrize(("mean", "longest"), SHAPES)
@pytest.mark.parametrize("micro_batch", [1, 2, 5, 64])
def test_micro_batches_that_are_padded_have_the_length_of_the_longest_that_is_drawn(mean, longest, micro_batch):
    padded = drawn(mean, longest, 20_000 * micro_batch).reshape(-1, micro_batch).max(axis=1)
    given = float(micro_batch), numbers("padded", mean, longest), longest
    assert lengths.longest_of(*given) == pytest.approx(padded.mean(), rel=0.02)
    assert lengths.padded_square(*given) == pytest.approx((padded**2).mean() / padded.mean(), rel=0.02)


def test_packed_attention_is_that_of_a_block_diagonal_mask_counted_key_by_key():
    """Samples are put into sequences one after another; each token is counted with those before it in its own sample."""
    mean, longest = 100.0, 1000.0
    left, met, tokens = int(longest), 0, 0
    for one in np.maximum(drawn(mean, longest, 20_000).round().astype(int), 1):
        if one > left:
            left = int(longest)
        left -= one
        mask = np.tril(np.ones((one, one), dtype=np.int8)) if one < 50 else None
        met += int(mask.sum()) if mask is not None else one * (one + 1) // 2
        tokens += one
    keys = flops.attended_keys(lengths.own_sample(numbers("packed", mean, longest), longest), 1e18, 1.0)
    assert keys + 0.5 == pytest.approx(met / tokens, rel=0.03)


@pytest.mark.parametrize(("mean", "longest"), SHAPES)
@pytest.mark.parametrize("share", [0.02, 0.2, 0.6, 1.0])
@pytest.mark.parametrize("micro_batch", [1, 2, 8])
def test_a_window_holds_of_unlike_samples_the_keys_that_are_counted(mean, longest, share, micro_batch):
    """Samples alone, and padded to the longest of several: every query meets the keys before it that its window holds."""
    window = share * longest
    some = drawn(mean, longest, 20_000 * micro_batch).reshape(-1, micro_batch).max(axis=1)
    seen = np.minimum(window, some)
    batching, batch = ("packed", 1) if micro_batch == 1 else ("padded", micro_batch)
    plan = Plan(global_batch=batch, seq_len=int(longest), micro_batch=batch, batching=batching, mean_length=mean)
    asked = estimate(MODEL, load_cluster("dgx-h100", gpus=1), plan).inputs
    worked = lengths.at_work(asked.settings, asked.plan)
    own, power = lengths.own_length(worked), lengths.position_power(worked)
    within = 0.02 if batch == 1 else 0.08  # of the longest of several the closed form has mean and square alone
    below = (seen * some - seen**2 / 2).sum() / some.sum()
    assert flops.attended_keys(own, window, 1.0, power) == pytest.approx(below, rel=within)
    assert flops.attended_keys(own, window, 0.0, power) == pytest.approx((seen * some).sum() / some.sum(), rel=within)


@pytest.mark.parametrize(("part", "power"), [(0.5, 3.0), (0.01, 80.0), (0.8, 1.0), (0.0, 7.0), (1.0, 2.0), (1e-9, 3.0)])
def test_what_a_power_lacks_of_one_is_so_to_the_digits_of_a_small_part(part, power):
    assert lengths.lacking(part, power) == pytest.approx(-math.expm1(power * math.log1p(-part)) if part < 1 else 1.0, rel=1e-5)


@pytest.mark.slow
def test_packing_by_the_best_fit_leaves_little_room_where_samples_are_short():
    """What `useful_tokens` takes for granted: first the longest, each into the sequence with the least room that takes it."""
    room, used = [], 0
    for one in sorted(drawn(400.0, 4096.0, 20_000), reverse=True):
        fitting = next((place for place, left in enumerate(room) if left >= one), None)
        left = room.pop(fitting) if fitting is not None else 4096.0
        used += fitting is None
        place = next((at for at, other in enumerate(room) if other > left - one), len(room))
        room.insert(place, left - one)
    assert drawn(400.0, 4096.0, 20_000).sum() / (used * 4096.0) > 0.97


@pytest.mark.parametrize(("batching", "stage", "replicas", "micro_batch", "steps"), [
    ("padded", 1, 8, 4, 16), ("padded", 3, 8, 4, 16), ("padded", 1, 64, 1, 1), ("padding-free", 1, 8, 2, 4),
    ("padding-free", 3, 32, 1, 8), ("padding-free", 1, 16, 4, 1),
])  # fmt: skip
def test_replicas_wait_for_the_one_with_most_tokens(batching, stage, replicas, micro_batch, steps):
    mean, longest = 700.0, 4096.0
    some = drawn(mean, longest, 400 * replicas * steps * micro_batch).reshape(400, steps, replicas, micro_batch)
    tokens = some.max(axis=3) * micro_batch if batching == "padded" else some.sum(axis=3)
    waited = tokens.max(axis=2).mean() if stage == 3 else tokens.sum(axis=1).max(axis=1).mean() / steps
    plan = Plan(global_batch=replicas * steps * micro_batch, seq_len=4096, micro_batch=micro_batch, zero_stage=stage,
                batching=batching, mean_length=mean)  # fmt: skip
    found = estimate(MODEL, load_cluster("dgx-h100", gpus=replicas), plan).inputs
    more = lengths.fullest_rank(found.settings, found.plan, float(steps))
    assert 1.0 + more == pytest.approx(waited / tokens.mean(), rel=0.1)


@pytest.mark.parametrize("ranks", [2, 8, 64, 1024])
def test_the_largest_of_normal_numbers_is_as_large_as_their_integral_says(ranks):
    assert lengths.largest_normal(float(ranks)) == pytest.approx(expected_largest(ranks), rel=0.1)


def test_a_plan_whose_samples_are_as_long_as_the_longest_is_the_full_one():
    full = asked("full", None)
    for name in BATCHINGS[1:]:
        for mean in (4096, 4096.0, *(() if name == "packed" else (None,))):
            same = asked(name, mean)
            assert (same.step_time, same.memory.total, same.mfu) == (full.step_time, full.memory.total, full.mfu)


def test_time_is_that_of_the_mean_and_memory_that_of_the_longest():
    full = asked("full", None)
    found = {name: asked(name, 500.0) for name in BATCHINGS[1:]}
    assert {one.memory.total for one in found.values()} == {full.memory.total}
    assert found["padded-whole"].step_time == full.step_time
    assert found["grouped"].step_time < found["padding-free"].step_time < found["padded"].step_time < full.step_time
    short = asked("full", None)
    short = estimate(MODEL, CLUSTER, dataclasses.replace(short.plan, seq_len=500))
    assert found["grouped"].step_time == pytest.approx(short.step_time, rel=0.1)


def test_packing_saves_what_attention_across_samples_would_cost():
    """At 32,768 tokens two fifths of a layer's FLOP are scores; of samples of 1,000 tokens they are next to none."""
    def took(**fields):
        plan = Plan(global_batch=64, seq_len=32768, tensor_parallel=4, recompute="full", zero_stage=1, **fields)
        return estimate(MODEL, CLUSTER, plan)

    full, packed = took(), took(batching="packed", mean_length=1000.0)
    assert packed.step_time < 0.75 * full.step_time
    assert packed.plan.tokens == full.plan.tokens
    shape, own = MODEL.numbers(), 2 * 32768 * 1000 / 33768
    per_token = flops.model_flop_per_token(shape, own, 0.0)
    assert packed.step.model_flop == pytest.approx(per_token * packed.plan.tokens)


def test_tokens_and_model_flop_leave_padding_out_and_hardware_flop_has_it_in():
    padded = asked("padded", 500.0)
    assert padded.plan.tokens == 512 * 500.0
    assert padded.tokens_per_second == pytest.approx(512 * 500.0 / padded.step_time)
    found = padded.inputs
    worked = float(local_tokens(lengths.at_work(found.settings, found.plan), found.plan)) / 4
    assert worked == pytest.approx(drawn(500.0, 4096.0, 400_000).reshape(-1, 4).max(axis=1).mean(), rel=0.01)
    assert padded.step.hardware_flop / padded.step.model_flop == pytest.approx(worked / 500.0, rel=0.05)


def test_settings_at_work_are_as_they_are():
    found = asked("padded", 500.0).inputs
    once = lengths.at_work(found.settings, found.plan)
    assert lengths.at_work(once, found.plan) == once


def test_a_search_tries_ways_to_batch_and_ranks_by_time():
    result = search(
        MODEL, CLUSTER, global_batch=512, seq_len=4096, mean_length=500.0, batching=["padded", "grouped"], top=2_000,
        micro_batch=[4], zero_stage=[1],
    )  # fmt: skip
    assert {one.plan.batching for one in result.ranked} == {"padded", "grouped"}
    assert result.best.plan.batching == "grouped"
    for one in result.ranked[:5]:
        again = estimate(MODEL, CLUSTER, one.plan)
        assert again.step_time == pytest.approx(one.step_time, rel=1e-9)


def test_lengths_that_no_batch_has_are_refused_and_what_is_assumed_is_said():
    with pytest.raises(IllegalPlan, match="mean_length=5000.* with seq_len=4096: samples are longer on average than the longest"):
        asked("padded", 5000)
    with pytest.raises(InvalidValue, match="mean_length=500.*batching"):
        Plan(global_batch=8, seq_len=4096, mean_length=500)
    assert any("lengths are taken to lie" in line for line in notes(asked("packed", 500.0)))
    assert any("mean_length says how long" in line for line in notes(asked("packed", None)))


@pytest.mark.parametrize(("model", "cluster", "plan", "software", "seconds"), [
    ("qwen2.5-14b", ("a800", 8), {"seq_len": 8192, "tensor_parallel": 4, "recompute": "selective"}, "megatron-core", 9.04),
    ("qwen2.5-14b", ("a800", 8), {"seq_len": 8192, "zero_stage": 3, "recompute": "full"}, "deepspeed@2025-03", 10.56),
    ("qwen2.5-7b", ("a100-sxm-80gb", 4), {"seq_len": 32768, "global_batch": 8, "tensor_parallel": 4, "recompute": "full"},
     "megatron-core", 23.0),
])  # fmt: skip
def test_packed_samples_of_a_length_that_nobody_says_take_what_was_measured(model, cluster, plan, software, seconds):
    """modelscope/ms-swift@3602360 docs/source_en/Megatron-SWIFT/Quick-start.md, "Benchmark"; examples/megatron/long_text.sh."""
    device, gpus = cluster
    asked = Plan(**{"global_batch": 16, "micro_batch": 1, "batching": "packed"} | plan)
    assert estimate(model, machine(device, gpus=gpus), asked, software).step_time == pytest.approx(seconds, rel=0.1)


def test_an_unsaid_length_is_doubted_by_as_much_as_lies_evenly_between_short_samples_and_the_pack():
    """The variance of what lies evenly is a twelfth of the square: two ends, each a sixth, at half of it."""
    ends = VALUES["mean_length"]["plan"]
    assert sum(end["weight"] for end in ends) * 0.5**2 == pytest.approx(1 / 12, rel=0.02)
    assert [end.get("mean_length", end.get("batching")) for end in ends] == [lengths.SHORT_SAMPLE, "full"]


@pytest.mark.parametrize("batching", BATCHINGS[1:])
@pytest.mark.parametrize("mean", [1.0, 4095.999, 17])
def test_extreme_means_give_times_between_those_of_the_shortest_and_the_longest(batching, mean):
    found = asked(batching, mean)
    assert 0.0 < found.step_time <= asked("full", None).step_time * 1.001


def test_a_drawn_step_of_padded_micro_batches_takes_what_the_closed_form_says():
    """A step played out: every micro-batch priced by itself at its own length, replicas waiting for the slowest."""
    def took(length):
        return estimate(MODEL, CLUSTER, Plan(global_batch=512, seq_len=int(length), micro_batch=4, zero_stage=1)).step

    ends = [64, 128, 256, 512, 1024, 2048, 3072, 4096]
    prices = [took(length) for length in ends]
    each = [(one.forward + one.backward) / 16 for one in prices]
    rest = prices[4].total - 16 * each[4]
    some = drawn(700.0, 4096.0, 200 * 16 * 8 * 4, seed=3).reshape(200, 16, 8, 4).max(axis=3)
    steps = np.interp(some, ends, each).sum(axis=1).max(axis=1) + rest
    assert asked("padded", 700.0).step_time == pytest.approx(steps.mean(), rel=0.08)




def kept_idle(shapes, expandable):
    """Reserved beyond the tensors' peak over what comes and goes, by the allocator's own rules: layers, then a loss of 32 bit."""
    machine, peak = Allocator(expandable=expandable), 0
    states = [machine.allocate(32 * 2**20, 0) for _ in range(4)]
    for tokens in shapes:
        inputs = []
        for _ in range(6):
            inputs.append(machine.allocate(tokens * 2048 * 2, 0))
            within = [machine.allocate(tokens * width * 2, 0) for width in (2048, 2048, 5504, 5504)]
            peak = max(peak, machine.allocated)
            for block in within:
                machine.release(block)
        logits = [machine.allocate(tokens * 150_000 * width, 0) for width in (2, 4, 4, 4)]
        peak = max(peak, machine.allocated)
        for block in logits + inputs[::-1]:
            machine.release(block)
    coming = peak - sum(block.size for block in states)
    return (machine.reserved - peak) / coming


def test_the_allocator_keeps_as_much_as_passes_hold_where_every_micro_batch_has_another_shape():
    unlike = np.random.default_rng(0).integers(256, 2049, 200)
    alike, drawn, grown = kept_idle([2048] * 200, False), kept_idle(unlike, False), kept_idle(unlike, True)
    kept = load_framework("megatron-core").constants.memory.unlike_idle
    assert drawn - alike >= kept  # it grows until memory is short
    assert grown - alike < 0.2 * kept
    model, cluster = load_model("bloom-560m"), load_cluster("dgx-h100", gpus=1)
    plan = Plan(global_batch=8, seq_len=1024, micro_batch=2, recompute="full")
    ragged = dataclasses.replace(plan, batching="padded", mean_length=300.0)
    shown = {
        name: counted([estimate(model, cluster, one, "hf-trainer")], [Count("reserved", "max")])[0]
        for name, one in (("full", plan), ("padded", ragged), ("whole", dataclasses.replace(ragged, batching="padded-whole")),
                          ("expandable", dataclasses.replace(ragged, expandable_segments=True)))
    }  # fmt: skip
    assert shown["padded"] > 1.3 * shown["full"] >= 1.2 * shown["expandable"] and shown["whole"] == shown["full"]
