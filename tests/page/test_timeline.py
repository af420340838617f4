"""What a page plays a timeline from: the orders of passes as tables, and the kernel's source as JavaScript."""

from __future__ import annotations

import ast
import base64
import zlib

import numpy as np
import pytest

import costmodel
from costmodel.description.plan import SCHEDULES
from costmodel.description.schedule import KINDS
from costmodel.page import kernels, schedules
from costmodel.page.question import Asked
from costmodel.simulation.playback import schedule_of

MODEL, CLUSTER = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=4)


def plan_of(name, micro_batches=4):
    chunks = 2 if name in ("interleaved", "breadth-first") else 1
    return costmodel.Plan(
        global_batch=micro_batches, seq_len=512, pipeline_parallel=4, schedule=name, virtual_stages=chunks
    ).resolve(costmodel.load_framework("megatron-core"))


def asked(plan):
    return Asked(MODEL, CLUSTER, costmodel.load_framework("megatron-core"), plan)


def unpacked(table, turns):
    """Kind, stage and micro-batch of every event of each rank, in order, with so many turns put in."""
    count = table["offsets"][-1]
    raw = zlib.decompress(base64.b64decode(table["packed"]))
    micro = np.frombuffer(raw, "<i4", count).copy()
    stage, kind = np.frombuffer(raw, "<u2", count, 4 * count), np.frombuffer(raw, "u1", count, 6 * count)
    found = []
    for rank, (first, last) in enumerate(zip(table["offsets"], table["offsets"][1:], strict=False)):
        before, events = {}, []
        for event in range(first, last):
            key = kind[event], stage[event]
            micro[event] = before[key] = micro[event] + before.get(key, 0)
            events.append((KINDS[kind[event]], int(stage[event]), int(micro[event])))
        if turns:
            repeat = table["repeat"]
            cut, length = repeat["cuts"][rank], repeat["lengths"][rank]
            parts = [events[:cut], *[events[cut - length : cut]] * turns, events[cut:]]
            events = [
                (name, at, number + (name != "sync") * min(turn, turns) * repeat["micro_batches"])
                for turn, part in enumerate(parts) for name, at, number in part
            ]  # fmt: skip
        found.append(events)
    return found


@pytest.mark.parametrize("name", SCHEDULES)
def test_an_order_is_unpacked_to_the_events_of_the_schedule(name):
    plan = plan_of(name)
    found = schedules.orders(asked(plan), [plan, plan])
    (table,), ((place, turns),) = found["tables"], found["of"].values()
    wanted = schedule_of(plan, MODEL.layers, syncs=True)
    assert (place, turns) == (0, 0)
    assert unpacked(table, turns) == [wanted.order(rank) for rank in range(wanted.ranks)]
    assert sum(table["layers"]) == pytest.approx(MODEL.layers)


@pytest.mark.parametrize("name", schedules.PERIODIC)
@pytest.mark.parametrize(("ranks", "chunks"), [(1, 1), (2, 2), (4, 1), (4, 8), (8, 4), (16, 2), (32, 1)])
def test_an_order_of_many_micro_batches_is_one_of_few_with_turns_put_in(name, ranks, chunks):
    """Whole turns and not, the same short table for all that are as many micro-batches beyond a turn."""
    model = costmodel.load_model("llama3.1-405b")
    plans = [
        costmodel.Plan(global_batch=many, seq_len=512, pipeline_parallel=ranks, schedule=name, data_parallel=1,
                       virtual_stages=chunks if name == "interleaved" else 1)
        for many in (4 * ranks, 16 * ranks, 5 * ranks, 16 * ranks + ranks // 2 + 1, ranks, 1)
    ]  # fmt: skip
    cluster = costmodel.load_cluster("dgx-h100", gpus=ranks)
    found = schedules.orders(Asked(model, cluster, costmodel.load_framework("megatron-core"), plans[0]), plans)
    assert len(found["of"]) == len({plan.micro_batches for plan in plans}) > len(found["tables"])
    for plan, (place, turns) in zip(plans, found["of"].values(), strict=False):
        wanted = schedule_of(plan, model.layers, syncs=True)
        assert unpacked(found["tables"][place], turns) == [wanted.order(rank) for rank in range(ranks)]


def test_orders_too_long_to_be_played_in_a_blink_are_left_out(monkeypatch):
    plan = plan_of("1f1b")
    nothing = {"tables": [], "of": {}}
    monkeypatch.setattr(schedules, "MOST_EVENTS", 6 * 4 * 4 - 1)
    assert schedules.orders(asked(plan), [plan]) == nothing
    monkeypatch.setattr(schedules, "MOST_EVENTS", 6 * 4 * 4)
    monkeypatch.setattr(schedules, "MOST_BYTES", 10)
    assert schedules.orders(asked(plan), [plan]) == nothing


def test_a_kernel_is_printed_statement_by_statement():
    script = kernels.javascript("pipeline_kernel", "play")
    source = (kernels.resources.files("costmodel.simulation") / "pipeline_kernel.py").read_text()
    functions = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    assert [name for name in functions if f"function {name}(" not in script] == ["played", "compile_ahead"]  # of NumPy
    assert "now += program.duration[e];" in script


def test_what_a_kernel_may_not_say_is_refused_by_its_line():
    with pytest.raises(NotImplementedError, match=r"line 1: with open\(a\)"):
        kernels._statement(ast.parse("with open(a):\n    pass").body[0])
    with pytest.raises(NotImplementedError, match="line 1: a @ b|line 1: lambda"):
        kernels._value(ast.parse("lambda: 1", mode="eval").body)
