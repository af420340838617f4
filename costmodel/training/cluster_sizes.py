"""How many GPUs of each kind end a run in time: the fewest as expected, the fewest that are sure to, and what they cost."""

from __future__ import annotations

import bisect
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.asking import ModelLike, is_bare_device, model_of
from costmodel.catalogue.clusters import ClusterLike, cluster_of, load_cluster
from costmodel.catalogue.keywords import by_other_names
from costmodel.catalogue.loader import names
from costmodel.description.cluster import Cluster
from costmodel.description.device import Device
from costmodel.description.transformer import Transformer
from costmodel.description.usual_work import LENGTH, no_longer
from costmodel.evaluation.estimation import Estimate, probability
from costmodel.evaluation.plan_search import search
from costmodel.text.attributes import names_what_is_there
from costmodel.text.checks import positive_int, real
from costmodel.text.errors import CostModelError, IllegalPlan, InvalidValue
from costmodel.text.results import AnswerTable, brief
from costmodel.text.tables import headed, table
from costmodel.text.units import counted, format_days
from costmodel.training.cost import Tariff, prices_of
from costmodel.training.duration import DAY, TrainingRun, time_to_train, token_count

BATCHES = (1024, 4096, 16384)
"""Sequences of a step that are tried where none are said, until some cluster ends in time: with 4,096 tokens each 4, 17 and 67
million, as of GPT-3 (3.2 million, arXiv:2005.14165), Llama 3 (16, arXiv:2407.21783) and DeepSeek-V3 (63, arXiv:2412.19437)."""
SURE = 0.9
"""Probability to end in time from which a cluster is called sure."""
USUAL_UTILISATION = 0.4
"""Of a device's peak: where the search for a size begins."""
MOST_GPUS = 65_536
STEPS = (1, 2, 3, 4, 6)
"""Nodes that are tried: these, and from there on twice as many."""
SCALING, BEYOND = 0.9, 1.5
"""Of the GPUs that a size asks for by its own rate: the share that is tried next, and from how many times the most none is."""
LEAST_MEMORY = 79e9
"""Bytes of the devices whose clusters are tried unless they are said."""


class SizeInTime(NamedTuple):
    """So many GPUs of a cluster."""

    gpus: int  # how many
    run: TrainingRun  # the whole run with the fastest plan that fits
    in_time: float  # probability that it ends in time


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterSize:
    """One kind of cluster, and how many of its GPUs it takes."""

    cluster: str  # its name
    device: str  # its GPUs
    expected: SizeInTime | None  # the fewest GPUs that are expected to end in time; None where none are
    sure: SizeInTime | None  # the fewest that do with the probability that was asked for; None where none are
    price: float | None  # of a GPU for an hour; None where none was told
    why: str  # there is none, in words; else empty

    __repr__ = brief

    @property
    def estimate(self) -> Estimate:
        """Of the step on as many GPUs as are expected to do; IllegalPlan where none are."""
        if self.expected is None:
            raise IllegalPlan("none", self.why)
        return self.expected.run.estimate

    def to_dict(self) -> Row:
        """Flat names with units, for JSON and frames."""
        row: Row = {"cluster": self.cluster, "device": self.device, "price_per_gpu_hour": self.price, "why": self.why}
        for name, size in (("", self.expected), ("sure_", self.sure)):
            row[f"{name}gpus"] = None if size is None else size.gpus
            row[f"{name}probability_in_time"] = None if size is None else size.in_time
            figures = {} if size is None else size.run.to_dict()
            row |= {f"{name}{field}": figures.get(field) for field in ("days", "days_low", "days_high", "gpu_hours", "price")}
            row[f"{name}step_time_s"] = None if size is None else size.run.estimate.step_time
        return row | {"evidence": None if self.expected is None else self.expected.run.estimate.evidence}


@names_what_is_there
@dataclasses.dataclass(frozen=True)
class ClusterSizes(AnswerTable[ClusterSize]):
    """Kinds of clusters, those first that need the least money, or without prices the fewest GPUs.

    Parameters
    ----------
    model : what is trained
    tokens : of the run
    within : time that it may take [s]
    required : probability from which a size is called sure
    rows : of the clusters
    global_batch : sequences of a step
    """

    model: Transformer
    tokens: float
    within: float
    required: float
    rows: tuple[ClusterSize, ...]
    global_batch: int

    first_column = "cluster"

    def __repr__(self) -> str:
        shown = [f"{one.cluster}: {one.expected.gpus:,} GPUs" for one in self.reached[:6] if one.expected]
        return headed(f"ClusterSizes: {self.said()}", *shown)

    def _repr_html_(self) -> str:
        rows = [
            (one.cluster, f"{one.expected.gpus:,}", f"{one.expected.run.days:.3g}", f"{one.expected.in_time:.0%}",
             "-" if one.sure is None else f"{one.sure.gpus:,}")
            for one in self.reached if one.expected
        ]  # fmt: skip
        return table(self.said(), ("cluster", "GPUs", "days", "P(in time)", f"GPUs, {self.required:.0%} sure"), rows)

    @property
    def answers(self) -> tuple[ClusterSize, ...]:
        """The rows."""
        return self.rows

    @property
    def reached(self) -> tuple[ClusterSize, ...]:
        """Those of which some number of GPUs ends in time."""
        return tuple(one for one in self.rows if one.expected is not None)

    def ties(self) -> tuple[ClusterSize, ...]:
        """The rows that may need no more money, or without prices no more GPUs, than the first needs to be sure; itself first."""
        if not self.reached:
            return ()
        first = self.reached[0]
        most = _needed(first, first.sure)
        return tuple(one for one in self.reached if one is first or _needed(one, one.expected) <= most)

    def to_rows(self) -> list[Row]:
        """One dictionary a cluster, with units in the names."""
        tied = {id(one) for one in self.ties()}
        return [one.to_dict() | {"tied": id(one) in tied} for one in self.rows]

    def said(self) -> str:
        """The answer in a sentence: the first row's GPUs."""
        days = self.within / DAY
        if not self.reached:
            return f"No cluster that was tried ends within {format_days(days)}"
        best = self.reached[0]
        assert best.expected is not None
        line = f"{best.expected.gpus:,} GPUs of {best.cluster} end within {format_days(days)} with probability "
        line += f"{100 * best.expected.in_time:.0f} %"
        if best.sure is not None and best.sure.gpus != best.expected.gpus:
            line += f", {best.sure.gpus:,} with {100 * best.sure.in_time:.0f} %"
        return line


def _needed(kind: ClusterSize, size: SizeInTime | None) -> float:
    """Money of a size, or without prices its GPUs; without end where none is."""
    if size is None:
        return float("inf")
    return float(size.gpus) if kind.price is None else float(size.run.cost.price or 0.0)


def usual_clusters() -> list[Cluster]:
    """The first cluster of the catalogue of each device with memory for large models, one node of each."""
    found: dict[str, Cluster] = {}
    for name in names("cluster"):
        cluster = load_cluster(name)
        if cluster.device.memory >= LEAST_MEMORY and len(cluster.levels) > 1:
            found.setdefault(cluster.device.name, cluster)
    return list(found.values())


def of_any_size(kind: ClusterLike) -> Cluster:
    """A kind of cluster that is tried in several sizes; of a device as many as are tried at most.

    Parameters
    ----------
    kind : a cluster or a device, or its name

    Examples
    --------
    >>> len(of_any_size("h100").levels), len(of_any_size("dgx-h100").levels)
    (2, 2)
    """
    return cluster_of(kind, gpus=MOST_GPUS if is_bare_device(kind, {}) else None)


@by_other_names(cluster="clusters", device="clusters")
def gpus_in_time(
    model: ModelLike, clusters: ClusterLike | Iterable[ClusterLike] | None = None, *, tokens: float | str, days: float,
    global_batch: int | None = None, seq_len: int | None = None, framework: str = "megatron-core",
    price: Mapping[str, float] | float | None = None, sure: float = SURE, **asked: object,
) -> ClusterSizes:  # fmt: skip
    """The fewest GPUs of each kind of cluster on which a run ends in time, with the fastest plan that fits.

    Parameters
    ----------
    model : what is trained
    clusters : kinds to try, of any size, or devices, in nodes as they come in; the first of the catalogue of each large device if
        None
    tokens : of the run
    days : that it may take
    global_batch : sequences of a step; if None the first of `BATCHES` with which some cluster ends in time
    seq_len : [tokens]; if None as usual, and no longer than the model's positions
    framework : the software
    price : of a GPU for an hour in any currency, one for all or by device or cluster
    sure : probability to end in time from which a size is called sure
    asked : as `costmodel.search` takes it: any dimension of a plan

    Returns
    -------
    ClusterSizes
        nodes are tried in the numbers 1, 2, 3, 4, 6, 8, 12, ...: the fewest that are expected to end in time, and the fewest
        that do with the probability

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected

    Nothing is lost to failures. The batch is the same on every size, so that more GPUs split it further.

    Examples
    --------
    >>> from costmodel import load_cluster, load_model
    >>> made = gpus_in_time(load_model("llama3-8b"), [load_cluster("dgx-h100")], tokens=1e11, days=10, global_batch=256,
    ...                     pipeline_parallel=1, context_parallel=1)
    >>> row = made.rows[0]
    >>> row.expected.run.days <= 10 < 2.5 * row.expected.run.days, row.sure.gpus > row.expected.gpus
    (True, True)
    """
    model = model_of(model)
    several = [clusters] if isinstance(clusters, str | os.PathLike | Cluster | Device) else clusters
    tried = usual_clusters() if several is None else [of_any_size(one) for one in several]
    tokens = token_count(tokens)
    within = real("days", days, 1e-6, 1e6) * DAY
    batches = BATCHES if global_batch is None else (positive_int("global_batch", global_batch, 10**8),)
    length = no_longer(model, LENGTH) if seq_len is None else positive_int("seq_len", seq_len, 10**8)
    probability("sure", sure)
    prices = prices_of(price, sorted({name for one in tried for name in (one.name, one.device.name)}))
    rows: list[ClusterSize] = []
    for batch in batches:
        work: Row = {"global_batch": batch, "seq_len": length, "framework": framework, **asked}
        rows = [_row(model, one, tokens, within, sure, prices.get(one.name, prices.get(one.device.name)), work) for one in tried]
        if any(one.expected for one in rows):
            break
    far = float("inf")

    def order(row: ClusterSize) -> tuple[float, float]:
        if row.expected is None:
            return far, far
        return row.expected.run.cost.price or 0.0, float(row.expected.gpus)

    return ClusterSizes(model, tokens, within, sure, tuple(sorted(rows, key=order)), batch)


def _row(
    model: Transformer, cluster: Cluster, tokens: float, within: float, sure: float, price: float | None, work: Row
) -> ClusterSize:
    sizes = _sizes(cluster)
    why: list[str] = []
    known: dict[int, SizeInTime | None] = {}

    def of(place: int) -> SizeInTime | None:
        if place not in known:
            known[place] = _size(model, cluster.with_gpus(sizes[place]), tokens, within, price, work, why)
        return known[place]

    start = _start(model, cluster, tokens, within, sizes)
    expected = _fewest(of, sizes, start, lambda size: size.run.time / within)
    certain = None if expected is None else _fewest(
        of, sizes, expected, lambda size: size.run.time / (within * size.run.error.margin(sure)), down=False
    )  # fmt: skip
    found = None if expected is None else of(expected)
    reason = "" if found else why[-1] if why and not any(known.values()) else (
        f"not in time on as many as {counted(sizes[-1], 'GPU')}; a larger batch has work for more"
    )  # fmt: skip
    return ClusterSize(
        cluster=cluster.name, device=cluster.device.name, expected=found, sure=None if certain is None else of(certain),
        price=price, why=reason,
    )  # fmt: skip


def _sizes(cluster: Cluster) -> list[int]:
    """Numbers of GPUs that are tried, whole nodes: a network between nodes is taken to go on as it is specified."""
    node, most = cluster.gpus_per_node, MOST_GPUS if len(cluster.levels) > 1 else cluster.gpus_per_node
    nodes = sorted({step * 2**power for step in STEPS for power in range(17)})
    return [node * count for count in nodes if node * count <= most]


def _start(model: Transformer, cluster: Cluster, tokens: float, within: float, sizes: list[int]) -> int:
    """Where the search begins: as many GPUs as the usual share of their peak asks for."""
    device = cluster.device
    peak = max(device.dense_peak.get(dtype, 0.0) for dtype in ("bf16", "fp16", "fp32"))
    gpus = 6.0 * float(model.active_parameters) * tokens / (USUAL_UTILISATION * peak * within)
    return min(bisect.bisect_left(sizes, gpus), len(sizes) - 1)


def _size(
    model: Transformer, cluster: Cluster, tokens: float, within: float, price: float | None, work: Row, why: list[str]
) -> SizeInTime | None:
    """The whole run on so many GPUs; None where no plan can run or fit there, which is noted."""
    try:
        found = search(model, cluster, top=1, **work)
    except InvalidValue:
        raise
    except CostModelError as error:
        why.append(str(error))
        return None
    if not found.ranked:
        why.append(found.why_none())
        return None
    run = time_to_train(found.best, tokens=tokens, tariff=Tariff(gpu_hour=price))
    return SizeInTime(cluster.gpus or 1, run, run.error.probability_below(run.time, within))


def _fewest(
    of: Callable[[int], SizeInTime | None], sizes: list[int], start: int, lateness: Callable[[SizeInTime], float],
    down: bool = True,
) -> int | None:
    """The first place that is not late; None where none is, or where so many more GPUs are lacking that none can be.

    Parameters
    ----------
    of : what there is at a place
    sizes : GPUs of the places
    start : where it is looked for first
    lateness : of a size, its time over what it may take
    down : smaller sizes than the first may do too
    """
    place, low = start, -1
    while True:
        size = of(place)
        late = float("inf") if size is None else lateness(size)
        if late <= 1.0:
            break
        low = place
        wanted = sizes[place] * late if size is not None else 0.0
        if place + 1 == len(sizes) or wanted > BEYOND * sizes[-1]:
            return None
        place = min(max(place + 1, bisect.bisect_left(sizes, SCALING * wanted)), len(sizes) - 1)
    while place - 1 > low and (down or low >= start):
        size = of(place - 1)
        if size is None or lateness(size) > 1.0:
            break
        place -= 1
    return place
