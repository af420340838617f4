"""Which parallel configuration of a training run is fastest and fits in memory: in milliseconds, with the reason.

>>> import costmodel
>>> model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
>>> plan = costmodel.Plan(global_batch=64, seq_len=8192, tensor_parallel=4, data_parallel=2)
>>> costmodel.estimate(model, cluster, plan).fits
True
"""

from __future__ import annotations

import sys
from importlib import import_module

from costmodel.text.version import __version__ as __version__

with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _stub:
    _lines = [line.split() for line in _stub if line.startswith("from costmodel.")]
_HOME = {line[-1]: line[1].removeprefix("costmodel.") for line in _lines}
"""Modules by the public names that they hold; each is loaded when one of its names is asked for."""
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name == "symbolic":  # formulas as algebra: what documents call it
        return import_module("costmodel.compilation.algebra")
    if name not in _HOME:
        # with a name of its own, so that Python offers no other one
        raise AttributeError(f"module 'costmodel' has no attribute {name!r}{_meant(name)}", name=name, obj=None)
    value = getattr(import_module(f"costmodel.{_HOME[name]}"), name)
    setattr(sys.modules[__name__], name, value)
    return value


def _meant(name: str) -> str:
    """What a name may stand for that isn't there, as the end of an error; nothing of Python's own."""
    if name.startswith("_"):
        return ""
    suggestions = import_module("costmodel.text.suggestions")
    return str(suggestions.did_you_mean("function", name, __all__))


def __dir__() -> list[str]:
    """What there is to use, and the modules that are loaded: no helpers of this file, nothing twice."""
    loaded = (name for name, value in globals().items() if name.startswith("__") or f"costmodel.{name}" in sys.modules)
    return sorted({*__all__, *loaded})
