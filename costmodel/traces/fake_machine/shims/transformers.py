"""Transformers: weights have no values, so none are read; masks have, so they are looked into. Tried on transformers 5.24."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

from costmodel.traces.fake_machine.recorder import Recorder
from costmodel.traces.fake_machine.shims import bitsandbytes

OF_LOADING = (
    "dtype", "torch_dtype", "attn_implementation", "state_dict", "device_map", "max_memory", "offload_folder", "variant",
    "quantization_config", "load_in_4bit", "load_in_8bit", "use_safetensors", "ignore_mismatched_sizes", "output_loading_info",
    "low_cpu_mem_usage", "tp_plan", "key_mapping", "weights_only",
)  # fmt: skip
"""Arguments of `from_pretrained` that aren't its configuration's."""
AUTOMATIC = 5
"""Release from which weights are loaded as their configuration has them unless told."""


def patch(module: Any, recorder: Recorder) -> None:
    """`from_pretrained` makes the model of a configuration, and a mask that hides nothing is left out, as on a GPU."""
    _look_into_masks()
    version = importlib.metadata.version("transformers")
    real = module.PreTrainedModel.from_pretrained.__func__

    def from_pretrained(cls: Any, name: Any, *args: Any, config: Any = None, **kwargs: Any) -> Any:
        folder = Path(str(name))
        if folder.is_dir() and any(folder.glob("*.safetensors")) and not recorder.enabled:
            return real(cls, name, *args, config=config, **kwargs)
        dtype = kwargs.get("dtype", kwargs.get("torch_dtype"))
        if config is None or isinstance(config, (str, Path)):
            given = {word: value for word, value in kwargs.items() if word not in OF_LOADING}
            config, _ = cls.config_class.from_pretrained(name if config is None else config, return_unused_kwargs=True, **given)
        config.name_or_path = str(name)
        recorder.builder.assumed(f"Weights of {folder.name} have no values: none were read.")
        for word in ("attn_implementation", "use_cache"):
            if word in kwargs:
                setattr(config, "_attn_implementation" if word == "attn_implementation" else word, kwargs[word])
        if dtype == "auto" or (dtype is None and int(version.partition(".")[0]) >= AUTOMATIC):
            dtype = getattr(config, word_of_dtype(config), None)
        how = {} if dtype is None else {word_of_dtype(config): dtype}
        bits = {word: True for word in ("load_in_4bit", "load_in_8bit") if kwargs.get(word)}
        quantisation = bitsandbytes.asked(config, kwargs.get("quantization_config") or bits or None)
        model = cls._from_config(config, **how).eval()
        if quantisation is not None:
            bitsandbytes.quantised(model, quantisation)
        elif kwargs.get("device_map") is not None:
            model.to("cuda")
        return model

    module.PreTrainedModel.from_pretrained = classmethod(from_pretrained)


def word_of_dtype(config: Any) -> str:
    """What a release calls a model's dtype."""
    return "dtype" if hasattr(config, "dtype") else "torch_dtype"


def _look_into_masks() -> None:
    """Transformers doesn't ask fake tensors for values and gives their attention a dense mask; here they have values."""
    from transformers.utils import import_utils

    import_utils.is_fake_tensor = lambda tensor: False
