"""Measured runs, traced and priced: `python -m tests.traces.measured [--keep FOLDER] [RUN ...]`.

The runs of `chosen_runs.toml`, chosen before any was traced, as `traced/finetune.py` does them on GPUs that aren't there. Needs
the measured runs in `../shared/reference`, and torch, transformers and peft; a run takes a minute or two.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from costmodel.catalogue.records import run_of
from costmodel.traces.memory import memory_of_trace
from costmodel.traces.pricing import price_trace
from costmodel.traces.record import Trace
from costmodel.traces.running import trace_script

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DATA = ROOT.parent / "shared" / "reference" / "measured"
STEPS = 2
LIMIT = 3600.0
"""Of a run [s]."""


class Judged(NamedTuple):
    """A run beside its trace."""

    run: str
    step: float  # measured [s]
    traced_step: float  # [s]
    within: bool  # the measured step lies in the interval
    peak: float  # measured [bytes]
    traced_peak: float  # [bytes]
    reserved: float  # [bytes]

    @property
    def time_error(self) -> float:
        """Of the traced step over the measured one."""
        return self.traced_step / self.step - 1.0

    @property
    def memory_error(self) -> float:
        """Of the traced peak over the measured one."""
        return self.traced_peak / self.peak - 1.0


def chosen(file: str = "dev") -> list[str]:
    """Ids of the runs of one file of records."""
    table = tomllib.loads((HERE / "chosen_runs.toml").read_text())
    return [f"{one['dataset']}/{number}" for one in table["campaigns"] if one["file"] == file for number in one["runs"]]


def records() -> dict[str, dict[str, Any]]:
    """Records of these runs by their ids; empty where the data isn't there."""
    wanted, found = set(chosen("dev") + chosen("released")), {}
    for name in ("dev.jsonl", "released.jsonl"):
        path = DATA / name
        lines = path.read_text().splitlines() if path.exists() else []
        for record in map(json.loads, lines):
            if record["id"] in wanted:
                found[record["id"]] = record
    return found


def arguments(record: dict[str, Any]) -> list[str]:
    """What the script is told of a run."""
    model, software = record["model"], record["assumed"] | record["software"]
    plan = record["assumed"] | record["plan"]
    config = {
        "model_type": "mistral" if "istral" in model["name"] else "llama", "hidden_size": model["hidden"],
        "intermediate_size": model["feed_forward"], "num_hidden_layers": model["layers"],
        "num_attention_heads": model["heads"], "num_key_value_heads": model["kv_heads"], "vocab_size": model["vocabulary"],
        "tie_word_embeddings": model["tied_embeddings"], "max_position_embeddings": 32768,
    }  # fmt: skip
    if config["model_type"] == "mistral":
        config["sliding_window"] = None
    flags = {
        "--adapters": software.get("adapter") == "lora", "--fused": software.get("loss") == "fused",
        "--wide-weights": software.get("parameter_bits") == 32,
    }  # fmt: skip
    told = [json.dumps(config), "--micro-batch", str(plan["micro_batch"]), "--seq-len", str(plan["seq_len"])]
    return told + [flag for flag, on in flags.items() if on]


def traced(record: dict[str, Any], path: Path) -> Trace:
    """The trace of a run; kept in a file, and read from there where it is.

    One rank is run, which stands for all: they do the same.
    """
    if not path.exists():
        cluster, world = run_of(record).cluster, record["cluster"]["gpus"]
        script = str(HERE / "traced" / "finetune.py")
        trace = trace_script(script, arguments(record), cluster=cluster, gpus=world, roles=(0,), steps=STEPS, limit=LIMIT)
        role = dataclasses.replace(trace.roles[0], stands_for=tuple(range(world)))
        path.parent.mkdir(parents=True, exist_ok=True)
        dataclasses.replace(trace, roles=(role,)).save(path)
    return Trace.load(path)


def judged(record: dict[str, Any], trace: Trace) -> Judged:
    """A run beside its trace, priced on the run's own cluster."""
    run = run_of(record)
    made = price_trace(trace, run.cluster, run.framework)
    held = memory_of_trace(trace, run.cluster, run.framework, estimate=made)
    low, high = made.interval
    assert run.step_time is not None and run.peak_memory is not None
    return Judged(
        record["id"], run.step_time, made.step_time, low <= run.step_time <= high, run.peak_memory, held.allocated, held.reserved
    )


def summary(found: list[Judged]) -> str:
    """Means and worst of the errors, in a line."""
    times, peaks = [abs(one.time_error) for one in found], [abs(one.memory_error) for one in found]
    return (
        f"{len(found)} runs: time {100 * sum(times) / len(times):.1f} % off on average, {100 * max(times):.1f} % at worst, in "
        f"the interval {sum(one.within for one in found)} of {len(found)}; peak memory {100 * sum(peaks) / len(peaks):.1f} % on "
        f"average, {100 * max(peaks):.1f} % at worst"
    )


def main() -> None:
    """Trace, price and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", help="ids; all that were chosen unless given")
    parser.add_argument("--file", default="dev", choices=["dev", "released"], help="which runs, unless they are given")
    parser.add_argument("--keep", default="", help="folder for the traces, which are read from there where they are")
    asked = parser.parse_args()
    known, found = records(), []
    with tempfile.TemporaryDirectory() as passing:
        folder = Path(asked.keep or passing)
        for one in asked.runs or chosen(asked.file):
            trace = traced(known[one], folder / f"{one.replace('/', '-')}.npz")
            made = judged(known[one], trace)
            found.append(made)
            print(
                f"{one}: step {made.step:.2f} s, traced {made.traced_step:.2f} ({100 * made.time_error:+.1f} %"
                f"{'' if made.within else ', outside its interval'}); peak {made.peak / 2**30:.2f} GiB, traced "
                f"{made.traced_peak / 2**30:.2f} ({100 * made.memory_error:+.1f} %), reserved {made.reserved / 2**30:.2f}",
                flush=True,
            )  # fmt: skip
    print(summary(found))


if __name__ == "__main__":
    main()
