"""Trains a Hugging Face decoder by FSDP2 with weights, gradients and optimizer on the host.

What LambdaLabsML/distributed-training-guide 05-training-llama-405b/train_llm.py does with `--cpu-offload`,
`--checkpoint-activations` and `--prefetch-layers`.
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

HALF = torch.bfloat16


def main():
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--seq-len", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=4)
    asked = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    config = AutoConfig.for_model(**json.loads(asked.config))
    config.use_cache, config._attn_implementation = False, "sdpa"
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=HALF)
    how = {"offload_policy": CPUOffloadPolicy(), "mp_policy": MixedPrecisionPolicy(param_dtype=HALF, reduce_dtype=torch.float32)}
    layers = list(model.model.layers)
    for layer in layers:
        fully_shard(layer, reshard_after_forward=True, **how)
    fully_shard(model, reshard_after_forward=False, **how)
    model.to_empty(device="cpu")
    for place, layer in enumerate(layers):
        layer.set_modules_to_forward_prefetch(layers[place + 1 : place + 2])
        layer.set_modules_to_backward_prefetch(layers[max(0, place - 1) : place])
    recomputed = (type(layers[0]), torch.nn.Embedding)
    apply_activation_checkpointing(model, check_fn=lambda one: isinstance(one, recomputed))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, fused=True)
    for _ in range(asked.steps):
        model.unshard()
        tokens = torch.randint(0, config.vocab_size, (asked.micro_batch, asked.seq_len)).to(device)
        outputs = model(input_ids=tokens, labels=tokens)
        outputs.loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


if __name__ == "__main__":
    main()
