"""`--cluster a,b,c`: the same question on several clusters, in one table."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from costmodel.arithmetic.named_tuples import Row
from costmodel.cli.arguments import Misused
from costmodel.cli.figures import write_figures
from costmodel.cli.output import TerminalTable, gib, named, respond, rows_file, share, table, written
from costmodel.cli.question import cluster_names, of_one_cluster
from costmodel.cli.runs import run_columns, runs_of
from costmodel.description.labels import of_a_step
from costmodel.evaluation.estimation import Estimate
from costmodel.text.errors import IllegalPlan, NotModelled
from costmodel.text.units import counted, format_seconds

if TYPE_CHECKING:
    from costmodel.training.duration import TrainingRun


SAID = {"fits": "yes", "may run out": "perhaps", "does not fit": "NO"}
"""Of a judgement, in a table's cell."""


def refuse_with_several(arguments: argparse.Namespace, *options: str) -> None:
    """Refuse options that mean one cluster alone.

    Parameters
    ----------
    arguments : with several clusters
    options : by their names in `arguments`
    """
    for option in options:
        if getattr(arguments, option, None):
            raise Misused(f"--{option.replace('_', '-')} is of one cluster: give --cluster one name")


def compare(
    arguments: argparse.Namespace, answer: Callable[[argparse.Namespace], list[Estimate] | str],
    lines: Sequence[str] = (), run: Callable[[Estimate], TrainingRun] | None = None,
) -> int:  # fmt: skip
    """Print what each cluster gives, with all that was asked for besides; exit code 1 where nothing fits on any.

    Parameters
    ----------
    arguments : with several clusters
    answer : gives the estimates on one of them, the best first, or why there are none
    lines : more to say, filled in while answers are given
    run : makes a whole run of an estimate, where the command does it in its own way
    """
    found: dict[str, list[Estimate] | str] = {}
    for name in cluster_names(arguments):
        try:
            found[name] = answer(of_one_cluster(arguments, name))
        except (IllegalPlan, NotModelled) as error:
            found[name] = str(error)
    places = [(name, one) for name, many in found.items() if not isinstance(many, str) for one in many]
    estimates = [one for _, one in places]
    runs = [run(one) for one in estimates] if run else runs_of(estimates, arguments)
    files = _write(arguments, places, runs)
    return respond(
        arguments, lambda: {"clusters": _figures(found, runs)},
        lambda: [*_page(arguments, found, runs), "\n".join(lines), written(*files)], any(one.fits for one in estimates),
    )  # fmt: skip


def _page(
    arguments: argparse.Namespace, found: dict[str, list[Estimate] | str], runs: Sequence[TrainingRun]
) -> list[TerminalTable | str]:
    places = [(name, one) for name, many in found.items() if not isinstance(many, str) for one in many]
    sizes = {one.plan.gpus for _, one in places}
    where = f" on {counted(sizes.pop(), 'GPU')}" if len(sizes) == 1 else ""
    page: list[TerminalTable | str] = [
        f"{arguments.model}{where}: {of_a_step(arguments.global_batch, arguments.seq_len)}"
        + (", the best of each cluster" if arguments.command == "search" else "")
    ]
    if places:
        page = ["\n".join([str(page[0]), *_departures(found)]), _compared(places, runs, sized=not where)]
    return page + [f"{name}: {why}" for name, why in found.items() if isinstance(why, str)]


def _departures(found: dict[str, list[Estimate] | str]) -> list[str]:
    """What isn't as it would be unasked: once where it is the same on every cluster, else cluster by cluster."""
    from costmodel.evaluation.departures import departures

    told = {
        name: ", ".join(departures(many[0].question, [one.plan for one in many], many[0].required_probability))
        for name, many in found.items() if not isinstance(many, str)
    }  # fmt: skip
    if len(set(told.values())) == 1:
        return [f"Not by default: {text}" for text in set(told.values()) if text]
    return [f"Not by default on {name}: {text}" for name, text in told.items() if text]


def _compared(places: Sequence[tuple[str, Estimate]], runs: Sequence[TrainingRun], sized: bool) -> TerminalTable:
    estimates = [one for _, one in places]
    taken, amounts = run_columns(runs) if runs else ([], [[] for _ in places])
    judged = [] if all(one.fits for one in estimates) else ["judged to fit"]
    rows = [
        [
            name, named(one.plan), *([f"{one.plan.gpus:,}"] if sized else []), format_seconds(one.step_time),
            f"{one.tokens_per_second:,.0f}", f"{one.tokens_per_second / one.plan.gpus:,.0f}", f"{100 * one.mfu:.1f} %",
            f"{gib(float(one.memory.total))} GiB", f"{gib(one.memory_limit)} GiB",
            *([SAID[one.judgement] + f" ({share(one.fit_probability, 1.0)})"] if judged else []), *amounts[place],
        ]
        for place, (name, one) in enumerate(places)
    ]  # fmt: skip
    columns = ["cluster", "plan", *(["GPUs"] if sized else []), "step", "tokens/s", "tokens/s/GPU", "MFU", "memory", "its limit"]
    return table([*columns, *judged, *taken], rows, words=2, titles=2)


def _write(arguments: argparse.Namespace, places: Sequence[tuple[str, Estimate]], runs: Sequence[TrainingRun]) -> list[str]:
    """Write the files that were asked for; what each is, none where there is no plan."""
    if not places:
        return []

    def rows() -> list[Row]:
        return [_row(name, one, runs, place) for place, (name, one) in enumerate(places)]

    files = rows_file(getattr(arguments, "csv", None), rows, "plan")
    if getattr(arguments, "png", None) or getattr(arguments, "html", None):
        files += write_figures(arguments, [one for _, one in places], f"{arguments.model} on several clusters")
    return files


def _row(name: str, one: Estimate, runs: Sequence[TrainingRun], place: int) -> Row:
    figures = {key: value for key, value in one.to_dict().items() if key != "cluster"}
    return {"cluster": name, "fits": bool(one.fits), **figures, **(runs[place].to_dict() if runs else {})}


def _figures(found: dict[str, list[Estimate] | str], runs: Sequence[TrainingRun]) -> list[Row]:
    rows: list[Row] = []
    place = 0
    for name, many in found.items():
        if isinstance(many, str):
            rows.append({"cluster": name, "refused": many})
            continue
        for one in many:
            rows.append(_row(name, one, runs, place))
            place += 1
    return rows
