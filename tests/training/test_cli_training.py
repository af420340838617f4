"""`costmodel train`, and `--tokens` and `--price` beside a plan."""

import csv

import pytest

from costmodel.cli import main
from tests.commanding import refused, strict

QUESTION = ["llama3-8b", "--cluster", "dgx-h100", "--gpus", "64", "--global-batch", "512", "--seq-len", "8192"]
RUN = ["--tokens", "1e12", "--price", "2.5"]


@pytest.fixture
def run(capsys):
    def call(*argv):
        code = main(argv)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_train_tells_days_hours_money_and_energy_with_their_range(run):
    code, out, _ = run("train", *QUESTION, *RUN, "--mtbf-hours", "40000", "--storage-bandwidth", "20GB", "--carbon", "0.4")
    assert code == 0
    for word in ("days", "GPU-hours", "price", "MWh", "t CO2", "90 % from", "Goodput"):
        assert word in out


def test_train_takes_the_plan_that_is_given_and_else_the_fastest(run):
    fastest = strict(run("train", *QUESTION, *RUN, "--json")[1])
    given = strict(run("train", *QUESTION, *RUN, "--tensor-parallel", "8", "--json")[1])
    found = strict(run("search", *QUESTION, *RUN, "--top", "1", "--json")[1])["plans"][0]
    assert given["tensor_parallel"] == 8 and given["days"] > fastest["days"]
    for field in ("step_time_s", "days", "gpu_hours", "price", "energy_kwh", "days_high"):
        assert found[field] == pytest.approx(fastest[field])


def test_tokens_are_counted_as_people_write_them(run):
    for text in ("300e9", "300B", "0.3T", "300000M"):
        assert strict(run("train", *QUESTION, "--tensor-parallel", "2", "--tokens", text, "--json")[1])["tokens"] == 300e9


def test_search_and_estimate_add_what_a_run_takes(run, tmp_path):
    out = run("search", *QUESTION, *RUN, "--top", "2", "--csv", str(tmp_path / "plans.csv"))[1]
    assert all(f"{title}: " in out for title in ("days", "GPU-hours", "price", "MWh"))
    with (tmp_path / "plans.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 2
    assert float(rows[0]["price"]) == pytest.approx(2.5 * float(rows[0]["gpu_hours"]))
    assert "days" not in run("search", *QUESTION, "--top", "2")[1]
    whole = strict(run("estimate", *QUESTION, *RUN, "--tensor-parallel", "2", "--json")[1])
    assert whole["days_low"] < whole["days"] < whole["days_high"]


@pytest.mark.parametrize(("given", "hint"), [
    (["train", *QUESTION], "tokens"), (["train", *QUESTION, "--tokens", "many"], "many"),
    (["train", *QUESTION, "--tokens", "1e12", "--mtbf-hours", "40000"], "checkpoint-time"),
    (["train", *QUESTION, "--tokens", "1e12", "--law", "chinchila"], "chinchilla"),
    (["train", *QUESTION, "--tokens", "1e12", "--checkpoint-interval", "often"], "daly"),
    (["train", *QUESTION, "--tokens", "0"], "tokens"), (["search", *QUESTION, "--price", "2"], "--tokens"),
    (["estimate", *QUESTION, "--tokens", "-5"], "tokens"),
])  # fmt: skip
def test_bad_input_ends_in_one_line(run, tmp_path, given, hint):
    refused(run, tmp_path, given, hint)


def test_compare_shows_systems_side_by_side(run):
    code, out, _ = run("compare", "--systems", "resnet-50", "--cluster", "dgx-1v", "--gpus", "16", "--price", "2")
    assert code == 0
    for word in ("all-reduce", "PipeDream", "Downpour", "samples/s", "samples per price", "Not compared: "):
        assert word in out
    question = ["gpt2-xl", "--cluster", "dgx-a100", "--gpus", "16", "--global-batch", "64", "--seq-len", "1024"]
    found = strict(run("compare", "--systems", *question, "--json")[1])
    assert {row["system"] for row in found["systems"]} >= {"ZeRO-1", "1F1B", "tensor parallelism"} - set(found["refused"])


@pytest.mark.parametrize(("given", "hint"), [
    (["compare", "--systems", "resnet-51", "--cluster", "dgx-1v"], "resnet-51"),
    (["compare", "--systems", "resnet-50", "--cluster", "dgx-1v", "--seq-len", "5"], "seq_len"),
    (["compare", "--systems", "resnet-50", "--cluster", "dgx-1v", "--servers", "0"], "servers"),
])  # fmt: skip
def test_bad_comparisons_end_in_one_line(run, tmp_path, given, hint):
    refused(run, tmp_path, given, hint)
