r"""Parameter counts of a decoder: exact, per layer, in total, and on one of the ranks that split its matrices.

Matrices are split over the tensor ranks with the biases of those that are split along their rows. Norms, routers, biases of
what is summed over the ranks, down-projections of latent attention and learned positions lie whole on each, and of keys and
values no rank holds less than one head [shoeybi2019]_ section 3, NVIDIA/Megatron-LM megatron/core/transformer.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import ModelNumbers, Number
from costmodel.formulas.transformer import recurrent

ARGUMENTS = {"tensor": "ranks that split its matrices"}
"""What arguments mean in all formulas here that say nothing else of them."""


def attention_parameters(model: ModelNumbers) -> Number:
    r"""Parameters of the attention of one layer, biases, query/key norms and sinks included.

    .. math:: h (a d + 2 g d) + a d_v h \quad\text{or, latent,}\quad h q + q a d + h (c + r) + c\,a (d - r + d_v) + a d_v h

    References
    ----------
    [ainslie2023]_ (grouped queries), [deepseek2024v2]_ section 2.1 (latent attention)
    """
    return attention_split(model) + key_parameters(model) + attention_whole(model)


def attention_whole(model: ModelNumbers) -> Number:
    """Parameters of one layer's attention that every tensor rank holds: norms, down-projections, what is added to a sum."""
    attention = model.attention
    queries = attention.query_latent * (model.hidden + model.norm_vectors)
    compressed = model.hidden * (attention.kv_latent + attention.rope_head_dim) + attention.kv_latent * model.norm_vectors
    bias = attention.bias * (attention.query_latent + attention.kv_latent + attention.rope_head_dim)
    latent = ops.where(attention.latent > 0.0, queries + compressed + bias, 0.0)
    norms = attention.qk_norm_channels * model.norm_vectors
    return latent + attention.output_bias * model.hidden + index_parameters(model) + norms


def key_parameters(model: ModelNumbers) -> Number:
    """Parameters of one layer that project to keys and values head by head, biases included."""
    attention = model.attention
    plain = (1.0 + attention.value_rows) * attention.kv_heads * attention.head_dim * (model.hidden + attention.bias)
    return ops.where(attention.latent > 0.0, 0.0, plain)


def key_holders(model: ModelNumbers, tensor: Number) -> Number:
    """Ranks that keys and values are split over: no rank holds less than one head.

    Parameters
    ----------
    tensor : ranks that split matrices
    """
    return ops.minimum(tensor, model.attention.split_kv_heads)


def attention_split(model: ModelNumbers) -> Number:
    """Parameters of one layer's attention that tensor ranks split evenly: queries, what expands latents, the output, sinks."""
    attention = model.attention
    queries = attention.heads * attention.head_dim
    source = ops.where(attention.query_latent > 0.0, attention.query_latent, model.hidden)
    expanded = attention.kv_latent * attention.heads * (attention.head_dim - attention.rope_head_dim + attention.value_head_dim)
    projected = ops.where(attention.latent > 0.0, source * queries + expanded, (model.hidden + attention.bias) * queries)
    output = (1.0 + attention.gate) * attention.heads * attention.value_head_dim * model.hidden
    return projected + output + attention.sinks * attention.heads


def attention_of_rank(model: ModelNumbers, tensor: Number) -> Number:
    """Parameters of one layer's attention on one rank.

    Examples
    --------
    >>> from costmodel import load_model
    >>> gemma = load_model("gemma3-4b").numbers()
    >>> int(attention_of_rank(gemma, 4.0)), int(attention_of_rank(gemma, 8.0))  # four heads of keys and values
    (3932672, 2621952)
    """
    keys = key_parameters(model) / key_holders(model, tensor)
    return attention_split(model) / tensor + keys + attention_whole(model)


def index_parameters(model: ModelNumbers) -> Number:
    r"""Parameters of one layer's indexer of sparse attention: queries, one key with its norm, a weight for each head.

    .. math:: q\, a_I d_I + h d_I + 2 d_I + h a_I

    References
    ----------
    DeepSeek-V3.2-Exp technical report (2025), section 2; huggingface/transformers v5.23
    ``models/deepseek_v32/modeling_deepseek_v32.py``
    """
    queries = model.attention.query_latent * model.attention.index_heads * model.attention.index_head_dim
    return queries + model.attention.index_head_dim * (model.hidden + 2.0) + model.hidden * model.attention.index_heads


def mlp_parameters(model: ModelNumbers, width: Number) -> Number:
    """Parameters of a (gated) MLP of the given width, biases included.

    Parameters
    ----------
    width : inner width [channels]
    """
    matrices = (2.0 + model.mlp.gated) * model.hidden * width
    return matrices + model.mlp.bias * ((1.0 + model.mlp.gated) * width + model.hidden)


def mlp_of_rank(model: ModelNumbers, width: Number, tensor: Number) -> Number:
    """Parameters of a (gated) MLP of the given width on one rank, whose output's bias is added to the sum over all.

    Parameters
    ----------
    width : inner width of the whole [channels]
    """
    whole = model.mlp.bias * model.hidden
    return (mlp_parameters(model, width) - whole) / tensor + whole


def expert_parameters(model: ModelNumbers) -> Number:
    """Parameters of all routed experts of one layer: what expert parallelism splits."""
    return model.experts.number * mlp_parameters(model, model.experts.width)


def norm_parameters(model: ModelNumbers) -> Number:
    """Parameters of the norms of hidden width in one layer, and of what makes their scales of a condition."""
    return model.norms * model.norm_vectors * model.hidden + model.modulation * model.hidden * (model.hidden + 1.0)


def mixer_of_rank(model: ModelNumbers, tensor: Number) -> Number:
    """Parameters on one rank of what brings an average layer's tokens together: attention, or a state; and of another stream."""
    others = model.stream_matrices * model.hidden * (model.hidden + 1.0) / tensor
    return model.attention.share * attention_of_rank(model, tensor) + recurrent.parameters_of_rank(model, tensor) + others


def dense_layer_parameters(model: ModelNumbers) -> Number:
    """Parameters of one layer with a dense MLP."""
    return mixer_of_rank(model, 1.0) + model.mlp.share * mlp_parameters(model, model.mlp.width) + norm_parameters(model)


def dense_layer_of_rank(model: ModelNumbers, tensor: Number) -> Number:
    """Parameters of one layer with a dense MLP on one rank."""
    mlp = model.mlp.share * mlp_of_rank(model, model.mlp.width, tensor)
    return mixer_of_rank(model, tensor) + mlp + norm_parameters(model)


def router_parameters(model: ModelNumbers) -> Number:
    """Parameters of one layer's router and of the gate of its shared experts."""
    return (model.experts.number + model.experts.shared_gate) * model.hidden


def expert_layer_shared_parameters(model: ModelNumbers) -> Number:
    """Parameters of one mixture-of-experts layer outside its routed experts: attention, norms, router, shared experts."""
    shared = ops.where(model.experts.shared_width > 0.0, mlp_parameters(model, model.experts.shared_width), 0.0)
    return mixer_of_rank(model, 1.0) + shared + norm_parameters(model) + router_parameters(model)


def expert_layer_shared_of_rank(model: ModelNumbers, tensor: Number) -> Number:
    """Parameters of one mixture-of-experts layer on one rank outside its routed experts."""
    shared = ops.where(model.experts.shared_width > 0.0, mlp_of_rank(model, model.experts.shared_width, tensor), 0.0)
    return mixer_of_rank(model, tensor) + shared + norm_parameters(model) + router_parameters(model)


def embedding_channels(model: ModelNumbers) -> Number:
    """Channels of a token's embedding before it is projected to the hidden state, where it is."""
    width = model.vocabulary.embedding_width
    return ops.where(width > 0.0, width, model.hidden)


def embedding_parameters(model: ModelNumbers) -> Number:
    """Parameters of the input embedding (or projection of patches), learned positions and embedding norm."""
    return embedding_of_rank(model, 1.0)


def embedding_of_rank(model: ModelNumbers, tensor: Number) -> Number:
    """Parameters of the input embedding on one rank, which has its part of the table and all that is behind it.

    Parameters
    ----------
    tensor : ranks that split the table
    """
    vocabulary = model.vocabulary
    tokens = vocabulary.size * embedding_channels(model)
    table = ops.where(vocabulary.patch_values > 0.0, vocabulary.patch_values * model.hidden, tokens)
    widened = vocabulary.embedding_width * model.hidden
    table = table + vocabulary.size * vocabulary.layer_channels
    return table / tensor + widened + (vocabulary.positions + vocabulary.norm * model.norm_vectors) * model.hidden


def head_of_rank(model: ModelNumbers, tensor: Number) -> Number:
    """Parameters of the output projection on one rank, which has its part of the table and all that stands before it.

    Parameters
    ----------
    tensor : ranks that split the table
    """
    vocabulary = model.vocabulary
    table = vocabulary.outputs * ((1.0 - vocabulary.tied) * embedding_channels(model) + vocabulary.head_bias)
    transform = vocabulary.head_transform * (model.hidden + 1.0 + model.norm_vectors) * model.hidden
    narrowed = vocabulary.embedding_width * model.hidden
    return table / tensor + transform + narrowed + model.last_norm * model.norm_vectors * model.hidden


def head_parameters(model: ModelNumbers) -> Number:
    """Parameters of the output projection where it is its own, its bias, what stands before it, and the last norm."""
    return head_of_rank(model, 1.0)


def prediction_of_rank(model: ModelNumbers, tensor: Number) -> Number:
    """Parameters of the multi-token-prediction modules on one rank outside their routed experts.

    Each is a projection of two hidden states, three norms and one layer.

    Parameters
    ----------
    tensor : ranks that split their matrices

    References
    ----------
    [deepseek2024v3]_ section 2.2 (embedding and head are shared)
    """
    joined = 2.0 * model.hidden * model.hidden / tensor + 3.0 * model.norm_vectors * model.hidden
    layer = ops.where(model.experts.layers > 0.0, expert_layer_shared_of_rank(model, tensor), dense_layer_of_rank(model, tensor))
    return model.prediction_layers * (joined + layer)


def total_parameters(model: ModelNumbers) -> Number:
    """Parameters of the whole model, multi-token-prediction modules left out (as published counts do)."""
    dense = (model.layers - model.experts.layers) * dense_layer_parameters(model)
    experts = model.experts.layers * (expert_layer_shared_parameters(model) + expert_parameters(model))
    return dense + experts + embedding_parameters(model) + head_parameters(model)


def active_parameters(model: ModelNumbers) -> Number:
    """Parameters that work on one token: routed experts counted `experts_per_token` times."""
    idle = (model.experts.number - model.experts.per_token) * mlp_parameters(model, model.experts.width)
    return total_parameters(model) - model.experts.layers * idle


def of_kind(model: ModelNumbers, mixed: Number) -> ModelNumbers:
    """The model with all layers alike, `ModelNumbers`: with a dense MLP, or with a mixture of experts.

    Parameters
    ----------
    mixed : 1 for layers with a mixture of experts, 0 for those without
    """
    return model._replace(experts=model.experts._replace(layers=mixed * model.layers, start=0.0, step=1.0))
