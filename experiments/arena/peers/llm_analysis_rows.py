"""llm-analysis's step times and memory of records, from the checkout named on the command line.

Its own `LLMAnalysis.training` with its files of GPUs, its usual efficiencies of memory and links, which are one, and half of the
peak FLOP/s, which its constants say that Megatron-LM reaches. Records of devices it has no file of, and of context parallelism,
are refused.
"""

import functools
import math
import sys
import types
from collections.abc import Callable
from importlib import import_module

GPUS = {
    "a100-sxm-80gb": "a100-sxm-80gb", "a100-sxm-40gb": "a100-sxm-40gb", "a100-pcie-80gb": "a100-pcie-80gb",
    "h100-sxm": "h100-sxm-80gb", "h100-pcie": "h100-pcie-80gb", "v100-sxm-32gb": "v100-sxm-32gb",
    "v100-sxm3-32gb": "v100-sxm-32gb", "v100-sxm-16gb": "v100-sxm-16gb", "mi250x": "mi250x-128gb",
}  # fmt: skip
RECOMPUTE = {"none": 0, "selective": 1, "full": 4}
FLOPS_EFFICIENCY = 0.5
"""Of `llm_analysis/constant.py`: "achieved by Megatron-LM is ~0.5 for LLM training"; its default is 1."""


def prepare(folder: str) -> Callable[[dict], dict]:
    """What answers a record."""
    sys.modules.setdefault("fire", types.SimpleNamespace(Fire=None))  # type: ignore[arg-type]  # its own command line's
    return functools.partial(_answer, import_module("llm_analysis.analysis"), import_module("llm_analysis.config"))


def _answer(analysis: types.ModuleType, config: types.ModuleType, record: dict) -> dict:
    model, plan, cluster = record["model"], record["plan"], record["cluster"]
    if cluster["device"] not in GPUS:
        raise ValueError(f"no GPU config of {cluster['device']}")
    if plan.get("context_parallel", 1) > 1 or plan.get("adapter", "none") != "none":
        raise ValueError("context parallelism and adapters aren't asked of it")
    tensor, experts = plan["tensor_parallel"], model.get("experts") or 1
    shape = config.ModelConfig(
        name=model["name"], num_layers=model["layers"], n_head=model["heads"], hidden_dim=model["hidden"],
        vocab_size=model["vocabulary"], max_seq_len=plan["seq_len"], num_key_value_heads=model.get("kv_heads", model["heads"]),
        ffn_embed_dim=model["feed_forward"], moe_num_experts=experts, moe_top_k=model.get("active_experts") or 1,
        mlp_gated_linear_units=bool(model.get("gated")),
    )  # fmt: skip
    degrees = config.ParallelismConfig(
        tp_size=tensor, pp_size=plan["pipeline_parallel"], dp_size=plan["data_parallel"], ep_size=plan.get("expert_parallel", 1),
        sp_size=tensor if plan.get("sequence_parallel") else 1,
    )  # fmt: skip
    asked = analysis.LLMAnalysis(
        shape, config.get_gpu_config_by_name(GPUS[cluster["device"]]), config.get_dtype_config_by_name("w16a16e16"), degrees,
        flops_efficiency=FLOPS_EFFICIENCY,
    )  # fmt: skip
    found = asked.training(
        batch_size_per_gpu=plan["micro_batch"], global_batch_size=plan["global_batch"], seq_len=plan["seq_len"],
        activation_recomputation=analysis.ActivationRecomputation(RECOMPUTE[plan.get("recompute", "none")]),
        ds_zero=analysis.DSZeRO(plan.get("zero_stage") or 0), flash_attn="flash" in str(plan.get("attention", "flash")),
    )  # fmt: skip
    seconds, peak = found["latency_per_iter"], found.get("estimated_peak_memory_per_gpu") or found.get("memory_per_gpu")
    answer = {"step_time_s": seconds}
    return answer if peak is None or not math.isfinite(peak) else {**answer, "peak_bytes": peak}
