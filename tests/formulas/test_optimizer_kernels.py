"""Adam's update by one kernel, by lists of tensors, or tensor by tensor: what is moved, held and launched."""

from __future__ import annotations

import dataclasses

import pytest

from costmodel import Plan, load_device, load_framework, load_model
from costmodel.formulas.transformer import update
from costmodel.interop.launchers import read_launch, resolve
from costmodel.text.errors import CostModelError

# pytorch/pytorch v2.13.0 torch/optim/adam.py: what each kernel reads and writes, p weight, g gradient, m and v moments, r roots
FUSED = [("pgmv", "pmv")]
IN_TURN = [
    ("p", "p"),  # times 1 - lr * decay
    ("mg", "m"),  # towards the gradient
    ("v", "v"),  # times beta
    ("vg", "v"),  # plus the gradient's square
    ("v", "r"),  # roots
    ("r", "r"),  # over the bias correction
    ("r", "r"),  # plus epsilon
    ("pmr", "p"),  # minus the step
]
# NVIDIA/DeepLearningExamples@729963d PyTorch/LanguageModeling/BERT/optimization.py ``BertAdam.step``, of a tensor that decays;
# its clipping is pytorch/pytorch torch/nn/utils/clip_grad.py, of which six kernels work on one number: u update, s scratch
CLIPPING = 24.0  # calls that take the host as long: 146 of 216 us a tensor on a Xeon with PyTorch 2.13, the other twelve 70
CLIPPED = [("g", ""), *[("", "")] * 6, ("g", "g")]
BERT_ADAM = [
    *CLIPPED,
    ("m", "m"), ("mg", "m"), ("v", "v"), ("vg", "v"),
    ("v", "r"), ("r", "s"), ("ms", "u"), ("p", "s"), ("us", "u"), ("u", "s"), ("s", "u"), ("pu", "p"),
]  # fmt: skip
PARAMETERS = 1e9


def accesses(kernels):
    return sum(len(reads) + len(writes) for reads, writes in kernels)


def settings_of(name="ddp", **choices):
    framework = load_framework(name)
    return Plan(global_batch=8, seq_len=2048, **choices).resolve(framework).settings(framework)


@pytest.mark.parametrize("kernel", ["foreach", "loop"])
@pytest.mark.parametrize(("name", "width"), [("ddp", 4), ("fsdp2", 4), ("hf-trainer", 2)])
def test_kernels_in_turn_move_what_one_kernel_has_in_its_registers(kernel, name, width):
    more = accesses(IN_TURN) - accesses(FUSED)
    fused, apart = (settings_of(name, optimizer_kernel=one).optimizer.passing_bytes for one in ("fused", kernel))
    assert apart - fused == more * width


def test_a_list_of_roots_is_there_at_once_and_a_loop_has_those_of_one_tensor():
    for name, width in (("ddp", 4.0), ("hf-trainer", 2.0)):
        assert settings_of(name, optimizer_kernel="foreach").widths.update == width
        assert settings_of(name, optimizer_kernel="fused").widths.update == 0.0
        looped = settings_of(name, optimizer_kernel="loop")
        assert (looped.optimizer.held_bytes, looped.widths.update) == (2 * width, 0.0)  # roots, and what they are divided to


def test_a_loop_launches_every_kernel_for_every_tensor():
    framework = load_framework("ddp", "ampere")
    software = framework.numbers()
    model = load_model("bert-large").numbers()  # four products and two of the MLP with biases, two LayerNorms: 16 tensors a layer
    plan = Plan(global_batch=8, seq_len=512, optimizer_kernel="loop").resolve(framework)
    settings, numbers = plan.settings(framework), plan.numbers(framework, 24)
    assert update.layer_tensors(model, settings, numbers) == 16.0
    listed = dataclasses.replace(plan, optimizer_kernel="foreach").settings(framework)
    longer = update.launching_time(model, settings, numbers, software) - update.launching_time(model, listed, numbers, software)
    assert longer == pytest.approx(16 * len(IN_TURN) * software.host.pace * software.host.update_kernel)


def test_the_first_bert_adam_clips_each_tensor_and_keeps_every_result_apart():
    bert = load_framework("nvidia-deeplearningexamples")
    assert bert.looped_accesses == accesses(BERT_ADAM) - accesses(FUSED)
    assert bert.looped_calls - CLIPPING == len(BERT_ADAM) - len(CLIPPED)


def test_flat_shards_are_one_tensor_and_those_of_fsdp2_are_not():
    model = load_model("llama3-8b").numbers()
    found = {}
    for name in ("fsdp1", "fsdp2"):
        framework = load_framework(name)
        plan = Plan(global_batch=8, seq_len=2048, data_parallel=8).resolve(framework)
        found[name] = update.layer_tensors(model, plan.settings(framework), plan.numbers(framework, 32))
    assert found == {"fsdp1": 1.0, "fsdp2": 9.0}


def test_adapters_alone_are_updated():
    model = load_model("llama3-8b").numbers()
    framework = load_framework("hf-trainer")
    plan = Plan(global_batch=8, seq_len=2048, adapter="lora", lora_targets=["q", "v"], optimizer_kernel="loop").resolve(framework)
    assert update.layer_tensors(model, plan.settings(framework), plan.numbers(framework, 32)) == 4.0


def test_other_optimizers_have_kernels_of_their_own():
    with pytest.raises(CostModelError, match=r"^optimizer_kernel='loop': expected fused or None with optimizer='lion'"):
        Plan(global_batch=8, seq_len=8, optimizer="lion", optimizer_kernel="loop")
    assert settings_of("ddp", optimizer="lion").optimizer.passing_bytes == 0.0


def test_defaults_are_those_of_the_release():
    assert [load_framework(name).optimizer_kernel for name in ("fsdp2", "fsdp2@2024.6", "hf-trainer", "hf-trainer@2025.1")] == [
        "fused", "foreach", "fused", "foreach"]  # fmt: skip


def test_no_time_is_less_with_more_kernels():
    device = load_device("a100-sxm-80gb").numbers("bf16")
    moved = [settings_of("ddp", optimizer_kernel=one).optimizer.passing_bytes for one in ("fused", "foreach", "loop")]
    assert moved == sorted(moved)
    assert PARAMETERS * moved[1] / device.memory_bandwidth == pytest.approx(PARAMETERS * 52.0 / device.memory_bandwidth)


@pytest.mark.parametrize(("text", "kernel"), [
    ('[optimizer]\nname = "AdamW"\nimplementation = "for-loop"', "loop"), ('[optimizer]\nname = "AdamW"\nfused = true', "fused"),
    ('[optimizer]\nname = "AdamW"', None),
])  # fmt: skip
def test_torchtitan_says_it_in_its_configuration(tmp_path, text, kernel):
    path = tmp_path / "train.toml"
    path.write_text(f'[model]\nname = "llama3"\nflavor = "8B"\n{text}\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n')
    assert read_launch(path, gpus=8).plan_fields.get("optimizer_kernel") == kernel


@pytest.mark.parametrize(("word", "kernel"), [("adamw_torch", "foreach"), ("adamw_torch_fused", "fused"), ("adamw_8bit", None)])
def test_hugging_face_says_it_by_the_name_of_the_optimizer(tmp_path, word, kernel):
    path = tmp_path / "train.yaml"
    path.write_text(f"per_device_train_batch_size: 1\nbf16: true\nmax_length: 2048\noptim: {word}\n")
    assert resolve(read_launch(path, gpus=8), model=load_model("llama3-8b")).plan.optimizer_kernel == kernel
