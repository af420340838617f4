"""``python -m experiments arena``: the library and other tools on the same measured runs, in turns, in one table."""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from calibration.data.reference import QUOTED
from calibration.validate.pages import markdown, put_table
from calibration.validate.scores import score
from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.accuracy import percent
from experiments.arena.rivals import Rival, asked, rivals

HEADINGS = (
    "tool", "version", "answers", "time, mean error", "the library's on these", "bias", "intervals hold", "regret",
    "memory, mean error", "the library's on these, of memory", "answers a second",
)  # fmt: skip


class Entry(NamedTuple):
    """A tool's figures: its answers by records' ids, and how many it gives a second in its fastest turn, refusals left out."""

    rival: Rival
    rows: Sequence[Row]
    answers: Mapping[str, Row]
    rate: float

    def cells(self, own: Mapping[str, Row]) -> list[str]:
        """Its row of the table."""
        if self.rival.absent:
            return [self.rival.title, "-", f"absent: {self.rival.absent}", *["-"] * (len(HEADINGS) - 3)]
        said = [(row, self.answers[row["id"]]) for row in self.rows if row["id"] in self.answers]
        told = [(row, answer) for row, answer in said if "step_time_s" in answer and _measured(row, "time", "step_time_s")]
        held = [(row, answer) for row, answer in said if "peak_bytes" in answer and _measured(row, "memory", "peak_memory_bytes")]
        sure = all("low_s" in answer for _, answer in told)
        found = score([_interval(row["measured"]["step_time_s"], one) for row, one in told])
        regrets = regret(told)
        beside = [(row, own[row["id"]]) for row, _ in told if "step_time_s" in own.get(row["id"], {})]
        held_too = [(row, own[row["id"]]) for row, _ in held if "peak_bytes" in own.get(row["id"], {})]
        answered = sum("refused" not in answer for _, answer in said)
        return [
            self.rival.title, self.rival.version, f"{answered} of {len(self.rows)}", percent(found["mape"]),
            _error(beside, "step_time_s", "step_time_s"), percent(found["bias"]),
            (percent(found["coverage"]) if sure else "says none") if told else "-",
            f"{percent(sum(regrets) / len(regrets))} of {len(regrets)}" if regrets else "-",
            _error(held, "peak_memory_bytes", "peak_bytes"), _error(held_too, "peak_memory_bytes", "peak_bytes"),
            f"{self.rate:,.0f}" if answered else "-",
        ]  # fmt: skip


def _measured(row: Row, what: str, key: str) -> bool:
    """Whether a record has a figure, and one that is of its plan, which its group ``use`` says."""
    return bool(row["measured"].get(key)) and (row.get("use") or {}).get(what, True) is True


def _interval(measured: float, answer: Row) -> tuple[float, float, float, float]:
    """Measured, predicted, and both ends of the interval, which are the prediction where none is said."""
    said: float = answer["step_time_s"]
    return measured, said, answer.get("low_s", said), answer.get("high_s", said)


def _error(told: Sequence[tuple[Row, Row]], measured: str, said: str) -> str:
    """Mean error of answers to records, a dash where there are none."""
    return percent(score([(row["measured"][measured], *[answer[said]] * 3) for row, answer in told])["mape"])


def regret(told: Sequence[tuple[Row, Row]]) -> list[float]:
    """Of every question of which several plans were measured: by how much the plan that a tool calls fastest is slower.

    Examples
    --------
    >>> def row(seconds, said):
    ...     of = {"model": {"name": "m"}, "cluster": {"device": "d", "gpus": 8}, "plan": {"global_batch": 4, "seq_len": 2048}}
    ...     return {**of, "measured": {"step_time_s": seconds}}, {"step_time_s": said}
    >>> regret([row(1.0, 3.0), row(1.5, 2.0)]), regret([row(1.0, 2.0), row(1.5, 3.0)])
    ([0.5], [0.0])
    """
    groups: dict[str, list[tuple[float, float]]] = {}
    for row, answer in told:
        key = (row["model"]["name"], row["cluster"]["device"], row["cluster"]["gpus"], row["plan"]["global_batch"],
               row["plan"]["seq_len"])  # fmt: skip
        groups.setdefault(json.dumps(key), []).append((answer["step_time_s"], row["measured"]["step_time_s"]))
    return [min(pairs)[1] / min(measured for _, measured in pairs) - 1.0 for pairs in groups.values() if len(pairs) > 1]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``arena``."""
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=FOLDER",
        help="a tool of experiments/arena/peers.toml and where it was fetched to; once for each",
    )  # fmt: skip
    parser.add_argument("--rows", type=Path, default=QUOTED, metavar="FILE", help="records (default: those that came with this)")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="how often each is asked (default: 3)")
    parser.add_argument("--update", action="store_true", help="write the table into docs/arena.md")


def run(arguments: argparse.Namespace) -> int:
    """Run ``arena``."""
    folders = dict(text.split("=", 1) if "=" in text else (text, "") for text in arguments.peer)
    records = [json.loads(line) for line in arguments.rows.read_text(encoding="utf-8").splitlines() if line.strip()]
    measures = ("time", "step_time_s"), ("memory", "peak_memory_bytes")
    records = [record for record in records if "measured" in record and any(_measured(record, *one) for one in measures)]
    table = as_table(contest(rivals(folders), records, max(1, arguments.turns)))
    if arguments.update:
        today = datetime.datetime.now(tz=datetime.UTC).date()
        text = f"{table}\n\n{len(records)} runs of `{arguments.rows.name}`, {today.isoformat()}."
        put_table("docs/arena.md", "arena", text)
    print(table)
    return 0


def contest(tools: Sequence[Rival], records: Sequence[Row], turns: int) -> list[Entry]:
    """Every tool asked about every record, in turns, so that what else the machine does meets all of them."""
    answers: dict[str, dict[str, Row]] = {tool.name: {} for tool in tools}
    fastest = dict.fromkeys(answers, float("inf"))
    for _ in range(turns):
        for tool in tools:
            if tool.absent:
                continue
            found = asked(tool, records)
            answers[tool.name] = found
            fastest[tool.name] = min(fastest[tool.name], sum(one["seconds"] for one in _answered(found)))
    return [
        Entry(tool, records, answers[tool.name], len(_answered(answers[tool.name])) / max(fastest[tool.name], 1e-9))
        for tool in tools
    ]


def _answered(found: Mapping[str, Row]) -> list[Row]:
    return [one for one in found.values() if "refused" not in one]


def as_table(entries: Sequence[Entry]) -> str:
    """The table as Markdown."""
    return markdown(HEADINGS, (entry.cells(entries[0].answers) for entry in entries))
