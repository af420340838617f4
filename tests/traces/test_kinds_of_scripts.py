"""Kinds of training code, each a small script that knows nothing of this package: it exchanges what its software must."""

import importlib.util
from pathlib import Path

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("the fake machine needs PyTorch: pip install 'costmodel[trace]'", allow_module_level=True)

from costmodel import Plan, Transformer, ledger, load_cluster
from costmodel.traces.comparison import compare
from tests.traces import scripts
from tests.traces.test_machine import ENDS, LAYER, exchanged, held, needs, planned, traced

pytestmark = pytest.mark.slow

TINY = Transformer(
    name="tiny", layers=4, hidden=256, heads=4, kv_heads=2, head_dim=64, feed_forward=512, vocabulary=1024, gated=True,
    norm="rmsnorm", tied_embeddings=False,
)  # fmt: skip
WRAPPED = 'fsdp="full_shard auto_wrap", fsdp_config={"version": 1, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}'
REPLICATED = {
    "ResNet-50 with a gradient scaler": ("torchvision", scripts.VISION.replace("MODEL", "resnet50()"), 25_557_032),
    "ViT-B/16 with a gradient scaler": ("torchvision", scripts.VISION.replace("MODEL", "vit_b_16()"), 86_567_656),
    "DiT": ("diffusers", scripts.DIT, None),
    "BERT": ("transformers", scripts.BERT, None),
    "TRL's SFT of a Llama": ("trl", scripts.SFT, 4 * LAYER + ENDS),
    "LoRA of a Llama": ("peft", scripts.LORA, 4 * 8 * ((256 + 256) + (256 + 128))),
}  # fmt: skip
"""Replicated models: the package that they need, the script, trainable parameters where somebody else has counted them."""


@pytest.mark.parametrize("kind", REPLICATED)
def test_replicas_sum_as_many_bytes_as_their_trainable_parameters_have(tmp_path: Path, kind: str) -> None:
    package, script, count = REPLICATED[kind]
    needs(package)
    role = traced(tmp_path, script, roles="0").roles[0]
    trainable = int(role.parameters.elements[role.parameters.trainable == 1].sum())
    assert count is None or trainable == count
    summed = sum(nbytes * times for (op, nbytes), times in exchanged(role).items() if op == "all-reduce" and nbytes > 1024)
    assert summed == 4 * trainable


@pytest.mark.parametrize("bits", [16, 4, 8])
def test_a_model_is_loaded_with_as_many_classes_and_bits_as_the_script_says(tmp_path: Path, bits: int) -> None:
    """In 4 bit products' weights are, two a byte, with a number in 32 bit for every 64 (bitsandbytes' default)."""
    needs("peft")
    needs("transformers" if bits == 16 else "bitsandbytes")
    how = {16: "{}", 4: "dict(quantization_config=four)", 8: "dict(quantization_config=eight)"}[bits]
    script = scripts.QLORA.replace("HOW", how)
    role = traced(tmp_path, script, gpus=1).roles[0]
    if bits < 16:  # what is multiplied counts, however it is held: forward, and for gradients of inputs
        assert role.kernels.flop.sum() > 0.99 * 3 * 2 * (2 * 2 * 128) * 4 * (LAYER - 2 * 256)
    products, rest = 4 * (LAYER - 2 * 256), 4 * 2 * 256 + 1024 * 256 + 256
    head, adapters = 2 * 7 * 256, 4 * 8 * ((256 + 256) + (256 + 128))  # PEFT keeps a frozen head beside the one it trains
    names = {role.texts[name] for name in role.parameters.name}
    elements = dict(zip((role.texts[name] for name in role.parameters.name), role.parameters.elements.tolist(), strict=True))
    assert sum(elements.values()) == products + rest + head + adapters, names
    weights = products * bits // 8
    held_there = held(role, "weight") - weights - 2 * rest
    assert 0 < held_there <= 4 * (head + adapters) + 64


@pytest.mark.parametrize("optimizer", ["AdamW8bit", "PagedAdamW8bit"])
def test_optimizers_in_8_bit_hold_two_bytes_a_weight_and_their_scales_paged_or_not(tmp_path: Path, optimizer: str) -> None:
    """Blocks are of 256 weights (bitsandbytes 0.50 ``Optimizer2State``); biases, of fewer than 4,096 elements, stay in 32 bit."""
    needs("bitsandbytes")
    script = scripts.PLAIN.replace("64, 256", "512, 2048").replace("256", "2048").replace("64", "512")
    script = script.replace("import torch,", "import bitsandbytes, torch,")
    script = script.replace("torch.optim.AdamW", f"bitsandbytes.optim.{optimizer}")
    role = traced(tmp_path, script, gpus=1).roles[0]
    weights, vectors = 2 * 512 * 2048, 3 * 2048 + 512
    states = 2 * weights + 2 * 4 * weights // 256 + 2 * 4 * vectors
    assert states <= held(role, "optimizer") <= states + 8192, "beside two maps of 256 numbers"


def test_a_trainer_with_fsdp_gathers_each_layer_twice_in_half(tmp_path: Path) -> None:
    needs("accelerate")
    trace = traced(tmp_path, scripts.TRAINER.replace("OPTIONS", WRAPPED), roles="0")
    assert planned(trace) == ("hf-fsdp", 8, 1, 3, 16)
    found = exchanged(trace.roles[0])
    assert found["all-gather", 2 * LAYER] == 2 * 4
    assert found["reduce-scatter", 2 * LAYER] == 4


def test_a_mixture_of_experts_takes_balanced_routing_and_says_so(tmp_path: Path) -> None:
    needs("transformers")
    trace = traced(tmp_path, scripts.MIXTURE, roles="0")
    found = exchanged(trace.roles[0])
    assert sorted(count for (op, _), count in found.items() if op == "all-gather") == [1, 4]  # the root once, two layers twice
    assert any("topk picks taken as evenly spread" in sentence for sentence in trace.values_assumed)


def test_tensor_parallel_blocks_sum_once_forward_and_once_backward(tmp_path: Path) -> None:
    found = exchanged(traced(tmp_path, scripts.TENSOR_PARALLEL, roles="0").roles[0])
    assert found == {("all-reduce", 4 * 32 * 128 * 4): 3 + 2}  # the first block's input needs no gradient


def test_stages_of_a_pipeline_are_run_both_and_match_message_by_message(tmp_path: Path) -> None:
    trace = traced(tmp_path, scripts.PIPELINE.replace("SCHEDULE", "Schedule1F1B"), gpus=2)
    message = 2 * 64 * 4  # a micro-batch of two rows in 32 bits
    assert [role.rank for role in trace.roles] == [0, 1]
    for role in trace.roles:
        assert exchanged(role) == {("send", message): 4, ("recv", message): 4}


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_reduces_all_gradients_in_half_and_gathers_all_weights_once(tmp_path: Path, stage: int) -> None:
    """At stage 3, too, where so few weights are never given up between the passes; the ledger has every transaction."""
    needs("deepspeed")
    trace = traced(tmp_path, scripts.DEEPSPEED.replace("STAGE", str(stage)), roles="0")
    found = exchanged(trace.roles[0])
    weights = 2 * (4 * LAYER + ENDS)
    sums = {op: sum(nbytes * times for (other, nbytes), times in found.items() if other == op and nbytes > 64) for op, _ in found}
    assert sums["all-gather"] == weights
    reduced = "all-reduce" if stage < 3 else "reduce-scatter"
    assert sums[reduced] == found[reduced, weights] * weights == weights
    kernels = trace.roles[0].kernels
    updates = kernels.bytes_read[kernels.op == trace.roles[0].texts.index("deepspeed.multi_tensor_adam")]
    assert updates[-1] == 4 * 4 * weights / 2 / 8  # gradient, weight and two moments in 32 bits, of an eighth (its FusedAdam)
    assert planned(trace) == ("deepspeed", 8, 1, stage, 16)
    plan = Plan(
        global_batch=16, micro_batch=2, seq_len=128, data_parallel=8, zero_stage=stage, dtype="bf16", overlap_gradients=False
    )
    made = compare(trace, ledger(TINY, load_cluster("dgx-h100", gpus=8), plan, "deepspeed"))
    assert made.agrees and made.rows, made
