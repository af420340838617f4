r"""Peers that come and go: what of their work counts, and averaging that a departure breaks off.

A peer's session is exponential with mean :math:`L`; it first takes :math:`J` to fetch the parameters, then accumulates
gradients, which count once they are averaged at the end of a step. Steps last :math:`T`; peers come at any time of them.
"""

from __future__ import annotations

from costmodel.formulas.quantities import Number
from costmodel.formulas.systems.reliability import restart_time, segment_interruptions


def counted_share(step_time: Number, session: Number, joining: Number) -> Number:
    r"""Share of a peer's time online whose gradients count.

    .. math:: e^{-J / L}\, \frac{L}{T} \left(1 - e^{-T / L}\right)

    Parameters
    ----------
    step_time : from one averaging to the next :math:`T` [s]
    session : mean time that a peer stays :math:`L` [s]
    joining : time to fetch the parameters :math:`J` [s]

    Assumes exponential sessions, independent of the steps; derived: what is lost is the least of the session and the
    age of the step at the departure, which is uniform.

    Examples
    --------
    sahajBERT's sessions of 4 hours, steps of 2 minutes and a minute to join: hardly anything is lost.

    >>> round(counted_share(120.0, 4 * 3600.0, 60.0), 4)
    0.9917
    """
    left = segment_interruptions(step_time, 0.0, session)
    stayed = left * session / (step_time * (1.0 + left))
    return stayed / (1.0 + segment_interruptions(joining, 0.0, session))


def averaging_time(time: Number, peers: Number, session: Number) -> Number:
    r"""Expected time of an averaging that begins again whenever one of its peers leaves [s].

    .. math:: \frac{L}{n} \left(e^{n t / L} - 1\right)

    Parameters
    ----------
    time : of an averaging that nobody leaves :math:`t` [s]
    peers : in a group :math:`n`
    session : mean time that a peer stays :math:`L` [s]

    Assumes that who leaves is replaced, and that only its group begins again; derived.

    Examples
    --------
    >>> round(averaging_time(20.0, 16.0, 4 * 3600.0), 2)
    20.22
    """
    return restart_time(time, session / peers)


def online(arrivals: Number, session: Number) -> Number:
    r"""Peers online on average: Little's law.

    .. math:: n = \lambda L

    Parameters
    ----------
    arrivals : peers that join a second :math:`\lambda`
    session : mean time that a peer stays :math:`L` [s]

    Examples
    --------
    >>> online(1.0 / 360.0, 4 * 3600.0)
    40.0
    """
    return arrivals * session
