"""`--cluster a,b,c`: the same question on several clusters, in one table."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from costmodel.cli import codes
from costmodel.cli.output import Table, gib, print_json, print_page, split, table
from costmodel.cli.question import cluster_names, of_one_cluster
from costmodel.errors import IllegalPlan, NotModelled

if TYPE_CHECKING:
    from costmodel.evaluation.estimation import Estimate


def compare(arguments: argparse.Namespace, answer: Callable[[argparse.Namespace], Estimate | str]) -> int:
    """Print what each cluster gives; exit code 1 where nothing fits on any.

    Parameters
    ----------
    arguments : with several clusters
    answer : gives the estimate on one of them, or why there is none
    """
    if getattr(arguments, "csv", None):
        from costmodel.cli.arguments import Misused

        raise Misused("--csv is written for one cluster at a time")
    found: dict[str, Estimate | str] = {}
    for name in cluster_names(arguments):
        try:
            found[name] = answer(of_one_cluster(arguments, name))
        except (IllegalPlan, NotModelled) as error:
            found[name] = str(error)
    fits = any(not isinstance(one, str) and one.fits for one in found.values())
    if arguments.json:
        print_json({"clusters": [_figures(name, one) for name, one in found.items()]})
        return codes.ANSWERED if fits else codes.NOTHING_FITS
    columns = ["cluster", "GPUs", "step", "tokens/s", "tokens/s/GPU", "MFU", "peak memory / usable", "plan"]
    rows = [_row(name, one) for name, one in found.items() if not isinstance(one, str)]
    page: list[Table | str] = [
        f"{arguments.model}: {arguments.global_batch} sequences of {arguments.seq_len} tokens a step"
        + (", the best plan of each cluster" if arguments.command == "search" else "")
    ]
    if rows:
        page.append(table(columns, rows, words=1))
    page += [f"{name}: {one}" for name, one in found.items() if isinstance(one, str)]
    print_page(*page, markdown=arguments.markdown)
    return codes.ANSWERED if fits else codes.NOTHING_FITS


def _row(name: str, one: Estimate) -> list[str]:
    from costmodel.units import format_seconds

    return [
        name, f"{one.plan.gpus:,}", format_seconds(one.step_time), f"{one.tokens_per_second:,.0f}",
        f"{one.tokens_per_second / one.plan.gpus:,.0f}", f"{100 * one.mfu:.1f} %",
        f"{gib(float(one.memory.total))} / {gib(one.memory_limit)} GiB" + ("" if one.fits else "  DOES NOT FIT"), split(one),
    ]  # fmt: skip


def _figures(name: str, one: Estimate | str) -> dict[str, object]:
    if isinstance(one, str):
        return {"cluster": name, "refused": one}
    return {"cluster": name, "fits": bool(one.fits), **{key: value for key, value in one.to_dict().items() if key != "cluster"}}
