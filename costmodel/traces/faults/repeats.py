"""Faults of accumulated gradients: sums over ranks after every micro-batch, where one after the last would do."""

from __future__ import annotations

from collections.abc import Iterator

from costmodel.text.units import counted, format_bytes
from costmodel.traces.faults.fault import Examined, Fault
from costmodel.traces.places import framework_of
from costmodel.traces.record import KERNEL, NOWHERE, PHASES, TRANSACTION, Role

SHARES = ("deepspeed",)
"""Software that sums after every micro-batch on purpose: each rank keeps its share of the gradients alone."""
FORWARD, BACKWARD, OPTIMIZER = map(PHASES.index, ("forward", "backward", "optimizer"))


def repeated_sums(asked: Examined) -> Iterator[Fault]:
    """Storages of gradients that all ranks sum in several backward passes before an update."""
    if framework_of(asked.trace)[0] in SHARES:
        return
    for place, role in enumerate(asked.trace.roles):
        passes, times = _surplus(role), asked.estimate.transactions[place].time
        lines: dict[int, list[int]] = {}
        for items in passes[:-1]:
            for item in items:
                lines.setdefault(int(role.transactions.line[item]), []).append(item)
        for line, items in lines.items():
            nbytes = float(role.transactions.bytes[items].sum())
            yield Fault(
                kind="repeated sum", rank=role.rank, module="", line=role.texts[line],
                sentence=f"gradients are summed over ranks after each of {counted(len(passes), 'micro-batch', 'micro-batches')}, "
                f"{format_bytes(nbytes)} more than after the last alone, as DDP's `no_sync()` has it",
                seconds=float(times[items].sum()), bytes=nbytes,
            )  # fmt: skip


def _surplus(role: Role) -> list[list[int]]:
    """Reductions of storages that are reduced in several backward passes of the last step, pass by pass.

    An update between two passes makes them two steps.
    """
    timeline, moves, kernels = role.timeline, role.transactions, role.kernels
    passes: list[list[int]] = []
    found: list[list[int]] = []
    backward = False
    for row in role.step():
        action, item = int(timeline.action[row]), int(timeline.item[row])
        if action == KERNEL and kernels.phase[item] == OPTIMIZER:
            found = max(found, passes, key=len)
            passes, backward = [], False
        elif action == KERNEL and kernels.phase[item] == FORWARD:
            backward = False
        elif action == TRANSACTION and moves.phase[item] == BACKWARD and role.texts[moves.op[item]] == "all-reduce":
            if not role.texts[moves.parameter[item]] or moves.storage[item] == NOWHERE:
                continue
            if not backward:
                passes.append([])
            backward = True
            passes[-1].append(item)
    found = max(found, passes, key=len)
    seen = [set(moves.storage[items].tolist()) for items in found]
    again = {one for number, some in enumerate(seen) for one in some if any(one in other for other in seen[number + 1 :])}
    return [kept for items in found if (kept := [item for item in items if int(moves.storage[item]) in again])]
