"""Kinds of layers with a state in place of keys and values: a row each says what it projects, keeps and multiplies."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from costmodel.formulas.quantities import RecurrentNumbers
from costmodel.formulas.transformer.recurrent import chunked_flop, state_flop

STATE_BYTES = 16.0
"""Of an element of a chunk's state in 32 bit: written, read and written as it is passed on, read by the chunk's outputs."""
PASSES = 3.0
"""Kernels of a scan that read what it takes or write what it gives."""
SEQUENTIAL = 4.0
"""FLOP of a scan on tensor cores that take as long as one outside them: a sixteenth of the rate, of which chunks reach a quarter.
An assumption, as `costmodel.formulas.quantities.ComputeConstants.scan_efficiency` is."""


class StateShape(NamedTuple):
    """What a row needs to know of a layer with states."""

    heads: float  # heads, key_heads: with a state each; that have keys and queries (of a state space: groups of B and C)
    key_heads: float
    rows: float  # rows, columns: of a head's state: channels of a key, of a value
    columns: float
    taps: float  # of the short convolution, 0 without
    rank: float  # of a low-rank projection (Mamba's of steps)
    chunk: float  # of the scan [tokens]

    @property
    def keys(self) -> float:
        """Channels of all keys."""
        return self.key_heads * self.rows

    @property
    def values(self) -> float:
        """Channels of all values."""
        return self.heads * self.columns

    @property
    def states(self) -> float:
        """Elements of the states of all heads."""
        return self.heads * self.rows * self.columns

    def scan_bytes(self, channels: float) -> float:
        """Bytes a token that a scan moves, of so many channels that it takes and gives."""
        return PASSES * 2.0 * channels + STATE_BYTES * self.states / self.chunk


def _delta(shape: StateShape, inputs: float, whole: float, inner: float, vectors: float) -> RecurrentNumbers:
    """A delta rule: three products of a chunk's keys, two of its values, three with states, and a triangular system."""
    wide = shape.heads * shape.rows
    convolved = 2.0 * shape.keys + shape.values
    return RecurrentNumbers(
        share=0.0, heads=shape.heads, inputs=inputs, outputs=shape.values, whole=whole, inner=inner,
        convolved=shape.taps * convolved, vectors=vectors, whole_vectors=shape.columns,
        state_flop=state_flop(shape.heads, shape.rows, shape.columns, 8.0),
        scan_flop=chunked_flop(3.0 * wide, 2.0 * shape.values, 3.0 * shape.states, shape.chunk, 1.0, shape.heads),
        scan_bytes=shape.scan_bytes(2.0 * wide + 2.0 * shape.values),
        # What was projected, convolved, brought to unit length and inverted, the scan's output and the normed one.
        kept=inputs + convolved + 2.0 * wide + shape.heads * shape.chunk + 2.0 * shape.values,
        moved=2.0 * convolved + 4.0 * wide + 4.0 * shape.values,
    )  # fmt: skip


def _gated_delta_net(shape: StateShape) -> RecurrentNumbers:
    inputs = 2.0 * shape.keys + 2.0 * shape.values + 2.0 * shape.heads  # keys, queries, values, gate; decay and strength
    return _delta(shape, inputs, 0.0, 0.0, 2.0 * shape.heads)


def _kimi_delta(shape: StateShape) -> RecurrentNumbers:
    # Decay by channel and gate come of two narrow pairs of matrices; a head has a strength.
    inputs, narrow = 2.0 * shape.keys + shape.values + shape.heads, 2.0 * shape.columns
    return _delta(shape, inputs, narrow, narrow * shape.values, shape.heads + shape.values)


def _channel_delta(shape: StateShape) -> RecurrentNumbers:
    # As Kimi's, with decay by channel and gate of a whole matrix each.
    inputs = 3.0 * shape.keys + 2.0 * shape.values + shape.heads
    return _delta(shape, inputs, 0.0, 0.0, shape.heads + shape.keys)


def _space(shape: StateShape, each: float, **numbers: float) -> RecurrentNumbers:
    """What state spaces and plain linear attention have alike: two products of a chunk, and two with states."""
    return RecurrentNumbers(**{
        "share": 0.0, "heads": shape.heads, "outputs": shape.values, "whole": 0.0, "inner": 0.0, "convolved": 0.0,
        "whole_vectors": 0.0,
        "state_flop": state_flop(shape.heads, shape.rows, shape.columns, each),
        "scan_flop": chunked_flop(shape.keys, shape.values, 2.0 * shape.states, shape.chunk, 0.0, shape.heads),
        "scan_bytes": shape.scan_bytes(2.0 * shape.keys + 2.0 * shape.values), **numbers,
    })  # fmt: skip


def _mamba2(shape: StateShape) -> RecurrentNumbers:
    convolved = 2.0 * shape.keys + shape.values
    inputs = 2.0 * shape.values + 2.0 * shape.keys + shape.heads
    # Steps, decays and skips of heads, the biases of the convolution, a norm. The convolution is made again backward.
    return _space(
        shape, 7.0, inputs=inputs, convolved=shape.taps * convolved, vectors=3.0 * shape.heads + convolved + shape.values,
        kept=inputs + 2.0 * shape.values, moved=2.0 * convolved + 4.0 * shape.values,
    )  # fmt: skip


def _mamba(shape: StateShape) -> RecurrentNumbers:
    values, steps = shape.values, shape.rank + 2.0 * shape.rows
    # Of what was convolved come steps, by a low rank, B and C; three norms are of these (Jamba). No chunk is a product.
    return _space(
        shape, 7.0, inputs=2.0 * values, inner=values * (steps + shape.rank), convolved=shape.taps * values,
        vectors=values * (shape.rows + 3.0), whole_vectors=steps, kept=6.0 * values + 2.0 * steps,
        scan_flop=SEQUENTIAL * 9.0 * shape.states, scan_bytes=10.0 * values, moved=6.0 * values,
    )  # fmt: skip


def _lightning(shape: StateShape) -> RecurrentNumbers:
    inputs = 2.0 * shape.keys + 2.0 * shape.values
    return _space(
        shape, 4.0, inputs=inputs, vectors=shape.values, kept=inputs + 2.0 * shape.values,
        moved=4.0 * shape.keys + 6.0 * shape.values,
    )  # fmt: skip


def _short_convolution(shape: StateShape) -> RecurrentNumbers:
    # Of a token come a value and two gates, one before the convolution and one behind it; its last few values are the state.
    return _space(
        shape, 0.0, inputs=3.0 * shape.values, convolved=shape.taps * shape.values, vectors=0.0, scan_flop=0.0, scan_bytes=0.0,
        kept=6.0 * shape.values, moved=8.0 * shape.values,
    )  # fmt: skip


NONE = RecurrentNumbers(*[0.0] * len(RecurrentNumbers._fields))
RECURRENCES: dict[str, Callable[[StateShape], RecurrentNumbers]] = {
    "none": lambda shape: NONE, "gated-delta-net": _gated_delta_net, "kimi-delta": _kimi_delta, "channel-delta": _channel_delta,
    "mamba2": _mamba2, "mamba": _mamba, "lightning": _lightning, "short-convolution": _short_convolution,
}  # fmt: skip
"""Each kind: Qwen3-Next's and Qwen3.5's [yang2025]_; Kimi Linear's (arXiv:2510.26692), and Ling's
like it; Mamba 2 [dao2024]_ of Nemotron-H and
Granite 4; Mamba of Jamba; MiniMax-01's (arXiv:2501.08313); LFM2's gated convolutions (arXiv:2511.23404). Tensors are those of
``modeling_*.py`` of qwen3_next, bamba, jamba, minimax and lfm2 in Hugging Face Transformers, and of the ``modeling_kimi.py``
beside the checkpoint."""
