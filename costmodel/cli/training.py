"""`costmodel train` and `formula`: a run to its end, and what is computed with."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, SupportsFloat

from costmodel.cli import codes
from costmodel.cli.arguments import Commands, Misused, add_output, chosen, hours, nbytes, number, seconds, watts
from costmodel.cli.output import TerminalTable, judged, plan_heading, print_json, print_page, respond, share, table
from costmodel.cli.question import USAGE, add_question, cluster_names, read_asked_model, read_hardware, read_plan
from costmodel.cli.runs import amounts
from costmodel.description.judgement import CHOSEN
from costmodel.evaluation.estimation import Estimate, estimate, memory_limit
from costmodel.text.checks import choice
from costmodel.text.errors import IllegalPlan, InvalidValue, UnknownName
from costmodel.text.units import counted, format_count, format_seconds, read_count

if TYPE_CHECKING:
    from costmodel.training.duration import TrainingRun

HOUR = 3600.0


def tokens(text: str) -> float:
    """A number of tokens, such as 300e9, 300B or 15T."""
    try:
        return read_count("tokens", text)
    except InvalidValue as refused:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not {refused.expected}") from None


LENGTHS = ("tokens", "steps", "samples", "target_loss")
"""What says how long a run is, each by itself."""


def add_run(parser: argparse.ArgumentParser) -> None:
    """Arguments that carry an estimate through to a whole run."""
    group = parser.add_argument_group("the whole run")
    group.add_argument("--tokens", type=tokens, metavar="X", help="of the run, such as 1e12 or 15T: adds days, GPU-hours, energy")
    group.add_argument("--price", type=number, metavar="X", help="of a GPU for an hour, in any currency; none is built in")


def add(commands: Commands) -> None:
    """Add the commands."""
    usage = (USAGE % "train").replace("[options]", "--tokens X [--price X] [options]")
    training = commands.add_parser(
        "train", usage=usage, help="days, GPU-hours, money and energy of a whole training run",
        examples=(
            "costmodel train llama3-8b --cluster dgx-h100 --nodes 16 --global-batch 1024 --seq-len 8192 --tokens 15T --price 2.5",
            "costmodel train llama3-70b --cluster dgx-h100 --nodes 64 --global-batch 2048 --seq-len 8192 --tokens 15T "
            "--mtbf-hours 50000 --checkpoint-time 60",
        ),
    )  # fmt: skip
    add_question(training, several=False)
    add_run(training)
    run = training.add_argument_group("how long it goes on, and what stops it")
    run.add_argument("--steps", type=tokens, metavar="N", help="in place of tokens: optimizer steps")
    run.add_argument("--samples", type=tokens, metavar="N", help="in place of tokens: sequences of the data, of --seq-len tokens")
    run.add_argument("--epochs", type=number, default=1.0, metavar="X", help="passes over the tokens (default: 1)")
    run.add_argument("--target-loss", type=number, metavar="X", help="in place of tokens, with --law [nats a token]")
    run.add_argument("--law", metavar="L", help="scaling law that tells the loss: chinchilla or kaplan")
    run.add_argument("--mtbf-hours", type=hours, metavar="X", help="mean hours between failures of one GPU (default: none)")
    run.add_argument("--checkpoint-time", type=seconds, metavar="S", help="seconds that a checkpoint stops the run")
    run.add_argument("--storage-bandwidth", type=nbytes, metavar="SIZE", help="bytes/s in place of it, such as 100GB")
    run.add_argument("--checkpoint-bytes", type=nbytes, metavar="SIZE", help="of one (default: 14 bytes a parameter)")
    run.add_argument("--checkpoint-interval", type=_interval, default="daly", metavar="S",
                     help="daly, young, or a time such as 1h (default: daly)")  # fmt: skip
    run.add_argument("--restart", type=seconds, default=600.0, metavar="S", help="seconds to restart (default: 600)")
    run.add_argument("--preemption-hours", type=hours, metavar="X", help="mean hours between preemptions of the run")
    run.add_argument("--preemption-restart", type=seconds, metavar="S", help="seconds after one (default: --restart)")
    run.add_argument("--straggler-spread", type=number, default=0.0, metavar="X", help="of replicas' steps (default: 0)")
    run.add_argument("--power", type=watts, metavar="W", help="watts of a GPU (default: the device's limit)")
    run.add_argument("--power-utilisation", type=number, default=1.0, metavar="X", help="mean share of it (default: 1)")
    run.add_argument("--overhead", type=number, default=1.0, metavar="X", help="energy of the site over the GPUs' (default: 1)")
    run.add_argument("--carbon", type=number, metavar="X", help="kg of carbon dioxide a kilowatt-hour")
    add_output(training)
    training.set_defaults(run=_train)

    usage = "costmodel formula [NAME] [--at NAME=X,...] [--json]"
    showing = commands.add_parser(
        "formula", usage=usage, help="a formula's LaTeX, validity and source",
        examples=("costmodel formula young_interval --at write_time=60,mtbf=36000", "costmodel formula bubble"),
    )  # fmt: skip
    showing.add_argument(
        "name", nargs="?", metavar="NAME", help="such as young_interval, or a word that names hold (default: their list)"
    )
    showing.add_argument("--at", metavar="NAME=X,...", help="values of all inputs: also the result and its elasticities")
    add_output(showing, "text")
    showing.set_defaults(run=_formula)


def _interval(text: str) -> str | float:
    """How a time between checkpoints is chosen, or the time itself [s]."""
    try:
        return text if text in ("daly", "young") else seconds(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is neither daly nor young nor a time such as 3600 or 1h") from None


def _train(arguments: argparse.Namespace) -> int:
    from costmodel.evaluation.notes import notes
    from costmodel.training.cost import Tariff
    from costmodel.training.duration import time_to_train
    from costmodel.training.reliability import Reliability
    from costmodel.training.scaling_laws import LAWS

    if sum(getattr(arguments, name) is not None for name in LENGTHS) > 1:
        raise Misused("--tokens, --steps, --samples and --target-loss each say how long the run is: give one of them")
    if arguments.steps is not None and arguments.epochs != 1.0:
        raise Misused("--steps are those of the whole run: --epochs goes with --tokens or --samples")
    if all(getattr(arguments, name) is None for name in LENGTHS):
        raise Misused("how long is the run? Say its tokens, such as --tokens 1T, its --steps, or the --samples of its data")
    stopped = arguments.mtbf_hours is not None or arguments.preemption_hours is not None
    if (stopped or isinstance(arguments.checkpoint_interval, float)) and not (
        arguments.checkpoint_time is not None or arguments.storage_bandwidth is not None
    ):
        raise Misused("how long does a checkpoint stop the run? Say --checkpoint-time, such as 1min, or --storage-bandwidth")
    law = None if arguments.law is None else LAWS[choice("law", arguments.law, tuple(LAWS))]
    reliability = Reliability(
        device_mtbf=_seconds(arguments.mtbf_hours), checkpoint_time=arguments.checkpoint_time,
        checkpoint_bytes=arguments.checkpoint_bytes, storage_bandwidth=arguments.storage_bandwidth,
        interval=arguments.checkpoint_interval, restart=arguments.restart, preemption_mtbf=_seconds(arguments.preemption_hours),
        preemption_restart=arguments.preemption_restart,
    )  # fmt: skip
    tariff = Tariff(
        gpu_hour=arguments.price, power=arguments.power, power_utilisation=arguments.power_utilisation,
        overhead=arguments.overhead, carbon_intensity_kg_per_kwh=arguments.carbon,
    )  # fmt: skip

    def carried(answer: Estimate) -> TrainingRun:
        sequences = arguments.samples if arguments.steps is None else arguments.steps * answer.plan.global_batch
        data = arguments.tokens if sequences is None else sequences * answer.plan.seq_len
        return time_to_train(
            answer, tokens=data, epochs=arguments.epochs, target_loss=arguments.target_loss, law=law,
            reliability=reliability, straggler_spread=arguments.straggler_spread, tariff=tariff,
        )  # fmt: skip

    if len(cluster_names(arguments)) > 1:
        from costmodel.cli.several_clusters import compare

        return compare(arguments, lambda one: [asked_plan(one)], run=carried)
    run = carried(asked_plan(arguments))
    arguments.notes += notes(run.estimate)
    return respond(
        arguments, lambda: {**run.estimate.to_dict(), **run.to_dict(), **_shares(run), "departures": run.estimate.departures},
        lambda: _page(run), run.estimate.fits,
    )  # fmt: skip


def _formula(arguments: argparse.Namespace) -> int:
    from costmodel.compilation.sheets import find_formula, formula_names, matching, page

    if arguments.name is None:
        if arguments.at is not None:
            raise Misused("--at gives the inputs of a formula: which? (`costmodel formula` lists them)")
        return respond(arguments, lambda: [*formula_names()], lambda: ["\n".join(formula_names())])
    try:
        name, formula = find_formula(arguments.name)
    except UnknownName:
        near = matching(arguments.name, list(formula_names()))
        if not near or arguments.at or arguments.json:
            raise
        print_page(f"Formulas that hold {arguments.name!r}:", "\n".join(near), markdown=arguments.markdown)
        return codes.ANSWERED
    shown = page(name)
    found = None if arguments.at is None else _at(formula, arguments.at)
    if arguments.json:
        figures = {} if found is None else {"result": found[0], "elasticities": found[1]}
        print_json({**dataclasses.asdict(shown), "parameters": dict(shown.parameters), **figures})
        return codes.ANSWERED
    parts: list[TerminalTable | str] = [f"{shown.name}: {shown.summary}", "\n".join(shown.equations)]
    parts.append(table(["input", "meaning"], shown.parameters, words=2))
    lines = [f"Valid: {shown.assumptions or 'wherever its inputs make sense; no assumption stated'}"]
    lines += [f"Source: {source}" for source in shown.sources] or ["Source: derived in this library"]
    parts.append("\n".join(lines))
    if found is not None:
        slopes = [(path, f"{slope:+.3f}") for path, slope in found[1].items()]
        parts += [f"Result: {found[0]:.6g}", table(["input", "% of the result for 1 % of it"], slopes, words=1)]
    print_page(*parts, markdown=arguments.markdown)
    return codes.ANSWERED


def _at(formula: Callable[..., object], text: str) -> tuple[float, dict[str, float]]:
    """A formula's result and elasticities at values such as ``a=1,b=2``."""
    from costmodel.compilation.sheets import elasticities

    given: dict[str, float] = {}
    for pair in text.split(","):
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidValue("at", pair, "NAME=X, several with commas between them")
        try:
            given[name.strip()] = float(value)
        except ValueError:
            raise InvalidValue(name.strip(), value, "a number") from None
    parameters = inspect.signature(formula).parameters
    for name in given:
        if name not in parameters:
            raise InvalidValue("at", name, "one of " + ", ".join(parameters))
    empty = inspect.Parameter.empty
    missing = [name for name, one in parameters.items() if name not in given and one.default is empty]
    if missing:
        raise InvalidValue("at", text, "a value of each of " + ", ".join(missing))
    values = [given.get(name, one.default) for name, one in parameters.items()]
    try:
        result = formula(*values)
    except (AttributeError, TypeError):
        raise InvalidValue("at", text, "inputs that are numbers; this formula takes groups of them") from None
    if not isinstance(result, SupportsFloat):
        raise InvalidValue("at", text, "a formula of one result")
    return float(result), elasticities(formula, *values)


def _seconds(hours: float | None) -> float | None:
    return None if hours is None else hours * HOUR


def is_split(arguments: argparse.Namespace) -> bool:
    """Whether a question says by any degree how the model is split.

    Parameters
    ----------
    arguments : of a question about plans, as `costmodel.cli.question.add_question` adds them
    """
    from costmodel.evaluation.asked_step import DEGREES

    return any(name in chosen(arguments) for name in DEGREES)


def needed_to_choose(arguments: argparse.Namespace) -> float:
    """The probability to fit from which a plan is chosen: the one that was asked for, else that of a search."""
    return float(arguments.fit_probability) if "fit_probability" in vars(arguments).get("given", ()) else CHOSEN


def asked_plan(arguments: argparse.Namespace) -> Estimate:
    """The plan that was asked about; the fastest that fits where no degree was given."""
    return asked_plans(arguments, 1)[0]


def asked_plans(arguments: argparse.Namespace, most: int) -> Sequence[Estimate]:
    """The plan that was asked about; where no degree was given those that fit, the fastest first.

    Parameters
    ----------
    arguments : of a question about plans, as `costmodel.cli.question.add_question` adds them
    most : of these
    """
    model, given = read_asked_model(arguments), chosen(arguments)
    if is_split(arguments):
        return [estimate(model, *read_plan(arguments), arguments.framework, fit_probability=arguments.fit_probability)]
    from costmodel.evaluation.plan_search import search_by_name

    cluster = read_hardware(arguments)
    found = search_by_name(
        model, cluster, global_batch=arguments.global_batch, seq_len=arguments.seq_len, framework=arguments.framework, top=most,
        fit_probability=needed_to_choose(arguments), **{name: [value] for name, value in given.items()},
    )  # fmt: skip
    if not found.ranked:
        alone = arguments.device is not None and arguments.gpus is None and arguments.nodes is None
        hint = "; of how many GPUs nothing is said: --gpus N, or `costmodel gpus` to find how many" if alone else ""
        raise IllegalPlan("memory", f"{found.why_none()}{hint}")
    return found.ranked


def _shares(run: TrainingRun) -> dict[str, float | None]:
    found = run.goodput
    limits = {"mtbf_s": found.mtbf, "checkpoint_interval_s": found.interval}
    return {
        **{name: None if value == float("inf") else value for name, value in limits.items()},
        "checkpoint_time_s": found.write_time, "restart_s": found.restart, "checkpointing_share": found.checkpointing,
        "lost_share": found.lost, "restarting_share": found.restarting,
    }


def _page(run: TrainingRun) -> list[TerminalTable | str]:
    """Everything about one run, as lines and a table."""
    answer, found = run.estimate, run.goodput
    lines = [
        judged(answer), f"Memory limit: {memory_limit(answer)}",
        f"MFU of the whole run: {100 * run.mfu:.1f} %, HFU {100 * run.hfu:.1f} %; {100 * answer.mfu:.1f} % in a step",
    ]
    if found.mtbf < float("inf"):
        lines.append(
            f"Goodput: {share(found.useful, 1.0)}; checkpoints take {share(found.checkpointing, 1.0)}, lost work "
            f"{share(found.lost, 1.0)}, restarts {share(found.restarting, 1.0)}"
        )
        lines.append(
            f"An interruption every {format_seconds(found.mtbf)}, {run.interruptions:,.0f} in the run; after every "
            f"{format_seconds(found.interval)} of work a checkpoint, which takes {format_seconds(found.write_time)}"
        )
    elif found.checkpointing:
        lines.append(f"Goodput: {share(found.useful, 1.0)}; checkpoints take the rest (no failures: --mtbf-hours)")
    else:
        lines.append("Without failures and checkpoints (--mtbf-hours, --checkpoint-time)")
    if run.loss is not None:
        lines.append(f"Loss by the scaling law: {run.loss:.3f} nats a token")
    if not answer.fits:
        lines.append("`costmodel estimate` says where the memory goes, and what would fit")
    return [
        f"{plan_heading(answer)}\n"
        f"{format_count(run.tokens)} tokens: {counted(round(run.steps), 'step')} of {format_seconds(run.step_time)}",
        table(["", "expected", "90 % from", "to"], amounts(run, alone=True)),
        "\n".join(lines),
    ]
