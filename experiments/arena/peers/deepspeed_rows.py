"""DeepSpeed's estimators of memory, in an environment that has DeepSpeed and transformers: model states of ZeRO-2 and ZeRO-3.

They say what states take and leave activations to the reader, so that they are too low wherever these count.
"""

from collections.abc import Callable
from importlib import import_module

shapes = import_module("shapes")


def prepare(folder: str) -> Callable[[dict], dict]:
    """What answers a record."""
    stage3, stage_1_and_2 = (import_module(f"deepspeed.runtime.zero.{name}") for name in ("stage3", "stage_1_and_2"))

    def answer(record: dict) -> dict:
        plan = shapes.alone(record)
        stage, model = plan.get("zero_stage"), shapes.built(record)
        gpus, node = record["cluster"]["gpus"], record["cluster"].get("gpus_per_node") or record["cluster"]["gpus"]
        nodes = max(1, gpus // node)
        total, largest = stage3.model_to_params(model)
        offload = bool(plan.get("optimizer_offload"))
        if stage == 3:
            weights = bool(plan.get("parameter_offload"))
            _, found, _ = stage3.estimate_zero3_model_states_mem_needs(
                total, largest, gpus // nodes, nodes, cpu_offload=offload, cpu_offload_params=weights
            )
        elif stage == 2:
            _, found = stage_1_and_2.estimate_zero2_model_states_mem_needs(total, gpus // nodes, nodes, cpu_offload=offload)
        else:
            raise ValueError(f"ZeRO stage {stage} has no estimator")
        return {"peak_bytes": float(found)}

    return answer
