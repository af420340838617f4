"""What an answer is an answer to: every departure of a question from the defaults, in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from costmodel.catalogue import loader
from costmodel.catalogue.changes import Difference, differences
from costmodel.catalogue.machines import machine
from costmodel.catalogue.software import framework_names, framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.dimensions import DIMENSIONS
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.errors import CostModelError
from costmodel.evaluation.estimation import FIT_PROBABILITY, Estimate

OF_EVERY_PLAN = (
    "global_batch", "seq_len", *(dimension.field for dimension in DIMENSIONS), "micro_batch", "zero_stage", "recompute",
    "shard_group", "rank_order",
)  # fmt: skip
"""Fields that are said of every plan, whatever they are."""


def departures(estimates: Sequence[Estimate]) -> tuple[str, ...]:
    """What of a question isn't as it would be unasked: choices that all its plans share, and changed descriptions.

    Parameters
    ----------
    estimates : of plans of one question

    Returns
    -------
    tuple of str
        such as ``"dtype fp8"`` and ``"rail.bandwidth 50 -> 100 GB/s per GPU"``; what plans differ in is left to `varying`

    Examples
    --------
    >>> from costmodel import Plan, estimate, load_cluster, load_model
    >>> from costmodel.catalogue.changes import replace
    >>> faster = replace(load_cluster("dgx-h100", gpus=8), {"rail.bandwidth": "2x"})
    >>> plan = Plan(global_batch=64, seq_len=2048, data_parallel=8, dtype="fp8")
    >>> departures([estimate(load_model("llama3-8b"), faster, plan)])
    ('dtype fp8', 'rail.bandwidth 46 -> 92 GB/s per GPU')
    """
    if not estimates:
        return ()
    first = estimates[0]
    chosen = _choices(estimates)
    said = [f"{name} {_word(values[0])}" for name, values in chosen.items() if len(values) == 1]
    if first.required_probability != FIT_PROBABILITY:
        said.append(f"fit_probability {first.required_probability:g}")
    return (*said, *(str(one) for one in _of_descriptions(first.question)))


def varying(estimates: Sequence[Estimate]) -> tuple[str, ...]:
    """Fields of `Plan` in which plans differ, and which a table of them has no other column for.

    Parameters
    ----------
    estimates : of plans of one question
    """
    return tuple(name for name, values in _choices(estimates).items() if len(values) > 1)


def _choices(estimates: Sequence[Estimate]) -> dict[str, list[object]]:
    """The values of each field that a plan has otherwise than unasked, or in which plans differ."""
    found: dict[str, list[object]] = {}
    usual = [_unasked(one) for one in estimates]
    for field in dataclasses.fields(Plan):
        if field.name in OF_EVERY_PLAN:
            continue
        values = [getattr(one.plan, field.name) for one in estimates]
        if field.name == "schedule":
            known = [{plan.schedule, *one.framework.default_schedules} for one, plan in zip(estimates, usual, strict=True)]
            departs = any(value not in names for value, names in zip(values, known, strict=True))
        else:
            departs = any(value != getattr(plan, field.name) for value, plan in zip(values, usual, strict=True))
        if departs:
            found[field.name] = list(dict.fromkeys(values))
    return found


def _unasked(estimate: Estimate) -> Plan:
    """The plan of the same degrees in which nothing else was chosen."""
    plan = Plan(**{name: getattr(estimate.plan, name) for name in OF_EVERY_PLAN})
    return estimate.question.resolved(plan)


def _of_descriptions(question: Question) -> Iterator[str]:
    """Numbers of model, cluster and framework that aren't the catalogue's of the same name."""
    model, cluster, framework = question.model, question.cluster, question.framework
    if model.name in loader.names("model"):
        yield from _named("model.", differences(loader.load_model(model.name), model))
    usual = _usual(cluster)
    if usual is not None:
        yield from _named("", differences(usual, cluster))
    elif cluster.device.name in loader.names("device"):
        yield from _named("device.", differences(loader.load_device(cluster.device.name), cluster.device))
    if framework.time_error is not None:
        yield f"{framework.name} calibrated on own runs"
    elif framework.name in framework_names():
        yield from _named("framework.", differences(framework_on(cluster, framework.name), framework))


def _named(owner: str, found: Sequence[Difference]) -> Iterator[str]:
    return (str(one._replace(path=f"{owner}{one.path}")) for one in found)


def _usual(cluster: Cluster) -> Cluster | None:
    """The catalogue's cluster of that name and size, or as it links such devices; None of a description of one's own."""
    try:
        if cluster.name in loader.names("cluster"):
            return loader.load_cluster(cluster.name, gpus=cluster.gpus)
        if cluster.device.name not in loader.names("device"):
            return None
        gpus = cluster.gpus or 1
        made = machine(cluster.device.name, gpus=gpus, nodes=max(gpus // cluster.gpus_per_node, 1))
    except CostModelError:  # so many of them are linked by no description of the catalogue
        return None
    return made if made.name == cluster.name else None


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "-".join(map(str, value)) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


__all__ = ["departures", "varying"]
