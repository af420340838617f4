"""What the program does now: where it is, and on which stream it runs."""

from __future__ import annotations

import ctypes

from costmodel.traces.builder import RoleBuilder
from costmodel.traces.fake_machine.whereabouts import Where

State = tuple[str, str, str, int]
"""Phase, module, line and stream."""


class TracedProgram:
    """The program as it runs.

    Parameters
    ----------
    builder : of the record
    guard : as `preload.load` gave it
    """

    def __init__(self, builder: RoleBuilder, guard: ctypes.PyDLL):
        self.builder, self.guard, self.where = builder, guard, Where()
        self._ends: dict[int, int] = {}  # events of the engine
        self._room = (ctypes.c_int64 * 96)()

    def state(self) -> State:
        """Phase, module, line and stream of what the program does now."""
        return self.where.phase(), self.where.module(), self.where.line(), self.stream()

    def stream(self) -> int:
        """The number of the stream on which code runs now."""
        return self.numbered(self.guard.costmodel_stream())

    def numbered(self, identity: int) -> int:
        """The record's number of a stream by torch's."""
        return self.builder.stream(f"stream {identity}") if identity else 0

    def engine_moves(self) -> None:
        """Take over what autograd's engine made streams record and wait for since."""
        count = self.guard.costmodel_moves(self._room, 32)
        for place in range(count):
            kind, event, identity = self._room[3 * place : 3 * place + 3]
            if kind == 0:
                self._ends[event] = self.builder.event_record(self.numbered(identity))
            elif event in self._ends:
                self.builder.stream_wait(self._ends[event], self.numbered(identity))
