"""Which constants are fitted, what nature and experience say of each, and among whom they are shared."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from costmodel.catalogue.effects import CLOCKS, LEVELS, Link


@dataclasses.dataclass(frozen=True)
class Field:
    """One constant of the formulas before measuring."""

    path: str  # of the constant in `costmodel.formulas.quantities.Software`, or a clock of a device
    prior: float  # what is believed of it
    low: float  # low, high: what nature allows; a bound is never reached, as `Link` has it
    high: float
    spreads: Mapping[str, float]  # standard deviation of the linked constant over the members of each level, before measuring
    # where the fit begins; 0: at `prior`. A time of which nearly nothing is expected changes no step where it starts from
    # nothing, so that no slope would say that a source has it
    start: float = 0.0

    @property
    def link(self) -> Link:
        """Of the constant to the whole line of real numbers."""
        return Link(self.low, self.high)


def _of(
    path: str, prior: float, low: float = 0.0, high: float = math.inf, *, field: float = 1.0, framework: float = 0.0,
    architecture: float = 0.0, both: float = 0.0, cluster: float = 0.0, device: float = 0.0, start: float = 0.0,
) -> Field:  # fmt: skip
    spreads = (field, framework, architecture, both, cluster, device)
    return Field(path, prior, low, high, {level: sd for level, sd in zip(LEVELS, spreads, strict=True) if sd}, start)


TIME = (
    # operators are measured in bursts: under a step's power the clock falls, by no more than three tenths;
    # devices of one die and power keep nearly the same, so that what is slow of one source is its software's
    # 16-bit products of over a TFLOP draw so much power that they are a tenth slower even in short benchmarks, on H100 and H200;
    # those in 8 bits are not
    *(_of(clock, 0.93, 0.7, 1.0, device=0.25, architecture=0.5) for clock in CLOCKS),
    # software calls the kernels that were measured: near 1 by the device's own constants, above it by those constants' error
    _of("compute_gemm_efficiency_scale", 0.98, 0.0, 1.1, field=0.15, framework=0.35, both=0.25),
    # devices' attention is that of training's kernels, whose kind and generation a plan names; they are as fast whoever calls
    _of("compute_attention_efficiency_scale", 1.0, 0.0, 1.6, field=0.15, framework=0.1, architecture=0.15, both=0.1),
    # bytes are counted kernel by kernel, as traces have them (`tests/audits/moved.py`): what is left is what short rows, sums and
    # strides lose of a stream's bandwidth
    _of("compute_elementwise_traffic", 1.15, 1.0, field=0.3, framework=0.5, architecture=0.3, both=0.3),
    # norm, scaling, update and copies read and write a parameter's gradient and state at most some times over
    _of("compute_optimizer_traffic", 1.6, 1.0, 4.0, framework=0.7),
    _of("compute_contention", 0.2, 0.0, 0.8, field=0.7, framework=0.5),
    # FlashAttention 2 is 1.7 to 3 times as fast as 1 and 1.3 to 2.5 times as Triton's of its time ([dao2023]_ section 4.1)
    _of("compute_first_flash", 1.0 / 1.7, 0.0, 1.0, field=0.6),
    # it reads and writes across the lines of memory: Llama 3 8B on eight H100 takes 8,192 tokens 0.145 s longer with scales of
    # rows and columns than with those of tensors (pytorch/ao@36027d82 torchao/float8/README.md: 6,768 and 7,689.5 tokens/s), a
    # cast of rows each would take 0.03
    _of("compute_column_cast", 5.0, field=0.3),
    # blocks of 64 to 256 rows, between which decays are exponentiated: no rate was measured
    _of("compute_scan_efficiency", 0.25, 0.0, 1.0, field=0.5),
    # a machine's processor is as slow for all that is launched: the same tests of Megatron's take the host of an A100, or of a
    # GB200, 1.5 times what they take that of an H100 (NVIDIA/Megatron-LM@d98e8a6 tests/functional_tests, golden values)
    _of("host_pace", 1.0, field=0.0, architecture=0.1, cluster=0.25),
    _of("host_forward", 3e-4, framework=0.7, both=0.3),
    _of("host_backward", 5e-4, framework=0.7, both=0.3),
    # small collectives inside a node take 24 to 32 us over what NCCL's own model says (stas00/ml-engineering@744d01e): frameworks
    # that wait besides have effects of their own, and the mean of all is known
    _of("host_collective_launch", 2e-5, field=0.3, framework=0.5, architecture=0.3),
    # an autograd function, a wait for a stream and a call into c10d: 0.2 ms in Megatron's own tests, 0.02 in vTrain's runs
    _of("host_collective_call", 5e-5, field=0.7, framework=0.7),
    # a turn of the loop in Python: the next batch, its copy to the device, what waits for the loss
    _of("host_micro_batch", 2e-3, framework=0.7, both=0.4),
    _of("host_step", 1e-2, framework=0.7, both=0.4),
    # clips, scalings and updates go tensor by tensor, or by lists of them
    _of("host_layer_update", 3e-4, field=0.5, framework=0.4),
    # Megatron-Core synchronises the device after every exchange with a neighbour (``batch_p2p_sync``)
    _of("host_pipeline_call", 2e-4, field=0.7, framework=0.7),
    _of("host_unfused_launches", 0.2, field=0.5),
    # a hundred kernels and more, by Megatron-Core's router and dispatcher, over the thirty of a plain layer
    _of("host_expert_launches", 2.5, field=0.4, framework=0.5),
    _of("host_jitter", 0.05, framework=0.7),
    _of("host_pipeline_jitter", 3e-3, field=1.0, framework=1.5, start=0.1),
    _of("host_pressure_time", 0.01, field=1.0, framework=1.0, start=0.03),
    # PyTorch's allocator, by where steps of full devices begin to take longer
    _of("host_pressure_start", 0.9, 0.8, 1.0, field=0.5),
    # a micro-batch of 256 to 2,048 tokens takes Qwen-1.8B 260 to 290 ms at ZeRO-3, and 125 ms of 256 with adapters and no ZeRO,
    # of which a plain layer's launches are 74 (QwenLM/Qwen@2df8e8a README.md): 188 ms for three passes of 13 modules in 24 layers
    # (deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/parameter_offload.py, ``_register_hooks_recursively``)
    _of("host_module_hook", 2e-4, field=0.3),
    # Muon's three products a step and some ten kernels around them (NVIDIA-NeMo/Emerging-Optimizers, ``newton_schulz_step``):
    # dealing 72 matrices to 8 GPUs took 25 ms off a step (KellerJordan/modded-nanogpt records/track_1_short)
    _of("host_matrix_update", 4e-4, field=0.3),
    # a launch that is waited for takes 6.6 us on P100 and 13.7 on K80, one that isn't 2.2 and 5.7 (reframe-hpc/reframe@034d60b
    # cscs-checks/microbenchmarks/kernel_latency/kernel_latency.py); a framework's host then finds its next kernel
    _of("host_blocked_kernel", 4.4e-6, field=1.0),
    # PyTorch calls an operator from Python in 5 to 10 us where no module, hook or autograd function is around it
    _of("host_update_kernel", 7e-6, field=0.4),
    # a cluster's: no software sends above the line rate
    _of("network_quality", 0.85, 0.0, 1.0, field=0.7, cluster=0.7),
    # hops of one kind of network are alike: what else a framework waits for is not the cluster's
    _of("network_latency", 1.0, field=0.15, cluster=0.35),
    _of("network_node_latency", 1.0, field=0.3, architecture=0.3),
    _of("network_sharding_quality", 0.9, 0.0, 1.0, framework=0.7),
    # a small overlap and a large contention fit alike: what is believed decides
    _of("overlap_tensor", 0.5, 0.0, 1.0, field=0.5, framework=0.7),
    _of("overlap_gradients", 0.7, 0.0, 1.0, field=0.5, framework=0.7),
    _of("overlap_parameters", 0.7, 0.0, 1.0, field=0.5, framework=0.7),
    _of("overlap_context", 0.7, 0.0, 1.0, field=0.5),
    # what a plan does not ask to overlap waits, but for what shared experts and copies of a chunk hide
    _of("overlap_experts", 0.03, 0.0, 1.0, field=0.5, framework=0.7),
    _of("overlap_pipeline", 0.5, 0.0, 1.0, framework=0.5),
    # exposed "30-40 % to <5 %" on DeepSeek-V3 on H100 (NVIDIA-NeMo/Megatron-Bridge); the compute there is may be less
    _of("overlap_accompanied_experts", 0.95, 0.0, 1.0, field=0.5),
)
"""Constants of the step time."""

MEMORY = (
    # activations are counted tensor by tensor: what an allocator rounds up, and what compilers save, is little
    _of("memory_activation_overhead", 1.0, 0.8, 1.2, field=0.1, framework=0.12),
    _of("memory_backward_overhead", 0.7, field=0.5, framework=0.4),
    # cuBLAS holds 8 to 32 MiB a handle and stream; a context is CUDA's, whatever the framework
    _of("memory_workspace", 1e8, field=0.5),
    _of("memory_fixed", 1.5e9, field=0.5),
    _of("memory_library_overhead", 1.0, field=0.7, architecture=0.4),
    # of what comes and goes in a step
    _of("memory_fragmentation", 0.1, 0.0, 0.6, field=0.7, framework=0.7),
    _of("memory_idle", 0.3, 0.0, 1.5, field=0.7, framework=0.5),
    # no freed block is as long as the next tensor: replayed through the allocator's rules, 300 steps of lengths drawn evenly keep
    # 1.3 to 6 times of it, until memory is short; ``nvidia-smi`` and the allocator showed 0.9 to 1.2 in LoRA runs of Qwen 1.8B to
    # 14B (modelscope/ms-swift, benchmark)
    _of("memory_unlike_idle", 1.0, field=0.2),
    # what is counted is counted tensor by tensor; own runs of a cluster alone may say that it holds another
    _of("memory_own", 1.0, field=0.0),
)
"""Constants of the peak memory."""
