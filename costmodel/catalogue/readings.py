"""Quantities in users' files: which key measures what, and for how many GPUs it is given."""

from __future__ import annotations

import re
from typing import Literal

from costmodel.description.cluster import Cluster, Level
from costmodel.description.device import Device
from costmodel.description.fields import Quantified, table
from costmodel.text.checks import positive_int, real
from costmodel.text.errors import InvalidValue
from costmodel.text.units import quantity

KINDS = {
    name: row.kind.quantity
    for described in (Level, Device, Cluster) for name, row in table(described).items() if isinstance(row.kind, Quantified)
} | {"link_bandwidth_per_direction": "bandwidth"}  # fmt: skip
"""Key: the kind of quantity that it holds."""
STACK_KINDS = dict.fromkeys(
    (
        "host_forward", "host_backward", "host_collective_launch", "host_collective_call", "host_micro_batch", "host_step",
        "host_layer_update", "host_pipeline_call", "host_pressure_time", "host_module_hook", "host_matrix_update",
        "host_blocked_kernel", "host_update_kernel",
    ), "time",
) | dict.fromkeys(("memory_workspace", "memory_fixed"), "size")  # fmt: skip
"""The same of a framework's constants; the others are plain numbers."""
SHARED = ("bandwidth_per_node", "bandwidth_per_nic", "line_rate_per_node", "line_rate_per_nic", "nics_per_node")
"""Keys of a level that say what several GPUs share."""


_WHOSE = re.compile(r"(.*\S)\s*(?:/|\bper\b|\ba\b|\beach\b)\s*(node|machine|server|gpu|device)", re.IGNORECASE)


def rate_per_gpu(field: str, value: object, gpus_per_node: int, whose: Literal["GPU", "node"]) -> float:
    """A bandwidth of a network as each GPU has it, given of a GPU or of a node's NICs together [bytes/s].

    Parameters
    ----------
    field : what it is of, for the message
    value : a number in SI units, or a text with a unit, which may say whose it is: ``"400 Gbit/s per GPU"``,
        ``"3200 Gbit/s per node"``
    gpus_per_node : that share a node's NICs
    whose : what is meant where the text doesn't say

    Raises
    ------
    InvalidValue
        where it is no bandwidth

    Examples
    --------
    >>> rate_per_gpu("network", "3200 Gbit/s", 8, "node"), rate_per_gpu("network", "400 Gbit/s per GPU", 8, "node")
    (50000000000.0, 50000000000.0)
    """
    said = _WHOSE.fullmatch(value.strip()) if isinstance(value, str) else None
    found = quantity(field, value if said is None else said[1], "bandwidth")
    of_node = whose == "node" if said is None else said[2].lower() in ("node", "machine", "server")
    return found / gpus_per_node if of_node else found


def si(entry: dict[str, object]) -> dict[str, object]:
    """A table with its quantities in SI units, those of peaks by dtype included."""
    found = {key: quantity(key, value, KINDS[key]) if key in KINDS else value for key, value in entry.items()}
    for key in ("dense_peak", "best_product"):
        rates = found.get(key)
        if isinstance(rates, dict):
            found[key] = {dtype: quantity(f"{key}.{dtype}", rate, "flop_rate") for dtype, rate in rates.items()}
    efficiency = found.get("efficiency")
    if isinstance(efficiency, dict):
        shares = {key: value for key, value in efficiency.items() if key != "kernel_time"}
        times = {key: quantity(key, value, "latency") for key, value in efficiency.items() if key == "kernel_time"}
        found["efficiency"] = shares | times
    return found


def constants(entry: dict[str, object]) -> dict[str, float]:
    """A framework's calibrated constants in SI units."""
    return {
        key: quantity(key, value, STACK_KINDS[key]) if key in STACK_KINDS else real(key, value, 0.0, 1e12)
        for key, value in entry.items()
    }


def level(entry: dict[str, object], gpus_per_node: int) -> dict[str, object]:
    """A table of one network level with its rates per GPU.

    Parameters
    ----------
    entry : with ``bandwidth`` (of each GPU), or ``bandwidth_per_node``, or ``bandwidth_per_nic`` and ``nics_per_node``
    gpus_per_node : that share a node's NICs

    Raises
    ------
    InvalidValue
        where the rate is given twice, or NICs without their number
    """
    found = {key: value for key, value in entry.items() if key not in SHARED}
    nics = positive_int("nics_per_node", entry["nics_per_node"], 10_000) if "nics_per_node" in entry else None
    for name in ("bandwidth", "line_rate"):
        given = [key for key in (name, f"{name}_per_node", f"{name}_per_nic") if key in entry]
        if len(given) > 1:
            raise InvalidValue(given[1], entry[given[1]], f"one of {' and '.join(given)}")
        if given and given[0] != name:
            whole = quantity(given[0], entry[given[0]], "bandwidth")
            if given[0].endswith("nic"):
                if nics is None:
                    raise InvalidValue("nics_per_node", None, f"how many NICs a node has, beside {given[0]}")
                whole *= nics
            found[name] = whole / gpus_per_node
    return si(found)
