"""How far the views of a step agree, on drawn legal plans: `python -m tests.agreement 300` prints the distribution.

Models, clusters from 8 to 16,384 GPUs, frameworks and the schedules that `simulate` plays are drawn alike.
"""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from costmodel import Plan, framework_names, load_cluster, load_framework, load_model, simulate, timeline
from costmodel.description.framework import Framework
from costmodel.description.plan import DIMENSIONS, SCHEDULES
from costmodel.errors import CostModelError, IllegalPlan, InvalidValue
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.formulas.pipeline.schedules import SCHEDULES as TRAITS
from costmodel.simulation.transactions import ledger_of

MODELS = ("bloom-560m", "llama3-8b", "llama2-70b", "gpt3-175b", "mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b", "gemma3-4b")
CLUSTERS = ("dgx-h100", "dgx-a100", "dgx-b200", "aws-p4d", "mi300x-8")
FRAMEWORKS = framework_names()
PLAYED = tuple(name for name in SCHEDULES if TRAITS[name].flushes and not TRAITS[name].two_way)
LARGEST = 3_000
"""Passes of a rank times ranks of a pipeline, so that one question is played in well under a second."""


class Agreement(NamedTuple):
    """What the views say of one plan.

    Parameters
    ----------
    result : the estimate
    framework : its software
    simulated, played : step time by `simulate` and by `timeline` over the estimate's, from step to step
    ledger_bytes, moved_bytes : sent by a rank of the stage that sends most, in the ledger over the estimate, and among the
        simulator's events over the ledger
    busiest : share of its bandwidth at which any link carries bytes at the most, over 200 parts of the step
    """

    result: Estimate
    framework: Framework
    simulated: float
    played: float
    ledger_bytes: float
    moved_bytes: float
    busiest: float


def powers(random_: random.Random, most: int) -> int:
    """A power of two up to `most`."""
    return int(2 ** random_.randint(0, max(int(math.log2(max(most, 1))), 0)))


def plans(seed: int = 0) -> Iterator[Estimate]:
    """Estimates of drawn legal plans, without end."""
    draw, apart = random.Random(seed), random.Random(seed + 1)
    while True:
        model, framework = load_model(draw.choice(MODELS)), draw.choice(FRAMEWORKS)
        gpus = int(2 ** draw.randint(3, 14))
        try:
            cluster = load_cluster(draw.choice(CLUSTERS), gpus=gpus)
        except (CostModelError, ValueError):
            continue
        software = load_framework(framework, cluster.device.architecture)
        splits = software.dimensions
        t = powers(draw, 8 if "tensor" in splits else 1)
        p = powers(draw, min(16, gpus // t) if "pipeline" in splits else 1)
        c = powers(draw, min(4, gpus // (t * p)) if "context" in splits else 1)
        d = gpus // (t * p * c)
        schedule = draw.choice([name for name in PLAYED if name in software.schedules]) if p > 1 else "1f1b"
        micro_batch = draw.choice([1, 2])
        m = draw.choice([1, 2, 4, 8]) * (p if p > 1 else 1)
        v = draw.choice([2, 4]) if schedule in ("interleaved", "breadth-first") else 1
        if m * p * v > LARGEST:
            continue
        order = draw.choice([DIMENSIONS, ("tensor", "context", "pipeline", "data"), ("tensor", "data", "context", "pipeline")])
        shards = [None, None, *(size for size in (8, 16) if size < d * c)]
        zero = draw.choice(list(software.zero_stages))
        modules = [name for name in software.recompute_modules if name != "operators"]
        try:
            plan = Plan(
                global_batch=d * micro_batch * m, seq_len=draw.choice([2048, 4096, 8192]), tensor_parallel=t,
                pipeline_parallel=p, context_parallel=c, data_parallel=d, micro_batch=micro_batch, schedule=schedule,
                virtual_stages=v, zero_stage=zero, shard_group=draw.choice(shards) if zero else None,
                expert_parallel=powers(draw, min(model.experts, d * c * t, 8)) if model.experts and "expert" in splits else 1,
                recompute=draw.choice(["none", "full", *modules]), rank_order=order,
                overlap_gradients=draw.choice([None, None, True, False]),
                overlap_parameters=draw.choice([None, None, True, False]),
            )  # fmt: skip
            if plan.recompute == "full" and software.recomputes("operators") and apart.random() < 0.5:
                plan = dataclasses.replace(plan, recompute="operators")
            yield estimate(model, cluster, plan, software)
        except (IllegalPlan, InvalidValue):
            continue


def agreements(count: int, seed: int = 0) -> Iterator[Agreement]:
    """The views of drawn plans that all of them take, so many."""
    found = 0
    for result in plans(seed):
        asked = result.model, result.cluster, result.plan, result.framework
        try:
            step = simulate(*asked)
            made = ledger_of(result)
            played = timeline(*asked).step_time
        except CostModelError:
            continue
        rates = step.utilisation(200).links
        limits = dict(zip(rates, _limits(result), strict=False))
        busiest = max((float(rates[name].max()) / limits[name] for name in rates), default=0.0)
        sent = {group: made_ for group, made_ in step.sent_bytes.items()}
        simulated = float(np.max(sum(sent.values())))
        most = max(made.sent_bytes.values())
        own = result.step.exchange_bytes
        yield Agreement(
            result, result.framework, step.step_time / result.step_time, played / result.step_time,
            most / own if own else 1.0 + most, simulated / most if most else 1.0 + simulated, busiest,
        )  # fmt: skip
        found += 1
        if found == count:
            return


def _limits(result: Estimate) -> list[float]:
    quality = result.framework.numbers().network.quality
    return [float(quality * level.bandwidth) for level in result.cluster.numbers()]


def summary(found: list[Agreement]) -> str:
    """The distribution in words."""
    ratio = np.array([one.simulated for one in found])
    played = np.array([one.played for one in found])
    ledger = np.array([one.ledger_bytes for one in found])
    moved = np.array([one.moved_bytes for one in found])
    quantiles = np.quantile(ratio, [0.0, 0.025, 0.25, 0.5, 0.75, 0.975, 1.0]).round(3).tolist()
    return "\n".join([
        f"{len(found)} plans; simulate / estimate: {np.mean(abs(ratio - 1) <= 0.05):.1%} within 5 %, "
        f"{np.mean(abs(ratio - 1) <= 0.15):.1%} within 15 %; quantiles 0, 2.5, 25, 50, 75, 97.5, 100: {quantiles}",
        f"timeline / estimate: {np.mean(abs(played - 1) <= 0.01):.1%} within 1 %, {played.min():.3f} to {played.max():.3f}",
        f"ledger / exchange_bytes: {np.mean(abs(ledger - 1) <= 1e-9):.1%} equal, {np.mean(abs(ledger - 1) <= 0.01):.1%} within "
        f"1 %, {ledger.min():.3f} to {ledger.max():.3f}; simulator / ledger: {moved.min():.9f} to {moved.max():.9f}",
        f"busiest link at {max(one.busiest for one in found):.6f} of its bandwidth",
    ])  # fmt: skip


def main(count: int, seed: int) -> None:
    """Print the distribution, and the plans that differ most."""
    found = list(agreements(count, seed))
    print(summary(found))
    for one in sorted(found, key=lambda one: -abs(math.log(one.simulated)))[:40]:
        plan = one.result.plan
        times = {name[:9]: round(value / one.result.step_time, 2) for name, value in one.result.times.items() if value}
        print(
            f"{one.simulated:.3f} bytes {one.ledger_bytes:.3f} {one.result.model.name} {one.result.cluster.name} {plan.gpus} "
            f"{one.framework.name} t{plan.tensor_parallel} c{plan.context_parallel} p{plan.pipeline_parallel} "
            f"v{plan.virtual_stages} d{plan.data_parallel} e{plan.expert_parallel} z{plan.zero_stage} m{plan.micro_batches} "
            f"s{plan.shard_group} {plan.schedule} og{plan.overlap_gradients:d} op{plan.overlap_parameters:d} "
            f"{one.result.step_time:.4g} s {times}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
