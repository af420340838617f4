"""What an operator of PyTorch is by its schema: what it reads, writes and computes, and which move nothing."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from costmodel.traces.record import GROUPED

KNOWN_OPERATORS = {
    "aten", "prims", "c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd", "fsdp", "inductor",
    "torchvision", "_quantized", "quantized", "profiler", "symm_mem", "costmodel", "rngprims", "bitsandbytes", "_dtensor",
}  # fmt: skip
"""Namespaces of operators that are PyTorch's own, or whose kernels are known."""
SOLVERS = (
    "_linalg_eigh", "linalg_eig", "_linalg_eigvals", "_linalg_svd", "linalg_qr", "linalg_cholesky_ex", "linalg_inv_ex",
    "linalg_lu", "linalg_ldl", "_linalg_solve_ex", "_linalg_det", "_linalg_slogdet", "cholesky", "geqrf", "linalg_lstsq",
    "linalg_householder_product", "triangular_solve", "linalg_solve_triangular", "linalg_matrix_exp",
)  # fmt: skip
"""Beginnings of operators that take a matrix apart, or solve by one."""
FREE = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_", "detach", "detach_",
    "alias", "_unsafe_view", "_reshape_alias", "lift_fresh", "lift", "t_", "transpose_", "squeeze_", "unsqueeze_",
    "as_strided_", "is_pinned", "_pin_memory", "_has_compatible_shallow_copy_type", "is_same_size", "resize_as_",
    "swapdims_", "split_with_sizes", "_fsdp_dummy", "view", "sym_size", "sym_numel", "sym_stride",
    "sym_storage_offset", "_sparse_coo_tensor_with_dims_and_tensors", "_coalesced_", "set_data", "_version", "is_set_to",
}  # fmt: skip
"""Operators that launch nothing on the device."""
OVERWRITE = {"copy_", "fill_", "zero_", "zero", "fill", "set_"}
"""Operators that don't read what they write."""
PICKS = {"embedding", "index", "index_select", "gather", "take", "sparse_mask", "nll_loss_forward", "nll_loss2d_forward"}
"""Operators that read of their first operand no more than places of it that others name, as many as they give."""
BAGS = {"_embedding_bag", "_embedding_bag_forward_only"}
"""Operators that read of their first operand the rows that the second names, and sum them."""
UNREAD = {"nll_loss_backward": 1, "nll_loss2d_backward": 1}
"""Operators that take an operand for its shape alone, and which it is."""
SCATTERS = {"index_put_", "index_add_", "index_copy_", "scatter_", "scatter_add_"}
"""Operators that read and write of the tensor that they change no more than places of it that others name."""
LIKE = {"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"}
"""Operators that make tensors like another."""
FACTORIES = {"empty", "zeros", "ones", "full", "rand", "randn", "empty_strided"}
"""Operators that make tensors of a shape."""
_MANY = ("_foreach", "_fused", "_amp_foreach")
"""Beginnings of operators over lists of tensors."""


def reached(name: str, args: Sequence[Any], tensor: Tensor, given: int) -> int:
    """Bytes of an operand that an operator reaches: all of it, but where it looks up, or changes, places of it.

    Parameters
    ----------
    name : of the operator
    args : its arguments
    tensor : one of its operands
    given : bytes of what it makes
    """
    whole = bytes_of(tensor)
    if name in UNREAD and tensor is args[UNREAD[name]]:
        return 0
    if name in PICKS and tensor is args[0]:
        return min(whole, given)
    if name in SCATTERS and tensor is args[0]:
        return min(whole, sum(bytes_of(one) for one in args[2:] if isinstance(one, Tensor)))
    if name in BAGS and tensor is args[0]:
        return min(whole, args[1].numel() * tensor.shape[-1] * tensor.element_size())
    sparse = [one for one in args[1:] if isinstance(one, Tensor) and one.layout == torch.sparse_coo]
    if sparse and tensor is args[0]:  # of a sparse gradient's rows
        return min(whole, sum(map(bytes_of, with_parts(sparse))))
    return whole


def local(tensor: Any) -> Any:
    """The part of a distributed tensor that this rank holds; others as they are."""
    inner = getattr(tensor, "_local_tensor", None)
    return local(inner) if isinstance(inner, Tensor) else tensor


def tensors_in(things: Any) -> Iterator[Tensor]:
    """Tensors among arguments, in lists, too."""
    for thing in things:
        if isinstance(thing, Tensor):
            yield thing
        elif isinstance(thing, (list, tuple)):
            yield from tensors_in(thing)


def with_parts(tensors: list[Tensor]) -> list[Tensor]:
    """Tensors with memory: of a sparse one, as gradients of embeddings may be, its places and values."""
    if all(tensor.layout == torch.strided for tensor in tensors):
        return tensors
    found: list[Tensor] = []
    for tensor in tensors:
        found += [tensor._indices(), tensor._values()] if tensor.layout == torch.sparse_coo else [tensor]
    return found


@functools.cache
def is_wrapper(kind: type) -> bool:
    """Whether a class of tensors, as DTensor, takes operators by itself."""
    method = getattr(kind, "__torch_dispatch__", None)
    return (
        method is not None
        and method is not torch._C._disabled_torch_dispatch_impl
        and kind not in (Tensor, torch.nn.Parameter)
        and getattr(method, "__func__", method) is not getattr(Tensor, "__torch_dispatch__", None)
    )


@functools.cache
def is_view(func: Any) -> bool:
    """Whether all results of an operator are other names of its operands' memory, and nothing is written."""
    returns = func._schema.returns
    return bool(returns) and not func._schema.is_mutable and all(value.alias_info is not None for value in returns)


@functools.cache
def is_composite(func: Any) -> bool:
    """Whether an operator is made of others and has no kernel of its own."""
    kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return (
        isinstance(func, torch._ops.OpOverload)
        and kernel(func.name(), "CompositeImplicitAutograd")
        and not kernel(func.name(), "CUDA")
    )


@functools.cache
def _written_places(func: Any) -> tuple[tuple[int, str], ...]:
    return tuple(
        (place, argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def written_by(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Tensors that an operator writes in place."""
    found: list[Any] = []
    for place, name in _written_places(func):
        if name in kwargs:
            found.append(kwargs[name])
        elif place < len(args):
            found.append(args[place])
    return list(tensors_in(found))


def unique(tensors: list[Tensor]) -> list[Tensor]:
    """Each once."""
    return list({id(tensor): tensor for tensor in tensors}.values())


def bytes_of(tensor: Tensor) -> int:
    """Bytes that reading a tensor moves: no more than its storage has, of one that is expanded."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes() or 1 << 62)


@functools.cache
def word_of(dtype: torch.dtype) -> str:
    """A dtype without its library: ``"bfloat16"``."""
    return str(dtype).removeprefix("torch.")


def operands_of(name: str, tensors: list[Tensor]) -> tuple[list[tuple[int, ...]], list[str]]:
    """Shapes and dtypes of operands; of operators over lists of tensors how many elements each dtype has."""
    if name.startswith(_MANY) or len(tensors) > 12:
        counts: dict[str, int] = {}
        for tensor in tensors:
            word = word_of(tensor.dtype)
            counts[word] = counts.get(word, 0) + tensor.numel()
        return [(count,) for count in counts.values()], list(counts)
    return [tuple(tensor.shape) for tensor in tensors], [word_of(tensor.dtype) for tensor in tensors]


def flop_of(func: Any, name: str, args: Any, kwargs: Any, out: Any) -> int:
    """Floating-point operations of a product, 0 of other operators [FLOP]."""
    if name in GROUPED:
        return _grouped_flop(args[0].shape, args[1].shape)
    count = flop_registry.get(torch.ops.aten.mm if name == "_int_mm" else func.overloadpacket)
    if count is None:
        return 0
    if func._overloadname.startswith("dtype"):  # the dtype of the result comes behind the operands
        args = args[: len(args) - 1] if "out_dtype" not in kwargs else args
    flop = int(count(*args, **{name: value for name, value in kwargs.items() if not name.startswith("out")}, out_val=out))
    if "scaled_dot_product" in name and argument(func, args, kwargs, "is_causal"):
        flop //= 2  # what lies above the diagonal is skipped
    return flop


def _grouped_flop(left: Sequence[int], right: Sequence[int]) -> int:
    """Of products whose rows, columns or sums are the groups' one after the other; of two that are stacks, of each pair."""
    each = left[0] if len(left) == len(right) == 3 else 1
    return int(2 * each * left[-2] * left[-1] * right[-1])


def argument(func: Any, args: Any, kwargs: Any, name: str) -> Any:
    """An argument of an operator by its name, its default where it isn't given; None of one that the operator hasn't."""
    for place, known in enumerate(func._schema.arguments):
        if known.name == name:
            return kwargs.get(name, args[place] if place < len(args) else known.default_value)
    return None
