"""Machines of the testbed: network namespaces on one switch, behind links of chosen bandwidth and latency.

Every machine is a namespace whose ``eth0`` is joined by a veth pair to a switch in a namespace of its own. All of it is made
by a process that is alone (`alone`): nothing is seen outside, and nothing is left of it, or of what it started, once it ends.

Bandwidth is a token bucket (``tbf``) on both ends of the pair, the machine's for what it sends and the switch's for
what it receives. A bucket lets its depth through at once after every pause, which makes a message of n bytes
faster than a link by depth / rate, so buckets are shallow: one frame, and a quarter of a millisecond for timers that
fire late. Their queues are longer than any window of TCP: nothing is ever dropped, so that no measurement holds a
retransmission.

Latency is on the switch's end, until a frame reaches the machine there: ``netem``, whose queue holds all that can be
on its way. A kernel without ``netem`` gets a switch in user space that holds every frame back (`frame_relay`).

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
import subprocess
import sys
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
KERNEL, RELAY = "netem", "relay"
HUB = "switch"
PROBE = (
    "ip netns add a && ip -n a link add bridge type bridge && ip -n a link add one type veth peer name other && "
    "tc -n a qdisc add dev one root tbf rate 1mbit burst 2000 limit 9000"
)
"""What a testbed takes: root in a container may not, and not every kernel has all of it."""


class NetworkFailure(CostModelError):
    """The testbed can't be set up, or failed while it ran."""


@dataclasses.dataclass(frozen=True)
class Links:
    """What joins the machines to the switch."""

    rates: tuple[float, ...]  # of each machine's link, each direction [bit/s]
    latency: float = 0.0  # from any machine to any other [s]; 0 leaves that of the kernel
    mtu: int = 1500  # bytes of a frame without its Ethernet header


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
    for program in ("ip", "tc", "unshare"):
        if shutil.which(program) is None:
            return f"'{program}' is not installed (iproute2, util-linux)"
    try:
        command(*alone("sh", "-c", PROBE))
    except NetworkFailure as error:
        return str(error)
    return None


def alone(*words: str) -> tuple[str, ...]:
    """A command that sees no other process and whose network namespaces nobody else sees; they end with it, and so does all
    that it started, as the kernel has it."""
    own = 'mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && exec "$@"'
    return ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", own, "sh", *words)


def command(*words: str) -> None:
    """Run a command to its end; one line of why, if it fails."""
    try:
        finished = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NetworkFailure(f"{' '.join(words)}: {error}") from error
    if finished.returncode:
        raise NetworkFailure(f"{' '.join(words)}: {(finished.stderr.strip() or 'failed').splitlines()[-1]}")


class Switch:
    """Namespaces of machines and of their switch.

    Parameters
    ----------
    machines : how many
    delay : ``"netem"``, ``"relay"``, or None for the kernel's where it has ``netem``
    """

    def __init__(self, machines: int, delay: str | None = None):
        self.machines = machines
        self.delay = delay
        self.relay: subprocess.Popen[bytes] | None = None

    @staticmethod
    def name(machine: int) -> str:
        """Namespace of a machine."""
        return f"machine{machine}"

    @staticmethod
    def address(machine: int) -> str:
        """Address of a machine; seen inside the namespaces alone."""
        return f"10.77.0.{machine + 1}"

    def make(self) -> None:
        """Make the namespaces and join them."""
        command("ip", "netns", "add", HUB)
        command("ip", "-n", HUB, "link", "add", "bridge", "type", "bridge")
        command("ip", "-n", HUB, "link", "set", "bridge", "up")
        has_netem = self._has_netem()
        if self.delay == KERNEL and not has_netem:
            raise NetworkFailure(f"this kernel has no netem; --delay {RELAY} does without")
        if self.delay is None:
            self.delay = KERNEL if has_netem else RELAY
        for machine in range(self.machines):
            name, port = self.name(machine), f"port{machine}"
            command("ip", "netns", "add", name)
            command("ip", "-n", HUB, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            command("ip", "-n", HUB, "link", "set", port, "master", "bridge", "up")
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
            command("tc", "-n", HUB, "qdisc", "add", "dev", "bridge", "root", "netem", "delay", "1ms")
        except NetworkFailure:
            return False
        command("tc", "-n", HUB, "qdisc", "del", "dev", "bridge", "root")
        return True

    def shape(self, links: Links) -> str:
        """Give the first machines' links their bandwidth and latency; says by what."""
        self._stop_relay()
        by_relay = links.latency > 0 and self.delay == RELAY
        for machine, rate in enumerate(links.rates):
            self._shape_end(self.name(machine), "eth0", rate, links.mtu, 0.0)
            self._shape_end(HUB, f"port{machine}", rate, links.mtu, 0.0 if by_relay else links.latency)
            place = ("nomaster",) if by_relay else ("master", "bridge")
            command("ip", "-n", HUB, "link", "set", f"port{machine}", *place)
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
        words = ["ip", "netns", "exec", HUB, sys.executable, str(script), str(latency)]
        self.relay = subprocess.Popen(
            [*words, *(f"port{port}" for port in range(ports))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.relay.stdout is not None
        heard = select.select([self.relay.stdout], (), (), COMMAND_TIMEOUT)[0]
        if not heard or self.relay.stdout.readline() != b"ready\n":
            raise NetworkFailure("the switch in user space did not start")

    def _stop_relay(self) -> None:
        if self.relay is not None:
            self.relay.kill()
            self.relay.wait()
            self.relay = None

    def dropped(self) -> int:
        """Frames that a queue had no room for since the links were shaped."""
        total = 0
        for namespace in (HUB, *(self.name(machine) for machine in range(self.machines))):
            shown = subprocess.run(
                ["tc", "-s", "-n", namespace, "qdisc", "show"],
                capture_output=True, text=True, timeout=COMMAND_TIMEOUT, check=True,
            )  # fmt: skip
            words = shown.stdout.split()
            total += sum(int(after.rstrip(",")) for word, after in itertools.pairwise(words) if word == "(dropped")
        return total
