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
from costmodel.page.question import PageQuestion
from costmodel.simulation.playback import schedule_of

MODEL, CLUSTER = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=4)


def plan_of(name, micro_batches=4):
    chunks = 2 if name in ("interleaved", "breadth-first") else 1
    return costmodel.Plan(
        global_batch=micro_batches, seq_len=512, pipeline_parallel=4, schedule=name, virtual_stages=chunks
    ).resolve(costmodel.load_framework("megatron-core"))


def asked(plan):
    return PageQuestion(MODEL, CLUSTER, costmodel.load_framework("megatron-core"), plan)


def unpacked(table):
    """Kind, stage and micro-batch of every event of each rank, in order."""
    count = table["offsets"][-1]
    raw = zlib.decompress(base64.b64decode(table["packed"]))
    micro = np.frombuffer(raw, "<i4", count).copy()
    stage, kind = np.frombuffer(raw, "<u2", count, 4 * count), np.frombuffer(raw, "u1", count, 6 * count)
    found = []
    for first, last in zip(table["offsets"], table["offsets"][1:], strict=False):
        before, events = {}, []
        for event in range(first, last):
            key = kind[event], stage[event]
            micro[event] = before[key] = micro[event] + before.get(key, 0)
            events.append((KINDS[kind[event]], int(stage[event]), int(micro[event])))
        found.append(events)
    return found


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name not in schedules.IN_TURN])
def test_an_order_is_unpacked_to_the_events_of_the_schedule(name):
    plan = plan_of(name)
    found = schedules.orders(asked(plan), [plan, plan])
    (table,), (place,) = found["tables"], found["of"].values()
    wanted = schedule_of(plan, MODEL.layers, syncs=True)
    assert place == 0
    assert unpacked(table) == [wanted.order(rank) for rank in range(wanted.ranks)]
    assert sum(table["layers"]) == pytest.approx(MODEL.layers)


def test_orders_that_a_page_makes_itself_have_no_table():
    plans = [plan_of(name) for name in schedules.IN_TURN]
    assert schedules.orders(asked(plans[0]), plans) == {"tables": [], "of": {}}


def test_orders_too_long_to_be_played_in_a_blink_are_left_out(monkeypatch):
    plan = plan_of("gpipe")
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
