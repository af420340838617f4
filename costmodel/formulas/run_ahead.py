"""What the host's lead over the device costs in memory, where weights are gathered on a stream of their own."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas import training_step
from costmodel.formulas.network import communication
from costmodel.formulas.quantities import DeviceNumbers, ModelNumbers, NetworkNumbers, Number, PlanNumbers, Settings, Software
from costmodel.formulas.transformer import adapters, launches, memory
from costmodel.formulas.transformer.parameters import dense_layer_of_rank

QUEUE = 1024.0
"""Launches that wait for a device at most, before the host waits itself."""


def lead(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers,
) -> Number:  # fmt: skip
    r"""Layers whose forward pass the host has launched, and whose weights are gathered, before the device comes to them, at most.

    .. math:: L\,\Bigl(1 - \frac{\max(t_{host}, t_{gather})}{t_{device}}\Bigr)

    None where the host waits in each layer: for a flash kernel's wrapper that looks at a mask or at positions, for the number of
    an expert's tokens, for outliers among what is multiplied in 8 bit, or for every kernel.

    References
    ----------
    huggingface/transformers@v5.24.0 src/transformers/modeling_flash_attention_utils.py (``_is_packed_sequence``: "forces a
    device sync in every layer")
    """
    pass_ = training_step.layer_pass(model, settings, plan, network, software, device)
    kernels = launches.layer_launches(model, settings, plan, software)
    hooks = launches.hook_time(settings, model, plan, software)
    launched = software.host.pace * (kernels * software.host.forward + hooks)
    unit = adapters.gathered_width(settings, plan) * _layer(model, plan)
    shard, _ = communication.shard_groups(plan)
    gathered = communication.shard_exchange(unit, shard, plan.data_stride, network, software)
    reads = settings.kernels.host_reads
    waits = (reads > 1.0) | ((reads > 0.0) & (plan.micro_batch <= 1.0)) | (settings.framework.blocking_launches > 0.0)
    waits = waits | (launches.counted_tokens(model, settings) + settings.adapter.eighth > 0.0)
    ahead = model.layers * ops.maximum(1.0 - ops.maximum(launched, gathered) / pass_.forward, 0.0)
    return ops.where(waits, 0.0, ops.minimum(ahead, QUEUE / (launches.PLAIN * kernels)))


def ahead_bytes(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers,
) -> Number:  # fmt: skip
    """Bytes that the allocator keeps, beside a fullest moment, of weights that ZeRO-3 gathered ahead of the device.

    DeepSpeed gathers on a stream of its own, frees a layer's weights as the host leaves the layer, and has the allocator wait for
    the device before it gives their blocks to others: so new ones are made for what the host gathers meanwhile, in a pool that
    no pass takes from. FSDP waits before it gathers a third unit. Of a Llama of 24 layers on H100, with such hooks around its
    modules, 8,192 tokens and 0.10 s on the host for 0.18 on the device, 4.2 GiB are reserved beyond what a wait in each layer
    needs, of 9.0 in its layers; with 1,024 tokens, where the host is the slower, 0.2.

    References
    ----------
    deepspeedai/DeepSpeed@v0.19.8 deepspeed/runtime/zero/partitioned_param_coordinator.py (``__allgather_stream``,
    ``__max_ongoing_fetch_events`` of gathers alone), partition_parameters.py (``free_param``: ``record_stream``);
    pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp (``insert_events``), torch/distributed/fsdp/_limiter_utils.py
    """
    unit = settings.widths.stored * memory.split_parameters(_layer(model, plan), 0.0, plan)
    apart = settings.overlap.parameters * ops.where(settings.buckets.live > 0.0, 1.0, 0.0)
    return apart * unit * lead(model, settings, plan, network, software, device)


def _layer(model: ModelNumbers, plan: PlanNumbers) -> Number:
    """Parameters of an average layer on one rank, outside the routed experts."""
    return dense_layer_of_rank(model, plan.tensor)
