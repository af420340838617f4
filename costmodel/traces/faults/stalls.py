"""Faults of one rank's host: copies, waits and compilations in the middle of a step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from costmodel.text.units import KiB, counted, format_bytes
from costmodel.traces.faults.fault import Examined, Fault
from costmodel.traces.record import (
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    HOST_WAIT,
    KERNEL,
    KINDS,
    NOWHERE,
    PHASES,
    RECOMPILATION,
    Role,
)

NOTED = 64 * KiB
"""Bytes from which a copy counts: losses and flags are smaller."""
TOKENS = ("int64", "int32", "bool")
"""Dtypes of tokens, labels and masks, which come to the device with every micro-batch."""
LISTED = 3
"""Lines of libraries that a sentence names."""
LOOPED = 8
"""Waits of one line between the passes and the update, beyond which it goes through tensors one by one: a scaler asks
once, and losses that are printed are few."""
PASSES = (PHASES.index("forward"), PHASES.index("backward"))
UPDATE = PHASES.index("optimizer")


def passes(role: Role, step: range) -> range:
    """Rows of a step from its first kernel of a forward pass to its last of a backward pass, copies of the loop's own apart.

    What a loop does outside of its model before the first product, as a gradient scaler's update, is of no pass.

    Parameters
    ----------
    step : rows of its timeline
    """
    timeline = role.timeline
    rows = np.arange(step.start, step.stop)[timeline.action[step.start : step.stop] == KERNEL]
    items = timeline.item[rows]
    copies = np.array([text in (HOST_TO_DEVICE, DEVICE_TO_HOST) for text in role.texts])[role.kernels.op[items]]
    by_itself = (role.kernels.flop[items] > 0) | (role.kernels.phase[items] == PASSES[1])
    of_model = (role.kernels.module[items] > 0) | (by_itself & ~copies)
    within = rows[np.isin(role.kernels.phase[items], PASSES) & of_model]
    return range(int(within[0]), int(within[-1]) + 1) if len(within) else range(0)


def host_copies(asked: Examined) -> Iterator[Fault]:
    """Copies over the host's bus in the passes, but for a step's input."""
    for place, role in enumerate(asked.trace.roles):
        found: dict[int, list[int]] = {}
        for row in passes(role, role.step()):
            item = int(role.timeline.item[row])
            if role.timeline.action[row] == KERNEL and _copies(role, item):
                found.setdefault(int(role.kernels.line[item]), []).append(item)
        for line, items in found.items():
            nbytes = float(role.kernels.bytes_written[items].sum())
            yield Fault(
                kind="host copy", rank=role.rank, module=role.texts[role.kernels.module[items[0]]], line=role.texts[line],
                sentence=f"{counted(len(items), 'copy', 'copies')} of {format_bytes(nbytes)} between host and device inside the "
                "step",
                seconds=float(asked.estimate.kernels[place][items].sum()), bytes=nbytes,
            )  # fmt: skip


def unpinned_copies(asked: Examined) -> Iterator[Fault]:
    """Batches that come from memory that isn't pinned, for whose copies the host waits."""
    line = asked.trace.facts.get("unpinned_copies")
    role = asked.trace.roles[0]
    if line is None:
        return
    items = [
        item for item in role.rows(KERNEL, role.step()).tolist()
        if role.texts[role.kernels.op[item]] == HOST_TO_DEVICE and role.texts[role.kernels.line[item]] == line
    ]  # fmt: skip
    nbytes = float(role.kernels.bytes_written[items].sum())
    yield Fault(
        kind="unpinned copy", rank=role.rank, module="", line=line,
        sentence=f"a batch of {format_bytes(nbytes)} comes from memory that isn't pinned: the host stages each copy, and none "
        "runs beside the step before (`pin_memory=True`, `non_blocking=True`)",
        seconds=float(asked.estimate.kernels[0][items].sum()), bytes=nbytes,
    )  # fmt: skip


def _copies(role: Role, kernel: int) -> bool:
    op = role.texts[role.kernels.op[kernel]]
    if op not in (HOST_TO_DEVICE, DEVICE_TO_HOST) or role.kernels.bytes_written[kernel] < NOTED:
        return False
    within = bool(role.texts[role.kernels.module[kernel]])  # a module's own, not the loop's next micro-batch
    return not any(
        (KINDS[role.storages.kind[one]] == "input" and not within) or role.texts[role.storages.dtype[one]] in TOKENS
        for one in role.written(kernel)
    )


def host_waits(asked: Examined) -> Iterator[Fault]:
    """Waits of the host for the device between a step's first forward and its last backward kernel, copies' own apart.

    Between the passes and the update those of loops over tensors alone. Those that one line of the user's makes in several of a
    library are told together.
    """
    copies = {(one.rank, one.line) for one in host_copies(asked)}
    for place, role in enumerate(asked.trace.roles):
        played, found = asked.estimate.played[place], dict[str, dict[str, list[tuple[int, float]]]]()
        span = passes(role, role.step())
        launched = np.flatnonzero(role.timeline.action == KERNEL)
        updates = launched[(role.kernels.phase[role.timeline.item[launched]] == UPDATE) & (launched >= span.stop)]
        for row in range(span.start, int(updates[0]) if len(updates) and updates[0] in role.step() else span.stop):
            line = role.texts[role.timeline.line[row]]
            waits = role.timeline.action[row] == HOST_WAIT and role.timeline.item[row] == NOWHERE
            if waits and (role.rank, line) not in copies:
                after = launched[launched > row]
                before = launched[launched < row]
                idle = played.start[after[0]] - played.end[before].max() if len(after) and len(before) else 0.0
                lines = found.setdefault(line.partition(" ")[0], {})
                lines.setdefault(line, []).append((row, max(float(idle), 0.0)))
        for user, lines in found.items():
            rows, idle = zip(*(one for some in lines.values() for one in some), strict=True)
            if min(rows) >= span.stop and len(rows) <= LOOPED:
                continue
            within = [line.removeprefix(user).strip(" ()") for line in lines]
            more = f" and {len(within) - LISTED} more" if len(within) > LISTED else ""
            where = f" ({', '.join(within[:LISTED])}{more})" if len(lines) > 1 else ""
            yield Fault(
                kind="host wait", rank=role.rank, module="", line=user if len(lines) > 1 else next(iter(lines)),
                sentence=f"the host waits for the device {counted(len(idle), 'time')} inside the step{where}, as `.item()` makes "
                "it, and can't launch ahead",
                seconds=sum(idle),
            )  # fmt: skip


def recompilations(asked: Examined) -> Iterator[Fault]:
    """Code that is compiled again and again after the first step: lengths that change are seen to after one more compilation."""
    for role in asked.trace.roles:
        first = role.step(0).stop if role.steps else len(role.timeline)
        rows = np.flatnonzero(role.timeline.action == RECOMPILATION)
        late: dict[int, int] = {}
        for row in rows[rows > first].tolist():
            late[int(role.timeline.line[row])] = late.get(int(role.timeline.line[row]), 0) + 1
        for line, count in late.items():
            if count == 1:
                continue
            yield Fault(
                kind="recompilation", rank=role.rank, module="", line=role.texts[line],
                sentence=f"compiled again {counted(count, 'time')} after the first step: shapes or values that change",
            )  # fmt: skip
