"""Transformers' Trainer: that it trains is a fact of the trace. Tried on transformers 5.24."""

from __future__ import annotations

from typing import Any

from costmodel.traces.fake_machine.recorder import Recorder


def patch(module: Any, recorder: Recorder) -> None:
    """Tell when one is made."""
    real = module.Trainer.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.facts["trainer"] = "transformers"
        real(self, *args, **kwargs)

    module.Trainer.__init__ = made
