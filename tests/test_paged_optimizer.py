"""Optimizer states that CUDA's driver pages: no tensor of the allocator's; what has no room comes and goes by the host's link."""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_model
from costmodel.interop.launchers import read_launch
from costmodel.text.errors import CostModelError
from costmodel.text.units import GiB

MODEL = load_model("llama3.1-8b")
PARAMETERS = 8_030_261_248
"""meta-llama/Llama-3.1-8B"""
ONE = {"global_batch": 2, "micro_batch": 2, "seq_len": 2048, "recompute": "full", "optimizer": "adam-8bit", "batching": "packed"}
TORCHTUNE = """
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
tokenizer:
  max_seq_len: 2048
dataset:
  packed: True
batch_size: 2
gradient_accumulation_steps: 1
optimizer:
  _component_: bitsandbytes.optim.PagedAdamW8bit
optimizer_in_bwd: True
loss:
  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss
compile: True
enable_activation_checkpointing: True
dtype: bf16
"""


def ask(device="h200-sxm", framework="torchtune", **fields):
    return estimate(MODEL, load_cluster(device, gpus=1), Plan(**{**ONE, **fields}), framework)


@pytest.fixture(scope="module")
def full_fine_tune(tmp_path_factory):
    path = tmp_path_factory.mktemp("launch") / "8B_full_single_device.yaml"
    path.write_text(TORCHTUNE)
    launch = read_launch(path, gpus=1)
    return estimate(launch.model, load_cluster("rtx-4090", gpus=1), launch.plan, launch.software)


def test_a_full_fine_tune_of_8b_on_one_rtx_4090_holds_and_takes_what_torchtune_publishes(full_fine_tune):
    """18.9 GiB and 1,650 tokens/s: pytorch/torchtune@0031bfb080 README.md, "Memory and training speed"; what its recipes log is
    the allocator's, torchtune/training/memory.py ``get_memory_stats``."""
    assert full_fine_tune.plan.paged_optimizer
    assert full_fine_tune.memory.allocated / GiB == pytest.approx(18.9, rel=0.05)
    assert full_fine_tune.tokens_per_second == pytest.approx(1_650, rel=0.10)


def test_a_device_lacks_the_two_bytes_a_parameter_of_its_moments():
    held, paged = ask(), ask(paged_optimizer=True)
    assert held.memory.total - paged.memory.total >= 2.0 * PARAMETERS * 0.99
    assert held.memory.optimizer > 0.0 == paged.memory.optimizer
    assert paged.host_memory == pytest.approx(2.0 * PARAMETERS, rel=0.01)


def test_a_step_is_longer_by_what_has_no_room_over_the_hosts_link():
    assert ask(paged_optimizer=True).step_time == pytest.approx(ask().step_time, rel=1e-12)  # 141 GB hold all
    cluster = load_cluster("h200-sxm", gpus=1)
    roomy = ask(paged_optimizer=True)
    room = roomy.memory.total + 6e9  # for some of 16e9
    device = dataclasses.replace(cluster.device, memory=room, usable_memory=room)
    tight = estimate(MODEL, dataclasses.replace(cluster, device=device), roomy.plan, "torchtune")
    longer = tight.times["optimizer"] - roomy.times["optimizer"]
    assert longer == pytest.approx((2.0 * PARAMETERS - 6e9) / device.host_bandwidth, rel=0.01)


@pytest.mark.parametrize(("fields", "framework", "said"), [
    ({"optimizer": "muon"}, "torchtune", "bitsandbytes pages the state of adam"),
    ({"optimizer_offload": 1.0}, "torchtune", "the device updates what it pages"),
    ({"optimizer": "adam"}, "megatron-core", "takes no optimizer of bitsandbytes"),
])  # fmt: skip
def test_what_nothing_pages_is_refused_by_name(fields, framework, said):
    with pytest.raises(CostModelError, match=said):
        ask(framework=framework, paged_optimizer=True, **fields)
