"""PipeDream's figure 1 from shapes: the share of communication in data-parallel training, cell by cell."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import NamedTuple

from calibration.data.reference import DEFAULT_FOLDER, table_rows
from costmodel.catalogue.clusters import load_cluster
from costmodel.description.cluster import Cluster
from costmodel.description.networks import load_network
from costmodel.studies.data_parallel import Wiring, data_parallel_step

NAME = "pipedream_sosp19_fig1_comm_overhead.csv"
TOLERANCE = 10.0
"""Of a cell [points of percent]."""
GPUS = (2, 4, 8, 16, 32)
JITTER = 0.05
"""Spread of a worker's passes: that which explains how Goyal et al.'s iterations (figure 7) grow from 0.230 s on 8 GPUs
to 0.257 s on 352, where the exchange is hidden; 44 servers wait for a largest of 2.2 standard deviations."""
MINIBATCHES = {"alexnet": 256, "vgg-16": 64, "resnet-50": 128, "gnmt-8": 64, "gnmt-16": 64}
"""A worker's minibatch of Narayanan et al. SOSP 2019, table 1."""


class Instance(NamedTuple):
    """A kind of server of the figure."""

    published: str
    cluster: str
    wiring: Wiring


INSTANCES = (
    Instance("8x1080Ti private cluster", "gtx-1080-ti-node", "switch"),
    Instance("4xV100 Azure (PCIe, 10 Gbps)", "azure-nc24s-v3", "bus"),
    Instance("8xV100 NVLink EC2 (25 Gbps)", "aws-p3-one-flow", "cube-mesh"),
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One point of the figure."""

    instance: str  # instance, network: which
    network: str
    gpus: int  # workers
    published: float  # published, predicted: share of communication [%]
    predicted: float
    behind: float  # predicted if the exchange ran behind the backward pass [%]

    @property
    def error(self) -> float:
        """Predicted less published [points]."""
        return self.predicted - self.published


def read_figure(path: Path) -> dict[tuple[str, str, int], float]:
    """Published shares by instance, network and GPUs [%]."""
    return {(row["instances"], row["model"].lower(), int(row["n_gpus"])): float(row["comm_overhead_pct_of_total_time"])
            for row in table_rows(path)}  # fmt: skip


def fitting_minibatch(network: str, cluster: Cluster) -> int:
    """The paper's minibatch, halved until it fits the device."""
    minibatch = MINIBATCHES[network]
    while load_network(network).training_memory(minibatch) > cluster.device.memory:
        minibatch //= 2
    return minibatch


def cells(published: dict[tuple[str, str, int], float]) -> list[Cell]:
    """Every point of the figure beyond one GPU, with what is predicted."""
    out = []
    for instance in INSTANCES:
        cluster = load_cluster(instance.cluster)
        for network in MINIBATCHES:
            chain = load_network(network).chain(cluster.device, minibatch=fitting_minibatch(network, cluster))
            for gpus in GPUS:
                after, behind = (
                    100.0 * data_parallel_step(chain, cluster, gpus, overlap=overlap, wiring=instance.wiring, jitter=JITTER)
                    .communication_share for overlap in (False, True)
                )  # fmt: skip
                share = published[instance.published, network, gpus]
                out.append(Cell(instance.published, network, gpus, share, after, behind))
    return out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``experiments communication``."""
    parser.add_argument("--figure", type=Path, default=DEFAULT_FOLDER / "seeds" / NAME, help="the published points")


def run(arguments: argparse.Namespace) -> int:
    """Print every cell: published, predicted, and the error; cells off by more than the tolerance are marked."""
    table = cells(read_figure(arguments.figure))
    print(f"{'':30s}{'':10s}" + "".join(f"{f'{gpus} GPUs':>20s}" for gpus in GPUS))
    for start in range(0, len(table), len(GPUS)):
        row = table[start : start + len(GPUS)]
        points = "".join(
            f"{c.published:7.1f}{c.predicted:6.1f} ({c.error:+5.1f}{'!' if abs(c.error) > TOLERANCE else ' '})" for c in row
        )
        print(f"{row[0].instance:30s}{row[0].network:10s}{points}")
    within = sum(abs(cell.error) <= TOLERANCE for cell in table)
    behind = sum(abs(cell.behind - cell.published) <= TOLERANCE for cell in table)
    print(f"\n{within} of {len(table)} within {TOLERANCE:g} points, mean {sum(abs(c.error) for c in table) / len(table):.1f}; "
          f"with the exchange behind the backward pass {behind}, "
          f"mean {sum(abs(c.behind - c.published) for c in table) / len(table):.1f}")  # fmt: skip
    return 0
