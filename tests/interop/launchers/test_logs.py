"""Step times from the frameworks' own logs, and the loop back to a calibrated cluster."""

import json

import pytest

from costmodel import Plan, calibrate, estimate, load_cluster, load_model
from costmodel.interop.launchers import read_step_times
from costmodel.text.errors import CostModelError, UnreadableFile

PLAN = Plan(global_batch=64, seq_len=8192, data_parallel=8, zero_stage=3)
# the lines as the frameworks print them; the times in them are ours
MEGATRON = (
    " [2025-03-01 10:00:0{0}] iteration        {0}/     100 | consumed samples:           64 | "
    "elapsed time per iteration (ms): {1} | throughput per GPU (TFLOP/s/GPU): 400.1 | "
    "learning rate: 1.0E-05 | global batch size:    64 | lm loss: 1.2E+01 |"
)
TITAN = (
    "[rank0]:[titan] 2025-03-01 10:00:00 - root - INFO - \x1b[31mstep: {0:2}  \x1b[32mloss:  8.1  "
    "\x1b[38;2;180;60;0mmemory: 40.1GiB(50%)  \x1b[34mtps: {1:,}  \x1b[36mtflops: 300.1  \x1b[35mmfu: 30%\x1b[39m"
)
NANOTRON = (
    "03/01/2025 10:00:00 [INFO|DP=0]: iteration: {0} / 100 | consumed_tokens: 1.05M | "
    "time_per_iteration_ms: {1} | tokens_per_sec: 82.4K | tokens_per_sec_per_gpu: 10.3K | "
    "global_batch_size: 512 | lm_loss: 10.1 |"
)


def test_megatron_says_the_time_of_an_iteration():
    times = read_step_times(
        "\n".join(
            MEGATRON.format(step, time)
            for step, time in enumerate((9000.0, 3000.0, 2000.5, 2010.5, 1990.5), 1)
        )
    )
    assert times.framework == "megatron"
    assert times.steps == (1, 2, 3, 4, 5)
    assert times.typical() == pytest.approx(2.0005)


def test_torchtitan_says_a_rate_that_the_plan_turns_into_a_time():
    text = "\n".join(TITAN.format(step, 7890) for step in range(1, 6))
    times = read_step_times(text, PLAN)
    assert times.framework == "torchtitan"
    assert times.typical() == pytest.approx(64 * 8192 / (7890 * 8))
    with pytest.raises(CostModelError, match="plan"):
        read_step_times(text)


def test_nanotron_says_thousands_by_a_letter():
    times = read_step_times(
        "\n".join(NANOTRON.format(step, time) for step, time in ((1, "6.37K"), (2, "950"), (3, "1.02K")))
    )
    assert times.framework == "nanotron"
    assert times.seconds == pytest.approx((6.37, 0.95, 1.02))


def test_nanotrons_table_gives_the_time_by_its_rate():
    names = [
        "job_id",
        "name",
        "nodes",
        "seq_len",
        "mbs",
        "batch_accum",
        "gbs",
        "mTFLOPs",
        "tok/s/gpu",
        "dp",
        "pp",
        "tp",
        "cp",
    ]
    cells = ["N/A", "run", "8", "4096", "4", "2", "256", "301.20", "16384.00", "32", "1", "2", "1"]
    table = "\n".join(f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), cells))
    assert read_step_times(table).typical() == pytest.approx(256 * 4096 / (16384 * 64))


def test_the_trainers_state_gives_the_mean_step(tmp_path):
    state = {
        "global_step": 50,
        "log_history": [
            {"step": 10, "loss": 2.0},
            {"step": 50, "train_runtime": 125.0, "train_steps_per_second": 0.4},
        ],
    }
    file = tmp_path / "trainer_state.json"
    file.write_text(json.dumps(state))
    assert read_step_times(file).typical() == pytest.approx(2.5)
    assert read_step_times(
        "{'train_runtime': 125.0, 'train_steps_per_second': 0.4}\n\n"
    ).typical() == pytest.approx(2.5)


def test_other_logs_and_what_is_none(tmp_path):
    assert read_step_times(
        "Epoch 0: train_step_timing in s=3.420, loss\nEpoch 0: train_step_timing in s=3.400\n"
    ).typical() == pytest.approx(3.41)
    assert read_step_times(
        "RunningAvgSamplesPerSec=32.0, CurrSamplesPerSec=32.0\n\n", PLAN
    ).typical() == pytest.approx(2.0)
    assert read_step_times("throughput/batches_per_sec: 0.5\n\n").typical() == pytest.approx(2.0)
    for nothing in ("hello\nworld\n", MEGATRON.format(1, "0.0") + "\n", MEGATRON.format(1, "1e400") + "\n"):
        with pytest.raises(CostModelError, match="no step time"):
            read_step_times(nothing)
    with pytest.raises(UnreadableFile):
        read_step_times(tmp_path / "missing.log")


def test_the_loop_from_launch_to_calibrated_cluster_closes():
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    runs = []
    for batch in (1, 2):
        plan = Plan(global_batch=64, seq_len=4096, data_parallel=8, micro_batch=batch)
        slower = 1.1 * estimate(model, cluster, plan).step_time
        log = "\n".join(MEGATRON.format(step, 1000 * slower) for step in range(1, 7))
        runs.append((model, plan, read_step_times(log, plan).typical()))
    mine = calibrate(cluster, runs)
    assert estimate(model, mine, runs[0][1]).step_time == pytest.approx(runs[0][2], rel=0.02)
