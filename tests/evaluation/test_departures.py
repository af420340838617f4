"""An answer says every departure from the defaults, and nothing where there is none."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from costmodel import (
    Plan,
    calibrate,
    estimate,
    ledger,
    load_cluster,
    load_framework,
    load_model,
    machine,
    search,
    simulate,
)
from costmodel.catalogue.asking import ask
from costmodel.catalogue.changes import replace
from costmodel.catalogue.machines import largest_cluster
from costmodel.evaluation.departures import OF_EVERY_PLAN, departures, varying
from costmodel.text.errors import CostModelError

MODEL = load_model("llama3-8b")
NODE = load_cluster("dgx-h100", gpus=8)
ASKED = {"global_batch": 64, "seq_len": 4096}


def of(model=MODEL, cluster=NODE, framework="megatron-core", **chosen):
    return departures(ask(model, cluster, framework), [Plan(**ASKED, data_parallel=8, **chosen)])


@pytest.mark.parametrize("name", ["megatron-core", "hf-trainer", "fsdp2", "deepspeed", "nemo", "maxtext"])
@pytest.mark.parametrize(
    "cluster", [NODE, load_cluster("dgx-1v-32gb", gpus=8), machine("rtx-4090", 8)], ids=lambda one: one.name
)
def test_what_is_asked_by_names_alone_departs_from_nothing(name, cluster):
    found = search(MODEL, cluster, framework=name, **ASKED)
    assert found.departures == ()


@pytest.mark.parametrize("device", ["h100-sxm", "a100-sxm-80gb", "gb200", "rtx-4090", "t4", "mi300x", "v100-sxm-16gb"])
def test_so_many_gpus_of_a_kind_depart_from_nothing(device):
    for gpus, nodes in itertools.product([1, 2, 3, 8, 16, 80, 1024], [None, 1, 2]):
        try:
            clusters = [machine(device, gpus, nodes), largest_cluster(device).with_gpus(gpus)]
        except CostModelError:  # no such machine
            continue
        for cluster in clusters:
            assert departures(ask(MODEL, cluster, "megatron-core"), []) == (), (gpus, nodes)


@pytest.mark.parametrize("device", ["h100-sxm", "rtx-4090", "gb200"])
@pytest.mark.parametrize("gpus", [8, 144])
def test_another_network_between_gpus_of_a_kind_is_said(device, gpus):
    said = departures(ask(MODEL, machine(device, gpus, network="10 Gbit/s"), "megatron-core"), [])
    assert [one.partition(" ")[0] for one in said] == ["network.bandwidth"]
    assert float(said[0].split()[-4]) == pytest.approx(load(device, gpus), rel=1e-3) and said[0].endswith(" GB/s per GPU")


def load(device: str, gpus: int) -> float:
    """A GPU's share of ten gigabits a second of its node, at the share of a NIC's rate that collectives reach [GB/s]."""
    return 0.92 * 10 / 8 / machine(device, gpus).gpus_per_node


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"dtype": "fp8"}, "dtype fp8"), ({"adapter": "qlora"}, "adapter qlora"), ({"overlap_tensor": True}, "overlap_tensor on"),
        ({"overlap_gradients": False}, "overlap_gradients off"), ({"optimizer_offload": 1.0}, "optimizer_offload 1"),
        ({"optimizer": "adam-8bit"}, "optimizer adam-8bit"), ({"attention": "unfused"}, "attention unfused"),
        ({"cuda_graphs": True}, "cuda_graphs on"), ({"gradient_bytes": 2}, "gradient_bytes 2"),
        ({"fused_cross_entropy": True}, "fused_cross_entropy on"), ({"bucket_bytes": 25e6}, "bucket_bytes 2.5e+07"),
    ],
)  # fmt: skip
def test_a_choice_is_said(chosen, said):
    assert of(**chosen) == (said,)


def test_every_choice_of_a_plan_is_said_or_stands_in_every_row():
    """A field that is added to `Plan` is said without anybody's doing."""
    question = ask(MODEL, NODE, "megatron-core")
    for field in dataclasses.fields(Plan):
        if field.name in OF_EVERY_PLAN:
            continue
        plan = question.resolved(Plan(**ASKED, data_parallel=8))
        object.__setattr__(plan, field.name, "another")
        assert any(said.startswith(field.name) for said in departures(question, [plan]))


def test_changed_numbers_of_descriptions_are_said_before_and_after():
    cluster = replace(NODE, {"nvlink.bandwidth" if NODE.levels[0].name == "nvlink" else "node.bandwidth": "2x"})
    assert any("bandwidth" in said and "->" in said for said in of(cluster=cluster))
    assert any(said.startswith("model.layers 32 -> 40") for said in of(model=replace(MODEL, {"layers": 40})))
    assert any(said.startswith("device.memory 80 GiB") for said in of(cluster=replace(NODE, {"device.memory": "141 GB"})))
    slower = replace(load_framework("megatron-core", "hopper"), {"compute_gemm_efficiency_scale": "0.5x"})
    assert any(said.startswith("framework.") and "->" in said for said in of(framework=slower))


def test_a_cluster_that_own_runs_calibrated_says_so():
    plan = Plan(**ASKED, data_parallel=8)
    own = calibrate(NODE, [(MODEL, plan, 9.0)], "megatron-core")
    assert "megatron-core calibrated on own runs" in of(cluster=own.cluster if hasattr(own, "cluster") else own)


def test_what_plans_differ_in_is_a_column_and_no_departure_of_all():
    found = search(MODEL, NODE, dtype=["bf16", "fp8"], top=10_000, **ASKED)
    plans = [one.plan for one in found.ranked]
    assert varying(ask(MODEL, NODE, "megatron-core"), plans) == ("dtype",)
    assert not any(said.startswith("dtype") for said in found.departures)
    assert search(MODEL, NODE, dtype="fp8", **ASKED).departures == ("dtype fp8",)


def test_another_certainty_to_fit_is_said():
    assert "fit_probability 0.5" in search(MODEL, NODE, fit_probability=0.5, **ASKED).departures


def test_an_estimate_says_its_departures_and_so_do_its_texts():
    faster = replace(NODE, {"device.memory": "100 GiB"})
    made = estimate(MODEL, faster, Plan(**ASKED, data_parallel=8, dtype="fp8"), "megatron-core", fit_probability=0.5)
    found = search(MODEL, faster, dtype="fp8", fit_probability=0.5, **ASKED)
    asked = MODEL, replace(NODE, {"device.memory": "100 GiB"}), made.plan
    for answer in (made, found, simulate(*asked), ledger(*asked)):
        for text in (repr(answer), answer._repr_html_()):
            text = " ".join(text.split())
            assert "not by default: dtype fp8, " in text and "device.memory 80 GiB" in text
    assert "fit_probability 0.5" in repr(made) and "fit_probability 0.5" in repr(found)
    assert made.departures == found.departures


def test_a_question_that_no_plan_fits_says_its_departures_too():
    found = search(load_model("llama3-70b"), machine("rtx-4090", 1), adapter="lora", global_batch=8, seq_len=4096)
    assert not found.ranked and "adapter lora" in found.departures
