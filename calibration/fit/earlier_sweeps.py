"""Operators of the reference folder's single tables, as sweeps: products, flash attention with its backward pass, streams."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import costmodel
from calibration.data.micro import REPEATED, TRAINING, Sweep
from calibration.data.reference import DEFAULT_FOLDER
from calibration.fit.operators import DEVICE_NAMES, Operator, read_micro, rows_of

KINDS = {"gemm": "product", "stream": "stream"}
NEWEST = ("FlashAttention-3", "cuDNN")
"""Kernels of training on Hopper, of 16,384 tokens and a hidden size of 2,048 (Shah et al. 2024, arXiv 2407.08608, figure 5)."""
CLOCKS = {"b200-sxm": 0.8}
"""Of SimuMax's machines over others of their kind, by their products, as records of its runs have it (``cluster.clock``): what
attention takes at the usual clock. MooreThreads/SimuMax@4dcaae513b configs/system/b200_bf16_ceperm.json: 514 products of its own
machine take 1.40 times what they take on the B200 that the catalogue's was measured on in short bursts; part of that is what any
B200 loses in a step, 0.81 of its clock by other sources. Half way."""
KERNELS = Path(__file__).parents[1] / "reference" / "micro" / "attention_kernels.csv"
_ATTENTION = {"fwd": ("attention", 1.0), "bwd": ("attention backward", 2.5)}

Groups = dict[tuple[str, str, str], list[tuple[float, ...]]]
"""Rows of a table by kind, device and kernel: batch, heads, width, length, whether masked, time [s]."""


def read_earlier(folder: Path | None = None) -> list[Sweep]:
    """Sweeps of the tables that hold one source's operators each; none of those that the folder lacks.

    Parameters
    ----------
    folder : with a folder `micro` of CSV files; the optional one beside the checkout if not given
    """
    base = (folder or DEFAULT_FOLDER) / "micro"
    groups: dict[tuple[str, str, str, str], list[Operator]] = {}
    for operator in read_micro(base):
        passes = operator.family == "attention" and (operator.device != "a100-sxm-80gb" or not operator.parameters["backward"])
        if not passes:  # of the older kernels' passes only those count that are the newest on their device
            kind = KINDS.get(operator.family, "attention backward")
            groups.setdefault((kind, operator.device, operator.dtype, operator.source), []).append(operator)
    found = []
    for (kind, device, dtype, source), members in groups.items():
        columns = {name: np.array([op.parameters[name] for op in members]) for name in members[0].parameters}
        seconds = np.array([op.seconds for op in members])
        narrow = "bf16" if "bf16" in costmodel.load_device(device).dense_peak else "fp16"
        shared = dtype if kind == "product" else narrow  # which kind of number a stream moves makes no difference
        kernel = TRAINING if "attention" in kind else source.removesuffix(".csv")
        found.append(Sweep(kind, device, shared, kernel, columns, seconds, source))
    return found + _attention(base / "attention.csv") + _kernels(KERNELS)


def _attention(path: Path) -> list[Sweep]:
    """Passes of flash attention whose shapes the notes give, of which the rates count all keys, or a paper's figures."""
    groups: Groups = {}
    for row in rows_of(path):
        device, sizes = DEVICE_NAMES.get(row["gpu"]), dict(re.findall(r"(\w+)=(\d+)", row["notes"] or ""))
        if device is None or row["direction"] not in _ATTENTION:
            continue
        causal = row["causal"] != "False"
        if "qk_head_dim" in sizes:
            batch, seq_len, heads = (float(sizes[name]) for name in ("batch", "seq_len", "head_num"))
            width, timed = 0.5 * (float(sizes["qk_head_dim"]) + float(sizes["v_head_dim"])), TRAINING
            share = CLOCKS.get(device, 1.0)
        elif row["impl"] in NEWEST:
            seq_len, width = float(row["seq_len"]), float(row["head_dim"])
            batch, heads, share, timed = 16384.0 / seq_len, 2048.0 / width, 0.5 if causal else 1.0, f"{TRAINING} {REPEATED}"
        else:
            continue
        kind, products = _ATTENTION[row["direction"]]
        kernel = f"{'causal' if causal else 'full'} {timed}" if kind == "attention" else timed
        seconds = share * products * 4.0 * batch * heads * width * seq_len * seq_len / (float(row["tflops"]) * 1e12)
        groups.setdefault((kind, device, kernel), []).append((batch, heads, width, seq_len, float(causal), seconds))
    return _sweeps(groups, path.name)


def _kernels(path: Path) -> list[Sweep]:
    """Causal passes of cuDNN's attention, 64 or 128 heads at two sequences or one.

    NVIDIA/cudnn-frontend@3929da2 benchmark/sdpa_benchmark_training/results (cuDNN 9.19 and 9.22).
    """
    groups: Groups = {}
    for row in rows_of(path):
        kind, _ = _ATTENTION[row["direction"]]
        kernel = f"causal {TRAINING} {REPEATED}" if kind == "attention" else f"{TRAINING} {REPEATED}"
        batch, heads, seq_len = (float(row[name]) for name in ("batch", "heads", "seq_len"))
        width = 0.5 * (float(row["qk_head_dim"]) + float(row["v_head_dim"]))
        of_group = groups.setdefault((kind, row["device"], kernel), [])
        of_group.append((batch, heads, width, seq_len, 1.0, 1e-3 * float(row["milliseconds"])))
    return _sweeps(groups, path.name)


def _sweeps(groups: Groups, file: str) -> list[Sweep]:
    found = []
    for (kind, device, kernel), rows in groups.items():
        batch, heads, width, seq_len, masked, seconds = np.array(rows).T
        ones = np.ones(len(rows))
        columns = {
            "batch": batch, "heads": heads, "head_dim": width, "seq_len": seq_len, "window": 0.0 * ones, "causal": masked,
            "forward": 0.0 * ones, "backward": ones,
        }  # fmt: skip
        found.append(Sweep(kind, device, "bf16", kernel, columns, seconds, file))
    return found
