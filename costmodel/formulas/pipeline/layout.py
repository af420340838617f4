"""Who holds which layers: the only place where layers, embedding and head are dealt to the ranks of a pipeline."""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas.pipeline import schedules
from costmodel.formulas.quantities import ModelNumbers, Number, PlanNumbers, Settings
from costmodel.formulas.transformer.flops import layer_matrices


def rank_layers(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> tuple[Number, Number, Number]:
    """Layers that a micro-batch passes on the first rank, on the second and on the last.

    As `stage_layers`, but where a rank runs a stage of each end: of a valley (ZB-V) a micro-batch passes both, so that the
    first rank has both short ones; of two directions it passes one or the other, on average their mean.

    Parameters
    ----------
    model, settings, plan : `ModelNumbers`, `Settings`, `PlanNumbers`
    """
    first, middle, last = stage_layers(model, settings, plan)
    piped = ops.where(plan.pipeline > 1.0, 1.0, 0.0)
    both = piped * schedules.two_way(plan.schedule)
    valley = piped * schedules.folded(plan.schedule) * (1.0 - both)
    ends = ops.where(valley > 0.0, first + last - middle, 0.5 * (first + last))
    bottom = ops.where(valley > 0.0, middle, last)
    return ops.where(valley + both > 0.0, ends, first), middle, ops.where(both > 0.0, ends, bottom)


def rank_shares(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers,
) -> tuple[tuple[Number, Number, Number, Number], ...]:  # fmt: skip
    """What a micro-batch passes on the first rank, on the second and on the last, on average of all micro-batches.

    For each the layers, the shares of micro-batches that meet the embedding and the head there, and 1 where there is such a
    rank: of one stage only the first, of two none between.

    Parameters
    ----------
    model, settings, plan : `ModelNumbers`, `Settings`, `PlanNumbers`
    """
    first, middle, last = rank_layers(model, settings, plan)
    two_way = schedules.two_way(plan.schedule)
    folded = ops.where(plan.pipeline > 1.0, schedules.folded(plan.schedule), 0.0)
    piped, between = ops.where(plan.pipeline > 1.0, 1.0, 0.0), ops.where(plan.pipeline > 2.0, 1.0, 0.0)
    embedding = ops.where(piped > 0.0, 1.0 - 0.5 * two_way, 1.0)
    head = ops.where(piped > 0.0, folded * (1.0 - 0.5 * two_way), 1.0)
    return (
        (first, embedding, head, 1.0), (middle, 0.0, 0.0, between),
        (last, 0.5 * two_way, 1.0 - folded + 0.5 * two_way, piped),
    )  # fmt: skip


def chunks(plan: PlanNumbers) -> Number:
    """Passes each way that a micro-batch makes on a rank: one for each chunk of the model, two for each of a valley.

    Parameters
    ----------
    plan : `PlanNumbers`
    """
    return ops.where(plan.pipeline > 1.0, schedules.crossings(plan.schedule, plan.virtual_stages), plan.virtual_stages)


def micro_batches(settings: Settings, plan: PlanNumbers) -> Number:
    """Micro-batches that one pipeline works through in a step.

    Parameters
    ----------
    settings, plan : `Settings`, `PlanNumbers`
    """
    return settings.global_batch / (plan.data * plan.micro_batch)


def stage_layers(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> tuple[Number, Number, Number]:
    """Layers on the first, on the second (fullest of the middle) and on the last stage.

    Stages hold equal shares; where the layers are short of that, the last stage (which has the vocabulary
    projection) and the first (which has the embedding) give up half each, the last the odd one, as Megatron-LM's
    ``--account-for-loss-in-pipeline-split``, ``--account-for-embedding-in-pipeline-split`` and
    ``--decoder-first-pipeline-num-layers`` with ``--decoder-last-pipeline-num-layers`` do. Frameworks that
    balance by cost deal by `dealt_layers`.

    Parameters
    ----------
    model : `ModelNumbers`
    settings : `Settings`
    plan : `PlanNumbers`
    """
    slots = plan.pipeline * plan.virtual_stages
    full = plan.virtual_stages * ops.ceil_div(model.layers, slots)
    short = full * plan.pipeline - model.layers
    last = full - ops.ceil(0.5 * short)
    first = full - (short - ops.ceil(0.5 * short))
    filled = dealt_layers(model, plan, 1.0)
    second = dealt_layers(model, plan, 2.0) - filled
    left = model.layers - dealt_layers(model, plan, plan.pipeline - 1.0)
    by_cost = (settings.framework.balanced_stages > 0.0) & (plan.pipeline > 1.0)
    return ops.where(by_cost, filled, first), ops.where(by_cost, second, full), ops.where(by_cost, left, last)


def dealt_layers(model: ModelNumbers, plan: PlanNumbers, stages: Number) -> Number:
    """Layers on the first `stages` stages, where they are dealt by cost.

    The vocabulary projection costs so many layers as it has weights of them. A stage takes layers until all dealt so
    far cost more than its and its predecessors' equal shares, so one more where they cost just as much, and at least one.

    Parameters
    ----------
    model : `ModelNumbers`
    plan : `PlanNumbers`
    stages : from 1; fewer than all

    References
    ----------
    huggingface/nanotron ``src/nanotron/models/base.py`` ``build_model``, with ``get_block_compute_costs``
    """
    head = model.vocabulary.size * model.hidden / layer_matrices(model)
    share = stages * (model.layers + head) / plan.pipeline
    return ops.minimum(ops.maximum(1.0 - ops.ceil(-share), stages), model.layers)
