"""What the figure of communication shows, and that it shows both."""

import pytest

pytest.importorskip("plotly")

from costmodel.plots.networks import NetworkLine, OverheadPoint, communication_overhead, overhead_panels

POINTS = [
    OverheadPoint("one", "vgg", 8, 50.0, 48.0), OverheadPoint("one", "vgg", 2, 20.0, 25.0),
    OverheadPoint("one", "resnet", 2, 5.0, 4.0),
    OverheadPoint("two", "vgg", 2, 10.0, 11.0),
]  # fmt: skip


def test_points_become_lines_by_network_in_panels_by_server_in_order_of_gpus():
    panels = overhead_panels(POINTS)
    assert panels.instances == ("one", "two")
    assert panels.lines[0][0] == NetworkLine("vgg", (2, 8), (20.0, 50.0), (25.0, 48.0))
    assert [line.network for line in panels.lines[1]] == ["vgg"]


def test_published_and_predicted_differ_in_more_than_colour():
    figure = communication_overhead(POINTS, "published")
    published, predicted = figure.data[:2]
    assert published.line.color == predicted.line.color
    assert published.line.dash != predicted.line.dash
    assert published.marker.symbol != predicted.marker.symbol
    assert "%" in figure.layout.yaxis.title.text and figure.layout.xaxis.title.text == "GPUs"
    assert all("communication" in trace.hovertemplate for trace in figure.data)


def test_each_network_has_one_entry_in_the_legend():
    shown = [trace.name for trace in communication_overhead(POINTS).data if trace.showlegend]
    assert sorted(shown) == ["resnet", "vgg"]
