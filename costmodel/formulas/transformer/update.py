r"""What an optimizer's kind adds to moving its state through memory once."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas import compute
from costmodel.formulas.quantities import DeviceNumbers, ModelNumbers, Number, PlanNumbers, Settings, Software
from costmodel.formulas.transformer import launches, parameters

NEWTON_SCHULZ_STEPS = 5.0
"""Of Muon: KellerJordan/Muon@d4a8f3a muon.py, ``zeropower_via_newtonschulz5``; NVIDIA-NeMo/Emerging-Optimizers alike."""


def newton_schulz_flop(rows: Number, columns: Number) -> Number:
    r"""FLOP of one step of Newton and Schulz's iteration of degree five on a matrix.

    .. math:: 4 n m^2 + 2 m^3, \quad m = \min(\text{rows}, \text{columns})

    :math:`A = X X^\top`, :math:`B = b A + c A A`, :math:`X \leftarrow a X + B X`.

    Parameters
    ----------
    rows, columns : of the matrix

    References
    ----------
    K. Jordan et al., Muon: An optimizer for hidden layers in neural networks (2024)

    Examples
    --------
    >>> newton_schulz_flop(2.0, 3.0)
    64.0
    """
    short, long = ops.minimum(rows, columns), ops.maximum(rows, columns)
    return 4.0 * long * short * short + 2.0 * short * short * short


def layer_flop(model: ModelNumbers, plan: PlanNumbers) -> tuple[Number, Number]:
    """FLOP of one such step on the matrices of an average layer that a rank holds: outside the routed experts, and in them.

    Tensor ranks orthogonalise their own blocks.

    References
    ----------
    NVIDIA/Megatron-LM@d98e8a6 megatron/core/optimizer/muon.py, ``tp_mode="blockwise"``
    """
    attention, mixture = model.attention, model.experts
    share = mixture.layers / model.layers
    latent = attention.latent > 0.0
    queries = attention.heads * attention.head_dim / plan.tensor
    keys = attention.kv_heads / parameters.key_holders(model, plan.tensor) * attention.head_dim
    expanded = attention.heads * (attention.head_dim - attention.rope_head_dim + attention.value_head_dim) / plan.tensor
    plain = newton_schulz_flop(queries, model.hidden) + (1.0 + attention.value_rows) * newton_schulz_flop(keys, model.hidden)
    inputs = ops.where(attention.query_latent > 0.0, attention.query_latent, model.hidden)
    narrow = newton_schulz_flop(attention.query_latent, model.hidden) + newton_schulz_flop(queries, inputs)
    shared_keys = newton_schulz_flop(attention.kv_latent + attention.rope_head_dim, model.hidden)
    last = newton_schulz_flop(attention.heads * attention.value_head_dim / plan.tensor, model.hidden)
    projections = last + ops.where(latent, narrow + shared_keys + newton_schulz_flop(expanded, attention.kv_latent), plain)
    state = newton_schulz_flop(model.recurrent.inputs / plan.tensor, model.hidden)
    state = state + newton_schulz_flop(model.recurrent.outputs / plan.tensor, model.hidden)
    projections = attention.share * projections + model.recurrent.share * state
    matrices = 2.0 + model.mlp.gated
    dense = model.mlp.share * matrices * newton_schulz_flop(model.mlp.width / plan.tensor, model.hidden)
    shared = matrices * newton_schulz_flop(mixture.shared_width / plan.tensor, model.hidden)
    expert = matrices * newton_schulz_flop(mixture.width / plan.expert_tensor, model.hidden)
    return projections + (1.0 - share) * dense + share * shared, share * mixture.number / plan.expert * expert


def layer_matrices(model: ModelNumbers, plan: PlanNumbers) -> tuple[Number, Number]:
    """Matrices of an average layer on a rank that `layer_flop` counts: outside the routed experts, and in them."""
    attention, mixture = model.attention, model.experts
    share = mixture.layers / model.layers
    latent = 4.0 + ops.where(attention.query_latent > 0.0, 1.0, 0.0)
    projections = attention.share * ops.where(attention.latent > 0.0, latent, 4.0) + 2.0 * model.recurrent.share
    matrices = 2.0 + model.mlp.gated
    shared = ops.where(mixture.shared_width > 0.0, matrices, 0.0)
    dense = (1.0 - share) * model.mlp.share * matrices
    return projections + dense + share * shared, share * mixture.number / plan.expert * matrices


def layer_tensors(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Tensors of an average layer that a rank updates one by one: matrices, their biases and norms, or those of adapters.

    Assumptions
    -----------
    Where states are sharded all of a layer is one flat tensor, but where each is split by itself, as FSDP2 does. Adapters of
    experts aren't counted.

    References
    ----------
    pytorch/pytorch v2.13.0 torch/distributed/fsdp/_flat_param.py; _fully_shard/_fsdp_param.py
    """
    dense, routed = layer_matrices(model, plan)
    biases = model.attention.share * (3.0 * model.attention.bias + model.attention.output_bias)
    biases = biases + model.mlp.share * model.mlp.bias * (2.0 + model.mlp.gated)
    whole = dense + routed + biases + model.norms * model.norm_vectors
    each = ops.where(settings.adapter.frozen > 0.0, 2.0 * launches.adapted_matrices(settings, model), whole)
    return ops.where((plan.shard_optimizer > 0.0) & (settings.buckets.padded <= 0.0), 1.0, each)


def launching_time(model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software) -> Number:
    """Time by which the host launches the update of an average layer [s].

    Assumptions
    -----------
    Operators of an update are called one by one from Python, without the modules and the graph of a forward pass.
    """
    host = software.host
    one_by_one = settings.optimizer.tensor_kernels * layer_tensors(model, settings, plan)
    return host.pace * (host.layer_update + one_by_one * host.update_kernel)


def extra_update_time(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software, device: DeviceNumbers,
    layers: Number, shard: Number, expert_shard: Number, updated: Number,
) -> Number:  # fmt: skip
    """Time that the optimizer's kind adds to an update of a stage on one rank [s].

    Muon multiplies matrices in 16 bit, if the host launches that fast; where the optimizer's state is sharded, whole matrices
    are dealt to the ranks. Others move what their intermediate tensors take beside the state.

    Parameters
    ----------
    layers : of the stage
    shard, expert_shard : ranks that share one copy, outside the routed experts and in them
    updated : parameters that this rank updates
    """
    chosen = settings.optimizer
    dense, routed = layer_flop(model, plan)
    spread = ops.where(plan.shard_optimizer > 0.0, shard, 1.0)
    expert_spread = ops.where(plan.shard_optimizer > 0.0, expert_shard, 1.0)
    flop = chosen.newton_schulz_steps * layers * (dense / spread + routed / expert_spread)
    rate = compute.base_product_rate(software.compute.gemm_efficiency_scale, device)
    trained = 1.0 - settings.adapter.frozen  # adapters' matrices are too thin to count
    matrices, routed_matrices = layer_matrices(model, plan)
    held = layers * (matrices / spread + routed_matrices / expert_spread)
    iterates = ops.where(chosen.newton_schulz_steps > 0.0, software.host.matrix_update, 0.0)
    launching = iterates * held * software.host.pace
    return trained * ops.maximum(flop / rate, launching) + chosen.passing_bytes * updated / device.memory_bandwidth
