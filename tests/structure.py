"""How the library is laid out: ``python -m tests.structure`` prints rooms, arrows between them, and circles; in how many files
a field of a plan is named; functions that are too long; names that two classes have; how many lines of Python there are.

A room is a folder of the package, or a module that stands in none. An arrow is an import between two of them, whether it is
made on top, inside a function, or for the type checker alone; without circles none of them leads upward.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp
import numpy as np
from scipy.sparse.csgraph import connected_components

from costmodel import Plan

ROOT = Path(__file__).resolve().parents[1] / "costmodel"
LONGEST = 100
"""Lines of a function, its docstring among them, beyond which it is too long."""
DOORS = {"", "__main__", "callbacks"}
"""The package itself, the command that runs it, what training loops call: whoever comes in, comes through them."""

Graph = dict[str, set[str]]


def arrows_of_modules(package: str = "costmodel") -> Graph:
    """Imports between modules of a package, by their dotted names below it."""
    graph = grimp.build_graph(package, cache_dir=None)

    def below(module: str) -> str:
        return module.partition(".")[2]

    return {below(one): set(map(below, graph.find_modules_directly_imported_by(one))) for one in graph.modules}


def room(module: str) -> str:
    """The folder in which a module stands, or its own name."""
    return module.split(".")[0]


def arrows_of_rooms(package: str = "costmodel") -> Graph:
    """Imports between rooms, but for the doors."""
    found: Graph = defaultdict(set)
    for module, targets in arrows_of_modules(package).items():
        if room(module) not in DOORS:
            found[room(module)] |= {room(target) for target in targets} - {room(module)}
    return dict(found)


def circles(graph: Graph) -> list[set[str]]:
    """Groups of nodes each of which leads to all others of its group."""
    nodes = sorted(graph.keys() | set().union(*graph.values()))
    leads = np.array([[target in graph.get(node, ()) for target in nodes] for node in nodes])
    many, group = connected_components(leads, connection="strong")
    found = [{node for node, of in zip(nodes, group, strict=True) if of == one} for one in range(many)]
    return [one for one in found if len(one) > 1]


def files_of_fields() -> dict[str, list[str]]:
    """For each field of a plan the files of the package that contain its name as a word."""
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}
    words = {file: set(re.findall(r"\w+", text)) for file, text in texts.items()}
    names = [field.name for field in dataclasses.fields(Plan)]
    return {name: sorted(file for file, said in words.items() if name in said) for name in names}


@functools.cache
def _definitions() -> list[tuple[Path, ast.AST]]:
    """Functions and classes of the house, and the files that have them."""
    each = ((path, ast.parse(path.read_text(encoding="utf-8"))) for path in ROOT.rglob("*.py"))
    return [(path, node) for path, tree in each for node in _defined(tree)]


def _defined(around: ast.AST) -> Iterator[ast.AST]:
    """Functions and classes in a tree, outside expressions."""
    for node in ast.iter_child_nodes(around):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node
        if not isinstance(node, ast.expr):
            yield from _defined(node)


def long_functions() -> dict[str, int]:
    """Functions with more than `LONGEST` lines, and how many they have."""
    return {
        f"{path.relative_to(ROOT)} {node.name}": lines
        for path, node in _definitions()
        if isinstance(node, ast.FunctionDef) and (lines := (node.end_lineno or 0) - node.lineno + 1) > LONGEST
    }  # fmt: skip


def shared_names() -> dict[str, list[str]]:
    """Names that more than one class has, and the files that have it."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, node in _definitions():
        if isinstance(node, ast.ClassDef):
            found[node.name].append(str(path.relative_to(ROOT)))
    return {name: sorted(files) for name, files in sorted(found.items()) if len(files) > 1}


def lines_of_folders() -> dict[str, dict[str, int]]:
    """Lines of Python in each folder of the package, of what is not installed with it, and of the tests."""
    found: dict[str, dict[str, int]] = {}
    for base in (ROOT, *(ROOT.parent / name for name in ("calibration", "experiments", "tests"))):
        folders = found.setdefault(base.name, defaultdict(int))
        for path in base.rglob("*.py"):
            inside = path.relative_to(base).parts
            folders[inside[0] if len(inside) > 1 else "."] += len(path.read_text(encoding="utf-8").splitlines())
    return found


def lines_of_data() -> dict[str, int]:
    """Lines of each file of the catalogue's data, those of models left out."""
    return {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "catalogue").rglob("*.*")
        if path.suffix in {".csv", ".json", ".jsonl", ".toml"} and path.parent.name != "models"
    }  # fmt: skip


def median_of_files() -> float:
    """In how many files a field of a plan is named, in the median."""
    return statistics.median(map(len, files_of_fields().values()))


def main() -> int:
    """Print the house as it stands; 1 where a circle is left."""
    rooms = arrows_of_rooms()
    files = {name: targets for name, targets in arrows_of_modules().items() if name not in DOORS}
    of_rooms, of_files = circles(rooms), circles(files)
    to_the_door = sorted(name for name, targets in files.items() if "" in targets)
    print(f"rooms {len(rooms)}, arrows {sum(map(len, rooms.values()))}, circles of rooms {len(of_rooms)}, "
          f"circles of files {len(of_files)}, files that import the package itself {len(to_the_door)}")  # fmt: skip
    for name, targets in sorted(rooms.items()):
        print(f"{name:20} -> {' '.join(sorted(targets))}")
    for group in (*of_rooms, *of_files):
        print("circle:", " ".join(sorted(group)))
    for name in to_the_door:
        print("imports the package itself:", name)
    named = sorted(files_of_fields().items(), key=lambda item: len(item[1]))
    print(f"a field of Plan is named in {median_of_files():g} files (median of {len(named)}):",
          ", ".join(f"{name} {len(files)}" for name, files in named))  # fmt: skip
    for name, folders in lines_of_folders().items():
        print(f"{name} has {sum(folders.values()):,} lines:",
              ", ".join(f"{folder} {lines:,}" for folder, lines in sorted(folders.items(), key=lambda one: -one[1])))  # fmt: skip
    data = sorted(lines_of_data().items(), key=lambda one: -one[1])
    print(f"the catalogue has {sum(lines for _, lines in data):,} lines of data besides models:",
          ", ".join(f"{name} {lines:,}" for name, lines in data))  # fmt: skip
    for name, lines in long_functions().items():
        print(f"longer than {LONGEST} lines: {name} ({lines})")
    for name, places in shared_names().items():
        print(f"several classes {name}: {', '.join(places)}")
    return 1 if of_rooms or of_files else 0


if __name__ == "__main__":
    sys.exit(main())
