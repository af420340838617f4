"""GPUs that have no bf16 run in fp16 at every door, and an asked bf16 is refused in a line that names fp16."""

import json

import pytest

import costmodel
from costmodel import Plan, estimate, load_cluster, load_device, load_model, search
from costmodel.app.state import State
from costmodel.catalogue import loader
from costmodel.catalogue.machines import machine
from costmodel.text.errors import NotModelled

OLDER = [name for name in loader.names("device") if "bf16" not in load_device(name).dense_peak]
WORK = ("gpt2-xl", "--global-batch", "16", "--seq-len", "1024")
DOORS = (
    ("estimate",), ("search", "--top", "1", "--no-check"), ("simulate",), ("ledger",), ("timeline",),
    ("train", "--tokens", "1e9"), ("capacity", "--find", "gpus"),
)  # fmt: skip


def plan(**fields):
    return Plan(**{"global_batch": 16, "seq_len": 1024, "data_parallel": 8} | fields)


def test_there_are_such_devices():
    assert {"v100-sxm-32gb", "p100-sxm-16gb", "t4", "rtx-2080-ti", "gtx-1080-ti"} <= set(OLDER)


@pytest.mark.slow
@pytest.mark.parametrize("device", OLDER)
def test_what_isn_t_said_is_fp16_and_what_is_said_is_kept(device):
    model, cluster = load_model("gpt2-xl"), machine(device, 8)
    usual = estimate(model, cluster, plan())
    assert usual.plan.dtype == "fp16"
    assert usual.step_time == estimate(model, cluster, plan(dtype="fp16")).step_time
    assert estimate(model, cluster, plan(dtype="fp32")).plan.dtype == "fp32"
    found = search(model, cluster, global_batch=16, seq_len=1024, engine="python", micro_batch=1, fit_probability=0.001)
    assert {one.plan.dtype for one in [*found.ranked, found.closest_miss] if one is not None} == {"fp16"}


@pytest.mark.parametrize("device", OLDER)
def test_an_asked_bf16_is_refused_with_the_name_of_what_there_is(device):
    model, cluster = load_model("gpt2-xl"), machine(device, 8)
    for ask in (
        lambda: estimate(model, cluster, plan(dtype="bf16")),
        lambda: search(model, cluster, global_batch=16, seq_len=1024, dtype="bf16"),
    ):
        with pytest.raises(NotModelled, match=f"^dtype='bf16': {device} has no bf16 rate.*fp16") as refused:
            ask()
        assert "\n" not in str(refused.value)


def test_a_device_with_bf16_keeps_it():
    found = estimate(load_model("gpt2-xl"), load_cluster("dgx-a100", gpus=8), plan())
    assert found.plan.dtype == "bf16"


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door[0])
@pytest.mark.parametrize("device", ["v100-sxm-32gb", "t4"])
def test_every_command_answers_and_names_fp16_where_bf16_is_asked(run, door, device):
    command, *options = door
    asked = [command, *WORK[:1], "--device", device, "--gpus", "8", *WORK[1:], *options]
    if command != "search":
        asked += ["--zero-stage", "1"]
    code, out, err = run(*asked, "--json") if command != "timeline" else run(*asked)
    assert code in (0, 1), err
    assert "bf16" not in out
    if command in ("estimate", "search"):
        assert '"fp16"' in out
    assert run(*asked, "--dtype", "fp16")[0] == code
    code, out, err = run(*asked, "--dtype", "bf16")
    assert code == 2
    assert err.count("\n") == 1
    assert "has no bf16 rate" in err
    assert "fp16" in err


def test_the_issue_s_line(run):
    asked = ["gpt2-xl", "--cluster", "dgx-1v-32gb", "--gpus", "8", "--global-batch", "8", "--seq-len", "1024"]
    for command in ("estimate", "search"):
        for dtype in ([], ["--dtype", "fp16"]):
            code, out, err = run(command, *asked, *dtype, "--json")
            assert code in (0, 1), err
            assert json.loads(out)
    assert State(cluster="dgx-1v-32gb").dimensions == {}  # the app asks for no dtype unless its form says one


def test_a_launch_file_s_plan_without_a_dtype_has_the_device_s(tmp_path, run):
    arguments = "--num-layers 48 --hidden-size 1600 --num-attention-heads 25 --seq-length 1024 --max-position-embeddings 1024 " \
        "--micro-batch-size 1 --global-batch-size 8 --vocab-size 50257 --fp16"
    file = tmp_path / "train.sh"
    file.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {arguments}\n")
    code, _, err = run("explain", str(file), "--cluster", "dgx-1v-32gb")
    assert code in (0, 1), err
    file.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {arguments.replace('--fp16', '--bf16')}\n")
    code, _, err = run("explain", str(file), "--cluster", "dgx-1v-32gb")
    assert code == 2
    assert "fp16" in err


def test_python_says_it_too():
    assert "fp16" in repr(estimate(load_model("gpt2-xl"), load_cluster("dgx-1v-32gb", gpus=8), plan()))
    assert costmodel.Plan(global_batch=1, seq_len=1).dtype is None
