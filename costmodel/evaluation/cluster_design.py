"""Which cluster to buy or rent: of many the ones that reach a time or stay within a budget, cheapest first."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.asking import ModelLike, model_of
from costmodel.catalogue.loader import load_device
from costmodel.catalogue.machines import machine
from costmodel.catalogue.readings import rate_per_gpu
from costmodel.description.cluster import MAX_GPUS, Cluster
from costmodel.description.device import Device
from costmodel.description.transformer import Transformer
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.plan_search import search
from costmodel.evaluation.price import BILLION, HOUR, price_per_billion_tokens
from costmodel.evaluation.search_result import SearchResult
from costmodel.evaluation.selection import pareto_front
from costmodel.text.checks import kind, positive_int, real
from costmodel.text.errors import CostModelError, IllegalPlan, InvalidValue
from costmodel.text.results import RowTable, brief


@dataclasses.dataclass(frozen=True)
class Option:
    """A cluster and its best plan."""

    cluster: Cluster  # that was tried
    estimate: Estimate | None  # of its best plan; None where none fits
    price_per_gpu_hour: float  # of a GPU with its share of the network
    time: float | None  # to train the tokens [s]; None where no plan fits
    cost: float | None  # of that, in the currency of the prices; None where no plan fits
    reaches: bool  # whether it is in time and within the budget
    why: str = ""  # where it doesn't reach, in words

    __repr__ = brief

    def to_dict(self) -> Row:
        """One row, with units in the names."""
        level = self.cluster.levels
        return {
            "cluster": self.cluster.name, "device": self.cluster.device.name, "gpus": self.cluster.gpus,
            "gpus_per_node": self.cluster.gpus_per_node, "network_bytes_per_second_per_gpu": level[-1].bandwidth,
            "oversubscription": level[-1].oversubscription, "price_per_gpu_hour": self.price_per_gpu_hour,
            "time_s": self.time, "cost": self.cost, "reaches": self.reaches, "why": self.why,
            "step_time_s": None if self.estimate is None else self.estimate.step_time,
        }  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ClusterDesign(RowTable):
    """Clusters that were tried: those that reach what was asked for, cheapest first, then the others.

    Parameters
    ----------
    options : all of them
    """

    options: tuple[Option, ...]

    first_column = "cluster"

    __repr__ = brief

    @property
    def reached(self) -> tuple[Option, ...]:
        """Those that reach it, cheapest first; of equals the one with fewer GPUs, then the faster."""
        return tuple(option for option in self.options if option.reaches)

    @property
    def best(self) -> Option:
        """The cheapest that reaches it; IllegalPlan where none does."""
        if not self.reached:
            close = next(iter(self.options), None)
            why = close.why if close else "none was tried"
            raise IllegalPlan("none", f"no cluster of {len(self.options)} reaches it; the closest: {why}")
        return self.reached[0]

    @property
    def frontier(self) -> tuple[Option, ...]:
        """Options that no other beats in time, memory, GPUs and cost together; equals all stay."""
        found = [option for option in self.options if option.estimate is not None]
        if not found:
            return ()
        table = np.array([_measures(option) for option in found])
        return tuple(found[place] for place in pareto_front(*table.T).tolist())

    def to_rows(self) -> list[Row]:
        """One dictionary an option, with units in the names."""
        return [option.to_dict() for option in self.options]


def _measures(option: Option) -> tuple[float, float, float, float]:
    """Time, memory of the fullest GPU, GPUs and cost of an option with a plan."""
    assert option.estimate is not None and option.time is not None and option.cost is not None
    return option.time, float(option.estimate.memory.total), float(option.cluster.gpus or 1), option.cost


def candidates(
    devices: Device | str | Sequence[Device | str], gpus: int | Sequence[int], *, gpus_per_node: int | Sequence[int] = 8,
    networks: float | str | Sequence[float | str] | None = None, oversubscriptions: float | Sequence[float] = 1.0,
) -> list[Cluster]:  # fmt: skip
    """Every cluster of some kinds of GPU, sizes, NVLink domains, NICs and oversubscriptions; those that can't be are left out.

    Parameters
    ----------
    devices : kinds of GPU, one or several
    gpus : of the whole cluster, one or several
    gpus_per_node : that share NVLink or what the device has inside a node, one or several
    networks : line rate of a node's NICs together, one direction [bytes/s], or a text as ``"400 Gbit/s"``, which may say
        ``"per GPU"``; what the device comes with if None
    oversubscriptions : of the network between nodes, one or several

    Raises
    ------
    InvalidValue, UnknownName
        for a value that no cluster can have

    Examples
    --------
    >>> made = candidates(["h100-sxm", "a100-sxm-80gb"], [8, 16], gpus_per_node=[4, 8], networks="400 Gbit/s")
    >>> [(one.device.name, one.gpus, one.gpus_per_node) for one in made][:3]
    [('h100-sxm', 8, 4), ('h100-sxm', 8, 8), ('h100-sxm', 16, 4)]
    """
    kinds = [load_device(one) if isinstance(one, str) else one for one in _several(devices)]
    sizes = [positive_int("gpus", one, MAX_GPUS) for one in _several(gpus)]
    nodes = [positive_int("gpus_per_node", one, MAX_GPUS) for one in _several(gpus_per_node)]
    rates = _several(networks)
    for one in rates:
        if one is not None:
            rate_per_gpu("networks", one, 1, "node")
    shares = [real("oversubscriptions", one, 1.0, 1e4) for one in _several(oversubscriptions)]
    found = []
    for device, size, node, rate, share in itertools.product(kinds, sizes, nodes, rates, shares):
        kind("devices", device, Device, "load_device(name)")
        if size % min(node, size):
            continue
        several = size > node
        if not several and (rate, share) != (rates[0], shares[0]):
            continue  # inside a node no network matters
        cluster = machine(device, size, size // node if several else 1, rate if several else None)
        if several:
            outer = dataclasses.replace(cluster.levels[-1], oversubscription=share)
            cluster = dataclasses.replace(cluster, levels=(*cluster.levels[:-1], outer))
        found.append(cluster)
    return found


def design_cluster(
    model: ModelLike, clusters: Iterable[Cluster], *, global_batch: int, seq_len: int, tokens: float = BILLION,
    within: float | None = None, budget: float | None = None, prices: Mapping[str, float] | None = None,
    network_price: float = 0.0, **asked: object,
) -> ClusterDesign:  # fmt: skip
    """Clusters that train a model in time and within a budget, cheapest first.

    Parameters
    ----------
    model : what is trained
    clusters : to try, as `candidates` makes them, or any others
    global_batch : sequences of a step
    seq_len : [tokens]
    tokens : to train on
    within : time that it may take [s], as long as it takes if None
    budget : that it may cost, in the currency of the prices, whatever it costs if None
    prices : of a GPU for an hour, by the device's name; 1 for each if None, so that cost counts GPU-hours
    network_price : of 1 GB/s of a GPU's own share of the network between nodes, for an hour, besides
    asked : as `costmodel.search` takes it: ``framework``, any dimension of a plan

    Returns
    -------
    ClusterDesign
        seconds, and the currency of the prices

    Raises
    ------
    InvalidValue
        for a value that is not what it should be, or a device without a price

    Assumes that every step takes as long as the best plan's, with nothing lost to failures.

    Examples
    --------
    >>> from costmodel import load_model
    >>> tried = candidates(["h100-sxm", "a100-sxm-80gb"], [8, 16, 32])
    >>> made = design_cluster(load_model("llama3-8b"), tried, global_batch=256, seq_len=8192, within=86400.0 / 8,
    ...                       prices={"h100-sxm": 2.5, "a100-sxm-80gb": 1.5}, pipeline_parallel=1)
    >>> all(option.time <= 86400.0 / 8 for option in made.reached), len(made.options)
    (True, 6)
    """
    model = model_of(model)
    if not isinstance(clusters, Iterable):
        raise InvalidValue("clusters", clusters, "clusters, as candidates(...) gives them")
    tried = list(clusters)
    for one in tried:
        kind("clusters", one, Cluster, "candidates(...)")
    if not tried:
        raise InvalidValue("clusters", [], "at least one cluster")
    real("tokens", tokens, 1.0, 1e18)
    for name, limit in (("within", within), ("budget", budget)):
        if limit is not None:
            real(name, limit, 0.0, 1e15)
    real("network_price", network_price, 0.0, 1e6)
    for one in tried:
        if prices is not None and one.device.name not in prices:
            raise InvalidValue("prices", sorted(prices), f"a price of {one.device.name!r}")
    each = [
        _option(model, one, _price(one, prices, network_price), tokens, within, budget,
                {"global_batch": global_batch, "seq_len": seq_len, "top": 1, **asked})
        for one in tried
    ]  # fmt: skip
    far = float("inf")

    def order(option: Option) -> tuple[float, ...]:
        cost = far if option.cost is None else option.cost
        return float(not option.reaches), cost, float(option.cluster.gpus or 1), far if option.time is None else option.time

    return ClusterDesign(tuple(sorted(each, key=order)))


def _price(cluster: Cluster, prices: Mapping[str, float] | None, network_price: float) -> float:
    """Of a GPU with its share of the network, for an hour."""
    base = 1.0 if prices is None else real("prices", prices[cluster.device.name], 0.0, 1e6)
    outer = cluster.levels[-1]
    rate = 0.0 if len(cluster.levels) == 1 else (outer.line_rate or outer.bandwidth) / outer.oversubscription
    return base + network_price * rate / 1e9


def _option(
    model: Transformer, cluster: Cluster, price: float, tokens: float, within: float | None, budget: float | None, asked: Row,
) -> Option:  # fmt: skip
    try:
        result: SearchResult = search(model, cluster, **asked)
    except InvalidValue:
        raise
    except CostModelError as error:
        return Option(cluster, None, price, None, None, False, str(error))
    if not result.ranked:
        return Option(cluster, None, price, None, None, False, result.why_none())
    best = result.ranked[0]
    time = tokens / best.tokens_per_second
    cost = price_per_billion_tokens(best, price) * tokens / BILLION
    missed = []
    if within is not None and time > within:
        missed.append(f"takes {time / HOUR:.4g} h where {within / HOUR:.4g} h may be taken")
    if budget is not None and cost > budget:
        missed.append(f"costs {_amount(cost)} where {_amount(budget)} may be spent")
    return Option(cluster, best, price, time, cost, not missed, " and ".join(missed))


def _amount(money: float) -> str:
    return f"{money:,.0f}" if money >= 100.0 else f"{money:.3g}"


def _several(given: Any) -> list[Any]:
    if given is None or isinstance(given, str | Device | int | float):
        return [given]
    if not isinstance(given, Iterable):
        raise InvalidValue("candidates", given, "one or several values")
    values = list(dict.fromkeys(given)) if all(isinstance(one, str | int | float) for one in given) else list(given)
    if not values:
        raise InvalidValue("candidates", values, "one or several values")
    return values
