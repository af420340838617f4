r"""Layers with a state in place of keys and values: linear attention and state spaces.

A head of such a layer has a state of :math:`N \times P` numbers, which every token decays, adds to and reads. In training the
sequence is cut in chunks of :math:`C` tokens: inside a chunk scores of :math:`C \times C` are made as attention makes them, from
chunk to chunk the state is passed on [dao2024]_ section 6, [yang2025]_ section 3. Work and memory grow linearly with a sequence.

What a kind of layer projects, keeps and multiplies is a row of `costmodel.description.recurrences`; here is what follows from
it, for every kind alike, and multiplied by the share of the layers that are of the kind, 0 in a model without.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas import compute
from costmodel.formulas.quantities import DeviceNumbers, ModelNumbers, Number, PlanNumbers, Settings, Software

BACKWARD = 3.0
"""FLOP and bytes of a scan's backward pass over its forward's: two products for one, and the states of all chunks made again
(state-spaces/mamba mamba_ssm/ops/triton/ssd_combined.py, ``_mamba_chunk_scan_combined_bwd``; fla-org/flash-linear-attention
fla/ops/gated_delta_rule/chunk.py, ``chunk_gated_delta_rule_bwd``)."""


def state_flop(heads: Number, rows: Number, columns: Number, each: Number) -> Number:
    r"""FLOP of a layer's states for one token, forward, token by token: :math:`f H N P`.

    Parameters
    ----------
    heads : :math:`H`
    rows, columns : of a head's state :math:`N, P`
    each : :math:`f`, 7 of a state space, 8 of a delta rule

    References
    ----------
    NVIDIA/Megatron-LM megatron/training/training.py, ``mamba_layer_flops``; four products of a delta rule

    Examples
    --------
    >>> state_flop(2.0, 16.0, 8.0, 7.0)
    1792.0
    """
    return each * heads * rows * columns


def chunked_flop(
    key_channels: Number, value_channels: Number, states: Number, chunk: Number, delta: Number, heads: Number,
) -> Number:  # fmt: skip
    r"""FLOP of a chunked scan for one token, forward.

    .. math:: 2 C (k + v) + 2 S + \tfrac{2}{3} \delta H C^2

    Parameters
    ----------
    key_channels : of all products of a chunk with itself whose inner width is the state's :math:`k`
    value_channels : of all those that give as many channels as values have :math:`v`
    states : elements of all products with states, :math:`H N P` each :math:`S`
    chunk : :math:`C` [tokens]
    delta : 1 where a triangular system of a chunk is solved :math:`\delta`
    heads : :math:`H`

    References
    ----------
    [dao2024]_ section 6.3, [yang2025]_ equation 8

    Examples
    --------
    A head of a state of 4 x 8 in chunks of 2: scores, values, and two products with the state.

    >>> chunked_flop(4.0, 8.0, 2.0 * 4.0 * 8.0, 2.0, 0.0, 1.0)
    176.0
    """
    return 2.0 * chunk * (key_channels + value_channels) + 2.0 * states + 2.0 / 3.0 * delta * heads * chunk * chunk


def whole_of_layer(model: ModelNumbers) -> Number:
    """Parameters of one such layer that every tensor rank holds."""
    return model.recurrent.whole * model.hidden + model.recurrent.whole_vectors


def split_of_layer(model: ModelNumbers) -> Number:
    """Parameters of one such layer that tensor ranks split: projections, convolution, what a head has for itself."""
    layer = model.recurrent
    projections = (layer.inputs + layer.outputs) * model.hidden + layer.inner
    return projections + layer.convolved + layer.vectors


def parameters_of_rank(model: ModelNumbers, tensor: Number) -> Number:
    """Parameters of an average layer's state space or linear attention on one rank; 0 without any.

    Parameters
    ----------
    tensor : ranks that split its matrices
    """
    return model.recurrent.share * (split_of_layer(model) / tensor + whole_of_layer(model))


def matrices(model: ModelNumbers) -> Number:
    """Weights of an average layer's state space or linear attention that multiply one token, a convolution's with them."""
    layer = model.recurrent
    return layer.share * ((layer.inputs + layer.outputs + layer.whole) * model.hidden + layer.inner + layer.convolved)


def flop(model: ModelNumbers) -> Number:
    """FLOP of an average layer's states for one token, forward."""
    return model.recurrent.share * model.recurrent.state_flop


def kept(model: ModelNumbers, settings: Settings) -> Number:
    """Bytes that an average layer's state space or linear attention saves for one token, divided over tensor ranks."""
    return model.recurrent.share * model.recurrent.kept * settings.widths.activation


def work(
    model: ModelNumbers, tokens: Number, settings: Settings, plan: PlanNumbers, software: Software, device: DeviceNumbers,
) -> tuple[Number, Number, Number, Number]:  # fmt: skip
    r"""Time of an average layer's projections one way, of its scan forward and backward, and of what moves between them [s].

    .. math:: \frac{2 n w}{t R}, \quad \frac{n}{t} \max\left(\frac{F}{\eta R_{16}}, \frac{M}{B}\right)

    Each projection is as fast as a large product; the scan is bound by its products or by the states that its kernels pass
    through memory.

    Parameters
    ----------
    tokens : of a micro-batch on this rank

    Assumptions
    -----------
    Projections split over tensor ranks lose nothing to narrower products.
    """
    layer, traits = model.recurrent, software.compute
    of_rank = layer.share * tokens / plan.tensor
    rate = compute.product_rate(traits.gemm_efficiency_scale, device)
    base = compute.base_product_rate(traits.gemm_efficiency_scale, device)
    weights = (layer.inputs + layer.outputs) * model.hidden + layer.inner
    projections = 2.0 * of_rank * weights / rate + 2.0 * layer.share * tokens * layer.whole * model.hidden / rate
    each = ops.maximum(layer.scan_flop / (traits.scan_efficiency * base), layer.scan_bytes / device.memory_bandwidth)
    moved = of_rank * layer.moved * settings.widths.activation * traits.elementwise_traffic / device.memory_bandwidth
    return projections, of_rank * each, BACKWARD * of_rank * each, moved
