"""A graph of layers as the kernel takes it: bit sets, columns of numbers, and the states between which it can be cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from costmodel.workloads.layers import LayerChain

if TYPE_CHECKING:
    from costmodel.kernels.partition import States

Words = NDArray[np.uint64]


class Graph:
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
        self.quantities = np.array([[1.0] * len(kept), [time[node] for node in kept], [weights[node] for node in kept], output])
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

    def states(self, most: int, of_program: bool) -> tuple[list[int], States, NDArray[np.bool_], bool]:
        """Sets of nodes between which a cut can be, and what the kernel takes of them.

        Parameters
        ----------
        most : states; where there are more, the sets that a few orders of the nodes pass through
        of_program : as the published program enumerates and measures them

        Returns
        -------
        list, States, array, bool
            the sets as integers, the empty one first; their sums; which is a part of which; whether these are all
        """
        from costmodel.kernels import partition as kernels

        down, takers = self.words(self.down), self.words(map(_set, self.takers))
        found = kernels.enumerate_states(down, self.words(map(_set, self.inputs)), of_program, most)
        exhaustive = found.shape[0] > 0
        if not exhaustive:
            found = self.words(self.prefixes(most))
        sums = kernels.measure(found, self.quantities)
        order = np.argsort(sums[0], kind="stable")
        found, sums = np.ascontiguousarray(found[order]), sums[:, order]
        cut = kernels.boundary_of_program(found, down, takers, self.quantities[3]) if of_program else (
            kernels.boundary(found, takers, self.quantities[3])
        )  # fmt: skip
        empty = np.zeros((1, found.shape[1]), np.uint64)
        inside = kernels.within(np.concatenate([empty, found]))
        zero = np.zeros((4, 1))
        _, time, weights, held = np.concatenate([zero, sums], axis=1)
        content = found.tobytes()
        width = 8 * found.shape[1]
        sets = [0, *(int.from_bytes(content[i : i + width], "little") for i in range(0, len(content), width))]
        state = kernels.States(time, weights, held, np.concatenate([[0.0], cut]))
        return sets, state, inside, exhaustive

    def prefixes(self, most: int) -> list[int]:
        """Sets that orders of the nodes pass through: branch after branch, all branches abreast, as given."""
        found: dict[int, None] = {}
        for order in (self._depth_first(), self._abreast(), range(len(self.inputs))):
            passed, now = [], 0
            for node in order:
                now |= 1 << node
                passed.append(now)
            if found and len(found) + len(passed) > most:
                break
            found |= dict.fromkeys(passed)
        return list(found)

    def _depth_first(self) -> list[int]:
        missing = [len(sources) for sources in self.inputs]
        ready = [node for node in reversed(range(len(missing))) if not missing[node]]
        order = []
        while ready:
            node = ready.pop()
            order.append(node)
            for taker in reversed(self.takers[node]):
                missing[taker] -= 1
                if not missing[taker]:
                    ready.append(taker)
        return order

    def _abreast(self) -> list[int]:
        depth: list[int] = []
        for sources in self.inputs:
            depth.append(1 + max((depth[source] for source in sources), default=0))
        return sorted(range(len(depth)), key=depth.__getitem__)


def _set(nodes: Iterable[int]) -> int:
    together = 0
    for node in nodes:
        together |= 1 << node
    return together
