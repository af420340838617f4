"""Machines of the testbed: network namespaces on one switch, behind links of chosen bandwidth and latency.

Every machine is a namespace whose ``eth0`` is joined by a veth pair to a switch in a namespace of its own, so nothing
is seen outside, and deleting the namespaces leaves nothing behind.

Bandwidth is a token bucket (``tbf``) on both ends of the pair, the machine's for what it sends and the switch's for
what it receives. A bucket lets its depth through at once after every pause, which makes a message of n bytes
faster than a link by depth / rate, so buckets are shallow: one frame, and a quarter of a millisecond for timers that
fire late. Their queues are longer than any window of TCP: nothing is ever dropped, so that no measurement holds a
retransmission.

Latency is on the switch's end, until a frame reaches the machine there: ``netem``, whose queue holds all that can be
on its way. A kernel without ``netem`` gets a switch in user space that holds every frame back (`network_relay`).

TCP runs Reno without slow start after a pause, in windows larger than a message: without losses its window opens in the
rounds that aren't counted, and then stays open. (BBR would stop for a fifth of a second every ten.)
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from costmodel.text.errors import CostModelError

ETHERNET_HEADER = 14
"""Bytes of a frame beyond its MTU, as a token bucket counts them: without preamble and checksum."""
SLACK = 0.25e-3
"""Seconds that a bucket fills beyond one frame: a timer that fires later than that costs its link time."""
QUEUE = 64_000_000
"""Bytes of a bucket's queue: more than all windows together."""
NETEM_PACKETS = 100_000
SOCKET_BUFFER = 16_777_216
COMMAND_TIMEOUT = 30.0
PATIENCE = 3.0
"""Seconds in which a process may end by itself."""
PREFIX = "costmodel-"
KERNEL, RELAY = "netem", "relay"
ENDING = (signal.SIGINT, signal.SIGTERM)


class NetworkFailure(CostModelError):
    """The testbed can't be set up, or failed while it ran."""


@dataclasses.dataclass(frozen=True)
class Links:
    """What joins the machines to the switch.

    Parameters
    ----------
    rates : of each machine's link, each direction [bit/s]
    latency : from any machine to any other [s]; 0 leaves that of the kernel
    mtu : bytes of a frame without its Ethernet header
    """

    rates: tuple[float, ...]
    latency: float = 0.0
    mtu: int = 1500


def bucket_depth(rate: float, mtu: int) -> int:
    """Depth of a token bucket [bytes] for a rate [bit/s] and frames of an MTU [bytes].

    Examples
    --------
    >>> bucket_depth(20e6, 1500), bucket_depth(200e6, 1500)
    (2139, 7764)
    """
    return mtu + ETHERNET_HEADER + round(rate / 8 * SLACK)


def missing_here() -> str | None:
    """Why no testbed can be made here, in one line, or None."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are a thing of Linux"
    if os.geteuid() != 0:
        return "making network namespaces takes root"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"'{program}' of iproute2 is not installed"
    probe = f"{PREFIX}{os.getpid()}-probe"
    try:
        command("ip", "netns", "add", probe)
        try:  # root in a container may not, and not every kernel has all of it
            command("ip", "-n", probe, "link", "add", "bridge", "type", "bridge")
            command("ip", "-n", probe, "link", "add", "one", "type", "veth", "peer", "name", "other")
            bucket = ("tbf", "rate", "1mbit", "burst", "2000", "limit", "9000")
            command("tc", "-n", probe, "qdisc", "add", "dev", "one", "root", *bucket)
        finally:
            command("ip", "netns", "del", probe)
    except NetworkFailure as error:
        return str(error)
    return None


def command(*words: str) -> None:
    """Run a command of iproute2 to its end; one line of why, if it fails."""
    try:
        # in a session of its own: Ctrl-C is for this process, which cleans up
        with deferred():
            finished = subprocess.run(
                words, capture_output=True, text=True, timeout=COMMAND_TIMEOUT, start_new_session=True, check=False
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NetworkFailure(f"{' '.join(words)}: {error}") from error
    if finished.returncode:
        raise NetworkFailure(f"{' '.join(words)}: {(finished.stderr.strip() or 'failed').splitlines()[-1]}")


def namespaces() -> list[str]:
    """Names of the testbed's namespaces on this machine, of any process."""
    folder = Path("/run/netns")
    return sorted(path.name for path in folder.glob(f"{PREFIX}*")) if folder.is_dir() else []


def remove_left_over() -> None:
    """Remove namespaces of processes that were killed before they could."""
    for name in namespaces():
        owner = name.removeprefix(PREFIX).split("-")[0]
        if not Path(f"/proc/{owner}").exists():
            command("ip", "netns", "del", name)


@contextlib.contextmanager
def handled(handler: Callable[[int, object], object] | signal.Handlers, numbers: Sequence[int] = ENDING) -> Iterator[None]:
    """Handle signals so, and as before afterwards.

    Parameters
    ----------
    handler : as of `signal.signal`
    numbers : of the signals; Ctrl-C and a request to end if not given
    """
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Hear Ctrl-C and a request to end only after what is under way.

    An exception amid the start of a process would leave the process running with nobody to know of it, and what it
    makes after the cleaning up would stay.
    """
    heard: list[int] = []
    try:
        with handled(lambda number, _: heard.append(number)):
            yield
    finally:
        for number in heard:
            signal.raise_signal(number)


def uninterrupted() -> contextlib.AbstractContextManager[None]:
    """Ignore Ctrl-C and a request to end, so that cleaning up comes to its end."""
    return handled(signal.SIG_IGN)


class Switch:
    """Namespaces of machines and of their switch; a context manager that takes all of them away again.

    Parameters
    ----------
    machines : how many
    delay : ``"netem"``, ``"relay"``, or None for the kernel's where it has ``netem``
    """

    def __init__(self, machines: int, delay: str | None = None):
        self.machines = machines
        self.prefix = f"{PREFIX}{os.getpid()}-"
        self.hub = f"{self.prefix}switch"
        self.delay = delay
        self.relay: subprocess.Popen[bytes] | None = None

    def name(self, machine: int) -> str:
        """Namespace of a machine."""
        return f"{self.prefix}{machine}"

    @staticmethod
    def address(machine: int) -> str:
        """Address of a machine; seen inside the namespaces alone."""
        return f"10.77.0.{machine + 1}"

    def __enter__(self) -> Switch:
        remove_left_over()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _make(self) -> None:
        command("ip", "netns", "add", self.hub)
        command("ip", "-n", self.hub, "link", "add", "bridge", "type", "bridge")
        command("ip", "-n", self.hub, "link", "set", "bridge", "up")
        has_netem = self._has_netem()
        if self.delay == KERNEL and not has_netem:
            raise NetworkFailure(f"this kernel has no netem; --delay {RELAY} does without")
        if self.delay is None:
            self.delay = KERNEL if has_netem else RELAY
        for machine in range(self.machines):
            name, port = self.name(machine), f"port{machine}"
            command("ip", "netns", "add", name)
            command("ip", "-n", self.hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            command("ip", "-n", self.hub, "link", "set", port, "master", "bridge", "up")
            command("ip", "-n", name, "link", "set", "eth0", "address", f"02:00:00:00:00:{machine:02x}", "up")
            command("ip", "-n", name, "addr", "add", f"{self.address(machine)}/24", "dev", "eth0")
            command("ip", "-n", name, "link", "set", "lo", "up")
            command(
                "ip", "netns", "exec", name, "sysctl", "-qw",
                "net.ipv6.conf.all.disable_ipv6=1",
                "net.ipv4.tcp_congestion_control=reno",
                "net.ipv4.tcp_slow_start_after_idle=0",
                "net.ipv4.tcp_no_metrics_save=1",
                f"net.ipv4.tcp_wmem=4096 {SOCKET_BUFFER} {SOCKET_BUFFER}",
                f"net.ipv4.tcp_rmem=4096 {SOCKET_BUFFER} {2 * SOCKET_BUFFER}",
            )  # fmt: skip

    def _has_netem(self) -> bool:
        try:
            command("tc", "-n", self.hub, "qdisc", "add", "dev", "bridge", "root", "netem", "delay", "1ms")
        except NetworkFailure:
            return False
        command("tc", "-n", self.hub, "qdisc", "del", "dev", "bridge", "root")
        return True

    def shape(self, links: Links) -> str:
        """Give the first machines' links their bandwidth and latency; says by what."""
        self._stop_relay()
        by_relay = links.latency > 0 and self.delay == RELAY
        for machine, rate in enumerate(links.rates):
            self._shape_end(self.name(machine), "eth0", rate, links.mtu, 0.0)
            self._shape_end(self.hub, f"port{machine}", rate, links.mtu, 0.0 if by_relay else links.latency)
            place = ("nomaster",) if by_relay else ("master", "bridge")
            command("ip", "-n", self.hub, "link", "set", f"port{machine}", *place)
        if by_relay:
            self._start_relay(len(links.rates), links.latency)
        return "tbf" if links.latency == 0 else "tbf+relay" if by_relay else "tbf+netem"

    def _shape_end(self, namespace: str, device: str, rate: float, mtu: int, latency: float) -> None:
        command("ip", "-n", namespace, "link", "set", device, "mtu", str(mtu))
        with contextlib.suppress(NetworkFailure):  # there is none the first time
            command("tc", "-n", namespace, "qdisc", "del", "dev", device, "root")
        parent: tuple[str, ...] = ("root",)
        if latency > 0:
            delay = ("netem", "delay", f"{round(latency * 1e6)}us", "limit", str(NETEM_PACKETS))
            command("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "handle", "1:", *delay)
            parent = ("parent", "1:1")
        bucket = ("rate", f"{round(rate)}bit", "burst", str(bucket_depth(rate, mtu)), "limit", str(QUEUE))
        command("tc", "-n", namespace, "qdisc", "add", "dev", device, *parent, "tbf", *bucket)

    def _start_relay(self, ports: int, latency: float) -> None:
        script = Path(__file__).with_name("frame_relay.py")
        words = ["ip", "netns", "exec", self.hub, sys.executable, str(script), str(latency)]
        with deferred():
            self.relay = subprocess.Popen(
                [*words, *(f"port{port}" for port in range(ports))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        assert self.relay.stdout is not None
        heard = select.select([self.relay.stdout], (), (), COMMAND_TIMEOUT)[0]
        if not heard or self.relay.stdout.readline() != b"ready\n":
            raise NetworkFailure("the switch in user space did not start")

    def _stop_relay(self) -> None:
        if self.relay is not None:
            end([self.relay])
            self.relay = None

    def dropped(self) -> int:
        """Frames that a queue had no room for since the links were shaped."""
        total = 0
        for namespace in (self.hub, *(self.name(machine) for machine in range(self.machines))):
            shown = subprocess.run(
                ["tc", "-s", "-n", namespace, "qdisc", "show"],
                capture_output=True, text=True, timeout=COMMAND_TIMEOUT, check=True, start_new_session=True,
            )  # fmt: skip
            words = shown.stdout.split()
            total += sum(int(after.rstrip(",")) for word, after in itertools.pairwise(words) if word == "(dropped")
        return total

    def close(self) -> None:
        """Take the relay and all namespaces away."""
        with uninterrupted():
            self._stop_relay()
            failed = None
            for name in namespaces():
                if name.startswith(self.prefix):
                    try:
                        command("ip", "netns", "del", name)
                    except NetworkFailure as error:
                        failed = error
            if failed is not None:
                raise failed


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes: closing their input asks, a signal to their group insists."""
    for process in processes:
        if process.stdin is not None:
            with contextlib.suppress(OSError):  # it may hold a request that nobody is left to read
                process.stdin.close()
    deadline = time.monotonic() + PATIENCE
    for process in processes:
        try:
            process.wait(max(deadline - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(COMMAND_TIMEOUT)
        if process.stdout is not None:
            process.stdout.close()
