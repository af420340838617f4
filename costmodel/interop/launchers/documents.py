"""Files that a shell script writes itself: documents behind ``cat <<END > FILE``."""

from __future__ import annotations

import re
from collections.abc import Callable

BEGINS = re.compile(
    r"""^\s*cat\s+(?:>\s*(?P<before>\S+)\s*)?<<-?\s*(?P<quote>["']?)(?P<end>\w+)["']?\s*(?:>\s*(?P<behind>\S+))?\s*$"""
)


def documents(text: str, expand: Callable[[str], str]) -> dict[str, str]:
    """Texts by the name that each is written to, with what is known of variables, unless the word that ends a text is quoted."""
    found: dict[str, str] = {}
    begins, held = None, list[str]()
    for line in text.splitlines():
        if begins is None:
            begins, held = BEGINS.match(line) if "<<" in line and len(found) < 100 else None, []
        elif line.strip() == begins["end"]:
            name = expand((begins["before"] or begins["behind"] or "").strip("\"'")).rpartition("/")[2]
            found[name] = "".join(held if begins["quote"] else map(expand, held))
            begins = None
        else:
            held.append(f"{line}\n")
    return found
