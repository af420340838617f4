"""`costmodel explain`, `costmodel read` and `costmodel write`: launch files of training frameworks."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.catalogue import loader
from costmodel.cli import codes
from costmodel.cli.arguments import Commands, Misused, add_output, whole
from costmodel.cli.calibrated import add_calibration
from costmodel.cli.completed import completed
from costmodel.cli.files import add_file, check_files
from costmodel.cli.launched import is_line, launch_files
from costmodel.cli.layout import command
from costmodel.cli.output import (
    TerminalTable,
    because,
    gib,
    heading_of,
    judged,
    parts,
    print_page,
    print_text,
    respond,
    share,
    shown,
    table,
    time_and_memory,
    whole_plan,
    written,
)
from costmodel.cli.question import add_logged, add_question, one_count, read_asked_model, read_hardware, read_plan
from costmodel.description.cluster import Cluster
from costmodel.description.judgement import JUDGED
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.evaluation.estimation import Estimate, estimate, memory_limit
from costmodel.evaluation.single_changes import in_words
from costmodel.text.units import counted, format_seconds

if TYPE_CHECKING:
    from costmodel.interop.launchers import Launch, Priced
    from costmodel.training.rollouts import PostTraining

HINT = "Give --cluster C or --device D to price it (`costmodel clusters` and `costmodel devices` list them)"


def add(commands: Commands) -> None:
    """Add the commands."""
    explaining = commands.add_parser(
        "explain",
        usage="costmodel explain (FILE ... | MODEL --global-batch N --seq-len N --log LOG) [--cluster C | --device D] "
        "[--gpus N | --nodes N] [--log LOG] [options]",
        help="what a launch file will cost, what is assumed, and what would be better",
        examples=(
            "costmodel explain train.sh --cluster dgx-h100",
            "costmodel explain --device h100 -- torchrun --nproc_per_node 8 sft.py --model_name_or_path Qwen/Qwen3-1.7B "
            "--max_length 2048 --bf16",
            "costmodel explain sft.yaml ds_z3.json --device h100 --gpus 16",
            "costmodel explain llama3_8b.toml --cluster aws-p5 --log run.log",
            "costmodel explain llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 8192 --tp 2 --log run.log",
        ),
    )
    _add_files(explaining)
    where = explaining.add_mutually_exclusive_group()
    where.add_argument(
        "--cluster", metavar="C", help="name in the catalogue, a cloud's instance, or a TOML file; without one nothing is priced"
    )
    where.add_argument("--device", metavar="D", help="a GPU by name or TOML file: as many as the files run on, as it comes")
    add_calibration(explaining)
    explaining.add_argument("--nodes", type=whole, metavar="N", help="of it, where the files leave the world size open")
    explaining.add_argument("--network", metavar="RATE", help="of a node's NICs together, such as 400Gbit/s")
    explaining.add_argument("--model", metavar="MODEL", help="in place of the file's: name in the catalogue, TOML or config.json")
    explaining.add_argument(
        "--allow-config", action="store_true", help="take the model's shape from the config.json beside the file",
    )  # fmt: skip
    explaining.add_argument("--log", metavar="LOG", help="the run's log: compare its step time with the estimate")
    software = explaining.add_argument_group("framework")
    software.add_argument(
        "--framework", metavar="F", help="software of a model that has a log and no launch file (default: megatron-core)"
    )
    add_logged(explaining, software, "of a model with a log alone, or in place of what the files say")
    add_output(explaining)
    explaining.set_defaults(run=_explain, notes=[], changes=[], verbose=False, fit_probability=JUDGED)

    reading = commands.add_parser(
        "read", help="what a launch file says, field by field", examples=("costmodel read ds_config.json train.sh --json",)
    )
    _add_files(reading)
    add_output(reading, "a table")
    reading.set_defaults(run=_read)

    usage = "costmodel write FORMAT MODEL --cluster C [--nodes N | --gpus N] [--global-batch N] [--seq-len N] [options]"
    writing = commands.add_parser(
        "write", usage=usage, help="a plan, or the fastest one, as a launch file",
        examples=(
            "costmodel write megatron llama3-70b --device h100 --gpus 64",
            "costmodel write torchtitan llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 8192 --tensor-parallel 2 "
            "-o run.toml",
        ),
    )  # fmt: skip
    writing.add_argument("format", metavar="FORMAT", help="megatron, torchtitan, deepspeed, ... (an unknown one lists them)")
    add_question(writing, several=False)
    add_file(writing, "write to a file instead of the screen", required=False)
    writing.set_defaults(run=_write)


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE",
        help="launch file, or several that belong to one run, or the command line that starts it, in quotes or behind --",
    )
    parser.add_argument("--gpus", type=whole, metavar="N", help="world size, where the files leave it open")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a value for a variable, a flag, or a field of the plan",
    )  # fmt: skip
    parser.add_argument("--dialect", metavar="D", help="how to read the first file; guessed from its keys if not given")


def _launch(arguments: argparse.Namespace, gpus: int | None = None, more: Mapping[str, str] | None = None) -> Launch:
    """What the files say, with the settings of the command line and more of them."""
    from costmodel.interop.launchers import read_launch
    from costmodel.interop.launchers.launch import PLAN_FIELDS

    given = vars(arguments)
    settings = {name: str(given[name]).lower() for name in PLAN_FIELDS if given.get(name) is not None}
    for text in arguments.set:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise Misused(f"--set {text[:80]!r}: expected KEY=VALUE, such as tensor-model-parallel-size=4")
        settings[key] = value
    files, settings = launch_files(arguments.files), {**settings, **(more or {})}
    return read_launch(files, gpus=gpus or arguments.gpus, settings=settings, dialect=arguments.dialect)


def _read(arguments: argparse.Namespace) -> int:
    launch = _launch(arguments)
    for conflict in launch.conflicts:
        print(f"costmodel: conflict: {' '.join(conflict.split())[:500]}", file=sys.stderr)
    return respond(arguments, lambda: launch.to_dict(), lambda: _said(launch, arguments))


def _said(launch: Launch, arguments: argparse.Namespace) -> list[TerminalTable | str]:
    """What a launch says, as a table and lines."""
    model = launch.model_described
    named = model if isinstance(model, str) else ", ".join(f"{key} {shown(value)}" for key, value in (model or {}).items())
    named = f"{given} (given here)" if (given := getattr(arguments, "model", None)) else named
    head = f"{', '.join(launch.files)}: {launch.framework}" + (f" ({launch.version})" if launch.version else "")
    rows = []
    for field, value in launch.plan_fields.items():
        source = "assumed" if field in launch.assumed else "derived" if field in launch.derived else "stated"
        source = "given here" if getattr(arguments, field, None) is not None else source
        if value is not None or source != "assumed":
            rows.append([field, _brief(value), source])
    lines = [f"Model: {named or 'not stated'}", f"GPUs: {launch.gpus if launch.gpus else 'not stated'}"]
    open_ = [field for field, value in launch.assumed.items() if value is None and not (field == "model" and given)]
    listed = {
        "Not stated, and no default": open_,
        "Does nothing here": launch.ineffective, "Conflicts": launch.conflicts, "Unknown": launch.unknown,
        "Unresolved": [f"{flag} = {value}" for flag, value in launch.unresolved.items()],
        "Changes time or memory, not modelled": launch.unpriced, "Notes": launch.notes,
    }  # fmt: skip
    lines += [f"{title}: {', '.join(map(str, items))}" for title, items in listed.items() if items]
    passed = len(launch.irrelevant)
    lines.append(f"Irrelevant: {counted(passed, 'flag')} that {'changes' if passed == 1 else 'change'} neither time nor memory")
    return [head, table(["field", "value", ""], rows, words=3), "\n".join(lines)]


def _brief(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {shown(one)}" for key, one in value.items())
    return shown(value) if value != [] else "none"


def _explain(arguments: argparse.Namespace) -> int:
    from costmodel.interop.launchers import read_step_times, resolve
    from costmodel.interop.launchers.preferences import of_update, whole_step
    from costmodel.interop.launchers.pricing import allowed_config

    one_count(arguments)
    if _model_alone(arguments.files):
        return _explain_model(arguments)
    priceable = arguments.cluster is not None or arguments.device is not None
    if arguments.nodes is not None and not priceable:
        raise Misused("--nodes goes with --cluster or --device, which says how many GPUs a node has")
    offered = _hardware(arguments, nodes=arguments.nodes, notes=[]).gpus if priceable else None
    read = functools.partial(_launch, arguments)
    launch = completed(read, offered if arguments.nodes is not None else None, offered, arguments.notes)
    if not priceable and launch.gpus is None and not arguments.json:
        print_page(*_said(launch, arguments), f"{HINT}, with --gpus N where the files leave it open", markdown=arguments.markdown)
        return codes.ANSWERED
    config = None
    if arguments.allow_config and is_line(arguments.files[0]):
        raise Misused("--allow-config: beside a command line lies no config.json; say --model PATH/config.json")
    if arguments.allow_config:
        config = allowed_config(
            Path(arguments.files[0]), launch.model_described if isinstance(launch.model_described, str) else None
        )
    model = loader.load_model(arguments.model) if arguments.model else None
    priced = resolve(launch, model=model, config=config)
    if not priceable:
        return respond(
            arguments, lambda: {**launch.to_dict(), "priced_as": _plan_fields(priced)}, lambda: [*_said(launch, arguments), HINT]
        )
    cluster = _hardware(arguments, gpus=priced.plan.gpus)
    answer = estimate(priced.model, cluster, priced.plan, priced.software)
    whole = whole_step(priced, answer)
    measured = of_update(priced, answer, read_step_times(arguments.log, priced.plan).typical()) if arguments.log else None
    figures = {} if whole is None else {"post_training": whole.to_dict()}
    return respond(
        arguments, lambda: _answer_figures(launch, priced, answer, measured) | figures,
        lambda: _answer_page(launch, arguments, priced, answer, measured, whole), (whole or answer).fits,
    )  # fmt: skip


def _model_alone(files: Sequence[str]) -> bool:
    """Whether a model stands where launch files do."""
    from costmodel.interop.launchers.reading import is_launch_file

    path = Path(files[0])
    if len(files) > 1 or is_line(files[0]) or is_launch_file(path):
        return False
    return (not path.suffix and not path.exists()) or (path.is_file() and loader.model_file(files[0]) is not None)


def _explain_model(arguments: argparse.Namespace) -> int:
    """A model's run of which there is a log and no launch file: its plan is told by the options."""
    from costmodel.cli.training import asked_plan
    from costmodel.evaluation.diagnosis import diagnose
    from costmodel.interop.launchers import read_step_times

    name = arguments.files[0]
    loader.load_model(name)
    if arguments.log is None:
        raise Misused(f"{name[:80]} is a model, no launch file: `costmodel estimate` prices its plans, and with --log its run "
                      "is held against them here")  # fmt: skip
    if arguments.cluster is None and arguments.device is None:
        raise Misused("one of the arguments --cluster --device is required where a model stands in a launch file's place")
    missing = [f"--{field.replace('_', '-')}" for field in ("global_batch", "seq_len") if getattr(arguments, field) is None]
    if missing:
        raise Misused(f"the following arguments are required where a model stands in a launch file's place: {', '.join(missing)}")
    answer = asked_plan(argparse.Namespace(**{
        **vars(arguments), "model": name, "changes": arguments.set, "framework": arguments.framework or "megatron-core",
    }))  # fmt: skip
    found = diagnose(answer, step_time=read_step_times(arguments.log, answer.plan).typical())
    page: list[TerminalTable | str] = ["\n".join(_lines(answer, found.measured))]
    if found.advice:
        rows = [[one.change, format_seconds(one.saves), f"{100 * one.gain:.1f} %"] for one in found.advice]
        page.append(table(["would be faster with", "saves of the measured", "of the step"], rows))
    return respond(arguments, lambda: {**found.to_dict(), "answer": found.said()}, lambda: page, answer.fits)


def _hardware(arguments: argparse.Namespace, **other: object) -> Cluster:
    """The cluster or the device that was named, so much of it."""
    return read_hardware(argparse.Namespace(**{**vars(arguments), "gpus": None, "nodes": None, **other}))


def _plan_fields(priced: Priced) -> dict[str, object]:
    return {"model": priced.model.name, "framework": priced.software, **dataclasses.asdict(priced.plan)}


def _answer_figures(launch: Launch, priced: Priced, answer: Estimate, measured: float | None) -> dict[str, object]:
    from costmodel.evaluation.notes import of_loading
    from costmodel.evaluation.verdicts import verdict
    from costmodel.interop.launchers.advice import improvements

    return {
        **launch.to_dict(), "priced_as": _plan_fields(priced), "notes": [*launch.notes, *priced.notes, *of_loading(answer)],
        "step_time_s": answer.step_time, "step_time_low_s": answer.time_interval[0], "step_time_high_s": answer.time_interval[1],
        "times_s": answer.times, "peak_memory_bytes": float(answer.memory.total), "fits": answer.fits,
        "fit_probability": answer.fit_probability, "mfu": answer.mfu, "tokens_per_second": answer.tokens_per_second,
        "memory_low_bytes": answer.memory_interval[0], "memory_high_bytes": answer.memory_interval[1],
        "evidence": answer.evidence, "measured_step_time_s": measured, "widest_unknown": answer.widest_unknown,
        "improvements": [
            {"change": one.change, "flags": list(one.flags), "step_time_s": one.estimate.step_time, "gain": one.gain}
            for one in improvements(launch, answer)
        ],
        "fixes": [{"change": fix.change, "cost_s": fix.cost} for fix in verdict(answer).fixes[:5]],
    }  # fmt: skip


def _answer_page(
    launch: Launch, arguments: argparse.Namespace, priced: Priced, answer: Estimate, measured: float | None,
    whole: PostTraining | None,
) -> list[TerminalTable | str]:
    from costmodel.evaluation.notes import of_loading
    from costmodel.evaluation.verdicts import verdict
    from costmodel.interop.launchers.advice import improvements

    lines = [*_lines(answer, measured), *(f"Note: {note}" for note in (*priced.notes, *of_loading(answer)))]
    if whole is not None:
        lines += [
            f"With the reference {whole.said()}: {parts(whole.times, lambda part: share(part, whole.step_time))}",
            f"With its weights, {gib(whole.beside)} GiB, {'it fits' if whole.fits else 'NO FIT'}: {gib(whole.memory)} GiB",
        ]
    page = [*_said(launch, arguments), "\n".join(lines)]
    advice = improvements(launch, answer)
    if advice:
        rows = [
            [in_words(one.change), format_seconds(one.estimate.step_time), f"{100 * one.gain:.1f} %",
             f"{gib(one.estimate.memory.total)} GiB", "; ".join(one.flags) or "(the framework has no flag for it)"]
            for one in advice
        ]  # fmt: skip
        page.append(table(["would be faster with", "step", "saves", "memory", "flags"], rows, words={0, 4}))
    elif answer.fits:
        page.append("No single change makes it faster; `costmodel search` looks at every plan")
    if not answer.fits:
        fixes = verdict(answer).fixes[:5]
        rows = [[fix.change, f"{100 * fix.cost / answer.step_time:+.1f} %"] for fix in fixes]
        page.append(table(["would fit with", "cost"], rows) if rows else "No single change makes it fit")
    return page


def _lines(answer: Estimate, measured: float | None) -> list[str]:
    """What an estimate says in lines, and where a measured step stands to it."""
    low, high = answer.time_interval
    times, held = time_and_memory(answer)
    lines = [
        heading_of(answer),
        whole_plan(answer),
        f"Step: {format_seconds(answer.step_time)} (90 %: {format_seconds(low)} to {format_seconds(high)}), "
        f"{answer.tokens_per_second / answer.plan.gpus:,.0f} tokens/s a GPU, MFU {100 * answer.mfu:.1f} %",
        f"Evidence: {because(answer)}",
        f"Time: {times}",
        judged(answer),
        f"Memory: {held}",
        f"Memory limit: {memory_limit(answer)}",
    ]
    if measured is not None:
        from costmodel.evaluation.diagnosis import verdict_on

        lines.append(f"Measured: {verdict_on(answer, measured)} (`costmodel diagnose` says why)")
    return lines


def _write(arguments: argparse.Namespace) -> int:
    from costmodel.cli.training import asked_plan, is_split
    from costmodel.interop.launchers.writing import priced_by, runner, write_launch

    check_files(arguments)
    if "framework" not in arguments.given:
        arguments.framework, arguments.given = priced_by(arguments.format), {*arguments.given, "framework"}  # the format says it
    model = read_asked_model(arguments)
    if is_split(arguments):
        cluster, plan = read_plan(arguments)
    else:
        fastest = asked_plan(arguments)
        cluster, plan = fastest.cluster, fastest.plan
        arguments.notes.append(f"the fastest plan that fits, as no degree was given: {whole_plan(fastest)}: "
                               f"{format_seconds(fastest.step_time)}, {gib(fastest.memory.total)} GiB")  # fmt: skip
    text = write_launch(arguments.format, plan, model, cluster=cluster)
    if arguments.output is None:
        print_text(text)
        return codes.ANSWERED
    Path(arguments.output).write_text(text, encoding="utf-8")
    run = runner(arguments.format, plan, arguments.output, cluster)
    print_page(written(arguments.output), command(f"Run: {run}"), _lacks(text).strip())
    return codes.ANSWERED


def save(wish: str, plans: Sequence[Plan], model: Transformer, cluster: Cluster) -> str:
    """Write ranked plans as ``FORMAT:FILE`` (the best) or ``FORMAT:FOLDER/`` (all, with a runner); a line that says so."""
    from costmodel.interop.launchers import formats, runner, write_launch, write_sweep

    format, colon, place = wish.partition(":")
    if not colon or not place:
        raise Misused(f"--write {wish[:80]!r}: expected FORMAT:FILE or FORMAT:FOLDER/ with FORMAT one of {', '.join(formats())}")
    if place.endswith(("/", "\\")) or Path(place).is_dir():
        lines = write_sweep(format, plans, model, place, cluster=cluster)
        return f"Written: {len(lines)} plans in {place}, a line to run each in {Path(place) / 'run.sh'}"
    text = write_launch(format, plans[0], model, cluster=cluster)
    Path(place).write_text(text, encoding="utf-8")
    return f"Written: the first plan as {place}; run: {runner(format, plans[0], place, cluster)}" + _lacks(text)


def _lacks(text: str) -> str:
    """What a written file says that its framework can't say, as more lines."""
    return "".join(f"\n{line.lstrip('# ')}" for line in text.splitlines() if line.startswith("# ") and " can't say " in line)
