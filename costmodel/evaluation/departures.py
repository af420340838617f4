"""What an answer is an answer to: every departure of a question from the defaults, in words."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from costmodel.catalogue import clusters, loader
from costmodel.catalogue.changes import NumberDifference, differences
from costmodel.catalogue.machines import cloud_instance, machine
from costmodel.catalogue.releases import base_name
from costmodel.catalogue.software import framework_names, framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.dimensions import DIMENSIONS
from costmodel.description.judgement import CHOSEN, JUDGED
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.text.errors import CostModelError

OF_EVERY_PLAN = (
    "global_batch", "seq_len", *(dimension.field for dimension in DIMENSIONS), "micro_batch", "zero_stage", "recompute",
    "shard_group", "rank_order",
)  # fmt: skip
"""Fields that are said of every plan, whatever they are."""


def departures(question: Question, plans: Sequence[Plan], fit_probability: float = CHOSEN) -> tuple[str, ...]:
    """What of a question isn't as it would be unasked: choices that all its plans share, and changed descriptions.

    Parameters
    ----------
    question : model, cluster and framework
    plans : that answer it, or one that was asked about
    fit_probability : from which a plan is judged to fit

    Returns
    -------
    tuple of str
        such as ``"dtype fp8"`` and ``"rail.bandwidth 50 -> 100 GB/s per GPU"``; what plans differ in is left to `varying`

    Examples
    --------
    >>> from costmodel import Plan, load_cluster, load_framework, load_model
    >>> from costmodel.catalogue.changes import replace
    >>> faster = replace(load_cluster("dgx-h100", gpus=8), {"rail.bandwidth": "2x"})
    >>> question = Question(load_model("llama3-8b"), faster, load_framework("megatron-core", "hopper"))
    >>> departures(question, [Plan(global_batch=64, seq_len=2048, data_parallel=8, dtype="fp8")])
    ('dtype fp8', 'rail.bandwidth 46 -> 92 GB/s per GPU')
    """
    chosen = _choices(question, plans)
    said = [f"{name} {_word(values[0])}" for name, values in chosen.items() if len(values) == 1]
    if fit_probability not in (JUDGED, CHOSEN):
        said.append(f"fit_probability {fit_probability:g}")
    return (*said, *_of_descriptions(question))


def varying(question: Question, plans: Sequence[Plan]) -> tuple[str, ...]:
    """Fields of `Plan` in which plans differ, and which a table of them has no other column for."""
    return tuple(name for name, values in _choices(question, plans).items() if len(values) > 1)


def _choices(question: Question, plans: Sequence[Plan]) -> dict[str, list[object]]:
    """The values of each field that a plan has otherwise than unasked, or in which plans differ."""
    given = [question.resolved(plan) for plan in plans]
    usual = [question.resolved(Plan(**{name: getattr(plan, name) for name in OF_EVERY_PLAN})) for plan in given]
    schedules = question.framework.default_schedules
    found: dict[str, list[object]] = {}
    for field in dataclasses.fields(Plan):
        if field.name in OF_EVERY_PLAN:
            continue
        values = [getattr(plan, field.name) for plan in given]
        unasked = [getattr(plan, field.name) for plan in usual]
        piped = [field.name == "schedule" and plan.pipeline_parallel > 1 for plan in given]
        alike = [value is None or (value in schedules if chosen else value == other)  # None: another field says it
                 for value, other, chosen in zip(values, unasked, piped, strict=True)]  # fmt: skip
        if not all(alike):
            found[field.name] = list(dict.fromkeys(values))
    return found


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
    elif base_name(framework.name) in framework_names():
        yield from _named("framework.", differences(framework_on(cluster, framework.name), framework))


def _named(owner: str, found: Sequence[NumberDifference]) -> Iterator[str]:
    return (str(one._replace(path=f"{owner}{one.path}")) for one in found)


def _usual(cluster: Cluster) -> Cluster | None:
    """The catalogue's cluster of that name and size, or as it links such devices; None of a description of one's own."""
    gpus = cluster.gpus or 1
    try:
        if cluster.name in loader.names("cluster"):
            return clusters.load_cluster(cluster.name, gpus=cluster.gpus)
        return cloud_instance(cluster.name, gpus) or _linked(cluster, gpus)
    except CostModelError:  # so many of them are linked by no description of the catalogue
        return None


def _linked(cluster: Cluster, gpus: int) -> Cluster | None:
    """As so many GPUs of the kind are linked: in the nodes that it comes in, or spread over as many as the cluster has."""
    device = cluster.device.name
    if device not in loader.names("device") or cluster.name.partition(" in nodes ")[0] != device:
        return None
    made = []
    for nodes in (None, max(gpus // cluster.gpus_per_node, 1)):
        with contextlib.suppress(CostModelError):  # GPUs that don't fill their nodes are spread evenly over no number of them
            made.append(machine(device, gpus, nodes))
    likest = min(made, key=lambda one: (abs(len(one.levels) - len(cluster.levels)), len(differences(one, cluster))), default=None)
    if likest is None or len(likest.levels) != len(cluster.levels) or len(cluster.levels) == 1:
        return likest
    # a network is as wide as whoever made the cluster expected it to grow
    outer = dataclasses.replace(likest.levels[-1], size=cluster.levels[-1].size)
    return dataclasses.replace(likest, levels=(*likest.levels[:-1], outer))


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "-".join(map(str, value)) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)
