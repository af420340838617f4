"""The formulas of a step and of its legality in JavaScript, printed once and kept on disk until a source changes."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from costmodel import formulas
from costmodel.formulas import discrepancy
from costmodel.formulas.legality import violations
from costmodel.formulas.network import communication
from costmodel.formulas.pipeline import layout
from costmodel.formulas.stage import outside_passes, stage_pass
from costmodel.page.question import STEPS

PRINTED: tuple[Callable[..., object], ...] = (*STEPS, violations, discrepancy.correlation)
PLAYED: tuple[Callable[..., object], ...] = (
    stage_pass, outside_passes, layout.rank_shares, layout.chunks, layout.micro_batches, communication.boundary_parts,
)  # fmt: skip
"""Those of a timeline."""
ROOT = Path(formulas.__file__).parent


def _digest() -> str:
    """Of every source that printed formulas depend on."""
    digest = hashlib.sha256(metadata.version("sympy").encode())
    for path in sorted([*ROOT.rglob("*.py"), *ROOT.parent.glob("ops.py"), *ROOT.parent.glob("symbolic*"), Path(__file__)]):
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()[:16]


def javascript(printed: Sequence[Callable[..., object]] = PRINTED) -> str:
    """Formulas as JavaScript functions of their own names.

    They are printed through `costmodel.symbolic`, which takes some seconds; the text is kept in the user's cache, under a
    digest of the sources, where one can be written.

    Parameters
    ----------
    printed : the formulas
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(os.environ.get("COSTMODEL_CACHE_DIR") or Path(base) / "costmodel")
    kept = folder / f"{printed[0].__name__}-{_digest()}.js"
    try:
        if kept.stat().st_uid == os.getuid():
            return kept.read_text(encoding="utf-8")
    except OSError:
        pass  # not there yet
    from costmodel import symbolic

    text = "\n".join(symbolic.javascript(formula) for formula in printed) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
            file.write(text)
        os.replace(file.name, kept)
    except OSError:
        pass  # printed again next time
    return text


__all__ = ["PLAYED", "PRINTED", "javascript"]
