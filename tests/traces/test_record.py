"""The record of a rank: written in the order of its program, kept whole in a file."""

import dataclasses

import numpy as np
import pytest

from costmodel.text.errors import CostModelError, InvalidValue, UnreadableFile
from costmodel.traces.builder import RoleBuilder
from costmodel.traces.record import DIED, KERNEL, NOWHERE, STREAM_WAIT, TRANSACTION, Role, Trace


def a_role(rank=0, stands_for=None, steps=2):
    builder = RoleBuilder(rank, stands_for)
    world, channel = builder.group(range(4)), builder.stream("nccl")
    weight = builder.storage_born(8192, kind="weight", parameter="w", shape=(64, 64), dtype="bfloat16")
    builder.parameter("w", (64, 64), "bfloat16", storage=weight)
    for _ in range(steps):
        out = builder.storage_born(2048, module="layer", phase="forward")
        builder.kernel("aten.mm", [(16, 64), (64, 64)], ["bfloat16"] * 2, 10240, 2048, 2 * 16 * 64 * 64,
                       phase="forward", module="layer", line="train.py:3", reads=[weight], writes=[out])  # fmt: skip
        gradient = builder.storage_born(8192, phase="backward")
        builder.storage_is(gradient, kind="gradient", parameter="w")
        builder.kernel("aten.mm", [(64, 16), (16, 64)], ["bfloat16"] * 2, 4096, 8192, 2 * 16 * 64 * 64,
                       phase="backward", reads=[out], writes=[gradient])  # fmt: skip
        builder.storage_died(out)
        builder.gradient("w")
        done = builder.transaction("all-reduce", 8192, "bfloat16", world, stream=channel, parameter="w", storage=gradient)
        builder.stream_wait(done)
        builder.storage_died(gradient)
        builder.step_boundary()
    return builder.role()


def test_a_trace_comes_back_from_its_file_as_it_was_and_the_file_is_the_same_twice(tmp_path):
    trace = Trace(roles=(a_role(stands_for=range(4)),), world_size=4, versions={"torch": "2.13"}, facts={"a": "b"})
    trace.save(tmp_path / "one")
    trace.save(tmp_path / "two")
    assert Trace.load(tmp_path / "one") == trace
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    other = dataclasses.replace(trace, roles=(a_role(stands_for=range(4), steps=3),))
    assert other != trace


def test_a_step_is_its_rows_and_the_last_unless_numbered():
    role = a_role()
    first, last = role.step(0), role.step()
    assert last == role.step(1) and first.stop < last.start and role.steps == 2
    for span in (first, last):
        assert len(role.rows(KERNEL, span)) == 2 and len(role.rows(TRANSACTION, span)) == 1
    assert len(role.rows(KERNEL)) == len(role.kernels) == 4
    with pytest.raises(InvalidValue, match="step"):
        role.step(2)
    assert a_role(steps=0).step() == range(1)


def test_kernels_know_what_they_read_and_wrote_and_storages_when_they_lived():
    role = a_role(steps=1)
    assert [list(role.read(0)), list(role.written(0))] == [[0], [1]]
    assert [list(role.read(1)), list(role.written(1))] == [[1], [2]]
    assert role.storages.died[0] == NOWHERE
    for storage in (1, 2):
        died = int(role.storages.died[storage])
        assert role.timeline.action[died] == DIED and role.timeline.item[died] == storage
    assert int(role.parameters.gradients[0]) == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_the_order_in_which_storages_go_at_once_makes_no_difference(order):
    builder = RoleBuilder()
    storages = [builder.storage_born(512 * (1 + number)) for number in range(3)]
    for number in order:
        builder.storage_died(storages[number])
    last = builder.storage_born(64)
    builder.storage_died(last)
    role = builder.role()
    assert role == builder.role()
    assert role.rows(DIED).tolist() == [0, 1, 2, last] and role.storages.died.tolist() == [3, 4, 5, 7]


def test_a_transaction_waits_for_the_stream_it_was_issued_from():
    role = a_role(steps=1)
    waits = np.flatnonzero(role.timeline.action == STREAM_WAIT)
    sent = int(np.flatnonzero(role.timeline.action == TRANSACTION)[0])
    assert list(role.timeline.stream[waits]) == [1, 0] and waits[0] < sent < waits[1]


def test_what_is_no_record_is_refused_in_a_line(tmp_path):
    with pytest.raises(InvalidValue, match="stands_for"):
        a_role(rank=5, stands_for=range(4))
    with pytest.raises(InvalidValue, match="each in one role"):
        Trace(roles=(a_role(stands_for=(0, 1)), a_role(1)), world_size=4)
    with pytest.raises(InvalidValue, match="roles"):
        Trace(roles=(), world_size=4)
    builder = RoleBuilder()
    held = builder.storage_born(4)
    builder.storage_died(held)
    for fault in (lambda: builder.storage_died(held), lambda: builder.kernel("a", phase="noon")):
        with pytest.raises(CostModelError):
            fault()
    (tmp_path / "no").write_bytes(b"what")
    for name in ("no", "missing"):
        with pytest.raises(UnreadableFile, match=name):
            Trace.load(tmp_path / name)
    assert isinstance(a_role(), Role)
