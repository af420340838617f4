"""How well constants as they are shipped are usually known, by measured runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibration.data.runs import source_of
from costmodel.description.run import Run
from costmodel.evaluation.estimation import estimate
from costmodel.text.errors import CostModelError

OF_EACH = 8
"""Runs of a source that are asked: a source counts once, however many it has."""


def usual_constants(cases: Sequence[Run]) -> float:
    """Standard deviation of the logarithm that errors of constants leave the step of a usual plan: the median over sources of
    that of their runs.

    Runs whose plans are refused today tell nothing.
    """
    sources: dict[str, list[Run]] = {}
    for case in cases:
        if case.seconds is not None:
            sources.setdefault(source_of(case), []).append(case)
    medians = []
    for runs in sources.values():
        places = np.unique(np.linspace(0, len(runs) - 1, OF_EACH).round().astype(int))
        known = [one for one in (_deviation(runs[place]) for place in places) if one is not None]
        if known:
            medians.append(float(np.median(known)))
    return float(f"{np.median(medians):.3g}")


def _deviation(case: Run) -> float | None:
    try:
        return estimate(case.model, case.cluster, case.plan, case.framework).slopes.deviation
    except CostModelError:
        return None
