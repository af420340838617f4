"""Operators of the reference folder's single tables, as sweeps: products, flash attention with its backward pass, streams."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np

import costmodel
from calibration.data.micro import Sweep
from calibration.data.reference import DEFAULT_FOLDER
from calibration.fit.operators import DEVICE_NAMES, Operator, read_micro

KINDS = {"gemm": "product", "stream": "stream"}
_ATTENTION = {"fwd": ("attention", 1.0), "bwd": ("attention backward", 2.5)}


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
        found.append(Sweep(kind, device, shared, source.removesuffix(".csv"), columns, seconds, source))
    return found + _attention(base / "attention.csv")


def _attention(path: Path) -> list[Sweep]:
    """Passes of causal flash attention whose shapes the notes give; the rates count all keys."""
    groups: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            device, sizes = DEVICE_NAMES.get(row["gpu"]), dict(re.findall(r"(\w+)=(\d+)", row["notes"] or ""))
            if device is None or row["direction"] not in _ATTENTION or "qk_head_dim" not in sizes:
                continue
            kind, products = _ATTENTION[row["direction"]]
            batch, seq_len, heads = (float(sizes[name]) for name in ("batch", "seq_len", "head_num"))
            width = 0.5 * (float(sizes["qk_head_dim"]) + float(sizes["v_head_dim"]))
            flop = products * 4.0 * batch * heads * width * seq_len * seq_len
            groups.setdefault((kind, device), []).append((batch, heads, width, seq_len, flop / (float(row["tflops"]) * 1e12)))
    found = []
    for (kind, device), rows in groups.items():
        batch, heads, width, seq_len, seconds = np.array(rows).T
        ones = np.ones(len(rows))
        columns = {
            "batch": batch, "heads": heads, "head_dim": width, "seq_len": seq_len, "window": 0.0 * ones, "causal": ones,
            "forward": 0.0 * ones, "backward": ones,
        }  # fmt: skip
        kernel = "causal training" if kind == "attention" else "training"
        found.append(Sweep(kind, device, "bf16", kernel, columns, seconds, path.name))
    return found
