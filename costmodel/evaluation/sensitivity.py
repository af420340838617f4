"""How far a plan's step time moves when one quantity of the question moves over its own error."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from costmodel.catalogue.clusters import ClusterLike
from costmodel.catalogue.keywords import by_other_names
from costmodel.description.question import Question
from costmodel.evaluation.asked_step import Answer, step_of
from costmodel.evaluation.engine import evaluate_one
from costmodel.evaluation.error_model import constant_error
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.factors import IMBALANCE, scaled
from costmodel.evaluation.first_contacts import NINETY
from costmodel.text.errors import InvalidValue

EFFICIENCY = "device.efficiency"
BALANCED, UNBALANCED = 1.0, 1.5
"""Tokens of the busiest expert rank over the mean between which an imbalance that nobody measured is varied."""


class Sensitivity(NamedTuple):
    """Step time at both ends of a quantity's 90 % interval."""

    quantity: str  # its name in the question, as `costmodel.evaluation.factors.quantities` lists it
    low: float  # low, high: factors on it
    high: float
    time_low: float  # time_low, time_high: step time with each [s]
    time_high: float
    source: str  # where the error comes from

    @property
    def swing(self) -> float:
        """Seconds between the two ends."""
        return abs(self.time_high - self.time_low)


def step_time(estimate: Estimate, factors: dict[str, float]) -> float:
    """Step time of the same plan with some quantities multiplied [s].

    Parameters
    ----------
    estimate : of the plan
    factors : as `costmodel.evaluation.factors.scaled` takes them

    Raises
    ------
    InvalidValue
        as `costmodel.evaluation.factors.scaled`
    """
    model, cluster = scaled(estimate.model, estimate.cluster, factors)
    return float(evaluate_one(Question(model, cluster, estimate.framework), estimate.plan).total)


@by_other_names(model="answer")
def sensitivities(answer: Answer, cluster: ClusterLike | None = None, **asked: Any) -> tuple[Sensitivity, ...]:
    """Sensitivities of a plan's step time, the largest first.

    Bandwidth and latency of each level of the network vary with the calibrated constants of their collectives, the
    efficiency with those of products, memory with that of streaming kernels; an imbalance of experts, which no
    calibration knows, from none to `UNBALANCED`.

    Parameters
    ----------
    answer : of the plan: an estimate, or a search, whose best plan is meant; or a model, or its name
    cluster, asked : of a model, as `costmodel.estimate` takes them

    Returns
    -------
    tuple
        of `Sensitivity`; levels that the plan doesn't use are left out

    Raises
    ------
    InvalidValue
        where an argument is not what it should be

    Examples
    --------
    >>> from costmodel import estimate, load_cluster, load_model, Plan
    >>> plan = Plan(global_batch=64, seq_len=8192, tensor_parallel=2, data_parallel=4)
    >>> found = sensitivities(estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), plan))
    >>> found[0].quantity
    'device.efficiency'
    """
    estimate = step_of(answer, cluster, asked)
    found = []
    peak = to_peak(estimate)
    for quantity, low, most, source in ranges(estimate):
        high = min(most, peak) if quantity == EFFICIENCY else most
        low_time, high_time = (step_time(estimate, {quantity: factor}) for factor in (low, high))
        found.append(Sensitivity(quantity, low, high, low_time, high_time, source))
    return tuple(sorted((one for one in found if one.swing > 1e-9 * estimate.step_time), key=lambda one: -one.swing))


def ranges(estimate: Estimate) -> Iterator[tuple[str, float, float, str]]:
    """Quantities with both factors of their 90 % intervals, and the source of the error; an efficiency's beyond the peak, too."""
    device, framework, model = estimate.cluster.device, estimate.framework, estimate.model
    for place, level in enumerate(estimate.cluster.levels):
        inside = "network_node_latency" if place == 0 else "network_latency"
        for field, constant in (("bandwidth", "network_quality"), ("latency", inside)):
            error, source = constant_error(constant, device, framework)
            yield f"{level.name}.{field}", math.exp(-NINETY * error), math.exp(NINETY * error), source
    error, source = _efficiency_error(estimate)
    yield EFFICIENCY, math.exp(-NINETY * error), math.exp(NINETY * error), source
    error, source = constant_error("memory_bandwidth", device, framework)
    yield "device.memory_bandwidth", math.exp(-NINETY * error), math.exp(NINETY * error), source
    if model.experts and model.expert_capacity is None:
        given = model.expert_imbalance
        yield IMBALANCE, BALANCED / given, max(UNBALANCED / given, 1.0), "no measurement: from balanced to half as much again"


def to_peak(estimate: Estimate) -> float:
    """Factor on the efficiency with which the best of the products would run at the peak."""
    device = estimate.cluster.device
    return 1.0 / min(max(device.gemm_efficiency(str(estimate.plan.dtype)), *device.efficiency.gemm.values()), 1.0)


def _efficiency_error(estimate: Estimate) -> tuple[float, str]:
    """Error of the products' efficiency: of the device's constant and the framework's factor on it."""
    device, framework = estimate.cluster.device, estimate.framework
    errors = [constant_error("compute_gemm_efficiency_scale", device, framework)]
    for dtype in dict.fromkeys((estimate.plan.dtype, "bf16", "fp16")):
        try:
            errors.append(constant_error(f"gemm.{dtype}", device, framework))
        except InvalidValue:
            continue
        break
    return math.hypot(*(error for error, _ in errors)), "; ".join(dict.fromkeys(source for _, source in errors))
