"""What follows from what is stated: the world, the batch, the schedule, and what can't be true together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.description.dimensions import DIMENSIONS
from costmodel.interop.launchers.launch import EXTRA_FIELDS, PLAN_FIELDS

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading

MODEL_PARALLEL = (*(one.field for one in DIMENSIONS if one.splits_gpus and one.column != "data"), "ulysses_parallel")
"""Degrees whose product holds one copy of a model."""


def settle(reading: LaunchReading) -> None:
    """Fill the fields that are stated, derive what follows, and note what conflicts or does nothing."""
    for field in (*PLAN_FIELDS, *EXTRA_FIELDS):
        if reading.has(field):
            reading.put(field, reading.one(field))
    for field in list(reading.said):
        if field.startswith("model."):
            value = reading.one(field)
            if value is not None:
                reading.model.setdefault(field.removeprefix("model."), value)
    _world(reading)
    _data_parallel(reading)
    _batch(reading)
    if reading.plan.get("sequence_parallel") and reading.known("tensor_parallel", 1) == 1:
        reading.ineffective.append("sequence_parallel")
    if reading.plan.get("zero_stage") and reading.plan.get("data_parallel") == 1 and reading.known("context_parallel", 1) == 1:
        reading.ineffective.append("zero_stage")


def _world(reading: LaunchReading) -> None:
    gpus = reading.one("_gpus")
    nodes, per_node = reading.one("_nodes"), reading.one("_per_node")
    launched = None
    if nodes and per_node:
        launched = nodes * per_node
        reading.derived.append("gpus")
    elif per_node and "_nodes" not in reading.variable_fields and not reading.has("_hostfile"):
        reading.defaults["gpus"] = per_node  # torchrun's default is one node
    if gpus and launched and gpus != launched:
        reading.conflict(f"{reading.said['_gpus'][0].shown} and {nodes} nodes of {per_node} = {launched}")
    reading.gpus = gpus or launched


def _degree(reading: LaunchReading) -> int | None:
    """Ranks that hold one copy of the model, or None where a degree is a variable."""
    product = 1
    for field in MODEL_PARALLEL:
        value = reading.known(field, 1)
        if value is None:
            return None
        product *= value
    return product


def _data_parallel(reading: LaunchReading) -> None:
    ranks = _degree(reading)
    data = reading.plan.get("data_parallel")
    if reading.gpus is None and data and ranks:
        reading.gpus = data * ranks
        reading.derived.append("gpus")
    gpus = reading.gpus if reading.gpus is not None else reading.defaults.get("gpus")
    if gpus is None or ranks is None:
        return
    if gpus % ranks:
        if reading.gpus is None:  # of one node, which was assumed
            reading.defaults.pop("gpus")
        else:
            reading.conflict(f"{gpus} GPUs and {ranks} ranks of tensor x pipeline x context parallelism, which don't divide them")
        return
    if data is None:
        if reading.gpus is None:
            reading.defaults["data_parallel"] = gpus // ranks
        else:
            reading.put("data_parallel", gpus // ranks, derived=True)
    elif data * ranks != gpus:
        reading.conflict(f"data parallel {data} x {ranks} ranks of a copy and {gpus} GPUs")


def _batch(reading: LaunchReading) -> None:
    """Global batch = micro-batch x accumulation x copies: any three give the fourth."""
    total, micro = reading.plan.get("global_batch"), reading.plan.get("micro_batch")
    steps, data = reading.plan.get("gradient_accumulation"), reading.plan.get("data_parallel")
    ranks = _degree(reading)
    if total and micro and data:
        if total % (micro * data):
            reading.conflict(f"global batch {total} with data parallel {data} and micro-batch {micro} is impossible")
        elif steps is None:
            if "gradient_accumulation" not in reading.variable_fields:
                reading.put("gradient_accumulation", total // (micro * data), derived=True)
        elif steps * micro * data != total:
            reading.conflict(f"global batch {total} and micro-batch {micro} x accumulation {steps} x data parallel {data}")
    elif total and micro and steps:
        if total % (micro * steps):
            reading.conflict(f"global batch {total} with micro-batch {micro} and accumulation {steps} is impossible")
        elif ranks and reading.gpus is None and not reading.conflicts:
            reading.put("data_parallel", total // (micro * steps), derived=True)
            reading.gpus = ranks * reading.plan["data_parallel"]
            reading.derived.append("gpus")
    elif micro and data and steps and "data_parallel" not in reading.derived:
        reading.put("global_batch", micro * steps * data, derived=True)
    elif total and steps and total % steps:
        reading.conflict(f"global batch {total} with gradient accumulation {steps} cannot hold")
    elif total and steps and data and not micro:
        reading.put("micro_batch", total // (steps * data) or None, derived=True)
    if not reading.plan.get("global_batch") and not reading.has("global_batch"):
        assumed = [reading.known(field) for field in ("micro_batch", "gradient_accumulation", "data_parallel")]
        if all(assumed):
            reading.defaults["global_batch"] = assumed[0] * assumed[1] * assumed[2]


def schedule_of(reading: LaunchReading, named: str | None = None) -> None:
    """The pipeline's schedule where the framework's default is 1F1B, interleaved with several chunks a rank."""
    stages = reading.known("pipeline_parallel") or reading.one("pipeline_parallel")
    chunks = reading.plan.get("virtual_stages") or reading.one("virtual_stages")
    if named and (stages is None or stages > 1):
        reading.put("schedule", named)
    elif stages and stages > 1:
        reading.put("schedule", "interleaved" if chunks and chunks > 1 else "1f1b", derived=True)
