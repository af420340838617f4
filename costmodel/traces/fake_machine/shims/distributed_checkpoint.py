"""Distributed checkpoints, planned by all ranks: none is written, and what is loaded stays as it is. Tried on torch 2.13."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from costmodel.traces.fake_machine.recorder import Recorder


def patch(module: Any, recorder: Recorder) -> None:
    """`save`, `async_save`, `load`, and their older names."""

    def left_out(*_: Any, **__: Any) -> None:
        recorder.builder.assumed("Distributed checkpoints have no values: none is written or read.")

    def later(*_: Any, **__: Any) -> Future[None]:
        left_out()
        done = Future[None]()
        done.set_result(None)
        return done

    for owner in (module, module.state_dict_saver, module.state_dict_loader):
        for name in ("save", "async_save", "load", "save_state_dict", "load_state_dict"):
            if hasattr(owner, name):
                setattr(owner, name, later if name == "async_save" else left_out)
