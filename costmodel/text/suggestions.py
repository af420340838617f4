"""Words that people use for what has another name here."""

from __future__ import annotations

import re
from collections.abc import Iterable

OPTIONS = {
    "--steps": "max-steps train-iters iterations iters num-iterations max-train-steps train-steps num-steps training-steps "
    "num-training-steps total-steps total-training-steps",
    "--samples": "dataset-size examples train-samples num-train-samples max-train-samples num-samples",
    "--epochs": "num-train-epochs train-epochs num-epochs max-epochs n-epochs epoch",
    "--tokens": "token dataset-tokens train-tokens training-tokens total-tokens num-tokens n-tokens",
    "--find": "max what maximize maximise largest biggest", "--nodes": "num-machines num-instances instance-count instances",
    "--virtual-stages": "virtual-pipeline-parallel virtual-pipeline-model-parallel num-virtual-stages-per-pipeline-rank",
    "--price": "usd-per-gpu-hour usd-per-hour dollars-per-gpu-hour dollars-per-hour gpu-price hourly-price",
    "--tokens-per-second": "tokens-per-sec tok-per-sec", "--adapter": "finetuning-type train-type tuner-type",
    "--micro-batch": "batch-size-per-gpu batch-per-gpu micro-batch-per-gpu", "--overlap-gradients": "overlap-grad-reduce",
    "--overlap-parameters": "overlap-param-gather", "--fused-cross-entropy": "cross-entropy-loss-fusion",
    "--zero-stage": "use-distributed-optimizer", "--sequence-parallel": "sp", "--gpus": "num-processes num-devices",
    "--seq-len": "seq-length sequence-length context max-length max-seq-len max-seq-length seqlen context-length",
    "--top": "limit max-results best", "--json": "format", "--attention": "attn-implementation attn-impl attention-backend",
    "--device": "accelerators", "--overhead": "pue", "--carbon": "carbon-intensity co2", "--budget": "max-cost",
    "--mfu": "tflops flops tflops-per-gpu", "--restart": "startup", "--network": "internode-bandwidth",
    "--slow": "slow-gpu slow-rank straggler stragglers straggler-rank slowdown", "--lora-rank": "r lora-dim",
    "--image-tokens": "resolution image-size", "--checkpoint-interval": "checkpoint-every-minutes save-every",
    "--set model.heads=32": "heads num-heads num-attention-heads", "--set model.experts=64": "num-experts",
    "--set model.kv_heads=8": "kv-heads num-kv-heads num-key-value-heads num-query-groups",
    "--set model.experts_per_token=8": "moe-router-topk num-experts-per-tok",
    "--set framework.adapter_dropout=yes": "lora-dropout", "--set model.vocabulary=128256": "vocab",
}  # fmt: skip
"""Options, and what people call them."""
OF_A_RUN = ("--steps", "--samples", "--epochs", "--tokens")
"""Those of them that a step has under the same names for something else, or not."""
MEANT: dict[str, dict[str, str]] = {
    "framework": {
        "torchtitan": "fsdp2", "pytorch": "fsdp2", "torch": "fsdp2", "fsdp": "fsdp2", "lightning": "fsdp2", "zero": "deepspeed",
        "megatron": "megatron-core", "megatron-lm": "megatron-core", "mcore": "megatron-core", "megatron-bridge": "megatron-core",
        "transformers": "hf-trainer", "huggingface": "hf-trainer", "accelerate": "hf-fsdp",
        "axolotl": "hf-fsdp", "llama-factory": "hf-fsdp", "gpt-neox": "megatron-deepspeed",
        "autotp": "deepspeed-autotp", "ulysses": "deepspeed-ulysses", "alst": "deepspeed-ulysses", "openrlhf": "deepspeed",
        "jax": "maxtext", "flax": "maxtext", "pytorch-ddp": "ddp",
    },
    "adapter": {"sft": "none", "full": "none", "all": "none", "full-finetune": "none", "full-finetuning": "none", "no": "none",
                "4bit": "qlora", "gptq": "gptq-lora", "peft": "lora", "8bit": "int8-lora", "int8": "int8-lora",
                "llm-int8": "int8-lora"},
    "device": {"hopper": "h100-sxm", "ampere": "a100-sxm-80gb", "blackwell": "b200-sxm", "volta": "v100-sxm-32gb", "ada": "l40s"},
    "dtype": {
        "fp4": "nvfp4", "float4": "nvfp4", "mxfp4": "nvfp4", "bfloat16": "bf16", "half": "fp16", "float16": "fp16",
        "float32": "fp32", "float": "fp32", "single": "fp32", "float8": "fp8", "e4m3": "fp8", "int8": "fp8", "8bit": "fp8",
        "16bit": "bf16", "16-mixed": "fp16", "32-true": "fp32", "mixed": "bf16",
        "amp": "bf16", "fp16-mixed": "fp16", "bf16-mixed": "bf16",
    },
    "optimizer": {
        "adamw": "adam", "adamw-torch": "adam", "adamw-fused": "adam",
        "adamw-torch-fused": "adam", "adamw-apex-fused": "adam", "fusedadam": "adam", "adam8bit": "adam-8bit",
        "adamw8bit": "adam-8bit", "adamw-bnb-8bit": "adam-8bit", "paged-adamw-8bit": "adam-8bit", "bnb": "adam-8bit",
        "momentum": "sgd-momentum",
    },
    "op": {
        "allreduce": "all-reduce", "sum": "all-reduce", "ar": "all-reduce", "ag": "all-gather", "rs": "reduce-scatter",
        "a2a": "all-to-all", "alltoall": "all-to-all", "all2all": "all-to-all", "bcast": "broadcast", "p2p": "send",
        "sendrecv": "send", "recv": "send",
    },
    "recompute": {"all": "full", "on": "full", "yes": "full", "checkpointing": "full", "gradient-checkpointing": "full",
                  "off": "none", "no": "none", "core-attn": "attention-core", "layernorm": "norms",
                  "mla-up-proj": "latent-projections",
                  "moe": "experts", "moe-act": "expert-activation"},
    "schedule": {"vpp": "interleaved", "interleaved-1f1b": "interleaved", "zero-bubble": "zb-h1", "zbv": "zb-v", "zbh1": "zb-h1",
                 "pipedream-flush": "1f1b", "dualpipev": "dualpipe"},
    "attention": {"flash-attention": "flash", "flash2": "flash", "flash3": "flash", "fa2": "flash",
                  "fa3": "flash", "eager": "unfused", "math": "unfused", "xformers": "flash",
                  "flash-attention-2": "flash", "flash-attention-3": "flash"},
    "find": {
        "batch-size": "batch", "bs": "batch", "global-batch": "batch", "seq": "sequence", "seq-len": "sequence",
        "length": "sequence", "context": "sequence", "sequence-length": "sequence", "seq-length": "sequence",
        "max-batch": "batch", "max-batch-size": "batch", "max-seq-len": "sequence", "max-length": "sequence",
        "mbs": "micro-batch", "microbatch": "micro-batch", "layer": "layers", "depth": "layers", "gpu": "gpus", "nodes": "gpus",
        "cards": "gpus",
    },
    "synchronisation": {"allreduce": "all-reduce", "nccl": "all-reduce", "ddp": "all-reduce", "diloco": "local-sgd",
                        "ps": "parameter-server"},
    "compression": {"topk": "top-k", "powersgd": "power-sgd", "dgc": "top-k", "8bit": "int8"},
    "command": {
        "plan": "search", "tune": "search", "optimize": "search", "rank": "search", "best": "search", "find": "search",
        "time-to-train": "train", "train-time": "train", "training-time": "train", "training-cost": "train",
        "predict": "estimate", "run": "estimate", "time": "estimate", "cost": "train", "price": "train", "days": "train",
        "fit": "memory", "hardware": "devices", "list": "models", "help": "--help",
        "parse": "read", "export": "write", "launch": "write", "allreduce": "collective", "all-reduce": "collective",
        "pipeline": "timeline", "what-if": "whatif", "gui": "app", "serve": "app", "template": "new",
        "init": "new", "info": "show", "describe": "show", "version": "--version",
        "validate": "accuracy", "recompute": "checkpoint", "card": "cards", "gpu": "cards", "which-gpu": "cards",
        "which": "cards", "clusters-for": "gpus", "how-many-gpus": "gpus", "size": "gpus", "deadline": "gpus", "vs": "compare",
        "versus": "compare", "diff": "compare", "why": "diagnose", "debug": "diagnose", "slow": "diagnose", "mfu": "estimate",
        "batch": "capacity", "batch-size": "capacity", "max-batch": "capacity", "longest": "capacity", "seq-len": "capacity",
        "limits": "capacity", "how": "gpus", "many": "gpus", "qlora": "cards", "lora": "cards", "finetune": "cards",
        "fine-tune": "cards", "fits": "memory", "oom": "memory", "vram": "memory", "mem": "memory", "bench": "collective",
        "throughput": "estimate", "speed": "estimate", "bandwidth": "collective", "scale": "sweep", "scaling": "sweep",
        "fastest": "search", "hours": "train", "specs": "show", "params": "show", "parameters": "show", "nodes": "gpus",
        "tokens-per-second": "estimate", "cheapest": "cards", "energy": "train", "power": "train", "carbon": "train",
        "electricity": "train", "pretrain": "train", "pretraining": "train", "training": "train", "footprint": "memory",
        "memory-usage": "memory", "peak-memory": "memory", "gpu-memory": "memory", "tokens/s": "estimate", "tok/s": "estimate",
        "tps": "estimate", "autotune": "search", "optimise": "search", "flops": "show", "flop": "show", "device": "show",
        "model": "show", "cluster": "show", "topology": "show", "spec": "show",
        "grpo": "post-train", "ppo": "post-train", "dpo": "post-train", "kto": "post-train",
        "rloo": "post-train", "rlhf": "post-train",
        "pipedream": "partition", "distbelief": "compare --systems", "downpour-sgd": "compare --systems",
        "systems": "compare --systems", "diloco": "compare --systems", "horovod": "compare --systems",
        "vlm": "multimodal", "vision": "multimodal", "straggler": "simulate", "failures": "train", "goodput": "train",
        "frontier": "search", "pareto": "search", "bubble": "timeline", "roofline": "estimate", "nccl": "collective",
    },
    "function": {
        "train": "time_to_train", "cost": "time_to_train", "days": "time_to_train", "price": "time_to_train",
        "gpus": "gpus_in_time", "capacity": "longest_sequence", "max_batch": "largest_batch",
        "max_sequence": "longest_sequence", "collective": "collective_time", "all_reduce": "collective_time",
        "allreduce": "collective_time", "explain": "read_launch", "read": "read_launch", "write": "write_launch",
        "app": "whatif", "show": "load_model", "parameters": "load_model", "params": "load_model",
        "models": "names", "list_models": "names", "devices": "names",
        "clusters": "names", "frameworks": "framework_names", "model": "load_model", "cluster": "load_cluster",
        "device": "load_device", "framework": "load_framework", "predict": "estimate", "step_time": "estimate",
        "throughput": "estimate", "mfu": "estimate", "best_plan": "search", "optimize": "search", "tune": "search",
        "autotune": "search", "rank": "search", "memory_usage": "memory", "peak_memory": "memory", "vram": "memory",
        "fits": "memory", "post_train": "post_training", "cards_for": "cards", "transformer": "Transformer",
        "model_from_config": "load_model", "from_pretrained": "load_model", "ParallelPlan": "Plan",
        "Model": "load_model", "GPU": "Device", "Strategy": "Plan", "Parallelism": "Plan",
        "longest": "longest_sequence", "max_seq_len": "longest_sequence", "max_sequence_length": "longest_sequence",
        "max_context": "longest_sequence", "longest_context": "longest_sequence", "max_batch_size": "largest_batch",
        "biggest_batch": "largest_batch", "max_micro_batch": "largest_micro_batch", "how_many_gpus": "gpus_in_time",
        "min_gpus": "fewest_gpus", "which_gpu": "cards", "gpu_table": "cards", "why": "diagnose", "explain_mfu": "diagnose",
        "training_time": "time_to_train", "train_time": "time_to_train", "training_cost": "time_to_train",
        "grpo": "post_training", "dpo": "post_training", "kto": "post_training", "ppo": "post_training", "rlhf": "post_training",
    },
    "option": {
        "--tp": "--tensor-parallel", "--tensor-model-parallel-size": "--tensor-parallel", "--pp": "--pipeline-parallel",
        "--pipeline-model-parallel-size": "--pipeline-parallel", "--cp": "--context-parallel", "--ep": "--expert-parallel",
        "--context-parallel-size": "--context-parallel", "--expert-model-parallel-size": "--expert-parallel",
        "--dp": "--data-parallel", "--vp": "--virtual-stages", "--vpp": "--virtual-stages", "--mbs": "--micro-batch",
        "--micro-batch-size": "--micro-batch", "--per-device-train-batch-size": "--micro-batch", "--gbs": "--global-batch",
        "--batch": "--global-batch",
        "--bs": "--global-batch", "--batch-size": "--global-batch", "--global-batch-size": "--global-batch",
        "--zero": "--zero-stage", "--precision": "--dtype", "--bf16": "--dtype", "--fp8": "--dtype", "--lora": "--adapter",
        "--qlora": "--adapter", "--gradient-checkpointing": "--recompute", "--recompute-granularity": "--recompute",
        "--gpu": "--device", "--num-gpus": "--gpus", "--num-nodes": "--nodes", "--nnodes": "--nodes", "--hardware": "--cluster",
        "--md": "--markdown", "--offload": "--optimizer-offload", "--cpu-offload": "--optimizer-offload",
        "--time": "--days", "--duration": "--days", "--within": "--days",
        "--cost": "--price", "--cost-per-gpu-hour": "--price", "--price-per-gpu-hour": "--price",
        "--price-per-hour": "--price",
        "--train-micro-batch-size-per-gpu": "--micro-batch", "--train-batch-size": "--global-batch", "--accelerator": "--device",
        "--gpu-name": "--device", "--gpu-model": "--device", "--confidence": "--sure",
        "--budget-days": "--days", "--max-days": "--days", "--time-limit": "--days", "--top-k": "--top", "--topk": "--top",
        "--top-n": "--top", "--num-layers": "--set model.layers=40", "--layers": "--set model.layers=40",
        "--hidden-size": "--set model.hidden=4096", "--vocab-size": "--set model.vocabulary=128256",
        "--gpu-hour-price": "--price", "--hourly-rate": "--price", "--cloud": "--cluster", "--max-tp": "--tensor-parallel",
        "--max-pp": "--pipeline-parallel", "--max-cp": "--context-parallel", "--max-ep": "--expert-parallel",
         "--prices": "--price", "--cards": "--device", "--gpu-type": "--device", "--devices": "--device",
        "--clusters": "--cluster", "--method": "--adapter", "--peft": "--adapter", "--finetune": "--adapter",
        "--gpu-count": "--gpus", "--ngpus": "--gpus", "--world-size": "--gpus", "--deadline": "--days",
        "--frameworks": "--framework", "--logs": "--log", "--measured": "--step-time", "--iteration-time": "--step-time",
        "--tps": "--tokens-per-second", "--tokens-per-batch": "--global-batch", "--batch-tokens": "--global-batch",
        "--tokens-per-step": "--global-batch", "--global-batch-tokens": "--global-batch",
        "--in": "--days", "--sync": "--synchronisation", "--synchronization": "--synchronisation", "--instance": "--cluster",
        "--instance-type": "--cluster", "--machine": "--cluster", "--machine-type": "--cluster", "--vm": "--cluster",
        "--dp-shard": "--data-parallel", "--data-parallel-shard-degree": "--data-parallel", "--hsdp": "--shard-group",
        "--compile": "--set framework.compiled=yes", "--torch-compile": "--set framework.compiled=yes",
        "--seq": "--seq-len", "--optim": "--optimizer", "--stage": "--zero-stage", "--ac": "--recompute",
        "--tok/s": "--tokens-per-second", "--tokens/s": "--tokens-per-second", "--token-per-second": "--tokens-per-second",
        "--throughput": "--tokens-per-second", "--checkpointing": "--recompute",
        "--gradient-accumulation-steps": "--gradient-accumulation", "--grad-accum": "--gradient-accumulation",
        "--grad-accum-steps": "--gradient-accumulation", "--ga": "--gradient-accumulation", "--gas": "--gradient-accumulation",
        "--accumulate-grad-batches": "--gradient-accumulation", "--num-microbatches": "--gradient-accumulation",
        "--accumulate": "--gradient-accumulation", "--accum": "--gradient-accumulation",
        "--microbatches": "--gradient-accumulation",
        "--memory": "--device", "--vram": "--device", "--ctx": "--seq-len", "--count": "--gpus",
        "--mtbf": "--mtbf-hours", "--failures": "--mtbf-hours", "--failure-rate": "--mtbf-hours",
        "--checkpoint-every": "--checkpoint-interval", "--checkpoint-cost": "--checkpoint-time",
        "--peak-tflops": "--set device.dense_peak.bf16=900e12", "--peak-flops": "--set device.dense_peak.bf16=900e12",
        "--max-memory": "--set device.memory=60GB", "--memory-limit": "--set device.memory=60GB",
        "--gpu-memory": "--set device.memory=60GB", "--per-dollar": "--price", "--tpu": "--device", "--algo": "--algorithm",
        "--spot": "--preemption-hours",
        "--rl": "--algorithm", "--network-bandwidth": "--network", "--interconnect": "--network",
        "--software": "--framework", "--strategy": "--framework",
        "--bandwidth": "--network", "--tp-comm-overlap": "--overlap-tensor",
        "--n-gpus": "--gpus", "--workers": "--gpus", "--lora-r": "--lora-rank", "--rank": "--lora-rank",
        "--lora-target-modules": "--lora-targets", "--target-modules": "--lora-targets", "--inter-node-bandwidth": "--network",
        **{f"--{word}": said for said, words in OPTIONS.items() for word in words.split()},
    },
}  # fmt: skip
"""By what is asked for: words that people use, and the name that is meant; of a framework the nearest that is modelled."""


ALIKE = 0.6
"""Share of their letters from which the beginnings of two names are of one family."""


def squeezed(word: str) -> str:
    return re.sub(r"[\s_.-]+", "", word.lower())


def _of_one_family(given: str, name: str) -> bool:
    """Whether names begin alike, as those of models of one family do; a size that two have in common makes them no relatives."""
    import difflib

    first, second = (re.match(r"[a-z]*", one.lower())[0] for one in (given[:100], name))  # type: ignore[index]
    return difflib.SequenceMatcher(None, first, second).ratio() >= ALIKE


def meant(kind: str, given: str) -> str | None:
    """The name that a word of people's stands for, or None.

    Parameters
    ----------
    kind : of `MEANT`
    given : the word

    Examples
    --------
    >>> meant("optimizer", "adamw_8bit"), meant("optimizer", "adam")
    ('adam-8bit', None)
    """
    wanted = squeezed(given[:100])
    return next((name for word, name in MEANT.get(kind, {}).items() if squeezed(word) == wanted), None)


def did_you_mean(kind: str, given: str, known: Iterable[str], most: int = 1) -> str:
    """What a word may stand for, as the end of an error's line; empty where nothing is near.

    Parameters
    ----------
    kind : of `MEANT`, or any
    given : the word
    known : names that would be taken
    most : names to offer of those that are near in letters alone

    Examples
    --------
    >>> did_you_mean("framework", "TorchTitan", ["fsdp2", "nemo"]), did_you_mean("op", "all_reduce", ["all-reduce", "send"])
    ('; did you mean fsdp2?', '; did you mean all-reduce?')
    """
    names, wanted, table = [str(name) for name in known], squeezed(given[:100]), MEANT.get(kind, {})
    near = [name] if (name := table.get(given)) in names else [name for name in names if squeezed(name) == wanted]
    if not near:
        always = kind != "option"  # an option of another command is none of this one's
        taken = [name for word, name in table.items() if squeezed(word) == wanted]
        near = [name for name in taken if name.split(" ")[0] in names or (always and name.startswith("--"))]
    if not near:
        import difflib

        plain = {name.lstrip("-"): name for name in names}  # dashes would make all options alike
        close = difflib.get_close_matches(given[:100].lower().lstrip("-"), plain, n=most, cutoff=0.6 if most == 1 else 0.5)
        near = [plain[name] for name in close if kind != "model" or _of_one_family(given, name)]
    return f"; did you mean {', '.join(near[:most])}?" if near else ""
