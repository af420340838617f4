"""Layers that were timed on a machine, beside what the library says of them."""

from __future__ import annotations

import json

import pytest

from calibration.fit.measured_layers import in_words, read_layers, time_of, traffic_of
from costmodel.text.errors import UnreadableFile

SIZES = {
    "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "feed_forward": 14336, "gated": True, "norm": "rmsnorm",
}  # fmt: skip


def written(path, **changed):
    """A file of `measure` with both passes of one layer."""
    row = {"family": "layer", **SIZES, "dtype": "bf16", "batch": 1, "seq": 8192, "seconds": 1.0, **changed}
    rows = [{**row, "direction": direction} for direction in ("forward", "backward")]
    rows += [{"family": "copy", "nbytes": 4096, "seconds": 1e-6}]
    path.write_text(json.dumps({"environment": {"device": "NVIDIA H100 80GB HBM3"}, "rows": rows}), encoding="utf-8")
    return path


def test_a_pass_takes_at_least_its_products_at_the_peak_and_backward_twice_as_long(tmp_path):
    """Llama 3 8B: 218 million weights a layer, 8,192 tokens, and a causal core of 8,192 positions."""
    forward, backward = read_layers(written(tmp_path / "h100.json"))
    flop = 2 * 8192 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336) + 2 * 8192**2 * 4096
    assert flop / 989.4e12 < forward.predicted < 3.0 * flop / 989.4e12
    assert 1.7 < backward.predicted / forward.predicted < 3.0


@pytest.mark.parametrize("traffic", [1.1, 1.7, 4.0])
def test_the_traffic_that_layers_were_timed_with_is_found(tmp_path, traffic):
    layers = read_layers(written(tmp_path / "h100.json"))
    timed = [one._replace(measured=time_of(one.inputs, one.direction, traffic)) for one in layers]
    assert traffic_of(timed) == pytest.approx(traffic, rel=1e-6)
    assert f"{traffic:.3g} would make them alike" in in_words(timed)[-1]


def test_a_row_without_its_sizes_is_refused(tmp_path):
    with pytest.raises(UnreadableFile, match="a layer's row"):
        read_layers(written(tmp_path / "h100.json", heads=None))
