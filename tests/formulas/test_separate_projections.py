"""Queries, keys and values, and gate and up, as products of their own: what they take, and what their gradients move."""

from __future__ import annotations

import dataclasses

import pytest

from costmodel import Plan, load_device, load_framework, load_model
from costmodel.formulas.transformer.layer import attention_projections, mlp, product
from costmodel.formulas.transformer.traffic import between_products, elementwise_bytes

FRAMEWORK = load_framework("fsdp2", "hopper")
MODEL = load_model("llama3-8b")
DEVICE = load_device("h100-sxm").numbers("bf16")
TOKENS, HIDDEN, KEYS, WIDTH = 8192, 4096, 1024, 14336


def asked(separate, model=MODEL, **habits):
    framework = dataclasses.replace(FRAMEWORK, separate_projections=separate, **habits)
    plan = Plan(global_batch=1, seq_len=TOKENS).resolve(framework)
    return model.numbers(), plan.settings(framework), plan.numbers(framework, model.layers), framework.numbers()


def alone(outputs, inputs):
    _, settings, plan, software = asked(True)
    return product(TOKENS, outputs, inputs, settings, plan, software, DEVICE)


@pytest.mark.parametrize("which", [0, 1, 2], ids=["forward", "dgrad", "wgrad"])
def test_each_projection_takes_what_its_own_product_does(which):
    apart, together = (attention_projections(*asked(separate), DEVICE)[which] for separate in (True, False))
    keys, queries = alone(KEYS, HIDDEN)[which], alone(HIDDEN, HIDDEN)[which]
    assert apart == pytest.approx(2 * keys + 2 * queries)  # two of keys and values, one of queries, one of the output
    assert together == pytest.approx(alone(HIDDEN + 2 * KEYS, HIDDEN)[which] + queries)
    gates = mlp(asked(True)[0], WIDTH, *asked(True)[1:], DEVICE)[which]
    assert gates == pytest.approx(2 * alone(WIDTH, HIDDEN)[which] + alone(HIDDEN, WIDTH)[which])


@pytest.mark.parametrize(("eager", "tensors"), [(True, 3), (False, 1)])
def test_gradients_of_a_shared_input_are_summed(eager, tensors):
    """Queries' is added to by keys' and by values', up's by gate's: three sums of a hidden state's size."""
    passes = []
    for separate in (True, False):
        model, settings, plan, _ = asked(separate, keep_activated=eager)
        passes.append(between_products(elementwise_bytes(model, settings, plan), model, settings))
    assert passes[0][0] == passes[1][0]
    assert passes[0][1] - passes[1][1] == pytest.approx(3 * tensors * 2 * TOKENS * HIDDEN)


def test_what_is_made_from_a_latent_and_a_plain_mlp_have_nothing_to_separate():
    for name in ("gpt3-175b", "deepseek-v2-lite"):
        model = load_model(name)
        parts = [attention_projections(*asked(separate, model), DEVICE) for separate in (True, False)]
        assert (parts[0] == parts[1]) is bool(model.kv_latent)
    numbers = load_model("gpt3-175b").numbers()
    assert mlp(numbers, WIDTH, *asked(True)[1:], DEVICE) == mlp(numbers, WIDTH, *asked(False)[1:], DEVICE)
