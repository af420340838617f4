"""Peers that come and go, session by session: what of their time online counts."""

from __future__ import annotations

import numpy as np

from costmodel.compilation.jit import kernel


@kernel
def counted(step_time, session, joining, sessions, seed):
    """Share of the time online of so many sessions, one after another, that ends in an averaging.

    Parameters
    ----------
    step_time : between two averagings, which all fall on its multiples [s]
    session : mean length [s]
    joining : from the start of a session until gradients are accumulated [s]
    sessions : how many
    seed : of the draws

    Returns
    -------
    float
        share
    """
    np.random.seed(seed)
    online, kept, now = 0.0, 0.0, 0.0
    for _ in range(sessions):
        now += np.random.exponential(session)  # until the next peer comes
        length = np.random.exponential(session)
        begun, left = now + joining, now + length
        last = np.floor(left / step_time) * step_time
        if last > begun:
            kept += last - begun
        online += length
        now = left
    return kept / online


@kernel
def averaging(time, peers, session, rounds, seed):
    """Mean time of so many averagings that begin again when one of the peers leaves [s].

    Parameters
    ----------
    time : of one that nobody leaves [s]
    peers : of the group
    session : mean length of each peer's stay [s]
    rounds : how many
    seed : of the draws

    Returns
    -------
    float
        mean time
    """
    np.random.seed(seed)
    leaves = np.empty(peers)
    for peer in range(peers):
        leaves[peer] = np.random.exponential(session)
    now, spent = 0.0, 0.0
    for _ in range(rounds):
        begun = now
        while True:
            first = np.argmin(leaves)
            if leaves[first] >= now + time:
                now += time
                break
            now = leaves[first]
            leaves[first] = now + np.random.exponential(session)
        spent += now - begun
    return spent / rounds
