"""Step times from the logs of the frameworks: the way back from a run to `calibrate`."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from costmodel.description.plan import Plan
from costmodel.text import user_files
from costmodel.text.checks import kind, whole
from costmodel.text.errors import CostModelError
from costmodel.text.results import brief
from costmodel.text.units import millisecond

MAX_BYTES = 256 << 20
LONGEST_NUMBER, MOST = 18, 10**18
"""Digits of a step's number, and what numbers stay below."""
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
WARM_UP = 2
"""Logged steps that are left out at the start, where there are enough others."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Measured steps of one run."""

    framework: str  # whose log it is
    steps: tuple[int, ...]  # numbers of the steps, where the log says them
    seconds: tuple[float, ...]  # of each [s]

    __repr__ = brief

    def typical(self, warm_up: int = WARM_UP) -> float:
        """Median seconds of a step.

        Parameters
        ----------
        warm_up : first logged steps to leave out, if at least as many stay

        Returns
        -------
        float
            [s]
        """
        whole("warm_up", warm_up, 1_000_000)
        kept = self.seconds[warm_up:] if len(self.seconds) >= 2 * warm_up else self.seconds
        return statistics.median(kept or self.seconds)


Rows = Iterator[tuple[int, float]]


def read_step_times(log: str | Path, plan: Plan | None = None) -> StepTimes:
    """Step times of a run from the framework's own log.

    Reads Megatron's, Megatron-DeepSpeed's and GPT-NeoX's ``elapsed time per iteration``, NeMo's ``train_step_timing``,
    torchtitan's ``tps``, nanotron's lines and table, DeepSpeed's ``SamplesPerSec``, LLM Foundry's ``batches_per_sec``, and
    the state of Hugging Face's Trainer.

    Parameters
    ----------
    log : file, or its text
    plan : of the run; needed where a log gives a rate only (torchtitan, DeepSpeed)

    Returns
    -------
    StepTimes

    Raises
    ------
    UnreadableFile
        where the file is missing or too large
    CostModelError
        where no step time is in it, or a rate can't be turned into one without the plan

    Notes
    -----
    torchtitan's rate is that of a GPU, all parallelism counted (torchtitan/components/metrics.py@b5bcd76c66).

    Examples
    --------
    >>> line = "iteration {}/ 100 | consumed samples: 64 | elapsed time per iteration (ms): {} | learning rate: 1E-4 |"
    >>> times = read_step_times("\\n".join(line.format(i, t) for i, t in ((1, 9000.0), (2, 2000.0), (3, 2100.0), (4, 1900.0))))
    >>> times.framework, times.typical()
    ('megatron', 2.0)
    """
    kind("log", log, (str, Path), "pathlib.Path(name)")
    if plan is not None:
        kind("plan", plan, Plan, "Plan(...)")
    text = ESCAPES.sub("", _text(log))
    for name, reader in READERS.items():
        rows = [(step, seconds) for step, seconds in reader(text, plan) if math.isfinite(seconds) and seconds > 0]
        if rows:
            return StepTimes(framework=name, steps=tuple(step for step, _ in rows), seconds=tuple(time for _, time in rows))
    name = str(log)[:200]
    named = name if name.isprintable() else "the log"
    raise CostModelError(f"{named}: no step time of a known framework is in it; known: {', '.join(READERS)}")


def _text(log: str | Path) -> str:
    if isinstance(log, str) and ("\n" in log or len(log) > 1000 or log.lstrip().startswith("{")):
        return log
    return user_files.text(log, MAX_BYTES, "replace")


def _number_of(digits: str) -> int:
    """The number of a step; 0 of one that has more digits than any run's."""
    return int(digits) if len(digits) <= LONGEST_NUMBER else 0


def _amount(text: str) -> float:
    """A number as people read it: 1,234, 1.2K, 3M; nan of what is none."""
    if len(text) > 2 * LONGEST_NUMBER:
        return math.nan
    match = re.fullmatch(r"([0-9][0-9,]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?)\s*([KMBTP]?)", text.strip())
    return float(match[1].replace(",", "")) * 1000.0 ** " KMBTP".index(match[2] or " ") if match else math.nan


def _timed(elapsed: str, number: str) -> Callable[[str, Plan | None], Rows]:
    """Reads lines that say a step's milliseconds, and perhaps its number."""

    def read(text: str, plan: Plan | None) -> Rows:
        for line in text.splitlines():
            if (found := re.search(elapsed, line)) is not None:
                step = re.search(number, line)
                yield _number_of(step[1]) if step else 0, _amount(found[1]) * millisecond

    return read


def _nemo(text: str, plan: Plan | None) -> Rows:
    for found in re.finditer(r"train_step_timing in s[\"']?:?\s*+=?\s*+([0-9.]+)", text):
        yield 0, _amount(found[1])


def _torchtitan(text: str, plan: Plan | None) -> Rows:
    found = list(_torchtitan_lines(text))
    if found and plan is None:
        raise CostModelError("the log of torchtitan gives tokens/s a GPU; the plan is needed to turn it into step times")
    for step, tokens in found:
        if plan is not None and (rate := _amount(tokens)) > 0:
            yield _number_of(step), plan.tokens / (rate * plan.gpus)


def _torchtitan_lines(text: str) -> Iterator[tuple[str, str]]:
    """Step and tokens a second of every line that has one after the other."""
    for line in text.splitlines():
        step = None
        for part in re.finditer(r"step:\s*+([0-9]++)\s|\btps:\s*+([0-9,.]++)", line):
            if part[2] is None:
                step = step or part[1]
            elif step is not None:
                yield step, part[2]
                step = None


def _nanotron_table(text: str, plan: Plan | None) -> Rows:
    lines = [line[line.index("|") :] for line in text.splitlines() if line.count("|") > 5]
    for place, line in enumerate(lines[:-2]):
        names = [cell.strip() for cell in line.strip().strip("|").split("|")]
        cells = [cell.strip() for cell in lines[place + 2].strip().strip("|").split("|")]
        row = dict(zip(names, cells, strict=False))
        needed = ("tok/s/gpu", "gbs", "seq_len", "dp", "pp", "tp")
        if len(names) == len(cells) and all(name in row for name in needed):
            gpus = math.prod(_amount(row.get(name, "1")) for name in ("dp", "pp", "tp", "cp"))
            rate = _amount(row["tok/s/gpu"])
            if rate * gpus > 0:
                yield 0, _amount(row["gbs"]) * _amount(row["seq_len"]) / (rate * gpus)


def _deepspeed(text: str, plan: Plan | None) -> Rows:
    found = list(re.finditer(r"(?:RunningAvgSamplesPerSec|CurrSamplesPerSec)=([0-9.]+)", text))
    if found and plan is None:
        raise CostModelError("the log of DeepSpeed gives samples/s; the plan is needed to turn it into step times")
    for one in found:
        if plan is not None and (rate := _amount(one[1])) > 0:
            yield 0, plan.global_batch / rate


def _llm_foundry(text: str, plan: Plan | None) -> Rows:
    for found in re.finditer(r"throughput/batches_per_sec:\s*([0-9.]+)", text):
        if (rate := _amount(found[1])) > 0:
            yield 0, 1.0 / rate


def _trainer(text: str, plan: Plan | None) -> Rows:
    """The state that the Trainer saves: the whole run's time over its steps."""
    state: object = None
    if text.lstrip().startswith("{"):
        try:
            state = json.loads(text)
        except (ValueError, RecursionError):
            state = None
    if isinstance(state, dict) and isinstance(state.get("log_history"), list):
        for entry in state["log_history"]:
            seconds, step = ((entry.get("train_runtime"), entry.get("step")) if isinstance(entry, dict) else (None, None))
            if isinstance(seconds, int | float) and isinstance(step, int) and 0 < step < MOST and abs(seconds) < MOST:
                yield step, float(seconds) / step
        return
    for found in re.finditer(r"['\"]train_steps_per_second['\"]:\s*['\"]?([0-9.]+)", text):
        if (rate := _amount(found[1])) > 0:
            yield 0, 1.0 / rate


READERS: dict[str, Callable[[str, Plan | None], Rows]] = {
    "megatron": _timed(r"elapsed[ _]time[ _]per[ _]iteration[ _]\(ms\):\s*([0-9.eE+]+)", r"iteration\s+([0-9]+)\s*/"),
    "nemo": _nemo,
    "nanotron": _timed(r"\b(?:elapsed_)?time_per_iteration_ms:\s*([0-9.,]+[KM]?)", r"iteration:\s*([0-9]+)"),
    "nanotron table": _nanotron_table, "torchtitan": _torchtitan, "deepspeed": _deepspeed, "llm-foundry": _llm_foundry,
    "trainer": _trainer,
}  # fmt: skip
"""By framework, in the order in which they are tried."""
