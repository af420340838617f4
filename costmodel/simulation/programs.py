"""What each rank of a step does, in order: written from the schedule's passes, the formulas' times and the ledger's transfers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from costmodel.description.schedule import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    RECEIVE_BACKWARD,
    RECEIVE_FORWARD,
    SEND_BACKWARD,
    SEND_FORWARD,
    Schedule,
)
from costmodel.evaluation.estimation import Estimate
from costmodel.formulas import gradients, training_step
from costmodel.formulas.network import communication
from costmodel.formulas.quantities import DeviceNumbers
from costmodel.formulas.stage import stage_pass
from costmodel.formulas.transformer import layer, memory
from costmodel.records import as_number, replaced
from costmodel.simulation.playback import stage_layers
from costmodel.simulation.played_step import (
    GROUPS,
    HOST,
    LEVELS,
    OPTIMIZER,
    SENDING,
    START,
    STREAMS,
    WAIT,
    Entries,
    Floats,
    Transfers,
)
from costmodel.simulation.transactions import Ledger, Transaction


class _Pass(NamedTuple):
    """A pass by what it is made of: a layer, the embedding, the head [s each]; what of a layer, and at the embedding and the
    head, is exchange, and what is the host's; tensor, context and expert exchange of a layer, hidden or not."""

    layer: float
    embedding: float
    head: float
    layer_exchange: float
    edge_exchange: float
    layer_host: float
    moving: tuple[float, float, float]


class _StagePass(NamedTuple):
    """A pass of one stage [s]: a layer, the embedding, the head, all of these; what of it is exchange, or the host's; all
    tensor, context and expert exchange, hidden or not."""

    layer: float
    embedding: float
    head: float
    duration: float
    exchange: float
    host: float
    moving: tuple[float, float, float]


class _Shape:
    """Times of the passes, and what a step has besides, as the formulas of `estimate` give them."""

    def __init__(self, result: Estimate, schedule: Schedule) -> None:
        self.model, self.settings, self.plan, self.network, self.software, device = result.inputs
        self.layers = stage_layers(result.model.layers, schedule.stages, self.plan, self.model, self.settings)
        # what every micro-batch gathers and sums are events, not parts of a pass
        whole = self.plan._replace(shard_weights=0.0, shard_gradients=0.0)
        fused = layer.fused_accumulation(self.settings, self.plan)
        settings = self.settings._replace(framework=self.settings.framework._replace(fused_accumulation=fused))
        arguments = self.model, settings, whole, self.network
        one = training_step.layer_pass(*arguments, self.software, device)
        unlaunched = replaced(self.software, {"host_pace": 0.0})
        quiet = training_step.layer_pass(*arguments, unlaunched, device)
        once = communication.tensor_exchange(*arguments, self.software)
        moved = communication.layer_exchange(*arguments, self.software)
        onward = np.array([moved.tensor_forward, moved.context_forward, moved.expert_forward], dtype=float)
        back = np.array([moved.tensor_backward, moved.context_backward, moved.expert_backward], dtype=float)
        again = moved.tensor_again, self.plan.recompute_layers * moved.context_forward, moved.expert_again
        returning = back + np.array(again, dtype=float)
        parts = [stage_pass(*arguments, self.software, device, *which) for which in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))]
        parts.append(stage_pass(*arguments, self.software, device, 0.0, 0.0, 1.0))
        forward, data, weight = (tuple(map(float, times)) for times in zip(*parts, strict=True))
        exchanged = float(one.tensor + one.context + one.expert)
        ahead, waited = float(quiet.total_forward - one.forward), float(one.total_forward - quiet.total_forward)
        behind = exchanged - ahead, float(once), float(one.host) - waited, tuple(returning.tolist())
        self.passes = {
            FORWARD: _Pass._make([*forward, ahead, 0.0, waited, tuple(onward.tolist())]),
            BACKWARD_INPUT: _Pass._make([*data, *behind]),
            BACKWARD_WEIGHT: _Pass._make([*weight, 0.0, 0.0, 0.0, (0.0, 0.0, 0.0)]),
            BACKWARD: _Pass._make([*(a + b for a, b in zip(data, weight, strict=True)), *behind]),
        }
        hide = self.settings.overlap.pipeline * self.software.overlap.pipeline
        self.exposed_send = 1.0 - float(hide)
        self.pieces = {(kind, stage): self._pieces(kind, stage) for kind in self.passes for stage in range(schedule.stages)}
        self.host = self._host(result, device)
        self.coding = float(gradients.compressed(*arguments, self.software, device).coding)
        held = memory.stage_activations(self.model, self.settings, self.plan, self.software, as_number(self.layers), 1.0)
        self.saved: Floats = np.asarray(held, dtype=np.float64)

    def _host(self, result: Estimate, device: DeviceNumbers) -> float:
        """What `estimate` has of the host, the allocator and offloaded activations besides the launches of layers [s]."""
        silent = {"host_micro_batch": 0.0, "host_step": 0.0, "host_pipeline_call": 0.0, "host_pressure_time": 0.0}
        settings = replaced(self.settings, {"offload_activations": 0.0})
        software = replaced(self.software, silent)
        launching = training_step.step(self.model, settings, self.plan, self.network, software, device).host
        return float(max(result.step.host - launching, 0.0))

    def _pieces(self, kind: int, stage: int) -> _StagePass:
        made, layers = self.passes[kind], float(self.layers[stage])
        first, last = float(stage == 0), float(stage == len(self.layers) - 1)
        embedding, head = first * made.embedding, last * made.head
        deep = layers + last * float(self.model.prediction_layers)
        edges = (first + last) * made.edge_exchange
        duration = embedding + layers * made.layer + head
        tensor, context, expert = (deep * time for time in made.moving)
        return _StagePass(
            made.layer, embedding, head, duration, deep * made.layer_exchange + edges, deep * made.layer_host,
            (tensor + edges, context, expert),
        )  # fmt: skip


class _Call(NamedTuple):
    """Transfers that a kind of stage makes: its number there, their places, and what each is, in the ledger's words."""

    number: int
    group: str
    phase: str
    every: bool
    places: tuple[int, ...]
    prices: tuple[Transaction, ...]
    overlap: float
    row: int


class _Move(NamedTuple):
    """One transfer; `overlap` is the share of its rate that it has beside a pass, None if the pass doesn't mind."""

    stage: int
    other: int
    stream: int
    phase: str
    micro_batch: int
    price: Transaction
    overlap: float | None
    row: int


class _Entry(NamedTuple):
    """One entry of a program [s]; `draw` numbers the pass that it is a part of, the last three are that part's `moving`."""

    kind: int
    micro_batch: int = -1
    transfer: int = -1
    duration: float = 0.0
    exchange: float = 0.0
    host: float = 0.0
    saved: float = 0.0
    draw: int = -1
    tensor: float = 0.0
    context: float = 0.0
    expert: float = 0.0


class _Mark(NamedTuple):
    """What is to be done where a pass has come to a position [s]; at the same one, in this order."""

    position: float
    order: int
    kind: int
    transfer: int


class ProgramWriter:
    """Writes what each rank of a step does, from the schedule, the formulas and the ledger."""

    def __init__(self, made: Ledger, schedule: Schedule, rows: Mapping[tuple[str, str], int]) -> None:
        self.made, self.schedule, self.result = made, schedule, made.estimate
        self.shape = _Shape(self.result, schedule)
        self.entries: list[_Entry] = []
        self.moves: list[_Move] = []
        self.offsets = [0]
        self.draws = 0
        settings = self.shape.settings
        self.gathers_ahead = settings.overlap.parameters > 0.0
        self.sums_beside = settings.overlap.gradients > layer.deferred_sums(settings, self.shape.plan)
        calls = {stage.name: self._calls(stage.name, rows) for stage in made.stages}
        self.found: dict[tuple[int, int, int, int], list[tuple[int, float]]] = {}
        self.sends: dict[int, int] = {}
        for event in np.flatnonzero((schedule.kind == SEND_FORWARD) | (schedule.kind == SEND_BACKWARD)).tolist():
            self._send(event)
        for rank in range(schedule.ranks):
            self._rank(rank, calls[self.name(rank)])
            self.offsets.append(len(self.entries))

    def name(self, rank: int) -> str:
        """The ledger's kind of a pipeline rank."""
        if self.schedule.ranks == 1:
            return "only"
        return "first" if rank == 0 else "last" if rank == self.schedule.ranks - 1 else "middle"

    def _calls(self, name: str, rows: Mapping[tuple[str, str], int]) -> list[_Call]:
        """What a stage of this kind exchanges of gradients and weights."""
        prices = {(row.phase, row.group, row.collective, row.nbytes): row for row in self.made.transactions if row.stage == name}
        software = self.shape.software
        found: list[_Call] = []
        for group, call, ranks, _, nbytes in self.made.synchronisation(name):
            if ranks <= 1.0:
                continue
            overlap = software.overlap.parameters if call.phase in ("forward", "after step") else software.overlap.gradients
            pairs = [(place, size) for place, size in zip(call.layer.tolist(), nbytes.tolist(), strict=True) if size > 0.0]
            if call.phase in ("forward", "after step"):
                pairs.sort(key=lambda pair: pair[0])
            places = tuple(place for place, _ in pairs)
            priced = tuple(prices[call.phase, group, call.collective, size] for _, size in pairs)
            found.append(_Call(len(found), group, call.phase, call.every, places, priced, float(overlap), rows[group, call.over]))
        return found

    def _move(self, rank: int, call: _Call, which: int, micro_batch: int) -> int:
        """A new transfer of a call, by its number."""
        stream = STREAMS.index(call.group)
        self.moves.append(_Move(rank, -1, stream, call.phase, micro_batch, call.prices[which], call.overlap, call.row))
        return len(self.moves) - 1

    def _send(self, event: int) -> None:
        """The transfer of a send to another stage."""
        schedule = self.schedule
        stage, other = int(schedule.rank[event]), int(schedule.rank[schedule.match[event]])
        phase = "forward" if schedule.kind[event] == SEND_FORWARD else "backward"
        rows = (row for row in self.made.transactions if row.group == "pipeline" and row.phase == phase)
        price = next(row for row in rows if row.stage == self.name(stage))
        self.sends[event] = len(self.moves)
        number = int(schedule.micro_batch[event])
        self.moves.append(_Move(stage, other, STREAMS.index(f"pipeline {phase}"), phase, number, price, None, 0))

    def _do(self, kind: int, transfer: int) -> None:
        self.entries.append(_Entry(kind, transfer=transfer))

    def _rank(self, rank: int, calls: list[_Call]) -> None:
        """The program of one pipeline rank."""
        schedule, shape = self.schedule, self.shape
        own = np.flatnonzero(schedule.placement[0] == rank).tolist()
        closing = self._closing(rank)
        marks: dict[int, list[_Mark]] = {}
        begin, gathers, late = len(self.entries), [], []
        for call in calls:
            for which, place in enumerate(() if call.every else call.places):
                transfer = self._move(rank, call, which, -1)
                if call.phase == "after step":
                    gathers.append((place, transfer))
                    continue
                stage, position = self._position(own, place, BACKWARD, closing)
                marks.setdefault(closing[stage][0], []).append(_Mark(position, -1, START, transfer))
                late.append(transfer)
        gathers.sort()
        if not self.sums_beside:
            marks.clear()
        if self.gathers_ahead:
            opening = self._opening(rank)
            for place, transfer in gathers:
                self._do(START, transfer)
                stage, position = self._position(own, place, FORWARD, closing)
                marks.setdefault(opening[stage], []).append(_Mark(position, 0, WAIT, transfer))

        each = [call for call in calls if call.every]
        for event in range(*schedule.offsets[rank : rank + 2].tolist()):
            kind, stage, number = int(schedule.kind[event]), int(schedule.stage[event]), int(schedule.micro_batch[event])
            if kind <= BACKWARD:
                self._pass(rank, kind, stage, number, marks.get(event, []), each, own if stage in own else [stage])
            elif kind in (RECEIVE_FORWARD, RECEIVE_BACKWARD):
                self._do(WAIT, self.sends[int(schedule.match[event])])
            else:
                transfer = self.sends[event]
                self._do(START, transfer)
                blocked = shape.exposed_send * self.moves[transfer].price.time
                if blocked > 0.0:
                    self.entries.append(_Entry(SENDING, number, duration=blocked))

        for transfer in () if self.sums_beside else late:
            self._do(START, transfer)
        self._settle(begin)
        self._tied(rank)
        for kind, duration in ((OPTIMIZER, self.result.step.optimizer + shape.coding), (HOST, shape.host)):
            if duration > 0.0:
                self.entries.append(_Entry(kind, duration=float(duration)))
        for kind in () if self.gathers_ahead else (START, WAIT):
            for _, transfer in gathers:
                self._do(kind, transfer)

    def _settle(self, begin: int) -> None:
        """Wait for the last sum of gradients on each stream among the entries from `begin` on."""
        last = {}
        for entry in self.entries[begin:]:
            if entry.kind == START and self.moves[entry.transfer].phase == "gradient sync":
                last[self.moves[entry.transfer].stream] = entry.transfer
        for transfer in last.values():
            self._do(WAIT, transfer)

    def _closing(self, rank: int) -> dict[int, tuple[int, int]]:
        """Last event that makes gradients of each stage on a rank, and its kind."""
        schedule = self.schedule
        part = np.arange(*schedule.offsets[rank : rank + 2])
        part = part[(schedule.kind[part] == BACKWARD) | (schedule.kind[part] == BACKWARD_WEIGHT)]
        return {int(schedule.stage[event]): (int(event), int(schedule.kind[event])) for event in part}

    def _opening(self, rank: int) -> dict[int, int]:
        """First forward pass of each stage on a rank."""
        schedule = self.schedule
        part = np.arange(*schedule.offsets[rank : rank + 2])
        return {int(schedule.stage[event]): int(event) for event in part[schedule.kind[part] == FORWARD][::-1]}

    def _tied(self, rank: int) -> None:
        """The sum of the gradients of an embedding that the first and the last stage share."""
        ends = 0, self.schedule.ranks - 1
        rows = [row for row in self.made.transactions if row.group == "embedding"]
        if not rows or rank not in ends:
            return
        if rank == 0:
            self.tie = len(self.moves)
            self.moves.append(_Move(*ends, STREAMS.index("embedding"), "gradient sync", -1, rows[0], None, 0))
        self._do(START, self.tie)
        self._do(WAIT, self.tie)

    def _position(
        self, own: list[int], place: int, kind: int, closing: Mapping[int, tuple[int, int]] | None = None
    ) -> tuple[int, float]:
        """Stage that holds a place of a rank, and when a pass comes to it [s]: forward to its begin, backward to its end.

        Places are those of `LocalTensors`: 0 the embedding, the layers from 1, then the head.
        """
        counts = self.shape.layers[own]
        before = np.concatenate([[0.0], np.cumsum(counts)])
        chunk = min(max(int(np.searchsorted(before, place, side="left")) - 1, 0), len(own) - 1)
        depth = min(max(place - before[chunk], 0.0), counts[chunk] + 1.0)
        stage = own[chunk]
        times = self.shape.pieces[kind if closing is None or kind == FORWARD else closing[stage][1], stage]
        if kind == FORWARD:
            return stage, (depth > 0.0) * (times.embedding + max(depth - 1.0, 0.0) * times.layer)
        behind = times.head + (counts[chunk] + 1.0 - depth) * times.layer if depth > 0.0 else times.duration
        return stage, behind if depth <= counts[chunk] else times.head

    def _pass(
        self, rank: int, kind: int, stage: int, number: int, marks: list[_Mark], calls: list[_Call], own: list[int]
    ) -> None:
        """One pass, cut where transfers start or are waited for."""
        times = self.shape.pieces[kind, stage]
        phase = {FORWARD: "forward", BACKWARD: "backward", BACKWARD_INPUT: "backward"}.get(kind)
        found = list(marks)
        for call in calls:
            if call.phase == phase:
                found += self._gathered(rank, call, kind, stage, number, own)
            elif call.phase == "gradient sync" and kind in (BACKWARD, BACKWARD_WEIGHT):
                found += self._summed(rank, call, kind, stage, number, own)
        saved = float(self.shape.saved[stage])
        first, begin = len(self.entries), 0.0
        for mark in [*sorted(found), None]:
            end = times.duration if mark is None else min(mark.position, times.duration)
            if end > begin:
                part = (end - begin) / times.duration
                parts = end - begin, part * times.exchange, part * times.host
                self.entries.append(_Entry(kind, number, -1, *parts, 0.0, self.draws, *(part * time for time in times.moving)))
                begin = end
            if mark is not None:
                self._do(mark.kind, mark.transfer)
        self.draws += 1
        if any(call.phase == "gradient sync" for call in calls):
            self._settle(first)
        made = [index for index in range(first, len(self.entries)) if self.entries[index].kind == kind]
        if made and kind == FORWARD:
            self.entries[made[0]] = self.entries[made[0]]._replace(saved=saved)
        elif made and kind in (BACKWARD, BACKWARD_WEIGHT):
            self.entries[made[-1]] = self.entries[made[-1]]._replace(saved=-saved)

    def _here(self, rank: int, call: _Call, kind: int, stage: int, own: list[int]) -> list[tuple[int, float]]:
        """Transfers of a call that belong to a stage's pass, and when it comes to them."""
        key = rank, call.number, kind, stage
        if key not in self.found:
            places = [(which, *self._position(own, place, kind)) for which, place in enumerate(call.places)]
            self.found[key] = [(which, position) for which, where, position in places if where == stage]
        return self.found[key]

    def _summed(self, rank: int, call: _Call, kind: int, stage: int, number: int, own: list[int]) -> list[_Mark]:
        """Gradients of one micro-batch: summed as they are ready, or after the pass."""
        return [
            _Mark(position if self.sums_beside else np.inf, -1, START, self._move(rank, call, which, number))
            for which, position in self._here(rank, call, kind, stage, own)
        ]

    def _gathered(self, rank: int, call: _Call, kind: int, stage: int, number: int, own: list[int]) -> list[_Mark]:
        """Weights of one pass: each gathered while the one before works, or where it is needed."""
        here = self._here(rank, call, kind, stage, own)
        moves = [self._move(rank, call, which, number) for which, _ in here]
        needed = [position for _, position in here]
        if kind != FORWARD:  # the end of what goes before is the begin of what follows
            needed = [0.0, *needed[:-1]][: len(here)]
        ahead = self.gathers_ahead if kind == FORWARD else self.sums_beside
        places = sorted({0.0, *needed})  # all of a layer are begun where the layer before is needed
        before = dict(zip(places, [0.0, *places], strict=False))
        begins = [before[need] for need in needed] if ahead else needed
        later = 0 if ahead or call.group == "data" else 2 * len(moves)  # experts are gathered when the pass has come to them
        marks = []
        for place, (begin, need, transfer) in enumerate(zip(begins, needed, moves, strict=False)):
            marks += [_Mark(begin, later + 2 * place, START, transfer), _Mark(need, later + 2 * place + 1, WAIT, transfer)]
        return marks

    def written(self) -> Entries:
        """The programs as columns, with what passes send and load on links in proportion to the time of their exchange."""
        columns = (np.array(column) for column in zip(*self.entries, strict=True))
        kind, number, transfer, duration, exchanged, host, saved, _, tensor, context, expert = columns
        times = {"tensor": tensor, "context": context, "expert": expert, "expert tensor": expert}
        moved, load = np.zeros((len(kind), len(GROUPS))), np.zeros((len(kind), LEVELS))
        for rank in range(self.schedule.ranks):
            part = slice(*self.offsets[rank : rank + 2])
            rows = [row for row in self.made.transactions if row.stage == self.name(rank) and row.group in GROUPS]
            for row in rows:
                total = times[row.group][part].sum()
                share = times[row.group][part] / total if total > 0.0 else times[row.group][part]
                moved[part, GROUPS.index(row.group)] += share * row.count * row.sent
                load[part] += share[:, None] * (row.count * np.asarray(row.links))
        return Entries(np.asarray(self.offsets), kind, number, transfer, duration, exchanged, host, moved, load, saved)

    def moved(self) -> Transfers:
        """The transfers as columns."""
        prices = [move.price for move in self.moves]
        table = np.array([(move.stage, move.other, move.stream, move.micro_batch) for move in self.moves], dtype=np.int64)
        stage, other, stream, number = table.reshape(-1, 4).T.copy()
        sizes = np.array([(one.nbytes, one.sent, one.time, *one.links) for one in prices]).reshape(-1, 3 + LEVELS)
        return Transfers(
            stage, other, stream, tuple(move.phase for move in self.moves), number, sizes[:, 0], sizes[:, 1], sizes[:, 3:],
            sizes[:, 2].copy(),
        )  # fmt: skip
