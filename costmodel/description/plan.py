"""How a run is split over GPUs: what a plan says, what is legal, and why not."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from costmodel.arithmetic import ops
from costmodel.arithmetic.named_tuples import Row
from costmodel.description import adapters, bucket_rules, fields, graphs, recomputation, refusals
from costmodel.description.adapters import KINDS as ADAPTERS
from costmodel.description.adapters import PACKED, choice_of
from costmodel.description.device import DTYPES, Device
from costmodel.description.dimensions import DIMENSIONS, RANK_ORDER
from costmodel.description.fields import FieldRow, Flag, OneOf, Order, Owner, Real, Spelled, Whole, row
from costmodel.description.framework import ATTENTION_KINDS, CONTEXT_COMMUNICATIONS, DISPATCHERS, Framework
from costmodel.formulas import legality
from costmodel.formulas.network import communication, compression
from costmodel.formulas.pipeline import schedules
from costmodel.formulas.quantities import (
    CompressionChoice,
    FrameworkHabits,
    KernelChoices,
    Number,
    OffloadShares,
    OptimizerChoice,
    OverlapChoices,
    PlanNumbers,
    Settings,
    SynchronisationChoice,
    Widths,
)
from costmodel.formulas.transformer import precision
from costmodel.formulas.transformer.update import NEWTON_SCHULZ_STEPS
from costmodel.text.errors import IllegalPlan, InvalidValue
from costmodel.text.results import brief

if TYPE_CHECKING:
    from costmodel.description.cluster import Cluster
    from costmodel.description.transformer import Transformer

SCHEDULES = schedules.CODES
"""Codes of the schedules by their names."""
OPTIMIZERS = {
    "adam": (4.0, 8.0), "adam-precision-aware": (2.0, 8.0), "adam-bf16-moments": (4.0, 4.0), "adam-8bit": (4.0, 2.0),
    "adam-bf16": (0.0, 4.0), "sgd": (4.0, 0.0), "sgd-momentum": (4.0, 4.0), "lion": (4.0, 4.0), "adafactor": (4.0, 0.0),
    "muon": (4.0, 4.0), "rmsprop": (4.0, 8.0),
}  # fmt: skip
"""Bytes per parameter of the master copy that 16-bit weights have, and of the moments; the precision-aware one keeps of
the master copy only what the weight lacks; under ``muon`` the second moment of the embeddings, which stay with Adam, is
neglected, under ``adafactor`` the sums of rows and columns."""
PASSING_BYTES = {"adafactor": 52.0}
"""Moved per parameter for tensors that live for one update alone: Adafactor squares the gradient, averages it over rows and
columns, multiplies both out, and scales, measures and clips the update in kernels of their own (huggingface/transformers
src/transformers/optimization.py, ``Adafactor.step``)."""
SYNCHRONISATIONS = {
    "all-reduce": communication.ALL_REDUCE, "hierarchical": communication.HIERARCHICAL,
    "parameter-server": communication.PARAMETER_SERVER, "byteps": communication.BYTEPS, "local-sgd": communication.LOCAL_SGD,
}  # fmt: skip
COMPRESSIONS = {
    "none": compression.NONE, "fp16": compression.NARROW, "bf16": compression.NARROW, "int8": compression.QUANTISED,
    "top-k": compression.TOP_K, "power-sgd": compression.POWER_SGD,
}  # fmt: skip
DENSITY = 0.001
"""Of deep gradient compression after its warm-up [lin2018]_."""
RANK = 1
"""Of the matrices of PyTorch's ``PowerSGDState``."""
OUTER_BYTES = 8.0
"""Per parameter, of the weights at the last exchange and of their momentum, which local SGD keeps [douillard2023]_."""
LOSSES = {
    "upcast": 14.0, "upcast-autocast": 20.0, "16-bit": 8.0, "in-place": 8.0, "compiled": 4.0, "loss-parallel": 22.0,
    "vocab-parallel": 6.0, "fused": 2.0, "fused-linear": 2.0, "chunked": 2.0,
}  # fmt: skip
"""Bytes held per logit at the peak. Hugging Face's upcast holds logits in 16 bit, their copy, its log-softmax and its gradient
in 32 (transformers src/transformers/loss/loss_utils.py ``ForCausalLMLoss``), under accelerate's autocast the copies of
``convert_outputs_to_fp32`` too; a loss in 16 bit logits, their shifted copy, log-softmax and gradient; one in place a copy in 32
that becomes the gradient (foundation-model-stack/fms-acceleration@876e2ed); a compiled one logits and gradient in 16
(pytorch/torchtitan torchtitan/components/loss.py); PyTorch's loss-parallel runs eagerly (torch/distributed/tensor/parallel/
loss.py); Megatron's vocab-parallel 16-bit logits that become an exponential in 32. Transformer Engine's fused one writes the
gradient over the logits; linear losses by chunks (Liger, torchtune) hold less than that, which is taken for all of them."""
FUSED_LOSSES = ("fused", "fused-linear", "chunked")
MOST = 10_000_000
FOLLOWING = "data_parallel"
"""The degree that takes the GPUs which the others leave."""
LEADING = tuple(one.field for one in DIMENSIONS if one.splits_gpus and one.field != FOLLOWING)
"""Degrees that with `FOLLOWING` multiply to the GPUs."""
UNDIVIDED = " x ".join(f"{name}={{{name}}}" for name in LEADING) + " does not divide the cluster's {gpus} GPUs"
"""How degrees are refused that leave no whole number."""
WITH_ADAPTERS = Owner("adapter", ADAPTERS[1:])


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A parallel configuration of one training run.

    A field that is None takes the framework's default.

    Parameters
    ----------
    global_batch : sequences per step
    seq_len : [tokens]
    tensor_parallel, context_parallel, pipeline_parallel : degrees; times the data-parallel one their product is the GPUs
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
        ``"full"``, a whole number k: every k-th layer, or modules of every layer with a plus between them: ``"norms"``,
        ``"latent-projections"``, ``"mlp"``, ``"experts"``, ``"shared-experts"``, ``"expert-activation"``,
        ``"attention-core"``, and ``"operators"``: all but the attention core and every second product, as torchtitan's
        selective checkpointing has it
    dtype : of the GEMMs; ``"fp8-rowwise"`` has a scale for each row instead of each tensor; if None ``"bf16"``, or ``"fp16"`` on
        a device without it
    gradient_bytes : of an accumulated gradient: 2 or 4
    optimizer : one of `OPTIMIZERS`
    adapter : ``"none"`` trains every weight; ``"lora"`` freezes them and trains low-rank adapters beside them; ``"qlora"`` also
        holds the frozen weights in NF4, and unpacks them for every pass; ``"gptq-lora"`` in GPTQ's 4 bits, unpacked by AutoGPTQ
    lora_rank : of the adapters; 16 if None
    lora_targets : matrices that have one, as ``"all"``, ``"attention"``, ``"mlp"`` or ``"q-v"``, in PEFT's names too; every
        projection if None
    attention : ``"flash"``, ``"fused-softmax"`` or ``"unfused"``
    loss : from logits to their gradient, by what it holds of each: one of `LOSSES`; the framework's own if None
    base_dtype : of the weights beside which adapters train: ``"fp32"`` where a model was loaded without a dtype and runs under
        autocast, as Hugging Face's Trainer has it with ``bf16=True`` alone; as they are multiplied if None
    reentrant : recomputed layers run under autograd's reentrant checkpoints
        (``gradient_checkpointing_kwargs={"use_reentrant": True}``)
    transposed_weights : weights in fp8 are held transposed too, for devices that multiply fp8 in one layout; if None as the
        device needs it: not on Blackwell. The blocks of mxfp8 and nvfp4 lie along one direction, and are always held in both
    fused_cross_entropy : one kernel from logits to their gradient
    fused_norms : an RMSNorm is one kernel, as a LayerNorm always is
    cuda_graphs : the passes of a layer are captured once and replayed: the host launches a graph for all their kernels, and
        what they hold stays, for every micro-batch in flight; with experts, whose tokens vary, only if they are fused or padded,
        or of the modules around them
    graph_modules : of a layer that graphs hold, ``"attention"``, ``"mlp"`` and ``"router"`` with a plus between them, or
        Megatron's scopes of them; ``"all"``, which is None
    fused_experts : bias, activation, router's probability and cast of an expert are part of its grouped products' kernels
        (``--use-transformer-engine-op-fuser`` of Megatron-Core on Blackwell), which takes ``dtype="mxfp8"``
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

    global_batch: int = field(metadata=row(Whole(1, MOST), unit="sequences", role="size", short="gbs", launched=True))
    seq_len: int = field(metadata=row(Whole(1, 10**8), unit="tokens", role="size", called="sequence length", launched=True))
    tensor_parallel: int = field(default=1, metadata=degree("tensor_parallel", link="tp", brief="GPUs that share each layer"))
    context_parallel: int = field(default=1, metadata=degree(
        "context_parallel", link="cp", brief="GPUs that share each sequence"))  # fmt: skip
    expert_parallel: int = field(default=1, metadata=degree("expert_parallel", link="ep", brief="ranks that share the experts"))
    expert_tensor_parallel: int = field(default=1, metadata=degree("expert_tensor_parallel"))
    pipeline_parallel: int = field(default=1, metadata=degree("pipeline_parallel", link="pp", brief="stages of a pipeline"))
    virtual_stages: int = field(default=1, metadata=degree("virtual_stages", brief="model chunks on a pipeline rank"))
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
        faster=(True,), launched=True))  # fmt: skip
    zero_stage: int | None = field(default=None, metadata=row(
        Whole(0, 3), link="zero", brief="0 to 3: what of the state is sharded", tried="every one that the framework has",
        column=True, called="ZeRO stage", usual=(None, 1), said="ZeRO {}", inert="there are no ranks to shard over",
        faster=(1, 2, 3), launched=True))  # fmt: skip
    shard_group: int | None = field(default=None, metadata=row(
        Whole(1, MOST), unit="ranks", unset="all of them", tried="all of them, and those inside a node", rare=True, column=True,
        usual=(None,), said="shard group {}", inert="all ranks that could share a copy do"))  # fmt: skip
    recompute: str | int = field(default="none", metadata=row(
        Spelled(recomputation.recomputation, (*recomputation.WHOLE, *recomputation.MODULES), recomputation.EVERY),
        link="recompute", brief="none, full, selective, every k-th layer (a number), or modules", column=True,
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
    adapter: str = field(default="none", metadata=row(OneOf(ADAPTERS), link="adapter", brief="none, lora, qlora or gptq-lora"))
    lora_rank: int | None = field(default=None, metadata=row(
        Whole(1, 65_536), unset=str(adapters.RANK), rare=True, called="LoRA rank", owner=WITH_ADAPTERS))  # fmt: skip
    lora_targets: Sequence[str] | None = field(default=None, metadata=row(
        Spelled(adapters.targets_of, (*adapters.GROUPS, *adapters.TARGETS), several=True), unset="all", rare=True,
        owner=WITH_ADAPTERS))  # fmt: skip
    attention: str | None = field(default=None, metadata=row(
        OneOf(ATTENTION_KINDS), rare=True, software=True, leaner=("flash",), faster=("flash",), launched=True))  # fmt: skip
    loss: str | None = field(default=None, metadata=row(
        OneOf(LOSSES), unset="the framework's own", rare=True, software=True))  # fmt: skip
    base_dtype: str | None = field(default=None, metadata=row(
        OneOf(("fp32",)), unset="as it is multiplied", rare=True, owner=Owner("adapter", ("lora",))))  # fmt: skip
    reentrant: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, inert="no layers are recomputed beside weights that don't train"))  # fmt: skip
    transposed_weights: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, unset="as the device needs it", inert="no weights are held in fp8"))  # fmt: skip
    fused_cross_entropy: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, inert="the framework's loss is this one", leaner=(True,), faster=(True,)))  # fmt: skip
    fused_norms: bool | None = field(default=None, metadata=row(Flag(), rare=True, software=True))
    cuda_graphs: bool = field(default=False, metadata=row(Flag(), rare=True, software=True, called="CUDA graphs"))
    graph_modules: str | None = field(default=None, metadata=row(
        Spelled(graphs.captured_or_all, ("all", *graphs.MODULES)), unset="all", rare=True, software=True,
        owner=Owner("cuda_graphs", (True,)),
        inert="this model has none of them, or its host is faster than its device"))  # fmt: skip
    fused_experts: bool = field(default=False, metadata=row(Flag(), rare=True, software=True, owner=Owner("dtype", ("mxfp8",))))
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
        Order(RANK_ORDER), unset="-".join(RANK_ORDER), tried="every one that the framework has", rare=True, usual=(RANK_ORDER,),
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
        Whole(1, 1_000_000), unset=str(RANK), rare=True, owner=Owner("compression", ("power-sgd",))))  # fmt: skip
    expandable_segments: bool | None = field(default=None, metadata=row(
        Flag(), rare=True, software=True, leaner=(True,), inert="the framework's allocator leaves no gaps"))  # fmt: skip
    bucket_bytes: float | None = field(default=None, metadata=row(Real(1.0, 1e15), unit="bytes", rare=True, software=True))
    prefetch_bytes: float | None = field(default=None, metadata=row(Real(1.0, 1e15), unit="bytes", rare=True, software=True))
    parameter_offload: float = field(default=0.0, metadata=row(
        Real(0.0, 1.0), role="share", rare=True, inert="no weights are sharded"))  # fmt: skip
    optimizer_offload: float = field(default=0.0, metadata=row(
        Real(0.0, 1.0), link="oo", role="share", rare=True, leaner=(1.0,), faster=(0.0,)))  # fmt: skip
    activation_offload: float = field(default=0.0, metadata=row(
        Real(0.0, 1.0), link="ao", role="share", rare=True, leaner=(1.0,), faster=(0.0,)))  # fmt: skip

    __repr__ = brief

    def __post_init__(self) -> None:
        fields.check(self)
        fields.check_owners(self)
        self._check_synchronisation()
        if self.compression != "none":
            self._check_compression()

    def _check_synchronisation(self) -> None:
        if self.synchronisation == "parameter-server" and self.optimizer_offload:
            raise InvalidValue("optimizer_offload", self.optimizer_offload, "0 with servers that hold the optimizer's state")
        if self.synchronisation != "all-reduce" and self.zero_stage:
            raise InvalidValue("zero_stage", self.zero_stage, f"0 with synchronisation={self.synchronisation!r}: every rank "
                               "has a whole copy to synchronise")  # fmt: skip

    def _check_compression(self) -> None:
        if self.synchronisation != "all-reduce":
            raise InvalidValue("compression", self.compression, f"'none' with synchronisation={self.synchronisation!r}: an "
                               "all-reduce alone is modelled with compressed gradients")  # fmt: skip
        if (self.zero_stage or 0) > 1:
            raise InvalidValue("zero_stage", self.zero_stage, f"0 or 1 with compression={self.compression!r}, which needs every "
                               "rank's whole gradients")  # fmt: skip
        if self.compression == "power-sgd" and self.adapter != "none":
            raise InvalidValue("compression", self.compression, f"any other with adapter={self.adapter!r}, of low rank already")

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
    def micro_batches(self) -> int:
        """Micro-batches that one pipeline works through in a step."""
        return self.global_batch // (self.copies * self.micro_batch)

    def on(self, cluster: Cluster) -> Plan:
        """The plan on a cluster: a data-parallel degree that was left open is what the other degrees leave of its GPUs.

        Parameters
        ----------
        cluster : on which it runs

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
        defaults: Row = {name: getattr(framework, name) for name in CHOSEN_BY_FRAMEWORK} | {
            FOLLOWING: 1,
            "dtype": "bf16" if device is None else device.usual_dtype,
            "transposed_weights": device is None or not device.architecture.startswith("blackwell"),
            "sequence_parallel": framework.sequence_parallel and self.tensor_parallel > 1,
            "zero_stage": self._default_zero_stage(framework), "schedule": self._default_schedule(framework),
            "overlap_gradients": framework.overlap_gradients and framework.server_system(self.synchronisation).hidden,
            "context_communication": framework.context_communications[0],
        }
        missing = {field: value for field, value in defaults.items() if getattr(self, field) is None}
        found = dataclasses.replace(self, **missing) if missing else self
        if found.zero_stage == 0 and found.dtype in framework.sharding_dtypes and found.synchronisation == "all-reduce":
            return dataclasses.replace(found, zero_stage=1)
        return found

    def _default_zero_stage(self, framework: Framework) -> int:
        """The framework's, or none where that shards what every rank must have whole."""
        most = 0 if self.synchronisation != "all-reduce" else 3 if self.compression == "none" else 1
        return framework.zero_stage if framework.zero_stage <= most else 0

    def _default_schedule(self, framework: Framework) -> str:
        """The framework's of a pipeline of one chunk a rank, or of several; without a pipeline there is nothing to choose."""
        usual = framework.default_schedules if self.pipeline_parallel > 1 else ("1f1b", "interleaved")
        return usual[self.virtual_stages > 1]

    def settings(self, framework: Framework) -> Settings:
        """What is the same for every plan of a search, as the numbers that formulas take; all trains, as no model is known."""
        plan = self.resolve(framework)
        narrow = {
            "fp8": 1.0, "fp8-rowwise": 1.0, "fp8-block": 1.0, "mxfp8": precision.block_bytes(8.0, 8.0, 32.0),
            "nvfp4": precision.block_bytes(4.0, 8.0, 16.0),
        }  # fmt: skip
        wide = plan.dtype in ("fp32", "tf32")
        bytes_ = 4.0 if wide else 2.0
        least = 4.0 if wide else 0.0  # what is in the weights' width in 16 bit is in 32
        half = framework.half_gradients and plan.dtype == "fp16" and plan.gradient_bytes is None
        usual = 2.0 if half else max(framework.gradient_bytes, least)
        gradient = usual if plan.gradient_bytes is None else float(plan.gradient_bytes)
        stored = 4.0 if wide else framework.parameter_bytes
        trains = plan.adapter == "none"
        if plan.base_dtype == "fp32":
            stored = 4.0
        held = max(framework.held_bytes, stored) if trains else stored
        optimizer = precision.optimizer_bytes(held, *OPTIMIZERS["adam"]) if wide else framework.optimizer_bytes
        if plan.optimizer is not None:
            master, moments = OPTIMIZERS[plan.optimizer]
            # where the framework updates 16-bit weights themselves, quantised moments have no master copy beside them either
            own = plan.optimizer == "adam-8bit" and optimizer <= sum(OPTIMIZERS["adam-bf16"])
            optimizer = precision.optimizer_bytes(held, 0.0 if own else master, moments)
        copied_up = 4.0 if half else 0.0  # of a gradient in 32 bit
        updating = max(framework.update_bytes, least, held if held > stored else 0.0) if framework.update_bytes else copied_up
        served, system = plan.synchronisation == "parameter-server", framework.server_system(plan.synchronisation)
        copied = narrow.get(str(plan.dtype), 0.0) if framework.narrow_copies else 0.0
        packed = PACKED.get(plan.adapter)
        # no update needs a wide copy of what is frozen
        primary = plan.dtype in framework.narrow_weights or not trains
        layouts = 1.0 if plan.dtype in ("fp8", "fp8-rowwise", "fp8-block") and not plan.transposed_weights else 2.0
        logit = 2.0 if plan.fused_cross_entropy else framework.logit_bytes
        unwound = (plan.adapter == "qlora" and framework.wide_residual) or plan.base_dtype == "fp32"
        widths = Widths(
            compute=narrow.get(str(plan.dtype), bytes_), activation=bytes_,
            # an operand is gathered as it is cast, but where each of its rows is scaled by itself (torchao's recipe of that name)
            gathered=bytes_ if plan.dtype == "fp8-rowwise" else narrow.get(str(plan.dtype), bytes_),
            input=copied or bytes_, input_copy=copied,
            activated=framework.activation_input_bytes if copied and framework.activation_input_bytes else bytes_,
            attended=framework.attention_output_bytes if copied and framework.attention_output_bytes else bytes_ + copied,
            # weights that are stored as narrow are read as they are, and transposed when needed
            weight_copy=0.0 if stored <= copied else copied * (layouts - primary),
            parameter=stored, stored=packed.parameter if packed else (primary and copied) or stored,
            backward_gradient=framework.backward_gradient_bytes, retained_logit=framework.retained_logit_bytes,
            update=updating, flat_gradient=framework.flat_gradient_bytes,
            gradient=gradient, reduce=min(max(framework.reduce_bytes, least), gradient),
            optimizer=0.0 if served else optimizer, outer=OUTER_BYTES if plan.synchronisation == "local-sgd" else 0.0,
            logit=logit if plan.loss is None else LOSSES[plan.loss],
            wide=held - stored, residual=4.0 if unwound else bytes_,
        )  # fmt: skip
        modules = (plan.graph_modules or "").split("+")
        beside = 0.0 if framework.blocking_launches else 1.0
        kernels = KernelChoices(
            cuda_graphs=float(plan.cuda_graphs and plan.graph_modules is None),
            **{number: float(name in modules) for name, number in graphs.MODULES.items()},
            fused_experts=float(plan.fused_experts), flash_attention=float(plan.attention == "flash"),
            older_flash=max(float(framework.older_flash), 2.0 * framework.first_flash),
            fused_softmax=float(plan.attention == "fused-softmax" or (plan.attention == "unfused" and framework.compiled)),
            fused_norms=float(bool(plan.fused_norms)),
            fused_cross_entropy=float(bool(plan.fused_cross_entropy) if plan.loss is None else plan.loss in FUSED_LOSSES),
            deduplicated_dispatch=float(plan.dispatcher == "deduplicated"),
            gathered_keys=float(plan.context_communication == "all-gather"),
            exchanged_heads=float(plan.context_communication == "all-to-all"),
        )  # fmt: skip
        return Settings(
            seq_len=float(plan.seq_len), global_batch=float(plan.global_batch), trainable=1.0,
            adapter=choice_of(
                plan.adapter, plan.lora_rank, plan.lora_targets, framework.keep_quantised_inputs, framework.adapter_dropout
            ),
            optimizer=OptimizerChoice(
                newton_schulz_steps=NEWTON_SCHULZ_STEPS if plan.optimizer == "muon" else 0.0,
                passing_bytes=PASSING_BYTES.get(plan.optimizer or "", 0.0),
            ),
            widths=widths, kernels=kernels, framework=_habits(framework, bool(plan.reentrant)),
            synchronisation=SynchronisationChoice(
                kind=SYNCHRONISATIONS[plan.synchronisation], servers=float(plan.servers), local_steps=float(plan.local_steps),
                link_share=system.reached_share, request_time=system.request_time, stored=float(system.stored),
            ),
            compression=CompressionChoice(
                kind=COMPRESSIONS[plan.compression],
                density=float(DENSITY if plan.compression_density is None else plan.compression_density),
                rank=float(RANK if plan.compression_rank is None else plan.compression_rank),
            ),
            buckets=bucket_rules.numbers(
                framework.bucket_rule(plan.zero_stage, plan.prefetch_bytes), min(max(framework.reduce_bytes, least), gradient),
                stored, plan.bucket_bytes, plan.prefetch_bytes,
            ),
            overlap=OverlapChoices(
                gradients=beside * bool(plan.overlap_gradients), parameters=beside * bool(plan.overlap_parameters),
                tensor=beside * bool(plan.overlap_tensor), pipeline=beside * bool(plan.overlap_pipeline),
                experts=beside * bool(plan.overlap_experts),
            ),
            offload=OffloadShares(
                optimizer=float(plan.optimizer_offload), activations=float(plan.activation_offload),
                parameters=float(plan.parameter_offload),
            ),
            expandable_segments=float(bool(plan.expandable_segments)),
        )  # fmt: skip

    def numbers(self, framework: Framework, layers: int) -> PlanNumbers:
        """The split as the numbers that formulas take.

        Parameters
        ----------
        framework : gives the defaults
        layers : of the model, for the share that ``recompute=k`` means
        """
        plan = self.resolve(framework)
        ranks = plan.copies * plan.context_parallel
        return plan_numbers(
            {dimension.column: float(getattr(plan, dimension.field)) for dimension in DIMENSIONS},
            micro_batch=float(plan.micro_batch),
            sequence_parallel=float(bool(plan.sequence_parallel)), zero_stage=float(plan.zero_stage or 0),
            shard_group=float(plan.shard_group or ranks), schedule=SCHEDULES[str(plan.schedule)],
            recomputed=recomputation.numbers(plan.recompute, layers), rank_order=plan.rank_order,
        )  # fmt: skip

    def check(self, model: Transformer, cluster: Cluster, framework: Framework) -> None:
        """Raise `IllegalPlan` with the reason where the plan can't run on this model and cluster."""
        plan = self.on(cluster).resolve(framework, cluster.device)
        plan.check_framework(framework)
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
        self._check_degrees(framework)
        if self.zero_stage not in framework.zero_stages:
            raise IllegalPlan(
                "zero_stage",
                f"zero_stage={self.zero_stage}: {framework.name} has stages {', '.join(map(str, framework.zero_stages))}",
            )
        if self.parameter_offload and self.zero_stage != 3:
            raise IllegalPlan("parameter_offload", f"parameter_offload={self.parameter_offload:g} with zero_stage="
                              f"{self.zero_stage}: weights lie on the host where stage 3 shards them")  # fmt: skip
        if self.pipeline_parallel > 1 and (self.zero_stage or 0) > framework.largest_pipelined_zero_stage:
            raise IllegalPlan(
                "zero_pipeline",
                f"zero_stage={self.zero_stage} with pipeline_parallel={self.pipeline_parallel}: {framework.name} "
                f"shards at most stage {framework.largest_pipelined_zero_stage} under a pipeline",
            )
        self._check_choices(framework)

    def _check_degrees(self, framework: Framework) -> None:
        """Raise `IllegalPlan` where the framework doesn't split so."""
        for one in framework.lacking:
            degree = getattr(self, one.field)
            if degree > 1:
                raise IllegalPlan("degrees_of_framework", f"{one.field}={degree}: {framework.name} has {framework.degrees}"
                                  + framework.instead(one))  # fmt: skip
        for pair in framework.exclusive:
            if all(getattr(self, one.field) > 1 for one in pair):
                both = " with ".join(f"{one.field}={getattr(self, one.field)}" for one in pair)
                raise IllegalPlan("degrees_of_framework", f"{both}: {framework.name} has one of them at a time")

    def _check_choices(self, framework: Framework) -> None:
        """Raise `IllegalPlan` where the framework has no such schedule or dtype."""
        if self.pipeline_parallel > 1 and self.schedule not in framework.schedules:
            raise IllegalPlan(
                "schedule_of_framework", f"schedule={self.schedule!r}: {framework.name} has {', '.join(framework.schedules)}"
            )
        if self.context_parallel > 1 and self.context_communication not in framework.context_communications:
            raise IllegalPlan("context_of_framework", f"context_communication={self.context_communication!r}: "
                              f"{framework.name} has {', '.join(framework.context_communications)}")  # fmt: skip
        if not framework.recomputes(self.recompute):
            raise IllegalPlan("recompute_of_framework", f"recompute={self.recompute!r}: {framework.name} has "
                              + ", ".join((*recomputation.WHOLE, *framework.recompute_modules)))  # fmt: skip
        if self.dtype not in framework.dtypes:
            raise IllegalPlan("dtype_of_framework", f"dtype={self.dtype!r}: {framework.name} has {', '.join(framework.dtypes)}")


CHOSEN_BY_FRAMEWORK = tuple(
    name for name, one in fields.table(Plan).items()
    if one.software and not one.unit and one.default is None and name in fields.table(Framework)
)  # fmt: skip
"""Fields of a plan that are as the framework's field of the same name where nothing is said."""


def plan_numbers(
    degrees: Mapping[str, Number], *, micro_batch: Number, sequence_parallel: Number, zero_stage: Number, shard_group: Number,
    schedule: Number, recomputed: Mapping[str, Number], rank_order: Sequence[str],
) -> PlanNumbers:  # fmt: skip
    """Degrees by their columns, as floats or columns, with the strides that the rank order gives their groups."""
    strides: dict[str, Number] = {}
    inner: Number = 0.0 * degrees["tensor"] + 1.0
    for dimension in rank_order:
        strides[dimension] = inner
        inner = inner * degrees[dimension]
    # ranks with the same weights differ in both places, of which one may be no place at all
    nearest = ops.where(degrees["data"] > 1.0, ops.minimum(strides["data"], strides["context"]), strides["context"])
    return PlanNumbers(
        **degrees, **{f"{name}_stride": stride for name, stride in strides.items() if name != "data"},
        data_stride=ops.where(degrees["context"] > 1.0, nearest, strides["data"]),
        sequence_parallel=sequence_parallel, micro_batch=micro_batch, schedule=schedule,
        shard_optimizer=(zero_stage > 0.5) * 1.0, shard_gradients=(zero_stage > 1.5) * 1.0,
        shard_weights=(zero_stage > 2.5) * 1.0, shard_group=shard_group, **recomputed,
    )  # fmt: skip


def explain(reason: str, plan: Plan, model: Transformer, cluster: Cluster) -> str:
    """One line: which rule a plan breaks, with the values, and what would be legal."""
    known = refusals.of_model(model, max(plan.tensor_parallel, 8)) | {"gpus": cluster.gpus}
    return refusals.filled(refusals.TEXTS[reason], vars(plan) | known)

def _habits(framework: Framework, reentrant: bool) -> FrameworkHabits:
    """What a framework does, with reentrant checkpoints or others."""
    return FrameworkHabits(
        gather_logits=float(framework.gather_logits), balanced_stages=float(framework.balanced_stages),
        listed_chunks=float(framework.listed_chunks),
        keep_gathered=float(framework.keep_gathered), separate_rotation=float(framework.separate_rotation),
        keep_rotated=float(framework.keep_rotated),
        repeat_keys=float(framework.repeat_keys), keep_expert_outputs=float(framework.keep_expert_outputs),
        keep_activated=float(framework.keep_activated),
        separate_projections=float(framework.separate_projections), grouped_experts=float(framework.grouped_experts),
        fused_accumulation=float(framework.fused_accumulation), module_hooks=float(framework.module_hooks),
        deferred_sums=float(framework.deferred_sums), weight_traffic=float(framework.weight_traffic),
        lazy_gradients=float(framework.lazy_gradients), double_registers=float(framework.double_registers),
        flat_updates=float(framework.flat_updates), blocking_launches=float(framework.blocking_launches),
        scatter_boundary=float(framework.scatter_boundary),
        host_update_rate=float(framework.host_update_rate),
        reentrant=float(reentrant), offload_gradients=float(framework.offload_gradients),
    )  # fmt: skip

