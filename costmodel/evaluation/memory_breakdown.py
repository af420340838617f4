"""What the ranks of a plan hold: stage by stage, part by part, and at every moment of a step."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, NamedTuple

from costmodel.formulas import gradients, run_ahead
from costmodel.formulas.pipeline import layout, schedules
from costmodel.formulas.quantities import (
    Contents,
    DeviceNumbers,
    Memory,
    ModelNumbers,
    NetworkNumbers,
    Place,
    PlanNumbers,
    Settings,
    Software,
)
from costmodel.formulas.transformer import memory as formula
from costmodel.text.attributes import names_what_is_there
from costmodel.text.checks import whole
from costmodel.text.results import brief, figure
from costmodel.text.tables import headed
from costmodel.text.units import GiB

if TYPE_CHECKING:
    import pandas

PARTS = Memory._fields[1:]
"""Parts of a bill; they add up to its total."""
LEAST_SHOWN = 0.05 * GiB
"""Of a part that is named where a bill is shown in short [bytes]."""


class MemoryInputs(NamedTuple):
    """The numbers that a bill is made of."""

    model: ModelNumbers
    settings: Settings
    plan: PlanNumbers
    software: Software
    network: NetworkNumbers
    device: DeviceNumbers
    micro_batches: int
    schedule: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageBill:
    """What one rank of a pipeline stage holds at its fullest moment."""

    stage: int  # rank in the pipeline, from 0
    layers: float  # of the stage; of two stages that a rank runs, the mean
    expert_layers: float  # of these, those with a mixture of experts
    parts: Memory  # its `Memory` [bytes]
    phase: str  # the moment at which it is fullest: ``"loss"``, ``"backward"`` or ``"update"``

    __repr__ = brief

    @property
    def total(self) -> float:
        """Bytes in all."""
        return float(self.parts.total)

    @property
    def largest(self) -> list[tuple[str, float]]:
        """Parts by size [bytes], the largest first."""
        held = [(part, float(getattr(self.parts, part))) for part in PARTS]
        return sorted((item for item in held if item[1] > 0.0), key=lambda item: -item[1])


class Moment(NamedTuple):
    """What a rank holds while one event of its step goes on."""

    event: str  # "forward", "loss", "backward", "backward-input", "backward-weight" or "update"
    micro_batch: int  # -1 of the update
    held: Memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryTimeline:
    """What one rank of a pipeline holds, event by event over a step."""

    stage: int  # rank in the pipeline, from 0
    moments: tuple[Moment, ...]  # in the order in which they come

    __repr__ = brief
    plot = figure

    @property
    def peak(self) -> Moment:
        """The fullest moment, the first of those that are alike."""
        return max(self.moments, key=lambda moment: moment.held.total)

    def frame(self) -> pandas.DataFrame:
        """One row a moment: event, micro-batch and bytes of each part."""
        import pandas

        rows = [
            {"event": moment.event, "micro_batch": moment.micro_batch}
            | {f"{part}_bytes": value for part, value in moment.held._asdict().items()}
            for moment in self.moments
        ]
        return pandas.DataFrame(rows)


@names_what_is_there
@dataclasses.dataclass(frozen=True, kw_only=True)
class PeakMemory:
    """What the fullest rank holds at its fullest moment, and every other stage [bytes]."""

    total: float  # in all; the parts add up to it
    weights: float  # weights, gradients, optimizer: states that this rank keeps
    gradients: float
    optimizer: float
    activations: float  # saved for the backward pass
    temporaries: float  # of the backward pass, or of the update, where that is the fullest moment
    logits: float  # and what the loss holds beside them, where the loss is the fullest moment
    buffers: float  # gathered weights, workspaces, what compression keeps beside the gradients
    overhead: float  # outside the allocator, and what the allocator reserves unused
    asked: MemoryInputs = dataclasses.field(repr=False, compare=False)  # what the bill is of

    def __repr__(self) -> str:
        parts = ", ".join(f"{part} {self._gib(part)}" for part in PARTS if getattr(self, part) >= LEAST_SHOWN)
        return headed(f"PeakMemory: {self._gib('total')} GiB of the fullest GPU", f"GiB of {parts}")

    def _gib(self, part: str) -> str:
        return f"{getattr(self, part) / GiB:.1f}"

    @property
    def parts(self) -> dict[str, float]:
        """Parts of the total [bytes]; they add up to it."""
        return {part: float(getattr(self, part)) for part in PARTS}

    @property
    def allocated(self) -> float:
        """Bytes of tensors, as ``torch.cuda.max_memory_allocated`` counts them."""
        return self.total - self.overhead

    @property
    def reserved(self) -> float:
        """Bytes that the allocator holds, as ``torch.cuda.max_memory_reserved`` counts them."""
        asked, stage = self.asked, self.fullest.stage
        idle = formula.idle_bytes(
            contents_of(asked, place_of(asked, stage)), asked.settings, asked.plan, asked.software, float(asked.micro_batches)
        )
        model, settings, plan, software, network, device = asked[:6]
        ahead = float(run_ahead.ahead_bytes(model, settings, plan, network, software, device))
        kept = self.total + float(idle)
        more = min(ahead, max(float(device.memory) - kept, 0.0))
        return kept - float(formula.outside_allocator(plan, network, software)) + more

    @functools.cached_property
    def stages(self) -> tuple[StageBill, ...]:
        """Bill of every pipeline stage, the first one first."""
        return tuple(stage_bill(self.asked, stage) for stage in range(round(self.asked.plan.pipeline)))

    def bill_of(self, stage: int | None) -> StageBill:
        """The bill of a stage, the fullest if None.

        Parameters
        ----------
        stage : rank in the pipeline, from 0

        Raises
        ------
        InvalidValue
            where there is no such stage
        """
        return self.fullest if stage is None else self.stages[whole("stage", stage, len(self.stages) - 1)]

    @property
    def fullest(self) -> StageBill:
        """The stage that needs most."""
        return max(self.stages, key=lambda stage: stage.total)

    def timeline(self, stage: int | None = None) -> MemoryTimeline:
        """What a rank holds while each pass of each micro-batch, and then the update, goes on.

        Parameters
        ----------
        stage : rank in the pipeline, from 0; the fullest if None

        Raises
        ------
        InvalidValue
            where there is no such stage

        Examples
        --------
        >>> from costmodel import estimate, load_cluster, load_model, Plan
        >>> plan = Plan(global_batch=8, seq_len=8192, pipeline_parallel=8)
        >>> bill = estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), plan).memory
        >>> line = bill.timeline()
        >>> [moment.event for moment in line.moments[:9]]
        ['forward', 'forward', 'forward', 'forward', 'forward', 'forward', 'forward', 'forward', 'backward']
        >>> abs(line.peak.held.total / bill.total - 1.0) < 1e-12
        True
        """
        return timeline_of(self.asked, self.bill_of(stage).stage)

    @property
    def phase(self) -> str:
        """The moment at which the fullest rank is fullest: ``"loss"``, ``"backward"`` or ``"update"``."""
        return self.fullest.phase


def stage_bill(asked: MemoryInputs, stage: int) -> StageBill:
    """The bill of one rank of the pipeline.

    Parameters
    ----------
    asked : the numbers of the plan
    stage : rank in the pipeline, from 0
    """
    place = place_of(asked, stage)
    held = contents_of(asked, place)
    bill = formula.stage_memory(held, asked.settings, asked.plan, asked.network, asked.software, asked.micro_batches)
    parts = formula.with_buffers(bill, compression_bytes(asked, place), asked.settings, asked.software)
    _, _, at_loss, updating, _ = formula.fullest_moment(held, asked.plan, asked.micro_batches)
    phase = "update" if updating else "loss" if at_loss else "backward"
    return StageBill(
        stage=stage, layers=float(place.layers), expert_layers=float(place.experts), parts=Memory._make(map(float, parts)),
        phase=phase,
    )  # fmt: skip


def contents_of(asked: MemoryInputs, place: Place) -> Contents:
    """What a rank of the pipeline holds all the time, for each micro-batch, and at its moments [bytes]."""
    model, settings, plan, software = asked[:4]
    kinds = formula.layer_kinds(model, settings, plan, software)
    return formula.stage_contents(model, settings, plan, kinds, place, float(asked.micro_batches))


def compression_bytes(asked: MemoryInputs, place: Place) -> float:
    """What a rank of the pipeline keeps to compress its gradients [bytes]."""
    return float(gradients.buffer_bytes(asked.model, asked.settings, asked.plan, place))


def place_of(asked: MemoryInputs, stage: int) -> Place:
    """What a rank of the pipeline has."""
    model, settings, plan = asked[:3]
    layers, (first, last) = layers_of(asked, stage), ends_of(asked, stage)
    experts = layout.rank_experts(model, settings, plan, float(stage), layers)
    return Place(layers, float(experts), float(stage), first, last)


def ends_of(asked: MemoryInputs, stage: int) -> tuple[float, float]:
    """Whether a rank of the pipeline has the embedding, and the head."""
    plan = asked.plan
    first, last = stage == 0, stage == plan.pipeline - 1
    if plan.pipeline > 1 and schedules.v_shaped(plan.schedule):
        ends = first or (last and bool(schedules.bidirectional(plan.schedule)))
        return float(ends), float(ends)
    return float(first), float(last)


def layers_of(asked: MemoryInputs, stage: int) -> float:
    """Layers of a rank of the pipeline; of two stages that it runs, the mean."""
    model, settings, plan = asked[:3]
    first, middle, last = layout.rank_layers(model, settings, plan)
    if stage == 0:
        return first
    if stage == plan.pipeline - 1:
        return last
    if settings.framework.balanced_stages:
        return layout.dealt_layers(model, plan, stage + 1.0) - layout.dealt_layers(model, plan, float(stage))
    return middle


def timeline_of(asked: MemoryInputs, stage: int) -> MemoryTimeline:
    """What a rank of the pipeline holds, event by event: states all the time, activations as the schedule runs."""
    from costmodel.description.schedule import pipeline_schedule

    plan, software = asked.plan, asked.software
    place = place_of(asked, stage)
    has = contents_of(asked, place)
    order = pipeline_schedule(
        asked.schedule, stages=round(plan.pipeline), micro_batches=asked.micro_batches, chunks=round(plan.virtual_stages)
    )
    chunks, end = order.chunks, order.stages - 1
    kept = compression_bytes(asked, place)

    _, in_a_pass, _, _, outgrown = formula.fullest_moment(has, plan, float(asked.micro_batches))
    ended = 0.0 if in_a_pass else float(outgrown)  # what the last backward pass finds kept for others

    moments: list[Moment] = []

    def note(event: str, number: int, running: float, temporaries: float, logits: float, late: bool = False) -> None:
        updating = event == "update"
        pooled = has.pooled_gradients + (0.0 if temporaries > 0.0 else has.pooled_unit)
        pooled += formula.broken_block(has) if event == "loss" else 0.0
        bill = formula.memory_of(
            has.weights, has.gradients if late else has.gradients - has.late_gradients, has.optimizer,
            has.captured + running * has.saved,
            temporaries, logits, software.memory.workspace + has.buckets + (0.0 if updating else has.gathered),
            (0.0 if updating else ended) if late else pooled,
            asked.settings, plan, asked.network, software,
        )  # fmt: skip
        bill = formula.with_buffers(bill, kept, asked.settings, software)
        moments.append(Moment(event, number, Memory._make(map(float, bill))))

    running = waiting = 0
    for kind, at, number in order.order(stage):
        if kind == "forward":
            running += 1
            waiting += at == end
            at_loss = at == end and has.logits > 0.0
            others = (waiting - at_loss) * has.waiting_logits
            note("loss" if at_loss else kind, number, running / chunks, 0.0, others + at_loss * has.logits)
        elif kind.startswith("backward"):
            waiting -= at == end and kind != "backward-weight"  # its own logits have become their gradient
            temporaries = 0.0 if kind == "backward-weight" else has.backward
            note(kind, number, running / chunks, temporaries, waiting * has.waiting_logits)
            running -= kind != "backward-input"
    if has.late_gradients > 0.0 or has.ending > has.backward + has.gathered:
        note("backward", number, 0.0, has.ending - has.gathered, 0.0, late=True)
    note("update", -1, 0.0, has.update, 0.0, late=True)
    return MemoryTimeline(stage=stage, moments=tuple(moments))
