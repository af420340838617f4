"""The figure of an iteration's time shows every point, published and predicted, with its error."""

import pytest

pytest.importorskip("plotly")

from costmodel.plots import data_parallel as plots


def test_published_and_predicted_times_stand_beside_each_other():
    shown = plots.iterations({8: 0.23, 256: 0.257}, {256: 0.25, 8: 0.23})
    assert shown.gpus == (8, 256)
    assert shown.error == pytest.approx((0.0, -2.72), abs=0.01)
    assert shown.efficiency == pytest.approx((100.0, 89.5), abs=0.01)
    figure = plots.iteration_times(shown, "Iterations", "a source")
    named = {trace.name: trace for trace in figure.data}
    assert tuple(named["published"].y) == shown.published
    assert tuple(named["predicted"].y) == shown.predicted
    assert named["published"].marker.symbol != named["predicted"].marker.symbol
    assert named["predicted"].line.dash == "dash"
    assert "[s]" in figure.layout.yaxis.title.text
