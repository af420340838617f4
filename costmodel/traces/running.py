"""Runs a training script on ranks whose GPUs aren't there, each in a process of its own, and gathers what they did."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from costmodel.catalogue.clusters import load_cluster
from costmodel.catalogue.loader import compute_capability
from costmodel.compilation.cache import cache_folder
from costmodel.description.cluster import Cluster
from costmodel.text.checks import positive_int
from costmodel.text.errors import InvalidValue, NotModelled
from costmodel.text.progress import report
from costmodel.traces.record import RECEIVE, SEND, Role, Trace

DEFAULT_CLUSTER = "dgx-h100"
MOST_RANKS, MOST_STEPS = 1_000_000, 1_000
AT_ONCE = 2
"""Roles that run beside each other unless they wait for one another."""
OF_HOPPER = (9, 0)
"""Compute capability of devices that CUDA has none for, and of a user's own."""


def trace_script(
    script: str,
    arguments: Sequence[str] = (),
    *,
    module: bool = False,
    cluster: Cluster | str | None = None,
    gpus: int | None = None,
    nodes: int | None = None,
    roles: str | Iterable[int] = "auto",
    steps: int = 3,
    limit: float = 900.0,
) -> Trace:
    """Run a training script as torchrun would, on GPUs that aren't there.

    Parameters
    ----------
    script : path of the script, or a module's name with `module`
    arguments : of the script
    module : whether `script` is a module's name, as with ``python -m``
    cluster : whose GPUs the script sees, or its name; a DGX H100 unless given
    gpus : of all servers; those of one server unless given
    nodes : servers, in place of `gpus`
    roles : ranks to run: "auto" for the first, the last, and whom they send to; "all"; or their numbers
    steps : of the optimizer, after which the script is ended; the last one counts, for first ones differ
    limit : that a rank may take [s]

    Returns
    -------
    Trace
        with a role for each rank that ran and did something of its own

    Raises
    ------
    NotModelled
        where PyTorch is missing, or the script can't be traced: its line and why
    InvalidValue
        of a world that there can't be

    Examples
    --------
    ``trace_script("train.py", ["--config", "8b.yaml"], gpus=64)``
    """
    home = cluster_of_trace(cluster)
    server = home.gpus_per_node
    if nodes is not None:
        if gpus is not None:
            raise InvalidValue("gpus", gpus, "not given together with nodes")
        gpus = positive_int("nodes", nodes, MOST_RANKS) * server
    world = server if gpus is None else positive_int("gpus", gpus, MOST_RANKS)
    positive_int("steps", steps, MOST_STEPS)
    if not module and not Path(script).is_file():
        raise InvalidValue("script", script, "the path of a Python file that exists")
    if importlib.util.find_spec("torch") is None:
        raise NotModelled("tracing code needs PyTorch: pip install 'costmodel[trace]'")
    first, more = _chosen(roles, world)
    with tempfile.TemporaryDirectory(prefix="costmodel-trace-") as folder:
        spec = {
            "script": script, "arguments": list(arguments), "module": module, "world": world, "gpus": min(server, world),
            "steps": steps, "device": device_facts(home), "folder": folder, "cache": str(guard_folder()),
        }  # fmt: skip
        done = _Runs(Path(folder), spec, limit, more).run(first)
        found = [Trace.load(Path(folder) / f"rank-{rank}" / "role.npz") for rank in done]
    return gathered(found, world, {"command": " ".join([script, *arguments])})


def cluster_of_trace(cluster: Cluster | str | None) -> Cluster:
    """Whose GPUs a program sees: a cluster, or that of a name; a DGX H100 where none is said.

    Parameters
    ----------
    cluster : or its name, or None
    """
    return cluster if isinstance(cluster, Cluster) else load_cluster(cluster or DEFAULT_CLUSTER)


def guard_folder() -> Path:
    """Where what was compiled once for tracing is kept."""
    return (cache_folder() or Path(tempfile.gettempdir()) / "costmodel" / "none").parent / "guard"


def device_facts(cluster: Cluster) -> dict[str, Any]:
    """What a program may ask a GPU of a cluster.

    Parameters
    ----------
    cluster : whose GPUs these are
    """
    device = cluster.device
    return {
        "name": f"NVIDIA {device.name.upper()}",
        "memory": device.memory,
        "capability": compute_capability(device.name) or OF_HOPPER,
        "multiprocessors": device.multiprocessors or 132,
    }


class _Runs:
    """Processes of ranks, those that others ask for among them."""

    def __init__(self, folder: Path, spec: dict[str, Any], limit: float, more: bool):
        self.folder, self.spec, self.limit, self.more = folder, spec, limit, more
        self.running: dict[int, tuple[subprocess.Popen[bytes], float]] = {}
        self.done: list[int] = []

    def run(self, first: Sequence[int]) -> list[int]:
        """Run ranks to their ends; gives all that ran, in order."""
        waiting = list(first)
        try:
            while waiting or self.running:
                wanted = sorted(int(path.name.removeprefix("want-")) for path in self.folder.glob("want-*"))
                for rank in wanted:
                    if rank not in self.running and rank not in self.done:
                        self._start(rank)
                        waiting = [other for other in waiting if other != rank]
                while waiting and len(self.running) < AT_ONCE:
                    self._start(waiting.pop(0))
                self._look()
                time.sleep(0.05)
        finally:
            for process, _ in self.running.values():
                process.kill()
                process.wait()
        return sorted(self.done)

    def _start(self, rank: int) -> None:
        own = self.folder / f"rank-{rank}"
        own.mkdir(exist_ok=True)
        path = own / "spec.json"
        path.write_text(json.dumps(self.spec | {"rank": rank}))
        root = str(Path(__file__).parents[2])
        known = os.environ.get("PYTHONPATH", "")
        environment = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{known}" if known else root, "OMP_NUM_THREADS": "1"}
        with (own / "log.txt").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "costmodel.traces.fake_machine.launch", str(path)], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, env=environment,
            )  # fmt: skip
        self.running[rank] = (process, time.monotonic())
        report(f"tracing rank {rank}")

    def _look(self) -> None:
        for rank, (process, begun) in list(self.running.items()):
            if process.poll() is None:
                if time.monotonic() - begun > self.limit:
                    raise NotModelled(
                        f"rank {rank} took more than {self.limit:.0f} s: it seems to wait for what only a GPU would know "
                        f"(its last lines: {self._last(rank)})"
                    )
                continue
            del self.running[rank]
            self.done.append(rank)
            told = self.folder / f"rank-{rank}" / "told.json"
            if not told.exists() and process.returncode == -signal.SIGKILL:
                raise NotModelled(f"rank {rank} was killed, as systems do to a process for which this machine has no memory left")
            if not told.exists():
                raise NotModelled(f"rank {rank} ended with code {process.returncode} and said: {self._last(rank)}")
            found = json.loads(told.read_text())
            if found["error"]:
                said = f" and said: {self._last(rank)}" if found["left"] else ""
                raise NotModelled(f"rank {rank}: {found['error']}{said}")

    def _last(self, rank: int) -> str:
        lines = (self.folder / f"rank-{rank}" / "log.txt").read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:]) or "nothing"


def _chosen(roles: str | Iterable[int], world: int) -> tuple[list[int], bool]:
    """Ranks to run at first, and whether others may join."""
    if roles == "auto":
        return list(dict.fromkeys((0, world - 1))), True
    if roles == "all":
        return list(range(world)), True
    if isinstance(roles, str):
        try:
            roles = [int(word) for word in roles.split(",")]
        except ValueError:
            raise InvalidValue("roles", roles, "auto, all, or ranks such as 0,8") from None
    ranks = sorted(set(roles))
    if not ranks or ranks[0] < 0 or ranks[-1] >= world:
        raise InvalidValue("roles", ranks, f"ranks from 0 to {world - 1}")
    return ranks, True


def gathered(found: Sequence[Trace], world: int, facts: dict[str, str]) -> Trace:
    """One trace of ranks that ran by themselves: those that did the same become one role, and each stands for others like it.

    Parameters
    ----------
    found : a trace of each rank
    world : ranks of all
    facts : of the run
    """
    roles: list[Role] = []
    same: dict[int, list[int]] = {}
    for one in found:
        role = one.roles[0]
        twin = next((other for other in roles if _alike(role, other)), None)
        if twin is None:
            roles.append(role)
            same[role.rank] = [role.rank]
        else:
            same[twin.rank].append(role.rank)
    stood = _replicas(roles, same, world)
    assumed = dict.fromkeys(sentence for one in found for sentence in one.values_assumed)
    return Trace(
        roles=tuple(dataclasses.replace(role, stands_for=tuple(sorted(stood[role.rank]))) for role in roles), world_size=world,
        versions=found[0].versions, facts={**found[0].facts, **facts}, values_assumed=tuple(assumed),
    )  # fmt: skip


def _alike(role: Role, other: Role) -> bool:
    """Whether two ranks did the same, with partners who may be others."""
    moves, theirs = role.transactions, other.transactions
    if (
        len(moves) != len(theirs)
        or role.texts != other.texts
        or any(role.texts[op] in (SEND, RECEIVE) for op in set(moves.op.tolist()))
    ):
        return False
    if [len(group) for group in role.groups] != [len(group) for group in other.groups]:
        return False
    return (
        role.kernels == other.kernels and role.storages == other.storages and role.timeline == other.timeline and moves == theirs
    )


def _replicas(roles: Sequence[Role], same: dict[int, list[int]], world: int) -> dict[int, set[int]]:
    """Ranks that each role stands for: those that its groups reach without another role in them."""
    if len(roles) == 1:
        return {roles[0].rank: set(range(world))}
    stood = {role.rank: set(same[role.rank]) for role in roles}
    taken = {rank: first for first, ranks in stood.items() for rank in ranks}
    traced = set(taken)
    offsets = {}
    for role in roles:
        groups = [group for group in role.groups if not (set(group) & traced) - set(same[role.rank])]
        offsets[role.rank] = {member - role.rank for group in groups for member in group} - {0}
    front = sorted(traced)
    while front:
        rank = front.pop()
        first = taken[rank]
        for offset in offsets[first]:
            other = rank + offset
            if 0 <= other < world and other not in taken:
                taken[other] = first
                stood[first].add(other)
                front.append(other)
    for rank in range(world):  # of those that no group says: as the nearest rank below
        if rank not in taken:
            first = max((one.rank for one in roles if one.rank <= rank and one.rank != world - 1), default=roles[0].rank)
            taken[rank] = first
            stood[first].add(rank)
    return stood
