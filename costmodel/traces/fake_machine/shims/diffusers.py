"""diffusers: weights have no values, so that none are read. Tried on diffusers 0.42."""

from __future__ import annotations

from typing import Any

from costmodel.traces.fake_machine.recorder import Recorder


def patch(module: Any, recorder: Recorder) -> None:
    """`from_pretrained` makes the model of a configuration."""

    def from_pretrained(cls: Any, name: Any, *_: Any, subfolder: Any = None, torch_dtype: Any = None, **kwargs: Any) -> Any:
        kept = {word: kwargs[word] for word in ("cache_dir", "revision", "local_files_only") if word in kwargs}
        model = cls.from_config(cls.load_config(name, subfolder=subfolder, **kept))
        recorder.builder.assumed(f"Weights of {type(model).__name__} have no values: none were read.")
        return (model if torch_dtype is None else model.to(torch_dtype)).eval()

    module.ModelMixin.from_pretrained = classmethod(from_pretrained)
