"""Weight matrices of a decoder on one rank, and the factors that PowerSGD makes of their gradients.

Matrices are those of `costmodel.description.tensors`: a model with a gated MLP has queries, keys, values, gate and up
projection each of their own, any other has queries, keys and values in one. What tensor ranks don't split (routers,
latent projections, positions) counts as if each of them had its share, as in `costmodel.formulas.transformer.parameters`.
"""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas.network.compression import power_sgd_factors
from costmodel.formulas.quantities import Factors
from costmodel.formulas.transformer.parameters import mlp_parameters


def _sum(one, other):
    """Of matrices of both kinds."""
    return Factors(
        one.left + other.left, one.right + other.right, one.covered + other.covered, one.matrices + other.matrices,
        one.flop + other.flop,
    )  # fmt: skip


def _times(count, one):
    """Of so many of these matrices."""
    return Factors(count * one.left, count * one.right, count * one.covered, count * one.matrices, count * one.flop)


def attention_factors(model, plan, rank):
    """Of the projections of one layer's attention, `Factors`.

    Parameters
    ----------
    model, plan : `Model`, `Plan`
    rank : of PowerSGD
    """
    latent = model.latent > 0.0
    separate = (model.gated > 0.0) | latent
    queries = model.heads * model.head_dim
    keys = model.kv_heads * model.head_dim
    expanded = model.heads * (model.head_dim - model.rope_head_dim + model.value_head_dim)
    inputs = ops.where(model.query_latent > 0.0, model.query_latent, model.hidden)
    first = power_sgd_factors(
        1.0, ops.where(separate, queries, queries + 2.0 * keys) / plan.tensor, ops.where(latent, inputs, model.hidden), rank
    )
    second = power_sgd_factors(
        ops.where(latent, 1.0, 2.0 * model.gated), ops.where(latent, expanded, keys) / plan.tensor,
        ops.where(latent, model.kv_latent, model.hidden), rank,
    )  # fmt: skip
    down = power_sgd_factors(model.latent / plan.tensor, model.query_latent, model.hidden, rank)
    compressed = model.kv_latent + model.rope_head_dim
    shared = power_sgd_factors(model.latent / plan.tensor, compressed, model.hidden, rank)
    out = power_sgd_factors(1.0, model.hidden, model.heads * model.value_head_dim / plan.tensor, rank)
    return _sum(_sum(_sum(first, second), _sum(down, shared)), out)


def mlp_factors(model, width, rank):
    """Of one MLP, `Factors`.

    Parameters
    ----------
    model : `Model`
    width : inner width on this rank [channels]; 0 where there is none
    rank : of PowerSGD
    """
    up = power_sgd_factors(1.0 + model.gated, width, model.hidden, rank)
    return _sum(up, power_sgd_factors(1.0, model.hidden, width, rank))


def expert_factors(model, plan, routed, rank):
    """Of a rank's routed experts, `Factors`.

    Parameters
    ----------
    model, plan : `Model`, `Plan`
    routed : their parameters on this rank
    rank : of PowerSGD
    """
    parts = routed * plan.expert_tensor / ops.maximum(mlp_parameters(model, model.expert_feed_forward), 1.0)
    return _times(parts, mlp_factors(model, model.expert_feed_forward / plan.expert_tensor, rank))


def stage_factors(model, plan, layers, first, last, rank):
    """Of the weight matrices of a stage on one rank outside the routed experts, `Factors`.

    Parameters
    ----------
    model, plan : `Model`, `Plan`
    layers : of the stage
    first, last : 1 where the stage holds the embedding, the head; tied embeddings live on both
    rank : of PowerSGD
    """
    deep = last * model.prediction_layers
    sparse = model.expert_layers / model.layers * layers + deep * ops.where(model.expert_layers > 0.0, 1.0, 0.0)
    dense = layers + deep - sparse
    attention = _times(layers + deep, attention_factors(model, plan, rank))
    body = _times(dense, mlp_factors(model, model.feed_forward / plan.tensor, rank))
    shared = _times(sparse, mlp_factors(model, model.shared_feed_forward / plan.tensor, rank))
    router = power_sgd_factors(sparse / plan.tensor, model.experts, model.hidden, rank)
    tables = first + last * (1.0 - model.tied * first)
    vocabulary = power_sgd_factors(tables, model.vocabulary / plan.tensor, model.hidden, rank)
    positions = power_sgd_factors(first / plan.tensor, model.positions, model.hidden, rank)
    joined = power_sgd_factors(deep / plan.tensor, model.hidden, 2.0 * model.hidden, rank)
    return _sum(_sum(_sum(attention, body), _sum(shared, router)), _sum(_sum(vocabulary, positions), joined))
