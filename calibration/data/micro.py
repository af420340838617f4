"""Measured operators of the reference folder's sweeps, as columns: products, grouped products, attention, casts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibration.data.reference import DEFAULT_FOLDER, table_rows
from costmodel.arithmetic.named_tuples import Row
from costmodel.evaluation.own_runs_fit import Array
from costmodel.text.errors import UnreadableFile

DTYPES = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8-block", "nvfp4": "nvfp4"}
"""What a sweep calls a dtype, and its name here."""
OPERATIONS = {"allreduce": "all-reduce", "allgather": "all-gather", "reducescatter": "reduce-scatter", "alltoall": "all-to-all"}
"""What sweeps call a collective, in small letters without a stroke, and its name here."""
_NUMBERS = {
    "gemm_aic.csv": ("m", "n", "k", "latency_s"),
    "moe_aic.csv": ("num_tokens", "hidden", "expert_ffn", "topk", "experts", "expert_tp", "ep", "latency_s"),
    "attention_aic.csv": ("batch", "seq_len", "heads", "kv_heads", "head_dim", "window", "latency_s"),
    "quantize_aic.csv": ("m", "k", "latency_s"),
}
FILES = tuple(_NUMBERS)
SERVING, TRAINING, REPEATED = "serving", "training", "repeated"
"""What an attention kernel is for, in `Sweep.kernel` after its mask: prompts of one pass, or training; and whether its calls
followed each other so closely that nothing but the kernel was timed."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Operators of one kind and dtype that one collector measured on one device."""

    kind: str  # of `calibration.fit.devices.BY_KIND`, or ``"collective"``
    device: str  # id in the catalogue
    dtype: str  # of the operands
    kernel: str  # which implementation ran, where the source says it
    columns: Row  # sizes by name, arrays that formulas take as numbers
    seconds: Array  # measured
    file: str  # that they come from

    @property
    def label(self) -> str:
        """Kind, dtype and kernel."""
        return " ".join(part for part in (self.kind, self.dtype, self.kernel) if part)

    def flop(self) -> Array:
        """FLOP of each product, 0 of other kinds."""
        if self.kind != "product":
            return np.zeros(len(self.seconds))
        sizes = self.columns
        return np.asarray(2.0 * sizes["m"] * sizes["n"] * sizes["k"])


class Operator(NamedTuple):
    """One measured operator of the `Sweep` with its kind, device, dtype and kernel: sizes by name, and its time [s]."""

    kind: str
    device: str
    dtype: str
    kernel: str
    sizes: Mapping[str, float]
    seconds: float


def operation_of(word: str) -> str | None:
    """The collective that a sweep's word stands for; None where it is another."""
    return OPERATIONS.get(word.replace("_", "").lower())


def gathered(operators: Iterable[Operator], file: str) -> list[Sweep]:
    """Sweeps of operators, in the order in which their first ones come.

    Operators of one sweep have the same sizes.
    """
    groups: dict[tuple[str, str, str, str], list[Operator]] = {}
    for operator in operators:
        groups.setdefault(operator[:4], []).append(operator)
    return [
        Sweep(
            *key, {name: np.array([float(one.sizes[name]) for one in members]) for name in members[0].sizes},
            np.array([one.seconds for one in members]), file,
        )
        for key, members in groups.items()
    ]  # fmt: skip


def read_sweeps(folder: Path | None = None) -> list[Sweep]:
    """Every sweep of a reference folder; none of those whose file it lacks."""
    base = (folder or DEFAULT_FOLDER) / "micro"
    found = [sweep for file in FILES if (base / file).is_file() for sweep in _read(base / file)]
    if not found:
        raise UnreadableFile(f"{base}: holds none of {', '.join(FILES)}")
    return found


def _read(path: Path) -> Iterator[Sweep]:
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for row in table_rows(path):
        try:
            groups.setdefault((row["device"], row["dtype"], _kernel(row)), []).append(row)
        except KeyError as error:
            raise UnreadableFile(f"{path}: no column {error}") from error
    make = {
        "gemm_aic.csv": _products, "moe_aic.csv": _grouped, "attention_aic.csv": _attention, "quantize_aic.csv": _casts,
    }[path.name]  # fmt: skip
    for (device, dtype, kernel), rows in groups.items():
        if dtype not in DTYPES:
            raise UnreadableFile(f"{path}: dtype {dtype!r} is none of {', '.join(DTYPES)}")
        kind, columns = make(_columns(path, rows), rows)
        seconds = columns.pop("latency_s")
        yield Sweep(kind, device, DTYPES[dtype], kernel, columns, seconds, path.name)


def _kernel(row: dict[str, str]) -> str:
    if "mask" in row:
        return f"{row['mask']} {SERVING}"
    # the collector's plumbing is in front, the kernel's own name behind
    return row.get("kernel_source", "").rsplit("flashinfer_", 1)[-1].removeprefix("moe_torch_flow").strip("_")


def _columns(path: Path, rows: Iterable[dict[str, str]]) -> dict[str, Array]:
    try:
        columns = {name: np.array([float(row[name]) for row in rows]) for name in _NUMBERS[path.name]}
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableFile(f"{path}: not a sweep of operators: {error!r}") from error
    if not all(bool(np.all(values >= 0.0)) and math.isfinite(values.sum()) for values in columns.values()):
        raise UnreadableFile(f"{path}: a size or a time is negative or no number")
    if not np.all(columns["latency_s"] > 0.0):
        raise UnreadableFile(f"{path}: a time is not positive")
    return columns


def _products(columns: dict[str, Array], _: object) -> tuple[str, dict[str, Array]]:
    return "product", columns


def _casts(columns: dict[str, Array], _: object) -> tuple[str, dict[str, Array]]:
    return "cast", columns


def _attention(columns: dict[str, Array], rows: list[dict[str, str]]) -> tuple[str, dict[str, Array]]:
    causal = np.array([float(row["mask"] == "causal") for row in rows])
    return "attention", {**columns, "causal": causal}


def _grouped(columns: dict[str, Array], rows: list[dict[str, str]]) -> tuple[str, dict[str, Array]]:
    """Rows on the busiest rank and experts there, from the routing that the collector drew."""
    share = 1.0 / columns["ep"]
    drawn: dict[tuple[float, ...], float] = {}
    for place, row in enumerate(rows):
        if row["distribution"].startswith("power_law_"):
            exponent = float(row["distribution"].removeprefix("power_law_"))
            key = (exponent, *(columns[name][place] for name in ("experts", "ep", "num_tokens", "topk")))
            if key not in drawn:
                drawn[key] = busiest_share(*key)
            share[place] = drawn[key]
    gated = np.array([0.0 if "nongated" in row["kernel_source"] else 1.0 for row in rows])
    return "grouped product", {
        "tokens": columns["num_tokens"], "copies": columns["num_tokens"] * columns["topk"], "share": share,
        "groups": columns["experts"] / columns["ep"], "hidden": columns["hidden"],
        "width": columns["expert_ffn"] / columns["expert_tp"], "gated": gated, "latency_s": columns["latency_s"],
    }  # fmt: skip


def busiest_share(exponent: float, experts: float, ranks: float, tokens: float, chosen: float, draws: int = 24) -> float:
    """Share of all copies that the busiest rank receives where experts' loads follow a power law.

    The collector draws each expert's load from a bounded power law between 1 and 0.8 of the tokens and scales them to
    the copies there are; no expert receives a token twice.

    `exponent` is that of the density of loads, `chosen` the experts that a token meets; the mean of some draws counts.

    References
    ----------
    ai-dynamo/aiconfigurator collector/helper.py, ``power_law_logits_v3``

    Examples
    --------
    >>> 0.25 < busiest_share(1.2, 64.0, 4.0, 1024.0, 8.0) < 0.6
    True
    """
    chance, shares = np.random.default_rng(0), []
    power = 1.0 - exponent
    low, high = 1.0, max(0.8 * tokens, 2.0)
    for _ in range(draws):
        uniform = chance.random(int(experts))
        load = ((high**power - low**power) * uniform + low**power) ** (1.0 / power)
        load = np.minimum(load / load.sum() * tokens * chosen, tokens)
        shares.append(load.reshape(int(ranks), -1).sum(axis=1).max() / load.sum())
    return float(np.mean(shares))
