"""A model as a graph of layers with a time, an output and weights each: what a partitioner sees."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from costmodel.errors import InvalidValue
from costmodel.validate import listing, real, text


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

    def __post_init__(self) -> None:
        text("name", self.name)
        object.__setattr__(self, "layers", listing("layers", self.layers))
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
