"""PipeDream's partitioner: which layers a pipeline's stages hold, and over how many machines each is replicated."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from costmodel.arithmetic.named_tuples import as_number
from costmodel.description.layers import LayerChain
from costmodel.formulas.pipeline import pipedream
from costmodel.studies.partitioning.graph import Cuts, LayerGraph, all_cuts, graph_of
from costmodel.studies.partitioning.result import Partition, Stage
from costmodel.text.checks import choice, flag, kind, listing, positive_int, real
from costmodel.text.errors import IllegalPlan, InvalidValue

if TYPE_CHECKING:
    from costmodel.studies.partitioning.kernel import KernelLevel

RECURRENCES = ("sosp19", "arxiv2018", "reference", "placed")
"""In the order of the kernel's codes."""
MAX_MACHINES, MAX_LEVELS = 1024, 4
MOST_STATES, MOST_PLACES = 6_000, 60_000_000
"""States, and numbers in the largest table."""
MOST_STEPS = 2e10
"""Steps of the dynamic program, about ten seconds, beyond which only the cuts of a few orders of the layers are tried."""
STEPS_OF_A_PAIR = 1_500
"""That it takes, in the time of so many, to look at one way to give machines to the last stage, however few states there are."""
BLOCK = 128
"""Start states that are solved at once: their tables stay in the cache."""
WITHIN = (1.1, 1.6, 2.5)
"""Multiples of a fair share of the work within which a pipeline is looked for before all are looked at."""

Array = NDArray[np.float64]


def partition(
    chain: LayerChain,
    machines: Sequence[int],
    bandwidths: Sequence[float],
    memory_limit: float | None = None,
    straight: bool = False,
    recurrence: str = "placed",
    activation_compression: float | None = None,
    compress_branches: bool = False,
    replicas: Sequence[int] | None = None,
) -> Partition:
    """The pipeline of replicated stages that takes least time per minibatch, by PipeDream's dynamic program.

    Parameters
    ----------
    chain : layers, or a graph of them
    machines : on each level of the network, the innermost first: ``[4, 8]`` is eight servers of four
    bandwidths : of each level [bytes/s]
    memory_limit : of one machine, which holds weights and activations of every minibatch in flight [bytes]; not
        looked at if None
    straight : no stage is replicated
    recurrence : ``"placed"``: stages lie on workers in a row, an all-reduce keeps replicas alike, links carry outputs one way
        and gradients the other at once, each at the bandwidth of the outermost level that it passes, and data parallelism's
        exchange follows its pass; ``"sosp19"`` and ``"arxiv2018"`` (one level only) as the papers have it; ``"reference"`` as the
        published program has it, which adds exchange to compute, and counts in memory neither the minibatch that is
        being worked on nor more than the last output of a compressed branch, level by level as if an outer stage lay
        on one machine
    activation_compression : outputs are sent at one so-manieth of their size; the published program neglects
        sending them where it is None
    compress_branches : layers in a row on a branch stay together
    replicas : of each stage in order, ``(2, 1, 1)`` for the configuration ``2-1-1``, whose best cuts are then found; chosen if
        None. With several levels under ``"placed"`` only

    Returns
    -------
    Partition

    Raises
    ------
    InvalidValue
        where an argument is not what it should be
    IllegalPlan
        where no pipeline fits in memory, or a straight one has more machines than the model can be cut into

    Of partitions that are as fast but for rounding, this is one of the fewest stages on each level (with ``"reference"``, as
    the program would choose but for its order of looking at cuts).

    Assumes that sending and synchronising hide under the compute of other minibatches, which PipeDream's schedule does. Of the
    14 published speed-ups over data parallelism, ``"placed"`` has the most within 35 % (notebooks/pipedream.ipynb): in the
    paper of 2019 an exchange is priced at `m` times what a ring sends, and a stage of an outer level synchronises after every
    minibatch of an inner one; that of 2018 has no levels, and hides the exchange of data parallelism.

    References
    ----------
    [narayanan2019]_ section 3.1, [harlap2018]_ section 3.2

    Examples
    --------
    >>> from costmodel.description.layers import ChainLayer, LayerChain
    >>> convolutions = [ChainLayer(name=f"conv{i}", forward=0.01, backward=0.02, output_bytes=1e6, parameter_bytes=1e6)
    ...                 for i in range(15)]
    >>> dense = ChainLayer(name="dense", forward=0.01, backward=0.02, output_bytes=4e3, parameter_bytes=400e6)
    >>> found = partition(LayerChain(name="net", layers=[*convolutions, dense]), machines=[16], bandwidths=[1.25e9])
    >>> found.configuration, round(found.time, 9), round(found.speedup, 2), found.weight_versions
    ('15-1', 0.03, 2.3, (2, 1))
    """
    kind("chain", chain, LayerChain, "LayerChain(...)")
    sizes = _sizes(machines)
    rates = _rates(bandwidths, sizes)
    in_a_row = choice("recurrence", recurrence, RECURRENCES) == "placed"
    problem = Problem(
        recurrence=recurrence, machines=(math.prod(sizes),) if in_a_row else sizes,
        bandwidths=(max(rates),) if in_a_row else rates, components=sizes, rates=rates,
        memory_limit=None if memory_limit is None else real("memory_limit", memory_limit, 1.0, 1e18),
        straight=flag("straight", straight),
        compression=None if activation_compression is None else real("activation_compression", activation_compression, 1e-3, 1e3),
        replicas=None if replicas is None else _replicas(replicas, sizes, in_a_row, straight),
    )  # fmt: skip
    if recurrence == "arxiv2018" and len(sizes) > 1:
        raise InvalidValue("machines", list(sizes), "one level with recurrence='arxiv2018', whose network is flat")
    found = _best(problem, graph_of(chain, flag("compress_branches", compress_branches)))
    if found is not None:
        return found
    if memory_limit is not None:
        raise IllegalPlan("memory", f"memory_limit={memory_limit:g}: no pipeline of {chain.name!r} fits")
    asked = "a straight pipeline" if replicas is None else f"{len(replicas)} stages"
    raise IllegalPlan("stages", f"machines={list(sizes)}: {chain.name!r} has too few cuts for {asked}")


def _best(problem: Problem, graph: LayerGraph) -> Partition | None:
    """The best pipeline between all cuts, or between as many of the most promising as there is time for."""
    most, of_program = problem.largest(), problem.of_program
    cuts = all_cuts(graph, most, of_program)
    if cuts is None:
        found = Solution(problem, graph, graph.cuts_in_order(most, of_program)).partition()
        if found is not None and found.proven:
            return found
        cuts = graph.promising_cuts(most, of_program, problem.bound)
    return Solution(problem, graph, cuts).partition()


def _sizes(machines: Sequence[int]) -> tuple[int, ...]:
    sizes = listing("machines", machines)
    if not 1 <= len(sizes) <= MAX_LEVELS:
        raise InvalidValue("machines", machines, f"1 to {MAX_LEVELS} levels, the innermost first")
    return tuple(positive_int("machines", size, MAX_MACHINES) for size in sizes)


def _rates(bandwidths: Sequence[float], machines: Sequence[int]) -> tuple[float, ...]:
    rates = listing("bandwidths", bandwidths)
    if len(rates) != len(machines):
        raise InvalidValue("bandwidths", bandwidths, f"one for each of the {len(machines)} levels of machines")
    return tuple(real("bandwidths", rate, 1.0, 1e15) for rate in rates)


def _replicas(replicas: Sequence[int], machines: tuple[int, ...], in_a_row: bool, straight: bool) -> tuple[int, ...]:
    given = tuple(positive_int("replicas", each, MAX_MACHINES) for each in listing("replicas", replicas))
    workers = math.prod(machines)
    if sum(given) != workers:
        raise InvalidValue("replicas", list(given), f"as many as there are machines, {workers} in all")
    if len(machines) > 1 and not in_a_row:
        raise InvalidValue("replicas", list(given), "none with several levels but under recurrence='placed': others nest stages")
    if straight and max(given) > 1:
        raise InvalidValue("replicas", list(given), "1 of each stage with straight=True")
    return given


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is asked, apart from the layers; as `partition` takes it, checked.

    Parameters
    ----------
    recurrence : of `RECURRENCES`
    machines, bandwidths : of each level that is solved: of all workers together where stages lie on workers in a row
    components, rates : of each level of the network, as asked
    memory_limit, straight, compression, replicas : as asked
    """

    recurrence: str
    machines: tuple[int, ...]
    bandwidths: tuple[float, ...]
    components: tuple[int, ...]
    rates: tuple[float, ...]
    memory_limit: float | None
    straight: bool
    compression: float | None
    replicas: tuple[int, ...] | None

    @property
    def of_program(self) -> bool:
        """Whether it goes by the published program."""
        return self.recurrence == "reference"

    def pairs(self, level: int) -> int:
        """Ways to give some of a level's machines to the last stage."""
        machines = self.machines[level]
        return machines if self.straight else machines * (machines + 1) // 2

    def steps(self, states: int) -> float:
        """Steps of the dynamic program over so many states."""
        top = len(self.machines) - 1
        inner = sum(states**3 / 6 * self.pairs(level) * len(self.ratios[level]) for level in range(top))
        return (states**2 / 2 + STEPS_OF_A_PAIR) * self.pairs(top) + inner

    @property
    def in_a_row(self) -> bool:
        """Whether stages lie on workers in a row, on one level of machines with links of several."""
        return self.recurrence == "placed"

    @functools.cached_property
    def spans(self) -> NDArray[np.int64]:
        """Workers in one component of each level."""
        return np.cumprod(np.array(self.components if self.in_a_row else self.machines[:1], np.int64))

    @functools.cached_property
    def links(self) -> Array:
        """Slowest link within one component of each level, none within one machine [bytes/s]."""
        used = [rate if size > 1 else math.inf for size, rate in zip(self.components, self.rates, strict=True)]
        return np.minimum.accumulate(np.array(used))[: len(self.spans)]

    @functools.cached_property
    def given(self) -> NDArray[np.int64]:
        """Replicas of a stage that ends at so many machines, where they are given: 0 where any may, -1 where none does."""
        if self.replicas is None:
            return np.zeros(max(self.machines) + 1, np.int64)
        ends = np.full(self.workers + 1, -1, np.int64)
        ends[np.cumsum(self.replicas)] = self.replicas
        return ends

    def largest(self) -> int:
        """States up to which the work and the tables stay within bounds."""
        top = len(self.machines) - 1
        wide = max((size + 1 + len(self.ratios[level]) for level, size in enumerate(self.machines[:top])), default=0)
        most = MOST_STATES if not wide else min(MOST_STATES, math.isqrt(MOST_PLACES // wide))
        while most > 1 and self.steps(most) > MOST_STEPS:
            most = int(most / 1.1)
        return most

    @functools.cached_property
    def workers(self) -> int:
        """Machines in all."""
        return math.prod(self.machines)

    def bound(self, time: Array, sent: Array) -> Array:
        """Time per minibatch that no pipeline that is cut after a state can beat [s].

        Parameters
        ----------
        time : compute up to the cut on one machine; that of the longest state is the whole model's [s]
        sent : outputs that cross it [bytes]
        """
        whole = float(time.max())
        fair = np.floor(self.workers * time / whole) if whole else time
        split = np.full(len(time), np.inf)
        for first in (fair, fair + 1.0):
            before = np.clip(first, 1.0, max(self.workers - 1.0, 1.0))
            after = max(self.workers, 2.0) - before
            split = np.minimum(split, np.maximum(time / before, (whole - time) / after))
        if self.of_program and self.compression is None:
            return split
        nbytes = as_number(sent / (self.compression or 1.0))
        links = float(max(self.machines)) if self.of_program else 1.0
        handed = (
            pipedream.passing_on(nbytes, max(self.bandwidths)) if self.in_a_row
            else pipedream.handing_on(nbytes, links, max(self.bandwidths))
        )  # fmt: skip
        return np.maximum(split, handed)

    @functools.cached_property
    def inner_workers(self) -> tuple[int, ...]:
        """Machines in one component of each level."""
        return tuple(math.prod(self.machines[:level]) for level in range(len(self.machines)))

    @functools.cached_property
    def ratios(self) -> tuple[tuple[Fraction, ...], ...]:
        """Workers of later stages on outer levels per copy of a component, as far as memory depends on it: by level."""
        ratios: list[tuple[Fraction, ...]] = [(Fraction(0),)]
        for level in range(len(self.machines) - 1, 0, -1):
            if self.memory_limit is None or self.of_program:
                ratios.append((Fraction(0),))
            else:
                size = self.machines[level]
                ratios.append(tuple(sorted({
                    self.inner_ratio(level, ratio, used, replicas)
                    for ratio in ratios[-1] for used in range(1, size + 1)
                    for replicas in range(1, 2 if self.straight else used + 1)
                })))  # fmt: skip
        return tuple(reversed(ratios))

    def inner_ratio(self, level: int, ratio: Fraction, used: int, replicas: int) -> Fraction:
        """Workers downstream of one component of the level within, when a stage is the last of `used` and has `replicas`."""
        rest = (self.machines[level] - used) * self.inner_workers[level]
        return (ratio + rest) / replicas


class Solution:
    """The dynamic program on the states of one graph, level by level.

    Parameters
    ----------
    problem, graph, cuts : what is asked
    """

    def __init__(self, problem: Problem, graph: LayerGraph, cuts: Cuts):
        self.problem, self.graph, self.cuts = problem, graph, cuts
        self.count = len(self.cuts.inside)
        if self.cuts.set(self.count - 1) != (1 << len(graph.groups)) - 1:
            raise InvalidValue("chain", graph.chain.name, "layers that all lead on from the first, with recurrence='reference'")
        if problem.steps(self.count) > MOST_STEPS:
            raise InvalidValue("machines", list(problem.machines), f"fewer machines for {self.count} cuts")
        self.below: list[Array] = []
        for level in range(len(problem.machines) - 1):
            self.below.append(self._fill(level))

    @functools.cached_property
    def nothing(self) -> Array:
        """The level within the innermost."""
        return np.zeros((1, 1, 1))

    def _level(self, level: int, ratio: Fraction) -> KernelLevel:
        from costmodel.studies.partitioning import kernel as kernels

        problem = self.problem
        neglected = 0.0 if problem.of_program else 1.0
        return kernels.KernelLevel(
            rule=RECURRENCES.index(problem.recurrence),
            innermost=level == 0, machines=problem.machines[level], bandwidth=problem.bandwidths[level],
            within=float(problem.machines[level - 1]) if level else 1.0, compression=problem.compression or neglected,
            straight=problem.straight,
            limited=problem.memory_limit is not None and (level == 0 or problem.of_program),
            memory=problem.memory_limit or 0.0, downstream=float(ratio.numerator), copies=float(ratio.denominator),
            spans=problem.spans, links=problem.links, given=problem.given,
        )  # fmt: skip

    def _inputs(self, level: int, ratio: Fraction) -> tuple[KernelLevel, Array, NDArray[np.int64]]:
        """What the kernel takes: the level, the one within, and which variant of that goes with which stage."""
        problem, size = self.problem, self.problem.machines[level]
        which = np.zeros((size + 1, size + 1), np.int64)
        if level and len(problem.ratios[level - 1]) > 1:
            variant = {ratio: position for position, ratio in enumerate(problem.ratios[level - 1])}
            for used in range(1, size + 1):
                for replicas in range(1, 2 if problem.straight else used + 1):
                    which[used, replicas] = variant[problem.inner_ratio(level, ratio, used, replicas)]
        return self._level(level, ratio), self.below[level - 1] if level else self.nothing, which

    def _fill(self, level: int) -> Array:
        """Least time from every state to every later one on a whole component of a level, a variant a ratio."""
        from costmodel.studies.partitioning import kernel as kernels

        ratios, count = self.problem.ratios[level], self.count
        filled = np.empty((len(ratios), count, count))
        for variant, ratio in enumerate(ratios):
            inputs = (*self._inputs(level, ratio), self.cuts.states, self.cuts.inside)
            for low in range(0, count, BLOCK):
                high = min(low + BLOCK, count)
                filled[variant, low:high] = kernels.solve(*inputs, low, high, math.inf)[:, -1, :].T
        return filled

    def _stages(self, level: int, ratio: Fraction, start: int, end: int) -> tuple[float, list[tuple[int, int, int, Fraction]]]:
        """Time of a component of a level between two states, and its stages: from, to, replicas, ratio within."""
        from costmodel.studies.partitioning import kernel as kernels

        inputs = (*self._inputs(level, ratio), self.cuts.states, self.cuts.inside)
        for bound in self._bounds(level, start, end):
            best = kernels.solve(*inputs, start, start + 1, bound)
            time = float(best[end, -1, 0])
            if time <= bound:
                break
        if not math.isfinite(time):
            return time, []
        trace = kernels.trace_as_program if self.problem.of_program else kernels.trace
        found = trace(best, *inputs, start, end)
        return time, [
            (i, j, replicas, self.problem.inner_ratio(level, ratio, used, replicas))
            for i, j, replicas, used in found.tolist()
        ]

    def _bounds(self, level: int, start: int, end: int) -> list[float]:
        """Times within which to look for a pipeline, one after another: few pipelines are as fast as a fair share of the work."""
        whole = level == 0 and end == self.count - 1 and not self.problem.of_program
        fair = float(self.cuts.states.time[end] - self.cuts.states.time[start]) / self.problem.machines[level]
        return [*(share * fair for share in WITHIN if whole and fair > 0.0), math.inf]

    def partition(self) -> Partition | None:
        """The best pipeline, if there is one."""
        problem, layers = self.problem, self.graph.chain.layers
        taken = 0

        def tree(level: int, stages: list[tuple[int, int, int, Fraction]]) -> tuple[Stage, ...]:
            return tuple(stage(level, *each) for each in stages)

        def stage(level: int, start: int, end: int, replicas: int, ratio: Fraction) -> Stage:
            nonlocal taken
            inner: tuple[Stage, ...] = ()
            fresh = self.cuts.set(end) & ~taken  # the published program may cut through a branch that it has passed already
            if level:
                inner = tree(level - 1, self._stages(level - 1, ratio, start, end)[1])
            taken |= fresh
            positions = sorted(i for node, group in enumerate(self.graph.groups) if fresh >> node & 1 for i in group)
            held = [layers[i] for i in positions]
            return Stage(
                layers=tuple(layer.name for layer in held), replicas=replicas,
                compute_time=sum(layer.forward + layer.backward for layer in held),
                parameter_bytes=sum(layer.parameter_bytes for layer in held),
                activation_bytes=sum(layer.kept_bytes for layer in held),
                output_bytes=self._boundary(end), inner=inner,
            )  # fmt: skip

        top = len(problem.machines) - 1
        time, stages = self._stages(top, Fraction(0), 0, self.count - 1)
        if not math.isfinite(time):
            return None
        return Partition(
            chain=self.graph.chain, machines=problem.components, bandwidths=problem.rates, recurrence=problem.recurrence,
            activation_compression=problem.compression, time=time, data_parallel_time=self._data_parallel(),
            single_time=float(self.cuts.states.time[-1]), stages=tree(top, stages), states=self.count - 1,
            proven=time <= max(self.cuts.left_out, (1.0 + 1e-12) * self.cuts.states.time[-1] / problem.workers),
        )  # fmt: skip

    def _boundary(self, end: int) -> float:
        inside = self.cuts.set(end)
        return float(sum(
            self.graph.quantities[-1, node] for node, takers in enumerate(self.graph.takers)
            if inside >> node & 1 and not all(inside >> taker & 1 for taker in takers)
        ))  # fmt: skip

    def _data_parallel(self) -> float:
        time, weights, within = float(self.cuts.states.time[-1]), float(self.cuts.states.weights[-1]), 1.0
        if self.problem.in_a_row:
            slowest = float(self.problem.links[-1])
            return float(pipedream.data_parallel_minibatch(time, weights, float(self.problem.workers), slowest))
        for machines, bandwidth in zip(self.problem.machines, self.problem.bandwidths, strict=True):
            if self.problem.of_program:
                time = pipedream.replicated_stage_code(time, weights, float(machines), bandwidth, within)
            elif self.problem.recurrence == "sosp19":
                time = pipedream.replicated_stage(time, weights, float(machines), bandwidth)
            else:
                time = pipedream.replicated_stage_2018(time, weights, float(machines), bandwidth)
            within = float(machines)
        return time
