r"""Pipeline schedules as closed forms: what idles while the pipeline fills and drains, and what is kept alive.

:math:`F, B, W` are one micro-batch's forward, backward by data and backward by weights on one stage.
"""

from __future__ import annotations

from typing import NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number


class Traits(NamedTuple):
    """What a schedule does, as far as it isn't a closed form of its own; a row of `SCHEDULES`."""

    chunked: bool = False  # runs several chunks of the model on a rank
    grouped_by_stages: bool = False  # takes micro-batches in rounds of as many as there are stages
    batched: bool = False  # runs every forward pass before the first backward pass
    bidirectional: bool = False  # micro-batches enter at both ends; a rank runs its stage and the mirrored one
    v_shaped: bool = False  # the first rank runs the first and the last stage
    pairs_directions: bool = False  # a backward pass of one direction runs while logits of the other wait for theirs
    flushes: bool = True  # the pipeline drains before the weights change
    updates_each: bool = False  # the weights change after every micro-batch
    versions: float = 1.0  # of the weights that a rank keeps; 0: one for each micro-batch in flight
    least: tuple[float, float] = (0.0, 0.0)  # micro-batches for which the closed form holds: so many a stage, and so many
    exact: bool = False  # that number of micro-batches and no other
    even: bool = False  # an even number of stages
    even_micro_batches: bool = False
    needs_pipeline: bool = True  # makes no sense on one stage
    asynchronous: bool = False  # a stage begins the next step as soon as it has ended one
    deepest_in_the_middle: bool = False  # a middle stage holds most micro-batches
    splits_backward: bool = False  # weight gradients are made in passes of their own


SCHEDULES: dict[str, Traits] = {
    "gpipe": Traits(batched=True, needs_pipeline=False),
    "1f1b": Traits(needs_pipeline=False),
    "interleaved": Traits(chunked=True, grouped_by_stages=True, needs_pipeline=False),
    "zb-h1": Traits(least=(1.0, 0.0), splits_backward=True),
    "zb-h2": Traits(least=(2.0, -1.0), asynchronous=True, splits_backward=True),
    "dualpipe": Traits(least=(2.0, 0.0), bidirectional=True, v_shaped=True, pairs_directions=True, even=True,
    even_micro_batches=True),
    "zb-v": Traits(least=(2.0, -1.0), v_shaped=True, asynchronous=True, splits_backward=True),
    "chimera": Traits(least=(1.0, 0.0), exact=True, bidirectional=True, v_shaped=True, even=True, deepest_in_the_middle=True),
    "breadth-first": Traits(chunked=True, batched=True, least=(1.0, 0.0)),
    "pipedream": Traits(flushes=False, updates_each=True, versions=0.0, least=(1.0, 0.0)),
    "pipedream-2bw": Traits(flushes=False, versions=2.0, least=(1.0, 0.0)),
}
"""Every schedule; its place is its code. A new one is a row here, its bubble and what it keeps in flight below, and the order
of its passes in `costmodel.description.schedule`."""
CODES = {name: float(code) for code, name in enumerate(SCHEDULES)}
"""Codes of the schedules, as columns hold them."""
GPIPE, ONE_F_ONE_B, INTERLEAVED, ZB_H1, ZB_H2, DUALPIPE, ZB_V, CHIMERA, BREADTH_FIRST, PIPEDREAM, PIPEDREAM_2BW = CODES.values()

_TRAITS = {name: tuple(float(getattr(row, name)) for row in SCHEDULES.values()) for name in Traits._fields if name != "least"}
_LEAST_A_STAGE, _LEAST_BESIDES = zip(*(row.least for row in SCHEDULES.values()), strict=True)
_OWN_BUBBLE = tuple(float(name in ("zb-h1", "zb-h2", "dualpipe", "zb-v", "chimera")) for name in SCHEDULES)
"""Schedules whose bubble isn't that of whole passes, one stage after the other."""
ARGUMENTS = {
    "schedule": "code of the schedule", "stages": "p", "micro_batches": "of a step", "virtual_stages": "model chunks on a rank",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""


UNLIMITED = 1e18
"""Micro-batches that a rule has no limit for."""


def bubble_zb_v(stages: Number, forward: Number, data: Number, weight: Number) -> Number:
    r"""Idle time of one stage under ZB-V [s]: the longest of the ways through its order.

    Parameters
    ----------
    forward, data, weight : :math:`F, B, W` of both chunks of a rank [s]

    Each is the length of one path through the events of the order that PyTorch has, less what a rank works; the first,
    :math:`(p - 1)(B - W)`, is the longest where :math:`B \ge F \ge W`.

    Examples
    --------
    >>> bubble_zb_v(4.0, 1.0, 1.0, 1.0), bubble_zb_v(4.0, 1.0, 1.0, 0.5)
    (0.0, 1.5)
    """
    others, between = stages - 1.0, stages - 2.0
    ahead, behind = forward - weight, data - forward
    longest = ops.maximum(2.0 * others * (data - weight), others * (ahead - behind))
    longest = ops.maximum(longest, others * behind)
    longest = ops.maximum(longest, ops.maximum(behind, 0.0) - between * ahead)
    longest = ops.maximum(longest, 2.0 * others * ahead + ops.maximum(behind, -weight))
    longest = ops.maximum(longest, -between * behind)
    return ops.where(stages > 1.0, ops.maximum(0.5 * longest, 0.0), 0.0)


def bubble_two_way(schedule: Number, stages: Number, forward: Number, data: Number, weight: Number) -> Number:
    r"""Idle time of one stage under DualPipe or Chimera [s]; 0 under any other schedule.

    Parameters
    ----------
    forward, data, weight : :math:`F, B, W` of a micro-batch [s]

    Examples
    --------
    >>> bubble_two_way(DUALPIPE, 8.0, 1.0, 1.0, 1.0), bubble_two_way(CHIMERA, 8.0, 1.0, 1.0, 1.0)
    (6.0, 12.0)
    """
    pairs = ops.maximum(0.5 * stages - 1.0, 0.0)
    entering = ops.maximum(2.0 * pairs * forward, ops.maximum(pairs - 1.0, 0.0) * forward + pairs * data)
    dual = pairs * ops.maximum(data - weight, 0.0) + entering
    both = 2.0 * pairs * ops.maximum(forward, data + weight)
    return bidirectional(schedule) * ops.where(ops.equal(schedule, DUALPIPE), dual, both)


def bubble(
    schedule: Number, stages: Number, virtual_stages: Number, forward: Number, data: Number, weight: Number,
) -> Number:  # fmt: skip
    r"""Idle time of one stage in a step [s], uniform stages, no transfers.

    =============  ======================================================================================  ============
    schedule       idle time                                                                               micro-batches
    =============  ======================================================================================  ============
    GPipe, 1F1B    :math:`(p - 1)(F + B + W)`                                                              any
    interleaved    :math:`(p - 1)(F + B + W) / v`                                                          multiple of p
    breadth-first  the same                                                                                from p on
    ZB-H1          :math:`(p - 1)(F + B - \min(F, W))`                                                     from p on
    ZB-H2          :math:`(p - 1)(F + B - 2 \min(F, W))`, at least 0                                       from 2 p - 1 on
    ZB-V           `bubble_zb_v`                                                                           from 2 p - 1 on
    DualPipe       :math:`(p/2 - 1)\max(B - W, 0) + \max((p - 2) F, (p/2 - 2) F + (p/2 - 1) B)`            from 2 p on
    Chimera        :math:`(p - 2) \max(F, B + W)`                                                          p
    PipeDream      0, as it never flushes; nor does 2BW                                                    any
    =============  ======================================================================================  ============

    The forms hold exactly for the numbers of micro-batches named. ZB-H1 and ZB-H2 are published for :math:`W \le F`;
    DualPipe as :math:`(p/2 - 1)(F + 2 B - W)`, which is this where :math:`F = B \ge W`; Chimera as
    :math:`(p/2 - 1)(F + B + W)`, which is this where :math:`F = B + W`, and holds for any multiple of p then. For ZB-H2
    and ZB-V the time is from a stage's own first pass to its last, as the next step begins without a barrier.

    Parameters
    ----------
    virtual_stages : model chunks on a rank :math:`v`
    forward, data, weight : :math:`F, B, W` of all chunks of a rank [s]

    References
    ----------
    [huang2019]_, [narayanan2021]_ section 2.2, [lamypoirier2023]_, [qi2023]_ table 1, [li2021]_ table 2,
    [deepseek2024v3]_ table 2 (its B is B + W here, and a forward overlapped with a backward takes F + B + W)

    Examples
    --------
    >>> bubble(ONE_F_ONE_B, 4.0, 1.0, 1.0, 1.0, 1.0), bubble(ZB_H1, 4.0, 1.0, 1.0, 1.0, 1.0)
    (9.0, 3.0)
    """
    others = stages - 1.0
    fused = others * (forward + data + weight) / virtual_stages
    filled = ops.minimum(forward, weight)
    first = others * (forward + data - filled)
    second = others * ops.maximum(forward + data - 2.0 * filled, 0.0)
    both_ways = bubble_two_way(schedule, stages, forward, data, weight)
    valley = bubble_zb_v(stages, forward, data, weight)
    halves = ops.where(ops.equal(schedule, ZB_H1), first, ops.where(ops.equal(schedule, ZB_H2), second, valley))
    split = ops.where(bidirectional(schedule) > 0.0, both_ways, halves)
    known = ops.pick(schedule, _OWN_BUBBLE)
    return ops.pick(schedule, _TRAITS["flushes"]) * ops.where(known > 0.0, split, fused)


def in_flight(
    schedule: Number, stages: Number, virtual_stages: Number, micro_batches: Number, stage: Number,
) -> Number:  # fmt: skip
    r"""Micro-batches whose activations a stage holds at its fullest, in units of the stage's whole depth.

    ====================  ===================================================================
    GPipe, breadth-first  :math:`m`
    1F1B, PipeDream, 2BW  :math:`\min(m, p - r)`
    interleaved           :math:`\min(m v,\; 2 (p - r - 1) + (v - 1) p + 1) / v`
    ZB-H1                 :math:`\min(m, p)`
    ZB-H2                 :math:`\min(m, 2 p - 1)`
    ZB-V                  :math:`\min(m, p, (m + 1 + r) / 2)`
    DualPipe              :math:`\min(m, p + 1)`
    Chimera               :math:`\min(m', m' / 2 + 1 + \min(r, p - 1 - r))`, :math:`m' = \min(m, p)`
    ====================  ===================================================================

    One is held until its backward pass by weights is done: under the schedules that put this off, later stages hold as
    many as the first.

    Parameters
    ----------
    virtual_stages : :math:`v`
    micro_batches : :math:`m`
    stage : rank in the pipeline :math:`r`, from 0

    References
    ----------
    [narayanan2021]_, [korthikanti2022]_ section 4.2.3, [qi2023]_ table 1, [deepseek2024v3]_ table 2, [li2021]_ table 2

    Examples
    --------
    >>> in_flight(ONE_F_ONE_B, 4.0, 1.0, 8.0, 0.0), in_flight(INTERLEAVED, 4.0, 2.0, 8.0, 0.0)
    (4.0, 5.5)
    """
    chunks = 2.0 * (stages - stage - 1.0) + (virtual_stages - 1.0) * stages + 1.0
    deep = ops.where(ops.equal(schedule, DUALPIPE), stages + 1.0, stages)
    deep = ops.where(ops.equal(schedule, ZB_H2), 2.0 * stages - 1.0, deep)
    one_by_one = ops.equal(schedule, ONE_F_ONE_B) | (ops.pick(schedule, _TRAITS["flushes"]) < 1.0)
    deep = ops.where(one_by_one, stages - stage, deep)
    deep = ops.where(ops.equal(schedule, INTERLEAVED), chunks / virtual_stages, deep)
    limit = ops.where(ops.pick(schedule, _TRAITS["batched"]) > 0.0, UNLIMITED, deep)
    # half of the micro-batches and so many: in the way down of a valley, and on one of two ways
    valley, both_ways = ops.equal(schedule, ZB_V), ops.equal(schedule, CHIMERA)
    entered = ops.minimum(micro_batches, ops.where(both_ways, stages, UNLIMITED))
    besides = ops.where(valley, 0.5 * (1.0 + stage), UNLIMITED)
    besides = ops.where(both_ways, 1.0 + ops.minimum(stage, stages - 1.0 - stage), besides)
    return ops.minimum(ops.minimum(micro_batches, limit), 0.5 * entered + besides)


def bidirectional(schedule: Number) -> Number:
    """1 where micro-batches enter the pipeline at both ends, so that a rank runs its stage and the mirrored one."""
    return ops.pick(schedule, _TRAITS["bidirectional"])


def v_shaped(schedule: Number) -> Number:
    """1 where the first rank runs the first and the last stage, and with them the embedding and the head."""
    return ops.pick(schedule, _TRAITS["v_shaped"])


def flushes(schedule: Number) -> Number:
    """1 where the pipeline drains before the weights change."""
    return ops.pick(schedule, _TRAITS["flushes"])


def splits_backward(schedule: Number) -> Number:
    """1 where weight gradients are made in passes of their own."""
    return ops.pick(schedule, _TRAITS["splits_backward"])


def asynchronous(schedule: Number) -> Number:
    """1 where a stage begins the next step as soon as it has ended one."""
    return ops.pick(schedule, _TRAITS["asynchronous"])


def losses_in_flight(schedule: Number, micro_batches: Number) -> Number:
    """Micro-batches whose logits wait for their backward pass: all where every forward pass comes first, else one."""
    return ops.where(ops.pick(schedule, _TRAITS["batched"]) > 0.0, micro_batches, 1.0)


def weight_copies(schedule: Number) -> Number:
    """Stages whose weights and gradients a rank holds: two where two directions of the pipeline meet on it."""
    return 1.0 + bidirectional(schedule)


def updates(schedule: Number, micro_batches: Number) -> Number:
    """Updates of the weights in a step: after every micro-batch under PipeDream, else one.

    A step of 2BW is one of its batches of accumulated gradients, as of the schedules that flush.

    References
    ----------
    [narayanan2019]_ section 3.3, [narayanan2020]_ section 3.1

    Examples
    --------
    >>> updates(PIPEDREAM, 8.0), updates(PIPEDREAM_2BW, 8.0), updates(ONE_F_ONE_B, 8.0)
    (8.0, 1.0, 1.0)
    """
    return ops.where(ops.pick(schedule, _TRAITS["updates_each"]) > 0.0, micro_batches, 1.0)


def crossings(schedule: Number, virtual_stages: Number) -> Number:
    """Boundaries behind which a micro-batch leaves a rank that has neighbours on both sides, each way.

    One for each chunk; a valley is crossed down and up.

    Examples
    --------
    >>> crossings(INTERLEAVED, 4.0), crossings(ZB_V, 1.0), crossings(DUALPIPE, 1.0)
    (4.0, 2.0, 1.0)
    """
    return virtual_stages * (1.0 + v_shaped(schedule) * (1.0 - bidirectional(schedule)))


def messages(schedule: Number, virtual_stages: Number, outer: Number) -> Number:
    """Messages that a rank sends of one micro-batch, both ways, on average of the two ends where it may enter at either.

    The first rank and the last lack a neighbour: the first stage sends no gradients, the last no activations, and where
    two stages of a rank meet nothing is sent.

    Parameters
    ----------
    outer : 1 for the first rank and the last

    Examples
    --------
    >>> messages(ONE_F_ONE_B, 1.0, 0.0), messages(ONE_F_ONE_B, 1.0, 1.0), messages(ZB_V, 1.0, 1.0)
    (2.0, 1.0, 2.0)
    """
    return 2.0 * crossings(schedule, virtual_stages) - outer * crossings(schedule, 1.0)


def weight_versions(schedule: Number, held: Number) -> Number:
    """Versions of the stage's weights that a rank keeps: one, two generations, or one for each micro-batch in flight.

    Parameters
    ----------
    held : micro-batches in flight on the stage

    References
    ----------
    [narayanan2019]_ section 3.3, [narayanan2020]_ section 3

    Examples
    --------
    >>> weight_versions(PIPEDREAM, 4.0), weight_versions(PIPEDREAM_2BW, 4.0), weight_versions(ONE_F_ONE_B, 4.0)
    (4.0, 2.0, 1.0)
    """
    versions = ops.pick(schedule, _TRAITS["versions"])
    return ops.where(versions > 0.0, versions, held)


def pairs_directions(schedule: Number) -> Number:
    """1 where a backward pass of one direction runs while logits of the other wait for theirs."""
    return ops.pick(schedule, _TRAITS["pairs_directions"])


def chunked(schedule: Number) -> Number:
    """1 where a rank runs several chunks of the model."""
    return ops.pick(schedule, _TRAITS["chunked"])


def grouped_by_stages(schedule: Number) -> Number:
    """1 where micro-batches are taken in rounds of as many as there are stages."""
    return ops.pick(schedule, _TRAITS["grouped_by_stages"])


def needs_pipeline(schedule: Number) -> Number:
    """1 where the schedule makes no sense on one stage."""
    return ops.pick(schedule, _TRAITS["needs_pipeline"])


def deepest_stage(schedule: Number, stages: Number) -> Number:
    """Stage, of those between the first and the last, that holds most micro-batches, from 0."""
    return ops.where(ops.pick(schedule, _TRAITS["deepest_in_the_middle"]) > 0.0, ops.ceil(0.5 * stages) - 1.0, 1.0)


def outside_closed_form(schedule: Number, stages: Number, micro_batches: Number) -> Number:
    """1 where the closed form of a schedule doesn't hold: too few micro-batches, or an odd number where it takes pairs."""
    least = ops.pick(schedule, _LEAST_A_STAGE) * stages + ops.pick(schedule, _LEAST_BESIDES)
    few = ops.where(micro_batches < least, 1.0, 0.0)
    more = ops.pick(schedule, _TRAITS["exact"]) * ops.where(micro_batches > least, 1.0, 0.0)
    half, pairs = ops.ceil(0.5 * stages), ops.ceil(0.5 * micro_batches)
    odd_stages = ops.pick(schedule, _TRAITS["even"]) * ops.where(2.0 * half > stages, 1.0, 0.0)
    odd = ops.pick(schedule, _TRAITS["even_micro_batches"]) * ops.where(2.0 * pairs > micro_batches, 1.0, 0.0)
    return ops.maximum(ops.maximum(few, more), ops.maximum(odd_stages, odd))
