"""Low-rank adapters of a Hugging Face decoder under FSDP1, frozen base and adapters in bfloat16.

What AnswerDotAI/fsdp_qlora train.py does with `--train_type lora`: units of a layer and of each module that trains, PyTorch's
own wrapper of recomputation, reentrant, the model's loss over 32-bit logits; weights that rank 0 has on its host and sends to the
others unit by unit; the model's output held until the step has ended. `--whole` is its `ddp`: FSDP that shards nothing.
"""

import argparse
import functools
import json
import os

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import _or_policy, lambda_auto_wrap_policy, transformer_auto_wrap_policy
from transformers import AutoConfig, AutoModelForCausalLM

HALF = torch.bfloat16


def trains(module):
    """Whether a module is a leaf that trains."""
    return not list(module.named_children()) and getattr(module, "weight", None) is not None and module.weight.requires_grad


def main():
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--seq-len", type=int, default=512)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--targets", default="q_proj,k_proj,v_proj,gate_proj,up_proj,down_proj")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--steps", type=int, default=4)
    asked = parser.parse_args()
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    config = AutoConfig.for_model(**json.loads(asked.config))
    config.use_cache, config._attn_implementation = False, "sdpa"
    model = AutoModelForCausalLM.from_config(config).to(HALF)
    layer = type(model.model.layers[0])
    targets = asked.targets.split(",")
    adapters = LoraConfig(r=asked.rank, lora_alpha=16, lora_dropout=0.1, target_modules=targets, task_type="CAUSAL_LM")
    model = get_peft_model(model, adapters).to(HALF)
    policies = [
        functools.partial(lambda_auto_wrap_policy, lambda_fn=trains),
        functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={layer}),
    ]
    model = FullyShardedDataParallel(
        model, auto_wrap_policy=functools.partial(_or_policy, policies=policies), device_id=local, limit_all_gathers=True,
        use_orig_params=False, sync_module_states=True,
        sharding_strategy=ShardingStrategy.NO_SHARD if asked.whole else ShardingStrategy.FULL_SHARD,
    )  # fmt: skip
    wrap = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)
    model.enable_input_require_grads()
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrap, check_fn=lambda one: isinstance(one, layer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    model.train()
    for _ in range(asked.steps):
        tokens = torch.randint(0, config.vocab_size, (asked.micro_batch, asked.seq_len)).to(local)
        output = model(input_ids=tokens, labels=tokens)
        output.loss.backward()
        output.loss.item()
        optimizer.step()
        optimizer.zero_grad()
        output = None


if __name__ == "__main__":
    main()
