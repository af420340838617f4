"""What a source's rows leave out, by dataset: the software that ran, its release, its habits, and what it logs.

A dataset is not a framework: whatever holds for one source only is said here, and the catalogue's frameworks are those
that one can install.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

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
    untuned : deterministic kernels, tiny models, nothing tuned: a framework's own tests, whose host times are not a user's
    logging_stage : of the pipeline, whose rank logs its memory; -1: the fullest
    """

    habits: Mapping[str, object] = dataclasses.field(default_factory=dict)
    vocabulary: int = 0
    classic: bool = False
    software: str = ""
    untuned: bool = False
    logging_stage: int = -1


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
    return dataset_of(run).software or SOFTWARE.get(stack, stack if stack in STACKS else None)


def framework_of(run: Run, architecture: str) -> Framework:
    """The framework of a row's stack with the habits of its source.

    Parameters
    ----------
    run : a row
    architecture : of its devices
    """
    name = software_of(run) or NEAREST
    if name == "hf-trainer" and "fsdp" in run.text["fsdp_mode"].lower():
        name = "hf-fsdp"
    return changed(load_framework(name, architecture), dataset_of(run).habits)


def dispatcher_of(run: Run) -> str:
    """How a row says that tokens reach their experts; empty where it doesn't.

    Parameters
    ----------
    run : a row
    """
    words = " ".join((run.text.get("notes", ""), run.text["framework"], run.text.get("overlap", ""))).lower()
    return next((name for name in DISPATCHERS if name in words.replace("-", "").replace("_", "")), "")


def has_accelerated_kernels(run: Run) -> bool:
    """Whether a fine-tune names fms-acceleration's fused operations and kernels (its plugin ``foak``).

    Parameters
    ----------
    run : a row
    """
    return "foak" in run.text["framework"].lower()
