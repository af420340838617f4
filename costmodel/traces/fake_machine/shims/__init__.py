"""What packages need to run where their GPU isn't there: a module a package, with the versions on which it was tried."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

from costmodel.traces.fake_machine.recorder import Recorder

HOOKS = {
    "transformers.modeling_utils": "transformers", "transformers.trainer": "trainer",
    "torch.nn.parallel.distributed": "replicated", "torch.distributed.fsdp._fully_shard._fsdp_param": "fully_shard",
    "torch.distributed.fsdp.fully_sharded_data_parallel": "fully_sharded", "torchvision.extension": "torchvision",
    "torchvision.ops.boxes": "torchvision", "torchvision.ops.roi_align": "torchvision",
    "deepspeed.runtime.engine": "deepspeed_engine", "deepspeed.ops.op_builder.builder": "deepspeed_ops",
    "safetensors.torch": "saving", "torch.distributed.checkpoint": "distributed_checkpoint", "torch.hub": "hub",
    "torch.utils.cpp_extension": "extensions", "triton.runtime": "triton", "torch.nn.attention.flex_attention": "flex_attention",
    "timm.models._builder": "timm", "diffusers.models.modeling_utils": "diffusers", "pyarrow": "arrow",
    "tokenizers": "tokenizers", "bitsandbytes.functional": "bitsandbytes",
}  # fmt: skip
"""Modules, and the shim of each that is applied as soon as it was imported."""


class _Finder(MetaPathFinder):
    """Applies a shim behind the import of its module."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self._open: set[str] = set()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname not in HOOKS or fullname in self._open:
            return None
        self._open.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._open.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Patched(spec.loader, fullname, self.recorder)
        return spec


class _Patched(Loader):
    def __init__(self, loader: Any, name: str, recorder: Recorder):
        self.loader, self.name, self.recorder = loader, name, recorder

    def create_module(self, spec: ModuleSpec) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.loader.exec_module(module)
        apply(self.name, module, self.recorder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def apply(name: str, module: Any, recorder: Recorder) -> None:
    """Apply the shim of a module."""
    importlib.import_module(f"{__name__}.{HOOKS[name]}").patch(module, recorder)


@contextlib.contextmanager
def installed(recorder: Recorder) -> Iterator[None]:
    """Apply shims to what was imported, and to what will be."""
    for name in HOOKS:
        if name in sys.modules:
            apply(name, sys.modules[name], recorder)
    from costmodel.traces.fake_machine.shims import saving

    saving.patch_torch(recorder)
    finder = _Finder(recorder)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
