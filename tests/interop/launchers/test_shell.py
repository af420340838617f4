"""A script's variables and arithmetic are what a shell makes of them, without one; and what no shell is needed for."""

import shutil
import subprocess

import pytest

from costmodel.interop.launchers import read_launch
from costmodel.interop.launchers.shell import calculate, expand, is_variable
from costmodel.text.errors import CostModelError

KNOWN = {"W": "64", "M": "2", "T": "2", "P": "4"}
SCRIPT = "\n".join(f"{name}={value}" for name, value in KNOWN.items())
EXPRESSIONS = (
    "$((($W * $M) / ($T * $P) * 8))", "$(($W*$M))", "$(( ${W} / ${P} ))", "$(( W * M / T ))", "$((W-P*3))", "$((7/2))",
    "$((-7/2))", "$((-7%3))", "$((2**5))", "$((1<<4))", "$((W>32))", "$((W>32 ? W/32 : 1))", "$((W<32 ? 1 : M))", "$(( 1 - -1 ))",
    "$(expr $W \\* 8)", "$(expr $W / $P)", "`expr $W / 8`", "$[W*2]", "${X:-8}", "${W:-8}", "${X:-$W}", "${X:-${Y:-4}}",
    "${X:-$((W * 2))}", "$((${X:-4} * 2))", "x$((W))y$((M))", "$(( (W + P) * (M + 1) ))", "$((0x10))", "$((W == 64))",
)  # fmt: skip


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to compare with")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_arithmetic_and_defaults_are_bashs(expression):
    wanted = subprocess.run(
        ["bash", "-c", f"{SCRIPT}\necho {expression}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert expand(expression, KNOWN) == wanted


@pytest.mark.parametrize("expression", [
    "$((W / 0))", "$((9**9**9))", "$((1 << 63))", "$((UNKNOWN * 2))", "$((W ** 40))", "$(nproc)", "`nproc`", "$(cat /etc/passwd)",
    "$((10#08))", "$((W", "$((" + "(" * 500 + "1" + ")" * 500 + "))", "$((__import__('os')))", "$((W.real))", "${X?}", 
    "$((1.5*2))", "$(expr length abc)", "$(echo 2 | bc | tee x)", "$((W W))", "$((W, M))", "$((lambda: 1))",
])  # fmt: skip
def test_what_is_not_known_stays_a_variable_and_nothing_is_run(expression):
    assert is_variable(expand(expression, KNOWN))


def test_a_value_that_grows_without_end_is_left_alone():
    script = "#!/bin/bash\nA=" + "x" * 200 + "\n" + "".join("A=$A$A\n" for _ in range(40))
    launch = read_launch(script + "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --load $A\n")
    assert launch.framework == "megatron-lm"
    assert calculate("(" * 5_000 + "1" + ")" * 5_000, {}) is None


GPT = "--hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --bf16"


@pytest.mark.parametrize(("lines", "tensor", "batch"), [
    ("W=16\nM=4\nT=2\nP=2", "$T", "$((($W * $M) / ($T * $P) * 8))"),
    ("export W=16 M=4\nexport T=2\nB=$(( W * M * 2 ))", "$T", "$B"),
    ("declare -i B=16*8\nT=2", "$T", "${B}"),
    ("let B=16*8 T=4/2", "$T", "$B"),
    ('let "B = 16 * 8"\nreadonly T=2', "$T", "$B"),
    ("W=16\n(( B = W * 8 ))\nT=2", "$T", "$B"),
    ("W=16; T=2\nB=`expr $W \\* 8`", "$T", "$B"),
    ("T=${TP:-2}\nB=${1:-128}", "$T", "$B"),
    ("T=1\nT=2\nB=1\nB=$((B * 128))", "$T", "$B"),
    ("T=2\nif [ -n \"$DEBUG\" ]; then\n  T=1\nfi\nB=128", "$T", "$B"),
])  # fmt: skip
def test_a_script_sets_its_variables_in_any_of_a_shells_ways(tmp_path, lines, tensor, batch):
    script = tmp_path / "train.sh"
    script.write_text(
        f"set -x\n{lines}\ntorchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 32 {GPT} \\\n"
        f"  --micro-batch-size 1 --global-batch-size {batch} --tensor-model-parallel-size {tensor} --load $(ls -t | head -1)\n"
    )
    launch = read_launch(script)
    assert (launch.gpus, launch.plan_fields["tensor_parallel"], launch.plan_fields["global_batch"]) == (16, 2, 128)
    assert launch.unresolved == {} and launch.unknown == ()


def test_what_branches_set_differently_is_asked_for(tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(
        "#!/bin/bash\nif [[ $SIZE == 7b ]]; then\n  LAYERS=32\nelif [[ $SIZE == 13b ]]; then\n  LAYERS=40\nfi\n"
        f"torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers $LAYERS {GPT} --micro-batch-size 1 --global-batch-size 8\n"
    )
    launch = read_launch(script)
    assert launch.unresolved == {"--num-layers": "$LAYERS"}
    with pytest.raises(CostModelError, match=r"settings=\{'LAYERS': "):
        launch.model  # noqa: B018
    assert read_launch(script, settings={"LAYERS": "40"}).model_described["num_layers"] == 40


def test_a_variable_of_several_words_or_none_is_what_a_shell_makes_of_it(tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(
        '#!/bin/bash\nNOTHING=" "\nMORE=" --log-interval 10 \\\n  --tensor-model-parallel-size 2"\n'
        "LAST=(\n  --pipeline-model-parallel-size 2\n)\nBOTH='4  8'\n"
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --use-distributed-optimizer ${NOTHING} "
        f'--micro-batch-size $BOTH --sequence-parallel $MORE --swiglu "${{LAST[@]}}" --global-batch-size 16 {GPT}\n'
    )
    launch = read_launch(script)
    assert launch.plan_fields["micro_batch"] == 4 and launch.plan_fields["zero_stage"] == 1
    assert (launch.plan_fields["tensor_parallel"], launch.plan_fields["pipeline_parallel"]) == (2, 2)
    assert launch.plan_fields["sequence_parallel"] is True and launch.unresolved == {}
    assert launch.unknown == ("8 (after --micro-batch-size)",)


def test_given_values_win_over_a_scripts_own(tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(
        f"#!/bin/bash\nT=2\nB=$((T * 8))\ntorchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 {GPT} "
        "--micro-batch-size 1 --global-batch-size $B --tensor-model-parallel-size $T\n"
    )
    launch = read_launch(script, settings={"T": "4"})
    assert (launch.plan_fields["tensor_parallel"], launch.plan_fields["global_batch"]) == (4, 32)


def test_what_follows_the_programs_name_is_no_value_of_the_launchers_flag():
    launch = read_launch(f"torchrun --nnodes 2 --nproc_per_node 8 pretrain.py $OTHERS --num-layers 4 $MORE {GPT} "
                         "--micro-batch-size 1 --global-batch-size 16")  # fmt: skip
    assert launch.gpus == 16 and launch.model_described["num_layers"] == 4 and launch.unresolved == {}
