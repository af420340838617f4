"""Weights that are held in 8 bit alone."""

import pytest

from costmodel import Plan, estimate, load_cluster, load_model
from costmodel.interop.launchers import read_launch, write_launch
from costmodel.text.errors import IllegalPlan

MODEL, CLUSTER = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)


def weights(framework, held):
    plan = Plan(global_batch=128, seq_len=4096, zero_stage=1, dtype="fp8", narrow_parameters=held)
    return estimate(MODEL, CLUSTER, plan, framework).memory.weights


def test_megatrons_weights_in_8_bit_have_no_copy_in_16_where_they_are_gathered_so():
    """Both layouts of a matrix in 8 bit, on Hopper, beside it in 16 bit or without it; embedding, head and norms stay:
    NVIDIA/Megatron-LM@d98e8a64 megatron/training/arguments.py ``--fp8-param-gather``; TransformerEngine
    transformer_engine/pytorch/module/linear.py."""
    matrices = MODEL.parameters - 2 * MODEL.vocabulary * MODEL.hidden
    assert weights("megatron-core", None) - weights("megatron-core", True) == pytest.approx(2.0 * matrices, rel=0.01)
    assert weights("megatron-core", None) == weights("megatron-core", False)
    assert weights("nemo", None) == weights("nemo", True) < weights("nemo", False)


def test_files_say_so_and_other_software_refuses_it():
    text = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --bf16 --fp8-format hybrid"
    text += " --micro-batch-size 1"
    assert read_launch(f"{text} --fp8-param-gather", gpus=8).plan.narrow_parameters is True
    assert read_launch(text, gpus=8).plan.narrow_parameters is None
    plan = Plan(global_batch=8, seq_len=4096, zero_stage=1, dtype="fp8", narrow_parameters=True)
    assert "--fp8-param-gather" in write_launch("megatron", plan.on(CLUSTER), MODEL)
    with pytest.raises(IllegalPlan, match="narrow_parameters=True"):
        estimate(MODEL, CLUSTER, Plan(global_batch=8, seq_len=4096, dtype="fp8", narrow_parameters=True), "hf-fsdp2")
