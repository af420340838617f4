r"""What formulas take and give: tuples of numbers, of columns or of symbols.

The same NamedTuple holds a float (one plan), a NumPy column (many plans) or a SymPy symbol. Units are SI:
seconds, bytes, bytes/s, FLOP, FLOP/s; yes/no fields are 1.0 or 0.0; a bandwidth is per GPU and direction.
Longer than other modules, as it is the one list of all words that formulas share.

Nomenclature of the docstrings' mathematics

=====================  ==============================================  =========
symbol                 name                                            unit
=====================  ==============================================  =========
:math:`L`              layers
:math:`h`              hidden size
:math:`a`              attention heads
:math:`s`              seq_len                                         tokens
:math:`b`              micro_batch                                     sequences
:math:`V`              vocabulary                                      tokens
:math:`t`              tensor_parallel
:math:`p`              pipeline_parallel (in collectives: ranks)
:math:`v`              virtual_stages
:math:`m`              micro-batches of a step on one pipeline
:math:`\alpha`         latency of a hop                                s
:math:`B`              bandwidth                                       bytes/s
=====================  ==============================================  =========
"""


# annotations are objects here, not text: Python reads the text of each of hundreds again at every start
from typing import NamedTuple, TypeAlias

Number: TypeAlias = float
"""A float, or what takes its place: a NumPy column of one number a row, or a symbolic expression.

To the type checker formulas are those of floats; columns and symbols follow the same arithmetic.
"""
WITHOUT_LIMIT = 1e30
"""A bandwidth or a size that nothing is held back by."""


class AttentionNumbers(NamedTuple):
    """The attention of a decoder's layers."""

    heads: Number
    kv_heads: Number
    head_dim: Number  # of queries and keys; MLA: the part without position + rope_head_dim
    value_head_dim: Number
    latent: Number  # 1: multi-head latent attention
    query_latent: Number  # 0: queries are projected straight from the hidden state
    kv_latent: Number
    rope_head_dim: Number
    window: Number  # tokens a windowed layer looks back
    windowed_layers: Number
    qk_norm_channels: Number  # channels of query and key norms in a layer
    bias: Number  # on queries, keys, values
    output_bias: Number
    sinks: Number  # 1: one learned sink logit a head
    fused: Number  # 1: one product makes queries, keys and values
    split_rotation: Number  # 1: queries and keys are put together of rotated channels and others
    repeated_keys: Number  # 1: its own code copies keys and values for each query that shares them
    causal: Number  # 0: every token meets every other
    index_heads: Number  # heads of an indexer that picks the keys of sparse attention; 0: none
    index_head_dim: Number
    value_rows: Number  # channels of values that are projected, over those of keys
    split_heads: Number  # that tensor ranks share: the greatest number that divides those of every kind of layer
    split_kv_heads: Number  # of keys and values in most layers: no rank holds less than one of them
    share: Number  # of the layers that have attention
    gate: Number  # 1: a gate on what heads give, projected as queries are
    met: Number  # keys that queries of an average attention meet below the diagonal, over those of a decoder's; else 1
    met_whole: Number  # the same of all keys


class RecurrentNumbers(NamedTuple):
    """What layers have that keep a state in place of keys and values: linear attention, state spaces."""

    share: Number  # of the layers that are such
    heads: Number
    inputs: Number  # channels projected from the hidden state, split over tensor ranks
    outputs: Number  # channels projected back
    whole: Number  # channels projected from the hidden state on every tensor rank
    inner: Number  # weights between what is projected and the scan
    convolved: Number  # weights of a short convolution of each channel
    vectors: Number  # parameters of heads and channels, split
    whole_vectors: Number  # parameters on every tensor rank
    state_flop: Number  # of states, token by token [FLOP a token]
    scan_flop: Number  # of the chunked scan, forward [FLOP a token]
    scan_bytes: Number  # moved by it, forward [bytes a token]
    kept: Number  # elements saved of a token
    moved: Number  # elements of a token moved between products and scan


class MlpNumbers(NamedTuple):
    """The dense MLP of a decoder's layers."""

    width: Number  # of an average layer, with what its own embedding of tokens is multiplied by
    split_width: Number  # that tensor ranks share
    gated: Number  # 1: two matrices in, one out (SwiGLU); 0: one in, one out
    bias: Number
    activation_keeps: Number  # tensors that a plain activation keeps beside what it makes, where each operation is a kernel
    clamped: Number  # 1: what a gated activation reads is held within limits first
    share: Number  # of the layers without experts that have one


class ExpertNumbers(NamedTuple):
    """The mixture of experts in place of the MLP."""

    layers: Number  # that have one
    start: Number  # the first layer that has one, from 0
    step: Number  # from there on one of so many layers has one, 1: every; 0: by no rule, so that stages have equal shares
    number: Number  # of experts in a layer
    per_token: Number
    width: Number
    shared_width: Number  # of all shared experts together
    load: Number  # tokens on the busiest expert rank over the mean
    padded: Number  # 1: every expert takes as many tokens as it may, padding for those that lack, so that shapes are known
    shared_gate: Number  # 1: a gate of one output on the shared experts
    groups: Number  # into which experts are put
    groups_per_token: Number  # of these a token's experts are taken from so many


class VocabularyNumbers(NamedTuple):
    """The embedding and the head."""

    size: Number
    outputs: Number  # of the output projection: as many, or those of a head of its own
    tied: Number
    positions: Number  # rows of a learned position table
    norm: Number  # 1: a norm after the embedding
    capped: Number  # 1: logits are held within limits by a kernel that keeps what it makes
    layer_channels: Number  # of the embeddings that layers have of their own, all together
    embedding_width: Number  # channels of the embedding before it is projected to `hidden`; 0: `hidden`
    patch_values: Number  # numbers of an image patch that is projected to `hidden`; 0: tokens
    head_bias: Number
    head_transform: Number  # 1: a dense layer and a norm before the output projection


class ModelNumbers(NamedTuple):
    """A decoder or encoder in numbers; made by `Transformer.numbers`."""

    layers: Number
    hidden: Number
    attention: AttentionNumbers
    recurrent: RecurrentNumbers
    mlp: MlpNumbers
    experts: ExpertNumbers
    vocabulary: VocabularyNumbers
    norm_vectors: Number  # parameters of a norm per channel: 1 RMSNorm, 2 LayerNorm
    norms: Number  # norms of hidden width in a layer
    wide_norm: Number  # 1: an RMSNorm multiplies by its weight in 32 bit
    parallel_block: Number  # 1: attention and MLP side by side: half of the tensor-parallel communication
    prediction_layers: Number  # multi-token-prediction modules
    dropout: Number
    last_norm: Number  # 1: a norm after the last layer
    layer_tokens: Number  # that an average layer works through, over those of a sequence: 1, but with an encoder of other lengths
    modulation: Number  # matrices from a condition to a layer's scales and shifts, once a sequence
    stream_matrices: Number  # that tokens of another stream meet in place of an average layer's own


class DeviceNumbers(NamedTuple):
    """An accelerator in numbers, at one compute dtype; made by `Device.numbers`."""

    flop_rate: Number  # dense peak of the GEMM dtype
    base_flop_rate: Number  # dense peak of the 16-bit dtype, in which attention and the head run
    vector_flop_rate: Number  # dense peak in 32 bit outside tensor cores, where it is known; else as the last
    int8_flop_rate: Number  # dense peak in int8; of a device that has none as in its 16-bit dtype
    split_flop_rate: Number  # in 32 bit by three products in TF32, where that is faster; where operands are narrower the base's
    gemm_efficiency: Number  # of the peak, for a product large in every dimension
    base_gemm_efficiency: Number  # the same in the 16-bit dtype
    gemm_output: Number  # output elements at which half the efficiency is lost to unfilled waves
    gemm_depth: Number  # depth at which half the efficiency is lost to filling the pipeline
    base_gemm_output: Number  # the same two in the 16-bit dtype
    base_gemm_depth: Number
    best_flop_rate: Number  # the best that any product was measured at: what no software passes
    base_best_flop_rate: Number
    product_bandwidth: Number  # at which a product's operands come from memory
    grouped_bandwidth: Number  # the same of many products in one kernel
    grouped_efficiency: Number  # of the peak, for many large products in one kernel
    grouped_rows: Number  # rows that each of them loses to its last tile
    grouped_output: Number  # output elements that all of them lose to unfilled waves
    attention_forward_efficiency: Number  # causal
    attention_backward_efficiency: Number
    attention_length: Number  # keys a query that a causal kernel loses to partly masked tiles
    attention_window: Number  # keys a query that a window loses on top, at its other edge
    attention_width: Number  # channels of a head that the softmax costs as much as
    attention_rows: Number  # queries of all heads that unfilled waves lose
    attention_unaligned: Number  # factor on the rate where a head's channels are no multiple of 16
    attention_older: Number  # the same of kernels written for the tensor cores of an older generation
    narrow_attention: Number  # rate of flash kernels whose products are in 8 bit, over those of 16, forward
    narrow_attention_back: Number  # and backward
    narrow_wide_attention: Number  # the same two where a head has more than 128 channels
    narrow_wide_attention_back: Number
    full_attention_efficiency: Number  # of kernels without a mask
    full_attention_length: Number
    full_attention_width: Number
    memory_bandwidth: Number  # achieved by streaming kernels
    cast_bandwidth: Number  # achieved by kernels that make 8-bit operands
    cache: Number  # bytes that a benchmark's next call finds in the cache
    cache_bandwidth: Number
    kernel_time: Number  # shortest kernel, and the gap to the next
    sustained_clock: Number  # clock in a training step over that of a short benchmark, of kernels of 16 bits and wider
    narrow: Number  # 1: the compute dtype has less than 16 bits
    narrow_clock: Number  # as the sustained clock, of products in such a dtype
    memory: Number  # bytes that a process can use
    host_bandwidth: Number  # of the link to host memory


class LevelNumbers(NamedTuple):
    """One network level: `size` ranks share it."""

    size: Number
    latency: Number
    bandwidth: Number
    peer_bandwidth: Number = WITHOUT_LIMIT  # between two ranks; below `bandwidth` where each pair has a link of its own
    root_bandwidth: Number = WITHOUT_LIMIT  # between the halves of a unit; one link's in a tree, without limit in a switch
    channels: Number = 24.0  # that the communication library lays over the links inside a node
    ll_bandwidth: Number = 0.0  # that a collective in the library's protocol LL reaches at most; 0: it has none
    ll128: Number = 0.0  # 1: the links carry its protocol LL128
    tree_bandwidth: Number = WITHOUT_LIMIT  # that its trees between nodes reach at most, for each member on a node
    ring_bandwidth: Number = WITHOUT_LIMIT  # that one ring or tree between units reaches, however many members it has inside


class NetworkNumbers(NamedTuple):
    """Nested levels, innermost first; absent outer levels repeat the last."""

    node: LevelNumbers
    leaf: LevelNumbers
    spine: LevelNumbers


class ComputeConstants(NamedTuple):
    """What the software makes of the device's kernels."""

    gemm_efficiency_scale: Number  # factor on the device's GEMM efficiency
    attention_efficiency_scale: Number  # factor on its attention efficiency, or on the rate at which scores are moved
    elementwise_traffic: Number  # bytes moved by the unfused kernels between GEMMs over the fused minimum
    optimizer_traffic: Number  # bytes moved by the optimizer over the fused minimum
    contention: Number  # slowdown of compute per second of hidden communication
    first_flash: Number  # rate of FlashAttention 1, and of Triton's kernel of its time, over that of FlashAttention 2
    column_cast: Number  # time of a kernel that scales and casts columns over that of one that casts rows
    scan_efficiency: Number  # of the rate of large products, what a chunked scan's reach


class HostConstants(NamedTuple):
    """What the host takes [s]."""

    forward: Number  # to launch one layer forward
    backward: Number
    collective_launch: Number  # of one collective on the device, beyond what NCCL's own model says
    collective_call: Number  # to call one from a layer
    micro_batch: Number
    step: Number
    layer_update: Number  # to launch the update of one layer
    pipeline_call: Number  # to hand a micro-batch on to another stage, or to be handed one
    pace: Number  # factor of the host's processor on all that it launches and calls
    unfused_launches: Number  # that separate softmax kernels add, over those of a layer
    expert_launches: Number  # that routing to experts adds, over those of a layer
    jitter: Number  # growth of host time per doubling of the tensor ranks, of which the slowest is waited for
    pipeline_jitter: Number  # growth per further tensor rank in a pipeline over several nodes, on top of it
    pressure_time: Number  # lost per micro-batch to the allocator where memory is full
    pressure_start: Number  # share of a device's memory beyond which its allocator runs short of blocks to reuse
    module_hook: Number  # of a module's hooks in Python, which gather its weights before a pass and release them after it
    matrix_update: Number  # of the update of one matrix by an optimizer that multiplies matrices
    blocked_kernel: Number  # of a kernel that the host waits for before it goes on, beyond its launch
    update_kernel: Number  # to call one operator of an update, which no module wraps


class NetworkConstants(NamedTuple):
    """What the software makes of the network."""

    quality: Number  # factor on the bandwidth of collectives
    sharding_quality: Number  # factor on the speed of gathering and scattering what ZeRO shards
    latency: Number  # factor on the latency of their hops between nodes
    node_latency: Number  # factor on the latency of their hops inside a node
    crossing_launch: Number  # that a collective between nodes takes on top [s]
    node_filling: Number  # inside a node, until its channels' buffers have been filled once [s/byte]
    node_round_bytes: Number  # which so many bytes do
    filling: Number  # the same two between nodes
    round_bytes: Number
    piece_copy: Number  # to copy each rank's part of what ZeRO gathers or scatters by a kernel of its own; 0: in place [s]


class OverlapConstants(NamedTuple):
    """Share of each communication that can hide under compute."""

    tensor: Number  # under GEMMs
    gradients: Number  # of the backward pass, under which gradients are reduced
    parameters: Number  # the same for gathering parameters
    context: Number
    experts: Number
    pipeline: Number
    accompanied_experts: Number  # of the experts' exchange, under the work of another micro-batch beside it


class MemoryConstants(NamedTuple):
    """What the software holds besides the tensors that a plan implies."""

    activation_overhead: Number  # saved activations over what fused kernels save
    backward_overhead: Number  # gradients alive in one layer's backward pass over the activations it saved
    workspace: Number  # of the libraries inside the allocator [bytes]
    fixed: Number  # outside the allocator: context, communication library [bytes]
    library_overhead: Number  # what the communication library holds over the buffers of its channels
    fragmentation: Number  # reserved over allocated, minus one
    idle: Number  # of what comes and goes, kept by the allocator beside what is needed at once, until memory is short
    unlike_idle: Number  # the same of passes, where every micro-batch has another shape
    own: Number  # what tensors hold over what is counted, as own runs of a cluster have it in common


class Software(NamedTuple):
    """What is the software's: made by `Framework.numbers`."""

    compute: ComputeConstants
    host: HostConstants
    network: NetworkConstants
    overlap: OverlapConstants
    memory: MemoryConstants


class Widths(NamedTuple):
    """Bytes of an element."""

    compute: Number  # of a GEMM operand
    activation: Number
    parameter: Number  # of the copy that is multiplied
    stored: Number  # of the copy that is held: below `parameter` where a frozen base is quantised
    gradient: Number
    reduce: Number  # of a gradient on the wire
    optimizer: Number  # master copy and moments, per parameter
    embedding_moments: Number  # of an embedding's moments, per parameter, over those of others
    outer: Number  # of what local SGD keeps from one synchronisation to the next, per parameter
    logit: Number  # kept per logit between forward and backward
    layernorm_logit: Number  # the same of a model whose norms are LayerNorms
    tensor_logit: Number  # the same where a tensor group splits the vocabulary; 0: no other
    logit_traffic: Number  # moved per logit by the loss, forward and backward
    tensor_logit_traffic: Number  # the same where a tensor group splits the vocabulary
    gathered: Number  # of an activation that a tensor group gathers for a product
    input: Number  # of a product's saved input: narrower than `activation` where its copy is
    input_copy: Number  # of a narrow copy of an input that is saved wide as well
    activated: Number  # of what an MLP's activation read, as it is saved
    attended: Number  # of a flash kernel's output with the copy that the product behind it keeps
    weight_copy: Number  # of the narrow copies of a weight that products read
    backward_gradient: Number  # of a second copy of a gradient, as the backward pass leaves it, held all step
    retained_logit: Number  # per logit of the micro-batch before, still held at the next one's loss
    output_logit: Number  # per logit that a training loop holds on to until the next forward pass has given it others
    staged_logit: Number  # per logit that a pipeline's last stage keeps as its output through the backward pass
    update: Number  # held per updated parameter while the optimizer runs
    flat_gradient: Number  # of a flat copy of all gradients that several ranks sum, made before the update
    wide: Number  # of a weight that trains in 32 bit, beyond `parameter`, which is there only while it is gathered
    residual: Number  # of the residual stream, as a recomputed layer keeps its input
    adapter: Number  # of a weight of an adapter; 0 without


class KernelChoices(NamedTuple):
    """Which kernels run."""

    cuda_graphs: Number  # 1: a layer's passes are captured once and replayed, all of them
    captured_attention: Number  # 1: of a layer's passes the attention's are, its norm and projections with it
    captured_mlp: Number  # 1: those of an MLP that is not of experts
    captured_router: Number  # 1: the router's, and what counts and orders tokens before their dispatch
    captured_iteration: Number  # 1: the passes of all micro-batches are one graph
    fused_experts: Number  # 1: bias, activation and cast of experts are part of their grouped products' kernels
    fused_operators: Number  # 1: products add adapters' outputs and gradients in their own kernels
    fused_casts: Number  # 1: and the activation of a dense MLP writes the next product's operand in 8 bit itself
    flash_attention: Number
    narrow_attention: Number  # 1: its products are in 8 bit
    cast_activations: Number  # 1: what an MLP's activation reads is stored in 8 bit from one pass to the other
    masked_padding: Number  # 1: micro-batches of several samples are padded under a mask, which a flash kernel lacks; 2: all are
    older_flash: Number  # 1: FlashAttention 2, written for Ampere's tensor cores; 2: FlashAttention 1, Triton's; 3: PyTorch's own
    fused_softmax: Number  # 1: mask, scale and softmax of unfused attention are one kernel
    fused_norms: Number  # 1: an RMSNorm is one kernel, as a LayerNorm always is
    fused_cross_entropy: Number
    tiled_loss: Number  # 1: the loss multiplies by the head tile by tile, and again for its backward pass
    chunked_loss: Number  # 1: logits are made chunk by chunk, each by a product of its own, and all are kept
    deduplicated_dispatch: Number  # 1: a token is sent once to each rank that holds any of its experts
    gathered_keys: Number  # 1: context ranks gather all keys and values before the attention core
    host_reads: Number  # in each layer a flash kernel's wrapper reads on the host 1: positions of a single sequence; 2: a mask
    exchanged_heads: Number  # 1: they exchange positions for heads, and each has whole sequences of some; else a ring


class FrameworkHabits(NamedTuple):
    """What a framework does whatever the plan."""

    gather_logits: Number  # 1: the loss sees the whole vocabulary on every tensor rank
    autocast: Number  # 1: weights that train are in 32 bit and cast where they are multiplied; the rest is in 32 bit
    autocast_context: Number  # 1: forward passes run in PyTorch's autocast: LayerNorms and powers in 32 bit, whatever the weights
    linear_loss: Number  # 1: its fused loss is one with the head, chunk by chunk: all logits are never there
    balanced_stages: Number  # 1: layers are dealt to stages by cost, the vocabulary projection counted in
    listed_chunks: Number  # 1: of several chunks a rank the first and the last may hold any number of layers
    own_activations: Number  # 1: an activation without a gate is one kernel, whatever the model
    own_inputs: Number  # 1: each product that a tensor group splits keeps a copy of its input
    keep_gathered: Number  # 1: under sequence parallelism the gathered inputs of products are kept, not gathered again
    separate_rotation: Number  # 1: several kernels rotate queries and keys
    keep_rotated: Number  # 1: queries and keys are kept before and after
    repeat_keys: Number  # 1: keys and values that several queries share are copied for each
    wide_scores: Number  # 1: unfused attention keeps its softmax in 32 bit beside a copy as wide as its queries
    keep_expert_outputs: Number  # 1: outputs of experts are kept, as the router's probabilities weigh them
    eager_unpacking: Number  # 1: unless they are compiled, kernels of PyTorch decode weights in NF4
    branched_unpacking: Number  # 1: weights in NF4 are decoded by branches
    added_adapters: Number  # 1: products add what adapters make, and what their gradients are made of is made again
    keep_activated: Number  # 1: activation and product are kernels of their own, between which the activated gate is kept
    wide_norms: Number  # 1: an RMSNorm of separate kernels multiplies by its weight in 32 bit, whatever the model
    whole_graphs: Number  # 1: what is compiled together spans layers
    compiled: Number  # 1: what lies between products is compiled, and what no backward pass reads isn't kept
    separate_projections: Number  # 1: queries, keys and values, and gate and up, are products of their own
    grouped_experts: Number  # 1: one kernel multiplies for all experts of a rank; 0: one for each
    sample_rotation_kernels: Number  # of a packed sample's queries or keys, where each sample is rotated by itself; else 0
    looped_expert_kernels: Number  # of an expert's forward pass, where the host goes through a rank's experts in a loop; else 0
    fused_accumulation: Number  # 1: products of weight gradients add them to the accumulated ones in their own kernel
    weighed_experts: Number  # 1: PyTorch's own kernels order experts' tokens, weigh them in 32 bit and add them up
    weight_traffic: Number  # bytes a weight and micro-batch of casts, copies and sums beside products; 0: of sums by their widths
    module_hooks: Number  # 1: where weights are sharded, hooks around every module gather and release its own
    hooked_experts: Number  # 1: around each expert's, too; 0: all of a layer are one module
    deferred_sums: Number  # 1: under a pipeline sharded gradients are summed once a step, and whole until then
    lazy_gradients: Number  # 1: gradients are freed after the update, and come up as the next backward pass makes them
    double_registers: Number  # 1: with several micro-batches every tensor that comes and goes is there twice
    flat_updates: Number  # 1: what an update holds for a shard lies in buffers as large as that
    blocking_launches: Number  # 1: the host waits for every kernel before it launches the next
    scatter_boundary: Number  # 1: the tensor group splits what it sends to the next stage
    host_update_rate: Number  # at most, at which the processors of a node pass an optimizer's state [bytes/s]
    early_stop: Number  # 1: checkpoints that aren't reentrant stop at the last tensor that a backward pass reads
    reentrant: Number  # 1: recomputed layers run under autograd's reentrant checkpoints
    edges_apart: Number  # 1: sharded, embedding and head are units of their own, not one
    stream_pools: Number  # 1: gathered weights and summed gradients are allocated on streams of their own
    inputs_again: Number  # 1: scattered operands of products are gathered again for the gradients of their weights
    gathered_ring: Number  # 1: a ring's keys are gathered, and their gradients go around in 32 bit
    loss_inside: Number  # 1: a sharded model's forward pass ends with the loss, beside the buffer of its last gather
    early_buckets: Number  # 1: buckets that are allocated whole are there at the loss already
    whole_accumulation: Number  # 1: sharded gradients of several micro-batches are whole until the last
    mixed_units: Number  # 1: sharded units hold adapters beside frozen weights, which have gradients then
    unreset_peaks: Number  # 1: the peak of tensors that it prints counts loading
    offload_gradients: Number  # 1: gradients of weights on the host go there as they are summed


class SynchronisationChoice(NamedTuple):
    """How copies of the model agree."""

    kind: Number  # a code of `costmodel.formulas.network.communication`
    servers: Number  # machines of a parameter server, or without GPUs; 0: the nodes themselves serve
    local_steps: Number  # steps between two synchronisations of local SGD; else 1
    link_share: Number = 1.0  # of a link between nodes that the system of servers reaches
    request_time: Number = 0.0  # of a server with one node's requests in a step [s]
    stored: Number = 0.0  # servers store a whole message before they forward it


class CompressionChoice(NamedTuple):
    """How gradients are compressed before their all-reduce."""

    kind: Number  # a code of `costmodel.formulas.network.compression`
    density: Number  # share of the gradients that top-k sends
    rank: Number  # of the matrices that PowerSGD sends


class BucketRule(NamedTuple):
    """How a framework groups gradients and weights into calls; made by `costmodel.formulas.bucket_rules.bucket_rule`."""

    elements: Number  # of a bucket of gradients
    elements_per_rank: Number  # the least, for each rank that sums
    overshoot: Number  # of a tensor, by which a bucket ends beyond that: 0.5 if flushed after, -0.5 if before
    first_stage_only: Number  # 1: other stages and chunks have one bucket each
    gathered_in_buckets: Number  # 1: updated weights are gathered by bucket; else at once
    all_reduced: Number  # 1: ZeRO-1 and ZeRO-2 all-reduce whole gradients
    by_tensor: Number  # 1: updated weights are copied by rank and tensor on their way; else by rank
    units_second: Number  # 1: at stage 2 a layer is a unit, gathered before each forward pass
    units_third: Number  # 1: the same at stage 3
    padded: Number  # 1: every tensor of a unit is padded along its rows to a multiple of the ranks that share it
    edge_again: Number  # 1: embedding and head are gathered for the backward pass again
    prefetched: Number  # elements of a gather at stage 3 where layers are no units
    held: Number  # 1: a bucket of gradients stays allocated, whole
    live: Number  # elements that are gathered at once at stage 3 where layers are no units
    updated: Number  # elements of a shard that are updated at once at stage 3
    reused: Number  # elements within which weights that are used again at stage 3 stay whole; 0: a recomputed layer's all do
    one_by_one: Number  # 1: weights that stay whole are gathered in a call each after the update


class AdapterChoice(NamedTuple):
    """Low-rank adapters beside frozen weights; all 0 where every weight trains."""

    frozen: Number  # 1: the weights themselves don't train
    rank: Number
    query: Number  # 1: this matrix has an adapter; so the others
    key: Number
    value: Number
    fused: Number  # one for queries, keys and values together
    output: Number
    gate: Number
    up: Number
    down: Number
    merged: Number  # 1: matrices that are one have one adapter
    dropout: Number  # 1: an adapter's input is dropped out first
    lifted: Number  # 1: adapters are in 32 bit beside weights in 16, and their inputs are cast up
    uncast: Number  # 1: and their products, whose operands nothing casts down
    apart: Number  # 1: inputs behind norms are cast for each adapter, its own
    saves: Number  # 1: products save their inputs for the backward pass, though their weights don't train
    keep_inputs: Number  # 1: quantised products keep their inputs, though they have no gradient
    unpacked_bytes: Number  # of a parameter held in few bits, as if they went over the device's memory, to unpack it once
    unpacked_flop: Number  # operations in 32 bit that take as long as what decodes it
    unpacking_launches: Number  # kernels that unpack a matrix
    keep_unpacked: Number  # 1: what the forward pass unpacked is kept for the backward pass
    edges: Number  # 1: copies of embedding and head train beside them
    eighth: Number  # 1: frozen weights are in 8 bit, in which the forward pass multiplies them


class OptimizerChoice(NamedTuple):
    """What an optimizer does beside moving its state."""

    newton_schulz_steps: Number  # of Muon; else 0
    passing_bytes: Number  # moved per parameter for tensors that live for one update alone
    held_bytes: Number  # of each element of the largest parameter, while it goes through them one by one
    tensor_kernels: Number  # that the host launches for each tensor, where it goes through them one by one; else 0
    in_backward: Number  # 1: each gradient updates its weight as it is made, and is freed


class OverlapChoices(NamedTuple):
    """Which communication runs beside compute: 1 or 0."""

    gradients: Number
    parameters: Number
    tensor: Number
    pipeline: Number
    experts: Number  # tokens on their way while another micro-batch works


class OffloadShares(NamedTuple):
    """Shares kept on the host."""

    optimizer: Number  # of the optimizer state
    activations: Number  # of the saved activations
    parameters: Number  # of the weights that ZeRO-3 shards
    paged: Number  # 1: what the device has no room for of the optimizer state, page by page


class LoadingNumbers(NamedTuple):
    """How a model comes to its ranks before the first step, and how it is saved."""

    kind: Number  # of weights that are sharded, a code of `costmodel.formulas.transformer.loading`
    replicated: Number  # of others
    mapped: Number  # 1: weights stay where their files are mapped into memory, if they stay as they are written
    saved: Number  # of a parameter that trains, in the host memory of one rank that gathers a checkpoint; 0: none does [bytes]


class SampleLengths(NamedTuple):
    """Lengths of the samples that sequences are made of."""

    batching: Number  # a code of `costmodel.formulas.transformer.lengths`
    mean: Number  # of a sample [tokens]
    attended: Number  # as many tokens as attention looks over at work: those of a sequence, or of a sample in it


class RecomputedParts(NamedTuple):
    """What of the layers is computed again in the backward pass, as a plan says it."""

    every: Number  # every so many layers are recomputed whole, 1: all; less than 1: that share of them; 0: none
    attention: Number  # 1: so is this module of every layer
    norms: Number
    latent_projections: Number
    mlp: Number
    experts: Number
    shared_experts: Number
    expert_activation: Number
    operators: Number


class CapturedModules(NamedTuple):
    """What CUDA graphs hold where it isn't all of each layer: modules of a layer, or the passes of a whole iteration; 1 or 0."""

    attention: Number
    mlp: Number
    router: Number
    iteration: Number


class AdapterTargets(NamedTuple):
    """Matrices that have an adapter: 1 or 0."""

    query: Number
    key: Number
    value: Number
    fused: Number  # one for queries, keys and values together
    output: Number
    gate: Number
    up: Number
    down: Number


class RankPlaces(NamedTuple):
    """Places of the degrees in the order of ranks, innermost 0."""

    tensor: Number
    context: Number
    data: Number
    pipeline: Number


class ServerNumbers(NamedTuple):
    """A system of servers, for one way in which copies of a model agree."""

    link_share: Number  # of what two machines reach over a link by themselves
    request_time: Number  # of a server with one node's requests in a step [s]
    stored: Number  # 1: a whole message is stored before it is forwarded
    hidden: Number  # 1: the exchange runs beside the backward pass


class DeviceFigures(NamedTuple):
    """An accelerator as it is specified and was measured, at one compute dtype; made by `Device.figures`.

    Shares are those of the specified rate or capacity of the same name.
    """

    peak: Number  # dense, at the compute dtype [FLOP/s]
    base_peak: Number  # at the dtype of 16 bit or more in which attention and the head run
    vector_peak: Number  # in 32 bit outside tensor cores; of a device that has none as in its 16-bit dtype
    int8_peak: Number  # in int8; of a device that has none as in its 16-bit dtype
    split_peak: Number  # in TF32, of whose products some kernels make those in 32 bit; where operands are narrower the base's
    memory: Number  # that a process can use [bytes]
    memory_bandwidth: Number  # specified [bytes/s]
    host_bandwidth: Number
    cache: Number  # [bytes]
    gemm: Number
    base_gemm: Number
    gemm_output: Number  # [s/FLOP]
    base_gemm_output: Number
    gemm_depth: Number
    base_gemm_depth: Number
    best: Number
    base_best: Number
    grouped: Number
    grouped_rows: Number
    grouped_output: Number  # [s/FLOP]
    product_share: Number  # of the memory's bandwidth, as the next three
    grouped_share: Number
    streamed_share: Number
    cast_share: Number
    cache_share: Number
    cache_bandwidth: Number
    attention_forward: Number
    attention_backward: Number
    attention_length: Number
    attention_window: Number
    attention_width: Number
    attention_rows: Number
    attention_unaligned: Number
    attention_older: Number
    narrow_attention: Number
    narrow_attention_back: Number
    narrow_wide_attention: Number
    narrow_wide_attention_back: Number
    full_attention: Number
    full_attention_length: Number
    full_attention_width: Number
    kernel_time: Number
    sustained_clock: Number
    narrow: Number
    narrow_clock: Number
    limited_clock: Number  # factor on both by the limit of power


class LevelFigures(NamedTuple):
    """A network level as it is specified, and what its communication library reaches on it; made by `Cluster.figures`."""

    size: Number
    latency: Number
    bandwidth: Number  # before oversubscription
    oversubscription: Number
    mesh: Number  # ranks to each of which a rank has a link of its own; 0: a switch reaches them all
    tree: Number  # 1: switches under a root that carries one link's rate
    channels: Number
    ll_share: Number  # of the bandwidth, that the library's protocol LL reaches
    ll_bandwidth: Number  # or the most that it reaches [bytes/s]
    ll128: Number
    tree_bandwidth: Number
    ring_bandwidth: Number


class EndStages(NamedTuple):
    """Layers that the ends of a pipeline are given; 0 where they are dealt."""

    first: Number
    last: Number


class Settings(NamedTuple):
    """What is chosen once for a whole search, and isn't a degree; made by `Plan.settings`."""

    seq_len: Number  # of the longest sequence, or of one into which samples are packed
    global_batch: Number
    ends: EndStages
    lengths: SampleLengths
    trainable: Number  # share of the parameters that train: 1, or that of low-rank adapters
    adapter: AdapterChoice
    optimizer: OptimizerChoice
    widths: Widths
    kernels: KernelChoices
    framework: FrameworkHabits
    synchronisation: SynchronisationChoice
    compression: CompressionChoice
    buckets: BucketRule
    overlap: OverlapChoices
    offload: OffloadShares
    expandable_segments: Number  # 1: the allocator maps memory where it is needed, page by page
    loading: LoadingNumbers


class PlanNumbers(NamedTuple):
    """How the work is split; made by `Plan.numbers`, or column by column by `search`."""

    tensor: Number
    context: Number
    expert: Number
    expert_tensor: Number
    pipeline: Number
    virtual_stages: Number
    data: Number
    context_stride: Number  # distance in ranks of neighbours in a group; tensor groups have stride 1 if innermost
    tensor_stride: Number
    data_stride: Number
    pipeline_stride: Number
    sequence_parallel: Number
    micro_batch: Number
    schedule: Number  # a code of `costmodel.formulas.pipeline.schedules`
    shard_optimizer: Number  # 1 from ZeRO stage 1 on
    shard_gradients: Number  # 1 from ZeRO stage 2 on
    shard_weights: Number  # 1 at ZeRO stage 3 / FSDP
    shard_group: Number  # data-parallel ranks over which a copy is sharded
    recompute_attention: Number  # 1: attention core recomputed (selective)
    recompute_layers: Number  # share of the layers recomputed whole
    recompute_norms: Number  # 1: so is this module of every layer
    recompute_latent_projections: Number
    recompute_mlp: Number
    recompute_experts: Number  # router, routed and shared experts, and their exchange
    recompute_shared_experts: Number
    recompute_expert_activation: Number
    recompute_operators: Number  # 1: all of a layer but its attention core and every second product


class Inputs(NamedTuple):
    """Everything that the formula of a step takes, in its order."""

    model: ModelNumbers
    settings: Settings
    plan: PlanNumbers
    network: NetworkNumbers
    software: Software
    device: DeviceNumbers


class OwnRun(NamedTuple):
    """What a step that was measured says of plans like its own, beyond the constants."""

    discrepancy: Number  # of their time, in the logarithm, at its own plan
    model: ModelNumbers
    settings: Settings
    plan: PlanNumbers


class Work(NamedTuple):
    """Device time of one layer, or of the head, on one micro-batch [s]."""

    forward: Number  # matrix products
    data: Number  # products of the backward pass that give the input's gradient
    weight: Number  # products that give the weights' gradient
    core_forward: Number  # attention core
    core_backward: Number
    stream_forward: Number  # kernels that move bytes
    stream_backward: Number
    accumulate: Number  # adding weight gradients to those of earlier micro-batches
    again: Number  # forward work of the modules that the backward pass runs again
    unread: Number  # of `forward`, what a recomputed layer leaves out: nobody reads it


class LayerTraffic(NamedTuple):
    """What the kernels between a layer's products read and write in a forward pass [bytes]; its MLP is one or the other.

    Only `shared_inputs` and `outputs` are of the backward pass.
    """

    residuals: Number
    norms: Number
    query_norms: Number  # of queries and keys
    rotary: Number
    mlp: Number
    experts: Number
    shared_experts: Number
    permutation: Number
    expert_biases: Number
    shared_inputs: Number  # gradients that products of one input send back to it, summed; of an average layer
    product_inputs: Number  # cast to 16 bit for products; backward as much for their gradients
    outputs: Number  # of products, whose gradients are read to add up those of biases, and joined


class Cast(NamedTuple):
    """What is read and written to make a layer's operands of 8 or 4 bit in a forward pass [bytes]."""

    attention: Number
    mlp: Number
    permuted: Number  # experts' first operands
    activated: Number  # and second
    shared_experts: Number


class Exchange(NamedTuple):
    """Communication of one layer on one micro-batch, alone on the network [s]."""

    tensor_forward: Number
    tensor_backward: Number
    tensor_again: Number  # of the forward pass, for what is recomputed
    tensor_inputs: Number  # gathered again for gradients of weights, beside products
    context_forward: Number
    context_backward: Number
    expert_forward: Number
    expert_backward: Number
    expert_again: Number


class Layer(NamedTuple):
    """One layer on one micro-batch as the schedule sees it [s]; exchanges are what stays exposed."""

    forward: Number  # device time, slowed by what runs beside it
    data: Number  # backward but for the weight gradients
    weight: Number
    recompute: Number
    tensor: Number
    context: Number
    expert: Number
    host: Number
    hidden: Number  # communication under compute
    total: Number  # of all but `hidden`
    total_forward: Number
    total_weight: Number  # pass by weights, with its share of what the backward pass waits for the host


class LowRankSizes(NamedTuple):
    """What PowerSGD makes of the gradients of weight matrices [elements]."""

    left: Number  # of P
    right: Number  # of Q
    covered: Number  # of the matrices that they stand for
    matrices: Number  # how many of them
    flop: Number


class ExchangeTime(NamedTuple):
    """An exchange: alone on the network, and at the least by its bytes on its links [s]."""

    time: Number
    load: Number


class Synchronised(NamedTuple):
    """What a stage exchanges of gradients and weights: exposed in each micro-batch's passes and once a step, and hidden [s]."""

    forward: Number  # exposed in a forward pass, and the pass's slowing by what is hidden
    backward: Number
    weight: Number  # of `backward`, what waits for sums of gradients in a pass of its own by weights; 0 where there is none
    forward_hidden: Number
    backward_hidden: Number
    reduce: Number  # exposed after the last backward pass
    gather: Number  # exposed at the first forward pass, or after the update
    reduce_hidden: Number
    gather_hidden: Number


class Payload(NamedTuple):
    """What a rank makes of its gradients to exchange them: bytes of each collective, and what that costs the device."""

    whole: Number  # all-reduced as gradients are
    left: Number  # all-reduced: factors P of matrices
    right: Number  # then their factors Q
    scattered: Number  # sent to all in equal parts, the own part included
    gathered: Number  # of one rank, sent to every other
    streamed: Number  # read and written by the kernels that encode and decode
    kernels: Number
    flop: Number


class Summed(NamedTuple):
    """Gradients that a rank of the fuller end of the pipeline has to sum, outside and in the routed experts."""

    dense: Number  # parameters
    routed: Number
    nbytes: Number  # of their gradients that are summed as gradients are
    routed_nbytes: Number
    encoded: Number  # s to exchange what was encoded
    coding: Number  # s to encode and decode


class Memory(NamedTuple):
    """Bytes on the fullest rank; `total` is the sum of the other parts."""

    total: Number
    weights: Number
    gradients: Number
    optimizer: Number
    activations: Number  # saved for the backward pass
    temporaries: Number  # of the pass, or of the update, that is the fullest moment
    logits: Number
    buffers: Number
    overhead: Number


class RankParameters(NamedTuple):
    """Parameters on one rank of a pipeline stage: of a layer of either kind, and of what is none of its layers'."""

    layer: Number  # with a dense MLP
    expert_layer: Number  # with a mixture of experts, outside the routed ones
    routed: Number  # in its routed experts
    edges: Number  # embedding, head, and what predicts further tokens, outside their routed experts
    edges_routed: Number
    head: Number  # of the edges, the matrix to the vocabulary, its own or the embedding's
    embedding: Number  # of the edges, the table of tokens


class LayerBytes(NamedTuple):
    """What a layer of one kind holds on one rank for one micro-batch [bytes]."""

    kept: Number  # from its forward to its backward pass
    graphed: Number  # of it, what graphs hold
    retained: Number  # inputs that outlive the backward pass
    backward: Number  # what its backward pass holds beside, outside graphs
    graphed_backward: Number  # and in them


class Kinds(NamedTuple):
    """What layers with a dense MLP hold on one rank, and those with a mixture of experts."""

    dense: LayerBytes
    expert: LayerBytes


class Place(NamedTuple):
    """What a rank of the pipeline has; of two stages that it runs, the mean."""

    layers: Number
    experts: Number  # of these layers, those with a mixture of experts
    rank: Number  # from 0
    first: Number  # 1: it holds the embedding
    last: Number  # 1: it holds the head


class Contents(NamedTuple):
    """What a pipeline stage holds on one rank [bytes]: states, and what comes and goes in a step."""

    weights: Number  # every version
    gradients: Number
    late_gradients: Number  # of them, those that come up only during the backward pass
    pooled_gradients: Number  # of these, those whose place nothing else takes before
    pooled_unit: Number  # of a gathered layer, where nothing takes its place while there is none
    optimizer: Number
    gathered: Number
    buckets: Number  # in which gradients wait for their reduction, where they stay allocated
    captured: Number  # what doesn't come and go: saved activations and temporaries of graphs, inputs that outlive their pass
    saved: Number  # of one micro-batch, for its backward pass
    in_flight: Number  # micro-batches held at the fullest
    logits: Number  # of one micro-batch at its loss
    loss_block: Number  # of these, the largest tensor of a loss that has three such at once
    waiting_logits: Number  # of one between its loss and its backward pass
    backward: Number  # temporaries of a layer's backward pass
    ending: Number  # what is there beside whole gradients as the last backward pass ends
    update: Number  # temporaries of the optimizer


class Step(NamedTuple):
    """One training step; the times from `forward` to `host` add up to `total`."""

    total: Number  # s
    forward: Number  # device time of the forward passes on the slowest stage
    backward: Number
    recompute: Number
    tensor_exchange: Number  # exposed
    context_exchange: Number
    expert_exchange: Number
    pipeline_exchange: Number
    bubble: Number
    gradient_exchange: Number
    parameter_exchange: Number
    optimizer: Number
    host: Number
    hidden_exchange: Number  # s of communication under compute, not part of the total
    model_flop: Number  # of the whole cluster
    hardware_flop: Number
    memory: Memory
