"""Holds a process: it writes in some folders alone, by Landlock of Linux, which asks for no rights, and outlives nobody."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

CREATE, ADD, RESTRICT = 444, 445, 446
"""Numbers of the system calls, the same on every architecture."""
BENEATH = 1
"""Kind of rule: of what lies beneath a folder."""
NO_NEW_PRIVILEGES, SIGNAL_OF_PARENT = 38, 1
"""What ``prctl`` is asked for: before a process may restrict itself, and to be told that what started it has ended."""
WRITE_FILE, TRUNCATE, REFER = 1 << 1, 1 << 14, 1 << 13
MAKE_AND_REMOVE = sum(1 << bit for bit in range(4, 13))
"""Of files, folders, links, sockets and devices."""
CONNECT = 1 << 1
"""To a server by TCP."""


class _Handled(ctypes.Structure):
    """What a set of rules forbids but where a rule allows it (Linux include/uapi/linux/landlock.h)."""

    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    """What is allowed beneath a folder."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def ends_with_its_parent() -> None:
    """From here on this process is killed when that which started it ends, however that does; on Linux alone."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(SIGNAL_OF_PARENT, int(signal.SIGKILL), 0, 0, 0)


def confined(folders: Iterable[Path]) -> bool:
    """From here on this thread, and what it starts, writes in these folders alone and connects to no server; whether that is so.

    It isn't where the system has no Landlock: on Linux before 5.13, or elsewhere. It can't be taken back.

    Parameters
    ----------
    folders : that may be written, with all that lies beneath

    References
    ----------
    docs.kernel.org/userspace-api/landlock.html
    """
    if not sys.platform.startswith("linux"):
        return False
    system = ctypes.CDLL(None, use_errno=True)
    version = system.syscall(CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < 1:
        return False
    files = WRITE_FILE | MAKE_AND_REMOVE | (REFER if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0)
    handled = _Handled(files, CONNECT if version >= 4 else 0)
    length = ctypes.sizeof(handled) if version >= 4 else ctypes.sizeof(ctypes.c_uint64)
    rules = system.syscall(CREATE, ctypes.byref(handled), ctypes.c_size_t(length), ctypes.c_uint32(0))
    if rules < 0:
        return False
    try:
        for folder in folders:
            place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            try:
                allowed = _Beneath(files, place)
                if system.syscall(ADD, rules, BENEATH, ctypes.byref(allowed), ctypes.c_uint32(0)):
                    return False
            finally:
                os.close(place)
        if system.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            return False
        return bool(system.syscall(RESTRICT, rules, ctypes.c_uint32(0)) == 0)
    finally:
        os.close(rules)
