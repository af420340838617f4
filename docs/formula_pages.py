"""A page for every formula, from its docstring, its trace and its source."""

from __future__ import annotations

import functools
import inspect
import math
import os
import re
import types
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from costmodel.compilation.sheets import formula_names, page, traced_equations

MOST = 60
"""Lines of algebra beyond which a page shows what a formula is made of instead, if it is made of others."""
WIDEST = 25
"""Formulas that it is made of from which it has more lines than that, without looking."""


def heading(text: str, line: str = "=") -> str:
    """A title in reStructuredText."""
    return f"{text}\n{line * len(text)}\n"


def indented(text: str) -> str:
    """A block below a directive."""
    return "\n".join(f"   {row}" if row else "" for row in text.splitlines())


def uses(formula: Callable[..., Any]) -> list[str]:
    """Names of the formulas that one calls."""
    known = {function: name for name, function in formula_names().items()}
    places = formula.__globals__
    code = inspect.getsource(formula)
    modules = [place for place, value in places.items() if isinstance(value, types.ModuleType)]
    dotted = [getattr(places[at], word, None) for at, word in re.findall(r"\b(\w+)\.(\w+)\(", code) if at in modules]
    plain = [places.get(word) for word in re.findall(r"\b(?<!\.)(\w+)\(", code)]
    called = [one for one in (*dotted, *plain) if isinstance(one, types.FunctionType) and one is not formula]
    return sorted({known[one] for one in called if one in known})


@functools.cache
def reached(name: str) -> frozenset[str]:
    """Names of the formulas that one is made of, all the way down."""
    called = uses(formula_names()[name])
    return frozenset(called).union(*map(reached, called))


def formula_page(name: str) -> str:
    """The page of a formula in reStructuredText."""
    formula = formula_names()[name]
    called = uses(formula)
    equations = traced_equations(formula, MOST if called else math.inf) if len(reached(name)) <= WIDEST else ()
    own = page(name) if ".. math::" in (formula.__doc__ or "") else None
    short = name.rpartition(".")[2]
    signature = str(inspect.signature(formula)).replace("'", "")
    parts = [":orphan:\n", heading(name), f"{_summary(formula)}\n", f"``{short}{signature}``\n"]
    if own is not None and own.equations != equations:
        parts += [heading("Equation", "-"), *map(_math, own.equations)]
    parts.append(heading("Traced from the code", "-"))
    if equations:
        parts += map(_math, equations)
    else:
        parts.append(f"More than {MOST} lines of algebra: ``costmodel formula {name}`` prints them all.\n")
    if called:
        parts += ["It calls " + ", ".join(f":doc:`{one}`" for one in called) + ".\n"]
    parts += [heading("Nomenclature and source", "-"), f".. autofunction:: costmodel.formulas.{name}\n   :no-index:\n"]
    parts += [heading("Code", "-"), ".. code-block:: python\n", indented(inspect.getsource(formula)) + "\n"]
    return "\n".join(parts)


def _summary(formula: Callable[..., Any]) -> str:
    return " ".join((inspect.getdoc(formula) or "").split("\n\n")[0].split())


def _math(equation: str) -> str:
    return f".. math::\n\n{indented(equation)}\n"


def write_pages(folder: Path) -> None:
    """Write a page for every formula, and a list of them by module.

    Parameters
    ----------
    folder : where they are put
    """
    folder.mkdir(parents=True)
    names = list(formula_names())
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        for name, text in zip(names, pool.map(formula_page, names, chunksize=8), strict=True):
            (folder / f"{name}.rst").write_text(text, encoding="utf-8")
    # the column at the left lists modules alone: drawn on every page, a list of all formulas would take the most of a build
    rooms: dict[str, list[str]] = {}
    for name in names:
        rooms.setdefault(name.rpartition(".")[0], []).append(name)
    entries = ["formulas", *rooms]
    (folder / "index.rst").write_text(
        heading("Formulas") + f"\n{len(names)} formulas, each defined once: a number, columns, a compiled loop, algebra and "
        "JavaScript come from the same source.\n\n" + _contents([f"modules/{room}" for room in entries[1:]]), encoding="utf-8"
    )  # fmt: skip
    (folder / "modules").mkdir()
    for room, members in rooms.items():
        text = heading(room) + f"\n.. automodule:: costmodel.formulas.{room}\n   :no-members:\n   :no-index:\n\n"
        text += "".join(f"- :doc:`../{name}`: {_summary(formula_names()[name])}\n" for name in members)
        (folder / "modules" / f"{room}.rst").write_text(text, encoding="utf-8")


def _contents(places: list[str]) -> str:
    return ".. toctree::\n   :maxdepth: 1\n\n" + "".join(f"   {place}\n" for place in places)
