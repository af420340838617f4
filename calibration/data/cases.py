"""A measured run as the model, cluster, plan and framework that it describes."""

from __future__ import annotations

import dataclasses
import functools
import math
import re

from calibration.data import adapters, datasets
from calibration.data import arguments as megatron
from calibration.data.datasets import dataset_of, words_of
from calibration.data.recipes import Recipe, graphs_of, recipe_of
from calibration.data.runs import Run
from calibration.data.twins import contradicted
from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.communication import network_kind
from costmodel.catalogue.loader import load_device, load_model, names
from costmodel.description.cluster import Cluster, Level
from costmodel.description.device import Device
from costmodel.description.framework import Framework
from costmodel.description.graphs import captured
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.text.errors import CostModelError, InvalidValue, NotModelled

DEVICES = {"a800-sxm-80gb": "a800", "mi250x": "mi250x-gcd"}
"""Names that sources use for devices of the catalogue."""
HALF_RATE = ("rtx-3090-ti",)
"""GPUs whose tensor cores sum in 32 bit at half their rate, which the catalogue lacks: they reach all of that half (81 of 80
TFLOP/s by mli/transformers-benchmarks@3370b2b), where data-centre GPUs of their kind, from which an unmeasured GPU's efficiencies
come, reach three quarters, so that these runs came out 30 to 40 % too slow."""
CLASSIC = ("megatron-lm-2021", "megatron-lm-2023", "megatron-deepspeed", "oneflow")
"""Stacks whose models are GPTs with LayerNorm, biases and learned positions."""
DEFAULT_VOCABULARY = 50_257
NODE_BANDWIDTH = {"volta": 120e9, "ampere": 235e9, "hopper": 365e9, "blackwell": 685e9, "blackwell-ultra": 685e9}
NODE_SIZE = {"gb200": 72, "gb300": 72}
NIC_BANDWIDTH = {
    "volta": 12.5e9, "ampere": 25e9, "hopper": 50e9, "blackwell": 50e9, "blackwell-ultra": 100e9, "cdna3": 50e9,
}  # fmt: skip
NIC_SHARE = 0.92
OMNI_PATH = 12.5e9
"""Of a link of Omni-Path 100, the only one there was until 2025 [bytes/s]."""
OF_STAGES = (
    "dtype", "seq_len", "tensor_parallel", "context_parallel", "expert_parallel", "pipeline_parallel", "virtual_stages",
    "schedule", "recompute", "attention", "adapter",
)  # fmt: skip
"""Fields of a plan that say, beside the size of a micro-batch, what a rank does with one."""
CLOSE = 0.01
"""Relative difference from the stated number of parameters up to which the plainest reading of a row is taken."""
SCHEDULES = {"zb-1p": "zb-h1", "zb-2p": "zb-h2", "zb-v": "zb-v", "1f1b-i": "interleaved", "1f1b": "1f1b"}


@dataclasses.dataclass(frozen=True)
class Case:
    """What a row ran, and what it measured; `waited` where other runs of its source contradict its time."""

    run: Run
    model: Transformer
    cluster: Cluster
    plan: Plan
    framework: Framework
    waited: bool = False

    @property
    def seconds(self) -> float | None:
        """Measured step time [s]; None where the row has none, or one that its own steps or other runs contradict."""
        number = self.run.number
        if self.waited or not self.run.flag("usable_time") or not megatron.is_steady(self.run) or datasets.untimed(self.run):
            return None
        if "step_time_s" in number:
            return number["step_time_s"]
        tokens = self.plan.global_batch * self.plan.seq_len
        return tokens / (number["tokens_per_s_per_gpu"] * self.plan.gpus)

    @property
    def peak_bytes(self) -> float | None:
        """Measured peak memory [bytes]."""
        gigabyte = 1e9 if dataset_of(self.run).decimal else 2**30
        return self.run.number["peak_memory_gib"] * gigabyte if self.run.flag("usable_mem") else None


@functools.cache
def _catalogue_shapes() -> dict[tuple[int, int, int, int], list[Transformer]]:
    shapes: dict[tuple[int, int, int, int], list[Transformer]] = {}
    for name in names("model"):
        model = load_model(name)
        shapes.setdefault((model.hidden, model.heads, int(model.kv_heads or 0), model.experts), []).append(model)
    return shapes


def _known_shape(key: tuple[int, int, int, int], width: int, layers: int) -> Transformer | None:
    """The catalogue's model of that width, heads and experts; of several the one whose MLP, then depth, is the same."""

    def distance(model: Transformer) -> tuple[bool, int]:
        return width not in (model.feed_forward, model.expert_feed_forward), abs(model.layers - layers)

    return min(_catalogue_shapes().get(key, []), key=distance, default=None)


def _whole(run: Run, column: str, default: int | None = None) -> int:
    """A column as a whole number of at least 1; 0 and empty cells give the default."""
    value = run.number.get(column) or None
    if value is None:
        if default is None:
            raise InvalidValue(column, "", "a number")
        return default
    if value != round(value):
        raise InvalidValue(column, value, "a whole number")
    return int(value)


def model_of(run: Run) -> Transformer:
    """The decoder of a row.

    A row gives sizes, not the kind of layer. A mixture of experts, or a shape with latent attention, takes what the
    row leaves open from the catalogue's model of the same width, heads and experts. Otherwise an MLP of four times
    the width is a plain one unless the model says it is a Llama or its like; where that misses the stated parameter
    count, the kind of MLP and the tying that come nearest to the count are taken.
    """
    layers, hidden, heads = _whole(run, "n_layers"), _whole(run, "hidden"), _whole(run, "n_heads")
    kv_heads = _whole(run, "n_kv_heads", heads) or heads
    experts = _whole(run, "n_experts", 0)
    stack = run.text["stack"]
    tensor = _whole(run, "tp", 1)
    source = dataset_of(run)
    vocabulary = _whole(run, "vocab", 0) or source.vocabulary or DEFAULT_VOCABULARY
    vocabulary = math.ceil(vocabulary / (128 * tensor)) * 128 * tensor
    stated_arguments = megatron.arguments_of(run)
    known = _known_shape((hidden, heads, kv_heads, experts), _whole(run, "ffn_hidden", 0), layers)
    if known is not None and not stated_arguments and (experts or known.latent):
        dense = min(known.dense_layers, layers) if known.expert_layer_step == 1 else 0
        return dataclasses.replace(
            known, name=run.text["model_name"] or known.name, layers=layers, vocabulary=vocabulary, dense_layers=dense,
            windowed_layers=round(known.windowed_layers * layers / known.layers), dropout=False,
            published_parameters=None,
        )  # fmt: skip
    width = _whole(run, "ffn_hidden", 0)
    classic = source.classic or stack in CLASSIC
    if not width:
        width = 4 * hidden if classic else _gated_width(hidden)
    llama_like = re.search(r"llama|mistral|qwen|internlm", run.text["model_name"].lower()) is not None
    gated = not classic and (width != 4 * hidden or llama_like)
    head_dim = None if hidden % heads == 0 else round(hidden / heads)
    plain = Transformer(
        name=run.text["model_name"] or "reference", layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads,
        head_dim=head_dim, vocabulary=vocabulary, feed_forward=0 if experts else width, gated=gated,
        norm="layernorm" if classic else "rmsnorm", tied_embeddings=classic,
        learned_positions=_whole(run, "seq_len") if classic else 0, attention_bias=classic, output_bias=classic,
        feed_forward_bias=classic, dropout=classic, experts=experts,
        experts_per_token=_whole(run, "top_k", 1) if experts else 0, expert_feed_forward=width if experts else 0,
    )  # fmt: skip
    if stated_arguments:
        return megatron.with_arguments(plain, stated_arguments)
    stated = run.number.get("n_params")
    if not stated and llama_like and known is not None and (known.layers, known.feed_forward) == (layers, width):
        return dataclasses.replace(plain, tied_embeddings=known.tied_embeddings)
    if stated and not classic and not experts:
        kinds = [plain] if llama_like else [
            dataclasses.replace(plain, gated=gated_too, learned_positions=positions)
            for gated_too in (gated, not gated) for positions in (0, _whole(run, "seq_len"))
        ]  # fmt: skip
        candidates = kinds + [dataclasses.replace(kind, tied_embeddings=True) for kind in kinds]
        errors = [abs(candidate.parameters / stated - 1) for candidate in candidates]
        if errors[0] > CLOSE:
            return candidates[errors.index(min(errors))]
    return plain


def _gated_width(hidden: int) -> int:
    """Width of a gated MLP with as many weights as a plain one of four times the width."""
    return 256 * math.ceil(8 * hidden / 3 / 256)


def _device_name(run: Run) -> str:
    """Device of the catalogue: what the row's vocabulary calls it, or the part of that name that the source's words tell."""
    name = run.text["gpu_id"]
    if name == "v100-sxm-32gb" and "sxm3" in run.text.get("gpu", "").lower():
        return "v100-sxm3-32gb"
    return DEVICES.get(name, name)


def cluster_of(run: Run) -> Cluster:
    """The machine of a row: its device on nodes, and between nodes the stated NICs or those usual for the device."""
    if _device_name(run) in HALF_RATE:
        raise NotModelled(f"gpu_id={run.text['gpu_id']}: no operator was measured on a GPU that sums in 32 bit at half its rate")
    device = load_device(_device_name(run))
    device = at_clocks(device, run, device.efficiency.sustained_clock, device.efficiency.narrow_clock)
    gpus = _whole(run, "n_gpus")
    per_node = _whole(run, "gpus_per_node", 8) or 8
    architecture = device.architecture
    domain = NODE_SIZE.get(device.name, per_node)
    fabric = run.text.get("inter_node_link", "").lower()
    latency = 3.0e-5 if "efa" in fabric else 1.4e-5
    stated, usual = run.number.get("nic_bandwidth"), NIC_BANDWIDTH.get(architecture, 12.5e9)
    inside = Level(name="nvlink", size=domain, latency=3.4e-6, bandwidth=NODE_BANDWIDTH.get(architecture, 100e9))
    between = Level(name="efa" if "efa" in fabric else "rail", size=domain * 1_000, latency=latency,
                    bandwidth=between_nodes(fabric, per_node) or NIC_SHARE * (stated or usual))  # fmt: skip
    return Cluster(name=f"{device.name} x {gpus}", device=device, levels=(inside, between), gpus=gpus)


def between_nodes(words: str, per_node: int) -> float:
    """Bandwidth of a GPU between nodes as a source's words tell it: measured, or of so many links; 0 where they don't [bytes/s].

    Parameters
    ----------
    words : of the link, in lower case
    per_node : GPUs of a node, which share its links

    Examples
    --------
    >>> between_nodes("intel opa, 400 gb/s max per node; measured allreduce 23-90 gb/s", 4)
    1765625000.0
    >>> between_nodes("4 omni-path links per node", 8), between_nodes("8x hdr infiniband", 8)
    (5750000000.0, 0.0)
    """
    measured = re.search(r"measured allreduce (\d+)-(\d+) gb/s", words)
    if measured:
        return 0.5 * (float(measured.group(1)) + float(measured.group(2))) * 1e9 / 8.0 / per_node
    links = re.search(r"(\d+) omni-path links per node", words)
    return NIC_SHARE * int(links.group(1)) * OMNI_PATH / per_node if links else 0.0


def at_clocks(device: Device, run: Run, wide: float, narrow: float) -> Device:
    """A device at the clocks that it sustains, on the machine of a row.

    Parameters
    ----------
    device : of the catalogue
    run : a row, whose source may have measured its machine's own products
    wide, narrow : in a training step over a short benchmark, of kernels of 16 bits and of products of 8 and 4
    """
    own = datasets.dataset_of(run).clock
    efficiency = dataclasses.replace(device.efficiency, sustained_clock=own * wide, narrow_clock=own * narrow)
    return dataclasses.replace(device, efficiency=efficiency)


def framework_of(run: Run) -> Framework:
    """The framework profile of a row's stack, on its device."""
    cluster = cluster_of(run)
    return datasets.framework_of(run, cluster.device.architecture, network_kind(cluster.levels[-1].name))


def plan_of(run: Run, framework: Framework) -> Plan:
    """The plan of a row; what it leaves out is the framework's default."""
    stated = megatron.arguments_of(run)
    tensor, context, pipeline = _whole(run, "tp", 1), _whole(run, "cp", 1), _whole(run, "pp", 1)
    data = _whole(run, "dp", 0) or _whole(run, "n_gpus") // (tensor * context * pipeline)
    expert = _whole(run, "ep", 1) or 1
    sparse = stated and _whole(run, "n_experts", 0)
    recipe = recipe_of(run)
    sequence = run.flag("sequence_parallel") and tensor > 1 if run.text["sequence_parallel"] else recipe.sequence_parallel
    schedule, chunks = _schedule(run, recipe)
    zero, shard = _sharding(run, data * context)
    fused_norms, fused_loss = _fusions(run)
    optimizer, offload = _optimizer(run)
    offloaded = "activation offloading" in words_of(run) or datasets.offloads_checkpoints(run)
    return Plan(
        global_batch=_whole(run, "global_batch"), seq_len=_whole(run, "seq_len"), tensor_parallel=tensor,
        context_parallel=context, pipeline_parallel=pipeline, data_parallel=data, expert_parallel=expert,
        expert_tensor_parallel=megatron.expert_tensor_parallel(run, tensor, expert) if sparse else 1,
        virtual_stages=chunks if pipeline > 1 else 1, micro_batch=_whole(run, "micro_batch"), schedule=schedule,
        sequence_parallel=sequence,
        zero_stage=zero, shard_group=shard, recompute=_recompute(run, stated, recipe), dtype=_dtype(run),
        adapter=adapters.kind(run), lora_rank=adapters.rank(run), lora_targets=adapters.targets(run),
        attention=_attention(run, framework) or megatron.attention(stated),
        fused_norms=fused_norms, fused_cross_entropy=fused_loss,
        **_graphs(run, recipe),
        fused_experts=recipe.fused_experts, overlap_tensor=_overlap_tensor(run, recipe),
        overlap_experts=True if datasets.overlaps_experts(run) else None,
        dispatcher="deduplicated" if datasets.dispatcher_of(run) in datasets.ONCE_A_RANK else None,
        context_communication=datasets.context_communication_of(run),
        activation_offload=1.0 if offloaded else megatron.offloaded_share(stated),
        optimizer=optimizer, optimizer_offload=offload, bucket_bytes=datasets.bucket_bytes(run, zero, framework),
    )  # fmt: skip


def _overlap_tensor(run: Run, recipe: Recipe) -> bool | None:
    """Whether products hide what tensor ranks exchange, None where a row leaves it to the framework."""
    if datasets.exchanges_apart(run):
        return False
    return True if "async tp" in words_of(run) else recipe.overlap_tensor


def _attention(run: Run, framework: Framework) -> str:
    """The attention kernel that a row names; where it only denies flash attention, what its framework runs without it."""
    named = run.text["attention_kind"]
    denied = run.text.get("flash_attention", "").lower() == "false"
    return framework.attention if denied and named == "unfused" and framework.attention != "flash" else named


def _graphs(run: Run, recipe: Recipe) -> Row:
    """What of a layer is launched as a graph: all of it, with experts if they are fused, some of its modules, or nothing.

    NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs: what v0.5.0 captures whole, as experts are fused, v0.2.0 to v0.4.2
    capture the router of.
    """
    whole, modules = graphs_of(run)
    experts = _whole(run, "n_experts", 0)
    whole = whole or datasets.is_captured(run)
    if whole and experts and not recipe.fused_experts:
        whole, modules = False, "router"
    said = re.search(r"cuda graph ((?:moe_\w+|attn|mlp)(?:\+\w+)*)", words_of(run))
    modules = captured(said[1]) if said else modules
    return {"cuda_graphs": whole or bool(modules), "graph_modules": None if whole else modules or None}


def _label(run: Run) -> str:
    return (run.text["model_name"] + run.text["framework"]).lower()


def _schedule(run: Run, recipe: Recipe) -> tuple[str | None, int]:
    """Schedule of the pipeline, and the model chunks on each rank."""
    stated = re.search(r"schedule ([\w-]+)", run.text["framework"].lower())
    schedule = SCHEDULES.get(stated.group(1)) if stated else None
    return schedule, 1 if schedule == "zb-v" else _chunks(run, recipe)


def _chunks(run: Run, recipe: Recipe) -> int:
    """Model chunks on each rank of a pipeline that a row states, else its recipe."""
    return _whole(run, "vpp", recipe.virtual_stages)


def _sharding(run: Run, ranks: int) -> tuple[int | None, int | None]:
    """ZeRO stage, and how many of `ranks` share one copy of what it shards."""
    mode = run.text["fsdp_mode"].lower()
    named = re.search(r"zero[- ]?([123])\b", run.text["framework"].lower())
    zero: int | None
    if "hsdp" in mode:
        zero = 3
    elif "shard_grad_op" in mode:
        zero = 2
    elif datasets.is_old_zero(run) or "fsdp" in mode or "full_shard" in mode or "zero-3" in mode or "optim_grads_params" in mode:
        zero = 3
    elif datasets.deals_muon(run):
        zero = 1
    elif "zero_stage" in run.number:
        zero = int(run.number["zero_stage"])
    else:
        zero = int(named.group(1)) if named else None
    group = re.search(r"(?:group|shard|fsdp) (\d+)", mode)
    shard = int(group.group(1)) if group and zero else 0
    instances = re.search(r'num-distributed-optimizer-instances"?[=: ]+(\d+)', words_of(run))
    if instances and zero is not None and ranks % int(instances.group(1)) == 0:
        shard = ranks // int(instances.group(1))  # Megatron-Core's replicas of the sharded optimizer
    if "hsdp" in mode:
        shard = _whole(run, "gpus_per_node", 8)
    return zero, shard if shard and ranks % shard == 0 else None


def _recompute(run: Run, stated: dict[str, object], recipe: Recipe) -> str | int:
    recompute = megatron.recompute(stated, run.text["recompute_kind"] or dataset_of(run).recompute)
    if recompute == "none" and recipe.recompute:
        return recipe.recompute
    if recompute == "none" and recipe.whole_layers:  # as many as every k-th of a chunk's layers are
        chunks = _whole(run, "pp", 1) * _chunks(run, recipe)
        return math.ceil(_whole(run, "n_layers") / chunks / recipe.whole_layers)
    # torchtitan's selective checkpointing keeps the attention core and every second matrix product
    return "operators" if recompute == "selective" and run.text["stack"] == "fsdp2" else recompute


def _dtype(run: Run) -> str:
    dtype = run.text["compute_dtype"] or "bf16"
    by_row = re.search(r"row-?wise", run.text.get("precision", "").lower())
    return "fp8-rowwise" if dtype == "fp8" and by_row else dtype


def _fusions(run: Run) -> tuple[bool | None, bool | None]:
    """Whether a norm is one kernel, and the loss from logits to their gradient; None where the row doesn't say."""
    accelerated = datasets.has_accelerated_kernels(run)
    if run.text["stack"] in ("fsdp2", "torchtune"):
        norms: bool | None = "compile" in words_of(run)  # torch.compile fuses what lies between the products
    else:
        kernel = "rms kernel" in run.text.get("flash_attention", "").lower()
        norms = True if accelerated or kernel or datasets.uses_liger(run) else None
    said = re.sub(r"without (liger|fused ce)", "", words_of(run) + _label(run))
    named = re.search(r"cross-entropy fusion|fused ce|chunked ce|liger", said)
    # FSDP's wrapper casts the logits before a fused kernel sees them
    loss = named and not (accelerated and "fsdp" in run.text["fsdp_mode"].lower())
    return norms, True if loss else None


def _optimizer(run: Run) -> tuple[str | None, float]:
    """The plan's optimizer, None for the framework's own, and the share of its states in host memory."""
    text = (run.text.get("optimizer", "") + run.text["fsdp_mode"] + words_of(run) * ("(cumulative)" in words_of(run))).lower()
    named = "adam-8bit" if "8-bit" in text else "muon" if "muon" in text else None
    offloads = "offload" in run.text["framework"].lower() and "opt offl=n" not in words_of(run)
    return named, 1.0 if "cpu" in text or offloads else 0.0


NOT_DECODERS = re.compile(r"bert|t5|mamba|hybrid|llava|vlm|mimo|multimodal|grpo|distill")
"""In the name of what is trained: encoders, state-space layers, vision towers, and loops with more than one model."""


def case_of(run: Run) -> Case:
    """The case of a row; a CostModelError says what it lacks."""
    if NOT_DECODERS.search(run.text["model_name"].lower()):
        raise NotModelled("model_name: more, or other, than one decoder of the sizes given")
    if refused := recipe_of(run).refused:
        raise NotModelled(f"framework={run.text['framework']} with {run.text['model_name']}: {refused}")
    if "(unpacked)" in words_of(run):
        raise NotModelled("notes: sequences that are not packed, of lengths that the row does not say")
    if datasets.dispatcher_of(run) in datasets.ONCE_A_RANK and _whole(run, "n_experts", 0) and "ep" not in run.number:
        raise NotModelled("ep: tokens are sent to experts on ranks whose number the row does not say")
    framework = framework_of(run)
    if run.text["compute_dtype"] in ("", "int8"):
        raise InvalidValue("compute_dtype", run.text["compute_dtype"], "a floating-point dtype")
    model = model_of(run)
    if datasets.dataset_of(run).untied:
        model = dataclasses.replace(model, tied_embeddings=False)
    case = Case(run, model, cluster_of(run), plan_of(run, framework), framework)
    case.plan.settings(framework)
    device = case.cluster.device
    device.peak(str(case.plan.dtype))
    if case.plan.gpus != case.cluster.gpus:
        raise InvalidValue("n_gpus", case.cluster.gpus, f"the product of the degrees, {case.plan.gpus}")
    return case


def is_modelled(run: Run) -> bool:
    """Whether a row is of a kind that the library models; what such a row may lack is another question."""
    try:
        case_of(run)
    except NotModelled:
        return False
    except CostModelError:
        return True
    return True


def cases_of(runs: list[Run]) -> tuple[list[Case], dict[str, list[str]]]:
    """Cases of all rows that can be predicted, and of the others the reason with their labels."""
    cases: list[Case] = []
    skipped: dict[str, list[str]] = {}
    for run in runs:
        try:
            cases.append(case_of(run))
        except CostModelError as error:
            skipped.setdefault(str(error), []).append(run.label)
    return _without_waits(cases), skipped


def _without_waits(cases: list[Case]) -> list[Case]:
    """The cases, those that others of their source contradict marked."""
    timed = [n for n, case in enumerate(cases) if case.seconds is not None]
    counts = [cases[n].plan.micro_batches for n in timed]
    bubbles = [(cases[n].plan.pipeline_parallel - 1) / cases[n].plan.virtual_stages for n in timed]
    sizes, seconds = [cases[n].plan.micro_batch for n in timed], [float(cases[n].seconds or math.nan) for n in timed]
    polls = [dataset_of(cases[n].run).polls * (cases[n].plan.pipeline_parallel > 1) for n in timed]
    waited = contradicted([_stages(cases[n]) for n in timed], sizes, counts, bubbles, seconds, polls)
    found = list(cases)
    for n, yes in zip(timed, waited, strict=True):
        found[n] = dataclasses.replace(cases[n], waited=yes)
    return found


def _stages(case: Case) -> tuple[object, ...]:
    """What a rank of a case does with a micro-batch, and on which machines."""
    plan, text = case.plan, case.run.text
    return (
        text["dataset"], text["framework"], case.model, case.cluster.device.name, plan.gpus > case.cluster.levels[0].size,
        *(getattr(plan, field) for field in OF_STAGES),
    )  # fmt: skip
