r"""DistBelief: traffic of Downpour and Sandblaster, and a model that is split over machines.

Downpour is a parameter server without waiting; its exchanges are those of `costmodel.formulas.systems.server_exchange`.
"""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas.pipeline.staleness import harmonic
from costmodel.formulas.quantities import Number


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
    machines : of one replica :math:`m`

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
    machines : of one replica :math:`m`
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
    machines : of the replica :math:`m`
    crossing : what a machine receives of the others :math:`n` [bytes]
    bandwidth : of a machine's link :math:`B` [bytes/s]
    synchronisation : waiting of machines for each other in a step :math:`t_s` [s]

    Examples
    --------
    >>> partition_time(1.0, 4.0, 1e8, 1e9, 0.05)
    0.39999999999999997
    """
    return compute_time / machines + crossing / bandwidth + ops.where(machines > 1.0, synchronisation, 0.0)
