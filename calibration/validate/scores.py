"""How right predictions were, campaign by campaign: errors, coverage and width of intervals, verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from calibration.validate.judged import Judged
from costmodel.arithmetic.named_tuples import Row
from costmodel.evaluation.first_contacts import NINETY

MISS = 2.0 / 0.1
"""What a miss of a 90 % interval costs for each unit beyond it (Winkler 1972): two over what it may miss."""
Numbers = tuple[float, float, float, float]


def score(rows: Sequence[Numbers]) -> Row:
    """Errors and intervals of some figures.

    From measured, predicted, and both ends of the 90 % interval: mean and median of the relative error, bias (mean logarithm of
    measured over predicted), share that intervals hold, their width as a factor each way, and Winkler's score in logarithms.
    """
    if not rows:
        return {"n": 0, "mape": None, "median_ape": None, "bias": None, "coverage": None, "width": None, "winkler": None}
    measured, predicted, low, high = np.array(rows, dtype=float).T
    error = np.abs(predicted / measured - 1.0)
    y, least, most = np.log(measured), np.log(low), np.log(high)
    winkler = most - least + MISS * (np.maximum(least - y, 0.0) + np.maximum(y - most, 0.0))
    return {
        "n": len(rows), "mape": float(error.mean()), "median_ape": float(np.median(error)),
        "bias": float(np.mean(y - np.log(predicted))), "coverage": float(np.mean((y >= least) & (y <= most))),
        "width": float(np.exp(np.median(0.5 * (most - least)))), "winkler": float(winkler.mean()),
    }  # fmt: skip


def figures_of(rows: Sequence[Judged]) -> Row:
    """Time, memory and verdicts of some records; what is refused and did not run either is counted beside these.

    A run that ran out is told so where it isn't said to fit, one that ran only where it is. What may run out, being likelier to
    fit than not, is neither: of the runs that ran, those that were said not to fit are counted beside.
    """
    ended = [row.estimate.judgement for row in rows if row.out_of_memory and row.estimate is not None]
    ran = [row.estimate.judgement for row in rows if row.out_of_memory is False and row.estimate is not None]
    return {
        "rows": len(rows), "not_predicted": sum(bool(row.reason) for row in rows),
        "refused_and_failed": sum(bool(row.reason and row.out_of_memory) for row in rows),
        "time": score([_numbers(row.seconds) for row in rows if row.seconds and row.seconds[0] is not None]),
        "memory": score([_numbers(row.nbytes) for row in rows if row.nbytes and row.nbytes[0] is not None]),
        "verdicts": {
            "ran_out": len(ended), "ran_out_told": sum(said != "fits" for said in ended),
            "ran": len(ran), "ran_told": ran.count("fits"), "ran_refused": ran.count("does not fit"),
        },
    }  # fmt: skip


def _numbers(row: tuple[float | None, float, float, float] | None) -> Numbers:
    assert row is not None and row[0] is not None
    return row[0], row[1], row[2], row[3]


def report(rows: Sequence[Judged]) -> Row:
    """The figures of every campaign, their means over campaigns, and what isn't predicted, by reason."""
    groups: dict[str, list[Judged]] = {}
    for row in rows:
        groups.setdefault(row.campaign or "without a campaign", []).append(row)
    campaigns = {name: figures_of(members) for name, members in sorted(groups.items())}
    reasons: dict[str, int] = {}
    for row in rows:
        if row.reason:
            reasons[row.reason] = reasons.get(row.reason, 0) + 1
    total = figures_of(rows)
    for what in ("time", "memory"):
        total[f"{what}_over_campaigns"] = over_campaigns(campaigns.values(), what)
    return {"campaigns": campaigns, "total": total, "reasons": reasons, "unstated": unstated(rows)}


def over_campaigns(campaigns: Iterable[Row], what: str) -> Row:
    """Means of the time or the memory over campaigns that have it, each counted alike."""
    entries = [one[what] for one in campaigns if one[what]["n"]]
    if not entries:
        return {"campaigns": 0}

    def mean(key: str, of: Callable[[float], float] = float) -> float:
        return float(np.mean([of(entry[key]) for entry in entries]))

    return {
        "campaigns": len(entries), "mape": mean("mape"), "median_ape": float(np.median([entry["mape"] for entry in entries])),
        "bias": mean("bias"), "coverage": mean("coverage"), "least_coverage": min(entry["coverage"] for entry in entries),
        "width": math.exp(mean("width", math.log)), "winkler": mean("winkler"),
    }  # fmt: skip


def unstated(rows: Sequence[Judged]) -> dict[str, Row]:
    """Of each key that records leave unstated: how many do, and by what factor its statement would narrow their intervals."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.seconds is None:
            continue
        half = 0.5 * math.log(row.seconds[3] / row.seconds[2])
        for key, doubt in row.doubts.items():
            without = math.sqrt(max(half**2 - (NINETY * doubt.time) ** 2, 0.0))
            found.setdefault(key, []).append(half - without)
    return {key: {"rows": len(shares), "narrows": math.exp(float(np.mean(shares)))} for key, shares in sorted(found.items())}
