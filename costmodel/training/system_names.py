"""What the literature calls the systems that are compared side by side."""

from __future__ import annotations

_SERVED = tuple(f"parameter server, {how}" for how in ("synchronous", "bounded delay", "asynchronous"))
CALLED: dict[str, tuple[str, ...]] = {
    "dedloc": ("DeDLOC",), "hivemind": ("DeDLOC",), "distbelief": ("Downpour", "Sandblaster"), "downpour-sgd": ("Downpour",),
    "downpour": ("Downpour",), "sandblaster": ("Sandblaster",), "sandblaster-l-bfgs": ("Sandblaster",), "byteps": ("BytePS",),
    "pipedream": ("PipeDream", "PipeDream-2BW"), "gpipe": ("GPipe",), "parameter-server": _SERVED, "parameter-servers": _SERVED,
    "ps": _SERVED, "bounded-delay": _SERVED[1:2], "local-sgd": ("local SGD",), "diloco": ("local SGD",),
    "horovod": ("all-reduce",), "ddp": ("all-reduce",), "data-parallelism": ("all-reduce",), "1f1b": ("1F1B",),
    "zero": ("ZeRO-1", "ZeRO-2", "ZeRO-3"), "tensor-parallelism": ("tensor parallelism",), "best": ("best combination",),
}  # fmt: skip
"""Rows of a comparison by what the literature calls their systems."""


def rows_called(name: str) -> tuple[str, ...]:
    """Rows of a comparison that a system's name stands for; none where it is no system.

    Parameters
    ----------
    name : of a system, such as ``"DistBelief"``, or of a row

    Examples
    --------
    >>> rows_called("DistBelief"), rows_called("zero-1"), rows_called("vgg-16")
    (('Downpour', 'Sandblaster'), ('ZeRO-1',), ())
    """
    word = name.strip().lower().replace("_", "-").replace(" ", "-").replace(",-", "-")
    rows = (*dict.fromkeys(row for known in CALLED.values() for row in known),)
    exact = tuple(row for row in rows if row.lower().replace(", ", "-").replace(" ", "-") == word)
    return CALLED.get(word, exact)
