"""Devices fitted to operators: constants that made the data are found, the relation pools, and measured sweeps are met."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

import costmodel
from calibration.__main__ import main
from calibration.data.micro import FILES, Sweep, busiest_share, read_sweeps
from calibration.data.reference import DEFAULT_FOLDER
from calibration.fit import operator_command
from calibration.fit.devices import Fitted, blank, field_of, fit_device, pooled, predict
from calibration.fit.earlier_sweeps import read_earlier
from calibration.fit.measured_collectives import collectives_in_words
from calibration.fit.measured_operators import measured_rows, read_measured
from calibration.fit.operator_command import errors
from costmodel.text.errors import UnreadableFile

measured = pytest.mark.skipif(not (DEFAULT_FOLDER / "micro").is_dir(), reason="no reference folder beside the checkout")
SHIPPED = operator_command.TARGET
TRUE = {"gemm.bf16": 0.7, "gemm_output.bf16": 4e-10, "gemm_depth.bf16": 150.0, "product_memory": 0.7}


def products(device: str = "h100-sxm", rows: int = 300) -> Sweep:
    """Products as a device with the constants `TRUE` would run them, within 2 %."""
    chance = np.random.default_rng(3)
    columns = {name: 2.0 ** chance.integers(7, 15, rows) for name in ("m", "n", "k")}
    sweep = Sweep("product", device, "bf16", "", columns, np.ones(rows), "synthetic")
    seconds = predict(sweep, blank(device), TRUE | {"best.bf16": 0.9}) * np.exp(chance.normal(0.0, 0.02, rows))
    return dataclasses.replace(sweep, seconds=seconds)


def test_constants_that_made_products_are_found():
    found = fit_device([products()], blank("h100-sxm"), {})
    for key in ("gemm.bf16", "product_memory"):
        assert found.values[key] == pytest.approx(TRUE[key], rel=0.05), key
    assert np.median(errors([products()], found.values, blank("h100-sxm"))) < 0.03


def test_no_fitted_rate_passes_the_best_that_was_measured():
    sweep = products()
    best = np.max(sweep.flop() / sweep.seconds) / blank("h100-sxm").peak("bf16")
    assert fit_device([sweep], blank("h100-sxm"), {}).values["gemm.bf16"] <= best


def attention(kernel: str, made: dict[str, float], rows: int = 200) -> Sweep:
    """Causal forward passes as a kernel with some constants would run them."""
    chance = np.random.default_rng(5)
    columns = {"batch": 2.0 ** chance.integers(0, 5, rows), "heads": 2.0 ** chance.integers(3, 7, rows),
               "head_dim": np.full(rows, 128.0), "seq_len": 2.0 ** chance.integers(9, 15, rows),
               "window": np.zeros(rows), "causal": np.ones(rows)}  # fmt: skip
    sweep = Sweep("attention", "h100-sxm", "bf16", kernel, columns, np.ones(rows), "synthetic")
    return dataclasses.replace(sweep, seconds=predict(sweep, blank("h100-sxm"), made))


def test_a_devices_attention_is_that_of_training_where_serving_was_measured_more_often():
    known = {"attention_forward": 0.8, "attention_length": 250.0}
    serving = {"attention bf16 causal serving/lost": 2.5, "attention bf16 causal serving/slowdown": 1.2}
    sweeps = [attention("causal serving", known | serving, 400), attention("causal training repeated", known)]
    found = fit_device(sweeps, blank("h100-sxm"), {}).values
    for key, value in (known | serving).items():
        assert found[key] == pytest.approx(value, rel=0.1), key


def test_where_only_serving_was_measured_others_say_what_training_loses():
    known = {"attention_forward": 0.8, "attention_length": 250.0}
    serving = {"attention bf16 causal serving/lost": 2.5, "attention bf16 causal serving/slowdown": 1.2}
    said = {key: (value, 0.1) for key, value in serving.items()}
    found = fit_device([attention("causal serving", known | serving)], blank("h100-sxm"), said).values
    assert found["attention_length"] == pytest.approx(250.0, rel=0.1)
    assert found["attention_forward"] == pytest.approx(0.8, rel=0.1)


def fitted(value: float) -> Fitted:
    return Fitted({"gemm.bf16": value}, {"gemm.bf16": 0.01}, frozenset({"gemm.bf16"}), ())


def test_a_device_left_out_takes_its_generation_and_else_what_all_say():
    fits = {"h100-sxm": fitted(0.8), "h200-sxm": fitted(0.8), "a100-sxm-80gb": fitted(0.6), "l40s": fitted(0.6)}
    hopper, spread = pooled(fits, "hopper", without="h100-sxm")["gemm.bf16"]
    unknown, wider = pooled(fits, "cdna3")["gemm.bf16"]
    assert 0.7 < hopper <= 0.8
    assert 0.6 < unknown < 0.8
    assert wider > spread > 0.0


def test_a_device_does_not_count_in_what_is_said_of_it_without_it():
    fits = {"h100-sxm": fitted(0.1), "h200-sxm": fitted(0.8)}
    assert pooled(fits, "hopper", without="h100-sxm")["gemm.bf16"][0] == pytest.approx(0.8)


def test_the_busiest_rank_has_a_fair_share_at_least_and_all_of_it_where_it_is_alone():
    assert busiest_share(1.2, 64.0, 1.0, 1024.0, 8.0) == pytest.approx(1.0)
    assert busiest_share(1.2, 64.0, 8.0, 1024.0, 8.0) > 1.0 / 8.0


def test_the_constant_of_a_key_is_named():
    assert [field_of(key) for key in ("memory", "gemm.fp8", "product fp8/overhead")] == ["memory", "gemm", "overhead"]


def test_a_folder_without_sweeps_is_refused(tmp_path):
    with pytest.raises(UnreadableFile, match="holds none of gemm_aic.csv"):
        read_sweeps(tmp_path)


@pytest.mark.parametrize("latency", ["0", "-1", "fast", "inf"])
def test_a_time_that_is_no_positive_number_is_refused(tmp_path, latency):
    (tmp_path / "micro").mkdir()
    header = "device,dtype,m,n,k,latency_s,source\n"
    (tmp_path / "micro" / "gemm_aic.csv").write_text(f"{header}h100-sxm,bfloat16,64,64,64,{latency},x\n", encoding="utf-8")
    with pytest.raises(UnreadableFile, match="gemm_aic.csv"):
        read_sweeps(tmp_path)


@measured
@pytest.mark.slow
@pytest.mark.parametrize("name", ["h100-sxm", "a100-sxm-80gb"])
def test_operators_of_a_device_are_met(name):
    """Flash attention of serving and of training, forward and backward, by one device."""
    trained = [sweep for sweep in read_earlier() if "training" in sweep.kernel]
    sweeps = [sweep for sweep in read_sweeps() + trained if sweep.device == name]
    found = fit_device(sweeps, blank(name), {})
    bars = {"product": 0.08, "grouped product": 0.12, "attention": 0.10, "attention backward": 0.10, "cast": 0.10}
    for sweep in sweeps:
        bar = 0.12 if sweep.dtype == "fp8-block" else bars[sweep.kind]
        if sweep.file in FILES:
            assert np.median(errors([sweep], found.values, blank(name))) <= bar, sweep.label
    for kind in {sweep.kind for sweep in sweeps if sweep.file not in FILES}:  # of FlashAttention 3 and cuDNN together
        mine = [sweep for sweep in sweeps if sweep.file not in FILES and sweep.kind == kind]
        assert np.median(errors(mine, found.values, blank(name))) <= bars[kind], kind


@measured
@pytest.mark.slow
def test_the_command_prints_every_kind_of_a_device(capsys, monkeypatch):
    for name in ("read_sweeps", "read_earlier"):  # of one device: each is fitted by itself
        read = getattr(operator_command, name)
        monkeypatch.setattr(
            operator_command, name, lambda folder, read=read: [one for one in read(folder) if one.device == "h100-sxm"]
        )
    assert main(["operators", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["operators"]
    assert {line["kind"] for line in found} >= {"product", "grouped product", "attention", "cast"}
    assert {line["device"] for line in found} == {"h100-sxm"}


# ---- files of `measure`


def measured_file(path: Path, rows: list[dict], device: str = "NVIDIA H200") -> Path:
    """A file as `measure` writes it."""
    path.write_text(json.dumps({"schema": 2, "environment": {"device": device}, "rows": rows}), encoding="utf-8")
    return path


def refused(capsys, path: Path) -> str:
    """The one line with which ``operators`` refuses a file."""
    assert main(["operators", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("calibration: error: ")
    return said.err


def test_a_device_that_the_catalogue_lacks_is_refused_by_name(tmp_path, capsys):
    assert "'Abacus 3000' is not in the catalogue" in refused(capsys, measured_file(tmp_path / "a.json", [], "Abacus 3000"))


@pytest.mark.parametrize(("driver", "name"), [("NVIDIA L40S", "l40s"), ("Tesla V100-SXM3-32GB", "v100-sxm3-32gb")])
def test_any_device_of_the_catalogue_may_have_been_measured(tmp_path, driver, name):
    assert measured_rows(measured_file(tmp_path / "a.json", [], driver)) == (name, [])


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"environment": {}}', "\x00"])
def test_a_file_that_measure_did_not_write_is_refused_in_one_line(tmp_path, capsys, text):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    assert "not a file of `calibration measure`" in refused(capsys, path)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_measured_time_that_is_no_positive_number_is_refused(tmp_path, capsys, seconds):
    row = {"family": "copy", "nbytes": 4096, "seconds": seconds}
    assert "no positive number" in refused(capsys, measured_file(tmp_path / "a.json", [row]))


def test_measured_rows_become_sweeps(tmp_path):
    attention = {"family": "attention", "batch": 1, "heads": 2, "head_dim": 64, "seq": 128, "causal": True, "dtype": "bf16"}
    rows = [
        {"family": "gemm", "dtype": "bf16", "m": 1, "n": 2, "k": 3, "seconds": 1.0},
        {**attention, "kernel": "flash", "direction": "backward", "seconds": 9.0},  # cuDNN's is the newer kernel
        {**attention, "kernel": "cudnn", "direction": "backward", "seconds": 2.0},
        {"family": "copy", "nbytes": 1000, "seconds": 3.0},
        {"family": "collective", "op": "all_reduce", "ranks": 4, "nbytes": 2**20, "seconds": 4.0},
    ]
    product, backward, stream = read_measured(measured_file(tmp_path / "a.json", rows))
    assert [(one.kind, one.device, list(one.seconds)) for one in (product, backward, stream)] == [
        ("product", "h200-sxm", [1.0]), ("attention backward", "h200-sxm", [2.0]), ("stream", "h200-sxm", [3.0]),
    ]  # fmt: skip
    assert product.flop() == 12.0
    assert stream.columns["nbytes"] == 2000.0  # read and written


def test_constants_of_a_machine_follow_from_its_file_and_those_that_it_does_not_tell_stay(tmp_path, capsys, monkeypatch):
    sweep = products(rows=150)
    sizes = [{name: float(sweep.columns[name][row]) for name in ("m", "n", "k")} for row in range(len(sweep.seconds))]
    rows = [{"family": "gemm", "dtype": "bf16", **of, "seconds": time} for of, time in zip(sizes, sweep.seconds, strict=True)]
    target, collectors = tmp_path / "efficiencies.toml", tmp_path / "collectors.csv"
    for name, place in (("TARGET", target), ("COLLECTORS", collectors)):
        place.write_bytes(getattr(operator_command, name).read_bytes())
        monkeypatch.setattr(operator_command, name, place)
    path = measured_file(tmp_path / "mine.json", rows, "NVIDIA H100 80GB HBM3")
    assert main(["operators", "--write", str(path)]) == 0
    assert "product bf16" in capsys.readouterr().out
    before, after = (tomllib.loads(file.read_text(encoding="utf-8")) for file in (SHIPPED, target))
    told, known = after.pop("h100-sxm"), before.pop("h100-sxm")
    assert after == before
    assert told["gemm"]["bf16"] == pytest.approx(TRUE["gemm.bf16"], rel=0.05)
    assert told["product_memory"] == pytest.approx(TRUE["product_memory"], rel=0.05)
    assert told["gemm"]["fp8"] == known["gemm"]["fp8"] and told["attention_forward"] == known["attention_forward"]
    assert "mine.json" in told["measurements"]
    told_of = operator_command.read_overheads()
    monkeypatch.undo()
    kept = operator_command.read_overheads()
    assert told_of.keys() == kept.keys() and told_of["h100-sxm"].keys() >= kept["h100-sxm"].keys()
    assert {name: of for name, of in told_of.items() if name != "h100-sxm"} == {
        name: of for name, of in kept.items() if name != "h100-sxm"
    }  # fmt: skip


def test_collectives_of_a_file_stand_beside_what_the_library_says_of_a_node(tmp_path):
    node = costmodel.machine("h100-sxm", 4)
    rows = [
        {"family": "collective", "op": "all_reduce", "ranks": 4, "nbytes": nbytes,
         "seconds": costmodel.collective_time("all-reduce", float(nbytes), 4, node).time / 1.25}
        for nbytes in (2**10, 2**20, 2**26, 2**30)
    ]  # fmt: skip
    rows.append({"family": "collective", "op": "send_recv", "ranks": 2, "nbytes": 2**20, "seconds": 6.0})
    path = measured_file(tmp_path / "a.json", rows, "NVIDIA H100 80GB HBM3")
    assert collectives_in_words(path) == ["all-reduce among 4 GPUs: 3 sizes from 1 MiB, +25.0% of what was measured"]


PROFILED_HEADER = "gpu,family,op,tp,fwd_us,bwd_us,weights_mb,activations_mb\n"


@pytest.mark.parametrize(
    ("row", "sizes", "seconds"),
    [  # rows of microsoft/SuperScaler@fa80ad02c1 profiler/profiled-time-eurosys: hidden 5120 and 2,048 tokens a sample
        ("V100-32GB,gpt,enc-MLP-GEMM-1,1,5034.291,8754.508,200.0,80.0", (2048, 20480, 5120), 5.034291e-3),
        ("V100-32GB,gpt,enc-MLP-GEMM-1,8,5009.1,10752.6,25.0,80.0", (16384, 2560, 5120), 5.0091e-3),
        ("V100-32GB,gpt,enc-MLP-GEMM-2,4,3449.3,4201.9,50.0,40.0", (4096, 5120, 5120), 2.10095e-3),
    ],
)
def test_profiled_layers_give_the_products_of_their_mlps(tmp_path, row, sizes, seconds):
    others = "V100-32GB,gpt,enc-attention-softmax,1,763.3,1021.6,0.0,320.0\nV100-32GB,resnet,enc-MLP-GEMM-1,1,1,1,1,1\n"
    short = "V100-32GB,gpt,enc-MLP-GEMM-1,8,88.7,437.4,0.25,2.0\n"
    (tmp_path / "micro").mkdir()
    (tmp_path / "micro" / "ops_aceso_v100.csv").write_text(PROFILED_HEADER + row + "\n" + others + short, encoding="utf-8")
    (found,) = (sweep for sweep in read_earlier(tmp_path) if sweep.file == "ops_aceso_v100.csv")
    assert [float(found.columns[key][0]) for key in ("m", "n", "k")] == pytest.approx(sizes, rel=1e-3)
    assert found.seconds == pytest.approx([seconds])
    assert 0.5 * 125e12 < found.flop()[0] / found.seconds[0] < 125e12
