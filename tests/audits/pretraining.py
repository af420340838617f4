"""Pre-training stacks, torchtitan's trainer and Megatron-LM's, by every parallelism, beside what the ledger says of them."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import runpy
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import ClassVar

from costmodel import Framework, Plan, Transformer, estimate, ledger, load_cluster, load_framework, load_model
from costmodel.text.units import format_bytes
from costmodel.traces.comparison import ComparedPart, Row, compare
from costmodel.traces.record import Trace
from costmodel.traces.running import trace_script
from tests.audits.case import CLUSTER, LIMIT, SCRIPTS, Case, Compared

NEAR = 0.02
"""Share by which bytes of tensors may differ at the fullest moment."""
LLAMA = dataclasses.replace(load_model("llama3-8b"), layers=4)
GPT = Transformer(
    name="gpt", layers=8, hidden=1024, heads=16, feed_forward=4096, vocabulary=50_176, gated=False, norm="layernorm",
    attention_bias=True, output_bias=True, feed_forward_bias=True, tied_embeddings=True, learned_positions=1024,
)  # fmt: skip
UNTIED = dataclasses.replace(GPT, tied_embeddings=False)
ROTATED = dataclasses.replace(GPT, learned_positions=0)
EVEN = tuple(f"--parallelism.pipeline_parallel_{end}_stage_less_layers=0" for end in ("first", "last"))
MEGATRON = (
    "--vocab-size", "50175", "--num-layers", "8", "--hidden-size", "1024", "--num-attention-heads", "16", "--seq-length", "1024",
    "--max-position-embeddings", "1024", "--micro-batch-size", "2", "--overlap-grad-reduce",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Stack(Case):
    """A trainer by some parallelism.

    Parameters
    ----------
    ranks : GPUs of the run
    model : what it trains
    plan : fields of `Plan`
    roles : ranks to trace
    """

    title = "Pre-training, transactions of a rank in a step from 64 KiB:"
    eager: ClassVar[bool] = False  # nothing is compiled, where the framework's default is that it is
    columns, numbers = "case software rank transaction bytes among traced ledger", 4
    framework: ClassVar[str]

    ranks: int
    model: Transformer
    plan: dict[str, object]
    roles: tuple[int, ...] = (0,)

    @property
    def file(self) -> str:
        """Name of its trace."""
        return self.name

    def traced(self) -> Trace:
        """What the ranks do."""
        script = str(SCRIPTS / self.script)
        return trace_script(
            script, self.arguments, cluster=CLUSTER, gpus=self.ranks, roles=self.roles, steps=self.steps, limit=LIMIT
        )

    @functools.cached_property
    def asked(self) -> Plan:
        """The plan."""
        return Plan(**self.plan)  # type: ignore[arg-type]

    @property
    def beside(self) -> float:
        """Bytes that it holds and the library's description of it does not."""
        return 0.0

    @property
    def software(self) -> Framework:
        """As it ran: nothing is compiled."""
        framework = load_framework(self.framework)
        return dataclasses.replace(framework, keep_activated=True) if self.eager else framework

    def found(self, trace: Trace) -> list[Row]:
        """Transactions of both."""
        told = ledger(self.model, load_cluster(CLUSTER, gpus=self.ranks), self.asked, self.software)
        return around_rings(compare(trace, told).rows)

    def rows(self, trace: Trace) -> list[Compared]:
        """Both, transaction by transaction."""
        software = self.versions(trace)
        return [
            ((software, row.stage, row.kind.op, f"{row.kind.bytes:,.0f} ({format_bytes(row.kind.bytes)})", f"{row.kind.ranks}",
              f"{row.traced:g}", f"{row.told:g}"), row.agrees)
            for row in self.found(trace)
        ]  # fmt: skip


class Titan(Stack):
    """torchtitan's trainer."""

    script = "titan.py"
    framework = "fsdp2"
    eager = True

    @property
    def missing(self) -> list[str]:
        """Packages that aren't installed."""
        known = importlib.util.find_spec("torchtitan") is not None
        others = [name for name in ("torch",) if importlib.util.find_spec(name) is None]
        return others if known and metadata.version("torchtitan").startswith("0.2.") else [*others, "torchtitan 0.2"]

    def versions(self, trace: Trace, *others: str) -> str:
        """Versions of PyTorch and torchtitan."""
        return super().versions(trace, "torchtitan", *others)


def repository() -> Path:
    """Where Megatron-LM is."""
    return Path(os.environ.get("MEGATRON_LM", "Megatron-LM"))


class Megatron(Stack):
    """Megatron-LM's pretrain_gpt.py, of the repository in the folder that MEGATRON_LM names."""

    script = "megatron_lm.py"
    framework = "megatron-core"

    @property
    def beside(self) -> float:
        """Scores of one layer, for which attention without Transformer Engine keeps a buffer (``matmul_input_buffer``)."""
        plan = self.asked
        return 2.0 * plan.micro_batch * self.model.heads / plan.tensor_parallel * plan.seq_len**2

    @property
    def missing(self) -> list[str]:
        """Packages that aren't installed."""
        others = [name for name in ("torch",) if importlib.util.find_spec(name) is None]
        return others if (repository() / "pretrain_gpt.py").is_file() else [*others, "Megatron-LM (its folder is MEGATRON_LM)"]

    def versions(self, trace: Trace, *others: str) -> str:
        """Versions of PyTorch and Megatron-Core."""
        said = runpy.run_path(str(repository() / "megatron" / "core" / "package_info.py"))
        return f"{super().versions(trace, *others)}, Megatron-Core {said['__version__']}"


@dataclasses.dataclass(frozen=True)
class Held(Case):
    """What a stack holds at its fullest moment.

    Parameters
    ----------
    stack : that is traced
    """

    title = "Pre-training, bytes of tensors at a GPU's fullest moment:"
    columns, numbers = "case software part traced told error", 3

    stack: Stack

    @property
    def file(self) -> str:
        """Name of its trace, the stack's."""
        return self.stack.file

    @property
    def missing(self) -> list[str]:
        """Packages that aren't installed."""
        return self.stack.missing

    def traced(self) -> Trace:
        """What the stack does."""
        return self.stack.traced()

    def parts(self, trace: Trace) -> dict[str, ComparedPart]:
        """Parts of memory by name; what libraries work in isn't traced, and isn't told."""
        asked = self.stack
        answer = estimate(asked.model, load_cluster(CLUSTER, gpus=asked.ranks), asked.asked, asked.software)
        more = asked.beside - float(answer.memory.asked.software.memory.workspace)
        found = {part.name: part for part in compare(trace, answer).memory}
        wider = (part for part in found.values() if "buffers" in part.name or part.name == "allocated")
        return found | {part.name: part._replace(told=part.told + more) for part in wider}

    def rows(self, trace: Trace) -> list[Compared]:
        """Both, part by part; all of it is what must be near.

        Of a pipeline's whole weights and gradients that are gathered the trace knows no kind, so that only the sum is told.
        """
        software, parts = self.stack.versions(trace), self.parts(trace)
        near = abs(parts["allocated"].error) < NEAR
        return [
            ((software, name, format_bytes(part.traced), format_bytes(part.told), f"{100 * part.error:+.1f} %"), near)
            for name, part in parts.items()
            if name == "allocated" or (name != "reserved" and self.stack.asked.pipeline_parallel == 1)
        ]  # fmt: skip


def around_rings(rows: Sequence[Row]) -> list[Row]:
    """Rows in which an all-to-all that gives all to the next rank of a ring, as PyTorch makes it, is the send that it is.

    Parameters
    ----------
    rows : of a comparison
    """
    turned = {(row.rank, row.kind.bytes): row for row in rows if row.kind.op == "all-to-all" and not row.told}
    sent = {(row.rank, row.kind.bytes): row for row in rows if row.kind.op == "send"}
    found = [row for row in rows if (row.rank, row.kind.bytes) not in turned or row.kind.op not in ("all-to-all", "send")]
    for place, row in turned.items():
        beside = sent.get(place, row)
        kind = row.kind._replace(op="send")
        traced = row.traced + (beside.traced if beside is not row else 0.0)
        found.append(row._replace(kind=kind, traced=traced, told=beside.told))
    return found


def titan(name: str, ranks: int, plan: dict[str, object], *words: str, layers: int = 4, roles: tuple[int, ...] = (0,)) -> Titan:
    """A case of a Llama 3 8B of few layers: `words` are torchtitan's, and what `plan` says beside them."""
    model = dataclasses.replace(LLAMA, layers=layers)
    known: dict[str, object] = {"seq_len": 2048, "recompute": "none"}
    kept = () if any("activation_checkpoint" in word for word in words) else ("--activation_checkpoint.mode=none",)
    given = ("llama3", "8B", str(layers), "--training.seq_len=2048", *kept, *words)
    return Titan(name, given, ranks, model, known | plan, roles)


def piped(name: str, schedule: str, plan: dict[str, object]) -> Titan:
    """A case of two stages, which hold all gathered weights for the whole step."""
    words = ("--parallelism.pipeline_parallel_degree=2", f"--parallelism.pipeline_parallel_schedule={schedule}", *EVEN)
    fields = {"global_batch": 8, "data_parallel": 2, "pipeline_parallel": 2, "zero_stage": 2} | plan
    return titan(name, 4, fields, *words, "--training.local_batch_size=4", roles=(0, 2))


def megatron(
    name: str, ranks: int, plan: dict[str, object], *words: str, model: Transformer = GPT, roles: tuple[int, ...] = (0,)
) -> Megatron:
    """A case of a GPT of 8 layers, whose attention isn't fused: that takes Transformer Engine."""
    known: dict[str, object] = {"seq_len": 1024, "micro_batch": 2, "attention": "unfused"}
    return Megatron(name, (*MEGATRON, *words), ranks, model, known | plan, roles)


ONE = "--training.local_batch_size=1"
OPERATORS = ("--activation_checkpoint.mode=selective", "--activation_checkpoint.selective_ac_option=op")
TENSOR: dict[str, object] = {"global_batch": 2, "data_parallel": 2, "tensor_parallel": 8, "recompute": "operators"}
CASES = {
    case.name: case
    for case in (
        titan("torchtitan, FSDP2", 8, {"global_batch": 8, "data_parallel": 8}, ONE),
        titan("torchtitan, HSDP", 8, {"global_batch": 8, "data_parallel": 8, "shard_group": 4}, ONE,
              "--parallelism.data_parallel_replicate_degree=2"),
        titan("torchtitan, TP 8 with sequence parallelism, loss parallel", 16, TENSOR, ONE, *OPERATORS,
              "--parallelism.tensor_parallel_degree=8"),
        titan("torchtitan, CP 2", 8, {"global_batch": 4, "data_parallel": 4, "context_parallel": 2}, ONE,
              "--parallelism.context_parallel_degree=2"),
        titan("torchtitan, PP 4, 1F1B", 8,
              {"global_batch": 16, "data_parallel": 2, "pipeline_parallel": 4, "zero_stage": 2}, *EVEN,
              "--training.local_batch_size=8", "--parallelism.pipeline_parallel_degree=4",
              "--parallelism.pipeline_parallel_schedule=1F1B", roles=(0, 2, 6)),
        piped("torchtitan, PP 2, GPipe", "GPipe", {"schedule": "gpipe"}),
        piped("torchtitan, PP 2, interleaved", "Interleaved1F1B", {"virtual_stages": 2}),
        piped("torchtitan, PP 2, zero bubbles in a V", "ZBVZeroBubble", {"schedule": "zb-v"}),
        titan("torchtitan, FSDP2 2 x TP 2 x CP 2 x PP 2", 16,
              {"global_batch": 8, "data_parallel": 2, "tensor_parallel": 2, "context_parallel": 2, "pipeline_parallel": 2,
               "zero_stage": 2}, *EVEN, "--training.local_batch_size=4", "--parallelism.pipeline_parallel_degree=2",
              "--parallelism.tensor_parallel_degree=2", "--parallelism.context_parallel_degree=2", roles=(0, 8)),
        megatron("Megatron-LM, DDP", 8, {"global_batch": 32, "data_parallel": 8, "zero_stage": 0}, "--global-batch-size", "32"),
        megatron("Megatron-LM, distributed optimizer", 8, {"global_batch": 32, "data_parallel": 8}, "--global-batch-size", "32",
                 "--use-distributed-optimizer", "--overlap-param-gather", "--untie-embeddings-and-output-weights", model=UNTIED),
        megatron("Megatron-LM, TP 4 with sequence parallelism", 8,
                 {"global_batch": 16, "data_parallel": 2, "tensor_parallel": 4}, "--global-batch-size", "16",
                 "--use-distributed-optimizer", "--tensor-model-parallel-size", "4", "--sequence-parallel",
                 "--position-embedding-type", "rope", "--no-rope-fusion", "--no-create-attention-mask-in-dataloader",
                 model=ROTATED),
        megatron("Megatron-LM, PP 4", 8, {"global_batch": 16, "data_parallel": 2, "pipeline_parallel": 4},
                 "--global-batch-size", "16", "--use-distributed-optimizer", "--pipeline-model-parallel-size", "4",
                 roles=(0, 2, 6)),
        megatron("Megatron-LM, PP 2, interleaved", 4,
                 {"global_batch": 16, "data_parallel": 2, "pipeline_parallel": 2, "virtual_stages": 2},
                 "--global-batch-size", "16", "--use-distributed-optimizer", "--pipeline-model-parallel-size", "2",
                 "--num-layers-per-virtual-pipeline-stage", "2", roles=(0, 2)),
    )
}  # fmt: skip
"""By name."""
HELD = {
    case.name: case
    for case in (
        *(Held(name, (), stack=CASES[name]) for name in (
            "torchtitan, HSDP", "torchtitan, TP 8 with sequence parallelism, loss parallel", "torchtitan, PP 4, 1F1B",
            "torchtitan, PP 2, interleaved", "torchtitan, FSDP2 2 x TP 2 x CP 2 x PP 2", "Megatron-LM, DDP",
            "Megatron-LM, distributed optimizer")),
        Held("torchtitan, FSDP2 of Llama 3 8B", (), stack=titan(
            "torchtitan, FSDP2 of Llama 3 8B", 8, {"global_batch": 8, "data_parallel": 8}, ONE, layers=32)),
    )
}  # fmt: skip
"""Of these by name: what all hold."""
