"""A question as a person asks it: names where descriptions can stand, what isn't said taken as is usual, choices by the piece.

The functions of the library and the command line take the same, and read it here.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from costmodel.catalogue import loader
from costmodel.catalogue.clusters import ClusterLike, cluster_of
from costmodel.catalogue.hardware_words import called_hardware, said_hardware
from costmodel.catalogue.software import framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.device import Device
from costmodel.description.fields import full_names
from costmodel.description.framework import Framework
from costmodel.description.plan import FOLLOWING, LEADING, MOST, Plan
from costmodel.description.question import Question
from costmodel.description.transformer import Transformer
from costmodel.description.usual_work import adapts, implied_choices, usual_batch, usual_choices, usual_length, usual_software
from costmodel.text.checks import kind, positive_int
from costmodel.text.errors import InvalidValue

ModelLike: TypeAlias = "Transformer | str | os.PathLike[str]"
"""A model, or what names one: an entry of the catalogue, a model of the Hugging Face hub, or a file."""
HARDWARE = ("device", "gpus", "nodes", "network")
"""What says on what, beside a cluster."""
ACCUMULATED = "gradient_accumulation"
"""What says the sequences of a step as micro-batches of each replica."""


class Asked(NamedTuple):
    """A question, each of its parts a description.

    Parameters
    ----------
    model : what is trained
    cluster : on what
    plan : how it is split
    framework : the software, or its name
    """

    model: Transformer
    cluster: Cluster
    plan: Plan
    framework: Framework | str


def given(values: Mapping[str, object]) -> dict[str, object]:
    """The values that were given: all that aren't None."""
    return {name: value for name, value in values.items() if value is not None}


def model_of(model: ModelLike) -> Transformer:
    """A model, or what a name or a file gives.

    Parameters
    ----------
    model : or its name in the catalogue or on the Hugging Face hub, or the path of a ``config.json`` or a TOML file

    Raises
    ------
    UnknownName
        where a name is none of these

    Examples
    --------
    >>> model_of("meta-llama/Llama-3.1-8B-Instruct").name
    'llama3.1-8b'
    """
    if isinstance(model, str | os.PathLike):
        return loader.load_model(model)
    if hasattr(model, "to_json_file"):  # a configuration of transformers
        saved = "the path of its file, which config.to_json_file('config.json', use_diff=False) writes"
        raise InvalidValue("model", type(model).__name__, saved)
    if isinstance(model, Mapping):
        raise InvalidValue("model", model, "the path of the config.json that holds it, which json.dump writes")
    kind("model", model, Transformer, "load_model(name)")
    return model


def ask(model: ModelLike, cluster: ClusterLike, framework: Framework | str) -> Question:
    """The question of a model, a cluster and a framework, each checked.

    Parameters
    ----------
    model : what is trained, or its name
    cluster : on what, or what names it
    framework : the software, or its name in the catalogue

    Raises
    ------
    InvalidValue, UnknownName
        where an argument is not what it should be
    """
    trained, on = model_of(model), cluster_of(cluster)
    return Question(trained, on, framework_on(on, framework))


def as_it_trains(cluster: Cluster, framework: Framework | str, choices: Mapping[str, object]) -> dict[str, Any]:
    """What software does unless it is told not to, of the fields that aren't said: some recompute all layers, and may send to
    the host what they keep.

    Parameters
    ----------
    cluster : on what
    framework : the software, or its name
    choices : fields of a plan that are said, by their names

    Examples
    --------
    >>> from costmodel import load_cluster
    >>> as_it_trains(load_cluster("dgx-h100"), "trl", {}), as_it_trains(load_cluster("dgx-h100"), "fsdp2", {})
    ({'recompute': 'full'}, {})
    """
    taken = framework_on(cluster, framework).trained_with()
    if choices.get("recompute") not in (None, taken.get("recompute")):
        return {}
    return {name: value for name, value in taken.items() if choices.get(name) is None}


def asked(
    model: ModelLike, cluster: ClusterLike | None, plan: Plan | None,
    framework: Framework | str | None, choices: Mapping[str, object],
) -> Asked:  # fmt: skip
    """A question as a function of the library takes it.

    Parameters
    ----------
    model : as `model_of` takes it
    cluster : as `costmodel.catalogue.clusters.cluster_of` takes it; where it is named without a size, as many GPUs as the degrees
        of the plan ask for, one node at least
    plan : how it is split; as the choices say, and as is usual, if None
    framework : the software, or its name; if None megatron-core, or what is usual where that doesn't train, or of adapters that
        the choices say hf-trainer
    choices : fields of `Plan` by either of their names, which replace the plan's; ``device``, ``gpus``, ``nodes`` and
        ``network``; ``gradient_accumulation``, the micro-batches of each replica, in place of ``global_batch``

    Examples
    --------
    >>> found = asked("llama3-8b", "8xh100", None, None, {"tp": 2, "micro_batch": 2})
    >>> found.cluster.gpus, found.plan
    (8, Plan(global_batch=256, seq_len=4096, tensor_parallel=2, micro_batch=2))
    """
    if not choices and isinstance(plan, Plan) and isinstance(model, Transformer) and isinstance(cluster, Cluster):
        return Asked(model, cluster, plan, usual_software(cluster.device.architecture) if framework is None else framework)
    if plan is not None:
        kind("plan", plan, Plan, "Plan(...)")
    micro_batches = choices.get(ACCUMULATED)
    said, fields = _parted({name: value for name, value in choices.items() if name != ACCUMULATED}, (ACCUMULATED,))
    trained = model_of(model)
    on = cluster_of(cluster, **said)  # type: ignore[arg-type]
    usual = usual_software(on.device.architecture)
    if plan is None:
        fields |= implied_choices(fields)
        adapted = adapts(fields.get("adapter"))
        if framework is None:
            taken = usual_choices(fields)
            framework = taken.pop("framework", usual)
            fields |= taken
        if micro_batches is not None and "global_batch" in fields:
            raise InvalidValue(ACCUMULATED, micro_batches, "None beside global_batch: both say the sequences of a step")
        if micro_batches is not None:
            fields["global_batch"] = accumulated(micro_batches, fields, on.gpus or 1)
        elif "global_batch" not in fields:
            fields["global_batch"] = usual_batch(on.gpus or 1, fields)
        fields.setdefault("seq_len", usual_length(trained, adapted))
        fields |= as_it_trains(on, framework, fields)
        plan = Plan(**fields)  # type: ignore[arg-type]
    elif fields:
        plan = dataclasses.replace(plan, **fields)  # type: ignore[arg-type]
    if not size_is_said(cluster, said):
        gpus = max(on.gpus or 1, plan.gpus) if plan.data_parallel is None else plan.gpus
        on = cluster_of(cluster, **{**said, "gpus": gpus})  # type: ignore[arg-type]
    return Asked(trained, on, plan, usual if framework is None else framework)


def hardware_of(cluster: ClusterLike | None, choices: Mapping[str, object]) -> tuple[Cluster, dict[str, object]]:
    """What a question is asked about, and fields of a plan by their whole names, those that were given.

    Parameters
    ----------
    cluster : as `costmodel.catalogue.clusters.cluster_of` takes it
    choices : fields of `Plan` by either of their names; ``device``, ``gpus``, ``nodes`` and ``network``

    Examples
    --------
    >>> on, fields = hardware_of("h100", {"gpus": 8, "tp": 2, "network": None})
    >>> on.gpus, fields
    (8, {'tensor_parallel': 2})
    """
    said, fields = _parted(choices)
    return cluster_of(cluster, **said), fields  # type: ignore[arg-type]


def _parted(choices: Mapping[str, object], beside: tuple[str, ...] = ()) -> tuple[dict[str, object], dict[str, object]]:
    """Of the choices that were given what says hardware, and fields of a plan by their whole names; others may stand beside."""
    rest = given(choices)
    said = {name: rest.pop(name) for name in HARDWARE if name in rest}
    return said, full_names(Plan, rest, (*HARDWARE, *beside, "cluster", "framework"))


class AskedSearch(NamedTuple):
    """A question whose plans are to be sought.

    Parameters
    ----------
    model : what is trained
    cluster : on what
    framework : the software, or its name
    work : ``global_batch`` and ``seq_len``
    dimensions : other fields of `Plan`, by their names: one value or several of each
    """

    model: Transformer
    cluster: Cluster
    framework: Framework | str
    work: dict[str, Any]
    dimensions: dict[str, object]


def asked_search(
    model: ModelLike, cluster: ClusterLike | None, framework: Framework | str | None, dimensions: Mapping[str, object]
) -> AskedSearch:
    """A question as a function takes it that looks for plans.

    Parameters
    ----------
    model : as `model_of` takes it
    cluster : as `costmodel.catalogue.clusters.cluster_of` takes it
    framework : as of `asked`
    dimensions : fields of `Plan` by either of their names, one value or several of each; ``device``, ``gpus``, ``nodes`` and
        ``network``. A batch and a length that aren't said are usual ones

    Examples
    --------
    >>> asked_search("llama3-8b", "8xh100", None, {"tp": [1, 2]})[2:]
    ('megatron-core', {'global_batch': 256, 'seq_len': 4096}, {'tensor_parallel': [1, 2]})
    """
    if dimensions.get(ACCUMULATED) is not None:
        raise InvalidValue(ACCUMULATED, dimensions[ACCUMULATED], "global_batch in its place: a search tries several replicas")
    on, fields = hardware_of(cluster, dimensions)
    trained = model_of(model)
    fields |= implied_choices(fields)
    adapted = adapts(fields.get("adapter"))
    if framework is None:
        framework = usual_choices(fields).get("framework", usual_software(on.device.architecture))
    batch = fields.pop("global_batch", None)
    length = fields.pop("seq_len", None)
    work = {
        "global_batch": usual_batch(on.gpus or 1, fields) if batch is None else batch,
        "seq_len": usual_length(trained, adapted) if length is None else length,
    }
    return AskedSearch(trained, on, framework, work, fields)


def size_is_said(cluster: ClusterLike | None, said: Mapping[str, object]) -> bool:
    """Whether a question says how many GPUs it is about.

    Parameters
    ----------
    cluster : as it was given
    said : ``device``, ``gpus``, ``nodes`` and ``network``, those that were given
    """
    if isinstance(cluster, Cluster) or "gpus" in said or "nodes" in said:
        return True
    given = said.get("device") if cluster is None else cluster
    return isinstance(given, str) and said_hardware(given) is not None


def is_bare_device(cluster: ClusterLike | None, choices: Mapping[str, object]) -> bool:
    """Whether a question is about a kind of GPU, and doesn't say how many.

    Parameters
    ----------
    cluster : as it was given
    choices : what was given beside it, ``device``, ``gpus`` and ``nodes`` among it

    Examples
    --------
    >>> is_bare_device("h100", {}), is_bare_device("8xh100", {}), is_bare_device(None, {"device": "h100", "gpus": 8})
    (True, False, False)
    """
    named = choices.get("device") if cluster is None else cluster
    called = called_hardware(named) if isinstance(named, str) else None
    kind_alone = isinstance(named, Device) or (called is not None and called.kind == "device")
    return kind_alone and not size_is_said(cluster, given(choices))


def accumulated(micro_batches: object, fields: Mapping[str, object], gpus: int) -> int:
    """Sequences of a step that accumulates so many micro-batches on every replica.

    Parameters
    ----------
    micro_batches : of a replica
    fields : of a plan, by their names; what isn't among them is one, or what is left of the GPUs
    gpus : of all replicas

    Examples
    --------
    >>> accumulated(4, {"tensor_parallel": 2, "micro_batch": 3}, 8)
    48
    """
    many = positive_int(ACCUMULATED, micro_batches, MOST)
    each = positive_int("micro_batch", fields.get("micro_batch", 1), MOST)
    replicas = fields.get(FOLLOWING)
    if replicas is None:
        replicas = max(1, gpus // math.prod(positive_int(name, fields.get(name, 1), MOST) for name in LEADING))
    return many * each * positive_int(FOLLOWING, replicas, MOST)
