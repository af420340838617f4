"""Calls with one huge whole number in them, each in a process that may compute and hold only so much.

`python -m tests.huge_numbers api` or `cli` prints a line of JSON for each call: what was called, with which number where, and
what came of it: with every huge number everywhere, or with one of them in each place in turn (`api one`).
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import json
import os
import resource
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import costmodel
from costmodel import cli
from costmodel.description.schedule import BACKWARD, FORWARD

HUGE = (10**6, 2**31, 10**18)
SECONDS, COMPILED, BYTES = 20, 300, 3 << 30
"""Of one call: what it may compute, and the first of its kind, which may compile; and the memory that it may address."""
WORK = {"global_batch": 32, "seq_len": 2048}
PEERS = [costmodel.Peer(name=f"p{n}", samples_per_second=10.0, upload=1e7, download=1e7) for n in range(4)]
ANSWERS = {
    "CardTable", "ClusterSizes", "MultimodalSearch", "PostTraining", "TraceEstimate", "TraceMemory",
    "Capacity", "Goodput", "Launch", "LayerChain", "Partition", "Schedule", "SearchResult", "Simulation", "Sweep", "UnlikeGroups",
    "Trace", "Verdict",
}  # fmt: skip
"""Classes that take whole numbers and are made by functions."""
OF_CODE = {"memory_of", "memory_of_trace", "play_cluster", "trace", "trace_script", "tracing"}
"""Functions that run code of a user's, or go through a record of it, whose work is its own."""


def bases() -> dict[str, dict[str, object]]:
    """Arguments of every public function and class that takes a whole number, with which it answers."""
    model, cluster = costmodel.load_model("bloom-560m"), costmodel.load_cluster("dgx-h100", gpus=8)
    plan = costmodel.Plan(**WORK, tensor_parallel=2, pipeline_parallel=2, data_parallel=2)
    layers = [
        costmodel.ChainLayer(name=f"l{n}", forward=1.0, backward=2.0, output_bytes=1e6, parameter_bytes=1e6) for n in range(6)
    ]
    chain = costmodel.LayerChain(name="six", layers=layers, minibatch=8)
    asked = {"model": model, "cluster": cluster}
    nodes = {"nbytes": 1e8, "compute_time": 1.0, "servers": 4, "bandwidth": 1e9}
    return {
        "Plan": WORK, "Group": {"ranks": 4},
        "held_tensors": {"memory": costmodel.estimate(model, cluster, plan).memory, "stage": 0},
        "Transformer": {"name": "a", "layers": 2, "hidden": 512, "heads": 8, "vocabulary": 1000, "feed_forward": 2048},
        "Cluster": {"name": "a", "device": cluster.device, "levels": cluster.levels},
        "Level": {"name": "a", "size": 8, "latency": 0.0, "bandwidth": 1e9},
        "Device": {"name": "a", "dense_peak": {"bf16": 1e12}, "memory": 1e10, "memory_bandwidth": 1e12,
                   "efficiency": cluster.device.efficiency},
        "PCIeMachine": {"gpus_per_switch": 4, "cpu_bandwidth": 1e10, "gpu_bandwidth": 1e10},
        "Framework": {"name": "a", "constants": costmodel.load_framework("megatron-core").constants},
        "batch_frontier": {"scaling": costmodel.batch_scaling(1e3, 1e4), **asked, "batches": [32], "gpus": [8], "seq_len": 2048},
        "byteps": {"nbytes": 1e8, "gpu_machines": 4, "cpu_machines": 4, "bandwidth": 1e10},
        "Rollouts": {"samples": 64, "mean_length": 512},
        "Tower": {"model": model, "tokens": 256},
        "post_training": {**asked, "plan": plan, "rollouts": costmodel.Rollouts(samples=64, mean_length=512)},
        "cards": {"model": model, "devices": ["h100-sxm"], "adapter": "lora"},
        "diagnose": {"answer": costmodel.estimate(model, cluster, plan), "step_time": 1.0},
        "gpus_in_time": {"model": model, "clusters": [cluster], "tokens": 1e9, "days": 10.0, **WORK},
        "candidates": {"devices": "h100-sxm", "gpus": 16},
        "checkpoint": {"chain": chain, "budget": 1e9}, "checkpoint_network": {"network": chain, "budget": 1e9},
        "collaborate": {"peers": PEERS, "parameter_bytes": 1e8, "target_batch": 1e3},
        "collaborate_with_churn": {"peers": PEERS, "parameter_bytes": 1e8, "target_batch": 1e3, "session": 3600.0},
        "collective_time": {"op": "all-reduce", "nbytes": 1e8, "group": 8, "cluster": cluster},
        "compare_systems": {"workload": model, "cluster": cluster, **WORK},
        "custom_schedule": {"orders": [[(FORWARD, 0, 0), (BACKWARD, 0, 0)]]},
        "data_parallel_step": {"chain": chain, "cluster": cluster, "gpus": 8},
        "design_cluster": {"model": model, "clusters": [cluster], "within": 1e9, **WORK},
        "downpour": {**nodes, "replicas": 4},
        "estimate": {"model": model, "cluster": "dgx-h100", "gpus": 8},
        "fewest_gpus": {**asked, **WORK}, "largest_batch": {**asked, "seq_len": 2048}, "largest_micro_batch": {**asked, **WORK},
        "longest_sequence": {**asked, "global_batch": 32}, "most_layers": {**asked, **WORK},
        "goodput": {"reliability": costmodel.Reliability(device_mtbf=1e8, checkpoint_time=10.0), "devices": 8},
        "goyal_schedule": {"workers": 8}, "heat_map": {**asked, **WORK, "across": ("tensor_parallel", [1, 2]),
                                                      "down": ("micro_batch", [1, 2])},
        "load_cluster": {"name": "dgx-h100"}, "machine": {"device": "h100-sxm", "gpus": 8},
        "parameter_server": {**nodes, "workers": 4},
        "partition": {"chain": chain, "machines": [4], "bandwidths": [1e9]},
        "pipeline_schedule": {"name": "1f1b", "stages": 4, "micro_batches": 8},
        "read_launch": {"source": "torchrun pretrain_gpt.py --num-layers 2"},
        "sandblaster": {"nbytes": 1e8, "portion_time": 1.0, "portions": 16, "replicas": 4, "servers": 4, "bandwidth": 1e9},
        "scaling": {**asked, **WORK, "gpus": [8, 16]}, "search": {**asked, **WORK},
        "search_multimodal": {
            "language": model, "cluster": cluster, "towers": [costmodel.Tower(model=model, tokens=256)], "zero_stage": 1, **WORK,
        },
        "simulate": {**asked, "plan": plan}, "simulate_schedule": {
            "schedule": costmodel.pipeline_schedule("1f1b", stages=2, micro_batches=2), "forward": 1.0, "backward_input": 1.0,
        },
        "sweep": {"models": "bloom-560m", "clusters": cluster, "path": "swept", "global_batches": 32, "seq_lens": 1024},
        "timeline": {**asked, "plan": plan}, "uniform_chain": {"layers": 4},
        "unlike_groups": {"model": model, "sites": {"a": [cluster], "b": [cluster]}, "between": "1Gbit/s", **WORK},
        "whatif": {**asked, **WORK},
        "zero_bubble_schedule": {"stages": 4, "micro_batches": 8, "forward": 1.0, "backward_input": 1.0, "backward_weight": 1.0},
    }  # fmt: skip


IMAGES = Path(__file__).parent / "interop" / "multimodal.json"
COMMANDS = {
    "search": "bloom-560m --cluster dgx-h100 --global-batch 32 --seq-len 1024",
    "estimate": "bloom-560m --cluster dgx-h100 --global-batch 32 --seq-len 1024 --data-parallel 8",
    "memory": "bloom-560m --cluster dgx-h100 --global-batch 32 --seq-len 1024 --data-parallel 8",
    "train": "bloom-560m --cluster dgx-h100 --global-batch 32 --seq-len 1024 --data-parallel 8 --tokens 1e9",
    "timeline": "bloom-560m --cluster dgx-h100 --global-batch 32 --seq-len 1024 --data-parallel 4 --pipeline-parallel 2",
    "simulate": "bloom-560m --cluster dgx-h100 --global-batch 32 --seq-len 1024 --data-parallel 4 --pipeline-parallel 2",
    "ledger": "bloom-560m --cluster dgx-h100 --global-batch 32 --seq-len 1024 --data-parallel 4 --pipeline-parallel 2",
    "capacity": "bloom-560m --cluster dgx-h100 --find batch --seq-len 1024",
    "design": "bloom-560m --devices h100-sxm --gpus 8 --global-batch 32 --seq-len 1024 --tokens 1e9",
    "compare": "--systems resnet-50 --cluster dgx-h100",
    "post-train": "bloom-560m --cluster dgx-h100 --global-batch 32 --seq-len 1024 --data-parallel 8 --samples 64 "
                  "--mean-length 512",
    "multimodal": f"{IMAGES} --cluster dgx-h100 --global-batch 32 --seq-len 1024 --data-parallel 8",
    "cards": "bloom-560m --device h100 --adapter lora",
    "gpus": "bloom-560m --days 10 --tokens 1B --cluster dgx-h100 --global-batch 32 --seq-len 1024",
    "diagnose": "bloom-560m --cluster dgx-h100 --global-batch 32 --seq-len 1024 --data-parallel 8 --step-time 1",
    "collective": "all-reduce 1GB --cluster dgx-h100",
    "checkpoint": "--layers 8 --budget 4",
    "partition": "resnet-50 --machines 4 --bandwidths 1e9 --device h100-sxm",
    "network": "resnet-50 --device h100-sxm",
    "whatif": "bloom-560m --cluster dgx-h100 --global-batch 32 --seq-len 1024 -o page.html",
    "report": "bloom-560m --cluster dgx-h100 --global-batch 32 --seq-len 1024 -o report.html",
    "write": "megatron bloom-560m --cluster dgx-h100 --global-batch 32 --seq-len 1024 --data-parallel 8",
    "show": "bloom-560m",
    "sweep": "bloom-560m --cluster dgx-h100 --global-batch 32 --seq-len 1024 -o swept",
}  # fmt: skip
"""A command line of every command that takes whole numbers."""


def whole_arguments(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Parameters of a function or class that take whole numbers, or lists of them; seeds are as large as they like."""
    kinds = [(one, str(one.annotation).split("Constraint")[0]) for one in inspect.signature(function).parameters.values()]
    return [one for one, kind in kinds if "int" in kind.replace("Joint", "") and one.name != "seed"]


def calls() -> Iterator[tuple[str, str, int, Callable[[], object]]]:
    """Each call of a public function or class: its name, the argument, the number in it, the call."""
    for name, given in bases().items():
        function = getattr(costmodel, name)
        yield name, "", 0, lambda function=function, given=given: function(**given)
        for one in whole_arguments(function):
            kind = str(one.annotation)
            listed = ("Sequence[int]" in kind or "tuple[int" in kind) and not kind.startswith("int")
            for number in HUGE:
                asked = {**given, one.name: [number] if listed else number}
                yield name, one.name, number, lambda function=function, asked=asked: function(**asked)


def whole_options(command: str) -> list[str]:
    """Options of a command that take whole numbers."""
    parser = cli.build_parser([family for family, commands in cli.FAMILIES.items() if command in commands])
    actions = next(action for action in parser._actions if action.dest == "command").choices[command]._actions
    found = []
    for action in actions:
        with contextlib.suppress(Exception):
            if action.option_strings and action.dest not in ("seed", "port") and action.type("7") in (7, [7]):
                found += [action.option_strings[-1]] if type(action.type("7")) is not float else []
    return found


def command_lines() -> Iterator[tuple[str, str, int, Callable[[], object]]]:
    """Each command line: the command, the option, the number in it, the call."""

    def called(argv: list[str]) -> object:
        code = cli.main(argv)
        if code == 2:
            raise costmodel.CostModelError("exit code 2")
        if code not in (0, 1):
            raise AssertionError(f"exit code {code}")
        return code

    for command, line in COMMANDS.items():
        argv = [command, *line.split()]
        yield command, "", 0, lambda argv=argv: called(argv)
        for option in whole_options(command):
            for number in HUGE:
                yield command, option, number, lambda asked=[*argv, option, str(number)]: called(asked)


def outcome(call: Callable[[], object], seconds: int = SECONDS) -> str:
    """What comes of a call in a process of its own: answered, refused, crashed with what, or killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + seconds,) * 2)
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        said = "answered"
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                call()
        except costmodel.CostModelError as error:
            said = "refused" if str(error) else "refused without a word"
        except BaseException as error:
            said = f"crashed: {error!r}"[:500]
        os.write(writing, f"{said}|{sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - used:.2f}".encode())
        os._exit(0)
    os.close(writing)
    said = os.read(reading, 4000).decode()
    os.close(reading)
    os.waitpid(child, 0)
    return said or "killed|"


def load() -> None:
    """Import what calls use, once for all of them: each is a process of its own, which would read it anew."""
    for name in (
        "numpy", "llvmlite.binding", "scipy.optimize", "costmodel.catalogue.loader", "costmodel.evaluation.plan_search",
        "costmodel.simulation.checking", "costmodel.evaluation.capacity", "costmodel.evaluation.sweeps",
        "costmodel.compilation.programs", "costmodel.compilation.standalone",
    ):  # fmt: skip
        importlib.import_module(name)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "api":  # commands load what they use, and no more
        load()
    turn, turns = -1, len(HUGE) if sys.argv[2:] == ["one"] else 1
    for name, place, number, call in calls() if sys.argv[1] == "api" else command_lines():
        turn += number > 0
        if number and HUGE.index(number) != turn // len(HUGE) % len(HUGE) and turns > 1:
            continue
        said, _, seconds = outcome(call, SECONDS if number else COMPILED).rpartition("|")
        print(json.dumps({"of": name, "in": place, "number": number, "said": said, "seconds": seconds}), flush=True)
