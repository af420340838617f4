"""Trains a small Hugging Face decoder of three layers: `saved.py KIND [lora [wide] [dropout]] [padded] [checkpoint] ...`.

What its middle layer holds when the loss is there is what it saved for its backward pass.
"""

import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

BATCH, SEQUENCE = 2, 512
SHAPE = {
    "hidden_size": 256, "intermediate_size": 768, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32,
    "vocab_size": 512, "max_position_embeddings": 2048, "num_hidden_layers": 3,
}  # fmt: skip
MIXTURE = {"num_experts_per_tok": 2}
WITHOUT_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
KINDS = {
    "gpt2": {"n_inner": 768, "n_positions": 2048, **WITHOUT_DROPOUT},
    "opt": {"ffn_dim": 768, "word_embed_proj_dim": 256, "dropout": 0.0},
    "gpt_neox": {"attention_dropout": 0.0, "hidden_dropout": 0.0},
    "falcon": {"ffn_hidden_size": 768, "num_kv_heads": 8, "new_decoder_architecture": False, "multi_query": False,
               "parallel_attn": True, "bias": False, "alibi": False},
    "phi": {"resid_pdrop": 0.0, "embd_pdrop": 0.0}, "phi3": {"pad_token_id": 0, "resid_pdrop": 0.0}, "gemma": {},
    "stablelm": {"pad_token_id": 0},
    "llama": {}, "qwen2": {}, "qwen3": {}, "mistral": {"sliding_window": None},
    "mixtral": {"num_local_experts": 4, "sliding_window": None, **MIXTURE},
    "qwen3_moe": {"num_experts": 4, "moe_intermediate_size": 96, "decoder_sparse_step": 1, "mlp_only_layers": [], **MIXTURE},
}  # fmt: skip
EVERY = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj",
         "query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]  # fmt: skip
kind, *options = sys.argv[1:]
sizes = {key: value for key, value in SHAPE.items() if kind != "falcon" or key != "head_dim"}  # its own: hidden over heads
config = AutoConfig.for_model(kind, **sizes, **KINDS[kind])
config._attn_implementation, config.use_cache = "sdpa", False
model = AutoModelForCausalLM.from_config(config, dtype=torch.float32 if "full" in options else torch.bfloat16)
if "liger" in options:
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    _apply_liger_kernel_to_instance(model, fused_linear_cross_entropy=False)
if "checkpoint" in options:
    model.gradient_checkpointing_enable({"use_reentrant": "reentrant" in options})
if "lora" in options:
    from peft import LoraConfig, get_peft_model

    model.enable_input_require_grads()
    adapters = LoraConfig(r=8, target_modules=EVERY, lora_dropout=0.1 if "dropout" in options else 0.0)
    model = get_peft_model(model, adapters, autocast_adapter_dtype="wide" in options)
model = model.cuda().train()
optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)
for _ in range(10):
    tokens = torch.randint(0, config.vocab_size, (BATCH, SEQUENCE), device="cuda")
    lengths = torch.tensor([[SEQUENCE], [SEQUENCE // 2]], device="cuda")
    mask = torch.arange(SEQUENCE, device="cuda") < lengths if "padded" in options else None
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled="autocast" in options):
        loss = model(input_ids=tokens, attention_mask=mask).logits.float().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
