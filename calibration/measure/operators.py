"""Families "gemm", "attention" and "copy": what constants of a device are fitted to.

In every "gemm" row the product is out[m, n] = sum over k, whichever operand is stored transposed:

- "nt": a[m, k] @ b[n, k]^T, a linear layer's forward (m tokens, n outputs, k inputs);
- "nn": a[m, k] @ b[k, n], its data gradient (m tokens, n inputs, k outputs);
- "tn": a[k, m]^T @ b[k, n], its weight gradient (m outputs, n inputs, k tokens).

Operands are normally distributed random values. "tf32" has fp32 operands on tensor cores, "fp32" is plain
IEEE; "fp8" is e4m3 times e4m3 with one fp32 scale per operand and a bf16 result. Attention is in bf16 and by
the kernels of PyTorch that keep no scores. A "copy" of ``nbytes`` within the device moves twice that.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from .timing import Call, Point, Timer

Shape = tuple[int, int, int]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}
HIDDEN, TENSOR, TOKENS = (1024, 2048, 4096, 5120, 8192, 12288), (1, 4, 8), (2048, 8192)
"""Widths of transformer layers, ranks that split them, and tokens."""
SKINNY = [
    (1, 4096, 4096), (8, 8192, 8192), (16, 4096, 4096), (64, 1024, 1024), (64, 4096, 4096), (128, 128, 128),
    (128, 4096, 1024), (256, 4096, 4096), (384, 1536, 512), (512, 512, 2048), (1024, 64, 4096), (4096, 8, 4096),
    (8192, 50304, 2048), (4096, 32000, 4096), (2048, 128256, 4096),
]  # fmt: skip
"""Products that no layer has: small, narrow, and of vocabularies."""
HEADS = {64: 32, 80: 24, 128: 16, 192: 12}
"""Heads for each width of a head."""
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "default": SDPBackend.MATH}


def layer_shapes() -> list[Shape]:
    """Return (m, n, k) of the linear layers of transformer layers, forward, and of squares."""
    shapes = []
    for hidden, ranks, tokens in itertools.product(HIDDEN, TENSOR, TOKENS):
        shapes += [(tokens, 3 * hidden // ranks, hidden), (tokens, hidden, hidden // ranks)]
        shapes += [(tokens, 4 * hidden // ranks, hidden), (tokens, hidden, 4 * hidden // ranks)]
    return shapes + [(size, size, size) for size in (256, 512, 1024, 2048, 4096, 8192, 16384)]


def boundary_shapes() -> list[Shape]:
    """Return shapes around tile and wave boundaries, one dimension varied at a time."""
    shapes = [(m, 4096, 4096) for m in range(1920, 2305, 64)]
    shapes += [(2048, n, 4096) for n in range(3968, 4353, 64) if n != 4096]
    return shapes + [(2048, 4096, k) for k in (64, 128, 256, 512, 1024, 2048, 4032, 4104, 4160)]


def random_tensor(shape: tuple[int, ...], dtype: str, device: torch.device) -> torch.Tensor:
    """Return a tensor of normally distributed values of the named data type ("fp8" is e4m3)."""
    if dtype == "fp8":
        return torch.randn(*shape, device=device, dtype=torch.bfloat16).to(torch.float8_e4m3fn)
    return torch.randn(*shape, device=device, dtype=DTYPES[dtype])


def product_call(timer: Timer, shape: Shape, dtype: str, transpose: str) -> Call:
    """Return a call of one matrix product on operands of its own."""
    m, n, k = shape
    left = random_tensor((k, m) if transpose[0] == "t" else (m, k), dtype, timer.device)
    right = random_tensor((n, k) if transpose[1] == "t" else (k, n), dtype, timer.device)
    left = left.t() if transpose[0] == "t" else left
    right = right.t() if transpose[1] == "t" else right
    if dtype == "fp8":
        one = torch.ones((), device=timer.device, dtype=torch.float32)
        scaled = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": True}
        return functools.partial(torch._scaled_mm, left, right, **scaled)
    return functools.partial(torch.mm, left, right, out=torch.empty(m, n, device=timer.device, dtype=left.dtype))


@contextlib.contextmanager
def product_precision(dtype: str) -> Iterator[None]:
    """Allow TF32 inside the context when ``dtype`` is "tf32"."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def time_product(timer: Timer, shape: Shape, dtype: str, transpose: str) -> dict:
    """Time one matrix product, on several sets of operands in turn."""
    m, n, k = shape
    width = {"fp8": 1, "bf16": 2, "fp16": 2}.get(dtype, 4)
    with torch.no_grad(), product_precision(dtype):
        count = timer.set_count(width * (m * k + n * k) + m * n * max(width, 2))
        return timer.measure([product_call(timer, shape, dtype, transpose) for _ in range(count)])


def product_points(timer: Timer, skip: Callable[[str, str], None]) -> list[Point]:
    """Return the points of family "gemm"."""
    if timer.on_gpu:
        layers, others = layer_shapes(), boundary_shapes() + SKINNY
        kinds = [(shape, "bf16", "nt") for shape in layers + others]
        for tokens, outputs, inputs in layers[::3]:
            kinds += [((tokens, inputs, outputs), "bf16", "nn"), ((outputs, inputs, tokens), "bf16", "tn")]
        kinds += [(shape, dtype, "nt") for dtype in ("fp16", "tf32", "fp32") for shape in layers[::10]]
        if torch.cuda.get_device_capability(timer.device) >= (8, 9):
            kinds += [(shape, "fp8", "nt") for shape in layers[::3]]
        else:
            skip("fp8", "needs compute capability 8.9")
    else:
        skip("fp8, fp16 and tf32", "measured on GPUs only")
        shapes = [(64, 64, 64), (128, 256, 64), (256, 128, 128)]
        kinds = list(itertools.product(shapes, ("bf16", "fp32"), ("nt", "nn", "tn")))
    return [
        Point({**dict(zip("mnk", kind[0], strict=True)), "dtype": kind[1], "transpose": kind[2]},
              functools.partial(time_product, timer, *kind))
        for kind in dict.fromkeys(kinds)
    ]  # fmt: skip


def time_attention(timer: Timer, case: dict) -> dict:
    """Time one attention, forward or backward, on tensors stored as [batch, seq, heads, head_dim]."""
    size = (case["batch"], case["seq"], case["heads"], case["head_dim"])

    def new() -> torch.Tensor:
        return random_tensor(size, "bf16", timer.device).transpose(1, 2).requires_grad_()

    calls: list[Call] = []
    with sdpa_kernel(BACKENDS[case["kernel"]]):
        for _ in range(timer.set_count(8 * new().numel())):
            inputs = (new(), new(), new())
            forward = functools.partial(F.scaled_dot_product_attention, *inputs, is_causal=case["causal"])
            if case["direction"] == "backward":
                output, gradient = forward(), new().detach()
                forward = functools.partial(torch.autograd.grad, output, inputs, gradient, retain_graph=True)
            calls.append(forward)
        return timer.measure(calls)


def attention_points(timer: Timer, skip: Callable[[str, str], None]) -> list[Point]:
    """Return the points of family "attention" (bf16)."""
    if timer.on_gpu:
        kernels, lengths = ("flash", "cudnn"), [2**power for power in range(9, 16)]
        sizes = [(max(16384 // seq, 1), heads, seq, width, True) for width, heads in HEADS.items() for seq in lengths]
        sizes += [(max(16384 // seq, 1), HEADS[width], seq, width, False) for width in (64, 128) for seq in lengths[::2]]
        sizes += [(1, heads, seq, 128, True) for seq in (1024, 2048, 4096) for heads in (4, 8, 20, 32, 64)]
    else:
        skip("flash and cudnn", "measured on GPUs only")
        kernels, sizes = ("default",), [(1, 2, seq, 32, causal) for seq in (32, 64) for causal in (True, False)]
    names = ("batch", "heads", "seq", "head_dim", "causal", "kernel", "direction")
    cases = [
        {**dict(zip(names, (*size, kernel, direction), strict=True)), "dtype": "bf16"}
        for size, kernel, direction in itertools.product(sizes, kernels, ("forward", "backward"))
    ]
    return [Point(case, functools.partial(time_attention, timer, case)) for case in cases]


def time_copy(timer: Timer, nbytes: int) -> dict:
    """Time one copy within the device."""
    new = functools.partial(torch.randint, 256, (nbytes,), dtype=torch.uint8, device=timer.device)
    pairs = [(new(), new()) for _ in range(timer.set_count(2 * nbytes))]
    return timer.measure([functools.partial(target.copy_, source) for target, source in pairs])


def copy_points(timer: Timer, skip: Callable[[str, str], None]) -> list[Point]:
    """Return the points of family "copy", 4 KiB to 4 GiB (16 MiB on a CPU)."""
    sizes = [1 << power for power in range(12, 33 if timer.on_gpu else 25, 2)]
    return [Point({"nbytes": nbytes}, functools.partial(time_copy, timer, nbytes)) for nbytes in sizes]
