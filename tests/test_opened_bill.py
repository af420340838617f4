"""A bill of memory opened: its rows add up to it, and are what their shapes say."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel import Plan, estimate, load_cluster, load_model
from costmodel.cli import main
from costmodel.evaluation.memory_breakdown import PARTS
from costmodel.evaluation.opened_bill import held_tensors
from costmodel.text.errors import CostModelError

QUESTIONS = st.fixed_dictionaries({
    "model": st.sampled_from(["llama3-8b", "mixtral-8x7b", "deepseek-v3", "gpt3-13b", "qwen2.5-72b"]),
    "framework": st.sampled_from(["megatron-core", "fsdp2", "hf-fsdp", "deepspeed", "oneflow", "ddp", "megatron-lm-2023"]),
    "recompute": st.sampled_from(["none", "full", "selective", 8]), "tensor_parallel": st.sampled_from([1, 2]),
    "pipeline_parallel": st.sampled_from([1, 4]), "zero_stage": st.sampled_from([None, 0, 1, 3]),
    "adapter": st.sampled_from(["none", "lora", "qlora"]), "cuda_graphs": st.booleans(), "micro_batch": st.sampled_from([1, 2]),
    "activation_offload": st.sampled_from([0.0, 0.5]),
})  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(QUESTIONS)
def test_rows_add_up_to_every_part_of_every_stage(asked):
    model, framework = load_model(asked.pop("model")), asked.pop("framework")
    gpus = asked["tensor_parallel"] * asked["pipeline_parallel"] * 2
    plan = Plan(global_batch=16, seq_len=2048, data_parallel=2, **asked)
    try:
        bill = estimate(model, load_cluster("dgx-h100", gpus=gpus), plan, framework).memory
    except CostModelError:
        return
    for stage in bill.stages:
        rows = held_tensors(bill, stage.stage)
        for part in PARTS:
            held = sum(row.nbytes for row in rows if row.part == part)
            assert held == pytest.approx(float(getattr(stage.parts, part)), rel=1e-9, abs=64.0), part
        assert all(row.nbytes > 0.0 for row in rows)


def test_a_llama_s_weights_are_those_of_its_matrices():
    bill = estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), Plan(global_batch=8, seq_len=8192)).memory
    held = {row.module: row.nbytes for row in held_tensors(bill) if row.part == "weights"}
    assert held["attention"] == pytest.approx(32 * 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024))
    assert held["mlp"] == pytest.approx(32 * 2 * 3 * 4096 * 14336)
    assert held["norms and biases"] == pytest.approx(32 * 2 * 2 * 4096)
    assert held["embedding and head"] == pytest.approx(2 * (2 * 128_256 * 4096 + 4096))


def test_the_command_opens_the_bill(capsys, tmp_path):
    asked = ["memory", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "8", "--seq-len", "4096"]
    main([*asked, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert sum(row["nbytes"] for row in found["tensors"]) == pytest.approx(found["total_bytes"])
    main([*asked, "--tensors", "--csv", str(tmp_path / "held.csv")])
    page = capsys.readouterr().out
    assert "attention: queries," in " ".join(page.split())
    assert len((tmp_path / "held.csv").read_text().splitlines()) == len(found["tensors"]) + 1
