"""What a source's rows leave out, by dataset: the software that ran, its release, its habits, and what it logs.

A dataset is not a framework: whatever holds for one source only is said here, and the catalogue's frameworks are those
that one can install.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from calibration.data.recipes import recipe_of
from calibration.data.runs import Run
from costmodel.catalogue.software import load_framework
from costmodel.description.framework import Framework
from costmodel.records import changed


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
    cumulative : what rows change, in their order, where each keeps what those before it changed
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
    cumulative: tuple[str, ...] = ()


DATASETS = {
    # Hagemann et al. 2023 (arXiv 2311.05610): an own trainer after Megatron-LM, with ZeRO-1, 16-bit gradients and the
    # whole vocabulary on every rank; that many tokens reproduce the source's own MFU
    "alephalpha_layouts": Dataset(
        {
            "gather_logits": True, "fused_norms": False, "sequence_parallel": False, "gradient_bytes": 2.0,
            "reduce_bytes": 2.0, "attention": "flash", "scatter_boundary": False,
        },
        vocabulary=128_000,
    ),
    # Megatron-LM's functional tests run Megatron-Core with nothing tuned: plain data parallelism
    "megatron_ci_golden": Dataset(
        {"zero_stage": 0, "overlap_gradients": False, "overlap_parameters": False}, classic=True, untuned=True,
    ),
    # NVIDIA-NeMo/Megatron-Bridge@067f987df0 src/megatron/bridge/perf_recipes/llama (``cfg.peft.target_modules``); NeMo before
    # it has the same one, ``lora_tuning.target_modules: [attention_qkv]``
    "nvidia_perf": Dataset(lora_targets=("fused",)),
    "dgxc_benchmarking": Dataset(lora_targets=("fused",)),
    # mlcommons/training_results_v5.0@0fdc28f: the products of queries, keys and values, and of the output
    "mlperf": Dataset(lora_targets=("fused", "output")),
    # modelscope/swift swift/llm/utils/model.py (``LoRATM``): DEFAULT are the projections of queries, keys and values
    "ms_swift": Dataset(lora_targets=("query", "key", "value")),
    # Lightning-AI/litgpt@2685705 litgpt/finetune: eager PyTorch, weights, gradients and Adam's moments in bf16 ("bf16-true")
    "litgpt_finetune": Dataset(like="torchtune"),
    # meta-pytorch/torchtune@bd2a0fc7c3 README, optimization flags: each row of the table adds one to those above it
    "misc_training": Dataset(cumulative=(
        "packed", "compile", "chunked ce", "activation checkpointing", "optimizer in backward", "activation offloading",
        "8-bit adamw", "lora", "qlora",
    )),
    # Narayanan et al. 2021 (arXiv 2104.04473) table 2, the only rows of the papers that DeepSpeed ran
    "papers": Dataset(releases={"deepspeed": "deepspeed-2021"}),
    # PyTorch's DistributedDataParallel under torch.compile: nearest to FSDP2 without sharding
    "modded_nanogpt": Dataset({"zero_stage": 0}, software="fsdp2"),
    # world rank 0 writes the table of a benchmark (huggingface/nanotron src/nanotron/helpers.py, ``log_throughput``)
    "nanotron_ultrascale": Dataset(logging_stage=0),
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
FP16_OPTIMIZER = {"gradient_bytes": 2.0, "backward_gradient_bytes": 0.0, "reduce_bytes": 2.0, "update_bytes": 4.0}
"""DeepSpeed's optimizer for fp16, where the one for bf16 keeps whole gradients in 32 bit: of its shard alone it makes such a
copy, for the update (deepspeedai/DeepSpeed deepspeed/runtime/zero/stage_1_and_2.py @edaa722; BLOOM's chronicles have both, 44 GB
in fp16 and 67 in bf16 of one plan)."""
IN_PLACE_LOSS = 8.0
"""Bytes per logit where transformers makes a 32-bit copy of the logits that fms-acceleration's kernel overwrites by their
gradient: the copy, the logits in 16 bits and the gradient in 16 bits."""
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
    habits = dict(dataset_of(run).habits)
    if "optimizer in backward" in words_of(run):  # a gradient lives until its own update, which the backward pass makes
        habits["gradient_bytes"] = GRADIENT_OF_ONE_TENSOR
    if name == "megatron-deepspeed" and run.text["compute_dtype"] == "fp16":
        habits |= FP16_OPTIMIZER
    if has_accelerated_kernels(run) and name == "hf-trainer":
        habits["logit_bytes"] = IN_PLACE_LOSS
    return changed(load_framework(name, architecture, network), habits)


def dispatcher_of(run: Run) -> str:
    """How a row, or its recipe, says that tokens reach their experts; empty where it doesn't.

    Parameters
    ----------
    run : a row
    """
    said = (run.text.get("notes", ""), run.text["framework"], run.text.get("overlap", ""), recipe_of(run).dispatcher)
    words = " ".join(said).lower()
    return next((name for name in DISPATCHERS if name in words.replace("-", "").replace("_", "")), "")


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


def has_accelerated_kernels(run: Run) -> bool:
    """Whether a fine-tune names fms-acceleration's fused operations and kernels (its plugin ``foak``).

    Parameters
    ----------
    run : a row
    """
    return "foak" in run.text["framework"].lower()
