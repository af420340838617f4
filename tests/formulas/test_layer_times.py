"""A layer's passes from shapes, against those that Korthikanti et al. 2022 measured (arXiv 2205.05198, table 4)."""

import dataclasses

import pytest

from costmodel import Plan, Transformer, estimate, load_cluster, load_framework, load_model
from costmodel.formulas.training_step import layer_pass

MODEL = Transformer(
    name="22B", layers=48, hidden=6144, heads=64, vocabulary=51200, feed_forward=24576, gated=False, norm="layernorm",
    attention_bias=True, output_bias=True, feed_forward_bias=True, tied_embeddings=True, learned_positions=2048, dropout=True,
)  # fmt: skip
TABLE_4 = {  # sequence parallelism, recomputation: forward, backward [s], of a layer on 8 A100s, 4 sequences of 2048 tokens
    (False, "none"): (7.7e-3, 11.9e-3), (True, "none"): (7.2e-3, 11.8e-3), (False, "full"): (7.7e-3, 19.5e-3),
    (False, "selective"): (7.7e-3, 13.2e-3), (True, "selective"): (7.2e-3, 13.1e-3),
}  # fmt: skip


def passes(sequence_parallel, recompute):
    cluster, framework = load_cluster("selene", gpus=8), load_framework("megatron-lm-2021", "ampere")
    plan = Plan(global_batch=4, seq_len=2048, tensor_parallel=8, micro_batch=4, dtype="fp16",
                sequence_parallel=sequence_parallel, recompute=recompute)  # fmt: skip
    one = layer_pass(
        MODEL.numbers(), plan.settings(framework), plan.numbers(framework, MODEL.layers), cluster.numbers(),
        framework.numbers(), cluster.device.numbers("fp16"),
    )  # fmt: skip
    return one.total_forward, one.total - one.total_forward


@pytest.mark.parametrize(("sequence_parallel", "recompute"), list(TABLE_4))
def test_forward_and_backward_passes_of_a_layer_are_within_a_fifth(sequence_parallel, recompute):
    found, published = passes(sequence_parallel, recompute), TABLE_4[sequence_parallel, recompute]
    assert found == pytest.approx(published, rel=0.2)


@pytest.mark.parametrize(("sequence_parallel", "recompute"), list(TABLE_4))
def test_a_backward_pass_is_as_many_forward_passes_as_published(sequence_parallel, recompute):
    forward, backward = passes(sequence_parallel, recompute)
    published = TABLE_4[sequence_parallel, recompute]
    assert backward / forward == pytest.approx(published[1] / published[0], rel=0.06)


def test_recomputing_the_core_costs_what_was_published_within_a_quarter():
    found = passes(False, "selective")[1] - passes(False, "none")[1]
    assert found == pytest.approx(13.2e-3 - 11.9e-3, rel=0.25)


def prototype(layers, heads, attention="fused-softmax", hidden=14_400, stages=None, sequences=2048):
    """A prototype of BLOOM on A100s: tensor parallelism of 8, eight layers a pipeline stage."""
    head, stages = hidden // heads, stages or layers // 8
    shape = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": heads, "head_dim": head, "value_head_dim": head}
    model = dataclasses.replace(load_model("bloom-176b"), name="prototype", feed_forward=4 * hidden, **shape)
    plan = Plan(global_batch=sequences, seq_len=2048, tensor_parallel=8, pipeline_parallel=stages, micro_batch=1, dtype="fp16",
                recompute="full", attention=attention)  # fmt: skip
    return estimate(model, load_cluster("dgx-a100", gpus=8 * stages), plan, framework="megatron-deepspeed")


@pytest.mark.parametrize(("layers", "heads", "measured"), [(8, 32, 769.99), (80, 96, 844.81)])
def test_heads_that_are_not_aligned_are_multiplied_outside_tensor_cores(layers, heads, measured):
    """bigscience-workshop/bigscience train/tr11-176B-ml/chronicles-prequel.md, "fp16": heads of 450 and of 150 channels."""
    assert prototype(layers, heads).step_time == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize(("layers", "heads", "measured"), [(8, 32, 769.99), (80, 96, 844.81)])
def test_heads_that_are_not_aligned_take_longer_than_aligned_ones_as_measured(layers, heads, measured):
    """The same, against ten layers of 14,336 with 64 heads of 224, which took 205.52 s for 512 sequences."""
    found, aligned = prototype(layers, heads), prototype(10, 64, hidden=14_336, stages=1, sequences=512)
    assert found.step_time / aligned.step_time == pytest.approx(measured / 205.52, rel=0.12)
    assert found.time_interval[0] < measured < found.time_interval[1]
    # as many heads of 360 and of 120 channels would run on tensor cores
    assert prototype(layers, heads * 5 // 4).step_time < 0.9 * measured


def test_flash_kernels_pad_heads_that_are_not_aligned():
    assert prototype(8, 32, "flash").step_time == pytest.approx(prototype(8, 40, "flash").step_time, rel=0.05)
