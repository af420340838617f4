"""Which pass a rank runs when, under the schedules whose order is a closed form of its place."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.pipeline import schedules
from costmodel.formulas.quantities import Number


def passes_in_turn(schedule: Number, stages: Number, virtual_stages: Number, micro_batches: Number) -> Number:
    """Forward passes of a rank, and as many backward passes, under 1F1B or Megatron-LM's interleaved order.

    The interleaved order takes micro-batches in rounds of as many as there are ranks; where they are no multiple of it, it is
    that of the next multiple, less those that are not there.

    Parameters
    ----------
    schedule : code of 1F1B or interleaved
    stages : ranks of the pipeline
    virtual_stages : chunks of the model on a rank
    micro_batches : that run through it

    Examples
    --------
    >>> passes_in_turn(schedules.INTERLEAVED, 4.0, 2.0, 6.0)
    16.0
    """
    rounds = ops.ceil_div(micro_batches, stages)
    return ops.where(ops.equal(schedule, schedules.INTERLEAVED), virtual_stages * stages * rounds, virtual_stages * micro_batches)


def pass_in_turn(
    schedule: Number, stages: Number, virtual_stages: Number, micro_batches: Number, rank: Number, position: Number,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """The pass at a position of a rank's order: 1 where it is backward, its stage of the chain, its micro-batch.

    A rank is some forward passes ahead, then runs one forward and one backward pass in turn, then the backward passes that are
    left. A micro-batch beyond those that there are stands for no pass.

    Parameters
    ----------
    schedule, stages, virtual_stages, micro_batches : as `passes_in_turn` takes them
    rank : from 0
    position : in the order, from 0 to twice `passes_in_turn`

    References
    ----------
    [narayanan2021]_ section 2.2; NVIDIA/Megatron-LM ``megatron/core/pipeline_parallel/schedules.py``

    Examples
    --------
    >>> [pass_in_turn(schedules.ONE_F_ONE_B, 2.0, 1.0, 2.0, 0.0, position) for position in (0.0, 1.0, 2.0, 3.0)]
    [(0.0, 0.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (1.0, 0.0, 1.0)]
    """
    forwards = passes_in_turn(schedule, stages, virtual_stages, micro_batches)
    behind = stages - 1.0 - rank
    interleaved = 2.0 * behind + (virtual_stages - 1.0) * stages
    ahead = ops.minimum(forwards, ops.where(ops.equal(schedule, schedules.INTERLEAVED), interleaved, behind))
    into = position - ahead
    turn = -ops.ceil(-0.5 * into)
    warming, draining = into < 0.0, position >= 2.0 * forwards - ahead
    backward = ops.where(warming, 0.0, ops.where(draining, 1.0, into - 2.0 * turn))
    index = ops.where(warming, position, ops.where(draining, position - forwards, turn + (1.0 - backward) * ahead))
    before = -ops.ceil(-index / (stages * virtual_stages))
    within = index - before * stages * virtual_stages
    chunk = -ops.ceil(-within / stages)
    there = ops.where(backward > 0.0, virtual_stages - 1.0 - chunk, chunk)
    return backward, there * stages + rank, before * stages + within - chunk * stages
