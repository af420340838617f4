"""Real scripts with one fault each, on the line that says so, and clean ones beside them."""

from __future__ import annotations

from typing import NamedTuple

from tests.traces.scripts import DDP, FSDP2, OF_VIEWS, PIPELINE, PLAIN, START, TINY_LLAMA

HERE = "  # the fault"

BY_HAND = START + """
MODEL
optimizer = torch.optim.AdamW(net.parameters())
BEFORE
for step in range(10):
    x = torch.randn(64, 512, device="cuda", dtype=torch.bfloat16)
    loss = net(x).float().pow(2).mean()
    BETWEEN
    loss.backward()
    for number, parameter in enumerate(ORDER):
        SUM
    AFTER
    optimizer.step()
    optimizer.zero_grad()
"""
"""Data parallelism without DDP: sums each gradient itself."""

CLEAN = {
    "MODEL": "net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1024), nn.Linear(1024, 512)).cuda().bfloat16()",
    "BEFORE": "", "BETWEEN": "", "AFTER": "", "ORDER": "net.parameters()", "SUM": "dist.all_reduce(parameter.grad)",
}  # fmt: skip

TWO_MODELS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(512, 512)
        self.unused = nn.Linear(512, 512)

    def forward(self, x):
        return self.used(x)

net = Net().cuda().bfloat16()  # the fault
"""

WIDE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(512, 2048), nn.Linear(2048, 512), nn.Linear(512, 512, bias=False)

    def forward(self, x):
        x = self.b(torch.relu(self.a(x)))
        wide = torch.nn.functional.linear(x.float(), self.c.weight.float())  # the fault
        return wide.bfloat16()

net = Net().cuda().bfloat16()
"""

MASKED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(512, 512), nn.Linear(512, 512)

    def forward(self, x):
        mask = torch.ones(64, 512).to("cuda")  # the fault
        return self.b(self.a(x) * mask.bfloat16())

net = nn.Sequential(Net(), nn.Linear(512, 512)).cuda().bfloat16()
"""

STAGES = """
width = 2048
deep = [layer for _ in range(8) for layer in (nn.Linear(width, width), nn.ReLU())]
stage = nn.Sequential(*(deep if rank else deep[:2])).cuda()
optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
for step in range(10):
    x = torch.zeros(512, width, device="cuda", requires_grad=True)
    if rank == 0:
        out = stage(x)
        dist.send(out.detach(), 1)
        gradient = torch.empty_like(out)
        dist.recv(gradient, 1)
        out.backward(gradient)
    else:
        dist.recv(x.data, 0)
        stage(x).pow(2).mean().backward()  # the fault
        dist.send(x.grad, 0)
    optimizer.step()
    optimizer.zero_grad()
"""


class Plant(NamedTuple):
    """A script with a fault."""

    script: str
    kinds: tuple[str, ...]  # that it may be called
    gpus: int = 2

    @property
    def lines(self) -> list[str]:
        """Where it is."""
        return [f"train.py:{number}" for number, line in enumerate(self.script.splitlines(), 1) if HERE in line]


def by_hand(**changes: str) -> str:
    """The script that sums by hand, with some parts in place of its own."""
    script = BY_HAND
    for name, text in (CLEAN | changes).items():
        script = script.replace(name, text)
    return script


CHECKPOINTED = """
model = LlamaForCausalLM(config).cuda()
model.gradient_checkpointing_enable()
model.eval()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    tokens = torch.randint(0, 1024, (2, 128), device="cuda")
    model(input_ids=tokens, labels=tokens).loss.backward()  # the fault
    optimizer.step()
    optimizer.zero_grad()
"""

GATHERED = DDP.replace("nn.Linear(256, 64)", "nn.Linear(256, 512)").replace(
    'net(torch.randn(32, 64, device="cuda")).pow(2).mean().backward()', """logits = net(torch.randn(32, 64, device="cuda"))
    everyone = [torch.empty_like(logits) for _ in range(2)]
    dist.all_gather(everyone, logits.detach())  # the fault
    right = torch.cat(everyone).argmax(-1).float().mean()
    nn.functional.cross_entropy(logits, torch.zeros(32, dtype=torch.long, device="cuda")).backward()"""
)

LOADED = START + """
images = torch.utils.data.TensorDataset(torch.zeros(64, 3, 128, 128), torch.zeros(64, dtype=torch.long))
loader = torch.utils.data.DataLoader(images, 16, PINNED num_workers=2)
net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for batch, labels in loader:
    batch = batch.to("cuda", non_blocking=True)  # the fault
    nn.functional.cross_entropy(net(batch), labels.to("cuda", non_blocking=True)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""

GROUPS = "pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]"
PLANTS = {
    "a rank skips a gradient": Plant(
        by_hand(SUM=f"if rank == 0 or number != 2: dist.all_reduce(parameter.grad){HERE}"), ("no partner", "ranks disagree")
    ),
    "a rank sums in another order": Plant(
        by_hand(
            ORDER="(list(net.parameters()) if rank == 0 else list(net.parameters())[::-1])",
            SUM=f"dist.all_reduce(parameter.grad){HERE}",
        ),
        ("ranks disagree",),
    ),
    "a rank sums in half the width": Plant(
        by_hand(SUM=f"dist.all_reduce(parameter.grad if rank == 0 else parameter.grad.float()){HERE}"),
        ("ranks disagree", "wide exchange"),  # the other rank's is in 32 bits, too
    ),
    "a rank sums in the wrong group": Plant(
        by_hand(BEFORE=GROUPS, SUM=f"dist.all_reduce(parameter.grad, group=pairs[0] if rank < 2 else None){HERE}"),
        ("no partner",), 4,
    ),
    "each rank is the root of its broadcast": Plant(
        by_hand(BETWEEN=f"dist.broadcast(x, src=dist.get_rank()){HERE}"), ("ranks disagree",)
    ),
    "lengths change under a compiler that was told they don't": Plant(
        by_hand(
            BEFORE="scored = torch.compile(lambda out: out.float().sin().sum(), dynamic=False)",
            AFTER=f"scored(x[: 64 - 8 * step]){HERE}",
        ),
        ("recompilation",),
    ),
    "sums in 32 bits": Plant(
        by_hand(SUM=f"wide = parameter.grad.float(); dist.all_reduce(wide); parameter.grad.copy_(wide){HERE}"), ("wide exchange",)
    ),
    "a layer in 32 bits": Plant(by_hand(MODEL=WIDE), ("wide product",)),
    "parameters without a gradient": Plant(
        by_hand(MODEL=TWO_MODELS, SUM="if parameter.grad is not None: dist.all_reduce(parameter.grad)"), ("no gradient",)
    ),
    "a gather in a loop that nobody reads": Plant(
        by_hand(
            BEFORE='part = torch.zeros(512, 512, device="cuda", dtype=torch.bfloat16)',
            BETWEEN='for _ in range(3): whole = part.new_empty(dist.get_world_size() * 512, 512); '
            f"dist.all_gather_into_tensor(whole, part){HERE}",
        ),
        ("unused gather",),
    ),
    "a value is asked for between the passes": Plant(by_hand(BETWEEN=f"if loss.item() > 1e9: break{HERE}"), ("host wait",)),
    "a mask is made on the host in the step": Plant(
        by_hand(MODEL=MASKED), ("host copy",)
    ),
    "a stage is four times as deep": Plant(START + STAGES, ("unbalanced stages",)),
    "more than the device holds": Plant(
        by_hand(BETWEEN=f'much = torch.empty(60 << 30, device="cuda", dtype=torch.bfloat16){HERE}', AFTER="del much"),
        ("out of memory",),
    ),
    "a barrier between the passes": Plant(by_hand(BETWEEN=f"dist.barrier(){HERE}"), ("host wait",)),
    "the norm of each gradient is asked for": Plant(
        by_hand(MODEL="net = nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)]).cuda().bfloat16()",
                AFTER=f"sum(one.grad.norm().item() for one in net.parameters()){HERE}"),
        ("host wait",),
    ),
    "objects are gathered between the passes": Plant(
        by_hand(BETWEEN=f"dist.all_gather_object([None] * dist.get_world_size(), {{'step': step}}){HERE}"), ("host wait",)
    ),
    "gradients are zeroed and held": Plant(
        by_hand().replace("optimizer.zero_grad()", f"optimizer.zero_grad(set_to_none=False){HERE}"), ("kept gradients",)
    ),
    "the allocator's cache is emptied in every step": Plant(by_hand(AFTER=f"torch.cuda.empty_cache(){HERE}"), ("emptied cache",)),
    "a checkpointed model is never told to train": Plant(
        START + TINY_LLAMA + CHECKPOINTED, ("no recomputation",)
    ),
    "logits are gathered to count what is right": Plant(GATHERED, ("gathered logits",)),
    "batches are copied from memory that isn't pinned": Plant(LOADED.replace("PINNED", ""), ("unpinned copy",)),
    "a message that nobody takes": Plant(
        by_hand(AFTER=f"if rank == 0: dist.send(loss.detach(), 1){HERE}"), ("no partner",)
    ),
}  # fmt: skip
"""By what is wrong."""

SCALED = DDP.replace("net(torch", "scaler.scale(net(torch").replace(".mean().backward()", ".mean()).backward()").replace(
    "    optimizer.step()\n", "    scaler.step(optimizer)\n    scaler.update()\n"
).replace("for step", "scaler = torch.amp.GradScaler()\nfor step") + """
    print(scaler.get_scale())
    net.eval()
    with torch.no_grad():
        seen = net(torch.randn(32, 64, device="cuda")).mean()
    dist.all_reduce(seen)
    print(seen.item())
    net.train()
"""
"""Values printed behind a scaled step, and those of an evaluation behind that."""
LENGTHS = by_hand(BEFORE="net.compile()", BETWEEN="net(x[: 64 - 8 * step])")
"""Lengths that change under a compiler that sees to them after one more compilation."""
AVERAGED = DDP.replace("net = DistributedDataParallel", """average = nn.Sequential(nn.Linear(64, 256), nn.ReLU()).cuda()
reader = nn.Linear(64, 64).cuda()
with torch.no_grad():
    average(torch.randn(2, 64, device="cuda"))
net = DistributedDataParallel""").replace('net(torch.randn(32, 64, device="cuda"))', """with torch.no_grad():
        seen = reader(torch.randn(32, 64, device="cuda"))
    net(seen)""")
"""Parameters that ask for gradients and need none, as nobody trains them."""

CLEAN_SCRIPTS = {
    "batches from pinned memory": (LOADED.replace("PINNED", "pin_memory=True,"), 2),
    "batches that are pinned by hand": (LOADED.replace("PINNED", "").replace("batch.to", "batch.pin_memory().to"), 2),
    "a plain loop": (PLAIN, 1),
    "DDP": (DDP, 2),
    "DDP that evaluates after scaled steps": (SCALED, 2),
    "DDP beside an average of the weights and a network that reads": (AVERAGED, 2),
    "sums by hand, lengths that change under a compiler": (LENGTHS, 2),
    "FSDP1 whose parameters are parts of its shards": (OF_VIEWS.replace("OFFLOAD", "False"), 2),
    "FSDP2 of a Llama": (FSDP2, 2),
    "a pipeline": (PIPELINE.replace("SCHEDULE", "Schedule1F1B"), 2),
}
"""With the GPUs that they run on."""
