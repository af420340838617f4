"""Collaborations whose peers come and go: a DeDLOC step with sessions of a mean length."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from costmodel.formulas.systems import churn as formulas
from costmodel.studies.collaboration.peers import Peer
from costmodel.studies.collaboration.study import Collaboration, collaborate
from costmodel.text.checks import positive_int, real
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief

ROUNDS = 100
CLOSE = 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChurningCollaboration:
    """How peers that come and go train together."""

    steady: Collaboration  # the same peers if all of them stayed
    step_time: float  # from one update of the parameters to the next [s]
    compute_time: float  # in which the target batch is accumulated, work of peers that left not counted [s]
    averaging_time: float  # of gradients, begun again where a peer leaves [s]
    counted_share: float  # share of the peers' time online whose gradients count

    __repr__ = brief

    @property
    def throughput(self) -> float:
        """Samples a second."""
        return self.steady.target_batch / self.step_time

    @property
    def efficiency(self) -> float:
        """Throughput over that of the same peers if all stayed."""
        return self.steady.step_time / self.step_time


def collaborate_with_churn(
    peers: Sequence[Peer],
    parameter_bytes: float,
    target_batch: float,
    *,
    session: float,
    joining: float | None = None,
    group: int | None = None,
    delayed: bool = False,
    **collaboration: object,
) -> ChurningCollaboration:
    """A step of peers of whom as many come as leave.

    Parameters
    ----------
    peers : that are online on average
    parameter_bytes : of all gradients on the wire [bytes]
    target_batch : samples of a step
    session : mean time that a peer stays [s]
    joining : time of a new peer to fetch the parameters [s]; at the peers' mean download if not given
    group : peers that average together, and begin again together; all that compute if not given
    delayed : whether a step's averaging overlaps the computing of the next
    collaboration : the other arguments of `costmodel.collaborate`

    Returns
    -------
    ChurningCollaboration

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected, also where peers leave so fast that no step ends

    References
    ----------
    [diskin2021]_ for sessions and groups; the times are derived

    Examples
    --------
    >>> peers = [Peer(name=f"peer {i}", samples_per_second=10.0, upload=1e7, download=1e7) for i in range(16)]
    >>> found = collaborate_with_churn(peers, 36e6, 4096, session=4 * 3600.0, delayed=True)
    >>> round(found.counted_share, 4), round(found.efficiency, 4)
    (0.9989, 0.9989)
    """
    together: Callable[..., Collaboration] = collaborate
    steady = together(peers, parameter_bytes, target_batch, delayed=delayed, **collaboration)
    real("session", session, 1e-3, 1e12)
    if joining is None:
        joining = parameter_bytes / max(sum(peer.download for peer in peers) / len(peers), 1.0)
    real("joining", joining, 0.0, 1e9)
    members = len(steady.averaging) if group is None else positive_int("group", group, 100_000)
    if members * steady.averaging_time > 30.0 * session or steady.step_time + joining > 30.0 * session:
        raise InvalidValue("session", session, f"far more than a step of {steady.step_time:.3g} s, or no step ever ends")
    averaging = float(formulas.averaging_time(steady.averaging_time, float(max(members, 1)), session))
    step_time, share = steady.step_time, 1.0
    for _ in range(ROUNDS):  # a longer step loses more of the work of who leaves, which makes it longer
        share = float(formulas.counted_share(step_time, session, joining))
        computing = steady.compute_time / share
        longer = max(computing, averaging) if delayed else computing + averaging
        if longer > 1e3 * session:
            raise InvalidValue("session", session, "so long that some gradients are averaged before their peers leave")
        if abs(longer - step_time) <= CLOSE * longer:
            break
        step_time = longer
    return ChurningCollaboration(
        steady=steady, step_time=step_time, compute_time=steady.compute_time / share, averaging_time=averaging,
        counted_share=share,
    )  # fmt: skip
