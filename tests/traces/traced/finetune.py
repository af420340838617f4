"""Fine-tunes a Hugging Face decoder, with all weights or with adapters, on one GPU or sharded by FSDP.

What the measured runs of foundation-model-stack/fms-acceleration scripts/benchmarks did, as a loop of its own: recomputation of
every layer, AdamW of PyTorch, clipped gradients, packed sequences; with its fused loss, norm and rotation, or plain. Kernels of
Triton have stand-ins that read and write the same tensors.
"""

import argparse
import contextlib
import functools
import json
import os
import types

import torch
import torch.distributed as dist
from models import home_of, made
from torch import nn
from transformers import AutoConfig
from transformers.modeling_outputs import CausalLMOutput


class FusedNorm(torch.autograd.Function):
    """A norm in one kernel each way."""

    @staticmethod
    def forward(ctx, hidden, weight):
        scale = hidden.new_empty(hidden.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(hidden, weight, scale)
        return torch.mul(hidden, weight)

    @staticmethod
    def backward(ctx, gradient):
        hidden, weight, _ = ctx.saved_tensors
        of_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        return torch.mul(gradient, hidden), of_weight


class Rotated(torch.autograd.Function):
    """A rotation in place."""

    @staticmethod
    def forward(ctx, tensor):
        ctx.mark_dirty(tensor)
        return tensor.mul_(1.0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.mul_(1.0)


class FusedLoss(torch.autograd.Function):
    """Head and loss by parts of the tokens, which leave their gradients at once (linkedin/Liger-Kernel
    ops/fused_linear_cross_entropy.py)."""

    @staticmethod
    def forward(ctx, hidden, weight, labels):
        tokens, width = hidden.shape
        parts = -(-weight.shape[0] // width)
        size = 1 << (-(-tokens // parts) - 1).bit_length()
        of_hidden = torch.zeros_like(hidden)
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        losses = torch.zeros(tokens, dtype=torch.float32, device=hidden.device)
        for start in range(0, tokens, size):
            part = hidden[start : start + size]
            logits = part @ weight.t()
            logits.mul_(1.0)
            of_hidden[start : start + size] = logits @ weight
            if of_weight is not None:
                torch.addmm(of_weight, logits.t(), part, out=of_weight)
        ctx.save_for_backward(of_hidden, of_weight)
        return losses.sum()

    @staticmethod
    def backward(ctx, gradient):
        of_hidden, of_weight = ctx.saved_tensors
        return of_hidden, of_weight, None


class LossInPlace(torch.autograd.Function):
    """A loss in one kernel, whose gradient takes the place of the logits (fms-acceleration's, after Unsloth's)."""

    @staticmethod
    def forward(ctx, logits, labels):
        ctx.save_for_backward(logits, labels)
        return torch.zeros(len(logits), dtype=torch.float32, device=logits.device).sum()

    @staticmethod
    def backward(ctx, gradient):
        logits, _ = ctx.saved_tensors
        return logits.mul_(gradient), None


def whole_logits_forward(self, input_ids, labels):
    """The forward pass of transformers before 4.46: logits in 32 bits, and a copy of all but the last token's."""
    hidden = self.model(input_ids=input_ids, use_cache=False).last_hidden_state
    logits = self.lm_head(hidden).float()
    shifted = logits[:, :-1].contiguous().view(-1, logits.shape[-1])
    return CausalLMOutput(loss=LossInPlace.apply(shifted, labels), logits=logits)


def fused_forward(self, input_ids, labels):
    """A model's loss without its logits."""
    hidden = self.model(input_ids=input_ids, use_cache=False).last_hidden_state
    width = hidden.shape[-1]
    return CausalLMOutput(loss=FusedLoss.apply(hidden[:, :-1].reshape(-1, width), self.lm_head.weight, labels))


def fuse(model, forward):
    """Give a model the fused kernels, and a forward pass with its loss."""
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = types.MethodType(lambda self, hidden: FusedNorm.apply(hidden, self.weight), module)
    home_of(model).apply_rotary_pos_emb = lambda query, key, *_, **__: (Rotated.apply(query), Rotated.apply(key))
    model.forward = types.MethodType(forward, model)


def main():
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--seq-len", type=int, default=4096)
    parser.add_argument("--adapters", action="store_true")
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--whole-logits", action="store_true", help="with the fused loss over whole logits, not with the head's")
    parser.add_argument("--wide-weights", action="store_true", help="weights in 32 bits under mixed precision")
    parser.add_argument("--steps", type=int, default=4)
    asked = parser.parse_args()
    world, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    if world > 1:
        dist.init_process_group("nccl")
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    config = AutoConfig.for_model(**json.loads(asked.config))
    dtype = torch.float32 if asked.wide_weights else torch.bfloat16
    with contextlib.nullcontext() if world > 1 else device:  # FSDP brings its units to the device one by one
        model = made(config, dtype)
    layer = type(model.model.layers[0])
    if asked.fused:
        fuse(model, whole_logits_forward if asked.whole_logits else fused_forward)
    if asked.adapters:
        from peft import LoraConfig, get_peft_model

        adapters = LoraConfig(r=16, lora_alpha=16, lora_dropout=0.1, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])
        model.enable_input_require_grads()
        model = get_peft_model(model, adapters)  # in 32 bits, as peft has them unless told otherwise
    base = model.base_model.model if asked.adapters else model
    base.gradient_checkpointing_enable({"use_reentrant": True})
    model.train()
    if world > 1:
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
        from torch.distributed.fsdp.wrap import (
            _or_policy,
            lambda_auto_wrap_policy,
            transformer_auto_wrap_policy,
        )

        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={layer})
        if asked.adapters:  # as peft's fsdp_auto_wrap_policy: what trains is a unit of its own
            alone = functools.partial(
                lambda_auto_wrap_policy,
                lambda_fn=lambda one: not list(one.named_children()) and getattr(one, "weight", None) is not None
                and one.weight.requires_grad,
            )  # fmt: skip
            policy = functools.partial(_or_policy, policies=[alone, policy])
        narrow = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
        model = FullyShardedDataParallel(
            model, auto_wrap_policy=policy, mixed_precision=narrow if asked.wide_weights else None, device_id=device
        )
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-5, foreach=True)
    for _ in range(asked.steps):
        tokens = torch.randint(0, config.vocab_size, (asked.micro_batch, asked.seq_len)).to(device)
        with torch.autocast("cuda", torch.bfloat16, enabled=asked.wide_weights):
            labels = tokens if not asked.fused else tokens[:, 1:].reshape(-1)
            loss = model(input_ids=tokens, labels=labels).loss
        loss.backward()
        if world > 1:
            model.clip_grad_norm_(1.0)
        else:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    main()
