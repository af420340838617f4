"""`costmodel estimate`: time and memory of one plan."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from costmodel.arithmetic.named_tuples import Row
from costmodel.cli import codes
from costmodel.cli.advice import asked_again, change_as_options
from costmodel.cli.arguments import Commands, add_output
from costmodel.cli.figures import IMAGE, PAGE, add_figure, write_figures
from costmodel.cli.files import add_files, check_files
from costmodel.cli.fitting import print_that_fits
from costmodel.cli.output import (
    TerminalTable,
    because,
    gib,
    judged,
    memory_parts,
    plan_heading,
    print_json,
    print_page,
    share,
    table,
    written,
)
from costmodel.cli.question import USAGE, add_question, cluster_names, read_asked_model, read_plan
from costmodel.cli.runs import amounts, runs_of
from costmodel.cli.several_clusters import compare
from costmodel.cli.training import add_run
from costmodel.description.labels import part_name
from costmodel.evaluation.estimation import Estimate, estimate, memory_limit
from costmodel.evaluation.memory_breakdown import PARTS
from costmodel.text.units import counted, format_seconds

if TYPE_CHECKING:
    from costmodel.evaluation.verdicts import Verdict

SMALL = 0.01
"""Of the limit of memory: parts that are smaller on every stage stand together in the table of stages."""
OFFERED = 5
"""Changes that a verdict names."""


def add(commands: Commands) -> None:
    """Add the commands."""
    estimating = commands.add_parser(
        "estimate", usage=USAGE % "estimate", help="time and memory of one plan, part by part",
        examples=(
            "costmodel estimate llama3-8b --device rtx-4090 --global-batch 16 --seq-len 2048 --adapter qlora",
            "costmodel estimate llama3-70b --cluster dgx-h100 --nodes 16 --global-batch 512 --seq-len 8192 --tp 8 --pp 4",
            "costmodel estimate llama3-8b --cluster dgx-h100,aws-p4d --global-batch 64 --seq-len 4096 --zero-stage 3",
        ),
    )  # fmt: skip
    add_question(estimating, several=False)
    add_run(estimating)
    output = add_output(estimating)
    add_files(estimating, output, html=PAGE, png=IMAGE)
    add_figure(estimating, output, several=False)
    estimating.set_defaults(run=_estimate)


def _estimate(arguments: argparse.Namespace) -> int:
    from costmodel.evaluation.notes import notes
    from costmodel.evaluation.verdicts import verdict

    check_files(arguments)
    model = read_asked_model(arguments)

    def answered(one: argparse.Namespace) -> Estimate:
        return estimate(model, *read_plan(one), one.framework, fit_probability=one.fit_probability)

    if len(cluster_names(arguments)) > 1:
        return compare(arguments, lambda one: [answered(one)])
    answer = answered(arguments)
    found, runs = verdict(answer), runs_of([answer], arguments)
    arguments.notes += notes(answer)
    title = f"{model.name} on {counted(answer.plan.gpus, 'GPU')} of {answer.cluster.name}"
    if arguments.json:
        write_figures(arguments, answer, title)
        run = runs[0].to_dict() if runs else {}
        said = {"departures": answer.departures, "verdict": _verdict_figures(found), "notes": arguments.notes}
        print_json({**_figures(answer), **run, **said, "stages": _stage_figures(answer)})
    else:
        page = [table(["the whole run", "expected", "90 % from", "to"], amounts(run, alone=True)) for run in runs]
        print_page(*_estimate_page(answer, found), *page, markdown=arguments.markdown)
        print_that_fits(arguments, answer)
        print_page(written(*write_figures(arguments, answer, title)), markdown=arguments.markdown, more=True)
    return codes.ANSWERED if answer.fits else codes.NOTHING_FITS


def _figures(answer: Estimate) -> Row:
    return {
        **answer.to_dict(),
        "tokens_per_second_per_gpu": answer.tokens_per_second / answer.plan.gpus,
        "step_time_low_s": answer.time_interval[0], "step_time_high_s": answer.time_interval[1],
        "memory_low_bytes": answer.memory_interval[0], "memory_high_bytes": answer.memory_interval[1],
        "widest_unknown": answer.widest_unknown,
    }  # fmt: skip


def _verdict_figures(found: Verdict) -> Row:
    return {
        "fits": found.fits, "judgement": found.judgement, "margin_bytes": found.margin, "probability": found.probability,
        "stage": found.stage, "phase": found.phase, "largest_bytes": dict(found.largest),
        "fixes": [
            {
                "change": asked_again(fix.change, found.estimate.framework.name), "cost_s": fix.cost,
                "step_time_s": fix.estimate.step_time,
                "peak_memory_bytes": float(fix.estimate.memory.total),
            }
            for fix in found.fixes
        ],
    }  # fmt: skip


def _stage_figures(answer: Estimate) -> list[Row]:
    return [
        {
            "stage": stage.stage, "layers": stage.layers, "phase": stage.phase,
            **{f"{part}_bytes": value for part, value in stage.parts._asdict().items()},
        }
        for stage in answer.memory.stages
    ]  # fmt: skip


def _estimate_page(answer: Estimate, found: Verdict) -> list[TerminalTable | str]:
    """Everything about one step, as lines and tables."""
    plan, whole, limit = answer.plan, answer.step_time, answer.memory_limit
    times = [(part_name(name), format_seconds(part), share(part, whole)) for name, part in answer.times.items() if part]
    held = [(part_name(name), f"{gib(part)} GiB", share(part, limit)) for name, part in memory_parts(answer).items() if part]
    total = float(answer.memory.total)
    times.append(("step", format_seconds(whole), "100.0 %"))
    held.append(("total", f"{gib(total)} GiB", share(total, limit)))
    low, high = answer.time_interval
    least, most = answer.memory_interval
    figures = [
        f"Rate: {answer.tokens_per_second:,.0f} tokens/s, {answer.tokens_per_second / plan.gpus:,.0f} a GPU",
        f"MFU: {100 * answer.mfu:.1f} % with attention scores counted in full, {100 * answer.causal_mfu:.1f} % with the "
        f"causal half; HFU {100 * answer.hfu:.1f} %",
        *([f"MFU by the peak in 16 bit: {100 * answer.sixteen_bit_mfu:.1f} %"]
          if answer.sixteen_bit_mfu > answer.mfu else []),  # of narrower products, as many reports of such runs give it
        f"Communication under compute, not part of the step: {format_seconds(float(answer.step.hidden_exchange))}",
        judged(answer),
        f"Memory limit: {memory_limit(answer)}",
        f"Error: 90 % of such estimates lie within {format_seconds(low)} to {format_seconds(high)} and {gib(least)} to "
        f"{gib(most)} GiB ({because(answer)})",
    ]
    page: list[TerminalTable | str] = [
        plan_heading(answer),
        table(["time", "", "of the step"], times, total=True),
        table(["memory of the fullest GPU", "", "of the limit"], held, total=True),
    ]
    if plan.pipeline_parallel > 1:
        page.append(_stage_table(answer))
    return [*page, "\n".join(figures), *([] if answer.fits else _offers(found))]


def _stage_table(answer: Estimate) -> TerminalTable:
    """Memory of every pipeline stage, part by part."""
    stages = answer.memory.stages
    least = SMALL * answer.memory_limit
    parts = [part for part in PARTS if any(getattr(stage.parts, part) > least for stage in stages)]
    small = [part for part in PARTS if part not in parts and any(getattr(stage.parts, part) for stage in stages)]
    columns = {part: (part,) for part in parts} | ({"other": tuple(small)} if small else {})
    rows = [
        (
            str(stage.stage), stage.phase, f"{stage.layers:g}",
            *(gib(sum(float(getattr(stage.parts, part)) for part in held)) for held in columns.values()), gib(stage.total),
        )
        for stage in stages
    ]  # fmt: skip
    return table(["stage", "fullest at its", "layers", *columns, "total GiB"], rows, words=2)


def _offers(found: Verdict) -> list[TerminalTable | str]:
    """Where memory runs out, and the cheapest single changes after which the plan fits."""
    items = ", ".join(f"{part} {gib(held)} GiB" for part, held in found.largest[:3])
    lines = f"Stage {found.stage} is fullest, at its {found.phase}: {items}"
    if not found.fixes:
        return [f"{lines}\nNo single change makes it fit"]
    whole, software = found.estimate.step_time, found.estimate.framework.name
    rows = [
        (
            change_as_options(asked_again(fix.change, software)), format_seconds(fix.estimate.step_time),
            f"{100 * fix.cost / whole:+.1f} %", f"{gib(fix.estimate.memory.total)} GiB",
        )
        for fix in found.fixes[:OFFERED]
    ]  # fmt: skip
    return [lines, table(["would fit with", "step", "cost", "memory"], rows)]
