"""Frameworks of the catalogue: their defaults, joined with the constants that calibration gave their stack."""

from __future__ import annotations

import dataclasses
import functools
import os

from costmodel.arithmetic.named_tuples import Row, nested, paths, replaced
from costmodel.catalogue import communication, effects, files, loader, readings, releases
from costmodel.catalogue.server_systems import server_system
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.formulas.quantities import Software
from costmodel.text.checks import kind, text
from costmodel.text.errors import CostModelError, InvalidValue, UnknownName
from costmodel.text.other_names import value_meant

FRAMEWORKS = "frameworks.toml"
"""File of the defaults of frameworks."""
PLANNED_SERVERS = ("parameter-server", "byteps")
"""Systems of servers that a plan can synchronise by."""


def framework_names() -> list[str]:
    """Names of the frameworks in the catalogue."""
    return list(files.entries(FRAMEWORKS))


def is_framework(name: str) -> bool:
    """Whether a name, with or without a release behind it, stands for a framework of the catalogue.

    Examples
    --------
    >>> is_framework("fsdp2"), is_framework("torchtitan@2025.8"), is_framework("h100")
    (True, True, False)
    """
    try:
        return bool(_named(name).name)
    except CostModelError:
        return False


def constants_by_owner(name: str, architecture: str) -> dict[str, dict[str, float]]:
    """Calibrated constants of all software, on an architecture, of a framework, and of that there, as far as each was fitted.

    Returns
    -------
    dict
        by owner, the widest first; of each the constants by name

    Examples
    --------
    >>> list(constants_by_owner("megatron-core", "hopper"))
    ['all software', 'on hopper', 'megatron-core', 'megatron-core on hopper']
    """
    base = _base(_named(name).name)
    owners = {
        "all software": ("", None), f"on {architecture}": ("", architecture), base: (base, None),
        f"{base} on {architecture}": (base, architecture),
    }  # fmt: skip
    found = {owner: effects.composed(effects.owners_of(*one)) for owner, one in owners.items() if effects.runs_of(*one)}
    if base in found and not effects.runs_of(base, architecture):  # never run there: what both leave of a plan's constants
        both = effects.composed(effects.owners_of(base, architecture))
        found[f"{base} on {architecture}"] = {path: value for path, value in both.items() if path not in OF_KERNELS}
    return found


def _base(named: str) -> str:
    """The framework whose constants one of the catalogue has: its base, unless it is code of its own that has its fields."""
    entry = files.entry_of(FRAMEWORKS, named)
    return _base(str(entry["base"])) if "base" in entry and not entry.get("own_code") else named


def _entry(named: str) -> Row:
    """One of the catalogue with the fields of its base, which may have a base itself."""
    entry = files.entry_of(FRAMEWORKS, named)
    return releases.handed_on(_entry(entry["base"]), entry) if "base" in entry else entry


OWN = {"network_piece_copy": 0.0}
"""Constants that no calibration fits: a framework of the catalogue may state its own, in a table ``constants``."""


def software_that_adds_nothing(launch_time: float = 0.0) -> Software:
    """Software whose factors are one, and that takes nothing on top of what links take but the launch of a collective.

    Parameters
    ----------
    launch_time : of a collective [s]
    """
    added = communication.constants_of_a_step(None, "") | OWN | {"host_collective_launch": launch_time}
    return nested(Software, dict.fromkeys(paths(Software), 1.0) | added)


OF_KERNELS = {"compute_attention_efficiency_scale": min, "compute_gemm_efficiency_scale": min, "compute_contention": max}
"""Constants of the kernels that software calls, which are written for an architecture, and the worse of two of each: how fast
they are beside those that were measured there, and what they lose while others carry bytes."""


def _carried(framework: Row, architecture: Row) -> Row:
    """Constants of a framework on an architecture where it was never timed.

    What its kernels gained where it was timed isn't promised elsewhere: there it calls those that the others call. What they lost
    it keeps, as it does what its own code takes: host times, bytes of element-wise kernels, overlap.

    Parameters
    ----------
    framework, architecture : what calibration expects of the framework there, and of any software there

    Examples
    --------
    NeMo was timed on Hopper and Blackwell, whose flash kernels were written for them; on Ampere it would pass the fastest that
    was measured there by an eighth.

    >>> nemo, any_software = {"compute_contention": 0.17, "host_step": 0.01}, {"compute_contention": 0.3, "host_step": 0.02}
    >>> _carried(nemo, any_software)
    {'compute_contention': 0.3, 'host_step': 0.01}
    """
    return framework | {
        path: worse(framework[path], architecture[path]) for path, worse in OF_KERNELS.items() if path in framework
    }  # fmt: skip


FORMER_NAMES = {"aleph-alpha": "megatron-lm-2023", "megatron-core-ci": "megatron-core"}
"""Names that stood for a source of measurements, and the software that it ran."""


def load_framework(
    name: str | os.PathLike[str], architecture: str | None = None, network: str = communication.USUAL_NETWORK
) -> Framework:
    """A framework of the catalogue, or of a TOML file.

    A file holds the fields of Framework that differ from those of the framework that it names as ``base``, and in a table
    ``[constants]`` the calibrated constants that differ.

    Parameters
    ----------
    name : as `framework_names` lists it, or as people call it, or a path; with ``@2025.8`` behind it as that month's release
        was, otherwise the newest
    architecture : of the devices it runs on: the constants are those that calibration, pooled over frameworks and
        architectures, expects of the framework there, whether or not it was measured there
    network : kind of network between the nodes, as `costmodel.catalogue.communication.network_kind` has it

    Raises
    ------
    UnknownName
        with near names
    UnreadableFile
        where a file is missing, not TOML, or has a key that is unknown
    InvalidValue
        where a value in it is of the wrong type or range
    """
    name = loader.path_or_name(name)
    if name not in files.entries(FRAMEWORKS) and loader.is_file(name):
        return _of_file(name, architecture, network)
    return _of_catalogue(name, architecture, network)


def _named(name: str) -> releases.NamedRelease:
    """The entry that a name stands for, and the month of its release."""
    asked = releases.asked(name)
    known = files.entries(FRAMEWORKS)
    entry = asked.name if asked.name in known else FORMER_NAMES.get(asked.name) or value_meant("framework", asked.name, known)
    if entry not in known:
        raise UnknownName("framework", asked.name, known)
    return asked._replace(name=entry)


def _of_file(path: str, architecture: str | None, network: str) -> Framework:
    fields = [field.name for field in dataclasses.fields(Framework) if field.name not in ("constants", "server_systems")]
    name, entry = loader.read_entry(path, (*fields, "base", "constants"))
    base = _of_catalogue(text("base", entry.get("base", "megatron-core")), architecture, network)
    own = entry.get("constants", {})
    if not isinstance(own, dict):
        raise InvalidValue("constants", own, "a table of calibrated constants")
    loader.refuse_unknown(path, own, paths(Software))
    stack = replaced(base.constants, readings.constants(own))
    changed = {key: value for key, value in entry.items() if key not in ("base", "constants", "name")}
    return dataclasses.replace(base, name=name, constants=stack, **changed)


@functools.cache
def _of_catalogue(name: str, architecture: str | None, network: str) -> Framework:
    named, month = _named(name)
    name = releases.dated(named, month)
    entry, base = _entry(named), _base(named)  # of the same code beside other options the constants, too
    entry = entry | entry.get("on", {}).get(architecture, {})  # what it does otherwise on devices of an architecture
    entry = releases.as_of(entry, month)
    known = effects.composed(effects.owners_of(base, architecture))
    if architecture and not effects.runs_of(base, architecture):
        known = _carried(known, effects.composed(effects.owners_of("", architecture)))
    values = known | communication.constants_of_a_step(architecture, network) | OWN
    values |= entry.get("constants", {})
    stack = nested(Software, {path: float(values[path]) for path in paths(Software)})
    defaults = {key: value for key, value in entry.items() if key not in ("base", "own_code", "source", "constants", "on")}
    servers = [server_system(system) for system in PLANNED_SERVERS]
    return Framework(name=name, constants=stack, owner=effects.owner_of(base, architecture), server_systems=servers, **defaults)


def framework_on(cluster: Cluster, framework: Framework | str) -> Framework:
    """A framework as it runs on a cluster: the one calibrated there if there is one of that name.

    Parameters
    ----------
    cluster : may hold frameworks calibrated on it
    framework : or its name
    """
    if isinstance(framework, Framework):
        return framework
    if isinstance(framework, list | tuple):
        raise InvalidValue("framework", framework, "one of them: compare(...) takes several")
    text("framework", framework)
    kind("cluster", cluster, Cluster, "load_cluster(name)")
    network = communication.network_kind(cluster.levels[-1].name)
    return cluster.frameworks.get(framework) or load_framework(framework, cluster.device.architecture, network)
