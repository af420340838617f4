"""Networks described by their shapes: images, sequences and vectors through convolutions, recurrences and products.

A network is a graph of `Node`, each a layer with the names of what it takes. `Network.sequence` writes the graph from
a list of layers, with `Branches` (joined by concatenation), `Residual` (joined by addition) and `Aside` (a side
output). Shapes are of one sample: an image is ``(channels, height, width)``, a sequence ``(steps, features)``, a
sequence of tokens ``(steps,)``, a vector ``(features,)``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

from costmodel.checks import choice, flag, kind, listing, mapping, positive_int, text, whole
from costmodel.description.device import Device
from costmodel.description.layers import ChainLayer, LayerChain
from costmodel.errors import InvalidValue, UnknownName
from costmodel.formulas.compute import gemm, stream
from costmodel.formulas.convolution import counts, times
from costmodel.formulas.quantities import DeviceNumbers

Shape = tuple[int, ...]
Pair = tuple[float, float]
"""Forward and backward."""

MAX_SIZE, MAX_LAYERS, MAX_BATCH = 10**9, 100_000, 10**6
ELEMENT_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0}
INDEX_BYTES = 8.0
"""Of the place of a maximum, or of a token [bytes]."""
GATES = {"lstm": 4, "gru": 3, "tanh": 1}


class Kernels(NamedTuple):
    """On what kernels run: a device, and how wide numbers are there."""

    device: DeviceNumbers
    element_bytes: float
    winograd: float
    """Share of the products' rate that Winograd's algorithm reaches."""

    @classmethod
    def of(cls, device: Device, dtype: str) -> Kernels:
        """Kernels of a device at one dtype."""
        width = ELEMENT_BYTES[choice("dtype", dtype, tuple(ELEMENT_BYTES))]
        return cls(device.layer_numbers(dtype), width, float(device.layer_constants(dtype).winograd))

    @property
    def rate(self) -> float:
        """What a large product reaches [FLOP/s]."""
        return float(self.device.flop_rate * self.device.gemm_efficiency)

    def product(self, m: float, n: float, k: float) -> float:
        """Time of a matrix product [s]."""
        return float(gemm(m, n, k, self.element_bytes, self.rate, self.device))

    def gradient(self, m: float, n: float, k: float) -> float:
        """Time of a matrix product whose inner dimension may be cut [s]."""
        return float(times.split_gemm(m, n, k, self.element_bytes, self.rate, self.device))

    def pass_over(self, elements: float, operands: float) -> float:
        """Time of a kernel that reads and writes whole tensors [s]."""
        return self.move(counts.elementwise_bytes(elements, operands, self.element_bytes))

    def move(self, nbytes: float) -> float:
        """Time of a kernel that only moves bytes [s]."""
        return float(stream(nbytes, 1.0, self.device))


def _elements(shape: Shape) -> int:
    return math.prod(shape)


def _pair(field: str, value: int | tuple[int, int], least: int) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(listing(field, value))
    if len(pair) != 2:
        raise InvalidValue(field, value, "a whole number, or two: along the height and along the width")
    for side in pair:
        (positive_int if least else whole)(field, side, 10**6)
    return pair


# Layers


@dataclasses.dataclass(frozen=True)
class Layer:
    """What a node does to the shapes of one sample, and what that costs; sizes of no sample are 0."""

    takes: ClassVar[int | None] = 1

    def output(self, *inputs: Shape) -> Shape:
        """Shape of the output."""
        return inputs[0]

    def parameters(self, *inputs: Shape) -> int:
        """Weights and biases."""
        return 0

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        """FLOP forward, and backward with the gradients of inputs and weights."""
        return 0.0, 0.0

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        """Bytes read and written, forward and backward."""
        return 0.0, 0.0

    def seconds(self, batch: float, kernels: Kernels, leaf: bool, *inputs: Shape) -> Pair:
        """Time forward and backward [s]; a `leaf` needs no gradient of its input."""
        return 0.0, 0.0


def _image(layer: Layer, shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise InvalidValue(type(layer).__name__, shape, "an image, (channels, height, width), as its input")
    return shape  # type: ignore[return-value]


def _sequence(layer: Layer, shape: Shape) -> tuple[int, int]:
    if len(shape) != 2:
        raise InvalidValue(type(layer).__name__, shape, "a sequence, (steps, features), as its input")
    return shape  # type: ignore[return-value]


@dataclasses.dataclass(frozen=True)
class Convolution(Layer):
    """A two-dimensional convolution.

    Parameters
    ----------
    filters : channels of the output
    kernel, padding : along height and width; one number for both
    stride, dilation : along both
    groups : each filter sees a share of the channels
    bias : with biases
    """

    filters: int
    kernel: int | tuple[int, int]
    stride: int = 1
    padding: int | tuple[int, int] = 0
    dilation: int = 1
    groups: int = 1
    bias: bool = True

    def __post_init__(self) -> None:
        for field in ("filters", "stride", "dilation", "groups"):
            positive_int(field, getattr(self, field), 10**6)
        object.__setattr__(self, "kernel", _pair("kernel", self.kernel, 1))
        object.__setattr__(self, "padding", _pair("padding", self.padding, 0))
        flag("bias", self.bias)

    def _window(self, batch: float, shape: Shape) -> counts.SlidingWindow:
        channels, height, width = _image(self, shape)
        if channels % self.groups or self.filters % self.groups:
            raise InvalidValue("groups", self.groups, f"a divisor of {channels} channels and of {self.filters} filters")
        (high, wide), (above, beside) = self.kernel, self.padding  # type: ignore[misc]
        down = counts.window_output(height, high, self.stride, above, self.dilation)
        across = counts.window_output(width, wide, self.stride, beside, self.dilation)
        if min(down, across) < 1:
            raise InvalidValue("kernel", self.kernel, f"no larger than the padded image of {height} by {width}")
        kernel = (high, wide, self.stride)
        return counts.SlidingWindow(batch, channels, height, width, self.filters, *kernel, down, across, self.groups)

    def output(self, *inputs: Shape) -> Shape:
        window = self._window(1, inputs[0])
        return self.filters, int(window.output_height), int(window.output_width)

    def parameters(self, *inputs: Shape) -> int:
        return int(counts.convolution_weights(self._window(1, inputs[0]))) + self.bias * self.filters

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        one = float(counts.convolution_flop(self._window(batch, inputs[0])))
        return one, 2 * one

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        one = float(counts.convolution_bytes(self._window(batch, inputs[0]), element_bytes))
        return one, 2 * one

    def seconds(self, batch: float, kernels: Kernels, leaf: bool, *inputs: Shape) -> Pair:
        window = self._window(batch, inputs[0])
        given = (float(self.dilation), kernels.element_bytes, kernels.rate, kernels.winograd, kernels.device)
        bias = self.bias * kernels.pass_over(counts.window_outputs(window), 2.0)
        data = 0.0 if leaf else times.convolution_backward_data(window, *given)
        weights = times.convolution_backward_weights(window, *given)
        return float(times.convolution_forward(window, *given) + bias), float(data + weights + bias / 2)


@dataclasses.dataclass(frozen=True)
class Pooling(Layer):
    """Largest or mean value under a sliding window.

    Parameters
    ----------
    reduction : ``"max"`` or ``"mean"``
    kernel : along both axes; 0 covers the whole image
    stride : along both; the kernel's if 0
    padding : along both
    round_up : a window that sticks out at the end counts if it starts inside (``ceil_mode``)
    """

    reduction: Literal["max", "mean"]
    kernel: int = 0
    stride: int = 0
    padding: int = 0
    round_up: bool = False

    def __post_init__(self) -> None:
        choice("reduction", self.reduction, ("max", "mean"))
        for field in ("kernel", "stride", "padding"):
            whole(field, getattr(self, field), 10**6)
        flag("round_up", self.round_up)

    def _window(self, batch: float, shape: Shape) -> counts.SlidingWindow:
        channels, height, width = _image(self, shape)
        high, wide = (self.kernel, self.kernel) if self.kernel else (height, width)

        def positions(length: int, size: int) -> float:
            if self.round_up:
                return float(counts.window_output_rounded_up(length, size, self.stride or size, self.padding))
            return float(counts.window_output(length, size, self.stride or size, self.padding, 1))

        down, across = positions(height, high), positions(width, wide)
        if min(down, across) < 1:
            raise InvalidValue("kernel", self.kernel, f"no larger than the padded image of {height} by {width}")
        kernel = (high, wide, self.stride or high)
        return counts.SlidingWindow(batch, channels, height, width, channels, *kernel, down, across, channels)

    def output(self, *inputs: Shape) -> Shape:
        window = self._window(1, inputs[0])
        return inputs[0][0], int(window.output_height), int(window.output_width)

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        one = float(counts.pooling_flop(self._window(batch, inputs[0])))
        return one, one

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        index = INDEX_BYTES if self.reduction == "max" else 0.0
        one = float(counts.pooling_bytes(self._window(batch, inputs[0]), element_bytes, index))
        # the gradient is zeroed, then added to where windows took it from
        return one, one + 2.0 * element_bytes * batch * _elements(inputs[0])

    def seconds(self, batch: float, kernels: Kernels, leaf: bool, *inputs: Shape) -> Pair:
        forward, backward = (kernels.move(one) for one in self.nbytes(batch, kernels.element_bytes, *inputs))
        return forward, 0.0 if leaf else backward


@dataclasses.dataclass(frozen=True)
class Linear(Layer):
    """A product with a matrix, at every step where the input is a sequence.

    Parameters
    ----------
    features : of the output
    bias : with biases
    tied : the matrix is another layer's, an embedding's: it is multiplied, but not counted again
    """

    features: int
    bias: bool = True
    tied: bool = False

    def __post_init__(self) -> None:
        positive_int("features", self.features, MAX_SIZE)
        flag("bias", self.bias)
        flag("tied", self.tied)

    def output(self, *inputs: Shape) -> Shape:
        if len(inputs[0]) == 3:
            raise InvalidValue("Linear", inputs[0], "a vector or a sequence as its input; Flatten comes between")
        return *inputs[0][:-1], self.features

    def parameters(self, *inputs: Shape) -> int:
        if self.tied:
            return self.bias * self.features
        return int(counts.linear_parameters(inputs[0][-1], self.features, self.bias))

    def _sizes(self, batch: float, shape: Shape) -> tuple[float, float, float]:
        return batch * _elements(shape[:-1]), float(shape[-1]), float(self.features)

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        one = float(counts.linear_flop(*self._sizes(batch, inputs[0])))
        return one, 2 * one

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        one = float(counts.linear_bytes(*self._sizes(batch, inputs[0]), element_bytes))
        return one, 2 * one

    def seconds(self, batch: float, kernels: Kernels, leaf: bool, *inputs: Shape) -> Pair:
        rows, taken, given = self._sizes(batch, inputs[0])
        data = 0.0 if leaf else kernels.gradient(rows, taken, given)
        return kernels.gradient(rows, given, taken), data + kernels.gradient(taken, given, rows)


@dataclasses.dataclass(frozen=True)
class Elementwise(Layer):
    """Each element by itself.

    Parameters
    ----------
    name : ``"relu"``, ``"tanh"``, ``"sigmoid"``
    """

    name: Literal["relu", "tanh", "sigmoid"] = "relu"

    def __post_init__(self) -> None:
        choice("name", self.name, ("relu", "tanh", "sigmoid"))

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        count = batch * _elements(inputs[0])
        return count, count

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        count = batch * _elements(inputs[0])
        forward, backward = (counts.elementwise_bytes(count, operands, element_bytes) for operands in (2.0, 3.0))
        return float(forward), float(backward)

    def seconds(self, batch: float, kernels: Kernels, leaf: bool, *inputs: Shape) -> Pair:
        forward, backward = (kernels.move(one) for one in self.nbytes(batch, kernels.element_bytes, *inputs))
        return forward, 0.0 if leaf else backward


@dataclasses.dataclass(frozen=True)
class Dropout(Layer):
    """Elements dropped at random; a mask of a byte an element is kept."""

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        count = batch * _elements(inputs[0])
        return count, count

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        one = batch * _elements(inputs[0]) * (2.0 * element_bytes + 1.0)
        return one, one

    def seconds(self, batch: float, kernels: Kernels, leaf: bool, *inputs: Shape) -> Pair:
        forward, backward = (kernels.move(one) for one in self.nbytes(batch, kernels.element_bytes, *inputs))
        return forward, 0.0 if leaf else backward


@dataclasses.dataclass(frozen=True)
class BatchNorm(Layer):
    """Normalisation over the minibatch with a scale and a shift a channel; running statistics are no parameters."""

    def parameters(self, *inputs: Shape) -> int:
        return 2 * _image(self, inputs[0])[0]

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        one = float(counts.normalisation_flop(batch * _elements(inputs[0])))
        return one, 2 * one

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        count = batch * _elements(inputs[0])
        # statistics, then the output; sums over both operands, then the gradient
        forward, backward = (counts.elementwise_bytes(count, operands, element_bytes) for operands in (3.0, 5.0))
        return float(forward), float(backward)

    def seconds(self, batch: float, kernels: Kernels, leaf: bool, *inputs: Shape) -> Pair:
        forward, backward = (kernels.move(one) for one in self.nbytes(batch, kernels.element_bytes, *inputs))
        return forward, backward


@dataclasses.dataclass(frozen=True)
class LocalResponseNorm(Layer):
    """Each element over a sum of squares of neighbouring channels (AlexNet of 2012).

    Parameters
    ----------
    neighbours : channels in the sum
    """

    neighbours: int = 5

    def __post_init__(self) -> None:
        positive_int("neighbours", self.neighbours, 10**6)

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        one = float(counts.local_response_flop(batch * _elements(inputs[0]), self.neighbours))
        return one, 2 * one

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        count = batch * _elements(inputs[0])
        forward, backward = (counts.elementwise_bytes(count, operands, element_bytes) for operands in (3.0, 5.0))
        return float(forward), float(backward)

    def seconds(self, batch: float, kernels: Kernels, leaf: bool, *inputs: Shape) -> Pair:
        forward, backward = (kernels.move(one) for one in self.nbytes(batch, kernels.element_bytes, *inputs))
        return forward, 0.0 if leaf else backward


@dataclasses.dataclass(frozen=True)
class Flatten(Layer):
    """An image as a vector; costs nothing."""

    def output(self, *inputs: Shape) -> Shape:
        return (_elements(inputs[0]),)


@dataclasses.dataclass(frozen=True)
class Join(Layer):
    """Several inputs as one.

    Parameters
    ----------
    how : ``"add"``, or ``"concatenate"`` along channels or features
    """

    how: Literal["add", "concatenate"]
    takes: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        choice("how", self.how, ("add", "concatenate"))

    def output(self, *inputs: Shape) -> Shape:
        if self.how == "add":
            if len(set(inputs)) != 1:
                raise InvalidValue("add", inputs, "inputs of one shape")
            return inputs[0]
        axis = 0 if len(inputs[0]) == 3 else len(inputs[0]) - 1
        if len({(*shape[:axis], *shape[axis + 1 :]) for shape in inputs}) != 1:
            raise InvalidValue("concatenate", inputs, "inputs that differ in channels or features alone")
        return *inputs[0][:axis], sum(shape[axis] for shape in inputs), *inputs[0][axis + 1 :]

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        return (batch * _elements(inputs[0]) * (len(inputs) - 1), 0.0) if self.how == "add" else (0.0, 0.0)

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        taken = sum(map(_elements, inputs))
        moved = float(counts.elementwise_bytes(batch * (taken + _elements(self.output(*inputs))), 1.0, element_bytes))
        # the gradients that meet at the branching are summed where the branches of a sum began
        return moved, moved

    def seconds(self, batch: float, kernels: Kernels, leaf: bool, *inputs: Shape) -> Pair:
        forward, backward = (kernels.move(one) for one in self.nbytes(batch, kernels.element_bytes, *inputs))
        return forward, 0.0 if leaf else backward


@dataclasses.dataclass(frozen=True)
class Embedding(Layer):
    """A row of a table for each token; its gradient is dense, as large as the table.

    Parameters
    ----------
    vocabulary : rows
    features : of one
    """

    vocabulary: int
    features: int

    def __post_init__(self) -> None:
        positive_int("vocabulary", self.vocabulary, MAX_SIZE)
        positive_int("features", self.features, MAX_SIZE)

    def output(self, *inputs: Shape) -> Shape:
        if len(inputs[0]) != 1:
            raise InvalidValue("Embedding", inputs[0], "tokens, (steps,), as its input")
        return inputs[0][0], self.features

    def parameters(self, *inputs: Shape) -> int:
        return self.vocabulary * self.features

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        tokens = batch * inputs[0][0]
        rows = tokens * (2.0 * element_bytes * self.features + INDEX_BYTES)
        return rows, rows + element_bytes * (self.parameters() + tokens * self.features)

    def seconds(self, batch: float, kernels: Kernels, leaf: bool, *inputs: Shape) -> Pair:
        forward, backward = (kernels.move(one) for one in self.nbytes(batch, kernels.element_bytes, *inputs))
        return forward, backward


@dataclasses.dataclass(frozen=True)
class Recurrent(Layer):
    """A recurrent layer over a sequence; several layers are several nodes.

    Parameters
    ----------
    hidden : features of a direction
    cell : ``"lstm"``, ``"gru"`` or ``"tanh"``
    bidirectional : a second one runs backwards, and their outputs are concatenated
    """

    hidden: int
    cell: Literal["lstm", "gru", "tanh"] = "lstm"
    bidirectional: bool = False

    def __post_init__(self) -> None:
        positive_int("hidden", self.hidden, MAX_SIZE)
        choice("cell", self.cell, tuple(GATES))
        flag("bidirectional", self.bidirectional)

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _sizes(self, shape: Shape) -> tuple[float, float, float]:
        return float(GATES[self.cell]), float(_sequence(self, shape)[1]), float(self.hidden)

    def output(self, *inputs: Shape) -> Shape:
        return _sequence(self, inputs[0])[0], self._directions * self.hidden

    def parameters(self, *inputs: Shape) -> int:
        return self._directions * int(counts.recurrent_parameters(*self._sizes(inputs[0])))

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        rows = batch * _sequence(self, inputs[0])[0]
        one = self._directions * float(counts.recurrent_flop(rows, *self._sizes(inputs[0])))
        return one, 2 * one

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        steps = _sequence(self, inputs[0])[0]
        one = self._directions * float(counts.recurrent_bytes(batch, steps, *self._sizes(inputs[0]), element_bytes))
        return one, 2 * one

    def seconds(self, batch: float, kernels: Kernels, leaf: bool, *inputs: Shape) -> Pair:
        given = (batch, float(inputs[0][0]), *self._sizes(inputs[0]), kernels.element_bytes, kernels.rate, kernels.device)
        forward, backward = times.recurrent_forward(*given), times.recurrent_backward(*given)
        return self._directions * float(forward), self._directions * float(backward)


@dataclasses.dataclass(frozen=True)
class Attention(Layer):
    """Attention of a decoder on an encoder: queries first, then the sequence attended to.

    Parameters
    ----------
    score : ``"additive"`` (Bahdanau) or ``"multiplicative"`` (Luong)
    """

    score: Literal["additive", "multiplicative"] = "additive"
    takes: ClassVar[int | None] = 2

    def __post_init__(self) -> None:
        choice("score", self.score, ("additive", "multiplicative"))

    def output(self, *inputs: Shape) -> Shape:
        (_, wide), (_, kept) = (_sequence(self, shape) for shape in inputs)
        if wide != kept:
            raise InvalidValue("Attention", inputs, "queries and keys with as many features")
        return inputs[0]

    def parameters(self, *inputs: Shape) -> int:
        width = inputs[0][1]
        if self.score == "additive":
            return int(counts.additive_attention_parameters(width))
        return int(counts.multiplicative_attention_parameters(width))

    def _projected(self, *inputs: Shape) -> int:
        return inputs[0][0] + (inputs[1][0] if self.score == "additive" else 0)

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        (queries, width), (keys, _) = inputs
        rows = batch * self._projected(*inputs)
        one = float(counts.linear_flop(rows, width, width) + counts.attention_flop(batch, queries, keys, width))
        return one, 2 * one

    def _compared(self, batch: float, *inputs: Shape) -> float:
        """Elements that the scores are made from one by one: of every pair's sum, or of every score."""
        pairs = batch * inputs[0][0] * inputs[1][0]
        return pairs * inputs[0][1] if self.score == "additive" else pairs

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        width = inputs[0][1]
        projections = counts.linear_bytes(batch * self._projected(*inputs), width, width, element_bytes)
        # the sum, its tanh, and its product with a vector: each reads and writes
        scores = counts.elementwise_bytes(self._compared(batch, *inputs), 6.0, element_bytes)
        return float(projections + scores), float(2 * projections + scores)

    def seconds(self, batch: float, kernels: Kernels, leaf: bool, *inputs: Shape) -> Pair:
        (queries, width), (keys, _) = inputs
        rows = batch * self._projected(*inputs)
        scores = kernels.pass_over(self._compared(batch, *inputs), 6.0)
        mixing = kernels.product(batch * queries, width, keys)
        forward = kernels.product(rows, width, width) + scores + mixing
        backward = kernels.product(rows, width, width) + kernels.gradient(width, width, rows) + scores + 2 * mixing
        return forward, backward


@dataclasses.dataclass(frozen=True)
class CrossEntropy(Layer):
    """Softmax and loss over the last axis."""

    def output(self, *inputs: Shape) -> Shape:
        return (1,)

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        rows = batch * _elements(inputs[0][:-1])
        one = float(counts.softmax_flop(rows, inputs[0][-1]))
        return one, one

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        count = batch * _elements(inputs[0])
        forward, backward = (counts.elementwise_bytes(count, operands, element_bytes) for operands in (3.0, 2.0))
        return float(forward), float(backward)

    def seconds(self, batch: float, kernels: Kernels, leaf: bool, *inputs: Shape) -> Pair:
        forward, backward = (kernels.move(one) for one in self.nbytes(batch, kernels.element_bytes, *inputs))
        return forward, backward


# Composition


@dataclasses.dataclass(frozen=True)
class Branches:
    """Paths from one input whose outputs are concatenated.

    Parameters
    ----------
    paths : each a list of layers; an empty one passes the input on
    """

    paths: Sequence[Sequence[Item]]


@dataclasses.dataclass(frozen=True)
class Residual:
    """A path whose output is added to its input.

    Parameters
    ----------
    path : list of layers
    shortcut : layers on the way around it; none pass the input on
    """

    path: Sequence[Item]
    shortcut: Sequence[Item] = ()


@dataclasses.dataclass(frozen=True)
class Aside:
    """A path that ends by itself, beside the main one: an auxiliary classifier.

    Parameters
    ----------
    path : list of layers
    """

    path: Sequence[Item]


Item = Layer | Branches | Residual | Aside


@dataclasses.dataclass(frozen=True)
class Node:
    """A layer of a network.

    Parameters
    ----------
    name : unique in its network
    layer : what it does
    inputs : names of nodes, or of inputs of the network
    """

    name: str
    layer: Layer
    inputs: Sequence[str]

    def __post_init__(self) -> None:
        text("node name", self.name)
        kind("layer", self.layer, Layer, "Convolution(...)")
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

    Parameters
    ----------
    name : what it is called
    inputs : shape of one sample of each input
    nodes : in an order in which they can run

    Raises
    ------
    InvalidValue
        naming the layer whose input doesn't fit

    Examples
    --------
    >>> small = Network.sequence("small", (3, 8, 8), [Convolution(4, 3), Elementwise(), Flatten(), Linear(10)])
    >>> small.parameters, small.forward_flop()
    (1562, 10656.0)
    """

    name: str
    inputs: Mapping[str, Shape]
    nodes: Sequence[Node]

    def __post_init__(self) -> None:
        text("name", self.name)
        shapes: dict[str, Shape] = {}
        for name, shape in mapping("inputs", self.inputs).items():
            sizes = listing(f"shape of {name}", shape)
            if not 1 <= len(sizes) <= 3:
                raise InvalidValue(f"shape of {name}", shape, "one to three sizes: tokens, a sequence or an image")
            shapes[text("input name", name)] = tuple(positive_int(f"shape of {name}", size, MAX_SIZE) for size in sizes)
        object.__setattr__(self, "inputs", dict(shapes))
        object.__setattr__(self, "nodes", listing("nodes", self.nodes))
        if not 1 <= len(self.nodes) <= MAX_LAYERS:
            raise InvalidValue("nodes", len(self.nodes), f"1 to {MAX_LAYERS} layers")
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
        object.__setattr__(self, "_shapes", shapes)

    @classmethod
    def sequence(cls, name: str, shape: Shape, items: Iterable[Item], source: str = "input") -> Network:
        """A network from a list of layers, each taking the output of the one before.

        Parameters
        ----------
        name : what to call it
        shape : of one sample of the input
        items : layers, `Branches`, `Residual`, `Aside`
        source : what to call the input
        """
        draft = Draft()
        draft.add(items, source)
        return cls(name=name, inputs={source: shape}, nodes=draft.nodes)

    def shape(self, name: str) -> Shape:
        """Shape of one sample of an input's or a node's output."""
        shapes: dict[str, Shape] = self._shapes  # type: ignore[attr-defined]
        if name not in shapes:
            raise InvalidValue("name", name, f"an input or a node of {self.name}")
        return shapes[name]

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
                float(minibatch * _elements(self.shape(node.name))), *node.layer.flop(minibatch, *self._taken(node)),
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
                    output_bytes=width * minibatch * _elements(self.shape(node.name)),
                    inputs=tuple(source for source in node.inputs if source not in self.inputs),
                )
            )  # fmt: skip
        return LayerChain(name=self.name, layers=links, minibatch=minibatch)


class Draft:
    """Nodes of a network being written, named by kind and number."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._seen: Counter[str] = Counter()

    def node(self, layer: Layer, *inputs: str) -> str:
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
                case Aside(path=path):
                    self.add(path, source)
                case Layer():
                    source = self.node(item, source)
                case _:
                    raise InvalidValue("items", item, "layers, Branches, Residual or Aside")
        return source


# Networks of the literature


def _convolutions(*filters: int) -> list[Item]:
    items: list[Item] = []
    for count in filters:
        items += [Convolution(count, 3, padding=1), Elementwise()]
    return [*items, Pooling("max", 2)]


def _classifier(*features: int) -> list[Item]:
    items: list[Item] = [Flatten()]
    for width in features[:-1]:
        items += [Linear(width), Elementwise(), Dropout()]
    return [*items, Linear(features[-1]), CrossEntropy()]


def vgg16(classes: int = 1000) -> Network:
    """VGG-16, configuration D [simonyan2015]_.

    Examples
    --------
    >>> vgg16().parameters
    138357544
    """
    body = [*_convolutions(64, 64), *_convolutions(128, 128), *_convolutions(256, 256, 256),
            *_convolutions(512, 512, 512), *_convolutions(512, 512, 512)]  # fmt: skip
    return Network.sequence("vgg-16", (3, 224, 224), [*body, *_classifier(4096, 4096, classes)])


def alexnet(classes: int = 1000) -> Network:
    """AlexNet in its one-column form [krizhevsky2014]_, which torchvision has: no local response norm.

    Examples
    --------
    >>> alexnet().parameters
    61100840
    """
    body: list[Item] = [
        Convolution(64, 11, 4, 2), Elementwise(), Pooling("max", 3, 2),
        Convolution(192, 5, padding=2), Elementwise(), Pooling("max", 3, 2),
        Convolution(384, 3, padding=1), Elementwise(),
        Convolution(256, 3, padding=1), Elementwise(),
        Convolution(256, 3, padding=1), Elementwise(), Pooling("max", 3, 2),
        Dropout(),
    ]  # fmt: skip
    return Network.sequence("alexnet", (3, 224, 224), [*body, *_classifier(4096, 4096, classes)])


def _normed(filters: int, kernel: int | tuple[int, int], stride: int = 1, padding: int | tuple[int, int] = 0) -> list[Item]:
    return [Convolution(filters, kernel, stride, padding, bias=False), BatchNorm(), Elementwise()]


def resnet50(classes: int = 1000) -> Network:
    """ResNet-50 [he2016]_ with the stride on the middle convolution, as torchvision has it.

    Examples
    --------
    >>> resnet50().parameters
    25557032
    """
    body: list[Item] = [*_normed(64, 7, 2, 3), Pooling("max", 3, 2, 1)]
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            path = [*_normed(width, 1), *_normed(width, 3, stride, 1), *_normed(4 * width, 1)[:-1]]
            around = _normed(4 * width, 1, stride)[:-1] if not block else []
            body += [Residual(path, around), Elementwise()]
    body += [Pooling("mean"), *_classifier(classes)]
    return Network.sequence("resnet-50", (3, 224, 224), body)


def inception_v3(classes: int = 1000, auxiliary: bool = True) -> Network:
    """Inception-v3 [szegedy2016]_ for images of 299 pixels, as torchvision has it.

    Parameters
    ----------
    classes : to tell apart
    auxiliary : with the auxiliary classifier that trains beside the main one

    Examples
    --------
    >>> inception_v3().parameters, inception_v3(auxiliary=False).parameters
    (27161264, 23834568)
    """

    def mixed_a(pooled: int) -> Item:
        return Branches([_normed(64, 1), [*_normed(48, 1), *_normed(64, 5, padding=2)],
                         [*_normed(64, 1), *_normed(96, 3, padding=1), *_normed(96, 3, padding=1)],
                         [Pooling("mean", 3, 1, 1), *_normed(pooled, 1)]])  # fmt: skip

    def mixed_c(width: int) -> Item:
        row, column = ((1, 7), (0, 3)), ((7, 1), (3, 0))

        def seven(filters: int, along: tuple[tuple[int, int], tuple[int, int]]) -> list[Item]:
            return _normed(filters, along[0], padding=along[1])

        return Branches([_normed(192, 1), [*_normed(width, 1), *seven(width, row), *seven(192, column)],
                         [*_normed(width, 1), *seven(width, column), *seven(width, row), *seven(width, column), *seven(192, row)],
                         [Pooling("mean", 3, 1, 1), *_normed(192, 1)]])  # fmt: skip

    def mixed_e() -> Item:
        both = Branches([_normed(384, (1, 3), padding=(0, 1)), _normed(384, (3, 1), padding=(1, 0))])
        return Branches([_normed(320, 1), [*_normed(384, 1), both], [*_normed(448, 1), *_normed(384, 3, padding=1), both],
                         [Pooling("mean", 3, 1, 1), *_normed(192, 1)]])  # fmt: skip

    side = [Pooling("mean", 5, 3), *_normed(128, 1), *_normed(768, 5), Pooling("mean"), *_classifier(classes)]
    body: list[Item] = [
        *_normed(32, 3, 2), *_normed(32, 3), *_normed(64, 3, padding=1), Pooling("max", 3, 2),
        *_normed(80, 1), *_normed(192, 3), Pooling("max", 3, 2),
        mixed_a(32), mixed_a(64), mixed_a(64),
        Branches([_normed(384, 3, 2), [*_normed(64, 1), *_normed(96, 3, padding=1), *_normed(96, 3, 2)],
                  [Pooling("max", 3, 2)]]),
        mixed_c(128), mixed_c(160), mixed_c(160), mixed_c(192),
        *([Aside(side)] if auxiliary else []),
        Branches([[*_normed(192, 1), *_normed(320, 3, 2)],
                  [*_normed(192, 1), *_normed(192, (1, 7), padding=(0, 3)), *_normed(192, (7, 1), padding=(3, 0)),
                   *_normed(192, 3, 2)],
                  [Pooling("max", 3, 2)]]),
        mixed_e(), mixed_e(), Pooling("mean"), Dropout(), *_classifier(classes),
    ]  # fmt: skip
    return Network.sequence("inception-v3", (3, 299, 299), body)


def gnmt(layers: int = 8, hidden: int = 1024, vocabulary: int = 32320, steps: int = 30) -> Network:
    """GNMT [wu2016]_ as PipeDream trained it: half of the layers encode, half decode, additive attention between.

    The first encoder layer reads both ways; from the third layer on a residual connection goes around each, and
    every decoder layer after the first takes the attention's context beside its input.

    Parameters
    ----------
    layers : LSTMs in all, an even number: 8 or 16 were published
    hidden : features everywhere
    vocabulary : of both languages
    steps : tokens of a sentence

    Examples
    --------
    >>> gnmt(8).parameters, gnmt(16).parameters
    (193765952, 277717568)
    """
    whole("layers", layers, 1000)
    if layers < 4 or layers % 2:
        raise InvalidValue("layers", layers, "an even number of at least 4")
    draft = Draft()
    encoded = draft.add([Embedding(vocabulary, hidden), Recurrent(hidden, bidirectional=True)], "source")
    for layer in range(1, layers // 2):
        path = [Dropout(), Recurrent(hidden)]
        encoded = draft.add(path if layer == 1 else [Residual(path)], encoded)
    decoded = draft.add([Embedding(vocabulary, hidden), Recurrent(hidden)], "target")
    context = draft.node(Attention(), decoded, encoded)
    for layer in range(1, layers // 2):
        joined = draft.node(Join("concatenate"), draft.node(Dropout(), decoded), context)
        after = draft.node(Recurrent(hidden), joined)
        decoded = after if layer == 1 else draft.node(Join("add"), after, decoded)
    draft.add([Linear(vocabulary), CrossEntropy()], decoded)
    return Network(name=f"gnmt-{layers}", inputs={"source": (steps,), "target": (steps,)}, nodes=draft.nodes)


def awd_lm(layers: int = 3, embedding: int = 400, hidden: int = 1150, vocabulary: int = 10_000, steps: int = 70) -> Network:
    """AWD language model [merity2018]_: LSTMs between an embedding and its transpose.

    Parameters
    ----------
    layers : LSTMs; 3 were published
    embedding : features of a word, and of the last LSTM
    hidden : features of the other LSTMs
    vocabulary : words; 10,000 in the Penn Treebank
    steps : words through which gradients flow

    Examples
    --------
    >>> awd_lm().parameters
    24221600
    """
    positive_int("layers", layers, 1000)
    body: list[Item] = [Embedding(vocabulary, embedding), Dropout()]
    for width in [hidden] * (layers - 1) + [embedding]:
        body += [Recurrent(width), Dropout()]
    body += [Linear(vocabulary, tied=True), CrossEntropy()]
    return Network.sequence("awd-lm", (steps,), body, "words")


def s2vt(vocabulary: int = 46_168, steps: int = 80) -> Network:
    """S2VT [venugopalan2015]_: two LSTMs turn features of video frames into words.

    4,096 features of a frame are embedded in 500, words too; both LSTMs have 1,000 units. (Two bias vectors an LSTM,
    as cuDNN has it, are 32,000 bytes more than Caffe's one.)

    Parameters
    ----------
    vocabulary : words; with the default the weights are as large as the released model (a file of 349,436,137 bytes)
    steps : frames and words together; unrolled to 80

    Examples
    --------
    >>> 4 * s2vt().parameters
    349450672
    """
    draft = Draft()
    frames = draft.add([Linear(500), Dropout(), Recurrent(1000)], "frames")
    words = draft.add([Embedding(vocabulary, 500), Dropout()], "words")
    joined = draft.node(Join("concatenate"), words, frames)
    draft.add([Recurrent(1000), Dropout(), Linear(vocabulary), CrossEntropy()], joined)
    return Network(name="s2vt", inputs={"frames": (steps, 4096), "words": (steps,)}, nodes=draft.nodes)


NETWORKS: dict[str, Callable[[], Network]] = {
    "vgg-16": vgg16, "alexnet": alexnet, "resnet-50": resnet50, "inception-v3": inception_v3, "gnmt-8": gnmt,
    "gnmt-16": functools.partial(gnmt, 16), "awd-lm": awd_lm, "s2vt": s2vt,
}  # fmt: skip
"""Networks of the literature by name."""


def load_network(name: str) -> Network:
    """A network of the literature by name; UnknownName where there is none.

    Examples
    --------
    >>> load_network("gnmt-16").parameters
    277717568
    """
    if name not in NETWORKS:
        raise UnknownName("network", str(name), NETWORKS)
    return NETWORKS[name]()
