"""Plans that are publicly known to be good: each within 5 % of the best that is found, or among the first ten."""

from typing import NamedTuple

import pytest

from costmodel import IllegalPlan, Plan, estimate, load_cluster, load_framework, load_model
from costmodel.evaluation.plan_search import search


class Known(NamedTuple):
    """A published choice.

    Parameters
    ----------
    asked : model, cluster, GPUs, sequences a step, tokens of one, framework
    published : the degrees
    also : what the software of its time had, for the whole search
    """

    asked: tuple[str, str, int, int, int, str]
    published: dict[str, int]
    also: dict[str, object]


EVERY_FEW = {"recompute": ["none", "full", 2, 3, 4]}
"""The trainer of Llama 3 is FSDP under a pipeline, and frees tensors by hand (section 3.3.2), which none of the catalogue does:
without recomputation the plan needs more than 80 GiB here, with every third layer's it fits."""
KNOWN = {
    "Llama 3.1 405B at 8k, arXiv 2407.21783 table 4": Known(
        ("llama3.1-405b", "dgx-h100", 16_384, 2_048, 8_192, "fsdp2"),
        {"tensor_parallel": 8, "context_parallel": 1, "pipeline_parallel": 16}, EVERY_FEW,
    ),
    "Llama 3.1 405B at 131k, arXiv 2407.21783 table 4": Known(
        ("llama3.1-405b", "dgx-h100", 16_384, 128, 131_072, "fsdp2"),
        {"tensor_parallel": 8, "context_parallel": 16, "pipeline_parallel": 16}, EVERY_FEW,
    ),
    "Llama 3 70B, NVIDIA-NeMo/Megatron-Bridge performance recipes, 64 H100": Known(
        ("llama3-70b", "dgx-h100", 64, 128, 8_192, "nemo"),
        {"tensor_parallel": 4, "context_parallel": 2, "pipeline_parallel": 4, "virtual_stages": 5}, {},
    ),
    "Mixtral 8x7B, NVIDIA-NeMo/Megatron-Bridge performance recipes, 128 H100": Known(
        ("mixtral-8x7b", "dgx-h100", 128, 256, 4_096, "nemo"),
        {"pipeline_parallel": 4, "virtual_stages": 8, "expert_parallel": 8}, {},
    ),
    "Nemotron-4 340B, arXiv 2406.11704 section 2.4": Known(
        ("nemotron4-340b", "dgx-h100", 6_144, 2_304, 4_096, "nemo"),
        {"tensor_parallel": 8, "pipeline_parallel": 8, "virtual_stages": 12}, {},
    ),
    "BLOOM, arXiv 2211.05100 section 3.4.2: its fork of Megatron-DeepSpeed recomputes layers or nothing": Known(
        ("bloom-176b", "jean-zay-a100", 384, 2_048, 2_048, "megatron-deepspeed"),
        {"tensor_parallel": 4, "pipeline_parallel": 12}, {"recompute": ["none", "full"]},
    ),
    "GPT-3, arXiv 2104.04473 table 1: the software of 2021 sharded no states and kept all activations or none": Known(
        ("gpt3-175b", "selene", 1_024, 1_536, 2_048, "megatron-lm-2021"),
        {"tensor_parallel": 8, "pipeline_parallel": 16}, {"zero_stage": 0, "recompute": ["none", "full"]},
    ),
    "OLMo 2 32B, allenai/OLMo-core@0c5c349 src/scripts/official/OLMo-2-0325-32B-train.py, for 1,024 GPUs and more": Known(
        ("olmo2-32b", "gcp-a3-mega", 1_024, 2_048, 4_096, "olmo-core"),
        {"tensor_parallel": 1, "context_parallel": 1, "pipeline_parallel": 1, "shard_group": 64, "micro_batch": 2,
         "recompute": "mlp"}, {},
    ),
    "DeepSeek-V3, arXiv 2412.19437 section 3.2: no tensor parallelism": Known(
        ("deepseek-v3", "h800-ib", 2_048, 15_360, 4_096, "hai-llm"),
        {"tensor_parallel": 1, "pipeline_parallel": 16, "expert_parallel": 64},
        {"dtype": "fp8-block", "fit_probability": 0.8},  # as of a plan that is asked about: it is said to hold 69 of 79 GiB
    ),
}  # fmt: skip


BEHIND = pytest.mark.xfail(reason="11 % from the best, with 13 plans between: with two context ranks nothing is recomputed")


@pytest.mark.parametrize("source", [pytest.param(one, marks=BEHIND) if "405B at 8k" in one else one for one in KNOWN])
def test_a_plan_known_to_be_good_is_near_the_best(source):
    (name, machine, gpus, batch, seq_len, framework), published, also = KNOWN[source]
    model, cluster = load_model(name), load_cluster(machine, gpus=gpus)
    asked = {"global_batch": batch, "seq_len": seq_len, "framework": framework}
    asked["rank_order"] = load_framework(framework).rank_orders[:1]  # sources name none: a plan is one in all its orders
    every = search(model, cluster, **asked, **also, keep_evaluated=True).every
    times = every.step_time[every.fits]
    try:
        found = search(model, cluster, **asked, **{**also, **published}).best
    except IllegalPlan as nothing:
        pytest.fail(f"{source}: {nothing}")
    ahead = int((times < found.step_time * (1.0 - 1e-9)).sum())
    assert found.step_time <= 1.05 * times.min() or ahead < 10, f"{found.step_time / times.min():.3f} of the best, {ahead} ahead"


@pytest.mark.parametrize(("gpus", "global_batch", "seq_len", "context", "published"), [
    (8_192, 2_048, 8_192, 1, 0.43), (16_384, 2_048, 8_192, 1, 0.41), (16_384, 128, 131_072, 16, 0.38),
])  # fmt: skip
def test_llama_3_uses_as_much_of_its_gpus_as_its_report_says(gpus, global_batch, seq_len, context, published):
    """arXiv 2407.21783 table 4 and section 3.3.2: FSDP that shards states and gradients, interleaved, nothing recomputed."""
    plan = Plan(
        global_batch=global_batch, seq_len=seq_len, tensor_parallel=8, context_parallel=context, pipeline_parallel=16,
        data_parallel=gpus // (8 * 16 * context), virtual_stages=8, zero_stage=2,
    )  # fmt: skip
    answer = estimate(load_model("llama3.1-405b"), load_cluster("dgx-h100", gpus=gpus), plan, "fsdp2")
    assert answer.mfu == pytest.approx(published, rel=0.10)


def test_deepseek_v3_trains_as_fast_as_its_report_says_under_the_plan_that_it_describes_and_fits():
    """arXiv 2412.19437 sections 1, 3.2 and 3.3: 180 thousand hours of an H800 a trillion tokens, DualPipe, 8 bits, norms,
    what the latents make and outputs of SwiGLU computed again."""
    plan = Plan(
        global_batch=15_360, seq_len=4_096, pipeline_parallel=16, expert_parallel=64, dtype="fp8-block", schedule="dualpipe",
        recompute="norms+latent-projections+expert-activation",
    )  # fmt: skip
    answer = estimate(load_model("deepseek-v3"), load_cluster("h800-ib", gpus=2_048), plan, "hai-llm")
    hours = 2_048 * answer.step_time / 3_600 / (15_360 * 4_096) * 1e12
    assert hours == pytest.approx(180e3, rel=0.15)
    assert answer.fits


def test_a_search_of_deepseek_v3_under_its_own_software_finds_the_plan_that_trained_it():
    """arXiv 2412.19437 section 3.2: no tensor parallelism, 16 stages of DualPipe, 64 expert ranks over eight nodes."""
    model, cluster = load_model("deepseek-v3"), load_cluster("h800-ib", gpus=2_048)
    asked = {"global_batch": 15_360, "seq_len": 4_096, "dtype": "fp8-block", "fit_probability": 0.8}
    found = search(model, cluster, framework="hai-llm", **asked).ranked
    alike = [one.plan for one in found if one.step_time <= 1.01 * found[0].step_time]
    assert all((one.tensor_parallel, one.pipeline_parallel, one.schedule) == (1, 16, "dualpipe") for one in alike)
    assert (64, "deduplicated") in [(one.expert_parallel, one.dispatcher) for one in alike]


QWEN = {"global_batch": 2_048, "seq_len": 4_096, "fused_cross_entropy": True}
LIGHT = "norms+expert-activation"
QWEN_RUNS = {
    17.6: Plan(**QWEN, tensor_parallel=2, pipeline_parallel=8, virtual_stages=4, expert_parallel=32, recompute=LIGHT,
               dispatcher="deduplicated", overlap_experts=True),
    19.7: Plan(**QWEN, tensor_parallel=2, pipeline_parallel=8, virtual_stages=4, expert_parallel=32, recompute=LIGHT,
               dispatcher="deduplicated"),
    24.2: Plan(**QWEN, tensor_parallel=2, pipeline_parallel=32, virtual_stages=3, expert_parallel=8, recompute=LIGHT),
    29.0: Plan(**QWEN, tensor_parallel=4, pipeline_parallel=8, virtual_stages=4, expert_parallel=8,
               dispatcher="deduplicated"),
}  # fmt: skip
"""Qwen3-235B on 256 H100 in bf16, s a step (yanring/Megatron-MoE-ModelZoo@e8650517d6 best_practice/qwen3/readme.md; @1ed4179f72
model_configs/benchmarking/Qwen3-235B-A22B.yaml has ``--cross-entropy-loss-fusion``)."""


def test_plans_of_qwen3_235b_come_in_the_order_that_was_measured_and_fit():
    """The last, of older code than the first two, is a fifth fast; the others are within 15 %."""
    model, cluster = load_model("qwen3-235b-a22b"), load_cluster("dgx-h100", gpus=256)
    answers = {measured: estimate(model, cluster, plan) for measured, plan in QWEN_RUNS.items()}
    times = [answers[measured].step_time for measured in sorted(answers)]
    assert times == sorted(times)
    assert all(answer.fits for answer in answers.values())
    for measured, answer in answers.items():
        assert answer.step_time == pytest.approx(measured, rel=0.15 if measured < 29.0 else 0.25)


def test_a_search_finds_a_plan_of_qwen3_235b_as_fast_as_the_best_that_was_measured():
    """It tries how tokens come to their experts, though nobody asks for it, and says so."""
    model, cluster = load_model("qwen3-235b-a22b"), load_cluster("dgx-h100", gpus=256)
    found = search(model, cluster, **QWEN)
    assert found.best.step_time < 1.05 * min(QWEN_RUNS)
    assert found.best.plan.dispatcher == "deduplicated"
    assert "dispatcher deduplicated" in found.departures


@pytest.mark.parametrize(("dtype", "seconds"), [("bf16", 4.606), ("fp8", 3.107)])
def test_nemotron_4_340b_takes_on_256_h100_what_its_benchmark_does(dtype, seconds):
    """NVIDIA/dgxc-benchmarking@1f6d9f4 nemotron/README.md.

    The plan is that of the training on 6,144 (NVIDIA/NeMo-Framework-Launcher@3be81fc launcher_scripts/conf/training/nemotron/
    nemotron_340b.yaml, tensor exchange overlapped), whose report has steps a fifth longer than estimated on 1,536, 3,072 and
    6,144 GPUs alike (arXiv 2406.11704, table 2): in production it was slower than as a benchmark, whatever the number of GPUs.
    """
    plan = Plan(
        global_batch=64, seq_len=4_096, tensor_parallel=8, pipeline_parallel=8, virtual_stages=12, data_parallel=4, dtype=dtype,
    )  # fmt: skip
    answer = estimate(load_model("nemotron4-340b"), load_cluster("dgx-h100", gpus=256), plan, "nemo")
    assert answer.step_time == pytest.approx(seconds, rel=0.10)


def test_olmo_2_32b_trains_as_fast_as_its_makers_say():
    """Over 1,800 tokens/s a GPU, 38 % MFU: allenai.org/blog/olmo2-32B."""
    plan = Plan(
        global_batch=2_048, seq_len=4_096, data_parallel=1_024, micro_batch=2, zero_stage=3, shard_group=64, recompute="mlp",
    )  # fmt: skip
    answer = estimate(load_model("olmo2-32b"), load_cluster("gcp-a3-mega", gpus=1_024), plan, "olmo-core")
    assert answer.tokens_per_second / 1_024 == pytest.approx(1_800, rel=0.10)
    assert answer.mfu == pytest.approx(0.38, rel=0.10)


def test_smollm3_trains_as_fast_as_its_makers_say_with_the_micro_batch_that_they_had():
    """14,000 tokens/s a GPU of 384: the Smol Training Playbook, Hugging Face 2025.

    2.36 million tokens a step are three sequences of 4,096 for each of 192 pairs of tensor ranks.
    """
    plan = Plan(global_batch=576, seq_len=4_096, tensor_parallel=2, data_parallel=192, micro_batch=3, zero_stage=0)
    model, cluster = load_model("smollm3-3b"), load_cluster("aws-p5", gpus=384)
    answer = estimate(model, cluster, plan, "nanotron")
    assert answer.tokens_per_second / 384 == pytest.approx(14_000, rel=0.20)
