r"""FLOP of a decoder per token: what MFU divides by."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import ModelNumbers, Number, PlanNumbers, Settings
from costmodel.formulas.transformer import lengths, recurrent
from costmodel.formulas.transformer.repetition import experts_again

ARGUMENTS = {
    "seq_len": "of the sequence that an average token is part of [tokens]", "power": "as `lengths.position_power` has it",
    "causal": "1 counts keys below the diagonal only",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""


def attended_keys(seq_len: Number, window: Number, causal: Number, power: Number = 2.0) -> Number:
    r"""Keys that an average query of one layer meets.

    .. math::
        k &= \frac{s}{2} \left(1 - \left(1 - \frac{w}{L}\right)^{\kappa}\right), \quad L = \frac{\kappa s}{2}
        \quad \text{(causal)} \\
        &2 k - w \left(1 - \frac{w}{L}\right)^{\kappa - 1} \quad \text{(in full)}

    Of sequences that are all as long :math:`\kappa = 2`, which is :math:`w - w^2 / 2 s` below the diagonal and :math:`\min(w, s)`
    in full. Counted in full, a query meets the keys that a causal mask hides, too: all of the sequence, or as many as the window
    holds. What lies outside a window no kernel multiplies, and it counts in neither way.

    Where samples of unlike lengths have :math:`P(l > x) = (1 - x/L)^{(L - \mu) / \mu}`, a query lies beyond :math:`p` others with
    :math:`P(l > p) / \mu`, and meets :math:`\min(p, w)` of them. Both sums are the above with :math:`\kappa = 1 + L / \mu`.

    Parameters
    ----------
    seq_len : of the sequence, or of the sample, that an average token is part of :math:`s` [tokens]
    window : :math:`w` [tokens]
    power : :math:`\kappa`, as `lengths.position_power` has it
    """
    alike = ops.minimum(window, seq_len)
    alike = ops.where(causal > 0.0, alike - alike * alike / (2.0 * seq_len), alike)
    longest = 0.5 * power * seq_len
    seen = ops.minimum(window, longest)
    masked = 0.5 * seq_len * lengths.lacking(seen / longest, power)
    further = 1.0 - lengths.lacking(seen / longest, power - 1.0)
    unlike = ops.where(causal > 0.0, masked, 2.0 * masked - seen * further)
    return ops.where(ops.equal(power, 2.0), alike, unlike)


def mean_attended_keys(model: ModelNumbers, seq_len: Number, causal: Number, power: Number = 2.0) -> Number:
    """Keys an average query meets, averaged over full and windowed layers.

    Parameters
    ----------
    causal : 1 counts keys below the diagonal (and in the window) only
    """
    share = model.attention.windowed_layers / model.layers
    below = causal * model.attention.causal
    met = ops.where(below > 0.0, model.attention.met, model.attention.met_whole)
    full = met * all_keys(seq_len, below)
    seen = attended_keys(seq_len, model.attention.window, below, power)  # an encoder's window has a half on either side
    return full + share * (seen - full)


def all_keys(seq_len: Number, causal: Number) -> Number:
    """Keys that an average query of one layer without a window meets.

    Parameters
    ----------
    seq_len : of the sequence, or of the sample, that an average token is part of [tokens]
    """
    return ops.where(causal > 0.0, 0.5, 1.0) * seq_len


def attention_core_flop(model: ModelNumbers, seq_len: Number, causal: Number, power: Number = 2.0) -> Number:
    """FLOP of one layer's scores and weighted values, forward, per token; an indexer's scores with every key included."""
    attention = model.attention
    width = attention.heads * (attention.head_dim + attention.value_head_dim)
    core = 2.0 * width * mean_attended_keys(model, seq_len, causal, power)
    keys = all_keys(seq_len, causal * model.attention.causal)
    return core + 2.0 * model.attention.index_heads * model.attention.index_head_dim * keys


def core_flop(model: ModelNumbers, seq_len: Number, causal: Number, power: Number = 2.0) -> Number:
    """FLOP of an average layer between its projections, forward, per token: of attention's core, or of states."""
    return model.attention.share * attention_core_flop(model, seq_len, causal, power) + recurrent.flop(model)


def mlp_matrices(model: ModelNumbers, width: Number) -> Number:
    """Weights of an MLP.

    Parameters
    ----------
    width : inner one [channels]
    """
    return (2.0 + model.mlp.gated) * model.hidden * width


def routed_matrices(model: ModelNumbers) -> Number:
    """Weights of the router and of the routed experts that a token visits."""
    return model.experts.per_token * mlp_matrices(model, model.experts.width) + model.hidden * model.experts.number


def latent_matrices(model: ModelNumbers) -> Number:
    """Weights that make queries, keys and values where attention is latent."""
    attention = model.attention
    inputs = ops.where(attention.query_latent > 0.0, attention.query_latent, model.hidden)
    keys = attention.kv_latent * (attention.head_dim - attention.rope_head_dim + attention.value_head_dim)
    return attention.heads * (inputs * attention.head_dim + keys)


def attention_matrices(model: ModelNumbers) -> Number:
    """Weights of one layer's attention projections: what multiplies each token."""
    attention = model.attention
    queries = attention.heads * attention.head_dim
    plain = model.hidden * (queries + (1.0 + attention.value_rows) * attention.kv_heads * attention.head_dim)
    compressed = model.hidden * (attention.query_latent + attention.kv_latent + attention.rope_head_dim)
    latent = compressed + latent_matrices(model)
    index = attention.query_latent * model.attention.index_heads * model.attention.index_head_dim
    index = index + model.hidden * (model.attention.index_head_dim + model.attention.index_heads)
    output = (1.0 + attention.gate) * attention.heads * attention.value_head_dim * model.hidden
    return ops.where(attention.latent > 0.0, latent, plain) + output + index


def mixer_matrices(model: ModelNumbers) -> Number:
    """Weights of an average layer's attention, or of its state's projections, that multiply each token."""
    return model.attention.share * attention_matrices(model) + recurrent.matrices(model)


def layer_matrices(model: ModelNumbers) -> Number:
    """Weights that multiply one token in an average layer, experts counted as often as a token visits them."""
    experts = routed_matrices(model) + mlp_matrices(model, model.experts.shared_width)
    dense = model.mlp.share * mlp_matrices(model, model.mlp.width)
    share = model.experts.layers / model.layers
    return mixer_matrices(model) + dense + share * (experts - dense)


def module_matrices(model: ModelNumbers, plan: PlanNumbers) -> Number:
    """Weights of an average layer that meet a token once more in the backward pass, because their modules are recomputed."""
    share = model.experts.layers / model.layers
    again = experts_again(plan)
    sparse = again.routed * routed_matrices(model) + again.shared * mlp_matrices(model, model.experts.shared_width)
    dense = plan.recompute_mlp * model.mlp.share * mlp_matrices(model, model.mlp.width)
    from_latent = ops.where(model.attention.latent > 0.0, model.attention.share * latent_matrices(model), 0.0)
    modules = plan.recompute_latent_projections * from_latent + dense + share * (sparse - dense)
    return modules + plan.recompute_operators * (every_second_matrix(model) - modules)


def last_product(model: ModelNumbers) -> Number:
    """Share of an MLP's products that its last one is, which ends a layer.

    No gradient reads what it makes, and the next layer keeps its own input.
    """
    return 1.0 / (2.0 + model.mlp.gated)


def leaves_last_product(model: ModelNumbers, settings: Settings) -> Number:
    """1 where a layer that is made again lacks its `last_product`, else 0.

    A compiler that sees all of the layer leaves out what nobody reads; PyTorch's checkpoints stop at the last tensor that the
    backward pass reads, but where they are reentrant. A dropout, a norm or an adapter after the product reads more.

    Assumptions
    -----------
    Norms lie before the blocks where a layer has two.

    References
    ----------
    jax-ml/jax@1082251 jax/_src/ad_checkpoint.py (``remat_dce``); pytorch/pytorch v2.13.0 torch/utils/checkpoint.py
    (``set_checkpoint_early_stop``)
    """
    framework, adapter = settings.framework, settings.adapter
    stops = framework.early_stop * (1.0 - framework.reentrant) * (1.0 - ops.where(adapter.rank > 0.0, adapter.down, 0.0))
    stops = ops.where((model.dropout > 0.0) | (model.norms > 2.0), 0.0, stops)
    return ops.maximum(framework.compiled, stops)


def last_matrix(model: ModelNumbers) -> Number:
    """Weights of an average layer's last product, `last_product`; experts' outputs are read, by the gradient of their weights."""
    dense = 1.0 - model.experts.layers / model.layers
    return dense * model.mlp.share * last_product(model) * mlp_matrices(model, model.mlp.width)


def repeated_shares(model: ModelNumbers) -> tuple[Number, Number]:
    """Shares of the weights of attention's projections, and of an MLP's, whose products every second recomputation repeats.

    Of queries, keys, values, output and then the MLP's products the first, third, fifth and seventh are kept; what comes
    last in a layer nobody needs again.

    References
    ----------
    pytorch/torchtitan@b5bcd76 torchtitan/models/llama3/infra/parallelize.py (``_apply_ac_to_transformer_block``)
    """
    attention = model.attention
    queries, output = attention.heads * attention.head_dim, attention.heads * attention.value_head_dim
    keys = attention.kv_heads * attention.head_dim
    values = attention.value_rows * keys
    plain, gated = (keys + output) / (queries + keys + values + output), model.mlp.gated
    latent = attention.latent > 0.0
    return ops.where(latent, 0.5, plain), ops.where(latent, 1.0 / (2.0 + gated), gated / 3.0)


def every_second_matrix(model: ModelNumbers) -> Number:
    """Weights of an average layer that meet a token once more where every second product is recomputed."""
    projections, inner = repeated_shares(model)
    mixer = mixer_matrices(model)
    return projections * mixer + inner * (layer_matrices(model) - mixer)


def forward_flop_per_token(model: ModelNumbers, seq_len: Number, causal: Number, power: Number = 2.0) -> Number:
    r"""FLOP of one forward pass per token: two per weight met, and the attention core.

    Parameters
    ----------
    causal : 1 counts keys below the diagonal only, 0 all (Megatron-LM's convention)
    """
    layers = model.layers + model.prediction_layers
    body = layers * model.layer_tokens * (2.0 * layer_matrices(model) + core_flop(model, seq_len, causal, power))
    joined = model.prediction_layers * 4.0 * model.hidden * model.hidden
    return body + joined + 2.0 * (1.0 + model.prediction_layers) * model.hidden * model.vocabulary.outputs


def model_flop_per_token(model: ModelNumbers, seq_len: Number, causal: Number, power: Number = 2.0) -> Number:
    r"""FLOP of forward and backward per token, nothing recomputed; backward costs twice the forward.

    For a dense decoder with :math:`4h` MLP and ``causal=0`` this is

    .. math:: 72 L h^2 \left(1 + \frac{s}{6h} + \frac{V}{12 h L}\right)

    References
    ----------
    [korthikanti2022]_ equation 7, [narayanan2021]_ equation 3
    """
    return 3.0 * forward_flop_per_token(model, seq_len, causal, power)
