"""What tests of several rooms are given."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read as NumPy is loaded: every core has a worker, whose threads would wait
os.environ["COLUMNS"] = "80"  # a page's width decides what stands in one line: the same wherever the tests run

if sys.dont_write_bytecode:  # nothing is written beside sources, but hundreds of processes needn't compile them anew each
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "costmodel"
    sys.pycache_prefix = str(kept / "bytecode")  # of installed packages, too: for every checkout once
    sys.dont_write_bytecode = False
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest
from hypothesis import Phase, settings

from costmodel import cli

LONGEST = (
    "tests/test_site.py", "tests/formulas/test_engines.py", "tests/test_budgets.py", "tests/app/test_page.py",
    "tests/app/test_page_for_everybody.py", "tests/app/test_page_sliders.py",
    "tests/page/test_site.py", "tests/page/test_page.py", "tests/partition/test_pipedream.py", "tests/test_cli_pages.py",
    "tests/evaluation/test_sweep_files.py", "tests/calibration/test_bars.py", "tests/test_properties.py",
    "tests/evaluation/test_ceilings.py", "tests/test_cli.py",
)  # fmt: skip
"""Files of tests that take a minute or more, the longest first: begun last, one would keep a single worker busy in the end."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files without slow tests unread where slow tests alone are run."""
    if config.option.markexpr == "slow" and collection_path.suffix == ".py":
        return "mark.slow" not in collection_path.read_text(encoding="utf-8") or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Notebooks are slow tests, too; where these are run, begin with the longest files."""
    for item in items:
        if item.path.suffix == ".ipynb":
            item.add_marker("slow")
    if config.option.markexpr != "not slow":
        places = {name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONGEST)))


gc.set_threshold(50_000, 10, 10)  # collecting thousands of tests makes no rubbish: looking for it took a third of the time

settings.register_profile("first", phases=[Phase.explicit, Phase.generate])  # a failure as it is found, none that is smaller


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Call the command line in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: str) -> tuple[int, str, str]:
        code = cli.main(argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
