"""Figures of gradient checkpointing show what was computed."""

import pytest

from costmodel.plots.rematerialisation import STYLES, bars, memory_against_time, memory_of_schedule, trade
from costmodel.studies.rematerialisation.study import checkpoint, curve, uniform_chain
from costmodel.text.units import MiB

CHAIN = uniform_chain(16, 1e-3, MiB)


def test_the_lines_are_the_curves_points():
    result = curve(CHAIN, methods=["optimal", "sqrt"])
    shown = trade(result)
    assert shown.unit == "MiB"
    assert [line.method for line in shown.lines] == ["optimal", "sqrt"]
    for line in shown.lines:
        points = result.points[line.method]
        assert line.memory == tuple(point.peak_bytes / MiB for point in points)
        assert line.extra == pytest.approx([point.extra_forward_time / 16e-3 for point in points])
        assert len(line.hover) == len(points)
    assert shown.lines[0].hover[-1].endswith("peak 18.0 MiB<br>0 forward passes more")


def test_a_curve_has_a_line_a_method_told_apart_by_more_than_colour():
    figure = memory_against_time(curve(CHAIN))
    assert len(figure.data) == len(STYLES)
    for part in ("color", "symbol"):
        assert len({line.marker[part] for line in figure.data}) == len(STYLES)
    assert len({line.line.dash for line in figure.data}) == len(STYLES)
    assert "[MiB]" in figure.layout.xaxis.title.text
    assert "[forward passes]" in figure.layout.yaxis.title.text


def test_bars_are_what_each_pass_held():
    schedule = checkpoint(CHAIN, budget=9 * MiB)
    shown = bars(schedule)
    held = sorted(pair for places, heights, _ in shown.kinds.values() for pair in zip(places, heights, strict=True))
    passes = [
        nbytes / MiB
        for action, nbytes in zip(schedule.actions, schedule.execution.nbytes, strict=True) if action.kind != "discard"
    ]  # fmt: skip
    assert held == list(enumerate(passes))
    assert max(passes) <= shown.budget == 9.0
    figure = memory_of_schedule(schedule)
    assert [bar.name for bar in figure.data] == ["forward", "record", "backward"]
    assert len(figure.layout.shapes) == 1  # the budget
    assert not memory_of_schedule(checkpoint(CHAIN)).layout.shapes
