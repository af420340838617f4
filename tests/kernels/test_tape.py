"""A formula on a tape, and the vector code made of it: the same digits, each operation once, factored by what it depends on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from costmodel import Plan, load_cluster, load_framework, load_model
from costmodel.arithmetic import ops
from costmodel.arithmetic.named_tuples import flat, nested
from costmodel.compilation import machine_code, row_loops, standalone, vector_code
from costmodel.compilation import programs as rows
from costmodel.compilation.fields import INNER, LANES, OUTER
from costmodel.compilation.tape import needed, supports, trace
from costmodel.description.question import Question
from costmodel.evaluation.engine import flatten
from costmodel.formulas import training_step
from costmodel.formulas.quantities import Inputs, LevelNumbers, NetworkNumbers


def compiled(formula, results, tmp_path, monkeypatch):
    """A function of a level's size, latency and bandwidth, in vector code."""
    monkeypatch.setattr(machine_code, "cache_folder", lambda: tmp_path)
    traced = trace(formula, LevelNumbers, ())
    inputs = [place for place, operation in enumerate(traced.tape.operations) if operation.name == "input"][:3]
    words = standalone.word_count(rows.FLAT)

    def sources():
        return row_loops.flat_loop("work", traced.tape, (), inputs, traced.results, rows.FLAT), {}

    return standalone.callable_of(machine_code.compiled("tried", {"work": words}, sources).functions["work"])


def test_every_operation_has_the_digits_of_python(tmp_path, monkeypatch):
    def formula(size, latency, bandwidth, *_):
        chosen = ops.where((size > latency) & (bandwidth <= size) | (size < 0.5), size / bandwidth, -latency)
        return (
            size + latency, size - bandwidth, 2.0 * size, 3.0 / size, ops.maximum(size, latency), ops.minimum(size, bandwidth),
            ops.ceil(size), ops.sqrt(size), chosen, ops.pick(ops.where(size >= 1.0, 1.0, 0.0), (5.0, latency)),
            ops.where(ops.equal(size, 1.0), 1.0, 0.0), ops.log2(size),
        )  # fmt: skip

    work = compiled(formula, 12, tmp_path, monkeypatch)
    given = np.random.default_rng(1).uniform(0.01, 100.0, (2, 3, LANES))
    given[0, :, 0] = 1.0
    out = np.empty((2, 12, LANES))
    work(rows.NONE, given, out)
    for block in range(2):
        for lane in range(LANES):
            expected = [float(value) for value in formula(*map(float, given[block, :, lane]))]
            assert out[block, :11, lane].tolist() == expected[:11]
            assert out[block, 11, lane] == pytest.approx(expected[11], rel=2e-15, abs=2e-15)


def test_values_and_conditions_pass_from_piece_to_piece(tmp_path, monkeypatch):
    """A formula that is cut into several functions, whose last operations read what its first ones found."""
    steps = 2 * vector_code.PIECE

    def formula(size, latency, bandwidth, *_):
        larger, twice, long = size > latency, 2.0 * size, latency
        for step in range(steps):
            long = ops.minimum(long + 0.5 * bandwidth, float(step))
        return ops.where(larger, long, -long), twice + long, size, ops.where(larger & (long > bandwidth), 1.0, 0.0), 3.0

    work = compiled(formula, 5, tmp_path, monkeypatch)
    given = np.random.default_rng(2).uniform(0.01, 10.0, (3, 3, LANES))
    out = np.empty((3, 5, LANES))
    work(rows.NONE, given, out)
    for block in range(3):
        for lane in range(LANES):
            expected = formula(*map(float, given[block, :, lane]))
            assert out[block, :, lane].tolist() == list(map(float, expected))


def test_a_number_has_the_logarithm_of_a_vector(tmp_path, monkeypatch):
    """Compiled one by one, as formulas are within other kernels, and eight at a time: by one definition, to the last bit."""
    import numba

    from costmodel.compilation import jit  # gives Numba its logarithms

    assert jit
    alone = numba.njit(lambda size: (ops.log2(size), ops.floor_log2(size)))
    work = compiled(lambda size, latency, bandwidth, *_: (ops.log2(size), ops.floor_log2(size)), 2, tmp_path, monkeypatch)
    given = np.exp(np.random.default_rng(3).uniform(-20.0, 20.0, (16, 3, LANES)))
    given[0, 0] = 2.0 ** np.arange(LANES)
    out = np.empty((16, 2, LANES))
    work(rows.NONE, given, out)
    found = np.array([alone(size) for size in given[:, 0].ravel()]).reshape(16, LANES, 2)
    assert np.array_equal(out.transpose(0, 2, 1), found)
    assert out[:, 0] == pytest.approx(np.log2(given[:, 0]), rel=2e-15, abs=2e-15)
    assert np.array_equal(out[:, 1], np.floor(np.log2(given[:, 0])))


def test_a_kernel_registers_what_it_calls_with_numba_and_no_more():
    source = (
        "from costmodel.studies.partitioning import kernel; from costmodel.compilation import jit, lazily;"
        "[one.compiled for one in vars(kernel).values() if isinstance(one, lazily.LazyKernel)];"
        "print(*sorted({one.__module__.removeprefix('costmodel.formulas.') for one in jit._REGISTERED}))"
    )
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=Path.cwd(), check=True)
    assert "pipeline.pipedream" in ran.stdout.split()
    assert "training_step" not in ran.stdout.split()


def test_the_same_operation_is_written_once():
    traced = trace(lambda node, leaf, spine: (node.size * leaf.size, leaf.size + node.size * leaf.size), NetworkNumbers, ())
    assert [operation.name for operation in traced.tape.operations if operation.name != "input"] == ["mul", "add"]


def test_a_formula_that_branches_is_refused():
    with pytest.raises(TypeError, match=r"ops\.where"):
        trace(lambda node, leaf, spine: (1.0 if node.size > 2.0 else 0.0,), NetworkNumbers, ())


def test_four_operations_in_five_of_a_ranking_read_one_table_alone():
    from costmodel.formulas.training_step import step

    tape, results = trace(step, Inputs, rows.RANKED, {"settings.compression.kind": 0.0})
    support = supports(tape, rows._bits)
    done = [place for place in needed(tape, results) if tape.operations[place].arguments]
    both = [place for place in done if support[place] & 1 and support[place] & 2]
    assert len(both) < 0.2 * len(done)


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["none", "top-k"])
def test_a_product_gives_what_its_plans_give_one_by_one(compression):
    model, cluster, framework = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=16), load_framework("megatron-core")
    inputs = Question(model, cluster, framework).inputs(Plan(global_batch=64, seq_len=8192, compression=compression))
    plans = [
        [Plan(global_batch=64, seq_len=8192, pipeline_parallel=2, tensor_parallel=2, data_parallel=4, micro_batch=micro_batch,
              recompute=recompute, schedule=schedule, zero_stage=stage).numbers(framework, model.layers)
         for micro_batch in (1, 2) for recompute in ("none", "selective", "full", 2)]
        for schedule in ("gpipe", "1f1b", "dualpipe") for stage in (0, 1)
    ]  # fmt: skip
    table = np.array(plans)  # outer x inner x fields
    fields = type(plans[0][0])._fields
    program = rows.ranking(compression != "none")
    scalars = rows.scalars_of(program, inputs)
    neutral = {name: 1.0 for name in (*INNER, *OUTER)}
    inner = plans[0][0]._make(table[0].T)._replace(**{name: neutral[name] for name in OUTER})
    outer = plans[0][0]._make(table[:, 0].T)._replace(**{name: neutral[name] for name in INNER})
    out = np.empty((len(plans), 2, LANES))
    runs = rows.runs_of(np.ones((len(plans), 8), dtype=bool), np.zeros(len(plans), dtype=np.int64))
    rows.run_product(
        program, scalars, rows.packed(program.parts["outer"], rows.Planned(outer), len(plans), runs.rows),
        rows.packed(program.parts["inner"], rows.Planned(inner), 8), runs.table, out,
    )
    program_of_rows = rows.every_part(compression != "none")
    each = rows.results_of(
        program_of_rows.parts["rows"], rows.scalars_of(program_of_rows, inputs),
        inputs._replace(plan=plans[0][0]._make(table.reshape(-1, len(fields)).T)), table.shape[0] * 8,
    )
    time, held = rows.EVERY.index("total"), rows.EVERY.index("memory.total")
    assert np.array_equal(out[:, 0].ravel(), each[time])
    assert np.array_equal(out[:, 1].ravel(), each[held])


@pytest.mark.slow
def test_runs_of_unlike_models_clusters_and_frameworks_are_worked_on_as_each_by_itself():
    asked = [
        ("llama3-8b", "dgx-h100", "fsdp2", {"tensor_parallel": 2, "zero_stage": 3}),
        ("mixtral-8x7b", "dgx-a100", "nemo", {"expert_parallel": 8, "pipeline_parallel": 2}),
        ("gpt3-175b", "dgx-a100", "megatron-deepspeed", {"tensor_parallel": 8, "pipeline_parallel": 8, "recompute": "full"}),
        ("llama3-8b", "dgx-h100", "hf-trainer", {"compression": "top-k", "zero_stage": 0}),
    ]  # fmt: skip
    inputs = []
    for model, cluster, framework, choices in asked:
        question = Question(load_model(model), load_cluster(cluster, gpus=128), load_framework(framework))
        shared = choices.get("tensor_parallel", 1) * choices.get("pipeline_parallel", 1)
        inputs.append(question.inputs(Plan(global_batch=256, seq_len=2048, data_parallel=128 // shared, **choices)))
    columns = nested(Inputs, {path: np.array([flat(one)[path] for one in inputs]) for path in flat(inputs[0])})
    program = rows.every_part_of_runs()
    found = rows.results_of(program.parts["rows"], rows.scalars_of(program, columns), columns, len(inputs))
    alone = np.array([flatten(training_step.step(*one)) for one in inputs]).T
    assert found == pytest.approx(alone, rel=1e-12)


def test_code_that_was_damaged_on_the_disk_is_compiled_anew(tmp_path, monkeypatch):
    compiled(lambda size, latency, bandwidth, *_: (size + latency,), 1, tmp_path, monkeypatch)
    (path,) = tmp_path.glob("*.code")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    work = compiled(lambda size, latency, bandwidth, *_: (size + latency,), 1, tmp_path, monkeypatch)
    given, out = np.ones((1, 3, LANES)), np.empty((1, 1, LANES))
    work(rows.NONE, given, out)
    assert (out == 2.0).all()
    kept = path.read_bytes()
    compiled(lambda size, latency, bandwidth, *_: (size + latency,), 1, tmp_path, monkeypatch)
    assert path.read_bytes() == kept != whole[:-20]  # read, not made anew


def test_a_search_by_kernels_loads_no_numba_once_they_were_compiled():
    rows.compile_searching()
    source = (
        "import sys, costmodel; costmodel.search(costmodel.load_model('llama3-8b'), costmodel.load_cluster('dgx-h100', gpus=8),"
        "global_batch=64, seq_len=4096, engine='numba'); print('numba' in sys.modules, 'llvmlite' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=Path.cwd(), check=True)
    assert ran.stdout.split() == ["False", "True"]


@pytest.mark.slow
def test_warmup_compiles_every_program_and_says_where(run, tmp_path):
    import json

    code, out, err = run("warmup", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert said["programs"] == 8
    assert run("warmup")[0] == 0
    kept = {path.name.partition("-")[0] for path in Path(said["folder"]).iterdir()}
    assert {"ranking", "every", "rules", "least", "pipeline_kernel", "step_kernel"} <= kept
