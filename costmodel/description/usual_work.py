"""What a question takes of a step's work where nothing is said of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from costmodel.description.platforms import OF_ARCHITECTURES

if TYPE_CHECKING:
    from costmodel.description.transformer import Transformer

BATCH, LENGTH = 256, 4096
"""Sequences of a step and tokens of a sequence that are taken where they aren't said."""
ADAPTED_BATCH, ADAPTED_LENGTH = 16, 2048
"""The same of a fine-tune."""
UNSAID, ADAPTING = "megatron-core", "hf-trainer"
"""Software that is asked about where none is said, and of adapters, which what pre-trains has few of."""
USUAL_ON = {"tpu": "maxtext", "trainium": "fsdp2", "intel": "fsdp2"}
"""What takes its place on platforms on which it doesn't train: awsdocs-neuron.readthedocs-hosted.com, training.html (TorchTitan
Neuron); pytorch/torchtitan README.md."""
OF_ADAPTERS = ("lora_rank", "lora_targets", "adapter_dropout")
"""Fields of a plan that say it has adapters."""
CHECKPOINTED = ("qlora", "gptq-lora", "int8-lora")
"""Adapters whose layers that software recomputes unless it is told not to: huggingface/peft src/peft/utils/other.py
(``prepare_model_for_kbit_training``, ``use_gradient_checkpointing=True``)."""


def adapts(kinds: object) -> bool:
    """Whether adapters alone are trained.

    Parameters
    ----------
    kinds : of adapters that a question says, one or several; None where it says none

    Examples
    --------
    >>> adapts("lora"), adapts(["none", "lora"]), adapts(None)
    (True, False, False)
    """
    several = kinds if isinstance(kinds, list | tuple) else [kinds]
    return all(kind not in (None, "none") for kind in several)


def usual_gpus(kinds: object) -> int:
    """GPUs of a kind that are compared where a question doesn't say how many: for adapters one, for whole models eight.

    Parameters
    ----------
    kinds : of adapters, as `adapts` takes them

    Examples
    --------
    >>> usual_gpus("qlora"), usual_gpus(None)
    (1, 8)
    """
    return 1 if adapts(kinds) else 8


def usual_software(architecture: str) -> str:
    """The software that is asked about where none is said, on devices of an architecture.

    Examples
    --------
    >>> usual_software("hopper"), usual_software("tpu")
    ('megatron-core', 'maxtext')
    """
    return USUAL_ON.get(OF_ARCHITECTURES.get(architecture, ""), UNSAID)


def usual_choices(choices: Mapping[str, object]) -> dict[str, str]:
    """What is taken where no software is said: of adapters what is made for them, and recomputation as it trains them.

    A search tries recomputation itself: it gives several values of a field, or none, and takes the software alone.

    Parameters
    ----------
    choices : fields of a plan that are said, by their names

    Examples
    --------
    >>> usual_choices({"adapter": "qlora"}), usual_choices({"adapter": ["qlora"]}), usual_choices({"tensor_parallel": 2})
    ({'framework': 'hf-trainer', 'recompute': 'full'}, {'framework': 'hf-trainer'}, {})
    """
    if not adapts(choices.get("adapter")):
        return {}
    recomputed = choices["adapter"] in CHECKPOINTED and choices.get("recompute") is None
    return {"framework": ADAPTING, **({"recompute": "full"} if recomputed else {})}


def implied_choices(choices: Mapping[str, object]) -> dict[str, str]:
    """What choices that only adapters have say of a plan that names no adapter: LoRA.

    Examples
    --------
    >>> implied_choices({"lora_rank": 16}), implied_choices({"lora_rank": 16, "adapter": "qlora"})
    ({'adapter': 'lora'}, {})
    >>> implied_choices({"adapter_dropout": True}), implied_choices({"adapter_dropout": False})
    ({'adapter': 'lora'}, {})
    """
    said = {name for name, value in choices.items() if value is not None and value is not False}
    return {"adapter": "lora"} if said.intersection(OF_ADAPTERS) and "adapter" not in said else {}


def least_batch(gpus: int, choices: Mapping[str, object]) -> int:
    """Sequences of a step that give each GPU one micro-batch, of any of the sizes that are said.

    Parameters
    ----------
    gpus : that may all be replicas
    choices : fields of a plan that are said, by their names: one value or several of each

    Examples
    --------
    >>> least_batch(8, {}), least_batch(8, {"micro_batch": 2}), least_batch(8, {"micro_batch": [2, 3]})
    (8, 16, 48)
    """
    said = choices.get("micro_batch")
    sizes = [one for one in (said if isinstance(said, list | tuple) else [said]) if isinstance(one, int)]
    each = math.lcm(*sizes)
    return gpus * each if 0 < each <= ADAPTED_BATCH * BATCH else gpus  # what is no size is refused where the plan is made


def usual_batch(gpus: int, choices: Mapping[str, object]) -> int:
    """Sequences of a step where they aren't said, which split over all GPUs into the micro-batches that are.

    Parameters
    ----------
    gpus, choices : as of `least_batch`

    Examples
    --------
    >>> usual_batch(8, {}), usual_batch(96, {}), usual_batch(1, {"adapter": "lora"}), usual_batch(8, {"micro_batch": 3})
    (256, 288, 16, 264)
    """
    least = least_batch(gpus, choices)
    return least * -(-(ADAPTED_BATCH if adapts(choices.get("adapter")) else BATCH) // least)


def usual_length(model: Transformer, adapted: bool = False) -> int:
    """Tokens of a sequence where they aren't said, no more than the model has learned."""
    return no_longer(model, ADAPTED_LENGTH if adapted else LENGTH)


def no_longer(model: Transformer, length: int) -> int:
    """A length, or what the model has learned, if that is less [tokens].

    Parameters
    ----------
    model : what is trained
    length : that is usual [tokens]
    """
    return min(length, model.learned_positions or length, model.trained_length or length)
