"""What it takes to load a model, and to save it: said, and held against a GPU where that is more than a step takes."""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_model, search
from costmodel.evaluation.counted_memory import Count, counted
from costmodel.evaluation.notes import notes
from costmodel.evaluation.offers import offers
from costmodel.formulas.settings import LOADINGS
from costmodel.text.errors import IllegalPlan
from costmodel.text.units import GiB

MODEL = load_model("llama3-70b")
WHOLE = 2.0 * MODEL.parameters
ASKED = {"global_batch": 64, "seq_len": 4096, "recompute": "full", "zero_stage": 3}


def ask(framework="deepspeed", gpus=64, cluster="dgx-a100", **fields):
    return estimate(MODEL, load_cluster(cluster, gpus=gpus), Plan(**{**ASKED, **fields}), framework)


def test_zero_3_without_its_init_has_all_of_the_model_on_each_gpu_first():
    """140 GB of Llama 3 70B in 16 bit, where each of 64 GPUs keeps 2.2 of them."""
    found = ask(loading="whole")
    assert WHOLE < found.loading.device_bytes < 1.05 * WHOLE
    assert not found.fits and found.judgement == "does not fit" and found.fit_probability < 0.5
    assert found.needed_memory == found.loading.device_bytes > found.memory.total
    assert ask().fits and ask().step == found.step
    assert "while the model is loaded (loading whole" in " ".join(repr(found).split())
    from costmodel.evaluation.verdicts import verdict

    assert [fix.change for fix in verdict(found).fixes] == ["loading=one-rank"]


def test_where_less_comes_whole_a_gpu_holds_less_and_never_less_than_its_own_part():
    found = [ask(loading=name).loading.device_bytes for name in LOADINGS]
    assert found == sorted(found) and found[0] > WHOLE / 64
    one = ask("ddp", loading=None, zero_stage=0)
    assert 4.0 * MODEL.parameters < one.loading.device_bytes < one.memory.total


@pytest.mark.parametrize(("framework", "loading", "copies"), [
    ("hf-fsdp@2025.6", None, 8), ("hf-fsdp@2025.6", "one-rank", 1), ("hf-fsdp", None, 1), ("deepspeed", None, 1),
    ("deepspeed@2025.6", "whole", 8), ("megatron-core", None, 0),
])  # fmt: skip
def test_each_rank_of_a_node_has_a_copy_in_host_memory_or_one_has(framework, loading, copies):
    """Eight copies of 141 GB are 1.1 TB; files that transformers maps from release 5 on are there once."""
    stage = {"zero_stage": 1, "tensor_parallel": 8} if framework == "megatron-core" else {}
    assert ask(framework, loading=loading, **stage).loading.host_bytes == pytest.approx(copies * WHOLE)


@pytest.mark.parametrize("framework", ["deepspeed", "ddp"])
def test_a_choice_of_loading_is_of_weights_that_are_sharded(framework):
    """ZeRO-2 and DDP move all of a model to each GPU, whatever is said of weights that are sharded."""
    stage = 2 if framework == "deepspeed" else 0
    usual, asked = (ask(framework, zero_stage=stage, loading=way) for way in (None, "one-rank"))
    assert usual.loading.way == asked.loading.way == "whole" and usual.loading.host_bytes == asked.loading.host_bytes > 0.0
    assert any(one.startswith("loading=one-rank changes") for one in notes(asked)) == (asked.plan.loading != usual.plan.loading)
    poor = dataclasses.replace(load_cluster("dgx-a100", gpus=64), host_memory=64 * GiB)
    (said,) = (
        one for one in notes(estimate(MODEL, poor, Plan(**{**ASKED, "zero_stage": stage}), framework)) if "to load the" in one
    )
    assert "one-rank" not in said


def test_what_one_rank_reads_for_all_is_no_idle_choice_where_each_had_a_copy():
    asked = ask("hf-fsdp@2025.6", loading="one-rank")
    assert not any(one.startswith("loading=") for one in notes(asked))


def test_embedding_and_head_of_quantised_weights_stay_in_16_bit_where_they_are_read():
    """Of Llama 3 70B 2.1 G of 70.6 G parameters, at two bytes; the others at half a byte and their scales."""
    edges = 2 * 128256 * 8192
    found = ask("hf-fsdp", adapter="qlora", loading="one-rank").loading.host_bytes
    assert found == pytest.approx(2.0 * edges + (0.5 + 0.127 / 8) * (MODEL.parameters - edges), rel=1e-3)


def test_weights_in_32_bit_are_each_rank_s_own():
    found = ask("hf-fsdp", adapter="lora", base_dtype="fp32").loading
    assert found.host_bytes == pytest.approx(8 * 2 * WHOLE)


def test_full_checkpoints_of_fsdp_take_twelve_bytes_a_parameter_of_the_first_node():
    assert ask("hf-fsdp").loading.saved_bytes == pytest.approx(12.0 * MODEL.parameters)
    assert ask("hf-fsdp", adapter="lora").loading.saved_bytes == pytest.approx(WHOLE, rel=0.05)
    assert ask("deepspeed").loading.saved_bytes == pytest.approx(WHOLE) and ask("fsdp2").loading.saved_bytes == 0.0


def test_a_host_that_is_too_small_is_named():
    cluster = dataclasses.replace(load_cluster("dgx-a100", gpus=64), host_memory=512 * GiB)
    found = notes(estimate(MODEL, cluster, Plan(**ASKED), "hf-fsdp@2025.6"))
    assert any(one.startswith("to load the model takes 1,051 GiB") and "loading=one-rank" in one for one in found)
    assert any("checkpoint that one rank gathers takes 788 GiB" in one for one in found)
    assert not any("to load" in one for one in notes(ask("hf-fsdp")))


def test_a_search_passes_over_plans_whose_model_does_not_load():
    cluster = load_cluster("dgx-a100", gpus=64)
    asked = {**ASKED, "framework": "deepspeed"}
    assert search(MODEL, cluster, **asked).ranked
    none = search(MODEL, cluster, **asked, loading="whole")
    assert "while the model is loaded (loading whole" in none.why_none()
    assert "loading=any" in [offer.change for offer in offers(none)]
    leanest = none.closest_miss
    assert not none.ranked and none.excess_bytes == pytest.approx(leanest.loading.device_bytes - leanest.memory_limit)


def test_a_search_counts_for_a_plan_what_its_estimate_needs():
    """Adapters on short sequences need least in a step: a unit that comes whole, and is laid out flat beside itself, is more."""
    cluster, model = load_cluster("dgx-a100", gpus=64), load_model("gpt-oss-120b")
    asked = {"global_batch": 64, "seq_len": 128, "adapter": "lora", "recompute": "full", "loading": "every-rank"}
    every = search(model, cluster, framework="deepspeed", keep_evaluated=True, zero_stage=3, parameter_offload=1.0, **asked).every
    found = [estimate(model, cluster, every.plan(place), "deepspeed") for place in range(len(every.step_time))]
    assert any(one.needed_memory > one.memory.total for one in found)
    assert [one.needed_memory for one in found] == pytest.approx(every.peak_memory.tolist(), rel=1e-9)


def test_the_command_says_what_loading_takes(run):
    asked = ["llama3-8b", "--device", "a100-sxm-80gb", "--gpus", "8", "--gbs", "8", "--seq-len", "4096", "--framework", "hf-fsdp"]
    code, out, _ = run("memory", *asked)
    words = " ".join(out.split())
    assert code == 0 and "Loading (every-rank): " in out and "15.0 GiB in a node's host memory; saving: 89.7 GiB" in words
    code, out, _ = run("estimate", "llama3-70b", "--device", "a100-sxm-80gb", "--gpus", "64", "--gbs", "64", "--seq-len", "4096",
                       "--framework", "deepspeed", "--zero-stage", "3", "--recompute", "full", "--loading", "whole")  # fmt: skip
    assert "over while the model is loaded" in " ".join(out.split()) and "--loading one-rank" in out


@pytest.mark.parametrize("framework", ["megatron-core", "fsdp2", "deepspeed", "ddp", "nanotron", "hf-trainer"])
@pytest.mark.parametrize("model", ["llama3-8b", "gpt2", "deepseek-v2-lite"])
def test_a_step_holds_what_each_rank_makes_of_its_part(framework, model):
    small = Plan(global_batch=8, seq_len=1024, loading="parts")
    for plan in (small, dataclasses.replace(small, optimizer="sgd", recompute="full")):
        try:
            found = estimate(load_model(model), load_cluster("dgx-h100", gpus=8), plan, framework)
        except IllegalPlan:  # of an option that a framework hasn't
            continue
        assert found.loading.device_bytes <= found.memory.total == found.needed_memory


def test_a_host_that_is_too_small_is_named_by_a_search_and_of_a_launch_file(run, tmp_path):
    """512 GiB a node: eight copies of 141 GB are more, and one of 812 GB; how checkpoints are saved is the file's."""
    asked = ["--cluster", "jean-zay-a100", "--gpus", "64", "--gbs", "64", "--seq-len", "2048"]
    found = run("search", "llama3-70b", *asked, "--framework", "hf-fsdp@2025.6", "--recompute", "full", "--zero-stage", "3")
    assert "of a node's host memory, which has 512" in found[2]
    file = tmp_path / "fsdp.yaml"
    file.write_text(
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 64\nfsdp_config:\n"
        "  fsdp_cpu_ram_efficient_loading: false\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
    )
    told = run("explain", str(file), "--model", "llama3.1-405b", *asked[:2], *asked[4:])
    words = " ".join(told[1].split())
    assert "Note: to load the model takes 756 GiB" in words and "one-rank takes" not in words and "a checkpoint" not in words


def test_a_peak_of_tensors_counts_loading_where_nothing_sets_it_back():
    """litgpt/utils.py of Lightning-AI/litgpt@26857050 asks for ``max_memory_allocated``; torchtune/training/memory.py
    resets it."""
    peaks = []
    for name in ("torchtune", "litgpt-fsdp"):
        found = ask(name, loading="whole")
        assert found.loading.device_bytes > found.memory.total
        peaks += counted([found], [Count("allocated", "max")])
    assert peaks[0] < WHOLE / 4 and WHOLE < peaks[1] < 1.05 * WHOLE
