"""What the program's modules, parameters and optimizers tell the recorder: names, kinds of memory, where a step ends."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from costmodel.traces.fake_machine.operators import local, word_of
from costmodel.traces.fake_machine.recorder import Recorder
from costmodel.traces.fake_machine.replacing import replaced

WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.", "_forward_module.")
"""Parts of modules' names that wrappers put in."""


class Watcher:
    """Tells a recorder what the program's objects are.

    Parameters
    ----------
    recorder : which
    """

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self._named: dict[int, tuple[Any, str]] = {}  # by the parameter's identity, with the parameter, so that it keeps it
        self._known: set[str] = set()
        self._optimizer: Any = None
        self._depth = 0

    def entered(self, module: Any, args: Any) -> None:
        """A module is called."""
        where = self.recorder.where
        self.recorder.updates.ends()
        name = where.names.get(module)
        if name is None:
            self._name(module, where.stack[-1].name if where.stack else "")
            name = where.names[module]
        if module.__dict__.get("gradient_checkpointing") and not module.training and torch.is_grad_enabled():
            self.recorder.facts.setdefault("unused_checkpointing", where.line())
        where.entered(name, module, args)

    def left(self, module: Any, *_: Any) -> None:
        """A module has answered, or failed."""
        self.recorder.where.left()

    def _name(self, module: Any, outer: str) -> None:
        names = self.recorder.where.names
        prefix = outer
        for name, inner in module.named_modules():
            if inner not in names:
                names[inner] = clean(f"{prefix}.{name}".strip("."))
        self.parameters(module, prefix)
        configs = (getattr(inner, "config", None) for inner in module.modules())
        config = next((config for config in configs if hasattr(config, "to_json_string")), None)
        if config is not None:
            self.recorder.facts.setdefault("model", config.to_json_string(use_diff=False))

    def parameters(self, module: Any, prefix: str = "") -> None:
        """Name the parameters of a module and what they lie in."""
        for name, parameter in module.named_parameters():
            word = clean(f"{prefix}.{name}".strip("."))
            if id(parameter) in self._named:
                continue
            if word in self._known:  # of a second model, such as a teacher, or of the same one, sharded since
                self._unnamed(local(parameter))
                continue
            self._known.add(word)
            self._named[id(parameter)] = (parameter, word)
            self.recorder.updates.weights[word] = parameter
            self.recorder.named_parameters[id(parameter)] = word
            inner = local(parameter)
            row = self.recorder.storages.row(inner) if isinstance(inner, Tensor) else None
            self.recorder.builder.parameter(
                word,
                tuple(getattr(parameter, "quant_state", parameter).shape),  # of one that is packed, as it was
                word_of(parameter.dtype),
                parameter.requires_grad,
                -1 if row is None else row,
            )
            if row is not None:
                self.recorder.storages.kind(inner, "weight", word)

    def _unnamed(self, tensor: Any) -> None:
        """A parameter whose name another has: it lies in memory as well."""
        there = isinstance(tensor, Tensor) and self.recorder.storages.row(tensor) is not None
        if there and not tensor.untyped_storage()._life.named:
            self.recorder.storages.kind(tensor, "weight")

    def stepping(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        """An optimizer's step begins: gradients are what it finds, or what a closure makes that it is given."""
        if self._depth == 0:
            if self._optimizer is None:
                self._optimizer = optimizer
            self._found(optimizer)
        self._depth += 1
        self.recorder.where.optimizing += 1
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._passes(optimizer, args[1]), *args[2:]), kwargs
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._passes(optimizer, kwargs["closure"])}
        return None

    def _found(self, optimizer: Any) -> None:
        """What an optimizer trains, and the gradients that there are."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self.recorder.trained[id(parameter)] = parameter
                name = self.recorder.named_parameters.get(id(parameter))
                self.recorder.storages.kind(parameter, "weight", name)
                if parameter.grad is not None:
                    self.recorder.storages.kind(parameter.grad, "gradient", name)
                    if name is not None:
                        self.recorder.builder.gradient(name)
                elif name is not None and not parameter.numel():  # others have its shards, as in FSDP1's flat parameters
                    self.recorder.builder.gradient(name)

    def _passes(self, optimizer: Any, closure: Callable[[], Any]) -> Callable[[], Any]:
        """A closure, which makes both passes inside of a step, as Lightning's loop has it: they are no part of the optimizer."""

        def called() -> Any:
            where, depth = self.recorder.where, self._depth
            outside, where.optimizing, self._depth = where.optimizing, 0, 0
            try:
                return closure()
            finally:
                where.optimizing, self._depth = outside, depth
                self._found(optimizer)

        return called

    def made(self, real: Any) -> Any:
        """`Optimizer.__init__`, which tells that the program has one."""

        @functools.wraps(real)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            self.recorder.updates.optimizers += 1
            real(optimizer, *args, **kwargs)

        return init

    def stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer's step has ended: what it keeps is its state."""
        self.recorder.where.optimizing -= 1
        self._depth -= 1
        for parameter, state in optimizer.state.items():
            name = self.recorder.named_parameters.get(id(parameter))
            if isinstance(state, dict):
                for value in state.values():
                    if isinstance(value, Tensor):
                        self.recorder.storages.kind(value, "optimizer", name)
        if optimizer is self._optimizer and not self._depth:  # not one inside of another
            self.recorder.step_done()


def clean(name: str) -> str:
    """A module's name as the user's code has it, without what wrappers put in."""
    for part in WRAPPERS:
        name = name.replace(part, "").removesuffix(part.rstrip("."))
    name = name.strip(".")
    while name.startswith("module."):
        name = name.removeprefix("module.")
    return "" if name == "module" else name


@contextlib.contextmanager
def installed(recorder: Recorder) -> Iterator[Watcher]:
    """Watch all modules and optimizers while it is entered."""
    watcher = Watcher(recorder)
    handles = [
        modules.register_module_forward_pre_hook(watcher.entered),
        modules.register_module_forward_hook(watcher.left, always_call=True),
        optimizers.register_optimizer_step_pre_hook(watcher.stepping),
        optimizers.register_optimizer_step_post_hook(watcher.stepped),
    ]
    made = (optimizers.Optimizer, "__init__", watcher.made(optimizers.Optimizer.__init__))
    try:
        with replaced([made]):
            yield watcher
    finally:
        for handle in handles:
            handle.remove()
