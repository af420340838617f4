"""One vocabulary of staleness: what each system's papers say, in updates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.description.layers import ChainLayer, LayerChain
from costmodel.studies.parameter_servers import staleness
from costmodel.studies.parameter_servers.servers import Stragglers, parameter_server
from costmodel.studies.parameter_servers.staleness import Staleness
from costmodel.text.errors import InvalidValue


@given(st.integers(1, 60))
def test_pipedream_s_stages_miss_n_minus_k_updates_and_all_miss_as_many_with_vertical_sync(stages):
    stale = staleness.pipedream(stages)
    assert list(stale.by_name.values()) == [stages - k for k in range(1, stages + 1)]  # narayanan2019, section 3.3
    assert stale.largest == stages - 1 and stale.mean == pytest.approx((stages - 1) / 2)
    assert set(staleness.pipedream(stages, vertical_sync=True).by_name.values()) == {stages - 1}


def test_pipedream_s_partitions_say_the_same():
    from costmodel.studies.partitioning import partition

    layers = [ChainLayer(name=f"l{i}", forward=1.0, backward=2.0, output_bytes=1.0, parameter_bytes=1e9) for i in range(4)]
    found = partition(LayerChain(name="net", layers=layers), machines=[4], bandwidths=[1e9], straight=True)
    assert tuple(staleness.pipedream(len(found.pipeline)).by_name.values()) == found.staleness


def test_a_bounded_delay_bounds_the_updates_missed_between_none_and_all():
    kept = {"compute_time": 1.0, "workers": 8, "servers": 2, "bandwidth": 1e9,
            "stragglers": Stragglers(distribution="exponential", spread=1.0)}  # fmt: skip
    runs = [parameter_server(1e6, **kept, consistency="bounded_delay", delay=delay) for delay in (1, 4, 16)]
    means = [staleness.measured(run.staleness).mean for run in runs]
    free = staleness.measured(parameter_server(1e6, **kept, consistency="asynchronous").staleness).mean
    assert 0.0 < means[0] < means[1] < means[2] < free * 1.02
    assert free == pytest.approx(7.0, rel=0.02)


@given(st.integers(1, 500))
def test_local_sgd_misses_the_others_steps_since_the_last_exchange(steps):
    assert staleness.local_sgd(steps).mean == pytest.approx((steps - 1) / 2)
    assert staleness.local_sgd(steps).largest == steps - 1


def test_synchronous_is_none_and_delayed_is_one():
    assert staleness.synchronous().mean == 0.0
    assert staleness.delayed().mean == 1.0 and staleness.delayed(0) == staleness.synchronous()


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=20), st.floats(0.0, 1.0))
def test_a_quantile_holds_its_share(weights, share):
    stale = staleness.measured([weight / sum(weights) for weight in weights])
    at = stale.quantile(share)
    assert sum(stale.distributions["every worker"][: at + 1]) >= share - 1e-9
    assert at == 0 or sum(stale.distributions["every worker"][:at]) < share + 1e-9


@pytest.mark.parametrize("make", [
    lambda: Staleness({}), lambda: Staleness({"x": (0.5, 0.4)}), lambda: Staleness({"x": (-0.5, 1.5)}),
    lambda: staleness.pipedream(0), lambda: staleness.delayed(-1), lambda: staleness.local_sgd(True),
    lambda: staleness.synchronous().quantile(2.0),
])  # fmt: skip
def test_nonsense_is_refused(make):
    with pytest.raises(InvalidValue):
        make()
