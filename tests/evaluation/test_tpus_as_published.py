"""Steps of MaxText on TPUs as Google published them: AI-Hypercomputer/tpu-recipes@c8cfe2f, and MaxText's own pages."""

import pytest

from costmodel import Plan, Transformer, estimate, load_cluster, load_model


@pytest.mark.parametrize(("model", "chips", "length", "batch", "offloaded", "measured"), [
    ("gpt3-175b", 256, 2048, 3, 0.0, 17.182),  # training/trillium/GPT3-175B-MaxText/bf16
    ("llama3.1-405b", 512, 8192, 1, 1.0, 54.803),  # training/trillium/Llama3.1-405B-MaxText
])  # fmt: skip
def test_a_v6e_takes_as_long_as_published(model, chips, length, batch, offloaded, measured):
    plan = Plan(
        global_batch=chips * batch, seq_len=length, micro_batch=batch, data_parallel=chips, zero_stage=3, recompute="full",
        activation_offload=offloaded,
    )  # fmt: skip
    step = estimate(load_model(model), load_cluster("tpu-v6e", gpus=chips), plan, framework="maxtext").step_time
    assert step == pytest.approx(measured, rel=0.1)


def test_a_v6e_sends_to_its_host_at_twice_the_rate_of_a_v5():
    """jax-ml/scaling-book@0819a7d tpus.md."""
    assert load_cluster("tpu-v6e", gpus=8).device.host_bandwidth == 2.0 * load_cluster("tpu-v5p", gpus=8).device.host_bandwidth


@pytest.mark.parametrize(("heads", "feed_forward", "layers", "chips"), [(64, 65536, 128, 512), (128, 131072, 128, 2048)])
def test_what_ran_on_v5p_fits(heads, feed_forward, layers, chips):
    """Models of 512 and 1,024 billion parameters (AI-Hypercomputer/maxtext@76bd53b0f MaxText/configs/v5p/README.md).

    Sixteen ranks share a layer, and its input, too.
    """
    model = Transformer(
        name="MaxText", layers=layers, hidden=20480, heads=heads, head_dim=256, feed_forward=feed_forward, gated=False,
        activation="relu", norm="rmsnorm", vocabulary=32768, tied_embeddings=False,
    )  # fmt: skip
    plan = Plan(
        global_batch=2 * chips, seq_len=2048, micro_batch=32, tensor_parallel=16, data_parallel=chips // 16, zero_stage=3,
        recompute="full",
    )  # fmt: skip
    assert estimate(model, load_cluster("tpu-v5p", gpus=chips), plan, framework="maxtext").fits
