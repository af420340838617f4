"""Runs as a user of the shipped library would have had them predicted, and what became of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from calibration.validate.unstated import Doubt, doubts_of, widened
from calibration.written import as_csv
from costmodel.catalogue.records import Refused, read_records
from costmodel.description.run import Run
from costmodel.evaluation.counted_memory import Count, counted
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.many_questions import estimates_of

COLUMNS = (
    "id", "measured_s", "predicted_s", "low_s", "high_s", "measured_bytes", "predicted_bytes", "low_bytes", "high_bytes",
    "out_of_memory", "predicted_fits", "fit_probability", "reason",
)  # fmt: skip


class Judged(NamedTuple):
    """A record with what is predicted of it."""

    id: str  # id, campaign: of the record
    campaign: str
    # measured, predicted, and both ends of the 90 % interval [s]; the first None where there is none to judge by
    seconds: tuple[float | None, float, float, float] | None
    nbytes: tuple[float | None, float, float, float] | None  # the same of the peak memory, as it was counted [bytes]
    out_of_memory: bool | None  # the run ended so; None where it isn't known
    fits: bool | None  # whether the plan is judged to fit at the threshold of the command line
    reason: str  # why nothing is predicted; empty where it is
    run: Run | None = None  # run, estimate: behind them
    estimate: Estimate | None = None
    # what its record leaves open by what it doesn't state, by key; the intervals hold it
    doubts: Mapping[str, Doubt] = MappingProxyType({})


def judged(paths: Iterable[Path]) -> list[Judged]:
    """Every record of some files, predicted or with the reason why not."""
    return judged_records([record for path in paths for record in read_records(path)])


def judged_records(records: Sequence[Run | Refused]) -> list[Judged]:
    """Records predicted by the shipped constants, or with the reason why not."""
    runs = [one for one in records if isinstance(one, Run)]
    estimates = estimates_of(runs)
    pairs = [(run, one) for run, one in zip(runs, estimates, strict=True) if isinstance(one, Estimate)]
    held = counted([one for _, one in pairs], [Count(run.memory_kind, run.memory_of) for run, _ in pairs])
    nbytes = {id(one): number for (_, one), number in zip(pairs, held, strict=True)}
    answers = iter(zip(runs, estimates, doubts_of(runs, estimates), strict=True))
    found = []
    for record in records:
        if isinstance(record, Refused):
            said = record.record.get("campaign")
            found.append(Judged(record.id, said if isinstance(said, str) else "", None, None, None, None, record.reason))
            continue
        run, answer, doubts = next(answers)
        if not isinstance(answer, Estimate):
            found.append(Judged(run.id, run.campaign, None, None, run.out_of_memory, None, str(answer), run))
            continue
        low, high = widened(answer.time_interval, [doubt.time for doubt in doubts.values()])
        own, total = nbytes[id(answer)], float(answer.memory.total)
        of_total = widened(answer.memory_interval, [doubt.memory for doubt in doubts.values()])
        least, most = (own * bound / total for bound in of_total)
        unknown = run.ran is None
        found.append(Judged(
            run.id, run.campaign, (run.seconds, answer.step_time, low, high), (run.peak_bytes, own, least, most),
            None if unknown else run.out_of_memory, answer.fits, "", run, answer, doubts,
        ))  # fmt: skip
    return found


def table(rows: Sequence[Judged]) -> str:
    """Judged records as CSV; what isn't predicted has empty cells and a reason."""
    return as_csv([COLUMNS, *map(_cells, rows)])


def _cells(row: Judged) -> list[object]:
    figures = *(row.seconds or (None,) * 4), *(row.nbytes or (None,) * 4)
    numbers = [None if number is None else float(number) for number in figures]
    flags = [None if flag is None else int(flag) for flag in (row.out_of_memory, row.fits)]
    chance = None if row.fits is None or row.estimate is None else f"{row.estimate.fit_probability:.4f}"
    return [row.id, *numbers, *flags, chance, row.reason]
