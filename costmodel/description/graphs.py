"""Modules of a layer that CUDA graphs hold where they don't hold all of it."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.formulas.quantities import CapturedModules
from costmodel.text.checks import text
from costmodel.text.errors import InvalidValue

MODULES = CapturedModules._fields
"""What can be captured alone: experts can't, as their tokens vary."""
OF_MEGATRON = {"attn": "attention", "mlp": "mlp", "moe_router": "router", "moe_preprocess": "router"}
"""Scopes of ``--cuda-graph-scope`` (NVIDIA/Megatron-LM@d98e8a6 megatron/core/transformer/transformer_config.py)."""
WHOLE = ("moe", "full", "full_iteration")
"""Scopes that leave nothing of a layer out."""


def captured(modules: str) -> str:
    """Modules with a plus between them, checked, in the order of `MODULES`.

    Parameters
    ----------
    modules : names of `MODULES`, or scopes of Megatron, with a plus or a comma between them

    Raises
    ------
    InvalidValue
        for a name that means none

    Examples
    --------
    >>> captured("router+attention"), captured("attn,moe_router,moe_preprocess")
    ('attention+router', 'attention+router')
    """
    names = [name.strip() for name in text("graph_modules", modules).replace(",", "+").split("+")]
    found = {OF_MEGATRON.get(name, name) for name in names}
    if not found <= set(MODULES):
        raise InvalidValue("graph_modules", modules, "modules with a plus between them, of " + ", ".join(MODULES))
    return "+".join(name for name in MODULES if name in found)


def captured_or_all(modules: str) -> str | None:
    """Modules as `captured` has them; None for ``"all"``, which is all of a layer.

    Parameters
    ----------
    modules : as of `captured`
    """
    return None if modules == "all" else captured(modules)


def module_numbers(modules: str | None) -> CapturedModules:
    """Modules as the numbers that formulas take: none where all of a layer is captured.

    Parameters
    ----------
    modules : as `captured_or_all` gives them
    """
    return CapturedModules(*(float(name in (modules or "").split("+")) for name in MODULES))


def of_scopes(scopes: Sequence[str]) -> str:
    """Modules that scopes of Megatron name, with a plus between them; "" where they name all of a layer, or none of `MODULES`.

    Parameters
    ----------
    scopes : of its graphs

    Examples
    --------
    >>> of_scopes(["attn", "moe_router"]), of_scopes(["attn", "moe"]), of_scopes([])
    ('attention+router', '', '')
    """
    named = [scope for scope in scopes if scope in OF_MEGATRON]
    return captured("+".join(named)) if named and not set(WHOLE) & set(scopes) else ""


__all__ = ["MODULES", "OF_MEGATRON", "WHOLE", "captured", "captured_or_all", "module_numbers", "of_scopes"]
