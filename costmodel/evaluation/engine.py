"""One evaluation of many plans, in plain Python, over NumPy columns, or in a compiled kernel."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from costmodel.arithmetic.named_tuples import as_column, as_number
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.formulas import discrepancy, gradients, training_step
from costmodel.formulas.pipeline import layout
from costmodel.formulas.quantities import Inputs, Memory, Number, PlanNumbers, Settings, Step
from costmodel.formulas.transformer import host_memory, loading
from costmodel.text.checks import choice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from costmodel.evaluation.plan_products import Product

ENGINES = ("auto", "python", "numpy", "numba")
PARTS = (*Step._fields[:-1], *(f"memory_{part}" for part in Memory._fields))
"""Rows of the result: every time and FLOP of `Step`, then every byte of `Memory`."""
HANDFUL, COMPILED_FROM, COMPILE_FROM = 8, 2_000, 200_000
"""Rows up to which plain Python is the fastest, from which vector code is that is there, and from which it pays to compile it."""
SEARCHED = ("ranking", "every", "rules", "least-memory")
"""Programs of `costmodel.compilation.programs` that a search runs on."""
PASS = 1_000
"""Rows whose time NumPy takes to go through the formula once, whatever the rows."""
CHUNK, LONG_CHUNK = 4096, 16_384
"""Rows that vector code, and NumPy, which calls a function for every operation, take at a time: a cache holds their columns."""
RUNS = 2048
"""Runs of a product for which a thread is worth its start."""

TIMES = Step._fields[: Step._fields.index("model_flop")]
"""Parts of a step that are times."""

Columns: TypeAlias = "NDArray[np.float64]"


@functools.cache
def _threads() -> int:
    """Threads to work on: one where other processes of a pool work beside this one."""
    pools = sys.modules.get("multiprocessing")  # which a process of a pool has loaded
    return 1 if pools is not None and pools.parent_process() is not None else os.cpu_count() or 1


def is_compiled() -> bool:
    """Whether what a search runs on is loaded, or compiled and kept by an earlier process."""
    if "costmodel.compilation.programs" in sys.modules:
        return True
    from costmodel.compilation.cache import is_kept

    return is_kept(*SEARCHED)


def _worth_keeping() -> bool:
    """Whether nothing is compiled yet, and there is where to keep it."""
    from costmodel.compilation.cache import cache_folder

    return not is_compiled() and cache_folder() is not None


def compile_beside(rows: int = COMPILE_FROM, loops: Sequence[str] = ()) -> None:
    """Have a process of its own compile what searches run on, if so many rows would have run on it and nothing is kept yet.

    Until it is done NumPy takes ten times as long; nobody waits for it, and whoever asked goes on and may end.

    Parameters
    ----------
    rows : plans that a question had
    loops : modules whose ``compile_ahead`` it calls, too
    """
    import subprocess

    if rows > COMPILED_FROM and _worth_keeping():
        command = f"from costmodel.evaluation.engine import compile_once; compile_once({list(loops)})"
        _BESIDE.append(subprocess.Popen(
            [sys.executable, "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        ))  # fmt: skip


_BESIDE: list[object] = []
"""Processes that compile, which nobody waits for."""
COMPILING = 300.0
"""After which another process is taken to have left off compiling [s]."""


def compile_once(loops: Sequence[str]) -> None:
    """Compile what searches run on, and loops, unless another process is at it.

    Parameters
    ----------
    loops : modules whose ``compile_ahead`` is called
    """
    import time

    from costmodel.compilation.cache import cache_folder
    from costmodel.compilation.programs import compile_searching

    folder = cache_folder()
    assert folder is not None
    mark = folder / "compiling"
    if mark.exists() and time.time() - mark.stat().st_mtime < COMPILING:
        return
    mark.write_text(str(os.getpid()), encoding="ascii")
    try:
        compile_searching()
        for name in loops:
            import_module(name).compile_ahead()
    finally:
        mark.unlink(missing_ok=True)


def choose(rows: int, ahead: int = 0) -> str:
    """Engine for so many rows: Python for a handful, else NumPy until vector code is there and pays.

    Compiling takes seconds, so that it isn't done for one search, but where many rows come together: in this call, or in all of
    a process.

    Parameters
    ----------
    rows : plans to evaluate
    ahead : that the same question will have after them, about
    """
    global _rows_by_numpy
    if rows <= HANDFUL:
        return "python"
    if "costmodel.compilation.programs" in sys.modules:
        return "numba"
    if _rows_by_numpy + rows + ahead > COMPILE_FROM or (_rows_by_numpy + rows > COMPILED_FROM and is_compiled()):
        return "numba"
    _rows_by_numpy += PASS + rows
    return "numpy"


_rows_by_numpy = 0
"""Rows that NumPy has evaluated in this process, where vector code was not there."""


def flatten(result: Step) -> tuple[Number, ...]:
    """Parts of a step in the order of `PARTS`."""
    return (*result[:-1], *result.memory)


def unflatten(parts: Sequence[Number]) -> Step:
    """A step from its parts in the order of `PARTS`, numbers or columns."""
    times = len(Step._fields) - 1
    return Step._make([*parts[:times], Memory._make(parts[times:])])


def stretched(step: Step, by: float) -> Step:
    """A step all of whose times are longer."""
    factor = math.exp(by)
    return step._replace(**{field: factor * getattr(step, field) for field in TIMES}) if by else step


def evaluate_one(question: Question, plan: Plan) -> Step:
    """Every part of the step of one plan, in plain Python.

    Parameters
    ----------
    question : model, cluster and framework
    plan : a legal one, the framework's defaults filled in
    """
    inputs = question.inputs(plan)
    return stretched(_step(inputs), question.discrepancy(inputs.settings, inputs.plan))


def memory_bill(inputs: Inputs) -> Memory:
    """Memory of a plan, or of columns."""
    model, settings, plan, network, software, _ = inputs
    return gradients.fullest_stage(model, settings, plan, network, software, layout.micro_batches(settings, plan))


def host_bytes(inputs: Inputs) -> Number:
    """Bytes that offload keeps in a node's host memory, of a plan or of columns; 0 without offload.

    Parameters
    ----------
    inputs : numbers, or of the plan columns
    """
    model, settings, plan, network, software, _ = inputs
    if not any(settings.offload):
        return 0.0
    return host_memory.node_bytes(model, settings, plan, network, software, layout.micro_batches(settings, plan))


def loading_bytes(inputs: Inputs) -> Number:
    """Bytes that a rank's device holds at most before the first step begins, of a plan or of columns."""
    model, settings, plan, network, software, _ = inputs
    return loading.device_bytes(model, settings, plan, network, software)


_held = functools.lru_cache(256)(memory_bill)
"""Memory of one plan, in plain Python."""


@functools.lru_cache(256)
def _step(inputs: Inputs) -> Step:
    """The step of one plan, in plain Python: a search ranks it, and its estimate asks again."""
    return training_step.step(*inputs, _held(inputs))


def evaluate_several(inputs: Sequence[Inputs], alike: Sequence[int]) -> list[Step]:
    """Every part of the step of some plans, as the constants have it: in vector code where that is there.

    Parameters
    ----------
    inputs : of each plan
    alike : of each a number, the same for those that differ in nothing but the plan
    """
    if len(inputs) <= HANDFUL and not _has_every_part():
        return [_step(one) for one in inputs]
    import numpy as np

    engine = "numba" if _has_every_part() else "numpy" if len(inputs) < COMPILED_FROM else "auto"
    found: list[Step] = [None] * len(inputs)  # type: ignore[list-item]
    for same in set(alike):
        places = [place for place, one in enumerate(alike) if one == same]
        parts = evaluate(inputs[places[0]], np.array([inputs[place].plan for place in places]).T, engine)
        for column, place in enumerate(places):
            found[place] = unflatten(parts[:, column].tolist())
    return found


def _has_every_part() -> bool:
    """Whether vector code for all parts of a step is loaded or kept: to compile it takes as long as a hundred steps in Python."""
    if "costmodel.compilation.programs" not in sys.modules:
        return False
    from costmodel.compilation.cache import is_kept

    return is_kept("every")


def total_time(inputs: Inputs, bill: Memory, rows: int) -> Number:
    """Time of a step whose plan, framework and device may be columns [s]: in vector code where that is there.

    Parameters
    ----------
    inputs : numbers or columns; those of the model, the settings and the network are numbers
    bill : memory of the plans, which the framework's constants of memory decide
    rows : of the columns
    """
    if not _has_every_part():
        return training_step.step(*inputs, bill).total
    from costmodel.compilation import programs as kernels

    program = kernels.every_part(bool(inputs.settings.compression.kind))
    parts = kernels.results_of(program.parts["rows"], kernels.scalars_of(program, inputs), inputs, rows)
    return as_number(parts[PARTS.index("total")])


def _python(inputs: Inputs, plans: Columns, out: Columns) -> None:
    for row in range(plans.shape[1]):
        out[:, row] = flatten(_step(_of_row(inputs, plans, row)))


def _of_row(inputs: Inputs, plans: Columns, row: int) -> Inputs:
    return inputs._replace(plan=PlanNumbers(*map(float, plans[:, row])))


def _numpy(inputs: Inputs, plans: Columns, out: Columns) -> None:
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):  # the arm of `where` that is not taken
        for part, values in enumerate(flatten(training_step.step(*inputs._replace(plan=PlanNumbers(*plans))))):
            out[part] = values


def _rank_python(boundary: float, inputs: Inputs, plans: Columns, out: Columns) -> None:
    for row in range(plans.shape[1]):
        one = _of_row(inputs, plans, row)
        out[1, row] = held = _held(one).total
        if held <= boundary:
            out[0, row] = _step(one).total


def _rank_numpy(boundary: float, inputs: Inputs, plans: Columns, out: Columns) -> None:
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        bill = memory_bill(inputs._replace(plan=PlanNumbers(*plans)))
        out[1] = bill.total
        near = out[1] <= boundary
        if not near.any():
            return
        whole = [np.broadcast_to(part, near.shape)[near] for part in bill]
        inside = inputs._replace(plan=PlanNumbers(*plans[:, near]))
        out[0, near] = training_step.step(*inside, Memory(*whole)).total


def _numba(inputs: Inputs, plans: Columns, out: Columns) -> None:
    from costmodel.compilation import programs as rows

    program = rows.every_part(bool(inputs.settings.compression.kind))
    scalars = rows.scalars_of(program, inputs)
    columns = inputs._replace(plan=PlanNumbers(*plans))
    out[:] = rows.results_of(program.parts["rows"], scalars, columns, plans.shape[1])


def discrepancies(question: Question, settings: Settings, product: Product) -> Columns:
    """As `Question.discrepancy`, of every plan of a product: its tables are asked once each.

    Parameters
    ----------
    question : model, cluster and framework
    settings : of all plans
    product : of `costmodel.evaluation.plan_products`

    Returns
    -------
    array
        of the shape of ``product.legal``
    """
    import numpy as np

    found = np.full(product.legal.shape, question.told_of_every_plan)
    groups = int(product.group.max(initial=0)) + 1
    width = product.legal.shape[1]
    for runs in question.own_runs_stacked(3):
        alone = (1.0 - discrepancy.SHARED) * runs.discrepancy
        common = alone * discrepancy.correlation_at(discrepancy.choice_distance(settings, runs.settings))
        split = discrepancy.split_distance(settings, product.outer_plans, runs.settings, runs.plan)
        passes = discrepancy.pass_distance(question.shape, settings, product.inner_plans, runs.settings, runs.plan)
        many = len(as_column(common))
        outer = np.broadcast_to(common * discrepancy.correlation_at(split), (many, 1, len(product.group)))[:, 0].T
        inner = np.broadcast_to(discrepancy.correlation_at(passes), (many, groups, width))
        for group in range(groups):
            rows = product.group == group
            found[rows] += outer[rows] @ inner[:, group]
    return found


def rank(
    inputs: Inputs, product: Product, engine: str = "auto", boundary: float = math.inf, ahead: int = 0
) -> tuple[Columns, Columns]:
    """Step time and peak memory of every plan of a product, what a ranking needs [s, bytes].

    Parameters
    ----------
    inputs : of the question, as `Question.inputs` gives them for any plan of the same settings
    product : of `costmodel.evaluation.plan_products`
    engine : one of `ENGINES`
    boundary : memory beyond which nobody asks for the time of a plan [bytes]
    ahead : plans that the same search will have after these, about

    Returns
    -------
    tuple
        two arrays of the shape of ``product.legal``, infinite where no plan is legal; the time also where that was left out
    """
    import numpy as np

    chosen = choose(product.number, ahead) if choice("engine", engine, ENGINES) == "auto" else engine
    if chosen == "numba":
        return _numba_product(inputs, product)
    flat = np.flatnonzero(product.legal)
    plans = np.stack(product.plans(flat))
    found = np.full((2, product.legal.size), np.inf)
    ranked = np.full((2, len(flat)), np.inf)
    _in_chunks(functools.partial(_rank_python if chosen == "python" else _rank_numpy, boundary), inputs, plans, ranked, None)
    found[:, flat] = ranked
    return found[0].reshape(product.legal.shape), found[1].reshape(product.legal.shape)


def drop_certain_misfits(inputs: Inputs, product: Product, limit: float) -> Product:
    """A product without the outer rows whose plans, by `costmodel.formulas.transformer.memory.least`, all hold more.

    Whole where vector code isn't loaded: a space that is searched without is too small for a bound to pay.

    Parameters
    ----------
    inputs : of the question, as `Question.inputs` gives them for any plan of the same settings
    product : of `costmodel.evaluation.plan_products`
    limit : of memory [bytes]
    """
    if "costmodel.compilation.programs" not in sys.modules:
        return product
    from costmodel.compilation import programs as rows

    program = rows.least_memory()
    scalars = rows.scalars_of(program, rows.Held(inputs.model, inputs.settings, inputs.plan, inputs.network, inputs.software))
    bound = rows.results_of(program.parts["rows"], scalars, rows.Planned(product.outer_plans), len(product.group))[0]
    return product._replace(legal=product.legal & (bound <= limit)[:, None])


def _numba_product(inputs: Inputs, product: Product) -> tuple[Columns, Columns]:
    """As `rank`: each table once, then what both decide together, on as many threads as there are cores."""
    import numpy as np

    from costmodel.compilation import programs as rows

    program = rows.ranking(bool(inputs.settings.compression.kind))
    scalars = rows.scalars_of(program, inputs)
    outer_rows, width = product.legal.shape
    runs = rows.runs_of(product.legal, product.group)
    count = len(runs.rows)
    kept = runs.rows if count < outer_rows else None
    outer = rows.packed(program.parts["outer"], rows.Planned(product.outer_plans), count, kept, "outer")
    of_group = width // rows.LANES
    inner = rows.packed_blocks(program.parts["inner"], rows.Planned(product.inner_plans), runs.blocks, of_group, "inner")
    out = np.empty((outer_rows * of_group, 2, rows.LANES))

    def work(start: int, stop: int) -> None:
        rows.run_product(program, scalars, outer, inner, runs.table[start:stop], out)

    parts = max(1, min(_threads(), count // RUNS))
    if parts > 1:
        from concurrent.futures import ThreadPoolExecutor

        ends = [part * count // parts // rows.LANES * rows.LANES for part in range(parts)] + [count]
        with ThreadPoolExecutor(parts) as pool:
            list(pool.map(work, ends, ends[1:]))
    else:
        work(0, count)
    legal = product.legal.reshape(-1, rows.LANES)
    times, held = (np.where(legal, out[:, field], np.inf).reshape(outer_rows, width) for field in range(2))
    return times, held


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
    rows, chunk = plans.shape[1], CHUNK if run is _numba else LONG_CHUNK
    starts = range(0, rows, chunk)

    def work(start: int) -> None:
        part = slice(start, start + chunk)
        run(inputs, plans[:, part], out[:, part])
        if progress:
            progress(min(chunk, rows - start))

    if run is _numba and len(starts) > 4:
        from concurrent.futures import ThreadPoolExecutor

        pool = ThreadPoolExecutor(_threads())
        try:
            list(pool.map(work, starts))
        finally:  # an interruption waits for the chunks at work, not for those that wait
            pool.shutdown(cancel_futures=True)
    else:
        for start in starts:
            work(start)
