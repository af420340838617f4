"""What each rank of a step does, in order: written from the schedule's passes, the formulas' times and the ledger's transfers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.description.schedule import BACKWARD, Schedule
from costmodel.formulas.transformer import layer
from costmodel.simulation import step_kernel as kernel
from costmodel.simulation.blocks import Blocks, Move, expanded
from costmodel.simulation.pass_times import PassTimes
from costmodel.simulation.played_step import (
    GROUPS,
    LEVELS,
    SENDING,
    START,
    STREAMS,
    WAIT,
    Entries,
    Floats,
    Integers,
    StepTransfers,
)
from costmodel.simulation.rank_programs import SENDS, SUM, RankWriter, Rules, StageTransfer
from costmodel.simulation.transactions import Ledger, Transaction


class Lines(NamedTuple):
    """Kinds of entries, as `Entries` has them of each."""

    kind: Integers  # an index into `KINDS`
    duration: Floats  # duration, exchange, host: of work [s]
    exchange: Floats
    host: Floats
    saved: Floats  # change of the activations held [bytes]
    moved: Floats  # moved, load: sent over the groups of `GROUPS`, and on a GPU's link of each level [bytes]
    load: Floats


class Moves(NamedTuple):
    """Kinds of transfers, as `StepTransfers` has them of each."""

    stage: Integers  # stage, other, stream: who makes it with whom on which stream
    other: Integers
    stream: Integers
    phase: NDArray[Any]  # of the ledger
    row: Integers  # of `Replicas.labels`
    nbytes: Floats  # nbytes, sent, load, time: of one [bytes, bytes, bytes, s]
    sent: Floats
    load: Floats
    time: Floats
    beside: Floats  # share of its rate that it has beside a pass, 1 where the pass doesn't mind
    minded: Floats  # the same, 0 where the pass doesn't mind


class Programs(NamedTuple):
    """What the ranks of every stage do, line by line of `Blocks`."""

    lines: Lines  # lines, moves: kinds of entries and of transfers
    moves: Moves
    offsets: Integers  # first entry of each stage, and the number of entries
    line: Integers  # of each entry, in `lines`
    block: Integers  # of each entry, in the order in which ranks meet them
    kind: Integers  # kind, number: of each block, and its micro-batch, or -1
    number: Integers
    transfer: Integers  # that an entry starts or awaits; else -1
    move: Integers  # of each transfer, in `moves`
    moved_in: Integers  # micro-batch of each transfer, or -1

    @property
    def draw(self) -> Integers:
        """Number of the pass that each entry is a part of; -1 of what is none."""
        passing = self.lines.kind[self.line] <= BACKWARD
        begins = np.zeros(len(self.number), dtype=np.int64)
        begins[self.block[passing]] = 1
        return np.where(passing, (np.cumsum(begins) - 1)[self.block], -1)

    def entries(self) -> Entries:
        """The entries as columns."""
        lines, line = self.lines, self.line
        kind = lines.kind[line]
        numbered = (kind <= BACKWARD) | (kind == SENDING)
        return Entries(
            self.offsets, kind, np.where(numbered, self.number[self.block], -1), self.transfer, lines.duration[line],
            lines.exchange[line], lines.host[line], lines.moved[line], lines.load[line], lines.saved[line],
        )  # fmt: skip

    def transfers(self) -> StepTransfers:
        """The transfers as columns."""
        moves, move = self.moves, self.move
        return StepTransfers(
            moves.stage[move], moves.other[move], moves.stream[move], tuple(moves.phase[move].tolist()), self.moved_in,
            moves.nbytes[move], moves.sent[move], moves.load[move], moves.time[move],
        )  # fmt: skip


def programs_of(made: Ledger, times: PassTimes, schedule: Schedule, rows: Mapping[tuple[str, str], int]) -> Programs:
    """What each rank of a step does, from the schedule, the formulas and the ledger.

    Parameters
    ----------
    made : the ledger of the step
    times : of its passes
    schedule : of its pipeline
    rows : of `Replicas`, by group of the ledger and what a call goes over
    """
    settings = times.settings
    messages = _message_numbers(schedule)
    rules = Rules(
        schedule, times, float(made.estimate.step.optimizer + times.coding), settings.overlap.parameters > 0.0,
        bool(settings.overlap.gradients > layer.deferred_sums(settings, times.plan)), messages,
    )  # fmt: skip
    calls = {stage.name: _calls(made, times, stage.name, rows) for stage in made.stages}
    sends = {stage.name: _messages(made, stage.name) for stage in made.stages}
    blocks, writers, lines = Blocks(), list[RankWriter](), [0]
    number = int(messages.max(initial=-1)) + 1
    for rank in range(schedule.ranks):
        name = _kind_of_rank(schedule, rank)
        tied = _tied(made, schedule, rank, writers)
        writers.append(RankWriter(rules, blocks, rank, calls[name], number, sends[name], tied))
        number = writers[-1].next_transfer
        lines.append(len(blocks.lines))
    return _expanded(made, schedule, blocks, writers, lines)


def _message_numbers(schedule: Schedule) -> Integers:
    """Number of the message that each event sends or receives, in the order of the sends; -1 of other events."""
    sends = np.flatnonzero(np.isin(schedule.kind, SENDS))
    numbers = np.full(len(schedule.kind), -1)
    numbers[sends] = np.arange(len(sends))
    numbers[schedule.match[sends]] = np.arange(len(sends))
    return numbers


def _kind_of_rank(schedule: Schedule, rank: int) -> str:
    """The ledger's kind of a pipeline rank."""
    if schedule.ranks == 1:
        return "only"
    return "first" if rank == 0 else "last" if rank == schedule.ranks - 1 else "middle"


def _calls(made: Ledger, times: PassTimes, name: str, rows: Mapping[tuple[str, str], int]) -> list[StageTransfer]:
    """What a stage of this kind exchanges of gradients and weights."""
    prices = {(row.phase, row.group, row.collective, row.nbytes): row for row in made.transactions if row.stage == name}
    overlap = times.software.overlap
    found: list[StageTransfer] = []
    for group, call, ranks, _, nbytes in made.synchronisation(name):
        if ranks <= 1.0:
            continue
        gathering = call.phase in ("forward", "after step")
        pairs = [(place, size) for place, size in zip(call.layer.tolist(), nbytes.tolist(), strict=True) if size > 0.0]
        if gathering:
            pairs.sort(key=lambda pair: pair[0])
        places = tuple(place for place, _ in pairs)
        priced = tuple(prices[call.phase, group, call.collective, size] for _, size in pairs)
        share = float(overlap.parameters if gathering else overlap.gradients)
        found.append(StageTransfer(len(found), group, call.phase, call.every, places, priced, share, rows[group, call.over]))
    return found


def _messages(made: Ledger, name: str) -> dict[str, Transaction]:
    """What a message costs that a stage of this kind sends, by its phase."""
    found: dict[str, Transaction] = {}
    for row in made.transactions:
        if row.group == "pipeline" and row.stage == name:
            found.setdefault(row.phase, row)
    return found


def _tied(made: Ledger, schedule: Schedule, rank: int, writers: list[RankWriter]) -> Move | int | None:
    """The sum of the gradients of an embedding that the first and the last stage share; its number where that is known."""
    ends = 0, schedule.ranks - 1
    rows = [row for row in made.transactions if row.group == "embedding"]
    if not rows or rank not in ends:
        return None
    return Move(*ends, STREAMS.index("embedding"), SUM, rows[0], None, 0) if rank == 0 else writers[0].tie


def _expanded(made: Ledger, schedule: Schedule, blocks: Blocks, writers: list[RankWriter], first: list[int]) -> Programs:
    """The programs of all ranks, whose lines begin at `first`, entry by entry."""
    kinds, base, numbers = (np.concatenate(columns) for columns in zip(*(one.met for one in writers), strict=True))
    first_line, first_move = np.array(blocks.first_line), np.array(blocks.first_move)
    lengths = np.diff(first_line)[kinds]
    line, block = expanded(first_line[kinds], lengths), np.repeat(np.arange(len(kinds)), lengths)
    own, once = (np.array([getattr(one, name) for one in blocks.lines], dtype=np.int64) for name in ("own", "once"))
    transfer = np.where((own >= 0)[line], base[block] + own[line], once[line])
    messages = np.zeros(len(first_line) - 1, dtype=np.bool_)
    for writer in writers:
        messages[sorted(writer.messages)] = True
    sending = messages[kinds]
    made_here = np.where(sending, 0, np.diff(first_move)[kinds])
    move = np.concatenate([first_move[kinds[sending]], expanded(first_move[kinds], made_here)])
    moved_in = np.concatenate([numbers[sending], np.repeat(numbers, made_here)])
    offsets = np.concatenate([[0], np.cumsum(lengths)])[np.concatenate([[0], np.cumsum([len(one.met.kinds) for one in writers])])]
    lines = _lines(made, schedule, blocks, np.bincount(line, minlength=len(blocks.lines)), first)
    return Programs(lines, _moves(blocks), offsets, line, block, kinds, numbers, transfer, move, moved_in)


def _lines(made: Ledger, schedule: Schedule, blocks: Blocks, met: Integers, first: list[int]) -> Lines:
    """Kinds of entries, with what passes send and load on links in proportion to the time of their exchange."""
    kind, *_ = columns = [np.array(column) for column in zip(*blocks.lines, strict=True)]
    duration, exchange, host, saved, tensor, context, expert = (column.astype(float) for column in columns[4:])
    times = {"tensor": tensor, "context": context, "expert": expert, "expert tensor": expert}
    moved, load = np.zeros((len(kind), len(GROUPS))), np.zeros((len(kind), LEVELS))
    played = schedule.micro_batches / made.estimate.plan.micro_batches  # share of the step's micro-batches
    for rank in range(schedule.ranks):
        part = slice(first[rank], first[rank + 1])
        name = _kind_of_rank(schedule, rank)
        for row in made.transactions:
            if row.stage == name and row.group in GROUPS:
                total = float(met[part] @ times[row.group][part])
                share = played * row.count * times[row.group][part] / (total if total > 0.0 else 1.0)
                moved[part, GROUPS.index(row.group)] += share * row.sent
                load[part] += share[:, None] * np.asarray(row.links)
    return Lines(kind, duration, exchange, host, saved, moved, load)


def _moves(blocks: Blocks) -> Moves:
    """Kinds of transfers."""
    moves = blocks.moves
    numbers = np.array([(move.stage, move.other, move.stream, move.row) for move in moves], dtype=np.int64).reshape(-1, 4)
    sizes = np.array([
        (one.price.nbytes, one.price.sent, one.price.time, *one.price.links, -1.0 if one.overlap is None else one.overlap)
        for one in moves
    ]).reshape(-1, 4 + LEVELS)  # fmt: skip
    overlap = sizes[:, -1]
    stage, other, stream, row = numbers.T.copy()
    return Moves(
        stage, other, stream, np.array([move.phase for move in moves], dtype=object), row, sizes[:, 0], sizes[:, 1],
        sizes[:, 3:-1], sizes[:, 2], np.where(overlap < 0.0, 1.0, overlap), np.maximum(overlap, 0.0),
    )  # fmt: skip


def kernel_programs(programs: Programs, duration: Floats, bandwidth: Floats) -> kernel.KernelPrograms:
    """The programs as the simulator takes them.

    Parameters
    ----------
    programs : of the step
    duration : of each replica's work alone, replicas x entries [s]
    bandwidth : of a GPU's link of each level [bytes/s]
    """
    lines = programs.lines
    code = np.where(lines.kind == START, kernel.START, np.where(lines.kind == WAIT, kernel.WAIT, np.arange(len(lines.kind))))
    works = np.column_stack([lines.exchange, lines.load / bandwidth, lines.kind <= BACKWARD])
    return kernel.KernelPrograms(programs.offsets, code[programs.line], programs.transfer, duration, works)
