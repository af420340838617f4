"""What an answer rests on: the quantities that it depends on, their errors, and where both come from."""

from __future__ import annotations

import math
from typing import NamedTuple

from costmodel.catalogue.loader import efficiency_source, names, provenance
from costmodel.description.device import Device
from costmodel.evaluation.error_model import constant_error
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.first_contacts import NINETY
from costmodel.text.checks import kind, mapping
from costmodel.text.units import GB, TB, TFLOP, format_bytes, format_seconds


class Assumption(NamedTuple):
    """One quantity: its name, its value with the unit, its error in words (empty where none is known), and its source."""

    name: str
    value: str
    error: str
    source: str


def assumptions(estimate: Estimate) -> tuple[Assumption, ...]:
    """What an estimate rests on, from the device over the network to the software.

    Returns
    -------
    tuple
        of `Assumption`; a description that is not the catalogue's has ``"as given"`` for its source

    Raises
    ------
    InvalidValue
        where no estimate is given

    Examples
    --------
    >>> from costmodel import estimate, load_cluster, load_model, Plan
    >>> plan = Plan(global_batch=64, seq_len=8192, tensor_parallel=2, data_parallel=4)
    >>> assumptions(estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), plan))[0].value
    '989 TFLOP/s'
    """
    kind("estimate", estimate, Estimate, "estimate(...)")
    return (*_of_device(estimate), *_of_network(estimate), *_of_software(estimate))


def _quoted(entry: dict[str, object], *keys: str) -> str:
    """The source of a value of the catalogue's."""
    for key in keys:
        entry = {str(name): value for name, value in mapping(key, entry.get(key, {})).items()}
    return f"{entry.get('kind', '')}: {entry['source']}" if "source" in entry else "as given"


def _of_device(estimate: Estimate) -> list[Assumption]:
    device: Device = estimate.cluster.device
    entry = provenance("device", device.name) if device.name in names("device") else {}
    dtype = str(estimate.plan.dtype)
    measured = efficiency_source(device.name) if device.name in names("device") else "as given"
    error, source = constant_error("memory_bandwidth", device, estimate.framework)
    scale = estimate.framework.constants.compute.gemm_efficiency_scale
    quality, family = constant_error("compute_gemm_efficiency_scale", device, estimate.framework)
    return [
        Assumption(
            f"dense peak of {device.name} in {dtype}", f"{device.peak(dtype) / TFLOP:,.0f} TFLOP/s", "",
            _quoted(entry, "dense_peak"),
        ),
        Assumption(
            "memory that a process can use", format_bytes(estimate.usable_memory), "",
            _quoted(entry, "usable_memory" if "usable_memory" in entry else "memory"),
        ),
        Assumption(
            "memory bandwidth that kernels reach", f"{device.memory_bandwidth * device.efficiency.memory / TB:.3g} TB/s",
            _percent(error), f"{_quoted(entry, 'memory_bandwidth')}; {source}",
        ),
        Assumption(
            "share of the peak that large products reach",
            f"{100 * device.gemm_efficiency(dtype) * scale:.0f} %", _percent(quality), f"efficiency {measured}; {family}",
        ),
    ]  # fmt: skip


def _of_network(estimate: Estimate) -> list[Assumption]:
    cluster = estimate.cluster
    entry = provenance("cluster", cluster.name) if cluster.name in names("cluster") else {}
    found = []
    for place, level in enumerate(cluster.levels):
        faster, source = constant_error("network_quality", cluster.device, estimate.framework)
        later, origin = constant_error("network_latency" if place else "network_node_latency", cluster.device, estimate.framework)
        found += [
            Assumption(
                f"bandwidth of {level.name}, a GPU in one direction",
                f"{level.bandwidth / level.oversubscription / GB:,.4g} GB/s", _percent(faster),
                f"{_quoted(entry, level.name, 'bandwidth')}; {source}",
            ),
            Assumption(
                f"latency of a hop over {level.name}", format_seconds(level.latency), _percent(later),
                f"{_quoted(entry, level.name, 'latency')}; {origin}",
            ),
        ]  # fmt: skip
    return found


def _of_software(estimate: Estimate) -> list[Assumption]:
    spread, framework = estimate.spread, estimate.framework
    rows = f"{spread.rows:,} measured runs" if spread.rows else "no measured run of its own"
    where = "" if spread.calibrated else "; none of them on this device, so that other frameworks and devices stand in"
    found = [
        Assumption(
            f"step time of {framework.name}", format_seconds(estimate.step_time), _percent(estimate.time_spread), rows + where
        ),
        Assumption(
            f"memory of {framework.name}", format_bytes(estimate.memory.total), _percent(spread.memory.deviation), rows + where
        ),
        Assumption(
            "share of the memory up to which a plan is called fitting",
            f"{100 * spread.margin(estimate.required_probability):.0f} %", "", "runs that ran, and runs that ran out of memory",
        ),
    ]  # fmt: skip
    if estimate.model.experts and estimate.model.expert_capacity is None:
        given, source = f"{estimate.model.expert_imbalance:.3g}", "as given; no calibration knows it"
        found.append(Assumption("tokens of the busiest expert rank over the mean", given, "", source))
    return found


def _percent(error: float) -> str:
    """A standard error of a logarithm as the 90 % interval's factor."""
    return f"90 % within a factor of {math.exp(NINETY * error):.3g}"
