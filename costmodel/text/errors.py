"""Errors made to be read by a person: what was given, what was wanted, what to try."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from costmodel.text.suggestions import did_you_mean

OFFERED = 8
"""Names that a message offers at most."""


class CostModelError(ValueError):
    """Base of every error that costmodel raises on purpose."""


class InvalidValue(CostModelError):
    """A field has a value that it can't have."""

    def __init__(self, field: str, value: object, expected: str):
        self.field, self.value, self.expected = field, value, expected
        super().__init__(f"{field}={_shown(value)}: expected {expected}")


def _shown(value: object) -> str:
    """A value in one short line; of a number with more digits than Python writes, or a list in itself, its type."""
    try:
        shown = repr(value)
    except (ValueError, RecursionError):
        shown = f"<{type(value).__name__}>"
    shown = shown if "\n" not in shown else " ".join(shown.split())
    return shown if len(shown) <= 80 else shown[:77] + "..."


class IllegalPlan(CostModelError):
    """A plan that can't run on this model and cluster; `reason` is a word for counting, the text says why."""

    def __init__(self, reason: str, message: str):
        self.reason = reason
        super().__init__(message)


class NotModelled(CostModelError):
    """Something real that this library doesn't model, refused instead of ignored."""


class UnknownName(CostModelError):
    """A name that the catalogue doesn't hold; `kinds` are those of its entries that have this name, `near` may be meant."""

    def __init__(
        self, kind: str, name: str, known: Iterable[str], kinds: Iterable[str] = (), near: Sequence[str] = (), nor: str = ""
    ):
        where = {"device": f"; it is a device: machine({name!r})", "cluster": f"; it is a cluster: load_cluster({name!r})",
                 "network": f"; it is a network: load_network({name!r})"}  # fmt: skip
        hint = "".join(where.get(other, f"; it is a {other}") for other in kinds)
        if not hint and near:
            more = ", ..." if len(near) > OFFERED else ""
            hint = f"; did you mean {', '.join(near[:OFFERED])}{more}?"
        if not hint and "," in name:
            joined = ", `costmodel search` joins them, as 8xh100+8xa100" if kind in ("device", "cluster") else ""
            hint = f"; it is one name: `costmodel compare` takes several{joined}"
        hint = hint or did_you_mean(kind, name, known, most=4)
        if not hint and kind == "model":
            hint = "; a config.json or a TOML file is taken, too"
        listing = kind if kind == "formula" else f"{kind}s"
        super().__init__(f"no {kind} named {name!r} in the catalogue{nor}{hint} (`costmodel {listing}` lists them)")


class UnreadableFile(CostModelError):
    """A file that is missing, too large or not what it should be."""


class Interrupted(CostModelError):
    """Work that stopped before its end, or that somebody else is at; what was done is kept, and the same call goes on there."""


class IllegalSchedule(CostModelError):
    """A pipeline schedule that can't run; `rank` and `event` say where, the text says why."""

    def __init__(self, rank: int, event: str, message: str):
        self.rank, self.event = rank, event
        super().__init__(f"rank {rank}, {event}: {message}")
