"""Devices and clusters of the catalogue, and files that users write."""

import ast
import operator
import re
import tomllib
from importlib import resources

import pytest

from costmodel.catalogue import clusters, files, loader
from costmodel.description.device import Efficiency
from costmodel.formulas.compute import base_product_rate, grouped_product_rate, product_rate
from costmodel.text.errors import CostModelError, InvalidValue, UnknownName, UnreadableFile

GB, GiB = 1e9, 2**30
KINDS = {"specified", "measured", "derived", "assumed"}


def table(file):
    return tomllib.loads(resources.files("costmodel.catalogue").joinpath(file).read_text(encoding="utf-8"))


DEVICES, CLUSTERS, EFFICIENCIES = table("devices.toml"), table("clusters.toml"), table("efficiencies.toml")


def product(expression):
    """Value of an expression of numbers, `*` and parentheses; anything else raises."""

    def value(node):
        match node:
            case ast.Expression(body=body):
                return value(body)
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return operator.mul(value(left), value(right))
        raise AssertionError(f"{expression!r} holds {ast.dump(node)}")

    return value(ast.parse(expression, mode="eval"))


CHECKED = [name for name, entry in DEVICES.items() if "check" in entry["provenance"]["dense_peak"]]


# The files


@pytest.mark.parametrize("file", ["devices.toml", "clusters.toml", "efficiencies.toml", "layer_efficiencies.toml"])
def test_scanning_for_headers_finds_what_a_full_parse_finds(file):
    whole = table(file)
    assert list(files.places(file)) == list(whole)
    assert all(files.entry_of(file, name) == entry for name, entry in whole.items())


def test_every_model_file_is_scanned_as_it_parses():
    for file in loader._model_files():
        assert {name: files.entry_of(file, name) for name in files.places(file)} == table(file)


def test_ids_are_kebab_case():
    for name in (*DEVICES, *CLUSTERS):
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name), name


# Devices


def test_a_device_loads_and_has_a_16_bit_rate():
    for name in DEVICES:
        device = loader.load_device(name)
        assert device.name == name, name
        assert device.title, name
        assert device.architecture != "unknown", name
        assert {"bf16", "fp16"} & set(device.dense_peak), name
        numbers = device.numbers("bf16" if "bf16" in device.dense_peak else "fp16")
        assert 0 < numbers.memory <= device.memory, name


def test_every_value_of_a_device_has_provenance():
    for name in DEVICES:
        entry = DEVICES[name]
        origins = entry["provenance"]
        assert set(origins) == set(entry) - {"title", "architecture", "provenance"}, name
        for value, origin in origins.items():
            assert set(origin) <= {"source", "kind", "check"} | ({"lacks"} if value == "dense_peak" else set())
            assert origin["kind"] in KINDS, name
            assert len(origin["source"]) > 5, name


@pytest.mark.parametrize("name", CHECKED)
def test_a_dense_peak_is_clock_times_units(name):
    peaks = DEVICES[name]["dense_peak"]
    check = product(DEVICES[name]["provenance"]["dense_peak"]["check"])
    assert peaks.get("bf16", peaks.get("fp16")) == pytest.approx(check, rel=0.01)


SIXTEEN = {"bf16", "fp16"}
RATES = {  # what the matrix units multiply, and fp32; before there were any, what the vector units multiply
    "maxwell": {"fp16", "fp32"}, "pascal": {"fp16", "fp32"}, "volta": {"fp16", "fp32"},
    "turing": {"fp16", "fp32", "int8"},  # NVIDIA Turing GPU architecture whitepaper
    "ampere": SIXTEEN | {"tf32", "fp32", "int8"},  # NVIDIA A100 Tensor Core GPU architecture whitepaper, table 4
    "ada": SIXTEEN | {"tf32", "fp32", "fp8", "int8"},  # NVIDIA Ada GPU architecture whitepaper, appendix A
    "hopper": SIXTEEN | {"tf32", "fp32", "fp8", "int8"},  # NVIDIA H100 Tensor Core GPU architecture whitepaper, table 2
    "blackwell": SIXTEEN | {"tf32", "fp32", "fp8", "fp4", "int8"},
    "blackwell-ultra": SIXTEEN | {"tf32", "fp32", "fp8", "fp4", "int8"},
    "blackwell-rtx": SIXTEEN | {"tf32", "fp32", "fp8", "fp4", "int8"},  # NVIDIA RTX Blackwell whitepaper, appendix A
    "cdna2": SIXTEEN | {"fp32", "int8"}, "cdna3": SIXTEEN | {"tf32", "fp32", "fp8", "int8"},
    "cdna4": SIXTEEN | {"fp32", "fp8", "fp4", "int8"},  # AMD CDNA 4 white paper: tf32 is no more
    "rdna3": SIXTEEN | {"fp32", "int8"},  # gpuopen.com/learn/wmma_on_rdna3
    "xe-hpc": SIXTEEN | {"tf32", "fp32", "int8"}, "gaudi": SIXTEEN | {"tf32", "fp32", "fp8"},
    "ascend": SIXTEEN, "tpu": {"bf16", "fp8", "int8"}, "trainium": SIXTEEN | {"tf32", "fp32", "fp8", "int8"},
}  # fmt: skip


def test_a_device_states_every_rate_of_its_architecture_or_says_that_it_has_none():
    for name in DEVICES:
        entry = DEVICES[name]
        lacks = entry["provenance"]["dense_peak"].get("lacks", {})
        assert set(entry["dense_peak"]) | set(lacks) == RATES[entry["architecture"]], name
        assert not set(entry["dense_peak"]) & set(lacks), name
        assert all(len(reason) > 10 for reason in lacks.values()), name


def test_a_device_states_the_rate_to_its_host():
    for name in DEVICES:
        assert DEVICES[name]["host_bandwidth"] > 5 * GB, name


@pytest.mark.parametrize("architecture", RATES)
def test_cards_of_one_architecture_and_slot_reach_their_hosts_alike(architecture):
    of_cards = {
        entry["provenance"]["host_bandwidth"]["source"].partition("PCIe gen")[2][:1]: entry["host_bandwidth"]
        for entry in DEVICES.values()
        if entry["architecture"] == architecture and "PCIe gen" in entry["provenance"]["host_bandwidth"]["source"]
    }
    assert len(set(of_cards.values())) == len(of_cards)


def test_two_cards_of_the_newest_kind_are_linked_as_fast_as_two_of_the_next():  # both on PCIe gen5
    newest, following = (clusters.load_cluster(device=name, gpus=2).levels[0] for name in ("rtx-5090", "rtx-5080"))
    assert (newest.bandwidth, newest.line_rate) == (following.bandwidth, following.line_rate)


@pytest.mark.parametrize(("name", "dtype", "rate"), [
    ("h100-nvl", "fp8", 1670.5e12), ("h100-nvl", "fp16", 835e12), ("h100-nvl", "tf32", 417.5e12), ("rtx-5090", "fp8", 419e12),
    ("a800", "fp32", 19.5e12), ("h800", "fp32", 66.9e12), ("mi250x-gcd", "fp32", 23.95e12),
])  # fmt: skip
def test_a_rate_is_that_of_the_data_sheet(name, dtype, rate):
    assert loader.load_device(name).peak(dtype) == pytest.approx(rate, rel=0.001)


def test_nodes_of_a_cluster_are_linked():
    for name in CLUSTERS:
        assert len(CLUSTERS[name]["levels"]) >= 2, name


def test_most_devices_carry_a_check():
    assert len(CHECKED) >= 0.7 * len(DEVICES)


def test_narrower_numbers_are_not_slower():
    for name in DEVICES:
        peaks = DEVICES[name]["dense_peak"]
        order = [peaks[dtype] for dtype in ("fp32", "tf32", "fp16", "fp8", "fp4") if dtype in peaks]
        assert order == sorted(order), name
        if {"bf16", "fp16"} <= set(peaks):
            assert peaks["bf16"] == peaks["fp16"], name
        if "fp8" in peaks and name != "gaudi3":
            assert peaks["fp8"] <= 2.03 * peaks["bf16"]  # a sparse figure would be four times


def test_the_devices_of_measured_runs_are_there():
    wanted = {
        *(
            "v100-sxm-16gb",
            "v100-sxm-32gb",
            "a100-sxm-40gb",
            "a100-sxm-80gb",
            "a100-pcie-40gb",
            "a100-pcie-80gb",
        ),
        *(
            "a800",
            "h100-sxm",
            "h100-96gb-hbm2e",
            "h200-sxm",
            "h800",
            "b200-sxm",
            "b300-sxm",
            "gb200",
            "gb300",
        ),
    }
    assert wanted <= set(loader.names("device"))


def test_h100_is_listed_dense():
    assert loader.load_device("h100-sxm").peak("bf16") == 989.4e12
    assert loader.load_device("h100-sxm").peak("tf32") == 494.7e12  # 156e12 is the A100


def test_an_h100_nvl_is_one_card():
    assert loader.load_device("h100-nvl").peak("bf16") == 835e12


def test_an_l4_has_its_own_memory_bandwidth_and_dense_rates():
    device = loader.load_device("l4")
    assert device.memory_bandwidth == 300 * GB
    assert device.peak("bf16") == 121e12


def test_an_a100_has_no_fp8():
    assert "fp8" not in loader.load_device("a100-sxm-80gb").dense_peak


@pytest.mark.parametrize(
    ("name", "rate"), [("rtx-3090", 71e12), ("rtx-4090", 165.2e12), ("rtx-5090", 209.5e12)]
)
def test_geforce_rates_accumulate_in_fp32(name, rate):
    assert loader.load_device(name).peak("bf16") == rate


def test_a_v100_with_16_gb_has_16_gb():
    assert loader.load_device("v100-sxm-16gb").memory == 16 * GiB


def test_an_mi250x_is_entered_as_one_die():
    device = loader.load_device("mi250x-gcd")
    assert device.peak("bf16") == 191.5e12
    assert device.memory == 64 * GiB


def test_a_b200_holds_what_is_sold_not_what_is_on_the_package():
    device = loader.load_device("b200-sxm")
    assert device.memory == 180 * GiB
    assert 178 * GiB < device.usable_memory < 180 * GiB


@pytest.mark.parametrize(
    ("name", "usable"),
    [("a100-sxm-80gb", 79.15), ("h100-sxm", 79.15), ("h200-sxm", 139.8), ("v100-sxm-32gb", 31.74)],
)
def test_a_process_sees_less_than_the_label(name, usable):
    assert loader.load_device(name).usable_memory / GiB == pytest.approx(usable, abs=0.1)


# Constants


@pytest.mark.parametrize("name", [name for name in EFFICIENCIES if name != "pooled"])
def test_constants_are_of_devices_that_exist(name):
    assert name in DEVICES
    assert loader.efficiency_source(name) == "measured"
    assert isinstance(loader.load_device(name).efficiency, Efficiency)
    assert set(EFFICIENCIES[name]["standard_error"]) & set(loader._EFFICIENCY_KEYS)


def test_a_device_without_measurement_takes_what_is_pooled_and_says_so():
    assert loader.efficiency_source("h800") == "pooled over hopper"
    assert loader.load_device("h800").efficiency.gemm == dict(loader._pooled("hopper")["gemm"])
    assert loader.efficiency_source("tpu-v3") == "pooled over all devices"


BEST_PRODUCTS = [  # stas00/ml-engineering@744d01e compute/accelerator/README.md
    ("mi300x", {"bf16": 668.4e12}), ("mi325x", {"bf16": 784.9e12}), ("mi355x", {"bf16": 1565e12}),
    ("gaudi2", {"bf16": 418.7e12, "fp8": 826.5e12}), ("gaudi3", {"bf16": 1243e12, "fp8": 1289.5e12}),
    ("tpu-v5e", {"bf16": 181.8e12}),  # jax-ml/jax@1082251 docs/pallas/tpu/matmul.ipynb
    ("tpu-v6e", {"bf16": 827.5e12}), ("tpu-v7", {"bf16": 1912.8e12}),  # AI-Hypercomputer/tpu-recipes@c8cfe2f microbenchmarks
]  # fmt: skip


@pytest.mark.parametrize(("name", "best"), BEST_PRODUCTS)
def test_a_device_of_which_only_the_best_product_was_measured_reaches_it_and_no_more(name, best):
    assert loader.efficiency_source(name) == "pooled over all devices, at its own best product"
    device, other = loader.load_device(name), loader.load_device("tpu-v3").efficiency
    for dtype, rate in best.items():
        numbers = device.numbers(dtype)
        assert numbers.best_flop_rate == pytest.approx(rate)
        assert 0.6 * rate < numbers.gemm_efficiency * numbers.flop_rate < rate
    ratio = {dtype: rate / device.peak(dtype) / other.best[dtype] for dtype, rate in best.items()}
    for field in ("best", "gemm", "grouped"):
        found, pooled = getattr(device.efficiency, field), getattr(other, field)
        of = {dtype: ratio["bf16"] if dtype == "bf16" else ratio.get(dtype[:3], ratio["bf16"]) for dtype in pooled}
        assert found == pytest.approx({dtype: min(of[dtype] * value, 1.0) for dtype, value in pooled.items()})


def test_a_published_best_product_is_known_better_than_what_is_pooled():
    known, source = loader.constant_errors("mi300x")
    pooled, _ = loader.constant_errors("tpu-v3")
    assert source == "pooled over all devices, at its own best product"
    assert known["best.bf16"] == 0.05
    assert known["gemm.bf16"] ** 2 == pytest.approx(pooled["gemm.bf16"] ** 2 - pooled["best.bf16"] ** 2)
    assert 0.05 <= known["grouped.bf16"] < pooled["grouped.bf16"]
    assert known["memory"] == pooled["memory"] and known["best.fp8"] == pooled["best.fp8"]


ACCELERATOR = """
dense_peak = {{ bf16 = "400 TFLOP/s", fp8 = "800 TFLOP/s" }}
memory = "96 GiB"
memory_bandwidth = "2 TB/s"
best_product = {{ {best} }}
"""


def test_a_users_device_may_tell_its_best_product(tmp_path):
    path = tmp_path / "accelerator.toml"
    path.write_text(ACCELERATOR.format(best='bf16 = "200 TFLOP/s"'))
    assert loader.read_device_file(path).numbers("bf16").best_flop_rate == pytest.approx(200e12)


@pytest.mark.parametrize(
    ("best", "told"),
    [
        ("fp8 = 7e14", "best_product.*for bf16"),
        ("bf16 = 5e14", "best_product.bf16"),
        ("bf16 = 2e14, fp4 = 1e14", "best_product.*fp4.*bf16 or fp8"),
        ('bf16 = "fast"', "best_product.bf16"),
    ],
)
def test_a_best_product_that_cannot_be_is_refused(tmp_path, best, told):
    path = tmp_path / "accelerator.toml"
    path.write_text(ACCELERATOR.format(best=best))
    with pytest.raises(CostModelError, match=told):
        loader.read_device_file(path)


def test_a_best_product_under_the_name_of_a_measured_device_is_refused(tmp_path):
    path = tmp_path / "h100-sxm.toml"
    path.write_text(ACCELERATOR.format(best="bf16 = 2e14"))
    with pytest.raises(CostModelError, match=r"best_product.*h100-sxm.*another name"):
        loader.read_device_file(path)


def test_what_is_pooled_lies_among_what_was_measured():
    measured = [EFFICIENCIES[name]["gemm"]["bf16"] for name in EFFICIENCIES if "gemm" in EFFICIENCIES[name]]
    for relation in (entry for entry in EFFICIENCIES["pooled"].values() if isinstance(entry, dict)):
        assert min(measured) <= relation["gemm"]["bf16"] <= max(measured)
        assert relation["standard_error"]["gemm.bf16"] >= 0.05


def test_no_rate_of_a_device_passes_its_best_or_its_memory():
    for name in DEVICES:
        device = loader.load_device(name)
        for dtype in ("bf16" if "bf16" in device.dense_peak else "fp16", "fp8", "nvfp4"):
            if (dtype != "nvfp4" and dtype not in device.dense_peak) or (dtype == "nvfp4" and "fp4" not in device.dense_peak):
                continue
            numbers = device.numbers(dtype)
            for rate in (product_rate, base_product_rate, grouped_product_rate):
                best = numbers.base_best_flop_rate if rate is base_product_rate else numbers.best_flop_rate
                assert rate(1.2, numbers) <= best * (1 + 1e-12), name
                assert best <= 1.2 * device.peak(dtype), name
            of_memory = numbers.memory_bandwidth, numbers.cast_bandwidth, numbers.product_bandwidth, numbers.grouped_bandwidth
            assert max(of_memory) <= device.memory_bandwidth, name


# Clusters


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_loads(name):
    cluster = clusters.load_cluster(name)
    assert cluster.title
    assert cluster.gpus == cluster.levels[-1].size
    assert clusters.load_cluster(name, gpus=cluster.gpus_per_node).gpus == cluster.gpus_per_node
    cluster.numbers()
    bandwidths = [level.bandwidth for level in cluster.levels]
    assert bandwidths == sorted(bandwidths, reverse=True)


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_level_has_provenance_and_reaches_no_more_than_specified(name):
    entry = CLUSTERS[name]
    origins = entry["provenance"]
    known = {"host_memory"} if "host_memory" in entry else set()
    assert set(origins) == {"system"} | known | {level["name"] for level in entry["levels"]}
    assert all(origins[name]["kind"] in KINDS and origins[name]["source"] for name in known)
    assert origins["system"]["kind"] in KINDS
    for level in entry["levels"]:
        bandwidth, latency = origins[level["name"]]["bandwidth"], origins[level["name"]]["latency"]
        assert 0.5 * bandwidth["specified"] < level["bandwidth"] <= bandwidth["specified"]
        assert {bandwidth["kind"], latency["kind"]} <= KINDS
        assert bandwidth["source"]
        assert latency["source"]


@pytest.mark.parametrize("name", CLUSTERS)
def test_nvlink_of_a_cluster_is_that_of_its_device(name):
    cluster, link = CLUSTERS[name], DEVICES[CLUSTERS[name]["device"]].get("link_bandwidth_per_direction")
    if cluster["levels"][0]["name"] in ("nvlink", "xgmi"):
        assert cluster["provenance"][cluster["levels"][0]["name"]]["bandwidth"]["specified"] == link


def test_azure_pages_print_gigabytes_for_gigabits():
    assert 20 * GB < clusters.load_cluster("azure-nd-a100-v4").levels[1].bandwidth <= 25 * GB


def test_the_nic_of_the_machine_itself_is_not_for_gpus():
    specified = loader.provenance("cluster", "gcp-a3-mega")["tcpxo"]["bandwidth"]["specified"]
    assert specified * 8 * 8 == 1600 * GB


# Names


@pytest.mark.parametrize("load", [loader.load_device, clusters.load_cluster, loader.load_model])
def test_an_unknown_name_is_told_from_its_neighbours(load):
    with pytest.raises(UnknownName, match="no .* named 'h100-smx'"):
        load("h100-smx")


def test_provenance_is_a_copy():
    loader.provenance("device", "l4")["memory"]["source"] = "elsewhere"
    assert loader.provenance("device", "l4")["memory"]["source"] != "elsewhere"
    loader.load_device("l4").dense_peak["bf16"] = 1.0
    assert loader.load_device("l4").peak("bf16") == 121e12


# Files of users

DEVICE = """
dense_peak = { bf16 = 1e14 }
memory = 48_000_000_000
memory_bandwidth = 1e12
"""
CLUSTER = """
device = "h100-sxm"
levels = [{ name = "nvlink", size = 8, latency = 3e-6, bandwidth = 4e11 }]
"""
MODEL = "layers = 2\nhidden = 64\nheads = 4\nvocabulary = 100\nfeed_forward = 256\n"
READERS = {
    "device": (loader.read_device_file, DEVICE),
    "cluster": (loader.read_cluster_file, CLUSTER),
    "model": (loader.read_model_file, MODEL),
}


def write(folder, content):
    file = folder / "mine.toml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@pytest.mark.parametrize("kind", READERS)
def test_a_file_holds_one_entry_at_top_level_or_in_a_table(tmp_path, kind):
    read, content = READERS[kind]
    assert read(write(tmp_path, content)).name == "mine"
    assert read(write(tmp_path, "[other]\n" + content)).name == "other"
    assert read(write(tmp_path, 'name = "third"\n' + content)).name == "third"


def test_a_user_may_give_some_of_the_constants(tmp_path):
    plain = loader.read_device_file(write(tmp_path, 'architecture = "hopper"\n' + DEVICE))
    assert plain.efficiency == loader.load_device("h800").efficiency
    content = DEVICE + "[efficiency]\nmemory = 0.5\ngemm = { bf16 = 0.4 }\n"
    own = loader.read_device_file(write(tmp_path, content))
    assert (own.efficiency.memory, own.gemm_efficiency("bf16")) == (0.5, 0.4)
    assert own.efficiency.kernel_time == EFFICIENCIES["pooled"]["default"]["kernel_time"]


def test_a_cluster_file_may_bring_its_device(tmp_path):
    content = CLUSTER.replace('"h100-sxm"', "{ " + ", ".join(DEVICE.strip().splitlines()) + " }")
    cluster = loader.read_cluster_file(write(tmp_path, "gpus = 4\n" + content))
    assert cluster.gpus == 4
    assert cluster.device.peak("bf16") == 1e14


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text + "[a]\n[b]\n", "holds 2 entries|unknown key 'a'"),
        (lambda text: "hiden = 1\n" + text, "unknown key 'hiden'"),
        (lambda text: "memorie = 1\n" + text, r"unknown key 'memorie'.*\(known: name, "),
        (lambda text: "x = [\n", "not TOML"),
        (lambda text: b"\xff\xfe", "not UTF-8"),
        (lambda text: "x = " + "[" * 100_000, "nested too deeply|not TOML"),
        (lambda text: "name." + "a." * 20 + "a = 1\n" + text, "at most 8"),
        (lambda text: "name." + "a." * 400_000 + "a = 1\n" + text, "line 1 has more than 32 dots"),
        (lambda text: "name = 5\n" + text, "name=5"),
        (lambda text: 'name = "a\\nb"\n' + text, "control characters"),
        (lambda text: '"a\\nb" = 1\n' + text, "control characters"),
        (lambda text: "title = 3\n" + text, "title=3"),
        (lambda text: "#" * 2**20 + "\n" + text, "larger than"),
        (lambda text: "", "missing"),
        (lambda text: "size = 0x" + "f" * 10_000, "unknown key|size"),
    ],
)
def test_a_bad_file_is_told_in_one_line(tmp_path, kind, change, told):
    read, content = READERS[kind]
    with pytest.raises(CostModelError, match=told) as caught:
        read(write(tmp_path, change(content)))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("kind", READERS)
def test_a_file_that_cannot_be_read_is_told_in_one_line(tmp_path, kind):
    read, _ = READERS[kind]
    for path in (tmp_path / "none.toml", tmp_path, "a\0b", "/dev/zero", ""):
        with pytest.raises(UnreadableFile) as caught:
            read(path)
        assert "\n" not in str(caught.value)


VALUES = [
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "true",
    '"text"',
    "[]",
    "{}",
    "{ a = 1 }",
    "[[1]]",
    "1979-05-27",
    "1e400",
    "1.5",
    "1" + "0" * 400,
    "1" + "0" * 5000,
    "0x" + "f" * 5000,
    '""',
    "{ bf16 = nan }",
    "{ bf16 = 'x' }",
    "[{ name = 1 }]",
    "[{}]",
    "[{ name = 'a', size = 0, latency = 0, bandwidth = 1 }]",
    "{ memory = 'x' }",
    "{ gemm = 1 }",
    "{ gemm = { int7 = 1.0 } }",
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_only_our_errors_escape_whatever_a_field_holds(tmp_path, kind, value):
    read, content = READERS[kind]
    lines = content.strip().splitlines()
    keys = {"device": loader._DEVICE_KEYS, "cluster": loader._CLUSTER_KEYS, "model": loader._MODEL_KEYS}[kind]
    for key in keys:
        kept = [line for line in lines if not line.startswith(f"{key} =")]
        try:
            read(write(tmp_path, "\n".join([f"{key} = {value}", *kept])))
        except CostModelError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 2000
        else:
            assert not re.search("nan|inf", value) or key == "provenance"


def test_a_number_that_is_not_one_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidValue, match="memory_bandwidth=nan: expected a finite number"):
        loader.read_device_file(write(tmp_path, DEVICE.replace("1e12", "nan")))
    with pytest.raises(InvalidValue, match=r"levels\[0\].latency=inf"):
        loader.read_cluster_file(write(tmp_path, CLUSTER.replace("3e-6", "inf")))


# What CUDA calls them

CAPABILITIES = {  # developer.nvidia.com/cuda-gpus
    "maxwell": {(5, 2)}, "pascal": {(6, 0), (6, 1)}, "volta": {(7, 0)}, "turing": {(7, 5)}, "ampere": {(8, 0), (8, 6)},
    "ada": {(8, 9)}, "hopper": {(9, 0)}, "blackwell": {(10, 0)}, "blackwell-ultra": {(10, 3)},
    "blackwell-rtx": {(12, 0), (12, 1)},
}  # fmt: skip


def test_a_device_has_a_compute_capability_of_its_architecture_where_it_is_nvidias():
    for name in DEVICES:
        found = loader.compute_capability(name)
        assert found in CAPABILITIES.get(DEVICES[name]["architecture"], {None}), name


@pytest.mark.parametrize(("name", "capability"), [
    ("rtx-a6000", (8, 6)), ("l40s", (8, 9)), ("rtx-5090", (12, 0)), ("gb300", (10, 3)), ("p100-pcie-16gb", (6, 0)),
    ("gtx-1080-ti", (6, 1)), ("gh200-96gb", (9, 0)), ("titan-v", (7, 0)), ("mi300x", (9, 0)),
])  # fmt: skip
def test_a_program_that_is_traced_is_told_the_capability_of_its_device(name, capability):
    from costmodel.traces.running import device_facts

    assert device_facts(clusters.load_cluster(device=name, gpus=1))["capability"] == capability


@pytest.mark.parametrize(("written", "name"), [
    ("GH200 480GB", "gh200-96gb"), ("NVIDIA GeForce RTX 3090 Ti", "rtx-3090-ti"), ("RTX 3070", "rtx-3070"),
    ("Quadro RTX 8000", "quadro-rtx-8000"), ("H200 NVL", "h200-nvl"), ("RTX A4500", "rtx-a4500"), ("MI250", "mi250-gcd"),
    ("TITAN RTX", "titan-rtx"),
])  # fmt: skip
def test_devices_of_measured_runs_are_found_as_their_tools_write_them(written, name):
    assert loader.load_device(written).name == name
