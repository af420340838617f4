"""What measurements add to NCCL's and RCCL's own models: constants by architecture, by kind of network, by who launches."""

from __future__ import annotations

import functools
import tomllib
from typing import NamedTuple

from costmodel.catalogue.loader import text_of
from costmodel.records import Row

FILE = "communication.toml"


class Overhead(NamedTuple):
    """Constants of `costmodel.formulas.network.nccl.measured`: launch [s], gain, filling [s/byte], round_bytes [bytes]."""

    launch: float
    gain: float
    filling: float
    round_bytes: float


NONE = Overhead(0.0, 1.0, 0.0, 0.0)
"""Of an architecture or network that was never measured: what NCCL expects is taken as it stands."""


@functools.cache
def _tables() -> Row:
    found: Row = tomllib.loads(text_of(FILE))
    return found


def measured() -> dict[str, list[str]]:
    """Architectures, networks and launchers that have constants."""
    return {kind: list(entries) for kind, entries in _tables().items() if kind != "fit"}


def overhead(kind: str, name: str) -> Overhead:
    """Constants of an architecture or a kind of network; `NONE` where it was never measured.

    Parameters
    ----------
    kind : ``"architecture"`` or ``"network"``
    name : of it
    """
    entry = _tables().get(kind, {}).get(name)
    return Overhead(**{field: float(entry[field]) for field in Overhead._fields}) if entry else NONE


def launch_of(launcher: str) -> float:
    """What a launcher adds to every collective [s]; 0 for native code.

    Parameters
    ----------
    launcher : ``"native"`` or ``"pytorch"``
    """
    return float(_tables().get("launcher", {}).get(launcher, {}).get("launch", 0.0))
