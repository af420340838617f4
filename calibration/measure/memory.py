"""Families "elementwise", "optimizer" and "copy": operations bound by memory bandwidth.

``nbytes`` of an "elementwise" row is the least that has to be moved, every input read once and every output
written once. With e bytes per element and N = rows * columns:

============================  ==============================  ============================================
op                            forward                         backward
============================  ==============================  ============================================
layernorm, rmsnorm            2 N e                           3 N e (gradient, input; input gradient)
gelu                          2 N e                           3 N e
swiglu (output N, input 2 N)  3 N e                           5 N e
rotary (heads of 128)         2 N e + tables                  2 N e + tables
residual_dropout              3 N e + N (mask of one byte)    2 N e + N (gradient of the branch)
residual_add                  3 N e                           none: gradients pass through
softmax                       2 N e                           3 N e (gradient, output; input gradient)
cross_entropy                 N e (logits)                    2 N e (logits; their gradient)
embedding                     2 N e                           N e + vocabulary * columns * e (dense)
cast (bf16 to fp32, back)     6 N                             none: a cast again
scale                         2 N e                           none: a scale again
============================  ==============================  ============================================

Affine weights, row statistics and indices are left out: they are columns / rows times smaller.
"cross_entropy" with dtype bf16 copies the logits to fp32 first, as the training step does. "swiglu",
"rotary", "residual_dropout" and bf16 "cross_entropy" are several kernels each in eager PyTorch, and move more
than ``nbytes``.

"optimizer" rows time ``torch.optim.AdamW`` (weight decay 0.1) on fp32 parameters with fp32 gradients and
moments: 28 bytes moved per parameter at least. "copy" rows give the size of the buffer; a copy within the
device moves twice that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F

if __package__:
    from .models import gated, rotary_tables, rotate
    from .timing import DTYPES, Call, Point, Timer
else:
    from models import gated, rotary_tables, rotate
    from timing import DTYPES, Call, Point, Timer

VOCABULARY = 32768
HEAD_DIM = 128
FORWARD_ONLY = ("residual_add", "cast", "scale")
# Multiples of rows * columns * element size moved forward and backward.
MOVED = {
    "layernorm": (2, 3), "rmsnorm": (2, 3), "gelu": (2, 3), "swiglu": (3, 5), "rotary": (2, 2),
    "residual_dropout": (3, 2), "residual_add": (3, 0), "softmax": (2, 3),
    "cross_entropy": (1, 2), "embedding": (2, 1), "scale": (2, 0),
}  # fmt: skip


def moved_bytes(op: str, direction: str, rows: int, columns: int, dtype: str) -> int:
    """Return the least bytes an elementwise operation moves (see the module's docstring)."""
    elements = rows * columns
    width = DTYPES[dtype].itemsize
    if op == "cast":
        return 6 * elements
    total = MOVED[op][direction == "backward"] * elements * width
    if op == "rotary":
        total += 2 * rows * HEAD_DIM * width
    if op == "residual_dropout":
        total += elements
    if op == "embedding" and direction == "backward":
        total += VOCABULARY * columns * width
    return total


def elementwise_forward(
    op: str, rows: int, columns: int, dtype: str, device: torch.device
) -> tuple[Call, list[torch.Tensor]]:
    """Return a function that computes the operation, and the tensors differentiated by its backward pass."""
    kind = DTYPES[dtype]

    def new(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=kind).requires_grad_()

    if op == "embedding":
        table, indices = new(VOCABULARY, columns), torch.randint(VOCABULARY, (rows,), device=device)
        return functools.partial(F.embedding, indices, table), [table]
    if op == "cross_entropy":
        logits, targets = new(rows, columns), torch.randint(columns, (rows,), device=device)
        return lambda: F.cross_entropy(logits.float(), targets), [logits]
    if op in ("layernorm", "rmsnorm"):
        x, weight = new(rows, columns), new(columns)
        if op == "rmsnorm":
            return functools.partial(F.rms_norm, x, (columns,), weight, 1e-5), [x, weight]
        bias = new(columns)
        return functools.partial(F.layer_norm, x, (columns,), weight, bias), [x, weight, bias]
    if op == "rotary":
        x = new(rows, columns // HEAD_DIM, HEAD_DIM)
        return functools.partial(rotate, x, *rotary_tables(rows, HEAD_DIM, device, kind)), [x]
    if op == "swiglu":
        x = new(rows, 2 * columns)
        return functools.partial(gated, x), [x]
    x = new(rows, columns)
    if op in ("residual_dropout", "residual_add"):
        residual = new(rows, columns).detach()
        if op == "residual_add":
            return functools.partial(torch.add, x, residual), [x]
        return lambda: residual + F.dropout(x, 0.1, training=True), [x]
    target = torch.float32 if kind == torch.bfloat16 else torch.bfloat16
    functions = {
        "gelu": functools.partial(F.gelu, x, approximate="tanh"),
        "softmax": functools.partial(F.softmax, x, dim=-1),
        "cast": functools.partial(x.detach().to, target),
        "scale": functools.partial(torch.mul, x.detach(), 0.5),
    }
    return functions[op], [x]


def time_elementwise(timer: Timer, op: str, direction: str, rows: int, columns: int, dtype: str) -> dict:
    """Time one elementwise or row-wise operation."""
    calls: list[Call] = []
    for _ in range(timer.set_count(moved_bytes(op, direction, rows, columns, dtype))):
        forward, inputs = elementwise_forward(op, rows, columns, dtype, timer.device)
        if direction == "forward":
            calls.append(forward)
        else:
            output = forward()
            gradient = torch.randn_like(output)
            calls.append(functools.partial(torch.autograd.grad, output, inputs, gradient, retain_graph=True))
    return timer.measure(calls)


def elementwise_points(timer: Timer, skip: Callable[[str, str], None]) -> list[Point]:
    """Return the points of family "elementwise"."""
    if timer.on_gpu:
        sizes = [(rows, columns) for rows in (256, 2048, 8192, 32768) for columns in (1024, 4096, 8192)]
        sizes += [(4096, 5120), (4096, 12288), (2048, 28672), (1024, 2048), (16384, 2048)]
        vocabulary_sizes = [
            (512, 32000),
            (2048, 32000),
            (8192, 32000),
            (4096, 50304),
            (2048, 128256),
            (8192, 50304),
        ]
    else:
        sizes, vocabulary_sizes = [(32, 128), (64, 256)], [(32, 512)]
    points = []
    for op in (*MOVED, "cast"):
        for dtype in ("bf16", "fp32"):
            chosen = vocabulary_sizes if op == "cross_entropy" else sizes
            if dtype == "fp32" and op not in ("cast", "cross_entropy"):
                if op not in ("softmax", "scale", "residual_add"):
                    continue
                chosen = sizes[::3]
            for rows, columns in chosen:
                for direction in ("forward",) if op in FORWARD_ONLY else ("forward", "backward"):
                    parameters = {
                        "op": op,
                        "direction": direction,
                        "rows": rows,
                        "columns": columns,
                        "dtype": dtype,
                    }
                    run = functools.partial(time_elementwise, timer, **parameters)
                    parameters = parameters | {"nbytes": moved_bytes(**parameters)}
                    if op == "embedding":
                        parameters["vocabulary"] = VOCABULARY
                    points.append(Point(parameters, run))
    return points


def time_optimizer(timer: Timer, kernel: str, parameters: int, tensors: int) -> dict:
    """Time one step of AdamW over ``tensors`` equal tensors."""
    held = []
    for _ in range(tensors):
        tensor = torch.randn(parameters // tensors, device=timer.device)
        tensor.grad = torch.randn_like(tensor)
        held.append(tensor)
    options = {"fused": True} if kernel == "fused" else {"foreach": True}
    optimizer = torch.optim.AdamW(held, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, **options)
    return timer.measure([optimizer.step])


def optimizer_points(timer: Timer, skip: Callable[[str, str], None]) -> list[Point]:
    """Return the points of family "optimizer"."""
    if timer.on_gpu:
        cases = [(10**6, 1), (10**6, 64), (10**7, 16), (10**7, 150), (10**8, 1), (10**8, 16), (10**8, 150),
                 (10**8, 600), (5 * 10**8, 150), (10**9, 100), (10**9, 400), (3 * 10**9, 300)]  # fmt: skip
    else:
        cases = [(10**4, 4), (10**5, 8)]
    return [
        Point(
            {"kernel": kernel, "parameters": parameters, "tensors": tensors, "dtype": "fp32"},
            functools.partial(time_optimizer, timer, kernel, parameters, tensors),
        )
        for parameters, tensors in cases
        for kernel in ("fused", "foreach")
    ]


class HostBuffers:
    """The pinned and the pageable host buffer, allocated once and cut to size.

    A buffer that the host cannot provide is replaced by the next smaller power of two.
    """

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self.buffers: dict[bool, torch.Tensor] = {}

    def get(self, nbytes: int, pinned: bool) -> torch.Tensor:
        """Return ``nbytes`` of host memory."""
        size = self.largest
        while pinned not in self.buffers:
            try:
                self.buffers[pinned] = torch.empty(size, dtype=torch.uint8, pin_memory=pinned).fill_(1)
            except RuntimeError:
                if size <= 1 << 20:
                    raise
                size //= 2
        if nbytes > self.buffers[pinned].numel():
            raise MemoryError(f"the host provides no buffer of {nbytes} bytes")
        return self.buffers[pinned][:nbytes]


def time_copy(timer: Timer, buffers: HostBuffers, kind: str, nbytes: int) -> dict:
    """Time one copy."""
    device = functools.partial(torch.randint, 256, (nbytes,), dtype=torch.uint8, device=timer.device)
    if kind == "device":
        pairs = [(device(), device()) for _ in range(timer.set_count(2 * nbytes))]
        return timer.measure([functools.partial(target.copy_, source) for target, source in pairs])
    on_device, on_host = device(), buffers.get(nbytes, "pinned" in kind)
    target, source = (on_host, on_device) if kind.startswith("device") else (on_device, on_host)
    if "pinned" in kind:
        return timer.measure([functools.partial(target.copy_, source, non_blocking=True)])
    return timer.measure_wall([functools.partial(target.copy_, source)])


def copy_points(timer: Timer, skip: Callable[[str, str], None]) -> list[Point]:
    """Return the points of family "copy", 4 KiB to 4 GiB (16 MiB on a CPU)."""
    kinds = ["device"]
    largest = 1 << 24
    if timer.on_gpu:
        kinds += ["host_to_device_pinned", "device_to_host_pinned", "host_to_device_pageable"]
        largest = 1 << (30 if timer.quick else 32)
    else:
        skip("host_to_device and device_to_host", "measured on GPUs only")
    sizes = [1 << power for power in range(12, 33, 2) if 1 << power <= largest]
    buffers = HostBuffers(largest)
    return [
        Point({"kind": kind, "nbytes": nbytes}, functools.partial(time_copy, timer, buffers, kind, nbytes))
        for kind in kinds
        for nbytes in sizes
    ]
