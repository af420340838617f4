"""The program of one pipeline rank: its passes, cut where transfers start or are waited for, in the order of the schedule."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from costmodel.description.schedule import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    RECEIVE_BACKWARD,
    SEND_BACKWARD,
    SEND_FORWARD,
    Schedule,
)
from costmodel.evaluation.transactions import Transaction
from costmodel.simulation.blocks import Blocks, Met, Move, ProgramEntry
from costmodel.simulation.pass_times import PassTimes
from costmodel.simulation.played_step import FULLEST, HOST, OPTIMIZER, SENDING, START, STREAMS, WAIT, Integers

SENDS = (SEND_FORWARD, SEND_BACKWARD)
SUM = "gradient sync"
"""Phase of sums of gradients."""


class StageTransfer(NamedTuple):
    """Transfers that a kind of stage makes."""

    number: int  # among the calls of that stage
    group: str  # group, phase: of the ledger
    phase: str
    every: bool  # whether each micro-batch makes them
    places: tuple[int, ...]  # of `LocalTensors`, of each transfer
    prices: tuple[Transaction, ...]  # of each transfer
    overlap: float  # share of the rate that they have beside a pass
    row: int  # of `Replicas.labels`


class Rules(NamedTuple):
    """What all ranks of a step go by."""

    schedule: Schedule  # of the pipeline
    times: PassTimes  # of its passes
    update: float  # time of the optimizer [s]
    gathers_ahead: bool  # whether weights are gathered while what goes before works
    sums_beside: bool  # whether gradients are summed beside the backward pass
    send_number: Integers  # number of the transfer that each event sends or receives, or -1


class _Mark(NamedTuple):
    """What is to be done where a pass has come to a position [s]; at the same one, in this order."""

    position: float
    order: int
    kind: int
    own: int = -1
    once: int = -1
    summed: int = -1


class RankWriter:
    """Writes the program of one pipeline rank.

    Parameters
    ----------
    rules : of the step
    blocks : of all ranks, to which the rank's are added
    rank : which
    calls : that it makes of gradients and weights
    first : number of its first transfer but for sends
    sends : what a message costs by its phase
    tied : the sum of an embedding's gradients with another rank's, and its number where that rank has written it
    """

    def __init__(
        self, rules: Rules, blocks: Blocks, rank: int, calls: Sequence[StageTransfer], first: int,
        sends: Mapping[str, Transaction], tied: Move | int | None,
    ) -> None:  # fmt: skip
        self.rules, self.blocks, self.rank, self.calls, self.first, self.sends = rules, blocks, rank, calls, first, sends
        schedule = rules.schedule
        self.own = np.flatnonzero(schedule.placement[0] == rank).tolist()
        self.events = slice(*schedule.offsets[rank : rank + 2].tolist())
        self.kind, self.stage = schedule.kind[self.events], schedule.stage[self.events]
        self.layers = rules.times.layers.tolist()
        self.closing = self._closing()
        self.once: list[Move] = []
        self.messages: set[int] = set()
        marks, gathers, late = self._once_a_step()
        opening = blocks.add([ProgramEntry(START, once=number) for number in gathers if rules.gathers_ahead], self.once)
        kinds = np.concatenate([[opening], self._kinds(marks)])
        numbers = np.concatenate([[-1], schedule.micro_batch[self.events], [-1]])
        base, self.next_transfer = self._numbered(kinds)
        ends = [] if rules.sums_beside else [self._start(number) for number in late]
        ends += [ProgramEntry(WAIT, once=number) for number in self._last_sums(kinds, base, ends)]
        if rules.times.fullest > 0.0:
            ends.append(ProgramEntry(FULLEST, duration=rules.times.fullest))
        shared: list[Move] = []
        if tied is not None:
            self.tie = self.next_transfer if isinstance(tied, Move) else tied
            shared = [tied] if isinstance(tied, Move) else []
            ends += [ProgramEntry(START, once=self.tie), ProgramEntry(WAIT, once=self.tie)]
        for kind, duration in ((OPTIMIZER, rules.update), (HOST, rules.times.host)):
            if duration > 0.0:
                ends.append(ProgramEntry(kind, duration=float(duration)))
        for kind in () if rules.gathers_ahead else (START, WAIT):
            ends += [ProgramEntry(kind, once=number) for number in gathers]
        self.met = Met(np.append(kinds, blocks.add(ends, shared)), np.append(base, self.next_transfer), numbers)
        self.next_transfer += len(shared)

    def _numbered(self, kinds: Integers) -> tuple[Integers, int]:
        """Number of the first transfer of each block, of a send or receive that of the message; and the next number."""
        counts = np.diff(self.blocks.first_move)[kinds]
        message = np.concatenate([[-1], self.rules.send_number[self.events]])
        counts[message >= 0] = 0
        ends = self.first + np.cumsum(counts)
        return np.where(message >= 0, message, ends - counts), int(ends[-1])

    def _once_a_step(self) -> tuple[dict[int, list[_Mark]], list[int], list[int]]:
        """Transfers made once a step: marks of events whose passes they go beside; of all, the gathers and the sums."""
        marks: dict[int, list[_Mark]] = {}
        placed, late = [], []
        for call in self.calls:
            for which, place in enumerate(() if call.every else call.places):
                number = self.first + len(self.once)
                self.once.append(self._move(call, which))
                if call.phase == "after step":
                    placed.append((place, number))
                    continue
                stage, position = self._position(place, BACKWARD, self.closing)
                start = self._start(number)
                if self.rules.sums_beside:
                    mark = _Mark(position, -1, START, once=number, summed=start.summed)
                    marks.setdefault(self.closing[stage][0], []).append(mark)
                late.append(number)
        placed.sort()
        opening = self._opening() if self.rules.gathers_ahead else {}
        for place, number in placed if self.rules.gathers_ahead else ():
            stage, position = self._position(place, FORWARD, self.closing)
            marks.setdefault(opening[stage], []).append(_Mark(position, 0, WAIT, once=number))
        return marks, [number for _, number in placed], late

    def _start(self, number: int) -> ProgramEntry:
        """The start of a transfer that is made once a step."""
        return ProgramEntry(START, once=number, summed=_summed_stream(self.once[number - self.first]))

    def _move(self, call: StageTransfer, which: int) -> Move:
        """A transfer of a call."""
        return Move(self.rank, -1, STREAMS.index(call.group), call.phase, call.prices[which], call.overlap, call.row)

    def _closing(self) -> dict[int, tuple[int, int]]:
        """Last event that makes gradients of each stage, counted on the rank, and its kind."""
        part = np.flatnonzero((self.kind == BACKWARD) | (self.kind == BACKWARD_WEIGHT))[::-1]
        stages, last = np.unique(self.stage[part], return_index=True)
        events = part[last].tolist()
        return {stage: (event, int(self.kind[event])) for stage, event in zip(stages.tolist(), events, strict=True)}

    def _opening(self) -> dict[int, int]:
        """First forward pass of each stage, counted on the rank."""
        part = np.flatnonzero(self.kind == FORWARD)
        stages, first = np.unique(self.stage[part], return_index=True)
        return dict(zip(stages.tolist(), part[first].tolist(), strict=True))

    def _kinds(self, marks: Mapping[int, list[_Mark]]) -> Integers:
        """Kind of block of each of the rank's events."""
        stages = self.rules.schedule.stages
        table = np.zeros((RECEIVE_BACKWARD + 1) * stages, dtype=np.int64)
        code = self.kind * stages + self.stage
        for one in np.flatnonzero(np.bincount(code, minlength=len(table))).tolist():
            kind, stage = divmod(one, stages)
            if kind <= BACKWARD:
                table[one] = self.blocks.add(*self._pass(kind, stage, []))
            elif kind in SENDS:
                table[one] = self._send(kind, stage)
            else:
                table[one] = self.blocks.add([ProgramEntry(WAIT, own=0)])
        kinds = table[code]
        for event, found in marks.items():
            kinds[event] = self.blocks.add(*self._pass(int(self.kind[event]), int(self.stage[event]), found))
        return kinds

    def _send(self, kind: int, stage: int) -> int:
        """A message to another stage, with what of it the rank doesn't overlap."""
        forward = kind == SEND_FORWARD
        phase = "forward" if forward else "backward"
        price = self.sends[phase]
        other = int(self.rules.schedule.placement[0, stage + (1 if forward else -1)])
        blocked = self.rules.times.exposed_send * price.time
        lines = [ProgramEntry(START, own=0), *([ProgramEntry(SENDING, duration=blocked)] if blocked > 0.0 else [])]
        made = self.blocks.add(lines, [Move(self.rank, other, STREAMS.index(f"pipeline {phase}"), phase, price, None, 0)])
        self.messages.add(made)
        return made

    def _last_sums(self, kinds: Integers, base: Integers, ends: Sequence[ProgramEntry]) -> list[int]:
        """The last sum of gradients on each stream, in the order in which the streams are first used."""
        starts: list[tuple[int, tuple[int, int], tuple[int, int, int]]] = []  # stream, first place, last place and transfer
        for kind in np.flatnonzero(np.bincount(kinds)).tolist():
            sums = [(place, line) for place, line in enumerate(self.blocks.of(kind)) if line.summed >= 0]
            blocks = np.flatnonzero(kinds == kind) if sums else kinds
            for place, line in sums:
                number = line.once if line.own < 0 else int(base[blocks[-1]]) + line.own
                starts.append((line.summed, (int(blocks[0]), place), (int(blocks[-1]), place, number)))
        after = len(kinds)
        starts += [(line.summed, (after, i), (after, i, line.once)) for i, line in enumerate(ends) if line.summed >= 0]
        first = {stream: min(place for one, place, _ in starts if one == stream) for stream, *_ in starts}
        return [max(last for one, _, last in starts if one == stream)[2] for stream in sorted(first, key=first.__getitem__)]

    def _position(
        self, place: int, kind: int, closing: Mapping[int, tuple[int, int]] | None = None, own: Sequence[int] = ()
    ) -> tuple[int, float]:
        """Stage that holds a place of a rank, and when a pass comes to it [s]: forward to its begin, backward to its end.

        Places are those of `LocalTensors`: 0 the embedding, the layers from 1, then the head.
        """
        own = own or self.own
        counts = [self.layers[stage] for stage in own]
        before = [0.0, *itertools.accumulate(counts)]
        chunk = min(max(bisect.bisect_left(before, place) - 1, 0), len(own) - 1)
        depth = min(max(place - before[chunk], 0.0), counts[chunk] + 1.0)
        stage = own[chunk]
        times = self.rules.times.pieces[kind if closing is None or kind == FORWARD else closing[stage][1], stage]
        if kind == FORWARD:
            return stage, (depth > 0.0) * (times.embedding + max(depth - 1.0, 0.0) * times.layer)
        behind = times.head + (counts[chunk] + 1.0 - depth) * times.layer if depth > 0.0 else times.duration
        return stage, behind if depth <= counts[chunk] else times.head

    def _pass(self, kind: int, stage: int, marks: Sequence[_Mark]) -> tuple[list[ProgramEntry], list[Move]]:
        """One pass, cut where transfers start or are waited for, and the transfers that it makes."""
        times = self.rules.times.pieces[kind, stage]
        phase = {FORWARD: "forward", BACKWARD: "backward", BACKWARD_INPUT: "backward"}.get(kind)
        found, moves = list(marks), list[Move]()
        summing = False
        for call in self.calls:
            if call.every and call.phase == phase:
                found += self._gathered(call, kind, stage, moves)
            elif call.every and call.phase == SUM:
                summing = True
                found += self._summed(call, kind, stage, moves) if kind in (BACKWARD, BACKWARD_WEIGHT) else []
        lines: list[ProgramEntry] = []
        begin = 0.0
        for mark in [*sorted(found), None]:
            end = times.duration if mark is None else min(mark.position, times.duration)
            if end > begin:
                part = (end - begin) / times.duration
                moving = (part * time for time in times.moving)
                lines.append(ProgramEntry(kind, -1, -1, -1, end - begin, part * times.exchange, part * times.host, 0.0, *moving))
                begin = end
            if mark is not None:
                lines.append(ProgramEntry(mark.kind, mark.own, mark.once, mark.summed))
        if summing:
            last = {line.summed: line for line in lines if line.summed >= 0}
            lines += [ProgramEntry(WAIT, line.own, line.once) for line in last.values()]
        worked = [place for place, line in enumerate(lines) if line.kind == kind]
        saved = float(self.rules.times.saved[stage])
        if worked and kind == FORWARD:
            lines[worked[0]] = lines[worked[0]]._replace(saved=saved)
        elif worked and kind in (BACKWARD, BACKWARD_WEIGHT):
            lines[worked[-1]] = lines[worked[-1]]._replace(saved=-saved)
        return lines, moves

    def _here(self, call: StageTransfer, kind: int, stage: int) -> list[tuple[int, float]]:
        """Transfers of a call that belong to a stage's pass, and when it comes to them."""
        own = self.own if stage in self.own else [stage]
        places = [(which, *self._position(place, kind, None, own)) for which, place in enumerate(call.places)]
        return [(which, position) for which, where, position in places if where == stage]

    def _summed(self, call: StageTransfer, kind: int, stage: int, moves: list[Move]) -> list[_Mark]:
        """Gradients of one micro-batch: summed as they are ready, or after the pass."""
        marks = []
        for which, position in self._here(call, kind, stage):
            at = position if self.rules.sums_beside else np.inf
            move = self._move(call, which)
            marks.append(_Mark(at, -1, START, own=len(moves), summed=_summed_stream(move)))
            moves.append(move)
        return marks

    def _gathered(self, call: StageTransfer, kind: int, stage: int, moves: list[Move]) -> list[_Mark]:
        """Weights of one pass: each gathered while the one before works, or where it is needed."""
        here = self._here(call, kind, stage)
        own = range(len(moves), len(moves) + len(here))
        moves += [self._move(call, which) for which, _ in here]
        needed = [position for _, position in here]
        if kind != FORWARD:  # the end of what goes before is the begin of what follows
            needed = [0.0, *needed[:-1]][: len(here)]
        ahead = self.rules.gathers_ahead if kind == FORWARD else self.rules.sums_beside
        places = sorted({0.0, *needed})  # all of a layer are begun where the layer before is needed
        before = dict(zip(places, [0.0, *places], strict=False))
        begins = [before[need] for need in needed] if ahead else needed
        later = 0 if ahead or call.group == "data" else 2 * len(here)  # experts are gathered when the pass has come to them
        marks = []
        for place, (begin, need, mine) in enumerate(zip(begins, needed, own, strict=True)):
            marks += [_Mark(begin, later + 2 * place, START, mine), _Mark(need, later + 2 * place + 1, WAIT, mine)]
        return marks


def _summed_stream(move: Move) -> int:
    """Stream of a sum of gradients; of another transfer, -1."""
    return move.stream if move.phase == SUM else -1
