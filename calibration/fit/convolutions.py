"""Constants of fp32 kernels outside the tensor cores, from PipeDream's measured profiles: one time a layer.

A profile's line says what the layer is, what it took and how large its output is; with the lines that say which layer
feeds which, that is its shape. The profiler waits for the device around every call, so each layer carries a constant
time forward and backward that is no kernel's: fitted beside the constants, reported, and left out of predictions.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from calibration.data.reference import DEFAULT_FOLDER
from calibration.written import CATALOGUE, generated, write
from costmodel.catalogue.loader import load_device
from costmodel.description.device import Device, LayerEfficiency
from costmodel.description.layers import LayerChain
from costmodel.description.networks import BatchNorm, Convolution, Elementwise, Kernels, Linear, NetworkLayer, Pooling, Shape
from costmodel.evaluation.own_runs_fit import Array, Fit, UnknownConstant, fit
from costmodel.text.errors import UnreadableFile

DEVICE = "v100-pcie-16gb"
"""Where the profiles were measured: the paper's Cluster-A has V100s in Azure, on PCIe."""
IMAGE_NETWORKS = ("alexnet", "densenet121", "inception_v3", "resnet18", "resnet50", "resnet101", "resnext50", "resnext101",
                  "squeezenet1_0", "vgg16")  # fmt: skip
ELEMENT_BYTES = 4.0


@dataclasses.dataclass(frozen=True)
class Measured:
    """One layer of a profile."""

    network: str  # network, name: profile and node
    name: str
    layer: NetworkLayer  # what it does
    shape: Shape  # of one sample of its input
    batch: float  # samples
    leaf: bool  # its input needs no gradient
    forward: float  # forward, backward: measured, the profiler's time included [s]
    backward: float


def _arguments(description: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\([^)]*\)|[\w.-]+)", description))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _layer(description: str) -> NetworkLayer | None:
    """The layer that a line of PyTorch's describes; None where it is no kernel of interest."""
    given = _arguments(description)
    match description.partition("(")[0]:
        case "Conv2d":
            filters = _numbers(description.partition("(")[2])[1]
            high, wide, *_ = _numbers(given["kernel_size"])
            above, beside, *_ = _numbers(given.get("padding", "(0, 0)"))
            stride, groups = _numbers(given["stride"])[0], int(given.get("groups", 1))
            return Convolution(filters, (high, wide), stride, (above, beside), 1, groups, "bias=False" not in description)
        case "ReLU":
            return Elementwise()
        case "BatchNorm2d":
            return BatchNorm()
        case "MaxPool2d" | "AvgPool2d" as word:
            side, step, margin = (_numbers(given[key])[0] for key in ("kernel_size", "stride", "padding"))
            return Pooling("max" if word == "MaxPool2d" else "mean", side, step, margin, given.get("ceil_mode") == "True")
        case "Linear":
            return Linear(int(given["out_features"]))
    return None


def read_profile(path: Path) -> list[Measured]:
    """Layers of a profile of an image network."""
    side = 299 if path.stem.startswith("inception") else 224
    shapes: dict[str, Shape] = {}
    rows: list[Measured] = []
    batch = 0.0
    for one in LayerChain.from_pipedream(path).layers:
        name, _, description = one.name.partition(" ")
        if description.startswith("Size"):
            continue
        layer, before = _layer(description), [shapes[source] for source in one.inputs or () if source in shapes]
        leaf, taken = not before, before[0] if before else (3, side, side)
        if isinstance(layer, Linear):
            taken = (_product(taken),)
        batch = batch or one.output_bytes / ELEMENT_BYTES / _product(layer.output(taken) if layer else taken)
        if batch < 1 or batch != int(batch):
            raise UnreadableFile(f"{path}: {name} gives no whole number of images of {side} pixels")
        elements = round(one.output_bytes / ELEMENT_BYTES / batch)
        if layer is not None:
            made: Shape = layer.output(taken)
        elif description.startswith("Concat"):
            made = (elements // _product(taken[1:]), *taken[1:])
        else:
            made = taken if elements == _product(taken) else (elements,)
        if _product(made) != elements:
            raise UnreadableFile(f"{path}: {name} gives {elements} elements, its shape {made}")
        shapes[one.name] = made
        if layer is not None:
            rows.append(Measured(path.stem, name, layer, taken, batch, leaf, one.forward, one.backward))
    return rows


def _product(shape: Sequence[int]) -> int:
    return int(np.prod(shape))


# The fit

PRIORS = {
    "gemm": (0.9, 0.1, 0.4, 1.0), "winograd": (0.8, 0.3, 0.1, 1.0), "gemm_output": (1e5, 1.0, 1e3, 1e7),
    "gemm_depth": (20.0, 1.0, 0.5, 1e3), "memory": (0.85, 0.1, 0.4, 1.0),
    "profiler_forward": (0.28e-3, 0.3, 1e-5, 1e-3), "profiler_backward": (0.03e-3, 0.5, 1e-6, 1e-3),
}  # fmt: skip
"""Prior, its spread in logarithms, and bounds."""
OF_DEVICE = tuple(field for field in PRIORS if not field.startswith("profiler_"))
KERNEL_TIME = 5e-6
"""Shortest kernel [s]: the profiler's own time hides it, so it is taken from devices measured without one."""


class Rows:
    """Measured passes as one column, distinct ones evaluated once."""

    def __init__(self, measured: Sequence[Measured], device: Device) -> None:
        # the time of a leaf forward holds the copy of the minibatch to the device
        keys = [(row.layer, row.shape, row.batch, row.leaf) for row in measured]
        self.distinct = list(dict.fromkeys(keys))
        place = {key: number for number, key in enumerate(self.distinct)}
        passes = [(place[key], way, row) for key, row in zip(keys, measured, strict=True)
                  for way in (0, 1) if not (row.leaf and way == 0)]  # fmt: skip
        self.place = np.array([number for number, _, _ in passes])
        self.backward = np.array([way for _, way, _ in passes])
        self.network = np.array([row.network for _, _, row in passes])
        self.seconds = np.array([row.backward if way else row.forward for _, way, row in passes])
        self.device = device

    def __len__(self) -> int:
        return len(self.seconds)

    def kernels(self, values: Mapping[str, float]) -> Array:
        """Predicted time of each pass without the profiler's [s]."""
        given = Kernels.of(with_constants(self.device, values), "fp32")
        both = np.array([layer.seconds(batch, given, leaf, shape) for layer, shape, batch, leaf in self.distinct])
        return both[self.place, self.backward]

    def predicted(self, values: Mapping[str, float]) -> Array:
        """Predicted time of each pass as the profiler would see it [s]."""
        waiting = np.where(self.backward > 0, values["profiler_backward"], values["profiler_forward"])
        return self.kernels(values) + waiting

    def weights(self) -> Array:
        """Root of a pass's share in its network's time, so that what takes long counts."""
        out = np.zeros(len(self))
        for name in set(self.network):
            inside = self.network == name
            out[inside] = np.sqrt(self.seconds[inside] / self.seconds[inside].mean())
        return out


def with_constants(device: Device, values: Mapping[str, float]) -> Device:
    """A device with constants of layers."""
    own = {field: float(values[field]) for field in OF_DEVICE}
    return dataclasses.replace(device, layer_efficiency=LayerEfficiency(**own, kernel_time=KERNEL_TIME))


def fit_rows(rows: Rows, without: str | None = None) -> Fit:
    """Fit the constants to all passes, or to all but one network's."""
    constants = [UnknownConstant(DEVICE, field, *given) for field, given in PRIORS.items()]
    seen = np.flatnonzero(rows.network != without)
    measured = np.maximum(rows.seconds, 1e-5)

    def residuals(values: Array, wanted: Array | None) -> Array:
        error = np.log(rows.predicted(dict(zip(PRIORS, values, strict=True))) / measured)[seen]
        return error if wanted is None else error[wanted]

    every = np.arange(len(seen))
    return fit(constants, residuals, len(seen), [every] * len(constants), rows.weights()[seen], noise=0.2, iterations=12)


def unseen(rows: Rows, values: Mapping[str, float]) -> dict[str, tuple[float, float, float]]:
    """Of each network its measured time, and what constants fitted with and without it say [s], profiler included."""
    fitted = rows.predicted(values)
    out = {}
    for name in dict.fromkeys(rows.network):
        inside = rows.network == name
        held_out = rows.predicted(dict(zip(PRIORS, fit_rows(rows, name).values, strict=True)))
        out[str(name)] = (float(rows.seconds[inside].sum()), float(fitted[inside].sum()), float(held_out[inside].sum()))
    return out


def read_profiles(folder: Path) -> list[Measured]:
    """Layers of every profile of an image network in a folder."""
    return [row for name in IMAGE_NETWORKS for row in read_profile(folder / f"{name}.txt")]


# The command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``networks``."""
    parser.add_argument("--profiles", type=Path, default=DEFAULT_FOLDER / "seeds" / "profiles",
                        help="folder of PipeDream's profiles")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="fit and report, write nothing")


def run(arguments: argparse.Namespace) -> int:
    """Fit, report the errors network by network, and write the constants into the catalogue."""
    rows = Rows(read_profiles(arguments.profiles), load_device(DEVICE))
    result = fit_rows(rows)
    values = dict(zip(PRIORS, map(float, result.values), strict=True))
    errors = dict(zip(PRIORS, map(float, result.standard_errors), strict=True))
    for field, value in values.items():
        print(f"{field:20s} {value:12.5g}  +- {100 * errors[field]:.1f} %")
    print(f"\n{'network':16s} {'measured':>10s} {'fitted':>8s} {'unseen':>8s}   (forward and backward; leaf forwards left out)")
    table = unseen(rows, values)
    for name, (measured, fitted, held_out) in table.items():
        print(f"{name:16s} {1e3 * measured:7.1f} ms {fitted / measured - 1:+8.3f} {held_out / measured - 1:+8.3f}")
    off = [abs(held_out / measured - 1) for measured, _, held_out in table.values()]
    print(f"{'mean of sizes':16s} {'':10s} {'':8s} {np.mean(off):8.3f}")
    if not arguments.dry_run:
        entry = {field: float(f"{values[field]:.5g}") for field in OF_DEVICE}
        content = {
            "borrowed": {"default": DEVICE},
            DEVICE: {
                **entry, "kernel_time": KERNEL_TIME, "standard_error": {field: round(errors[field], 4) for field in entry},
                "fit": {"date": datetime.date.today().isoformat(), "measurements": [f"{name}.txt" for name in IMAGE_NETWORKS]},
            },
        }  # fmt: skip
        write({CATALOGUE / "layer_efficiencies.toml": generated("networks", "measurements", content)})
    return 0
