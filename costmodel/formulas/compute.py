r"""Kernels of one device: matrix products, streams of bytes, and what the host must launch."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import DeviceNumbers, Number

TILE = 64.0
"""Outputs on a side of the smallest tile that kernels of dense products on tensor cores use."""
ARGUMENTS = {
    "m": "rows of the product; one of which a size is 0 is absent and takes no time", "n": "its columns", "k": "its depth",
    "element_bytes": "of an operand [bytes]", "flop_rate": "reached by a large product [FLOP/s]",
    "quality": "factor of the software on the device's efficiency", "nbytes": "read and written [bytes]",
    "kernels": "how many launches",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""
PLACED = 2.3e9
"""Elements of the result that a multiprocessor works out in a second where PyTorch's kernels don't take their operands as one run
(``launch_legacy_kernel`` in its CUDALoops.cuh): a comparison of broadcast fp16 tensors makes 182 to 186e9 on a V100's 80
(pytorch/pytorch#69010), a PReLU with a weight for each channel 295e9 on an H200's 132 (tile-ai/TileOPs#500)."""


def limited_clock(power: Number, rated_power: Number) -> Number:
    r"""Clock of a device that may draw less than another of its die, over that one's: :math:`\min(1, (P/P_0)^{1/3})`.

    Parameters
    ----------
    power, rated_power : limits of this device and of the one whose clock is known [W]

    Assumptions
    -----------
    Both are at their limits, as dense products on tensor cores are, and what they draw is dynamic: :math:`P \propto f V^2` with
    the voltage in proportion to the clock.

    References
    ----------
    Hennessy and Patterson, Computer Architecture, 6th edition, section 1.5
    """
    return ops.minimum(1.0, (power / rated_power) ** (1.0 / 3.0))


def product_clock(device: DeviceNumbers) -> Number:
    """Clock of products in the compute dtype in a training step, over that of a short benchmark."""
    return ops.where(device.narrow > 0.0, device.narrow_clock, device.sustained_clock)


def product_rate(quality: Number, device: DeviceNumbers) -> Number:
    """Rate of a large product in the compute dtype [FLOP/s]: whatever the software, not above the best that was measured."""
    reached = ops.minimum(device.flop_rate * device.gemm_efficiency * quality, device.best_flop_rate)
    return product_clock(device) * reached


def base_product_rate(quality: Number, device: DeviceNumbers) -> Number:
    """Rate of a large product in the 16-bit dtype [FLOP/s], bounded as `product_rate`."""
    reached = ops.minimum(device.base_flop_rate * device.base_gemm_efficiency * quality, device.base_best_flop_rate)
    return device.sustained_clock * reached


def grouped_product_rate(quality: Number, device: DeviceNumbers) -> Number:
    """Rate of many large products in one kernel, in the compute dtype [FLOP/s], bounded as `product_rate`."""
    reached = ops.minimum(device.flop_rate * device.grouped_efficiency * quality, device.best_flop_rate)
    return product_clock(device) * reached


def product_bytes(m: Number, n: Number, k: Number, element_bytes: Number, added_bytes: Number = 0.0) -> Number:
    r"""Bytes of the operands and of the result of a product; results of 8 and 4 bit operands are 16 bit wide.

    Parameters
    ----------
    m, n, k : sizes
    added_bytes : read and written where the kernel adds an element of the result to an earlier one, 0 where it writes it [bytes]
    """
    return element_bytes * (m * k + k * n) + ops.maximum(ops.maximum(element_bytes, 2.0), added_bytes) * m * n


def tiled_product(
    m: Number, n: Number, k: Number, element_bytes: Number, flop_rate: Number, output: Number, depth: Number,
    device: DeviceNumbers, added_bytes: Number = 0.0,
) -> Number:  # fmt: skip
    r"""Time of one matrix product :math:`(m \times k)(k \times n)` on tensor cores [s].

    .. math::
        T = \left(W^4 + V^4\right)^{1/4} + t_0, \quad
        W = \frac{2 (\lceil m \rceil_{64} \lceil n \rceil_{64} + A)(k + K)}{F}, \quad
        V = \frac{e (m k + k n) + e' m n}{B}

    Outputs fill tiles of 64 at least; :math:`A` is the output lost to waves of tiles that don't fill the device,
    :math:`K` the depth lost to filling and draining each tile, :math:`B` (``product_bandwidth``) the rate at which
    operands come, :math:`t_0` the shortest kernel. The norm is a maximum with a round corner: where arithmetic and
    memory take as long, neither hides the other fully.

    Parameters
    ----------
    output : :math:`A` [elements]
    depth : :math:`K`
    added_bytes : as `product_bytes`

    References
    ----------
    [williams2009]_ (roofline), [nvidia2023matmul]_ (wave and tile quantisation)
    """
    tiles = TILE * TILE * ops.ceil(m * (1.0 / TILE)) * ops.ceil(n * (1.0 / TILE))
    # one division serves all plans of a question where it is of its own numbers alone
    work = (tiles + output) * (k + depth) * (2.0 / flop_rate)
    move = product_bytes(m, n, k, element_bytes, added_bytes) * (1.0 / device.product_bandwidth)
    return ops.where(m * n * k > 0.0, rounded_maximum(work, move) + device.kernel_time, 0.0)


def rounded_maximum(a: Number, b: Number) -> Number:
    r"""Larger of two times, or a little more where they are alike [s]: :math:`(a^4 + b^4)^{1/4}`.

    Parameters
    ----------
    a, b : times [s]

    Examples
    --------
    >>> rounded_maximum(0.0, 16.0), round(rounded_maximum(1.0, 1.0), 3)
    (16.0, 1.189)
    """
    a, b = a * a, b * b
    return ops.sqrt(ops.sqrt(a * a + b * b))


def gemm(
    m: Number, n: Number, k: Number, element_bytes: Number, flop_rate: Number, device: DeviceNumbers,
    added_bytes: Number = 0.0,
) -> Number:  # fmt: skip
    """Time of one matrix product in the compute dtype [s], as `tiled_product`.

    Parameters
    ----------
    added_bytes : as `product_bytes`
    """
    return tiled_product(m, n, k, element_bytes, flop_rate, device.gemm_output, device.gemm_depth, device, added_bytes)


def base_gemm(m: Number, n: Number, k: Number, flop_rate: Number, device: DeviceNumbers, added_bytes: Number = 0.0) -> Number:
    """Time of one matrix product in the 16-bit dtype [s], as `tiled_product` with that dtype's own losses.

    Parameters
    ----------
    added_bytes : as `product_bytes`
    """
    return tiled_product(m, n, k, 2.0, flop_rate, device.base_gemm_output, device.base_gemm_depth, device, added_bytes)


def vector_gemm(
    m: Number, n: Number, k: Number, element_bytes: Number, flop_rate: Number, device: DeviceNumbers,
) -> Number:  # fmt: skip
    r"""Time of one matrix product outside the tensor cores, whose tiles are small [s].

    .. math:: T = \max\!\left(\frac{2 (m n + A)(k + K)}{F}, \frac{e (m k + k n + m n)}{B}\right) + t_0
    """
    work = 2.0 * (m * n + device.gemm_output) * (k + device.gemm_depth) / flop_rate
    move = element_bytes * (m * k + k * n + m * n) / device.product_bandwidth
    return ops.where(m * n * k > 0.0, ops.maximum(work, move) + device.kernel_time, 0.0)


def grouped_gemm(
    groups: Number, m: Number, n: Number, k: Number, element_bytes: Number, flop_rate: Number, device: DeviceNumbers,
    added_bytes: Number = 0.0,
) -> Number:  # fmt: skip
    r"""Time of `groups` products of the same shape in one kernel [s].

    .. math::
        T = \left(W^4 + V^4\right)^{1/4} + t_0, \quad W = \frac{2 (g (m + M) n + A)(k + K)}{F}, \quad
        V = \frac{g\, e (m k + \min(1, m) k n) + g\, e' m n}{B}

    :math:`M` (``grouped_rows``) are the rows that each group loses to its last, partly filled tile, :math:`A`
    (``grouped_output``) is the output lost to unfilled waves. Where fewer rows than groups are multiplied, only the
    weights of groups that have a row are read.

    Parameters
    ----------
    groups : products
    m, n, k : sizes of one; `m` may be a mean below 1
    added_bytes : as `product_bytes`
    """
    met = groups * ops.minimum(m, 1.0)
    padded = groups * m + met * device.grouped_rows
    work = (padded * n + device.grouped_output) * (k + device.gemm_depth) * (2.0 / flop_rate)
    result = ops.maximum(ops.maximum(element_bytes, 2.0), added_bytes)
    moved = element_bytes * (groups * m * k + met * k * n) + result * groups * m * n
    time = rounded_maximum(work, moved * (1.0 / device.grouped_bandwidth))
    return ops.where(groups * m * n > 0.0, time + device.kernel_time, 0.0)


def stream(nbytes: Number, kernels: Number, device: DeviceNumbers) -> Number:
    """Time of kernels that only move bytes [s]."""
    return nbytes / device.memory_bandwidth + kernels * device.kernel_time


def broadcast(nbytes: Number, elements: Number, multiprocessors: Number, device: DeviceNumbers) -> Number:
    r"""Time of a kernel whose operands have different shapes [s].

    .. math:: T = \max\!\left(\frac{n}{B}, \frac{N}{M r}\right) + t_0

    It works out where each element's operands lie, which in 16 bit takes longer than to move them.

    Parameters
    ----------
    elements : of the result
    multiprocessors : of the device; 0 where that isn't known, and only bytes count
    """
    placed = elements / (PLACED * ops.maximum(multiprocessors, 1.0))
    return ops.maximum(nbytes / device.memory_bandwidth, ops.where(multiprocessors > 0.0, placed, 0.0)) + device.kernel_time


def host_wait(busy: Number, host: Number) -> Number:
    r"""Time a device waits for the host to launch its kernels [s]: a smooth :math:`\max(0, T_h - T_d)`.

    .. math:: \left(T_d^8 + T_h^8\right)^{1/8} - T_d

    Smooth because launches and kernels both vary: near the crossing neither hides the other fully.

    Parameters
    ----------
    busy : device time :math:`T_d` [s]
    host : host time :math:`T_h` [s]
    """
    largest = ops.maximum(busy, host) + 1e-30
    device = (busy / largest) * (busy / largest)
    launch = (host / largest) * (host / largest)
    device, launch = device * device, launch * launch
    return largest * ops.sqrt(ops.sqrt(ops.sqrt(device * device + launch * launch))) - busy
