"""How fast whole steps are played: `pytest tests/benchmarks --benchmark-only`. Nothing here fails for being slow."""

import pytest

from costmodel import Plan, load_cluster, load_model
from costmodel.simulation.replay import simulate

pytest.importorskip("pytest_benchmark")

BLOOM = (
    load_model("bloom-560m"), load_cluster("dgx-a100", gpus=3072),
    Plan(global_batch=3072, seq_len=2048, data_parallel=3072, zero_stage=2), "deepspeed",
)  # fmt: skip
GPT3 = (
    load_model("gpt3-175b"), load_cluster("selene", gpus=3072),
    Plan(global_batch=1536, seq_len=2048, tensor_parallel=8, pipeline_parallel=16, data_parallel=24), "megatron-core",
)  # fmt: skip


@pytest.mark.parametrize("jitter", [0.0, 0.02], ids=["one replica for all", "every replica"])
@pytest.mark.parametrize("question", [BLOOM, GPT3], ids=["bloom-560m, ZeRO-2", "gpt3-175b, TP8 x PP16"])
def test_a_step_of_3072_gpus(benchmark, question, jitter):
    """One core, from the question to the events; the kernel is compiled."""
    step = simulate(*question, jitter=jitter)
    benchmark(simulate, *question, jitter=jitter)
    benchmark.extra_info["events"] = step.events
    if benchmark.stats:
        benchmark.extra_info["events_per_second"] = round(step.events / benchmark.stats["median"])
        benchmark.extra_info["times_real_time"] = round(step.total / benchmark.stats["median"], 1)


@pytest.mark.parametrize("jitter", [0.0, 0.02], ids=["one replica for all", "every replica"])
def test_utilisation_over_time(benchmark, jitter):
    def used():
        step = simulate(*GPT3, jitter=jitter)
        return step.utilisation(), step.loads, step.idle

    benchmark(used)
