"""Unmodified training scripts run on GPUs that aren't there: what they hold, launch and exchange is what the software says."""

import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from costmodel import load_cluster, machine
from costmodel.text.errors import NotModelled
from costmodel.traces.faults import faults_of
from costmodel.traces.fusion import fused
from costmodel.traces.memory import held_bytes, living, memory_of_trace
from costmodel.traces.recognition import recognise
from costmodel.traces.record import (
    BORN,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    KERNEL,
    KINDS,
    PHASES,
    TRANSACTION,
    Role,
    Trace,
)
from costmodel.traces.running import trace_script
from tests.traces import scripts

if importlib.util.find_spec("torch") is None:  # it is imported in the traced process alone
    pytest.skip("the fake machine needs PyTorch: pip install 'costmodel[trace]'", allow_module_level=True)
pytestmark = pytest.mark.slow


def needs(package: str) -> None:
    """Skip where a package isn't installed; it is imported in the traced process alone, where its GPU is there."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} isn't installed")


def traced(folder: Path, text: str, gpus: int = 8, **how: object) -> Trace:
    """A script's trace, run from a folder in which nothing may be left."""
    script = folder / "train.py"
    script.write_text(text)
    trace = trace_script(str(script), gpus=gpus, **how)
    assert [path.name for path in folder.iterdir()] == ["train.py"], "a traced script leaves no file"
    return trace


def exchanged(role: Role) -> Counter[tuple[str, int]]:
    """Operation and bytes of the last step's transactions."""
    moves = role.transactions
    return Counter((role.texts[moves.op[row]], int(moves.bytes[row])) for row in role.rows(TRANSACTION, role.step()))


def held(role: Role, kind: str) -> int:
    """Bytes of a kind that the end of the run holds."""
    storages = role.storages
    return int(storages.bytes[(storages.kind == KINDS.index(kind)) & (storages.died < 0)].sum())


def planned(trace: Trace) -> tuple[str, int, int, int, int]:
    """Framework, data and tensor ranks, stage of ZeRO and global batch of the plan that is seen in a trace."""
    seen = recognise(trace)
    plan = seen.plan
    assert (plan.micro_batch, plan.recompute, plan.pipeline_parallel) == (2, "none", 1)
    return seen.framework, plan.data_parallel or 0, plan.tensor_parallel, plan.zero_stage or 0, plan.global_batch


def flop(role: Role) -> int:
    """Of the last step's products."""
    return int(role.kernels.flop[role.rows(KERNEL, role.step())].sum())


def test_a_plain_loop_holds_its_weights_and_twice_as_much_for_adam_and_multiplies_three_times(tmp_path: Path) -> None:
    role = traced(tmp_path, scripts.PLAIN, gpus=1).roles[0]
    parameters = 64 * 256 + 256 + 2 * 256 + 256 * 64 + 64
    assert held(role, "weight") == 4 * parameters
    assert held(role, "gradient") == 4 * parameters
    assert held(role, "optimizer") == 2 * 4 * parameters
    assert flop(role) == 2 * 32 * 64 * 256 * (2 + 1 + 2)  # the first layer's input needs no gradient
    named = ["a.weight", "a.bias", "norm.weight", "norm.bias", "b.weight", "b.bias"]
    assert [role.texts[name] for name in role.parameters.name] == named
    assert role.steps == 3
    assert "train.py:20: 1.0 for a value of float32 that only a GPU would know." in role.values_assumed


@pytest.mark.parametrize("kind", scripts.HOLDING)
def test_between_the_passes_is_held_what_autograd_saves_on_a_cpu(tmp_path: Path, kind: str) -> None:
    model = scripts.HOLDING[kind]
    role = traced(tmp_path, scripts.TRAINING.replace("MODEL", model), gpus=1).roles[0]
    step, timeline, storages = role.step(), role.timeline, role.storages
    turn = next(
        row for row in step
        if timeline.action[row] == KERNEL and PHASES[role.kernels.phase[timeline.item[row]]] == "backward"
    )  # fmt: skip
    while timeline.action[turn - 1] == BORN:  # what the first kernel of the backward pass makes
        turn -= 1
    there = [one for one in living(role, turn - 1) if storages.born[one] >= step.start]
    passing = [one for one in there if role.texts[storages.op[one]] != "aten.randn" and storages.bytes[one] > 4]
    on_a_cpu = subprocess.run([sys.executable, "-c", scripts.SAVING.replace("MODEL", model)], capture_output=True, text=True)
    assert abs(int(storages.bytes[passing].sum()) - int(on_a_cpu.stdout)) <= 4 * 8, "but for numbers, as the loss"


def test_passes_that_a_closure_makes_inside_of_a_step_are_no_part_of_the_optimizer(tmp_path: Path) -> None:
    """As Lightning's loop hands them to the optimizer."""
    inside = "    def closure():\n        optimizer.zero_grad()\n        loss = net(x)"
    script = scripts.PLAIN.replace("    loss = net(x)", inside).replace("    optimizer.step()\n    optimizer.zero_grad()\n", "")
    stepping = "        loss.backward()\n        return loss\n    loss = optimizer.step(closure)"
    script = script.replace("    loss.backward()", stepping)
    role, plain = traced(tmp_path, script, gpus=1).roles[0], traced(tmp_path, scripts.PLAIN, gpus=1).roles[0]
    assert role.steps == 3 and held(role, "gradient") == held(plain, "gradient")
    for phase in range(len(PHASES)):
        of_both = [
            sorted(one.texts[one.kernels.op[row]] for row in one.rows(KERNEL, one.step()) if one.kernels.phase[row] == phase)
            for one in (role, plain)
        ]
        assert PHASES[phase] == "other" or of_both[0] == of_both[1]


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3)])
def test_recurrent_layers_multiply_the_rows_that_are_no_padding_three_times(tmp_path: Path, kind: str, gates: int) -> None:
    role = traced(tmp_path, scripts.RECURRENT.replace("KIND", kind), gpus=1).roles[0]
    rows, width = 30 + 50 + 40 + 20, 128
    layers = [gates * width * (64 + width), gates * width * (2 * width + width)]  # of inputs and of states, both ways
    assert flop(role) == 3 * (2 * rows * 2 * sum(layers) + 2 * 4 * 2 * width * 4)
    trained = sum(2 * (one + 2 * gates * width) for one in layers) + 64 * 1000 + 2 * width * 4 + 4
    assert held(role, "weight") == 4 * trained == held(role, "gradient") == held(role, "optimizer") // 2


@pytest.mark.parametrize(("kind", "gates"), [("LSTMCell", 4), ("GRUCell", 3), ("RNNCell", 1)])
def test_cells_multiply_inputs_twice_and_states_three_times_a_step(tmp_path: Path, kind: str, gates: int) -> None:
    """Inputs have no gradient, nor have the first states; what lies behind the products is one kernel a step in either pass."""
    role = traced(tmp_path, scripts.CELL.replace("KIND", kind), gpus=1).roles[0]
    steps, batch, inner, width = 7, 32, 64, 128
    inputs, states = steps * 2 * inner, (3 * steps - 1) * width
    assert flop(role) == 2 * batch * (gates * width * (inputs + states) + 3 * width * 4)
    assert held(role, "weight") == 4 * (gates * width * (inner + width + 2) + width * 4 + 4)
    fused = [role.texts[op] for op in role.kernels.op[role.rows(KERNEL, role.step())] if "_thnn_fused" in role.texts[op]]
    assert len(fused) == (2 * steps if gates > 1 else 0)


def test_ddp_sums_every_gradient_once_a_step(tmp_path: Path) -> None:
    trace = traced(tmp_path, scripts.DDP)
    assert trace.facts["sharding"] == "ddp"
    (role,) = trace.roles  # the first and the last rank do the same
    assert role.stands_for == tuple(range(8))
    assert exchanged(role) == {("all-reduce", 4 * (64 * 256 + 256 + 256 * 64 + 64)): 1}


def test_ranks_that_a_script_starts_by_itself_are_those_that_are_traced(tmp_path: Path) -> None:
    start = 'import torch.multiprocessing as mp\n\ndef work(rank, world):\n'
    body = scripts.DDP.replace('dist.init_process_group("nccl")', 'dist.init_process_group("nccl", rank=rank, world_size=world)')
    body = body.replace('rank = int(os.environ["LOCAL_RANK"])\n', "")
    script = start + "".join(f"    {line}\n" for line in body.splitlines()) + "\nmp.spawn(work, args=(8,), nprocs=8)\n"
    (role,) = traced(tmp_path, script).roles
    assert role.stands_for == tuple(range(8))
    assert exchanged(role) == {("all-reduce", 4 * (64 * 256 + 256 + 256 * 64 + 64)): 1}


LAYER = 256 * 256 * 2 + 2 * 256 * 128 + 3 * 256 * 512 + 2 * 256
"""Parameters of the tiny Llama's layer."""
ENDS = 2 * 1024 * 256 + 256
"""Of its embedding, head and last norm."""


def test_objects_that_a_root_deals_arrive_and_loaders_say_what_they_take(tmp_path: Path) -> None:
    """By which Lightning makes them anew with samplers."""
    dealt = """
import inspect
mine = [None]
dist.scatter_object_list(mine, list(range(4)) if dist.get_rank() == 0 else None, src=0)
assert mine == [dist.get_rank()]
assert "sampler" in inspect.signature(torch.utils.data.DataLoader.__init__).parameters
"""
    assert traced(tmp_path, scripts.DDP.replace("net = nn", f"{dealt}net = nn"), gpus=4).roles


def test_fsdp2_gathers_each_layer_twice_in_half_and_scatters_each_once_in_full(tmp_path: Path) -> None:
    needs("transformers")
    role = traced(tmp_path, scripts.FSDP2, roles="0").roles[0]
    found = exchanged(role)
    assert found["all-gather", 2 * LAYER] == 2 * 4
    assert found["reduce-scatter", 4 * LAYER] == 4
    assert found["all-gather", 2 * ENDS] == 1  # the root stays gathered
    assert found["reduce-scatter", 4 * ENDS] == 1
    assert held(role, "weight") == 4 * (4 * LAYER + ENDS) // 8


def test_fsdp2_holds_a_rank_s_share_of_all_states_and_whole_layers_in_its_buffers_alone(tmp_path: Path) -> None:
    needs("transformers")
    trace = traced(tmp_path, scripts.FSDP2.replace("(config).cuda()", "(config)"), roles="0")
    assert planned(trace) == ("fsdp2", 8, 1, 3, 16)
    role, shares = trace.roles[0], 4 * (4 * LAYER + ENDS) // 8
    updated = role.step()[-1]
    tokens = held_bytes(role, "input")[updated]
    assert held_bytes(role)[updated] == 4 * shares + tokens, "after an update nobody holds whole parameters"
    most = {kind: int(held_bytes(role, kind).max()) for kind in ("weight", "gradient", "optimizer", "bucket")}
    assert most == {
        "weight": shares, "gradient": shares, "optimizer": 2 * shares,
        "bucket": 2 * LAYER + 4 * LAYER,  # the next layer comes in half while the last one's gradients are summed in full
    }  # fmt: skip
    found = memory_of_trace(trace, load_cluster("dgx-h100", gpus=8))
    assert found.phase == "backward" and found.by_kind["weight"] == shares and found.by_kind["optimizer"] == 2 * shares


def test_fsdp1_gathers_each_layer_twice_and_scatters_each_once(tmp_path: Path) -> None:
    """Each layer has a buffer, as before transformers 4.48, which goes to the device with the layer's unit."""
    needs("transformers")
    trace = traced(tmp_path, scripts.FSDP1, roles="0")
    assert planned(trace) == ("fsdp1", 8, 1, 3, 16)
    found = exchanged(trace.roles[0])
    assert found["all-gather", 2 * LAYER] == 2 * 4
    assert found["reduce-scatter", 2 * LAYER] == 4
    assert found["reduce-scatter", 2 * ENDS] == 1


def test_what_a_compiler_is_given_is_fused_in_both_passes_and_said_to_be(tmp_path: Path) -> None:
    script = """
import torch
from torch import nn
@torch.compile(dynamic=False)
def loss_of(out):
    return (out.float() * 2.0).square().mean()
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(512, 2048, bias=False), nn.Linear(2048, 512, bias=False), nn.RMSNorm(512)
    def forward(self, x):
        hidden = self.up(self.norm(x))
        return x + self.down(hidden * torch.sigmoid(hidden) * 0.5)
net = nn.Sequential(Block(), Block()).cuda().bfloat16()
net[0] = torch.compile(net[0])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    loss = loss_of(net(torch.randn(4096, 512, device="cuda", dtype=torch.bfloat16)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    trace = traced(tmp_path, script, gpus=1)
    role = trace.roles[0]
    parts = {(role.texts[role.kernels.module[row]], int(role.kernels.compiled[row])) for row in role.rows(KERNEL, role.step())}
    of_blocks = {(module.partition(".")[0], part) for module, part in parts if module}
    assert of_blocks == {("0", 2), ("1", 0)} and ("", 1) in parts and ("", 0) in parts  # the loss, and the optimizer
    gone = fused(role).gone
    phases = {PHASES[phase] for phase in role.kernels.phase[gone]}
    assert phases == {"forward", "backward"} and not (gone & (role.kernels.flop > 0)).any()
    assert any("torch.compile is given" in sentence for sentence in trace.values_assumed)


def test_a_checkpoint_is_read_where_it_was_written_and_one_that_was_there_is_resumed(tmp_path: Path) -> None:
    """Tensors come back as parameters, with the values that are known, and to the device that `map_location` names."""
    (tmp_path / "data").mkdir()
    there = tmp_path / "data" / "there.pt"
    made = f"import torch; torch.save(torch.nn.Linear(64, 2048).state_dict(), {str(there)!r})"
    subprocess.run([sys.executable, "-c", made], check=True)
    script = f"""
import os, torch
net = torch.nn.Linear(64, 2048).cuda()
net.register_buffer("count", torch.tensor(3, device="cuda"), persistent=False)
states = torch.load({str(there)!r}, map_location="cuda")
assert states["weight"].device == torch.device("cuda", 0)
net.load_state_dict(states)
optimizer = torch.optim.AdamW(net.parameters())
for step in range(10):
    net(torch.randn(4, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    torch.save({{"net": net, "states": optimizer.state_dict(), "step": step}}, "last.pt")
    last = torch.load("last.pt", map_location={{"cuda:0": "cpu"}}, weights_only=False)
    assert last["step"] == step and isinstance(last["net"].weight, torch.nn.Parameter)
    assert last["net"].count.item() == 3 and last["net"].weight.device.type == "cpu"
    optimizer.load_state_dict(last["states"])
    os.remove("last.pt")
"""
    (home := tmp_path / "home").mkdir()
    role = traced(home, script, gpus=1).roles[0]
    assert held(role, "weight") == 4 * (64 * 2048 + 2048)


def test_shards_that_lie_on_the_host_come_to_the_device_for_each_pass(tmp_path: Path) -> None:
    """Gradients go back, and the optimizer's states stay there."""
    role = traced(tmp_path, scripts.OF_VIEWS.replace("OFFLOAD", "True"), gpus=2, roles="0").roles[0]
    share = (64 * 256 + 256 + 256 * 64 + 64) // 2
    copies = Counter()
    for row in role.rows(KERNEL, role.step()):
        copies[role.texts[role.kernels.op[row]]] += int(role.kernels.bytes_read[row])
    assert (copies[HOST_TO_DEVICE], copies[DEVICE_TO_HOST]) == (2 * 4 * share, 4 * share)
    assert held(role, "optimizer") == 0


def test_pytorch_s_sharded_optimizer_holds_a_rank_s_states(tmp_path: Path) -> None:
    roles = traced(tmp_path, scripts.ZERO, gpus=2).roles
    states = [held(role, "optimizer") for role in roles]
    assert sum(states) == 2 * 4 * (64 * 256 + 256 + 256 * 64 + 64) and len(states) == 2


@pytest.mark.parametrize(
    ("kernels", "device", "core"),
    [
        ("list(SDPBackend.__members__.values())[1:]", "a100-sxm-80gb", "_flash_attention"),
        ("list(SDPBackend.__members__.values())[1:]", "v100-sxm-32gb", "_efficient_attention"),
        ("SDPBackend.EFFICIENT_ATTENTION", "a100-sxm-80gb", "_efficient_attention"),
        ("SDPBackend.CUDNN_ATTENTION", "a100-sxm-80gb", "_cudnn_attention"),
        ("SDPBackend.MATH", "a100-sxm-80gb", "_softmax"),
    ],
)
def test_attention_runs_by_the_kernel_that_the_program_allows_and_the_gpu_has(
    tmp_path: Path, kernels: str, device: str, core: str
) -> None:
    role = traced(tmp_path, scripts.ATTENDS.replace("KERNELS", kernels), gpus=1, cluster=machine(device)).roles[0]
    ops = {role.texts[op] for op in role.kernels.op[role.rows(KERNEL, role.step())]}
    cores = {op for op in ops if "attention" in op or "softmax" in op}
    assert cores and all(core in op for op in cores), ops


def test_flex_attention_skips_blocks_that_its_mask_hides(tmp_path: Path) -> None:
    """Of 4 x 4 blocks of 128 a causal mask keeps 10; the backward pass has the scores anew and twice both products."""
    role = traced(tmp_path, scripts.FLEX, gpus=1).roles[0]
    attended = sum(
        int(role.kernels.flop[row])
        for row in role.rows(KERNEL, role.step())
        if "flex" in role.texts[role.kernels.op[row]]
    )
    assert attended == (4 + 10) * 2 * 4 * 512 * 512 * 64 * 10 // 16


def test_a_kernel_of_triton_is_recorded_by_its_operands_and_said_to_be(tmp_path: Path) -> None:
    needs("triton")
    trace = traced(tmp_path, scripts.TRITON, gpus=1)
    kernels, texts = trace.roles[0].kernels, trace.roles[0].texts
    assert [int(kernels.bytes_read[row]) for row in range(len(kernels)) if texts[kernels.op[row]] == "triton.doubled"] == [
        2 * 4 * 512 * 256
    ] * 3
    assert any("Triton kernel doubled" in sentence for sentence in trace.values_assumed)


def test_a_kernel_that_a_program_compiles_from_cuda_is_recorded_by_its_operands(tmp_path: Path) -> None:
    script = scripts.PLAIN.replace("for step", 'twice = torch.cuda._compile_kernel("...", "twice")\nfor step').replace(
        "    loss = net(x)", "    twice((1, 1, 1), (64, 1, 1), (x, torch.empty_like(x), x.numel()))\n    loss = net(x)"
    )
    kernels, texts = (role := traced(tmp_path, script, gpus=1).roles[0]).kernels, role.texts
    assert [int(kernels.bytes_read[row]) for row in range(len(kernels)) if texts[kernels.op[row]] == "cuda.twice"] == [
        2 * 4 * 32 * 64
    ] * 3


@pytest.mark.parametrize("how", ["{0} -= 0.1 * {0}.grad", "{0}.data.add_({0}.grad, alpha=-0.1)"])
def test_weights_that_a_loop_changes_by_itself_make_its_steps(tmp_path: Path, how: str) -> None:
    """What libraries give to torch.compile without its being used is no part of the trace."""
    changes = "\n".join(f"        {how.format(one)}" for one in ("net.weight", "more"))
    script = f"""
import torch
unused = torch.compile(torch.sin)
net, more = torch.nn.Linear(1000, 100, bias=False).cuda(), torch.randn(100, 10, device="cuda", requires_grad=True)
for step in range(10):
    loss = (net(torch.randn(64, 1000, device="cuda")).relu() @ more).square().sum()
    loss.backward()
    with torch.no_grad():
{changes}
    net.weight.grad = more.grad = None
"""
    trace = traced(tmp_path, script if "data" not in how else script.replace("more.data", "more"), gpus=1)
    role = trace.roles[0]
    assert role.steps == 3 and flop(role) == 2 * 64 * (2 * 1000 * 100 + 3 * 100 * 10) and trace.values_assumed == ()
    assert held_bytes(role, "weight").max() == held_bytes(role, "gradient").max() == 4 * (1000 * 100 + 100 * 10)
    moved = {PHASES[role.kernels.phase[row]] for row in role.rows(KERNEL, role.step()) if not role.kernels.flop[row]}
    assert moved >= {"forward", "backward", "optimizer"}


def test_a_trainer_writes_its_checkpoints_nowhere_and_sums_its_gradients(tmp_path: Path) -> None:
    needs("accelerate")
    trace = traced(tmp_path, scripts.TRAINER.replace("OPTIONS", ""), roles="0")
    found = exchanged(trace.roles[0])
    gradients = sum(nbytes * count for (op, nbytes), count in found.items() if op == "all-reduce" and nbytes > 1e5)
    assert gradients == 4 * (4 * LAYER + ENDS)
    assert planned(trace) == ("hf-trainer", 8, 1, 0, 16)


@pytest.mark.parametrize("mask", ["", ", attention_mask=torch.ones_like(tokens)"])
def test_a_mask_that_hides_nothing_is_none_and_attention_is_fused(tmp_path: Path, mask: str) -> None:
    """As on a GPU, where transformers looks into the mask, or into the positions, before it makes a dense one."""
    needs("transformers")
    script = "import torch" + scripts.TINY_LLAMA + f"""
model = LlamaForCausalLM(config).cuda().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    tokens = torch.randint(0, 1024, (2, 128), device="cuda")
    model(input_ids=tokens, labels=tokens, use_cache=False{mask}).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    role = traced(tmp_path, script, gpus=1).roles[0]
    attended = {role.texts[op] for op in role.kernels.op if "attention" in role.texts[op]}
    flash = "aten._scaled_dot_product_flash_attention"
    assert attended == {flash, f"{flash}_backward"}


@pytest.mark.parametrize("default", ["with torch.device('cuda'):", "torch.set_default_device('cuda')\nif True:"])
def test_a_default_device_without_a_number_is_the_current_gpu(tmp_path: Path, default: str) -> None:
    script = f"import torch\n{default}\n    table = torch.tensor([[1.0] * 1024])\n    net = torch.nn.Linear(1024, 8)\n" + """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    net(table).sum().backward()
    optimizer.step()
assert table.device == torch.device("cuda", 0)
"""
    role = traced(tmp_path, script, gpus=1).roles[0]
    assert held(role, "weight") == 4 * (8 * 1024 + 8)


def test_what_loops_do_with_tensors_in_python_runs_as_on_a_gpu(tmp_path: Path) -> None:
    """Numbers in strings, lists and arrays, copies of models, profilers, histories of memory."""
    script = """
import copy, numpy, torch
from torch.profiler import ProfilerActivity, profile
torch.cuda.memory._record_memory_history(max_entries=100)
net = torch.nn.Linear(64, 2048).cuda()
average = copy.deepcopy(net)
host = torch.empty_like(torch.empty(100_000, 100_000, device="meta"), device="cpu")  # 40 GB, of which none is held
assert torch._C._cuda_getCurrentRawStream(0) == 0
assert isinstance(average.weight, torch.nn.Parameter) and average.weight is not net.weight
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
states = copy.deepcopy(optimizer.state_dict())
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
    for step in range(10):
        out = net(torch.randn(1024, 64, device="cuda"))
        loss = (out - average(torch.randn(1024, 64, device="cuda")).detach()).square().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        kept = torch.tensor([loss, norm])
        assert kept.device.type == "cpu" and f"{loss:.3f} {norm:>8.1e} {kept}" == f"1.000  1.0e+00 {kept}"
        assert out.detach().cpu().numpy().shape == (1024, 2048) and numpy.mean(loss.detach().cpu().numpy()) == 1.0
        flags = torch.zeros_like(out.max(0)[1], dtype=torch.uint8)
        flags[:3] = 1
        assert flags.nonzero().shape == (3, 1) and (out[:, 1:] >= out[:, :-1]).all() and "CUDA" in torch.__config__.show()
        some = out[:, [0, -1]]
        some[some > some[:, [-1]]] = 0.0
        assert some.shape == (1024, 2)
        strange = torch.isnan(out[0])
        strange |= torch.isinf(out[1])
        assert not strange.any() and not torch.isinf(out).any() and not torch.isnan(out).any() and torch.isfinite(out).all()
        counts = [torch.histc(some, bins=4, min=0, max=3).tolist() for some in (torch.arange(12, device="cuda") % 3, out)]
        assert counts == [[4, 4, 4, 0], [1024 * 2048 / 4] * 4]  # as many of values that nobody knows
        assert torch.allclose(out, out) and torch.multinomial(torch.rand(8, device="cuda"), 2).shape == (2,)
        optimizer.zero_grad()
"""
    script = script.replace("        out = net(", "        large = torch.zeros(2048, 1024).to('cuda')\n        out = net(")
    role = traced(tmp_path, script, gpus=1).roles[0]
    assert held_bytes(role, "input").max() >= 4 * 2048 * 1024  # a batch of the loop's own, without memory on the host
    weights = held_bytes(role, "weight")
    assert weights.max() == weights[role.step()].min() == 2 * 4 * (64 * 2048 + 2048)


def test_shards_are_drawn_on_the_gpu_and_batch_norms_sum_over_all_ranks(tmp_path: Path) -> None:
    """What hand-written FSDP2 does behind a model on the meta device, and what images are normalised with."""
    script = """
import os, torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
with torch.device("meta"):
    head = nn.Linear(4096, 1024)
fully_shard(head)
head.to_empty(device="cuda")
head.reset_parameters()
body = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4))).cuda()
body = nn.parallel.DistributedDataParallel(body)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1, foreach=False)
for step in range(10):
    head(body(torch.randn(2, 3, 32, 32, device="cuda")).flatten(1)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    role = traced(tmp_path, script, roles="0").roles[0]
    found = exchanged(role)
    assert found["all-reduce", 4 * 2 * 4] == 1, "sums of gradients of four channels"
    assert found["reduce-scatter", 4 * (4096 * 1024 + 1024)] == 1
    assert held(role, "weight") == 4 * (4 * 3 * 9 + 3 * 4 + (4096 * 1024 + 1024) // 8)


def test_sparse_gradients_of_a_table_hold_and_move_the_rows_that_were_looked_up(tmp_path: Path) -> None:
    script = """
import torch
table = torch.nn.EmbeddingBag(100_000, 64, mode="sum", sparse=True).cuda()
optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
for step in range(10):
    table(torch.randint(0, 100_000, (256, 8), device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    role = traced(tmp_path, script, gpus=1).roles[0]
    assert held(role, "weight") == 4 * 100_000 * 64
    kernels = role.kernels
    moved = {
        (role.texts[kernels.op[row]], int(kernels.bytes_read[row]), int(kernels.bytes_written[row]))
        for row in role.rows(KERNEL, role.step())
    }
    rows, places = 256 * 8 * 64 * 4, 256 * 8 * 8
    assert ("aten.add_", 2 * (rows + places), rows + places) in moved
    assert all(read <= 2 * (rows + places) for _, read, _ in moved)


def test_ranks_of_a_ring_turn_keys_of_others_to_their_queries(tmp_path: Path) -> None:
    """As `context_parallel` does it, which puts its own attention in the place of PyTorch's by that one's name: of two parts of
    a sequence each rank multiplies its own and half of the other's, and gradients of keys go back in 32 bits."""
    script = scripts.START + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn import functional as F
mesh = init_device_mesh("cuda", (2,))
layer = nn.Linear(256, 768).cuda().bfloat16()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for step in range(10):
    x = torch.randn(2, 1024, 256, device="cuda", dtype=torch.bfloat16)
    with context_parallel(mesh, buffers=(x,), buffer_seq_dims=(1,)):
        q, k, v = [part.view(2, -1, 4, 64).transpose(1, 2) for part in layer(x).chunk(3, -1)]
        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    role = traced(tmp_path, script, gpus=2).roles[0]
    keys = 2 * 1024 * 256  # of all ranks, and as many values
    assert exchanged(role) == {("all-gather", 2 * 2 * keys): 2, ("all-to-all", 4 * keys): 2}
    assert sum(role.texts[op] == "aten._scaled_dot_product_flash_attention" for op in role.kernels.op[
        role.rows(KERNEL, role.step())]) == 2  # fmt: skip


def test_alignments_of_sequences_are_traced_as_long_as_they_are(tmp_path: Path) -> None:
    script = """
import torch
from torch.nn import functional as F
net = torch.nn.Linear(80, 30).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    scores = net(torch.randn(100, 8, 80, device="cuda")).log_softmax(-1)
    lengths, targets = torch.tensor([90] * 8), torch.randint(1, 30, (8, 25), device="cuda")
    made = torch.ops.aten._ctc_loss(scores, targets, [90] * 8, [20] * 8)
    real = torch.ops.aten._ctc_loss(torch.randn(100, 8, 30).log_softmax(-1), torch.randint(1, 30, (8, 25)), [90] * 8, [20] * 8)
    assert [(one.shape, one.dtype) for one in made] == [(one.shape, one.dtype) for one in real]
    F.ctc_loss(scores, targets, lengths, torch.tensor([20] * 8), zero_infinity=True).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    role = traced(tmp_path, script, gpus=1).roles[0]
    names = Counter(role.texts[op] for op in role.kernels.op[role.rows(KERNEL, role.step())])
    assert names["aten._ctc_loss"] == 2 and names["aten._ctc_loss_backward"] == 1


def test_a_sparse_matrix_multiplies_its_places_forward_and_back_and_not_what_lies_between(tmp_path: Path) -> None:
    """As PyTorch takes `torch.sparse.mm` and `@` apart on a CPU: two products, and two of the transposed matrix."""
    script = """
import torch
edges = torch.randint(0, 5000, (2, 40_000), device="cuda")
adjacent = torch.sparse_coo_tensor(edges, torch.ones(40_000, device="cuda"), (5000, 5000))
layer = torch.nn.Linear(128, 64, bias=False).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
nodes = torch.randn(5000, 128, device="cuda")
for step in range(10):
    (adjacent @ torch.sparse.mm(adjacent, layer(nodes))).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    role = traced(tmp_path, script, gpus=1).roles[0]
    kernels, dense, places = role.kernels, 5000 * 64 * 4, 40_000 * (2 * 8 + 4)
    found = Counter(
        (int(kernels.bytes_read[row]), int(kernels.bytes_written[row]))
        for row in role.rows(KERNEL, role.step()) if role.texts[kernels.op[row]] == "aten._sparse_addmm"
    )  # fmt: skip
    # the first adds to zeros; a gradient that is one number for all is read as that
    assert found == {(2 * dense + places, dense): 1, (dense + places, dense): 2, (4 + places, dense): 1}
    assert kernels.flop[role.rows(KERNEL, role.step())].sum() == 2 * 2 * 5000 * 128 * 64


def test_a_graph_of_a_whole_step_launches_what_the_step_does_and_keeps_its_memory(tmp_path: Path) -> None:
    """As PyTorch's notes have it: three steps on a stream of its own, the capture, and replays, the steps that count."""
    script = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
batch = torch.randn(32, 64, device="cuda")

def step():
    optimizer.zero_grad(set_to_none=True)
    net(batch).pow(2).mean().backward()
    optimizer.step()

side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    assert torch.cuda.is_current_stream_capturing()
    step()
for _ in range(10):
    batch.copy_(torch.randn(32, 64, device="cuda"))
    graph.replay()
"""
    role = traced(tmp_path, script, gpus=1).roles[0]
    eager = [role.texts[op] for op in role.kernels.op[role.rows(KERNEL, role.step(1))]]
    replayed = [role.texts[op] for op in role.kernels.op[role.rows(KERNEL, role.step())]]
    assert role.steps == 3 + 3 and replayed[-len(eager) :] == eager and len(replayed) == len(eager) + 2
    assert flop(role) == 2 * 32 * 64 * 256 * (2 + 1 + 2)
    assert held(role, "activation") >= 4 * 32 * 256  # what the passes hand on, in the graph's own memory


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "torch.nn.DataParallel(torch.nn.Linear(8, 8).cuda(), [0, 1])(torch.ones(8, 8))",
            "train.py:3: one process that computes on 2 GPUs",
        ),
        (
            "torch.geqrf(torch.ones(8, 8, device='cuda'))",
            "train.py:3: the operator aten.geqrf.default says nowhere what its results look like",
        ),
        (
            "import torch.utils.cpp_extension as e; e.load_inline('own', 'int f() { return 1; }', functions=['f'])",
            "train.py:3: the extension own is compiled from C\\+\\+ or CUDA as the program runs",
        ),
        (
            "torch.nested.nested_tensor([torch.ones(n, 8) for n in (2, 3)], layout=torch.jagged, device='cuda')",
            "train.py:3: nested tensors of jagged lengths",
        ),
    ],
)
def test_what_only_a_build_with_cuda_has_is_refused_by_name_and_line(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(NotModelled, match=said.replace(".", r"\.")):
        traced(tmp_path, f"import torch\n\n{line}\n", gpus=2, roles="0")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import argparse\nargparse.ArgumentParser().parse_args(['--nonsense'])", "code 2 and said: .*arguments: --nonsense"),
        (scripts.PLAIN.replace(".cuda()", "").replace('"cuda"', '"cpu"'), "ran nothing on a GPU"),
        ("import torch\nnet = torch.nn.Linear(8, 8)\nwhile net(torch.ones(8)).sum().item(): pass", "train.py:3: .* on a GPU"),
    ],
)
def test_a_script_that_left_or_stays_on_the_cpu_is_refused_with_what_it_said(tmp_path: Path, script: str, said: str) -> None:
    with pytest.raises(NotModelled, match=said):
        traced(tmp_path, script, gpus=1)


def test_what_a_distribution_is_asked_about_lies_where_it_has_a_probability(tmp_path: Path) -> None:
    """As loops of reinforcement learning do with choices that they kept as floats."""
    role = traced(tmp_path, scripts.CHOICES, gpus=1).roles[0]
    assert flop(role) == 3 * 2 * 512 * 8 * 4 - 2 * 512 * 8 * 4, "nothing needs the gradient of what is observed"


def test_tf32_is_told_whether_a_script_says_so_by_older_or_newer_names(tmp_path: Path) -> None:
    new = "import torch\ntorch.backends.fp32_precision = 'tf32'\n"
    old = "import torch\ntorch.set_float32_matmul_precision('high')\ntorch.backends.cudnn.allow_tf32 = False\n"
    told = [traced(tmp_path, text + scripts.PLAIN, gpus=1).facts["tensor_float"] for text in (new, old, "")]
    assert told == ["products convolutions recurrences", "products", "convolutions recurrences"]


def test_the_same_script_gives_the_same_trace(tmp_path: Path) -> None:
    first, second = (traced(tmp_path, scripts.DDP, roles="0") for _ in range(2))
    assert first == second


def test_costmodel_is_imported_without_torch() -> None:
    code = "import costmodel, costmodel.traces.running, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_rank_meets_those_that_another_stands_for(tmp_path):
    trace = traced(tmp_path, scripts.MESH, gpus=4)
    assert [role.stands_for for role in trace.roles] == [(0,), (1, 2, 3)]  # rank 3, which was run, is in no group with rank 0
    faults = faults_of(trace, load_cluster("dgx-h100").with_gpus(4))
    assert not [fault for fault in faults if fault.kind in ("no partner", "ranks disagree")]


@pytest.mark.parametrize(("working", "said"), [(True, "came"), (False, "no other rank computed anything")])
def test_a_letter_is_waited_for_while_its_sender_computes(working, said, tmp_path):
    program = f"""
import pathlib, threading, time
from costmodel.traces.fake_machine import mailbox
mailbox.BEAT = 0.05
folder = pathlib.Path({str(tmp_path)!r})
one, other = mailbox.Mailbox(folder, 0, patience=0.4), mailbox.Mailbox(folder, 1)
def send():
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        time.sleep(0.0 if {working} else 0.1)
    other.post("word", None)
threading.Thread(target=send).start()
try:
    one.take("word", 1, "train.py:3")
    print("came")
except Exception as refused:
    print(refused)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert said in done.stdout, done.stderr


def test_what_looks_up_places_of_a_tensor_reads_those_alone(tmp_path: Path) -> None:
    """50 of a table's 1,000 rows of 64 channels, of each row of a log-softmax one channel; a gradient's shape isn't read."""
    role = traced(tmp_path, scripts.PICKED, gpus=1).roles[0]
    kernels, texts, indices, rows = role.kernels, role.texts, 8 * 50, 4 * 50 * 64
    moved = {
        texts[kernels.op[row]]: (int(kernels.bytes_read[row]), int(kernels.bytes_written[row]))
        for row in role.rows(KERNEL, role.step())
    }
    assert moved["aten.embedding"] == (rows + indices, rows)
    assert moved["aten.index_add_"] == (2 * (rows + indices), rows + indices)
    assert moved["aten.nll_loss_forward"] == (8 + indices, 8)
    assert moved["aten.nll_loss_backward"] == (4 + indices + 4, rows)


@pytest.mark.parametrize(("hold", "sums"), [(False, {"aten.add_": 2, "aten.add": 1}), (True, {"aten.add_": 1, "aten.add": 2})])
def test_gradients_that_meet_are_summed_in_one_of_them_that_nobody_else_holds_and_that_is_no_view(tmp_path, hold, sums):
    """What a profile of PyTorch 2.13 for CPUs shows of the same code; two sums of its forward pass are ``aten.add``, too."""
    (role,) = traced(tmp_path, scripts.MEETING.replace("HOLD", str(hold)), gpus=1, steps=2).roles
    kernels = [role.texts[role.kernels.op[row]] for row in role.rows(KERNEL, role.step())]
    assert {op: kernels.count(op) - 2 * (op == "aten.add") for op in sums} == sums
