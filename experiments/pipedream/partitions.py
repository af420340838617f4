"""The tables of PipeDream's papers: configurations, speed-ups and bytes saved, published beside what the partitioner gets.

Where another configuration is found than was published, the published one is priced too, so that a miss has its cause:
how much slower the model holds it to be, or that these layers' times don't allow the speed-up that was measured.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from calibration.data.reference import DEFAULT_FOLDER, table_rows
from costmodel.catalogue.loader import load_device
from costmodel.description.layers import LayerChain
from costmodel.description.networks import load_network
from costmodel.studies.partitioning import Partition, partition

NAME = "pipedream_arxiv2018_table1.csv"
NETWORKS = {"VGG16": "vgg-16", "Inception-v3": "inception-v3", "S2VT": "s2vt"}
PROFILES = {"vgg-16": ("vgg16", 128), "inception-v3": ("inception_v3", 128)}
"""Profiles that the authors published, of a V100, with the minibatch that they were measured with."""
MINIBATCHES = {"s2vt": 32}
"""Where the table's number counts something else: S2VT's 80 are the steps of 32 streams (`costmodel.s2vt`)."""


class ClusterOfPaper(NamedTuple):
    """Servers of one GPU each on one network."""

    device: str
    bandwidth: float  # [bytes/s]


CLUSTERS = {"A": ClusterOfPaper("titan-x-pascal", 3.125e9), "B": ClusterOfPaper("v100-sxm-16gb", 1.25e9)}
TIE = 0.05
"""Two configurations are as fast for the model where their times differ by less than this share."""
WITHIN = 0.15
"""A speed-up is met within this share."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the table, with the layers timed by their shapes or by the authors' profile."""

    network: str  # network, cluster, layers: what was trained, where, and where the layers' times are from: shapes or profile
    cluster: str
    layers: str
    machines: int  # GPUs
    configuration: str  # configuration, speedup_over_one, reduction: published
    speedup_over_one: float
    reduction: float
    found: Partition  # the best partition by the paper's recurrence
    as_published: Partition  # the best one of the published configuration, by the same

    @property
    def agrees(self) -> bool:
        """Whether the configuration found is the published one."""
        return self.found.configuration == self.configuration

    @property
    def slower(self) -> float:
        """How much longer a minibatch takes under the published configuration than under the one found, as a share."""
        return self.as_published.time / self.found.time - 1.0

    @property
    def cause(self) -> str:
        """Why the published configuration isn't found; empty where it is."""
        if self.agrees:
            return ""
        priced = self.as_published.speedup_over_one
        if priced < (1.0 - WITHIN) * self.speedup_over_one:
            return f"no cut of these layers makes it faster than {priced:.2f} times one machine: the authors' times were others"
        if self.slower < TIE:
            return f"a tie: {100 * self.slower:.1f} % slower here"
        met = abs(priced / self.speedup_over_one - 1.0) <= WITHIN
        as_measured = ", and was measured as fast as it is priced" if met else ""
        return f"{100 * self.slower:.0f} % slower here than {self.found.configuration}{as_measured}"


def chains(network: str, cluster: ClusterOfPaper, minibatch: int, profiles: Path) -> Iterator[tuple[str, LayerChain]]:
    """The layers by their shapes, and by the authors' profile where there is one."""
    yield "shapes", load_network(network).chain(load_device(cluster.device), minibatch=minibatch)
    if network in PROFILES:
        name, measured = PROFILES[network]
        yield "profile", LayerChain.from_pipedream(profiles / f"{name}.txt", measured).with_minibatch(minibatch)


def rows(table: list[dict[str, str]], profiles: Path) -> list[Row]:
    """Every row of the table, by shapes and by profile."""
    out = []
    for line in table:
        network, cluster, machines = NETWORKS[line["model"]], CLUSTERS[line["cluster"]], int(line["machines"])
        minibatch = MINIBATCHES.get(network, int(line["minibatch_per_machine"]))
        for source, chain in chains(network, cluster, minibatch, profiles):
            published = tuple(map(int, line["config"].split("-")))
            found, given = (
                partition(
                    chain, [machines], [cluster.bandwidth], recurrence="arxiv2018", compress_branches=True, replicas=replicas
                )
                for replicas in (None, published)
            )
            out.append(Row(
                network, line["cluster"], source, machines, line["config"], float(line["PipeDream_speedup_over_1"]),
                float(line["comm_reduction_pct"]) / 100.0, found, given,
            ))  # fmt: skip
    return out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``experiments partitions``."""
    parser.add_argument("--table", type=Path, default=DEFAULT_FOLDER / "seeds" / NAME, help="the published table")
    parser.add_argument("--profiles", type=Path, default=DEFAULT_FOLDER / "seeds" / "profiles",
                        help="folder of PipeDream's profiles")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Print each row: configuration, speed-up over one machine and bytes saved, published, found, and of the published one."""
    answers = rows(table_rows(arguments.table), arguments.profiles)
    print(f"{'':35s}{'published':>22s}{'found':>22s}{'published one, priced':>24s}")
    for row in answers:
        label = f"{row.network} on {row.machines} of {row.cluster}, by {row.layers}"
        priced = [
            (made.configuration, made.speedup_over_one, made.communication_reduction) for made in (row.found, row.as_published)
        ]
        columns = [(row.configuration, row.speedup_over_one, row.reduction), *priced]
        cells = " ".join(f"{name:>9s} {over_one:5.2f}x {100 * reduction:4.0f} %" for name, over_one, reduction in columns)
        print(f"{label:35s}{cells}  {row.cause}".rstrip())
    for source in ("shapes", "profile"):
        chosen = [row for row in answers if row.layers == source]
        same = sum(row.agrees for row in chosen)
        near = sum(abs(row.as_published.speedup_over_one / row.speedup_over_one - 1.0) <= WITHIN for row in chosen)
        print(f"By {source}, {same} of {len(chosen)} configurations are the published ones; priced as published, "
              f"{near} are within {100 * WITHIN:.0f} % of the measured speed-up over one machine.")  # fmt: skip
    return 0
