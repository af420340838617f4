"""Measure the microbenchmarks from which the constants of a cost model are fitted.

Run ``python -m calibration measure --device cuda:0 --out FILE``, or copy this folder to a node and run
``python measure.py --device cuda:0 --out FILE`` there. PyTorch and NumPy are needed.

The file holds ``{"schema": 1, "environment": {...}, "rows": [...]}``. Every row is flat: its "family", the
family's parameters, and ``seconds`` (the median), ``spread`` (interquartile range over median) and
``repeats``. All quantities are in SI units. The families are described where they are measured:

- "gemm", "gemm_sustained", "grouped_gemm", "attention": ``products``;
- "elementwise", "optimizer", "copy": ``memory``;
- "launch", "block", "train": ``models``;
- "collective": ``collectives``;
- how a single operation is timed: ``timing``.

Every family has a time budget, and leaves what it does not use to the next one. Points left out, because the
budget was used up or because they failed, are listed in ``environment["skipped"]`` with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

SCHEMA = 1
# Seconds of a full run on a GPU; --quick has a quarter of it.
BUDGETS = {
    "launch": 10.0,
    "gemm": 85.0,
    "gemm_sustained": 12.0,
    "grouped_gemm": 20.0,
    "attention": 45.0,
    "elementwise": 40.0,
    "optimizer": 15.0,
    "copy": 25.0,
    "block": 25.0,
    "collective": 40.0,
    "train": 135.0,
}
QUICK_SHARE = 0.25
# With --quick a GPU measures every n-th point; n shares no factor with the periods of the lists of points.
QUICK_STRIDE = {
    "gemm": 5,
    "grouped_gemm": 5,
    "attention": 5,
    "elementwise": 5,
    "optimizer": 3,
    "block": 3,
}
MAXIMUM_REASON = 400

Progress = Callable[[str], None]


class MeasurementError(Exception):
    """The measurement cannot be made as asked."""


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports an error on one line."""

    def error(self, message: str) -> None:
        """Raise `MeasurementError` instead of printing the usage and leaving."""
        raise MeasurementError(message)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments to ``parser``.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        Receives --device, --quick, --compile, --families and --out.
    """
    parser.add_argument("--device", required=True, help="cuda:0, another CUDA device, or cpu")
    parser.add_argument("--out", required=True, metavar="FILE", help="JSON file to write")
    parser.add_argument("--quick", action="store_true", help="fewer points (2 minutes instead of 8)")
    parser.add_argument(
        "--compile", action="store_true", help='also measure compiled blocks (family "block")'
    )
    parser.add_argument("--families", metavar="A,B", help=f"measure these alone, of: {', '.join(BUDGETS)}")


def find_device(name: str):
    """Return the torch.device of this name.

    Raises
    ------
    MeasurementError
        If PyTorch is missing, or there is no such device.
    """
    try:
        import torch
    except ImportError as error:
        raise MeasurementError(f"PyTorch is needed to measure: {error}") from error
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise MeasurementError(f"unknown device {name!r}: use cuda:0 or cpu") from error
    if device.type not in ("cuda", "cpu"):
        raise MeasurementError(f"device {name!r} is neither a CUDA device nor the CPU")
    if device.type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise MeasurementError(f"device {name!r}: PyTorch finds no CUDA device")
    index = device.index or 0
    if index >= torch.cuda.device_count():
        raise MeasurementError(f"device {name!r}: there are {torch.cuda.device_count()} CUDA devices")
    return torch.device("cuda", index)


def point_sources(compile_blocks: bool) -> dict[str, Callable]:
    """Return, by family, the functions that list a family's points."""
    if __package__:
        from . import memory, models, products
    else:
        import memory
        import models
        import products
    return {
        "launch": models.launch_points,
        "gemm": products.gemm_points,
        "gemm_sustained": products.gemm_sustained_points,
        "grouped_gemm": products.grouped_gemm_points,
        "attention": products.attention_points,
        "elementwise": memory.elementwise_points,
        "optimizer": memory.optimizer_points,
        "copy": memory.copy_points,
        "block": functools.partial(models.block_points, compile_blocks=compile_blocks),
        "train": models.train_points,
    }


def reason_of(error: BaseException, caught: Sequence[warnings.WarningMessage] = ()) -> str:
    """Return one line that says why a point failed, with the warnings that preceded the failure."""
    lines = str(error).strip().splitlines() or [""]
    parts = [f"{type(error).__name__}: {lines[0]}"]
    parts += [
        str(warning.message).strip().splitlines()[0] for warning in caught if str(warning.message).strip()
    ]
    return "; ".join(dict.fromkeys(parts))[:MAXIMUM_REASON]


def run_points(family: str, points: list, deadline: float, skip: Callable, report: Progress) -> list[dict]:
    """Measure the points of one family until ``deadline``; failures are skipped, not raised."""
    rows = []
    for index, point in enumerate(points):
        if time.perf_counter() > deadline:
            skip(f"last {len(points) - index} of {len(points)} points", "time budget used up")
            break
        if index and index % 25 == 0:
            report(f"{index} of {len(points)} points")
        failed = True
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                rows.append({"family": family, **point.parameters, **point.run()})
                failed = False
            except Exception as error:  # whatever one point raises, the run goes on and records it
                skip(point.parameters, reason_of(error, caught))
        if failed:
            free_memory()
    return rows


def free_memory() -> None:
    """Return unused memory to the device."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        with contextlib.suppress(RuntimeError):
            torch.cuda.empty_cache()


def collective_rows(device, quick: bool, seconds: float, skip: Callable) -> list[dict]:
    """Return the rows of family "collective", none on fewer than two GPUs."""
    import torch

    if device.type != "cuda" or torch.cuda.device_count() < 2:
        skip("all", "needs two GPUs")
        return []
    if __package__:
        from .collectives import measure_collectives
    else:
        from collectives import measure_collectives
    try:
        return measure_collectives(torch.cuda.device_count(), "nccl", quick, max(seconds, 5.0), skip)
    except Exception as error:  # a failing process group must not lose the other families' rows
        skip("all", reason_of(error))
        return []


def measure(
    device,
    quick: bool,
    progress: Progress,
    compile_blocks: bool = False,
    families: Sequence[str] | None = None,
) -> dict:
    """Measure every family on ``device``.

    Parameters
    ----------
    device : torch.device or str
        What to measure.
    quick : bool
        Measure fewer points.
    progress : callable
        Receives one line of text now and then.
    compile_blocks : bool
        Also measure blocks under ``torch.compile``.
    families : sequence of str, optional
        The families to measure; all of them by default.

    Returns
    -------
    dict
        The record described in the module's docstring.
    """
    began = time.perf_counter()
    device = find_device(str(device))
    import torch

    if __package__:
        from .environment import describe_environment, query_device
        from .timing import Timer
    else:
        from environment import describe_environment, query_device
        from timing import Timer

    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    environment = describe_environment(device)
    timer = Timer(device, quick)
    skipped: list[dict] = []
    elapsed: dict[str, float] = {}
    rows: list[dict] = []
    sources = point_sources(compile_blocks)
    deadline = time.perf_counter()
    for family, budget in BUDGETS.items():
        deadline += budget * (QUICK_SHARE if quick or not on_gpu else 1.0)
        if families is not None and family not in families:
            continue
        start = time.perf_counter()

        def skip(point: object, reason: str, family: str = family) -> None:
            skipped.append({"family": family, "point": point, "reason": reason})

        def report(text: str, family: str = family) -> None:
            progress(f"{time.perf_counter() - began:7.1f} s  {family}: {text}")

        report("starting")
        if family == "collective":
            measured = collective_rows(device, quick, deadline - start, skip)
        else:
            points = sources[family](timer, skip)
            points = points[:: QUICK_STRIDE.get(family, 1)] if quick and on_gpu else points
            measured = run_points(family, points, deadline, skip, report)
            del points
            free_memory()
        rows += measured
        elapsed[family] = time.perf_counter() - start
        left_out = sum(item["family"] == family for item in skipped)
        report(f"{len(measured)} rows in {elapsed[family]:.1f} s, {left_out} entries skipped")
    after = query_device(device)
    environment["after"] = {name: after[name] for name in environment.get("before", {}) if name in after}
    environment |= {
        "quick": quick,
        "seconds_by_family": elapsed,
        "total_seconds": time.perf_counter() - began,
        "skipped": skipped,
    }
    return {"schema": SCHEMA, "environment": environment, "rows": rows}


def write_atomically(record: dict, path: Path) -> None:
    """Write ``record`` as JSON to a temporary file beside ``path``, and rename it to ``path``."""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False
    ) as file:
        try:
            header = {name: value for name, value in record.items() if name != "rows"}
            file.write(json.dumps(header, indent=1)[:-2] + ',\n "rows": [\n')
            file.write(",\n".join("  " + json.dumps(row) for row in record["rows"]))
            file.write("\n ]\n}\n")
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            os.unlink(file.name)
            raise
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def run(arguments: argparse.Namespace) -> int:
    """Measure as the parsed arguments say, and write the file.

    Raises
    ------
    MeasurementError
        If the arguments cannot be followed.
    """
    families = arguments.families.split(",") if arguments.families else None
    for family in families or ():
        if family not in BUDGETS:
            raise MeasurementError(f"unknown family {family!r}: choose from {', '.join(BUDGETS)}")
    path = Path(arguments.out)
    if path.is_dir():
        raise MeasurementError(f"--out {arguments.out!r} is a directory")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise MeasurementError(f"--out {arguments.out!r}: its directory does not exist or cannot be written")
    device = find_device(arguments.device)

    def progress(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    record = measure(device, arguments.quick, progress, arguments.compile, families)
    write_atomically(record, path)
    progress(f"{len(record['rows'])} rows written to {path}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments, without the program's name.

    Returns
    -------
    int
        0 on success, 2 if the arguments cannot be followed.
    """
    parser = OneLineParser(prog="measure", description=(__doc__ or "").strip().splitlines()[0])
    add_arguments(parser)
    try:
        return run(parser.parse_args(argv))
    except MeasurementError as error:
        print(f"measure: {error}", file=sys.stderr, flush=True)
        return 2
    except SystemExit as leaving:  # --help
        return int(leaving.code or 0)


if __name__ == "__main__":
    sys.exit(main())
