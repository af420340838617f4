"""`costmodel diagnose`: why a run takes what it takes, and what to change first."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from costmodel.cli.arguments import Commands, Misused, add_output
from costmodel.cli.launched import files_of
from costmodel.cli.output import TerminalTable, heading_of, respond, share, table, whole_plan
from costmodel.cli.question import PLAYED, add_question, judged_by, read_asked_model, read_plan
from costmodel.cli.training import asked_plan, is_split
from costmodel.description.labels import part_name
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.text.errors import InvalidValue
from costmodel.text.units import format_seconds, read_count

if TYPE_CHECKING:
    from costmodel.evaluation.diagnosis import Diagnosis

SHOWN = 0.005
"""Share of the measured step from which a part is named by itself."""
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}


def add(commands: Commands) -> None:
    """Add the command."""
    diagnosing = commands.add_parser(
        "diagnose",
        usage=(PLAYED % "diagnose").replace("[options]", "(--log LOG | --step-time S | --mfu X | --tokens-per-second X)"),
        help="why a run takes what it takes, and what to change first",
        description="What was measured of a plan or a launch file against its estimate: inside the 90 % interval or outside, "
        "the gap dealt to the parts as their errors allow, settings that would explain it, and what to change first, its gain "
        "rescaled to the measured step.",
        examples=(
            "costmodel diagnose train.sh --cluster dgx-h100 --log run.log",
            "costmodel diagnose llama3-70b --cluster dgx-h100 --nodes 8 --global-batch 512 --seq-len 8192 --tp 8 --pp 4 "
            "--mfu 38%",
            "costmodel diagnose llama3-8b --device h100 --gpus 8 --global-batch 64 --seq-len 4096 --zero-stage 3 "
            "--framework fsdp2 --step-time 6.1",
        ),
    )  # fmt: skip
    add_question(diagnosing, several=False, launches=True)
    measured = diagnosing.add_argument_group("what was measured").add_mutually_exclusive_group(required=True)
    measured.add_argument("--log", metavar="LOG", help="of the run, as its framework writes it")
    measured.add_argument("--step-time", type=_seconds, metavar="S", help="seconds of a step, such as 6.1 or 850ms")
    measured.add_argument("--mfu", type=_utilisation, metavar="X", help="model FLOP utilisation, such as 38%% or 0.38")
    measured.add_argument(
        "--tokens-per-second", type=_count, metavar="X", help="of all GPUs together, such as 120k, or of one: 15k/gpu"
    )
    add_output(diagnosing)
    diagnosing.set_defaults(run=_diagnose)


def _seconds(text: str) -> float:
    """Seconds such as 6.1, 6.1s or 850ms."""
    word = text.strip()
    unit = next((one for one in ("us", "ms", "min", "s") if word.endswith(one)), "")
    try:
        found = float(word.removesuffix(unit)) * UNITS.get(unit, 1.0)
    except ValueError:
        found = -1.0
    if not 0.0 < found < 1e9:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no time of a step, such as 6.1 or 850ms")
    return found


def _utilisation(text: str) -> float:
    """A share such as 38%, 38 or 0.38."""
    word = text.strip().removesuffix("%").strip()
    try:
        found = float(word)
    except ValueError:
        found = -1.0
    found = found / 100.0 if text.strip().endswith("%") or found > 1.0 else found
    if not 0.0 < found <= 1.0:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no utilisation, such as 38% or 0.38")
    return found


def _count(text: str) -> tuple[float, bool]:
    """Tokens a second, and whether of one GPU."""
    alone = text.strip().lower().removesuffix("/gpu")
    try:
        return read_count("tokens-per-second", alone), alone != text.strip().lower()
    except InvalidValue as refused:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not {refused.expected}") from None


def _diagnose(arguments: argparse.Namespace) -> int:
    from costmodel.evaluation.diagnosis import diagnose

    told = bool(files_of(arguments)) or is_split(arguments)
    if files_of(arguments):
        model = read_asked_model(arguments)
        cluster, plan = read_plan(arguments)
        answer = judged_by(estimate(model, cluster, plan, arguments.framework), arguments)
    else:
        rate = arguments.mfu is not None or arguments.tokens_per_second is not None
        missing = [name for name in ("global-batch", "seq-len") if getattr(arguments, name.replace("-", "_")) is None]
        if missing and not rate:  # of any step the rate is known; seconds are those of one
            names = ", ".join(f"--{name}" for name in missing)
            raise Misused(f"the following arguments are required: {names}, as seconds are of so much work (not with --mfu)")
        answer = asked_plan(arguments)
    made = diagnose(answer, **_measured(arguments, answer))
    return respond(arguments, lambda: {**made.to_dict(), "answer": made.said()}, lambda: _page(made, told))


def _measured(arguments: argparse.Namespace, answer: Estimate) -> dict[str, Any]:
    """What was measured, by its name."""
    if arguments.log is not None:
        from costmodel.interop.launchers import read_step_times

        arguments.step_time = read_step_times(arguments.log, answer.plan).typical()
    if arguments.mfu is not None:
        return {"mfu": arguments.mfu}
    if arguments.tokens_per_second is not None:
        rate, of_one = arguments.tokens_per_second
        return {"tokens_per_second": rate * (answer.plan.gpus if of_one else 1)}
    from costmodel.interop.launchers.preferences import of_update

    of_it = of_update(getattr(arguments, "priced", None), answer, arguments.step_time)
    if of_it != arguments.step_time:
        beside = format_seconds(arguments.step_time - of_it)
        arguments.notes.append(f"of the measured step {beside} are taken for the reference's pass, by its share of the estimate")
    return {"step_time": of_it}


def _page(made: Diagnosis, told: bool) -> list[TerminalTable | str]:
    answer = made.estimate
    plan = f"Plan: {whole_plan(answer)}" + ("" if told else " (the fastest, as no degree was given)")
    faster = f"Of runs estimated so {share(made.slower_than, 1.0)} take less time; measured MFU {100 * made.mfu:.1f} %, "
    faster += f"estimated {100 * answer.mfu:.1f} %"
    page: list[TerminalTable | str] = [
        f"{heading_of(answer)}\n{plan}", f"{made.said()}\n{faster}", _parts(made),
        "The gap is dealt to the parts as their errors allow: it may lie in one of them alone",
    ]
    if made.explanations:
        rows = [[one.change, format_seconds(one.estimate.step_time), f"{100 * one.explains:.0f} %"] for one in made.explanations]
        page.append(table(["would explain it", "step then", "of the gap"], rows))
    if made.advice:
        rows = [[one.change, format_seconds(one.saves), f"{100 * one.gain:.1f} %"] for one in made.advice]
        page.append(table(["change first", "saves of the measured", "of the step"], rows))
    else:
        page.append("No single change makes it faster; `costmodel search` looks at every plan")
    return page


def _parts(made: Diagnosis) -> TerminalTable:
    large = [one for one in made.parts if max(one.estimated, abs(one.gap)) >= SHOWN * made.measured]
    small = [one for one in made.parts if one not in large]
    rows = [[part_name(one.part), *_cells(one.estimated, one.error, one.gap)] for one in large]
    if small:
        error = sum(one.error**2 for one in small) ** 0.5
        rows.append(["other", *_cells(sum(one.estimated for one in small), error, sum(one.gap for one in small))])
    error = made.estimate.time_spread * made.estimate.step_time
    rows.append(["step", *_cells(made.estimate.step_time, error, made.gap)])
    return table(["part", "estimated", "error", "gap", "then"], rows, total=True)


def _cells(estimated: float, error: float, gap: float) -> list[str]:
    sign = "+" if gap >= 0.0 else "-"
    then = max(estimated + gap, 0.0)
    return [format_seconds(estimated), format_seconds(error), f"{sign}{format_seconds(abs(gap))}", format_seconds(then)]
