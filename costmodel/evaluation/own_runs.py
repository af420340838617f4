"""Calibrate on one's own runs: a handful of measured steps moves the catalogue's constants and narrows the error."""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from costmodel.arithmetic.named_tuples import flat, made, paths, replaced
from costmodel.catalogue.loader import load_model
from costmodel.catalogue.software import framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.description.transformer import Transformer
from costmodel.evaluation.error_model import covariance_of
from costmodel.evaluation.run_columns import (
    Array,
    RunColumns,
    common,
    in_common,
    logarithms,
    of_one_model,
    runs_of,
)
from costmodel.formulas.quantities import OwnRun, Software
from costmodel.text.checks import kind, listing, plain
from costmodel.text.csv_files import read_csv
from costmodel.text.errors import CostModelError, InvalidValue, UnreadableFile
from costmodel.text.results import brief

SLOWER = {
    "compute_gemm_efficiency_scale": -1.0, "compute_attention_efficiency_scale": -1.0, "compute_elementwise_traffic": 1.0,
    "compute_optimizer_traffic": 1.0, "host_pace": 1.0, "host_collective_launch": 1.0, "network_quality": -1.0,
    "network_latency": 1.0, "network_node_latency": 1.0,
}  # fmt: skip
"""Powers of a cluster's common factor in the constants: with all of them, every part of a step takes that much longer."""
LARGEST = {path: 1.0 for path in paths(Software) if path.startswith("overlap_")}
FARTHEST = 8.0
"""A measured step farther than this from its estimate is a mistake in units, or another run."""
COMMON, MODEL_SPREAD, SCATTER, PLAN_SPREAD = 0.16, 0.06, 0.03, 0.042
"""Standard deviations, in logarithms, of what clusters have in common for all runs, of what is a model's own there, of runs
of one plan, and of what is a plan's own, which plans like it share: cross-validation by source shows them (`python -m
calibration validate --own-runs`)."""
ALONE, BELIEF = 0.179, 0.4
"""Standard deviation of the runs of one model about what they have in common, as long as there is but one; and the number of
runs that this counts as beside others. On most clusters runs scatter by a third of it, on some by twice as much, which one run
can't tell and two that agree can (cross-validation as above)."""
OUTLIER = 0.2
"""Error in its logarithm beyond which a run among others is taken for a mistake rather than for what its plan is like."""
USUAL, SURPRISE = 0.6, 1.0
"""Of what is believed before the runs: its spread on a usual cluster over the spread over all clusters, and the degrees of
freedom of its tails. Runs that lie near their estimates may do so by their scatter, and move little; runs that lie far say that
the cluster is another one, and are believed (Lange, Little and Taylor 1989; cross-validation as above)."""
TAILS = 4.0
"""Degrees of freedom of a run's scatter: one that disagrees with the others loses its weight."""
DISAGREES = 3.0
"""Standard deviations from what the other runs say of a run beyond which it is flagged."""
LEAST_OTHERS = 2
"""Other runs that it takes to say that one disagrees."""
JUDGED, MOST_REFITTED = 8, 10_000
"""Runs that are judged by the others at a time, and how many the calibrations for that may have together."""
ROUNDS = 12
SETTLED = 1e-3
"""Largest change of a constant's logarithm in a round after which there is nothing more to find."""
SHORTER = (1.0, 0.5, 0.25, 0.1)
"""Shares of a round's step, of which the first that betters the fit is taken: steps have maxima, which turn slopes around."""
STEP = 1e-3
if TYPE_CHECKING:
    import pandas
    import polars

    Frame: TypeAlias = pandas.DataFrame | polars.DataFrame



class UnfinishedWarning(UserWarning):
    """What goes beside an answer was left off for the work that it would take."""


Run = tuple[Transformer, Plan, float]
SECONDS = "step_time_s"
"""Column of a table of runs with the measured time; ``model`` has the model's name, all others are fields of `Plan`."""
MOST_RUNS = 2000
"""Runs that a calibration takes: every two of them are compared, and a cluster's constants are told long before."""
WORDS: dict[str, bool | None] = {"true": True, "false": False, "none": None, "": None}


def calibrate(
    cluster: Cluster, runs: Sequence[Run] | str | Path | Frame, framework: Framework | str = "megatron-core"
) -> Cluster:
    """A cluster whose constants are fitted to measured steps, the catalogue's serving as prior.

    Parameters
    ----------
    cluster : on which the runs were made
    runs : measured steps: model, plan and seconds of each; or the path of a CSV file with one run a row, or a frame of
        pandas or polars with the same columns: ``model`` (a name in the catalogue or the path of a file that describes
        one), ``step_time_s``, and any fields of `Plan`, of which ``global_batch`` and ``seq_len`` are needed. An empty
        cell is the field's default
    framework : with which they were made, or its name

    Returns
    -------
    Cluster
        the same with `frameworks` holding the calibrated one, which `estimate` and `search` take when asked for its
        name; its `time_error` is what the runs leave unknown of the constants, with the spread of models and of runs, its
        `own_runs` what they say of plans like theirs. A cluster that is calibrated already keeps what it was told, but not
        how sure that is: better give all runs at once

    Raises
    ------
    InvalidValue
        for a time that is no positive number, or that is out of all proportion to the estimate
    CostModelError
        where no run can be used
    IllegalPlan
        where a run's plan can't run on this cluster's kind

    Notes
    -----
    The constants move together, by the covariance that calibration found for them, and with them a factor that all steps of a
    cluster have in common; what is believed of both has heavy tails. Runs of one model share what is that model's own, so
    that they don't outvote a run of another. By how much runs scatter is what they show: of one alone a good part may be its
    own, several that agree are believed. A run that disagrees with the others loses its weight, and `influences` names it;
    `next_run` says what to measure next. What constants leave of a run stays with its model and with plans like its own
    (`costmodel.formulas.discrepancy`).

    Examples
    --------
    Two steps that took a tenth longer than the catalogue says:

    >>> import costmodel
    >>> model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    >>> plans = [costmodel.Plan(global_batch=64, seq_len=4096, data_parallel=8, micro_batch=b) for b in (1, 2)]
    >>> runs = [(model, plan, 1.1 * costmodel.estimate(model, cluster, plan).step_time) for plan in plans]
    >>> mine = costmodel.calibrate(cluster, runs)
    >>> after = costmodel.estimate(model, mine, plans[0]).step_time
    >>> bool(abs(after / runs[0][2] - 1) < 0.02)
    True
    """
    kind("cluster", cluster, Cluster, "load_cluster(name)")
    software = framework_on(cluster, framework)
    measured = read_runs(runs)
    if not measured:
        raise CostModelError("calibrate: no runs given")
    for _, _, seconds in measured:
        if not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds <= 0:
            raise InvalidValue("seconds", seconds, "a positive number")
    for model, plan, _ in measured:
        here = plan.on(cluster)
        here.check(model, cluster.with_gpus(here.gpus), software)
    asked = _asked(cluster, software, measured)
    priors = np.exp(logarithms(asked, software.constants) + _told(software.own_runs, asked))
    for (_, _, seconds), prior in zip(measured, priors.tolist(), strict=True):
        if not 1.0 / FARTHEST < seconds / prior < FARTHEST:
            raise InvalidValue("seconds", seconds, f"a time within {FARTHEST:g} times {prior:.4g} s, which is estimated")
    constants, found = _fitted(software, _times(measured), asked)
    calibrated = dataclasses.replace(software, constants=constants, time_error=found.spread, own_runs=found.own_runs, owner="")
    return dataclasses.replace(cluster, frameworks={**cluster.frameworks, software.name: calibrated})


@dataclasses.dataclass(frozen=True)
class Influence:
    """What one measured run does.

    Parameters
    ----------
    run : its place among the runs
    before, after : log(measured / estimated) by the framework as it was, and as it is calibrated
    weight : that it kept: 1, and less the more it disagrees with the others
    moved : the constant that it moved most, by its path
    by : factor on that constant
    disagrees : whether it is too far from what the others say
    """

    run: int
    before: float
    after: float
    weight: float
    moved: str
    by: float
    disagrees: bool

    __repr__ = brief


def influences(
    cluster: Cluster, runs: Sequence[Run] | str | Path | Frame, framework: Framework | str = "megatron-core"
) -> list[Influence]:
    """What each run changes when a cluster is calibrated on all of them.

    Parameters
    ----------
    cluster, runs, framework : as `calibrate` takes them

    Raises
    ------
    CostModelError
        as `calibrate`
    """
    software = framework_on(cluster, framework)
    measured = read_runs(runs)
    if not measured:
        raise CostModelError("influences: no runs given")
    asked, times = _asked(cluster, software, measured), _times(measured)
    _, update = _fitted(software, times, asked)
    disagreeing = _disagreeing(software, times, asked)
    earlier = times - _told(software.own_runs, asked) - logarithms(asked, software.constants)
    found = []
    for place, before in enumerate(map(float, earlier)):
        push = update.gain[:, place] * before
        most = int(np.abs(push).argmax())
        name = update.fields[most] if most < len(update.fields) else "common factor of the cluster"
        after, weight = float(update.errors[place]), float(update.weights[place])
        found.append(Influence(place, before, after, weight, name, math.exp(push[most]), place in disagreeing))
    return found


def _disagreeing(software: Framework, times: Array, asked: RunColumns) -> set[int]:
    """Places of the runs that are too far from what the others say: the farthest first, and the rest judged without it.

    A run far from what the others say is far from what all say, too, where it loses its weight: only those are judged.
    """
    left, work = list(range(len(times))), MOST_REFITTED
    apart: set[int] = set()

    def without(gone: int) -> float:
        others = [place for place in left if place != gone]
        constants, told = _fitted(software, times[others], _some(asked, others))
        alone = _some(asked, [gone])
        expected = logarithms(alone, constants)[0] + _told(told.own_runs, alone)[0]
        return abs(float(times[gone] - expected)) / told.spread

    while len(left) > LEAST_OTHERS:
        judged = left
        if len(left) > JUDGED:
            _, told = _fitted(software, times[left], _some(asked, left))
            judged = [left[place] for place in np.argsort(-np.abs(told.errors), kind="stable")[:JUDGED]]
        work -= len(judged) * len(left)
        if work < 0:
            left_out = f"influences: {len(times)} runs are too many to judge each by all others: {len(apart)} that disagree"
            warnings.warn(f"{left_out} are found, there may be more", UnfinishedWarning, stacklevel=3)
            break
        far = {place: without(place) for place in judged}
        farthest = max(judged, key=lambda place: far[place])
        if far[farthest] <= DISAGREES:
            break
        left.remove(farthest)
        apart.add(farthest)
    return apart


def _some(asked: RunColumns, places: Sequence[int]) -> RunColumns:
    return runs_of([asked.each[place] for place in places])


def next_run(
    cluster: Cluster, candidates: Sequence[tuple[Transformer, Plan]], framework: Framework | str = "megatron-core",
    runs: Sequence[Run] = (),
) -> int:  # fmt: skip
    """The place of the candidate whose measurement would narrow the errors of all candidates most.

    Parameters
    ----------
    cluster : on which it would run
    candidates : models and plans that might be measured
    framework : with which
    runs : already measured

    Raises
    ------
    CostModelError
        where there is no candidate
    """
    if not listing("candidates", candidates):
        raise CostModelError("next_run: no candidates given")
    for candidate in candidates:
        if not isinstance(candidate, tuple | list) or len(candidate) != 2:
            raise InvalidValue("candidates", candidate, "pairs of a model and a plan")
    software = framework_on(cluster, framework)
    known = len(listing("runs", runs))
    every = [*runs, *((model, plan, 1.0) for model, plan in candidates)]
    _check_count(len(every))
    asked = _asked(cluster, software, every)
    same = _one_model(of_one_model([one.model for one in asked.each]), len(every))
    fields, everywhere = _prior(software)
    scatter = ALONE**2
    if known:
        measured = _some(asked, range(known))
        apart = _times(runs) - _told(software.own_runs, measured) - logarithms(measured, software.constants)
        scatter = _scatter(apart, same[:known, :known], ALONE)
    slopes = _slopes(asked, software.constants, fields)
    reach = USUAL**2 * slopes @ everywhere @ slopes.T
    # a plan that was measured already would only repeat what is its own
    seen = reach + MODEL_SPREAD**2 * same + scatter * common(asked) + SCATTER**2 * np.eye(len(every))
    told = np.linalg.solve(seen[:known, :known], np.hstack([seen[:known, known:], reach[:known, known:]]))
    by_seen, by_reach = np.hsplit(told, 2)
    variance = seen.diagonal()[known:] - np.einsum("ij,ij->j", seen[:known, known:], by_seen)
    shared = reach[known:, known:] - seen[known:, :known] @ by_reach  # of each measurement with each candidate's time
    return int(np.argmax((shared**2).sum(axis=1) / variance))


def read_runs(runs: Sequence[Run] | str | Path | Frame) -> list[Run]:
    """Measured steps as model, plan and seconds.

    Parameters
    ----------
    runs : as `calibrate` takes them

    Raises
    ------
    InvalidValue
        naming the field, and the row of a table; for more than `MOST_RUNS`
    UnreadableFile
        where a file can't be read, is too large or lacks a column
    """
    if isinstance(runs, str | Path):
        return _rows(read_csv(Path(runs), MOST_RUNS), str(runs))
    if hasattr(runs, "to_dict") and hasattr(runs, "columns"):
        _check_count(len(runs))
        frame = runs.to_pandas() if hasattr(runs, "to_pandas") else runs
        return _rows(frame.to_dict("records"), "runs")
    given = listing("runs", runs)
    _check_count(len(given))
    return [_triple(run) for run in given]


def _check_count(count: int) -> None:
    if count > MOST_RUNS:
        raise InvalidValue("runs", count, f"at most {MOST_RUNS} of them")


def _triple(run: object) -> Run:
    if not isinstance(run, tuple) or len(run) != 3:
        raise InvalidValue("runs", run, "a tuple of model, plan and seconds")
    model, plan, seconds = run
    kind("model", model, Transformer, "load_model(name)")
    kind("plan", plan, Plan, "Plan(...)")
    return model, plan, seconds


def _rows(rows: Sequence[Mapping[str, object]], source: str) -> list[Run]:
    fields = {field.name for field in dataclasses.fields(Plan)}
    named = functools.cache(load_model)  # a file that all rows name is read once
    found = []
    for number, row in enumerate(rows, 1):
        unknown = [str(column) for column in row if column not in fields | {"model", SECONDS}]
        if unknown:
            raise UnreadableFile(f"{source}: no column {unknown[0][:80]!r} is known; expected model, {SECONDS}, fields of Plan")
        missing = [name for name in ("model", SECONDS, "global_batch", "seq_len") if _cell(row.get(name)) is None]
        if missing:
            raise UnreadableFile(f"{source} row {number}: no {missing[0]}")
        given = {name: _cell(value) for name, value in row.items() if name in fields}
        try:
            plan = made(Plan, {name: value for name, value in given.items() if value is not None})
            model = named(str(row["model"]))
        except CostModelError as error:
            raise UnreadableFile(f"{source} row {number}: {error}") from error
        seconds = _cell(row[SECONDS])
        if not isinstance(seconds, int | float):
            raise UnreadableFile(f"{source} row {number}: {SECONDS}={repr(row[SECONDS])[:80]}: expected a number of seconds")
        found.append((model, plan, float(seconds)))
    return found


def _cell(value: object) -> object:
    """A cell of a table as the value of a field: whole numbers as such, nothing as None."""
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in WORDS:
            return WORDS[text.lower()]
        try:
            value = float(text)
        except ValueError:
            return tuple(text.split("-")) if text.startswith(("tensor-", "context-", "data-", "pipeline-")) else text
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return plain(value)


@dataclasses.dataclass(frozen=True)
class Prior:
    """What is believed of constants before own runs.

    Parameters
    ----------
    fields : paths of the constants
    covariance : of their logarithms
    """

    fields: list[str]
    covariance: Array


@dataclasses.dataclass(frozen=True)
class Update:
    """Constants and common factor after the runs.

    Parameters
    ----------
    fields : paths of the constants; the common factor comes last
    change : of their logarithms
    gain : change for each unit of each run's error
    errors : log(measured / estimated) that stays of each run
    weights : of each run
    spread : standard deviation of the logarithm of a run of these models that was not measured
    own_runs : what the runs say of plans like theirs, beyond the constants
    """

    fields: list[str]
    change: Array
    gain: Array
    errors: Array
    weights: Array
    spread: float
    own_runs: tuple[OwnRun, ...]


def _prior(software: Framework, believed: Prior | None = None) -> tuple[list[str], Array]:
    """The constants that calibration is unsure of, and the covariance of their logarithms with the common factor's."""
    fields, matrix = (believed.fields, believed.covariance) if believed else covariance_of(software)
    known = flat(software.constants)
    kept = [n for n, field in enumerate(fields) if 0.0 < known.get(field, 0.0) < LARGEST.get(field, math.inf)]
    covariance = np.zeros((len(kept) + 1,) * 2)
    covariance[:-1, :-1] = np.asarray(matrix)[np.ix_(kept, kept)]
    covariance[-1, -1] = COMMON**2
    return [fields[n] for n in kept], covariance


def _at(constants: Software, fields: Sequence[str], change: Array) -> Software:
    """The constants after a change of their logarithms, and of that of the common factor, which comes last.

    Several changes, one a column, make columns of constants.
    """
    known = flat(constants)
    moved: dict[str, Array] = {field: np.zeros(change.shape[1:]) for field in (*fields, *SLOWER)}
    for field, value in zip(fields, change, strict=False):
        moved[field] = moved[field] + value
    for field, power in SLOWER.items():
        moved[field] = moved[field] + power * change[-1]
    found = {field: np.minimum(known[field] * np.exp(by), LARGEST.get(field, math.inf)) for field, by in moved.items()}
    return replaced(constants, found if change.ndim > 1 else {field: float(value) for field, value in found.items()})


def _asked(cluster: Cluster, software: Framework, runs: Sequence[Run]) -> RunColumns:
    """Each run as what its formula takes."""
    of = functools.cache(lambda model: Question(model, cluster, software))
    return runs_of([of(model).inputs(plan) for model, plan, _ in runs])


def _times(runs: Sequence[Run]) -> Array:
    """Logarithms of the measured times."""
    return np.log([seconds for _, _, seconds in runs])


def _told(earlier: Sequence[OwnRun], asked: RunColumns) -> Array:
    """Logarithm by which each run takes longer for what earlier own runs say of plans like its own."""
    found = np.zeros(len(asked.each))
    if earlier:
        for places in of_one_model([*(run.model for run in earlier), *(one.model for one in asked.each)]):
            known = [earlier[place] for place in places[places < len(earlier)]]
            new = places[places >= len(earlier)] - len(earlier)
            if known and len(new):
                found[new] = in_common([asked.each[place] for place in new], known) @ [run.discrepancy for run in known]
    return found


def _weights(errors: Array, spread: float) -> Array:
    """Weight of each run, by what stays of its error, whose spread is `spread`."""
    return np.asarray(np.minimum((TAILS + 1.0) / (TAILS + (errors / spread) ** 2), 1.0))


def _one_model(models: Iterable[Array], count: int) -> Array:
    """1 where two of so many runs are of one model, 0 elsewhere."""
    found = np.zeros((count, count))
    for places in models:
        found[np.ix_(places, places)] = 1.0
    return found


def _scatter(errors: Array, same: Array, believed: float, weights: Array | float = 1.0) -> float:
    """Variance of the runs of one model about their mean, as they show it and as it is believed before.

    Parameters
    ----------
    errors : of each run
    same : 1 where two runs are of one model
    believed : standard deviation
    weights : of each run
    """
    runs = same.sum(axis=1)
    free = len(errors) - float((1.0 / runs).sum())
    seen = float((weights * (errors - same @ errors / runs) ** 2).sum())
    return max((seen + BELIEF * believed**2) / (free + BELIEF), SCATTER**2)


def _slopes(asked: RunColumns, constants: Software, fields: Sequence[str]) -> Array:
    """Slopes of each run's logarithm in the logarithms of the constants, and of the common factor."""
    steps = np.hstack([np.zeros((len(fields) + 1, 1)), STEP * np.eye(len(fields) + 1)])
    found = logarithms(asked, _at(constants, fields, steps))
    return np.asarray((found[:, 1:] - found[:, :1]) / STEP)


def updated(
    cluster: Cluster, software: Framework, runs: Sequence[Run], believed: Prior | None = None
) -> tuple[Software, Update]:
    """Constants after some runs: the posterior's mode, by damped Gauss-Newton, with a run's weight as its error allows.

    Parameters
    ----------
    cluster, software : on which and with what they were made
    runs : model, plan and seconds of each
    believed : of the constants; the catalogue's covariance if not given
    """
    return _fitted(software, _times(runs), _asked(cluster, software, runs), believed)


def _fitted(software: Framework, measured: Array, asked: RunColumns, believed: Prior | None = None) -> tuple[Software, Update]:
    """As `updated`, of runs by the logarithms of their times, and what the formula takes of each."""
    fields, everywhere = _prior(software, believed)
    models = list(of_one_model([one.model for one in asked.each]))
    same = _one_model(models, len(measured))
    certainty, root = np.linalg.pinv(everywhere, hermitian=True), _root(everywhere)
    times = measured - _told(software.own_runs, asked)
    alone = len(times) == 1
    usual = math.hypot(MODEL_SPREAD, ALONE if alone else SCATTER)
    change = np.zeros(len(fields) + 1)
    apart = times - logarithms(asked, software.constants)
    wider = USUAL**2
    for _ in range(ROUNDS):
        slopes = _slopes(asked, _at(software.constants, fields, change), fields)
        # where constants lie far from what is believed, runs may scatter as much more as they do
        scatter = _scatter(apart, same, ALONE * max(1.0, math.sqrt(wider) / USUAL))
        weights = _weights(apart, usual)
        # a run that disagrees with others says less of its model, too; one alone disagrees with none
        doubt = np.zeros(1) if alone else MODEL_SPREAD**2 * (1.0 / weights - 1.0)
        certain = _certain(models, scatter / weights + doubt)
        # of so many directions the runs say something: repeated runs of one plan of one
        heard = certain @ slopes @ root
        told = (slopes @ root).T @ heard
        seen = float(np.trace(np.linalg.solve(np.eye(len(told)) + told, told)))
        wider = float(SURPRISE * USUAL**2 + change @ certainty @ change) / (SURPRISE + seen)
        prior, precision = wider * everywhere, certainty / wider
        gain = wider * root @ np.linalg.solve(np.eye(len(told)) + wider * told, heard.T)
        step = np.clip(gain @ (apart + slopes @ change) - change, -1.0, 1.0)
        before = change @ precision @ change + apart @ certain @ apart
        moved = 0.0
        for share in SHORTER:
            tried = change + share * step
            errors = times - logarithms(asked, _at(software.constants, fields, tried))
            if tried @ precision @ tried + errors @ certain @ errors < before:
                moved, change, apart = float(np.abs(tried - change).max()), tried, errors
                break
        if moved < SETTLED:
            break
    posterior = prior - gain @ slopes @ prior
    left = max(float(np.mean(np.einsum("ij,ij->i", slopes @ posterior, slopes))), 0.0)
    constants = _at(software.constants, fields, change)
    # what a model has of its own is known the better the more runs of it there are
    own = MODEL_SPREAD**2 * (1.0 + 1.0 / len(times)) / 2.0
    weights = _weights(apart, usual)
    # what constants leave is their plans' own as far as plans like them share it: the mean of a random function of the plan
    alike = common(asked)
    # alone, a run is what its plan is like; among others it may be a mistake
    trusted = np.ones(1) if alone else _weights(apart, OUTLIER)
    scattered = PLAN_SPREAD**2 * alike + np.diag(SCATTER**2 / trusted)
    discrepancies = PLAN_SPREAD**2 * np.linalg.solve(scattered, apart)
    spread = math.sqrt(left + own + max(_of_another_plan(alike), _scatter(apart, same, 0.0, weights)))
    own_runs = [
        OwnRun(float(by), one.model, one.settings, one.plan) for by, one in zip(discrepancies, asked.each, strict=True)
    ]
    errors = apart - alike @ discrepancies
    return constants, Update(fields, change, gain, errors, weights, spread, (*software.own_runs, *own_runs))


def _root(covariance: Array) -> Array:
    """A matrix whose product with its own transpose is the covariance."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _certain(models: Sequence[Array], scatter: Array) -> Array:
    """Inverse of the covariance of errors: what runs of a model share, and what is each run's, of which this is the variance."""
    found = np.diag(1.0 / scatter)
    for places in models:
        sure = 1.0 / scatter[places]
        found[np.ix_(places, places)] -= np.outer(sure, sure) / (1.0 / MODEL_SPREAD**2 + sure.sum())
    return found


def _of_another_plan(alike: Array) -> float:
    """Variance of a run of a plan as far from the runs as they are from each other: of each, told by those of other plans.

    Parameters
    ----------
    alike : what every two runs have in common
    """
    certain = np.linalg.inv(PLAN_SPREAD**2 * alike + SCATTER**2 * np.eye(len(alike)))
    known: dict[bytes, float] = {}
    for row in alike:
        here = np.flatnonzero(row == 1.0)  # runs of this very plan: together, as all others tell of them
        if here.tobytes() not in known:
            known[here.tobytes()] = float(np.linalg.inv(certain[np.ix_(here, here)]).diagonal().sum())
    return sum(known.values()) / len(alike)
