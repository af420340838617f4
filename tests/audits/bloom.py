"""BLOOM-560m on 3,072 GPUs, trained by packages as they are installed, beside what the ledger says that they exchange."""

from __future__ import annotations

import dataclasses

from costmodel import Plan, ledger, load_cluster, load_model
from costmodel.simulation.transactions import Ledger
from costmodel.text.units import format_bytes
from costmodel.traces.comparison import compare
from costmodel.traces.record import Trace
from tests.audits.case import CLUSTER, Case, Compared

MODEL, RANKS, SEQUENCE = "bloom-560m", 3072, 2048
FEWER = 64
"""Of a stage that lays out every parameter's part for every rank, which takes an hour for all."""


@dataclasses.dataclass(frozen=True)
class Package(Case):
    """Software that trains, and what the library calls it.

    Parameters
    ----------
    framework, zero_stage : of the ledger
    """

    title = f"{MODEL} on {RANKS:,} GPUs, by ZeRO-3 on {FEWER}, transactions of a rank in a step from 64 KiB:"
    columns, numbers = "case software transaction bytes traced ledger", 3
    script = "bloom.py"

    framework: str
    zero_stage: int

    @property
    def gpus(self) -> int:  # type: ignore[override]
        """Of the run."""
        return FEWER if self.zero_stage == 3 and self.framework == "deepspeed" else RANKS

    @property
    def packages(self) -> tuple[str, ...]:
        """That it needs beside PyTorch and transformers."""
        return ("deepspeed",) if self.framework == "deepspeed" else ()

    def told(self) -> Ledger:
        """What the library says of a step."""
        plan = Plan(global_batch=self.gpus, seq_len=SEQUENCE, data_parallel=self.gpus, zero_stage=self.zero_stage, dtype="bf16",
                    overlap_gradients="overlap" in self.arguments if self.framework == "deepspeed" else None)  # fmt: skip
        return ledger(load_model(MODEL), load_cluster(CLUSTER, gpus=self.gpus), plan, self.framework)

    def rows(self, trace: Trace) -> list[Compared]:
        """Both, transaction by transaction."""
        made, software = compare(trace, self.told()), self.versions(trace)
        found: list[Compared] = [
            ((software, row.kind.op, f"{row.kind.bytes:,.0f} ({format_bytes(row.kind.bytes)})", f"{row.traced:g}",
              f"{row.told:g}"), row.agrees)
            for row in made.rows
        ]  # fmt: skip
        return found + [
            (("", f"{op}, sum", "", format_bytes(really), format_bytes(says)), really == says)
            for op, _, really, says in made.sums()
        ]


CASES = {
    case.name: case
    for case in (
        Package("PyTorch DDP", ("ddp",), "torchtune", 0),
        Package("PyTorch FSDP1", ("fsdp1",), "fsdp1", 3),
        Package("PyTorch FSDP2", ("fsdp2",), "fsdp2", 3),
        Package("DeepSpeed ZeRO-1", ("zero1",), "deepspeed", 1),
        Package("DeepSpeed ZeRO-1, overlap_comm", ("zero1", "overlap"), "deepspeed", 1),
        Package("DeepSpeed ZeRO-2", ("zero2",), "deepspeed", 2),
        Package("DeepSpeed ZeRO-3", ("zero3",), "deepspeed", 3, steps=3),
    )
}
"""By name; PyTorch's DDP fills the buckets that torchtune's ledger has."""
