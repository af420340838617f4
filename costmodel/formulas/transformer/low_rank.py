"""Weight matrices of a decoder on one rank, and the factors that PowerSGD makes of their gradients.

Matrices are those of `costmodel.description.tensors`: a model with a gated MLP has queries, keys, values, gate and up
projection each of their own, any other has queries, keys and values in one. What tensor ranks don't split (routers,
latent projections, positions) counts as if each of them had its share, as in `costmodel.formulas.transformer.parameters`.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.network.compression import power_sgd_factors
from costmodel.formulas.quantities import LowRankSizes, ModelNumbers, Number, PlanNumbers
from costmodel.formulas.transformer.parameters import mlp_parameters

ARGUMENTS = {"rank": "of PowerSGD"}
"""What arguments mean in all formulas here that say nothing else of them."""


def _sum(one: LowRankSizes, other: LowRankSizes) -> LowRankSizes:
    """Of matrices of both kinds."""
    return LowRankSizes(
        one.left + other.left, one.right + other.right, one.covered + other.covered, one.matrices + other.matrices,
        one.flop + other.flop,
    )  # fmt: skip


def _times(count: Number, one: LowRankSizes) -> LowRankSizes:
    """Of so many of these matrices."""
    return LowRankSizes(count * one.left, count * one.right, count * one.covered, count * one.matrices, count * one.flop)


def attention_factors(model: ModelNumbers, plan: PlanNumbers, rank: Number) -> LowRankSizes:
    """Of the projections of one layer's attention, `LowRankSizes`."""
    attention = model.attention
    latent = attention.latent > 0.0
    separate = (model.mlp.gated > 0.0) | latent
    queries = attention.heads * attention.head_dim
    keys = attention.kv_heads * attention.head_dim
    expanded = attention.heads * (attention.head_dim - attention.rope_head_dim + attention.value_head_dim)
    inputs = ops.where(attention.query_latent > 0.0, attention.query_latent, model.hidden)
    first = power_sgd_factors(
        1.0, ops.where(separate, queries, queries + (1.0 + attention.value_rows) * keys) / plan.tensor,
        ops.where(latent, inputs, model.hidden), rank,
    )  # fmt: skip
    second = power_sgd_factors(
        ops.where(latent, 1.0, (1.0 + attention.value_rows) * model.mlp.gated), ops.where(latent, expanded, keys) / plan.tensor,
        ops.where(latent, attention.kv_latent, model.hidden), rank,
    )  # fmt: skip
    down = power_sgd_factors(attention.latent / plan.tensor, attention.query_latent, model.hidden, rank)
    compressed = attention.kv_latent + attention.rope_head_dim
    shared = power_sgd_factors(attention.latent / plan.tensor, compressed, model.hidden, rank)
    out = power_sgd_factors(1.0, model.hidden, attention.heads * attention.value_head_dim / plan.tensor, rank)
    return _sum(_sum(_sum(first, second), _sum(down, shared)), out)


def state_factors(model: ModelNumbers, plan: PlanNumbers, rank: Number) -> LowRankSizes:
    """Of the projections of one layer with a state, `LowRankSizes`."""
    first = power_sgd_factors(1.0, model.recurrent.inputs / plan.tensor, model.hidden, rank)
    return _sum(first, power_sgd_factors(1.0, model.hidden, model.recurrent.outputs / plan.tensor, rank))


def mlp_factors(model: ModelNumbers, width: Number, rank: Number) -> LowRankSizes:
    """Of one MLP, `LowRankSizes`.

    Parameters
    ----------
    width : inner width on this rank [channels]; 0 where there is none
    """
    up = power_sgd_factors(1.0 + model.mlp.gated, width, model.hidden, rank)
    return _sum(up, power_sgd_factors(1.0, model.hidden, width, rank))


def expert_factors(model: ModelNumbers, plan: PlanNumbers, routed: Number, rank: Number) -> LowRankSizes:
    """Of a rank's routed experts, `LowRankSizes`.

    Parameters
    ----------
    routed : their parameters on this rank
    """
    parts = routed * plan.expert_tensor / ops.maximum(mlp_parameters(model, model.experts.width), 1.0)
    return _times(parts, mlp_factors(model, model.experts.width / plan.expert_tensor, rank))


def stage_factors(
    model: ModelNumbers, plan: PlanNumbers, layers: Number, experts: Number, first: Number, last: Number, rank: Number,
) -> LowRankSizes:  # fmt: skip
    """Of the weight matrices of a stage on one rank outside the routed experts, `LowRankSizes`.

    Parameters
    ----------
    layers : of the stage
    experts : of these, those with a mixture of experts
    first, last : 1 where the stage holds the embedding, the head; tied embeddings live on both
    """
    deep = last * model.prediction_layers
    sparse = experts + deep * ops.where(model.experts.layers > 0.0, 1.0, 0.0)
    dense = layers + deep - sparse
    attention = _times((layers + deep) * model.attention.share, attention_factors(model, plan, rank))
    attention = _sum(attention, _times((layers + deep) * model.recurrent.share, state_factors(model, plan, rank)))
    body = _times(dense * model.mlp.share, mlp_factors(model, model.mlp.width / plan.tensor, rank))
    shared = _times(sparse, mlp_factors(model, model.experts.shared_width / plan.tensor, rank))
    router = power_sgd_factors(sparse / plan.tensor, model.experts.number, model.hidden, rank)
    tied = model.vocabulary.tied
    table = power_sgd_factors(ops.maximum(first, tied * last), model.vocabulary.size / plan.tensor, model.hidden, rank)
    head = power_sgd_factors(last * (1.0 - tied), model.vocabulary.outputs / plan.tensor, model.hidden, rank)
    vocabulary = _sum(table, head)
    positions = power_sgd_factors(first / plan.tensor, model.vocabulary.positions, model.hidden, rank)
    joined = power_sgd_factors(deep / plan.tensor, model.hidden, 2.0 * model.hidden, rank)
    return _sum(_sum(_sum(attention, body), _sum(shared, router)), _sum(_sum(vocabulary, positions), joined))
