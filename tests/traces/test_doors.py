"""Tracing from Python and from a console: `memory_of`, `tracing`, `trace`, and what the command's options do."""

import importlib.util
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from costmodel.cli import codes, main
from costmodel.traces.record import Trace
from tests.traces import scripts

if importlib.util.find_spec("torch") is None:
    pytest.skip("the fake machine needs PyTorch: pip install 'costmodel[trace]'", allow_module_level=True)
pytestmark = pytest.mark.slow

NET = """
import costmodel, json
costmodel.prepare_tracing()
import torch, torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(512, 512) for _ in range(8)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x

"""
PARAMETERS = 8 * (512 * 512 + 512)


def told(code: str) -> dict:
    """What a program in a process of its own prints last, as JSON: PyTorch asks for its GPUs once."""
    run = subprocess.run([sys.executable, "-c", NET + textwrap.dedent(code)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_a_module_s_memory_is_its_states_and_a_plan_shares_them() -> None:
    found = told("""
        net, batch = Net(), [torch.randn(16, 512)]
        before = net.layers[0].weight.clone()
        plans = {}
        for plan, gpus in (("single", 1), ("ddp", 8), ("fsdp2", 8)):
            made = costmodel.memory_of(net, batch, plan=plan, gpus=gpus)
            plans[plan] = made.by_kind | {"allocated": made.allocated, "fits": made.fits}
        plans["sgd"] = costmodel.memory_of(net, {"x": batch[0]}, "SGD").by_kind
        plans["kept"] = bool(torch.equal(before, net.layers[0].weight)) and net.layers[0].weight.device.type == "cpu"
        print(json.dumps(plans))
    """)
    states = 4 * PARAMETERS
    for plan in ("single", "ddp"):
        assert found[plan]["weight"] == states and found[plan]["optimizer"] == 2 * states
        assert found[plan]["allocated"] >= 4 * states and found[plan]["fits"]
    assert found["ddp"]["bucket"] >= states  # gradients lie in its buckets
    assert found["fsdp2"]["weight"] == states // 8 and found["fsdp2"]["optimizer"] == 2 * states // 8
    assert found["fsdp2"]["allocated"] <= (4 * states) // 8 + 6 * states // 8 + 2**20  # six whole layers at most beside them
    assert found["sgd"]["optimizer"] == 0
    assert found["kept"], "the module itself is left as it is"


def test_a_block_and_a_function_are_recorded_alike() -> None:
    found = told("""
        def train(steps):
            net = Net().cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            def step():
                net(torch.randn(16, 512, device="cuda")).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            for _ in range(steps):
                step()
        with costmodel.tracing(gpus=8, rank=3) as run:
            train(2)
        state = {}
        def step():
            if not state:
                state["net"] = Net().cuda()
                state["optimizer"] = torch.optim.SGD(state["net"].parameters(), lr=0.1)
            state["net"](torch.randn(16, 512, device="cuda")).mean().backward()
            state["optimizer"].step()
            state["optimizer"].zero_grad()
        one = costmodel.trace(step, steps=2)
        bare = costmodel.trace(lambda: torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda"), steps=4)
        assert not torch.cuda.is_available(), "outside of it there is no GPU"
        ops = [[role.texts[op] for op in role.kernels.op[list(range(len(role.kernels)))[-40:]]]
               for role in (run.trace.roles[0], one.roles[0])]
        print(json.dumps({"rank": run.trace.roles[0].rank, "world": run.trace.world_size, "steps": run.trace.roles[0].steps,
                          "alike": ops[0] == ops[1], "function": one.roles[0].steps, "bare": bare.roles[0].steps,
                          "flop": int(bare.roles[0].kernels.flop.sum())}))
    """)
    assert found == {"rank": 3, "world": 8, "steps": 2, "alike": True, "function": 2, "bare": 4, "flop": 4 * 2 * 8**3}


def test_torch_before_the_fake_machine_is_refused_with_what_to_do() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "import torch, costmodel; costmodel.prepare_tracing()"], capture_output=True, text=True
    )
    assert run.returncode and "before `import torch`" in run.stderr.splitlines()[-1]


def test_a_module_is_traced_saved_and_read_again_as_the_same_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text(scripts.PLAIN)
    monkeypatch.chdir(tmp_path)
    assert main(["trace", "--gpus", "1", "--json", "--save", "kept.npz", "-m", "mine.train"]) == codes.ANSWERED
    first = json.loads(capsys.readouterr().out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.npz", "mine"]
    assert Trace.load(tmp_path / "kept.npz").facts["command"] == "mine.train"
    assert main(["trace", "--json", "kept.npz"]) == codes.ANSWERED
    assert json.loads(capsys.readouterr().out) == first
    assert first["world_size"] == 1 and first["roles"][0]["fits"] and first["step_time_s"] > 0
    assert first["roles"][0]["by_kind_bytes"]["weight"] == 4 * (64 * 256 + 256 + 2 * 256 + 256 * 64 + 64)


def test_faults_fail_the_command_where_it_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, kept = tmp_path / "train.py", tmp_path / "kept.npz"
    script.write_text(scripts.PLAIN.replace("    loss.backward()", "    loss.item()\n    loss.backward()"))
    assert main(["trace", "--gpus", "1", "--save", str(kept), str(script)]) == codes.ANSWERED
    line = scripts.PLAIN.splitlines().index("    loss.backward()") + 1
    assert f"train.py:{line}" in capsys.readouterr().out
    assert main(["trace", "--fail-on", "host-wait", str(kept)]) == codes.NOTHING_FITS
    assert main(["trace", "--fail-on", "any", str(kept)]) == codes.NOTHING_FITS
    assert main(["trace", "--fail-on", "out-of-memory,ranks-disagree,hang", str(kept)]) == codes.ANSWERED
    capsys.readouterr()
    assert main(["trace", "--fail-on", "everything", str(kept)]) == codes.BAD_INPUT
    assert "host-wait" in capsys.readouterr().err


def test_a_trace_is_said_as_a_plan_its_links_are_played_and_a_better_plan_is_searched_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers isn't installed")
    script, kept, step = tmp_path / "train.py", tmp_path / "kept.npz", tmp_path / "step.json"
    script.write_text(scripts.FSDP2)
    assert main(["trace", "--gpus", "8", "--roles", "0", "--save", str(kept), "--perfetto", str(step), str(script)]) == 0
    assert "As a plan: traced by fsdp2, DP8, micro-batch 2, ZeRO 3" in capsys.readouterr().out
    assert json.loads(step.read_text())["traceEvents"]
    assert main(["trace", "--better", "--links", "--json", str(kept)]) == codes.ANSWERED
    found = json.loads(capsys.readouterr().out)
    assert found["plan"]["zero_stage"] == 3 and found["better"]["step_time_s"] <= found["plan"]["step_time_s"]
    moved = Trace.load(kept).roles[0]
    assert [link["level"] for link in found["links"]] == ["nvlink", "rail"]
    assert found["links"][0]["bytes"] <= moved.transactions.bytes.sum() and found["links"][1]["bytes"] == 0
    assert main(["trace", "--model", "llama3-8b", str(kept)]) == codes.ANSWERED
    assert "Not seen as a plan: a plan of this trace: " in " ".join(capsys.readouterr().out.split())
