"""What a rank holds beside its states, against bytes that others counted and against the tensors that code keeps."""

from __future__ import annotations

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_framework, load_model
from costmodel.evaluation.memory_breakdown import contents_of, place_of
from costmodel.formulas.transformer import activations, memory

GIB = 2.0**30


def bill(model, framework, cluster="dgx-a100", **fields):
    plan = Plan(**{"global_batch": 4, "seq_len": 4096, "micro_batch": 2, "data_parallel": 2, **fields})
    return estimate(load_model(model), load_cluster(cluster, gpus=plan.gpus), plan, framework).memory


@pytest.mark.parametrize(("model", "adapter", "held"), [
    ("mistral-7b", "lora", 0.95), ("mistral-7b", "qlora", 0.70), ("mixtral-8x7b", "lora", 2.9), ("mixtral-8x7b", "qlora", 1.3),
])  # fmt: skip
def test_sharded_weights_that_are_whole_are_one_layer_and_what_lies_outside_the_layers(model, adapter, held):
    """foundation-model-stack/fms-acceleration@876e2ed scripts/benchmarks/refs/a100_80gb.csv, 2 GPUs: peaks with micro-batches
    of 2 and 4, extended to none, over the states."""
    found = bill(model, "hf-fsdp", adapter=adapter, lora_targets="attention", recompute="full", zero_stage=3)
    gathered = found.buffers - found.asked.software.memory.workspace
    assert gathered / GIB == pytest.approx(held, rel=0.16)


def test_an_update_holds_the_sums_of_gradients_that_waited_whole_for_the_last_micro_batch():
    """foundation-model-stack/fms-acceleration@876e2ed scripts/benchmarks/refs/a100_80gb_moe.csv, rows 41 and 42, all of Mixtral
    on 8 GPUs in 16 bit: 55.4 GiB by ``nvidia-smi``, in which tensors have to have room. Of a GPU's 5.8 G parameters the
    update has weights, gradients, two moments and the root of one."""
    found = bill(
        "mixtral-8x7b", "hf-fsdp@2024-04", data_parallel=8, expert_parallel=8, global_batch=128, micro_batch=1, seq_len=210,
        recompute="full", zero_stage=3,
    )  # fmt: skip
    assert found.stages[0].phase == "update"
    assert found.allocated == pytest.approx(5 * 2 * load_model("mixtral-8x7b").parameters / 8, rel=0.01)
    assert found.allocated < 55.4 * GIB < found.total


def test_deepspeed_gathers_up_to_a_billion_weights():
    """deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/config.py, ``max_live_parameters``."""
    found = bill("llama2-7b", "deepspeed", zero_stage=3, recompute="full")
    buckets = 5e8 * 2.0
    assert found.buffers - found.asked.software.memory.workspace - buckets == pytest.approx(1e9 * 2.0)


def test_gaps_come_of_what_comes_and_goes_and_not_of_states():
    asked = bill("llama2-7b", "fsdp2", expandable_segments=False).asked
    software = asked.software._replace(memory=asked.software.memory._replace(fragmentation=0.2))
    parts = (1e9, 2e9, 3e9, 4e9, 5e8, 6e8, 7e8)
    gaps = memory.memory_of(*parts, 0.0, asked.settings, asked.plan, asked.network, software).overhead
    gaps -= memory.outside_allocator(asked.plan, asked.network, software)
    assert gaps == pytest.approx(0.2 * sum(parts[3:]))


@pytest.mark.parametrize(("norm", "fused", "frozen", "mixed", "bytes_"), [
    ("rmsnorm", True, False, True, 2.0), ("rmsnorm", False, False, True, 6.0), ("rmsnorm", False, True, True, 4.0),
    ("layernorm", False, False, False, 2.0), ("layernorm", False, False, True, 4.0),
])  # fmt: skip
def test_a_norm_of_separate_kernels_keeps_its_input_in_32_bit_and_what_its_weight_multiplies(norm, fused, frozen, mixed, bytes_):
    """huggingface/transformers, ``LlamaRMSNorm``; a LayerNorm is one kernel in PyTorch, of 32 bit under autocast."""
    model = dataclasses.replace(load_model("llama2-7b"), norm=norm, published_parameters=None)
    plan = Plan(
        global_batch=1, seq_len=128, fused_norms=fused, adapter="lora" if frozen else "none", mixed_precision=mixed,
    )  # fmt: skip
    settings = plan.settings(load_framework("hf-trainer"))
    assert activations.norm_input_bytes(model.numbers(), settings) == bytes_


@pytest.mark.parametrize(("norm", "release", "dtype", "bytes_"), [
    ("layernorm", "2024-06", "fp16", 2 + 2 + 2), ("rmsnorm", "2024-06", "fp16", 4 + 4 + 4),
    ("layernorm", "2024-10", "fp16", 4 + 4 + 4),
])  # fmt: skip
def test_the_loss_of_a_hugging_face_model_is_as_wide_as_its_code_of_the_time_had_it(norm, release, dtype, bytes_):
    """Log-softmax, its gradient, that of its input: GPT-2's as they are until transformers 4.46 lifted all, Llama's lifted."""
    model = dataclasses.replace(load_model("llama2-7b"), norm=norm, published_parameters=None)
    framework = load_framework(f"deepspeed@{release}")
    held = []
    for vocabulary in (1000, 2000):
        wider = dataclasses.replace(model, vocabulary=vocabulary)
        plan = Plan(global_batch=1, seq_len=128, dtype=dtype)
        held.append(memory.logits(wider.numbers(), plan.settings(framework), plan.numbers(framework, 32), 1.0))
    assert held[1] - held[0] == 128 * 1000 * bytes_


def test_logits_that_are_capped_are_kept_once_more_but_by_a_loss_that_caps_them_itself():
    """huggingface/transformers src/transformers/models/gemma2/modeling_gemma2.py: the tangent keeps what it makes, in 16 bit."""
    model, framework = load_model("gemma2-2b"), load_framework("hf-trainer")
    free = dataclasses.replace(model, capped_logits=False)
    for loss, more in (("upcast", 2 * 128 * model.vocabulary), ("fused-linear", 0)):
        plan = Plan(global_batch=1, seq_len=128, loss=loss)
        held, less = (
            memory.logits(one.numbers(), plan.settings(framework), plan.numbers(framework, 26), 1.0) for one in (model, free)
        )
        assert held - less == more


@pytest.mark.parametrize(("tensor", "gated", "copies"), [(1, True, 0), (2, True, 3), (2, False, 2)])
def test_each_split_projection_may_keep_its_own_copy_of_its_input(tensor, gated, copies):
    """Queries, keys and values, gate and up, two bytes a channel each (PaddlePaddle/Paddle, ``c_identity_eager``)."""
    model = dataclasses.replace(load_model("llama2-7b"), gated=gated, published_parameters=None)
    plan = Plan(global_batch=1, seq_len=128, tensor_parallel=tensor)
    kept = []
    for own in (False, True):
        framework = dataclasses.replace(load_framework("paddlenlp"), own_inputs=own)
        numbers = model.numbers(), plan.settings(framework), plan.numbers(framework, 32)
        kept.append(activations.layer_activations(*numbers))
    assert kept[1] - kept[0] == pytest.approx(128 * 4096 * 2 * copies)


def test_keys_that_are_repeated_are_kept_for_every_query():
    model, plan = load_model("llama3-8b"), Plan(global_batch=1, seq_len=1024)
    kept = {}
    for repeated in (False, True):
        framework = dataclasses.replace(load_framework("torchtune"), repeat_keys=repeated)
        numbers = (model.numbers(), plan.settings(framework), plan.numbers(framework, model.layers))
        kept[repeated] = activations.attention_activations(*numbers)
    assert kept[True] - kept[False] == 2.0 * 2.0 * (32 - 8) * 128


def test_a_program_of_actors_has_what_comes_and_goes_twice_with_several_micro_batches():
    """Yuan et al. 2021 (arXiv 2110.15032); by Oneflow-Inc/DLPerf@c89430b 15.3, 11.7 and 10.5 GiB where one of each would
    take 9.2, 7.8 and 7.5."""
    one, more = (
        bill("gpt2-xl", "oneflow", global_batch=batch, seq_len=1024, data_parallel=1, micro_batch=1, recompute="full")
        for batch in (1, 4)
    )
    assert more.activations == pytest.approx(2.0 * one.activations)
    assert more.temporaries + more.logits == pytest.approx(2.0 * (one.temporaries + one.logits))


def test_flat_updates_leave_what_passes_freed_idle_in_the_allocator():
    flat = load_framework("deepspeed", "ampere")
    found, plain = (
        bill("llama2-7b", dataclasses.replace(flat, flat_updates=one), zero_stage=1) for one in (True, False)
    )
    asked = found.asked
    contents = contents_of(asked, place_of(asked, 0))
    assert found.total == pytest.approx(plain.total)
    idle = min(contents.update, memory.passing_bytes(contents, asked.plan, 1.0))
    assert found.reserved - plain.reserved == pytest.approx(idle)


def test_weights_in_8_bit_are_held_once():
    """mlcommons/training_results_v4.0@62f111b: ``fp8_params`` and ``disable_parameter_transpose_cache``."""
    narrow = dataclasses.replace(load_framework("nemo", "hopper"), parameter_bytes=1.0)
    fields = {"tensor_parallel": 4, "micro_batch": 1, "dtype": "fp8", "adapter": "lora", "cluster": "dgx-h100"}
    wide, held = (bill("llama2-70b", framework, **fields).weights for framework in ("nemo", narrow))
    assert held == pytest.approx(69e9 / 4, rel=0.01)
    assert wide == pytest.approx(2.0 * held, rel=0.05)  # in both layouts, embedding and head in 16 bit


def test_a_loss_that_waits_for_its_backward_pass_is_a_log_softmax_and_the_stages_output():
    """pytorch/pytorch v2.13.0 torch/distributed/pipelining/stage.py, ``fwd_cache``: of four micro-batches of GPipe the last one's
    loss has three tensors in 32 bit of each logit, the others' one, and all have their logits in 16."""
    found = bill(
        "llama3-8b", "fsdp2", "dgx-h100", schedule="gpipe", pipeline_parallel=2, zero_stage=2, micro_batch=1, global_batch=8,
        seq_len=2048,
    )  # fmt: skip
    logits, inputs = 2048 * 128_256, 2 * 2 * 2048 * 4096
    assert found.stages[1].phase == "loss"
    assert found.stages[1].parts.logits == pytest.approx((3 * 4 + 2) * logits + 3 * (4 + 2) * logits + 4 * inputs)
