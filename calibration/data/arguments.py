"""Megatron's command-line arguments that a measured row's notes quote, as fields of a model and of a plan."""

from __future__ import annotations

import json
import re

from calibration.data.runs import Run
from costmodel.arithmetic.named_tuples import changed
from costmodel.description.transformer import Transformer
from costmodel.interop.launchers.dialects import megatron
from costmodel.text.errors import InvalidValue, NotModelled

ATTENTION = {"flash": "flash", "fused": "flash", "auto": "flash", "unfused": "fused-softmax", "local": "fused-softmax"}
"""Attention kind of Megatron's ``--attention-backend``; what it calls unfused saves the scores, its softmax is one kernel."""
LATENT = {"q-lora-rank": 0, "kv-lora-rank": 32, "qk-head-dim": 128, "qk-pos-emb-head-dim": 64, "v-head-dim": 128}
"""Sizes of latent attention, with Megatron's defaults."""
OFFLOADED = 7
"""Modules whose inputs Megatron can offload."""
STEADY = 1.25
"""Median of a run's steps over the fastest of them, up to which it says what a step takes. Megatron's own tests on part of a
node share its host with others: there the median is up to five times the fastest, and twenty times what the same test takes on
whole nodes, where nine runs in ten stay within 1.1."""


def arguments_of(run: Run) -> dict[str, object]:
    """Arguments by name; empty where the notes quote none.

    Raises
    ------
    InvalidValue
        where the notes begin as arguments do and can't be read
    """
    notes = run.text.get("notes", "")
    if not notes.startswith("{"):
        return {}
    try:
        found = json.loads(notes)
    except json.JSONDecodeError as error:
        raise InvalidValue("notes", notes[:40], "arguments as JSON") from error
    assert isinstance(found, dict)  # it begins with a brace
    return found


def is_steady(run: Run) -> bool:
    """Whether the median of a run's steps is near the fastest, where the notes quote that; else it waited for something else.

    Parameters
    ----------
    run : a row
    """
    fastest = arguments_of(run).get("t_min")
    return not isinstance(fastest, int | float) or run.number.get("step_time_s", 0.0) <= STEADY * fastest


def _count(arguments: dict[str, object], name: str, default: int = 0) -> int:
    value = arguments.get(name, default)
    try:
        return int(value if isinstance(value, int | float) else str(value))
    except ValueError as error:
        raise InvalidValue(name, value, "a whole number") from error


def _dense_layers(frequency: object) -> int:
    """Layers without experts that ``--moe-layer-freq`` puts first.

    Examples
    --------
    >>> _dense_layers(1), _dense_layers("([0]*3+[1]*12)")
    (0, 3)
    """
    text = str(frequency)
    if text == "1":  # every layer has experts
        return 0
    match = re.fullmatch(r"\(\[0\]\*(\d+)\+\[1\]\*\d+\)", text)
    if not match:
        raise NotModelled(f"moe-layer-freq={text}: layers with and without experts in turns")
    return int(match.group(1))


def with_arguments(model: Transformer, arguments: dict[str, object]) -> Transformer:
    """The model with the shape that arguments state."""
    changes: dict[str, object] = {"gated": "swiglu" in arguments}
    if changes["gated"]:
        changes["feed_forward_bias"] = False
    if "untie-embeddings-and-output-weights" in arguments:
        changes["tied_embeddings"] = False
    if arguments.get("position-embedding-type", "learned_absolute") != "learned_absolute":
        changes["learned_positions"] = 0
    if "qk-layernorm" in arguments:
        changes["qk_norm"] = "head"
    if "kv-channels" in arguments:
        changes["head_dim"] = changes["value_head_dim"] = _count(arguments, "kv-channels")
    if "multi-latent-attention" in arguments:
        size = {name: _count(arguments, name, default) for name, default in LATENT.items()}
        changes |= {
            "query_latent": size["q-lora-rank"], "kv_latent": size["kv-lora-rank"],
            "rope_head_dim": size["qk-pos-emb-head-dim"], "head_dim": size["qk-head-dim"] + size["qk-pos-emb-head-dim"],
            "value_head_dim": size["v-head-dim"], "attention_bias": False, "qk_norm": "none",
        }  # fmt: skip
    if "mtp-num-layers" in arguments:
        changes["prediction_layers"] = _count(arguments, "mtp-num-layers")
    if model.experts:
        width = _count(arguments, "moe-ffn-hidden-size", model.expert_feed_forward)
        dense = _dense_layers(arguments.get("moe-layer-freq", 1))
        changes |= {
            "expert_feed_forward": width, "dense_layers": dense,
            "feed_forward": model.expert_feed_forward if dense else 0,
            "shared_expert_feed_forward": _count(arguments, "moe-shared-expert-intermediate-size"),
            "experts_per_token": _count(arguments, "moe-router-topk", model.experts_per_token),
        }  # fmt: skip
    return changed(model, changes)


def attention(arguments: dict[str, object]) -> str | None:
    """Attention kind of a plan; None where arguments leave the choice to TransformerEngine, or there are none."""
    local = arguments and arguments.get("transformer-impl", "local") == "local"
    return ATTENTION.get(str(arguments.get("attention-backend", "local" if local else "")))


def expert_tensor_parallel(run: Run, tensor: int, expert: int) -> int:
    """Ranks that split one expert: what the name of the run says (``etp2``), else as many as split a layer.

    Megatron-Core: ``--expert-tensor-parallel-size`` is the tensor-parallel size unless given.
    """
    named = re.search(r"_etp(\d+)", run.text["model_name"])
    return int(named.group(1)) if named and expert > 1 else tensor


def recompute(arguments: dict[str, object], stated: str | int) -> str | int:
    """The row's recomputation, by modules where ``--recompute-modules`` names them."""
    named = megatron.modules(arguments.get("recompute-modules"))
    return named if stated == "selective" and named else stated


def offloaded_share(arguments: dict[str, object]) -> float:
    """Share of saved activations that ``--offload-modules`` sends to the host, by modules."""
    if "fine-grained-activation-offloading" not in arguments:
        return 0.0
    return len(str(arguments.get("offload-modules", "")).strip("[]").split()) / OFFLOADED
