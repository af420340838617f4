"""Figures of a step show what was played, with units and a second cue beside colour."""

import numpy as np
import pytest

from costmodel import Plan, load_cluster, load_model
from costmodel.simulation.played_step import BUSY, IDLE
from costmodel.simulation.replay import simulate

pytest.importorskip("plotly")

from costmodel.plots import simulation as plots


@pytest.fixture(scope="module", params=[1, 4])
def step(request):
    plan = Plan(
        global_batch=64, seq_len=2048, tensor_parallel=4, pipeline_parallel=request.param, data_parallel=16 // request.param
    )
    return simulate(load_model("bloom-560m"), load_cluster("dgx-h100", gpus=64), plan)


def test_rows_are_compute_memory_and_every_level_of_links(step):
    shown = plots.shown(step, 100)
    levels = [level.name for level in step.estimate.cluster.levels]
    assert [row.unit for row in shown.rows] == ["% of the time", "GiB", *["GB/s"] * len(levels)]
    assert [row.title for row in shown.rows[2:]] == [f"{level} link" for level in levels]
    for row in shown.rows:
        assert all(len(line.values) == 100 and line.values.max() <= row.limit * (1 + 1e-6) for line in row.lines)
    use = step.utilisation(100)
    assert shown.rows[0].lines[0].values == pytest.approx(100 * use.compute.mean(0))
    assert shown.rows[1].lines[0].values == pytest.approx(use.held[0] / 2**30)
    assert shown.rows[3].lines[0].values == pytest.approx(use.links[levels[1]].mean(0) / 1e9)


def test_rows_share_the_time_axis_and_lines_differ_in_more_than_colour(step):
    figure = plots.utilisation(step, 50)
    axes = [figure.layout[f"xaxis{place}"] for place in ("", 2, 3)]
    assert {axis.matches for axis in axes} == {"x4"} and figure.layout.xaxis4.title.text.startswith("time [")
    for axis in ("yaxis", "yaxis2"):
        dashes = [trace.line.dash for trace in figure.data if trace.yaxis == axis.replace("axis", "")]
        assert len(set(dashes)) == len(dashes) > 1
        assert "[" in figure.layout[axis].title.text
    assert all(trace.hovertemplate for trace in figure.data)


def test_bars_of_a_stage_add_up_to_the_step(step):
    shown = plots.parts(step)
    assert sum(shown.shares.values()) == pytest.approx(np.full(step.stages, 100.0), rel=1e-4)
    figure = plots.time_parts(step)
    assert [trace.name.split(" (")[0] for trace in figure.data] == list(shown.shares)
    assert set(plots.IDLE_LOOKS) == {*BUSY, *IDLE} and len(set(plots.IDLE_LOOKS.values())) == len(plots.IDLE_LOOKS)
    assert figure.layout.xaxis.title.text == "share of the step [%]"
