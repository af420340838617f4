"""Recurrent networks as cuDNN runs them: the products of all steps' inputs at once, then a kernel that goes step by step.

Cells are called step by step, and on a GPU each is two products and a kernel for what lies behind them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from costmodel.text.errors import NotModelled

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Products of a step with the hidden state, by the network."""
_LIBRARIES: list[Any] = []  # torch.library forgets what nobody holds


class Recurrence(torch.autograd.Function):
    """Goes through the steps of one layer in one direction."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, hidden: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states of all steps, and the last ones."""
        out, last, kept = torch.ops.costmodel.recurrence(gates, weight, hidden, sizes)
        ctx.save_for_backward(weight, out, kept, hidden)
        ctx.sizes = sizes
        return out, last

    @staticmethod
    def backward(ctx: Any, out: Tensor, last: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        """Gradients of the gates, the weights and the first hidden states."""
        weight, made, kept, hidden = ctx.saved_tensors
        gates, weights, first = torch.ops.costmodel.recurrence_backward(out, weight, made, kept, hidden, ctx.sizes)
        return gates, weights, first, None


def operators() -> None:
    """Define the operators that go through the steps."""
    if _LIBRARIES:
        return
    library = torch.library.Library("costmodel", "FRAGMENT")
    library.define("recurrence(Tensor gates, Tensor weight, Tensor hidden, Tensor sizes) -> (Tensor, Tensor, Tensor)")
    library.define(
        "recurrence_backward(Tensor grad, Tensor weight, Tensor made, Tensor kept, Tensor hidden, Tensor sizes) "
        "-> (Tensor, Tensor, Tensor)"
    )
    torch.library.register_fake("costmodel::recurrence", _made, lib=library)
    torch.library.register_fake("costmodel::recurrence_backward", _turned, lib=library)
    flop_registry[torch.ops.costmodel.recurrence] = lambda gates, weight, *_, **__: 2 * gates.shape[0] * weight.numel()
    flop_registry[torch.ops.costmodel.recurrence_backward] = lambda grad, weight, *_, **__: 4 * grad.shape[0] * weight.numel()
    shapes = torch.library.Library("aten", "IMPL", "Meta")  # of GRUCell's kernels, which say nowhere what they give
    shapes.impl("_thnn_fused_gru_cell", _stepped)
    shapes.impl("_thnn_fused_gru_cell_backward", _stepped_back)
    _LIBRARIES.extend([library, shapes])


def _stepped(
    of_input: Tensor, of_state: Tensor, hidden: Tensor, bias: Tensor | None = None, state_bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The next states, and the three gates with the old states and the new gate's part of them, kept for the way back."""
    return torch.empty_like(hidden), hidden.new_empty((hidden.shape[0], 5 * hidden.shape[1]))


def _stepped_back(grad: Tensor, kept: Tensor, biased: bool) -> tuple[Tensor | None, ...]:
    """Gradients of both products' results, of the old states and of the biases."""
    gates = grad.new_empty((grad.shape[0], GATES["gru"] * grad.shape[1]))
    biases = (gates.new_empty(gates.shape[1]), gates.new_empty(gates.shape[1])) if biased else (None, None)
    return gates, torch.empty_like(gates), torch.empty_like(grad), *biases


def _made(gates: Tensor, weight: Tensor, hidden: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    states = gates.new_empty((gates.shape[0], weight.shape[1]))
    cells = weight.shape[1] * (weight.shape[0] == GATES["lstm"] * weight.shape[1])  # are kept beside the gates
    return states, torch.empty_like(hidden), gates.new_empty((gates.shape[0], gates.shape[1] + cells))


def _turned(
    grad: Tensor, weight: Tensor, made: Tensor, kept: Tensor, hidden: Tensor, sizes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return grad.new_empty((grad.shape[0], weight.shape[0])), torch.empty_like(weight), torch.empty_like(hidden)


def network(kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """What `torch.nn`'s recurrent modules call, as cuDNN does it for tensors of a GPU.

    Parameters
    ----------
    kind : of `GATES`
    real : PyTorch's own
    """

    def run(input: Tensor, *arguments: Any) -> Any:
        if input.device.type != "cuda":
            return real(input, *arguments)
        if isinstance(arguments[0], Tensor) and isinstance(arguments[2], (list, tuple)):  # packed: sizes come before states
            sizes, states, weights, biased, layers, dropout, training, both = arguments
            out, hidden = _layers(kind, input, states, weights, biased, layers, dropout * training, both, sizes)
            return (out, *hidden)
        states, weights, biased, layers, dropout, training, both, batch_first = arguments
        rows = input.transpose(0, 1) if batch_first else input
        steps, batch = rows.shape[:2]
        sizes = torch.full((steps,), batch, dtype=torch.int64)
        flat = rows.reshape(steps * batch, rows.shape[2])
        out, hidden = _layers(kind, flat, states, weights, biased, layers, dropout * training, both, sizes)
        out = out.view(steps, batch, -1)
        return (out.transpose(0, 1) if batch_first else out, *hidden)

    return run


def _layers(
    kind: str, rows: Tensor, states: Any, weights: Sequence[Tensor], biased: bool, layers: int, dropout: float, both: bool,
    sizes: Tensor,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """Rows of all steps behind all layers, and the last states."""
    ways, hidden = 2 if both else 1, states[0] if kind == "lstm" else states
    each = len(weights) // (layers * ways)
    last = []
    for layer in range(layers):
        outs = []
        for way in range(ways):
            place = layer * ways + way
            of_input, of_state, *more = weights[each * place : each * (place + 1)]
            bias = more[0] + more[1] if biased else None
            gates = F.linear(rows, of_input, bias)
            out, final = Recurrence.apply(gates, of_state.to(gates.dtype), hidden[place].to(gates.dtype), sizes)
            if len(more) > 2 * biased:
                raise NotModelled("a recurrent network whose states are projected (proj_size)")
            outs.append(out)
            last.append(final)
        rows = torch.cat(outs, dim=1) if both else outs[0]
        if dropout and layer < layers - 1:
            rows = F.dropout(rows, dropout, True)
    found = [torch.stack(last)]
    return rows, [*found, torch.zeros_like(states[1])] if kind == "lstm" else found


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Run recurrent networks this way while it is entered."""
    operators()
    before = {kind: getattr(torch._VF, kind) for kind in GATES}
    try:
        for kind, real in before.items():
            setattr(torch._VF, kind, network(kind, real))
        yield
    finally:
        for kind in before:
            delattr(torch._VF, kind)
