"""What tests of the command line share: JSON strictly read, and what bad input ends in."""

from __future__ import annotations

import json

RECORD = {
    "id": "ours/1", "campaign": "us/megatron-core/h100", "model": "llama3-8b", "cluster": {"name": "dgx-h100", "gpus": 8},
    "software": {"framework": "megatron-core"}, "plan": {"global_batch": 64, "seq_len": 4096, "tensor_parallel": 2},
    "measured": {"step_time_s": 4.5},
}  # fmt: skip
"""A run of one's own, as a file of records has it."""


def strict(text: str):
    """JSON without NaN or infinity."""

    def refuse(word: str):
        raise AssertionError(f"{word} in JSON")

    return json.loads(text, parse_constant=refuse)


def as_options(change: str) -> list[str]:
    """A change, as ``adapter=lora, zero_stage=2``, as options of the command line."""
    words = [word for pair in change.split(", ") for word in pair.split("=")]
    return [f"--{word.replace('_', '-')}" if place % 2 == 0 else word for place, word in enumerate(words)]


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
