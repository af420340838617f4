"""What of a layer is computed again in the backward pass: nothing, all of it, all of some layers, or some of its modules."""

from __future__ import annotations

from costmodel.formulas.quantities import RecomputedParts
from costmodel.text.checks import choice, positive_int, real
from costmodel.text.errors import InvalidValue

WHOLE = ("none", "selective", "full")
ATTENTION_CORE = "attention-core"
MODULES = {
    ATTENTION_CORE: "recompute_attention", "norms": "recompute_norms", "latent-projections": "recompute_latent_projections",
    "mlp": "recompute_mlp", "experts": "recompute_experts", "shared-experts": "recompute_shared_experts",
    "expert-activation": "recompute_expert_activation", "operators": "recompute_operators",
}  # fmt: skip
"""Modules that can be recomputed alone, and the number of a plan that says so."""
EVERY = (1, 10_000)
"""Least and most of a k for which every k-th layer is recomputed."""
LEAST = 0.001
"""Least share of the layers that can be recomputed."""
FIELDS = (*MODULES.values(), "recompute_layers")
"""Numbers of a plan that say what is recomputed."""


def modules_of(recompute: str | float) -> tuple[str, ...]:
    """Modules that a plan recomputes in every layer, in the order of `MODULES`.

    Examples
    --------
    >>> modules_of("mlp+norms")
    ('norms', 'mlp')
    >>> modules_of("selective")
    ('attention-core',)
    """
    if recompute == "selective":
        return (ATTENTION_CORE,)
    if not isinstance(recompute, str) or recompute in WHOLE:
        return ()
    named = recompute.split("+")
    return tuple(module for module in MODULES if module in named)


def recomputation(recompute: object) -> str | float:
    """What a plan recomputes, checked; modules in the order of `MODULES`.

    Parameters
    ----------
    recompute : one of `WHOLE`, modules with a plus between them, a whole number k for every k-th layer, or a share of them,
        more than 0 and less than 1

    Raises
    ------
    InvalidValue
        where it is none of these

    Examples
    --------
    >>> recomputation("mlp+norms")
    'norms+mlp'
    """
    if isinstance(recompute, float) and recompute < EVERY[0]:
        return real("recompute", recompute, LEAST, 1.0)
    if not isinstance(recompute, str):
        return positive_int("recompute", recompute, EVERY[1])
    named = recompute.split("+")
    if len(named) == 1 and recompute not in MODULES:
        return choice("recompute", recompute, (*WHOLE, *MODULES))
    for name in named:
        if name not in MODULES:
            raise InvalidValue("recompute", recompute, "modules with a plus between them, of " + ", ".join(MODULES))
    if len(set(named)) < len(named):
        raise InvalidValue("recompute", recompute, "each module once")
    return "+".join(modules_of(recompute))


def numbers(recompute: str | float) -> RecomputedParts:
    """What is recomputed as the numbers that formulas take.

    Examples
    --------
    >>> numbers(4).every, numbers(0.4).every, numbers("full").every, numbers("mlp").mlp
    (4.0, 0.4, 1.0, 1.0)
    """
    modules = modules_of(recompute)
    every = float(recompute) if not isinstance(recompute, str) else float(recompute == "full")
    return RecomputedParts(every, **{field.removeprefix("recompute_"): float(name in modules) for name, field in MODULES.items()})
