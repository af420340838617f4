"""Memory of LoRA by Unsloth's kernels, told from its code, against the longest sequences that it publishes."""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_model

PLAN = Plan(global_batch=1, seq_len=1, adapter="qlora", lora_rank=32, recompute="full", activation_offload=1.0,
            attention="flash", optimizer="adam-8bit")  # fmt: skip
# unslothai/unsloth@e3162dc5 README.md, "Context length benchmarks": tokens of one sequence by a GPU's memory in GB, QLoRA of
# rank 32 on every matrix, found on an A100; which GB isn't said, and a GPU of 80 has 79.3 GiB
LONGEST = {
    "llama3.1-8b": {8: 2_972, 12: 21_848, 16: 40_724, 24: 78_475, 40: 153_977, 48: 191_728, 80: 342_733},
    "llama3-70b": {48: 12_106, 80: 89_389},
}


@pytest.mark.parametrize(("name", "memory", "tokens"), [
    (name, memory, tokens) for name, rows in LONGEST.items() for memory, tokens in rows.items()])  # fmt: skip
def test_the_longest_published_sequences_fill_the_gpu(name, memory, tokens):
    model = dataclasses.replace(load_model(name), trained_length=None)
    told = estimate(model, load_cluster("dgx-a100", 1), dataclasses.replace(PLAN, seq_len=tokens), "unsloth")
    assert told.memory.total / 2**30 == pytest.approx(memory, rel=0.1)


def test_a_question_by_names_is_asked_as_unsloth_trains():
    told = estimate("llama3.1-8b", "1xa100", framework="unsloth", adapter="qlora")
    assert (told.plan.recompute, told.plan.activation_offload) == ("full", 1.0)
    told = estimate("llama3.1-8b", "1xa100", framework="unsloth", adapter="qlora", recompute="none")
    assert (told.plan.recompute, told.plan.activation_offload) == ("none", 0.0)
