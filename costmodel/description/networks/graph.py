"""A network as a graph of `Node`, each a layer with the names of what it takes; its shapes are inferred.

`Network.sequence` writes the graph from a list of layers, with `Branches` (joined by concatenation), `Residual` (joined
by addition) and `SideBranch` (a side output).
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from costmodel.description.device import Device
from costmodel.description.layers import ChainLayer, LayerChain
from costmodel.description.networks.layers import (
    ELEMENT_BYTES,
    MAX_SIZE,
    Attention,
    Convolution,
    Join,
    Kernels,
    Linear,
    NetworkLayer,
    Recurrent,
    Shape,
    elements,
)
from costmodel.text.checks import choice, kind, listing, mapping, positive_int, text
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief

MAX_LAYERS, MAX_BATCH = 100_000, 10**6


@dataclasses.dataclass(frozen=True)
class Branches:
    """Paths from one input whose outputs are concatenated."""

    paths: Sequence[Sequence[Item]]  # each a list of layers; an empty one passes the input on


@dataclasses.dataclass(frozen=True)
class Residual:
    """A path whose output is added to its input."""

    path: Sequence[Item]  # list of layers
    shortcut: Sequence[Item] = ()  # layers on the way around it; none pass the input on


@dataclasses.dataclass(frozen=True)
class SideBranch:
    """A path that ends by itself, beside the main one: an auxiliary classifier."""

    path: Sequence[Item]  # list of layers


Item = NetworkLayer | Branches | Residual | SideBranch


@dataclasses.dataclass(frozen=True)
class Node:
    """A layer of a network."""

    name: str  # unique in its network
    layer: NetworkLayer  # what it does
    inputs: Sequence[str]  # names of nodes, or of inputs of the network

    def __post_init__(self) -> None:
        text("node name", self.name)
        kind("layer", self.layer, NetworkLayer, "Convolution(...)")
        object.__setattr__(self, "inputs", listing(f"inputs of {self.name}", self.inputs))


class LayerCost(NamedTuple):
    """What one layer costs for one minibatch."""

    name: str
    kind: str
    output: Shape
    """Of one sample."""
    parameters: int
    output_elements: float
    forward_flop: float
    backward_flop: float
    forward_bytes: float
    backward_bytes: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """A network as a graph of layers, its shapes inferred.

    Raises
    ------
    InvalidValue
        naming the layer whose input doesn't fit

    Examples
    --------
    >>> from costmodel.description.networks import Elementwise, Flatten
    >>> small = Network.sequence("small", (3, 8, 8), [Convolution(4, 3), Elementwise(), Flatten(), Linear(10)])
    >>> small.parameters, small.forward_flop()
    (1562, 10656.0)
    """

    name: str  # what it is called
    inputs: Mapping[str, Shape] = dataclasses.field(hash=False)  # shape of one sample of each input
    nodes: Sequence[Node]  # in an order in which they can run

    __repr__ = brief

    def __post_init__(self) -> None:
        text("name", self.name)
        given: dict[str, Shape] = {}
        for name, shape in mapping("inputs", self.inputs).items():
            sizes = listing(f"shape of {name}", shape)
            if not 1 <= len(sizes) <= 3:
                raise InvalidValue(f"shape of {name}", shape, "one to three sizes: tokens, a sequence or an image")
            given[text("input name", name)] = tuple(positive_int(f"shape of {name}", size, MAX_SIZE) for size in sizes)
        object.__setattr__(self, "inputs", given)
        object.__setattr__(self, "nodes", listing("nodes", self.nodes))
        if not 1 <= len(self.nodes) <= MAX_LAYERS:
            raise InvalidValue("nodes", len(self.nodes), f"1 to {MAX_LAYERS} layers")
        _ = self._shapes  # refuses layers that do not fit, now

    @functools.cached_property
    def _shapes(self) -> dict[str, Shape]:
        """Shape of every input's and every node's output."""
        shapes = dict(self.inputs)
        for node in self.nodes:
            kind("nodes", node, Node, "Node(...)")
            if node.name in shapes:
                raise InvalidValue("nodes", node.name, "names that are unique")
            for source in node.inputs:
                if source not in shapes:
                    raise InvalidValue(f"inputs of {node.name}", source, "the name of an input or of a node before it")
            if not node.inputs or node.layer.takes not in (None, len(node.inputs)):
                raise InvalidValue(f"inputs of {node.name}", len(node.inputs), f"{node.layer.takes or 'one or more'} inputs")
            shapes[node.name] = node.layer.output(*(shapes[source] for source in node.inputs))
        return shapes

    @classmethod
    def sequence(cls, name: str, shape: Shape, items: Iterable[Item], source: str = "input") -> Network:
        """A network from a list of layers, each taking the output of the one before.

        Parameters
        ----------
        name : what to call it
        shape : of one sample of the input
        items : layers, `Branches`, `Residual`, `SideBranch`
        source : what to call the input
        """
        draft = GraphBuilder()
        draft.add(items, source)
        return cls(name=name, inputs={source: shape}, nodes=draft.nodes)

    def shape(self, name: str) -> Shape:
        """Shape of one sample of an input's or a node's output."""
        if name not in self._shapes:
            raise InvalidValue("name", name, f"an input or a node of {self.name}")
        return self._shapes[name]

    def _taken(self, node: Node) -> tuple[Shape, ...]:
        return tuple(self.shape(source) for source in node.inputs)

    @property
    def parameters(self) -> int:
        """Parameters of all layers."""
        return sum(node.layer.parameters(*self._taken(node)) for node in self.nodes)

    def forward_flop(self, minibatch: int = 1) -> float:
        """FLOP of convolutions, products and recurrences of a forward pass, two a multiply-add; what papers count."""
        positive_int("minibatch", minibatch, MAX_BATCH)
        counted = (Convolution, Linear, Recurrent, Attention)
        return sum(n.layer.flop(minibatch, *self._taken(n))[0] for n in self.nodes if isinstance(n.layer, counted))

    def costs(self, minibatch: int = 1, dtype: str = "fp32") -> tuple[LayerCost, ...]:
        """What each layer costs for one minibatch.

        Parameters
        ----------
        minibatch : samples
        dtype : of weights and activations: fp32, tf32, fp16 or bf16
        """
        positive_int("minibatch", minibatch, MAX_BATCH)
        width = ELEMENT_BYTES[choice("dtype", dtype, tuple(ELEMENT_BYTES))]
        return tuple(
            LayerCost(
                node.name, type(node.layer).__name__, self.shape(node.name), node.layer.parameters(*self._taken(node)),
                float(minibatch * elements(self.shape(node.name))), *node.layer.flop(minibatch, *self._taken(node)),
                *node.layer.nbytes(minibatch, width, *self._taken(node)),
            )
            for node in self.nodes
        )  # fmt: skip

    def training_memory(self, minibatch: int, dtype: str = "fp32") -> float:
        """Bytes that training with momentum holds, workspaces left out: states, and what the backward pass needs.

        Weights, gradients and one moment; the outputs of all layers but those that overwrite their input (activations)
        or only rename it, and the gradient of the largest.

        Parameters
        ----------
        minibatch : samples
        dtype : of weights and activations: fp32, tf32, fp16 or bf16
        """
        costs, width = self.costs(minibatch, dtype), ELEMENT_BYTES[dtype]
        kept = [cost.output_elements for cost in costs if cost.kind not in ("Elementwise", "Flatten")]
        return width * (3.0 * self.parameters + sum(kept) + 2.0 * max(kept))

    def chain(self, device: Device, dtype: str = "fp32", minibatch: int = 64) -> LayerChain:
        """The network as a chain of layers with predicted times.

        Parameters
        ----------
        device : on which it runs
        dtype : of weights and activations: fp32, tf32, fp16 or bf16
        minibatch : samples

        Returns
        -------
        LayerChain
            times [s] and sizes [bytes] of one minibatch

        Raises
        ------
        NotModelled
            where the device has no rate for the dtype
        """
        kind("device", device, Device, "load_device")
        positive_int("minibatch", minibatch, MAX_BATCH)
        kernels = Kernels.of(device, dtype)
        width = kernels.element_bytes
        trained: set[str] = set()  # nodes whose output has a gradient
        links = []
        for node in self.nodes:
            taken = self._taken(node)
            leaf = not trained.intersection(node.inputs)
            forward, backward = node.layer.seconds(float(minibatch), kernels, leaf, *taken)
            weights = node.layer.parameters(*taken)
            if weights or not leaf:
                trained.add(node.name)
            links.append(
                ChainLayer(
                    name=node.name, forward=forward, backward=backward, parameter_bytes=width * weights,
                    output_bytes=width * minibatch * elements(self.shape(node.name)),
                    inputs=tuple(source for source in node.inputs if source not in self.inputs),
                )
            )  # fmt: skip
        return LayerChain(name=self.name, layers=links, minibatch=minibatch)


class GraphBuilder:
    """Nodes of a network being written, named by kind and number."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._seen: Counter[str] = Counter()

    def node(self, layer: NetworkLayer, *inputs: str) -> str:
        """Add one layer; its name."""
        word = type(layer).__name__.lower()
        self._seen[word] += 1
        name = f"{word}{self._seen[word]}"
        self.nodes.append(Node(name, layer, inputs))
        return name

    def add(self, items: Iterable[Item], source: str) -> str:
        """Add layers one after another, from `source` on; the name of the last."""
        for item in items:
            match item:
                case Branches(paths=paths):
                    source = self.node(Join("concatenate"), *(self.add(path, source) for path in paths))
                case Residual(path=path, shortcut=shortcut):
                    source = self.node(Join("add"), self.add(path, source), self.add(shortcut, source))
                case SideBranch(path=path):
                    self.add(path, source)
                case NetworkLayer():
                    source = self.node(item, source)
                case _:
                    raise InvalidValue("items", item, "layers, Branches, Residual or Aside")
        return source
