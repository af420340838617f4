"""What offload keeps in the memory of a node's host: said, and a limit where the catalogue knows it."""

import dataclasses

import numpy as np
import pytest

from costmodel import Plan, estimate, load_cluster, load_model, search
from costmodel.catalogue import loader
from costmodel.catalogue.changes import differences, replace
from costmodel.evaluation import engine
from costmodel.formulas.quantities import PlanNumbers
from costmodel.formulas.settings import OPTIMIZERS
from costmodel.text.units import GiB
from tests.commanding import strict

MODEL = load_model("llama3-70b")
BATCH = {"global_batch": 64, "seq_len": 4096}
WORK = ["--gbs", "64", "--seq-len", "4096"]


def ask(cluster, framework="megatron-core", **fields):
    return estimate(MODEL, cluster, Plan(**{**BATCH, "recompute": "full", "optimizer_offload": 1.0, **fields}), framework)


def test_without_offload_the_host_holds_nothing():
    assert ask(load_cluster("dgx-h100", 8), optimizer_offload=0.0, tensor_parallel=8).host_memory == 0.0


@pytest.mark.parametrize(
    ("framework", "fields"),
    [
        ("megatron-core", {"tensor_parallel": 8}), ("megatron-core", {"tensor_parallel": 2, "pipeline_parallel": 4}),
        ("megatron-core", {"tensor_parallel": 4, "zero_stage": 1}), ("deepspeed", {"zero_stage": 2}),
        ("deepspeed", {"zero_stage": 3}), ("fsdp2", {"zero_stage": 3}),
    ],
)  # fmt: skip
def test_a_whole_model_on_one_node_needs_sixteen_bytes_a_parameter_with_adam(framework, fields):
    """As DeepSpeed's estimate has it: 32-bit weights, two moments and gradients, whatever splits the model's one copy."""
    found = ask(load_cluster("dgx-h100", 8), framework, **fields)
    assert found.host_memory == pytest.approx(16.0 * MODEL.parameters, rel=0.02)


def test_nodes_share_what_ranks_share():
    """Over four nodes a quarter each where the state is sharded over all; a whole copy each where every node has its own."""
    cluster = load_cluster("dgx-h100", 32)
    sharded = ask(cluster, "deepspeed", zero_stage=3)
    assert sharded.host_memory == pytest.approx(4.0 * MODEL.parameters, rel=0.02)
    copies = ask(cluster, "deepspeed", zero_stage=3, shard_group=8)
    assert copies.host_memory == pytest.approx(16.0 * MODEL.parameters, rel=0.02)
    half = ask(cluster, "deepspeed", zero_stage=3, optimizer_offload=0.5)
    assert half.host_memory == pytest.approx(sharded.host_memory / 2)


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "sgd-momentum", "adam-8bit"])
def test_an_optimizer_with_less_state_needs_less(optimizer):
    master, moments = OPTIMIZERS[optimizer]
    found = ask(load_cluster("dgx-h100", 8), tensor_parallel=8, optimizer=optimizer)
    assert found.host_memory == pytest.approx((master + moments + 4.0) * MODEL.parameters, rel=0.02)


def test_adapters_need_no_more_than_what_trains():
    found = ask(load_cluster("dgx-h100", 8), tensor_parallel=8, adapter="lora")
    assert 0.0 < found.host_memory < 0.01 * 16.0 * MODEL.parameters


def test_activations_in_host_memory_are_what_the_gpus_lack():
    cluster = load_cluster("dgx-h100", 8)
    here, there = (
        ask(cluster, tensor_parallel=8, optimizer_offload=0.0, recompute="none", activation_offload=share) for share in (0.0, 1.0)
    )
    moved = 8 * (here.memory.stages[0].parts.activations - there.memory.stages[0].parts.activations)
    assert there.host_memory == pytest.approx(moved, rel=1e-9)


def test_a_plan_that_needs_more_than_the_node_has_doesn_t_fit_and_says_why(run):
    small = dataclasses.replace(load_cluster("dgx-h100", 8), host_memory=1e12)
    fields = {"tensor_parallel": 8}
    enough, short = ask(load_cluster("dgx-h100", 8), **fields), ask(small, **fields)
    assert enough.fits and not short.fits
    assert short.memory_margin == enough.memory_margin > 0.0
    assert short.fit_probability == 0.0
    assert short.host_memory_margin == 1e12 - short.host_memory
    assert "host memory" in repr(short)
    unknown = ask(dataclasses.replace(small, host_memory=None), **fields)
    assert unknown.fits and unknown.host_memory_margin == np.inf
    asked = ["llama3-70b", "--cluster", "dgx-h100", *WORK, "--tp", "8", "--recompute", "full", "--optimizer-offload", "1"]
    code, out, _ = run("estimate", *asked, "--set", "host_memory=1TB")
    assert code == 1
    words = " ".join(out.split())
    assert "DOES NOT FIT" in words and "over in a node's host memory" in words
    assert f"{short.host_memory / GiB:,.0f} of {1e12 / GiB:,.0f} GiB host memory a node" in words
    for command in ("estimate", "search", "train", "capacity"):
        more = {"train": ["--tokens", "1e9"], "capacity": ["--find", "micro-batch"], "search": ["--no-check"]}.get(command, [])
        code, out, err = run(command, *asked, *more)
        assert code == 0, err
        assert "2,048 GiB host memory a node" in " ".join(out.split())


def test_figures_for_machines_have_it(run):
    asked = ["llama3-70b", "--cluster", "dgx-h100", *WORK, "--tp", "8", "--optimizer-offload", "1", "--json"]
    found = strict(run("estimate", *asked)[1])
    assert found["node_host_memory_bytes"] == pytest.approx(16.0 * MODEL.parameters, rel=0.02)
    assert found["node_host_memory_limit_bytes"] == 2048 * GiB


@pytest.mark.parametrize("kind", ["python", "numpy"])
def test_a_search_finds_what_fits_in_host_memory_alone(kind):
    """Each ranked plan fits; with less memory none does, and the answer says so; every engine finds the same."""
    asked = {**BATCH, "engine": kind, "recompute": "full", "micro_batch": 1, "optimizer_offload": 1.0, "zero_stage": [1, 2, 3]}
    cluster = load_cluster("dgx-h100", 16)
    found = search(MODEL, cluster, framework="deepspeed", **asked, keep_evaluated=True)
    assert found.ranked and all(one.fits for one in found.ranked)
    some = dataclasses.replace(cluster, host_memory=0.7e12)  # a shard of both nodes' fits, a whole copy in each doesn't
    fewer = search(MODEL, some, framework="deepspeed", **asked, shard_group=[8, 16], keep_evaluated=True)
    assert fewer.ranked and all(one.host_memory <= 0.7e12 for one in fewer.ranked)
    assert np.isfinite(fewer.every.peak_memory).all() and len(fewer.every) < fewer.evaluated
    assert fewer.fitting < search(MODEL, cluster, framework="deepspeed", **asked, shard_group=[8, 16]).fitting
    none = search(MODEL, dataclasses.replace(cluster, host_memory=1e11), framework="deepspeed", **asked)
    assert not none.ranked and "host memory" in none.why_none()


def test_where_no_host_holds_it_the_leanest_is_named_with_what_it_lacks(run):
    asked = ["llama3-70b", "--cluster", "dgx-h100", *WORK, "--optimizer-offload", "1", "--no-check"]
    code, out, _ = run("search", *asked, "--set", "host_memory=10GB")
    words = " ".join(out.split())
    assert code == 1
    assert "over in a node's host memory" in words and "-" not in words.partition("Leanest plan that doesn't fit: ")[2][:30]


def test_columns_give_what_single_plans_give():
    cluster = load_cluster("dgx-h100", 32)
    plans = [
        {"tensor_parallel": 8}, {"tensor_parallel": 2, "pipeline_parallel": 4}, {"pipeline_parallel": 8, "tensor_parallel": 4},
        {"tensor_parallel": 4, "context_parallel": 2},
    ]  # fmt: skip
    found = [ask(cluster, activation_offload=0.5, **fields) for fields in plans]
    inputs = found[0].inputs
    columns = PlanNumbers(*np.array([one.inputs.plan for one in found]).T)
    assert engine.host_bytes(inputs._replace(plan=columns)) == pytest.approx([one.host_memory for one in found], rel=1e-12)


def test_nodes_of_public_systems_have_what_their_makers_say():
    known = {"dgx-h100": 2048, "dgx-a100": 2048, "dgx-a100-40gb": 1024, "aws-p4d": 1152, "aws-p5": 2048, "azure-nd-h100-v5": 1900,
             "gcp-a3-high": 1872}  # fmt: skip
    for name, gib in known.items():
        assert load_cluster(name).host_memory == gib * GiB
    for name in loader.names("cluster"):
        memory = load_cluster(name).host_memory
        assert (memory is not None) == ("host_memory" in loader.provenance("cluster", name))
        assert memory is None or 100 * GiB < memory / load_cluster(name).gpus_per_node * 8 < 5000 * GiB


def test_it_can_be_said_of_an_own_cluster(tmp_path):
    file = tmp_path / "ours.toml"
    file.write_text(
        'device = "h100-sxm"\nhost_memory = "1 TiB"\n[[levels]]\nname = "nvlink"\nsize = 8\nlatency = "3 us"\n'
        'bandwidth = "300 GB/s"\n'
    )
    assert load_cluster(file).host_memory == 1024 * GiB
    known = load_cluster("dgx-h100")
    (told,) = differences(known, replace(known, {"host_memory": "1 TiB"}))
    assert str(told) == "host_memory 2048 GiB (2199 GB) -> 1024 GiB (1100 GB)"
    assert load_cluster(device="h100-sxm", gpus=16).host_memory == known.host_memory
