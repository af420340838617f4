"""Keeps a traced program to itself: what it writes goes to a folder of its own, and no network is reached."""

from __future__ import annotations

import builtins
import io
import os
import socket
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from costmodel.text.errors import NotModelled
from costmodel.traces.fake_machine.confinement import confined

OFFLINE = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "disabled",
    "WANDB_DISABLED": "true", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false", "COMET_MODE": "disabled",
    "DISABLE_MLFLOW_INTEGRATION": "TRUE", "PYTHONDONTWRITEBYTECODE": "1", "ACCELERATE_DISABLE_RICH": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1", "DS_SKIP_CUDA_CHECK": "1", "MLFLOW_TRACKING_URI": "", "TORCHINDUCTOR_DISABLE": "1",
    "TORCH_COMPILE_DISABLE": "0",
}  # fmt: skip
"""Environment of the traced process."""
ASKING = {
    "addr2line", "c++", "cat", "df", "dpkg", "free", "g++", "gcc", "getconf", "git", "hostname", "id", "ldconfig", "ls", "lscpu",
    "lspci", "nproc", "numactl", "nvcc", "nvidia-smi", "objdump", "rocm-smi", "scontrol", "sysctl", "uname", "which", "whoami",
}  # fmt: skip
"""Programs that scripts and libraries start to ask something, and that leave nothing behind as they are asked."""
STARTS = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec")
"""Events of Python by which other programs are started."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Sandbox:
    """Turns what a program writes to a folder.

    Parameters
    ----------
    folder : where that goes
    allowed : folders that may be written as they are
    """

    def __init__(self, folder: Path, allowed: tuple[Path, ...] = ()):
        self.folder = folder
        self._allowed = (*(str(path.resolve()) for path in (folder, *allowed)), "/dev/", "/proc/")
        self.closed = self.confined = False

    def turned(self, path: Any) -> Any:
        """Where a file is written that the program writes at a path."""
        if isinstance(path, int):
            return path
        name = os.path.abspath(os.fsdecode(path))
        if name.startswith(self._allowed):
            return path
        return str(self.folder) + name

    def found(self, path: Any) -> Any:
        """Where a file is read: what the program wrote before, else as it is."""
        if isinstance(path, int):
            return path
        try:
            turned = self.turned(path)
        except (TypeError, ValueError):
            return path
        return turned if turned is not path and _EXISTS(turned) else path

    def install(self) -> None:
        """From here on, in this process."""
        real_open, real_os_open = io.open, os.open

        def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if isinstance(mode, str) and any(letter in mode for letter in "wax+"):
                file = self.ready(file, "a" in mode or "+" in mode)
            else:
                file = self.found(file)
            return real_open(file, mode, *args, **kwargs)

        def os_opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            path = self.ready(path, True) if flags & _WRITES else self.found(path)
            return real_os_open(path, flags, *args, **kwargs)

        builtins.open = io.open = opened  # type: ignore[assignment]
        os.open = os_opened
        for name in ("mkdir", "makedirs"):
            setattr(os, name, self._making(getattr(os, name)))
        for name in ("remove", "unlink", "rmdir", "truncate", "chmod", "utime"):
            setattr(os, name, self._changing(getattr(os, name)))
        for name in ("rename", "replace", "link", "symlink"):
            setattr(os, name, self._moving(getattr(os, name)))
        for owner, name in (
            (os.path, "exists"), (os.path, "isfile"), (os.path, "isdir"), (os.path, "getsize"), (os, "stat"), (os, "lstat"),
            (os, "statvfs"), (os, "access"), (os, "readlink"), (os, "listdir"), (os, "scandir"), (os, "chdir"),
        ):
            setattr(owner, name, self._reading(getattr(owner, name)))
        sys.meta_path.append(_WrittenModules(self))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.confined = confined(filter(Path.exists, map(Path, self._allowed)))
        sys.addaudithook(self._audit)

    def ready(self, path: Any, keep: bool = False) -> Any:
        """Where a file is written, in a folder that is there.

        Parameters
        ----------
        path : at which the program writes
        keep : what lies there
        """
        turned = self.turned(path)
        if turned is not path:
            _MAKEDIRS(os.path.dirname(turned), exist_ok=True)
            if keep and not _EXISTS(turned) and os.path.isfile(path):
                Path(turned).write_bytes(Path(path).read_bytes())
        return turned

    def _making(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def make(name: Any, mode: int = 0o777, *args: Any, **kwargs: Any) -> Any:
            turned = self.turned(name)
            if turned is name:
                return real(name, mode, *args, **kwargs)
            if _EXISTS(name) and not kwargs.get("exist_ok", bool(args and args[0])):
                raise FileExistsError(17, "File exists", name)
            _MAKEDIRS(os.path.dirname(turned), exist_ok=True)
            return real(turned, mode, *args, **kwargs)

        return make

    def _changing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def change(path: Any, *args: Any, **kwargs: Any) -> Any:
            turned = self.turned(path)
            if turned is not path and not _EXISTS(turned) and _EXISTS(path):
                return None  # it stays as it is
            return real(turned, *args, **kwargs)

        return change

    def _moving(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def move(source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            return real(self.found(source), self.ready(target, False), *args, **kwargs)

        return move

    def _reading(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def read(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            return real(self.found(path), *args, **kwargs)

        return read

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self.closed:
            return
        if event == "socket.getaddrinfo" and _is_elsewhere(args[0]):
            raise _unreached(args[0])
        if event == "socket.connect":
            address = args[1]
            if isinstance(address, tuple):
                raise _unreached(address[0])
        elif event in STARTS and not self.confined:
            _may_start(event, args)
        elif event == "open":
            path, mode, flags = args
            writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITES)
            if writes and not isinstance(path, int) and self.turned(path) is not path:
                raise NotModelled(f"the program writes {os.fsdecode(path)} in a way that can't be turned elsewhere")


def _is_elsewhere(host: Any) -> bool:
    """Whether a name is another machine's, which a server of names would be asked for."""
    name = host.decode(errors="replace") if isinstance(host, bytes) else host
    return isinstance(name, str) and "." in name and any(map(str.isalpha, name)) and name != socket.gethostname()


def _may_start(event: str, args: tuple[Any, ...]) -> None:
    """Refuse a program whose writes nothing would hold back, where the system has no means to."""
    words = args[0] if event == "os.system" else args[1]
    told = [words] if isinstance(words, (str, bytes, os.PathLike)) else list(words)
    line = os.fsdecode(told[2] if os.path.basename(os.fsdecode(told[0])) == "sh" and len(told) > 2 else told[0])
    if os.path.basename((line.split() or [""])[0]) not in ASKING:
        raise NotModelled(
            f"the program starts {line[:80]!r}: what that writes would be real, as this system has no Landlock (Linux 5.13) to "
            f"hold it back: do it before, and leave it out here"
        )


class Unreached(NotModelled, ConnectionError):
    """There is no network; libraries take it as that, so that those which have what they want in a cache look there."""


def _unreached(host: Any) -> Unreached:
    return Unreached(
        f"the program wants to reach {host}: traced code has no network, so that what it needs from there must be fetched before"
    )


class _WrittenModules(MetaPathFinder):
    """Finds modules that the program wrote, as Hugging Face's packages do with code that comes beside models and metrics."""

    def __init__(self, sandbox: Sandbox):
        self._sandbox = sandbox

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        """Look where the files that would lie in these folders went."""
        folders = [self._sandbox.turned(folder or os.curdir) for folder in (sys.path if path is None else path)]
        return PathFinder.find_spec(fullname, [folder for folder in folders if _EXISTS(folder)])


_EXISTS, _MAKEDIRS = os.path.exists, os.makedirs
