"""Schedules of a chain's forward and backward pass: by rule, by dynamic program and by integer program."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from costmodel.formulas.systems.rematerialisation import square_root_segments
from costmodel.text.errors import CostModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]

FORWARD, RECORD, BACKWARD, DISCARD = "forward", "record", "backward", "discard"
KINDS = (FORWARD, RECORD, BACKWARD, DISCARD)
POINTS = 1024
"""Points kept of a frontier of the dynamic program; with more, budgets in between get the schedule of the next below."""


class Action(NamedTuple):
    """One action of a schedule, of `KINDS`, and the number of the layer that it is done to.

    ``"forward"`` makes a layer's output, ``"record"`` makes it with all that the backward pass needs, ``"backward"``
    uses that up, ``"discard"`` frees an output or a record.
    """

    kind: str
    layer: int


Memory = TypeVar("Memory")
"""What a method has to remember of a part of a chain until it comes to it."""


class ChainNumbers(NamedTuple):
    """A chain in numbers, by layer."""

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    outputs: tuple[int, ...]
    saved: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]
    users: tuple[tuple[int, ...], ...]

    def gradients(self, layer: int) -> int:
        """Bytes of the gradients of a layer's inputs."""
        return sum(self.outputs[source] for source in self.inputs[layer])


class Cut(NamedTuple, Generic[Memory]):
    """How a part of a chain is done."""

    layer: int  # where it is cut; at its first layer: that layer is recorded, and the rest done behind it
    behind: Memory  # behind, before: what the method has to remember when it comes to the parts behind and before the cut
    before: Memory
    recorded: bool = False  # whether the layer before the cut is recorded at once; else its output is kept


class _Part(NamedTuple, Generic[Memory]):
    """Layers to be done, the last of them recorded already if it is `ready`, and what the method remembers of them."""

    first: int
    last: int
    ready: bool
    memory: Memory


def _schedule(layers: int, choose: Callable[[int, int, bool, Memory], Cut[Memory]], memory: Memory) -> list[Action]:
    """Actions of a chain that is done part by part as `choose` says: first and last layer, whether the last is ready
    (recorded already), and what it has to remember."""
    actions: list[Action] = []
    work: list[Action | _Part[Memory]] = [_Part(0, layers - 1, False, memory)]
    while work:
        part = work.pop()
        if isinstance(part, Action):
            actions.append(part)
            continue
        first, last, ready, memory = part
        cut = Cut(first, memory, memory) if first == last else choose(first, last, ready, memory)
        if cut.layer == first:
            if first < last or not ready:
                actions.append(Action(RECORD, first))
            work.append(Action(BACKWARD, first))
            if first < last:
                work.append(_Part(first + 1, last, ready, cut.behind))
            continue
        for layer in range(first, cut.layer):
            actions.append(Action(RECORD if cut.recorded and layer == cut.layer - 1 else FORWARD, layer))
            if layer > first:
                actions.append(Action(DISCARD, layer - 1))
        work.append(_Part(first, cut.layer - 1, cut.recorded, cut.before))
        if not cut.recorded:
            work.append(Action(DISCARD, cut.layer - 1))
        work.append(_Part(cut.layer, last, ready, cut.behind))
    return actions


def _cuts(weights: Sequence[int], first: int, last: int, parts: int) -> tuple[int, ...]:
    """First layers of the second to the last of at most so many parts of equal weight."""
    sums = list(itertools.accumulate(weights[first : last + 1]))
    # compared as whole numbers, so that equal layers make equal parts
    ends = {first + 1 + bisect.bisect_left(sums, part * sums[-1], key=lambda total: total * parts) for part in range(1, parts)}
    return tuple(sorted(cut for cut in ends if cut <= last))


def _segments(graph: ChainNumbers, count: int) -> list[Action]:
    """Chen et al. 2016, section 4.2: segments of equal bytes, of which only the outputs are kept."""
    cuts = _cuts(graph.saved, 0, len(graph.saved) - 1, count)

    def choose(first: int, last: int, _ready: bool, _: None) -> Cut[None]:
        following = bisect.bisect_right(cuts, first)
        return Cut(cuts[following] if following < len(cuts) and cuts[following] <= last else first, None, None)

    return _schedule(len(graph.saved), choose, None)


def _recursive(graph: ChainNumbers, count: int) -> list[Action]:
    """Chen et al. 2016, section 4.4: `count` checkpoints cut a part, and every piece is cut the same way again."""

    def choose(first: int, last: int, _ready: bool, cuts: tuple[int, ...]) -> Cut[tuple[int, ...]]:
        cut, *others = cuts or _cuts(graph.saved, first, last, count + 1) or (first + 1,)
        return Cut(cut, tuple(others), none)

    none: tuple[int, ...] = ()
    return _schedule(len(graph.saved), choose, none)


def _revolve(graph: ChainNumbers, count: int) -> list[Action]:
    from costmodel.studies.rematerialisation import kernel as kernels

    actions: list[Action] = []
    for code, start, end in kernels.revolve(len(graph.saved), count).tolist():
        if code == kernels.ADVANCE:
            actions.append(Action(FORWARD, start))
            for layer in range(start + 1, end):
                actions += [Action(FORWARD, layer), Action(DISCARD, layer - 1)]
        elif code == kernels.TURN:
            actions += [Action(RECORD, start), Action(BACKWARD, start)]
            actions += [Action(DISCARD, start - 1)] * (start > 0)
    return actions


def _selective(graph: ChainNumbers, count: int) -> list[Action]:
    """Korthikanti et al. 2022, section 5: the layers that free most bytes for their time are run again from their inputs."""

    def worth(layer: int) -> float:
        freed = graph.saved[layer] - graph.outputs[layer]
        return freed / graph.forward[layer] if graph.forward[layer] else math.inf * freed if freed else 0.0

    again = set(sorted(range(len(graph.saved)), key=worth, reverse=True)[:count])
    return _schedule(len(graph.saved), lambda first, last, ready, none: Cut(first + (first in again), none, none), None)


class Counted(NamedTuple):
    """A method with one number to choose."""

    schedule: Callable[[ChainNumbers, int], list[Action]]  # for a graph and that number
    least: int  # that it can be
    default: Callable[[int], int]  # what its authors choose for a number of layers, where memory sets no limit
    counts: str  # what the number is of


COUNTED = {
    "sqrt": Counted(_segments, 1, lambda layers: round(square_root_segments(float(layers))), "segments"),
    "recursive": Counted(_recursive, 1, lambda layers: 1, "checkpoints of a piece"),
    "revolve": Counted(_revolve, 1, lambda layers: layers, "snapshots"),
    "selective": Counted(_selective, 0, lambda layers: 0, "layers run again"),
}
"""The methods that follow a rule."""


class Frontiers(NamedTuple):
    """What the dynamic program found, as `costmodel.studies.rematerialisation.kernel.frontiers` says."""

    start: Integers
    lengths: Integers
    nbytes: Integers
    times: Floats
    choices: Integers
    exact: bool

    def schedule(self, graph: ChainNumbers, room: int) -> list[Action]:
        """The fastest schedule that takes at most `room` bytes beside the input."""
        from costmodel.studies.rematerialisation.kernel import RECORD as RECORDING

        layers = len(graph.saved)

        def choose(first: int, last: int, ready: bool, room: int) -> Cut[int]:
            start, count = int(self.start[int(ready), first, last]), int(self.lengths[int(ready), first, last])
            point = start + int(self.nbytes[start : start + count].searchsorted(room, side="right")) - 1
            layer = int(self.choices[point])
            if layer == RECORDING:
                return Cut(first, room - graph.saved[first], room)
            recorded, layer = layer >= layers, layer % layers
            return Cut(layer, room - (graph.saved if recorded else graph.outputs)[layer - 1], room, recorded)

        return _schedule(layers, choose, room)

    def top(self) -> tuple[Integers, Floats]:
        """Bytes and forward times of the whole chain's frontier."""
        points = slice(self.start[0, 0, -1], self.start[0, 0, -1] + self.lengths[0, 0, -1])
        return self.nbytes[points], self.times[points]


@functools.lru_cache(maxsize=4)
def frontiers(graph: ChainNumbers) -> Frontiers:
    """The fastest schedules of a chain at every budget."""
    import numpy as np

    from costmodel.studies.rematerialisation import kernel as kernels

    outputs, saved, inputs = (np.array(column, np.int64) for column in (graph.outputs, graph.saved, (0, *graph.outputs)))
    return Frontiers(*kernels.frontiers(np.array(graph.forward), outputs, saved, inputs, POINTS))


class _Program:
    """Checkmate's integer program: its nodes, its unknowns by what they stand for, and what holds between them.

    Nodes are the forward passes, the loss and the backward passes from the last layer to the first. In stage t node t is
    run for the first time, after any nodes before it.
    """

    def __init__(self, graph: ChainNumbers):
        layers = self.layers = len(graph.forward)
        ends = tuple(i for i in range(layers) if not graph.users[i])
        backward = [2 * layers - i for i in range(layers)]  # node of each layer's backward pass
        self.needs = [*graph.inputs, ends] + [
            (i, *graph.inputs[i], *([backward[user] for user in graph.users[i]] or [layers])) for i in reversed(range(layers))
        ]
        outputs = [*graph.outputs, sum(graph.outputs[i] for i in ends)]
        sizes = [*outputs, *(graph.gradients(i) for i in reversed(range(layers)))]
        self.scale = max(*sizes, 1)
        self.sizes = [size / self.scale for size in sizes]
        self.nodes = range(len(self.needs))
        self.taken_by = [[j for j in self.nodes if i in self.needs[j]] for i in self.nodes]
        stages = [(t, i) for t in self.nodes for i in range(t + 1)]
        kept = [(t, i) for t, i in stages if i < t]
        spent = [(t, i, k) for t, k in stages for i in {k, *self.needs[k]}]
        numbers = itertools.count()
        self.run = dict(zip(stages, numbers, strict=False))
        """Whether a node is run in a stage."""
        self.keep = dict(zip(kept, numbers, strict=False))
        """Whether a node's output is kept from the stage before."""
        self.held = dict(zip(stages, numbers, strict=False))
        """Memory in a stage after a node was run, in units of the scale."""
        self.free = dict(zip(spent, numbers, strict=False))
        """Whether an output is freed in a stage after a node was run."""
        self.unknowns = 2 * len(stages) + len(kept) + len(spent)
        self.rows: list[dict[int, float]] = []
        self.lower: list[float] = []
        self.upper: list[float] = []
        for t in self.nodes:
            for i in range(t):
                self._hold_kept(t, i)
            for k in range(t + 1):
                self._hold_inputs(t, k)
                self._hold_memory(t, k)
                self._hold_freed(t, k)

    def hold(self, terms: dict[int, float], least: float, most: float) -> None:
        """A sum of unknowns, by their numbers, is in an interval."""
        self.rows.append(terms)
        self.lower.append(least)
        self.upper.append(most)

    def _hold_kept(self, t: int, i: int) -> None:
        """What is kept was kept or run before."""
        kept = {self.keep[t, i]: 1.0, self.run[t - 1, i]: -1.0}
        if (t - 1, i) in self.keep:
            kept[self.keep[t - 1, i]] = -1.0
        self.hold(kept, -math.inf, 0.0)

    def _hold_inputs(self, t: int, k: int) -> None:
        """A node's inputs are there when it is run."""
        for i in self.needs[k]:
            self.hold({self.run[t, k]: 1.0, self.run[t, i]: -1.0, self.keep[t, i]: -1.0}, -math.inf, 0.0)

    def _hold_memory(self, t: int, k: int) -> None:
        """Memory is what was kept and run less what was freed."""
        now = {self.held[t, k]: 1.0, self.run[t, k]: -self.sizes[k]}
        if k == 0:
            now |= {self.keep[t, i]: -self.sizes[i] for i in range(t)}
        else:
            now[self.held[t, k - 1]] = -1.0
            now |= {self.free[t, i, k - 1]: self.sizes[i] for i in {k - 1, *self.needs[k - 1]}}
        self.hold(now, 0.0, 0.0)

    def _hold_freed(self, t: int, k: int) -> None:
        """An output is freed exactly where a node was run and nothing needs the output any more."""
        for i in {k, *self.needs[k]}:
            later = [self.run[t, j] for j in self.taken_by[i] if k < j <= t]
            if t + 1 in self.nodes:
                later.append(self.keep[t + 1, i])
            hazards = {self.run[t, k]: -1.0} | dict.fromkeys(later, 1.0)
            self.hold(hazards | {self.free[t, i, k]: 1.0}, 0.0, math.inf)
            most = 1.0 + len(later)
            self.hold(hazards | {self.free[t, i, k]: most}, -math.inf, most - 1.0)

    def solved(self, forward: Sequence[float], budget: int, seconds: float) -> Sequence[float] | None:
        """Values of the unknowns with the least forward time within a budget; None where there are none."""
        import numpy as np
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        least, most = np.zeros(self.unknowns), np.ones(self.unknowns)
        cost, whole_numbers = np.zeros(self.unknowns), np.ones(self.unknowns)
        for (t, i), column in self.run.items():
            least[column] = float(i == t)
            most[column] = float(i == t or i < self.layers)
            most[self.held[t, i]] = budget / self.scale
            cost[column] = forward[i] if i < self.layers else 0.0
        whole_numbers[list(self.held.values())] = 0.0
        entries = [(value, row, column) for row, terms in enumerate(self.rows) for column, value in terms.items()]
        values, row_numbers, columns = zip(*entries, strict=True)
        matrix = csr_array((values, (row_numbers, columns)), shape=(len(self.rows), self.unknowns))
        found = milp(
            cost, integrality=whole_numbers, bounds=Bounds(least, most),
            constraints=LinearConstraint(matrix, self.lower, self.upper),
            options={"mip_rel_gap": 1e-9, "time_limit": seconds},
        )  # fmt: skip
        if found.status not in (0, 2):
            raise CostModelError(f"the integer program found no answer in {seconds:g} s ({found.message}): try fewer layers")
        answer: Sequence[float] | None = found.x if found.status == 0 else None
        return answer

    def actions(self, values: Sequence[float]) -> list[Action]:
        """Actions that values of the unknowns stand for."""
        actions: list[Action] = []
        alive: set[int] = set()

        def discard(gone: set[int]) -> None:
            actions.extend(Action(DISCARD, i) for i in sorted(gone))
            alive.difference_update(gone)

        for t in self.nodes:
            for k in range(t + 1):
                if values[self.run[t, k]] < 0.5:
                    continue
                if k < self.layers and k not in alive:
                    actions.append(Action(RECORD, k))
                    alive.add(k)
                elif k > self.layers:
                    actions.append(Action(BACKWARD, 2 * self.layers - k))
                    alive.discard(2 * self.layers - k)
                discard({i for i in {k, *self.needs[k]} & alive if values[self.free[t, i, k]] > 0.5})
            discard({i for i in alive if t + 1 not in self.nodes or values[self.keep[t + 1, i]] < 0.5})
        return actions


def checkmate(graph: ChainNumbers, budget: int, seconds: float) -> list[Action] | None:
    """Actions of Checkmate's integer program with the least forward time; None where nothing fits the budget.

    Stage by stage one more node of the graph of forward and backward passes is run for the first time; before it, any
    forward passes are run again, each at most once. Backward passes are run once; records are outputs.

    Parameters
    ----------
    graph : of layers whose records are their outputs
    budget : beside the input [bytes]
    seconds : that the solver may take

    Raises
    ------
    CostModelError
        where the solver stops without an answer

    References
    ----------
    [jain2020]_ equations 1 to 9
    """
    program = _Program(graph)
    values = program.solved(graph.forward, budget, seconds)
    return None if values is None else program.actions(values)
