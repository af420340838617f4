"""ftuneai's step times and memory of records: its `Estimator`, in the environment that it was installed to.

A record's model joins its list under the record's shape; a step is a share of an epoch. It knows data parallelism, with the
stages of ZeRO, of a dozen devices; records of anything else, and of attention alone recomputed, are refused.
"""

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

shapes = import_module("shapes")

GPUS = {
    "h200-sxm": "H200-141GB", "h100-sxm": "H100-80GB", "a100-sxm-80gb": "A100-80GB", "a100-sxm-40gb": "A100-40GB",
    "l4": "L4-24GB", "rtx-4090": "RTX-4090-24GB", "rtx-3090": "RTX-3090-24GB", "rtx-4080": "RTX-4080-16GB", "t4": "T4-16GB",
    "v100-sxm-16gb": "V100-16GB", "v100-sxm-32gb": "V100-32GB", "v100-sxm3-32gb": "V100-32GB", "a10g": "A10G-24GB",
}  # fmt: skip
OPTIMIZERS = {"adam": "adamw", "sgd": "sgd", "adam-8bit": "adam_8bit"}
METHODS = {"none": "full", "lora": "lora", "qlora": "qlora"}
STEPS = 100_000
"""That are asked for at once, as it rounds hours to the second figure."""
SHARDING = ("none", "zero_1", "zero_2", "zero_3")


def prepare(folder: str) -> Callable[[dict], dict]:
    """What answers a record."""
    tool, loader = import_module("ftuneai"), import_module("ftuneai.loader")
    return functools.partial(_answer, tool, loader, import_module("ftuneai.core.models"))


def _answer(tool: Any, loader: Any, kinds: Any, record: dict) -> dict:
    model, plan, cluster = record["model"], shapes.unsplit(record), record["cluster"]
    if model.get("experts") or model.get("kv_latent"):
        raise ValueError("a plain decoder is asked of it")
    adapter, recompute = METHODS[plan.get("adapter") or "none"], plan.get("recompute") or "none"
    if recompute not in ("none", "full"):
        raise ValueError("all is recomputed or nothing, where it is asked")
    gpus, zero = cluster["gpus"], plan.get("zero_stage") or 0
    loader.load_models()[model["name"]] = kinds.ModelSpec(
        name=model["name"], parameters=int(model.get("stated_parameters") or _parameters(model)), hidden_size=model["hidden"],
        num_layers=model["layers"], num_attention_heads=model["heads"], num_kv_heads=model["kv_heads"],
        intermediate_size=model["feed_forward"], vocab_size=model["vocabulary"], max_seq_length=plan["seq_len"],
    )  # fmt: skip
    asked = tool.Estimator(
        model=model["name"], method=adapter, quantization="4bit" if adapter == "qlora" else "none",
        batch_size=plan["micro_batch"], seq_length=plan["seq_len"], gradient_checkpointing=recompute == "full",
        optimizer=OPTIMIZERS[plan.get("optimizer") or "adam"], lora_rank=plan.get("lora_rank") or 16,
        flash_attention="flash" in str(plan.get("attention", "flash")), sharding=SHARDING[zero], num_gpus=gpus,
    )  # fmt: skip
    examples = STEPS * plan["global_batch"]
    took = asked.estimate_time(gpu=GPUS[cluster["device"]], dataset_size=examples, epochs=1, num_gpus=gpus)
    return {"step_time_s": took.total_hours * 3600.0 / STEPS, "peak_bytes": asked.estimate_memory().total_gb * 2.0**30}


def _parameters(model: dict) -> float:
    """Weights of a decoder by its shape, where none are stated."""
    attention = model["hidden"] * model["head_dim"] * 2 * (model["heads"] + model["kv_heads"])
    layer = attention + (3 if model.get("gated") else 2) * model["hidden"] * model["feed_forward"]
    tables = 1 if model.get("tied_embeddings") else 2
    return float(model["layers"] * layer + tables * model["vocabulary"] * model["hidden"])
