"""Trains GPT-2 by DDP under autocast, or by DeepSpeed's ZeRO-3, both in float16.

What hpcaitech/ColossalAI-Pytorch-lightning benchmark/gpt does with its strategies `ddp` and `deepspeed`, and Lightning of its
time beneath: gradients are set to zero, and stay, between the passes; PyTorch 1.13 updates one tensor after the other.
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel


def loss_of(logits, labels):
    """Over a copy of all but the last token's logits."""
    shifted = logits[..., :-1, :].contiguous()
    return nn.functional.cross_entropy(shifted.view(-1, shifted.size(-1)), labels[..., 1:].contiguous().view(-1))


def batch_of(asked, config, device):
    """Tokens and their mask."""
    tokens = torch.randint(0, config.vocab_size, (asked.micro_batch, asked.seq_len)).to(device)
    return tokens, torch.ones_like(tokens)


def replicated(model, asked, config):
    """DDP, weights in 32 bits, a gradient scaler."""
    local = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("nccl")
    torch.cuda.set_device(local)
    model = nn.parallel.DistributedDataParallel(model.cuda(), device_ids=[local], static_graph=True)
    optimizer, scaler = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False), torch.amp.GradScaler("cuda")
    for _ in range(asked.steps):
        tokens, mask = batch_of(asked, config, "cuda")
        with torch.autocast("cuda", torch.float16):
            loss = loss_of(model(input_ids=tokens, attention_mask=mask, use_cache=False).logits, tokens)
        optimizer.zero_grad(set_to_none=False)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def sharded(model, asked, config):
    """ZeRO-3 with the settings that Lightning gives it."""
    import deepspeed

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": asked.micro_batch, "gradient_accumulation_steps": 1,
        "fp16": {"enabled": True, "initial_scale_power": 5},
        "zero_optimization": {
            "stage": 3, "contiguous_gradients": True, "overlap_comm": True, "allgather_partitions": True, "reduce_scatter": True,
            "allgather_bucket_size": 200_000_000, "reduce_bucket_size": 200_000_000, "sub_group_size": 1_000_000_000_000,
        },
    })  # fmt: skip
    for _ in range(asked.steps):
        tokens, mask = batch_of(asked, config, engine.device)
        loss = loss_of(engine(input_ids=tokens, attention_mask=mask, use_cache=False).logits, tokens)
        engine.backward(loss)
        engine.step()


def main():
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--zero3", action="store_true")
    parser.add_argument("--steps", type=int, default=4)
    asked = parser.parse_args()
    config = GPT2Config(**json.loads(asked.config))
    config._attn_implementation = "eager"
    model = GPT2LMHeadModel(config)
    model.gradient_checkpointing_enable()
    model.train()
    (sharded if asked.zero3 else replicated)(model, asked, config)


if __name__ == "__main__":
    main()
