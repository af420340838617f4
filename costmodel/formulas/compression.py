r"""Gradients made smaller before they travel: what each method sends, and what it costs the device.

:math:`n` gradients of :math:`g` bytes on each of :math:`p` ranks. Packing and unpacking are priced as the bytes
their kernels read and write; what a method does to convergence is not priced.
"""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas import collectives, compute, traffic


def narrow_all_reduce(ngradients, gradient_bytes, wire_bytes, ranks, stride, network, stack, device):
    """Time and bytes to cast gradients to a narrower float, to all-reduce them and to cast them back [s, bytes].

    Parameters
    ----------
    ngradients : gradients on each rank
    gradient_bytes : of one before [bytes]
    wire_bytes : of one on the wire: 2 for fp16 and bf16 [bytes]
    ranks, stride : the group
    network, stack, device : `Network`, `Stack`, `Device`

    Examples
    --------
    Eight ranks send 2 (p - 1) / p of 2 bytes a gradient.

    >>> from costmodel import load_cluster, load_framework
    >>> cluster, stack = load_cluster("dgx-h100", gpus=8), load_framework("megatron-core").numbers()
    >>> narrow_all_reduce(1e9, 4.0, 2.0, 8.0, 1.0, cluster.numbers(), stack, cluster.device.numbers())[1]
    3500000000.0
    """
    nbytes = wire_bytes * ngradients
    cast = compute.stream(2.0 * (gradient_bytes + wire_bytes) * ngradients, 2.0, device)
    time = collectives.all_reduce(nbytes, ranks, stride, network, stack)
    changed = ops.where(wire_bytes < gradient_bytes, cast, 0.0)
    return changed + time, traffic.all_reduce_sent(nbytes, ranks)


def quantised_bytes(ngradients, bits, block, scale_bytes):
    """Gradients in blocks of whole numbers with one scale each [bytes].

    Parameters
    ----------
    ngradients : gradients
    bits : of one
    block : gradients that share a scale
    scale_bytes : of a scale [bytes]

    Examples
    --------
    >>> quantised_bytes(2048.0, 8.0, 256.0, 4.0)
    2080.0
    """
    return ngradients * bits / 8.0 + ops.ceil_div(ngradients, block) * scale_bytes


def quantised_all_reduce(ngradients, gradient_bytes, bits, block, scale_bytes, ranks, stride, network, stack, device):
    r"""Time and bytes of an all-reduce of quantised gradients [s, bytes].

    Whole numbers of few bits would overflow in a ring's sums, so every rank receives its part of all gradients
    (an all-to-all), sums it in 32 bit, quantises the sum and gathers the parts.

    Parameters
    ----------
    ngradients : gradients on each rank
    gradient_bytes : of one before [bytes]
    bits, block, scale_bytes : of the quantised ones: bits of one, how many share a scale, bytes of a scale
    ranks, stride : the group
    network, stack, device : `Network`, `Stack`, `Device`

    References
    ----------
    [wang2023zeropp]_ section 3.3 (quantised gradients by all-to-all)
    """
    nbytes = quantised_bytes(ngradients, bits, block, scale_bytes)
    packed = compute.stream(gradient_bytes * ngradients + nbytes, 1.0, device)
    summed = compute.stream(nbytes + (1.0 + gradient_bytes) * ngradients / ranks + nbytes / ranks, 2.0, device)
    unpacked = compute.stream(gradient_bytes * ngradients + nbytes, 1.0, device)
    scattered = collectives.all_to_all(nbytes, ranks, stride, network, stack)
    gathered = collectives.all_gather(nbytes, ranks, stride, network, stack)
    return packed + scattered + summed + gathered + unpacked, traffic.all_reduce_sent(nbytes, ranks)


def top_k_bytes(ngradients, density, value_bytes, index_bytes):
    """Largest gradients of one rank with their places [bytes].

    Parameters
    ----------
    ngradients : gradients
    density : share that is kept, rounded up to a whole gradient
    value_bytes, index_bytes : of a gradient, of its place [bytes]

    Examples
    --------
    >>> top_k_bytes(1e6, 0.01, 4.0, 4.0)
    80000.0
    """
    return ops.ceil(density * ngradients) * (value_bytes + index_bytes)


def top_k_exchange(ngradients, gradient_bytes, density, value_bytes, index_bytes, ranks, stride, network, stack, device):
    r"""Time and bytes to exchange the largest gradients of every rank [s, bytes].

    Each rank's places differ, so nothing can be summed on the way: an all-gather of :math:`p` payloads, which each
    rank then adds up. What is not sent stays in an error-feedback buffer.

    Parameters
    ----------
    ngradients : gradients on each rank
    gradient_bytes : of one, and of its error [bytes]
    density : share that is kept
    value_bytes, index_bytes : of a sent gradient, of its place [bytes]
    ranks, stride : the group
    network, stack, device : `Network`, `Stack`, `Device`

    Assumes that adding the error reads two buffers and writes one, and that a selection reads the sum twice (a
    histogram, then the chosen ones).

    References
    ----------
    [lin2018]_ (deep gradient compression)
    """
    payload = top_k_bytes(ngradients, density, value_bytes, index_bytes)
    kept = payload / (value_bytes + index_bytes)
    selected = compute.stream(5.0 * gradient_bytes * ngradients + payload, 4.0, device)
    added = compute.stream(gradient_bytes * ngradients + ranks * (payload + 2.0 * gradient_bytes * kept), 2.0, device)
    gathered = collectives.all_gather(ranks * payload, ranks, stride, network, stack)
    return selected + gathered + added, (ranks - 1.0) * payload


def top_k_break_even(gradient_bytes, value_bytes, index_bytes, ranks):
    r"""Density above which top-k sends more than the all-reduce that it replaces.

    .. math:: d^* = \frac{2 g}{p (v + i)}

    Parameters
    ----------
    gradient_bytes : of a gradient in the all-reduce :math:`g` [bytes]
    value_bytes, index_bytes : of a sent gradient :math:`v`, of its place :math:`i` [bytes]
    ranks : :math:`p`

    Examples
    --------
    >>> top_k_break_even(4.0, 4.0, 4.0, 100.0)
    0.01
    """
    return 2.0 * gradient_bytes / (ranks * (value_bytes + index_bytes))


def power_sgd_rank(rows, columns, rank):
    """Rank that an approximation of a matrix can have at most.

    Parameters
    ----------
    rows, columns : of the matrix
    rank : wanted
    """
    return ops.minimum(rank, ops.minimum(rows, columns))


def power_sgd_elements(rows, columns, rank):
    r"""Elements that PowerSGD exchanges for one gradient: of :math:`P` and :math:`Q`, or of a vector itself.

    .. math:: r (m + k)

    A matrix whose factors would be larger than itself travels whole, as in PyTorch's hook.

    Parameters
    ----------
    rows : :math:`m`
    columns : :math:`k`; 1 for a vector
    rank : :math:`r`

    References
    ----------
    [vogels2019]_ algorithm 1

    Examples
    --------
    >>> power_sgd_elements(1024.0, 4096.0, 4.0), power_sgd_elements(1024.0, 1.0, 4.0)
    (20480.0, 1024.0)
    """
    return ops.minimum(power_sgd_rank(rows, columns, rank) * (rows + columns), rows * columns)


def power_sgd_flop(rows, columns, rank):
    r"""Work of PowerSGD on one matrix: :math:`M Q`, :math:`M^T P`, :math:`P Q^T`, and orthogonal columns of :math:`P` [FLOP].

    .. math:: 6 m k r + 2 m r^2

    Parameters
    ----------
    rows, columns : :math:`m`, :math:`k`
    rank : :math:`r`
    """
    kept = power_sgd_rank(rows, columns, rank)
    compressed = kept * (rows + columns) < rows * columns
    return ops.where(compressed, (6.0 * columns + 2.0 * kept) * rows * kept, 0.0)


def power_sgd_exchange(rows, columns, rank, gradient_bytes, ranks, stride, network, stack, device):
    r"""Time and bytes of PowerSGD on one matrix [s, bytes]: an all-reduce of :math:`P`, then one of :math:`Q`.

    The products are thin, so they move bytes: the matrix is read to add its error and for each product, and written
    as error and as result.

    Parameters
    ----------
    rows, columns, rank : of the matrix, of its approximation
    gradient_bytes : of an element on the wire and in memory [bytes]
    ranks, stride : the group
    network, stack, device : `Network`, `Stack`, `Device`

    References
    ----------
    [vogels2019]_ algorithm 1 and section 3
    """
    kept = power_sgd_rank(rows, columns, rank)
    compressed = kept * (rows + columns) < rows * columns
    moved = gradient_bytes * (7.0 * rows * columns + 6.0 * kept * (rows + columns))
    rate = device.base_flop_rate * device.base_gemm_efficiency
    work = compute.stream(moved, 6.0, device) + power_sgd_flop(rows, columns, rank) / rate
    first = collectives.all_reduce(gradient_bytes * kept * rows, ranks, stride, network, stack)
    second = collectives.all_reduce(gradient_bytes * kept * columns, ranks, stride, network, stack)
    whole = collectives.all_reduce(gradient_bytes * rows * columns, ranks, stride, network, stack)
    time = ops.where(compressed, work + first + second, whole)
    sent = traffic.all_reduce_sent(gradient_bytes * power_sgd_elements(rows, columns, rank), ranks)
    return time, sent
