"""Words that people use for what has another name here."""

from __future__ import annotations

import re
from collections.abc import Iterable

OF_A_RUN = ("--steps", "--samples", "--epochs", "--tokens")
"""Options that a step has under the same names for something else, or not."""
WORDS = {
    "framework": {
        "fsdp2": "torchtitan pytorch torch fsdp lightning prime-rl", "deepspeed": "zero openrlhf",
        "megatron-core": "megatron megatron-lm mcore slime", "nemo": "megatron-bridge", "hf-trainer": "transformers huggingface",
        "hf-fsdp": "accelerate axolotl llama-factory ms-swift swift verl", "fsdp1": "llm-foundry",
        "megatron-deepspeed": "gpt-neox", "deepspeed-autotp": "autotp", "deepspeed-ulysses": "ulysses alst",
        "maxtext": "jax flax paxml", "ddp": "pytorch-ddp nanogpt nanochat",
    },
    "adapter": {
        "none": "sft full all full-finetune full-finetuning no", "qlora": "4bit", "gptq-lora": "gptq", "lora": "peft",
        "int8-lora": "8bit int8 llm-int8",
    },
    "device": {"h100-sxm": "hopper", "a100-sxm-80gb": "ampere", "b200-sxm": "blackwell", "v100-sxm-32gb": "volta", "l40s": "ada"},
    "dtype": {
        "nvfp4": "fp4 float4 mxfp4", "bf16": "bfloat16 16bit mixed amp bf16-mixed", "fp16": "half float16 16-mixed fp16-mixed",
        "fp32": "float32 float single 32-true", "fp8": "float8 e4m3 int8 8bit",
    },
    "optimizer": {
        "adam": "adamw adamw-torch adamw-fused adamw-torch-fused adamw-apex-fused fusedadam",
        "adam-8bit": "adam8bit adamw8bit adamw-bnb-8bit paged-adamw-8bit bnb", "sgd-momentum": "momentum",
    },
    "op": {
        "all-reduce": "allreduce sum ar", "all-gather": "ag", "reduce-scatter": "rs", "all-to-all": "a2a alltoall all2all",
        "broadcast": "bcast", "send": "p2p sendrecv recv",
    },
    "recompute": {
        "full": "all on yes checkpointing gradient-checkpointing", "none": "off no", "attention-core": "core-attn",
        "norms": "layernorm", "latent-projections": "mla-up-proj", "experts": "moe", "expert-activation": "moe-act",
    },
    "schedule": {
        "interleaved": "vpp interleaved-1f1b", "zb-h1": "zero-bubble zbh1", "zb-v": "zbv", "1f1b": "pipedream-flush",
        "dualpipe": "dualpipev",
    },
    "attention": {
        "flash": "flash-attention flash2 flash3 fa2 fa3 xformers flash-attention-2 flash-attention-3", "unfused": "eager math",
    },
    "find": {
        "batch": "batch-size bs global-batch max-batch max-batch-size",
        "sequence": "seq seq-len length context sequence-length seq-length max-seq-len max-length",
        "micro-batch": "mbs microbatch", "layers": "layer depth", "gpus": "gpu nodes cards",
    },
    "synchronisation": {"all-reduce": "allreduce nccl ddp", "local-sgd": "diloco", "parameter-server": "ps"},
    "compression": {"top-k": "topk dgc", "power-sgd": "powersgd", "int8": "8bit"},
    "command": {
        "search": "plan tune optimize rank best find fastest autotune optimise frontier pareto",
        "train": "time-to-train train-time training-time training-cost cost price days hours energy power carbon electricity "
        "pretrain pretraining training failures goodput",
        "estimate": "predict run time mfu throughput speed tokens-per-second tokens/s tok/s tps roofline",
        "memory": "fit fits oom vram mem footprint memory-usage peak-memory gpu-memory", "devices": "hardware", "models": "list",
        "--help": "help", "read": "parse", "write": "export launch", "collective": "allreduce all-reduce bench bandwidth nccl",
        "timeline": "pipeline bubble", "whatif": "what-if", "app": "gui serve", "new": "template init",
        "show": "info describe specs params parameters flops flop device model cluster topology spec", "--version": "version",
        "accuracy": "validate", "checkpoint": "recompute",
        "cards": "card gpu which-gpu which qlora lora finetune fine-tune cheapest",
        "gpus": "clusters-for how-many-gpus size deadline how many nodes", "compare": "vs versus diff",
        "diagnose": "why debug slow", "capacity": "batch batch-size max-batch longest seq-len limits", "sweep": "scale scaling",
        "post-train": "grpo ppo dpo kto rloo rlhf", "partition": "pipedream",
        "compare --systems": "distbelief downpour-sgd systems diloco horovod", "multimodal": "vlm vision",
        "simulate": "straggler",
    },
    "function": {
        "time_to_train": "train cost days price training_time train_time training_cost", "gpus_in_time": "gpus how_many_gpus",
        "longest_sequence": "capacity max_sequence longest max_seq_len max_sequence_length max_context longest_context",
        "largest_batch": "max_batch max_batch_size biggest_batch", "collective_time": "collective all_reduce allreduce",
        "read_launch": "explain read", "write_launch": "write", "whatif": "app",
        "load_model": "show parameters params model model_from_config from_pretrained Model",
        "names": "models list_models devices clusters", "framework_names": "frameworks", "load_cluster": "cluster",
        "load_device": "device", "load_framework": "framework", "estimate": "predict step_time throughput mfu",
        "search": "best_plan optimize tune autotune rank", "memory": "memory_usage peak_memory vram fits",
        "post_training": "post_train grpo dpo kto ppo rlhf", "cards": "cards_for which_gpu gpu_table",
        "Transformer": "transformer", "Plan": "ParallelPlan Strategy Parallelism", "Device": "GPU",
        "largest_micro_batch": "max_micro_batch", "fewest_gpus": "min_gpus", "diagnose": "why explain_mfu",
    },
    "option": {
        "--tensor-parallel": "tp tensor-model-parallel-size max-tp",
        "--pipeline-parallel": "pp pipeline-model-parallel-size max-pp", "--context-parallel": "cp context-parallel-size max-cp",
        "--expert-parallel": "ep expert-model-parallel-size max-ep", "--data-parallel": "dp dp-shard data-parallel-shard-degree",
        "--virtual-stages": "vp vpp virtual-pipeline-parallel virtual-pipeline-model-parallel "
        "num-virtual-stages-per-pipeline-rank",
        "--micro-batch": "mbs micro-batch-size per-device-train-batch-size train-micro-batch-size-per-gpu batch-size-per-gpu "
        "batch-per-gpu micro-batch-per-gpu",
        "--global-batch": "gbs batch bs batch-size global-batch-size train-batch-size tokens-per-batch batch-tokens "
        "tokens-per-step global-batch-tokens", "--zero-stage": "zero stage use-distributed-optimizer",
        "--dtype": "precision bf16 fp8", "--adapter": "lora qlora method peft finetune finetuning-type train-type tuner-type",
        "--recompute": "gradient-checkpointing recompute-granularity ac checkpointing",
        "--device": "gpu accelerator gpu-name gpu-model cards gpu-type devices memory vram tpu accelerators",
        "--gpus": "num-gpus gpu-count ngpus world-size count n-gpus workers num-processes num-devices",
        "--nodes": "num-nodes nnodes num-machines num-instances instance-count instances",
        "--cluster": "hardware cloud clusters instance instance-type machine machine-type vm", "--markdown": "md",
        "--optimizer-offload": "offload cpu-offload",
        "--days": "time duration within budget-days max-days time-limit deadline in",
        "--price": "cost cost-per-gpu-hour price-per-gpu-hour price-per-hour gpu-hour-price hourly-rate prices per-dollar "
        "usd-per-gpu-hour usd-per-hour dollars-per-gpu-hour dollars-per-hour gpu-price hourly-price", "--sure": "confidence",
        "--top": "top-k topk top-n limit max-results best", "--set model.layers=40": "num-layers layers",
        "--set model.hidden=4096": "hidden-size", "--set model.vocabulary=128256": "vocab-size vocab",
        "--framework": "frameworks software strategy", "--log": "logs", "--step-time": "measured iteration-time",
        "--tokens-per-second": "tps tok/s tokens/s token-per-second throughput tokens-per-sec tok-per-sec",
        "--synchronisation": "sync synchronization", "--shard-group": "hsdp",
        "--set framework.compiled=yes": "compile torch-compile",
        "--seq-len": "seq ctx seq-length sequence-length context max-length max-seq-len max-seq-length seqlen context-length",
        "--optimizer": "optim",
        "--gradient-accumulation": "gradient-accumulation-steps grad-accum grad-accum-steps ga gas accumulate-grad-batches "
        "num-microbatches accumulate accum microbatches", "--mtbf-hours": "mtbf failures failure-rate",
        "--checkpoint-interval": "checkpoint-every checkpoint-every-minutes save-every", "--checkpoint-time": "checkpoint-cost",
        "--set device.dense_peak.bf16=900e12": "peak-tflops peak-flops",
        "--set device.memory=60GB": "max-memory memory-limit gpu-memory", "--algorithm": "algo rl", "--preemption-hours": "spot",
        "--network": "network-bandwidth interconnect bandwidth inter-node-bandwidth internode-bandwidth",
        "--overlap-tensor": "tp-comm-overlap", "--lora-rank": "lora-r rank r lora-dim",
        "--lora-targets": "lora-target-modules target-modules",
        "--steps": "max-steps train-iters iterations iters num-iterations max-train-steps train-steps num-steps training-steps "
        "num-training-steps total-steps total-training-steps",
        "--samples": "dataset-size examples train-samples num-train-samples max-train-samples num-samples",
        "--epochs": "num-train-epochs train-epochs num-epochs max-epochs n-epochs epoch",
        "--tokens": "token dataset-tokens train-tokens training-tokens total-tokens num-tokens n-tokens",
        "--find": "max what maximize maximise largest biggest", "--overlap-gradients": "overlap-grad-reduce",
        "--overlap-parameters": "overlap-param-gather", "--fused-cross-entropy": "cross-entropy-loss-fusion",
        "--sequence-parallel": "sp", "--json": "format", "--attention": "attn-implementation attn-impl attention-backend",
        "--overhead": "pue", "--carbon": "carbon-intensity co2", "--budget": "max-cost", "--mfu": "tflops flops tflops-per-gpu",
        "--restart": "startup", "--slow": "slow-gpu slow-rank straggler stragglers straggler-rank slowdown",
        "--image-tokens": "resolution image-size", "--set model.heads=32": "heads num-heads num-attention-heads",
        "--set model.experts=64": "num-experts",
        "--set model.kv_heads=8": "kv-heads num-kv-heads num-key-value-heads num-query-groups",
        "--set model.experts_per_token=8": "moe-router-topk num-experts-per-tok", "--adapter-dropout": "lora-dropout",
    },
}  # fmt: skip
"""By what is asked for: names, of a framework the nearest that is modelled, and words that people use for each."""
MEANT: dict[str, dict[str, str]] = {
    kind: {("--" if kind == "option" else "") + word: name for name, words in said.items() for word in words.split()}
    for kind, said in WORDS.items()
}
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
