"""Calculon's step times of records: its own model, executions and systems, from the checkout named on the command line.

Runs under any Python, of which this library isn't asked for. What of a record Calculon has no word for is left as its examples
have it; records of other devices, of mixtures and of context parallelism are refused.
"""

import json
import logging
import sys
import types
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

SYSTEMS = {"a100-sxm-80gb": "a100_80g.json"}
RECOMPUTE = {"none": "none", "selective": "attn_only", "full": "full"}


def prepare(folder: str) -> Callable[[dict], dict]:
    """What answers a record."""
    for name in ("pandas", "psutil"):  # its searches ask for them, a single step doesn't
        try:
            __import__(name)
        except ImportError:
            sys.modules[name] = types.SimpleNamespace(cpu_count=lambda logical=False: 1)  # type: ignore[assignment]
    Llm, System = import_module("calculon.llm").Llm, import_module("calculon.system").System

    def answer(record: dict) -> dict:
        app, exe, system = _configurations(record, Path(folder))
        model, known = Llm(Llm.Application(app), logging.getLogger()), System(system)
        model.compile(known, Llm.Execution.from_json(exe))
        model.run(known)
        return {"step_time_s": model.get_total_time(), "peak_bytes": model.get_mem_tier1_cap_req()}

    return answer


def _configurations(record: dict, folder: Path) -> tuple[dict, dict, dict]:
    """Application, execution and system as Calculon's files have them."""
    model, plan, cluster = record["model"], record["plan"], record["cluster"]
    if cluster["device"] not in SYSTEMS:
        raise ValueError(f"no system file of {cluster['device']}")
    if model.get("experts") or plan.get("context_parallel", 1) > 1:
        raise ValueError("experts and context parallelism aren't asked of it")
    app = {
        "hidden": model["hidden"], "feedforward": model["feed_forward"], "seq_size": plan["seq_len"],
        "attn_heads": model["heads"], "attn_size": model["head_dim"], "num_blocks": model["layers"],
    }  # fmt: skip
    sequence_parallel = bool(plan.get("sequence_parallel", False))
    exe = {
        "num_procs": cluster["gpus"], "tensor_par": plan["tensor_parallel"], "pipeline_par": plan["pipeline_parallel"],
        "data_par": plan["data_parallel"], "tensor_par_net": 0, "pipeline_par_net": 1, "data_par_net": 1,
        "batch_size": plan["global_batch"], "microbatch_size": plan["micro_batch"], "datatype": "float16",
        "fused_activation": False, "attention_type": "multihead", "activation_recompute": RECOMPUTE[plan["recompute"]],
        "pipeline_interleaving": plan.get("virtual_stages", 1), "optimizer_sharding": plan.get("zero_stage", 0) > 0,
        "tensor_par_comm_type": "rs_ag" if sequence_parallel else "ar", "tensor_par_overlap": "none",
        "seq_par_ag_redo": sequence_parallel, "data_par_overlap": False, "weight_offload": False, "activations_offload": False,
        "optimizer_offload": False, "training": True,
    }  # fmt: skip
    system = json.loads((folder / "systems" / SYSTEMS[cluster["device"]]).read_text(encoding="utf-8"))
    return app, exe, system
