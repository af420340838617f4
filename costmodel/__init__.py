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
    # what is trained, on what, how
    "Transformer": "workloads.transformer",
    "LayerChain": "workloads.layers",
    "ChainLayer": "workloads.layers",
    "Device": "hardware.device",
    "Efficiency": "hardware.device",
    "Cluster": "hardware.cluster",
    "Level": "hardware.cluster",
    "Group": "hardware.topology",
    "Peer": "hardware.peers",
    "Plan": "plan",
    "Framework": "frameworks",
    # the catalogue
    "load_model": "catalogue.loader",
    "load_device": "catalogue.loader",
    "load_cluster": "catalogue.loader",
    "names": "catalogue.loader",
    "load_framework": "catalogue.software",
    "framework_names": "catalogue.software",
    "load_network": "workloads.networks",
    # a plan's step, its memory, the best plan
    "Estimate": "estimate",
    "estimate": "estimate",
    "SearchResult": "search",
    "search": "search",
    "calibrate": "calibrate",
    "Verdict": "capacity",
    "verdict": "capacity",
    "largest_micro_batch": "capacity",
    "longest_sequence": "capacity",
    "most_layers": "capacity",
    "fewest_gpus": "capacity",
    # communication
    "CollectiveTime": "communication",
    "collective_time": "communication",
    "Ledger": "ledger",
    "ledger": "ledger",
    "data_parallel_step": "data_parallel",
    "parameter_server": "parameter_server",
    "Filters": "parameter_server",
    "Stragglers": "parameter_server",
    "byteps": "byteps",
    "PCIeMachine": "byteps",
    "NVLinkMachine": "byteps",
    "collaborate": "collaboration",
    # pipelines and checkpoints
    "Schedule": "schedule",
    "pipeline_schedule": "schedule",
    "custom_schedule": "schedule",
    "zero_bubble_schedule": "timeline",
    "Timeline": "timeline",
    "timeline": "timeline",
    "simulate_schedule": "timeline",
    "Simulation": "simulate",
    "simulate": "simulate",
    "Partition": "partition",
    "partition": "partition",
    "transformer_chain": "partition",
    "balanced_stages": "partition",
    "checkpoint": "checkpoint",
    "uniform_chain": "checkpoint",
    # errors
    "CostModelError": "errors",
    "IllegalPlan": "errors",
    "IllegalSchedule": "errors",
    "InvalidValue": "errors",
    "NotModelled": "errors",
    "UnknownName": "errors",
    "UnreadableFile": "errors",
}
__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from costmodel.byteps import NVLinkMachine as NVLinkMachine
    from costmodel.byteps import PCIeMachine as PCIeMachine
    from costmodel.byteps import byteps as byteps
    from costmodel.calibrate import calibrate as calibrate
    from costmodel.capacity import Verdict as Verdict
    from costmodel.capacity import fewest_gpus as fewest_gpus
    from costmodel.capacity import largest_micro_batch as largest_micro_batch
    from costmodel.capacity import longest_sequence as longest_sequence
    from costmodel.capacity import most_layers as most_layers
    from costmodel.capacity import verdict as verdict
    from costmodel.catalogue.loader import load_cluster as load_cluster
    from costmodel.catalogue.loader import load_device as load_device
    from costmodel.catalogue.loader import load_model as load_model
    from costmodel.catalogue.loader import names as names
    from costmodel.catalogue.software import framework_names as framework_names
    from costmodel.catalogue.software import load_framework as load_framework
    from costmodel.checkpoint import checkpoint as checkpoint
    from costmodel.checkpoint import uniform_chain as uniform_chain
    from costmodel.collaboration import collaborate as collaborate
    from costmodel.communication import CollectiveTime as CollectiveTime
    from costmodel.communication import collective_time as collective_time
    from costmodel.data_parallel import data_parallel_step as data_parallel_step
    from costmodel.errors import CostModelError as CostModelError
    from costmodel.errors import IllegalPlan as IllegalPlan
    from costmodel.errors import IllegalSchedule as IllegalSchedule
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
    from costmodel.hardware.peers import Peer as Peer
    from costmodel.hardware.topology import Group as Group
    from costmodel.ledger import Ledger as Ledger
    from costmodel.ledger import ledger as ledger
    from costmodel.parameter_server import Filters as Filters
    from costmodel.parameter_server import Stragglers as Stragglers
    from costmodel.parameter_server import parameter_server as parameter_server
    from costmodel.partition import Partition as Partition
    from costmodel.partition import balanced_stages as balanced_stages
    from costmodel.partition import partition as partition
    from costmodel.partition import transformer_chain as transformer_chain
    from costmodel.plan import Plan as Plan
    from costmodel.schedule import Schedule as Schedule
    from costmodel.schedule import custom_schedule as custom_schedule
    from costmodel.schedule import pipeline_schedule as pipeline_schedule
    from costmodel.search import SearchResult as SearchResult
    from costmodel.search import search as search
    from costmodel.simulate import Simulation as Simulation
    from costmodel.simulate import simulate as simulate
    from costmodel.timeline import Timeline as Timeline
    from costmodel.timeline import simulate_schedule as simulate_schedule
    from costmodel.timeline import timeline as timeline
    from costmodel.timeline import zero_bubble_schedule as zero_bubble_schedule
    from costmodel.workloads.layers import ChainLayer as ChainLayer
    from costmodel.workloads.layers import LayerChain as LayerChain
    from costmodel.workloads.networks import load_network as load_network
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
