"""Low-rank adapters and kinds of optimizers: counts that others print, and what freezing must and must not change."""

from __future__ import annotations

import dataclasses

import pytest

import costmodel
from costmodel import Plan
from costmodel.description.adapters import GROUPS, NAMED, target_numbers, targets_of
from costmodel.formulas.quantities import AdapterChoice
from costmodel.formulas.transformer.activations import layer_activations, retained_inputs
from costmodel.formulas.transformer.adapters import (
    PACKED,
    adapter_choice,
    adapter_parameters,
    adapter_work,
    dequantisation,
    inner_channels,
    kept_inputs,
    trained_share,
)
from costmodel.formulas.transformer.flops import forward_flop_per_token
from costmodel.formulas.transformer.launches import adapter_kernels
from costmodel.formulas.transformer.update import layer_flop, newton_schulz_flop
from costmodel.text.errors import CostModelError


def adapter(rank: float, targets: str, kind: float = 1.0) -> AdapterChoice:
    """LoRA, or nothing, as formulas take it."""
    return adapter_choice(kind, float(rank), target_numbers(targets_of(targets)), 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0)


def counted(model: str, rank: int, targets: str) -> float:
    return float(adapter_parameters(costmodel.load_model(model).numbers(), adapter(rank, targets)))


@pytest.mark.parametrize(
    ("model", "rank", "targets", "published"),
    [
        ("llama2-7b", 8, "q_proj,v_proj", 4_194_304),  # as PEFT prints it, `print_trainable_parameters`
        ("llama2-7b", 16, "all-linear", 39_976_960),
        ("llama3-8b", 16, "all", 41_943_040),
        ("gpt3-175b", 1, "q-v", 4_718_592),  # [hu2021]_ table 15: 4.7 million, 37.7 at rank 8
        ("gpt3-175b", 8, "q-v", 37_748_736),
        ("llama2-70b", 16, "linear_qkv,linear_proj", 44_564_480),  # MLPerf Training v5.0, 44.6 million
        ("phi-3-mini", 16, "all", 25_165_824),  # as peft 0.21.2 makes them of transformers' Phi-3 and GPT-NeoX, "all-linear"
        ("pythia-6.9b", 8, "all", 16_777_216),
    ],
)
def test_adapters_have_as_many_parameters_as_others_count(model, rank, targets, published):
    assert counted(model, rank, targets) == published


def test_megatrons_adapters_read_once_what_one_matrix_does():
    """modelscope/mcore-bridge@02fb038 src/mcore_bridge/tuners/lora.py: an A of each of four modules, and a B as wide as it is."""
    model, plan = costmodel.load_model("qwen3-30b-a3b"), Plan(global_batch=8, seq_len=512, adapter="lora", lora_rank=8)
    sides = {"qkv": (2048, (32 + 2 * 4) * 128), "proj": (32 * 128, 2048)}
    of_expert = {"fc1": (2048, 2 * 768), "fc2": (768, 2048)}
    made = sum(map(sum, sides.values())) + 128 * sum(map(sum, of_expert.values()))
    settings = plan.settings(costmodel.load_framework("megatron-core"))
    assert adapter_parameters(model.numbers(), settings.adapter) == 8 * 48 * made
    assert inner_channels(model.numbers(), settings.adapter) == 8 * (2 + 8 * 2)  # of eight experts a token


@pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b", "deepseek-v2-lite", "gpt2-xl"])
def test_groups_of_targets_add_up_and_rank_scales_them(model):
    assert counted(model, 16, "attention") + counted(model, 16, "mlp") == pytest.approx(counted(model, 16, "all"))
    assert counted(model, 32, "all") == pytest.approx(2 * counted(model, 16, "all"))
    assert 0.0 < counted(model, 16, "all") < 0.05 * costmodel.load_model(model).parameters


def test_without_an_adapter_everything_trains_and_every_input_is_kept():
    shape, none = costmodel.load_model("llama3-8b").numbers(), adapter(-1.0, "all", kind=0.0)
    settings = Plan(global_batch=8, seq_len=512).settings(costmodel.load_framework("hf-trainer"))
    assert trained_share(shape, settings, 8e9) == 1.0 and kept_inputs(none, 1.0) == (1.0, 1.0, 1.0, 1.0)
    of_each, of_both = (kept_inputs(adapter(8.0, "q-v"), separate) for separate in (1.0, 0.0))
    assert of_each == (2.0, 0.0, 0.0, 0.0) and of_both == (1.0, 0.0, 0.0, 0.0)  # what each adapter drops is its own


def test_adapters_that_drop_nothing_move_and_keep_no_copy_of_their_input():
    """A dropout reads, writes and masks each input in both passes; without it both matrices of a gated MLP share theirs."""
    framework, device = costmodel.load_framework("hf-trainer@2024.6"), costmodel.load_device("a100-sxm-80gb").numbers("bf16")
    model = costmodel.load_model("llama3-8b")
    plan = Plan(global_batch=1, seq_len=4096, adapter="lora", lora_targets=("up", "gate"))
    works, inputs = [], []
    for dropout in (True, False):
        software = dataclasses.replace(framework, adapter_dropout=dropout)
        settings = plan.settings(software)
        works.append(adapter_work(model.numbers(), settings, plan.numbers(software, 32), 4096.0, device))
        inputs.append(kept_inputs(settings.adapter, 1.0)[2])
    moved = (2.0 + 2.0 + 1.0) * 2 * 4096 * 4096 / device.memory_bandwidth
    assert [a - b for a, b in zip(*works, strict=True)] == pytest.approx([moved, moved, 0.0])
    assert inputs == [2.0, 1.0]


@pytest.mark.parametrize(("software", "forward", "backward"), [
    # bytes a token and channel of what a layer's adapters move, as kernels of peft 0.21.2, transformers 5.24.0 and PyTorch 2.13.0
    # read and write them: those of the layer with adapters less those of it without; backward beyond adapters as wide as weights
    ({"wide_adapters": False}, 184.2, 0.0), ({}, 329.1, 144.9), ({"mixed_precision": False}, 453.4, 328.3),
    ({"adapter_dropout": False}, 248.1, 63.9),
])  # fmt: skip
def test_adapters_move_what_traced_kernels_move(software, forward, backward):
    shape = costmodel.Transformer(
        name="small", layers=3, hidden=256, heads=8, kv_heads=4, head_dim=32, feed_forward=768, vocabulary=512, gated=True,
        norm="rmsnorm",
    )  # fmt: skip
    device = costmodel.load_device("h100-sxm").numbers("bf16")
    plan = Plan(global_batch=2, micro_batch=2, seq_len=512, adapter="lora", lora_rank=8)
    hugging_face = costmodel.load_framework("hf-trainer")
    moved = []
    for fields in (software, {"wide_adapters": False}):
        framework = dataclasses.replace(hugging_face, **fields)
        work = adapter_work(shape.numbers(), plan.settings(framework), plan.numbers(framework, 3), 1024.0, device)
        moved.append([one * device.memory_bandwidth / 1024 / 256 for one in work])
    assert moved[0][0] == pytest.approx(forward, rel=0.01)
    assert sum(moved[0][1:]) - sum(moved[1][1:]) == pytest.approx(backward, rel=0.01, abs=1.0)  # thin matrices are cast, too


@pytest.mark.parametrize(("device", "dtype", "least", "most"), [
    # bitsandbytes-foundation/bitsandbytes pull request 1747, measured: before over after
    ("p100-sxm-16gb", "fp16", 1.36, 2.07), ("a100-sxm-40gb", "bf16", 1.36, 2.07), ("h100-sxm", "bf16", 1.36, 2.07),
    ("t4", "fp16", 1.25, 1.8), ("a10", "bf16", 1.0, 1.3), ("l4", "bf16", 1.0, 1.3), ("rtx-4090", "bf16", 1.0, 1.3),
])  # fmt: skip
def test_a_table_of_codes_speeds_up_devices_whose_memory_does_not_bound_them(device, dtype, least, most):
    figures, plan = costmodel.load_device(device).numbers(dtype), Plan(global_batch=1, seq_len=512, adapter="qlora", dtype=dtype)
    before, after = (
        dequantisation(plan.settings(costmodel.load_framework(name)), 1e9, figures)
        for name in ("hf-trainer@2025-09", "hf-trainer@2025-10")
    )  # fmt: skip
    assert least <= before / after <= most


HELD = dataclasses.replace(costmodel.load_framework("torchtune"), keep_quantised_inputs=True, adapter_dropout=True)


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b", "gpt2-xl"])
@pytest.mark.parametrize("attention", ["unfused", "flash"])
def test_what_outlives_a_backward_pass_are_the_inputs_that_quantised_products_keep(name, attention):
    model = costmodel.load_model(name)
    plan = Plan(global_batch=4, seq_len=1024, adapter="qlora", lora_targets=("query", "value"), attention=attention)
    numbers, shape = plan.numbers(HELD, model.layers), model.numbers()
    settings = plan.settings(HELD)
    without = settings._replace(adapter=settings.adapter._replace(keep_inputs=0.0))
    kept = layer_activations(shape, settings, numbers) - layer_activations(shape, without, numbers)
    if attention == "flash":  # keeps its output in any case
        kept += 2.0 * 1024 * shape.attention.heads * shape.attention.value_head_dim
    assert retained_inputs(shape, settings, numbers) == pytest.approx(kept)
    assert retained_inputs(shape, without, numbers) == 0.0
    assert retained_inputs(shape, settings, dataclasses.replace(plan, recompute="full").numbers(HELD, model.layers)) == 0.0


@pytest.mark.parametrize(("layers", "hidden", "kv_heads", "width", "batch", "targets", "measured"), [
    # Lightning-AI/litgpt@2685705 config_hub/finetune/README.md [GB]: TinyLlama, Llama 2 and Mistral, whole and in NF4
    (22, 2048, 4, 5632, 8, "all", (13.50, 16.24)), (32, 4096, 32, 11008, 2, "q-v", (19.77, 13.68)),
    (32, 4096, 8, 14336, 2, "q-v", (20.66, 14.29)),
])  # fmt: skip
def test_a_base_in_4_bits_saves_less_than_its_weights_where_its_products_keep_their_inputs(
    layers, hidden, kv_heads, width, batch, targets, measured,
):  # fmt: skip
    model = costmodel.Transformer(
        name="published", layers=layers, hidden=hidden, heads=32, kv_heads=kv_heads, feed_forward=width, vocabulary=32_000,
        tied_embeddings=False,
    )  # fmt: skip
    framework = dataclasses.replace(HELD, fused_norms=False, separate_rotation=True, keep_rotated=True, keep_activated=True)
    held = []
    for adapter in ("lora", "qlora"):
        plan = Plan(
            global_batch=8, seq_len=512, micro_batch=batch, adapter=adapter, lora_rank=32, lora_targets=targets_of(targets)
        )
        memory = costmodel.estimate(model, costmodel.load_cluster("dgx-a100", gpus=1), plan, framework).memory
        held.append((memory.total - memory.overhead) / 1e9)
    assert held[1] - held[0] == pytest.approx(measured[1] - measured[0], abs=0.05 * measured[0])


def asked(model="llama3-8b", gpus=8, **fields):
    plan = Plan(**{"global_batch": 64, "seq_len": 4096, "data_parallel": gpus, **fields})
    return costmodel.estimate(costmodel.load_model(model), costmodel.load_cluster("dgx-h100", gpus=gpus), plan)


def test_a_frozen_base_is_gathered_under_zero_3_alone():
    sent = {
        (adapter, stage): float(asked(adapter=adapter, zero_stage=stage).step.exchange_bytes)
        for adapter in ("none", "lora") for stage in (1, 3)
    }  # fmt: skip
    assert sent["lora", 1] < 0.02 * sent["none", 1]
    assert sent["lora", 3] > 0.4 * sent["none", 3]  # two gathers of three exchanges, whose gradients are wider


def test_zero_3_gathers_as_many_bytes_of_packed_weights_as_of_others():
    """A thousand million elements of two bytes, in which bitsandbytes stores weights in NF4 (``bnb_4bit_quant_storage``)."""
    sizes = {"zero_stage": 3, "global_batch": 2, "seq_len": 512, "recompute": "full", "data_parallel": 2}
    cluster = costmodel.load_cluster("dgx-h100", gpus=2)
    lora, packed = (
        costmodel.estimate("llama2-70b", cluster, framework="deepspeed", adapter=kind, **sizes).memory
        for kind in ("lora", "qlora")
    )  # fmt: skip
    bucket = 5e8 * 2
    assert lora.buffers == packed.buffers and packed.buffers - bucket == pytest.approx(1e9 * 2, abs=1e8)


def test_estimate_and_ledger_send_the_same_bytes_of_adapters():
    answer = asked(adapter="lora", zero_stage=1)
    made = costmodel.ledger(answer.model, answer.cluster, answer.plan, answer.framework)
    assert made.sent_bytes["only"] == pytest.approx(float(answer.step.exchange_bytes), rel=0.05)


def test_adapters_are_summed_in_as_many_calls_as_they_fill_buckets_and_not_as_the_frozen_weights_would():
    """45 million trained parameters of Llama 2 70B fill one bucket of Megatron's 72 million on 72 ranks, not a thousand."""
    model, cluster = costmodel.load_model("llama2-70b"), costmodel.load_cluster("gb200-nvl72", gpus=72)
    plan = Plan(global_batch=72, seq_len=8192, adapter="lora", lora_targets=("fused", "output"))
    answer = costmodel.estimate(model, cluster, plan, "nemo")
    trained = answer.inputs.settings.trainable * model.parameters
    nbytes = trained * answer.inputs.settings.widths.reduce
    one = costmodel.collective_time("reduce-scatter", nbytes, 72, cluster, framework="nemo").time
    assert trained < 72e6
    assert answer.times["gradient_exchange"] < 2.0 * one


def test_the_utilisation_of_an_adapter_counts_no_gradient_of_a_frozen_weight():
    whole, adapted = asked(), asked(adapter="lora")
    shape, tokens = whole.model.numbers(), 64 * 4096
    trained = 6.0 * adapter_parameters(shape, adapted.inputs.settings.adapter)
    cores = forward_flop_per_token(shape, 4096.0, 0.0) - forward_flop_per_token(shape, 1e-9, 0.0)
    linear = forward_flop_per_token(shape, 4096.0, 0.0) - cores
    assert float(whole.step.model_flop - adapted.step.model_flop) == pytest.approx(tokens * (linear - trained), rel=1e-6)
    assert adapted.mfu < 0.7


def test_fewer_targets_and_a_lower_rank_take_no_longer_and_hold_no_more():
    small, large = asked(adapter="lora", lora_rank=8, lora_targets="q-v"), asked(adapter="lora", lora_rank=64)
    assert small.step_time < large.step_time
    assert small.memory.total < large.memory.total and small.memory.activations < large.memory.activations
    assert asked(adapter="lora").step_time < asked().step_time


def test_unpacking_four_bits_takes_the_time_that_was_measured_on_an_a100():
    # Lightning-AI/litgpt tutorials/resource-tables.md: QLoRA over LoRA, a micro-batch of 7 billion parameters 79 ms, of 13 191 ms
    for model, measured in (("llama2-7b", 0.079), ("llama2-13b", 0.191)):
        plan = {"global_batch": 1, "seq_len": 512, "lora_rank": 8}
        cluster = costmodel.load_cluster("dgx-a100", gpus=1)
        four, sixteen = (
            costmodel.estimate(costmodel.load_model(model), cluster, Plan(**plan, adapter=adapter), "litgpt")
            for adapter in ("qlora", "lora")
        )
        assert four.step_time - four.times["host"] - sixteen.step_time + sixteen.times["host"] == pytest.approx(measured, rel=0.3)


def test_gptq_is_unpacked_again_by_what_recomputes_and_kept_by_what_does_not():
    """AutoGPTQ multiplies a tensor that PyTorch unpacked: autograd keeps it, and only another forward pass unpacks it again."""
    model, cluster = costmodel.load_model("llama2-7b"), costmodel.load_cluster("dgx-a100", gpus=1)
    plan = Plan(global_batch=1, seq_len=512, recompute="none")
    found = {
        (adapter, recompute): costmodel.estimate(model, cluster, dataclasses.replace(plan, adapter=adapter, recompute=recompute))
        for adapter in ("lora", "gptq-lora") for recompute in ("none", "full")
    }  # fmt: skip
    matrices = 6_476_005_376 + 65 * 4096 - 4096  # of 32 layers: 4 x 4096 x 4096 + 3 x 4096 x 11,008, and two norms
    once = matrices * PACKED["gptq-lora"].moved / found["lora", "none"].inputs.device.memory_bandwidth
    for recompute, part in (("none", "forward"), ("full", "forward"), ("full", "recompute")):
        longer = found["gptq-lora", recompute].times[part] - found["lora", recompute].times[part]
        assert longer == pytest.approx(once, rel=1e-3)
    for recompute in ("none", "full"):
        assert found["gptq-lora", recompute].times["backward"] == pytest.approx(found["lora", recompute].times["backward"])
    for recompute, layers in (("none", 32), ("full", 0)):
        bills = [found[adapter, recompute].memory.activations for adapter in ("gptq-lora", "lora")]
        assert bills[0] - bills[1] == pytest.approx(2.0 * matrices * layers / 32, rel=1e-3)


def test_one_matrix_of_queries_keys_and_values_is_unpacked_at_once():
    """As Qwen's ``c_attn``: five matrices a layer where Llama has seven."""
    model, cluster = costmodel.load_model("llama2-7b"), costmodel.load_cluster("dgx-a100", gpus=1)
    waits = {}
    for adapter in ("lora", "gptq-lora"):
        for targets in ("query-key-value", "fused"):
            plan = Plan(global_batch=1, seq_len=32, recompute="none", adapter=adapter, lora_targets=targets)
            answer = costmodel.estimate(model, cluster, plan, "hf-trainer")
            inputs = answer.inputs
            waits[adapter, targets] = adapter_kernels(inputs.settings, inputs.model)
    unpacking = {name: waits["gptq-lora", name] - waits["lora", name] for name in ("query-key-value", "fused")}
    assert unpacking["fused"] == pytest.approx(5 / 7 * unpacking["query-key-value"])


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"adapter": "lora", "lora_rank": 4}, {"adapter": "qlora"}, {"adapter": "gptq-lora"},
                                    {"optimizer": "muon"}, {"optimizer": "adafactor"}, {"optimizer": "lion"}])  # fmt: skip
def test_engines_agree_on_adapters_and_optimizers(fields):
    model, cluster = costmodel.load_model("mixtral-8x7b"), costmodel.load_cluster("dgx-h100", gpus=16)
    question = {"global_batch": 32, "seq_len": 4096, "tensor_parallel": [1, 2], "context_parallel": 1, "pipeline_parallel": 2,
                "micro_batch": [1, 2], "expert_parallel": [1, 8], "virtual_stages": [1, 4],
                "framework": "megatron-core"}  # fmt: skip
    found = [costmodel.search(model, cluster, **question, **fields, engine=engine, top=5, keep_evaluated=True)
             for engine in ("python", "numpy")]  # fmt: skip
    assert [one.plan for one in found[0]] == [one.plan for one in found[1]]
    assert found[0].fitting == found[1].fitting > 50
    for python, numpy in zip(*([one.every.step_time, one.every.peak_memory] for one in found), strict=True):
        assert numpy == pytest.approx(python, rel=1e-12)


def test_no_software_shards_weights_in_8_bit():
    """Int8Params are no floats that FSDP could flatten or cast (bitsandbytes 0.50.2 nn/modules.py)."""
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-a100", gpus=8)
    plan = Plan(global_batch=8, seq_len=2048, data_parallel=8, adapter="int8-lora")
    with pytest.raises(CostModelError, match="adapter='int8-lora' with zero_stage=3"):
        costmodel.estimate(model, cluster, plan, "hf-fsdp")
    assert costmodel.estimate(model, cluster, plan, "hf-trainer").memory.weights < 11 * 2**30


def test_a_quantised_base_keeps_its_embedding_and_its_head_as_wide_as_they_are_trained_beside():
    """Llama 3 8B: 5.3 GiB in NF4 (foundation-model-stack/fms-acceleration@876e2ed, rows with and without a 4-bit base: it doesn't
    prepare the model); peft's `prepare_model_for_kbit_training` has what isn't quantised in 32 bit."""
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-a100", gpus=1)
    plan = Plan(global_batch=4, seq_len=4096, micro_batch=4, recompute="full", adapter="qlora")
    layers, outer, adapters = 6_979_588_096 + 4096, 2 * 128_256 * 4096, 4 * 41_943_040
    peft = costmodel.load_framework("hf-trainer")
    weights = costmodel.estimate(model, cluster, plan, framework=peft).memory.weights
    assert weights == pytest.approx(layers * PACKED["qlora"].parameter + outer * 4 + adapters, rel=1e-4)
    weights = costmodel.estimate(model, cluster, plan, dataclasses.replace(peft, wide_residual=False)).memory.weights
    weights -= adapters
    assert weights == pytest.approx(layers * PACKED["qlora"].parameter + outer * 2, rel=1e-4)
    assert weights / 2**30 == pytest.approx(5.3, abs=0.05)


# Optimizers


def test_the_iteration_counts_three_products_of_the_short_side():
    m, n = 3.0, 7.0
    gram, square, back = 2 * m * m * n, 2 * m * m * m, 2 * m * m * n
    assert newton_schulz_flop(m, n) == newton_schulz_flop(n, m) == gram + square + back


def test_muons_share_of_the_arithmetic_is_below_the_bound_that_its_author_gives():
    # K. Jordan, "Muon" (2024): at most T m / B of the forward and backward pass, T steps on a side m, B tokens a step
    answer = asked(optimizer="muon")
    shape = answer.model.numbers()
    flop = 5.0 * 32 * sum(layer_flop(shape, answer.inputs.plan))
    assert flop / float(answer.step.model_flop) < 5.0 * answer.model.hidden / (64 * 4096)


def test_kinds_of_optimizers_take_their_own_time_and_memory():
    time = {kind: asked(optimizer=kind).times["optimizer"] for kind in ("adam", "muon", "adafactor", "lion", "sgd", "adam-8bit")}
    held = {kind: float(asked(optimizer=kind).memory.optimizer) for kind in time}
    assert time["sgd"] < time["lion"] < time["adam"] < time["muon"]
    assert time["adam-8bit"] < time["adam"] and time["sgd"] < time["adafactor"]
    assert held["sgd"] == held["adafactor"] < held["adam-8bit"] < held["lion"] == held["muon"] < held["adam"]


def test_tensor_ranks_orthogonalise_their_blocks_and_sharding_deals_whole_matrices():
    whole, sharded = asked(optimizer="muon", zero_stage=0), asked(optimizer="muon", zero_stage=1)
    plain = {stage: asked(zero_stage=stage, optimizer="sgd-momentum").times["optimizer"] for stage in (0, 1)}
    extra = whole.times["optimizer"] - plain[0], sharded.times["optimizer"] - plain[1]
    assert extra[0] == pytest.approx(8 * extra[1], rel=0.02)


def test_small_matrices_are_launched_no_faster_than_the_host_can():
    """KellerJordan/modded-nanogpt records/track_1_short: dealing Muon's matrices to 8 GPUs took steps of 124M parameters from 179
    to 154 ms, when their products take 3 ms."""
    model = costmodel.Transformer(name="gpt2", layers=12, hidden=768, heads=6, vocabulary=50_304, feed_forward=3_072, gated=False)
    plan = Plan(global_batch=512, seq_len=1_024, data_parallel=8, micro_batch=64, optimizer="muon")
    cluster = costmodel.load_cluster("dgx-h100", gpus=8)
    spread, whole = (
        costmodel.estimate(model, cluster, dataclasses.replace(plan, zero_stage=stage)).times["optimizer"] for stage in (1, 0)
    )
    assert whole - spread == pytest.approx(25e-3, rel=0.3)


@pytest.mark.parametrize("framework", ["megatron-core", "hf-trainer"])
@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b"])
def test_where_no_matrix_has_an_adapter_gradients_pass_through_and_nothing_else_is_done(name, framework):
    model, cluster = costmodel.load_model(name), costmodel.load_cluster("dgx-h100", gpus=16)
    trained, frozen = (
        costmodel.estimate(model, cluster, Plan(global_batch=64, seq_len=2048, **fields), framework=framework)
        for fields in ({}, {"adapter": "lora", "lora_targets": "none"})
    )
    assert frozen.times["forward"] == trained.times["forward"]
    assert frozen.times["gradient_exchange"] == frozen.times["optimizer"] == frozen.memory.optimizer == 0.0
    # of what is multiplied, all but the table of embeddings, two FLOP a token for weights' gradients are spared
    multiplied = model.active_parameters - model.vocabulary * model.hidden
    spared = (trained.step.model_flop - frozen.step.model_flop) / trained.plan.tokens
    assert spared == pytest.approx(2 * multiplied, rel=1e-3)


# Wrong input


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"lora_rank": 8}, "lora_rank=8: expected None with adapter='none'"),
        ({"lora_targets": "q"}, "expected None with adapter='none'"),
        ({"adapter": "lora", "lora_rank": 0}, "lora_rank=0"),
        ({"adapter": "lora", "lora_targets": "z"}, "lora_targets='z'"),
        ({"adapter": "lora", "lora_targets": "q-qkv"}, "either fused"),
        ({"adapter": "lora", "lora_targets": ""}, "lora_targets=''"),
        ({"adapter": "lora", "lora_targets": "none-q"}, "lora_targets='none-q'"),
        ({"adapter": "lora", "lora_targets": [3]}, "lora_targets=\\[3\\]"),
        ({"adapter": "dora"}, "adapter='dora'"),
        ({"optimizer": "shampoo"}, "optimizer='shampoo'"),
        ({"optimizer": "adamm"}, "did you mean adam"),
    ],
)  # fmt: skip
def test_a_wrong_adapter_or_optimizer_is_one_line(fields, hint):
    with pytest.raises(CostModelError, match=hint):
        Plan(global_batch=8, seq_len=128, **fields)


def test_names_of_other_libraries_mean_targets():
    for name in (*NAMED, *GROUPS):
        assert targets_of(name)
    assert targets_of("none") == targets_of(()) == ()
    fields = dataclasses.replace(Plan(global_batch=8, seq_len=128, adapter="lora"), lora_targets="q_proj,k_proj")
    assert fields.lora_targets == ("query", "key")


def test_moments_in_8_bit_have_a_master_copy_where_the_framework_has_one():
    """meta-pytorch/torchtune@bd2a0fc7c3 README: 17.6 GiB with AdamW in 8 bit where 16-bit weights are updated themselves."""
    plan = Plan(global_batch=2, seq_len=4096, optimizer="adam-8bit")
    frameworks = map(costmodel.load_framework, ("torchtune", "hf-trainer", "megatron-core"))
    held = [plan.settings(framework).widths.optimizer for framework in frameworks]
    assert held == [2.0, 2.0, 6.0]


@pytest.mark.parametrize(("length", "peak"), [(256, 33.7), (1024, 35.2), (4096, 39.2), (8192, 48.5)])
def test_embedding_and_head_that_train_beside_adapters_are_copies_with_all_that_trains(length, peak):
    """QwenLM/Qwen@2df8e8a README.md, "Profiling of Memory and Speed": GB of LoRA (emb) of Qwen-7B on one A100, PEFT's
    ``modules_to_save``; without them 13.6 GB less at 256 tokens."""
    model = dataclasses.replace(costmodel.load_model("llama2-7b"), name="Qwen-7B", vocabulary=151_936, trained_length=None)
    plan = Plan(global_batch=8, seq_len=length, adapter="lora", lora_rank=64, trained_edges=True, recompute="full")
    card = costmodel.load_cluster("dgx-a100", 1)
    told = costmodel.estimate(model, card, plan, "hf-trainer@2023.10").memory.total
    assert told / 1e9 == pytest.approx(peak, rel=0.1)
    without = costmodel.estimate(model, card, dataclasses.replace(plan, trained_edges=False), "hf-trainer@2023.10").memory.total
    assert 2 * 151_936 * 4096 * 8 <= told - without <= 2 * 151_936 * 4096 * 10  # a copy, its gradient, moments, and the update's


SHAPES = {
    "phi-1.5": (24, 2048, 8192, 51_200, 1044), "stablelm-alpha-3b": (16, 4096, 16_384, 50_688, 1034),
    "llama2-7b": (32, 4096, 11_008, 32_000, 1304), "llama2-13b": (40, 5120, 13_824, 32_000, 1304),
}  # fmt: skip
"""Layers, hidden, feed-forward, vocabulary and the longest sample, of the models of LitGPT's table."""


@pytest.mark.parametrize(("name", "gpus", "micro_batch", "measured", "error"), [
    # Lightning-AI/litgpt@4839345a97 tutorials/resource-tables.md, of October 2023 [GB]
    ("phi-1.5", 1, 1, 4.82, 0.03), ("phi-1.5", 1, 4, 10.68, 0.03), ("stablelm-alpha-3b", 1, 4, 16.92, 0.03),
    ("llama2-7b", 1, 2, 29.07, 0.03), ("llama2-13b", 1, 1, 38.12, 0.03),
    ("phi-1.5", 2, 1, 4.86, 0.15), ("stablelm-alpha-3b", 2, 4, 13.45, 0.1), ("llama2-7b", 2, 1, 22.18, 0.05),
    ("llama2-7b", 2, 4, 23.39, 0.05), ("llama2-13b", 4, 1, 35.57, 0.05),
])  # fmt: skip
def test_frozen_weights_that_fsdp1_flattens_with_adapters_have_whole_gradients(name, gpus, micro_batch, measured, error):
    layers, hidden, width, vocabulary, length = SHAPES[name]
    llama = "llama" in name
    model = costmodel.Transformer(
        name="published", layers=layers, hidden=hidden, heads=hidden // 128 if llama else 32, feed_forward=width,
        vocabulary=vocabulary, gated=llama, norm="rmsnorm" if llama else "layernorm", parallel_block="phi" in name,
        tied_embeddings=False,
    )  # fmt: skip
    plan = Plan(
        global_batch=128, seq_len=length, micro_batch=micro_batch, data_parallel=gpus, adapter="lora", lora_rank=8,
        lora_targets=("query", "value"), recompute="full" if gpus > 1 else "none")
    software = "litgpt-fsdp@2023.10" if gpus > 1 else "litgpt@2023.10"
    memory = costmodel.estimate(model, costmodel.load_cluster("dgx-a100", gpus=gpus), plan, software).memory
    assert (memory.total - memory.overhead) / 1e9 == pytest.approx(measured, rel=error)


@pytest.mark.parametrize(("adapter", "measured"), [("lora", 13.98), ("qlora", 14.27)])
def test_litgpts_layers_have_one_kernel_where_a_models_authors_write_their_activation_out(adapter, measured):
    """Lightning-AI/litgpt@26857050 config_hub/finetune/README.md, phi-2/{lora,qlora}.yaml [GB]."""
    targets = ("query", "key", "value", "output", "up", "down")
    plan = Plan(global_batch=8, seq_len=512, micro_batch=4, adapter=adapter, lora_rank=8, lora_targets=targets)
    memory = costmodel.estimate("phi-2", costmodel.machine("a10g", gpus=1), plan, "litgpt").memory
    assert (memory.total - memory.overhead) / 1e9 == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(("name", "micro_batch", "global_batch", "measured"), [
    # Lightning-AI/litgpt@2685705 config_hub/finetune/README.md: whole, on four A10G [GB]
    ("llama3.2-1b", 4, 64, 8.70), ("llama3.2-3b", 4, 64, 16.51), ("gemma-2b", 1, 16, 17.43),
])  # fmt: skip
def test_an_embedding_that_is_the_head_is_trained_as_two_by_litgpt(name, micro_batch, global_batch, measured):
    plan = Plan(global_batch=global_batch, seq_len=512, micro_batch=micro_batch, data_parallel=4, recompute="full")
    answer = costmodel.estimate(costmodel.load_model(name), costmodel.load_cluster("dgx-a100", gpus=4), plan, "litgpt-fsdp")
    assert not answer.model.tied_embeddings
    assert (answer.memory.total - answer.memory.overhead) / 1e9 == pytest.approx(measured, rel=0.06)


def test_torchao_unpacks_by_kernels_that_hold_indices_of_64_bits():
    """pytorch/ao@0598012 torchao/dtypes/nf4tensor.py ``get_original_weight``, kernel by kernel, of a byte of two codes."""
    moved = 2 * (1 + 1) + 2 * (1 + 8) + 2 * (8 + 2) + 2 * 2 + 2 * (2 + 2 + 2) + (4 + 4)
    held = 2 * 8 + 2 * 2 + 2 * 2 + 4
    plan = Plan(global_batch=1, seq_len=512, adapter="qlora", recompute="full")
    cluster, model = costmodel.load_cluster("dgx-a100", gpus=1), costmodel.load_model("llama2-7b")
    torchtune = costmodel.load_framework("torchtune")
    eager, one_kernel = (
        costmodel.estimate(model, cluster, plan, software)
        for software in (torchtune, dataclasses.replace(torchtune, eager_unpacking=False))
    )  # fmt: skip
    parameters, device = 6_476_005_376, eager.inputs.device  # of 32 layers: 4 x 4096 x 4096 + 3 x 4096 x 11,008
    unpacked = dequantisation(eager.inputs.settings, parameters, device)
    assert unpacked == pytest.approx(parameters * moved / 2 / device.memory_bandwidth)
    assert eager.times["forward"] > one_kernel.times["forward"] + 0.5 * unpacked
    more = (eager.memory.temporaries - one_kernel.memory.temporaries) / (4096 * 11_008)
    assert more == pytest.approx(held / 2, rel=0.2)
