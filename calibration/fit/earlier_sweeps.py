"""Operators of the reference folder's single tables, as sweeps: products, flash attention with its backward pass, streams."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import costmodel
from calibration.data.micro import REPEATED, TRAINING, Operator, Sweep, gathered
from calibration.data.reference import DEFAULT_FOLDER, table_rows

DEVICE_NAMES = {
    "A100-PCIe": "a100-pcie-80gb", "A100-80GB-SXM4": "a100-sxm-80gb", "H100-80GB-SXM5": "h100-sxm", "B200-SXM": "b200-sxm",
    "A100-80GB": "a100-sxm-80gb", "A100-40GB": "a100-sxm-40gb", "H200": "h200-sxm", "V100": "v100-sxm-32gb",
    "V100-32GB": "v100-sxm-32gb",
}  # fmt: skip
"""Devices of the catalogue by what sources call them whose rows count."""
DTYPES = ("bf16", "fp16", "tf32", "fp32", "fp8")
NEWEST = ("FlashAttention-3", "cuDNN")
"""Kernels of training on Hopper; a paper's figures are of 16,384 tokens and a hidden size of 2,048 (Shah et al. 2024, figure 5;
arXiv 2407.08608)."""
PAPER_TOKENS, PAPER_HIDDEN = 16384.0, 2048.0
CLOCKS = {"b200-sxm": 0.8}
"""Of SimuMax's machines over others of their kind, by their products, as records of its runs have it (``cluster.clock``): what
attention takes at the usual clock. MooreThreads/SimuMax@4dcaae513b configs/system/b200_bf16_ceperm.json: 514 products of its own
machine take 1.40 times what they take on the B200 that the catalogue's was measured on in short bursts; part of that is what any
B200 loses in a step, 0.81 of its clock by other sources. Half way."""
KERNELS = Path(__file__).parents[1] / "reference" / "micro" / "attention_kernels.csv"
LEAST_PROFILED = 3e-4
"""A profiled operator shorter than this shows its framework's launches, not the product [s]."""
PASSES = {"fwd": ("attention", 1.0), "bwd": ("attention backward", 2.5), "fwd+bwd": ("attention backward", 3.5)}
"""Kind of a pass, and its products over those of the forward pass."""


def read_earlier(folder: Path | None = None) -> list[Sweep]:
    """Sweeps of the tables that hold one source's operators each; none of those that the folder lacks."""
    base = (folder or DEFAULT_FOLDER) / "micro"
    readers = (
        (_products, "gemm.csv"), (_profiled_products, "ops_aceso_v100.csv"), (_older_attention, "attention.csv"),
        (_streams, "membw.csv"), (_attention, "attention.csv"),
    )  # fmt: skip
    found = [sweep for read, name in readers for sweep in gathered(read(base / name), name)]
    return found + gathered(_kernels(KERNELS), KERNELS.name)


def narrow_dtype(device: str) -> str:
    """The 16-bit dtype of a device: which kind of number a stream moves makes no difference."""
    return "bf16" if "bf16" in costmodel.load_device(device).dense_peak else "fp16"


def attention_sizes(
    batch: float, heads: float, width: float, seq_len: float, causal: bool, forward: bool = False
) -> dict[str, float]:
    """Sizes of attention without a window, a pass by itself or, backward, with the forward pass."""
    return {
        "batch": batch, "heads": heads, "head_dim": width, "seq_len": seq_len, "window": 0.0, "causal": float(causal),
        "forward": float(forward), "backward": 1.0,
    }  # fmt: skip


def _of_devices(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Rows of devices that the catalogue has; none where there is no such file."""
    rows = table_rows(path) if path.is_file() else []
    return ((DEVICE_NAMES[row["gpu"]], row) for row in rows if row["gpu"] in DEVICE_NAMES)


def _products(path: Path) -> Iterator[Operator]:
    for device, row in _of_devices(path):
        batch = re.search(r"b=([\d.]+)", row["notes"])
        if row["dtype"] not in DTYPES or not row["m"] or float(row["achieved_tflops"]) <= 0 or (batch and float(batch[1]) != 1.0):
            continue
        sizes = {key: float(row[key]) for key in ("m", "n", "k")}
        seconds = 2 * math.prod(sizes.values()) / (float(row["achieved_tflops"]) * 1e12)
        yield Operator("product", device, row["dtype"], path.stem, sizes, seconds)


def _profiled_products(path: Path) -> Iterator[Operator]:
    """Products in profiled layers of a GPT, in 16 bit: of each MLP the first forward or the second backward.

    These two wait for no other rank. Their sizes follow from the bytes of the weights and of the output.
    """
    for device, row in _of_devices(path):
        if row["family"] != "gpt" or row["op"] not in ("enc-MLP-GEMM-1", "enc-MLP-GEMM-2"):
            continue
        first, tensor = row["op"] == "enc-MLP-GEMM-1", float(row["tp"])
        weights, outputs = (float(row[key]) * 2**20 / 2.0 for key in ("weights_mb", "activations_mb"))
        hidden = math.sqrt(weights * tensor / 4.0)
        inner = 4.0 * hidden / tensor
        # the backward pass of the second is two products of this size
        seconds = 1e-6 * (float(row["fwd_us"]) if first else 0.5 * float(row["bwd_us"]))
        if seconds >= LEAST_PROFILED:
            sizes = {"m": outputs / (inner if first else hidden), "n": inner, "k": hidden}
            yield Operator("product", device, "fp16", path.stem, sizes, seconds)


def _streams(path: Path) -> Iterator[Operator]:
    for device, row in _of_devices(path):
        if row["kernel"] in ("scale", "triad") and row["occupancy_pct"] == "100.0":
            seconds = 1e9 / (float(row["gb_per_s"]) * 1e9)
            yield Operator("stream", device, narrow_dtype(device), path.stem, {"nbytes": 1e9}, seconds)


def _timed(row: dict[str, str], device: str, kernel: str, sizes: dict[str, float], share: float = 1.0) -> Operator:
    """A pass whose rate counts a share of all keys."""
    kind, products = PASSES[row["direction"]]
    keys = sizes["batch"] * sizes["heads"] * sizes["head_dim"] * sizes["seq_len"] ** 2
    return _pass(kind, device, kernel, sizes, share * products * 4.0 * keys / (float(row["tflops"]) * 1e12))


def _pass(kind: str, device: str, kernel: str, sizes: dict[str, float], seconds: float) -> Operator:
    mask = "causal" if sizes["causal"] else "full"
    return Operator(kind, device, "bf16", f"{mask} {kernel}" if kind == "attention" else kernel, sizes, seconds)


def _paper_sizes(row: dict[str, str], causal: bool, forward: bool = False) -> dict[str, float]:
    seq_len, width = float(row["seq_len"]), float(row["head_dim"])
    return attention_sizes(PAPER_TOKENS / seq_len, PAPER_HIDDEN / width, width, seq_len, causal, forward)


def _older_attention(path: Path) -> Iterator[Operator]:
    """Of the older kernels those that are the newest on their device: both passes of FlashAttention 2 on an A100."""
    for device, row in _of_devices(path):
        if device == "a100-sxm-80gb" and row["direction"] == "fwd+bwd" and row["impl"] == "FlashAttention-2":
            sizes = _paper_sizes(row, row["causal"].lower() == "true", forward=True)
            yield _timed(row, device, TRAINING, sizes, 0.5 if sizes["causal"] else 1.0)


def _attention(path: Path) -> Iterator[Operator]:
    """Passes whose shapes the notes give, of which the rates count all keys, or a paper's figures."""
    for device, row in _of_devices(path):
        sizes, causal = dict(re.findall(r"(\w+)=(\d+)", row["notes"] or "")), row["causal"] != "False"
        if row["direction"] not in ("fwd", "bwd"):
            continue
        if "qk_head_dim" in sizes:
            batch, seq_len, heads = (float(sizes[name]) for name in ("batch", "seq_len", "head_num"))
            width = 0.5 * (float(sizes["qk_head_dim"]) + float(sizes["v_head_dim"]))
            of = attention_sizes(batch, heads, width, seq_len, causal)
            yield _timed(row, device, TRAINING, of, CLOCKS.get(device, 1.0))
        elif row["impl"] in NEWEST:
            yield _timed(row, device, f"{TRAINING} {REPEATED}", _paper_sizes(row, causal), 0.5 if causal else 1.0)


def _kernels(path: Path) -> Iterator[Operator]:
    """Causal passes of cuDNN's attention, 64 or 128 heads at two sequences or one.

    NVIDIA/cudnn-frontend@3929da2 benchmark/sdpa_benchmark_training/results (cuDNN 9.19 and 9.22).
    """
    for row in table_rows(path):
        kind, _ = PASSES[row["direction"]]
        batch, heads, seq_len = (float(row[key]) for key in ("batch", "heads", "seq_len"))
        width = 0.5 * (float(row["qk_head_dim"]) + float(row["v_head_dim"]))
        sizes = attention_sizes(batch, heads, width, seq_len, True)
        yield _pass(kind, row["device"], f"{TRAINING} {REPEATED}", sizes, 1e-3 * float(row["milliseconds"]))
