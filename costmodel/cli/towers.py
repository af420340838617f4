"""`costmodel multimodal`: a step of a model that reads images, tower and language model by a plan each."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from costmodel.catalogue import loader
from costmodel.cli import codes
from costmodel.cli.arguments import Commands, add_output, chosen, whole
from costmodel.cli.output import TerminalTable, gib, heading_of, print_json, print_page, respond, share, table, whole_plan
from costmodel.cli.question import USAGE, add_question, read_asked_model, read_hardware
from costmodel.cli.training import asked_plan, is_split, needed_to_choose
from costmodel.description.labels import label
from costmodel.text.errors import InvalidValue
from costmodel.text.units import format_count, format_seconds

if TYPE_CHECKING:
    from costmodel.description.transformer import Transformer
    from costmodel.training.tower_search import MultimodalSearch
    from costmodel.training.towers import Multimodal, PartOfStep, Tower

FREEZABLE = ("tower", "language")


def add(commands: Commands) -> None:
    """Add the command."""
    usage = (USAGE % "multimodal").replace("MODEL", "CONFIG").replace("[options]", "[--images N] [--freeze PART] [options]")
    parser = commands.add_parser(
        "multimodal", usage=usage, help="a step of a vision-language model: tower and language model by a plan each",
        examples=(
            "costmodel multimodal llava.json --cluster dgx-h100 --gpus 32 --global-batch 128 --seq-len 4096 --tensor-parallel 4 "
            "--images 2 --freeze tower",
            "costmodel multimodal llava.json --cluster dgx-a100 --global-batch 256 --micro-batch 32 --seq-len 640 "
            "--recompute full --framework hf-trainer --zero-stage 2 --data-parallel 8 --freeze tower,language",
            "costmodel multimodal llava.json --cluster dgx-h100 --gpus 64 --global-batch 256 --seq-len 4096 --images 4",
        ),
    )  # fmt: skip
    add_question(parser, several=False)
    group = parser.add_argument_group(
        "the tower", "MODEL is a multimodal config.json; the plan above is the language model's. Both are searched where "
        "it has no degree, or with --search",
    )  # fmt: skip
    group.add_argument("--images", type=whole, default=1, metavar="N", help="of a sample, or tiles of them (default: 1)")
    group.add_argument("--image-tokens", type=whole, metavar="N",
                       help="of an image in the language model's sequence, where the file doesn't say")  # fmt: skip
    group.add_argument("--freeze", default="", metavar="PART", help="tower, language or both with a comma; connectors train")
    group.add_argument("--tower-tensor-parallel", type=whole, metavar="N", help="GPUs of one tower (default: 1, or searched)")
    group.add_argument("--tower-zero-stage", type=whole, metavar="N",
                       help="of its states (default: the language model's, or searched)")  # fmt: skip
    group.add_argument("--tower-recompute", metavar="R", help="of its activations (default: none, or searched)")
    group.add_argument("--same-images", action="store_true",
                       help="each tower of a replica takes all images of a micro-batch, not its share")  # fmt: skip
    group.add_argument("--search", action="store_true", help="rank plans of both parts; what is said of a plan is kept")
    output = add_output(parser)
    output.add_argument("--top", type=whole, default=5, metavar="K", help="of a search, steps to show (default: 5)")
    parser.set_defaults(run=_run)


def _frozen(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    for part in parts:
        if part not in FREEZABLE:
            raise InvalidValue("freeze", part, "tower, language, or both with a comma between")
    return parts


def _run(arguments: argparse.Namespace) -> int:
    from costmodel.description.huggingface import read
    from costmodel.training.towers import multimodal

    frozen = _frozen(arguments.freeze)
    if not loader.is_file(arguments.model):
        raise InvalidValue("model", arguments.model, "the config.json of a multimodal model, or the folder that holds it")
    searched = arguments.search or not is_split(arguments)
    if searched:
        language = read_asked_model(arguments)
    else:
        asked = asked_plan(arguments)
        language = asked.model
    arguments.notes = [note for note in arguments.notes if note not in read(arguments.model).notes]  # no tower is left out here
    tower = _tower(arguments, language, "tower" not in frozen)
    if searched:
        return _searched(arguments, language, tower, "language" not in frozen)
    step = multimodal(
        language, asked.cluster, asked.plan, [tower], framework=asked.framework, language_trains="language" not in frozen,
        fit_probability=asked.required_probability,
    )  # fmt: skip
    return respond(arguments, lambda: step.to_dict(), lambda: _page(step), step.fits)


def _tower(arguments: argparse.Namespace, language: Transformer, trains: bool) -> Tower:
    from costmodel.training.towers import Tower

    return Tower.from_huggingface(
        arguments.model, language, images=arguments.images, image_tokens=arguments.image_tokens, trains=trains,
        shared=not arguments.same_images, tensor_parallel=arguments.tower_tensor_parallel or 1,
        zero_stage=arguments.tower_zero_stage, recompute=arguments.tower_recompute or "none",
    )  # fmt: skip


def _searched(arguments: argparse.Namespace, language: Transformer, tower: Tower, language_trains: bool) -> int:
    """The plans of both parts, ranked."""
    from costmodel.training.tower_search import OF_TOWERS, search_multimodal

    said = {name: getattr(arguments, f"tower_{name}") for name in OF_TOWERS}
    found = search_multimodal(
        language, read_hardware(arguments), [tower], global_batch=arguments.global_batch, seq_len=arguments.seq_len,
        framework=arguments.framework, language_trains=language_trains, fit_probability=needed_to_choose(arguments),
        top=arguments.top, of_towers={name: [value] for name, value in said.items() if value is not None},
        **{name: [value] for name, value in chosen(arguments).items()},
    )  # fmt: skip
    if arguments.json:
        print_json(found.to_dict())
    elif not found.ranked:
        print_page(f"No plan of both parts fits: {found.why_none}", markdown=arguments.markdown)
    else:
        surely = "no other can be faster" if found.complete else "of the rest one may be faster: the budget was spent"
        looked_at = f"{found.priced:,} of {found.language.evaluated:,} plans of the language model were priced with a tower"
        print_page(*_page(found.best), _ranked(found), f"{looked_at}; {surely}", markdown=arguments.markdown)
    return codes.ANSWERED if found.ranked else codes.NOTHING_FITS


def _ranked(found: MultimodalSearch) -> TerminalTable:
    rows = []
    for place, step in enumerate(found.ranked, 1):
        alone = step.language.estimate
        rows.append([
            str(place), label(alone.plan), "; ".join(_split(part) for part in step.towers), format_seconds(step.step_time),
            gib(step.memory), f"{step.tokens_per_second / alone.plan.gpus:,.0f}",
        ])  # fmt: skip
    return table(["#", "language model", "tower", "step", "GiB", "tokens/s/GPU"], rows, words=3)


def _split(part: PartOfStep) -> str:
    plan = part.estimate.plan
    recomputed = "" if plan.recompute == "none" else f" recompute {plan.recompute}"
    return f"TP{plan.tensor_parallel} DP{plan.data_parallel} ZeRO {plan.zero_stage}{recomputed}"


def _page(step: Multimodal) -> list[TerminalTable | str]:
    asked = step.language.estimate
    low, high = step.time_interval
    rows = []
    for part in step.parts:
        plan = part.estimate.plan
        rows.append([
            part.name if part.trains else f"{part.name}, frozen", format_count(part.parameters),
            f"TP{plan.tensor_parallel} DP{plan.data_parallel}", format_seconds(part.time), share(part.time, step.step_time),
            format_seconds(part.gradient_exchange), gib(part.states), gib(part.activations),
        ])  # fmt: skip
    said = "fits" if step.fits else f"does not fit, with probability {step.fit_probability:.0%} it does"
    return [
        f"{heading_of(asked)}\nLanguage model: {whole_plan(asked)}\n"
        f"A step: {format_seconds(step.step_time)}, 90 % from {format_seconds(low)} to {format_seconds(high)}; "
        f"{step.tokens_per_second:,.0f} tokens/s; {gib(step.memory)} GiB on the fullest GPU; {said}",
        table(["part", "parameters", "split", "time", "share", "gradients", "states GiB", "kept GiB"], rows),
        f"Why: {step.why}",
    ]
