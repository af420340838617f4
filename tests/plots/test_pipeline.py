"""The picture of a pipeline shows what the timeline says."""

import numpy as np
import pytest

from costmodel.description.schedule import pipeline_schedule
from costmodel.plots.pipeline import LINES, LOOKS, pipeline_figure, shown
from costmodel.simulation.playback import simulate_schedule


@pytest.mark.parametrize("name", ["gpipe", "zb-h2", "zb-v", "dualpipe"])
def test_every_pass_is_one_bar_where_it_starts_and_as_long_as_it_takes(name):
    played = simulate_schedule(pipeline_schedule(name, stages=4, micro_batches=8, syncs=True), 1e-3, 1e-3, 1e-3, sync=2e-3)
    what = shown(played)
    assert what.unit == "ms"
    for bars in what.bars:
        chosen = played.schedule.kind == bars.kind
        assert (bars.rank == played.schedule.rank[chosen]).all()
        assert bars.width.sum() == pytest.approx(1e3 * played.work[chosen].sum())
        assert (bars.start + bars.width).max() == pytest.approx(1e3 * played.end[chosen].max())
    assert {bars.kind for bars in what.bars} <= set(LOOKS)


def test_the_memory_below_rises_to_what_is_in_flight():
    played = simulate_schedule(pipeline_schedule("1f1b", stages=4, micro_batches=8), 1.0, 1.0, 1.0)
    assert [count.max() for _, _, count in shown(played).held] == played.in_flight.tolist()


def test_kinds_differ_in_more_than_colour():
    assert len({pattern for _, pattern, _ in LOOKS.values()} | {None}) > 3
    assert len(set(LINES)) == len(LINES)


def test_a_figure_has_units_on_its_axes_and_words_for_every_bar():
    played = simulate_schedule(pipeline_schedule("interleaved", stages=2, micro_batches=4, chunks=2), 1.0, 1.0)
    figure = pipeline_figure(played)
    assert figure.layout.xaxis.title.text == "time [s]"
    assert figure.layout.yaxis.title.text == "rank"
    assert figure.layout.yaxis2.title.text == "micro-batches<br>held"
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [trace.name for trace in bars] == ["forward", "backward"]
    assert all(len(trace.hovertext) == len(trace.x) for trace in bars)
    assert "rank 0: forward of micro-batch 0 on stage 0<br>0 ns to 1 s, 1 s" in bars[0].hovertext


def test_a_wide_pipeline_is_not_labelled_to_death():
    what = shown(simulate_schedule(pipeline_schedule("gpipe", stages=32, micro_batches=64), 1.0, 1.0))
    assert len(what.held) == 8
    assert not any(any(bars.label) for bars in what.bars)
    assert np.unique([rank for rank, _, _ in what.held]).tolist()[-1] == 31


def test_the_passes_before_a_change_stand_behind_in_one_path():
    order = pipeline_schedule("1f1b", stages=2, micro_batches=4)
    then, now = simulate_schedule(order, 1.0, 1.0), simulate_schedule(order, 2.0, 1.0)
    rank, start, width = shown(now, then).before
    passes = then.work > 0.0
    assert rank.tolist() == order.rank[passes].tolist() and width.tolist() == then.work[passes].tolist()
    assert (start + width).tolist() == then.end[passes].tolist()
    ghost = pipeline_figure(now, then).data[0]
    assert ghost.name == "before the change" and max(x for x in ghost.x if x is not None) == then.total
    assert sum(x is None for x in ghost.x) == passes.sum()
