"""What was measured on: device, driver, library versions, clocks."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess

import numpy
import torch

SMI_FIELDS = {
    "driver_version": "driver_version",
    "clocks.sm": "sm_clock_hertz",
    "clocks.mem": "memory_clock_hertz",
    "clocks.max.sm": "max_sm_clock_hertz",
    "clocks.max.mem": "max_memory_clock_hertz",
    "power.draw": "power_watts",
    "power.limit": "power_limit_watts",
    "temperature.gpu": "temperature_celsius",
}


def query_device(device: torch.device) -> dict:
    """Return driver version, clocks (hertz), power (watts) and temperature as ``nvidia-smi`` reports them.

    Values that cannot be read are None; without ``nvidia-smi`` the result is empty.
    """
    if device.type != "cuda":
        return {}
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    selectors = ([f"GPU-{uuid}"] if uuid is not None else []) + [str(device.index or 0)]
    for selector in selectors:
        state = query_smi(selector)
        if state:
            return state
    return {}


def query_smi(selector: str) -> dict:
    """Return what ``nvidia-smi`` reports of the GPU of this index or identifier, or nothing."""
    command = [
        "nvidia-smi",
        "-i",
        selector,
        f"--query-gpu={','.join(SMI_FIELDS)}",
        "--format=csv,noheader,nounits",
    ]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in output.strip().splitlines()[0].split(",")] if output.strip() else []
    state = {}
    for name, value in zip(SMI_FIELDS.values(), values, strict=False):
        if name == "driver_version":
            state[name] = value
            continue
        try:
            state[name] = float(value) * (1e6 if name.endswith("hertz") else 1.0)
        except ValueError:
            state[name] = None
    return state


def cpu_name() -> str:
    """Return the processor's name."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.lower().startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def nccl_version() -> str | None:
    """Return the version of NCCL, or None without it."""
    try:
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    except Exception:  # a build without NCCL fails in its own ways
        return None


def describe_environment(device: torch.device) -> dict:
    """Return the ``environment`` record of a measurement."""
    record = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": cpu_name(),
        "device_type": device.type,
        "device_count": torch.cuda.device_count() if device.type == "cuda" else 1,
        "capability": None,
        "multiprocessors": None,
        "memory_bytes": None,
        "l2_bytes": None,
        "driver_version": None,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        "nccl": nccl_version(),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cpu_count": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "allocator_configuration": os.environ.get("PYTORCH_ALLOC_CONF")
        or os.environ.get("PYTORCH_CUDA_ALLOC_CONF"),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        record |= {
            "device": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            "l2_bytes": properties.L2_cache_size,
        }
        state = query_device(device)
        record["driver_version"] = state.pop("driver_version", None)
        record["max_sm_clock_hertz"] = state.pop("max_sm_clock_hertz", None)
        record["max_memory_clock_hertz"] = state.pop("max_memory_clock_hertz", None)
        record["power_limit_watts"] = state.pop("power_limit_watts", None)
        record["before"] = state
    return record
