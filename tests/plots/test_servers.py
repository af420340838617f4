"""What figures of servers show, and that they show it in more than colour."""

import pytest

pytest.importorskip("plotly")

from costmodel.plots.servers import (
    SystemLine,
    SystemPoint,
    comparison_panels,
    published_beside_predicted,
    waiting_against_delay,
    waiting_by_delay,
)
from costmodel.studies.parameter_servers.servers import Stragglers, parameter_server

POINTS = [
    SystemPoint("one", "BytePS", 8, 50.0, 48.0), SystemPoint("one", "BytePS", 2, 20.0, 25.0),
    SystemPoint("one", "PS", 2, 5.0, None),
    SystemPoint("two", "BytePS", 2, None, 11.0),
]  # fmt: skip


def test_points_become_lines_by_system_in_panels_in_order():
    panels = comparison_panels(POINTS)
    assert panels.titles == ("one", "two")
    assert panels.systems == ("BytePS", "PS")
    assert panels.lines[0] == (
        SystemLine("BytePS", False, (2, 8), (20.0, 50.0)), SystemLine("BytePS", True, (2, 8), (25.0, 48.0)),
        SystemLine("PS", False, (2,), (5.0,)),
    )  # fmt: skip
    assert panels.lines[1] == (SystemLine("BytePS", True, (2,), (11.0,)),)


def test_published_and_predicted_differ_in_more_than_colour():
    figure = published_beside_predicted(POINTS, title="t", x_title="machines", y_title="goodput [Gbit/s]")
    published, predicted = figure.data[:2]
    assert published.marker.color == predicted.marker.color
    assert (published.mode, predicted.mode) == ("markers", "lines+markers")
    assert published.marker.symbol != predicted.marker.symbol
    assert figure.layout.yaxis.title.text == "goodput [Gbit/s]"
    named = [trace.name for trace in figure.data if trace.showlegend]
    assert named == ["BytePS, published", "BytePS, predicted", "PS, published"]
    assert all("goodput" in trace.hovertemplate for trace in figure.data)


def test_waiting_is_shown_in_per_cent_of_time():
    def result(delay):
        return parameter_server(
            0.0, compute_time=1.0, workers=4, servers=4, bandwidth=1e9, consistency="bounded_delay", delay=delay,
            stragglers=Stragglers(distribution="exponential", spread=1.0), steps=500,
        )  # fmt: skip

    line = waiting_by_delay("exponential", [(4, result(4)), (0, result(0))])
    assert line.delays == (0, 4)
    assert line.idle[0] == pytest.approx(52.0, abs=0.5)
    assert line.idle[0] + line.throughput[0] == pytest.approx(100.0)
    figure = waiting_against_delay([line])
    assert len(figure.data) == 2
    assert "[%]" in figure.layout.yaxis.title.text
