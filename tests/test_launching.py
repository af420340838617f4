"""A script's own words are handed on as they are, whichever way it is started."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.cli import build_parser
from costmodel.cli.arguments import Misused
from costmodel.cli.guesses import guessed

COMMANDS = next(
    action for action in build_parser(["scripts"])._actions if isinstance(action, argparse._SubParsersAction)
)
TRACE = COMMANDS.choices["trace"]
SCRIPT_S = ["--num-gpus", "8", "-n", "4", "--device", "8xh100", "--lr=1e-4", "llama 3 8b", "--bf16"]
"""Words that would mean something else, were they the command's."""


def meant(*words: str) -> tuple[list[str], list[str]]:
    """The command's own words, and the script's."""
    said = list(guessed(TRACE, ["trace", *words]).argv[1:])
    end = said.index("--") if "--" in said else len(said)
    return said[:end], said[end + 1 :]


@given(words=st.lists(st.sampled_from(SCRIPT_S), max_size=8))
def test_what_follows_the_dashes_is_not_touched(words):
    assert meant("--gpus", "8", "train.py", "--", *words) == (["--gpus", "8", "train.py"], words)
    assert meant("torchrun", "--nproc_per_node=8", "train.py", *words) == (["--gpus", "8", "train.py"], words)


@pytest.mark.parametrize(
    ("line", "own", "script"),
    [
        ("--gpus 8 train.py --batch-size 4", "--gpus 8 train.py", "--batch-size 4"),
        ("train.py --gpus 8 --lr 2 --json", "train.py --gpus 8", "--lr 2 --json"),
        (
            "-m torchtitan.train --gpus 8 --job.config_file x.toml",
            "-m torchtitan.train --gpus 8",
            "--job.config_file x.toml",
        ),
        (
            "torchrun --nnodes 2 --nproc-per-node 4 --rdzv_backend c10d -m pkg.train --gpus 3",
            "--gpus 8 -m pkg.train",
            "--gpus 3",
        ),
        ("torchrun --standalone --nproc_per_node gpu train.py a=b", "train.py", "a=b"),
        ("--cluster dgx-a100 torchrun --nnodes=4 train.py", "--cluster dgx-a100 --nodes 4 train.py", ""),
        ("python -u train.py --lr 3", "train.py", "--lr 3"),
        ("python -m torch.distributed.run --nproc_per_node=8 train.py --lr 3", "--gpus 8 train.py", "--lr 3"),
        ("python3 -m torch.distributed.launch --nproc_per_node 4 -m pkg.train", "--gpus 4 -m pkg.train", ""),
        ("python -m pkg.train --lr 3", "-m pkg.train", "--lr 3"),
        ("-n 8 train.py --lr 3", "--gpus 8 train.py", "--lr 3"),
        ("--cluster 8xh100 train.py -- --lr 3", "--device h100 --gpus 8 train.py", "--lr 3"),
        ("--device h100x16 train.py", "--device h100 --gpus 16 train.py", ""),
        ("train.py model=llama -n 4", "train.py model=llama", "-n 4"),
    ],
)
def test_a_script_is_started_as_people_start_it(line, own, script):
    assert meant(*line.split()) == (own.split(), script.split())


def test_what_is_handed_on_is_said_of_the_script():
    notes = guessed(TRACE, ["trace", "-n", "8", "train.py", "--lr", "3"]).notes
    assert "--lr and what follows it: handed to train.py" in notes


@pytest.mark.parametrize(
    "line", ["accelerate launch train.py", "deepspeed --num_gpus 8 train.py", "torchrun --nproc_per_node 8"]
)
def test_a_launcher_that_says_more_than_ranks_is_refused(line):
    with pytest.raises(Misused):
        meant(*line.split())
