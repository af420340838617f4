"""What a recipe of torchtune holds at its fullest, as traced, beside the bill that `estimate` gives of the same question."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from costmodel import Plan, Transformer, estimate, load_cluster, load_model
from costmodel.traces.record import Trace
from tests.audits.case import CLUSTER, Case, Compared
from tests.audits.peaks import GIB, NEAR, held

RELEASE = "torchtune@2025.4"
"""The library's name of 0.6.1."""


@dataclasses.dataclass(frozen=True)
class Recipe(Case):
    """A recipe, traced and told.

    Parameters
    ----------
    asked : of the plan, as the library calls it
    """

    title = "What tensors hold at the fullest moment of a step of torchtune's recipes for one device [GiB]:"
    columns, numbers = "case software traced told difference", 3
    script = "torchtune_recipe.py"

    asked: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def packages(self) -> tuple[str, ...]:
        """That it needs beside PyTorch and transformers."""
        return ("torchtune", "torchao")

    @property
    def file(self) -> str:
        """Name of its trace."""
        return self.name.replace(" ", "-")

    def told(self) -> float:
        """Bytes of tensors, but for the workspaces of libraries, which a trace hasn't."""
        plan = Plan(data_parallel=1, dtype="bf16", global_batch=self.asked["micro_batch"], **self.asked)
        answer = estimate(SHAPE, load_cluster(CLUSTER, gpus=1), plan, RELEASE)
        return answer.memory.allocated - float(answer.inputs[4].memory.workspace)

    def rows(self, trace: Trace) -> list[Compared]:
        """Bytes at the peak."""
        really, says = held(trace.roles[-1]), self.told()
        cells = self.versions(trace), f"{really / GIB:.2f}", f"{says / GIB:.2f}", f"{100.0 * (says / really - 1.0):+.1f} %"
        return [(cells, abs(says / really - 1.0) < NEAR)]


def _shape() -> Transformer:
    """Llama 3 8B of four layers."""
    return dataclasses.replace(load_model("llama3-8b"), layers=4, published_parameters=None)


SHAPE = _shape()
SIZES = {
    "vocab_size": SHAPE.vocabulary, "num_layers": SHAPE.layers, "num_heads": SHAPE.heads, "num_kv_heads": SHAPE.kv_heads,
    "embed_dim": SHAPE.hidden, "intermediate_dim": SHAPE.feed_forward, "max_seq_len": 131072,
}  # fmt: skip
LORA = {"adapter": "lora", "lora_rank": 8, "lora_targets": "q-v,output,mlp"}


def recipe(name: str, micro_batch: int, seq_len: int, recompute: str = "none", **plan: Any) -> Recipe:
    """A case of some sizes."""
    sizes = {"micro_batch": micro_batch, "seq_len": seq_len, "recompute": recompute}
    choices = {"sizes": SIZES, "adapter": plan.get("adapter", "none"), **sizes}
    return Recipe(name, (json.dumps(choices),), sizes | plan)


CASES = {
    one.name: one
    for one in (
        recipe("full", 4, 4096),
        recipe("full, recomputed", 4, 4096, "full"),
        recipe("LoRA", 2, 2048, **LORA),
        recipe("LoRA, recomputed", 4, 2048, "full", **LORA),
    )
}
"""By name."""
