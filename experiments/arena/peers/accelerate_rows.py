"""What `accelerate estimate-memory` says training takes, in an environment that has accelerate and transformers.

It counts weights, gradients and Adam's moments of one GPU that shards nothing, and no activations.
"""

from collections.abc import Callable
from importlib import import_module

shapes = import_module("shapes")

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def prepare(folder: str) -> Callable[[dict], dict]:
    """What answers a record."""
    usage = import_module("accelerate.commands.estimate").estimate_training_usage
    sizes = import_module("accelerate.utils").calculate_maximum_sizes

    def answer(record: dict) -> dict:
        plan = shapes.alone(record)
        if plan.get("zero_stage") and record["cluster"]["gpus"] > 1:
            raise ValueError("it shards nothing")
        total, _ = sizes(shapes.built(record))
        dtype = plan.get("dtype", "bf16")
        return {"peak_bytes": float(max(usage(total, DTYPES.get(dtype, dtype)).values()))}

    return answer
