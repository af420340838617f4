"""CUDA graphs of a rank whose GPU isn't there: what is captured isn't done, and each replay does all of it in one launch."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch

from costmodel.traces.captures import Capture
from costmodel.traces.fake_machine.recorder import Recorder
from costmodel.traces.record import NOWHERE

Handle = tuple[int, int]
"""Of a pool of memory, as PyTorch has it."""


class _Pools:
    """Memory that graphs keep for what comes and goes in them, by pool: those of one pool take turns in it."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self._kept: dict[Handle, tuple[int, int]] = {}  # row of the storage, and its bytes
        self._users: dict[Handle, int] = {}
        self._next = 0

    def handle(self) -> Handle:
        """A new pool's."""
        self._next += 1
        return (0, self._next)

    def captured(self, pool: Handle, capture: Capture, line: str) -> None:
        """A graph was captured in a pool."""
        self._users[pool] = self._users.get(pool, 0) + 1
        if capture.spare > self._kept.get(pool, (NOWHERE, 0))[1]:
            self._free(pool)
            made = self.recorder.builder.storage_born(
                capture.spare, kind="activation", op="CUDA graph", stream=capture.stream, line=line
            )
            self._kept[pool] = made, capture.spare

    def left(self, pool: Handle) -> None:
        """A graph is gone."""
        self._users[pool] -= 1
        if not self._users[pool]:
            self._free(pool)

    def _free(self, pool: Handle) -> None:
        row, _ = self._kept.pop(pool, (NOWHERE, 0))
        if row != NOWHERE:
            self.recorder.builder.storage_died(row)


def answers(recorder: Recorder) -> dict[str, Any]:
    """What `torch.cuda` has for graphs; `torch.cuda.graph` and `make_graphed_callables` are PyTorch's own."""
    pools = _Pools(recorder)

    class CUDAGraph:
        """A graph."""

        def __init__(self, keep_graph: bool = False):
            self._capture: Capture | None = None
            self._pool: Handle | None = None
            self._steps = 0

        def capture_begin(self, pool: Handle | None = None, *_: Any, **__: Any) -> None:
            """From here on streams are told and don't do it."""
            recorder.program.engine_moves()
            self._pool = pools.handle() if pool is None else pool
            recorder.captured_steps = 0
            recorder.builder.capture = Capture(recorder.program.stream())

        def capture_end(self) -> None:
            """Until here."""
            recorder.program.engine_moves()
            capture, recorder.builder.capture = recorder.builder.capture, None
            assert capture is not None
            self._capture, self._steps = capture, recorder.captured_steps
            assert self._pool is not None
            pools.captured(self._pool, capture, recorder.where.line())
            recorder.captured()
            self._left = weakref.finalize(self, pools.left, self._pool)

        def replay(self) -> None:
            """All of it is done, on the stream on which code runs now."""
            if self._capture is None:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            recorder.program.engine_moves()
            recorder.builder.replay(self._capture, recorder.program.stream(), recorder.where.line())
            for _ in range(self._steps):
                recorder.step_done()

        def reset(self) -> None:
            """It is given up."""
            if self._capture is not None:
                self._capture = None
                self._left()

        def pool(self) -> Handle | None:
            """Its memory's."""
            return self._pool

        def instantiate(self) -> None:
            """Made ready to be replayed."""

        def enable_debug_mode(self) -> None:
            """Nothing to be looked into."""

        def debug_dump(self, path: str) -> None:
            """Nothing to be looked into."""

        def register_generator_state(self, generator: Any) -> None:
            """Random numbers have no values."""

    return {
        "CUDAGraph": CUDAGraph,
        "graph_pool_handle": pools.handle,
        "is_current_stream_capturing": lambda: recorder.builder.capture is not None,
    }


def patches(recorder: Recorder) -> Iterator[tuple[Any, str, Any]]:
    """What stands in the place of attributes of PyTorch: their owner, name and value."""
    for name, value in answers(recorder).items():
        yield torch.cuda, name, value
        yield torch.cuda.graphs, name, value
    yield torch._C, "_host_emptyCache", lambda: None
