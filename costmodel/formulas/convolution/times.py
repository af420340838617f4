r"""Time of the kernels of layers that aren't transformers, on one device.

Products and streams of `costmodel.formulas.compute`, put together as cuDNN does: a convolution is one product of
patches and filters, or Winograd's, whichever is faster; a recurrent layer one product over all steps and one a step.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.compute import stream, vector_gemm
from costmodel.formulas.convolution.counts import SlidingWindow, window_inputs, window_outputs
from costmodel.formulas.quantities import DeviceNumbers, Number

WINOGRAD_TILE = 4.0
"""Outputs of a tile of Winograd's algorithm along one axis, as cuDNN's unfused kernels have it."""
ARGUMENTS = {
    "element_bytes": "[bytes]", "flop_rate": "reached by a large product [FLOP/s]", "dilation": "distance of neighbouring taps",
    "winograd_share": "of that rate, reached by the products of Winograd's algorithm", "steps": "of the sequence",
    "gates": "4 for an LSTM, 3 for a GRU, 1 for a plain cell", "batch": "samples",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""


def split_gemm(
    m: Number, n: Number, k: Number, element_bytes: Number, flop_rate: Number, device: DeviceNumbers,
) -> Number:  # fmt: skip
    r"""Time of a product whose inner dimension may be cut so that the pieces fill the device [s].

    :math:`s` pieces are one product with :math:`s m` rows and depth :math:`k / s`. What `vector_gemm` loses to unfilled
    waves falls with :math:`s`, what it loses to filling tiles grows; the sum is least at

    .. math:: s = \sqrt{\frac{A k}{m n K}}

    Parameters
    ----------
    m, n, k : sizes; a product with ``n = 0`` or ``k = 0`` is absent and takes no time
    element_bytes : of an operand [bytes]
    """
    best = ops.sqrt(device.gemm_output * k / ops.maximum(1.0, m * n * device.gemm_depth))
    pieces = ops.maximum(1.0, ops.minimum(best, k / 32.0))
    moved = element_bytes * (m * k + k * n + pieces * m * n)
    product = vector_gemm(m * pieces, n, k / pieces, element_bytes, flop_rate, device)
    return ops.where(n * k > 0.0, ops.maximum(product, stream(moved, 1.0, device)), 0.0)


def winograd_taps(sliding: SlidingWindow) -> Number:
    r"""Multiplications a tile of Winograd's algorithm takes, :math:`(m + k - 1)^2`, in place of :math:`m^2 k^2`.

    Parameters
    ----------
    sliding : `SlidingWindow` with a square kernel

    References
    ----------
    [lavin2016]_
    """
    side = WINOGRAD_TILE + sliding.kernel_height - 1.0
    return side * side


def winograd(
    sliding: SlidingWindow, inner_pixels: Number, depth_is_tiles: Number, element_bytes: Number, flop_rate: Number,
    device: DeviceNumbers,
) -> Number:  # fmt: skip
    """Time of a convolution by Winograd's algorithm, its transforms in kernels of their own [s].

    Parameters
    ----------
    sliding : `SlidingWindow` with a square kernel, stride 1, one group
    inner_pixels : positions along which tiles are cut: of the output, or of the input for its gradient
    depth_is_tiles : 1 for the gradient of the weights, whose products are summed over tiles
    """
    taps = winograd_taps(sliding)
    tiles = sliding.batch * inner_pixels / (WINOGRAD_TILE * WINOGRAD_TILE)
    over_channels = vector_gemm(taps * tiles, sliding.filters, sliding.channels, element_bytes, flop_rate, device)
    over_tiles = split_gemm(taps * sliding.channels, sliding.filters, tiles, element_bytes, flop_rate, device)
    product = ops.where(depth_is_tiles > 0.0, over_tiles, over_channels)
    transformed = taps * tiles * (sliding.channels + sliding.filters)
    moved = element_bytes * (window_inputs(sliding) + window_outputs(sliding) + transformed)
    return product + stream(moved, 3.0, device)


def winograd_applies(sliding: SlidingWindow, dilation: Number) -> bool:
    """Whether cuDNN has Winograd kernels for a convolution: square kernels of 3 or 5, every position, one group."""
    square = ops.equal(sliding.kernel_height, sliding.kernel_width)
    served = square & (sliding.kernel_height > 2.5) & (sliding.kernel_height < 5.5)
    return served & (sliding.stride * dilation * sliding.groups < 1.5)


def faster(sliding: SlidingWindow, dilation: Number, plain: Number, quick: Number) -> Number:
    """Time of the faster of two algorithms of a convolution, of the second only where there is one [s].

    Parameters
    ----------
    plain : by an implicit product [s]
    quick : by Winograd's algorithm [s]
    """
    return ops.where(winograd_applies(sliding, dilation), ops.minimum(plain, quick), plain)


def convolution_forward(
    sliding: SlidingWindow, dilation: Number, element_bytes: Number, flop_rate: Number, winograd_share: Number,
    device: DeviceNumbers,
) -> Number:  # fmt: skip
    """Time of a convolution's output [s]."""
    pixels = sliding.output_height * sliding.output_width
    taps = sliding.channels / sliding.groups * sliding.kernel_height * sliding.kernel_width
    rows = sliding.batch * pixels * sliding.groups
    plain = vector_gemm(rows, sliding.filters / sliding.groups, taps, element_bytes, flop_rate, device)
    quick = winograd(sliding, pixels, 0.0, element_bytes, winograd_share * flop_rate, device)
    return faster(sliding, dilation, plain, quick)


def convolution_backward_data(
    sliding: SlidingWindow, dilation: Number, element_bytes: Number, flop_rate: Number, winograd_share: Number,
    device: DeviceNumbers,
) -> Number:  # fmt: skip
    """Time of the gradient of a convolution's input [s]."""
    pixels = sliding.height * sliding.width
    share = sliding.output_height * sliding.output_width / pixels
    taps = sliding.filters / sliding.groups * sliding.kernel_height * sliding.kernel_width * share
    rows = sliding.batch * pixels * sliding.groups
    plain = vector_gemm(rows, sliding.channels / sliding.groups, taps, element_bytes, flop_rate, device)
    quick = winograd(sliding, pixels, 0.0, element_bytes, winograd_share * flop_rate, device)
    return faster(sliding, dilation, plain, quick)


def convolution_backward_weights(
    sliding: SlidingWindow, dilation: Number, element_bytes: Number, flop_rate: Number, winograd_share: Number,
    device: DeviceNumbers,
) -> Number:  # fmt: skip
    """Time of the gradient of a convolution's weights [s]."""
    pixels = sliding.output_height * sliding.output_width
    taps = sliding.channels / sliding.groups * sliding.kernel_height * sliding.kernel_width
    plain = split_gemm(taps * sliding.groups, sliding.filters / sliding.groups, sliding.batch * pixels,
                       element_bytes, flop_rate, device)  # fmt: skip
    quick = winograd(sliding, pixels, 1.0, element_bytes, winograd_share * flop_rate, device)
    return faster(sliding, dilation, plain, quick)


def recurrent_forward(
    batch: Number, steps: Number, gates: Number, inputs: Number, hidden: Number, element_bytes: Number,
    flop_rate: Number, device: DeviceNumbers,
) -> Number:  # fmt: skip
    """Time of one direction of a recurrent layer, forward [s]: inputs in one product, then a product a step.

    Parameters
    ----------
    inputs, hidden : features

    References
    ----------
    [appleyard2016]_
    """
    outside = vector_gemm(batch * steps, gates * hidden, inputs, element_bytes, flop_rate, device)
    step = split_gemm(batch, gates * hidden, hidden, element_bytes, flop_rate, device)
    pointwise = stream(2.0 * gates * batch * hidden * element_bytes, 1.0, device)
    return outside + steps * (step + pointwise)


def recurrent_backward(
    batch: Number, steps: Number, gates: Number, inputs: Number, hidden: Number, element_bytes: Number,
    flop_rate: Number, device: DeviceNumbers,
) -> Number:  # fmt: skip
    """Time of one direction of a recurrent layer, backward [s]: a product a step, then two over all steps and the weights.

    Parameters
    ----------
    inputs, hidden : features
    """
    rows = batch * steps
    step = split_gemm(batch, hidden, gates * hidden, element_bytes, flop_rate, device)
    pointwise = stream(3.0 * gates * batch * hidden * element_bytes, 1.0, device)
    data = vector_gemm(rows, inputs, gates * hidden, element_bytes, flop_rate, device)
    weights = split_gemm(gates * hidden, inputs + hidden, rows, element_bytes, flop_rate, device)
    return steps * (step + pointwise) + data + weights
