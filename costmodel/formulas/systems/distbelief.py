r"""DistBelief: traffic of Downpour and Sandblaster, and a model that is split over machines.

Downpour is a parameter server without waiting; its exchanges are those of `costmodel.formulas.systems.server_exchange`.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.pipeline.staleness import harmonic
from costmodel.formulas.quantities import Number

ARGUMENTS = {"machines": "of the replica m", "machine_mtbf": "mean time between failures of a machine M [s]"}
"""What arguments mean in all formulas here that say nothing else of them."""


def per_step(nbytes: Number, interval: Number) -> Number:
    r"""Bytes a step of what is sent every so many steps: Downpour's fetches and pushes run beside the computing.

    Parameters
    ----------
    nbytes : of one fetch or push [bytes]
    interval : steps between two :math:`n_{fetch}` or :math:`n_{push}`

    References
    ----------
    [dean2012]_ section 4.1

    Examples
    --------
    >>> per_step(168e6, 4.0)
    42000000.0
    """
    return nbytes / interval


def sandblaster_bytes(nbytes: Number, pushes: Number) -> Number:
    """Bytes that a replica fetches and pushes in one batch: parameters once, gradients after every few portions.

    The coordinator's messages (dot products, scalings) hold no parameters and are not counted.

    Parameters
    ----------
    nbytes : of the parameters [bytes]
    pushes : of a replica in a batch

    References
    ----------
    [dean2012]_ section 4.2
    """
    return nbytes + pushes * nbytes


def sandblaster_batch_time(
    portions: Number, replicas: Number, portion_time: Number, backup: Number,
) -> Number:  # fmt: skip
    r"""Expected time of a batch that idle replicas take portion by portion [s].

    .. math:: T = t \left(\frac{P - W}{W} + H_W\right), \qquad \text{with backup tasks} \quad T = t \frac{P}{W}

    A portion's time is exponential. Until the portions run out all replicas are busy; then the last of :math:`W`
    outstanding portions counts, unless idle replicas repeat them, the first copy to finish being used.

    Parameters
    ----------
    portions : :math:`P`, at least as many as replicas
    replicas : :math:`W`
    portion_time : mean :math:`t` [s]
    backup : 1 if portions that are outstanding at the end are computed by the idle replicas too, else 0

    References
    ----------
    [dean2012]_ section 4.2 for the scheme; the times are derived

    Examples
    --------
    >>> [round(sandblaster_batch_time(8.0, 2.0, 1.0, backup), 12) for backup in (0.0, 1.0)]
    [4.5, 4.0]
    """
    plain = (portions - replicas) / replicas + harmonic(replicas)
    return portion_time * ops.where(backup > 0.0, portions / replicas, plain)


def dense_crossing(states: Number, machines: Number) -> Number:
    r"""States of other machines that each machine receives in a fully connected layer.

    .. math:: n \frac{m - 1}{m}

    Parameters
    ----------
    states : of the layer :math:`n`

    References
    ----------
    [dean2012]_ section 3: a state is sent once to each machine that has an edge from it
    """
    return states * (machines - 1.0) / machines


def local_crossing(side: Number, machines: Number) -> Number:
    r"""States of other machines that each machine receives in a locally connected layer, on average.

    .. math:: 4 l \frac{\sqrt{m} - 1}{m}

    The layer is a square cut into a square grid; fields overlap by one state.

    Parameters
    ----------
    side : states along a side of the layer :math:`l`
    """
    return 4.0 * side * (ops.sqrt(machines) - 1.0) / machines


def partition_time(
    compute_time: Number, machines: Number, crossing: Number, bandwidth: Number, synchronisation: Number,
) -> Number:  # fmt: skip
    r"""Time of a step of one replica that is split over machines [s].

    .. math:: \frac{t}{m} + \frac{n}{B} + [m > 1]\, t_s

    Parameters
    ----------
    compute_time : on one machine :math:`t` [s]
    crossing : what a machine receives of the others :math:`n` [bytes]
    bandwidth : of a machine's link :math:`B` [bytes/s]
    synchronisation : waiting of machines for each other in a step :math:`t_s` [s]

    Examples
    --------
    >>> partition_time(1.0, 4.0, 1e8, 1e9, 0.05)
    0.39999999999999997
    """
    return compute_time / machines + crossing / bandwidth + ops.where(machines > 1.0, synchronisation, 0.0)


def availability(
    machines_per_replica: Number, servers: Number, machine_mtbf: Number, restart: Number,
) -> Number:  # fmt: skip
    r"""Share of the time in which a replica is up and every server answers.

    .. math:: \frac{1}{(1 + m R / M)(1 + S R / M)}

    A replica works while none of its machines is down; a server that is down stops all replicas.

    Parameters
    ----------
    machines_per_replica : :math:`m`
    servers : :math:`S`
    restart : of what failed :math:`R` [s]

    Assumes that nothing fails while it is down.

    Examples
    --------
    >>> round(availability(2.0, 256.0, 3e7, 600.0), 4)
    0.9949
    """
    up = replica_availability(machines_per_replica, machine_mtbf, restart)
    return up * replica_availability(servers, machine_mtbf, restart)


def updates_per_second(
    replicas: Number, available: Number, step_time: Number, push_interval: Number,
) -> Number:  # fmt: skip
    """Updates of the shared parameters a second, by replicas that never wait for each other.

    Parameters
    ----------
    replicas : copies of the model
    available : share of the time in which a replica works
    step_time : of a replica that works [s]
    push_interval : steps between two pushes of a replica

    References
    ----------
    [dean2012]_ section 4.1
    """
    return replicas * available / (step_time * push_interval)


def lbfgs_dot_products(history: Number) -> Number:
    r"""Dot products of one step of L-BFGS, each summed over all shards by the coordinator.

    .. math:: 2 k + 4

    The two loops take one dot product for each pair of the history each, and with the norm of the gradient, the slope
    along the direction and the new pair's two there are four more; a pair's own product is kept from when it was made.

    Parameters
    ----------
    history : pairs that are kept :math:`k`

    Assumes the two-loop recursion, whose products are not merged.
    """
    return 2.0 * history + 4.0


def lbfgs_time(
    nbytes: Number, servers: Number, history: Number, memory_bandwidth: Number, latency: Number,
) -> Number:  # fmt: skip
    r"""Time of the coordinator's part of a step of L-BFGS [s]: vector operations on every shard, and their round trips.

    .. math:: (2 k + 4) \left(2 \alpha + \frac{2 n}{S B}\right) + (2 k + 2) \frac{3 n}{S B}

    Parameters
    ----------
    nbytes : of the parameters :math:`n` [bytes]
    servers : shards :math:`S`
    history : pairs that are kept :math:`k`
    memory_bandwidth : of a server :math:`B` [bytes/s]
    latency : from the coordinator to a server :math:`\alpha` [s]

    Assumes operations one after another: a dot product reads two vectors, a scaled addition reads two and writes one.

    References
    ----------
    [dean2012]_ section 4.2: dot products, scalings and additions of coefficient vectors, done where the shards are
    """
    shard = nbytes / (servers * memory_bandwidth)
    return lbfgs_dot_products(history) * (2.0 * latency + 2.0 * shard) + (2.0 * history + 2.0) * 3.0 * shard


def mean_portion_time(
    portion_time: Number, push_time: Number, push_portions: Number, available: Number,
) -> Number:  # fmt: skip
    r"""Mean time that a replica takes for a portion, its pushes and failures spread over all portions [s].

    .. math:: \frac{t + x / k}{A}

    Parameters
    ----------
    portion_time : computing :math:`t` [s]
    push_time : of one push of the gradient :math:`x` [s]
    push_portions : portions from one push of a replica to its next :math:`k`
    available : share of the time in which a replica is up :math:`A`
    """
    return (portion_time + push_time / push_portions) / available


def replica_availability(machines: Number, machine_mtbf: Number, restart: Number) -> Number:
    r"""Share of the time in which none of a replica's machines is down.

    .. math:: \frac{1}{1 + m R / M}

    Parameters
    ----------
    restart : of what failed :math:`R` [s]

    Assumes that nothing fails while it is down.
    """
    return 1.0 / (1.0 + machines * restart / machine_mtbf)
