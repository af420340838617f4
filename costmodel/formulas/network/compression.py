r"""Gradients made smaller before they travel: what each method sends, and what it costs the device.

:math:`n` gradients of :math:`g` bytes on each of :math:`p` ranks. Packing and unpacking are priced as the bytes
their kernels read and write; what a method does to convergence is not priced. Each method makes a `Payload`, from which
time, bytes on the wire and buffers follow.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas import compute
from costmodel.formulas.network import collectives, traffic
from costmodel.formulas.quantities import DeviceNumbers, LowRankSizes, NetworkNumbers, Number, Payload, Settings, Software

ARGUMENTS = {
    "ngradients": "gradients on each rank", "ranks": "that sum their gradients",
    "stride": "distance of neighbouring ones [ranks]", "gradient_bytes": "of one before [bytes]",
    "value_bytes": "of a sent gradient [bytes]", "index_bytes": "of its place [bytes]", "nparameters": "parameters on this rank",
    "density": "share that is kept",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""
NONE, NARROW, QUANTISED, TOP_K, POWER_SGD = 0.0, 1.0, 2.0, 3.0, 4.0
"""Codes of how a plan compresses gradients; those after `NARROW` encode them, those after `QUANTISED` feed back errors."""
NARROW_BYTES = 2.0
"""Of a gradient cast to fp16 or bf16."""
QUANTISED_BITS, QUANTISED_BLOCK, SCALE_BYTES = 8.0, 256.0, 4.0
"""Of a quantised gradient, how many share a scale, and its bytes."""
INDEX_BYTES = 4.0
"""Of a gradient's place."""


def coding_time(payload: Payload, device: DeviceNumbers) -> Number:
    """Time of a device to encode what it sends and to decode what it receives [s]."""
    rate = compute.base_product_rate(1.0, device)
    return compute.stream(payload.streamed, payload.kernels, device) + payload.flop / rate


def encoded_time(
    payload: Payload, ranks: Number, stride: Number, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    """Time of what travels in another form than that of gradients, one collective after the other [s]."""
    left = collectives.all_reduce(payload.left, ranks, stride, network, software)
    right = collectives.all_reduce(payload.right, ranks, stride, network, software)
    scattered = collectives.all_to_all(payload.scattered, ranks, stride, network, software)
    gathered = collectives.all_gather(ranks * payload.gathered, ranks, stride, network, software)
    return left + right + scattered + gathered


def encoded_sent(payload: Payload, ranks: Number) -> Number:
    """What a rank sends in another form than that of gradients [bytes]."""
    reduced = traffic.all_reduce_sent(payload.left + payload.right, ranks)
    return reduced + traffic.all_gather_sent(payload.scattered, ranks) + (ranks - 1.0) * payload.gathered


def buffer_bytes(payload: Payload, ranks: Number) -> Number:
    """Buffers of what is sent and received, gradients aside [bytes].

    Assumes one buffer for all gradients of a rank, an all-reduce in place, and that what an all-to-all has sent makes room
    for what is gathered then.
    """
    received = ops.maximum(payload.scattered, ranks * payload.gathered)
    copied = ops.where(payload.kernels > 0.0, payload.whole, 0.0)
    return copied + payload.left + payload.right + payload.scattered + received


def _exchange(
    payload: Payload, ranks: Number, stride: Number, network: NetworkNumbers, software: Software,
    device: DeviceNumbers,
) -> tuple[Number, Number]:  # fmt: skip
    """Time and bytes of an exchange in which the device encodes, the network carries, and the device decodes."""
    whole = collectives.all_reduce(payload.whole, ranks, stride, network, software)
    moving = whole + encoded_time(payload, ranks, stride, network, software)
    sent = traffic.all_reduce_sent(payload.whole, ranks) + encoded_sent(payload, ranks)
    return coding_time(payload, device) + moving, sent


def plain_payload(nbytes: Number) -> Payload:
    """Gradients that travel as they are, `Payload`.

    Parameters
    ----------
    nbytes : of all of them [bytes]
    """
    return Payload(nbytes, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def narrow_payload(ngradients: Number, gradient_bytes: Number, wire_bytes: Number) -> Payload:
    """Gradients cast to a narrower float, all-reduced and cast back, `Payload`; as they are where they are narrow already.

    Parameters
    ----------
    wire_bytes : of one on the wire [bytes]
    """
    cast = ops.where(wire_bytes < gradient_bytes, 2.0, 0.0)
    streamed = cast * (gradient_bytes + wire_bytes) * ngradients
    width = ops.minimum(wire_bytes, gradient_bytes)
    return Payload(width * ngradients, 0.0, 0.0, 0.0, 0.0, streamed, cast, 0.0)


def narrow_all_reduce(
    ngradients: Number, gradient_bytes: Number, wire_bytes: Number, ranks: Number, stride: Number,
    network: NetworkNumbers, software: Software, device: DeviceNumbers,
) -> tuple[Number, Number]:  # fmt: skip
    """Time and bytes to cast gradients to a narrower float, to all-reduce them and to cast them back [s, bytes].

    Parameters
    ----------
    wire_bytes : of one on the wire: 2 for fp16 and bf16 [bytes]

    Examples
    --------
    Eight ranks send 2 (p - 1) / p of 2 bytes a gradient.

    >>> from costmodel import load_cluster, load_framework
    >>> cluster, software = load_cluster("dgx-h100", gpus=8), load_framework("megatron-core").numbers()
    >>> narrow_all_reduce(1e9, 4.0, 2.0, 8.0, 1.0, cluster.numbers(), software, cluster.device.numbers())[1]
    3500000000.0
    """
    made = narrow_payload(ngradients, gradient_bytes, wire_bytes)
    return _exchange(made, ranks, stride, network, software, device)


def quantised_bytes(ngradients: Number, bits: Number, block: Number, scale_bytes: Number) -> Number:
    """Gradients in blocks of whole numbers with one scale each [bytes].

    Parameters
    ----------
    bits : of one
    block : gradients that share a scale
    scale_bytes : of a scale [bytes]

    Examples
    --------
    >>> quantised_bytes(2048.0, 8.0, 256.0, 4.0)
    2080.0
    """
    return ngradients * bits / 8.0 + ops.ceil_div(ngradients, block) * scale_bytes


def quantised_payload(
    ngradients: Number, gradient_bytes: Number, bits: Number, block: Number, scale_bytes: Number,
    ranks: Number,
) -> Payload:  # fmt: skip
    """Gradients quantised, exchanged part by part, summed in 32 bit, quantised again and gathered, `Payload`.

    Parameters
    ----------
    bits, block, scale_bytes : of the quantised ones: bits of one, how many share a scale, bytes of a scale
    """
    nbytes = quantised_bytes(ngradients, bits, block, scale_bytes)
    packed = gradient_bytes * ngradients + nbytes
    summed = nbytes + (1.0 + gradient_bytes) * ngradients / ranks + nbytes / ranks
    return Payload(0.0, 0.0, 0.0, nbytes, nbytes / ranks, 2.0 * packed + summed, 4.0, 0.0)


def quantised_all_reduce(
    ngradients: Number, gradient_bytes: Number, bits: Number, block: Number, scale_bytes: Number,
    ranks: Number, stride: Number, network: NetworkNumbers, software: Software, device: DeviceNumbers,
) -> tuple[Number, Number]:  # fmt: skip
    r"""Time and bytes of an all-reduce of quantised gradients [s, bytes].

    Whole numbers of few bits would overflow in a ring's sums, so every rank receives its part of all gradients
    (an all-to-all), sums it in 32 bit, quantises the sum and gathers the parts. The all-to-all is flat: over several GPUs a
    node it loses to a ring what two hops, inside nodes and between them, would save.

    Parameters
    ----------
    bits, block, scale_bytes : of the quantised ones: bits of one, how many share a scale, bytes of a scale

    References
    ----------
    [wang2023zeropp]_ section 3.3 (quantised gradients by all-to-all)
    """
    made = quantised_payload(ngradients, gradient_bytes, bits, block, scale_bytes, ranks)
    return _exchange(made, ranks, stride, network, software, device)


def top_k_bytes(ngradients: Number, density: Number, value_bytes: Number, index_bytes: Number) -> Number:
    """Largest gradients of one rank with their places [bytes].

    Parameters
    ----------
    density : share that is kept, rounded up to a whole gradient
    value_bytes, index_bytes : of a gradient, of its place [bytes]

    Examples
    --------
    >>> top_k_bytes(1e6, 0.01, 4.0, 4.0)
    80000.0
    """
    return ops.ceil(density * ngradients) * (value_bytes + index_bytes)


def top_k_payload(
    ngradients: Number, gradient_bytes: Number, density: Number, value_bytes: Number, index_bytes: Number,
    ranks: Number,
) -> Payload:  # fmt: skip
    """Largest gradients of every rank, gathered and added up by each, `Payload`.

    Parameters
    ----------
    gradient_bytes : of one, and of its error [bytes]

    Assumes that adding the error reads two buffers and writes one, and that a selection reads the sum twice (a
    histogram, then the chosen ones).
    """
    sent = top_k_bytes(ngradients, density, value_bytes, index_bytes)
    kept = sent / (value_bytes + index_bytes)
    selected = 5.0 * gradient_bytes * ngradients + sent
    added = gradient_bytes * ngradients + ranks * (sent + 2.0 * gradient_bytes * kept)
    return Payload(0.0, 0.0, 0.0, 0.0, sent, selected + added, 6.0, 0.0)


def top_k_exchange(
    ngradients: Number, gradient_bytes: Number, density: Number, value_bytes: Number, index_bytes: Number,
    ranks: Number, stride: Number, network: NetworkNumbers, software: Software, device: DeviceNumbers,
) -> tuple[Number, Number]:  # fmt: skip
    r"""Time and bytes to exchange the largest gradients of every rank [s, bytes].

    Each rank's places differ, so nothing can be summed on the way: an all-gather of :math:`p` payloads, which each
    rank then adds up. What is not sent stays in an error-feedback buffer.

    Parameters
    ----------
    gradient_bytes : of one, and of its error [bytes]

    References
    ----------
    [lin2018]_ (deep gradient compression)
    """
    made = top_k_payload(ngradients, gradient_bytes, density, value_bytes, index_bytes, ranks)
    return _exchange(made, ranks, stride, network, software, device)


def top_k_break_even(
    gradient_bytes: Number, value_bytes: Number, index_bytes: Number, ranks: Number,
) -> Number:  # fmt: skip
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


def power_sgd_rank(rows: Number, columns: Number, rank: Number) -> Number:
    """Rank that an approximation of a matrix can have at most.

    Parameters
    ----------
    rows, columns : of the matrix
    rank : wanted
    """
    return ops.minimum(rank, ops.minimum(rows, columns))


def power_sgd_elements(rows: Number, columns: Number, rank: Number) -> Number:
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


def power_sgd_flop(rows: Number, columns: Number, rank: Number) -> Number:
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


def power_sgd_factors(matrices: Number, rows: Number, columns: Number, rank: Number) -> LowRankSizes:
    """What PowerSGD makes of equal matrices, `LowRankSizes`.

    Parameters
    ----------
    matrices : how many
    rows, columns : of one
    rank : wanted

    Examples
    --------
    >>> power_sgd_factors(2.0, 1024.0, 4096.0, 4.0)[:4]
    (8192.0, 32768.0, 8388608.0, 2.0)
    """
    kept = power_sgd_rank(rows, columns, rank)
    made = ops.where(kept * (rows + columns) < rows * columns, matrices, 0.0)
    return LowRankSizes(
        made * kept * rows, made * kept * columns, made * rows * columns, made,
        matrices * power_sgd_flop(rows, columns, rank),
    )  # fmt: skip


def power_sgd_payload(
    ngradients: Number, factors: LowRankSizes, gradient_bytes: Number, wire_bytes: Number,
) -> Payload:  # fmt: skip
    """Factors of matrices, all-reduced one after the other, beside the gradients that have none, `Payload`.

    Parameters
    ----------
    factors : `LowRankSizes` of those that are matrices
    gradient_bytes : of one, and of its error [bytes]
    wire_bytes : of an element on the wire [bytes]

    Assumes thin products, which move bytes: the matrix is read to add its error and for each product, and written as error
    and as result.

    References
    ----------
    [vogels2019]_ algorithm 1 and section 3
    """
    rest = ops.maximum(ngradients - factors.covered, 0.0)
    streamed = gradient_bytes * (7.0 * factors.covered + 6.0 * (factors.left + factors.right))
    return Payload(
        wire_bytes * rest, wire_bytes * factors.left, wire_bytes * factors.right, 0.0, 0.0,
        streamed, 6.0 * factors.matrices, factors.flop,
    )  # fmt: skip


def power_sgd_exchange(
    rows: Number, columns: Number, rank: Number, gradient_bytes: Number, ranks: Number, stride: Number,
    network: NetworkNumbers, software: Software, device: DeviceNumbers,
) -> tuple[Number, Number]:  # fmt: skip
    r"""Time and bytes of PowerSGD on one matrix [s, bytes]: an all-reduce of :math:`P`, then one of :math:`Q`.

    Parameters
    ----------
    rows, columns, rank : of the matrix, of its approximation
    gradient_bytes : of an element on the wire and in memory [bytes]

    References
    ----------
    [vogels2019]_ algorithm 1 and section 3
    """
    factors = power_sgd_factors(1.0, rows, columns, rank)
    made = power_sgd_payload(rows * columns, factors, gradient_bytes, gradient_bytes)
    return _exchange(made, ranks, stride, network, software, device)


def _either(condition: bool, one: Payload, other: Payload) -> Payload:
    """One of two payloads."""
    return Payload(
        ops.where(condition, one.whole, other.whole),
        ops.where(condition, one.left, other.left),
        ops.where(condition, one.right, other.right),
        ops.where(condition, one.scattered, other.scattered),
        ops.where(condition, one.gathered, other.gathered),
        ops.where(condition, one.streamed, other.streamed),
        ops.where(condition, one.kernels, other.kernels),
        ops.where(condition, one.flop, other.flop),
    )


def payload_of(nparameters: Number, factors: LowRankSizes, ranks: Number, settings: Settings) -> Payload:
    """What a rank makes of its gradients before they are summed, as the plan compresses them, `Payload`.

    ================  ==========================================================================================
    none              the gradients
    fp16, bf16        cast to 16 bit, where they are wider
    int8              in blocks that share a scale, summed in 32 bit by an all-to-all
    top-k             the largest with their places, gathered
    PowerSGD          two factors of each matrix; vectors, and matrices without smaller factors, as they are
    ================  ==========================================================================================

    Where there are no other ranks, or no gradients, there is nothing to compress.

    Parameters
    ----------
    factors : `LowRankSizes` of its weight matrices

    References
    ----------
    [wang2023zeropp]_ section 3.3, [lin2018]_, [vogels2019]_; PyTorch torch/distributed/algorithms/ddp_comm_hooks
    """
    widths = settings.widths
    trained = settings.trainable * nparameters
    kind = ops.where((ranks > 1.0) & (nparameters > 0.0), settings.compression.kind, NONE)
    held, sent = widths.gradient, widths.reduce
    plain = plain_payload(widths.reduce * settings.trainable * nparameters)
    narrow = narrow_payload(trained, sent, NARROW_BYTES)
    quantised = quantised_payload(trained, held, QUANTISED_BITS, QUANTISED_BLOCK, SCALE_BYTES, ranks)
    largest = top_k_payload(trained, held, settings.compression.density, sent, INDEX_BYTES, ranks)
    low_rank = power_sgd_payload(trained, factors, held, sent)
    wide = _either(ops.equal(kind, NARROW), narrow, plain)
    coded = _either(ops.equal(kind, POWER_SGD), low_rank, _either(ops.equal(kind, TOP_K), largest, quantised))
    return _either(kind > NARROW, coded, wide)


def residual_bytes(nparameters: Number, ranks: Number, settings: Settings) -> Number:
    """Of the gradients that were not sent, which error feedback keeps until the next step [bytes].

    References
    ----------
    [lin2018]_ section 3, [vogels2019]_ algorithm 2
    """
    fed_back = (ranks > 1.0) & (settings.compression.kind > QUANTISED)
    return ops.where(fed_back, settings.widths.gradient * settings.trainable * nparameters, 0.0)
