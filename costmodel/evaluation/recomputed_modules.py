"""Modules that a framework can compute again in a model's backward pass, and those among them that cost least."""

from __future__ import annotations

from costmodel.description.framework import Framework
from costmodel.description.transformer import Transformer

LIGHT = ("norms", "expert-activation", "latent-projections")
"""Modules that cost least for a byte saved: what NVIDIA-NeMo/Megatron-Bridge@067f987 src/megatron/bridge/perf_recipes recompute
in models of experts."""


def modules_of_model(model: Transformer, framework: Framework) -> list[str]:
    """Modules that the framework recomputes and the model has, those first that cost least for a byte saved.

    Examples
    --------
    >>> from costmodel import load_framework, load_model
    >>> modules_of_model(load_model("mixtral-8x7b"), load_framework("nemo"))
    ['norms', 'expert-activation', 'experts']
    """
    known = framework.recompute_modules
    latent, experts = model.kv_latent > 0, model.experts > 0
    there = {
        "norms": latent or experts, "expert-activation": experts, "latent-projections": latent,
        "shared-experts": experts and model.shared_expert_feed_forward > 0, "mlp": model.expert_layers < model.layers,
        "experts": experts,
    }  # fmt: skip
    return [module for module, has in there.items() if has and module in known]


def light_modules(model: Transformer, framework: Framework) -> str:
    """Those of `modules_of_model` that cost least, as a plan names them; empty where there are none.

    Examples
    --------
    >>> from costmodel import load_framework, load_model
    >>> light_modules(load_model("deepseek-v3"), load_framework("hai-llm"))
    'norms+expert-activation+latent-projections'
    """
    return "+".join(module for module in modules_of_model(model, framework) if module in LIGHT)
