"""Bad input at the front door: each ends in one clear line, and the command line in exit code 2."""

from __future__ import annotations

import json

import pytest

import costmodel
from costmodel.catalogue.changes import replace
from costmodel.catalogue.machines import machine
from costmodel.description.cluster import Level
from costmodel.text.errors import CostModelError
from costmodel.text.units import quantity
from tests.commanding import refused

MODEL = "llama3-8b"
ON = ["--cluster", "dgx-h100"]
WORK = ["--global-batch", "64", "--seq-len", "4096"]
ASKED = ["estimate", MODEL, *ON, *WORK]
SOUGHT = ["search", MODEL, *ON, *WORK]
CARD = ["estimate", MODEL, "--device", "rtx-4090", *WORK]

# What is asked about

WHERE = {
    "no command": ([], "COMMAND"),
    "an unknown command": (["sarch"], "search"),
    "no model": (["estimate", *ON, *WORK], "MODEL"),
    "an unknown model": (["estimate", "lama3-8b", *ON, *WORK], "did you mean llama3-8b"),
    "an empty model": (["estimate", "", *ON, *WORK], "name=''"),
    "a model of 10,000 letters": (["estimate", "l" * 10_000, *ON, *WORK], "500 characters"),
    "a model with a line feed": (["estimate", "llama\n3", *ON, *WORK], "printable and in one line"),
    "a device for a model": (["estimate", "h100-sxm", *ON, *WORK], "no model"),
    "no hardware": (["estimate", MODEL, *WORK], "--cluster"),
    "two kinds of hardware": ([*ASKED, "--device", "h100-sxm"], "not allowed with"),
    "an unknown cluster": (["estimate", MODEL, "--cluster", "dgx-h1000", *WORK], "did you mean"),
    "an empty cluster": (["estimate", MODEL, "--cluster", "", *WORK], "empty name"),
    "a cluster between commas": (["search", MODEL, "--cluster", "dgx-h100,,dgx-a100", *WORK], "empty name"),
    "one of several unknown": (["search", MODEL, "--cluster", "dgx-h100,dgx-x", *WORK], "no cluster named 'dgx-x'"),
    "several clusters for one ledger": (["ledger", MODEL, "--cluster", "dgx-h100,dgx-a100", *WORK], "one cluster at a time"),
    "several clusters to stretch": (
        ["capacity", MODEL, "--cluster", "dgx-h100,dgx-a100", *WORK, "--find", "layers"], "one cluster at a time",
    ),
    "an unknown device": (["estimate", MODEL, "--device", "rtx-4091", *WORK], "did you mean rtx-4090"),
    "an empty device": (["estimate", MODEL, "--device", "", *WORK], "name=''"),
    "an empty framework": ([*ASKED, "--framework", ""], "framework"),
    "an unknown option": ([*ASKED, "--tensor-paralel", "2"], "did you mean --tensor-parallel"),
    "half an option": ([*ASKED, "--tensor", "2"], "did you mean"),
    "an option without its value": ([*ASKED, "--gpus"], "--gpus"),
}  # fmt: skip

# How much of it

HOW_MUCH = {
    "no GPUs": ([*ASKED, "--gpus", "0"], "gpus=0"),
    "fewer than no GPUs": ([*ASKED, "--gpus", "-8"], "gpus"),
    "half a GPU": ([*ASKED, "--gpus", "0.5"], "'0.5' is not a whole number"),
    "GPUs in words": ([*ASKED, "--gpus", "eight"], "'eight' is not a whole number"),
    "endless GPUs": ([*ASKED, "--gpus", "9" * 30], "gpus="),
    "no nodes": ([*ASKED, "--nodes", "0"], "nodes=0"),
    "nodes and GPUs of a cluster": ([*ASKED, "--nodes", "1", "--gpus", "8"], "not allowed with"),
    "no GPUs of a device": ([*CARD, "--gpus", "0"], "gpus=0"),
    "no nodes of a device": ([*CARD, "--nodes", "0"], "nodes=0"),
    "GPUs that don't split into nodes": ([*CARD, "--gpus", "7", "--nodes", "2", "--network", "25Gbit"], "a multiple of nodes=2"),
    "more than a pod of chips without a network": (
        ["estimate", MODEL, "--device", "tpu-v4", "--gpus", "8192", *WORK], "a rate such as 25Gbit/s",
    ),
    "a network of a cluster in words": ([*ASKED, "--network", "fast"], "network='fast'"),
    "a network in words": ([*CARD, "--gpus", "8", "--nodes", "2", "--network", "fast"], "network='fast'"),
    "a network of bytes": ([*CARD, "--gpus", "8", "--nodes", "2", "--network", "25"], "did you mean 25 GB/s"),
    "a network of no rate": ([*CARD, "--gpus", "8", "--nodes", "2", "--network", "0Gbit"], "network='0Gbit'"),
    "a network of storage": ([*CARD, "--gpus", "8", "--nodes", "2", "--network", "25GB"], "did you mean GB/s"),
    "a network of latency": ([*CARD, "--gpus", "8", "--nodes", "2", "--network", "2us"], "a unit such as GB/s"),
    "a network below nothing": ([*CARD, "--gpus", "8", "--nodes", "2", "--network=-1GB/s"], "network='-1GB/s'"),
    "an endless network": ([*CARD, "--gpus", "8", "--nodes", "2", "--network", "1e999GB/s"], "network="),
    "a batch of nothing": (["estimate", MODEL, *ON, "--global-batch", "0", "--seq-len", "4096"], "global_batch=0"),
    "a batch in dozens": (["estimate", MODEL, *ON, "--global-batch", "1dz", "--seq-len", "4096"], "'1dz' is not a whole number"),
    "a length of nothing": (["estimate", MODEL, *ON, "--global-batch", "64", "--seq-len", "0"], "seq_len=0"),
    "a degree of nothing": ([*ASKED, "--tensor-parallel", "0"], "tensor_parallel=0"),
    "a degree that doesn't divide the heads": ([*ASKED, "--tensor-parallel", "3"], "3"),
    "degrees beyond the GPUs": ([*ASKED, "--gpus", "8", "--tensor-parallel", "8", "--pipeline-parallel", "2"], "does not divide"),
    "an unknown dtype": ([*ASKED, "--dtype", "fp7"], "dtype='fp7'"),
    "an unknown recomputation": ([*ASKED, "--recompute", "some"], "recompute='some'"),
    "an unknown schedule": ([*ASKED, "--schedule", "zigzag"], "schedule"),
    "a ZeRO stage of four": ([*ASKED, "--zero-stage", "4"], "zero_stage=4"),
    "no plans to show": ([*SOUGHT, "--top", "0"], "top"),
    "an unknown engine": ([*SOUGHT, "--engine", "steam"], "engine"),
    "an empty value among several": ([*SOUGHT, "--tensor-parallel", "1,,2"], "''"),
}  # fmt: skip

# What was added to a plan, to the output, and what is near in meaning

ADDED = {
    "an option twice": ([*ASKED, "--seq-len", "4096"], "--seq-len: given more than once"),
    "a degree twice": ([*ASKED, "--tensor-parallel", "2", "--tensor-parallel", "4"], "/--tp: given more than once"),
    "a switch twice": ([*ASKED, "--json", "--json"], "--json: given more than once"),
    "a cluster twice": ([*ASKED, "--cluster", "dgx-a100"], "--cluster: given more than once"),
    "a framework twice": ([*SOUGHT, "--framework", "nemo", "--framework", "nemo"], "--framework: given more than once"),
    "a file twice": ([*SOUGHT, "--csv", "a.csv", "--csv", "b.csv"], "--csv: given more than once"),
    "JSON and Markdown": ([*ASKED, "--json", "--markdown"], "not allowed with"),
    "a rank without an adapter": ([*ASKED, "--adapter", "none", "--lora-rank", "16"],
                                  "lora_rank=16: expected None with adapter='none'"),
    "targets without an adapter": ([*ASKED, "--adapter", "none", "--lora-targets", "q-v"], "lora_targets"),
    "a rank of nothing": ([*ASKED, "--adapter", "lora", "--lora-rank", "0"], "lora_rank=0"),
    "half a rank": ([*ASKED, "--adapter", "lora", "--lora-rank", "0.5"], "'0.5' is not a whole number"),
    "an endless rank": ([*ASKED, "--adapter", "lora", "--lora-rank", "9" * 30], "lora_rank="),
    "an unknown target": ([*ASKED, "--adapter", "lora", "--lora-targets", "qq"], "some of attention, mlp, all"),
    "no target": ([*ASKED, "--adapter", "lora", "--lora-targets", ""], "lora_targets"),
    "fused and separate targets": ([*ASKED, "--adapter", "lora", "--lora-targets", "qkv-q"], "either fused or"),
    "an unknown adapter": ([*ASKED, "--adapter", "dora"], "adapter='dora'"),
    "an unknown optimizer": ([*ASKED, "--optimizer", "shampoo"], "optimizer='shampoo'"),
    "longer than learned positions": (
        ["estimate", "gpt2-xl", *ON, "--global-batch", "64", "--seq-len", "2048"], "gpt2-xl has learned positions for no more",
    ),
    "a search longer than learned positions": (
        ["search", "gpt2-xl", *ON, "--global-batch", "64", "--seq-len", "2048"], "--set model.learned_positions=2048",
    ),
    "a price without tokens": ([*ASKED, "--price", "2.5"], "--tokens"),
    "a run of no tokens": ([*ASKED, "--tokens", "0"], "tokens"),
    "tokens in words": ([*ASKED, "--tokens", "many"], "'many' is not a number"),
    "a price below nothing": ([*ASKED, "--tokens", "1e9", "--price", "-1"], "gpu_hour=-1"),
    "an unknown shell": (["completion", "fish"], "bash"),
    "no shell": (["completion"], "SHELL"),
    "a probability of two": ([*ASKED, "--fit-probability", "2"], "fit_probability=2"),
    "a probability in words": ([*ASKED, "--fit-probability", "high"], "'high' is not a number"),
    "a batch with a point": (["estimate", MODEL, *ON, "--global-batch", "64.0", "--seq-len", "4096"], "did you mean 64?"),
    "an optimizer that is misspelled": ([*ASKED, "--optimizer", "adan"], "did you mean adam?"),
    "fp4": ([*ASKED, "--dtype", "fp4"], "did you mean nvfp4?"),
    "a model for a cluster": (["estimate", MODEL, "--cluster", "llama3-8b", *WORK], "it is a model"),
    "estimator": (["estimator", MODEL, *ON, *WORK], "did you mean estimate?"),
    "tune": (["tune", MODEL], "did you mean search?"),
}  # fmt: skip

# What is changed

CHANGED = {
    "nothing to set": ([*ASKED, "--set"], "--set"),
    "no value": ([*ASKED, "--set", "rail.bandwidth"], "expected NAME=VALUE"),
    "an empty value": ([*ASKED, "--set", "rail.bandwidth="], "expected NAME=VALUE"),
    "an empty name": ([*ASKED, "--set", "=2x"], "expected NAME=VALUE"),
    "a field alone": ([*ASKED, "--set", "bandwidth=2x"], "rail."),
    "an unknown level": ([*ASKED, "--set", "spine.bandwidth=2x"], "nvlink., rail."),
    "an unknown field of a level": ([*ASKED, "--set", "rail.bandwith=2x"], "did you mean bandwidth"),
    "an unknown field of a device": ([*ASKED, "--set", "device.memori=80GB"], "did you mean memory"),
    "an unknown field of a model": ([*ASKED, "--set", "model.layer=40"], "did you mean layers"),
    "an unknown field of a framework": (
        [*ASKED, "--set", "framework.compute_gem_efficiency_scale=0.9"], "compute_gemm_efficiency_scale",
    ),
    "a field of a field": ([*ASKED, "--set", "rail.bandwidth.more=2x"], "path"),
    "an unknown dtype of a peak": ([*ASKED, "--set", "device.dense_peak.fp7=1PFLOP/s"], "fp7"),
    "a peak of all dtypes": ([*ASKED, "--set", "device.dense_peak=1PFLOP/s"], "dense_peak.bf16"),
    "a factor of nothing": ([*ASKED, "--set", "rail.bandwidth=0x"], "factor"),
    "a factor below nothing": ([*ASKED, "--set", "rail.bandwidth=-2x"], "factor"),
    "a factor in words": ([*ASKED, "--set", "rail.bandwidth=double"], "'double'"),
    "a factor that isn't one": ([*ASKED, "--set", "rail.bandwidth=1e-+x"], "factor"),
    "a factor of a name": ([*ASKED, "--set", "device.name=2x"], "can't be scaled"),
    "a factor of a yes": ([*ASKED, "--set", "model.gated=2x"], "can't be scaled"),
    "half a layer": ([*ASKED, "--set", "model.layers=32.5"], "layers=32.5"),
    "a third of the layers": ([*ASKED, "--set", "model.layers=0.3x"], "whole number"),
    "layers in words": ([*ASKED, "--set", "model.layers=many"], "a number"),
    "a bandwidth of bytes": ([*ASKED, "--set", "rail.bandwidth=300"], "did you mean 300 GB/s"),
    "a latency of seconds": ([*ASKED, "--set", "rail.latency=3"], "did you mean 3 us"),
    "a latency of 3 s": ([*ASKED, "--set", "rail.latency=3s"], "did you mean 3 us"),
    "a memory of 80 bytes": ([*ASKED, "--set", "device.memory=80"], "did you mean 80 GB"),
    "a memory of a tenth": ([*ASKED, "--set", "device.memory=0.1GB"], "0.25 GB"),
    "a memory as a rate": ([*ASKED, "--set", "device.memory=80GB/s"], "a unit such as GB"),
    "a rate as memory": ([*ASKED, "--set", "rail.bandwidth=25GB"], "did you mean GB/s"),
    "a unit in small letters": ([*ASKED, "--set", "device.memory=80gb"], "did you mean GB"),
    "a bandwidth below nothing": ([*ASKED, "--set", "rail.bandwidth=-5GB/s"], "bandwidth"),
    "a yes that is neither": ([*ASKED, "--set", "model.gated=perhaps"], "yes or no"),
    "a quality that isn't a number": ([*ASKED, "--set", "framework.compute_gemm_efficiency_scale=good"], "a number"),
    "a name that is set twice": ([*ASKED, "--set", "rail.bandwidth=2x", "--set", "rail.bandwidth=3x"], "given twice"),
    "heads that don't divide": ([*ASKED, "--set", "model.kv_heads=7"], "kv_heads=7"),
    "more GPUs a node than under the rail": ([*ASKED, "--set", "nvlink.size=2000"], "size of level"),
}  # fmt: skip


@pytest.mark.parametrize("case", WHERE | HOW_MUCH | ADDED | CHANGED)
def test_a_bad_command_line_ends_in_one_line_and_exit_code_two(run, tmp_path, case):
    refused(run, tmp_path, *(WHERE | HOW_MUCH | ADDED | CHANGED)[case])


# Files

LEVEL = '[[levels]]\nname = "nvlink"\nsize = 8\nlatency = "3 us"\n'
LLAMA = {
    "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 1024,
    "vocab_size": 1000,
}  # fmt: skip


def of(**change):
    return json.dumps(LLAMA | change)


CLUSTER_FILES = {
    "no device": (LEVEL + 'bandwidth = "1 GB/s"\n', "missing device"),
    "no levels": ('device = "h100-sxm"\n', "missing levels"),
    "empty levels": ('device = "h100-sxm"\nlevels = []\n', "at least one"),
    "levels of numbers": ('device = "h100-sxm"\nlevels = [1]\n', "an array of tables"),
    "an unknown device": ('device = "h1000"\n' + LEVEL + 'bandwidth = "1 GB/s"\n', "no device"),
    "no bandwidth": ('device = "h100-sxm"\n' + LEVEL, "missing bandwidth"),
    "a bandwidth of bytes": ('device = "h100-sxm"\n' + LEVEL + "bandwidth = 300\n", "did you mean 300 GB/s"),
    "a bandwidth in words": ('device = "h100-sxm"\n' + LEVEL + 'bandwidth = "fast"\n', "bandwidth='fast'"),
    "a bandwidth of storage": ('device = "h100-sxm"\n' + LEVEL + 'bandwidth = "25 GB"\n', "did you mean GB/s"),
    "a bandwidth twice": (
        'device = "h100-sxm"\n' + LEVEL + 'bandwidth = "1 GB/s"\nbandwidth_per_node = "8 GB/s"\n',
        "bandwidth and bandwidth_per_node",
    ),
    "NICs without their number": ('device = "h100-sxm"\n' + LEVEL + 'bandwidth_per_nic = "400 Gbit/s"\n', "nics_per_node"),
    "no NICs": ('device = "h100-sxm"\n' + LEVEL + 'bandwidth_per_nic = "400 Gbit/s"\nnics_per_node = 0\n', "nics_per_node=0"),
    "a latency of seconds": (
        'device = "h100-sxm"\n' + LEVEL.replace('"3 us"', "3") + 'bandwidth = "1 GB/s"\n', "did you mean 3 us",
    ),
    "an unknown key of a level": ('device = "h100-sxm"\n' + LEVEL + 'bandwith = "1 GB/s"\n', "did you mean bandwidth"),
    "more GPUs than its only node has": (
        'device = "h100-sxm"\ngpus = 16\n' + LEVEL + 'bandwidth = "1 GB/s"\n', "at most 8",
    ),
    "no GPUs": ('device = "h100-sxm"\ngpus = 0\n' + LEVEL + 'bandwidth = "1 GB/s"\n', "gpus=0"),
    "a size in words": (
        'device = "h100-sxm"\n' + LEVEL.replace("size = 8", 'size = "eight"') + 'bandwidth = "1 GB/s"\n', "size='eight'",
    ),
    "no TOML": ("device: h100-sxm\n", "not TOML"),
    "an empty file": ("", "missing device"),
}  # fmt: skip
DEVICE = 'memory = "80 GB"\nmemory_bandwidth = "3 TB/s"\n[dense_peak]\nbf16 = "900 TFLOP/s"\n'
DEVICE_FILES = {
    "no peak": ('memory = "80 GB"\nmemory_bandwidth = "3 TB/s"\n', "missing dense_peak"),
    "no memory": (DEVICE.replace('memory = "80 GB"\n', ""), "missing memory"),
    "a memory of 80 bytes": (DEVICE.replace('"80 GB"', "80"), "did you mean 80 GB"),
    "a tenth of a gigabyte": (DEVICE.replace('"80 GB"', '"0.1 GB"'), "0.25 GB"),
    "a memory as a rate": (DEVICE.replace('"80 GB"', '"80 GB/s"'), "a unit such as GB"),
    "a rate as memory": (DEVICE.replace('"3 TB/s"', '"3 TB"'), "did you mean TB/s"),
    "a peak of 900": (DEVICE.replace('"900 TFLOP/s"', "900"), "did you mean 900 TFLOP/s"),
    "a peak of bytes": (DEVICE.replace('"900 TFLOP/s"', '"900 GB/s"'), "TFLOP/s"),
    "a peak of no dtype": (DEVICE.replace("bf16", "bf17"), "bf17"),
    "an unknown key": ("memori = 1\n" + DEVICE, "did you mean memory"),
    "more usable than there is": ('usable_memory = "90 GB"\n' + DEVICE, "usable_memory"),
    "an efficiency of two": (DEVICE + "[efficiency]\nmemory = 2.0\n", "memory=2.0"),
    "an unknown efficiency": (DEVICE + "[efficiency]\nmagic = 2.0\n", "magic"),
}
MODEL_FILES = {
    "no layers": ("hidden = 64\nheads = 4\nvocabulary = 100\nfeed_forward = 256\n", "missing layers"),
    "a text for a number": ('layers = "two"\nhidden = 64\nheads = 4\nvocabulary = 100\nfeed_forward = 256\n', "layers='two'"),
    "an unknown key": ("layer = 2\nhidden = 64\nheads = 4\nvocabulary = 100\nfeed_forward = 256\n", "did you mean layers"),
    "heads that don't divide": ("layers = 2\nhidden = 65\nheads = 4\nvocabulary = 100\nfeed_forward = 256\n", "heads=4"),
    "an unknown norm": (
        'layers = 2\nhidden = 64\nheads = 4\nvocabulary = 100\nfeed_forward = 256\nnorm = "batchnorm"\n', "norm='batchnorm'",
    ),
    "a window without its length": (
        "layers = 2\nhidden = 64\nheads = 4\nvocabulary = 100\nfeed_forward = 256\nwindowed_layers = 1\n", "sliding_window",
    ),
    "an indexer without a latent": (
        "layers = 2\nhidden = 64\nheads = 4\nvocabulary = 100\nfeed_forward = 256\nindex_heads = 1\n", "query_latent",
    ),
}  # fmt: skip
FRAMEWORK_FILES = {
    "an unknown base": ('base = "megatronic"\n', "no framework"),
    "a base that is a number": ("base = 3\n", "base=3"),
    "an unknown key": ("zero_stag = 1\n", "did you mean zero_stage"),
    "a ZeRO stage of four": ("zero_stage = 4\n", "zero_stage=4"),
    "an unknown constant": ("[constants]\ncompute_gem_efficiency_scale = 1.0\n", "compute_gemm_efficiency_scale"),
    "a constant in words": ('[constants]\ncompute_gemm_efficiency_scale = "good"\n', "compute_gemm_efficiency_scale='good'"),
    "a host time without end": ('[constants]\nhost_step = "forever"\n', "host_step='forever'"),
    "constants that are a list": ("constants = [1]\n", "constants"),
}
CONFIG_FILES = {
    "no object": ("[]", "expected an object"),
    "no JSON": ("{", "not a JSON file"),
    "a key twice": ('{"model_type": "llama", "model_type": "opt"}', "twice"),
    "no model_type": ("{}", "model_type"),
    "an unknown model_type": (of(model_type="llamma"), "nearest known: llama"),
    "an encoder-decoder": (of(model_type="longt5"), "encoder-decoder"),
    "state-space layers": (of(model_type="mamba2"), "state-space layers"),
    "linear attention": (of(model_type="rwkv7"), "linear attention"),
    "cross-attention": (of(model_type="idefics"), "cross-attention"),
    "a strange layer": (of(model_type="olmo3", layer_types=["mamba"] * 4, sliding_window=8), "state-space layers"),
    "too few layer types": (of(model_type="olmo3", layer_types=["full_attention"], sliding_window=8), "4 layers"),
    "a key that could change the shape": (of(num_memory_tokens=4), "num_memory_tokens"),
    "layers of different widths": (of(intermediate_size=[1, 2, 3, 4]), "different shapes"),
    "no sizes": (json.dumps({"model_type": "llama"}), "num_hidden_layers"),
    "a size that is null": (of(hidden_size=None), "hidden_size"),
    "a size in words": (of(hidden_size="big"), "hidden_size='big'"),
    "a size that is no number": (of(hidden_size=float("nan")), "hidden_size=nan"),
    "an endless vocabulary": (of(vocab_size=float("inf")), "vocab_size=inf"),
    "no heads": (of(num_attention_heads=0), "heads=0"),
    "an empty text tower": (json.dumps({"model_type": "llava", "text_config": {"model_type": "nothing"}}), "nothing"),
}
FILES = {
    **{f"a cluster's file with {case}": ("cluster", *row) for case, row in CLUSTER_FILES.items()},
    **{f"a device's file with {case}": ("device", *row) for case, row in DEVICE_FILES.items()},
    **{f"a model's file with {case}": ("model", *row) for case, row in MODEL_FILES.items()},
    **{f"a framework's file with {case}": ("framework", *row) for case, row in FRAMEWORK_FILES.items()},
    **{f"a config.json with {case}": ("config", *row) for case, row in CONFIG_FILES.items()},
}
GIVEN = {
    "cluster": lambda file: ["estimate", MODEL, "--cluster", file, *WORK],
    "device": lambda file: ["estimate", MODEL, "--device", file, *WORK],
    "model": lambda file: ["estimate", file, *ON, *WORK],
    "framework": lambda file: [*ASKED, "--framework", file],
    "config": lambda file: ["estimate", file, *ON, *WORK],
}


@pytest.mark.parametrize("case", FILES)
def test_a_bad_file_ends_in_one_line_and_exit_code_two(run, tmp_path, case):
    kind, content, hint = FILES[case]
    file = tmp_path / ("config.json" if kind == "config" else "mine.toml")
    file.write_text(content, encoding="utf-8")
    refused(run, tmp_path, GIVEN[kind](str(file)), hint)


NEW = {
    "no kind": (["new"], "KIND"),
    "an unknown kind": (["new", "plan", "mine.toml"], "cluster"),
    "no file": (["new", "model"], "FILE"),
    "a file that isn't TOML": (["new", "model", "mine.json"], "ends in .toml"),
    "a folder that isn't there": (["new", "model", "none/mine.toml"], "none/mine.toml"),
    "a file that is missing": (["estimate", "none.toml", *ON, *WORK], "none.toml"),
    "a folder without a config.json": (["estimate", ".", *ON, *WORK], "no such file"),
}


@pytest.mark.parametrize("case", NEW)
def test_a_file_that_can_not_be_ends_in_one_line(run, tmp_path, case):
    refused(run, tmp_path, *NEW[case])


# Python

H100 = costmodel.load_cluster("dgx-h100")
CALLS = {
    "a bandwidth of 300 bytes/s": (lambda: Level(name="rail", size=8, latency=1e-6, bandwidth=300), "did you mean 300 GB/s"),
    "a latency of 3 s": (lambda: Level(name="rail", size=8, latency=3, bandwidth=25e9), "did you mean 3 us"),
    "a level in words": (lambda: Level(name="rail", size=8, latency="soon", bandwidth=25e9), "latency of level rail='soon'"),
    "an unknown kind of change": (lambda: replace(H100, {"rails.bandwidth": "2x"}), "rails.bandwidth"),
    "a path that is no text": (lambda: replace(H100, {3: "2x"}), "path=3"),
    "a change below nothing": (lambda: replace(H100, {"rail.bandwidth": -1.0}), "bandwidth=-1.0"),
    "a truth for a rate": (lambda: replace(H100, {"rail.bandwidth": True}), "bandwidth=True"),
    "a list for a rate": (lambda: replace(H100, {"rail.bandwidth": [1]}), "bandwidth=[1]"),
    "no GPUs of a machine": (lambda: machine("rtx-4090", 0), "gpus=0"),
    "half a node": (lambda: machine("rtx-4090", 1, 0.5), "nodes=0.5"),
    "no name": (lambda: costmodel.load_model(None), "name=None"),
    "a number for a cluster": (lambda: costmodel.load_cluster(8), "name=8"),
    "a number for a framework": (lambda: costmodel.load_framework(8), "name=8"),
    "an unknown unit": (lambda: quantity("memory", "80 GX", "memory"), "a unit such as GB"),
    "a unit alone": (lambda: quantity("memory", "GB", "memory"), "memory='GB'"),
    "an empty quantity": (lambda: quantity("memory", "", "memory"), "memory=''"),
    "two points": (lambda: quantity("memory", "1.2.3 GB", "memory"), "memory='1.2.3 GB'"),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_bad_call_is_one_line_that_names_what_was_given(case):
    call, hint = CALLS[case]
    with pytest.raises(CostModelError) as caught:
        call()
    message = str(caught.value)
    assert hint in message and message.isprintable() and len(message) < 1000


def test_there_are_150_of_them():
    assert len(WHERE | HOW_MUCH | ADDED | CHANGED) + len(FILES) + len(NEW) + len(CALLS) >= 150
