"""Measured operators of a device: from `measure`'s files and from the reference folder, and what formulas say of them."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from costmodel import Transformer
from costmodel.arithmetic.named_tuples import Row, nested, paths, replaced
from costmodel.evaluation.own_runs_fit import Array, Fit, UnknownConstant, fit
from costmodel.formulas import compute
from costmodel.formulas.quantities import DeviceNumbers, Number, Software
from costmodel.formulas.transformer import attention
from costmodel.text.errors import CostModelError, UnreadableFile

DEVICE_NAMES = {
    "NVIDIA H200": "h200-sxm", "NVIDIA H100 80GB HBM3": "h100-sxm", "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb", "NVIDIA A100 80GB PCIe": "a100-pcie-80gb", "NVIDIA B200": "b200-sxm",
    "Tesla V100-SXM2-32GB": "v100-sxm-32gb", "Tesla V100-SXM3-32GB": "v100-sxm3-32gb", "NVIDIA GB200": "gb200",
    "A100-PCIe": "a100-pcie-80gb", "A100-80GB-SXM4": "a100-sxm-80gb", "H100-80GB-SXM5": "h100-sxm",
    "B200-SXM": "b200-sxm", "A100-80GB": "a100-sxm-80gb", "A100-40GB": "a100-sxm-40gb", "H200": "h200-sxm",
    "V100": "v100-sxm-32gb", "V100-32GB": "v100-sxm-32gb",
}  # fmt: skip
"""What a driver or a source calls a device of the catalogue."""
ELEMENT_BYTES = {"bf16": 2.0, "fp16": 2.0, "tf32": 4.0, "fp32": 4.0, "fp8": 1.0}
FAMILIES = {
    "gemm": ("gemm.bf16", "gemm_output", "gemm_depth", "kernel_time"),
    "attention": ("attention_forward_efficiency", "attention_backward_efficiency", "attention_length"),
    "stream": ("memory_bandwidth",),
}
"""Constants that each family of operators identifies, and no other does."""
LEAST_ROWS = {"gemm": 5, "attention": 4, "stream": 2}
SPREAD = {
    "gemm": (0.3, 0.05, 1.0), "gemm_output": (1.5, 1e2, 1e8), "gemm_depth": (1.0, 1.0, 5e3),
    "kernel_time": (1.0, 1e-7, 1e-4), "attention_forward_efficiency": (0.5, 0.02, 1.0),
    "attention_backward_efficiency": (0.5, 0.02, 1.0), "attention_length": (1.0, 1.0, 1e5),
    "memory_bandwidth": (0.3, 1e9, 2e13),
}  # fmt: skip
LARGEST_SCATTER = 0.5
"""Typical log error of a fit beyond which the data can't be of the device."""
_FREE = dict.fromkeys(paths(Software), 1.0)


@dataclasses.dataclass(frozen=True)
class Operator:
    """One measured operator.

    Parameters
    ----------
    device : id in the catalogue
    family : one of `FAMILIES`
    parameters : sizes: m, n, k, element_bytes; or queries, heads, head_dim, seq_len, backward, forward; or nbytes
    dtype : of the operands
    seconds : measured
    source : file it comes from
    """

    device: str
    family: str
    parameters: dict[str, float]
    dtype: str
    seconds: float
    source: str


def read_measurement(path: Path) -> list[Operator]:
    """Operators of a file that `measure` wrote.

    Raises
    ------
    UnreadableFile
        where the file is no such file, or its device isn't in the catalogue
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        name = document["environment"]["device"]
        rows = document["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableFile(f"{path}: not a file of `calibration measure`: {error}") from error
    device = DEVICE_NAMES.get(name)
    if device is None:
        raise UnreadableFile(f"{path}: device {name!r} is not in the catalogue")
    try:
        operators = [_measured(device, row, path.name) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableFile(f"{path}: a row is not one of `calibration measure`: {error!r}") from error
    found = [operator for operator in operators if operator is not None]
    if any(not 0.0 < operator.seconds < math.inf for operator in found):
        raise UnreadableFile(f"{path}: a row has a time that is no positive number")
    return found


def _measured(device: str, row: Row, source: str) -> Operator | None:
    family, dtype, seconds = row["family"], row.get("dtype", "bf16"), float(row["seconds"])
    if family == "gemm" and dtype in ELEMENT_BYTES:
        sizes = {key: float(row[key]) for key in ("m", "n", "k")}
        return Operator(device, "gemm", {**sizes, "element_bytes": ELEMENT_BYTES[dtype]}, dtype, seconds, source)
    if family == "attention" and row.get("kernel") == "flash":
        sizes = {"batch": float(row["batch"]), "heads": float(row["heads"]), "head_dim": float(row["head_dim"]),
                 "seq_len": float(row["seq"]), "causal": float(row["causal"])}  # fmt: skip
        passes = {"forward": float(row["direction"] == "forward"), "backward": float(row["direction"] == "backward")}
        return Operator(device, "attention", {**sizes, **passes}, dtype, seconds, source)
    if family == "copy" and row.get("kind") == "device":
        return Operator(device, "stream", {"nbytes": 2.0 * float(row["nbytes"])}, dtype, seconds, source)
    return None


def read_micro(folder: Path) -> list[Operator]:
    """Operators in the reference folder's microbenchmarks: products, flash attention, streams."""
    operators: list[Operator] = []
    for row in rows_of(folder / "gemm.csv"):
        device = DEVICE_NAMES.get(row["gpu"])
        if device and row["dtype"] in ELEMENT_BYTES and row["m"] and float(row["achieved_tflops"]) > 0:
            m, n, k = (float(row[key]) for key in ("m", "n", "k"))
            batch = float(row["notes"].split("b=")[1].split(",")[0]) if "b=" in row["notes"] else 1.0
            seconds = 2 * batch * m * n * k / (float(row["achieved_tflops"]) * 1e12)
            if batch == 1.0:
                sizes = {"m": m, "n": n, "k": k, "element_bytes": ELEMENT_BYTES[row["dtype"]]}
                operators.append(Operator(device, "gemm", sizes, row["dtype"], seconds, "gemm.csv"))
    for row in rows_of(folder / "ops_aceso_v100.csv"):
        operators += _profiled_products(row)
    for row in rows_of(folder / "attention.csv"):
        device = DEVICE_NAMES.get(row["gpu"])
        kernels = ("FlashAttention-2", "FlashAttention-3")
        if not device or row["direction"] not in ("fwd", "fwd+bwd") or row["impl"] not in kernels:
            continue
        if device == "a100-sxm-80gb" or row["direction"] == "fwd+bwd":
            heads, seq_len = 2048.0 / float(row["head_dim"]), float(row["seq_len"])
            sizes = {"batch": 16384.0 / seq_len, "heads": heads, "head_dim": float(row["head_dim"]), "seq_len": seq_len,
                     "causal": float(row["causal"].lower() == "true"), "forward": 1.0,
                     "backward": float(row["direction"] == "fwd+bwd")}  # fmt: skip
            flop = 4 * 16384.0 * seq_len * 2048.0 * (0.5 if sizes["causal"] else 1.0)
            flop *= 3.5 if sizes["backward"] else 1.0
            seconds = flop / (float(row["tflops"]) * 1e12)
            operators.append(Operator(device, "attention", sizes, "bf16", seconds, "attention.csv"))
    for row in rows_of(folder / "membw.csv"):
        device = DEVICE_NAMES.get(row["gpu"])
        if device and row["kernel"] in ("scale", "triad") and row["occupancy_pct"] == "100.0":
            nbytes = 1e9
            operators.append(
                Operator(device, "stream", {"nbytes": nbytes}, "fp64", nbytes / (float(row["gb_per_s"]) * 1e9), "membw.csv")
            )
    return operators


LEAST_PROFILED = 3e-4
"""A profiled operator shorter than this shows its framework's launches, not the product [s]."""


def _profiled_products(row: dict[str, str]) -> list[Operator]:
    """Product in a profiled layer of a GPT, in 16 bit: of its MLP the first forward or the second backward.

    These two wait for no other rank. Their sizes follow from the bytes of the weights and of the output.
    """
    device = DEVICE_NAMES.get(row["gpu"])
    if not device or row["family"] != "gpt" or row["op"] not in ("enc-MLP-GEMM-1", "enc-MLP-GEMM-2"):
        return []
    first, tensor = row["op"] == "enc-MLP-GEMM-1", float(row["tp"])
    weights, outputs = (float(row[key]) * 2**20 / 2.0 for key in ("weights_mb", "activations_mb"))
    hidden = math.sqrt(weights * tensor / 4.0)
    inner = 4.0 * hidden / tensor
    # the backward pass of the second is two products of this size
    seconds = 1e-6 * (float(row["fwd_us"]) if first else 0.5 * float(row["bwd_us"]))
    if seconds < LEAST_PROFILED:
        return []
    sizes = {"m": outputs / (inner if first else hidden), "n": inner, "k": hidden, "element_bytes": 2.0}
    return [Operator(device, "gemm", sizes, "fp16", seconds, "ops_aceso_v100.csv")]


def rows_of(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file by column; none where there is no such file.

    Parameters
    ----------
    path : of the file
    """
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def predict(operator: Operator, device: DeviceNumbers) -> Number:
    """Seconds that the formulas say an operator takes.

    Parameters
    ----------
    operator : sizes may be columns
    device : `DeviceNumbers`
    """
    sizes = operator.parameters
    software = nested(Software, _FREE)
    if operator.family == "gemm":
        rate = device.flop_rate * device.gemm_efficiency
        return compute.gemm(sizes["m"], sizes["n"], sizes["k"], sizes["element_bytes"], rate, device)
    if operator.family == "attention":
        shape = Transformer(name="one layer", layers=1, hidden=64, heads=1, vocabulary=1, feed_forward=1).numbers()
        head_dim = sizes["head_dim"]
        wide = {"attention_heads": sizes["heads"], "attention_head_dim": head_dim, "attention_value_head_dim": head_dim}
        shape = replaced(shape, wide)
        causal = sizes["batch"] * sizes["seq_len"] * (2.0 - sizes["causal"])
        forward, backward = attention.flash(shape, causal, sizes["seq_len"], 1.0, 0.0, software, device)
        return sizes["forward"] * forward + sizes["backward"] * backward
    return compute.stream(sizes["nbytes"], 1.0, device)


def fit_operators(operators: Sequence[Operator], base: dict[str, DeviceNumbers]) -> Fit:
    """Fit the few constants of one device that a file of `measure` identifies.

    All constants of a device are fitted to the sweeps of the reference folder by `calibration.fit.devices.fit_device`.

    Parameters
    ----------
    operators : of one device
    base : the device's numbers before fitting, at each dtype met

    Raises
    ------
    CostModelError
        naming the constants that the data can't identify
    """
    families = {family: [op for op in operators if op.family == family] for family in FAMILIES}
    for family, members in families.items():
        if members and len(members) < LEAST_ROWS[family]:
            raise CostModelError(
                f"{len(members)} rows of family {family!r} can't identify {', '.join(FAMILIES[family])} of "
                f"{members[0].device}: at least {LEAST_ROWS[family]} are needed"
            )
    dtypes = sorted({op.dtype for op in families["gemm"]})
    some = next(iter(base.values()))
    constants: list[UnknownConstant] = []
    device = operators[0].device
    if families["gemm"]:
        constants += [UnknownConstant(device, f"gemm.{dtype}", base[dtype].gemm_efficiency, *SPREAD["gemm"]) for dtype in dtypes]
        constants += [UnknownConstant(device, field, getattr(some, field), *SPREAD[field]) for field in FAMILIES["gemm"][1:]]
    for family in ("attention", "stream"):
        if families[family]:
            constants += [UnknownConstant(device, field, getattr(some, field), *SPREAD[field]) for field in FAMILIES[family]]
    if not constants:
        raise CostModelError(f"no row of {device} identifies any constant; families known: {', '.join(FAMILIES)}")
    measured = np.log([op.seconds for op in operators])

    def residuals(values: Array, rows: Array | None) -> Array:
        given = dict(zip((constant.field for constant in constants), values, strict=True))
        shared = {field: value for field, value in given.items() if not field.startswith("gemm.")}
        chosen = range(len(operators)) if rows is None else rows
        out = np.empty(len(chosen))
        for place, row in enumerate(chosen):
            operator = operators[row]
            numbers = base.get(operator.dtype, some)._replace(**shared)
            if operator.family == "gemm":
                numbers = numbers._replace(gemm_efficiency=given[f"gemm.{operator.dtype}"])
            out[place] = np.log(predict(operator, numbers)) - measured[row]
        return out

    every = np.arange(len(operators))
    counts = {family: max(len(members), 1) for family, members in families.items()}
    weights = np.array([(100.0 / counts[op.family]) ** 0.25 for op in operators])
    result = fit(constants, residuals, len(operators), [every] * len(constants), weights, noise=0.05)
    if result.scale > LARGEST_SCATTER:
        raise CostModelError(
            f"operators of {device} scatter by {100 * result.scale:.0f} % around any constants: times in other units than "
            "seconds, or another device"
        )
    return result
