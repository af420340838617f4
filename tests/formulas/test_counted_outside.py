"""What a step moves, held against counts from outside: over tokens, tensors, kernels and connections, one by one."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from costmodel import Plan, estimate, load_cluster, load_framework, load_model
from costmodel.arithmetic.named_tuples import replaced
from costmodel.catalogue.communication import constants_of_a_step
from costmodel.formulas import compute, training_step
from costmodel.formulas.network import communication
from costmodel.formulas.quantities import LevelNumbers, NetworkNumbers
from costmodel.formulas.transformer import attention, layer, memory

BANDWIDTH = 1e9
NETWORK = NetworkNumbers(*(LevelNumbers(size, 0.0, BANDWIDTH) for size in (64.0, 128.0, 1e7)))
QUIET = {
    "network_quality": 1.0, "network_sharding_quality": 1.0, "network_latency": 0.0, "network_node_latency": 0.0,
    "network_piece_copy": 0.0, "host_collective_launch": 0.0,
} | constants_of_a_step(None, "")  # fmt: skip


def asked(model, cluster, plan, framework="megatron-core"):
    """Numbers of a question on links that take their bytes' time and no more."""
    found = estimate(model, cluster.with_gpus(plan.gpus), plan, framework).inputs
    return found._replace(network=NETWORK, software=replaced(found.software, QUIET))


@pytest.mark.parametrize(("ranks", "chosen"), [(2, 1), (4, 2), (8, 2), (4, 3)])
def test_experts_exchange_what_tokens_send_to_the_ranks_of_their_experts(ranks, chosen):
    """Each token of rank 0 chooses each set of experts once; a copy goes to every expert that lies on another rank, and comes
    back; a backward pass sends as much again."""
    experts, tokens, hidden = 8, 512, 4096
    model = dataclasses.replace(load_model("mixtral-8x7b"), experts=experts, experts_per_token=chosen)
    plan = Plan(global_batch=ranks, seq_len=tokens, data_parallel=ranks, expert_parallel=ranks, micro_batch=1, dtype="bf16")
    sets = list(itertools.combinations(range(experts), chosen))
    home = range(experts // ranks)
    copies = sum(expert not in home for one in sets for expert in one) / len(sets)
    sent = tokens * copies * hidden * 2
    inputs = asked(model, load_cluster("dgx-h100"), plan)
    moved = communication.layer_exchange(*inputs[:5])
    assert moved.expert_forward == pytest.approx(2 * sent / BANDWIDTH)
    assert moved.expert_backward == pytest.approx(2 * sent / BANDWIDTH)


def test_a_large_product_takes_a_multiplication_and_an_addition_of_each_pair():
    """At the rate that it is given, but for the tiles at its edges and the start of each."""
    device, size = load_cluster("dgx-h100").device.numbers("bf16"), 32_768.0
    seconds = compute.gemm(size, size, size, 2.0, device.flop_rate, device)
    assert seconds == pytest.approx(2.0 * size**3 / device.flop_rate, rel=0.01)


def test_an_unfused_loss_moves_what_its_kernels_read_and_write():
    """Of Megatron-LM's, megatron/core/tensor_parallel/cross_entropy.py: all but the first and the last in place in 32 bit; the
    product before it wrote the 16-bit logits, and the one behind it reads the gradient."""
    forward = {"cast": 2 + 4, "largest": 4, "less it": 4 + 4, "exponential": 4 + 4, "sum": 4, "over it": 4 + 4}
    kernels = forward | {"times the loss's gradient": 4 + 4, "cast back": 4 + 2}
    plan = Plan(global_batch=1, seq_len=4096, fused_cross_entropy=False)
    inputs = asked(load_model("llama3-8b"), load_cluster("dgx-h100"), plan)
    work = layer.head_work(inputs.model, inputs.settings, inputs.plan, inputs.software, inputs.device)
    launches = 4.0 * inputs.device.kernel_time
    nbytes = 4096 * 128256 * sum(kernels.values())
    assert work.stream_forward + work.stream_backward == pytest.approx(nbytes / inputs.device.memory_bandwidth + launches)


def test_a_flash_kernel_multiplies_five_times_backward_for_two_forward():
    """Forward scores and outputs; backward scores again, and gradients of values, probabilities, queries and keys
    [dao2023 section 3.1]."""
    device = load_cluster("dgx-h100").device.numbers("bf16")
    device = device._replace(attention_backward_efficiency=device.attention_forward_efficiency, kernel_time=0.0)
    forward, backward = attention.causal_flash(4096.0 * 32, 2048.0, 0.0, 128.0, 0.0, 1.0, device)
    assert backward / forward == pytest.approx(5 / 2)


@pytest.mark.parametrize(("framework", "summed"), [("fsdp2", 4), ("megatron-core", 4), ("deepspeed", 2)])
def test_sharded_weights_are_gathered_for_each_pass_and_their_gradients_scattered(framework, summed):
    """Every rank receives all weights but its own part in 16 bit, forward and again backward, and sends as many gradients in
    the width in which they are summed; on links so slow that nothing hides, that is their bytes' time."""
    ranks, model = 8, dataclasses.replace(load_model("llama3-8b"), vocabulary=512)
    plan = Plan(
        global_batch=ranks, seq_len=2048, data_parallel=ranks, micro_batch=1, zero_stage=3, overlap_parameters=False,
        dtype="bf16",
    )  # fmt: skip
    step = training_step.step(*asked(model, load_cluster("dgx-h100"), plan, framework))
    # DeepSpeed fetches ahead until a thousand million are whole, of which none are let go before the backward pass
    whole = 1e9 if framework == "deepspeed" else 0.0
    nbytes = (ranks - 1) / ranks * (model.parameters * (2 + 2 + summed) - 2 * whole)
    assert step.parameter_exchange + step.gradient_exchange == pytest.approx(nbytes / BANDWIDTH, rel=0.005)


def test_adam_reads_and_writes_its_state_once():
    """A 32-bit copy and two moments read and written, a 32-bit gradient read and set to zero, a 16-bit weight written."""
    model = load_model("llama3-8b")
    plan = Plan(global_batch=8, seq_len=2048, tensor_parallel=8, micro_batch=1, zero_stage=0, optimizer="adam", dtype="bf16",
                gradient_bytes=4)  # fmt: skip
    inputs = asked(model, load_cluster("dgx-h100"), plan)
    software = replaced(inputs.software, {"compute_optimizer_traffic": 1.0, "host_layer_update": 0.0})
    step = training_step.step(*inputs._replace(software=software))
    held = model.parameters / plan.tensor_parallel  # but for norms, which every rank holds
    nbytes = held * (2 * 12 + 2 * 4 + 2)
    assert step.optimizer == pytest.approx(nbytes / inputs.device.memory_bandwidth, rel=0.001)


def test_the_communication_library_holds_the_buffers_of_every_channel():
    """A ring inside a node has one connection a channel, of eight slots: 64 KiB of LL, 600 of LL128, 512 of the simple protocol
    [NVIDIA/nccl@5067397 src/init.cc, src/include/device.h]; a process of one GPU has none."""
    cluster, fields = load_cluster("dgx-a100"), {"global_batch": 8, "seq_len": 2048, "dtype": "bf16"}
    software = load_framework("megatron-core", "ampere").numbers()
    plain = replaced(software, {"memory_fixed": 0.0, "memory_library_overhead": 1.0})

    def held(gpus, **degrees):
        found = estimate(load_model("bloom-560m"), cluster.with_gpus(gpus), Plan(**fields, **degrees)).inputs
        return memory.outside_allocator(found.plan, found.network, plain), found.network.node.channels

    assert held(1)[0] == 0.0
    nbytes, channels = held(8, tensor_parallel=8)
    assert nbytes == pytest.approx(channels * 8 * (64 + 600 + 512) * 1024)


@pytest.mark.parametrize(("stage", "parts"), [(0, (1, 1, 1)), (1, (1, 1, 8)), (2, (1, 8, 8)), (3, (8, 8, 8))])
def test_states_are_two_two_and_twelve_bytes_a_parameter(stage, parts):
    """16-bit weights and gradients, and a 32-bit copy and two moments, each divided by the ranks that share it
    [rajbhandari2020 section 3.1 and figure 1]; of two micro-batches, between which DeepSpeed holds gradients."""
    model = load_model("bloom-560m")
    usual = {"seq_len": 2048, "data_parallel": 8, "gradient_bytes": 2, "optimizer": "adam", "dtype": "bf16"}
    plan = Plan(global_batch=16, zero_stage=stage, **usual)
    held = estimate(model, load_cluster("dgx-a100", gpus=8), plan, "deepspeed").step.memory
    sizes = held.weights, held.gradients, held.optimizer
    for nbytes, width, ranks in zip(sizes, (2, 2, 12), parts, strict=True):
        assert nbytes == pytest.approx(width * model.parameters / ranks, rel=1e-6)


def test_a_ring_passes_keys_and_values_to_all_others():
    """Every rank's keys and values reach each of the others, one after another: forward once, backward with their gradients."""
    ranks, tokens, model = 4, 32768, load_model("llama3-8b")
    plan = Plan(global_batch=1, seq_len=tokens, context_parallel=ranks, micro_batch=1, dtype="bf16", context_communication="ring")
    moved = communication.layer_exchange(*asked(model, load_cluster("dgx-h100"), plan)[:5])
    sent = (ranks - 1) * 2 * tokens / ranks * model.kv_heads * model.head_dim * 2
    assert moved.context_forward == pytest.approx(sent / BANDWIDTH)
    assert moved.context_backward == pytest.approx(2 * sent / BANDWIDTH)


@pytest.mark.parametrize(("framework", "choices", "again"), [
    ("hf-trainer", {}, "qkvogu"), ("hf-trainer", {"reentrant": True}, "qkvogud"), ("megatron-core", {}, "qkvogud"),
    ("fsdp2@2025-06", {}, "qkvogu"), ("fsdp2", {}, "qkvogud"), ("hf-trainer@2025-12", {}, "qkvogud"), ("torchtune", {}, "qkvogu"),
    ("hf-trainer", {"adapter": "lora", "lora_targets": ("query", "value")}, "qkvogu"),
    ("hf-trainer", {"adapter": "lora", "lora_targets": ("down",)}, "qkvogud"), ("unsloth", {"adapter": "lora"}, "qkvogud"),
])  # fmt: skip
def test_a_layer_is_made_again_up_to_the_last_product_that_its_backward_pass_reads(framework, choices, again):
    """Products that PyTorch 2.13 was seen to call again for a layer of Llama's under ``torch.utils.checkpoint``, by a dispatch
    mode: six of seven, or with reentrant checkpoints, or an adapter on the last, all."""
    model = load_model("llama3-8b")
    sizes = {"q": 4096, "k": 1024, "v": 1024, "o": 4096, "g": 14336, "u": 14336, "d": 14336}
    made = model.layers * 2 * 4096 * sum(sizes[product] for product in again)
    settings = {"global_batch": 1, "seq_len": 1024, "micro_batch": 1, **choices}
    full, kept = (
        estimate(model, load_cluster("dgx-h100", gpus=1), Plan(recompute=recompute, **settings), framework).step
        for recompute in ("full", "none")
    )
    core = model.layers * 4 * 1024 * 4096  # counted in full
    assert float(full.hardware_flop - kept.hardware_flop) / 1024 == pytest.approx(made + core, rel=0.01)
