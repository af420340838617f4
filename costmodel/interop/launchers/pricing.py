"""From what a launch says to what `estimate` takes: the model, the plan, the software."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, NamedTuple

from costmodel.arithmetic.named_tuples import Row, changed, made
from costmodel.catalogue import loader
from costmodel.catalogue.software import load_framework
from costmodel.catalogue.spellings import shape_name
from costmodel.description.fields import table
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.interop.launchers.launch import EXTRA_FIELDS, Described
from costmodel.interop.launchers.table import about
from costmodel.text.errors import CostModelError, InvalidValue, NotModelled, UnreadableFile
from costmodel.text.results import brief

VOCABULARY = 50_304
"""Where no file states one: GPT-2's, padded to a multiple of 128 as Megatron does."""
OPTIMIZERS = (
    ("adam-8bit", r"8bit|4bit|fp8"), ("muon", r"muon"), ("sgd-momentum", r"lion|sgd"), ("rmsprop", r"rmsprop"),
    ("adam", r"adamw?(?!\w*mix)|lamb|mcore"),
)  # fmt: skip
"""Optimizers of `Plan` by what an optimizer's name contains: Lion keeps one moment, as momentum does; LAMB two, as Adam."""
BY_LISTS = "adamw_torch"
"""PyTorch's Adam where Hugging Face's words say nothing of its kernels (huggingface/transformers src/transformers/trainer.py
``get_optimizer_cls_and_kwargs``)."""
ELSEWHERE = (
    "recompute_every", "recompute_modules", "optimizer_states", "optimizer_kernel", "shard_group", "sized_by_width", "paired",
    "referred", "software",
)  # fmt: skip
"""Further fields of a plan that are priced with others."""
WIDTHS = {"bucket_bytes": 1.0, "prefetch_bytes": 0.9}
"""Elements of a bucket over the square of the model's width, where transformers fills "auto" in (huggingface/transformers
src/transformers/integrations/deepspeed.py ``trainer_config_finalize``)."""
UNLIKE = r"ademamix|adafactor|adagrad|galore|apollo|shampoo|soap|badam|adam_?mini|adalomo|lomo|came|schedule_?free|dion"
KERNELS = {"fused": "flash", "xformers": "flash", "ring": "flash", "auto": None, "unfused-softmax": "unfused"}
"""Kernels of attention of a launch that a plan calls otherwise."""
MEGATRON = ("megatron-lm", "megatron-deepspeed", "nemo", "megatron-bridge", "gpt-neox", "slime")
"""Frameworks whose own attention has a fused softmax."""
SCHEDULES = {"zero-bubble": "zb-h1"}
"""The same of schedules."""
ALIASES = {
    "llama3405b": "llama3.1-405b", "llama70b": "llama2-70b", "llama7b": "llama2-7b", "llama13b": "llama2-13b",
    "gpt3175b": "gpt3-175b",
    "llama38b": "llama3-8b", "llama321b": "llama3.2-1b", "mistral7b": "mistral-7b", "mistral7bv0": "mistral-7b",
}  # fmt: skip
"""Names that frameworks give to models of the catalogue."""
NOISE = re.compile(
    r"\b(meta|instruct|chat|hf|base|it|pt|bnb|4bit|8bit|nf4|bf16|fp8|gptq|awq|dequantized|coder|math|sft|dpo|pretrain|unsloth|"
    r"v0\.\d|v1\.\d|\d{4}|thinking|distill|lora|qlora|dora|qdora|full|int4)\b"
)


CACHED = re.compile(r".*\bmodels--([^/]+?)--([^/]+)(?:/snapshots/[0-9a-f]+)?")
"""A folder of the hub's cache: huggingface_hub src/huggingface_hub/file_download.py ``repo_folder_name``."""


class Priced(NamedTuple):
    """What `estimate` takes."""

    model: Transformer
    plan: Plan
    software: str
    """Entry of the catalogue's frameworks."""
    notes: tuple[str, ...]
    """What was put in another's place."""
    algorithm: str | None = None
    """Of `post_training`, where a step is more than the update of this plan."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch(Described):
    """One run as its launch files describe it, and as what the library's verbs take.

    ``model``, ``plan`` and ``software`` are what `costmodel.estimate`, `costmodel.simulate` and the others take; each says in a
    `CostModelError` what is missing where the files don't say enough.

    Examples
    --------
    >>> from costmodel import estimate, load_cluster, read_launch
    >>> launch = read_launch("--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
    ...     "--micro-batch-size 1 --global-batch-size 8 --tensor-model-parallel-size 2 --bf16", gpus=8)
    >>> launch.framework, launch.plan_fields["tensor_parallel"], launch.assumed["pipeline_parallel"]
    ('megatron-lm', 2, 1)
    >>> launch.model.layers, launch.plan.data_parallel, launch.software
    (2, 4, 'megatron-core')
    >>> estimate(launch.model, load_cluster("dgx-h100", gpus=8), launch.plan, launch.software).fits
    True
    """

    __repr__ = brief

    @property
    def model(self) -> Transformer:
        """The model that the files name or describe."""
        refuse_conflicts(self)
        check_variables(self, shaped=False, sized=True, only_model=True)
        return model_of(self, [])

    @property
    def plan(self) -> Plan:
        """The plan that the files amount to."""
        refuse_conflicts(self)
        check_variables(self, shaped=True, sized=self.gpus is not None)
        return plan_of(self, None, [])

    @property
    def software(self) -> str:
        """The catalogue's framework that it runs with."""
        return software_of(self)


def resolve(
    launch: Described,
    *,
    model: Transformer | None = None,
    gpus: int | None = None,
    config: str | Path | None = None,
) -> Priced:
    """The model and plan of a launch, ready to be priced.

    Parameters
    ----------
    launch : of `read_launch`
    model : in place of the one that the files name
    gpus : world size where the files don't state one
    config : a Hugging Face ``config.json`` to take the model's shape from; no file is opened but this

    Returns
    -------
    Priced

    Raises
    ------
    CostModelError
        where files conflict, variables are unresolved, or something is missing that no default gives; it says what to set
    NotModelled
        where the run uses what isn't modelled
    IllegalPlan
        where GPUs and degrees don't fit
    """
    refuse_conflicts(launch)
    check_variables(launch, model is not None or config is not None, gpus is not None or launch.gpus is not None)
    notes: list[str] = []
    if model is None and config is not None:
        model = Transformer.from_huggingface(config)
    shape, software = model or model_of(launch, notes), software_of(launch)
    width = load_framework(software).reduce_bytes
    plan, sized = plan_of(launch, gpus, notes), launch.plan_fields.get("sized_by_width") or ()
    for name in sized if isinstance(sized, list) else ():
        plan = changed(plan, {name: float(int(WIDTHS[name] * shape.hidden**2)) * width})
    referred = launch.plan_fields.get("referred")
    algorithm = str(referred) if referred else None
    return Priced(shape, plan, software, tuple(notes), algorithm)


def _names(launch: Described) -> str:
    return ", ".join(launch.files)


def refuse_conflicts(launch: Described) -> None:
    """Raise `CostModelError` where the files state what can't all be true."""
    if launch.conflicts:
        raise CostModelError(
            f"{_names(launch)}: conflict: {'; '.join(launch.conflicts)}; settle it with settings={{FIELD: VALUE}}"
        )


def check_variables(launch: Described, shaped: bool, sized: bool, only_model: bool = False) -> None:
    """Ask for the variables that matter: not for the model's where it is given, nor for that of nodes where GPUs are.

    Parameters
    ----------
    launch : with what is unresolved
    shaped : the model is given, or not asked for
    sized : the number of GPUs is known, or not asked for
    only_model : nothing but the model is asked for
    """
    asked = []
    for shown, raw in launch.unresolved.items():
        if "tokenizer" in shown:
            continue
        of_model = re.search(r"pretrain|model_name|base_model|num.layers|hidden|heads|vocab|ffn|expert.intermediate", shown)
        if sized and re.search(r"nnodes|nproc|num_(nodes|gpus|processes|machines)|gpus|devices", shown):
            continue
        if (shaped and of_model) or (only_model and not of_model):
            continue
        found = re.search(r"\$\{?([A-Za-z_]\w*)", raw)
        given = f"settings={{{(found[1] if found else shown.lstrip('-'))!r}: ...}}"
        asked.append(f"{given} (for {shown})" if found else given)
    if asked:
        raise CostModelError(f"{_names(launch)}: unresolved: {', '.join(dict.fromkeys(asked))}")


def software_of(launch: Described) -> str:
    """The catalogue's framework that prices a launch, as of the release that its files ask for."""
    return _entry(launch) + (f"@{launch.release}" if launch.release else "")


def _entry(launch: Described) -> str:
    """Its name without a release."""
    dialect, said = about(launch.dialect), launch.plan_fields
    fsdp = said.get("fsdp") or {}
    if said.get("software"):
        return str(said["software"])
    return variant(
        dialect.software, tensor=said.get("tensor_parallel") or 1, pipeline=said.get("pipeline_parallel") or 1,
        ring=said.get("context_parallel") or 1, heads=said.get("ulysses_parallel") or 1, stage=said.get("zero_stage") or 0,
        sharded=bool(fsdp), second=(fsdp.get("version") or fsdp.get("default_version")) == 2, framework=dialect.framework,
    )  # fmt: skip


BY_FSDP = ("hf-fsdp", "hf-fsdp2")
"""Entries of accelerate's FSDP, by its versions."""


def variant(
    software: str, *, tensor: int, pipeline: int, ring: int, heads: int, stage: int, sharded: bool, second: bool,
    framework: str,
) -> str:  # fmt: skip
    """The entry of a framework of several that splits a model as a launch does.

    Parameters
    ----------
    software : of the dialect
    tensor, pipeline, ring, heads : degrees, of the two ways to split a sequence each its own
    stage : of ZeRO
    sharded, second : by FSDP, and by its second version
    framework : whose files they are
    """
    split = tensor > 1 or ring > 1 or heads > 1
    if framework == "verl" and not sharded:
        return "megatron-core"
    if framework == "colossalai" and (split or pipeline > 1):
        return "megatron-core"  # hybrid parallel: its own kernels and schedules, most like Megatron's
    if software == "hf-fsdp":
        if pipeline > 1 or (framework == "llama-factory" and tensor > 1 and not sharded):
            return "megatron-core"  # accelerate's and LLaMA-Factory's Megatron
        if sharded or tensor > 1 or ring > 1:
            return "hf-fsdp2" if second else "hf-fsdp"
        software = "deepspeed" if stage or heads > 1 else "hf-trainer"
    if software == "megatron-deepspeed" and stage > 1:
        return "megatron-deepspeed-zero" if split else "deepspeed"
    if software == "deepspeed" and split:
        return "deepspeed-autotp" if tensor > 1 else "deepspeed-ulysses"
    return software


# The model


def model_of(launch: Described, notes: list[str]) -> Transformer:
    """The model that a launch names or describes."""
    if isinstance(launch.model_described, str):
        named = hub_name(launch.model_described)
        name = catalogue_name(named)
        if name is None:
            near = _near(named)
            raise CostModelError(
                f"{_names(launch)}: model {named[:80]!r} is not in the catalogue{near}; give model=NAME, of "
                "it (`costmodel models` lists them) or a config.json, or --allow-config where one lies beside the file"
            )
        return loader.load_model(name)
    if launch.model_described is None or "num_layers" not in launch.model_described:
        raise CostModelError(
            f"{_names(launch)}: no model is named or described; give model=NAME, of the catalogue or a config.json"
        )
    return shaped(launch, launch.model_described, notes)


def catalogue_name(name: str) -> str | None:
    """The catalogue's entry that a framework's or Hugging Face's name means, or None.

    Examples
    --------
    >>> catalogue_name("meta-llama/Meta-Llama-3-8B-Instruct"), catalogue_name("qlora_llama3_1_405b")
    ('llama3-8b', 'llama3.1-405b')
    """
    name, known = hub_name(name), loader.names("model")
    alias = name if name in known else loader.alias("model", name)
    if alias is not None:
        return alias
    words = re.sub(r"[-_ ]+", " ", name.rpartition("/")[2].lower())
    plain = NOISE.sub(" ", words)
    entries = {shape_name(entry): entry for entry in known}
    found = entries.get(shape_name(plain)) or loader.alias("model", "-".join(plain.split()))
    return found or ALIASES.get(re.sub(r"[\s.]+", "", plain))


def hub_name(name: str) -> str:
    """A model's name, on the hub where a path leads into its cache."""
    return CACHED.sub(r"\1/\2", name.rstrip("/"))


def _near(name: str) -> str:
    """What may be meant by a name that nothing has, as the end of an error's clause: the longest name that stands in it.

    Examples
    --------
    >>> _near("OpenRLHF/Llama-3-8b-sft-mixture"), _near("my/own-model")
    ('; did you mean llama3-8b?', '')
    """
    entries = loader.names("model")
    held = [entry for entry in entries if re.search(rf"(?<![a-z]){re.escape(shape_name(entry))}", shape_name(name))]
    return f"; did you mean {max(held, key=len)}?" if held else ""


YES_OR_NO = ("tied_embeddings", "embedding_norm", "attention_sinks", "parallel_block", "dropout")
"""Fields of a shape that a model calls the same."""


def shaped(launch: Described, stated: Row, notes: list[str]) -> Transformer:
    """A transformer of the stated shape, with the framework's defaults."""
    if stated.get("kind"):
        raise NotModelled(f"{_names(launch)}: a model of kind {stated['kind']} is not modelled")
    shape: dict[str, Any] = {**(about(launch.dialect).shape or about("megatron").shape), **stated}
    for field in ("num_layers", "hidden_size", "num_heads"):
        if not shape.get(field):
            raise CostModelError(
                f"{_names(launch)}: the model's {field} is not stated; give model=NAME, of the catalogue or a config.json"
            )
    if "vocab_size" not in shape:
        tokenizer = catalogue_name(str(shape.get("tokenizer", "")))
        shape["vocab_size"] = loader.load_model(tokenizer).vocabulary if tokenizer else VOCABULARY
        by = f", that of {tokenizer}, whose tokenizer is named" if tokenizer else ": the files leave it to the tokenizer"
        notes.append(f"vocabulary of {shape['vocab_size']} assumed{by}")
    gated = "not gated" not in str(shape["activation"])
    hidden, bias = shape["hidden_size"], bool(shape["bias"])
    width = shape.get("ffn_hidden_size") or (int(4 * hidden * 2 / 3) // 64 * 64 if gated else 4 * hidden)
    fields: dict[str, object] = {
        "name": "model of the launch file", "layers": shape["num_layers"], "hidden": hidden, "heads": shape["num_heads"],
        "vocabulary": shape["vocab_size"], "feed_forward": width, "kv_heads": shape.get("num_kv_heads"),
        "head_dim": shape.get("head_dim"), "gated": gated, "norm": shape["norm"],
        "clamped_activation": gated and bool(shape.get("clamped_activation")),
        "qk_norm": "head" if shape.get("qk_norm") else "none",
        "attention_bias": bias or bool(shape.get("qkv_bias")), "output_bias": bias, "feed_forward_bias": bias,
        "causal": shape.get("causal", True),
        "learned_positions": shape.get("learned_positions") or 0, "prediction_layers": shape.get("mtp_layers") or 0,
    } | {name: bool(shape.get(name)) for name in YES_OR_NO}  # fmt: skip
    if shape.get("window"):
        fields |= {"sliding_window": shape["window"], "windowed_layers": shape.get("windowed_layers", shape["num_layers"])}
    if shape.get("num_experts"):
        dense = shape.get("dense_layers") or 0
        fields |= {
            "experts": shape["num_experts"], "experts_per_token": shape.get("top_k", 2), "dense_layers": dense,
            "expert_feed_forward": shape.get("moe_ffn_hidden_size") or width, "feed_forward": width if dense else 0,
            "shared_expert_feed_forward": shape.get("shared_expert_ffn") or 0,
            "first_expert_layer": shape.get("first_expert_layer"), "expert_layer_step": shape.get("expert_layer_step", 1),
        }  # fmt: skip
        if shape.get("expert_capacity"):
            fields["expert_capacity"] = float(shape["expert_capacity"])
    if shape.get("latent"):
        rope = shape.get("qk_rope_head_dim", 64)
        fields |= {
            "kv_heads": None, "head_dim": shape.get("qk_head_dim", 128) + rope, "value_head_dim": shape.get("v_head_dim", 128),
            "query_latent": shape.get("q_lora_rank") or 0, "kv_latent": shape.get("kv_lora_rank", 512), "rope_head_dim": rope,
            "qk_norm": "none",
        }  # fmt: skip
    return made(Transformer, fields)


# The plan


def _attention(launch: Described) -> str | None:
    """The kernel of the attention core that a launch asks for; None where the framework's."""
    kernel = launch.plan_fields.get("attention")
    if kernel == "unfused" and launch.framework in MEGATRON:
        return "fused-softmax"
    if kernel == "fused" and load_framework(software_of(launch)).attention == "sdpa":
        return "sdpa"
    return KERNELS.get(str(kernel), kernel)


def plan_of(launch: Described, gpus: int | None, notes: list[str]) -> Plan:
    """The plan of a launch, every field that `Plan` has."""
    said = launch.plan_fields
    for field, hint in launch.missing.items():
        raise CostModelError(
            f"{_names(launch)}: {hint}: {field} is not known; give it beside this file, or settings={{{field!r}: N}}"
        )
    degrees = {name: _need(launch, name, 1) for name in ("tensor_parallel", "pipeline_parallel", "context_parallel")}
    exchanged = said.get("ulysses_parallel") or 1
    if exchanged > 1 and degrees["context_parallel"] > 1:
        raise NotModelled(
            f"{_names(launch)}: ulysses_parallel={exchanged} beside context_parallel={degrees['context_parallel']}: of two ways "
            "to split a sequence at once none is modelled"
        )
    degrees["context_parallel"] *= exchanged
    world = gpus if launch.gpus is None else launch.gpus
    ranks = degrees["tensor_parallel"] * degrees["pipeline_parallel"] * degrees["context_parallel"]
    data = said.get("data_parallel")
    if data is None:
        if world is None:
            raise CostModelError(f"{_names(launch)}: the number of GPUs is not stated; give gpus=N")
        if world % ranks:
            raise InvalidValue("gpus", world, f"a multiple of tensor x pipeline x context parallelism = {ranks}")
        data = world // ranks
    fields: dict[str, object] = degrees | {"data_parallel": data} | _batch(launch, data)
    if exchanged > 1:
        fields["context_communication"] = "all-to-all"
    fields |= {"seq_len": _need(launch, "seq_len"), "dtype": said.get("dtype"), "recompute": _recompute(launch)}
    fields |= _experts(launch, degrees["tensor_parallel"]) | _sharding(launch, data * degrees["context_parallel"])
    schedule = said.get("schedule") if degrees["pipeline_parallel"] > 1 else None
    chunks = said.get("virtual_stages") or 1
    if schedule == "interleaved" and chunks == 1:
        chunks = 2
        notes.append("two chunks a rank assumed for the interleaved schedule")
    fields |= {
        "virtual_stages": chunks if degrees["pipeline_parallel"] > 1 else 1,
        "schedule": SCHEDULES.get(str(schedule), schedule),
    }
    if said.get("sequence_parallel") is not None:
        fields["sequence_parallel"] = bool(said["sequence_parallel"]) and degrees["tensor_parallel"] > 1
    fields["attention"] = _attention(launch)
    fields["optimizer"] = optimizer(launch, notes)
    paged = "paged" in str(said.get("optimizer") or "").lower()
    if paged and load_framework(software_of(launch)).pages_states:
        fields["paged_optimizer"] = True
    fields["optimizer_kernel"] = _optimizer_kernel(launch) if fields["optimizer"] is None and not paged else None
    for name in EXTRA_FIELDS:
        if said.get(name) is not None and name not in ELSEWHERE:
            fields[name] = said[name]
    if "parameters" in (said.get("offload") or []):
        fields["parameter_offload"] = 1.0
    return made(Plan, fields)


def _need(launch: Described, field: str, default: object = None) -> Any:
    value = launch.plan_fields.get(field)
    if value is None:
        value = default
    if value is None:
        flag = field.replace("_", "-")
        raise CostModelError(f"{_names(launch)}: {field} is not stated; give settings={{{flag!r}: N}}")
    return value


def _batch(launch: Described, data: int) -> dict[str, object]:
    total, micro, steps = (launch.plan_fields.get(name) for name in ("global_batch", "micro_batch", "gradient_accumulation"))
    assumed = launch.assumed
    if total is None or ("global_batch" in assumed and micro and steps):
        if micro is None:
            _need(launch, "global_batch")
        total = int(micro or 1) * int(steps or 1) * data
    elif micro is None or ("micro_batch" in assumed and steps and "gradient_accumulation" not in assumed):
        micro = max(1, total // (data * (steps or 1)))
    sequences = 2 if launch.plan_fields.get("paired") else 1
    return {"global_batch": total * sequences, "micro_batch": None if micro is None else micro * sequences}


def _recompute(launch: Described) -> object:
    said = launch.plan_fields
    kind = said.get("recompute_every") or said.get("recompute_modules") or said.get("recompute") or "none"
    # what is selected is torchtitan's own choice, elsewhere the attention core
    return "operators" if kind == "selective" and launch.framework == "torchtitan" else kind


def _experts(launch: Described, tensor: int) -> dict[str, int]:
    said = launch.plan_fields
    expert = said.get("expert_parallel") or 1
    within = said.get("expert_tensor_parallel")
    has = isinstance(launch.model_described, dict) and "num_experts" in launch.model_described
    inherits = has and launch.framework in MEGATRON  # Megatron's experts are split as the rest is
    return {"expert_parallel": expert, "expert_tensor_parallel": within or (tensor if inherits else 1)}


def _sharding(launch: Described, ranks: int) -> dict[str, object]:
    said = launch.plan_fields
    stage, fsdp = said.get("zero_stage"), said.get("fsdp") or {}
    group = said.get("shard_group")
    if (stage and group is None and isinstance(fsdp.get("replicate_degree"), int) and fsdp["replicate_degree"] > 1):
        group = ranks // fsdp["replicate_degree"]
    if ranks == 1 and "zero_stage" in launch.assumed and _entry(launch) in BY_FSDP:
        stage = None  # a tensor group alone: nothing is shared out, whatever the stage is called
    return {"zero_stage": stage, "shard_group": None if group in (None, ranks) else group}


def optimizer(launch: Described, notes: list[str]) -> str | None:
    """The optimizer of `Plan` that keeps the states of the one that is named."""
    if launch.plan_fields.get("optimizer_states"):
        return str(launch.plan_fields["optimizer_states"])
    name = launch.plan_fields.get("optimizer")
    if name is None or "optimizer" in launch.assumed:
        return None
    plain = str(name).lower()
    if plain in table(Plan)["optimizer"].kind.choices:
        return plain if plain != "adam" else None
    if re.search(UNLIKE, plain):
        raise NotModelled(
            f"{_names(launch)}: optimizer {name!r} is not modelled; price another with settings={{'optimizer': 'adam'}}"
        )
    for known, words in OPTIMIZERS:
        if re.search(words, plain):
            if known == "sgd-momentum" or "4bit" in plain:
                notes.append(f"optimizer {name} priced as {known}{': one moment' if known == 'sgd-momentum' else ''}")
            return None if known == "adam" else known
    raise NotModelled(
        f"{_names(launch)}: optimizer {str(name)[:60]!r} is not modelled; price another with settings={{'optimizer': 'adam'}}"
    )


def _optimizer_kernel(launch: Described) -> str | None:
    """By which kernels Adam updates, if the file says so, in a flag of its own or by the optimizer's name."""
    said = launch.plan_fields
    name = "" if "optimizer" in launch.assumed else str(said.get("optimizer") or "").lower()
    by_name = "fused" if name.endswith("_fused") else "foreach" if name == BY_LISTS else None
    kernel = said.get("optimizer_kernel", by_name)
    return None if kernel is None else str(kernel)


def allowed_config(launch_file: Path, named: str | None) -> Path:
    """The ``config.json`` beside a launch file, in the folder that it names if that lies within its own.

    Raises
    ------
    UnreadableFile
        where there is none
    """
    here = launch_file.resolve().parent
    candidates = [here / "config.json"]
    if named and not Path(named).is_absolute():
        candidates.insert(0, (here / named / "config.json").resolve())
    for candidate in candidates:
        if candidate.is_relative_to(here) and candidate.is_file():
            return candidate
    raise UnreadableFile(f"{launch_file}: no config.json beside it")
