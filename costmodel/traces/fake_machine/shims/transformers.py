"""Transformers: weights have no values, so none are read; masks have, so they are looked into. Tried on transformers 5.24."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from costmodel.traces.fake_machine.recorder import Recorder


def patch(module: Any, recorder: Recorder) -> None:
    """`from_pretrained` makes the model of a configuration, and a mask that hides nothing is left out, as on a GPU."""
    _look_into_masks()
    real = module.PreTrainedModel.from_pretrained.__func__

    def from_pretrained(cls: Any, name: Any, *args: Any, config: Any = None, **kwargs: Any) -> Any:
        folder = Path(str(name))
        if folder.is_dir() and any(folder.glob("*.safetensors")) and not recorder.enabled:
            return real(cls, name, *args, config=config, **kwargs)
        dtype = kwargs.get("dtype", kwargs.get("torch_dtype"))
        if config is None:
            from transformers import AutoConfig

            config = AutoConfig.from_pretrained(name)
        recorder.builder.assumed(f"Weights of {folder.name} have no values: none were read.")
        for word in ("attn_implementation", "use_cache"):
            if word in kwargs:
                setattr(
                    config, "_attn_implementation" if word == "attn_implementation" else word, kwargs[word]
                )
        how = (
            {}
            if dtype in (None, "auto") and getattr(config, "dtype", None) is None
            else {"dtype": getattr(config, "dtype", None) if dtype in (None, "auto") else dtype}
        )
        model = cls._from_config(config, **how)
        return model.eval()

    module.PreTrainedModel.from_pretrained = classmethod(from_pretrained)


def _look_into_masks() -> None:
    """Transformers doesn't ask fake tensors for values and gives their attention a dense mask; here they have values."""
    from transformers.utils import import_utils

    import_utils.is_fake_tensor = lambda tensor: False
