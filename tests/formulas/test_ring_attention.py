"""Attention on a ring of ranks: what its further kernels lose and move."""

from __future__ import annotations

import itertools

import pytest

from costmodel import load_device, load_framework, load_model
from costmodel.formulas.transformer.attention import flash, remote_key_blocks

DEVICE = load_device("h100-sxm").numbers("bf16")
SOFTWARE = load_framework("megatron-core", "hopper").numbers()
FULL, WINDOWED = load_model("llama3-8b").numbers(), load_model("gemma3-27b").numbers()
LENGTH = 32_768.0


def met(ring, window=None):
    """Parts of other ranks that queries meet, counted: each rank has a part of the front and its mirror image of the back."""
    parts = int(2 * ring)
    size = int(LENGTH) // parts
    owner = {part: min(part, parts - 1 - part) for part in range(parts)}
    mean = []
    for part in range(parts):  # of an average query, which stands in the middle of its part
        first = 0 if window is None else max(int((part + 0.5) * size - window) // size, 0)
        others = {owner[one] for one in range(first, part + 1)} - {owner[part]}
        mean.append(len(others))
    return sum(mean) / parts


@pytest.mark.parametrize("ring", [2.0, 4.0, 8.0, 16.0])
def test_queries_meet_three_quarters_of_the_parts_of_other_ranks(ring):
    """The second half of them meets all, the first on average half: TransformerEngine's load-balanced causal ring."""
    assert remote_key_blocks(FULL, LENGTH, ring) == pytest.approx(0.75 * (ring - 1.0))
    assert met(ring) == pytest.approx(0.75 * (ring - 1.0), rel=0.05, abs=0.3)


def test_layers_meet_the_parts_that_lie_in_their_window():
    share = WINDOWED.attention.windowed_layers / WINDOWED.layers
    assert share > 0.8
    alone = remote_key_blocks(WINDOWED, LENGTH, 8.0) - (1.0 - share) * remote_key_blocks(FULL, LENGTH, 8.0)
    assert 0.0 < alone < 0.3 * share
    assert remote_key_blocks(WINDOWED, LENGTH, 1.0) == 0.0


@pytest.mark.parametrize("model", [FULL, WINDOWED])
def test_a_ring_takes_longer_the_more_ranks_share_it_and_one_rank_loses_nothing(model):
    times = [flash(model, 4096.0, LENGTH, 1.0, 0.0, SOFTWARE, DEVICE, ring) for ring in (1.0, 2.0, 4.0, 8.0)]
    assert times[0] == flash(model, 4096.0, LENGTH, 1.0, 0.0, SOFTWARE, DEVICE)
    for shorter, longer in itertools.pairwise(times):
        assert longer[0] > shorter[0] and longer[1] > shorter[1]
    if model is WINDOWED:  # five layers in six look back 1,024 tokens only
        assert times[-1][0] < 1.2 * times[0][0]
