"""What a dialect is: a table of flags, each with its field, unit, default, versions, and the rules between them."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from costmodel.interop.launchers.values import Unit

if TYPE_CHECKING:
    from costmodel.interop.launchers.reading import Reading
    from costmodel.interop.launchers.writing import Writing


class Row(NamedTuple):
    """One flag of a framework."""

    flags: str
    """Spellings, separated by blanks; the first is written. Dots lead into sections."""
    field: str
    """Field of the launch that it states; one that starts with an underscore is for the dialect's rules."""
    unit: Unit
    """How its value is read."""
    default: object = None
    """The framework's own, where it isn't given."""
    versions: str = ""
    """Of the framework that have it, where not all do."""


def words(text: str) -> frozenset[str]:
    """Names of a text, separated by blanks."""
    return frozenset(text.split())


UNSPLIT: Mapping[str, object] = {
    "tensor_parallel": 1, "pipeline_parallel": 1, "context_parallel": 1, "expert_parallel": 1, "virtual_stages": 1,
    "sequence_parallel": False,
}  # fmt: skip
"""How a model is split where nothing splits it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dialect:
    """How one framework spells a run.

    Parameters
    ----------
    name : what `write_launch` and the command line call it
    framework : what a launch says it is for
    source : repository, file and version that the table was read from
    rows : flags that state a field
    unpriced : flags that change time or memory in a way that isn't modelled
    irrelevant : flags that change neither; both can hold patterns with ``*``
    signature : flags that only this dialect has: they count more when a file's dialect is guessed
    rules : what follows from several flags
    defaults : fields of a plan that the framework fills where the file is silent
    write : says a plan in this dialect
    layout : in which it is written: ``"args"``, ``"yaml"``, ``"json"`` or ``"toml"``
    reads : layouts that it can be read from
    part : whether its files complete another's
    software : entry of the catalogue's frameworks that prices it
    leaves : whether a key is known by its last part alone
    dashes : whether dashes and underscores are the same in the keys of a tree
    """

    name: str
    framework: str
    source: str
    rows: tuple[Row, ...]
    unpriced: frozenset[str] = frozenset()
    irrelevant: frozenset[str] = frozenset()
    signature: frozenset[str] = frozenset()
    rules: Callable[[Reading], None]
    defaults: Mapping[str, object]
    write: Callable[[Writing], None] | None = None
    layout: str
    reads: frozenset[str] = frozenset({"yaml", "json", "toml"})
    part: bool = False
    software: str
    leaves: bool = False
    dashes: bool = False

    def __post_init__(self) -> None:
        """A row outranks what its table lists as unpriced, and that what it lists as irrelevant."""
        flags = {spelling for row in self.rows for spelling in row.flags.split()}
        object.__setattr__(self, "unpriced", self.unpriced - flags)
        object.__setattr__(self, "irrelevant", self.irrelevant - flags - self.unpriced)

    @functools.cached_property
    def index(self) -> dict[str, Row]:
        """Rows by spelling."""
        return {spelling: row for row in self.rows for spelling in row.flags.split()}

    def standing(self, key: str) -> str:
        """Whether a key is ``"row"``, ``"unpriced"``, ``"irrelevant"`` or ``"unknown"``."""
        if key in self.index:
            return "row"
        for name, known, patterns in (
            ("unpriced", self.unpriced, self._patterns[0]),
            ("irrelevant", self.irrelevant, self._patterns[1]),
        ):
            if key in known or patterns.fullmatch(key):
                return name
        return "unknown"

    @functools.cached_property
    def _patterns(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """What matches the names with stars of the two lists."""
        first, second = (
            re.compile(
                "|".join(re.escape(name).replace(r"\*", ".*") for name in sorted(names) if "*" in name)
                or r"(?!)",
                re.DOTALL,
            )
            for names in (self.unpriced, self.irrelevant)
        )
        return first, second
