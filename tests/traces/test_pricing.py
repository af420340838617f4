"""A traced step's time: against sums and maxima by hand, a relaxation of the same waits, and limits of the device."""

import dataclasses
import math
import random

import numpy as np
import pytest

from costmodel import collective_time, load_cluster, load_device, load_framework
from costmodel.formulas.training_step import GRAPH_LAUNCH
from costmodel.text.errors import InvalidValue, NotModelled
from costmodel.text.units import GiB, MiB
from costmodel.traces.builder import RoleBuilder
from costmodel.traces.captures import Capture
from costmodel.traces.kernels import Kernel, Rates, sizes_of
from costmodel.traces.memory import memory_of_trace
from costmodel.traces.pricing import LAUNCH, REMAPPING, merged, price_trace
from costmodel.traces.record import (
    DEVICE_TO_HOST,
    EVENT_RECORD,
    HOST_TO_DEVICE,
    HOST_WAIT,
    KERNEL,
    NOWHERE,
    PROCESSORS,
    STREAM_WAIT,
    TRANSACTION,
    Trace,
)
from costmodel.traces.scheduling import Durations, play

NODE, CLUSTER = load_cluster("dgx-h100", gpus=8), load_cluster("dgx-h100", gpus=64)


def rates(cluster=NODE):
    return Rates(cluster.device, load_framework("fsdp2").numbers())


def test_products_are_told_by_their_shapes_whatever_the_operator():
    flop = 2.0 * 16 * 32 * 64

    def sizes(op, *shapes, factor=1.0):
        return sizes_of(Kernel(op, shapes, ("bfloat16",) * len(shapes), 0.0, 0.0, flop * factor))

    assert sizes("aten.mm.default", (16, 64), (64, 32)) == (1, 16, 32, 64)
    assert sizes("aten.addmm", (32,), (16, 64), (64, 32), (1,), (1,)) == (1, 16, 32, 64)
    assert sizes("aten::linear", (2, 8, 64), (32, 64), (32,)) == (1, 16, 32, 64)
    assert sizes("aten.bmm", (4, 16, 64), (4, 64, 32), factor=4) == (4, 16, 32, 64)
    assert sizes("aten._grouped_mm", (16, 64), (4, 64, 32)) == (4, 4, 32, 64)
    assert sizes("aten.mm", (16, 64), (63, 32)) is None and sizes("aten.mm", (16, 64), (64, 32), factor=2) is None


def test_broadcast_operands_are_found_one_by_one_as_pytorch_was_measured():
    """A comparison on a V100 (pytorch/pytorch#69010), a PReLU of 1024 x 10240 on an H200 (tile-ai/TileOPs#500), both fp16."""

    def time(device, op, *shapes, read, written, compiled=False):
        known = Rates(load_device(device), load_framework("fsdp2").numbers())
        return known.time(Kernel(op, shapes, ("float16",) * len(shapes), read, written, 0.0, compiled))

    many = 15 * 10**6
    assert 3 * many / time("v100-sxm-16gb", "aten.eq", (1, 5000), (3000, 5000), read=2 * many, written=many) == pytest.approx(
        547e9, rel=0.05
    )
    size = (1024, 10240)
    asked = {"read": 2.0 * math.prod(size), "written": 2.0 * math.prod(size)}
    apart = time("h200-sxm", "aten.mul", size, (1, 10240), **asked)
    assert 2 * asked["read"] / apart == pytest.approx(1.18e12, rel=0.1)
    for alike in (((size, size), False), ((size, (1, 10240)), True), ((size,), False)):
        assert time("h200-sxm", "aten.mul_", *alike[0], **asked, compiled=alike[1]) < 0.6 * apart
    assert time("h200-sxm", "aten.native_layer_norm", size, (10240,), **asked) < 0.6 * apart


@pytest.mark.parametrize("size", [64, 1000, 8192])
def test_no_kernel_passes_the_device_s_peak_nor_its_memory(size):
    device, asked = NODE.device, rates()
    for dtype, width, peak in (("bfloat16", 2, "bf16"), ("float32", 4, "fp32"), ("float8_e4m3fn", 1, "fp8")):
        op = "aten._scaled_mm" if width == 1 else "aten.mm"
        flop, moved = 2.0 * size**3, 3.0 * width * size**2
        time = asked.time(Kernel(op, ((size, size), (size, size)), (dtype,) * 2, moved * 2 / 3, moved / 3, flop))
        assert time > max(flop / device.peak(peak), moved / device.memory_bandwidth)
    stream = asked.time(Kernel("aten.add", ((size,),), ("float32",), 8.0 * size**2, 4.0 * size**2, 0.0))
    assert 12.0 * size**2 / device.memory_bandwidth < stream < 2e-5 + 24.0 * size**2 / device.memory_bandwidth
    for op in (HOST_TO_DEVICE, DEVICE_TO_HOST):
        copied = asked.time(Kernel(op, (), (), size**2, size**2, 0.0))
        assert copied > size**2 / device.host_bandwidth


def test_a_product_of_complex_numbers_is_four_outside_the_tensor_cores():
    shapes, flop = ((4096, 4096),) * 2, 2.0 * 4096**3
    product = Kernel("aten.mm", shapes, ("complex64",) * 2, 0.0, 0.0, flop)
    assert rates().time(product) > 4.0 * flop / NODE.device.peak("fp32")
    assert rates().time(product) == pytest.approx(4.0 * rates().time(product._replace(dtypes=("float32",) * 2)), rel=0.02)


@pytest.mark.parametrize("device", ["h100-sxm", "a100-sxm-80gb", "v100-sxm-32gb", "t4"])
def test_32_bit_runs_as_tf32_where_pytorch_has_it_and_the_device_can(device):
    """Convolutions do by default and products don't (notes on CUDA semantics); GPUs before Ampere have no TF32."""
    known, size = load_device(device), 8192
    flop, constants = 2.0 * size**3, load_framework("fsdp2").numbers()
    convolution = Kernel("aten.convolution", ((size, size), (size, size)), ("float32",) * 2, 0.0, 0.0, flop)
    product = convolution._replace(op="aten.mm")
    peaks = {dtype: flop / known.peak(dtype) for dtype in ("fp32", "tf32") if dtype in known.dense_peak}
    asked = Rates(known, constants)
    assert asked.time(product) > peaks["fp32"]
    assert peaks.get("tf32", peaks["fp32"]) < asked.time(convolution) < 2.5 * peaks.get("tf32", peaks["fp32"])
    told = Rates(known, constants, "products")
    assert told.time(convolution) > peaks["fp32"] and told.time(product) > peaks.get("tf32", peaks["fp32"])
    assert (told.time(product) < peaks["fp32"]) == ("tf32" in peaks)


def test_a_recurrent_layer_takes_a_product_of_its_states_a_step_one_after_the_other():
    steps, batch, width = 100, 64, 512
    shapes = ((steps * batch, 4 * width), (4 * width, width), (batch, width), (steps,))
    half = ("bfloat16",) * 3 + ("int64",)
    product = Kernel("aten.mm", ((batch, width), (width, 4 * width)), half[:2], 0.0, 0.0, 2.0 * batch * 4 * width**2)
    recurrence = Kernel("costmodel.recurrence", shapes, half, 0.0, 0.0, steps * product.flop)
    asked = rates()
    assert asked.time(recurrence) == pytest.approx(steps * asked.time(product), rel=0.01)
    back = recurrence._replace(op="costmodel.recurrence_backward", shapes=((steps * batch, width), *shapes[1:]))
    assert 1.0 < asked.time(back) / asked.time(recurrence) < 2.0, "the weights' gradient is one product of all steps"


def test_attention_is_causal_where_its_flop_say_so_and_takes_about_half():
    heads, length, width = 32, 8192, 128
    shape, full = (1, heads, length, width), 4.0 * heads * length**2 * width

    def time(flop, backward=False):
        name = f"aten._scaled_dot_product_flash_attention{'_backward' if backward else ''}"
        shapes = (shape,) * (4 if backward else 3)
        return rates().time(Kernel(name, shapes, ("bfloat16",) * len(shapes), 0.0, 0.0, flop))

    def beside(dtype):  # what the forward kernel left of its softmax is wide
        shapes, dtypes = (shape,) * 5 + ((1, heads, length),), ("bfloat16",) * 5 + (dtype,)
        return rates().time(Kernel("aten._flash_attention_backward", shapes, dtypes, 0.0, 0.0, 2.5 * full / 2))

    assert beside("float32") == beside("bfloat16") == time(2.5 * full / 2, True)
    assert 0.4 < time(full / 2) / time(full) < 0.8
    assert 2.0 < time(2.5 * full / 2, True) / time(full / 2) < 4.0
    assert time(full) > full / NODE.device.peak("bf16")


def a_step(kernels, moved=(), wait=True, steps=2, group=range(8), launches=1, cluster_ranks=8):
    """Products, the exchange of each beside the next, and a wait for all at the end."""
    builder = RoleBuilder(0, range(cluster_ranks))
    world, channel = builder.group(group), builder.stream("nccl")
    for _ in range(steps):
        done = []
        for number, size in enumerate(kernels):
            for _ in range(launches):
                builder.kernel("aten.mm", [(size, size), (size, size)], ["bfloat16"] * 2, 4 * size**2, 2 * size**2, 2 * size**3,
                               phase="backward", line="t.py:1")  # fmt: skip
            if number < len(moved):
                done.append(builder.transaction("all-reduce", moved[number], "bfloat16", world, stream=channel, line="t.py:2"))
        if wait:
            for event in done:
                builder.stream_wait(event)
        builder.step_boundary()
    return Trace(roles=(builder.role(),), world_size=cluster_ranks)


def test_a_stream_without_waits_takes_the_sum_of_its_kernels_and_parts_add_up_to_the_step():
    made = price_trace(a_step([4096, 8192, 4096]), NODE)
    shapes = [((size, size),) * 2 for size in (4096, 8192)]
    each = [rates().time(Kernel("aten.mm", shape, ("bfloat16",) * 2, 0.0, 0.0, 0.0)) for shape in shapes]
    assert made.step_time == pytest.approx(2 * each[0] + each[1], rel=1e-9)
    parts = made.parts()
    assert sum(parts) == pytest.approx(made.step_time) and parts.exchanging == 0.0
    assert made.flop == 2.0 * (2 * 4096**3 + 8192**3) and 0.3 < made.mfu < 1.0
    low, high = made.interval
    assert low < made.step_time < high
    operators = made.operators()
    assert [(one.op, one.launches) for one in operators] == [("aten.mm", 3)] and operators[0].flop == made.flop


def test_a_last_step_that_holds_more_than_the_one_before_is_told():
    def told(*counts):
        builder = RoleBuilder()
        for count in counts:
            for _ in range(count):
                builder.kernel("aten.mm", [(4096, 4096)] * 2, ["bfloat16"] * 2, 0, 0, 2 * 4096**3, phase="forward")
            builder.step_boundary()
        return price_trace(Trace(roles=(builder.role(),), world_size=1), NODE.with_gpus(1)).uneven

    assert told(9, 4, 4) == told(9, 4) == told(4) == ""
    assert "3 steps" in told(4, 4, 6) and "3 steps" in told(4, 6, 4)


def test_an_exchange_is_priced_as_a_step_of_the_framework_has_it_and_hides_beside_later_work():
    exchanged = collective_time("all-reduce", 64 * MiB, 8, NODE, framework="fsdp2").time
    last = price_trace(a_step([8192], [64 * MiB]), NODE, "fsdp2")
    alone = price_trace(a_step([8192]), NODE, "fsdp2")
    assert last.step_time == pytest.approx(alone.step_time + exchanged, rel=1e-3)
    assert last.exposed_communication == pytest.approx(exchanged, rel=1e-3)
    hidden = price_trace(a_step([8192, 8192], [64 * MiB]), NODE, "fsdp2")
    assert hidden.exposed_communication == pytest.approx(0.0, abs=1e-9)
    slowed = hidden.framework.numbers().compute.contention * exchanged
    assert hidden.step_time == pytest.approx(2 * alone.step_time + slowed, rel=0.02)
    far = price_trace(a_step([8192], [64 * MiB], group=range(64), cluster_ranks=64), CLUSTER, "fsdp2")
    assert far.step_time - alone.step_time > last.step_time - alone.step_time


def test_many_small_kernels_wait_for_the_host():
    made = price_trace(a_step([64], launches=500, steps=3), NODE)
    pace = made.framework.numbers().host.pace
    assert made.step_time == pytest.approx(500 * LAUNCH["backward"] * pace, rel=0.02)
    assert made.parts().idle > 0.0


def test_a_graph_is_captured_without_being_done_and_replayed_in_one_launch():
    """What PyTorch's notes on CUDA graphs say of both; a step is three replays, on a stream that isn't the one of the capture."""
    builder = RoleBuilder()
    side = builder.stream("capture")
    for name in ("eager", "graph"):
        if name == "graph":
            builder.capture = graph = Capture(side)
        for _ in range(500):
            builder.kernel("aten.add_", [(64, 64)], ["float32"], 16384, 16384, stream=side, phase="forward")
        builder.stream_wait(builder.event_record(side))
        lost = builder.storage_born(1000, stream=side)
        builder.storage_born(200, stream=side)
        builder.storage_died(lost)
        if name == "eager":
            builder.step_boundary()
    builder.capture = None
    assert (graph.spare, graph.held) == (1000, 200)
    for _ in range(3):
        builder.replay(graph)
    builder.step_boundary()
    trace = Trace(roles=(builder.role(),), world_size=1)
    role, made = trace.roles[0], price_trace(trace, NODE.with_gpus(1))
    assert len(role.kernels) == 4 * 500 == (role.timeline.action == KERNEL).sum()
    assert set(role.kernels.stream[role.rows(KERNEL, role.step())].tolist()) == {0}
    begun, ended = made.window(0)
    assert begun > 500 * LAUNCH["forward"] * made.framework.numbers().host.pace  # the host's pace
    assert ended - begun == pytest.approx(made.kernels[0][500:].sum(), abs=2 * GRAPH_LAUNCH)  # the device's


def test_a_trace_needs_a_cluster_of_its_world_and_prices_for_what_it_does():
    with pytest.raises(InvalidValue, match="64 GPUs of the trace's world"):
        price_trace(a_step([64], cluster_ranks=64), NODE)
    builder = RoleBuilder()
    builder.transaction("teleport", 4, "float32", builder.group(range(2)))
    with pytest.raises(NotModelled, match="teleport"):
        price_trace(Trace(roles=(builder.role(),), world_size=2), NODE)


def relaxed(trace, durations, partner):
    """Starts and ends by going over all rows until nothing moves, every wait a maximum of what it waits for."""
    ends = [np.zeros(len(role.timeline)) for role in trace.roles]
    starts = [np.zeros(len(role.timeline)) for role in trace.roles]
    for _ in range(200):
        before = [one.copy() for one in ends]
        for place, role in enumerate(trace.roles):
            now, free, events = 0.0, [0.0] * len(role.streams), {}
            rows = zip(role.timeline.action, role.timeline.item, role.timeline.stream, strict=True)
            for row, (action, item, stream) in enumerate(rows):
                if action == EVENT_RECORD:
                    events[item] = row
                if action == HOST_WAIT:
                    targets = [ends[place][events[item]]] if item != NOWHERE else free if stream == NOWHERE else [free[stream]]
                    now = max([now, *targets])
                now += durations[place].host[row]
                begin, length = now, 0.0
                if action in (KERNEL, EVENT_RECORD, STREAM_WAIT, TRANSACTION):
                    begin = max(now, free[stream])
                if action == KERNEL:
                    length = durations[place].kernels[item]
                elif action == STREAM_WAIT:
                    begin = max(free[stream], ends[place][events[item]])
                elif action == TRANSACTION:
                    length = durations[place].transactions[item]
                    other = partner.get((place, item))
                    starts[place][row] = begin
                    if other is not None:
                        begin = max(begin, starts[other[0]][other[1]])
                if action != TRANSACTION:
                    starts[place][row] = begin
                ends[place][row] = begin + length
                if action in (KERNEL, EVENT_RECORD, STREAM_WAIT, TRANSACTION):
                    free[stream] = begin + length
        if all(np.array_equal(one, other) for one, other in zip(before, ends, strict=True)):
            break
    return ends


@pytest.mark.parametrize("seed", range(8))
def test_two_roles_play_as_their_waits_relax(seed):
    chance = random.Random(seed)
    builders = [RoleBuilder(rank) for rank in range(2)]
    rows, partner = [[], []], {}
    for _ in range(40):
        joint = chance.random() < 0.2
        for place, builder in enumerate(builders):
            side = builder.stream("side")
            for _ in range(chance.randrange(4)):
                what = chance.randrange(5)
                if what < 3:
                    builder.kernel("aten.add", stream=chance.choice((0, side)))
                elif what == 3:
                    builder.stream_wait(builder.event_record(chance.choice((0, side))), chance.choice((0, side)))
                else:
                    builder.host_wait(stream=chance.choice((0, side, NOWHERE)))
            if joint:
                builder.transaction("all-reduce", 8, "float32", builder.group(range(2)), stream=side)
                rows[place].append(len(builder._rows[type(builder.role().timeline)]) - 2)
    trace = Trace(roles=tuple(builder.role() for builder in builders), world_size=2)
    for number, (mine, theirs) in enumerate(zip(*rows, strict=True)):
        partner |= {(0, number): (1, theirs), (1, number): (0, mine)}
    lengths = [0.001 * chance.randrange(1, 99) for _ in rows[0]]
    durations = [
        Durations(
            np.array([chance.randrange(1, 50) * 1e-3 for _ in range(len(role.kernels))]), np.array(lengths),
            np.array([chance.randrange(3) * 1e-3 for _ in range(len(role.timeline))]),
        )
        for role in trace.roles
    ]  # fmt: skip
    expected = relaxed(trace, durations, partner)
    for played, ends in zip(play(trace, durations), expected, strict=True):
        assert played.end == pytest.approx(ends, rel=1e-9)
        assert not played.alone and (played.end >= played.start).all()


@pytest.mark.parametrize("seed", range(5))
def test_an_allocator_that_finds_room_waits_as_a_host_that_synchronizes_does(seed):
    """``cudaFree`` waits for the device: a block that needs it is born as if the program had waited for all streams."""

    def played(waits):
        chance, builder = random.Random(seed), RoleBuilder()
        side, settled = builder.stream("side"), []
        for _ in range(12):
            for _ in range(chance.randrange(1, 4)):
                builder.kernel("aten.add", stream=chance.choice((0, side)))
            if waits:
                builder.host_wait(stream=NOWHERE)
            builder.storage_born(MiB)
            settled.append(int(builder.role().storages.born[-1]))
        role = builder.role()
        rows, kernels = len(role.timeline), len(role.kernels)
        mask = None if waits else np.isin(np.arange(rows), settled)
        times = np.array([chance.randrange(1, 50) * 1e-3 for _ in range(kernels)])
        (made,) = play(Trace(roles=(role,), world_size=1), [Durations(times, np.zeros(0), 1e-4 * launches(role), mask)])
        return made.end[role.timeline.action == KERNEL]

    assert played(waits=True) == pytest.approx(played(waits=False), rel=1e-9)


def launches(role):
    """1 for each row that launches a kernel."""
    return (role.timeline.action == KERNEL).astype(float)


def a_refilled_device(size, blocks=1, steps=2):
    """Holds one block after the other, each larger than any that is cached, beside products that take longer than launches."""
    builder, more = RoleBuilder(), iter(range(1, 100))
    for _ in range(steps):
        for _ in range(blocks):
            builder.kernel("aten.mm", [(8192, 8192)] * 2, ["bfloat16"] * 2, 0, 0, 2 * 8192**3, phase="forward")
            builder.storage_died(builder.storage_born(size + 4 * next(more) * MiB))
        builder.step_boundary()
    return Trace(roles=(builder.role(),), world_size=1)


def test_memory_that_goes_back_to_find_room_takes_time_by_its_bytes_and_nothing_where_there_is_room():
    one = NODE.with_gpus(1)
    kernel = price_trace(a_refilled_device(GiB, 3), one).step_time
    made = price_trace(a_refilled_device(50 * GiB, 3), one)
    returned = [50 * GiB + 4 * number * MiB for number in (3, 4, 5)]  # what the step before, and its own first two, had cached
    assert made.returned[0].sum() == sum(returned) + sum(50 * GiB + 4 * number * MiB for number in (1, 2))
    assert made.step_time == pytest.approx(kernel + REMAPPING * sum(returned), rel=1e-3)
    wider = [math.log(high / low) for low, high in (made.interval, price_trace(a_refilled_device(GiB, 3), one).interval)]
    assert wider[0] > wider[1]
    told = memory_of_trace(a_refilled_device(50 * GiB, 3), one, estimate=made)
    assert told.retries == 3 and told.remapping == pytest.approx(REMAPPING * sum(returned))
    assert told.mapped == 3 * 50 * GiB + 4 * (4 + 5 + 6) * MiB


def test_what_has_no_room_is_priced_as_on_a_device_that_has_just_enough():
    one = NODE.with_gpus(1)
    trace = a_refilled_device(90 * GiB, 3)
    assert not memory_of_trace(trace, one).fits
    known = dataclasses.replace(one.device, memory=2.0**40, usable_memory=93.0 * GiB)
    barely = price_trace(trace, dataclasses.replace(one, device=known))
    assert price_trace(trace, one).step_time == pytest.approx(barely.step_time, rel=1e-9)


def pipeline(blocking=False):
    """Two stages, two micro-batches, forward and backward: each sends what the other awaits."""
    builders = [RoleBuilder(0), RoleBuilder(1)]
    for place, builder in enumerate(builders):
        streams = [builder.stream(f"to {other}") for other in ("next", "last")]

        def work(phase, size, of=builder):
            of.kernel("aten.mm", [(size, size)] * 2, ["bfloat16"] * 2, 0, 0, 2 * size**3, phase=phase)

        for _ in range(2):
            if place:
                builder.stream_wait(builder.transaction("recv", MiB, "bfloat16", peer=0, stream=streams[0]))
            work("forward", 4096)
            if not place:
                builder.transaction("send", MiB, "bfloat16", peer=1, stream=streams[0])
        for _ in range(2):
            if not place:
                builder.stream_wait(builder.transaction("recv", MiB, "bfloat16", peer=1, stream=streams[1]))
            work("backward", 4096)
            if place:
                builder.transaction("send", MiB, "bfloat16", peer=0, stream=streams[1])
        builder.step_boundary()
    return Trace(roles=tuple(builder.role() for builder in builders), world_size=2)


def test_stages_wait_for_each_other_as_a_pipeline_of_as_many_micro_batches_does():
    made = price_trace(pipeline(), NODE)
    kernel = made.kernels[0][0]
    sent = made.transactions[0].time[0]
    # a pass down, two on the last stage each way, and a pass up: 6 passes, two messages that nothing hides
    assert made.step_time == pytest.approx(6 * kernel + 2 * sent, rel=0.05)
    assert made.parts(0).computing == pytest.approx(4 * kernel, rel=0.01)
    assert not made.alone


def test_a_transaction_whose_partner_never_comes_is_played_alone_and_named():
    builders = [RoleBuilder(0), RoleBuilder(1)]
    for place, builder in enumerate(builders):
        builder.kernel("aten.add", bytes_read=MiB)
        if place:
            world, channel = builder.group(range(2)), builder.stream("n")
            done = builder.transaction("all-reduce", MiB, "float32", world, stream=channel, line="x.py:3")
            builder.host_wait(event=done, stream=1)
        builder.step_boundary()
    made = price_trace(Trace(roles=tuple(builder.role() for builder in builders), world_size=2), NODE)
    assert made.alone == ("x.py:3",) and math.isfinite(made.step_time) and "no partner came: x.py:3" in repr(made)


def test_spans_merge_to_their_union():
    chance = random.Random(1)
    for _ in range(20):
        start = np.array([chance.randrange(50) for _ in range(12)], dtype=float)
        end = start + np.array([chance.randrange(6) for _ in range(12)])
        covered = {tick for a, b in zip(start, end, strict=True) for tick in range(int(a), int(b)) if 10 <= tick < 40}
        starts, ends = merged(start, end, (10.0, 40.0))
        assert float((ends - starts).sum()) == len(covered) and (starts[1:] > ends[:-1]).all()


def test_the_same_trace_costs_the_same_twice_and_a_faster_device_less():
    trace = a_step([4096, 8192], [64 * MiB])
    one, two = price_trace(trace, NODE), price_trace(trace, NODE)
    assert one.step_time == two.step_time and one.error == two.error
    slower = price_trace(trace, load_cluster("dgx-a100", gpus=8))
    assert slower.step_time > one.step_time
    assert dataclasses.replace(trace) == trace and len(one.frame()) == 2 and "aten.mm" in one._repr_html_()


def test_a_traced_step_is_drawn_and_written_for_trace_viewers_with_its_lines(tmp_path):
    import json

    from costmodel.interop.perfetto import write_perfetto

    made = price_trace(a_step([4096, 8192], [64 * MiB]), NODE)
    bars = made.plot().data
    assert sum(bar.x[0] for bar in bars) == pytest.approx(made.step_time * 1e3, rel=1e-6)
    streams = made.plot("streams").data
    assert {"compute", "nccl"} == {lane for bar in streams for lane in bar.y}
    write_perfetto(made, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert len(kernels) == 4 and {event["args"]["line"] for event in kernels} == {"t.py:1"}
    assert sum(event["dur"] for event in kernels[2:]) * 1e-6 == pytest.approx(made.parts().computing, rel=1e-6)


@pytest.mark.parametrize("ranks", [1, 8])
def test_an_update_on_the_host_takes_what_was_measured_and_ranks_of_a_node_share_its_memory(ranks):
    """2.57 s for ten billion parameters, of which DeepSpeed's Adam moves 30 bytes each (Ren et al. 2021, table 4)."""
    builder = RoleBuilder()
    builder.step_boundary()
    host = builder.stream(PROCESSORS)
    moved = 30 * 10**10 // ranks
    builder.kernel("aten._fused_adamw_", bytes_read=moved // 2, bytes_written=moved // 2, stream=host, phase="optimizer")
    builder.kernel("aten.add", bytes_read=MiB, bytes_written=MiB)
    builder.step_boundary()
    role = dataclasses.replace(builder.role(), stands_for=tuple(range(ranks)))
    made = price_trace(Trace(roles=(role,), world_size=ranks), load_cluster("dgx-h100", gpus=ranks), "deepspeed")
    assert made.step_time == pytest.approx(2.57, rel=0.01) and made.parts().idle == pytest.approx(2.57, rel=0.01)
    assert made.operators()[0].op == "aten._fused_adamw_" and made.operators()[0].time == pytest.approx(2.57, rel=0.01)
