"""What a compiler leaves between the products of a layer moves what the library says of compiled software.

TorchInductor (PyTorch 2.13.0, ``GraphLowering.count_bytes``) counted what each of its kernels reads and writes for one layer of
512 channels, eight heads and three times as many channels inside, compiled by itself as torchtitan does it, for 1,024 tokens.
"""

import dataclasses

import pytest

from costmodel import Plan, Transformer, load_framework
from costmodel.formulas.transformer import traffic

TOKENS, HIDDEN = 1_024, 512
SHAPE = {"layers": 3, "hidden": HIDDEN, "heads": 8, "kv_heads": 8, "head_dim": 64, "feed_forward": 1_536, "vocabulary": 512,
         "norm": "rmsnorm"}  # fmt: skip
# Bytes a token and channel: a norm, the rotation, a sum with a norm, the activation, a sum of three; and of their backward pass
NARROW = 4.0 + 8.1 + 6.0 + 18.0 + 8.0, 30.0 + 12.0 + 8.1 + 14.0 + 12.0
# The same of a model in 32 bit under autocast, with norms of queries and keys and no gate; without casts of weights
WIDE = 6.0 + 2.1 + 2.1 + 8.2 + 8.0 + 12.0 + 12.0, 6.0 + 18.0 + 16.0 + 6.0 + 12.1 + 8.1 + 8.1 + 14.0 + 18.0


@pytest.mark.parametrize(("autocast", "more", "counted"), [
    (False, {"gated": True}, NARROW), (True, {"gated": False, "activation": "relu", "qk_norm": "head"}, WIDE),
])  # fmt: skip
def test_a_compiled_layer_moves_what_its_compiler_counts(autocast, more, counted):
    framework = dataclasses.replace(load_framework("fsdp2"), compiled=True, autocast=autocast)
    model = Transformer(name="small", **SHAPE, **more).numbers()
    plan = Plan(global_batch=2, micro_batch=2, seq_len=TOKENS // 2).resolve(framework)
    settings, numbers = plan.settings(framework), plan.numbers(framework, 3)
    told = traffic.between_products(traffic.elementwise_bytes(model, settings, numbers), model, settings)
    assert sum(told) / TOKENS / HIDDEN == pytest.approx(sum(counted), rel=0.07)


def test_a_whole_graph_moves_what_its_compiler_counts():
    """TorchInductor counted it likewise of a layer more of a GPT-2 under autocast, of 256 channels, that is compiled as one."""
    counted = 12.0 + 12.0 + 16.0, 2.0 * (14.0 + 6.0) + 3.0 * 4.0 + 24.0  # norms with sums, GELU; joined gradients between both
    framework = dataclasses.replace(load_framework("ddp"), compiled=True)
    model = Transformer(
        name="small", layers=3, hidden=256, heads=4, kv_heads=4, head_dim=64, feed_forward=1024, vocabulary=512, gated=False,
        norm="layernorm", learned_positions=512, activation="gelu", fused_projections=True,
    ).numbers()  # fmt: skip
    plan = Plan(global_batch=2, micro_batch=2, seq_len=TOKENS // 2).resolve(framework)
    settings, numbers = plan.settings(framework), plan.numbers(framework, 3)
    told = traffic.between_products(traffic.elementwise_bytes(model, settings, numbers), model, settings)
    assert [one / TOKENS / 256 for one in told] == pytest.approx(counted, rel=0.06)


def test_a_norm_that_is_written_out_is_one_kernel_where_it_is_compiled():
    eager, plan = load_framework("hf-fsdp2"), Plan(global_batch=8, seq_len=512)
    assert plan.resolve(eager).fused_norms is False
    assert plan.resolve(dataclasses.replace(eager, compiled=True)).fused_norms is True
