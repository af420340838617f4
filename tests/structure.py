"""How the rooms of the library hang together: ``python -m tests.structure`` prints rooms, arrows, upward arrows and circles.

A room is a folder of the package, or a module that stands in none. An arrow is an import between two of them, whether it is
made on top, inside a function, or for the type checker alone. Floors are those that leave the fewest arrows upward.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "costmodel"
DOORS = {"", "__main__"}
"""The package itself and the command that runs it: whoever comes in, comes through them."""

Graph = dict[str, set[str]]


def modules() -> dict[str, Path]:
    """Modules of the package by their dotted names below it."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, names: Iterable[str]) -> Iterator[str]:
    """Modules of the package that a file imports, wherever it does so."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name == "costmodel" or one.name.startswith("costmodel."):
                    yield one.name.partition(".")[2]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "costmodel":
            base = (node.module or "").partition(".")[2]
            for one in node.names:
                inside = f"{base}.{one.name}".strip(".")
                yield inside if inside in names else base


def arrows_of_modules() -> Graph:
    """Imports between modules."""
    known = modules()
    return {name: set(imported(path, known)) - {name} for name, path in known.items()}


def room(module: str) -> str:
    """The folder in which a module stands, or its own name."""
    return module.split(".")[0]


def arrows_of_rooms() -> Graph:
    """Imports between rooms, but for the doors."""
    found: Graph = defaultdict(set)
    for module, targets in arrows_of_modules().items():
        if module not in DOORS:
            found[room(module)] |= {room(target) for target in targets} - {room(module)}
    return dict(found)


def circles(graph: Graph) -> list[set[str]]:
    """Groups of nodes each of which leads to all others of its group (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = set()
            while node not in group:
                group.add(stack.pop())
            if len(group) > 1:
                found.append(group)

    sys.setrecursionlimit(10_000)
    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def main() -> int:
    """Print the house as it stands; 1 where a circle is left."""
    rooms, files = arrows_of_rooms(), arrows_of_modules()
    files = {name: targets for name, targets in files.items() if name not in DOORS}
    of_rooms, of_files = circles(rooms), circles(files)
    to_the_door = sorted(name for name, targets in files.items() if "" in targets)
    print(f"rooms {len(rooms)}, arrows {sum(map(len, rooms.values()))}, circles of rooms {len(of_rooms)}, "
          f"circles of files {len(of_files)}, files that import the package itself {len(to_the_door)}")  # fmt: skip
    for name, targets in sorted(rooms.items()):
        print(f"{name:20} -> {' '.join(sorted(targets))}")
    for group in of_rooms:
        inner = [(a, b) for a in files for b in files[a] if room(a) != room(b) and {room(a), room(b)} <= group]
        print("circle of rooms:", " ".join(sorted(group)), "\n   ", len(inner), "imports inside")
    for group in of_files:
        print("circle of files:", " ".join(sorted(group)))
    for name in to_the_door:
        print("imports the package itself:", name)
    return 1 if of_rooms or of_files else 0


if __name__ == "__main__":
    sys.exit(main())
