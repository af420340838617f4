"""Updates within the backward pass: which gradients are left, and where there are none."""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_model, read_launch
from costmodel.text.errors import IllegalPlan

PLAN = Plan(global_batch=2, micro_batch=2, seq_len=4096, recompute="full", loss="chunked", fused_norms=True)
FREED = dataclasses.replace(PLAN, update_in_backward=True)
MODEL, CARD = load_model("llama3.2-3b"), load_cluster("dgx-a100", 1)


def test_published_peaks_of_torchtunes_flags():
    """meta-pytorch/torchtune@bd2a0fc7 README.md, "Optimization flags": GiB that were allocated, one flag after another."""
    offloaded = dataclasses.replace(FREED, activation_offload=1.0)
    for plan, peak in ((PLAN, 24.9), (FREED, 23.1), (offloaded, 21.8)):
        memory = estimate(MODEL, CARD, plan, "torchtune@2025.1").memory
        assert (memory.total - memory.overhead) / 2**30 == pytest.approx(peak, rel=0.03)


def test_what_is_left_of_the_gradients_is_that_of_the_largest_tensor():
    plan = dataclasses.replace(FREED, activation_offload=1.0, loss="fused-linear")  # no moment but the passes' end is as full
    memory = estimate(MODEL, CARD, plan, "torchtune").memory
    assert memory.gradients == 128256 * 3072 * 2  # the embedding's, which is the head


def test_nothing_is_summed_and_other_software_updates_behind_the_backward_pass():
    with pytest.raises(IllegalPlan, match="more than one micro-batch"):
        estimate(MODEL, CARD, dataclasses.replace(FREED, global_batch=4), "torchtune")
    with pytest.raises(IllegalPlan, match="hf-trainer updates all weights"):
        estimate(MODEL, CARD, FREED, "hf-trainer")


def test_torchtunes_files_say_it():
    text = "model:\n  _component_: torchtune.models.llama3_2.llama3_2_3b\nbatch_size: 2\ntokenizer:\n  max_seq_len: 4096\n"
    launch = read_launch(f"{text}optimizer_in_bwd: true\ngradient_accumulation_steps: 1\n", gpus=1)
    assert launch.plan.update_in_backward
    assert not read_launch(f"{text}gradient_accumulation_steps: 1\n", gpus=1).plan.update_in_backward
