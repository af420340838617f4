"""Which parallel configuration of a training run is fastest and fits in memory: in milliseconds, with the reason.

>>> import costmodel
>>> model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
>>> plan = costmodel.Plan(global_batch=64, seq_len=8192, tensor_parallel=2, data_parallel=4)
>>> costmodel.estimate(model, cluster, plan).fits
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Transformer": "workloads.transformer",
    "Device": "hardware.device",
    "Efficiency": "hardware.device",
    "Cluster": "hardware.cluster",
    "Level": "hardware.cluster",
    "Plan": "plan",
    "Framework": "frameworks",
    "Estimate": "estimate",
    "estimate": "estimate",
    "SearchResult": "search",
    "search": "search",
    "load_model": "catalogue.loader",
    "load_device": "catalogue.loader",
    "load_cluster": "catalogue.loader",
    "names": "catalogue.loader",
    "load_framework": "catalogue.software",
    "framework_names": "catalogue.software",
    "CostModelError": "errors",
    "IllegalPlan": "errors",
    "InvalidValue": "errors",
    "NotModelled": "errors",
    "UnknownName": "errors",
    "UnreadableFile": "errors",
}
__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from costmodel.catalogue.loader import load_cluster, load_device, load_model, names
    from costmodel.catalogue.software import framework_names, load_framework
    from costmodel.errors import (
        CostModelError,
        IllegalPlan,
        InvalidValue,
        NotModelled,
        UnknownName,
        UnreadableFile,
    )
    from costmodel.estimate import Estimate, estimate
    from costmodel.frameworks import Framework
    from costmodel.hardware.cluster import Cluster, Level
    from costmodel.hardware.device import Device, Efficiency
    from costmodel.plan import Plan
    from costmodel.search import SearchResult, search
    from costmodel.workloads.transformer import Transformer


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'costmodel' has no attribute {name!r}")
    value = getattr(import_module(f"costmodel.{_HOME[name]}"), name)
    globals()[name] = value  # also where importing the submodule bound its own name here
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
