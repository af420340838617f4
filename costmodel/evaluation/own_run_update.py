"""Constants after own runs: of time, which the runs move together, and of memory, by its own few."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from costmodel.arithmetic.named_tuples import flat, paths, replaced
from costmodel.catalogue.software import framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.device import Device
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.description.transformer import Transformer
from costmodel.evaluation.counted_memory import RESERVED, Count, counted
from costmodel.evaluation.engine import memory_bill
from costmodel.evaluation.error_model import covariance_of, novelty
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.evaluation.first_contacts import time_error, usual_constants
from costmodel.evaluation.own_run_posterior import OWN, Posterior, posterior
from costmodel.evaluation.run_columns import Array, RunColumns, common, in_common, logarithms, of_one_model, runs_of
from costmodel.formulas.quantities import Memory, OwnRun, Software
from costmodel.formulas.transformer.memory import outside_allocator

LARGEST = {path: 1.0 for path in paths(Software) if path.startswith("overlap_")}
HELD = ("memory_activation_overhead", "memory_backward_overhead", "memory_workspace")
"""Constants of what comes and goes in a step; runs move them together."""
UNSURE = {HELD: 0.3, ("memory_fixed",): 0.5, ("memory_fragmentation",): 0.7, ("memory_own",): 0.1}
"""Standard deviations of the logarithms of constants of memory, those of a line by one factor; the last as campaigns that
were met differ in their medians."""
MEMORY_COMMON = 0.01
ROUNDS = 4
SETTLED = 1e-3
"""Largest change of a constant's logarithm in a round after which there is nothing more to find."""
SHORTER = (1.0, 0.5, 0.25, 0.1)
"""Shares of a round's step, of which the first is taken over which errors follow their slopes: steps have maxima."""
STRAIGHT = 0.05
STEP = 1e-3


class Measured(NamedTuple):
    """A measured run."""

    model: Transformer  # model, plan: of it
    plan: Plan
    seconds: float | None  # of a step; None where it wasn't measured
    peak: float | None = None  # memory of the fullest GPU [bytes]; None where it wasn't measured
    counts: Count = Count("process", "max")  # how the peak was counted
    # framework, cluster: where they differ from those that are calibrated: in options, and in size
    framework: Framework | None = None
    cluster: Cluster | None = None
    id: str = ""  # of a record


@dataclasses.dataclass(frozen=True)
class Prior:
    """What is believed of constants before own runs."""

    fields: Sequence[str]  # paths of the constants
    covariance: Array  # of their logarithms


@dataclasses.dataclass(frozen=True)
class Update:
    """What runs change."""

    fields: Sequence[str]  # paths of the constants
    change: Array  # of their logarithms
    moved: Array  # logarithm by which each run, with it less without it, changes its own estimate through each of the constants
    errors: Array  # log(measured / estimated) that stays of each run
    told: Posterior  # what they say
    own_runs: tuple[OwnRun, ...]  # what they say of plans like theirs, beyond the constants


def spread_of_clusters(software: Framework, device: Device) -> float:
    """Scale of the logarithm of the factor that all steps on a cluster have in common before any is measured."""
    usual = usual_constants()
    met = time_error(novelty(software, device), usual)  # of a plan: what it and its constants add, normal both, goes apart
    return met.scale * math.sqrt(1.0 - (usual**2 + OWN**2) / met.deviation**2)


def prior_of(software: Framework) -> Prior:
    """The constants that calibration is unsure of and that can move."""
    fields, matrix = covariance_of(software)
    known = flat(software.constants)
    kept = [n for n, field in enumerate(fields) if 0.0 < known.get(field, 0.0) < LARGEST.get(field, math.inf)]
    return Prior([fields[n] for n in kept], np.asarray(matrix)[np.ix_(kept, kept)])


def at(constants: Software, fields: Sequence[str], change: Array) -> Software:
    """Constants after a change of their logarithms; several changes, one a column, make columns of constants."""
    known = flat(constants)
    moves = zip(fields, change, strict=True)
    found = {field: np.minimum(known[field] * np.exp(by), LARGEST.get(field, math.inf)) for field, by in moves}
    return replaced(constants, found if change.ndim > 1 else {field: float(value) for field, value in found.items()})


def asked_of(cluster: Cluster, software: Framework, runs: Sequence[Measured]) -> RunColumns:
    """Each run as what its formula takes, with the constants of the framework that is calibrated."""
    of = functools.cache(lambda model, where, what: Question(model, where, what))
    return runs_of([of(run.model, run.cluster or cluster, run.framework or software).inputs(run.plan) for run in runs])


def slopes_of(asked: RunColumns, constants: Software, fields: Sequence[str]) -> Array:
    """Slopes of each run's logarithm in the logarithms of constants."""
    steps = np.hstack([np.zeros((len(fields), 1)), STEP * np.eye(len(fields))])
    columns = logarithms(asked, at(constants, fields, steps)).reshape(len(asked.each), -1)
    return np.asarray((columns[:, 1:] - columns[:, :1]) / STEP)


def told_before(software: Framework, asked: RunColumns) -> Array:
    """Logarithm by which each run takes longer for what earlier own runs say.

    Parameters
    ----------
    software : that was calibrated before, or wasn't
    asked : the runs
    """
    found = np.full(len(asked.each), math.log(software.own_factor))
    earlier = software.own_runs
    if earlier:
        for places in of_one_model([*(run.model for run in earlier), *(one.model for one in asked.each)]):
            known = [earlier[place] for place in places[places < len(earlier)]]
            new = places[places >= len(earlier)] - len(earlier)
            if known and len(new):
                found[new] += in_common([asked.each[place] for place in new], known) @ [run.discrepancy for run in known]
    return found


def updated(software: Framework, measured: Array, asked: RunColumns, spread: float) -> tuple[Framework, Update]:
    """A framework after some runs, and what they change: the mean of what is believed afterwards, by Gauss-Newton steps.

    Parameters
    ----------
    software : before
    measured : logarithms of the runs' times
    asked : the runs
    spread : of `spread_of_clusters`
    """
    prior = prior_of(software)
    alike = common(asked)
    times = measured - told_before(software, asked)

    def estimated(constants: Software) -> Array:
        return logarithms(asked, constants)

    def heard(errors: Array, shared: Array) -> Posterior:
        return posterior(errors, shared, alike, spread)

    change, moved, apart, told = _moved(software.constants, prior, times, estimated, heard)
    own_runs = [
        OwnRun(float(by), one.model, one.settings, one.plan) for by, one in zip(told.discrepancies, asked.each, strict=True)
    ]
    errors = apart - told.common - alike @ told.discrepancies
    found = dataclasses.replace(
        software, constants=at(software.constants, prior.fields, change), time_error=told.spread, owner="",
        own_factor=software.own_factor * math.exp(told.common), own_runs=(*software.own_runs, *own_runs),
    )  # fmt: skip
    return found, Update(prior.fields, change, moved, errors, told, tuple(own_runs))


def updated_memory(software: Framework, measured: Array, asked: RunColumns, kinds: Sequence[str]) -> tuple[Framework, Update]:
    """A framework after some runs whose peak was measured, and what they change.

    Parameters
    ----------
    software : before
    measured : logarithms of the runs' peaks over what is estimated of them as they were counted
    asked : the runs
    kinds : what each peak counts
    """
    known = flat(software.constants)
    groups = [(names, error) for names, error in UNSURE.items() if known[names[0]] > 0.0]
    fields = [names[0] for names, _ in groups]

    def constants_at(change: Array) -> Software:
        names = [name for group, _ in groups for name in group]
        by = np.array([change[place] for place, (group, _) in enumerate(groups) for _ in group])
        return at(software.constants, names, by)

    process, inside = np.array([kind == "process" for kind in kinds]), np.isin(kinds, RESERVED)

    def estimated(constants: Software) -> Array:
        width = max((np.size(number) for group in constants for number in group), default=1)
        found = np.empty((len(asked.each), width))
        with np.errstate(divide="ignore", invalid="ignore"):
            for places, inputs, _ in asked.together:
                bill: Memory = memory_bill(inputs._replace(software=constants))
                around = outside_allocator(inputs.plan, inputs.network, constants)
                here = np.zeros((len(places), width))
                less = np.where(inside[places, None], here + around, here + bill.overhead)
                found[places] = np.log(here + bill.total - np.where(process[places, None], 0.0, less))
        return found if width > 1 else found[:, 0]

    alike = common(asked)
    prior = Prior(fields, np.diag([error**2 for _, error in groups]))
    change, moved, apart, told = _moved(
        software.constants, prior, measured + estimated(software.constants), estimated,
        lambda errors, shared: posterior(errors, shared, alike, MEMORY_COMMON), constants_at,
    )  # fmt: skip
    # constants alone carry on what runs say: what these leave, of all and of a model's plans, stays in the error
    left = told.common + alike @ told.discrepancies
    error = math.hypot(told.spread, float(np.sqrt(np.mean(left**2))))
    found = dataclasses.replace(software, constants=constants_at(change), memory_error=error)
    return found, Update(fields, change, moved, apart, told, ())


def estimate_of(run: Measured, cluster: Cluster, software: Framework) -> Estimate:
    """The estimate of a run by the constants of the framework that is calibrated."""
    where = run.cluster or cluster
    what = dataclasses.replace(run.framework or software, constants=software.constants)
    return estimate(run.model, where.with_gpus(run.plan.on(where).gpus), run.plan, what)


def _moved(
    constants: Software, prior: Prior, measured: Array, estimated: Callable[[Software], Array],
    heard: Callable[[Array, Array], Posterior], placed: Callable[[Array], Software] | None = None,
) -> tuple[Array, Array, Array, Posterior]:  # fmt: skip
    """Change of the constants' logarithms, what each run moved its estimate by, what is left of errors, and what these say."""
    put = placed or functools.partial(at, constants, prior.fields)
    change = np.zeros(len(prior.fields))
    steps = np.hstack([np.zeros((len(change), 1)), STEP * np.eye(len(change))])
    apart = measured - estimated(constants)
    for _ in range(ROUNDS):
        columns = estimated(put(change[:, None] + steps)).reshape(len(measured), -1)
        slopes = (columns[:, 1:] - columns[:, :1]) / STEP
        reach = prior.covariance @ slopes.T
        told = heard(apart + slopes @ change, slopes @ reach)
        step = np.clip(reach @ told.heard - change, -1.0, 1.0)
        for share in SHORTER:
            tried = change + share * step
            errors = measured - estimated(put(tried))
            if np.abs(errors - apart + share * slopes @ step).max() < STRAIGHT:
                break
        change, apart = tried, errors
        if share * float(np.abs(step).max(initial=0.0)) < SETTLED:
            break
    told = heard(apart + slopes @ change, slopes @ reach)
    return change, slopes.T * (reach @ told.added), apart, told


def learnt(
    cluster: Cluster, framework: Framework | str, runs: Sequence[Measured]
) -> tuple[Framework, Update | None, Update | None]:
    """A framework after runs, and what those with a time and those with a peak change."""
    software = framework_on(cluster, framework)
    timed, held = [run for run in runs if run.seconds is not None], [run for run in runs if run.peak is not None]
    of_time = of_memory = None
    found = software
    if timed:
        found, of_time = updated(
            software, np.log([float(run.seconds or 1.0) for run in timed]), asked_of(cluster, software, timed),
            spread_of_clusters(software, cluster.device),
        )  # fmt: skip
    if held:
        estimates = [estimate_of(run, cluster, software) for run in held]
        peaks = np.log([float(run.peak or 1.0) for run in held]) - np.log(counted(estimates, [run.counts for run in held]))
        told, of_memory = updated_memory(software, peaks, asked_of(cluster, software, held), [run.counts.kind for run in held])
        memory = {path: value for path, value in flat(told.constants).items() if path.startswith("memory_")}
        found = dataclasses.replace(found, constants=replaced(found.constants, memory), memory_error=told.memory_error)
    return found, of_time, of_memory
