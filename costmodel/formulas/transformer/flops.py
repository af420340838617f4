r"""FLOP of a decoder per token: what MFU divides by."""

from __future__ import annotations

from costmodel import ops


def attended_keys(seq_len, window, causal):
    r"""Keys that an average query of one layer meets.

    .. math:: \frac{s}{2} \;\text{(causal)}, \quad w - \frac{w^2}{2 s} \;\text{(causal, window } w < s)

    Parameters
    ----------
    seq_len : :math:`s` [tokens]
    window : :math:`w` [tokens]
    causal : 1 counts keys below the diagonal only
    """
    seen = ops.minimum(window, seq_len)
    masked = seen - seen * seen / (2.0 * seq_len)
    return ops.where(causal > 0.0, masked, seq_len)


def mean_attended_keys(model, seq_len, causal):
    """Keys an average query meets, averaged over full and windowed layers.

    Parameters
    ----------
    model : `Model`
    seq_len : [tokens]
    causal : 1 counts keys below the diagonal (and in the window) only
    """
    share = model.windowed_layers / model.layers
    full = attended_keys(seq_len, seq_len, causal)
    return full + share * (attended_keys(seq_len, model.window, causal) - full)


def attention_core_flop(model, seq_len, causal):
    """FLOP of one layer's scores and weighted values, forward, per token.

    Parameters
    ----------
    model : `Model`
    seq_len : [tokens]
    causal : 1 counts keys below the diagonal only
    """
    return 2.0 * model.heads * (model.head_dim + model.value_head_dim) * mean_attended_keys(model, seq_len, causal)


def attention_matrices(model):
    """Weights of one layer's attention projections: what multiplies each token.

    Parameters
    ----------
    model : `Model`
    """
    queries = model.heads * model.head_dim
    plain = model.hidden * (queries + 2.0 * model.kv_heads * model.head_dim)
    query = ops.where(model.query_latent > 0.0, model.query_latent * (model.hidden + queries), model.hidden * queries)
    expanded = model.kv_latent * model.heads * (model.head_dim - model.rope_head_dim + model.value_head_dim)
    latent = query + model.hidden * (model.kv_latent + model.rope_head_dim) + expanded
    return ops.where(model.latent > 0.0, latent, plain) + model.heads * model.value_head_dim * model.hidden


def layer_matrices(model):
    """Weights that multiply one token in an average layer, experts counted as often as a token visits them.

    Parameters
    ----------
    model : `Model`
    """
    width = model.experts_per_token * model.expert_feed_forward + model.shared_feed_forward
    experts = (2.0 + model.gated) * model.hidden * width + model.hidden * model.experts
    dense = (2.0 + model.gated) * model.hidden * model.feed_forward
    share = model.expert_layers / model.layers
    return attention_matrices(model) + dense + share * (experts - dense)


def forward_flop_per_token(model, seq_len, causal):
    r"""FLOP of one forward pass per token: two per weight met, and the attention core.

    Parameters
    ----------
    model : `Model`
    seq_len : [tokens]
    causal : 1 counts keys below the diagonal only, 0 all (Megatron-LM's convention)
    """
    layers = model.layers + model.prediction_layers
    body = layers * (2.0 * layer_matrices(model) + attention_core_flop(model, seq_len, causal))
    joined = model.prediction_layers * 4.0 * model.hidden * model.hidden
    return body + joined + 2.0 * (1.0 + model.prediction_layers) * model.hidden * model.vocabulary


def model_flop_per_token(model, seq_len, causal):
    r"""FLOP of forward and backward per token, nothing recomputed; backward costs twice the forward.

    For a dense decoder with :math:`4h` MLP and ``causal=0`` this is

    .. math:: 72 L h^2 \left(1 + \frac{s}{6h} + \frac{V}{12 h L}\right)

    Parameters
    ----------
    model : `Model`
    seq_len : [tokens]
    causal : 1 counts keys below the diagonal only

    References
    ----------
    [korthikanti2022]_ equation 7, [narayanan2021]_ equation 3
    """
    return 3.0 * forward_flop_per_token(model, seq_len, causal)
