"""Passes of a training step by themselves: forward ones, which a model makes that takes no gradients."""

from __future__ import annotations

from costmodel.evaluation.estimation import Estimate

PASSES = ("forward", "backward", "recompute")


def forward_time(update: Estimate) -> float:
    """Time of the forward passes alone over the samples of a step [s].

    They take the share that they have in the step's passes, of bubble and exchanges, too, but for those of gradients.

    Parameters
    ----------
    update : the step with its backward passes
    """
    times = update.times
    passes = sum(times[part] for part in PASSES)
    within = sum(times.values()) - times["gradient_exchange"] - times["optimizer"]
    return within * times["forward"] / passes
