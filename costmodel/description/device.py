"""An accelerator: what the vendor specifies, and the constants that measurements give."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from costmodel.formulas.compute import limited_clock
from costmodel.formulas.quantities import DeviceNumbers
from costmodel.text.checks import filled, mapping, positive_int, real, text
from costmodel.text.errors import InvalidValue, NotModelled
from costmodel.text.results import brief
from costmodel.text.units import quantity

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp8-rowwise", "fp8-block", "mxfp8", "nvfp4")
"""Dtypes of a GEMM. fp8-block has a scale for 128 elements of an activation and for 128 x 128 of a weight, mxfp8 one for 32;
both run at the fp8 peak, nvfp4 at the fp4 peak."""

_PEAK_OF = {"fp8-rowwise": "fp8", "fp8-block": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
_SIXTEEN_BIT = ("bf16", "fp16", "tf32", "fp32")
_NEAR = {"fp8-rowwise": ("fp8",), "fp8-block": ("fp8",), "mxfp8": ("fp8-block", "fp8"), "nvfp4": ("fp4", "mxfp8", "fp8")}


PerDtype = float | Mapping[str, float]
"""One value for all dtypes, or one by dtype; a dtype that isn't named takes the nearest that is."""


OLDER_FLASH = {"hopper": 0.6}
"""Rate of FlashAttention 2's kernels over those of a device's own generation, which are 1.5 to 2 times as fast forward and 1.5 to
1.75 backward on H100 [shah2024]_; on newer devices it is not known, and taken as theirs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Calibrated constants of a device; `costmodel.formulas.compute` and `.transformer.attention` say how they act.

    Parameters
    ----------
    gemm : share of the dense peak that a large GEMM reaches, by dtype
    best : share of the dense peak that the best product measured reached, by dtype
    gemm_output : output elements lost to unfilled waves, over the dense peak [s/FLOP]
    gemm_depth : inner dimension lost to filling the pipeline of a tile
    product_memory : share of the specified memory bandwidth at which a product's operands come
    grouped_memory : the same of many products in one kernel
    grouped : as `gemm`, of many products in one kernel
    grouped_rows : rows that each of them loses to its last tile
    grouped_output : as `gemm_output`, of many products in one kernel [s/FLOP]
    attention_forward, attention_backward : share of the 16-bit peak of the causal flash kernels
    attention_length : keys a query that they lose to partly masked tiles
    attention_window : keys a query that a window loses on top
    attention_width : channels of a head that the softmax costs as much as
    attention_rows : queries of all heads lost to unfilled waves
    attention_unaligned : factor on the rate where a head's channels are no multiple of 16
    full_attention, full_attention_length, full_attention_width : the same of kernels without a mask
    memory : share of the specified memory bandwidth that streaming kernels reach
    cast : share of it that kernels reach that make 8-bit operands
    cache : share of the last-level cache that a benchmark's next call finds filled
    cache_bandwidth : that the same kernels reach in the cache, and do not pass in memory [bytes/s]
    kernel_time : shortest kernel with the gap to the next [s]
    sustained_clock : clock in a training step over that of a short benchmark, of kernels of 16 bits and wider
    narrow_clock : the same of products of 8 and 4 bits
    """

    gemm: Mapping[str, float] = dataclasses.field(hash=False)
    best: Mapping[str, float] = dataclasses.field(hash=False)
    gemm_output: PerDtype = dataclasses.field(hash=False)
    gemm_depth: PerDtype = dataclasses.field(hash=False)
    product_memory: float
    grouped_memory: float
    grouped: Mapping[str, float] = dataclasses.field(hash=False)
    grouped_rows: PerDtype = dataclasses.field(hash=False)
    grouped_output: PerDtype = dataclasses.field(hash=False)
    attention_forward: float
    attention_backward: float
    attention_length: float
    attention_window: float
    attention_width: float
    attention_rows: float
    attention_unaligned: float
    full_attention: float
    full_attention_length: float
    full_attention_width: float
    memory: float
    cast: float
    cache: float
    cache_bandwidth: float
    kernel_time: float
    sustained_clock: float = 1.0
    narrow_clock: float = 1.0

    __repr__ = brief

    def __post_init__(self) -> None:
        for field in ("gemm", "best", "grouped"):
            values = getattr(self, field)
            if not mapping(field, values):
                raise InvalidValue(field, dict(values), "an efficiency for at least one dtype")
            for dtype, value in values.items():
                real(f"{field}.{dtype}", value, 1e-4, 1.2)
        for field in ("gemm_output", "gemm_depth", "grouped_rows", "grouped_output"):
            values = getattr(self, field)
            for dtype, value in values.items() if isinstance(values, Mapping) else (("", values),):
                real(f"{field}.{dtype}".rstrip("."), value, 0.0, 1e9)
        for field in ("attention_forward", "attention_backward", "full_attention", "attention_unaligned", "memory", "cast",
                      "product_memory", "grouped_memory", "sustained_clock", "narrow_clock"):  # fmt: skip
            real(field, getattr(self, field), 1e-4, 1.2)
        for field in ("attention_length", "attention_window", "attention_width", "attention_rows", "full_attention_length",
                      "full_attention_width"):  # fmt: skip
            real(field, getattr(self, field), 0.0, 1e9)
        real("cache", self.cache, 0.0, 1.0)
        real("cache_bandwidth", self.cache_bandwidth, 1e9, 1e15)
        real("kernel_time", self.kernel_time, 0.0, 1.0)

    def at(self, field: str, dtype: str) -> float:
        """A constant at a dtype; an unmeasured dtype takes the value of the nearest measured one.

        Parameters
        ----------
        field : whose value may differ between dtypes
        dtype : one of `DTYPES`
        """
        values = getattr(self, field)
        return float(values[self.dtype_of_constant(field, dtype)] if isinstance(values, Mapping) else values)

    def dtype_of_constant(self, field: str, dtype: str) -> str:
        """The measured dtype whose value of a constant serves a dtype; empty where one value serves all.

        Parameters
        ----------
        field, dtype : as in `at`
        """
        values = getattr(self, field)
        if not isinstance(values, Mapping):
            return ""
        for candidate in (dtype, *_NEAR.get(dtype, ()), *_SIXTEEN_BIT, *values):
            if candidate in values:
                return str(candidate)
        raise InvalidValue(field, dict(values), "a value for at least one dtype")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerEfficiency:
    """Calibrated constants of fp32 kernels outside the tensor cores, which convolutions and recurrences ran on.

    Parameters
    ----------
    gemm : share of the fp32 peak that a large product reaches
    winograd : share of that rate which products of Winograd's convolution reach
    gemm_output, gemm_depth, memory, kernel_time : as in `Efficiency`
    """

    gemm: float
    winograd: float
    gemm_output: float
    gemm_depth: float
    memory: float
    kernel_time: float

    __repr__ = brief

    def __post_init__(self) -> None:
        for field in ("gemm", "winograd", "memory"):
            real(field, getattr(self, field), 1e-4, 1.2)
        for field in ("gemm_output", "gemm_depth"):
            real(field, getattr(self, field), 0.0, 1e9)
        real("kernel_time", self.kernel_time, 0.0, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """An accelerator.

    Parameters
    ----------
    name : what it is called
    dense_peak : peak rate without sparsity, by dtype [FLOP/s]
    memory : capacity on the label [bytes]
    usable_memory : what a process sees [bytes]; the label's if not given
    memory_bandwidth : specified [bytes/s]
    efficiency : calibrated constants
    host_bandwidth : to host memory, one direction [bytes/s]
    multiprocessors : streaming multiprocessors or compute units; 0 if unknown
    cache : last-level cache [bytes]; 0 if unknown, which only benchmarks that repeat an operator feel
    architecture : the family whose constants a device without its own measurement borrows
    layer_efficiency : constants of fp32 kernels of convolutions and recurrences; those of `efficiency` if not given
    power : limit of the whole device [W]; None if unknown
    rated_power : limit of the devices of its die on which its clock was measured [W]; `power` if not given

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    """

    name: str
    dense_peak: Mapping[str, float] = dataclasses.field(hash=False)
    memory: float
    memory_bandwidth: float
    efficiency: Efficiency
    usable_memory: float | None = None
    host_bandwidth: float = 12e9
    multiprocessors: int = 0
    cache: float = 0.0
    architecture: str = "unknown"
    layer_efficiency: LayerEfficiency | None = None
    title: str = ""
    power: float | None = None
    rated_power: float | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        text("name", self.name)
        if not mapping("dense_peak", self.dense_peak):
            raise InvalidValue("dense_peak", dict(self.dense_peak), "a peak for at least one dtype [FLOP/s]")
        for dtype in self.dense_peak:
            if dtype not in (*DTYPES, "fp4", "int8"):
                raise InvalidValue("dense_peak", dtype, "one of " + ", ".join(DTYPES))
        peaks = {dtype: quantity(f"dense_peak.{dtype}", rate, "flop_rate") for dtype, rate in self.dense_peak.items()}
        object.__setattr__(self, "dense_peak", peaks)
        for field, kind in (("memory", "memory"), ("memory_bandwidth", "memory_bandwidth"), ("host_bandwidth", "bandwidth"),
                            *([] if self.usable_memory is None else [("usable_memory", "memory")])):  # fmt: skip
            object.__setattr__(self, field, quantity(field, getattr(self, field), kind))
        if self.usable_memory is None:
            object.__setattr__(self, "usable_memory", self.memory)
        real("usable_memory", self.usable_memory, 1e6, self.memory)
        real("cache", self.cache, 0.0, 1e12)
        if self.multiprocessors:
            positive_int("multiprocessors", self.multiprocessors, 10**6)
        if self.rated_power is not None and self.power is None:
            raise InvalidValue("rated_power", self.rated_power, "power beside it [W]")
        if self.rated_power is None:
            object.__setattr__(self, "rated_power", self.power)
        for field in ("power", "rated_power"):
            if getattr(self, field) is not None:
                real(field, getattr(self, field), 1e-3, 1e6)

    def peak(self, dtype: str) -> float:
        """Dense peak at a GEMM dtype [FLOP/s]; NotModelled where the device has none."""
        if dtype not in DTYPES:
            raise InvalidValue("dtype", dtype, "one of " + ", ".join(DTYPES))
        key = _PEAK_OF.get(dtype, dtype)
        if dtype == "mxfp8" and "fp4" not in self.dense_peak:
            raise NotModelled(f"{self.name} has no {dtype} rate: block-scaled formats came with fp4")
        if key not in self.dense_peak:
            known = ", ".join(name for name in self.dense_peak if name in DTYPES)
            usual = f"{self.usual_dtype} unless another is asked for"
            raise NotModelled(f"dtype={dtype!r}: {self.name} has no {dtype} rate in the catalogue; it has {known} ({usual})")
        return float(self.dense_peak[key])

    @property
    def usual_dtype(self) -> str:
        """The dtype that a run has where nothing is said: bf16, or fp16 on a device without it."""
        return next((dtype for dtype in ("bf16", "fp16", "tf32", "fp32") if dtype in self.dense_peak), "bf16")

    def gemm_efficiency(self, dtype: str) -> float:
        """Calibrated share of the peak at a dtype; an unmeasured dtype takes that of the nearest measured one."""
        return self.efficiency.at("gemm", dtype)

    def base_dtype(self, dtype: str) -> str:
        """The dtype of 16 bit or more in which attention and the head run beside GEMMs of a dtype."""
        if dtype in _SIXTEEN_BIT:
            return dtype
        return "bf16" if "bf16" in self.dense_peak else "fp16"

    def numbers(self, dtype: str = "bf16") -> DeviceNumbers:
        """The device as the numbers that formulas take, at one GEMM dtype."""
        base = self.base_dtype(dtype)
        constants, peak, base_peak = self.efficiency, self.peak(dtype), self.peak(base)
        bandwidth = float(self.memory_bandwidth)
        limited = limited_clock(float(self.power), float(self.rated_power)) if self.power and self.rated_power else 1.0
        return DeviceNumbers(
            flop_rate=peak,
            base_flop_rate=base_peak,
            vector_flop_rate=min(self.dense_peak.get("fp32", base_peak), base_peak),
            gemm_efficiency=constants.at("gemm", dtype),
            base_gemm_efficiency=constants.at("gemm", base),
            gemm_output=constants.at("gemm_output", dtype) * peak,
            gemm_depth=constants.at("gemm_depth", dtype),
            base_gemm_output=constants.at("gemm_output", base) * base_peak,
            base_gemm_depth=constants.at("gemm_depth", base),
            best_flop_rate=constants.at("best", dtype) * peak,
            base_best_flop_rate=constants.at("best", base) * base_peak,
            product_bandwidth=bandwidth * constants.product_memory,
            grouped_bandwidth=bandwidth * constants.grouped_memory,
            grouped_efficiency=constants.at("grouped", dtype),
            grouped_rows=constants.at("grouped_rows", dtype),
            grouped_output=constants.at("grouped_output", dtype) * peak,
            attention_forward_efficiency=float(constants.attention_forward),
            attention_backward_efficiency=float(constants.attention_backward),
            attention_length=float(constants.attention_length),
            attention_window=float(constants.attention_window),
            attention_width=float(constants.attention_width),
            attention_rows=float(constants.attention_rows),
            attention_unaligned=float(constants.attention_unaligned),
            attention_older=OLDER_FLASH.get(self.architecture, 1.0),
            full_attention_efficiency=float(constants.full_attention),
            full_attention_length=float(constants.full_attention_length),
            full_attention_width=float(constants.full_attention_width),
            memory_bandwidth=bandwidth * float(constants.memory),
            cast_bandwidth=bandwidth * float(constants.cast),
            cache=float(self.cache) * float(constants.cache),
            cache_bandwidth=float(constants.cache_bandwidth),
            kernel_time=float(constants.kernel_time),
            sustained_clock=limited * float(constants.sustained_clock),
            narrow=float(base != dtype),
            narrow_clock=limited * float(constants.narrow_clock),
            memory=float(filled(self.usable_memory)),
            host_bandwidth=float(self.host_bandwidth),
        )

    def layer_numbers(self, dtype: str = "fp32") -> DeviceNumbers:
        """The device as the numbers that formulas of convolutions and recurrences take, at one dtype."""
        constants = self.layer_constants(dtype)
        return self.numbers(dtype)._replace(
            gemm_efficiency=float(constants.gemm),
            gemm_output=float(constants.gemm_output),
            gemm_depth=float(constants.gemm_depth),
            memory_bandwidth=float(self.memory_bandwidth) * float(constants.memory),
            product_bandwidth=float(self.memory_bandwidth) * float(constants.memory),
            kernel_time=float(constants.kernel_time),
        )

    def layer_constants(self, dtype: str = "fp32") -> LayerEfficiency:
        """Constants of kernels of convolutions and recurrences at one dtype: fp32's own, else those of products."""
        if self.layer_efficiency is not None and dtype == "fp32":
            return self.layer_efficiency
        shared, numbers = self.efficiency, self.numbers(dtype)
        return LayerEfficiency(
            gemm=self.gemm_efficiency(dtype), winograd=1.0, gemm_output=numbers.gemm_output, gemm_depth=numbers.gemm_depth,
            memory=shared.memory, kernel_time=shared.kernel_time,
        )  # fmt: skip
