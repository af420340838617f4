"""What a flag says of a plan, where that is more than its own field."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from costmodel.interop.launchers.table import FlagRow, Says, Writing
from costmodel.interop.launchers.values import anything

LONG_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""Dtypes as PyTorch calls them."""


def fixed(value: object) -> Says:
    """The same in every file."""
    return lambda w: value


def where_true(field: str) -> Says:
    """True where it is, else nothing."""
    return lambda w: w.stated(field) or None


def where_one_of(field: str, *values: object) -> Says:
    """True where a field has one of some values, else nothing."""
    return lambda w: w.stated(field) in values or None


def mixed(w: Writing, *dtypes: str) -> bool | None:
    """Whether products are of some dtypes under mixed precision; nothing of a plan in another."""
    return w.plan.mixed_precision is not False if w.plan.dtype in dtypes else None


def optimizer(w: Writing, words: Mapping[str, str], paged: Mapping[str, str]) -> str | None:
    """The word for a plan's optimizer, of its own table where the state is paged."""
    return (paged if w.plan.paged_optimizer else words).get(str(w.stated("optimizer")))


def mapped(field: str, words: Mapping[str, object], otherwise: object = None) -> Says:
    """A field in the framework's words."""
    return lambda w: words.get(str(w.stated(field)), otherwise)


def kernel(flash: str, other: str) -> Says:
    """The word for a flash kernel of attention, PyTorch's own, or that for any other."""
    return mapped("attention", {"flash": flash, "sdpa": "sdpa"}, other)


def has_experts(w: Writing) -> object:
    """Whether the model has experts."""
    return w.model.experts


def alone(flag: str, says: Says, when: Callable[[Writing], object] | None = None) -> FlagRow:
    """A flag that states no field: it is written, and as it is read it stands among the dialect's idle words."""
    return FlagRow(flag, "", anything, says=says, when=when)


def groups_queries(w: Writing) -> bool:
    """Whether several heads share keys and values."""
    return w.model.kv_heads != w.model.heads


def has_both_layers(w: Writing) -> bool:
    """Whether some layers have experts and others have none."""
    return bool(w.model.experts and w.model.dense_layers)


def clamps(w: Writing) -> bool:
    """Whether an activation's inputs have limits."""
    return w.model.clamped_activation
