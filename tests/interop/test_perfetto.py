"""A trace against the fields that the Trace Event Format documents."""

import itertools
import json

import pytest

from costmodel import Plan, load_cluster, load_model
from costmodel.description.schedule import pipeline_schedule
from costmodel.interop.perfetto import perfetto_trace, step_trace, write_perfetto
from costmodel.simulation.playback import simulate_schedule
from costmodel.simulation.replay import simulate

WANTED = {  # of each phase: fields beside name and ph, as the format's document has them
    "X": {"pid", "tid", "ts", "dur", "cat", "args"}, "M": {"pid", "args"}, "C": {"pid", "ts", "args"},
    "b": {"pid", "tid", "ts", "id", "cat"}, "e": {"pid", "tid", "ts", "id", "cat"},
}  # fmt: skip
METADATA = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}


@pytest.fixture(params=["1f1b", "zb-v", "dualpipe"])
def played(request):
    schedule = pipeline_schedule(request.param, stages=4, micro_batches=8, syncs=True)
    return simulate_schedule(schedule, 1e-3, 2e-3, 1e-3, transfer_latency=5e-4, sync=1e-3)


def test_every_event_has_the_fields_of_its_phase(played):
    trace = json.loads(json.dumps(perfetto_trace(played), allow_nan=False))
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        assert WANTED[event["ph"]] <= set(event), event
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        if event["ph"] == "M":
            assert set(event["args"]) == {METADATA[event["name"]]}
        else:
            assert event["ts"] >= 0.0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())


def test_durations_are_in_microseconds(played):
    events = [event for event in perfetto_trace(played)["traceEvents"] if event["ph"] == "X"]
    assert {round(event["dur"], 6) for event in events if event["cat"] == "forward"} == {1000.0}
    assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(1e6 * played.total)
    assert sum(event["dur"] for event in events) == pytest.approx(1e6 * played.busy.sum())


def test_complete_events_of_a_thread_do_not_overlap(played):
    for rank in range(4):
        events = sorted(
            (event["ts"], event["ts"] + event["dur"])
            for event in perfetto_trace(played)["traceEvents"]
            if event["ph"] == "X" and event["tid"] == rank
        )
        assert all(after[0] >= before[1] - 1e-6 for before, after in itertools.pairwise(events))


def test_each_transfer_begins_and_ends_once(played):
    events = perfetto_trace(played)["traceEvents"]
    begun, ended = ({event["id"]: event["ts"] for event in events if event["ph"] == phase} for phase in "be")
    assert begun.keys() == ended.keys()
    assert len(begun) == (played.schedule.match >= 0).sum() // 2 - (played.schedule.kind == 8).sum() // 2
    assert all(ended[key] - begun[key] == pytest.approx(500.0) for key in begun)


def test_a_trace_is_written_as_json(played, tmp_path):
    write_perfetto(played, tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text(encoding="utf-8")) == perfetto_trace(played)


@pytest.fixture(scope="module")
def step():
    plan = Plan(global_batch=32, seq_len=2048, tensor_parallel=8, pipeline_parallel=4, data_parallel=2)
    return simulate(load_model("gpt3-175b"), load_cluster("selene", gpus=64), plan, jitter=0.05)


def test_a_step_has_every_pass_and_transfer_of_its_replica_on_threads_where_none_overlap(step, tmp_path):
    write_perfetto(step, tmp_path / "step.json")
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    assert all(WANTED[event["ph"]] <= set(event) for event in events)
    complete = [event for event in events if event["ph"] == "X"]
    assert sum(event["cat"] == "pipeline forward" for event in complete) == 3 * 16
    assert max(event["ts"] + event["dur"] for event in complete) == pytest.approx(1e6 * step.end[0].max())
    threads = {}
    for event in complete:
        threads.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in threads.values():
        assert all(after[0] >= before[1] - 1e-3 for before, after in itertools.pairwise(sorted(spans)))


def test_a_replica_that_is_not_there_is_refused(step):
    with pytest.raises(ValueError, match="replica"):
        step_trace(step, replica=2)
