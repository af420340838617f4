"""Measure exchanges of gradients between real processes on a network of chosen bandwidth and latency.

``python -m experiments network`` makes network namespaces joined by shaped links (`experiments.testbed.links`), runs
a process in each (`experiments.testbed.workers`), and compares what it measures with what the library's formulas say
(`experiments.testbed.experiments`). It takes Linux, root and iproute2.

A row of the table is a setting: what is exchanged by which algorithm, over links of which rates [bit/s], latency [s] and
MTU, shaped by what; the latency of a message and the rate of adding that were probed on the same links just before;
median and spread (most less least) of the exchange, from the moment at which all begin until the last worker has its sum;
what the formulas say, and by how much that is off; and how late a process began at worst, for which a busy machine is to
blame. Exchanges over 0.2 s are judged.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import itertools
import json
import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from costmodel.arithmetic.named_tuples import Row
from costmodel.text.errors import InvalidValue
from experiments.testbed.experiments import BAR, LONG, Setting, predict, settings
from experiments.testbed.links import KERNEL, RELAY, NetworkFailure, Switch, alone, command, missing_here

ANSWER_TIMEOUT = 60.0
HEAD_START = 0.02
"""Seconds between the request of an exchange and its beginning, for all to hear of it."""
FIRST_PORT = 20000
MOST_REPEATS = 1000
ENDING = (signal.SIGINT, signal.SIGTERM)
TABLE = "network-testbed.csv"
ENVIRONMENT = "network-testbed.json"


class Workers:
    """A process in each namespace of a switch; a context manager that kills them.

    Parameters
    ----------
    switch : whose machines they run on
    python : interpreter; it needs NumPy, and PyTorch for Gloo
    """

    def __init__(self, switch: Switch, python: str):
        self.switch, self.python = switch, python
        self.processes: list[subprocess.Popen[bytes]] = []
        self.unread: dict[int, bytes] = {}

    def __enter__(self) -> Workers:
        script = Path(__file__).with_name("workers.py")
        addresses = [self.switch.address(machine) for machine in range(self.switch.machines)]
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        for machine in range(self.switch.machines):
            inside = ("ip", "netns", "exec", self.switch.name(machine))
            self.processes.append(subprocess.Popen(
                [*inside, self.python, "-P", str(script), str(machine), *addresses],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **single, "GLOO_SOCKET_IFNAME": "eth0"},
            ))  # fmt: skip
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self.processes:
            process.kill()
            with contextlib.suppress(BrokenPipeError), process:  # closes what leads to it, where a request may be unread
                pass

    def ask(self, requests: Sequence[Row]) -> list[Row]:
        """Send a request to each of the first machines, and return their answers."""
        for process, request in zip(self.processes, requests, strict=False):
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
            except BrokenPipeError as error:
                raise NetworkFailure("a process of the testbed ended by itself") from error
        deadline = time.monotonic() + ANSWER_TIMEOUT
        answers = [json.loads(self._line(machine, deadline)) for machine in range(len(requests))]
        for answer in answers:
            if "error" in answer:
                raise NetworkFailure(answer["error"])
        return answers

    def ask_all(self, machines: int, /, **request: object) -> list[Row]:
        """Send the same request to the first machines."""
        return self.ask([request] * machines)

    def _line(self, machine: int, deadline: float) -> bytes:
        output = self.processes[machine].stdout
        assert output is not None
        text = self.unread.pop(machine, b"")
        while b"\n" not in text:
            if not select.select([output], (), (), max(deadline - time.monotonic(), 0.0))[0]:
                raise NetworkFailure(f"machine {machine} did not answer within {ANSWER_TIMEOUT:.0f} s")
            more = os.read(output.fileno(), 65536)
            if not more:
                raise NetworkFailure(f"the process of machine {machine} ended by itself")
            text += more
        line, _, rest = text.partition(b"\n")
        self.unread[machine] = rest
        return line


def probe_latency(workers: Workers, machines: int, repeats: int) -> float:
    """Time of a message of one number [s]: half the median round trip over pairs of machines."""
    times: list[float] = []
    for first in range(0, machines - 1, 2):
        requests: list[dict[str, object]] = [{"do": "environment"}] * machines
        requests[first] = {"do": "ping", "partner": first + 1, "first": True, "repeats": repeats}
        requests[first + 1] = {"do": "ping", "partner": first, "first": False, "repeats": repeats}
        times += workers.ask(requests)[first]["seconds"][1:]
    return statistics.median(times) / 2.0


def probe_adding(workers: Workers, machines: int) -> float:
    """Rate of adding buffers while all machines do [bytes/s]."""
    nbytes = 262_144
    answers = workers.ask_all(machines, do="add", nbytes=nbytes, start=time.monotonic() + HEAD_START, repeats=21)
    return nbytes / statistics.median(second for answer in answers for second in answer["seconds"])


def measure(workers: Workers, setting: Setting, repeats: int) -> tuple[list[float], float]:
    """Times of an exchange after one that isn't counted [s], and the latest that a process began one [s]."""
    times, late = [], 0.0
    for repeat in range(repeats + 1):
        start = time.monotonic() + HEAD_START
        answers = workers.ask_all(
            setting.machines, do="exchange", algorithm=setting.exchange, nbytes=setting.nbytes, start=start,
            workers=setting.workers, shares=setting.shares, partition=setting.partition,
        )  # fmt: skip
        if repeat:
            times.append(max(answer["ended"] for answer in answers[: setting.workers]) - start)
            late = max(late, *(answer["late"] for answer in answers))
    return times, late


def row_of(setting: Setting, shaper: str, latency: float, add_rate: float, times: Sequence[float], late: float) -> Row:
    """One row of the table."""
    median = statistics.median(times)
    predicted = predict(setting, latency, add_rate)
    error = predicted / median - 1.0
    return {
        "setting": setting.name,
        "algorithm": setting.algorithm,
        "processes": setting.machines,
        "workers": setting.workers,
        "rates_bit_per_s": " ".join(f"{rate:.0f}" for rate in setting.links.rates),
        "latency_s": setting.links.latency,
        "mtu_bytes": setting.links.mtu,
        "payload_bytes": setting.nbytes,
        "shaper": shaper,
        "probed_latency_s": f"{latency:.6f}",
        "probed_add_rate_bytes_per_s": f"{add_rate:.3e}",
        "repeats": len(times),
        "measured_median_s": f"{median:.5f}",
        "spread_s": f"{max(times) - min(times):.5f}",
        "predicted_s": f"{predicted:.5f}",
        "error": f"{error:.4f}",
        "latest_begin_s": f"{late:.5f}",
        "judged": "yes" if median > LONG else "no",
        "within_bar": "yes" if abs(error) <= BAR else "no",
    }


def print_row(row: Row) -> None:
    """Print one row as it comes."""
    rates = sorted({float(rate) / 1e6 for rate in row["rates_bit_per_s"].split()})
    verdict = ("ok" if row["within_bar"] == "yes" else "OFF") if row["judged"] == "yes" else "short"
    print(
        f"{row['setting']:34} {row['algorithm']:16} {row['processes']:>2} {'/'.join(f'{rate:g}' for rate in rates):>7} "
        f"{row['latency_s'] * 1e3:>5g} {row['payload_bytes'] / 1e6:>7.3f} {float(row['measured_median_s']):>8.4f} "
        f"{float(row['spread_s']):>7.4f} {float(row['predicted_s']):>8.4f} "
        f"{float(row['error']):>+7.1%} {verdict}",
        flush=True,
    )


HEADING = (
    f"{'setting':34} {'algorithm':16} {'p':>2} {'Mbit/s':>7} {'ms':>5} {'MB':>7} {'median s':>8} {'spread':>7} "
    f"{'predict':>8} {'error':>7}"
)


def measure_all(
    chosen: Sequence[Setting], python: str, delay: str | None, repeats: int, folder: Path
) -> tuple[list[dict[str, object]], dict[str, object]]:
    """Set the testbed up, measure and predict; rows of the table, and what they were measured on."""
    rows = []
    before = os.getloadavg()[0]
    machines = max(setting.machines for setting in chosen)
    switch = Switch(machines, delay)
    switch.make()
    with Workers(switch, python) as workers:
        found = workers.ask_all(1, do="environment")[0]
        gloo = any(setting.algorithm == "gloo" for setting in chosen)
        torch = workers.ask_all(machines, do="load")[0]["torch"] if gloo else None
        if gloo and torch is None:
            print(f"without Gloo: {python} has no PyTorch with it")
            chosen = [setting for setting in chosen if setting.algorithm != "gloo"]
        print(HEADING, flush=True)
        dropped = 0
        for number, (links, group) in enumerate(itertools.groupby(chosen, key=lambda setting: setting.links)):
            of_links = list(group)
            count = len(links.rates)
            shaper = switch.shape(links)
            store = f"{folder}/{number}" if any(setting.algorithm == "gloo" for setting in of_links) else None
            workers.ask_all(count, do="join", machines=count, port=FIRST_PORT + number, store=store)
            latency, add_rate = probe_latency(workers, count, 12), probe_adding(workers, count)
            for setting in of_links:
                times, late = measure(workers, setting, repeats)
                rows.append(row_of(setting, shaper, latency, add_rate, times, late))
                print_row(rows[-1])
            workers.ask_all(count, do="leave")
            dropped += switch.dropped()
    environment = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average_before_and_after": [before, os.getloadavg()[0]],
        "delay": switch.delay,
        "frames_dropped": dropped,
        **found,
        "torch": torch,
    }
    return rows, environment


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.machine())


def write_table(rows: Sequence[dict[str, object]], environment: dict[str, object], folder: Path) -> Path:
    """Write the table and what it was measured on into a folder."""
    path = folder / TABLE
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (folder / ENVIRONMENT).write_text(json.dumps(environment, indent=1) + "\n", encoding="utf-8")
    return path


def summary(rows: Sequence[Row]) -> str:
    """How many predictions hold, in one line."""
    judged = [row for row in rows if row["judged"] == "yes"]
    good = [row for row in judged if row["within_bar"] == "yes"]
    worst = max((abs(float(row["error"])) for row in judged), default=0.0)
    return (
        f"{len(good)} of {len(judged)} exchanges over {LONG:g} s predicted within {BAR:.0%} (worst {worst:.1%}); "
        f"{len(rows) - len(judged)} shorter ones not judged"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments to ``parser``."""
    parser.description = (
        "Measure all-reduces, parameter servers and BytePS between processes in network namespaces, and compare with the "
        "formulas. The exit code is 0 whether or not predictions hold: the last line says how many do. Linux, root and "
        "iproute2 are needed; without them the exit code is 2."
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"folder to write {TABLE} and {ENVIRONMENT} into")
    parser.add_argument("--quick", action="store_true", help="five short settings, in under 40 s")
    parser.add_argument("--repeats", type=int, default=None, help="counted exchanges of each setting (7; quick: 3)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the processes, with NumPy, and PyTorch for Gloo")
    parser.add_argument("--delay", choices=(KERNEL, RELAY), help="what makes latency: the kernel, or a switch in user space")
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and write: in a process of its own that is alone, so that nothing is left of an interrupted one."""
    repeats = arguments.repeats if arguments.repeats is not None else 3 if arguments.quick else 7
    if arguments.alone is not None:
        measured = measure_all(settings(arguments.quick), arguments.python, arguments.delay, repeats, arguments.alone.parent)
        arguments.alone.write_text(json.dumps(measured), encoding="utf-8")
        return 0
    missing = missing_here()
    if missing is not None:
        raise NetworkFailure(f"no testbed here: {missing}")
    if not 1 <= repeats <= MOST_REPEATS:
        raise InvalidValue("--repeats", repeats, f"1 to {MOST_REPEATS}")
    command(arguments.python, "-c", "import numpy")
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
    options = [*(["--quick"] if arguments.quick else []), *(["--delay", arguments.delay] if arguments.delay else [])]
    with tempfile.TemporaryDirectory(prefix="costmodel-network-") as folder:
        found = Path(folder) / "rows.json"
        again = [sys.executable, "-m", "experiments", "network", "--alone", str(found), "--repeats", str(repeats),
                 "--python", arguments.python, *options]  # fmt: skip
        failed = to_its_end(alone(*again))
        if failed:
            return failed
        rows, environment = json.loads(found.read_text(encoding="utf-8"))
    if arguments.out is not None:
        print(f"written: {write_table(rows, environment, arguments.out)}")
    print(summary(rows))
    return 0


def to_its_end(words: Sequence[str]) -> int:
    """Run a command and return its exit code; kill it where this process is interrupted or asked to end."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # heard once the process is known
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        return process.wait()
    except KeyboardInterrupt:
        raise NetworkFailure("interrupted; namespaces and processes are gone") from None
    finally:
        if process.poll() is None:  # all of its group: what it has just begun doesn't end with it yet
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        signal.signal(signal.SIGTERM, before)
