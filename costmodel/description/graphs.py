"""What CUDA graphs hold where it isn't all of each layer: modules of a layer, or a whole iteration."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.formulas.quantities import CapturedModules
from costmodel.text.checks import text
from costmodel.text.errors import InvalidValue

ITERATION = "iteration"
"""The forward and backward passes of all micro-batches, as one graph."""
MODULES = tuple(name for name in CapturedModules._fields if name != ITERATION)
"""What can be captured alone: experts can't, as their tokens vary."""
OF_MEGATRON = {"attn": "attention", "mlp": "mlp", "moe_router": "router", "moe_preprocess": "router"}
"""Scopes of ``--cuda-graph-scope`` (NVIDIA/Megatron-LM@d98e8a6 megatron/core/transformer/transformer_config.py)."""
WHOLE = ("moe", "full")
"""Scopes that leave nothing of a layer out."""
FULL_ITERATION = "full_iteration"
"""Megatron's word for `ITERATION`: a scope of its local graphs, later a kind of graphs."""


def captured(modules: str) -> str:
    """Modules with a plus between them, checked, in the order of `MODULES`; or `ITERATION`.

    Parameters
    ----------
    modules : names of `MODULES`, or scopes of Megatron, with a plus or a comma between them; or `ITERATION`

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
    if names in ([ITERATION], [FULL_ITERATION]):
        return ITERATION
    found = {OF_MEGATRON.get(name, name) for name in names}
    if not found <= set(MODULES):
        wanted = f"{ITERATION}, or modules with a plus between them, of " + ", ".join(MODULES)
        raise InvalidValue("graph_modules", modules, wanted)
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
    return CapturedModules(*(float(name in (modules or "").split("+")) for name in CapturedModules._fields))


def of_scopes(scopes: Sequence[str]) -> str:
    """What scopes of Megatron name, as `captured` has it; "" where they name all of a layer, or nothing that it has.

    Examples
    --------
    >>> of_scopes(["attn", "moe_router"]), of_scopes(["attn", "moe"]), of_scopes(["full_iteration"])
    ('attention+router', '', 'iteration')
    """
    if FULL_ITERATION in scopes:
        return ITERATION
    named = [scope for scope in scopes if scope in OF_MEGATRON]
    return captured("+".join(named)) if named and not set(WHOLE) & set(scopes) else ""
