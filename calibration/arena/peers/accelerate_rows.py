"""What `accelerate estimate-memory` says training takes, in an environment that has accelerate and transformers.

It counts weights, gradients and Adam's moments of one GPU that shards nothing, and no activations.
"""

import json
import sys
import time
from importlib import import_module


def main() -> None:
    """Answer every record on stdin."""
    usage = import_module("accelerate.commands.estimate").estimate_training_usage
    sizes = import_module("accelerate.utils").calculate_maximum_sizes
    shapes = import_module("shapes")
    for record in map(json.loads, sys.stdin):
        start = time.perf_counter()
        try:
            plan = shapes.alone(record)
            if plan.get("zero_stage") and record["cluster"]["gpus"] > 1:
                raise ValueError("it shards nothing")
            total, _ = sizes(shapes.built(record))
            dtype = plan.get("dtype", "bf16")
            parts = usage(total, {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(dtype, dtype))
            answer: dict[str, object] = {"peak_bytes": float(max(parts.values()))}
        except (ValueError, KeyError) as error:
            answer = {"refused": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps({"id": record["id"], **answer, "seconds": time.perf_counter() - start}))


main()
