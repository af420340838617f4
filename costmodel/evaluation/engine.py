"""One evaluation of many plans, in plain Python, over NumPy columns, or in a compiled kernel."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

from costmodel.checks import choice
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.formulas import training_step
from costmodel.formulas.quantities import Inputs, Memory, PlanNumbers, Settings, Step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ENGINES = ("auto", "python", "numpy", "numba")
PARTS = (*Step._fields[:-1], *(f"memory_{part}" for part in Memory._fields))
"""Rows of the result: every time and FLOP of `Step`, then every byte of `Memory`."""
HANDFUL, COMPILE_FROM = 32, 1_000_000
CHUNK = 4096

Columns: TypeAlias = "NDArray[np.float64]"


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


def step_formula(settings: Settings) -> Callable[..., Step]:
    """The formula of a step: the whole one, or where gradients travel as they are the faster one that gives the same.

    Parameters
    ----------
    settings : of the plans
    """
    return training_step.step if settings.compression.kind else training_step.uncompressed_step


def evaluate_one(question: Question, plan: Plan) -> Step:
    """Every part of the step of one plan, in plain Python.

    Parameters
    ----------
    question : model, cluster and framework
    plan : a legal one, the framework's defaults filled in
    """
    inputs = question.inputs(plan)
    return step_formula(inputs.settings)(*inputs)


def _python(inputs: Inputs, plans: Columns, out: Columns) -> None:
    formula = step_formula(inputs.settings)
    for row in range(plans.shape[1]):
        out[:, row] = flatten(formula(*inputs._replace(plan=PlanNumbers(*map(float, plans[:, row])))))


def _numpy(inputs: Inputs, plans: Columns, out: Columns) -> None:
    import numpy as np

    formula = step_formula(inputs.settings)
    with np.errstate(divide="ignore", invalid="ignore"):  # the arm of `where` that is not taken
        for part, values in enumerate(flatten(formula(*inputs._replace(plan=PlanNumbers(*plans))))):
            out[part] = values


def _numba(inputs: Inputs, plans: Columns, out: Columns) -> None:
    from costmodel.kernels import rows

    _compiled(rows.evaluate_compressed if inputs.settings.compression.kind else rows.evaluate, inputs, plans, out)


def _numba_ranked(inputs: Inputs, plans: Columns, out: Columns) -> None:
    from costmodel.kernels import rows

    _compiled(rows.rank_compressed if inputs.settings.compression.kind else rows.rank, inputs, plans, out)


def _compiled(kernel: Callable[..., None], inputs: Inputs, plans: Columns, out: Columns) -> None:
    """Fill `out` by a kernel, in blocks of its size."""
    import numpy as np

    from costmodel.kernels import rows

    count, block = plans.shape[1], int(rows.BLOCK)
    blocks = -(-count // block)
    padded = np.empty((len(PlanNumbers._fields), blocks * block))
    padded[:, :count] = plans
    padded[:, count:] = plans[:, -1:]
    lined = np.ascontiguousarray(padded.reshape(len(PlanNumbers._fields), blocks, block).transpose(1, 0, 2))
    result = np.empty((blocks, len(out), block))
    kernel(*inputs[:2], lined.ravel(), *inputs[3:], result.ravel(), np.uint64(blocks))
    out[:] = result.transpose(1, 0, 2).reshape(len(out), -1)[:, :count]


def rank(
    inputs: Inputs, plans: Columns, engine: str = "auto", progress: Callable[[int], None] | None = None,
) -> tuple[Columns, Columns]:  # fmt: skip
    """Step time and peak memory of every plan, what a ranking needs [s, bytes].

    Parameters
    ----------
    inputs, plans, engine, progress : as `evaluate` takes them
    """
    import numpy as np

    chosen = choose(plans.shape[1]) if choice("engine", engine, ENGINES) == "auto" else engine
    out = np.empty((2, plans.shape[1]))
    if chosen == "numba":
        _in_chunks(_numba_ranked, inputs, plans, out, progress)
    else:
        parts = evaluate(inputs, plans, chosen, progress)
        out[0], out[1] = parts[0], parts[PARTS.index("memory_total")]
    return out[0], out[1]


def evaluate(
    inputs: Inputs, plans: Columns, engine: str = "auto", progress: Callable[[int], None] | None = None,
) -> Columns:  # fmt: skip
    """Every part of the step of every plan.

    Parameters
    ----------
    inputs : of the question, as `Question.inputs` gives them for any plan of the same settings
    plans : fields of `PlanNumbers` x rows
    engine : one of `ENGINES`
    progress : called with the number of rows just done, from any thread

    Returns
    -------
    array
        `PARTS` x rows [s, bytes, FLOP]
    """
    import numpy as np

    out = np.empty((len(PARTS), plans.shape[1]))
    chosen = choose(plans.shape[1]) if choice("engine", engine, ENGINES) == "auto" else engine
    _in_chunks({"python": _python, "numpy": _numpy, "numba": _numba}[chosen], inputs, plans, out, progress)
    return out


def _in_chunks(
    run: Callable[[Inputs, Columns, Columns], None], inputs: Inputs, plans: Columns, out: Columns,
    progress: Callable[[int], None] | None,
) -> None:  # fmt: skip
    """Fill `out` chunk by chunk, which fit in a cache; a compiled loop on as many threads as there are cores."""
    rows = plans.shape[1]
    starts = range(0, rows, CHUNK)

    def work(start: int) -> None:
        part = slice(start, start + CHUNK)
        run(inputs, plans[:, part], out[:, part])
        if progress:
            progress(min(CHUNK, rows - start))

    if run in (_numba, _numba_ranked) and len(starts) > 4:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(work, starts))
    else:
        for start in starts:
            work(start)
