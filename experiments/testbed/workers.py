"""A process of the testbed: one machine of an exchange, told over its standard input what to do.

``python workers.py MACHINE ADDRESS...`` inside the machine's namespace, with NumPy alone (and PyTorch for
Gloo). Each line of input is a request in JSON, each line of output its answer; a request that fails is answered with
``{"error": ...}``. It ends when its input closes.

All machines are joined to all by TCP. An exchange begins at a moment named in the request, on the clock that all
namespaces share, so that nothing but the exchange is on the links; its answer says when it was done.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Buffer = NDArray[np.float32]
PATIENCE = 30.0
"""Seconds after which anything here gives up."""
ITEM = np.dtype(np.float32).itemsize
HANDFUL = 65536
"""Bytes that have to have come before a process is woken for them: each frame would cost a fiftyfold of wake-ups."""


class Mesh:
    """Connections between one machine and all others.

    Parameters
    ----------
    machine : this one
    addresses : of all machines, this one's too
    port : TCP port that each listens on
    """

    def __init__(self, machine: int, addresses: Sequence[str], port: int):
        self.machine, self.machines = machine, len(addresses)
        self.peers: dict[int, socket.socket] = {}
        with socket.create_server((addresses[machine], port), backlog=len(addresses)) as door:
            door.settimeout(PATIENCE)
            for other in range(machine):
                peer = _connect((addresses[other], port))
                peer.sendall(bytes([machine]))
                self.peers[other] = peer
            while len(self.peers) < self.machines - 1:
                peer, _ = door.accept()
                peer.settimeout(PATIENCE)
                self.peers[peer.recv(1)[0]] = peer
        for peer in self.peers.values():
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.setblocking(False)

    def close(self) -> None:
        """Close all connections."""
        for peer in self.peers.values():
            peer.close()

    def swap(self, send: tuple[int, Buffer] | None, receive: tuple[int, Buffer] | None) -> None:
        """Send a buffer to one machine while receiving one from the same or another."""
        out = send[1].data.cast("B") if send else None
        into = receive[1].data.cast("B") if receive else None
        poller = select.poll()
        deadline = time.monotonic() + PATIENCE
        interests: dict[int, int] = {}
        if send and out:
            interests[self.peers[send[0]].fileno()] = select.POLLOUT
        if receive and into:
            number = self.peers[receive[0]].fileno()
            interests[number] = interests.get(number, 0) | select.POLLIN
        for number, events in interests.items():
            poller.register(number, events)
        while out or into:
            if send and out:
                with contextlib.suppress(BlockingIOError):
                    out = out[self.peers[send[0]].send(out) :]
                if not out:
                    _lose_interest(poller, interests, self.peers[send[0]].fileno(), select.POLLOUT)
            if receive and into:
                with contextlib.suppress(BlockingIOError):
                    into = into[_received(self.peers[receive[0]], into) :]
                if not into:
                    _lose_interest(poller, interests, self.peers[receive[0]].fileno(), select.POLLIN)
                else:
                    _wake_for(self.peers[receive[0]], into)
            if (out or into) and not poller.poll((deadline - time.monotonic()) * 1e3):
                raise TimeoutError(f"machine {self.machine} waited {PATIENCE:.0f} s for another")


def _connect(address: tuple[str, int]) -> socket.socket:
    """Connect to a machine that may not listen yet."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(address, PATIENCE)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _lose_interest(poller: select.poll, interests: dict[int, int], number: int, event: int) -> None:
    interests[number] &= ~event
    poller.modify(number, interests[number])


def _wake_for(peer: socket.socket, into: memoryview) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(len(into), HANDFUL))


def _received(peer: socket.socket, into: memoryview) -> int:
    count = peer.recv_into(into)
    if count == 0:
        raise ConnectionError("another machine closed its connection")
    return count


def bounds_of(length: int, shares: Sequence[float]) -> list[int]:
    """Where the parts of a buffer begin and end, for shares of it that sum to 1.

    Examples
    --------
    >>> bounds_of(100, (0.5, 0.25, 0.25))
    [0, 50, 75, 100]
    """
    ends = np.cumsum(shares) / np.sum(shares)
    return [0, *(round(float(end) * length) for end in ends)]


def ring(mesh: Mesh, buffer: Buffer, scratch: Buffer) -> None:
    """All-reduce round a ring: a reduce-scatter, then an all-gather."""
    ranks, rank = mesh.machines, mesh.machine
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    bounds = bounds_of(len(buffer), [1 / ranks] * ranks)

    def part(index: int) -> Buffer:
        return buffer[bounds[index % ranks] : bounds[index % ranks + 1]]

    for step in range(ranks - 1):
        mine = part(rank - step - 1)
        received = scratch[: len(mine)]
        mesh.swap((after, part(rank - step)), (before, received))
        mine += received
    for step in range(ranks - 1):
        mesh.swap((after, part(rank - step + 1)), (before, part(rank - step)))


def halving_doubling(mesh: Mesh, buffer: Buffer, scratch: Buffer) -> None:
    """All-reduce by recursive halving and doubling; ranks beyond a power of two fold into others.

    Where there are such ranks, partners first say that they are there: data sent to one who is still taking in
    another's buffer would share its link.
    """
    rank = mesh.machine
    folds = mesh.machines & (mesh.machines - 1) != 0
    word = np.zeros(1, np.float32)
    inner = 1 << (mesh.machines.bit_length() - 1)
    if rank >= inner:
        mesh.swap((rank - inner, buffer), None)
        mesh.swap(None, (rank - inner, buffer))
        return
    extra = rank + inner if rank + inner < mesh.machines else None
    if extra is not None:
        mesh.swap(None, (extra, scratch))
        buffer += scratch
    low, high = 0, len(buffer)
    halves = []
    distance = inner // 2
    while distance:
        middle = (low + high) // 2
        mine, other = (low, middle), (middle, high)
        if rank & distance:
            mine, other = other, mine
        received = scratch[: mine[1] - mine[0]]
        if folds:
            mesh.swap((rank ^ distance, word), (rank ^ distance, word.copy()))
        mesh.swap((rank ^ distance, buffer[slice(*other)]), (rank ^ distance, received))
        buffer[slice(*mine)] += received
        halves.append((distance, mine, other))
        low, high = mine
        distance //= 2
    for distance, mine, other in reversed(halves):
        mesh.swap((rank ^ distance, buffer[slice(*mine)]), (rank ^ distance, buffer[slice(*other)]))
    if extra is not None:
        mesh.swap((extra, buffer), None)


HEAD = struct.Struct("!II")
PUSH, ANSWER = 0, 1
CREDIT = 16
"""Partitions that a worker has on their way: enough to fill its link, too few to run far ahead of other workers."""


class Servers:
    """Workers push each part of their buffers to its owner, who sums it and answers every worker with the sum.

    With owners that are no workers it is a parameter server, with owners that are workers too a colocated one, with
    both BytePS; the shares say who owns how much. Parts go in partitions, so that answers go out while pushes come in.

    Parameters
    ----------
    mesh : connections
    buffer : of this machine, if it is a worker; its length if it isn't
    workers : how many; they are the first machines
    shares : of the buffer that each machine owns
    partition : bytes of a partition
    """

    def __init__(self, mesh: Mesh, buffer: Buffer, workers: int, shares: Sequence[float], partition: int):
        self.mesh, self.buffer, self.workers = mesh, buffer, workers
        self.works = mesh.machine < workers
        bounds = bounds_of(len(buffer), shares)
        step = max(partition // buffer.itemsize, 1)
        self.parts = [
            (owner, begin, min(begin + step, bounds[owner + 1]))
            for owner in range(mesh.machines)
            for begin in range(bounds[owner], bounds[owner + 1], step)
        ]
        mine = [index for index, part in enumerate(self.parts) if part[0] == mesh.machine]
        self.sums = {index: np.zeros(self.parts[index][2] - self.parts[index][1], np.float32) for index in mine}
        self.missing = dict.fromkeys(mine, workers)
        self.to_push = collections.deque(self._order(bounds) if self.works else ())
        self.unanswered = len(self.to_push)
        self.to_sum = (workers - self.works) * len(mine)  # that come from other machines
        self.outgoing: dict[int, collections.deque[memoryview]] = {peer: collections.deque() for peer in mesh.peers}
        self.incoming = {peer: _Incoming(step) for peer in mesh.peers}

    def run(self) -> None:
        """Push, sum and answer until every worker has everything."""
        peers = self.mesh.peers
        poller = select.poll()
        of_number = {peer.fileno(): other for other, peer in peers.items()}
        for number, other in of_number.items():
            poller.register(number, select.POLLIN)
            _wake_for(peers[other], self.incoming[other].into)
        for _ in range(CREDIT):
            self._push()
        deadline = time.monotonic() + PATIENCE
        wanted = dict.fromkeys(of_number, select.POLLIN)
        while self.unanswered or self.to_sum or any(self.outgoing.values()):
            for number, other in of_number.items():
                self._flush(other)
                events = select.POLLIN | (select.POLLOUT if self.outgoing[other] else 0)
                if events != wanted[number]:
                    poller.modify(number, events)
                    wanted[number] = events
            if not (self.unanswered or self.to_sum or any(self.outgoing.values())):
                return
            ready = poller.poll((deadline - time.monotonic()) * 1e3)
            if not ready:
                raise TimeoutError(f"machine {self.mesh.machine} waited {PATIENCE:.0f} s for another")
            for number, event in ready:
                if event & ~select.POLLOUT:
                    self._take(of_number[number])

    def _order(self, bounds: Sequence[int]) -> list[int]:
        """Partitions in the order in which this worker pushes them.

        Every owner gets its due share at any moment, and each worker begins a round with another owner, so that no
        link idles while all push to one.
        """

        owners = sorted({owner for owner, _, _ in self.parts})

        def due(index: int) -> tuple[float, int]:
            owner, begin, end = self.parts[index]
            whole = bounds[owner + 1] - bounds[owner]
            return ((begin + end) / 2 - bounds[owner]) / whole, (owners.index(owner) - self.mesh.machine) % len(owners)

        return sorted(range(len(self.parts)), key=due)

    def _push(self) -> None:
        """Send the next partition to its owner, or sum it here if it is this machine's."""
        if not self.to_push:
            return
        index = self.to_push.popleft()
        owner, begin, end = self.parts[index]
        if owner == self.mesh.machine:
            self._sum(index, self.buffer[begin:end])
        else:
            self._queue(owner, index, PUSH, self.buffer[begin:end])

    def _queue(self, other: int, index: int, kind: int, values: Buffer) -> None:
        self.outgoing[other] += (memoryview(HEAD.pack(index << 1 | kind, values.nbytes)), values.data.cast("B"))

    def _sum(self, index: int, values: Buffer) -> None:
        """Add what a worker pushed; the last one's sends the answers."""
        self.sums[index] += values
        self.missing[index] -= 1
        if self.missing[index]:
            return
        _, begin, end = self.parts[index]
        for worker in range(self.workers):
            if worker == self.mesh.machine:
                self.buffer[begin:end] = self.sums[index]
                self.unanswered -= 1
                self._push()
            else:
                self._queue(worker, index, ANSWER, self.sums[index])

    def _flush(self, other: int) -> None:
        """Send what a connection takes."""
        queue = self.outgoing[other]
        try:
            while queue:
                sent = self.mesh.peers[other].sendmsg(list(itertools.islice(queue, 16)))
                while queue and sent >= len(queue[0]):
                    sent -= len(queue.popleft())
                if sent:
                    queue[0] = queue[0][sent:]
        except BlockingIOError:
            pass

    def _take(self, other: int) -> None:
        """Receive what has come from a machine."""
        state, peer = self.incoming[other], self.mesh.peers[other]
        try:
            while True:
                state.into = state.into[_received(peer, state.into) :]
                if state.into:
                    continue
                if state.index is None:
                    word, _ = HEAD.unpack(state.head)
                    state.index, state.kind = word >> 1, word & 1
                    _, begin, end = self.parts[state.index]
                    if state.kind == ANSWER:
                        state.values = self.buffer[begin:end]
                    else:
                        state.values = state.room[: end - begin]
                    state.into = state.values.data.cast("B")
                    continue
                index, state.index = state.index, None
                state.into = memoryview(state.head)
                if state.kind == ANSWER:
                    self.unanswered -= 1
                    self._push()
                else:
                    self.to_sum -= 1
                    self._sum(index, state.values)
        except BlockingIOError:
            _wake_for(peer, state.into)


class _Incoming:
    """How far the next message from a machine has come."""

    def __init__(self, step: int) -> None:
        self.head = bytearray(HEAD.size)
        self.into = memoryview(self.head)
        self.index: int | None = None
        self.kind = PUSH
        self.room = np.empty(step, np.float32)
        self.values = self.room


class Machine:
    """What a process does on request."""

    def __init__(self, machine: int, addresses: Sequence[str]):
        self.machine, self.addresses = machine, addresses
        self.mesh: Mesh | None = None
        self.gloo: Any = None

    def join(self, machines: int, port: int, store: str | None) -> dict[str, object]:
        """Connect with all of the first machines; for Gloo too, if a file is named over which to find the others."""
        self.leave()
        self.mesh = Mesh(self.machine, self.addresses[:machines], port)
        if store is not None:
            import datetime

            import torch.distributed as gloo

            gloo.init_process_group(
                "gloo", init_method=f"file://{store}", rank=self.machine, world_size=machines,
                timeout=datetime.timedelta(seconds=PATIENCE),
            )  # fmt: skip
            self.gloo = gloo
        return {}

    def leave(self) -> dict[str, object]:
        """Close all connections."""
        if self.mesh is not None:
            self.mesh.close()
            self.mesh = None
        if self.gloo is not None:
            self.gloo.destroy_process_group()
            self.gloo = None
        return {}

    def load(self) -> dict[str, object]:
        """Load PyTorch; its version, or none where it can't be imported."""
        try:
            import torch
            import torch.distributed
        except ImportError:
            return {"torch": None}
        torch.set_num_threads(1)
        return {"torch": torch.__version__ if torch.distributed.is_gloo_available() else None}

    def ping(self, partner: int, first: bool, repeats: int) -> dict[str, object]:
        """Send the least message to and fro; the times of the round trips [s]."""
        assert self.mesh is not None
        word = np.zeros(1, np.float32)
        times = []
        for _ in range(repeats):
            begin = time.monotonic()
            if first:
                self.mesh.swap((partner, word), None)
                self.mesh.swap(None, (partner, word))
            else:
                self.mesh.swap(None, (partner, word))
                self.mesh.swap((partner, word), None)
            times.append(time.monotonic() - begin)
        return {"seconds": times if first else []}

    def add(self, nbytes: int, start: float, repeats: int) -> dict[str, object]:
        """Add buffers, while all others do; the times of it [s]."""
        one, other = (np.ones(nbytes // ITEM, np.float32) for _ in range(2))
        times = []
        _wait_until(start)
        for _ in range(repeats):
            begin = time.monotonic()
            one += other
            times.append(time.monotonic() - begin)
        return {"seconds": times}

    def exchange(
        self, algorithm: str, nbytes: int, start: float, workers: int, shares: Sequence[float], partition: int
    ) -> dict[str, object]:
        """Sum buffers over the workers; how late it began, and when it ended."""
        mesh, length = self.mesh, nbytes // ITEM
        assert mesh is not None
        buffer = np.full(length, self.machine + 1, np.float32)
        run: Callable[[], object]
        if algorithm == "servers":
            run = Servers(mesh, buffer, workers, shares, partition).run
        elif algorithm == "gloo":
            import torch

            tensor = torch.from_numpy(buffer)
            run = lambda: self.gloo.all_reduce(tensor)  # noqa: E731
        else:
            scratch = np.zeros(length, np.float32)
            method = {"ring": ring, "halving_doubling": halving_doubling}[algorithm]
            run = lambda: method(mesh, buffer, scratch)  # noqa: E731
        _wait_until(start)
        begun = time.monotonic()
        run()
        ended = time.monotonic()
        expected = workers * (workers + 1) / 2
        if self.machine < workers and not bool(np.all(buffer == expected)):
            raise ArithmeticError(f"{algorithm} of {nbytes} bytes over {workers} workers gave a wrong sum")
        return {"late": begun - start, "ended": ended}

    def environment(self) -> dict[str, object]:
        """What runs here."""
        return {"python": sys.version.split()[0], "numpy": np.__version__}


def _wait_until(moment: float) -> None:
    time.sleep(max(moment - time.monotonic(), 0.0))


def main() -> None:
    """Answer requests until the input closes."""
    with contextlib.suppress(OSError):  # they wait for the network, and are not to wait for what else the machine does
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    machine = Machine(int(sys.argv[1]), sys.argv[2:])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(machine, request.pop("do"))(**request)
        except Exception as error:  # whatever it is, the one who asked has to know
            answer = {"error": f"machine {machine.machine}: {type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
