"""A measured run: what was trained, on what, how and with which software, and what was measured of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.text.checks import choice, flag, kind, listing, mapping, real
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief

MEMORY_KINDS = ("allocated", "reserved", "allocated-or-reserved", "process", "unstated")
"""What a peak counts: what tensors hold; with the allocator's gaps and what it keeps idle; one of both; all of a process."""
MEMORY_OF = ("max", "rank0", "last", "first-stage", "mean", "unstated")
"""Whose peak it is: the fullest GPU's, that of the first or of the last stage of the pipeline, the mean of all."""
LONGEST, LARGEST = 1e9, 1e16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A measured run.

    Parameters
    ----------
    model : what was trained
    cluster : on what
    framework : the software, in what it differed from the catalogue's entry too
    plan : how
    step_time : of one optimizer step [s]; None where it wasn't measured
    peak_memory : of a GPU [bytes]; None where it wasn't measured
    memory_kind : what the peak counts, one of `MEMORY_KINDS`
    memory_of : whose it is, one of `MEMORY_OF`
    peak_reserved, peak_process : of the same GPU as the allocator and as ``nvidia-smi`` count it, where known beside [bytes]
    out_of_memory : the run ended so
    use_time, use_memory, use_verdict : whether the time, the peak, and whether it ran, are this plan's; where a source
        contradicts itself they are not
    id, campaign, source, release, trust : where it is from; runs of a campaign share people, software and kind of device
    assumed : keys of the record that nothing states, and that were taken as the software documents them, or as is usual
    unstated : keys that matter and that nothing states
    unexpressed : what the record says and this library can't express yet, by its key

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    """

    model: Transformer
    cluster: Cluster
    framework: Framework
    plan: Plan
    step_time: float | None = None
    peak_memory: float | None = None
    memory_kind: str = "unstated"
    memory_of: str = "max"
    peak_reserved: float | None = None
    peak_process: float | None = None
    out_of_memory: bool = False
    use_time: bool = True
    use_memory: bool = True
    use_verdict: bool = True
    id: str = ""
    campaign: str = ""
    source: str = ""
    release: str = ""
    trust: str = ""
    assumed: Sequence[str] = ()
    unstated: Sequence[str] = ()
    unexpressed: Mapping[str, object] = dataclasses.field(default_factory=dict, hash=False)

    __repr__ = brief

    def __post_init__(self) -> None:
        kind("model", self.model, Transformer, "load_model(name)")
        kind("cluster", self.cluster, Cluster, "load_cluster(name)")
        kind("framework", self.framework, Framework, "load_framework(name)")
        kind("plan", self.plan, Plan, "Plan(...)")
        peaks = ("peak_memory", "peak_reserved", "peak_process")
        for field, most in (("step_time", LONGEST), *((peak, LARGEST) for peak in peaks)):
            if getattr(self, field) is not None:
                object.__setattr__(self, field, real(field, getattr(self, field), 0.0, most))
                if getattr(self, field) == 0.0:
                    raise InvalidValue(field, 0, "more than 0, or None where it wasn't measured")
        choice("memory_kind", self.memory_kind, MEMORY_KINDS)
        choice("memory_of", self.memory_of, MEMORY_OF)
        for field in ("out_of_memory", "use_time", "use_memory", "use_verdict"):
            flag(field, getattr(self, field))
        for field in ("assumed", "unstated"):
            object.__setattr__(self, field, listing(field, getattr(self, field)))
        mapping("unexpressed", self.unexpressed)

    @property
    def seconds(self) -> float | None:
        """Measured step time where it is that of a steady step of this plan [s]."""
        return self.step_time if self.use_time and not self.out_of_memory else None

    @property
    def peak_bytes(self) -> float | None:
        """Measured peak memory where it is this plan's [bytes]."""
        return self.peak_memory if self.use_memory and not self.out_of_memory else None

    @property
    def ran(self) -> bool | None:
        """Whether it ran, or out of memory; None where that isn't known."""
        return not self.out_of_memory if self.use_verdict else None
