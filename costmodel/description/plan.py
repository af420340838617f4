"""How a run is split over GPUs: what a plan says, what is legal, and why not."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from costmodel.description import adapters, fields, graphs, recomputation, refusals
from costmodel.description.device import DTYPES, Device
from costmodel.description.dimensions import DIMENSIONS, RANK_ORDER, TENSOR_INNERMOST
from costmodel.description.fields import (
    FieldRow,
    Flag,
    OneOf,
    Order,
    Owner,
    Rate,
    Real,
    Restriction,
    Spelled,
    Whole,
    expected,
    restrictions_of_owners,
    row,
)
from costmodel.description.framework import Framework
from costmodel.description.usual_work import BATCH, LENGTH
from costmodel.formulas import legality, settings
from costmodel.formulas.pipeline import schedules
from costmodel.formulas.quantities import PlanNumbers, RankPlaces, SampleLengths, Settings
from costmodel.formulas.settings import (
    ACTIVATION_INPUT_DTYPES,
    ATTENTION_DTYPES,
    ATTENTION_KINDS,
    BATCHINGS,
    BLOCKWISE,
    COMPRESSIONS,
    CONTEXT_COMMUNICATIONS,
    DENSITY,
    DISPATCHERS,
    FUSED_LOSSES,
    KERNELS_OF_ADAM,
    LOADINGS,
    LOSSES,
    OPTIMIZER_KERNELS,
    OPTIMIZERS,
    PAGED_OPTIMIZERS,
    RANK,
    SYNCHRONISATIONS,
    DefaultChoices,
    PlanChoices,
)
from costmodel.formulas.transformer import lengths
from costmodel.formulas.transformer.adapters import KINDS as ADAPTERS
from costmodel.text.attributes import names_what_is_there
from costmodel.text.errors import IllegalPlan
from costmodel.text.results import brief
from costmodel.text.templates import filled

if TYPE_CHECKING:
    from costmodel.description.cluster import Cluster
    from costmodel.description.transformer import Transformer

SCHEDULES = schedules.CODES
"""Codes of the schedules by their names."""
MOST = 10_000_000
FOLLOWING = "data_parallel"
"""The degree that takes the GPUs which the others leave."""
LEADING = tuple(one.field for one in DIMENSIONS if one.splits_gpus and one.field != FOLLOWING)
"""Degrees that with `FOLLOWING` multiply to the GPUs."""
UNDIVIDED = " x ".join(f"{name}={{{name}}}" for name in LEADING) + " does not divide the cluster's {gpus} GPUs"
"""How degrees are refused that leave no whole number."""
WITH_ADAPTERS = Owner("adapter", ADAPTERS[1:])
NARROW_CORES = "fp8", "mxfp8", "nvfp4"
"""Dtypes of products beside which the attention core may be in 8 bit: Transformer Engine has none by blocks of 128
(NVIDIA/TransformerEngine@d0067d0 transformer_engine/common/recipe/__init__.py, ``Float8BlockScaling``)."""


def degree(name: str, **words: Any) -> Mapping[str, FieldRow]:
    """The row of a parallel degree, with what its dimension says of it.

    Parameters
    ----------
    name : of the field
    words : other fields of `costmodel.description.fields.FieldRow`
    """
    one = next(one for one in DIMENSIONS if one.field == name)
    return row(
        Whole(1, MOST), unit="ranks", role="degree", short=one.short.lower(), tried=one.tried, rare=one.rare, column=True,
        launched=True, **words,
    )  # fmt: skip


@names_what_is_there
@fields.by_name("fields by name, as in Plan(global_batch=8)", named=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A parallel configuration of one training run.

    A field that is None takes the framework's default. Degrees and batches go by the short names of the command line, too:
    ``Plan(tp=2, pp=4, mbs=1, gbs=64)``.

    Parameters
    ----------
    global_batch : sequences per step
    seq_len : of the longest sequence, or of one into which samples are packed [tokens]
    batching : how samples of unlike lengths make a micro-batch: ``"full"``, as texts are cut and joined whatever their length,
        ``"packed"`` into sequences whose tokens attend to those of their own sample, ``"padding-free"``, laid end to end,
        ``"grouped"`` with others of their length (``group_by_length``), ``"padded"`` to the longest of their micro-batch, or
        ``"padded-whole"`` to `seq_len`
    mean_length : of a sample where the longest has `seq_len` [tokens]; if None all are as long, and packed ones between
        400, as those of Tulu 3 and C4, and the pack. Time is that of the mean, memory that of the longest
    tensor_parallel, context_parallel, pipeline_parallel : degrees; times the data-parallel one their product is the GPUs
    first_stage_layers, last_stage_layers : layers of the pipeline's first and last stage, the others dealt evenly to the stages
        between (``--decoder-first-pipeline-num-layers`` of Megatron-Core); dealt evenly, the ends short, if None
    data_parallel : degree; what the others leave of the cluster's GPUs if None
    expert_parallel : ranks that split the experts; lies inside data x context (x tensor) parallelism
    expert_tensor_parallel : ranks that split one expert
    virtual_stages : model chunks on a pipeline rank (schedules interleaved and breadth-first)
    micro_batch : sequences per micro-batch
    schedule : ``"gpipe"``, ``"1f1b"``, ``"interleaved"``, ``"breadth-first"``, ``"zb-h1"``, ``"zb-h2"``, ``"zb-v"``,
        ``"dualpipe"``, ``"chimera"``, or asynchronous: ``"pipedream"``, which updates after every micro-batch and stashes
        weights, ``"pipedream-2bw"``, which keeps two generations of them; the step of these is one of many, the pipeline full
    sequence_parallel : split norms and residuals over the tensor group
    zero_stage : 0 plain, 1 optimizer state, 2 and gradients, 3 and weights sharded over data x context ranks
    shard_group : ranks that share one copy of what is sharded (HSDP); all of them if None
    recompute : ``"none"``, ``"selective"`` (the attention core, which flash kernels recompute anyway: nothing changes),
        ``"full"``, a whole number k: every k-th layer, a share of the layers, more than 0 and less than 1, as a block of each
        stage's is (``--recompute-method block`` of Megatron), or modules of every layer with a plus between them: ``"norms"``,
        ``"latent-projections"``, ``"mlp"``, ``"experts"``, ``"shared-experts"``, ``"expert-activation"``,
        ``"attention-core"``, and ``"operators"``: all but the attention core and every second product, as torchtitan's
        selective checkpointing has it
    dtype : of the GEMMs; ``"fp8-rowwise"`` has a scale for each row instead of each tensor; if None ``"bf16"``, or ``"fp16"`` on
        a device without it
    gradient_bytes : of an accumulated gradient: 2 or 4
    optimizer : one of `OPTIMIZERS`
    optimizer_kernel : by which Adam updates: ``"fused"``, one that reads and writes each number once; ``"foreach"``, PyTorch's by
        lists of tensors, eight one after another with a list of roots between them; ``"loop"``, the same eight for every tensor
        by itself; the framework's own if None
    update_in_backward : each gradient updates its weight as the backward pass makes it, and is freed (``optimizer_in_bwd`` of
        torchtune): none is held but one tensor's, and none can be summed over micro-batches
    paged_optimizer : its state lies in memory that CUDA's driver pages (``paged_adamw_8bit`` of bitsandbytes): what the device
        has no room for waits in the host's memory, and comes and goes with each update
    adapter : ``"none"`` trains every weight; ``"lora"`` freezes them and trains low-rank adapters beside them; ``"qlora"`` also
        holds the frozen weights in NF4, and unpacks them for every pass; ``"gptq-lora"`` in GPTQ's 4 bits, unpacked by AutoGPTQ;
        ``"int8-lora"`` in 8 (``load_in_8bit=True``), in which bitsandbytes multiplies them forward
    lora_rank : of the adapters; 16 if None
    lora_targets : matrices that have one, as ``"all"``, ``"attention"``, ``"mlp"`` or ``"q-v"``, in PEFT's names too; every
        projection if None; ``"none"`` trains nothing, and gradients pass through frozen weights to what lies before them
    adapter_dropout : what an adapter reads is dropped out before it, each adapter's by itself: whether, or a rate, of which that
        is kept; as the framework's recipes have it if None
    trained_edges : embedding and head train, too, whole copies of both beside the frozen ones (``modules_to_save`` of PEFT)
    attention : ``"flash"``, ``"fused-softmax"``, ``"unfused"``, or ``"sdpa"``, PyTorch's choice: a flash kernel, and under the
        mask of padded samples its memory-efficient one over all keys
    attention_dtype : of the products of the attention core, ``"fp8"`` beside products in 8 or 4 bit (``fp8_dpa`` of Transformer
        Engine, ``--fp8-dot-product-attention`` of Megatron-Core); that of the activations if None
    activation_input_dtype : in which what a gated MLP's activation reads is stored from one pass to the other: ``"fp8"``, to
        which it is cast, and back (``--activation-func-fp8-input-store`` of Megatron-Core); as the framework keeps it if None
    loss : from logits to their gradient, by what it holds of each: one of `LOSSES`; the framework's own if None.
        ``"upcast"`` copies logits of 16 bit to 32, ``"upcast-autocast"`` all of a model's outputs once more, as accelerate does,
        ``"upcast-kept"`` is of a training loop that holds on to outputs through the backward pass
    base_dtype : of weights as they are loaded: ``"fp32"`` where they stay in 32 bit and are multiplied in 16 under autocast, as
        Hugging Face's Trainer has it with ``bf16=True`` of a model in float32; as they are multiplied if None
    mixed_precision : what is in 32 bit is cast where it is multiplied, as ``bf16=True`` of Hugging Face's Trainer has it:
        adapters are multiplied in 16 bit, and FSDP holds what trains in 32. Without it weights, gradients and moments stay as
        narrow as `dtype`, and what adapters and a base of bitsandbytes make is in 32 bit; the framework's own if None
    reentrant : recomputed layers run under autograd's reentrant checkpoints
        (``gradient_checkpointing_kwargs={"use_reentrant": True}``)
    wide_residual : beside a base of bitsandbytes in 4 or 8 bit norms, embedding and head are in 32 bit, and so is the residual
        stream, as ``prepare_model_for_kbit_training`` of PEFT has them, unless weights are sharded, or states by DeepSpeed, which
        casts them down again; the framework's own if None
    transposed_weights : weights in fp8 are held transposed too, for devices that multiply fp8 in one layout; if None as the
        device needs it: not on Blackwell. The blocks of mxfp8 and nvfp4 lie along one direction, and are always held in both
    fused_cross_entropy : one kernel from logits to their gradient; `loss` says it where that is given
    fused_norms : an RMSNorm is one kernel, as a LayerNorm always is
    fused_activation : activation and product of a gated MLP are one kernel, which keeps what it reads alone, and queries and
        keys are rotated by one, as Liger has them beside its norms (``use_liger_kernel``)
    cuda_graphs : the passes of a layer are captured once and replayed: the host launches a graph for all their kernels, and
        what they hold stays, for every micro-batch in flight; with experts, whose tokens vary, only if they are fused or padded,
        or of the modules around them
    graph_modules : of a layer that graphs hold, ``"attention"``, ``"mlp"`` and ``"router"`` with a plus between them, or
        Megatron's scopes of them; ``"all"``, which is None; or ``"iteration"``: the passes of all micro-batches are one graph,
        and the host does nothing for a micro-batch but to read it
    fused_experts : bias, activation, router's probability and cast of an expert are part of its grouped products' kernels
        (``--use-transformer-engine-op-fuser`` of Megatron-Core on Blackwell), which takes ``dtype="mxfp8"``
    narrow_parameters : layers' weights are held in the dtype of products of 8 or 4 bit alone, and gathered so
        (``--fp8-param-gather``); the framework's own if None
    fused_operators : Transformer Engine's operation fuser runs dense MLPs and adapters
        (``--use-transformer-engine-op-fuser``): an activation writes the next product's operand in 8 bit itself, and products add
        what adapters make
    dispatcher : of tokens to their experts: ``"all-to-all"``, one copy for each expert, or ``"deduplicated"``, as DeepEP and
        HybridEP send them: once to each node, and there once to each rank
    context_communication : of context parallelism: ``"ring"``, keys and values in turns beside the attention core,
        ``"all-gather"``, all of them before it, or ``"all-to-all"``, positions for heads (DeepSpeed-Ulysses); the framework's
        own if None
    overlap_gradients, overlap_parameters, overlap_tensor, overlap_pipeline : which exchange runs beside compute
    overlap_experts : tokens are on their way while another micro-batch works (``--overlap-moe-expert-parallel-comm`` of
        Megatron-Core; DualPipe always does)
    rank_order : degrees from innermost to outermost; an expert group takes neighbouring ranks whatever the order
    synchronisation : how copies of the model agree: ``"all-reduce"``, ``"hierarchical"`` (inside nodes, then between),
        ``"parameter-server"``, ``"byteps"`` or ``"local-sgd"`` (DiLoCo); all but the first need ``zero_stage=0``. Servers
        of a parameter server hold the optimizer's state, and their update hides behind the exchange
    servers : machines of the parameter server, or without GPUs in BytePS, with the links of a node; 0: the nodes serve
    local_steps : steps of local SGD from one exchange to the next
    compression : of gradients before their all-reduce: ``"none"``, ``"fp16"`` or ``"bf16"`` (a cast), ``"int8"`` (blocks that
        share a scale), ``"top-k"`` or ``"power-sgd"`` (two factors of each matrix); the last two keep what they didn't send
        for the next step. All but the first need ``synchronisation="all-reduce"`` and ``zero_stage`` 0 or 1
    compression_density : share of the gradients that top-k sends, above 0 to 1; 0.001 if None
    compression_rank : of the factors of PowerSGD; 1 if None
    expandable_segments : the allocator maps memory page by page where it is needed, so that freed blocks leave no gaps
        (``PYTORCH_ALLOC_CONF=expandable_segments:True``)
    loading : how weights that are sharded come to their ranks: ``"parts"``, each makes or reads its own; ``"one-rank"``, one of a
        node reads all and sends the others theirs; ``"every-rank"``, each has all in host memory, and takes them to its device
        unit by unit; ``"whole"``, each has all on its device before they are sharded (ZeRO-3 without ``zero.Init``)
    bucket_bytes : of a bucket of gradients on the wire, as ``bucket_cap_mb`` of DDP, ``--ddp-bucket-size`` of Megatron and
        ``reduce_bucket_size`` of DeepSpeed have it in their units; the framework's own if None. Units of FSDP are layers
    prefetch_bytes : of weights gathered at once at ZeRO stage 3, as DeepSpeed's ``stage3_prefetch_bucket_size``; the
        framework's own if None
    parameter_offload : share of weights kept in host memory at ZeRO stage 3, 0 to 1, from where a pass gathers them
        (``CPUOffload(offload_params=True)`` of FSDP, ``offload_param`` of DeepSpeed); the optimizer's state is
        `optimizer_offload`, which FSDP always takes with it
    optimizer_offload, activation_offload : share kept in host memory, 0 to 1; transfers are priced, and the processors of a
        node that update an offloaded optimizer for all its GPUs

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    """

    global_batch: int = field(default=BATCH, metadata=row(
        Whole(1, MOST), unit="sequences", role="size", short="gbs", launched=True, asked=True))  # fmt: skip
    seq_len: int = field(default=LENGTH, metadata=row(
        Whole(1, 10**8, "km"), unit="tokens", role="size", called="sequence length", launched=True, asked=True))  # fmt: skip
    batching: str = field(default="full", metadata=row(
        OneOf(BATCHINGS), brief="of samples of unlike lengths: full, packed, padded, ...", usual=("full",), said="{}", rare=True,
        inert="all samples are as long as the longest: mean_length says how long they are on average"))  # fmt: skip
    mean_length: float | None = field(default=None, metadata=row(
        Real(1.0, 1e8), unit="tokens", role="size", brief="of a sample that isn't full", rare=True,
        unset="as the longest; less of packed ones", owner=Owner("batching", BATCHINGS[1:])))  # fmt: skip
    tensor_parallel: int = field(default=1, metadata=degree("tensor_parallel", link="tp", brief="GPUs that share each layer"))
    context_parallel: int = field(default=1, metadata=degree(
        "context_parallel", link="cp", brief="GPUs that share each sequence"))  # fmt: skip
    expert_parallel: int = field(default=1, metadata=degree("expert_parallel", link="ep", brief="ranks that share the experts"))
    expert_tensor_parallel: int = field(default=1, metadata=degree("expert_tensor_parallel", faster=(1,)))
    pipeline_parallel: int = field(default=1, metadata=degree("pipeline_parallel", link="pp", brief="stages of a pipeline"))
    virtual_stages: int = field(default=1, metadata=degree("virtual_stages", brief="model chunks on a pipeline rank"))
    first_stage_layers: int | None = field(default=None, metadata=row(
        Whole(1, MOST), unit="layers", unset="dealt evenly", rare=True, idle="pipeline_parallel"))  # fmt: skip
    last_stage_layers: int | None = field(default=None, metadata=row(
        Whole(1, MOST), unit="layers", unset="dealt evenly", rare=True, idle="pipeline_parallel"))  # fmt: skip
    data_parallel: int | None = field(default=None, metadata=degree(
        "data_parallel", link="dp", brief="replicas", unset="what the other degrees leave of the GPUs"))  # fmt: skip
    micro_batch: int = field(default=1, metadata=row(
        Whole(1, MOST), link="mb", unit="sequences", role="size", short="mbs", tried="1, 2, 4, 8, 16", column=True,
        called="micro-batch", usual=(1,), said="micro-batch {}", launched=True))  # fmt: skip
    schedule: str | None = field(default=None, metadata=row(
        OneOf(SCHEDULES), unset="the framework's: mostly 1f1b, or interleaved with virtual stages", rare=True, column=True,
        usual=("1f1b", "interleaved"), said="{}", launched=True))  # fmt: skip
    sequence_parallel: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, column=True, idle="tensor_parallel", inert="there are no tensor ranks to split over", leaner=(True,),
        every=(True, False), faster=(True,), launched=True))  # fmt: skip
    zero_stage: int | None = field(default=None, metadata=row(
        Whole(0, 3), link="zero", brief="0 to 3: what of the state is sharded", tried="every one that the framework has",
        column=True, called="ZeRO stage", usual=(None, 1), said="ZeRO {}", inert="there are no ranks to shard over",
        faster=(1, 2, 3), launched=True))  # fmt: skip
    shard_group: int | None = field(default=None, metadata=row(
        Whole(1, MOST), unit="ranks", unset="all of them", tried="all of them, and those inside a node", rare=True, column=True,
        usual=(None,), said="shard group {}", inert="all ranks that could share a copy do"))  # fmt: skip
    recompute: str | float = field(default="none", metadata=row(
        Spelled(recomputation.recomputation, (*recomputation.WHOLE, *recomputation.MODULES), recomputation.numbers,
                recomputation.EVERY, "every"),
        link="recompute", brief="none, full, selective, every k-th layer (4), a share (0.3), or modules", column=True,
        tried="none and full, selective where attention is not flash, light modules where the framework has them",
        usual=("none",), said="recompute {}", leaner=("selective", 4, 2, "full"), faster=("none", "selective"), launched=True,
        inert="the layers of this model keep nothing that it would make again (a flash kernel keeps no scores)"))  # fmt: skip
    dtype: str | None = field(default=None, metadata=row(
        OneOf(DTYPES), link="dtype", brief="of the GEMMs, such as bf16 or fp8", unset="bf16, or fp16 on a GPU without it",
        usual=(None, "bf16"), said="{}", launched=True))  # fmt: skip
    gradient_bytes: int | None = field(default=None, metadata=row(OneOf((2, 4)), unit="bytes", rare=True, software=True))
    optimizer: str | None = field(default=None, metadata=row(
        OneOf(OPTIMIZERS), link="optimizer", brief="such as adam, adam-8bit, sgd, muon",
        leaner=("adam-8bit", "adam-bf16-moments"), launched=True))  # fmt: skip
    optimizer_kernel: str | None = field(default=None, metadata=row(
        OneOf(OPTIMIZER_KERNELS), unset="the framework's own", rare=True, software=True, leaner=("fused",), faster=("fused",),
        inert="the host updates, or no step waits for the update"))  # fmt: skip
    update_in_backward: bool = field(default=False, metadata=row(Flag(), rare=True, software=True))
    paged_optimizer: bool = field(default=False, metadata=row(Flag(), rare=True, leaner=(True,)))
    adapter: str = field(default="none", metadata=row(
        OneOf(ADAPTERS), link="adapter", brief="none, lora, qlora, gptq-lora, int8-lora"))
    lora_rank: int | None = field(default=None, metadata=row(
        Whole(1, 65_536), unset=str(adapters.RANK), rare=True, called="LoRA rank", owner=WITH_ADAPTERS))  # fmt: skip
    lora_targets: Sequence[str] | None = field(default=None, metadata=row(
        Spelled(adapters.targets_of, (adapters.NONE, *adapters.GROUPS, *adapters.TARGETS), adapters.target_numbers, several=True),
        unset="all", rare=True, owner=WITH_ADAPTERS))  # fmt: skip
    adapter_dropout: bool | None = field(default=None, metadata=row(
        Rate(), rare=True, software=True, called="dropout before adapters", leaner=(False,),
        inert="no adapters train"))  # fmt: skip
    trained_edges: bool = field(default=False, metadata=row(Flag(), rare=True, owner=WITH_ADAPTERS))
    attention: str | None = field(default=None, metadata=row(
        OneOf(ATTENTION_KINDS), rare=True, software=True, leaner=BLOCKWISE, faster=BLOCKWISE, launched=True,
        inert="it is the framework's kernel, or as good as that where no mask hides padding"))  # fmt: skip
    attention_dtype: str | None = field(default=None, metadata=row(
        OneOf(ATTENTION_DTYPES), unset="as activations are", rare=True, software=True,
        owner=Owner("dtype", NARROW_CORES)))  # fmt: skip
    activation_input_dtype: str | None = field(default=None, metadata=row(
        OneOf(ACTIVATION_INPUT_DTYPES), unset="as the framework keeps it", rare=True, software=True))  # fmt: skip
    loss: str | None = field(default=None, metadata=row(
        OneOf(LOSSES), unset="the framework's own", rare=True, software=True))  # fmt: skip
    base_dtype: str | None = field(default=None, metadata=row(
        OneOf(("fp32",)), unset="as it is multiplied", rare=True, owner=Owner("adapter", ("none", "lora")),
        inert="the framework holds weights that train in 32 bit anyway, or a master copy of them"))  # fmt: skip
    mixed_precision: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True,
        inert="nothing is held in 32 bit beside it: neither weights that train nor adapters"))  # fmt: skip
    reentrant: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, inert="no layers are recomputed, or all of them either way"))  # fmt: skip
    wide_residual: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, inert="no weights are held by bitsandbytes in 4 or 8 bit"))  # fmt: skip
    transposed_weights: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, unset="as the device needs it", inert="no weights are held in fp8"))  # fmt: skip
    fused_cross_entropy: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, inert="the framework's loss is this one", leaner=(True,), faster=(True,)))  # fmt: skip
    fused_norms: bool | None = field(default=None, metadata=row(Flag(), rare=True, software=True))
    fused_activation: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, inert="it is the framework's kernel, or no MLP of the model has a gate"))  # fmt: skip
    cuda_graphs: bool = field(default=False, metadata=row(Flag(), rare=True, software=True, called="CUDA graphs"))
    graph_modules: str | None = field(default=None, metadata=row(
        Spelled(graphs.captured_or_all, ("all", graphs.ITERATION, *graphs.MODULES), graphs.module_numbers),
        unset="all", rare=True, software=True, owner=Owner("cuda_graphs", (True,)),
        inert="this model has none of them, or its host is faster than its device"))  # fmt: skip
    fused_experts: bool = field(default=False, metadata=row(Flag(), rare=True, software=True, owner=Owner("dtype", ("mxfp8",))))
    narrow_parameters: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, leaner=(True,),
        inert="no weights that train are multiplied in 8 or 4 bit"))  # fmt: skip
    fused_operators: bool = field(default=False, metadata=row(
        Flag(), rare=True, software=True,
        inert="neither an MLP's activation is cast to fp8 or mxfp8 nor are there adapters"))  # fmt: skip
    overlap_gradients: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, inert="no gradients are exchanged while a pass runs", faster=(True,)))  # fmt: skip
    overlap_parameters: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, inert="no weights are gathered while a pass runs", faster=(True,)))  # fmt: skip
    overlap_tensor: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, idle="tensor_parallel", faster=(True,),
        inert="tensor ranks exchange nothing that products could hide"))  # fmt: skip
    overlap_pipeline: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, idle="pipeline_parallel", faster=(True,), inert="there is no pipeline"))  # fmt: skip
    overlap_experts: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, usual=(None, False), said="experts overlapped",
        tried="of a model of experts no and, where the framework has it, yes"))  # fmt: skip
    dispatcher: str | None = field(default=None, metadata=row(
        OneOf(DISPATCHERS), rare=True, software=True, usual=(None, "all-to-all"), said="{} dispatch",
        tried="of a model of experts every one that the framework has"))  # fmt: skip
    context_communication: str | None = field(default=None, metadata=row(
        OneOf(CONTEXT_COMMUNICATIONS), rare=True, software=True, idle="context_parallel",
        inert="there are no context ranks to exchange anything"))  # fmt: skip
    rank_order: Sequence[str] = field(default=RANK_ORDER, metadata=row(
        Order(RANK_ORDER, RankPlaces._make), unset="-".join(RANK_ORDER),
        tried="every one that the framework has", rare=True, usual=(RANK_ORDER,), every=TENSOR_INNERMOST,
        said="ranks {}", inert="groups lie on the same links in either order"))  # fmt: skip
    synchronisation: str = field(default="all-reduce", metadata=row(OneOf(SYNCHRONISATIONS), rare=True))
    servers: int = field(default=0, metadata=row(
        Whole(0, 100_000), rare=True, owner=Owner("synchronisation", ("parameter-server", "byteps"))))  # fmt: skip
    local_steps: int = field(default=1, metadata=row(
        Whole(1, 1_000_000), rare=True, owner=Owner("synchronisation", ("local-sgd",))))  # fmt: skip
    compression: str = field(default="none", metadata=row(OneOf(COMPRESSIONS), rare=True))
    compression_density: float | None = field(default=None, metadata=row(
        Real(1e-9, 1.0), role="share", unset=f"{DENSITY:g}", rare=True, owner=Owner("compression", ("top-k",))))  # fmt: skip
    compression_rank: int | None = field(default=None, metadata=row(
        Whole(1, 1_000_000), unset=f"{RANK:g}", rare=True, owner=Owner("compression", ("power-sgd",))))  # fmt: skip
    expandable_segments: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, leaner=(True,), inert="the framework's allocator leaves no gaps"))  # fmt: skip
    loading: str | None = field(default=None, metadata=row(
        OneOf(LOADINGS), rare=True, software=True, leaner=("one-rank",),
        inert="a rank holds as much while the model is loaded by default"))  # fmt: skip
    bucket_bytes: float | None = field(default=None, metadata=row(Real(1.0, 1e15), unit="bytes", rare=True, software=True))
    prefetch_bytes: float | None = field(default=None, metadata=row(Real(1.0, 1e15), unit="bytes", rare=True, software=True))
    parameter_offload: float = field(default=0.0, metadata=row(
        Real(0.0, 1.0), role="share", rare=True, inert="no weights are sharded"))  # fmt: skip
    optimizer_offload: float = field(default=0.0, metadata=row(
        Real(0.0, 1.0), link="oo", role="share", rare=True, every=(0.0, 1.0), leaner=(1.0,), faster=(0.0,)))  # fmt: skip
    activation_offload: float = field(default=0.0, metadata=row(
        Real(0.0, 1.0), link="ao", role="share", rare=True, every=(0.0, 0.5, 1.0), leaner=(1.0,), faster=(0.0,)))  # fmt: skip

    __repr__ = brief

    def __post_init__(self) -> None:
        fields.check(self)
        fields.hold(vars(self), restrictions())

    @property
    def gpus(self) -> int:
        """GPUs that the plan takes: those of one copy where the data-parallel degree was left open."""
        degrees = (getattr(self, dimension.field) or 1 for dimension in DIMENSIONS if dimension.splits_gpus)
        return functools.reduce(operator.mul, degrees)

    @property
    def copies(self) -> int:
        """The data-parallel degree, one where it was left open."""
        return self.data_parallel or 1

    @property
    def tokens(self) -> float:
        """Tokens of a step that are no padding.

        Examples
        --------
        >>> Plan(global_batch=64, seq_len=4096, batching="padded", mean_length=500.0).tokens
        32000.0
        """
        mean, code = self.mean_length or self.seq_len, lengths.CODES[self.batching]
        return self.global_batch * lengths.useful_tokens(self.seq_len, SampleLengths(code, mean, self.seq_len))

    @property
    def exchanges_heads(self) -> bool:
        """Whether context ranks exchange positions for heads, as DeepSpeed-Ulysses has it."""
        return self.context_communication == "all-to-all"

    @property
    def micro_batches(self) -> int:
        """Micro-batches that one pipeline works through in a step."""
        return self.global_batch // (self.copies * self.micro_batch)

    def on(self, cluster: Cluster) -> Plan:
        """The plan on a cluster: a data-parallel degree that was left open is what the other degrees leave of its GPUs.

        Raises
        ------
        IllegalPlan
            where the other degrees don't divide the GPUs

        Examples
        --------
        >>> from costmodel import load_cluster
        >>> Plan(global_batch=64, seq_len=4096, tensor_parallel=4).on(load_cluster("dgx-h100", gpus=32)).data_parallel
        8
        """
        if self.data_parallel is not None:
            return self
        gpus = cluster.gpus or 1
        if gpus % self.gpus:
            raise IllegalPlan("world_size", UNDIVIDED.format(gpus=gpus, **{name: getattr(self, name) for name in LEADING}))
        return dataclasses.replace(self, data_parallel=gpus // self.gpus)

    def resolve(self, framework: Framework, device: Device | None = None) -> Plan:
        """The plan with every None replaced by the framework's default, and the dtype by the device's; one copy where no
        cluster said how many.

        Parameters
        ----------
        framework : gives the defaults
        device : gives the dtype; ``"bf16"`` where none is known
        """
        missing = [name for name in RESOLVED if getattr(self, name) is None and not (name in OF_LOSSES and self.loss)]
        missing += ["loss"] if self.loss is None and framework.own_loss else []
        if not missing and not framework.overrules:
            return self
        usual = "bf16" if device is None else device.usual_dtype
        transposed = float(device is None or device.transposes)
        defaults = framework.defaults(self.synchronisation, self.dtype or usual)
        found = settings.resolved(self.choices, defaults, float(DTYPES.index(usual)), transposed)
        kinds, told = fields.table(Plan), vars(self)
        known = {name: kinds[name].kind.value(getattr(found, name)) for name in (*missing, *OVERRULED)}
        changes = {name: value for name, value in known.items() if value != told[name]}
        return dataclasses.replace(self, **changes) if changes else self

    @functools.cached_property
    def choices(self) -> PlanChoices:
        """The fields as the numbers that formulas take: choices as their codes."""
        values = vars(self)
        return PlanChoices(*(code(values[name]) for name, code in _codes()))

    def settings(self, framework: Framework) -> Settings:
        """What is the same for every plan of a search, as the numbers that formulas take; all trains, as no model is known."""
        plan = self.resolve(framework)
        fields.hold(vars(plan), (one for one in framework.restrictions if not one.reason))
        return settings.settings(plan.choices, framework.defaults(plan.synchronisation, str(plan.dtype)))

    def numbers(self, framework: Framework, layers: int) -> PlanNumbers:
        """The split as the numbers that formulas take.

        Parameters
        ----------
        framework : gives the defaults
        layers : of the model, for the share that ``recompute=k`` means
        """
        return settings.plan_numbers(self.resolve(framework).choices, float(layers))

    def check(self, model: Transformer, cluster: Cluster, framework: Framework) -> None:
        """Raise `IllegalPlan` with the reason where the plan can't run on this model and cluster."""
        plan = self.on(cluster).resolve(framework, cluster.device)
        plan.check_framework(framework)
        plan.hold(cluster.device.restrictions)
        broken = legality.violations(
            model.numbers(), plan.settings(framework), plan.numbers(framework, model.layers), float(cluster.gpus or 0)
        )
        for reason, value in broken._asdict().items():
            if value:
                raise IllegalPlan(reason, explain(reason, plan, model, cluster))

    def check_framework(self, framework: Framework) -> None:
        """Raise `IllegalPlan` where the framework hasn't what the plan asks for, whatever the model and the cluster.

        Parameters
        ----------
        framework : the software, whose defaults are filled in
        """
        self.hold((*framework.restrictions, framework.recomputed((self.recompute,))))

    def hold(self, restrictions: Iterable[Restriction]) -> None:
        """Raise `IllegalPlan` where a restriction with a reason is broken.

        Parameters
        ----------
        restrictions : of a framework, whose defaults are filled in, or of a device
        """
        values = vars(self)
        for one in restrictions:
            if one.reason and one.broken(values):
                raise IllegalPlan(one.reason, one.words(values))


RESOLVED = (
    FOLLOWING, "dtype", "transposed_weights", "sequence_parallel", "zero_stage", "schedule", "context_communication",
    *DefaultChoices._fields,
)  # fmt: skip
"""Fields that never stay open once a framework and a device are known."""
OF_LOSSES = ("fused_cross_entropy",)
"""But for those that a loss says, where a plan names one."""
OVERRULED = "dtype", "zero_stage"
"""Fields in which a framework does otherwise than it is told, where its entry says so."""


@functools.cache
def _codes() -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    kinds = fields.table(Plan)
    return tuple((name, kinds[name].kind.code) for name in PlanChoices._fields)


@functools.cache
def restrictions() -> tuple[Restriction, ...]:
    """What fields of a plan are held to beside each other, whatever the framework."""
    others = {name: tuple(one for one in names if one not in ("all-reduce", "none")) for name, names in (
        ("synchronisation", SYNCHRONISATIONS), ("compression", COMPRESSIONS), ("adapter", ADAPTERS))}  # fmt: skip
    one_way = (None, *(
        name for name, code in SCHEDULES.items() if not (schedules.v_shaped(code) or schedules.bidirectional(code))
    ))  # fmt: skip
    of_ends = (
        Restriction(field, allowed, expected(field, f"{wish} with {end}={{{end}}}: others are not modelled"), end, above=0)
        for end in ("first_stage_layers", "last_stage_layers")
        for field, allowed, wish in (("virtual_stages", (1,), "1"), ("schedule", one_way, "one that goes one way alone"))
    )
    return (*restrictions_of_owners(Plan), *of_ends, *(
        Restriction(field, allowed, expected(field, wish), beside, values) for field, allowed, beside, values, wish in (
            ("optimizer_offload", (0,), "synchronisation", ("parameter-server",),
             "0 with servers that hold the optimizer's state"),
            ("zero_stage", (None, 0), "synchronisation", others["synchronisation"],
             "0 with synchronisation={synchronisation}: every rank has a whole copy to synchronise"),
            ("compression", ("none",), "synchronisation", others["synchronisation"],
             "'none' with synchronisation={synchronisation}: an all-reduce alone is modelled with compressed gradients"),
            ("zero_stage", (None, 0, 1), "compression", others["compression"],
             "0 or 1 with compression={compression}, which needs every rank's whole gradients"),
            ("compression", tuple(one for one in COMPRESSIONS if one != "power-sgd"), "adapter", others["adapter"],
             "any other with adapter={adapter}, of low rank already"),
            ("optimizer_kernel", (None, "fused"), "optimizer", tuple(one for one in OPTIMIZERS if one not in KERNELS_OF_ADAM),
             "fused or None with optimizer={optimizer}, which has kernels of its own"),
            ("optimizer_offload", (0,), "paged_optimizer", (True,), "0 with paged_optimizer: the device updates what it pages"),
            ("paged_optimizer", (False,), "optimizer", tuple(one for one in OPTIMIZERS if one not in PAGED_OPTIMIZERS),
             f"False with optimizer={{optimizer}}: bitsandbytes pages the state of {', '.join(PAGED_OPTIMIZERS)}"),
            ("base_dtype", (None,), "mixed_precision", (False,),
             "None with mixed_precision={mixed_precision}: what is multiplied in 16 bit is held so"),
            ("attention_dtype", (None,), "attention", tuple(one for one in ATTENTION_KINDS if one != "flash"),
             "None with attention={attention}: a flash kernel has it"),
            ("fused_cross_entropy", (None, True), "loss", FUSED_LOSSES, "True or None with loss={loss}, which is one kernel"),
            ("fused_cross_entropy", (None, False), "loss", tuple(one for one in LOSSES if one not in FUSED_LOSSES),
             "False or None with loss={loss}, which is several kernels"),
        )
    ))  # fmt: skip


def explain(reason: str, plan: Plan, model: Transformer, cluster: Cluster) -> str:
    """One line: which rule a plan breaks, with the values, and what would be legal."""
    known = refusals.of_model(model, max(plan.tensor_parallel, 8)) | {"gpus": cluster.gpus}
    return filled(refusals.TEXTS[reason], vars(plan) | known)
