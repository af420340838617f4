"""Counts of layers against counting one by one, and times against what no kernel can beat."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.catalogue.loader import load_device
from costmodel.description.networks import Kernels
from costmodel.formulas.convolution import counts, times
from costmodel.formulas.convolution.counts import SlidingWindow
from costmodel.formulas.network import wiring

SMALL = st.integers(1, 9)
V100 = Kernels.of(load_device("v100-pcie-16gb"), "fp32")


def positions(length, kernel, stride, padding, dilation):
    """Starts of a window that stay inside the padded axis, by trying each."""
    reach = dilation * (kernel - 1)
    return [start for start in range(0, length + 2 * padding, stride) if start + reach < length + 2 * padding]


@given(SMALL, st.integers(1, 5), st.integers(1, 4), st.integers(0, 3), st.integers(1, 3))
def test_a_window_has_as_many_positions_as_trying_each_finds(length, kernel, stride, padding, dilation):
    found = len(positions(length, kernel, stride, padding, dilation))
    said = counts.window_output(float(length), kernel, stride, padding, dilation)
    assert max(said, 0) == found


@given(st.integers(4, 30), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))
def test_rounded_up_a_pooling_window_may_stick_out_but_starts_inside(length, kernel, stride, padding):
    if 2 * padding > kernel:
        return
    said = counts.window_output_rounded_up(float(length), kernel, stride, padding)
    starts = range(0, 10 * length, stride)
    covered = next(n for n, start in enumerate(starts, 1) if start + kernel >= length + 2 * padding)
    inside = sum(start < length + padding for start in starts)
    assert said == min(covered, inside)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("height", "width", "kernel", "stride", "padding", "dilation"), [
    (4, 5, (3, 3), 1, 1, 1), (7, 6, (3, 2), 2, 0, 1), (6, 6, (1, 1), 2, 0, 1), (7, 7, (2, 3), 1, 2, 2),
])  # fmt: skip
def test_convolution_flop_are_two_for_each_multiply_add_counted(height, width, kernel, stride, padding, dilation, groups):
    batch, channels, filters = 2, 4, 6
    down = positions(height, kernel[0], stride, padding, dilation)
    across = positions(width, kernel[1], stride, padding, dilation)
    counted = sum(1 for _ in itertools.product(range(batch), range(filters), down, across, range(channels // groups),
                                               range(kernel[0]), range(kernel[1])))  # fmt: skip
    out = (counts.window_output(length, size, stride, padding, dilation)
           for length, size in zip((height, width), kernel, strict=True))  # fmt: skip
    window = SlidingWindow(batch, channels, height, width, filters, *kernel, stride, *out, groups)
    assert counts.convolution_flop(window) == 2 * counted
    weights = {(f, c, i, j) for f in range(filters) for c in range(channels // groups)
               for i in range(kernel[0]) for j in range(kernel[1])}  # fmt: skip
    assert counts.convolution_weights(window) == len(weights)
    assert counts.window_outputs(window) == batch * filters * len(down) * len(across)


def test_a_recurrent_layer_has_the_parameters_of_its_matrices():
    gates, inputs, hidden = 4, 7, 5
    matrices = [np.empty((gates * hidden, inputs)), np.empty((gates * hidden, hidden)), *[np.empty(gates * hidden)] * 2]
    assert counts.recurrent_parameters(gates, inputs, hidden) == sum(matrix.size for matrix in matrices)


def image(side, channels, filters, kernel, stride=1, batch=64.0):
    out = counts.window_output(side, kernel, stride, kernel // 2, 1)
    return SlidingWindow(batch, channels, side, side, filters, kernel, kernel, stride, out, out, 1.0)


GIVEN = (1.0, 4.0, V100.rate, V100.winograd, V100.device)
PASSES = (times.convolution_forward, times.convolution_backward_data, times.convolution_backward_weights)


@pytest.mark.parametrize("run", PASSES)
@given(side=st.integers(7, 224), channels=st.integers(3, 512), filters=st.integers(8, 512), kernel=st.sampled_from([1, 3, 5, 7]))
def test_no_convolution_is_faster_than_its_bytes_or_its_fewest_multiplications(run, side, channels, filters, kernel):
    window = image(float(side), float(channels), float(filters), kernel)
    seconds = run(window, *GIVEN)
    saved = 16.0 * kernel**2 / (kernel + 3.0) ** 2 if kernel in (3, 5) else 1.0  # Winograd's tiles of 4 x 4
    assert seconds >= counts.convolution_bytes(window, 4.0) / V100.device.memory_bandwidth * (1 - 1e-9)
    assert seconds >= counts.convolution_flop(window) / saved / V100.rate * (1 - 1e-9)


@pytest.mark.parametrize("run", PASSES)
def test_winograd_serves_only_square_kernels_at_every_position(run):
    wide = image(56.0, 256.0, 256.0, 3)
    strided = image(56.0, 256.0, 256.0, 3, stride=2)
    rate = lambda window: counts.convolution_flop(window) / run(window, *GIVEN)  # noqa: E731
    assert rate(wide) > V100.rate  # as VGG's measured layers do
    assert rate(strided) < V100.rate


def test_a_cut_product_is_never_slower_than_the_whole_one():
    from costmodel.formulas.compute import vector_gemm

    for m, n, k in itertools.product((16.0, 500.0, 4096.0), (16.0, 1000.0), (64.0, 1e4, 1e6)):
        whole = vector_gemm(m, n, k, 4.0, V100.rate, V100.device)
        cut = times.split_gemm(m, n, k, 4.0, V100.rate, V100.device)
        assert counts.linear_bytes(m, k, n, 4.0) / V100.device.memory_bandwidth <= cut <= whole * (1 + 1e-9)


@pytest.mark.parametrize("run", PASSES)
def test_columns_give_what_numbers_give(run):
    windows = [image(*sizes) for sizes in ((56.0, 64.0, 64.0, 3), (28.0, 256.0, 128.0, 1), (224.0, 3.0, 64.0, 7, 2))]
    columns = SlidingWindow(*(np.array(column, dtype=float) for column in zip(*windows, strict=True)))
    assert run(columns, *GIVEN) == pytest.approx([run(window, *GIVEN) for window in windows], rel=1e-14)


def test_compiled_they_give_what_numbers_give():
    numba = pytest.importorskip("numba")
    from costmodel.compilation import jit

    forward = times.convolution_forward
    jit.register(forward)
    compiled = numba.njit(lambda window, device, rate: forward(window, 1.0, 4.0, rate, 0.9, device))
    window = image(56.0, 64.0, 64.0, 3)
    window = SlidingWindow(*map(float, window))
    assert compiled(window, V100.device, V100.rate) == pytest.approx(forward(window, 1.0, 4.0, V100.rate, 0.9, V100.device))


@given(st.floats(1e9, 1e12), st.integers(2, 16))
def test_when_all_of_a_node_take_part_its_wiring_makes_no_difference(bandwidth, size):
    for rate in (wiring.bus_bandwidth_of_members, wiring.mesh_bandwidth_of_members):
        assert rate(bandwidth, float(size), float(size)) == pytest.approx(bandwidth)


def dgx_1_links():
    """Links between the eight V100s of a DGX-1, and on AWS p3: six a GPU, in two squares with diagonals."""
    links = {}
    for first in (0, 4):
        for one, other, count in ((0, 1, 1), (0, 2, 1), (0, 3, 2), (1, 2, 2), (1, 3, 1), (2, 3, 2)):
            links[first + one, first + other] = count
    return links | {(0, 4): 2, (1, 5): 2, (2, 6): 1, (3, 7): 1}


def most_rings(count, links):
    """Rings through the first GPUs along links of their own, by trying all."""
    rings = []
    for order in itertools.permutations(range(1, count)):
        closed = (0, *order, 0)
        edges = [tuple(sorted(pair)) for pair in itertools.pairwise(closed)]
        if order[0] < order[-1] and all(edge in links for edge in edges):
            rings.append(edges)

    def laid(left, first):
        counts = [0]
        for place in range(first, len(rings)):
            if all(left[edge] for edge in rings[place]):
                rest = {edge: free - (edge in rings[place]) for edge, free in left.items()}
                counts.append(1 + laid(rest, place))
        return max(counts)

    return laid(links, 0)


@pytest.mark.parametrize("count", range(3, 9))
def test_a_cube_mesh_has_as_many_rings_as_can_be_laid_along_its_links(count):
    links = dgx_1_links()
    assert all(sum(free for edge, free in links.items() if gpu in edge) == wiring.CUBE_MESH_LINKS for gpu in range(8))
    rings = 2 * most_rings(count, links)  # each both ways
    rate = wiring.cube_mesh_bandwidth_of_members(6.0, float(count))
    assert rate == pytest.approx(rings) if rings else rate < 1.0


def test_two_gpus_of_a_cube_mesh_have_the_links_between_them():
    assert wiring.cube_mesh_bandwidth_of_members(6.0, 2.0) == dgx_1_links()[0, 1]
