"""What a record leaves unstated, integrated over: by how much each thing that nobody said widens what is estimated."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from costmodel.arithmetic.named_tuples import Row, changed
from costmodel.catalogue import releases
from costmodel.catalogue.communication import network_kind
from costmodel.catalogue.effects import parts_of
from costmodel.catalogue.software import framework_names, load_framework
from costmodel.description.cluster import Cluster
from costmodel.description.run import Run
from costmodel.evaluation.counted_memory import Count, counted
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.first_contacts import NINETY
from costmodel.evaluation.many_questions import estimates_of
from costmodel.text.errors import CostModelError

VALUES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""Values that runs have of what they leave unstated, and how likely each is."""
RELEASE = "release"
"""What a record leaves unstated that doesn't date its software."""
LEVELS = {"inside": 0, "between": -1}
"""Levels of a cluster whose bandwidth isn't stated."""


class Doubt(NamedTuple):
    """What a thing that nobody said leaves open of a run."""

    time: float  # time, memory: standard deviations of their logarithms, about what is estimated by what is assumed
    memory: float


class _Variant(NamedTuple):
    place: int
    key: str
    weight: float
    run: Run


def doubts_of(runs: Sequence[Run], estimates: Sequence[Estimate | CostModelError]) -> list[dict[str, Doubt]]:
    """Of each run what is left open by what its record doesn't state, by key.

    Parameters
    ----------
    runs : as records have them
    estimates : of them, by what is assumed; of a run that has none nothing is found
    """
    known_parts: _Parts = {}
    variants = [
        _Variant(place, key, weight, other)
        for place, (run, known) in enumerate(zip(runs, estimates, strict=True)) if isinstance(known, Estimate)
        for key in _unstated(run) for weight, other in _others(run, key, known_parts)
    ]  # fmt: skip
    answers = estimates_of([one.run for one in variants], with_slopes=False)
    pairs = [(variant, other) for variant, other in zip(variants, answers, strict=True) if isinstance(other, Estimate)]
    both = [(estimates[variant.place], runs[variant.place]) for variant, _ in pairs]
    known = [one for one, _ in both if isinstance(one, Estimate)]
    counts = [Count(run.memory_kind, run.memory_of) for _, run in both]
    others = [Count(variant.run.memory_kind, variant.run.memory_of) for variant, _ in pairs]
    found: list[dict[str, Doubt]] = [{} for _ in runs]
    for (variant, other), base, before, after in zip(
        pairs, known, counted(known, counts), counted([one for _, one in pairs], others), strict=True
    ):
        earlier = found[variant.place].get(variant.key, Doubt(0.0, 0.0))
        time, memory = math.log(other.step_time / base.step_time), math.log(after / before)
        found[variant.place][variant.key] = Doubt(
            math.hypot(earlier.time, math.sqrt(variant.weight) * time),
            math.hypot(earlier.memory, math.sqrt(variant.weight) * memory),
        )
    return found


def _unstated(run: Run) -> Sequence[str]:
    undated = run.source and releases.month_of(run.release) is None
    return [*run.unstated, RELEASE] if undated and RELEASE not in run.unstated else run.unstated


_Parts = dict[tuple[int, str, str], tuple[object, object]]
"""Clusters, frameworks and plans with a value changed, by what they were and the value, beside the former; runs share them."""


def _others(run: Run, key: str, parts: _Parts) -> Iterator[tuple[float, Run]]:
    """The run with other values of a key, and how likely each is."""
    for what, values in VALUES.get(key, {}).items():
        for value in values:
            fields = {name: number for name, number in value.items() if name != "weight"}
            if key == RELEASE and not (fields := _of_today(run)):
                continue  # it does today as it did then
            try:
                other = _with(run, what, fields, parts)
            except CostModelError:
                continue  # no plan has it
            yield value["weight"], other


def _of_today(run: Run) -> Row:
    """Fields that the software of a run that dates nothing has otherwise today, but for what its record says."""
    place = run.cluster.device.architecture, network_kind(run.cluster.levels[-1].name)
    name = parts_of(run.framework.owner)[0]
    if name not in framework_names():
        return {}
    then, today = (load_framework(one, *place) for one in (releases.dated(name, releases.undated(place[0])), name))
    fields = [field.name for field in dataclasses.fields(today) if field.name not in ("name", "release")]
    return {one: getattr(today, one) for one in fields
            if getattr(today, one) != getattr(then, one) == getattr(run.framework, one)}  # fmt: skip


def _with(run: Run, what: str, fields: Row, parts: _Parts) -> Run:
    if what == "run":
        return changed(run, fields)
    name = "cluster" if what in LEVELS else what
    part = getattr(run, name)
    mark = id(part), what, repr(fields)
    if mark not in parts:
        made = _scaled(part, LEVELS[what], fields["factor"]) if what in LEVELS else changed(part, fields)
        parts[mark] = part, made
    return changed(run, {name: parts[mark][1]})


def _scaled(cluster: Cluster, place: int, factor: float) -> Cluster:
    """A cluster with a level of another bandwidth."""
    levels = list(cluster.levels)
    if place == LEVELS["between"] and len(levels) == 1:
        return cluster
    levels[place] = dataclasses.replace(levels[place], bandwidth=factor * levels[place].bandwidth)
    return dataclasses.replace(cluster, levels=tuple(levels))


def widened(interval: tuple[float, float], doubts: Sequence[float]) -> tuple[float, float]:
    """A 90 % interval with what is left open beside it.

    Parameters
    ----------
    interval : low and high, more than 0
    doubts : standard deviations of the logarithm

    Examples
    --------
    >>> [round(bound, 3) for bound in widened((0.9, 1.1), [])], [round(bound, 2) for bound in widened((0.9, 1.1), [0.2])]
    ([0.9, 1.1], [0.71, 1.4])
    """
    low, high = map(math.log, interval)
    half = math.hypot(0.5 * (high - low), NINETY * math.hypot(*doubts)) if doubts else 0.5 * (high - low)
    return math.exp(0.5 * (low + high) - half), math.exp(0.5 * (low + high) + half)
