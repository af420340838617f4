"""Megatron-LM's own report of memory, of records, from the checkout named on the command line: weights, states and activations.

The report that it prints as it starts comes from one file, which is run here by itself. It counts activations of attention
recomputed or, without sequence parallelism, of nothing recomputed; full recomputation, context parallelism and adapters
are refused, and so are stages of ZeRO above the distributed optimizer's. It tells no time.
"""

import sys
import types
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

FILE = Path("megatron") / "training" / "theoretical_memory_usage.py"


def prepare(folder: str) -> Callable[[dict], dict]:
    """What answers a record."""
    report = _loaded(Path(folder))

    def answer(record: dict) -> dict:
        arguments, micro_batches = _arguments(record)
        *_, megabytes = report.report_theoretical_memory(arguments, num_microbatches=micro_batches)
        return {"peak_bytes": megabytes * 2.0**20}

    return answer


def _loaded(folder: Path) -> types.ModuleType:
    """The file, in a package whose ``utils``, which asks for PyTorch, has the two functions that it takes of it."""
    package, utils = types.ModuleType("report"), types.ModuleType("report.utils")
    package.__path__ = []
    vars(utils).update(is_hybrid_model=lambda arguments: False, print_rank_0=lambda text: None)
    sys.modules.update({"report": package, "report.utils": utils})
    spec = spec_from_file_location("report.memory", folder / FILE)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(folder / FILE)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _arguments(record: dict) -> tuple[types.SimpleNamespace, int]:
    """Megatron-LM's arguments that the report reads, and micro-batches of a step."""
    model, plan, cluster = record["model"], record["plan"], record["cluster"]
    recompute = plan.get("recompute") or "none"
    if recompute == "full" or (plan.get("context_parallel") or 1) > 1 or (plan.get("adapter") or "none") != "none":
        raise ValueError("full recomputation, context parallelism and adapters aren't asked of it")
    if (plan.get("zero_stage") or 0) > 1 or model.get("kv_latent"):
        raise ValueError("ZeRO beyond stage 1 and latent attention aren't asked of it")
    experts = model.get("experts") or None
    tensor, pipeline, chunks = plan["tensor_parallel"], plan["pipeline_parallel"], plan.get("virtual_stages") or 1
    expert = plan.get("expert_parallel") or 1
    return types.SimpleNamespace(
        hidden_size=model["hidden"], num_layers=model["layers"], num_attention_heads=model["heads"],
        kv_channels=model["head_dim"], num_query_groups=model["kv_heads"],
        group_query_attention=model["kv_heads"] != model["heads"], ffn_hidden_size=model["feed_forward"],
        swiglu=bool(model.get("gated")), normalization="RMSNorm" if model.get("norm") == "rmsnorm" else "LayerNorm",
        padded_vocab_size=model["vocabulary"], untie_embeddings_and_output_weights=not model.get("tied_embeddings"),
        add_bias_linear=bool(model.get("attention_bias")), multi_latent_attention=False, mtp_num_layers=None,
        num_experts=experts, moe_layer_freq=1, moe_ffn_hidden_size=model.get("expert_feed_forward") or model["feed_forward"],
        moe_router_topk=model.get("active_experts"), moe_shared_expert_intermediate_size=None, moe_latent_size=None,
        moe_shared_expert_gate=False, seq_length=plan["seq_len"], micro_batch_size=plan["micro_batch"],
        tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline,
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None, expert_model_parallel_size=expert,
        expert_tensor_parallel_size=1 if expert > 1 else tensor, data_parallel_size=plan["data_parallel"],
        world_size=cluster["gpus"], use_distributed_optimizer=(plan.get("zero_stage") or 0) == 1,
        sequence_parallel=bool(plan.get("sequence_parallel")),
        recompute_granularity=None if recompute == "none" else "selective",
    ), plan["global_batch"] // (plan["micro_batch"] * plan["data_parallel"])  # fmt: skip
