"""Steps of a launch that are more than an update of its plan: those with a reference's pass."""

from __future__ import annotations

import dataclasses

from costmodel.evaluation.estimation import Estimate
from costmodel.interop.launchers.pricing import Priced
from costmodel.training.rollouts import ALGORITHMS, PostTraining, Rollouts, post_training


def whole_step(priced: Priced, update: Estimate) -> PostTraining | None:
    """The step that an update is a part of; None where it is all of it.

    Parameters
    ----------
    priced : of `resolve`
    update : of `estimate`, of its plan
    """
    if priced.algorithm is None:
        return None
    plan = dataclasses.replace(update.plan, batching="full", mean_length=None)
    samples = plan.global_batch // ALGORITHMS[priced.algorithm].sequences
    rollouts = Rollouts(samples=samples, mean_length=float(plan.seq_len))
    return post_training(
        update.model, update.cluster, plan, rollouts, algorithm=priced.algorithm, framework=update.framework, packed=False
    )


def of_update(priced: Priced | None, update: Estimate, measured: float) -> float:
    """Of a measured step the part that is the update's, as the estimates share it [s].

    Parameters
    ----------
    priced : of `resolve`; None where no launch file is read
    update : of `estimate`, of its plan
    measured : the whole step [s]
    """
    whole = None if priced is None else whole_step(priced, update)
    return measured if whole is None else measured * whole.times["updates"] / whole.step_time
