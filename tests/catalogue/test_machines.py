"""Clusters in one line, numbers changed, files to start from, other names."""

import csv
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import costmodel
from costmodel import load_cluster, load_device, load_framework, load_model
from costmodel.catalogue import files, loader
from costmodel.catalogue.changes import differences, replace
from costmodel.catalogue.files import table_of
from costmodel.catalogue.machines import cloud_instance, machine, on_network
from costmodel.evaluation.cluster_design import candidates
from costmodel.text.units import QUANTITIES, quantity
from tests.commanding import strict

approx = pytest.approx

WORK = ["--global-batch", "64", "--seq-len", "2048"]


# One line


def test_a_card_alone_is_one_gpu_of_the_machine_that_it_comes_in():
    card = machine("rtx-4090")
    assert (card.gpus, card.gpus_per_node, card.name) == (1, 8, "rtx-4090")


@pytest.mark.parametrize("device", loader.names("device"))
def test_many_of_a_device_are_in_nodes_as_it_comes_in(device):
    """Of every device: what shares links is what the catalogue's first cluster of it has, or a machine that names its source."""
    known = loader.cluster_with(device)
    for gpus in (1, 8, 16, 1024):
        made = machine(device, gpus)
        assert made.gpus == gpus and made.device == load_device(device)
        if known and len(load_cluster(known).levels) > 1:
            like = load_cluster(known)
            rates = [(level.bandwidth, level.latency, level.topology) for level in made.levels]
            assert rates == [(level.bandwidth, level.latency, level.topology) for level in like.levels]
            assert made.gpus_per_node == like.gpus_per_node
        elif not device.startswith("tpu-"):  # a pod of which is one torus
            assert made.gpus_per_node <= 16
        if gpus > made.gpus_per_node:
            assert len(made.levels) > 1
            assert " in nodes " in made.name and f"{-(-gpus // made.gpus_per_node)} nodes of" in made.title


def test_a_thousand_h100_are_not_on_one_switch():
    made, known = machine("h100-sxm", 1024), load_cluster("dgx-h100", 1024)
    assert (made.levels, made.gpus) == (known.levels, known.gpus)
    assert made.name == "h100-sxm in nodes as dgx-h100" and known.title in made.title
    cards = machine("rtx-4090", 16)
    assert [(level.name, level.size >= 16) for level in cards.levels] == [("pcie", False), ("network", True)]
    assert "assumed" in cards.title


def test_every_machine_of_the_list_is_of_a_device_without_a_cluster_of_several_nodes_and_has_a_source():
    for name in files.entries("machines.toml"):
        entry = files.entry_of("machines.toml", name)
        assert entry["source"]
        assert "like" in entry or entry["gpus"] > 1 or "network" in entry
        if name != "default":
            known = loader.cluster_with(name)
            assert name in loader.names("device") and (known is None or len(load_cluster(known).levels) == 1)


def test_gpus_of_a_kind_are_one_function_at_every_door(run):
    """`load_cluster(device=...)`, `machine` and the command line give one cluster and one answer."""
    assert load_cluster(device="rtx-4090", gpus=16) == machine("rtx-4090", 16)
    assert load_cluster(device="h100", gpus=16, nodes=4, network="100 Gbit/s") == machine(
        "h100-sxm", 16, 4, "100 Gbit/s"
    )
    code, out, err = run("estimate", "llama3.2-1b", "--device", "rtx-4090", "--gpus", "16", *WORK, "--json")
    plan = costmodel.Plan(global_batch=64, seq_len=2048, data_parallel=16)
    found = costmodel.estimate(load_model("llama3.2-1b"), machine("rtx-4090", 16), plan)
    assert code == 0 and strict(out)["step_time_s"] == found.step_time
    assert machine("rtx-4090", 16).title in err


def test_a_cluster_is_named_by_itself_or_by_its_device(run):
    for wrong, said in (
        ({}, "device"), ({"name": "dgx-h100", "device": "h100-sxm"}, "device"), ({"name": "dgx-h100", "nodes": 0}, "nodes"),
        ({"name": "dgx-h100", "nodes": 2, "gpus": 16}, "nodes=2"), ({"name": "8xh100", "nodes": 2}, "nodes=2"),
    ):  # fmt: skip
        with pytest.raises(costmodel.CostModelError, match=said):
            load_cluster(**wrong)


def test_a_named_cluster_is_as_large_on_another_network_and_may_be_counted_in_its_nodes():
    assert load_cluster("dgx-h100", nodes=2) == load_cluster("dgx-h100", gpus=16)
    slow = load_cluster("dgx-h100", network="100 Gbit/s")
    assert slow.gpus == load_cluster("dgx-h100").gpus
    assert slow.levels[0] == load_cluster("dgx-h100").levels[0]
    assert slow.levels[1].bandwidth < load_cluster("dgx-h100").levels[1].bandwidth


def test_degrees_beyond_a_device_s_node_ask_for_the_nodes_they_need(run):
    found = strict(run("estimate", "llama3.2-1b", "--device", "h100-sxm", *WORK, "--pipeline-parallel", "16", "--json")[1])
    assert (found["data_parallel"], found["pipeline_parallel"]) == (1, 16)


def test_a_node_of_a_known_system_has_its_links():
    assert machine("h100-sxm", 8).levels == load_cluster("dgx-h100").levels
    assert machine("h100-sxm", 4).levels[0].name == "nvlink"
    assert machine("rtx-4090", 2).levels[0].name == "pcie"


def test_nodes_of_a_known_system_share_the_node_s_network():
    known = load_cluster("dgx-h100")
    assert machine("h100-sxm", 16, 2).levels[1].bandwidth == known.levels[1].bandwidth
    # Four GPUs of a node have the NICs of eight to themselves.
    assert machine("h100-sxm", 8, 2).levels[1].bandwidth == 2 * known.levels[1].bandwidth


@given(st.sampled_from(["rtx-4090", "h100-sxm", "mi300x"]), st.integers(1, 8), st.integers(2, 9), st.integers(10**9, 4 * 10**11))
def test_gpus_of_all_nodes_share_what_their_nodes_have(device, per_node, nodes, rate):
    made = machine(device, per_node * nodes, nodes, rate)
    assert (made.gpus, made.gpus_per_node) == (per_node * nodes, per_node)
    assert made.levels[1].line_rate == approx(rate / per_node)
    assert made.levels[1].bandwidth <= made.levels[1].line_rate


def test_a_larger_device_list_than_a_rack_of_gpus():
    wanted = {"rtx-4090", "rtx-3090", "rtx-5090", "rtx-4080", "rtx-a6000", "a10g", "l40", "rx-7900-xtx", "mi210", "mi350x",
              "gaudi3", "gb10", "ascend-910b2", "tpu-v5p", "tpu-v7", "trainium2", "max-1550"}  # fmt: skip
    assert wanted <= set(loader.names("device"))


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("p5.48xlarge", "aws-p5"), ("a3-highgpu-8g", "gcp-a3-high"), ("ND H100 v5", "azure-nd-h100-v5"),
        ("Standard_ND96isr_H100_v5", "azure-nd-h100-v5"), ("DGX H100", "dgx-h100"),
    ],
)  # fmt: skip
def test_a_cloud_s_name_of_an_instance_is_a_name(name, entry):
    assert load_cluster(name) == load_cluster(entry)


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("NVIDIA GeForce RTX 4090", "rtx-4090"), ("4090", "rtx-4090"), ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("AMD Instinct MI300X", "mi300x"), ("TPU v5p", "tpu-v5p"),
    ],
)  # fmt: skip
def test_what_drivers_call_a_device_is_a_name(name, entry):
    assert load_device(name) == load_device(entry)


def test_every_other_name_leads_to_an_entry():
    aliases = table_of("aliases.toml")
    for kind in ("cluster", "device"):
        assert set(aliases[kind].values()) <= set(loader.names(kind))
    for name, entry in loader.instances().items():
        assert entry["device"] in loader.names("device")
        assert cloud_instance(name).gpus == entry["gpus"]
        assert cloud_instance(name.lower().removeprefix("standard_")).name == name
        assert quantity("network", entry["network"], "bandwidth") > 0
        assert load_cluster(name, 2 * entry["gpus"]).gpus_per_node == entry["gpus"]


def test_a_made_cluster_is_asked_about_in_one_line(run):
    code, out, _ = run("estimate", "llama3.2-1b", "--device", "rtx-4090", "--gpus", "8", "--nodes", "2", "--network", "25Gbit",
                       *WORK, "--json")  # fmt: skip
    found = strict(out)
    assert code == 0 and found["data_parallel"] == 8
    made = machine("rtx-4090", 8, 2, "25 Gbit/s")
    plan = costmodel.Plan(global_batch=64, seq_len=2048, data_parallel=8)
    assert found["step_time_s"] == costmodel.estimate(load_model("llama3.2-1b"), made, plan).step_time


def test_gpus_left_out_mean_one_node(run):
    found = strict(run("estimate", "llama3.2-1b", "--cluster", "dgx-h100", *WORK, "--json")[1])
    assert found["data_parallel"] == 8


def test_degrees_beyond_a_node_ask_for_the_nodes_they_need(run):
    found = strict(run("estimate", "llama3.2-1b", "--cluster", "dgx-h100", *WORK, "--pipeline-parallel", "16", "--json")[1])
    assert (found["data_parallel"], found["pipeline_parallel"]) == (1, 16)


def test_clusters_are_compared_in_one_table(run):
    code, out, _ = run("search", "llama3.2-1b", "--cluster", "dgx-h100,a100-pcie-node,mi300x-8", *WORK)
    names = ["dgx-h100", "a100-pcie-node", "mi300x-8"]
    rows = [line for line in out.splitlines() if line.startswith(tuple(names))]
    assert code == 0 and [row.split()[0] for row in rows] == names
    found = strict(run("search", "llama3.2-1b", "--cluster", "dgx-h100,mi300x-8", *WORK, "--json")[1])["clusters"]
    alone = strict(run("search", "llama3.2-1b", "--cluster", "mi300x-8", *WORK, "--json", "--top", "1")[1])
    assert found[1]["cluster"] == "mi300x-8"
    assert found[1]["step_time_s"] == alone["plans"][0]["step_time_s"]


# Changes


def test_a_number_is_scaled_or_replaced():
    cluster = load_cluster("dgx-h100")
    found = replace(cluster, {"rail.bandwidth": "2x", "device.memory": "141 GB", "nvlink.latency": "5 us", "gpus": 64})
    assert found.levels[1].bandwidth == 2 * cluster.levels[1].bandwidth
    assert found.levels[1].line_rate == 2 * cluster.levels[1].line_rate
    assert (found.device.memory, found.levels[0].latency, found.gpus) == (141e9, 5e-6, 64)
    assert found.device.usable_memory / 141e9 == approx(cluster.device.usable_memory / cluster.device.memory)


def test_a_rate_is_whose_it_says_and_else_whose_the_option_is():
    """`--network` and `networks=` are a node's, `--set` is a GPU's, and either may say the other."""
    known = load_cluster("dgx-h100")
    for text in ("800 GB/s", "800 GB/s per node", "800GB/s/node", "100 GB/s per GPU", "100GB/s a GPU"):
        assert on_network(known, text).levels[1].line_rate == 100e9
        assert machine("h100-sxm", 16, network=text).levels[1].line_rate == 100e9
        assert candidates("h100-sxm", 16, networks=text)[0].levels[1].line_rate == 100e9
    for text in ("100 GB/s", "100 GB/s per GPU", "800 GB/s per node", "6400 Gbit/s per node"):
        assert replace(known, {"network.bandwidth": text}).levels[1].bandwidth == 100e9
    with pytest.raises(costmodel.InvalidValue, match="rail.bandwidth"):
        replace(known, {"network.bandwidth": "100 GB per node"})


def test_other_nics_of_a_cluster_reach_the_share_that_its_own_do():
    known = load_cluster("aws-p6-b200")
    halved = on_network(known, "1600 Gbit/s")
    assert halved.levels[0] == known.levels[0]
    assert halved.levels[1].bandwidth == approx(known.levels[1].bandwidth / 2)
    assert on_network(known, "3200 Gbit/s") == known
    alone = load_cluster("hgx-h200", gpus=8)
    alone = costmodel.Cluster(name="alone", device=alone.device, levels=alone.levels[:1], gpus=8)
    assert on_network(alone, "3200 Gbit/s").with_gpus(64).levels[1].line_rate == 50e9


def test_a_network_goes_with_a_cluster_as_with_a_device_and_is_said_before_and_after(run):
    asked = ["estimate", "llama3-8b", "--cluster", "dgx-h100", "--nodes", "2", *WORK]
    answers = {}
    for name, more in (("own", []), ("slow", ["--network", "400Gbit/s"]), ("set", ["--set", "rail.bandwidth=5.75GB/s"])):
        code, out, err = run(*asked, *more, "--json")
        assert code == 0, err
        answers[name] = strict(out)["step_time_s"]
    assert answers["slow"] > answers["own"]
    assert answers["slow"] == approx(answers["set"])
    (told,) = differences(load_cluster("dgx-h100"), on_network(load_cluster("dgx-h100"), "400Gbit/s"))
    assert str(told) == "rail.bandwidth 46 -> 5.75 GB/s per GPU"
    assert str(told) in " ".join(run(*asked, "--network", "400Gbit/s")[1].split())


def test_levels_have_names_that_fit_any_cluster():
    cluster = load_cluster("dgx-h100")
    assert replace(cluster, {"network.bandwidth": "2x"}) == replace(cluster, {"rail.bandwidth": "2x"})
    assert replace(cluster, {"node.latency": 1e-6}) == replace(cluster, {"nvlink.latency": 1e-6})
    alone = costmodel.Cluster(name="alone", device=cluster.device, levels=cluster.levels[:1], gpus=8)
    with pytest.raises(costmodel.InvalidValue):
        replace(alone, {"network.bandwidth": "2x"})


def test_each_description_can_be_changed():
    assert replace(load_model("llama3-8b"), {"layers": "2x", "gated": "no"}).layers == 64
    device = replace(load_device("h100-sxm"), {"dense_peak": "2x", "efficiency.gemm.bf16": 0.9, "efficiency.memory": "0.5x"})
    assert device.peak("fp8") == 2 * load_device("h100-sxm").peak("fp8")
    assert (device.gemm_efficiency("bf16"), device.efficiency.memory) == (0.9, load_device("h100-sxm").efficiency.memory / 2)
    plain = load_framework("megatron-core")
    changed = {"compute_gemm_efficiency_scale": "0.5x", "constants.host_step": 0.1, "zero_stage": 2}
    framework = replace(plain, changed)
    assert framework.constants.compute.gemm_efficiency_scale == plain.constants.compute.gemm_efficiency_scale / 2
    assert (framework.constants.host.step, framework.zero_stage) == (0.1, 2)


@given(st.sampled_from(["rail.bandwidth", "device.memory_bandwidth", "nvlink.latency"]), st.floats(0.1, 10.0))
def test_a_change_and_its_inverse_change_nothing(path, factor):
    cluster = load_cluster("dgx-h100")
    back = replace(replace(cluster, {path: f"{factor}x"}), {path: f"{1 / factor}x"})
    assert [level.bandwidth for level in back.levels] == approx([level.bandwidth for level in cluster.levels])
    assert [level.latency for level in back.levels] == approx([level.latency for level in cluster.levels])
    assert back.device.memory_bandwidth == approx(cluster.device.memory_bandwidth)


def test_a_change_on_the_command_line_is_the_one_in_python(run):
    told = ["--set", "rail.bandwidth=2x", "--set", "framework.compute_gemm_efficiency_scale=0.5x", "--set", "model.layers=8"]
    found = strict(run("estimate", "llama3.2-1b", "--cluster", "dgx-h100", "--gpus", "16", *WORK, *told, "--json")[1])
    cluster = replace(load_cluster("dgx-h100", gpus=16), {"rail.bandwidth": "2x"})
    plan = costmodel.Plan(global_batch=64, seq_len=2048, data_parallel=16)
    framework = replace(load_framework("megatron-core", "hopper"), {"compute_gemm_efficiency_scale": "0.5x"})
    model = replace(load_model("llama3.2-1b"), {"layers": 8})
    assert found["step_time_s"] == costmodel.estimate(model, cluster, plan, framework).step_time


# Units


@pytest.mark.parametrize(
    ("written", "kind", "value"),
    [
        ("25 GB/s", "bandwidth", 25e9), ("400 Gbit/s", "bandwidth", 50e9), ("400Gbps", "bandwidth", 50e9),
        ("25Gbit", "bandwidth", 25e9 / 8), ("25 Gb/s", "bandwidth", 25e9 / 8), ("3.35 TB/s", "memory_bandwidth", 3.35e12),
        ("1 GiB/s", "bandwidth", 2**30), ("2 us", "latency", 2e-6), ("2\u00b5s", "latency", 2e-6), ("3e-6", "latency", 3e-6),
        ("80 GB", "memory", 80e9), ("80 GiB", "memory", 80 * 2**30), ("80_000_000_000", "memory", 80e9),
        ("989 TFLOP/s", "flop_rate", 989e12), ("1 PFLOPS", "flop_rate", 1e15), (25e9, "bandwidth", 25e9),
    ],
)  # fmt: skip
def test_a_quantity_is_read_in_its_unit(written, kind, value):
    assert quantity("it", written, kind) == approx(value)


@given(st.sampled_from(sorted(QUANTITIES)), st.floats(1e-12, 1e18))
def test_a_quantity_lies_where_it_can_or_is_refused(kind, value):
    known = QUANTITIES[kind]
    try:
        assert quantity("it", value, kind) == value
        assert known.least <= value <= known.most
    except costmodel.InvalidValue:
        assert not known.least <= value <= known.most


# Files


@pytest.mark.parametrize("kind", ["model", "device", "cluster", "framework"])
def test_a_template_is_a_file_that_can_be_asked_about(run, tmp_path, kind):
    code, out, err = run("new", kind, "mine.toml")
    assert (code, err) == (0, "") and "mine.toml" in out
    load = {"model": load_model, "device": load_device, "cluster": load_cluster, "framework": load_framework}[kind]
    assert load(str(tmp_path / "mine.toml")).name == "mine"
    text = (tmp_path / "mine.toml").read_text(encoding="utf-8")
    assert text.count("#") > 10
    assert run("new", kind, "mine.toml")[0] == 2
    assert (tmp_path / "mine.toml").read_text(encoding="utf-8") == text


def test_commented_lines_of_a_template_can_be_turned_on(tmp_path):
    for kind, load in (("device", load_device), ("framework", load_framework)):
        text = resources.files("costmodel.catalogue").joinpath("templates", f"{kind}.toml").read_text(encoding="utf-8")
        on = "\n".join(line.removeprefix("# ") if line.startswith("# ") and ("=" in line or "[" in line[:4]) else line
                       for line in text.splitlines())  # fmt: skip
        file = tmp_path / f"{kind}.toml"
        file.write_text("\n".join(line for line in on.splitlines() if "`" not in line), encoding="utf-8")
        load(str(file))


CLUSTER = 'device = "h100-sxm"\n[[levels]]\nname = "nvlink"\nsize = 8\nlatency = "3 us"\nbandwidth = "367 GB/s"\n'
OUTER = '[[levels]]\nname = "rail"\nsize = 64\nlatency = "14 us"\n'


@pytest.mark.parametrize(
    "rate",
    [
        'bandwidth = "25 GB/s"', 'bandwidth_per_node = "200 GB/s"', 'bandwidth_per_nic = "400 Gbit/s"\nnics_per_node = 4',
        "bandwidth = 25e9", 'bandwidth_per_node = "1600 Gbit/s"',
    ],
)  # fmt: skip
def test_a_rate_is_per_gpu_per_node_or_per_nic_as_its_key_says(tmp_path, rate):
    file = tmp_path / "mine.toml"
    file.write_text(CLUSTER + OUTER + rate + "\n", encoding="utf-8")
    assert load_cluster(str(file)).levels[1].bandwidth == approx(25e9)


def test_a_folder_or_a_path_is_as_good_as_a_name(tmp_path):
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, '
        '"intermediate_size": 128, "vocab_size": 100}', encoding="utf-8",
    )  # fmt: skip
    assert load_model(tmp_path) == load_model(str(tmp_path / "config.json"))
    (tmp_path / "mine.toml").write_text("zero_stage = 2\n", encoding="utf-8")
    assert load_framework(Path(tmp_path / "mine.toml")).zero_stage == 2


def test_notes_of_a_file_go_to_stderr(run, tmp_path):
    (tmp_path / "config.json").write_text(
        '{"model_type": "llava", "vision_config": {"hidden_size": 8}, "text_config": {"model_type": "llama", "wandb_id": "x", '
        '"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}}',
        encoding="utf-8",
    )
    asked = ["estimate", "config.json", "--device", "rtx-4090", *WORK]
    code, _, err = run(*asked)
    assert code == 0 and "text tower" in err and "wandb_id" not in err
    code, out, err = run(*asked, "--verbose", "--json")
    assert strict(out) and "wandb_id" in err and all(line.startswith("costmodel: note: ") for line in err.splitlines())


def test_rows_of_a_compared_search_are_not_written_to_a_file(run, tmp_path):
    code, _, _ = run("search", "llama3.2-1b", "--cluster", "dgx-h100", *WORK, "--csv", "plans.csv")
    assert code == 0 and list(csv.reader((tmp_path / "plans.csv").read_text(encoding="utf-8").splitlines()))
