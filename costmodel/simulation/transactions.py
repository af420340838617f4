"""The traffic ledger of a plan: every transaction of one step, and the load that they leave on each class of links.

Longer than other modules: half of it is what is documented of a ledger's rows, the other half the one book that writes them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.catalogue.software import framework_on
from costmodel.checks import choice, kind
from costmodel.description import buckets as rules
from costmodel.description.buckets import Call, Context, Overlap, Rule
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.description.tensors import LocalTensors, stage_tensors
from costmodel.description.transformer import Transformer
from costmodel.errors import InvalidValue, NotModelled
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.formulas import training_step
from costmodel.formulas.network import collectives, communication, compression, traffic
from costmodel.formulas.pipeline import layout, schedules
from costmodel.formulas.quantities import Factors, Layer, Number, Settings
from costmodel.formulas.transformer import adapters, layer, low_rank
from costmodel.formulas.transformer.parameters import stage_model
from costmodel.records import as_number

if TYPE_CHECKING:
    import pandas

PHASES = ("forward", "backward", "recompute", "gradient sync", "after step")
GROUPS = ("tensor", "context", "expert", "expert tensor", "pipeline", "data", "expert data", "embedding", "twin")
"""``"embedding"`` sums tied weights of the first and the last rank, ``"twin"`` those of a stage that two ranks run."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Transaction:
    """Equal transactions of a rank in one step.

    Parameters
    ----------
    stage : ``"only"``, ``"first"``, ``"middle"`` or ``"last"`` rank of the pipeline
    phase : one of `PHASES`
    group : of ranks that take part, one of `GROUPS`
    collective : which operation
    ranks : that take part
    stride : distance of neighbours among them [ranks]
    level : of the cluster, the outermost that it crosses
    nbytes : whole buffer, or message [bytes]
    count : in one step
    time : of one, alone on the network [s]
    sent : by a rank in one [bytes]
    links : load of one on a GPU's link of each level, innermost first [bytes]
    """

    stage: str
    phase: str
    group: str
    collective: str
    ranks: int
    stride: int
    level: str
    nbytes: float
    count: float
    time: float
    sent: float
    links: tuple[float, float, float]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """Transactions of one size.

    Parameters
    ----------
    nbytes : whole buffer, or message [bytes]
    collective, group : which operation, among whom
    count : on a rank in one step
    """

    nbytes: float
    collective: str
    group: str
    count: float


class Exchanged(NamedTuple):
    """Calls of a rule with the ranks that take part, the distance of neighbours among them, and the buffers [bytes]."""

    group: str
    call: Call
    ranks: float
    stride: float
    nbytes: NDArray[np.float64]


class Load(NamedTuple):
    """Load of a GPU's link of one level, in the direction that carries more, on the stage that loads it most.

    Parameters
    ----------
    level : of the cluster
    stage : that loads it most
    bandwidth : of the link that collectives reach, the software's factor included [bytes/s]
    nbytes : in one step [bytes]
    busy : share of the step in which it carries bytes at that rate
    mean_rate : over the step [bytes/s]
    peak_rate : in its fastest transaction [bytes/s]
    peak_group : whose transaction that is; empty for a link without load
    """

    level: str
    stage: str
    bandwidth: float
    nbytes: float
    busy: float
    mean_rate: float
    peak_rate: float
    peak_group: str


class Stage(NamedTuple):
    """Ranks of the pipeline that are alike, with all that they run: of a valley or of two directions, stages of both halves.

    Parameters
    ----------
    name : ``"only"``, ``"first"``, ``"middle"`` or ``"last"``
    layers : numbers of the layers of one of them
    embedding, head : what else it holds
    ranks : GPUs of all of them
    twin : how many ranks of the pipeline apart the same stages are run again; 0 where they are not
    """

    name: str
    layers: tuple[int, ...]
    embedding: bool
    head: bool
    ranks: int
    twin: int = 0


DISPATCH = "deduplicated all-to-all"
_RING = traffic.ring_links
_PRICES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], bool]] = {
    "all-reduce": (collectives.all_reduce, traffic.all_reduce_sent, _RING, True),
    "all-gather": (collectives.all_gather, traffic.all_gather_sent, _RING, True),
    "reduce-scatter": (collectives.all_gather, traffic.all_gather_sent, _RING, True),
    "reduce": (traffic.reduce, traffic.all_gather_sent, _RING, True),
    "all-to-all": (collectives.all_to_all, traffic.all_gather_sent, traffic.all_to_all_links, False),
    "send": (collectives.send, lambda nbytes, ranks: nbytes, traffic.send_links, False),
}
"""Of each operation: its time, what a rank sends, the links' load, and whether that load is one of what is sent."""


def _timed(collective: str, over: str) -> Callable[..., Any]:
    """Formula of the time of an operation; among the ranks that share one copy of sharded states, that of shards."""
    sharded = over == "shard" and collective in ("all-gather", "reduce-scatter")
    return communication.shard_exchange if sharded else _PRICES[collective][0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ledger:
    """Every transaction of one step.

    Parameters
    ----------
    estimate : the step that they belong to
    rule : by which gradients and weights are put into buckets
    stages : of the pipeline
    transactions : of a rank of each stage
    """

    estimate: Estimate
    rule: Rule
    stages: tuple[Stage, ...]
    transactions: tuple[Transaction, ...]

    def __repr__(self) -> str:
        from costmodel.summary import ledger_text

        return ledger_text(self)

    def _repr_html_(self) -> str:
        from costmodel.summary import ledger_html

        return ledger_html(self)

    @property
    def _stage_names(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)

    def of(self, stage: str | None = None) -> tuple[Transaction, ...]:
        """Transactions of a rank of one stage; of the one that sends most if None."""
        name = self.busiest if stage is None else choice("stage", stage, self._stage_names)
        return tuple(row for row in self.transactions if row.stage == name)

    @functools.cached_property
    def sent_bytes(self) -> dict[str, float]:
        """What a rank of each stage sends in a step [bytes]."""
        sent = dict.fromkeys(self._stage_names, 0.0)
        for row in self.transactions:
            sent[row.stage] += row.count * row.sent
        return sent

    @functools.cached_property
    def times(self) -> dict[str, float]:
        """Time of each stage's transactions, one after the other and hidden by nothing [s]."""
        times = dict.fromkeys(self._stage_names, 0.0)
        for row in self.transactions:
            times[row.stage] += row.count * row.time
        return times

    @property
    def busiest(self) -> str:
        """The stage whose ranks send most."""
        return max(self.sent_bytes, key=self.sent_bytes.__getitem__)

    @property
    def cluster_bytes(self) -> float:
        """What all GPUs send in a step [bytes]."""
        return sum(stage.ranks * self.sent_bytes[stage.name] for stage in self.stages)

    def histogram(self, group: str | None = None, stage: str | None = None) -> tuple[Size, ...]:
        """How many transactions there are of each size, smallest first.

        Parameters
        ----------
        group : one of `GROUPS`; all of them if None
        stage : of the pipeline; the one that sends most if None
        """
        if group is not None:
            choice("group", group, GROUPS)
        counts: dict[tuple[float, str, str], float] = {}
        for row in self.of(stage):
            if group in (None, row.group):
                key = (row.nbytes, row.collective, row.group)
                counts[key] = counts.get(key, 0.0) + row.count
        found = sorted(counts.items())
        return tuple(
            Size(nbytes=nbytes, collective=collective, group=among, count=count) for (nbytes, collective, among), count in found
        )

    def loads(self) -> tuple[Load, ...]:
        """Load of a GPU's link of every level, innermost first."""
        found = []
        quality = self.estimate.framework.numbers().network.quality
        network = self.estimate.cluster.numbers()
        for place, level in enumerate(self.estimate.cluster.levels):
            bandwidth = quality * network[place].bandwidth
            totals = dict.fromkeys(self._stage_names, 0.0)
            peak, peak_group = 0.0, ""
            for row in self.transactions:
                totals[row.stage] += row.count * row.links[place]
                if row.links[place] > peak * row.time:
                    peak, peak_group = row.links[place] / row.time, row.group
            stage = max(totals, key=totals.__getitem__)
            rate = totals[stage] / self.estimate.step_time
            found.append(Load(level.name, stage, bandwidth, totals[stage], rate / bandwidth, rate, peak, peak_group))
        return tuple(found)

    @property
    def saturates_first(self) -> Load:
        """The class of links that is busy for the largest share of the step."""
        return max(self.loads(), key=lambda load: load.busy)

    def overlap(self, stage: str | None = None) -> Overlap:
        """The gradient buckets of the last micro-batch beside its backward pass, group after group on one network.

        Parameters
        ----------
        stage : of the pipeline; the one that sends most if None

        Assumes a backward pass without exposed exchange of its own. Of two directions it is the last of either, one after
        the other; the sums between twins and of tied weights are left out.
        """
        name = self.busiest if stage is None else choice("stage", stage, self._stage_names)
        one = next(stage for stage in self.stages if stage.name == name)
        book = _Book(self.estimate, self.rule)
        passes, head, embedding = book.backward
        layers = np.full(len(one.layers), passes.data + passes.weight + passes.recompute)
        outer = head * one.head, embedding * one.embedding
        full, times = [], []
        for _, call, ranks, stride, nbytes in book.synchronisation(one):
            if call.phase == "gradient sync":
                full.append(rules.ready_times(call.layer, outer[0], layers, outer[1]))
                times.append(_timed(call.collective, call.over)(nbytes, ranks, stride, book.network, book.software))
        ready = np.concatenate(full or [np.empty(0)])
        order = np.argsort(ready, kind="stable")
        duration = np.concatenate(times or [np.empty(0)])[order]
        return rules.overlap(ready[order], duration, float(layers.sum() + sum(outer)))

    def synchronisation(self, stage: str | None = None) -> tuple[Exchanged, ...]:
        """Calls that sum a stage's gradients and gather its weights, in order.

        Parameters
        ----------
        stage : of the pipeline; the one that sends most if None
        """
        name = self.busiest if stage is None else choice("stage", stage, self._stage_names)
        one = next(stage for stage in self.stages if stage.name == name)
        return tuple(_Book(self.estimate, self.rule).synchronisation(one))

    def to_rows(self) -> list[dict[str, object]]:
        """One row for equal transactions of a stage's rank, units in the names of the columns."""
        names = [level.name for level in self.estimate.cluster.levels]
        rows = []
        for row in self.transactions:
            columns = dataclasses.asdict(row)
            links = columns.pop("links")
            columns["buffer_bytes"], columns["time_s"] = columns.pop("nbytes"), columns.pop("time")
            columns["sent_bytes"] = columns.pop("sent")
            columns["total_sent_bytes"], columns["total_time_s"] = row.count * row.sent, row.count * row.time
            rows.append(columns | {f"{name}_link_bytes": load for name, load in zip(names, links, strict=False)})
        return rows

    def frame(self) -> pandas.DataFrame:
        """The rows of `to_rows` as a frame."""
        import pandas

        return pandas.DataFrame(self.to_rows())


def _coded(call: Call, factors: Factors, ranks: float, settings: Settings) -> list[tuple[str, NDArray[np.float64]]]:
    """Collectives that sum the compressed gradients of each bucket, in order, with the buffers of each [bytes]."""
    made = compression.payload_of(as_number(call.elements.astype(float)), factors, ranks, settings)
    parts = (
        ("all-reduce", made.whole), ("all-reduce", made.left), ("all-reduce", made.right), ("all-to-all", made.scattered),
        ("all-gather", ranks * made.gathered),
    )  # fmt: skip
    sizes = [(name, np.broadcast_to(np.asarray(nbytes, dtype=float), call.elements.shape)) for name, nbytes in parts]
    return [(name, nbytes) for name, nbytes in sizes if nbytes.any()]


class _Book:
    """Prices the transactions of an estimate's step, stage by stage."""

    def __init__(self, result: Estimate, rule: Rule) -> None:
        self.result, self.rule = result, rule
        self.model, self.settings, self.plan, self.network, self.software, self.device = result.inputs
        self.micro_batches = float(layout.micro_batches(self.settings, self.plan))
        self.updates = float(schedules.updates(self.plan.schedule, self.micro_batches))
        self.passes = self.micro_batches / float(schedules.weight_copies(self.plan.schedule))
        self.folded, self.two_way = (bool(ask(self.plan.schedule)) for ask in (schedules.folded, schedules.two_way))
        self.rows: list[Transaction] = []

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The kinds of ranks of the pipeline; the second stands for those between."""
        p, layers = self.result.plan.pipeline_parallel, tuple(range(self.result.model.layers))
        ranks, many = self.result.plan.gpus // p, len(layers)
        if p == 1:
            return (Stage("only", layers, True, True, ranks),)
        first, middle, last = (int(count) for count in layout.stage_layers(self.model, self.settings, self.plan))
        valley = self.folded and not self.two_way
        # of the first rank and of the second: layers from the front of the model, and from its back
        front, back = (first, middle), (last, middle) if self.two_way else (0, 0)
        if valley:
            outer = first + last - middle
            front, back = (outer - outer // 2, middle - middle // 2), (outer // 2, middle // 2)
        outside = layers[: front[0]] + layers[many - back[0] :]
        between = layers[front[0] : sum(front)] + layers[many - sum(back) : many - back[0]]
        begin = front[0] + (p - 2) * front[1] if valley else many - last
        inside = outside if self.two_way else layers[begin : begin + (middle if valley else last)]
        inner = Stage("middle", between, False, False, (p - 2) * ranks, (p - 3) * self.two_way)
        return (
            Stage("first", outside, True, self.folded, ranks, (p - 1) * self.two_way), *((inner,) if p > 2 else ()),
            Stage("last", inside, self.two_way, not valley, ranks, (p - 1) * self.two_way),
        )  # fmt: skip

    @property
    def backward(self) -> tuple[Layer, float, float]:
        """A layer's pass, and the backward times of head and embedding [s]."""
        arguments = self.model, self.settings, self.plan
        one = training_step.layer_pass(*arguments, self.network, self.software, self.device)
        head = layer.head_work(*arguments, self.software, self.device)
        _, embedding = layer.embedding_work(*arguments, self.device)
        return one, float(head.data + head.stream_backward + head.weight + head.accumulate), float(embedding)

    def level(self, ranks: float, stride: float) -> str:
        """Name of the outermost level that a group crosses."""
        nodes, leaves = traffic.units(ranks, stride, self.network)
        levels = self.result.cluster.levels
        return levels[min((nodes > 0) + (leaves > 0), len(levels) - 1)].name

    def add(
        self, stage: str, phase: str, group: str, collective: str, ranks: float, stride: float,
        nbytes: float | NDArray[np.float64], count: float | NDArray[np.floating], placed: float | None = None,
        over: str = "",
    ) -> None:  # fmt: skip
        """Write transactions of one kind, of one or of many sizes; on the links of a group with the stride `placed`."""
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
                    level=level, nbytes=size, count=made, time=time, sent=out, links=tuple(load),
                ))  # fmt: skip

    def _priced(
        self, collective: str, over: str, sizes: Number, ranks: float, placed: float
    ) -> tuple[Number, Number, Sequence[Number]]:
        """Time, bytes that a rank sends, and load of the links of a column of sizes."""
        if collective == DISPATCH:
            mixture = self.model.experts
            load = traffic.deduplicated_links(sizes, mixture, ranks, placed, self.network)
            times = collectives.deduplicated_all_to_all(sizes, mixture, ranks, placed, self.network, self.software)
            return times, load[0] + load[1], load
        _, sends, loads, by_sent = _PRICES[collective]
        sent = sends(sizes, ranks)
        times = _timed(collective, over)(sizes, ranks, placed, self.network, self.software)
        return times, sent, loads(sent if by_sent else sizes, ranks, placed, self.network)

    def layers_of(self, stage: Stage) -> tuple[float, float]:
        """Layers with a dense MLP and with routed experts, multi-token-prediction modules included."""
        model = self.result.model
        experts = sum(number >= model.layers - model.expert_layers for number in stage.layers)
        deep = model.prediction_layers * stage.head
        sparse = deep * (model.expert_layers > 0)
        return float(len(stage.layers) - experts + deep - sparse), float(experts + sparse)

    def activations(self, stage: Stage) -> None:
        """What the layers and the boundaries of a stage exchange."""
        model, settings, plan, m = self.model, self.settings, self.plan, self.passes
        dense, sparse = self.layers_of(stage)
        hidden = communication.hidden_message(model, settings, plan)
        once = dense * communication.tensor_reductions(model, 0.0) + sparse * communication.tensor_reductions(model, 1.0)
        again = dense * communication.repeated_reductions(model, plan, 0.0)
        again = again + sparse * communication.repeated_reductions(model, plan, 1.0)
        scattered = plan.sequence_parallel > 0.0
        turns = {
            "forward": (once, 1.0, 1.0), "backward": (once, 1.0, 1.0),
            "recompute": (again, float(plan.recompute_layers), float(communication.repeated_dispatches(plan))),
        }  # fmt: skip
        for phase, (reductions, share, dispatches) in turns.items():
            edge = stage.embedding * (phase == "forward") + stage.head * (phase == "backward")
            count = m * (reductions + edge)
            for name in ("all-gather", "reduce-scatter") if scattered else ("all-reduce",):
                self.add(stage.name, phase, "tensor", name, plan.tensor, plan.tensor_stride, hidden, count)
            turn = m * share * (plan.context - 1.0) * (dense + sparse) * (2.0 if phase == "backward" else 1.0)
            keys = communication.context_message(model, settings, plan)
            self.add(stage.name, phase, "context", "send", plan.context, plan.context_stride, keys, turn)
            self._experts(stage, phase, m * dispatches * sparse)
        _, crossing = communication.boundary(model, settings, plan, self.network, self.software)
        for phase, made in self.sends(stage).items():
            count = self.micro_batches * made
            self.add(stage.name, phase, "pipeline", "send", plan.pipeline, plan.pipeline_stride, crossing, count)

    def sends(self, stage: Stage) -> dict[str, float]:
        """Messages of a micro-batch that a rank sends each way."""
        schedule, chunks = self.plan.schedule, self.plan.virtual_stages
        each = float(schedules.crossings(schedule, chunks))
        lacking = 2.0 * each - float(schedules.messages(schedule, chunks, float(stage.name != "middle")))
        forward = 0.5 if self.folded else float(stage.name == "last")
        return {"forward": each - lacking * forward, "backward": each - lacking * (1.0 - forward)}

    def _experts(self, stage: Stage, phase: str, passes: float) -> None:
        if not passes:
            return
        plan, nbytes = self.plan, communication.expert_message(self.model, self.settings, self.plan)
        once = self.settings.kernels.deduplicated_dispatch > 0.0
        group = plan.expert, plan.expert_tensor
        self.add(stage.name, phase, "expert", DISPATCH if once else "all-to-all", *group, nbytes, 2.0 * passes)
        for name in ("all-gather", "reduce-scatter"):
            self.add(stage.name, phase, "expert tensor", name, plan.expert_tensor, plan.tensor_stride, nbytes, passes)

    def tensors(self, stage: Stage) -> LocalTensors:
        """Tensors of a rank of a stage."""
        plan = self.result.plan
        return stage_tensors(
            self.result.model, layers=stage.layers, embedding=stage.embedding, head=stage.head,
            tensor=plan.tensor_parallel, expert=plan.expert_parallel, expert_tensor=plan.expert_tensor_parallel,
        )  # fmt: skip

    def synchronisation(self, stage: Stage) -> list[Exchanged]:
        """What sums a stage's gradients and gathers its weights."""
        plan, settings, held = self.plan, self.settings, self.tensors(stage)
        groups = (
            ("data", ~held.routed, plan.data * plan.context, plan.data_stride),
            ("expert data", held.routed, communication.expert_ranks(plan), plan.expert * plan.expert_tensor),
        )
        found = []
        compressed = self.result.plan.compression != "none"
        for group, kept, ranks, stride in groups:
            if ranks <= 1.0 or not kept.any():
                continue
            shard = communication.sharing(ranks, plan)
            context = Context(
                int(ranks), int(shard), int(self.result.plan.zero_stage or 0), settings.widths.reduce,
                bool(settings.overlap.gradients), stage.embedding, int(plan.virtual_stages) * (1 + self.folded),
            )  # fmt: skip
            members = {"all": (ranks, stride), "shard": (shard, stride), "copies": (ranks / shard, stride * shard)}
            tensors = held.where(kept)
            for call in self.rule.calls(tensors, context):
                gathered = float(adapters.gathered_width(settings, plan))
                width = gathered if call.what == "weights" else settings.widths.reduce * settings.trainable
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

    def factors(self, stage: Stage, group: str, routed: float) -> Factors:
        """What PowerSGD makes of all gradients of a group of a stage, which for `routed` experts has so many."""
        model = stage_model(self.model, float(stage.layers[0]), float(len(stage.layers)))
        rank = self.settings.compression.rank
        if group == "expert data":
            return low_rank.expert_factors(model, self.plan, routed, rank)
        places = float(len(stage.layers)), float(stage.embedding), float(stage.head)
        return low_rank.stage_factors(model, self.plan, *places, rank)

    def states(self, stage: Stage) -> None:
        """What a stage exchanges of gradients and weights."""
        plan, opposite = self.plan, float(communication.opposite_stride(self.plan, self.network))
        for group, call, ranks, stride, nbytes in self.synchronisation(stage):
            sizes, counts = np.unique(nbytes, return_counts=True)
            times = self.passes if call.every else self.updates
            self.add(stage.name, call.phase, group, call.collective, ranks, stride, sizes, times * counts, over=call.over)
        if self.result.model.tied_embeddings and stage.embedding != stage.head:
            apart = plan.pipeline_stride * (plan.pipeline - 1.0)
            table = self.settings.widths.reduce * self.model.vocabulary.size * self.model.hidden / plan.tensor
            self.add(stage.name, "gradient sync", "embedding", "all-reduce", 2.0, apart, table, self.updates, opposite)
        if stage.twin:
            held, shards = self.tensors(stage), communication.shards(plan)
            kept = sum(held.numel[held.routed == routed].sum() / shard for routed, shard in enumerate(shards))
            kept_bytes = self.settings.widths.reduce * self.settings.trainable * float(kept)
            apart = stage.twin * plan.pipeline_stride
            self.add(stage.name, "gradient sync", "twin", "all-reduce", 2.0, apart, kept_bytes, 1.0, opposite)


def ledger(
    model: Transformer, cluster: Cluster, plan: Plan, framework: Framework | str = "megatron-core", *,
    buckets: Rule | None = None,
) -> Ledger:  # fmt: skip
    """Every transaction of one training step, priced as `estimate` prices it.

    Bytes and times are those of `estimate`: ``exchange_bytes`` is what a rank sends, and the times add up to what is
    exposed and what is hidden (pipeline sends apart, of which a part is neither; gradients of routed experts go beside the
    others). With ``buckets=OneBucket()``, of an estimate that has one bucket too, they are so exactly; else but for padding
    and buckets that tensors don't fill evenly. They differ where `estimate` prices time alone (expert-tensor groups), or takes
    a mean (vectors, routers and latent projections, of which each tensor rank has a copy; layers that differ between
    stages; prediction modules), and by the device's time to encode and decode compressed gradients, which is no
    transaction. Of a pipeline, `estimate` has the passes of the slowest rank and the weights of the fullest end.

    Of two directions each rank runs two stages, each with half of the micro-batches, and sums their gradients once a step
    with the rank that runs them too. PipeDream sums gradients and gathers sharded weights after every micro-batch;
    PipeDream-2BW once a step, which is what it accumulates.

    PowerSGD is kept in one bucket. Real buckets add a launch and a latency each, padding, and what a framework moves
    beyond the least (DeepSpeed's ZeRO-1 and ZeRO-2).

    Parameters
    ----------
    model, cluster, plan, framework : as for `estimate`
    buckets : a rule of `costmodel.description.buckets`; the framework's own if None

    Returns
    -------
    Ledger
        transactions of a rank of each stage: bytes, counts, seconds

    Raises
    ------
    InvalidValue, IllegalPlan
        as `estimate`
    NotModelled
        where the rule doesn't know the plan's ZeRO stage, or adapters or PowerSGD are put into real buckets

    Assumes equal micro-batches; all ranks between the first and the last to be as the second.

    Examples
    --------
    >>> from costmodel import Plan, load_cluster, load_model
    >>> made = ledger(
    ...     load_model("bloom-560m"), load_cluster("dgx-h100", gpus=64),
    ...     Plan(global_batch=64, seq_len=2048, data_parallel=64, zero_stage=2), "deepspeed")
    >>> [(size.collective, size.nbytes, size.count) for size in made.histogram()]
    [('all-reduce', 513802240.0, 1.0), ('all-reduce', 604626944.0, 1.0), ('all-gather', 1118429184.0, 1.0)]
    """
    if isinstance(buckets, rules.OneBucket):  # the estimate's buckets are the ledger's
        kind("cluster", cluster, Cluster, "load_cluster(name)")
        framework = dataclasses.replace(framework_on(cluster, framework), buckets="one")
        plan = dataclasses.replace(plan, bucket_bytes=None, prefetch_bytes=None)
    return ledger_of(estimate(model, cluster, plan, framework), buckets)


def _rule(result: Estimate) -> Rule:
    """The rule of an estimate's framework, with the sizes of buckets that its plan asks for."""
    plan, widths = result.plan, result.inputs.settings.widths
    bucket = None if plan.bucket_bytes is None else max(int(plan.bucket_bytes // widths.reduce), 1)
    prefetch = None if plan.prefetch_bytes is None else max(int(plan.prefetch_bytes // widths.stored), 1)
    name = result.framework.buckets
    rule: Rule = rules.rule_of(name, int(plan.zero_stage or 0), bucket, prefetch)
    if isinstance(rule, rules.DistributedDataParallel) and plan.bucket_bytes is not None:
        rule = dataclasses.replace(rule, cap=float(plan.bucket_bytes))
    return rule


def ledger_of(result: Estimate, buckets: Rule | None = None) -> Ledger:
    """The ledger of an estimate.

    Parameters
    ----------
    result : the step
    buckets : as of `ledger`
    """
    if result.plan.synchronisation != "all-reduce":
        raise NotModelled(f"a ledger of synchronisation={result.plan.synchronisation!r}: only all-reduce's is kept")
    adapted, factored = result.plan.adapter != "none", result.plan.compression == "power-sgd"
    rule = buckets
    if rule is None:
        known = _rule(result)
        rule = rules.OneBucket() if adapted or factored else known
    if isinstance(rule, type) or not callable(getattr(rule, "calls", None)):
        raise InvalidValue("buckets", buckets, "a rule of costmodel.description.buckets, as DeepSpeed() makes one")
    if adapted and not isinstance(rule, rules.OneBucket):
        raise NotModelled(f"adapter={result.plan.adapter!r} in real buckets: only OneBucket() knows the share that trains")
    if factored and not isinstance(rule, rules.OneBucket):
        raise NotModelled("compression='power-sgd' in real buckets: only OneBucket() knows the factors of its matrices")
    book = _Book(result, rule)
    stages = book.stages
    for stage in stages:
        book.activations(stage)
        book.states(stage)
    return Ledger(estimate=result, rule=rule, stages=stages, transactions=tuple(book.rows))


__all__ = ["GROUPS", "PHASES", "Exchanged", "Ledger", "Load", "Size", "Stage", "Transaction", "ledger"]
