"""What a fit found as files of the catalogue: an effect a row, and how the errors of effects go together."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.data.runs import catalogue_has
from calibration.fit.fields import Field
from calibration.fit.pooled import Posterior
from costmodel.catalogue.effects import ANY, RunCounts, parts_of
from costmodel.catalogue.records.software import UNTUNED
from costmodel.description.run import Run


class Line(NamedTuple):
    """A row of the file of effects; the columns are those names."""

    constant: str
    low: float | str
    high: float | str
    level: str
    owner: str
    effect: float
    standard_error: float
    runs: int | str = ""
    correlated: int | str = ""


def effect_rows(
    fields: Sequence[Field], found: Posterior, owners: Mapping[str, NDArray[np.str_]], frameworks: Collection[str]
) -> tuple[list[Line], list[int]]:
    """Rows of the constants of a fit, and the place among its effects of each row that has an error that goes with others'.

    Of frameworks that the catalogue hasn't the effects serve nobody, as those of a cluster serve only its owner.
    """
    runs = {level: Counter(map(str, names)) for level, names in owners.items()}
    errors = np.sqrt(np.diag(found.covariance))
    rows: list[Line] = []
    correlated: list[int] = []

    def row(field: Field, level: str, owner: str, effect: float, error: float, count: int | str, place: int | None) -> None:
        low, high = (field.low, field.high) if level == "field" else ("", "")
        line = "" if place is None else len(correlated)
        rows.append(Line(field.path, low, high, level, owner, round(effect, 6), round(error, 4), count, line))
        if place is not None:
            correlated.append(place)

    for number, field in enumerate(fields):
        mine = [(place, effect) for place, effect in enumerate(found.effects) if effect.field == number]
        centre = field.link.to_line(field.prior)
        whole = next((place for place, effect in mine if effect.level == "field"), None)
        mean, error = (found.mean[whole], errors[whole]) if whole is not None else (0.0, field.spreads.get("field", 0.0))
        row(field, "field", "", centre + float(mean), float(error), len(owners["field"]), whole)
        for level in field.spreads:
            if level == "field":
                continue
            for place, effect in mine:
                if effect.level == level and level != "cluster" and _serves(level, effect.owner, frameworks):
                    count = runs[level][effect.owner]
                    row(field, level, effect.owner, float(found.mean[place]), float(errors[place]), count, place)
            row(field, level, ANY, 0.0, float(found.spreads.effects[number, level]), "", None)
    return rows, correlated


def _serves(level: str, owner: str, frameworks: Collection[str]) -> bool:
    return not level.startswith("framework") or parts_of(owner)[0] in frameworks


def correlation_lines(found: Posterior, correlated: Sequence[int]) -> str:
    """How the error of each correlated row goes with those before it, a line each."""
    errors = np.sqrt(np.diag(found.covariance))
    matrix = (found.covariance / np.outer(errors, errors))[np.ix_(correlated, correlated)]
    return "".join(json.dumps([_short(value) for value in line[:place]]) + "\n" for place, line in enumerate(matrix))


def _short(value: float) -> float:
    found = round(float(value), 4)
    return found if found else 0


def run_counts(cases: Iterable[Run], timed: Iterable[Run]) -> list[RunCounts]:
    """How many runs, and of them timed ones that were fitted to, there are of each framework on each device.

    What isn't the catalogue's runs by the habits of a framework, and says nothing of it.
    """
    counts: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for case in timed:
        device = case.cluster.device
        counts[case.framework.name.removesuffix(UNTUNED), device.architecture, device.name][0] += 1
    for case in filter(catalogue_has, cases):
        device = case.cluster.device
        known = counts[case.framework.name, device.architecture, device.name]
        known[1:] = [known[1] + 1, known[2] + bool(case.model.experts)]
    return [RunCounts(*who, *known) for who, known in sorted(counts.items())]
