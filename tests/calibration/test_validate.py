"""``python -m calibration validate``: records in, every record out with its prediction or the reason, campaigns alike."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import costmodel
from calibration.__main__ import main
from calibration.data.reference import QUOTED
from calibration.validate import figures, readme
from calibration.validate.command import lines_of
from calibration.validate.judged import COLUMNS, judged, table
from calibration.validate.pages import markdown
from calibration.validate.scores import report, score
from calibration.validate.unstated import doubts_of, widened
from costmodel import load_runs
from costmodel.catalogue.accuracy import HEADINGS, as_cells
from costmodel.catalogue.records import read_records
from costmodel.evaluation.counted_memory import Count, counted
from costmodel.evaluation.many_questions import estimates_of
from costmodel.text.errors import CostModelError

ROWS = [json.loads(line) for line in QUOTED.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def quoted():
    """The quoted tables, judged."""
    return judged([QUOTED])


@pytest.fixture
def written(tmp_path):
    """Write records into a file."""

    def write(*records: object, name: str = "mine.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in records), encoding="utf-8")
        return path

    return write


def changed(row: dict, **groups: dict) -> dict:
    return {**row, **{name: {**row.get(name, {}), **values} for name, values in groups.items()}}


def parsed(text: str):
    def refuse(constant):
        raise AssertionError(f"{constant} in the JSON")

    return json.loads(text, parse_constant=refuse)


# ---- what is judged: what a user gets


def test_every_record_is_what_estimate_and_its_intervals_say(quoted):
    for run, row in zip(load_runs(QUOTED), quoted, strict=True):
        made = costmodel.estimate(run.model, run.cluster, run.plan, run.framework)
        assert row.seconds == pytest.approx((run.step_time, made.step_time, *row.seconds[2:]))
        assert row.fits == made.fits
        low, high = widened(made.time_interval, [doubt.time for doubt in row.doubts.values()])
        assert row.seconds[2:] == pytest.approx((low, high), rel=1e-4)


def test_a_bad_record_is_listed_with_its_reason_and_stops_no_other(written, capsys):
    odd = [
        "{", "[]", changed(ROWS[0], software={"attention_kernel": "flash9"}), {"id": "empty", "campaign": "c"},
        changed(ROWS[0], cluster={"device": "abacus"}), changed(ROWS[0], plan={"global_batch": 10**30}),
        changed(ROWS[0], plan={"pipeline_parallel": 7}), changed(ROWS[0], measured={"step_time_s": 1e300}),
        changed(ROWS[0], model={"layers": "many"}), {**ROWS[0], "use": None}, {**ROWS[0], "id": 7},
    ]  # fmt: skip
    path, out = written(*odd, ROWS[1]), written("", name="out.csv")
    assert main(["validate", "--json", "--predictions", str(out), str(path)]) == 0
    document = parsed(capsys.readouterr().out)
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(odd) + 1 == document["total"]["rows"]
    assert rows[-1]["reason"] == "" and float(rows[-1]["predicted_s"]) > 0
    refused = [row for row in rows if row["reason"]]
    assert sum(document["reasons"].values()) == document["total"]["not_predicted"] == len(refused) >= 9
    assert all(not row["predicted_s"] and not row["predicted_bytes"] and not row["predicted_fits"] for row in refused)


def test_a_refused_plan_that_did_not_run_either_is_counted_apart(written, capsys):
    refused, failed = {"pipeline_parallel": 7}, {"out_of_memory": True}
    illegal = changed(ROWS[0], plan=refused)
    path = written(illegal, {**illegal, "id": "failed", "measured": failed}, ROWS[1])
    assert main(["validate", str(path)]) == 0
    assert "1 of those not predicted did not run either" in capsys.readouterr().out
    assert main(["validate", "--json", str(path)]) == 0
    total = parsed(capsys.readouterr().out)["total"]
    assert (total["not_predicted"], total["refused_and_failed"]) == (2, 1)


def test_the_file_of_predictions_has_its_columns_and_ids(quoted):
    rows = list(csv.DictReader(table(quoted).splitlines()))
    assert list(rows[0]) == list(COLUMNS)
    assert [row["id"] for row in rows] == [row["id"] for row in ROWS]
    for row in rows:
        assert float(row["low_s"]) < float(row["predicted_s"]) < float(row["high_s"])
        assert float(row["low_bytes"]) < float(row["predicted_bytes"]) < float(row["high_bytes"])


def test_a_time_that_is_not_used_is_predicted_and_not_judged(written):
    (row,) = judged([written(changed(ROWS[0], use={"time": False}))])
    assert row.seconds[0] is None and row.seconds[1] > 0
    assert report([row])["total"]["time"]["n"] == 0


def test_campaigns_count_alike(quoted):
    document = report(quoted)
    means = [entry["time"]["mape"] for entry in document["campaigns"].values()]
    assert document["total"]["time_over_campaigns"]["mape"] == pytest.approx(np.mean(means))
    errors = [abs(row.seconds[1] / row.seconds[0] - 1.0) for row in quoted]
    assert document["total"]["time"]["mape"] == pytest.approx(np.mean(errors))
    assert len(markdown(HEADINGS, map(as_cells, lines_of(document))).splitlines()) == 2 + len(means) + 1


def test_a_folder_or_a_missing_file_is_refused_in_a_line(capsys, tmp_path):
    for path in (tmp_path, tmp_path / "absent.jsonl"):
        assert main(["validate", str(path)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1


# ---- scores


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.01, 2)), min_size=1, max_size=20))
def test_the_winkler_score_is_the_width_where_intervals_hold_and_twenty_times_the_miss_beyond(cases):
    rows = [(y, p, p * math.exp(-w), p * math.exp(w)) for y, p, w in cases]
    found = score(rows)
    expected = [2 * w + 20 * max(0.0, abs(math.log(y / p)) - w) for y, p, w in cases]
    assert found["winkler"] == pytest.approx(np.mean(expected))
    assert found["coverage"] == pytest.approx(np.mean([abs(math.log(y / p)) <= w for y, p, w in cases]), abs=1e-9)


def test_errors_are_of_what_was_measured():
    found = score([(1.0, 1.1, 0.9, 1.2), (2.0, 1.0, 0.8, 1.3)])
    assert found["mape"] == pytest.approx(0.3) and found["coverage"] == 0.5
    assert found["bias"] == pytest.approx(0.5 * (math.log(2.0) - math.log(1.1)))


# ---- many at once


def test_many_questions_at_once_are_each_as_one_by_one():
    runs = load_runs(QUOTED)
    for run, made in zip(runs, estimates_of(runs), strict=True):
        alone = costmodel.estimate(run.model, run.cluster, run.plan, run.framework)
        assert made.step_time == pytest.approx(alone.step_time, rel=1e-12)
        assert made.memory.total == pytest.approx(alone.memory.total, rel=1e-12)
        assert made.time_interval == pytest.approx(alone.time_interval, rel=1e-4)


def test_peaks_are_counted_as_the_bill_has_them():
    runs = load_runs(QUOTED)[:12]
    made = estimates_of(runs, with_slopes=False)
    for kind, of_bill in (("allocated", "allocated"), ("reserved", "reserved"), ("process", "total")):
        found = counted(made, [Count(kind, "max")] * len(made))
        for one, value in zip(made, found, strict=True):
            idle = one.memory.reserved - one.memory.total if kind == "process" else 0.0
            assert value == pytest.approx(getattr(one.memory, of_bill) + max(idle, 0.0), rel=1e-9) or kind == "process"
            if kind == "process":
                assert value >= one.memory.total * (1 - 1e-12)
    first = counted(made, [Count("allocated", "rank0")] * len(made))
    last = counted(made, [Count("allocated", "last")] * len(made))
    for one, low, high in zip(made, first, last, strict=True):
        stages = one.memory.stages
        assert low == pytest.approx(stages[0].total - stages[0].parts.overhead)
        assert high == pytest.approx(stages[-1].total - stages[-1].parts.overhead)


def test_a_mean_over_ranks_is_that_of_the_stages_that_there_are():
    model, held = costmodel.load_model("llama3-8b"), []
    for stages in (1, 2):
        plan = costmodel.Plan(global_batch=8, seq_len=2048, pipeline_parallel=stages, data_parallel=4 // stages)
        held.append(costmodel.estimate(model, costmodel.load_cluster("dgx-h100", gpus=4), plan))
    for one, found in zip(held, counted(held, [Count("process", "mean")] * 2), strict=True):
        mean = sum(stage.total for stage in one.memory.stages) / len(one.memory.stages)
        assert found == pytest.approx(mean, rel=0.1)  # what the allocator keeps idle comes on top


# ---- what isn't stated


def test_what_is_unstated_widens_and_what_is_stated_does_not():
    (run, *_) = [run for run in load_runs(QUOTED) if run.plan.recompute == "full"]
    stated = dataclasses.replace(run, unstated=())
    open_ = dataclasses.replace(run, unstated=("network_bandwidth", "loss", "release"))
    known = estimates_of([stated, open_])
    none, some = doubts_of([stated, open_], known)
    assert none == {} and set(some) == {"network_bandwidth", "loss"}
    assert some["network_bandwidth"].time > 0 and some["loss"].time > 0


def test_a_peak_that_nobody_said_how_it_was_counted_is_the_middle_of_both_and_its_interval_has_them():
    run = dataclasses.replace(load_runs(QUOTED)[0], unstated=("memory_kind",))
    runs = [dataclasses.replace(run, memory_kind=kind) for kind in ("allocated", "reserved", "process", "unstated")]
    known = estimates_of(runs)
    allocated, reserved, process, middle = counted(known, [Count(one.memory_kind, "max") for one in runs])
    assert allocated < reserved < process and middle == pytest.approx(math.sqrt(allocated * process))
    low, high = widened((middle, middle), [doubts_of(runs, known)[-1]["memory_kind"].memory])
    assert low < allocated and process < high


def test_the_report_says_which_statement_would_narrow_most(written, capsys):
    open_ = [{**row, "unstated": ["network_bandwidth"]} for row in ROWS[3:10]]
    assert main(["validate", str(written(*open_))]) == 0
    assert "leave network_bandwidth unstated" in capsys.readouterr().out


# ---- README


def test_the_readmes_table_shows_first_contact_before_what_was_fitted(tmp_path):
    ledger = tmp_path / "ledger.csv"
    ledger.write_text(
        "date,release,campaign,time_error,time_holds,time_factor,memory_error,memory_holds,ran,ran_told,"
        "ran_out,ran_out_told\n2026-11-29,1.1,c,0.2,1,2.0,,,1,1,0,0\n2026-11-26,1.0,a,0.1,1,1.2,,,2,2,4,3\n"
        "2026-11-26,1.0.1,b,0.5,0,1.8,0.2,0.5,2,1,0,0\n"
    )
    row, later = readme.first_contacts(ledger)
    assert "1.0, 1.0.1 on 2026-11-26" in row[0] and "1.1 on 2026-11-29" in later[0]
    assert later[1:4] == ["1", "20.0 %", "100.0 %"]
    assert row[1:] == ["2", "30.0 %", "50.0 %", f"x{math.sqrt(1.2 * 1.8):.2f}", "20.0 %", "50.0 %", "3 of 4", "3 of 4", "-"]
    assert readme.first_contacts(tmp_path / "none.csv") == []
    assert len({line.count("|") for line in readme.accuracy().splitlines()}) == 1


# ---- figures


@pytest.fixture
def drawn(quoted, monkeypatch, tmp_path):
    """The figures of the page."""
    kept = []
    monkeypatch.setattr(figures, "write_page", lambda path, title, shown: kept.extend(shown))
    figures.accuracy_page(tmp_path / "page.html", quoted)
    return kept


def test_step_times_have_a_series_for_each_source_and_there_is_no_figure_of_memory_that_nobody_measured(drawn):
    times, errors = drawn
    (series,) = [trace for trace in times.data if trace.mode == "markers"]
    assert series.name == "megatron_tables" and len(series.x) == len(ROWS)
    assert any(text.startswith("megatron_tables/46<br>measured 1.42 s") for text in series.text)
    assert errors.layout.title.text.startswith(f"Errors of {len(ROWS)} step times")


def test_errors_by_feature_count_every_run_once(drawn):
    boxes = [trace for trace in drawn[-1].data if trace.type == "box"]
    assert len(boxes) == len(figures.FEATURES)
    assert all(len(box.x) == len(box.y) == len(ROWS) for box in boxes)


def test_without_runs_the_page_has_no_figure(monkeypatch, tmp_path):
    monkeypatch.setattr(figures, "write_page", lambda path, title, shown: shown and pytest.fail("nothing was measured"))
    figures.accuracy_page(tmp_path / "page.html", [])


def plots_of(page: str) -> int:
    return len(re.findall(r'id="figure-\d+"', page))


def test_the_accuracy_page_is_one_file_that_needs_no_network(capsys, tmp_path):
    pytest.importorskip("plotly")
    path = tmp_path / "page.html"
    assert main(["validate", "--json", "--html", str(path), str(QUOTED)]) == 0
    page = path.read_text(encoding="utf-8")
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    assert plots_of(page) == 2 and [found.name for found in tmp_path.iterdir()] == ["page.html"]
    parsed(capsys.readouterr().out)


def test_no_reader_of_prose_is_left():
    folder = Path(figures.__file__).parents[1]
    readers = [path.name for path in (folder / "data").glob("*.py")]
    assert sorted(readers) == ["__init__.py", "micro.py", "reference.py", "runs.py"]
    assert not any(isinstance(one, CostModelError) for one in read_records(QUOTED))
