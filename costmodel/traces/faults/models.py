"""Faults of the model on its ranks: parameters without gradients, memory, stages out of balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from costmodel.text.units import counted, format_bytes
from costmodel.traces.faults.fault import Examined, Fault
from costmodel.traces.record import KERNEL, KINDS, NOWHERE, PHASES, RECEIVE, SEND, TRANSACTION, Role

BALANCED = 1.25
"""Compute of the busiest stage over the mean, up to which a pipeline counts as balanced."""
NAMED = 3
"""Parameters that a sentence names."""


def missing_gradients(asked: Examined) -> Iterator[Fault]:
    """Parameters that train and never get a gradient, while their group sums those of others."""
    for role in asked.trace.roles:
        parameters = role.parameters
        if not role.steps or not parameters.gradients.any() or not _sums(role):
            continue
        rows = [row for row in range(len(parameters)) if parameters.trainable[row] and not parameters.gradients[row]]
        if not rows:
            continue
        names = [role.texts[parameters.name[row]] for row in rows]
        shown = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
        storages = [int(parameters.storage[row]) for row in rows if parameters.storage[row] >= 0]
        yield Fault(
            kind="no gradient", rank=role.rank, module=names[0],
            line=role.texts[role.storages.line[storages[0]]] if storages else "",
            sentence=f"{counted(len(names), 'parameter')} never {'get' if len(names) > 1 else 'gets'} a gradient: {shown}; data "
            "parallelism waits for it, or needs to be told (find_unused_parameters)",
            bytes=float(role.storages.bytes[storages].sum()) if storages else 0.0,
        )  # fmt: skip


def _sums(role: Role) -> bool:
    """Whether gradients are summed between ranks, in the backward pass or by the program itself behind it."""
    moves = role.transactions
    of_gradients = (moves.storage != NOWHERE) & (role.storages.kind[moves.storage] == KINDS.index("gradient"))
    sums = (moves.phase == PHASES.index("backward")) | of_gradients
    return any(role.texts[op] in ("all-reduce", "reduce-scatter") for op in set(moves.op[sums].tolist()))


def out_of_memory(asked: Examined) -> Iterator[Fault]:
    """Ranks whose device has no room."""
    for made in asked.memory:
        if made.fits:
            continue
        outside = sum(made.outside.values())
        largest = max(made.by_kind, key=lambda kind: made.by_kind[kind])
        yield Fault(
            kind="out of memory", rank=made.rank, module=made.module, line=made.failed_at or "",
            sentence=f"{format_bytes(made.allocated)} of tensors are needed, most of them {largest}, "
            f"{format_bytes(made.reserved)} with the allocator's gaps, beside {format_bytes(outside)} outside the allocator: "
            f"there is no room in {format_bytes(made.capacity)}",
            bytes=max(made.reserved + outside - made.capacity, 0.0),
        )  # fmt: skip


def unbalanced_stages(asked: Examined) -> Iterator[Fault]:
    """A pipeline whose busiest stage computes much longer than the mean."""
    roles = asked.trace.roles
    stages = [place for place, role in enumerate(roles) if _passes_on(role)]
    if len(stages) < 2:
        return
    times = [float(asked.estimate.kernels[place][roles[place].rows(KERNEL, roles[place].step())].sum()) for place in stages]
    mean = sum(times) / len(times)
    busiest = max(range(len(stages)), key=lambda one: times[one])
    if times[busiest] <= BALANCED * mean:
        return
    role = roles[stages[busiest]]
    lines = Counter(role.texts[line] for line in role.kernels.line[role.rows(KERNEL, role.step())].tolist())
    modules = Counter(role.texts[module] for module in role.kernels.module[role.rows(KERNEL, role.step())].tolist())
    shares = ", ".join(f"{time / max(times):.2f}" for time in times)
    yield Fault(
        kind="unbalanced stages", rank=role.rank, module=modules.most_common(1)[0][0], line=lines.most_common(1)[0][0],
        sentence=f"the stage of rank {role.rank} computes {times[busiest] / mean:.2f} times as long as the mean; the stages' "
        f"shares of the longest are {shares}",
        seconds=times[busiest] - mean,
    )  # fmt: skip


def unused_checkpointing(asked: Examined) -> Iterator[Fault]:
    """Layers that were told to recompute and don't, as their model trains in evaluation mode."""
    line = asked.trace.facts.get("unused_checkpointing")
    if line is not None:
        yield Fault(
            kind="no recomputation", rank=asked.trace.roles[0].rank, module="", line=line,
            sentence="gradient checkpointing is enabled, and the model runs in evaluation mode, in which layers of transformers "
            "keep everything: `model.train()` turns it on",
        )  # fmt: skip


def _passes_on(role: Role) -> bool:
    moves = role.rows(TRANSACTION, role.step())
    return any(role.texts[op] in (SEND, RECEIVE) for op in set(role.transactions.op[moves].tolist()))
