"""How far the views of a step agree, on drawn legal plans: `python -m tests.agreement 300` prints the distribution.

Models, clusters, frameworks and schedules are drawn alike, and so are shapes that divide nothing: 3 or 7 replicas, stages of
unlike depth, fewer micro-batches than stages, nodes that no group fills.
"""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from costmodel import (
    Plan,
    Transformer,
    framework_names,
    load_cluster,
    load_framework,
    load_model,
    simulate,
    timeline,
)
from costmodel.description.framework import Framework
from costmodel.description.plan import SCHEDULES
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.formulas.pipeline.schedules import SCHEDULES as TRAITS
from costmodel.simulation.transactions import ledger_of
from costmodel.text.errors import CostModelError, IllegalPlan, InvalidValue

MODELS = ("bloom-560m", "llama3-8b", "llama2-70b", "gpt3-175b", "mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b", "gemma3-4b")
CLUSTERS = ("dgx-h100", "dgx-a100", "dgx-b200", "aws-p4d", "mi300x-8")
FRAMEWORKS = framework_names()
PLAYED = tuple(name for name in SCHEDULES if TRAITS[name].flushes and not TRAITS[name].bidirectional)
"""Schedules that `simulate` plays; `timeline` plays all."""
STAGES = (1, 1, 2, 3, 4, 5, 6, 8, 12, 16)
LARGEST = 800
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


def shaped(model: Transformer, draw: random.Random) -> Transformer:
    """The model, or one of another depth or vocabulary: layers that no number of stages divides, heads as large as half of it."""
    if not model.experts and not model.windowed_layers and draw.random() < 0.5:
        model = dataclasses.replace(model, layers=draw.randint(1, 60))
    if draw.random() < 0.2:
        model = dataclasses.replace(model, vocabulary=draw.choice([1, 1000, 500_000]))
    return model


def plans(
    seed: int = 0, frameworks: Sequence[str] = FRAMEWORKS, schedules: Sequence[str] = PLAYED, stages: Sequence[int] = STAGES,
) -> Iterator[Estimate]:  # fmt: skip
    """Estimates of drawn legal plans, without end: every framework and schedule, numbers that divide nothing among them."""
    draw = random.Random(seed)
    while True:
        model, framework = shaped(load_model(draw.choice(MODELS)), draw), draw.choice(frameworks)
        device = draw.choice(CLUSTERS)
        software = load_framework(framework, load_cluster(device, gpus=8).device.architecture)
        splits, played = software.dimensions, [name for name in schedules if name in software.schedules]
        t = draw.choice([1, 1, 2, 4, 8]) if "tensor" in splits else 1
        p = draw.choice(stages) if "pipeline" in splits and played else 1
        c = draw.choice([1, 1, 1, 2, 4]) if "context" in splits else 1
        d = draw.choice([1, 2, 3, 4, 7, 8, 16, 64, 512])
        schedule = draw.choice(played) if p > 1 else "1f1b"
        traits = TRAITS[schedule]
        m = draw.choice([1, 2, 3, p, 2 * p - 1, 2 * p, 2 * p + 1, 4 * p, 8 * p, draw.randint(1, 40)])
        m = p * max(m // p, 1) if traits.grouped_by_stages else m
        v = draw.choice([2, 3, 4]) if traits.chunked else 1
        if m * p * v > LARGEST:
            continue
        micro_batch, zero = draw.choice([1, 2, 4]), draw.choice(list(software.zero_stages))
        shards = [None, None, *(size for size in (2, 4, 8, 16) if size < d * c)]
        modules = [name for name in software.recompute_modules if name != "operators"]
        if software.recomputes("operators"):
            modules.append("operators")
        try:
            cluster = load_cluster(device, gpus=t * p * c * d)
            plan = Plan(
                global_batch=d * micro_batch * m, seq_len=draw.choice([512, 2048, 4096, 8192]), tensor_parallel=t,
                pipeline_parallel=p, context_parallel=c, data_parallel=d, micro_batch=micro_batch, schedule=schedule,
                virtual_stages=v, zero_stage=zero, shard_group=draw.choice(shards) if zero else None,
                expert_parallel=powers(draw, min(model.experts, d * c * t, 16)) if model.experts and "expert" in splits else 1,
                dtype=draw.choice([name for name in software.dtypes if name in ("bf16", "fp16")]),
                recompute=draw.choice(["none", "full", *modules]), rank_order=draw.choice(software.rank_orders),
                overlap_pipeline=draw.choice([None, None, True, False]),
                overlap_gradients=draw.choice([None, None, True, False]),
                overlap_parameters=draw.choice([None, None, True, False]),
            )  # fmt: skip
            yield estimate(model, cluster, plan, software)
        except (IllegalPlan, InvalidValue):
            continue


def agreements(count: int, seed: int = 0, **drawn: Sequence[Any]) -> Iterator[Agreement]:
    """The views of so many plans that all of them take, drawn as `plans` draws them."""
    found = 0
    for result in plans(seed, **drawn):
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
        f"timeline / estimate: {np.mean(abs(played - 1) <= 0.01):.1%} within 1 %, {np.mean(abs(played - 1) <= 0.05):.1%} "
        f"within 5 %, {played.min():.3f} to {played.max():.3f}",
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
