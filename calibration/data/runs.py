"""Measured runs that constants are fitted to: records that the formulas take, and to whom each belongs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from costmodel.catalogue.loader import load_device
from costmodel.catalogue.records import read_records
from costmodel.catalogue.software import framework_names
from costmodel.description.device import Device
from costmodel.description.question import Question
from costmodel.description.run import Run
from costmodel.evaluation.own_runs_fit import Array
from costmodel.text.errors import CostModelError


def measured_runs(paths: Iterable[Path]) -> list[Run]:
    """Runs of some files of which something was measured and that the formulas take, whether or not a plan of theirs is legal."""
    runs = [one for path in paths for one in read_records(path) if isinstance(one, Run)]
    return [run for run in runs if is_measured(run) and is_described(run)]


def is_measured(run: Run) -> bool:
    """Whether a run has a time, a peak or a verdict."""
    return run.seconds is not None or run.peak_bytes is not None or run.ran is not None


def is_described(run: Run) -> bool:
    """Whether the formulas have numbers for a run: its device its dtype, and its degrees so many GPUs as there were."""
    try:
        question = Question(run.model, run.cluster, run.framework)
        question.inputs(run.plan)
        return question.resolved(run.plan).gpus == run.cluster.gpus
    except CostModelError:
        return False


def source_of(run: Run) -> str:
    """The source that a run's record is of: its name up to the last part."""
    return run.id.rpartition("/")[0] or run.campaign or "runs"


def source_weights(source: NDArray[np.str_], power: float = 1.0) -> Array:
    """Weights of rows by which each source counts alike, however many rows it has.

    With the power one half a source counts as the root of its rows.
    """
    _, index, counts = np.unique(source, return_inverse=True, return_counts=True)
    return (counts.astype(float) ** -power)[index]


def quantile_of_sources(values: Array, source: NDArray[np.str_], share: float) -> float:
    """The value below which a share of the rows lies, each source counting alike."""
    order, weight = np.argsort(values), source_weights(source)
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(values[order][min(int(np.searchsorted(reached, share)), len(values) - 1)])


def catalogue_has(run: Run) -> bool:
    """Whether a run's software is the catalogue's; other software runs by what comes near, and says nothing of that."""
    return run.framework.name in framework_names()


def untuned(run: Run) -> bool:
    """Whether it is one of a framework's own tests, with nothing tuned, whose host times are not a user's."""
    return bool(run.unexpressed.get("software.untuned", False))


def at_clocks(run: Run, wide: float, narrow: float) -> Device:
    """A run's device at the clocks that it sustains, on a machine as fast as that run's is beside others of its kind.

    The clocks are those in a training step over a short benchmark, of kernels of 16 bits (`wide`) and of products of 8 and 4
    (`narrow`).
    """
    device = run.cluster.device
    own = device.efficiency.sustained_clock / load_device(device.name).efficiency.sustained_clock
    efficiency = dataclasses.replace(device.efficiency, sustained_clock=own * wide, narrow_clock=own * narrow)
    return dataclasses.replace(device, efficiency=efficiency)
