"""A sweep is its searches, whoever runs them; a kill loses nothing, does nothing twice and leaves the same file."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import pytest

from costmodel import CostModelError, InvalidValue, load_cluster, load_model, search, sweep
from costmodel.evaluation import sweep_cells, sweeps
from costmodel.evaluation.price import price_per_billion_tokens

pytest.importorskip("pyarrow")
import pyarrow.parquet

ASKED = {
    "gpus": [8, 16], "global_batches": [32, 64], "seq_lens": 4096, "tensor_parallel": [1, 2], "pipeline_parallel": [1, 2],
    "prices": {"dgx-h100": [2.0, 3.5], "dgx-a100": 1.2},
}  # fmt: skip
AXES = (["llama3-8b", "gpt3-6.7b"], ["dgx-h100", "dgx-a100"])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A sweep in this process."""
    return sweep(*AXES, tmp_path_factory.mktemp("sweep") / "plans.parquet", **ASKED)


def test_every_row_is_what_a_search_of_its_own_finds(made):
    rows = pyarrow.parquet.read_table(made.path).to_pylist()
    assert made.cells == 16
    assert len(rows) == 8 * 2 + 8
    assert sorted({row["cell"] for row in rows}) == list(range(16))
    for row in [row for row in rows if row["status"] == "ranked"][::5]:
        cluster = load_cluster(row["cluster"], gpus=row["gpus"])
        best = search(
            load_model(row["model"]), cluster, global_batch=row["global_batch"], seq_len=row["seq_len"],
            tensor_parallel=[1, 2], pipeline_parallel=[1, 2],
        ).best  # fmt: skip
        assert row["step_time_s"] == pytest.approx(best.step_time, rel=1e-12)
        assert row["tensor_parallel"] == best.plan.tensor_parallel
        assert row["price_per_billion_tokens"] == pytest.approx(price_per_billion_tokens(best, row["price_per_gpu_hour"]))


def test_pandas_polars_and_duckdb_read_the_same_table(made):
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    frame, other = made.to_pandas(), made.to_polars()
    assert isinstance(other, polars.DataFrame)
    asked = duckdb.sql(f"select cell, step_time_s from '{made.path}' order by cell, price_per_gpu_hour").fetchall()
    times = [None if math.isnan(time) else time for time in frame["step_time_s"]]  # of a cell that failed there is none
    assert times == other["step_time_s"].to_list() == [time for _, time in asked]
    assert list(frame.columns) == other.columns == list(sweep_cells.COLUMNS)
    cheapest = duckdb.sql(f"select min(price_per_billion_tokens) from '{made.path}' where status = 'ranked'").fetchall()
    assert cheapest == [(frame["price_per_billion_tokens"].min(),)]


def same_as(made, path, executor):
    """Whether an executor leaves the very file that this process leaves."""
    found = sweep(*AXES, path, executor=executor, **ASKED)
    assert found.plans == made.plans
    assert path.read_bytes() == made.path.read_bytes()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_threads_leave_the_same_file(made, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        same_as(made, tmp_path / "plans.parquet", pool)


def test_processes_leave_the_same_file(made, tmp_path):
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        same_as(made, tmp_path / "plans.parquet", pool)


@pytest.mark.slow
def test_a_pool_with_apply_async_leaves_the_same_file(made, tmp_path):
    with get_context("spawn").Pool(1) as pool:
        same_as(made, tmp_path / "plans.parquet", pool)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the cluster's own sockets and ports
def test_a_cluster_of_dask_leaves_the_same_file(made, tmp_path):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        same_as(made, tmp_path / "plans.parquet", client.get_executor())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_pool_of_ray_leaves_the_same_file(made, tmp_path):
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    pools = pytest.importorskip("ray.util.multiprocessing")
    path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": path}})
    try:
        pool = pools.Pool(2)
        same_as(made, tmp_path / "plans.parquet", pool)
        pool.terminate()
    finally:
        ray.shutdown()


CHILD = """
import sys
from costmodel import sweep
sweep(["llama3-8b", "gpt3-6.7b"], ["dgx-h100", "dgx-a100"], sys.argv[1], gpus=[8, 16], global_batches=[32, 64], seq_lens=4096,
      tensor_parallel=[1, 2], pipeline_parallel=[1, 2], prices={"dgx-h100": [2.0, 3.5], "dgx-a100": 1.2},
      progress=lambda done, cells, plans: print(done, flush=True))
"""


def killed(path, after):
    """Kill a sweep as soon as so many cells are done, and a moment more."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= after:
            break
    time.sleep(random.Random(after).uniform(0.0, 0.01))
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_a_sweep_that_was_killed_goes_on_and_leaves_the_same_file(made, tmp_path):
    path = tmp_path / "plans.parquet"
    for after in (3, 9):
        killed(path, after)
    done = {part.name for part in (tmp_path / "plans.parquet.parts").glob("*.parquet")}
    assert len(done) >= 9
    seen = []
    found = sweep(*AXES, path, progress=lambda *counts: seen.append(counts[:2]), **ASKED)
    assert found.resumed == len(done)
    assert seen[0] == (len(done), 16)
    assert len(seen) == 16 - len(done) + 1  # what was done is not done again
    assert found.mended == 0
    assert path.read_bytes() == made.path.read_bytes()


def test_a_sweep_that_is_finished_is_not_done_again(made):
    before = made.path.stat().st_mtime_ns
    found = sweep(*AXES, made.path, **ASKED)
    assert (found.resumed, found.plans) == (16, 0)
    assert made.path.stat().st_mtime_ns == before


@pytest.mark.slow
def test_half_a_chunk_is_no_chunk(made, tmp_path):
    path = tmp_path / "plans.parquet"
    killed(path, 2)
    (tmp_path / "plans.parquet.parts" / "000000009.new").write_bytes(b"PAR1 half of a chunk")
    sweep(*AXES, path, **ASKED)
    assert path.read_bytes() == made.path.read_bytes()


def test_a_cell_that_fails_is_a_row_with_its_reason_and_the_rest_goes_on(tmp_path, monkeypatch):
    def failing(model, cluster, **asked):
        if asked["global_batch"] == 64:
            raise RuntimeError("no such thing\nin two lines")
        return search(model, cluster, **asked)

    monkeypatch.setattr(sweep_cells, "search", failing)
    path = tmp_path / "plans.parquet"
    found = sweep("llama3-8b", "dgx-a100", path, gpus=8, global_batches=[32, 64, 33], seq_lens=4096, dtype=["fp8", "bf16"],
                  data_parallel=[8])  # fmt: skip
    rows = pyarrow.parquet.read_table(path).to_pylist()
    assert [row["status"] for row in rows] == ["failed", "failed", "failed"]
    assert rows[1]["reason"] == "RuntimeError: no such thing in two lines"
    assert "fp8" in rows[0]["reason"]
    assert found.failed == 3
    found = sweep("llama3-8b", "dgx-a100", tmp_path / "more.parquet", gpus=8, global_batches=[32, 33], seq_lens=4096,
                  data_parallel=8)  # fmt: skip
    rows = pyarrow.parquet.read_table(found.path).to_pylist()
    assert [row["status"] for row in rows] == ["ranked", "no legal plan"]
    assert "global batch" in rows[1]["reason"]


def test_an_executor_that_loses_a_worker_says_that_all_is_kept(tmp_path):
    class Broken(ThreadPoolExecutor):
        def submit(self, function, /, *arguments, **named):
            if arguments[1] > 2:
                raise BrokenProcessPool("a process died")
            return super().submit(function, *arguments, **named)

    path = tmp_path / "plans.parquet"
    with Broken(1) as pool, pytest.raises(sweeps.Interrupted, match="the same call goes on"):
        sweep(*AXES, path, executor=pool, **ASKED)
    sweep(*AXES, path, **ASKED)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"path": "/no/such/folder/plans.parquet"}, "no/such/folder"), ({"path": "."}, "path"),
        ({"gpus": [0]}, "gpus=0"), ({"global_batches": []}, "global_batches"), ({"prices": {"dgx-b200": 3.0}}, "prices="),
        ({"prices": -1.0}, "prices=-1"), ({"executor": 7}, "executor=7"), ({"keep_evaluated": True}, "keep_evaluated"),
        ({"models": 7}, "models=7"), ({"frameworks": "megatron-coer"}, "megatron-core"), ({"clusters": "dgx-h10"}, "dgx-h100"),
    ],
)  # fmt: skip
def test_what_can_not_be_swept_is_refused_in_one_line_before_anything_is_written(tmp_path, changed, said):
    given = {"models": "llama3-8b", "clusters": "dgx-h100", "path": tmp_path / "plans.parquet", **ASKED, "prices": None} | changed
    with pytest.raises(CostModelError) as refused:
        sweep(**given)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.glob("*.parquet"))


def test_another_sweep_is_not_mixed_in(made, tmp_path):
    other = tmp_path / "plans.parquet"
    killed(other, 2)
    for path in (made.path, other):
        with pytest.raises(InvalidValue, match="this very sweep"):
            sweep(*AXES, path, **{**ASKED, "seq_lens": 2048})


def test_the_command_writes_the_same_file_and_says_what_it_did(made, run, tmp_path):
    words = (
        "sweep", "llama3-8b,gpt3-6.7b", "--cluster", "dgx-h100,dgx-a100", "--gpus", "8,16", "--global-batch", "32,64",
        "--seq-len", "4096", "--tensor-parallel", "1,2", "--pipeline-parallel", "1,2", "-o", "plans.parquet",
    )  # fmt: skip
    code, out, err = run(*words)
    assert code == 0, err
    assert "16 searches" in out
    table = pyarrow.parquet.read_table(tmp_path / "plans.parquet")
    assert set(table["step_time_s"].to_pylist()) == set(pyarrow.parquet.read_table(made.path)["step_time_s"].to_pylist())
    code, out, _ = run(*words, "--json")
    assert code == 0
    assert '"resumed": 16' in out
    code, out, err = run(*words[:-1], "no/folder/plans.parquet")
    assert code == 2
    assert "costmodel: error: path=" in err
