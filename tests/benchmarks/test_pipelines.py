"""How fast pipelines are played: `pytest tests/benchmarks --benchmark-only`. Nothing here fails for being slow."""

import numpy as np
import pytest

from costmodel import Plan, load_cluster, load_model
from costmodel.description.schedule import pipeline_schedule
from costmodel.simulation.playback import SENDS, simulate_schedule, timeline, zero_bubble_schedule

pytest.importorskip("pytest_benchmark")


def record(benchmark, events):
    benchmark.extra_info["events"] = events
    if benchmark.stats:
        benchmark.extra_info["events_per_second"] = round(events / benchmark.stats["median"])


@pytest.mark.parametrize("sends", SENDS)
def test_play(benchmark, sends):
    """One core; 1F1B of 16 ranks, with what comes before and after the kernel."""
    schedule = pipeline_schedule("1f1b", stages=16, micro_batches=4096)
    schedule.match  # noqa: B018  made once for a schedule
    arguments = {"transfer_latency": 1e-5, "transfer_bytes": 1e7, "transfer_bandwidth": 1e10, "sends": sends}
    benchmark(simulate_schedule, schedule, 1e-3, 1e-3, 1e-3, **arguments)
    record(benchmark, len(schedule.kind))


def test_play_on_one_shared_link(benchmark):
    schedule = pipeline_schedule("interleaved", stages=64, micro_batches=256, chunks=4)
    links = np.zeros((64, 64), dtype=np.int64)
    arguments = {"transfer_bytes": 1e5, "transfer_bandwidth": 1e10, "links": links}
    benchmark(simulate_schedule, schedule, 1e-3, 1e-3, 1e-3, **arguments)
    record(benchmark, len(schedule.kind))


@pytest.mark.parametrize("name", ["1f1b", "zb-h2", "dualpipe"])
def test_build(benchmark, name):
    benchmark(pipeline_schedule, name, stages=16, micro_batches=1024)
    record(benchmark, len(pipeline_schedule(name, stages=16, micro_batches=1024).kind))


def test_search_of_an_order(benchmark):
    asked = {"stages": 32, "micro_batches": 256, "forward": 1.04e-2, "backward_input": 1.02e-2, "backward_weight": 7.7e-3}
    benchmark(zero_bubble_schedule, **asked, memory_limit=64.0)
    record(benchmark, 32 * 256 * 3)


def test_a_step_of_a_plan(benchmark):
    model, cluster = load_model("gpt3-175b"), load_cluster("dgx-h100", gpus=3072)
    plan = Plan(global_batch=1536, seq_len=2048, tensor_parallel=8, pipeline_parallel=16, data_parallel=24)
    benchmark(timeline, model, cluster, plan)
    record(benchmark, len(timeline(model, cluster, plan).start))
