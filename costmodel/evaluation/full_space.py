"""What a search of the full space tries of the dimensions that were left open: all that the framework and the device have."""

from __future__ import annotations

from typing import Any

from costmodel.description.fields import table
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.evaluation.recomputed_modules import modules_of_model
from costmodel.evaluation.search_space import Tried
from costmodel.formulas.pipeline.schedules import SCHEDULES
from costmodel.formulas.settings import BLOCKWISE

SPACES = ("default", "full")


def full_space(question: Question, given: Tried) -> Tried:
    """Values of every dimension: those given, and of the others all there are.

    Schedules; recomputation of no, every fourth, every second or every layer, of the attention core and of ever more modules;
    shard groups of a node, of eight nodes and of all ranks; sequence parallelism on and off; every order of ranks with tensor
    ranks innermost; an optimizer on the device or in host memory; activations on the device, half and half or in host memory.
    How tokens come to their experts every search tries.
    What changes the numbers that a run computes stays as asked: the dtype, and schedules that update with late gradients.

    Parameters
    ----------
    question : model, cluster and framework
    given : values to try by dimension; None where it was left open

    Examples
    --------
    >>> from costmodel import load_cluster, load_framework, load_model
    >>> question = Question(load_model("llama3-8b"), load_cluster("dgx-a100"), load_framework("megatron-core"))
    >>> full_space(question, {"dtype": None, "recompute": ["none"], "optimizer_offload": None})
    {'dtype': None, 'recompute': ['none'], 'optimizer_offload': [0.0, 1.0]}
    """
    framework, cluster = question.framework, question.cluster
    kinds: list[str | int] = ["none", "full", 2, 4]
    if framework.attention not in BLOCKWISE:
        kinds.insert(1, "selective")
    modules = modules_of_model(question.model, question.framework)
    kinds += ["+".join(modules[:many]) for many in range(1, len(modules) + 1)]
    rows, idle = table(Plan), {"", *(one.field for one in framework.lacking)}
    ways = {name: list(owned) for name, owned in framework.offered.items() if rows[name].idle not in idle}
    every: dict[str, list[Any]] = {row.name: list(row.every) for row in rows.values() if row.every} | ways | {
        "schedule": [name for name in framework.schedules if SCHEDULES[name].flushes], "recompute": kinds,
        "shard_group": [0, cluster.gpus_per_node, 8 * cluster.gpus_per_node],
    }  # fmt: skip
    return {name: values if values is not None else every.get(name) or None for name, values in given.items()}
