"""What the host launches for a layer, counted by hand."""

import pytest

from costmodel import Plan, estimate, load_cluster, load_framework, load_model, machine
from costmodel.arithmetic.named_tuples import replaced
from costmodel.formulas.training_step import layer_pass
from costmodel.formulas.transformer.launches import hook_time, layer_launches, rotated_by_sample

DENSE, SPARSE = load_model("llama3-8b"), load_model("mixtral-8x7b")
FRAMEWORK = load_framework("megatron-core")


def counted(model, routing=0.0, **choices):
    plan = Plan(global_batch=64, seq_len=4096, micro_batch=1, **choices)
    software = replaced(FRAMEWORK.numbers(), {"host_expert_launches": routing})
    return float(layer_launches(model.numbers(), plan.settings(FRAMEWORK), plan.numbers(FRAMEWORK, model.layers), software))


@pytest.mark.parametrize(("choices", "kernels"), [
    ({}, 0), ({"dtype": "fp8"}, 4 * 2), ({"context_parallel": 4}, 3 * 10), ({"adapter": "lora"}, 4 * 5),
    ({"adapter": "lora", "lora_targets": ("query", "value")}, 2 * 5), ({"adapter": "qlora"}, 4 * 5 + 4 * 2),
    ({"adapter": "gptq-lora"}, 4 * 5 + 4 * 10),
])  # fmt: skip
def test_what_a_dense_layer_launches_beyond_its_thirty_kernels(choices, kernels):
    assert counted(DENSE, **choices) == pytest.approx(1.0 + kernels / 30.0)


def test_layers_of_hugging_face_launch_what_their_code_does_kernel_by_kernel():
    """Of Llama norms of 8, rotations of 10, products of 7, attention, two sums, an activation and its product; of GPT-2, whose
    queries, keys and values are one product, norms of one, and an activation of 8."""
    software = load_framework("hf-trainer")
    plan = Plan(global_batch=64, seq_len=1024, micro_batch=1).resolve(software)
    asked = plan.settings(software), plan.numbers(software, 12), software.numbers()
    gpt2, llama = load_model("gpt2"), load_model("llama3-8b")
    found = [float(layer_launches(model.numbers(), *asked)) for model in (llama, load_model("qwen3-8b"))]
    assert found == pytest.approx([1.0, 1.0 + 2 * 8 / 30.0])
    plain, written_out = (2 + 4 + 1 + 2 + 1) / (2 * 8 + 10 + 7 + 1 + 2 + 2), 7 / 30.0
    assert float(layer_launches(gpt2.numbers(), *asked)) == pytest.approx(plain + written_out)


@pytest.mark.parametrize(("framework", "stage", "hooks"), [("deepspeed", 3, 13), ("deepspeed", 2, 0), ("fsdp2", 3, 0)])
def test_deepspeed_has_hooks_around_every_module_where_it_shards_weights(framework, stage, hooks):
    # Hugging Face's Llama: q, k, v, o, gate, up and down, two norms, the layer, its attention, its MLP and that one's activation
    software = load_framework(framework)
    plan = Plan(global_batch=64, seq_len=4096, data_parallel=8, zero_stage=stage)
    found = hook_time(plan.settings(software), DENSE.numbers(), plan.numbers(software, DENSE.layers), software.numbers())
    assert float(found) == pytest.approx(hooks * software.constants.host.module_hook)


@pytest.mark.parametrize(("release", "modules"), [("2025-09", 5), ("2025-11", 0)])
def test_deepspeed_had_hooks_around_every_expert_until_their_block_was_a_leaf(release, modules):
    """Of Qwen3's 128: gate, up and down, their MLP and its activation; deepspeedai/DeepSpeed#7604, in 0.18.0 of October 2025."""
    software, model = load_framework(f"deepspeed@{release}"), load_model("qwen3-30b-a3b")
    plan = Plan(global_batch=16, seq_len=8192, data_parallel=16, zero_stage=3)
    found = hook_time(plan.settings(software), model.numbers(), plan.numbers(software, model.layers), software.numbers())
    assert float(found) / software.constants.host.module_hook == pytest.approx(13 + 128 * modules)


def test_packed_samples_that_are_rotated_one_by_one_set_the_pace_of_small_fine_tunes():
    """Of Qwen3-8B by 32 packs of 2,048 tokens on H100, in full on four and by LoRA on one: 7.42 and 7.77 s (NVIDIA-NeMo/
    Megatron-Bridge@067f987 examples/model_verification_cards/qwen3-8b/card.yaml; moonlight-16b-a3b/: 21.55 samples in 8,192)."""
    packed = {"global_batch": 32, "micro_batch": 1, "seq_len": 2048, "batching": "packed", "mean_length": 380}
    lora = {"adapter": "lora", "lora_rank": 8, "lora_targets": ("query", "key", "value", "output")}
    full = {"tensor_parallel": 4, "sequence_parallel": False}
    found = [
        estimate("qwen3-8b", machine("h100-sxm", gpus=gpus), Plan(**packed, **choices), "nemo", loss="compiled").step_time
        for gpus, choices in ((4, full), (1, lora))
    ]
    assert found == pytest.approx([7.42424, 7.77479], rel=0.25)


@pytest.mark.parametrize(("release", "choices", "kernels"), [
    ("2026-07", {"batching": "packed", "mean_length": 512}, 13 * 2 * 8), ("2026-07", {}, 0),
    ("2026-07", {"batching": "padded", "mean_length": 512}, 0), ("2025-10", {"batching": "packed", "mean_length": 512}, 0),
    ("2026-07", {"batching": "packed", "mean_length": 4096}, 13 * 2),
    ("2026-07", {"batching": "packed", "mean_length": 512, "context_parallel": 2}, 13 * 2 * 8),
])  # fmt: skip
def test_bridge_rotates_queries_and_keys_of_every_packed_sample_by_kernels_of_their_own(release, choices, kernels):
    """Cosines and sines, scaled and cast (6), two products, a half's sign, two joints, a sum, a copy out (7)."""
    software = load_framework(f"nemo@{release}")
    plan = Plan(global_batch=64, seq_len=4096, micro_batch=1, data_parallel=1, **choices)
    found = rotated_by_sample(DENSE.numbers(), plan.settings(software), plan.numbers(software, DENSE.layers))
    assert float(found) == pytest.approx(kernels)


def test_latent_attention_launches_half_as_much_again_as_a_layer():
    assert counted(load_model("deepseek-v2-lite"), dtype="bf16") == pytest.approx(1.0 + 15 / 30.0)


@pytest.mark.parametrize(("choices", "kernels"), [
    ({}, 0), ({"expert_parallel": 4, "data_parallel": 4}, 0), ({"dtype": "mxfp8"}, 8 + 4 * 8),
    ({"dtype": "mxfp8", "expert_parallel": 4, "data_parallel": 4}, 8 + 4 * 2), ({"dtype": "mxfp8", "fused_experts": True}, 8),
])  # fmt: skip
def test_routing_is_launched_once_a_layer_and_casts_for_every_expert_of_the_rank(choices, kernels):
    assert counted(SPARSE, 1.5, **choices) == pytest.approx(1.0 + 1.5 + kernels / 30.0)


def test_biases_are_added_expert_by_expert_and_limits_are_kernels_before_the_activation():
    # megatron/core/transformer/moe/experts.py, ``_apply_bias``: of each of 16 experts a product and a sum; two limits joined
    model = load_model("gpt-oss-120b")
    apart = counted(model, 1.5, expert_parallel=8, data_parallel=8)
    assert apart == pytest.approx(1.0 + 1.5 + (2 * 16 + 3) / 30.0)
    fused = counted(model, 1.5, expert_parallel=8, data_parallel=8, dtype="mxfp8", fused_experts=True)
    assert fused == pytest.approx(1.0 + 1.5 + 4 * 2 / 30.0)


def test_a_host_that_is_slower_than_its_device_takes_as_much_longer_as_it_launches():
    cluster = load_cluster("dgx-h100", gpus=8)
    took = []
    for adapter in ("none", "lora"):
        plan = Plan(global_batch=8, seq_len=1024, data_parallel=8, adapter=adapter)
        stack = replaced(FRAMEWORK.numbers(), {"host_forward": 10.0, "host_backward": 20.0})
        numbers = plan.settings(FRAMEWORK), plan.numbers(FRAMEWORK, DENSE.layers)
        took.append(layer_pass(DENSE.numbers(), *numbers, cluster.numbers(), stack, cluster.device.numbers("bf16")).total)
    assert took[1] / took[0] == pytest.approx(1.0 + 20.0 / 30.0, rel=1e-3)
