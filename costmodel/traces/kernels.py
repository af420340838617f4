"""How long the kernels of a trace take on a device, by the formulas of products, attention and bandwidth."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.description.cluster import Cluster
from costmodel.description.device import Device
from costmodel.description.framework import Framework
from costmodel.formulas import compute
from costmodel.formulas.quantities import DeviceNumbers, Software
from costmodel.formulas.training_step import HOST_MEMORY_OVER_LINK
from costmodel.formulas.transformer import attention
from costmodel.text.errors import NotModelled
from costmodel.traces.builder import shape_of
from costmodel.traces.record import DEVICE_TO_HOST, GROUPED, HOST_TO_DEVICE, NOWHERE, PROCESSORS, Role, Trace

Floats = NDArray[np.float64]

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "linear", "matmul", "_scaled_mm", "_grouped_mm", "_scaled_grouped_mm", "_int_mm")
"""Operators of matrix products, without their library's prefix."""
RECURRENCES = ("recurrence", "recurrence_backward")
"""Operators that go through the steps of a recurrent layer."""
CONVOLUTIONS = ("convolution", "convolution_backward", "_convolution", "cudnn_convolution", "conv2d")
ELEMENTWISE = (
    "add", "sub", "rsub", "mul", "div", "where", "pow", "maximum", "minimum", "masked_fill", "addcmul", "addcdiv", "lerp", "eq",
    "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "bitwise_and", "bitwise_or",
)  # fmt: skip
"""Operators that take operands of different shapes, element by element, without the mark of those that write into one."""
WIDTHS = {
    "complex128": 16.0, "complex64": 8.0, "float64": 8.0, "float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "float8_e4m3fn": 1.0,
    "float8_e5m2": 1.0, "int8": 1.0,
}  # fmt: skip
"""Bytes of an element of a product's operands."""
COMPLEX = ("complex64", "complex128")
"""Dtypes of pairs of a real and an imaginary part."""
DTYPES = {
    "complex64": "fp32", "complex128": "fp32", "float64": "fp32", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "int8": "int8",
}  # fmt: skip
"""The library's name of a dtype of products; what it has no rate of takes the nearest."""
TENSOR_FLOAT = "convolutions recurrences"
"""Kinds of 32-bit operators that run as TF32 where a trace's fact ``tensor_float`` says nothing else: PyTorch's defaults.

References
----------
PyTorch 2.13, notes on CUDA semantics, section TensorFloat-32: off for matrix products, on for what cuDNN does
"""
CAUSAL = 0.75
"""Share of the keys that a query of a causal kernel meets at most: half, and what a recorder's count of its diagonal adds."""


class Kernel(NamedTuple):
    """A kernel as it was launched: name, operands, what it reads, writes and computes."""

    op: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    read: float  # [bytes]
    written: float  # [bytes]
    flop: float
    compiled: bool = False  # by a compiler, which knows where its operands lie

    @property
    def name(self) -> str:
        """Of the operator, without its library and overload: ``"mm"`` of ``"aten.mm.default"``."""
        parts = self.op.replace("::", ".").split(".")
        return parts[1] if len(parts) > 1 else parts[0]

    @property
    def is_attention(self) -> bool:
        """Whether it is a fused attention core."""
        return "attention" in self.name

    @property
    def is_product(self) -> bool:
        """Whether it is a matrix product."""
        return self.name in PRODUCTS

    @property
    def broadcast(self) -> int:
        """Elements of the result where it is made element by element of operands of different shapes, 0 of other kernels."""
        if self.compiled or self.name.removesuffix("_") not in ELEMENTWISE or len(self.shapes) < 2:
            return 0
        counts = [math.prod(shape) for shape in self.shapes]
        return math.prod(np.broadcast_shapes(*self.shapes)) if min(counts) < max(counts) else 0

    @property
    def is_copy(self) -> bool:
        """Whether it goes over the link to the host."""
        return self.op in (HOST_TO_DEVICE, DEVICE_TO_HOST)


class ProductSizes(NamedTuple):
    """Of `groups` products of (m x k)(k x n)."""

    groups: float
    m: float
    n: float
    k: float


def sizes_of(kernel: Kernel) -> ProductSizes | None:
    """Sizes of a product by its operands' shapes; None where they don't say.

    Parameters
    ----------
    kernel : a product

    Examples
    --------
    >>> sizes_of(Kernel("aten.mm", ((16, 64), (64, 32)), ("bfloat16",) * 2, 0.0, 0.0, 2.0 * 16 * 64 * 32))
    ProductSizes(groups=1, m=16, n=32, k=64)
    """
    matrices = [shape for shape in kernel.shapes if len(shape) >= 2]
    if len(matrices) < 2:
        return None
    left, right = matrices[-2:]
    if kernel.name == "linear":
        left, right = matrices[:2]
        right = (*right[:-2], right[-1], right[-2])
    if left[-1] != right[-2]:
        return None
    groups = math.prod(right[:-2])
    rows = math.prod(left[:-1])
    found = ProductSizes(groups, rows / groups if rows % groups else rows // groups, right[-1], left[-1])
    told = 2.0 * groups * found.m * found.n * found.k
    return found if not kernel.flop or abs(told / kernel.flop - 1.0) < 0.01 else None


class Rates:
    """A device as formulas take it, at each dtype of its products.

    Parameters
    ----------
    device : `Device`
    software : whose share of the device's rates kernels reach
    tensor_float : kinds of 32-bit operators that run as TF32, of products, convolutions and recurrences
    change : what to make of a device's numbers, to ask how times follow them
    """

    def __init__(
        self, device: Device, software: Software, tensor_float: str = TENSOR_FLOAT,
        change: Callable[[DeviceNumbers], DeviceNumbers] = lambda numbers: numbers,
    ):  # fmt: skip
        self.device, self.software, self.change = device, software, change
        self.tensor_float = tensor_float.split() if "tf32" in device.dense_peak else []
        self._known: dict[str, DeviceNumbers] = {}
        self.base = self.at(device.usual_dtype)

    def at(self, dtype: str) -> DeviceNumbers:
        """The device's numbers at a dtype; at its usual one where it has no such rate."""
        if dtype not in self._known:
            try:
                numbers = self.device.numbers(self.device.usual_dtype if dtype == "int8" else dtype)
                numbers = _in_int8(numbers) if dtype == "int8" else numbers
            except NotModelled:
                numbers = self.device.numbers(self.device.usual_dtype)
            self._known[dtype] = self.change(numbers)
        return self._known[dtype]

    def time(self, kernel: Kernel) -> float:
        """Of a kernel on the device [s]."""
        if kernel.is_copy:
            return (kernel.read + kernel.written) / 2.0 / self.base.host_bandwidth + self.base.kernel_time
        if kernel.is_attention and kernel.shapes:
            return self._attention(kernel)
        if kernel.is_product:
            return self._product(kernel)
        if kernel.name in RECURRENCES:
            return self._recurrence(kernel)
        if kernel.name in CONVOLUTIONS and kernel.flop:
            return self._by_flop(kernel)
        moved = kernel.read + kernel.written
        if kernel.broadcast:
            return float(compute.broadcast(moved, kernel.broadcast, self.device.multiprocessors, self.base))
        return float(compute.stream(moved, 1.0, self.base))

    def _dtype(self, kernel: Kernel) -> str:
        """The library's name of the dtype in which a kernel multiplies."""
        operands = zip(kernel.shapes, kernel.dtypes, strict=False)  # others are biases, scales, what a softmax leaves
        known = [dtype for shape, dtype in operands if len(shape) >= 2 and dtype in DTYPES]
        if kernel.is_attention:
            known = known[:1]  # of queries, or of their gradient
        widest = max(known, key=lambda one: WIDTHS[one]) if known else ""
        narrow = kernel.name in ("_scaled_mm", "_scaled_grouped_mm", "_int_mm")  # scales are of 32 bits
        found = DTYPES.get(min(known, key=lambda one: WIDTHS[one]) if narrow and known else widest, self.device.usual_dtype)
        kind = "recurrences" if kernel.name in RECURRENCES else "convolutions" if kernel.name in CONVOLUTIONS else "products"
        return "tf32" if found == "fp32" and kind in self.tensor_float else found

    def _product(self, kernel: Kernel) -> float:
        sizes, dtype = sizes_of(kernel), self._dtype(kernel)
        if sizes is None:
            return self._by_flop(kernel)
        numbers = self.at(dtype)
        if any(one in COMPLEX for one in kernel.dtypes):  # a product of two is four of their parts, outside the tensor cores
            rate = compute.product_rate(self.software.compute.gemm_efficiency_scale, numbers) / 4.0
            return float(compute.vector_gemm(sizes.groups * sizes.m, sizes.n, sizes.k, 8.0, rate, numbers))
        width = {"fp32": 4.0, "tf32": 4.0, "fp8": 1.0, "int8": 1.0}.get(dtype, 2.0)
        quality = self.software.compute.gemm_efficiency_scale
        groups, m, n, k = map(float, sizes)
        if kernel.name in GROUPED:
            rate = compute.grouped_product_rate(quality, numbers)
            return float(compute.grouped_gemm(groups, m, n, k, width, rate, numbers))
        rate = compute.product_rate(quality, numbers)
        make = compute.vector_gemm if dtype == "fp32" else compute.gemm
        return float(make(groups * m, n, k, width, rate, numbers))

    def _recurrence(self, kernel: Kernel) -> float:
        """A product of each step's states, one after the other; backward the weights' gradient of all steps at once, too."""
        rows, (gates, width), steps = float(kernel.shapes[0][0]), kernel.shapes[1], float(kernel.shapes[-1][0])
        dtype = self._dtype(kernel._replace(shapes=kernel.shapes[:2], dtypes=kernel.dtypes[:2]))
        numbers, element = self.at(dtype), {"fp32": 4.0, "tf32": 4.0}.get(dtype, 2.0)
        rate = compute.product_rate(self.software.compute.gemm_efficiency_scale, numbers)
        make = compute.vector_gemm if dtype == "fp32" else compute.gemm
        states = float(compute.stream(kernel.read + kernel.written, 1.0, self.base))
        if kernel.name == "recurrence":
            return states + steps * float(make(rows / steps, gates, width, element, rate, numbers))
        back = steps * float(make(rows / steps, width, gates, element, rate, numbers))
        return states + back + float(make(gates, width, rows, element, rate, numbers))

    def _by_flop(self, kernel: Kernel) -> float:
        """Of products whose shapes don't say their sizes: arithmetic at the rate of large ones, or bytes."""
        numbers = self.at(self._dtype(kernel))
        work = kernel.flop / float(compute.product_rate(self.software.compute.gemm_efficiency_scale, numbers))
        move = (kernel.read + kernel.written) / numbers.product_bandwidth
        return float(compute.rounded_maximum(work, move)) + numbers.kernel_time

    def _attention(self, kernel: Kernel) -> float:
        backward = "backward" in kernel.name
        tensors = [shape for shape in kernel.shapes if len(shape) >= 3]
        if len(tensors) < (3 if backward else 2):
            return self._by_flop(kernel)
        queries, keys_shape = tensors[1 if backward else 0], tensors[2 if backward else 1]
        rows, width = float(math.prod(queries[:-1])), float(queries[-1])
        length = float(keys_shape[-2] if len(keys_shape) == 4 else keys_shape[0])
        products = 4.0 * (attention.FLASH_BACKWARD if backward else 1.0)
        keys = kernel.flop / (products * rows * width) if kernel.flop else length
        if self._dtype(kernel) == "fp32":
            return self._by_flop(kernel._replace(flop=products * rows * width * keys))
        traits = self.software.compute
        older = 0.0 if "cudnn" in kernel.name else 3.0 if "efficient" in kernel.name else 1.0
        if keys < CAUSAL * length:
            times = attention.causal_flash(
                rows, keys, 0.0, width, older, traits.attention_efficiency_scale, self.base, first_flash=traits.first_flash
            )
            return float(times[1] if backward else times[0])
        share = (self.base.attention_older if older else 1.0) * (traits.first_flash if older > 1.0 else 1.0)
        once = float(attention.full_flash(rows, keys, width, self.base)) / share
        return attention.FLASH_BACKWARD * once if backward else once


def _in_int8(numbers: DeviceNumbers) -> DeviceNumbers:
    """A device whose products are in int8, of which they reach what those in 16 bit do of theirs."""
    faster = numbers.int8_flop_rate / numbers.flop_rate
    return numbers._replace(flop_rate=numbers.int8_flop_rate, best_flop_rate=faster * numbers.best_flop_rate)


def signatures(role: Role) -> tuple[list[Kernel], NDArray[np.int64]]:
    """The different kernels of a role, and which of them each of its kernels is."""
    kernels, texts = role.kernels, role.texts
    columns = (
        kernels.op, kernels.shapes, kernels.dtypes, kernels.bytes_read, kernels.bytes_written, kernels.flop, kernels.compiled > 0,
    )  # fmt: skip
    found, which = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    made = [
        Kernel(
            texts[op], tuple(map(shape_of, texts[shapes].split())), tuple(texts[dtypes].split()), float(read), float(written),
            float(flop), bool(compiled),
        )
        for op, shapes, dtypes, read, written, flop, compiled in found.tolist()
    ]  # fmt: skip
    return made, which.ravel()


def rates_of(
    trace: Trace, device: Device, software: Software, change: Callable[[DeviceNumbers], DeviceNumbers] = lambda numbers: numbers
) -> Rates:
    """A device's rates as a trace's software uses them.

    Parameters
    ----------
    trace : with its facts
    device, software : on what, with whose constants
    change : as `Rates` takes it
    """
    return Rates(device, software, trace.facts.get("tensor_float", TENSOR_FLOAT), change)


def kernel_times(role: Role, rates: Rates) -> Floats:
    """Time of each kernel of a role on a device, alone; 0 of those that its host computes, in whose time they are [s]."""
    if not len(role.kernels):
        return np.zeros(0)
    made, which = signatures(role)
    return np.where(on_processors(role), 0.0, np.array([rates.time(kernel) for kernel in made])[which])


def on_processors(role: Role) -> NDArray[np.bool_]:
    """Which kernels of a role its host computes."""
    return role.kernels.stream == (role.streams.index(PROCESSORS) if PROCESSORS in role.streams else NOWHERE)


def processor_times(role: Role, cluster: Cluster, framework: Framework) -> Floats:
    """Time of what the host computes for a role, 0 of kernels of its device [s].

    Processors pass the operands of all of a node's ranks through one memory.

    Parameters
    ----------
    cluster : whose hosts these are
    framework : whose optimizer runs there
    """
    kernels, device = role.kernels, cluster.device.numbers(cluster.device.usual_dtype)
    rate = min(HOST_MEMORY_OVER_LINK * device.host_bandwidth, framework.host_update_rate)
    sharing = min(cluster.gpus_per_node, cluster.gpus or 1)
    return np.where(on_processors(role), sharing * (kernels.bytes_read + kernels.bytes_written) / rate, 0.0)
