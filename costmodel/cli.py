"""The command line: a question in, tables for people or JSON for machines out."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from costmodel import __version__
from costmodel.errors import CostModelError, IllegalPlan, InvalidValue

if TYPE_CHECKING:
    from costmodel.estimate import Estimate
    from costmodel.frameworks import Framework
    from costmodel.hardware.cluster import Cluster
    from costmodel.hardware.device import Device
    from costmodel.search import SearchResult
    from costmodel.workloads.transformer import Transformer

ANSWERED, NOTHING_FITS, BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141
"""Exit codes."""
LONGEST_MESSAGE = 1000
WIDE = 10_000
"""Columns of the page that tables are laid out on: none is cut or wrapped."""
PATIENCE = 0.5
"""Seconds that a search may take before a progress bar shows."""
KINDS = ("model", "device", "cluster", "framework")
WORDS = {
    "zero_stage": "ZeRO stage that the framework lacks",
    "zero_pipeline": "ZeRO stage under a pipeline",
    "world_size": "degrees that don't multiply to the GPUs",
    "tensor_heads": "tensor degree against heads",
    "tensor_kv_heads": "tensor degree against key/value heads",
    "tensor_feed_forward": "tensor degree against the MLP",
    "pipeline_layers": "layers that don't split into stages",
    "virtual_stages": "virtual stages without interleaving",
    "pipeline_micro_batches": "micro-batches that interleaving can't use",
    "schedule": "schedule without its pipeline",
    "global_batch": "global batch that doesn't split",
    "sequence": "sequence that doesn't split",
    "experts": "expert degree against experts",
    "expert_ranks": "expert degree against ranks",
    "expert_feed_forward": "expert-tensor degree against the expert",
    "shard_group": "shard group against ranks",
    "unfused_context": "context parallelism without flash attention",
}
"""What a rejected plan broke, in words; a rule without an entry is shown by its name."""


# Arguments


class Misused(CostModelError):
    """Arguments that can't be understood."""


class _Parser(argparse.ArgumentParser):
    """Leaves the printing of errors to `main`."""

    def error(self, message: str) -> NoReturn:
        raise Misused(message)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a number") from None


def _yes(text: str) -> bool:
    answers = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
    if text.lower() not in answers:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is neither yes nor no")
    return answers[text.lower()]


def _word(text: str) -> str:
    return text


def _word_or_whole(text: str) -> str | int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text


def _order(text: str) -> tuple[str, ...]:
    return tuple(text.split("-"))


_READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "int": (_whole, "N"),
    "bool": (_yes, "yes|no"),
    "float": (_number, "X"),
    "str": (_word, "NAME"),
    "str | int": (_word_or_whole, "NAME|N"),
    "Sequence[str]": (_order, "A-B-C-D"),
}
"""By the annotation of a field of `Plan`: how an argument is read, and how it is shown in the help."""


def _plan_fields() -> dict[str, tuple[Callable[[str], Any], str, str]]:
    """Every dimension of a plan: reader, placeholder and help, from the fields and the docstring of `Plan`."""
    import dataclasses
    import re

    from costmodel import plan
    from costmodel.plan import Plan

    words: dict[str, str] = {}
    names: list[str] = []
    for line in (Plan.__doc__ or "").partition("----------")[2].partition("Raises")[0].splitlines():
        left, colon, right = line.strip().partition(" : ")
        names = left.split(", ") if colon else names
        words |= {name: f"{words.get(name, '')} {right or left}".strip() for name in names}
    words = {name: re.sub(r"`([A-Z]+)`", lambda match: ", ".join(getattr(plan, match[1])), text) for name, text in words.items()}
    fields = {}
    for field in dataclasses.fields(Plan):
        if field.name not in ("global_batch", "seq_len"):
            reader, shown = _READERS[str(field.type).removesuffix(" | None")]
            fields[field.name] = (reader, shown, words.get(field.name, "").replace("`", "").replace("%", "%%"))
    return fields


_USAGE = "costmodel %s MODEL --cluster C [--nodes N | --gpus N] --global-batch N --seq-len N [options]"


def _many(reader: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    def read(text: str) -> list[Any]:
        return [reader(part) for part in text.split(",")]

    return read


def _add_question(parser: argparse.ArgumentParser, several: bool) -> None:
    parser.add_argument("model", metavar="MODEL", help="name in the catalogue, a TOML file, or a Hugging Face config.json")
    parser.add_argument("--cluster", required=True, metavar="C", help="name in the catalogue, or a TOML file")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--nodes", type=_whole, metavar="N", help="how many nodes of it")
    size.add_argument("--gpus", type=_whole, metavar="N", help="how many GPUs of it")
    parser.add_argument("--global-batch", type=_whole, required=True, metavar="N", help="sequences per step")
    parser.add_argument("--seq-len", type=_whole, required=True, metavar="N", help="tokens of a sequence")
    parser.add_argument("--framework", default="megatron-core", metavar="F", help="software (default: megatron-core)")
    title = "what to try, one value or several (1,2,4)" if several else "the plan"
    group = parser.add_argument_group(title)
    for name, (reader, shown, text) in _plan_fields().items():
        option = "--" + name.replace("_", "-")
        if several:
            group.add_argument(option, type=_many(reader), action="extend", metavar=shown, help=text)
        else:
            group.add_argument(option, type=reader, metavar=shown, help=text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="costmodel",
        allow_abbrev=False,
        description="Which parallel plan of a training run is fastest and fits in memory.",
        epilog="Exit codes: 0 answered, 1 a search found no plan that fits, 2 bad input, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"costmodel {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    searching = commands.add_parser("search", usage=_USAGE % "search", allow_abbrev=False, help="rank every legal plan")
    _add_question(searching, several=True)
    searching.add_argument("--top", type=_whole, default=10, metavar="K", help="plans to show (default: 10)")
    searching.add_argument("--engine", default="auto", metavar="E", help="auto, python, numpy or numba")
    output = searching.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="JSON instead of tables")
    output.add_argument("--csv", metavar="FILE", help="also write the ranked plans to a file")
    searching.set_defaults(run=_search)

    estimating = commands.add_parser(
        "estimate", usage=_USAGE % "estimate", allow_abbrev=False, help="time and memory of one plan, part by part"
    )
    _add_question(estimating, several=False)
    estimating.add_argument("--json", action="store_true", help="JSON instead of tables")
    estimating.set_defaults(run=_estimate)

    for kind in KINDS:
        listing = commands.add_parser(f"{kind}s", allow_abbrev=False, help=f"{kind}s of the catalogue")
        listing.add_argument("--json", action="store_true", help="JSON instead of a table")
        listing.set_defaults(run=_list, kind=kind)

    accuracy = commands.add_parser("accuracy", allow_abbrev=False, help="errors of the estimates on measured runs")
    accuracy.add_argument("--json", action="store_true", help="JSON instead of a table")
    accuracy.set_defaults(run=_accuracy)

    showing = commands.add_parser("show", allow_abbrev=False, help="everything about one entry, and where it comes from")
    showing.add_argument("name", metavar="NAME", help="a model, device, cluster or framework, or a file")
    showing.add_argument("--kind", metavar="K", help=f"one of {', '.join(KINDS)}; a file's is model unless given")
    showing.add_argument("--json", action="store_true", help="JSON instead of tables")
    showing.set_defaults(run=_show)
    return parser


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        import difflib

        option = unknown[0].partition("=")[0]
        fields = [f"--{name.replace('_', '-')}" for name in vars(arguments) if name not in ("command", "run", "model")]
        near = difflib.get_close_matches(option, fields, n=1) if option.startswith("-") else []
        hint = f"; did you mean {near[0]}?" if near else f" (`costmodel {arguments.command} --help` lists the options)"
        raise Misused(f"unknown argument {option[:80]!r}{hint}")
    return arguments


# What is asked about


def _is_file(name: str) -> bool:
    return name.endswith((".toml", ".json")) or os.path.sep in name or os.path.exists(name)


def _model(name: str) -> Transformer:
    from costmodel.catalogue import loader

    if not _is_file(name) or name in loader.names("model"):
        return loader.load_model(name)
    if name.endswith(".toml"):
        return loader.read_model_file(name)
    from costmodel.workloads.transformer import Transformer

    return Transformer.from_huggingface(name)


def _cluster(name: str) -> Cluster:
    from costmodel.catalogue import loader

    if not _is_file(name) or name in loader.names("cluster"):
        return loader.load_cluster(name)
    return loader.read_cluster_file(name)


def _gpus(arguments: argparse.Namespace, cluster: Cluster) -> int | None:
    """GPUs that were asked for, or None."""
    nodes: int | None = arguments.nodes
    gpus: int | None = arguments.gpus
    if nodes is None:
        return gpus
    if nodes < 1:
        raise InvalidValue("nodes", nodes, "a whole number from 1")
    return nodes * cluster.gpus_per_node


# Output


def _print(text: str) -> None:
    if sys.stdout is not None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def _print_json(document: Any) -> None:
    import json

    _print(json.dumps(document, allow_nan=False, indent=1))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1, total: bool = False) -> Any:
    """A table whose first `words` columns are text and the others numbers; `total` sets off the last row."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < words else "right", no_wrap=True)
    filled = list(rows)
    for place, row in enumerate(filled, 1):
        table.add_row(*row, end_section=total and place == len(filled) - 1)
    return table


def _print_page(*parts: Any) -> None:
    """Tables and lines of text, an empty line between them, never cut to the width of the terminal."""
    from rich.console import Console

    console = Console(width=WIDE, highlight=False, markup=False, emoji=False)
    with console.capture() as page:
        for place, part in enumerate(parts):
            if place:
                console.print()
            console.print(part)
    _print("\n".join(line.rstrip() for line in page.get().splitlines()))


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _gib(nbytes: float) -> str:
    return f"{nbytes / 2**30:.1f}"


def _parts(amounts: Mapping[str, float], show: Callable[[float], str], most: int = 5) -> str:
    """The largest of some named amounts, in words."""
    largest = sorted((item for item in amounts.items() if item[1] > 0), key=lambda item: -item[1])
    return ", ".join(f"{name.replace('_', ' ')} {show(amount)}" for name, amount in largest[:most])


def _split(estimate: Estimate) -> str:
    """A plan in a line."""
    plan = estimate.plan
    words = [f"TP {plan.tensor_parallel}", f"CP {plan.context_parallel}", f"PP {_stages(estimate)}", f"DP {plan.data_parallel}"]
    if estimate.model.experts:
        words.append(f"EP {plan.expert_parallel}")
    return f"{' '.join(words)}, micro-batch {plan.micro_batch}, ZeRO {plan.zero_stage}, recompute {plan.recompute}"


def _stages(estimate: Estimate) -> str:
    plan = estimate.plan
    return f"{plan.pipeline_parallel}" + (f"x{plan.virtual_stages}" if plan.virtual_stages > 1 else "")


def _memory_parts(estimate: Estimate) -> dict[str, float]:
    held = estimate.step.memory._asdict()
    del held["total"]
    return held


# Commands


def _search(arguments: argparse.Namespace) -> int:
    import time

    from costmodel.search import search

    model, cluster = _model(arguments.model), _cluster(arguments.cluster)
    gpus = _gpus(arguments, cluster)
    if gpus is not None:
        cluster = cluster.with_gpus(gpus)
    tried = {name: getattr(arguments, name) for name in _plan_fields() if getattr(arguments, name) is not None}
    tried = {name: list(dict.fromkeys(values)) for name, values in tried.items()}
    progress = None if arguments.json else _Progress()
    started = time.perf_counter()
    try:
        result = search(
            model, cluster, global_batch=arguments.global_batch, seq_len=arguments.seq_len,
            framework=arguments.framework, top=arguments.top, engine=arguments.engine, progress=progress, **tried,
        )  # fmt: skip
    finally:
        if progress:
            progress.stop()
    seconds = time.perf_counter() - started
    if arguments.json:
        import json

        _print_json({**json.loads(result.to_json()), "search_time_s": seconds})
        return ANSWERED if result.ranked else NOTHING_FITS
    if result.ranked and arguments.csv:
        result.to_csv(arguments.csv)
    several = [name for name, values in tried.items() if len(values) > 1]
    _print_page(*_search_page(result, arguments, seconds, several))
    return ANSWERED if result.ranked else NOTHING_FITS


def _search_page(
    result: SearchResult, arguments: argparse.Namespace, seconds: float, several: Sequence[str]
) -> list[Any]:
    """What a search found, as lines and a table."""
    from costmodel.units import format_seconds

    cluster, model = result.cluster, result.model
    page: list[Any] = [
        f"{model.name} on {cluster.gpus} GPUs of {cluster.name}, {result.framework.name}: "
        f"{arguments.global_batch} sequences of {arguments.seq_len} tokens a step"
    ]
    if result.ranked:
        page.append(_ranking(result, several))
    lines = []
    if result.ranked:
        best = result.best
        times = _parts(best.times, lambda part: _share(part, best.step_time))
        held = _parts(_memory_parts(best), lambda part: f"{_gib(part)} GiB")
        lines += [f"Best plan's step: {times}", f"Best plan's memory: {held}"]
        standing = result.standings.plans[0]
        low, high = best.time_interval
        lines.append(
            f"Error: 90 % of such estimates lie within {format_seconds(low)} to {format_seconds(high)}"
            + ("" if best.spread.calibrated else " (no measurement of this framework on this device)")
            + f"; the first plan is the fastest with probability {_share(standing.probability_fastest, 1.0)}, "
            f"expected regret {_share(standing.expected_regret, 1.0)}; chosen for its estimate, expect "
            f"{format_seconds(result.corrected_step_time)}"
        )
        if len(result.ties()) > 1:
            lines.append("~ can't be told from the first within the error")
    else:
        why = "no plan is legal" if result.considered and not result.evaluated else result.why_none()
        lines.append(why[0].upper() + why[1:])
    if miss := result.closest_miss:
        name = "Fastest" if result.ranked else "Leanest"
        lines.append(
            f"{name} plan that doesn't fit: {format_seconds(miss.step_time)}, "
            f"{_gib(result.excess_bytes)} GiB too much ({_split(miss)})"
        )
    if result.rejected:
        counts = sorted(result.rejected.items(), key=lambda item: -item[1])
        lines.append("Rejected: " + ", ".join(f"{count:,} {WORDS.get(reason, reason)}" for reason, count in counts))
    lines.append(
        f"Looked at {result.considered:,} combinations, {result.evaluated:,} of them legal, "
        f"{result.fitting:,} that fit, in {format_seconds(seconds)}"
    )
    return [*page, "\n".join(lines)]


def _ranking(result: SearchResult, several: Sequence[str]) -> Any:
    from costmodel.units import format_seconds

    columns = {"tensor_parallel": "TP", "context_parallel": "CP", "data_parallel": "DP"}
    if result.model.experts:
        columns |= {"expert_parallel": "EP"}
    columns |= {"micro_batch": "micro-batch", "zero_stage": "ZeRO", "recompute": "recompute"}
    hidden = ("pipeline_parallel", "virtual_stages")
    columns |= {name: name.replace("_", " ") for name in several if name not in columns and name not in hidden}
    titles = list(columns.values())
    titles.insert(2, "PP")
    rows = []
    for rank, (found, standing) in enumerate(zip(result.ranked, result.standings.plans, strict=True), 1):
        values = [_value(getattr(found.plan, name)) for name in columns]
        values.insert(2, _stages(found))
        rows.append([
            f"{rank:>{len(str(len(result.ranked)))}} {'~' if standing.tied and rank > 1 else ' '}",
            format_seconds(found.step_time),
            f"{found.tokens_per_second / found.plan.gpus:,.0f}", f"{100 * found.mfu:.1f} %",
            _share(standing.probability_fastest, 1.0), f"{_gib(found.memory.total)} / {_gib(found.memory_limit)} GiB",
            *values,
        ])  # fmt: skip
    return _table(["rank", "step", "tokens/s/GPU", "MFU", "fastest", "memory", *titles], rows, words=1)


def _value(value: Any) -> str:
    """A field of a description as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) < 1e6 and value == int(value) else f"{value:.6g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


class _Progress:
    """A bar on stderr once a search has taken `PATIENCE`, where somebody looks at stderr."""

    def __init__(self) -> None:
        import threading
        import time

        self._lock, self._clock, self._started = threading.Lock(), time.perf_counter, time.perf_counter()
        self._done, self._bar, self._task = 0, None, None  # type: tuple[int, Any, Any]
        self._shown = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        if not self._shown:
            return
        with self._lock:
            self._done += done
            if self._bar is None and self._clock() - self._started > PATIENCE:
                from rich.console import Console
                from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

                columns = (TextColumn("plans"), BarColumn(), MofNCompleteColumn())
                self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
                self._task = self._bar.add_task("plans", total=total)
                self._bar.start()
            if self._bar is not None:
                self._bar.update(self._task, completed=self._done)

    def stop(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


def _estimate(arguments: argparse.Namespace) -> int:
    import dataclasses

    from costmodel.estimate import estimate
    from costmodel.plan import Plan

    model, cluster = _model(arguments.model), _cluster(arguments.cluster)
    chosen = {name: getattr(arguments, name) for name in _plan_fields() if getattr(arguments, name) is not None}
    plan = Plan(global_batch=arguments.global_batch, seq_len=arguments.seq_len, **chosen)
    gpus = _gpus(arguments, cluster)
    if gpus is None:
        gpus = plan.gpus if "data_parallel" in chosen else cluster.gpus
    cluster = cluster.with_gpus(gpus or 1)
    if "data_parallel" not in chosen:
        if (gpus or 1) % plan.gpus:
            raise IllegalPlan(
                "world_size",
                f"tensor_parallel={plan.tensor_parallel} x context_parallel={plan.context_parallel} x pipeline_parallel="
                f"{plan.pipeline_parallel} = {plan.gpus} does not divide the cluster's {gpus} GPUs",
            )
        plan = dataclasses.replace(plan, data_parallel=(gpus or 1) // plan.gpus)
    answer = estimate(model, cluster, plan, arguments.framework)
    if arguments.json:
        _print_json({
            **answer.to_dict(),
            "tokens_per_second_per_gpu": answer.tokens_per_second / plan.gpus,
            "step_time_low_s": answer.time_interval[0], "step_time_high_s": answer.time_interval[1],
            "memory_low_bytes": answer.memory_interval[0], "memory_high_bytes": answer.memory_interval[1],
        })  # fmt: skip
    else:
        _print_page(*_estimate_page(answer))
    return ANSWERED


def _estimate_page(answer: Estimate) -> list[Any]:
    """Everything about one step, as lines and tables."""
    from costmodel.units import format_seconds

    plan, whole, limit = answer.plan, answer.step_time, answer.memory_limit
    times = [
        (name.replace("_", " "), format_seconds(part), _share(part, whole)) for name, part in answer.times.items() if part
    ]
    held = [
        (name.replace("_", " "), f"{_gib(part)} GiB", _share(part, limit))
        for name, part in _memory_parts(answer).items() if part
    ]  # fmt: skip
    total = float(answer.memory.total)
    times.append(("step", format_seconds(whole), "100.0 %"))
    held.append(("total", f"{_gib(total)} GiB", _share(total, limit)))
    margin, chance = answer.memory_margin, _share(answer.fit_probability, 1.0)
    room = f"{_gib(total + margin)} GiB"
    verdict = (
        f"Fits, with {_gib(margin)} GiB to spare of {room} (probability {chance})"
        if answer.fits else f"DOES NOT FIT: {_gib(-margin)} GiB more than {room} (probability that it fits {chance})"
    )  # fmt: skip
    low, high = answer.time_interval
    least, most = answer.memory_interval
    source = f"{answer.spread.rows} measured runs of {answer.framework.name}" if answer.spread.calibrated else (
        "no measurement of this framework on this device: other frameworks and devices stand in for it"
    )  # fmt: skip
    figures = [
        f"Rate: {answer.tokens_per_second:,.0f} tokens/s, {answer.tokens_per_second / plan.gpus:,.0f} a GPU",
        f"MFU: {100 * answer.mfu:.1f} % with attention scores counted in full, {100 * answer.causal_mfu:.1f} % with the "
        f"causal half; HFU {100 * answer.hfu:.1f} %",
        f"Exchange under compute, not part of the step: {format_seconds(float(answer.step.hidden_exchange))}",
        verdict,
        f"Error: 90 % of such estimates lie within {format_seconds(low)} to {format_seconds(high)} and {_gib(least)} to "
        f"{_gib(most)} GiB ({source})",
    ]
    return [
        f"{answer.model.name} on {plan.gpus} GPUs of {answer.cluster.name}, {answer.framework.name}: "
        f"{plan.global_batch} sequences of {plan.seq_len} tokens a step\n{_split(answer)}, {plan.schedule}, {plan.dtype}, "
        f"{plan.micro_batches} micro-batches",
        _table(["time", "", "of the step"], times, total=True),
        _table(["memory of the fullest GPU", "", "of the limit"], held, total=True),
        "\n".join(figures),
    ]


# How exact it all is


def _accuracy(arguments: argparse.Namespace) -> int:
    import json
    from importlib import resources

    text = (resources.files("costmodel.catalogue") / "accuracy.json").read_text(encoding="utf-8")
    table = json.loads(text)
    if arguments.json:
        _print_json(table["figures"])
    else:
        _print_page(
            "Errors on measured runs, by source; `unseen` are runs that the fit had not seen",
            _table(table["headings"], table["rows"], words=1),
        )
    return ANSWERED


# The catalogue


def _names(kind: str) -> list[str]:
    from costmodel.catalogue import loader, software

    return software.framework_names() if kind == "framework" else loader.names(kind)  # type: ignore[arg-type]


def _load(kind: str, name: str) -> Any:
    from costmodel.catalogue import loader, software

    if kind == "framework":
        return software.load_framework(name)
    if kind == "model":
        return _model(name)
    if kind == "cluster":
        return _cluster(name)
    if not _is_file(name) or name in loader.names("device"):
        return loader.load_device(name)
    return loader.read_device_file(name)


def _list(arguments: argparse.Namespace) -> int:
    kind: str = arguments.kind
    rows = [_ROWS[kind](_load(kind, name)) for name in _names(kind)]
    if arguments.json:
        _print_json(rows)
        return ANSWERED
    columns = _COLUMNS[kind]
    shown = [[show(row[name]) for name, _, show in columns] for row in rows]
    words = sum(show is _words for _, _, show in columns)
    _print_page(_table([title for _, title, _ in columns], shown, words))
    return ANSWERED


def _model_row(model: Transformer) -> dict[str, Any]:
    return {
        "name": model.name, "parameters": model.parameters, "active_parameters": model.active_parameters,
        "layers": model.layers, "hidden": model.hidden, "heads": model.heads, "kv_heads": model.kv_heads,
        "experts": model.experts, "vocabulary": model.vocabulary,
    }  # fmt: skip


def _device_row(device: Device) -> dict[str, Any]:
    from costmodel.catalogue.loader import efficiency_source

    return {
        "name": device.name, "title": device.title, "constants": efficiency_source(device.name),
        "memory_bytes": device.memory, "memory_bandwidth_bytes_per_s": device.memory_bandwidth,
        **{f"{dtype}_flop_per_s": device.dense_peak.get(dtype) for dtype in ("fp16", "bf16", "fp8", "fp4")},
    }  # fmt: skip


def _cluster_row(cluster: Cluster) -> dict[str, Any]:
    levels = [
        {"name": level.name, "size": level.size, "latency_s": level.latency, "bandwidth_bytes_per_s": level.bandwidth}
        for level in cluster.levels
    ]
    return {
        "name": cluster.name, "title": cluster.title, "device": cluster.device.name, "levels": levels,
        "gpus_per_node": cluster.gpus_per_node,
    }  # fmt: skip


def _framework_row(framework: Framework) -> dict[str, Any]:
    return {
        "name": framework.name, "title": framework.title, "attention": framework.attention,
        "zero_stage": framework.zero_stage, "gradient_bytes": framework.gradient_bytes,
        "optimizer_bytes": framework.optimizer_bytes,
    }  # fmt: skip


_ROWS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "model": _model_row, "device": _device_row, "cluster": _cluster_row, "framework": _framework_row,
}  # fmt: skip


def _words(value: Any) -> str:
    return str(value)


def _count(value: float) -> str:
    from costmodel.units import format_count

    return format_count(value)


def _giga(value: float) -> str:
    return f"{value / 1e9:,.0f}"


def _tera(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e12:,.4g}"


def _level_rates(levels: Sequence[Mapping[str, Any]]) -> str:
    return " / ".join(f"{level['bandwidth_bytes_per_s'] / 1e9:.3g}" for level in levels)


_COLUMNS: dict[str, list[tuple[str, str, Callable[[Any], str]]]] = {
    "model": [
        ("name", "name", _words), ("parameters", "parameters", _count), ("active_parameters", "active", _count),
        *[(name, name.replace("_", " "), _value) for name in ("layers", "hidden", "heads", "kv_heads", "experts")],
        ("vocabulary", "vocabulary", _value),
    ],
    "device": [
        ("name", "name", _words), ("title", "title", _words), ("constants", "constants", _words),
        ("memory_bytes", "GiB", _gib), ("memory_bandwidth_bytes_per_s", "GB/s", _giga),
        *[(f"{dtype}_flop_per_s", f"{dtype} TFLOP/s", _tera) for dtype in ("fp16", "bf16", "fp8", "fp4")],
    ],
    "cluster": [
        ("name", "name", _words), ("title", "title", _words), ("device", "device", _words),
        ("gpus_per_node", "GPUs a node", _value), ("levels", "GB/s of a GPU, by level", _level_rates),
    ],
    "framework": [
        ("name", "name", _words), ("title", "title", _words), ("attention", "attention", _words),
        ("zero_stage", "ZeRO", _value), ("gradient_bytes", "gradient bytes", _value),
        ("optimizer_bytes", "optimizer bytes", _value),
    ],
}  # fmt: skip
"""Columns of a listing: key of its JSON, title, and how people read it."""


def _kind_of(name: str, kind: str | None) -> str:
    """The kind of an entry, or of a file."""
    if kind is not None:
        if kind not in KINDS:
            raise InvalidValue("kind", kind, "one of " + ", ".join(KINDS))
        return kind
    known = {entry: each for each in reversed(KINDS) for entry in _names(each)}
    if name in known:
        return known[name]
    if _is_file(name):
        return "model"
    import difflib

    near = difflib.get_close_matches(name, known, n=4, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else "`costmodel models` lists models; devices, clusters alike"
    raise CostModelError(f"no {', '.join(KINDS[:-1])} or {KINDS[-1]} named {name[:80]!r} in the catalogue; {hint}")


def _show(arguments: argparse.Namespace) -> int:
    import dataclasses

    from costmodel.catalogue import loader

    kind = _kind_of(arguments.name, arguments.kind)
    entry = _load(kind, arguments.name)
    fields = dataclasses.asdict(entry)
    sources: dict[str, Any] = {}
    if kind != "framework" and arguments.name in loader.names(kind):  # type: ignore[arg-type]
        sources = loader.provenance(kind, arguments.name)  # type: ignore[arg-type]
    counts: dict[str, int] = {}
    if kind == "model":
        counts = {**entry.parameters_by_part(), "active": entry.active_parameters}
    if kind == "framework":
        fields["constants"] = entry.constants._asdict()
    if arguments.json:
        extra = {"parameters": counts} if counts else {}
        _print_json({"kind": kind, **fields, **extra, "provenance": sources})
        return ANSWERED
    lines = [(name, value) for name, value in _flat(fields) if name not in ("name", "title")]
    if kind == "model":  # most models lack most of what a model can have
        lines = [(name, value) for name, value in lines if value not in ("0", "no", "none", "-")]
    title = f": {fields['title']}" if fields.get("title") else ""
    units = "" if kind == "model" else "\nIn SI units: s, bytes, bytes/s, FLOP/s"
    page: list[Any] = [f"{kind} {entry.name}{title}{units}", _table(["field", "value"], lines, words=2)]
    if counts:
        rows = [(name.replace("_", " "), f"{count:,}") for name, count in counts.items()]
        page.append(_table(["parameters", ""], rows))
    if sources:
        page.append(_table(["value", "kind", "where it comes from"], _origins(sources), words=3))
    _print_page(*page)
    return ANSWERED


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested fields as dotted names with values to read."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
            for item in value:
                inner = {key: part for key, part in item.items() if key != "name"}
                yield from _flat(inner, f"{prefix}{name}.{item.get('name', '')}.")
        else:
            yield prefix + name, _value(value)


def _origins(sources: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Nested provenance as rows of name, kind and source, what else is said behind the source."""
    for name, value in sources.items():
        if isinstance(value, Mapping) and "source" in value:
            others = [f"{key} {_value(more)}" for key, more in value.items() if key not in ("source", "kind")]
            yield prefix + name, str(value.get("kind", "")), "; ".join([str(value["source"]), *others])
        elif isinstance(value, Mapping):
            yield from _origins(value, f"{prefix}{name}.")
        else:
            yield prefix + name, "", _value(value)


# The door


def _one_line(message: str) -> str:
    line = " ".join(message.split())
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 3] + "..."


def _refuse(message: str) -> int:
    if sys.stderr is not None:
        print(f"costmodel: error: {_one_line(message)}", file=sys.stderr)
    return BAD_INPUT


def _drop_output() -> None:
    """Nobody reads stdout any more: let what is left of it go nowhere, also at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):
        pass


def main(argv: Sequence[str] | None = None) -> int:
    """Answer one command line.

    Parameters
    ----------
    argv : arguments; those of the process if not given

    Returns
    -------
    int
        exit code: 0 answered, 1 no plan fits, 2 bad input, 130 interrupted
    """
    try:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")
        arguments = _parse(argv)
        code: int = arguments.run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except SystemExit as stop:  # --help and --version
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return PIPE_CLOSED
    except CostModelError as error:
        return _refuse(str(error))
    except OSError as error:
        try:
            sys.stdout.flush()
        except (OSError, AttributeError):
            _drop_output()
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror or error}")
    except ArithmeticError as error:
        return _refuse(f"numbers too large or too small to compute with ({error})")
    except MemoryError:
        return _refuse("not enough memory; try fewer values along some dimension")


__all__ = ["main"]
