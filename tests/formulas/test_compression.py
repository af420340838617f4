"""Compressed gradients: bytes counted in the arrays that are really sent, times from the parts they are made of."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from costmodel import load_cluster, load_framework
from costmodel.formulas import compute
from costmodel.formulas.network import collectives, compression

CLUSTER = load_cluster("dgx-a100", gpus=64)
NETWORK, DEVICE = CLUSTER.numbers(), CLUSTER.device.numbers()
STACK = load_framework("megatron-core").numbers()
GROUP = (64.0, 1.0, NETWORK, STACK)
quick = settings(deadline=None, max_examples=60, derandomize=True)


def ring_all_reduce(buffers):
    """Sums of equal buffers by a ring, and the elements that each rank sends."""
    ranks = len(buffers)
    parts = [np.array_split(buffer.astype(float).ravel(), ranks) for buffer in buffers]
    sent = [0] * ranks
    for turn in range(2 * (ranks - 1)):
        moving = [(rank, (rank - turn) % ranks, parts[rank][(rank - turn) % ranks].copy()) for rank in range(ranks)]
        for rank, part, data in moving:
            sent[rank] += data.size
            target = parts[(rank + 1) % ranks]
            target[part] = target[part] + data if turn < ranks - 1 else data
    return [np.concatenate(part) for part in parts], sent


@quick
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 12))
def test_power_sgd_sends_the_elements_of_its_two_factors(rows, columns, rank):
    matrix = np.random.default_rng(rows + 41 * columns).normal(size=(rows, columns))
    kept = min(rank, rows, columns)
    guess = np.random.default_rng(rank).normal(size=(columns, kept))
    left, _ = np.linalg.qr(matrix @ guess)
    right = matrix.T @ left
    sent = left.size + right.size if left.size + right.size < matrix.size else matrix.size
    assert compression.power_sgd_elements(float(rows), float(columns), float(rank)) == sent
    if kept == min(rows, columns):
        assert left @ right.T == pytest.approx(matrix, abs=1e-9)  # full rank loses nothing


@quick
@given(st.integers(2, 6), st.integers(1, 8))
def test_power_sgd_s_bytes_are_those_of_a_ring_over_its_factors(ranks, rank):
    rows, columns = 24 * ranks, 36 * ranks
    factors = [np.ones(rank * rows + rank * columns) for _ in range(ranks)]
    sums, sent = ring_all_reduce(factors)
    _, counted = compression.power_sgd_exchange(rows, columns, rank, 4.0, float(ranks), 1.0, NETWORK, STACK, DEVICE)
    assert all((total == ranks).all() for total in sums)
    assert [4 * elements for elements in sent] == [pytest.approx(counted)] * ranks


def test_power_sgd_sends_a_vector_whole_and_computes_nothing():
    time, sent = compression.power_sgd_exchange(1024.0, 1.0, 4.0, 4.0, *GROUP, DEVICE)
    assert time == collectives.all_reduce(4096.0, *GROUP)
    assert sent == pytest.approx(2 * 63 / 64 * 4096)
    assert compression.power_sgd_flop(1024.0, 1.0, 4.0) == 0.0


def test_power_sgd_of_rank_4_compresses_resnet_sized_matrices_by_a_hundred_or_more():
    # the largest layers of ResNet18 in table 10 of Vogels et al. 2019: 512 x 4608, 461/r times smaller
    whole, factors = 512.0 * 4608, compression.power_sgd_elements(512.0, 4608.0, 1.0)
    assert whole / factors == pytest.approx(461, rel=0.01)


@quick
@given(st.integers(10, 500), st.floats(0.01, 1.0), st.integers(2, 6))
def test_top_k_sends_the_arrays_of_values_and_places(count, density, ranks):
    draw = np.random.default_rng(count)
    gradients = [draw.normal(size=count).astype(np.float32) for _ in range(ranks)]
    kept = int(np.ceil(density * count))
    payloads = []
    for gradient in gradients:
        places = np.argsort(-np.abs(gradient))[:kept].astype(np.int32)
        payloads.append((gradient[places], places))
    nbytes = payloads[0][0].nbytes + payloads[0][1].nbytes
    assert compression.top_k_bytes(float(count), density, 4.0, 4.0) == nbytes
    _, sent = compression.top_k_exchange(count, 4.0, density, 4.0, 4.0, float(ranks), 1.0, NETWORK, STACK, DEVICE)
    assert sent == nbytes * (ranks - 1)  # each payload travels to every other rank
    if kept == count:
        total = np.zeros(count)
        for values, places in payloads:
            np.add.at(total, places, values)
        assert total == pytest.approx(np.sum(gradients, axis=0, dtype=float))


@quick
@given(st.floats(1e6, 1e10), st.sampled_from([2.0, 8.0, 64.0, 1024.0]))
def test_top_k_at_its_break_even_sends_what_the_all_reduce_does(ngradients, ranks):
    density = compression.top_k_break_even(4.0, 4.0, 4.0, ranks)
    _, sparse = compression.top_k_exchange(ngradients, 4.0, density, 4.0, 4.0, ranks, 1.0, NETWORK, STACK, DEVICE)
    _, dense = compression.narrow_all_reduce(ngradients, 4.0, 4.0, ranks, 1.0, NETWORK, STACK, DEVICE)
    assert sparse == pytest.approx(dense, rel=0.01)


@quick
@given(st.integers(1, 5000), st.sampled_from([64, 256]))
def test_quantised_gradients_are_as_large_as_their_arrays(count, block):
    blocks = -(-count // block)
    packed, scales = np.zeros(count, dtype=np.int8), np.zeros(blocks, dtype=np.float32)
    assert compression.quantised_bytes(count, 8.0, block, 4.0) == packed.nbytes + scales.nbytes


def test_a_cast_to_16_bit_halves_the_bytes_and_takes_reads_and_writes():
    time, sent = compression.narrow_all_reduce(1e9, 4.0, 2.0, *GROUP, DEVICE)
    _, whole = compression.narrow_all_reduce(1e9, 4.0, 4.0, *GROUP, DEVICE)
    assert sent == pytest.approx(whole / 2)
    cast = compute.stream(2 * 6e9, 2.0, DEVICE)  # 4 in and 2 out, 2 in and 4 out
    assert time == pytest.approx(cast + collectives.all_reduce(2e9, *GROUP))


def test_gradients_that_are_narrow_already_are_not_cast():
    time, _ = compression.narrow_all_reduce(1e9, 2.0, 2.0, *GROUP, DEVICE)
    assert time == collectives.all_reduce(2e9, *GROUP)


def test_eight_bits_send_a_quarter_of_32_and_their_scales():
    _, whole = compression.narrow_all_reduce(1e9, 4.0, 4.0, *GROUP, DEVICE)
    _, sent = compression.quantised_all_reduce(1e9, 4.0, 8.0, 256.0, 4.0, *GROUP, DEVICE)
    assert sent / whole == pytest.approx((1 + 4 / 256) / 4, rel=1e-6)


@pytest.mark.parametrize("method", ["narrow", "quantised", "top-k", "power-sgd"])
def test_compressing_pays_between_slow_links_and_not_inside_a_node(method):
    slow = NETWORK._replace(node=NETWORK.node._replace(bandwidth=1e8), leaf=NETWORK.leaf._replace(bandwidth=1e8))
    fast = NETWORK._replace(node=NETWORK.node._replace(bandwidth=1e13), leaf=NETWORK.leaf._replace(bandwidth=1e13))
    pays = []
    for network in (slow, fast):
        group = (64.0, 1.0, network._replace(spine=network.leaf), STACK)
        plain = collectives.all_reduce(4e8, *group)
        made = {
            "narrow": lambda group: compression.narrow_all_reduce(1e8, 4.0, 2.0, *group, DEVICE),
            "quantised": lambda group: compression.quantised_all_reduce(1e8, 4.0, 8.0, 256.0, 4.0, *group, DEVICE),
            "top-k": lambda group: compression.top_k_exchange(1e8, 4.0, 1e-3, 4.0, 4.0, *group, DEVICE),
            "power-sgd": lambda group: compression.power_sgd_exchange(1e4, 1e4, 4.0, 4.0, *group, DEVICE),
        }[method](group)
        pays.append(made[0] < plain)
    assert pays == [True, False]
