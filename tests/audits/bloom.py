"""BLOOM-560m on 3,072 GPUs, trained by packages as they are installed, beside what the ledger says that they exchange."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path

from costmodel import Plan, ledger, load_cluster, load_model
from costmodel.simulation.transactions import Ledger
from costmodel.traces.comparison import Compared, compare
from costmodel.traces.record import Trace
from costmodel.traces.running import trace_script

SCRIPT = Path(__file__).parent / "traced" / "bloom.py"
LIMIT = 3600.0
"""Of a case, on a busy machine [s]."""
CLUSTER, MODEL, RANKS, SEQUENCE = "dgx-h100", "bloom-560m", 3072, 2048


def not_installed(packages: Iterable[str]) -> list[str]:
    """Of PyTorch, transformers and some packages, those that aren't installed."""
    return [name for name in ("torch", "transformers", *packages) if importlib.util.find_spec(name) is None]


def on_one_gpu(script: Path, arguments: Sequence[str]) -> Trace:
    """What a GPU does in two steps of a script."""
    return trace_script(str(script), arguments, cluster=CLUSTER, gpus=1, roles=(0,), steps=2, limit=LIMIT)


@dataclasses.dataclass(frozen=True)
class Case:
    """Software that trains, and what the library calls it.

    Parameters
    ----------
    name : of the case
    arguments : of the script
    packages : that it needs
    framework, zero_stage : of the ledger
    steps : to trace; the last one is compared
    """

    name: str
    arguments: tuple[str, ...]
    packages: tuple[str, ...]
    framework: str
    zero_stage: int
    steps: int = 2

    @property
    def missing(self) -> list[str]:
        """Packages that aren't installed."""
        return not_installed(self.packages)

    def told(self) -> Ledger:
        """What the library says of a step."""
        plan = Plan(global_batch=RANKS, seq_len=SEQUENCE, data_parallel=RANKS, zero_stage=self.zero_stage, dtype="bf16",
                    overlap_gradients="overlap" in self.arguments if self.framework == "deepspeed" else None)  # fmt: skip
        return ledger(load_model(MODEL), load_cluster(CLUSTER, gpus=RANKS), plan, self.framework)

    def traced(self) -> Trace:
        """What a rank does."""
        return trace_script(
            str(SCRIPT), self.arguments, cluster=CLUSTER, gpus=RANKS, roles=(0,), steps=self.steps, limit=LIMIT
        )

    def compared(self, trace: Trace) -> Compared:
        """Both, transaction by transaction."""
        return compare(trace, self.told())


CASES = {
    case.name: case
    for case in (
        Case("PyTorch DDP", ("ddp",), (), "torchtune", 0),
        Case("PyTorch FSDP1", ("fsdp1",), (), "fsdp1", 3),
        Case("PyTorch FSDP2", ("fsdp2",), (), "fsdp2", 3),
        Case("DeepSpeed ZeRO-1", ("zero1",), ("deepspeed",), "deepspeed", 1),
        Case("DeepSpeed ZeRO-1, overlap_comm", ("zero1", "overlap"), ("deepspeed",), "deepspeed", 1),
        Case("DeepSpeed ZeRO-2", ("zero2",), ("deepspeed",), "deepspeed", 2),
        Case("DeepSpeed ZeRO-3", ("zero3",), ("deepspeed",), "deepspeed", 3, 3),
    )
}
"""By name; PyTorch's DDP fills the buckets that torchtune's ledger has."""
