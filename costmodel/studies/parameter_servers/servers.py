"""How fast workers train against parameter servers, how long they wait, and how stale their gradients are."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, NamedTuple

from costmodel.arithmetic.named_tuples import as_number
from costmodel.formulas.pipeline import staleness as waiting
from costmodel.formulas.quantities import Number
from costmodel.formulas.systems import server_exchange as formulas
from costmodel.formulas.systems.distbelief import per_step
from costmodel.studies.parameter_servers.staleness import geometric
from costmodel.text.checks import choice, flag, kind, positive_int, real, whole
from costmodel.text.errors import InvalidValue, NotModelled
from costmodel.text.results import brief
from costmodel.text.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import numpy as np

CONSISTENCIES = ("bsp", "bounded_delay", "asynchronous")
LARGEST_SPREAD = {"deterministic": 0.0, "exponential": 1.0, "uniform": 1.0 / math.sqrt(3.0), "normal": 0.2, "lognormal": 10.0}
"""Distributions with the largest standard deviation over the mean that leaves times positive."""
MOST_WORKERS = 100_000
MOST_EVENTS = 50_000_000
NO_LIMIT = 1e30
NEGLIGIBLE = 1e-3
"""Share of a step up to which workers that exchange at once may slow each other, and still count as not doing so."""
CLOSED, SIMULATED = "closed form", "simulation"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stragglers:
    """Distribution of the computing time of one step of one worker; its mean is the step's computing time.

    Parameters
    ----------
    distribution : ``"deterministic"``, ``"exponential"`` (a constant plus an exponential), ``"uniform"``, ``"normal"``
        or ``"lognormal"``
    spread : standard deviation over the mean; at most 1 for exponential (1 is the exponential itself), 0.577 for
        uniform, 0.2 for normal (so that no time is negative), 10 for lognormal, 0 for deterministic
    """

    distribution: str = "deterministic"
    spread: float = 0.0

    __repr__ = brief

    def __post_init__(self) -> None:
        choice("distribution", self.distribution, tuple(LARGEST_SPREAD))
        real("spread", self.spread, 0.0, LARGEST_SPREAD[self.distribution])

    @property
    def constant(self) -> bool:
        """Whether every step takes the same time."""
        return self.spread == 0.0

    def slowest(self, mean: float, workers: int) -> float:
        """Expected time of the slowest of so many workers [s]."""
        if self.constant:
            return mean
        if self.distribution == "exponential":
            return float(waiting.slowest_exponential(mean, self.spread, float(workers)))
        if self.distribution == "uniform":
            return float(waiting.slowest_uniform(mean, self.spread, float(workers)))
        from costmodel.studies.parameter_servers.waiting import slowest_of

        return slowest_of(self.distribution, mean, self.spread, workers)

    def draw(self, mean: float, steps: int, workers: int, seed: int) -> np.ndarray:
        """Times of so many steps (rows) of so many workers [s]; the same for the same seed."""
        import numpy as np

        random = np.random.default_rng(seed)
        shape = (steps, workers)
        if self.constant:
            return np.full(shape, mean)
        if self.distribution == "exponential":
            return mean * (1.0 - self.spread + self.spread * random.exponential(size=shape))
        if self.distribution == "uniform":
            return mean * (1.0 + math.sqrt(3.0) * self.spread * random.uniform(-1.0, 1.0, shape))
        if self.distribution == "normal":
            return np.maximum(mean * (1.0 + self.spread * random.standard_normal(shape)), 0.0)
        sigma = math.sqrt(math.log1p(self.spread * self.spread))
        return mean * np.exp(sigma * random.standard_normal(shape) - 0.5 * sigma * sigma)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filters:
    """What is left out of a message.

    Parameters
    ----------
    key_caching : share of the messages whose keys the receiver holds from before, so that they aren't sent
    significantly_modified : share of entries that changed by more than the threshold and are sent
    random_skip : share of entries skipped at random
    kkt : share of entries dropped from pushes because their weight is zero and stays so
    compression : bytes of a value after over before compression
    """

    key_caching: float = 0.0
    significantly_modified: float = 1.0
    random_skip: float = 0.0
    kkt: float = 0.0
    compression: float = 1.0

    __repr__ = brief

    def __post_init__(self) -> None:
        for field in ("key_caching", "significantly_modified", "random_skip", "kkt"):
            real(field, getattr(self, field), 0.0, 1.0)
        real("compression", self.compression, 1e-6, 1.0)

    def kept(self, pushed: bool) -> float:
        """Share of the entries that is sent: the KKT filter acts on what workers push."""
        return float(formulas.kept_share(self.significantly_modified, self.random_skip, self.kkt if pushed else 0.0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParameterServerStep:
    """What a step of every worker costs in the long run."""

    workers: int  # workers, servers: how many
    servers: int
    step_time: float  # in which each worker does one step, on average [s]
    compute_time: float  # of a step, mean [s]
    exchange_share: float  # share of a worker's time in which it exchanges and doesn't compute
    idle_share: float  # share of a worker's time in which it waits for other workers
    push_bytes: float  # push_bytes, pull_bytes: that a worker sends and receives in a step, on average [bytes]
    pull_bytes: float
    server_bytes: float  # that the busiest server receives in a step of every worker [bytes]
    # pushes of other workers between the fetch that a gradient is computed on and its own push; 0 for BSP, whose servers apply
    # all gradients of a step as one
    staleness_mean: float
    staleness: tuple[float, ...]  # probabilities of 0, 1, 2, ... such pushes; the last is of all beyond
    # probabilities that the slowest worker is 0, 1, 2, ... steps behind as a worker begins a step; empty without a bound on it
    lag: tuple[float, ...]
    # ``"compute"``, ``"stragglers"``, ``"server link"``, ``"server update"``, ``"server requests"``, ``"worker link"`` or
    # ``"latency"``
    bottleneck: str
    why: str  # in one line
    answered_by: str  # ``"closed form"`` or ``"simulation"``, where the times come from

    __repr__ = brief

    @property
    def throughput(self) -> float:
        """Steps of single workers a second; times the samples of a worker's step, samples a second."""
        return self.workers / self.step_time

    @property
    def compute_share(self) -> float:
        """Share of a worker's time in which it computes: the efficiency against workers alone."""
        return 1.0 - self.exchange_share - self.idle_share


def parameter_server(
    nbytes: float,
    *,
    compute_time: float,
    workers: int,
    servers: int,
    bandwidth: float,
    server_bandwidth: float | None = None,
    update_bandwidth: float | None = None,
    latency: float = 0.0,
    request_time: float = 0.0,
    colocated: bool = False,
    skew: float = 1.0,
    largest_tensor: float = 0.0,
    partition_bytes: float | None = 4e6,
    efficiency: float = 1.0,
    working_set: float = 1.0,
    key_bytes: float = 0.0,
    value_bytes: float = 4.0,
    filters: Filters | None = None,
    consistency: str = "bsp",
    delay: int | None = None,
    fetch_interval: int = 1,
    push_interval: int = 1,
    stragglers: Stragglers | None = None,
    overlap: float = 0.0,
    steps: int = 2000,
    seed: int = 0,
) -> ParameterServerStep:
    """Throughput, waiting and staleness of workers that push gradients to servers and pull parameters.

    What has a closed form is answered by it: steps without stragglers (all workers go in lockstep, whatever the
    consistency); BSP where the servers aren't what limits an exchange; asynchronous steps, as a closed network of
    queues. The rest (a bounded delay; BSP where stragglers relieve servers that are the limit), and the distribution of
    staleness unless it is geometric, comes from following the workers event by event, `steps` steps of each.

    Parameters
    ----------
    nbytes : gradients, and parameters, of the whole model, values alone [bytes]
    compute_time : mean of a worker's step [s]
    workers, servers : how many; colocated servers are at most as many as workers
    bandwidth : of a worker's link, each direction [bytes/s]
    server_bandwidth : of a server's link [bytes/s]; the workers' if not given
    update_bandwidth : at which a server sums or applies what it receives [bytes/s]; not a limit if not given
    latency : from a worker to a server [s]
    request_time : of a server with one worker's requests in a step, which add up over workers [s]
    colocated : whether servers run on the workers' machines and share their links
    skew : load of the busiest server over the mean, of uneven sharding
    largest_tensor : largest tensor that stays whole on one server [bytes]; the skew is at least what that makes it
    partition_bytes : size of the messages that a push is split into [bytes]; None: not split, stored and forwarded
    efficiency : share of the links' bandwidth that the exchange reaches
    working_set : share of the entries that a worker's data touch, so that it pushes and pulls only those
    key_bytes : of the key sent with each value [bytes]; 0 for dense values
    value_bytes : of one value [bytes]
    filters : what is left out of messages
    consistency : ``"bsp"``, ``"bounded_delay"`` or ``"asynchronous"``
    delay : steps that a worker may be ahead of the slowest, with a bounded delay; 0 is BSP
    fetch_interval, push_interval : steps between fetches and between pushes, asynchronous (Downpour); one has to be
        a multiple of the other, and the traffic is spread evenly over the steps
    stragglers : distribution of computing times; all alike if not given
    overlap : share of the mean computing time during which the exchange can run beside it, with BSP
    steps : of each worker, simulated
    seed : of the simulation

    Returns
    -------
    ParameterServerStep

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    NotModelled
        for an overlap with another consistency, or with stragglers whose exchanges overlap each other

    References
    ----------
    [li2014]_, [dean2012]_, [jiang2020]_ table 1

    Examples
    --------
    >>> result = parameter_server(1e9, compute_time=0.5, workers=8, servers=2, bandwidth=10e9)
    >>> round(result.step_time, 3), result.bottleneck
    (0.9, 'compute')
    >>> result = parameter_server(1e9, compute_time=0.5, workers=16, servers=2, bandwidth=10e9)
    >>> result.bottleneck, result.why
    ('server link', '2 servers take 7.5 GiB each from 16 workers: 800 ms')
    """
    return _ServedWorkers(**locals()).answer()


BOUNDS = {
    "bandwidth": (1.0, NO_LIMIT), "server_bandwidth": (1.0, NO_LIMIT), "update_bandwidth": (1.0, NO_LIMIT),
    "latency": (0.0, 1e3), "request_time": (0.0, 1e3), "skew": (1.0, NO_LIMIT), "largest_tensor": (0.0, NO_LIMIT),
    "efficiency": (1e-3, 1.0), "working_set": (0.0, 1.0), "key_bytes": (0.0, 1e3), "value_bytes": (1.0 / 8.0, 1e3),
    "overlap": (0.0, 1.0), "partition_bytes": (1.0, 1e18),
}  # fmt: skip
"""Least and most of the arguments of `parameter_server` that are numbers."""
MAY_BE_NONE = ("server_bandwidth", "update_bandwidth", "partition_bytes")
EXPONENTIAL = Stragglers(distribution="exponential", spread=1.0)
TAIL = 1e-6
"""Probability below which a tail of staleness is put into its last entry."""


class _ServedWorkers(NamedTuple):
    """The arguments of `parameter_server`."""

    nbytes: float
    compute_time: float
    workers: int
    servers: int
    bandwidth: float
    server_bandwidth: float | None
    update_bandwidth: float | None
    latency: float
    request_time: float
    colocated: bool
    skew: float
    largest_tensor: float
    partition_bytes: float | None
    efficiency: float
    working_set: float
    key_bytes: float
    value_bytes: float
    filters: Filters | None
    consistency: str
    delay: int | None
    fetch_interval: int
    push_interval: int
    stragglers: Stragglers | None
    overlap: float
    steps: int
    seed: int

    def answer(self) -> ParameterServerStep:
        """A step of these workers, or why there is none."""
        asked = self._replace(
            stragglers=Stragglers() if self.stragglers is None else self.stragglers,
            filters=Filters() if self.filters is None else self.filters,
        )
        asked.check()
        bound = _bound(self.consistency, self.delay)
        _check_intervals(self.consistency, self.fetch_interval, self.push_interval)
        if self.overlap and bound != 0:
            raise NotModelled("overlap is modelled for consistency='bsp'; other workers compute while some exchange anyway")
        links = asked.links()
        if self.compute_time + links.time(1.0) <= 0.0:
            raise InvalidValue("compute_time", self.compute_time, "more than 0 where nothing is exchanged either")
        assert asked.stragglers is not None
        work = _Work(
            self.compute_time, asked.stragglers, self.workers, bound, self.fetch_interval, self.push_interval, self.steps,
            self.seed,
        )  # fmt: skip
        return work.answer(links, self.overlap)

    def check(self) -> None:
        """Raise `InvalidValue` for the first argument that can't be."""
        kind("stragglers", self.stragglers, Stragglers, "Stragglers(distribution=..., spread=...)")
        kind("filters", self.filters, Filters, "Filters(...)")
        real("nbytes", self.nbytes, 0.0, 1e18)
        real("compute_time", self.compute_time, 0.0, 1e9)
        positive_int("workers", self.workers, MOST_WORKERS)
        positive_int("servers", self.servers, MOST_WORKERS)
        flag("colocated", self.colocated)
        if self.colocated and self.servers > self.workers:
            raise InvalidValue("servers", self.servers, f"at most the {self.workers} workers whose machines they share")
        if self.colocated and self.server_bandwidth is not None:
            raise InvalidValue("server_bandwidth", self.server_bandwidth, "none: colocated servers share the workers' links")
        bounds = BOUNDS | {"skew": (1.0, float(self.servers)), "largest_tensor": (0.0, self.nbytes)}
        for field, (least, most) in bounds.items():
            if (value := getattr(self, field)) is not None or field not in MAY_BE_NONE:
                real(field, value, least, most)
        positive_int("steps", self.steps, 10**7)
        whole("seed", self.seed, 2**63)

    def links(self) -> _ExchangeArguments:
        """What is exchanged over what."""
        push = float(per_step(self.wire(True), self.push_interval))
        pull = float(per_step(self.wire(False), self.fetch_interval))
        largest = formulas.skew_of_largest(self.nbytes, float(self.servers), self.largest_tensor) if self.nbytes else 1.0
        server_bandwidth = self.bandwidth if self.server_bandwidth is None else self.server_bandwidth
        return _ExchangeArguments(
            push=push, pull=pull, servers=float(self.servers), skew=max(self.skew, float(largest)),
            colocated=float(self.colocated), bandwidth=self.efficiency * self.bandwidth,
            server_bandwidth=self.efficiency * server_bandwidth,
            update_bandwidth=NO_LIMIT if self.update_bandwidth is None else self.update_bandwidth, latency=self.latency,
            request_time=self.request_time,
            partitions=1.0 if self.partition_bytes is None else max(push / self.partition_bytes, 1.0),
        )  # fmt: skip

    def wire(self, pushed: bool) -> float:
        """Bytes of one push, or of one pull, with their keys."""
        assert self.filters is not None
        return float(formulas.wire_bytes(
            self.working_set * self.nbytes, self.value_bytes, self.key_bytes, self.filters.kept(pushed),
            self.filters.key_caching, self.filters.compression,
        ))  # fmt: skip


class _ExchangeArguments(NamedTuple):
    """What an exchange meets: the arguments of `exchange_time` and `requests_time` of `server_exchange`."""

    push: float
    pull: float
    servers: float
    skew: float
    colocated: float
    bandwidth: float
    server_bandwidth: float
    update_bandwidth: float
    latency: float
    partitions: float
    request_time: float

    def time(self, active: Number) -> Number:
        """Time of so many exchanges at once [s]."""
        return formulas.exchange_time(
            self.push, self.pull, active, self.servers, self.skew, self.colocated, self.bandwidth,
            self.server_bandwidth, self.update_bandwidth, self.latency, self.partitions,
        ) + formulas.requests_time(active, self.request_time)  # fmt: skip

    def times(self, most: int) -> np.ndarray:
        """Time of 1, 2, ... exchanges at once [s]."""
        import numpy as np

        return np.broadcast_to(self.time(as_number(np.arange(1.0, most + 1.0))), most)


class _FollowedWorkers(NamedTuple):
    """What following the workers gave."""

    step_time: float
    exchanging: float  # s of a step
    staleness_mean: float
    staleness: tuple[float, ...]
    lag: tuple[float, ...]


class _Pace(NamedTuple):
    """A step in the long run."""

    step_time: float
    exchanging: float  # s of a step
    run: _FollowedWorkers | None = None  # where the workers were followed


class _Work(NamedTuple):
    """What workers do beside exchanging, and how far they may be apart."""

    compute_time: float
    stragglers: Stragglers
    workers: int
    bound: int  # steps ahead of the slowest; -1 without bound
    fetch_interval: int
    push_interval: int
    steps: int  # followed
    seed: int

    def answer(self, links: _ExchangeArguments, overlap: float) -> ParameterServerStep:
        """Everything that is asked of a step over these links."""
        pace = self.pace(links, overlap)
        mean, staleness, lag = self.staleness(links, pace.run)
        idle = max(pace.step_time - self.compute_time - pace.exchanging, 0.0)
        bottleneck, why = _bottleneck(self.compute_time, pace.exchanging, idle, self.stragglers, links, self.workers)
        return ParameterServerStep(
            workers=self.workers, servers=int(links.servers), step_time=pace.step_time, compute_time=self.compute_time,
            exchange_share=pace.exchanging / pace.step_time, idle_share=idle / pace.step_time, push_bytes=links.push,
            pull_bytes=links.pull,
            server_bytes=float(formulas.server_bytes(links.push, float(self.workers), links.servers, links.skew)),
            staleness_mean=mean, staleness=staleness, lag=lag, bottleneck=bottleneck, why=why,
            answered_by=CLOSED if pace.run is None else SIMULATED,
        )  # fmt: skip

    def pace(self, links: _ExchangeArguments, overlap: float) -> _Pace:
        """Time of a step, in closed form where there is one."""
        together = links.time(float(self.workers))
        contended = together - links.time(1.0) > NEGLIGIBLE * (together + self.compute_time)
        constant = self.stragglers.constant
        if contended and overlap and not constant:
            raise NotModelled("overlap with stragglers is modelled where the servers don't limit the exchange")
        if constant or self.workers == 1 or (self.bound == 0 and not contended):
            exposed = float(formulas.exposed_time(together, self.compute_time, overlap))
            return _Pace(self.stragglers.slowest(self.compute_time, self.workers) + exposed, exposed)
        if self.bound < 0:
            step_time = self.asynchronous(links)
            return _Pace(step_time, step_time - self.compute_time)
        run = self.followed(links)
        return _Pace(run.step_time, run.exchanging, run)

    def asynchronous(self, links: _ExchangeArguments) -> float:
        """Time of a step of workers that wait for nothing but the links [s]."""
        if self.compute_time == 0.0 or links.time(1.0) == 0.0:
            return self.compute_time + float(links.time(float(self.workers)))
        from costmodel.studies.parameter_servers.waiting import shared_service

        rate, _ = shared_service(self.compute_time, links.times(self.workers))
        return self.workers / rate

    def staleness(
        self, links: _ExchangeArguments, run: _FollowedWorkers | None
    ) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
        """Mean and probabilities of the staleness of gradients, and probabilities of lags."""
        none = (1.0,)
        if self.bound >= 0:
            if self.bound == 0 or self.workers == 1:
                return 0.0, none, none
            run = run or self.followed(links)
            return run.staleness_mean, run.staleness, run.lag
        intervals = self.fetch_interval, self.push_interval
        mean = float(waiting.mean_staleness(float(self.workers), *intervals))
        if self.workers == 1:
            return mean, none, ()
        if (self.stragglers, links.time(1.0)) == (EXPONENTIAL, 0.0) and intervals == (1, 1):
            return mean, geometric(self.workers, TAIL), ()
        return mean, self.followed(links).staleness, ()

    def followed(self, links: _ExchangeArguments) -> _FollowedWorkers:
        """The workers followed event by event, after a tenth of the steps that aren't counted."""
        workers, steps, bound = self.workers, self.steps, self.bound
        if steps * workers > MOST_EVENTS:
            raise InvalidValue("steps", steps, f"at most {MOST_EVENTS // workers} for {workers} workers")
        if steps < 10 * max(self.fetch_interval, self.push_interval):
            raise InvalidValue("steps", steps, "at least ten times the intervals of fetching and pushing, and 10")
        import numpy as np

        from costmodel.studies.parameter_servers import server_kernel as kernel

        times = np.concatenate([[1.0], links.times(workers)])
        totals = np.zeros(5)
        ratio = max(1, self.fetch_interval // self.push_interval)
        staleness = np.zeros(64 + 16 * workers * ratio, np.int64)
        lag = np.zeros(max(bound, 0) + 1, np.int64)
        durations = self.stragglers.draw(self.compute_time, steps, workers, self.seed)
        intervals = self.fetch_interval, self.push_interval
        kernel.run(durations, times, bound, *intervals, steps // 10, totals, staleness, lag)
        each = 1.0 / float(totals[kernel.UPDATES])
        return _FollowedWorkers(
            step_time=workers * float(totals[kernel.ELAPSED]) * each,
            exchanging=float(totals[kernel.EXCHANGING]) * each,
            staleness_mean=float(staleness @ np.arange(len(staleness))) / float(staleness.sum()),
            staleness=tuple((np.trim_zeros(staleness, "b") / staleness.sum()).tolist()),
            lag=tuple((lag / lag.sum()).tolist()) if bound >= 0 else (),
        )


def _bound(consistency: str, delay: int | None) -> int:
    """Steps that a worker may be ahead of the slowest; -1 without bound."""
    choice("consistency", consistency, CONSISTENCIES)
    if consistency != "bounded_delay":
        if delay is not None:
            raise InvalidValue("delay", delay, f"none with consistency={consistency!r}; 'bounded_delay' takes one")
        return 0 if consistency == "bsp" else -1
    return whole("delay", delay, 10**6)


def _check_intervals(consistency: str, fetch_interval: int, push_interval: int) -> None:
    positive_int("fetch_interval", fetch_interval, 10**4)
    positive_int("push_interval", push_interval, 10**4)
    if (fetch_interval, push_interval) != (1, 1) and consistency != "asynchronous":
        raise NotModelled("fetch_interval and push_interval above 1 are modelled for consistency='asynchronous' (Downpour)")
    if max(fetch_interval, push_interval) % min(fetch_interval, push_interval):
        raise InvalidValue("fetch_interval", fetch_interval, f"a multiple or a divisor of push_interval={push_interval}")


def _bottleneck(
    computing: float, exchanging: float, idle: float, stragglers: Stragglers, links: _ExchangeArguments, workers: int
) -> tuple[str, str]:
    """What takes the largest part of a step, and why."""
    if idle > max(computing, exchanging):
        return "stragglers", (
            f"workers wait {format_seconds(idle)} of a step for others, whose times are {stragglers.distribution} with a "
            f"standard deviation of {stragglers.spread:.0%}"
        )
    if exchanging <= computing:
        return "compute", f"a worker computes {format_seconds(computing)} of a step"
    together = format_seconds(links.time(float(workers)))
    received = float(formulas.server_bytes(max(links.push, links.pull), float(workers), links.servers, links.skew))
    limits = {
        "latency": 2.0 * links.latency,
        "server update": links.push * workers * links.skew / links.servers / links.update_bandwidth,
        "server requests": float(formulas.requests_time(float(workers), links.request_time)),
        "worker link": links._replace(
            server_bandwidth=NO_LIMIT, update_bandwidth=NO_LIMIT, latency=0.0, request_time=0.0
        ).time(float(workers)),
        "server link": (1.0 - links.colocated) * received / links.server_bandwidth,
    }
    name = max(limits, key=lambda limit: limits[limit])
    servers = "1 server takes" if links.servers == 1.0 else f"{links.servers:.0f} servers take"
    each = "" if links.skew == 1.0 else ", the busiest"
    return name, {
        "latency": f"two trips of {format_seconds(links.latency)} each",
        "server update": f"{servers} {format_bytes(received)} each{each} and sums it: {together}",
        "server requests": f"{servers} requests of {workers} workers one after another: {together}",
        "worker link": f"a machine sends or receives {format_bytes(limits['worker link'] * links.bandwidth)}: {together}",
        "server link": f"{servers} {format_bytes(received)} each{each} from {workers} workers: {together}",
    }[name]
