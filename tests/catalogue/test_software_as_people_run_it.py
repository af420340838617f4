"""Software as its defaults leave it, and software that a compiler fuses, take what was measured of them."""

from __future__ import annotations

import dataclasses

import pytest

from costmodel import (
    Plan,
    Transformer,
    estimate,
    ledger,
    load_cluster,
    load_device,
    load_framework,
    load_model,
    machine,
)
from costmodel.arithmetic.named_tuples import flat
from costmodel.catalogue.effects import runs_of
from costmodel.catalogue.records import run_of
from costmodel.catalogue.software import OF_KERNELS, constants_by_owner
from costmodel.formulas.transformer import memory

SMALL = Transformer(
    name="small", layers=12, hidden=512, heads=8, vocabulary=51_200, feed_forward=2048, gated=False, norm="layernorm",
    learned_positions=1024,
)  # fmt: skip


@pytest.mark.parametrize(("device", "measured"), [("a100-sxm-80gb", 0.1456), ("gb200", 0.1121), ("h100-sxm", 0.1131)])
def test_megatrons_own_tests_take_what_they_log_where_nothing_was_tuned(device, measured):
    # NVIDIA/Megatron-LM@d98e8a6 tests/functional_tests/test_cases/gpt: eight GPUs, 32 sequences of 1,024
    plan = Plan(global_batch=32, seq_len=1024, micro_batch=4, pipeline_parallel=4)
    tuned = dataclasses.replace(plan, fused_cross_entropy=True)  # ``--cross-entropy-loss-fusion``
    steps = {
        name: estimate(SMALL, machine(device, gpus=8), asked, framework=name).step_time
        for name, asked in (("megatron-core", tuned), ("megatron-core-untuned", plan))
    }
    assert steps["megatron-core-untuned"] == pytest.approx(measured, rel=0.3)
    assert steps["megatron-core-untuned"] > 1.5 * steps["megatron-core"]


RECORD = {
    "id": "mine/1", "campaign": "mine", "model": {"name": "llama2-7b"},
    "cluster": {"device": "a100-sxm-80gb", "gpus": 8, "gpus_per_node": 8},
    "plan": {"global_batch": 8, "seq_len": 2048, "micro_batch": 1}, "measured": {"step_time_s": 1.0},
}  # fmt: skip


def test_a_record_of_an_untuned_run_takes_the_entry_of_that_and_other_software_its_own():
    untuned = run_of(RECORD | {"software": {"framework": "megatron-core", "untuned": True}})
    assert untuned.framework.name == "megatron-core-untuned"
    assert run_of(RECORD | {"software": {"framework": "megatron-core"}}).framework.name == "megatron-core"
    assert run_of(RECORD | {"software": {"framework": "fsdp2", "untuned": True}}).framework.name == "fsdp2"


def test_a_compiler_makes_one_kernel_of_the_softmax_of_unfused_attention():
    model, cluster = load_model("llama2-7b"), machine("a100-sxm-80gb", gpus=8)
    maxtext = load_framework("maxtext", cluster.device.architecture)
    plan = Plan(global_batch=8, seq_len=2048, micro_batch=1, attention="unfused")
    apart = dataclasses.replace(maxtext, compiled=False)
    one, several = (estimate(model, cluster, plan, framework=software).step_time for software in (maxtext, apart))
    by_hand = dataclasses.replace(plan, attention="fused-softmax")
    compiled, eager = (estimate(model, cluster, by_hand, framework=software).step_time for software in (maxtext, apart))
    assert one == pytest.approx(compiled) and several > eager


def test_a_gpt_of_126m_in_jax_with_unfused_attention_takes_what_was_measured():
    # NVIDIA/JAX-Toolbox rosetta/projects/pax: 64 A100, 256 sequences of 2,048: 0.10 to 0.14 s by release; 0.165 said before
    model = Transformer(
        name="GPT 126M", layers=12, hidden=768, heads=12, vocabulary=50_304, feed_forward=3072, gated=False, norm="layernorm",
        learned_positions=2048,
    )  # fmt: skip
    plan = Plan(global_batch=256, seq_len=2048, micro_batch=4, zero_stage=0, attention="unfused")
    step = estimate(model, machine("a100-sxm-80gb", gpus=64), plan, framework="maxtext").step_time
    assert 0.075 < step < 0.14


def test_a_record_of_a_compiled_run_says_so_of_its_framework():
    run = run_of(RECORD | {"software": {"framework": "fsdp2", "compile": True}})
    assert run.framework.compiled and "software.compile" not in run.unexpressed


@pytest.mark.parametrize(("framework", "width"), [("ddp", 4), ("hf-trainer", 2)])
def test_gradients_of_copies_are_summed_in_buckets_of_25_mib(framework, width):
    # pytorch/pytorch torch/nn/parallel/distributed.py: 21 of BLOOM-560m in 16 bit were traced
    model = load_model("bloom-560m")
    plan = Plan(global_batch=8, seq_len=2048, micro_batch=1, zero_stage=0)
    told = ledger(model, machine("h100-sxm", gpus=8), plan, framework).transactions
    calls = [one for one in told if one.collective == "all-reduce"]
    assert sum(one.nbytes * one.count for one in calls) == pytest.approx(width * 559.2e6, rel=0.01)
    assert sum(one.count for one in calls) == (37 if width == 4 else 21)
    assert sorted(one.nbytes for one in calls)[1] >= 25 * 2**20


@pytest.mark.parametrize("stage", [2, 3])
def test_states_that_hugging_face_s_trainer_shards_are_deepspeed_s(stage):
    """A master copy and two moments in 32 bit: 12 bytes a parameter, and gradients of the shard in 32 bit at the update."""
    plan = Plan(global_batch=4, seq_len=2048, data_parallel=4, zero_stage=stage, recompute="full")
    cluster, model = load_cluster("dgx-a100", gpus=4), load_model("llama2-7b")
    found, others = (estimate(model, cluster, plan, name).memory for name in ("hf-trainer", "deepspeed"))
    assert found.optimizer == pytest.approx(12 * model.parameters / 4, rel=1e-3)
    assert found.temporaries == pytest.approx(others.temporaries, rel=1e-9)


def test_buckets_of_distributed_data_parallel_lie_beside_the_gradients():
    """PyTorch's ``gradient_as_bucket_view`` is off by default, in accelerate, too; Lightning's GPT-2 XL held 37.0 GiB so."""
    model = load_model("gpt2-xl")
    alone, several = (
        estimate(model, load_cluster("dgx-a100", gpus=ranks), Plan(global_batch=2 * ranks, seq_len=1024), "hf-trainer").memory
        for ranks in (1, 4)
    )
    assert several.gradients - alone.gradients == pytest.approx(2 * model.parameters, rel=1e-3)


def test_beside_a_quantised_base_nothing_casts_what_peft_has_cast_up():
    """Llama 3.1 8B in NF4 took 835 s a step of 524,288 tokens on an H100, and 204.8 s in 16 bit (records of both below)."""
    model, cluster = load_model("llama3.1-8b"), load_cluster("dgx-h100", gpus=1)
    plan = Plan(
        global_batch=64, micro_batch=2, seq_len=8192, data_parallel=1, dtype="bf16", recompute="full", adapter="qlora",
        lora_rank=8, loss="16-bit",
    )  # fmt: skip
    found = estimate(model, cluster, plan, "universal-llm-trainer")
    assert found.plan.dtype == "fp32"
    assert found.step_time == pytest.approx(835.2, rel=0.15)
    assert found.memory.total / 2**30 == pytest.approx(44.7, rel=0.2)
    assert estimate(model, cluster, plan, "hf-trainer").plan.dtype == "bf16"


def test_a_loss_in_the_dtype_of_logits_holds_twice_as_much_in_32_bit():
    model, cluster = load_model("llama3.2-1b"), load_cluster("dgx-h100", gpus=1)
    sizes = {"global_batch": 8, "micro_batch": 8, "seq_len": 4096, "recompute": "full"}
    for loss, more in (("16-bit", 2.0), ("upcast", 1.0)):
        narrow, wide = (
            estimate(model, cluster, Plan(**sizes, loss=loss, dtype=dtype), "hf-trainer") for dtype in ("bf16", "fp32")
        )
        assert wide.memory.logits == pytest.approx(more * narrow.memory.logits, rel=0.01), loss


@pytest.mark.parametrize(("name", "device"), [("megatron-core", "h100-sxm"), ("unsloth", "rtx-4090"), ("nemo", "tpu-v5e")])
def test_why_a_constant_is_what_it_is_ends_at_the_constant_that_is_used(name, device):
    architecture = load_device(device).architecture
    used, owners = flat(load_framework(name, architecture).constants), constants_by_owner(name, architecture)
    assert 2 <= len(owners) <= 4 and "all software" in owners
    last = {path: value for values in owners.values() for path, value in values.items()}
    timed_there = bool(runs_of({"unsloth": "hf-trainer"}.get(name, name), architecture))
    assert all(used[path] == pytest.approx(value) or (path in OF_KERNELS and not timed_there) for path, value in last.items())


def test_liger_s_loss_never_has_all_logits():
    """Llama 3.1 8B under ZeRO-3 on 8 H200 took 66.5 GiB at 131,072 tokens and 124.5 at 262,144.

    stas00/ml-engineering@744d01e insights/when-to-upgrade-gpus/README.md, whose benchmark.py has ``AutoLigerKernelForCausalLM``:
    SwiGLU is one kernel, too.
    """
    model, cluster = load_model("llama3.1-8b"), load_cluster("hgx-h200", gpus=8)
    liger = dataclasses.replace(load_framework("deepspeed", "hopper"), keep_activated=False)
    lengths, measured = (131_072, 262_144), (66.5, 124.5)
    sizes = {"global_batch": 8, "zero_stage": 3, "recompute": "full", "fused_norms": True, "loss": "fused"}
    sizes |= {"optimizer_offload": 1.0}
    found = [estimate(model, cluster, Plan(**sizes, seq_len=length), liger).memory.total / 2**30 for length in lengths]
    assert found == pytest.approx(measured, rel=0.05)
    assert (found[1] - found[0]) / (measured[1] - measured[0]) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_a_linear_loss_holds_a_chunk_of_logits_and_gradients_of_what_the_head_reads(adapter):
    """linkedin/Liger-Kernel@v0.8.5 src/liger_kernel/ops/fused_linear_cross_entropy.py: of 16-bit tensors, logits of a 32nd of the
    tokens, as the vocabulary is 31.3 times as wide as a token; the gradient of the head's input; that of its weight where it
    trains; and what the norm before it and the head itself read."""
    model, cluster, tokens = load_model("llama3.1-8b"), load_cluster("dgx-h100", gpus=1), 8192
    plan = Plan(global_batch=1, seq_len=tokens, loss="fused-linear", recompute="none", adapter=adapter)
    found = estimate(model, cluster, plan, "hf-trainer")
    chunk, inputs, weight = tokens / 32 * 128_256, tokens * 4096, 128_256 * 4096
    held = 2 * (chunk + 3 * inputs + (weight if adapter == "none" else 0))
    numbers = found.inputs
    assert memory.logits(numbers.model, numbers.settings, numbers.plan, 1.0) == pytest.approx(held, rel=0.01)


BERT_LARGE = Transformer(
    name="BERT-large", layers=24, hidden=1024, heads=16, vocabulary=30_528, feed_forward=4096, gated=False, norm="layernorm",
    learned_positions=512, attention_bias=True, output_bias=True, feed_forward_bias=True, dropout=True, causal=False,
    tied_embeddings=True,
)  # fmt: skip


def bert_of_examples(release, length, **plan):
    return run_of({
        "model": dataclasses.asdict(BERT_LARGE) | {"kind": "encoder"}, "release": release, "source": "a/b@1",
        "cluster": {"device": "a100-sxm-80gb", "gpus": 1, "gpus_per_node": 1},
        "software": {"framework": "nvidia-deeplearningexamples"},
        "plan": {"global_batch": 4096, "seq_len": length, "micro_batch": 32, "dtype": "fp16", **plan},
    })  # fmt: skip


def test_nvidias_bert_bins_samples_by_length_at_512_tokens_from_the_release_whose_loader_does():
    assert bert_of_examples("21.11", 512).plan.batching == "grouped"
    # Krell et al., arXiv 2107.02027: at 512 tokens half of Wikipedia's are padding
    assert bert_of_examples("21.11", 512).plan.mean_length == pytest.approx(0.5 * 512, rel=0.01)
    for release, length, said in (("20.06", 512, {}), ("21.11", 128, {}), ("21.11", 512, {"batching": "full"})):
        assert bert_of_examples(release, length, **said).plan.batching == "full"


def test_binned_samples_take_nvidias_bert_half_the_time_of_full_ones():
    # NVIDIA/DeepLearningExamples@729963d PyTorch/LanguageModeling/BERT/README.md, "Pre-training NVIDIA DGX A100": sequences/s
    run = bert_of_examples("21.11", 512)
    step = estimate(run.model, run.cluster, run.plan, run.framework)
    assert run.plan.global_batch / step.step_time == pytest.approx(210, rel=0.15)
