"""Trains a module for a few steps as a program of a few lines would."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

STEPS = 3


def train(module: nn.Module, batch: Sequence[Any] | Mapping[str, Any], optimizer: str, plan: str, dtype: str) -> None:
    """Train a copy of a module whose parameters hold no memory."""
    # fully_shard brings its units to the device one by one, so that no rank holds the whole module
    model: Any = copied(module, "cpu" if plan == "fsdp2" else "cuda")
    if plan != "single":
        if not dist.is_initialized():
            dist.init_process_group("nccl")
        model = split(model, plan)
    chosen = getattr(torch.optim, optimizer)([parameter for parameter in model.parameters() if parameter.requires_grad], lr=1e-3)
    narrow = contextlib.nullcontext() if dtype == "float32" else torch.autocast("cuda", dtype=getattr(torch, dtype))
    for _ in range(STEPS):
        given = tree_map_only(Tensor, lambda tensor: tensor.to("cuda"), batch if isinstance(batch, Mapping) else tuple(batch))
        with narrow:
            out = model(**given) if isinstance(given, Mapping) else model(*given)
            loss = loss_of(out)
        loss.backward()
        chosen.step()
        chosen.zero_grad()
    if plan != "single":
        dist.destroy_process_group()


def copied(module: nn.Module, device: str) -> nn.Module:
    """A copy of a module without memory, on the host or on the GPU that isn't there; the module itself is left as it is."""
    table: dict[int, Any] = {}
    for parameter in module.parameters():
        empty = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
        table[id(parameter)] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
    for buffer in module.buffers():
        if buffer.device.type == "meta":
            table[id(buffer)] = torch.empty(buffer.shape, dtype=buffer.dtype, device=device)
        else:
            table[id(buffer)] = buffer.detach().to(device)
    return copy.deepcopy(module, table)


def split(model: nn.Module, plan: str) -> nn.Module:
    """Spread a module over its world."""
    if plan == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    for part in model.modules():
        if isinstance(part, nn.ModuleList):
            for entry in part:
                fully_shard(entry)
    fully_shard(model)
    return model


def loss_of(out: Any) -> Tensor:
    """A number to descend: a loss that the module gives, else the mean of its first result."""
    loss = getattr(out, "loss", None)
    if isinstance(loss, Tensor):
        return loss
    while not isinstance(out, Tensor):
        out = next(iter(out.values())) if isinstance(out, Mapping) else out[0]
    return out.float().mean()
