"""A trace beside the ledger of its plan: the same transactions agree, another is named."""

import pytest

from costmodel import Plan, estimate, ledger, load_cluster, load_model
from costmodel.text.errors import InvalidValue
from costmodel.traces.builder import RoleBuilder
from costmodel.traces.comparison import compare
from costmodel.traces.record import Trace

MODEL, CLUSTER = load_model("bloom-560m"), load_cluster("dgx-a100", gpus=16)
PLAN = Plan(global_batch=16, seq_len=2048, data_parallel=16, zero_stage=3)


def as_the_ledger_says(told, change=lambda nbytes: nbytes, count=lambda count: count):
    builder = RoleBuilder(0, range(16))
    group, channel = builder.group(range(16)), builder.stream("nccl")
    for one in told.transactions:
        for _ in range(round(count(one.count))):
            builder.transaction(one.collective, round(change(one.nbytes)), "bfloat16", group, stream=channel)
    builder.transaction("all-reduce", 1172, "float32", group, stream=channel)  # of the gradients' norm
    builder.step_boundary()
    return Trace(roles=(builder.role(),), world_size=16)


def test_a_trace_of_the_ledger_s_own_transactions_agrees_with_it():
    told = ledger(MODEL, CLUSTER, PLAN, "fsdp2")
    made = compare(as_the_ledger_says(told), told)
    assert made.agrees and made.rows and not made.differences
    for _, ranks, traced, says in made.sums():
        assert ranks == 16 and traced == pytest.approx(says)


def test_another_size_or_count_is_named_with_both_numbers():
    told = ledger(MODEL, CLUSTER, PLAN, "fsdp2")
    largest = max(one.nbytes for one in told.transactions)
    made = compare(as_the_ledger_says(told, lambda nbytes: nbytes + 4096 * (nbytes == largest)), told)
    assert {row.kind.bytes for row in made.differences} == {largest, largest + 4096}
    halved = compare(as_the_ledger_says(told, count=lambda count: max(count // 2, 1)), told)
    assert halved.differences and all(row.traced < row.told for row in halved.differences)
    assert "told" in repr(halved) and len(halved.frame()) == len(halved.rows)


def test_beside_an_estimate_memory_and_time_are_compared_too():
    asked = estimate(MODEL, CLUSTER, PLAN, "fsdp2")
    made = compare(as_the_ledger_says(ledger(MODEL, CLUSTER, PLAN, "fsdp2")), asked)
    assert made.agrees and made.time[0].told == asked.step_time
    allocated = next(one for one in made.memory if one.name == "allocated")
    assert allocated.told == pytest.approx(asked.memory.allocated) and allocated.traced == 0.0
    with pytest.raises(InvalidValue, match="told"):
        compare(as_the_ledger_says(ledger(MODEL, CLUSTER, PLAN, "fsdp2")), "ledger")
