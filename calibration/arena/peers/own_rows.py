"""The library's answers to records, asked as every other tool is: one record after another, each time with its interval, each
peak as the record says that it was counted: tensors, what the allocator reserved, or the whole process; of which rank.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from costmodel import CostModelError, estimate, load_runs
from costmodel.evaluation.counted_memory import Count, counted


def main() -> None:
    """Answer every record on stdin."""
    lines = sys.stdin.read().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        runs = {run.id: run for run in load_runs(path)}
    for record in map(json.loads, lines):
        run, start = runs.get(record["id"]), time.perf_counter()
        if run is None:
            answer: dict[str, object] = {"refused": "the record isn't read"}
        else:
            try:
                found = estimate(run.model, run.cluster, run.plan, run.framework)
            except CostModelError as refused:
                answer = {"refused": str(refused)[:200]}
            else:
                low, high = found.time_interval
                (peak,) = counted([found], [Count(run.memory_kind, run.memory_of)])
                answer = {"step_time_s": found.step_time, "low_s": low, "high_s": high, "peak_bytes": peak}
        print(json.dumps({"id": record["id"], **answer, "seconds": time.perf_counter() - start}))


main()
