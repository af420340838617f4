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
half = torch.bfloat16
model = FullyShardedDataParallel(
    LlamaForCausalLM(config), device_id=rank, mixed_precision=MixedPrecision(param_dtype=half, reduce_dtype=half),
    auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer}))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    tokens = torch.randint(0, 1024, (2, 128), device="cuda")
    model(input_ids=tokens, labels=tokens).loss.backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad()
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
