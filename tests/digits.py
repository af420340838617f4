"""Every number the library gives to 2,000 drawn questions, to hold that moving code changes no digit.

``python -m tests.digits record FILE`` before a move, ``python -m tests.digits compare FILE`` after it: it prints how many
numbers were compared and the largest relative difference, and fails above 1e-12. Only public names are used, and
parts are kept in their order, so that renaming them changes nothing.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import costmodel
from costmodel import (
    CostModelError,
    Peer,
    Plan,
    load_cluster,
    load_device,
    load_framework,
    load_model,
    load_network,
)

LARGEST = 1e-12
GPUS = (1, 2, 8, 16, 32, 64, 128, 512)
SCHEDULES = (
    "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "dualpipe", "zb-v", "chimera", "breadth-first", "pipedream",
    "pipedream-2bw",
)  # fmt: skip
ORDERS = [("tensor", "context", "pipeline", "data"), ("data", "tensor", "context", "pipeline")]
NETWORKS = ("vgg-16", "resnet-50", "gnmt-8", "alexnet")
OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast")


def divisors(number: int, most: int) -> list[int]:
    return [d for d in range(1, min(number, most) + 1) if number % d == 0]


def drawn_question(draw: random.Random) -> tuple[Any, Any, Plan, Any]:
    """A model, a cluster, a plan that takes its GPUs, and a framework; the plan is legal or not."""
    model = load_model(draw.choice(costmodel.names("model")))
    cluster = load_cluster(draw.choice(costmodel.names("cluster")), gpus=draw.choice(GPUS))
    framework = load_framework(draw.choice(costmodel.framework_names()))
    gpus = cluster.gpus
    tensor = draw.choice(divisors(gpus, min(8, model.heads)))
    pipeline = draw.choice(divisors(gpus // tensor, min(16, model.layers)))
    context = draw.choice([1, 1, 1, *divisors(gpus // (tensor * pipeline), 4)])
    data = gpus // (tensor * pipeline * context)
    micro_batch = draw.choice([1, 1, 2, 4])
    schedule = draw.choice(SCHEDULES) if pipeline > 1 else "1f1b"
    experts = draw.choice(divisors(math.gcd(model.experts, data * context * tensor), 64)) if model.experts else 1
    fields: dict[str, Any] = {
        "global_batch": data * micro_batch * draw.choice([1, pipeline, 2 * pipeline, 4 * pipeline]),
        "seq_len": draw.choice([512, 2048, 4096, 32768]), "tensor_parallel": tensor, "pipeline_parallel": pipeline,
        "context_parallel": context, "data_parallel": data, "micro_batch": micro_batch, "schedule": schedule,
        "virtual_stages": draw.choice([2, 4]) if schedule in ("interleaved", "breadth-first") else 1,
        "expert_parallel": experts, "recompute": draw.choice(["none", "none", "selective", "full", 2]),
        "dtype": draw.choice(sorted(cluster.device.dense_peak)) if draw.random() < 0.3 else "bf16",
    }  # fmt: skip
    choices: dict[str, list[Any]] = {
        "sequence_parallel": [True, False], "zero_stage": [0, 1, 2, 3], "attention": ["flash", "fused-softmax", "unfused"],
        "gradient_bytes": [2, 4], "optimizer": ["adam", "adam-8bit", "adam-bf16", "sgd-momentum", "muon"],
        "adapter": ["lora", "qlora"], "fused_cross_entropy": [True, False], "fused_norms": [True, False],
        "cuda_graphs": [True], "overlap_gradients": [True, False], "overlap_parameters": [True, False],
        "overlap_tensor": [True, False], "overlap_pipeline": [True, False], "optimizer_offload": [0.5, 1.0],
        "activation_offload": [0.5], "rank_order": ORDERS,
        "shard_group": divisors(data * context, 64), "expert_tensor_parallel": [1, 2],
    }  # fmt: skip
    fields |= {name: draw.choice(values) for name, values in choices.items() if draw.random() < 0.2}
    other = draw.random()
    if other < 0.1:
        fields |= {"zero_stage": 0, "synchronisation": draw.choice(["hierarchical", "parameter-server", "byteps", "local-sgd"])}
    elif other < 0.2:
        fields |= {"zero_stage": draw.choice([0, 1]), "compression": draw.choice(["fp16", "int8", "top-k", "power-sgd"])}
    return model, cluster, Plan(**fields), framework


def numbers(value: Any) -> Iterator[float]:
    """Every number inside a value, in order."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from numbers(getattr(value, field.name))
    elif isinstance(value, dict):
        for one in value.values():
            yield from numbers(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from numbers(one)
    elif hasattr(value, "dtype") and getattr(value, "shape", ()):
        yield from numbers(value.tolist())
    elif hasattr(value, "item") or isinstance(value, bool | int | float):
        yield float(value)


def estimated(draw: random.Random, played: bool) -> list[float]:
    """Every part of an estimate; if asked, also its ledger, timeline and simulation."""
    while True:
        try:
            question = drawn_question(draw)
            result = costmodel.estimate(*question)
            break
        except CostModelError:
            continue
    found = [*numbers(result.step), *numbers(result.time_interval), *numbers(result.memory_interval)]
    found += [result.fits, result.memory_margin, result.fit_probability, result.mfu, result.causal_mfu, result.hfu]
    found += [stage.total for stage in result.memory.stages]
    if not played:
        return found
    for play in (costmodel.ledger, costmodel.timeline, costmodel.simulate):
        try:
            seen = play(*question)
        except CostModelError as refused:
            found.append(float(len(type(refused).__name__)))
            continue
        if play is costmodel.ledger:
            found += [*numbers(seen.sent_bytes), *numbers(seen.times), seen.cluster_bytes]
            found += [*numbers([load[3:7] for load in seen.loads()])]
        elif play is costmodel.timeline:
            found += [seen.total, seen.period, seen.bubble_rate, *numbers(seen.peak_bytes)]
        else:
            found += [seen.total, seen.period, *numbers(seen.peak_bytes), *numbers(seen.sent_bytes), *numbers(seen.times)]
    return found


def clustered(draw: random.Random, gpus: int) -> Any:
    """A cluster of the catalogue with so many GPUs, or another where one has no such many."""
    while True:
        try:
            return load_cluster(draw.choice(costmodel.names("cluster")), gpus=gpus)
        except CostModelError:
            continue


def searched(draw: random.Random) -> list[float]:
    """Counts and the first twenty of a search."""
    model = load_model(draw.choice(costmodel.names("model")))
    cluster = clustered(draw, draw.choice([8, 16, 64]))
    framework = draw.choice(costmodel.framework_names())
    try:
        found = costmodel.search(
            model, cluster, global_batch=draw.choice([64, 256]), seq_len=2048, framework=framework, engine="numpy"
        )
    except CostModelError:
        return [-1.0]
    values = [float(found.considered), float(found.evaluated), float(found.fitting), *numbers(found.rejected)]
    for plan in found.ranked:
        values += [plan.step_time, plan.memory.total, plan.plan.tensor_parallel, plan.plan.pipeline_parallel]
    return values + list(numbers(found.standings))


def partitioned(draw: random.Random) -> list[float]:
    """A network's partition."""
    chain = load_network(draw.choice(NETWORKS)).chain(load_device("v100-sxm-16gb"), minibatch=draw.choice([32, 64, 128]))
    machines = [draw.choice([2, 4]), draw.choice([2, 4])]
    found = costmodel.partition(chain, machines, [draw.uniform(1e9, 1e10), draw.uniform(1e8, 1e9)])
    return list(numbers(found))


def served(draw: random.Random) -> list[float]:
    """A step against parameter servers."""
    consistency = draw.choice(["bsp", "bounded_delay", "asynchronous"])
    found = costmodel.parameter_server(
        draw.uniform(1e7, 1e10), compute_time=draw.uniform(0.01, 2.0), workers=draw.choice([1, 4, 16]),
        servers=draw.choice([1, 4]), bandwidth=draw.uniform(1e9, 1e11), latency=1e-5, steps=200, consistency=consistency,
        delay=2 if consistency == "bounded_delay" else None,
        stragglers=costmodel.Stragglers(distribution=draw.choice(["exponential", "lognormal"]), spread=0.3),
    )  # fmt: skip
    return list(numbers(found))


def summed(draw: random.Random) -> list[float]:
    """A step of BytePS."""
    found = costmodel.byteps(
        draw.uniform(1e7, 1e10), gpu_machines=draw.choice([2, 8, 32]), cpu_machines=draw.choice([0, 4, 8]),
        bandwidth=draw.uniform(1e9, 2e10), compute_time=draw.uniform(0.0, 1.0), overlap=draw.random(),
    )  # fmt: skip
    return list(numbers(found))


def collaborated(draw: random.Random) -> list[float]:
    """A collaboration of unlike peers."""
    peers = [
        Peer(name=f"peer {i}", samples_per_second=draw.uniform(1.0, 100.0), download=draw.uniform(1e6, 1e9),
             upload=draw.uniform(1e6, 1e9))
        for i in range(draw.choice([2, 5, 12]))
    ]  # fmt: skip
    found = costmodel.collaborate(peers, draw.uniform(1e7, 1e9), 4096.0, delayed=draw.random() < 0.5)
    return list(numbers(found))


def communicated(draw: random.Random) -> list[float]:
    """A collective as its library decides."""
    cluster = clustered(draw, 64)
    operation, nbytes = draw.choice(OPERATIONS), 2.0 ** draw.randrange(10, 33)
    found = costmodel.collective_time(operation, nbytes, draw.choice([2, 8, 16, 64]), cluster)
    return list(numbers(found))


def kept(draw: random.Random) -> list[float]:
    """A chain whose activations are computed again."""
    chain = costmodel.uniform_chain(draw.choice([8, 20, 50]))
    found = costmodel.checkpoint(chain, method=draw.choice(["sqrt", "revolve", "optimal"]), budget=draw.choice([16, 24]))
    return list(numbers(found))


QUESTIONS: tuple[tuple[str, int, Callable[[random.Random], list[float]]], ...] = (
    ("estimate", 900, lambda draw: estimated(draw, False)), ("played", 350, lambda draw: estimated(draw, True)),
    ("search", 150, searched), ("partition", 40, partitioned), ("parameter server", 150, served), ("byteps", 120, summed),
    ("collaboration", 60, collaborated), ("collective", 200, communicated), ("recompute", 30, kept),
)  # fmt: skip


def answers() -> dict[str, list[list[float]]]:
    """Every number of every answer, by the kind of question."""
    found = {}
    for kind, count, ask in QUESTIONS:
        found[kind] = [[float(value) for value in ask(random.Random(f"{kind} {number}"))] for number in range(count)]
        print(f"{kind}: {count} questions, {sum(map(len, found[kind]))} numbers", flush=True)
    return found


def difference(a: float, b: float) -> float:
    return 0.0 if a == b else abs(a - b) / max(abs(a), abs(b))


def main(argv: list[str]) -> int:
    """Record the answers, or compare them with those recorded."""
    command, file = argv
    now = answers()
    if command == "record":
        Path(file).write_text(json.dumps(now), encoding="utf-8")
        return 0
    before = json.loads(Path(file).read_text(encoding="utf-8"))
    largest, compared, unlike = 0.0, 0, 0
    for kind, lists in before.items():
        for number, (old, new) in enumerate(zip(lists, now[kind], strict=True)):
            if len(old) != len(new):
                print(f"{kind} {number}: {len(old)} numbers before, {len(new)} now")
                unlike += 1
                continue
            worst = max(map(difference, old, new), default=0.0)
            largest, compared = max(largest, worst), compared + len(old)
            if worst > LARGEST:
                unlike += 1
                if unlike < 20:
                    print(f"{kind} {number}: {worst:.3g}")
    print(f"{sum(map(len, before.values()))} questions, {compared} numbers, largest difference {largest:.3g}, {unlike} unlike")
    return int(unlike > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
