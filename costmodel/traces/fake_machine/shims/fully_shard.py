"""FSDP2: a parameter's shard is cut out alone, not with those of thousands of ranks; a fact of the trace. Tried on torch 2.13."""

from __future__ import annotations

from typing import Any

from costmodel.traces.fake_machine.recorder import Recorder
from costmodel.traces.fake_machine.software import Chunks


def patch(module: Any, recorder: Recorder) -> None:
    """Replace what cuts all shards, and tell when a parameter is sharded."""
    real = module.FSDPParam.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.facts["sharding"] = "fsdp2"
        real(self, *args, **kwargs)

    module.FSDPParam.__init__ = made
    if hasattr(module, "_chunk_with_empty"):
        module._chunk_with_empty = lambda tensor, num_chunks, dim: Chunks(tensor, num_chunks, dim)
