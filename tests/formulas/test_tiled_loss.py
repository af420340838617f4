"""TRL's loss, which makes a tile of logits at a time, against what its code allocates.

huggingface/trl@v1.16.0 trl/kernels/chunked_logprob.py ``ChunkedLogProbFunction``.
"""


import pytest

from costmodel import Plan, estimate, load_cluster, load_model
from costmodel.formulas.transformer import layer, memory

LLAMA = load_model("llama3.2-1b")
VOCABULARY, HIDDEN = 128256, 2048


def answer(framework="trl", batch=2, **fields):
    plan = Plan(global_batch=batch, seq_len=1024, micro_batch=batch, **fields)
    return estimate(LLAMA, load_cluster("dgx-h100", gpus=1), plan, framework)


@pytest.mark.parametrize(("adapter", "of_weights"), [("none", VOCABULARY * HIDDEN), ("lora", 0)])
def test_its_backward_pass_ends_with_a_tile_and_gradients_in_32_bit_beside_those_that_it_hands_on(adapter, of_weights):
    """``mm_buf``, ``grad_hidden``, ``grad_weight``, what ``.to`` makes of both, and inputs of the last norm and the head."""
    tokens = 2 * 1024
    tile = 2 * tokens * 32768
    expected = 2 * 2 * tokens * HIDDEN + tile + (4 + 2) * tokens * HIDDEN + (4 + 2) * of_weights
    assert memory.logits(*answer(adapter=adapter).inputs[:3], 1.0) == pytest.approx(expected, rel=1e-6)


def test_a_tile_has_4096_tokens_at_most():
    one, two = (memory.tiled_logits(*answer(batch=batch, adapter="lora").inputs[:3]) for batch in (4, 8))
    assert two - one == pytest.approx((4 + 2) * 4 * 1024 * HIDDEN, rel=1e-6)


def test_weights_in_32_bit_are_cast_a_tile_at_a_time_and_their_gradient_is_handed_on_as_it_is():
    found = answer(base_dtype="fp32").memory.logits
    tokens = 2 * 1024
    casts = 2 * 2 * 32768 * HIDDEN
    expected = (2 * 2 + 4 + 2) * tokens * HIDDEN + 2 * tokens * 32768 + casts + 4 * VOCABULARY * HIDDEN
    assert found == pytest.approx(expected, rel=1e-6)


def test_its_backward_pass_multiplies_by_the_head_once_more():
    inputs = answer().inputs
    model, settings, plan, _, software, device = inputs[:6]
    kernels = settings.kernels._replace(tiled_loss=0.0)
    once = layer.head_work(model, settings._replace(kernels=kernels), plan, software, device)
    again = layer.head_work(model, settings, plan, software, device)
    assert again.data - once.data == pytest.approx(once.forward)
    assert again._replace(data=once.data) == once


def test_the_sfttrainer_has_it_since_july_2026_and_a_plan_may_name_another():
    """huggingface/trl@v1.7.0 trl/trainer/sft_config.py ``loss_type``."""
    logits = {name: answer(name).memory.logits for name in ("trl", "trl@2026-06", "hf-trainer")}
    assert logits["trl"] < 0.6 * logits["hf-trainer"]
    assert logits["trl@2026-06"] == logits["hf-trainer"]
    assert answer(loss="upcast").memory.logits == logits["hf-trainer"]
    assert answer("hf-trainer", loss="tiled").memory.logits == logits["trl"]
