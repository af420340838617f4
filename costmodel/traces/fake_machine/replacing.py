"""What a traced process finds in place of PyTorch's own, while it is traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

Replacement = tuple[Any, str, Any]
"""A module or class, a name of it, and what takes its place."""


@contextlib.contextmanager
def replaced(replacements: Iterable[Replacement]) -> Iterator[None]:
    """Put things in others' places while it is entered; what an owner only inherits, or hasn't, it has no more afterwards.

    Parameters
    ----------
    replacements : in their order; taken back in the other
    """
    before: list[Replacement] = []
    try:
        for owner, name, value in replacements:
            before.append((owner, name, owner.__dict__.get(name, before)))
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(before):
            if value is before:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
