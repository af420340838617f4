"""Attention whose products are in 8 bit: how fast, what it keeps and moves, and where there is none."""

import dataclasses

import pytest

from costmodel import (
    Plan,
    estimate,
    load_cluster,
    load_device,
    load_framework,
    load_model,
    read_launch,
    search,
    write_launch,
)
from costmodel.formulas.transformer import attention, launches
from costmodel.formulas.transformer.activations import layer_activations
from costmodel.text.errors import IllegalPlan, InvalidValue

PLAN = Plan(global_batch=8, seq_len=8192, data_parallel=8, dtype="fp8")
NARROW = dataclasses.replace(PLAN, attention_dtype="fp8")
FRAMEWORK = load_framework("nemo", "blackwell")
MODEL = load_model("llama3-8b")

# NVIDIA/cudnn-frontend@3929da2 benchmark/sdpa_benchmark_training/results: ms of causal cuDNN kernels at 8,192 tokens in bf16 and
# in fp8, forward and backward; llama3.1 of one sequence on H200, of two on the others, 128 channels; dsv3 has 192 and 128
TAKEN = {
    ("h200-sxm", 128.0): ((1.708, 1.141), (5.083, 6.392)), ("gb200", 128.0): ((1.397, 1.074), (4.127, 3.781)),
    ("gb300", 128.0): ((1.185, 0.759), (3.832, 3.087)), ("gb200", 160.0): ((3.470, 2.294), (11.984, 7.296)),
    ("gb300", 160.0): ((3.013, 1.758), (11.074, 6.188)),
}  # fmt: skip


@pytest.mark.parametrize(("device", "width"), TAKEN)
def test_kernels_of_8_bit_are_as_much_faster_or_slower_as_those_that_were_timed(device, width):
    numbers = load_device(device).numbers("fp8")
    rows = 2.0 * 8192.0 * 64.0
    wide, narrow = (attention.causal_flash(rows, 4096.0, 0.0, width, 0.0, 1.0, numbers, narrow=yes) for yes in (0.0, 1.0))
    for place, (taken, taken_narrow) in enumerate(TAKEN[device, width]):
        assert wide[place] / narrow[place] == pytest.approx(taken / taken_narrow, rel=0.03)


def of_layer(plan):
    resolved = plan.resolve(FRAMEWORK)
    return MODEL.numbers(), resolved.settings(FRAMEWORK), resolved.numbers(FRAMEWORK, MODEL.layers)


def test_queries_keys_and_values_are_kept_in_a_byte_less_each():
    kept = [layer_activations(*of_layer(plan)) for plan in (PLAN, NARROW)]
    assert kept[0] - kept[1] == pytest.approx(8192 * (32 + 2 * 8) * 128)


def test_casts_read_16_bits_and_write_8_forward_and_with_the_outputs_gradient_backward():
    model, settings, plan = of_layer(NARROW)
    forward, backward = attention.narrow_cast_bytes(model, 8192.0, settings, plan)
    assert forward == pytest.approx(3 * 8192 * (32 + 2 * 8) * 128)
    assert backward == pytest.approx(3 * 8192 * (2 * 32 + 2 * 8) * 128)
    assert attention.narrow_cast_bytes(*of_layer(PLAN)[:1], 8192.0, *of_layer(PLAN)[1:]) == (0.0, 0.0)
    assert launches.cast_kernels(settings) > launches.cast_kernels(of_layer(PLAN)[1])


def test_a_step_is_shorter_on_blackwell_and_holds_less():
    cluster = load_cluster("dgx-b200", gpus=8)
    wide, narrow = (estimate(MODEL, cluster, plan, "nemo") for plan in (PLAN, NARROW))
    assert narrow.step_time < wide.step_time and narrow.memory.total < wide.memory.total


def test_where_no_such_kernel_is_a_plan_is_refused_in_words():
    for fields, said in (
        ({"dtype": "bf16"}, "attention_dtype='fp8': expected None with dtype='bf16'"),
        ({"dtype": "fp8-block"}, "expected None with dtype='fp8-block'"),
        ({"attention": "unfused"}, "a flash kernel has it"),
    ):
        with pytest.raises(InvalidValue, match=said):
            dataclasses.replace(NARROW, **fields)
    for cluster, framework, said in (
        ("dgx-h100", "fsdp2", "fsdp2 has no such attention kernel"), ("mi300x-8", "nemo", "mi300x has no such attention"),
    ):  # fmt: skip
        with pytest.raises(IllegalPlan, match=said):
            estimate(MODEL, load_cluster(cluster, gpus=8), NARROW, framework)


def test_a_search_finds_no_plan_where_no_such_kernel_is_and_says_why():
    found = search(
        MODEL, load_cluster("mi300x-8", gpus=8), global_batch=8, seq_len=8192, dtype="fp8", attention_dtype="fp8",
        framework="nemo", top=1,
    )  # fmt: skip
    assert "0 legal plans" in repr(found) and "in a dtype that the device lacks" in " ".join(repr(found).split())


def test_launch_files_of_megatron_bridge_say_it_and_are_read():
    written = write_launch("megatron-bridge", NARROW, MODEL, cluster=load_cluster("dgx-b200", gpus=8))
    assert "mixed_precision.fp8_dot_product_attention=true" in written.lower()
    assert read_launch(written, gpus=8).plan_fields["attention_dtype"] == "fp8"


def test_megatrons_field_of_it_counts_beside_fp8_alone():
    text = "torchrun --nproc-per-node 8 pretrain_gpt.py --bf16 --micro-batch-size 1 --fp8-dot-product-attention "
    assert read_launch(text + "--fp8-format hybrid", gpus=8).plan_fields["attention_dtype"] == "fp8"
    assert "attention_dtype" not in read_launch(text, gpus=8).plan_fields
