r"""Kernels of one device: matrix products, streams of bytes, and what the host must launch."""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas.quantities import DeviceNumbers, Number


def gemm(
    m: Number, n: Number, k: Number, element_bytes: Number, flop_rate: Number, device: DeviceNumbers,
) -> Number:  # fmt: skip
    r"""Time of one matrix product :math:`(m \times k)(k \times n)` [s].

    .. math:: T = \max\!\left(\frac{2 (m n + A)(k + K)}{F}, \frac{e (m k + k n + m n)}{B}\right) + t_0

    :math:`A` (``gemm_output``) is the output lost to waves of tiles that don't fill the device, :math:`K`
    (``gemm_depth``) the depth lost to filling and draining each tile, :math:`t_0` the shortest kernel. The
    compute term is a straight line in the number of waves, which is what tiled kernels do.

    Parameters
    ----------
    m, n, k : sizes; a product with ``n = 0`` or ``k = 0`` is absent and takes no time
    element_bytes : of an operand [bytes]
    flop_rate : reached by a large product [FLOP/s]
    device : `DeviceNumbers`

    References
    ----------
    [williams2009]_ (roofline), [nvidia2023matmul]_ (wave and tile quantisation)
    """
    work = 2.0 * (m * n + device.gemm_output) * (k + device.gemm_depth) / flop_rate
    move = element_bytes * (m * k + k * n + m * n) / device.memory_bandwidth
    return ops.where(n * k > 0.0, ops.maximum(work, move) + device.kernel_time, 0.0)


def grouped_gemm(
    groups: Number, m: Number, n: Number, k: Number, element_bytes: Number, flop_rate: Number,
    device: DeviceNumbers,
) -> Number:  # fmt: skip
    r"""Time of `groups` products of the same shape in one kernel [s]; rows pad to tiles of 128.

    Parameters
    ----------
    groups : products
    m, n, k : sizes of one
    element_bytes : of an operand [bytes]
    flop_rate : reached by a large product [FLOP/s]
    device : `DeviceNumbers`
    """
    rows = 128.0 * ops.ceil(m / 128.0)
    work = 2.0 * (groups * rows * n + device.gemm_output) * (k + device.gemm_depth) / flop_rate
    move = groups * element_bytes * (m * k + k * n + m * n) / device.memory_bandwidth
    return ops.where(groups * m * n > 0.0, ops.maximum(work, move) + device.kernel_time, 0.0)


def stream(nbytes: Number, kernels: Number, device: DeviceNumbers) -> Number:
    """Time of kernels that only move bytes [s].

    Parameters
    ----------
    nbytes : read and written [bytes]
    kernels : how many launches
    device : `DeviceNumbers`
    """
    return nbytes / device.memory_bandwidth + kernels * device.kernel_time


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
