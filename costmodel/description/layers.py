"""A model as a graph of layers with a time, an output and weights each: what a partitioner sees."""

from __future__ import annotations

import dataclasses
import functools
import heapq
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from costmodel.text import user_files
from costmodel.text.checks import listing, positive_int, real, text
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief

MAX_LAYERS = 10_000
MAX_FILE_SIZE = 16_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChainLayer:
    """One layer on one minibatch.

    Parameters
    ----------
    name : unique in its chain
    forward, backward : time of the passes [s]
    output_bytes : of the output that the next layers take
    parameter_bytes : of the weights
    inputs : names of the layers whose outputs it takes; the layer before it if None; none for an input layer
    saved_bytes : what its backward pass needs beyond its inputs, its output included; its output alone if None
    """

    name: str
    forward: float
    backward: float
    output_bytes: float
    parameter_bytes: float
    inputs: Sequence[str] | None = None
    saved_bytes: float | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        text("layer name", self.name)
        for field in ("forward", "backward"):
            real(f"{field} of layer {self.name}", getattr(self, field), 0.0, 1e6)
        for field in ("output_bytes", "parameter_bytes"):
            real(f"{field} of layer {self.name}", getattr(self, field), 0.0, 1e15)
        if self.saved_bytes is not None:
            real(f"saved_bytes of layer {self.name}", self.saved_bytes, self.output_bytes, 1e15)
        if self.inputs is not None:
            object.__setattr__(self, "inputs", listing(f"inputs of layer {self.name}", self.inputs))

    @property
    def kept_bytes(self) -> float:
        """Bytes that stay from its forward to its backward pass."""
        return self.output_bytes if self.saved_bytes is None else self.saved_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerChain:
    """Layers in topological order, each taking the output of layers before it.

    Parameters
    ----------
    name : what it is called
    layers : in an order in which they can run
    minibatch : samples that the times and outputs are of
    """

    name: str
    layers: Sequence[ChainLayer]
    minibatch: int | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        text("name", self.name)
        object.__setattr__(self, "layers", listing("layers", self.layers))
        if not 1 <= len(self.layers) <= MAX_LAYERS:
            raise InvalidValue("layers", f"{len(self.layers)} layers", f"1 to {MAX_LAYERS} layers")
        if self.minibatch is not None:
            positive_int("minibatch", self.minibatch, 10**7)
        seen: set[str] = set()
        for layer in self.layers:
            if not isinstance(layer, ChainLayer):
                raise InvalidValue("layers", layer, "layers, each a ChainLayer")
            if layer.name in seen:
                raise InvalidValue("layers", layer.name, "names that are unique")
            for source in layer.inputs or ():
                if source not in seen:
                    raise InvalidValue(f"inputs of layer {layer.name}", source, "the name of a layer before it")
            seen.add(layer.name)

    @functools.cached_property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the layers whose outputs each layer takes."""
        place = {layer.name: position for position, layer in enumerate(self.layers)}
        return tuple(
            tuple(range(max(position - 1, 0), position)) if layer.inputs is None
            else tuple(dict.fromkeys(place[source] for source in layer.inputs))
            for position, layer in enumerate(self.layers)
        )  # fmt: skip

    @functools.cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the layers that take each layer's output."""
        takers: list[list[int]] = [[] for _ in self.layers]
        for position, sources in enumerate(self.inputs):
            for source in sources:
                takers[source].append(position)
        return tuple(map(tuple, takers))

    @functools.cached_property
    def branches(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the layers in groups: those in a row on a branch together, every other layer alone.

        A branch begins after a layer whose output several layers take, and ends where branches meet or begin.
        """
        groups: list[tuple[int, ...]] = []
        taken = [False] * len(self.layers)
        for position, sources in enumerate(self.inputs):
            if taken[position]:
                continue
            group = [position]
            if len(sources) == 1 and len(self.consumers[sources[0]]) > 1:
                while len(self.consumers[group[-1]]) == 1 and len(self.inputs[self.consumers[group[-1]][0]]) == 1:
                    group.append(self.consumers[group[-1]][0])
            for member in group:
                taken[member] = True
            groups.append(tuple(group))
        return tuple(groups)

    def with_minibatch(self, minibatch: int) -> LayerChain:
        """The chain on a minibatch of another size: times and outputs in proportion, weights as they are.

        Parameters
        ----------
        minibatch : samples

        Raises
        ------
        InvalidValue
            where the chain doesn't say what minibatch its times are of
        """
        if self.minibatch is None:
            raise InvalidValue("minibatch", self.minibatch, "a chain that says what minibatch its times are of")
        factor = positive_int("minibatch", minibatch, 10**7) / self.minibatch
        layers = [
            dataclasses.replace(
                layer, forward=layer.forward * factor, backward=layer.backward * factor, output_bytes=layer.output_bytes * factor,
                saved_bytes=None if layer.saved_bytes is None else layer.saved_bytes * factor,
            )
            for layer in self.layers
        ]  # fmt: skip
        return dataclasses.replace(self, layers=layers, minibatch=minibatch)

    @classmethod
    def from_pipedream(cls, path: str | Path, minibatch: int | None = None) -> LayerChain:
        """A profile as PipeDream's profiler writes it.

        A line is a layer, ``node2 -- Conv2d(3, 64) -- forward_compute_time=1.0, backward_compute_time=2.0,
        activation_size=4.0, parameter_size=8.0`` in ms and bytes, or, after a tab, an edge, ``node2 -- node3``.
        Layers called ``Input`` are left out: they stand for loading the data.

        Parameters
        ----------
        path : the file
        minibatch : samples that it was measured with, where known

        Raises
        ------
        UnreadableFile
            where the file is missing, too large, or a line is not what it should be
        """
        profile = _Profile(path)
        return cls(name=Path(path).stem, layers=profile.layers(), minibatch=minibatch)


_NUMBER = r"\d{1,15}(?:\.\d{1,12})?(?:[eE][+-]?\d{1,2})?"
_NODE = re.compile(
    rf"(\w{{1,60}}) -- (.{{1,400}}?) -- forward_compute_time=({_NUMBER}), backward_compute_time=({_NUMBER}), "
    rf"activation_size=({_NUMBER}|\[{_NUMBER}(?:; {_NUMBER}){{0,99}}\]), parameter_size=({_NUMBER})(?: -- stage_id=\d{{1,9}})?"
)
_EDGE = re.compile(r"\t(\w{1,60}) -- (\w{1,60})")


class _Profile:
    """A PipeDream profile: its layers by identifier, and who takes whose output."""

    def __init__(self, path: str | Path):
        self.path = path
        self.nodes: dict[str, ChainLayer] = {}
        self.sources: dict[str, list[str]] = {}
        loading: set[str] = set()
        for number, line in enumerate(user_files.text(path, MAX_FILE_SIZE).split("\n"), 1):
            line = line.removesuffix("\r")
            if not line:
                continue
            if edge := _EDGE.fullmatch(line):
                self._edge(number, *edge.groups())
            elif node := _NODE.fullmatch(line):
                identifier, kind, forward, backward, output, weights = node.groups()
                if identifier in self.nodes:
                    self._fail(f"line {number}: {identifier} is there twice")
                if len(self.nodes) == MAX_LAYERS:
                    self._fail(f"line {number}: more than {MAX_LAYERS} layers")
                if kind.startswith("Input"):
                    loading.add(identifier)
                self.sources[identifier] = []
                self.nodes[identifier] = ChainLayer(
                    name=f"{identifier} {kind}", forward=float(forward) / 1e3, backward=float(backward) / 1e3,
                    output_bytes=sum(map(float, output.strip("[]").split("; "))), parameter_bytes=float(weights),
                )  # fmt: skip
            else:
                self._fail(f"line {number} is neither a layer (name -- kind -- times and sizes) nor an edge")
        for identifier in loading:
            if self.sources[identifier]:
                self._fail(f"{identifier} is an input, but takes the output of {self.sources[identifier][0]}")
        self.nodes = {node: layer for node, layer in self.nodes.items() if node not in loading}
        if not self.nodes:
            self._fail("holds no layers")
        for identifier in self.nodes:
            self.sources[identifier] = [source for source in self.sources[identifier] if source not in loading]

    def _fail(self, message: str) -> NoReturn:
        user_files.refuse(self.path, message)

    def _edge(self, number: int, source: str, taker: str) -> None:
        for node in (source, taker):
            if node not in self.nodes:
                self._fail(f"line {number}: no layer {node} before it")
        if source not in self.sources[taker]:
            self.sources[taker].append(source)

    def layers(self) -> list[ChainLayer]:
        """Layers in topological order, as near to the file's as that allows."""
        order = {node: position for position, node in enumerate(self.nodes)}
        missing = {node: len(self.sources[node]) for node in self.nodes}
        takers: dict[str, list[str]] = {node: [] for node in self.nodes}
        for node in self.nodes:
            for source in self.sources[node]:
                takers[source].append(node)
        ready = [(order[node], node) for node, count in missing.items() if not count]
        heapq.heapify(ready)
        placed = []
        while ready:
            _, node = heapq.heappop(ready)
            inputs = [self.nodes[source].name for source in self.sources[node]]
            placed.append(dataclasses.replace(self.nodes[node], inputs=inputs))
            for taker in takers[node]:
                missing[taker] -= 1
                if not missing[taker]:
                    heapq.heappush(ready, (order[taker], taker))
        if len(placed) < len(self.nodes):
            cyclic = next(node for node, count in missing.items() if count)
            self._fail(f"the layers from {cyclic} on take each other's outputs in a circle")
        return placed
