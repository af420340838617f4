"""A graph of layers as the kernel takes it: bit sets, columns of numbers, and the states between which it can be cut."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.description.layers import LayerChain

if TYPE_CHECKING:
    from costmodel.studies.partitioning.kernel import States

Words = NDArray[np.uint64]
Array = NDArray[np.float64]

MOST_ENUMERATED, MOST_GROUPED = 500_000, 4_000_000
"""States that are looked at before some are chosen, of layers and of branches whose layers stay together."""
FEW = 1_000
"""States of which plain Python makes a list before Numba is loaded."""


class Cuts(NamedTuple):
    """States of a graph: sets of nodes between which a cut can be, each after those within it, the empty one first."""

    words: Words
    states: States
    inside: NDArray[np.bool_]  # whether state i is a part of state j
    left_out: float  # least time of pipelines that are cut elsewhere, as far as that is known [s]

    def set(self, state: int) -> int:
        """A state as an integer, a bit a node."""
        return int.from_bytes(self.words[state].tobytes(), "little")


class LayerGraph:
    """Nodes, each a group of layers that stay together, and which node takes whose output.

    Left out are nodes that cost nothing, take one output that others take too, and whose own output nobody takes:
    pieces of an output that go unused.

    Parameters
    ----------
    chain : the layers
    groups : positions of the layers of each node; inputs come into the first, the last one's output goes on
    """

    def __init__(self, chain: LayerChain, groups: Sequence[tuple[int, ...]]):
        node_of = {position: node for node, group in enumerate(groups) for position in group}
        inputs = [sorted({node_of[source] for source in chain.inputs[group[0]]}) for group in groups]
        takers: list[list[int]] = [[] for _ in groups]
        for node, sources in enumerate(inputs):
            for source in sources:
                takers[source].append(node)
        time = [sum(chain.layers[i].forward + chain.layers[i].backward for i in group) for group in groups]
        weights = [sum(chain.layers[i].parameter_bytes for i in group) for group in groups]

        idle = {
            node for node in range(len(groups))
            if not takers[node] and not time[node] and not weights[node]
            and len(inputs[node]) == 1 and len(takers[inputs[node][0]]) > 1
        }  # fmt: skip
        kept = [node for node in range(len(groups)) if node not in idle]
        place = {node: position for position, node in enumerate(kept)}

        self.chain = chain
        self.groups = [list(groups[node]) for node in kept]
        for node in idle:
            self.groups[place[inputs[node][0]]].extend(groups[node])
        self.inputs = [[place[source] for source in inputs[node]] for node in kept]
        self.takers = [[place[taker] for taker in takers[node] if taker not in idle] for node in kept]
        output = [chain.layers[groups[node][-1]].output_bytes for node in kept]
        held = [sum(chain.layers[i].kept_bytes for i in groups[node]) for node in kept]
        self.quantities = np.array([
            [1.0] * len(kept), [time[node] for node in kept], [weights[node] for node in kept], held, output
        ])  # fmt: skip
        self.down: list[int] = []
        for node, sources in enumerate(self.inputs):
            before = 1 << node
            for source in sources:
                before |= self.down[source]
            self.down.append(before)

    def words(self, sets: Iterable[int]) -> Words:
        """Sets of nodes, given as integers, as rows of 64-bit words."""
        words = len(self.inputs) // 64 + 1
        return np.frombuffer(b"".join(s.to_bytes(8 * words, "little") for s in sets), np.uint64).reshape(-1, words)

    @functools.cached_property
    def sets(self) -> tuple[Words, Words, Words]:
        """Of each node: all before it and itself, whose outputs it takes, who takes its own."""
        return self.words(self.down), self.words(map(_set, self.inputs)), self.words(map(_set, self.takers))

    def enumerate(self, of_program: bool, most: int) -> tuple[Words, Array, Array]:
        """Every state but the empty one, the sums of its quantities, and what crosses the cut; none if over `most`."""
        from costmodel.studies.partitioning import kernel as kernels

        for bound in sorted({min(FEW, most), most}):
            found: tuple[Words, Array, Array] = kernels.enumerate_states(*self.sets, self.quantities, of_program, bound)
            if len(found[0]):
                break
        return found

    def cuts(self, found: Words, of_program: bool, left_out: float) -> Cuts:
        """What the dynamic program takes of some states."""
        from costmodel.studies.partitioning import kernel as kernels

        down, _, takers = self.sets
        sums, sent = kernels.measure(found, takers, self.quantities)
        if of_program:
            sent = kernels.boundary_of_program(found, down, takers, self.quantities[-1])
        order = np.argsort(sums[0], kind="stable")
        words = np.concatenate([np.zeros((1, found.shape[1]), np.uint64), found[order]])
        sums = np.concatenate([np.zeros((len(sums), 1)), sums[:, order]], axis=1)
        # the published program holds one output of a branch
        states = kernels.States(sums[1], sums[2], sums[-1 if of_program else 3], np.concatenate([[0.0], sent[order]]))
        return Cuts(words, states, kernels.within(words), left_out)

    @functools.cached_property
    def branches(self) -> tuple[LayerGraph, list[int]]:
        """The graph whose nodes are branches, and those as sets of this graph's nodes."""
        coarse = graph_of(self.chain, True)
        node_of = {position: node for node, group in enumerate(self.groups) for position in group}
        return coarse, [_set({node_of[position] for position in group}) for group in coarse.groups]

    def cuts_in_order(self, most: int, of_program: bool) -> Cuts:
        """The cuts that a few orders of the branches and of the nodes pass through, up to two thirds of `most`."""
        coarse, within = self.branches
        own = [1 << node for node in range(len(self.groups))]
        orders = [
            *([within[node] for node in order] for order in coarse.orders()),
            *([own[node] for node in order] for order in self.orders()),
        ]
        return self.cuts(self.words(_prefixes(orders, 2 * most // 3)), of_program, 0.0)

    def promising_cuts(self, most: int, of_program: bool, bound: Callable[[Array, Array], Array]) -> Cuts:
        """The cuts in order, and those of all, or of all between branches, that promise most.

        Half of those have least to send, each among the ones after about the same compute; half leave most room for a
        fast pipeline.

        Parameters
        ----------
        most : states
        of_program : as the published program enumerates and measures them
        bound : of states' times and outputs, the time below which no pipeline that is cut there can be
        """
        from costmodel.studies.partitioning import kernel as kernels

        passed = self.cuts_in_order(most, of_program).words[1:]
        room = most - len(passed)
        coarse, within = self.branches
        alike = len(coarse.groups) == len(self.groups)
        found, sums, sent = self.enumerate(of_program, MOST_GROUPED if alike else MOST_ENUMERATED)
        every = len(found) > 0
        if not every and not alike:
            found, sums, sent = coarse.enumerate(of_program, MOST_GROUPED)
        if not len(found) or room < 2:
            return self.cuts(passed, of_program, 0.0)

        share = np.floor(sums[1] * (room // 2 / max(float(sums[1].max()), 1e-300)))
        rank = np.lexsort((sent, share))
        lightest = rank[np.flatnonzero(np.diff(share[rank], prepend=-1.0))]
        bounds = bound(sums[1], sent)
        bounds[lightest] = -1.0
        rank = np.argsort(bounds, kind="stable")
        chosen = found[rank[:room]]
        if every:
            left_out = float(bounds[rank[room]]) if room < len(rank) else math.inf
        else:
            left_out, chosen = 0.0, kernels.expand(chosen, self.words(within))
        return self.cuts(np.unique(np.concatenate([passed, chosen]), axis=0), of_program, left_out)

    def orders(self) -> Iterator[list[int]]:
        """Orders in which the nodes can run: least outputs to keep, branch after branch, all branches abreast."""
        output, left = self.quantities[-1], [len(takers) for takers in self.takers]

        def grows(node: int) -> float:
            """How many bytes more are kept for later nodes once this one has run."""
            freed = sum(output[source] for source in self.inputs[node] if left[source] == 1)
            return float(bool(left[node]) * output[node] - freed)

        def least(ready: list[int]) -> int:
            node = min(ready, key=grows)
            for source in self.inputs[node]:
                left[source] -= 1
            return node

        depth: list[int] = []
        for sources in self.inputs:
            depth.append(1 + max((depth[source] for source in sources), default=0))
        yield self._order(least)
        yield self._order(lambda ready: ready[-1])
        yield sorted(range(len(depth)), key=depth.__getitem__)

    def _order(self, choose: Callable[[list[int]], int]) -> list[int]:
        missing = [len(sources) for sources in self.inputs]
        ready = [node for node in reversed(range(len(missing))) if not missing[node]]
        order = []
        while ready:
            order.append(choose(ready))
            ready.remove(order[-1])
            for taker in reversed(self.takers[order[-1]]):
                missing[taker] -= 1
                if not missing[taker]:
                    ready.append(taker)
        return order


def _prefixes(orders: Iterable[Sequence[int]], most: int) -> list[int]:
    """What orders of sets pass through, of as many orders as there is room for, or of the first."""
    found: dict[int, None] = {}
    for order in orders:
        passed = list(itertools.accumulate(order, operator.or_))
        if found and len(found) + len(passed) > most:
            continue
        found |= dict.fromkeys(passed)
    return list(found)


@functools.lru_cache(maxsize=4)
def graph_of(chain: LayerChain, compress_branches: bool) -> LayerGraph:
    """The graph of a chain, kept for the next question about it."""
    groups = chain.branches if compress_branches else tuple((position,) for position in range(len(chain.layers)))
    return LayerGraph(chain, groups)


@functools.lru_cache(maxsize=4)
def all_cuts(graph: LayerGraph, most: int, of_program: bool) -> Cuts | None:
    """Every cut of a graph, kept for the next question about it; None where there are more than `most`."""
    found, _, _ = graph.enumerate(of_program, most)
    return graph.cuts(found, of_program, math.inf) if len(found) else None


def _set(nodes: Iterable[int]) -> int:
    together = 0
    for node in nodes:
        together |= 1 << node
    return together
