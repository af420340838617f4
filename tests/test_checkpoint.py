"""Schedules of gradient checkpointing: against closed forms, against trying everything, against an integer program."""

import dataclasses
import functools
import heapq
import itertools
import math
import random
import subprocess
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, assume, given, settings

from costmodel.description.layers import ChainLayer, LayerChain
from costmodel.formulas.systems import rematerialisation as formulas
from costmodel.studies.rematerialisation import kernel as kernels
from costmodel.studies.rematerialisation.solver import BACKWARD, DISCARD, FORWARD, RECORD, Action
from costmodel.studies.rematerialisation.study import (
    METHODS,
    MOST_LAYERS,
    checkpoint,
    curve,
    execute,
    uniform_chain,
)
from costmodel.text.errors import InvalidValue, NotModelled
from tests.seeds import rows

GOLDEN = [(100, 3, 490), (100, 10, 222), (1000, 10, 3636), (50, 3, 180), (10, 3, 15)]
"""Steps, snapshots and forward evaluations that pyrevolve's numforw gives."""
COUNTED = ("sqrt", "recursive", "revolve", "selective")
quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def chain_of(layers, inputs=None):
    """A chain of (forward, output, saved), backward twice the forward."""
    return LayerChain(name="drawn", layers=[
        ChainLayer(name=f"l{i}", forward=float(forward), backward=2.0 * forward, output_bytes=float(output), parameter_bytes=0.0,
                   saved_bytes=float(max(saved, output)), inputs=None if inputs is None else [f"l{j}" for j in inputs[i]])
        for i, (forward, output, saved) in enumerate(layers)
    ])  # fmt: skip


def drawn_chain(seed, most=5, records=True):
    draw = random.Random(seed)
    layers = [(draw.randint(1, 9), draw.randint(1, 9), 0) for _ in range(draw.randint(2, most))]
    return chain_of([(f, out, out + draw.choice([0, 0, 1, 5, 20]) * records) for f, out, _ in layers])


chains = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 30)), min_size=1, max_size=12).map(chain_of)


# Revolve


@pytest.mark.parametrize(("steps", "snapshots", "evaluations"), GOLDEN)
def test_revolves_formula_gives_the_golden_values(steps, snapshots, evaluations):
    repeats, reach = kernels.repetitions(steps, snapshots)
    assert formulas.binomial_advances(steps, snapshots, repeats, reach) == evaluations
    assert reach == math.comb(snapshots + repeats, snapshots) >= steps > math.comb(snapshots + repeats - 1, snapshots)


@functools.cache
def by_recursion(steps, snapshots):
    """Forward evaluations at best, for every chain of up to `steps`: the first cut tried everywhere [griewank2000]_."""
    if snapshots == 1:
        return [0] + [n * (n - 1) // 2 for n in range(1, steps + 1)]
    behind = by_recursion(steps, snapshots - 1)
    least = [0, 0]
    for n in range(2, steps + 1):
        least.append(min(cut + behind[n - cut] + least[cut] for cut in range(1, n)))
    return least


@pytest.mark.parametrize("snapshots", [1, 2, 3, 4, 7, 10])
def test_revolves_formula_is_the_least_over_every_first_cut(snapshots):
    for steps, least in enumerate(by_recursion(150, snapshots)[1:], 1):
        assert formulas.binomial_advances(steps, snapshots, *kernels.repetitions(steps, snapshots)) == least


@pytest.mark.parametrize(("steps", "snapshots", "evaluations"), GOLDEN)
def test_revolves_schedule_runs_as_often_as_its_formula_and_holds_no_more_snapshots(steps, snapshots, evaluations):
    held, most, at, run = {0}, 1, 0, 0
    waiting = steps
    for action, start, end in kernels.revolve(steps, snapshots).tolist():
        if action == kernels.SNAPSHOT:
            assert start == at
            held.add(at)
        elif action == kernels.RESTORE:
            assert start in held
            at = start
        elif action == kernels.ADVANCE:
            assert start == at
            run, at = run + end - start, end
        else:
            assert start == at == waiting - 1
            waiting -= 1
            held.discard(start)
        most = max(most, len(held))
    assert (run, waiting) == (evaluations, 0)
    assert most <= snapshots
    done = checkpoint(uniform_chain(steps), method="revolve", count=snapshots, input_bytes=1)
    assert done.extra_forward_time == evaluations
    assert sum(done.recomputed.values()) == evaluations
    assert done.peak_bytes == snapshots + 4  # the state at hand, its record, and the gradients on both sides


@pytest.mark.parametrize(("steps", "snapshots", "evaluations"), [
    pytest.param(*golden, marks=pytest.mark.slow if golden == (100, 3, 490) else ())
    for golden in GOLDEN if golden[0] <= MOST_LAYERS["optimal"]
])  # fmt: skip
def test_the_dynamic_program_finds_revolve_where_only_one_record_fits(steps, snapshots, evaluations):
    chain = uniform_chain(steps, saved_bytes=10_000)
    budget = snapshots + 1 + 10_000 + 2  # the state at hand, its record, and the gradients on both sides
    best = checkpoint(chain, budget=budget, input_bytes=1)
    assert best.exact
    assert best.extra_forward_time == evaluations
    assert best.peak_bytes <= budget
    revolve = checkpoint(chain, budget=budget, method="revolve", input_bytes=1)
    assert (revolve.count, revolve.extra_forward_time) == (snapshots, evaluations)


@pytest.mark.slow
def test_the_recursion_over_every_cut_gives_the_largest_golden_value():
    assert by_recursion(1000, 10)[1000] == 3636


# Segments


@pytest.mark.parametrize(("layers", "segments"), [(100, 10), (64, 8), (16, 4), (100, 4), (12, 1), (7, 7)])
def test_segments_hold_what_their_formula_says(layers, segments):  # chen2016, section 4.3
    done = checkpoint(uniform_chain(layers), method="sqrt", count=segments)
    # the formula counts the output of the last segment twice
    assert done.held_bytes + 1 == formulas.segmented_bytes(layers, segments, 1.0)
    assert done.extra_forward_time == formulas.segmented_extra(layers, segments, 1.0)
    assert done.peak_bytes <= formulas.segmented_bytes(layers, segments, 1.0) + 2


@pytest.mark.parametrize("layers", [4, 16, 100, 400])
def test_square_root_segments_hold_least(layers):  # chen2016: 2 sqrt(n)
    best = formulas.square_root_segments(float(layers))
    assert formulas.segmented_bytes(layers, best, 1.0) == 2 * math.sqrt(layers)
    assert all(formulas.segmented_bytes(layers, k, 1.0) >= 2 * math.sqrt(layers) for k in range(1, layers + 1))
    done = checkpoint(uniform_chain(layers), method="sqrt")
    assert done.count == best
    assert done.held_bytes == min(
        checkpoint(uniform_chain(layers), method="sqrt", count=k).held_bytes for k in range(1, layers + 1) if layers % k == 0
    )


@pytest.mark.parametrize("checkpoints", [1, 2, 3])
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_recursive_pieces_hold_what_their_recursion_says(checkpoints, levels):  # chen2016, section 4.4
    layers = (checkpoints + 1) ** levels

    def recursion(n):
        return checkpoints + recursion(n // (checkpoints + 1)) if n > 1 else 0

    assert formulas.recursive_bytes(layers, checkpoints, 1.0) == pytest.approx(recursion(layers), rel=1e-12)
    done = checkpoint(uniform_chain(layers), method="recursive", count=checkpoints)
    assert done.held_bytes == recursion(layers) + 1  # and the layer at work
    assert done.extra_forward_time <= layers * formulas.recursive_levels(layers, checkpoints)


def test_chens_plan_takes_as_much_longer_as_measured():
    extra = next(row for row in rows("published_numbers_misc.csv") if row["quantity"] == "extra runtime of sublinear plan")
    done = checkpoint(uniform_chain(100), method="sqrt")  # a backward pass takes twice a forward pass
    plain = checkpoint(uniform_chain(100))
    assert 100 * (done.time / plain.time - 1) == pytest.approx(float(extra["value"]), abs=5)


def test_segments_of_layers_that_differ_are_cut_by_their_bytes():
    chain = chain_of([(1, 8, 8), (1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 4, 4)])
    assert checkpoint(chain, method="sqrt", count=2).kept == ("l0", "l1", "l2", "l3", "l4", "l5")
    assert checkpoint(chain, method="sqrt", count=2).recorded == ("l1", "l2", "l3", "l4", "l5")


# Selective recomputation


def gpt_chain(heads, hidden, layers, sequence=2048):
    """Layers of a GPT cut at the core of attention, sizes of korthikanti2022 section 4.1, time by FLOP."""
    sbh, scores = float(sequence * hidden), 5.0 * heads * sequence**2
    square, products = 2.0 * sequence * hidden**2, 4.0 * sequence**2 * hidden
    parts = (
        ("before", 6.0, 3 * square, 11.0 * sbh), ("core", 2.0, products, 2.0 * sbh + scores),
        ("after", 2.0, 9 * square, 21.0 * sbh),
    )  # fmt: skip
    return LayerChain(name="gpt", layers=[
        ChainLayer(name=f"{i} {name}", forward=flop / 1e15, backward=flop / 5e14, output_bytes=out * sbh, parameter_bytes=0.0,
                   saved_bytes=saved)
        for i in range(layers) for name, out, flop, saved in parts
    ])  # fmt: skip


@pytest.mark.parametrize(("heads", "hidden", "layers", "saved"), [(96, 12288, 96, 70), (128, 20480, 105, 65)])
def test_selective_recomputation_saves_korthikantis_shares_of_gpt3_and_mt_nlg(heads, hidden, layers, saved):
    chain = gpt_chain(heads, hidden, layers)
    plain, selective = (checkpoint(chain, method="selective", count=count) for count in (0, layers))
    assert {name for name, runs in selective.recomputed.items() if runs} == {f"{i} core" for i in range(layers)}
    assert plain.held_bytes == layers * 2048 * hidden * (34 + 5 * heads * 2048 / hidden)
    assert selective.held_bytes == layers * 2048 * hidden * 34
    assert 100 * (1 - selective.held_bytes / plain.held_bytes) == pytest.approx(saved, abs=0.5)
    # the core's forward pass is 4 s of (24 h + 4 s), korthikanti2022 equation 8
    assert selective.recompute_factor - 1 == pytest.approx(4 * 2048 / (24 * hidden + 4 * 2048), rel=1e-9)


def test_a_recomputed_layer_takes_as_long_backward_as_measured():
    table = {row["item"]: row for row in rows("korthikanti_tables.csv") if row["item"].startswith("layer")}
    forward, backward = map(float, table["layer fwd/bwd baseline no recompute"]["value"].split("/"))
    chain = uniform_chain(11, forward, 1.0, backward=backward, saved_bytes=17.0)
    full = checkpoint(chain, method="selective", count=11)  # the last layer need not be run again
    measured = float(table["layer full recompute"]["value"].split("/")[1])
    assert backward + full.extra_forward_time / 10 == pytest.approx(measured, rel=0.01)


# The dynamic program


def every_schedule(first, last, ready):
    """Every way to do a part of a chain in which what is kept stays until its backward pass."""
    head = [] if first == last and ready else [Action(RECORD, first)]
    if first == last:
        yield [*head, Action(BACKWARD, first)]
        return
    for rest in every_schedule(first + 1, last, ready):
        yield [*head, *rest, Action(BACKWARD, first)]
    for cut in range(first + 1, last + 1):
        for keep in (FORWARD, RECORD):
            sweep = [Action(FORWARD, first)] if cut > first + 1 else []
            for layer in range(first + 1, cut - 1):
                sweep += [Action(FORWARD, layer), Action(DISCARD, layer - 1)]
            sweep += [Action(keep, cut - 1)] + [Action(DISCARD, cut - 2)] * (cut > first + 1)
            freed = [Action(DISCARD, cut - 1)] * (keep == FORWARD)
            for behind in every_schedule(cut, last, ready):
                for before in every_schedule(first, cut - 1, keep == RECORD):
                    yield [*sweep, *behind, *freed, *before]


def unbeaten(points):
    """Those of (bytes, time) that no other beats."""
    kept = []
    for nbytes, time in sorted(points):
        if not kept or time < kept[-1][1]:
            kept.append((nbytes, time))
    return kept


@pytest.mark.parametrize("seed", range(12))
def test_the_dynamic_program_finds_what_trying_every_schedule_finds(seed):
    chain = drawn_chain(seed, most=4)
    runs = [execute(chain, actions, input_bytes=3) for actions in every_schedule(0, len(chain.layers) - 1, False)]
    once = sum(layer.forward for layer in chain.layers)
    wanted = unbeaten((run.peak_bytes, run.forward_time - once) for run in runs)
    assert [tuple(point) for point in curve(chain, methods=["optimal"], input_bytes=3).points["optimal"]] == wanted


def least_time(chain, budget):
    """Least forward time of any schedule at all within a budget: the shortest path through all states of memory."""
    names = {layer.name: i for i, layer in enumerate(chain.layers)}
    count = len(chain.layers)
    inputs = [
        ([i - 1] if i else []) if layer.inputs is None else [names[source] for source in layer.inputs]
        for i, layer in enumerate(chain.layers)
    ]
    out = [layer.output_bytes for layer in chain.layers]
    saved = [layer.saved_bytes for layer in chain.layers]
    users = [[j for j in range(count) if i in inputs[j]] for i in range(count)]

    def held(outputs, records, reversed_):
        gradients = sum(
            sum(out[j] for j in inputs[i]) for i in range(count) if i in reversed_ and not reversed_.issuperset(inputs[i])
        )
        return sum(out[i] for i in outputs) + sum(saved[i] for i in records) + gradients

    start = (frozenset(), frozenset(), frozenset())
    best, queue, order = {start: 0.0}, [(0.0, 0, start)], itertools.count(1)
    while queue:
        time, _, state = heapq.heappop(queue)
        outputs, records, reversed_ = state
        if len(reversed_) == count:
            return time
        if time > best[state]:
            continue
        now = held(*state)
        following = []
        for i in range(count):
            alive = outputs | records
            if i in outputs:
                following.append((time, (outputs - {i}, records, reversed_)))
            if i in records:
                following.append((time, (outputs, records - {i}, reversed_)))
            if i in reversed_ or not alive.issuperset(inputs[i]):
                continue
            if i not in alive and now + out[i] <= budget:
                following.append((time + chain.layers[i].forward, (outputs | {i}, records, reversed_)))
            if i not in alive and now + saved[i] <= budget:
                following.append((time + chain.layers[i].forward, (outputs, records | {i}, reversed_)))
            gradients = sum(out[j] for j in inputs[i]) + (0 if users[i] else out[i])
            if i in records and reversed_.issuperset(users[i]) and now + gradients <= budget:
                following.append((time, (outputs, records - {i}, reversed_ | {i})))
        for after, where in following:
            if after < best.get(where, math.inf):
                best[where] = after
                heapq.heappush(queue, (after, next(order), where))
    return None


@pytest.mark.parametrize("seed", range(8))
def test_no_schedule_at_all_beats_the_dynamic_program_on_short_chains(seed):
    chain = drawn_chain(seed, most=4)
    points = curve(chain, methods=["optimal"]).points["optimal"]
    once = sum(layer.forward for layer in chain.layers)
    for point in points:
        assert least_time(chain, point.peak_bytes) - once == point.extra_forward_time
    assert least_time(chain, points[0].peak_bytes - 1) is None


def makes_again_what_it_kept(actions):
    """Whether a schedule discards what it has kept over a backward pass before the next layer's, and makes it again."""
    held, kept, dropped, reversed_ = set(), set(), set(), set()
    for kind, layer in actions:
        if kind in (FORWARD, RECORD):
            if layer in dropped:
                return True
            held.add(layer)
        elif kind == BACKWARD:
            held.discard(layer)
            reversed_.add(layer)
            kept |= held
        else:
            held.discard(layer)
            dropped |= {layer} & kept if layer + 1 not in reversed_ else set()
    return False


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_the_integer_program_beats_the_dynamic_program_only_by_making_again_what_it_kept(seed):
    chain = drawn_chain(seed, records=False)
    points = curve(chain, methods=["optimal"]).points["optimal"]
    for point in points:
        solved = checkpoint(chain, budget=point.peak_bytes, method="checkmate")
        assert solved.exact
        assert solved.peak_bytes <= point.peak_bytes
        assert solved.extra_forward_time <= point.extra_forward_time + 1e-9
        if solved.extra_forward_time < point.extra_forward_time - 1e-9:
            assert makes_again_what_it_kept(solved.actions)
        assert not makes_again_what_it_kept(checkpoint(chain, budget=point.peak_bytes).actions)
    with pytest.raises(InvalidValue, match="no schedule of method='checkmate'"):
        checkpoint(chain, budget=points[0].peak_bytes - 1, method="checkmate")


def test_keeping_what_is_kept_until_its_backward_pass_is_not_always_best():  # beaumont2019, section 4.1
    chain = chain_of([(1, 4, 4), (5, 8, 8), (1, 5, 5), (1, 5, 5), (7, 2, 2)])
    assert checkpoint(chain, budget=26).extra_forward_time == 7.0
    assert checkpoint(chain, budget=26, method="checkmate").extra_forward_time == pytest.approx(6.0)
    assert least_time(chain, 26) - 15.0 == 6.0


GRAPHS = [
    [(), (0,), (1,), (2, 0)],  # a skip connection
    [(), (0,), (0,), (1, 2)],  # two branches
    [(), (0,), (1,), (0, 2), (3, 1)],
]


@pytest.mark.parametrize("inputs", GRAPHS)
@pytest.mark.parametrize("seed", range(3))
def test_the_integer_program_finds_the_least_time_of_any_schedule_of_a_graph(inputs, seed):
    draw = random.Random(seed)
    sizes = [(draw.randint(1, 9), draw.randint(1, 9)) for _ in inputs]
    chain = chain_of([(forward, out, out) for forward, out in sizes], inputs)
    once = sum(forward for forward, _ in sizes)
    most = checkpoint(chain, method="checkmate").peak_bytes
    for budget in range(most, 0, -2):
        least = least_time(chain, budget)
        if least is None:
            with pytest.raises(InvalidValue, match="no schedule"):
                checkpoint(chain, budget=budget, method="checkmate")
            break
        solved = checkpoint(chain, budget=budget, method="checkmate")
        assert solved.extra_forward_time == pytest.approx(least - once, abs=1e-9)
        assert solved.peak_bytes <= budget


def test_a_frontier_with_fewer_points_is_never_below_the_whole_one():
    draw = random.Random(5)
    import numpy as np

    forward = np.array([draw.uniform(1, 9) for _ in range(24)])
    outputs = np.array([draw.randint(1, 10**9) for _ in range(24)])
    saved = outputs + np.array([draw.randint(0, 10**9) for _ in range(24)])
    gradients = np.concatenate(([0], outputs))

    def top(most):
        start, count, nbytes, times, _, exact = kernels.frontiers(forward, outputs, saved, gradients, most)
        points = slice(start[0, 0, -1], start[0, 0, -1] + count[0, 0, -1])
        return nbytes[points], times[points], exact

    nbytes, times, exact = top(4096)
    few_bytes, few_times, few_exact = top(64)
    assert exact
    assert not few_exact
    assert len(few_bytes) <= 64
    assert (few_bytes[0], few_bytes[-1]) == (nbytes[0], nbytes[-1])
    whole = times[np.searchsorted(nbytes, few_bytes, side="right") - 1]
    assert (few_times >= whole * (1 - 1e-12)).all()
    assert (few_times <= whole * 1.1).all()


# Invariants


@quick
@given(chains, st.sampled_from(METHODS[:-1]), st.floats(0.0, 1.2), st.floats(0.0, 1.2), st.integers(0, 20))
def test_more_bytes_never_cost_more_time_and_the_peak_stays_below_the_budget(chain, method, one, other, input_bytes):
    most = checkpoint(chain, input_bytes=input_bytes).peak_bytes
    times = []
    for budget in (max(one, other) * most, min(one, other) * most):
        try:
            done = checkpoint(chain, budget=budget, method=method, input_bytes=input_bytes)
        except InvalidValue as refused:
            assert "the least that method" in str(refused)
            times.append(math.inf)
            continue
        assert done.peak_bytes <= budget
        assert done.execution == execute(chain, done.actions, input_bytes=input_bytes)
        runs = sum((done.recomputed[layer.name] + 1) * layer.forward for layer in chain.layers)
        assert done.execution.forward_time == pytest.approx(runs, rel=1e-12)
        assert done.time == pytest.approx(runs + sum(layer.backward for layer in chain.layers), rel=1e-12)
        assert done.recompute_factor >= 1.0
        times.append(done.time)
    assert times[0] <= times[1]


@quick
@given(chains, st.sampled_from(METHODS[1:-1]), st.integers(0, 20))
def test_no_rule_beats_the_dynamic_program(chain, method, input_bytes):
    best = curve(chain, methods=["optimal"], input_bytes=input_bytes).points["optimal"]
    for point in curve(chain, methods=[method], input_bytes=input_bytes).points[method]:
        rivals = [one for one in best if one.peak_bytes <= point.peak_bytes]
        assert rivals
        assert rivals[-1].extra_forward_time <= point.extra_forward_time * (1 + 1e-12)


@quick
@given(chains)
def test_each_point_of_the_curve_is_a_schedule(chain):
    for point in curve(chain, methods=["optimal"]).points["optimal"]:
        done = checkpoint(chain, budget=point.peak_bytes)
        assert done.peak_bytes == point.peak_bytes
        assert done.extra_forward_time == pytest.approx(point.extra_forward_time, rel=1e-12)


@quick
@given(chains, st.sampled_from(METHODS[:-1]), st.floats(0.3, 1.0), st.data())
def test_a_schedule_that_lacks_an_action_is_refused(chain, method, share, data):
    most = checkpoint(chain).peak_bytes
    try:
        actions = list(checkpoint(chain, budget=share * most, method=method).actions)
    except InvalidValue:
        assume(False)
    del actions[data.draw(st.integers(0, len(actions) - 1))]
    with pytest.raises(InvalidValue, match="actions"):
        execute(chain, actions)


def test_keeping_everything_holds_every_record_and_two_gradients():
    chain = chain_of([(1, 3, 5), (1, 2, 9), (1, 4, 4)])
    done = checkpoint(chain)
    assert done.extra_forward_time == 0.0
    assert done.kept == done.recorded == ("l0", "l1", "l2")
    assert done.held_bytes == 18
    assert done.peak_bytes == 18 + 4 + 2


# Refusals


def test_what_a_method_does_not_take_is_refused_by_name():
    chain, graph = uniform_chain(4), chain_of([(1, 1, 1)] * 3, [(), (0,), (1, 0)])
    with pytest.raises(InvalidValue, match="method='quick'"):
        checkpoint(chain, method="quick")
    with pytest.raises(InvalidValue, match=r"budget=2: expected at least 4 bytes, the least that method='optimal' takes"):
        checkpoint(chain, budget=2)
    with pytest.raises(InvalidValue, match="budget=nan"):
        checkpoint(chain, budget=math.nan)
    with pytest.raises(InvalidValue, match="counts nothing"):
        checkpoint(chain, count=2)
    with pytest.raises(InvalidValue, match="at least 1 snapshots"):
        checkpoint(chain, method="revolve", count=0)
    with pytest.raises(InvalidValue, match="layers of 'uniform chain'"):
        checkpoint(uniform_chain(129))
    with pytest.raises(InvalidValue, match="a LayerChain"):
        checkpoint([1, 2])
    for method in METHODS[:-1]:
        with pytest.raises(NotModelled, match="layer 'l2' takes not just the layer before it"):
            checkpoint(graph, method=method)
    with pytest.raises(NotModelled, match="saved_bytes"):
        checkpoint(uniform_chain(4, saved_bytes=2.0), method="checkmate")
    with pytest.raises(InvalidValue, match="method of a curve='checkmate'"):
        curve(chain, methods=["checkmate"])
    with pytest.raises(InvalidValue, match="saved_bytes of layer a"):
        dataclasses.replace(chain.layers[0], name="a", saved_bytes=0.5)


def test_importing_the_verb_loads_no_compiler_and_no_solver():
    home = "costmodel.studies.rematerialisation.study"
    code = f"import {home}, sys; print([m for m in ('numba', 'scipy', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
