"""Schedules of a chain's forward and backward pass: by rule, by dynamic program and by integer program."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from costmodel.errors import CostModelError
from costmodel.formulas.systems.rematerialisation import square_root_segments

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


class Graph(NamedTuple):
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


class Cut(NamedTuple):
    """How a part of a chain is done.

    Parameters
    ----------
    layer : where it is cut; at its first layer: that layer is recorded, and the rest done behind it
    behind, before : what the method has to remember when it comes to the parts behind and before the cut
    recorded : whether the layer before the cut is recorded at once; else its output is kept
    """

    layer: int
    behind: Any = None
    before: Any = None
    recorded: bool = False


def _schedule(layers: int, choose: Callable[[int, int, bool, Any], Cut], context: Any) -> list[Action]:
    """Actions of a chain that is done part by part as `choose` says: first and last layer, whether the last is ready
    (recorded already), and what it has to remember."""
    actions: list[Action] = []
    work: list[tuple[Action | None, int, int, bool, Any]] = [(None, 0, layers - 1, False, context)]
    while work:
        action, first, last, ready, context = work.pop()
        if action is not None:
            actions.append(action)
            continue
        cut = Cut(first) if first == last else choose(first, last, ready, context)
        if cut.layer == first:
            if first < last or not ready:
                actions.append(Action(RECORD, first))
            work.append((Action(BACKWARD, first), 0, 0, False, None))
            if first < last:
                work.append((None, first + 1, last, ready, cut.behind))
            continue
        for layer in range(first, cut.layer):
            actions.append(Action(RECORD if cut.recorded and layer == cut.layer - 1 else FORWARD, layer))
            if layer > first:
                actions.append(Action(DISCARD, layer - 1))
        work.append((None, first, cut.layer - 1, cut.recorded, cut.before))
        if not cut.recorded:
            work.append((Action(DISCARD, cut.layer - 1), 0, 0, False, None))
        work.append((None, cut.layer, last, ready, cut.behind))
    return actions


def _cuts(weights: Sequence[int], first: int, last: int, parts: int) -> tuple[int, ...]:
    """First layers of the second to the last of at most so many parts of equal weight."""
    sums = list(itertools.accumulate(weights[first : last + 1]))
    # compared as whole numbers, so that equal layers make equal parts
    ends = {first + 1 + bisect.bisect_left(sums, part * sums[-1], key=lambda total: total * parts) for part in range(1, parts)}
    return tuple(sorted(cut for cut in ends if cut <= last))


def _segments(graph: Graph, count: int) -> list[Action]:
    """Chen et al. 2016, section 4.2: segments of equal bytes, of which only the outputs are kept."""
    cuts = _cuts(graph.saved, 0, len(graph.saved) - 1, count)

    def choose(first: int, last: int, _ready: bool, _: Any) -> Cut:
        following = bisect.bisect_right(cuts, first)
        return Cut(cuts[following] if following < len(cuts) and cuts[following] <= last else first)

    return _schedule(len(graph.saved), choose, None)


def _recursive(graph: Graph, count: int) -> list[Action]:
    """Chen et al. 2016, section 4.4: `count` checkpoints cut a part, and every piece is cut the same way again."""

    def choose(first: int, last: int, _ready: bool, cuts: tuple[int, ...]) -> Cut:
        cut, *others = cuts or _cuts(graph.saved, first, last, count + 1) or (first + 1,)
        return Cut(cut, tuple(others), ())

    return _schedule(len(graph.saved), choose, ())


def _revolve(graph: Graph, count: int) -> list[Action]:
    from costmodel.kernels import rematerialisation as kernels

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


def _selective(graph: Graph, count: int) -> list[Action]:
    """Korthikanti et al. 2022, section 5: the layers that free most bytes for their time are run again from their inputs."""

    def worth(layer: int) -> float:
        freed = graph.saved[layer] - graph.outputs[layer]
        return freed / graph.forward[layer] if graph.forward[layer] else math.inf * freed if freed else 0.0

    again = set(sorted(range(len(graph.saved)), key=worth, reverse=True)[:count])
    return _schedule(len(graph.saved), lambda first, *_: Cut(first + (first in again)), None)


class Counted(NamedTuple):
    """A method with one number to choose.

    Parameters
    ----------
    schedule : for a graph and that number
    least : that it can be
    default : what its authors choose for a number of layers, where memory sets no limit
    counts : what the number is of
    """

    schedule: Callable[[Graph, int], list[Action]]
    least: int
    default: Callable[[int], int]
    counts: str


COUNTED = {
    "sqrt": Counted(_segments, 1, lambda layers: round(square_root_segments(float(layers))), "segments"),
    "recursive": Counted(_recursive, 1, lambda layers: 1, "checkpoints of a piece"),
    "revolve": Counted(_revolve, 1, lambda layers: layers, "snapshots"),
    "selective": Counted(_selective, 0, lambda layers: 0, "layers run again"),
}
"""The methods that follow a rule."""


class Frontiers(NamedTuple):
    """What the dynamic program found, as `costmodel.kernels.rematerialisation.frontiers` says."""

    start: Any
    count: Any
    nbytes: Any
    times: Any
    choices: Any
    exact: bool

    def schedule(self, graph: Graph, room: int) -> list[Action]:
        """The fastest schedule that takes at most `room` bytes beside the input."""
        from costmodel.kernels.rematerialisation import RECORD as RECORDING

        layers = len(graph.saved)

        def choose(first: int, last: int, ready: bool, room: int) -> Cut:
            start, count = int(self.start[int(ready), first, last]), int(self.count[int(ready), first, last])
            point = start + int(self.nbytes[start : start + count].searchsorted(room, side="right")) - 1
            layer = int(self.choices[point])
            if layer == RECORDING:
                return Cut(first, room - graph.saved[first])
            recorded, layer = layer >= layers, layer % layers
            return Cut(layer, room - (graph.saved if recorded else graph.outputs)[layer - 1], room, recorded)

        return _schedule(layers, choose, room)

    def top(self) -> tuple[Any, Any]:
        """Bytes and forward times of the whole chain's frontier."""
        points = slice(self.start[0, 0, -1], self.start[0, 0, -1] + self.count[0, 0, -1])
        return self.nbytes[points], self.times[points]


@functools.lru_cache(maxsize=4)
def frontiers(graph: Graph) -> Frontiers:
    """The fastest schedules of a chain at every budget."""
    import numpy as np

    from costmodel.kernels import rematerialisation as kernels

    whole_numbers = (np.array(column, np.int64) for column in (graph.outputs, graph.saved, (0, *graph.outputs)))
    return Frontiers(*kernels.frontiers(np.array(graph.forward), *whole_numbers, POINTS))


def checkmate(graph: Graph, budget: int, seconds: float) -> list[Action] | None:
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
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    layers = len(graph.forward)
    ends = tuple(i for i in range(layers) if not graph.users[i])
    reverse = [2 * layers - i for i in range(layers)]  # node of each layer's backward pass; the loss lies before them
    needs = [*graph.inputs, ends] + [
        (i, *graph.inputs[i], *([reverse[user] for user in graph.users[i]] or [layers])) for i in reversed(range(layers))
    ]
    sizes = [*graph.outputs, sum(graph.outputs[i] for i in ends), *(graph.gradients(i) for i in reversed(range(layers)))]
    nodes = range(len(needs))
    taken_by = [[j for j in nodes if i in needs[j]] for i in nodes]
    scale = max(*sizes, 1)

    run = {(t, i): column for column, (t, i) in enumerate((t, i) for t in nodes for i in range(t + 1))}
    keep = {(t, i): len(run) + column for column, (t, i) in enumerate((t, i) for t in nodes for i in range(t))}
    held = {place: len(run) + len(keep) + column for place, column in run.items()}
    spent = [(t, i, k) for t in nodes for k in range(t + 1) for i in {k, *needs[k]}]
    free = {place: 2 * len(run) + len(keep) + column for column, place in enumerate(spent)}
    unknowns = 2 * len(run) + len(keep) + len(free)

    rows: list[dict[int, float]] = []
    lower: list[float] = []
    upper: list[float] = []

    def hold(terms: dict[int, float], least: float, most: float) -> None:
        rows.append(terms)
        lower.append(least)
        upper.append(most)

    for t in nodes:
        for i in range(t):
            kept = {keep[t, i]: 1.0, run[t - 1, i]: -1.0}
            if (t - 1, i) in keep:
                kept[keep[t - 1, i]] = -1.0
            hold(kept, -math.inf, 0.0)  # what is kept was kept or run before
        for k in range(t + 1):
            for i in needs[k]:
                hold({run[t, k]: 1.0, run[t, i]: -1.0, keep[t, i]: -1.0}, -math.inf, 0.0)
            now = {held[t, k]: 1.0, run[t, k]: -sizes[k] / scale}
            if k == 0:
                now |= {keep[t, i]: -sizes[i] / scale for i in range(t)}
            else:
                now[held[t, k - 1]] = -1.0
                now |= {free[t, i, k - 1]: sizes[i] / scale for i in {k - 1, *needs[k - 1]}}
            hold(now, 0.0, 0.0)
            for i in {k, *needs[k]}:
                later = [run[t, j] for j in taken_by[i] if k < j <= t]
                if t + 1 in nodes:
                    later.append(keep[t + 1, i])
                hazards = {run[t, k]: -1.0} | dict.fromkeys(later, 1.0)
                # freed exactly where k was run and nothing needs i any more
                hold(hazards | {free[t, i, k]: 1.0}, 0.0, math.inf)
                most = 1.0 + len(later)
                hold(hazards | {free[t, i, k]: most}, -math.inf, most - 1.0)

    least, most_ = np.zeros(unknowns), np.ones(unknowns)
    for (t, i), column in run.items():
        least[column] = float(i == t)
        most_[column] = float(i == t or i < layers)
        most_[held[t, i]] = budget / scale
    cost, whole_numbers = np.zeros(unknowns), np.ones(unknowns)
    for (_, i), column in run.items():
        cost[column] = graph.forward[i] if i < layers else 0.0
    whole_numbers[list(held.values())] = 0.0
    entries = [(value, row, column) for row, terms in enumerate(rows) for column, value in terms.items()]
    values, row_numbers, columns = zip(*entries, strict=True)
    matrix = csr_array((values, (row_numbers, columns)), shape=(len(rows), unknowns))
    found = milp(
        cost, integrality=whole_numbers, bounds=Bounds(least, most_), constraints=LinearConstraint(matrix, lower, upper),
        options={"mip_rel_gap": 1e-9, "time_limit": seconds},
    )  # fmt: skip
    if found.status == 2:
        return None
    if found.status != 0:
        raise CostModelError(f"the integer program found no answer in {seconds:g} s ({found.message}): try fewer layers")

    actions: list[Action] = []
    alive: set[int] = set()
    for t in nodes:
        for k in range(t + 1):
            if found.x[run[t, k]] < 0.5:
                continue
            if k < layers and k not in alive:
                actions.append(Action(RECORD, k))
                alive.add(k)
            elif k > layers:
                actions.append(Action(BACKWARD, 2 * layers - k))
                alive.discard(2 * layers - k)
            gone = {i for i in {k, *needs[k]} & alive if found.x[free[t, i, k]] > 0.5}
            actions += [Action(DISCARD, i) for i in sorted(gone)]
            alive -= gone
        gone = {i for i in alive if t + 1 not in nodes or found.x[keep[t + 1, i]] < 0.5}
        actions += [Action(DISCARD, i) for i in sorted(gone)]
        alive -= gone
    return actions
