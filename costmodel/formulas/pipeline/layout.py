"""Who holds which layers: the only place where layers, embedding and head are dealt to the ranks of a pipeline."""

from __future__ import annotations

from typing import NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas.pipeline import schedules
from costmodel.formulas.quantities import ModelNumbers, Number, Place, PlanNumbers, Settings
from costmodel.formulas.transformer.flops import layer_matrices

ROUNDING = 1e-6
"""Of a layer, by which shares of cost may be off."""


def rank_layers(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> tuple[Number, Number, Number]:
    """Layers that a micro-batch passes on the first rank, on the second and on the last.

    As `stage_layers`, but where a rank runs a stage of each end: of a valley (ZB-V) a micro-batch passes both, so that the
    first rank has both short ones; of two directions it passes one or the other, on average their mean.
    """
    first, middle, last = stage_layers(model, settings, plan)
    piped = ops.where(plan.pipeline > 1.0, 1.0, 0.0)
    both = piped * schedules.bidirectional(plan.schedule)
    valley = piped * schedules.v_shaped(plan.schedule) * (1.0 - both)
    ends = ops.where(valley > 0.0, first + last - middle, 0.5 * (first + last))
    bottom = ops.where(valley > 0.0, middle, last)
    return ops.where(valley + both > 0.0, ends, first), middle, ops.where(both > 0.0, ends, bottom)


def rank_shares(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers,
) -> tuple[tuple[Number, Number, Number, Number], ...]:  # fmt: skip
    """What a micro-batch passes on the first rank, on the second and on the last, on average of all micro-batches.

    For each the layers, the shares of micro-batches that meet the embedding and the head there, and 1 where there is such a
    rank: of one stage only the first, of two none between.
    """
    first, middle, last = rank_layers(model, settings, plan)
    two_way = schedules.bidirectional(plan.schedule)
    folded = ops.where(plan.pipeline > 1.0, schedules.v_shaped(plan.schedule), 0.0)
    piped, between = ops.where(plan.pipeline > 1.0, 1.0, 0.0), ops.where(plan.pipeline > 2.0, 1.0, 0.0)
    embedding = ops.where(piped > 0.0, 1.0 - 0.5 * two_way, 1.0)
    head = ops.where(piped > 0.0, folded * (1.0 - 0.5 * two_way), 1.0)
    return (
        (first, embedding, head, 1.0), (middle, 0.0, 0.0, between),
        (last, 0.5 * two_way, 1.0 - folded + 0.5 * two_way, piped),
    )  # fmt: skip


def chunks(plan: PlanNumbers) -> Number:
    """Passes each way that a micro-batch makes on a rank: one for each chunk of the model, two for each of a valley."""
    return ops.where(plan.pipeline > 1.0, schedules.crossings(plan.schedule, plan.virtual_stages), plan.virtual_stages)


def micro_batches(settings: Settings, plan: PlanNumbers) -> Number:
    """Micro-batches that one pipeline works through in a step."""
    return settings.global_batch / (plan.data * plan.micro_batch)


def stage_layers(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> tuple[Number, Number, Number]:
    """Layers on the first, on the second (fullest of the middle) and on the last stage.

    Stages hold equal shares; where the layers are short of that, the last stage (which has the vocabulary
    projection) and the first (which has the embedding) give up half each, the last the odd one, as Megatron-LM's
    ``--account-for-loss-in-pipeline-split`` and ``--account-for-embedding-in-pipeline-split`` do. Where an end is given its
    layers, the others are dealt evenly to the stages that aren't (``get_num_layers_to_build`` there). Frameworks that balance by
    cost deal by `dealt_layers`.
    """
    slots = plan.pipeline * plan.virtual_stages
    full = plan.virtual_stages * ops.ceil_div(model.layers, slots)
    short = full * plan.pipeline - model.layers
    last = full - ops.ceil(0.5 * short)
    first = full - (short - ops.ceil(0.5 * short))
    filled = dealt_layers(model, plan, 1.0)
    before_last = dealt_layers(model, plan, plan.pipeline - 1.0)
    # those between have as many as whole layers go into their mean, or one more
    second = ops.ceil_div(before_last - filled, ops.maximum(plan.pipeline - 2.0, 1.0))
    left = model.layers - before_last
    by_cost = (settings.framework.balanced_stages > 0.0) & (plan.pipeline > 1.0)
    given, each = given_ends(settings, plan), even_layers(model, settings, plan)
    first = ops.where(given > 0.0, ops.where(settings.ends.first > 0.0, settings.ends.first, each), first)
    last = ops.where(given > 0.0, ops.where(settings.ends.last > 0.0, settings.ends.last, each), last)
    full = ops.where(given > 0.0, ops.where(each > 0.0, each, ops.maximum(first, last)), full)
    return ops.where(by_cost, filled, first), ops.where(by_cost, second, full), ops.where(by_cost, left, last)


def given_ends(settings: Settings, plan: PlanNumbers) -> Number:
    """1 where the first or the last stage of a pipeline is given its layers."""
    there = (settings.ends.first > 0.0) | (settings.ends.last > 0.0)
    return ops.where(there & (plan.pipeline > 1.0), 1.0, 0.0)


def even_layers(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Layers on each stage that isn't given its own, if it is a whole number; 0 where all are."""
    first, last = settings.ends
    others = plan.pipeline - ops.where(first > 0.0, 1.0, 0.0) - ops.where(last > 0.0, 1.0, 0.0)
    return (model.layers - first - last) / ops.maximum(others, 1.0)


def dealt_layers(model: ModelNumbers, plan: PlanNumbers, stages: Number) -> Number:
    """Layers on the first `stages` stages, where they are dealt by cost.

    The vocabulary projection costs so many layers as it has weights of them. A stage takes layers until all dealt so
    far cost more than its and its predecessors' equal shares, so one more where they cost just as much, and at least one.

    Parameters
    ----------
    stages : from 1; fewer than all

    References
    ----------
    huggingface/nanotron ``src/nanotron/models/base.py`` ``build_model``, with ``get_block_compute_costs``
    """
    share = stages * _cost(model) / plan.pipeline
    return ops.minimum(ops.maximum(1.0 - ops.ceil(-share), stages), model.layers)


def has_empty_stage(model: ModelNumbers, plan: PlanNumbers) -> Number:
    """1 where dealing by cost leaves a stage with nothing at all, so that its ranks have no part in the run.

    Behind the layers come the last norm, the head, the cast of logits and the loss, each of which moves on to the next stage
    once the cost so far is over its stage's threshold: the head always, the norm where the layers alone are.

    References
    ----------
    huggingface/nanotron ``src/nanotron/helpers.py``, ``build_model``; ``scripts/scaling_benchmarks.py`` leaves such plans out
    """
    # head, cast and loss end on the last stage if norm or layers went beyond the one that is the last but three
    beyond = plan.pipeline - 3.0
    passed = (model.layers > beyond * _cost(model) / plan.pipeline) & (beyond <= model.layers + 1.0)
    return ops.where(passed, 0.0, 1.0)


def _cost(model: ModelNumbers) -> Number:
    """Cost of all layers and of the vocabulary projection in units of a layer, by their weights."""
    return model.layers + model.vocabulary.outputs * model.hidden / layer_matrices(model)


def experts_before(model: ModelNumbers, layers: Number) -> Number:
    """Layers with a mixture of experts among the first so many, where a rule says which they are.

    Parameters
    ----------
    layers : from the front of the model

    Examples
    --------
    >>> from costmodel import load_model
    >>> deepseek = load_model("deepseek-v3").numbers()  # whose first three layers have none
    >>> [int(experts_before(deepseek, float(layers))) for layers in (2, 3, 4, 61)]
    [0, 0, 1, 58]
    """
    mixture = model.experts
    behind = ops.maximum(layers - mixture.start, 0.0)
    return ops.minimum(ops.ceil(behind / ops.maximum(mixture.step, 1.0)), mixture.layers)


def _experts_before_chunks(model: ModelNumbers, begin: Number, apart: Number, chunks: Number) -> Number:
    """Layers with experts in front of each of so many chunks, added up; the first begins at `begin`, each so far behind the last.

    In front of one that begins behind the first layer with experts there are more by `apart / step` than in front of the chunk
    before, as the distance of chunks is a multiple of the step, until there are no more.
    """
    mixture = model.experts
    step = ops.maximum(mixture.step, 1.0)
    into = begin - mixture.start
    none = ops.minimum(ops.maximum(ops.ceil(-into / apart), 0.0), chunks)
    left = chunks - none
    found = ops.ceil(ops.maximum(into + none * apart, 0.0) / step)
    more = apart / step
    rising = ops.minimum(ops.maximum(1.0 + _floor((mixture.layers - found) / more), 0.0), left)
    return rising * found + 0.5 * more * rising * (rising - 1.0) + (left - rising) * mixture.layers


def _floor(number: Number) -> Number:
    """Greatest whole number that is not above another."""
    return -ops.ceil(-number)


class _LayerPlaces(NamedTuple):
    """Where the layers of a rank lie in the model: a chunk or more one way, and of a folded pipeline one the other way."""

    two_way: Number  # 1 where micro-batches enter at both ends
    valley: Number  # 1 where they come back to the first rank
    chunk: Number  # layers
    short: Number  # layers that the first chunk has less
    down: Number  # layers of a valley's stage on the way down
    up: Number
    first_down: Number  # of its first rank
    first_up: Number
    known: Number  # 1 where a rule says which layers have experts, and it is a rule for ranks, too


def _chain(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> _LayerPlaces:
    """Where the layers of ranks lie.

    Chunks of a rank have equally many layers with experts where their distance is a multiple of the step.
    """
    mixture = model.experts
    first, middle, last = stage_layers(model, settings, plan)
    piped = ops.where(plan.pipeline > 1.0, 1.0, 0.0)
    two_way = piped * schedules.bidirectional(plan.schedule)
    folded = piped * schedules.v_shaped(plan.schedule)
    chunk = ops.ceil_div(model.layers, plan.pipeline * plan.virtual_stages)
    chunk = ops.where(given_ends(settings, plan) > 0.0, middle, chunk)
    outer = first + last - middle
    down, first_down = ops.ceil(0.5 * middle), ops.ceil(0.5 * outer)
    step = ops.maximum(mixture.step, 1.0)
    apart = chunk * plan.pipeline / step
    chunked = ops.where(plan.virtual_stages > 1.0, 1.0, 0.0)
    in_turns = ops.where(mixture.step > 1.0, 1.0, 0.0)
    ends_early = ops.where(mixture.start + step * (mixture.layers - 1.0) + step < model.layers, 1.0, 0.0)
    late = ops.where(mixture.start > chunk, 1.0, 0.0)
    uneven = chunked * (ops.where(ops.ceil(apart) > apart, 1.0, 0.0) + in_turns * late)
    by_cost = settings.framework.balanced_stages * piped
    far = ops.where(mixture.start >= dealt_layers(model, plan, 2.0), 1.0, 0.0)
    irregular = uneven + folded * (in_turns + ends_early) + by_cost * (in_turns + ends_early + far)
    regular = (mixture.step > 0.0) & (irregular < 1.0)
    return _LayerPlaces(
        two_way, folded * (1.0 - two_way), chunk, middle - first, down, middle - down, first_down, outer - first_down,
        ops.where(regular, 1.0, 0.0),
    )  # fmt: skip


def rank_experts(model: ModelNumbers, settings: Settings, plan: PlanNumbers, rank: Number, layers: Number) -> Number:
    """Layers with a mixture of experts that a rank has of its layers; of two directions, on average of both its stages.

    Parameters
    ----------
    rank : in the pipeline, from 0
    layers : of the rank, as `rank_layers` has them

    Assumes equal shares on all ranks where no rule says which layers have experts; of several chunks whose distance is no
    multiple of the rule's step, or of which the first two ranks' have none yet; in a folded pipeline, or where layers are dealt
    by cost, where layers with a dense MLP lie elsewhere than at the front, or then beyond the first two ranks.
    """
    chain = _chain(model, settings, plan)
    low = ops.where(chain.valley > 0.0, chain.first_down + (rank - 1.0) * chain.down, rank * chain.chunk - chain.short)
    high = low + ops.where(chain.valley > 0.0, chain.down, chain.chunk)
    given = given_ends(settings, plan) > 0.0  # ends may have more than stages between
    low = ops.where(given & (rank < 1.0), 0.0, low)
    high = ops.where(given & (rank >= plan.pipeline - 1.0), model.layers, high)
    by_cost = (settings.framework.balanced_stages > 0.0) & (plan.pipeline > 1.0)
    low = ops.where(by_cost, ops.where(rank > 0.0, dealt_layers(model, plan, rank), 0.0), low)
    end = ops.where(rank < plan.pipeline - 1.0, dealt_layers(model, plan, rank + 1.0), model.layers)
    high = ops.where(by_cost, end, high)
    apart = chain.chunk * plan.pipeline
    own = _experts_before_chunks(model, high, apart, plan.virtual_stages)
    own = own - _experts_before_chunks(model, low, apart, plan.virtual_stages)
    mirrored = plan.pipeline - 1.0 - rank
    back = ops.where(chain.valley > 0.0, model.layers - chain.first_up - rank * chain.up, mirrored * chain.chunk - chain.short)
    behind = back + ops.where(chain.valley > 0.0, chain.up, chain.chunk)
    other = experts_before(model, behind) - experts_before(model, back)
    counted = own + (chain.valley + chain.two_way) * other
    counted = counted * (1.0 - 0.5 * chain.two_way)
    return ops.where(chain.known > 0.0, counted, layers * (model.experts.layers / model.layers))


def ranks_between(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> tuple[Number, Number, Number, Number]:
    r"""Ranks between the first and the last of which one is the fullest, from 1 to :math:`p - 2`.

    What a rank holds grows with the micro-batches in flight, and at any of its moments linearly with its layers with experts,
    so that of ranks that hold as many micro-batches one of those with most and with fewest such layers is the fullest. Their
    number changes only where layers with experts begin and where they end, and in turns where the step doesn't divide a
    chunk: by one, never by more. That names the rank where they begin and the next, or of several chunks the next to where they
    end if that comes first; the second rank, if they begin behind it,
    else the first where they have ended; and the one where they end, or in turns the first that has another number than that
    behind their beginning. In a folded pipeline it names those on both sides of the rank where they begin, and the deepest;
    where layers are dealt by cost, the second, the third and the first from there on that has one layer more, by rounding
    perhaps the next.
    """
    chain, mixture, p = _chain(model, settings, plan), model.experts, plan.pipeline
    folded, in_turns = chain.valley + chain.two_way > 0.0, mixture.step > 1.0
    given = given_ends(settings, plan)
    begin = _rank_of(model, plan, chain, mixture.start, given)
    end = _rank_of(model, plan, chain, mixture.start + mixture.layers, given)
    fewest = ops.where((begin > 1.0) | in_turns, 1.0, end + 1.0)
    ended = (mixture.start + mixture.layers < model.layers) & (end < begin)  # by the last chunk, that of the first round on
    behind = ops.where(in_turns, begin, ops.where(ended, end, begin)) + 1.0
    other = ops.where(in_turns, _rank_of_another_number(model, chain, _within(begin + 1.0, p)), end)
    by_cost, longer = settings.framework.balanced_stages > 0.0, _longer_stage(model, plan)
    return (
        _within(ops.where(by_cost, 2.0, begin), p), _within(ops.where(by_cost, longer, behind), p),
        _within(ops.where(by_cost, longer + 1.0, ops.where(folded, begin - 1.0, other)), p),
        _within(ops.where(by_cost, 1.0, ops.where(folded, schedules.deepest_stage(plan.schedule, p), fewest)), p),
    )  # fmt: skip


def _rank_of(model: ModelNumbers, plan: PlanNumbers, chain: _LayerPlaces, layer: Number, given: Number) -> Number:
    """The rank that has a layer."""
    chunk = _floor((layer + chain.short) / chain.chunk)
    turns = chunk - plan.pipeline * _floor(chunk / plan.pipeline)
    plain = ops.where(given > 0.0, ops.minimum(ops.maximum(chunk, 0.0), plan.pipeline - 1.0), turns)
    down = 1.0 + _floor((layer - chain.first_down) / ops.maximum(chain.down, 1.0))
    up = ops.ceil((model.layers - chain.first_up - layer) / ops.maximum(chain.up, 1.0))
    return ops.where(chain.valley > 0.0, ops.where(down < plan.pipeline, down, up), plain)


def _rank_of_another_number(model: ModelNumbers, chain: _LayerPlaces, rank: Number) -> Number:
    """The first rank from another on that has another number of layers with experts, where every so many layers have them.

    A chunk has one more if so many layers as it goes beyond whole steps reach the next layer with experts. How far that is
    shrinks from rank to rank by this remainder while it doesn't, and grows by what the step is more while it does.
    """
    mixture = model.experts
    step = ops.maximum(mixture.step, 1.0)
    into = rank * chain.chunk - chain.short - mixture.start
    ahead = step * ops.ceil(into / step) - into
    beyond = chain.chunk - step * _floor(chain.chunk / step)
    fewer = ops.ceil((beyond - ahead) / (step - beyond))
    return rank + ops.where(ahead < beyond, fewer, _floor(ahead / ops.maximum(beyond, 1.0)))


def _longer_stage(model: ModelNumbers, plan: PlanNumbers) -> Number:
    """The first stage from the third on that has a layer more than others where they are dealt by cost, or the one before it."""
    share = _cost(model) / plan.pipeline
    beyond, begun = share - _floor(share), 2.0 * share - _floor(2.0 * share)
    more = ops.ceil((1.0 - begun) / ops.maximum(beyond, 1e-9) - 1.0 - ROUNDING)
    return 2.0 + ops.where(beyond > 0.0, ops.maximum(more, 0.0), 0.0)


def _within(rank: Number, pipeline: Number) -> Number:
    """The nearest rank between the first and the last; 1 where there is none."""
    return ops.maximum(ops.minimum(rank, pipeline - 2.0), 1.0)


def places(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers,
) -> tuple[Place, Place, Place, Place, Place, Place]:  # fmt: skip
    """What the first rank has, what the last, and what those of `ranks_between`, `Place` of each."""
    first_layers, middle_layers, last_layers = rank_layers(model, settings, plan)
    single = ops.where(plan.pipeline > 1.0, 0.0, 1.0)
    fold, mirrored = schedules.v_shaped(plan.schedule), schedules.bidirectional(plan.schedule)
    end = plan.pipeline - 1.0
    one, two, three, four = ranks_between(model, settings, plan)
    return (
        Place(first_layers, rank_experts(model, settings, plan, 0.0, first_layers), 0.0, 1.0, ops.maximum(single, fold)),
        Place(
            last_layers, rank_experts(model, settings, plan, end, last_layers), end, ops.maximum(single, mirrored),
            1.0 - fold + mirrored,
        ),
        _between(model, settings, plan, middle_layers, one), _between(model, settings, plan, middle_layers, two),
        _between(model, settings, plan, middle_layers, three), _between(model, settings, plan, middle_layers, four),
    )  # fmt: skip


def _between(model: ModelNumbers, settings: Settings, plan: PlanNumbers, middle: Number, rank: Number) -> Place:
    """What a rank between the first and the last has; nothing where there is none."""
    dealt = dealt_layers(model, plan, rank + 1.0) - dealt_layers(model, plan, rank)
    held = ops.where(settings.framework.balanced_stages > 0.0, dealt, middle)
    there = ops.where(plan.pipeline > 2.0, 1.0, 0.0)
    return Place(there * held, there * rank_experts(model, settings, plan, rank, held), rank, 0.0, 0.0)
