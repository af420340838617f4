"""What a search found as people read it: the ranking, what stands behind it, and what would fit where nothing does."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from costmodel.cli.advice import asked_again, change_as_options
from costmodel.cli.layout import whole_cell
from costmodel.cli.output import (
    TerminalTable,
    because,
    gib,
    heading,
    named,
    share,
    shown,
    table,
    time_and_memory,
    without_constants,
)
from costmodel.cli.runs import run_columns
from costmodel.description.dimensions import DIMENSIONS
from costmodel.description.labels import TIED, degrees, label, ordered, rejections
from costmodel.description.plan import Plan
from costmodel.evaluation.departures import varying
from costmodel.evaluation.estimation import Estimate, lack, memory_limit, while_loading
from costmodel.text.units import counted, format_seconds

if TYPE_CHECKING:
    from costmodel.evaluation.offers import Offer
    from costmodel.evaluation.search_result import SearchResult
    from costmodel.evaluation.switches import Faster
    from costmodel.training.duration import TrainingRun

ALWAYS = ("micro_batch", "zero_stage", "recompute")
"""Fields of a plan that are said whatever they are."""
SAID = ("global_batch", "seq_len", *(one.field for one in DIMENSIONS))
"""Fields of a plan that the heading or its degrees say."""
PLACED = ("shard_group", "rank_order")
"""Fields of a plan that place its ranks."""
TITLES = {"micro_batch": "micro-batch", "zero_stage": "ZeRO", "rank_order": "ranks"}
"""Headings of fields of a plan that aren't their names."""


def page(
    result: SearchResult, work: tuple[int, int], seconds: float, tried: Sequence[str], runs: Sequence[TrainingRun],
    offered: Sequence[Offer], uneven: bool,
) -> list[TerminalTable | str]:  # fmt: skip
    """What a search found, as lines and tables.

    Parameters
    ----------
    result : of the search
    work : sequences of a step, and tokens of a sequence
    seconds : that the search took
    tried : fields of a plan that were given several values
    runs : a whole run of each ranked plan, or none
    offered : what would fit, where nothing does
    uneven : also deal the best plan's layers to its stages by weight
    """
    head = heading(result.model, result.cluster, result.framework, work=work, departures=result.departures)
    if not result.ranked:
        why = "no plan is legal" if result.considered and not result.evaluated else result.why_none()
        lines = [*(_limit(result)), f"{why[0].upper()}{why[1:]}", *_miss(result), *_counts(result, seconds)]
        return [head, "\n".join(lines), *offers_table(offered)]
    alike, ranked = _ranked(result, tried, runs)
    lines = [*_best(result), *_standing(result), *_miss(result)]
    if uneven and (found := result.uneven_split()) is not None:
        dealt = "-".join(map(str, found.layers))
        longer = share(found.gain, 1.0)
        lines.append(f"Best plan's layers dealt by weight: {dealt}; equal shares take {longer} longer, bubble aside")
    return ["\n".join([head, *alike, *_limit(result)]), ranked, "\n".join([*lines, *_counts(result, seconds)])]


def _limit(result: SearchResult) -> list[str]:
    known = result.ranked[0] if result.ranked else result.closest_miss
    return [] if known is None else [f"Memory limit: {memory_limit(known)}"]


def _best(result: SearchResult) -> list[str]:
    times, held = time_and_memory(result.best)
    return [f"Best plan's step: {times}", f"Best plan's memory: {held}"]


def _standing(result: SearchResult) -> list[str]:
    """How sure the first plan is."""
    best, standing = result.best, result.standings.plans[0]
    low, high = map(format_seconds, best.time_interval)
    chance, regret = share(standing.probability_fastest, 1.0), share(standing.expected_regret, 1.0)
    lines = [
        f"Best plan's error: with 90 % probability a step takes {low} to {high} ({because(best)})",
        f"It is the fastest with probability {chance}, and {regret} slower than the fastest on average; the lowest of many "
        f"estimates is too low: expect {format_seconds(result.corrected_step_time)}",
    ]
    if len(result.ties()) > 1:
        lines.append(f"~ marks plans that {TIED}")
    fastest = min(result.ranked, key=lambda one: one.step_time)
    if fastest is not best:
        slower = share(best.step_time / fastest.step_time - 1.0, 1.0)
        lines.append(f"The first is the simplest of these; by the estimates it is {slower} slower than the fastest")
    return lines


def _miss(result: SearchResult) -> list[str]:
    """The plan that would be faster, if it fitted."""
    miss = result.closest_miss
    if miss is None:
        return []
    over = f"{gib(result.excess_bytes)} GiB over the limit{while_loading(miss)}" if result.excess_bytes > 0.0 else lack(miss)
    return [
        f"{'Fastest' if result.ranked else 'Leanest'} plan that doesn't fit: {format_seconds(miss.step_time)}, "
        f"{over} ({label(miss.plan)})"
    ]


def _counts(result: SearchResult, seconds: float) -> list[str]:
    rejected = [f"Rejected: {rejections(result.rejected)}"] if any(result.rejected.values()) else []
    return [
        *rejected,
        f"{counted(result.considered, 'combination')} tried in {format_seconds(seconds)}: {result.evaluated:,} legal, "
        f"{result.fitting:,} of them {'fits' if result.fitting == 1 else 'fit'}",
    ]


def played_out(result: SearchResult) -> str:
    """How many of the plans that the simulator played out stay within their interval, and what the others do."""
    played = result.replays
    if not played:
        return ""
    from costmodel.evaluation.search_result import NOT_PLAYED

    inside, beyond = sum(not replay.left for replay in played), sum(replay.left == NOT_PLAYED for replay in played)
    if inside == len(played):
        said = "the plan stays within its interval" if inside == 1 else f"all {inside} plans stay within their intervals"
    else:
        said = f"{inside} of {counted(len(played), 'plan')} {'stays' if inside == 1 else 'stay'} within the interval"
    lines = [f"Played out by the simulator: {said}"]
    if beyond:
        lines.append(f"{counted(beyond, 'plan')} {'is' if beyond == 1 else 'are'} {NOT_PLAYED}")
    left = {rank: replay.left for rank, replay in enumerate(played, 1) if replay.left not in ("", NOT_PLAYED)}
    return "\n".join([*lines, *(f"Plan {rank}: {words}" for rank, words in left.items())])


def _ranked(result: SearchResult, tried: Sequence[str], runs: Sequence[TrainingRun]) -> tuple[list[str], TerminalTable]:
    """The ranking, and in a line what its plans have in common."""
    plans = [found.plan for found in result.ranked]
    choices = {*ALWAYS, *tried, *varying(result.question, plans)} - {name.partition(" ")[0] for name in result.departures}
    named_settings = {title(name): cells for name, cells in _settings(plans, choices)}
    settings, alike = without_constants({**named_settings, "": result.alternatives})
    taken, amounts = run_columns(runs) if runs else ([], [[] for _ in plans])
    digits = len(str(len(plans)))
    rows = []
    for rank, (found, standing) in enumerate(zip(result.ranked, result.standings.plans, strict=True), 1):
        rows.append([
            f"{rank:>{digits}} {'~' if standing.tied and rank > 1 else ' '}", whole_cell(degrees(found.plan)),
            format_seconds(found.step_time), f"{found.tokens_per_second / found.plan.gpus:,.0f}", f"{100 * found.mfu:.1f} %",
            share(standing.probability_fastest, 1.0), f"{gib(found.memory.total)} GiB", *amounts[rank - 1],
            *(cells[rank - 1] for cells in settings.values()),
        ])  # fmt: skip
    columns = ["rank", "plan", "step", "tokens/s/GPU", "MFU", "P(fastest)", "memory", *taken, *settings]
    notes = {len(columns) - 1} if "" in settings else set()
    return [alike] if alike else [], table(columns, rows, words={0, 1, *notes}, titles=2)


def title(field: str) -> str:
    """The heading of a field of a plan."""
    return TITLES.get(field, field.replace("_", " "))


def _settings(plans: Sequence[Plan], choices: Collection[str]) -> list[tuple[str, list[str]]]:
    """Fields of some plans besides their degrees, in words; of those that place ranks where one isn't as it is by default."""
    found = []
    for field in dataclasses.fields(Plan):
        name = field.name
        values = [getattr(plan, name) for plan in plans]
        placed = name in PLACED and any(value != field.default for value in values)
        if name not in SAID and (name in choices or placed):
            cells = [ordered(plan) for plan in plans] if name == "rank_order" else [shown(value) for value in values]
            found.append((name, cells))
    return found


def offers_table(offered: Sequence[Offer]) -> list[TerminalTable | str]:
    """Changes after which a plan fits, the cheapest first.

    Parameters
    ----------
    offered : where nothing fits
    """
    if not offered:
        return ["No change that was tried makes a plan fit: adapters, leaner optimizers, offload, shorter sequences, more GPUs"]

    def row(best: Estimate, change: str) -> list[str]:
        return [
            change_as_options(asked_again(change, best.framework.name)), f"{best.plan.gpus:,}", format_seconds(best.step_time),
            f"{best.tokens_per_second / best.plan.gpus:,.0f}", f"{gib(float(best.memory.total))} GiB", named(best.plan),
        ]  # fmt: skip

    columns = ["would fit with", "GPUs", "step", "tokens/s/GPU", "memory", "its best plan"]
    return [table(columns, [row(offer.best, offer.change) for offer in offered], words=(0, 5))]


def faster(found: Sequence[Faster]) -> TerminalTable | str:
    """What the framework has, the best plan doesn't use and would save time; empty where there is nothing.

    Parameters
    ----------
    found : of `costmodel.evaluation.switches.faster_with`
    """
    if not found:
        return ""
    rows = [
        [
            change_as_options(one.words), format_seconds(one.best.step_time), share(one.gain, 1.0),
            f"{gib(float(one.best.memory.total))} GiB", named(one.best.plan),
        ]
        for one in found
    ]  # fmt: skip
    return table(["would be faster with", "step", "saves", "memory", "its best plan"], rows, words=(0, 4))
