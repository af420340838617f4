"""The library's answers to records, asked as every other tool is: one record after another, each time with its interval, each
peak as the record says that it was counted: tensors, what the allocator reserved, or the whole process; of which rank.
"""

import time
from collections.abc import Callable

from costmodel import estimate
from costmodel.catalogue.records.runs import run_of
from costmodel.evaluation.counted_memory import Count, counted


def prepare(folder: str) -> Callable[[dict], dict]:
    """What answers a record."""
    return answer


def answer(record: dict) -> dict:
    """The estimate of a record; reading it is not counted as a part of the time."""
    run = run_of(record, record["id"])
    start = time.perf_counter()
    found = estimate(run.model, run.cluster, run.plan, run.framework)
    low, high = found.time_interval
    (peak,) = counted([found], [Count(run.memory_kind, run.memory_of)])
    said = {"step_time_s": found.step_time, "low_s": low, "high_s": high, "peak_bytes": peak}
    return {**said, "seconds": time.perf_counter() - start}
