"""SimuMax's step times and memory of records, from the checkout named on the command line.

Its own `PerfLLM` on its own profiled systems. It has none of an A100 SXM or an H100, so that rows of these are refused, as are
those of context parallelism, adapters and shapes that its dense model has no word for. Stages 2 and 3 of ZeRO it leaves out.
"""

import functools
import types
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

SYSTEMS = {"a100-pcie-80gb": "a100_pcie.json", "b200-sxm": "b200_bf16_ceperm.json"}
RECOMPUTE: dict[str, dict] = {
    "none": {"enable_recompute": False}, "full": {"enable_recompute": True, "recompute_granularity": "full_block"},
}  # fmt: skip


def prepare(folder: str) -> Callable[[dict], dict]:
    """What answers a record."""
    return functools.partial(_answer, import_module("simumax.core.config"), import_module("simumax.core.perf_llm"), Path(folder))


def _answer(config: types.ModuleType, perf: types.ModuleType, folder: Path, record: dict) -> dict:
    model, plan, cluster = record["model"], record["plan"], record["cluster"]
    if cluster["device"] not in SYSTEMS:
        raise ValueError(f"no system file of {cluster['device']}")
    if model.get("experts") or (plan.get("context_parallel") or 1) > 1 or (plan.get("adapter") or "none") != "none":
        raise ValueError("experts, context parallelism and adapters aren't asked of it")
    shape = config.ModelConfig(
        hidden_size=model["hidden"], head_num=model["heads"], kv_head_num=model["kv_heads"], head_size=model["head_dim"],
        intermediate_size=model["feed_forward"], layer_num=model["layers"], vocab_size=model["vocabulary"],
        use_swiglu=bool(model.get("gated")), model_name=model["name"],
    )  # fmt: skip
    strategy = config.StrategyConfig(
        seq_len=plan["seq_len"], micro_batch_size=plan["micro_batch"], world_size=cluster["gpus"], dtype="bf16",
        micro_batch_num=plan["global_batch"] // (plan["micro_batch"] * plan["data_parallel"]), tp_size=plan["tensor_parallel"],
        pp_size=plan["pipeline_parallel"], interleaving_size=plan.get("virtual_stages") or 1,
        zero_state=plan.get("zero_stage") or 0,
        enable_sequence_parallel=bool(plan.get("sequence_parallel")), pp_comm_async=(plan.get("virtual_stages") or 1) == 1,
        **RECOMPUTE[plan.get("recompute") or "none"],
    )  # fmt: skip
    asked = perf.PerfLLM()
    system = config.SystemConfig.init_from_config_file(str(folder / "configs" / "system" / SYSTEMS[cluster["device"]]))
    asked.configure(strategy_config=strategy, model_config=shape, system_config=system)
    asked.run_estimate()
    cost, memory = asked.analysis_cost().data, asked.analysis_mem().data
    stages = [one for one in (memory, *memory.values()) if isinstance(one, dict) and "peak_mem" in one] or [memory]
    return {"step_time_s": _number(cost["duration_time_per_iter"], {"ms": 1e-3, "s": 1.0, "us": 1e-6}),
            "peak_bytes": max(_number(one["peak_mem"], {"GB": 2**30, "MB": 2**20}) for one in stages)}  # fmt: skip


def _number(value: object, units: dict[str, float]) -> float:
    """A figure as it is told, with its unit behind it or in it."""
    if isinstance(value, int | float):
        return float(value)
    amount, _, unit = str(value).partition(" ")
    return float(amount) * units[unit.strip()]
