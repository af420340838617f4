"""Compiled parts of a trace: chains between products read and write once, whatever else is there stays as it is."""

import math

import pytest

from costmodel import load_cluster
from costmodel.traces.builder import RoleBuilder
from costmodel.traces.captures import Capture
from costmodel.traces.fusion import fused, graph_launches
from costmodel.traces.pricing import price_trace
from costmodel.traces.record import Trace

ROWS, WIDE, NARROW = 4096, 8192, 2048
BIG, SMALL = 2 * ROWS * WIDE, 2 * ROWS * NARROW
"""Bytes of what lies between two products, and before and behind them."""


def layer(compiled: int, weight_gradient: bool = False) -> Trace:
    """A product, three operators on what it gives, of which one reads a residual, and another product; what is between goes."""
    builder = RoleBuilder()
    names = {"given": SMALL, "first": 2 * NARROW * WIDE, "second": 2 * NARROW * WIDE, "beside": BIG}
    there = {name: builder.storage_born(nbytes, kind="weight") for name, nbytes in names.items()}

    def run(op: str, reads: list[str], write: str, nbytes: int, shapes: list[tuple[int, ...]], flop: int = 0) -> None:
        there[write] = builder.storage_born(nbytes)
        read = sum(names[one] for one in reads)
        names[write] = nbytes
        builder.kernel(
            f"aten.{op}", shapes, ["bfloat16"] * len(shapes), read, nbytes, flop, phase="forward",
            reads=[there[one] for one in reads], writes=[there[write]], compiled=compiled,
        )  # fmt: skip

    flop = 2 * ROWS * WIDE * NARROW
    run("mm", ["given", "first"], "made", BIG, [(ROWS, NARROW), (NARROW, WIDE)], flop)
    run("gelu", ["made"], "bent", BIG, [(ROWS, WIDE)])
    run("mul", ["bent", "made"], "scaled", BIG, [(ROWS, WIDE)] * 2)
    run("add", ["scaled", "beside"], "summed", BIG, [(ROWS, WIDE)] * 2)
    if weight_gradient:
        run("sum", ["summed"], "bias", 2 * WIDE, [(ROWS, WIDE)])
    run("mm", ["summed", "second"], "out", SMALL, [(ROWS, WIDE), (WIDE, NARROW)], flop)
    builder.storage_died(there["bent"])
    builder.storage_died(there["scaled"])
    builder.step_boundary()
    return Trace(roles=(builder.role(),), world_size=1)


def test_a_chain_reads_what_it_is_given_and_writes_what_is_read_later_each_once():
    made = fused(layer(1).roles[0])
    assert made.first.tolist() == [0, 1, 1, 1, 4]
    assert made.bytes[1] == BIG + BIG + BIG  # what the product made and what is beside it, and the sum


def test_nothing_is_fused_that_no_compiler_was_given():
    assert not fused(layer(0).roles[0]).gone.any()


def test_a_sum_over_rows_reads_by_itself_what_the_chain_made():
    made = fused(layer(1, weight_gradient=True).roles[0])
    assert made.first.tolist() == [0, 1, 1, 1, 4, 5] and made.bytes[1] == 3 * BIG


def test_a_compiled_layer_takes_the_time_of_its_bytes_and_products_and_launches_less():
    cluster = load_cluster("dgx-h100", gpus=1)
    plain, whole = (price_trace(layer(compiled), cluster) for compiled in (0, 1))
    saved = plain.kernels[0] - whole.kernels[0]
    assert saved[[0, 4]].tolist() == [0.0, 0.0]
    assert whole.kernels[0][1:4].tolist() == [plain.kernels[0][3], 0.0, 0.0]  # as one that reads two and writes one
    assert whole.step_time < plain.step_time
    half = math.log((whole.step_time + saved.sum() / 2.0) / whole.step_time)  # as an error of the step's logarithm
    assert whole.error.deviation == pytest.approx(math.hypot(plain.error.deviation, half), rel=0.05)


def many(compiled: int, graphed: bool = False, captured: bool = False) -> Trace:
    """Three steps of many products that are shorter than their launches, with an exchange in their midst."""
    builder = RoleBuilder()
    group, graphs = builder.group(range(2)), []

    def run(count: int) -> None:
        for _ in range(count):
            builder.kernel("aten.mm", [(64, 64)] * 2, ["bfloat16"] * 2, 0, 0, 2 * 64**3, phase="forward", compiled=compiled)

    if captured:
        for count in (300, 200):
            builder.capture = graph = Capture(0)
            run(count)
            builder.capture = None
            graphs.append(graph)
    for _ in range(3):
        for place, count in enumerate((300, 200)):
            if captured:
                builder.replay(graphs[place])
            else:
                run(count)
            if not place:
                builder.stream_wait(builder.transaction("all-reduce", 4, "float32", group))
        builder.step_boundary()
    facts = {"graphed_parts": "1 3"} if graphed else {}
    return Trace(roles=(builder.role(),), world_size=2, facts=facts)


def test_a_part_that_is_compiled_to_graphs_takes_as_long_as_graphs_that_a_program_captures():
    cluster = load_cluster("dgx-h100", gpus=2)
    assert graph_launches(many(1).roles[0], {1}).sum() == 3 * 2 and set(graph_launches(many(2).roles[0], {1}).tolist()) == {-1}
    launched, by_itself, replayed = (
        price_trace(many(1, graphed=graphed, captured=captured), cluster).step_time
        for graphed, captured in ((False, False), (True, False), (False, True))
    )
    assert by_itself == pytest.approx(replayed, rel=1e-6) and by_itself < 0.7 * launched
    assert price_trace(many(2, graphed=True), cluster).step_time == pytest.approx(launched, rel=1e-9)
