"""An accelerator: what the vendor specifies, and the constants that measurements give."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from costmodel.checks import mapping, positive_int, real, text
from costmodel.errors import InvalidValue, NotModelled
from costmodel.formulas.quantities import DeviceNumbers
from costmodel.units import quantity

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp8-rowwise", "mxfp8", "nvfp4")
"""Dtypes of a GEMM. mxfp8 runs at the fp8 peak; nvfp4 at the fp4 peak."""

_PEAK_OF = {"fp8-rowwise": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
_SIXTEEN_BIT = ("bf16", "fp16", "tf32", "fp32")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Calibrated constants of an architecture; `costmodel.formulas.compute` says how they act.

    Parameters
    ----------
    gemm : share of the dense peak that a large GEMM reaches, by dtype
    gemm_output : output elements lost to unfilled waves
    gemm_depth : inner dimension lost to filling the pipeline of a tile
    attention_forward, attention_backward : share of the 16-bit peak of the flash kernels
    attention_length : sequence length lost to short rows [tokens]
    memory : share of the specified memory bandwidth that streaming kernels reach
    kernel_time : shortest kernel with the gap to the next [s]
    sustained_clock : clock in a training step over that of a short benchmark
    """

    gemm: Mapping[str, float]
    gemm_output: float
    gemm_depth: float
    attention_forward: float
    attention_backward: float
    attention_length: float
    memory: float
    kernel_time: float
    sustained_clock: float = 1.0

    def __post_init__(self) -> None:
        if not mapping("gemm", self.gemm):
            raise InvalidValue("gemm", dict(self.gemm), "an efficiency for at least one dtype")
        for dtype, value in self.gemm.items():
            real(f"gemm.{dtype}", value, 1e-4, 1.2)
        for field in ("attention_forward", "attention_backward", "memory"):
            real(field, getattr(self, field), 1e-4, 1.2)
        for field in ("gemm_output", "gemm_depth", "attention_length"):
            real(field, getattr(self, field), 0.0, 1e9)
        real("kernel_time", self.kernel_time, 0.0, 1.0)
        real("sustained_clock", self.sustained_clock, 1e-4, 1.2)


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
    architecture : the family whose constants a device without its own measurement borrows
    layer_efficiency : constants of fp32 kernels of convolutions and recurrences; those of `efficiency` if not given
    power : limit of the whole device [W]; None if unknown

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    """

    name: str
    dense_peak: Mapping[str, float]
    memory: float
    memory_bandwidth: float
    efficiency: Efficiency
    usable_memory: float | None = None
    host_bandwidth: float = 12e9
    multiprocessors: int = 0
    architecture: str = "unknown"
    layer_efficiency: LayerEfficiency | None = None
    title: str = ""
    power: float | None = None

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
        if self.multiprocessors:
            positive_int("multiprocessors", self.multiprocessors, 10**6)
        if self.power is not None:
            real("power", self.power, 1e-3, 1e6)

    def peak(self, dtype: str) -> float:
        """Dense peak at a GEMM dtype [FLOP/s]; NotModelled where the device has none."""
        if dtype not in DTYPES:
            raise InvalidValue("dtype", dtype, "one of " + ", ".join(DTYPES))
        key = _PEAK_OF.get(dtype, dtype)
        if dtype == "mxfp8" and "fp4" not in self.dense_peak:
            raise NotModelled(f"{self.name} has no {dtype} rate: block-scaled formats came with fp4")
        if key not in self.dense_peak:
            raise NotModelled(f"{self.name} has no {dtype} rate in the catalogue; it has {', '.join(self.dense_peak)}")
        return float(self.dense_peak[key])

    def gemm_efficiency(self, dtype: str) -> float:
        """Calibrated share of the peak at a dtype; an unmeasured dtype takes that of the nearest measured one."""
        measured = self.efficiency.gemm
        for candidate in (dtype, _PEAK_OF.get(dtype, dtype), *_SIXTEEN_BIT, *measured):
            if candidate in measured:
                return float(measured[candidate])
        raise InvalidValue("gemm", dict(measured), "an efficiency for at least one dtype")

    def numbers(self, dtype: str = "bf16") -> DeviceNumbers:
        """The device as the numbers that formulas take, at one GEMM dtype."""
        base = dtype
        if dtype not in _SIXTEEN_BIT:
            base = "bf16" if "bf16" in self.dense_peak else "fp16"
        constants = self.efficiency
        return DeviceNumbers(
            flop_rate=self.peak(dtype),
            base_flop_rate=self.peak(base),
            gemm_efficiency=self.gemm_efficiency(dtype) * constants.sustained_clock,
            base_gemm_efficiency=self.gemm_efficiency(base) * constants.sustained_clock,
            gemm_output=float(constants.gemm_output),
            gemm_depth=float(constants.gemm_depth),
            attention_forward_efficiency=float(constants.attention_forward) * constants.sustained_clock,
            attention_backward_efficiency=float(constants.attention_backward) * constants.sustained_clock,
            attention_length=float(constants.attention_length),
            memory_bandwidth=float(self.memory_bandwidth) * float(constants.memory),
            kernel_time=float(constants.kernel_time),
            memory=float(self.usable_memory),  # type: ignore[arg-type]
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
            kernel_time=float(constants.kernel_time),
        )

    def layer_constants(self, dtype: str = "fp32") -> LayerEfficiency:
        """Constants of kernels of convolutions and recurrences at one dtype: fp32's own, else those of products."""
        if self.layer_efficiency is not None and dtype == "fp32":
            return self.layer_efficiency
        shared = self.efficiency
        return LayerEfficiency(
            gemm=self.gemm_efficiency(dtype), winograd=1.0, gemm_output=shared.gemm_output, gemm_depth=shared.gemm_depth,
            memory=shared.memory, kernel_time=shared.kernel_time,
        )  # fmt: skip
