"""Decoders some of whose layers keep a state in place of attention: counts, FLOP, memory, and what is refused."""

import dataclasses
import json
import math

import pytest

from costmodel import Plan, estimate, load_cluster, search
from costmodel.description.huggingface import read
from costmodel.description.tensors import stage_tensors
from costmodel.text.errors import IllegalPlan, InvalidValue, NotModelled
from tests.tensors import parameter_tensors

QWEN3_NEXT = {
    "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151936, "intermediate_size": 5120, "decoder_sparse_step": 1,
    "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_value_head_dim": 128, "mlp_only_layers": [], "moe_intermediate_size": 512,
    "num_experts": 512, "num_experts_per_tok": 10, "shared_expert_intermediate_size": 512, "norm_topk_prob": True,
    "max_position_embeddings": 262144, "attention_bias": False, "tie_word_embeddings": False,
}  # fmt: skip
DELTA = {
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_value_head_dim": 128,
    "head_dim": 256, "vocab_size": 248320, "attn_output_gate": True, "mamba_ssm_dtype": "float32",
    "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False, "tie_word_embeddings": False,
}  # fmt: skip
QWEN35_27B = {"model_type": "qwen3_5", "vision_config": {"depth": 27}, "text_config": DELTA | {
    "model_type": "qwen3_5_text", "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64,
    "num_attention_heads": 24, "num_key_value_heads": 4, "linear_num_value_heads": 48, "full_attention_interval": 4,
}}  # fmt: skip
QWEN35_397B = {"model_type": "qwen3_5_moe", "text_config": DELTA | {
    "model_type": "qwen3_5_moe_text", "hidden_size": 4096, "num_hidden_layers": 60, "num_attention_heads": 32,
    "num_key_value_heads": 2, "linear_num_value_heads": 64, "moe_intermediate_size": 1024, "num_experts": 512,
    "layer_types": [*["linear_attention"] * 3, "full_attention"] * 15, "num_experts_per_tok": 10,
    "shared_expert_intermediate_size": 1024,
}}  # fmt: skip
JAMBA = {
    "model_type": "jamba", "attn_layer_offset": 4, "attn_layer_period": 8, "expert_layer_offset": 1, "expert_layer_period": 2,
    "hidden_size": 4096, "intermediate_size": 14336, "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_state": 16,
    "mamba_dt_rank": 256, "mamba_expand": 2, "mamba_proj_bias": False, "num_attention_heads": 32, "num_experts": 16,
    "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "tie_word_embeddings": False,
    "vocab_size": 65536, "use_mamba_kernels": True,
}  # fmt: skip
GRANITE = {
    "model_type": "granitemoehybrid", "hidden_size": 4096, "num_hidden_layers": 40, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 100352, "layer_types": [*["mamba"] * 5, "attention", *["mamba"] * 4] * 4,
    "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1,
    "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_proj_bias": False, "num_local_experts": 72,
    "num_experts_per_tok": 10, "intermediate_size": 768, "shared_intermediate_size": 1536, "tie_word_embeddings": True,
}  # fmt: skip
KIMI = {
    "model_type": "kimi_linear", "hidden_size": 2304, "num_hidden_layers": 27, "vocab_size": 163840, "num_attention_heads": 32,
    "num_key_value_heads": 32, "head_dim": 72, "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1,
    "moe_intermediate_size": 1024, "moe_renormalize": True, "moe_router_activation_func": "sigmoid", "moe_layer_freq": 1,
    "intermediate_size": 9216, "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "mla_use_nope": True, "first_k_dense_replace": 1, "tie_word_embeddings": False,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4,
        "kda_layers": [one for one in range(1, 27) if one % 4],
    },
}  # fmt: skip
NEMOTRON_3 = {
    "model_type": "nemotron_h", "hidden_size": 2688, "num_hidden_layers": 52, "num_attention_heads": 32,
    "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 131072, "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "ssm_state_size": 128,
    "conv_kernel": 4, "chunk_size": 128, "intermediate_size": 1856, "moe_intermediate_size": 1856, "n_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 3712, "n_routed_experts": 128, "num_experts_per_tok": 6, "tie_word_embeddings": False,
}  # fmt: skip
NEMOTRON_H = {
    "model_type": "nemotron_h", "hidden_size": 4096, "num_hidden_layers": 52, "num_attention_heads": 32,
    "num_key_value_heads": 8, "attention_head_dim": 128, "vocab_size": 131072, "mamba_num_heads": 128, "mamba_head_dim": 64,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", "n_groups": 8, "ssm_state_size": 128,
    "conv_kernel": 4, "chunk_size": 128, "intermediate_size": 21504, "tie_word_embeddings": False,
}  # fmt: skip
MINIMAX = {
    "model_type": "minimax_text_01", "hidden_size": 6144, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 200064, "intermediate_size": 9216, "num_local_experts": 32,
    "num_experts_per_tok": 2, "attn_type_list": [*[0] * 7, 1] * 10, "shared_intermediate_size": 0, "postnorm": True,
    "tie_word_embeddings": False,
}  # fmt: skip
BAMBA = {
    "model_type": "bamba", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "intermediate_size": 14336, "attn_layer_indices": [9, 18, 27], "mamba_d_state": 128,
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1,
    "attn_rotary_emb": 64, "tie_word_embeddings": False,
}  # fmt: skip

TRINITY = {
    "model_type": "afmoe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 1024,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 200192,
    "num_experts": 128, "num_experts_per_tok": 8, "num_shared_experts": 1, "num_dense_layers": 2, "sliding_window": 2048,
    "global_attn_every_n_layers": 4, "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 8,
    "tie_word_embeddings": False,
}  # fmt: skip

LFM2 = {
    "model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 65536, "block_auto_adjust_ff_dim": True, "block_ff_dim": 12288, "block_ffn_dim_multiplier": 1.0,
    "block_multiple_of": 256, "conv_L_cache": 3, "conv_bias": False, "conv_dim": 2048, "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    "norm_eps": 1e-5, "num_heads": 32, "block_dim": 2048, "block_use_swiglu": True, "max_position_embeddings": 128000,
}  # fmt: skip
LFM2_MOE = {
    "model_type": "lfm2_moe", "hidden_size": 2048, "intermediate_size": 7168, "moe_intermediate_size": 1792, "num_experts": 32,
    "num_experts_per_tok": 4, "num_dense_layers": 2, "num_hidden_layers": 24, "num_attention_heads": 32, "vocab_size": 65536,
    "num_key_value_heads": 8, "conv_L_cache": 3, "conv_bias": False, "use_expert_bias": True, "norm_topk_prob": True,
    "layer_types": ["full_attention" if layer in (2, 6, 10, 14, 18, 21) else "conv" for layer in range(24)],
}  # fmt: skip

LING = {
    "model_type": "bailing_hybrid", "hidden_size": 2560, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_hidden_layers": 42, "num_attention_heads": 32, "num_key_value_heads": 32, "num_experts": 512, "kv_lora_rank": 512,
    "num_experts_per_token": 8, "num_shared_experts": 1, "first_k_dense_replace": 2, "q_lora_rank": None, "vocab_size": 157184,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "layer_group_size": 6, "short_conv_kernel_size": 4,
    "linear_head_dim": 128, "linear_num_heads": 32, "linear_conv_kernel_dim": 4, "kda_safe_gate": True, "head_dim": 64,
    "num_expert_group": 8, "topk_group": 4, "moe_renormalize": True, "tie_word_embeddings": False, "attention_bias": False,
}  # fmt: skip

PUBLISHED = {  # counts of the authors' cards, or of the stored weights where the card's is rounded further
    "Qwen3-Next-80B-A3B": (QWEN3_NEXT, 80e9), "Qwen3.5-27B": (QWEN35_27B, 27e9), "Qwen3.5-397B-A17B": (QWEN35_397B, 397e9),
    "Jamba-v0.1": (JAMBA, 51.6e9), "Granite-4.0-H-Small": (GRANITE, 32.2e9), "Kimi-Linear-48B-A3B": (KIMI, 49.1e9),
    "Nemotron-3-Nano-30B-A3B": (NEMOTRON_3, 31.6e9), "Nemotron-H-8B": (NEMOTRON_H, 8.1e9), "MiniMax-Text-01": (MINIMAX, 456e9),
    "Bamba-9B": (BAMBA, 9.78e9), "Trinity-Mini (gated attention, no state)": (TRINITY, 26e9),
    "Ling's hybrid as its class has it (Transformers 5.24)": (LING, 124_414_191_072),
    "LFM2-1.2B": (LFM2, 1_170_340_608), "LFM2-8B-A1B": (LFM2_MOE, 8_339_929_856),
}  # fmt: skip


def model_of(folder, config, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(config | changes), encoding="utf-8")
    return read(file, "model").model


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_hybrid_has_its_published_parameters(name, tmp_path):
    config, published = PUBLISHED[name]
    assert model_of(tmp_path, config).parameters == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("name", PUBLISHED)
def test_tensors_of_a_hybrid_add_up_to_its_parameters(name, tmp_path):
    model = model_of(tmp_path, PUBLISHED[name][0])
    assert sum(tensor.numel for tensor in parameter_tensors(model)) == model.parameters
    kinds = [model.mixer_of(layer) for layer in range(model.layers)]
    assert kinds.count("state") == model.recurrent_layers and kinds.count("attention") == model.attention_layers


def test_a_short_convolution_multiplies_its_two_products_and_no_score(tmp_path):
    """Of LFM2's ten layers without attention: three channels a channel in, one out, three taps; their time grows with tokens."""
    model = model_of(tmp_path, LFM2)
    attended = 6 * (2 * 2048**2 + 2 * 2048 * 8 * 64)
    convolved = 10 * (4 * 2048**2 + 3 * 2048)
    dense = 16 * 3 * 2048 * 8192 + 2048 * 65536
    assert model.flop_per_token(1024, causal=False) == pytest.approx(
        6 * (attended + convolved + dense) + 6 * 12 * 2048 * 1024, rel=1e-9
    )
    assert model_of(tmp_path, LFM2_MOE).active_parameters == pytest.approx(1.5e9, rel=0.05)  # LiquidAI/LFM2-8B-A1B README.md
    with pytest.raises(NotModelled, match="conv_bias"):
        model_of(tmp_path, LFM2, conv_bias=True)
    with pytest.raises(NotModelled, match="layer_types with 'sliding"):
        model_of(tmp_path, LFM2, layer_types=["sliding_attention"] * 16)


@pytest.mark.parametrize(("version", "tied"), [("4.57.1", False), ("5.0.0", True), (None, False)])
def test_of_two_tables_that_say_whether_embeddings_are_tied_the_release_says_which_counts(version, tied, tmp_path):
    """Transformers 4 ties by the text's table (``get_text_config``), 5 by the model's own: InternVL's default is 0.62e9 apart."""
    text = {"model_type": "qwen2", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
            "intermediate_size": 1024, "vocab_size": 1000, "tie_word_embeddings": False}  # fmt: skip
    config = {"model_type": "internvl", "text_config": text, "tie_word_embeddings": True, "vision_config": {"depth": 2}}
    assert model_of(tmp_path, config, **({"transformers_version": version} if version else {})).tied is tied


def test_layers_of_nemotron_3_are_those_of_its_pattern(tmp_path):
    model, pattern = model_of(tmp_path, NEMOTRON_3), NEMOTRON_3["hybrid_override_pattern"]
    counted = [model.recurrent_layers, model.attention_layers, model.expert_layers]
    assert counted == [pattern.count("M"), pattern.count("*"), pattern.count("E")]


def test_tensor_ranks_split_projections_and_heads_of_states(tmp_path):
    model = model_of(tmp_path, NEMOTRON_H)
    whole = {"layers": range(52), "embedding": True, "head": True, "expert": 1, "expert_tensor": 1}
    halves = [int(stage_tensors(model, tensor=ranks, **whole).numel.sum()) for ranks in (1, 2)]
    norms = 53 * 4096  # what every rank holds
    assert halves[1] == pytest.approx((halves[0] - norms) / 2 + norms, rel=1e-9)
    plan = Plan(global_batch=8, seq_len=4096, tensor_parallel=2, zero_stage=0)
    told = estimate(model, load_cluster("dgx-h100", gpus=8), plan, framework="megatron-core")
    assert told.memory.weights == pytest.approx(2 * halves[1], rel=1e-6)


def test_flop_of_mamba_layers_are_those_that_megatron_counts(tmp_path):
    # NVIDIA/Megatron-LM megatron/training/training.py, hybrid_flops: mamba, attention, MLP, and logits, of a token
    model, hidden, length = model_of(tmp_path, NEMOTRON_H), 4096, 8192
    inner, heads, groups, state = 8192, 128, 8, 128
    mamba = 2 * hidden * (2 * inner + 2 * groups * state + heads) + 7 * inner * state + 2 * inner * hidden
    attention = 4 * hidden * hidden * (1 + 8 / 32 + length / hidden)
    mlp = 4 * hidden * 21504
    known = 3 * (24 * mamba + 4 * attention + 24 * mlp + 2 * hidden * 131072)
    convolution = 3 * 2 * 24 * 4 * (inner + 2 * groups * state)  # which Megatron leaves out
    assert model.flop_per_token(length, causal=False) == pytest.approx(known + convolution, rel=1e-12)


def test_flop_of_a_state_don_t_grow_with_the_sequence(tmp_path):
    short, long = (model_of(tmp_path, MINIMAX).flop_per_token(length) for length in (8192, 131072))
    keys = 3 * 10 * 4 * 64 * 128 * (131072 - 8192) / 2  # of the ten layers that attend
    assert long - short == pytest.approx(keys, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("Nemotron-3-Nano-30B-A3B", {"tensor_parallel": 2, "expert_parallel": 8, "pipeline_parallel": 2}),
        ("Qwen3-Next-80B-A3B", {"tensor_parallel": 2, "expert_parallel": 16, "recompute": "full"}),
        ("Jamba-v0.1", {"tensor_parallel": 4, "expert_parallel": 8}),
        ("Kimi-Linear-48B-A3B", {"expert_parallel": 32, "recompute": "selective"}),
    ],
)
def test_a_hybrid_is_estimated_with_a_wider_interval(name, plan, tmp_path):
    model, cluster = model_of(tmp_path, PUBLISHED[name][0]), load_cluster("dgx-h100", gpus=64)
    told = estimate(model, cluster, Plan(global_batch=256, seq_len=8192, **plan), framework="megatron-core")
    assert 0.02 < told.mfu < 0.6
    assert "layers with a state" in told.evidence
    low, high = told.time_interval
    bare = told.spread.time(told.slopes.deviation)
    without = type(told.spread)(**{**vars(told.spread), "states": 0.0}).time(told.slopes.deviation)
    assert math.log(high / low) == pytest.approx(2 * bare.half) and bare.half > without.half


def test_recomputing_a_hybrid_s_layers_leaves_their_inputs(tmp_path):
    model, cluster = model_of(tmp_path, BAMBA), load_cluster("dgx-h100", gpus=8)
    plans = [Plan(global_batch=8, seq_len=4096, tensor_parallel=8, recompute=what) for what in ("none", "full")]
    kept, again = (estimate(model, cluster, plan, framework="megatron-core") for plan in plans)
    assert again.memory.activations < 0.5 * kept.memory.activations and again.step_time > kept.step_time


def test_a_hybrid_is_searched(tmp_path):
    model, cluster = model_of(tmp_path, NEMOTRON_H), load_cluster("dgx-h100", gpus=16)
    found = search(model, cluster, global_batch=64, seq_len=8192, framework="megatron-core")
    assert found.best.plan.context_parallel == 1


def test_context_ranks_of_states_are_refused(tmp_path):
    plan = Plan(global_batch=8, seq_len=8192, context_parallel=2)
    with pytest.raises(IllegalPlan, match="context_parallel=2 with the 29 layers of 'model' that keep a state"):
        estimate(model_of(tmp_path, BAMBA), load_cluster("dgx-h100", gpus=8), plan, framework="megatron-core")


KIMI_5 = {key: value for key, value in KIMI.items() if key not in ("linear_attn_config", "mla_use_nope", "moe_layer_freq",
          "moe_router_activation_func", "first_k_dense_replace")} | {
    "head_dim": 64, "qk_head_dim": 192, "linear_num_heads": 32, "linear_head_dim": 128, "linear_conv_kernel_dim": 4,
    "layer_types": ["full_attention" if layer in (4, 8, 12, 16, 20, 24) else "linear_attention" for layer in range(27)],
    "mlp_layer_types": ["dense", *["sparse"] * 26],
}  # fmt: skip
NEMOTRON_5 = {
    "model_type": "nemotron_h", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 131072, "layers_block_type": ["linear_attention", "moe", "full_attention", "linear_attention"] * 3,
    "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "chunk_size": 128,
    "intermediate_size": 21504, "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688,
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "mtp_layers_block_type": ["full_attention", "moe"],
    "num_nextn_predict_layers": 0, "tie_word_embeddings": False,
}  # fmt: skip
GRANITE_5 = {
    "model_type": "granitemoehybrid", "hidden_size": 4096, "intermediate_size": 11008, "layer_types": ["linear_attention"] * 32,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "mamba_d_state": 256,
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1,
    "num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 1024, "tie_word_embeddings": False,
}  # fmt: skip
FALCON_H1 = {
    "model_type": "falcon_h1", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128000, "mamba_d_ssm": 1024, "mamba_d_state": 256,
    "mamba_n_heads": 128, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_rms_norm": False,
    "projectors_bias": False, "tie_word_embeddings": False,
}  # fmt: skip
MIMO_V2 = {
    "model_type": "mimo_v2_flash", "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 48,
    "num_attention_heads": 64, "num_key_value_heads": 4, "vocab_size": 152576, "head_dim": 192, "v_head_dim": 128,
    "sliding_window": 129, "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 1,
    "layer_types": ["full_attention" if not layer or layer % 6 == 5 else "sliding_attention" for layer in range(48)],
    "mlp_layer_types": ["dense", *["sparse"] * 47], "tie_word_embeddings": False, "attention_value_scale": 0.707,
}  # fmt: skip
AS_TRANSFORMERS_COUNTS = {
    "Kimi Linear": (KIMI_5, 49133074464), "Nemotron-H": (NEMOTRON_5, 3558000896), "Granite 4": (GRANITE_5, 38601064448),
    "Falcon-H1": (FALCON_H1, 8514961408), "MiMo-V2-Flash": (MIMO_V2, 308778768832),
}  # fmt: skip
"""Files as Transformers 5 writes them, and the parameters of its own classes on PyTorch's device without memory (5.24.0)."""


@pytest.mark.parametrize("name", AS_TRANSFORMERS_COUNTS)
def test_a_file_that_transformers_5_wrote_has_as_many_parameters_as_its_own_class(name, tmp_path):
    config, counted = AS_TRANSFORMERS_COUNTS[name]
    model = model_of(tmp_path, config)
    assert model.parameters == pytest.approx(counted, rel=1e-5)
    assert sum(math.prod(one.shape) for one in parameter_tensors(model)) == model.parameters


def test_layers_that_attend_and_keep_a_state_do_both(tmp_path):
    both = model_of(tmp_path, FALCON_H1)
    attending = both.attention_layers == both.recurrent_layers == both.layers == 32
    assert attending and {both.mixer_of(layer) for layer in range(32)} == {"both"}
    plan = Plan(global_batch=64, seq_len=8192, micro_batch=1, zero_stage=3)
    cluster = load_cluster("dgx-h100", gpus=8)
    took = estimate(both, cluster, plan, framework="hf-fsdp").step_time
    state = {"recurrence": "none", "recurrent_layers": 0, "recurrent_heads": 0, "recurrent_key_heads": 0, "recurrent_state": 0,
             "recurrent_head_dim": 0, "attention_beside_state": False}  # fmt: skip
    alone = estimate(dataclasses.replace(both, **state), cluster, plan, framework="hf-fsdp").step_time
    assert took > 1.02 * alone


REFUSED = {
    "experts in a latent space": (NEMOTRON_3 | {"moe_latent_size": 1024}, "moe_latent_size=1024"),
    "MLPs beside experts": (NEMOTRON_3 | {"hybrid_override_pattern": "M-" * 13 + "ME" * 13}, "MLPs beside experts"),
    "a gate of full rank": (
        KIMI | {"linear_attn_config": KIMI["linear_attn_config"] | {"use_full_rank_gate": True}}, "use_full_rank_gate",
    ),
    "a layer of another kind": (GRANITE | {"layer_types": ["rwkv"] * 40}, "layer_types with 'rwkv'"),
    "modules of several layers": (NEMOTRON_3 | {"num_nextn_predict_layers": 1}, "num_nextn_predict_layers=1"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_isn_t_modelled_of_a_hybrid_is_named(case, tmp_path):
    config, words = REFUSED[case]
    with pytest.raises(NotModelled, match=words):
        model_of(tmp_path, config)


WRONG = {
    "a pattern that is too short": (NEMOTRON_H | {"hybrid_override_pattern": "M-*"}, "hybrid_override_pattern"),
    "a list that is too short": (GRANITE | {"layer_types": ["mamba"]}, "layer_types"),
    "heads that don't fill the width": (GRANITE | {"mamba_d_head": 32}, "mamba_d_head"),
    "heads that groups don't divide": (NEMOTRON_H | {"n_groups": 7}, "recurrent_key_heads"),
    "states that nothing says": ({key: KIMI[key] for key in KIMI if key != "linear_attn_config"}, "linear_attn_config"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_number_of_a_hybrid_is_named(case, tmp_path):
    config, field = WRONG[case]
    with pytest.raises(InvalidValue, match=field):
        model_of(tmp_path, config)
