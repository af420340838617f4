"""What tests of the command line share: JSON strictly read, and what bad input ends in."""

from __future__ import annotations

import json


def strict(text: str):
    """JSON without NaN or infinity."""

    def refuse(word: str):
        raise AssertionError(f"{word} in JSON")

    return json.loads(text, parse_constant=refuse)


def refused(run, tmp_path, argv: list[str], hint: str) -> None:
    """Hold that bad input ends in one line on stderr, exit code 2, and no file."""
    before = sorted(tmp_path.iterdir())
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert err.startswith("costmodel: error: ")
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    assert len(err) < 1100
    assert hint in err
    assert sorted(tmp_path.iterdir()) == before
