"""FSDP2: a parameter's shard is cut out alone, not with those of thousands of ranks. Tried on torch 2.13."""

from __future__ import annotations

from typing import Any

from costmodel.traces.fake_machine.recorder import Recorder
from costmodel.traces.fake_machine.software import Chunks


def patch(module: Any, recorder: Recorder) -> None:
    """Replace what cuts all shards."""
    if hasattr(module, "_chunk_with_empty"):
        module._chunk_with_empty = lambda tensor, num_chunks, dim: Chunks(tensor, num_chunks, dim)
