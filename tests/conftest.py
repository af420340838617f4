"""What tests of several rooms are given."""

from __future__ import annotations

import os

import pytest
from hypothesis import Phase, settings

from costmodel import cli

settings.register_profile("first", phases=[Phase.explicit, Phase.generate])  # a failure as it is found, none that is smaller
os.environ["COLUMNS"] = "80"  # a page's width decides what stands in one line: the same wherever the tests run


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Call the command line in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: str) -> tuple[int, str, str]:
        code = cli.main(argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
