"""The figure of a sweep over message sizes shows each algorithm at its fastest, and what was measured."""

import pytest

from costmodel import load_cluster
from costmodel.evaluation.collectives import collective_time
from costmodel.plots.communication import communication_figure, message_sweep
from costmodel.text.errors import InvalidValue

ANSWERS = [collective_time("all-reduce", 2.0**power, 8, load_cluster("dgx-h100")) for power in range(15, 34)]


def test_a_curve_holds_each_algorithms_fastest_protocol():
    sweep = message_sweep(ANSWERS)
    assert {curve.name for curve in sweep.curves} == {"ring", "tree", "nvls"}
    for place, answer in enumerate(ANSWERS):
        for curve in sweep.curves:
            assert curve.seconds[place] == min(one.time for one in answer.alternatives if one.algorithm == curve.name)
        assert sweep.chosen.seconds[place] == min(curve.seconds[place] for curve in sweep.curves)


def test_measured_points_keep_their_time_and_get_the_bus_bandwidth_of_nccl_tests():
    sweep = message_sweep(ANSWERS, [(2.0**30, 4053.4e-6)])  # 463.58 GB/s as printed
    assert sweep.measured.bandwidths[0] / 1e9 == pytest.approx(463.58, rel=1e-4)


def test_answers_to_different_questions_share_no_figure():
    other = collective_time("all-gather", 2.0**30, 8, load_cluster("dgx-h100"))
    with pytest.raises(InvalidValue, match="one operation of one group"):
        message_sweep([*ANSWERS, other])
    with pytest.raises(InvalidValue, match="at least one answer"):
        message_sweep([])


def test_what_takes_no_time_has_no_bandwidth_to_show():
    for nbytes, ranks in ((2.0**20, 1), (0.0, 8)):
        with pytest.raises(InvalidValue, match="at least two ranks and some bytes"):
            message_sweep([collective_time("all-reduce", nbytes, ranks, load_cluster("dgx-h100"))])
    with pytest.raises(InvalidValue, match="measured="):
        message_sweep(ANSWERS, [(2.0**20, 0.0)])


def test_both_axes_carry_units_and_every_point_says_what_it_is():
    figure = communication_figure(ANSWERS, [(2.0**30, 4053.4e-6)])
    assert figure.layout.yaxis.title.text == "time [us]"
    assert figure.layout.yaxis2.title.text == "bus bandwidth [GB/s]"
    assert "all-reduce of 8 ranks" in figure.layout.title.text and "NCCL" in figure.layout.title.text
    assert all(len(trace.text) == len(trace.x) for trace in figure.data)
    lines = [trace for trace in figure.data if trace.mode == "lines" and trace.showlegend]
    assert len({(trace.line.color, trace.line.dash) for trace in lines}) == len(lines)
