"""Software as it was in a month: what ``@2025.8`` asks for, and as what published runs are read that date it, or don't."""

from __future__ import annotations

import dataclasses

import pytest

from calibration.validate.unstated import doubts_of
from costmodel import Plan, estimate, load_cluster, load_framework, load_model
from costmodel.catalogue.records import run_of
from costmodel.catalogue.releases import month_of
from costmodel.text.errors import CostModelError
from costmodel.training.side_by_side import against

MIXTURE, DENSE = "qwen3-30b-a3b", "llama3-8b"
EIGHT = Plan(global_batch=8, seq_len=2048, data_parallel=8, zero_stage=3)


def asked(model: str, framework: str, **choices: object):
    return estimate(load_model(model), load_cluster("dgx-h100", gpus=8), dataclasses.replace(EIGHT, **choices), framework)


def test_a_month_behind_the_name_gives_the_release_of_that_month_and_no_month_the_newest():
    # DeepSpeed 0.19.2 of June 2026 leaves adapters as they are, transformers 5.0 of January 2026 groups experts (#42697),
    # DeepSpeed 0.18.3 of December 2025 makes its buckets later, with PyTorch 2.8 of August 2025 the Trainer fuses AdamW, 4.44
    # of August 2024 looks at positions in each layer; peft 0.12 of July 2024 lifts adapters (huggingface/peft#1706)
    newest, of_2025, of_2023 = (load_framework(name) for name in ("hf-trainer", "hf-trainer@2025.12", "hf-trainer@2023"))
    assert [one.grouped_experts for one in (newest, of_2025, of_2023)] == [True, False, False]
    assert [one.wide_adapters for one in (newest, of_2025, of_2023)] == [True, True, False]
    assert [one.uncast_adapters for one in (newest, of_2025, of_2023)] == [True, False, False]
    assert [one.release for one in (newest, of_2025, of_2023)] == ["2026-06", "2025-12", ""]
    assert of_2025.constants == newest.constants and of_2025.owner == newest.owner


@pytest.mark.parametrize("name", ["torchtitan@2025.8", "fsdp2@2025-08", "fsdp2@Aug 2025", "fsdp2@25.08"])
def test_a_release_is_asked_for_as_people_write_it(name):
    assert load_framework(name).name == "fsdp2@2025-08"


@pytest.mark.parametrize("name", ["fsdp2@", "fsdp2@v0.2", "fsdp2@2.5", "fsdp2@1999.1", "fsdp2@2025.13"])
def test_what_is_no_month_is_refused_in_one_line(name):
    with pytest.raises(CostModelError, match="the month of a release from 2017 on") as refused:
        load_framework(name)
    assert "\n" not in str(refused.value)


def test_a_loop_over_experts_launches_thirteen_kernels_for_each_as_its_code_has_them():
    # transformers 4.57 modeling_qwen3_moe.py, twice as many backward: 128 experts in 48 layers
    grouped, looped = asked(MIXTURE, "hf-trainer"), asked(MIXTURE, "hf-trainer@2025")
    model = load_model(MIXTURE)
    passes = 3 * 13 * model.experts * model.layers
    each = (looped.step.host - grouped.step.host) / passes
    assert 3e-6 < each < 4e-5  # what PyTorch's host takes to launch a kernel and its Python around it
    # 6 to 11 times were reported of whole steps of models like it (huggingface/transformers#42697, #43126)
    assert 2.0 < looped.step_time / grouped.step_time < 11.0


def test_lifted_adapters_take_sixteen_bytes_a_parameter():
    # PEFT prints 41,943,040 trainable parameters of Llama 3 8B at rank 16; weight, gradient and Adam's two moments in 32 bit
    choices = {"adapter": "lora", "lora_rank": 16, "zero_stage": 0}
    lifted, as_wide_as_weights = (asked(DENSE, name, **choices).memory for name in ("hf-trainer", "hf-trainer@2024.6"))
    base = 2.0 * load_model(DENSE).parameters
    for memory, width in ((lifted, 16.0), (as_wide_as_weights, 8.0)):
        assert memory.weights + memory.optimizer - base == pytest.approx((width - width / 4.0) * 41_943_040, rel=1e-6)
    assert lifted.gradients == 2.0 * as_wide_as_weights.gradients


def test_what_two_releases_have_in_common_cancels_in_their_comparison():
    between = against(asked(DENSE, "hf-trainer"), asked(DENSE, "hf-trainer@2025"))
    assert between.ratio == pytest.approx(1.0) and between.ratio_high < 1.3


RECORD = {
    "id": "theirs/1", "campaign": "theirs", "model": {"name": MIXTURE}, "software": {"framework": "hf-trainer"},
    "cluster": {"device": "h100-sxm", "gpus": 8, "gpus_per_node": 8},
    "plan": {"global_batch": 8, "seq_len": 2048, "micro_batch": 1, "zero_stage": 3}, "measured": {"step_time_s": 1.0},
}  # fmt: skip


def test_a_published_run_is_read_as_of_its_date_and_one_without_stays_open_between_releases():
    dated, own = run_of({**RECORD, "source": "a/b", "release": "Mar 2026"}), run_of(RECORD)
    undated = run_of({**RECORD, "source": "a/b", "release": "v0.4"})
    assert [one.framework.grouped_experts for one in (dated, own, undated)] == [True, True, False]
    assert {one.framework.name for one in (dated, own, undated)} == {"hf-trainer"}
    runs = [dated, own, undated]
    answers = [estimate(run.model, run.cluster, run.plan, run.framework) for run in runs]
    doubts = doubts_of(runs, answers)
    assert doubts[0] == doubts[1] == {} and doubts[2]["release"].time > 0.2


def test_years_and_other_numbers_of_releases_are_no_months():
    assert month_of("2022") == "2022-12" and all(month_of(one) is None for one in ("2.5.1", "0.19.2", "", "spring 2024"))
