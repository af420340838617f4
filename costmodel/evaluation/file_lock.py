"""One writer of a file at a time, by a lock of the operating system's, which ends with its process, whatever ends that.

Locks are those of `fcntl.lockf`: they hold between the machines of a network file system, and a process that is forked off (a
worker of a pool) doesn't inherit them. They don't tell the threads of a process from one another, so these are told apart here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from costmodel.text.errors import Interrupted, NotModelled

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_TAKEN = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_WITHOUT = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_FAR = 1 << 30
"""Where Windows locks a byte: what is written in the file can be read all the while."""
_HERE: set[str] = set()
"""Locks that threads of this process hold."""
_THREADS = threading.Lock()


@contextlib.contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Hold a file's lock, a file beside it; what a killed process leaves of it is taken up.

    Parameters
    ----------
    path : of the file that is to be written

    Raises
    ------
    Interrupted
        where somebody else holds it
    NotModelled
        where the file system has no locks
    """
    lock = path.with_name(path.name + ".lock")
    name = str(lock.resolve())
    with _THREADS:
        if name in _HERE:
            raise _busy(path, f"another thread of this process ({os.getpid()})")
        _HERE.add(name)
    try:
        file = _locked(path, lock)
        try:
            yield
        finally:
            _release(file, lock)
    finally:
        with _THREADS:
            _HERE.remove(name)


def _locked(path: Path, lock: Path) -> int:
    """The lock's file, open and locked."""
    while True:
        file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(file)
        except OSError as error:
            os.close(file)
            if error.errno in _TAKEN:
                raise _busy(path, _holder(lock)) from None
            if error.errno in _WITHOUT:
                raise NotModelled(
                    f"{path}: its file system has no locks ({error.strerror}), which keep writers apart: give a file elsewhere"
                ) from None
            raise
        if _same(file, lock):
            os.ftruncate(file, 0)
            os.write(file, f"process {os.getpid()} on {platform.node()}".encode())
            return file
        os.close(file)  # who held it before removed it in between


def _lock(file: int) -> None:
    """Lock an open file, or raise what the operating system says."""
    if sys.platform == "win32":
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_SET)
    else:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _release(file: int, lock: Path) -> None:
    """Remove the lock's file while it is held, so that nobody locks one that is gone."""
    if sys.platform != "win32":
        lock.unlink(missing_ok=True)
        os.close(file)
        return
    os.close(file)
    with contextlib.suppress(PermissionError):  # somebody else has opened it by now, and removes it
        lock.unlink(missing_ok=True)


def _same(file: int, lock: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(lock))
    except FileNotFoundError:
        return False


def _holder(lock: Path) -> str:
    """Who holds a lock, as it wrote."""
    try:
        return lock.read_text(encoding="utf-8", errors="replace")[:200] or "another process"
    except FileNotFoundError:
        return "another process"


def _busy(path: Path, holder: str) -> Interrupted:
    return Interrupted(f"{path}: {holder} is writing it; once that ends, the same call goes on from what it has kept")
