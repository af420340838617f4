"""What the kernels between products read and write, of a layer and of a loss, as traced, beside what the library says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from costmodel import load_device, load_framework
from costmodel.formulas.settings import LOSS_TRAFFIC
from costmodel.formulas.transformer import adapters, layer, traffic
from costmodel.traces.kernels import Kernel, signatures, sizes_of
from costmodel.traces.record import KERNEL, PHASES, Role, Trace
from tests.audits import losses, saved
from tests.audits.case import Compared
from tests.audits.losses import CAPPED, LOGITS, Loss
from tests.audits.saved import MIDDLE, SHAPE, TOKENS, Layer

RANK = 8
"""Of the adapters, whose products are too thin for anything but what they read and write."""
NEAR = 0.02
"""Of both: numbers a token, as a norm's root, and cosines are not in the formula."""


@dataclasses.dataclass(frozen=True)
class Moves(Layer):
    """A layer whose kernels are counted."""

    title = "What the kernels between a layer's products read and write, of a small model, a token and channel:"
    columns, numbers = "case software pass traced formula", 2

    def moved(self) -> tuple[float, float]:
        """Bytes of a layer and micro-batch, forward and backward, by the library's formulas."""
        model, settings, plan = self.asked()
        forward, backward = traffic.between_products(traffic.elementwise_bytes(model, settings, plan), model, settings)
        device = load_device("h100-sxm").numbers("bf16")._replace(base_flop_rate=1e30)
        rate = device.memory_bandwidth
        trained = 1.0 - settings.adapter.frozen
        cast, cast_back = traffic.weight_casts(layer.layer_parameters(model, plan), trained, settings, device)
        ahead, data, weight = adapters.adapter_work(model, settings, plan, float(TOKENS), device)
        return forward + rate * (cast + ahead), backward + rate * (cast_back + data + weight)

    def rows(self, trace: Trace) -> list[Compared]:
        """Bytes a token and channel of each pass."""
        really, versions = counted(trace.roles[0]), self.versions(trace, "transformers")
        found: list[Compared] = []
        for phase, says in zip(("forward", "backward"), self.moved(), strict=True):
            traced, told = really[phase] / TOKENS / SHAPE.hidden, says / TOKENS / SHAPE.hidden
            found.append(((versions, phase, f"{traced:.1f}", f"{told:.1f}"), abs(told / traced - 1.0) < NEAR))
        return found


@dataclasses.dataclass(frozen=True)
class MovesLogits(Loss):
    """A loss whose kernels are counted."""

    title = "What a loss's kernels read and write, forward and backward, bytes a logit:"

    def told(self) -> float:
        """Bytes a logit."""
        if self.arguments == CAPPED:
            return LOSS_TRAFFIC["upcast"] + 2.0 * traffic.CAPPED
        return load_framework(self.framework).logit_traffic if self.framework else LOSS_TRAFFIC[self.arguments[0]]

    def rows(self, trace: Trace) -> list[Compared]:
        """Bytes a logit, of kernels as large as logits."""
        role, says = trace.roles[0], self.told()
        kinds, places = signatures(role)
        kernels = [kinds[place] for place in places[role.rows(KERNEL, role.step())]]
        moved = [one.read + one.written for one in kernels if not one.flop]
        really = sum(nbytes for nbytes in moved if nbytes > LOGITS) / LOGITS
        cells = (self.versions(trace, "transformers"), f"{really:.2f}", f"{says:g}")
        return [(cells, abs(says / really - 1.0) < NEAR)]


CASES = {
    name: Moves(name, case.arguments, case.model, case.plan, case.software)
    for name, case in saved.CASES.items()
    if "checkpoint" not in case.arguments
}
"""By name; what is recomputed is moved once more."""
LOSSES = {
    name: MovesLogits(name, case.arguments, case.framework) for name, case in losses.CASES.items()
}
"""By name."""


def counted(role: Role) -> dict[str, float]:
    """Bytes that kernels of the middle layer move in the last step, by pass: of products those of adapters alone."""
    found = dict.fromkeys(PHASES, 0.0)
    for phase, kernel in _of_the_middle(role):
        if not kernel.flop or _is_thin(kernel):
            found[phase] += kernel.read + kernel.written
    return found


def _is_thin(kernel: Kernel) -> bool:
    sizes = sizes_of(kernel) if kernel.is_product else None
    return sizes is not None and min(sizes.m, sizes.n, sizes.k) == RANK


def _of_the_middle(role: Role) -> Iterator[tuple[str, Kernel]]:
    kinds, places = signatures(role)
    for row in role.rows(KERNEL, role.step()):
        if any(name in role.texts[role.kernels.module[row]] for name in MIDDLE):
            yield PHASES[role.kernels.phase[row]], kinds[places[row]]
