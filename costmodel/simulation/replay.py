"""A training step of any plan on any cluster, played out event by event, the load of every class of links included."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from costmodel.catalogue.keywords import by_other_names
from costmodel.description.schedule import Schedule
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.formulas.pipeline.schedules import SCHEDULES
from costmodel.simulation import step_kernel as kernel
from costmodel.simulation.pass_times import PassTimes
from costmodel.simulation.playback import schedule_of
from costmodel.simulation.played_step import KINDS, START, STREAMS, Floats, Instances, Pieces, Simulation, link_bandwidths
from costmodel.simulation.programs import Programs, kernel_programs, programs_of
from costmodel.simulation.replicas import Replicas, durations, instances_of, replicas_of, slowness
from costmodel.simulation.transactions import Ledger, ledger_of
from costmodel.text.checks import real, whole
from costmodel.text.errors import InvalidValue, NotModelled

if TYPE_CHECKING:
    from costmodel.catalogue.asking import ModelLike
    from costmodel.catalogue.clusters import ClusterLike
    from costmodel.description.framework import Framework
    from costmodel.description.plan import Plan

MOST_EVENTS = 10_000_000
"""Entries of the ranks' programs, of all replicas that are played."""


@by_other_names()
def simulate(
    model: ModelLike, cluster: ClusterLike | None = None, plan: Plan | None = None,
    framework: Framework | str | None = None, *, jitter: float = 0.0, seed: int = 0,
    slow_ranks: Mapping[int, float] | None = None, **choices: object,
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
    model, cluster, plan, framework, choices : as for `estimate`, hardware such as ``device`` and ``gpus`` among the choices
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
    loads its links evenly. Of samples of unlike lengths every replica works through the mean, and waits at the end of its
    passes, as long as `estimate` has it, for the one that has most.

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
    spread = real("jitter", jitter, 0.0, 10.0)
    whole("seed", seed, 2**63 - 1)
    asked = estimate(model, cluster, plan, framework, **choices)  # type: ignore[arg-type]
    ready = prepared(asked, ledger_of(without_own_runs(asked)), spread, seed, slow_ranks)
    played = ready.played()
    programs, result = ready.programs, ready.made.estimate
    bills = result.memory.stages
    base = np.array([sum(bill.parts[1:4]) + bill.parts.buffers + bill.parts.overhead for bill in bills], dtype=np.float64)
    of, number = ready.transfers.of, ready.transfers.instance
    played_step = Simulation(
        ledger=ready.made, schedule=ready.schedule, replicas=ready.replicas, entries=programs.entries(), start=played.start,
        end=played.end, duration=ready.duration, transfers=programs.transfers(),
        instances=Instances(of, number, np.bincount(number.ravel(), minlength=len(of)), *played.times.T.copy()),
        pieces=Pieces(*played.owner.T.copy(), *played.piece.T.copy()), base=base,
    )  # fmt: skip
    return stretched_play(played_step, asked, math.exp(asked.discrepancy)) if asked.discrepancy else played_step


def without_own_runs(asked: Estimate) -> Estimate:
    """The same step as the constants have it, whatever own runs say of plans like this one."""
    if not asked.discrepancy:
        return asked
    return estimate(asked.model, asked.cluster, asked.plan, dataclasses.replace(asked.framework, own_runs=(), own_factor=1.0))


class Prepared(NamedTuple):
    """A step that is ready to be played."""

    made: Ledger  # the ledger of the step
    schedule: Schedule  # of its pipeline
    times: PassTimes  # of its passes
    replicas: int  # of each stage
    programs: Programs  # what the ranks do
    duration: Floats  # of each replica's work alone, replicas x entries [s]
    transfers: kernel.KernelTransfers  # what they exchange, as the kernel takes it

    def played(self, kept: bool = True) -> kernel.Played:
        """What happens when.

        Parameters
        ----------
        kept : whether pieces of constant rate are wanted
        """
        bandwidth = np.array(link_bandwidths(self.made.estimate))
        programs = kernel_programs(self.programs, self.duration, bandwidth)
        played = kernel.played(programs, self.transfers, self.replicas, kept)
        if played is None:
            raise RuntimeError(f"a step of {self.made.estimate.plan!r} waits for ever")
        return played


def prepared(
    asked: Estimate, made: Ledger, jitter: float = 0.0, seed: int = 0, slow_ranks: Mapping[int, float] | None = None,
    times: PassTimes | None = None, micro_batches: int | None = None,
) -> Prepared:
    """The programs and transfers of a step.

    Parameters
    ----------
    asked : the estimate
    made : the ledger of the step as the constants have it
    jitter, seed, slow_ranks : as `simulate` takes them
    times : of its passes, where they are known
    micro_batches : so many of the step's, where not all of them are to be played

    Raises
    ------
    InvalidValue
        where an argument is not what it should be, or the step has too many events
    NotModelled
        for schedules that have no step, or sums between twin ranks
    """
    plan, result, name = asked.plan, made.estimate, str(asked.plan.schedule)
    if not SCHEDULES[name].flushes:
        raise NotModelled(f"a step of schedule={name!r}, which never flushes: `timeline` plays it")
    if SCHEDULES[name].bidirectional:
        raise NotModelled(f"a step of schedule={name!r}: the sums of gradients between twin ranks are not played; `timeline` "
                          "plays its passes")  # fmt: skip
    replicas = replicas_of(result, not jitter and not slow_ranks)
    _check_work(plan, replicas.many, micro_batches or plan.micro_batches)
    factor = slowness(replicas, plan.pipeline_parallel, slow_ranks)
    schedule = schedule_of(plan, asked.model.layers, micro_batches=micro_batches)
    times = PassTimes(result, schedule.stages) if times is None else times
    programs = programs_of(made, times, schedule, replicas.rows)
    if replicas.many * len(programs.line) > MOST_EVENTS:
        raise InvalidValue(
            "plan", f"{len(programs.line)} entries x {replicas.many} replicas",
            f"at most {MOST_EVENTS} in all; without jitter and slow_ranks one replica stands for all",
        )  # fmt: skip
    _check_times(programs, asked)
    duration = durations(programs, replicas, factor, jitter, seed)
    transfers = _transfers(programs, replicas, schedule.ranks, result)
    return Prepared(made, schedule, times, replicas.many, programs, duration, transfers)


def _check_work(plan: Plan, replicas: int, micro_batches: int) -> None:
    """Refuse, before its schedule is made, a step that has more than `MOST_EVENTS` entries in any case.

    A micro-batch has two passes on a stage, and where there are others it is sent and awaited both ways.
    """
    each = replicas * plan.pipeline_parallel * plan.virtual_stages * (2 if plan.pipeline_parallel == 1 else 6)
    if each * micro_batches > MOST_EVENTS:
        wanted = f"at most {MOST_EVENTS // each} to play on {replicas} replicas, {MOST_EVENTS} entries; `estimate` takes any"
        raise InvalidValue("micro_batches", micro_batches, wanted)


def _check_times(programs: Programs, asked: Estimate) -> None:
    """Refuse times that would let the clock run backwards or stand still for ever."""
    for names, kind, times in (
        (KINDS, programs.lines.kind, programs.lines.duration), (STREAMS, programs.moves.stream, programs.moves.time),
    ):  # fmt: skip
        for wrong in np.flatnonzero(~(times >= 0.0) | ~np.isfinite(times))[:1].tolist():
            raise RuntimeError(
                f"a step of {asked.plan!r} has a {names[int(kind[wrong])]!r} event that takes {times[wrong]:g} s; every event "
                "of a played step takes a finite time of 0 or more"
            )


def _transfers(programs: Programs, replicas: Replicas, ranks: int, result: Estimate) -> kernel.KernelTransfers:
    """The transfers as the kernel takes them."""
    moves, move = programs.moves, programs.move
    number, of, members, places, receiver = instances_of(programs, replicas.labels)
    bandwidth = np.array(link_bandwidths(result))
    slowdown = 1.0 + result.question.inputs(result.plan).software.compute.contention * moves.minded
    prices = np.column_stack([moves.time, moves.load / bandwidth, moves.beside / slowdown, slowdown])
    starts = np.flatnonzero((programs.lines.kind == START)[programs.line])
    started = programs.transfer[starts]
    stage = np.repeat(np.arange(ranks), np.diff(np.searchsorted(starts, programs.offsets)))
    key = stage * len(STREAMS) + moves.stream[move[started]]
    queues = np.concatenate([[0], np.cumsum(np.bincount(key, minlength=ranks * len(STREAMS)))])
    order = started[np.argsort(key.astype(np.int32), kind="stable")]
    return kernel.KernelTransfers(move, prices, moves.stream[move], number, of, members, places, receiver, order, queues)


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
        played, ledger=ledger_of(asked), start=factor * played.start, end=factor * played.end, duration=factor * played.duration,
        entries=entries._replace(
            duration=factor * entries.duration, exchange=factor * entries.exchange, host=factor * entries.host
        ),
        transfers=moves._replace(time=factor * moves.time),
        instances=groups._replace(asked=factor * groups.asked, start=factor * groups.start, end=factor * groups.end),
        pieces=pieces._replace(start=factor * pieces.start, end=factor * pieces.end),
    )  # fmt: skip
