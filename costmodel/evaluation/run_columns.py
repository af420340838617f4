"""Measured runs as columns: estimated all at once, and compared with one another all at once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.arithmetic.named_tuples import stacked
from costmodel.description.question import without_load
from costmodel.evaluation.engine import memory_bill
from costmodel.formulas import discrepancy, training_step
from costmodel.formulas.quantities import Inputs, Memory, ModelNumbers, OwnRun, Software

Array = NDArray[Any]
COMPARED = 128
"""Runs that are compared with all others at a time: their columns stay in a cache."""


class Stacked(NamedTuple):
    """Runs that all compress their gradients, or that don't: these take half as many operations."""

    places: Array  # of them, among all runs
    inputs: Inputs  # numbers that all of them share, and columns of those that they don't, a run a line
    bill: Memory  # their memory, which no constant of time changes


class RunColumns(NamedTuple):
    """Runs that are estimated and compared at once."""

    each: Sequence[Inputs]  # what the formula takes of each
    together: Sequence[Stacked]  # the runs, with those that are evaluated at once


def runs_of(each: Sequence[Inputs]) -> RunColumns:
    """Runs, ready to be estimated at once.

    Parameters
    ----------
    each : what the formula takes of each
    """
    found = []
    for places in _places(bool(one.settings.compression.kind) for one in each):
        inputs = stacked([each[place] for place in places])
        with np.errstate(divide="ignore", invalid="ignore"):  # the arm of `where` that is not taken
            found.append(Stacked(places, inputs, memory_bill(inputs)))
    return RunColumns(each, found)


def logarithms(runs: RunColumns, constants: Software) -> Array:
    """Logarithms of the runs' estimates; with rows of constants a column of them for each number of those.

    Parameters
    ----------
    runs : of `runs_of`
    constants : of the framework, one or several of each
    """
    width = max((np.size(number) for group in constants for number in group), default=1)
    found = np.empty((len(runs.each), width))
    with np.errstate(divide="ignore", invalid="ignore"):
        for places, inputs, bill in runs.together:
            found[places] = np.log(training_step.step(*inputs._replace(software=constants), bill).total)
    return found if width > 1 else found[:, 0]


def of_one_model(models: Sequence[ModelNumbers]) -> Iterator[Array]:
    """Places of the runs of each model, whatever the load of its experts, which is a run's."""
    return _places(map(without_load, models))


def in_common(one: Sequence[OwnRun | Inputs], other: Sequence[OwnRun | Inputs]) -> Array:
    """What runs of a model have in common of what is their plans' own, each of some with each of others.

    Parameters
    ----------
    one, other : runs of one model; lines and columns of what is found
    """
    found = np.empty((len(one), len(other)))
    settings, plans = stacked([run.settings for run in other], axis=1), stacked([run.plan for run in other], axis=1)
    for start in range(0, len(one), COMPARED):
        some = one[start : start + COMPARED]
        found[start : start + COMPARED] = discrepancy.correlation(
            some[0].model, stacked([run.settings for run in some]), stacked([run.plan for run in some]), settings, plans
        )
    return found


def common(runs: RunColumns) -> Array:
    """What every two runs have in common of what is their plans' own."""
    found = np.zeros((len(runs.each),) * 2)
    for places in of_one_model([one.model for one in runs.each]):
        some = [runs.each[place] for place in places]
        found[np.ix_(places, places)] = in_common(some, some)
    np.fill_diagonal(found, 1.0)
    return found


def _places(marks: Iterable[Hashable]) -> Iterator[Array]:
    """Places of what bears each mark."""
    known: dict[Hashable, list[int]] = {}
    for place, mark in enumerate(marks):
        known.setdefault(mark, []).append(place)
    return (np.array(places) for places in known.values())
