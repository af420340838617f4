"""The plans among which a page searches: those that are legal, as columns of the fields in which they differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.plan_search import SearchResult, search_by_name
from costmodel.text.errors import IllegalPlan

MOST = 4000
"""Plans that a page holds: so many are evaluated in a blink."""
CORNERS = (0.25, 4.0)
"""Factors on bandwidths and on memory at which the fastest plans are held too where there are more than `MOST`."""
SHOWN = 20
"""Plans that are ranked as the question is asked."""


class Candidates(NamedTuple):
    """Plans to search among."""

    found: SearchResult  # the search as asked
    plans: list[Plan]  # legal plans, fits or not, those that the search ranks first

    @property
    def first(self) -> Estimate:
        """The best plan, or where none fits the one that comes nearest."""
        if self.found.ranked:
            return self.found.best
        if self.found.closest_miss is None:
            raise IllegalPlan("none", self.found.why_none())
        return self.found.closest_miss


def candidates(model: Transformer, cluster: Cluster, framework: Framework, **asked: object) -> Candidates:
    """Search, and keep all legal plans, or the fastest at every corner of what may be changed.

    Of plans that differ in the order of their ranks, one is kept beside those that the search ranks: a page holds one order.

    Parameters
    ----------
    model, cluster, framework : what is trained, on what, with which software
    asked : ``global_batch``, ``seq_len`` and dimensions, as `costmodel.search` takes them
    """
    found = search_by_name(model, cluster, framework=framework, top=SHOWN, **asked)
    held = dict.fromkeys(one.plan for one in found.ranked)
    if found.closest_miss is not None:
        held[found.closest_miss.plan] = None

    def fastest(on: Cluster, most: int, fitting: bool) -> dict[Plan, None]:
        given = {"rank_order": framework.rank_orders[:1], **asked}
        every = search_by_name(model, on, framework=framework, top=1, keep_evaluated=True, **given).every
        assert every is not None
        places = every.by_time[every.fits[every.by_time]] if fitting else every.by_time
        return dict.fromkeys(every.plan(int(place)) for place in places[:most])

    if found.evaluated > MOST:
        corners = list(_corners(cluster))
        for corner in corners:
            held |= fastest(corner, MOST // len(corners), fitting=True)
    held |= fastest(_memory(cluster, 1e3), MOST, fitting=False)
    return Candidates(found, list(held)[:MOST])


def _memory(cluster: Cluster, factor: float) -> Cluster:
    memory = min(float(cluster.device.usable_memory or cluster.device.memory) * factor, 1e15)
    return dataclasses.replace(cluster, device=dataclasses.replace(cluster.device, memory=memory, usable_memory=memory))


def _corners(cluster: Cluster) -> Iterable[Cluster]:
    for factor in (1.0, *CORNERS):
        yield _memory(cluster, factor)
    for place, level in enumerate(cluster.levels):
        for factor in CORNERS:
            other = dataclasses.replace(level, bandwidth=level.bandwidth * factor)
            yield dataclasses.replace(cluster, levels=[*cluster.levels[:place], other, *cluster.levels[place + 1 :]])


def columns(plans: list[Plan], asked: Mapping[str, object]) -> dict[str, object]:
    """The fields in which plans differ from what was asked or from each other: values, and for each plan which.

    Parameters
    ----------
    plans : of them
    asked : fields of the plan as asked
    """
    table: dict[str, object] = {}
    for field in dataclasses.fields(Plan):
        if field.name not in asked:  # held as it was asked
            continue
        given = [getattr(plan, field.name) for plan in plans]
        values = list(dict.fromkeys(given))
        place = {value: index for index, value in enumerate(values)}
        if len(values) > 1:
            table[field.name] = {"values": values, "index": [place[value] for value in given]}
        elif values != [asked[field.name]]:
            table[field.name] = {"values": values, "index": None}
    return table
