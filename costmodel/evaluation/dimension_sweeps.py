"""The best plan at every point of a grid: over any two dimensions, or over numbers of GPUs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from costmodel.catalogue.asking import ModelLike, asked_search, is_bare_device, model_of
from costmodel.catalogue.clusters import ClusterLike, cluster_of
from costmodel.catalogue.keywords import by_other_names
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.factors import quantities, scaled
from costmodel.evaluation.plan_search import CHOICES, SPLIT, SearchResult, search_by_name
from costmodel.text.checks import listing, positive_int, real
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief, figure
from costmodel.text.tables import headed
from costmodel.text.units import counted

if TYPE_CHECKING:
    import plotly.graph_objects as go

COLUMNS = (*SPLIT, "data_parallel")
"""Dimensions along which one search has every cell."""
QUESTION = ("global_batch", "seq_len", "gpus")
MOST_CELLS = 2500


class Cell(NamedTuple):
    """The fastest plan at one point of a grid."""

    plan: Plan | None  # that fits and is fastest; the leanest where none fits; None where none is legal
    step_time: float | None  # of that plan [s]; None where none is legal
    peak_memory: float | None  # of its fullest GPU [bytes]; None where none is legal
    fits: bool  # whether it fits
    legal: int  # plans that were evaluated here


class HeatMap(NamedTuple):
    """Cells over two dimensions."""

    across: str  # across, down: names of the dimensions
    down: str
    columns: tuple[object, ...]  # columns, rows: their values
    rows: tuple[object, ...]
    cells: tuple[tuple[Cell, ...], ...]  # row by row

    def __repr__(self) -> str:
        return brief(self)

    def plot(self, kind: str | None = None) -> go.Figure:
        """As `costmodel.text.results.figure`."""
        return figure(self, kind)


class ScalingPoint(NamedTuple):
    """The best plan on one number of GPUs."""

    gpus: int  # how many
    global_batch: int  # sequences per step
    plan: Plan | None = None  # the fastest that fits; None where none does
    step_time: float | None = None  # [s]; None where none fits
    low: float | None = None  # low, high: 90 % interval of the step time, of the framework's error alone [s]
    high: float | None = None
    tokens_per_second: float | None = None  # of the cluster
    why: str = ""  # where no plan fits


class Scaling(NamedTuple):
    """Rates over numbers of GPUs."""

    strong: tuple[ScalingPoint, ...]  # the global batch stays
    weak: tuple[ScalingPoint, ...]  # the global batch grows with the GPUs

    def __repr__(self) -> str:
        kinds = ("the global batch stays", self.strong), ("the global batch grows with the GPUs", self.weak)
        return headed("Scaling: tokens/s of the best plan", *(
            f"{words}: {', '.join(map(_rate_of, points))}" for words, points in kinds))  # fmt: skip

    def plot(self, kind: str | None = None) -> go.Figure:
        """As `costmodel.text.results.figure`."""
        return figure(self, kind)


def heat_map(
    model: ModelLike, cluster: ClusterLike, *, across: tuple[str, Sequence[object]], down: tuple[str, Sequence[object]],
    global_batch: int, seq_len: int, framework: Framework | str = "megatron-core", engine: str = "auto", **dimensions: object,
) -> HeatMap:  # fmt: skip
    """The fastest plan at every pair of values of two dimensions, all others free.

    Parameters
    ----------
    model, cluster : what is trained, on what, or their names, as ``"llama3-8b"`` and ``"8xh100"``
    across, down : name and values of a dimension: a field of `Plan`, ``"global_batch"``, ``"seq_len"``, ``"gpus"``, or
        a name of `costmodel.evaluation.factors.quantities`, whose values are factors
    global_batch : sequences per step
    seq_len : [tokens]
    framework : the software, or its name in the catalogue
    engine : as `costmodel.search` takes it
    dimensions : of the other dimensions, as `costmodel.search` takes them

    Returns
    -------
    HeatMap
        seconds and bytes

    Raises
    ------
    InvalidValue
        for a dimension or a value that a search doesn't take

    Examples
    --------
    >>> from costmodel import load_cluster, load_model
    >>> made = heat_map(
    ...     load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), across=("tensor_parallel", [1, 2]),
    ...     down=("pipeline_parallel", [1, 2]), global_batch=32, seq_len=8192, context_parallel=1,
    ... )
    >>> [[cell.plan.data_parallel for cell in row] for row in made.cells]
    [[8, 4], [4, 2]]
    """
    model, cluster = model_of(model), cluster_of(cluster)
    axes = [_axis(axis, model, cluster) for axis in (across, down)]
    if axes[0][0] == axes[1][0]:
        raise InvalidValue("down", axes[1][0], f"another dimension than across={axes[0][0]!r}")
    if len(axes[0][1]) * len(axes[1][1]) > MOST_CELLS:
        raise InvalidValue("across", f"{len(axes[0][1])} x {len(axes[1][1])} values", f"at most {MOST_CELLS} cells")
    asked = {"global_batch": global_batch, "seq_len": seq_len, "framework": framework, "engine": engine, **dimensions}
    outer = [[(name, value) for value in values] for name, values in axes if name not in COLUMNS]
    inner = {name: list(values) for name, values in axes if name in COLUMNS}
    found: dict[tuple[object, object], Cell] = {}
    for point in itertools.product(*outer):
        fixed = dict(point)
        result = _search(model, cluster, fixed, {**asked, **inner})
        for values in itertools.product(*inner.values()):
            at = {**fixed, **dict(zip(inner, values, strict=True))}
            found[at[axes[0][0]], at[axes[1][0]]] = _cell(result, dict(zip(inner, values, strict=True)))
    (wide, columns), (tall, rows) = axes
    return HeatMap(wide, tall, columns, rows, tuple(tuple(found[x, y] for x in columns) for y in rows))


def _axis(axis: tuple[str, Sequence[object]], model: Transformer, cluster: Cluster) -> tuple[str, tuple[object, ...]]:
    try:
        name, given = axis
    except (TypeError, ValueError):
        raise InvalidValue("across", axis, "the name of a dimension and its values") from None
    known = (*COLUMNS, *CHOICES, *QUESTION, *quantities(model, cluster))
    if name not in known:
        raise InvalidValue("dimension", name, "one of " + ", ".join(known))
    values = tuple(dict.fromkeys(listing(name, given)))
    if not values:
        raise InvalidValue(name, list(values), "a list that is not empty")
    return name, values


def _search(model: Transformer, cluster: Cluster, fixed: dict[str, object], asked: dict[str, object]) -> SearchResult:
    """The search at one point of the dimensions that are no columns."""
    factors = {name: real(name, value, 0.0, math.inf) for name, value in fixed.items() if name in quantities(model, cluster)}
    model, cluster = scaled(model, cluster, factors)
    if "gpus" in fixed:
        cluster = cluster.with_gpus(positive_int("gpus", fixed["gpus"], 10**9))
    rest = {name: value for name, value in fixed.items() if name not in factors and name != "gpus"}
    return search_by_name(model, cluster, top=1, keep_evaluated=True, **{**asked, **rest})


def _cell(result: SearchResult, values: dict[str, object]) -> Cell:
    """The best of a search's plans that have some values."""
    every = result.every
    assert every is not None
    here = np.ones(len(every), dtype=bool)
    for name, value in values.items():
        here &= every.columns[name] == value
    places = np.flatnonzero(here)
    if not len(places):
        return Cell(None, None, None, False, 0)
    inside = places[every.fits[places]]
    best = int(inside[np.argmin(every.step_time[inside])] if len(inside) else places[np.argmin(every.peak_memory[places])])
    return Cell(every.plan(best), float(every.step_time[best]), float(every.peak_memory[best]), bool(len(inside)), len(places))


@by_other_names()
def scaling(
    model: ModelLike, cluster: ClusterLike | None = None, *, global_batch: int | None = None, seq_len: int | None = None,
    gpus: Sequence[int] | None = None, framework: Framework | str | None = None, engine: str = "auto", **dimensions: object,
) -> Scaling:  # fmt: skip
    """The best plan on each number of GPUs: with the same global batch, and with one that grows with the GPUs.

    Parameters
    ----------
    model, cluster : what is trained, on what, or their names, as ``"llama3-8b"`` and ``"8xh100"``
    global_batch : sequences per step, on the cluster's own number of GPUs; a usual one if None
    seq_len : [tokens]; a usual length if None
    gpus : how many to try; from a quarter of the cluster's to eight times as many, by doubling, if None
    framework : the software, or its name in the catalogue; as of `costmodel.search` if None
    engine : as `costmodel.search` takes it
    dimensions : of the plans, as `costmodel.search` takes them

    Returns
    -------
    Scaling
        seconds and tokens/s

    Raises
    ------
    InvalidValue
        for a value that a search doesn't take

    Examples
    --------
    >>> from costmodel import load_cluster, load_model
    >>> made = scaling(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=16), global_batch=64, seq_len=8192, gpus=[8, 16])
    >>> [point.global_batch for point in made.weak]
    [32, 64]
    """
    most = {"gpus": max(listing("gpus", gpus), default=1)} if gpus is not None and is_bare_device(cluster, dimensions) else {}
    named = asked_search(model, cluster, framework, {**dimensions, **most, "global_batch": global_batch, "seq_len": seq_len})
    asked = {"seq_len": named.work["seq_len"], "framework": named.framework, "engine": engine, **named.dimensions}

    def find(pairs: Sequence[tuple[int, int]]) -> list[SearchResult]:
        sizes = [(named.cluster.with_gpus(number), batch) for number, batch in pairs]
        return [search_by_name(named.model, on, global_batch=batch, top=1, **asked) for on, batch in sizes]

    return scaling_of(find, named.cluster, named.work["global_batch"], gpus)


def scaling_of(
    find: Callable[[Sequence[tuple[int, int]]], Sequence[SearchResult]], cluster: Cluster, global_batch: int,
    gpus: Sequence[int] | None = None,
) -> Scaling:  # fmt: skip
    """As `scaling`, of searches that are made elsewhere.

    Parameters
    ----------
    find : the searches of some pairs of a number of GPUs and a global batch
    cluster : whose own number of GPUs has the global batch
    global_batch : sequences per step
    gpus : how many to try; from a quarter of the cluster's to eight times as many, by doubling, if None

    Raises
    ------
    InvalidValue
        for a number of GPUs, or of sequences, that can't be
    """
    own = int(cluster.gpus or 1)
    positive_int("global_batch", global_batch, 1_000_000_000)
    numbers = sorted(set(listing("gpus", gpus))) if gpus is not None else list(_around(cluster))
    for number in numbers:
        positive_int("gpus", number, 10_000_000)
    grown = {number: max(1, round(global_batch * number / own)) for number in numbers}
    pairs = list(dict.fromkeys([*((number, global_batch) for number in numbers), *grown.items()]))
    points = {pair: _point(result, *pair) for pair, result in zip(pairs, find(pairs), strict=True)}
    return Scaling(tuple(points[number, global_batch] for number in numbers), tuple(points[pair] for pair in grown.items()))


def _around(cluster: Cluster) -> Iterator[int]:
    own = int(cluster.gpus or 1)
    most = cluster.levels[0].size if len(cluster.levels) == 1 else 10_000_000
    for doubling in range(-2, 4):
        number = own << doubling if doubling >= 0 else own >> -doubling
        if 1 <= number <= most and (doubling >= 0 or number << -doubling == own):
            yield number


def _rate_of(point: ScalingPoint) -> str:
    """A number of GPUs and its rate, in short."""
    rate = "none fits" if point.tokens_per_second is None else f"{point.tokens_per_second:,.0f}"
    return f"{rate} on {counted(point.gpus, 'GPU')}"


def _point(result: SearchResult, number: int, global_batch: int) -> ScalingPoint:
    if not result.ranked:
        return ScalingPoint(number, global_batch, why=result.why_none())
    best: Estimate = result.best
    low, high = best.time_interval
    return ScalingPoint(number, global_batch, best.plan, best.step_time, low, high, best.tokens_per_second)


def ideal(points: Sequence[ScalingPoint]) -> list[float | None]:
    """Tokens per second if every GPU did what those of the smallest number that fits do.

    Parameters
    ----------
    points : of one kind of scaling, by number of GPUs

    Returns
    -------
    list
        one for each point [tokens/s]; None where none fits
    """
    first = next((point for point in points if point.tokens_per_second), None)
    if first is None:
        return [None] * len(points)
    assert first.tokens_per_second is not None
    return [first.tokens_per_second / first.gpus * point.gpus for point in points]
