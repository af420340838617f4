"""A plan as the other formulas take it: from its choices and the framework's defaults to widths, kernels and shares of ranks.

A choice is its place in the table of its names here, or in `costmodel.formulas.pipeline.schedules.CODES`; one that is left open
is `OPEN`.
"""

# annotations are objects here, as in `costmodel.formulas.quantities`
from typing import Any, NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas.bucket_rules import DISTRIBUTED, bucket_rule, rule_at
from costmodel.formulas.network import communication, compression
from costmodel.formulas.pipeline import schedules
from costmodel.formulas.quantities import (
    AdapterTargets,
    CapturedModules,
    CompressionChoice,
    EndStages,
    FrameworkHabits,
    KernelChoices,
    LoadingNumbers,
    ModelNumbers,
    Number,
    OffloadShares,
    OptimizerChoice,
    OverlapChoices,
    PlanNumbers,
    RankPlaces,
    RecomputedParts,
    SampleLengths,
    ServerNumbers,
    Settings,
    SynchronisationChoice,
    Widths,
)
from costmodel.formulas.transformer import adapters, lengths, loading, precision
from costmodel.formulas.transformer.precision import FULL_BYTES
from costmodel.formulas.transformer.update import NEWTON_SCHULZ_STEPS

OPEN = -1.0
"""In place of a choice that is left open."""
ROUNDING = 1e-6
"""Of a layer, by which a product of layers and a share may be more than a whole number."""


class PlanChoices(NamedTuple):
    """The fields of a plan as numbers: choices as their codes, yes as 1; -1 where one is left open."""

    global_batch: Number
    seq_len: Number
    batching: Number
    mean_length: Number
    tensor_parallel: Number
    context_parallel: Number
    expert_parallel: Number
    expert_tensor_parallel: Number
    pipeline_parallel: Number
    virtual_stages: Number
    first_stage_layers: Number
    last_stage_layers: Number
    data_parallel: Number
    micro_batch: Number
    schedule: Number
    sequence_parallel: Number
    zero_stage: Number
    shard_group: Number
    recompute: RecomputedParts
    dtype: Number
    gradient_bytes: Number
    optimizer: Number
    optimizer_kernel: Number
    update_in_backward: Number
    paged_optimizer: Number
    adapter: Number
    lora_rank: Number
    lora_targets: AdapterTargets
    adapter_dropout: Number
    trained_edges: Number
    attention: Number
    attention_dtype: Number
    activation_input_dtype: Number
    loss: Number
    base_dtype: Number
    mixed_precision: Number
    reentrant: Number
    wide_residual: Number
    transposed_weights: Number
    fused_cross_entropy: Number
    fused_norms: Number
    fused_activation: Number
    cuda_graphs: Number
    graph_modules: CapturedModules  # none: all of a layer
    narrow_parameters: Number
    fused_experts: Number
    fused_operators: Number
    overlap_gradients: Number
    overlap_parameters: Number
    overlap_tensor: Number
    overlap_pipeline: Number
    overlap_experts: Number
    dispatcher: Number
    context_communication: Number
    rank_order: RankPlaces
    synchronisation: Number
    servers: Number
    local_steps: Number
    compression: Number
    compression_density: Number
    compression_rank: Number
    expandable_segments: Number
    loading: Number
    bucket_bytes: Number
    prefetch_bytes: Number
    parameter_offload: Number
    optimizer_offload: Number
    activation_offload: Number


class DefaultChoices(NamedTuple):
    """Choices of a plan that are as the framework has them where they are left open."""

    attention: Number
    mixed_precision: Number
    reentrant: Number
    wide_residual: Number
    adapter_dropout: Number
    fused_cross_entropy: Number
    fused_norms: Number
    overlap_gradients: Number
    overlap_parameters: Number
    overlap_tensor: Number
    overlap_pipeline: Number
    overlap_experts: Number
    dispatcher: Number
    expandable_segments: Number
    loading: Number


class FrameworkDefaults(NamedTuple):
    """A framework's defaults as numbers, for one dtype and one way to synchronise; made by `Framework.defaults`.

    Widths are bytes of an element, as `Framework` has them.
    """

    choices: DefaultChoices
    habits: FrameworkHabits
    server: ServerNumbers
    zero_stage: Number
    schedule: Number  # of a pipeline of one chunk a rank
    chunked_schedule: Number  # of several
    sequence_parallel: Number
    context_communication: Number
    gradient_bytes: Number
    reduce_bytes: Number
    optimizer_bytes: Number
    parameter_bytes: Number
    held_bytes: Number
    logit_bytes: Number
    tensor_logit_bytes: Number  # the same where a tensor group splits the vocabulary, if its loss is another; else 0
    layernorm_logit_bytes: Number  # the same of models whose norms are LayerNorms, if theirs is another; else 0
    logit_traffic: Number
    tensor_logit_traffic: Number
    own_loss: Number  # that is named, a code; -1: none, but what is said of logits here
    always_masked: Number  # 1: attention is given a mask of padding whether or not a sample is padded
    activation_input_bytes: Number
    attention_output_bytes: Number
    backward_gradient_bytes: Number
    retained_logit_bytes: Number
    staged_logit_bytes: Number
    update_bytes: Number
    sharded_optimizer_bytes: Number  # the same where states are sharded, if that is another's code; else 0
    sharded_update_bytes: Number
    flat_gradient_bytes: Number
    older_flash: Number
    first_flash: Number
    wide_embedding_moments: Number
    wide_adapters: Number  # 1: beside 16-bit weights adapters are in 32 bit
    narrow_quantised_adapters: Number  # 1: but not beside quantised ones
    engine_casts: Number  # 1: where states are sharded all weights are in the plan's dtype
    saved_frozen_inputs: Number  # 1: where weights are sharded frozen products save their inputs, too
    uncast_adapters: Number  # 1: where weights are sharded adapters stay in 32 bit, and so do their products
    wide_quantised: Number  # 1: beside a quantised base products run in 32 bit, unless their operands are cast
    keep_quantised_inputs: Number
    merged_adapters: Number  # 1: an adapter of queries, keys and values is one, and so is that of gate and up
    half_gradients: Number
    narrow_copies: Number
    narrow_weights: Number  # 1: weights of the plan's dtype are held as cast alone
    sharded_dtype: Number  # 1: in the plan's dtype the optimizer's state is sharded whatever the stage
    buckets: Number  # a code of `costmodel.formulas.bucket_rules`
    replicated_buckets: Number  # the same where no state is sharded; -1: no other
    optimizer_kernel: Number  # a place in `OPTIMIZER_KERNELS`
    looped_calls: Number  # of operators by Adam's loop over tensors, for each
    looped_accesses: Number  # numbers that it reads and writes for each parameter beyond the seven of one kernel
    replicated_loading: Number  # how a model is loaded where weights aren't sharded; -1: no other
    mapped_checkpoints: Number
    read_positions: Number  # 1: a flash kernel's wrapper reads the positions of a micro-batch of one sequence on the host
    saved_bytes: Number


class Format(NamedTuple):
    """Bytes that an element has where products run in a dtype."""

    operand: float
    """Of a product."""
    activation: float
    gathered: float
    """Of an operand that a tensor group gathers: as it is cast, but where each of its rows is scaled by itself (torchao's recipe
    of that name)."""
    layouts: float
    """In which products need their operands, on a device that multiplies in one layout: not bytes, but a count."""


_BLOCKS = precision.block_bytes(8.0, 8.0, 32.0), precision.block_bytes(4.0, 8.0, 16.0)
FORMATS = {
    "fp32": Format(4.0, 4.0, 4.0, 2.0), "tf32": Format(4.0, 4.0, 4.0, 2.0), "fp16": Format(2.0, 2.0, 2.0, 2.0),
    "bf16": Format(2.0, 2.0, 2.0, 2.0), "fp8": Format(1.0, 2.0, 1.0, 1.0), "fp8-rowwise": Format(1.0, 2.0, 2.0, 1.0),
    "fp8-block": Format(1.0, 2.0, 1.0, 1.0), "mxfp8": Format(_BLOCKS[0], 2.0, _BLOCKS[0], 2.0),
    "nvfp4": Format(_BLOCKS[1], 2.0, _BLOCKS[1], 2.0),
}  # fmt: skip
"""By the dtype of the GEMMs."""
BATCHINGS = tuple(lengths.CODES)
"""Ways in which samples make micro-batches."""
ATTENTION_KINDS = ("flash", "fused-softmax", "unfused", "sdpa")
"""Kernels of the attention core; ``sdpa`` is PyTorch's choice: a flash kernel, and under a mask its memory-efficient one."""
BLOCKWISE = ("flash", "sdpa")
"""Those that keep no scores."""
ATTENTION_DTYPES = ("fp8",)
"""In which products of the attention core may be, beside that of the activations."""
ACTIVATION_INPUT_DTYPES = ("fp8",)
"""In which the input of an MLP's activation may be stored between its passes, beside that of the activations."""
CONTEXT_COMMUNICATIONS = ("ring", "all-gather", "all-to-all")
DISPATCHERS = ("all-to-all", "deduplicated")
WRITTEN_CAST = ("fp8", "mxfp8")
"""Dtypes whose operands an activation's kernel writes itself: their scales are of former steps, or of few elements. For nvfp4, of
two levels, it writes 16 bits first, as it does for fp8 by current scaling (NVIDIA/TransformerEngine@d0067d0
transformer_engine/pytorch/csrc/extensions/activation.cpp)."""
LOADINGS = {"parts": loading.PARTS, "one-rank": loading.ONE_RANK, "every-rank": loading.EVERY_RANK, "whole": loading.WHOLE}
"""Codes of the ways in which a model comes to its ranks, which are their places."""
OPTIMIZERS = {
    "adam": (4.0, 8.0), "adam-precision-aware": (2.0, 8.0), "adam-bf16-moments": (4.0, 4.0), "adam-8bit": (4.0, 2.0),
    "adam-bf16": (0.0, 4.0), "sgd": (4.0, 0.0), "sgd-momentum": (4.0, 4.0), "lion": (4.0, 4.0), "adafactor": (4.0, 0.0),
    "muon": (4.0, 4.0), "rmsprop": (4.0, 8.0), "adam-bf16-master": (2.0, 4.0),
}  # fmt: skip
"""Bytes per parameter of the master copy that 16-bit weights have, and of the moments; the precision-aware one keeps of the
master copy only what the weight lacks; one with a master copy in 16 bit reads gradients as they are; under ``muon`` the
second moment of the embeddings, which stay with Adam, is neglected, under ``adafactor`` the sums of rows and columns."""
PASSING_BYTES = {"adafactor": 52.0}
"""Moved per parameter for tensors that live for one update alone: Adafactor squares the gradient, averages it over rows and
columns, multiplies both out, and scales, measures and clips the update in kernels of their own (huggingface/transformers
src/transformers/optimization.py, ``Adafactor.step``)."""
NARROW_MOMENTS = {"adam": 4.0, "sgd-momentum": 2.0, "lion": 2.0, "muon": 2.0, "rmsprop": 4.0}
"""Bytes per parameter of moments that are as wide as the weights, where 16-bit weights have no master copy and are updated
themselves: PyTorch's optimizers make each by ``torch.zeros_like(parameter)`` (torch/optim/adamw.py ``_init_group``)."""
HELD_TENSORS = {"adafactor": (16.0, 8.0)}
"""Bytes an element of the largest parameter that an update holds of it at a time, where it goes through them one by one: of
16-bit weights gradient and weight in 32 bit, the update and its negative; of 32-bit weights the last two
(huggingface/transformers src/transformers/optimization.py, ``Adafactor.step``)."""
OPTIMIZER_KERNELS = {"fused": (0.0, 0.0, 0.0, 0.0), "foreach": (13.0, 0.0, 1.0, 0.0), "loop": (0.0, 1.0, 0.0, 2.0)}
"""By which kernels Adam updates: numbers that it reads and writes for each parameter beyond the seven of one kernel, whether the
host goes through the tensors (when the framework says which kernels that takes), numbers that it makes for all parameters at
once, and for those of one tensor. PyTorch's lists, and its loop over tensors, scale, average, square, take roots and divide in
eight kernels that read and write twenty numbers; the roots of a list are there together (pytorch/pytorch v2.13.0
torch/optim/adam.py ``_multi_tensor_adam``, ``_single_tensor_adam``, ``_fused_adam``)."""
KERNELS_OF_ADAM = ("adam", "adam-bf16", "adam-bf16-master")
"""Optimizers that PyTorch's Adam is, with a master copy or without; others have kernels of their own."""
PAGED_OPTIMIZERS = ("adam", "adam-8bit", "lion")
"""Of which bitsandbytes has one whose state is paged (bitsandbytes@0.50.0 bitsandbytes/optim/adamw.py, lion.py)."""
SYNCHRONISATIONS = {
    "all-reduce": communication.ALL_REDUCE, "hierarchical": communication.HIERARCHICAL,
    "parameter-server": communication.PARAMETER_SERVER, "byteps": communication.BYTEPS, "local-sgd": communication.LOCAL_SGD,
}  # fmt: skip
"""Codes of the ways in which copies of a model agree, which are their places."""
COMPRESSIONS = {
    "none": compression.NONE, "fp16": compression.NARROW, "bf16": compression.NARROW, "int8": compression.QUANTISED,
    "top-k": compression.TOP_K, "power-sgd": compression.POWER_SGD,
}  # fmt: skip
"""What a rank makes of its gradients under each."""
DENSITY = 0.001
"""Of deep gradient compression after its warm-up [lin2018]_."""
RANK = 1.0
"""Of the matrices of PyTorch's ``PowerSGDState``."""
OUTER_BYTES = 8.0
"""Per parameter, of the weights at the last exchange and of their momentum, which local SGD keeps [douillard2023]_."""
LOSSES = {
    "upcast": 12.0, "upcast-autocast": 20.0, "16-bit": 6.0, "in-place": 8.0, "compiled": 4.0, "loss-parallel": 22.0,
    "vocab-parallel": 6.0, "fused": 2.0, "fused-linear": 0.0, "chunked": 2.0, "upcast-kept": 14.0, "16-bit-kept": 8.0,
    "chunked-upcast": 5.25, "chunked-eager": 6.5, "tiled": 0.0, "chunk-by-chunk": 1.5, "vocab-parallel-compiled": 10.0,
}  # fmt: skip
"""Bytes held per logit at the peak. Three tensors are there together: first logits, their copy and its log-softmax, then the
log-softmax, its gradient and that of its input. Hugging Face's upcast has them in 32 bit (transformers src/transformers/loss/
loss_utils.py ``ForCausalLMLoss``), under accelerate's autocast the copies of ``convert_outputs_to_fp32`` too; a loss in 16
bit in 16. A training loop that holds on to the model's outputs during the backward pass keeps the logits in 16 bit beside
them, as Hugging Face's Trainer, Lightning and torchtitan don't (transformers src/transformers/trainer.py ``compute_loss``
gives the loss alone; pytorch/torchtitan@e29b6b4d4 ``del pred``). One in place makes a copy in 32 that becomes the gradient
(foundation-model-stack/fms-acceleration@876e2ed); a compiled one holds logits and gradient in 16 (pytorch/torchtitan
torchtitan/components/loss.py); PyTorch's loss-parallel runs eagerly (torch/distributed/tensor/parallel/loss.py); Megatron's
vocab-parallel 16-bit logits that become an exponential in 32, which its parts, compiled one by one, write beside the copy
that they read (NVIDIA/Megatron-LM@d98e8a64 megatron/core/fusions/fused_cross_entropy.py, ``native``: 0.34 to 0.39 GiB more
than without in its tests ``gpt3_mcore_te_tp2_pp2_cross_entropy_loss_fusion``, of 0.1 G logits). Transformer Engine's fused
one writes the gradient over the logits. A fused linear one (Liger) never has all of them:
`costmodel.formulas.transformer.memory.logits`; torchtune's by chunks, compiled, has them all in 16 bit, and eager the
log-softmax of all beside them and one chunk of eight in 32 (pytorch/torchtune@v0.6.1
torchtune/modules/loss/ce_chunked_output_loss.py); one with the head's product inside, eager, keeps the log-softmax of all in
32 bit and beside it 10 bytes of one chunk of eight, its gradient twice in 32 bit and once in 16 (pytorch/torchtune@bd2a0fc
torchtune/modules/loss/cross_entropy_loss.py ``LinearCrossEntropyLoss``). TRL's tiled one has a tile at a time, and again for
the backward pass (huggingface/trl@v1.16.0 trl/kernels/chunked_logprob.py); torchtitan's, chunk by chunk, an eighth of the
upcast, each with its backward pass (pytorch/torchtitan@b5bcd76 torchtitan/components/loss.py ``ChunkedLossWrapper``)."""
LOSS_TRAFFIC = {
    "upcast": 36.0, "upcast-autocast": 42.0, "16-bit": 20.0, "in-place": 24.0, "compiled": 8.0, "loss-parallel": 80.0,
    "vocab-parallel": 52.0, "fused": 8.0, "fused-linear": 8.0, "chunked": 8.0, "upcast-kept": 36.0, "16-bit-kept": 20.0,
    "chunked-upcast": 36.0, "chunked-eager": 36.0, "tiled": 6.0, "chunk-by-chunk": 36.0, "vocab-parallel-compiled": 32.0,
}  # fmt: skip
"""Bytes read and written per logit, forward and backward, beside the head's products; each kernel reads and writes a tensor
once. Hugging Face's upcast: a cast of 6, a log-softmax of 8; zeros of 4, the log-softmax's gradient of 12, a cast of 6. Under
accelerate's autocast outputs are copied once more. In 16 bit: a shifted copy and a log-softmax of 4 each; 2, 6, and 4 to put
the gradient into place. In place: a cast, a kernel that reads twice and writes, a cast. Compiled, or in one kernel
(Transformer Engine, Liger): logits are read twice, read once more, and their gradient is written. Megatron's vocab-parallel:
a cast, a maximum of 4, a difference and an exponential in place of 8 each, a sum of 4, a quotient of 8; backward a product in
place of 8 and a cast (megatron/core/tensor_parallel/cross_entropy.py); its parts compiled one by one: 6, 12, 8 and 6.
PyTorch's loss-parallel: the same with tensors of their own, 38; backward zeros of 4, an exponential of 8, a sum and a product
of 12 and 12, a cast (torch/distributed/tensor/parallel/loss.py). TRL's tiled one reads a tile in one kernel, and in another
reads the same again and writes its gradient over it."""
FUSED_LOSS_TRAFFIC = LOSS_TRAFFIC["fused"]
KEPT_LOSSES = ("upcast-kept", "16-bit-kept")
"""Losses beside which a training loop holds on to the model's outputs."""
IN_PLACE = ("fused", "fused-linear", "chunked")
"""Losses of one kernel, which writes the gradient over what it reads."""
FUSED_LOSSES = (*IN_PLACE, "vocab-parallel-compiled")
"""And those of a few that are told to be fused."""
CHUNKED_LOSSES = ("chunked", "chunked-upcast", "chunked-eager")
"""Losses whose logits are made by as many products as there are chunks, all before the backward pass."""
AS_WIDE_AS_LOGITS = ("16-bit", "16-bit-kept", "compiled", "tiled", *IN_PLACE)
"""Losses whose tensors are all of the dtype of the logits, so that they hold twice as much where products are in 32 bit."""


def _place(name: str, table: dict[str, Number] | dict[str, tuple[float, float]] | dict[str, Format]) -> float:
    """The code of a choice."""
    return float(list(table).index(name))


_OPERAND, _ACTIVATION, _GATHERED, _LAYOUTS = zip(*FORMATS.values(), strict=True)
_STORED = tuple(FORMATS[name].operand for name in ACTIVATION_INPUT_DTYPES)
_WRITTEN_CAST = tuple(float(name in WRITTEN_CAST) for name in FORMATS)
_HALF = _place("fp16", FORMATS)
_FULL = _place("fp32", FORMATS)
_ADAM, _BARE = OPTIMIZERS["adam"], sum(OPTIMIZERS["adam-bf16"])
_MASTER, _MOMENTS = zip(*OPTIMIZERS.values(), strict=True)
_CASTS = tuple(float(master != 2.0) for master in _MASTER)
_LOGIT_BYTES, _COMPRESSED = tuple(LOSSES.values()), tuple(COMPRESSIONS.values())
_LOSS_TRAFFIC = tuple(LOSS_TRAFFIC.values())
_WIDER = tuple(2.0 if name in AS_WIDE_AS_LOGITS else 1.0 for name in LOSSES)
_KEPT = tuple(float(name in KEPT_LOSSES) for name in LOSSES)
_FUSED = tuple(float(name in FUSED_LOSSES) for name in LOSSES)
_PASSING = tuple(PASSING_BYTES.get(name, 0.0) for name in OPTIMIZERS)
_NARROW = tuple(NARROW_MOMENTS.get(name, moments) for name, (_, moments) in OPTIMIZERS.items())
_HELD, _HELD_WIDE = zip(*(HELD_TENSORS.get(name, (0.0, 0.0)) for name in OPTIMIZERS), strict=True)
_MUON, _EIGHT_BIT = _place("muon", OPTIMIZERS), _place("adam-8bit", OPTIMIZERS)
_WIDER_MOMENTS = _ADAM[1] - OPTIMIZERS["adam-8bit"][1]
_OF_ADAM = tuple(float(name in KERNELS_OF_ADAM) for name in OPTIMIZERS)
_ACCESSES, _TENSOR_BY_TENSOR, _LISTED, _LOOPED = zip(*OPTIMIZER_KERNELS.values(), strict=True)
_TILED, _UPCAST_KEPT = _place("tiled", LOSSES), _place("upcast-kept", LOSSES)
_CHUNKED = tuple(float(name in CHUNKED_LOSSES) for name in LOSSES)


def _chosen(choice: Number, default: Number) -> Number:
    """A choice, or the default where it is left open."""
    return ops.where(choice < 0.0, default, choice)


def _is(choice: Number, code: float) -> Number:
    """1 where a choice has a code."""
    return ops.where(ops.equal(choice, code), 1.0, 0.0)


def resolved(choices: PlanChoices, defaults: FrameworkDefaults, usual_dtype: Number, transposed: Number) -> PlanChoices:
    """A plan's choices where those that are left open are the framework's and the device's, `PlanChoices`.

    Whether a loss is one kernel stays open where the
    loss is named, which says it; sizes of buckets, ranks of factors and the like stay open: `settings` knows what stands for
    them.

    Parameters
    ----------
    usual_dtype : of the device, a place in `FORMATS`
    transposed : 1: the device needs weights in fp8 transposed too
    """
    exchanged = ops.where(choices.synchronisation > 0.5, 0.0, ops.where(choices.compression > 0.5, 1.0, 3.0))
    sharded = ops.where(defaults.zero_stage <= exchanged, defaults.zero_stage, 0.0)
    # without a pipeline there is nothing to choose
    piped = choices.pipeline_parallel > 1.0
    whole = ops.where(piped, defaults.schedule, schedules.ONE_F_ONE_B)
    chunked = ops.where(piped, defaults.chunked_schedule, schedules.INTERLEAVED)
    one_kernel = ops.maximum(defaults.choices.fused_norms, defaults.habits.compiled)  # of what is written out, too
    usual = defaults.choices._replace(fused_norms=one_kernel)
    stage = sharded_stage(_chosen(choices.zero_stage, sharded), choices.synchronisation, defaults.sharded_dtype)
    gradients = usual.overlap_gradients * defaults.server.hidden
    dtype = _chosen(choices.dtype, usual_dtype)
    own: dict[str, Any] = {name: _chosen(getattr(choices, name), one) for name, one in zip(usual._fields, usual, strict=True)}
    full = (1.0 - own["mixed_precision"]) * defaults.wide_quantised * adapters.of_bitsandbytes(choices.adapter) > 0.0
    sequences = defaults.sequence_parallel * ops.where(choices.tensor_parallel > 1.0, 1.0, 0.0)
    fused = ops.where(choices.loss < 0.0, own["fused_cross_entropy"], choices.fused_cross_entropy)
    return choices._replace(**own)._replace(
        data_parallel=_chosen(choices.data_parallel, 1.0), zero_stage=stage,
        schedule=_chosen(choices.schedule, ops.where(choices.virtual_stages > 1.0, chunked, whole)),
        sequence_parallel=_chosen(choices.sequence_parallel, sequences), dtype=ops.where(full, _FULL, dtype),
        loss=_loss(choices, defaults), transposed_weights=_chosen(choices.transposed_weights, transposed),
        fused_cross_entropy=fused, overlap_gradients=_chosen(choices.overlap_gradients, gradients),
        context_communication=_chosen(choices.context_communication, defaults.context_communication),
    )  # fmt: skip


def _loss(choices: PlanChoices, defaults: FrameworkDefaults) -> Number:
    """The loss that is named: the plan's, or the framework's unless the plan has one kernel instead."""
    return ops.where((choices.loss < 0.0) & (choices.fused_cross_entropy <= 0.0), defaults.own_loss, choices.loss)


def sharded_stage(stage: Number, synchronisation: Number, sharded_dtype: Number) -> Number:
    """The stage of ZeRO that runs: where ranks sum all gradients, a dtype whose states are sharded anyway has no stage 0.

    Parameters
    ----------
    stage : as it is asked for
    synchronisation : a place in `SYNCHRONISATIONS`
    sharded_dtype : 1: the framework shards the optimizer's state in the plan's dtype whatever the stage

    Examples
    --------
    >>> sharded_stage(0.0, 0.0, 1.0), sharded_stage(0.0, 0.0, 0.0), sharded_stage(3.0, 0.0, 1.0)
    (1.0, 0.0, 3.0)
    """
    return ops.where(synchronisation > 0.5, stage, ops.maximum(stage, sharded_dtype))


def _as_loaded(choices: PlanChoices, defaults: FrameworkDefaults) -> FrameworkDefaults:
    """A framework's defaults where nothing is cast: what trains is held, summed and updated as wide as it is multiplied.

    References
    ----------
    huggingface/accelerate@16cb6eb src/accelerate/accelerator.py (weights that train are upcast under mixed precision alone)
    """
    uncast = choices.mixed_precision <= 0.0
    narrow = ops.minimum(ops.pick(choices.dtype, _ACTIVATION), defaults.parameter_bytes)
    usual = defaults.habits
    return defaults._replace(
        parameter_bytes=ops.where(uncast, narrow, defaults.parameter_bytes),
        held_bytes=ops.where(uncast, 0.0, defaults.held_bytes),
        gradient_bytes=ops.where(uncast, narrow, defaults.gradient_bytes),
        reduce_bytes=ops.where(uncast, narrow, defaults.reduce_bytes),
        optimizer_bytes=ops.where(uncast, ops.minimum(2.0 * narrow, defaults.optimizer_bytes), defaults.optimizer_bytes),
        saved_bytes=ops.where(uncast, ops.minimum(3.0 * narrow, defaults.saved_bytes), defaults.saved_bytes),
        habits=usual._replace(
            autocast=ops.where(uncast, 0.0, usual.autocast), autocast_context=ops.where(uncast, 0.0, usual.autocast_context)),
    )


def _lifts_base(choices: PlanChoices, defaults: FrameworkDefaults) -> Number:
    """1 where norms, embedding and head beside quantised weights are in 32 bit: not where weights are gathered, all of one dtype,
    nor where an engine that shards states casts them down again.

    References
    ----------
    huggingface/trl@v0.8.0 trl/trainer/sft_trainer.py (``is_sharded_qlora``)
    """
    one_dtype = choices.zero_stage > ops.where(defaults.engine_casts > 0.0, 0.5, 2.5)
    return ops.where(one_dtype, 0.0, choices.wide_residual * adapters.of_bitsandbytes(choices.adapter))


def _wide_stream(choices: PlanChoices, defaults: FrameworkDefaults) -> Number:
    """1 where the residual stream is in 32 bit, as norms and embedding are, or all weights as they were loaded."""
    return ops.maximum(_lifts_base(choices, defaults), _wide_base(choices, defaults))


def _wide_beside(choices: PlanChoices, defaults: FrameworkDefaults) -> Number:
    """1 where what lies between quantised products is in 32 bit, as norms and embedding beside them are and nothing casts it."""
    return _lifts_base(choices, defaults) * _is(choices.mixed_precision, 0.0)


def widths(choices: PlanChoices, defaults: FrameworkDefaults) -> Widths:
    """Bytes of an element of everything that a rank holds or sends, `Widths`."""
    defaults = _as_loaded(choices, defaults)
    operand, activation = ops.pick(choices.dtype, _OPERAND), ops.pick(choices.dtype, _ACTIVATION)
    wide = activation > 2.0
    activation = ops.where(_wide_beside(choices, defaults) > 0.0, FULL_BYTES, activation)
    trains = choices.adapter < 0.5
    base = _wide_base(choices, defaults) > 0.0
    least = ops.where(wide | base, FULL_BYTES, 0.0)  # what is in the weights' width in 16 bit is in 32
    half = defaults.half_gradients * _is(choices.dtype, _HALF) * ops.where(choices.gradient_bytes < 0.0, 1.0, 0.0)
    another = _sharded_by_another(choices, defaults) > 0.0
    states = _usual_states(choices, defaults)
    usual_update = ops.where(another, defaults.sharded_update_bytes, defaults.update_bytes)
    usual_update = ops.where(choices.optimizer < 0.0, usual_update, usual_update * ops.pick(choices.optimizer, _CASTS))
    lifted = FULL_BYTES * _lifted(choices, defaults)
    usual = ops.where(half > 0.0, 2.0, ops.maximum(ops.maximum(defaults.gradient_bytes, least), lifted))
    gradient = _chosen(choices.gradient_bytes, usual)
    parameter = ops.where(base | wide, FULL_BYTES, defaults.parameter_bytes)
    as_loaded = (choices.base_dtype >= 0.0) & (defaults.held_bytes > 0.0)  # gathered as they are multiplied
    held = ops.where(trains | as_loaded, ops.maximum(defaults.held_bytes, parameter), parameter)
    copied_up = FULL_BYTES * half  # of a gradient in 32 bit
    adapter = ops.where(trains, 0.0, ops.maximum(ops.maximum(defaults.held_bytes, parameter), lifted))
    updating = ops.maximum(ops.maximum(usual_update, ops.maximum(least, lifted)), ops.where(held > parameter, held, 0.0))
    copied = ops.where(operand < ops.pick(choices.dtype, _ACTIVATION), operand, 0.0) * defaults.narrow_copies
    packed, *_ = adapters.packing(choices.adapter)
    # no update needs a wide copy of what is frozen
    primary = ops.where(trains, _chosen(choices.narrow_parameters, defaults.narrow_weights), 1.0)
    layouts = ops.where(choices.transposed_weights > 0.0, 2.0, ops.pick(choices.dtype, _LAYOUTS))
    logit = ops.where(choices.fused_cross_entropy > 0.0, 2.0, defaults.logit_bytes)
    # DistributedDataParallel's buckets stay beside the gradients that it sums in them
    rule = _bucket_code(choices, defaults)
    distributed = ops.where(choices.data_parallel > 1.0, ops.equal(rule, DISTRIBUTED), 0.0)
    wider = ops.where(activation > 2.0, ops.pick(choices.loss, _WIDER), 1.0)
    kept = _is(choices.loss, _UPCAST_KEPT) * (activation - 2.0)  # what a loop holds on to is as wide as it is made
    named, moved = ops.pick(choices.loss, _LOGIT_BYTES) * wider + kept, ops.pick(choices.loss, _LOSS_TRAFFIC) * wider
    traffic = ops.where(choices.fused_cross_entropy > 0.0, FUSED_LOSS_TRAFFIC, defaults.logit_traffic)
    apart = ops.where(choices.fused_cross_entropy > 0.0, 0.0, defaults.layernorm_logit_bytes)
    served = ops.equal(choices.synchronisation, communication.PARAMETER_SERVER)
    attended = defaults.attention_output_bytes
    activated = ops.where(copied > 0.0, defaults.activation_input_bytes, 0.0)
    activated = ops.where(choices.activation_input_dtype < 0.0, activated, ops.pick(choices.activation_input_dtype, _STORED))
    updated = _updated_width(choices, defaults)
    listed = _of_adam(choices) * ops.pick(_optimizer_kernel(choices, defaults), _LISTED) * updated
    return Widths(
        compute=operand, activation=activation, gathered=ops.pick(choices.dtype, _GATHERED),
        input=ops.where(copied > 0.0, copied, activation), input_copy=copied,
        activated=ops.where(activated > 0.0, activated, activation),
        attended=ops.where((copied > 0.0) & (attended > 0.0), attended, activation + copied),
        # weights that are stored as narrow are read as they are, and transposed when needed
        weight_copy=ops.where(parameter <= copied, 0.0, copied * (layouts - primary)),
        parameter=parameter,
        stored=ops.where(packed > 0.0, packed, ops.where((primary > 0.0) & (copied > 0.0), copied, parameter)),
        backward_gradient=ops.maximum(defaults.backward_gradient_bytes, distributed * gradient),
        retained_logit=defaults.retained_logit_bytes, staged_logit=defaults.staged_logit_bytes,
        output_logit=ops.where(choices.loss < 0.0, 0.0, ops.pick(choices.loss, _KEPT) * activation),
        update=ops.maximum(ops.where(usual_update > 0.0, updating, copied_up), listed),
        flat_gradient=defaults.flat_gradient_bytes,
        gradient=gradient, reduce=ops.minimum(ops.maximum(ops.maximum(defaults.reduce_bytes, least), lifted), gradient),
        optimizer=ops.where(
            served, 0.0, _optimizer_width(choices.optimizer, wide | base | (lifted > 0.0), ops.maximum(held, adapter), states)),
        embedding_moments=ops.where(
            trains, defaults.wide_embedding_moments * _is(choices.optimizer, _EIGHT_BIT) * _WIDER_MOMENTS, 0.0),
        outer=ops.where(ops.equal(choices.synchronisation, communication.LOCAL_SGD), OUTER_BYTES, 0.0),
        logit=ops.where(choices.loss < 0.0, logit, named),
        layernorm_logit=ops.where(choices.loss < 0.0, ops.where(apart > 0.0, apart, logit), named),
        tensor_logit=ops.where((choices.loss < 0.0) & (choices.fused_cross_entropy <= 0.0), defaults.tensor_logit_bytes, 0.0),
        logit_traffic=ops.where(choices.loss < 0.0, traffic, moved),
        tensor_logit_traffic=ops.where(choices.loss < 0.0, defaults.tensor_logit_traffic, moved),
        wide=held - parameter, residual=ops.where(_wide_stream(choices, defaults) > 0.0, FULL_BYTES, activation), adapter=adapter,
    )  # fmt: skip


def _wide_base(choices: PlanChoices, defaults: FrameworkDefaults) -> Number:
    """1 where weights are in 32 bit as they were loaded, and cast where they are multiplied.

    Not where a library that shards casts all of them, nor where each is gathered as narrow as it is multiplied; of software that
    trains a master copy beside the weights, they are as narrow as it makes them.
    """
    own = (defaults.held_bytes <= 0.0) & (_sharded_by_another(choices, defaults) <= 0.0)
    bare = (choices.adapter > 0.5) | (defaults.optimizer_bytes <= _BARE)
    return ops.where((choices.base_dtype >= 0.0) & own & bare, 1.0, 0.0)


def _of_adam(choices: PlanChoices) -> Number:
    """1 where Adam updates by kernels that a plan can choose."""
    return ops.where(choices.optimizer < 0.0, 1.0, ops.pick(choices.optimizer, _OF_ADAM))


def _optimizer_kernel(choices: PlanChoices, defaults: FrameworkDefaults) -> Number:
    """The code of the kernels by which Adam updates."""
    return _chosen(choices.optimizer_kernel, defaults.optimizer_kernel)


def _updated_width(choices: PlanChoices, defaults: FrameworkDefaults) -> Number:
    """Bytes of a number that an update reads and writes: of 16-bit weights that are updated themselves, else of 32-bit ones."""
    states = _usual_states(choices, defaults)
    lifted, wide = _lifted(choices, defaults) > 0.0, ops.pick(choices.dtype, _ACTIVATION) > 2.0
    held = (choices.adapter < 0.5) & (defaults.held_bytes > defaults.parameter_bytes)
    full = lifted | wide | held | (_wide_base(choices, defaults) > 0.0) | (states > _BARE)
    return ops.where(full, FULL_BYTES, 2.0)


def _sharded_by_another(choices: PlanChoices, defaults: FrameworkDefaults) -> Number:
    """More than 0 where the code of another library shards the states, by its own widths."""
    return ops.where(choices.zero_stage > 0.5, 1.0, 0.0) * defaults.sharded_optimizer_bytes


def _usual_states(choices: PlanChoices, defaults: FrameworkDefaults) -> Number:
    """Bytes of the framework's own optimizer states per parameter, as whoever shards them has them."""
    return ops.where(_sharded_by_another(choices, defaults) > 0.0, defaults.sharded_optimizer_bytes, defaults.optimizer_bytes)


def _lifted(choices: PlanChoices, defaults: FrameworkDefaults) -> Number:
    """1 where adapters are in 32 bit beside 16-bit weights: not where DeepSpeed shards, whose engine casts all weights down."""
    by_another = _sharded_by_another(choices, defaults)
    narrow = ops.where(ops.pick(choices.dtype, _ACTIVATION) > 2.0, 0.0, 1.0)
    narrow = ops.where(defaults.held_bytes > 0.0, 0.0, narrow)  # gathered as they are multiplied
    packed, *_ = adapters.packing(choices.adapter)
    narrow = ops.where(packed > 0.0, 1.0 - defaults.narrow_quantised_adapters, 1.0) * narrow
    return defaults.wide_adapters * narrow * ops.where((choices.adapter > 0.5) & (by_another <= 0.0), 1.0, 0.0)


def _bucket_code(choices: PlanChoices, defaults: FrameworkDefaults) -> Number:
    """The code of the rule by which a plan's gradients and weights are grouped into calls."""
    return rule_at(choices.zero_stage, choices.prefetch_bytes, defaults.buckets, defaults.replicated_buckets)


def _optimizer_width(optimizer: Number, wide: bool, held: Number, usual: Number) -> Number:
    """Bytes of the optimizer's state per parameter: the framework's own, or that of one which a plan names."""
    own = ops.where(wide, precision.optimizer_bytes(held, *_ADAM), usual)
    # where the framework updates 16-bit weights themselves, no optimizer has a master copy of them, nor moments that are wider
    bare = own <= _BARE
    named = precision.optimizer_bytes(held, ops.pick(optimizer, _MASTER), ops.pick(optimizer, _MOMENTS))
    return ops.where(optimizer < 0.0, own, ops.where(bare, ops.pick(optimizer, _NARROW), named))


def kernel_choices(choices: PlanChoices, defaults: FrameworkDefaults) -> KernelChoices:
    """Which kernels run, `KernelChoices`."""
    captured = choices.graph_modules
    partly = ops.maximum(captured.attention, ops.maximum(captured.mlp, captured.router))
    chosen_by_torch = _is(choices.attention, 3.0)
    one_kernel = ops.where(choices.loss < 0.0, choices.fused_cross_entropy, ops.pick(choices.loss, _FUSED))
    return KernelChoices(
        cuda_graphs=choices.cuda_graphs * (1.0 - partly), captured_attention=captured.attention, captured_mlp=captured.mlp,
        captured_router=captured.router, captured_iteration=choices.cuda_graphs * captured.iteration,
        fused_experts=choices.fused_experts, fused_operators=choices.fused_operators,
        fused_casts=choices.fused_operators * ops.pick(choices.dtype, _WRITTEN_CAST),
        flash_attention=ops.maximum(_is(choices.attention, 0.0), chosen_by_torch),
        narrow_attention=ops.where(choices.attention_dtype < 0.0, 0.0, 1.0),
        cast_activations=ops.where(choices.activation_input_dtype < 0.0, 0.0, 1.0),
        masked_padding=chosen_by_torch * ops.maximum(lengths.masks(choices.batching), 2.0 * defaults.always_masked),
        older_flash=ops.maximum(
            ops.maximum(defaults.older_flash, 2.0 * defaults.first_flash),
            3.0 * chosen_by_torch * ops.maximum(_is(choices.dtype, _FULL), _wide_beside(choices, defaults))),
        fused_softmax=ops.maximum(_is(choices.attention, 1.0), _is(choices.attention, 2.0) * defaults.habits.compiled),
        fused_norms=choices.fused_norms, fused_cross_entropy=one_kernel,
        tiled_loss=_is(choices.loss, _TILED), chunked_loss=ops.where(choices.loss < 0.0, 0.0, ops.pick(choices.loss, _CHUNKED)),
        deduplicated_dispatch=_is(choices.dispatcher, 1.0),
        host_reads=_is(choices.attention, 0.0) * ops.maximum(
            2.0 * ops.maximum(lengths.masks(choices.batching), defaults.always_masked), defaults.read_positions),
        gathered_keys=_is(choices.context_communication, 1.0), exchanged_heads=_is(choices.context_communication, 2.0),
    )  # fmt: skip


def settings(choices: PlanChoices, defaults: FrameworkDefaults) -> Settings:
    """What is the same for every plan of a search, `Settings`; all trains, as no model is known."""
    of = widths(choices, defaults)
    defaults = _as_loaded(choices, defaults)
    kernel = _optimizer_kernel(choices, defaults)
    looped = ops.pick(kernel, _TENSOR_BY_TENSOR)
    by_kernel = _of_adam(choices) * _updated_width(choices, defaults)
    rule = _bucket_code(choices, defaults)
    habits = defaults.habits
    sharded = ops.where(choices.zero_stage > 2.5, 1.0, 0.0)
    left_wide = defaults.uncast_adapters * sharded * ops.where(ops.pick(choices.dtype, _ACTIVATION) > 2.0, 0.0, 1.0)
    packed = _is(choices.batching, lengths.PACKED)
    by_sample = packed * habits.sample_rotation_kernels
    beside = 1.0 - habits.blocking_launches  # of a host that waits for every kernel nothing runs beside anything
    return Settings(
        seq_len=choices.seq_len, global_batch=choices.global_batch,
        ends=EndStages(_chosen(choices.first_stage_layers, 0.0), _chosen(choices.last_stage_layers, 0.0)),
        lengths=SampleLengths(
            batching=choices.batching, attended=choices.seq_len,
            mean=_chosen(choices.mean_length, ops.where(packed > 0.0, lengths.unsaid_mean(choices.seq_len), choices.seq_len)),
        ),
        trainable=1.0,
        adapter=adapters.adapter_choice(
            choices.adapter, choices.lora_rank, choices.lora_targets, defaults.keep_quantised_inputs,
            defaults.saved_frozen_inputs * sharded, defaults.merged_adapters, choices.adapter_dropout,
            ops.maximum(_lifted(choices, defaults), left_wide), ops.maximum(_is(choices.mixed_precision, 0.0), left_wide),
            _wide_stream(choices, defaults), choices.trained_edges),
        optimizer=OptimizerChoice(
            newton_schulz_steps=ops.where(ops.equal(choices.optimizer, _MUON), NEWTON_SCHULZ_STEPS, 0.0),
            passing_bytes=ops.where(choices.optimizer < 0.0, 0.0, ops.pick(choices.optimizer, _PASSING))
            + by_kernel * (ops.pick(kernel, _ACCESSES) + looped * defaults.looped_accesses),
            held_bytes=ops.where(
                choices.optimizer < 0.0, 0.0,
                ops.where(of.parameter + of.wide < FULL_BYTES, ops.pick(choices.optimizer, _HELD),
                          ops.pick(choices.optimizer, _HELD_WIDE)))
            + by_kernel * ops.pick(kernel, _LOOPED),
            tensor_kernels=_of_adam(choices) * looped * defaults.looped_calls, in_backward=choices.update_in_backward,
        ),
        widths=of, kernels=kernel_choices(choices, defaults),
        framework=habits._replace(
            keep_activated=ops.where(
                choices.fused_activation < 0.0, habits.keep_activated * (1.0 - habits.compiled), 1.0 - choices.fused_activation),
            # a compiler makes one kernel of it, too, and so does Liger, beside its activations
            sample_rotation_kernels=by_sample,
            separate_rotation=ops.maximum(habits.separate_rotation, ops.where(by_sample > 0.0, 1.0, 0.0))
            * (1.0 - ops.maximum(habits.compiled, choices.fused_activation)),
            autocast=ops.maximum(habits.autocast, _wide_base(choices, defaults)), reentrant=choices.reentrant,
            autocast_context=ops.where(_sharded_by_another(choices, defaults) > 0.0, 0.0, habits.autocast_context)),
        synchronisation=SynchronisationChoice(
            kind=choices.synchronisation, servers=choices.servers, local_steps=choices.local_steps,
            link_share=defaults.server.link_share, request_time=defaults.server.request_time, stored=defaults.server.stored,
        ),
        compression=CompressionChoice(
            kind=ops.pick(choices.compression, _COMPRESSED),
            density=_chosen(choices.compression_density, DENSITY), rank=_chosen(choices.compression_rank, RANK),
        ),
        buckets=bucket_rule(rule, of.reduce, of.parameter, choices.bucket_bytes, choices.prefetch_bytes),
        overlap=OverlapChoices(
            gradients=beside * choices.overlap_gradients, parameters=beside * choices.overlap_parameters,
            tensor=beside * choices.overlap_tensor, pipeline=beside * choices.overlap_pipeline,
            experts=beside * choices.overlap_experts,
        ),
        offload=OffloadShares(
            optimizer=choices.optimizer_offload, activations=choices.activation_offload, parameters=choices.parameter_offload,
            paged=choices.paged_optimizer,
        ),
        expandable_segments=choices.expandable_segments,
        loading=LoadingNumbers(
            choices.loading, _chosen(defaults.replicated_loading, defaults.choices.loading), defaults.mapped_checkpoints,
            defaults.saved_bytes),
    )  # fmt: skip


def settings_of_model(model: ModelNumbers, nparameters: Number, choices: PlanChoices, defaults: FrameworkDefaults) -> Settings:
    """As `settings`, with the share of a model's parameters that trains.

    Parameters
    ----------
    nparameters : of the model without adapters
    """
    found = settings(choices, defaults)
    return found._replace(trainable=adapters.trained_share(model, found, nparameters))


def plan_numbers(choices: PlanChoices, layers: Number) -> PlanNumbers:
    """The split of a plan, with the strides that the order of ranks gives its groups, `PlanNumbers`.

    Parameters
    ----------
    layers : of the model
    """
    degrees = RankPlaces(choices.tensor_parallel, choices.context_parallel, choices.data_parallel, choices.pipeline_parallel)
    order = choices.rank_order
    tensor, context = _stride(order.tensor, order, degrees), _stride(order.context, order, degrees)
    data, pipeline = _stride(order.data, order, degrees), _stride(order.pipeline, order, degrees)
    # ranks with the same weights differ in both places, of which one may be no place at all
    nearest = ops.where(degrees.data > 1.0, ops.minimum(data, context), context)
    again = choices.recompute
    return PlanNumbers(
        tensor=degrees.tensor, context=degrees.context, expert=choices.expert_parallel,
        expert_tensor=choices.expert_tensor_parallel, pipeline=degrees.pipeline, virtual_stages=choices.virtual_stages,
        data=degrees.data, context_stride=context, tensor_stride=tensor, pipeline_stride=pipeline,
        data_stride=ops.where(degrees.context > 1.0, nearest, data),
        sequence_parallel=choices.sequence_parallel, micro_batch=choices.micro_batch, schedule=choices.schedule,
        shard_optimizer=ops.where(choices.zero_stage > 0.5, 1.0, 0.0),
        shard_gradients=ops.where(choices.zero_stage > 1.5, 1.0, 0.0),
        shard_weights=ops.where(choices.zero_stage > 2.5, 1.0, 0.0),
        shard_group=_chosen(choices.shard_group, degrees.data * degrees.context),
        recompute_attention=again.attention, recompute_layers=recomputed_share(again, layers), recompute_norms=again.norms,
        recompute_latent_projections=again.latent_projections, recompute_mlp=again.mlp, recompute_experts=again.experts,
        recompute_shared_experts=again.shared_experts, recompute_expert_activation=again.expert_activation,
        recompute_operators=again.operators,
    )  # fmt: skip


def recomputed_share(recomputed: RecomputedParts, layers: Number) -> Number:
    """Share of the layers that are recomputed whole.

    Parameters
    ----------
    layers : of the model

    Examples
    --------
    Every fourth of ten layers is one of three, and a quarter of them is three:

    >>> recomputed_share(RecomputedParts(4.0, *[0.0] * 8), 10.0), recomputed_share(RecomputedParts(0.25, *[0.0] * 8), 10.0)
    (0.3, 0.3)
    """
    every = recomputed.every
    counted = ops.where(every < 1.0, layers * every, layers / ops.maximum(every, 1.0))
    return ops.where(every > 0.0, ops.ceil(counted - ROUNDING) / layers, 0.0)


def _stride(place: Number, order: RankPlaces, degrees: RankPlaces) -> Number:
    """Distance in ranks of neighbours along the degree that has a place in the order of ranks."""
    one = 0.0 * degrees.tensor + 1.0  # a column where degrees are columns
    inner = one * ops.where(order.tensor < place, degrees.tensor, 1.0) * ops.where(order.context < place, degrees.context, 1.0)
    return inner * ops.where(order.data < place, degrees.data, 1.0) * ops.where(order.pipeline < place, degrees.pipeline, 1.0)
