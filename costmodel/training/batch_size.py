"""Which batch and how many GPUs: steps against batch sizes fitted from a user's runs, and the frontier of time and money."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.catalogue.asking import ModelLike, model_of
from costmodel.catalogue.clusters import ClusterLike, cluster_of
from costmodel.formulas.systems import batch_sizes as formulas
from costmodel.formulas.systems import training_run
from costmodel.text.checks import listing, positive_int, real
from costmodel.text.errors import CostModelError, IllegalPlan, InvalidValue
from costmodel.text.results import brief

if TYPE_CHECKING:
    from costmodel.description.framework import Framework
    from costmodel.evaluation.estimation import Estimate

MOST_RUNS = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class FittedConstant:
    """A fitted constant and its interval, whose ends are 0 or infinite where the runs don't bound it."""

    value: float  # the best
    low: float = 0.0  # low, high: ends of the interval
    high: float = math.inf


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchScaling:
    """Steps and samples to one loss, against the batch.

    Parameters
    ----------
    fewest_steps : with a batch without end
    critical_batch : at which a run takes twice its fewest steps and twice its fewest samples
    fewest_samples : with a batch of one
    relative_error : standard deviation of the runs' steps about the curve; 0 where constants were given
    """

    fewest_steps: FittedConstant
    critical_batch: FittedConstant
    fewest_samples: FittedConstant
    relative_error: float = 0.0

    __repr__ = brief

    def steps(self, batch: float) -> float:
        """Optimizer steps to the loss with a batch."""
        return float(formulas.steps(self.fewest_steps.value, _batch(batch), self.critical_batch.value))

    def samples(self, batch: float) -> float:
        """Samples to the loss with a batch."""
        return float(formulas.samples(self.fewest_samples.value, _batch(batch), self.critical_batch.value))


def _batch(batch: float) -> float:
    return real("batch", batch, 1e-9, 1e18)


def batch_scaling(critical_batch: float, fewest_steps: float) -> BatchScaling:
    """Steps against the batch from known constants.

    Parameters
    ----------
    critical_batch : in samples, as batches are
    fewest_steps : with a batch without end

    Examples
    --------
    >>> batch_scaling(1000.0, 5000.0).steps(1000.0)
    10000.0
    """
    real("critical_batch", critical_batch, 1e-9, 1e18)
    real("fewest_steps", fewest_steps, 1e-9, 1e18)
    values = (fewest_steps, critical_batch, fewest_steps * critical_batch)
    constants = [FittedConstant(value=value, low=value, high=value) for value in values]
    return BatchScaling(fewest_steps=constants[0], critical_batch=constants[1], fewest_samples=constants[2])


def fit_batch_scaling(batches: Sequence[float], steps: Sequence[float], confidence: float = 0.9) -> BatchScaling:
    r"""Critical batch, fewest steps and fewest samples from runs of several batches to one loss.

    Parameters
    ----------
    batches : of each run, in samples or in tokens; at least three runs of at least two different batches
    steps : optimizer steps of each until the loss was reached
    confidence : of the intervals, 0.5 to 0.999

    Returns
    -------
    BatchScaling
        an end of an interval is 0 or infinite where the runs don't bound it, as where all batches are small

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected

    Assumes that every run had the best learning rate of its batch, and relative errors of the steps that are alike.

    References
    ----------
    [mccandlish2018]_ eq. 2.11; intervals by profile likelihood

    Examples
    --------
    >>> fitted = fit_batch_scaling([64, 256, 1024, 4096], [17600, 5100, 2000, 1210])
    >>> round(fitted.critical_batch.value, -1), round(fitted.fewest_steps.value, -1)
    (1120.0, 950.0)
    """
    sizes, counts = listing("batches", batches), listing("steps", steps)
    if len(sizes) != len(counts) or not 3 <= len(sizes) <= MOST_RUNS:
        raise InvalidValue("steps", len(counts), f"one for each of {len(sizes)} batches, of 3 to {MOST_RUNS} runs")
    for size, count in zip(sizes, counts, strict=True):
        real("batches", size, 1e-6, 1e18)
        real("steps", count, 1e-6, 1e18)
    if len(set(sizes)) < 2:
        raise InvalidValue("batches", sizes, "at least two different batches")
    real("confidence", confidence, 0.5, 0.999)
    import numpy as np

    from costmodel.training.batch_size_solver import fit

    *found, error = fit(np.array(sizes, float), np.array(counts, float), confidence)
    constants = [FittedConstant(value=math.exp(one.best), low=math.exp(one.low), high=math.exp(one.high)) for one in found]
    return BatchScaling(fewest_steps=constants[0], critical_batch=constants[1], fewest_samples=constants[2], relative_error=error)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """A batch on so many GPUs, by its fastest plan."""

    batch: int  # batch, gpus: asked
    gpus: int
    steps: float  # optimizer steps to the loss
    estimate: Estimate  # of one step
    price: float | None  # of the run; None without a price
    frontier: bool = False  # whether no other choice is both as fast and as cheap

    __repr__ = brief

    @property
    def time(self) -> float:
        """Of the run, without failures [s]."""
        return self.steps * self.estimate.step_time

    @property
    def gpu_hours(self) -> float:
        """Of the run."""
        return float(training_run.device_hours(float(self.gpus), self.time))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchFrontier:
    """Batches and GPUs, the fastest first."""

    choices: tuple[Choice, ...]  # all that can run

    __repr__ = brief

    @property
    def fastest(self) -> Choice:
        """The batch and the GPUs that reach the loss soonest."""
        return self.choices[0]

    @property
    def cheapest(self) -> Choice:
        """The batch and the GPUs that take fewest GPU-hours."""
        return min(self.choices, key=lambda one: one.gpu_hours)

    @property
    def frontier(self) -> tuple[Choice, ...]:
        """Choices that none beats in time and GPU-hours, the fastest first."""
        return tuple(one for one in self.choices if one.frontier)


def batch_frontier(
    scaling: BatchScaling,
    model: ModelLike,
    cluster: ClusterLike,
    *,
    batches: Sequence[int],
    gpus: Sequence[int],
    seq_len: int,
    framework: Framework | str = "megatron-core",
    gpu_hour: float | None = None,
    **dimensions: object,
) -> BatchFrontier:
    """Best batch and GPUs for time, for money, and what lies between: steps of the batch times the fastest plan's step.

    Parameters
    ----------
    scaling : steps against the batch, in sequences
    model, cluster : what is trained, on what
    batches : global batches to try [sequences]
    gpus : how many to try
    seq_len : tokens of a sequence
    framework : the software
    gpu_hour : price of a GPU for an hour, in any currency
    dimensions : of plans, as `costmodel.search` takes them

    Returns
    -------
    Frontier

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    IllegalPlan
        where nothing that was asked can run
    """
    if not isinstance(scaling, BatchScaling):
        raise InvalidValue("scaling", scaling, "a BatchScaling, which fit_batch_scaling or batch_scaling gives")
    sizes = [positive_int("batches", size, 10**9) for size in listing("batches", batches)]
    counts = [positive_int("gpus", count, 10**7) for count in listing("gpus", gpus)]
    if gpu_hour is not None:
        real("gpu_hour", gpu_hour, 0.0, 1e9)
    from costmodel.evaluation.plan_search import search_by_name

    model, cluster = model_of(model), cluster_of(cluster)

    found, why = [], ""
    for count in counts:
        for size in sizes:
            try:
                best = search_by_name(
                    model, cluster.with_gpus(count), global_batch=size, seq_len=seq_len, framework=framework, top=1, **dimensions
                ).best  # fmt: skip
            except CostModelError as error:
                why = str(error)
                continue
            choice = Choice(batch=size, gpus=count, steps=scaling.steps(size), estimate=best, price=None)
            paid = None if gpu_hour is None else float(training_run.price(gpu_hour, float(count), choice.time))
            found.append(dataclasses.replace(choice, price=paid))
    if not found:
        raise IllegalPlan("memory", f"no batch of {sizes} on any of {counts} GPUs can run: {why}")
    found.sort(key=lambda one: (one.time, one.gpu_hours))
    least, marked = math.inf, []
    for choice in found:
        marked.append(dataclasses.replace(choice, frontier=choice.gpu_hours < least))
        least = min(least, choice.gpu_hours)
    return BatchFrontier(choices=tuple(marked))
