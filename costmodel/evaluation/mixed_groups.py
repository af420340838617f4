"""Data parallelism over groups of GPUs that are not alike: other kinds, other sites, each with the share of the batch that fits.

Each group is a cluster of its own, which runs the plan that is best for its share; after its backward pass the sums of all
groups are summed once more, inside each site and then over the slow links between sites. A group may be left out: one that
costs more exchange than it saves work is.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.arithmetic.named_tuples import Row, made
from costmodel.catalogue.asking import ModelLike, model_of
from costmodel.catalogue.software import framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.plan_search import search
from costmodel.formulas.network.algorithms import ring_all_reduce
from costmodel.text.checks import kind, mapping, positive_int
from costmodel.text.errors import IllegalPlan, InvalidValue
from costmodel.text.results import RowTable, brief
from costmodel.text.units import quantity

MOST_GROUPS, MOST_SHARES = 8, 64


@dataclasses.dataclass(frozen=True)
class GroupShare:
    """A group of GPUs with its share of the batch."""

    site: str  # where it is
    cluster: Cluster  # the group
    global_batch: int  # sequences of a step that it works through
    estimate: Estimate  # of the plan that it runs for them

    __repr__ = brief


@dataclasses.dataclass(frozen=True)
class UnlikeGroups(RowTable):
    """A step over groups that are not alike.

    Parameters
    ----------
    groups : that take part, with their shares
    left_out : clusters that would make the step longer, or on which nothing fits
    inside_time, between_time : to sum gradients over the groups of a site, and over sites [s]
    tokens : of a step
    """

    groups: tuple[GroupShare, ...]
    left_out: tuple[Cluster, ...]
    inside_time: float
    between_time: float
    tokens: float

    first_column = "site"
    __repr__ = brief

    @property
    def step_time(self) -> float:
        """The slowest group's step, and the sum over all groups after it [s]."""
        return max(group.estimate.step_time for group in self.groups) + self.inside_time + self.between_time

    @property
    def tokens_per_second(self) -> float:
        """Of all groups together."""
        return self.tokens / self.step_time

    def to_rows(self) -> list[Row]:
        """One dictionary a group, with units in the names."""
        return [
            {"site": group.site, "cluster": group.cluster.name, "gpus": group.cluster.gpus, "sequences": group.global_batch,
             "step_time_s": group.estimate.step_time, **group.estimate.to_dict()}
            for group in self.groups
        ]  # fmt: skip


def unlike_groups(
    model: ModelLike, sites: Mapping[str, Sequence[Cluster]], *, global_batch: int, seq_len: int,
    between: float | str, between_latency: float | str = "1 ms", inside: float | str | None = None,
    inside_latency: float | str = "20 us", framework: Framework | str = "megatron-core", **dimensions: object,
) -> UnlikeGroups:  # fmt: skip
    r"""The fastest data-parallel step over groups of unlike GPUs, at one site or several behind slow links.

    With :math:`b_g` sequences for group :math:`g`, of a best step :math:`T_g(b_g)` on its own GPUs, and gradients of
    :math:`n` bytes,

    .. math:: T = \max_g T_g(b_g) + 2 \frac{g_s - 1}{g_s} \frac{n}{B_{in}} + 2 \frac{S - 1}{S} \frac{n}{B_{out}}

    and latencies, with :math:`g_s` groups of the site that has most and :math:`S` sites, least over the groups that take part
    and over shares that sum to the batch: every split of it into at most `MOST_SHARES` parts is looked at.

    Parameters
    ----------
    model : what is trained
    sites : clusters by the name of the place where they are, each one kind of GPU
    global_batch : sequences of a step, of all groups together
    seq_len : [tokens]
    between : rate of a site's link to the others, one direction [bytes/s], or a text as ``"10 Gbit/s"``
    between_latency : of it [s]
    inside : rate of the link of a group to the others of its site; needed where a site has several
    inside_latency : of it [s]
    framework : the software of all groups, or its name
    dimensions : of the plans of every group, as `costmodel.search` takes them

    Returns
    -------
    UnlikeGroups
        seconds

    Raises
    ------
    InvalidValue
        for a value that is not what it should be
    IllegalPlan
        where no shares of the batch fit

    Assumes that nothing of the sum over groups hides under compute, that a group's GPUs share its link evenly, and that
    groups with other degrees lay out what they exchange at no cost.

    References
    ----------
    [strati2025]_ (Sailor), whose planner also mixes kinds inside a pipeline

    Examples
    --------
    >>> from costmodel import load_cluster, load_model
    >>> made = unlike_groups(
    ...     load_model("llama3-8b"), {"here": [load_cluster("dgx-h100", gpus=8)], "there": [load_cluster("dgx-a100", gpus=8)]},
    ...     global_batch=16, seq_len=4096, between="100 Gbit/s", pipeline_parallel=1, context_parallel=1,
    ... )
    >>> [group.global_batch for group in made.groups][0] > 8, sum(group.global_batch for group in made.groups)
    (True, 16)
    """
    model = model_of(model)
    places = _places(sites)
    positive_int("global_batch", global_batch, 10_000_000)
    if inside is None and len({site for site, _ in places}) < len(places):
        raise InvalidValue("inside", None, "the rate between the clusters of a site, such as 400 Gbit/s: one has several")
    links = {
        "inside": (
            quantity("inside_latency", inside_latency, "latency"),
            1.0 if inside is None else quantity("inside", inside, "bandwidth"),
        ),
        "between": (quantity("between_latency", between_latency, "latency"), quantity("between", between, "bandwidth")),
    }  # fmt: skip
    asked: Row = {"seq_len": seq_len, "framework": framework, "top": 1, **dimensions}
    unit = -(-global_batch // MOST_SHARES)
    while global_batch % unit:
        unit += 1
    nbytes = _gradient_bytes(model, places[0][1], framework, dimensions, seq_len)

    @functools.cache
    def best(cluster: Cluster, share: int) -> Estimate | None:
        found = search(model, cluster, global_batch=share * unit, **asked).ranked
        return found[0] if found else None

    shares = global_batch // unit
    times = np.full((len(places), shares + 1), np.inf)
    for place, share in itertools.product(range(len(places)), range(1, shares + 1)):
        answer = best(places[place][1], share)
        if answer is not None:
            times[place, share] = answer.step_time
    chosen = _least(times, places, nbytes, links)
    if chosen is None:
        raise IllegalPlan("memory", f"no shares of {global_batch} sequences fit {model.name!r} on these {len(places)} groups")
    members, parts = chosen
    groups = []
    for place, share in zip(members, parts, strict=True):
        estimate = best(places[place][1], share)
        assert estimate is not None
        groups.append(GroupShare(places[place][0], places[place][1], share * unit, estimate))
    rest = tuple(cluster for place, (_, cluster) in enumerate(places) if place not in members)
    tokens = sum(one.estimate.plan.tokens for one in groups)
    return UnlikeGroups(tuple(groups), rest, *_exchange(members, places, nbytes, links), tokens)


def _places(sites: Mapping[str, Sequence[Cluster]]) -> list[tuple[str, Cluster]]:
    """Every cluster beside the name of its site, checked."""
    mapping("sites", sites)
    places = [(str(site), cluster) for site, clusters in sites.items() for cluster in clusters]
    if not 1 <= len(places) <= MOST_GROUPS:
        raise InvalidValue("sites", len(places), f"1 to {MOST_GROUPS} clusters in all")
    for _, cluster in places:
        kind("sites", cluster, Cluster, "load_cluster(name)")
    return places


def _gradient_bytes(
    model: Transformer, cluster: Cluster, framework: Framework | str, dimensions: Mapping[str, object], seq_len: int
) -> float:
    """Of a whole model's gradients on the wire."""
    names = ("dtype", "gradient_bytes", "adapter")
    fixed = {name: dimensions[name] for name in names if name in dimensions and not isinstance(dimensions[name], list | tuple)}
    plan = made(Plan, {"global_batch": 1, "seq_len": seq_len, **fixed})
    settings = plan.settings(framework_on(cluster, framework))
    return float(settings.widths.reduce * settings.trainable * model.parameters)


GroupNetwork = Mapping[str, tuple[float, float]]


def _exchange(
    members: Sequence[int], places: Sequence[tuple[str, Cluster]], nbytes: float, links: GroupNetwork
) -> tuple[float, float]:
    """Time to sum gradients over the groups of the fullest site, and over sites [s]."""
    of_site: dict[str, int] = {}
    for place in members:
        of_site[places[place][0]] = of_site.get(places[place][0], 0) + 1
    inside = ring_all_reduce(nbytes, float(max(of_site.values())), *links["inside"])
    between = ring_all_reduce(nbytes, float(len(of_site)), *links["between"])
    return float(inside), float(between)


def _least(
    times: NDArray[np.float64], places: Sequence[tuple[str, Cluster]], nbytes: float, links: GroupNetwork
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The groups and their shares whose step is shortest: over all sets of groups, the least slowest group by dynamic
    programming over the parts that are dealt."""
    every = range(len(times))
    best: tuple[float, tuple[int, ...], tuple[int, ...]] | None = None
    for count in range(1, len(times) + 1):
        for members in itertools.combinations(every, count):
            slowest, parts = _dealt(times[list(members)])
            total = slowest + sum(_exchange(members, places, nbytes, links))
            if np.isfinite(total) and (best is None or total < best[0]):
                best = total, members, parts
    return None if best is None else best[1:]


def _dealt(times: NDArray[np.float64]) -> tuple[float, tuple[int, ...]]:
    """The shares, one at least for each group, that make the slowest group fastest, and its time."""
    groups, shares = times.shape[0], times.shape[1] - 1
    least = times[0].copy()
    least[0] = np.inf
    choices = []
    for group in range(1, groups):
        own = np.arange(shares + 1)[None, :]
        left = np.arange(shares + 1)[:, None] - own
        pairs = np.where((left >= 1) & (own >= 1), np.maximum(least[np.maximum(left, 0)], times[group][own]), np.inf)
        choices.append(pairs.argmin(axis=1))
        least = pairs.min(axis=1)
    parts, left_over = [], shares
    for choice in reversed(choices):
        parts.append(int(choice[left_over]))
        left_over -= parts[-1]
    return float(least[shares]), (left_over, *reversed(parts))
