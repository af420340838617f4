"""One evaluation of many plans, in plain Python, over NumPy columns, or in a compiled kernel."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.checks import choice
from costmodel.evaluation.estimation import step_formula
from costmodel.formulas.quantities import Device, Memory, Model, Network, Options, Plan, Stack, Step

ENGINES = ("auto", "python", "numpy", "numba")
PARTS = (*Step._fields[:-1], *(f"memory_{part}" for part in Memory._fields))
"""Rows of the result: every time and FLOP of `Step`, then every byte of `Memory`."""
HANDFUL, COMPILE_FROM = 32, 1_000_000
CHUNK = 4096

Columns = NDArray[np.float64]


def choose(rows: int) -> str:
    """Engine for so many rows: Python for a handful, NumPy until the compiler pays or is loaded anyway."""
    if rows <= HANDFUL:
        return "python"
    return "numba" if rows > COMPILE_FROM or "costmodel.kernels.rows" in sys.modules else "numpy"


def flatten(result: Step) -> tuple[Any, ...]:
    """Parts of a step in the order of `PARTS`."""
    return (*result[:-1], *result.memory)


def unflatten(parts: Columns) -> Step:
    """A step from its parts in the order of `PARTS`."""
    times = len(Step._fields) - 1
    values = [float(part) for part in parts]
    return Step._make([*values[:times], Memory._make(values[times:])])


def _python(fixed: tuple[Any, ...], plans: Columns, out: Columns) -> None:
    model, options, *rest = fixed
    formula = step_formula(options)
    for row in range(plans.shape[1]):
        out[:, row] = flatten(formula(model, options, Plan(*map(float, plans[:, row])), *rest))


def _numpy(fixed: tuple[Any, ...], plans: Columns, out: Columns) -> None:
    model, options, *rest = fixed
    formula = step_formula(options)
    with np.errstate(divide="ignore", invalid="ignore"):  # the arm of `where` that is not taken
        for part, values in enumerate(flatten(formula(model, options, Plan(*plans), *rest))):
            out[part] = values


def _numba(fixed: tuple[Any, ...], plans: Columns, out: Columns) -> None:
    from costmodel.kernels import rows

    model, options, *rest = fixed
    count, block = plans.shape[1], int(rows.BLOCK)
    blocks = -(-count // block)
    padded = np.empty((len(Plan._fields), blocks * block))
    padded[:, :count] = plans
    padded[:, count:] = plans[:, -1:]
    lined = np.ascontiguousarray(padded.reshape(len(Plan._fields), blocks, block).transpose(1, 0, 2))
    result = np.empty((blocks, len(PARTS), block))
    kernel = rows.evaluate_compressed if options.compression else rows.evaluate
    kernel(model, options, lined.ravel(), *rest, result.ravel(), np.uint64(blocks))
    out[:] = result.transpose(1, 0, 2).reshape(len(PARTS), -1)[:, :count]


def evaluate(
    model: Model, options: Options, plans: Columns, network: Network, stack: Stack, device: Device,
    engine: str = "auto", progress: Callable[[int], None] | None = None,
) -> Columns:  # fmt: skip
    """Every part of the step of every plan.

    Parameters
    ----------
    model, options, network, stack, device : tuples of floats
    plans : fields of `Plan` x rows
    engine : one of `ENGINES`
    progress : called with the number of rows just done, from any thread

    Returns
    -------
    array
        `PARTS` x rows [s, bytes, FLOP]
    """
    choice("engine", engine, ENGINES)
    rows = plans.shape[1]
    out = np.empty((len(PARTS), rows))
    chosen = choose(rows) if engine == "auto" else engine
    run = {"python": _python, "numpy": _numpy, "numba": _numba}[chosen]
    fixed = (model, options, network, stack, device)
    starts = range(0, rows, CHUNK)

    def work(start: int) -> None:
        part = slice(start, start + CHUNK)
        run(fixed, plans[:, part], out[:, part])
        if progress:
            progress(min(CHUNK, rows - start))

    if chosen == "numba" and len(starts) > 4:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(work, starts))
    else:
        for start in starts:
            work(start)
    return out
