"""FlexAttention: a kernel that skips the blocks which its mask hides, with what it does to scores. Tried on torch 2.13."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from costmodel.traces.fake_machine import values
from costmodel.traces.fake_machine.recorder import Recorder

UNKNOWN = 0.5
"""Share of the blocks taken for a mask that only a GPU would know: a causal one's."""
_LIBRARIES: list[Any] = []  # torch.library forgets what nobody holds


class FlexAttention(torch.autograd.Function):
    """The kernel and the one of its backward pass."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, share: float) -> tuple[Tensor, Tensor]:
        """Output, and the logarithm of each row's sum."""
        out, sums = torch.ops.costmodel.flex_attention(query, key, value, share)
        ctx.save_for_backward(query, key, value, out, sums)
        ctx.share = share
        ctx.mark_non_differentiable(sums)
        return out, sums

    @staticmethod
    def backward(ctx: Any, out: Tensor, sums: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        """Gradients of queries, keys and values."""
        return *torch.ops.costmodel.flex_attention_backward(out, *ctx.saved_tensors, ctx.share), None


def patch(module: Any, recorder: Recorder) -> None:
    """What `flex_attention` calls when it is compiled."""
    _operators()
    real = module.flex_attention_hop

    def attend(
        query: Tensor, key: Tensor, value: Tensor, score_mod: Any, block_mask: Any, *others: Any, **named: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        if query.device.type != "cuda":
            return real(query, key, value, score_mod, block_mask, *others, **named)  # type: ignore[no-any-return]
        share = share_of(block_mask, key.shape[-2])
        if share is None:
            recorder.builder.assumed(f"{recorder.where.line()}: a block mask that only a GPU would know taken to hide half.")
        out, sums = FlexAttention.apply(query, key, value, UNKNOWN if share is None else share)
        return out, sums, sums

    module.flex_attention_hop = attend


def share_of(block_mask: Any, keys: int) -> float | None:
    """Share of the pairs of queries and keys whose blocks a mask keeps; None where only a GPU would know.

    Parameters
    ----------
    block_mask : as `BlockMask.as_tuple` has it
    keys : of a sequence
    """
    partly, whole = block_mask[2], block_mask[4]
    known = [values.known(blocks) for blocks in (partly, whole) if blocks is not None]
    if any(blocks is None for blocks in known):
        return None
    kept = sum(float(blocks.sum()) for blocks in known if blocks is not None)
    return min(1.0, kept / (partly.numel() * math.ceil(keys / block_mask[-2])))


def _operators() -> None:
    if _LIBRARIES:
        return
    library = torch.library.Library("costmodel", "FRAGMENT")
    library.define("flex_attention(Tensor query, Tensor key, Tensor value, float share) -> (Tensor, Tensor)")
    library.define(
        "flex_attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, Tensor sums, float share) "
        "-> (Tensor, Tensor, Tensor)"
    )
    torch.library.register_fake("costmodel::flex_attention", _attended, lib=library)
    torch.library.register_fake("costmodel::flex_attention_backward", _turned, lib=library)
    flop_registry[torch.ops.costmodel.flex_attention] = _flop
    flop_registry[torch.ops.costmodel.flex_attention_backward] = _flop_backward
    _LIBRARIES.append(library)


def _flop(query: Tensor, key: Tensor, value: Tensor, share: float, **_: Any) -> int:
    """Scores, and what they weigh, of the pairs that are kept."""
    return int(2 * share * math.prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1]))


def _flop_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, sums: Tensor, share: float, **_: Any
) -> int:
    """Scores anew, and two products for each of both."""
    once = int(2 * share * math.prod(query.shape) * key.shape[-2])
    return once + 2 * _flop(query, key, value, share)


def _attended(query: Tensor, key: Tensor, value: Tensor, share: float) -> tuple[Tensor, Tensor]:
    batch, heads, rows, _ = query.shape
    out = query.new_empty((batch, rows, heads, value.shape[-1])).transpose(1, 2)  # heads lie side by side for the next product
    return out, query.new_empty(query.shape[:-1], dtype=torch.float32)


def _turned(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, sums: Tensor, share: float
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
