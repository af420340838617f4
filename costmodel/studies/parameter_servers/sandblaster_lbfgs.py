"""Sandblaster L-BFGS: a coordinator deals small portions of a batch to replicas, and the servers do its algebra."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from costmodel.formulas.systems import distbelief as formulas
from costmodel.formulas.systems import server_exchange as servers_formulas
from costmodel.studies.parameter_servers import staleness as stale
from costmodel.studies.parameter_servers.staleness import Staleness
from costmodel.text.checks import flag, positive_int, real, whole
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief

HOUR = 3600.0
BATCHES = 400
"""Batches that a simulation follows."""
MOST_PORTIONS = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sandblaster:
    """What a batch of Sandblaster takes."""

    replicas: int  # replicas, machines: copies of the model, and all machines: theirs, the servers and the coordinator
    machines: int
    batch_time: float  # from one step of L-BFGS to the next [s]
    fetch_time: float  # of the parameters at its start [s]
    portions_time: float  # in which the replicas take all portions [s]
    coordinator_time: float  # of the vector operations on the servers' shards [s]
    plain_portions_time: float  # without backup tasks [s]; the same where there are none
    availability: float  # share of the time in which a replica is up
    fetch_bytes: float  # fetch_bytes, push_bytes: of a replica in a batch, mean [bytes]
    push_bytes: float
    server_bytes: float  # that a server receives in a batch [bytes]
    staleness: Staleness  # none, since every batch waits for its last portion
    hours: float | None  # to the accuracy; None without the batches that it takes
    answered_by: str  # ``"closed form"`` or ``"simulation"``, where `portions_time` comes from

    __repr__ = brief


def sandblaster(
    nbytes: float,
    *,
    portion_time: float,
    portions: int,
    replicas: int,
    servers: int,
    bandwidth: float,
    machines_per_replica: int = 1,
    push_portions: int = 1,
    history: int = 10,
    memory_bandwidth: float = 10e9,
    latency: float = 0.0,
    straggler_spread: float = 1.0,
    backup: bool = True,
    machine_mtbf: float | None = None,
    restart: float = 600.0,
    batches: float | None = None,
    seed: int = 0,
) -> Sandblaster:
    r"""Machines, bytes and hours of Sandblaster L-BFGS.

    In a batch every replica fetches the parameters once; whoever is idle takes the next portion, and pushes its
    gradient after every few; at the end idle replicas may repeat portions that are outstanding. Then the servers work
    out the direction on their shards, told by a coordinator that sees no parameters. A replica that fails gives its
    portion back.

    Pushes are priced as if all replicas pushed at once, which is the most that servers can make them wait. A portion's time
    is a constant plus an exponential. Exponential portions with backup tasks, and without failures
    also those without, have a closed form, as have constant ones; the rest is followed event by event.

    Parameters
    ----------
    nbytes : of the parameters, and of a gradient [bytes]
    portion_time : mean time that a replica computes for a portion [s]
    portions : of a batch, at least as many as replicas
    replicas : copies of the model
    servers : machines that hold a shard of the parameters each
    bandwidth : of a machine's link, each direction [bytes/s]
    machines_per_replica : over which a copy is split
    push_portions : portions from one push of a replica to its next
    history : pairs of vectors that L-BFGS keeps
    memory_bandwidth : of a server, for vector operations on its shard [bytes/s]
    latency : from a machine or the coordinator to a server [s]
    straggler_spread : standard deviation over the mean of a portion's time: 0 constant, 1 exponential
    backup : whether idle replicas repeat outstanding portions at the end of a batch
    machine_mtbf : mean time between failures of one machine [s]; None for no failures
    restart : of a machine that failed [s]
    batches : steps of L-BFGS to the accuracy wanted; no hours without it
    seed : of the simulation

    Returns
    -------
    Sandblaster

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected

    References
    ----------
    [dean2012]_ section 4.2; the times are derived

    Examples
    --------
    >>> run = sandblaster(168e6, portion_time=10.0, portions=4000, replicas=1000, servers=256, bandwidth=1.25e9)
    >>> run.machines, round(run.portions_time, 1), round(run.plain_portions_time, 1), run.answered_by
    (1257, 42.1, 110.4, 'closed form')
    """
    _check_counts(portions, replicas, servers, machines_per_replica, push_portions, history)
    flag("backup", backup)
    for field, value, least, most in (
        ("nbytes", nbytes, 0.0, 1e18), ("portion_time", portion_time, 1e-9, 1e9), ("bandwidth", bandwidth, 1.0, 1e18),
        ("memory_bandwidth", memory_bandwidth, 1.0, 1e18), ("latency", latency, 0.0, 1e3),
        ("straggler_spread", straggler_spread, 0.0, 1.0), ("restart", restart, 0.0, 1e9),
    ):  # fmt: skip
        real(field, value, least, most)

    exchange = _Exchange(float(replicas), float(servers), bandwidth * machines_per_replica, bandwidth, latency)
    replica_mtbf, up = math.inf, 1.0
    if machine_mtbf is not None:
        replica_mtbf = real("machine_mtbf", machine_mtbf, 1.0, 1e12) / machines_per_replica
        up = float(formulas.replica_availability(float(machines_per_replica), machine_mtbf, restart))
    mean = float(formulas.mean_portion_time(portion_time, exchange.time(nbytes, 0.0), float(push_portions), 1.0))
    taken, answered_by = _portions_time(portions, replicas, mean, straggler_spread, backup, replica_mtbf, restart, up, seed)
    plain = taken
    if backup:
        plain, _ = _portions_time(portions, replicas, mean, straggler_spread, False, replica_mtbf, restart, up, seed)
    fetch = exchange.time(0.0, nbytes)
    coordinator = float(formulas.lbfgs_time(nbytes, float(servers), float(history), memory_bandwidth, latency))
    pushes = max(portions / replicas / push_portions, 1.0)
    batch_time = fetch + taken + coordinator
    return Sandblaster(
        replicas=replicas, machines=1 + servers + replicas * machines_per_replica, batch_time=batch_time, fetch_time=fetch,
        portions_time=taken, coordinator_time=coordinator, plain_portions_time=plain, availability=up, fetch_bytes=nbytes,
        push_bytes=float(formulas.sandblaster_bytes(nbytes, pushes)) - nbytes,
        server_bytes=replicas * pushes * nbytes / servers, staleness=stale.synchronous(),
        hours=None if batches is None else real("batches", batches, 1e-9, 1e12) * batch_time / HOUR, answered_by=answered_by,
    )  # fmt: skip


class _Exchange(NamedTuple):
    """All replicas with the servers at once."""

    replicas: float
    servers: float
    bandwidth: float  # of a replica's machines
    server_bandwidth: float
    latency: float

    def time(self, push: float, pull: float) -> float:
        """In which each replica sends and fetches so many bytes [s]."""
        return float(servers_formulas.exchange_time(
            push, pull, self.replicas, self.servers, 1.0, 0.0, self.bandwidth, self.server_bandwidth, 1e30, self.latency, 1e6,
        ))  # fmt: skip


def _check_counts(
    portions: int, replicas: int, servers: int, machines_per_replica: int, push_portions: int, history: int
) -> None:
    positive_int("replicas", replicas, 100_000)
    if positive_int("portions", portions, MOST_PORTIONS * 100) < replicas:
        raise InvalidValue("portions", portions, f"at least the {replicas} replicas")
    positive_int("machines_per_replica", machines_per_replica, 100_000)
    positive_int("push_portions", push_portions, 10**6)
    positive_int("servers", servers, 100_000)
    whole("history", history, 10_000)


def _portions_time(
    portions: int, replicas: int, mean: float, spread: float, backup: bool, mtbf: float, restart: float, up: float, seed: int
) -> tuple[float, str]:  # fmt: skip
    """Expected time of all portions of a batch [s], and how it was found."""
    if spread == 1.0 and (backup or math.isinf(mtbf)):
        alone = formulas.sandblaster_batch_time(float(portions), float(replicas), mean, float(backup))
        return float(alone) / up, "closed form"
    if spread == 0.0 and math.isinf(mtbf):
        return math.ceil(portions / replicas) * mean, "closed form"
    if portions > MOST_PORTIONS:
        raise InvalidValue("portions", portions, f"at most {MOST_PORTIONS} where they are followed one by one")
    import numpy as np

    from costmodel.studies.parameter_servers import distbelief_kernel as kernel

    times = np.zeros(max(BATCHES // max(1, portions * replicas // 20_000), 5))
    kernel.batches(portions, replicas, mean, spread, backup, mtbf, restart, times, seed)
    return float(times.mean()), "simulation"
