"""A bill of memory opened: what the fullest rank holds at its fullest moment, module by module, in rows that add up to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from costmodel.evaluation.memory_breakdown import MemoryInputs, PeakMemory, StageBill, contents_of, place_of
from costmodel.formulas.quantities import Contents, ModelNumbers, Place, RankParameters
from costmodel.formulas.transformer import activations, adapters, layer, lengths, parameters
from costmodel.formulas.transformer import memory as formula

ALWAYS = "start", "end"
STATES = {"weights": ALWAYS, "gradients": ("backward", "update"), "optimizer": ALWAYS}
"""Parts that there are of every parameter, and the events of a step from and until which they are held."""
KEPT = "forward", "backward"
NO_PARAMETERS = RankParameters(*(0.0,) * len(RankParameters._fields))
WORTH = 1.0
"""Bytes below which a row is left out."""


class HeldTensor(NamedTuple):
    """Tensors that are alike in a bill of memory."""

    part: str  # of the bill, a field of `PeakMemory`
    module: str  # whose they are
    name: str  # what they are
    number: float  # of them
    nbytes: float  # of all of them [bytes]
    begins: str  # begins, ends: events of a step from and until which they are held
    ends: str


def held_tensors(memory: PeakMemory, stage: int | None = None) -> tuple[HeldTensor, ...]:
    """What a rank holds at its fullest moment, in rows that add up to its bill.

    Parameters
    ----------
    memory : `Estimate.memory`
    stage : rank in the pipeline, from 0; the fullest if None

    Returns
    -------
    tuple of `HeldTensor`
        by parts of the bill, in their order; rows of the same part add up to it

    Raises
    ------
    InvalidValue
        where there is no such stage

    Examples
    --------
    >>> from costmodel import Plan, estimate, load_cluster, load_model
    >>> bill = estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), Plan(global_batch=8, seq_len=8192)).memory
    >>> rows = held_tensors(bill)
    >>> abs(sum(row.nbytes for row in rows) / bill.total - 1.0) < 1e-9
    True
    >>> [(row.module, row.number) for row in rows if row.part == "weights"]
    [('attention', 32.0), ('mlp', 32.0), ('norms and biases', 32.0), ('embedding and head', 1.0)]
    """
    bill = memory.bill_of(stage)
    place = place_of(memory.asked, bill.stage)
    held = contents_of(memory.asked, place)
    own = float(memory.asked.software.memory.own)  # what own runs say is dealt to all tensors alike
    counted = {part: float(nbytes) / own for part, nbytes in bill.parts._asdict().items() if part != "overhead"}
    bill = dataclasses.replace(bill, parts=bill.parts._replace(**counted))
    rows = [
        *_states(memory.asked, place, bill), *_activations(memory.asked, place, held, bill), *_moments(bill),
        *_buffers(memory.asked, held, bill), *_overhead(memory.asked, bill),
    ]  # fmt: skip
    scaled = [row if row.part == "overhead" else row._replace(nbytes=own * row.nbytes) for row in rows]
    return tuple(row for row in scaled if abs(row.nbytes) >= WORTH)


def _owned(asked: MemoryInputs, place: Place) -> Iterator[tuple[str, float, RankParameters]]:
    """Modules of a rank, how many of each it has, and the parameters of one."""
    model, _, plan = asked[:3]
    whole = formula.rank_parameters(model, plan, place.first, place.last)
    dense = place.layers - place.experts
    for layers, field, mixed in ((dense, "layer", 0.0), (place.experts, "expert_layer", 1.0)):
        if layers <= 0.0:
            continue
        kind, every = parameters.of_kind(model, mixed), getattr(whole, field)
        mixer = float(parameters.mixer_of_rank(kind, plan.tensor))
        width = model.experts.shared_width if mixed else model.mlp.width * model.mlp.share
        inner = float(parameters.mlp_of_rank(kind, width, plan.tensor)) if width else 0.0
        named = {"attention": mixer, "shared experts" if mixed else "mlp": inner, "norms and biases": every - mixer - inner}
        if model.recurrent.share:
            named = {"attention and states" if name == "attention" else name: size for name, size in named.items()}
        for name, size in named.items():
            yield name, layers, NO_PARAMETERS._replace(**{field: size})
        if mixed:
            yield "routed experts", layers, NO_PARAMETERS._replace(routed=whole.routed)
    yield "embedding and head", 1.0, NO_PARAMETERS._replace(
        edges=whole.edges, edges_routed=whole.edges_routed, embedding=whole.embedding)


def _states(asked: MemoryInputs, place: Place, bill: StageBill) -> Iterator[HeldTensor]:
    """Weights, gradients and optimizer state by module: what a bill has of all parameters, each module's share of it."""
    settings, plan = asked.settings, asked.plan
    modules = list(_owned(asked, place))
    each = [
        formula.state_bytes_of(
            owned, settings, plan, 0.0 if owned.edges else count, count if owned.expert_layer or owned.routed else 0.0
        )
        for _, count, owned in modules
    ]
    for number, (part, (begins, ends)) in enumerate(STATES.items()):
        known = sum(float(one[number]) for one in each)
        scale = float(getattr(bill.parts, part)) / known if known else 0.0
        for (name, count, _), one in zip(modules, each, strict=True):
            yield HeldTensor(part, name, part, count, scale * float(one[number]), begins, ends)


def _of_a_layer(model: ModelNumbers, asked: MemoryInputs) -> dict[tuple[str, str], float]:
    """What a layer keeps of one micro-batch, by module and name [bytes]."""
    _, settings, plan, software = asked[:4]
    again, over = plan.recompute_layers, software.memory.activation_overhead
    tokens = lengths.local_tokens(settings, plan) / plan.tensor
    attention = tokens * activations.attention_activations(model, settings, plan)
    inner = tokens * activations.mlp_activations(model, settings)
    saved = activations.layer_activations(model, settings, plan)
    made = activations.module_activations(model, settings, plan)
    unpacked = adapters.unpacked_weights(settings, layer.layer_parameters(model, plan))
    whole = {("layer", "what its recomputed modules leave"): saved - made} if made else {
        ("norms", "inputs and outputs"): saved - attention - inner,
        ("attention", "queries, keys, values, output"): attention, ("mlp", "inner tensors"): inner,
    }  # fmt: skip
    return {
        ("layer", "input, of one that is recomputed"): again * activations.checkpoint(model, settings, plan),
        **{key: (1.0 - again) * over * value for key, value in whole.items()},
        ("layer", "unpacked weights"): (1.0 - again) * unpacked,
    }


def _activations(asked: MemoryInputs, place: Place, held: Contents, bill: StageBill) -> Iterator[HeldTensor]:
    """What layers keep of the micro-batches in flight; what lies in graphs or outlives its pass in one row."""
    in_all, rows = float(bill.parts.activations), []
    if bill.phase != "update":
        turns = 1.0 + asked.settings.framework.double_registers * (asked.micro_batches > 1)
        on_device = turns * (1.0 - asked.settings.offload.activations) * float(held.in_flight)
        kinds = ((place.layers - place.experts, 0.0), (place.experts, 1.0))
        rows = [
            HeldTensor("activations", *key, float(layers * held.in_flight), on_device * layers * float(size), *KEPT)
            for layers, mixed in kinds if layers > 0.0
            for key, size in _of_a_layer(parameters.of_kind(asked.model, mixed), asked).items()
        ]  # fmt: skip
    rest = in_all - sum(row.nbytes for row in rows)
    if rest >= -WORTH:
        yield from rows
    else:
        rest = in_all
    yield HeldTensor("activations", "step", "in graphs, masks, and what outlives its pass", 1.0, rest, *KEPT)


def _moments(bill: StageBill) -> Iterator[HeldTensor]:
    """What is there at the fullest moment alone."""
    updating = bill.phase == "update"
    name = "copies of the update" if updating else "of the layer at work"
    moment = ("update", "update") if updating else ("backward", "backward")
    yield HeldTensor("temporaries", "step", name, 1.0, float(bill.parts.temporaries), *moment)
    yield HeldTensor("logits", "head", "logits, and what the loss makes", 1.0, float(bill.parts.logits), "loss", "backward")


def _buffers(asked: MemoryInputs, held: Contents, bill: StageBill) -> Iterator[HeldTensor]:
    """What frameworks and libraries lay aside inside the allocator."""
    gathered = 0.0 if bill.phase == "update" else float(held.gathered)
    named = {
        ("library", "workspaces"): (float(asked.software.memory.workspace), ALWAYS),
        ("gradients", "buckets"): (float(held.buckets), ALWAYS),
        ("weights", "gathered"): (gathered, KEPT),
    }  # fmt: skip
    for (module, name), (nbytes, (begins, ends)) in named.items():
        yield HeldTensor("buffers", module, name, 1.0, nbytes, begins, ends)
    rest = float(bill.parts.buffers) - sum(nbytes for nbytes, _ in named.values())
    yield HeldTensor("buffers", "gradients", "what compression keeps", 1.0, rest, *ALWAYS)


def _overhead(asked: MemoryInputs, bill: StageBill) -> Iterator[HeldTensor]:
    """What no tensor holds."""
    context = float(asked.software.memory.fixed)
    outside = float(formula.outside_allocator(asked.plan, asked.network, asked.software))
    yield HeldTensor("overhead", "process", "context and libraries", 1.0, context, *ALWAYS)
    yield HeldTensor("overhead", "process", "channels of communicators", 1.0, outside - context, *ALWAYS)
    yield HeldTensor("overhead", "allocator", "gaps", 1.0, float(bill.parts.overhead) - outside, *ALWAYS)
