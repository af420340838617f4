"""`costmodel compare`: two or more plans, frameworks, clusters, devices, dtypes or releases in one table, and why they differ."""

from __future__ import annotations

import argparse
import itertools
import re
from typing import TYPE_CHECKING

from costmodel.arithmetic.named_tuples import Row
from costmodel.cli import codes
from costmodel.cli.arguments import Commands, Misused, add_output, chosen, length, many, plan_fields, reader, whole
from costmodel.cli.defaults import BATCH, fill_work, priced
from costmodel.cli.files import add_files, check_files
from costmodel.cli.output import TerminalTable, named, print_page, respond, rows_file, table, written
from costmodel.cli.question import add_question, comma_names, read_asked_model, read_hardware, take_adapter, take_software
from costmodel.cli.systems import systems_parser
from costmodel.cli.training import add_run
from costmodel.description.labels import of_a_step, part_name
from costmodel.description.transformer import Transformer
from costmodel.description.usual_work import adapts, usual_batch, usual_gpus, usual_length
from costmodel.evaluation.estimation import Estimate
from costmodel.text.errors import IllegalPlan, NotModelled
from costmodel.text.suggestions import did_you_mean
from costmodel.text.units import format_bytes, format_seconds
from costmodel.training.choices import called, crossed

if TYPE_CHECKING:
    from costmodel.training.side_by_side import ComparedAnswer, SideBySide

COUNTED = re.compile(r"([0-9]{1,7})x(.+)")
"""So many GPUs of a device, or nodes of a cluster."""


def add(commands: Commands) -> None:
    """Add the command."""
    usage = (
        "costmodel compare MODEL,... (--cluster C,... | --device D,...) [--framework F,...] [--gpus N,...] [--plan NAME=X]... "
        "[options of a plan, with several values what is compared] [--tokens X] [--price X | NAME=X,...]"
    )
    comparing = commands.add_parser(
        "compare", usage=usage, help="plans, models, frameworks, clusters or devices side by side, and why they differ",
        description="Every option with several values is compared, each choice with its fastest plan that fits; the others "
        "stand against the first. What two estimates have wrong in common cancels in their ratio. `compare --systems WORKLOAD` "
        "sets the classic systems of training side by side instead (`compare --systems --help`).",
        examples=(
            "costmodel compare llama3-8b --device h100,b200 --gpus 8 --price h100=2.5,b200=5",
            "costmodel compare llama3-70b --cluster dgx-h100 --nodes 8 --framework fsdp2,megatron-core",
            "costmodel compare llama3-8b --cluster dgx-h100 --recompute none,full --global-batch 64 --seq-len 8192",
            "costmodel compare llama3-70b --cluster dgx-h100 --nodes 8 --plan framework=fsdp2,tp=1,pp=1 --plan tp=8,pp=4",
            "costmodel compare --systems resnet-50 --cluster dgx-1v --nodes 8",
        ),
    )  # fmt: skip
    comparing.variant("--systems", systems_parser())
    add_question(comparing, several=True, fixed=False)
    for action in comparing._actions:
        if action.dest in ("gpus", "nodes", "global_batch", "seq_len"):
            action.type = many(length if action.dest == "seq_len" else whole)
    comparing.add_argument(
        "--plan", action="append", default=[], dest="plans", metavar="NAME=X,...",
        help="a plan by its options, such as tp=8,pp=4 or framework=fsdp2,tp=1; each further --plan is compared with it",
    )  # fmt: skip
    add_run(comparing)
    price = next(action for action in comparing._actions if action.dest == "price")
    price.type, price.help = priced, "of a GPU for an hour, in any currency: one, or h100=2.5,b200=5 by what is compared"
    output = add_output(comparing)
    add_files(comparing, output, csv="a row for each choice")
    comparing.set_defaults(run=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    from costmodel.training.side_by_side import compare

    check_files(arguments)
    take_adapter(arguments)
    take_software(arguments)
    models = _models(arguments)
    adapted, first = adapts(arguments.adapter), next(iter(models.values()))
    usual = usual_gpus(arguments.adapter)
    most = max(arguments.gpus or [usual if arguments.nodes is None else usual_gpus(None) * max(arguments.nodes)])
    batch = usual_batch(most, vars(arguments)) if adapted else BATCH
    taken = fill_work(arguments, first, global_batch=batch, seq_len=usual_length(first, adapted))
    if arguments.device and arguments.gpus is None and arguments.nodes is None and not COUNTED.match(arguments.device):
        arguments.gpus = usual
        taken = f"{taken}, --gpus {usual}" if taken else f"Taken, as it wasn't said: --gpus {usual}"
    rows = _choices(arguments)
    answers: dict[str, Estimate] = {}
    refused: dict[str, str] = {}
    for name, row in rows.items():
        try:
            answers[name] = _best(models[row.model], row)
        except (IllegalPlan, NotModelled) as error:
            refused[name] = str(error)
    arguments.notes = list(dict.fromkeys(itertools.chain(arguments.notes, *(row.notes for row in rows.values()))))
    prices = _prices(arguments, rows, answers)
    if len(answers) < 2:
        lines = [f"{name}: {why}" for name, why in refused.items()]
        print_page("Nothing to compare: fewer than two of the choices have a plan", "\n".join(lines), markdown=arguments.markdown)
        return codes.NOTHING_FITS
    made = compare(answers, tokens=arguments.tokens, price=prices)
    files = rows_file(arguments.csv, made.to_rows, "choice")
    return respond(
        arguments, lambda: {"answer": made.said(), "choices": [_figures(made, one) for one in made.choices], "refused": refused},
        lambda: [*_page(made, taken, refused), written(*files)], any(one.estimate.fits for one in made.choices),
    )  # fmt: skip


def _models(arguments: argparse.Namespace) -> dict[str, Transformer]:
    """The models that are asked about, by name."""
    from costmodel.description.networks import network_called

    found = {}
    for name in comma_names("model", arguments.model):
        if network_called(name):
            hint = f"`compare --systems {name} ...` sets systems of training side by side for it"
            raise Misused(f"{name} is no transformer: {hint}")
        found[name] = read_asked_model(argparse.Namespace(**{**vars(arguments), "model": name}))
    return found


def _choices(arguments: argparse.Namespace) -> dict[str, argparse.Namespace]:
    """What is compared, each as a question of its own, by its name."""
    varied: list[list[tuple[str, Row]]] = []
    for field in ("model", "cluster", "device", "framework"):
        given = getattr(arguments, field)
        if isinstance(given, str):
            varied.append([(name, _counted(field, name, arguments)) for name in comma_names(field, given)])
    if arguments.network is not None:
        varied.append([(called("network", rate), {"network": rate}) for rate in comma_names("network", arguments.network)])
    for field in ("gpus", "nodes", "global_batch", "seq_len"):
        if isinstance(given := getattr(arguments, field), list):
            varied.append([(called(field, value), {field: value}) for value in dict.fromkeys(given)])
    for field, values in chosen(arguments).items():
        varied.append([(called(field, value), {field: [value]}) for value in dict.fromkeys(values)])
    if arguments.plans:
        varied.append([(text, _plan(text)) for text in dict.fromkeys(arguments.plans)])
    as_asked = {**vars(arguments), "one_of_several": True}
    found = {name: argparse.Namespace(**{**as_asked, "notes": [], **fields}) for name, fields in crossed(varied).items()}
    if len(found) < 2:
        raise Misused(
            "nothing to compare: give an option several values, such as --device h100,b200, --framework fsdp2,megatron-core, "
            "--recompute none,full, or several --plan (`compare --systems` sets systems of training side by side)"
        )
    return found


def _counted(field: str, name: str, arguments: argparse.Namespace) -> Row:
    """A choice by its name; of hardware that says how many there are, as ``16xh100``, these too."""
    match = COUNTED.fullmatch(name) if field in ("cluster", "device") else None
    if match is None:
        return {field: name}
    if arguments.gpus is not None or arguments.nodes is not None:
        raise Misused(f"--{field} {name[:80]} says how many, and --gpus or --nodes, too: give one of them")
    return {field: match[2], "gpus" if field == "device" else "nodes": int(match[1])}


def _plan(text: str) -> Row:
    """A plan such as ``tp=8,pp=4``: values of its fields by long or short names."""
    known = {name.replace("_", "-"): name for name in plan_fields()}
    known |= {row.short: name for name, row in plan_fields().items() if row.short}
    known["framework"] = "framework"
    found: Row = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        field = known.get(name.strip().lstrip("-").replace("_", "-"))
        if not equals or not value.strip():
            raise Misused(f"--plan {text[:80]!r}: expected NAME=X,..., such as tp=8,pp=4,recompute=full")
        if field is None:
            hint = did_you_mean("option", name.strip(), known)
            raise Misused(f"--plan {text[:80]!r}: a plan has no {name.strip()[:80]!r}{hint}")
        if field in found:
            raise Misused(f"--plan {text[:80]!r}: {name.strip()[:80]} is given twice")
        if field == "framework":
            found[field] = value.strip()
            continue
        read, _ = reader(plan_fields()[field])
        try:
            found[field] = [read(value.strip())]
        except argparse.ArgumentTypeError as error:
            raise Misused(f"--plan {text[:80]!r}: {error}") from None
    return found


def _best(model: Transformer, row: argparse.Namespace) -> Estimate:
    """The best plan of a choice; the nearest to fit where none does."""
    from costmodel.evaluation.plan_search import search_by_name

    found = search_by_name(
        model, read_hardware(row), global_batch=row.global_batch, seq_len=row.seq_len, framework=row.framework, top=1,
        fit_probability=row.fit_probability, **chosen(row),
    )  # fmt: skip
    if not found.ranked and found.closest_miss is not None:
        return found.closest_miss
    return found.best


def _prices(
    arguments: argparse.Namespace, rows: dict[str, argparse.Namespace], answers: dict[str, Estimate]
) -> dict[str, float] | float | None:
    """Prices by the names of choices: a price goes with each choice that has its name as device, cluster or framework."""
    given: dict[str, float] | None = arguments.price
    if given is None:
        return None
    if "" in given:
        return given[""]
    found, used = {}, set()
    for name, row in rows.items():
        called = {name, row.device, row.cluster, row.framework if isinstance(row.framework, str) else None}
        if name in answers:
            called |= {answers[name].cluster.device.name, answers[name].cluster.name}
        for word in called & set(given):
            used.add(word)
            if name in answers:
                found[name] = given[word]
    unused = sorted(set(given) - used)
    if unused:
        raise Misused(f"--price {unused[0][:80]}=...: nothing that is compared is called so; compared are {', '.join(rows)}")
    return found


def _figures(made: SideBySide, one: ComparedAnswer) -> Row:
    parts = {part.part: part.added for part in made.why(one, 0.0)}
    return {**one.to_dict(), "fits": one.estimate.fits, "added_s": parts}


def _page(made: SideBySide, taken: str, refused: dict[str, str]) -> list[TerminalTable | str]:
    first = made.first.estimate
    work = of_a_step(first.plan.global_batch, first.plan.seq_len)
    same = len({(one.estimate.plan.global_batch, one.estimate.plan.seq_len) for one in made.choices}) == 1
    one_model = len({one.estimate.model.name for one in made.choices}) == 1
    head = ": ".join([*([first.model.name] if one_model else []), *([work] if same else [])])
    return [
        "\n".join(filter(None, (head, taken))), made.said(), _compared(made), _why(made),
        "\n".join(f"{name}: not compared, because {why}" for name, why in refused.items()),
    ]


def _compared(made: SideBySide) -> TerminalTable:
    """The choices, each against the first."""
    priced = any(one.price is not None for one in made.choices)
    runs = any(one.run is not None for one in made.choices)
    heads = ["", "plan", "step", "tokens/s", "memory", "time", "faster"]
    heads += ["days"] if runs else []
    heads += ["money" if runs else "1B tokens", "cheaper"] if priced else []
    rows = []
    for place, one in enumerate(made.choices):
        given, stands = one.estimate, one.against
        fits = "" if given.fits else " (NO)"
        cells = [
            one.name, named(given.plan), format_seconds(given.step_time), f"{given.tokens_per_second:,.0f}",
            f"{format_bytes(given.memory.total)}{fits}",
            f"{stands.ratio:.2f} x ({stands.ratio_low:.2f}-{stands.ratio_high:.2f})" if place else "1 x",
            _share(stands.faster) if place else "-",
        ]
        cells += [f"{one.run.days:,.3g}" if one.run.days < 100 else f"{one.run.days:,.0f}"] if one.run else []
        if priced:
            cells += [_money(one), "-" if stands.cheaper is None or not place else _share(stands.cheaper)]
        rows.append(cells)
    return table(heads, rows, words=2)


def _share(probability: float) -> str:
    return f"{100 * min(max(probability, 0.001), 0.999):.1f} %"


def _money(one: ComparedAnswer) -> str:
    amount = one.run.cost.price if one.run else one.price_per_billion_tokens
    if amount is None:
        return "-"
    return f"{amount:,.0f}" if amount >= 100.0 else f"{amount:.3g}"


def _why(made: SideBySide) -> TerminalTable | str:
    """By which parts the steps differ, for as many tokens, the largest first."""
    others = made.choices[1:]
    changes = {one.name: {part.part: part for part in made.why(one)} for one in others}
    parts = list(dict.fromkeys(part for found in changes.values() for part in found if part != "other"))
    first = made.first.estimate
    rows: list[list[str]] = [[f"step of {made.first.name}", *[format_seconds(first.step_time)] * len(others)]]
    parts.sort(key=lambda part: -max(abs(found[part].added) for found in changes.values() if part in found))
    for part in [*parts, "other"]:
        cells = [_signed(changes[one.name][part].added) if part in changes[one.name] else "-" for one in others]
        if any(cell != "-" for cell in cells):
            rows.append([part_name(part), *cells])
    ends = [first.step_time * one.against.ratio for one in others]
    rows.append(["for as many tokens", *map(format_seconds, ends)])
    return table(["why", *(one.name for one in others)], rows, total=True)


def _signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0.0 else '-'}{format_seconds(abs(seconds))}"
