"""Training software: the defaults in which frameworks differ, and the constants that are theirs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from costmodel.arithmetic.named_tuples import flat
from costmodel.description import fields
from costmodel.description.device import DTYPES, Device
from costmodel.description.dimensions import DIMENSIONS, RANK_ORDER, Dimension
from costmodel.description.fields import ListOf, Name, OneOf, Order, Real, Restriction, Whole, expected, row
from costmodel.description.platforms import OF_ARCHITECTURES, PLATFORMS, in_words
from costmodel.description.recomputation import MODULES, WHOLE, modules_of
from costmodel.formulas import bucket_rules
from costmodel.formulas.pipeline.schedules import CODES
from costmodel.formulas.pipeline.schedules import SCHEDULES as TRAITS
from costmodel.formulas.quantities import FrameworkHabits, OwnRun, ServerNumbers, Software
from costmodel.formulas.settings import (
    ACTIVATION_INPUT_DTYPES,
    ATTENTION_DTYPES,
    ATTENTION_KINDS,
    CONTEXT_COMMUNICATIONS,
    DISPATCHERS,
    LOADINGS,
    LOSSES,
    OPEN,
    OPTIMIZER_KERNELS,
    OPTIMIZERS,
    DefaultChoices,
    FrameworkDefaults,
)
from costmodel.text.attributes import names_what_is_there
from costmodel.text.checks import choice, kind, listing, real, text
from costmodel.text.errors import IllegalPlan, InvalidValue
from costmodel.text.results import brief

SPLITTING = tuple(one.column for one in DIMENSIONS if one.column not in ("data", "virtual_stages"))
SCHEDULES = tuple(TRAITS)
WIDTH = Real(0.0, 64.0)
"""Bytes of one number, or of all that is kept of one."""
REACHED = 0.9
"""Of a link's line rate, by two machines alone: 90 of 100 Gbit/s where server systems were measured (jiang2020, section 7)."""
OF_EXPERTS = ("dispatcher", "overlap_experts")
"""Fields of a plan that say how tokens come to their experts: results are the same, so that a search tries what a framework has
of them."""
SIZES_OF_BUCKETS = ("bucket_bytes", "prefetch_bytes")
"""Fields of a plan that say how much a call takes."""
SWITCHES: Mapping[str, tuple[bool | str, ...]] = {
    **dict.fromkeys((
        "overlap_tensor", "overlap_experts", "fused_cross_entropy", "fused_norms", "fused_activation", "cuda_graphs"), (True,)),
    "dispatcher": DISPATCHERS, "attention": ATTENTION_KINDS,
}  # fmt: skip
"""Choices of a plan that cost nothing to try where the software has them, and the values they may be turned to."""


class ServerSystem(NamedTuple):
    """Constants of a system of servers, as its implementation was measured."""

    name: str
    link_share: float  # of a link's line rate, each way
    request_time: float  # of a server with one worker machine's requests in a step [s]
    stored: bool  # a whole message is stored before it is forwarded
    hidden: bool  # the exchange runs beside the backward pass

    @property
    def reached_share(self) -> float:
        """Of what two machines reach over the link by themselves."""
        return min(1.0, self.link_share / REACHED)


OF_PLANS = (
    "choices", "habits", "server", "schedule", "chunked_schedule", "narrow_weights", "sharded_dtype", "context_communication",
    "buckets", "replicated_buckets", "optimizer_kernel", "replicated_loading", "own_loss",
)  # fmt: skip
"""Numbers of its defaults that are no numbers of its own."""
OF_DTYPE = ("narrow_weights", "sharded_dtype")
"""Those of them that are of the plan's dtype."""


def _offered(name: str, values: Sequence[object], has: str, reason: str, beside: str = "") -> Restriction:
    """A field that is one of what a framework has, where several ranks need it."""
    text = f"{name}={{{name}}}: {has} {', '.join(map(str, values))}"
    return Restriction(name, tuple(values), text, beside, above=1 if beside else None, reason=reason)


@names_what_is_there
@dataclasses.dataclass(frozen=True, kw_only=True)
class Framework:
    """A software stack.

    Parameters
    ----------
    name : what it is called
    constants : calibrated, a `costmodel.formulas.quantities.Stack`
    zero_stage : default sharding of states over data-parallel ranks, 0 to 3
    zero_stages : every stage that it has
    largest_pipelined_zero_stage : highest stage that it runs with pipeline parallelism
    sharding_dtypes : in which its optimizer's state is sharded whatever the stage, so that none is stage 1
    grouped_zero_stages : those at which ranks can share a copy in groups, each group a copy of its own
    rank_orders : degrees from innermost to outermost, every order that it can place ranks in; the first is its default
    dimensions : along which it can split, columns of `costmodel.description.dimensions.DIMENSIONS`; data it always can
    apart : pairs of those that it can't split at once
    elsewhere : of those that it lacks, each with names of frameworks that have it, for whoever asks for it
    schedules : of pipelines that it has
    schedule : of a pipeline of one chunk a rank, which a search tries where none is asked for; 1F1B if empty
    platforms : that it, or a port by a device's vendor, is documented to train on; if empty it isn't known where it doesn't
    dtypes : in which it multiplies
    context_communications : of context parallelism that it has; the first is its default
    sequence_parallel : default under tensor parallelism
    gradient_bytes : of an accumulated gradient [bytes]
    reduce_bytes : of a gradient on the wire [bytes]
    half_gradients : in fp16 gradients are summed in fp16, and copied to 32 bit by the update
    optimizer_bytes : master weights and moments per parameter [bytes]
    sharded_optimizer_bytes, sharded_update_bytes : the same, and what its update holds, where states are sharded, if that is
        another's code; else 0 [bytes]
    parameter_bytes : of the weights that are multiplied [bytes]
    held_bytes : of a weight that trains as it is held, where that is wider than what is multiplied, which then is there only
        while it is gathered; 0: as wide [bytes]
    logit_bytes : held per logit at the peak by its own loss [bytes]
    layernorm_logit_bytes : the same where a model's norms are LayerNorms, if the code of such models has another loss; else 0
        [bytes]
    tensor_logit_bytes : the same where a tensor group splits the vocabulary, if its loss is another then; else 0 [bytes]
    logit_traffic, tensor_logit_traffic : read and written per logit by each of both losses, forward and backward, beside the
        head's products [bytes]
    own_loss : its own by name, where that says more than bytes of a logit; a plan's takes its place, or one kernel
    wide_residual : norms, embedding and head beside weights of bitsandbytes are in 32 bit, as `Plan.wide_residual` has it
    wide_embedding_moments : 8-bit moments of an embedding are in 32 bit
    wide_adapters : beside weights in 16 bit adapters are in 32 bit, and so are their gradients and moments; not where a
        library shards them that casts all weights
    narrow_quantised_adapters : but beside quantised weights they are in 16 bit, too
    engine_casts : where states are sharded its engine casts all weights to the plan's dtype, what `wide_residual` lifts too
    saved_frozen_inputs : where weights are sharded products save their inputs for the backward pass, frozen ones too
    uncast_adapters : where weights are sharded adapters stay in 32 bit, as they were made, and so do their products
    wide_quantised : without mixed precision products of weights of bitsandbytes run in 32 bit whatever the plan's dtype, as what
        they read is
    mixed_precision : what is in 32 bit is cast where it is multiplied, as `Plan.mixed_precision` has it
    early_stop : under checkpoints that aren't reentrant a layer is made again up to the last tensor that its backward pass reads
    reentrant : recomputed layers run under autograd's reentrant checkpoints
    edges_apart : where weights are sharded, embedding and head are units of their own, each gathered for its use; else one
    stream_pools : gathered weights and summed gradients are allocated on streams of their own, whose memory no pass takes
    loss_inside : the loss is part of a sharded model's forward pass, at whose end goes the buffer into which its last unit was
        gathered
    early_buckets : buckets of gradients that are allocated whole are there before the backward pass begins, else from the first
        gradient on
    inputs_again : under sequence parallelism what a tensor group multiplies is gathered again for the gradients of its weights,
        beside the products that make those of what it multiplied
    gathered_ring : a ring's keys and values are gathered, each way, and their gradients go all around it in 32 bit
    whole_accumulation : gradients that are sharded are whole in a step of several micro-batches until the last, whose backward
        pass sums them
    mixed_units : units of sharded weights hold adapters beside frozen weights, whose gradients are made and summed with theirs
    unties : of a model whose embedding is its head it trains two matrices
    unreset_peaks : nothing sets its peak of tensors back before the first step, so that it counts what loading took, too
    offload_gradients : gradients of weights that lie on the host go there as they are summed; else they wait on the device
    updates_in_backward : it can update each weight as the backward pass makes its gradient
    pages_states : it takes the optimizers of bitsandbytes whose state is paged
    recompute : what its trainer recomputes unless it is told not to: ``"full"``, or ``"none"``
    activation_offload : share of what is kept then that it sends to the host
    recompute_modules : of a layer, that it recomputes alone, of `costmodel.description.recomputation.MODULES`
    attention : default kernel
    attention_dtypes : in which its attention core may multiply, beside that of the activations
    activation_input_dtypes : in which what a gated MLP's activation reads may be stored between its passes
    first_flash : its flash attention is FlashAttention 1, or Triton's of its time
    always_masked : attention is given a mask of padding, as all samples are padded to one length
    older_flash : its flash attention is FlashAttention 2, written for Ampere, on newer devices too
    whole_graphs : what is compiled together spans layers; else each is compiled by itself
    compiled : what lies between products is compiled (XLA, Inductor): mask, scale and softmax of unfused attention are one kernel
    fits_device : its compiler makes again what it takes for a step to fit the device, beyond what a plan says
    fused_cross_entropy, fused_norms, expandable_segments, dispatcher : defaults
    overlap_gradients, overlap_parameters, overlap_tensor, overlap_pipeline, overlap_experts : defaults
    scatter_boundary : a tensor group splits what it sends to the next pipeline stage
    separate_rotation : queries and keys are rotated by several kernels
    sample_rotation_kernels : that the host launches to rotate the queries, or keys, of one packed sample forward, where each is
        rotated by itself once the host has read their lengths; 0 where a kernel rotates all
    keep_rotated : queries and keys are kept before and after their rotation
    repeat_keys : keys and values that several queries share are copied for each before the attention kernel
    wide_scores : unfused attention takes its softmax in 32 bit, but of models like GPT-2 with learned positions, and keeps it so
        beside a copy as wide as its queries; keys and values are there once for each query
    keep_quantised_inputs : products with quantised weights keep their inputs, unread, until the next loss replaces the last
    merged_adapters : queries, keys and values have one adapter, and gate and up, as one matrix makes them
    adapter_dropout : what its adapters take is dropped out, as its recipes have it; default of `Plan.adapter_dropout`
    eager_unpacking : weights in NF4 are decoded by PyTorch's kernels, as torchao does, unless they are compiled
    branched_unpacking : weights in NF4 are decoded by branches, as bitsandbytes did before 0.48
    added_adapters : products add what adapters make, forward and backward, and what adapters' gradients are made of is made again
    keep_expert_outputs : the router's probabilities weigh the outputs of experts, which are kept for it; else what their second
        product reads
    wide_norms : an RMSNorm of separate kernels multiplies by its weight in 32 bit, whatever the model
    keep_activated : activation and product of a gated MLP are separate kernels, and the activated gate is kept beside both
    separate_projections : queries, keys and values are products of their own, and so are gate and up of a gated MLP
    grouped_experts : one kernel multiplies for all experts of a rank; else they are multiplied one by one, if no plan fuses them
    looped_expert_kernels : that the host launches for the forward pass of one expert, where it goes through a rank's in a loop; 0
        where it doesn't
    fused_accumulation : products of weight gradients add them to the accumulated ones in their own kernel, unless gradients are
        sharded (NVIDIA-NeMo/Megatron-Bridge pull request 1386 turns it off under Megatron-FSDP)
    weighed_experts : PyTorch's own kernels put the tokens of experts that one product serves in order, weigh them in 32 bit, and
        add them up
    weight_traffic : of each weight, that kernels beside products move in a micro-batch to cast it, and to cast, copy and add its
        gradient [bytes]; 0: what autocast casts, and what it takes to add a gradient to the accumulated one
    module_hooks : where weights are sharded, hooks around every module gather and release its own
    hooked_experts : so they do around each expert's; else all experts of a layer are gathered as one module
    deferred_sums : under a pipeline gradients that are sharded are summed once a step, and whole until then
    narrow_copies : in 8 and 4 bit, what products save are their inputs as cast, and each weight is held cast twice (also
        transposed); else they are cast again when needed
    narrow_weights : dtypes of 8 and 4 bit in which layers' weights are held as cast alone, in both layouts, and gathered so
    activation_input_bytes : where products are narrow, of what an MLP's activation reads, as saved for its backward pass; 0: as
        wide as it is [bytes]
    attention_output_bytes : where products are narrow, of an attention kernel's output as saved for it and for the product
        behind it; 0: as wide as it is, and the product's narrow copy beside [bytes]
    backward_gradient_bytes : of a second copy of each gradient, as the backward pass leaves it, held all step [bytes]
    retained_logit_bytes : per logit of the micro-batch before, still held at the next one's loss [bytes]
    staged_logit_bytes : per logit that a pipeline's last stage keeps as a micro-batch's output through its backward pass [bytes]
    lazy_gradients : gradients are freed after the update, and come up as the next backward pass makes them
    flat_gradient_bytes : of a flat copy of all gradients that several ranks sum, made before the update [bytes]
    double_registers : with several micro-batches every tensor that comes and goes is there twice, filled in turns
    flat_updates : what an update holds lies in buffers as large as a shard, which no freed block can hold
    blocking_launches : the host waits for every kernel before it launches the next, as under ``CUDA_LAUNCH_BLOCKING=1``: it never
        runs ahead, and nothing runs beside anything
    host_update_rate : most at which its optimizer passes its state through the memory of a node's processors; what that memory
        reaches, by the generation of the host, if more: Grace's LPDDR5X, or two processors of eight DDR5 channels [bytes/s]
    update_bytes : held per updated parameter while the optimizer runs [bytes]
    own_activations : its layers are its own code, in which an activation without a gate is one kernel, whatever a model's authors
        have written out
    own_inputs : each product that a tensor group splits keeps a copy of its input, also where others read the same
    keep_gathered : under sequence parallelism the gathered inputs of products are kept for the backward pass
    balanced_stages : layers are dealt to pipeline stages by cost, the vocabulary projection counted in
    listed_chunks : with several chunks a rank their layers can be listed, so that the first and the last hold any number
    buckets : rule by which gradients and weights are grouped into calls, one of `costmodel.formulas.bucket_rules.RULES`
    replicated_buckets : the same where no state is sharded, if that is another's code
    loading : how a model comes to ranks that shard its weights, as `Plan.loading` has it
    optimizer_kernel : by which Adam updates, as `Plan.optimizer_kernel` has it
    looped_calls, looped_accesses : of operators that its own loop over tensors makes for each, and numbers that these read and
        write for each parameter beyond the seven of one kernel: PyTorch's unless it is said
    replicated_loading : the same where weights aren't sharded, if it comes otherwise
    read_positions : a flash kernel's wrapper reads the positions of a micro-batch of one sequence, which the host waits for
    binned_length : most tokens of a sample of its own data at which its loader makes micro-batches of samples of a bin of like
        lengths; 0 where it has no such loader
    binned_mean : mean length of those samples [tokens]
    mapped_checkpoints : files are mapped into memory, where weights stay that are as they were written, one copy for a node
    saved_bytes : of a parameter that trains, which one rank gathers in host memory to save a checkpoint where weights are
        sharded; 0: every rank saves its own [bytes]
    gather_logits : the loss sees the whole vocabulary on every tensor rank
    operator_fuser : Transformer Engine's operation fuser may run its dense MLPs and adapters
    autocast : weights that train are in 32 bit, cast where they are multiplied and kept so for the backward pass; what isn't a
        product stays in 32 bit, layers' inputs and what norms read among it
    autocast_context : under mixed precision forward passes run in PyTorch's autocast, which lifts LayerNorms and powers to 32 bit
        whatever the weights
    linear_loss : its fused loss is one with the head, chunk by chunk, so that all logits are never there
    switches : what it has beyond its defaults and a plan may turn on: fields of `Plan` and their values, of `SWITCHES`
    server_systems : constants of parameter servers and of BytePS, by the plan's `synchronisation`; links alone where it has none
    time_error : standard deviation of log(measured / predicted) where it was measured on the user's own runs
    memory_error : the same of peak memory
    own_factor : on every step's time, which the user's own runs of the cluster have in common
    own_runs : what these say of plans like theirs, `costmodel.formulas.quantities.OwnRun`, as `costmodel.calibrate` found it
    owner : under what name calibration keeps the errors of the constants
    release : month from which on it has done as is said here; empty where nothing is known to have changed
    title : one line about it
    """

    name: str = field(metadata=row(Name()))
    constants: Software
    zero_stage: int = field(default=1, metadata=row(Whole(0, 3)))
    zero_stages: Sequence[int] = field(default=(0, 1, 2, 3), metadata=row(ListOf(Whole(0, 3))))
    sharding_dtypes: Sequence[str] = field(default=(), metadata=row(ListOf(OneOf(DTYPES))))
    largest_pipelined_zero_stage: int = field(default=1, metadata=row(Whole(0, 3)))
    grouped_zero_stages: Sequence[int] = field(default=(), metadata=row(ListOf(Whole(0, 3))))
    rank_orders: Sequence[Sequence[str]] = field(default=(RANK_ORDER,), metadata=row(ListOf(Order(RANK_ORDER))))
    dimensions: Sequence[str] = field(default=SPLITTING, metadata=row(ListOf(OneOf(SPLITTING))))
    apart: Sequence[Sequence[str]] = ()
    elsewhere: Sequence[Sequence[str]] = ()
    schedules: Sequence[str] = field(default=SCHEDULES, metadata=row(ListOf(OneOf(SCHEDULES))))
    schedule: str = ""
    platforms: Sequence[str] = field(default=(), metadata=row(ListOf(OneOf(tuple(PLATFORMS)))))
    dtypes: Sequence[str] = field(default=DTYPES, metadata=row(ListOf(OneOf(DTYPES))))
    context_communications: Sequence[str] = field(default=("ring",), metadata=row(ListOf(OneOf(CONTEXT_COMMUNICATIONS))))
    updates_in_backward: bool = False
    pages_states: bool = False
    recompute: str = field(default="none", metadata=row(OneOf(("none", "full"))))
    activation_offload: float = field(default=0.0, metadata=row(Real(0.0, 1.0)))
    recompute_modules: Sequence[str] = field(default=(), metadata=row(ListOf(OneOf(MODULES))))
    sequence_parallel: bool = True
    gradient_bytes: float = field(default=4.0, metadata=row(WIDTH, unit="bytes"))
    reduce_bytes: float = field(default=4.0, metadata=row(WIDTH, unit="bytes"))
    optimizer_bytes: float = field(default=12.0, metadata=row(WIDTH, unit="bytes"))
    parameter_bytes: float = field(default=2.0, metadata=row(WIDTH, unit="bytes"))
    held_bytes: float = field(default=0.0, metadata=row(WIDTH, unit="bytes"))
    logit_bytes: float = field(default=6.0, metadata=row(WIDTH, unit="bytes"))
    layernorm_logit_bytes: float = field(default=0.0, metadata=row(WIDTH, unit="bytes"))
    tensor_logit_bytes: float = field(default=0.0, metadata=row(WIDTH, unit="bytes"))
    logit_traffic: float = field(default=52.0, metadata=row(Real(0.0, 1e3), unit="bytes"))
    tensor_logit_traffic: float = field(default=52.0, metadata=row(Real(0.0, 1e3), unit="bytes"))
    own_loss: str | None = field(default=None, metadata=row(OneOf(LOSSES)))
    attention: str = field(default="flash", metadata=row(OneOf(ATTENTION_KINDS)))
    attention_dtypes: Sequence[str] = field(default=(), metadata=row(ListOf(OneOf(ATTENTION_DTYPES))))
    activation_input_dtypes: Sequence[str] = field(default=(), metadata=row(ListOf(OneOf(ACTIVATION_INPUT_DTYPES))))
    older_flash: bool = False
    always_masked: bool = False
    whole_graphs: bool = False
    compiled: bool = False
    fits_device: bool = False
    first_flash: bool = False
    fused_cross_entropy: bool = False
    fused_norms: bool = True
    overlap_gradients: bool = True
    overlap_parameters: bool = True
    overlap_tensor: bool = False
    overlap_pipeline: bool = False
    overlap_experts: bool = False
    dispatcher: str = field(default="all-to-all", metadata=row(OneOf(DISPATCHERS)))
    expandable_segments: bool = False
    scatter_boundary: bool = False
    gather_logits: bool = False
    operator_fuser: bool = False
    autocast: bool = False
    autocast_context: bool = False
    linear_loss: bool = False
    own_activations: bool = False
    own_inputs: bool = False
    keep_gathered: bool = False
    wide_residual: bool = False
    wide_embedding_moments: bool = False
    wide_adapters: bool = False
    narrow_quantised_adapters: bool = False
    engine_casts: bool = False
    saved_frozen_inputs: bool = False
    uncast_adapters: bool = False
    wide_quantised: bool = False
    mixed_precision: bool = True
    early_stop: bool = False
    reentrant: bool = False
    edges_apart: bool = False
    stream_pools: bool = False
    loss_inside: bool = False
    early_buckets: bool = False
    inputs_again: bool = False
    gathered_ring: bool = False
    whole_accumulation: bool = False
    mixed_units: bool = False
    unties: bool = False
    unreset_peaks: bool = False
    offload_gradients: bool = True
    separate_rotation: bool = False
    sample_rotation_kernels: float = field(default=0.0, metadata=row(Real(0.0, 1e3)))
    keep_rotated: bool = False
    repeat_keys: bool = False
    wide_scores: bool = False
    keep_quantised_inputs: bool = False
    merged_adapters: bool = False
    adapter_dropout: bool = True
    eager_unpacking: bool = False
    branched_unpacking: bool = False
    added_adapters: bool = False
    wide_norms: bool = False
    keep_activated: bool = False
    keep_expert_outputs: bool = True
    separate_projections: bool = False
    grouped_experts: bool = True
    looped_expert_kernels: float = field(default=0.0, metadata=row(Real(0.0, 1e3)))
    fused_accumulation: bool = False
    half_gradients: bool = False
    weighed_experts: bool = False
    weight_traffic: float = field(default=0.0, metadata=row(WIDTH, unit="bytes"))
    module_hooks: bool = False
    hooked_experts: bool = False
    deferred_sums: bool = False
    narrow_copies: bool = False
    narrow_weights: Sequence[str] = field(default=(), metadata=row(ListOf(OneOf(DTYPES))))
    activation_input_bytes: float = field(default=0.0, metadata=row(WIDTH, unit="bytes"))
    attention_output_bytes: float = field(default=0.0, metadata=row(WIDTH, unit="bytes"))
    lazy_gradients: bool = False
    backward_gradient_bytes: float = field(default=0.0, metadata=row(WIDTH, unit="bytes"))
    retained_logit_bytes: float = field(default=0.0, metadata=row(WIDTH, unit="bytes"))
    staged_logit_bytes: float = field(default=0.0, metadata=row(WIDTH, unit="bytes"))
    update_bytes: float = field(default=0.0, metadata=row(WIDTH, unit="bytes"))
    sharded_optimizer_bytes: float = field(default=0.0, metadata=row(WIDTH, unit="bytes"))
    sharded_update_bytes: float = field(default=0.0, metadata=row(WIDTH, unit="bytes"))
    flat_gradient_bytes: float = field(default=0.0, metadata=row(WIDTH, unit="bytes"))
    double_registers: bool = False
    flat_updates: bool = False
    blocking_launches: bool = False
    host_update_rate: float = field(default=5e11, metadata=row(Real(1e3, 1e15), unit="bytes/s"))
    balanced_stages: bool = False
    listed_chunks: bool = False
    buckets: str = field(default="one", metadata=row(OneOf(bucket_rules.RULES)))
    replicated_buckets: str | None = field(default=None, metadata=row(OneOf(bucket_rules.RULES)))
    loading: str = field(default="parts", metadata=row(OneOf(LOADINGS)))
    optimizer_kernel: str = field(default="fused", metadata=row(OneOf(OPTIMIZER_KERNELS)))
    looped_calls: float = field(default=8.0, metadata=row(Real(0.0, 1e3)))
    looped_accesses: float = field(default=13.0, metadata=row(Real(0.0, 1e3)))
    replicated_loading: str | None = field(default=None, metadata=row(OneOf(LOADINGS)))
    read_positions: bool = False
    mapped_checkpoints: bool = False
    binned_length: int = field(default=0, metadata=row(Whole(0, 10**8), unit="tokens"))
    binned_mean: float = field(default=0.0, metadata=row(Real(0.0, 1e8), unit="tokens"))
    saved_bytes: float = field(default=0.0, metadata=row(WIDTH, unit="bytes"))
    switches: Sequence[tuple[str, bool | str]] = ()
    server_systems: Sequence[ServerSystem] = ()
    time_error: float | None = field(default=None, metadata=row(Real(0.0, 10.0)))
    memory_error: float | None = field(default=None, metadata=row(Real(0.0, 10.0)))
    own_factor: float = field(default=1.0, metadata=row(Real(1e-3, 1e3)))
    own_runs: Sequence[OwnRun] = ()
    owner: str = ""
    release: str = ""
    title: str = ""

    __repr__ = brief

    def server_system(self, synchronisation: str) -> ServerSystem:
        """Constants of a plan's way to synchronise; those of links alone where it has none of its own."""
        ideal = ServerSystem(synchronisation, 1.0, 0.0, False, True)
        return next((system for system in self.server_systems if system.name == synchronisation), ideal)

    def __post_init__(self) -> None:
        fields.check(self)
        choice("zero_stage", self.zero_stage, self.zero_stages)
        given: object = self.switches  # a table where it comes from a file
        pairs = given.items() if isinstance(given, Mapping) else listing("switches", given)
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise InvalidValue("switches", given, "pairs of a field of Plan and its value")
        object.__setattr__(self, "switches", tuple(tuple(pair) for pair in pairs))
        for name, value in self.switches:
            choice(f"switches.{name}", value, SWITCHES[choice("switches", name, tuple(SWITCHES))])
        systems = listing("server_systems", self.server_systems)
        object.__setattr__(self, "server_systems", systems)
        for system in systems:
            kind("server_systems", system, ServerSystem, "ServerSystem(name=..., ...)")
        if self.schedule:
            choice("schedule", self.schedule, self.schedules)
        for name in ("apart", "elsewhere"):
            rows = tuple(tuple(listing(name, one)) for one in listing(name, getattr(self, name)))
            object.__setattr__(self, name, rows)
        for pair in self.apart:
            if len(pair) != 2 or pair[0] == pair[1] or not set(pair) <= set(SPLITTING):
                raise InvalidValue("apart", pair, f"two of {', '.join(SPLITTING)}")
        for named in self.elsewhere:
            choice("elsewhere", named[0] if named else "", SPLITTING)
            for name in named[1:]:
                text("elsewhere", name)
        object.__setattr__(self, "own_runs", listing("own_runs", self.own_runs))
        for run in self.own_runs:
            kind("own_runs", run, OwnRun, "what costmodel.calibrate found")
            real("own_runs", run.discrepancy, -10.0, 10.0)
        if not isinstance(self.constants, Software):
            raise InvalidValue("constants", self.constants, "a Software of calibrated constants")
        for name, value in flat(self.constants).items():
            real(name, value, 0.0, 1e12)

    def bucket_rule(self, zero_stage: int | None, prefetch_bytes: float | None = None) -> str:
        """The rule by which gradients and weights are grouped into calls at a stage of sharding.

        Parameters
        ----------
        zero_stage : 0 to 3
        prefetch_bytes : that a plan asks to gather ahead: a choice of the code that shards
        """
        defaults = self.defaults()
        stage, ahead = (OPEN if value is None else float(value) for value in (zero_stage, prefetch_bytes))
        code = bucket_rules.rule_at(stage, ahead, defaults.buckets, defaults.replicated_buckets)
        return tuple(bucket_rules.RULES)[int(code)]

    @property
    def overrules(self) -> bool:
        """Whether of some plans it does otherwise than they say."""
        return bool(self.sharding_dtypes) or self.wide_quantised

    @property
    def trains_copies(self) -> bool:
        """Whether its optimizer has a copy of the weights in 32 bit, beside those that are multiplied."""
        return self.held_bytes <= 0.0 and self.optimizer_bytes > sum(OPTIMIZERS["adam-bf16"])

    @property
    def degrees(self) -> str:
        """Names of the degrees by which it splits, in words."""
        return ", ".join(one.field for one in DIMENSIONS if one.column in ("data", *self.dimensions))

    @property
    def lacking(self) -> tuple[Dimension, ...]:
        """Dimensions along which it can't split."""
        return tuple(one for one in DIMENSIONS if one.column in SPLITTING and one.column not in self.dimensions)

    @property
    def exclusive(self) -> tuple[tuple[Dimension, Dimension], ...]:
        """Pairs of dimensions that it can't split at once."""
        known = {one.column: one for one in DIMENSIONS}
        return tuple((known[first], known[second]) for first, second in self.apart)

    def instead(self, lacking: Dimension) -> str:
        """Which frameworks split along a dimension that this one lacks, as the end of a refusal; empty where none is named."""
        names = next((row[1:] for row in self.elsewhere if row[0] == lacking.column), ())
        return f"; {' and '.join(names)} {'has' if len(names) == 1 else 'have'} {lacking.field}" if names else ""

    def trained_with(self) -> dict[str, Any]:
        """What its trainer chooses of a plan that recomputes as it does: nothing where that is nothing."""
        chosen = {"recompute": self.recompute, "activation_offload": self.activation_offload}
        return {} if self.recompute == "none" else {name: value for name, value in chosen.items() if value}

    def turns(self, rank_order: Sequence[str]) -> bool:
        """Whether ranks in an order stand otherwise than in its own."""
        return tuple(rank_order) != self.rank_orders[0]

    def trains_on(self, device: Device) -> bool:
        """Whether it trains on a device; of one whose architecture is of no known platform that is taken for granted."""
        return not self.platforms or OF_ARCHITECTURES.get(device.architecture) in (None, *self.platforms)

    @property
    def whereabouts(self) -> str:
        """Where it trains, in words; empty where that isn't known."""
        return f"trains on {in_words(self.platforms)}" if self.platforms else ""

    def check_device(self, device: Device) -> None:
        """Raise `IllegalPlan` where it doesn't train on a device."""
        if not self.trains_on(device):
            raise IllegalPlan("device_of_framework", f"framework {self.name} on {device.name}: it {self.whereabouts}")

    def recomputes(self, recompute: str | float) -> bool:
        """Whether it has a kind of recomputation, as a plan names it."""
        return recompute in WHOLE or set(modules_of(recompute)) <= set(self.recompute_modules)

    @functools.cached_property
    def restrictions(self) -> tuple[Restriction, ...]:
        """What it holds the fields of a plan to, its defaults filled in, whatever the model and the cluster; without a reason
        where a plan asks for a size that its code doesn't have."""
        has = f"{self.name} has"
        degrees = [
            Restriction(one.field, (1,), f"{one.field}={{{one.field}}}: {has} {self.degrees}{self.instead(one)}",
                        reason="degrees_of_framework") for one in self.lacking
        ] + [
            Restriction(one.field, (1,), f"{one.field}={{{one.field}}} with {other.field}={{{other.field}}}: {has} one of them "
                        "at a time", other.field, above=1, reason="degrees_of_framework") for one, other in self.exclusive
        ]  # fmt: skip
        most = self.largest_pipelined_zero_stage
        known = (
            *degrees,
            _offered("zero_stage", self.zero_stages, f"{has} stages", "zero_stage"),
            Restriction("parameter_offload", (0,), "parameter_offload={parameter_offload} with zero_stage={zero_stage}: weights "
                        "lie on the host where stage 3 shards them", "zero_stage", (0, 1, 2), reason="parameter_offload"),
            Restriction("zero_stage", tuple(range(most + 1)), "zero_stage={zero_stage} with pipeline_parallel="
                        f"{{pipeline_parallel}}: {self.name} shards at most stage {most} under a pipeline",
                        "pipeline_parallel", above=1, reason="zero_pipeline"),
            _offered("schedule", self.schedules, has, "schedule_of_framework", "pipeline_parallel"),
            _offered("context_communication", self.context_communications, has, "context_of_framework", "context_parallel"),
            _offered("dtype", self.dtypes, has, "dtype_of_framework"),
            Restriction("fused_operators", (False, self.operator_fuser), f"fused_operators={{fused_operators}}: {self.name} runs "
                        "nothing by Transformer Engine's operation fuser", reason="operators_of_framework"),
            Restriction("attention_dtype", (None, *self.attention_dtypes), f"attention_dtype={{attention_dtype}}: {has} no such "
                        "attention kernel", reason="attention_of_framework"),
            Restriction("activation_input_dtype", (None, *self.activation_input_dtypes), "activation_input_dtype="
                        f"{{activation_input_dtype}}: {self.name} stores what an activation reads as it is",
                        reason="stored_by_framework"),
            *(Restriction(end, (None,), f"{end}={{{end}}}: {self.name} deals layers itself", reason="stages_of_framework")
              for end in ("first_stage_layers", "last_stage_layers") if not self.listed_chunks),
            Restriction("narrow_parameters", (None, False, self.narrow_copies), f"narrow_parameters={{narrow_parameters}}: "
                        f"{self.name} holds weights in 16 or 32 bit", reason="parameters_of_framework"),
            Restriction("update_in_backward", (False, self.updates_in_backward), "update_in_backward={update_in_backward}: "
                        f"{self.name} updates all weights after the backward pass", reason="update_of_framework"),
            Restriction("paged_optimizer", (False, self.pages_states), f"paged_optimizer={{paged_optimizer}}: {self.name} takes "
                        "no optimizer of bitsandbytes", reason="paging_of_framework"),
            Restriction("mixed_precision", (None, True, self.trains_copies), f"mixed_precision={{mixed_precision}}: {self.name} "
                        "trains a copy of its weights in 32 bit", reason="precision_of_framework"),
        )  # fmt: skip
        return known + self._sizes_of_buckets()

    @property
    def offered(self) -> dict[str, Sequence[str]]:
        """What it has of choices of a plan that differ from framework to framework, whatever else they come with."""
        return {"schedule": self.schedules, "dtype": self.dtypes, "context_communication": self.context_communications}

    def recomputed(self, kinds: Sequence[str | float]) -> Restriction:
        """What it recomputes of some kinds, as a restriction.

        Parameters
        ----------
        kinds : as a plan names them
        """
        allowed = tuple(one for one in kinds if self.recomputes(one))
        listed = ", ".join((*WHOLE, *self.recompute_modules))
        return Restriction(
            "recompute", allowed, f"recompute={{recompute}}: {self.name} has {listed}", numbers=True,
            reason="recompute_of_framework",
        )

    def _sizes_of_buckets(self) -> tuple[Restriction, ...]:
        """Of calls that a plan can't size."""
        whole = expected("bucket_bytes", "None: the framework's buckets are not modelled, it has one")
        gathered = expected("prefetch_bytes", "None: only DeepSpeed gathers by buckets, others by layer")
        by_stage = [(self.replicated_buckets or self.buckets, (0,)), (self.buckets, (1, 2, 3))]
        found = [Restriction("bucket_bytes", (None,), whole, "zero_stage", stages)
                 for rule, stages in by_stage if rule in bucket_rules.UNLIMITED]  # fmt: skip
        if self.buckets not in bucket_rules.PREFETCHING:
            found.append(Restriction("prefetch_bytes", (None,), gathered))
        return tuple(found)

    @property
    def default_schedules(self) -> tuple[str, str]:
        """What runs where nothing is said: a pipeline of one chunk a rank, and of several."""
        usual = sorted(self.schedules, key=lambda name: name not in (self.schedule or "1f1b", "interleaved"))
        whole = (name for name in usual if not TRAITS[name].chunked)
        return next(whole, "1f1b"), next((name for name in usual if TRAITS[name].chunked), "interleaved")

    def defaults(self, synchronisation: str = "all-reduce", dtype: str = "bf16") -> FrameworkDefaults:
        """The defaults as the numbers that formulas take.

        Parameters
        ----------
        synchronisation : of a plan
        dtype : of its GEMMs
        """
        key = synchronisation, dtype
        if key not in self._defaults:
            self._defaults[key] = self._made_defaults(*key)
        return self._defaults[key]

    @functools.cached_property
    def _defaults(self) -> dict[tuple[str, str], FrameworkDefaults]:
        return {}

    def _made_defaults(self, synchronisation: str, dtype: str) -> FrameworkDefaults:
        system, (schedule, chunked) = self.server_system(synchronisation), self.default_schedules
        kinds = fields.table(Framework)
        given = [name for name in FrameworkDefaults._fields if name not in OF_PLANS]
        return FrameworkDefaults(
            choices=DefaultChoices(*(kinds[name].kind.code(getattr(self, name)) for name in DefaultChoices._fields)),
            habits=FrameworkHabits(*(float(getattr(self, name)) for name in FrameworkHabits._fields)),
            server=ServerNumbers(system.reached_share, system.request_time, float(system.stored), float(system.hidden)),
            schedule=CODES[schedule], chunked_schedule=CODES[chunked], narrow_weights=float(dtype in self.narrow_weights),
            sharded_dtype=float(dtype in self.sharding_dtypes), own_loss=kinds["own_loss"].kind.code(self.own_loss),
            context_communication=float(CONTEXT_COMMUNICATIONS.index(self.context_communications[0])),
            buckets=bucket_rules.CODES[self.buckets],
            replicated_buckets=bucket_rules.CODES[self.replicated_buckets] if self.replicated_buckets else OPEN,
            optimizer_kernel=float(tuple(OPTIMIZER_KERNELS).index(self.optimizer_kernel)),
            replicated_loading=LOADINGS[self.replicated_loading] if self.replicated_loading else OPEN,
            **{name: float(getattr(self, name)) for name in given},
        )  # fmt: skip

    def numbers(self) -> Software:
        """The constants that formulas take."""
        return self.constants
