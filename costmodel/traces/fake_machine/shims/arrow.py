"""Arrow: tables that the program wrote are read where they went, by code that no module of Python's sees. Tried on pyarrow 26."""

from __future__ import annotations

from typing import Any

from costmodel.traces.fake_machine.recorder import Recorder


def patch(module: Any, recorder: Recorder) -> None:
    """`pyarrow.memory_map` and `input_stream`, by which `datasets` reads what it has prepared and mapped."""
    for name in ("memory_map", "input_stream"):
        setattr(module, name, _reading(getattr(module, name), recorder))


def _reading(real: Any, recorder: Recorder) -> Any:
    def read(source: Any, *args: Any, **kwargs: Any) -> Any:
        return real(recorder.found(source) if isinstance(source, str) else source, *args, **kwargs)

    return read
