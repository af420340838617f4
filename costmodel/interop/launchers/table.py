"""What a dialect is: a table of flags, each with its field, unit, default, versions, and the rules between them."""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from costmodel.catalogue.releases import numbered
from costmodel.description.adapters import GROUPS, RANK
from costmodel.description.dimensions import DIMENSIONS
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.interop.launchers.values import UNSTATED, Meanings, Unit


class FlagRow(NamedTuple):
    """One flag of a framework, as it is read and as it is written."""

    flags: str
    """Spellings, separated by blanks; the first is written. Dots lead into sections."""
    field: str
    """Field of the launch that it states; one that starts with an underscore is for the dialect's rules."""
    unit: Unit
    """How its value is read."""
    default: object = None
    """The framework's own, where it isn't given."""
    versions: str = ""
    """Of the framework that have it, where not all do."""
    says: Says | None = None
    """What is written: `OWN`, its own field, or `ABOVE_ONE`; another field, in its unit's words; or what a function says."""
    when: Callable[[Writing], object] | None = None
    """Where alone it is written."""


OWN = "its own field"
"""What a flag says that states the field which it is read into."""
ABOVE_ONE = "its own field, above 1"
"""As `OWN`, of a degree that is written where it is above 1."""


def silent(rows: Iterable[FlagRow], flags: Iterable[str] | None = None) -> tuple[FlagRow, ...]:
    """Rows that are read and not written: all, or those with one of some flags, among the others."""
    named = None if flags is None else set(flags)
    return tuple(row._replace(says=None) if named is None or named & set(row.flags.split()) else row for row in rows)


def pick(rows: Iterable[FlagRow], flags: Iterable[str]) -> tuple[FlagRow, ...]:
    """Rows by their first spelling, in an order."""
    found = {row.flags.split()[0]: row for row in rows}
    return tuple(found[flag] for flag in flags)


def moved(prefixes: str, rows: Iterable[FlagRow]) -> tuple[FlagRow, ...]:
    """Rows with their flags in sections."""
    return tuple(
        row._replace(flags=" ".join(f"{prefix}.{name}" for prefix in prefixes.split() for name in row.flags.split()))
        for row in rows
    )


def spelled(rows: Iterable[FlagRow], flags: Iterable[str]) -> tuple[FlagRow, ...]:
    """Rows by one of their spellings, with that alone and read alone, in an order."""
    found = {spelling: row for row in rows for spelling in row.flags.split()}
    return silent(found[flag]._replace(flags=flag) for flag in flags)


def without(rows: Iterable[FlagRow], flags: Iterable[str]) -> tuple[FlagRow, ...]:
    """Rows none of whose spellings is one of some flags."""
    taken = set(flags)
    return tuple(row for row in rows if not taken & set(row.flags.split()))


def spellings(rows: Iterable[FlagRow]) -> frozenset[str]:
    """Every spelling of some rows."""
    return frozenset(spelling for row in rows for spelling in row.flags.split())


def words(text: str) -> frozenset[str]:
    """Names of a text, separated by blanks."""
    return frozenset(text.split())


UNSPLIT: Mapping[str, object] = {
    **{one.field: 1 for one in DIMENSIONS if one.column != "data"}, "ulysses_parallel": 1, "sequence_parallel": False,
}  # fmt: skip
"""How a model is split where nothing splits it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class About:
    """What the file of a dialect's name says of it, beside the flags that state a field."""

    framework: str  # what a launch says it is for
    software: str  # entry of the catalogue's frameworks that prices it
    layout: str  # in which it is written: ``"args"``, ``"yaml"``, ``"json"`` or ``"toml"``
    reads: tuple[str, ...]  # layouts that it can be read from
    source: str  # repository, file and version that the table was read from
    # fields of a plan that the framework fills where a file is silent, beside `UNSPLIT` and those of the dialects in ``also``;
    # none where there is no such section, as a recipe rules then what isn't stated
    defaults: Mapping[str, object]
    shape: Mapping[str, object]  # of a model, where a file that describes one is silent
    signature: frozenset[str]  # keys that only this dialect has: they count more when a file's dialect is guessed
    unpriced: frozenset[str]  # keys that change time or memory in a way that isn't modelled
    irrelevant: frozenset[str]  # keys that change neither; both can hold patterns with ``*``
    part: bool = False  # whether its files complete another's
    leaves: bool = False  # whether a key is known by its last part alone
    dashes: bool = False  # whether dashes and underscores are the same in keys
    assigns: bool = False  # whether its command lines are ``key=value``
    opening: tuple[str, ...] = ()  # words that open a command line, one argument a line as the rest
    commands: tuple[str, ...] = ()  # words side by side that start its runs and no other's
    runner: str = ""  # command that starts a run of a written file, as far as one line can say
    loss: str | None = None  # of its own trainer, where that isn't `software`'s
    also: tuple[str, ...] = ()  # files of dialects whose keys it has, too
    under: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)  # the same by section


@functools.cache
def _stated(name: str) -> dict[str, Any]:
    file = Path(__file__).parent / "dialects" / f"{name.replace('-', '_')}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


@functools.cache
def _idle_words(name: str, kind: str) -> frozenset[str]:
    """A list of a dialect, with those of the dialects that it says it has, too, as they are or in sections."""
    stated = _stated(name)
    also = [("", other) for other in stated.get("also", ())]
    also += [(f"{section}.", other) for section, others in stated.get("under", {}).items() for other in others]
    return words(stated.get(kind, "")).union(*({start + key for key in _idle_words(other, kind)} for start, other in also))


def _defaults(name: str) -> dict[str, object]:
    stated = _stated(name)
    base = {key: value for other in stated.get("also", ()) for key, value in _defaults(other).items()} or UNSPLIT
    return {**base, **stated["defaults"]} if "defaults" in stated else {}


@functools.cache
def about(name: str) -> About:
    """What a dialect's file says."""
    stated = {"shape": {}, "signature": ""} | _stated(name)
    stated |= {"signature": words(stated["signature"]), "defaults": _defaults(name)}
    return About(**stated | {kind: _idle_words(name, kind) for kind in ("unpriced", "irrelevant")})


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How one framework spells a run."""

    name: str  # what `write_launch` and the command line call it
    rows: tuple[FlagRow, ...]  # flags that state a field, in the order in which they are written
    rules: Callable[[LaunchReading], None]  # what follows from several flags

    @functools.cached_property
    def about(self) -> About:
        """What its file says of it."""
        return about(self.name)

    @functools.cached_property
    def index(self) -> dict[str, FlagRow]:
        """Rows by spelling."""
        return {spelling: row for row in self.rows if row.field for spelling in row.flags.split()}

    @property
    def written(self) -> bool:
        """Whether plans are written in it."""
        return any(row.says is not None for row in self.rows)

    @functools.cached_property
    def unpriced(self) -> frozenset[str]:
        """Keys that change time or memory in a way that isn't modelled; a row outranks them."""
        return self.about.unpriced - self.index.keys()

    @functools.cached_property
    def irrelevant(self) -> frozenset[str]:
        """Keys that change neither; a row outranks them, and so does what is unpriced."""
        return self.about.irrelevant - self.index.keys() - self.unpriced

    def standing(self, key: str) -> str:
        """Whether a key is ``"row"``, ``"unpriced"``, ``"irrelevant"`` or ``"unknown"``."""
        if key in self.index:
            return "row"
        for kind, known, beginnings, others in self._lists:
            if key in known or key.startswith(beginnings) or others.fullmatch(key):
                return kind
        return "unknown"

    @functools.cached_property
    def _lists(self) -> tuple[tuple[str, frozenset[str], tuple[str, ...], re.Pattern[str]], ...]:
        """The two lists, each with what its patterns that end in a star begin with, and what matches the others."""
        return tuple((kind, getattr(self, kind), *_patterns(getattr(self, kind))) for kind in ("unpriced", "irrelevant"))


def _patterns(names: frozenset[str]) -> tuple[tuple[str, ...], re.Pattern[str]]:
    starred = sorted(name for name in names if "*" in name)
    beginnings = tuple(name[:-1] for name in starred if name.find("*") == len(name) - 1)
    others = [re.escape(name).replace(r"\*", ".*") for name in starred if name[:-1] not in beginnings]
    return beginnings, re.compile("|".join(others) or r"(?!)", re.DOTALL)


ABOUT = {
    "_attention": "attention", "_wide": "dtype", "_narrow": "dtype", "_fp8": "dtype", "_recompute": "recompute", "_bf16": "dtype",
    "_fp16": "dtype", "_distributed": "zero_stage", "_batch": "micro_batch", "_zero": "zero_stage", "_precision": "dtype",
}  # fmt: skip
"""Field of a plan that a dialect's own field is about."""


class Statement(NamedTuple):
    """One statement of a field."""

    value: Any
    shown: str
    """Flag and value, as the file has them."""


class LaunchReading:
    """What is read so far; dialects' rules take statements from it and put fields into it."""

    def __init__(self, dialect: Dialect):
        self.dialect = dialect
        self.said: dict[str, list[Statement]] = {}
        self.plan: dict[str, Any] = {}
        self.model: dict[str, object] = {}
        self.model_name: str | None = None
        self.framework = dialect.about.framework
        self.version: str | None = None
        self.pins: dict[str, str] = {}
        self.derived: list[str] = []
        self.defaults: dict[str, Any] = dict(dialect.about.defaults)
        self.unknown: list[str] = []
        self.irrelevant: list[str] = []
        self.unpriced: list[str] = []
        self.conflicts: list[str] = []
        self.unresolved: dict[str, str] = {}
        self.notes: list[str] = []
        self.ineffective: list[str] = []
        self.gpus: int | None = None
        self.keys: set[str] = set()
        self.variable_fields: set[str] = set()
        self.settled: set[str] = set()
        self.missing: dict[str, str] = {}
        self.launched = False
        """Whether flags of ``accelerate launch`` are among the words of a command line."""
        self.files: list[tuple[str, str]] = []
        """Name and dialect of every file."""

    def pinned(self, package: str) -> str | None:
        """The month of the release of a package that the files ask for, ``2024-09``; None where they ask for none."""
        return numbered(package, self.pins.get(package, ""))

    def say(self, field: str, value: object, shown: str) -> None:
        """Note a statement."""
        self.said.setdefault(field, []).append(Statement(value, shown))

    def one(self, field: str, default: object = None) -> Any:
        """The value that a field is stated to have; None where two statements differ, which is a conflict."""
        statements = self.said.get(field, [])
        for other in statements[1:]:
            if other.value != statements[0].value:
                about = ABOUT.get(field, field)
                if about in self.settled:
                    return None
                named = "" if about.startswith("_") or "." in about else f" ({about.replace('_', '-')})"
                self.conflict(f"{statements[0].shown} and {other.shown}{named}")
                return None
        return statements[0].value if statements else default

    def has(self, field: str) -> bool:
        """Whether a field is stated."""
        return field in self.said

    def put(self, field: str, value: object, derived: bool = False) -> None:
        """Fill a field of the plan, if it isn't."""
        if value is None or value is UNSTATED or self.plan.get(field) is not None:
            return
        self.plan[field] = value
        if derived:
            self.derived.append(field)

    def conflict(self, text: str) -> None:
        """Note two statements that can't both be true."""
        if text not in self.conflicts:
            self.conflicts.append(text)

    def note(self, text: str) -> None:
        """Note what a reader should know."""
        if text not in self.notes:
            self.notes.append(text)

    def known(self, field: str, default: object = None) -> Any:
        """A field's value, the framework's default where it isn't stated; None where it is a variable or in conflict."""
        value = self.plan.get(field)
        if value is not None:
            return value
        if field in self.variable_fields or field in self.said:
            return None
        return self.defaults.get(field, default)


SHARING = ("deepspeed", "deepspeed-autotp", "deepspeed-ulysses", "hf-trainer")
"""Frameworks that dialects of Hugging Face's trainers can say beside FSDP, which is what they say otherwise."""


MODULES = {
    "query": "q_proj", "key": "k_proj", "value": "v_proj", "fused": "qkv_proj", "output": "o_proj", "gate": "gate_proj",
    "up": "up_proj", "down": "down_proj",
}  # fmt: skip
"""Matrices of a layer as PEFT names them in Llama and its like."""
BATCHINGS = {"_packing": "packed", "_padding_free": "padding-free", "_padded_whole": "padded-whole", "_by_length": "grouped"}
"""How samples make micro-batches, by what says so, the strongest first."""
SHAPE = {
    "num_layers": "layers", "hidden_size": "hidden", "num_heads": "heads", "num_kv_heads": "kv_heads", "vocab_size": "vocabulary",
    "num_experts": "experts", "top_k": "experts_per_token", "moe_ffn_hidden_size": "expert_feed_forward",
    "shared_expert_ffn": "shared_expert_feed_forward", "mtp_layers": "prediction_layers", "head_dim": "value_head_dim",
    "q_lora_rank": "query_latent", "kv_lora_rank": "kv_latent", "v_head_dim": "value_head_dim",
    "qk_rope_head_dim": "rope_head_dim",
}  # fmt: skip
"""Fields of a launch's shape and those of a `costmodel.Transformer` that are the same number."""
OF_EXPERTS = ("model.num_experts", "model.top_k", "model.moe_ffn_hidden_size", "model.shared_expert_ffn")
"""Fields that no other model has."""


class Writing:
    """A plan on its way into a dialect: flags with their values, in order."""

    def __init__(self, dialect: Dialect, plan: Plan, model: Transformer, software: str):
        self.dialect, self.plan, self.model, self.software = dialect, plan, model, software
        self.values: dict[str, object] = {}

    def fill(self) -> None:
        """Write the plan by the dialect's rows."""
        for row in self.dialect.rows:
            if row.says is None or (row.when is not None and not row.when(self)):
                continue
            if callable(row.says):
                value = row.says(self)
            else:
                value = self.stated(row.field if row.says in (OWN, ABOVE_ONE) else row.says)
                if isinstance(row.unit, Meanings):
                    value = row.unit.said(value)
                if row.says == ABOVE_ONE and value == 1:
                    continue
            self.put(row.flags.split()[0], value)

    def stated(self, field: str) -> Any:
        """What the plan and the model come to in a field of a launch."""
        if field in DERIVED:
            return DERIVED[field](self)
        if field in OF_EXPERTS and not self.model.experts:
            return None
        if field.startswith("model."):
            name = field.removeprefix("model.")
            value = getattr(self.model, SHAPE.get(name, name))
            return value if isinstance(value, bool) else value or None
        return getattr(self.plan, field)

    def by_deepspeed(self) -> bool:
        """Whether DeepSpeed shards states, in a dialect that could also say FSDP; ZeRO-1 it alone has."""
        return self.plan.zero_stage == 1 or (self.software in SHARING and bool(self.plan.zero_stage))

    def by_fsdp(self) -> bool:
        """Whether FSDP shards states, in a dialect that could also say DeepSpeed."""
        return bool(self.plan.zero_stage) and not self.by_deepspeed()

    @property
    def accumulation(self) -> int:
        """Micro-batches a step and copy."""
        return max(1, self.plan.micro_batches)

    @property
    def identifier(self) -> str:
        """The model's name as one of Python's."""
        return re.sub(r"[-.]", "_", self.model.name)

    @property
    def replicas(self) -> int:
        """Copies of what is sharded."""
        if not self.plan.zero_stage:
            return self.plan.copies
        group = self.plan.shard_group
        return max(1, self.plan.copies * self.plan.context_parallel // group) if group else 1

    def put(self, flag: str, value: object) -> None:
        """Write a flag, unless it has no value; on a command line a flag that is false isn't there."""
        if value is None or (value is False and self.dialect.about.layout == "args" and not self.dialect.about.assigns):
            return
        self.values[flag] = value


def _batched(kind: str) -> Callable[[Writing], object]:
    return lambda w: w.plan.batching == kind or None


Says = str | Callable[[Writing], object]
DERIVED: dict[str, Callable[[Writing], object]] = {
    "gradient_accumulation": lambda w: w.accumulation,
    "ulysses_parallel": lambda w: w.plan.context_parallel,
    "fsdp.version": lambda w: 2,
    "fsdp.shard_degree": lambda w: max(1, w.plan.copies // w.replicas),
    "fsdp.replicate_degree": lambda w: w.replicas,
    "fsdp.reshard_after_forward": lambda w: w.plan.zero_stage == 3,
    "model.ffn_hidden_size": lambda w: w.model.feed_forward or w.model.expert_feed_forward,
    "_wide": lambda w: w.plan.dtype if w.plan.dtype in ("bf16", "fp16", "fp32") else "bf16",
    "_dropout": lambda w: 0.1 if w.model.dropout else 0.0,
    "_gpus": lambda w: w.plan.gpus,
    "_name": lambda w: w.model.name,
    "_bf16": lambda w: w.plan.dtype == "bf16",
    "_fp16": lambda w: w.plan.dtype == "fp16",
    "_offload_fsdp": lambda w: False,
    "_offload_optimizer": lambda w: w.plan.optimizer_offload == 1.0,
    "_offload_activations": lambda w: w.plan.activation_offload == 1.0,
    "_offload_fraction": lambda w: w.plan.optimizer_offload or None,
    "_device_optimizer": lambda w: "cpu" if w.plan.optimizer_offload else None,
    "_rank": lambda w: None if w.plan.adapter == "none" else w.plan.lora_rank or RANK,
    "_adapter_dropout": lambda w: None if w.plan.adapter == "none" else 0.05 if w.plan.adapter_dropout else 0.0,
    "_targets": lambda w: None if w.plan.adapter == "none" else [MODULES[name] for name in w.plan.lora_targets or GROUPS["all"]],
    "_four_bit": lambda w: w.plan.adapter == "qlora" or None,
    "_eight_bit": lambda w: w.plan.adapter == "int8-lora" or None,
    **{field: _batched(kind) for field, kind in BATCHINGS.items()},
}  # fmt: skip
"""Fields of a launch that follow from a plan's and a model's, or that the dialects' rules are about."""
