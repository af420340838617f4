"""How fast the partitioner is beside the published program: `pytest tests/benchmarks --benchmark-only`.

Warm: compiled, and the cuts of the graph known from an earlier question. `times_faster` is over the wall time in
the reference rows, which are rounded to 0.1 s; rows that took less than 0.05 s there count with the others of
their profile alone.
"""

import collections
import time

import pytest

from costmodel.studies.partitioning import balanced_stages, partition
from costmodel.studies.partitioning.graph import all_cuts, graph_of
from tests.pipedream_program import asked, golden, profile

pytest.importorskip("pytest_benchmark")



def large():
    """Rows of each profile, of those with more than some cuts."""
    found = collections.defaultdict(list)
    for row in golden():
        if int(row["n_antichain_states"]) > 20:
            found[row["profile"]].append(row)
    return found


GOLDEN = large()


@pytest.mark.skipif(not GOLDEN, reason="the published profiles are not beside this repository")
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_all_questions_that_the_published_program_answered(benchmark, name):
    chain = profile(name)
    questions = [asked(row) for row in GOLDEN[name]]
    walls = [float(row["optimizer_wall_s"]) for row in GOLDEN[name]]

    def answer():
        spent = []
        for each in questions:
            start = time.perf_counter()
            partition(chain, **each)
            spent.append(time.perf_counter() - start)
        return spent

    answer()
    least = [min(times) for times in zip(*(answer() for _ in range(3)), strict=True)]
    benchmark(answer)
    timed = [wall / spent for wall, spent in zip(walls, least, strict=True) if wall >= 0.1]
    benchmark.extra_info["times_faster"] = round(sum(walls) / sum(least))
    benchmark.extra_info["times_faster_at_least"] = round(min(timed)) if timed else None


@pytest.mark.skipif(not GOLDEN, reason="the published profiles are not beside this repository")
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_question_about_a_new_graph(benchmark, name):
    """Compiled, but the graph's cuts not yet known."""
    chain, each = profile(name), asked(GOLDEN[name][0])

    def fresh():
        graph_of.cache_clear()
        all_cuts.cache_clear()
        return partition(chain, **each)

    fresh()
    benchmark(fresh)


@pytest.mark.skipif(not GOLDEN, reason="the published profiles are not beside this repository")
@pytest.mark.parametrize("name", ["nasnetamobile", "nasnetalarge"])
@pytest.mark.parametrize("recurrence", ["sosp19", "reference"])
def test_graphs_that_the_published_program_cannot_finish(benchmark, name, recurrence):
    chain = profile(name)
    partition(chain, [4], [1e10], recurrence=recurrence)
    result = benchmark.pedantic(partition, (chain, [4], [1e10]), {"recurrence": recurrence}, rounds=2)
    benchmark.extra_info["over_bound"] = result.time * result.workers / result.single_time


def test_an_uneven_split_of_a_transformer(benchmark):
    from costmodel import Plan, load_cluster, load_model

    asked = load_model("deepseek-v3"), load_cluster("dgx-h100", gpus=1024), Plan(
        global_batch=2048, seq_len=4096, pipeline_parallel=16, data_parallel=64, expert_parallel=64
    )  # fmt: skip
    balanced_stages(*asked)
    benchmark(balanced_stages, *asked)
