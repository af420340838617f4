"""Weights that DeepSpeed gathers ahead of a device stay in its allocator: as many as the host is ahead by."""

import dataclasses

import pytest

from costmodel import Plan, Transformer, estimate, load_cluster, load_framework
from costmodel.formulas import run_ahead

LLAMA = Transformer(
    name="24 layers", layers=24, hidden=4096, heads=32, kv_heads=32, head_dim=128, feed_forward=11008, vocabulary=32000,
    gated=True, norm="rmsnorm",
)  # fmt: skip
LAYERS = 2.0 * 24 * (4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096)
"""Bytes of their weights in 16 bit."""
HOST = 0.105 / 24
"""Of a layer with hooks around its modules, on the host that was measured [s]."""


def ask(framework="deepspeed", seq_len=8192, **fields):
    plan = Plan(**{"global_batch": 8, "seq_len": seq_len, "data_parallel": 8, "zero_stage": 3, "attention": "sdpa", **fields})
    return estimate(LLAMA, load_cluster("dgx-h100", gpus=8), plan, framework).inputs


def with_host(inputs, forward):
    host = inputs.software.host._replace(forward=forward, pace=1.0, module_hook=0.0)
    return inputs._replace(software=inputs.software._replace(host=host))


@pytest.mark.parametrize(("seq_len", "measured"), [(1024, 0.0), (8192, 4.17)])
def test_as_much_is_reserved_as_on_a_gpu_whose_host_was_as_far_ahead(seq_len, measured):
    """One H100, PyTorch 2.11: gathers on a stream of their own at 200 GB/s, blocks freed after ``record_stream``.

    Forward passes took 0.105 s on the host and 0.176 s on the device at 8,192 tokens: 6.48 GiB reserved, 2.30 with a wait in
    each layer, 1.89 on one stream; with recomputation 7.95 and 3.81. At 1,024 tokens, where host and device take as long, 1.07
    and 0.83.
    """
    found = run_ahead.ahead_bytes(*with_host(ask(seq_len=seq_len), HOST)) / 2**30
    assert found == pytest.approx(measured, abs=1.0)


def test_a_host_without_delay_has_all_layers_gathered_but_for_what_gathering_takes_and_the_queue_holds():
    inputs = ask(seq_len=65536)
    quick = with_host(inputs, 1e-9)
    assert 0.8 * LAYERS < run_ahead.ahead_bytes(*quick) <= LAYERS
    deep = quick._replace(model=quick.model._replace(layers=1000.0))
    assert run_ahead.lead(*deep) == pytest.approx(run_ahead.QUEUE / 30.0)


@pytest.mark.parametrize(("framework", "fields"), [
    ("deepspeed", {"zero_stage": 2}), ("hf-fsdp", {}), ("deepspeed", {"overlap_parameters": False}),
    ("deepspeed", {"attention": "flash"}), ("deepspeed", {"attention": "flash", "batching": "padded-whole", "micro_batch": 2,
                                                         "global_batch": 16}),
    (dataclasses.replace(load_framework("deepspeed"), blocking_launches=True), {}),
])  # fmt: skip
def test_nothing_is_ahead_where_nothing_is_gathered_or_the_host_waits(framework, fields):
    """FSDP waits before a third unit; without ``overlap_comm`` there is one stream; flash wrappers look at masks or positions."""
    assert run_ahead.ahead_bytes(*with_host(ask(framework, **fields), 1e-9)) == 0.0


def test_wrappers_before_august_2024_and_micro_batches_of_several_do_not_wait():
    for framework, fields in (("deepspeed@0.11.1", {}), ("deepspeed", {"micro_batch": 2, "global_batch": 16})):
        assert run_ahead.ahead_bytes(*with_host(ask(framework, attention="flash", **fields), 1e-9)) > 0.0
