"""What a question takes of a step's work where nothing is said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costmodel.description.transformer import Transformer

BATCH, LENGTH = 256, 4096
"""Sequences of a step and tokens of a sequence that are taken where they aren't said."""
ADAPTED_BATCH, ADAPTED_LENGTH = 16, 2048
"""The same of a fine-tune."""
UNSAID, ADAPTING = "megatron-core", "hf-trainer"
"""Software that is asked about where none is said, and of adapters, which what pre-trains has few of."""
CHECKPOINTED = ("qlora", "gptq-lora")
"""Adapters whose layers that software recomputes unless it is told not to: huggingface/peft src/peft/utils/other.py
(``prepare_model_for_kbit_training``, ``use_gradient_checkpointing=True``)."""


def usual_batch(gpus: int, adapted: bool = False) -> int:
    """Sequences of a step where they aren't said, which split over all GPUs.

    Parameters
    ----------
    gpus : that share them
    adapted : adapters alone are trained

    Examples
    --------
    >>> usual_batch(8), usual_batch(96), usual_batch(1, adapted=True)
    (256, 288, 16)
    """
    return gpus * -(-(ADAPTED_BATCH if adapted else BATCH) // gpus)


def usual_length(model: Transformer, adapted: bool = False) -> int:
    """Tokens of a sequence where they aren't said, no more than the model has learned.

    Parameters
    ----------
    model : what is trained
    adapted : adapters alone are trained
    """
    return no_longer(model, ADAPTED_LENGTH if adapted else LENGTH)


def no_longer(model: Transformer, length: int) -> int:
    """A length, or what the model has learned, if that is less [tokens].

    Parameters
    ----------
    model : what is trained
    length : that is usual [tokens]
    """
    return min(length, model.learned_positions or length, model.trained_length or length)


__all__ = [
    "ADAPTED_BATCH", "ADAPTED_LENGTH", "ADAPTING", "BATCH", "CHECKPOINTED", "LENGTH", "UNSAID", "no_longer", "usual_batch",
    "usual_length",
]  # fmt: skip
