"""Faults put into the library one at a time, each of which some quick test must see.

``python -m tests.mutants [NAME ...]`` copies the checkout, makes each change by itself, runs the tests that should notice, and
prints whether one failed. It fails where a mutant lives. Some ten minutes for all of them: run it before a release.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("costmodel", "tests", "calibration", "experiments")


class Mutant(NamedTuple):
    """A change that makes the library wrong.

    Parameters
    ----------
    file : in the package
    text : that stands in it once
    wrong : in its place
    witnesses : tests that should fail, of those that run without a marker
    """

    file: str
    text: str
    wrong: str
    witnesses: tuple[str, ...]


OUTSIDE = "tests/formulas/test_counted_outside.py"
DIRECTIONS = "tests/formulas/test_directions.py"
INTERVALS = "tests/evaluation/test_intervals_hold.py"
MUTANTS = {
    "products-work": Mutant(
        "formulas/compute.py", "work = (tiles + output) * (k + depth) * (2.0 / flop_rate)",
        "work = (tiles + output) * (k + depth) * (2.2 / flop_rate)", (OUTSIDE,),
    ),
    "flash-backward": Mutant(
        "formulas/transformer/attention.py", "FLASH_BACKWARD = 2.5", "FLASH_BACKWARD = 2.75", (OUTSIDE,),
    ),
    "optimizer-bytes": Mutant(
        "formulas/transformer/memory.py", "optimizer = on_device * (trained * (widths.optimizer + widths.outer) * updated",
        "optimizer = on_device * (1.1 * trained * (widths.optimizer + widths.outer) * updated", (OUTSIDE,),
    ),
    "saved-activations": Mutant(
        "formulas/transformer/activations.py",
        "attended = bytes_ * saved - narrower + normed + output + statistics + scores",
        "attended = 1.1 * bytes_ * saved - narrower + normed + output + statistics + scores",
        ("tests/formulas/test_published.py", "tests/formulas/test_memory.py"),
    ),
    "experts-exchange": Mutant(
        "formulas/network/communication.py", "experts = share * 2.0 * (one_way + inside)",
        "experts = share * 2.2 * (one_way + inside)", (OUTSIDE,),
    ),
    "contention-sign": Mutant(
        "formulas/training_step.py", "slowdown = 1.0 + software.compute.contention * hidden / computed",
        "slowdown = 1.0 - software.compute.contention * hidden / computed", (DIRECTIONS,),
    ),
    "gathered-weights": Mutant(
        "formulas/synchronisation.py", "each = group.slowness * collectives.all_gather_over(nbytes / many, group.gathering)",
        "each = 1.1 * group.slowness * collectives.all_gather_over(nbytes / many, group.gathering)", (OUTSIDE,),
    ),
    "norms-bytes": Mutant(
        "formulas/transformer/traffic.py", "norms=outer * model.norms * stream_norm_bytes",
        "norms=1.1 * outer * model.norms * stream_norm_bytes",
        ("tests/audits/test_moved.py", "tests/formulas/test_separate_kernels.py"),
    ),
    "interleaved-filling": Mutant(
        "formulas/pipeline/spans.py", "filling = (stages - 2.0) * chunk + 2.0 * before * h",
        "filling = (stages - 1.0) * chunk + 2.0 * before * h", ("tests/formulas/test_spans.py",),
    ),
    "ring-bytes": Mutant(
        "formulas/network/algorithms.py", "return trip_latency + (ranks - 1.0) / ranks * nbytes / bandwidth",
        "return trip_latency + nbytes / bandwidth", ("tests/formulas/test_algorithms.py",),
    ),
    "launches-of-a-layer": Mutant(
        "formulas/transformer/launches.py",
        "return plain_launches(model, settings) + further / PLAIN",
        "return 1.1 * plain_launches(model, settings) + further / PLAIN",
        ("tests/formulas/test_launches.py",),
    ),
    "update-bytes": Mutant(
        "formulas/training_step.py", "state_bytes = 2.0 * state + 2.0 * widths.gradient + widths.parameter",
        "state_bytes = 2.2 * state + 2.0 * widths.gradient + widths.parameter", (OUTSIDE,),
    ),
    "library-buffers": Mutant(
        "formulas/transformer/memory.py",
        "return software.memory.fixed + software.memory.library_overhead * library_bytes(plan, network)",
        "return software.memory.fixed + 1.1 * software.memory.library_overhead * library_bytes(plan, network)", (OUTSIDE,),
    ),
    "interval-width": Mutant(
        "evaluation/estimation.py", "return self.spread.time(self.slopes.deviation)",
        "return self.spread.time(0.5 * self.slopes.deviation)", (INTERVALS,),
    ),
    "loss-bytes": Mutant(
        "description/framework.py", "    logit_traffic: float = field(default=52.0",
        "    logit_traffic: float = field(default=57.2",
        (OUTSIDE,),
    ),
    "boundary-bytes": Mutant(
        "formulas/network/communication.py", "nbytes = hidden_message(model, settings, plan) / split",
        "nbytes = 1.1 * hidden_message(model, settings, plan) / split", ("tests/formulas/test_published.py",),
    ),
    "context-ring": Mutant(
        "formulas/network/communication.py", "around = (plan.context - 1.0) * collectives.send(keys, *group)",
        "around = plan.context * collectives.send(keys, *group)", (OUTSIDE,),
    ),
    "held-by-interleaved": Mutant(
        "formulas/pipeline/schedules.py", "chunks = 2.0 * (stages - stage - 1.0) + (virtual_stages - 1.0) * stages + 1.0",
        "chunks = (stages - stage - 1.0) + (virtual_stages - 1.0) * stages + 1.0",
        ("tests/test_schedules_of_plans.py", "tests/test_schedule.py"),
    ),
    "shared-errors": Mutant(
        "evaluation/ranking.py", "columns.append(slopes @ (directions * np.sqrt(np.maximum(variances, 0.0))))",
        "columns.append(0.5 * slopes @ (directions * np.sqrt(np.maximum(variances, 0.0))))", ("tests/test_standing.py",),
    ),
    "memory-margin": Mutant(
        "evaluation/first_contacts.py", "return math.exp(-self.shift - place * self.scale)",
        "return math.exp(-self.shift - 0.8 * place * self.scale)",
        (INTERVALS,),
    ),
}  # fmt: skip


def copied(to: Path) -> None:
    """A copy of what tests need of the checkout."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, to / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.glob("*.*"):
        if file.is_file():
            shutil.copy(file, to / file.name)


def lives(mutant: Mutant, checkout: Path) -> bool:
    """Whether no witness sees the mutant."""
    file = checkout / "costmodel" / mutant.file
    sound = file.read_text()
    file.write_text(sound.replace(mutant.text, mutant.wrong))
    environment = os.environ | {"PYTHONPATH": str(checkout), "COSTMODEL_CACHE_DIR": str(checkout / "cache")}
    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-profile", "first"]
    command = [sys.executable, "-m", "pytest", *options, *mutant.witnesses]
    try:
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    finally:
        file.write_text(sound)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout + done.stderr)
    return done.returncode == 0


def main(names: list[str]) -> int:
    """Try the mutants of these names, or all; how many live."""
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "costmodel"
        checkout.mkdir()
        copied(checkout)
        for name in names or MUTANTS:
            began = time.perf_counter()
            if lives(MUTANTS[name], checkout):
                survivors.append(name)
            print(f"{name:22} {'LIVES' if name in survivors else 'dies'}  {time.perf_counter() - began:5.1f} s", flush=True)
    print(f"{len(survivors)} of {len(names or MUTANTS)} live")
    return len(survivors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
