"""DeepSpeed's JSON configuration, alone or beside a trainer's file."""

from __future__ import annotations

from costmodel.catalogue.software import load_framework
from costmodel.interop.launchers import common, says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.table import ABOVE_ONE, OWN, Dialect, FlagRow, LaunchReading, Writing

AUTO = "auto"


def device(raw: object) -> object:
    """Whether something is moved: to the CPU or to disk."""
    if raw is None or str(raw).lower() == "none":
        return False if raw is not None else unit.UNSTATED
    if str(raw).lower() == "auto":
        return unit.UNSTATED
    if str(raw).lower() not in ("cpu", "nvme"):
        raise unit.Expected("cpu, nvme or none")
    return str(raw).lower()


def elements(raw: object) -> object:
    """So many elements, or what transformers makes of the model's width."""
    return AUTO if str(raw).lower() == AUTO else unit.number(raw)


NARROW = "adam-bf16-master"
"""Adam whose master copy and moments are in 16 bit (deepspeed/runtime/base_optimizer.py @edaa722)."""


def offloads(w: Writing) -> object:
    """Whether states that are sharded lie in host memory."""
    return w.plan.zero_stage and w.stated("_offload_fraction")


ROWS = (
    FlagRow("train_batch_size", "global_batch", unit.count, "micro x accumulation x ranks", says=OWN),
    FlagRow("train_micro_batch_size_per_gpu", "micro_batch", unit.count, says=OWN),
    FlagRow("gradient_accumulation_steps", "gradient_accumulation", unit.count, 1, says=OWN),
    FlagRow("bf16.enabled bfloat16.enabled", "_bf16", unit.flag, False, says=OWN),
    FlagRow("fp16.enabled", "_fp16", unit.flag, False, says=OWN),
    FlagRow("bf16.bf16_master_weights_and_grads", "_narrow_master", unit.flag, False, "from 0.18.3",
            lambda w: w.plan.optimizer == NARROW or None),
    FlagRow("bf16.bf16_optimizer_states", "_narrow_moments", unit.flag, False, "from 0.18.3",
            lambda w: w.plan.optimizer == NARROW or None),
    FlagRow("zero_optimization.stage", "zero_stage", unit.whole, 0, says=OWN),
    FlagRow("zero_optimization.offload_optimizer.device", "_device_optimizer", device, "none", "from 0.3.16", OWN, offloads),
    FlagRow("zero_optimization.offload_param.device", "_device_parameters", device, "none", "from 0.3.16"),
    FlagRow("zero_optimization.offload_optimizer.ratio", "_offload_fraction", unit.number, 1.0, "from 0.12", OWN, offloads),
    FlagRow("zero_optimization.cpu_offload", "_offload_optimizer", unit.flag, False, "to 0.3.15"),
    FlagRow("zero_optimization.cpu_offload_params", "_offload_parameters", unit.flag, False, "to 0.3.15"),
    FlagRow("zero_optimization.overlap_comm", "_overlap", unit.flag, "true at stage 3", says="overlap_gradients"),
    FlagRow("zero_optimization.mics_shard_size", "shard_group", unit.count_or_open, -1),
    FlagRow("zero_optimization.zero_hpz_partition_size", "_hpz", unit.count, 1, "from 0.10"),
    FlagRow("zero_optimization.reduce_bucket_size", "_bucket", elements, 5e8),
    FlagRow("zero_optimization.stage3_prefetch_bucket_size zero_optimization.prefetch_bucket_size", "_prefetch", elements, 5e7),
    FlagRow("optimizer.type", "optimizer", unit.word),
    FlagRow("tensor_parallel.autotp_size", "tensor_parallel", unit.degree, 0, "from 0.16", says=ABOVE_ONE),
    FlagRow("sequence_parallel_size", "ulysses_parallel", unit.count, 1, "from 0.15", says=ABOVE_ONE),
    FlagRow("pipeline.stages", "_pipeline", unit.anything),
    FlagRow("data_types.grad_accum_dtype", "gradient_bytes", unit.one_of({"fp32": 4, "bf16": 2, "fp16": 2})),
    FlagRow("zero_optimization", "_zero", unit.anything),
    says.alone("gradient_clipping", says.fixed(1.0)),
)


def rules(reading: LaunchReading) -> None:
    """What DeepSpeed's sections amount to."""
    reading.put("zero_stage", reading.one("zero_stage"))
    if reading.one("_zero") is True:
        reading.put("zero_stage", 1)  # before stages had numbers
    common.devices(reading)
    if reading.one("_offload_parameters") and not reading.has("_offload_optimizer"):
        reading.say("_offload_optimizer", False, "offload_optimizer")
    common.offload(reading)
    precision(reading)
    if reading.one("_narrow_master") and reading.one("_narrow_moments"):
        reading.put("optimizer_states", NARROW)
    overlap(reading)
    buckets(reading)
    hpz = reading.one("_hpz")
    if hpz and hpz > 1:
        reading.unpriced.append("zero_optimization.zero_hpz_partition_size")


def overlap(reading: LaunchReading) -> None:
    """Whether gradients, and the weights that stage 3 shards, are exchanged beside compute."""
    if reading.has("_overlap"):
        reading.put("overlap_gradients", reading.one("_overlap"))
        if reading.plan.get("zero_stage") == 3:
            reading.put("overlap_parameters", reading.one("_overlap"))


def buckets(reading: LaunchReading) -> None:
    """Bytes of buckets, which files say in elements, or leave to the model's width; Megatron-DeepSpeed's are not modelled."""
    if reading.framework == "megatron-deepspeed":
        sizes = {"_bucket": "reduce_bucket_size", "_prefetch": "stage3_prefetch_bucket_size"}
        reading.unpriced += [f"zero_optimization.{name}" for said, name in sizes.items() if reading.has(said)]
        return
    stage, width = reading.plan.get("zero_stage"), load_framework("deepspeed").reduce_bytes
    for said, field, stages in (("_bucket", "bucket_bytes", (1, 2, 3)), ("_prefetch", "prefetch_bytes", (3,))):
        count = reading.one(said)
        if stage in stages and count == AUTO:
            reading.plan["sized_by_width"] = [*reading.plan.get("sized_by_width", []), field]
        elif stage in stages and count:
            reading.put(field, float(count) * width)


def precision(reading: LaunchReading) -> None:
    """fp16 and bf16 sections; both on, or arguments that say the other, is a conflict."""
    half, brain = reading.one("_fp16"), reading.one("_bf16")
    stated = [name for name, on in (("fp16", half), ("bf16", brain)) if on]
    said = reading.said.get("_wide", [])
    if "dtype" in reading.settled:
        return
    if len(stated) == 2:
        reading.conflict("fp16.enabled and bf16.enabled, both true")
    elif stated and said and any(one.value != stated[0] for one in said):
        off = " and fp16 disabled" if half is False and said[0].value == "fp16" else ""
        reading.conflict(f"{said[0].shown} in the arguments, but {stated[0]} enabled{off} in DeepSpeed's configuration")
        reading.plan.pop("dtype", None)
        reading.say("dtype", None, "")
    elif stated:
        reading.put("dtype", stated[0])
    elif half is False and not said and (brain is False or not reading.keys & {"bf16.enabled", "bfloat16.enabled"}):
        reading.put("dtype", "fp32", derived=True)


DEEPSPEED = Dialect("deepspeed", ROWS, rules)
