"""torchvision, whose binary may be of another build of PyTorch: detection's operators are then what they tell of themselves.

Tried on torchvision 0.28.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from costmodel.traces.fake_machine.recorder import Recorder

POOLED = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
INPUT = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
SCHEMAS = (
    *(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms")),
    f"roi_align(Tensor input, Tensor rois, {POOLED}, int sampling_ratio, bool aligned) -> Tensor",
    f"_roi_align_backward(Tensor grad, Tensor rois, {POOLED}, {INPUT}, int sampling_ratio, bool aligned) -> Tensor",
)
"""Of operators whose results torchvision describes whether its binary is there or not."""
_LIBRARIES: list[Any] = []


def patch(module: Any, recorder: Recorder) -> None:
    """Name the operators that the binary would have brought, and let their callers find them."""
    if module.__name__ == "torchvision.extension":
        if not module._has_ops() and not _LIBRARIES:
            library = torch.library.Library("torchvision", "DEF")
            for schema in SCHEMAS:
                library.define(schema)
            _LIBRARIES.append(library)
    elif _LIBRARIES:
        module._assert_has_ops = lambda: None
        if hasattr(module, "_has_ops"):
            module._has_ops = lambda: True
            _describe_pooling()


def _describe_pooling() -> None:
    from torchvision import _meta_registrations as described

    library = _LIBRARIES[0]
    library.impl("roi_align", described.meta_roi_align, "Meta")
    library.impl("_roi_align_backward", described.meta_roi_align_backward, "Meta")
    torch.library.register_autograd("torchvision::roi_align", _turned, setup_context=_kept, lib=library)


def _kept(ctx: Any, inputs: Any, output: Tensor) -> None:
    pooled, rois, *ctx.pooling, ctx.sampling, ctx.aligned = inputs
    ctx.save_for_backward(rois)
    ctx.shape = pooled.shape


def _turned(context: Any, grad: Tensor) -> tuple[Any, ...]:
    backward = torch.ops.torchvision._roi_align_backward
    given = backward(grad, *context.saved_tensors, *context.pooling, *context.shape, context.sampling, context.aligned)
    return given, *[None] * 6
