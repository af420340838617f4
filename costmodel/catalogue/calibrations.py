"""Calibrations on own runs as files: what `costmodel.calibrate` found of a framework on a cluster's device, and back."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from costmodel.arithmetic.named_tuples import Row, flat, nested, paths, replaced
from costmodel.catalogue import readings
from costmodel.catalogue.software import framework_names, framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.formulas.quantities import ModelNumbers, OwnRun, PlanNumbers, Settings, Software
from costmodel.text import user_files
from costmodel.text.checks import kind
from costmodel.text.errors import InvalidValue
from costmodel.text.version import __version__

MOST_KEPT = 16
"""Files of calibrations whose content is kept."""
MOST_BYTES = 64 << 20
KEYS = ("version", "framework", "device", "own_factor", "time_error", "memory_error", "constants", "models", "runs")
ERRORS = ("own_factor", "time_error", "memory_error")
"""Fields of a framework that own runs tell, beside its constants and what they say of plans."""


def calibration_text(cluster: Cluster, framework: str) -> str:
    """A calibration as TOML.

    Parameters
    ----------
    cluster : of `costmodel.calibrate`
    framework : name of the one that was calibrated on it

    Raises
    ------
    InvalidValue
        where it wasn't

    Examples
    --------
    >>> import costmodel
    >>> model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    >>> mine = costmodel.calibrate(cluster, [(model, costmodel.Plan(global_batch=64, seq_len=4096), 7.0)])
    >>> calibration_text(mine, "megatron-core").splitlines()[2:4]
    ['framework = "megatron-core"', 'device = "h100-sxm"']
    """
    kind("cluster", cluster, Cluster, "what costmodel.calibrate gave")
    found = cluster.frameworks.get(framework)
    if found is None or (found.time_error is None and found.memory_error is None):
        raise InvalidValue("framework", framework, "one that was calibrated on this cluster")
    told = {name: getattr(found, name) for name in ERRORS}
    head = {"version": __version__, "framework": framework, "device": cluster.device.name}
    head |= {name: value for name, value in told.items() if value is not None}
    models = list(dict.fromkeys(run.model for run in found.own_runs))
    lines = ["# What own runs say: to be given with --calibration, or to costmodel.load_calibration.", *_lines(head)]
    lines += ["", "[constants]", *_lines(flat(found.constants))]
    for model in models:
        lines += ["", "[[models]]", *_lines(flat(model))]
    for run in found.own_runs:
        lines += ["", "[[runs]]", f"discrepancy = {float(run.discrepancy)!r}", f"model = {models.index(run.model)}"]
        lines += [f"{part} = {{ {', '.join(_lines(flat(getattr(run, part))))} }}" for part in ("settings", "plan")]
    return "\n".join(lines) + "\n"


def _lines(numbers: Mapping[str, object]) -> Iterator[str]:
    for name, value in numbers.items():
        yield f"{name} = {json.dumps(value) if isinstance(value, str) else repr(float(value))}"  # type: ignore[arg-type]


def save_calibration(cluster: Cluster, path: str | os.PathLike[str], framework: str = "megatron-core") -> None:
    """Write what `costmodel.calibrate` found into a file.

    Parameters
    ----------
    cluster : of `costmodel.calibrate`
    path : of the file, TOML
    framework : name of the one that was calibrated on it
    """
    text = calibration_text(cluster, framework)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def load_calibration(path: str | os.PathLike[str], cluster: Cluster) -> Cluster:
    """A cluster with a framework that was calibrated on own runs.

    Parameters
    ----------
    path : of a file of `save_calibration`, or of ``costmodel calibrate``
    cluster : with the device on which the runs were made

    Returns
    -------
    Cluster
        the same with `frameworks` holding the calibrated one, which `estimate` and `search` take when asked for its name

    Raises
    ------
    UnreadableFile
        where the file is none, or of a release whose constants or plans were others
    InvalidValue
        where the cluster has another device
    """
    entry = _read(path)
    name = _framework_of(entry, path)
    if entry["device"] != cluster.device.name:
        wish = f"one of {entry['device']}, on which {user_files.named(path)} was calibrated, not of {cluster.device.name}"
        raise InvalidValue("cluster", cluster.name, wish)
    software = framework_on(cluster, name)
    try:
        found = _applied(entry, software)
    except (KeyError, TypeError, IndexError, AttributeError, InvalidValue) as error:
        user_files.refuse(path, f"is no calibration of this release ({_short(error)}); calibrate on the runs again")
    return dataclasses.replace(cluster, frameworks={**cluster.frameworks, name: found})


def calibrated_framework(path: str | os.PathLike[str]) -> str:
    """Name of the framework that a file of `save_calibration` is about."""
    return _framework_of(_read(path), path)


def _framework_of(entry: Row, path: str | os.PathLike[str]) -> str:
    name = entry["framework"]
    if name not in framework_names():
        user_files.refuse(path, f"is about the framework {str(name)[:80]!r}, which the catalogue doesn't have")
    return str(name)


def device_of_calibration(path: str | os.PathLike[str]) -> str:
    """Name of the device that a file of `save_calibration` is about."""
    return str(_read(path)["device"])


def _read(path: str | os.PathLike[str]) -> Row:
    """What a file holds, read again only where it has changed: a page asks for it whenever it is drawn."""
    try:
        place = os.path.abspath(os.fspath(path))
        state = os.stat(place)
    except (OSError, ValueError, TypeError):
        return _parsed(path)  # which says what is wrong
    return _kept(place, os.fspath(path), state.st_mtime_ns, state.st_size, state.st_ino)


@functools.lru_cache(MOST_KEPT)
def _kept(place: str, path: str, changed: int, size: int, node: int) -> Row:
    return _parsed(path)


def _parsed(path: str | os.PathLike[str]) -> Row:
    entry = user_files.toml(path, user_files.text(path, MOST_BYTES))
    unknown = [key for key in entry if key not in KEYS]
    missing = [key for key in ("framework", "device", "constants") if key not in entry]
    if unknown or missing:
        what = f"has the key {unknown[0][:80]!r}" if unknown else f"lacks {missing[0]}"
        user_files.refuse(path, f"is no calibration: it {what} (`costmodel calibrate` writes one)")
    return entry


def _applied(entry: Mapping[str, Any], software: Framework) -> Framework:
    constants = dict(entry["constants"])
    strange = set(constants) ^ set(paths(Software))
    if strange:
        raise KeyError(min(strange))
    models = [_numbers(ModelNumbers, one) for one in entry.get("models", ())]
    own_runs = []
    for run in entry.get("runs", ()):
        settings, plan = _numbers(Settings, run["settings"]), _numbers(PlanNumbers, run["plan"])
        own_runs.append(OwnRun(float(run["discrepancy"]), models[run["model"]], settings, plan))
    told = {name: float(entry[name]) for name in ERRORS if name in entry}
    values = replaced(software.constants, readings.constants(constants))
    return dataclasses.replace(software, constants=values, own_runs=own_runs, owner="", **told)  # type: ignore[arg-type]


def _numbers(what: Any, given: Mapping[str, Any]) -> Any:
    """A group of numbers of a file, whole and of this release's fields."""
    strange = set(given) ^ set(paths(what))
    if strange:
        raise KeyError(min(strange))
    return nested(what, {name: float(value) for name, value in given.items()})


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
