"""The operators of a layer on the roofline of its device: what each computes, what it moves, how long it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from costmodel.arithmetic.named_tuples import replaced
from costmodel.evaluation.estimation import Estimate
from costmodel.formulas.quantities import DeviceNumbers, Number, Software
from costmodel.formulas.transformer import attention, layer, lengths
from costmodel.formulas.transformer.lengths import at_work, of_layers
from costmodel.text.checks import kind
from costmodel.text.results import brief, figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

BOUNDLESS = 1e60
"""A rate that no kernel notices [FLOP/s or bytes/s]."""


class Operator(NamedTuple):
    """One kind of kernel of a layer's forward pass on one micro-batch."""

    name: str  # in words
    flop: float  # that it computes on one GPU [FLOP]
    nbytes: float  # that it moves to and from the GPU's memory [bytes]
    time: float  # that it takes [s]

    @property
    def intensity(self) -> float:
        """Arithmetic intensity [FLOP/byte]."""
        return self.flop / self.nbytes

    @property
    def rate(self) -> float:
        """Rate that it reaches [FLOP/s]."""
        return self.flop / self.time


class Roofline(NamedTuple):
    """A device's two limits, and the operators below them."""

    device: str  # its name
    dtype: str  # of the products
    peak: float  # dense peak at that dtype [FLOP/s]
    bandwidth: float  # specified, of the device's memory [bytes/s]
    operators: tuple[Operator, ...]  # that compute anything; the slowest first
    streaming_time: float  # of the kernels between them, which only move bytes, in the same pass [s]

    def __repr__(self) -> str:
        return brief(self)

    def plot(self, kind: str | None = None) -> go.Figure:
        """As `costmodel.text.results.figure`."""
        return figure(self, kind)

    @property
    def ridge(self) -> float:
        """Intensity from which the peak limits, not the memory [FLOP/byte]."""
        return self.peak / self.bandwidth


def roofline(estimate: Estimate) -> Roofline:
    """Operators of an average layer, and the vocabulary projection, of a plan's forward pass.

    The FLOP and bytes of an operator are those by which its formula prices it: the formula is evaluated on a device
    that computes one FLOP a second and moves bytes in no time, and on one of the reverse. A flash kernel is priced by its
    FLOP alone; its bytes are the least that it has to move. Times are those by the constants: what own runs say of a plan
    is no operator's.

    Parameters
    ----------
    estimate : of the plan

    Returns
    -------
    Roofline

    Raises
    ------
    InvalidValue
        where no estimate is given

    References
    ----------
    [williams2009]_

    Examples
    --------
    >>> from costmodel import estimate, load_cluster, load_model, Plan
    >>> plan = Plan(global_batch=64, seq_len=8192, tensor_parallel=2, data_parallel=4)
    >>> found = roofline(estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), plan))
    >>> [operator.name for operator in found.operators][:2]
    ['vocabulary projection', 'MLP']
    """
    kind("estimate", estimate, Estimate, "estimate(...)")
    plan, device = estimate.plan, estimate.cluster.device
    model, asked, numbers, _, software, real = estimate.inputs
    settings = of_layers(model, at_work(asked, numbers))
    tokens = lengths.local_tokens(settings, numbers)
    ideal = real._replace(
        gemm_efficiency=1.0, base_gemm_efficiency=1.0, gemm_output=0.0, gemm_depth=0.0, base_gemm_output=0.0,
        base_gemm_depth=0.0, grouped_efficiency=1.0, grouped_rows=0.0, grouped_output=0.0, attention_forward_efficiency=1.0,
        attention_backward_efficiency=1.0, attention_length=0.0, attention_window=0.0, attention_width=0.0, attention_rows=0.0,
        attention_unaligned=1.0, attention_older=1.0, narrow_attention=1.0, narrow_attention_back=1.0,
        narrow_wide_attention=1.0, narrow_wide_attention_back=1.0, full_attention_efficiency=1.0, full_attention_length=0.0,
        full_attention_width=0.0, kernel_time=0.0, sustained_clock=1.0, narrow_clock=1.0,
    )  # fmt: skip
    plain = replaced(software, {"compute_gemm_efficiency_scale": 1.0, "compute_attention_efficiency_scale": 1.0})
    counting = _rated(ideal, 1.0, BOUNDLESS)
    moving = _rated(ideal, BOUNDLESS, 1.0)

    def priced(name: str, time: Callable[[Software, DeviceNumbers], Number]) -> Operator:
        return Operator(name, float(time(plain, counting)), float(time(plain, moving)), float(time(software, real)))

    width, shared = model.mlp.width / numbers.tensor, model.experts.shared_width / numbers.tensor
    core = priced("attention core", lambda s, d: attention.core(model, tokens, settings, numbers, s, d)[0])
    if settings.kernels.flash_attention:
        core = core._replace(nbytes=float(attention.flash_bytes(model, tokens, numbers)))
    found = [
        priced("attention projections", lambda s, d: layer.attention_projections(model, settings, numbers, s, d)[0]),
        core,
        priced("vocabulary projection", lambda s, d: layer.head_work(model, settings, numbers, s, d).forward),
    ]
    if estimate.model.expert_layers < estimate.model.layers:
        found.append(priced("MLP", lambda s, d: layer.mlp(model, width, settings, numbers, s, d)[0]))
    if estimate.model.expert_layers:
        # kernels for groups multiply no more rows than there are; how long the plan's own take is priced as the plan has it
        whole = settings._replace(framework=settings.framework._replace(grouped_experts=1.0))
        counted = priced("experts", lambda s, d: layer.experts(model, whole, numbers, s, d)[0])
        found.append(counted._replace(time=float(layer.experts(model, settings, numbers, software, real)[0])))
    if estimate.model.shared_expert_feed_forward:
        found.append(priced("shared expert", lambda s, d: layer.mlp(model, shared, settings, numbers, s, d)[0]))
    work = layer.layer_work(model, settings, numbers, software, real)
    return Roofline(
        device.name, str(plan.dtype), device.peak(str(plan.dtype)), float(device.memory_bandwidth),
        tuple(sorted(found, key=lambda one: -one.time)), float(work.stream_forward),
    )  # fmt: skip


def _rated(device: DeviceNumbers, rate: float, bandwidth: float) -> DeviceNumbers:
    """The device at one rate of all arithmetic [FLOP/s] and one of all memory [bytes/s]."""
    return device._replace(
        flop_rate=rate, base_flop_rate=rate, vector_flop_rate=rate, int8_flop_rate=rate, split_flop_rate=rate,
        best_flop_rate=rate, base_best_flop_rate=rate, memory_bandwidth=bandwidth,
        product_bandwidth=bandwidth, grouped_bandwidth=bandwidth, cast_bandwidth=bandwidth, cache_bandwidth=bandwidth,
    )  # fmt: skip
