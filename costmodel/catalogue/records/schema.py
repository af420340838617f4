"""The keys that a record of a run may have, each with what it holds; whatever else is refused by name."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.files import table_of
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.text.errors import InvalidValue, UnreadableFile
from costmodel.text.suggestions import did_you_mean

FILE = "records/schema.toml"
GROUPS = ("model", "cluster", "software", "plan", "assumed", "measured", "use")
"""Keys of a record that hold others."""
SHAPE_GROUPS = ("experts", "latent", "windows")
"""Tables of a model's fields, which are flat in `Transformer`; the number of experts has the name of its table."""
NO_HABITS = {"constants", "name", "server_systems", "own_runs"}
"""Fields of `Framework` that no run differs in."""
LONGEST, MOST_NAMES = 4000, 1000
NOTHING: Mapping[str, Row] = {}


class Field(NamedTuple):
    """A key of a record."""

    key: str  # in its group
    kind: str  # ``"text"``, ``"number"``, ``"whole"``, ``"bits"``, ``"flag"``, ``"names"`` or ``"group"``
    help: str  # what it says
    unit: str = ""  # of a number
    choices: tuple[str, ...] = ()  # that a text has; empty: any
    values: Mapping[str, Row] = NOTHING  # what each value of a text means: fields of Framework and of Plan
    open: bool = False  # other texts may stand there, too
    framework: str = ""  # framework, plan: the field that takes the value as it is, or its bits as bytes; empty: none
    plan: str = ""

    @property
    def allowed(self) -> tuple[str, ...]:
        """Texts that may stand there; empty: any."""
        return () if self.open else (*self.choices, *self.values)


@functools.cache
def schema() -> dict[str, dict[str, Field]]:
    """Fields by group and key; those of ``"record"`` stand beside the groups."""
    found: dict[str, dict[str, Field]] = {}
    for group, entries in table_of(FILE).items():
        found[group] = {
            key: Field(key, **{**entry, "choices": tuple(entry.get("choices", ()))}) for key, entry in entries.items()
        }
    return found


@functools.cache
def fields_of(kind: type) -> frozenset[str]:
    """Names of the fields of a dataclass."""
    return frozenset(field.name for field in dataclasses.fields(kind))


def check(record: Mapping[str, object]) -> None:
    """Refuse what no record may have, by name.

    Parameters
    ----------
    record : as a file has it, nested

    Raises
    ------
    UnreadableFile
        for a key that isn't known
    InvalidValue
        for a value that its key can't have
    """
    table = schema()
    _known("", record, (*table["record"], *GROUPS))
    for key, field in table["record"].items():
        if key in record:
            check_value(key, record[key], field)
    for group in GROUPS:
        entries = record.get(group, {})
        if group == "model" and isinstance(entries, str):
            continue
        if not isinstance(entries, Mapping):
            raise InvalidValue(group, entries, "a table of its keys")
        _check_group(group, entries)


class _Keys(NamedTuple):
    """What a group may hold: keys of the schema, dotted, and names that a class of the library checks itself."""

    own: Mapping[str, Field]
    others: frozenset[str]
    tables: frozenset[str]


@functools.cache
def _keys_of(group: str) -> _Keys:
    table, tables = schema(), frozenset[str]()
    own: Mapping[str, Field] = table.get(group, {})
    others = frozenset[str]()
    if group == "plan":
        others = fields_of(Plan)
    elif group == "model":
        others, tables = fields_of(Transformer), frozenset(SHAPE_GROUPS)
    elif group == "assumed":
        own, others = table["software"] | table["cluster"], fields_of(Plan)
    tables |= frozenset(key.split(".")[0] for key in own if "." in key)
    return _Keys(own, others, tables)


def _check_group(group: str, entries: Mapping[str, object], inside: str = "") -> None:
    keys = _keys_of(group)
    for key, value in entries.items():
        dotted = f"{inside}.{key}" if inside else key
        field = keys.own.get(dotted)
        if field is not None:
            if value is not None:
                check_value(f"{group}.{dotted}", value, field)
            if field.kind == "group" and value is not None:
                _known(f"{group}.{key}", value, fields_of(Framework) - NO_HABITS)  # type: ignore[arg-type]
        elif key in keys.tables and not inside and isinstance(value, Mapping):
            _check_group(group, value, key)
        elif not (inside in ("", *SHAPE_GROUPS) and key in keys.others):
            _known(f"{group}.{inside}" if inside else group, {key: value}, {*keys.own, *keys.others, *keys.tables})


def _known(where: str, entries: Mapping[str, object], known: Collection[str]) -> None:
    for key in entries:
        if key not in known:
            name = f"{where}.{key}" if where else str(key)
            raise UnreadableFile(f"{name[:120]}: no such key in a record of a run{did_you_mean('key', str(key), sorted(known))}")


def check_value(name: str, value: object, field: Field) -> None:
    """Refuse a value that a key can't have.

    Parameters
    ----------
    name : of the key, dotted
    value : that it has; None, which is not known, is taken everywhere
    field : of the schema

    Raises
    ------
    InvalidValue
        with what was expected
    """
    if value is None:
        return
    wanted = _unlike(value, field)
    if wanted:
        near = did_you_mean(name.rpartition(".")[2], value, field.allowed) if isinstance(value, str) and field.allowed else ""
        raise InvalidValue(name, value, wanted + near)


def _unlike(value: object, field: Field) -> str:
    """What was expected where a value isn't it; empty where it is."""
    number = type(value) in (int, float) and math.isfinite(value) and value >= 0  # type: ignore[arg-type, operator]
    if field.kind == "flag":
        return "" if isinstance(value, bool) else "true or false"
    if field.kind in ("whole", "bits"):
        return "" if number and value == int(value) else "a whole number"  # type: ignore[call-overload]
    if field.kind == "number":
        return "" if number else f"a number{' of ' + field.unit if field.unit else ''}"
    if field.kind == "names":
        texts = isinstance(value, (list, tuple)) and len(value) <= MOST_NAMES and all(isinstance(one, str) for one in value)
        return "" if texts else "a list of names"
    if field.kind == "group":
        return "" if isinstance(value, Mapping) else "a table of its keys"
    if not isinstance(value, str) or len(value) > LONGEST:
        return "a text"
    return "" if not field.allowed or value in field.allowed else "one of " + ", ".join(field.allowed)


LIKE = {"model": "Transformer"}
"""Groups that have the fields of a class."""


def described() -> str:
    """Every key that a record may have, a line each: name, kind or unit, what it says, and the values that it takes."""
    lines = []
    for group, fields in schema().items():
        prefix = "" if group == "record" else f"{group}."
        if group in LIKE:
            lines.append(f"{prefix}*: every field of {LIKE[group]} by its name")
        lines += [_line(prefix + key, field) for key, field in fields.items()]
    lines.insert(len(schema()["record"]), "plan.*: every field of Plan by its name")
    return "\n".join([*lines, "assumed.*: keys of plan, software and cluster that nothing states, as documented or usual"])


def _line(name: str, field: Field) -> str:
    what = field.unit or {"names": "list of names", "flag": "true or false", "group": "table"}.get(field.kind, field.kind)
    values = ", ".join((*field.choices, *field.values))
    return f"{name} [{what}]: {field.help}" + (f"; {'for example' if field.open else 'one of'} {values}" if values else "")
