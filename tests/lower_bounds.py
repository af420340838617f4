"""`python -m tests.lower_bounds [EXTRA...]`: the oldest packages that pyproject.toml allows, in an environment of each extra.

Of the core and of an extra every package is installed at its lower bound, the library beside them, and the tests of the extra are
run there. A bound that is too low shows as packages that exclude each other, or as a test that fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = "core"
PYTEST = ("pytest", "-q", "--override-ini", "addopts=")
TESTS = {
    CORE: (*PYTEST, "tests/test_properties.py", "tests/test_search_tables.py", "tests/test_collaboration.py"),
    "frame": (*PYTEST, "tests/test_search_tables.py", "tests/evaluation/test_sweep_files.py", "tests/test_results.py"),
    "png": (*PYTEST, "tests/plots/test_answers.py",),
    "dask": (*PYTEST, "tests/evaluation/test_sweeps.py",),
    "completion": ("costmodel", "completion", "zsh"),
    "app": (*PYTEST, "tests/app/test_server.py", "tests/app/test_state.py"),
    "mcp": (*PYTEST, "tests/test_mcp.py",),
    "notebook": (*PYTEST, "tests/page/test_widget.py",),
    "docs": ("docs", "site", "-o", "build/site"),
    "calibrate": (*PYTEST, "tests/calibration/test_measure.py",),
    "trace": (*PYTEST, "-m", "not slow", "tests/traces"),
}
"""The module that is run of each extra, and its arguments."""
RUNNERS = ("pytest", "hypothesis", "pandas")
"""What tests need besides: as the extra of tests has it."""


def bounds(project: Path = ROOT / "pyproject.toml") -> dict[str, list[str]]:
    """Lower bounds by extra, and of the core, each as a requirement of that very version.

    Parameters
    ----------
    project : the file

    Examples
    --------
    >>> [one for one in bounds()["completion"] if one.startswith("shtab")]
    ['shtab==1.6']
    """
    told = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    each = {CORE: told["dependencies"], **told["optional-dependencies"]}
    return {name: [one.replace(">=", "==") for one in listed if ">=" in one] for name, listed in each.items()}


def tried(extra: str) -> int:
    """The exit code of an extra's tests in an environment of its oldest packages, or of their installation.

    Parameters
    ----------
    extra : of pyproject.toml, or the core
    """
    known = bounds()
    runners = [one for one in known["test"] if one.partition("==")[0] in RUNNERS]
    named = {one.partition("==")[0]: one for one in (*known[CORE], *known[extra], *runners)}  # an extra's own bound is the higher
    wanted = list(named.values())
    with tempfile.TemporaryDirectory() as work:
        venv.create(work, with_pip=True)
        python = str(Path(work) / "bin" / "python")
        for asked in (wanted, ["--no-deps", "-e", str(ROOT)]):
            if code := subprocess.run([python, "-m", "pip", "install", "-q", *asked], check=False).returncode:
                return code
        return subprocess.run([python, "-m", *TESTS[extra]], check=False, cwd=ROOT).returncode


def main(argv: Sequence[str] | None = None) -> int:
    """Try some extras, or all; 1 where one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.lower_bounds", description=__doc__)
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help=f"of {', '.join(TESTS)} (default: all)")
    asked = parser.parse_args(argv).extras or list(TESTS)
    codes = {}
    for extra in asked:
        print(f"== {extra}: {', '.join(bounds()[extra])}", flush=True)
        codes[extra] = tried(extra)
    print("\n".join(f"{extra}: {'passed' if code == 0 else 'FAILED'}" for extra, code in codes.items()))
    return int(any(codes.values()))


if __name__ == "__main__":
    sys.exit(main())
