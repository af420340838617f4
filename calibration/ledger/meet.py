"""``python -m calibration meet FILE``: score records before anything is fitted to them, and append them to the ledger."""

from __future__ import annotations

import argparse
import datetime
import subprocess
from collections.abc import Collection
from pathlib import Path

from calibration.ledger.entries import CAMPAIGNS, RUNS, Entry, add_entries, read_entries, write_campaigns
from calibration.validate.judged import Judged, judged
from costmodel.evaluation.first_contacts import as_usual
from costmodel.text.errors import CostModelError


def entry(row: Judged, date: str, release: str, seen: bool) -> Entry:
    """A judged record as the ledger has it.

    One that can't be predicted is entered without predictions.
    """
    assert row.run is not None
    nothing: tuple[None, None, None, None] = (None, None, None, None)
    seconds, nbytes = row.seconds or nothing, row.nbytes or nothing
    made = row.estimate
    return Entry(
        date, release, row.id, row.campaign, seconds[0], seconds[1], seconds[2], seconds[3],
        nbytes[0], nbytes[1], nbytes[2], nbytes[3], ran=row.run.ran, predicted_fits=row.fits,
        usable_bytes=made.usable_memory if made else None, seen=seen, novelty=made.spread.novelty if made else "",
        constants=as_usual(made.slopes.deviation) if made else None,
        host=float(made.step.host) / made.step_time if made else None, unstated=tuple(row.run.unstated),
    )  # fmt: skip


def met(files: Collection[Path], date: str, release: str, fitted: Collection[str]) -> tuple[list[Entry], list[Judged]]:
    """Records of some files as the ledger would have them, and those that can't be read."""
    every = judged(files)
    rows, unread = [row for row in every if row.run is not None], [row for row in every if row.run is None]
    if not rows:
        raise CostModelError(f"no run can be read, the first for {unread[0].reason}" if unread else "no record of a run")
    for row in rows:
        if not row.campaign or "/" not in row.id:
            raise CostModelError(f"record {row.id!r}: expected a campaign, and an id such as source/row")
    return [entry(row, date, release, row.campaign in fitted) for row in rows], unread


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``meet``."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="records of runs that nothing was fitted to")
    parser.add_argument(
        "--fitted", nargs="*", type=Path, default=[], metavar="FILE",
        help="records that the constants were fitted to: other runs of their campaigns count as seen",
    )  # fmt: skip


def _release() -> str:
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=RUNS.parent, capture_output=True, text=True, check=False
    )
    if found.returncode or found.stdout.strip().endswith("-dirty"):
        raise CostModelError("the ledger names the commit that met a campaign: commit first")
    return found.stdout.strip()


def run(arguments: argparse.Namespace) -> int:
    """Run ``meet``."""
    fitted = {row.campaign for row in judged(arguments.fitted)} if arguments.fitted else set()
    new, unread = met(arguments.files, datetime.datetime.now(datetime.UTC).date().isoformat(), _release(), fitted)
    add_entries(new)
    write_campaigns(read_entries())
    for row in unread:
        print(f"not met: {row.id}: {row.reason}")
    print(f"{len(new)} runs of {len({one.campaign for one in new})} campaigns met; {CAMPAIGNS.name} has their scores")
    return 0
