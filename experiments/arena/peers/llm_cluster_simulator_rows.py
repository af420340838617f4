"""llm-cluster-simulator's step times and memory of records, from the checkout named on the command line, under Node with tsx.

Its own engine is asked with the record's shape and plan on nodes of one of its devices with its default links, as its page does.
"""

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

GPUS = {
    "a100-sxm-40gb": "a100-40gb", "a100-sxm-80gb": "a100-80gb", "h100-sxm": "h100-sxm", "h100-pcie": "h100-pcie",
    "h800": "h800-sxm", "h200-sxm": "h200-sxm", "b200-sxm": "b200", "gb200": "gb200", "v100-sxm-32gb": "v100-32gb",
    "v100-sxm3-32gb": "v100-32gb", "mi300x": "mi300x", "mi325x": "mi325x", "l40s": "l40s", "l4": "l4", "a10g": "a10g", "t4": "t4",
    "rtx-4090": "rtx-4090", "rtx-3090": "rtx-3090",
}  # fmt: skip
ASKS = """
import {getSimulationMetrics} from "FOLDER/src/core/simulation/engine.ts";
import {createMultiNodeCluster} from "FOLDER/src/core/hardware/topology.ts";
import {buildModelSpec} from "FOLDER/src/core/models/primitives.ts";
import {createInterface} from "node:readline";
const said = console.log;
console.log = console.warn = () => {};
for await (const line of createInterface({input: process.stdin})) {
  const {model, cluster, config} = JSON.parse(line), start = performance.now();
  let answer;
  try {
    const found = getSimulationMetrics({
      ...config, modelSpec: buildModelSpec(model, config.sequenceLength), clusterConfig: createMultiNodeCluster(...cluster)});
    answer = {step_time_s: found.stepTimeMs / 1e3, peak_bytes: found.memoryPerGPU.total};
    if (!Number.isFinite(answer.step_time_s)) answer = {refused: "it tells no time"};
  } catch (error) { answer = {refused: String(error).slice(0, 200)}; }
  said(JSON.stringify({...answer, seconds: (performance.now() - start) / 1e3}));
}
"""


def prepare(folder: str) -> Callable[[dict], dict]:
    """What answers a record: Node, which ends when its input does."""
    work = tempfile.TemporaryDirectory()
    script, runner = Path(work.name) / "ask.mts", Path(folder) / "runner" / "node_modules" / ".bin" / "tsx"
    script.write_text(ASKS.replace("FOLDER", folder), encoding="utf-8")
    node = subprocess.Popen([str(runner), str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(record: dict, kept: object = work) -> dict:
        assert node.stdin is not None and node.stdout is not None
        node.stdin.write(f"{json.dumps(_question(record))}\n")
        node.stdin.flush()
        found: dict = json.loads(node.stdout.readline())
        return found

    return answer


def _question(record: dict) -> dict:
    """The model, the cluster and the configuration as its engine takes them."""
    model, plan, cluster = record["model"], record["plan"], record["cluster"]
    if cluster["device"] not in GPUS:
        raise ValueError(f"it has no {cluster['device']}")
    if model.get("experts") or model.get("kv_latent") or (plan.get("adapter") or "none") != "none":
        raise ValueError("experts, latent attention and adapters aren't asked of it")
    tensor, pipeline, context = (plan.get(f"{name}_parallel") or 1 for name in ("tensor", "pipeline", "context"))
    kind = ("ddp", "zero1", "zero1", "fsdp")[plan.get("zero_stage") or 0]
    strategy = f"{kind}-tp-pp" if pipeline > 1 or (tensor > 1 and kind == "ddp") else f"{kind}-tp"
    alone = {"ddp": "ddp", "zero1": "zero-1", "fsdp": "fsdp"}[kind]
    per_node = min(cluster.get("gpus_per_node") or 8, cluster["gpus"])
    chunks, recompute = plan.get("virtual_stages") or 1, plan.get("recompute") or "none"
    if recompute not in ("none", "selective", "full"):
        raise ValueError(f"it doesn't recompute {recompute} alone")
    return {
        "model": {
            "name": model["name"], "numLayers": model["layers"], "hiddenSize": model["hidden"],
            "intermediateSize": model["feed_forward"], "numAttentionHeads": model["heads"], "numKvHeads": model["kv_heads"],
            "headDim": model["head_dim"], "vocabSize": model["vocabulary"], "maxSeqLength": plan["seq_len"],
            "gatedMLP": bool(model.get("gated")), "tiedEmbeddings": bool(model.get("tied_embeddings")),
            "normType": "rmsnorm" if model.get("norm") == "rmsnorm" else "layernorm",
        },
        "cluster": [GPUS[cluster["device"]], per_node, cluster["gpus"] // per_node],
        "config": {
            "globalBatchSize": plan["global_batch"], "microBatchSize": plan["micro_batch"], "sequenceLength": plan["seq_len"],
            "strategyType": strategy if tensor * pipeline > 1 else alone,
            "strategyConfig": {
                "tp": tensor, "pp": pipeline, "dp": plan["data_parallel"], "cp": context, "ep": 1,
                "numMicroBatches": plan["global_batch"] // (plan["micro_batch"] * plan["data_parallel"]),
                "sequenceParallel": bool(plan.get("sequence_parallel")), "interleavedStages": chunks,
                "pipelineSchedule": "interleaved-1f1b" if chunks > 1 else "1f1b",
            },
            "activationCheckpointing": recompute != "none",
            "checkpointingGranularity": "selective" if recompute == "selective" else "full",
            "flashAttention": "flash" in str(plan.get("attention", "flash")), "mixedPrecision": plan.get("dtype") or "bf16",
        },
    }  # fmt: skip
