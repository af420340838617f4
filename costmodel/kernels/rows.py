"""The row loop: one plan a row, every part of its step in a column, or what a ranking needs.

The loop has no branch, and rows lie in blocks of a fixed size, so that the compiler knows that no column
overlaps another and turns the loop into vector code. What it loads and stores is made from the fields of the tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from costmodel._jit import inlined, kernel
from costmodel.formulas.quantities import Memory, PlanNumbers, Step
from costmodel.formulas.training_step import step, uncompressed_step

BLOCK = np.uint64(256)
FIELDS = np.uint64(len(PlanNumbers._fields))
EVERY = (*Step._fields[:-1], *(f"memory.{part}" for part in Memory._fields))
RANKED = ("total", "memory.total")


def _made(source: str) -> Any:
    """A function from its source, for the compiler to put in place of its call."""
    names: dict[str, Any] = {"PlanNumbers": PlanNumbers, "BLOCK": BLOCK, **{f"at{k}": np.uint64(k) for k in range(64)}}
    exec(source, names)  # the source is made from names of fields alone
    return inlined(names["made"])


_load = _made(
    "def made(plans, a, i):\n    return PlanNumbers("
    + ", ".join(f"plans[a + at{place} * BLOCK + i]" for place in range(len(PlanNumbers._fields))) + ")\n"
)  # fmt: skip


def row_loop(formula: Callable[..., Step], parts: Sequence[str]) -> Any:
    """A kernel that evaluates a formula, `step` or one that gives the same for some settings, row by row.

    Parameters
    ----------
    formula : of model, settings, plan, network, software, device
    parts : of its `Step`, one column each
    """
    stores = "".join(f"    out[b + at{place} * BLOCK + i] = result.{part}\n" for place, part in enumerate(parts))
    store = _made(f"def made(result, out, b, i):\n{stores}")
    many = np.uint64(len(parts))

    @kernel
    def evaluate(model, settings, plans, network, software, device, out, blocks):
        """Fill `out` with parts of the step of `plans`, both in blocks of `BLOCK` rows.

        Parameters
        ----------
        model, settings, network, software, device : tuples of floats
        plans : float array (blocks, fields of `PlanNumbers`, BLOCK), flat
        out : float array (blocks, parts, BLOCK), flat
        blocks : how many, unsigned
        """
        for block in range(blocks):
            a = block * FIELDS * BLOCK
            b = block * many * BLOCK
            for i in range(BLOCK):
                store(formula(model, settings, _load(plans, a, i), network, software, device), out, b, i)

    return evaluate


evaluate, evaluate_compressed = row_loop(uncompressed_step, EVERY), row_loop(step, EVERY)
rank, rank_compressed = row_loop(uncompressed_step, RANKED), row_loop(step, RANKED)
