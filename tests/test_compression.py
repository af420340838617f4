"""Plans that compress gradients: bytes counted in real tensors that were encoded, times against their parts, refusals."""

import dataclasses
import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel import (
    IllegalPlan,
    InvalidValue,
    NotModelled,
    Plan,
    Transformer,
    estimate,
    load_cluster,
    load_framework,
    load_model,
    search,
)
from costmodel.arithmetic.named_tuples import replaced
from costmodel.description.buckets import DistributedDataParallel, OneBucket
from costmodel.description.plan import explain
from costmodel.evaluation.verdicts import verdict
from costmodel.formulas import gradients, legality, synchronisation
from costmodel.formulas.network import collectives, compression
from costmodel.formulas.settings import COMPRESSIONS
from costmodel.formulas.training_step import step
from costmodel.formulas.transformer import low_rank, memory
from costmodel.simulation.playback import timeline
from costmodel.simulation.replay import simulate
from costmodel.simulation.transactions import ledger
from tests.drawing import quick
from tests.tensors import parameter_tensors

SMALL = Transformer(
    name="small", layers=3, hidden=256, heads=8, vocabulary=4096, feed_forward=1024, gated=False, norm="layernorm",
    attention_bias=True, output_bias=True, feed_forward_bias=True, tied_embeddings=True, learned_positions=0,
)  # fmt: skip
GROUPED = Transformer(name="grouped", layers=3, hidden=256, heads=8, kv_heads=2, vocabulary=4096, feed_forward=768)
LATENT = Transformer(
    name="latent", layers=4, hidden=256, heads=8, vocabulary=1024, head_dim=48, value_head_dim=32, kv_latent=64,
    rope_head_dim=16, query_latent=96, experts=8, experts_per_token=2, expert_feed_forward=512,
    shared_expert_feed_forward=512, dense_layers=1, feed_forward=1024,
)  # fmt: skip
MODELS = {model.name: model for model in (SMALL, GROUPED, LATENT)}
CHOICES = {
    "bf16": {}, "int8": {}, "top-k": {"compression_density": 0.01}, "power-sgd": {"compression_rank": 4},
}  # fmt: skip
PLAN = Plan(
    global_batch=16, seq_len=512, data_parallel=16, zero_stage=0, gradient_bytes=4, overlap_gradients=False, attention="flash"
)
CLUSTER = load_cluster("dgx-a100", gpus=16)
FRAMEWORK = dataclasses.replace(dataclasses.replace(load_framework("fsdp2"), reduce_bytes=4.0), buckets="one")


def compressing(name, plan=PLAN, **fields):
    return dataclasses.replace(plan, compression=name, **CHOICES.get(name, {}), **fields)


def answer(name, model=GROUPED, plan=PLAN, cluster=CLUSTER, **fields):
    return estimate(model, cluster, compressing(name, plan, **fields), FRAMEWORK)


def ring(nbytes, ranks):
    """What a rank sends in an all-reduce: all but its own part, twice."""
    return 2 * (ranks - 1) * nbytes / ranks


@functools.cache
def encoded(name, model, ranks):
    """Bytes that one rank sends, and those it holds besides, counted in arrays: gradients of a model, encoded."""
    draw = np.random.default_rng(0)
    shapes = [tensor.shape for tensor in parameter_tensors(MODELS[model], prediction=True)]
    made = [draw.standard_normal(shape, dtype=np.float32) for shape in shapes]
    flat = np.concatenate([array.ravel() for array in made])
    if name == "bf16":
        cast = flat.astype(np.float16)
        return ring(cast.nbytes, ranks), cast.nbytes
    if name == "int8":
        blocks = np.pad(flat, (0, -len(flat) % 256)).reshape(-1, 256)
        scales = np.abs(blocks).max(axis=1)
        whole = np.round(127 * blocks / scales[:, None]).astype(np.int8).ravel()[: len(flat)]
        nbytes = whole.nbytes + scales.nbytes
        return 2 * (ranks - 1) * nbytes / ranks, 2 * nbytes  # a part to each other rank, then the sum of one's own part
    if name == "top-k":
        many = int(np.ceil(0.01 * len(flat)))
        places = np.argpartition(-np.abs(flat), many)[:many].astype(np.int32)
        payload = flat[places].nbytes + places.nbytes
        return (ranks - 1) * payload, ranks * payload + flat.nbytes
    buffers, residual = 0, flat.nbytes
    for array in made:
        rows, columns = array.shape if array.ndim == 2 else (array.size, 1)
        kept = min(4, rows, columns)
        left, right = np.zeros((rows, kept), dtype=np.float32), np.zeros((columns, kept), dtype=np.float32)
        smaller = left.size + right.size < array.size
        buffers += left.nbytes + right.nbytes if smaller else array.nbytes
    return ring(buffers, ranks), buffers + residual


# Bytes


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("model", MODELS)
def test_a_rank_sends_the_bytes_of_its_tensors_encoded(name, model):
    found = answer(name, MODELS[model])
    sent, _ = encoded(name, model, 16)
    assert found.step.exchange_bytes == pytest.approx(sent, rel=1e-4 if MODELS[model].experts else 1e-9)  # two groups round up


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("model", MODELS)
def test_a_rank_holds_the_encoded_arrays_and_what_was_not_sent(name, model):
    _, held = encoded(name, model, 16)
    plain, found = answer("none", MODELS[model]).memory, answer(name, MODELS[model]).memory
    assert found.buffers - plain.buffers == pytest.approx(held, rel=1e-4 if MODELS[model].experts else 1e-9)
    assert (found.weights, found.gradients, found.optimizer) == (plain.weights, plain.gradients, plain.optimizer)
    assert found.stages[0].total == pytest.approx(found.total, rel=1e-12)
    assert found.timeline(0).peak.held.total == pytest.approx(found.total, rel=1e-12)


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("model", ["small", "grouped"])
def test_tensor_ranks_factor_their_own_part_of_each_matrix(model, tensor):
    rowwise = ("o_proj.weight", "down_proj.weight", "dense.weight", "dense_4h_to_h.weight")
    left = right = 0
    for one in parameter_tensors(MODELS[model]):
        if len(one.shape) < 2 or "position" in one.name:  # which the formulas divide among tensor ranks
            continue
        rows, columns = one.shape
        rows, columns = (rows, columns // tensor) if one.name.endswith(rowwise) else (rows // tensor, columns)
        assert 4 * (rows + columns) < rows * columns
        left, right = left + 4 * rows, right + 4 * columns
    numbers, plan = MODELS[model].numbers(), Plan(global_batch=2, seq_len=64, tensor_parallel=tensor)
    made = low_rank.stage_factors(
        replaced(numbers, {"vocabulary_positions": 0.0}), plan.numbers(FRAMEWORK, 3), 3.0, numbers.experts.layers, 1.0, 1.0, 4.0
    )
    assert (made.left, made.right) == (left, right)


@pytest.mark.parametrize("model", ["gpt3-6.7b", "llama3-8b", "deepseek-v3", "mixtral-8x7b", "gpt-oss-120b", "bloom-7b1"])
def test_matrices_are_all_parameters_but_vectors(model):
    shape = load_model(model)
    numbers, plan = shape.numbers(), Plan(global_batch=1, seq_len=64).numbers(FRAMEWORK, shape.layers)
    held = numbers.layers, numbers.experts.layers, 1.0, 1.0
    dense, routed = memory.stage_parameters(numbers, plan, *held)
    tensors = parameter_tensors(shape, prediction=True)
    for kept, made in (
        (False, low_rank.stage_factors(numbers, plan, *held, 1.0)),
        (True, low_rank.expert_factors(numbers, plan, routed, 1.0)),
    ):
        matrices = [one for one in tensors if len(one.shape) == 2 and one.routed == kept]
        assert made.covered == pytest.approx(sum(one.numel for one in matrices), rel=1e-12)
        assert made.matrices == pytest.approx(len(matrices), rel=1e-12)
        assert made.covered <= (routed if kept else dense)


def test_a_cast_halves_the_bytes_and_the_time_on_the_network_of_32_bit_gradients():
    model = load_model("llama3-8b")  # large enough for a ring at either width
    plain, cast = answer("none", model), answer("bf16", model)
    assert cast.step.exchange_bytes == pytest.approx(plain.step.exchange_bytes / 2, rel=1e-12)
    network, software, device, count = CLUSTER.numbers(), FRAMEWORK.numbers(), CLUSTER.device.numbers("bf16"), model.parameters
    casting = 2 * 6 * count / device.memory_bandwidth + 2 * device.kernel_time
    half = collectives.all_reduce(2.0 * count, 16.0, 1.0, network, software)
    assert cast.times["gradient_exchange"] == pytest.approx(casting + half, rel=1e-12)
    bandwidth = software.network.quality * collectives.bus_bandwidth(16.0, 1.0, network)
    saved = plain.times["gradient_exchange"] - half
    assert saved == pytest.approx(ring(2 * count, 16) / bandwidth, rel=1e-9)


def test_gradients_that_are_16_bit_already_are_not_cast_again():
    plan = dataclasses.replace(PLAN, gradient_bytes=2)
    assert answer("fp16", plan=plan).step == answer("none", plan=plan).step


@pytest.mark.parametrize("name", [*CHOICES, "fp16"])
def test_a_rank_without_others_compresses_nothing(name):
    alone = dataclasses.replace(PLAN, data_parallel=1, tensor_parallel=2, global_batch=4)
    two = load_cluster("dgx-a100", gpus=2)
    plain, found = answer("none", plan=alone, cluster=two).step, answer(name, plan=alone, cluster=two).step
    assert found == plain


# Time


@pytest.mark.parametrize("name", CHOICES)
def test_what_hides_under_the_backward_pass_is_the_network_s_part_alone(name):
    shown, hidden = answer(name), answer(name, overlap_gradients=True)
    numbers = GROUPED.numbers(), shown.plan.settings(FRAMEWORK), shown.plan.numbers(FRAMEWORK, 3)
    rest = CLUSTER.numbers(), FRAMEWORK.numbers(), CLUSTER.device.numbers("bf16")
    coding = gradients.summed(*numbers, *rest).coding
    assert coding > 0.0
    assert hidden.times["gradient_exchange"] >= coding
    moving = shown.times["gradient_exchange"] - coding
    assert hidden.times["gradient_exchange"] + hidden.step.hidden_exchange == pytest.approx(coding + moving, rel=1e-9)


@quick
@given(
    st.sampled_from(["bf16", "power-sgd"]), st.floats(1.0, 100.0), st.floats(1.01, 10.0), st.sampled_from([2, 8, 16, 64]),
    st.sampled_from(sorted(MODELS)),
)  # fmt: skip
def test_the_slower_the_network_the_more_compression_saves(name, slow, slower, gpus, model):
    def saved(factor):
        cluster = load_cluster("dgx-a100", gpus=gpus)
        levels = [dataclasses.replace(level, bandwidth=level.bandwidth / factor) for level in cluster.levels]
        cluster = dataclasses.replace(cluster, levels=levels)
        plan = dataclasses.replace(PLAN, data_parallel=gpus, global_batch=gpus)
        return answer("none", MODELS[model], plan, cluster).step_time - answer(name, MODELS[model], plan, cluster).step_time

    assert saved(slow * slower) >= saved(slow) - 1e-12


@quick
@given(
    st.sampled_from([name for name in COMPRESSIONS if name != "top-k"]), st.sampled_from([2, 8, 64]), st.integers(1, 600),
    st.sampled_from(sorted(MODELS)), st.sampled_from([1, 2]), st.sampled_from([1, 2]), st.sampled_from([2, 4]),
)  # fmt: skip
def test_nothing_but_top_k_ever_sends_more_than_the_gradients(name, gpus, rank, model, tensor, stages, width):
    if gpus < tensor * stages:
        return
    plan = Plan(
        global_batch=64, seq_len=512, tensor_parallel=tensor, pipeline_parallel=stages, zero_stage=0, gradient_bytes=width,
        data_parallel=gpus // (tensor * stages),
    )  # fmt: skip
    fields = {"compression_rank": rank} if name == "power-sgd" else {}
    found = [
        estimate(MODELS[model], load_cluster("dgx-a100", gpus=gpus), one, "megatron-core").step.exchange_bytes
        for one in (plan, dataclasses.replace(plan, compression=name, **fields))
    ]
    assert found[1] <= found[0] * (1 + 1e-12)


def test_top_k_sends_more_than_the_gradients_from_its_break_even_on():
    density = compression.top_k_break_even(4.0, 4.0, 4.0, 16.0)
    plain = answer("none").step.exchange_bytes
    for factor in (0.9, 1.1):
        plan = dataclasses.replace(PLAN, compression="top-k", compression_density=factor * density)
        found = estimate(GROUPED, CLUSTER, plan, FRAMEWORK).step.exchange_bytes
        assert (found > plain) == (factor > 15 / 16)  # p - 1 payloads against 2 (p - 1) / p buffers


def test_where_an_optimizer_is_sharded_gradients_are_still_summed_whole():
    sharded = dataclasses.replace(PLAN, zero_stage=1)
    model, cluster = GROUPED, CLUSTER
    whole, found = (estimate(model, cluster, compressing("int8", plan), "deepspeed") for plan in (PLAN, sharded))
    weights = estimate(model, cluster, sharded, "deepspeed").plan.settings(load_framework("deepspeed")).widths.stored
    gathered = 15 / 16 * weights * model.parameters
    assert found.step.exchange_bytes == pytest.approx(whole.step.exchange_bytes + gathered, rel=1e-9)
    assert found.memory.optimizer == pytest.approx(whole.memory.optimizer / 16, rel=1e-9)


# The other verbs


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("model", MODELS)
def test_the_transactions_of_one_bucket_are_those_of_the_estimate(name, zero, model):
    plan = compressing(name, dataclasses.replace(PLAN, zero_stage=zero, shard_group=8 if zero else None))
    made = ledger(MODELS[model], CLUSTER, plan, "deepspeed", buckets=OneBucket())
    result = made.estimate
    assert made.sent_bytes["only"] == pytest.approx(result.step.exchange_bytes, rel=1e-9)
    numbers = result.model.numbers(), plan.settings(result.framework), plan.numbers(result.framework, result.model.layers)
    rest = CLUSTER.numbers(), result.framework.numbers(), CLUSTER.device.numbers("bf16")
    coding = gradients.summed(*numbers, *rest).coding
    stated = result.step.gradient_exchange + result.step.parameter_exchange + result.step.hidden_exchange
    if not result.model.experts:  # whose gradients are summed beside the others
        assert made.times["only"] == pytest.approx(stated - coding, rel=1e-9)


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("model", MODELS)
def test_an_end_of_a_pipeline_sends_what_the_estimate_says(name, model):
    even = {"layers": 8, "tied_embeddings": False, "dense_layers": 0}  # stages alike, of which the estimate takes a mean
    plan = compressing(name, dataclasses.replace(PLAN, global_batch=64, data_parallel=8, pipeline_parallel=2))
    made = ledger(dataclasses.replace(MODELS[model], **even), CLUSTER, plan, "megatron-core", buckets=OneBucket())
    wanted = made.estimate.step.exchange_bytes
    assert any(sent == pytest.approx(wanted, rel=1e-9) for sent in made.sent_bytes.values())


@pytest.mark.parametrize(("name", "collectives_of"), [
    ("bf16", {"all-reduce"}), ("int8", {"all-to-all", "all-gather"}), ("top-k", {"all-gather"}),
])  # fmt: skip
def test_each_bucket_is_encoded_of_itself(name, collectives_of):
    rule = DistributedDataParallel(cap=2.0**20)
    plain, made = (ledger(SMALL, CLUSTER, compressing(one), FRAMEWORK, buckets=rule) for one in ("none", name))
    assert {row.collective for row in made.transactions} == collectives_of
    count = sum(row.count for row in plain.transactions)
    assert sum(row.count for row in made.transactions) == len(collectives_of) * count
    assert made.sent_bytes["only"] == pytest.approx(answer(name, SMALL).step.exchange_bytes, rel=1e-3)


def test_power_sgd_is_kept_in_one_bucket_and_refused_in_others():
    assert isinstance(ledger(SMALL, CLUSTER, compressing("power-sgd"), FRAMEWORK).rule, OneBucket)
    with pytest.raises(NotModelled, match="power-sgd"):
        ledger(SMALL, CLUSTER, compressing("power-sgd"), FRAMEWORK, buckets=DistributedDataParallel())


@pytest.mark.parametrize("name", CHOICES)
def test_a_step_played_out_takes_what_the_estimate_says(name):
    plan = compressing(name)
    expected = estimate(GROUPED, CLUSTER, plan, FRAMEWORK)
    plain = simulate(GROUPED, CLUSTER, PLAN, FRAMEWORK).step_time - estimate(GROUPED, CLUSTER, PLAN, FRAMEWORK).step_time
    found = simulate(GROUPED, CLUSTER, plan, FRAMEWORK).step_time - expected.step_time
    assert found == pytest.approx(plain, abs=0.02 * expected.step_time)
    assert timeline(GROUPED, CLUSTER, plan, FRAMEWORK).total == pytest.approx(expected.step_time, rel=1e-6)


def test_a_search_ranks_ways_to_compress_beside_each_other():
    found = search(
        load_model("llama3-8b"), load_cluster("aws-p4d", gpus=64), global_batch=512, seq_len=2048, tensor_parallel=[4, 8],
        pipeline_parallel=1, zero_stage=[0, 1], top=10_000, compression=["none", "bf16", "top-k", "power-sgd"],
        compression_density=[0.01, 0.001], compression_rank=2, micro_batch=1,
    )  # fmt: skip
    kinds = {(one.plan.compression, one.plan.compression_density, one.plan.compression_rank) for one in found.ranked}
    assert kinds == {
        ("none", None, None), ("bf16", None, None), ("top-k", 0.01, None), ("top-k", 0.001, None), ("power-sgd", None, 2),
    }  # fmt: skip
    assert found.considered == found.evaluated + sum(found.rejected.values())
    for one in found.ranked[::7]:
        again = estimate(one.model, one.cluster, one.plan, one.framework)
        assert again.step_time == pytest.approx(one.step_time, rel=1e-12)
        assert again.memory.total == pytest.approx(one.memory.total, rel=1e-12)


def test_a_search_counts_what_does_not_go_together():
    found = search(
        GROUPED, CLUSTER, global_batch=64, seq_len=512, framework="deepspeed", tensor_parallel=1, pipeline_parallel=1,
        compression=["none", "int8"], synchronisation=["all-reduce", "byteps"], micro_batch=1, recompute="none",
    )  # fmt: skip
    assert found.rejected["compression"] > 0  # with ZeRO-2 and 3, or with servers
    assert {(one.plan.compression, one.plan.synchronisation) for one in found.ranked} == {
        ("none", "all-reduce"), ("int8", "all-reduce"), ("none", "byteps"),
    }  # fmt: skip
    assert found.considered == found.evaluated + sum(found.rejected.values())


def test_a_residual_that_does_not_fit_can_be_given_up():
    plan = Plan(global_batch=64, seq_len=4096, data_parallel=64, zero_stage=0, compression="power-sgd", recompute="full")
    cluster = load_cluster("dgx-b200", gpus=64)
    model = next(
        shape for layers in range(16, 64) if not estimate(
            shape := dataclasses.replace(load_model("llama3-8b"), layers=layers, published_parameters=None), cluster, plan).fits
    )  # fmt: skip
    fixes = verdict(estimate(model, cluster, plan)).fixes
    assert any(fix.change.startswith("compression=none") and fix.estimate.fits for fix in fixes)


@pytest.mark.parametrize("zero", [0, 1])
def test_what_is_left_out_where_nothing_is_compressed_changes_no_bit(zero):
    plan = Plan(global_batch=64, seq_len=2048, data_parallel=4, pipeline_parallel=4, zero_stage=zero)
    settings = plan.settings(FRAMEWORK)
    rest = plan.numbers(FRAMEWORK, 4), CLUSTER.numbers(), FRAMEWORK.numbers(), CLUSTER.device.numbers("bf16")
    unknown = settings._replace(compression=settings.compression._replace(kind=np.float64(0.0)))  # as a column's would be
    assert step(LATENT.numbers(), settings, *rest) == step(LATENT.numbers(), unknown, *rest)


# Refusals


@pytest.mark.parametrize(("fields", "named"), [
    ({"compression": "gzip"}, "compression"),
    ({"compression": None}, "compression"),
    ({"compression_rank": 2}, "compression_rank"),
    ({"compression": "int8", "compression_density": 0.1}, "compression_density"),
    ({"compression": "top-k", "compression_rank": 2}, "compression_rank"),
    ({"compression": "top-k", "compression_density": 0.0}, "compression_density"),
    ({"compression": "top-k", "compression_density": 1.5}, "compression_density"),
    ({"compression": "power-sgd", "compression_rank": 0}, "compression_rank"),
    ({"compression": "power-sgd", "compression_rank": 1.5}, "compression_rank"),
    ({"compression": "power-sgd", "adapter": "lora"}, "compression"),
    ({"compression": "int8", "zero_stage": 2}, "zero_stage"),
    ({"compression": "bf16", "synchronisation": "byteps"}, "compression"),
    ({"compression": "bf16", "synchronisation": "local-sgd", "local_steps": 4}, "compression"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused_by_name(fields, named):
    with pytest.raises(InvalidValue, match=named) as refused:
        dataclasses.replace(PLAN, **fields)
    assert refused.value.field == named
    assert "\n" not in str(refused.value)


def test_a_search_refuses_a_parameter_that_no_way_to_compress_has():
    asked = {"global_batch": 16, "seq_len": 512}
    with pytest.raises(InvalidValue, match="compression_rank"):
        search(GROUPED, CLUSTER, **asked, compression=["none", "bf16"], compression_rank=2)
    with pytest.raises(InvalidValue, match="compression_density"):
        search(GROUPED, CLUSTER, **asked, compression_density=0.1)
    with pytest.raises(InvalidValue, match="gzip"):
        search(GROUPED, CLUSTER, **asked, compression=["none", "gzip"], servers=[0, 4], synchronisation=["all-reduce", "byteps"])


def test_software_that_always_shards_gradients_can_not_compress_them():
    plan = Plan(global_batch=16, seq_len=512, data_parallel=16, compression="bf16")
    with pytest.raises(IllegalPlan, match="zero_stage"):
        estimate(GROUPED, CLUSTER, plan, "hf-fsdp")
    assert plan.resolve(load_framework("deepspeed")).zero_stage == 0  # whose own is 2
    assert plan.resolve(load_framework("megatron-core")).zero_stage == 1


def test_a_row_of_a_search_that_shards_compressed_gradients_is_refused_in_words():
    plan = dataclasses.replace(PLAN, compression="int8")
    numbers = plan.numbers(FRAMEWORK, 3)._replace(shard_gradients=1.0)
    broken = legality.violations(GROUPED.numbers(), plan.settings(FRAMEWORK), numbers, 16.0)
    assert [reason for reason, value in broken._asdict().items() if value] == ["compression"]
    assert "compression='int8'" in explain("compression", plan, GROUPED, CLUSTER)


def test_the_uncompressed_exchange_of_a_formula_is_that_of_the_estimate():
    settings, plan = PLAN.settings(FRAMEWORK), PLAN.numbers(FRAMEWORK, 3)
    group = synchronisation.groups(16.0, 1.0, plan, settings, CLUSTER.numbers(), FRAMEWORK.numbers())
    summed = synchronisation.reduction(settings.widths.reduce * float(GROUPED.parameters), 1.0, group)
    found = answer("none")
    sent = 2.0 * (1.0 - 1.0 / 16.0) * settings.widths.reduce * float(GROUPED.parameters)
    assert (found.times["gradient_exchange"], found.step.exchange_bytes) == pytest.approx((summed.time, sent), rel=1e-12)
