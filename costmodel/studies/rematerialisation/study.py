"""Which activations a training step keeps and which it computes again: schedules under a budget of bytes.

One rule of memory for every method, as in Beaumont et al. (2019). A forward pass turns a layer's inputs into its
output; a *recording* one also keeps what the backward pass needs (`saved_bytes`). A backward pass needs that record,
the layer's inputs and the gradient of its output, and leaves the gradients of its inputs, as large as they are. While
a pass runs, what it reads and what it writes lie side by side; the workspace of its kernels is not counted.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from costmodel.description.layers import ChainLayer, LayerChain
from costmodel.studies.rematerialisation.solver import (
    BACKWARD,
    COUNTED,
    DISCARD,
    FORWARD,
    KINDS,
    RECORD,
    Action,
    ChainNumbers,
    checkmate,
    frontiers,
)
from costmodel.text.checks import choice, kind, listing, positive_int, real, whole
from costmodel.text.errors import InvalidValue, NotModelled
from costmodel.text.results import brief, figure
from costmodel.text.units import format_bytes

MOST_LAYERS = {"optimal": 128, "sqrt": 1000, "recursive": 1000, "revolve": 1000, "selective": 1000, "checkmate": 10}
"""Layers of the longest chain that each takes; the time of the first grows with their cube, of the last exponentially."""
METHODS = tuple(MOST_LAYERS)
SOLVER_SECONDS = 120.0


class Execution(NamedTuple):
    """What running a schedule took."""

    forward_time: float  # forward_time, backward_time: of all passes [s]
    backward_time: float
    nbytes: tuple[int, ...]  # held while each action ran [bytes]
    held_bytes: int  # held when the first backward pass began [bytes], without its gradient
    kept: tuple[int, ...]  # layers whose output or record was held then
    recorded: tuple[int, ...]  # those of them whose record was held

    @property
    def peak_bytes(self) -> int:
        """Most that was held at once."""
        return max(self.nbytes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpointing:
    """A schedule, and what it takes; made by `checkpoint`."""

    chain: LayerChain  # of which it is the forward and backward pass
    method: str  # that made it
    budget: float | None  # that it keeps [bytes]; None where there was none
    count: int | None  # of what the method counts (segments, snapshots, recomputed layers); None where it counts nothing
    input_bytes: int  # of the chain's input, held throughout
    # whether no schedule of its kind takes less time: for ``"optimal"`` of those that keep what they have kept until its backward
    # pass, for ``"checkmate"`` of those that run no layer twice between two backward passes
    exact: bool
    actions: Sequence[Action]  # in order
    execution: Execution  # of the actions

    __repr__ = brief
    plot = figure

    @property
    def peak_bytes(self) -> int:
        """Most bytes held at once, the input included."""
        return self.execution.peak_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes held when the backward pass begins: what checkpointing leaves of the activations."""
        return self.execution.held_bytes

    @property
    def extra_forward_time(self) -> float:
        """Time of forward passes that are run again [s]."""
        return self.execution.forward_time - self.forward_time

    @property
    def forward_time(self) -> float:
        """Time of one pass through all layers [s]."""
        return math.fsum(layer.forward for layer in self.chain.layers)

    @property
    def time(self) -> float:
        """Time of all forward and backward passes [s]."""
        return self.execution.forward_time + self.execution.backward_time

    @property
    def recompute_factor(self) -> float:
        """Time of all forward passes over that of one through all layers; 1 where layers take no time."""
        return self.execution.forward_time / self.forward_time if self.forward_time else 1.0

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the layers whose output or record is held when the backward pass begins."""
        return tuple(self.chain.layers[i].name for i in self.execution.kept)

    @property
    def recorded(self) -> tuple[str, ...]:
        """Names of those whose backward pass needs no layer to be run again."""
        return tuple(self.chain.layers[i].name for i in self.execution.recorded)

    @property
    def recomputed(self) -> dict[str, int]:
        """How often each layer is run again."""
        runs = Counter(action.layer for action in self.actions if action.kind in (FORWARD, RECORD))
        return {layer.name: runs[i] - 1 for i, layer in enumerate(self.chain.layers)}

    def __str__(self) -> str:
        return (
            f"{self.chain.name}, {self.method}: {format_bytes(self.peak_bytes)} at the peak, "
            f"{self.recompute_factor:.2f} forward passes, {len(self.kept)} of {len(self.chain.layers)} layers kept"
        )


class CurvePoint(NamedTuple):
    """A schedule of a curve: its peak [bytes] and the time of the forward passes that it runs again [s]."""

    peak_bytes: int
    extra_forward_time: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryCurve:
    """Memory against extra time; made by `curve`."""

    chain: LayerChain  # whose schedules they are
    input_bytes: int  # of the chain's input, held throughout
    points: Mapping[str, Sequence[CurvePoint]] = dataclasses.field(hash=False)  # by method, bytes rising and time falling

    __repr__ = brief
    plot = figure

    @property
    def forward_time(self) -> float:
        """Time of one pass through all layers [s]."""
        return math.fsum(layer.forward for layer in self.chain.layers)


@functools.lru_cache(maxsize=16)
def _graph(chain: LayerChain) -> ChainNumbers:
    place = {layer.name: i for i, layer in enumerate(chain.layers)}
    inputs = tuple(
        (i - 1,) * (i > 0) if layer.inputs is None else tuple(dict.fromkeys(place[source] for source in layer.inputs))
        for i, layer in enumerate(chain.layers)
    )
    users = tuple(tuple(j for j, sources in enumerate(inputs) if i in sources) for i in range(len(inputs)))
    outputs = tuple(math.ceil(layer.output_bytes) for layer in chain.layers)
    saved = tuple(
        out if layer.saved_bytes is None else math.ceil(layer.saved_bytes)
        for out, layer in zip(outputs, chain.layers, strict=True)
    )
    return ChainNumbers(
        tuple(layer.forward for layer in chain.layers), tuple(layer.backward for layer in chain.layers),
        outputs, saved, inputs, users,
    )  # fmt: skip


def uniform_chain(
    layers: int,
    forward: float = 1.0,
    output_bytes: float = 1.0,
    *,
    backward: float | None = None,
    saved_bytes: float | None = None,
    name: str = "uniform chain",
) -> LayerChain:
    """A chain of equal layers.

    Parameters
    ----------
    layers : how many
    forward : time of one layer's forward pass [s]
    output_bytes : of one layer [bytes]
    backward : time of one layer's backward pass [s]; twice the forward pass if None
    saved_bytes : what one layer's backward pass needs, its output included [bytes]; the output alone if None
    name : of the chain

    Returns
    -------
    LayerChain

    Raises
    ------
    InvalidValue
        naming what is wrong

    Examples
    --------
    >>> checkpoint(uniform_chain(100), method="revolve", count=10).extra_forward_time
    222.0
    """
    positive_int("layers", layers, 100_000)
    back = 2.0 * real("forward", forward, 0.0, 1e5) if backward is None else backward
    return LayerChain(name=name, layers=[
        ChainLayer(name=f"layer {i}", forward=forward, backward=back, output_bytes=output_bytes, parameter_bytes=0.0,
                   saved_bytes=saved_bytes)
        for i in range(layers)
    ])  # fmt: skip


def execute(chain: LayerChain, actions: Sequence[Action], *, input_bytes: float = 0.0) -> Execution:
    """Run a schedule action by action, refusing one whose input is not there.

    Parameters
    ----------
    chain : whose layers the actions are of
    actions : in order
    input_bytes : of the chain's input, held throughout

    Raises
    ------
    InvalidValue
        for an action that needs what isn't held, for a backward pass run twice or not at all, and where something is
        still held at the end
    """
    kind("chain", chain, LayerChain, "LayerChain(...) or uniform_chain(...)")
    positive_int(f"layers of {chain.name!r}", len(chain.layers), 100_000)
    graph = _graph(chain)
    layers = range(len(graph.forward))
    state = [""] * len(layers)  # what is held of each layer: nothing, FORWARD: its output, RECORD: its record
    done = [False] * len(layers)  # whether its backward pass has been run
    waiting = [len(sources) for sources in graph.inputs]  # backward passes that still need the gradients it left
    held = math.ceil(real("input_bytes", input_bytes, 0.0, 1e15))
    nbytes: list[int] = []
    forward_times: list[float] = []
    before_backward: tuple[int, tuple[int, ...], tuple[int, ...]] | None = None

    def demand(met: bool, what: str) -> None:
        if not met:
            raise InvalidValue(f"actions[{len(nbytes)}]", (action.kind, chain.layers[action.layer].name), what)

    def freed(layer: int) -> int:
        was, state[layer] = state[layer], ""
        return graph.saved[layer] if was == RECORD else graph.outputs[layer]

    for action in listing("actions", actions):
        kind("action", action, Action, "Action(kind, layer)")
        choice("kind of an action", action.kind, KINDS)
        layer = whole("layer of an action", action.layer, len(layers) - 1)
        if action.kind == DISCARD:
            demand(bool(state[layer]), "a layer whose output or record is held")
            nbytes.append(held)
            held -= freed(layer)
            continue
        demand(all(state[source] for source in graph.inputs[layer]), "a layer whose inputs are held")
        demand(not done[layer], "a layer whose backward pass has not been run")
        if action.kind == BACKWARD:
            demand(state[layer] == RECORD, "a layer whose record is held")
            demand(all(done[user] for user in graph.users[layer]), "a layer whose output's gradient is there")
            if before_backward is None:
                kept, recorded = (tuple(i for i in layers if state[i] in kinds) for kinds in ((FORWARD, RECORD), (RECORD,)))
                before_backward = held, kept, recorded
            held += graph.gradients(layer)
            nbytes.append(held + (0 if graph.users[layer] else graph.outputs[layer]))  # the loss leaves its gradient
            held -= freed(layer)
            done[layer] = True
            for user in graph.users[layer]:
                waiting[user] -= 1
                held -= 0 if waiting[user] else graph.gradients(user)
            continue
        demand(not state[layer], "a layer whose output is not held already")
        state[layer] = action.kind
        held += graph.saved[layer] if action.kind == RECORD else graph.outputs[layer]
        nbytes.append(held)
        forward_times.append(graph.forward[layer])
    left = next((chain.layers[i].name for i in layers if state[i] or not done[i]), None)
    if left is not None or before_backward is None:
        raise InvalidValue("actions", left, "a schedule that runs every backward pass and discards all that it keeps")
    return Execution(math.fsum(forward_times), math.fsum(graph.backward), tuple(nbytes), *before_backward)


def _checked(chain: LayerChain, method: str) -> ChainNumbers:
    kind("chain", chain, LayerChain, "LayerChain(...) or uniform_chain(...)")
    choice("method", method, METHODS)
    positive_int(f"layers of {chain.name!r} for method={method!r}", len(chain.layers), MOST_LAYERS[method])
    graph = _graph(chain)
    if method == "checkmate":
        if graph.saved != graph.outputs:
            raise NotModelled("method='checkmate' with saved_bytes beyond the output: its program keeps outputs only")
        return graph
    for i, sources in enumerate(graph.inputs):
        if sources != (i - 1,) * (i > 0):
            raise NotModelled(
                f"method={method!r} on a graph: layer {chain.layers[i].name!r} takes not just the layer before it; "
                "method='checkmate' takes graphs"
            )
    return graph


def checkpoint(
    chain: LayerChain,
    *,
    budget: float | None = None,
    method: str = "optimal",
    count: int | None = None,
    input_bytes: float = 0.0,
) -> Checkpointing:
    r"""A schedule of a chain's forward and backward pass that keeps within a budget of bytes.

    Parameters
    ----------
    chain : `LayerChain`; every method but ``"checkmate"`` wants one in which a layer takes just the one before it.
        Bytes are rounded up to whole ones
    budget : most that may be held at once, weights not counted [bytes]; None for no limit
    method :
        ``"optimal"``
            least time of all that keep what they have kept until its backward pass (dynamic program)
        ``"sqrt"``
            `count` segments of equal bytes, of which only the outputs are kept; without a budget
            :math:`\sqrt n` segments
        ``"recursive"``
            `count` checkpoints cut the chain, and each piece is cut the same way again; without a budget one, which
            takes :math:`O(\log n)` bytes and :math:`O(n \log n)` time
        ``"revolve"``
            the binomial schedule of `count` snapshots, that of the chain's input among them, the best for equal layers
            of which only one at a time is recorded
        ``"selective"``
            `count` layers are run again from their kept inputs: those that free most bytes for their time
        ``"checkmate"``
            the integer program for small graphs, which keeps outputs only
    count : what the method counts; None lets it choose the count that takes least time within the budget
    input_bytes : of the chain's input, held throughout

    Returns
    -------
    Checkpointing

    Raises
    ------
    InvalidValue
        naming the field; for a budget that nothing fits, with the least that the method takes
    NotModelled
        for a graph where the method takes a chain, and for ``"checkmate"`` where records are larger than outputs

    References
    ----------
    [chen2016]_, [griewank2000]_, [beaumont2019]_, [jain2020]_, [korthikanti2022]_

    Examples
    --------
    >>> chain = uniform_chain(100, forward=1e-3, output_bytes=1e6)
    >>> kept = checkpoint(chain, method="sqrt")
    >>> kept.peak_bytes / 1e6, round(kept.recompute_factor, 3)
    (21.0, 1.9)
    >>> best = checkpoint(chain, budget=21e6)
    >>> best.peak_bytes <= 21e6, round(best.recompute_factor, 3)
    (True, 1.81)
    """
    graph = _checked(chain, method)
    limit = math.inf if budget is None else real("budget", budget, 0.0, 1e18)
    given = math.ceil(real("input_bytes", input_bytes, 0.0, 1e15))
    if count is not None:
        if method not in COUNTED:
            raise InvalidValue("count", count, f"None: method={method!r} counts nothing")
        whole("count", count, len(chain.layers))
        if count < COUNTED[method].least:
            raise InvalidValue("count", count, f"at least {COUNTED[method].least} {COUNTED[method].counts}")

    room = math.inf if limit == math.inf else math.floor(limit) - given
    exact = False
    if method == "optimal":
        found = frontiers(graph)
        least, most = int(found.top()[0][0]), int(found.top()[0][-1])
        if room < least:
            raise _too_little(budget, method, least + given)
        actions, exact = found.schedule(graph, most if room == math.inf else int(room)), found.exact
    elif method == "checkmate":
        everything = 4 * sum(graph.outputs)
        solved = checkmate(graph, everything if room == math.inf else int(room), SOLVER_SECONDS) if room >= 0 else None
        if solved is None:
            raise InvalidValue("budget", budget, "more bytes: no schedule of method='checkmate' fits")
        actions, exact = solved, True
    else:
        if count is None and budget is None:
            count = COUNTED[method].default(len(graph.saved))
        counts = _counts(method, len(graph.saved)) if count is None else [count]
        runs = list(_runs(chain, graph, method, counts, given))
        fitting = [run for run in runs if run[1].peak_bytes <= limit]
        if not fitting:
            raise _too_little(budget, method, min(run.peak_bytes for _, run in runs))
        count = min(fitting, key=lambda run: run[1].forward_time)[0]
        actions = COUNTED[method].schedule(graph, count)
    return Checkpointing(
        chain=chain, method=method, budget=budget, count=count, input_bytes=given, exact=exact, actions=tuple(actions),
        execution=execute(chain, actions, input_bytes=given),
    )  # fmt: skip


def _too_little(budget: float | None, method: str, least: int) -> InvalidValue:
    return InvalidValue("budget", budget, f"at least {least} bytes, the least that method={method!r} takes here")


def _counts(method: str, layers: int) -> Iterator[int]:
    """Counts to try: all small ones, and of the large ones every fiftieth part more."""
    count = COUNTED[method].least
    while count < layers:
        yield count
        count = max(count + 1, round(count * 1.02))
    yield layers


def _runs(
    chain: LayerChain, graph: ChainNumbers, method: str, counts: Iterable[int], given: int
) -> Iterator[tuple[int, Execution]]:  # fmt: skip
    """What a method's schedule takes, count by count."""
    for count in counts:
        yield count, execute(chain, COUNTED[method].schedule(graph, count), input_bytes=given)


def curve(chain: LayerChain, *, methods: Sequence[str] = METHODS[:-1], input_bytes: float = 0.0) -> MemoryCurve:
    """Memory against extra time: the schedules of each method that no other of its own beats.

    Parameters
    ----------
    chain : `LayerChain` in which a layer takes just the one before it
    methods : of those of `checkpoint`, all but ``"checkmate"``
    input_bytes : of the chain's input, held throughout

    Returns
    -------
    Curve

    Raises
    ------
    InvalidValue
        naming the field
    NotModelled
        for a graph

    Examples
    --------
    >>> points = curve(uniform_chain(16), methods=["optimal"]).points["optimal"]
    >>> points[-1]  # all is kept
    CurvePoint(peak_bytes=18, extra_forward_time=0.0)
    """
    given = math.ceil(real("input_bytes", input_bytes, 0.0, 1e15))
    points: dict[str, tuple[CurvePoint, ...]] = {}
    for method in listing("methods", methods):
        choice("method of a curve", method, METHODS[:-1])
        graph = _checked(chain, method)
        once = math.fsum(graph.forward)
        if method == "optimal":
            found = [(int(nbytes) + given, float(time)) for nbytes, time in zip(*frontiers(graph).top(), strict=True)]
        else:
            runs = _runs(chain, graph, method, _counts(method, len(graph.saved)), given)
            found = [(run.peak_bytes, run.forward_time) for _, run in runs]
        least, kept = math.inf, []
        for nbytes, time in sorted(found):
            if time < least:
                least = time
                # sums in another order differ in their last digit
                kept.append(CurvePoint(nbytes, time - once if time > once * (1.0 + 1e-12) else 0.0))
        points[method] = tuple(kept)
    return MemoryCurve(chain=chain, input_bytes=given, points=points)
