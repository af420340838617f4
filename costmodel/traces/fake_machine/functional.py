"""Collectives that are operators, as DTensor and tensor parallelism use them."""

from __future__ import annotations

from typing import Any

import torch.distributed.distributed_c10d as c10d

from costmodel.traces.fake_machine.exchanged import copied, gathered, reduced
from costmodel.traces.fake_machine.operators import bytes_of, tensors_in
from costmodel.traces.fake_machine.recorder import Recorder

_OPS = {name: op for op, names in {
    "all-reduce": "all_reduce all_reduce_ all_reduce_coalesced all_reduce_coalesced_",
    "all-gather": "all_gather_into_tensor all_gather_into_tensor_out all_gather_into_tensor_coalesced",
    "reduce-scatter": "reduce_scatter_tensor reduce_scatter_tensor_out reduce_scatter_tensor_coalesced",
    "all-to-all": "all_to_all_single", "broadcast": "broadcast broadcast_",
}.items() for name in names.split()}  # fmt: skip


def launched(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Run a collective that is an operator, and record it."""
    name = func.overloadpacket.__name__
    if name == "wait_tensor":
        return _waited(recorder, func, args, kwargs)
    op = _OPS.get(name)
    if op is None:
        return NotImplemented
    group: Any = c10d._resolve_process_group(
        next(word for word in (*reversed(args), *kwargs.values()) if isinstance(word, str) and word not in _REDUCTIONS)
    )
    inputs = list(tensors_in((args[0],)))
    out = recorder.faked(func, args, kwargs)
    outs = list(tensors_in((out,)))
    for tensor in outs:
        recorder.storages.row(tensor, op)
    if op == "all-reduce" or op == "broadcast":
        for tensor, source in zip(outs, inputs, strict=True):
            if tensor is not source:
                copied([tensor], source)
        if op == "all-reduce":
            reduced(outs, _reduction(args), len(group.ranks))
    elif op == "all-gather":
        for tensor, source in zip(outs, inputs, strict=True):
            gathered(tensor, source, len(group.ranks))
    elif op == "all-to-all" and inputs[0].shape == outs[0].shape:
        copied(outs, inputs[0])
    counted = inputs if op in ("reduce-scatter", "all-to-all", "broadcast") else outs
    events = group.launched(op, sum(map(bytes_of, counted)), outs, inputs)
    for tensor in outs:
        tensor.untyped_storage()._ends = events  # type: ignore[attr-defined]
    return out


_REDUCTIONS = {"sum", "avg", "max", "min", "product", "premul_sum", "band", "bor", "bxor"}


def _reduction(args: Any) -> str:
    return next((word for word in args if isinstance(word, str) and word.lower() in _REDUCTIONS), "sum").upper()


def _waited(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    storage = args[0].untyped_storage()
    for event in getattr(storage, "_ends", ()):
        recorder.builder.stream_wait(event, recorder.program.stream(), recorder.where.line())
    storage._ends = ()
    return args[0]
