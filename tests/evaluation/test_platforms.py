"""Where software trains: pairs that nobody has are refused at every door, and left out, with a word, where several are asked."""

import pytest

import costmodel
from costmodel import load_device, load_framework
from costmodel.catalogue.loader import names
from costmodel.catalogue.software import framework_names
from costmodel.description.platforms import OF_ARCHITECTURES, PLATFORMS
from costmodel.description.usual_work import UNSAID, usual_software
from costmodel.text.errors import IllegalPlan
from tests.commanding import refused, strict

MAKERS = {
    "nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel Data Center GPU", "gaudi": "Intel Gaudi", "tpu": "Google TPU",
    "trainium": "AWS Trainium", "ascend": "Huawei Ascend",
}  # fmt: skip
WORK = {"global_batch": 8, "seq_len": 1024}
AS_OPTIONS = ["--gpus", "8", "--global-batch", "8", "--seq-len", "1024"]
DOORS = {
    "estimate": costmodel.estimate, "search": costmodel.search, "simulate": costmodel.simulate, "timeline": costmodel.timeline,
    "longest_sequence": lambda *asked, seq_len, **work: costmodel.longest_sequence(*asked, **work),
}  # fmt: skip


@pytest.mark.parametrize("name", names("device"))
def test_a_device_is_of_the_platform_of_its_maker(name):
    device = load_device(name)
    assert device.title.startswith(MAKERS[OF_ARCHITECTURES[device.architecture]])


@pytest.mark.parametrize("platform", PLATFORMS)
def test_what_is_usual_trains_on_every_platform(platform):
    architecture = next(name for name, whose in OF_ARCHITECTURES.items() if whose == platform)
    usual = load_framework(usual_software(architecture))
    assert not usual.platforms or platform in usual.platforms


@pytest.mark.parametrize("framework", framework_names())
def test_all_software_trains_on_nvidias_gpus_or_is_googles(framework):
    """What was measured, but for MaxText, was measured there."""
    assert load_framework(framework).trains_on(load_device("h100-sxm"))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("framework", "device", "says"), [
    ("nemo", "gaudi2", "framework nemo on gaudi2: it trains on NVIDIA GPUs, AMD GPUs and AWS Trainium"),
    ("unsloth", "tpu-v5p", "framework unsloth on tpu-v5p: it trains on NVIDIA GPUs, AMD GPUs and Intel GPUs"),
    ("megatron-core", "tpu-v5p", "framework megatron-core on tpu-v5p: it trains on"),
])  # fmt: skip
def test_a_pair_that_nobody_has_is_refused_at_every_door(door, framework, device, says):
    with pytest.raises(IllegalPlan, match=says):
        DOORS[door]("llama3.2-1b", f"8x{device}", framework=framework, **WORK)


@pytest.mark.parametrize("verb", ["estimate", "search", "memory", "ledger", "train"])
def test_the_command_line_refuses_it_in_a_line(run, tmp_path, verb):
    more = ["--tokens", "1B"] if verb == "train" else []
    asked = [verb, "llama3.2-1b", "--device", "gaudi2", "--framework", "nemo", *AS_OPTIONS, *more]
    refused(run, tmp_path, asked, "framework nemo on gaudi2: it trains on NVIDIA GPUs, AMD GPUs and AWS Trainium")


def test_a_launch_file_of_software_that_does_not_train_there_is_not_written(run, tmp_path):
    asked = ["write", "megatron", "llama3.2-1b", "--device", "tpu-v5p", *AS_OPTIONS]
    refused(run, tmp_path, asked, "framework megatron-core on tpu-v5p: it trains on")


def test_comparisons_leave_the_pair_out_and_say_so(run):
    asked = ["compare", "llama3.2-1b", "--device", "gaudi2", "--framework", "nemo,megatron-core,deepspeed", *AS_OPTIONS, "--json"]
    answer = strict(run(*asked)[1])
    assert [one["choice"] for one in answer["choices"]] == ["megatron-core", "deepspeed"]
    assert "framework nemo on gaudi2" in answer["refused"]["nemo"]
    made = costmodel.cards("llama3.2-1b", ["h100-sxm", "gaudi2"], adapter=["lora"], framework=["unsloth", "hf-trainer"])
    assert {one.device: one.estimate.framework.name for one in made.rows}["gaudi2"] == "hf-trainer"
    assert made.left_out == ("unsloth trains on NVIDIA GPUs, AMD GPUs and Intel GPUs: not tried on gaudi2",)
    _, out, _ = run("cards", "llama3.2-1b", "--device", "h100,gaudi2", "--framework", "unsloth")
    assert made.left_out[0] in " ".join(out.split())


def test_where_no_software_is_said_some_that_trains_there_is_taken(run):
    code, out, err = run("estimate", "llama3.2-1b", "--device", "tpu-v5p", *AS_OPTIONS, "--json")
    assert code == 0 and strict(out)["framework"] == "maxtext" != UNSAID
    assert "--framework maxtext, as megatron-core doesn't train on tpu-v5p" in " ".join(err.split())
    for ask in (costmodel.estimate, costmodel.search):
        found = ask("llama3.2-1b", "8xtpu-v5p", **WORK)
        assert getattr(found, "best", found).framework.name == "maxtext"
