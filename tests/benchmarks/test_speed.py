"""How fast it is: `pytest tests/benchmarks --benchmark-only`. Nothing here fails for being slow."""

import numpy as np
import pytest

from costmodel import Plan, load_cluster, load_framework, load_model
from costmodel.description.question import Question
from costmodel.errors import IllegalPlan
from costmodel.evaluation import engine
from costmodel.evaluation.estimation import estimate
from costmodel.evaluation.plan_search import search

pytest.importorskip("pytest_benchmark")

FRAMEWORK = load_framework("megatron-core")
ROWS = {"python": 256, "numpy": 16 * engine.CHUNK, "numba": 64 * engine.CHUNK}


@pytest.fixture(autouse=True)
def only_when_asked(request):
    if not (request.config.getoption("benchmark_only") or request.config.getoption("benchmark_enable")):
        pytest.skip("run with --benchmark-only")


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
def test_kernel_on_one_core(benchmark, compression):
    """The compiled row loop alone, on columns that lie ready."""
    from costmodel.kernels import rows

    inputs, table = question(64 * engine.CHUNK)
    settings = Plan(global_batch=1024, seq_len=8192, compression=compression).settings(FRAMEWORK)
    evaluate = rows.evaluate_compressed if settings.compression.kind else rows.evaluate
    block = int(rows.BLOCK)
    blocks = table.shape[1] // block
    lined = np.ascontiguousarray(table.reshape(len(table), blocks, block).transpose(1, 0, 2)).ravel()
    out = np.empty(blocks * len(engine.PARTS) * block)

    def kernel():
        evaluate(inputs.model, settings, lined, *inputs[3:], out, np.uint64(blocks))

    kernel()
    benchmark(kernel)
    record(benchmark, table.shape[1])
    assert np.isfinite(out).all()


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
