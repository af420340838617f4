"""Makes a small Llama on the host and brings it to GPUs, then takes steps of a few tokens: `loading.py HOW`.

`fsdp1`, `fsdp2` take it to their GPU unit by unit; `fsdp1-whole`, and `zero3` without ``zero.Init``, have all of it there first.
"""

import functools
import os
import sys

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

how, _, whole = sys.argv[1].partition("-")
if how != "zero3":
    dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
config = LlamaConfig(
    hidden_size=256, intermediate_size=1024, num_attention_heads=8, num_key_value_heads=8, num_hidden_layers=12, vocab_size=4096,
    use_cache=False,
)  # fmt: skip


def made():
    """The model, in 16 bit."""
    return LlamaForCausalLM(config).to(torch.bfloat16)


optimizer = None
if how == "zero3":
    import deepspeed

    settings = {
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
        "zero_optimization": {"stage": 3, "reduce_bucket_size": 1000, "stage3_prefetch_bucket_size": 1000},
    }  # fmt: skip
    model = made()
    model, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
elif how == "fsdp1":
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
    model = made().cuda() if whole else made()
    model = FullyShardedDataParallel(model, device_id=None if whole else local, use_orig_params=True, auto_wrap_policy=policy)
else:
    from torch.distributed.fsdp import fully_shard

    model = made()
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
if how != "zero3":
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(10):
    tokens = torch.randint(0, config.vocab_size, (1, 8), device="cuda")
    loss = model(input_ids=tokens, labels=tokens).loss
    if optimizer is None:
        model.backward(loss)
        model.step()
    else:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
