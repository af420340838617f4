"""Trains BLOOM by data parallelism: `bloom.py ddp`, `fsdp1`, `fsdp2`, or a stage of DeepSpeed's ZeRO as `zero2`."""

import os
import sys

import torch
import torch.distributed as dist
from transformers import BloomConfig, BloomForCausalLM

SEQUENCE = 2048
how = sys.argv[1]
if not how.startswith("zero"):
    dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
config = BloomConfig(vocab_size=250_880, hidden_size=1024, n_layer=24, n_head=16, use_cache=False)
if how == "ddp":
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(BloomForCausalLM(config).to("cuda", torch.bfloat16), device_ids=[local])
elif how == "fsdp2":
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = BloomForCausalLM(config)
    for block in model.transformer.h:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
elif how == "fsdp1":
    import functools

    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    from transformers.models.bloom.modeling_bloom import BloomBlock

    model = FullyShardedDataParallel(
        BloomForCausalLM(config), device_id=local, use_orig_params=True,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={BloomBlock}),
    )  # fmt: skip
else:
    import deepspeed

    settings = {
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
        "zero_optimization": {"stage": int(how.removeprefix("zero"))},
    }  # fmt: skip
    settings["zero_optimization"]["overlap_comm"] = "overlap" in sys.argv[2:]
    model = BloomForCausalLM(config)
    model, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
optimizer = None if how.startswith("zero") else torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(10):
    tokens = torch.randint(0, config.vocab_size, (1, SEQUENCE), device="cuda")
    loss = model(input_ids=tokens, labels=tokens).loss
    if optimizer is None:
        model.backward(loss)
        model.step()
    else:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
