"""Figures of a ledger show its numbers, with units and a second cue beside colour."""

import pytest

from costmodel import Plan, load_cluster, load_model
from costmodel.simulation.transactions import ledger

pytest.importorskip("plotly")

import itertools

from costmodel.plots import traffic as plots


@pytest.fixture(scope="module")
def made():
    plan = Plan(global_batch=64, seq_len=2048, data_parallel=8, tensor_parallel=4, pipeline_parallel=2, zero_stage=1)
    return ledger(load_model("bloom-560m"), load_cluster("dgx-h100", gpus=64), plan)


def test_the_histogram_shows_every_transaction_of_the_busiest_stage(made):
    bars = plots.size_bars(made)
    assert sum(sum(one.counts) for one in bars) == pytest.approx(sum(row.count for row in made.of()))
    figure = plots.transaction_sizes(made)
    assert [trace.name for trace in figure.data] == [one.name for one in bars]
    assert "[bytes]" in figure.layout.xaxis.title.text
    assert f"the {made.busiest} stage" in figure.layout.title.text
    assert all(text.endswith("B") for trace in figure.data for (text,) in trace.customdata)  # KiB, MiB, ...
    edges = sorted(zip((x for one in bars for x in one.left), (x for one in bars for x in one.right), strict=True))
    assert all(right <= left * (1 + 1e-9) for (_, right), (left, _) in itertools.pairwise(edges))
    assert len({trace.marker.pattern.shape for trace in figure.data}) == len(figure.data)


def test_the_loads_show_busy_share_and_rates_of_every_level(made):
    shown = plots.load_bars(made)
    assert shown.levels == tuple(level.name for level in made.estimate.cluster.levels)
    assert shown.busy[shown.first] == pytest.approx(100 * made.saturates_first.busy)
    figure = plots.link_loads(made)
    assert [trace.name for trace in figure.data] == ["busy", "mean over the step", "peak, fastest transaction", "bandwidth"]
    assert all(mean <= peak <= most for mean, peak, most in zip(shown.mean, shown.peak, shown.bandwidth, strict=True))
    assert "GB/s" in figure.layout.yaxis2.title.text


def test_a_plan_without_exchange_has_empty_figures():
    alone = ledger(load_model("bloom-560m"), load_cluster("dgx-h100", gpus=1), Plan(global_batch=1, seq_len=512))
    assert plots.size_bars(alone) == ()
    assert plots.link_loads(alone).data[0].text[0] == "0 %"
