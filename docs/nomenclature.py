"""The page of nomenclature: every field of what is described, with its unit, its values, what it is by default, its meaning."""

from __future__ import annotations

import dataclasses

from costmodel import Cluster, Device, Framework, Plan, Transformer
from costmodel.description.cluster import Level
from costmodel.description.device import Efficiency
from costmodel.description.fields import FieldRow, meanings, table
from docs.formula_pages import heading

DESCRIBED = (Plan, Transformer, Framework, Cluster, Level, Device, Efficiency)
COLUMNS = ("field", "unit", "values", "by default", "meaning")


def nomenclature() -> str:
    """All tables of fields in reStructuredText, in SI units."""
    parts = [heading("Nomenclature"), "Fields of descriptions by name. Quantities are in SI units; texts with a unit are read.\n"]
    for described in DESCRIBED:
        title = described.__name__
        parts += [heading(title, "-"), f".. list-table::\n   :header-rows: 1\n   :widths: 18 8 22 12 40\n\n{_line(COLUMNS)}"]
        rows, words = table(described), meanings(described)
        for one in dataclasses.fields(described):
            parts.append(_line(_cells(rows.get(one.name), one.name, one.default, words.get(one.name, ""))))
    return "\n".join(parts)


def _cells(row: FieldRow | None, name: str, default: object, meaning: str) -> tuple[str, ...]:
    usual = "" if default is dataclasses.MISSING else str(default)
    if row is not None:
        usual = row.unset or ("the framework's" if row.software and default is None else usual)
    return f"``{name}``", row.unit if row else "", row.kind.wish if row else "", f"``{usual}``" if usual else "", meaning


def _line(cells: tuple[str, ...]) -> str:
    return "\n".join(f"   {'*' if not place else ' '} - {cell}" for place, cell in enumerate(cells)) + "\n"
