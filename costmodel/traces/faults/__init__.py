"""What traced code does wrong, each with its line and its cost: hangs, memory, lost time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.text.checks import choice
from costmodel.traces.faults.exchanges import crossings, disagreements, gathered_logits, unused_gathers, wide_exchanges
from costmodel.traces.faults.fault import KINDS, Examined, Fault
from costmodel.traces.faults.growth import emptied_caches, growing_memory, kept_gradients
from costmodel.traces.faults.models import missing_gradients, out_of_memory, unbalanced_stages, unused_checkpointing
from costmodel.traces.faults.repeats import repeated_sums
from costmodel.traces.faults.stalls import host_copies, host_waits, recompilations, unpinned_copies
from costmodel.traces.faults.widths import wide_products
from costmodel.traces.memory import memory_of_trace
from costmodel.traces.pricing import TraceEstimate, price_trace
from costmodel.traces.record import Trace

__all__ = ["KINDS", "Fault", "faults_of"]

DETECTORS: tuple[Callable[[Examined], Iterator[Fault]], ...] = (
    disagreements, crossings, out_of_memory, growing_memory, missing_gradients, repeated_sums, wide_exchanges, wide_products,
    unused_gathers, gathered_logits, host_copies, unpinned_copies, host_waits, recompilations, unbalanced_stages,
    kept_gradients, emptied_caches, unused_checkpointing,
)  # fmt: skip
"""Those of what stops a run first."""


def faults_of(
    trace: Trace, cluster: Cluster, framework: Framework | str | None = None, *, kinds: Sequence[str] = KINDS,
    estimate: TraceEstimate | None = None,
) -> tuple[Fault, ...]:  # fmt: skip
    """What traced code does wrong on a cluster, what stops it first, then what costs most.

    Parameters
    ----------
    trace : `Trace`
    cluster : on which
    framework : or its name, whose constants count; the trace's own unless given
    kinds : to look for
    estimate : of this trace there, if it was made

    Returns
    -------
    tuple of Fault

    Raises
    ------
    InvalidValue
        of a kind that there isn't, or a cluster too small
    """
    for kind in kinds:
        choice("kinds", kind, KINDS)
    made = estimate or price_trace(trace, cluster, framework)
    held = (memory_of_trace(trace, cluster, made.framework, rank=role.rank, estimate=made) for role in trace.roles)
    asked = Examined(made, tuple(held))
    found: list[Fault] = []
    seen: set[tuple[str, str, str]] = set()
    for detect in DETECTORS:
        if detect is crossings and found:  # they come of what was found already
            continue
        for fault in detect(asked):
            if fault.kind in kinds and (fault.kind, fault.line, fault.module) not in seen:
                seen.add((fault.kind, fault.line, fault.module))  # several roles do the same
                found.append(fault)
    stopping = ("ranks disagree", "no partner", "out of memory", "memory grows", "no gradient")
    return tuple(sorted(found, key=lambda one: (KINDS.index(one.kind) if one.kind in stopping else len(stopping), -one.seconds)))
