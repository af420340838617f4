"""Figures of a search and of its plans show the numbers of their answers, with units and a second cue beside colour."""


import numpy as np
import pytest

from costmodel import InvalidValue, Plan, estimate, load_cluster, load_model, load_runs, search
from costmodel.evaluation.dimension_sweeps import heat_map, scaling
from costmodel.evaluation.factors import scaled
from costmodel.evaluation.operators import roofline
from costmodel.evaluation.sensitivity import sensitivities

pytest.importorskip("plotly")

from calibration.data.reference import QUOTED
from costmodel.plots import dimension_sweeps as sweep
from costmodel.plots import frontier, measured, sensitivity, stages, step
from costmodel.plots import rooflines as roofs
from costmodel.text.units import GiB

MODEL, CLUSTER = load_model("llama3-70b"), load_cluster("dgx-h100", gpus=64)
QUESTION = {"global_batch": 1024, "seq_len": 8192}


@pytest.fixture(scope="module")
def found():
    return search(MODEL, CLUSTER, **QUESTION, keep_evaluated=True)


def texts(figure):
    return " ".join(str(annotation.text) for annotation in figure.layout.annotations)


def test_the_bars_of_a_step_add_up_to_its_time_within_its_interval(found):
    shown = step.breakdown(found[:3])
    for place, plan in enumerate(found[:3]):
        assert sum(bar.times[place] for bar in shown.bars) == pytest.approx(plan.step_time)
        assert (shown.lows[place], shown.highs[place]) == pytest.approx(plan.time_interval)
    assert len(set(shown.plans)) == 3
    figure = step.breakdown_figure(found[:3])
    assert "[s]" in figure.layout.xaxis.title.text
    looks = {(trace.marker.color, trace.marker.pattern.shape) for trace in figure.data[:-1]}
    assert len(looks) == len(figure.data) - 1 == len(shown.bars)  # the last has the whiskers
    assert figure.data[-1].error_x.array[0] == pytest.approx(shown.highs[0] - shown.totals[0])
    assert f"{found[0].step_time:.4g} s" in figure.layout.yaxis.ticktext[0]


def test_bars_before_a_change_stand_beside_those_after_it(found):
    model, cluster = scaled(MODEL, CLUSTER, {"nvlink.bandwidth": 0.5})
    after = [estimate(model, cluster, plan.plan) for plan in found[:2]]
    figure = step.breakdown_figure(after, found[:2])
    assert figure.data[0].name == "before the change"
    assert list(figure.data[0].x) == pytest.approx([plan.step_time for plan in found[:2]])


def test_a_plan_alone_and_two_clusters_are_told_apart(found):
    assert len(step.breakdown(found[:1]).plans) == 1
    other = estimate(MODEL, load_cluster("dgx-b200", gpus=64), found[0].plan)
    names = step.labels([found[0], other])
    assert names[0].endswith("dgx-h100") and names[1].endswith("dgx-b200")
    assert len(set(step.labels([found[0], found[0]]))) == 2


def test_a_waterfall_leads_from_one_step_time_to_the_other(found):
    shown = step.fall(found[0], found[9])
    assert shown.start + sum(shown.added) == pytest.approx(shown.end)
    figure = step.waterfall(found[0], found[9])
    assert list(figure.data[0].measure) == [*["relative"] * len(shown.added), "total"]
    assert sum(figure.data[0].x[:-1]) == pytest.approx(figure.data[0].x[-1]) == shown.end - shown.start
    low, high = figure.layout.xaxis.range
    assert low < 0.0 < high and "[s]" in figure.layout.xaxis.title.text, "bars start at nothing"


def test_every_stage_stands_against_the_limit(found):
    plan = found[0]
    shown = stages.stages(plan)
    assert len(shown.totals) == plan.plan.pipeline_parallel
    for place, stage in enumerate(plan.memory.stages):
        assert sum(part.held[place] for part in shown.parts) * GiB == pytest.approx(stage.total)
    assert shown.limit * GiB == pytest.approx(plan.memory.total + plan.memory_margin)
    assert max(shown.totals) * GiB == pytest.approx(plan.memory.total)
    figure = stages.stages_figure(plan)
    assert "[GiB]" in figure.layout.yaxis.title.text and "fits up to" in texts(figure)


def test_the_frontier_is_the_plans_that_none_beats(found):
    every = found.every
    best = every.frontier
    for place in range(len(every)):
        beaten = (every.step_time <= every.step_time[place]) & (every.peak_memory <= every.peak_memory[place])
        beaten &= (every.step_time < every.step_time[place]) | (every.peak_memory < every.peak_memory[place])
        alike = (every.step_time == every.step_time[place]) & (every.peak_memory == every.peak_memory[place])
        assert (place in best) == (not beaten.any() and place == np.flatnonzero(alike)[0]), place


def test_all_evaluated_plans_are_drawn_or_counted(found):
    shown = frontier.frontier(found)
    drawn = sum(len(points.times) for points in (shown.fitting, shown.missing, shown.best))
    assert drawn + shown.left_out == found.evaluated
    assert min(shown.fitting.times + shown.best.times) <= found.best.step_time
    assert all(held <= shown.limit for held in shown.fitting.memory)
    assert all(held > shown.limit for held in shown.missing.memory)
    figure = frontier.frontier_figure(found)
    assert figure.data[1].marker.symbol == "circle-open"
    star = figure.data[-1]
    assert star.x[0] == pytest.approx(min(one.step_time for one in found.ranked)) and star.name == "fastest that fits"


def test_a_frontier_wants_a_search_that_kept_its_plans():
    with pytest.raises(InvalidValue, match="keep_evaluated"):
        frontier.frontier(search(MODEL, CLUSTER, **QUESTION, top=1))


def test_a_heat_map_frames_its_best_cell():
    made = heat_map(
        MODEL, CLUSTER, across=("tensor_parallel", [2, 4, 8]), down=("pipeline_parallel", [2, 8, 16]), **QUESTION
    )
    shown = sweep.cells(made)
    x, y = shown.best
    assert shown.values[y][x] == min(value for row in shown.values for value in row if value is not None)
    assert shown.texts[0][0] == "too large" and shown.texts[2][2] == sweep.DASH
    figure = sweep.heat_map_figure(made)
    assert figure.layout.shapes[0].x0 == x - 0.49 and "[s]" in figure.data[0].colorbar.title.text
    assert "too large" in texts(figure)


def test_scaling_shows_both_kinds_and_the_ideal():
    made = scaling(MODEL, CLUSTER, **QUESTION, gpus=[16, 64, 128])
    strong, weak = sweep.lines(made)
    assert strong.gpus == (64, 128) and 16 in strong.missing
    assert strong.rates[0] == pytest.approx(made.strong[1].tokens_per_second / 64) == strong.ideal[1]
    assert all(low < rate < high for low, rate, high in zip(weak.lows, weak.rates, weak.highs, strict=True))
    figure = sweep.scaling_figure(made)
    assert [trace.name.split(":")[0] for trace in figure.data] == ["strong", "weak", "ideal"]
    assert len({trace.line.dash for trace in figure.data}) == 3 and "16 GPUs" in figure.layout.title.text


def test_a_roofline_has_every_operator_below_its_roof(found):
    made = roofline(found[0])
    shown = roofs.roof(made)
    for dot in shown.dots:
        assert dot.rate <= min(shown.peak, shown.slope * dot.intensity) * (1 + 1e-9)
    figure = roofs.roofline_figure(made)
    assert len(figure.data) == 2 + len(shown.dots) and "[FLOP/byte]" in figure.layout.xaxis.title.text
    assert len({trace.marker.symbol for trace in figure.data[2:]}) == len(shown.dots)


def test_a_tornado_has_the_widest_bar_on_top(found):
    swings = sensitivities(found[0])
    shown = sensitivity.tornado(found[0], swings)
    widths = [abs(high - low) for low, high in zip(shown.lows, shown.highs, strict=True)]
    assert widths == sorted(widths, reverse=True)
    assert shown.highs[0] == pytest.approx(100 * (swings[0].time_high / found[0].step_time - 1))
    figure = sensitivity.tornado_figure(found[0], swings)
    assert figure.layout.yaxis.autorange == "reversed" and "[%]" in figure.layout.xaxis.title.text


def test_a_tornado_has_the_ends_before_a_change_behind_it(found):
    one, slower = found[0], estimate(*scaled(MODEL, CLUSTER, {"nvlink.bandwidth": 0.5}), found[0].plan, found[0].framework)
    swings, then = sensitivities(slower), sensitivities(one)
    shown = sensitivity.tornado(slower, swings, (one, then))
    known = {each.quantity: each for each in then}
    for each, ends in zip(swings, shown.before, strict=True):
        was = known[each.quantity]
        assert ends == pytest.approx([100 * (time / one.step_time - 1) for time in (was.time_low, was.time_high)])
    thin = sensitivity.tornado_figure(slower, swings, (one, then)).data[0]
    assert thin.name == "before the change" and len(thin.x) == len(swings)


def test_measured_stands_against_predicted_with_its_error():
    """Iteration times of Korthikanti et al. 2022 (arXiv 2205.05198), table 5."""
    published, runs = [1.42, 1.10, 18.13, 13.75, 49.05, 37.83, 94.42, 71.49], []
    for run in load_runs(QUOTED):
        if run.campaign.startswith("calculon"):
            made = estimate(run.model, run.cluster, run.plan, run.framework)
            runs.append(measured.MeasuredTime(run.model.name, run.id, run.seconds, made.step_time, *made.time_interval))
    shown = measured.comparison(runs)
    assert [run.measured for members in shown.runs.values() for run in members] == published
    drawn = [run for members in shown.runs.values() for run in members]
    error = np.mean([abs(run.predicted / run.measured - 1.0) for run in drawn])
    assert shown.title.endswith(f"mean error {100 * error:.1f} %")
    figure = measured.measured_figure(runs)
    assert sum(len(trace.x) for trace in figure.data[2:]) == len(published)
    assert "[s]" in figure.layout.xaxis.title.text and figure.layout.xaxis.range == figure.layout.yaxis.range


@pytest.mark.parametrize("value", [0.0, float("nan"), -1.0])
def test_a_run_without_a_time_is_refused(value):
    with pytest.raises(InvalidValue, match="measured of x"):
        measured.comparison([measured.MeasuredTime("a", "x", value, 1.0, 0.9, 1.1)])


def test_no_runs_are_refused():
    with pytest.raises(InvalidValue):
        measured.comparison([])


def test_a_small_cluster_without_pipeline_has_its_figures_too():
    plan = Plan(global_batch=8, seq_len=2048, data_parallel=1)
    one = estimate(load_model("bloom-560m"), load_cluster("dgx-h100", gpus=1), plan)
    assert len(stages.stages(one).totals) == 1
    assert step.breakdown([one]).plans == ("one GPU",)
    assert step.fall(one, one).added == [] and step.fall(one, one).change == "+0.0 %"
    step.waterfall(one, one)
