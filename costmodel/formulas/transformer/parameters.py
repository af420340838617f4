r"""Parameter counts of a decoder: exact, per layer and in total."""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas.quantities import Model


def attention_parameters(model):
    r"""Parameters of the attention of one layer, biases, query/key norms and sinks included.

    .. math:: h (a d + 2 g d) + a d_v h \quad\text{or, latent,}\quad h q + q a d + h (c + r) + c\,a (d - r + d_v) + a d_v h

    Parameters
    ----------
    model : `Model`

    References
    ----------
    [ainslie2023]_ (grouped queries), [deepseek2024v2]_ section 2.1 (latent attention)
    """
    queries = model.heads * model.head_dim
    values = model.heads * model.value_head_dim
    plain = model.hidden * (queries + 2.0 * model.kv_heads * model.head_dim)
    plain_bias = model.attention_bias * (queries + 2.0 * model.kv_heads * model.head_dim)
    down = model.query_latent * (model.hidden + model.norm_vectors)
    query = ops.where(model.query_latent > 0.0, down + model.query_latent * queries, model.hidden * queries)
    compressed = model.hidden * (model.kv_latent + model.rope_head_dim) + model.kv_latent * model.norm_vectors
    expanded = model.kv_latent * model.heads * (model.head_dim - model.rope_head_dim + model.value_head_dim)
    latent_bias = model.attention_bias * (model.query_latent + model.kv_latent + model.rope_head_dim)
    projections = ops.where(model.latent > 0.0, query + compressed + expanded + latent_bias, plain + plain_bias)
    output = values * model.hidden + model.output_bias * model.hidden
    return projections + output + model.qk_norm_channels * model.norm_vectors + model.sinks * model.heads


def mlp_parameters(model, width):
    """Parameters of a (gated) MLP of the given width, biases included.

    Parameters
    ----------
    model : `Model`
    width : inner width [channels]
    """
    matrices = (2.0 + model.gated) * model.hidden * width
    return matrices + model.feed_forward_bias * ((1.0 + model.gated) * width + model.hidden)


def expert_parameters(model):
    """Parameters of all routed experts of one layer: what expert parallelism splits.

    Parameters
    ----------
    model : `Model`
    """
    return model.experts * mlp_parameters(model, model.expert_feed_forward)


def norm_parameters(model):
    """Parameters of the norms of hidden width in one layer.

    Parameters
    ----------
    model : `Model`
    """
    return model.norms * model.norm_vectors * model.hidden


def dense_layer_parameters(model):
    """Parameters of one layer with a dense MLP.

    Parameters
    ----------
    model : `Model`
    """
    return attention_parameters(model) + mlp_parameters(model, model.feed_forward) + norm_parameters(model)


def expert_layer_shared_parameters(model):
    """Parameters of one mixture-of-experts layer outside its routed experts: attention, norms, router, shared experts.

    Parameters
    ----------
    model : `Model`
    """
    shared = ops.where(model.shared_feed_forward > 0.0, mlp_parameters(model, model.shared_feed_forward), 0.0)
    return attention_parameters(model) + shared + norm_parameters(model) + model.experts * model.hidden


def embedding_parameters(model):
    """Parameters of the input embedding, learned positions and embedding norm.

    Parameters
    ----------
    model : `Model`
    """
    table = (model.vocabulary + model.positions) * model.hidden
    return table + model.embedding_norm * model.norm_vectors * model.hidden


def head_parameters(model):
    """Parameters of the output projection where it is its own, and of the last norm.

    Parameters
    ----------
    model : `Model`
    """
    return (1.0 - model.tied) * model.vocabulary * model.hidden + model.norm_vectors * model.hidden


def prediction_parameters(model):
    """Parameters of the multi-token-prediction modules: a projection of two hidden states, two norms, one layer each.

    Parameters
    ----------
    model : `Model`

    References
    ----------
    [deepseek2024v3]_ section 2.2 (embedding and head are shared)
    """
    joined = 2.0 * model.hidden * model.hidden + 3.0 * model.norm_vectors * model.hidden
    layer = ops.where(
        model.expert_layers > 0.0,
        expert_layer_shared_parameters(model) + expert_parameters(model),
        dense_layer_parameters(model),
    )
    return model.prediction_layers * (joined + layer)


def total_parameters(model):
    """Parameters of the whole model, multi-token-prediction modules left out (as published counts do).

    Parameters
    ----------
    model : `Model`
    """
    dense = (model.layers - model.expert_layers) * dense_layer_parameters(model)
    experts = model.expert_layers * (expert_layer_shared_parameters(model) + expert_parameters(model))
    return dense + experts + embedding_parameters(model) + head_parameters(model)


def active_parameters(model):
    """Parameters that work on one token: routed experts counted `experts_per_token` times.

    Parameters
    ----------
    model : `Model`
    """
    idle = (model.experts - model.experts_per_token) * mlp_parameters(model, model.expert_feed_forward)
    return total_parameters(model) - model.expert_layers * idle


def stage_model(model, before, layers):
    """The model with as large a share of expert layers as the layers of a stage have, `Model`.

    Dense layers come first, as in DeepSeek-V2 and its like.

    Parameters
    ----------
    model : `Model`
    before : layers on the stages before
    layers : of the stage
    """
    dense = ops.minimum(ops.maximum(model.layers - model.expert_layers - before, 0.0), layers)
    share = 1.0 - dense / ops.maximum(layers, 1.0)
    return Model(
        model.layers, model.hidden, model.heads, model.kv_heads, model.head_dim, model.value_head_dim,
        model.feed_forward, model.gated, share * model.layers, model.experts, model.experts_per_token,
        model.expert_feed_forward, model.shared_feed_forward, model.expert_load, model.latent, model.query_latent,
        model.kv_latent, model.rope_head_dim, model.window, model.windowed_layers, model.vocabulary, model.tied,
        model.positions, model.norm_vectors, model.norms, model.qk_norm_channels, model.embedding_norm,
        model.attention_bias, model.output_bias, model.feed_forward_bias, model.sinks, model.parallel_block,
        model.prediction_layers, model.dropout,
    )  # fmt: skip
