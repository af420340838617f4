"""Layers that `python -m calibration measure --config` timed on a machine, beside what the library says of them there."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scipy.optimize import brentq

from calibration.fit.measured_operators import measured_rows
from costmodel.arithmetic.named_tuples import Row, replaced
from costmodel.catalogue.loader import load_device
from costmodel.catalogue.software import load_framework
from costmodel.description.cluster import Cluster, Level
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.description.transformer import Transformer
from costmodel.formulas.quantities import Inputs
from costmodel.formulas.training_step import layer_pass
from costmodel.text.errors import UnreadableFile

TRAFFIC, MOST = "compute_elementwise_traffic", 20.0
SIZES = ("hidden", "heads", "kv_heads", "head_dim", "feed_forward", "gated", "norm")


class TimedLayer(NamedTuple):
    """A pass of one layer."""

    direction: str
    inputs: Inputs
    measured: float
    predicted: float


def read_layers(path: Path) -> list[TimedLayer]:
    """Layers of a file that `measure` wrote, by the catalogue's constants of its device and of eager PyTorch."""
    device, rows = measured_rows(path)
    try:
        return [_timed(row, device) for row in rows if row["family"] == "layer"]
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableFile(f"{path}: a layer's row is not one of `calibration measure`: {error!r}") from error


def _timed(row: Row, name: str) -> TimedLayer:
    model = Transformer(name="layer", layers=1, vocabulary=1, **{key: row[key] for key in SIZES})
    device = load_device(name)
    alone = Cluster(name="machine", device=device, levels=(Level(name="node", size=1, bandwidth=1e9, latency=0.0),), gpus=1)
    software = dataclasses.replace(load_framework("ddp", device.architecture), autocast=False)
    plan = Plan(global_batch=int(row["batch"]), seq_len=int(row["seq"]), micro_batch=int(row["batch"]), attention="sdpa",
                fused_norms=True)  # fmt: skip
    inputs = Question(model, alone, software).inputs(plan.on(alone))
    return TimedLayer(row["direction"], inputs, float(row["seconds"]), time_of(inputs, row["direction"]))


def time_of(inputs: Inputs, direction: str, traffic: float | None = None) -> float:
    """What the library says of a pass, the host left out [s].

    `traffic` is the bytes that what lies between products moves over the fused minimum, in place of the framework's.
    """
    if traffic is not None:
        inputs = inputs._replace(software=replaced(inputs.software, {TRAFFIC: traffic}))
    one = layer_pass(inputs.model, inputs.settings, inputs.plan, inputs.network, inputs.software, inputs.device)
    return float(one.forward if direction == "forward" else one.data + one.weight)


def traffic_of(layers: Sequence[TimedLayer]) -> float:
    """Traffic between products, over the fused minimum, with which passes take as long on average as they were measured to."""

    def error(traffic: float) -> float:
        return sum(math.log(time_of(one.inputs, one.direction, traffic) / one.measured) for one in layers)

    if error(1.0) >= 0.0:
        return 1.0
    return MOST if error(MOST) <= 0.0 else float(brentq(error, 1.0, MOST))


def in_words(layers: Sequence[TimedLayer]) -> list[str]:
    """What was measured beside what is said, and what would make them alike."""
    lines = []
    for one in layers:
        said = one.predicted / one.measured - 1.0
        tokens = f"{one.inputs.plan.micro_batch:,.0f} x {one.inputs.settings.seq_len:,.0f} tokens"
        lines.append(
            f"a layer of {one.inputs.model.hidden:,.0f} channels, {tokens}, {one.direction}: "
            f"{1e3 * one.measured:.3g} ms measured, {1e3 * one.predicted:.3g} said ({said:+.1%})"
        )
    if layers:
        own = float(layers[0].inputs.software.compute.elementwise_traffic)
        lines.append(f"{TRAFFIC} = {traffic_of(layers):.3g} would make them alike on average ({own:.3g} said)")
    return lines
