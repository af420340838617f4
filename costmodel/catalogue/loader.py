"""The catalogue on disk, and a user's own files of the same form.

A user's file is data of unknown origin: whatever is wrong with it ends in one line. Longer than other modules, as both kinds of
file are read by the same rules and refused in the same words.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Literal, NoReturn, get_args

from costmodel.arithmetic.named_tuples import Row, made
from costmodel.catalogue import effects, readings, spellings
from costmodel.catalogue.files import FOLDER, entry_of, places, table_of, text_of
from costmodel.description.cluster import Cluster, Level
from costmodel.description.device import DTYPES, Device, Efficiency, LayerEfficiency
from costmodel.description.transformer import Transformer
from costmodel.text import user_files
from costmodel.text.checks import choice, real, text, whole
from costmodel.text.errors import InvalidValue, UnknownName, UnreadableFile
from costmodel.text.units import quantity

if TYPE_CHECKING:
    from pathlib import Path

Kind = Literal["model", "device", "cluster"]

MAX_FILE_SIZE = 2**20
"""Largest file that is read from a user [bytes]."""

MAX_DEPTH = 8
"""Tables and arrays in each other in a user's file."""

_FILES = {"device": "devices.toml", "cluster": "clusters.toml"}
_EFFICIENCIES = "efficiencies.toml"
_LAYER_EFFICIENCIES = "layer_efficiencies.toml"
_FOR_READERS = ("title", "provenance")
_FOR_READERS_OF_DEVICES = ("compute_capability", "link_bandwidth_per_direction", "peer_to_peer", "power_w", "rated_power_w")
_LARGEST = 1e30


def _fields(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


_MODEL_KEYS = (*_fields(Transformer), *_FOR_READERS)
_DEVICE_KEYS = (*_fields(Device), "best_product", "provenance", *_FOR_READERS_OF_DEVICES)
_CLUSTER_KEYS = (*_fields(Cluster), "provenance")
_LEVEL_KEYS = _fields(Level)
_LEVEL_NEEDED = ("name", "size", "latency", "bandwidth")
_EFFICIENCY_KEYS = _fields(Efficiency)
_LAYER_EFFICIENCY_KEYS = _fields(LayerEfficiency)


# The catalogue


@functools.cache
def _model_files() -> tuple[str, ...]:
    folder = os.path.join(FOLDER, "models")
    if not os.path.isdir(folder):
        return ()
    return tuple(sorted(f"models/{name}" for name in os.listdir(folder) if name.endswith(".toml")))


@functools.cache
def _index(kind: Kind) -> dict[str, str]:
    """The file of each entry."""
    if kind not in ("model", "device", "cluster"):
        raise InvalidValue("kind", kind, "one of model, device, cluster")
    files = _model_files() if kind == "model" else (_FILES[kind],)
    return {name: file for file in files for name in places(file)}


def _entry(kind: Kind, name: str) -> Row:
    index = _index(kind)
    if not isinstance(name, str):
        raise UnknownName(kind, str(name), index)
    known = name if name in index else alias(kind, name)
    if known is None:
        raise unknown(kind, name)
    return entry_of(index[known], known)


def unknown(kind: Kind, name: str) -> UnknownName:
    """The error of a name that the catalogue doesn't have, with what may be meant."""
    index = _index(kind)
    kinds: tuple[Kind, ...] = ("model", "device", "cluster")
    others: list[str] = [other for other in kinds if other != kind and _has(other, name)]
    if kind == "model":
        from costmodel.description.networks import network_called

        others += ["network"] if network_called(name) else []
    size = re.fullmatch(r"([0-9]{1,4})G(i?B)?", name.strip(), re.IGNORECASE) if kind == "device" else None
    slices = re.fullmatch(r"(.*[0-9].*)-[0-9]{1,6}", name.strip()) if kind == "device" else None  # as Google counts, v5p-64
    near = spellings.holding(name, index) or spellings.holding(slices[1] if slices else "", index) if size is None else [
        one for one in index if round(load_device(one).memory / 2**30) == int(size[1])
    ]  # fmt: skip
    return UnknownName(kind, name, index, others, near)


def _has(kind: Kind, name: str) -> bool:
    return name in _index(kind) or alias(kind, name) is not None


def alias(kind: str, name: str) -> str | None:
    """The entry of the catalogue that people also call by another name, or None.

    Parameters
    ----------
    kind : ``"model"``, ``"device"`` or ``"cluster"``; of others None
    name : as it is written elsewhere, ``"p5.48xlarge"``, ``"RTX 4090"`` or ``"meta-llama/Llama-3.1-8B-Instruct"``

    Examples
    --------
    >>> alias("cluster", "p5.48xlarge"), alias("device", "NVIDIA GeForce RTX 4090"), alias("model", "Llama-3-8B")
    ('aws-p5', 'rtx-4090', 'llama3-8b')
    """
    if kind not in ("model", "device", "cluster"):
        return None
    return spellings.called(kind, name, _index(kind), table_of("aliases.toml").get(kind, {}))  # type: ignore[arg-type]


def instances() -> dict[str, Row]:
    """Instances of clouds that hold one or several GPUs of a kind, by name: device, gpus, network."""
    return table_of("aliases.toml")["instance"]


def instance(name: str) -> str | None:
    """The instance that a name stands for, whatever its case and punctuation, or None."""
    return name if name in instances() else spellings.called("cluster", name, instances(), {})


def cluster_with(device: str) -> str | None:
    """The first cluster of the catalogue with a device, or None."""
    file = _FILES["cluster"]
    named = re.search(rf'^device = "{re.escape(device)}"', text_of(file), re.MULTILINE)
    if named is None:
        return None
    return next(name for name, (_, end) in places(file).items() if named.start() < end)


def link_of(device: str) -> float | None:
    """Rate of a catalogue device's links to its neighbours together, one direction [bytes/s], or None."""
    rate: float | None = _entry("device", device).get("link_bandwidth_per_direction") if device in _index("device") else None
    return rate


def peer_to_peer(device: str) -> bool:
    """Whether cards of a catalogue's device reach each other over PCIe without the host's memory; GeForce cards don't."""
    return bool(_entry("device", device).get("peer_to_peer", True)) if device in _index("device") else True


def compute_capability(device: str) -> tuple[int, int] | None:
    """Of a catalogue's NVIDIA device, as CUDA names what it can run; None of others.

    Examples
    --------
    >>> compute_capability("rtx-a6000"), compute_capability("mi300x")
    ((8, 6), None)
    """
    found = _entry("device", device).get("compute_capability") if device in _index("device") else None
    return (int(found[0]), int(found[1])) if found else None


def is_file(name: str) -> bool:
    """Whether a name is that of a file rather than of an entry of the catalogue."""
    return name.endswith((".toml", ".json")) or os.path.sep in name or os.path.exists(name)


def names(kind: Kind) -> list[str]:
    """Names of all entries of a kind, in the order of the files.

    Parameters
    ----------
    kind : ``"model"``, ``"device"`` or ``"cluster"``

    Examples
    --------
    >>> "h100-sxm" in names("device")
    True
    """
    return list(_index(choice("kind", kind, get_args(Kind))))


def provenance(kind: Kind, name: str) -> Row:
    """Where each value of an entry comes from.

    Parameters
    ----------
    kind : ``"model"``, ``"device"`` or ``"cluster"``
    name : of the entry

    Examples
    --------
    >>> provenance("device", "h100-sxm")["dense_peak"]["check"]
    '1830e6 * 512 * 2 * 528'
    """
    return copy.deepcopy(dict(_entry(kind, name).get("provenance", {})))


def model_file(name: str) -> str | None:
    """The file that a model's name leads to, or None where it is an entry of the catalogue, or nothing.

    Parameters
    ----------
    name : a path; or ``owner/name`` of a model that is in no catalogue, but in this machine's cache of the hub

    Raises
    ------
    UnknownName
        where ``owner/name`` is nowhere
    """
    if name in _index("model") or (not os.path.exists(name) and alias("model", name) is not None):
        return None
    if os.path.exists(name) or not spellings.is_hub_id(name):
        return name if is_file(name) else None
    found = spellings.in_hub_cache(name)
    if found is None:
        near = spellings.holding(name.rpartition("/")[2], _index("model"))
        raise UnknownName("model", name, _index("model"), (), near, ", nor a file, nor in this machine's cache of the hub")
    return found


def load_model(name: str | os.PathLike[str]) -> Transformer:
    """A model of the catalogue, of a TOML file, or of a Hugging Face ``config.json`` or the folder that holds one.

    Parameters
    ----------
    name : of the entry, a path, or a model's name on the Hugging Face hub: case, punctuation and variants (instruct, chat,
        base) don't matter. What the catalogue hasn't is looked for in this machine's cache of the hub

    Raises
    ------
    UnknownName
        where it is none of these

    Examples
    --------
    >>> load_model("meta-llama/Llama-3.1-8B-Instruct") == load_model("llama3.1-8b")
    True
    """
    name = path_or_name(name)
    file = model_file(name)
    if file is not None:
        return read_model_file(file) if file.endswith(".toml") else Transformer.from_huggingface(file)
    entry = {key: value for key, value in _entry("model", name).items() if key not in _FOR_READERS}
    return Transformer(**{"name": name if name in _index("model") else alias("model", name), **entry})


def load_device(name: str | os.PathLike[str]) -> Device:
    """A device of the catalogue, or of a TOML file.

    Parameters
    ----------
    name : one of its names, or the file's path

    Raises
    ------
    UnknownName
        where it is neither

    Examples
    --------
    >>> load_device("l4").memory_bandwidth
    300000000000.0
    """
    name = path_or_name(name)
    if name not in _index("device") and is_file(name):
        return read_device_file(name)
    known = name if name in _index("device") else alias("device", name) or name
    return _device(known, _entry("device", known))


def path_or_name(name: str | os.PathLike[str]) -> str:
    """A name, or a path as a text."""
    return os.fspath(name) if isinstance(name, os.PathLike) else text("name", name)


def own_cluster(name: str | os.PathLike[str], gpus: int | None = None) -> Cluster | None:
    """A cluster of the catalogue or of a TOML file; None where neither has the name.

    Parameters
    ----------
    name : of the entry, or a path
    gpus : as `costmodel.load_cluster` takes it
    """
    name = path_or_name(name)
    if name not in _index("cluster"):
        if is_file(name):
            read = read_cluster_file(name)
            return read if gpus is None else read.with_gpus(gpus)
        if (other := alias("cluster", name)) is None:
            return None
        name = other
    entry = _entry("cluster", name)
    sources = entry.get("provenance", {})
    levels = tuple(
        Level(**level, line_rate=sources.get(level["name"], {}).get("bandwidth", {}).get("specified"))
        for level in entry["levels"]
    )
    return Cluster(
        name=name, device=load_device(entry["device"]), levels=levels, gpus=gpus, title=entry.get("title", ""),
        host_memory=entry.get("host_memory"),
    )  # fmt: skip


# Calibrated constants


_POOLED = "pooled"
_BEYOND_PEAK = 1.2
"""Most that a product reaches over a peak at its specified clock: GeForce cards run 1.08 to 1.15 times as fast."""
_MEASURED_ERROR = 0.05
"""Of the logarithm of a rate that was published for one device: those of one node differ by as much."""


@functools.cache
def _relations() -> dict[str, str]:
    """What the catalogue says of each pooled relation; the one that is asked for alone is parsed."""
    start, end = places(_EFFICIENCIES)[_POOLED]
    found: dict[str, str] = {}
    for part in re.split(rf"^(?=\[{_POOLED}\.)", text_of(_EFFICIENCIES)[start:end], flags=re.MULTILINE)[1:]:
        name = re.split(r"[.\]]", part, maxsplit=2)[1]
        found[name] = found.get(name, "") + part
    return found


@functools.cache
def _pooled(relation: str) -> Row:
    found: Row = tomllib.loads(_relations()[relation])[_POOLED][relation]
    return found


def _relation(architecture: str) -> str:
    """The pooled relation that serves a device without measurements: its architecture's, else that of all."""
    return architecture if architecture in _relations() else "default"


def _is_measured(name: str) -> bool:
    """Whether operators of a device were measured."""
    return name in places(_EFFICIENCIES) and name != _POOLED


def _power_per_rate(entry: Row) -> float | None:
    """Power that a device may draw over its 16-bit peak [W/(FLOP/s)]: that of its die's measured devices where it says so."""
    peaks = entry["dense_peak"]
    peak = peaks.get("bf16", peaks.get("fp16"))
    for field in ("rated_power", "power"):
        power = entry.get(f"{field}_w", entry.get(field))
        if power is not None and peak is not None:
            return quantity(field, power, "power") / real("dense_peak", peak, 1.0, _LARGEST)
    return None


@functools.cache
def _measured_power(architecture: str) -> float | None:
    """The same, mean of the devices of an architecture whose operators were measured; None where none was."""
    measured = (_entry("device", name) for name in names("device") if _is_measured(name))
    found = [_power_per_rate(entry) for entry in measured if entry.get("architecture") == architecture]
    known = [power for power in found if power is not None]
    return sum(known) / len(known) if known else None


def _power_over_measured(entry: Row) -> float:
    """Clock that a device's power allows over that of the measured devices of its architecture.

    At their limits both draw the cube of it for each FLOP of their peaks (`costmodel.formulas.compute.limited_clock`). An RTX
    4090 has three times an L40S's power for one.
    """
    own, measured = _power_per_rate(entry), _measured_power(entry.get("architecture", "unknown"))
    return 1.0 if own is None or measured is None else (own / measured) ** (1.0 / 3.0)


_OF_PEAK = ("gemm", "best", "grouped", "attention_forward", "attention_backward", "full_attention")
"""Constants that are shares of a peak, which a device short of power doesn't keep up."""


def _constants(name: str, entry: Row) -> Row:
    architecture = entry.get("architecture", "unknown")
    pooled = _pooled(_relation(architecture))
    measured = _is_measured(name)
    own = entry_of(_EFFICIENCIES, name) if measured else {}
    known = {key: copy.copy(own.get(key, pooled.get(key))) for key in _EFFICIENCY_KEYS if key in own or key in pooled}
    clock = effects.clocks(name, architecture)
    if not measured:
        known |= _by_power(known, _power_over_measured(entry))
        if not effects.has_own_clock(name):
            clock["sustained_clock"] = _clock_by_power(clock["sustained_clock"], _power_over_measured(entry))
        if "best_product" in entry:
            known |= _as_fast(known, {dtype: rate / entry["dense_peak"][dtype] for dtype, rate in entry["best_product"].items()})
    return {**known, **clock}


def _by_power(pooled: Row, power: float) -> Row:
    """Shares of the peak of a device by its power: those of its architecture's measured devices at their clock times `power`.

    More power gives no more than the better of what these reach and what all measured devices do on average.
    """
    every = _pooled("default")

    def share(of: float, of_all: float) -> float:
        return min(of * power, max(of, of_all))

    return {
        key: {dtype: share(of, every[key][dtype]) for dtype, of in pooled[key].items()}
        if isinstance(pooled[key], dict) else share(pooled[key], every[key])
        for key in _OF_PEAK
    }  # fmt: skip


def _clock_by_power(clock: float, power: float) -> float:
    """A sustained clock of an architecture for a device with other power: more of it keeps the clock up in long runs, too."""
    return min(clock * max(power, 1.0), max(clock, effects.steadiest_clock()))


def _as_fast(pooled: Row, best: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Efficiencies of products where the best one alone was measured: those of other devices, as far from their best.

    Some come nearer to their peak than others, or beyond it: their tensor cores are fed for twice the rate at which they sum in
    32 bit (GeForce), or they run above the clock that their peak is specified at. What was not measured itself is not
    promised beyond the peak by that.

    Parameters
    ----------
    pooled : constants of other devices
    best : share of the peak by dtype, one of them ``"bf16"`` (``"fp16"`` where it has no other), which speaks for those left out
    """
    of_dtypes = {dtype: share / pooled["best"][dtype] for dtype, share in best.items() if dtype in pooled["best"]}
    of_dtypes.setdefault("bf16", best.get("fp16", best.get("bf16", 1.0)) / pooled["best"]["bf16"])
    shares = {dtype: of_dtypes.get(dtype.split("-")[0], of_dtypes["bf16"]) for dtype in pooled["gemm"]}
    products = {
        key: {dtype: min(shares[dtype] * pooled[key][dtype], 1.0) for dtype in pooled[key]} for key in ("gemm", "grouped")
    }
    return products | {"best": {
        dtype: min(shares[dtype] * pooled["best"][dtype], max(best.get(dtype, 1.0), 1.0)) for dtype in pooled["best"]
    }}  # fmt: skip


def efficiency_source(name: str) -> str:
    """``"measured"``, or whose pooled constants a catalogue device takes that was not measured itself.

    Examples
    --------
    >>> efficiency_source("a100-sxm-80gb"), efficiency_source("a800"), efficiency_source("tpu-v3")
    ('measured', 'pooled over ampere', 'pooled over all devices')
    """
    if _is_measured(name):
        return "measured"
    entry = _entry("device", name)
    relation = _relation(entry.get("architecture", "unknown"))
    known = ", at its own best product" if "best_product" in entry else ""
    return f"pooled over {'all devices' if relation == 'default' else relation}{known}"


def constant_errors(name: str) -> tuple[dict[str, float], str]:
    """Standard errors of the logarithms of a catalogue device's constants, and whose they are.

    Returns
    -------
    tuple
        errors by constant, those of one dtype as ``"gemm.bf16"``; and the device, or what its constants are pooled over

    Examples
    --------
    >>> errors, source = constant_errors("h100-sxm")
    >>> 0.0 < errors["memory"] < 0.2, source
    (True, 'h100-sxm')
    """
    source = efficiency_source(name)
    if source == "measured":
        return dict(entry_of(_EFFICIENCIES, name).get("standard_error", {})), name
    entry = _entry("device", name)
    errors: dict[str, float] = dict(_pooled(_relation(entry.get("architecture", "unknown")))["standard_error"])
    for dtype in entry.get("best_product", {}):  # of the others' spread what is not that of their best
        dtype = "bf16" if dtype == "fp16" else dtype
        spread = errors[f"best.{dtype}"]
        for key in ("gemm", "grouped"):
            errors[f"{key}.{dtype}"] = math.sqrt(max(errors[f"{key}.{dtype}"] ** 2 - spread**2, _MEASURED_ERROR**2))
        errors[f"best.{dtype}"] = _MEASURED_ERROR
    return errors, source


def _layer_constants(name: str) -> Row:
    lender = name if name in places(_LAYER_EFFICIENCIES) else entry_of(_LAYER_EFFICIENCIES, "borrowed")["default"]
    entry = entry_of(_LAYER_EFFICIENCIES, lender)
    return {key: entry[key] for key in _LAYER_EFFICIENCY_KEYS}


def _device(name: str, entry: Row) -> Device:
    constants = _constants(name, entry) | entry.get("efficiency", {})
    layers = _layer_constants(name) | entry.get("layer_efficiency", {})
    ours = {key: value for key, value in entry.items() if key in _fields(Device)}
    ours["dense_peak"] = dict(ours["dense_peak"])
    for field in ("power", "rated_power"):
        if f"{field}_w" in entry:
            if field in entry:
                raise InvalidValue(field, entry[field], f"{field}_w alone")
            ours[field] = entry[f"{field}_w"]
    calibrated = {"efficiency": Efficiency(**constants), "layer_efficiency": LayerEfficiency(**layers)}
    return Device(**{"name": name, **ours, **calibrated})


# A user's files


def read_model_file(path: str | Path) -> Transformer:
    """A model from a TOML file with the fields of `Transformer`, at top level or in one table.

    Raises
    ------
    UnreadableFile
        where the file is missing, larger than 1 MiB, not TOML, or has a key that is unknown or missing
    InvalidValue
        where a value is of the wrong type or range
    """
    name, entry = read_entry(path, _MODEL_KEYS)
    _require(path, entry, ("layers", "hidden", "heads", "vocabulary"))
    if "published_parameters" in entry:
        real("published_parameters", entry["published_parameters"], 1.0, 1e18)
    ours = {key: value for key, value in entry.items() if key not in _FOR_READERS}
    return Transformer(**{"name": name, **ours})


def read_device_file(path: str | Path) -> Device:
    """A device from a TOML file with the fields of `Device`, at top level or in one table.

    A table ``[efficiency]`` may give some or all of the calibrated constants, ``[layer_efficiency]`` those of fp32
    convolutions and recurrences; the others are those of the measured device of the same architecture.
    """
    name, entry = read_entry(path, _DEVICE_KEYS)
    return _checked_device(path, name, entry)


def read_cluster_file(path: str | Path) -> Cluster:
    """A cluster from a TOML file with the fields of `Cluster`, at top level or in one table.

    ``device`` is a name of the catalogue or a table with the fields of `Device`; ``levels`` is an array of
    tables with `name`, `size`, `latency`, `bandwidth` and maybe `topology`, `oversubscription`
    and `line_rate`, innermost first.

    Raises
    ------
    UnreadableFile
        where the file is missing, larger than 1 MiB, not TOML, or has a key that is unknown or missing
    UnknownName
        where the catalogue has no such device
    InvalidValue
        where a value is of the wrong type or range
    """
    name, entry = read_entry(path, _CLUSTER_KEYS)
    _require(path, entry, ("device", "levels"))
    device = entry["device"]
    if isinstance(device, dict):
        refuse_unknown(path, device, _DEVICE_KEYS)
        built = _checked_device(path, f"device of {name}"[:500], device)
    else:
        built = load_device(text("device", device))
    tables = entry["levels"]
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InvalidValue("levels", tables, "an array of tables, innermost level first")
    if not tables:
        raise InvalidValue("levels", tables, "at least one network level")
    node = tables[0].get("size")
    read = []
    for table in tables:
        refuse_unknown(path, table, (*_LEVEL_KEYS, *readings.SHARED))
        per_gpu = readings.level(table, whole("size", node, 10**7) or 1)
        _require(path, per_gpu, _LEVEL_NEEDED)
        read.append(made(Level, per_gpu))
    return Cluster(
        name=text("name", entry.get("name", name)), device=built, levels=tuple(read), gpus=entry.get("gpus", read[0].size),
        title=entry.get("title", ""), host_memory=entry.get("host_memory"),
    )  # fmt: skip


def _checked_device(path: str | Path, name: str, entry: Row) -> Device:
    _require(path, entry, ("dense_peak", "memory", "memory_bandwidth"))
    _table("dense_peak", entry["dense_peak"])
    entry = readings.si(entry)
    for key in ("title", "architecture"):
        if key in entry:
            text(key, entry[key])
    if "multiprocessors" in entry:
        whole("multiprocessors", entry["multiprocessors"], 10**6)
    if "best_product" in entry:
        _check_best(name, entry)
    efficiency = _table("efficiency", entry.get("efficiency", {}))
    refuse_unknown(path, efficiency, _EFFICIENCY_KEYS)
    for dtype in _table("gemm", efficiency.get("gemm", {})):
        choice("gemm", dtype, DTYPES)
    refuse_unknown(path, _table("layer_efficiency", entry.get("layer_efficiency", {})), _LAYER_EFFICIENCY_KEYS)
    return _device(name, entry)


def _check_best(name: str, entry: Row) -> None:
    """Refuse best products in a dtype without a peak, far above it, without one of 16 bits, or of a measured device."""
    peaks, best = entry["dense_peak"], _table("best_product", entry["best_product"])
    if _is_measured(name):
        raise InvalidValue("best_product", dict(best), f"none under the name {name!r}, which was measured: another name")
    if "bf16" not in best:
        raise InvalidValue("best_product", dict(best), "a rate for bf16")
    for dtype, rate in best.items():
        if dtype not in ("bf16", "fp8") or dtype not in peaks:
            raise InvalidValue("best_product", dtype, "bf16 or fp8, with a rate in dense_peak")
        real(f"best_product.{dtype}", rate, 1e9, _BEYOND_PEAK * peaks[dtype])


def read_entry(path: str | Path, keys: Collection[str]) -> tuple[str, Row]:
    """Name and fields of the one entry of a user's TOML file, each field one of `keys`.

    Raises
    ------
    UnreadableFile
        where the file is missing, larger than 1 MiB, not TOML, or has a key that is unknown
    """
    data = _parse(path)
    tables = [key for key in data if key not in keys]
    if len(data) == len(tables) == 1 and isinstance(data[tables[0]], dict):
        name, entry = tables[0], data[tables[0]]
    elif len(tables) > 1 and all(isinstance(data[key], dict) for key in tables):
        _fail(path, f"holds {len(tables)} entries ({_shown(tables)}); one file describes one")
    else:
        name, entry = os.path.splitext(os.path.basename(path))[0], data
    entry = {key: value for key, value in entry.items() if key != "provenance"}
    _plain("", entry)
    refuse_unknown(path, entry, keys)
    if "title" in entry:
        text("title", entry["title"])
    return text("name", entry.get("name", name)), entry


def _parse(path: str | Path) -> Row:
    return user_files.toml(path, user_files.text(path, MAX_FILE_SIZE))


def _one_line(value: object) -> str:
    line = " ".join(str(value).split())
    return line if len(line) <= 200 else line[:197] + "..."


def _shown(keys: Collection[str]) -> str:
    return _one_line(", ".join(keys))


def _fail(path: str | Path, message: str) -> NoReturn:
    raise UnreadableFile(f"{_one_line(path)}: {message}") from None


def refuse_unknown(path: str | Path, entry: Mapping[str, object], keys: Collection[str]) -> None:
    """Refuse a table of a user's file with a key that is none of `keys`, naming the nearest."""
    for key in entry:
        if key not in keys:
            import difflib

            near = difflib.get_close_matches(key[:100], list(keys), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            _fail(path, f"unknown key {_one_line(key)!r}{hint} (known: {', '.join(keys)})")


def _require(path: str | Path, entry: Mapping[str, object], keys: Collection[str]) -> None:
    missing = [key for key in keys if key not in entry]
    if missing:
        _fail(path, f"missing {', '.join(missing)}")


def _table(field: str, value: object) -> Row:
    if not isinstance(value, dict):
        raise InvalidValue(field, value, "a table")
    return value


def _plain(field: str, value: object, depth: int = 0) -> None:
    """Refuse what no field can hold, anywhere: nan, inf, huge numbers, control characters, deep nests."""
    if depth > MAX_DEPTH:
        outermost = _one_line(field.partition(".")[0])
        raise InvalidValue(outermost, "...", f"at most {MAX_DEPTH} tables in each other")
    if isinstance(value, dict):
        for key, item in value.items():
            if not key.isprintable():
                raise InvalidValue("key", key, "a text without control characters")
            _plain(f"{field}.{key}" if field else key, item, depth + 1)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            _plain(f"{field}[{place}]", item, depth + 1)
    elif isinstance(value, str) and not value.isprintable():
        raise InvalidValue(_one_line(field), value, "a text without control characters")
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidValue(_one_line(field), value, "a finite number")
    elif isinstance(value, int) and abs(value) > _LARGEST:
        raise InvalidValue(_one_line(field), float("inf"), f"a number up to {_LARGEST:g}")
