"""A system that trains a workload, and what systems run with where they have a choice."""

from __future__ import annotations

import dataclasses

from costmodel.description.framework import ServerSystem
from costmodel.formulas.systems import comparison as formulas
from costmodel.studies.parameter_servers.servers import Stragglers
from costmodel.studies.parameter_servers.staleness import Staleness
from costmodel.text.results import brief


@dataclasses.dataclass(frozen=True, kw_only=True)
class System:
    """One way to train the workload."""

    name: str  # of the system, or the combination
    setting: str  # what it runs with, in a line
    step_time: float  # in which all GPUs together process the samples [s], stragglers waited for where the system waits
    samples: float  # of a step (sequences of a transformer)
    gpus: int  # gpus, servers: that work, and machines without GPUs beside them
    servers: int
    memory: float  # of the fullest GPU [bytes]
    memory_limit: float  # that a GPU has for it [bytes]
    sent_bytes: float  # of one GPU in a step [bytes]
    staleness: Staleness  # optimizer updates that gradients miss
    compute_time: float  # of a step, were computing all there is [s]
    price_per_hour: float | None = None  # of all GPUs and servers; None without prices

    __repr__ = brief

    @property
    def throughput(self) -> float:
        """Samples a second."""
        return float(formulas.throughput(self.samples, self.step_time))

    @property
    def efficiency(self) -> float:
        """Throughput of a GPU over that of one that only computes."""
        return self.compute_time / self.step_time

    @property
    def samples_per_price(self) -> float | None:
        """Samples for one unit of the currency; None without prices."""
        if not self.price_per_hour:
            return None
        return float(formulas.samples_per_price(self.throughput, self.price_per_hour))

    @property
    def fits(self) -> bool:
        """Whether the fullest GPU holds it."""
        return self.memory <= self.memory_limit

    def to_dict(self) -> dict[str, object]:
        """Flat names with units, for JSON and frames."""
        return {
            "system": self.name, "setting": self.setting, "step_time_s": self.step_time, "samples": self.samples,
            "samples_per_second": self.throughput, "samples_per_second_per_gpu": self.throughput / self.gpus,
            "efficiency": self.efficiency, "gpus": self.gpus, "servers": self.servers, "memory_bytes": self.memory,
            "fits": self.fits, "sent_bytes": self.sent_bytes, "staleness_updates": self.staleness.mean,
            "largest_staleness_updates": self.staleness.largest, "samples_per_price": self.samples_per_price,
        }  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class SystemSettings:
    """What systems run with, where they have a choice; `compare_systems` says what each is."""

    servers: int
    delay: int
    local_steps: int
    fetch_interval: int
    push_interval: int
    stragglers: Stragglers
    portions_per_gpu: int
    server_system: ServerSystem
    all_reduce: ServerSystem | None


def waiting(stragglers: Stragglers, mean: float, workers: int) -> float:
    """Time that a synchronous step waits for the slowest of its workers [s]."""
    return stragglers.slowest(mean, workers) - mean if workers > 1 else 0.0
