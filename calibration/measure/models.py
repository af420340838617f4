"""Families "block", "train" and "launch": transformer blocks, training steps, the host's cost of launches.

Blocks are pre-norm. "gpt": LayerNorm with bias, one fused query/key/value product, attention, output product,
dropout, residual sum, 4h feed-forward layer with tanh-approximated GELU, biases everywhere. "llama": RMSNorm,
rotary position embedding on queries and keys, SwiGLU feed-forward layer whose gate and up projections are one
product, no biases, no dropout. Attention is causal ``scaled_dot_product_attention`` without attention
dropout, restricted to the flash backend on GPUs. Nothing is fused beyond what the PyTorch operators
themselves fuse ("eager").

A training step ("train") holds, in bytes per parameter:

- 2 for the bf16 parameter and 2 for the bf16 gradient, which accumulates over the micro-batches;
- 4 for the fp32 master parameter, 4 + 4 for AdamW's fp32 first and second moments;
- during the optimizer step only, 4 for an fp32 copy of the gradient. Each bf16 gradient is freed as soon as
  it is copied.

So 14 bytes per parameter stay between steps (``allocated_before_step_bytes``), 16 are held at the end of the
backward pass, and 18 in the optimizer step, which is ``torch.optim.AdamW(fused=True)`` on the master
parameters followed by a copy back to bf16. There is no gradient clipping and no loss scaling. Logits are
computed in bf16 and copied to fp32 for the cross entropy. "gpt" ties the output layer to the token embedding
and learns position embeddings; "llama" does neither. ``recompute`` "full" checkpoints every block (reentrant:
the block's input alone is kept, and the whole block is computed again in the backward pass).

``forward_seconds`` and ``backward_seconds`` are sums over the micro-batches of a step; ``seconds`` is the
time from one step's start to the next one's in the device's queue, the host never waiting for the device.
``peak_allocated_bytes`` and ``peak_reserved_bytes`` are taken over the timed steps;
``baseline_allocated_bytes`` was allocated before the model was made (library workspaces). One more, untimed
step gives ``allocated_after_forward_bytes`` (last micro-batch), ``allocated_after_backward_bytes`` and
``forward_backward_peak_bytes``, the peak before the optimizer step.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

if __package__:
    from .timing import Marker, Point, Timer, summarize
else:
    from timing import Marker, Point, Timer, summarize

STATE_LAYOUT = {
    "parameter_bytes": 2,
    "gradient_bytes": 2,
    "master_parameter_bytes": 4,
    "moment_bytes": 8,
    "transient_main_gradient_bytes": 4,
}


@dataclass(frozen=True)
class Shape:
    """Sizes of a block or model and of its input."""

    architecture: str
    batch: int
    seq: int
    hidden: int
    heads: int
    kv_heads: int
    layers: int = 1
    vocabulary: int = 0
    recompute: str = "none"
    micro_batches: int = 1

    @property
    def ffn_hidden(self) -> int:
        """Width of the feed-forward layer: 4h, or 8h/3 rounded up to a multiple of 256 (of 16 if h < 256)."""
        if self.architecture == "gpt":
            return 4 * self.hidden
        multiple = 256 if self.hidden >= 256 else 16
        return -(-(8 * self.hidden // 3) // multiple) * multiple

    @property
    def dropout(self) -> float:
        """Probability of dropping an element before each residual sum."""
        return 0.1 if self.architecture == "gpt" else 0.0


def rotary_tables(
    seq: int, head_dim: int, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosine and sine tables of shape [seq, 1, head_dim]."""
    frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim)
    angles = torch.arange(seq, device=device, dtype=torch.float32)[:, None] * frequencies[None, :]
    angles = torch.cat((angles, angles), dim=-1)[:, None, :]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Apply the rotary position embedding to ``x`` of shape [..., seq, heads, head_dim]."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


def gated(x: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up of ``x`` = [gate, up]."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


class Block(nn.Module):
    """One transformer layer (see the module's docstring)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        hidden, ffn_hidden, gpt = shape.hidden, shape.ffn_hidden, shape.architecture == "gpt"
        self.head_dim = hidden // shape.heads
        self.attention_norm = nn.LayerNorm(hidden) if gpt else nn.RMSNorm(hidden, eps=1e-5)
        self.feed_forward_norm = nn.LayerNorm(hidden) if gpt else nn.RMSNorm(hidden, eps=1e-5)
        self.qkv = nn.Linear(hidden, (shape.heads + 2 * shape.kv_heads) * self.head_dim, bias=gpt)
        self.output = nn.Linear(hidden, hidden, bias=gpt)
        self.up = nn.Linear(hidden, ffn_hidden if gpt else 2 * ffn_hidden, bias=gpt)
        self.down = nn.Linear(ffn_hidden, hidden, bias=gpt)

    def attention(self, x: torch.Tensor, tables: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
        """Causal self-attention of [batch, seq, hidden], up to the output product."""
        batch, seq, _ = x.shape
        heads, kv_heads = self.shape.heads, self.shape.kv_heads
        qkv = self.qkv(x).view(batch, seq, heads + 2 * kv_heads, self.head_dim)
        query, key, value = qkv.split((heads, kv_heads, kv_heads), dim=2)
        if tables is not None:
            query, key = rotate(query, *tables), rotate(key, *tables)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        mixed = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=heads != kv_heads
        )
        return self.output(mixed.transpose(1, 2).reshape(batch, seq, -1))

    def feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        """Two products with the nonlinearity between them."""
        x = self.up(x)
        return self.down(F.gelu(x, approximate="tanh") if self.shape.architecture == "gpt" else gated(x))

    def forward(self, x: torch.Tensor, tables: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
        """Return the layer's output for ``x`` of shape [batch, seq, hidden]."""
        dropout = self.shape.dropout
        for norm, part in (
            (self.attention_norm, functools.partial(self.attention, tables=tables)),
            (self.feed_forward_norm, self.feed_forward),
        ):
            change = part(norm(x))
            x = x + (F.dropout(change, dropout, training=True) if dropout else change)
        return x


class Model(nn.Module):
    """A language model of `Block` layers (see the module's docstring)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        gpt = shape.architecture == "gpt"
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.position = nn.Embedding(shape.seq, shape.hidden) if gpt else None
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.hidden) if gpt else nn.RMSNorm(shape.hidden, eps=1e-5)
        self.head = None if gpt else nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor, tables) -> torch.Tensor:
        """Return the mean cross entropy of ``targets``."""
        x = self.embedding(tokens)
        if self.position is not None:
            x = F.dropout(x + self.position.weight, self.shape.dropout, training=True)
        for block in self.blocks:
            if self.shape.recompute == "full":
                x = checkpoint(
                    block, x, tables, use_reentrant=True, preserve_rng_state=self.shape.dropout > 0
                )
            else:
                x = block(x, tables)
        weight = self.embedding.weight if self.head is None else self.head.weight
        return F.cross_entropy(F.linear(self.norm(x), weight).float().flatten(0, 1), targets.flatten())


class MixedPrecisionAdamW:
    """AdamW on fp32 master copies of bf16 parameters (see the module's docstring)."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.masters = [parameter.detach().float() for parameter in parameters]
        self.optimizer = torch.optim.AdamW(
            self.masters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
        )

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters and free their gradients."""
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            master.grad = parameter.grad.float()
            parameter.grad = None
        self.optimizer.step()
        torch._foreach_copy_(self.parameters, self.masters)
        for master in self.masters:
            master.grad = None


def flash_only(timer: Timer) -> contextlib.AbstractContextManager:
    """Restrict attention to the flash backend on GPUs."""
    return sdpa_kernel(SDPBackend.FLASH_ATTENTION) if timer.on_gpu else contextlib.nullcontext()


def tables_of(shape: Shape, timer: Timer) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return a model's rotary tables, or None where it has none."""
    if shape.architecture == "gpt":
        return None
    return rotary_tables(shape.seq, shape.hidden // shape.heads, timer.device, torch.bfloat16)


def make(kind: type[nn.Module], shape: Shape, timer: Timer) -> nn.Module:
    """Return a bf16 block or model on the device, its matrices normal with standard deviation 0.02."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(timer.device):
            module = kind(shape)
    finally:
        torch.set_default_dtype(before)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.02)
    return module


def time_block(timer: Timer, shape: Shape, direction: str, kernel_style: str) -> dict:
    """Time one block, forward or backward; the backward pass writes fresh gradients of input and weights."""
    block, tables = make(Block, shape, timer), tables_of(shape, timer)
    function = torch.compile(block) if kernel_style == "compile" else block
    size = (shape.batch, shape.seq, shape.hidden)
    x = torch.randn(size, device=timer.device, dtype=torch.bfloat16).requires_grad_()
    with flash_only(timer):
        if direction == "forward":
            return timer.measure([functools.partial(function, x, tables)])
        output, inputs = function(x, tables), (x, *block.parameters())
        gradient = torch.randn(size, device=timer.device, dtype=torch.bfloat16)
        return timer.measure(
            [functools.partial(torch.autograd.grad, output, inputs, gradient, retain_graph=True)]
        )


def block_shapes(on_gpu: bool) -> list[Shape]:
    """Return the shapes of family "block"."""
    if not on_gpu:
        return [Shape(architecture, 1, 32, 64, 4, 4) for architecture in ("gpt", "llama")]
    sizes = [
        (1, 512, 1024, 16, 16), (8, 1024, 1024, 16, 16), (4, 2048, 2048, 16, 16), (1, 2048, 4096, 32, 32),
        (4, 2048, 4096, 32, 32), (1, 8192, 4096, 32, 8), (1, 4096, 8192, 64, 64), (2, 2048, 6144, 48, 48),
        (16, 1024, 2560, 32, 32), (1, 16384, 2048, 32, 32), (1, 2048, 12288, 96, 96), (2, 512, 8192, 64, 8),
        (32, 512, 1536, 12, 12), (1, 1024, 2048, 16, 16),
    ]  # fmt: skip
    return [Shape(architecture, *size) for size in sizes for architecture in ("gpt", "llama")]


def block_points(timer: Timer, skip: Callable[[str, str], None], compile_blocks: bool = False) -> list[Point]:
    """Return the points of family "block" (bf16)."""
    styles = ("eager", "compile") if compile_blocks else ("eager",)
    points = []
    for style in styles:
        for shape in block_shapes(timer.on_gpu):
            names = ("architecture", "batch", "seq", "hidden", "heads", "kv_heads")
            parameters = {name: getattr(shape, name) for name in names}
            parameters |= {
                "ffn_hidden": shape.ffn_hidden,
                "dropout": shape.dropout,
                "kernel_style": style,
                "dtype": "bf16",
            }
            for direction in ("forward", "backward"):
                run = functools.partial(time_block, timer, shape, direction, style)
                points.append(Point(parameters | {"direction": direction}, run))
    return points


class Training:
    """A model, its optimizer and its data, ready to run timed steps."""

    def __init__(self, timer: Timer, shape: Shape) -> None:
        self.timer, self.shape = timer, shape
        self.model = make(Model, shape, timer)
        self.tables = tables_of(shape, timer)
        self.optimizer = MixedPrecisionAdamW(list(self.model.parameters()))
        size = (shape.micro_batches, shape.batch, shape.seq)
        self.tokens = torch.randint(shape.vocabulary, size, device=timer.device)
        self.targets = torch.randint(shape.vocabulary, size, device=timer.device)

    def step(self) -> list[Marker]:
        """Run one step; return marks at its start, after every forward and backward pass, and at its end."""
        marks = [self.timer.mark()]
        for tokens, targets in zip(self.tokens, self.targets, strict=True):
            loss = self.model(tokens, targets, self.tables) / self.shape.micro_batches
            marks.append(self.timer.mark())
            loss.backward()
            marks.append(self.timer.mark())
        self.optimizer.step()
        marks.append(self.timer.mark())
        return marks

    def observe_memory(self) -> dict:
        """Run one more step; return what is allocated after its passes, and the peak before the optimizer."""
        device = self.timer.device
        torch.cuda.reset_peak_memory_stats(device)
        for tokens, targets in zip(self.tokens, self.targets, strict=True):
            loss = self.model(tokens, targets, self.tables) / self.shape.micro_batches
            after_forward = torch.cuda.memory_allocated(device)
            loss.backward()
        peak = torch.cuda.max_memory_allocated(device)
        after_backward = torch.cuda.memory_allocated(device)
        self.optimizer.step()
        return {
            "allocated_after_forward_bytes": after_forward,
            "allocated_after_backward_bytes": after_backward,
            "forward_backward_peak_bytes": peak,
        }


def run_training(timer: Timer, shape: Shape) -> dict:
    """Train for two warm-up steps and at least three timed ones."""
    timer.release()
    gc.collect()
    if timer.on_gpu:
        torch.cuda.empty_cache()
    baseline = torch.cuda.memory_allocated(timer.device) if timer.on_gpu else None
    with flash_only(timer):
        training = Training(timer, shape)
        training.step()
        timer.synchronize()
        begin = time.perf_counter()
        training.step()
        timer.synchronize()
        steps = min(max(int((0.3 if timer.quick else 0.8) / (time.perf_counter() - begin)), 3), 10)
        allocated = None
        if timer.on_gpu:
            torch.cuda.reset_peak_memory_stats(timer.device)
            allocated = torch.cuda.memory_allocated(timer.device)
        begin = time.perf_counter()
        marks = [training.step() for _ in range(steps)]
        host_seconds = (time.perf_counter() - begin) / steps
        timer.synchronize()
        memory = dict.fromkeys(("peak_allocated_bytes", "peak_reserved_bytes"))
        if timer.on_gpu:
            memory["peak_allocated_bytes"] = torch.cuda.max_memory_allocated(timer.device)
            memory["peak_reserved_bytes"] = torch.cuda.max_memory_reserved(timer.device)
            memory |= training.observe_memory()
    seconds = [[timer.elapsed(*pair) for pair in itertools.pairwise(step)] for step in marks]
    starts = [step[0] for step in marks] + [marks[-1][-1]]
    result = summarize([timer.elapsed(*pair) for pair in itertools.pairwise(starts)])
    return result | {
        "forward_seconds": statistics.median(sum(step[0:-1:2]) for step in seconds),
        "backward_seconds": statistics.median(sum(step[1:-1:2]) for step in seconds),
        "optimizer_seconds": statistics.median(step[-1] for step in seconds),
        "host_seconds": host_seconds,
        **memory,
        "allocated_before_step_bytes": allocated,
        "baseline_allocated_bytes": baseline,
        "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
    }


def train_shapes(on_gpu: bool, quick: bool) -> list[Shape]:
    """Return the shapes of family "train", the most informative first.

    The columns are architecture, batch, seq, hidden, heads, kv_heads, layers, vocabulary, recompute,
    micro_batches.
    """
    if not on_gpu:
        return [
            Shape("gpt", 2, 32, 64, 4, 4, 2, 512),
            Shape("llama", 2, 32, 64, 4, 2, 2, 512, "full", 2),
        ]
    few = [
        Shape("gpt", 8, 1024, 768, 12, 12, 12, 50304),
        Shape("gpt", 8, 1024, 768, 12, 12, 12, 50304, "full"),
        Shape("llama", 4, 2048, 2048, 16, 16, 16, 32000, "none", 4),
        Shape("gpt", 4, 2048, 4096, 32, 32, 4, 51200),
        Shape("llama", 1, 4096, 4096, 32, 32, 24, 32000, "full"),
        Shape("llama", 4, 2048, 8192, 64, 64, 4, 32000),
        Shape("gpt", 1, 512, 512, 8, 8, 6, 32000),
    ]
    more = [
        Shape("gpt", 16, 1024, 1024, 16, 16, 24, 50304),
        Shape("gpt", 16, 1024, 1024, 16, 16, 24, 50304, "full"),
        Shape("llama", 2, 2048, 4096, 32, 8, 8, 128256),
        Shape("gpt", 4, 2048, 2048, 16, 16, 24, 50304, "none", 4),
        Shape("llama", 1, 2048, 4096, 32, 32, 16, 32000),
        Shape("gpt", 1, 2048, 8192, 64, 64, 3, 51200, "full", 4),
        Shape("llama", 1, 8192, 4096, 32, 32, 8, 32000),
        Shape("llama", 1, 8192, 4096, 32, 32, 8, 32000, "full"),
        Shape("gpt", 1, 1024, 768, 12, 12, 12, 50304),
        Shape("gpt", 32, 1024, 768, 12, 12, 12, 50304),
        Shape("llama", 8, 1024, 1024, 16, 16, 12, 32000),
        Shape("llama", 1, 512, 1024, 16, 16, 12, 32000, "none", 4),
        Shape("gpt", 4, 512, 256, 4, 4, 4, 32000),
        Shape("gpt", 64, 512, 512, 8, 8, 8, 32000),
        Shape("gpt", 2, 2048, 2560, 32, 32, 16, 50304),
        Shape("gpt", 2, 2048, 2560, 32, 32, 32, 50304, "full"),
        Shape("llama", 4, 4096, 2048, 16, 16, 12, 32000),
        Shape("llama", 2, 16384, 2048, 16, 16, 8, 32000),
        Shape("llama", 1, 32768, 2048, 16, 16, 12, 32000, "full"),
        Shape("gpt", 8, 2048, 4096, 32, 32, 4, 51200),
        Shape("gpt", 8, 2048, 4096, 32, 32, 4, 51200, "full"),
        Shape("gpt", 1, 2048, 4096, 32, 32, 12, 51200, "none", 4),
        Shape("llama", 2, 2048, 5120, 40, 40, 8, 32000),
        Shape("llama", 2, 2048, 5120, 40, 40, 12, 32000, "full"),
        Shape("gpt", 2, 2048, 6144, 48, 48, 4, 51200),
        Shape("llama", 2, 2048, 6144, 48, 8, 6, 32000, "none", 4),
        Shape("llama", 1, 4096, 8192, 64, 8, 4, 128256, "full"),
        Shape("gpt", 1, 2048, 8192, 64, 64, 4, 51200),
        Shape("llama", 8, 512, 4096, 32, 32, 8, 32000),
        Shape("gpt", 16, 512, 2048, 32, 32, 12, 50304, "full", 4),
        Shape("gpt", 1, 256, 2048, 16, 16, 24, 50304),
        Shape("llama", 1, 256, 4096, 32, 32, 8, 32000),
        Shape("llama", 16, 2048, 1024, 16, 4, 16, 32000),
        Shape("gpt", 8, 2048, 1536, 16, 16, 16, 50304),
    ]
    return few if quick else few + more


def train_points(timer: Timer, skip: Callable[[str, str], None]) -> list[Point]:
    """Return the points of family "train"."""
    points = []
    for shape in train_shapes(timer.on_gpu, timer.quick):
        parameters = asdict(shape) | STATE_LAYOUT
        parameters |= {
            "ffn_hidden": shape.ffn_hidden,
            "dropout": shape.dropout,
            "dtype": "bf16",
            "kernel_style": "eager",
        }
        parameters |= {"attention_kernel": "flash" if timer.on_gpu else "default"}
        parameters |= {"tied_embeddings": shape.architecture == "gpt"}
        points.append(Point(parameters, functools.partial(run_training, timer, shape)))
    return points


def host_time(
    timer: Timer, call: Callable[[], object], count: int, prepare: Callable[[], object] | None = None
) -> dict:
    """Time the host alone: ``count`` calls are queued without waiting for the device.

    With ``prepare``, it runs before every call, outside the timing, and the call receives what it returned.
    """
    samples = []
    for repeat in range(12):
        timer.synchronize()
        total = 0.0
        if prepare is None:
            begin = time.perf_counter()
            for _ in range(count):
                call()
            total = time.perf_counter() - begin
        else:
            for _ in range(count):
                argument = prepare()
                begin = time.perf_counter()
                call(argument)
                total += time.perf_counter() - begin
        if repeat >= 2:
            samples.append(total / count)
    timer.synchronize()
    return summarize(samples, count)


def time_kernel_gap(timer: Timer) -> dict:
    """Time tiny kernels back to back on the device, queued while the device is held."""
    tiny, count, samples = torch.zeros(1, device=timer.device), 500, []
    for repeat in range(12):
        timer.hold(0.01)
        begin = timer.mark()
        for _ in range(count):
            tiny.add_(1.0)
        end = timer.mark()
        timer.synchronize()
        if repeat >= 2:
            samples.append(timer.elapsed(begin, end) / count)
    return summarize(samples, count)


def time_host_linear(timer: Timer) -> dict:
    """Time the host in the forward pass of a small linear layer."""
    linear = nn.Linear(64, 64, device=timer.device, dtype=torch.bfloat16)
    x = torch.randn(8, 64, device=timer.device, dtype=torch.bfloat16)
    return host_time(timer, functools.partial(linear, x), 200)


def time_host_block(timer: Timer, architecture: str, direction: str) -> dict:
    """Time the host in a tiny block, whose kernels are shorter than their launches."""
    shape = Shape(architecture, 1, 16, 128, 2, 2)
    block, tables = make(Block, shape, timer), tables_of(shape, timer)
    x = torch.randn(1, 16, 128, device=timer.device, dtype=torch.bfloat16).requires_grad_()
    gradient = torch.randn_like(x)
    forward = functools.partial(block, x, tables)

    def backward(output: torch.Tensor) -> None:
        output.backward(gradient)

    with flash_only(timer):
        if direction == "forward":
            return host_time(timer, forward, 20)
        return host_time(timer, backward, 20, prepare=forward)


def launch_points(timer: Timer, skip: Callable[[str, str], None]) -> list[Point]:
    """Return the points of family "launch".

    On a CPU "launch" means the call of an operator, which includes its work.
    """
    tiny = torch.zeros(1, device=timer.device)
    points = [
        Point(
            {"op": "empty_kernel_async"},
            functools.partial(host_time, timer, functools.partial(tiny.add_, 1.0), 1000),
        ),
        Point({"op": "kernel_gap"}, functools.partial(time_kernel_gap, timer)),
        Point({"op": "host_linear_forward"}, functools.partial(time_host_linear, timer)),
        Point({"op": "synchronize"}, functools.partial(host_time, timer, timer.synchronize, 100)),
    ]
    for architecture in ("gpt", "llama"):
        for direction in ("forward", "backward"):
            parameters = {"op": f"host_block_{direction}", "architecture": architecture}
            points.append(
                Point(parameters, functools.partial(time_host_block, timer, architecture, direction))
            )
    return points
