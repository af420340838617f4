r"""Pipeline schedules as closed forms: what idles while the pipeline fills and drains, and what is kept alive.

:math:`F, B, W` are one micro-batch's forward, backward by data and backward by weights on one stage.
"""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas.flops import layer_matrices

GPIPE, ONE_F_ONE_B, INTERLEAVED, ZB_H1, ZB_H2, DUALPIPE, ZB_V = 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0
"""Codes of the schedules."""


def bubble(schedule, stages, virtual_stages, forward, data, weight):
    r"""Idle time of one stage in a step [s], uniform stages.

    ============  ==================================================
    GPipe, 1F1B   :math:`(p - 1)(F + B + W)`
    interleaved   :math:`(p - 1)(F + B + W) / v`
    ZB-H1         :math:`(p - 1)(F + B - W)`, at least 0
    ZB-H2         :math:`(p - 1)(F + B - 2 W)`, at least 0
    ZB-V          :math:`(p - 1)(F + B - 2 W)`, at least 0
    DualPipe      :math:`(p / 2 - 1)(F + 2 B - W)`, at least 0
    ============  ==================================================

    Parameters
    ----------
    schedule : code of the schedule
    stages : :math:`p`
    virtual_stages : model chunks on a rank :math:`v`
    forward, data, weight : :math:`F, B, W` [s]

    References
    ----------
    [huang2019]_, [narayanan2021]_ section 2.2, [qi2023]_ table 1, [deepseek2024v3]_ table 2 (its B is B + W here,
    and a forward overlapped with a backward takes F + B + W)

    Examples
    --------
    >>> bubble(ONE_F_ONE_B, 4.0, 1.0, 1.0, 1.0, 1.0), bubble(ZB_H1, 4.0, 1.0, 1.0, 1.0, 1.0)
    (9.0, 3.0)
    """
    others = stages - 1.0
    fused = others * (forward + data + weight) / virtual_stages
    first = others * ops.maximum(forward + data - weight, 0.0)
    second = others * ops.maximum(forward + data - 2.0 * weight, 0.0)
    dual = ops.maximum(0.5 * stages - 1.0, 0.0) * ops.maximum(forward + 2.0 * data - weight, 0.0)
    split = ops.where(ops.equal(schedule, ZB_H1), first, ops.where(ops.equal(schedule, DUALPIPE), dual, second))
    return ops.where(schedule < 2.5, fused, split)


def in_flight(schedule, stages, virtual_stages, micro_batches, stage):
    r"""Micro-batches whose activations a stage holds at its fullest, in units of the stage's whole depth.

    ============  =============================================================
    GPipe         :math:`m`
    1F1B, ZB-H1   :math:`\min(m, p - r)`; ZB-H1: :math:`\min(m, p)`
    interleaved   :math:`\min(m v,\; 2 (p - r - 1) + (v - 1) p + 1) / v`
    ZB-H2         :math:`\min(m, 2 (p - r) - 1)`, first stage :math:`2 p - 1`
    ZB-V          :math:`\min(m, p)`
    DualPipe      :math:`\min(m, p + 1)`
    ============  =============================================================

    Parameters
    ----------
    schedule : code of the schedule
    stages : :math:`p`
    virtual_stages : :math:`v`
    micro_batches : :math:`m`
    stage : rank in the pipeline :math:`r`, from 0

    References
    ----------
    [narayanan2021]_, [korthikanti2022]_ section 4.2.3, [qi2023]_ table 1, [deepseek2024v3]_ table 2

    Examples
    --------
    >>> in_flight(ONE_F_ONE_B, 4.0, 1.0, 8.0, 0.0), in_flight(INTERLEAVED, 4.0, 2.0, 8.0, 0.0)
    (4.0, 5.5)
    """
    plain = stages - stage
    chunks = 2.0 * (stages - stage - 1.0) + (virtual_stages - 1.0) * stages + 1.0
    interleaved = ops.minimum(micro_batches * virtual_stages, chunks) / virtual_stages
    second = ops.maximum(2.0 * plain - 1.0, 1.0)
    held = ops.where(ops.equal(schedule, DUALPIPE), stages + 1.0, stages)
    wanted = ops.where(ops.equal(schedule, ZB_H2), second, held)
    deep = ops.where(ops.equal(schedule, ONE_F_ONE_B), plain, wanted)
    limited = ops.minimum(micro_batches, deep)
    batched = ops.where(ops.equal(schedule, GPIPE), micro_batches, limited)
    return ops.where(ops.equal(schedule, INTERLEAVED), interleaved, batched)


def weight_copies(schedule):
    """Copies of the stage's weights on a rank: two directions of DualPipe meet on it.

    Parameters
    ----------
    schedule : code of the schedule
    """
    return ops.where(ops.equal(schedule, DUALPIPE), 2.0, 1.0)


def stage_layers(model, options, plan):
    """Layers on the first, on the second (fullest of the middle) and on the last stage.

    Stages hold equal shares; where the layers are short of that, the last stage (which has the vocabulary
    projection) and the first (which has the embedding) give up half each, the last the odd one, as Megatron-LM's
    ``--account-for-loss-in-pipeline-split``, ``--account-for-embedding-in-pipeline-split`` and
    ``--decoder-first-pipeline-num-layers`` with ``--decoder-last-pipeline-num-layers`` do. Frameworks that
    balance by cost count the vocabulary projection as so many layers as it has weights, and fill stage after
    stage up to the mean (nanotron ``get_block_compute_costs``).

    Parameters
    ----------
    model : `Model`
    options : `Options`
    plan : `Plan`
    """
    slots = plan.pipeline * plan.virtual_stages
    full = plan.virtual_stages * ops.ceil_div(model.layers, slots)
    short = full * plan.pipeline - model.layers
    last = full - ops.ceil(0.5 * short)
    first = full - (short - ops.ceil(0.5 * short))
    head = model.vocabulary * model.hidden / layer_matrices(model)
    filled = ops.minimum(ops.ceil((model.layers + head) / plan.pipeline), model.layers)
    second = ops.minimum(filled, model.layers - filled)
    left = ops.maximum(model.layers - filled * (plan.pipeline - 1.0), 0.0)
    by_cost = (options.balanced_stages > 0.0) & (plan.pipeline > 1.0)
    return ops.where(by_cost, filled, first), ops.where(by_cost, second, full), ops.where(by_cost, left, last)
