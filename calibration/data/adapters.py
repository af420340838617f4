"""Low-rank adapters as measured rows describe them: their kind, rank and the matrices that have one."""

from __future__ import annotations

import re

from calibration.data.datasets import dataset_of, words_of
from calibration.data.runs import Run
from costmodel.description.adapters import GROUPS

GPTQ, QUANTISED = re.compile(r"gptq"), re.compile(r"qlora|q-lora|bnb|nf4|4-bit")
"""Words of a base in GPTQ's 4 bits, and else of one in NF4."""
RANK = re.compile(r"\blora:? r(?:ank)?[ =]?(\d+)|\br=(\d+)|\blora r(\d+)")
NAMED = {
    "query": ("query",), "key": ("key",), "value": ("value",), "projection": ("output",), "mlp": GROUPS["mlp"],
}  # fmt: skip
"""Matrices by LitGPT's settings ``lora_query`` and so on; its ``lora_head`` has no counterpart here."""


def _words(run: Run) -> str:
    return " ".join((run.text["model_name"], run.text["framework"], run.text.get("derived", ""), words_of(run))).lower()


def kind(run: Run) -> str:
    """Kind of the adapter that a row trains, as a plan names it.

    Parameters
    ----------
    run : a row
    """
    words = words_of(run)
    added = "(cumulative)" in words and "lora" in words
    if not (run.flag("adapter_tuning") or added):
        return "none"
    said = f"{run.text['model_name']} {run.text['framework']} {words if added else ''}".lower()
    if GPTQ.search(said):
        return "gptq-lora"
    return "qlora" if QUANTISED.search(said) else "lora"


def rank(run: Run) -> int | None:
    """Rank that a row states.

    Parameters
    ----------
    run : a row
    """
    found = RANK.search(_words(run))
    return int(next(group for group in found.groups() if group)) if found and kind(run) != "none" else None


def targets(run: Run) -> tuple[str, ...] | None:
    """Matrices that have an adapter, where the row or its source says so.

    Parameters
    ----------
    run : a row
    """
    if kind(run) == "none":
        return None
    words = _words(run)
    named = [matrix for name, matrices in NAMED.items() if f"{name}=true" in words for matrix in matrices]
    of_source = dataset_of(run).lora_targets if run.text["stack"] != "fsdp2" else ()
    return tuple(named) or of_source or None
