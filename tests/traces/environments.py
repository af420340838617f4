"""Environments with the releases that measured runs had, each made once by pip and kept; PyTorch is of the installed release."""

from __future__ import annotations

import subprocess
import tomllib
import venv
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from costmodel.text.progress import report
from costmodel.traces.running import guard_folder

ROOT = Path(__file__).parents[2]
DEFAULT = guard_folder().parent / "environments"
"""Where they are kept."""
RECORD = "requirements.txt"
"""Written into an environment that is whole."""


def requirements(packages: Sequence[str], software: Mapping[str, str]) -> list[str]:
    """What an environment has: the library's own requirements, the installed PyTorch, and packages in their releases.

    Parameters
    ----------
    packages : that a script imports
    software : releases by package; of other packages pip takes the newest that fits beside these
    """
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = [one for one in (*told["dependencies"], *told["optional-dependencies"]["trace"]) if not one.startswith("torch")]
    torch = f"torch=={version('torch').partition('+')[0]}"
    stated = [f"{name}=={release}" for name, release in sorted(software.items())]
    return [*own, torch, *stated, *(name for name in sorted(packages) if name not in software)]


def environment(packages: Sequence[str], software: Mapping[str, str], folder: Path = DEFAULT) -> str:
    """The Python of an environment, which is made where there is none.

    Parameters
    ----------
    packages : that a script imports
    software : releases by package
    folder : of all environments
    """
    wanted = requirements(packages, software)
    named = [one.replace("==", "-") for one in wanted if one.partition("==")[0] in {*packages, *software}]
    home = folder / "_".join(named)
    python, record = home / "bin" / "python", home / RECORD
    if not record.exists() or record.read_text().splitlines() != wanted:
        report(f"making an environment with {', '.join(named)}: a minute or two, once")
        venv.create(home, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        record.write_text("\n".join(wanted) + "\n")
    return str(python)
