"""How far a question can be stretched until memory ends: sequence, batch, depth; and on how few GPUs any plan fits."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from costmodel.arithmetic.named_tuples import Row, changed
from costmodel.arithmetic.whole_numbers import divisors
from costmodel.catalogue.asking import ModelLike, asked_search, given, hardware_of, is_bare_device
from costmodel.catalogue.clusters import ClusterLike
from costmodel.catalogue.keywords import by_other_names
from costmodel.catalogue.machines import ROOM
from costmodel.catalogue.software import framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.judgement import CHOSEN
from costmodel.description.labels import CAPACITIES
from costmodel.description.plan import Plan
from costmodel.description.transformer import MAX_LAYERS, Transformer
from costmodel.description.usual_work import least_batch, usual_batch
from costmodel.evaluation.estimation import Estimate, estimate, lack, sentence, title
from costmodel.evaluation.offers import Offer, offered, offers
from costmodel.evaluation.search_result import SearchResult
from costmodel.evaluation.search_space import TOKENS_OF_A_CONTEXT_RANK
from costmodel.evaluation.verdicts import verdict
from costmodel.text.attributes import names_what_is_there
from costmodel.text.checks import positive_int
from costmodel.text.errors import IllegalPlan, InvalidValue
from costmodel.text.results import figure
from costmodel.text.tables import headed
from costmodel.text.units import counted

TOKENS = 128
"""Lengths that are tried are multiples of it, as kernels' tiles are."""
LONGEST, LARGEST_BATCH, DEEPEST, MOST_GPUS = 2**24, 2**20, 4096, 65_536
"""What is tried at most: tokens, sequences, layers, GPUs."""
EACH_NODE, COARSER = 64, 8
"""Up to so many nodes each number of them is tried, then every so manyth up to so many times as many, and so on."""


@names_what_is_there
@dataclasses.dataclass(frozen=True, kw_only=True)
class Capacity:
    """How far a question can be stretched, and the plan to do so with.

    Parameters
    ----------
    find : what was sought, one of `costmodel.description.labels.CAPACITIES`
    value : tokens, sequences, layers or GPUs; None where nothing fits
    estimate : of the best plan then; None where nothing fits
    tried : which values were tried, in words
    ended_by : what ends it: ``"memory"``, or another limit in words
    smallest : what was found of the least that can be asked, where nothing fits: a search, or the one plan that was given
    """

    find: str
    value: int | None
    estimate: Estimate | None
    tried: str
    ended_by: str = "memory"
    smallest: SearchResult | Estimate | None = None

    plot = figure

    def __repr__(self) -> str:
        if self.estimate is None:
            return headed(f"Capacity: {self.said()}", self.why_none())
        return headed(f"Capacity: {self.said()}", title(self.estimate), sentence(self.estimate))

    @property
    def fits(self) -> bool:
        """Whether anything fits."""
        return self.estimate is not None

    @property
    def best(self) -> Estimate:
        """The estimate of the best plan; IllegalPlan where nothing fits."""
        if self.estimate is None:
            raise IllegalPlan("memory", self.why_none())
        return self.estimate

    @property
    def plan(self) -> Plan:
        """The best plan; IllegalPlan where nothing fits."""
        return self.best.plan

    @property
    def model(self) -> Transformer:
        """What is trained, as deep as was found; IllegalPlan where nothing fits."""
        return self.best.model

    def said(self) -> str:
        """The answer in one line.

        Examples
        --------
        >>> Capacity(find="layers", value=None, estimate=None, tried="").said()
        'Deepest model that fits: none'
        """
        words, thing, *_ = CAPACITIES[self.find]
        found = "none" if self.value is None else counted(self.value, thing)
        end = "" if self.value is None or self.ended_by == "memory" else f", {self.ended_by}"
        return f"{words[0].upper()}{words[1:]}: {found}{end}"

    def why_none(self) -> str:
        """One line about why nothing fits."""
        if isinstance(self.smallest, SearchResult):
            return self.smallest.why_none()
        if self.smallest is None:
            return "nothing fits"
        if self.smallest.host_memory_margin < 0.0:
            return f"nothing fits: the smallest is {lack(self.smallest)}"
        return (
            f"nothing fits: the smallest needs {-self.smallest.memory_margin / 2**30:.1f} GiB more than a GPU of "
            f"{self.smallest.cluster.name!r} has for it"
        )

    @functools.cached_property
    def offers(self) -> list[Offer]:
        """Where nothing fits, changes of the question after which a plan does, the one of the least GPU time first."""
        if self.estimate is not None or self.smallest is None:
            return []
        if isinstance(self.smallest, SearchResult):
            return offers(self.smallest)
        return [offered(fix.change, fix.estimate) for fix in verdict(self.smallest).fixes]

    def to_dict(self) -> Row:
        """Flat names with units, for JSON and frames."""
        return {"find": self.find, "found": self.value, "tried": self.tried, "ended_by": self.ended_by} | (
            {"why": self.why_none()} if self.estimate is None else {"layers": self.model.layers, **self.estimate.to_dict()}
        )


class Values(NamedTuple):
    """Values in equal steps, with a test that is monotone on them, or passes more besides."""

    first: int  # first, step: the values
    step: int
    fits: Callable[[int], Estimate | None]  # what fits at a value


def largest(rows: Iterable[Values], most: int) -> int:
    """The largest value that fits of several rows of values; 0 where none does.

    What fits at a value of a row fits at the smaller ones of it, of each row by itself: a plan takes only values that its
    degrees divide, so that over all values together fitting goes to and fro, and one bisection would miss some.

    Examples
    --------
    >>> from costmodel import estimate, load_cluster, load_model, Plan
    >>> made = estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), Plan(global_batch=8, seq_len=2048))
    >>> largest([Values(2, 2, lambda x: made if x <= 9 else None), Values(7, 7, lambda x: made if x <= 15 else None)], 100)
    14
    """
    best = 0
    for first, step, fits in rows:
        low = max(0, -(-(best + 1 - first) // step))  # the first place of the row that is larger than the best
        high = (most - first) // step + 1
        if low >= high or fits(first + low * step) is None:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(first + middle * step) is None else (middle, high)
        best = first + low * step
    return best


@dataclasses.dataclass(frozen=True)
class _CapacityQuestion:
    """A question that is to be stretched: a plan that is held, or dimensions of a search."""

    model: Transformer
    cluster: Cluster
    framework: Framework
    plan: Plan | None
    work: Row
    fit_probability: float
    dimensions: Row

    def estimated(self, changes: Row) -> Estimate:
        """The plan that is held with some fields changed."""
        model, cluster = changes.pop("model", self.model), changes.pop("cluster", self.cluster)
        assert self.plan is not None
        plan = changed(self.plan, changes)
        return estimate(model, cluster, plan, self.framework, fit_probability=self.fit_probability)

    def searched(self, changes: Row) -> SearchResult:
        """The search with some values fixed."""
        from costmodel.evaluation.plan_search import search_by_name

        model, cluster = changes.pop("model", self.model), changes.pop("cluster", self.cluster)
        asked = {**self.work, **self.dimensions, **changes}
        return search_by_name(model, cluster, framework=self.framework, fit_probability=self.fit_probability, top=1, **asked)

    def best(self, **changes: object) -> Estimate | None:
        """The best plan that fits with some values fixed, or None where none does."""
        if self.plan is None:
            return next(iter(self.searched(changes)), None)
        try:
            found = self.estimated(changes)
        except IllegalPlan:  # of several values some are legal
            return None
        return found if found.fits else None

    def smallest(self, least: Iterable[Row]) -> SearchResult | Estimate:
        """What the first of the least questions gives that has a legal plan; IllegalPlan where a plan that is held can't run."""
        rows = list(least)
        if self.plan is not None:
            return self.estimated(dict(rows[0]))
        found = map(self.searched, map(dict, rows))
        last = next(found)
        while not last.evaluated and (after := next(found, None)):
            last = after
        return last

    def degrees(self, field: str, most: int) -> list[int]:
        """Values that a degree may have, as a search has them."""
        if self.plan is not None:
            return [getattr(self.plan.on(self.cluster), field)]
        given = self.dimensions.get(field)
        if given is None:
            known = field.removesuffix("_parallel") in (*self.framework.dimensions, "data")
            return divisors(self.cluster.gpus or 1, most) if known else [1]
        return sorted({positive_int(field, one, 10_000_000) for one in (given if isinstance(given, Iterable) else [given])})

    def fixed(self, field: str, value: int) -> Row:
        """A degree of a search, fixed; of a plan that is held it is already."""
        return {field: value} if self.plan is None else {}


def _asked(
    find: str, model: ModelLike, cluster: ClusterLike | None, plan: Plan | None, framework: Framework | str | None, work: Row,
    fit_probability: float, dimensions: Row,
) -> _CapacityQuestion:  # fmt: skip
    """A question as its door takes it; what is sought may not be given."""
    for field in CAPACITIES[find].found:
        if dimensions.get(field) is not None:
            raise InvalidValue(field, dimensions[field], "nothing: it is what is looked for")
    if plan is not None and not isinstance(plan, Plan):
        raise InvalidValue("plan", plan, "a Plan, which Plan(...) gives; global_batch=... and seq_len=... go by their names")
    grows = find == "gpus" and is_bare_device(cluster, dimensions)
    on, said = hardware_of(cluster, {**dimensions, **given(work), **({"gpus": ROOM} if grows else {})})
    if plan is None and find == "sequence":
        said.setdefault("global_batch", least_batch(on.gpus or 1, said))
    elif plan is None and find == "gpus":
        said.setdefault("global_batch", usual_batch(1, said))
    named = asked_search(model, on, framework, said)
    software = framework_on(on, named.framework)
    if plan is None:
        wanted = {field: positive_int(field, named.work[field], 10**8) for field in CAPACITIES[find].asked}
        return _CapacityQuestion(named.model, on, software, None, wanted, fit_probability, named.dimensions)
    for name, value in said.items():
        raise InvalidValue(name, value, "nothing beside a plan, which says it")
    held = dataclasses.replace(plan, data_parallel=None) if find == "gpus" else plan
    return _CapacityQuestion(named.model, on, software, held, {}, fit_probability, {})


@by_other_names()
def longest_sequence(
    model: ModelLike, cluster: ClusterLike | None = None, plan: Plan | None = None, framework: Framework | str | None = None, *,
    global_batch: int | None = None, most: int = LONGEST, fit_probability: float = CHOSEN, **dimensions: object,
) -> Capacity:  # fmt: skip
    """The longest sequences with which a plan fits, in steps of `TOKENS` tokens that the plan's degrees split.

    Parameters
    ----------
    model, cluster : what is trained, on what, or their names, as ``"llama3-8b"`` and ``"8xh100"``
    plan : to hold but for its sequences; every plan that `search` tries if None
    framework : the software, or its name in the catalogue; as of `costmodel.search` if None
    global_batch : sequences of a step, where no plan is held; one for each GPU if None
    most : tokens that are not passed
    fit_probability : from which a plan is judged to fit
    dimensions : as `search` takes them, such as ``gpus=8`` and ``tensor_parallel=[1, 2, 4, 8]``

    Returns
    -------
    Capacity
        tokens, and the best plan

    Raises
    ------
    InvalidValue
        for an unknown dimension or a bad value
    IllegalPlan
        where the plan that is held can't run at any length

    Examples
    --------
    >>> from costmodel import load_cluster, load_model
    >>> found = longest_sequence(load_model("llama3.2-1b"), load_cluster("dgx-h100", gpus=1), global_batch=1)
    >>> found.value % 128, found.plan.seq_len == found.value, found.plan.recompute
    (0, True, 'full')
    """
    asked = _asked("sequence", model, cluster, plan, framework, {"global_batch": global_batch}, fit_probability, dimensions)
    model = asked.model
    positive_int("most", most, 10**8)
    limit = min(most, model.learned_positions or most)
    unit = min(TOKENS, limit)

    def fits(context: int, length: int) -> Estimate | None:
        return asked.best(seq_len=length, **asked.fixed("context_parallel", context))

    def rows() -> Iterator[Values]:
        for context in asked.degrees("context_parallel", max(1, limit // TOKENS_OF_A_CONTEXT_RANK)):
            searched = asked.plan is None and "context_parallel" not in asked.dimensions
            least = context * TOKENS_OF_A_CONTEXT_RANK if searched and context > 1 else 1  # as a search has it
            splits = {context * one * chunks for one in asked.degrees("tensor_parallel", model.heads) for chunks in (1, 2)}
            for step in sorted({math.lcm(unit, split) for split in splits}):
                yield Values(-(-least // step) * step, step, functools.partial(fits, context))
            if limit % unit:  # all positions that were learned
                yield Values(limit, limit, functools.partial(fits, context))

    shortest = sorted({row.first for row in rows()})
    if most < shortest[0]:
        raise InvalidValue("most", most, f"at least {shortest[0]}, the shortest that is tried")
    end = "the most that is tried" if limit == most else f"all the positions that {model.name} has learned"
    tried = f"multiples of {unit} tokens that the plan's degrees split"
    best = largest(rows(), limit)
    return _capacity(
        asked, "sequence", best, tried, end if best + unit > limit else "memory", [{"seq_len": best}],
        ({"seq_len": length} for length in shortest),
    )  # fmt: skip


@by_other_names()
def largest_batch(
    model: ModelLike, cluster: ClusterLike | None = None, plan: Plan | None = None, framework: Framework | str | None = None, *,
    seq_len: int | None = None, most: int = LARGEST_BATCH, fit_probability: float = CHOSEN, **dimensions: object,
) -> Capacity:  # fmt: skip
    """The largest global batch that fits at once: each copy of the model takes its share as one micro-batch.

    With gradient accumulation every global batch fits whose micro-batches do: see `largest_micro_batch`.

    Parameters
    ----------
    model, cluster : what is trained, on what, or their names, as ``"llama3-8b"`` and ``"8xh100"``
    plan : to hold but for its batch; every plan that `search` tries if None
    framework : the software, or its name in the catalogue; as of `costmodel.search` if None
    seq_len : [tokens], where no plan is held; 4,096 if None, or what the model has learned
    most : sequences that are not passed
    fit_probability : from which a plan is judged to fit
    dimensions : as `search` takes them, such as ``gpus=8``

    Returns
    -------
    Capacity
        sequences, and the best plan

    Raises
    ------
    InvalidValue
        for an unknown dimension or a bad value
    IllegalPlan
        where the plan that is held can't run

    Examples
    --------
    >>> from costmodel import load_cluster, load_model
    >>> found = largest_batch(load_model("llama3.2-1b"), load_cluster("dgx-h100", gpus=8), seq_len=4096)
    >>> found.plan.micro_batches, found.value == found.plan.micro_batch * found.plan.data_parallel
    (1, True)
    """
    asked = _asked("batch", model, cluster, plan, framework, {"seq_len": seq_len}, fit_probability, dimensions)
    cluster = asked.cluster
    positive_int("most", most, 10_000_000)
    copies = asked.degrees("data_parallel", cluster.gpus or 1)

    def split(batch: int, data: int) -> Row:
        return {"global_batch": batch, "micro_batch": batch // data, **asked.fixed("data_parallel", data)}

    def fits(data: int, batch: int) -> Estimate | None:
        return asked.best(**split(batch, data))

    # the finest step last: the coarse ones leave it little
    rows = (Values(data, data, functools.partial(fits, data)) for data in reversed(copies))
    best = largest(rows, most)
    least = ({"global_batch": data} | ({} if plan is None else {"micro_batch": 1}) for data in copies)
    return _capacity(
        asked, "batch", best, "multiples of each data-parallel degree", "the most that is tried" if best == most else "memory",
        [split(best, data) for data in copies if best % data == 0], least,
    )  # fmt: skip


@by_other_names()
def largest_micro_batch(
    model: ModelLike, cluster: ClusterLike | None = None, plan: Plan | None = None, framework: Framework | str | None = None, *,
    global_batch: int | None = None, seq_len: int | None = None, most: int = LARGEST_BATCH,
    fit_probability: float = CHOSEN, **dimensions: object,
) -> Capacity:  # fmt: skip
    """The largest micro-batch with which a plan fits, the global batch as it is: every divisor of that is tried.

    Parameters
    ----------
    model, cluster : what is trained, on what, or their names, as ``"llama3-8b"`` and ``"8xh100"``
    plan : to hold but for its micro-batch; every plan that `search` tries if None
    framework : the software, or its name in the catalogue; as of `costmodel.search` if None
    global_batch, seq_len : sequences of a step and their tokens, where no plan is held; usual ones if None
    most : sequences that are not passed
    fit_probability : from which a plan is judged to fit
    dimensions : as `search` takes them, such as ``gpus=8``

    Returns
    -------
    Capacity
        sequences, and the best plan

    Raises
    ------
    InvalidValue
        for an unknown dimension or a bad value
    IllegalPlan
        where the plan that is held can't run

    Examples
    --------
    >>> from costmodel import load_cluster, load_model
    >>> node = load_cluster("dgx-h100", gpus=8)
    >>> largest_micro_batch(load_model("llama3.2-1b"), node, global_batch=64, seq_len=2048, data_parallel=8).value
    8
    """
    work = {"global_batch": global_batch, "seq_len": seq_len}
    asked = _asked("micro-batch", model, cluster, plan, framework, work, fit_probability, dimensions)
    cluster = asked.cluster
    positive_int("most", most, 10_000_000)
    batch = asked.work["global_batch"] if plan is None else plan.global_batch
    whole = batch // min(asked.degrees("data_parallel", cluster.gpus or 1))
    # fewer micro-batches can hold less: memory need not rise with their size, so every size is tried
    sizes = divisors(batch, min(most, max(whole, 1)))
    best = next((size for size in reversed(sizes) if asked.best(micro_batch=size) is not None), 0)
    end = "all that a copy takes in a step" if best == whole else "the most that is tried" if best == most else "memory"
    return _capacity(
        asked, "micro-batch", best, f"divisors of the global batch of {batch}", end, [{"micro_batch": best}],
        [{} if plan is None else {"micro_batch": 1}],
    )  # fmt: skip


@by_other_names()
def most_layers(
    model: ModelLike, cluster: ClusterLike | None = None, plan: Plan | None = None, framework: Framework | str | None = None, *,
    global_batch: int | None = None, seq_len: int | None = None, most: int = DEEPEST, fit_probability: float = CHOSEN,
    **dimensions: object,
) -> Capacity:  # fmt: skip
    """The deepest model of these layers with which a plan fits; every number of layers is tried.

    Parameters
    ----------
    model, cluster : what is trained, on what, or their names, as ``"llama3-8b"`` and ``"8xh100"``
    plan : to hold; every plan that `search` tries if None
    framework : the software, or its name in the catalogue; as of `costmodel.search` if None
    global_batch, seq_len : sequences of a step and their tokens, where no plan is held; usual ones if None
    most : layers that are not passed
    fit_probability : from which a plan is judged to fit
    dimensions : as `search` takes them, such as ``gpus=8``

    Returns
    -------
    Capacity
        layers, and the best plan

    Raises
    ------
    InvalidValue
        for an unknown dimension or a bad value
    IllegalPlan
        where the plan that is held can't run at any depth

    Examples
    --------
    >>> from costmodel import load_cluster, load_model
    >>> node = load_cluster("dgx-h100", gpus=8)
    >>> found = most_layers(load_model("llama3-8b"), node, global_batch=64, seq_len=8192, pipeline_parallel=1)
    >>> found.value == found.model.layers > 32
    True
    """
    work = {"global_batch": global_batch, "seq_len": seq_len}
    asked = _asked("layers", model, cluster, plan, framework, work, fit_probability, dimensions)
    model = asked.model
    positive_int("most", most, MAX_LAYERS)

    def fits(stages: int, layers: int) -> Estimate | None:
        return asked.best(model=deepened(model, layers), **asked.fixed("pipeline_parallel", stages))

    def rows() -> Iterator[Values]:
        """Of every number of chunks those depths whose ends lack as many layers: they need more memory, the more they have."""
        for stages in asked.degrees("pipeline_parallel", most):
            for chunks in asked.degrees("virtual_stages", 1):
                slots = stages * chunks
                for lacking in range(slots):
                    fullest = 1 + -(-lacking // 2)  # one layer is left on the shorter end
                    yield Values(slots * fullest - lacking, slots, functools.partial(fits, stages))

    shortest = sorted({row.first for row in rows()})
    if most < shortest[0]:
        raise InvalidValue("most", most, f"at least {shortest[0]}, a layer for each stage")
    best = largest(rows(), most)
    return _capacity(
        asked, "layers", best, "every number of layers", "the most that is tried" if best == most else "memory",
        [{"model": deepened(model, best)}] if best else [], ({"model": deepened(model, layers)} for layers in shortest),
    )  # fmt: skip


def deepened(model: Transformer, layers: int) -> Transformer:
    """A model with another number of layers like its own."""
    if layers == model.layers:
        return model
    by_rule = model.expert_layer_step > 1  # which counts the dense ones, and may begin behind the last layer of a shallow model
    spread = round(model.dense_layers * layers / model.layers)
    dense = 0 if by_rule else min(model.dense_layers if model.expert_layer_step else spread, layers - 1)
    start = model.first_expert_layer if by_rule else None
    return dataclasses.replace(
        model, name=f"{model.name} with {counted(layers, 'layer')}", layers=layers, dense_layers=dense if model.experts else 0,
        first_expert_layer=None if start is None else min(start, layers - 1),
        expert_layer_step=min(model.expert_layer_step, layers),
        windowed_layers=round(model.windowed_layers * layers / model.layers),
        kv_sharing_layers=min(round(model.kv_sharing_layers * layers / model.layers), layers - 1), published_parameters=None,
    )  # fmt: skip


@by_other_names()
def fewest_gpus(
    model: ModelLike, cluster: ClusterLike | None = None, plan: Plan | None = None, framework: Framework | str | None = None, *,
    global_batch: int | None = None, seq_len: int | None = None, most: int = MOST_GPUS,
    fit_probability: float = CHOSEN, **dimensions: object,
) -> Capacity:  # fmt: skip
    """The fewest GPUs on which a plan fits: a part of a node that divides it, or whole nodes.

    Each number of nodes up to `EACH_NODE` is tried, beyond it every eighth up to eight times as many, and so on; between the
    first of those that fits and the one before it again each.

    Parameters
    ----------
    model, cluster : what is trained, on what, or their names; the cluster's own number of GPUs is not looked at
    plan : to hold but for its data-parallel degree; every plan that `search` tries if None
    framework : the software, or its name in the catalogue; as of `costmodel.search` if None
    global_batch, seq_len : sequences of a step and their tokens, where no plan is held; usual ones if None
    most : GPUs that are not passed
    fit_probability : from which a plan is judged to fit
    dimensions : as `search` takes them, such as ``gpus=8`` and ``tensor_parallel=[1, 2, 4, 8]``

    Returns
    -------
    Capacity
        GPUs, and the best plan on so many

    Raises
    ------
    InvalidValue
        for an unknown dimension or a bad value
    IllegalPlan
        where the plan that is held can't run on any number of GPUs

    Examples
    --------
    >>> from costmodel import load_cluster, load_model
    >>> found = fewest_gpus(load_model("llama3-8b"), load_cluster("dgx-h100"), global_batch=64, seq_len=8192)
    >>> found.value, found.plan.gpus
    (4, 4)
    """
    work = {"global_batch": global_batch, "seq_len": seq_len}
    asked = _asked("gpus", model, cluster, plan, framework, work, fit_probability, dimensions)
    cluster = asked.cluster
    positive_int("most", most, 10_000_000)
    sizes = _sizes(cluster, most)

    stored = 0.5 * float(asked.model.parameters)  # of all weights, as any plan at least has them [bytes]
    enough = stored / (cluster.device.usable_memory or cluster.device.memory)

    def fits(gpus: int) -> bool:
        return gpus >= enough and asked.best(cluster=cluster.with_gpus(gpus)) is not None

    found = next((place for place, gpus in enumerate(sizes) if fits(gpus)), None)
    best = 0 if found is None else sizes[found]
    if found and sizes[found - 1] >= cluster.gpus_per_node:
        left_out = range(sizes[found - 1] + cluster.gpus_per_node, best, cluster.gpus_per_node)
        best = next(filter(fits, left_out), best)
    largest_first = ({"cluster": cluster.with_gpus(gpus)} for gpus in reversed(sizes))
    return _capacity(
        asked, "gpus", best, "parts of a node that divide it, and whole nodes", "memory",
        [{"cluster": cluster.with_gpus(best)}] if best else [], largest_first,
    )  # fmt: skip


def _sizes(cluster: Cluster, most: int) -> list[int]:
    """Numbers of GPUs to try, as `fewest_gpus` says, that the cluster can have."""
    node = cluster.gpus_per_node
    sizes, step, nodes = [size for size in divisors(node, node) if size <= most], 1, 1
    while len(cluster.levels) > 1 and (nodes := nodes + step) * node <= most:
        sizes.append(nodes * node)
        if nodes == EACH_NODE * step:
            step *= COARSER
    return sizes


def _capacity(
    asked: _CapacityQuestion, find: str, value: int, tried: str, ended_by: str, ways: Iterable[Row], least: Iterable[Row]
) -> Capacity:
    """The answer with the fastest plan of all `ways` to have the value that was found; or what the least question gives."""
    if not value:
        return Capacity(find=find, value=None, estimate=None, tried=tried, smallest=asked.smallest(least))
    found = [one for way in ways if (one := asked.best(**way)) is not None]
    best = min(found, key=lambda one: one.step_time)
    return Capacity(find=find, value=value, estimate=best, tried=tried, ended_by=ended_by)


FINDERS: dict[str, Callable[..., Capacity]] = {
    "sequence": longest_sequence, "batch": largest_batch, "micro-batch": largest_micro_batch, "layers": most_layers,
    "gpus": fewest_gpus,
}  # fmt: skip
"""By what is sought."""
