"""What formulas say about themselves: pages, elasticities against finite differences, crossings against algebra."""

import inspect
import random

import pytest

from costmodel import Plan, load_cluster, load_framework, load_model
from costmodel.cli import main
from costmodel.compilation.sheets import crossovers, elasticities, find_formula, formula_names, page
from costmodel.compilation.tape import arguments_of
from costmodel.formulas.network import algorithms, bounds
from costmodel.formulas.systems import batch_sizes, reliability, server_exchange
from costmodel.formulas.training_step import step
from costmodel.text.errors import InvalidValue, UnknownName
from tests.commanding import refused, strict


@pytest.fixture
def run(capsys):
    def call(*argv):
        code = main(argv)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def numbers(model="gpt3-2.7b", gpus=64):
    cluster, framework = load_cluster("dgx-a100", gpus=gpus), load_framework("megatron-core")
    shape = load_model(model)
    plan = Plan(
        global_batch=512, seq_len=2048, tensor_parallel=4, pipeline_parallel=4, data_parallel=gpus // 16, micro_batch=2
    ).resolve(framework)  # fmt: skip
    return (
        shape.numbers(), plan.settings(framework), plan.numbers(framework, shape.layers), cluster.numbers(), framework.numbers(),
        cluster.device.numbers("bf16"),
    )  # fmt: skip


def at(value, path):
    for field in path:
        value = getattr(value, field)
    return value


def moved(value, path, factor):
    if not path:
        return value * factor
    return value._replace(**{path[0]: moved(getattr(value, path[0]), path[1:], factor)})


# Pages


def test_every_formula_has_a_page_with_its_inputs():
    known = formula_names()
    assert len(known) > 300
    for name in random.Random(0).sample(sorted(known), 40):
        if inspect.getdoc(known[name]) and ".. math::" in inspect.getdoc(known[name]):
            shown = page(name)
            names = {one.strip() for head, _ in shown.parameters for one in head.split(",")}
            assert names == set(inspect.signature(known[name]).parameters), name
            assert shown.summary and shown.equations


def test_a_page_holds_latex_units_validity_and_source():
    shown = page("daly_interval")
    assert r"\sqrt{2 \delta M}" in shown.equations[0]
    assert dict(shown.parameters)["mtbf"].endswith("[s]")
    assert any("Daly" in source and "2006" in source for source in shown.sources)
    assert "tree" in page("hierarchical_all_reduce").assumptions


def test_a_formula_without_an_equation_is_traced():
    assert page("collectives.members_inside").equations == (
        r"\min\left(p, \max\left(1, \frac{\mathrm{size}}{\mathrm{stride}}\right)\right)",
    )


def test_names_that_are_not_there_or_not_one_are_refused():
    with pytest.raises(UnknownName, match="young_interval"):
        find_formula("yung_interval")
    with pytest.raises(InvalidValue, match=r"data_parallel.throughput"):
        find_formula("throughput")


# Elasticities


@pytest.mark.parametrize("formula", [
    reliability.goodput, reliability.segment_variance, reliability.daly_interval, batch_sizes.time_to_loss,
    algorithms.rabenseifner_all_reduce,
])  # fmt: skip
def test_elasticities_are_what_finite_differences_give(formula):
    draw = random.Random(formula.__name__)
    names = list(inspect.signature(formula).parameters)
    values = [draw.uniform(20.0, 900.0) for _ in names]
    if "mtbf" in names:
        values[names.index("mtbf")] = 20_000.0
    found = elasticities(formula, *values)
    for place, name in enumerate(names):
        up, down = list(values), list(values)
        up[place], down[place] = values[place] * (1 + 1e-5), values[place] * (1 - 1e-5)
        slope = (formula(*up) - formula(*down)) / (2e-5 * formula(*values))
        assert found.get(name, 0.0) == pytest.approx(slope, abs=1e-5), name


@pytest.mark.slow
def test_elasticities_of_a_step_in_every_input_are_what_finite_differences_give():
    tuples = numbers()
    found = elasticities(step, *tuples, of="total")
    assert {"device.flop_rate", "network.node.bandwidth", "settings.seq_len"} <= set(found)
    names = arguments_of(step)
    value = step(*tuples).total
    smooth = 0
    for path, slope in found.items():
        head, *rest = path.split(".")

        def quotient(width, head=head, rest=rest):
            ends = [
                step(*(moved(one, rest, factor) if name == head else one for name, one in zip(names, tuples, strict=True))).total
                for factor in (1 + width, 1 - width)
            ]  # fmt: skip
            return (ends[0] - ends[1]) / (2 * width * value)

        near, nearer = quotient(1e-5), quotient(1e-6)
        if near == pytest.approx(nearer, abs=1e-3):  # else something rounded up jumps here, or a maximum bends
            smooth += 1
            assert slope == pytest.approx(nearer, abs=1e-3), path
    assert smooth > 0.8 * len(found)


def test_parts_that_there_are_not_are_refused():
    with pytest.raises(InvalidValue, match="one of the parts"):
        elasticities(algorithms.message, 1e6, 1e-5, 1e9, of="total")


# Crossings


def test_ring_and_recursive_doubling_meet_where_algebra_says():
    """2 (p - 1) (a + n / (p B)) = log2(p) (a + n / B) for the bytes n."""
    p, rounds, latency, bandwidth = 16.0, 4.0, 1e-5, 1e10
    expected = (2 * (p - 1) - rounds) * latency * bandwidth / (rounds - 2 * (p - 1) / p)
    given = {"ranks": p, "latency": latency, "bandwidth": bandwidth}
    found = crossovers(algorithms.ring_all_reduce, algorithms.recursive_doubling_all_reduce, "nbytes", 1e2, 1e9, given)
    assert found == pytest.approx([expected])


def test_servers_overtake_an_all_reduce_from_half_as_many_as_workers():
    """Max(M / B, n M / (k B)) against 2 (n - 1) M / (n B): k = n^2 / (2 (n - 1)) (Jiang et al. 2020, table 1)."""
    n, nbytes, bandwidth = 32.0, 1e9, 1e10
    given = {
        "push": nbytes, "pull": nbytes, "active": n, "skew": 1.0, "colocated": 0.0, "bandwidth": bandwidth,
        "server_bandwidth": bandwidth, "update_bandwidth": 1e30, "latency": 0.0, "partitions": 1e9, "nbytes": nbytes, "ranks": n,
    }  # fmt: skip
    found = crossovers(server_exchange.exchange_time, algorithms.ring_all_reduce, "servers", 1.0, 1000.0, given)
    assert found == pytest.approx([n * n / (2 * (n - 1))], rel=1e-6)
    assert found[0] == pytest.approx(server_exchange.servers_to_match_all_reduce(n))


def test_formulas_that_never_meet_have_no_crossing_and_missing_values_are_named():
    given = {"ranks": 16.0, "latency": 1e-5, "bandwidth": 1e10}
    assert crossovers(algorithms.ring_all_reduce, bounds.least_all_gather, "nbytes", 1.0, 10.0, given) == []
    with pytest.raises(InvalidValue, match="bandwidth"):
        crossovers(algorithms.ring_all_reduce, algorithms.message, "nbytes", 1.0, 10.0, {"ranks": 4.0, "latency": 0.0})


# The command


def test_the_command_prints_a_page_and_elasticities(run):
    code, out, _ = run("formula", "young_interval", "--at", "write_time=50,mtbf=10000")
    assert code == 0
    for word in (r"\sqrt{2 \delta M}", "[s]", "Young", "Result: 1000", "+0.500"):
        assert word in out
    found = strict(run("formula", "systems.reliability.young_interval", "--json")[1])
    assert found["name"] == "systems.reliability.young_interval" and "mtbf" in found["parameters"]
    assert "systems.reliability.daly_interval" in run("formula", "interval")[1]


@pytest.mark.parametrize(("given", "hint"), [
    (["formula", "zzz"], "zzz"), (["formula", "throughput"], "one of"), (["formula", "young_interval", "--at", "5"], "NAME=X"),
    (["formula", "young_interval", "--at", "mtbf=5"], "write_time"), (["formula", "young_interval", "--at", "x=5"], "one of"),
    (["formula", "young_interval", "--at", "mtbf=a,write_time=1"], "a number"),
    (["formula", "compute.gemm", "--at", "m=1,n=1,k=1,element_bytes=2,flop_rate=1e12,device=3"], "groups of them"),
])  # fmt: skip
def test_bad_questions_end_in_one_line(run, tmp_path, given, hint):
    refused(run, tmp_path, given, hint)
