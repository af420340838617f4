"""Measured runs, traced and priced: `python -m tests.traces.measured [--file released] [--keep FOLDER] [--table] [RUN ...]`.

The runs of `chosen_runs.toml`, chosen before any was traced, as scripts of `traced/` do them on GPUs that aren't there. Needs
the measured runs in `../shared/reference`, torch, and pip: what a layer keeps depends on the release of transformers, so each run
is traced in an environment with the releases that it had, which is made once (`environments.py`). `--installed` traces with
what is installed instead, and says where a run had other releases. A run takes half a minute.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibration.validate.unstated import _others, _unstated, widened
from costmodel.catalogue.records import run_of
from costmodel.description.cluster import Cluster
from costmodel.description.run import Run
from costmodel.text.progress import LISTENERS
from costmodel.traces.memory import memory_of_trace
from costmodel.traces.pricing import price_trace
from costmodel.traces.record import Trace
from costmodel.traces.running import trace_script
from tests.traces.environments import DEFAULT, environment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DATA = ROOT.parent / "shared" / "reference" / "measured"
STEPS = 2
LIMIT = 3600.0
"""Of a run [s]."""


class Judged(NamedTuple):
    """A run beside its trace."""

    run: str
    step: float | None  # measured [s]; None where no step of this plan was timed
    traced_step: float  # of one micro-batch's, integrated over what the record leaves unstated of its machine [s]
    within: bool  # the measured step lies in the interval
    peak: float  # measured [bytes]
    traced_peak: float  # of the kind that was measured [bytes]
    allocated: float  # [bytes]
    reserved: float  # [bytes]
    otherwise: str  # releases that the run had and the trace hasn't; "" where none is known

    @property
    def time_error(self) -> float | None:
        """Of the traced step over the measured one."""
        return None if self.step is None else self.traced_step / self.step - 1.0

    @property
    def memory_error(self) -> float:
        """Of the traced peak over the measured one."""
        return self.traced_peak / self.peak - 1.0


def chosen(file: str = "dev") -> list[str]:
    """Ids of the runs of one file of records."""
    table = tomllib.loads((HERE / "chosen_runs.toml").read_text())
    return [f"{one['dataset']}/{number}" for one in table["campaigns"] if one["file"] == file for number in one["runs"]]


def releases() -> dict[str, dict[str, str]]:
    """Releases that a run is known to have had, by its id."""
    table = tomllib.loads((HERE / "chosen_runs.toml").read_text())
    return {f"{one['dataset']}/{number}": one.get("software", {}) for one in table["campaigns"] for number in one["runs"]}


def ruled_out(run: str) -> list[str]:
    """What a run's record leaves unstated whose assumed value its campaign's words rule out."""
    table = tomllib.loads((HERE / "chosen_runs.toml").read_text())
    return next(
        list(one.get("not_as_assumed", ())) for one in table["campaigns"]
        for number in one["runs"] if f"{one['dataset']}/{number}" == run
    )  # fmt: skip


def machines(run: Run) -> list[tuple[float, Cluster]]:
    """Clusters that a run may have had, and how likely each is: the most likely first."""
    others = [(key, weight, other.cluster) for key in _unstated(run) for weight, other in _others(run, key, {})
              if other.cluster is not run.cluster]  # fmt: skip
    excluded = [key for key in ruled_out(run.id) if any(key == other for other, _, _ in others)]
    if excluded:
        others = [other for other in others if other[0] in excluded]
    left = 0.0 if excluded else 1.0 - sum(weight for _, weight, _ in others)
    found = [(left, run.cluster), *((weight, cluster) for _, weight, cluster in others)]
    whole = sum(weight for weight, _ in found)
    return sorted(((weight / whole, cluster) for weight, cluster in found if weight), key=lambda one: -one[0])


def otherwise(run: str, trace: Trace) -> str:
    """Releases that a run had and its trace hasn't, of the packages that the traced script imported."""
    had = releases()[run]
    return ", ".join(
        f"{name} {version}" for name, version in had.items() if trace.versions.get(name, version) != version
    )  # fmt: skip


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


def shape(record: dict[str, Any]) -> dict[str, Any]:
    """A model's configuration, as Hugging Face names it."""
    model = record["model"]
    if model["learned_positions"]:
        return {
            "n_embd": model["hidden"], "n_layer": model["layers"], "n_head": model["heads"], "vocab_size": model["vocabulary"],
            "n_positions": model["learned_positions"],
        }  # fmt: skip
    kind = next(kind for name, kind in KINDS.items() if name in model["name"])
    positions = 4096 if "Llama 2" in model["name"] else 32768  # releases before 4.38 hold a table of them in each layer
    config = {
        "model_type": kind, "hidden_size": model["hidden"], "intermediate_size": model["feed_forward"],
        "num_hidden_layers": model["layers"], "num_attention_heads": model["heads"], "num_key_value_heads": model["kv_heads"],
        "vocab_size": model["vocabulary"], "tie_word_embeddings": model["tied_embeddings"], "max_position_embeddings": positions,
        "head_dim": model["head_dim"], "pad_token_id": 0,
    }  # fmt: skip
    return config | ({"sliding_window": None} if kind in ("mistral", "phi3") else {})


def of_benchmark(record: dict[str, Any]) -> list[str]:
    """Flags of a run of fms-acceleration."""
    software = record["assumed"] | record["software"]
    loss = software["loss"]
    flags = {
        "--adapters": software.get("adapter") == "lora", "--fused": loss in ("fused", "in-place"),
        "--whole-logits": loss == "in-place", "--wide-weights": software.get("parameter_bits") == 32,
    }  # fmt: skip
    return [flag for flag, on in flags.items() if on]


def adapted(record: dict[str, Any]) -> list[str]:
    """Rank and targets of a run's adapters."""
    software = record["software"]
    if "lora_targets" not in software:
        return []
    merged = "Phi-3" in record["model"]["name"]  # whose matrices of queries, keys and values are one, and of both halves
    names = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"} if merged else {NAMES[one] for one in software["lora_targets"]}
    return ["--rank", str(software["lora_rank"]), "--targets", ",".join(sorted(names))]


def of_adapters(record: dict[str, Any]) -> list[str]:
    """Flags of a run of fsdp_qlora."""
    return [*adapted(record), *(["--whole"] if record["software"]["sharding"] == "no_shard" else [])]


KINDS = {"istral": "mistral", "Gemma 2": "gemma2", "Gemma": "gemma", "Phi-3": "phi3", "lama": "llama"}
NAMES = {
    "query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj", "gate": "gate_proj", "up": "up_proj",
    "down": "down_proj",
}  # fmt: skip
PACKAGES = {
    "finetune": ("transformers", "peft"), "adapters": ("transformers", "peft"), "one_gpu": ("transformers", "peft"),
    "gpt2": ("transformers", "deepspeed"), "on_the_host": ("transformers",),
}  # fmt: skip
"""That each script imports, beside PyTorch."""
SCRIPTS: dict[str, tuple[str, Callable[[dict[str, Any]], list[str]]]] = {
    "hf-trainer": ("finetune", of_benchmark),
    "hf-fsdp": ("finetune", of_benchmark),
    "fsdp-qlora": ("adapters", of_adapters),
    "universal-llm-trainer": ("one_gpu", adapted),
    "lightning-ddp": ("gpt2", lambda record: []),
    "lightning-deepspeed": ("gpt2", lambda record: ["--zero3"]),
    "fsdp2": ("on_the_host", lambda record: []),
}
"""By a run's software: the script that does what it did, and its flags."""


def arguments(record: dict[str, Any]) -> list[str]:
    """What the script is told of a run."""
    plan = record["assumed"] | record["plan"]
    told = [json.dumps(shape(record)), "--micro-batch", str(plan["micro_batch"]), "--seq-len", str(plan["seq_len"])]
    return told + SCRIPTS[record["software"]["framework"]][1](record)


def trace_of(record: dict[str, Any], folder: Path, environments: Path | None) -> Trace:
    """The trace of a run, made in an environment of its releases unless there are none; kept, and read where it is."""
    path = folder / f"{record['id'].replace('/', '-')}.npz"
    if environments and not path.exists():
        script = SCRIPTS[record["software"]["framework"]][0]
        python = environment(PACKAGES[script], releases()[record["id"]], environments)
        asked = [python, "-m", "tests.traces.measured", "--installed", "--keep", str(folder.resolve()), record["id"]]
        done = subprocess.run(asked, cwd=ROOT, check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{record['id']} in {python}: {done.stderr.strip().splitlines()[-1]}")
    return traced(record, path)


def traced(record: dict[str, Any], path: Path) -> Trace:
    """The trace of a run by what is installed; kept in a file, and read from there where it is.

    One rank is run, which stands for all: they do the same.
    """
    if not path.exists():
        cluster, world = run_of(record).cluster, record["cluster"]["gpus"]
        script = str(HERE / "traced" / f"{SCRIPTS[record['software']['framework']][0]}.py")
        trace = trace_script(script, arguments(record), cluster=cluster, gpus=world, roles=(0,), steps=STEPS, limit=LIMIT)
        role = dataclasses.replace(trace.roles[0], stands_for=tuple(range(world)))
        path.parent.mkdir(parents=True, exist_ok=True)
        dataclasses.replace(trace, roles=(role,)).save(path)
    return Trace.load(path)


def judged(record: dict[str, Any], trace: Trace) -> Judged:
    """A run beside its trace, priced on the clusters that it may have had, as likely as each is."""
    run = run_of(record)
    known = machines(run)
    priced = [price_trace(trace, cluster, run.framework) for _, cluster in known]
    made, cluster = priced[0], known[0][1]
    held = memory_of_trace(trace, cluster, run.framework, estimate=made)
    logs, shares = np.log([one.step_time for one in priced]), np.array([weight for weight, _ in known])
    mean = float(shares @ logs)
    doubt = math.sqrt(float(shares @ (logs - mean) ** 2))
    expected = math.exp(mean)
    low, high = (bound * expected / made.step_time for bound in widened(made.interval, [doubt]))
    once = record["plan"]["global_batch"] == (record["assumed"] | record["plan"])["micro_batch"] * record["cluster"]["gpus"]
    step = run.step_time if record["use"]["time"] and once and "one pass" not in record["doubt"] else None
    assert run.peak_memory is not None
    return Judged(
        record["id"], step, expected, step is not None and low <= step <= high, run.peak_memory,
        held.reserved if record["measured"]["memory_kind"] == "reserved" else held.allocated, held.allocated, held.reserved,
        otherwise(record["id"], trace),
    )  # fmt: skip


def timed(made: Judged) -> str:
    """Both times of a run whose step was timed."""
    if made.step is None or made.time_error is None:
        return ""
    outside = "" if made.within else ", outside its interval"
    return f"step {made.step:.2f} s, traced {made.traced_step:.2f} ({100 * made.time_error:+.1f} %{outside}); "


HEADER = (
    "| run | model | GPUs | micro-batch | transformers | measured | traced | error | step | its error |\n|---|---|"
    + "---:|" * 8
)


def row(record: dict[str, Any], made: Judged, trace: Trace) -> str:
    """A run in a table of Markdown."""
    kind, plan, cluster = record["measured"]["memory_kind"], record["assumed"] | record["plan"], record["cluster"]
    cells = [
        made.run, record["model"]["name"], f"{cluster['gpus']} {cluster['device']}",
        f"{plan['micro_batch']} x {plan['seq_len']:,}", trace.versions.get("transformers", ""),
        f"{made.peak / 2**30:.2f} GiB {kind}", f"{made.traced_peak / 2**30:.2f} GiB", f"{100 * made.memory_error:+.1f} %",
        "" if made.step is None else f"{made.step:.2f} s", "" if made.time_error is None else f"{100 * made.time_error:+.1f} %",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def summary(found: list[Judged]) -> str:
    """Means and worst of the errors, in a line."""
    times = [abs(one.time_error) for one in found if one.time_error is not None]
    peaks = [abs(one.memory_error) for one in found]
    mean, worst = 100 * sum(peaks) / len(peaks), 100 * max(peaks)
    said = f"{len(found)} runs: peak memory {mean:.1f} % off on average, {worst:.1f} % at worst"
    if not times:
        return said
    return (
        f"{said}; time {100 * sum(times) / len(times):.1f} % on average, {100 * max(times):.1f} % at worst, in the interval "
        f"{sum(one.within for one in found)} of {len(times)}"
    )


def main() -> None:
    """Trace, price and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", help="ids; all that were chosen unless given")
    parser.add_argument("--file", default="dev", choices=["dev", "released"], help="which runs, unless they are given")
    parser.add_argument("--keep", default="", help="folder for the traces, which are read from there where they are")
    parser.add_argument("--environments", default=DEFAULT, type=Path, help="folder for environments of the runs' releases")
    parser.add_argument("--installed", action="store_true", help="trace with the packages that are installed")
    parser.add_argument("--table", action="store_true", help="as Markdown")
    asked = parser.parse_args()
    LISTENERS.append(lambda line: print(line, file=sys.stderr))
    known, found = records(), []
    if missing := [one for one in asked.runs or chosen(asked.file) if one not in known]:
        parser.error(f"run {missing[0]!r}: expected one of chosen_runs.toml, with its record in {DATA}")
    if asked.table:
        print(HEADER)
    with tempfile.TemporaryDirectory() as passing:
        folder = Path(asked.keep or passing)
        for one in asked.runs or chosen(asked.file):
            trace = trace_of(known[one], folder, None if asked.installed else asked.environments)
            made = judged(known[one], trace)
            found.append(made)
            if asked.table:
                print(row(known[one], made, trace), flush=True)
                continue
            print(
                f"{one}: {timed(made)}peak {made.peak / 2**30:.2f} GiB, traced "
                f"{made.traced_peak / 2**30:.2f} ({100 * made.memory_error:+.1f} %), "
                f"allocated {made.allocated / 2**30:.2f}, reserved {made.reserved / 2**30:.2f}"
                + (f"; the run had {made.otherwise}" if made.otherwise else ""),
                flush=True,
            )  # fmt: skip
    print(summary(found))


if __name__ == "__main__":
    main()
