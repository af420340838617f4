"""What if the hardware were better or worse: a question whose bandwidths, latencies and rates are scaled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from costmodel.description.cluster import Cluster, Level
from costmodel.description.device import Device
from costmodel.description.transformer import Transformer
from costmodel.text.checks import real
from costmodel.text.errors import InvalidValue

IMBALANCE = "model.expert_imbalance"
OF_DEVICE = ("device.memory", "device.memory_bandwidth", "device.efficiency")


def quantities(model: Transformer, cluster: Cluster) -> tuple[str, ...]:
    """Names of what `scaled` can change in a question.

    Examples
    --------
    >>> from costmodel import load_cluster, load_model
    >>> quantities(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8))[0]
    'nvlink.bandwidth'
    """
    levels = [f"{level.name}.{field}" for level in cluster.levels for field in ("bandwidth", "latency")]
    experts = (IMBALANCE,) if model.experts and model.expert_capacity is None else ()
    return (*levels, *OF_DEVICE, *experts)


def scaled(model: Transformer, cluster: Cluster, factors: Mapping[str, float]) -> tuple[Transformer, Cluster]:
    """A question with some of its quantities multiplied.

    Parameters
    ----------
    model, cluster : of the question
    factors : by a name of `quantities`; ``device.efficiency`` scales the share of the peak that products and attention
        reach, ``device.memory`` the capacity, ``model.expert_imbalance`` the tokens of the busiest expert rank over the mean

    Returns
    -------
    tuple
        the model and the cluster

    Raises
    ------
    InvalidValue
        for a name that the question doesn't have, or a value that a description can't hold

    Examples
    --------
    >>> from costmodel import load_cluster, load_model
    >>> model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    >>> scaled(model, cluster, {"nvlink.bandwidth": 0.5})[1].levels[0].bandwidth / cluster.levels[0].bandwidth
    0.5
    """
    known = quantities(model, cluster)
    for name, factor in factors.items():
        if name not in known:
            raise InvalidValue("factors", name, "one of " + ", ".join(known))
        real(name, factor, 1e-3, 1e3)
    levels = [_level(level, factors) for level in cluster.levels]
    cluster = dataclasses.replace(cluster, levels=levels, device=_device(cluster.device, factors))
    if factors.get(IMBALANCE, 1.0) != 1.0:
        model = dataclasses.replace(model, expert_imbalance=max(1.0, model.expert_imbalance * factors[IMBALANCE]))
    return model, cluster


def _level(level: Level, factors: Mapping[str, float]) -> Level:
    faster = factors.get(f"{level.name}.bandwidth", 1.0)
    return dataclasses.replace(
        level, bandwidth=level.bandwidth * faster, latency=level.latency * factors.get(f"{level.name}.latency", 1.0),
        line_rate=None if level.line_rate is None else level.line_rate * faster,
        ring_bandwidth=None if level.ring_bandwidth is None else level.ring_bandwidth * faster,
    )  # fmt: skip


def _device(device: Device, factors: Mapping[str, float]) -> Device:
    memory, rate, efficiency = (factors.get(name, 1.0) for name in OF_DEVICE)
    constants = device.efficiency
    return dataclasses.replace(
        device, memory=device.memory * memory, memory_bandwidth=device.memory_bandwidth * rate,
        usable_memory=None if device.usable_memory is None else device.usable_memory * memory,
        efficiency=dataclasses.replace(
            constants, gemm={dtype: share * efficiency for dtype, share in constants.gemm.items()},
            attention_forward=constants.attention_forward * efficiency,
            attention_backward=constants.attention_backward * efficiency,
        ),
    )  # fmt: skip
