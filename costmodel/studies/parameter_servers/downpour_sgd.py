"""Downpour SGD: replicas of a model, each over several machines, that push to and fetch from sharded servers unasked."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from costmodel.formulas.systems import distbelief as formulas
from costmodel.studies.parameter_servers import staleness as stale
from costmodel.studies.parameter_servers.servers import Stragglers, parameter_server
from costmodel.studies.parameter_servers.staleness import Staleness
from costmodel.text.checks import listing, positive_int, real
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief

HOUR = 3600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepsCurve:
    """Updates to a given accuracy, against the staleness of their gradients.

    Parameters
    ----------
    staleness : mean updates that a gradient misses, ascending
    updates : to the accuracy at each; between them it is interpolated, beyond the last extrapolated by the last slope

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected

    Examples
    --------
    >>> StepsCurve(staleness=(0.0, 100.0), updates=(1000.0, 2000.0)).at(150.0)
    2500.0
    """

    staleness: Sequence[float]
    updates: Sequence[float]

    __repr__ = brief

    def __post_init__(self) -> None:
        points, updates = listing("staleness", self.staleness), listing("updates", self.updates)
        if not points or len(points) != len(updates):
            raise InvalidValue("updates", updates, "one for each staleness, at least one")
        for point, count in zip(points, updates, strict=True):
            real("staleness", point, 0.0, 1e12)
            real("updates", count, 1e-9, 1e18)
        if list(points) != sorted(set(points)):
            raise InvalidValue("staleness", points, "ascending values")

    def at(self, behind: float) -> float:
        """Updates to the accuracy where gradients miss so many."""
        points, updates = list(self.staleness), list(self.updates)
        if len(points) == 1 or behind <= points[0]:
            return float(updates[0])
        place = next((i for i, point in enumerate(points) if behind <= point), len(points) - 1)
        share = (behind - points[place - 1]) / (points[place] - points[place - 1])
        return float(updates[place - 1] + share * (updates[place] - updates[place - 1]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Downpour:
    """What Downpour takes in the long run."""

    replicas: int  # replicas, machines: copies of the model, and all machines: theirs and the servers
    machines: int
    step_time: float  # in which each replica that is up does one step, on average [s]
    compute_share: float  # share of a replica's time in which it computes
    availability: float  # share of the time in which a replica is up and the servers answer
    updates_per_second: float  # of the shared parameters, by all replicas that are up
    push_bytes: float  # push_bytes, fetch_bytes: of a replica's step, on average [bytes]
    fetch_bytes: float
    server_bytes: float  # that the busiest server receives in a step of every replica [bytes]
    staleness: Staleness  # updates that a gradient misses
    updates: float | None  # to the accuracy asked for; None without a curve
    hours: float | None  # to the accuracy asked for; None without a curve
    bottleneck: str  # bottleneck, why: as of `costmodel.parameter_server`
    why: str

    __repr__ = brief


def downpour(
    nbytes: float,
    *,
    compute_time: float,
    replicas: int,
    servers: int,
    bandwidth: float,
    machines_per_replica: int = 1,
    fetch_interval: int = 1,
    push_interval: int = 1,
    latency: float = 0.0,
    stragglers: Stragglers | None = None,
    machine_mtbf: float | None = None,
    restart: float = 600.0,
    curve: StepsCurve | None = None,
    update_factor: float = 1.0,
    steps: int = 2000,
    seed: int = 0,
) -> Downpour:
    r"""Machines, bytes, staleness and hours of Downpour SGD.

    Every replica computes a minibatch, pushes its gradient every so many steps and fetches parameters every so many,
    and waits for no other replica. Each of its machines speaks to the servers with the shards of its own part of the
    model, so a replica's link is that of all its machines. A machine that fails stops its replica alone; a server that
    fails stops all of them, until it is restarted.

    Parameters
    ----------
    nbytes : of the parameters, and of a gradient [bytes]
    compute_time : mean of a replica's step on its minibatch, over all its machines [s]
    replicas : copies of the model
    servers : machines that hold a shard of the parameters each
    bandwidth : of a machine's link, each direction [bytes/s]
    machines_per_replica : over which a copy is split
    fetch_interval, push_interval : steps between fetches :math:`n_{fetch}` and pushes :math:`n_{push}`
    latency : from a machine to a server [s]
    stragglers : distribution of the computing times; all alike if not given
    machine_mtbf : mean time between failures of one machine [s]; None for no failures
    restart : of a machine that failed [s]
    curve : updates to the accuracy wanted, against staleness; no hours without it
    update_factor : updates that are needed over those of the curve: Adagrad's effect, where the curve is of plain SGD
    steps, seed : of the simulation that gives the distribution of staleness

    Returns
    -------
    Downpour

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected

    References
    ----------
    [dean2012]_ section 4.1; times are those of `costmodel.parameter_server`, availability is derived

    Examples
    --------
    >>> run = downpour(168e6, compute_time=1.0, replicas=20, servers=256, bandwidth=125e6, machines_per_replica=2)
    >>> run.machines, round(run.staleness.mean), round(run.updates_per_second, 1)
    (296, 19, 11.9)
    """
    positive_int("machines_per_replica", machines_per_replica, 100_000)
    real("bandwidth", bandwidth, 1.0, 1e18)
    real("restart", restart, 0.0, 1e9)
    real("update_factor", update_factor, 1e-6, 1e6)
    if curve is not None and not isinstance(curve, StepsCurve):
        raise InvalidValue("curve", curve, "a StepsCurve, which StepsCurve(staleness=..., updates=...) gives")
    run = parameter_server(
        nbytes, compute_time=compute_time, workers=replicas, servers=servers, bandwidth=bandwidth * machines_per_replica,
        server_bandwidth=bandwidth, latency=latency, consistency="asynchronous", fetch_interval=fetch_interval,
        push_interval=push_interval, stragglers=stragglers, steps=steps, seed=seed,
    )  # fmt: skip
    up = 1.0
    if machine_mtbf is not None:
        real("machine_mtbf", machine_mtbf, 1.0, 1e12)
        up = float(formulas.availability(float(machines_per_replica), float(servers), machine_mtbf, restart))
    rate = float(formulas.updates_per_second(float(replicas), up, run.step_time, float(push_interval)))
    missed = stale.measured(run.staleness)
    updates = None if curve is None else update_factor * curve.at(run.staleness_mean)
    return Downpour(
        replicas=replicas, machines=servers + replicas * machines_per_replica, step_time=run.step_time,
        compute_share=run.compute_share, availability=up, updates_per_second=rate, push_bytes=run.push_bytes,
        fetch_bytes=run.pull_bytes, server_bytes=run.server_bytes, staleness=missed, updates=updates,
        hours=None if updates is None else updates / rate / HOUR, bottleneck=run.bottleneck, why=run.why,
    )  # fmt: skip
