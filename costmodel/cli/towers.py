"""`costmodel multimodal`: a step of a model that reads images, tower and language model by a plan each."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from costmodel.cli import codes
from costmodel.cli.arguments import Commands, add_output, is_file, whole
from costmodel.cli.output import (
    TerminalTable,
    gib,
    heading_of,
    print_json,
    print_page,
    share,
    table,
    whole_plan,
)
from costmodel.cli.question import USAGE, add_question
from costmodel.cli.training import asked_plan
from costmodel.text.errors import InvalidValue
from costmodel.text.units import format_count, format_seconds

if TYPE_CHECKING:
    from costmodel.evaluation.estimation import Estimate
    from costmodel.training.towers import Multimodal

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
        ),
    )  # fmt: skip
    add_question(parser, several=False)
    group = parser.add_argument_group("the tower", "MODEL is a multimodal config.json; the plan above is the language model's")
    group.add_argument("--images", type=whole, default=1, metavar="N", help="of a sample, or tiles of them (default: 1)")
    group.add_argument("--image-tokens", type=whole, metavar="N",
                       help="of an image in the language model's sequence, where the file doesn't say")  # fmt: skip
    group.add_argument("--freeze", default="", metavar="PART", help="tower, language or both with a comma; connectors train")
    group.add_argument("--tower-tensor-parallel", type=whole, default=1, metavar="N", help="GPUs of one tower (default: 1)")
    group.add_argument("--tower-zero-stage", type=whole, metavar="N", help="of its states (default: the language model's)")
    group.add_argument("--tower-recompute", default="none", metavar="R", help="of its activations (default: none)")
    group.add_argument("--same-images", action="store_true",
                       help="each tower of a replica takes all images of a micro-batch, not its share")  # fmt: skip
    add_output(parser)
    parser.set_defaults(run=_run)


def _frozen(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    for part in parts:
        if part not in FREEZABLE:
            raise InvalidValue("freeze", part, "tower, language, or both with a comma between")
    return parts


def _run(arguments: argparse.Namespace) -> int:
    from costmodel.description.huggingface import read
    from costmodel.training.towers import Tower, multimodal

    frozen = _frozen(arguments.freeze)
    if not is_file(arguments.model):
        raise InvalidValue("model", arguments.model, "the config.json of a multimodal model, or the folder that holds it")
    asked = asked_plan(arguments)
    arguments.notes = [note for note in arguments.notes if note not in read(arguments.model).notes]  # no tower is left out here
    tower = Tower.from_huggingface(
        arguments.model, asked.model, images=arguments.images, image_tokens=arguments.image_tokens,
        trains="tower" not in frozen, shared=not arguments.same_images, tensor_parallel=arguments.tower_tensor_parallel,
        zero_stage=arguments.tower_zero_stage, recompute=arguments.tower_recompute,
    )  # fmt: skip
    step = multimodal(
        asked.model, asked.cluster, asked.plan, [tower], framework=asked.framework, language_trains="language" not in frozen
    )
    if arguments.json:
        print_json(step.to_dict())
    else:
        print_page(*_page(step, asked), markdown=arguments.markdown)
    return codes.ANSWERED if step.fits else codes.NOTHING_FITS


def _page(step: Multimodal, asked: Estimate) -> list[TerminalTable | str]:
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
