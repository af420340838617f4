"""Bytes that a loss holds of each logit at its fullest moment, as traced, beside what the library says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from costmodel.catalogue.software import load_framework
from costmodel.formulas.settings import LOSSES
from costmodel.traces.memory import held_bytes
from costmodel.traces.record import Role, Trace
from tests.audits.bloom import not_installed, on_one_gpu

SCRIPT = Path(__file__).parent / "traced" / "loss.py"
LOGITS = 2 * 512 * 65536
CAPPED = ("capped",)


@dataclasses.dataclass(frozen=True)
class Case:
    """A loss, as the script makes it and as the library calls it.

    Parameters
    ----------
    name : of the case
    arguments : of the script
    framework : whose own loss it is; "" of one that a plan names as the script does
    """

    name: str
    arguments: tuple[str]
    framework: str = ""

    @property
    def packages(self) -> tuple[str, ...]:
        """That it needs beside transformers."""
        return ("accelerate",) if self.framework else ()

    @property
    def missing(self) -> list[str]:
        """Packages that aren't installed."""
        return not_installed(self.packages)

    def traced(self) -> Trace:
        """What a GPU does in two steps."""
        return on_one_gpu(SCRIPT, self.arguments)

    def told(self) -> float:
        """Bytes a logit."""
        if self.arguments == CAPPED:
            return LOSSES["upcast"] + 2.0  # what the tangent makes
        return load_framework(self.framework).logit_bytes if self.framework else LOSSES[self.arguments[0]]


CASES = {
    case.name: case
    for case in (
        Case("Trainer's loss", ("trainer",), "hf-trainer"),
        Case("Loss in 32 bit", ("upcast",)),
        Case("Loss in 32 bit, outputs kept", ("upcast-kept",)),
        Case("Loss of Gemma 2", CAPPED),
        Case("Loss in 16 bit", ("16-bit",)),
        Case("Loss in 16 bit, logits kept", ("16-bit-kept",)),
    )
}
"""By name."""


def held(role: Role) -> float:
    """Bytes a logit that the last step holds at its fullest; weights and gradients are a hundredth of them."""
    step = role.step()
    return float(held_bytes(role)[step.start : step.stop].max()) / LOGITS
