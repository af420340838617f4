"""The predicted step beside the measured one, step by step."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType

from costmodel.arithmetic.named_tuples import Row
from costmodel.callbacks.logs import Figures, Log
from costmodel.catalogue.loader import names
from costmodel.description.fields import table
from costmodel.description.plan import Plan
from costmodel.evaluation.counted_memory import Count, counted
from costmodel.evaluation.estimation import Estimate
from costmodel.text.checks import kind
from costmodel.text.errors import InvalidValue

COUNTED = Count("reserved", "rank0")
"""How a measured peak is counted, and what of the prediction stands beside it: PyTorch's allocator on the rank that logs."""
SECONDS, PEAK = "step_time_s", "peak_reserved_bytes"
"""Names of what is measured, in a log."""


def reserved_memory() -> float | None:
    """Most that PyTorch's allocator has reserved on this process's GPU [bytes]; None where PyTorch isn't loaded or has no GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return float(torch.cuda.max_memory_reserved())


class Monitor:
    """Holds every step of a run against an estimate of it, and logs both.

    Parameters
    ----------
    estimate : of the plan that runs, as `costmodel.estimate` gives it
    logs : where to
    memory : gives the peak so far, as an allocator has reserved it [bytes], or None where it can't be known
    clock : gives the time [s]
    """

    def __init__(
        self, estimate: Estimate, *logs: Log, memory: Callable[[], float | None] = reserved_memory,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        kind("estimate", estimate, Estimate, "what costmodel.estimate gives")
        self.estimate, self._logs, self._memory, self._clock = estimate, logs, memory, clock
        self._steps, self._last = 0, None  # type: tuple[int, float | None]
        low, high = estimate.time_interval
        peak = counted([estimate], [COUNTED])[0]
        scale = peak / float(estimate.memory.total)
        least, most = (scale * end for end in estimate.memory_interval)
        self.predicted: Figures = {
            f"predicted_{SECONDS}": estimate.step_time, f"low_{SECONDS}": low, f"high_{SECONDS}": high,
            f"predicted_{PEAK}": peak, f"low_{PEAK}": least, f"high_{PEAK}": most,
        }  # fmt: skip
        self.record = record_of(estimate)
        for log in logs:
            log.open(self.record)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, error: type[BaseException] | None, value: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Measure what runs inside as one optimizer step; on a GPU it must end in something that waits for it, as ``.item()``."""
        start = self._clock()
        yield
        self._log(self._clock() - start, self._steps + 1)

    def mark(self, step: int | None = None) -> Figures:
        """Say that an optimizer step has ended; it took what has passed since the last call.

        Parameters
        ----------
        step : its number; one more than the last if not given

        Returns
        -------
        dict
            what was logged, for a loop that logs it itself; empty at the first call, and the first after `pause`
        """
        last, self._last = self._last, self._clock()
        number = self._steps + 1 if step is None else step
        if last is None:
            self._steps = number
            return {}
        return self._log(self._last - last, number)

    def pause(self) -> None:
        """Say that something else ran, such as an evaluation: the time until the next `mark` is no step's."""
        self._last = None

    def close(self) -> None:
        """End the logs."""
        for log in self._logs:
            log.close()

    def _log(self, seconds: float, step: int) -> Figures:
        if seconds <= 0.0:
            raise InvalidValue("seconds", seconds, "a clock that goes on")
        self._steps = step
        peak = self._memory()
        figures = {SECONDS: seconds, **({} if peak is None else {PEAK: peak}), **self.predicted}
        figures["measured_over_predicted"] = seconds / self.estimate.step_time
        for log in self._logs:
            log.log(step, figures)
        return figures


def record_of(estimate: Estimate) -> Row:
    """The question of an estimate as a record of a run, to which only what is measured is to be added.

    Parameters
    ----------
    estimate : of the plan; a cluster and a framework of one's own are called by their names, as their files must be when the
        record is read
    """
    model, cluster = estimate.model, estimate.cluster
    shape = {field.name: getattr(model, field.name) for field in dataclasses.fields(model) if _changed(model, field)}
    plan = {field.name: _plain(getattr(estimate.plan, field.name))
            for field in dataclasses.fields(estimate.plan)
            if _changed(estimate.plan, field) or table(Plan)[field.name].asked}  # fmt: skip
    return {
        "model": model.name if model.name in names("model") else {name: _plain(value) for name, value in shape.items()},
        "cluster": {"name": cluster.name, "gpus": cluster.gpus}, "software": {"framework": estimate.framework.name}, "plan": plan,
    }  # fmt: skip


def _changed(owner: object, field: dataclasses.Field[object]) -> bool:
    return getattr(owner, field.name) != field.default


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
