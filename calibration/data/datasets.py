"""What a source's rows leave out, by dataset: the software that ran, its release, its habits, and what it logs.

A dataset is not a framework: whatever holds for one source only is said here, and the catalogue's frameworks are those
that one can install.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping

from calibration.data.recipes import recipe_of
from calibration.data.runs import Run
from costmodel.arithmetic.named_tuples import changed
from costmodel.catalogue.software import load_framework
from costmodel.description.framework import Framework
from costmodel.interop.launchers.dialects.said_megatron import COMMUNICATIONS


@dataclasses.dataclass(frozen=True)
class Dataset:
    """What holds for every row of a source.

    Parameters
    ----------
    habits : fields of `Framework` in which the source's software differed from the framework's defaults
    vocabulary : of its models where rows leave it out [tokens]; 0: not known
    classic : its models are GPTs with LayerNorm, biases and learned positions, whatever the framework
    software : framework that its rows' stack stands for; empty: what the stack says
    releases : of what its rows name only by their software: the catalogue's framework
    like : framework by whose habits its runs are read where the catalogue hasn't their software
    untuned : deterministic kernels, tiny models, nothing tuned: a framework's own tests, whose host times are not a user's
    logging_stage : of the pipeline, whose rank logs its memory; -1: the fullest
    lora_targets : matrices with an adapter, where rows leave them out; empty: every projection
    adapter_habits : `habits` of its runs that train adapters, beside those of all
    cumulative : what rows change, in their order, where each keeps what those before it changed
    decimal : its gigabytes are of 1e9 bytes
    memory_kind : of its peak memory, in the rows' words, where they leave it open
    recompute : what its rows recompute where they don't say, as `Plan.recompute`
    reduced : gradients in a bucket of DeepSpeed's by ZeRO stage [elements], where its configuration has others than the
        default's; 0: "auto", the hidden size squared
    untied : its head is a copy of the embedding where models share them
    clock : of its machine in a step over other devices' of the same kind, where the source has measured its own products
    loaded_whole : its scripts bring the whole model to every GPU before ZeRO-3 shards it, which peaks of whole runs count
    polls : what a micro-batch of those runs takes longer at least that polled for the messages of their pipeline [s]; 0: none did
    trainer : its own, by the habits of the rows' stack: buffers and temporaries are that one's, and say nothing of the stack's
    """

    habits: Mapping[str, object] = dataclasses.field(default_factory=dict)
    vocabulary: int = 0
    classic: bool = False
    software: str = ""
    releases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    like: str = ""
    untuned: bool = False
    logging_stage: int = -1
    lora_targets: tuple[str, ...] = ()
    adapter_habits: Mapping[str, object] = dataclasses.field(default_factory=dict)
    cumulative: tuple[str, ...] = ()
    decimal: bool = False
    memory_kind: str = ""
    trainer: str = ""
    recompute: str | int = "none"
    reduced: Mapping[int, float] = dataclasses.field(default_factory=dict)
    untied: bool = False
    clock: float = 1.0
    loaded_whole: bool = False
    polls: float = 0.0


DATASETS = {
    # Hagemann et al. 2023 (arXiv 2311.05610): an own trainer after Megatron-LM, with ZeRO-1, 16-bit gradients and the
    # whole vocabulary on every rank; that many tokens reproduce the source's own MFU. Its rotation and activation are separate
    # kernels (Aleph-Alpha/scaling@737f855 src/scaling/core/nn/mlp.py, rotary.py)
    "alephalpha_layouts": Dataset(
        {
            "gather_logits": True, "fused_norms": False, "sequence_parallel": False, "gradient_bytes": 2.0,
            "reduce_bytes": 2.0, "attention": "flash", "scatter_boundary": False, "logit_bytes": 16.0,
            "fused_accumulation": False, "keep_rotated": True, "keep_activated": True,
        },
        vocabulary=128_000, trainer="aleph-alpha",
    ),
    # mosaicml/llm-foundry@8bcf644 scripts/train/benchmarking/submit_benchmarks.py, until March 2024: ``--attn_impl`` is "triton"
    "llmfoundry": Dataset({"first_flash": True}),
    # Megatron-LM's functional tests run Megatron-Core with nothing tuned: plain data parallelism, and two thirds of them with
    # ``--no-gradient-accumulation-fusion``
    "megatron_ci_golden": Dataset(
        {"zero_stage": 0, "overlap_gradients": False, "overlap_parameters": False, "fused_accumulation": False},
        classic=True, untuned=True,
    ),
    # NVIDIA-NeMo/Megatron-Bridge@067f987df0 src/megatron/bridge/perf_recipes/llama (``cfg.peft.target_modules``); NeMo before
    # it has the same one, ``lora_tuning.target_modules: [attention_qkv]``
    "nvidia_perf": Dataset(lora_targets=("fused",)),
    "dgxc_benchmarking": Dataset(lora_targets=("fused",)),
    # mlcommons/training_results_v4.0@62f111b NVIDIA/benchmarks/llama2_70b_lora/implementations/nemo/conf/
    # megatron_gpt_peft_tuning_config.yaml: adapters of the attention's products, the frozen weights in 8 bit (``fp8_params``),
    # transposed when needed (``disable_parameter_transpose_cache``); mlcommons/training_results_v5.0@0fdc28f has the same
    # AMD and its partners recompute 21 of 80 layers, about every fourth, which the rows leave out: ``ACG=full``, ``ACM=block``,
    # ``ACL=21`` (config_MI300X_1x8x1.sh and _2x8x1.sh)
    # adapters drop out 0.1 of their inputs (mlcommons/training@00baefa llama2_70b_lora/README.md: ``--lora_dropout 0.1``)
    "mlperf": Dataset(
        lora_targets=("fused", "output"), adapter_habits={"parameter_bytes": 1.0, "adapter_dropout": True}, recompute=4,
    ),
    # MooreThreads/SimuMax@4dcaae513b configs/system/b200_bf16_ceperm.json: 514 products of its own machine, in any layout, take
    # 1.40 times what they take on the B200 that the catalogue's was measured on in short bursts; experts' 1.4 too. Each was run
    # a hundred times on end (simu_tools/efficency_test/test_gemm_efficiency.py), a tenth of a second: part of the 1.40 is what
    # any B200 loses in a step, 0.81 of its clock by other sources. Half way
    "simumax_b200": Dataset(clock=0.8),
    # Oneflow-Inc/DLPerf@10f7979 Megatron-LM/scripts/mutil_perf_pretrain_gpt_dp_mp_pp.sh: ``--checkpoint-activations``
    "oneflow_libai": Dataset(recompute="full"),
    # foundation-model-stack/fms-acceleration@01e0035 scripts/benchmarks/scenarios.yaml: ``target_modules``
    "finetune_memory_fms": Dataset(lora_targets=("query", "key", "value", "output")),
    # modelscope/swift swift/llm/utils/model.py (``LoRATM``): DEFAULT are the projections of queries, keys and values
    # under autocast: logits in 16 bits and their shifted copy, both of them, their log-softmax and its two gradients in 32
    # (huggingface/accelerate src/accelerate/utils/operations.py, ``convert_outputs_to_fp32``)
    # its samples are of lengths between some tens and 8,192 tokens, unpacked, and blocks of each length stay reserved
    "ms_swift": Dataset({"logit_bytes": 20.0}, lora_targets=("query", "key", "value"), trainer="ms-swift"),
    # QwenLM/Qwen README: a 72B model in bf16 (144.6e9 bytes) generates 2,048 tokens in "144.69GB", one of 14B (28.3e9) in
    # "30.15GB"; its fine-tunes hold 1.6 GB and more over their tensors whatever the model, as processes are counted;
    # QwenLM/Qwen@2df8e8a finetune/ds_config_zero2.json, ds_config_zero3.json (``reduce_bucket_size``)
    # its image installs flash-attention's norms, which the model then calls (docker/Dockerfile; modeling_qwen.py, ``RMSNorm``)
    "qwen_finetune": Dataset({"fused_norms": True}, decimal=True, memory_kind="process", reduced={2: 2e8, 3: 0.0}),
    # Lightning-AI/litgpt@2685705 litgpt/finetune: eager PyTorch, weights, gradients and Adam's moments in bf16 ("bf16-true");
    # litgpt/model.py: norms cast to 32 bit, values are a view of the fused product of queries, keys and values, which lives on
    # beside the rotated ones, keys and values are expanded, a gated MLP keeps its activated gate; pyproject.toml pins
    # bitsandbytes 0.42, whose 4-bit products keep their inputs; a head that a checkpoint shares with the embedding is copied
    # (litgpt/scripts/convert_hf_checkpoint.py)
    # ``lora_dropout`` is 0.05 (litgpt/finetune/lora.py)
    "litgpt_finetune": Dataset(
        {
            "fused_norms": False, "keep_rotated": True, "keep_activated": True, "keep_quantised_inputs": True,
            "adapter_dropout": True,
        },
        like="torchtune", untied=True,
    ),
    # meta-pytorch/torchtune@bd2a0fc7c3 README, optimization flags: each row of the table adds one to those above it. Its adapters
    # are those of recipes/configs/llama3_2/3B_lora_single_device.yaml.
    # stas00/ml-engineering@744d01e18b insights/when-to-upgrade-gpus: benchmark.py and bench_decompose.py log
    # ``max_memory_reserved``; the former makes the model outside ``zero.Init``, so that ``deepspeed.initialize`` brings it
    # to the GPU whole (deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/engine.py, ``_configure_distributed_model``)
    "misc_training": Dataset(
        cumulative=(
            "packed", "compile", "chunked ce", "activation checkpointing", "optimizer in backward", "activation offloading",
            "8-bit adamw", "lora", "qlora",
        ),
        memory_kind="reserved", loaded_whole=True, lora_targets=("query", "value", "output", "gate", "up", "down"),
    ),
    # Narayanan et al. 2021 (arXiv 2104.04473) table 2, the only rows of the papers that DeepSpeed ran
    "papers": Dataset(releases={"deepspeed": "deepspeed-2021"}),
    # PyTorch's DistributedDataParallel under torch.compile, norms and loss inside it (KellerJordan/modded-nanogpt train_gpt2.py,
    # ``GPT.forward``), and llm.c, whose classifier is one kernel: nearest to FSDP2 without sharding
    "modded_nanogpt": Dataset({"zero_stage": 0, "fused_norms": True, "fused_cross_entropy": True}, software="fsdp2"),
    # Hugging Face's trainer and model of transformers 4.39, the model in 32 bit, gathered in 16 and its gradients summed in 32
    # (yandex/YaFSDP@669fc36 patches/transformers.diff: ``MixedPrecision``, ``flash_attention_2``; examples/clm.md)
    "yafsdp": Dataset(
        {"gradient_bytes": 4.0, "reduce_bytes": 4.0, "optimizer_bytes": 10.0, "update_bytes": 4.0}, software="hf-fsdp",
    ),
    # nvidia-smi on the first node (bigscience-workshop/bigscience@1b92f33 train/tr11-176B-ml/chronicles-prequel.md: ``pdsh -w
    # jean-zay-iam01``); on tr3m's pages memory grows with the micro-batch by what a stage before the last holds of one
    "bigscience": Dataset(logging_stage=0),
    # world rank 0 writes the table of a benchmark (huggingface/nanotron src/nanotron/helpers.py, ``log_throughput``)
    # on the branch of its benchmarks a rank of a pipeline polls for each of its messages every 0.1 s, twice a message
    # (huggingface/nanotron@67c5ebb src/nanotron/parallel/pipeline_parallel/p2p.py, ``is_completed``)
    "nanotron_ultrascale": Dataset(logging_stage=0, polls=0.4),
}  # fmt: skip
"""Sources with habits of their own."""

SOFTWARE = {"aleph-alpha": "megatron-lm-2023", "megatron-core-ci": "megatron-core"}
"""Software behind words that name a source."""
STACKS = (
    "megatron-lm-2021", "megatron-lm-2023", "megatron-core", "megatron-deepspeed", "nemo", "nanotron", "fsdp1", "fsdp2",
    "deepspeed", "hf-trainer", "internevo", "oneflow", "maxtext", "torchtune",
)  # fmt: skip
"""Frameworks of the catalogue that the vocabulary of rows names."""
NEAREST = "megatron-core"
"""Framework of a stack that the catalogue doesn't have."""
GRADIENT_OF_ONE_TENSOR = 0.01
"""Bytes of gradient per parameter where each is freed by its own update: of a hundred tensors and more one is whole."""
CAST, COPIED, ADDED = 6.0, 8.0, 12.0
"""Bytes that one kernel moves between 16 and 32 bits, from 32 to 32, and to add two of 32 [bytes an element]."""
FP16_OPTIMIZER = {
    "gradient_bytes": 2.0, "backward_gradient_bytes": 0.0, "reduce_bytes": 2.0, "update_bytes": 8.0, "flat_gradient_bytes": 2.0,
}  # fmt: skip
"""DeepSpeed's optimizer for fp16 of 2021, where the one for bf16 keeps whole gradients in 32 bit: all gradients are laid out flat
to be scattered, those of its shard are cast to 32 bit and laid out flat in turn (microsoft/DeepSpeed@0420d51
deepspeed/runtime/zero/stage1.py, ``reduce_scatter_gradients`` and ``get_flat_sub_partitions``; BLOOM's chronicles have both, 44
GB in fp16 and 67 in bf16 of one plan)."""
IN_PLACE_LOSS = 8.0
"""Bytes per logit where transformers makes a 32-bit copy of the logits that fms-acceleration's kernel overwrites by their
gradient: the copy, the logits in 16 bits and the gradient in 16 bits."""
UPCAST = {"gradient_bytes": 4.0, "optimizer_bytes": 10.0, "update_bytes": 4.0, "logit_bytes": IN_PLACE_LOSS}
"""FSDP as accelerate prepares it: weights that train are held in 32 bit, and gathered in 16 (the optimizer's part has the two
bytes more): 20 bytes a parameter at the update, 67.46 GiB of a Mistral 7B on 2 GPUs, 33.74 on 4; its loss is in place there
(huggingface/accelerate@16cb6eb src/accelerate/accelerator.py; foundation-model-stack/fms-acceleration@876e2ed
scripts/benchmarks/refs/a100_80gb_liger.csv)."""
ACCUMULATING = "Megatron-LM 2022"
"""Release whose products of weight gradients add them (NVIDIA/Megatron-LM@83b1e42, of February 2022)."""
COMPILED_LOSSES = ("torchtitan e7c0cae",)
"""Releases that compile the loss with the model (pytorch/torchtitan torchtitan/components/loss.py, ``build_cross_entropy_loss``);
that of December 2024 leaves it eager."""
COMPILED_LOSS = 4.0
"""Bytes per logit of a compiled loss: the logits in 16 bits and their gradient; what is in 32 stays in registers."""
DISPATCHERS = ("hybridep", "deepep", "alltoall", "allgather")
"""Ways of carrying tokens to experts, in the order in which a row's words are searched."""
ONCE_A_RANK = DISPATCHERS[:2]
"""Those that send a token once to each rank that needs it."""


def dataset_of(run: Run) -> Dataset:
    """What holds for every row of a run's source.

    Parameters
    ----------
    run : a row
    """
    return DATASETS.get(run.text["dataset"], Dataset())


def software_of(run: Run) -> str | None:
    """Name in the catalogue of the software that made a row; None where it has it not.

    Parameters
    ----------
    run : a row
    """
    if is_old_zero(run) or "hf + deepspeed zero 3" in run.text["framework"].lower():  # of May 2021, beside Megatron's old branch
        return "deepspeed-2021"
    stack = run.text["stack"]
    dataset = dataset_of(run)
    return dataset.software or dataset.releases.get(stack) or SOFTWARE.get(stack, stack if stack in STACKS else None)


def framework_of(run: Run, architecture: str, network: str) -> Framework:
    """The framework of a row's stack with the habits of its source.

    Parameters
    ----------
    run : a row
    architecture : of its devices
    network : kind of network between its nodes
    """
    name = software_of(run) or dataset_of(run).like or NEAREST
    if name == "hf-trainer" and "fsdp" in run.text["fsdp_mode"].lower():
        name = "hf-fsdp"
    habits = {**dataset_of(run).habits, **(dataset_of(run).adapter_habits if run.flag("adapter_tuning") else {})}
    if "optimizer in backward" in words_of(run):  # a gradient lives until its own update, which the backward pass makes
        habits["gradient_bytes"] = GRADIENT_OF_ONE_TENSOR
    if name == "megatron-deepspeed" and run.text["compute_dtype"] == "fp16":
        habits |= FP16_OPTIMIZER
    if run.text["stack"] in ("fsdp2", "torchtune") and "compile" not in words_of(run):
        habits["keep_activated"] = True  # a product of a gate and its partner keeps both; compiled, what is cheap is made again
    if ACCUMULATING in run.text["framework"]:
        habits["fused_accumulation"] = True
    if name == "hf-fsdp" and upcasts(run):
        habits |= UPCAST
    plugin = has_accelerated_kernels(run)
    if plugin or uses_liger(run):
        habits["keep_rotated"] = False
    if uses_liger(run) and not plugin:
        habits["keep_activated"] = False
    if any(release in run.text["framework"] for release in COMPILED_LOSSES) and "compile" in words_of(run):
        habits["logit_bytes"] = COMPILED_LOSS
    if re.search(r"FA[34]", run.text.get("flash_attention", "")) or has_new_attention(run):
        habits["older_flash"] = False
    if "autocast" in run.text.get("precision", ""):
        habits["weight_traffic"] = autocast_traffic(run)
    if plugin and name == "hf-trainer":
        habits["logit_bytes"] = IN_PLACE_LOSS
    return changed(load_framework(name, architecture, network), habits)


def autocast_traffic(run: Run) -> float:
    """Bytes that PyTorch's DistributedDataParallel moves of each weight in a micro-batch under autocast, weights in 32 bits.

    Forward the weight is cast; backward its gradient is cast, added to that of earlier micro-batches, copied into its bucket and
    back, and divided by their number once a step. Forward passes outside ``no_sync`` have gradients summed after each of them
    (KellerJordan/modded-nanogpt@f411b3d records/track_1_short, the training section of every log; pytorch/pytorch
    torch/nn/parallel/distributed.py, ``no_sync``; torch/csrc/distributed/c10d/reducer.cpp, ``mark_variable_ready_dense``).

    Parameters
    ----------
    run : a row
    """
    number = run.number
    turns = number["global_batch"] / number["micro_batch"] / number.get("dp", 1.0)
    return CAST + CAST + 2.0 * COPIED + (COPIED + ADDED * (turns - 1.0)) / turns


CHECKING = {
    # NVIDIA/Megatron-LM@d98e8a6 megatron/core/transformer/attention.py (``run_realtime_tests``)
    "qk_layernorm_test_mode": "--test-mode: every layer compares its weights of norms over the ranks, on the host",
    # the same, tests/functional_tests/test_cases/moe/gpt3_moe_mcore_te_ep8_resume_torch_dist_muon/model_config.yaml
    "ep8_resume_torch_dist_muon": "--check-weight-hash-across-dp-replicas-interval 1: every step hashes all weights on the host",
}
"""Of Megatron-Core's own tests, those whose every step does more than train."""
POLLED = 32
"""Tensor ranks of nanotron's runs that all poll for the messages of their pipelines: none is there to compare them with."""
SAMPLES = 1000
"""Of an epoch whose time bigscience gives for Hugging Face's trainer (bigscience-workshop/bigscience@1b92f33 experiments/
gpt2-hf-ds, ``--max_train_samples``)."""


def untimed(run: Run) -> str:
    """Why a row's time is not that of a training step of its plan; empty where it is.

    Parameters
    ----------
    run : a row
    """
    dataset, text, number = run.text["dataset"], run.text, run.number
    if dataset == "megatron_ci_golden":
        return next((why for name, why in CHECKING.items() if name in text["model_name"]), "")
    if dataset == "nanotron_ultrascale":
        tensor, pipeline = number.get("tp", 1.0), number.get("pp", 1.0)
        polled = tensor >= POLLED and pipeline > 1.0
        return "messages of its pipeline are polled for every 0.1 s" if polled else ""
    if text["framework"].lower().startswith("hf + deepspeed zero 3"):
        share = math.ceil(SAMPLES / number["n_gpus"])
        if share % number["micro_batch"]:
            return "the last step of its short epoch is a smaller one"
    return ""


def dispatcher_of(run: Run) -> str:
    """How a row, or its recipe, says that tokens reach their experts; empty where it doesn't.

    Models whose name says that tokens are dropped have a dispatcher that can (NVIDIA-NeMo/Megatron-Bridge@v0.1.0rc4
    src/megatron/bridge/training/utils/moe_token_drop.py:39).

    Parameters
    ----------
    run : a row
    """
    if re.search(r"token[ -]?drop(?!less)", run.text["model_name"].lower()):
        return "alltoall"
    said = (run.text.get("notes", ""), run.text["framework"], run.text.get("overlap", ""), recipe_of(run).dispatcher)
    words = " ".join(said).lower()
    return next((name for name in DISPATCHERS if name in words.replace("-", "").replace("_", "")), "")


def overlaps_experts(run: Run) -> bool:
    """Whether a row, or its recipe, says that tokens travel beside another micro-batch's work.

    Parameters
    ----------
    run : a row
    """
    return recipe_of(run).overlap_experts or re.search(r"\bep overlap", words_of(run)) is not None


def context_communication_of(run: Run) -> str | None:
    """What context ranks exchange, where a row says so in Megatron's word.

    Parameters
    ----------
    run : a row
    """
    said = re.search(r"cp[-_]comm[-_]type\W{1,4}([\w+]+)", run.text.get("notes", ""))
    return COMMUNICATIONS.get(said[1]) if said else None


SERIAL = re.compile(r"v4\.0.*(?:XE9680x8|GX2560M7|AS-8125GS)|v4\.1.*(?:XE8640x4|XE9640x4)")
"""Rounds and machines of MLPerf whose configurations turn off what NeMo overlaps of tensor parallelism
(mlcommons/training_results_v4.0@6fe9543 and v4.1@b87b9e3, llama2_70b_lora, ``TP_COMM_OVERLAP=False``)."""
CAPTURED, CAPTURED_LATER = re.compile(r"config_\w+_cg\b"), re.compile(r"config_DGXH100_\d+x8x1xtp4pp1cp2")
"""Configurations of MLPerf that launch layers as graphs: by their name, and from round 4.1 on (v4.1@b87b9e3, llama2_70b_lora,
``LAYER_CUDA_GRAPH=1``)."""


def exchanges_apart(run: Run) -> bool:
    """Whether a row's configuration says that products don't hide what tensor ranks exchange.

    Parameters
    ----------
    run : a row
    """
    return SERIAL.search(run.text.get("source", "") + run.text.get("source_location", "")) is not None


def is_captured(run: Run) -> bool:
    """Whether a row's configuration of MLPerf launches every layer as a graph.

    Parameters
    ----------
    run : a row
    """
    derived = run.text.get("derived", "")
    later = re.search(r"training_results_v(?:4\.[1-9]|[5-9])", run.text.get("source", "")) is not None
    return CAPTURED.search(derived) is not None or (later and CAPTURED_LATER.search(derived) is not None)


MUON_DEALT = "2024-10-17"
"""From which record on modded-nanogpt deals Muon's matrices to the GPUs (records/track_1_short/2024-10-17_DistributedMuon)."""


def deals_muon(run: Run) -> bool:
    """Whether Muon's matrices, and its momentum with them, are dealt to the GPUs, as ZeRO-1 deals states.

    Parameters
    ----------
    run : a row
    """
    record = re.search(r"track_1_short/(\d{4}-\d\d-\d\d)_", run.text.get("source_location", ""))
    return record is not None and record[1] >= MUON_DEALT and "muon" in run.text.get("optimizer", "").lower()


def words_of(run: Run) -> str:
    """Notes of a row in lower case; where rows of its source add up, with what those before it changed.

    Parameters
    ----------
    run : a row
    """
    notes, steps = run.text.get("notes", "").lower(), dataset_of(run).cumulative
    if "(cumulative)" not in notes:
        return notes
    reached = max((place for place, step in enumerate(steps) if step in notes), default=-1)
    return "; ".join((notes, *steps[:reached]))


def has_new_attention(run: Run) -> bool:
    """Whether scaled dot-product attention is cuDNN's: PyTorch 2.5 first takes it on Hopper, llm.c is built with it.

    PyTorch 2.5.0's release notes; 2.5.1 takes it where it is enabled, as KellerJordan/modded-nanogpt@f411b3d does in
    records/track_1_short/2024-11-03_UntieEmbed; karpathy/llm.c@f1e2ace scripts/run_gpt2_124M.sh (``USE_CUDNN=1``).

    Parameters
    ----------
    run : a row
    """
    return run.text["dataset"] == "modded_nanogpt" and ("torch 2.5" in words_of(run) or run.text["stack"] == "llm.c")


def upcasts(run: Run) -> bool:
    """Whether a full fine-tune under FSDP is of the second campaign of its source, with an accelerate that upcasts.

    Parameters
    ----------
    run : a row
    """
    second = "a100_80gb_liger" in run.text.get("source_location", "")
    return second and not run.flag("adapter_tuning")


def memory_kind(run: Run) -> str:
    """What a row's peak memory counts, in the rows' words: by itself, or as its source logs it.

    Parameters
    ----------
    run : a row
    """
    said = run.text["memory_kind"]
    return dataset_of(run).memory_kind or said if said in ("", "unstated") else said


def uses_liger(run: Run) -> bool:
    """Whether a run names Liger's kernels: the loss, and but for fms-acceleration's plugin norms, rotation and gated activation.

    linkedin/Liger-Kernel@ead96b6 src/liger_kernel/ops

    Parameters
    ----------
    run : a row
    """
    words = words_of(run) + run.text["framework"].lower()
    return "liger" in words and "without liger" not in words


def bucket_bytes(run: Run, stage: int | None, framework: Framework) -> float | None:
    """Bytes of a bucket of gradients by the configuration of a row's source; None where it has the framework's default.

    Parameters
    ----------
    run : a row
    stage : of ZeRO
    framework : that it ran
    """
    elements = dataset_of(run).reduced.get(stage or 0) if framework.buckets == "deepspeed" else None
    return None if elements is None else framework.reduce_bytes * (elements or run.number["hidden"] ** 2)


def offloads_checkpoints(run: Run) -> bool:
    """Whether a run of Megatron's old branch with ZeRO-3 keeps the inputs of its recomputed layers on the host.

    bigscience-workshop/bigscience@1b92f33 experiments/gpt2-meg-ds-zero/meg_ds_zero_gpt2_perf_n16.slurm: ``--zero-stage 3``,
    ``--checkpoint-in-cpu`` but where a row says ``PA_CPU=N``.

    Parameters
    ----------
    run : a row
    """
    return is_old_zero(run) and "pa_cpu=n" not in words_of(run)


def is_old_zero(run: Run) -> bool:
    """Whether a run is of Megatron's old branch with DeepSpeed's ZeRO-3, as its source names it.

    Parameters
    ----------
    run : a row
    """
    return "deepspeed zero (old branch)" in run.text["framework"].lower()


def has_accelerated_kernels(run: Run) -> bool:
    """Whether a fine-tune names fms-acceleration's fused operations and kernels (its plugin ``foak``): norms, rotation and loss.

    foundation-model-stack/fms-acceleration@876e2ed plugins/fused-ops-and-kernels/README.md

    Parameters
    ----------
    run : a row
    """
    return "foak" in run.text["framework"].lower()
