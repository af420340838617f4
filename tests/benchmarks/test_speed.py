"""How fast it is: `pytest tests/benchmarks --benchmark-only`. Nothing here fails for being slow."""

import resource
import time

import numpy as np
import pytest

from costmodel import Plan, load_cluster, load_framework, load_model, sweep
from costmodel.description.question import Question
from costmodel.evaluation import engine
from costmodel.evaluation.estimation import estimate
from costmodel.evaluation.plan_search import search
from costmodel.formulas.quantities import PlanNumbers
from costmodel.text.errors import IllegalPlan

pytest.importorskip("pytest_benchmark")

FRAMEWORK = load_framework("megatron-core")
ROWS = {"python": 256, "numpy": 16 * engine.CHUNK, "numba": 64 * engine.CHUNK}


def question(rows):
    """What `engine.evaluate` takes for so many legal plans of a 70B model, in an order without pattern."""
    model, cluster = load_model("llama3-70b"), load_cluster("dgx-h100", gpus=64)
    kept = []
    for tensor in (1, 2, 4, 8):
        for stages in (1, 2, 4, 8):
            for micro_batch in (1, 2, 4):
                for recompute in ("none", "full"):
                    plan = Plan(
                        global_batch=1024, seq_len=8192, tensor_parallel=tensor, pipeline_parallel=stages,
                        data_parallel=64 // (tensor * stages), micro_batch=micro_batch, recompute=recompute,
                    )  # fmt: skip
                    try:
                        plan.check(model, cluster, FRAMEWORK)
                    except IllegalPlan:
                        continue
                    kept.append(plan.numbers(FRAMEWORK, model.layers))
    table = np.array(kept)[np.random.default_rng(0).integers(0, len(kept), rows)].T
    inputs = Question(model, cluster, FRAMEWORK).inputs(Plan(global_batch=1024, seq_len=8192))
    return inputs, np.ascontiguousarray(table)


def record(benchmark, rows, what="evaluations"):
    """Rates beside the times; without the plugin's statistics (one run, or disabled) there are none."""
    if benchmark.stats:
        benchmark.extra_info[f"{what}_per_second"] = round(rows / benchmark.stats["median"])
        benchmark.extra_info[f"ns_per_{what.rstrip('s')}"] = round(1e9 * benchmark.stats["median"] / rows, 2)


@pytest.mark.parametrize("name", ["python", "numpy", "numba"])
def test_engine(benchmark, name):
    """Warm, by way of `engine.evaluate`: Numba on as many threads as there are cores."""
    asked = question(ROWS[name])
    engine.evaluate(*asked, name)
    benchmark(engine.evaluate, *asked, name)
    record(benchmark, ROWS[name])


@pytest.mark.parametrize("compression", ["none", "power-sgd"])
def test_every_part_on_one_core(benchmark, compression):
    """The vector code alone, in blocks that fit in a cache."""
    from costmodel.compilation import programs as rows

    inputs, table = question(64 * engine.CHUNK)
    inputs = inputs._replace(settings=Plan(global_batch=1024, seq_len=8192, compression=compression).settings(FRAMEWORK))
    program = rows.every_part(compression != "none")
    scalars = rows.scalars_of(program, inputs)
    part = program.parts["rows"]
    plans = inputs._replace(plan=PlanNumbers(*table[:, : engine.CHUNK]))

    def kernel():
        for _ in range(64):
            rows.tabled(part, scalars, rows.packed(part, plans, engine.CHUNK))

    kernel()
    benchmark(kernel)
    record(benchmark, table.shape[1])


WIDE = {
    "schedule": ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe"], "recompute": ["none", "selective", "full", 2, 4],
    "shard_group": [8, 64, 512],
}  # fmt: skip


FULL = {"space": "full", "most_combinations": 50_000_000}
SPACES = {"default": ({}, 20), "wide": (WIDE, 20), "full": (FULL, 3)}


@pytest.mark.parametrize("space", SPACES)
def test_best_plan(benchmark, space):
    """Warm: the best plan of llama3.1-405b on 16,384 H100s, of the default space, of a wide one and of all there is."""
    model, cluster = load_model("llama3.1-405b"), load_cluster("dgx-h100", gpus=16384)
    chosen, rounds = SPACES[space]
    asked = {"global_batch": 2048, "seq_len": 8192, "top": 1, "engine": "numba", **chosen}
    found = search(model, cluster, **asked)
    benchmark.pedantic(lambda: search(model, cluster, **asked), rounds=rounds, iterations=1)
    spent = time.process_time()
    search(model, cluster, **asked)
    spent = time.process_time() - spent
    benchmark.extra_info |= {
        "considered": found.considered, "legal": found.evaluated, "fitting": found.fitting,
        "core_seconds": round(spent, 4), "plans_per_core_second": round(found.evaluated / spent),
    }  # fmt: skip
    record(benchmark, found.evaluated, "plans")


def test_sweep_of_a_hundred_million_plans(benchmark, tmp_path):
    """Three batches of llama3.1-405b on 16,384 H100s, with all there is: plans, seconds and memory at its peak."""
    pytest.importorskip("pyarrow")
    asked = {"gpus": 16384, "global_batches": [1024, 2048, 4096], "seq_lens": 8192, "engine": "numba", **FULL}
    plans, file = [], tmp_path / "plans.parquet"

    def swept():
        sweep("llama3.1-405b", "dgx-h100", file, progress=lambda done, of, seen: plans.append(seen), **asked)

    benchmark.pedantic(swept, rounds=1, iterations=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    benchmark.extra_info |= {"plans": plans[-1], "peak_memory_mib": round(peak / 2**20)}


def test_one_estimate(benchmark):
    model, cluster = load_model("llama3-70b"), load_cluster("dgx-h100", gpus=64)
    plan = Plan(global_batch=1024, seq_len=8192, tensor_parallel=8, pipeline_parallel=4, data_parallel=2)
    benchmark(estimate, model, cluster, plan, FRAMEWORK)
    record(benchmark, 1)


@pytest.mark.parametrize(
    ("name", "gpus", "batch", "seq_len"), [("llama3-70b", 64, 1024, 8192), ("llama3.1-405b", 16384, 2048, 8192)]
)
@pytest.mark.parametrize("with_engine", ["numpy", "numba"])
def test_search(benchmark, name, gpus, batch, seq_len, with_engine):
    """Warm: catalogue read, kernel loaded."""
    model, cluster = load_model(name), load_cluster("dgx-h100", gpus=gpus)

    def once():
        return search(model, cluster, global_batch=batch, seq_len=seq_len, engine=with_engine)

    found = once()
    benchmark.pedantic(once, rounds=5, iterations=1)
    benchmark.extra_info |= {"considered": found.considered, "evaluated": found.evaluated, "fitting": found.fitting}
    record(benchmark, found.considered, "combinations")


def test_ledger_of_a_zero_2_step(benchmark):
    """Every transaction of a step on 3,072 GPUs, and the load of every class of links."""
    from costmodel.simulation.transactions import ledger

    plan = Plan(global_batch=3072, seq_len=2048, data_parallel=3072, zero_stage=2)
    question = load_model("bloom-560m"), load_cluster("dgx-h100", gpus=3072), plan, "deepspeed"
    benchmark(lambda: ledger(*question).loads())
    record(benchmark, 1, "ledgers")


@pytest.mark.parametrize(("name", "destinations"), [("llama3-70b", False), ("bloom-560m", True), ("deepseek-v2-lite", False)])
def test_ledger_of_larger_zero_2_steps(benchmark, name, destinations):
    """The same for more tensors, and with one reduction for each destination rank."""
    from costmodel.description.buckets import DeepSpeed
    from costmodel.simulation.transactions import ledger

    plan = Plan(global_batch=3072, seq_len=2048, data_parallel=3072, zero_stage=2)
    question = load_model(name), load_cluster("dgx-h100", gpus=3072), plan, "deepspeed"
    rule = DeepSpeed(use_multi_rank_bucket_allreduce=not destinations)
    benchmark(lambda: ledger(*question, buckets=rule).loads())
    record(benchmark, 1, "ledgers")


STARTS = {
    "import": "import costmodel",
    "cold": "from costmodel.compilation import programs; programs.compile_searching()",
    "cold, every program": "from costmodel.compilation import programs; programs.compile_all()",
    "warm": "from costmodel.compilation import programs; programs.compile_searching()",
    "first answer": "from costmodel.cli import main; main('search llama3-70b --cluster dgx-h100 --gpus 64 --global-batch 1024 "
    "--seq-len 8192'.split())",
}


@pytest.mark.parametrize("start", STARTS)
def test_start(benchmark, start, tmp_path):
    """A fresh process, over one that does nothing but load NumPy: with an empty cache (cold) or a full one (warm)."""
    import os
    import subprocess
    import sys
    import time

    def process(source, folder):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", source], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "COSTMODEL_CACHE_DIR": str(folder)})  # fmt: skip
        return time.perf_counter() - begun

    if not start.startswith("cold"):
        process(STARTS["cold, every program"], tmp_path)
    folders = iter(tmp_path / f"{k}" if start.startswith("cold") else tmp_path for k in range(100))
    benchmark.pedantic(lambda: process(STARTS[start], next(folders)), rounds=3, iterations=1)
    if benchmark.stats:
        plain = min(process("import numpy", tmp_path) for _ in range(3))
        benchmark.extra_info["over_a_process_that_loads_numpy"] = round(benchmark.stats["min"] / plain, 2)
