"""Branches of a script are those that bash takes."""

import shutil
import subprocess

import pytest

from costmodel.interop.launchers import read_launch

SHAPE = 'args="--hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 4"\n'
BRANCHES = {
    "equal": ('AC="true"', 'if [ "${AC}" = "true" ]; then\n  L=2\nelse\n  L=4\nfi'),
    "unequal": ("AC=false", 'if [ "${AC}" = "true" ]; then\n  L=2\nelse\n  L=4\nfi'),
    "then on a line of its own": ("EP=128; N=64", "if [[ $EP -gt $N ]]\nthen\n  L=$N\nelse\n  L=$EP\nfi"),
    "first of several": (
        "S=13", "if (( S == 7 )); then\n  L=3\nelif [ $S -eq 13 ] || [ $S -eq 14 ]; then\n  L=40\nelse\n  L=8\nfi",
    ),
    "none of several": ("S=70", "L=1\nif (( S == 7 )); then\n  L=32\nelif [[ $S == 13 && $S != 14 ]]; then\n  L=40\nfi"),
    "last of several": ("S=70", "if [ $S -lt 7 ]; then\n  L=32\nelif [ $S -le 13 ]; then\n  L=40\nelse\n  L=80\nfi"),
    "within another": ("A=1\nB=2", "L=9\nif [ $A -eq 1 ]; then\n  if [ $B -eq 1 ]; then\n    L=3\n  else\n    L=5\n  fi\nfi"),
    "within none": ("A=2\nB=2", "L=9\nif [ $A -eq 1 ]; then\n  if [ $B -eq 1 ]; then\n    L=3\n  else\n    L=5\n  fi\nfi"),
    "empty": ('D=""', 'if [ -z "$D" ]; then\n  L=6\nfi\nif [ -n "$D" ]; then\n  L=7\nfi'),
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("name", BRANCHES)
def test_the_branch_that_runs_is_read(tmp_path, name):
    assigned, branches = BRANCHES[name]
    text = f"#!/bin/bash\n{assigned}\n{SHAPE}{branches}\nargs+=\" --num-layers $L\"\n"
    said = subprocess.run(["bash", "-c", f"{text}echo $L"], capture_output=True, text=True, check=True).stdout
    file = tmp_path / "run.sh"
    file.write_text(f"{text}torchrun --nproc_per_node 8 pretrain_gpt.py $args\n", encoding="utf-8")
    assert read_launch(file).model_described["num_layers"] == int(said)


@pytest.mark.parametrize(("assigned", "recompute"), [("AC=true", "full"), ("AC=false", "none"), ("AC=$1", "full")])
def test_flags_of_a_branch_are_read_where_it_runs_or_may(tmp_path, assigned, recompute):
    file = tmp_path / "run.sh"
    file.write_text(
        f'#!/bin/bash\n{assigned}\n{SHAPE}if [ "$AC" = "true" ]; then\n  args="${{args}} --checkpoint-activations"\nfi\n'
        "torchrun pretrain_gpt.py $args --num-layers 2\n", encoding="utf-8",
    )  # fmt: skip
    assert read_launch(file).plan_fields["recompute"] == recompute


def test_what_a_loop_or_an_unknown_condition_sets_is_not_known(tmp_path):
    file = tmp_path / "run.sh"
    file.write_text(
        f"#!/bin/bash\n{SHAPE}if [ -f data ]; then\n  L=2\nelse\n  L=4\nfi\ntorchrun pretrain_gpt.py $args --num-layers $L\n",
        encoding="utf-8",
    )
    assert "--num-layers" in read_launch(file).unresolved
