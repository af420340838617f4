"""What would make a question's plans fit where none does: single changes of the question, each searched anew."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.machines import machine
from costmodel.description.cluster import Cluster
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.search_result import SearchResult
from costmodel.evaluation.single_changes import LEANER, LEANER_TOGETHER, TRAINED_LESS, changes_of_question
from costmodel.text.checks import kind
from costmodel.text.errors import CostModelError

SHORTEST = 256
"""Tokens below which no shorter sequence is offered."""
MOST_TIMES = 4096
"""As many times the GPUs are tried."""


class Offer(NamedTuple):
    """A change after which a plan fits."""

    change: str  # in words
    best: Estimate  # the best plan then
    gpu_time: float  # of a token: seconds of one GPU, by which offers are ordered


def offers(result: SearchResult) -> list[Offer]:
    """The cheapest changes of a question after which a plan fits, the one of the least GPU time a token first.

    Tried are adapters, leaner optimizers, offload (of two kinds where neither is enough), dimensions that the question fixes
    left open, shorter sequences and more GPUs; where none of them is enough, adapters together with each of the others.

    Parameters
    ----------
    result : of a search, in which nothing fitted

    Returns
    -------
    list
        of `Offer`; empty where a plan fits as it is, or nothing helps

    Examples
    --------
    >>> from costmodel import load_cluster, load_model, search
    >>> found = search(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=1), global_batch=8, seq_len=2048)
    >>> found.fitting, "adapter=lora" in [offer.change for offer in offers(found)]
    (0, True)
    """
    kind("result", result, SearchResult, "search(...)")
    if result.ranked or not result.asked:
        return []
    found: list[Offer] = []
    enough: list[Row] = []
    for changes in changes_of_question(result.asked):
        if not any(one.items() <= changes.items() for one in enough) and (offer := _tried(result, changes)):
            found.append(offer)
            enough.append(changes)
    if not found:
        leaner = (*LEANER, *LEANER_TOGETHER)
        pairs = ({**less, **lean} for less in TRAINED_LESS for lean in leaner if not {*less, *lean} & set(result.asked))
        found = [offer for changes in pairs if (offer := _tried(result, changes))]
    shorter = _shorter(result)
    return sorted([*found, *shorter, *_larger(result)], key=lambda offer: offer.gpu_time)


def _tried(result: SearchResult, changes: Row, cluster: Cluster | None = None, words: str = "") -> Offer | None:
    """The offer of some changes, or None where nothing fits with them either, or they can't be made."""
    from costmodel.evaluation.plan_search import search

    # what fits, fits in any order of ranks
    asked: Row = {"rank_order": result.framework.rank_orders[:1], **result.asked, **changes}
    asked = {name: value for name, value in asked.items() if value is not None}
    try:
        found = search(result.model, cluster or result.cluster, framework=result.framework, **{**asked, "top": 1})
    except CostModelError:  # a change that this question can't make is no offer
        return None
    if not found.ranked:
        return None
    best = found.best
    said = words or ", ".join(f"{name}={'any' if value is None else value}" for name, value in changes.items())
    return offered(said, best)


def offered(change: str, best: Estimate) -> Offer:
    """The offer of a change."""
    return Offer(change, best, best.step_time * best.plan.gpus / best.plan.tokens)


def _shorter(result: SearchResult) -> Iterator[Offer]:
    """The longest sequence, halved as often as needed, with which a plan fits.

    What fits with a sequence fits with a shorter one: the shortest is tried first, as it often doesn't fit either.
    """
    length, lengths = int(result.asked["seq_len"]) // 2, []
    while length >= SHORTEST:
        lengths.append(length)
        length //= 2
    if lengths and (shortest := _tried(result, {"seq_len": lengths[-1]})):
        longer = (offer for length in lengths[:-1] if (offer := _tried(result, {"seq_len": length})))
        yield next(longer, shortest)


def _larger(result: SearchResult) -> Iterator[Offer]:
    """The fewest GPUs, doubled as often as needed, on which a plan fits: as many as can share what the leanest plan holds."""
    start, leanest = result.cluster.gpus or 1, result.closest_miss
    shares = 2.0 if leanest is None else max(2.0, leanest.needed_memory / leanest.memory_limit)
    gpus = start * 2 ** math.ceil(math.log2(shares))
    while gpus <= MOST_TIMES * start:
        cluster = _grown(result.cluster, gpus)
        if cluster is None:
            return
        if offer := _tried(result, {}, cluster, f"gpus={gpus}"):
            yield offer
            return
        gpus *= 2


def _grown(cluster: Cluster, gpus: int) -> Cluster | None:
    """More GPUs of the same kind, linked as one line describes them; None where that doesn't tell how."""
    try:
        return cluster.with_gpus(gpus)
    except CostModelError:
        pass
    try:
        return machine(cluster.device, gpus=gpus)
    except CostModelError:
        return None
