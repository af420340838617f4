"""What measured sweeps add to NCCL's and RCCL's own models: fit it, write it into the catalogue, say how far off it is.

A sweep is a setting of one source. Constants belong to an architecture (one node), to a kind of network (several) or
to who launches; every source is also predicted with constants fitted without it.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import costmodel
from calibration.data.micro import operation_of
from calibration.data.reference import DEFAULT_FOLDER, table_rows
from calibration.written import CATALOGUE, generated, write
from costmodel.arithmetic import named_tuples as records
from costmodel.arithmetic.named_tuples import as_number
from costmodel.catalogue.communication import family_of, network_kind
from costmodel.description.cluster import Cluster, Level
from costmodel.description.topology import Group
from costmodel.evaluation.collectives import bus_factor, expected_by_nccl, expected_by_rccl, library_of, phases_of
from costmodel.evaluation.own_runs_fit import Array, Fit, UnknownConstant, fit
from costmodel.formulas.network import nccl
from costmodel.text.errors import UnreadableFile

FILES = (
    "collectives_nccltests.csv", "collectives_stas.csv", "allreduce_vtrain_lut.csv", "collectives_nanotron.csv",
    "allreduce_bigscience.csv",
)  # fmt: skip
TARGET = CATALOGUE / "communication.toml"
MIB = 2**20
SMALLEST, LARGE = 32 * 1024, 64 * MIB
DEVICES = (
    ("GB200", "gb200"), ("B200", "b200-sxm"), ("H200", "h200-sxm"), ("H100", "h100-sxm"),
    ("A100", "a100-sxm-80gb"), ("V100", "v100-sxm-32gb"), ("MI300X", "mi300x"), ("MI355X", "mi355x"),
)  # fmt: skip
INSIDE = {"volta": "dgx-2", "ampere": "dgx-a100", "hopper": "dgx-h100", "blackwell": "dgx-b200"}
"""Clusters of the catalogue with the NVLinks of an architecture."""
MESH = {"cdna3": (448e9, 312.9e9), "cdna4": (535.5e9, 374e9)}
"""The same of xGMI to seven peers, by architecture; an MI355X's reached as an MI300X's."""
TUNED = ("all-reduce", "all-gather", "reduce-scatter")
"""Operations for which NCCL's tuner chooses among algorithms."""
UNHEALTHY = ("not a healthy reference", "untuned", "likely same-GPU copies", "host timed")
"""Words in a row's notes by which its own source, or the reader who took it down, calls it no reference."""
SHARE = 0.92
"""Of a NIC's line rate that `Level.bandwidth` states; NCCL's model uses the line rate itself."""
NETWORKS = Path(__file__).parents[1] / "reference" / "micro" / "collective_networks.toml"
"""What the sweeps' words for a network between nodes stand for."""
SUPERSEDED = "older EFA/OFI"
"""Words by which a source, or the reader who took it down, says that the machine was measured again with newer software."""
BARS = {
    "one node, from 64 MiB": 0.10, "one node, 32 KiB to 64 MiB": 0.25,
    "several nodes, from 64 MiB": 0.20, "several nodes, 32 KiB to 64 MiB": 0.20,
}  # fmt: skip
PRIORS = {
    "launch": (1e-5, 1.0, 1e-7, 1e-3), "gain": (1.0, 0.03, 0.7, 2.0),
    "filling": (1e-12, 1.5, 1e-16, 1e-9), "round_bytes": (64e6, 1.5, 1e5, 2e9),
}  # fmt: skip
"""Before measuring: value, spread of its logarithm, bounds."""
NETWORK_PRIORS = {"filling": (1e-12, 0.5, 1e-16, 1e-9), "round_bytes": (100e6, 0.5, 1e5, 2e9)}
"""The same of networks, whose few sweeps differ more between clusters than either constant explains."""
NOISE = 0.05
SWEEP = 5
"""Sizes that make a sweep."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One measured point."""

    source: str  # source, sweep: where it is from, and which setting there
    sweep: str
    op: str  # op, nbytes, ranks, seconds: what was measured [bytes, s]
    nbytes: float
    ranks: int
    seconds: float
    cluster: Cluster  # on which
    launcher: str  # ``"native"`` or ``"pytorch"``
    nvls: bool  # whether NVLink's switches could reduce

    @property
    def nodes(self) -> int:
        """Nodes that the ranks lie on."""
        return -(-self.ranks // self.cluster.gpus_per_node)

    @property
    def family(self) -> str:
        """Architecture whose constants apply."""
        return family_of(self.cluster.device.architecture)

    @property
    def owner(self) -> str:
        """Kind and name of what the row's constants belong to."""
        if self.nodes == 1:
            return f"architecture.{self.family}"
        return f"network.{network_kind(self.cluster.levels[1].name)}"

    @property
    def band(self) -> str:
        """Which bar applies."""
        nodes = "several nodes" if self.nodes > 1 else "one node"
        return f"{nodes}, {'from 64 MiB' if self.nbytes >= LARGE else '32 KiB to 64 MiB'}"

    def expected(self) -> float:
        """What the newest table of the library says, without anything measured [s]."""
        if library_of(self.cluster.device.architecture) == "rccl":
            return expected_by_rccl(self.op, self.nbytes, Group(ranks=self.ranks), self.cluster)[0].time
        return expected_by_nccl(self.op, self.nbytes, Group(ranks=self.ranks), self.cluster, nvls=self.nvls)[0].time


@functools.cache
def networks() -> dict[str, records.Row]:
    """Rate of a GPU and direction [bytes/s], kind and latency [s] of networks between nodes, by what sweeps call them."""
    return tomllib.loads(NETWORKS.read_text(encoding="utf-8"))


def cluster_of(row: dict[str, str]) -> Cluster | str:
    """The machine of a row, or why it can't be told."""
    name = next((device for word, device in DEVICES if word in row["gpu"]), None)
    if name is None:
        return "GPU not stated, or none that NCCL or RCCL is modelled on"
    device, ranks, nodes = costmodel.load_device(name), int(row["n_gpus"]), int(row["n_nodes"])
    per_node = 72 if "NVL72" in row["gpu"] else ranks // nodes
    if library_of(device.architecture) == "rccl":
        line, reached = MESH[device.architecture]
        inside = Level(name="xgmi", size=8, latency=2.1e-6, bandwidth=reached, line_rate=line, topology="mesh")
    else:
        links = costmodel.load_cluster(INSIDE[family_of(device.architecture)]).levels[0]
        inside = dataclasses.replace(links, size=max(per_node, 1))
    if ranks <= per_node:
        return Cluster(name=f"{ranks} x {name}", device=device, levels=(inside,), gpus=ranks)
    network = networks().get(row["nic"])
    if network is None:
        return "rate of the NICs not stated"
    line = network["line_rate"]
    between = Level(
        name=network["fabric"], size=per_node * 4096, latency=network["latency"], bandwidth=SHARE * line, line_rate=line
    )
    return Cluster(name=f"{ranks} x {name}", device=device, levels=(inside, between), gpus=ranks)


def read(folder: Path | None = None) -> tuple[list[Row], dict[str, int]]:
    """Usable rows of the sweeps, and how many are left out by reason."""
    base = (folder or DEFAULT_FOLDER) / "micro"
    if not base.is_dir():
        raise UnreadableFile(f"{folder or DEFAULT_FOLDER}: no folder `micro` with CSV files in it")
    rows, skipped = [], collections.Counter[str]()
    for file in FILES:
        path = base / file
        if not path.is_file():
            continue
        for made in map(_row, table_rows(path)):
            if isinstance(made, Row):
                rows.append(made)
            else:
                skipped[made] += 1
    return rows, dict(skipped)


def _row(raw: dict[str, str]) -> Row | str:
    notes = raw["notes"] or ""
    if raw["in_place"] in ("1", "in-place"):
        return "in place: the same sweep out of place counts"
    if any(word in notes or word in raw["in_place"] for word in UNHEALTHY):
        return "called no healthy reference"
    op = operation_of(raw["collective"])
    if op not in TUNED:
        return "not a collective that a tuner decides on"
    nbytes, ranks = float(raw["bytes"] or 0.0), int(raw["n_gpus"])
    if nbytes < SMALLEST:
        return "smaller than 32 KiB"
    cluster = cluster_of(raw)
    if isinstance(cluster, str):
        return cluster
    # a source that says only "bandwidth" prints the bus bandwidth, as nccl-tests does
    seconds = float(raw["time_us"] or 0.0) * 1e-6 or nbytes * bus_factor(op, ranks) / (float(raw["busbw_gbps"]) * 1e9)
    off = "NVLS_ENABLE=0" in notes or "NVLS off" in notes
    if cluster.device.architecture == "volta" and ranks < 8:
        return "a part of a hybrid cube mesh, whose GPUs are linked unequally"
    place = re.sub(r" line \d+$", "", raw["source_location"])
    sweep = f"{ranks} x {cluster.device.name} {op}{' without NVLS' if off else ''}: {place}"
    return Row(
        source=raw["source"], sweep=sweep, op=op, nbytes=nbytes,
        ranks=ranks, seconds=seconds, cluster=cluster, launcher="pytorch" if "torch" in raw["in_place"] else "native",
        nvls=not off,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Problem:
    """Rows with what doesn't change while constants are fitted."""

    rows: Sequence[Row]
    nbytes: Array
    seconds: Array
    expected: Array
    constants: Sequence[UnknownConstant]
    phases: Array  # of two through the channels' buffers
    places: Array  # of launch (architecture), launch (network), gain, filling, round_bytes, launcher in each row; -1: none

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Problem:
        """Constants that the rows call for."""
        constants: list[UnknownConstant] = []
        index: dict[tuple[str, str], int] = {}
        names = sorted({row.owner for row in rows} | {f"architecture.{row.family}" for row in rows})
        for owner in names:
            for field in PRIORS:
                known = PRIORS | NETWORK_PRIORS if owner.startswith("network") else PRIORS
                value, spread, low, high = known[field]
                index[owner, field] = len(constants)
                constants.append(UnknownConstant(owner, field, value, spread, low, high))
        for launcher in sorted({row.launcher for row in rows} - {"native"}):
            value, spread, low, high = PRIORS["launch"]
            index[f"launcher.{launcher}", "launch"] = len(constants)
            constants.append(UnknownConstant(f"launcher.{launcher}", "launch", value, spread, low, high))
        places = [
            [
                index[f"architecture.{row.family}", "launch"],
                index[row.owner, "launch"] if row.nodes > 1 else -1,
                index[row.owner, "gain"], index[row.owner, "filling"], index[row.owner, "round_bytes"],
                index.get((f"launcher.{row.launcher}", "launch"), -1),
            ]
            for row in rows
        ]  # fmt: skip
        nbytes, seconds, expected, phases = np.array(
            [(row.nbytes, row.seconds, row.expected(), phases_of(row.op)) for row in rows]
        ).T
        return cls(rows, nbytes, seconds, expected, constants, phases, np.array(places))

    def predict(self, values: Array, wanted: Array | None = None) -> Array:
        """Times with some values of the constants [s]."""
        chosen = slice(None) if wanted is None else wanted
        padded = np.append(values, 0.0)
        inside, between, gain, filling, round_bytes, launcher = padded[self.places[chosen]].T
        launch = inside + between + launcher
        columns = self.expected[chosen], launch, gain, self.nbytes[chosen], filling * self.phases[chosen], round_bytes
        return np.asarray(nccl.measured(*map(as_number, columns)))

    def solve(self, usable: Array) -> Fit:
        """Constants from the rows in the mask; every sweep of a source pulls alike."""
        counts = collections.Counter((row.source, row.sweep) for row, used in zip(self.rows, usable, strict=True) if used)
        sizes = np.array([counts[row.source, row.sweep] or 1 for row in self.rows])
        weights = np.where(usable, np.sqrt(np.minimum(10.0 / sizes, 1.0)), 0.0)

        def residuals(values: Array, wanted: Array | None) -> Array:
            error: Array = np.log(self.predict(values, wanted) / self.seconds[slice(None) if wanted is None else wanted])
            return error

        affects = [np.flatnonzero((self.places == column).any(axis=1)) for column in range(len(self.constants))]
        return fit(self.constants, residuals, len(self.rows), affects, weights, noise=NOISE, iterations=200)


def fitted_on(problem: Problem) -> Array:
    """Rows that constants are fitted on: sweeps of all-reduce over sizes, on ordinary nodes.

    Other operations, logs that their source calls those of older software, single sizes (which can't tell launch, gain and
    filling apart), racks that are one NVLink domain and single GPUs on nodes of their own are predictions only.
    """
    sizes = collections.Counter((row.source, row.sweep) for row in problem.rows)
    return np.array([
        row.op == "all-reduce" and 1 < row.cluster.gpus_per_node <= 8
        and sizes[row.source, row.sweep] >= SWEEP and SUPERSEDED not in row.sweep
        for row in problem.rows
    ])  # fmt: skip


def unseen(problem: Problem) -> Array:
    """Every row predicted with constants fitted without its source [s]."""
    used = fitted_on(problem)
    found = problem.predict(problem.solve(used).values)
    for source in sorted({row.source for row, fitted in zip(problem.rows, used, strict=True) if fitted}):
        mine = np.array([row.source == source for row in problem.rows])
        found[mine] = problem.predict(problem.solve(used & ~mine).values, np.flatnonzero(mine))
    return found


def table(result: Fit, problem: Problem) -> dict[str, object]:
    """The catalogue's table: constants of what was measured, with their standard errors and sources."""
    used = fitted_on(problem)
    content: records.Row = {"architecture": {}, "network": {}, "launcher": {}}
    for constant, value, error in zip(result.constants, result.values, result.standard_errors, strict=True):
        kind, name = constant.owner.split(".")
        here = [row for row, fitted in zip(problem.rows, used, strict=True) if fitted and _concerns(row, kind, name)]
        if not here:
            continue
        entry = content[kind].setdefault(name, {"standard_error": {}, "rows": len(here)})
        entry[constant.field] = float(f"{value:.4g}")
        entry["standard_error"][constant.field] = float(f"{value * error:.2g}")
        entry["sources"] = sorted({row.source.split(" ")[0] for row in here})
    return content


def _concerns(row: Row, kind: str, name: str) -> bool:
    return row.launcher == name if kind == "launcher" else row.owner == f"{kind}.{name}"


def accuracy(problem: Problem, inside: Array, outside: Array, whole: bool = False) -> list[records.Row]:
    """One line for each sweep and band: rows, and absolute relative errors of all constants and of those without it.

    `inside` and `outside` are predictions with all constants, and with those fitted without the row's source [s]; `whole` gives
    one line for all sweeps of a source and operation.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(problem.rows):
        groups.setdefault((row.band, row.source, f"all {row.op}" if whole else row.sweep), []).append(place)
    lines = []
    for (band, source, sweep), places in sorted(groups.items()):
        measured = problem.seconds[places]
        line: records.Row = {"band": band, "source": source, "sweep": sweep, "rows": len(places)}
        line |= {"op": problem.rows[places[0]].op, "nodes": problem.rows[places[0]].nodes, "bar": BARS[band]}
        for name, found in (("seen", inside), ("unseen", outside)):
            error = np.abs(found[places] / measured - 1.0)
            line |= {f"{name}_mean": float(error.mean()), f"{name}_median": float(np.median(error))}
            line |= {f"{name}_worst": float(error.max()), f"{name}_within": int((error <= BARS[band]).sum())}
        lines.append(line)
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--reference", type=Path, help="folder with measured data (default: the one beside the checkout)")
    parser.add_argument("--dry-run", action="store_true", help="print, and leave the catalogue alone")
    parser.add_argument("--rows", metavar="TEXT", help="also print every row of the sweeps whose source holds this text")


def run(arguments: argparse.Namespace) -> int:
    """Fit, write, report."""
    rows, skipped = read(arguments.reference)
    problem = Problem.of(rows)
    result = problem.solve(fitted_on(problem))
    inside = problem.predict(result.values)
    outside = unseen(problem)
    report(problem, result, inside, outside, skipped)
    if arguments.rows:
        for row, seen, held in zip(rows, inside, outside, strict=True):
            if arguments.rows in row.source + row.sweep:
                print(f"{row.sweep[:60]:60s} {row.nbytes / MIB:10.3f} MiB {row.seconds * 1e6:10.1f} us "
                      f"{seen / row.seconds - 1:+.3f} {held / row.seconds - 1:+.3f}")  # fmt: skip
    if not arguments.dry_run:
        write({TARGET: generated("collectives", "measured sweeps", table(result, problem))})
    return 0


def report(problem: Problem, result: Fit, inside: Array, outside: Array, skipped: dict[str, int]) -> None:
    """Print constants, then errors sweep by sweep and against the bars."""
    print("constant                             value   standard error")
    for constant, value, error in zip(result.constants, result.values, result.standard_errors, strict=True):
        print(f"{constant.label:32s} {value:10.4g} {value * error:14.2g}")
    for whole in (False, True):
        print("\n                     with all sources            without the source")
        print("  n  mean median worst within   mean median worst within  band, source, sweep")
        for line in accuracy(problem, inside, outside, whole):
            cells = [
                f"{line[name + '_mean']:6.3f} {line[name + '_median']:6.3f} {line[name + '_worst']:5.2f} "
                f"{line[name + '_within']:3d}/{line['rows']:<3d}"
                for name in ("seen", "unseen")
            ]
            where = f"{line['band']}, {line['source'].split('@')[0][:24]}, {line['sweep'][:64]}"
            print(f"{line['rows']:3d} {'  '.join(cells)}  {where}")
    print("\nleft out:")
    for reason, count in sorted(skipped.items()):
        print(f"{count:6d} {reason}")
