"""What the ranks of a plan hold: stage by stage, part by part, and at which moment of a step."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

from costmodel.formulas import memory as formula
from costmodel.formulas import pipeline
from costmodel.formulas.parameters import stage_model
from costmodel.formulas.quantities import Memory, Model, Options, Stack
from costmodel.formulas.quantities import Plan as PlanNumbers

PARTS = Memory._fields[1:]
"""Parts of a bill; they add up to its total."""


class Asked(NamedTuple):
    """The numbers that a bill is made of."""

    model: Model
    options: Options
    plan: PlanNumbers
    stack: Stack
    micro_batches: int
    schedule: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageBill:
    """What one rank of a pipeline stage holds at its fullest moment.

    Parameters
    ----------
    stage : rank in the pipeline, from 0
    layers : of the stage
    parts : its `Memory` [bytes]
    """

    stage: int
    layers: int
    parts: Memory

    @property
    def total(self) -> float:
        """Bytes in all."""
        return float(self.parts.total)

    @property
    def phase(self) -> str:
        """The moment at which the stage is fullest: ``"loss"``, ``"backward"`` or ``"update"``."""
        if self.parts.activations == 0.0 and self.parts.temporaries > 0.0 and self.parts.logits == 0.0:
            return "update"
        return "loss" if self.parts.logits > 0.0 else "backward"

    @property
    def largest(self) -> list[tuple[str, float]]:
        """Parts by size [bytes], the largest first."""
        held = [(part, float(getattr(self.parts, part))) for part in PARTS]
        return sorted((item for item in held if item[1] > 0.0), key=lambda item: -item[1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bill:
    """What the fullest rank holds at its fullest moment, and every other stage [bytes].

    Parameters
    ----------
    total : in all; the parts add up to it
    weights, gradients, optimizer : states that this rank keeps
    activations : saved for the backward pass
    temporaries : of the backward pass, or of the update, where that is the fullest moment
    logits : and what the loss holds beside them, where the loss is the fullest moment
    buffers : gathered weights, workspaces
    overhead : outside the allocator, and what the allocator reserves unused
    asked : what the bill is of
    """

    total: float
    weights: float
    gradients: float
    optimizer: float
    activations: float
    temporaries: float
    logits: float
    buffers: float
    overhead: float
    asked: Asked = dataclasses.field(repr=False, compare=False)

    @property
    def allocated(self) -> float:
        """Bytes of tensors, as ``torch.cuda.max_memory_allocated`` counts them."""
        return self.total - self.overhead

    @property
    def reserved(self) -> float:
        """Bytes that the allocator holds, as ``torch.cuda.max_memory_reserved`` counts them."""
        return self.allocated * (1.0 + float(self.asked.stack.fragmentation))

    @functools.cached_property
    def stages(self) -> tuple[StageBill, ...]:
        """Bill of every pipeline stage, the first one first."""
        return tuple(stage_bill(self.asked, stage) for stage in range(round(self.asked.plan.pipeline)))

    @property
    def fullest(self) -> StageBill:
        """The stage that needs most."""
        return max(self.stages, key=lambda stage: stage.total)

    @property
    def phase(self) -> str:
        """The moment at which the fullest rank is fullest: ``"loss"``, ``"backward"`` or ``"update"``."""
        return self.fullest.phase


def stage_bill(asked: Asked, stage: int) -> StageBill:
    """The bill of one stage.

    Parameters
    ----------
    asked : the numbers of the plan
    stage : rank in the pipeline, from 0
    """
    model, options, plan, stack = asked[:4]
    before, layers = layers_of(asked, stage)
    part = stage_model(model, before, layers)
    first, last = float(stage == 0), float(stage == plan.pipeline - 1)
    parts = formula.stage_memory(part, options, plan, stack, layers, float(stage), first, last, float(asked.micro_batches))
    return StageBill(stage=stage, layers=round(layers), parts=Memory._make(map(float, parts)))


def layers_of(asked: Asked, stage: int) -> tuple[float, float]:
    """Layers before a stage, and on it.

    Parameters
    ----------
    asked : the numbers of the plan
    stage : rank in the pipeline, from 0
    """
    model, options, plan = asked[:3]
    first, middle, last = pipeline.stage_layers(model, options, plan)
    before = first + (stage - 1) * middle if stage else 0.0
    if stage == 0:
        return 0.0, first
    if stage == plan.pipeline - 1:
        return model.layers - last, last
    before = min(before, model.layers)
    return before, min(middle, model.layers - before)
