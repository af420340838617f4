"""Trains a Hugging Face decoder by FSDP1 with weights, gradients and optimizer on the host, all of it in bfloat16.

What LambdaLabsML/distributed-training-guide @742b811 05-training-llama-405b/train_llm.py does with `--cpu-offload on`. The
guide's statistics come from a version of it before FSDP2, as it says beside them.
"""

import argparse
import functools
import json
import os

import torch
import torch.distributed as dist
from models import made
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import AutoConfig


def main():
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--seq-len", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=4)
    asked = parser.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("nccl")
    torch.cuda.set_device(local)
    config = AutoConfig.for_model(**json.loads(asked.config))
    config.use_cache = False
    model = made(config, torch.bfloat16)
    units = {type(model.model.layers[0]), torch.nn.Embedding}
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=units)
    model = FullyShardedDataParallel(
        model, device_id=local, sync_module_states=True, auto_wrap_policy=policy,
        sharding_strategy=ShardingStrategy.FULL_SHARD, cpu_offload=CPUOffload(offload_params=True),
    )  # fmt: skip
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=checkpoint_wrapper, auto_wrap_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, fused=True)
    for _ in range(asked.steps):
        tokens = torch.randint(0, config.vocab_size, (asked.micro_batch, asked.seq_len)).to(local)
        outputs = model(input_ids=tokens, labels=tokens)
        outputs.loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        outputs.loss.item()


if __name__ == "__main__":
    main()
