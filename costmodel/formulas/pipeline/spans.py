r"""How long a pipeline of unlike ranks takes for a step's passes: the longest of the ways through its schedule.

A way stays on one rank for most micro-batches, and crosses the others as the pipeline fills and drains. The first rank, the
last and those between (alike, or a layer fewer) are :math:`f, l, m`; :math:`F, B, W` are a micro-batch's forward pass and
its backward passes by data and by weights on a rank, :math:`T` all three, each with what its sends keep it; :math:`n`
micro-batches, :math:`p` ranks, :math:`h` what a message takes beyond what it keeps its sender. Each sum is the length of
one path through the events of the order; where yet another path is longer, as where messages take about as long as passes,
what is played is.
"""

from __future__ import annotations

from typing import NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas.pipeline import schedules
from costmodel.formulas.quantities import Number


class PassSpan(NamedTuple):
    """What a micro-batch takes on a rank [s], with what its sends keep the rank."""

    forward: Number
    weight: Number  # backward by weights
    total: Number  # forward and backward


def span(
    schedule: Number, stages: Number, virtual_stages: Number, micro_batches: Number, front: PassSpan,
    inner: PassSpan, back: PassSpan,
    down: PassSpan, share: Number, every: Number, kept: Number, late: Number,
) -> Number:  # fmt: skip
    """Time in which a pipeline runs the passes of a step [s], for schedules that flush and enter at one end.

    Under ZB-H2 and ZB-V from a rank's own first pass to its last, as the next step begins without a barrier.

    Parameters
    ----------
    schedule : code of the schedule
    stages : :math:`p`, at least 2
    virtual_stages : model chunks on a rank :math:`v`
    micro_batches : of a step
    front, inner, back : `PassSpan` of the first rank, of each between and of the last
    down : of the first rank's first chunk, where it also has the last
    share : of a rank between, its first chunk's of two
    every : all passes of one micro-batch on all ranks [s]
    kept : of a message, for which its sender waits [s]
    late : of a message, beyond that [s]
    """
    valley = schedules.v_shaped(schedule) > 0.0
    flat = _linear(schedule, stages, micro_batches, front, inner, back, every, kept, late)
    deep = _chunked(schedule, stages, virtual_stages, micro_batches, front, inner, back, every, late)
    one_chunk = ops.where(valley, _valley(stages, micro_batches, front, inner, back, down, share, late), flat)
    return ops.where(virtual_stages > 1.0, deep, one_chunk)


def _linear(
    schedule: Number, stages: Number, micro_batches: Number, front: PassSpan, inner: PassSpan, back: PassSpan, every: Number,
    kept: Number, late: Number,
) -> Number:  # fmt: skip
    r"""GPipe, 1F1B, ZB-H1 and ZB-H2, one stage a rank.

    GPipe takes :math:`\sum T + (n - 1)(\max F + \max (B + W))`. Under 1F1B a rank that waits for the first backward pass waits
    once more for the last, so that ranks behind the slowest one count twice: :math:`\sum T + (n - 1) T_l`,
    :math:`T_f + (n + p - 4) T_m + 2 T_l`, :math:`(n - p + 1) T_f + 2 ((p - 2) T_m + T_l)`, where what waits is the longer. Under
    ZB-H1 and ZB-H2 passes by weights, and of the first rank forward passes, fill the waits: of the last rank :math:`p - 1` or
    :math:`2 (p - 1)`.
    """
    m, h, before = micro_batches, late, stages - 1.0
    between_any = ops.where(stages > 2.0, 1.0, 0.0)
    # those between count as their mean, but the one that the way stays on
    passed = (every - front.total - back.total) / ops.maximum(inner.total, 1e-30)
    between = ops.where(stages > 2.0, ops.maximum(ops.minimum(passed, stages - 2.0), 0.0), 0.0)
    split, again = schedules.splits_backward(schedule), schedules.asynchronous(schedule)
    rest_first, rest_inner = front.total - front.forward, inner.total - inner.forward
    inner_kept = inner.total - split * inner.weight
    back_kept = back.total - split * back.weight + 2.0 * h
    ahead = (1.0 + again) * before
    # from the first rank's forward pass to the backward pass of the same micro-batch
    around = every - front.total - split * (between * inner.weight + back.weight) + 2.0 * before * h

    first = (
        (m - ahead) * front.total + ops.maximum(around, ahead * front.forward)
        + ops.maximum(ops.where(m > stages, around, 0.0), ahead * rest_first)
    )  # fmt: skip
    filling = (1.0 - again) * (front.forward + between * inner.forward + before * h)
    last = ops.maximum(around + front.total + (m - 1.0) * back.total - ahead * split * back.weight, m * back.total + filling)
    waits = ops.maximum(back_kept, inner.forward) + ops.maximum(back_kept, rest_inner)
    # as many micro-batches as ranks between go to and fro over all of these, where that takes longer than to stay on one
    to_and_fro = ops.maximum(2.0 * (stages - 3.0) * h - 2.0 * kept, 0.0) / ops.maximum(stages - 2.0, 1.0)
    twice = (m - stages) * (inner.total + to_and_fro) + 2.0 * between * inner_kept + (4.0 * stages - 10.0) * h + waits
    once = (
        (m - 1.0) * inner.total + between * (inner_kept - 2.0 * inner.weight + 2.0 * h)
        + ops.maximum(back_kept - 2.0 * inner.forward, 0.0)
    )  # fmt: skip
    own = (
        m * inner.total + (stages - 3.0) * ops.maximum(inner_kept - 2.0 * inner.forward + (1.0 + again) * h, 0.0)
        + (1.0 - again) * (filling - inner.forward - h + ops.maximum(back_kept - inner.forward, 0.0))
    )  # fmt: skip
    middle = between_any * ops.maximum(front.total + ops.where(again > 0.0, once, twice), own)

    forwards = ops.maximum(ops.maximum(front.forward, back.forward), between_any * inner.forward)
    backwards = ops.maximum(ops.maximum(rest_first, back.total - back.forward), between_any * rest_inner)
    batched = every + 2.0 * before * h + (m - 1.0) * (forwards + backwards)
    one_by_one = m * (every + 2.0 * before * h)
    longest = ops.minimum(ops.maximum(ops.maximum(first, last), middle), ops.where(again > 0.0, 1e30, one_by_one))
    return ops.where(ops.equal(schedule, schedules.GPIPE), batched, longest)


def _chunked(
    schedule: Number, stages: Number, virtual_stages: Number, micro_batches: Number, front: PassSpan,
    inner: PassSpan, back: PassSpan,
    every: Number, late: Number,
) -> Number:  # fmt: skip
    r"""Several chunks a rank, of which only the first and the last of all are unlike the others.

    With :math:`T_m / v` a chunk, :math:`c_f` and :math:`c_l` the first and the last, and :math:`r` micro-batches that pass one
    chunk with no pass of another (all, or in rounds :math:`p`), the last rank waits for the first chunk :math:`r` times.
    Or one micro-batch crosses all chunks down, every one the last chunk, and one all chunks up, each on its message.
    """
    m, v, h, before = micro_batches, virtual_stages, late, stages - 1.0
    rounds = schedules.grouped_by_stages(schedule)
    chunk = inner.total / v
    others = (v - 1.0) * chunk
    first_chunk, last_chunk = front.total - others, back.total - others
    alone = ops.where(rounds > 0.0, stages, m)
    crossing = every + (m - 1.0) * last_chunk + (m - alone) * others + 2.0 * (stages * v - 1.0) * h
    filling = (stages - 2.0) * chunk + 2.0 * before * h
    last = m * back.total + filling + first_chunk + (alone - 1.0) * ops.maximum(first_chunk - chunk, 0.0)
    # in rounds a rank runs two forward passes more ahead of its first backward pass for each rank behind it
    ahead = 2.0 * rounds * inner.forward / v
    first = m * front.total + filling + last_chunk - before * ahead
    middle = ops.where(stages > 2.0, m * inner.total + filling - chunk + first_chunk + last_chunk - ahead, 0.0)
    return ops.maximum(ops.maximum(crossing, last), ops.maximum(first, middle))


def _valley(
    stages: Number, micro_batches: Number, front: PassSpan, inner: PassSpan, back: PassSpan, down: PassSpan,
    share: Number, late: Number
) -> Number:
    """ZB-V: the first rank, which has the embedding and the head, never waits, or for the others at the end of its passes; or
    the others take longest, among whom the first rank counts once."""
    m, p, before = micro_batches, stages, stages - 1.0
    between = stages > 2.0
    other = PassSpan(
        ops.where(between, inner.forward, back.forward), ops.where(between, inner.weight, back.weight),
        ops.where(between, inner.total, back.total),
    )  # fmt: skip
    data = other.total - other.forward - other.weight
    backward = down.total - down.forward
    opening = before * ops.maximum(other.forward - 2.0 * down.forward + 2.0 * late, 0.0)
    closing = before * (data - backward + 2.0 * late)
    short = 1.0 - share
    weights = (
        (1.0 + (p - 2.0) * short) * data - p * backward + (p - short) * other.weight - down.forward
        - (p - 2.0) * share * other.forward
    )  # fmt: skip
    # where passes by data take longer than all others, the wait for the last chunk's is met once more
    closing = closing + before * ops.maximum(data + 2.0 * late - (front.total - down.total), 0.0)
    waits = ops.maximum(closing, weights) - (front.weight - down.weight) + opening
    own = m * front.total + ops.maximum(waits, 0.0)
    idle = schedules.bubble_zb_v(stages, other.forward, data, other.weight)
    # where the second chunk is shorter by an odd layer, ways that pass it where the first might be
    odd = share - short
    idle = ops.maximum(idle, before * (data - other.weight) + (p - 2.0) * odd * other.forward)
    idle = ops.maximum(idle, before * (other.forward - short * (data + other.weight)))
    uneven = before * (share * other.forward + odd * data - short * other.weight) + short * (data - other.forward)
    idle = ops.maximum(idle, uneven)
    return ops.maximum(own, front.total + (m - 1.0) * other.total + idle)
