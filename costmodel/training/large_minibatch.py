"""Large-minibatch SGD: what learning rate, momentum and loss scale each step has, and where the rule is known to fail."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.arithmetic.named_tuples import as_number
from costmodel.formulas.systems import data_parallel as formulas
from costmodel.formulas.systems import training_run
from costmodel.text.checks import choice, listing, positive_int, real
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

WARMUPS = ("gradual", "constant", "none")
LARGEST_MINIBATCH = 8192
"""Samples up to which the error stays that of a small minibatch, with ResNet-50 on ImageNet: figure 1 of [goyal2017]_."""
UNWARMED_MINIBATCH = 1024
"""Above it training without a gradual warm-up lost accuracy there: table 1 and figure 2 have it at 8192."""
NORMALISED = 32
"""Samples of a worker over which batch normalisation takes its statistics; another number is another problem."""


class LinearScalingWarning(UserWarning):
    """The linear scaling rule is asked for where it is known to fail."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinibatchSchedule:
    """Every step of a run of large-minibatch SGD."""

    minibatch: int  # samples of a step, of all workers
    steps_per_epoch: int  # steps_per_epoch, epochs: optimizer steps of a pass over the data set, and passes
    epochs: int
    epoch: Floats  # at which each step begins, a real number
    rate: Floats  # learning rate of each step
    momentum: Floats  # factor on the velocity of each step, where the velocity holds the rate: corrected as the rate changes
    # by which a worker multiplies the sum of its samples' losses, so that an all-reduce that sums gives the mean
    loss_scale: float
    concerns: tuple[str, ...]  # why the rule may fail here, in words

    __repr__ = brief

    @property
    def steps(self) -> int:
        """Optimizer steps of the run."""
        return len(self.rate)

    def time(self, iteration: float) -> float:
        """Time of the run [s], where a step takes `iteration`."""
        return self.steps * real("iteration", iteration, 0.0, 1e9)


def goyal_schedule(
    workers: int,
    *,
    per_worker: int = 32,
    samples: int = 1_281_167,
    epochs: int = 90,
    base_rate: float = 0.1,
    reference: int = 256,
    warmup_epochs: float = 5.0,
    warmup: str = "gradual",
    decay_epochs: Sequence[float] = (30.0, 60.0, 80.0),
    decay: float = 0.1,
    momentum: float = 0.9,
    critical_batch: float | None = None,
) -> MinibatchSchedule:
    """Learning rate, momentum and loss scale of every step, by the linear scaling rule with gradual warm-up.

    Parameters
    ----------
    workers : GPUs
    per_worker : samples of each in a step
    samples : of the data set; ImageNet's by default
    epochs : passes over it
    base_rate : learning rate at the reference minibatch
    reference : samples of that minibatch
    warmup_epochs : in which the rate grows to the scaled one
    warmup : ``"gradual"``, by the same amount each step; ``"constant"``, at the base rate; or ``"none"``
    decay_epochs : at which the rate falls by `decay`
    decay : factor on the rate at each of them
    momentum : of SGD
    critical_batch : of the task in samples, if known (`costmodel.fit_batch_scaling`): beyond, the rule gains little

    Returns
    -------
    MinibatchSchedule

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected

    Warns
    -----
    LinearScalingWarning
        where the rule is known to fail: beyond 8192 samples, beyond the critical batch, without warm-up, with other
        statistics of batch normalisation

    References
    ----------
    [goyal2017]_ sections 2, 3 and 5.1

    Examples
    --------
    >>> plan = goyal_schedule(256)
    >>> plan.minibatch, plan.steps, round(float(plan.rate.max()), 2), round(float(plan.rate[-1]), 4)
    (8192, 14130, 3.2, 0.0032)
    >>> round(plan.time(0.257) / 3600, 2), round(goyal_schedule(8).time(0.230) / 3600, 1)
    (1.01, 28.8)
    """
    minibatch = positive_int("workers", workers, 10**7) * positive_int("per_worker", per_worker, 10**6)
    positive_int("samples", samples, 10**12)
    positive_int("epochs", epochs, 10**5)
    real("base_rate", base_rate, 1e-12, 1e6)
    positive_int("reference", reference, 10**9)
    real("warmup_epochs", warmup_epochs, 0.0, float(epochs))
    choice("warmup", warmup, WARMUPS)
    real("decay", decay, 1e-6, 1.0)
    real("momentum", momentum, 0.0, 1.0)
    if critical_batch is not None:
        real("critical_batch", critical_batch, 1e-6, 1e18)
    drops = [real("decay_epochs", drop, 0.0, 1e5) for drop in listing("decay_epochs", decay_epochs)]
    if drops != sorted(drops):
        raise InvalidValue("decay_epochs", decay_epochs, "ascending epochs")
    per_epoch = int(training_run.steps_of(float(samples), float(minibatch), 1.0))
    if per_epoch * epochs > 10**8:
        raise InvalidValue("epochs", epochs, f"at most {10**8 // per_epoch} with {per_epoch} steps each")
    import numpy as np

    steps = np.arange(per_epoch * epochs, dtype=float)
    epoch = steps / per_epoch
    scaled = float(formulas.linear_scaling_rate(base_rate, float(minibatch), float(reference)))
    rate = np.full(len(steps), scaled)
    warm = warmup_epochs * per_epoch
    if warmup == "gradual" and warm > 0.0:
        rate = np.asarray(formulas.warmup_rate(base_rate, scaled, as_number(steps), warm))
    elif warmup == "constant":
        rate = np.where(steps < warm, base_rate, scaled)
    for drop in drops:
        rate = rate * np.where(epoch >= drop, decay, 1.0)
    before = np.concatenate([rate[:1], rate[:-1]])
    concerns = tuple(_concerns(minibatch, per_worker, warmup if warm > 0.0 else "none", critical_batch))
    for concern in concerns:
        warnings.warn(concern, LinearScalingWarning, stacklevel=2)
    return MinibatchSchedule(
        minibatch=minibatch, steps_per_epoch=per_epoch, epochs=epochs, epoch=epoch, rate=rate,
        momentum=np.asarray(formulas.corrected_momentum(momentum, as_number(rate), as_number(before))),
        loss_scale=1.0 / minibatch, concerns=concerns,
    )  # fmt: skip


def _concerns(minibatch: int, per_worker: int, warmup: str, critical_batch: float | None) -> list[str]:
    found = []
    if minibatch > LARGEST_MINIBATCH:
        found.append(f"minibatch={minibatch}: beyond {LARGEST_MINIBATCH} samples ResNet-50's error grew on ImageNet")
    if critical_batch is not None and minibatch > critical_batch:
        found.append(f"minibatch={minibatch}: beyond the critical batch of {critical_batch:g}, steps hardly get fewer")
    if warmup != "gradual" and minibatch > UNWARMED_MINIBATCH:
        found.append(f"warmup={warmup!r}: with {minibatch} samples training lost accuracy without a gradual warm-up")
    if per_worker != NORMALISED:
        found.append(f"per_worker={per_worker}: batch normalisation takes statistics of {per_worker} samples, not {NORMALISED}")
    return found
