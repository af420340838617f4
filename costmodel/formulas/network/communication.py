r"""Communication of a plan: inside a layer, between stages, and of gradients and weights."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.network import collectives
from costmodel.formulas.quantities import Exchange, ModelNumbers, NetworkNumbers, Number, PlanNumbers, Settings, Software
from costmodel.formulas.systems import byteps_shares, server_exchange
from costmodel.formulas.transformer import lengths, parameters, precision
from costmodel.formulas.transformer.repetition import experts_again

ALL_REDUCE, HIERARCHICAL, PARAMETER_SERVER, BYTEPS, LOCAL_SGD = 0.0, 1.0, 2.0, 3.0, 4.0
"""Codes of how copies are synchronised."""
PARTITION = 4.0 * 2.0**20
"""Bytes of a message to a server [jiang2020]_ section 5."""


def hidden_message(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """A micro-batch's hidden states on one rank, whole in the channels [bytes]."""
    return settings.widths.activation * lengths.local_tokens(settings, plan) * model.hidden


def gathered_message(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """What a tensor group gathers of a micro-batch's hidden states before a product: as narrow as its operand [bytes].

    References
    ----------
    NVIDIA/TransformerEngine@d0067d0 transformer_engine/pytorch/distributed.py, ``gather_along_first_dim``; pytorch/ao
    torchao/float8/float8_tensor_parallel.py
    """
    return settings.widths.gathered / settings.widths.activation * hidden_message(model, settings, plan)


def context_message(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Keys and values of a micro-batch on one rank, which context ranks pass on [bytes]."""
    attention = model.attention
    kv_heads = attention.kv_heads / parameters.key_holders(model, plan.tensor)
    heads = ops.where(attention.latent > 0.0, attention.heads / plan.tensor, kv_heads)
    widths = heads * (attention.head_dim + attention.value_head_dim)
    return settings.widths.activation * lengths.local_tokens(settings, plan) * widths


def ring_gradients(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Gradients of keys and values of a micro-batch on one rank, in 32 bit as a ring sums them [bytes]."""
    return precision.FULL_BYTES / settings.widths.activation * context_message(model, settings, plan)


def query_message(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Queries and outputs of a micro-batch's attention on one rank [bytes]."""
    attention = model.attention
    widths = attention.heads / plan.tensor * (attention.head_dim + attention.value_head_dim)
    return settings.widths.activation * lengths.local_tokens(settings, plan) * widths


def context_exchange(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
) -> tuple[Number, Number]:  # fmt: skip
    """Time of what context ranks exchange in an average layer, forward and backward [s].

    Around a ring, keys and values go once forward, they and their gradients backward; PyTorch gathers them for its ring, and
    their gradients go back to where they began. Gathered, they are gathered forward, again backward, and their gradients
    scattered; for heads, queries, keys, values and outputs are exchanged, and their gradients.

    References
    ----------
    [liu2023]_, [dubey2024]_ section 3.3.2, [jacobs2023]_; pytorch/pytorch v2.13.0
    torch/distributed/tensor/experimental/_context_parallel/_attention.py (``_AllGatherRotater``, ``dkv_rotater``)
    """
    keys, queries = context_message(model, settings, plan), query_message(model, settings, plan)
    group, kernels = (plan.context, plan.context_stride, network, software), settings.kernels
    around = (plan.context - 1.0) * collectives.send(keys, *group)
    at_once = collectives.all_gather(plan.context * keys, *group)
    returned = plan.context * collectives.send(ring_gradients(model, settings, plan), *group)
    of_pytorch = settings.framework.gathered_ring > 0.0
    gathered = 2.0 * collectives.all_gather(0.5 * plan.context * keys, *group)
    exchanged = 2.0 * (collectives.all_to_all(0.5 * keys, *group) + collectives.all_to_all(0.5 * queries, *group))
    ring, ring_back = ops.where(of_pytorch, at_once, around), ops.where(of_pytorch, at_once + returned, 2.0 * around)
    forward = ops.where(kernels.gathered_keys > 0.0, gathered, ops.where(kernels.exchanged_heads > 0.0, exchanged, ring))
    backward = ops.where(
        kernels.gathered_keys > 0.0, 2.0 * gathered, ops.where(kernels.exchanged_heads > 0.0, exchanged, ring_back)
    )
    return model.attention.share * forward, model.attention.share * backward


def expert_message(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Routed tokens' hidden states that the ranks of one expert exchange in one direction [bytes]."""
    routed = lengths.local_tokens(settings, plan) / plan.tensor * model.experts.per_token * model.experts.load
    return settings.widths.activation * routed * model.hidden * plan.expert_tensor


def expert_all_to_all(
    nbytes: Number, model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    """Time of a dispatch or a combine, once for each expert or once for each rank, as the plan has it [s].

    Parameters
    ----------
    nbytes : of `expert_message`
    """
    group = plan.expert, plan.expert_tensor, network, software
    once = collectives.deduplicated_all_to_all(nbytes, model.experts, *group)
    return ops.where(settings.kernels.deduplicated_dispatch > 0.0, once, collectives.all_to_all(nbytes, *group))


def tensor_reductions(model: ModelNumbers, share: Number) -> Number:
    """All-reduces over the tensor group of one layer in one direction.

    One after attention and one after the MLP, one where both run side by side; routed experts exchange over
    their own group instead, shared ones over this.

    Parameters
    ----------
    share : of the layers that have routed experts

    References
    ----------
    [shoeybi2019]_ section 3
    """
    # the outputs of a state and an attention side by side are summed once
    mixers = ops.minimum(model.attention.share + model.recurrent.share, ops.maximum(model.attention.share, 1.0))
    reductions = mixers + (1.0 - share) * model.mlp.share * (1.0 - model.parallel_block)
    return reductions + share * ops.where(model.experts.shared_width > 0.0, 1.0, 0.0)


def repeated_reductions(model: ModelNumbers, plan: PlanNumbers, share: Number) -> Number:
    """All-reduces of a layer's forward pass that its backward pass makes again, for what is recomputed.

    Those of an MLP or of shared experts go with their module, and the only one of a block whose attention and MLP run
    side by side with the layer alone. Under sequence parallelism each is a scatter and a gather, and what is only gathered again
    counts as half, `gathers_again`. Where every second product is kept, all are made again without sequence parallelism:
    torchtitan's policy keeps what is scattered, but not what is summed.

    Parameters
    ----------
    share : of the layers that have routed experts

    References
    ----------
    pytorch/torchtitan@b5bcd76 torchtitan/distributed/activation_checkpoint.py (``comm_ops``: reduce-scatters and all-to-alls)
    """
    shared = ops.where(model.experts.shared_width > 0.0, 1.0, 0.0)
    sparse = shared * experts_again(plan).shared
    modules = (1.0 - share) * model.mlp.share * plan.recompute_mlp * (1.0 - model.parallel_block) + share * sparse
    whole = tensor_reductions(model, share)
    summed = plan.recompute_operators * (1.0 - plan.sequence_parallel)
    some = ops.where(summed > 0.0, whole, modules + gathers_again(model, plan, share))
    return plan.recompute_layers * whole + (1.0 - plan.recompute_layers) * some


def gathers_again(model: ModelNumbers, plan: PlanNumbers, share: Number) -> Number:
    """Halves of a layer's all-reduces that its backward pass gathers again where it keeps every second product.

    torchtitan's policy keeps what is scattered, and gathers it again (pytorch/torchtitan@820504e torchtitan/parallelisms/
    parallelize_llama.py, ``_save_list``).

    Parameters
    ----------
    share : of the layers that have routed experts
    """
    return 0.5 * plan.recompute_operators * plan.sequence_parallel * tensor_reductions(model, share)


def inputs_gathered(
    settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software, nbytes: Number,
) -> Number:  # fmt: skip
    """Time to gather what a tensor group multiplies again, for the gradients of its weights: of one product [s].

    Under sequence parallelism each rank keeps its part, and gathers the others beside the product that makes the gradient of
    what it multiplied.

    Parameters
    ----------
    nbytes : of what is gathered

    References
    ----------
    [korthikanti2022]_ section 4.2.2; NVIDIA/Megatron-LM@d98e8a6 megatron/core/tensor_parallel/layers.py
    (``LinearWithGradAccumulationAndAsyncCommunication.backward``)
    """
    again = gathers_inputs(settings, plan)
    return again * collectives.all_gather(nbytes, plan.tensor, plan.tensor_stride, network, software)


def gathers_inputs(settings: Settings, plan: PlanNumbers) -> Number:
    """1 where what a tensor group multiplies is gathered again for the gradients of its weights; frozen ones have none."""
    return (1.0 - settings.adapter.frozen) * settings.framework.inputs_again * plan.sequence_parallel


def whole_gradients(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, dense: Number, sparse: Number, last: Number
) -> Number:
    """Bytes of a stage's gradients that a tensor group sums once a step, of weights that are whole on each of its ranks.

    Under sequence parallelism each has seen only its part of a sequence: norms, biases behind a product that is summed, routers.

    Parameters
    ----------
    dense, sparse : layers of the stage with a dense MLP, and with routed experts
    last : 1 where the stage holds the head

    References
    ----------
    NVIDIA/Megatron-LM@d98e8a6 megatron/core/distributed/finalize_model_grads.py (``_allreduce_non_tensor_model_parallel_grads``)
    """
    layers, normed = dense + sparse, model.attention.qk_norm_channels * model.norm_vectors
    vectors = layers * (model.norms * model.norm_vectors + model.attention.output_bias) + dense * model.mlp.bias
    vectors = vectors + sparse * model.experts.number + last * model.last_norm * model.norm_vectors
    return gathers_inputs(settings, plan) * settings.widths.gradient * (vectors * model.hidden + layers * normed)


def repeated_dispatches(plan: PlanNumbers) -> Number:
    """How often the backward pass dispatches tokens to their experts and combines them again, for what is recomputed."""
    return plan.recompute_layers + (1.0 - plan.recompute_layers) * plan.recompute_experts


def tensor_exchange(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    """Time of one all-reduce of a micro-batch's hidden states over the tensor group, at an end of the model [s].

    Sequence parallelism replaces each by a reduce-scatter and an all-gather, which move the same bytes.

    References
    ----------
    [shoeybi2019]_ section 3, [korthikanti2022]_ section 4.2.2
    """
    return _reduced(hidden_message(model, settings, plan), model, settings, plan, network, software)


def inner_tensor_exchange(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    """As `tensor_exchange`, inside a layer, whose products may take narrower operands than the embedding and the head [s]."""
    return _reduced(gathered_message(model, settings, plan), model, settings, plan, network, software)


def _reduced(
    gathered: Number, model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    """Time to sum hidden states over the tensor group: at once, or scattered and then gathered as so many bytes [s]."""
    nbytes, group = hidden_message(model, settings, plan), (plan.tensor, plan.tensor_stride, network, software)
    apart = collectives.all_gather(nbytes, *group) + collectives.all_gather(gathered, *group)
    return ops.where(plan.sequence_parallel > 0.0, apart, collectives.all_reduce(nbytes, *group))


def layer_exchange(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
) -> Exchange:  # fmt: skip
    """Communication of an average layer on one micro-batch, `Exchange`.

    Tensor: one all-reduce after attention and one after the MLP, each way (one where both run side by side; an expert layer's MLP
    exchanges over the expert group instead), and what is gathered again before them. Context: `context_exchange`. Experts:
    dispatch and combine, each way, and under expert tensor parallelism a gather and a scatter of the routed tokens.
    """
    share = model.experts.layers / model.layers
    once = inner_tensor_exchange(model, settings, plan, network, software)
    reductions = tensor_reductions(model, share)

    passed, passed_back = context_exchange(model, settings, plan, network, software)
    whole = expert_message(model, settings, plan)
    one_way = expert_all_to_all(whole, model, settings, plan, network, software)
    inside = collectives.all_gather(whole, plan.expert_tensor, plan.tensor_stride, network, software)
    experts = share * 2.0 * (one_way + inside)
    repeated, dispatched = repeated_reductions(model, plan, share), repeated_dispatches(plan)
    inputs = inputs_gathered(settings, plan, network, software, gathered_message(model, settings, plan))
    return Exchange(
        reductions * once, reductions * once, repeated * once, reductions * inputs, passed, passed_back, experts, experts,
        dispatched * experts,
    )  # fmt: skip


def boundary(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
) -> tuple[Number, Number]:  # fmt: skip
    """Time and bytes to send one micro-batch's hidden states to the next stage [s, bytes]."""
    split = ops.where((settings.framework.scatter_boundary > 0.0) | (plan.sequence_parallel > 0.0), plan.tensor, 1.0)
    nbytes = hidden_message(model, settings, plan) / split
    time = collectives.send(nbytes, plan.pipeline, plan.pipeline_stride, network, software)
    return time, nbytes


def boundary_parts(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """Latency of a transfer to the next stage, the time that it takes its link, and its bytes [s, s, bytes]."""
    time, nbytes = boundary(model, settings, plan, network, software)
    latency = collectives.send(0.0, plan.pipeline, plan.pipeline_stride, network, software)
    return latency, ops.maximum(time - latency, 0.0), nbytes


def opposite_stride(plan: PlanNumbers, network: NetworkNumbers) -> Number:
    """Distance by which pairs of ranks at opposite places of a pipeline are priced [ranks].

    Their own distance would say of a pipeline that fills a node that its first and last rank are on two: a pair shares a
    unit of a level only where that holds the whole pipeline.

    Examples
    --------
    >>> from costmodel import Plan, load_cluster, load_framework
    >>> network, software = load_cluster("dgx-h100", gpus=32).numbers(), load_framework("megatron-core")
    >>> for data in (2, 8):
    ...     plan = Plan(global_batch=64, seq_len=512, pipeline_parallel=4, data_parallel=data)
    ...     stride = opposite_stride(plan.numbers(software, 8), network)
    ...     float(collectives.members_inside(2.0, stride, network.node.size))
    2.0
    1.0
    """
    span = plan.pipeline * plan.pipeline_stride
    apart = ops.where(span > network.node.size, ops.maximum(0.5 * span, network.node.size), 0.5 * span)
    return ops.where(span > network.leaf.size, ops.maximum(apart, network.leaf.size), apart)


def expert_ranks(plan: PlanNumbers) -> Number:
    """Ranks that hold the same routed experts."""
    return ops.maximum(plan.data * plan.context * plan.tensor / (plan.expert * plan.expert_tensor), 1.0)


def shard_groups(plan: PlanNumbers) -> tuple[Number, Number]:
    """Ranks that share one copy of the optimizer state: of the dense weights, of the routed experts."""
    shard = ops.where(plan.shard_optimizer > 0.0, plan.shard_group, 1.0)
    return shard, ops.maximum(shard * expert_ranks(plan) / (plan.data * plan.context), 1.0)


def shard_group_size(ranks: Number, plan: PlanNumbers) -> Number:
    """Ranks of a group of `ranks` that share one copy of what ZeRO shards: as large a part as of the dense weights' group.

    Parameters
    ----------
    ranks : members of the group
    """
    share = ops.where(plan.shard_optimizer > 0.0, plan.shard_group / (plan.data * plan.context), 0.0)
    return ops.maximum(ranks * share, 1.0)


def sum_over_copies(
    nbytes: Number, ranks: Number, stride: Number, settings: Settings, network: NetworkNumbers,
    software: Software,
) -> tuple[Number, Number]:  # fmt: skip
    r"""Time and bytes to sum `nbytes` over ranks that each hold a copy, as the plan synchronises them [s, bytes].

    ================  ==========================================================================================
    all-reduce        as the library chooses, over all ranks
    hierarchical      reduce-scatter inside a node, all-reduce of each part between nodes, all-gather inside
    parameter server  summed inside a node, pushed to `servers` machines and pulled; to all nodes if there are none
    BytePS            the same with the optimal split between the nodes and `servers` machines without GPUs
    local SGD         an all-reduce of the weights every `local_steps` steps, its time spread over them
    ================  ==========================================================================================

    A machine of servers has the links of a node, of which its software reaches a share, and takes the nodes' requests one after
    another. Inside a node and between nodes go on at once, partition by partition.

    Parameters
    ----------
    nbytes : on each rank
    ranks : members of the group
    stride : distance of neighbouring members [ranks]

    References
    ----------
    [goyal2017]_ section 4.1 (hierarchical), [li2014]_, [jiang2020]_ table 1 and equation (6), [douillard2023]_
    """
    flat = collectives.all_reduce(nbytes, ranks, stride, network, software)
    node = collectives.members_inside(ranks, stride, network.node.size)
    machines = ops.ceil_div(ranks, node)
    inside = 2.0 * collectives.all_gather(nbytes, node, stride, network, software)
    across = collectives.all_reduce(nbytes / node, machines, stride * node, network, software)

    link = settings.synchronisation.link_share * software.network.quality * node * network.leaf.bandwidth
    latency = software.host.collective_launch + software.network.latency * network.leaf.latency
    colocated = ops.where(settings.synchronisation.servers > 0.0, 0.0, 1.0)
    servers = ops.where(settings.synchronisation.servers > 0.0, settings.synchronisation.servers, machines)
    messages = ops.where(settings.synchronisation.stored > 0.0, 1.0, nbytes / PARTITION + 1.0)
    pushed = server_exchange.exchange_time(nbytes, nbytes, machines, servers, 1.0, colocated, link, link, 1e30, latency, messages)
    requests = server_exchange.requests_time(machines, settings.synchronisation.request_time)
    served = ops.maximum(inside, ops.where((machines > 1.0) & (nbytes > 0.0), pushed + requests, 0.0))
    optimal = byteps_shares.optimal_time(nbytes, machines, settings.synchronisation.servers, link)
    shared = ops.where(machines > 1.0, optimal + 2.0 * latency, 0.0)
    balanced = ops.maximum(inside, shared)

    kind = settings.synchronisation.kind
    central = ops.where(ops.equal(kind, PARAMETER_SERVER), served, balanced)
    averaged = ops.where(ops.equal(kind, HIERARCHICAL), inside + across, flat / settings.synchronisation.local_steps)
    chosen = ops.where((kind > 1.5) & (kind < 3.5), central, ops.where(kind > 0.5, averaged, flat))

    ring = 2.0 * (1.0 - 1.0 / ranks) * nbytes
    within = 2.0 * (1.0 - 1.0 / node) * nbytes
    to_servers = server_exchange.worker_bytes(nbytes, nbytes, machines, servers, 1.0, colocated)
    out = ops.where(ops.equal(kind, PARAMETER_SERVER), to_servers, shared * link)
    sent = ops.where((kind > 1.5) & (kind < 3.5), within + ops.where(machines > 1.0, out / node, 0.0), ring)
    return chosen, sent / settings.synchronisation.local_steps


def piece_copies(ranks: Number, software: Software) -> Number:
    """Time of copies between a buffer of the communication library and each rank's part of what ZeRO shards [s].

    `torch.distributed.all_gather` fills a list of tensors by a copy for each; only later software gathers in place.

    Parameters
    ----------
    ranks : that share a tensor

    References
    ----------
    pytorch/pytorch#56315 (of April 2021), pytorch/pytorch#33924

    Examples
    --------
    >>> from costmodel import load_framework
    >>> [round(1e3 * piece_copies(1536.0, load_framework(name).numbers()), 1) for name in ("deepspeed-2021", "deepspeed")]
    [15.4, 0.0]
    """
    return ops.where(ranks > 1.0, software.network.piece_copy * ranks, 0.0)


def shard_exchange(
    nbytes: Number, ranks: Number, stride: Number, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    """Time to gather what ZeRO shards over `ranks`, or to scatter sums to its shards [s].

    An all-gather at a speed of its own: frameworks gather tensor by tensor, copy on the way, or pad.

    Parameters
    ----------
    nbytes : whole buffer, gathered or before scattering [bytes]
    ranks, stride : the group
    """
    gathered = collectives.all_gather(nbytes, ranks, stride, network, software) / software.network.sharding_quality
    return gathered + ops.where(nbytes > 0.0, piece_copies(ranks, software), 0.0)
