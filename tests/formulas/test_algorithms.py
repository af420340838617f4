"""Textbook collectives against a simulator that sends every message, and against bounds that none goes below."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.arithmetic.named_tuples import replaced
from costmodel.catalogue.software import software_that_adds_nothing
from costmodel.description.cluster import Level as LevelOfCluster
from costmodel.evaluation.collectives import block_solver as binary
from costmodel.evaluation.collectives.block_solver import binary_blocks_all_reduce
from costmodel.formulas.network import algorithms, bounds, collectives
from costmodel.formulas.quantities import LevelNumbers, NetworkNumbers

approx = pytest.approx

SMALL = range(1, 18)
POWERS = (1, 2, 4, 8, 16)
LATENCY, BANDWIDTH, ADDING = 3e-6, 20e9, 50e9
BYTES = 720720.0 * 64  # every part of up to 16 ranks is a whole number of bytes


class Ranks:
    """Ranks with clocks, buffers as dictionaries of part -> set of ranks summed, one message in and out at a time."""

    def __init__(self, ranks, held, part):
        self.ranks, self.held, self.part, self.clock = ranks, held, part, [0.0] * ranks
        self.sent = [0.0] * ranks

    def round(self, messages):
        """Messages (source, target, parts, adds) that cross in one round; each starts when both ends are free."""
        assert len({source for source, *_ in messages}) == len({target for _, target, *_ in messages}) == len(messages)
        copied = [[(part, set(self.held[source][part])) for part in parts] for source, _, parts, _ in messages]
        ready = list(self.clock)
        for (source, target, parts, adds), contents in zip(messages, copied, strict=True):
            nbytes = len(parts) * self.part
            arrived = max(ready[source], ready[target]) + LATENCY + nbytes / BANDWIDTH
            self.sent[source] += nbytes
            self.clock[source] = max(self.clock[source], arrived)
            self.clock[target] = max(self.clock[target], arrived + (nbytes / ADDING if adds else 0.0))
            for part, summed in contents:
                have = self.held[target].setdefault(part, set())
                if adds:
                    assert not have & summed, "added twice"
                    have |= summed
                else:
                    self.held[target][part] = summed

    @property
    def time(self):
        return max(self.clock)


def whole(p, parts=None):
    """Every rank holds every part of its own buffer."""
    parts = p if parts is None else parts
    return Ranks(p, [{part: {rank} for part in range(parts)} for rank in range(p)], BYTES / parts)


def scattered(p):
    """Every rank holds the finished sum of the part of its number."""
    return Ranks(p, [{rank: set(range(p))} for rank in range(p)], BYTES / p)


def finished(net, parts, ranks=None):
    everyone = set(range(net.ranks))
    return all(net.held[rank].get(part) == everyone for rank in ranks or range(net.ranks) for part in range(parts))


def ring_reduce_scatter(net):
    p = net.ranks
    for step in range(p - 1):
        net.round([(rank, (rank + 1) % p, [(rank - step - 1) % p], True) for rank in range(p)])
    assert all(net.held[rank][rank] == set(range(p)) for rank in range(p))


def ring_all_gather(net):
    p = net.ranks
    for step in range(p - 1):
        net.round([(rank, (rank + 1) % p, [(rank - step) % p], False) for rank in range(p)])


def ring_all_reduce(net):
    ring_reduce_scatter(net)
    ring_all_gather(net)


def bruck_all_gather(net):
    p, have = net.ranks, 1
    while have < p:
        count = min(have, p - have)
        net.round([(rank, (rank - have) % p, [(rank + i) % p for i in range(count)], False) for rank in range(p)])
        have += count


def bruck_reduce_scatter(net):
    """Bruck's gather backwards: what was received is sent, and added."""
    p, sizes = net.ranks, []
    while sum(sizes) + 1 < p:
        have = sum(sizes) + 1
        sizes.append(min(have, p - have))
    for count in reversed(sizes):
        sizes.pop()
        have = sum(sizes) + 1
        net.round([(rank, (rank + have) % p, [(rank + have + i) % p for i in range(count)], True) for rank in range(p)])
    assert all(net.held[rank][rank] == set(range(p)) for rank in range(p))


def folded(net, parts, work):
    """Hand the buffers of ranks beyond a power of two over, do `work` on the others, hand the result back."""
    p = net.ranks
    q = 1 << (p.bit_length() - 1)
    if q < p:
        net.round([(q + i, i, list(range(parts)), True) for i in range(p - q)])
    work(q)
    if q < p:
        net.round([(i, q + i, list(range(parts)), False) for i in range(p - q)])


def recursive_doubling_all_reduce(net):
    def work(q):
        distance = 1
        while distance < q:
            net.round([(rank, rank ^ distance, [0], True) for rank in range(q)])
            distance *= 2

    folded(net, 1, work)


def rabenseifner_all_reduce(net, parts):
    def work(q):
        low, high, distance = [0] * q, [parts] * q, q // 2
        halves = []
        while distance:
            messages = []
            for rank in range(q):
                middle = (low[rank] + high[rank]) // 2
                keeps_low = not rank & distance
                give = range(middle, high[rank]) if keeps_low else range(low[rank], middle)
                messages.append((rank, rank ^ distance, list(give), True))
            net.round(messages)
            for rank in range(q):
                middle = (low[rank] + high[rank]) // 2
                low[rank], high[rank] = (low[rank], middle) if not rank & distance else (middle, high[rank])
            halves.append(distance)
            distance //= 2
        for distance in reversed(halves):
            net.round([(rank, rank ^ distance, list(range(low[rank], high[rank])), False) for rank in range(q)])
            for rank in range(q):
                width = high[rank] - low[rank]
                if rank & distance:
                    low[rank] -= width
                else:
                    high[rank] += width

    folded(net, parts, work)


def halves(blocks, parts):
    """Rounds in which blocks (first rank, ranks) halve side by side: (rank, partner, parts kept, parts given)."""
    spans = {first + i: (0, parts) for first, size in blocks for i in range(size)}
    distance = max(size for _, size in blocks) // 2
    while distance:
        pairs = []
        for first, size in blocks:
            for rank in range(first, first + size) if distance < size else ():
                low, high = spans[rank]
                middle = (low + high) // 2
                upper = bool((rank - first) & distance)
                keep, give = ((middle, high), (low, middle)) if upper else ((low, middle), (middle, high))
                pairs.append((rank, first + ((rank - first) ^ distance), keep, give))
        for rank, _, keep, _ in pairs:
            spans[rank] = keep
        yield pairs
        distance //= 2
    yield spans


def binary_blocks(net, parts, together):
    """Blocks halve, pass sums up to the largest, pass results down, double; `together`: all wait at the turn."""
    ends, blocks = 0, []
    for size in binary.sizes(net.ranks):
        blocks.append((ends, size))
        ends += size
    *rounds, spans = halves(blocks, parts)
    for pairs in rounds:
        net.round([(rank, partner, list(range(*give)), True) for rank, partner, _, give in pairs])
    passes = []  # rounds from each block to the next larger, the smallest block first
    for (first, size), (above, larger) in reversed(list(zip(blocks[1:], blocks, strict=False))):
        targets = {}
        for rank in range(first, first + size):
            inside = [other for other in range(above, above + larger)
                      if spans[rank][0] <= spans[other][0] < spans[rank][1]]  # fmt: skip
            targets[rank] = sorted(inside, key=lambda other: spans[other])
        passes.append([[(rank, targets[rank][i]) for rank in targets] for i in range(larger // size)])
    for batch in passes:
        for pairs in batch:
            net.round([(rank, target, list(range(*spans[target])), True) for rank, target in pairs])
    if together:
        net.clock = [net.time] * net.ranks
    for batch in reversed(passes):
        for pairs in batch:
            net.round([(target, rank, list(range(*spans[target])), False) for rank, target in pairs])
    for pairs in reversed(rounds):
        net.round([(rank, partner, list(range(*keep)), False) for rank, partner, keep, _ in pairs])


def binomial(p):
    """Rounds of a binomial broadcast from rank 0: who sends to whom."""
    distance = 1
    while distance < p:
        yield [(rank, rank + distance) for rank in range(distance) if rank + distance < p]
        distance *= 2


def binomial_reduce(net):
    for pairs in reversed(list(binomial(net.ranks))):
        net.round([(child, parent, [0], True) for parent, child in pairs])


def binomial_broadcast(net):
    for pairs in binomial(net.ranks):
        net.round([(parent, child, [0], False) for parent, child in pairs])


def binomial_scatter(net):
    """Halve what is to be dealt: the upper half's first rank gets the upper half's parts."""
    spans = {0: (0, net.ranks)}
    while any(high - low > 1 for low, high in spans.values()):
        messages = []
        for rank, (low, high) in list(spans.items()):
            if high - low > 1:
                middle = low + (high - low + 1) // 2
                spans[rank], spans[middle] = (low, middle), (middle, high)
                messages.append((rank, middle, list(range(middle, high)), False))
        net.round(messages)


# All-reduce and its halves


@pytest.mark.parametrize("p", SMALL)
def test_a_ring_all_reduce_takes_as_long_as_its_messages(p):
    net = whole(p)
    ring_all_reduce(net)
    assert finished(net, p)
    assert net.time == approx(algorithms.ring_all_reduce(BYTES, p, LATENCY, BANDWIDTH, ADDING), rel=1e-12)


@pytest.mark.parametrize("p", SMALL)
def test_a_ring_sends_exactly_what_patarasuk_and_yuan_prove_least(p):
    net = whole(p)
    ring_all_reduce(net)
    assert net.sent == approx([2 * (p - 1) / p * BYTES] * p, rel=1e-15)
    assert algorithms.ring_all_reduce(BYTES, p, 0.0, BANDWIDTH) == approx(net.sent[0] / BANDWIDTH, rel=1e-12)
    assert bounds.least_all_reduce(BYTES, p, 0.0, BANDWIDTH) == approx(net.sent[0] / BANDWIDTH, rel=1e-12)


@pytest.mark.parametrize("p", SMALL)
def test_halving_and_doubling_by_circulants_takes_as_long_as_its_messages(p):
    net = whole(p)
    bruck_reduce_scatter(net)
    assert net.time == approx(algorithms.bruck_reduce_scatter(BYTES, p, LATENCY, BANDWIDTH, ADDING), rel=1e-12)
    bruck_all_gather(net)
    assert finished(net, p)
    assert net.time == approx(algorithms.circulant_all_reduce(BYTES, p, LATENCY, BANDWIDTH, ADDING), rel=1e-12)


@pytest.mark.parametrize("p", SMALL)
def test_recursive_doubling_takes_as_long_as_its_messages(p):
    net = whole(p, 1)
    recursive_doubling_all_reduce(net)
    assert finished(net, 1)
    assert net.time == approx(algorithms.recursive_doubling_all_reduce(BYTES, p, LATENCY, BANDWIDTH, ADDING), rel=1e-12)


@pytest.mark.parametrize("p", SMALL)
def test_recursive_halving_and_doubling_takes_as_long_as_its_messages(p):
    parts = 1 << (p.bit_length() - 1)
    net = whole(p, parts)
    rabenseifner_all_reduce(net, parts)
    assert finished(net, parts)
    assert net.time == approx(algorithms.rabenseifner_all_reduce(BYTES, p, LATENCY, BANDWIDTH, ADDING), rel=1e-12)


@pytest.mark.parametrize("p", range(2, 73))
def test_binary_blocks_take_as_long_as_their_messages(p):
    parts = 1 << (p.bit_length() - 1)
    net, eager = whole(p, parts), whole(p, parts)
    binary_blocks(net, parts, together=True)
    binary_blocks(eager, parts, together=False)
    formula = binary_blocks_all_reduce(BYTES, p, LATENCY, BANDWIDTH, ADDING)
    assert finished(net, parts)
    assert finished(eager, parts)
    assert net.time == approx(formula, rel=1e-12)
    assert eager.time <= formula * (1 + 1e-12)


@pytest.mark.parametrize("power", range(7))
def test_binary_blocks_of_a_power_of_two_are_one_block(power):
    asked = (BYTES, 2**power, LATENCY, BANDWIDTH, ADDING)
    assert binary_blocks_all_reduce(*asked) == approx(algorithms.rabenseifner_all_reduce(*asked), rel=1e-12)


@pytest.mark.parametrize("power", range(1, 20))
def test_of_two_blocks_a_part_of_the_buffer_is_passed_on_where_folding_hands_over_all_of_it(power):
    asked = (BYTES, 3 * 2**power, 0.0, BANDWIDTH)
    saved = 2.0 * (1.0 - 1.0 / 2**power) * BYTES / BANDWIDTH
    halved = algorithms.bruck_reduce_scatter(BYTES, 2 ** (power + 1), 0.0, BANDWIDTH)
    assert algorithms.rabenseifner_all_reduce(*asked) - binary_blocks_all_reduce(*asked) == approx(saved, rel=1e-9)
    assert binary_blocks_all_reduce(*asked) == approx(2.0 * (halved + BYTES / 2**power / BANDWIDTH), rel=1e-12)


@pytest.mark.parametrize("p", SMALL)
def test_a_binomial_tree_takes_as_long_as_its_messages(p):
    net = whole(p, 1)
    binomial_reduce(net)
    assert finished(net, 1, [0])
    assert net.time == approx(algorithms.binomial_reduce(BYTES, p, LATENCY, BANDWIDTH, ADDING), rel=1e-12)
    binomial_broadcast(net)
    assert finished(net, 1)
    assert net.time == approx(algorithms.binomial_all_reduce(BYTES, p, LATENCY, BANDWIDTH, ADDING), rel=1e-12)


@pytest.mark.parametrize("p", SMALL)
def test_an_all_gather_takes_as_long_as_its_messages(p):
    for send, formula in ((ring_all_gather, algorithms.ring_all_gather), (bruck_all_gather, algorithms.bruck_all_gather)):
        net = scattered(p)
        send(net)
        assert finished(net, p)
        assert net.time == approx(formula(BYTES, p, LATENCY, BANDWIDTH), rel=1e-12)


@pytest.mark.parametrize("p", SMALL)
def test_van_de_geijns_broadcast_takes_no_longer_than_its_formula_and_as_long_for_powers_of_two(p):
    net = Ranks(p, [{part: set(range(p)) for part in range(p)}] + [{} for _ in range(p - 1)], BYTES / p)
    binomial_scatter(net)
    scatter = algorithms.binomial_scatter(BYTES, p, LATENCY, BANDWIDTH)
    assert net.time <= scatter * (1 + 1e-12)
    gathered = scattered(p)
    gathered.clock = [net.time] * p
    ring_all_gather(gathered)
    formula = algorithms.van_de_geijn_broadcast(BYTES, p, LATENCY, BANDWIDTH)
    assert gathered.time <= formula * (1 + 1e-12)
    if p in POWERS:
        assert gathered.time == approx(formula, rel=1e-12)


@pytest.mark.parametrize("p", SMALL)
def test_a_pairwise_exchange_takes_as_long_as_its_messages(p):
    net = Ranks(p, [{(rank, target): {rank} for target in range(p)} for rank in range(p)], BYTES / p)
    for step in range(1, p):
        net.round([(rank, (rank + step) % p, [(rank, (rank + step) % p)], False) for rank in range(p)])
    assert all(net.held[rank][source, rank] == {source} for rank in range(p) for source in range(p))
    assert net.time == approx(algorithms.pairwise_all_to_all(BYTES, p, LATENCY, BANDWIDTH), rel=1e-12)
    reduced = algorithms.pairwise_reduce_scatter(BYTES, p, LATENCY, BANDWIDTH)
    assert net.time == approx(reduced, rel=1e-12)


def parents(p):
    """Parent of each rank in an in-order binary tree under rank 0."""
    found = {0: None}
    for rank in range(1, p):
        bit = rank & -rank
        above = (rank ^ bit) | (bit << 1)
        found[rank] = above if above < p else rank ^ bit
    return found


@pytest.mark.parametrize("p", range(2, 65))
def test_in_a_tree_and_its_mirror_or_shift_each_rank_sends_the_buffer_twice_and_is_log_p_deep(p):
    first = parents(p)
    other = {rank: (p - 1 - rank) if p % 2 == 0 else (rank + 1) % p for rank in range(p)}
    second = {other[rank]: None if above is None else other[above] for rank, above in first.items()}
    sent = [0.0] * p
    for tree in (first, second):
        for rank, above in tree.items():
            if above is not None:
                sent[rank] += 0.5  # its sum goes up
                sent[above] += 0.5  # the result comes down
    depths = []
    for rank in range(p):
        depth = 0
        while first[rank] is not None:
            rank, depth = first[rank], depth + 1
        depths.append(depth)
    bandwidth_term = algorithms.double_binary_tree_all_reduce(1.0, p, 0.0, 1.0)
    latency_term = algorithms.double_binary_tree_all_reduce(0.0, p, 1.0, 1.0)
    assert max(sent) <= bandwidth_term
    assert max(sent) == bandwidth_term or p < 4
    assert max(depths) <= latency_term / 2


@given(st.floats(1.0, 1e12), st.integers(2, 500), st.floats(1e-7, 1e-2), st.floats(1e6, 1e12), st.integers(1, 10_000))
def test_no_number_of_blocks_down_a_chain_beats_the_best(nbytes, p, latency, bandwidth, blocks):
    clock = (p - 2 + blocks) * (latency + nbytes / blocks / bandwidth)  # the last block leaves after the others
    assert algorithms.chain_broadcast(nbytes, p, latency, bandwidth) <= clock * (1 + 1e-9)


def test_a_chain_in_blocks_takes_as_long_as_its_messages():
    p, blocks = 6, 20
    clock = [[0.0] * (blocks + 1) for _ in range(p)]
    for hop in range(1, p):
        for block in range(1, blocks + 1):
            started = max(clock[hop - 1][block], clock[hop][block - 1])
            clock[hop][block] = started + LATENCY + BYTES / blocks / BANDWIDTH
    best = algorithms.chain_broadcast(BYTES, p, LATENCY, BANDWIDTH)
    assert clock[-1][-1] == approx((p - 2 + blocks) * (LATENCY + BYTES / blocks / BANDWIDTH))
    assert best <= clock[-1][-1]


# Bounds

ALL_REDUCE = [
    algorithms.ring_all_reduce, algorithms.recursive_doubling_all_reduce, algorithms.rabenseifner_all_reduce,
    algorithms.circulant_all_reduce, algorithms.binomial_all_reduce, algorithms.double_binary_tree_all_reduce,
    binary_blocks_all_reduce,
]  # fmt: skip
GATHER = [algorithms.ring_all_gather, algorithms.bruck_all_gather, algorithms.pairwise_all_to_all]
SCATTER = [algorithms.ring_reduce_scatter, algorithms.bruck_reduce_scatter, algorithms.pairwise_reduce_scatter]
BROADCAST = [algorithms.chain_broadcast, algorithms.binomial_broadcast, algorithms.van_de_geijn_broadcast]
REDUCE = [algorithms.chain_reduce, algorithms.binomial_reduce, algorithms.rabenseifner_reduce]
sizes, counts = st.floats(1.0, 1e12), st.integers(1, 100_000)
links = st.tuples(st.floats(0.0, 1e-2), st.floats(1e3, 1e13))
adding = st.floats(1e3, 1e14)


@given(sizes, counts, links, adding)
def test_no_algorithm_beats_its_lower_bound(nbytes, p, link, gamma):
    reduce = (nbytes, p, *link, gamma)
    below = 1 - 1e-12
    assert all(f(*reduce) >= bounds.least_all_reduce(*reduce) * below for f in ALL_REDUCE)
    assert all(f(*reduce) >= bounds.least_all_gather(*reduce) * below for f in SCATTER)
    assert all(f(*reduce) >= bounds.least_broadcast(*reduce) * below for f in REDUCE)
    assert all(f(*reduce[:4]) >= bounds.least_all_gather(*reduce[:4]) * below for f in GATHER)
    assert all(f(*reduce[:4]) >= bounds.least_broadcast(*reduce[:4]) * below for f in BROADCAST)


@given(sizes, links, adding)
def test_one_rank_has_nothing_to_exchange(nbytes, link, gamma):
    assert all(f(nbytes, 1, *link, gamma) == 0.0 for f in (*ALL_REDUCE, *SCATTER, *REDUCE))
    assert all(f(nbytes, 1, *link) == 0.0 for f in (*GATHER, *BROADCAST))


@given(st.floats(1.0, 1e12), st.integers(2, 64), st.integers(2, 64), st.floats(1e6, 1e12))
def test_two_dimensions_over_equal_links_send_what_one_ring_sends(nbytes, inside, units, bandwidth):
    across = algorithms.ring_all_reduce(nbytes / inside, units, 0.0, bandwidth)
    nested = algorithms.two_dimensional(nbytes, inside, 0.0, bandwidth, across)
    assert nested == approx(algorithms.ring_all_reduce(nbytes, inside * units, 0.0, bandwidth), rel=1e-9)


@given(st.floats(1e3, 1e12), st.integers(2, 64), st.integers(2, 64))
def test_a_hierarchy_of_leaders_is_never_faster_than_two_dimensions_on_the_same_links(nbytes, inside, units):
    whole_across = algorithms.ring_all_reduce(nbytes, units, LATENCY, BANDWIDTH)
    part_across = algorithms.ring_all_reduce(nbytes / inside, units, LATENCY, BANDWIDTH)
    leaders = algorithms.hierarchical(nbytes, inside, 0.0, BANDWIDTH, whole_across)
    assert leaders >= algorithms.two_dimensional(nbytes, inside, 0.0, BANDWIDTH, part_across) * (1 - 1e-12)


# Over levels: the formulas of a step use these leaves


def written_out(nbytes, ranks, stride, network):
    """All-reduce and all-gather over levels, their algebra written out."""
    inside = min(ranks, max(1.0, network.node.size / stride))
    leaf = min(ranks, max(1.0, network.leaf.size / stride))
    rates = [network.node.bandwidth if inside > 1 else 1e30, inside * network.leaf.bandwidth if ranks > inside else 1e30]
    bandwidth = min(*rates, leaf * network.spine.bandwidth if ranks > leaf else 1e30)
    nodes, leaves = math.ceil(ranks / inside), math.ceil(ranks / leaf)
    hops = (nodes - 1) * network.leaf.latency + (leaves - 1) * (network.spine.latency - network.leaf.latency)
    trip = 0.7 * (ranks - nodes) * network.node.latency + 0.9 * hops
    depth = 0.7 * (inside - 1) * network.node.latency * 4.0 / 3.4 + 0.9 * network.spine.latency * math.floor(math.log2(nodes))
    plateau = 1.4 if nodes > 1 else 1.0  # NVIDIA/nccl src/graph/tuning.cc: 14 us a hop of ring or tree, 3.4 and 4 us over NVLink
    ring = 2 * plateau * trip + 2 * (ranks - 1) / ranks * nbytes / (0.8 * bandwidth)
    carried = max(0.5 / bandwidth, 1.0 / network.node.bandwidth) if nodes == 2 else 1.0 / bandwidth  # the other's only neighbour
    tree = 2 * depth + 2 * (nbytes + min(nbytes, 128e6) / 3) * carried / (0.8 * 0.92)
    # a ring that gathers moves at the pace of its slowest hop
    slowest = 0.9 * (network.spine.latency if leaves > 1 else network.leaf.latency)
    waits = (ranks - nodes) * max(slowest - 0.7 * network.node.latency, 0.0) if nodes > 1 else 0.0
    gather = trip + waits + (ranks - 1) / ranks * nbytes / (0.8 * bandwidth)
    return 1e-5 + min(ring, tree), 1e-5 + gather


FACTORS = {"host_collective_launch": 1e-5, "network_latency": 0.9, "network_node_latency": 0.7, "network_quality": 0.8}
SOFTWARE = replaced(software_that_adds_nothing(), FACTORS)


@given(st.floats(1.0, 1e12), st.integers(1, 12), st.integers(0, 6), st.sampled_from([8.0, 64.0, 1e7]))
def test_a_collective_over_levels_without_line_protocols_is_a_ring_or_a_tree(nbytes, power, stride, leaf_size):
    ranks, apart = float(2**power), float(2**stride)
    network = NetworkNumbers(LevelNumbers(8.0, 3e-6, 3e11), LevelNumbers(leaf_size, 1e-5, 4e10), LevelNumbers(1e7, 1.3e-5, 2e10))
    reduced, gathered = written_out(nbytes, ranks, apart, network)
    assert collectives.all_reduce(nbytes, ranks, apart, network, SOFTWARE) == approx(reduced, rel=1e-12)
    assert collectives.all_gather(nbytes, ranks, apart, network, SOFTWARE) == approx(gathered, rel=1e-12)


def test_two_gpus_of_a_mesh_see_one_link_of_seven():  # FACTS of MI300X: 47.7 GB/s on two GPUs, 312.9 GB/s on eight
    mesh = LevelOfCluster(name="xgmi", size=8, latency=2e-6, bandwidth=312.9e9, topology="mesh").numbers()
    network = NetworkNumbers(mesh, mesh, mesh)
    assert collectives.bus_bandwidth(8.0, 1.0, network) == approx(312.9e9)
    assert collectives.bus_bandwidth(2.0, 1.0, network) == approx(47.7e9, rel=0.07)


@pytest.mark.parametrize("members", [2, 4, 8])
def test_the_root_of_a_tree_carries_half_of_every_halfs_bytes(members):
    link, size = 20e9, 8e8
    tree = LevelOfCluster(name="pcie", size=8, latency=0.0, bandwidth=link, topology="tree").numbers()
    crossing = [(a, b) for a in range(members // 2) for b in range(members // 2, members)]
    through_the_root = len(crossing) * size / members / link
    leaving_a_rank = (members - 1) / members * size / link
    time = collectives.all_to_all(size, float(members), 1.0, NetworkNumbers(tree, tree, tree), SOFTWARE) - 1e-5
    assert time == approx(max(through_the_root, leaving_a_rank) / SOFTWARE.network.quality)


def test_oversubscribed_switches_divide_the_bandwidth_that_leaves_a_unit():
    plain = LevelOfCluster(name="spine", size=1024, latency=1e-5, bandwidth=50e9)
    thin = LevelOfCluster(name="spine", size=1024, latency=1e-5, bandwidth=50e9, oversubscription=4.0)
    assert thin.numbers().bandwidth == plain.numbers().bandwidth / 4
