"""PyTorch's hub, whence torchvision has its weights: those that aren't in its cache have no values. Tried on torch 2.13."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlparse

import torch
from torch.nn.modules.module import _IncompatibleKeys

from costmodel.traces.fake_machine.recorder import Recorder


class NoValues(dict[str, Any]):
    """States of a module that would have been fetched."""


def patch(module: Any, recorder: Recorder) -> None:
    """`load_state_dict_from_url`, and what modules do with its states."""
    fetched, loaded = module.load_state_dict_from_url, torch.nn.Module.load_state_dict

    def fetch(url: str, model_dir: Any = None, *args: Any, **kwargs: Any) -> Any:
        name = kwargs.get("file_name") or os.path.basename(urlparse(url).path)
        if os.path.exists(os.path.join(model_dir or os.path.join(module.get_dir(), "checkpoints"), name)):
            return fetched(url, model_dir, *args, **kwargs)
        recorder.builder.assumed(f"Weights of {name} have no values: none were read.")
        return NoValues()

    def load(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(state_dict, NoValues):
            return _IncompatibleKeys([], [])
        return loaded(self, state_dict, *args, **kwargs)

    module.load_state_dict_from_url = fetch
    torch.nn.Module.load_state_dict = load  # type: ignore[method-assign]
