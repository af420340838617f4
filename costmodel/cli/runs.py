"""What whole runs of some plans take, as columns beside the plans."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.text.errors import InvalidValue

if TYPE_CHECKING:
    from costmodel.evaluation.estimation import Estimate
    from costmodel.training.duration import TrainingRun


def runs_of(answers: Sequence[Estimate], arguments: argparse.Namespace) -> list[TrainingRun]:
    """Whole runs of some plans, by the arguments of `add_run`; none where no tokens were given."""
    if arguments.tokens is None:
        if arguments.price is not None:
            raise InvalidValue("price", arguments.price, "--tokens beside it, to tell what a run costs")
        return []
    from costmodel.training.cost import Tariff
    from costmodel.training.duration import time_to_train

    return [time_to_train(answer, tokens=arguments.tokens, tariff=Tariff(gpu_hour=arguments.price)) for answer in answers]


def run_columns(runs: Sequence[TrainingRun]) -> tuple[list[str], list[list[str]]]:
    """Titles and cells of what some runs take, each with its 90 % range."""
    cells, titles = [], ["days", "GPU-hours"]
    for run in runs:
        rows = amounts(run)
        titles = [name for name, *_ in rows]
        cells.append([f"{best} ({low}-{high})" for _, best, low, high in rows])
    return titles, cells


SMALLER = {"days": ("hours", 1.0 / 24.0), "MWh": ("kWh", 1e-3), "t CO2": ("kg CO2", 1e-3)}
"""Units that a short run is told in, and how much of the usual one each is."""
FEW = 2.0
"""Of a usual unit, up to which its smaller one is easier to read."""


def amounts(run: TrainingRun, alone: bool = False) -> list[tuple[str, str, str, str]]:
    """What a run takes: name, expected amount, and both ends of its 90 % range.

    Parameters
    ----------
    run : of a plan
    alone : it stands in no column with others: of a short one hours are told instead of days
    """
    from costmodel.training.duration import DAY

    times, costs = (run.time, *run.time_interval), (run.cost, *run.cost_interval)
    rows: list[tuple[str, float, float, float]] = []
    for name, field, unit in (
        ("days", "", DAY), ("GPU-hours", "gpu_hours", 1.0), ("price", "price", 1.0), ("MWh", "energy", 3.6e9),
        ("t CO2", "emissions", 1000.0),
    ):  # fmt: skip
        values = [getattr(one, field) for one in costs] if field else list(times)
        if alone and values[0] is not None and values[0] < FEW * unit and name in SMALLER:
            name, share = SMALLER[name]
            unit *= share
        if values[0] is not None:
            rows.append((name, values[0] / unit, values[1] / unit, values[2] / unit))
    return [(name, _shown(best), _shown(least), _shown(most)) for name, best, least, most in rows]


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"
