"""Launch files that are trees: JSON with comments, TOML and YAML, read within limits and laid flat."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from costmodel.interop.launchers.shell import LARGEST, expand
from costmodel.text import user_files
from costmodel.text.errors import CostModelError, UnreadableFile

MAX_ENTRIES = 5_000
MAX_DEPTH = 40
MAX_KEY = 500
"""Characters of a key."""
MAX_TWICE = 100
"""Keys that a file states twice, and mappings that one merges into others."""
MAX_DIGITS = 40
MAX_UNFOLDED = 4 << 20
"""Characters of a YAML file with all that its aliases and references repeat."""
MAX_LOOKED_UP = 20_000
"""References that are looked up."""


class Entry(NamedTuple):
    """One statement: its key as tables spell it, its value, and how the file shows it."""

    key: str
    raw: object
    shown: str
    emptied: str = ""
    """Variables in place of a value that are set to nothing."""


def parse(text: str, layout: str, name: str, twice: list[str]) -> dict[str, object]:
    """The table of names and values that a text holds.

    Parameters
    ----------
    text, layout, name : of the file
    twice : to which the statements are added that it makes twice, differently
    """
    try:
        if layout == "json":
            tree = read_json(text, twice)
        elif layout == "toml":
            tree = user_files.toml(name, text)
        else:
            tree = _yaml(text, name, twice)
    except RecursionError:
        raise UnreadableFile(f"{name}: nested too deeply") from None
    except (ValueError, OverflowError) as error:
        if isinstance(error, CostModelError):
            raise UnreadableFile(str(error) if str(error).startswith(name) else f"{name}: {error}") from None
        raise UnreadableFile(f"{name}: not {layout.upper()}: {' '.join(str(error).split())[:200]}") from None
    if user_files.deeper(tree, MAX_DEPTH):
        raise UnreadableFile(f"{name}: nested deeper than {MAX_DEPTH} levels")
    if not isinstance(tree, dict):
        raise UnreadableFile(f"{name}: a {layout.upper()} table of names and values was expected")
    return tree


JSON_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z)|\b[A-Z][A-Z0-9_]+\b', re.DOTALL)
LAST_COMMA = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|,(?=\s*[}\]])')


def read_json(text: str, twice: list[str]) -> object:
    """A text as JSON; where it is none, without comments and commas after a last element, its bare words taken for variables."""

    def read(text: str) -> object:
        return json.loads(text, object_pairs_hook=lambda pairs: _table(pairs, twice), parse_constant=_constant)

    def plain(match: re.Match[str]) -> str:
        token = match[0]
        return token if token[0] == '"' else f'"${token}"' if token[0].isalpha() else " "

    try:
        return read(text)
    except json.JSONDecodeError:
        twice.clear()
        bare = LAST_COMMA.sub(lambda match: match[0] if match[0][0] == '"' else "", JSON_TOKEN.sub(plain, text))
        if bare == text:
            raise
        return read(bare)


def _constant(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _table(pairs: Sequence[tuple[object, object]], twice: list[str]) -> dict[str, object]:
    table: dict[str, object] = {}
    for key, value in pairs:
        if table.get(str(key)) is not None and table[str(key)] != value:
            twice.append(f"{str(key)[:MAX_KEY]}={_short(table[str(key)])} and {str(key)[:MAX_KEY]}={_short(value)}")
            if len(twice) > MAX_TWICE:
                raise UnreadableFile(f"more than {MAX_TWICE} keys are stated twice")
        table[str(key)] = value
    return table


def _short(value: object) -> str:
    return (reprlib.repr if isinstance(value, dict | list) else repr)(value)[:60]


def _yaml(text: str, name: str, twice: list[str]) -> object:
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """The safe loader, which says of a key that it comes twice."""

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[str, object]:
        loader.flatten_mapping(node)
        pairs = [
            (loader.construct_object(key, deep=True), loader.construct_object(value, deep=True))
            for key, value in node.value
        ]
        return _table(pairs, twice)

    def number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> object:
        if len(node.value) > MAX_DIGITS:  # of sixties, 1:59:59..., the time would be quadratic
            return node.value
        return loader.construct_yaml_int(node) if node.tag.endswith(":int") else loader.construct_yaml_float(node)

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    Loader.add_constructor("tag:yaml.org,2002:int", number)
    Loader.add_constructor("tag:yaml.org,2002:float", number)
    try:
        _bounded(yaml.parse(text, Loader), name)
        documents = [document for document in yaml.load_all(text, Loader) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or "unreadable").split())[:200]
        raise UnreadableFile(f"{name}{where}: not YAML: {problem}") from None
    except (IndexError, KeyError, AttributeError, TypeError):  # what PyYAML makes of `!!int ''` and its like
        raise UnreadableFile(f"{name}: not YAML: a value is not of the kind that its tag says") from None
    if len(documents) > 1:
        raise UnreadableFile(f"{name}: {len(documents)} YAML documents; one was expected")
    return documents[0] if documents else {}


def _bounded(events: Iterable[Any], name: str) -> None:
    """Refuse a YAML file that is nested too deeply or, its aliases unfolded, too long, before anything is built of it."""
    import yaml

    sizes: dict[str, int] = {}
    holders: list[tuple[str | None, int]] = [(None, 0)]
    merged = 0
    for event in events:
        size, anchor = 8, getattr(event, "anchor", None)
        if isinstance(event, yaml.CollectionStartEvent):
            if len(holders) > MAX_DEPTH:
                raise UnreadableFile(f"{name}: nested deeper than {MAX_DEPTH} levels")
            if anchor is not None:
                sizes[anchor] = MAX_UNFOLDED  # within itself it has no end
            holders.append((anchor, size))
            continue
        if isinstance(event, yaml.AliasEvent):
            size += sizes.get(str(anchor), 0)
            anchor = None
        elif isinstance(event, yaml.ScalarEvent):
            size += len(event.value)
            merged += event.value == "<<"
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = holders.pop()
        if anchor is not None:
            sizes[anchor] = size
        holders[-1] = (holders[-1][0], holders[-1][1] + size)
        if merged > MAX_TWICE:
            raise UnreadableFile(f"{name}: more than {MAX_TWICE} mappings merged into others, which no launch file has")
        if holders[-1][1] >= MAX_UNFOLDED:
            raise UnreadableFile(f"{name}: with its aliases more than {MAX_UNFOLDED} characters, which no launch file has")


def flat(tree: Mapping[str, object], name: str) -> list[Entry]:
    """The leaves of a tree, with dots in their keys; a list is a leaf."""
    found: list[Entry] = []

    def walk(node: Mapping[str, object], prefix: str) -> None:
        for key, value in node.items():
            path = f"{prefix}{key}"
            if len(path) > MAX_KEY:
                raise UnreadableFile(f"{name}: a key of more than {MAX_KEY} characters, {path[:60]}...")
            if isinstance(value, dict) and value:
                walk(value, f"{path}.")
                continue
            if len(found) == MAX_ENTRIES:
                raise UnreadableFile(f"{name}: more than {MAX_ENTRIES} entries, which no launch file has")
            found.append(Entry(path, value, path))

    walk(tree, "")
    return found


PRODUCT = re.compile(r"\$\{multiply:([^,]*+),(.*)\}", re.DOTALL)
REFERENCE = re.compile(r"\$\{(\.*+)([\w.\-]{1,500})\}")


def resolve_tree(tree: dict[str, object], variables: Mapping[str, str], name: str) -> dict[str, object]:
    """Replace references such as ``${model.seq_length}`` by what they point to; those that point nowhere stay.

    Parameters
    ----------
    tree : as `parse` gives it
    variables : by name, beside the tree's own values
    name : of the file
    """
    looked_up, length = 0, 0

    def counted(value: object) -> object:
        nonlocal length
        length += _length(value)
        if length > MAX_UNFOLDED:
            raise UnreadableFile(f"{name}: its references stand for more than {MAX_UNFOLDED} characters")
        return value

    def find(path: str) -> object:
        for parts in (path.split("."), path.split(".")[1:]):
            value: object = tree
            for part in parts:
                value = value.get(part) if isinstance(value, dict) else None
            if parts and value is not None and not isinstance(value, dict):
                return value
        return None

    def value_of(text: str, place: list[str], depth: int) -> object:
        nonlocal looked_up
        looked_up += 1
        if looked_up > MAX_LOOKED_UP:
            raise UnreadableFile(f"{name}: more than {MAX_LOOKED_UP} references, which no launch file has")
        counted(text)
        if depth > 8:
            return text
        if product := PRODUCT.fullmatch(text.strip()):
            first, second = (value_of(part.strip(), place, depth + 1) for part in product.groups())
            try:
                return counted(_product(first, second))
            except (ValueError, OverflowError):
                return text
        whole = REFERENCE.fullmatch(text.strip())
        if whole is None:
            return counted(expand(text, variables)) if "$" in text else text
        dots, path = whole.groups()
        if path in variables:
            return counted(variables[path])
        found = find(".".join([*place[: len(place) - len(dots)], path]) if dots else path)
        if isinstance(found, str) and "${" in found:
            return value_of(found, place, depth + 1)
        return text if found is None else counted(found)

    def walk(node: object, place: list[str]) -> object:
        if isinstance(node, dict) and len(place) < MAX_DEPTH:
            return {key: walk(value, [*place, key]) for key, value in node.items()}
        return value_of(node, place, 0) if isinstance(node, str) and "$" in node else node

    return {key: walk(value, [key]) for key, value in tree.items()}


def _product(first: object, second: object) -> int:
    """The product of two whole numbers or their texts; ValueError where they are none, or of a size that no file means."""
    if not isinstance(first, str | int | float) or not isinstance(second, str | int | float):
        raise ValueError("no numbers")
    one, other = int(first), int(second)
    if max(abs(one), abs(other)) > LARGEST:
        raise ValueError("too large")
    return one * other


def _length(value: object) -> int:
    """Characters of a value, about."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(str(key)) + _length(inner) for key, inner in value.items())
    return sum(map(_length, value)) if isinstance(value, list) else 8
