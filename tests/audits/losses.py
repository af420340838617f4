"""Bytes that a loss holds of each logit at its fullest moment, as traced, beside what the library says."""

from __future__ import annotations

import dataclasses

from costmodel.catalogue.software import load_framework
from costmodel.formulas.settings import LOSSES
from costmodel.traces.memory import held_bytes
from costmodel.traces.record import Role, Trace
from tests.audits.case import Case, Compared

LOGITS = 2 * 512 * 65536
CAPPED = ("capped",)


@dataclasses.dataclass(frozen=True)
class Loss(Case):
    """A loss, as the script makes it and as the library calls it.

    Parameters
    ----------
    framework : whose own loss it is; "" of one that a plan names as the script does
    """

    title = "What a loss holds at its fullest, bytes a logit:"
    columns, numbers = "case software traced told", 2
    script = "loss.py"

    framework: str = ""

    @property
    def packages(self) -> tuple[str, ...]:
        """That it needs beside PyTorch and transformers."""
        return ("accelerate",) if self.framework else ()

    def told(self) -> float:
        """Bytes a logit."""
        if self.arguments == CAPPED:
            return LOSSES["upcast"] + 2.0  # what the tangent makes
        return load_framework(self.framework).logit_bytes if self.framework else LOSSES[self.arguments[0]]

    def rows(self, trace: Trace) -> list[Compared]:
        """Bytes a logit."""
        really, says = held(trace.roles[0]), self.told()
        return [((self.versions(trace, "transformers"), f"{really:.2f}", f"{says:g}"), round(really) == says)]


CASES = {
    case.name: case
    for case in (
        Loss("Trainer's loss", ("trainer",), "hf-trainer"),
        Loss("Loss in 32 bit", ("upcast",)),
        Loss("Loss in 32 bit, outputs kept", ("upcast-kept",)),
        Loss("Loss of Gemma 2", CAPPED),
        Loss("Loss in 16 bit", ("16-bit",)),
        Loss("Loss in 16 bit, logits kept", ("16-bit-kept",)),
    )
}
"""By name."""


def held(role: Role) -> float:
    """Bytes a logit that the last step holds at its fullest; weights and gradients are a hundredth of them."""
    step = role.step()
    return float(held_bytes(role)[step.start : step.stop].max()) / LOGITS
