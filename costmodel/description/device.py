"""An accelerator: what the vendor specifies, and the constants that measurements give."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from costmodel.description import fields
from costmodel.description.fields import ByDtype, Name, Quantified, Real, Restriction, Whole, row
from costmodel.formulas.compute import limited_clock
from costmodel.formulas.hardware import device_numbers
from costmodel.formulas.quantities import DeviceFigures, DeviceNumbers
from costmodel.formulas.settings import ATTENTION_DTYPES, FORMATS
from costmodel.text.attributes import names_what_is_there
from costmodel.text.checks import filled, mapping, real
from costmodel.text.errors import InvalidValue, NotModelled
from costmodel.text.results import brief

DTYPES = tuple(FORMATS)
"""Dtypes of a GEMM. fp8-block has a scale for 128 elements of an activation and for 128 x 128 of a weight, mxfp8 one for 32;
both run at the fp8 peak, nvfp4 at the fp4 peak."""

_PEAK_OF = {"fp8-rowwise": "fp8", "fp8-block": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
_SIXTEEN_BIT = ("bf16", "fp16", "tf32", "fp32")
_NEAR = {"fp8-rowwise": ("fp8",), "fp8-block": ("fp8",), "mxfp8": ("fp8-block", "fp8"), "nvfp4": ("fp4", "mxfp8", "fp8")}


SHARE, LENGTH = Real(1e-4, 1.2), Real(0.0, 1e9)
"""Kinds of a device's constants: a share of what is specified, a length that is lost."""
PEAK = Quantified("flop_rate")
"""A peak rate at a dtype."""
PerDtype = float | Mapping[str, float]
"""One value for all dtypes, or one by dtype; a dtype that isn't named takes the nearest that is."""


OLDER_FLASH = {"hopper": 0.6, "blackwell": 0.3, "blackwell-ultra": 0.3}
"""Rate of FlashAttention 2's kernels over those of a device's own generation, which are 1.5 to 2 times as fast forward and 1.5 to
1.75 backward on H100 [shah2024]_. On B200 FlashAttention 2 makes 350 to 360 TFLOP/s forward with 128 channels
(meta-pytorch/tritonbench#171; 330 both ways with 64, Dao-AILab/flash-attention#1589), where cuDNN and FlashAttention 4 make 1,430
to 1,530 forward and 1,120 to 1,360 backward (Dao-AILab/flash-attention#2605, #2280): a quarter of it in short bursts, a third at
the clock that training holds, which they wait for less. RTX Blackwell has Ampere's instructions
(Dao-AILab/flash-attention#2634): its own generation is that."""


class NarrowAttention(NamedTuple):
    """Rates of flash kernels whose products are in 8 bit over those of 16 on the same device."""

    forward: float = 1.0  # forward, back: of heads of up to 128 channels
    back: float = 1.0
    wide_forward: float = 1.0  # wide_forward, wide_back: of wider ones
    wide_back: float = 1.0


NARROW_ATTENTION = {
    "hopper": NarrowAttention(1.5, 0.8, 1.5, 0.8), "blackwell": NarrowAttention(1.28, 1.09, 1.5, 1.63),
    "blackwell-ultra": NarrowAttention(1.56, 1.24, 1.7, 1.79),
}  # fmt: skip
"""Of cuDNN's kernels by architecture: medians over causal sequences of 4,096, 8,192 and 16,384 tokens of the time of H200, GB200
and GB300 in bf16 over that in fp8, scaled by tensor, casts aside (NVIDIA/cudnn-frontend@3929da2
benchmark/sdpa_benchmark_training/results: llama3.1 has 128 channels; dsv3 and kimiK26 192 of queries and keys, which H200 has no
times of). Exponentials run as before, so that nothing is twice as fast; on Hopper the backward pass is slower."""


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

    gemm: Mapping[str, float] = field(hash=False, metadata=row(ByDtype(1e-4, 1.2), role="share"))
    best: Mapping[str, float] = field(hash=False, metadata=row(ByDtype(1e-4, 1.2), role="share"))
    gemm_output: PerDtype = field(hash=False, metadata=row(ByDtype(0.0, 1e9, alone=True), unit="s/FLOP"))
    gemm_depth: PerDtype = field(hash=False, metadata=row(ByDtype(0.0, 1e9, alone=True)))
    product_memory: float = field(metadata=row(SHARE, role="share"))
    grouped_memory: float = field(metadata=row(SHARE, role="share"))
    grouped: Mapping[str, float] = field(hash=False, metadata=row(ByDtype(1e-4, 1.2), role="share"))
    grouped_rows: PerDtype = field(hash=False, metadata=row(ByDtype(0.0, 1e9, alone=True), unit="rows"))
    grouped_output: PerDtype = field(hash=False, metadata=row(ByDtype(0.0, 1e9, alone=True), unit="s/FLOP"))
    attention_forward: float = field(metadata=row(SHARE, role="share"))
    attention_backward: float = field(metadata=row(SHARE, role="share"))
    attention_length: float = field(metadata=row(LENGTH, unit="tokens"))
    attention_window: float = field(metadata=row(LENGTH, unit="tokens"))
    attention_width: float = field(metadata=row(LENGTH, unit="channels"))
    attention_rows: float = field(metadata=row(LENGTH))
    attention_unaligned: float = field(metadata=row(SHARE, role="share"))
    full_attention: float = field(metadata=row(SHARE, role="share"))
    full_attention_length: float = field(metadata=row(LENGTH, unit="tokens"))
    full_attention_width: float = field(metadata=row(LENGTH, unit="channels"))
    memory: float = field(metadata=row(SHARE, role="share"))
    cast: float = field(metadata=row(SHARE, role="share"))
    cache: float = field(metadata=row(Real(0.0, 1.0), role="share"))
    cache_bandwidth: float = field(metadata=row(Real(1e9, 1e15), unit="bytes/s"))
    kernel_time: float = field(metadata=row(Real(0.0, 1.0), unit="s"))
    sustained_clock: float = field(default=1.0, metadata=row(SHARE, role="share"))
    narrow_clock: float = field(default=1.0, metadata=row(SHARE, role="share"))

    __repr__ = brief

    def __post_init__(self) -> None:
        fields.check(self)

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


OF_ALL_DTYPES = tuple(
    one.name for one in dataclasses.fields(Efficiency)
    if one.name in DeviceFigures._fields and one.type == "float" and one.name not in ("memory", "cache")
)  # fmt: skip
"""Constants that formulas take as they are, whatever the dtype."""
OF_BASE = ("gemm", "gemm_output", "gemm_depth", "best")
"""Those by dtype that they take at the base's, too."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerEfficiency:
    """Calibrated constants of fp32 kernels outside the tensor cores, which convolutions and recurrences ran on.

    Parameters
    ----------
    gemm : share of the fp32 peak that a large product reaches
    winograd : share of that rate which products of Winograd's convolution reach
    gemm_output, gemm_depth, memory, kernel_time : as in `Efficiency`
    """

    gemm: float = field(metadata=row(SHARE, role="share"))
    winograd: float = field(metadata=row(SHARE, role="share"))
    gemm_output: float = field(metadata=row(LENGTH))
    gemm_depth: float = field(metadata=row(LENGTH))
    memory: float = field(metadata=row(SHARE, role="share"))
    kernel_time: float = field(metadata=row(Real(0.0, 1.0), unit="s"))

    __repr__ = brief

    def __post_init__(self) -> None:
        fields.check(self)


@names_what_is_there
@fields.by_name("fields by name; load_device('h100') gives one of a name")
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

    name: str = field(metadata=row(Name()))
    dense_peak: Mapping[str, float] = field(hash=False)
    memory: float = field(metadata=row(Quantified("memory"), unit="bytes"))
    memory_bandwidth: float = field(metadata=row(Quantified("memory_bandwidth"), unit="bytes/s"))
    efficiency: Efficiency
    usable_memory: float | None = field(default=None, metadata=row(Quantified("memory"), unit="bytes"))
    host_bandwidth: float = field(default=12e9, metadata=row(Quantified("bandwidth"), unit="bytes/s"))
    multiprocessors: int = field(default=0, metadata=row(Whole(0, 10**6)))
    cache: float = field(default=0.0, metadata=row(Real(0.0, 1e12), unit="bytes"))
    architecture: str = "unknown"
    layer_efficiency: LayerEfficiency | None = None
    title: str = ""
    power: float | None = field(default=None, metadata=row(Quantified("power"), unit="W"))
    rated_power: float | None = field(default=None, metadata=row(Quantified("power"), unit="W"))

    __repr__ = brief

    def __post_init__(self) -> None:
        fields.check(self)
        if not mapping("dense_peak", self.dense_peak):
            raise InvalidValue("dense_peak", dict(self.dense_peak), "a peak for at least one dtype [FLOP/s]")
        for dtype in self.dense_peak:
            if dtype not in (*DTYPES, "fp4", "int8"):
                raise InvalidValue("dense_peak", dtype, "one of " + ", ".join(DTYPES))
        peaks = {dtype: PEAK.check(f"dense_peak.{dtype}", rate) for dtype, rate in self.dense_peak.items()}
        object.__setattr__(self, "dense_peak", peaks)
        if self.usable_memory is None:
            object.__setattr__(self, "usable_memory", self.memory)
        real("usable_memory", self.usable_memory, 1e6, self.memory)
        if self.rated_power is not None and self.power is None:
            raise InvalidValue("rated_power", self.rated_power, "power beside it [W]")
        if self.rated_power is None:
            object.__setattr__(self, "rated_power", self.power)

    def peak(self, dtype: str) -> float:
        """Dense peak at a GEMM dtype [FLOP/s]; NotModelled where the device has none."""
        return float(self.dense_peak[self._rate(dtype)])

    def rates(self, dtype: str) -> dict[str, str]:
        """Which of the specified rates each peak of `figures` is, by the name of that, as a key of `dense_peak`.

        Parameters
        ----------
        dtype : of the GEMMs

        Examples
        --------
        >>> from costmodel import load_device
        >>> sorted(load_device("h100-sxm").rates("fp8-block").items())[:3]
        [('base_peak', 'bf16'), ('int8_peak', 'int8'), ('peak', 'fp8')]
        """
        base = self._rate(self.base_dtype(dtype))
        vector = "fp32" if "fp32" in self.dense_peak else base
        split = "tf32" if base == "fp32" and "tf32" in self.dense_peak else base
        eighth = "int8" if "int8" in self.dense_peak else base
        return {"peak": self._rate(dtype), "base_peak": base, "vector_peak": vector, "int8_peak": eighth, "split_peak": split}

    def _rate(self, dtype: str) -> str:
        """The key of `dense_peak` at whose rate a dtype runs."""
        if dtype not in DTYPES:
            raise InvalidValue("dtype", dtype, "one of " + ", ".join(DTYPES))
        key = _PEAK_OF.get(dtype, dtype)
        if dtype == "mxfp8" and "fp4" not in self.dense_peak:
            raise NotModelled(f"{self.name} has no {dtype} rate: block-scaled formats came with fp4")
        if key not in self.dense_peak:
            known = ", ".join(name for name in self.dense_peak if name in DTYPES)
            usual = f"{self.usual_dtype} unless another is asked for"
            raise NotModelled(f"dtype={dtype!r}: {self.name} has no {dtype} rate in the catalogue; it has {known} ({usual})")
        return key

    @property
    def usual_dtype(self) -> str:
        """The dtype that a run has where nothing is said: bf16, or fp16 on a device without it."""
        return next((dtype for dtype in ("bf16", "fp16", "tf32", "fp32") if dtype in self.dense_peak), "bf16")

    @property
    def restrictions(self) -> tuple[Restriction, ...]:
        """What it holds the fields of a plan to, whatever the model and the framework."""
        has = "has no such attention kernel; Hopper's and Blackwell's for data centres have one"
        kinds = ATTENTION_DTYPES if self.architecture in NARROW_ATTENTION else ()
        return (Restriction("attention_dtype", (None, *kinds), f"attention_dtype={{attention_dtype}}: {self.name} {has}",
                            reason="attention_of_device"),)  # fmt: skip

    @property
    def transposes(self) -> bool:
        """Whether it multiplies fp8 in one layout alone, so that weights in fp8 are held transposed too; if unknown, it does."""
        return not self.architecture.startswith("blackwell")

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
        return device_numbers(self.figures(dtype))

    def figures(self, dtype: str = "bf16") -> DeviceFigures:
        """What is specified of the device and was measured, at one GEMM dtype.

        Parameters
        ----------
        dtype : one of `DTYPES`
        """
        base = self.base_dtype(dtype)
        constants, rates = self.efficiency, {name: float(self.dense_peak[key]) for name, key in self.rates(dtype).items()}
        limited = limited_clock(float(self.power), float(self.rated_power)) if self.power and self.rated_power else 1.0
        same = {name: float(getattr(constants, name)) for name in OF_ALL_DTYPES}
        same |= {name: constants.at(name, dtype) for name in (*OF_BASE, "grouped", "grouped_rows", "grouped_output")}
        same |= {f"base_{name}": constants.at(name, base) for name in OF_BASE}
        eighth = NARROW_ATTENTION.get(self.architecture, NarrowAttention())
        return DeviceFigures(
            memory=float(filled(self.usable_memory)), memory_bandwidth=float(self.memory_bandwidth),
            host_bandwidth=float(self.host_bandwidth), cache=float(self.cache),
            product_share=float(constants.product_memory), grouped_share=float(constants.grouped_memory),
            streamed_share=float(constants.memory), cast_share=float(constants.cast), cache_share=float(constants.cache),
            attention_older=OLDER_FLASH.get(self.architecture, 1.0), narrow_attention=eighth.forward,
            narrow_attention_back=eighth.back, narrow_wide_attention=eighth.wide_forward,
            narrow_wide_attention_back=eighth.wide_back, narrow=float(base != dtype), limited_clock=limited, **rates, **same,
        )  # fmt: skip

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
