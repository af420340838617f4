"""Devices and networks as formulas take them, from what is specified of them and was measured."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import WITHOUT_LIMIT, DeviceFigures, DeviceNumbers, LevelFigures, LevelNumbers

SPLIT = 3.0
"""Products in TF32 that make one in 32 bit (pytorch/pytorch@001f694 aten/src/ATen/native/transformers/cuda/mem_eff_attention/
gemm_kernel_utils.h, ``OpMultiplyAddFastF32``: operands are split in a large and a small part)."""


def device_numbers(figures: DeviceFigures) -> DeviceNumbers:
    """A device as the other formulas take it, `DeviceNumbers`: rates in place of shares."""
    bandwidth = figures.memory_bandwidth
    return DeviceNumbers(
        flop_rate=figures.peak, base_flop_rate=figures.base_peak,
        vector_flop_rate=ops.minimum(figures.vector_peak, figures.base_peak),
        int8_flop_rate=figures.int8_peak,
        split_flop_rate=ops.maximum(
            figures.base_peak, ops.where(figures.split_peak > figures.base_peak, figures.split_peak / SPLIT, 0.0)),
        gemm_efficiency=figures.gemm, base_gemm_efficiency=figures.base_gemm,
        gemm_output=figures.gemm_output * figures.peak, gemm_depth=figures.gemm_depth,
        base_gemm_output=figures.base_gemm_output * figures.base_peak, base_gemm_depth=figures.base_gemm_depth,
        best_flop_rate=figures.best * figures.peak, base_best_flop_rate=figures.base_best * figures.base_peak,
        product_bandwidth=bandwidth * figures.product_share, grouped_bandwidth=bandwidth * figures.grouped_share,
        grouped_efficiency=figures.grouped, grouped_rows=figures.grouped_rows,
        grouped_output=figures.grouped_output * figures.peak,
        attention_forward_efficiency=figures.attention_forward, attention_backward_efficiency=figures.attention_backward,
        attention_length=figures.attention_length, attention_window=figures.attention_window,
        attention_width=figures.attention_width, attention_rows=figures.attention_rows,
        attention_unaligned=figures.attention_unaligned, attention_older=figures.attention_older,
        narrow_attention=figures.narrow_attention, narrow_attention_back=figures.narrow_attention_back,
        narrow_wide_attention=figures.narrow_wide_attention, narrow_wide_attention_back=figures.narrow_wide_attention_back,
        full_attention_efficiency=figures.full_attention, full_attention_length=figures.full_attention_length,
        full_attention_width=figures.full_attention_width,
        memory_bandwidth=bandwidth * figures.streamed_share, cast_bandwidth=bandwidth * figures.cast_share,
        cache=figures.cache * figures.cache_share, cache_bandwidth=figures.cache_bandwidth, kernel_time=figures.kernel_time,
        sustained_clock=figures.limited_clock * figures.sustained_clock, narrow=figures.narrow,
        narrow_clock=figures.limited_clock * figures.narrow_clock, memory=figures.memory, host_bandwidth=figures.host_bandwidth,
    )  # fmt: skip


def level_numbers(level: LevelFigures) -> LevelNumbers:
    """A network level as the other formulas take it, `LevelNumbers`.

    Examples
    --------
    In a mesh of eight each pair has a seventh of a GPU's bandwidth:

    >>> level_numbers(LevelFigures(8.0, 1e-6, 7e10, 1.0, 7.0, 0.0, 24.0, 0.0, 0.0, 0.0, 1e30, 1e30)).peer_bandwidth
    10000000000.0
    """
    bandwidth = level.bandwidth / level.oversubscription
    return LevelNumbers(
        level.size, level.latency, bandwidth,
        peer_bandwidth=ops.where(level.mesh > 0.0, bandwidth / ops.maximum(level.mesh, 1.0), WITHOUT_LIMIT),
        root_bandwidth=ops.where(level.tree > 0.0, bandwidth, WITHOUT_LIMIT),
        channels=level.channels, ll_bandwidth=level.ll_bandwidth + level.ll_share * bandwidth, ll128=level.ll128,
        tree_bandwidth=level.tree_bandwidth, ring_bandwidth=level.ring_bandwidth,
    )  # fmt: skip
