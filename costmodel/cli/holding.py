"""`costmodel memory`: what a GPU holds at its fullest moment, module by module."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.cli import codes
from costmodel.cli.arguments import Commands, add_output, whole
from costmodel.cli.files import add_files, check_files
from costmodel.cli.fitting import print_that_fits
from costmodel.cli.output import (
    TerminalTable,
    gib,
    judged,
    plan_heading,
    print_json,
    print_page,
    rows_file,
    share,
    table,
    written,
)
from costmodel.cli.question import PLAYED, add_question, read_asked_model, read_plan
from costmodel.evaluation.estimation import Estimate, estimate

if TYPE_CHECKING:
    from costmodel.evaluation.opened_bill import HeldTensor

SHOWN = 0.05 * 2**30
"""Bytes below which rows stand together."""


def add(commands: Commands) -> None:
    """Add the command."""
    holding = commands.add_parser(
        "memory", usage=PLAYED % "memory", help="what a GPU holds at its fullest moment, by part or tensor by tensor",
        examples=(
            "costmodel memory llama3-8b --device a100 --gpus 4 --global-batch 8 --seq-len 4096 --framework hf-fsdp",
            "costmodel memory llama3-8b --cluster dgx-h100 --nodes 4 --global-batch 256 --seq-len 4096 --tp 8 --tensors",
        ),
    )  # fmt: skip
    add_question(holding, several=False)
    holding.add_argument("--stage", type=whole, metavar="S", help="of the pipeline, from 0 (default: the fullest)")
    holding.add_argument("--tensors", action="store_true", help="module by module, in rows that add up to the bill")
    add_files(holding, add_output(holding), csv="what is held, module by module")
    holding.set_defaults(run=_memory)


def _memory(arguments: argparse.Namespace) -> int:
    from costmodel.evaluation.notes import notes
    from costmodel.evaluation.opened_bill import HeldTensor, held_tensors

    check_files(arguments)
    model = read_asked_model(arguments)
    answer = estimate(model, *read_plan(arguments), arguments.framework, fit_probability=arguments.fit_probability)
    bill = answer.memory
    stage, rows = bill.bill_of(arguments.stage), held_tensors(bill, arguments.stage)
    arguments.notes += notes(answer)
    files = rows_file(arguments.csv, lambda: [row._asdict() for row in rows], "row", columns=HeldTensor._fields)
    if arguments.json:
        print_json({
            "model": model.name, "cluster": answer.cluster.name, "framework": answer.framework.name, "stage": stage.stage,
            "phase": stage.phase, "total_bytes": stage.total, "usable_memory_bytes": answer.usable_memory,
            "judgement": answer.judgement, "low_bytes": answer.memory_interval[0], "high_bytes": answer.memory_interval[1],
            "loading_bytes": answer.loading.device_bytes, "loading_host_bytes": answer.loading.host_bytes,
            "saving_host_bytes": answer.loading.saved_bytes, "tensors": [row._asdict() for row in rows], "notes": arguments.notes,
        })  # fmt: skip
    else:
        head = (
            f"{plan_heading(answer)}\nFullest at its {stage.phase}"
            + (f", stage {stage.stage} of {len(bill.stages)}" if len(bill.stages) > 1 else "")
        )  # fmt: skip
        opened = _tensors(rows, stage.total) if arguments.tensors else _parts(rows, stage.total)
        print_page(head, opened, _bounds(answer), markdown=arguments.markdown)
        print_that_fits(arguments, answer)
        print_page(written(*files), markdown=arguments.markdown, more=True)
    return codes.ANSWERED if answer.fits else codes.NOTHING_FITS


def _parts(rows: Sequence[HeldTensor], total: float) -> TerminalTable:
    """The bill, part by part."""
    parts = dict.fromkeys(row.part for row in rows)
    sums = {part: sum(row.nbytes for row in rows if row.part == part) for part in parts}
    lines = [(part, f"{gib(held)} GiB", share(held, total)) for part, held in sums.items()]
    return table(["part", "held", "of the total"], [*lines, ("total", f"{gib(total)} GiB", "100.0 %")], total=True)


def _tensors(rows: Sequence[HeldTensor], total: float) -> TerminalTable:
    """The bill, module by module."""
    lines = [
        (row.part, row.module if row.name == row.part else f"{row.module}: {row.name}", f"{row.number:g}", gib(row.nbytes),
         row.begins, row.ends)
        for row in rows if row.nbytes >= SHOWN
    ]  # fmt: skip
    small = sum(row.nbytes for row in rows if row.nbytes < SHOWN)
    rest = [("others", "", "", gib(small), "", "")] if small >= SHOWN else []
    lines += [*rest, ("total", "", "", gib(total), "", "")]
    return table(["part", "of", "number", "GiB", "from", "until"], lines, words=(0, 1, 4, 5), total=True)


def _loading(answer: Estimate) -> str:
    """What it takes to load the model, and to save it."""
    needs = answer.loading
    words = f"Loading ({needs.way}): {gib(needs.device_bytes)} GiB at most on a GPU"
    words += f", {gib(needs.host_bytes)} GiB in a node's host memory" if needs.host_bytes else ""
    return words + (f"; saving: {gib(needs.saved_bytes)} GiB in the first node's" if needs.saved_bytes else "")


def _bounds(answer: Estimate) -> str:
    least, most = answer.memory_interval
    return f"{judged(answer)}\n{_loading(answer)}\nError: 90 % of such estimates lie within {gib(least)} to {gib(most)} GiB"
