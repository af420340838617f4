"""Peak memory by liveness, and the caching allocator by its rules: against counts by hand and an allocator written plainly."""

import dataclasses
import random

import numpy as np
import pytest

from costmodel import load_cluster
from costmodel.text.units import GiB, MiB
from costmodel.traces.allocator import Allocator, OutOfMemory, replay, rounded, segment_bytes
from costmodel.traces.builder import RoleBuilder
from costmodel.traces.memory import held_bytes, living, memory_of_trace
from costmodel.traces.record import BORN, KINDS, NOWHERE, Trace

NODE = load_cluster("dgx-h100", gpus=8)


def test_a_request_takes_whole_512_bytes_and_segments_are_of_2_and_20_mib_or_its_own():
    assert [rounded(size) for size in (0, 1, 512, 513)] == [512, 512, 512, 1024]
    sizes = [1, MiB, MiB + 1, 9 * MiB, 10 * MiB, 11 * MiB + 1]
    assert [segment_bytes(rounded(size)) / MiB for size in sizes] == [2, 2, 20, 20, 10, 12]


def test_small_requests_share_a_segment_and_large_ones_are_split_beyond_a_mib():
    allocator = Allocator()
    small = [allocator.allocate(1024, 0) for _ in range(2048)]
    assert allocator.reserved == 2 * MiB and allocator.allocated == 2 * MiB
    allocator.allocate(1, 0)
    assert allocator.reserved == 4 * MiB
    for block in small:
        allocator.release(block)
    assert allocator.allocated == 512 and allocator.reserved == 4 * MiB
    other = Allocator()
    first = other.allocate(4 * MiB, 0)  # of a segment of 20, split
    second = other.allocate(15 * MiB + MiB // 2, 0)  # leaves half a MiB, which isn't worth a split
    assert other.reserved == 20 * MiB and other.allocated == 20 * MiB
    other.release(first)
    other.release(second)
    assert other.allocated == 0 and other.allocate(20 * MiB, 0).size == 20 * MiB and other.reserved == 20 * MiB


def test_streams_and_pools_share_nothing_and_an_empty_cache_gives_whole_segments_back():
    allocator = Allocator()
    allocator.release(allocator.allocate(20 * MiB, 0))
    held = allocator.allocate(20 * MiB, 1)
    allocator.allocate(512, 0)
    assert allocator.reserved == 42 * MiB
    allocator.empty()
    assert allocator.reserved == 22 * MiB
    allocator.release(held)
    allocator.empty()
    assert allocator.reserved == 2 * MiB


def test_expandable_segments_grow_by_pages_where_segments_of_their_own_leave_holes():
    def reserved(expandable):
        allocator = Allocator(expandable=expandable)
        for size in (100, 120, 140, 160):  # each larger than what the last left
            allocator.release(allocator.allocate(size * MiB, 0))
        return allocator.reserved

    assert reserved(False) == (100 + 120 + 140 + 160) * MiB
    assert reserved(True) == 160 * MiB


def test_where_the_device_is_full_the_cache_goes_back_first_and_then_there_is_no_room():
    allocator = Allocator(capacity=200 * MiB)
    allocator.release(allocator.allocate(100 * MiB, 0))
    allocator.allocate(150 * MiB, 0)
    assert allocator.retries == 1 and allocator.reserved == 150 * MiB
    with pytest.raises(OutOfMemory):
        allocator.allocate(100 * MiB, 0)


class Plain:
    """The same rules over a list of segments, each a list of [size, owner], searched from end to end."""

    def __init__(self):
        self.segments = []

    def allocate(self, owner, size):
        size = -(-max(size, 1) // 512) * 512
        small = size <= MiB
        free = [
            (block[0], number, place)
            for number, (pool, blocks) in enumerate(self.segments)
            for place, block in enumerate(blocks)
            if pool == small and block[1] is None and block[0] >= size
        ]
        if free:
            _, number, place = min(free)
        else:
            length = 2 * MiB if small else 20 * MiB if size < 10 * MiB else -(-size // (2 * MiB)) * 2 * MiB
            self.segments.append((small, [[length, None]]))
            number, place = len(self.segments) - 1, 0
        blocks = self.segments[number][1]
        rest = blocks[place][0] - size
        if rest >= 512 if small else rest > MiB:
            blocks[place : place + 1] = [[size, owner], [rest, None]]
        else:
            blocks[place][1] = owner

    def release(self, owner):
        for _, blocks in self.segments:
            for block in blocks:
                if block[1] == owner:
                    block[1] = None
            place = 0
            while place + 1 < len(blocks):
                if blocks[place][1] is None and blocks[place + 1][1] is None:
                    blocks[place][0] += blocks.pop(place + 1)[0]
                else:
                    place += 1

    @property
    def reserved(self):
        return sum(block[0] for _, blocks in self.segments for block in blocks)

    @property
    def allocated(self):
        return sum(block[0] for _, blocks in self.segments for block in blocks if block[1] is not None)


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_reserves_what_the_same_rules_do_over_plain_lists(seed):
    chance, builder, plain, alive, seen = random.Random(seed), RoleBuilder(), Plain(), [], []
    for _ in range(400):
        if alive and chance.random() < 0.45:
            storage = alive.pop(chance.randrange(len(alive)))
            builder.storage_died(storage)
            plain.release(storage)
        else:
            size = int(2 ** chance.uniform(4, 26))
            storage = builder.storage_born(size)
            plain.allocate(storage, size)
            alive.append(storage)
        seen.append((plain.allocated, plain.reserved))
    role = builder.role()
    made = replay(role)
    found = list(zip(made.allocated.tolist(), made.reserved.tolist(), strict=True))
    before_births = np.flatnonzero(role.timeline.action[1:] == BORN)  # the order of those that go at once is of no account
    assert [found[row] for row in before_births] == [seen[row] for row in before_births] and found[-1] == seen[-1]
    sizes = role.storages.bytes
    counted = [int(sizes[living(role, row)].sum()) for row in range(len(role.timeline))]
    assert counted == held_bytes(role).tolist()


def test_a_block_that_another_stream_uses_comes_back_when_that_stream_is_done():
    def reserved(waits, times):
        builder = RoleBuilder()
        side = builder.stream("side")
        block = builder.storage_born(100 * MiB)
        builder.storage_used_on(block, side)
        builder.kernel("aten.add", stream=side)
        event = builder.event_record(side)
        builder.storage_died(block)
        late = builder.event_record(side)
        if waits:
            builder.host_wait(event=event if waits == "early" else late, stream=side)
        builder.storage_born(100 * MiB)
        role = builder.role()
        host = np.arange(len(role.timeline), dtype=float)
        return replay(role, host=host if times else None, ends=host + times if times else None).reserved.max() / MiB

    assert reserved(None, 0) == 200 and reserved("early", 0) == 200 and reserved("late", 0) == 100
    assert reserved(None, 1) == 100 and reserved(None, 50) == 200


def a_trace(activation=512 * MiB, optimizer=2 * GiB):
    builder = RoleBuilder(0, range(8))
    builder.transaction("all-reduce", 4, "float32", group=builder.group(range(8)))
    builder.parameter("w", (GiB // 4,), "float32")
    builder.storage_born(GiB, kind="weight", parameter="w", shape=(GiB // 4,), dtype="float32")
    builder.storage_born(optimizer, kind="optimizer", parameter="w", shape=(GiB // 2,), dtype="float32")
    saved = [
        builder.storage_born(activation, kind="activation", module=f"layers.{number}", phase="forward", line="m.py:7")
        for number in range(2)
    ]
    temporary = builder.storage_born(100, module="head", phase="backward", line="t.py:9")
    for storage in [*saved, temporary]:
        builder.storage_died(storage, line="t.py:10")
    return Trace(roles=(builder.role(),), world_size=8)


def test_the_peak_is_told_by_kind_module_and_tensor_with_its_line_and_what_would_help():
    made = memory_of_trace(a_trace(), NODE, "fsdp2")
    assert made.allocated == 4 * GiB + 512 and made.fits and made.process > made.reserved
    assert {kind: size for kind, size in made.by_kind.items() if size > MiB} == {
        "weight": GiB, "optimizer": 2 * GiB, "activation": GiB,
    }  # fmt: skip
    assert sum(made.by_kind.values()) == made.allocated
    assert sum(made.by_module.values()) + made.by_kind["rounding"] == made.allocated
    assert made.by_module["layers.0"] == 512 * MiB
    assert (made.phase, made.module, made.line) == ("backward", "head", "t.py:9")
    first, *others = made.largest
    assert first.kind == "optimizer" and first.parameter == "w" and first.until == ""
    activation = next(one for one in others if one.kind == "activation")
    assert (activation.line, activation.until) == ("m.py:7", "t.py:10")
    assert "ZeRO-1" in made.helps[0] and "1.8 GiB" in made.helps[0]
    assert set(made.by_kind) == {*KINDS, "rounding"}
    assert "layers" in made._repr_html_() and len(made.frame()) == len(made.largest)


def test_out_of_memory_is_told_by_line_with_what_a_device_that_has_room_would_hold():
    made = memory_of_trace(a_trace(activation=50 * GiB), NODE)
    assert not made.fits and made.failed_at == "m.py:7" and "m.py:7" in repr(made)
    assert made.allocated == memory_of_trace(a_trace(activation=50 * GiB), roomy(NODE)).allocated > 80 * GiB
    assert 0 <= made.by_kind["rounding"] < MiB


def roomy(cluster):
    """A cluster whose devices have all the room that there can be."""
    device = dataclasses.replace(cluster.device, memory=1000.0 * GiB, usable_memory=1000.0 * GiB)
    return dataclasses.replace(cluster, device=device)


def test_a_device_that_is_full_waits_for_other_streams_before_it_says_that_it_has_no_room():
    """As ``release_cached_blocks`` does by ``synchronize_and_free_events``."""
    builder = RoleBuilder()
    side = builder.stream("side")
    block = builder.storage_born(100 * MiB)
    builder.storage_used_on(block, side)
    builder.kernel("aten.add", stream=side)
    builder.storage_died(block)
    builder.storage_born(90 * MiB)
    role = builder.role()
    made = replay(role, capacity=150 * MiB)
    assert (made.failed_at, made.retries, made.reserved[-1]) == (NOWHERE, 1, 90 * MiB)
    assert role.storages.born[1] == made.retried_at[0]


def test_a_step_that_has_cached_memory_given_back_to_find_room_is_told_of_that_and_of_no_more_than_a_process_sees():
    made = memory_of_trace(a_full_trace(60 * GiB), NODE)
    assert made.fits and made.capacity == NODE.device.usable_memory < NODE.device.memory
    assert made.retries == 2 and "2 times a step" in made.warnings[0] and made.warnings[0][:30] in repr(made)
    assert memory_of_trace(a_full_trace(10 * GiB), NODE).warnings == ()


def a_full_trace(size):
    """Of two steps that hold two tensors, the one after the other, each too large for what was cached before it."""
    builder = RoleBuilder()
    for step in range(2):
        for more in range(2):
            builder.storage_died(builder.storage_born(size + (2 * step + more) * 4 * MiB))
        builder.step_boundary()
    return Trace(roles=(builder.role(),), world_size=1)


def test_memory_is_drawn_by_kind_up_to_its_peak():
    made = memory_of_trace(a_trace(), NODE)
    drawn = {line.name: np.array(line.y) for line in made.plot().data}
    held = sum(drawn[kind] for kind in KINDS if kind in drawn)
    assert held.max() == pytest.approx((made.allocated - made.by_kind["rounding"]) / GiB)
    assert drawn["reserved"].max() == pytest.approx(made.reserved / GiB)
