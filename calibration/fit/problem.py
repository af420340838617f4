"""Measured runs as rows of the pooled fit: to whom each belongs, and what is predicted of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from calibration.data.runs import source_of, untuned
from calibration.fit.fields import CLOCKS, MEMORY, TIME, Field
from calibration.fit.pooled import Grouping, Model
from costmodel.arithmetic.named_tuples import as_number, flat, nested, replaced
from costmodel.catalogue.records.software import UNTUNED
from costmodel.compilation import programs
from costmodel.description.question import Question
from costmodel.description.run import Run
from costmodel.evaluation.counted_memory import Count, counted_columns
from costmodel.evaluation.engine import unflatten
from costmodel.evaluation.own_runs_fit import Array
from costmodel.formulas.quantities import DeviceNumbers, Inputs, Step

ROWS_OF_GROUP = 40
TIME_FREEDOM = 2.0
"""Degrees of freedom of the scatter of step times: of 1 to 4, those with which plans that are publicly known to be good come out
as their reports say, at errors that are alike at all distances (8.9 to 9.0 % at a new model)."""


def evaluated(columns: Inputs) -> Step:
    """Every part of every run's step."""
    program = programs.every_part_of_runs()
    count = len(np.asarray(columns.model.layers))
    return unflatten(list(programs.results_of(program.parts["rows"], programs.scalars_of(program, columns), columns, count)))


def columns_of(runs: Sequence[Run]) -> Inputs:
    """Everything that formulas take, one entry a run."""
    table = [flat(Question(run.model, run.cluster, run.framework).inputs(run.plan)) for run in runs]
    return nested(Inputs, {path: np.array([row[path] for row in table], dtype=float) for path in table[0]})


def logged_memory(runs: Sequence[Run], columns: Inputs) -> Array:
    """Peak bytes as each run counted them."""
    counts = [Count(run.memory_kind, run.memory_of) for run in runs]
    return counted_columns(columns, np.asarray(columns.device.memory, dtype=float), counts)


def cluster_name(run: Run) -> str:
    """The machine that a run was made on, as far as its record tells: whose, its device, its NICs and their kind."""
    between = run.cluster.levels[-1]
    return f"{run.campaign}|{run.cluster.device.name}|{between.bandwidth:.3g}|{between.name}"


def framework_owner(run: Run) -> str:
    """The owner of a framework's effects: apart is one as its own tests run it, with nothing tuned."""
    return f"{run.framework.name.removesuffix(UNTUNED)} untuned" if untuned(run) else run.framework.name


def memory_owner(run: Run) -> str:
    """The owner of a framework's effects on memory: a trainer of a source's own has its own buffers and temporaries,
    whosever schedule and kernels it runs by."""
    return str(run.unexpressed.get("software.trainer", framework_owner(run)))


def model_name(case: Run) -> str:
    """The model of a row by its shape."""
    model = case.model
    width = model.expert_feed_forward if model.experts else model.feed_forward
    return f"{model.layers}x{model.hidden}x{model.heads}x{width}x{model.experts}"


def group_name(run: Run) -> str:
    """Campaign, model, dtype and release of a run."""
    return "|".join((run.campaign, model_name(run), str(run.plan.dtype), run.release))


def grouping_of(cases: Sequence[Run], owner: Callable[[Run], str] = framework_owner) -> Grouping:
    """To whom each case belongs; `owner` says to which framework's effects."""
    framework = np.array([owner(case) for case in cases])
    architecture = np.array([case.cluster.device.architecture for case in cases])
    cluster = np.array([cluster_name(case) for case in cases])
    owners = {
        "field": np.full(len(cases), ""), "framework": framework, "architecture": architecture,
        "framework on architecture": np.char.add(np.char.add(framework, "@"), architecture), "cluster": cluster,
        "device": np.array([case.cluster.device.name for case in cases]),
    }  # fmt: skip
    return Grouping(
        owners, cluster, np.array([group_name(case) for case in cases]), np.array([source_of(case) for case in cases])
    )


def constants_of(fields: Sequence[Field], places: Array) -> dict[str, Array]:
    """Columns of the constants at places on their lines."""
    found = {}
    for number, field in enumerate(fields):
        place = np.clip(places[:, number], -40.0, 40.0)
        span = np.exp(place) if math.isinf(field.high) else (field.high - field.low) / (1.0 + np.exp(-place))
        found[field.path] = field.low + span
    return found


def clocked(device: DeviceNumbers, clocks: Sequence[Array | float]) -> DeviceNumbers:
    """Devices at shares of the clock of short bursts, numbers or columns, as `calibration.fit.fields.CLOCKS` orders them."""
    wide, narrow = clocks
    return device._replace(
        sustained_clock=as_number(device.sustained_clock * wide), narrow_clock=as_number(device.narrow_clock * narrow)
    )


def columns_at(columns: Inputs, fields: Sequence[Field], places: Array) -> Inputs:
    """The columns with the constants at some places."""
    constants = constants_of(fields, places)
    clocks = [constants.pop(clock) for clock in CLOCKS if clock in constants]
    device = clocked(columns.device, clocks) if clocks else columns.device
    return columns._replace(software=replaced(columns.software, constants), device=device)


def take(columns: Inputs, rows: Array) -> Inputs:
    """Some rows of the columns."""

    return nested(Inputs, {path: np.asarray(column)[rows] for path, column in flat(columns).items()})


def time_model(cases: Sequence[Run], columns: Inputs | None = None, fields: Sequence[Field] = TIME) -> Model:
    """Timed cases as a model of the logarithm of their step time.

    The columns say the constants that aren't fitted.
    """
    known = columns or columns_of(cases)

    def predict(places: Array, rows: Array | None) -> Array:
        some = known if rows is None else take(known, rows)
        return np.log(np.asarray(evaluated(columns_at(some, fields, places)).total))

    return Model(fields, grouping_of(cases), np.log([float(case.seconds or math.nan) for case in cases]), predict, TIME_FREEDOM)


def memory_model(cases: Sequence[Run], columns: Inputs | None = None) -> Model:
    """Cases with a peak as a model of its logarithm.

    What ran and what ran out of memory is no row: a verdict says nothing of how much was held.
    """
    known = columns or columns_of(cases)

    def predict(places: Array, rows: Array | None) -> Array:
        chosen = np.arange(len(cases)) if rows is None else rows
        at = columns_at(take(known, chosen), MEMORY, places)
        return np.log(logged_memory([cases[int(row)] for row in chosen], at))

    peaks = np.log([float(case.peak_bytes or math.nan) for case in cases])
    return Model(MEMORY, grouping_of(cases, memory_owner), peaks, predict)


def counted_otherwise(cases: Sequence[Run]) -> list[Run]:
    """Cases again, with what the allocator or the process held in place of what tensors did, where both are known."""
    found = []
    for case in cases:
        for kind, peak in (("reserved", case.peak_reserved), ("process", case.peak_process)):
            if peak is not None and case.peak_bytes is not None and kind != case.memory_kind:
                found.append(dataclasses.replace(case, peak_memory=peak, memory_kind=kind))
    return found


def thinned(grouping: Grouping, most: int = ROWS_OF_GROUP) -> Array:
    """Rows that are fitted: of a group with more than `most` an even draw, by a fixed seed.

    Rows of a group share their intercept, so that those beyond some tens say little more of the constants.
    """
    order = np.random.default_rng(11).permutation(len(grouping.group))
    seen: dict[str, int] = {}
    kept = []
    for row in order:
        name = str(grouping.group[row])
        seen[name] = seen.get(name, 0) + 1
        if seen[name] <= most:
            kept.append(row)
    return np.sort(np.array(kept))
