"""What predictions are worth: errors, verdicts on memory, quality of the ranking, coverage of the intervals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import kendalltau

from calibration.data.cases import Case

SMALLEST_GROUP = 4


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A case with what is predicted of it.

    Parameters
    ----------
    case : what ran
    seconds, seconds_low, seconds_high : step time and its 90 % interval [s]
    nbytes, nbytes_low, nbytes_high : peak memory of the kind that was measured, and its 90 % interval [bytes]
    fits : whether the plan is judged to run
    """

    case: Case
    seconds: float
    seconds_low: float
    seconds_high: float
    nbytes: float
    nbytes_low: float
    nbytes_high: float
    fits: bool


def error_summary(predicted: Sequence[float], measured: Sequence[float]) -> dict[str, object]:
    """Mean, median and 95th percentile of the absolute relative error, and its mean with sign (bias)."""
    if not len(measured):
        return {"n": 0, "mape": None, "median_ape": None, "p95_ape": None, "bias": None}
    error = np.asarray(predicted) / np.asarray(measured) - 1.0
    size = np.abs(error)
    return {
        "n": len(error), "mape": float(size.mean()), "median_ape": float(np.median(size)),
        "p95_ape": float(np.quantile(size, 0.95)), "bias": float(error.mean()),
    }  # fmt: skip


def group_key(case: Case) -> tuple[object, ...]:
    """What plans must share to be compared: model shape, GPUs, sequence length, global batch, precision."""
    model, plan = case.model, case.plan
    return (
        case.run.text["dataset"], model.layers, model.hidden, model.heads, model.feed_forward or model.expert_feed_forward,
        case.run.text["vocab"], model.experts, plan.gpus, plan.seq_len, plan.global_batch, case.run.text["compute_dtype"],
    )  # fmt: skip


def rule_order(case: Case) -> tuple[int, int]:
    """Sort key of the one-line rule: largest data-parallel degree, then largest micro-batch."""
    return -case.plan.copies, -case.plan.micro_batch


def rank_quality(predictions: Sequence[Prediction]) -> dict[str, object]:
    """How good the plan predicted fastest really is, group by group.

    Regret is the measured time of the chosen plan over the best measured one, minus one.
    """
    groups: dict[tuple[object, ...], list[Prediction]] = {}
    for prediction in predictions:
        if prediction.case.seconds is not None:
            groups.setdefault(group_key(prediction.case), []).append(prediction)
    regrets, rule, random, found, taus = [], [], [], [], []
    for members in groups.values():
        if len(members) < SMALLEST_GROUP:
            continue
        measured = np.array([float(p.case.seconds or math.nan) for p in members])
        predicted = np.array([p.seconds for p in members])
        best = measured.min()
        chosen = measured[int(predicted.argmin())]
        regrets.append(chosen / best - 1.0)
        found.append(bool(chosen == best))
        rule.append(float(min(members, key=lambda p: rule_order(p.case)).case.seconds or math.nan) / best - 1.0)
        random.append(measured.mean() / best - 1.0)
        tau = kendalltau(predicted, measured).statistic if np.ptp(measured) and np.ptp(predicted) else math.nan
        if not math.isnan(tau):
            taus.append(tau)
    if not regrets:
        empty = ("top1", "median_regret", "mean_regret", "rule_mean_regret", "random_mean_regret", "kendall_tau")
        return {"groups": 0, **dict.fromkeys(empty)}
    return {
        "groups": len(regrets), "top1": float(np.mean(found)), "median_regret": float(np.median(regrets)),
        "mean_regret": float(np.mean(regrets)), "rule_mean_regret": float(np.mean(rule)),
        "random_mean_regret": float(np.mean(random)), "kendall_tau": float(np.mean(taus)) if taus else None,
    }  # fmt: skip


def verdicts(predictions: Sequence[Prediction]) -> dict[str, int]:
    """Runs that ran out of memory and runs that ran, judged right and wrong, where the source says what they recompute."""
    count = {"oom_right": 0, "oom_wrong": 0, "ran_right": 0, "ran_wrong": 0}
    for prediction in predictions:
        if not prediction.case.run.text["recompute_kind"]:
            continue
        failed = prediction.case.run.flag("usable_oom")
        right = prediction.fits != failed
        count[f"{'oom' if failed else 'ran'}_{'right' if right else 'wrong'}"] += 1
    return count


def coverage(predictions: Sequence[Prediction]) -> dict[str, float | None]:
    """Share of measured values inside the 90 % interval."""
    time = [p.seconds_low <= p.case.seconds <= p.seconds_high for p in predictions if p.case.seconds is not None]
    memory = [p.nbytes_low <= p.case.peak_bytes <= p.nbytes_high for p in predictions if p.case.peak_bytes is not None]
    return {
        "time_90": float(np.mean(time)) if time else None,
        "memory_90": float(np.mean(memory)) if memory else None,
    }


def summary(predictions: Sequence[Prediction]) -> dict[str, object]:
    """Every figure about some predictions."""
    timed = [p for p in predictions if p.case.seconds is not None]
    held = [p for p in predictions if p.case.peak_bytes is not None]
    time = error_summary([p.seconds for p in timed], [float(p.case.seconds or 0) for p in timed])
    # throughput is inverse time: its error is reported because sources quote it
    throughput = error_summary([1 / p.seconds for p in timed], [1 / float(p.case.seconds or 1) for p in timed])
    return {
        "time": time,
        "throughput": throughput,
        "memory": error_summary([p.nbytes for p in held], [float(p.case.peak_bytes or 0) for p in held]),
        "verdicts": verdicts(predictions),
        "rank": rank_quality(predictions),
        "coverage": coverage(predictions),
    }
