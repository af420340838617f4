"""The traffic ledger of a plan: every transaction of one step, and the load that they leave on each class of links."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from costmodel.catalogue.asking import ModelLike, asked
from costmodel.catalogue.clusters import ClusterLike
from costmodel.catalogue.keywords import by_other_names
from costmodel.catalogue.software import framework_on
from costmodel.description import buckets as rules
from costmodel.description.buckets import Bucketing, Overlap
from costmodel.description.framework import SIZES_OF_BUCKETS, Framework
from costmodel.description.labels import label
from costmodel.description.plan import Plan
from costmodel.evaluation.estimation import Estimate, estimate, title
from costmodel.evaluation.prices import price_of
from costmodel.evaluation.transactions import (
    GROUPS,
    PHASES,
    AlikeRanks,
    Exchanged,
    Transaction,
    TransactionPricer,
    rule_of_plan,
)
from costmodel.text.checks import choice
from costmodel.text.errors import InvalidValue, NotModelled
from costmodel.text.results import RowTable, figure
from costmodel.text.tables import headed, table
from costmodel.text.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """Transactions of one size."""

    nbytes: float  # whole buffer, or message [bytes]
    collective: str  # collective, group: which operation, among whom
    group: str
    count: float  # on a rank in one step


class Load(NamedTuple):
    """Load of a GPU's link of one level, in the direction that carries more, on the stage that loads it most."""

    level: str  # of the cluster
    stage: str  # that loads it most
    bandwidth: float  # of the link that collectives reach, the software's factor included [bytes/s]
    nbytes: float  # in one step [bytes]
    busy: float  # share of the step in which it carries bytes at that rate
    mean_rate: float  # over the step [bytes/s]
    peak_rate: float  # in its fastest transaction [bytes/s]
    peak_group: str  # whose transaction that is; empty for a link without load


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ledger(RowTable):
    """Every transaction of one step.

    Parameters
    ----------
    estimate : the step that they belong to
    rule : by which gradients and weights are put into buckets
    stages : of the pipeline
    transactions : of a rank of each stage
    """

    estimate: Estimate
    rule: Bucketing
    stages: tuple[AlikeRanks, ...]
    transactions: tuple[Transaction, ...]

    plot = figure
    first_column = "stage"

    def __repr__(self) -> str:
        return headed(*self._said())

    def _repr_html_(self) -> str:
        rows = [
            [row.collective, row.group, f"{row.count:,.0f}", format_bytes(row.nbytes), format_seconds(row.count * row.time)]
            for row in sorted(self.of(), key=lambda row: -row.count * row.time)
        ]
        return table(": ".join(self._said()), ["collective", "group", "count", "size", "time in all"], rows)

    def _said(self) -> tuple[str, str]:
        """What it is of, and what came out."""
        busiest = self.saturates_first
        return (
            f"Ledger: {title(self.estimate)}, {label(self.estimate.plan)}: {format_bytes(self.cluster_bytes)} a step in all",
            f"a rank of the {self.busiest} stage sends {format_bytes(self.sent_bytes[self.busiest])}; "
            f"{busiest.level} is busy {100 * busiest.busy:.1f} % of the step"
        )

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
        one = self._stage(stage)
        book = TransactionPricer(self.estimate.question, self.estimate.plan, self.rule)
        passes, head, embedding = book.backward
        layers = np.full(len(one.layers), passes.data + passes.weight + passes.recompute)
        outer = head * one.head, embedding * one.embedding
        full, times = [], []
        for _, call, ranks, stride, nbytes in book.synchronisation(one):
            if call.phase == "gradient sync":
                full.append(rules.ready_times(call.layer, outer[0], layers, outer[1]))
                times.append(price_of(call.collective, call.over)(nbytes, ranks, stride, book.network, book.software))
        ready = np.concatenate(full or [np.empty(0)])
        order = np.argsort(ready, kind="stable")
        duration = np.concatenate(times or [np.empty(0)])[order]
        return rules.overlap(
            book.stretch * ready[order], book.stretch * duration, book.stretch * float(layers.sum() + sum(outer))
        )  # fmt: skip

    def synchronisation(self, stage: str | None = None) -> tuple[Exchanged, ...]:
        """Calls that sum a stage's gradients and gather its weights, in order.

        Parameters
        ----------
        stage : of the pipeline; the one that sends most if None
        """
        return tuple(
            TransactionPricer(self.estimate.question, self.estimate.plan, self.rule).synchronisation(self._stage(stage))
        )

    def _stage(self, name: str | None) -> AlikeRanks:
        """The stage of a name; the one that sends most if None."""
        chosen = self.busiest if name is None else choice("stage", name, self._stage_names)
        return next(stage for stage in self.stages if stage.name == chosen)

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


@by_other_names()
def ledger(
    model: ModelLike, cluster: ClusterLike | None = None, plan: Plan | None = None,
    framework: Framework | str | None = None, *, buckets: Bucketing | None = None, **choices: object,
) -> Ledger:  # fmt: skip
    """Every transaction of one training step, priced as `estimate` prices it.

    Bytes are those of `estimate`, whose ``exchange_bytes`` is what a rank of the stage that sends most sends. So are the times,
    which add up to what is exposed and what is hidden (pipeline sends apart, of which a part is neither; gradients of routed
    experts go beside the others): exactly with ``buckets=OneBucket()``, else but for buckets that tensors don't fill evenly.
    They differ where `estimate` takes a mean (layers that differ between stages; prediction modules), and by the device's time
    to encode and decode compressed gradients, which is no transaction. Of a pipeline, `estimate` has the passes of the slowest
    rank and the weights of the fullest end.

    Of two directions each rank runs two stages, each with half of the micro-batches, and sums their gradients once a step
    with the rank that runs them too. PipeDream sums gradients and gathers sharded weights after every micro-batch;
    PipeDream-2BW once a step, which is what it accumulates.

    PowerSGD is kept in one bucket. Real buckets add a launch and a latency each, padding, and what a framework moves
    beyond the least (DeepSpeed's ZeRO-1 and ZeRO-2).

    Parameters
    ----------
    model, cluster, plan, framework, choices : as for `estimate`, hardware such as ``device`` and ``gpus`` among the choices
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
    said = asked(model, cluster, plan, framework, choices)
    if isinstance(buckets, rules.OneBucket):  # the estimate's buckets are the ledger's
        unsized: dict[str, Any] = dict.fromkeys(SIZES_OF_BUCKETS)
        said = said._replace(
            framework=dataclasses.replace(framework_on(said.cluster, said.framework), buckets="one"),
            plan=dataclasses.replace(said.plan, **unsized),
        )
    return ledger_of(estimate(*said), buckets)


def ledger_of(result: Estimate, buckets: Bucketing | None = None) -> Ledger:
    """The ledger of an estimate.

    Parameters
    ----------
    result : the step
    buckets : as of `ledger`
    """
    if result.plan.synchronisation != "all-reduce":
        raise NotModelled(f"a ledger of synchronisation={result.plan.synchronisation!r}: only all-reduce's is kept")
    adapted, factored = result.plan.adapter != "none", result.plan.compression == "power-sgd"
    rule = rule_of_plan(result.question, result.plan) if buckets is None else buckets
    if isinstance(rule, type) or not callable(getattr(rule, "calls", None)):
        raise InvalidValue("buckets", buckets, "a rule of costmodel.description.buckets, as DeepSpeed() makes one")
    if adapted and not isinstance(rule, rules.OneBucket):
        raise NotModelled(f"adapter={result.plan.adapter!r} in real buckets: only OneBucket() knows the share that trains")
    if factored and not isinstance(rule, rules.OneBucket):
        raise NotModelled("compression='power-sgd' in real buckets: only OneBucket() knows the factors of its matrices")
    book = TransactionPricer(result.question, result.plan, rule)
    stages = book.stages
    for stage in stages:
        book.activations(stage)
        book.states(stage)
    return Ledger(estimate=result, rule=rule, stages=stages, transactions=tuple(book.rows))


__all__ = ["GROUPS", "PHASES", "AlikeRanks", "Exchanged", "Ledger", "Load", "Size", "Transaction", "ledger"]
