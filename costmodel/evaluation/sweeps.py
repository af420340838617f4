"""Searches over models, clusters, batches and prices, on any executor, into one Parquet file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from costmodel.catalogue.clusters import load_cluster
from costmodel.catalogue.loader import load_model
from costmodel.catalogue.software import load_framework
from costmodel.description.cluster import MAX_GPUS, Cluster
from costmodel.description.framework import Framework
from costmodel.description.transformer import Transformer
from costmodel.evaluation.file_lock import only_writer
from costmodel.evaluation.sweep_cells import CellRows, Definition, run_cells
from costmodel.evaluation.sweep_files import SweepFiles
from costmodel.text.checks import kind, positive_int, real
from costmodel.text.errors import Interrupted, InvalidValue
from costmodel.text.results import brief

if TYPE_CHECKING:
    import pandas
    import polars

MOST_CELLS = 10_000_000
LARGEST_CHUNK, CHUNKS = 64, 256
IN_FLIGHT = 256
"""Chunks that are handed to an executor ahead of what it has done."""
Progress: TypeAlias = Callable[[int, int, int], None]
Submit: TypeAlias = Callable[..., Future[CellRows]]
Prices: TypeAlias = float | Sequence[float] | Mapping[str, float | Sequence[float]]


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A finished sweep.

    Parameters
    ----------
    path : of the Parquet file
    cells : searches in all
    resumed : cells that were done before this call
    plans : legal plans that this call evaluated
    failed : cells that failed in this call
    mended : parts that lay there from before, but not as they were written, and were done again
    """

    path: Path
    cells: int
    resumed: int
    plans: int
    failed: int
    mended: int = 0

    __repr__ = brief

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas frame (extra ``frame``)."""
        import pandas

        return pandas.read_parquet(self.path)

    def to_polars(self) -> polars.DataFrame:
        """The rows as a polars frame (extra ``frame``)."""
        import polars

        return polars.read_parquet(self.path)


def sweep(
    models: Transformer | str | Iterable[Transformer | str],
    clusters: Cluster | str | Iterable[Cluster | str],
    path: str | os.PathLike[str],
    *,
    global_batches: int | Iterable[int],
    seq_lens: int | Iterable[int],
    gpus: int | Iterable[int] | None = None,
    frameworks: Framework | str | Iterable[Framework | str] = "megatron-core",
    prices: Prices | None = None,
    top: int = 1,
    executor: object = None,
    progress: Progress | None = None,
    **asked: object,
) -> Sweep:
    """Search every combination of models, clusters, sizes, frameworks, batches and sequence lengths, and price what is found.

    Rows are written as chunks of cells are done; a call with the same arguments after a kill goes on where the last one was,
    and leaves the same file. A cell that fails is a row with its reason. Parts and the file carry digests: a part that was
    changed is done again, a file that was changed is refused. One call writes a file at a time; a second one is refused.

    Parameters
    ----------
    models, clusters, frameworks : one or several, each by name or made
    path : of the Parquet file; chunks that are done lie in a folder beside it until all are there
    global_batches : sequences of a step, one or several
    seq_lens : tokens of a sequence, one or several
    gpus : sizes that each cluster is tried in, its own if None
    prices : of a GPU for an hour, one or several, the same for every cluster or by the cluster's name; a plan gets a row each
    top : plans of each cell
    executor : any `concurrent.futures.Executor` (a process pool, Dask's ``Client.get_executor()``), or a pool with
        ``apply_async`` (Ray's); in this process if None
    progress : called with the cells done, those in all, and the plans evaluated by this call
    asked : as `costmodel.search` takes it: ``fit_probability``, ``engine``, any dimension of a plan

    Returns
    -------
    Sweep
        where the file is, and counts; columns carry their units in their names

    Raises
    ------
    InvalidValue
        for an argument that is not what it should be, or a file that holds something else
    UnreadableFile
        where the file is this sweep's, but was changed since
    Interrupted
        where the executor loses a worker, or somebody else is writing the file: what is done is kept
    NotModelled
        where pyarrow is not installed, or the file system has no locks

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = sweep("llama3-8b", "dgx-h100", f"{folder}/plans.parquet", gpus=[8, 16], global_batches=64, seq_lens=8192,
    ...                  prices=2.0, tensor_parallel=[1, 2], pipeline_parallel=1)
    ...     made.to_pandas()["gpus"].tolist()
    [8, 16]
    """
    definition = _definition(models, clusters, gpus, frameworks, global_batches, seq_lens, prices, {"top": top, **asked})
    if definition.cells > MOST_CELLS:
        raise InvalidValue("cells", definition.cells, f"at most {MOST_CELLS} combinations")
    submit = None if executor is None else _submitter(executor)
    chunk = max(1, min(LARGEST_CHUNK, definition.cells // CHUNKS))
    files = SweepFiles(path, definition.digest, definition.cells, chunk)
    run = _ChunkRun(definition, files, progress)
    if not files.finished:
        with only_writer(files.path):
            files.open()
            run.go(submit)
            files.finish()
    return Sweep(Path(path), definition.cells, run.resumed, run.plans, run.failed, run.mended)


class _ChunkRun:
    """The chunks that are left, done here or by an executor."""

    def __init__(self, definition: Definition, files: SweepFiles, progress: Progress | None) -> None:
        self.definition, self.files, self.progress = definition, files, progress
        self.resumed = definition.cells
        self.done = self.plans = self.failed = self.mended = 0

    def go(self, submit: Submit | None) -> None:
        """Do every chunk that is missing or damaged."""
        missing, damaged = self.files.missing()
        self.mended = len(damaged)
        left = sum(stop - start for start, stop in map(self.files.cells_of, missing))
        self.resumed = self.done = self.definition.cells - left
        self._report()
        if submit is None:
            for chunk in missing:
                self._keep(chunk, run_cells(self.definition, *self.files.cells_of(chunk)))
        else:
            self._spread(submit, missing)

    def _spread(self, submit: Submit, missing: list[int]) -> None:
        """Hand chunks to an executor, some ahead of what it has done."""
        waiting: dict[Future[CellRows], int] = {}
        queue = iter(missing)
        try:
            while True:
                for chunk in queue:
                    waiting[submit(run_cells, self.definition, *self.files.cells_of(chunk))] = chunk
                    if len(waiting) >= IN_FLIGHT:
                        break
                if not waiting:
                    return
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    self._keep(waiting.pop(future), future.result())
        except (BrokenExecutor, CancelledError) as error:
            kept = f"{self.done} of {self.definition.cells} cells are kept in {self.files.parts}"
            raise Interrupted(f"the executor stopped ({error or type(error).__name__}); {kept}: the same call goes on") from error
        finally:
            for future in waiting:
                future.cancel()

    def _keep(self, chunk: int, found: CellRows) -> None:
        start, stop = self.files.cells_of(chunk)
        self.files.keep(chunk, found.rows)
        self.done += stop - start
        self.plans += found.plans
        self.failed += found.failed
        self._report()

    def _report(self) -> None:
        if self.progress is not None:
            self.progress(self.done, self.definition.cells, self.plans)


@runtime_checkable
class _Pool(Protocol):
    """A pool of `multiprocessing`'s kind."""

    def apply_async(
        self, func: Callable[..., CellRows], args: tuple[object, ...], *, callback: Callable[[CellRows], None],
        error_callback: Callable[[BaseException], None],
    ) -> object:  # fmt: skip
        """Call a function elsewhere, and one of two others with what it returns or raises."""


def _submitter(executor: object) -> Submit:
    """What hands a call to an executor, or to a pool of `multiprocessing`'s kind."""
    if isinstance(executor, Executor):
        return executor.submit
    if not isinstance(executor, _Pool):
        raise InvalidValue("executor", executor, "a concurrent.futures.Executor, or a pool with apply_async")

    def submit(function: Callable[..., CellRows], *arguments: object) -> Future[CellRows]:
        future: Future[CellRows] = Future()
        future.set_running_or_notify_cancel()
        executor.apply_async(function, arguments, callback=future.set_result, error_callback=future.set_exception)
        return future

    return submit


def _definition(
    models: Transformer | str | Iterable[Transformer | str], clusters: Cluster | str | Iterable[Cluster | str],
    gpus: int | Iterable[int] | None, frameworks: Framework | str | Iterable[Framework | str],
    global_batches: int | Iterable[int], seq_lens: int | Iterable[int], prices: Prices | None,
    asked: dict[str, object],
) -> Definition:  # fmt: skip
    """The axes, each checked at the door."""
    made = tuple(load_model(one) if isinstance(one, str) else one for one in _several("models", models))
    rooms = tuple(load_cluster(one) if isinstance(one, str) else one for one in _several("clusters", clusters))
    for model in made:
        kind("models", model, Transformer, "load_model(name)")
    for room in rooms:
        kind("clusters", room, Cluster, "load_cluster(name)")
    sized = rooms
    if gpus is not None:
        sizes = [positive_int("gpus", one, MAX_GPUS) for one in _several("gpus", gpus)]
        sized = tuple(room.with_gpus(size) for room in rooms for size in sizes)
    software = tuple(_several("frameworks", frameworks))
    for one in software:
        kind("frameworks", one, (Framework, str), "load_framework(name)")
        if isinstance(one, str):
            load_framework(one)
    batches = tuple(positive_int("global_batches", one, MAX_GPUS) for one in _several("global_batches", global_batches))
    lengths = tuple(positive_int("seq_lens", one, 10**8) for one in _several("seq_lens", seq_lens))
    for name in ("keep_evaluated", "progress"):
        if name in asked:
            raise InvalidValue(name, asked[name], "left out of a sweep, whose cells keep their best plans alone")
    read = {name: tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | Mapping) else value
            for name, value in asked.items()}  # fmt: skip
    return Definition(made, sized, software, batches, lengths, _prices(prices, rooms), read)


def _several(field: str, given: object) -> list[Any]:
    """One value or several, each once."""
    if isinstance(given, str | Transformer | Cluster | Framework | int) or not isinstance(given, Iterable):
        return [given]
    values: list[object] = []
    for value in given:
        if value not in values:
            values.append(value)
    if not values:
        raise InvalidValue(field, values, "one or several")
    return values


def _prices(given: Prices | None, clusters: Sequence[Cluster]) -> dict[str, tuple[float | None, ...]]:
    """Prices of a GPU for an hour by the names of clusters."""
    names = list(dict.fromkeys(cluster.name for cluster in clusters))
    if given is None:
        return {name: (None,) for name in names}
    by_name: Mapping[str, object] = given if isinstance(given, Mapping) else dict.fromkeys(names, given)
    for name in (*by_name, *names):
        if name not in by_name or name not in names:
            raise InvalidValue("prices", name, "a price for each cluster: " + ", ".join(names))

    def several(price: object) -> tuple[float, ...]:
        values = [price] if isinstance(price, int | float) else _several("prices", price)
        return tuple(real("prices", value, 0.0, 1e6) for value in values)

    return {name: several(by_name[name]) for name in names}


__all__ = ["Interrupted", "Sweep", "sweep"]
