"""Collectives inside a node: constants of each device's links from measured sweeps, and the relation pooled over devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

import costmodel
from calibration.data.micro import Array, Operator, Sweep, gathered, operation_of
from calibration.data.reference import DEFAULT_FOLDER, table_rows
from calibration.fit.devices import Fitted, devices_of, pooled, solved, unknown
from costmodel.catalogue.loader import link_bandwidth
from costmodel.evaluation.collectives import bus_factor
from costmodel.formulas.network.nccl import WITHOUT_NVLINK
from costmodel.formulas.network.node_links import NodeLinks, node_collective
from costmodel.text.errors import UnreadableFile

FILE = "collectives_aic.csv"
SMALLEST = 2.0**20
PRIORS = {
    "links_launch": (1e-5, 0.7, 1e-7, 1e-3), "links_hop": (5e-7, 1.0, 1e-9, 1e-4), "links_pair": (1.3, 0.4, 0.2, 5.0),
    "links_crowd": (1e-2, 1.5, 1e-5, 3.0), "links_share": (0.9, 0.4, 0.05, 3.0), "links_ramp": (4e-5, 1.4, 1e-9, 1e-2),
}  # fmt: skip
"""Before any device is measured: value, spread of its logarithm, bounds."""
OF_OPERATION = ("links_launch", "links_pair", "links_share", "links_ramp")
"""Constants that each operation has of its own: it has other kernels, and in a switch that reduces another way."""


def read_collectives(folder: Path | None = None) -> list[Sweep]:
    """Sweeps of collectives inside a node, from 1 MiB on, one of each device and operation."""
    path = (folder or DEFAULT_FOLDER) / "micro" / FILE
    if not path.is_file():
        return []
    try:
        operators = [one for row in table_rows(path) for one in collective(
            row["device"], row["op"], float(row["ranks"]), float(row["nbytes"]), float(row["latency_s"])
        )]  # fmt: skip
    except (KeyError, ValueError) as error:
        raise UnreadableFile(f"{path}: not a sweep of collectives: {error!r}") from error
    return gathered(operators, FILE)


def collective(device: str, operation: str, ranks: float, nbytes: float, seconds: float) -> Iterator[Operator]:
    """A collective as an operator, with the bytes that a rank sends; none where it is smaller than 1 MiB.

    `nbytes` is what is reduced, or all that is gathered, scattered or exchanged on a rank.
    """
    name = operation_of(operation)
    if name is None:
        raise KeyError(operation)
    if nbytes >= SMALLEST:
        sent = bus_factor(name, int(ranks)) * nbytes
        yield Operator("collective", device, name, "", {"ranks": ranks, "sent": sent}, seconds)


def links_of(values: Mapping[str, float], device: str, operation: str) -> NodeLinks:
    """Links of a device as an operation finds them: shares are of the link on the data sheet."""
    def known(name: str) -> float:
        return values.get(f"{name}.{operation}" if name in OF_OPERATION else name, PRIORS[name][0])

    return NodeLinks(
        known("links_launch"), known("links_hop"), known("links_share") * link_bandwidth(device), known("links_pair"),
        known("links_crowd"), known("links_ramp"),
    )  # fmt: skip


def predict(sweep: Sweep, values: Mapping[str, float]) -> Array:
    """Time of every collective of a sweep [s]."""
    return collective_time(sweep, links_of(values, sweep.device, sweep.dtype))


def collective_time(sweep: Sweep, links: NodeLinks) -> Array:
    """Time of every collective of a sweep over some links [s]."""
    of = sweep.columns
    return np.asarray(node_collective(of["sent"], of["ranks"], links))


def fit_links(sweeps: list[Sweep], priors: Mapping[str, tuple[float, float]]) -> Fitted:
    """Constants of one device's links.

    `priors` are as of `calibration.fit.devices.fit_device`.
    """
    keys = [name for name in PRIORS if name not in OF_OPERATION]
    keys += [f"{name}.{sweep.dtype}" for name in OF_OPERATION for sweep in sweeps]
    constants = [unknown(key, PRIORS[key.split(".")[0]], priors) for key in keys]
    seconds = np.concatenate([sweep.seconds for sweep in sweeps])

    def predicted(given: Mapping[str, float]) -> Array:
        return np.concatenate([predict(sweep, given) for sweep in sweeps])

    values, errors = solved(constants, predicted, seconds, np.ones(len(seconds)))
    return Fitted(values, errors, frozenset(keys), tuple(sorted({sweep.file for sweep in sweeps})))


def relation(fits: Mapping[str, Fitted], device: str) -> dict[str, tuple[float, float]]:
    """What the other devices with the same kind of links say of one: medians and spreads of the logarithm."""

    def switched(name: str) -> bool:
        return costmodel.load_device(name).architecture not in WITHOUT_NVLINK

    alike = {name: fitted for name, fitted in fits.items() if switched(name) == switched(device) and name != device}
    return pooled(alike, costmodel.load_device(device).architecture) if alike else {}


def fit_all_links(sweeps: list[Sweep]) -> dict[str, Fitted]:
    """Constants of every device's links: around any device's, then around those of the others with such links."""
    by_device = devices_of(sweeps)
    first = {name: fit_links(mine, {}) for name, mine in by_device.items()}
    return {name: fit_links(mine, relation(first, name)) for name, mine in by_device.items()}
