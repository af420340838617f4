"""Questions as a person types them first: each is answered at once, or refused in one line that says what to type."""

from __future__ import annotations

import json
import shlex

import pytest

from costmodel import (
    Plan,
    cards,
    compare,
    diagnose,
    estimate,
    gpus_in_time,
    load_cluster,
    load_model,
    machine,
    replace,
    search,
)
from costmodel.cli import main
from costmodel.evaluation.capacity import largest_micro_batch, longest_sequence
from costmodel.evaluation.difference_errors import difference_error
from costmodel.evaluation.ranking import standings
from tests.commanding import refused

NODE = ["--cluster", "dgx-h100"]
WORK = ["--global-batch", "64", "--seq-len", "4096"]
QUESTIONS = {
    "what is BERT like on four V100": (
        "estimate bert-large-uncased --device v100 --gpus 4 --framework ddp", "256 sequences of 512 tokens"),
    "which clusters are there": ("list clusters", "dgx-h100"),
    "which GPUs are there": ("list gpus", "h100-sxm"),
    "how does it scale": ("scale llama3-8b --cluster dgx-h100 --nodes 1,2", "2 nodes is "),
    "eight of a card by its number alone": ("search llama3-8b --gpus 8xa100 --top 1", "8 GPUs of a100-sxm-80gb"),
    "no tensor parallelism": ("search llama3-8b --cluster dgx-h100 --no-tp --top 1", "llama3-8b on 8 GPUs of dgx-h100"),
    "a batch of four million tokens": (
        "search llama3-8b --cluster dgx-h100 --global-batch-tokens 4M --top 1", "1,024 sequences of 4,096 tokens"),
    "does a 70B fit, and how": (
        "estimate llama3-70b --cluster dgx-h100 --nodes 8", "The fastest plan that fits, as no degree was given: "),
    "what does a 671B need on too few": (
        "memory deepseek-v3 --cluster dgx-h100 --nodes 4", "As no degree was given, others were looked at: none of"),
    "which card for LoRA of a 32B": (
        "cards qwen2.5-32b --adapter lora --device h100,4090,h200,l40s", "lora of qwen2.5-32b fits from h100-sxm (80 GiB)"),
    "does QLoRA of 70B fit on a 4090": (
        "cards llama3-70b --adapter qlora --device 4090", "qlora of llama3-70b does not fit on rtx-4090"),
    "does LoRA of 8B fit on a 3090": ("cards llama3-8b --adapter lora --device 3090", "lora of llama3-8b fits on rtx-3090"),
    "full or LoRA or QLoRA of 8B on one H100": (
        "cards llama3-8b --adapter full,lora,qlora --device h100", "full of llama3-8b fits on h100-sxm"),
    "which card is cheapest for a billion tokens": (
        "cards llama3.2-1b --adapter lora --device 4090,h100 --tokens 1B --price 4090=0.4,h100=2.5", "cheapest on rtx-4090"),
    "full fine-tune of 8B on 8 cards": ("cards llama3-8b --adapter full --device a100 --gpus 8", "fits on 8 x a100-sxm-80gb"),
    "H100 against B200 per dollar": (
        "compare llama3-8b --device h100,b200 --price h100=2.5,b200=5", "b200 is 2."),
    "one card or another for QLoRA": (
        "compare llama3-8b 4090 3090 --qlora", "Taken, as it wasn't said: --global-batch 16, --seq-len 2048, --gpus 1"),
    "a batch of each GPU, accumulated": (
        "estimate llama3-8b --gpu h100 --gpus 8 --batch-size 1 --grad-accum 16", "megatron-core: 128 sequences"),
    "H100 or A100 for LoRA": ("compare llama3-8b --gpu h100 a100 --lora", "llama3-8b: 16 sequences of 2,048 tokens a step"),
    "FSDP against Megatron": ("compare llama3-8b --cluster dgx-h100 --framework fsdp megatron", "times as fast as"),
    "plans as answers show them": (
        "compare llama3-8b 8xh100 --plan FSDP --plan 'TP2 PP2, micro-batch 1'", "times as fast as tp=2,pp=2,mbs=1"),
    "FSDP against TP + PP": (
        "compare llama3-8b --cluster dgx-h100 --nodes 2 --plan framework=fsdp2,tp=1,pp=1 --plan tp=4,pp=2",
        "framework=fsdp2,tp=1,pp=1 is "),
    "recompute or not": ("compare llama3-8b --cluster dgx-h100 --recompute none,full", "recompute none is "),
    "bf16 or fp8": ("compare llama3-8b --cluster dgx-h100 --dtype bf16,fp8", "dtype fp8 is "),
    "8 to 32 GPUs": ("scale llama3-8b --gpu h100 --gpus 8-32", "32 GPUs is "),
    "AWS or Azure": ("compare llama3-8b --cluster aws-p5,azure-nd-h100-v5 --nodes 2", "for as many tokens"),
    "ZeRO-1 or ZeRO-3": ("compare llama3-8b --cluster dgx-h100 --framework deepspeed --zero-stage 1,3", "ZeRO"),
    "why does my run get 20 % MFU": (
        "diagnose llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 4096 --tp 2 --mfu 20%", "change first"),
    "is 6 s a step normal": (
        "diagnose llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 4096 --tp 2 --step-time 6",
        "outside the 90 % interval"),
    "why so few tokens a second": (
        "diagnose llama3-8b --device h100 --gpus 8 --global-batch 64 --seq-len 4096 --dp 8 --zero-stage 3 --framework fsdp2 "
        "--tokens-per-second 12k", "outside the 90 % interval"),
    "GPUs for a week": ("gpus llama3-8b --days 7 --tokens 100B --device h100", "end within 7 days with probability"),
    "GPUs for 30 days and their price": (
        "gpus llama3-8b --days 30 --tokens 1T --cluster dgx-h100 --price 2.5", "end within 30 days with probability"),
    "which plan is best": ("search llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 4096 --no-check", "rank"),
    "how long is a step": ("estimate llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 4096 --tp 2", "90 %"),
    "does it fit": ("estimate llama3-70b --cluster dgx-h100 --global-batch 64 --seq-len 4096 --tp 8", "DOES NOT FIT"),
    "how many GPUs for 70B full fine-tune": (
        "capacity llama3-70b --device h100 --find gpus --global-batch 64 --seq-len 4096", "Fewest GPUs on which a plan fits"),
    "cost of 1T tokens": (
        "train llama3-8b --device h100 --gpus 64 --tokens 1T --price 2 --global-batch 512 --seq-len 4096", "price"),
    "a model on eight cards": ("estimate llama3-8b 8xh100", "llama3-8b on 8 GPUs of h100-sxm"),
    "an answer's figure by its name": ("estimate llama3-8b 8xh100 mfu", "llama3-8b on 8 GPUs of h100-sxm"),
    "how many of a card": ("how many h100 to train llama3-8b on 1T tokens in 60 days", "end within 60 days with probability"),
    "what a model has": ("how many parameters does llama3-8b have", "model llama3-8b"),
    "offload by itself": ("memory mixtral-8x7b 8xh100 zero3 offload", "Not by default: optimizer_offload 1"),
    "how it is updated, by itself": ("post-train qwen2.5-7b 16xh100 grpo", "A step of grpo"),
    "an algorithm in short": ("collective allreduce 1GB 8xh100 --algo ring", "ring simple as asked"),
    "cards by their memory": ("devices nvidia 80gb", "h100-sxm"),
    "hardware shown with its number": ("show 8xh100", "cluster h100-sxm: 8 x NVIDIA H100"),
    "cards before their number": ("search llama3-8b a100x8 --no-check", "llama3-8b on 8 GPUs of a100-sxm-80gb"),
    "a number and a card": ("estimate llama3-8b 8 h100", "llama3-8b on 8 GPUs of h100-sxm"),
    "as SLURM writes it": ("estimate llama3-8b H100:8", "llama3-8b on 8 GPUs of h100-sxm"),
    "nodes by cards": ("estimate llama3-8b 2x8xh100", "on 16 GPUs of h100-sxm in nodes as dgx-h100"),
    "nodes of a system": ("estimate llama3-8b 4xdgx-h100 --tp 2", "on 32 GPUs of dgx-h100"),
    "a size of memory in the card's name": ("estimate llama3-8b 8xA100-80GB", "on 8 GPUs of a100-sxm-80gb"),
    "unlike cards": (
        "search llama3-8b 8xh100+8xa100 --tp 2 --pp 1 --mbs 1 --no-check", "llama3-8b on 2 of 2 groups of unlike GPUs"),
    "cards as a cluster": ("estimate llama3-8b --hardware h100 --num-gpus 8", "on 8 GPUs of h100-sxm"),
    "a system as a device": ("estimate llama3-8b --device dgx-h100 --tp 2", "on 8 GPUs of dgx-h100"),
    "QLoRA of a 7B on a 4090": (
        "estimate qwen2.5-7b 1x4090 --adapter qlora --recompute on", "rtx-4090, hf-trainer: 16 sequences of 2,048 tokens"),
    "what QLoRA of a 7B holds": ("memory qwen2.5-7b 1x4090 --adapter qlora", "Fits: 1"),
    "all weights by AdamW": ("estimate llama3-8b 8xa100 --adapter full --optimizer adamw_torch", "a100-sxm-80gb, megatron-core"),
    "a bare card": ("cards llama3-8b 4090 --adapter qlora", "qlora of llama3-8b fits on rtx-4090"),
    "a card of two words": ("cards qwen2.5 7b rtx 4090 --adapter qlora", "qlora of qwen2.5-7b fits on rtx-4090"),
    "a model of several words": ("estimate llama 3 8b 8xh100", "llama3-8b on 8 GPUs of h100-sxm"),
    "a mixture of two words": ("search mixtral 8x7b --device h100 --gpus 16 --no-check", "mixtral-8x7b on 16 GPUs"),
    "a model and its cards in words": ("estimate deepseek v3 on 256xh800 --ep 8", "deepseek-v3 on 256 GPUs of h800"),
    "a model by its page": ("estimate meta-llama/Meta-Llama-3-8B 8xh100", "llama3-8b on 8 GPUs"),
    "another model by its page": ("estimate Qwen/Qwen2.5-7B-Instruct 8xa100", "qwen2.5-7b on 8 GPUs"),
    "bs": ("estimate llama3-8b 8xh100 --bs 64 --tp 2", "64 sequences of 4,096 tokens a step"),
    "a length in k": ("estimate llama3-8b 8xh100 --context-length 32k --tp 8", "sequences of 32,768 tokens"),
    "Megatron's own flags": (
        "estimate llama3-8b 8xh100 --tensor-model-parallel-size 2 --micro-batch-size 2 --bf16", "TP2 DP4, micro-batch 2"),
    "gradient checkpointing": ("estimate llama3-8b 8xh100 --gradient-checkpointing", "recompute full"),
    "ZeRO-3 by FSDP": ("estimate llama3-8b 8xh100 --fsdp --zero3", "fsdp2: 256 sequences"),
    "frameworks as they are called": ("compare llama3-8b 8xh100 --framework fsdp,megatron", "times as fast as"),
    "one card against another": ("compare llama3-8b 8xh100 vs 8xb200", "times as fast as"),
    "8 or 16 of them": ("compare llama3-8b 8xh100 16xh100", "16 GPUs is "),
    "QLoRA as Transformers has it": (
        "memory mistral-7b --gpu 4090 --lora_rank 16 --load_in_4bit True --max_seq_length 4k",
        "Not by default: adapter qlora, lora_rank 16"),
    "a rank alone": ("estimate llama3-8b 8xh100 --lora-rank 16", "Not by default: adapter lora"),
    "the longest alone": ("longest llama3-8b 4090 --qlora", "Longest sequence that fits"),
    "offloading by its part": (
        "memory llama3-8b 8xa100 --zero 3 --offload optimizer --gradient-checkpointing", "Not by default: optimizer_offload 1"),
    "LoRA as a switch": ("capacity llama3-8b h100 --find batch --lora --framework trl", "Largest batch that fits"),
    "38 % without a batch": ("diagnose llama3-8b 8xh100 --mfu 38", "change first"),
    "tokens a second without a batch": ("diagnose llama3-8b 8xh100 --tokens-per-second 50k", "90 % interval"),
    "a trillion": ("train llama3-8b 64xh100 --tokens 1 trillion --price 2", "price"),
    "a node's all-reduce": ("collective all-reduce 1GB 8xh100", "all-reduce of 953.7 MiB over 8 GPUs of h100-sxm"),
    "an all-reduce in words": ("collective allreduce 100 MB 2x8 h100", "all-reduce of 95.4 MiB over 16 GPUs"),
    "an all-gather of cards": ("collective all_gather 1GiB --device h100 --gpus 16", "all-gather of 1.0 GiB over 16 GPUs"),
    "a design of one kind": ("design llama3-8b --device h100 --gpus 64 --tokens 1T", "1 of 1 cluster holds it"),
    "a timeline": ("timeline llama3-8b 8xh100 --pp 2", "Played out"),
    "what is sent": ("ledger llama3-8b 16xh100 --tp 2", "All GPUs send"),
    "days on some kind": ("gpus llama3-8b h100 --days 7 --tokens 100B", "end within 7 days"),
    "a model's size alone": ("estimate 70b 64xh100 --tp 8", "llama3-70b on 64 GPUs"),
    "7b": ("estimate 7b on 8 h100", "llama2-7b on 8 GPUs of h100-sxm"),
    "a size that Llama lacks": ("memory 32b 8xh200", "qwen2.5-32b on 8 GPUs of h200-sxm"),
    "a family by itself": ("memory mixtral 8xh100", "mixtral-8x7b on 8 GPUs"),
    "a cross between spaces": ("estimate llama2 7b 8 x h100", "llama2-7b on 8 GPUs of h100-sxm"),
    "cards in the plural": (
        "estimate llama3-405b 16384 H100s --tp 8 --pp 16 --dp 128", "llama3.1-405b on 16,384 GPUs of h100-sxm"),
    "GPUs by that word": ("estimate llama3-8b h100 8 gpus", "on 8 GPUs of h100-sxm"),
    "nodes by that word": ("estimate llama3-8b 2 nodes of 8 h100", "on 16 GPUs of h100-sxm in nodes as dgx-h100"),
    "nodes as a card comes in": ("estimate llama3-8b --gpu mi300x --nodes 2", "on 16 GPUs of mi300x"),
    "systems behind a cross": ("estimate llama3-8b dgx-h100 x 4", "on 32 GPUs of dgx-h100"),
    "a card's memory beside it": ("estimate mistral 7b on 1 a100 80gb", "mistral-7b on 1 GPU of a100-sxm-80gb"),
    "a memory without its B": ("estimate llama2-7b 8xA100-80G", "on 8 GPUs of a100-sxm-80gb"),
    "a card's form beside it": ("estimate llama3-8b 8xh100 nvl", "on 8 GPUs of h100-nvl"),
    "a batch by a word": ("estimate llama3-8b 8 x H100 bs 64", "64 sequences of 4,096 tokens"),
    "a batch of tokens": ("estimate llama3-8b 8xh100 --batch-size 1M", "256 sequences of 4,096 tokens"),
    "a batch of tokens for adapters": ("estimate llama3-8b 8xh100 --adapter lora --gbs 1M", "256 sequences of 4,096 tokens"),
    "a batch of tokens in words": ("estimate llama3-8b 8xh100 --bs 4M tokens --seq 8k", "512 sequences of 8,192 tokens"),
    "degrees by words": ("estimate deepseek v3 2048 h800 ep 64 pp 16", "PP16 DP128 EP64"),
    "degrees glued": ("estimate llama3-8b 16xh100 tp2 pp=4", "TP2 PP4 DP2"),
    "a degree glued to its option": ("estimate llama3-8b 8xh100 --tp2", "TP2 DP4"),
    "two degrees": ("compare llama3-8b 8xh100 tp2 tp4", "tensor parallel"),
    "ZeRO-3 as a word": ("estimate llama3-8b 8xh100 zero3", "ZeRO 3"),
    "DeepSpeed's stage": ("estimate llama3-8b 8xh100 deepspeed stage 2", "deepspeed: 256 sequences"),
    "FSDP as a word": ("estimate llama3-8b 8xh100 fsdp", "fsdp2: 256 sequences"),
    "frameworks as words": ("compare llama3-8b fsdp megatron 8xh100", "times as fast as"),
    "the model last": ("compare h100 b200 llama3-8b", "times as fast as"),
    "QLoRA in front": ("cards qlora 70b on 4090", "qlora of llama3-70b does not fit on rtx-4090"),
    "PyTorch's names": ("estimate llama3-8b 8xh100 --precision bfloat16 --optim adamw_8bit", "optimizer adam-8bit"),
    "activation checkpointing": ("estimate llama3-8b 8xh100 --ac full", "recompute full"),
    "days and tokens by words": ("gpus llama3-8b 30 days 1T tokens h100", "1 T tokens within 30 days"),
    "days with their unit": ("gpus llama3-8b --in 30d --tokens 1T --device h100", "1 T tokens within 30 days"),
    "a price with its unit": ("train llama3-8b 64xh100 15T tokens --price $2/h", "price"),
    "a bare G": ("collective allreduce 1G 8xh100", "all-reduce of 1.0 GiB over 8 GPUs"),
    "small letters": ("collective allreduce 1gb 8xh100", "all-reduce of 953.7 MiB over 8 GPUs"),
    "the longest": ("capacity llama3-8b 4090 longest sequence qlora", "Longest sequence that fits"),
    "a batch by another name": ("capacity llama3-8b h100 --find batch-size --qlora", "Largest batch that fits"),
    "MFU by its word": ("diagnose llama3-8b 8xh100 38% mfu", "change first"),
    "a stage's count": ("timeline llama3-8b 8xh100 pp=2", "Played out"),
    "a card sold in several sizes": ("estimate gpt2 1 x v100", "1 GPU of v100-sxm-32gb"),
    "the model as an option": ("estimate --model llama3-8b --gpu h100 --n-gpus 8", "llama3-8b on 8 GPUs of h100-sxm"),
    "16k cards": ("estimate llama3-405b 16k h100 --tp 8 --pp 16", "llama3.1-405b on 16,384 GPUs of h100-sxm"),
    "16k as an option": ("estimate llama3-405b --device h100 --gpus 16k --tp 8 --pp 16", "on 16,384 GPUs of h100-sxm"),
    "two models": ("compare llama3-8b vs qwen2.5-7b 8xh100", "times as fast as"),
    "three models by their option": ("compare --model llama3-8b,llama2-7b,gemma2-9b 8xh100", "times as fast as llama3-8b"),
    "a number written out": ("estimate llama3-8b on eight h100s", "llama3-8b on 8 GPUs of h100-sxm"),
    "a single card": ("memory qwen2.5-7b a single 4090 qlora", "1 GPU of rtx-4090"),
    "an article": ("memory llama3-8b lora on an h100", "1 GPU of h100-sxm"),
    "three cards by their figures": ("cards llama3-8b 3090 4090 5090 --adapter qlora", "qlora of llama3-8b fits"),
    "weeks": ("gpus llama3-8b 2 weeks 100B tokens h100", "within 14 days"),
    "months as an option": ("gpus llama3-8b --months 3 --tokens 1T h100", "within 90 days"),
    "dollars": ("train llama3-8b 1T tokens 64xh100 $2", "price"),
    "tokens a second of one": ("diagnose llama3-8b 8xh100 6000 tokens/s/gpu", "90 % interval"),
    "seconds of an iteration": ("diagnose llama3-8b 8xh100 5.2s per step bs 64 seq 4k", "90 % interval"),
    "values of an option with vs": ("compare llama3-8b 8xh100 --recompute none vs full", "recompute none is "),
    "LoRA or all weights": ("compare llama3-8b 8xh100 lora vs full", "times as fast as"),
    "a switch by itself": ("estimate llama3-8b 8xh100 --tp 2 --sp", "TP2 DP4"),
    "no recomputation": ("estimate llama3-8b 8xh100 --no-recompute", "recompute none"),
    "a longest sequence in three words": ("capacity llama3-8b 4090 qlora max seq len", "Longest sequence that fits"),
    "a batch size in words": ("capacity 8b 4090 qlora batch size", "Largest batch that fits"),
    "all weights in words": ("memory 7b full fine tune 8xa100", "llama2-7b on 8 GPUs of a100-sxm-80gb"),
    "a system of two names": ("search llama3-8b gb200 nvl72", "72 GPUs of gb200-nvl72"),
    "cards before a bare number": ("collective all2all 100MB h100 64", "all-to-all of 95.4 MiB over 64 GPUs"),
    "what it costs": ("cost llama3-8b 1T tokens 64xh100 --price 2", "price"),
    "a plan": ("plan llama3-8b 8xh100 --no-check", "rank"), "help of a command": ("help estimate", "usage: costmodel estimate"),
    "no hardware": ("vram llama3-70b --seq 8k --qlora", "qlora of llama3-70b fits from h100-sxm (80 GiB)"),
    "an accumulation": ("estimate llama3-8b 8xh100 --tp 2 --mbs 2 --grad-accum 8", "64 sequences of 4,096 tokens"),
    "an accumulation as Transformers say": (
        "estimate llama3-8b 8xh100 --gradient-accumulation-steps 4", "32 sequences of 4,096 tokens a step"),
    "a batch of a thousand": ("estimate llama3-8b 8xh100 --bs 1k", "1,024 sequences of 4,096 tokens"),
    "the cheapest": (
        "cheapest llama3-8b 4090 h100 --qlora --tokens 1B --price 4090=0.4,h100=2.5", "cheapest on rtx-4090"),
    "the cheapest in time": ("cheapest llama3-8b 30 days 1T tokens h100 --price 2", "end within 30 days"),
    "no command": ("llama3-8b 8xh100 --no-check", "rank 1"),
    "the fastest": ("fastest plan llama3-8b 8xh100 --no-check", "rank 1"),
    "can I": ("can i train llama3-70b on 8xh100", "DOES NOT FIT"), "does it": ("does llama3-8b fit on 4090 qlora", "Fits: "),
    "how long": ("how long to train llama3-8b on 64 h100 1T tokens", "1 T tokens:"),
    "how many GPUs in days": ("how many gpus to train llama3-8b 1T tokens 30 days h100", "end within 30 days"),
    "how fast": ("how fast is llama3-8b on 8xh100", "tokens/s"), "how much memory": (
        "how much memory does llama3-8b need on h100", "Fullest at its"),
    "which GPU": ("which gpu for llama3-8b qlora", "qlora of llama3-8b fits from"),
    "a card in words": ("what is the best gpu for qlora of llama3-70b", "qlora of llama3-70b fits from"),
    "degrees by their sizes": (
        "estimate llama3-8b 8xh100 --tensor_parallel_size 4 --pipeline-parallel-degree 2 --strategy fsdp", "TP4 PP2"),
    "qlora": ("qlora llama3-70b 4090", "qlora of llama3-70b does not fit on rtx-4090"),
    "a fine-tune": ("finetune llama3-8b 4090", "full of llama3-8b does not fit on rtx-4090"),
    "out of memory": ("oom llama3-8b 4090 --lora", "rtx-4090"), "a card's figures": ("specs h100", "device h100-sxm"),
    "parameters": ("params llama3-8b", "8.0"), "the longest by its word": (
        "max seq llama3-8b 4090 qlora", "Longest sequence that fits"),
    "the largest batch": ("max-batch llama3-8b h100 --lora", "Largest batch"),
    "PyTorch's data parallelism against the classics": (
        "compare --systems resnet-50 --cluster dgx-1v --gpus 16", "systems that fit, the fastest first"),
    "what it draws": ("energy llama3-8b 8xh100 --tokens 1T", "MWh"),
    "carbon": ("carbon llama3-8b 8xh100 1T tokens", "1 T tokens:"),
    "how much energy": ("how much energy does llama3-8b need on 8xh100 1T tokens", "1 T tokens:"),
    "FLOP of a token": ("flops llama3-8b", "FLOP of a token"),
    "its rate": ("tokens/s llama3-8b 8xh100 tp2", "tokens/s"), "MFU in words": ("what is the mfu of llama3-8b on 8xh100", "MFU"),
    "memory with a hyphen": ("memory-usage llama3-8b 8xh100 tp2", "Fits: "), "fit": ("fit llama3-70b 8xh100", "DOES NOT FIT"),
    "pretraining": ("pretrain llama3-8b 64xh100 --tokens 1T", "1 T tokens:"),
    "optimize": ("optimize llama3-8b 8xh100 --no-check", "rank 1"),
    "cards before the model": ("h100 vs a100 llama3-8b", "h100 is 2."), "a card alone": ("gpu h100", "device h100-sxm"),
    "one device": ("device h100", "device h100-sxm"), "one cluster": ("cluster dgx-h100", "cluster dgx-h100"),
    "one model": ("model llama3-8b", "model llama3-8b"),
    "an all-reduce by itself": ("allreduce 1GB 8xh100", "all-reduce of 953.7 MiB over 8 GPUs"),
    "an all-gather by itself": ("all_gather 100MB 2x8xh100", "all-gather of 95.4 MiB over 16 GPUs"),
    "NCCL's": ("nccl all-reduce 1GiB dgx-h100", "all-reduce of 1.0 GiB over 8 GPUs"),
    "a bubble": ("bubble llama3-8b 8xh100 pp=4", "Played out"),
    "a batch by itself": ("batch llama3-8b 4090 --qlora", "Largest batch"),
    "a context in two words": ("context length llama3-8b 4090 --qlora", "Longest sequence that fits"),
    "a batch size in two words": ("batch size llama3-8b 4090 --qlora", "Largest batch"),
    "a letter for GPUs": ("estimate llama3-8b --gpu H100 -n 8 tp2", "on 8 GPUs of h100-sxm"),
    "a letter for nodes": ("estimate llama3-8b -N 2 --cluster dgx-h100", "on 16 GPUs of dgx-h100"),
    "tokens by themselves": ("train llama3-8b 64xh100 1T", "1 T tokens:"),
    "a sentence": ("train 8b model on 1T tokens with 64 h100", "llama3-8b on 64 GPUs"),
    "GRPO by its name": ("grpo llama3-8b 8xh100", "A step of grpo"),
    "GRPO of an unsaid step": ("post-train llama3-8b 8xh100", "A step of grpo"),
    "a checkpoint an hour": (
        "train llama3-8b 64xh100 --tokens 1T --tp 2 --checkpoint-interval 1h --checkpoint-time 1min --mtbf-hours 50000",
        "after every 3600 s of work a checkpoint, which takes 60 s"),
    "a slow GPU": ("simulate llama3-8b 8xh100 --tp 2 --slow 3=1.5", "slowest"),
    "a network as it is sold": ("estimate llama3-8b 2xdgx-h100 --tp 2 --network 100gbit", "GB/s per GPU"),
    "more GPUs than a cluster of the catalogue has": (
        "gpus llama3-70b --days 30 --tokens 15T --device h100 --global-batch 4096", "end within 30 days"),
    "more tokens than a usual batch gets through": (
        "gpus llama3-70b --days 30 --tokens 15T --device h100 --global-batch 1024", "a larger batch has work for more"),
    "as many tokens in a batch that is usual": (
        "gpus llama3-70b --days 30 --tokens 15T --gpus h100", "Taken, as it wasn't said: --global-batch 4096, --seq-len 4096"),
    "LoRA with its rank": ("memory llama3.1-8b 4090 --lora 32", "Not by default: adapter lora, lora_rank 32"),
    "LoRA turned on": ("memory llama3.1-8b 4090 --lora 1", "Not by default: adapter lora one GPU"),
    "no adapter in capitals": ("estimate llama3-8b 8xh100 --adapter NONE --tp 8", "megatron-core: 256 sequences"),
    "values in capitals that do not fit": ("estimate llama3-8b 8xh100 --dtype BF16", "would fit with"),
    "nodes and the GPUs of each": ("estimate llama3-8b --nodes 2 --gpus-per-node 8 --gpu h100", "on 16 GPUs of h100-sxm"),
    "DeepSpeed's words for them": ("memory llama3-8b --device h100 --num_nodes 2 --num_gpus 8 --zero 3", "on 16 GPUs"),
    "all GPUs over nodes": ("memory llama3-8b --device h100 --nodes 2 --num-gpus 8 --zero 3", "on 8 GPUs"),
    "instances of so many": ("memory llama3-8b --device h100 --num-instances 2 --devices-per-node 4 --zero 3", "on 8 GPUs"),
    "torchrun's words for them": ("memory llama3-8b --device h100 --nnodes=2 --nproc_per_node=4 --zero 3", "on 8 GPUs"),
    "what an hour costs": ("train llama3-8b 64xh100 --tokens 1T --cost-per-gpu-hour 2.2", "price"),
    "a rate of one GPU": ("diagnose llama3-8b 8xh100 --tp 2 --tokens-per-second-per-gpu 7k", "90 % interval"),
    "the longest sequence": ("longest-sequence llama3-8b 4090 --qlora", "Longest sequence that fits"),
    "the biggest batch": ("biggest-batch llama3-8b a100 --lora", "Largest batch that fits"),
    "a longest sequence that is said": ("estimate llama3-8b 8xh100 --max-seq-len 8192 --tp 8", "sequences of 8,192 tokens"),
    "a highest degree": ("search llama3-8b 8xh100 --max-tp 2 --pp 1 --cp 1 --no-check", "TP2 DP4"),
    "whole plans": ("compare llama3-8b 8xh100 fsdp tp=4,pp=2", "tp=4,pp=2"),
    "cards and their numbers as GPUs": ("compare llama3-8b --gpus 8xh100,16xa100", "8xh100 is "),
    "a batch in tokens by its name": (
        "estimate llama3-8b 8xh100 --tp 2 --tokens-per-batch 4194304", "1,024 sequences of 4,096 tokens a step"),
    "a switch turned off": ("memory llama3-8b 4090 --qlora --gradient-checkpointing false", "recompute none"),
    "flash kernels turned off": ("estimate llama3-8b 8xh100 --tp 2 --flash-attn=False", "attention unfused"),
    "DeepSpeed's way of three words": (
        "memory llama2-13b 8xa100 --zero3-offload", "Not by default: parameter_offload 1, optimizer_offload 1"),
    "a stage as a strategy": ("estimate llama3-8b 8xh100 --strategy zero3", "ZeRO 3"),
    "PyTorch's words for a stage": ("estimate llama3-8b 8xh100 --fsdp shard_grad_op", "fsdp2: 256 sequences"),
    "nothing offloaded": ("estimate llama3-8b 8xh100 --tp 2 --offload none", "TP2 DP4"),
    "what an answer has": ("estimate llama3-8b 8xh100 --tp 2 --tokens-per-second", "Rate: "),
    "by cost": ("search llama3-8b 8xh100 --objective cost --no-check", "rank 1"),
    "several sizes in no file": ("sweep llama3-8b --gpus 8,16 --gpu h100", "16 GPUs is "),
    "the time to train": ("time-to-train llama3-8b 64xh100 --tokens 1T", "1 T tokens:"),
    "a cloud's machine": ("estimate llama3-8b --instance a3-megagpu-8g --nodes 2 --tp 2", "on 16 GPUs of gcp-a3-mega"),
    "how gradients are summed": (
        "compare gpt2-medium 16xv100 --sync allreduce,ps", "synchronisation all-reduce is 1."),
    "values in capitals": (
        "estimate llama3-8b 8xh100 --dtype BF16 --recompute Full --optimizer Adam --framework FSDP2", "recompute full"),
    "steps of a run": ("train bert-large 8xv100 --steps 1000 --bs 256 --seq 512 --framework ddp", "131.1 M tokens: 1,000 steps"),
    "samples of a fine-tune": (
        "train llama3-8b 8xh100 --samples 50000 --epochs 3 --seq 2048 --lora", "307.2 M tokens: 9,375 steps"),
    "unlike numbers": ("compare llama3-8b 16xh100 vs 8xb200", "8xb200 is "),
    "unlike systems": ("compare llama3-8b 2xdgx-h100 1xdgx-b200", "1xdgx-b200 is "),
    "systems joined": (
        "search llama3.2-1b 1xdgx-h100+1xdgx-a100 --gbs 16 --tp 1 --pp 1 --cp 1 --mbs 1 --zero 1 --recompute full --no-check",
        "8 of dgx-a100"),
    "systems side by side": ("compare llama3-8b 1xdgx-h100 2xdgx-h100", "2 nodes is "),
    "a slower network": ("compare llama3-8b 4xdgx-h100 --network 100Gbit,400Gbit", "network 400Gbit"),
    "how well a card is known": ("accuracy h100", "torchtitan"),
    "prices by a short name": (
        "design llama3-8b --device h100 --gpus 64 --tokens 1T --prices h100=2.5", "1 of 1 cluster holds it"),
    "a price of nowhere": ("price llama3-8b --tokens 100B --days 7 --price 2", "end within 7 days"),
    "a command line": (
        "explain torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 True --device h100",
        "text: transformers"),
    "a command line behind dashes": (
        "explain --device h100 -- torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --bf16 True",
        "text: transformers"),
    "what a command line says": (
        "read accelerate launch --num_processes 8 train.py --model_name_or_path Qwen/Qwen2.5-7B", "Model: Qwen/Qwen2.5-7B"),
    "servers against an all-reduce": ("ps-vs-allreduce vgg16 --workers 16 --bandwidth 10Gb/s", "vgg-16 on 16 GPUs of dgx-1v"),
    "half of a network": ("estimate llama3-8b 2xdgx-h100 --bandwidth 0.5x", "rail.bandwidth 46 -> 23 GB/s"),
    "months": ("gpus llama3-8b --time 3months --tokens 1T --gpu h100", "within 90 days"),
    "a size as an option": ("collective all_reduce --size 1GiB --cluster dgx-h100", "all-reduce of 1.0 GiB over 8 GPUs"),
    "FLOP of a longer sequence": ("flops llama3-8b --seq-len 32k", "in sequences of 32,768"),
    "DeDLOC": ("dedloc alexnet 2xdgx-1v", "averaging delayed by a step"),
    "DistBelief": ("distbelief alexnet 2xdgx-1v", "Sandblaster"),
    "BytePS": ("byteps alexnet 16xv100", "2 spare machines"),
    "parameter servers in two words": ("parameter server alexnet 2xdgx-1v", "parameter server, bounded delay"),
    "DiLoCo": ("diloco alexnet 2xdgx-1v", "an exchange every 16 steps"),
    "several of the classics": (
        "compare --systems bert-large 2xdgx-1v --system byteps,dedloc --global-batch 256 --seq-len 512", "BytePS"),
    "a maker": ("devices amd", "mi300x"), "two words of a list": ("clusters aws p5", "aws-p5e"),
    "all formulas": ("formula", "compute.limited_clock"),
    "a day": ("gpus llama3-8b --days 1 --tokens 1B --device h100", "end within 1 day with probability"),
    "an attention by the name of Transformers": (
        "estimate llama3-8b 8xh100 --attn-implementation flash_attention_2 --tp 2", "TP2 DP4"),
    "no flash": ("estimate llama3-8b 8xh100 --no-flash --tp 2", "attention unfused"),
    "a length of 128k": ("estimate llama3-8b 8xh100 --seq-len 128k --tp 8", "sequences of 131,072 tokens"),
    "an instance of a cloud": ("estimate llama3-8b p5.48xlarge --tp 2", "8 GPUs of aws-p5"),
    "a model of Qwen by its page": ("estimate Qwen/Qwen3-30B-A3B 8xh100 --ep 8", "DP8 EP8"),
    "fp8 or bf16": ("compare llama3-8b 8xh100 fp8 vs bf16", "dtype fp8 is 1."),
    "ZeRO-1 or ZeRO-3 in words": ("compare llama3-8b 8xh100 --zero 1 vs 3", "ZeRO stage 1 is "),
    "milliseconds": ("diagnose llama3-8b 8xh100 --step-time 5000ms --bs 64 --seq 4k", "90 % interval"),
    "dollars an hour": ("price llama3-70b 512xh100 15T tokens $2/hr", "15 T tokens:"),
    "an algorithm of NCCL": ("collective allreduce 1GB 8xh100 --algorithm tree", "tree simple as asked"),
    "a memory of a GPU": (
        "search llama3-8b 8xh100 --gpu-memory 40GB --no-check", "device.memory 80 GiB (85.9 GB) -> 37.25 GiB (40 GB)"),
    "Megatron's recomputation": (
        "estimate llama3-8b 8xh100 --recompute-granularity full --recompute_method=uniform --recompute-num-layers 1",
        "recompute full"),
    "Trainer's sharding": ("estimate llama3-8b 8xh100 --fsdp 'full_shard auto_wrap'", "ZeRO 3"),
    "Trainer's switches, one of them off": ("estimate llama3-8b 8xh100 --bf16 False --fp16 True", "1f1b, fp16"),
    "Trainer's learning rate": ("estimate llama3-8b 8xh100 --learning_rate 2e-5 --lora-alpha 16", "on 8 GPUs of h100-sxm"),
    "each card with its option": ("compare llama3-8b --device h100 --device a100", "h100 is 2."),
    "each framework with its option": ("compare llama3-8b 8xh100 --framework fsdp --framework megatron", "times as fast as"),
    "an algorithm as a method": ("post-train qwen2.5-7b 16xh100 --method dpo", "A step of dpo"),
    "torchtitan's checkpoints": (
        "estimate llama3-8b 8xh100 --fsdp --activation-checkpoint-mode selective", "recompute operators"),
    "Megatron's selective recomputation": ("estimate llama3-8b 8xh100 --recompute-activations", "recompute selective"),
    "FSDP2 and its shards": ("estimate llama3-8b 8xh100 --fsdp2 --full-shard --zero 3 --use_liger_kernel True", "ZeRO 3"),
    "tokens of a GPU": ("diagnose llama3-8b 8xh100 --tokens-per-gpu 7000", "90 % interval"),
    "DeepSpeed's micro-batch, accelerate's precision": (
        "estimate llama3-8b 8xh100 --train_micro_batch_size_per_gpu 2 --mixed_precision fp16", "micro-batch 2, ZeRO 1"),
    "a GPU's memory in short": ("estimate llama3-8b --gpu a100-80g --gpus 8 --tp 2", "on 8 GPUs of a100-sxm-80gb"),
    "a deeper model": ("estimate llama3-8b 8xh100 --num-layers 64", "model.layers 32 -> 64"),
    "a micro-batch of three": ("estimate llama3-8b 8xh100 --mbs 3", "264 sequences of 4,096 tokens a step"),
    "the longest of two": ("capacity llama3-8b h100 --lora --find sequence --mbs 2", "Longest sequence that fits: 1"),
    "cards that are GPUs": ("estimate llama3-8b using 8 h100 gpus", "on 8 GPUs of h100-sxm"),
    "what is to be large": ("capacity llama3-8b h100 --qlora --max batch-size", "Largest batch that fits"),
    "what is to be long": ("capacity llama3-8b 4090 --qlora --what seq_len", "Longest sequence that fits"),
    "instances and their count": ("train llama3-8b --instance p5.48xlarge --count 4 --tokens 1T", "on 32 GPUs of aws-p5"),
    "instances as SageMaker counts them": (
        "train llama3-8b --instance_type p5.48xlarge --instance_count 4 --tokens 1T", "on 32 GPUs of aws-p5"),
    "a count of a card": ("estimate llama3-8b --gpu h100 --count 4", "on 4 GPUs of h100-sxm"),
    "machines of accelerate": ("estimate llama3-8b --num_machines 2 --num_processes 16 --gpu h100", "on 16 GPUs of h100-sxm"),
    "chunks as NeMo says": (
        "estimate llama3-8b 8xh100 --pp 4 --virtual_pipeline_model_parallel_size 2", "PP4 VP2 DP2"),
    "chunks as Megatron says": (
        "estimate llama3-8b 8xh100 --pp 4 --num-virtual-stages-per-pipeline-rank 2", "PP4 VP2 DP2"),
    "Ulysses as a switch": (
        "estimate llama3-8b 8xh100 --cp 8 --ulysses", "Not by default: context_communication all-to-all"),
    "prompts and answers to each": ("post-train qwen2.5-7b 16xh100 --prompts 32 --group_size 8 --seq 1k", "A step of grpo"),
    "offloading or not": ("compare llama3-8b 8xh100 --zero 3 --offload none cpu", "optimizer offload 0.0"),
    "widths of accelerate": ("compare llama3-8b 8xh100 --mixed-precision bf16,fp8", "dtype fp8 is 1."),
    "by cost, of unlike cards": ("compare llama3-8b --gpu h100 b200 --metric cost", "b200 is 2."),
    "samples of a network": ("network resnet50 --gpu a100 --batch 256", "minibatch of 256"),
    "as nccl-tests are told": ("collective alltoall -b 256M -n 16 --gpu h200", "all-to-all of 256.0 MiB over 16 GPUs"),
    "a formula in two words": ("formula young interval", "systems.reliability.young_interval: Young's interval"),
    "words of a formula": ("formula pipeline bubble", "pipeline.schedules.bubble"),
    "a site's overhead": ("train llama3-8b 8xh100 --tokens 1B --pue 1.2", "kWh"),
    "fewer heads": ("estimate llama3-8b 8xh100 --num-attention-heads 16", "model.heads 32 -> 16"),
    "a file's format behind the model": ("write llama3-8b 8xh100 --format torchtitan", "[parallelism]"),
    "a file of some software": ("write llama3-8b 8xh100 --framework megatron", "pretrain_gpt.py"),
    "epochs as Transformers say": (
        "train llama3-8b 8xh100 --dataset-size 50000 --num_train_epochs 3 --seq 2048 --lora", "307.2 M tokens: 9,375 steps"),
    "samples as Megatron says": ("train llama3-8b 8xh100 --train-samples 2048 --tp 8", "8.389 M tokens: 8 steps"),
    "epochs of a step, which has none": ("estimate llama3-8b 8xh100 --tp 8 --num_train_epochs 3", "TP8"),
    "epochs of data beside updates of samples": ("post-train qwen2.5-7b 16xh100 --num_train_epochs 3", "A step of grpo"),
    "devices of Lightning": ("estimate llama3-8b --devices 8 --num_nodes 2 --accelerator h100", "on 16 GPUs of h100-sxm"),
    "a strategy of Lightning": ("estimate llama3-8b 8xh100 --strategy deepspeed_stage_3_offload", "optimizer_offload 1"),
    "a width of Lightning": ("estimate llama3-8b 8xh100 --precision 16-mixed", "1f1b, fp16"),
    "some of the activations": ("estimate llama3-8b 8xh100 --activation-checkpointing selective", "recompute selective"),
    "no dropout before adapters": (
        "memory llama3.1-8b 4090 --qlora --lora_dropout 0", "adapter_dropout off"),
    "a dropout before adapters": ("memory llama3.1-8b 4090 --qlora --lora_dropout 0.05", "Not by default: adapter qlora one GPU"),
    "accelerators of SkyPilot": ("estimate llama3-8b --accelerators H100:8 --tp 2", "8 GPUs of h100-sxm"),
    "what LLaMA-Factory trains": ("memory llama3-8b --gpu-type 'Tesla T4' --finetuning_type lora", "1 GPU of t4, hf-trainer"),
    "cards as their numbers": ("compare llama3-8b --gpus 8xh100 8xa100", "h100 is 2."),
    "a price in dollars": ("train llama3-8b 8xh100 --tokens 1B --usd-per-gpu-hour 2.1", "price"),
    "what it may cost": ("design llama3-8b --device h100 --gpus 64 --tokens 1T --max-cost 1000000", "1 of 1 cluster"),
    "tokens in a second, in short": (
        "diagnose llama3-8b 8xh100 --tokens-per-sec 60k --bs 64 --seq 4096", "90 % interval"),
    "fewer experts of a token": ("estimate mixtral-8x7b 8xh100 --ep 8 --moe-router-topk 1", "experts_per_token 2 -> 1"),
    "pairs of a longest length": (
        "post-train llama3-8b 8xh100 --dpo --bs 64 --max-length 2048", "512 tokens on average, 2,048 the longest; packed"),
    "an instance of SageMaker": ("estimate llama3-8b --instance ml.p5.48xlarge", "8 GPUs of aws-p5"),
    "a model of Ollama's": ("estimate llama3.1:8b 8xh100", "llama3.1-8b on 8 GPUs"),
    "a file of a plan that fits": ("write megatron llama3-70b 64xh100", "--pipeline-model-parallel-size"),
}  # fmt: skip
"""Question, command, and what the answer says."""
NEAR = {
    "a maker's machine of several": ("search llama3-8b gcp a3 4 nodes", "gcp-a3-high"),
    "a card that isn't": ("estimate llama3-8b 8xh1000", "did you mean h800, h100-sxm"),
    "a card's generation": ("estimate llama3-8b --device hopper", "did you mean h100-sxm"),
    "a model spelled wrong": ("estimate lama3-8b 8xh100", "did you mean llama3-8b"),
    "no hardware": ("estimate llama3-8b", "such as --device h100"),
    "two numbers of cards": ("estimate llama3-8b 8xh100 --gpus 16", "give one of them"),
    "no cards": ("estimate llama3-8b 0xh100", "gpus=0"),
    "an accumulation of a search": ("search llama3-8b 8xh100 --gradient-accumulation-steps 4", "did you mean --global-batch?"),
    "an accumulation beside a batch": ("estimate llama3-8b 8xh100 --ga 4 --bs 64", "give one of them"),
    "an accumulation of nothing": ("estimate llama3-8b 8xh100 --ga 0", "gradient_accumulation=0: expected a whole number from 1"),
    "a degree without hardware": ("memory llama3-8b --tp 8", "such as --device h100"),
    "a memory for a card": ("cards 70b --qlora 24GB", "no device named '24GB' in the catalogue; did you mean rtx-3090"),
    "a machine that isn't": ("estimate llama3-8b macbook", "no device named 'macbook'"),
    "a card of another size": ("estimate gemma2-9b tpuv5p-8", "did you mean tpu-v5p"),
    "a family and a size that don't meet": ("memory qwen 7b lora rtx 3090", "did you mean qwen2.5-7b"),
    "a family of two": ("estimate llama4 8xh100", "llama4-scout, llama4-maverick"),
    "nothing sought": ("capacity llama3-8b --device 4090", "one of sequence, batch, micro-batch, layers, gpus"),
    "how many": ("how many gpus for llama3-70b", "--days"),
    "seconds of an unsaid batch": ("diagnose llama3-8b 8xh100 --step-time 5", "--global-batch"),
    "only cards": ("compare h100 b200", "it is a device"),
    "another operation": ("collective all-redoce 1GB 8xh100", "all-reduce"),
    "two models": ("estimate llama3-8b llama3-70b 8xh100", "llama3-70b"),
    "a model of another family": ("estimate vit-large --device a100", "a config.json or a TOML file is taken"),
    "a network for a model": ("search resnet-50 8xv100", "compare --systems resnet-50"),
    "a model for a network": ("network bert-large --device a100", "costmodel estimate bert-large"),
    "several where one goes": ("search llama3-8b 8xh100 --framework fsdp2,megatron-core", "`costmodel compare` takes several"),
    "a function of the library": ("gpus-in-time llama3-8b", "costmodel.gpus_in_time"),
    "a letter behind a budget": ("design llama3-70b --budget 1M --tokens 1T", "did you mean 1e+06?"),
    "a share in per cent": ("simulate llama3-8b 8xh100 --jitter 5%", "did you mean 0.05?"),
    "a dash for the screen": ("memory llama3-8b 8xh100 --csv -", "expected the name of a file"),
    "the longest of a search": ("search llama3-8b 8xh100 --max-seq-len", "`costmodel capacity` has --find sequence"),
    "a run on nobody says how many": (
        "how much does it cost to train llama3-70b on 2T tokens with h100 at $2.5", "or `costmodel gpus` to find how many"),
    "a card for a cluster": ("sweep llama3-8b --gpu h100 --gpus 8,16 -o plans.parquet", "did you mean --cluster?"),
    "the largest batch as a value": ("memory llama3-8b 8xh100 --batch-size max", "`costmodel capacity MODEL ... --find batch`"),
    "preferences as a method": ("memory llama3-8b 8xa100 --method dpo", "`costmodel post-train --algorithm dpo`"),
    "an algorithm as a switch": ("estimate qwen2.5-7b 8xh100 --grpo", "`costmodel post-train` has --algorithm grpo"),
    "a batch of tokens that are no whole sequences": (
        "estimate llama3-8b 8xh100 --tokens-per-batch 4000000", "of sequences of 4,096 tokens: say --global-batch 976"),
    "compiled code": ("estimate llama3-8b 8xh100 --compile", "did you mean --set framework.compiled=yes?"),
    "a model of another size": ("memory gpt3-1.3b 4090", "no model named 'gpt3-1.3b'"),
    "a model in four bits": ("memory unsloth/llama-3-8b-bnb-4bit t4", "did you mean llama3-8b"),
    "a cloud": ("estimate llama3-8b --cloud gcp --machine a3-highgpu-8g", "did you mean --cluster?"),
    "shards as a degree": ("estimate llama3-8b 16xh100 --dp-shard 8", "did you mean --data-parallel?"),
    "a time limit of a plan": ("plan llama3-8b 8xh100 --tokens 1T --days 14", "`costmodel gpus` have it"),
    "a time without a batch": (
        "diagnose llama3-8b 8xh100 --step-time 3.2s --tp 2", "--global-batch, --seq-len, as seconds are of so much"),
    "what matters to no step": ("search llama3-8b 8xh100 --lora-alpha", "it changes neither time nor memory"),
    "an algorithm of another command": ("estimate llama3-8b 8xh100 --rl grpo", "`costmodel post-train` has --algorithm"),
    "a file without its name": ("search llama3-8b 8xh100 --csv", "--csv needs a value: --csv FILE"),
    "JSON as a format": ("search llama3-8b 8xh100 --format json", "did you mean --json?"),
    "a peak": ("estimate llama3-8b 8xh100 --peak-tflops 900", "--set device.dense_peak.bf16=900e12"),
    "TFLOP/s of a run": ("diagnose llama3-8b 8xh100 --tflops 400", "did you mean --mfu?"),
    "a formula that isn't": ("formula mfu", "(`costmodel formula` lists them)"),
    "half a thousand tokens": ("estimate llama3-8b 8xh100 --seq-len 4.5k", "did you mean 4608 or 4500?"),
    "a batch that no rank divides": ("estimate llama3-8b 8xh100 --gbs 100", "not a multiple of data_parallel=8"),
    "a stage beyond three": ("estimate llama3-8b 8xh100 --zero 4", "from 0 to 3"),
    "another family": ("estimate t5-large 8xh100", "a config.json or a TOML file is taken"),
    "no classic system": ("compare --systems alexnet 2xdgx-1v --system gossip", "one of dedloc"),
    "a wrong option of the memory": ("memory llama3-8b 8xh100 --by-tensor", "--tensors"),
    "steps and tokens": ("train llama3-8b 8xh100 --tokens 1T --steps 100", "give one of them"),
    "a number where it is looked for": ("gpus llama3-8b 30 days 1T tokens 8xh100", "say --device h100 without a number"),
    "an option of another command": ("cards llama3-8b --budget 2000", "`costmodel design`"),
    "a launch file that isn't there": ("estimate no_such_run.sh 8xh100", "no_such_run.sh: No such file"),
    "several lengths": ("search llama3-8b 8xh100 --seq-len 2048,4096,8192", "`costmodel compare` takes several"),
    "a batch with its thousands apart": ("estimate llama3-8b 8xh100 --gbs 1,024", "did you mean 1024?"),
    "a width that it isn't": ("estimate llama3-8b 8xh100 --bf16 false", "expected --dtype beside it"),
    "a block of layers": (
        "estimate llama3-8b 8xh100 --recompute-method block --recompute-num-layers 4", "the share of a stage's layers"),
    "a strategy of shards": ("search llama3-70b 64xh100 --sharding-strategy HYBRID_SHARD", "with shard_group"),
    "answers to a prompt": ("post-train qwen2.5-7b 8xh100 --num-generations 8", "expected samples of a step"),
    "how often it is saved": ("train llama3-8b 64xh100 --tokens 1T --checkpoint-every 1h", "--checkpoint-interval"),
    "how long it is saved": (
        "train llama3-8b 64xh100 --tokens 1T --tp 2 --checkpoint-interval 1h", "Say --checkpoint-time"),
    "what fails": ("train llama3-8b 64xh100 --tokens 1T --mtbf 3h", "--mtbf-hours"),
    "no time": ("train llama3-8b 64xh100 --tokens 1T --restart soon", "10min"),
    "a slow rank": ("simulate llama3-8b 8xh100 --straggler 0.8", "did you mean --slow?"),
    "a rank without its factor": ("simulate llama3-8b 8xh100 --slow 3", "such as 3=1.2"),
    "no tokens": ("energy llama3-8b 8xh100", "such as --tokens 1T"), "inference": ("inference llama3-8b h100", "is training"),
    "a cache of keys": ("kv cache llama3-8b", "is training"), "a roofline": ("roofline llama3-8b h100", "did you mean estimate?"),
    "vs": ("vs h100 b200", "did you mean compare?"),
    "why": ("why train.sh", "did you mean diagnose?"), "debug": ("debug train.sh", "did you mean diagnose?"),
    "one value": ("compare llama3-8b --device h100", "give an option several values"),
    "a network": ("compare resnet-50 --cluster dgx-1v", "compare --systems resnet-50"),
    "a price of nothing": ("compare llama3-8b --device h100,a100 --price b200=2", "nothing that is compared is called so"),
    "a plan's unknown field": ("compare llama3-8b --cluster dgx-h100 --plan tensor=8 --plan tp=2", "a plan has no 'tensor'"),
    "a plan's bad value": ("compare llama3-8b --cluster dgx-h100 --plan tp=x --plan tp=2", "is not a whole number"),
    "no plan": ("compare llama3-8b --cluster dgx-h100 --plan tp --plan tp=2", "expected NAME=X"),
    "a utilisation of 0": ("diagnose llama3-8b --cluster dgx-h100 --mfu 0", "is no utilisation"),
    "a time of words": ("diagnose llama3-8b --cluster dgx-h100 --step-time fast", "is no time of a step"),
    "nothing measured": ("diagnose llama3-8b --cluster dgx-h100", "--log"),
    "no days": ("gpus llama3-8b --tokens 1T", "--days"),
    "days of less than nothing": ("gpus llama3-8b --tokens 1T --days -1", "days"),
    "an unknown card": ("cards llama3-8b --device rtx-4091", "did you mean rtx-4090"),
    "an unknown adapter": ("cards llama3-8b --adapter loar", "lora"),
    "a price of another card": ("cards llama3-8b --device h100 --price 4090=1", "price"),
    "a price of a cluster that isn't tried": ("gpus llama3-8b --tokens 1B --days 1 --device h100 --price b200=1", "--price b200"),
    "prices of one name": ("cards llama3-8b --price h100=1,h100=2", "NAME=PRICE"),
    "a slice of TPUs": ("estimate gemma2-27b v5p-64", "did you mean tpu-v5p?"),
    "a sequence shared by eight": ("estimate llama3-8b 8xh100 --sp 8", "expected context_parallel"),
    "a degree of Ulysses": ("estimate llama3-8b 8xh100 --ulysses_parallel_size 8", "with ulysses beside it"),
    "answers alone": ("post-train qwen2.5-7b 16xh100 --group-size 8", "prompts times generations of each"),
    "an answer's length": ("post-train qwen2.5-7b 16xh100 --response-length 4096", "of the longest sample with its prompt"),
    "grams of carbon": ("train llama3-8b 8xh100 --tokens 1T --carbon-intensity 400", "did you mean --carbon?"),
    "pixels": ("multimodal llava.json 8xh100 --resolution 1024", "did you mean --image-tokens?"),
    "several cards of unsure names": ("compare llama3-8b --gpus 8xA100-PCIe 8xA100-SXM", "did you mean a100-"),
    "a file of no format": ("write llama3-70b 64xh100", "expected FORMAT in front of the model, one of megatron"),
    "a node's price": ("train llama3-8b 8xh100 --tokens 1B --price-per-node-hour 98", "a node's over its GPUs"),
    "hours of GPUs": ("train llama3-8b 8xh100 --gpu-hours 1000", "expected tokens"),
    "epochs of a plan's run": ("estimate llama3-8b 8xh100 --tokens 1B --num_train_epochs 3", "have --epochs"),
    "a model by its sizes": ("estimate --hidden-size 4096 --heads 32 --vocab 32000 --gpus 8xh100", "`costmodel new model FILE`"),
    "several of a card": ("network resnet50 8xa100", "this is about one a100: say --device a100 without a number"),
}  # fmt: skip
MODEL = load_model("llama3-8b")


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def told(*argv: str) -> tuple[int, str, str]:
        code = main(list(argv))
        said = capsys.readouterr()
        return code, said.out, said.err

    return told


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_as_it_is_typed_first(question, run):
    command, sentence = QUESTIONS[question]
    code, out, err = run(*shlex.split(command))
    assert code in (0, 1) and "error" not in err
    assert sentence in " ".join(out.split())
    assert "Traceback" not in err
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("near", NEAR)
def test_what_is_nearly_right_is_refused_in_a_line_that_says_what_to_type(near, run, tmp_path):
    command, hint = NEAR[near]
    refused(run, tmp_path, command.split(), hint)


@pytest.mark.parametrize("kind", ["models", "devices", "clusters"])
def test_a_listing_has_a_line_of_each_entry_at_80_columns(kind, run):
    listed = [entry["name"] for entry in json.loads(run(kind, "--json")[1])]
    lines = run(kind)[1].splitlines()
    first = [line.partition(" ")[0] for line in lines]
    assert [name for name in first if name in listed] == listed
    assert len(lines) <= len(listed) + 8 and max(map(len, lines)) <= 80


@pytest.mark.parametrize("command", [
    "cards llama3-8b --adapter lora --device h100,4090 --tokens 1B --price 2",
    "compare llama3-8b --device h100,b200 --price 2 --tokens 1B", "gpus llama3-8b --days 7 --tokens 100B --device h100",
])  # fmt: skip
def test_tables_are_csv_and_json_too(command, run, tmp_path):
    file = tmp_path / "table.csv"
    code, out, _ = run(*command.split(), "--json", "-o", str(file))
    document = json.loads(out)
    assert code == 0 and document["answer"]
    rows = next(value for value in document.values() if isinstance(value, list))
    assert len(file.read_text().splitlines()) == len(rows) + 1


def test_plans_of_one_cluster_are_compared_as_surely_as_a_search_ranks_them():
    found = search(MODEL, load_cluster("dgx-h100", gpus=8), global_batch=64, seq_len=4096, top=8)
    first = found.ranked[0]
    for one, standing in zip(found.ranked[1:], standings(found.ranked).plans[1:], strict=True):
        made = compare({"first": first, "other": one})
        assert made.choices[1].against.faster == pytest.approx(standing.probability_beats_first, abs=0.03)


def test_a_comparison_read_the_other_way_says_the_same():
    asked = {"global_batch": 64, "seq_len": 4096, "top": 1}
    one, other = (search(MODEL, machine(name, 8), **asked).best for name in ("h100", "b200"))
    there, back = compare({"a": one, "b": other}).choices[1].against, compare({"b": other, "a": one}).choices[1].against
    assert there.faster + back.faster == pytest.approx(1.0)
    assert there.ratio * back.ratio == pytest.approx(1.0)
    assert there.ratio_low * back.ratio_high == pytest.approx(1.0)


def test_what_two_estimates_have_in_common_makes_their_ratio_surer():
    asked = {"global_batch": 64, "seq_len": 4096, "top": 1}
    one = search(MODEL, machine("h100", 8), **asked).best
    other = search(MODEL, machine("h100", 8), framework="fsdp2", **asked).best
    apart = (one.time_error.half**2 + other.time_error.half**2) ** 0.5
    assert 0.0 < difference_error(one, other).half < 0.7 * apart


def test_a_change_of_a_clusters_own_network_is_as_sure_as_another_plan_on_it():
    cluster, plan = load_cluster("dgx-h100", gpus=16), Plan(global_batch=64, seq_len=4096, tensor_parallel=2)
    slower = replace(cluster, {"rail.bandwidth": "0.5x"})
    elsewhere = load_cluster("aws-p5", gpus=16)
    one, changed, moved = (estimate(MODEL, where, plan) for where in (cluster, slower, elsewhere))
    assert difference_error(one, changed).half < difference_error(one, moved).half
    assert changed.step_time > one.step_time


def test_parts_say_why_and_add_up_for_as_many_tokens():
    cluster = load_cluster("dgx-h100", gpus=8)
    one = estimate(MODEL, cluster, Plan(global_batch=64, seq_len=4096, tensor_parallel=2))
    other = estimate(MODEL, cluster, Plan(global_batch=32, seq_len=4096, tensor_parallel=4))
    made = compare({"one": one, "other": other})
    added = sum(part.added for part in made.why(made.choices[1]))
    assert one.step_time + added == pytest.approx(2.0 * other.step_time)
    assert made.choices[1].against.ratio == pytest.approx(2.0 * other.step_time / one.step_time)


def test_money_is_hours_times_price():
    step = estimate(MODEL, load_cluster("dgx-h100", gpus=8), Plan(global_batch=64, seq_len=4096, tensor_parallel=2))
    made = compare({"one": step, "same": step}, price={"one": 2.0, "same": 3.0}, tokens=1e9)
    hours = 1e9 / step.tokens_per_second / 3600.0 * 8
    assert made.choices[0].price_per_billion_tokens == pytest.approx(2.0 * hours)
    assert made.choices[1].against.cost_ratio == pytest.approx(1.5)
    assert made.choices[1].against.cheaper == 0.0


@pytest.mark.parametrize("device", ["h100-sxm", "rtx-4090"])
def test_a_card_holds_as_much_as_the_capacity_of_it_says(device):
    row = cards(MODEL, [device], adapter="qlora").rows[0]
    asked = {"framework": row.estimate.framework, "adapter": "qlora"}
    assert row.longest == longest_sequence(MODEL, machine(device, 1), global_batch=1, **asked).value
    largest = largest_micro_batch(MODEL, machine(device, 1), global_batch=row.micro_batch, seq_len=2048, **asked)
    assert largest.value == row.micro_batch
    more = largest_micro_batch(MODEL, machine(device, 1), global_batch=row.micro_batch + 1, seq_len=2048, **asked)
    assert more.value < row.micro_batch + 1


def test_the_card_table_shows_the_plan_that_a_search_finds():
    row = cards(MODEL, ["h100-sxm"], adapter="lora", framework="torchtune").rows[0]
    found = search(MODEL, machine("h100-sxm", 1), global_batch=16, seq_len=2048, framework="torchtune", adapter=["lora"], top=1)
    assert row.estimate.step_time == pytest.approx(found.best.step_time, rel=0.01)


@pytest.mark.parametrize("kind", ["h100", "dgx-h100"])  # and beyond the 1,024 GPUs that the catalogue's cluster has
def test_gpus_that_end_in_time_have_six_flop_a_parameter_and_token_to_do(kind):
    made = gpus_in_time("llama3-70b", kind, tokens="15T", days=30)
    size = made.rows[0].expected
    needed = 6.0 * load_model("llama3-70b").parameters * 15e12
    had = size.gpus * 989.4e12 * size.run.time  # dense bf16 of an H100 SXM by NVIDIA's datasheet
    assert made.global_batch == 4096 and 0.25 < needed / had < 0.55


def test_no_smaller_size_that_is_tried_ends_in_time():
    made = gpus_in_time(MODEL, [load_cluster("dgx-h100")], tokens=1e11, days=7.0)
    row = made.rows[0]
    assert row.expected.run.days <= 7.0 and row.sure.in_time >= 0.9
    nodes = [count for count in (1, 2, 3, 4, 6, 8, 12) if 8 * count < row.expected.gpus]
    smaller = search(MODEL, load_cluster("dgx-h100", gpus=8 * nodes[-1]), global_batch=1024, seq_len=4096, top=1)
    assert 1e11 / smaller.best.tokens_per_second / 86400.0 > 7.0


@pytest.mark.parametrize("times", [0.5, 0.9, 1.2, 4.0])
def test_a_gap_is_dealt_to_the_parts_whole_and_leaves_none_below_nothing(times):
    step = estimate(MODEL, load_cluster("dgx-h100", gpus=8), Plan(global_batch=64, seq_len=4096, tensor_parallel=2))
    made = diagnose(step, step_time=times * step.step_time)
    assert sum(one.gap for one in made.parts) == pytest.approx(made.gap)
    assert all(one.estimated + one.gap >= -1e-9 for one in made.parts)
    low, high = step.time_interval
    assert made.inside == (low <= made.measured <= high)


def test_what_really_ran_is_found_among_the_explanations():
    cluster, plan = load_cluster("dgx-h100", gpus=8), Plan(global_batch=64, seq_len=4096, tensor_parallel=2)
    told = estimate(MODEL, cluster, plan)
    ran = estimate(MODEL, cluster, Plan(global_batch=64, seq_len=4096, tensor_parallel=2, recompute="full"))
    made = diagnose(told, step_time=ran.step_time)
    assert made.explanations[0].fields == {"recompute": "full"}
    assert made.explanations[0].explains == pytest.approx(1.0)


def test_gains_are_of_the_measured_step():
    step = estimate(MODEL, load_cluster("dgx-h100", gpus=8), Plan(global_batch=64, seq_len=4096, tensor_parallel=4))
    made = diagnose(step, step_time=1.5 * step.step_time)
    best = made.advice[0]
    assert best.saves / made.measured == pytest.approx(1.0 - best.estimate.step_time / step.step_time)


def test_results_are_tables_and_figures():
    step = estimate(MODEL, load_cluster("dgx-h100", gpus=8), Plan(global_batch=64, seq_len=4096, tensor_parallel=2))
    other = estimate(MODEL, load_cluster("dgx-h100", gpus=8), Plan(global_batch=64, seq_len=4096, tensor_parallel=4))
    made, table = compare({"two": step, "four": other}), cards(MODEL, ["h100-sxm", "rtx-4090"])
    rows = sum(made.plot().data[0].y[:-1])
    unit = 1.0 if other.step_time >= 1.0 else 1e-3
    assert rows == pytest.approx(other.step_time / unit)
    assert {bar.name for bar in table.plot().data} == {one.trains for one in table.fitting}
    for result in (made, table):
        assert "<table>" in result._repr_html_() and result.to_csv().count("\n") == len(result) + 1


@pytest.mark.slow
@pytest.mark.parametrize("device", ["v100-sxm-16gb", "a100-sxm-80gb", "b200-sxm", "rtx-4090", "mi300x"])
def test_a_card_in_a_table_of_many_is_as_it_is_alone(device):
    among = cards(MODEL, ["h100-sxm", "rtx-3090", device], adapter=["lora", "qlora"]).rows
    alone = cards(MODEL, [device], adapter=["lora", "qlora"]).rows
    assert {one.to_dict()["device"] for one in alone} == {device}
    assert [one.to_dict() for one in among if one.device == device] == [one.to_dict() for one in alone]
    for one in alone:
        if one.estimate is not None:
            found = estimate(MODEL, one.estimate.cluster, one.estimate.plan, one.estimate.framework)
            assert found.step_time == pytest.approx(one.estimate.step_time, rel=1e-12)


SHAPE = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 2048,
         "vocab_size": 32000, "max_position_embeddings": 4096}  # fmt: skip


@pytest.mark.parametrize(("command", "sentence"), [
    ("estimate config.json 8xh100", "on 8 GPUs of h100-sxm"), ("estimate shaped 8xh100", "shaped on 8 GPUs of h100-sxm"),
    ("estimate llama3-8b 8xh100 --tp 2", "llama3-8b on 8 GPUs of h100-sxm"), ("explain run.sh 8xh100", "on 8 GPUs of h100-sxm"),
    ("simulate run.sh 8xh100", "8 GPUs of h100-sxm"),
])  # fmt: skip
def test_hardware_stands_beside_files_as_beside_names(command, sentence, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("shaped", "llama3-8b"):
        (tmp_path / folder).mkdir()
    for file in ("config.json", "shaped/config.json"):
        (tmp_path / file).write_text(json.dumps(SHAPE))
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 8 train.py --model_name_or_path gpt2 --bf16 True\n")
    code, out, err = run(*command.split())
    assert code in (0, 1) and "error" not in err and sentence in " ".join(out.split())


@pytest.mark.parametrize(("command", "hint"), [
    ("search folder 8xh100", "folder/config.json"), ("search empty.json 8xh100", "not a JSON file"),
    ("explain folder --device h100", "is a folder"), ("explain empty.json", "not a JSON file"),
])  # fmt: skip
def test_a_file_that_can_not_be_read_is_what_a_refusal_names(command, hint, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.json").touch()
    code, out, err = run(*command.split())
    assert code == 2 and out == "" and hint in err and len(err.splitlines()) == 1


def test_a_plan_that_is_chosen_for_a_diagnosis_is_the_one_that_a_search_puts_first(run):
    asked = ["llama3-8b", "--gpu", "h100", "--gpus", "8", "--global-batch", "128", "--seq-len", "8192"]
    _, found, _ = run("search", *asked, "--json", "--top", "1")
    _, why, _ = run("diagnose", *asked, "--step-time", "20", "--json")
    assert json.loads(why)["step_time_s"] == json.loads(found)["plans"][0]["step_time_s"]


def test_what_the_command_gives_beside_a_file_is_not_what_the_file_states(run, tmp_path):
    file = tmp_path / "ds.json"
    file.write_text('{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 3}}')
    _, said, _ = run("explain", str(file), "--model", "llama3-8b", "--device", "a100-80gb", "--gpus", "8", "--seq-len", "4096")
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert {"seq_len 4,096 given here", "zero_stage 3 stated", "Model: llama3-8b (given here)"} <= set(lines)


def test_runs_that_say_where_they_were_made_need_no_cluster_beside_them(run, tmp_path):
    told, bare = tmp_path / "told.csv", tmp_path / "bare.csv"
    told.write_text("model,device,gpus,gbs,seq_len,tp,step_time_s\nllama3-8b,h100,8,64,4096,2,5\nllama3-8b,h100,8,64,4096,4,6\n")
    bare.write_text("model,gbs,seq_len,tp,step_time_s\nllama3-8b,64,4096,2,5\nllama3-8b,64,4096,4,6\n")
    _, alone, _ = run("calibrate", str(told), "--json")
    _, beside, _ = run("calibrate", str(bare), "--device", "h100", "--gpus", "8", "--json")
    one, other = json.loads(alone), json.loads(beside)
    assert one["own_factor"] == pytest.approx(other["own_factor"], rel=1e-9)
    elsewhere = tmp_path / "two.csv"
    elsewhere.write_text("model,device,gpus,gbs,seq_len,step_time_s\nllama3-8b,h100,8,64,4096,5\nllama3-8b,b200,8,64,4096,3\n")
    refused(run, tmp_path, ["calibrate", str(elsewhere)], "each cluster is calibrated by itself")
