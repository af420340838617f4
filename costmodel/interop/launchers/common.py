"""Rules that several dialects share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costmodel.interop.launchers.reading import Reading

FSDP_SHARDING = {
    "1": "FULL_SHARD",
    "2": "SHARD_GRAD_OP",
    "3": "NO_SHARD",
    "4": "HYBRID_SHARD",
    "5": "HYBRID_SHARD_ZERO2",
}
"""Numbers that accelerate took for the strategies of FSDP."""
FSDP_STAGES = {
    "FULL_SHARD": 3,
    "SHARD_GRAD_OP": 2,
    "NO_SHARD": 0,
    "HYBRID_SHARD": 3,
    "HYBRID_SHARD_ZERO2": 2,
    "_HYBRID_SHARD_ZERO2": 2,
}
"""Of ZeRO, what a strategy of FSDP amounts to."""
FSDP_OFFLOAD = ("parameters", "gradients", "optimizer")
"""What lies in host memory under FSDP's CPU offload: gradients and optimizer step follow the parameters."""
COMPONENTS = ("optimizer", "parameters", "activations")


def offload(reading: Reading) -> None:
    """The list of what is offloaded, from the statements ``_offload_*``; empty where a file says that nothing is."""
    stated = [name for name in (*COMPONENTS, "fsdp") if reading.has(f"_offload_{name}")]
    if not stated:
        return
    moved: list[str] = list(FSDP_OFFLOAD) if reading.one("_offload_fsdp") else []
    moved += [name for name in COMPONENTS if name not in moved and reading.one(f"_offload_{name}")]
    if not moved and any(f"_offload_{name}" in reading.variable_fields for name in COMPONENTS):
        return
    reading.put("offload", moved)
    if "optimizer" in moved and reading.one("_offload_optimizer"):
        reading.put("optimizer_offload", reading.one("_offload_fraction", 1.0))
    if "activations" in moved:
        reading.put("activation_offload", reading.one("_offload_activation_fraction", 1.0))


def devices(reading: Reading) -> None:
    """DeepSpeed's devices to offload to, as statements ``_offload_*``."""
    for part in ("optimizer", "parameters"):
        where = reading.one(f"_device_{part}")
        if where is not None:
            reading.say(f"_offload_{part}", bool(where), f"offload_{part} to {where or 'none'}")
        if where == "nvme":
            reading.unpriced.append(f"offload of {part} to nvme")


def dtype(reading: Reading) -> None:
    """The dtype of matrix products: the narrow one if there is one, over the 16-bit one."""
    wide, narrow = reading.one("_wide"), reading.one("_narrow")
    reading.put("dtype", narrow or wide)


def fsdp(reading: Reading, fields: dict[str, object]) -> None:
    """The table of FSDP's settings, and as assumption the ZeRO stage that it amounts to."""
    reading.put("fsdp", fields)
    sharding = str(fields.get("sharding") or "FULL_SHARD").upper()
    stage = FSDP_STAGES.get(sharding, 3)
    if stage == 3 and fields.get("reshard_after_forward") is False:
        stage = 2
    shards, copies = fields.get("shard_degree"), fields.get("replicate_degree")
    if shards == 1 and (reading.one("context_parallel") or 1) == 1:
        stage = 0
    reading.defaults["zero_stage"] = stage
    if isinstance(shards, int) and isinstance(copies, int) and copies > 1 and stage:
        reading.put("shard_group", shards * (reading.one("context_parallel") or 1))


def sections(reading: Reading, *names: str) -> bool:
    """Whether a file has a section of one of these names."""
    return any(key.partition(".")[0] in names for key in reading.keys)
