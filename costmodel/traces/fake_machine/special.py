"""Operators that need more than to be run: those whose results depend on values, and copies between host and device."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from costmodel.text.errors import NotModelled
from costmodel.traces.fake_machine import values
from costmodel.traces.fake_machine.following import follow
from costmodel.traces.fake_machine.operators import argument, tensors_in, word_of
from costmodel.traces.fake_machine.recorder import LARGE, Recorder

aten = torch.ops.aten


def _item(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    return recorder.value_wanted(args[0])


def _equal(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    first, second = map(values.known, args[:2])
    recorder.host_waits()
    if first is not None and second is not None:
        return func(first, second, *args[2:], **kwargs)
    recorder.builder.assumed(f"{recorder.where.line()}: two tensors taken as equal whose values only a GPU would know.")
    return True


def _moved(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """`_to_copy` between host and device."""
    source = args[0]
    device = kwargs.get("device")
    target = source.device if device is None else torch.device(device)
    if target.type == source.device.type:
        return NotImplemented
    if target.type == "cpu":
        recorder.copied_to_host(source)
        if not kwargs.get("non_blocking"):
            recorder.host_waits()
        value = values.known(source)
        dtype = kwargs.get("dtype") or source.dtype
        if value is not None:
            return value.detach().to(dtype, copy=True)
        if source.numel() > LARGE:
            return recorder.faked(func, args, kwargs)
        recorder.builder.assumed(
            f"{recorder.where.line()}: {values.guessed(dtype)} for values of {word_of(dtype)} that only a GPU would know."
        )
        return torch.full(source.shape, values.guessed(dtype), dtype=dtype)
    if target.type != "cuda" or source.device.type != "cpu":
        return NotImplemented
    out = recorder.faked(func, args, kwargs)
    value = values.known(source)
    if value is not None and values.worth_knowing(out):
        values.learn(out, value.detach().to(out.dtype, copy=True))
    recorder.copied_to_device(out, source)
    if source.numel() and not kwargs.get("non_blocking"):
        recorder.host_waits()
    return out


def _copied(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """`copy_` between host and device."""
    target, source = args[0], args[1]
    waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    if target.device.type == source.device.type:
        if not isinstance(target, FakeTensor) and isinstance(source, FakeTensor):
            value = values.known(source)
            return target.copy_(value) if value is not None else target
        return NotImplemented
    if target.device.type == "cpu" and source.device.type == "cuda":
        recorder.copied_to_host(source)
        if waits:
            recorder.host_waits()
        value = values.known(source)
        if not isinstance(target, FakeTensor):
            if value is None:
                recorder.builder.assumed(
                    f"{recorder.where.line()}: {values.guessed(source.dtype)} for values of "
                    f"{word_of(source.dtype)} that only a GPU would know."
                )
                return target.fill_(values.guessed(target.dtype))
            return target.copy_(value)
        return target
    if target.device.type == "cuda" and source.device.type == "cpu":
        tensors = [target, source]
        follow(func, args, kwargs, tensors, [target], "copy_")
        recorder.copied_to_device(target, source)
        if waits and source.numel():
            recorder.host_waits()
        return target
    return NotImplemented


def _nonzero(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    source = args[0]
    value = values.known(source)
    recorder.host_waits()
    if value is None:
        recorder.builder.assumed(f"{recorder.where.line()}: all elements taken as chosen of a mask that only a GPU would know.")
        value = torch.ones(source.shape, dtype=torch.bool)
    found = torch.nonzero(value)
    out = recorder.faked(aten.empty.memory_format, (list(found.shape),), {"dtype": torch.int64, "device": source.device})
    values.learn(out, found)
    recorder.record(func, "nonzero", args, kwargs, [source], [out], out)
    return out


def _masked_select(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    source, mask = torch.broadcast_tensors(args[0], args[1])
    places = _nonzero(recorder, aten.nonzero.default, (mask,), {})
    with recorder:
        return source[tuple(places.unbind(1))]


def _indexed(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Indices that are masks become places."""
    indices = args[1]
    if not any(isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in indices):
        return NotImplemented
    places: list[Any] = []
    for index in indices:
        if isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8):
            found = _nonzero(recorder, aten.nonzero.default, (index,), {}) if isinstance(index, FakeTensor) else index.nonzero()
            with recorder:
                places.extend(found.unbind(1) if found.dim() > 1 else [found])
        else:
            places.append(index)
    return recorder.run(func, (args[0], places, *args[2:]), kwargs)


def _chosen(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """The largest of values that nobody knows: taken as falling evenly on all."""
    source = args[0]
    if values.known(source) is not None:
        return NotImplemented
    out = recorder.run(func, args, kwargs)
    name = func.overloadpacket.__name__
    for tensor in tensors_in((out,)):
        if not tensor.dtype.is_floating_point and isinstance(tensor, FakeTensor):
            dim = -1 if name == "multinomial" else argument(func, args, kwargs, "dim")
            among = source.numel() if dim is None or not source.dim() else source.shape[dim]
            values.learn(tensor, values.balanced(tensor.shape, among))
            recorder.builder.assumed(f"{recorder.where.line()}: what {name} picks taken as evenly spread.")
    return out


def _counted(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """How many values fall into each of equal ranges, as routers count tokens: whole numbers, too, which a CPU doesn't count.

    Where nobody knows the values, as many fall into each.
    """
    value, out = values.known(args[0]), recorder.run(func, args, kwargs)
    if value is not None:
        found = torch.histc(value.double(), *args[1:], **kwargs)
    else:
        ranges, count = out.numel(), args[0].numel()
        found = torch.tensor([count * (place + 1) // ranges - count * place // ranges for place in range(ranges)])
        recorder.builder.assumed(f"{recorder.where.line()}: as many values taken to fall into each of {ranges:,} ranges.")
    values.learn(out, found.to(out.dtype))
    return out


def _boxes_kept(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Boxes that no better one covers: taken as all, of which detectors take so many next."""
    scores = args[1]
    recorder.host_waits()
    recorder.builder.assumed(f"{recorder.where.line()}: no box taken as covered by another of a higher score.")
    kept = torch.arange(scores.numel())
    out = recorder.faked(aten.empty.memory_format, (list(kept.shape),), {"dtype": kept.dtype, "device": scores.device})
    values.learn(out, kept)
    recorder.record(func, func.overloadpacket.__name__, args, kwargs, list(args[:2]), [out], out)
    return out


def _unscaled(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Gradients are taken as finite, or no step would be made."""
    found = args[1]
    value = values.known(found)
    out = recorder.run(func, args, kwargs)
    recorder.builder.assumed("Gradients of mixed precision taken as finite in every step.")
    values.learn(found, torch.zeros(found.shape) if value is None else value)
    return out


def _used_on(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    recorder.storages.used_on(args[0], args[1])


def _unique_values(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    value = values.known(args[0])
    recorder.host_waits()
    if value is None:
        raise NotModelled(f"{recorder.where.line()}: {func} of values that only a GPU would know")
    found = func(value, *args[1:], **kwargs)

    def placed(real: Tensor) -> Tensor:
        out: Tensor = recorder.faked(
            aten.empty.memory_format, (list(real.shape),), {"dtype": real.dtype, "device": args[0].device}
        )
        values.learn(out, real)
        return out

    out = tree_map_only(Tensor, placed, found)
    recorder.record(func, func.overloadpacket.__name__, args, kwargs, [args[0]], list(tensors_in((out,))), out)
    return out


def _packed(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Sequences without their padding, step by step, and how many have a step: as their lengths say, which lie on the CPU."""
    source, lengths = args[:2]
    known = values.known(lengths)
    if known is None:
        raise NotModelled(f"{recorder.where.line()}: sequences packed by lengths that only a GPU would know")
    steps = torch.arange(int(known.max()))
    sizes = (known[None, :] > steps[:, None]).sum(1)
    shape = [int(known.sum()), *source.shape[2:]]
    out = recorder.faked(aten.empty.memory_format, (shape,), {"dtype": source.dtype, "device": source.device})
    recorder.record(func, "_pack_padded_sequence", args, kwargs, [source], [out], out)
    return out, sizes


def _finite(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Comparisons that ask whether values are finite: they are taken to be."""
    name, other = func.overloadpacket.__name__, args[1] if len(args) > 1 else None
    infinite = isinstance(other, float) and math.isinf(other)
    if values.known(args[0]) is not None or not (name in ("isnan", "isinf") or infinite or other is args[0]):
        return NotImplemented
    out = recorder.run(func, args, kwargs)
    recorder.builder.assumed("Values taken as finite wherever the program asks whether they are.")
    values.learn(out, torch.tensor(name == "ne" if infinite else name == "eq").expand(out.shape))
    return out


def _cloned(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Of a sparse tensor both parts are: PyTorch's own, without values, has none."""
    source = args[0]
    if source.layout != torch.sparse_coo:
        return NotImplemented
    with recorder:
        indices, values = source._indices().clone(), source._values().clone()
        return torch.sparse_coo_tensor(indices, values, source.shape, is_coalesced=source.is_coalesced(), check_invariants=False)


def _sparse(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Rows put together, or taken out of a table, at the places of a sparse tensor: none is taken as there twice."""
    name, like = func.overloadpacket.__name__, args[-1]
    if name == "_coalesce":
        recorder.host_waits()
    made = recorder.faked(aten.empty_like.default, (like._values(),), {"dtype": args[0].dtype})
    with recorder:
        out = torch.sparse_coo_tensor(like._indices(), made, like.shape, is_coalesced=True, check_invariants=False)
    given = [like._indices(), like._values()] if name == "_coalesce" else [args[0], like._indices()]
    recorder.record(func, name, args, kwargs, given, [made], out)
    return out


def _sparse_product(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Of a sparse matrix and a dense one: its kernel gathers and sums rows, as fast as memory brings them."""
    sparse, dense = args[-2:]
    if not isinstance(sparse, Tensor) or sparse.layout != torch.sparse_coo or dense.layout != torch.strided:
        return NotImplemented
    shape = [sparse.shape[0], dense.shape[1]]
    out = recorder.faked(aten.empty.memory_format, (shape,), {"dtype": dense.dtype, "device": dense.device})
    given = [*args[:-2], sparse._indices(), sparse._values(), dense]
    recorder.record(aten.index_add.default, "_sparse_addmm", (), {}, given, [out], out)
    return out


def _transposed(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Of a sparse matrix: as many values, at places the other way round; PyTorch's own, without values, has none."""
    source = args[0]
    if source.layout != torch.sparse_coo or source.dim() != 2:
        return NotImplemented
    with recorder:
        return torch.sparse_coo_tensor(source._indices().flip(0), source._values(), source.shape[::-1], check_invariants=False)


def _added(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Rows that a sparse tensor has."""
    target, other = args[:2]
    if not isinstance(other, Tensor) or other.layout != torch.sparse_coo or target.layout != torch.strided:
        return NotImplemented
    values.forget(target)
    recorder.record(func, "add_", args, kwargs, [target, other._indices(), other._values()], [target], target)
    return target


def _all(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Whether something holds of all values: it is taken to, as programs assert it."""
    if values.known(args[0]) is not None:
        return NotImplemented
    out = recorder.run(func, args, kwargs)
    recorder.builder.assumed(f"{recorder.where.line()}: taken as true of all values, which only a GPU would know.")
    values.learn(out, torch.ones(out.shape, dtype=torch.bool))
    return out


def _summed(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Gradients that meet in a backward pass: autograd adds one to another that nobody else holds, unless that is a view.

    Of tensors that know of modes it makes a third, as it would for classes of tensors (pytorch/pytorch
    torch/csrc/autograd/input_buffer.cpp ``can_accumulate_inplace``).
    """
    first, second = args[:2]
    if kwargs or not (isinstance(first, FakeTensor) and isinstance(second, FakeTensor)) or not _of_the_engine():
        return NotImplemented
    alone = sys.getrefcount(first) <= HELD_HERE and torch._C._storage_Use_Count(first.untyped_storage()._cdata) <= STORED_HERE
    alike = first.shape == second.shape and first.dtype == second.dtype and first.device.type == "cuda"
    if not alone or not alike or first._is_view():
        return NotImplemented
    recorder.run(aten.add_.Tensor, args, {}, [first, second], "add_")
    return first


HELD_HERE, STORED_HERE = 5, 2
"""Python's references to a tensor that the engine alone holds, and those to its storage, while `_summed` looks at it."""


def _of_the_engine() -> bool:
    """Whether an operator comes from autograd's engine itself, not from code that a backward pass runs."""
    if torch._C._current_graph_task_id() == -1:
        return False
    frame = sys._getframe(2)  # behind the operator's own handler
    while frame is not None and frame.f_code.co_name != "_engine_run_backward":
        name = frame.f_code.co_filename
        if not ("/torch/" in name or "/costmodel/traces/" in name or name.endswith("contextlib.py")):
            return False
        frame = frame.f_back
    return True


def _aligned(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Connectionist temporal classification by PyTorch's own kernels: one number a sequence, and its states' at each time."""
    scores, targets, _, lengths = args[:4]
    known = values.known(lengths) if isinstance(lengths, Tensor) else torch.tensor(lengths)
    longest = targets.shape[-1] if known is None else int(known.max())
    like = {"dtype": scores.dtype, "device": scores.device}
    made = tuple(
        recorder.faked(aten.empty.memory_format, (shape,), like)
        for shape in ([scores.shape[1]], [scores.shape[1], scores.shape[0], 2 * longest + 1])
    )
    recorder.record(func, "_ctc_loss", args, kwargs, list(tensors_in(args)), list(made), made)
    return made


def _aligned_back(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    made = recorder.faked(aten.empty_like.default, (args[1],), {})
    recorder.record(func, "_ctc_loss_backward", args, kwargs, list(tensors_in(args)), [made], made)
    return made


def _pinned(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    return True if func.overloadpacket.__name__ == "is_pinned" else values.pin(args[0])


HANDLERS: dict[str, Callable[..., Any]] = {
    # cuDNN's takes targets of the host alone, in 32 bits
    **dict.fromkeys(("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"), lambda *_: False),
    "_ctc_loss": _aligned, "_ctc_loss_backward": _aligned_back, "_local_scalar_dense": _item,
    "_to_copy": _moved, "copy_": _copied, "clone": _cloned, "add_": _added, "add": _summed,
    "nonzero": _nonzero, "masked_select": _masked_select, "index": _indexed, "histc": _counted, "nms": _boxes_kept,
    "_amp_foreach_non_finite_check_and_unscale_": _unscaled, "_pack_padded_sequence": _packed, "record_stream": _used_on,
    **dict.fromkeys(("equal", "allclose"), _equal), **dict.fromkeys(("all", "_is_all_true"), _all),
    **dict.fromkeys(("topk", "argmax", "argmin", "sort", "argsort", "multinomial"), _chosen),
    **dict.fromkeys(("_unique2", "unique_dim", "unique_consecutive", "bincount"), _unique_values),
    **dict.fromkeys(("_coalesce", "sparse_mask"), _sparse), **dict.fromkeys(("t", "transpose"), _transposed),
    **dict.fromkeys(("_sparse_addmm", "mm", "addmm"), _sparse_product), **dict.fromkeys(("is_pinned", "_pin_memory"), _pinned),
    **dict.fromkeys(("isnan", "isinf", "eq", "ne"), _finite),
    "repeat_interleave": lambda r, f, a, k: (
        _unique_values(r, f, a, k) if len(a) == 1 and k.get("output_size") is None else NotImplemented
    ),
}  # fmt: skip
"""By the name of the operator; NotImplemented where one is nothing special after all."""
