"""What DeepSpeed's first two stages hold as a backward pass ends, counted tensor by tensor of its code.

deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/stage_1_and_2.py, a method each.
"""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_model

LLAMA = dataclasses.replace(load_model("llama3-8b"), layers=4, published_parameters=None)
GPUS = 4
PARAMETERS = 2 * 128256 * 4096 + 4 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336 + 2 * 4096) + 4096
SHARE = PARAMETERS / GPUS
TABLE = 128256 * 4096
"""Of the embedding, and of the head; larger than a bucket."""
BUCKETS = 2 * 500_000_000
"""Two of ``reduce_bucket_size``, filled in turns (``setup_buckets``)."""
STATES = 2 * PARAMETERS + 12 * SHARE


def held(framework="deepspeed", micro_batches=1, gpus=GPUS, seq_len=512, **fields):
    batch = 2 * gpus * micro_batches
    plan = Plan(global_batch=batch, seq_len=seq_len, micro_batch=2, data_parallel=gpus, recompute="full", **fields)
    answer = estimate(LLAMA, load_cluster("dgx-h100", gpus=gpus), plan, framework)
    return answer.memory.allocated - answer.inputs[4].memory.workspace


@pytest.mark.parametrize(("stage", "micro_batches", "of_gradients"), [
    # the share (``copy_grads_in_partition``), the embedding's as it comes, and flat to be summed (``allreduce_bucket``)
    (2, 1, SHARE + 2 * TABLE),
    # the share of the micro-batches before, too (``get_all_grad_tensors``)
    (2, 4, 2 * SHARE + 2 * TABLE),
    # the head's, which nobody takes from its parameter before ``_clear_param_grad_only``
    (1, 1, SHARE + 2 * TABLE + TABLE),
])  # fmt: skip
def test_the_end_of_a_backward_pass_holds_these_gradients(stage, micro_batches, of_gradients):
    assert held(zero_stage=stage, micro_batches=micro_batches) == pytest.approx(STATES + 2 * (BUCKETS + of_gradients), rel=2e-4)


def test_the_host_s_update_leaves_buckets_a_tensor_as_large_as_the_largest_and_one_in_64_bit():
    """``temp_grad_buffer_for_gpu_offload``, ``set_norm_for_param_grad_in_gpu``; a gradient larger than a bucket is copied."""
    expected = 2 * PARAMETERS + 2 * (TABLE + BUCKETS + TABLE) + 8 * SHARE
    assert held(zero_stage=2, optimizer_offload=1.0) == pytest.approx(expected, rel=2e-4)


def test_an_update_of_a_step_with_little_else_copies_its_share_flat_and_in_32_bit():
    """``step``: the share, ``flatten`` of it, ``.to(float32)``, where two ranks have half of the parameters each."""
    share = PARAMETERS / 2
    assert held(zero_stage=2, gpus=2) == pytest.approx(2 * PARAMETERS + 12 * share + (2 + 2 + 4) * share, rel=2e-4)


def test_buckets_came_before_the_backward_pass_until_december_2025_and_are_not_there_at_the_loss_since():
    """deepspeedai/DeepSpeed@53e91a098; adapters' gradients are small, so that the loss is the fullest moment."""
    now, before = (held(name, zero_stage=2, adapter="lora", seq_len=4096) for name in ("deepspeed", "deepspeed@2025-11"))
    assert before - now == pytest.approx(2 * BUCKETS, rel=1e-6)


def test_the_third_stage_has_its_share_of_gradients_on_the_host_where_the_host_updates():
    """stage3.py, ``grad_partitions_flat_buffer`` lies where ``self.device`` is."""
    here, away = (held(zero_stage=3, optimizer_offload=share) for share in (0.0, 1.0))
    assert here - away == pytest.approx((2 + 12) * SHARE, rel=1e-6)
