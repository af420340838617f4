"""The partitioner finds what looking at every partition finds, and what the published program found."""

import itertools
import math
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.description.layers import ChainLayer, LayerChain
from costmodel.studies.partitioning import graph, partition, pipedream
from costmodel.text.errors import CostModelError, IllegalPlan, InvalidValue
from tests.pipedream_program import asked, golden, profile
from tests.seeds import SEEDS

needs_profiles = pytest.mark.skipif(not SEEDS.is_dir(), reason="the published profiles are not beside this repository")


def chain_of(costs, edges=None):
    """A chain, or a graph with these edges, of layers (seconds, output bytes, weight bytes)."""
    layers = []
    for i, (time, output, weights) in enumerate(costs):
        inputs = None if edges is None else [f"l{a}" for a, b in edges if b == i]
        layers.append(ChainLayer(
            name=f"l{i}", forward=time / 3, backward=time - time / 3, output_bytes=output, parameter_bytes=weights, inputs=inputs
        ))  # fmt: skip
    return LayerChain(name="drawn", layers=layers)


# Every partition, looked at one by one


def down_sets(count, inputs):
    """Sets of layers that hold with every layer its inputs."""
    found = []
    for size in range(count + 1):
        for chosen in itertools.combinations(range(count), size):
            inside = frozenset(chosen)
            if all(source in inside for layer in inside for source in inputs[layer]):
                found.append(inside)
    return found


def pipelines(cuts, start, end, machines, straight):
    """Every pipeline from one set to another: stages (from, to, replicas) that take exactly so many machines."""
    for replicas in range(1, machines + 1):
        if straight and replicas > 1:
            break
        if replicas == machines:
            yield [(start, end, replicas)]
            continue
        for cut in cuts:
            if start < cut < end:
                for rest in pipelines(cuts, cut, end, machines - replicas, straight):
                    yield [(start, cut, replicas), *rest]


class Brute:
    """Least time by looking at every nested pipeline, priced with the papers' words."""

    def __init__(self, chain, recurrence, machines, bandwidths, compression=None, straight=False, memory=None):
        self.layers, self.inputs = chain.layers, chain.inputs
        self.recurrence, self.machines, self.bandwidths = recurrence, machines, bandwidths
        self.compression, self.straight, self.memory = compression, straight, memory
        self.cuts = down_sets(len(chain.layers), chain.inputs)
        self.everything = frozenset(range(len(chain.layers)))

    def total(self, stage, what):
        return sum(what(self.layers[i]) for i in stage)

    def crossing(self, cut):
        """Outputs that layers outside take, over what they are compressed by."""
        taken = {source for layer in self.everything - cut for source in self.inputs[layer]}
        return sum(self.layers[i].output_bytes for i in taken & cut) / (self.compression or 1.0)

    def in_a_row(self):
        """Every pipeline of stages on workers in a row, as `nested`: each link priced by the outermost level it passes."""

        def link(first, last):
            rate, whole = math.inf, 1
            for machines, bandwidth in zip(self.machines, self.bandwidths, strict=True):
                rate = min(rate, bandwidth) if machines > 1 else rate
                whole *= machines
                if first // whole == last // whole:
                    return rate

        workers = math.prod(self.machines)
        for stages in pipelines(self.cuts, frozenset(), self.everything, workers, self.straight):
            time, leaves, first = 0.0, [], 0
            ends = [*itertools.accumulate(m for _, _, m in stages)]
            for number, (a, b, m) in enumerate(stages):
                compute = self.total(b - a, lambda layer: layer.forward + layer.backward)
                w = self.total(b - a, lambda layer: layer.parameter_bytes)
                ring = 2 * (m - 1) / m * w / link(first, first + m - 1)
                time = max(time, (compute + ring if m == workers else max(compute, ring)) / m)
                if number:  # between two neighbouring stages, over the slowest link that either of them or the step between has
                    before = first - stages[number - 1][2]
                    slowest = min(link(before, first), link(first - 1, ends[number] - 1))
                    time = max(time, self.crossing(a) / slowest)
                leaves.append((b - a, m))
                first += m
            yield time, leaves

    def nested(self, level, start, end):
        """Every pipeline on a level with the time of each: (time, leaves as (layers, replicas))."""
        if level < 0:
            yield self.total(end - start, lambda layer: layer.forward + layer.backward), [(end - start, 1)]
            return
        bandwidth = self.bandwidths[level]
        for stages in pipelines(self.cuts, start, end, self.machines[level], self.straight):
            options = [list(self.nested(level - 1, a, b)) for a, b, _ in stages]
            for chosen in itertools.product(*options):
                time, leaves, used = 0.0, [], 0
                for number, ((a, b, m), (compute, inner)) in enumerate(zip(stages, chosen, strict=True)):
                    w = self.total(b - a, lambda layer: layer.parameter_bytes)
                    if self.recurrence == "sosp19":
                        stage = max(compute, 2 * (m - 1) * w / bandwidth) / m
                    elif self.recurrence == "arxiv2018":
                        stage = max(compute, 4 * (m - 1) * w / (m * bandwidth)) / m
                    else:
                        alone = self.machines[level - 1] if level and number == 0 else 1
                        stage = (compute + 4 * (m - 1) * w / (m * bandwidth) / alone) / m
                    time = max(time, stage)
                    if number:
                        if self.recurrence != "reference":
                            time = max(time, 2 * self.crossing(a) / bandwidth)
                        elif self.compression:
                            time = max(time, 2 * self.crossing(a) / (bandwidth * m))
                            if b != self.everything:
                                time = max(time, 2 * self.crossing(b) / (bandwidth * m))
                    used += m
                    if self.memory and self.recurrence == "reference":
                        held = self.total(b - a, lambda layer: layer.output_bytes + layer.parameter_bytes)
                        if math.ceil((self.machines[level] - used) / m) * held > self.memory:
                            time = math.inf
                    leaves += [(layers, m * copies) for layers, copies in inner]
                yield time, leaves

    def fits(self, leaves):
        """Whether each machine has room for all minibatches in flight: one for each worker from here on."""
        for k, (layers, replicas) in enumerate(leaves):
            workers = sum(copies for _, copies in leaves[k:])
            held = self.total(layers, lambda layer: layer.output_bytes + layer.parameter_bytes)
            if math.ceil(workers / replicas) * held > self.memory:
                return False
        return True

    def least(self):
        check = self.memory and self.recurrence != "reference"
        nested = self.nested(len(self.machines) - 1, frozenset(), self.everything)
        found = self.in_a_row() if self.recurrence == "placed" else nested
        return min((time for time, leaves in found if not check or self.fits(leaves)), default=math.inf)


COSTS = st.tuples(
    st.sampled_from([0.0, 0.1, 0.2, 0.35, 1.0]), st.sampled_from([0.0, 0.02, 0.3, 1.0]), st.sampled_from([0.0, 0.05, 0.5, 3.0])
)


def found(*arguments, **keywords):
    """Time of the best partition, infinite where there is none."""
    try:
        return partition(*arguments, **keywords).time
    except IllegalPlan:
        return math.inf


@pytest.mark.slow
@given(
    st.lists(COSTS, min_size=1, max_size=6), st.integers(1, 4), st.sampled_from([0.3, 1.0, 10.0]),
    st.sampled_from(["placed", "sosp19", "arxiv2018", "reference"]), st.sampled_from([None, 1.0, 4.0]), st.booleans(),
    st.sampled_from([None, 1.0, 3.0, 8.0]),
)  # fmt: skip
@settings(deadline=None, max_examples=150)
def test_no_partition_of_a_chain_is_faster(costs, machines, bandwidth, recurrence, compression, straight, memory):
    # bandwidths in GB/s, sizes in GB: the same numbers
    chain = chain_of([(t, 1e9 * a, 1e9 * w) for t, a, w in costs])
    memory = memory and 1e9 * memory
    brute = Brute(chain, recurrence, [machines], [1e9 * bandwidth], compression, straight, memory)
    mine = found(chain, [machines], [1e9 * bandwidth], memory, straight, recurrence, compression)
    assert mine == pytest.approx(brute.least(), rel=1e-12)


@given(
    st.lists(COSTS, min_size=1, max_size=4), st.sampled_from([[2, 2], [3, 2], [2, 3], [2, 2, 2], [1, 3, 2]]),
    st.sampled_from([[10.0, 1.0, 0.5], [1.0, 0.2, 0.2]]),
    st.sampled_from(["placed", "sosp19", "reference"]), st.sampled_from([None, 1.0]), st.booleans(),
    st.sampled_from([None, 2.0, 6.0]),
)  # fmt: skip
@settings(deadline=None, max_examples=150)
def test_no_nested_partition_of_a_chain_is_faster(costs, machines, bandwidths, recurrence, compression, straight, memory):
    chain = chain_of([(t, 1e9 * a, 1e9 * w) for t, a, w in costs])
    memory, bandwidths = memory and 1e9 * memory, [1e9 * b for b in bandwidths[: len(machines)]]
    brute = Brute(chain, recurrence, machines, bandwidths, compression, straight, memory)
    mine = found(chain, machines, bandwidths, memory, straight, recurrence, compression)
    assert mine == pytest.approx(brute.least(), rel=1e-12)


@given(
    st.lists(COSTS, min_size=3, max_size=6), st.sampled_from([[4], [2, 2], [5], [2, 3]]),
    st.sampled_from([[10.0, 1.0], [1.0, 0.2]]),
    st.sampled_from(["placed", "sosp19", "arxiv2018", "reference"]), st.sampled_from([None, 3.0]), st.data(),
)  # fmt: skip
@settings(deadline=None, max_examples=100)
def test_no_partition_of_given_replicas_is_faster(costs, machines, bandwidths, recurrence, memory, data):
    if recurrence != "placed":
        machines = [math.prod(machines)]
    chain = chain_of([(t + 0.01, 1e9 * a, 1e9 * w) for t, a, w in costs])
    memory, rates = memory and 1e9 * memory, [1e9 * b for b in bandwidths[: len(machines)]]
    brute = Brute(chain, recurrence, machines, rates, compression=1.0, memory=memory)
    options = brute.in_a_row() if recurrence == "placed" else brute.nested(0, frozenset(), brute.everything)
    options = [(time, leaves) for time, leaves in options if not memory or recurrence == "reference" or brute.fits(leaves)]
    replicas = data.draw(st.sampled_from(sorted(set(compositions(math.prod(machines))))))
    least = min((time for time, leaves in options if tuple(m for _, m in leaves) == replicas), default=math.inf)
    try:
        found = partition(chain, machines, rates, memory, False, recurrence, 1.0, replicas=replicas)
    except IllegalPlan:
        assert least == math.inf
        return
    assert found.time == pytest.approx(least, rel=1e-12)
    assert found.configuration == "-".join(map(str, replicas))


def compositions(machines):
    """Every way to give machines to stages, in order."""
    yield (machines,)
    for last in range(1, machines):
        yield from ((*before, last) for before in compositions(machines - last))


@pytest.mark.parametrize(("machines", "recurrence", "replicas", "straight", "says"), [
    ([4], "placed", (2, 1), False, "4 in all"), ([2, 2], "sosp19", (2, 1, 1), False, "under recurrence='placed'"),
    ([4], "placed", (2, 1, 1), True, "straight=True"), ([4], "placed", (4, 0), False, "a whole number from 1"),
    ([4], "placed", (), False, "4 in all"), ([4], "placed", "2-1-1", False, "replicas"),
])  # fmt: skip
def test_replicas_that_no_pipeline_has_are_refused(machines, recurrence, replicas, straight, says):
    with pytest.raises(InvalidValue, match=says):
        partition(chain_of([(1.0, 1e6, 1e6)] * 6), machines, [1e9] * len(machines), straight=straight, recurrence=recurrence,
                  replicas=replicas)  # fmt: skip


def test_more_given_stages_than_layers_are_refused():
    with pytest.raises(IllegalPlan, match="too few cuts for 3 stages"):
        partition(chain_of([(1.0, 1e6, 1e6)] * 2), [4], [1e9], replicas=(2, 1, 1))


GRAPHS = [
    [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)],  # a diamond
    [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4)],  # residuals
    [(0, 2), (1, 3), (2, 3), (3, 4)],  # two inputs
    [(0, 1), (1, 2), (0, 3), (3, 4), (2, 5), (4, 5)],  # two branches of two
    [(0, 1), (0, 2), (1, 3), (2, 4)],  # two ends
]


@given(st.sampled_from(GRAPHS), st.data(), st.integers(1, 3), st.sampled_from([0.3, 1.0, 10.0]),
       st.sampled_from(["placed", "sosp19", "arxiv2018"]), st.sampled_from([None, 6.0]))  # fmt: skip
@settings(deadline=None, max_examples=100)
def test_no_partition_of_a_graph_is_faster(edges, data, machines, bandwidth, recurrence, memory):
    size = 1 + max(b for _, b in edges)
    costs = data.draw(st.lists(COSTS.map(lambda c: (c[0] + 0.01, c[1], c[2])), min_size=size, max_size=size))
    chain = chain_of([(t, 1e9 * a, 1e9 * w) for t, a, w in costs], edges)
    memory = memory and 1e9 * memory
    brute = Brute(chain, recurrence, [machines], [1e9 * bandwidth], memory=memory)
    mine = found(chain, [machines], [1e9 * bandwidth], memory, recurrence=recurrence)
    assert mine == pytest.approx(brute.least(), rel=1e-12)


def test_a_brute_search_sees_all_compositions_of_replicas():
    cuts = [frozenset(range(n)) for n in range(5)]
    shapes = {tuple(m for _, _, m in stages) for stages in pipelines(cuts, cuts[0], cuts[4], 4, False)}
    assert shapes == {(4,), (3, 1), (1, 3), (2, 2), (2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 1, 1, 1)}


# Large graphs, of which only some cuts are tried


@given(st.lists(COSTS.map(lambda c: (c[0] + 0.01, c[1], c[2])), min_size=10, max_size=10), st.integers(1, 4),
       st.sampled_from([0.5, 10.0]))  # fmt: skip
@settings(deadline=None, max_examples=40)
def test_what_is_found_among_some_cuts_is_no_better_than_the_best_and_is_the_best_where_it_says_so(costs, machines, bandwidth):
    edges = [(0, 1), (1, 2), (0, 3), (3, 4), (0, 5), (5, 6), (2, 7), (4, 7), (6, 7), (7, 8), (8, 9), (7, 9)]
    chain = chain_of([(t, 1e9 * a, 1e9 * w) for t, a, w in costs], edges)
    best = partition(chain, [machines], [1e9 * bandwidth])
    assert best.proven
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipedream, "MOST_STATES", 20)
        some = partition(chain, [machines], [1e9 * bandwidth])
    assert some.states < best.states
    assert some.time >= best.time * (1 - 1e-12)
    if some.proven:
        assert some.time == pytest.approx(best.time, rel=1e-12)


@pytest.mark.parametrize("grouped", [True, False])
def test_cuts_of_a_graph_too_large_to_enumerate_are_those_of_its_branches_and_of_orders(grouped, monkeypatch):
    edges = [(0, 1), (1, 2), (0, 3), (3, 4), (0, 5), (5, 6), (2, 7), (4, 7), (6, 7)]
    chain = chain_of([(1.0, 1e6, 1e6)] * 8, edges)
    monkeypatch.setattr(pipedream, "MOST_STATES", 15)
    monkeypatch.setattr(graph, "MOST_ENUMERATED", 20)
    if not grouped:
        monkeypatch.setattr(graph, "MOST_GROUPED", 3)
    result = partition(chain, [4], [1e12], recurrence="sosp19")
    assert result.time == pytest.approx(2.0)
    assert result.proven  # as fast as if all machines computed all the time


# The published program


def printed(row):
    """Stages of each level that the program printed, the outermost first: (start, end, replicas, compute time)."""
    levels = row["stages[state_start,state_end)xreplicas t=compute_s"].split("|")
    stage = re.compile(r"\[(\d+),(\d+)\)x(\d+) t=([-\d.]+)")
    return [[(int(a), int(b), int(m), float(t)) for a, b, m, t in stage.findall(level)] for level in levels]


@pytest.mark.slow
@needs_profiles
@pytest.mark.parametrize("name", sorted({row["profile"] for row in golden()}))
def test_times_are_those_of_the_published_program(name):  # msr-fiddle/pipedream optimizer_graph_hierarchical.py
    chain = profile(name)
    rows = [row for row in golden() if row["profile"] == name]
    for row in rows:
        result = partition(chain, **asked(row))
        assert result.states == int(row["n_antichain_states"])
        assert result.single_time == pytest.approx(float(row["single_machine_time_s"]), rel=1e-9)
        assert result.data_parallel_time == pytest.approx(float(row["DP_time_per_minibatch_s"]), rel=1e-9)
        assert result.time == pytest.approx(float(row["predicted_time_per_minibatch_s"]), rel=1e-9)


@pytest.mark.slow
@needs_profiles
@pytest.mark.parametrize("name", sorted({row["profile"] for row in golden()}))
def test_partitions_are_those_of_the_published_program_or_cost_the_same(name):
    chain = profile(name)
    others = 0
    for row in (row for row in golden() if row["profile"] == name):
        result, levels = partition(chain, **asked(row)), printed(row)
        stages = list(result.stages)
        for level in levels:
            mine = [(stage.replicas, round(stage.compute_time, 5)) for stage in stages]
            if mine != [(m, round(t, 5)) for _, _, m, t in level]:
                others += 1
                if len(levels) == 1 and all(len(layer.inputs or ()) < 2 for layer in chain.layers):  # states are layers
                    assert priced(chain, level, asked(row)) == pytest.approx(result.time, rel=1e-9)
                break
            stages = [inner for stage in stages for inner in stage.inner]
    assert others < len(golden())


def priced(chain, stages, question):
    """Time of a pipeline of a plain chain as the published program has it."""
    layers, (bandwidth,), compression = chain.layers, question["bandwidths"], question["activation_compression"]
    time = 0.0
    for start, end, m, _ in stages:
        compute = sum(layer.forward + layer.backward for layer in layers[start:end])
        weights = sum(layer.parameter_bytes for layer in layers[start:end])
        time = max(time, (compute + 4 * (m - 1) * weights / (bandwidth * m)) / m)
        if compression and start:
            time = max(time, 2 * layers[start - 1].output_bytes / (bandwidth * m * compression))
            if end < len(layers):
                time = max(time, 2 * layers[end - 1].output_bytes / (bandwidth * m * compression))
    return time


@needs_profiles
@pytest.mark.slow
@pytest.mark.parametrize(("name", "compress"), [("nasnetamobile", False), ("nasnetalarge", True)])
def test_graphs_that_the_published_program_cannot_finish_are_split_near_to_the_bound(name, compress):
    result = partition(profile(name), [4], [1e10], compress_branches=compress)
    assert result.time <= 1.001 * result.single_time / result.workers


# What a partition says of itself


@given(st.lists(COSTS.map(lambda c: (c[0] + 0.01, c[1], c[2])), min_size=1, max_size=12),
       st.sampled_from([[1], [5], [16], [4, 3]]))  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_stages_hold_every_layer_once_and_all_machines(costs, machines):
    chain = chain_of([(t, 1e6 * a, 1e6 * w) for t, a, w in costs])
    result = partition(chain, machines, [1e8] * len(machines))
    assert [name for stage in result.pipeline for name in stage.layers] == [layer.name for layer in chain.layers]
    assert result.workers == math.prod(machines)
    assert result.single_time == pytest.approx(sum(stage.compute_time for stage in result.pipeline))
    assert result.time >= result.single_time / result.workers * (1 - 1e-12)
    assert result.time <= result.data_parallel_time * (1 + 1e-12)


def test_a_straight_pipeline_keeps_one_version_of_weights_for_each_stage_from_here_on():  # narayanan2019 section 3.3
    chain = chain_of([(1.0, 1e3, 1e6)] * 8)
    result = partition(chain, [4], [1e9], straight=True)
    assert result.configuration == "1-1-1-1"
    assert result.weight_versions == (4, 3, 2, 1)
    assert result.staleness == (3, 2, 1, 0)
    assert result.in_flight == 4
    assert result.memory == (4 * 2.002e6, 3 * 2.002e6, 2 * 2.002e6, 2.002e6)
    assert result.sent_bytes == 2 * 3 * 1e3
    assert result.data_parallel_sent_bytes == 2 * 3 * 8e6 / 4


@pytest.mark.parametrize(("replicas", "admitted"), [
    ("15-1", 2), ("1-1-1-1", 4), ("7-1", 2), ("2-1-1", 2), ("9-5-1-1", 2), ("16", 1)
])  # fmt: skip
def test_noam_is_workers_over_replicas_of_the_input_stage(replicas, admitted):  # narayanan2019 section 3.2
    sizes = [int(size) for size in replicas.split("-")]
    # what a stage's replicas exchange takes as long as its layers on all of them would
    chain = chain_of([(float(size), 1.0, 1e9 * size / (2 * (size - 1)) if size > 1 else 1e14) for size in sizes])
    result = partition(chain, [sum(sizes)], [1e9 if len(sizes) > 1 else 1e12], recurrence="sosp19")
    assert result.configuration == replicas
    assert result.in_flight == admitted


def test_free_exchange_makes_data_parallelism_as_fast_as_anything():
    chain = chain_of([(1.0, 1e6, 1e6), (2.0, 1e6, 1e6), (0.5, 1e6, 1e6)])
    result = partition(chain, [4, 2], [1e15, 1e15])
    assert result.time == pytest.approx(result.data_parallel_time) == pytest.approx(3.5 / 8)


@given(st.lists(COSTS.map(lambda c: (c[0] + 0.01, c[1], c[2])), min_size=2, max_size=8), st.floats(1.0, 10.0))
@settings(deadline=None, max_examples=60)
def test_a_faster_network_never_makes_it_slower_nor_does_more_memory(costs, factor):
    chain = chain_of([(t, 1e9 * a, 1e9 * w) for t, a, w in costs])
    assert found(chain, [4], [factor * 1e9]) <= found(chain, [4], [1e9])
    assert found(chain, [4], [1e9], 2e9 * factor) <= found(chain, [4], [1e9], 2e9)


def test_compressing_outputs_is_sending_fewer_bytes():
    costs = [(1.0, 5e8, 1e9), (1.0, 5e8, 1e9), (1.0, 5e8, 1e9)]
    fewer = [(t, a / 8, w) for t, a, w in costs]
    for recurrence in ("sosp19", "arxiv2018"):
        squeezed = partition(chain_of(costs), [3], [1e9], recurrence=recurrence, activation_compression=8.0)
        assert squeezed.time == partition(chain_of(fewer), [3], [1e9], recurrence=recurrence).time


def test_branches_stay_together_where_asked():
    edges = [(0, 1), (1, 2), (0, 3), (3, 4), (2, 5), (4, 5)]
    chain = chain_of([(1.0, 1e3, 1e3)] * 6, edges)
    assert chain.branches == ((0,), (1, 2), (3, 4), (5,))
    result = partition(chain, [6], [1e12], straight=True)
    together = partition(chain, [4], [1e12], straight=True, compress_branches=True)
    assert [len(stage.layers) for stage in result.stages] == [1] * 6
    assert sorted(len(stage.layers) for stage in together.stages) == [1, 1, 2, 2]
    assert {("l1", "l2"), ("l3", "l4")} <= {stage.layers for stage in together.stages}


# Refusals


@pytest.mark.parametrize(("arguments", "says"), [
    ({"machines": []}, "machines"), ({"machines": [0]}, "machines"), ({"machines": [4.0]}, "machines"),
    ({"machines": "4"}, "machines"), ({"machines": [2] * 5, "bandwidths": [1e9] * 5}, "machines"),
    ({"machines": [10**6]}, "machines"), ({"bandwidths": [1e9, 1e9]}, "bandwidths"), ({"bandwidths": [0.0]}, "bandwidths"),
    ({"bandwidths": [math.nan]}, "bandwidths"), ({"bandwidths": 1e9}, "bandwidths"), ({"recurrence": "2019"}, "recurrence"),
    ({"memory_limit": 0}, "memory_limit"), ({"straight": 1}, "straight"), ({"compress_branches": None}, "compress_branches"),
    ({"activation_compression": 0.0}, "activation_compression"), ({"chain": []}, "chain"),
    ({"machines": [2, 2], "bandwidths": [1e9, 1e9], "recurrence": "arxiv2018"}, "one level"),
])  # fmt: skip
def test_a_question_that_makes_no_sense_is_refused_in_one_line(arguments, says):
    question = {"chain": chain_of([(1.0, 1.0, 1.0)] * 3), "machines": [2], "bandwidths": [1e9]} | arguments
    with pytest.raises(InvalidValue, match=says) as refusal:
        partition(**question)
    assert "\n" not in str(refusal.value)


def test_too_little_memory_is_said():
    with pytest.raises(IllegalPlan, match="memory_limit=10"):
        partition(chain_of([(1.0, 100.0, 100.0)] * 3), [2], [1e9], memory_limit=10.0)


def test_a_straight_pipeline_longer_than_the_model_is_refused():
    with pytest.raises(IllegalPlan, match="straight"):
        partition(chain_of([(1.0, 1.0, 1.0)] * 3), [4], [1e9], straight=True)


def test_layers_that_the_published_program_would_lose_are_refused():
    apart = chain_of([(1.0, 1.0, 1.0)] * 4, [(0, 1), (2, 3)])
    assert partition(apart, [2], [1e9]).time == 2.0
    with pytest.raises(CostModelError, match="lead on from the first"):
        partition(apart, [2], [1e9], recurrence="reference")


def test_a_question_that_would_take_minutes_is_refused():
    with pytest.raises(InvalidValue, match="fewer machines"):
        partition(chain_of([(1.0, 1.0, 1.0)] * 3000), [64, 64], [1e9, 1e9])


def test_asking_for_the_partitioner_does_not_load_a_compiler():
    loaded = "any(m in sys.modules for m in ('numba', 'scipy', 'sympy', 'pandas'))"
    program = f"import sys, costmodel.studies.partitioning; sys.exit({loaded})"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
