"""Where a plan that nobody chose doesn't fit: the fastest that does on the same GPUs, in a sentence, as `search` would say it."""

from __future__ import annotations

import argparse
import sys

from costmodel.cli.output import gib, print_page, whole_plan
from costmodel.cli.training import asked_plan, is_split
from costmodel.evaluation.estimation import Estimate
from costmodel.text.errors import IllegalPlan
from costmodel.text.units import format_seconds


def print_that_fits(arguments: argparse.Namespace, answer: Estimate) -> None:
    """Print the fastest plan that fits, or by how much the leanest misses; nothing where a degree was given, or one GPU is all.

    Parameters
    ----------
    arguments : of a question about one plan
    answer : to it, which was printed
    """
    if answer.fits or answer.plan.gpus == 1 or is_split(arguments):
        return
    sys.stdout.flush()  # the answer is read while others are looked at
    try:
        found = asked_plan(argparse.Namespace(**{**vars(arguments), "gradient_accumulation": None, "notes": []}))
    except IllegalPlan as none:
        words = f"As no degree was given, others were looked at: {none}"
    else:
        took = f"{format_seconds(found.step_time)}, {gib(found.memory.total)} GiB"
        words = f"The fastest plan that fits, as no degree was given: {whole_plan(found)}: {took} (`costmodel search` ranks all)"
    print_page(words, markdown=arguments.markdown, more=True)
