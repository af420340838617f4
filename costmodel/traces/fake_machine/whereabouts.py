"""Where the program is: its phase, the module that runs, and the line of the user's code."""

from __future__ import annotations

import sys
import sysconfig
import threading
import weakref
from pathlib import Path
from types import FrameType
from typing import Any

import torch


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

    @property
    def stack(self) -> list[str]:
        """Names of the modules that run now, in this thread."""
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        stack: list[str] = self._local.stack
        return stack

    def entered(self, name: str) -> None:
        """A module begins."""
        stack = self.stack
        if not stack and torch._C._current_graph_task_id() == -1:
            self._trains, self._turned = torch.is_grad_enabled(), False
        stack.append(name)

    def left(self) -> None:
        """The innermost module has ended."""
        if self.stack:
            self.stack.pop()

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
            self._made[sequence - 1] = stack[-1]
            return stack[-1]
        if torch._C._current_graph_task_id() != -1:
            node = torch._C._current_autograd_node()
            if node is not None:
                return self._made.get(node._sequence_nr(), "")
        return ""

    def line(self) -> str:
        """The innermost line of the user's code, and that of the library's code behind it."""
        task = torch._C._current_graph_task_id()
        if threading.get_ident() != self._main:
            frame: FrameType | None = sys._getframe(1)
            word = self._word_of(frame)
            if word:
                return word
            if task != self._task:
                self._task, self._task_line = task, self._word_of(sys._current_frames().get(self._main or 0))
            return self._task_line
        return self._word_of(sys._getframe(1))

    def _word_of(self, frame: FrameType | None) -> str:
        library = ""
        while frame is not None:
            name = frame.f_code.co_filename
            known = self._files.get(name)
            if known is None:
                known = self._files[name] = self.whose(name), Path(name).name
            if known[0] == 0:
                user = f"{known[1]}:{frame.f_lineno}"
                return f"{user} ({library})" if library else user
            if known[0] == 1 and not library:
                library = f"{known[1]}:{frame.f_lineno}"
            frame = frame.f_back
        return library

    def whose(self, name: str) -> int:
        """0 of the user's files, 1 of libraries that build on torch, 2 of torch, of Python and of this package."""
        if (
            name.startswith("<")
            or "/torch/" in name
            or "/costmodel/traces/" in name
            or name.startswith("/usr/lib/python")
        ):
            return 2
        if "site-packages" in name or "dist-packages" in name:
            return 1
        return 2 if name.startswith(self._LIBRARY) else 0
