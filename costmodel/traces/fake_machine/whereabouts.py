"""Where the program is: its phase, the module that runs, and the line of the user's code."""

from __future__ import annotations

import functools
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch


class Running(NamedTuple):
    """A module that runs: the frame that runs it, and the nearest of the user's and of a library's code behind that."""

    name: str
    compiled: int  # number of the compiled part that it belongs to, 0 of none
    frame: FrameType
    user: FrameType | None
    library: FrameType | None


class Where:
    """Where the program is: its phase, module and line."""

    _LIBRARY = tuple({sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"]})

    def __init__(self) -> None:
        self.optimizing = 0
        self._trains = True  # the outermost module that runs
        self._turned = False  # a backward pass was seen, and no module has begun since
        self.names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._local = threading.local()
        self._made: dict[int, str] = {}
        self._files: dict[str, tuple[int, str]] = {}  # whose a file is, and its short name
        self._main = threading.main_thread().ident
        self._task, self._task_line = -1, ""
        self._compiled_modules: weakref.WeakKeyDictionary[Any, tuple[int, Callable[..., None]]] = weakref.WeakKeyDictionary()
        self.graphed: set[int] = set()  # numbers of compiled parts that are launched as CUDA graphs
        self._compiled: dict[int, int] = {}  # part of the program that made a node of autograd, by the node's number
        self._parts = 0

    @property
    def stack(self) -> list[Running]:
        """The modules that run now, in this thread."""
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        stack: list[Running] = self._local.stack
        return stack

    def entered(self, name: str, module: Any, args: Any) -> None:
        """A module begins, as the frame behind the caller's calls it."""
        stack = self.stack
        if not stack and torch._C._current_graph_task_id() == -1:
            self._trains, self._turned = torch.is_grad_enabled(), False
        frame = sys._getframe(2)
        outer = stack[-1] if stack else None
        part = self._part
        if not part and module in self._compiled_modules:
            part, called = self._compiled_modules[module]
            called(args)
        stack.append(Running(name, part, frame, *self._behind(frame.f_back, outer)))

    def left(self) -> None:
        """The innermost module has ended."""
        if self.stack:
            self.stack.pop()

    @property
    def _part(self) -> int:
        """The outermost compiled part that runs now, in this thread; 0 where none does."""
        stack = self.stack
        return (stack[-1].compiled if stack else 0) or getattr(self._local, "part", 0)

    def compiles(self, what: Any, called: Callable[..., None], graphs: bool = False) -> Any:
        """A module or function is given to a compiler; gives what takes its place: a module stays the object that it is.

        Parameters
        ----------
        what : module or function
        called : told with what it is called, each time; of a module, what isn't named
        graphs : whether what is compiled is launched as CUDA graphs
        """
        self._parts += 1
        part = self._parts
        if graphs:
            self.graphed.add(part)
        if isinstance(what, torch.nn.Module):
            self._compiled_modules.setdefault(what, (part, called))
            return what

        @functools.wraps(what)
        def run(*args: Any, **kwargs: Any) -> Any:
            outer = self._part
            if not outer:
                called(args, kwargs)
            self._local.part = outer or part
            try:
                return what(*args, **kwargs)
            finally:
                self._local.part = outer

        return run

    def compiled(self) -> int:
        """The compiled part that an operator belongs to, in a backward pass that whose operator made the node; 0 of none."""
        part = self._part if self._parts else 0
        if part:
            self._compiled[torch.autograd._get_sequence_nr() - 1] = part
        elif self._parts and torch._C._current_graph_task_id() != -1:
            node = torch._C._current_autograd_node()
            return 0 if node is None else self._compiled.get(node._sequence_nr(), 0)
        return part

    @property
    def behind_backward(self) -> bool:
        """Whether the last that the program did with its model was a backward pass."""
        return self._turned and not self.optimizing and torch._C._current_graph_task_id() == -1

    def stepped(self) -> None:
        """A step of the optimizer has ended."""
        self._turned = False

    def phase(self) -> str:
        """One of `costmodel.traces.record.PHASES`.

        What a module does is forward whether autograd looks or not: gathers of its weights are hidden from it. Behind a backward
        pass, until the next module begins, it is neither: libraries sum and gather there.
        """
        if self.optimizing:
            return "optimizer"
        if torch._C._current_graph_task_id() != -1:
            self._turned = True
            return "backward"
        if self.stack:
            return "forward" if self._trains else "other"
        return "forward" if torch.is_grad_enabled() and not self._turned else "other"

    def module(self) -> str:
        """The innermost module that runs, in a backward pass the one whose operator made the node."""
        stack = self.stack
        if stack:
            sequence = torch.autograd._get_sequence_nr()
            self._made[sequence - 1] = stack[-1].name
            return stack[-1].name
        if torch._C._current_graph_task_id() != -1:
            node = torch._C._current_autograd_node()
            if node is not None:
                return self._made.get(node._sequence_nr(), "")
        return ""

    def line(self) -> str:
        """The innermost line of the user's code, and that of the library's code behind it."""
        task = torch._C._current_graph_task_id()
        stack = self.stack
        word = self._word_of(sys._getframe(1), stack[-1] if stack else None)
        if word or threading.get_ident() == self._main:
            return word
        if task != self._task:
            self._task, self._task_line = task, self._word_of(sys._current_frames().get(self._main or 0), None)
        return self._task_line

    def _word_of(self, frame: FrameType | None, module: Running | None) -> str:
        user, library = self._behind(frame, module)
        found = [f"{self._file(one)[1]}:{one.f_lineno}" for one in (user, library) if one is not None]
        return f"{found[0]} ({found[1]})" if len(found) == 2 else "".join(found)

    def _behind(self, frame: FrameType | None, module: Running | None) -> tuple[FrameType | None, FrameType | None]:
        """The nearest frame of the user's code at a frame or behind it, and the nearest of a library's before that.

        Frames behind a module that runs, which may be a hundred, were looked at when it began.
        """
        library: FrameType | None = None
        while frame is not None:
            if module is not None and frame is module.frame:
                return module.user, library or module.library
            kind = self._file(frame)[0]
            if kind == 0:
                return frame, library
            if kind == 1 and library is None:
                library = frame
            frame = frame.f_back
        return None, library

    def _file(self, frame: FrameType) -> tuple[int, str]:
        """Whose the file of a frame is, and its short name."""
        name = frame.f_code.co_filename
        known = self._files.get(name)
        if known is None:
            known = self._files[name] = self.whose(name), Path(name).name
        return known

    def whose(self, name: str) -> int:
        """0 of the user's files, the script wherever it lies, 1 of libraries on torch, 2 of torch, Python and this package."""
        if name in self._files:
            return self._files[name][0]
        if name.startswith("<") or "/torch/" in name or "/costmodel/traces/" in name or name.startswith("/usr/lib/python"):
            return 2
        if name == getattr(sys.modules.get("__main__"), "__file__", None):
            return 0
        if "site-packages" in name or "dist-packages" in name:
            return 1
        return 2 if name.startswith(self._LIBRARY) else 0
