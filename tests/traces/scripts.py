"""Training scripts that know nothing of this package, as people write them."""

TINY_LLAMA = """
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
                     num_key_value_heads=2, vocab_size=1024)
"""

START = """
import os, torch, torch.nn as nn, torch.distributed as dist
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
"""

PLAIN = """
import torch, torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(64, 256), nn.LayerNorm(256), nn.Linear(256, 64)

    def forward(self, x):
        return self.b(torch.relu(self.norm(self.a(x))))

net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(10):
    x = torch.randn(32, 64, device="cuda")
    loss = net(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
"""

DDP = START + """
from torch.nn.parallel import DistributedDataParallel
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
net = DistributedDataParallel(net, device_ids=[rank])
optimizer = torch.optim.AdamW(net.parameters())
for step in range(10):
    net(torch.randn(32, 64, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

ZERO = DDP.replace("torch.optim.AdamW(net.parameters())", "Redundant(net.parameters(), torch.optim.AdamW)").replace(
    "from torch.nn", "from torch.distributed.optim import ZeroRedundancyOptimizer as Redundant\nfrom torch.nn"
)

MEETING = """
import torch, torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.a, self.b = nn.Embedding(100, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, tokens):
        hidden = self.words(tokens)
        hidden = hidden + self.a(hidden)
        if HOLD:
            hidden.register_hook(lambda gradient: kept.append(gradient))
        hidden = hidden + self.b(hidden * 2)
        return hidden @ self.words.weight.t()

kept, net = [], Net().cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    net(torch.zeros(3, dtype=torch.long, device="cuda")).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

RECURRENT = """
import torch, torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(1000, 64)
        self.net = nn.KIND(64, 128, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
        self.head = nn.Linear(256, 4)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.words(words), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.net(packed)[0], batch_first=True)
        return self.head(states.mean(1))

net = Reader().cuda()
optimizer = torch.optim.AdamW(net.parameters())
lengths = torch.tensor([30, 50, 40, 20])
for step in range(10):
    words = torch.randint(0, 1000, (4, 50), device="cuda")
    loss = nn.functional.cross_entropy(net(words, lengths), torch.zeros(4, dtype=torch.int64, device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

CELL = """
import torch
net, head = torch.nn.KIND(64, 128).cuda(), torch.nn.Linear(128, 4).cuda()
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
for step in range(10):
    inputs, states = torch.randn(7, 32, 64, device="cuda"), None
    for one in inputs:
        states = net(one, states)
    head(states[0] if isinstance(states, tuple) else states).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

FSDP2 = START + TINY_LLAMA + """
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
model = LlamaForCausalLM(config).cuda()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.model.layers:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    tokens = torch.randint(0, 1024, (2, 128), device="cuda")
    model(input_ids=tokens, labels=tokens).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""

FSDP1 = START + TINY_LLAMA + """
import functools
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
half, whole = torch.bfloat16, LlamaForCausalLM(config)
for layer in whole.model.layers:
    layer.register_buffer("turned", torch.ones(8))
model = FullyShardedDataParallel(
    whole, device_id=rank, mixed_precision=MixedPrecision(param_dtype=half, reduce_dtype=half),
    auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer}))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    tokens = torch.randint(0, 1024, (2, 128), device="cuda")
    model(input_ids=tokens, labels=tokens).loss.backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad()
"""

OF_VIEWS = START + """
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
net = FullyShardedDataParallel(net, device_id=rank, use_orig_params=True, cpu_offload=CPUOffload(OFFLOAD))
optimizer = torch.optim.AdamW(net.parameters())
for step in range(10):
    net(torch.randn(32, 64, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

TRITON = """
import torch, triton, triton.language as tl

@triton.autotune(configs=[triton.Config({"SIZE": 128}), triton.Config({"SIZE": 256})], key=["count"])
@triton.jit
def doubled(x, y, count, SIZE: tl.constexpr):
    places = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + places, 2 * tl.load(x + places, mask=places < count), mask=places < count)

net = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    out = net(torch.randn(512, 256, device="cuda"))
    twice = torch.empty_like(out)
    doubled[lambda sizes: (triton.cdiv(out.numel(), sizes["SIZE"]),)](out.detach(), twice, out.numel())
    (out * twice).mean().backward()
    optimizer.step()
"""

FLEX = """
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
net, run = torch.nn.Linear(64, 192, bias=False).cuda().bfloat16(), torch.compile(flex_attention)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
mask = create_block_mask(lambda batch, head, query, key: query >= key, None, None, 512, 512, device="cuda")
for step in range(10):
    heads = net(torch.randn(2, 4, 512, 64, device="cuda", dtype=torch.bfloat16)).chunk(3, -1)
    run(*heads, block_mask=mask).float().square().mean().backward()
    optimizer.step()
"""

TRAINER = TINY_LLAMA + """
import torch
from transformers import Trainer, TrainingArguments

class Text(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, place):
        tokens = torch.randint(0, 1024, (128,))
        return {"input_ids": tokens, "labels": tokens, "attention_mask": torch.ones_like(tokens)}

arguments = TrainingArguments("out", per_device_train_batch_size=2, bf16=True, max_steps=20, logging_steps=1, save_steps=2,
                              report_to=[], OPTIONS)
Trainer(LlamaForCausalLM(config), arguments, train_dataset=Text()).train()
"""

DEEPSPEED = START.replace('dist.init_process_group("nccl")\n', "") + TINY_LLAMA + """
import deepspeed
stage = STAGE
model = LlamaForCausalLM(config)
engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "zero_optimization": {"stage": stage, "overlap_comm": False}})
for step in range(10):
    tokens = torch.randint(0, 1024, (2, 128)).to(engine.device)
    loss = engine(input_ids=tokens, labels=tokens).loss
    engine.backward(loss)
    engine.step()
"""

SFT = TINY_LLAMA + """
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast
from tokenizers import Tokenizer, models, pre_tokenizers
from trl import SFTConfig, SFTTrainer
words = {f"w{n}": n for n in range(1022)} | {"<pad>": 1022, "<eos>": 1023}
raw = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>")
text = Dataset.from_list([{"text": " ".join(f"w{(7 * n + m) % 1022}" for m in range(100))} for n in range(64)])
arguments = SFTConfig("out", per_device_train_batch_size=2, bf16=True, max_steps=20, report_to=[], max_length=128,
                      gradient_checkpointing=False, save_strategy="no")
SFTTrainer(LlamaForCausalLM(config), arguments, train_dataset=text, processing_class=tokenizer).train()
"""

LORA = START + TINY_LLAMA + """
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel
model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=8, target_modules=["q_proj", "v_proj"])).cuda()
model = DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])
for step in range(10):
    tokens = torch.randint(0, 1024, (2, 128), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

QLORA = TINY_LLAMA + """
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification, BitsAndBytesConfig
config.pad_token_id = 0
config.save_pretrained("tiny")
four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
eight = BitsAndBytesConfig(load_in_8bit=True)
how = HOW
model = AutoModelForSequenceClassification.from_pretrained("tiny", num_labels=7, dtype=torch.bfloat16, device_map={"": 0}, **how)
assert model.config.name_or_path == "tiny" and model.score.weight.shape == (7, 256) and model.score.weight.device.type == "cuda"
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="SEQ_CLS"))
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])
for step in range(10):
    tokens = torch.randint(1, 1024, (2, 128), device="cuda")
    model(input_ids=tokens, labels=torch.tensor([1, 2], device="cuda")).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

MIXTURE = START + """
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
config = Qwen3MoeConfig(hidden_size=128, intermediate_size=256, moe_intermediate_size=64, num_hidden_layers=2,
                        num_attention_heads=4, num_key_value_heads=2, head_dim=32, num_experts=8, num_experts_per_tok=2,
                        vocab_size=512)
model = Qwen3MoeForCausalLM(config).cuda()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
for layer in model.model.layers:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    tokens = torch.randint(0, 512, (2, 64), device="cuda")
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

VISION = START + """
from torch.nn.parallel import DistributedDataParallel
import torchvision
model = DistributedDataParallel(torchvision.models.MODEL.cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cuda")
for step in range(10):
    images = torch.randn(2, 3, 224, 224).cuda(non_blocking=True)
    labels = torch.randint(0, 1000, (2,)).cuda(non_blocking=True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""

BERT = START + """
from torch.nn.parallel import DistributedDataParallel
from transformers import BertConfig, BertForMaskedLM
config = BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, vocab_size=512)
model = DistributedDataParallel(BertForMaskedLM(config).cuda(), device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    tokens = torch.randint(0, 512, (2, 64), device="cuda")
    mask = torch.ones_like(tokens)
    mask[:, 50:] = 0
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=tokens, attention_mask=mask, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

DIT = START + """
from torch.nn.parallel import DistributedDataParallel
from diffusers import DDPMScheduler, DiTTransformer2DModel
model = DiTTransformer2DModel(num_attention_heads=4, attention_head_dim=32, in_channels=4, out_channels=4, num_layers=2,
                              sample_size=16, patch_size=2, num_embeds_ada_norm=1000)
model = DistributedDataParallel(model.cuda(), device_ids=[rank])
noise = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    images = torch.randn(2, 4, 16, 16, device="cuda")
    times = torch.randint(0, 1000, (2,), device="cuda")
    labels = torch.randint(0, 1000, (2,), device="cuda")
    noisy = noise.add_noise(images, torch.randn_like(images), times)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(noisy, timestep=times, class_labels=labels).sample.float(), images)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

TENSOR_PARALLEL = START + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(128, 512, bias=False), nn.Linear(512, 128, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))

mesh = init_device_mesh("cuda", (dist.get_world_size(),))
model = nn.Sequential(*[Block() for _ in range(3)]).cuda()
for block in model:
    parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    model(torch.randn(4, 32, 128, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

PIPELINE = START + """
from torch.distributed.pipelining import PipelineStage, SCHEDULE
stages, place = dist.get_world_size(), dist.get_rank()
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).cuda()
stage = PipelineStage(model, place, stages, torch.device("cuda", rank))
schedule = SCHEDULE(stage, n_microbatches=4, loss_fn=lambda out, target: (out - target).pow(2).mean())
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    x, y = torch.randn(8, 64, device="cuda"), torch.randn(8, 64, device="cuda")
    losses = []
    if place == 0:
        schedule.step(x)
    elif place == stages - 1:
        schedule.step(target=y, losses=losses)
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
"""

MESH = """
import torch, torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("data", "tensor"))  # which makes the group of all
net = nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 32)).to("cuda")
net = parallelize_module(net, mesh["tensor"], {"1": ColwiseParallel(), "3": RowwiseParallel()})
fully_shard(net, mesh=mesh["data"])
optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
first = torch.ones(8, device="cuda") if mesh.get_rank() == 0 else None  # so that rank 0 is a role of its own
for step in range(10):
    net(torch.randint(64, (8, 16), device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

PICKED = """
import torch
from torch.nn.functional import cross_entropy, embedding

table = torch.randn(1000, 64, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([table], lr=0.1)
places = torch.randint(0, 1000, (50,), device="cuda")
for _ in range(10):
    rows = embedding(places, table)
    with torch.no_grad():
        torch.zeros(1000, 64, device="cuda").index_add_(0, places, rows)
    cross_entropy(rows, places.remainder(64)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""

CHOICES = """
import torch
from torch.distributions import Categorical
actor = torch.nn.Linear(8, 4).cuda()
optimizer = torch.optim.SGD(actor.parameters(), lr=0.1)
seen, kept = torch.zeros(512, 8, device="cuda"), torch.zeros(512, device="cuda")
with torch.no_grad():
    kept[:] = Categorical(logits=actor(seen)).sample()
for step in range(5):
    optimizer.zero_grad()
    (-Categorical(logits=actor(seen)).log_prob(kept.long())).mean().backward()
    optimizer.step()
"""

ATTENDS = """
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
net = torch.nn.Linear(64, 192).cuda().half()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(5):
    heads = net(torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.float16)).chunk(3, -1)
    with sdpa_kernel(KERNELS):
        torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True).mean().backward()
    optimizer.step()
"""

HOLDING = {
    "an MLP": """
net = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256), nn.SiLU(), nn.Linear(256, 10))
given, targets = (64, 256), torch.zeros(64, dtype=torch.int64)
def loss_of(x):
    return nn.functional.cross_entropy(net(x), targets.to(x.device))
""",
    "convolutions": """
net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3),
                    nn.GroupNorm(8, 64), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
given = (8, 3, 64, 64)
def loss_of(x):
    return net(x).square().mean()
""",
    "attention": """
net = nn.MultiheadAttention(128, 4, batch_first=True)
given = (4, 64, 128)
def loss_of(x):
    return net(x, x, x)[0].square().mean()
""",
    "checkpoints": """
from torch.utils.checkpoint import checkpoint
net = nn.ModuleList(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(4))
given = (64, 256)
def loss_of(x):
    for layer in net:
        x = x + checkpoint(layer, x, use_reentrant=False)
    return x.square().mean()
""",
    "losses": """
net = nn.Linear(64, 32)
given = (4096, 64)
def loss_of(x):
    out, F = net(x), nn.functional
    return (F.smooth_l1_loss(out, torch.zeros_like(out)) + F.kl_div(out.log_softmax(-1), out.detach().softmax(-1))
            + F.mse_loss(torch.tanh(out), out.sigmoid()) + F.normalize(out, dim=-1).cumsum(-1).mean() + F.elu(out).std())
""",
}
"""Networks, with the shape of their input and their loss."""
TRAINING = """
import torch, torch.nn as nn
MODEL
net.cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(5):
    loss = loss_of(torch.randn(given, device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SAVING = """
import torch, torch.nn as nn
MODEL
inputs, saved = torch.randn(given), {}
def kept(tensor):
    saved[tensor.untyped_storage().data_ptr()] = tensor
    return tensor
with torch.autograd.graph.saved_tensors_hooks(kept, lambda tensor: tensor):
    loss_of(inputs)
for tensor in [inputs, *net.parameters(), *net.buffers()]:
    saved.pop(tensor.untyped_storage().data_ptr(), None)
print(sum(tensor.untyped_storage().nbytes() for tensor in saved.values()))
"""
"""What autograd saves of a loss on a CPU that is there."""
