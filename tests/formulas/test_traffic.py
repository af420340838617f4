"""Loads of links, counted edge by edge and message by message."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from costmodel import load_framework
from costmodel.arithmetic.named_tuples import replaced
from costmodel.catalogue.communication import constants_of_a_step
from costmodel.formulas.network import collectives, traffic
from costmodel.formulas.quantities import LevelNumbers, NetworkNumbers

NETWORK = NetworkNumbers(LevelNumbers(4.0, 1e-6, 4e11), LevelNumbers(16.0, 5e-6, 5e10), LevelNumbers(1e7, 9e-6, 2.5e10))
QUIET = {"network_quality": 1.0, "host_collective_launch": 0.0, "network_latency": 0.0, "network_node_latency": 0.0}
STACK = replaced(load_framework("megatron-core").numbers(), QUIET | constants_of_a_step(None, ""))
quick = settings(deadline=None, max_examples=100, derandomize=True)
groups = st.tuples(st.sampled_from([2, 4, 8, 16, 64]), st.sampled_from([1, 2, 4, 16]))


def homes(ranks, stride):
    """Node and leaf of each member."""
    return [(i * stride // 4, i * stride // 16) for i in range(ranks)]


@quick
@given(groups)
def test_a_ring_loads_the_links_that_its_edges_cross(group):
    ranks, stride = group
    members = homes(ranks, stride)
    edges = list(zip(members, [*members[1:], members[0]], strict=True))
    crossing_nodes = sum(a[0] != b[0] for a, b in edges)
    crossing_leaves = sum(a[1] != b[1] for a, b in edges)
    made = traffic.ring_links(float(ranks), float(ranks), float(stride), NETWORK)
    assert made == (pytest.approx(ranks - crossing_nodes), pytest.approx(crossing_nodes), pytest.approx(crossing_leaves))


@quick
@given(groups)
def test_an_all_to_all_loads_the_links_that_its_messages_cross(group):
    ranks, stride = group
    me, *others = homes(ranks, stride)
    same_node = sum(me[0] == other[0] for other in others)
    other_leaf = sum(me[1] != other[1] for other in others)
    made = traffic.all_to_all_links(float(ranks), float(ranks), float(stride), NETWORK)
    assert made == (same_node, len(others) - same_node, other_leaf)


@quick
@given(groups, st.floats(1e6, 1e10))
def test_a_ring_takes_as_long_as_its_fullest_link(group, nbytes):
    """Without latency and launches, and where a member shares its node, all of whose links carry the ring."""
    ranks, stride = map(float, group)
    time = collectives.all_gather(nbytes, ranks, stride, NETWORK, STACK)
    loads = traffic.ring_links(traffic.all_gather_sent(nbytes, ranks), ranks, stride, NETWORK)
    fullest = max(load / level.bandwidth for load, level in zip(loads, NETWORK, strict=True))
    assert fullest <= time * (1 + 1e-9)
    if loads.leaf or loads.spine:
        slowest = max(loads.leaf / NETWORK.leaf.bandwidth, loads.spine / NETWORK.spine.bandwidth)
        assert time == pytest.approx(max(slowest, traffic.all_gather_sent(nbytes, ranks) / NETWORK.node.bandwidth * (stride < 4)))


def test_a_message_loads_the_outermost_link_between_neighbours():
    assert traffic.send_links(8.0, 2.0, 1.0, NETWORK) == (8.0, 0.0, 0.0)
    assert traffic.send_links(8.0, 2.0, 4.0, NETWORK) == (0.0, 8.0, 0.0)
    assert traffic.send_links(8.0, 4.0, 16.0, NETWORK) == (0.0, 8.0, 8.0)


def test_a_chain_to_one_member_passes_the_whole_buffer_over_each_link():
    assert traffic.reduce(1e9, 4.0, 1.0, NETWORK, STACK) == pytest.approx(1e9 / 4e11)
    assert traffic.reduce(1e9, 1.0, 1.0, NETWORK, STACK) == 0.0


def test_an_all_reduce_sends_twice_what_a_gather_does():
    assert traffic.all_reduce_sent(64.0, 8.0) == 2 * traffic.all_gather_sent(64.0, 8.0) == 112.0


def test_a_group_that_leaves_one_member_on_its_last_node_moves_at_that_members_rate():
    """Three replicas, two ranks apart on nodes of four: two on one node, one alone on the next, as if each had a node."""
    apart, alone = (collectives.all_gather(3e9, 3.0, stride, NETWORK, STACK) for stride in (4.0, 2.0))
    assert alone == pytest.approx(apart, rel=0.01)


def test_a_fifth_member_alone_on_a_node_of_four_sends_all_but_its_own_part_over_its_link():
    assert traffic.all_to_all_links(5e9, 5.0, 1.0, NETWORK).leaf == pytest.approx(4e9)
    assert collectives.bus_bandwidth(5.0, 1.0, NETWORK) == NETWORK.leaf.bandwidth
