"""The testbed of network namespaces: what it measured, how it predicts, and that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from costmodel.formulas.systems import byteps_shares
from experiments.__main__ import main
from experiments.testbed import command as testbed
from experiments.testbed import experiments as setting_rules
from experiments.testbed import frame_relay as relaying
from experiments.testbed import links as link_setup
from experiments.testbed.experiments import BAR, LONG, Setting, predict, settings
from experiments.testbed.links import Links, NetworkFailure, Switch

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "experiments" / "testbed" / "measured" / testbed.TABLE
WHY_NOT = link_setup.missing_here()
on_a_testbed = pytest.mark.skipif(WHY_NOT is not None, reason=f"the testbed: {WHY_NOT}")
FREE = 1e30


# What was measured


def measured_rows():
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_measured_exchange_over_a_fifth_of_a_second_is_predicted_within_a_tenth():
    errors = {}
    for setting, row in zip(settings(), measured_rows(), strict=True):
        measured = float(row["measured_median_s"])
        if measured > LONG:
            predicted = predict(setting, float(row["probed_latency_s"]), float(row["probed_add_rate_bytes_per_s"]))
            errors[setting.name, setting.algorithm, setting.links] = predicted / measured - 1.0
    assert len(errors) >= 12
    assert {key: error for key, error in errors.items() if abs(error) > BAR} == {}


def test_the_table_holds_the_settings_that_the_command_measures():
    for setting, row in zip(settings(), measured_rows(), strict=True):
        assert (setting.name, setting.algorithm) == (row["setting"], row["algorithm"])
        assert setting.links.rates == tuple(map(float, row["rates_bit_per_s"].split()))
        assert (setting.links.latency, setting.links.mtu) == (float(row["latency_s"]), int(row["mtu_bytes"]))
        assert (setting.nbytes, setting.workers) == (int(row["payload_bytes"]), int(row["workers"]))


def test_no_frame_was_dropped_while_the_table_was_measured():
    environment = json.loads(TABLE.with_name(testbed.ENVIRONMENT).read_text(encoding="utf-8"))
    assert environment["frames_dropped"] == 0


def test_the_settings_range_over_four_to_eight_processes_and_20_to_200_megabits():
    everything = settings()
    assert {setting.machines for setting in everything} == {4, 5, 6, 8}
    rates = [rate for setting in everything for rate in setting.links.rates]
    assert (min(rates), max(rates)) == (20e6, 200e6)
    assert max(setting.links.latency for setting in everything) == 10e-3
    assert {setting.algorithm for setting in everything} == {"ring", "halving_doubling", "gloo", "parameter_server", "byteps"}


# How it is predicted


def test_framing_leaves_what_headers_and_acknowledgements_do():
    segment = 1500 - 20 - 20 - 12  # IPv4, TCP, timestamps
    assert setting_rules.framing_efficiency(1500, both_ways=False) == segment / 1514
    assert setting_rules.framing_efficiency(1500) == pytest.approx(2 * segment / (2 * 1514 + 66))


def test_a_ring_over_shaped_links_moves_its_buffer_at_the_rate_that_frames_leave():
    links = Links((100e6,) * 4, 3e-3)
    payload_rate = 12.5e6 * setting_rules.framing_efficiency(1500)
    setting = Setting(name="", algorithm="ring", links=links, nbytes=3_000_000)
    assert predict(setting, 3e-3, FREE) == pytest.approx(6 * 3e-3 + 2 * 3 / 4 * 3e6 / payload_rate)


def test_one_slow_peer_makes_a_ring_as_slow_as_if_all_were():
    slow, one = Links((20e6,) * 4), Links((50e6, 50e6, 20e6, 50e6))
    times = [predict(Setting(name="", algorithm="ring", links=links, nbytes=10**6), 0.0, FREE) for links in (slow, one)]
    assert times[0] == times[1]


@pytest.mark.parametrize(("gpu_machines", "cpu_machines"), [(2, 1), (4, 2), (6, 2), (4, 4)])
def test_byteps_shares_sum_to_all_and_give_its_optimum(gpu_machines, cpu_machines):
    machines = gpu_machines + cpu_machines
    shares = setting_rules.byteps_shares(gpu_machines, cpu_machines)
    assert sum(shares) == pytest.approx(1.0)
    setting = Setting(
        name="", algorithm="byteps", links=Links((80e6,) * machines), nbytes=10**6, workers=gpu_machines, shares=shares
    )
    rate = 10e6 * setting_rules.framing_efficiency(1500)
    assert predict(setting, 0.0, FREE) == pytest.approx(byteps_shares.optimal_time(1e6, gpu_machines, cpu_machines, rate))


def test_balanced_shares_sum_to_all_and_keep_unlike_links_busy_alike():
    rates = (60e6, 60e6, 60e6, 40e6)
    shares = setting_rules.balanced_shares(rates)
    times = [byteps_shares.gpu_machine_time(1e6, 4, share, rate) for share, rate in zip(shares, rates, strict=True)]
    assert sum(shares) == pytest.approx(1.0)
    assert times == pytest.approx([times[0]] * 4)


# How it exchanges


class LoopbackSwitch:
    """Addresses of this machine in the place of namespaces."""

    def __init__(self, machines):
        self.machines = machines

    def address(self, machine):
        return f"127.0.0.{machine + 1}"

    def name(self, machine):
        return ""


@pytest.fixture
def workers_here(monkeypatch):
    """Worker processes on this machine's own network, without root."""
    start = subprocess.Popen
    monkeypatch.setattr(testbed.subprocess, "Popen", lambda words, **options: start(words[4:], **options))
    return lambda machines: testbed.Workers(LoopbackSwitch(machines), sys.executable)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as door:
        return door.getsockname()[1]


@pytest.mark.parametrize("machines", [2, 3, 5])
def test_processes_sum_their_buffers_by_every_algorithm(workers_here, machines):
    with workers_here(machines) as workers:
        workers.ask_all(machines, do="join", machines=machines, port=free_port(), store=None)
        every = [1 / machines] * machines
        apart = [0.0] * (machines - 1) + [1.0]
        unlike = [(machine + 1) * 2 / machines / (machines + 1) for machine in range(machines)]
        for algorithm, nbytes, count, shares in (
            ("ring", 40_004, machines, []),
            ("halving_doubling", 40_004, machines, []),
            ("servers", 200_000, machines, every),
            ("servers", 200_000, machines, unlike),
            ("servers", 200_000, machines - 1, apart),
            ("servers", 200_000, machines - 1, unlike),
        ):
            # each process compares its sum with what it has to be
            workers.ask_all(
                machines, do="exchange", algorithm=algorithm, nbytes=nbytes, start=time.monotonic(), workers=count,
                shares=shares, partition=4096,
            )  # fmt: skip


def test_a_process_that_fails_is_heard(workers_here):
    request = {"do": "exchange", "algorithm": "unheard-of", "nbytes": 4, "start": 0.0, "workers": 1, "shares": [], "partition": 4}
    with workers_here(1) as workers:
        workers.ask_all(1, do="join", machines=1, port=free_port(), store=None)
        with pytest.raises(NetworkFailure, match=r"machine 0: KeyError: 'unheard-of'"):
            workers.ask([request])


def test_a_process_that_ends_is_missed(workers_here):
    with workers_here(1) as workers:
        workers.ask_all(1, do="environment")
        workers.processes[0].kill()
        with pytest.raises(NetworkFailure, match="ended by itself"):
            workers.ask_all(1, do="environment")
    assert workers.processes[0].poll() is not None


def test_a_relay_holds_frames_back_and_finds_the_port_behind_which_an_address_is():
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(3)]
    reading, writing = os.pipe()
    for outer, inner in pairs:
        outer.settimeout(10.0)
        inner.setblocking(False)
    relay = threading.Thread(target=relaying.relay, args=(0.05, [inner for _, inner in pairs], reading))
    relay.start()
    try:
        header = bytes(relaying.HEADER)
        to_two, to_all = header + b"\x02\0\0\0\0\x02" + b"one", header + b"\xff" * 6 + b"all"
        begun = time.monotonic()
        pairs[0][0].send(to_two)
        assert pairs[2][0].recv(100) == to_two
        assert time.monotonic() - begun >= 0.05
        pairs[0][0].send(to_all)
        assert [pairs[port][0].recv(100) for port in (1, 2)] == [to_all] * 2
    finally:
        os.close(writing)
        relay.join(10.0)
        os.close(reading)
        for pair in pairs:
            for end in pair:
                end.close()
    assert not relay.is_alive()


# How it is set up and taken away


@pytest.fixture
def commands(monkeypatch):
    """What would have been run, in place of running it."""
    run = []
    monkeypatch.setattr(link_setup, "command", lambda *words: run.append(" ".join(words)))
    return run


def test_links_are_a_token_bucket_both_ways_behind_a_delay_on_the_way_to_a_machine(commands):
    switch = Switch(2, "netem")
    assert switch.shape(Links((20e6, 200e6), 5e-3)) == "tbf+netem"
    queues = [line for line in commands if "qdisc add" in line]
    hub, first = link_setup.HUB, switch.name(0)
    assert queues[:3] == [
        f"tc -n {first} qdisc add dev eth0 root tbf rate 20000000bit burst 2139 limit {link_setup.QUEUE}",
        f"tc -n {hub} qdisc add dev port0 root handle 1: netem delay 5000us limit {link_setup.NETEM_PACKETS}",
        f"tc -n {hub} qdisc add dev port0 parent 1:1 tbf rate 20000000bit burst 2139 limit {link_setup.QUEUE}",
    ]
    assert len(queues) == 6


def test_without_latency_a_link_is_a_token_bucket_alone(commands):
    assert Switch(2, "relay").shape(Links((20e6, 20e6))) == "tbf"
    assert not any("netem delay" in line for line in commands)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda patch: patch.setattr(link_setup.os, "geteuid", lambda: 1000), "takes root"),
        (lambda patch: patch.setattr(link_setup.shutil, "which", lambda program: None), "'ip' is not installed"),
        (lambda patch: patch.setattr(link_setup.sys, "platform", "plan9"), "Linux"),
    ],
)
def test_where_no_testbed_can_be_made_the_command_says_why_in_one_line(change, why, monkeypatch, capsys):
    monkeypatch.setattr(link_setup.os, "geteuid", lambda: 0)
    monkeypatch.setattr(link_setup.shutil, "which", lambda program: program)
    monkeypatch.setattr(link_setup.sys, "platform", "linux")
    change(monkeypatch)
    assert main(["network"]) == 2
    told = capsys.readouterr().err
    assert why in told
    assert told.count("\n") == 1


SMALL = """
import json, sys
from pathlib import Path
from experiments.testbed.command import measure_all
from experiments.testbed.experiments import Setting
from experiments.testbed.links import Links
near, far = Links((50e6,) * 3), Links((50e6,) * 3, 4e-3)
chosen = [
    Setting(name="ring", algorithm="ring", links=near, nbytes=1_000_000),
    Setting(name="server", algorithm="parameter_server", links=near, nbytes=600_000, workers=2, shares=(0, 0, 1.0)),
    Setting(name="ring", algorithm="ring", links=far, nbytes=1_000_000),
]
path = Path(sys.argv[1])
path.write_text(json.dumps(measure_all(chosen, sys.executable, None, 2, path.parent)))
"""


@on_a_testbed
def test_a_small_testbed_measures_what_the_formulas_say(tmp_path):
    link_setup.command(*link_setup.alone(sys.executable, "-c", SMALL, str(tmp_path / "rows.json")))
    rows, environment = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))
    assert environment["frames_dropped"] == 0
    assert float(rows[2]["probed_latency_s"]) >= 4e-3
    # links can't be faster than they are, short of what buckets let through; how much slower a busy machine makes
    # them is its affair
    for row in rows:
        assert float(row["measured_median_s"]) >= 0.95 * float(row["predicted_s"])
    assert testbed.write_table(rows, environment, tmp_path).read_text(encoding="utf-8").count("\n") == 4
    assert not list(Path("/run/netns").glob(f"{Switch.name(0)}*"))


def running(word):
    """Processes of this machine with a word on their command line."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes():
                found.add(path.parent.name)
    return found


@pytest.mark.slow
@on_a_testbed
@pytest.mark.parametrize("measuring", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_testbed_leaves_nothing_behind(number, measuring, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments", "network", "--quick", "--repeats", "1000"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell turns it off in the background
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60.0
        while not running(str(tmp_path)) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if measuring:
            while process.stdout.readline().startswith("without"):  # Gloo, and then comes the heading
                pass
            time.sleep(0.5)
            assert running("testbed/workers.py")
        process.send_signal(number)
        _, told = process.communicate(timeout=60.0)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == (2 if number == signal.SIGINT else 128 + number)
    assert told.count("\n") == (1 if number == signal.SIGINT else 0), told
    assert not running(str(tmp_path)) and not list(tmp_path.iterdir())
    assert not running("testbed/workers.py")
