"""What each operation of a step costs: formula of its time, of the bytes that a rank sends, and of the load on links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from costmodel.formulas.network import collectives, communication, traffic

Formula: TypeAlias = Callable[..., Any]
_RING = traffic.ring_links
PRICES: dict[str, tuple[Formula, Formula, Formula, bool]] = {
    "all-reduce": (collectives.all_reduce, traffic.all_reduce_sent, _RING, True),
    "all-gather": (collectives.all_gather, traffic.all_gather_sent, _RING, True),
    "reduce-scatter": (collectives.all_gather, traffic.all_gather_sent, _RING, True),
    "reduce": (traffic.reduce, traffic.all_gather_sent, _RING, True),
    "all-to-all": (collectives.all_to_all, traffic.all_gather_sent, traffic.all_to_all_links, False),
    "send": (collectives.send, lambda nbytes, ranks: nbytes, traffic.send_links, False),
}
"""Of each operation: its time, what a rank sends, the links' load, and whether that load is one of what is sent."""


def price_of(collective: str, over: str) -> Formula:
    """Formula of the time of an operation; among the ranks that share one copy of sharded states, that of shards.

    Parameters
    ----------
    collective : all-to-all of deduplicated tokens apart, which asks for the experts
    over : ``"all"``, ``"shard"``, ``"copies"``, or empty
    """
    sharded = over == "shard" and collective in ("all-gather", "reduce-scatter")
    return communication.shard_exchange if sharded else PRICES[collective][0]
