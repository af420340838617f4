"""What a GPU holds before its first step, while a small Llama is loaded and sharded, as traced, beside what the library says."""

from __future__ import annotations

import dataclasses

import numpy as np

from costmodel import Plan, Transformer, estimate, load_cluster
from costmodel.formulas.transformer import memory
from costmodel.traces.memory import held_bytes
from costmodel.traces.record import BORN, Role, Trace
from tests.audits.case import CLUSTER, Case, Compared

GPUS = 8
NEAR = 0.02
"""Share by which two may differ: a tensor's shard, and buffers of a few numbers."""
SHAPE = Transformer(
    name="small", layers=12, hidden=256, heads=8, kv_heads=8, head_dim=32, feed_forward=1024, vocabulary=4096, gated=True,
    norm="rmsnorm",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Way(Case):
    """A way to load a model.

    Parameters
    ----------
    framework, loading : what the library calls it
    """

    title = f"What a GPU of {GPUS} holds at most before the first step, of {SHAPE.parameters:,} parameters:"
    columns, numbers = "case software traced told", 2
    script = "loading.py"
    gpus = GPUS

    framework: str
    loading: str

    @property
    def packages(self) -> tuple[str, ...]:
        """That it needs beside PyTorch and transformers."""
        return ("deepspeed",) if self.framework == "deepspeed" else ()

    def told(self) -> float:
        """Bytes of tensors."""
        plan = Plan(global_batch=GPUS, seq_len=8, data_parallel=GPUS, zero_stage=3, loading=self.loading)
        answer = estimate(SHAPE, load_cluster(CLUSTER, gpus=GPUS), plan, self.framework)
        return answer.loading.device_bytes - float(memory.outside_allocator(*answer.inputs[2:5]))

    def rows(self, trace: Trace) -> list[Compared]:
        """Bytes of tensors."""
        really, says = held(trace.roles[0]), self.told()
        cells = self.versions(trace, "transformers"), f"{really / 1e6:.2f} MB", f"{says / 1e6:.2f} MB"
        return [(cells, abs(really / says - 1.0) < NEAR)]


CASES = {
    case.name: case
    for case in (
        Way("FSDP1, unit by unit", ("fsdp1",), "hf-fsdp@2024.1", "every-rank", steps=1),
        Way("FSDP2, unit by unit", ("fsdp2",), "torchtune", "every-rank", steps=1),
        Way("FSDP1 of a model on the GPU", ("fsdp1-whole",), "hf-fsdp@2024.1", "whole", steps=1),
        Way("ZeRO-3 without zero.Init", ("zero3",), "deepspeed", "whole", steps=1),
    )
}
"""By name."""


def held(role: Role) -> float:
    """Bytes that are held at most before the first tokens are there."""
    timeline, storages = role.timeline, role.storages
    born = (row for row in np.flatnonzero(timeline.action == BORN) if "randint" in role.texts[storages.op[timeline.item[row]]])
    return float(held_bytes(role)[: next(born)].max())
