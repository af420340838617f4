"""Which parallel configuration of a training run is fastest and fits in memory: in milliseconds, with the reason.

>>> import costmodel
>>> model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
>>> plan = costmodel.Plan(global_batch=64, seq_len=8192, tensor_parallel=4, data_parallel=2)
>>> costmodel.estimate(model, cluster, plan).fits
True
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from costmodel.text.version import __version__ as __version__

_HOME = {
    # what is trained, on what, how
    "Transformer": "description.transformer",
    "LayerChain": "description.layers",
    "ChainLayer": "description.layers",
    "Device": "description.device",
    "Efficiency": "description.device",
    "Cluster": "description.cluster",
    "Level": "description.cluster",
    "Group": "description.topology",
    "Peer": "studies.collaboration.peers",
    "Plan": "description.plan",
    "Framework": "description.framework",
    # the catalogue
    "load_model": "catalogue.loader",
    "load_device": "catalogue.loader",
    "load_cluster": "catalogue.clusters",
    "names": "catalogue.loader",
    "load_framework": "catalogue.software",
    "framework_names": "catalogue.software",
    "load_network": "description.networks",
    # measured runs
    "Run": "description.run",
    "load_runs": "catalogue.records",
    # a plan's step, its memory, the best plan
    "Estimate": "evaluation.estimation",
    "estimate": "evaluation.estimation",
    "SearchResult": "evaluation.plan_search",
    "search": "simulation.checking",
    "calibrate": "evaluation.own_runs",
    "load_calibration": "catalogue.calibrations",
    "save_calibration": "catalogue.calibrations",
    "influences": "evaluation.own_runs",
    "next_run": "evaluation.own_runs",
    "next_runs": "evaluation.own_runs",
    "held_tensors": "evaluation.opened_bill",
    "Verdict": "evaluation.verdicts",
    "verdict": "evaluation.verdicts",
    "Capacity": "evaluation.capacity",
    "largest_batch": "evaluation.capacity",
    "largest_micro_batch": "evaluation.capacity",
    "longest_sequence": "evaluation.capacity",
    "most_layers": "evaluation.capacity",
    "fewest_gpus": "evaluation.capacity",
    # communication
    "CollectiveTime": "evaluation.collectives",
    "collective_time": "evaluation.collectives",
    "Ledger": "simulation.transactions",
    "ledger": "simulation.transactions",
    "data_parallel_step": "studies.data_parallel",
    "parameter_server": "studies.parameter_servers.servers",
    "Filters": "studies.parameter_servers.servers",
    "Stragglers": "studies.parameter_servers.servers",
    "byteps": "studies.parameter_servers.byteps_cluster",
    "PCIeMachine": "studies.parameter_servers.byteps_cluster",
    "NVLinkMachine": "studies.parameter_servers.byteps_cluster",
    "collaborate": "studies.collaboration.study",
    "averaging_strategies": "studies.collaboration.averaging",
    # pipelines and checkpoints
    "Schedule": "description.schedule",
    "pipeline_schedule": "description.schedule",
    "custom_schedule": "description.schedule",
    "zero_bubble_schedule": "simulation.playback",
    "Timeline": "simulation.playback",
    "timeline": "simulation.playback",
    "simulate_schedule": "simulation.playback",
    "Simulation": "simulation.played_step",
    "simulate": "simulation.replay",
    "Partition": "studies.partitioning",
    "partition": "studies.partitioning",
    "transformer_chain": "studies.partitioning",
    "balanced_stages": "studies.partitioning",
    "checkpoint": "studies.rematerialisation.study",
    "uniform_chain": "studies.rematerialisation.study",
    # launch files of training frameworks
    "Launch": "interop.launchers",
    "read_launch": "interop.launchers",
    "write_launch": "interop.launchers",
    "read_step_times": "interop.launchers",
    # your own training code, on GPUs that aren't there
    "trace_script": "traces.running",
    "trace": "traces.doors",
    "tracing": "traces.doors",
    "prepare_tracing": "traces.doors",
    "memory_of": "traces.doors",
    "Trace": "traces.record",
    "price_trace": "traces.pricing",
    "TraceEstimate": "traces.pricing",
    "memory_of_trace": "traces.memory",
    "TraceMemory": "traces.memory",
    "faults_of": "traces.faults",
    "play_cluster": "traces.playback",
    "recognise": "traces.recognition",
    # to drag and to send
    "WhatIf": "page",
    "whatif": "page",
    # any hardware, any number changed
    "machine": "catalogue.machines",
    "replace": "catalogue.changes",
    # how answers move
    "heat_map": "evaluation.dimension_sweeps",
    "scaling": "evaluation.dimension_sweeps",
    "sweep": "evaluation.sweeps",
    "Sweep": "evaluation.sweeps",
    "candidates": "evaluation.cluster_design",
    "design_cluster": "evaluation.cluster_design",
    "ClusterDesign": "evaluation.cluster_design",
    "unlike_groups": "evaluation.mixed_groups",
    "UnlikeGroups": "evaluation.mixed_groups",
    "sensitivities": "evaluation.sensitivity",
    "roofline": "evaluation.operators",
    # to the end of the run
    "downpour": "studies.parameter_servers.downpour_sgd",
    "StepsCurve": "studies.parameter_servers.downpour_sgd",
    "sandblaster": "studies.parameter_servers.sandblaster_lbfgs",
    "Staleness": "studies.parameter_servers.staleness",
    "collaborate_with_churn": "training.churn",
    "compare": "training.side_by_side",
    "SideBySide": "training.side_by_side",
    "cards": "training.card_table",
    "CardTable": "training.card_table",
    "gpus_in_time": "training.cluster_sizes",
    "ClusterSizes": "training.cluster_sizes",
    "diagnose": "evaluation.diagnosis",
    "Diagnosis": "evaluation.diagnosis",
    "compare_systems": "training.systems_compared",
    "Comparison": "training.systems_compared",
    "fit_batch_scaling": "training.batch_size",
    "batch_scaling": "training.batch_size",
    "batch_frontier": "training.batch_size",
    "BatchScaling": "training.batch_size",
    "goyal_schedule": "training.large_minibatch",
    "multimodal": "training.towers",
    "Multimodal": "training.towers",
    "Tower": "training.towers",
    "search_multimodal": "training.tower_search",
    "MultimodalSearch": "training.tower_search",
    "post_training": "training.rollouts",
    "PostTraining": "training.rollouts",
    "Rollouts": "training.rollouts",
    "time_to_train": "training.duration",
    "TrainingRun": "training.duration",
    "goodput": "training.reliability",
    "Goodput": "training.reliability",
    "Reliability": "training.reliability",
    "Tariff": "training.cost",
    "ScalingLaw": "training.scaling_laws",
    "checkpoint_network": "studies.rematerialisation.networks",
    # errors
    "CostModelError": "text.errors",
    "IllegalPlan": "text.errors",
    "IllegalSchedule": "text.errors",
    "InvalidValue": "text.errors",
    "NotModelled": "text.errors",
    "UnknownName": "text.errors",
    "UnreadableFile": "text.errors",
}
__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from costmodel.catalogue.calibrations import load_calibration as load_calibration
    from costmodel.catalogue.calibrations import save_calibration as save_calibration
    from costmodel.catalogue.changes import replace as replace
    from costmodel.catalogue.clusters import load_cluster as load_cluster
    from costmodel.catalogue.loader import load_device as load_device
    from costmodel.catalogue.loader import load_model as load_model
    from costmodel.catalogue.loader import names as names
    from costmodel.catalogue.machines import machine as machine
    from costmodel.catalogue.records import load_runs as load_runs
    from costmodel.catalogue.software import framework_names as framework_names
    from costmodel.catalogue.software import load_framework as load_framework
    from costmodel.description.cluster import Cluster as Cluster
    from costmodel.description.cluster import Level as Level
    from costmodel.description.device import Device as Device
    from costmodel.description.device import Efficiency as Efficiency
    from costmodel.description.framework import Framework as Framework
    from costmodel.description.layers import ChainLayer as ChainLayer
    from costmodel.description.layers import LayerChain as LayerChain
    from costmodel.description.networks import load_network as load_network
    from costmodel.description.plan import Plan as Plan
    from costmodel.description.run import Run as Run
    from costmodel.description.schedule import Schedule as Schedule
    from costmodel.description.schedule import custom_schedule as custom_schedule
    from costmodel.description.schedule import pipeline_schedule as pipeline_schedule
    from costmodel.description.topology import Group as Group
    from costmodel.description.transformer import Transformer as Transformer
    from costmodel.evaluation.capacity import Capacity as Capacity
    from costmodel.evaluation.capacity import fewest_gpus as fewest_gpus
    from costmodel.evaluation.capacity import largest_batch as largest_batch
    from costmodel.evaluation.capacity import largest_micro_batch as largest_micro_batch
    from costmodel.evaluation.capacity import longest_sequence as longest_sequence
    from costmodel.evaluation.capacity import most_layers as most_layers
    from costmodel.evaluation.cluster_design import ClusterDesign as ClusterDesign
    from costmodel.evaluation.cluster_design import candidates as candidates
    from costmodel.evaluation.cluster_design import design_cluster as design_cluster
    from costmodel.evaluation.collectives import CollectiveTime as CollectiveTime
    from costmodel.evaluation.collectives import collective_time as collective_time
    from costmodel.evaluation.diagnosis import Diagnosis as Diagnosis
    from costmodel.evaluation.diagnosis import diagnose as diagnose
    from costmodel.evaluation.dimension_sweeps import heat_map as heat_map
    from costmodel.evaluation.dimension_sweeps import scaling as scaling
    from costmodel.evaluation.estimation import Estimate as Estimate
    from costmodel.evaluation.estimation import estimate as estimate
    from costmodel.evaluation.mixed_groups import UnlikeGroups as UnlikeGroups
    from costmodel.evaluation.mixed_groups import unlike_groups as unlike_groups
    from costmodel.evaluation.opened_bill import held_tensors as held_tensors
    from costmodel.evaluation.operators import roofline as roofline
    from costmodel.evaluation.own_runs import calibrate as calibrate
    from costmodel.evaluation.own_runs import influences as influences
    from costmodel.evaluation.own_runs import next_run as next_run
    from costmodel.evaluation.own_runs import next_runs as next_runs
    from costmodel.evaluation.plan_search import SearchResult as SearchResult
    from costmodel.evaluation.sensitivity import sensitivities as sensitivities
    from costmodel.evaluation.sweeps import Sweep as Sweep
    from costmodel.evaluation.sweeps import sweep as sweep
    from costmodel.evaluation.verdicts import Verdict as Verdict
    from costmodel.evaluation.verdicts import verdict as verdict
    from costmodel.interop.launchers import Launch as Launch
    from costmodel.interop.launchers import read_launch as read_launch
    from costmodel.interop.launchers import read_step_times as read_step_times
    from costmodel.interop.launchers import write_launch as write_launch
    from costmodel.page import WhatIf as WhatIf
    from costmodel.page import whatif as whatif
    from costmodel.simulation.checking import search as search
    from costmodel.simulation.playback import Timeline as Timeline
    from costmodel.simulation.playback import simulate_schedule as simulate_schedule
    from costmodel.simulation.playback import timeline as timeline
    from costmodel.simulation.playback import zero_bubble_schedule as zero_bubble_schedule
    from costmodel.simulation.played_step import Simulation as Simulation
    from costmodel.simulation.replay import simulate as simulate
    from costmodel.simulation.transactions import Ledger as Ledger
    from costmodel.simulation.transactions import ledger as ledger
    from costmodel.studies.collaboration.averaging import averaging_strategies as averaging_strategies
    from costmodel.studies.collaboration.peers import Peer as Peer
    from costmodel.studies.collaboration.study import collaborate as collaborate
    from costmodel.studies.data_parallel import data_parallel_step as data_parallel_step
    from costmodel.studies.parameter_servers.byteps_cluster import NVLinkMachine as NVLinkMachine
    from costmodel.studies.parameter_servers.byteps_cluster import PCIeMachine as PCIeMachine
    from costmodel.studies.parameter_servers.byteps_cluster import byteps as byteps
    from costmodel.studies.parameter_servers.downpour_sgd import StepsCurve as StepsCurve
    from costmodel.studies.parameter_servers.downpour_sgd import downpour as downpour
    from costmodel.studies.parameter_servers.sandblaster_lbfgs import sandblaster as sandblaster
    from costmodel.studies.parameter_servers.servers import Filters as Filters
    from costmodel.studies.parameter_servers.servers import Stragglers as Stragglers
    from costmodel.studies.parameter_servers.servers import parameter_server as parameter_server
    from costmodel.studies.parameter_servers.staleness import Staleness as Staleness
    from costmodel.studies.partitioning import Partition as Partition
    from costmodel.studies.partitioning import balanced_stages as balanced_stages
    from costmodel.studies.partitioning import partition as partition
    from costmodel.studies.partitioning import transformer_chain as transformer_chain
    from costmodel.studies.rematerialisation.networks import checkpoint_network as checkpoint_network
    from costmodel.studies.rematerialisation.study import checkpoint as checkpoint
    from costmodel.studies.rematerialisation.study import uniform_chain as uniform_chain
    from costmodel.text.errors import CostModelError as CostModelError
    from costmodel.text.errors import IllegalPlan as IllegalPlan
    from costmodel.text.errors import IllegalSchedule as IllegalSchedule
    from costmodel.text.errors import InvalidValue as InvalidValue
    from costmodel.text.errors import NotModelled as NotModelled
    from costmodel.text.errors import UnknownName as UnknownName
    from costmodel.text.errors import UnreadableFile as UnreadableFile
    from costmodel.traces.doors import memory_of as memory_of
    from costmodel.traces.doors import prepare_tracing as prepare_tracing
    from costmodel.traces.doors import trace as trace
    from costmodel.traces.doors import tracing as tracing
    from costmodel.traces.faults import faults_of as faults_of
    from costmodel.traces.memory import TraceMemory as TraceMemory
    from costmodel.traces.memory import memory_of_trace as memory_of_trace
    from costmodel.traces.playback import play_cluster as play_cluster
    from costmodel.traces.pricing import TraceEstimate as TraceEstimate
    from costmodel.traces.pricing import price_trace as price_trace
    from costmodel.traces.recognition import recognise as recognise
    from costmodel.traces.record import Trace as Trace
    from costmodel.traces.running import trace_script as trace_script
    from costmodel.training.batch_size import BatchScaling as BatchScaling
    from costmodel.training.batch_size import batch_frontier as batch_frontier
    from costmodel.training.batch_size import batch_scaling as batch_scaling
    from costmodel.training.batch_size import fit_batch_scaling as fit_batch_scaling
    from costmodel.training.card_table import CardTable as CardTable
    from costmodel.training.card_table import cards as cards
    from costmodel.training.churn import collaborate_with_churn as collaborate_with_churn
    from costmodel.training.cluster_sizes import ClusterSizes as ClusterSizes
    from costmodel.training.cluster_sizes import gpus_in_time as gpus_in_time
    from costmodel.training.cost import Tariff as Tariff
    from costmodel.training.duration import TrainingRun as TrainingRun
    from costmodel.training.duration import time_to_train as time_to_train
    from costmodel.training.large_minibatch import goyal_schedule as goyal_schedule
    from costmodel.training.reliability import Goodput as Goodput
    from costmodel.training.reliability import Reliability as Reliability
    from costmodel.training.reliability import goodput as goodput
    from costmodel.training.rollouts import PostTraining as PostTraining
    from costmodel.training.rollouts import Rollouts as Rollouts
    from costmodel.training.rollouts import post_training as post_training
    from costmodel.training.scaling_laws import ScalingLaw as ScalingLaw
    from costmodel.training.side_by_side import SideBySide as SideBySide
    from costmodel.training.side_by_side import compare as compare
    from costmodel.training.systems_compared import Comparison as Comparison
    from costmodel.training.systems_compared import compare_systems as compare_systems
    from costmodel.training.tower_search import MultimodalSearch as MultimodalSearch
    from costmodel.training.tower_search import search_multimodal as search_multimodal
    from costmodel.training.towers import Multimodal as Multimodal
    from costmodel.training.towers import Tower as Tower
    from costmodel.training.towers import multimodal as multimodal


def __getattr__(name: str) -> object:
    if name == "symbolic":  # formulas as algebra: what documents call it
        return import_module("costmodel.compilation.algebra")
    if name not in _HOME:
        raise AttributeError(f"module 'costmodel' has no attribute {name!r}")
    value = getattr(import_module(f"costmodel.{_HOME[name]}"), name)
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    """What there is to use, and the modules that are loaded: no helpers of this file, nothing twice."""
    loaded = (name for name, value in globals().items() if name.startswith("__") or f"costmodel.{name}" in sys.modules)
    return sorted({*__all__, *loaded})
