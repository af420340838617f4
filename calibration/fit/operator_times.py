"""What the formulas say of measured operators: each as its collector ran it, in the library's own formulas."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calibration.data.micro import Array, Sweep
from costmodel.arithmetic.named_tuples import as_number
from costmodel.formulas import compute
from costmodel.formulas.quantities import DeviceNumbers, Number
from costmodel.formulas.transformer import attention, flops
from costmodel.formulas.transformer.precision import block_bytes

ELEMENT_BYTES = {
    "bf16": 2.0, "fp16": 2.0, "tf32": 4.0, "fp32": 4.0, "fp8": 1.0, "fp8-block": 1.0, "nvfp4": block_bytes(4.0, 8.0, 16.0),
}  # fmt: skip
ACTIVATION_BYTES = 2.0
COLLECTOR = {"overhead": 5e-6, "traffic": 1.0, "spread": 1.0, "slowdown": 1.0, "lost": 1.0, "floor": 0.0, "kept": 0.0}
"""What is the collector's and not the device's, before measuring: time around the operator [s], bytes of a mixture's
kernels between its products over those that must move, power of the ranks by which copies thin out, the time of a
kernel over that of the others, the keys that it loses over those that training's kernels lose, the time that a call takes
at least, as the host launches it [s], and the share of the cache that a product finds filled by the call before it."""


def seconds(sweep: Sweep, device: DeviceNumbers, collector: Mapping[str, float]) -> Array:
    """Time of every operator of a sweep [s]."""
    formula = {
        "product": product, "grouped product": grouped_product, "attention": attention_core, "cast": cast,
        "attention backward": attention_backward, "stream": stream,
    }[sweep.kind]  # fmt: skip
    return np.asarray(formula(sweep, device, collector))


def product(sweep: Sweep, device: DeviceNumbers, collector: Mapping[str, float]) -> Number:
    """A linear layer's product; in 8 and 4 bit its input is cast first, as every collector does."""
    m, n, k = (sweep.columns[name] for name in ("m", "n", "k"))
    width = ELEMENT_BYTES[sweep.dtype]
    nbytes = compute.product_bytes(m, n, k, width)
    loop = device._replace(cache=collector["kept"] * device.cache)
    warm = device._replace(product_bandwidth=nbytes / warm_time(nbytes, device.product_bandwidth, 0.0, loop))
    time = compute.gemm(m, n, k, width, compute.product_rate(1.0, device), warm)
    if width < ACTIVATION_BYTES:
        time = time + warm_time((ACTIVATION_BYTES + width) * m * k, device.cast_bandwidth, 0.0, device)
    return collector["slowdown"] * time + collector["overhead"]


def grouped_product(sweep: Sweep, device: DeviceNumbers, collector: Mapping[str, float]) -> Number:
    """Routed experts forward: copies gathered and cast, two grouped products with the activation between, copies summed."""
    of, width = sweep.columns, ELEMENT_BYTES[sweep.dtype]
    rows = of["copies"] * of["share"] ** collector["spread"]
    groups, hidden, inner, sides = of["groups"], of["hidden"], of["width"], 1.0 + of["gated"]
    rate = compute.grouped_product_rate(1.0, device)
    up = compute.grouped_gemm(groups, rows / groups, sides * inner, hidden, width, rate, device)
    down = compute.grouped_gemm(groups, rows / groups, hidden, inner, width, rate, device)
    permuted = rows * hidden * (ACTIVATION_BYTES + width + ACTIVATION_BYTES) + of["tokens"] * hidden * ACTIVATION_BYTES
    activated = rows * inner * (sides * ACTIVATION_BYTES + width)
    moved = compute.stream(collector["traffic"] * (permuted + activated), 0.0, device)
    return collector["slowdown"] * (up + down + moved) + collector["overhead"]


def attention_core(sweep: Sweep, device: DeviceNumbers, collector: Mapping[str, float]) -> Number:
    """Flash attention forward, causal with or without a window, or without a mask."""
    of = sweep.columns
    seq_len, width = of["seq_len"], of["head_dim"]
    rows = of["batch"] * of["heads"] * seq_len
    window = as_number(np.where(of["window"] > 0.0, of["window"], seq_len))
    keys = flops.attended_keys(seq_len, window, 1.0)
    windowed = as_number(np.where(window < seq_len, 1.0, 0.0))
    lost = collector["lost"]
    kernel = device._replace(
        attention_length=lost * device.attention_length, attention_window=lost * device.attention_window,
        full_attention_length=lost * device.full_attention_length,
    )
    masked, _ = attention.causal_flash(rows, keys, windowed, width, 0.0, 1.0, kernel)
    plain = attention.full_flash(rows, seq_len, width, kernel)
    time = collector["slowdown"] * as_number(np.where(of["causal"] > 0.0, masked, plain)) + collector["overhead"]
    return as_number(np.maximum(time, collector["floor"]))


def attention_backward(sweep: Sweep, device: DeviceNumbers, collector: Mapping[str, float]) -> Number:
    """Flash attention backward, causal or with all keys, with the forward pass where both were measured as one."""
    of = sweep.columns
    seq_len = of["seq_len"]
    keys = flops.attended_keys(seq_len, seq_len, of["causal"])
    rows = of["batch"] * of["heads"] * seq_len
    forward, backward = attention.causal_flash(rows, keys, 0.0, of["head_dim"], 0.0, 1.0, device)
    return of["forward"] * forward + of["backward"] * backward


def stream(sweep: Sweep, device: DeviceNumbers, collector: Mapping[str, float]) -> Number:
    """A kernel that reads and writes far more than caches hold."""
    return compute.stream(sweep.columns["nbytes"], 1.0, device)


def cast(sweep: Sweep, device: DeviceNumbers, collector: Mapping[str, float]) -> Number:
    """A cast of 16-bit activations to 8 bit, repeated on the same buffers."""
    nbytes = (ACTIVATION_BYTES + 1.0) * sweep.columns["m"] * sweep.columns["k"]
    return warm_time(nbytes, device.cast_bandwidth, 1.0, device)


def warm_time(nbytes: Number, bandwidth: Number, kernels: Number, device: DeviceNumbers) -> Number:
    r"""Time of kernels that move bytes which the last call left in the cache, as a benchmark's loop does [s].

    .. math:: T = \frac{\min(n, C)}{B_C} + \frac{\max(n - C, 0)}{B} + t_0

    A training step finds other layers' tensors there, so no estimate of one uses this.

    Parameters
    ----------
    bandwidth : from memory [bytes/s]
    """
    kept = as_number(np.minimum(nbytes, device.cache))
    return kept / device.cache_bandwidth + (nbytes - kept) / bandwidth + kernels * device.kernel_time
