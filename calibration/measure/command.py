"""Measure what the constants of a device are fitted to.

Run ``python -m calibration measure --device cuda:0 --out FILE``, or copy this folder to a node and run
``python -m measure --device cuda:0 --out FILE`` beside it. PyTorch and NumPy are needed. ``python -m
calibration operators FILE`` fits the device's constants to the file.

The file holds ``{"schema": 2, "environment": {...}, "rows": [...]}``. Every row is flat: its "family", the
family's parameters, and ``seconds`` (the median), ``spread`` (interquartile range over median) and
``repeats``, in SI units. The families are described where they are measured: "gemm", "attention" and "copy"
in ``operators``, "layer", one of the model whose ``--config`` is given, in ``layers``, "collective" in ``collectives``,
how an operation is timed in ``timing``.

Every family has a time budget, and leaves what it does not use to the next one. Points left out, because the
budget was used up or because they failed, are listed in ``environment["skipped"]`` with the reason.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

SCHEMA = 2
BUDGETS = {"gemm": 85.0, "attention": 45.0, "copy": 15.0, "layer": 20.0, "collective": 40.0}
"""Seconds of a full run on a GPU; --quick has a quarter of it."""
QUICK_SHARE = 0.25
QUICK_STRIDE = 5
"""With --quick a GPU measures every fifth product and attention, as no list of them has this period."""
LONGEST_REASON = 400


class MeasurementError(Exception):
    """The measurement cannot be made as asked."""


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports an error on one line."""

    def error(self, message: str) -> None:
        """Raise `MeasurementError` instead of printing the usage and leaving."""
        raise MeasurementError(message)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments to ``parser``."""
    parser.add_argument("--device", required=True, help="cuda:0, another CUDA device, or cpu")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="JSON file to write")
    parser.add_argument("--config", type=Path, metavar="FILE", help="config.json of a decoder, one layer of which is timed, too")
    parser.add_argument("--quick", action="store_true", help="fewer points (one minute instead of three)")
    parser.add_argument("--families", metavar="A,B", help=f"measure these alone, of: {', '.join(BUDGETS)}")


def find_device(name: str):
    """Return the torch.device of this name."""
    try:
        import torch

        device = torch.device(name)
    except ImportError as error:
        raise MeasurementError(f"PyTorch is needed to measure: {error}") from error
    except RuntimeError as error:
        raise MeasurementError(f"unknown device {name!r}: use cuda:0 or cpu") from error
    if device.type not in ("cuda", "cpu"):
        raise MeasurementError(f"device {name!r} is neither a CUDA device nor the CPU")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise MeasurementError(f"device {name!r}: PyTorch finds {torch.cuda.device_count()} CUDA devices")
    return torch.device("cpu") if device.type == "cpu" else torch.device("cuda", device.index or 0)


def describe_environment(device) -> dict:
    """Return what is measured on: the device's name, and all that PyTorch collects for reports of faults."""
    import torch
    from torch.utils.collect_env import get_env_info

    on_gpu = device.type == "cuda"
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(device) if on_gpu else "CPU",
        "device_count": torch.cuda.device_count() if on_gpu else 1,
        **get_env_info()._asdict(),
    }


def reason_of(error: BaseException, caught: Sequence[warnings.WarningMessage] = ()) -> str:
    """Return one line that says why a point failed, with the warnings that preceded the failure."""
    lines = str(error).strip().splitlines() or [""]
    said = [str(warning.message).strip() for warning in caught]
    parts = [f"{type(error).__name__}: {lines[0]}", *(text.splitlines()[0] for text in said if text)]
    return "; ".join(dict.fromkeys(parts))[:LONGEST_REASON]


def run_points(family: str, points: list, deadline: float, skip: Callable, report: Callable) -> list[dict]:
    """Measure the points of one family until ``deadline``; failures are skipped, not raised."""
    rows = []
    for index, point in enumerate(points):
        if time.perf_counter() > deadline:
            skip(f"last {len(points) - index} of {len(points)} points", "time budget used up")
            break
        if index and index % 25 == 0:
            report(f"{index} of {len(points)} points")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                rows.append({"family": family, **point.parameters, **point.run()})
            except Exception as error:  # whatever one point raises, the run goes on and records it
                skip(point.parameters, reason_of(error, caught))
    return rows


def collective_rows(device, quick: bool, seconds: float, skip: Callable) -> list[dict]:
    """Return the rows of family "collective", none on fewer than two GPUs."""
    import torch

    from .collectives import measure_collectives

    if device.type != "cuda" or torch.cuda.device_count() < 2:
        skip("all", "needs two GPUs")
        return []
    try:
        return measure_collectives(torch.cuda.device_count(), "nccl", quick, max(seconds, 5.0), skip)
    except Exception as error:  # a failing process group must not lose the other families' rows
        skip("all", reason_of(error))
        return []


def measure(device, quick: bool, progress: Callable[[str], None], families: Sequence[str] = tuple(BUDGETS),
            config: Path | None = None) -> dict:  # fmt: skip
    """Measure families on ``device``."""
    import torch

    from .layers import layer_points
    from .operators import attention_points, copy_points, product_points
    from .timing import Timer

    began = time.perf_counter()
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    environment = describe_environment(device) | {"quick": quick}
    timer = Timer(device, quick)
    skipped: list[dict] = []
    rows: list[dict] = []
    sources = {
        "gemm": product_points, "attention": attention_points, "copy": copy_points,
        "layer": functools.partial(layer_points, config=config),
    }  # fmt: skip
    deadline = time.perf_counter()
    for family, budget in BUDGETS.items():
        deadline += budget * (QUICK_SHARE if quick or not on_gpu else 1.0)
        if family not in families:
            continue

        def skip(point: object, reason: str, family: str = family) -> None:
            skipped.append({"family": family, "point": point, "reason": reason})

        def report(text: str, family: str = family) -> None:
            progress(f"{time.perf_counter() - began:7.1f} s  {family}: {text}")

        if family == "collective":
            measured = collective_rows(device, quick, deadline - time.perf_counter(), skip)
        else:
            points = sources[family](timer, skip)
            stride = QUICK_STRIDE if quick and on_gpu and family in ("gemm", "attention") else 1
            measured = run_points(family, points[::stride], deadline, skip, report)
        rows += measured
        left_out = sum(item["family"] == family for item in skipped)
        report(f"{len(measured)} rows, {left_out} entries skipped")
    environment |= {"total_seconds": time.perf_counter() - began, "skipped": skipped}
    return {"schema": SCHEMA, "environment": environment, "rows": rows}


def write_whole(record: dict, path: Path) -> None:
    """Write ``record`` as JSON, a row a line: the file is complete before it takes its name."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            head = json.dumps({name: value for name, value in record.items() if name != "rows"}, indent=1)
            rows = ",\n".join("  " + json.dumps(row) for row in record["rows"])
            file.write(f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n')
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def run(arguments: argparse.Namespace) -> int:
    """Measure as the parsed arguments say, and write the file."""
    families = arguments.families.split(",") if arguments.families else list(BUDGETS)
    for family in families:
        if family not in BUDGETS:
            raise MeasurementError(f"unknown family {family!r}: choose from {', '.join(BUDGETS)}")
    device, path = find_device(arguments.device), Path(arguments.out)
    if path.is_dir():
        raise MeasurementError(f"--out {str(path)!r} is a directory")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise MeasurementError(f"--out {str(path)!r}: its directory does not exist or cannot be written")
    if arguments.config is not None:
        from .layers import sizes_of

        try:
            sizes_of(arguments.config)
        except ValueError as error:
            raise MeasurementError(str(error)) from error

    def progress(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    record = measure(device, arguments.quick, progress, families, arguments.config)
    write_whole(record, path)
    progress(f"{len(record['rows'])} rows written to {path}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line: 0 on success, 2 if the arguments cannot be followed."""
    parser = OneLineParser(prog="measure", description=(__doc__ or "").strip().splitlines()[0])
    add_arguments(parser)
    try:
        return run(parser.parse_args(argv))
    except MeasurementError as error:
        print(f"measure: {error}", file=sys.stderr, flush=True)
        return 2
    except SystemExit as leaving:  # --help
        return int(leaving.code or 0)
