r"""Layers that aren't transformers, counted: output sizes, parameters, FLOP and bytes of one pass.

A multiply-add counts as two FLOP. Bytes are what an unfused kernel has to move: every operand read once, every
result written once. Counts are of `batch` samples.
"""

from __future__ import annotations

from typing import NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number

ARGUMENTS = {
    "element_bytes": "[bytes]", "stride": "s", "padding": "p, on each side", "length": "of the input L", "kernel": "k",
    "gates": "4 for an LSTM, 3 for a GRU, 1 for a plain cell", "batch": "samples",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""


class SlidingWindow(NamedTuple):
    """A window sliding over images: a convolution, or a pooling whose filters are its channels."""

    batch: Number  # images
    channels: Number  # of the input
    height: Number  # of the input
    width: Number
    filters: Number  # channels of the output
    kernel_height: Number
    kernel_width: Number
    stride: Number
    output_height: Number
    output_width: Number
    groups: Number  # each filter sees channels / groups


def window_output(
    length: Number, kernel: Number, stride: Number, padding: Number, dilation: Number,
) -> Number:  # fmt: skip
    r"""Positions of a window along one axis, those that stick out left out.

    .. math:: \left\lfloor \frac{L + 2 p - d (k - 1) - 1}{s} \right\rfloor + 1

    Parameters
    ----------
    dilation : :math:`d`, distance of neighbouring taps

    References
    ----------
    [dumoulin2016]_ section 2

    Examples
    --------
    >>> window_output(224.0, 7.0, 2.0, 3.0, 1.0)
    112.0
    """
    return ops.ceil_div(length + 2.0 * padding - dilation * (kernel - 1.0), stride)


def window_output_rounded_up(length: Number, kernel: Number, stride: Number, padding: Number) -> Number:
    r"""Positions of a pooling window along one axis, one that sticks out at the end kept if it starts inside.

    .. math:: \min\left(\left\lceil \frac{L + 2 p - k}{s} \right\rceil + 1, \left\lceil \frac{L + p}{s} \right\rceil\right)

    Examples
    --------
    >>> window_output_rounded_up(110.0, 3.0, 2.0, 0.0), window_output(110.0, 3.0, 2.0, 0.0, 1.0)
    (55.0, 54.0)
    """
    return ops.minimum(ops.ceil_div(length + 2.0 * padding - kernel, stride) + 1.0, ops.ceil_div(length + padding, stride))


def window_inputs(sliding: SlidingWindow) -> Number:
    """Elements that a window slides over."""
    return sliding.batch * sliding.channels * sliding.height * sliding.width


def window_outputs(sliding: SlidingWindow) -> Number:
    """Elements that a window gives."""
    return sliding.batch * sliding.filters * sliding.output_height * sliding.output_width


def convolution_weights(sliding: SlidingWindow) -> Number:
    r"""Weights of a convolution without biases.

    .. math:: \frac{C}{g} K k_h k_w
    """
    return sliding.channels / sliding.groups * sliding.filters * sliding.kernel_height * sliding.kernel_width


def convolution_flop(sliding: SlidingWindow) -> Number:
    r"""FLOP of one pass of a convolution: the output, the gradient of its input, or that of its weights.

    .. math:: 2 \cdot b K H' W' \cdot \frac{C}{g} k_h k_w

    Taps that fall on padding are counted, as kernels multiply them too. The three passes cost the same.

    Examples
    --------
    >>> convolution_flop(SlidingWindow(1.0, 3.0, 224.0, 224.0, 64.0, 7.0, 7.0, 2.0, 112.0, 112.0, 1.0)) / 2
    118013952.0
    """
    taps = sliding.channels / sliding.groups * sliding.kernel_height * sliding.kernel_width
    return 2.0 * window_outputs(sliding) * taps


def convolution_bytes(sliding: SlidingWindow, element_bytes: Number) -> Number:
    """Bytes of one pass of a convolution: input, weights and output, each once."""
    return element_bytes * (window_inputs(sliding) + convolution_weights(sliding) + window_outputs(sliding))


def pooling_flop(sliding: SlidingWindow) -> Number:
    """FLOP of a pooling, forward: one comparison or addition a tap."""
    return window_outputs(sliding) * sliding.kernel_height * sliding.kernel_width


def pooling_bytes(sliding: SlidingWindow, element_bytes: Number, index_bytes: Number) -> Number:
    """Bytes of one pass of a pooling: the input or its gradient, the output or its gradient, and where the maxima are.

    Parameters
    ----------
    index_bytes : of the place of a maximum; 0 for a mean [bytes]
    """
    return element_bytes * window_inputs(sliding) + (element_bytes + index_bytes) * window_outputs(sliding)


def linear_parameters(inputs: Number, outputs: Number, bias: Number) -> Number:
    """Parameters of a linear layer.

    Parameters
    ----------
    inputs, outputs : features
    bias : 1 with biases
    """
    return inputs * outputs + bias * outputs


def linear_flop(rows: Number, inputs: Number, outputs: Number) -> Number:
    """FLOP of one pass of a linear layer: the output, the gradient of its input, or that of its weights.

    Parameters
    ----------
    rows : vectors multiplied
    inputs, outputs : features
    """
    return 2.0 * rows * inputs * outputs


def linear_bytes(rows: Number, inputs: Number, outputs: Number, element_bytes: Number) -> Number:
    """Bytes of one pass of a linear layer: input, weights and output, each once.

    Parameters
    ----------
    rows : vectors multiplied
    inputs, outputs : features
    """
    return element_bytes * (rows * inputs + inputs * outputs + rows * outputs)


def elementwise_bytes(elements: Number, operands: Number, element_bytes: Number) -> Number:
    """Bytes of a kernel that reads and writes whole tensors of one size.

    Parameters
    ----------
    elements : of one tensor
    operands : tensors read and written
    """
    return operands * elements * element_bytes


def recurrent_parameters(gates: Number, inputs: Number, hidden: Number) -> Number:
    r"""Parameters of one direction of a recurrent layer, with the two bias vectors that cuDNN keeps.

    .. math:: g h (i + h + 2)

    Parameters
    ----------
    gates : :math:`g`, 4 for an LSTM, 3 for a GRU, 1 for a plain cell
    inputs : features :math:`i`
    hidden : :math:`h`

    Examples
    --------
    >>> recurrent_parameters(4.0, 1024.0, 1024.0)
    8396800.0
    """
    return gates * hidden * (inputs + hidden + 2.0)


def recurrent_flop(rows: Number, gates: Number, inputs: Number, hidden: Number) -> Number:
    """FLOP of one pass of one direction of a recurrent layer: the products, which are nearly all.

    Parameters
    ----------
    rows : samples times steps
    inputs, hidden : features
    """
    return linear_flop(rows, inputs, gates * hidden) + linear_flop(rows, hidden, gates * hidden)


def recurrent_bytes(
    batch: Number, steps: Number, gates: Number, inputs: Number, hidden: Number, element_bytes: Number,
) -> Number:  # fmt: skip
    """Bytes of one pass of one direction of a recurrent layer: the recurrent weights are read at every step.

    Parameters
    ----------
    steps : of the sequence
    inputs, hidden : features
    """
    rows = batch * steps
    recurrent = steps * linear_bytes(batch, hidden, gates * hidden, element_bytes)
    return linear_bytes(rows, inputs, gates * hidden, element_bytes) + recurrent


def additive_attention_parameters(hidden: Number) -> Number:
    r"""Parameters of additive attention :math:`v^T \tanh(W_q q + W_k k)`, all of one width.

    .. math:: 2 h^2 + h

    Parameters
    ----------
    hidden : :math:`h`

    References
    ----------
    [bahdanau2015]_
    """
    return 2.0 * hidden * hidden + hidden


def multiplicative_attention_parameters(hidden: Number) -> Number:
    r"""Parameters of attention with the score :math:`q^T W k`.

    Parameters
    ----------
    hidden : of queries and keys

    References
    ----------
    [luong2015]_ ("general")
    """
    return hidden * hidden


def attention_flop(batch: Number, queries: Number, keys: Number, hidden: Number) -> Number:
    """FLOP of one pass of the scores and of the weighted sum, projections left out.

    Parameters
    ----------
    queries, keys : steps of each
    hidden : features
    """
    return 4.0 * batch * queries * keys * hidden


def normalisation_flop(elements: Number) -> Number:
    """FLOP of a batch norm, forward in training: mean, variance, and the scaled difference.

    Parameters
    ----------
    elements : normalised
    """
    return 7.0 * elements


def local_response_flop(elements: Number, neighbours: Number) -> Number:
    """FLOP of a local response normalisation, forward: squares, their sum over neighbouring channels, power, quotient.

    Parameters
    ----------
    elements : normalised
    neighbours : channels in the sum

    References
    ----------
    [krizhevsky2012]_ section 3.3
    """
    return (neighbours + 4.0) * elements


def softmax_flop(rows: Number, classes: Number) -> Number:
    """FLOP of a softmax with its cross entropy, forward: maximum, difference, exponential, sum, quotient.

    Parameters
    ----------
    rows : distributions
    classes : outcomes of each
    """
    return 5.0 * rows * classes
