"""Charts as data: a drawing in which numbers and words are named, filled in here or by the script of a page.

A specification is Plotly's plain data and layout with four kinds of entries to fill:

- `of`: a value by its path in what is shown;
- a text with paths between braces, but for Plotly's own ``%{...}``;
- `each`: in a list, an entry for every value of a list, which is called ``it`` there;
- `when`: an entry that is there only where a value is.

``page/static/charts.js`` fills the same specifications in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

NAMED = re.compile(r"(?<!%)\{([a-z_.]+)\}")


def of(path: str) -> dict[str, str]:
    """An entry that stands for a value.

    Parameters
    ----------
    path : names with dots between them
    """
    return {"of": path}


def each(path: str, give: object) -> dict[str, object]:
    """Entries of a list, one for every value of another list.

    Parameters
    ----------
    path : of that list
    give : the entry, in which ``it`` is the value
    """
    return {"each": path, "give": give}


def when(path: str, give: object) -> dict[str, object]:
    """An entry that is left out where a value is empty, zero, false or none.

    Parameters
    ----------
    path : of the value
    give : the entry
    """
    return {"when": path, "give": give}


def named(shown: Any) -> dict[str, Any]:
    """The fields and properties of what is shown, by name.

    Parameters
    ----------
    shown : a record
    """
    derived = (name for name, value in vars(type(shown)).items() if isinstance(value, property))
    return {**shown._asdict(), **{name: getattr(shown, name) for name in derived}}


def filled(specification: Any, shown: Mapping[str, Any]) -> Any:
    """A specification with its numbers and words.

    Parameters
    ----------
    specification : or a part of it
    shown : values by name; records among them by the names of their fields

    Examples
    --------
    >>> chart = {"y": of("held"), "name": "in {unit}, %{y}", "lines": [each("limits", {"at": of("it")}), when("none", "never")]}
    >>> filled(chart, {"held": [1, 2], "unit": "GiB", "limits": [3], "none": ()})
    {'y': [1, 2], 'name': 'in GiB, %{y}', 'lines': [{'at': 3}]}
    """
    if isinstance(specification, str):
        return NAMED.sub(lambda found: str(_value(shown, found[1])), specification)
    if isinstance(specification, list | tuple):
        return [entry for part in specification for entry in _entries(part, shown)]
    if not isinstance(specification, dict):
        return specification
    if specification.keys() == {"of"}:
        return _value(shown, specification["of"])
    pairs = ((name, list(_entries(part, shown))) for name, part in specification.items())
    return {name: entries[0] for name, entries in pairs if entries}


def _entries(part: Any, shown: Mapping[str, Any]) -> Iterator[Any]:
    keys = part.keys() if isinstance(part, dict) else ()
    if keys == {"each", "give"}:
        for it in _value(shown, part["each"]):
            yield filled(part["give"], {**shown, "it": it})
    elif keys == {"when", "give"}:
        value = _value(shown, part["when"])
        if value if not hasattr(value, "__len__") else len(value):
            yield filled(part["give"], shown)
    else:
        yield filled(part, shown)


def _value(shown: Mapping[str, Any], path: str) -> Any:
    value: Any = shown
    for name in path.split("."):
        value = value[name] if isinstance(value, Mapping) else getattr(value, name)
    return value
