"""Family "layer": one layer of a decoder of one's own, forward and backward, in plain PyTorch.

Norm, one product for queries, keys and values, rotation, attention by PyTorch's own choice, output product and residual
sum; norm, feed-forward layer (gated by SiLU, else GELU) and residual sum: in bf16, operator by operator. "backward"
makes the gradients of the input and of all weights.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from .timing import Call, Point, Timer

TOKENS, LENGTHS = 8192, (2048, 4096, 8192)
"""Of a micro-batch, and of a sequence."""


@dataclass(frozen=True)
class Sizes:
    """Of one layer; ``gated`` for three matrices of a feed-forward layer, ``norm`` is "rmsnorm" or "layernorm"."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    gated: bool
    norm: str


def sizes_of(path: Path) -> Sizes:
    """Return the sizes that a config.json of Hugging Face states."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        hidden, heads = int(said["hidden_size"]), int(said["num_attention_heads"])
        sizes = Sizes(
            hidden, heads, int(said.get("num_key_value_heads") or heads), int(said.get("head_dim") or hidden // heads),
            int(said["intermediate_size"]), "silu" in str(said.get("hidden_act", "silu")),
            "rmsnorm" if "rms_norm_eps" in said else "layernorm",
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: no config.json of a decoder: {error!r}") from error
    for key in ("num_experts", "num_local_experts", "n_routed_experts", "kv_lora_rank"):
        if said.get(key):
            raise ValueError(f"{path}: {key}={said[key]}: only dense layers are timed")
    return sizes


class Block(nn.Module):
    """One layer (see the module's docstring)."""

    def __init__(self, sizes: Sizes, seq: int) -> None:
        super().__init__()
        self.sizes = sizes
        norm = nn.RMSNorm if sizes.norm == "rmsnorm" else nn.LayerNorm
        inner = sizes.heads * sizes.head_dim
        self.norms = nn.ModuleList(norm(sizes.hidden) for _ in range(2))
        self.qkv = nn.Linear(sizes.hidden, inner + 2 * sizes.kv_heads * sizes.head_dim, bias=False)
        self.output = nn.Linear(inner, sizes.hidden, bias=False)
        self.up = nn.Linear(sizes.hidden, (1 + sizes.gated) * sizes.feed_forward, bias=False)
        self.down = nn.Linear(sizes.feed_forward, sizes.hidden, bias=False)
        angles = torch.arange(seq)[:, None] * 1e4 ** (-torch.arange(0, sizes.head_dim, 2) / sizes.head_dim)
        angles = torch.cat((angles, angles), dim=-1)[:, None, :]
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        """Return queries or keys with their positions."""
        first, second = x.chunk(2, dim=-1)
        return x * self.cosine + torch.cat((-second, first), dim=-1) * self.sine

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output for [batch, seq, hidden]."""
        sizes, heads = self.sizes, (self.sizes.heads, self.sizes.kv_heads, self.sizes.kv_heads)
        query, key, value = self.qkv(self.norms[0](x)).unflatten(-1, (sum(heads), sizes.head_dim)).split(heads, dim=2)
        parts = (part.transpose(1, 2) for part in (self.rotated(query), self.rotated(key), value))
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True, enable_gqa=sizes.heads != sizes.kv_heads)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        inner = self.up(self.norms[1](x))
        if sizes.gated:
            gate, up = inner.chunk(2, dim=-1)
            return x + self.down(F.silu(gate) * up)
        return x + self.down(F.gelu(inner, approximate="tanh"))


def time_layer(timer: Timer, sizes: Sizes, batch: int, seq: int, direction: str) -> dict:
    """Time one layer's forward or backward pass."""
    block = Block(sizes, seq).to(timer.device, torch.bfloat16)
    x = torch.randn(batch, seq, sizes.hidden, device=timer.device, dtype=torch.bfloat16, requires_grad=True)
    call: Call = functools.partial(block, x)
    if direction == "backward":
        output = block(x)
        wanted, gradient = [x, *block.parameters()], torch.randn_like(output)
        call = functools.partial(torch.autograd.grad, output, wanted, gradient, retain_graph=True)
    return timer.measure([call])


def layer_points(timer: Timer, skip: Callable[[str, str], None], config: Path | None) -> list[Point]:
    """Return the points of family "layer", none without a model's ``config``."""
    if config is None:
        skip("all", "needs --config")
        return []
    sizes = sizes_of(config)
    cases = [(TOKENS // seq, seq) for seq in LENGTHS] if timer.on_gpu else [(1, 64)]
    return [
        Point({**asdict(sizes), "dtype": "bf16", "batch": batch, "seq": seq, "direction": direction},
              functools.partial(time_layer, timer, sizes, batch, seq, direction))
        for batch, seq in cases for direction in ("forward", "backward")
    ]  # fmt: skip
