"""Families "gemm", "gemm_sustained", "grouped_gemm" and "attention".

In every "gemm" row the product is out[m, n] = sum over k, whichever operand is stored transposed:

- "nt": a[m, k] @ b[n, k]^T, a linear layer's forward (m tokens, n outputs, k inputs);
- "nn": a[m, k] @ b[k, n], its data gradient (m tokens, n inputs, k outputs);
- "tn": a[k, m]^T @ b[k, n], its weight gradient (m outputs, n inputs, k tokens).

Operands are normally distributed random values. "tf32" has fp32 operands on tensor cores, "fp32" is plain
IEEE; "fp8" is e4m3 times e4m3 with one fp32 scale per operand and a bf16 result.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

if __package__:
    from .environment import query_device
    from .timing import Call, Point, Timer, random_tensor, summarize
else:
    from environment import query_device
    from timing import Call, Point, Timer, random_tensor, summarize

Shape = tuple[int, int, int]
# (hidden size, tensor-parallel ranks, tokens)
LAYERS = [
    (1024, 1, 8192), (1024, 1, 32768), (2048, 1, 4096), (2048, 2, 8192), (2560, 1, 2048), (4096, 1, 2048),
    (4096, 1, 8192), (4096, 2, 4096), (4096, 4, 8192), (4096, 8, 4096), (5120, 1, 4096), (5120, 2, 8192),
    (6144, 1, 2048), (6144, 4, 4096), (8192, 1, 4096), (8192, 2, 2048), (8192, 4, 4096), (8192, 8, 8192),
    (12288, 4, 4096), (12288, 8, 2048), (16384, 2, 2048), (16384, 8, 4096),
]  # fmt: skip
# (hidden size, gated feed-forward size, tensor-parallel ranks, tokens)
GATED_LAYERS = [
    (2048, 5632, 1, 8192), (4096, 11008, 1, 4096), (4096, 14336, 2, 8192), (5120, 13824, 1, 2048),
    (8192, 28672, 8, 4096), (8192, 22016, 4, 8192),
]  # fmt: skip
# (tokens, vocabulary rows of one rank, hidden size)
VOCABULARY = [
    (2048, 50304, 1024), (8192, 50304, 2048), (4096, 32000, 4096), (8192, 16032, 4096), (4096, 6400, 8192),
    (2048, 128256, 4096),
]  # fmt: skip
ATTENTION_HEADS = {64: 32, 80: 24, 128: 16, 192: 12}
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def forward_shapes() -> list[Shape]:
    """Return (m, n, k) of the linear layers of transformer layers, forward."""
    shapes = []
    for hidden, ranks, tokens in LAYERS:
        shapes += [
            (tokens, 3 * hidden // ranks, hidden),
            (tokens, hidden, hidden // ranks),
            (tokens, 4 * hidden // ranks, hidden),
            (tokens, hidden, 4 * hidden // ranks),
        ]
    for hidden, ffn_hidden, ranks, tokens in GATED_LAYERS:
        shapes += [(tokens, 2 * ffn_hidden // ranks, hidden), (tokens, hidden, ffn_hidden // ranks)]
    return list(dict.fromkeys(shapes + VOCABULARY))


def boundary_shapes() -> list[Shape]:
    """Return shapes around tile and wave boundaries, one dimension varied at a time."""
    shapes = [(m, 4096, 4096) for m in range(1920, 2305, 64)]
    shapes += [(m, 4096, 4096) for m in (512, 1024, 3072, 4096, 6144, 8192, 16384, 32768)]
    shapes += [(2048, n, 4096) for n in range(3968, 4353, 64) if n != 4096]
    shapes += [(2048, n, 4096) for n in (1024, 2048, 4104, 5120, 6144, 7168)]
    shapes += [(2048, 4096, k) for k in (64, 128, 256, 512, 1024, 2048, 4032, 4104, 4160)]
    return shapes


def small_shapes() -> list[Shape]:
    """Return small and skinny shapes."""
    return [
        (1, 4096, 4096), (8, 8192, 8192), (16, 4096, 4096), (64, 1024, 1024), (64, 4096, 4096),
        (128, 128, 128), (128, 1024, 1024), (128, 4096, 1024), (256, 4096, 4096), (384, 1536, 512),
        (512, 512, 2048), (1024, 768, 768), (1024, 64, 4096), (4096, 8, 4096),
    ]  # fmt: skip


def square_shapes(largest: int) -> list[Shape]:
    """Return powers of two, from 256 to ``largest``."""
    return [(size, size, size) for size in (256, 512, 1024, 2048, 4096, 8192, 16384) if size <= largest]


def gradient_shapes(shape: Shape) -> Iterator[tuple[Shape, str]]:
    """Yield the data gradient's and the weight gradient's products of a linear layer's forward shape."""
    tokens, outputs, inputs = shape
    yield (tokens, inputs, outputs), "nn"
    yield (outputs, inputs, tokens), "tn"


def product_calls(timer: Timer, shape: Shape, dtype: str, transpose: str, fast: bool = True) -> list[Call]:
    """Return calls of one matrix product on rotated operands."""
    m, n, k = shape
    width = {"fp8": 1, "bf16": 2, "fp16": 2}.get(dtype, 4)
    calls: list[Call] = []
    one = torch.ones((), device=timer.device, dtype=torch.float32)
    for _ in range(timer.set_count(width * (m * k + n * k) + m * n * max(width, 2))):
        left = random_tensor((k, m) if transpose[0] == "t" else (m, k), dtype, timer.device)
        right = random_tensor((n, k) if transpose[1] == "t" else (k, n), dtype, timer.device)
        left = left.t() if transpose[0] == "t" else left
        right = right.t() if transpose[1] == "t" else right
        if dtype == "fp8":
            calls.append(
                functools.partial(
                    torch._scaled_mm,
                    left,
                    right,
                    scale_a=one,
                    scale_b=one,
                    out_dtype=torch.bfloat16,
                    use_fast_accum=fast,
                )
            )
        else:
            out = torch.empty(m, n, device=timer.device, dtype=left.dtype)
            calls.append(functools.partial(torch.mm, left, right, out=out))
    return calls


@contextlib.contextmanager
def product_precision(dtype: str) -> Iterator[None]:
    """Allow TF32 inside the context when ``dtype`` is "tf32"."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def time_product(timer: Timer, shape: Shape, dtype: str, transpose: str, fast: bool = True) -> dict:
    """Time one matrix product."""
    with torch.no_grad(), product_precision(dtype):
        return timer.measure(product_calls(timer, shape, dtype, transpose, fast))


def product_point(timer: Timer, shape: Shape, dtype: str, transpose: str, fast: bool = True) -> Point:
    """Return the point of one matrix product."""
    parameters = dict(zip("mnk", shape, strict=True)) | {"dtype": dtype, "transpose": transpose}
    if dtype == "fp8":
        parameters["fast_accumulation"] = fast
    return Point(parameters, functools.partial(time_product, timer, shape, dtype, transpose, fast))


def supports_fp8(device: torch.device) -> bool:
    """Return whether the device multiplies fp8 matrices."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def gemm_points(timer: Timer, skip: Callable[[str, str], None]) -> list[Point]:
    """Return the points of family "gemm"."""
    if not timer.on_gpu:
        skip("fp8, fp16 and tf32", "measured on GPUs only")
        shapes = [(64, 64, 64), (128, 256, 64), (256, 128, 128)]
        kinds = itertools.product(shapes, ("bf16", "fp32"), ("nt", "nn", "tn"))
        return [product_point(timer, *kind) for kind in kinds]
    layers = forward_shapes()
    points = [product_point(timer, shape, "bf16", "nt") for shape in layers]
    others = boundary_shapes() + small_shapes() + square_shapes(16384)
    points += [product_point(timer, shape, "bf16", "nt") for shape in others]
    for shape in layers[::2] + layers[1:24:4]:
        points += [
            product_point(timer, product, "bf16", transpose) for product, transpose in gradient_shapes(shape)
        ]
    for transpose in ("nn", "tn"):
        points += [product_point(timer, shape, "bf16", transpose) for shape in square_shapes(8192)[2:]]
        points += [
            product_point(timer, shape, "bf16", transpose)
            for shape in boundary_shapes()[:7] + small_shapes()[::3]
        ]
    points += [product_point(timer, shape, "fp16", "nt") for shape in layers[8:84:6] + square_shapes(8192)]
    if supports_fp8(timer.device):
        eights = [shape for shape in layers if all(size % 16 == 0 for size in shape)]
        points += [product_point(timer, shape, "fp8", "nt") for shape in eights[8::3] + square_shapes(16384)]
        points += [product_point(timer, shape, "fp8", "nt", fast=False) for shape in eights[20::24]]
    else:
        skip("fp8", "needs compute capability 8.9")
    for dtype in ("tf32", "fp32"):
        points += [
            product_point(timer, shape, dtype, "nt") for shape in layers[8:80:10] + square_shapes(4096)[1:]
        ]
    return list({tuple(point.parameters.items()): point for point in points}.values())


def time_sustained(timer: Timer, shape: Shape, dtype: str) -> dict:
    """Time a product repeated without pause, and read clock and power while it runs."""
    duration = 0.6 if timer.quick else 1.5
    with torch.no_grad():
        calls = product_calls(timer, shape, dtype, "nt")
        single = timer.measure(calls)["seconds"]
        chunk = max(int(duration / single / 20), 1)
        marks = [timer.mark()]
        for _ in range(20):
            for index in range(chunk):
                calls[index % len(calls)]()
            marks.append(timer.mark())
        state = query_device(timer.device)
        timer.synchronize()
    seconds = [timer.elapsed(*pair) / chunk for pair in itertools.pairwise(marks)]
    return summarize(seconds[10:], chunk) | {
        "first_seconds": seconds[0],
        "sm_clock_hertz": state.get("sm_clock_hertz"),
        "power_watts": state.get("power_watts"),
        "temperature_celsius": state.get("temperature_celsius"),
    }


def gemm_sustained_points(timer: Timer, skip: Callable[[str, str], None]) -> list[Point]:
    """Return the points of family "gemm_sustained": long runs, slowed by the power limit as training is.

    ``seconds`` is the median of the second half of the run, ``first_seconds`` is its first twentieth.
    """
    cases = [((8192, 8192, 8192), "bf16"), ((8192, 28672, 8192), "bf16"), ((8192, 4096, 16384), "bf16")]
    if supports_fp8(timer.device):
        cases.append(((8192, 8192, 8192), "fp8"))
    if not timer.on_gpu:
        cases = [((128, 128, 128), "fp32")]
    return [
        Point(
            dict(zip("mnk", shape, strict=True)) | {"dtype": dtype, "transpose": "nt"},
            functools.partial(time_sustained, timer, shape, dtype),
        )
        for shape, dtype in cases
    ]


def time_grouped(timer: Timer, groups: int, m: int, n: int, k: int, kernel: str) -> dict:
    """Time the products of several experts, each with ``m`` tokens."""
    calls: list[Call] = []
    with torch.no_grad():
        offsets = torch.arange(1, groups + 1, device=timer.device, dtype=torch.int32) * m
        for _ in range(timer.set_count(2 * groups * (m * k + n * k + m * n))):
            tokens = random_tensor((groups, m, k), "bf16", timer.device)
            weights = random_tensor((groups, n, k), "bf16", timer.device).transpose(1, 2)
            if kernel == "bmm":
                calls.append(functools.partial(torch.bmm, tokens, weights))
            else:
                calls.append(functools.partial(torch._grouped_mm, tokens.view(-1, k), weights, offs=offsets))
        return timer.measure(calls)


def grouped_gemm_points(timer: Timer, skip: Callable[[str, str], None]) -> list[Point]:
    """Return the points of family "grouped_gemm" (bf16, layout "nt", ``m`` tokens in every group)."""
    kernels = ["bmm"]
    if hasattr(torch, "_grouped_mm"):
        kernels.append("grouped")
    else:
        skip("grouped", "this PyTorch has no torch._grouped_mm")
    if timer.on_gpu:
        experts = [(8, 14336, 4096), (8, 4096, 14336), (16, 4096, 2048), (32, 4096, 7168), (32, 7168, 2048),
                   (64, 1536, 2048), (64, 2816, 2048), (4, 16384, 4096)]  # fmt: skip
        cases = [(groups, m, n, k) for groups, n, k in experts for m in (32, 128, 512, 2048)]
        cases = [case for case in cases if 2 * math.prod(case) < 8e12]
    else:
        cases = [(2, 16, 64, 32), (4, 32, 64, 32)]
    return [
        Point(
            {"groups": groups, "m": m, "n": n, "k": k, "dtype": "bf16", "transpose": "nt", "kernel": kernel},
            functools.partial(time_grouped, timer, groups, m, n, k, kernel),
        )
        for groups, m, n, k in cases
        for kernel in kernels
    ]


def unfused_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None):
    """Attention as separate kernels: product, scale, mask, softmax in fp32, product."""
    scores = torch.matmul(query, key.transpose(-2, -1)) * (1.0 / math.sqrt(query.shape[-1]))
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    return torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype), value)


def time_attention(timer: Timer, case: dict) -> dict:
    """Time one attention, forward or backward, on tensors stored as [batch, seq, heads, head_dim]."""
    batch, heads, kv_heads, seq = case["batch"], case["heads"], case["kv_heads"], case["seq"]
    head_dim, causal, backward = case["head_dim"], case["causal"], case["direction"] == "backward"
    backend = BACKENDS.get(case["kernel"])
    mask = None
    if backend is None and causal:
        mask = torch.ones(seq, seq, device=timer.device, dtype=torch.bool).triu(1)

    def new(count: int) -> torch.Tensor:
        stored = random_tensor((batch, seq, count, head_dim), "bf16", timer.device)
        return stored.transpose(1, 2).requires_grad_()

    def forward(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        if backend is None:
            return unfused_attention(query, key, value, mask)
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=causal, enable_gqa=kv_heads != heads
        )

    calls: list[Call] = []
    with sdpa_kernel(backend) if backend is not None else contextlib.nullcontext():
        for _ in range(timer.set_count(4 * batch * seq * head_dim * (heads + kv_heads))):
            inputs = (new(heads), new(kv_heads), new(kv_heads))
            if backward:
                output, gradient = forward(*inputs), new(heads).detach()
                calls.append(
                    functools.partial(torch.autograd.grad, output, inputs, gradient, retain_graph=True)
                )
            else:
                calls.append(functools.partial(forward, *inputs))
        return timer.measure(calls)


def attention_cases() -> list[tuple[str, int, int, int, int, int, bool]]:
    """Return (kernel, batch, heads, kv_heads, seq, head_dim, causal) for a GPU."""
    cases = []
    for head_dim, heads in ATTENTION_HEADS.items():
        for seq in (512, 1024, 2048, 4096, 8192, 16384, 32768):
            batch = max(16384 // seq, 1)
            cases.append(("flash", batch, heads, heads, seq, head_dim, True))
            if head_dim in (64, 128):
                cases.append(("cudnn", batch, heads, heads, seq, head_dim, True))
                if seq <= 4096:
                    cases.append(("unfused", max(batch // 2, 1), heads, heads, seq, head_dim, True))
                if seq in (512, 2048, 8192):
                    cases.append(("flash", batch, heads, heads, seq, head_dim, False))
                    cases.append(("cudnn", batch, heads, heads, seq, head_dim, False))
    for kernel in ("flash", "cudnn"):
        cases += [(kernel, max(8192 // seq, 1), 32, 8, seq, 128, True) for seq in (1024, 2048, 4096, 8192)]
        cases += [(kernel, 1, 8, 1, 8192, 128, True)]
    cases += [("flash", 1, heads, heads, seq, 128, True)
              for seq in (1024, 2048, 4096) for heads in (4, 8, 20, 32, 48, 64)]  # fmt: skip
    cases += [("flash", batch, 12, 12, 1024, 64, True) for batch in (1, 2, 4, 8)]
    cases += [("flash", 1, 4, 4, seq, 128, True) for seq in (16384, 32768)]
    cases += [("cudnn", 8, 12, 12, 2048, 192, True), ("cudnn", 1, 32, 32, 2048, 128, True)]
    cases += [("unfused", 1, 16, 16, 2048, 128, False), ("unfused", 2, 32, 32, 2048, 80, True)]
    return list(dict.fromkeys(cases))


def attention_points(timer: Timer, skip: Callable[[str, str], None]) -> list[Point]:
    """Return the points of family "attention" (bf16)."""
    if timer.on_gpu:
        cases = attention_cases()
    else:
        skip("flash and cudnn", "measured on GPUs only")
        cases = [("unfused", 1, 2, 2, seq, 32, causal) for seq in (32, 64) for causal in (True, False)]
    names = ("kernel", "batch", "heads", "kv_heads", "seq", "head_dim", "causal")
    points = []
    for case in cases:
        for direction in ("forward", "backward"):
            parameters = dict(zip(names, case, strict=True)) | {"direction": direction, "dtype": "bf16"}
            points.append(Point(parameters, functools.partial(time_attention, timer, parameters)))
    return points
