"""LoRA by Unsloth's kernels, told from its code: memory against the longest sequences that it publishes, and what they move."""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_device, load_framework, load_model
from costmodel.formulas.transformer.adapters import adapter_work

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


def test_adapters_move_what_its_kernels_read_and_write():
    """``matmul_lora`` and ``LoRA_MLP.backward`` (unslothai/unsloth@015bdef0), product by product, of gate, up and down."""
    model, framework = load_model("llama3.1-8b"), load_framework("unsloth")
    device = load_device("h100-sxm").numbers("bf16")
    plan = Plan(global_batch=1, seq_len=4096, adapter="lora", lora_rank=16, lora_targets=("gate", "up", "down"))
    work = adapter_work(model.numbers(), plan.settings(framework), plan.numbers(framework, 32), 4096.0, device)
    moved = [one * device.memory_bandwidth / 4096 / 2 for one in work]  # numbers of 16 bits a token
    pairs = ((4096, 14336), (4096, 14336), (14336, 4096))
    # X @ A, then out.addmm_(XA, B)
    assert moved[0] == pytest.approx(sum(inputs + 2 * outputs for inputs, outputs in pairs))
    # dY @ B.t(), then dX.addmm_(dY @ B.t(), A.t())
    assert moved[1] == pytest.approx(sum(outputs + 2 * inputs for inputs, outputs in pairs))
    # d_A.addmm_(X.t(), dY @ B.t()), d_B.addmm_(A.t() @ X.t(), dY)
    assert moved[2] == pytest.approx(sum((inputs + outputs) + (inputs + outputs) for inputs, outputs in pairs))


def test_logits_were_made_again_while_apples_kernels_made_the_loss():
    plan = Plan(global_batch=8, micro_batch=2, seq_len=2048, adapter="lora")
    cluster = load_cluster("dgx-h100", 1)
    now, before = (estimate(load_model("llama3.1-8b"), cluster, plan, name) for name in ("unsloth", "unsloth@2025-07"))
    assert before.step_time > now.step_time
