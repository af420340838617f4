"""Attributes that results don't have, refused with the one that says it."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any, TypeVar

from costmodel.text.errors import CostModelError
from costmodel.text.suggestions import MEANT, did_you_mean

T = TypeVar("T", bound=type)
HOLDING = ("best", "estimate", "memory", "plan", "cost", "expected", "run")
"""Attributes that hold what is looked for one level up."""
DEEP = 3
"""Levels in which it is looked for."""
MEANT_BY = {
    "tokens_per_second": "throughput tokens_per_sec tokens_per_s tok_s tps samples_per_second",
    "step_time": "time time_per_step step_time_s step_time_ms iteration_time latency seconds",
    "times": "breakdown time_breakdown components phases bottleneck parts",
    "parts": "breakdown components memory_breakdown as_dict to_dict",
    "total": "peak peak_memory peak_memory_gb peak_memory_bytes memory_gb memory_bytes memory_per_gpu total_memory gb total_gb "
    "bytes max",
    "optimizer": "optimizer_states optimizer_state", "weights": "model_states parameters params", "gradients": "grads",
    "memory_margin": "headroom free_memory margin", "fits": "oom feasible fits_in_memory",
    "ranked": "plans results top candidates", "choices": "results plans", "rows": "results",
    "to_pandas": "to_dataframe to_df to_frame df dataframe table", "to_rows": "to_list to_dict as_dict to_json json",
    "said": "summary verdict answer", "to_dict": "as_dict asdict to_json json summary describe report",
    "gpus": "num_gpus n_gpus gpu_count world_size", "days": "hours", "price": "dollars total_cost usd",
    "explanations": "causes reasons", "advice": "suggestions fixes recommendations", "fastest": "winner best",
    "fitting": "cards devices best", "reached": "clusters best", "against": "speedup ratio",
    "value": "max_seq_len max_context seq_len length tokens batch max_batch_size batch_size layers gpus micro_batch",
    "global_batch": "batch_size global_batch_size", "micro_batch": "micro_batch_size",
    "time_interval": "interval confidence error confidence_interval", "fit_probability": "probability",
    "parameters": "num_parameters n_params num_params total_params total_parameters params size",
    "layers": "num_layers n_layers n_layer num_hidden_layers depth", "hidden": "hidden_size d_model n_embd dim",
    "heads": "num_heads n_heads n_head num_attention_heads", "kv_heads": "num_kv_heads n_kv_heads num_key_value_heads",
    "vocabulary": "vocab vocab_size", "feed_forward": "intermediate_size ffn_hidden_size d_ff ffn",
    "experts": "num_experts n_experts num_local_experts", "dense_peak": "flops tflops peak_flops peak",
}  # fmt: skip
"""What says it, and words under which people look for it."""
OF_ESTIMATES = ("fits", "step_time", "mfu", "tokens_per_second", "fit_probability", "memory_margin", "time_interval")
"""What an estimate alone has."""


class MissingAttribute(AttributeError):
    """An attribute that isn't there; which one is meant is looked for when somebody reads of it."""

    def __init__(self, owner: object, missing: str) -> None:
        super().__init__()
        self.owner, self.missing = owner, missing

    def __str__(self) -> str:
        wanted = self.missing.lower()
        option = MEANT["option"].get(f"--{wanted.replace('_', '-')}", "")
        words = [name for name, words in MEANT_BY.items() if wanted in words.split()]
        meant = [self.missing, *words, option.removeprefix("--").replace("-", "_")]
        found = [path for name in meant if (path := _path_to(self.owner, name))]
        near = min(found, key=lambda path: path.count("."), default="")
        if self.missing in OF_ESTIMATES and not near:
            return f"{type(self.owner).__name__!r} has no attribute {self.missing!r}; estimate(...).{self.missing} is it"
        hint = f"; did you mean {near}?" if near else did_you_mean("attribute", self.missing, _public(self.owner))
        return f"{type(self.owner).__name__!r} has no attribute {self.missing!r}{hint}"


def _public(owner: object) -> set[str]:
    """Names that an object has for people."""
    fields = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
    return {name for name in (*dir(type(owner)), *(one.name for one in fields)) if not name.startswith("_")}


def _path_to(owner: object, name: str) -> str:
    """Where an attribute is, of an object or of what it holds; empty where it is nowhere."""
    left: deque[tuple[object, tuple[str, ...]]] = deque([(owner, ())])
    while left:
        one, path = left.popleft()
        there = _public(one)
        if name in there:
            return ".".join([*path, name])
        for head in HOLDING if len(path) + 1 < DEEP else ():
            try:
                held = getattr(one, head) if head in there else None
            except CostModelError:  # nothing fits: it holds none
                continue
            if held is not None:
                left.append((held, (*path, head)))
    return ""


def names_what_is_there(kind: T) -> T:
    """Have a class name the attribute that is meant where one is asked for that it doesn't have."""

    def missing(self: object, name: str) -> Any:
        if name.startswith("_"):  # Python's own, of copies and of notebooks
            raise AttributeError(name)
        if hasattr(type(self), name):  # a property that itself lacked something, which it says
            return object.__getattribute__(self, name)
        raise MissingAttribute(self, name)

    kind.__getattr__ = missing  # type: ignore[attr-defined]
    return kind
