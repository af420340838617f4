"""Which parallel configuration of a training run is fastest and fits in memory: in milliseconds, with the reason.

>>> import costmodel
>>> model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
>>> plan = costmodel.Plan(global_batch=64, seq_len=8192, tensor_parallel=2, data_parallel=4)
>>> costmodel.estimate(model, cluster, plan).fits
True
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
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
    "calibrate": "calibrate",
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
    from costmodel.calibrate import calibrate as calibrate
    from costmodel.catalogue.loader import load_cluster as load_cluster
    from costmodel.catalogue.loader import load_device as load_device
    from costmodel.catalogue.loader import load_model as load_model
    from costmodel.catalogue.loader import names as names
    from costmodel.catalogue.software import framework_names as framework_names
    from costmodel.catalogue.software import load_framework as load_framework
    from costmodel.errors import CostModelError as CostModelError
    from costmodel.errors import IllegalPlan as IllegalPlan
    from costmodel.errors import InvalidValue as InvalidValue
    from costmodel.errors import NotModelled as NotModelled
    from costmodel.errors import UnknownName as UnknownName
    from costmodel.errors import UnreadableFile as UnreadableFile
    from costmodel.estimate import Estimate as Estimate
    from costmodel.estimate import estimate as estimate
    from costmodel.frameworks import Framework as Framework
    from costmodel.hardware.cluster import Cluster as Cluster
    from costmodel.hardware.cluster import Level as Level
    from costmodel.hardware.device import Device as Device
    from costmodel.hardware.device import Efficiency as Efficiency
    from costmodel.plan import Plan as Plan
    from costmodel.search import SearchResult as SearchResult
    from costmodel.search import search as search
    from costmodel.workloads.transformer import Transformer as Transformer


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'costmodel' has no attribute {name!r}")
    value = getattr(import_module(f"costmodel.{_HOME[name]}"), name)
    setattr(sys.modules[__name__], name, value)
    return value


class _Front(ModuleType):
    """Keeps `costmodel.estimate` the function when importing the submodule of that name would bind the module."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Front


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
