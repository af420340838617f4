"""Tools that are asked: what each is, and what its script answers in a process of its own.

`experiments.arena.peers.ask` runs the script over records, in the tool's own Python. Of each it writes a line of JSON: ``id``,
the answer or ``refused``, and the ``seconds`` that the tool itself took.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from costmodel.arithmetic.named_tuples import Row
from costmodel.text.errors import CostModelError
from costmodel.text.version import __version__

HERE = Path(__file__).parent
LONGEST = 600.0
"""Seconds that a tool may take for all records."""
OWN = "costmodel"


class Rival(NamedTuple):
    """A tool."""

    name: str  # name, title, home: what it is called, and where it is from
    title: str
    home: str
    script: str = ""  # in `peers`, that asks it; empty where there is none yet
    fetch: str = ""  # how it is fetched
    folder: str = ""  # where it was fetched to; empty where it wasn't

    @property
    def absent(self) -> str:
        """Why it isn't asked; empty where it is."""
        if not self.script:
            return "no script asks it yet"
        return "" if self.folder or self.name == OWN else f"not fetched: {self.fetch}"

    @property
    def python(self) -> str:
        """What runs its script: the Python of its folder where that is an environment, else this one."""
        own = Path(self.folder) / "bin" / "python"
        return str(own) if self.folder and own.exists() else sys.executable

    @property
    def version(self) -> str:
        """Commit of its folder, version of its package in an environment, or the library's own version."""
        if self.name == OWN:
            return __version__
        if self.python != sys.executable:
            words = f"import importlib.metadata; print(importlib.metadata.version({self.name!r}))"
            asked = [self.python, "-c", words]
        else:
            asked = ["git", "-C", self.folder, "log", "-1", "--format=%h of %cs"]
        told = subprocess.run(asked, capture_output=True, text=True, check=False)
        return told.stdout.strip() or "unknown"


def rivals(folders: dict[str, str]) -> list[Rival]:
    """The library and every tool of ``peers.toml``."""
    known = tomllib.loads((HERE / "peers.toml").read_text(encoding="utf-8"))
    for name, folder in folders.items():
        if name not in known:
            raise CostModelError(f"--peer {name[:80]}: expected one of {', '.join(known)}")
        if not folder or not Path(folder).is_dir():
            raise CostModelError(f"--peer {name}={folder[:200]}: no such folder")
    others = [Rival(name, **entry, folder=str(Path(folders[name]).resolve()) if name in folders else "")
              for name, entry in known.items()]  # fmt: skip
    return [Rival(OWN, OWN, "this repository", "own_rows.py"), *others]


def asked(rival: Rival, records: Sequence[Row]) -> dict[str, Row]:
    """What a tool answers, by the records' ids."""
    text = "".join(f"{json.dumps(record)}\n" for record in records)
    command = [rival.python, str(HERE / "peers" / "ask.py"), str(HERE / "peers" / rival.script), rival.folder]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        raise CostModelError(f"{rival.title}: no answer within {LONGEST:g} s") from None
    if done.returncode:
        raise CostModelError(f"{rival.title}: {(done.stderr.strip().splitlines() or ['it failed'])[-1][:300]}")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {answer["id"]: answer for answer in answers}
