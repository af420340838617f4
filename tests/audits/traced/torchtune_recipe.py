"""Fine-tunes a small Llama 3 by torchtune as its recipes for one device do: `torchtune_recipe.py CHOICES`, a JSON.

recipes/full_finetune_single_device.py and lora_finetune_single_device.py of 0.6.1: a model in bfloat16 without a copy, logits and
loss in eight chunks, AdamW of one kernel.
"""

import json
import sys

import torch
from torchtune import modules, training
from torchtune.models.llama3_1._component_builders import llama3_1, lora_llama3_1
from torchtune.modules.loss import CEWithChunkedOutputLoss
from torchtune.modules.peft import get_adapter_params, set_trainable_params

choices = json.loads(sys.argv[1])
BATCH, SEQUENCE = choices["micro_batch"], choices["seq_len"]
torch.cuda.set_device(0)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    if choices["adapter"] == "lora":
        model = lora_llama3_1(
            ["q_proj", "v_proj", "output_proj"], apply_lora_to_mlp=True, lora_rank=8, lora_alpha=16, **choices["sizes"])
        set_trainable_params(model, get_adapter_params(model))
    else:
        model = llama3_1(**choices["sizes"])
torch.set_default_dtype(torch.float32)
if choices["recompute"] == "full":
    training.set_activation_checkpointing(model, auto_wrap_policy={modules.TransformerSelfAttentionLayer})
loss_of = CEWithChunkedOutputLoss()
model.set_num_output_chunks(loss_of.num_output_chunks)
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=2e-5, fused=True)
model.train()
ignored = torch.full((BATCH, 1), loss_of.ignore_index, device="cuda")
for _ in range(10):
    tokens = torch.randint(0, choices["sizes"]["vocab_size"], (BATCH, SEQUENCE), device="cuda")
    logits = model(tokens)
    loss = loss_of(logits, torch.hstack((tokens[..., 1:], ignored)))
    del logits
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
