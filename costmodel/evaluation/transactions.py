"""The transactions of a step, counted and priced: what each rank of a pipeline exchanges, call by call."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.arithmetic.named_tuples import as_number
from costmodel.description import buckets as rules
from costmodel.description.buckets import Bucketing, CollectiveCall, Context
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.description.tensors import LocalTensors, stage_tensors
from costmodel.evaluation.prices import PRICES, price_of
from costmodel.formulas import gradients, synchronisation, training_step
from costmodel.formulas.network import collectives, communication, compression, traffic
from costmodel.formulas.pipeline import layout, schedules
from costmodel.formulas.quantities import Layer, LowRankSizes, Number, Settings
from costmodel.formulas.transformer import adapters, layer, lengths, low_rank

PHASES = ("forward", "backward", "recompute", "gradient sync", "after step")
GROUPS = ("tensor", "context", "expert", "expert tensor", "pipeline", "data", "expert data", "embedding", "twin")
"""``"embedding"`` sums tied weights of the first and the last rank, ``"twin"`` those of a stage that two ranks run."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Transaction:
    """Equal transactions of a rank in one step."""

    stage: str  # ``"only"``, ``"first"``, ``"middle"`` or ``"last"`` rank of the pipeline
    phase: str  # one of `PHASES`
    group: str  # of ranks that take part, one of `GROUPS`
    collective: str  # which operation
    ranks: int  # that take part
    stride: int  # distance of neighbours among them [ranks]
    level: str  # of the cluster, the outermost that it crosses
    nbytes: float  # whole buffer, or message [bytes]
    count: float  # in one step
    time: float  # of one, alone on the network [s]
    sent: float  # by a rank in one [bytes]
    links: tuple[float, float, float]  # load of one on a GPU's link of each level, innermost first [bytes]


class Exchanged(NamedTuple):
    """Calls of a rule with the ranks that take part, the distance of neighbours among them, and the buffers [bytes]."""

    group: str
    call: CollectiveCall
    ranks: float
    stride: float
    nbytes: NDArray[np.float64]


class AlikeRanks(NamedTuple):
    """Ranks of the pipeline that are alike, with all that they run: of a valley or of two directions, stages of both halves."""

    name: str  # ``"only"``, ``"first"``, ``"middle"`` or ``"last"``
    layers: tuple[int, ...]  # numbers of the layers of one of them
    embedding: bool  # embedding, head: what else it holds
    head: bool
    ranks: int  # GPUs of all of them
    twin: int = 0  # how many ranks of the pipeline apart the same stages are run again; 0 where they are not


DISPATCH = "deduplicated all-to-all"


def _coded(
    call: CollectiveCall, factors: LowRankSizes, ranks: float, settings: Settings
) -> list[tuple[str, NDArray[np.float64]]]:
    """Collectives that sum the compressed gradients of each bucket, in order, with the buffers of each [bytes]."""
    made = compression.payload_of(as_number(call.elements.astype(float)), factors, ranks, settings)
    parts = (
        ("all-reduce", made.whole), ("all-reduce", made.left), ("all-reduce", made.right), ("all-to-all", made.scattered),
        ("all-gather", ranks * made.gathered),
    )  # fmt: skip
    sizes = [(name, np.broadcast_to(np.asarray(nbytes, dtype=float), call.elements.shape)) for name, nbytes in parts]
    return [(name, nbytes) for name, nbytes in sizes if nbytes.any()]


class TransactionPricer:
    """Prices the transactions of a step, stage by stage.

    Parameters
    ----------
    question : model, cluster and framework
    plan : how the step is split, the framework's defaults filled in
    rule : by which gradients and weights are put into buckets; the framework's own if None
    """

    def __init__(self, question: Question, plan: Plan, rule: Bucketing | None = None) -> None:
        self.question, self.asked = question, plan
        self.rule = rule_of_plan(question, plan) if rule is None else rule
        self.model, asked, self.plan, self.network, self.software, self.device = question.inputs(plan)
        self.settings = lengths.at_work(asked, self.plan)
        self.stretch = math.exp(question.discrepancy(asked, self.plan))  # by what own runs say of plans like this one
        self.micro_batches = float(layout.micro_batches(self.settings, self.plan))
        self.updates = float(schedules.updates(self.plan.schedule, self.micro_batches))
        self.passes = self.micro_batches / float(schedules.weight_copies(self.plan.schedule))
        self.folded, self.two_way = (bool(ask(self.plan.schedule)) for ask in (schedules.v_shaped, schedules.bidirectional))
        self.rows: list[Transaction] = []

    @property
    def stages(self) -> tuple[AlikeRanks, ...]:
        """The kinds of ranks of the pipeline; for those between stands the first with most layers with experts, and of all."""
        p, model = self.asked.pipeline_parallel, self.question.model
        ranks = self.asked.gpus // p
        if p == 1:
            return (AlikeRanks("only", tuple(range(model.layers)), True, True, ranks),)
        valley = self.folded and not self.two_way
        alike = not self.settings.framework.balanced_stages and model.alike
        others = map(self.held, range(1, 2 if alike else max(p - 1, 2)))
        between = max(others, key=lambda layers: (sum(map(model.has_experts, layers)), len(layers)))
        inner = AlikeRanks("middle", between, False, False, (p - 2) * ranks, (p - 3) * self.two_way)
        return (
            AlikeRanks("first", self.held(0), True, self.folded, ranks, (p - 1) * self.two_way), *((inner,) if p > 2 else ()),
            AlikeRanks("last", self.held(p - 1), self.two_way, not valley, ranks, (p - 1) * self.two_way),
        )  # fmt: skip

    def held(self, rank: int) -> tuple[int, ...]:
        """Numbers of the layers that a rank of the pipeline has; of two stages that it runs, those of both."""
        p, layers = self.asked.pipeline_parallel, tuple(range(self.question.model.layers))
        many = len(layers)
        first, middle, last = (int(count) for count in layout.stage_layers(self.model, self.settings, self.plan))
        if self.settings.framework.balanced_stages:
            ends = [int(layout.dealt_layers(self.model, self.plan, float(stage))) for stage in (max(rank, 1), rank + 1)]
            return layers[ends[0] * (rank > 0) : ends[1] if rank < p - 1 else many]
        if self.folded and not self.two_way:  # a valley: down, and up again to the first rank
            outer = first + last - middle
            down, up, begin, end = middle - middle // 2, middle // 2, outer - outer // 2, many - outer // 2
            if rank == 0:
                return layers[:begin] + layers[end:]
            begin, end = begin + (rank - 1) * down, end - rank * up
            return layers[begin : begin + down] + layers[end : end + up]
        chunk = middle // self.asked.virtual_stages
        mine = {rank, p - 1 - rank} if self.two_way else {rank}
        turns = [(layer + middle - first) // chunk for layer in layers]
        if layout.given_ends(self.settings, self.plan):  # ends may have more than stages between
            turns = [min(max(turn, 0), p - 1) for turn in turns]
        return tuple(layer for layer, turn in zip(layers, turns, strict=True) if turn % p in mine)

    @property
    def backward(self) -> tuple[Layer, float, float]:
        """A layer's pass, and the backward times of head and embedding, by the constants alone [s]."""
        arguments = self.model, self.settings, self.plan
        one = training_step.layer_pass(*arguments, self.network, self.software, self.device)
        head = layer.head_work(*arguments, self.software, self.device)
        _, embedding = layer.embedding_work(*arguments, self.device)
        return one, float(head.data + head.stream_backward + head.weight + head.accumulate), float(embedding)

    def level(self, ranks: float, stride: float) -> str:
        """Name of the outermost level that a group crosses."""
        nodes, leaves = traffic.units(ranks, stride, self.network)
        levels = self.question.cluster.levels
        return levels[min((nodes > 0) + (leaves > 0), len(levels) - 1)].name

    def add(
        self, stage: str, phase: str, group: str, collective: str, ranks: float, stride: float,
        nbytes: float | NDArray[np.float64], count: float | NDArray[np.floating], placed: float | None = None,
        over: str = "", beside: float = 0.0,
    ) -> None:  # fmt: skip
        """Write transactions of one kind, of one or of many sizes; on the links of a group with the stride `placed`.

        What each takes `beside` its messages sends nothing [s].
        """
        if ranks <= 1.0:
            return
        placed = stride if placed is None else placed
        sizes = np.atleast_1d(np.asarray(nbytes, dtype=float))
        counts = np.broadcast_to(np.asarray(count, dtype=float), sizes.shape)
        times, sent, links = self._priced(collective, over, as_number(sizes), ranks, placed)
        level = self.level(ranks, placed)
        columns = (np.asarray(column).tolist() for column in (sizes, counts, times, sent, *links))
        for size, made, time, out, *load in zip(*columns, strict=True):
            if size > 0.0 and made > 0.0:
                self.rows.append(Transaction(
                    stage=stage, phase=phase, group=group, collective=collective, ranks=int(ranks), stride=int(stride),
                    level=level, nbytes=size, count=made, time=self.stretch * (time + beside), sent=out, links=tuple(load),
                ))  # fmt: skip

    def _priced(
        self, collective: str, over: str, sizes: Number, ranks: float, placed: float
    ) -> tuple[Number, Number, Sequence[Number]]:
        """Time, bytes that a rank sends, and load of the links of a column of sizes."""
        sent = self._sends(collective, sizes, ranks, placed)
        if collective == DISPATCH:
            mixture = self.model.experts
            load = traffic.deduplicated_links(sizes, mixture, ranks, placed, self.network)
            times = collectives.deduplicated_all_to_all(sizes, mixture, ranks, placed, self.network, self.software)
            return times, sent, load
        _, _, loads, by_sent = PRICES[collective]
        times = price_of(collective, over)(sizes, ranks, placed, self.network, self.software)
        return times, sent, loads(sent if by_sent else sizes, ranks, placed, self.network)

    def _sends(self, collective: str, sizes: Number, ranks: float, placed: float) -> Number:
        """Bytes that a rank sends, of a column of sizes."""
        if collective == DISPATCH:
            load = traffic.deduplicated_links(sizes, self.model.experts, ranks, placed, self.network)
            return load[0] + load[1]
        return PRICES[collective][1](sizes, ranks)

    def layers_of(self, stage: AlikeRanks) -> tuple[float, float]:
        """Layers with a dense MLP and with routed experts, multi-token-prediction modules included."""
        model = self.question.model
        experts = sum(map(model.has_experts, stage.layers))
        deep = model.prediction_layers * stage.head
        sparse = deep * (model.expert_layers > 0)
        return float(len(stage.layers) - experts + deep - sparse), float(experts + sparse)

    def activations(self, stage: AlikeRanks) -> None:
        """What the layers and the boundaries of a stage exchange."""
        model, settings, plan, m = self.model, self.settings, self.plan, self.passes
        dense, sparse = self.layers_of(stage)
        hidden, narrow = (of(model, settings, plan) for of in (communication.hidden_message, communication.gathered_message))
        once = dense * communication.tensor_reductions(model, 0.0) + sparse * communication.tensor_reductions(model, 1.0)
        again = dense * communication.repeated_reductions(model, plan, 0.0)
        again = again + sparse * communication.repeated_reductions(model, plan, 1.0)
        halves = dense * communication.gathers_again(model, plan, 0.0) + sparse * communication.gathers_again(model, plan, 1.0)
        scattered = plan.sequence_parallel > 0.0
        turns = {
            "forward": (once, 0.0, 1.0, 1.0), "backward": (once, 0.0, 1.0, 1.0),
            "recompute": (again, halves, float(plan.recompute_layers), float(communication.repeated_dispatches(plan))),
        }  # fmt: skip
        for phase, (reductions, gathered, share, dispatches) in turns.items():
            edge = stage.embedding * (phase == "forward") + stage.head * (phase == "backward")
            if scattered:  # the embedding and the head have no narrow operands
                made = reductions + gathered
                whole = (hidden, m * (made + edge))
                gathers = whole if narrow == hidden else (np.array([narrow, hidden]), m * np.array([made, edge]))
                self.add(stage.name, phase, "tensor", "all-gather", plan.tensor, plan.tensor_stride, *gathers)
            name, summed = "reduce-scatter" if scattered else "all-reduce", m * (reductions - gathered + edge)
            self.add(stage.name, phase, "tensor", name, plan.tensor, plan.tensor_stride, hidden, summed)
            if phase == "backward" and communication.gathers_inputs(settings, plan) > 0.0:
                inputs = np.array([narrow, hidden]), m * np.array([once, stage.head])
                self.add(stage.name, phase, "tensor", "all-gather", plan.tensor, plan.tensor_stride, *inputs)
            self._context(stage, phase, m * share * (dense + sparse))
            self._experts(stage, phase, m * dispatches * sparse)
        _, crossing = communication.boundary(model, settings, plan, self.network, self.software)
        for phase, made in self.sends(stage).items():
            count = self.micro_batches * made
            self.add(stage.name, phase, "pipeline", "send", plan.pipeline, plan.pipeline_stride, crossing, count)

    def _context(self, stage: AlikeRanks, phase: str, layers: float) -> None:
        """Keys and values in turns around a ring or gathered at once, or positions for heads, as often as layers pass."""
        model, settings, plan = self.model, self.settings, self.plan
        keys, queries = (0.5 * of(model, settings, plan) for of in (communication.context_message, communication.query_message))
        backward = phase == "backward"
        group = stage.name, phase, "context"
        ranks = plan.context, plan.context_stride
        if settings.kernels.exchanged_heads > 0.0:
            self.add(*group, "all-to-all", *ranks, np.array([keys, queries]), np.array([2.0 * layers] * 2))
        elif settings.kernels.gathered_keys > 0.0:
            self.add(*group, "all-gather", *ranks, plan.context * keys, 2.0 * layers)
            self.add(*group, "reduce-scatter", *ranks, plan.context * keys, 2.0 * layers * backward)
        elif settings.framework.gathered_ring > 0.0:
            self.add(*group, "all-gather", *ranks, 2.0 * plan.context * keys, layers)
            returned = communication.ring_gradients(model, settings, plan)
            self.add(*group, "send", *ranks, returned, backward * plan.context * layers)
        else:
            self.add(*group, "send", *ranks, 2.0 * keys, (1.0 + backward) * (plan.context - 1.0) * layers)

    def sends(self, stage: AlikeRanks) -> dict[str, float]:
        """Messages of a micro-batch that a rank sends each way."""
        schedule, chunks = self.plan.schedule, self.plan.virtual_stages
        each = float(schedules.crossings(schedule, chunks))
        lacking = 2.0 * each - float(schedules.messages(schedule, chunks, float(stage.name != "middle")))
        forward = 0.5 if self.folded else float(stage.name == "last")
        return {"forward": each - lacking * forward, "backward": each - lacking * (1.0 - forward)}

    def _experts(self, stage: AlikeRanks, phase: str, passes: float) -> None:
        if not passes:
            return
        plan, nbytes = self.plan, communication.expert_message(self.model, self.settings, self.plan)
        once = self.settings.kernels.deduplicated_dispatch > 0.0
        group = plan.expert, plan.expert_tensor
        self.add(stage.name, phase, "expert", DISPATCH if once else "all-to-all", *group, nbytes, 2.0 * passes)
        for name in ("all-gather", "reduce-scatter"):
            self.add(stage.name, phase, "expert tensor", name, plan.expert_tensor, plan.tensor_stride, nbytes, passes)

    def tensors(self, stage: AlikeRanks) -> LocalTensors:
        """Tensors of a rank of a stage."""
        plan = self.plan
        return stage_tensors(
            self.question.model, layers=stage.layers, embedding=stage.embedding, head=stage.head,
            tensor=int(plan.tensor), expert=int(plan.expert), expert_tensor=int(plan.expert_tensor),
        )  # fmt: skip

    def holders(self, held: LocalTensors) -> tuple[tuple[str, NDArray[np.bool_], float, float], ...]:
        """Groups of ranks that hold the same weights: which tensors, how many ranks, and the distance of neighbours."""
        plan = self.plan
        return (
            ("data", ~held.routed, float(plan.data * plan.context), float(plan.data_stride)),
            ("expert data", held.routed, float(communication.expert_ranks(plan)), float(plan.expert * plan.expert_tensor)),
        )

    def synchronisation(self, stage: AlikeRanks) -> list[Exchanged]:
        """What sums a stage's gradients and gathers its weights."""
        plan, settings, held = self.plan, self.settings, self.tensors(stage)
        found = []
        compressed = self.asked.compression != "none"
        for group, kept, ranks, stride in self.holders(held):
            if ranks <= 1.0 or not kept.any():
                continue
            shard = communication.shard_group_size(ranks, plan)
            context = Context(
                int(ranks), int(shard), int(self.asked.zero_stage or 0), settings.widths.reduce,
                bool(settings.overlap.gradients), stage.embedding, int(plan.virtual_stages) * (1 + self.folded),
                bool(layer.deferred_sums(settings, plan) > 0.0),
                float(synchronisation.gathered_again(self.model, settings, plan)),
                float(held.numel.sum() / held.numel[kept].sum()), self.model.vocabulary.tied > 0.0,
                self.settings.framework.edges_apart > 0.0,
            )  # fmt: skip
            members = {"all": (ranks, stride), "shard": (shard, stride), "copies": (ranks / shard, stride * shard)}
            tensors = held.where(kept)
            for call in self.rule.calls(tensors, context):
                gathered = float(adapters.gathered_width(settings, plan))
                summed = settings.widths.reduce * float(gradients.summed_share(settings, plan))
                width = gathered if call.what == "weights" else summed
                if call.what == "weights" or not compressed:
                    found.append(Exchanged(group, call, *members[call.over], width * call.elements.astype(float)))
            # a hook sums the gradients of all ranks whole, whatever is sharded
            whole = self.rule.calls(tensors, context._replace(zero_stage=0, shard=1)) if compressed else []
            for call in whole:
                factors = self.factors(stage, group, float(call.elements.sum()))
                found += [
                    Exchanged(group, call._replace(collective=collective), ranks, stride, nbytes)
                    for collective, nbytes in _coded(call, factors, ranks, settings)
                ]
        return found

    def factors(self, stage: AlikeRanks, group: str, routed: float) -> LowRankSizes:
        """What PowerSGD makes of all gradients of a group of a stage, which for `routed` experts has so many."""
        rank = self.settings.compression.rank
        if group == "expert data":
            return low_rank.expert_factors(self.model, self.plan, routed, rank)
        experts = sum(map(self.question.model.has_experts, stage.layers))
        places = float(len(stage.layers)), float(experts), float(stage.embedding), float(stage.head)
        return low_rank.stage_factors(self.model, self.plan, *places, rank)

    def copies(self, stage: AlikeRanks, ranks: float) -> float:
        """What copies of gathered weights take by tensor, beyond one by rank [s]."""
        pieces = synchronisation.pieces_of_rank(self.settings, float(len(stage.layers)))
        return float(pieces - 1.0) * float(communication.piece_copies(ranks, self.software))

    def summed_elsewhere(self, stage: AlikeRanks) -> float:
        """What a rank sends of gradients in a step that servers, levels or rare averages sum, not all-reduces [bytes]."""
        held, width = self.tensors(stage), self.settings.widths.reduce * self.settings.trainable
        sent = 0.0
        for _, kept, ranks, stride in self.holders(held):
            nbytes = width * float(held.numel[kept].sum())
            _, one = communication.sum_over_copies(nbytes, ranks, stride, self.settings, self.network, self.software)
            sent += self.updates * float(one)
        return sent

    def states(self, stage: AlikeRanks) -> None:
        """What a stage exchanges of gradients and weights."""
        plan, opposite = self.plan, float(communication.opposite_stride(self.plan, self.network))
        whole = communication.whole_gradients(self.model, self.settings, plan, *self.layers_of(stage), float(stage.head))
        self.add(stage.name, "gradient sync", "tensor", "all-reduce", plan.tensor, plan.tensor_stride, whole, self.updates)
        for group, call, ranks, stride, nbytes in self.synchronisation(stage):
            sizes, counts = np.unique(nbytes, return_counts=True)
            times = self.passes if call.every else self.updates
            made, beside = times * counts, self.copies(stage, ranks) if group == "data" and call.what == "weights" else 0.0
            self.add(stage.name, call.phase, group, call.collective, ranks, stride, sizes, made, over=call.over, beside=beside)
        if self.question.model.tied and stage.embedding != stage.head:
            apart = plan.pipeline_stride * (plan.pipeline - 1.0)
            table = self.settings.widths.reduce * self.model.vocabulary.size * self.model.hidden / plan.tensor
            self.add(stage.name, "gradient sync", "embedding", "all-reduce", 2.0, apart, table, self.updates, opposite)
        if stage.twin:
            held, shards = self.tensors(stage), communication.shard_groups(plan)
            kept = sum(held.numel[held.routed == routed].sum() / shard for routed, shard in enumerate(shards))
            kept_bytes = self.settings.widths.reduce * self.settings.trainable * float(kept)
            apart = stage.twin * plan.pipeline_stride
            self.add(stage.name, "gradient sync", "twin", "all-reduce", 2.0, apart, kept_bytes, 1.0, opposite)


def rule_of_plan(question: Question, plan: Plan) -> Bucketing:
    """The rule of a question's framework, with the sizes of buckets that its plan asks for.

    Parameters
    ----------
    question, plan : whose gradients and weights are put into buckets

    Assumes adapters, and what PowerSGD makes of gradients, to travel in one bucket: real ones would have to know which part
    of each tensor trains, and the factors of each matrix.
    """
    widths = question.settings(plan).widths
    if plan.adapter != "none" or plan.compression == "power-sgd":
        return rules.OneBucket()
    bucket = None if plan.bucket_bytes is None else max(int(plan.bucket_bytes // widths.reduce), 1)
    prefetch = None if plan.prefetch_bytes is None else max(int(plan.prefetch_bytes // widths.stored), 1)
    rule: Bucketing = rules.rule_of(
        question.framework.bucket_rule(plan.zero_stage, plan.prefetch_bytes), int(plan.zero_stage or 0), bucket, prefetch,
        bool(question.resolved(plan).overlap_gradients),
    )  # fmt: skip
    if isinstance(rule, rules.DistributedDataParallel) and plan.bucket_bytes is not None:
        rule = dataclasses.replace(rule, cap=float(plan.bucket_bytes))
    return rule


def exchanged_bytes(question: Question, plan: Plan) -> float:
    """What a rank of the stage that sends most sends in a step [bytes].

    Parameters
    ----------
    question : model, cluster and framework
    plan : how the step is split, the framework's defaults filled in
    """
    book = _Sent(question, plan)
    for stage in book.stages:
        book.activations(stage)
        book.states(stage)
        if book.elsewhere:
            book.sent[stage.name] += book.summed_elsewhere(stage)
    return max(book.sent.values())


class _Sent(TransactionPricer):
    """Counts what ranks send, and prices nothing."""

    def __init__(self, question: Question, plan: Plan) -> None:
        super().__init__(question, plan)
        self.sent = dict.fromkeys((stage.name for stage in self.stages), 0.0)
        self.elsewhere = plan.synchronisation != "all-reduce"

    def add(
        self, stage: str, phase: str, group: str, collective: str, ranks: float, stride: float,
        nbytes: float | NDArray[np.float64], count: float | NDArray[np.floating], placed: float | None = None,
        over: str = "", beside: float = 0.0,
    ) -> None:  # fmt: skip
        """Count what transactions of one kind send, but for gradients that are summed elsewhere."""
        if ranks <= 1.0 or (self.elsewhere and phase == "gradient sync" and group in ("data", "expert data")):
            return
        sizes, counts = np.asarray(nbytes, dtype=float), np.asarray(count, dtype=float)
        placed = stride if placed is None else placed
        sent = np.where((sizes > 0.0) & (counts > 0.0), counts * self._sends(collective, as_number(sizes), ranks, placed), 0.0)
        self.sent[stage] += float(sent.sum())
