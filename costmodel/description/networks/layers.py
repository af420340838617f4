"""What a layer of a network does to shapes, and what that costs: FLOP, bytes and, on a device's kernels, time.

Shapes are of one sample: an image is ``(channels, height, width)``, a sequence ``(steps, features)``, a sequence of
tokens ``(steps,)``, a vector ``(features,)``.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Literal, NamedTuple

from costmodel.description.device import Device
from costmodel.formulas.compute import stream, vector_gemm
from costmodel.formulas.convolution import counts, times
from costmodel.formulas.quantities import DeviceNumbers
from costmodel.text.checks import choice, flag, listing, positive_int, whole
from costmodel.text.errors import InvalidValue

Shape = tuple[int, ...]
Pair = tuple[float, float]
"""Forward and backward."""

MAX_SIZE = 10**9
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
        return float(vector_gemm(m, n, k, self.element_bytes, self.rate, self.device))

    def gradient(self, m: float, n: float, k: float) -> float:
        """Time of a matrix product whose inner dimension may be cut [s]."""
        return float(times.split_gemm(m, n, k, self.element_bytes, self.rate, self.device))

    def pass_over(self, elements: float, operands: float) -> float:
        """Time of a kernel that reads and writes whole tensors [s]."""
        return self.move(counts.elementwise_bytes(elements, operands, self.element_bytes))

    def move(self, nbytes: float) -> float:
        """Time of a kernel that only moves bytes [s]."""
        return float(stream(nbytes, 1.0, self.device))


def elements(shape: Shape) -> int:
    """Elements of a tensor of a shape."""
    return math.prod(shape)


def _pair(field: str, value: int | tuple[int, int], least: int) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else listing(field, value)
    if len(pair) != 2:
        raise InvalidValue(field, value, "a whole number, or two: along the height and along the width")
    checked = positive_int if least else whole
    return checked(field, pair[0], 10**6), checked(field, pair[1], 10**6)


# Layers


@dataclasses.dataclass(frozen=True)
class NetworkLayer:
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


@dataclasses.dataclass(frozen=True)
class Streamed(NetworkLayer):
    """A layer whose time is that of the bytes it reads and writes."""

    backward_of_leaf: ClassVar[bool] = False
    """Whether the backward pass runs where no gradient of the input is needed: for weights, or as the first of all."""

    def seconds(self, batch: float, kernels: Kernels, leaf: bool, *inputs: Shape) -> Pair:
        forward, backward = (kernels.move(one) for one in self.nbytes(batch, kernels.element_bytes, *inputs))
        return forward, backward if self.backward_of_leaf or not leaf else 0.0


def _operands(forward: float, backward: float, batch: float, element_bytes: float, shape: Shape) -> Pair:
    """Bytes of passes that read and write so many operands of one shape."""
    count = batch * elements(shape)
    first, second = (counts.elementwise_bytes(count, operands, element_bytes) for operands in (forward, backward))
    return float(first), float(second)


def _image(layer: NetworkLayer, shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise InvalidValue(type(layer).__name__, shape, "an image, (channels, height, width), as its input")
    channels, height, width = shape
    return channels, height, width


def _sequence(layer: NetworkLayer, shape: Shape) -> tuple[int, int]:
    if len(shape) != 2:
        raise InvalidValue(type(layer).__name__, shape, "a sequence, (steps, features), as its input")
    steps, features = shape
    return steps, features


@dataclasses.dataclass(frozen=True)
class Convolution(NetworkLayer):
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
        (high, wide), (above, beside) = _pair("kernel", self.kernel, 1), _pair("padding", self.padding, 0)
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
class Pooling(Streamed):
    """Largest or mean value under a sliding window."""

    reduction: Literal["max", "mean"]  # ``"max"`` or ``"mean"``
    kernel: int = 0  # along both axes; 0 covers the whole image
    stride: int = 0  # along both; the kernel's if 0
    padding: int = 0  # along both
    round_up: bool = False  # a window that sticks out at the end counts if it starts inside (``ceil_mode``)

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
        return one, one + 2.0 * element_bytes * batch * elements(inputs[0])


@dataclasses.dataclass(frozen=True)
class Linear(NetworkLayer):
    """A product with a matrix, at every step where the input is a sequence."""

    features: int  # of the output
    bias: bool = True  # with biases
    tied: bool = False  # the matrix is another layer's, an embedding's: it is multiplied, but not counted again

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
        return batch * elements(shape[:-1]), float(shape[-1]), float(self.features)

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
class Elementwise(Streamed):
    """Each element by itself."""

    name: Literal["relu", "tanh", "sigmoid"] = "relu"  # ``"relu"``, ``"tanh"``, ``"sigmoid"``

    def __post_init__(self) -> None:
        choice("name", self.name, ("relu", "tanh", "sigmoid"))

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        count = batch * elements(inputs[0])
        return count, count

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        return _operands(2.0, 3.0, batch, element_bytes, inputs[0])


@dataclasses.dataclass(frozen=True)
class Dropout(Streamed):
    """Elements dropped at random; a mask of a byte an element is kept."""

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        count = batch * elements(inputs[0])
        return count, count

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        one = batch * elements(inputs[0]) * (2.0 * element_bytes + 1.0)
        return one, one


@dataclasses.dataclass(frozen=True)
class BatchNorm(Streamed):
    """Normalisation over the minibatch with a scale and a shift a channel; running statistics are no parameters."""

    backward_of_leaf = True

    def parameters(self, *inputs: Shape) -> int:
        return 2 * _image(self, inputs[0])[0]

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        one = float(counts.normalisation_flop(batch * elements(inputs[0])))
        return one, 2 * one

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        # statistics, then the output; sums over both operands, then the gradient
        return _operands(3.0, 5.0, batch, element_bytes, inputs[0])


@dataclasses.dataclass(frozen=True)
class LocalResponseNorm(Streamed):
    """Each element over a sum of squares of neighbouring channels (AlexNet of 2012)."""

    neighbours: int = 5  # channels in the sum

    def __post_init__(self) -> None:
        positive_int("neighbours", self.neighbours, 10**6)

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        one = float(counts.local_response_flop(batch * elements(inputs[0]), self.neighbours))
        return one, 2 * one

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        return _operands(3.0, 5.0, batch, element_bytes, inputs[0])


@dataclasses.dataclass(frozen=True)
class Flatten(NetworkLayer):
    """An image as a vector; costs nothing."""

    def output(self, *inputs: Shape) -> Shape:
        return (elements(inputs[0]),)


@dataclasses.dataclass(frozen=True)
class Join(Streamed):
    """Several inputs as one."""

    how: Literal["add", "concatenate"]  # ``"add"``, or ``"concatenate"`` along channels or features
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
        return (batch * elements(inputs[0]) * (len(inputs) - 1), 0.0) if self.how == "add" else (0.0, 0.0)

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        taken = sum(map(elements, inputs))
        moved = float(counts.elementwise_bytes(batch * (taken + elements(self.output(*inputs))), 1.0, element_bytes))
        # the gradients that meet at the branching are summed where the branches of a sum began
        return moved, moved


@dataclasses.dataclass(frozen=True)
class Embedding(Streamed):
    """A row of a table for each token; its gradient is dense, as large as the table."""

    backward_of_leaf = True

    vocabulary: int  # rows
    features: int  # of one

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


@dataclasses.dataclass(frozen=True)
class Recurrent(NetworkLayer):
    """A recurrent layer over a sequence; several layers are several nodes."""

    hidden: int  # features of a direction
    cell: Literal["lstm", "gru", "tanh"] = "lstm"  # ``"lstm"``, ``"gru"`` or ``"tanh"``
    bidirectional: bool = False  # a second one runs backwards, and their outputs are concatenated

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
class Attention(NetworkLayer):
    """Attention of a decoder on an encoder: queries first, then the sequence attended to."""

    score: Literal["additive", "multiplicative"] = "additive"  # ``"additive"`` (Bahdanau) or ``"multiplicative"`` (Luong)
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
class CrossEntropy(Streamed):
    """Softmax and loss over the last axis."""

    backward_of_leaf = True

    def output(self, *inputs: Shape) -> Shape:
        return (1,)

    def flop(self, batch: float, *inputs: Shape) -> Pair:
        rows = batch * elements(inputs[0][:-1])
        one = float(counts.softmax_flop(rows, inputs[0][-1]))
        return one, one

    def nbytes(self, batch: float, element_bytes: float, *inputs: Shape) -> Pair:
        return _operands(3.0, 2.0, batch, element_bytes, inputs[0])
