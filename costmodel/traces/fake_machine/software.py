"""PyTorch's own choices that depend on a GPU, made as a build with CUDA makes them, and what makes worlds of thousands slow."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed.rpc
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor

from costmodel.text.errors import NotModelled
from costmodel.text.units import counted
from costmodel.traces.fake_machine.compilations import Compilations
from costmodel.traces.fake_machine.recorder import Recorder
from costmodel.traces.fake_machine.replacing import Replacement, replaced

aten = torch.ops.aten
LARGEST_HEAD = 256
"""Elements of a head that FlashAttention's kernels of PyTorch take."""
OF_FLASH = (8, 0)
"""Compute capability from which on they run (pytorch/pytorch aten/src/ATen/native/transformers/cuda/sdp_utils.cpp)."""
_STARTERS = (torch.multiprocessing, importlib.import_module("torch.multiprocessing.spawn"))
"""What has functions that start processes."""
_LIBRARIES: list[Any] = []  # torch.library forgets what nobody holds


class Chunks:
    """Parts of a tensor, made when they are asked for: a rank of thousands needs one."""

    def __init__(self, tensor: Tensor, count: int, dim: int):
        self._tensor, self._count, self._dim = tensor, count, dim
        self._each = max(1, math.ceil(tensor.shape[dim] / count)) if tensor.dim() else 1

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[n] for n in range(*place.indices(self._count))]
        place = place % self._count
        start = min(place * self._each, self._tensor.shape[self._dim])
        length = min(self._each, self._tensor.shape[self._dim] - start)
        if length <= 0:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, length)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[place] for place in range(self._count))


def attention(recorder: Recorder, real: Any) -> Any:
    """`scaled_dot_product_attention` that chooses kernels as on a GPU, of those that the program allows (``sdpa_kernel``)."""
    allowed = torch.backends.cuda

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if query.device.type != "cuda" or query.dim() != 4:
            return real(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)  # type: ignore[no-any-return]
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
            query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
            if attn_mask is not None and attn_mask.dtype.is_floating_point:
                attn_mask = attn_mask.to(dtype)
        head = query.shape[-1]
        half = query.dtype in (torch.float16, torch.bfloat16)
        grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
        fits = half and attn_mask is None and head <= LARGEST_HEAD and torch.cuda.get_device_capability() >= OF_FLASH
        if fits and value.shape[-1] == head and allowed.flash_sdp_enabled():
            pad = -head % 8
            if pad:
                scale = 1 / math.sqrt(head) if scale is None else scale
                query, key, value = (F.pad(tensor, (0, pad)) for tensor in (query, key, value))
            out: Tensor = aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, return_debug_mask=False, scale=scale
            )[0]
            return out[..., :head] if pad else out
        if enable_gqa:
            many = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(many, 1), value.repeat_interleave(many, 1)
        if not allowed.mem_efficient_sdp_enabled():
            if fits and allowed.cudnn_sdp_enabled():
                return aten._scaled_dot_product_cudnn_attention(  # type: ignore[no-any-return]
                    query, key, value, None, grad, dropout_p, is_causal, False, scale=scale
                )[0]
            return aten._scaled_dot_product_attention_math(  # type: ignore[no-any-return]
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale
            )[0]
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, -math.inf)
        if attn_mask is not None and attn_mask.requires_grad:
            return real(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)  # type: ignore[no-any-return]
        if attn_mask is not None:
            attn_mask = attn_mask.expand(*query.shape[:-1], key.shape[-2])
        efficient: Tensor = aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, grad, dropout_p, is_causal, scale=scale
        )[0]
        return efficient

    attend.__name__ = real.__name__  # by which PyTorch's context_parallel puts its own in its place
    return attend


GRAPHED = ("reduce-overhead", "max-autotune")
"""Modes of ``torch.compile`` that capture CUDA graphs (PyTorch 2.13 torch/_inductor/__init__.py ``list_mode_options``)."""


def _compiled(recorder: Recorder) -> Any:
    def given(
        model: Any = None, *, backend: Any = "inductor", disable: bool = False, dynamic: bool | None = None,
        mode: str | None = None, options: Mapping[str, Any] | None = None, **_: Any
    ) -> Any:  # fmt: skip
        if model is None:
            return lambda function: given(function, backend=backend, disable=disable, dynamic=dynamic, mode=mode, options=options)
        if disable or backend in ("eager", "aot_eager"):
            return model
        made = Compilations(dynamic)
        graphs = backend == "cudagraphs" or mode in GRAPHED or bool((options or {}).get("triton.cudagraphs"))

        def called(*called_with: Any) -> None:
            if made.again(*called_with):
                recorder.builder.recompilation(recorder.where.line())

        return recorder.where.compiles(model, called, graphs)

    return given


def _unscripted(recorder: Recorder) -> Any:
    def script(what: Any = None, *_: Any, **__: Any) -> Any:
        if not str(getattr(what, "__module__", "")).startswith("torch."):  # PyTorch scripts some of its own at import
            recorder.builder.assumed("What torch.jit.script is given runs as it is written, operator by operator.")
        return what

    return script


def _scattered(recorder: Recorder) -> Any:
    def scatter(tensor: Tensor, devices: Any, sizes: Any = None, dim: int = 0, streams: Any = None) -> list[Tensor]:
        if len(devices) > 1:
            raise NotModelled(
                f"{recorder.where.line()}: one process that computes on {len(devices)} GPUs, as nn.DataParallel does: trace it "
                f"on one GPU, or its replicas by DistributedDataParallel"
            )
        return [tensor.to(f"cuda:{devices[0]}", non_blocking=True)]

    return scatter


def _by_lengths(real: Any) -> Any:
    """`torch.ctc_loss`, which reads lengths on the host, but where its tensors are of a class of their own."""
    return lambda *args, **how: real(*args[:2], *(one.tolist() if isinstance(one, Tensor) else one for one in args[2:]), **how)


def _no_calls(*_: Any, **__: Any) -> None:
    """`torch.distributed.rpc.init_rpc`."""
    raise NotModelled("torch.distributed.rpc, by which ranks run code on each other: trace what each of them runs")


def spawned(fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
    """`torch.multiprocessing.spawn`: of the processes that a program starts, one a GPU, this rank is the one of its place."""
    place, here = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if nprocs != here:
        raise NotModelled(
            f"the program starts {counted(nprocs, 'process', 'processes')} by itself where {counted(here, 'GPU')} of a node "
            f"{'are' if here > 1 else 'is'} traced: ask for {nprocs}"
        )
    fn(place, *args)


@contextlib.contextmanager
def installed(recorder: Recorder) -> Iterator[None]:
    """Make these choices while it is entered."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils, data

    real_loader = data.DataLoader.__init__

    @functools.wraps(real_loader)  # Lightning reads its parameters, to make a loader anew with another sampler
    def loader(self: Any, *args: Any, **kwargs: Any) -> None:
        args = list(args)  # type: ignore[assignment]
        if len(args) > 5:
            args[5] = 0  # type: ignore[index]
        else:
            kwargs["num_workers"] = 0
        for name in (
            "prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout", "worker_init_fn", "pin_memory_device",
        ):
            kwargs.pop(name, None)
        real_loader(self, *args[:6], **kwargs)

    compiled = _compiled(recorder)
    attend = attention(recorder, F.scaled_dot_product_attention)
    replacements: list[Replacement] = [
        (F, "scaled_dot_product_attention", attend),
        (torch._C._nn, "scaled_dot_product_attention", attend),
        (torch, "compile", compiled),
        (torch, "ctc_loss", _by_lengths(torch.ctc_loss)),
        (torch.compiler, "cudagraph_mark_step_begin", lambda: None),
        *([(torch.distributed.rpc, "init_rpc", _no_calls)] if hasattr(torch.distributed.rpc, "init_rpc") else []),
        (torch.jit, "script", _unscripted(recorder)),
        (torch._C, "_scatter", _scattered(recorder)),
        *((owner, name, spawned) for owner in _STARTERS for name in ("spawn", "start_processes") if hasattr(owner, name)),
        (data.DataLoader, "__init__", loader),
        (optimizer, "_foreach_supported_types", [*optimizer._foreach_supported_types, FakeTensor]),
        (_foreach_utils, "_foreach_supported_types", [*_foreach_utils._foreach_supported_types, FakeTensor, torch.nn.Parameter]),
        (fake_tensor, "CONSTANT_NUMEL_LIMIT", -1),  # values are followed by this package's own means
        (torch.nn.Module, "compile", lambda self, **options: compiled(self, **options)),
    ]
    for name in ("torch.distributed.fsdp._fully_shard._fsdp_common", "torch.distributed.fsdp._fully_shard._fsdp_param"):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            if hasattr(module, "_chunk_with_empty"):
                replacements.append(
                    (module, "_chunk_with_empty", lambda tensor, num_chunks, dim: Chunks(tensor, num_chunks, dim))
                )
    kernels()
    with replaced(replacements):
        yield


def kernels() -> None:
    """Operators that a build with CUDA has one kernel for, where this one would take them apart."""
    if _LIBRARIES:
        return
    library = torch.library.Library("aten", "IMPL", "CUDA")
    for name, like in (("silu_backward", 0), ("mish_backward", 0)):
        library.impl(name, lambda *args, like=like: torch.empty_like(args[like]))
    if hasattr(aten, "_fused_rms_norm"):
        library.impl("_fused_rms_norm", _rms_norm)
        library.impl("_fused_rms_norm_backward", _rms_norm_backward)
    shapes = torch.library.Library("aten", "IMPL", "Meta")  # of nn.SyncBatchNorm's kernels, which say nowhere what they give
    for name, function in (
        ("batch_norm_stats", lambda input, eps: _of_channels(input, 2)),
        ("batch_norm_gather_stats_with_counts", lambda input, *_: _of_channels(input, 2)),
        ("batch_norm_elemt", lambda input, *_: torch.empty_like(input)),
        ("batch_norm_backward_reduce", lambda grad, input, *_: _of_channels(input, 4)),
        ("batch_norm_backward_elemt", lambda grad, input, *_: torch.empty_like(input)),
    ):
        shapes.impl(name, function)
    _LIBRARIES.extend([library, shapes])


def _of_channels(input: Tensor, count: int) -> tuple[Tensor, ...]:
    """So many tensors of a number a channel, in the dtype that sums of images have."""
    dtype = torch.float64 if input.dtype == torch.float64 else torch.float32
    return tuple(input.new_empty(input.shape[1], dtype=dtype) for _ in range(count))


def _rms_norm(input: Tensor, shape: Any, weight: Any = None, eps: Any = None) -> tuple[Tensor, Tensor]:
    rows = list(input.shape[: input.dim() - len(shape)]) + [1] * len(shape)
    return torch.empty_like(input), input.new_empty(rows, dtype=torch.float32)


def _rms_norm_backward(grad: Tensor, input: Tensor, shape: Any, rstd: Tensor, weight: Any, mask: Any) -> tuple[Any, Any]:
    return torch.empty_like(input), None if weight is None else torch.empty_like(weight)
