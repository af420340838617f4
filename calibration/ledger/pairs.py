"""What campaigns of the same people have in common: the share of the error that cancels where two estimates are compared."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

import numpy as np

from calibration.data.runs import quantile_of_sources
from calibration.ledger.entries import Entry

LEVEL = 0.8
"""Share of the pairs that lie within the distance that is compared: so far out that no few sources in the middle decide."""
KINDS = ("device", "framework", "both")
"""In what two campaigns of one source differ."""


def shared(entries: Sequence[Entry]) -> dict[str, dict[str, float | int]]:
    """Of each kind of pair the share of the error's variance that both have in common, and of how many sources it is told.

    A campaign stands for the median residual of its runs. Two campaigns of other sources have nothing in common; how much closer
    those of one source lie tells the rest. Every source weighs the same, whatever the number of its campaigns.
    """
    medians = _medians(entries)
    pairs: dict[str, list[tuple[float, str]]] = {kind: [] for kind in (*KINDS, "apart")}
    for (one, first), (other, second) in itertools.combinations(medians.items(), 2):
        pairs[_kind(one, other)].append((abs(first - second), one.partition("/")[0]))
    apart = np.array([distance for distance, _ in pairs["apart"]])
    beyond = quantile_of_sources(apart, np.arange(len(apart)).astype(str), LEVEL)  # each pair by itself
    found: dict[str, dict[str, float | int]] = {}
    for kind in KINDS:
        distances, sources = (np.array(column) for column in zip(*pairs[kind], strict=True))
        near = quantile_of_sources(distances, sources, LEVEL)
        found[kind] = {"shared": round(max(0.0, 1.0 - (near / beyond) ** 2), 3), "sources": len(set(sources.tolist()))}
    return found


def _medians(entries: Sequence[Entry]) -> dict[str, float]:
    residuals: dict[str, list[float]] = {}
    for entry in entries:
        if entry.time is not None:
            residuals.setdefault(entry.campaign, []).append(entry.time)
    return {campaign: statistics.median(several) for campaign, several in residuals.items()}


def _kind(one: str, other: str) -> str:
    """In what two campaigns differ; each is named source/software/device."""
    (source, *software, device), (their_source, *their_software, their_device) = one.split("/"), other.split("/")
    if source != their_source:
        return "apart"
    if software == their_software:
        return "device"
    return "framework" if device == their_device else "both"
