"""Settings of the testbed, and how long the library's formulas say that each takes.

Nothing here is fitted. Bandwidth is a link's rate times the share of a frame that is payload; the latency of a
message and the rate of adding are probed in the same run, by messages of one number and by adding alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from costmodel.formulas.network import algorithms
from costmodel.formulas.systems import byteps_shares as byteps
from costmodel.formulas.systems import server_exchange
from experiments.testbed.links import ETHERNET_HEADER, Links

IP_HEADER, TCP_HEADER, TCP_TIMESTAMPS = 20, 20, 12
SEGMENTS_ACKNOWLEDGED = 2
"""Full segments that a receiver acknowledges at once: RFC 1122, 4.2.3.2."""
JUMBO = 9000
"""MTU for the fastest links of many machines: two cores can't move 100,000 frames a second beside what is measured."""
LONG = 0.2
"""Seconds above which a prediction has to hold."""
PARTITION_TIME = 1.3e-3
"""Seconds of a worker's link that a partition takes: short beside the exchange, long beside a frame and a wake-up."""
BAR = 0.10
"""Relative error up to which it does."""


def framing_efficiency(mtu: int, both_ways: bool = True) -> float:
    """Share of a link's rate that carries payload, by TCP with timestamps over IPv4 and Ethernet.

    Parameters
    ----------
    mtu : bytes of a frame without its Ethernet header
    both_ways : whether acknowledgements of data that comes the other way share the link; they don't ride on data, which
        was made into frames before, as long as frames queue

    Examples
    --------
    >>> round(framing_efficiency(1500, both_ways=False), 4), round(framing_efficiency(1500), 4)
    (0.9564, 0.936)
    """
    headers = IP_HEADER + TCP_HEADER + TCP_TIMESTAMPS
    acknowledgement = (headers + ETHERNET_HEADER) / SEGMENTS_ACKNOWLEDGED if both_ways else 0.0
    return (mtu - headers) / (mtu + ETHERNET_HEADER + acknowledgement)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """One exchange to measure and to predict."""

    name: str  # in the table
    algorithm: str  # ``"ring"``, ``"halving_doubling"``, ``"gloo"``, ``"parameter_server"`` or ``"byteps"``
    links: Links  # of the machines
    nbytes: int  # buffer on each worker [bytes]
    workers: int = 0  # how many of the machines; the first ones. All, if not given
    shares: tuple[float, ...] = ()  # of the buffer that each machine sums, with servers

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", self.workers or self.machines)

    @property
    def machines(self) -> int:
        """Processes that take part."""
        return len(self.links.rates)

    @property
    def partition(self) -> int:
        """Bytes of a partition, with servers."""
        return round(min(self.links.rates[: self.workers]) / 8.0 * PARTITION_TIME)

    @property
    def exchange(self) -> str:
        """What a worker process calls it."""
        return "servers" if self.shares else self.algorithm


def predict(setting: Setting, latency: float, add_rate: float) -> float:
    """Time of an exchange by the library's formulas [s].

    The latency is that of a message of one number [s], the rate that of adding one buffer to another [bytes/s], both probed.
    """
    n, p = float(setting.nbytes), float(setting.machines)
    rates = [rate / 8.0 * framing_efficiency(setting.links.mtu) for rate in setting.links.rates]
    slowest = min(rates)
    if setting.algorithm in ("ring", "gloo"):
        # Gloo sends each part in two segments, but a segment only after its receiver's word that crossed the link
        # behind the segment before, so that a step has one latency in it all the same
        return float(algorithms.ring_all_reduce(n, p, latency, slowest, add_rate))
    if setting.algorithm == "halving_doubling":
        return float(algorithms.rabenseifner_all_reduce(n, p, latency, slowest, add_rate))
    workers = float(setting.workers)
    if setting.algorithm == "parameter_server":
        owned = [share for share in setting.shares if share]
        servers, colocated = float(len(owned)), float(setting.shares[0] > 0)
        return float(
            server_exchange.exchange_time(
                n, n, workers, servers, max(owned) * servers, colocated, min(rates[: setting.workers]), min(rates[-len(owned) :]),
                add_rate, latency, max(n / servers / setting.partition, 1.0),
            )
        )  # fmt: skip
    kinds = [byteps.gpu_machine_time] * setting.workers + [byteps.cpu_machine_time] * (setting.machines - setting.workers)
    times = [time(n, workers, share, rate) for time, share, rate in zip(kinds, setting.shares, rates, strict=True)]
    return 2.0 * latency + float(max(times))


def equal_links(machines: int, megabits: float, milliseconds: float = 0.0, mtu: int = 1500) -> Links:
    """Links of one rate [Mbit/s], latency [ms] and size of frames [bytes]."""
    return Links((megabits * 1e6,) * machines, milliseconds * 1e-3, mtu)


def byteps_shares(gpu_machines: int, cpu_machines: int) -> tuple[float, ...]:
    """The optimal share of each machine where all links are equal."""
    n, k = float(gpu_machines), float(cpu_machines)
    on_gpu, on_cpu = byteps.gpu_share(n, k), byteps.cpu_share(n, k)
    return (float(on_gpu),) * gpu_machines + (float(on_cpu),) * cpu_machines


def balanced_shares(rates: tuple[float, ...]) -> tuple[float, ...]:
    """Shares with which every peer's link is busy for the same time, as a collaboration of unlike peers takes them.

    From `costmodel.formulas.systems.byteps.gpu_machine_time` alike for all, where the shares sum to 1.

    Examples
    --------
    >>> balanced_shares((60.0, 60.0, 60.0, 60.0))
    (0.25, 0.25, 0.25, 0.25)
    """
    peers = len(rates)
    return tuple((2.0 * (peers - 1.0) * rate / sum(rates) - 1.0) / (peers - 2.0) for rate in rates)


def settings(quick: bool = False) -> list[Setting]:
    """Everything that is measured; with `quick` a few short exchanges."""
    return list(_quick() if quick else _all())


def _quick() -> Iterator[Setting]:
    links = equal_links(4, 100)
    for algorithm in ("ring", "halving_doubling", "gloo"):
        yield Setting(name=algorithm, algorithm=algorithm, links=links, nbytes=2_000_000)
    shares = (0.0, 0.0, 0.5, 0.5)
    yield Setting(name="servers: 2 for 2", algorithm="parameter_server", links=links, nbytes=2_500_000, workers=2, shares=shares)
    yield Setting(name="ring", algorithm="ring", links=equal_links(4, 50, 5), nbytes=1_000_000)


def _all() -> Iterator[Setting]:
    def all_reduce(links: Links, *sizes: tuple[str, int], name: str = "") -> Iterator[Setting]:
        for algorithm, nbytes in sizes:
            yield Setting(name=name or algorithm.replace("_", "-"), algorithm=algorithm, links=links, nbytes=nbytes)

    def all_three(links: Links, nbytes: int) -> Iterator[Setting]:
        return all_reduce(links, ("ring", nbytes), ("halving_doubling", nbytes), ("gloo", nbytes))

    yield from all_three(equal_links(4, 100), 3_000_000)
    yield from all_reduce(equal_links(4, 100), ("ring", 64_000))
    yield from all_three(equal_links(8, 200, mtu=JUMBO), 6_000_000)
    yield from all_three(equal_links(8, 20), 600_000)
    yield from all_three(equal_links(6, 50), 1_200_000)
    yield from all_three(equal_links(4, 50, 2), 1_600_000)
    yield from all_three(equal_links(4, 50, 10), 1_600_000)
    yield from all_three(equal_links(8, 20, 5), 400_000)
    yield from all_three(equal_links(5, 100, 0.5, JUMBO), 2_500_000)
    yield from all_reduce(Links((50e6, 50e6, 50e6, 20e6)), ("ring", 800_000), ("gloo", 800_000), name="one slow peer")

    def servers(name: str, links: Links, nbytes: int, workers: int, shares: tuple[float, ...]) -> Setting:
        algorithm = "parameter_server" if name.startswith("server") else "byteps"
        return Setting(name=name, algorithm=algorithm, links=links, nbytes=nbytes, workers=workers, shares=shares)

    half = (0.5, 0.5)
    yield servers("servers: 2 for 4, incast", equal_links(6, 50), 1_800_000, 4, (0.0,) * 4 + half)
    yield servers("servers: as many as workers, apart", equal_links(8, 100, mtu=JUMBO), 6_000_000, 4, (0.0,) * 4 + (0.25,) * 4)
    yield servers("servers: 2 of twice the rate", Links((50e6,) * 4 + (100e6,) * 2), 3_600_000, 4, (0.0,) * 4 + half)
    yield servers("servers: 2 of unlike shards", equal_links(6, 100), 3_000_000, 4, (0.0,) * 4 + (0.7, 0.3))
    yield servers("servers: colocated", equal_links(6, 50), 2_400_000, 6, (1 / 6,) * 6)
    yield servers("servers: 2 for 3, incast, far", equal_links(5, 50, 5), 2_400_000, 3, (0.0,) * 3 + half)
    yield servers("BytePS: 4 and 2", equal_links(6, 100), 4_500_000, 4, byteps_shares(4, 2))
    yield servers("BytePS: 6 and 2", equal_links(8, 50), 2_400_000, 6, byteps_shares(6, 2))
    yield servers("BytePS: 4 and 2 of half the rate", Links((100e6,) * 4 + (50e6,) * 2), 3_000_000, 4, byteps_shares(4, 2))
    unlike = (60e6, 60e6, 60e6, 40e6)
    yield servers("unlike peers, balanced", Links(unlike), 3_000_000, 4, balanced_shares(unlike))
