"""Where compiled code is kept: a folder that is named by a digest of the sources it was made of."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from pathlib import Path

from costmodel.text import progress

PACKAGE = Path(__file__).parent.parent


def source_digest() -> str:
    """Digest of every source a kernel can depend on."""
    digest = hashlib.sha256()
    patterns = ("formulas/**/*.py", "compilation/*.py", "arithmetic/*.py", "**/*kernel.py")
    for path in sorted({path for pattern in patterns for path in PACKAGE.glob(pattern)}):
        digest.update(str(path.relative_to(PACKAGE)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def cache_folder() -> Path | None:
    """A folder of this user's own for compiled kernels, or None where none can be written."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(os.environ.get("COSTMODEL_CACHE_DIR") or Path(base) / "costmodel") / source_digest()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.stat().st_uid != os.getuid():
            return None
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


@functools.cache
def tell_compiling() -> None:
    """Say, once in a process, what it waits for."""
    kept = "once after an installation" if cache_folder() is not None else "every time, as no folder to keep them can be written"
    progress.report(f"compiling kernels, {kept}: up to a minute")


def is_kept(*programs: str) -> bool:
    """Whether a folder of this user's own has the vector code of programs, for a machine of any kind.

    Parameters
    ----------
    programs : their names, as `costmodel.compilation.programs` gives them
    """
    folder = cache_folder()
    return folder is not None and all(any(folder.glob(f"{name}-????????????.code")) for name in programs)
