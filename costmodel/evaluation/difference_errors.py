"""How far the ratio of two step times may lie from the estimated one: what both estimates have wrong in common cancels."""

from __future__ import annotations

import math

from costmodel.catalogue.files import table_of
from costmodel.catalogue.releases import base_name
from costmodel.description.cluster import Cluster
from costmodel.evaluation.error_model import Slopes
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.first_contacts import HALF, NINETY, Error
from costmodel.text.checks import kind


def what_differs(first: Estimate, second: Estimate) -> str:
    """Between what two estimates choose: ``"plan"``, ``"device"`` (or a cluster of it), ``"framework"``, or ``"both"``."""
    software = _software(first) == _software(second)
    hardware = _is_one_hardware(first.cluster, second.cluster)
    if software:
        return "plan" if hardware and first.model == second.model else "device"
    return "framework" if hardware else "both"


def _is_one_hardware(first: Cluster, second: Cluster) -> bool:
    """Whether two clusters are of the same links; one with a number of its own changed is as it was, for it is asked of it."""
    alike = first.levels == second.levels or (
        first.name == second.name and [level.name for level in first.levels] == [level.name for level in second.levels]
    )
    return first.device.name == second.device.name and alike


def _software(one: Estimate) -> tuple[object, ...]:
    """What tells one framework from another; its constants on another architecture are the same software's."""
    return base_name(one.framework.name), one.framework.time_error


def difference_error(first: Estimate, second: Estimate) -> Error:
    """Distribution of log(ratio of the true step times / ratio of the estimated ones), of the second over the first.

    Plans of one model on one cluster with one framework share all but what is a plan's own: their ratio is as sure as a ranking
    of them. Of other pairs the ledger of first contacts tells what share of their errors' variance campaigns of the same people
    had in common (``catalogue/paired_errors.toml``); the ratio is never surer than the constants that the two don't share.

    Parameters
    ----------
    first, second : estimates, each of a question of its own or of the same

    Returns
    -------
    Error
        of a logarithm

    Raises
    ------
    InvalidValue
        where an argument is no estimate

    Examples
    --------
    >>> from costmodel import Plan, estimate, load_cluster, load_model
    >>> model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    >>> one = estimate(model, cluster, Plan(global_batch=64, seq_len=8192, tensor_parallel=2))
    >>> other = estimate(model, cluster, Plan(global_batch=64, seq_len=8192, tensor_parallel=4))
    >>> difference_error(one, other).half < 0.5 * one.time_error.half
    True
    """
    for name, value in (("first", first), ("second", second)):
        kind(name, value, Estimate, "estimate(...)")
    constants = _apart(first, second)
    differing = what_differs(first, second)
    as_one = first.plan == second.plan and first.cluster.levels == second.cluster.levels and first.framework == second.framework
    if as_one and differing == "plan":
        return Error(0.0, tails=False)
    if differing == "plan":
        own = first.spread.within**2 + second.spread.within**2
        return Error(math.sqrt(constants + own), tails=False)
    kinds = ("device", "both") if differing == "both" else (differing,)
    # two changes are no surer than one of them
    common = min(float(table_of("paired_errors.toml")[one]["shared"]) for one in kinds)
    errors = (first.time_error, second.time_error)
    scale = math.sqrt((1.0 - common) * sum((one.half / HALF) ** 2 for one in errors))
    return Error(max(scale, NINETY / HALF * math.sqrt(constants)), errors[1].shift - errors[0].shift)


def _apart(first: Estimate, second: Estimate) -> float:
    """Variance of the logarithm of the ratio that the errors of the constants leave."""
    one, other = first.slopes, second.slopes
    same_device = first.cluster.device.name == second.cluster.device.name
    same_owner = first.framework.owner == second.framework.owner and len(one.blocks) == len(other.blocks)
    shared = Slopes(one.blocks if same_owner else (), one.device if same_device else {})
    against = Slopes(other.blocks if same_owner else (), other.device if same_device else {})
    return max(0.0, one.covariance(one) + other.covariance(other) - 2.0 * shared.covariance(against))


def probability_below(error: Error, logarithm: float) -> float:
    """Probability that a ratio of which the logarithm is estimated is below one.

    Examples
    --------
    >>> probability_below(Error(0.1), 0.0)
    0.5
    """
    if error.scale == 0.0:
        return 0.5 if logarithm == 0.0 else float(logarithm < 0.0)
    return error.probability_below(math.exp(logarithm), 1.0)
