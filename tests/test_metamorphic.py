"""What must hold between two answers whatever the constants, over all frameworks: more of anything is never worse."""

import dataclasses
import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from costmodel import (
    IllegalPlan,
    Plan,
    estimate,
    framework_names,
    load_cluster,
    load_device,
    load_framework,
    load_model,
)
from costmodel.evaluation.notes import notes
from costmodel.evaluation.plan_search import search
from costmodel.formulas.pipeline import layout
from tests.drawing import legal, questions, quick

ALL = framework_names()
GRADIENTS_FROM_THE_START = [name for name in ALL if not load_framework(name).lazy_gradients]
"""At the end of a backward pass gradients that come late are all there, and of the last layer at work what it makes again, but
not what it kept, which it is about to free."""
FACTORS = st.floats(1.01, 20.0)
ALIKE = 0.01
"""By how much a step may be slower where the host sets the pace: what it waits moves from passes that hide exchange to others."""


def with_links(cluster, place, **factors):
    """The cluster with links of one level, or of all, so many times as fast or as late."""
    changed = [
        dataclasses.replace(level, **{name: factor * getattr(level, name) for name, factor in factors.items()})
        if place in (None, number) else level
        for number, level in enumerate(cluster.levels)
    ]  # fmt: skip
    return dataclasses.replace(cluster, levels=changed)


def with_device(cluster, **fields):
    return dataclasses.replace(cluster, device=dataclasses.replace(cluster.device, **fields))


@quick
@given(questions(frameworks=ALL), FACTORS, st.sampled_from([None, 0, 1]))
def test_more_bandwidth_is_never_slower(question, factor, place):
    before = legal(question)
    model, cluster, plan, framework = question
    after = estimate(model, with_links(cluster, place, bandwidth=factor), plan, framework)
    assert after.step_time <= before.step_time * (1 + ALIKE)
    assert after.memory.total == before.memory.total


@quick
@given(questions(frameworks=ALL), FACTORS, st.sampled_from([None, 0, 1]))
def test_more_latency_is_never_faster(question, factor, place):
    before = legal(question)
    model, cluster, plan, framework = question
    after = estimate(model, with_links(cluster, place, latency=factor), plan, framework)
    assert after.step_time >= before.step_time * (1 - ALIKE)


@quick
@given(questions(frameworks=ALL), FACTORS)
def test_a_device_that_is_faster_in_every_rate_is_never_slower(question, factor):
    before = legal(question)
    model, cluster, plan, framework = question
    device = cluster.device
    faster = with_device(
        cluster, dense_peak={name: factor * rate for name, rate in device.dense_peak.items()},
        memory_bandwidth=factor * device.memory_bandwidth, host_bandwidth=factor * device.host_bandwidth,
    )  # fmt: skip
    assert estimate(model, faster, plan, framework).step_time <= before.step_time * (1 + ALIKE)


@quick
@given(questions(frameworks=ALL), st.floats(1.01, 3.0))
def test_a_plan_that_fits_fits_a_larger_memory_and_is_no_slower_there(question, factor):
    before = legal(question)
    model, cluster, plan, framework = question
    usable = cluster.device.usable_memory
    larger = with_device(cluster, memory=factor * cluster.device.memory, usable_memory=usable and factor * usable)
    after = estimate(model, larger, plan, framework)
    assert after.fits or not before.fits
    assert after.memory.total == before.memory.total
    assert after.step_time <= before.step_time * (1 + 1e-12)


@pytest.mark.parametrize("framework", ["megatron-core", "fsdp2", "deepspeed"])
def test_more_memory_never_leaves_fewer_plans_that_fit(framework):
    cluster = load_cluster("dgx-h100", gpus=8)
    asked = {"global_batch": 64, "seq_len": 4096, "framework": framework, "engine": "numpy"}
    fitting = [
        search(load_model("llama3-8b"), with_device(cluster, memory=memory, usable_memory=None), **asked).fitting
        for memory in (32e9, 48e9, 80e9, 192e9)
    ]
    assert fitting == sorted(fitting)


@quick
@given(questions(frameworks=GRADIENTS_FROM_THE_START, offload=[0.0]), st.data())  # what is made again isn't offloaded either
def test_recomputation_never_holds_more_than_what_it_begins_from_and_is_never_faster(question, data):
    """Nothing is held for less than a stage of one layer, which is made again whole beside the input that was kept for it.

    Where every other layer is, a stage of one has half of one on average.
    """
    model, cluster, plan, framework = question
    alternate = [2] if model.layers >= 2 * plan.pipeline_parallel * plan.virtual_stages else []
    kinds = ["selective", "full", 1, *alternate, *framework.recompute_modules]
    none = legal((model, cluster, dataclasses.replace(plan, recompute="none"), framework))
    some = legal((model, cluster, dataclasses.replace(plan, recompute=data.draw(st.sampled_from(kinds))), framework))
    kept = 4.0 * plan.micro_batch * plan.seq_len * model.hidden * layout.micro_batches(*none.inputs[1:3])
    assert some.memory.total <= none.memory.total * (1 + 1e-12) + kept
    assert some.step_time >= none.step_time * (1 - 1e-12)
    assert some.step.hardware_flop >= none.step.hardware_flop


@quick
@given(questions(frameworks=ALL))
def test_a_further_zero_stage_holds_no_more_but_for_its_buckets_and_what_it_gathers(question):
    """DeepSpeed adds its buckets, whatever they spare; stage 3 holds the weights of a stage whole while a pipeline works on them.

    Then it has the gradients of the unit that it scatters, too, as wide as weights and again in 32 bit: six bytes for two of a
    weight. Where a library shards that keeps states of its own, no stage goes before its first.
    """
    model, cluster, plan, framework = question
    units = max(model.layers // (plan.pipeline_parallel * plan.virtual_stages), 1)
    held = {}
    for stage in framework.zero_stages:
        if stage == 0 and framework.sharded_optimizer_bytes:
            continue
        try:
            held[stage] = estimate(model, cluster, dataclasses.replace(plan, zero_stage=stage), framework)
        except IllegalPlan:
            continue
    assume(len(held) > 1)
    for (less, before), (more, after) in itertools.pairwise(held.items()):
        buckets = after.memory.buffers - before.memory.buffers if framework.buckets.startswith("deepspeed") else 0.0
        room = 1.1 * max(buckets, 0.0)
        if more == 3 or less == 0:
            room += 1.15 * (before.memory.weights + 4.0 * model.vocabulary * model.hidden) + 0.5e9
        if more == 3:
            room += 3.0 * before.memory.weights / units
        assert after.memory.total <= before.memory.total + room, (less, more)


@pytest.mark.parametrize("framework", ["megatron-core", "fsdp2", "deepspeed", "nanotron", "maxtext", "hf-fsdp"])
def test_the_best_plan_of_twice_the_gpus_is_never_slower(framework):
    model = load_model("llama3-8b")
    times = [
        search(
            model, load_cluster("dgx-h100", gpus=gpus), global_batch=64, seq_len=2048, framework=framework, engine="numpy"
        ).best.step_time
        for gpus in (8, 16, 32)
    ]  # fmt: skip
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("framework", ALL)
def test_a_vocabulary_of_one_takes_no_longer_than_one_of_thousands(framework):
    software = load_framework(framework, "hopper")
    dtype = "bf16" if "bf16" in software.dtypes else "fp16"
    cluster, model = load_cluster("dgx-h100", gpus=1024), load_model("gpt3-175b")
    plan = Plan(global_batch=1024, seq_len=2048, data_parallel=1024, dtype=dtype)
    for stage in software.zero_stages:
        one, many = (
            estimate(
                dataclasses.replace(model, vocabulary=size), cluster, dataclasses.replace(plan, zero_stage=stage), software
            ).step_time
            for size in (1, 8192)
        )
        assert one <= many * (1 + ALIKE)


def test_a_device_reads_the_same_in_other_units(tmp_path):
    """Bytes a second and GB/s, bytes and GiB, FLOP/s and TFLOP/s."""
    plain = 'architecture = "hopper"\nmemory = 85899345920\nmemory_bandwidth = 3.35e12\nhost_bandwidth = 55e9\n'
    spelled = 'architecture = "hopper"\nmemory = "80 GiB"\nmemory_bandwidth = "3350 GB/s"\nhost_bandwidth = "440 Gbit/s"\n'
    found = []
    for name, text, peak in (("plain", plain, "9.894e14"), ("spelled", spelled, '"989.4 TFLOP/s"')):
        path = tmp_path / f"{name}.toml"
        path.write_text(f"[mine]\ntitle = \"mine\"\n{text}dense_peak = {{ bf16 = {peak} }}\n", encoding="utf-8")
        device = load_device(str(path))
        found.append((device.memory, device.memory_bandwidth, device.host_bandwidth, device.dense_peak["bf16"]))
    assert found[0] == pytest.approx(found[1], rel=1e-12)


@pytest.mark.parametrize(("gpus", "data", "tensor", "said"), [(9, 9, 1, "9 GPUs leave 7 of 8 idle"), (12, 4, 3, "groups of 3")])
def test_gpus_that_do_not_fill_their_nodes_are_said_with_a_word(gpus, data, tensor, said):
    model = dataclasses.replace(load_model("llama3-8b"), heads=24, kv_heads=24, head_dim=128, feed_forward=14592)
    plan = Plan(global_batch=gpus, seq_len=2040, data_parallel=data, tensor_parallel=tensor)
    lines = notes(estimate(model, load_cluster("dgx-h100", gpus=gpus), dataclasses.replace(plan, global_batch=4 * data)))
    assert any(said in line for line in lines)


def test_a_ninth_gpu_alone_on_its_node_slows_the_exchange_of_all():
    model = load_model("llama3-8b")
    eight, nine = (
        estimate(model, load_cluster("dgx-h100", gpus=gpus), Plan(global_batch=gpus, seq_len=2048, data_parallel=gpus))
        for gpus in (8, 9)
    )
    table = 2.0 * model.parameters * 8 / 9
    link = load_cluster("dgx-h100", gpus=9).levels[1].bandwidth
    assert nine.times["parameter_exchange"] + nine.step.hidden_exchange >= table / link
    assert nine.step_time > 2.0 * eight.step_time
