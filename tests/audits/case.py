"""What every audit is: software that trains on GPUs that aren't there, beside what the library says of it."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import ClassVar, TypeAlias

from costmodel.traces.record import Trace
from costmodel.traces.running import trace_script

SCRIPTS = Path(__file__).parent / "traced"
LIMIT = 3600.0
"""Of a case, on a busy machine [s]."""
CLUSTER = "dgx-h100"
Compared: TypeAlias = tuple[tuple[str, ...], bool]
"""Cells of a line behind the case's name, and whether both are equal."""


@dataclasses.dataclass(frozen=True)
class Case:
    """Software, as a script runs it and as the library calls it.

    Parameters
    ----------
    name : of the case
    arguments : of the script
    steps : to trace; the last one is compared
    """

    title: ClassVar[str]
    columns: ClassVar[str]  # of the audit's table, but for the verdict, the last `numbers` of them numbers
    numbers: ClassVar[int]
    script: ClassVar[str]
    gpus: ClassVar[int] = 1
    shown: ClassVar[tuple[int, ...]] = (0,)  # ranks to trace, of which the last is compared

    name: str
    arguments: tuple[str, ...]
    steps: int = dataclasses.field(default=2, kw_only=True)

    @property
    def packages(self) -> tuple[str, ...]:
        """That it needs beside PyTorch and transformers."""
        return ()

    @property
    def file(self) -> str:
        """Name of its trace."""
        return "-".join(self.arguments)

    @property
    def missing(self) -> list[str]:
        """Packages that aren't installed."""
        return [name for name in ("torch", "transformers", *self.packages) if importlib.util.find_spec(name) is None]

    def traced(self) -> Trace:
        """What its ranks do."""
        script = str(SCRIPTS / self.script)
        return trace_script(
            script, self.arguments, cluster=CLUSTER, gpus=self.gpus, roles=self.shown, steps=self.steps, limit=LIMIT)

    def versions(self, trace: Trace, *others: str) -> str:
        """Versions of PyTorch, of others, and of what the case needs."""
        return ", ".join(f"{name} {trace.versions[name]}" for name in ("torch", *others, *self.packages))

    def rows(self, trace: Trace) -> list[Compared]:
        """What is traced beside what the library says."""
        raise NotImplementedError
