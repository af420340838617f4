"""A search whose first answers are played out, transaction by transaction."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

from costmodel.catalogue.asking import asked_search
from costmodel.catalogue.keywords import by_other_names
from costmodel.description.dimensions import RANK_ORDER
from costmodel.description.judgement import CHOSEN
from costmodel.evaluation import plan_search
from costmodel.evaluation.search_result import NOT_PLAYED, Replayed, SearchResult
from costmodel.text.checks import flag, positive_int
from costmodel.text.errors import CostModelError

if TYPE_CHECKING:
    from costmodel.catalogue.asking import ModelLike
    from costmodel.catalogue.clusters import ClusterLike, DeviceLike
    from costmodel.description.framework import Framework
    from costmodel.evaluation.estimation import Estimate
    from costmodel.simulation.steady import Budget
    from costmodel.simulation.transactions import Ledger

CHECKED = 10
"""Ranked plans that a search plays out."""
MOST_CHECKED = 400_000
"""Micro-batches on stages that a check plays for all of them together, about three seconds of work."""
_PRICED = operator.attrgetter("stage", "phase", "group", "collective", "ranks", "nbytes", "count", "time", "sent", "links")
"""What of a transaction matters to a simulation."""


def checked(result: SearchResult, most: int = CHECKED) -> SearchResult:
    """A search's result with its first plans played out by the simulator, as far as `MOST_CHECKED` goes.

    Parameters
    ----------
    result : of `search`
    most : plans to play, from the fastest

    Returns
    -------
    SearchResult
        the same, with `SearchResult.replays` filled in

    Raises
    ------
    InvalidValue
        for a bad number
    """
    positive_int("most", most, 1_000_000)
    # a search that checks nothing doesn't load the simulator
    from costmodel.simulation.steady import Budget

    known: dict[object, float] = {}
    budget = Budget(MOST_CHECKED)
    return dataclasses.replace(result, replays=tuple(_replayed(found, known, budget) for found in result.ranked[:most]))


def _replayed(found: Estimate, known: dict[object, float], budget: Budget) -> Replayed:
    """A plan played out, or what another took that does the same."""
    from costmodel.simulation.replay import without_own_runs
    from costmodel.simulation.steady import BudgetSpent, played_end
    from costmodel.simulation.transactions import ledger_of

    try:
        made = ledger_of(without_own_runs(found))
        same = _played_alike(made)
        if same not in known:
            known[same] = played_end(found, made, budget)
    except BudgetSpent:
        return Replayed(None, NOT_PLAYED)
    except CostModelError as refused:
        return Replayed(None, str(refused))
    seconds = math.exp(found.discrepancy) * known[same]
    low, high = found.spread.time(0.0).interval(found.step_time)  # which the error of the constants only widens
    if not low <= seconds <= high:
        low, high = found.time_interval
    left = "" if low <= seconds <= high else f"played out it takes {seconds:.4g} s, outside {low:.4g} to {high:.4g} s"
    return Replayed(seconds, left)


def _played_alike(made: Ledger) -> object:
    """What plans share that do the same at the same prices: all but the order of ranks and what that changes of groups."""
    result = made.estimate
    return dataclasses.replace(result.plan, rank_order=RANK_ORDER), result.step, tuple(map(_PRICED, made.transactions))


@by_other_names()
def search(
    model: ModelLike, cluster: ClusterLike | None = None, *, global_batch: int | None = None, seq_len: int | None = None,
    framework: Framework | str | None = None, fit_probability: float = CHOSEN, top: int = 20, engine: str = "auto",
    check: bool = False, progress: Callable[[int, int], None] | None = None, keep_evaluated: bool = False,
    keep_frontier: bool = False, space: str = "default", most_combinations: int = plan_search.LARGEST_SEARCH,
    device: DeviceLike | None = None, gpus: int | None = None, nodes: int | None = None, network: float | str | None = None,
    **dimensions: object,
) -> SearchResult:  # fmt: skip
    """Evaluate every legal plan and rank those that fit.

    Parameters
    ----------
    model : what is trained, or its name in the catalogue or on the Hugging Face hub, or a ``config.json``
    cluster : on what, or its name, of which one node is taken where no size is said, or GPUs of a kind in a word, ``"64xh100"``
    global_batch : sequences per step; usual ones that all GPUs share if None: 256 and up, of adapters 16 and up
    seq_len : [tokens]; if None 4,096, of adapters 2,048, or as many as the model has learned, if these are fewer
    framework : the software, or its name in the catalogue; if None ``"megatron-core"``, or where adapters alone are tried
        ``"hf-trainer"``, or what `costmodel.description.usual_work.usual_software` gives of the devices
    fit_probability : to fit in memory, from which a plan is ranked
    top : how many ranked plans to return
    engine : ``"auto"``, ``"python"``, ``"numpy"`` or ``"numba"``
    check : play the first `CHECKED` plans out with the simulator, transaction by transaction, and say which of them then
        leave their interval
    progress : called with the combinations just done and those in all, from any thread
    keep_evaluated : keep time and memory of every evaluated plan, not of the ranked ones alone
    keep_frontier : keep the plans that fit and that no other beats in both time and memory
    space : ``"default"``, or ``"full"`` to try of what is left open all that `costmodel.evaluation.full_space` names
    most_combinations : beyond which a search is refused before anything is evaluated
    device, gpus, nodes, network : in place of a cluster, as `costmodel.machine` takes them; sizes go with a cluster's name, too
    dimensions : any field of `Plan`, ``tensor_parallel`` or ``tp``, fixed to a value or tried over a list. Left out:
        degrees try every divisor of the GPUs, virtual stages every even split up to 8, micro-batch the powers of two up to
        16, recompute none, the light modules of a model of experts or with latent attention, and full (and selective where
        attention is not flash), ZeRO every stage the framework has, a copy of what it shards over all ranks or over those
        inside a node, ranks in each order that the framework can place them in, and tokens on each way to their experts
        that it has: copies for each or one for all on a node, while another micro-batch works or not; all else is the
        framework's default.

    Returns
    -------
    SearchResult

    Raises
    ------
    InvalidValue
        for an unknown dimension or a bad value

    Examples
    --------
    >>> search("llama3-8b", "8xh100", global_batch=64, pp=1, cp=1, recompute="none").best.fits
    True
    """
    said = {"global_batch": global_batch, "seq_len": seq_len, "device": device, "gpus": gpus, "nodes": nodes, "network": network}
    asked = asked_search(model, cluster, framework, {**dimensions, **said})
    found = plan_search.search_by_name(
        asked.model, asked.cluster, framework=asked.framework, fit_probability=fit_probability, top=top, engine=engine,
        progress=progress, keep_evaluated=keep_evaluated, keep_frontier=keep_frontier, space=space,
        most_combinations=most_combinations, **asked.work, **asked.dimensions,
    )  # fmt: skip
    return checked(found) if flag("check", check) else found
