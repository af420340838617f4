"""torchvision, whose binary may be of another build of PyTorch: detection's operators then have names alone. Tried on 0.28."""

from __future__ import annotations

from typing import Any

import torch

from costmodel.traces.fake_machine.recorder import Recorder

SCHEMAS = tuple(
    f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms")
)
"""Of operators whose results torchvision describes whether its binary is there or not."""
_LIBRARIES: list[Any] = []


def patch(module: Any, recorder: Recorder) -> None:
    """Name the operators that the binary would have brought."""
    if module._has_ops() or _LIBRARIES:
        return
    library = torch.library.Library("torchvision", "DEF")
    for schema in SCHEMAS:
        library.define(schema)
    _LIBRARIES.append(library)
