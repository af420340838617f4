"""What can be dragged: for each slider its field, its unit and how far it goes."""

from __future__ import annotations

from typing import NamedTuple

from costmodel.page.question import PageQuestion
from costmodel.text.units import GiB

FACTOR = 8.0
"""Times less and more that a rate, a delay or a capacity can be dragged to."""


class Slider(NamedTuple):
    """A field that can be dragged."""

    field: str  # its name
    label: str  # what it is
    unit: str  # in which it is shown
    scale: float  # one of that unit in the field's
    value: float  # where it starts, in the field's unit
    least: float  # least, most: how far it goes, in the field's unit
    most: float
    logarithmic: bool  # whether equal ways are equal factors
    ends: tuple[str, str] = ("", "")  # what the least and the most are, where they are more than ends


def sliders(question: PageQuestion, price: float) -> list[Slider]:
    """What can be dragged of a question."""
    fields, device, dtype = question.fields(), question.cluster.device, question.dtype
    found = []

    def factor(field: str, label: str, unit: str, scale: float, value: float) -> None:
        found.append(Slider(field, label, unit, scale, value, value / FACTOR, value * FACTOR, True))

    for level in question.cluster.levels:
        factor(f"{level.name}.bandwidth", f"{level.name} bandwidth", "GB/s", 1e9, fields[f"{level.name}.bandwidth"])
    for level in question.cluster.levels:
        if level.latency:
            factor(f"{level.name}.latency", f"{level.name} latency", "us", 1e-6, fields[f"{level.name}.latency"])
    factor("device.memory", "GPU memory", "GiB", float(GiB), fields["device.memory"])
    factor("device.memory_bandwidth", "memory bandwidth", "GB/s", 1e9, fields["device.memory_bandwidth"])
    factor("device.flop_rate", f"{dtype} peak", "TFLOP/s", 1e12, device.peak(dtype))
    efficiency = device.gemm_efficiency(dtype)
    most, ends = max(1.0, efficiency), ("", "the peak")
    found.append(Slider("device.gemm_efficiency", "GEMM efficiency", "% of peak", 0.01, efficiency, 0.1, most, False, ends))
    if (imbalance := fields.get("model.expert_imbalance")) is not None:
        most, ends = max(4.0, imbalance), ("even", "")
        found.append(Slider("model.expert_imbalance", "token imbalance", "", 1.0, imbalance, 1.0, most, False, ends))
    found.append(Slider("price", "price of a GPU-hour", "", 1.0, price, 0.0, max(10.0, 2 * price), False))
    return found
