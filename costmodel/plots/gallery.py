"""Every figure of the library, each on a real question: `costmodel.plots.gallery.write_gallery("gallery.html")`."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import plotly.graph_objects as go

from costmodel.catalogue.clusters import load_cluster
from costmodel.catalogue.loader import load_model
from costmodel.description.cluster import Cluster
from costmodel.description.networks import load_network
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.evaluation.collectives import collective_time
from costmodel.evaluation.dimension_sweeps import heat_map, scaling
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.evaluation.operators import roofline
from costmodel.evaluation.plan_search import SearchResult, search
from costmodel.evaluation.sensitivity import sensitivities
from costmodel.formulas.network import traffic
from costmodel.formulas.systems import byteps_shares as byteps_formula
from costmodel.formulas.systems import data_parallel as step_formula
from costmodel.plots import (
    change,
    communication,
    comparison,
    data_parallel,
    dimension_sweeps,
    frontier,
    measured,
    memory,
    networks,
    pipeline,
    reliability,
    rematerialisation,
    rollouts,
    servers,
    side_by_side,
    simulation,
    stages,
    step,
    traces,
)
from costmodel.plots import rooflines as roofs
from costmodel.plots import sensitivity as tornados
from costmodel.plots import traffic as ledgers
from costmodel.plots.page import write_page
from costmodel.simulation.playback import timeline
from costmodel.simulation.played_step import Simulation
from costmodel.simulation.replay import simulate
from costmodel.simulation.transactions import Ledger, ledger
from costmodel.studies.data_parallel import data_parallel_step
from costmodel.studies.parameter_servers.servers import Stragglers, parameter_server
from costmodel.studies.rematerialisation.study import checkpoint, curve, uniform_chain
from costmodel.text.units import Gbit, MiB
from costmodel.traces.builder import RoleBuilder
from costmodel.traces.memory import memory_of_trace
from costmodel.traces.pricing import price_trace
from costmodel.traces.record import Trace
from costmodel.training.card_table import cards
from costmodel.training.rollouts import Rollouts
from costmodel.training.rollouts import post_training as post_trained
from costmodel.training.side_by_side import compare
from costmodel.training.systems_compared import compare_systems

GOYAL = {8: 0.230, 16: 0.241, 32: 0.247, 64: 0.246, 128: 0.250, 256: 0.257, 352: 0.257}
"""Seconds of an iteration by GPUs: Goyal et al. 2017 (arXiv 1706.02677), figure 7, read off."""
OVERHEAD = {"vgg-16": (7.5, 11.5, 25.7, 75.8, 85.8), "resnet-50": (6.4, 8.1, 10.3, 33.4, 46.2)}
"""Share of communication on 2, 4, 8, 16, 32 V100 of EC2 [%]: Narayanan et al., SOSP 2019, figure 1."""
GOODPUT = (49.01, 50.99, 55.01, 60.01, 63.99, 70.0, 74.99, 79.01, 85.99)
"""Of BytePS on 8 machines with 0 to 8 without GPUs [Gbit/s]: Jiang et al., OSDI 2020."""
ITERATION = {("megatron-22b", 8, 1, 4, 4): (1.42, 1.10), ("megatron-175b", 8, 8, 1, 64): (18.13, 13.75)}
"""Seconds with full recompute, and with selective and sequence parallelism, by model, tensor and pipeline parallel degree,
micro-batch and global batch: Korthikanti et al. 2022 (arXiv 2205.05198), table 5."""
ITERATED_BY = "megatron-lm-2021"


@functools.cache
def _question() -> tuple[Transformer, Cluster]:
    return load_model("llama3-70b"), load_cluster("dgx-h100", gpus=64)


@functools.cache
def _found() -> SearchResult:
    return search(*_question(), global_batch=256, seq_len=8192, keep_evaluated=True, top=10)


@functools.cache
def _small() -> tuple[Transformer, Cluster, Plan]:
    plan = Plan(global_batch=32, seq_len=8192, tensor_parallel=2, pipeline_parallel=4, data_parallel=2)
    return load_model("llama3-8b"), load_cluster("dgx-h100", gpus=16), plan


@functools.cache
def _ledger() -> Ledger:
    return ledger(*_small())


@functools.cache
def _simulated() -> Simulation:
    return simulate(*_small())


def breakdown_figure() -> go.Figure:
    """Where the step time of the leading plans goes."""
    return step.breakdown_figure(_found()[:4])


def waterfall() -> go.Figure:
    """Why one plan is slower than another."""
    return step.waterfall(_found()[0], _found()[-1])


def stages_figure() -> go.Figure:
    """What every pipeline stage holds, below the limit."""
    return stages.stages_figure(_found().best)


def frontier_figure() -> go.Figure:
    """Time against memory of all evaluated plans."""
    return frontier.frontier_figure(_found())


def heat_map_figure() -> go.Figure:
    """The fastest plan over two dimensions."""
    return dimension_sweeps.heat_map_figure(heat_map(
        *_question(), across=("tensor_parallel", [1, 2, 4, 8]), down=("pipeline_parallel", [1, 2, 4, 8, 16]),
        global_batch=256, seq_len=8192,
    ))  # fmt: skip


def scaling_figure() -> go.Figure:
    """Throughput over numbers of GPUs."""
    return dimension_sweeps.scaling_figure(scaling(*_question(), global_batch=256, seq_len=8192))


def roofline_figure() -> go.Figure:
    """The operators of a layer below the roofline of their device."""
    return roofs.roofline_figure(roofline(_found().best))


def tornado_figure() -> go.Figure:
    """Which error moves the step time how far."""
    return tornados.tornado_figure(_found().best, sensitivities(_found().best))


def published_runs() -> Iterator[tuple[str, Plan, float]]:
    """Model, plan and step time [s] of each run of `ITERATION`, on Selene with `ITERATED_BY`; what its source doesn't state is
    the framework's own."""
    for (name, tensor, depth, micro_batch, batch), seconds in ITERATION.items():
        for recompute, published in zip(("full", "selective"), seconds, strict=True):
            yield name, Plan(
                global_batch=batch, seq_len=2048, tensor_parallel=tensor, pipeline_parallel=depth, micro_batch=micro_batch,
                virtual_stages=3 if depth > 1 else 1, recompute=recompute, sequence_parallel=recompute == "selective",
                dtype="fp16", loss="vocab-parallel",
            ), published  # fmt: skip


def measured_figure() -> go.Figure:
    """Predicted against measured step times."""
    cluster, runs = load_cluster("selene"), []
    for name, plan, published in published_runs():
        made: Estimate = estimate(load_model(name), cluster.with_gpus(plan.gpus), plan, ITERATED_BY)
        times = (published, made.step_time, *made.time_interval)
        runs.append(measured.MeasuredTime("Korthikanti et al. 2022", f"{name}, {plan.recompute}", *times))
    return measured.measured_figure(runs)


def pipeline_figure() -> go.Figure:
    """A pipeline, event by event."""
    return pipeline.pipeline_figure(timeline(*_small()))


def memory_figure() -> go.Figure:
    """What the fullest rank holds over a step."""
    made = estimate(*_small())
    return memory.memory_figure(made.memory.timeline(), made.memory_limit)


def utilisation() -> go.Figure:
    """How busy compute, memory and links are over a step that is played out."""
    return simulation.utilisation(_simulated())


def time_parts() -> go.Figure:
    """Where the ranks' time goes in a step that is played out."""
    return simulation.time_parts(_simulated())


def transaction_sizes() -> go.Figure:
    """How large the transactions of a step are."""
    return ledgers.transaction_sizes(_ledger())


def link_loads() -> go.Figure:
    """How busy each class of links is."""
    return ledgers.link_loads(_ledger())


def communication_figure() -> go.Figure:
    """The algorithms of an all-reduce over message sizes."""
    cluster = load_cluster("dgx-h100")
    return communication.communication_figure([collective_time("all-reduce", 2.0**power, 8, cluster) for power in range(15, 34)])


def memory_against_time() -> go.Figure:
    """What recomputation trades."""
    return rematerialisation.memory_against_time(curve(uniform_chain(16, 1e-3, MiB)))


def memory_of_schedule() -> go.Figure:
    """What each pass of a recomputation schedule holds."""
    return rematerialisation.memory_of_schedule(checkpoint(uniform_chain(16, 1e-3, MiB), budget=9 * MiB))


def iteration_times() -> go.Figure:
    """Iterations of data parallelism, published beside predicted; two points give latency and start of the exchange."""
    compute, backward, nbytes, rate = 0.230, 0.125, 100e6, 50 * Gbit

    def between(machines: int, latency: float) -> float:
        turns = 2 * math.floor(math.log2(machines)) + 2 * (not math.log2(machines).is_integer())
        return turns * latency + float(traffic.all_reduce_sent(nbytes, machines)) / rate

    latency = (GOYAL[256] - between(32, 0.0) - GOYAL[16] + between(2, 0.0)) / 8
    first = GOYAL[16] - compute + backward - between(2, latency)
    predicted = {
        gpus: float(step_formula.iteration_time(
            compute - backward, backward, first, between(gpus // 8, latency) if gpus > 8 else -math.inf
        ))
        for gpus in GOYAL
    }  # fmt: skip
    shown = data_parallel.iterations(GOYAL, predicted)
    return data_parallel.iteration_times(shown, "ResNet-50, 32 images a GPU", "Goyal et al. 2017, figure 7")


def communication_overhead() -> go.Figure:
    """Share of communication in training convolutional networks, published beside predicted."""
    cluster, points = load_cluster("aws-p3-one-flow"), []
    for name, minibatch in (("vgg-16", 64), ("resnet-50", 128)):
        chain = load_network(name).chain(cluster.device, minibatch=minibatch)
        for gpus, known in zip((2, 4, 8, 16, 32), OVERHEAD[name], strict=True):
            made = data_parallel_step(chain, cluster, gpus, overlap=False, wiring="cube-mesh", jitter=0.05)
            points.append(
                networks.OverheadPoint("8xV100 NVLink EC2 (25 Gbit/s)", name, gpus, known, 100 * made.communication_share)
            )
    return networks.communication_overhead(points, "SOSP 2019 figure 1")


def published_beside_predicted() -> go.Figure:
    """Goodput of BytePS with machines without GPUs, published beside the optimum."""
    points = [
        servers.SystemPoint(
            "8 machines, 100GbE RoCEv2", "BytePS", spare, published,
            1.0 / float(byteps_formula.optimal_time(1.0, 8.0, float(spare), 90 * Gbit)) / Gbit,
        )
        for spare, published in enumerate(GOODPUT)
    ]  # fmt: skip
    return servers.published_beside_predicted(
        points, title="Goodput of Jiang et al., OSDI 2020", x_title="machines without GPUs", y_title="goodput [Gbit/s]", columns=1
    )


def waiting_against_delay() -> go.Figure:
    """What workers of a parameter server wait under a bounded delay."""
    stragglers = Stragglers(distribution="exponential", spread=1.0)
    results = [
        (
            delay,
            parameter_server(
                0.0, compute_time=1.0, workers=4, servers=4, bandwidth=1e9, consistency="bounded_delay", delay=delay,
                stragglers=stragglers, steps=500,
            ),
        )
        for delay in (0, 1, 2, 4, 8)
    ]  # fmt: skip
    return servers.waiting_against_delay([servers.waiting_by_delay("exponential, 4 workers", results)])


@functools.cache
def _traced() -> Trace:
    """Two steps of sixteen linear layers, whose gradients eight ranks sum."""
    builder, size, layers = RoleBuilder(0, range(8)), 8192, 16
    group, channel, shape = builder.group(range(8)), builder.stream("nccl"), [(size, size)] * 2
    nbytes, flop = 2 * size**2, 2 * size**3
    weights = [builder.storage_born(nbytes, kind="weight", parameter=f"layers.{layer}") for layer in range(layers)]
    for _ in range(2):
        kept = []
        for weight in weights:
            kept.append(builder.storage_born(nbytes, kind="activation", phase="forward"))
            builder.kernel("aten.mm", shape, ["bfloat16"] * 2, 2 * nbytes, nbytes, flop, phase="forward", reads=[weight])
        done = []
        for activation in reversed(kept):
            gradient = builder.storage_born(nbytes, kind="gradient", phase="backward")
            for _ in range(2):
                builder.kernel("aten.mm", shape, ["bfloat16"] * 2, 2 * nbytes, nbytes, flop, phase="backward")
            builder.storage_died(activation)
            done.append((builder.transaction("all-reduce", nbytes, "bfloat16", group, stream=channel), gradient))
        for event, gradient in done:
            builder.stream_wait(event)
            builder.storage_died(gradient)
        builder.step_boundary()
    return Trace(roles=(builder.role(),), world_size=8)


def traced_parts() -> go.Figure:
    """Where a step of traced code spends its time on each kind of rank."""
    return traces.traced_parts(price_trace(_traced(), load_cluster("dgx-h100", gpus=8)))


def traced_streams() -> go.Figure:
    """When the streams of a traced rank compute and exchange."""
    return traces.traced_streams(price_trace(_traced(), load_cluster("dgx-h100", gpus=8)))


def traced_memory() -> go.Figure:
    """What a traced rank holds by kind, and what its allocator reserves."""
    return traces.traced_memory(memory_of_trace(_traced(), load_cluster("dgx-h100", gpus=8)))


def post_training_figure() -> go.Figure:
    """Who does what in a step of reinforcement learning."""
    model, cluster, plan = _small()
    asked = Rollouts(samples=4 * plan.global_batch, mean_length=0.5 * plan.seq_len, cluster=cluster)
    return rollouts.post_training_figure(post_trained(model, cluster, plan, asked, off_policy=True))


def difference_waterfall() -> go.Figure:
    """Why one choice takes longer than another, part by part."""
    model, cluster, plan = _small()
    answers = {name: estimate(model, cluster, plan, name) for name in ("megatron-core", "fsdp2")}
    return side_by_side.difference_waterfall(compare(answers))


def card_bars() -> go.Figure:
    """Which card trains a model how fast."""
    return side_by_side.card_bars(cards(load_model("llama3-8b"), ["rtx-4090", "l40s", "h100-sxm"], adapter=["lora", "qlora"]))


def reliability_figure() -> go.Figure:
    """How often what was told with a probability came true, of runs that nobody had seen."""
    return reliability.reliability_figure()


def change_figure() -> go.Figure:
    """Step time and memory before and after a change."""
    plans = _found()[:2]
    return change.change_figure(change.change(["as asked", "another plan"], plans))


def compared_systems() -> go.Figure:
    """Ways to train one model on one cluster, side by side."""
    model, cluster, plan = _small()
    found = compare_systems(model, cluster, global_batch=plan.global_batch, seq_len=plan.seq_len)
    return comparison.compared_systems(found)


def hours_against_machines() -> go.Figure:
    """Hours to a target against machines, published and predicted."""
    line = comparison.Hours("a system", (1.0, 2.0, 4.0), (8.0, 4.4, 2.5), (8.0, 4.0, 2.0))
    return comparison.hours_against_machines([line], "An example")


FIGURES: dict[str, Callable[[], go.Figure]] = {
    one.__name__: one
    for one in (
        breakdown_figure, waterfall, stages_figure, frontier_figure, heat_map_figure, scaling_figure, roofline_figure,
        tornado_figure, measured_figure, pipeline_figure, memory_figure, utilisation, time_parts, transaction_sizes, link_loads,
        communication_figure, memory_against_time, memory_of_schedule, iteration_times, communication_overhead,
        published_beside_predicted, waiting_against_delay, change_figure, compared_systems, hours_against_machines,
        traced_parts, traced_streams, traced_memory, post_training_figure, difference_waterfall, card_bars, reliability_figure,
    )
}  # fmt: skip
"""By the name of the function that draws it: an example of every figure, and in its docstring what it shows."""


def write_gallery(path: str | Path) -> None:
    """Write all figures to one HTML file that needs no network; takes some seconds, or a minute where kernels compile."""
    figures = []
    for name, draw in FIGURES.items():
        figure = draw()
        figure.update_layout(meta={"name": name, "caption": inspect.getdoc(draw)})
        figures.append(figure)
    write_page(path, "Figures of costmodel", figures)
