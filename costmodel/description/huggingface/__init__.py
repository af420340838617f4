"""Reads the ``config.json`` of a Hugging Face model: numbers only, no code of the file's is run or fetched.

A table says for each `model_type` which keys give which fields. A key that no family knows is passed over where it
can't speak of the shape, and listed; one that could is an error, never a guess.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from costmodel.arithmetic.named_tuples import made
from costmodel.description.huggingface.encoder_decoders import ENCODER_DECODERS
from costmodel.description.huggingface.encoders import ENCODERS
from costmodel.description.huggingface.families import CLASS_DEFAULTS, Family
from costmodel.description.huggingface.families import FAMILIES as DECODERS
from costmodel.description.huggingface.files import Config, load, name_of, short, shown
from costmodel.description.huggingface.hybrids import HYBRIDS
from costmodel.description.huggingface.keys import DECODER, DROPOUT, HARMLESS, KEYS, TOWER, could_change_the_shape, words
from costmodel.description.huggingface.refused import REFUSED
from costmodel.description.huggingface.rules import Fields, one_of_all_layers
from costmodel.description.huggingface.towers import TEXT_KINDS, TEXT_TABLES, TOWERS
from costmodel.text.checks import flag, real
from costmodel.text.errors import InvalidValue, NotModelled

if TYPE_CHECKING:
    from costmodel.description.transformer import Transformer

FAMILIES: dict[str, Family] = DECODERS | HYBRIDS | ENCODERS | ENCODER_DECODERS
"""Every `model_type` that can be read."""

FLAGS = words(
    "tied_embeddings attention_bias output_bias feed_forward_bias parallel_block head_bias head_transform last_norm causal"
)


class ConfigReading(NamedTuple):
    """What a file says, and what of it was left out."""

    model: Transformer
    notes: tuple[str, ...]
    """What a reader should know: a tower that was left out, weights that are stored quantised."""
    passed_over: tuple[str, ...]
    """Keys that no family knows and that leave the shape alone."""


def read(path: str | Path, name: str | None = None) -> ConfigReading:
    """Read a local ``config.json``, with what was left out of it.

    Parameters
    ----------
    path : the file, or the folder that holds it; at most 64 MiB are read
    name : what to call the model; the file's own name for it, or the path's, if not given

    Raises
    ------
    UnreadableFile
        where the file is missing, too large or not a JSON object
    InvalidValue
        where a key is missing or has a value that it can't have
    NotModelled
        where the architecture is unknown or goes beyond what is modelled, or a key that could change the shape is
        unknown
    """
    from costmodel.description.transformer import Transformer

    fields, notes, passed_over = _read(Path(path), name)
    return ConfigReading(made(Transformer, fields), notes, passed_over)


def read_config(path: Path, name: str | None) -> dict[str, object]:
    """A local ``config.json`` as keyword arguments of Transformer.

    Parameters
    ----------
    path, name : as `read` takes them
    """
    return _read(path, name)[0]


LENGTHS = ("max_position_embeddings", "max_sequence_length", "max_seq_len", "seq_length", "n_positions", "n_ctx")
"""Keys that say how long the sequences were, where positions aren't learned."""


def _read(path: Path, name: str | None) -> tuple[dict[str, object], tuple[str, ...], tuple[str, ...]]:
    whole, file = load(path)
    notes: list[str] = []
    config = _text_tower(whole, file, notes)
    kind = _kind(config, file)
    family = _family(kind, file)
    passed_over = _pass_over(family, config, kind, file)
    if not notes:
        tables = [key for key, value in sorted(whole.items()) if isinstance(value, dict) and value]
        towers = [key for key in tables if key in TOWERS or TOWER.search(key)]
        if towers or whole.get("model_type", whole.get("_class_name")) != kind:
            left_out = ", ".join(towers) or "other towers"
            notes.append(f"{short(whole['model_type'])} is read by its text model; {left_out} left out")
    tables_of = (whole.get("quantization_config"), config.get("quantization_config"), whole.get("quantization"))
    quantised = next((table for table in tables_of if table), None)
    if isinstance(quantised, dict) and quantised:
        method = quantised.get("quant_method") or quantised.get("quant_type") or "quantised"
        notes.append(f"quantization_config ({short(method)}) says how the weights are stored, the dtype how they are trained")
    fields = _fields(family, config, file)
    if fields.get("expert_layer_step") == 0:
        notes.append("layers with experts follow no rule: a pipeline's stages are taken to have equal shares of them")
    if fields.get("encoder_layers"):
        taken = f"{fields.get('source_tokens', 1.0):.3g}"
        notes.append(f"the sequence is the decoder's; the encoder is taken to have {taken} times as many tokens "
                     "(source_tokens)")
    if fields.get("recurrent_layers"):
        notes.append("layers with a state are taken to be evenly spread: a pipeline's stages have equal shares of each kind")
    lengths = [config.get(key) for key in LENGTHS]
    known = [length for length in lengths if isinstance(length, int) and not isinstance(length, bool) and 0 < length < 10**9]
    if known and not fields.get("learned_positions"):
        fields["trained_length"] = known[0]
    return {"name": name if name is not None else name_of(whole, file), **fields}, tuple(notes), tuple(passed_over)


def _text_tower(config: Config, file: Path, notes: list[str]) -> Config:
    """The table of a multimodal file's text tower, what it leaves out filled in; else the file itself."""
    outer = config.get("model_type")
    if isinstance(outer, str) and outer in REFUSED:
        return config
    for key in TEXT_TABLES.split():
        inner = config.get(key)
        if isinstance(inner, dict) and inner:
            found = _text_tower(inner, file, []) if key == "thinker_config" else inner
            kind = found.get("model_type") or outer
            kind = TEXT_KINDS.get(kind, kind) if isinstance(kind, str) else kind
            tied = {} if config.get("tie_word_embeddings") is None else {"tie_word_embeddings": config["tie_word_embeddings"]}
            # A table of a file lacks what its class has by default; towers other than text are counted nowhere.
            defaults = CLASS_DEFAULTS.get(kind, {}) if isinstance(kind, str) else {}
            left_out = ", ".join(sorted(config.keys() & TOWERS)) or "the rest"
            images = "; `multimodal` prices its tower of images" if "vision_config" in config else ""
            notes.append(f"{short(outer)} is read by its text tower, {key}; {left_out} left out{images}")
            # Where both tables say whether embeddings are tied, Transformers 5 goes by the file's own word, 4 by the text's.
            last = tied if tied and str(config.get("transformers_version", "")).startswith("5") else {}
            return {**tied, **defaults, **found, **last, "model_type": kind}
    if isinstance(outer, str) and outer in TEXT_KINDS:
        return {**config, "model_type": TEXT_KINDS[outer]}
    return config


def _kind(config: Config, file: Path) -> str:
    kind = config.get("model_type", config.get("_class_name"))  # diffusers names a class
    if kind is None:
        raise InvalidValue("model_type", None, f"a value in {shown(file)}")
    if not isinstance(kind, str):
        raise InvalidValue("model_type", kind, "a text")
    return kind


def _family(kind: str, file: Path) -> Family:
    if kind in REFUSED:
        raise NotModelled(f"{shown(file)}: model_type={short(kind)} is not modelled: it has {REFUSED[kind]}")
    if kind not in FAMILIES:
        import difflib

        near = difflib.get_close_matches(kind[:100], FAMILIES, n=3, cutoff=0.4)
        nearest = f"; nearest known: {', '.join(near)}" if near else f", none of {len(FAMILIES)} such as llama, qwen3 and gpt2"
        raise NotModelled(
            f"{shown(file)}: model_type={short(kind)} is not known{nearest}. If it has the shape of one of them, say so in "
            "model_type, or describe it in TOML (`costmodel new model FILE`)"
        )
    return FAMILIES[kind]


def _pass_over(family: Family, config: Config, kind: str, file: Path) -> list[str]:
    """Keys that are unknown and leave the shape alone; one that could change it is an error."""
    known = HARMLESS | DROPOUT | DECODER.keys() | TOWERS | {"is_causal"}
    known |= family.switches.keys() | family.only.keys() | family.ignored
    if config.get("use_sliding_window") is False:  # whatever the window would be
        known |= words("use_sliding_window sliding_window max_window_layers")
    for field, keys in family.takes.items():
        known |= words(keys or KEYS[field])
    for rule in family.rules:
        known |= rule.keys
    unknown = sorted(config.keys() - known)
    worrying = [key for key in unknown if could_change_the_shape(key, config[key])]
    if worrying:
        more = f" and {len(worrying) - 8} more" if len(worrying) > 8 else ""
        keys = ", ".join(short(key) for key in worrying[:8]) + more
        near = _who_knows(worrying[0])
        elsewhere = f" ({worrying[0]} belongs to {near})" if near else ""
        raise NotModelled(
            f"{shown(file)}: {short(kind)} with {keys} is not modelled: a key that may change the shape{elsewhere}; leave it "
            "out if it doesn't, or describe the model in TOML (`costmodel new model FILE`)"
        )
    return [key for key in unknown if config[key] is not None]


def _who_knows(key: str) -> str:
    """The first families that know a key."""
    found = [
        kind for kind, family in FAMILIES.items()
        if key in family.switches or key in family.only or key in family.ignored
        or any(key in rule.keys for rule in family.rules)
        or any(key in words(keys or KEYS[field]) for field, keys in family.takes.items())
    ]  # fmt: skip
    return ", ".join(found[:3])


def _fields(family: Family, config: Config, file: Path) -> Fields:
    _demand({**DECODER, **family.only}, config, file)
    fields: Fields = dict(family.fixed)
    for field, keys in family.takes.items():
        given = _spelled(config, (keys or KEYS[field]).split())
        if given is not None:
            fields[field] = (flag if field in FLAGS else one_of_all_layers)(*given)
        elif field in family.optional:
            if family.optional[field] is not None:
                fields[field] = family.optional[field]
        else:
            raise InvalidValue((keys or KEYS[field]).split()[0], None, f"a value in {shown(file)}")
    for key, (targets, default) in family.switches.items():
        value = config.get(key)
        if value is None and any(target in fields for target in targets.split()):
            continue
        on = default if value is None else flag(key, value)
        fields |= dict.fromkeys(targets.split(), on)
    shares = [real(key, config[key], 0.0, 1.0) for key in sorted(DROPOUT) if config.get(key) is not None]
    if any(shares):
        fields["dropout"] = True
    for rule in family.rules:
        fields |= rule.apply(config, fields)
    if config.get("is_causal") is False:  # a decoder turned into an encoder of texts
        fields["causal"] = False
    return fields


def _spelled(config: Config, keys: list[str]) -> tuple[str, object] | None:
    there = [key for key in keys if config.get(key) is not None]
    for key in there[1:]:
        if config[key] != config[there[0]]:
            raise InvalidValue(key, config[key], f"what {there[0]} says, {short(config[there[0]])}")
    return (there[0], config[there[0]]) if there else None


def _demand(demanded: dict[str, tuple[object, ...]], config: Config, file: Path) -> None:
    for key, allowed in demanded.items():
        value = config.get(key, allowed[0])
        # 1 == True, so the type is compared too.
        if not any(type(value) is type(one) and value == one for one in allowed):
            modelled = " or ".join(repr(one) for one in allowed)
            raise NotModelled(f"{shown(file)}: {key}={short(value)} is not modelled, only {modelled}")
