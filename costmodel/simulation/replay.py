"""A training step of any plan on any cluster, played out event by event, the load of every class of links included."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from costmodel.checks import real, whole
from costmodel.description.schedule import BACKWARD
from costmodel.errors import InvalidValue, NotModelled
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.formulas.pipeline.schedules import SCHEDULES
from costmodel.simulation.playback import schedule_of
from costmodel.simulation.played_step import (
    START,
    STREAMS,
    WAIT,
    Instances,
    Pieces,
    Simulation,
    link_bandwidths,
)
from costmodel.simulation.programs import ProgramWriter
from costmodel.simulation.replicas import durations, instances_of, replicas_of, slowness
from costmodel.simulation.transactions import ledger_of

if TYPE_CHECKING:
    from costmodel.description.cluster import Cluster
    from costmodel.description.framework import Framework
    from costmodel.description.plan import Plan
    from costmodel.description.transformer import Transformer

MOST_EVENTS = 10_000_000


def simulate(
    model: Transformer, cluster: Cluster, plan: Plan, framework: Framework | str = "megatron-core", *,
    jitter: float = 0.0, seed: int = 0, slow_ranks: Mapping[int, float] | None = None,
) -> Simulation:  # fmt: skip
    """Play out one training step of a plan on a cluster, event by event, the load of every link included.

    Ranks run their pipeline's schedule. A pass takes what the formulas of `estimate` say, with the exchange of its tensor,
    context and expert groups inside. Sends go beside what follows but for the share that the software doesn't overlap.
    Gradients are summed in the framework's own buckets: beside the backward pass, each as soon as the pass is through its
    layers, where the plan overlaps them, else after it; weights sharded over ranks are gathered one unit ahead of the pass
    that needs them, those that an update changed before the passes of the next step (which is the same as this one) if
    overlapped, else after the update. Each kind of group has one stream, which carries one transfer at a time, in order.
    Beside a pass a transfer has at most the calibrated share of its rate, and slows the pass by the calibrated contention.
    On a link, demands share the bandwidth in proportion where they exceed it. To encode and decode compressed gradients
    takes its time before the update, and counts as ``optimizer``.

    Ranks that do the same at the same time are played as one: by symmetry one rank of each stage, unless `jitter` or
    `slow_ranks` break it; then every data-parallel replica of every stage by itself, ranks that share tensor, context or
    expert groups being one.

    Parameters
    ----------
    model : what is trained
    cluster : on what
    plan : how it is split; its degrees multiply to the cluster's GPUs
    framework : the software, or its name in the catalogue
    jitter : standard deviation of the logarithm of what each pass computes on each replica [s], whose mean stays
    seed : of the jitter
    slow_ranks : GPUs by number which, and so their groups, take so many times as long to compute

    Returns
    -------
    Simulation
        start and end of each event [s], use of compute, memory and links over time, what idles and why

    Raises
    ------
    InvalidValue
        where an argument is not what it should be, or the step has too many events
    IllegalPlan
        with the reason, where the plan can't run
    NotModelled
        for asynchronous schedules, which have no step; and as `ledger`

    Assumes all layers alike, as `estimate`; as `ledger`, that experts are spread over stages as they are; each transfer
    loads its links evenly.

    Examples
    --------
    >>> from costmodel import Plan, load_cluster, load_model
    >>> model, cluster = load_model("bloom-560m"), load_cluster("dgx-a100", gpus=16)
    >>> step = simulate(model, cluster, Plan(global_batch=16, seq_len=2048, data_parallel=16, zero_stage=2), "deepspeed")
    >>> sorted(set(step.frame().event))
    ['backward', 'data', 'forward', 'host', 'optimizer', 'wait']
    >>> bool(sum(step.times.values()).max() - step.total < 1e-9)
    True
    """
    from costmodel.kernels import step_events as kernel

    spread = real("jitter", jitter, 0.0, 10.0)
    whole("seed", seed, 2**63 - 1)
    asked = estimate(model, cluster, plan, framework)
    plan, discrepancy = asked.plan, asked.discrepancy
    result = asked if not discrepancy else estimate(model, cluster, plan, dataclasses.replace(asked.framework, own_runs=()))
    name = str(plan.schedule)
    if not SCHEDULES[name].flushes:
        raise NotModelled(f"a step of schedule={name!r}, which never flushes: `timeline` plays it")
    if SCHEDULES[name].two_way:
        raise NotModelled(f"a step of schedule={name!r}: the sums of gradients between twin ranks are not played; `timeline` "
                          "plays its passes")  # fmt: skip
    made = ledger_of(result)
    symmetric = not spread and not slow_ranks
    replicas = replicas_of(result, symmetric)
    factor = slowness(replicas, plan.pipeline_parallel, slow_ranks)
    schedule = schedule_of(plan, model.layers)
    writer = ProgramWriter(made, schedule, replicas.rows)
    entries, moves = writer.written(), writer.moved()
    if replicas.many * len(entries.kind) > MOST_EVENTS:
        raise InvalidValue(
            "plan", f"{len(entries.kind)} entries x {replicas.many} replicas",
            f"at most {MOST_EVENTS} in all; without jitter and slow_ranks one replica stands for all",
        )  # fmt: skip
    draws = np.array([entry.draw for entry in writer.entries])
    duration = durations(entries, draws, replicas, factor, spread, seed)
    rows = np.array([move.row for move in writer.moves], dtype=np.int64)
    number, of, members, places, receiver = instances_of(moves, rows, replicas.labels)

    bandwidth = np.array(link_bandwidths(result))
    overlap = np.array([1.0 if move.overlap is None else move.overlap for move in writer.moves])
    minded = np.array([0.0 if move.overlap is None else move.overlap for move in writer.moves])
    slowdown = 1.0 + writer.shape.software.compute.contention * minded
    starts = np.flatnonzero(entries.kind == START)
    key = entries.stage[starts] * len(STREAMS) + moves.stream[entries.transfer[starts]]
    queues = np.concatenate([[0], np.cumsum(np.bincount(key, minlength=schedule.ranks * len(STREAMS)))])
    code = np.where(entries.kind == START, kernel.START, np.where(entries.kind == WAIT, kernel.WAIT, kernel.WORK))
    programs = kernel.Programs(
        entries.offsets, code, entries.transfer, duration, entries.exchange, entries.load / bandwidth, entries.kind <= BACKWARD,
    )  # fmt: skip
    transfers = kernel.Transfers(
        moves.time, moves.load / bandwidth, overlap / slowdown, slowdown, moves.stream, number, of, members, places, receiver,
        entries.transfer[starts][np.argsort(key, kind="stable")], queues,
    )  # fmt: skip
    room = duration.size + len(of) + 1000
    while True:
        played = kernel.Played(
            np.full(duration.shape, -1.0), np.full(duration.shape, -1.0), np.zeros(len(of)), np.zeros(len(of)),
            np.full(len(of), -1.0), np.zeros(room, dtype=np.int64), np.zeros(room, dtype=np.int64), np.zeros(room),
            np.zeros(room), np.zeros(room),
        )  # fmt: skip
        many = int(kernel.play(programs, transfers, played, replicas.many))
        if many < 0:
            raise RuntimeError(f"a step of {plan!r} waits for ever")
        if many <= room:
            break
        room = many
    bills = result.memory.stages
    base = np.array([sum(bill.parts[1:4]) + bill.parts.buffers + bill.parts.overhead for bill in bills], dtype=np.float64)
    played_step = Simulation(
        ledger=made, schedule=schedule, replicas=replicas.many, entries=entries, start=played.start, end=played.end,
        duration=duration, transfers=moves,
        instances=Instances(of, number, np.bincount(number.ravel(), minlength=len(of)), played.asked, played.begun, played.done),
        pieces=Pieces(
            played.piece[:many], played.entry[:many], played.since[:many], played.until[:many], played.rate[:many]
        ),
        base=base,
    )  # fmt: skip
    return stretched_play(played_step, asked, math.exp(discrepancy)) if discrepancy else played_step


def stretched_play(played: Simulation, asked: Estimate, factor: float) -> Simulation:
    """A played step all of whose times are so many times as long, as own runs have it whatever part takes them.

    Parameters
    ----------
    played : as the constants have it
    asked : the estimate with what own runs say
    factor : of every time
    """
    entries, moves, groups, pieces = played.entries, played.transfers, played.instances, played.pieces
    return dataclasses.replace(
        played, ledger=ledger_of(asked), start=factor * played.start, end=factor * played.end,
        duration=factor * played.duration,
        entries=entries._replace(
            duration=factor * entries.duration, exchange=factor * entries.exchange, host=factor * entries.host
        ),
        transfers=moves._replace(time=factor * moves.time),
        instances=groups._replace(asked=factor * groups.asked, start=factor * groups.start, end=factor * groups.end),
        pieces=pieces._replace(start=factor * pieces.start, end=factor * pieces.end),
    )  # fmt: skip
