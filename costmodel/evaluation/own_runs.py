"""Calibrate on one's own runs: a handful of measured steps moves what is believed of a cluster, and narrows the error."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from costmodel.catalogue.software import framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.evaluation.own_run_files import FARTHEST, Given, check_count, measured_runs
from costmodel.evaluation.own_run_posterior import SCATTER, Hypotheses, covariance, hypotheses, posterior
from costmodel.evaluation.own_run_update import Measured, asked_of, learnt, prior_of, slopes_of, spread_of_clusters, told_before
from costmodel.evaluation.run_columns import Array, common, logarithms
from costmodel.text.checks import kind, listing
from costmodel.text.errors import CostModelError, InvalidValue
from costmodel.text.results import brief

COMMON_FACTOR = "common factor of the cluster"
WARM_STEPS = 20
"""Steps of a run that is made to be measured."""


def calibrate(cluster: Cluster, runs: Given, framework: Framework | str = "megatron-core") -> Cluster:
    """A cluster whose constants are fitted to measured steps, the catalogue's serving as prior.

    Parameters
    ----------
    cluster : on which the runs were made
    runs : measured steps: model, plan and seconds of each; or records, `costmodel.Run`; or the path of a file of records
        (`costmodel.load_runs`), or of a CSV file with one run a row, or a frame of pandas or polars with the same columns:
        ``model`` (a name in the catalogue or the path of a file that describes one), ``step_time_s``, and any fields of `Plan`,
        of which ``global_batch`` and ``seq_len`` are needed, by any of their names; ``cluster``, or ``device``, ``gpus`` and
        ``nodes``, and ``framework`` where they differ from those that are calibrated. An empty cell is the field's default
    framework : with which they were made, or its name

    Returns
    -------
    Cluster
        the same with `frameworks` holding the calibrated one, which `estimate` and `search` take when asked for its
        name; its `own_factor` is what all steps have in common, its `time_error` what is left unknown of a plan of these
        models, its `own_runs` what the runs say of plans like theirs. Where records have peaks its constants of memory are
        fitted, too, and its `memory_error` is told. A cluster that is calibrated already keeps what it was told, but not
        how sure that is: better give all runs at once

    Raises
    ------
    InvalidValue
        for a time that is no positive number, or that is out of all proportion to the estimate; for a record of another
        device or framework
    CostModelError
        where no run can be used
    IllegalPlan
        where a run's plan can't run on this cluster's kind

    Notes
    -----
    Before the runs a cluster's common factor is believed to spread as first contacts do, with heavy tails; constants as
    calibration left them; a model's plans by a spread that isn't known and that the runs show. A run that the others contradict
    is left out, and `influences` names it; `next_runs` says what to measure next.

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
    software, measured = _checked("calibrate", cluster, runs, framework)
    found, _, _ = learnt(cluster, software, measured)
    return dataclasses.replace(cluster, frameworks={**cluster.frameworks, software.name: found})


def _checked(door: str, cluster: Cluster, runs: Given, framework: Framework | str) -> tuple[Framework, list[Measured]]:
    """The framework and the runs, each of which may have run on the cluster's kind."""
    kind("cluster", cluster, Cluster, "load_cluster(name)")
    software = framework_on(cluster, framework)
    measured = measured_runs(runs)
    if not measured:
        raise CostModelError(f"{door}: no runs given")
    for run in measured:
        _check_same(run, cluster, software)
        here = run.plan.on(cluster)
        here.check(run.model, cluster.with_gpus(here.gpus), run.framework or software)
    measured = [run._replace(cluster=None) for run in measured]  # a record's machine is the cluster that is calibrated
    timed = [run for run in measured if run.seconds is not None]
    if timed:
        asked = asked_of(cluster, software, timed)
        priors = np.exp(logarithms(asked, software.constants) + told_before(software, asked))
        for run, prior in zip(timed, priors.tolist(), strict=True):
            if not 1.0 / FARTHEST < float(run.seconds or 0.0) / prior < FARTHEST:
                wish = f"a time within {FARTHEST:g} times {prior:.4g} s, which is estimated"
                raise InvalidValue("seconds", run.seconds, wish + (f" (run {run.id})" if run.id else ""))
    return software, measured


def _check_same(run: Measured, cluster: Cluster, software: Framework) -> None:
    name = f" of run {run.id}" if run.id else ""
    if run.cluster is not None and run.cluster.device.name != cluster.device.name:
        raise InvalidValue(f"device{name}", run.cluster.device.name, f"{cluster.device.name}, which the cluster has")
    if run.framework is not None and run.framework.name != software.name:
        raise InvalidValue(f"framework{name}", run.framework.name, f"{software.name}: each framework is calibrated by itself")


@dataclasses.dataclass(frozen=True)
class Influence:
    """What one measured run does."""

    run: int  # its place among the runs that have a time
    before: float  # before, after: log(measured / estimated) by the framework as it was, and as it is calibrated
    after: float
    moved: str  # the constant through which it changes its own estimate most, by its path: with the run against without it
    by: float  # factor on the estimate
    surprise: float  # probability of an error as far from what the other runs say
    disagrees: bool  # whether that is next to nothing: the run is left out

    __repr__ = brief


def influences(cluster: Cluster, runs: Given, framework: Framework | str = "megatron-core") -> list[Influence]:
    """What each run changes when a cluster is calibrated on all of them.

    Parameters
    ----------
    cluster, runs, framework : as `calibrate` takes them

    Raises
    ------
    CostModelError
        as `calibrate`
    """
    software, measured = _checked("influences", cluster, runs, framework)
    timed = [run for run in measured if run.seconds is not None]
    if not timed:
        return []
    asked = asked_of(cluster, software, timed)
    _, update, _ = learnt(cluster, software, timed)
    assert update is not None  # there are times
    earlier = _times(timed) - told_before(software, asked) - logarithms(asked, software.constants)
    names = [*update.fields, COMMON_FACTOR]
    found = []
    for place, before in enumerate(map(float, earlier)):
        push = np.append(update.moved[:, place], update.told.pull[place])
        most = int(np.abs(push).argmax())
        found.append(Influence(
            place, before, float(update.errors[place]), names[most], math.exp(push[most]), float(update.told.surprise[place]),
            place in update.told.apart,
        ))  # fmt: skip
    return found


def _times(runs: Sequence[Measured]) -> Array:
    """Logarithms of the measured times."""
    return np.log([float(run.seconds or 1.0) for run in runs])


@dataclasses.dataclass(frozen=True)
class Worth:
    """What a run that might be measured would tell."""

    candidate: int  # its place among those that were given
    narrowed: float  # share of the variance of all candidates' errors that it would take away
    gpu_minutes: float  # that so many of its steps take, `WARM_STEPS`

    __repr__ = brief

    @property
    def per_gpu_minute(self) -> float:
        """Share of the variance that a GPU-minute of it takes away."""
        return self.narrowed / self.gpu_minutes


def next_runs(
    cluster: Cluster, candidates: Sequence[tuple[Transformer, Plan]], framework: Framework | str = "megatron-core",
    runs: Given = (),
) -> list[Worth]:  # fmt: skip
    """What each candidate's measurement would tell of all candidates, those first that tell most for a GPU-minute.

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
    known = [run for run in measured_runs(runs) if run.seconds is not None]
    every = [*known, *(Measured(model, plan, 1.0) for model, plan in candidates)]
    check_count(len(every))
    asked, count = asked_of(cluster, software, every), len(known)
    prior = prior_of(software)
    slopes = slopes_of(asked, software.constants, prior.fields)
    shared, alike = slopes @ prior.covariance @ slopes.T, common(asked)
    estimated = logarithms(asked, software.constants) + told_before(software, asked)
    spread = spread_of_clusters(software, cluster.device)
    believed, apart = _believed(_times(known) - estimated[:count], shared[:count, :count], alike[:count, :count], spread)
    reach = covariance(believed, shared, alike)[0]
    # a plan that was measured already would only repeat what is its own; a run that disagrees says nothing
    used = [place for place in range(count) if place not in apart]
    seen = reach + SCATTER**2 * np.eye(len(every))
    told = np.linalg.solve(seen[np.ix_(used, used)], reach[np.ix_(used, range(count, len(every)))])
    left = reach[count:, count:] - reach[np.ix_(range(count, len(every)), used)] @ told
    variance = left.diagonal() + SCATTER**2
    narrowed = (left**2).sum(axis=1) / variance / left.trace()
    costs = [
        WARM_STEPS * math.exp(float(time)) * plan.on(cluster).gpus / 60.0
        for time, (_, plan) in zip(estimated[count:], candidates, strict=True)
    ]
    found = [Worth(place, float(told), cost) for place, (told, cost) in enumerate(zip(narrowed, costs, strict=True))]
    return sorted(found, key=lambda one: (-one.per_gpu_minute, one.candidate))


def _believed(errors: Array, shared: Array, alike: Array, spread: float) -> tuple[Hypotheses, tuple[int, ...]]:
    """The mean of what is believed of spreads after some runs, as one hypothesis; and the runs that disagree."""
    believed, weights = hypotheses(spread), hypotheses(spread).weight
    apart: tuple[int, ...] = ()
    if len(errors):
        found = posterior(errors, shared, alike, spread)
        believed, weights, apart = found.believed, found.weights, found.apart
    mean = [np.sqrt(np.atleast_1d(weights @ part**2)) for part in (believed.common, believed.own)]
    return Hypotheses(mean[0], mean[1], np.ones(1)), apart


def next_run(
    cluster: Cluster, candidates: Sequence[tuple[Transformer, Plan]], framework: Framework | str = "megatron-core",
    runs: Given = (),
) -> int:  # fmt: skip
    """The place of the candidate whose measurement would narrow the errors of all candidates most.

    Parameters
    ----------
    cluster, candidates, framework, runs : as `next_runs` takes them

    Raises
    ------
    CostModelError
        where there is no candidate
    """
    found = next_runs(cluster, candidates, framework, runs)
    return max(found, key=lambda one: (one.narrowed, -one.candidate)).candidate
