"""Reading config.json: the same model as the catalogue's, or one line that says what is wrong."""

import json
import os
import tomllib
from pathlib import Path

import pytest

from costmodel.description.huggingface import read_config
from costmodel.description.transformer import Transformer
from costmodel.text.errors import InvalidValue, NotModelled, UnreadableFile

MODELS = Path(__file__).parents[2] / "costmodel" / "catalogue" / "models"


def catalogue(name):
    for file in MODELS.glob("*.toml"):
        entry = tomllib.loads(file.read_text(encoding="utf-8")).get(name)
        if entry:
            beside = ("title", "provenance", "published_parameters")
            return Transformer(name=name, **{key: value for key, value in entry.items() if key not in beside})
    raise LookupError(name)


def write(folder, config):
    file = folder / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return file


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 8192,
    "initializer_range": 0.02, "intermediate_size": 28672, "max_position_embeddings": 8192,
    "model_type": "llama", "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 500000.0,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.40.0.dev0",
    "use_cache": True, "vocab_size": 128256,
}  # fmt: skip

LLAMA_1B = LLAMA | {
    "head_dim": 64, "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072,
    "mlp_bias": False, "num_attention_heads": 32, "num_hidden_layers": 16, "tie_word_embeddings": True,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "rope_type": "llama3"},
}  # fmt: skip

GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 1600, "n_head": 25,
    "n_layer": 48, "n_positions": 1024, "output_past": True, "resid_pdrop": 0.1, "summary_activation": None,
    "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index",
    "summary_use_proj": True, "vocab_size": 50257,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
}  # fmt: skip

BLOOM = {
    "apply_residual_connection_post_layernorm": False, "attention_dropout": 0.0,
    "architectures": ["BloomForCausalLM"], "attention_softmax_in_fp32": True, "bias_dropout_fusion": True,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3, "unk_token_id": 0, "hidden_dropout": 0.0,
    "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "masked_softmax_fusion": True,
    "model_type": "bloom", "n_embed": 1024, "n_inner": None, "n_layer": 24, "num_attention_heads": 16,
    "offset_alibi": 100, "pretraining_tp": 1, "seq_length": 2048, "skip_bias_add": True,
    "skip_bias_add_qkv": False, "transformers_version": "4.20.0", "use_cache": True, "vocab_size": 250880,
}  # fmt: skip

OPT = {
    "_name_or_path": "facebook/opt-13b", "_remove_final_layer_norm": False, "activation_dropout": 0.0,
    "activation_function": "relu", "architectures": ["OPTForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 2, "do_layer_norm_before": True, "dropout": 0.1, "eos_token_id": 2, "ffn_dim": 20480,
    "hidden_size": 5120, "init_std": 0.02, "layerdrop": 0.0, "max_position_embeddings": 2048,
    "model_type": "opt", "num_attention_heads": 40, "num_hidden_layers": 40, "output_projection": True,
    "pad_token_id": 1, "prefix": "</s>", "torch_dtype": "float16", "use_cache": True, "vocab_size": 50272,
    "word_embed_proj_dim": 5120,
}  # fmt: skip

FALCON = {
    "alibi": False, "apply_residual_connection_post_layernorm": False, "architectures": ["FalconForCausalLM"],
    "attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_falcon.FalconConfig"}, "bias": False,
    "bos_token_id": 11, "eos_token_id": 11, "hidden_dropout": 0.0, "hidden_size": 4544,
    "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "falcon", "multi_query": True,
    "new_decoder_architecture": False, "num_attention_heads": 71, "num_hidden_layers": 32,
    "parallel_attn": True, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": 65024,
}  # fmt: skip

FALCON_40B = FALCON | {
    "hidden_size": 8192, "new_decoder_architecture": True, "num_attention_heads": 128,
    "num_hidden_layers": 60, "num_kv_heads": 8,
}  # fmt: skip

NEOX = {
    "architectures": ["GPTNeoXForCausalLM"], "attention_probs_dropout_prob": 0, "bos_token_id": 0,
    "eos_token_id": 0, "hidden_act": "gelu_fast", "hidden_dropout": 0.0, "hidden_size": 6144,
    "initializer_range": 0.02, "intermediate_size": 24576, "layer_norm_eps": 1e-05,
    "max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": 64,
    "num_hidden_layers": 44, "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": False,
    "torch_dtype": "float16", "use_cache": True, "vocab_size": 50432,
}  # fmt: skip

MISTRAL = {
    "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
    "sliding_window": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True,
    "vocab_size": 32000,
}  # fmt: skip

MIXTRAL = MISTRAL | {
    "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "model_type": "mixtral",
    "num_experts_per_tok": 2, "num_local_experts": 8, "output_router_logits": False,
    "router_aux_loss_coef": 0.02, "sliding_window": None,
}  # fmt: skip

QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
    "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28,
    "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "use_cache": True, "use_mrope": False, "use_sliding_window": False,
    "vocab_size": 152064,
}  # fmt: skip

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
    "intermediate_size": 25600, "max_position_embeddings": 40960, "max_window_layers": 64,
    "model_type": "qwen3", "num_attention_heads": 64, "num_hidden_layers": 64, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None,
    "tie_word_embeddings": False, "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip

QWEN3_MOE = {
    "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 12288, "max_position_embeddings": 40960,
    "max_window_layers": 94, "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 1536,
    "norm_topk_prob": True, "num_attention_heads": 64, "num_experts": 128, "num_experts_per_tok": 8,
    "num_hidden_layers": 94, "num_key_value_heads": 4, "output_router_logits": False, "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": None,
    "tie_word_embeddings": False, "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip

GEMMA = {
    "architectures": ["GemmaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 2048, "intermediate_size": 16384,
    "max_position_embeddings": 8192, "model_type": "gemma", "num_attention_heads": 8,
    "num_hidden_layers": 18, "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "vocab_size": 256000,
}  # fmt: skip

GEMMA2 = {
    "architectures": ["Gemma2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
    "final_logit_softcapping": 30.0, "head_dim": 128, "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 4608, "initializer_range": 0.02,
    "intermediate_size": 36864, "max_position_embeddings": 8192, "model_type": "gemma2",
    "num_attention_heads": 32, "num_hidden_layers": 46, "num_key_value_heads": 16, "pad_token_id": 0,
    "query_pre_attn_scalar": 144, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096,
    "sliding_window_size": 4096, "use_cache": True, "vocab_size": 256000, "_attn_implementation": "eager",
}  # fmt: skip

GEMMA3 = {
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "attn_logit_softcapping": None, "cache_implementation": "hybrid", "final_logit_softcapping": None,
    "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
    "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": None, "rope_theta": 1000000,
    "sliding_window": 512, "sliding_window_pattern": 6, "use_cache": True, "vocab_size": 262144,
}  # fmt: skip

GPT_OSS = {
    "architectures": ["GptOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.0,
    "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu",
    "hidden_size": 2880, "initial_context_length": 4096, "initializer_range": 0.02,
    "intermediate_size": 2880, "layer_types": ["sliding_attention", "full_attention"] * 18,
    "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64,
    "num_experts_per_tok": 4, "num_hidden_layers": 36, "num_key_value_heads": 8, "num_local_experts": 128,
    "output_router_logits": False, "pad_token_id": 199999, "rms_norm_eps": 1e-05, "rope_theta": 150000,
    "quantization_config": {"modules_to_not_convert": ["lm_head"], "quant_method": "mxfp4"},
    "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": False,
    "vocab_size": 201088,
}  # fmt: skip

DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "ep_size": 1,
    "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168, "initializer_range": 0.02,
    "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
    "model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8,
    "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": True, "num_attention_heads": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "quantization_config": {"fmt": "e4m3", "weight_block_size": [128, 128]}, "rms_norm_eps": 1e-06,
    "rope_scaling": {"beta_fast": 32, "factor": 40, "type": "yarn"}, "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid", "tie_word_embeddings": False, "topk_group": 4, "topk_method": "noaux_tc",
    "v_head_dim": 128, "vocab_size": 129280,
}  # fmt: skip

DEEPSEEK_V2_LITE = DEEPSEEK_V3 | {
    "architectures": ["DeepseekV2ForCausalLM"], "aux_loss_alpha": 0.001, "first_k_dense_replace": 1,
    "hidden_size": 2048, "intermediate_size": 10944, "model_type": "deepseek_v2",
    "moe_intermediate_size": 1408, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
    "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16,
    "num_nextn_predict_layers": 0, "q_lora_rank": None, "seq_aux": True, "vocab_size": 102400,
}  # fmt: skip

KIMI = DEEPSEEK_V3 | {
    "first_k_dense_replace": 1, "model_type": "kimi_k2", "n_group": 1, "n_routed_experts": 384,
    "num_attention_heads": 64, "num_key_value_heads": 64, "num_nextn_predict_layers": 0,
    "routed_scaling_factor": 2.827, "topk_group": 1, "vocab_size": 163840,
}  # fmt: skip

NEMOTRON = {
    "architectures": ["NemotronForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "head_dim": 128, "hidden_act": "relu2", "hidden_size": 6144, "initializer_range": 0.0134,
    "intermediate_size": 24576, "max_position_embeddings": 4096, "mlp_bias": False, "model_type": "nemotron",
    "norm_eps": 1e-05, "num_attention_heads": 48, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "tie_word_embeddings": False, "vocab_size": 256000,
}  # fmt: skip

OLMO2 = {
    "architectures": ["Olmo2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
    "model_type": "olmo2", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 500000, "tie_word_embeddings": False,
    "vocab_size": 100352,
}  # fmt: skip

GROK = {
    "architectures": ["Grok1ModelForCausalLM"], "attn_output_multiplier": 0.08838834764831845,
    "embedding_multiplier_scale": 78.38367176906169, "hidden_size": 6144, "intermediate_size": 32768,
    "max_attn_value": 30.0, "max_position_embeddings": 8192, "model_type": "grok-1",
    "num_attention_heads": 48, "num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 64,
    "num_key_value_heads": 8, "output_multiplier_scale": 0.5773502691896257, "output_router_logits": False,
    "rms_norm_eps": 1e-05, "tie_word_embeddings": True, "vocab_size": 131072,
}  # fmt: skip

PUBLISHED = {
    "llama3-70b": LLAMA, "llama3.2-1b": LLAMA_1B, "gpt2-xl": GPT2, "bloom-560m": BLOOM, "opt-13b": OPT,
    "falcon-7b": FALCON, "falcon-40b": FALCON_40B, "gpt-neox-20b": NEOX, "mistral-7b": MISTRAL,
    "mixtral-8x7b": MIXTRAL, "qwen2.5-7b": QWEN2, "qwen3-32b": QWEN3, "qwen3-235b-a22b": QWEN3_MOE,
    "gemma-2b": GEMMA, "gemma2-27b": GEMMA2, "gemma3-1b": GEMMA3, "gpt-oss-120b": GPT_OSS,
    "deepseek-v3": DEEPSEEK_V3, "deepseek-v2-lite": DEEPSEEK_V2_LITE, "kimi-k2": KIMI,
    "nemotron4-15b": NEMOTRON, "olmo2-7b": OLMO2, "grok-1": GROK,
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_is_the_model_of_the_catalogue(name, tmp_path):
    read = Transformer.from_huggingface(write(tmp_path, PUBLISHED[name]), name)
    assert read == catalogue(name)
    assert read.parameters == catalogue(name).parameters


def test_the_folder_is_as_good_as_the_file(tmp_path):
    file = write(tmp_path, LLAMA)
    assert read_config(tmp_path, "llama") == read_config(file, "llama")


def test_the_name_is_the_one_in_the_file_or_the_folder_s(tmp_path):
    folder = tmp_path / "my-llama"
    folder.mkdir()
    assert read_config(write(folder, LLAMA), None)["name"] == "my-llama"
    assert read_config(write(folder, OPT), None)["name"] == "facebook/opt-13b"
    assert read_config(write(folder, LLAMA | {"_name_or_path": "two\nlines"}), None)["name"] == "my-llama"


def test_code_that_a_config_points_to_is_not_run(tmp_path):
    (tmp_path / "configuration_trap.py").write_text("raise SystemExit('ran')", encoding="utf-8")
    file = write(tmp_path, LLAMA | {"auto_map": {"AutoConfig": "configuration_trap.Trap"}})
    assert Transformer.from_huggingface(file).parameters == catalogue("llama3-70b").parameters


@pytest.mark.parametrize(
    ("change", "layers"),
    [
        ({"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 21}, 7),
        ({"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 28}, 0),
        ({"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 21}, 0),
        (
            {
                "use_sliding_window": True,
                "sliding_window": 4096,
                "layer_types": ["full_attention"] * 20 + ["sliding_attention"] * 8,
            },
            8,
        ),
    ],
)
def test_qwen_slides_its_window_in_the_layers_that_it_names(change, layers, tmp_path):
    assert Transformer.from_huggingface(write(tmp_path, QWEN2 | change)).windowed_layers == layers


@pytest.mark.parametrize(
    ("change", "dense"),
    [({"mlp_only_layers": [0, 1]}, 2), ({"decoder_sparse_step": 2}, 47), ({"mlp_only_layers": None}, 0)],
)
def test_layers_without_experts_are_counted(change, dense, tmp_path):
    assert Transformer.from_huggingface(write(tmp_path, QWEN3_MOE | change)).dense_layers == dense


def test_keys_left_out_take_the_default_of_the_configuration_class(tmp_path):
    left_out = {"tie_word_embeddings", "num_key_value_heads", "head_dim"}
    short = {key: value for key, value in LLAMA.items() if key not in left_out}
    read = Transformer.from_huggingface(write(tmp_path, short))
    assert (read.tied_embeddings, read.kv_heads, read.head_dim) == (False, 64, 128)


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


DEEP = {"rope_scaling": []}
for _ in range(30):
    DEEP = {"rope_scaling": [DEEP]}

BAD = {
    "a number that is not one": (json.dumps(LLAMA | {"hidden_size": float("nan")}), InvalidValue, "hidden_size"),
    "an infinite number": (json.dumps(LLAMA | {"vocab_size": float("inf")}), InvalidValue, "vocab_size"),
    "a share of dropout that is not one": (json.dumps(LLAMA | {"attention_dropout": float("inf")}), InvalidValue, "dropout"),
    "a number of 5000 digits": ('{"hidden_size": ' + "9" * 5000 + "}", UnreadableFile, "JSON"),
    "a key twice": ('{"model_type": "llama",\n "model_type": "opt"}', UnreadableFile, "twice"),
    "a list at the top": ("[1, 2]", UnreadableFile, "list"),
    "a text at the top": ('"llama"', UnreadableFile, "str"),
    "a file cut short": (json.dumps(LLAMA, indent=1)[:200], UnreadableFile, "JSON"),
    "an empty file": ("", UnreadableFile, "JSON"),
    "deep nesting": (DEEP, UnreadableFile, "deep"),
    "very deep nesting": ("[" * 200_000, UnreadableFile, "deep"),
    "no model_type": (without(LLAMA, "model_type"), InvalidValue, "model_type"),
    "a model_type that is no text": (LLAMA | {"model_type": ["llama"]}, InvalidValue, "model_type"),
    "an unknown model_type": (LLAMA | {"model_type": "mamba2"}, NotModelled, "layers (Mamba)"),
    "no layers": (without(LLAMA, "num_hidden_layers"), InvalidValue, "num_hidden_layers"),
    "no groups": (without(MISTRAL, "num_key_value_heads"), InvalidValue, "num_key_value_heads"),
    "no latent of queries": (without(DEEPSEEK_V3, "q_lora_rank"), InvalidValue, "q_lora_rank"),
    "nothing on tied embeddings": (without(GROK, "tie_word_embeddings"), InvalidValue, "tie_word_embeddings"),
    "an unknown key": (LLAMA | {"num_memory_tokens": 4}, NotModelled, "num_memory_tokens"),
    "twenty unknown keys": (LLAMA | {f"size\n{i}": 1 for i in range(20)}, NotModelled, "and 12 more"),
    "a vision model alone": (LLAMA | {"model_type": "siglip_vision_model"}, NotModelled, "TOML"),
    "a truth for a number": (LLAMA | {"num_hidden_layers": True}, InvalidValue, "num_hidden_layers"),
    "a fraction of a layer": (LLAMA | {"num_hidden_layers": 80.5}, InvalidValue, "num_hidden_layers"),
    "a number for a truth": (LLAMA | {"tie_word_embeddings": 1}, InvalidValue, "tie_word_embeddings"),
    "a negative number": (LLAMA | {"hidden_size": -8192}, InvalidValue, "hidden_size"),
    "an encoder": (LLAMA | {"is_encoder_decoder": True}, NotModelled, "is_encoder_decoder"),
    "pruned heads": (GPT2 | {"pruned_heads": {"0": [1]}}, NotModelled, "pruned_heads"),
    "two spellings at odds": (GPT2 | {"num_hidden_layers": 24}, InvalidValue, "num_hidden_layers"),
    "a step of no layers": (QWEN3_MOE | {"decoder_sparse_step": 0}, InvalidValue, "decoder_sparse_step"),
    "a billion layers": (QWEN3_MOE | {"num_hidden_layers": 10**9}, InvalidValue, "num_hidden_layers"),
    "too few layer types": (GPT_OSS | {"layer_types": ["full_attention"]}, InvalidValue, "layer_types"),
    "linear attention": (
        GPT_OSS | {"layer_types": ["linear_attention"] * 36},
        NotModelled,
        "linear_attention",
    ),
    "windows that are off": (
        QWEN2 | {"layer_types": ["sliding_attention"] * 28},
        InvalidValue,
        "use_sliding_window",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_one_line_that_says_why(what, tmp_path):
    content, error, word = BAD[what]
    with pytest.raises(error) as caught:
        Transformer.from_huggingface(write(tmp_path, content))
    message = str(caught.value)
    assert type(caught.value) is error
    assert word in message
    assert message.isprintable()
    assert len(message) < 1000


def test_a_large_file_is_refused_before_it_is_read(tmp_path):
    file = tmp_path / "config.json"
    with file.open("wb") as stream:
        stream.truncate(65 << 20)
    with pytest.raises(UnreadableFile) as caught:
        read_config(file, None)
    message = str(caught.value)
    assert message.isprintable()
    assert str(65 << 20) in message
    assert str(64 << 20) in message
    assert "config.json" in message


def test_bytes_that_are_no_text_are_refused(tmp_path):
    file = tmp_path / "config.json"
    file.write_bytes(b"\xff\xfe{}")
    with pytest.raises(UnreadableFile):
        read_config(file, None)


@pytest.mark.parametrize("there", ["", "folder"])
def test_a_missing_file_is_named(there, tmp_path):
    path = tmp_path / "absent.json" if not there else tmp_path
    with pytest.raises(UnreadableFile, match="no such file"):
        read_config(path, None)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(UnreadableFile, match="no such file"):
        read_config(tmp_path, None)
