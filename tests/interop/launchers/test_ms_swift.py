"""ms-swift's command lines: what its own examples say, and what they say a GPU held."""

import pytest

from costmodel import estimate, machine, read_launch
from costmodel.text.units import GiB

FULL = """
CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-7B-Instruct --tuner_type full --torch_dtype bfloat16 --max_length 2048
--per_device_train_batch_size 1 --gradient_accumulation_steps 16
"""
SHARDED = """
NPROC_PER_NODE=8
swift sft --model Qwen/Qwen2.5-32B --tuner_type full --torch_dtype bfloat16 --packing true --attn_impl flash_attn
--per_device_train_batch_size 1 --max_length 8192 --use_liger_kernel true --gradient_accumulation_steps 2 --deepspeed zero3
"""


def test_a_full_fine_tune_holds_what_its_example_says():
    """76 GiB of one GPU: modelscope/ms-swift@b40f31df7, of December 2024, examples/train/full/train.sh."""
    launch = read_launch(FULL)
    assert (launch.framework, launch.gpus, launch.model.name) == ("ms-swift", 1, "qwen2.5-7b")
    assert launch.plan.recompute == "full" and launch.plan.adapter == "none"
    found = estimate(launch.model, machine("a100-sxm-80gb"), launch.plan, "hf-trainer@2024.12")
    assert float(found.memory.total) / GiB == pytest.approx(76.0, rel=0.1)


def test_a_32b_fits_on_the_eight_gpus_of_80_gib_that_its_example_takes():
    """modelscope/ms-swift@3602360a5 examples/train/full/qwen2_5_32b.sh."""
    launch = read_launch(SHARDED)
    assert (launch.gpus, launch.plan.zero_stage, launch.plan.batching, launch.software) == (8, 3, "packed", "deepspeed")
    found = estimate(launch.model, machine("a100-sxm-80gb", gpus=8), launch.plan, launch.software)
    assert found.fits and float(found.memory.total) > 70 * GiB


@pytest.mark.parametrize(("said", "expected"), [
    ("--tuner_type lora", {"adapter": "lora", "lora_rank": 8, "gradient_accumulation": 2}),
    ("--train_type lora --quant_bits 4 --quant_method bnb --lora_rank 16", {"adapter": "qlora", "lora_rank": 16}),
    ("--tuner_type full --deepspeed zero3_offload", {"zero_stage": 3, "offload": ["optimizer", "parameters"]}),
    ("--tuner_type full --deepspeed zero1", {"zero_stage": 1}),
    ("--fsdp fsdp2 --gradient_checkpointing false", {"zero_stage": 3, "recompute": "full", "loading": "one-rank"}),
    ("--gradient_checkpointing false --padding_free true", {"recompute": "none", "batching": "padding-free"}),
    ("--sequence_parallel_size 2", {"ulysses_parallel": 2}),
])  # fmt: skip
def test_a_flag_says_what_ms_swift_makes_of_it(said, expected):
    fields = read_launch(f"NPROC_PER_NODE=8 swift sft --model Qwen/Qwen3-8B --max_length 4096 {said}").plan_fields
    assert {name: fields[name] for name in expected} == expected


def test_a_step_has_16_sequences_at_least_where_no_accumulation_is_said():
    """``max(1, ceil(16 / micro-batch / processes))``: swift/trainers/arguments.py@3602360a5."""
    for processes, micro, wanted in ((1, 1, 16), (7, 1, 21), (8, 4, 32)):
        text = "swift sft --model Qwen/Qwen3-8B --max_length 512 --per_device_train_batch_size"
        assert read_launch(f"NPROC_PER_NODE={processes} {text} {micro}").plan.global_batch == wanted


def test_processes_are_told_by_the_environment_and_one_runs_where_nothing_starts_several():
    text = "swift sft --model Qwen/Qwen3-8B --max_length 512"
    assert read_launch(f"NNODES=2 NPROC_PER_NODE=4 {text}").gpus == 8
    alone = read_launch(f"CUDA_VISIBLE_DEVICES=0,1 {text}")
    assert alone.gpus == 1 and any("one process" in note for note in alone.notes)
    assert read_launch(text).gpus is None


@pytest.mark.parametrize(("environment", "expected"), [
    ("PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' \\\n", True),
    ("export PYTORCH_ALLOC_CONF=max_split_size_mb:128,expandable_segments:False\n", False),
    ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 \\\n", None),
])  # fmt: skip
def test_the_environment_says_whether_segments_expand(environment, expected):
    text = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B --max_length 4096 --global_batch_size 8"
    assert read_launch(environment + text).plan.expandable_segments is expected
