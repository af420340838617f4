"""What accelerate's FSDP2 has gathered at the loss, unit by unit of its code."""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_model

LLAMA = dataclasses.replace(load_model("llama3-8b"), layers=4, published_parameters=None)
HEAD, LAYER = 128256 * 4096, 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336 + 2 * 4096
LOGITS = 2 * 1024 * 128256


def memory(framework, **fields):
    plan = Plan(global_batch=8, seq_len=1024, micro_batch=2, data_parallel=4, zero_stage=3, **fields)
    return estimate(LLAMA, load_cluster("dgx-h100", gpus=4), plan, framework).memory


def gathered(framework, **fields):
    found = memory(framework, **fields)
    return found.buffers - found.asked.software.memory.workspace


def test_the_head_alone_stays_gathered_and_before_june_2026_embedding_and_a_layer_with_it():
    """huggingface/accelerate@60b5c258 src/accelerate/utils/fsdp_utils.py ``fsdp2_prepare_model``; of version 1.14."""
    assert gathered("hf-fsdp2", adapter="lora") == pytest.approx(2 * HEAD, rel=1e-4)
    assert gathered("hf-fsdp2@2026-05", adapter="lora") == pytest.approx(2 * (2 * HEAD + LAYER), rel=1e-4)
    assert gathered("hf-fsdp", adapter="lora") == pytest.approx(2 * (2 * HEAD + LAYER), rel=1e-4)


def test_the_buffer_of_the_last_gather_lives_until_the_loss_is_known():
    """Where 16-bit logits, 32-bit ones and their log-softmax are there, and two gradients in 32 bit have yet to come: pytorch
    v2.13.0 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py ``wait_for_unshard``."""
    inputs = 2 * 2 * 2 * 1024 * 4096
    expected = inputs + (2 + 4 + 4) * LOGITS + 2 * HEAD
    assert memory("hf-fsdp2", adapter="lora").logits == pytest.approx(expected, rel=1e-3)


def test_an_embedding_that_is_the_head_stays_gathered_to_the_end_where_both_gradients_meet():
    """``tail_modules``, one unit: its weights, both gradients and their sum in 16 bit, beside the gradients of the last layer as
    they are scattered, before its own shard of 32 bit is there: pytorch/pytorch torch/csrc/autograd/input_buffer.cpp."""
    model = dataclasses.replace(load_model("qwen3-4b"), layers=4, published_parameters=None)
    plan = Plan(global_batch=4, seq_len=512, micro_batch=2, data_parallel=2, zero_stage=3, recompute="full")
    found = estimate(model, load_cluster("dgx-h100", gpus=2), plan, "hf-fsdp2").memory
    table = 151936 * 2560
    layer = (model.parameters - table - 2560) // 4
    states = (4 + 8) * model.parameters / 2 + 4 * (model.parameters - table) / 2
    held = found.allocated - found.asked.software.memory.workspace
    assert held == pytest.approx(states + 4 * 2 * table + 2 * layer, rel=2e-3)


def test_a_short_sequence_is_fullest_as_the_forward_pass_begins():
    """The embedding's buffer and copy, and the first layer's, before the former is freed: ``wait_for_unshard``; adapters and a
    tiled loss have little else."""
    model = load_model("llama3.2-1b")
    plan = Plan(global_batch=2, seq_len=64, micro_batch=1, data_parallel=2, zero_stage=3, adapter="lora", recompute="full",
                loss="tiled")  # fmt: skip
    found = estimate(model, load_cluster("dgx-h100", gpus=2), plan, "hf-fsdp2").memory
    table = 128256 * 2048
    unit = (model.parameters - table - 2048) // 16
    passing = found.logits + found.buffers - found.asked.software.memory.workspace + found.activations
    assert passing == pytest.approx(2 * (2 * table + 2 * unit), rel=5e-3)


def test_gradients_of_several_micro_batches_are_whole_from_accelerate_1_11():
    """``no_sync`` turns the reduction off: huggingface/accelerate@ec92b1af src/accelerate/accelerator.py; in 16 bit, as they
    are summed: pytorch v2.13.0 torch/distributed/fsdp/_fully_shard/_fsdp_param.py ``to_accumulated_grad_if_needed``."""
    plan = Plan(global_batch=16, seq_len=1024, micro_batch=2, data_parallel=4, zero_stage=3)
    for release, held in (("hf-fsdp2", 2.0), ("hf-fsdp2@2025-09", 4.0 / 4)):
        found = estimate(LLAMA, load_cluster("dgx-h100", gpus=4), plan, release).memory
        assert found.gradients == pytest.approx(held * LLAMA.parameters, rel=0.01)


def test_gradients_of_weights_on_the_host_go_there_as_they_are_reduced():
    """pytorch v2.13.0 torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py ``foreach_reduce``."""
    assert memory("hf-fsdp2", parameter_offload=1.0, optimizer_offload=1.0).gradients == 0.0
