"""Tokenizers: saved where all goes that a traced program writes, by code that no module of Python's sees. Tried on 0.23."""

from __future__ import annotations

from typing import Any

from costmodel.traces.fake_machine.recorder import Recorder


def patch(module: Any, recorder: Recorder) -> None:
    """`Tokenizer.save`."""
    real = module.Tokenizer.save

    def save(self: Any, path: Any, pretty: bool = True) -> None:
        real(self, recorder.ready(path), pretty)

    module.Tokenizer.save = save
