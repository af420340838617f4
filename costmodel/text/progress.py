"""What takes long says so, to whom it concerns: nobody, unless a program listens."""

from __future__ import annotations

from collections.abc import Callable

LISTENERS: list[Callable[[str], None]] = []
"""Called with a line for a person; the command line is one where somebody looks at its stderr."""


def report(message: str) -> None:
    """Pass a line on to whoever listens.

    Parameters
    ----------
    message : what is being done, and how long that may take

    Examples
    --------
    >>> heard = []
    >>> LISTENERS.append(heard.append)
    >>> report("compiling")
    >>> LISTENERS.remove(heard.append)
    >>> heard
    ['compiling']
    """
    for listener in LISTENERS:
        listener(message)
