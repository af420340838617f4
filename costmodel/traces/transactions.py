"""How long the transactions of a trace take on a cluster, and what they leave on its links."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.topology import Group
from costmodel.evaluation.prices import PRICES, price_of
from costmodel.formulas.network.traffic import LinkBytes
from costmodel.text.errors import NotModelled
from costmodel.traces.places import group_of
from costmodel.traces.record import NOWHERE, RECEIVE, SEND, Role

BARRIER, BARRIER_BYTES = "barrier", 4.0
"""A barrier is an all-reduce of one number (pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, ``barrier``)."""
AS = {BARRIER: "all-reduce", "broadcast": "all-gather", "scatter": "send", "gather": "send", RECEIVE: SEND}
"""Operations that are priced as others: a broadcast goes once around a ring as a gather does."""


class PricedTransactions(NamedTuple):
    """Transactions with their price."""

    time: NDArray[np.float64]  # alone on the network [s]
    sent: NDArray[np.float64]  # by a rank [bytes]
    load: NDArray[np.float64]  # on a GPU's link of each level, innermost first [bytes]


class TracedTransaction(NamedTuple):
    """One as it was launched: what, of how many bytes, among whom."""

    op: str
    bytes: float
    group: Group
    sharded: bool  # it gathers or scatters states that ranks share


def described(role: Role, row: int) -> TracedTransaction:
    """A transaction of a role.

    Parameters
    ----------
    row : of its transactions
    """
    moves, texts = role.transactions, role.texts
    op, peer, number = texts[moves.op[row]], int(moves.peer[row]), int(moves.group[row])
    if op in (SEND, RECEIVE):
        group = group_of((role.rank, peer)) if peer != role.rank else Group(ranks=1)
    elif number == NOWHERE:
        group = Group(ranks=1)
    else:
        group = group_of(role.groups[number])
    return TracedTransaction(op, float(moves.bytes[row]), group, bool(texts[moves.parameter[row]]))


def price(move: TracedTransaction, cluster: Cluster, framework: Framework) -> tuple[float, float, LinkBytes]:
    """Time of a transaction [s], what a rank sends [bytes], and the load on a GPU's link of each level [bytes].

    Parameters
    ----------
    move : which
    cluster, framework : on what, with whose constants

    Raises
    ------
    NotModelled
        of an operation that has no price
    """
    op = AS.get(move.op, move.op)
    if op not in PRICES:
        raise NotModelled(f"transaction {move.op!r}: one of {', '.join((*PRICES, *AS))}")
    nbytes = BARRIER_BYTES if move.op == BARRIER else move.bytes
    if move.group.ranks == 1 or nbytes == 0.0:
        return 0.0, 0.0, LinkBytes(0.0, 0.0, 0.0)
    ranks, stride, network = float(move.group.ranks), float(move.group.stride), cluster.numbers()
    time = price_of(op, "shard" if move.sharded else "all")(nbytes, ranks, stride, network, framework.numbers())
    _, sends, links, of_sent = PRICES[op]
    sent = float(sends(nbytes, ranks))
    return float(time), sent, LinkBytes(*map(float, links(sent if of_sent else nbytes, ranks, stride, network)))


def transaction_times(role: Role, cluster: Cluster, framework: Framework) -> PricedTransactions:
    """Price of each transaction of a role."""
    known: dict[TracedTransaction, tuple[float, float, LinkBytes]] = {}
    found = []
    for row in range(len(role.transactions)):
        move = described(role, row)
        if move not in known:
            known[move] = price(move, cluster, framework)
        found.append(known[move])
    levels = len(LinkBytes._fields)
    return PricedTransactions(
        np.array([time for time, _, _ in found]), np.array([sent for _, sent, _ in found]),
        np.array([links for _, _, links in found]).reshape(len(found), levels),
    )  # fmt: skip
