"""Calibrate on one's own runs: a handful of measured steps moves the catalogue's constants and narrows the error."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from costmodel.catalogue.loader import load_model
from costmodel.catalogue.software import framework_on
from costmodel.checks import kind, listing, plain
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.description.question import Question, same_model
from costmodel.description.transformer import Transformer
from costmodel.errors import CostModelError, InvalidValue, UnreadableFile
from costmodel.evaluation.csv_files import read_csv
from costmodel.evaluation.engine import evaluate_one, step_formula
from costmodel.evaluation.error_model import covariance_of
from costmodel.formulas import discrepancy
from costmodel.formulas.quantities import Inputs, OwnRun, Software, Step
from costmodel.records import flat, made, paths, replaced
from costmodel.results import brief
from costmodel.solvers.fitting import Array

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

Run = tuple[Transformer, Plan, float]
Asked: TypeAlias = list[tuple[Callable[..., Step], Inputs]]
"""Runs as the formula of each, and what it takes."""
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
    for model, plan, seconds in measured:
        here = plan.on(cluster)
        here.check(model, cluster.with_gpus(here.gpus), software)
        prior = _predicted(cluster, software, (model, plan, seconds))
        if not 1.0 / FARTHEST < seconds / prior < FARTHEST:
            raise InvalidValue(
                "seconds", seconds, f"a time within {FARTHEST:g} times {prior:.4g} s, which is estimated"
            )
    constants, found = updated(cluster, software, measured)
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
    _, update = updated(cluster, software, measured)
    disagreeing = _disagreeing(cluster, software, measured)
    asked = _asked(cluster, software, measured)
    earlier = _beyond(cluster, software, measured, asked) - _logarithms(asked, software.constants)
    found = []
    for place, before in enumerate(map(float, earlier)):
        push = update.gain[:, place] * before
        most = int(np.abs(push).argmax())
        name = update.fields[most] if most < len(update.fields) else "common factor of the cluster"
        after, weight = float(update.errors[place]), float(update.weights[place])
        found.append(Influence(place, before, after, weight, name, math.exp(push[most]), place in disagreeing))
    return found


def _disagreeing(cluster: Cluster, software: Framework, measured: Sequence[Run]) -> set[int]:
    """Places of the runs that are too far from what the others say: the farthest first, and the rest judged without it."""
    left, apart = list(range(len(measured))), set()
    while len(left) > LEAST_OTHERS:
        far = {}
        for place in left:
            constants, told = updated(cluster, software, [measured[other] for other in left if other != place])
            without = dataclasses.replace(software, constants=constants, own_runs=told.own_runs)
            far[place] = abs(math.log(measured[place][2] / _predicted(cluster, without, measured[place]))) / told.spread
        farthest = max(left, key=lambda place: far[place])
        if far[farthest] <= DISAGREES:
            break
        left.remove(farthest)
        apart.add(farthest)
    return apart


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
    every = [*listing("runs", runs), *((model, plan, 1.0) for model, plan in candidates)]
    asked, known = _asked(cluster, software, every), len(runs)
    fields, everywhere = _prior(software)
    scatter = ALONE**2
    if runs:
        apart = _beyond(cluster, software, runs, asked[:known]) - _logarithms(asked[:known], software.constants)
        scatter = _scatter(apart, _same(runs), ALONE)
    slopes = _slopes(asked, software.constants, fields)
    reach = USUAL**2 * slopes @ everywhere @ slopes.T
    # a plan that was measured already would only repeat what is its own
    noise = MODEL_SPREAD**2 * _same(every) + scatter * _common([one for _, one in asked]) + SCATTER**2 * np.eye(len(every))
    left = []
    for place in range(known, len(every)):
        told = [*range(known), place]
        certain = np.linalg.inv((reach + noise)[np.ix_(told, told)])
        narrowed = reach[known:, told] @ certain @ reach[told, known:]
        left.append(float((reach[known:, known:] - narrowed).trace()))
    return int(np.argmin(left))


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


def _predicted(cluster: Cluster, software: Framework, run: Run) -> float:
    """The estimate of a run's step [s]."""
    model, plan, _ = run
    question = Question(model, cluster, software)
    return float(evaluate_one(question, question.resolved(plan)).total)


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


def _asked(cluster: Cluster, software: Framework, runs: Sequence[Run]) -> Asked:
    """Each run as a formula and what it takes."""
    inputs = [Question(model, cluster, software).inputs(plan) for model, plan, _ in runs]
    return [(step_formula(one.settings), one) for one in inputs]


def _logarithms(asked: Asked, constants: Software) -> Array:
    """Logarithms of the runs' estimates; with columns of constants a row of them for each run."""
    with np.errstate(divide="ignore", invalid="ignore"):  # the arm of `where` that is not taken
        return np.log([formula(*inputs._replace(software=constants)).total for formula, inputs in asked])


def _beyond(cluster: Cluster, software: Framework, runs: Sequence[Run], asked: Asked) -> Array:
    """Logarithms of the measured times, without what earlier own runs say of such plans."""
    known = [
        Question(run[0], cluster, software).discrepancy(inputs.settings, inputs.plan)
        for run, (_, inputs) in zip(runs, asked, strict=True)
    ]
    return np.asarray(np.log([run[2] for run in runs]) - np.array(known))


def _weights(errors: Array, spread: float) -> Array:
    """Weight of each run, by what stays of its error, whose spread is `spread`."""
    return np.asarray(np.minimum((TAILS + 1.0) / (TAILS + (errors / spread) ** 2), 1.0))


def _same(runs: Sequence[Run]) -> Array:
    """1 where two runs are of one model, 0 elsewhere."""
    return np.array([[one[0] == other[0] for other in runs] for one in runs], dtype=float)


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


def _slopes(asked: Asked, constants: Software, fields: Sequence[str]) -> Array:
    """Slopes of each run's logarithm in the logarithms of the constants, and of the common factor."""
    steps = np.hstack([np.zeros((len(fields) + 1, 1)), STEP * np.eye(len(fields) + 1)])
    found = _logarithms(asked, _at(constants, fields, steps))
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
    fields, everywhere = _prior(software, believed)
    same = _same(runs)
    certainty = np.linalg.pinv(everywhere, hermitian=True)
    asked = _asked(cluster, software, runs)
    times = _beyond(cluster, software, runs, asked)
    alone = len(runs) == 1
    usual = math.hypot(MODEL_SPREAD, ALONE if alone else SCATTER)
    change = np.zeros(len(fields) + 1)
    apart = times - _logarithms(asked, software.constants)
    wider = USUAL**2
    for _ in range(ROUNDS):
        slopes = _slopes(asked, _at(software.constants, fields, change), fields)
        # where constants lie far from what is believed, runs may scatter as much more as they do
        scatter = _scatter(apart, same, ALONE * max(1.0, math.sqrt(wider) / USUAL))
        weights = _weights(apart, usual)
        # a run that disagrees with others says less of its model, too; one alone disagrees with none
        doubt = np.zeros(1) if alone else MODEL_SPREAD**2 * (1.0 / weights - 1.0)
        noise = MODEL_SPREAD**2 * same + np.diag(scatter / weights + doubt)
        certain = np.linalg.inv(noise)
        # of so many directions the runs say something: repeated runs of one plan of one
        reach = slopes @ everywhere @ slopes.T
        seen = float(np.trace(reach @ np.linalg.inv(reach + noise)))
        wider = float(SURPRISE * USUAL**2 + change @ certainty @ change) / (SURPRISE + seen)
        prior, precision = wider * everywhere, certainty / wider
        gain = prior @ slopes.T @ np.linalg.inv(wider * reach + noise)
        step = np.clip(gain @ (apart + slopes @ change) - change, -1.0, 1.0)
        before = change @ precision @ change + apart @ certain @ apart
        moved = 0.0
        for share in SHORTER:
            tried = change + share * step
            errors = times - _logarithms(asked, _at(software.constants, fields, tried))
            if tried @ precision @ tried + errors @ certain @ errors < before:
                moved, change, apart = float(np.abs(tried - change).max()), tried, errors
                break
        if moved < SETTLED:
            break
    posterior = prior - gain @ slopes @ prior
    left = max(float(np.mean(np.einsum("ij,jk,ik->i", slopes, posterior, slopes))), 0.0)
    constants = _at(software.constants, fields, change)
    # what a model has of its own is known the better the more runs of it there are
    own = MODEL_SPREAD**2 * (1.0 + 1.0 / len(runs)) / 2.0
    weights = _weights(apart, usual)
    # what constants leave is their plans' own as far as plans like them share it: the mean of a random function of the plan
    inputs = [one for _, one in asked]
    common = _common(inputs)
    # alone, a run is what its plan is like; among others it may be a mistake
    trusted = np.ones(1) if alone else _weights(apart, OUTLIER)
    scattered = PLAN_SPREAD**2 * common + np.diag(SCATTER**2 / trusted)
    discrepancies = PLAN_SPREAD**2 * np.linalg.solve(scattered, apart)
    spread = math.sqrt(left + own + max(_of_another_plan(common), _scatter(apart, same, 0.0, weights)))
    told = [OwnRun(float(by), one.model, one.settings, one.plan) for by, one in zip(discrepancies, inputs, strict=True)]
    errors = apart - common @ discrepancies
    return constants, Update(fields, change, gain, errors, weights, spread, (*software.own_runs, *told))


def _common(inputs: Sequence[Inputs]) -> Array:
    """What every two runs have in common of what is their plans' own."""
    common = np.eye(len(inputs))
    for place, one in enumerate(inputs):
        for other in range(place):
            common[place, other] = common[other, place] = _in_common(one, inputs[other])
    return common


def _of_another_plan(common: Array) -> float:
    """Variance of a run of a plan as far from the runs as they are from each other: of each, told by those of other plans."""
    found = []
    for row in common:
        others = np.flatnonzero(row < 1.0)
        shared = PLAN_SPREAD**2 * row[others]
        covariance = PLAN_SPREAD**2 * common[np.ix_(others, others)] + SCATTER**2 * np.eye(len(others))
        found.append(PLAN_SPREAD**2 + SCATTER**2 - shared @ np.linalg.solve(covariance, shared))
    return float(np.mean(found))


def _in_common(one: Inputs, other: Inputs) -> float:
    """What two runs have in common of what is their plans' own."""
    if not same_model(one.model, other.model):
        return 0.0
    return float(discrepancy.correlation(one.model, one.settings, one.plan, other.settings, other.plan))
