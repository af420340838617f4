"""Downpour and Sandblaster: closed forms against event simulations, and figures 3 and 5 of Dean et al. 2012."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from costmodel.formulas.systems import distbelief as formulas
from costmodel.studies.parameter_servers import distbelief_kernel as kernel
from costmodel.studies.parameter_servers.downpour_sgd import StepsCurve, downpour
from costmodel.studies.parameter_servers.sandblaster_lbfgs import sandblaster
from costmodel.studies.parameter_servers.servers import Stragglers
from costmodel.text.errors import CostModelError, InvalidValue

SPEECH = 4.0 * 41.8e6
DOWNPOUR = {"compute_time": 1.0, "replicas": 20, "servers": 256, "bandwidth": 125e6, "machines_per_replica": 2}
BLASTER = {"portion_time": 10.0, "portions": 4000, "replicas": 1000, "servers": 256, "bandwidth": 1.25e9}


def followed(portions, replicas, spread, backup, mtbf=math.inf, restart=0.0, batches=3000):
    times = np.zeros(batches)
    kernel.batches(portions, replicas, 1.0, spread, backup, mtbf, restart, times, 1)
    return times.mean()


@pytest.mark.parametrize(("portions", "replicas"), [(8, 8), (40, 8), (100, 16)])
@pytest.mark.parametrize("backup", [False, True])
def test_a_batch_takes_what_following_its_portions_gives(portions, replicas, backup):
    expected = formulas.sandblaster_batch_time(float(portions), float(replicas), 1.0, float(backup))
    assert followed(portions, replicas, 1.0, backup) == pytest.approx(expected, rel=0.02)


def test_constant_portions_go_round_by_round():
    assert followed(40, 16, 0.0, False, batches=3) == pytest.approx(3.0)
    constant = {"straggler_spread": 0.0, "backup": False}
    run = sandblaster(0.0, portion_time=2.0, portions=40, replicas=16, servers=1, bandwidth=1e9, **constant)
    assert run.portions_time == 6.0 and run.answered_by == "closed form"


def test_replicas_that_fail_stretch_a_batch_by_the_time_that_they_are_down():
    """Exponential portions with backup tasks; the mean over batches of a share of replicas that comes and goes."""
    up = formulas.replica_availability(1.0, 50.0, 5.0)
    expected = formulas.sandblaster_batch_time(400.0, 40.0, 1.0, 1.0) / up
    assert followed(400, 40, 1.0, True, mtbf=50.0, restart=5.0, batches=400) == pytest.approx(expected, rel=0.02)


def test_downpour_s_replicas_that_fail_push_less_often():
    mtbf, restart, horizon = 2e5, 600.0, 4e6
    expected = formulas.updates_per_second(20.0, formulas.availability(2.0, 30.0, mtbf, restart), 10.0, 1.0) * horizon
    counted = kernel.pushes(20, 10.0, 2, 30, mtbf, restart, horizon, 3)
    assert counted == pytest.approx(expected, rel=0.02)


def test_backup_tasks_cut_the_wait_for_the_slowest():
    run = sandblaster(SPEECH, **BLASTER)
    assert run.portions_time < 0.5 * run.plain_portions_time
    assert run.staleness.mean == 0.0


def test_pushing_and_fetching_less_often_moves_fewer_bytes_and_makes_staler_gradients():
    often, seldom = downpour(SPEECH, **DOWNPOUR), downpour(SPEECH, **DOWNPOUR, fetch_interval=5, push_interval=5)
    assert seldom.push_bytes == often.push_bytes / 5 and seldom.fetch_bytes == often.fetch_bytes / 5
    assert often.staleness.mean == pytest.approx(19, abs=0.5)
    late = downpour(SPEECH, **DOWNPOUR, fetch_interval=5)
    assert late.staleness.mean > often.staleness.mean + 10


def test_stragglers_slow_none_but_themselves():
    even = downpour(SPEECH, **DOWNPOUR)
    uneven = downpour(SPEECH, **DOWNPOUR, stragglers=Stragglers(distribution="exponential", spread=0.5))
    assert uneven.updates_per_second == pytest.approx(even.updates_per_second, rel=0.05)


def test_adagrad_s_effect_and_the_curve_are_inputs():
    curve = StepsCurve(staleness=(0.0, 100.0), updates=(1e6, 2e6))
    plain = downpour(SPEECH, **DOWNPOUR, curve=curve)
    faster = downpour(SPEECH, **DOWNPOUR, curve=curve, update_factor=0.5)
    assert plain.updates == pytest.approx(1.19e6) and faster.hours == pytest.approx(plain.hours / 2)
    assert plain.hours == pytest.approx(plain.updates / plain.updates_per_second / 3600)


# Figure 3: speed-up of a model split over machines (markers read from the figure's vector graphics, error 0.02)

FIGURE_3 = {
    "Speech 42M": ((2, 1.36), (4, 1.851), (8, 2.227)),
    "Images 80M": ((2, 1.123), (4, 1.462), (8, 2.232), (16, 2.385), (36, 3.091), (64, 4.576), (100, 5.096)),
    "Images 330M": ((2, 1.494), (4, 2.227), (8, 3.782), (16, 4.711), (36, 6.293), (64, 7.008), (100, 11.088)),
    "Images 1.7B": ((2, 1.132), (4, 2.2), (8, 3.365), (16, 4.646), (36, 5.607), (64, 9.942), (100, 12.378)),
}
OUTLIERS = {("Images 1.7B", 2), ("Images 330M", 64), ("Images 1.7B", 36)}
"""Markers beyond a fifth: two machines of the largest model barely beat one, and its curve sags at 36 machines as the
next one's does at 64, then both rise; a smooth function of the machines does neither."""


def speed_up_errors(model):
    """Errors of the speed-up with the network's and the synchronisation's constant fitted, as in the closed form."""
    crossing = formulas.dense_crossing if model.startswith("Speech") else formulas.local_crossing

    def errors(values):
        exchange, waiting = np.abs(values)
        return np.array([
            formulas.partition_time(1.0, float(m), exchange * crossing(1.0, float(m)), 1.0, waiting) * s - 1.0
            for m, s in FIGURE_3[model]
        ])  # fmt: skip

    starts = ([0.1, 0.1], [0.5, 0.01], [0.01, 0.3])
    found = [minimize(lambda values: np.abs(errors(values)).sum(), start, method="Nelder-Mead") for start in starts]
    return dict(zip([m for m, _ in FIGURE_3[model]], errors(min(found, key=lambda one: one.fun).x), strict=True))


def test_figure_3_s_speech_model_is_within_15_per_cent_to_8_machines():
    assert max(map(abs, speed_up_errors("Speech 42M").values())) <= 0.15


def test_figure_3_s_image_models_are_within_10_per_cent_on_average_with_three_outliers():
    beyond = set()
    for model in ("Images 80M", "Images 330M", "Images 1.7B"):
        errors = speed_up_errors(model)
        assert np.mean(np.abs(list(errors.values()))) <= 0.10, model
        beyond |= {(model, machines) for machines, error in errors.items() if abs(error) > 0.2}
    assert beyond == OUTLIERS


# Figure 5: hours to 16 % accuracy against machines; markers to 4 machines and 0.2 hours

FIGURE_5 = {
    "Downpour": ((297, 74.0), (336, 58.0), (656, 32.0), (1056, 33.0)),
    "Downpour with Adagrad": ((297, 38.0), (336, 35.0), (656, 17.0), (1056, 16.0)),
    "Sandblaster": ((756, 56.0), (1256, 40.0), (2255, 27.0), (5255, 25.0)),
}


def test_figure_5_s_machines_are_those_of_servers_and_replicas():
    """256 servers and two machines a replica of Downpour, one of Sandblaster: an inference from the markers."""
    counts = [downpour(SPEECH, **DOWNPOUR | {"replicas": r}).machines for r in (20, 40, 200, 400)]
    assert counts == pytest.approx([machines for machines, _ in FIGURE_5["Downpour"]], abs=4)
    counts = [sandblaster(SPEECH, **BLASTER | {"replicas": r, "portions": 4 * r}).machines - 1 for r in (500, 1000, 2000, 5000)]
    assert counts == pytest.approx([machines for machines, _ in FIGURE_5["Sandblaster"]], abs=4)


REPLICAS = (20, 40, 200, 400)
FAST = DOWNPOUR | {"bandwidth": 1.25e9}
"""Links that 400 replicas don't fill; the paper doesn't state its own."""


def curve_of(name):
    """Updates that grow by the same for each update missed: the two constants that fit a line of figure 5 best."""
    rates = [downpour(SPEECH, **FAST | {"replicas": r}).updates_per_second * 3600 for r in REPLICAS]
    hours = np.array([hour for _, hour in FIGURE_5[name]])
    columns = np.array([[1.0 / rate, (r - 1.0) / rate] for r, rate in zip(REPLICAS, rates, strict=True)]) / hours[:, None]
    fewest, more = np.linalg.lstsq(columns, np.ones(4), rcond=None)[0]
    return StepsCurve(staleness=(0.0, 1.0), updates=(fewest, fewest + more))


@pytest.mark.parametrize(("name", "most"), [("Downpour", 0.10), ("Downpour with Adagrad", 0.25)])
def test_figure_5_s_hours_follow_from_updates_that_grow_with_staleness(name, most):
    """Adagrad's 35 hours on 40 replicas are hardly fewer than its 38 on 20, which no falling curve follows: 21 % there."""
    curve = curve_of(name)
    for replicas, (_, hours) in zip(REPLICAS, FIGURE_5[name], strict=True):
        found = downpour(SPEECH, **FAST | {"replicas": replicas}, curve=curve).hours
        assert found == pytest.approx(hours, rel=most)


def test_figure_5_s_sandblaster_spends_a_fixed_part_of_a_batch_that_no_replica_shortens():
    hours, replicas = np.array([hour for _, hour in FIGURE_5["Sandblaster"]]), np.array([500.0, 1000.0, 2000.0, 5000.0])
    shared, fixed = np.linalg.lstsq(np.stack([1 / replicas, np.ones(4)], 1) / hours[:, None], np.ones(4), rcond=None)[0]
    taken = [formulas.sandblaster_batch_time(20_000.0, r, shared / 20_000.0, 1.0) + fixed for r in replicas]
    assert taken == pytest.approx(hours, rel=0.10)


# At the door


@pytest.mark.parametrize(("given", "field"), [
    ({"machines_per_replica": 0}, "machines_per_replica"), ({"restart": -1.0}, "restart"), ({"curve": 5.0}, "curve"),
    ({"machine_mtbf": 0.0}, "machine_mtbf"), ({"fetch_interval": 3, "push_interval": 2}, "fetch_interval"),
    ({"bandwidth": 0.0}, "bandwidth"), ({"update_factor": 0.0}, "update_factor"),
])  # fmt: skip
def test_nonsense_is_refused_by_downpour(given, field):
    with pytest.raises(CostModelError, match=f"^{field}"):
        downpour(SPEECH, **DOWNPOUR | given)


@pytest.mark.parametrize(("given", "field"), [
    ({"portions": 10}, "portions"), ({"straggler_spread": 1.5}, "straggler_spread"), ({"backup": 1}, "backup"),
    ({"portion_time": 0.0}, "portion_time"), ({"history": -1}, "history"), ({"batches": 0.0}, "batches"),
])  # fmt: skip
def test_nonsense_is_refused_by_sandblaster(given, field):
    with pytest.raises(InvalidValue, match=f"^{field}"):
        sandblaster(SPEECH, **BLASTER | given)


@pytest.mark.parametrize("make", [
    lambda: StepsCurve(staleness=(), updates=()), lambda: StepsCurve(staleness=(1.0, 0.0), updates=(1.0, 2.0)),
    lambda: StepsCurve(staleness=(0.0,), updates=(-1.0,)),
])  # fmt: skip
def test_a_curve_of_nothing_is_refused(make):
    with pytest.raises(InvalidValue):
        make()
