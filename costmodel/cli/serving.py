"""`costmodel mcp`: the library as tools of an agent, by the Model Context Protocol over stdin and stdout (extra `mcp`)."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.loader import load_device
from costmodel.cli import codes
from costmodel.cli.arguments import Commands, Misused, plan_fields
from costmodel.cli.calibrated import add_calibration
from costmodel.description.fields import full_names
from costmodel.description.plan import Plan
from costmodel.text.errors import CostModelError, InvalidValue
from costmodel.text.version import __version__

INSTRUCTIONS = """Time, memory and the best parallel plan of a training run of a transformer on a cluster of GPUs; which card
trains a model, how many GPUs end a run in time, and why a measured step takes what it takes.
Models, clusters, devices and frameworks are names of the catalogue or of the Hugging Face hub (llama3-8b, dgx-h100, h100-sxm,
fsdp2) or paths of files; a cluster is also so many GPUs of a device, 64xh100. What isn't said of a step's work is usual.
Times are in seconds, sizes in bytes. Every answer says how near measurements are (evidence) and in what interval 90 % of such
estimates lie; what ranks also says which rows can't be told from the first within the error (ties). Say these when you pass an
answer on."""
HARDWARE = ("gpus", "nodes", "network", "calibration")
OF_SEARCH = ("tokens", "price", "fit_probability", "space")
INTERVALS = {
    "step_time_s": ("step_time_low_s", "step_time_high_s"), "peak_memory_bytes": ("memory_low_bytes", "memory_high_bytes"),
    "days": ("days_low", "days_high"),
}  # fmt: skip
"""Of an answer: the ends of the interval in which 90 % of such estimates lie."""
Options: TypeAlias = dict[str, str | int | float | bool | list[str | int | float]]
CALIBRATIONS: list[str] = []
"""Files of own runs that the server was started with: one counts where a tool is asked about its device and names none."""
_one_at_a_time = threading.Lock()
"""Commands answer on a stream that all threads of the process share."""


def add(commands: Commands) -> None:
    """Add the command."""
    serving = commands.add_parser(
        "mcp", help="tools for an agent, by the Model Context Protocol on stdin and stdout (extra mcp)",
        description="Serves search, estimate, cards, gpus, diagnose, explain, compare and calibrate to a client of the Model "
        "Context Protocol that starts this command. Nothing is sent anywhere but to that client.",
        examples=("costmodel mcp", "costmodel mcp --calibration mine.toml"),
    )  # fmt: skip
    add_calibration(serving, several=True)
    serving.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise Misused("the server needs the package mcp, which is not installed: pip install 'costmodel[mcp]'")
    from mcp.server import MCPServer

    from costmodel.catalogue.calibrations import device_of_calibration

    for path in arguments.calibration:
        device_of_calibration(path)  # refused now, rather than at the first answer
    CALIBRATIONS[:] = arguments.calibration
    server = MCPServer("costmodel", instructions=INSTRUCTIONS, version=__version__)
    for tool in TOOLS:
        server.tool()(tool)
    server.run("stdio")
    return codes.ANSWERED


def search(
    model: str, cluster: str, global_batch: int | str | None = None, seq_len: int | str | None = None,
    framework: str | None = None, top: int = 5, options: Options | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Rank every legal plan of a training run by its step time, and say which plans are tied within the error.

    `framework`: megatron-core unless it is said, or what own runs (calibration) are of.
    `options`: gpus or nodes (else one node), network, calibration, tokens and price (days and money), fit_probability, and
    any field of a plan fixed to a value or tried over a list, such as {"tensor_parallel": [1, 2], "adapter": "lora"}.
    """
    asked = {"cluster": cluster, "global_batch": global_batch, "seq_len": seq_len, "framework": framework, "top": top}
    found = _answer("search", [model], asked | _allowed(options, *HARDWARE, *OF_SEARCH))
    return {**_best(found["plans"]), "ties": [row for row in found["plans"] if row["tied"]], **found}


def estimate(
    model: str, cluster: str, global_batch: int | str | None = None, seq_len: int | str | None = None,
    framework: str | None = None, options: Options | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Time and memory of one plan part by part, whether it fits, and what would make it fit.

    `framework`: megatron-core unless it is said, or what own runs (calibration) are of.
    `options`: gpus or nodes, network, calibration, tokens and price, and any field of a plan, such as
    {"tensor_parallel": 2, "zero_stage": 3, "recompute": "full", "micro_batch": 2}.
    """
    asked = {"cluster": cluster, "global_batch": global_batch, "seq_len": seq_len, "framework": framework}
    found = _answer("estimate", [model], asked | _allowed(options, *HARDWARE, "tokens", "price", "fit_probability"))
    return {**_told(found), **found}


def cards(
    model: str, devices: list[str] | None = None, adapter: list[str] | None = None, options: Options | None = None
) -> dict[str, Any]:
    """Which cards train a model: what fits on each, the longest sequence, tokens a second, and with which framework.

    `devices`: names such as rtx-4090, all GPUs of the catalogue unless they are said. `adapter`: what is trained, of full, lora,
    qlora, gptq-lora, int8-lora. `options`: gpus (cards that train together), global_batch, seq_len, framework, tokens and price
    (days and money), calibration. `ties`: cards that can't be told from the fastest, by adapter.
    """
    known = ("gpus", "global_batch", "seq_len", "framework", "tokens", "price", "calibration")
    asked: Options = _allowed(options, *known, plan=False)
    found = _answer("cards", [model], {"device": devices, "adapter": adapter} | asked)
    fitting = [{**_told(row), **row} for row in found["cards"] if row["fits"]]
    ties: dict[str, list[str]] = {}
    for row in fitting:
        if row["tied"]:
            ties.setdefault(row["adapter"], []).append(row["device"])
    misses = [{name: row[name] for name in ("device", "adapter", "why")} for row in found["cards"] if not row["fits"]]
    return {"answer": found["answer"], "ties": ties, "cards": fitting, "does_not_fit": misses, "notes": found["notes"]}


def gpus(
    model: str, tokens: str | float, days: float, devices: list[str] | None = None, clusters: list[str] | None = None,
    options: Options | None = None,
) -> dict[str, Any]:  # fmt: skip
    """How many GPUs of each kind end a training run in time: the fewest as expected, the fewest that are sure to, what they cost.

    `tokens`: of the run, such as 15T. `devices` or `clusters`: kinds to try, such as h100; usual large ones unless they are said.
    `options`: global_batch, seq_len, framework, price (of a GPU for an hour), sure (the probability that is called sure),
    calibration. `ties`: clusters that may need no more money, or without prices no more GPUs, than the first needs to be sure.
    """
    known = ("global_batch", "seq_len", "framework", "price", "sure", "calibration")
    asked: Options = _allowed(options, *known, plan=False)
    found = _answer("gpus", [model], {"tokens": tokens, "days": days, "device": devices, "cluster": clusters} | asked)
    rows = [{**_told(row), **row} for row in found["clusters"] if row["gpus"] is not None]
    misses = [{name: row[name] for name in ("cluster", "why")} for row in found["clusters"] if row["gpus"] is None]
    ties = [row["cluster"] for row in rows if row["tied"]]
    return {"answer": found["answer"], "ties": ties, "clusters": rows, "not_in_time": misses, "notes": found["notes"]}


def diagnose(
    model: str, cluster: str, step_time: str | float | None = None, mfu: str | float | None = None,
    tokens_per_second: str | float | None = None, global_batch: int | str | None = None, seq_len: int | str | None = None,
    framework: str | None = None, options: Options | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Why a measured step takes what it takes: the gap to the estimate by parts, what would explain it, what to change first.

    One of `step_time` (seconds, or a text such as 850ms; with global_batch and seq_len), `mfu` (0.38 or 38%) and
    `tokens_per_second` (of all GPUs together) is what was measured. `options`: gpus or nodes, network, calibration, and any field
    of the plan that ran, such as {"tensor_parallel": 8}; where no degree is said the fastest plan is taken.
    """
    measured = {"step_time": step_time, "mfu": mfu, "tokens_per_second": tokens_per_second}
    asked = {"cluster": cluster, "global_batch": global_batch, "seq_len": seq_len, "framework": framework, **measured}
    found = _answer("diagnose", [model], asked | _allowed(options, *HARDWARE))
    return {**_told(found), **found}


def explain(files: list[str], cluster: str, log: str | None = None, options: Options | None = None) -> dict[str, Any]:
    """What a framework's launch file (and the files beside it) will cost, what it assumes, and what would be faster.

    `files`: paths of a Megatron, torchtitan, DeepSpeed, NeMo, nanotron, Trainer, ... launch. `log`: of its run, to be held
    against the estimate. `options`: gpus or nodes, network, calibration, model (in place of the file's), dialect.
    """
    asked = {"cluster": cluster, "log": log}
    found = _answer("explain", files, asked | _allowed(options, *HARDWARE, "model", "dialect", plan=False))
    return {**_told(found), **found}


def compare(
    model: str, over: str, values: list[str | float], global_batch: int | str | None = None, seq_len: int | str | None = None,
    options: Options | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The best plan under each value of one choice, side by side: how much faster, how surely, each with its interval.

    `over`: cluster, device, framework, gpus or any field of a plan; `values`: two or more of it. `options`: what all have in
    common: cluster or device and framework where they aren't what is compared, gpus, nodes, network, calibration, tokens,
    price, and fields of a plan.
    """
    if len(values) < 2:
        raise _refusal("values: expected two or more of them")
    asked = _allowed({**(options or {}), over: values}, "cluster", "device", "framework", *HARDWARE, "tokens", "price")
    found = _answer("compare", [model], {**asked, "global_batch": global_batch, "seq_len": seq_len})
    return {**found, "choices": [{**_told(choice), **choice} for choice in found["choices"]]}


def calibrate(
    runs: list[str], cluster: str, framework: str | None = None, output: str | None = None, options: Options | None = None
) -> dict[str, Any]:
    """Fit the model to own measured runs: how far off it was, how near it is now, and which run to measure next.

    `runs`: files of records (.jsonl, .csv) or LAUNCH=LOG pairs of paths. `output`: a TOML file to write, which the other
    tools take as the option calibration. `options`: network, next (how many runs to name).
    """
    asked = {"cluster": cluster, "framework": framework, "output": output}
    found = _answer("calibrate", runs, asked | _allowed(options, "network", "next", plan=False))
    return {"evidence": f"{found['runs']} runs of one's own", **found}


TOOLS: tuple[Callable[..., dict[str, Any]], ...] = (search, estimate, cards, gpus, diagnose, explain, compare, calibrate)


def _told(figures: Mapping[str, Any]) -> Row:
    """What an answer must say beside its numbers: how near measurements are, and its intervals."""
    intervals = {
        name: [figures[low], figures[high]] for name, (low, high) in INTERVALS.items() if low in figures and high in figures
    }
    return {"evidence": figures["evidence"], "interval_90": intervals}


def _best(plans: Sequence[Mapping[str, Any]]) -> Row:
    return _told(plans[0]) if plans else {"evidence": "no plan fits"}


def _allowed(options: Options | None, *names: str, plan: bool = True) -> Options:
    """Options of a tool; any other name is refused, so that a call writes no file but the one that it says."""
    fields = plan_fields() if plan else ()
    try:
        found: Options = full_names(Plan, options or {}, besides=names)
    except InvalidValue as refused:
        raise _refusal(f"options: {refused}") from None
    for name in found:
        if name not in (*names, *fields):
            raise _refusal(f"options: {name[:80]!r}: expected one of {', '.join((*names, *fields))}")
    return found


def _answer(command: str, words: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that a command of this program prints, with its notes.

    Raises
    ------
    ToolError
        with the command's own line, where it refuses
    """
    from costmodel.cli import main

    if any(word.startswith("-") for word in words):
        raise _refusal(f"{words}: expected names and paths, none with a dash before it")
    given = {name: value for name, value in options.items() if value is not None}
    if command != "calibrate" and "calibration" not in given and (own := _own_runs(given)) is not None:
        given["calibration"] = own
    argv = [command, *words, "--json", *(_spelled(name, value) for name, value in given.items())]
    out, err = io.StringIO(), io.StringIO()
    with _one_at_a_time, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    said = [line.removeprefix("costmodel: ") for line in err.getvalue().splitlines()]
    if code not in (codes.ANSWERED, codes.NOTHING_FITS):
        raise _refusal(said[-1] if said else "no answer")
    found: dict[str, Any] = json.loads(out.getvalue())
    notes = [*found.get("notes", ()), *(line.removeprefix("note: ") for line in said)]
    return {**found, "notes": list(dict.fromkeys(notes))}


def _own_runs(options: Mapping[str, Any]) -> str | None:
    """The file that the server was started with of a device that is asked about; None where there is none."""
    if not CALIBRATIONS:
        return None
    from costmodel.catalogue.calibrations import device_of_calibration
    from costmodel.catalogue.clusters import load_cluster

    devices = set()
    for field, load in (("cluster", lambda name: load_cluster(name).device), ("device", load_device)):
        given = options.get(field)
        for names in given if isinstance(given, list) else [given] if given else []:
            for name in str(names).split(","):
                try:
                    devices.add(load(name.strip()).name)
                except CostModelError:  # an unknown name is the command's to refuse
                    continue
    return next((path for path in CALIBRATIONS if device_of_calibration(path) in devices), None)


def _spelled(name: str, value: object) -> str:
    """An option of the command line."""
    option = name.replace("_", "-")
    if isinstance(value, list):
        return f"--{option}={','.join(map(_word, value))}"
    return f"--{option}={_word(value)}"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _refusal(line: str) -> Exception:
    from mcp.server.mcpserver.exceptions import ToolError

    return ToolError(line)
