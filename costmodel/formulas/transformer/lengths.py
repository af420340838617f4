r"""Samples of unlike lengths: how many tokens passes work through, how far a token looks, how long ranks wait for the fullest.

Of lengths a plan knows the longest :math:`L` and the mean :math:`\mu`. Between nothing and the longest they are taken to lie as

.. math:: P(l > x) = (1 - x / L)^{(L - \mu) / \mu}

which is uniform where the mean is half of the longest, and exponential where it is a small part of it.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import ModelNumbers, Number, PlanNumbers, SampleLengths, Settings

FULL, PACKED, PADDING_FREE, GROUPED, PADDED, PADDED_WHOLE = 0.0, 1.0, 2.0, 3.0, 4.0, 5.0
CODES = {
    "full": FULL, "packed": PACKED, "padding-free": PADDING_FREE, "grouped": GROUPED, "padded": PADDED,
    "padded-whole": PADDED_WHOLE,
}  # fmt: skip
"""Codes of the ways in which samples make micro-batches."""
SHORT_SAMPLE = 400.0
"""Mean tokens of samples that are short: 380 of Tulu 3 (NVIDIA-NeMo/Megatron-Bridge@067f987 examples/model_verification_cards/
moonlight-16b-a3b/card.yaml, 21.55 in 8,192), 427 of C4 (Dodge et al. 2021, "Documenting Large Webtext Corpora", table 1: 156
billion in 365 million documents)."""
NATURAL = 0.6931471805599453
"""Of a logarithm to base 2, the natural one."""
GUMBEL = 2.0 * 0.5772156649015329
"""Twice the mean of Gumbel's distribution, to which largest values tend."""
FOUR_PI = 12.566370614359172
LARGEST_LOGARITHM = 40.0
"""Beyond which a share is as good as none."""
LEAST_REST = 1e-18
"""Beside a fraction, in place of nothing."""
SMALL = 0.05
"""Below which few terms of a series are the whole logarithm."""


def _logarithm_beyond_one(more: Number) -> Number:
    """ln(1 + u) to the last digit of a small u, too: where it is small by the series of its inverse hyperbolic tangent."""
    z = more / (2.0 + more)
    z2 = z * z
    series = 2.0 * z * (1.0 + z2 * (1.0 / 3.0 + z2 * (1.0 / 5.0 + z2 * (1.0 / 7.0 + z2 / 9.0))))
    return ops.where(more < SMALL, series, NATURAL * ops.log2(1.0 + more))


def _one_minus_exponential(logarithm: Number) -> Number:
    """1 - exp(-y) of a y from 0 to `LARGEST_LOGARITHM`: by Padé's quotient for a sixteenth of it, four times doubled."""
    x = ops.minimum(ops.maximum(logarithm, 0.0), LARGEST_LOGARITHM) / 16.0
    lacking = 12.0 * x / (12.0 + 6.0 * x + x * x)
    lacking = lacking * (2.0 - lacking)
    lacking = lacking * (2.0 - lacking)
    lacking = lacking * (2.0 - lacking)
    return lacking * (2.0 - lacking)


def _rising(start: Number, by: Number) -> Number:
    r"""Logarithm of :math:`\Gamma(x + a) / \Gamma(x)`, three steps further on, where few terms of its series are enough."""
    below = start * (start + 1.0) * (start + 2.0)
    more = by * (3.0 * start * (start + 2.0) + 2.0 + by * (3.0 * start + 3.0 + by)) / below
    middle = start + 2.5 + 0.5 * by
    z = by / (2.0 * middle)
    z = z * z
    series = NATURAL * ops.log2(middle) - z * (1.0 / 6.0 + z * (1.0 / 20.0 + z * (1.0 / 42.0 + z / 72.0)))
    further = by * (series + 1.0 / (24.0 * middle * middle * (1.0 - z)))
    return further - _logarithm_beyond_one(more)


def _reached(number: Number, power: Number) -> Number:
    r"""One minus the mean of a power of what the longest of so many samples lacks of the longest there is, as a share of it.

    .. math:: 1 - E[t^a] = 1 - \frac{\Gamma(1 + a)\,\Gamma(n + 1)}{\Gamma(n + 1 + a)}

    of :math:`t`, the least of :math:`n` numbers drawn evenly from 0 to 1.
    """
    return _one_minus_exponential(_rising(number + 1.0, power) - _rising(1.0 + 0.0 * number, power))


def spread(lengths: SampleLengths, longest: Number) -> Number:
    r"""Power :math:`\mu / (L - \mu)` of the distribution's inverse, held below a million where all samples are as long.

    Parameters
    ----------
    longest : :math:`L` [tokens]
    """
    return lengths.mean / ops.maximum(longest - lengths.mean, 1e-6 * longest)


def longest_of(number: Number, lengths: SampleLengths, longest: Number) -> Number:
    """Expected length of the longest of so many samples [tokens].

    Parameters
    ----------
    number : of samples
    longest : that there is [tokens]

    Examples
    --------
    Of three lengths that lie evenly between nothing and 4,000 the longest has three quarters of it:

    >>> round(longest_of(3.0, SampleLengths(PADDED, 2000.0, 4000.0), 4000.0))
    3000
    """
    reached = longest * _reached(number, spread(lengths, longest))
    return ops.where(lengths.mean < longest, ops.maximum(reached, lengths.mean), longest)


def lacking(fraction: Number, power: Number) -> Number:
    r"""What a power of the rest beside a fraction lacks of one, :math:`1 - (1 - x)^p`, to the last digits of a small one, too.

    Parameters
    ----------
    fraction : :math:`x`, from 0 to 1
    power : :math:`p`, from 0

    Examples
    --------
    >>> round(lacking(0.5, 3.0), 6)
    0.875
    """
    return _one_minus_exponential(power * _logarithm_beyond_one(fraction / ops.maximum(1.0 - fraction, LEAST_REST)))


def own_sample(lengths: SampleLengths, longest: Number) -> Number:
    r"""Length of the sample that an average token is part of [tokens]: longer than the mean, as long samples have more tokens.

    .. math:: \frac{E[l^2]}{E[l]} = \frac{2 L \mu}{L + \mu}

    Parameters
    ----------
    longest : :math:`L` [tokens]
    """
    return 2.0 * longest * lengths.mean / (longest + lengths.mean)


def padded_square(number: Number, lengths: SampleLengths, longest: Number) -> Number:
    """Mean square of the length to which so many samples are padded, over its mean [tokens].

    Parameters
    ----------
    number : of samples
    longest : that there is [tokens]
    """
    power = spread(lengths, longest)
    once, twice = _reached(number, power), _reached(number, 2.0 * power)
    square = longest * (2.0 * once - twice) / ops.maximum(once, 1e-15)
    return ops.where(lengths.mean < longest, ops.minimum(ops.maximum(square, lengths.mean), longest), longest)


def _is(lengths: SampleLengths, code: float) -> bool:
    return ops.equal(lengths.batching, code)


def useful_tokens(seq_len: Number, lengths: SampleLengths) -> Number:
    """Tokens of a sequence that aren't padding, of an average one.

    Parameters
    ----------
    seq_len : of the longest sequence, or of one into which samples are packed [tokens]

    Assumptions
    -----------
    Packed sequences are full: samples that are left over, or cut, find a place in another one.
    """
    return ops.where(_is(lengths, FULL) | _is(lengths, PACKED), seq_len, lengths.mean)


def own_length(settings: Settings) -> Number:
    """Length of the sequence, or where samples differ of the sample, that an average token is part of [tokens]."""
    lengths = settings.lengths
    return ops.where(_is(lengths, FULL), lengths.attended, own_sample(lengths, settings.seq_len))


def unsaid_mean(pack: Number) -> Number:
    """Mean length of packed samples of which nobody says it [tokens]: between short ones and the pack, by their logarithms.

    Samples of less than half a pack attend so much less to one another that it hardly matters how much shorter they are.

    Parameters
    ----------
    pack : length of a sequence that they are packed into [tokens]

    Examples
    --------
    >>> [unsaid_mean(length) for length in (100.0, 6400.0)]
    [100.0, 1600.0]
    """
    return ops.sqrt(ops.minimum(SHORT_SAMPLE, pack) * pack)


def masks(batching: Number) -> Number:
    """Whether padded samples need a mask: 1 where a micro-batch of several does, 2 where all are padded to the longest, else 0.

    Parameters
    ----------
    batching : code of `CODES`
    """
    ways = SampleLengths(batching, 0.0, 0.0)
    return ops.where(_is(ways, PADDED_WHOLE), 2.0, ops.where(_is(ways, PADDED) | _is(ways, GROUPED), 1.0, 0.0))


def position_power(settings: Settings) -> Number:
    r"""Power :math:`\kappa = 2 \mu / (2 \mu - s)` by which fewer tokens lie far from the start of their samples.

    Of the distribution above :math:`\kappa = 1 + L / \mu`; 2 where all samples are as long as the longest. Of padded
    micro-batches, whose lengths are the longest of several, it is that of the distribution with their mean and their square.

    Parameters
    ----------
    settings : `Settings`, as they are asked for or at work
    """
    mean = settings.lengths.mean
    return 2.0 * mean / ops.maximum(2.0 * mean - own_length(settings), 1e-6 * mean)


def at_work(settings: Settings, plan: PlanNumbers) -> Settings:
    """The settings as passes meet them, `Settings`: its sequences have as many tokens as an average one is worked through.

    Padding counted; its tokens look as far as their samples reach where attention stays inside samples, or as the padded
    micro-batch where it doesn't. Settings at work are as they are.

    Assumptions
    -----------
    Of grouped samples those of a micro-batch are equally long.

    References
    ----------
    huggingface/transformers src/transformers/trainer_pt_utils.py (``LengthGroupedSampler``: samples are sorted by length within
    fifty micro-batches), src/transformers/data/data_collator.py (``DataCollatorWithFlattening``)
    """
    lengths, longest = settings.lengths, settings.seq_len
    padded = _is(lengths, PADDED)
    whole = _is(lengths, FULL) | _is(lengths, PACKED) | _is(lengths, PADDED_WHOLE)
    worked = ops.where(padded, longest_of(plan.micro_batch, lengths, longest), lengths.mean)
    alone = _is(lengths, PACKED) | _is(lengths, PADDING_FREE) | _is(lengths, GROUPED)
    attended = ops.where(alone, own_sample(lengths, longest), lengths.attended)
    attended = ops.where(padded, padded_square(plan.micro_batch, lengths, longest), attended)
    mean = ops.where(padded, worked, ops.where(_is(lengths, PADDED_WHOLE), longest, lengths.mean))
    return settings._replace(seq_len=ops.where(whole, longest, worked), lengths=SampleLengths(0.0, mean, attended))


def of_layers(model: ModelNumbers, settings: Settings) -> Settings:
    """The settings as an average layer meets them, `Settings`: with an encoder, as many tokens as all layers have on average.

    Parameters
    ----------
    settings : at work, `Settings`
    """
    return settings._replace(seq_len=settings.seq_len * model.layer_tokens)


def shapes_vary(settings: Settings) -> Number:
    """Whether micro-batches have another shape each: 1 where samples of unlike lengths make them as they come, else 0.

    Parameters
    ----------
    settings : `Settings`, as they are asked for
    """
    lengths = settings.lengths
    return ops.where(_is(lengths, PADDING_FREE) | _is(lengths, GROUPED) | _is(lengths, PADDED), 1.0, 0.0)


def largest_normal(number: Number) -> Number:
    r"""Expected largest of so many numbers from a normal distribution, in its standard deviations.

    .. math:: \sqrt{2 \ln n - \ln(4 \pi \ln n) + 2 \gamma}

    Parameters
    ----------
    number : :math:`n`, from 1

    References
    ----------
    [embrechts1997]_ example 3.3.29
    """
    logarithm = NATURAL * ops.log2(ops.maximum(number, 2.0))
    square = 2.0 * logarithm - NATURAL * ops.log2(FOUR_PI * logarithm) + GUMBEL
    return ops.where(number > 1.0, ops.sqrt(square), 0.0)


def fullest_rank(settings: Settings, plan: PlanNumbers, micro_batches: Number) -> Number:
    """Tokens of the replica that has most of them in a step, over those of an average one, minus one.

    Replicas wait for each other once a step, or where they share weights or experts, for every micro-batch.

    Parameters
    ----------
    settings, plan : `Settings`, `PlanNumbers`, as they are asked for
    micro_batches : of a step

    Assumptions
    -----------
    The largest of sums of many micro-batches is that of numbers from a normal distribution; of one it is known, and what is
    between both falls with their number, as the skewness of a sum lets it. Time goes with tokens. Packed sequences, and groups
    of like samples, are the same on all.
    """
    lengths, longest = settings.lengths, settings.seq_len
    padded, free = _is(lengths, PADDED), _is(lengths, PADDING_FREE)
    number = ops.where(padded, plan.micro_batch, 1.0)
    power = spread(lengths, longest)
    once, twice = _reached(number, power), _reached(number, 2.0 * power)
    deviation = longest * ops.sqrt(ops.maximum(2.0 * once - twice - once * once, 0.0))
    mean = longest_of(number, lengths, longest)
    together = (plan.shard_weights > 0.0) | (plan.expert > 1.0)
    draws = ops.where(together, 1.0, micro_batches * settings.synchronisation.local_steps)
    draws = ops.where(padded, draws, draws * plan.micro_batch)
    most = longest_of(number * plan.data, lengths, longest) - mean
    normal = deviation * largest_normal(plan.data)
    more = ops.minimum(most, normal / ops.sqrt(draws) + (most - normal) / draws)
    return ops.where((padded | free) & (lengths.mean < longest), ops.maximum(more, 0.0) / mean, 0.0)


def local_tokens(settings: Settings, plan: PlanNumbers) -> Number:
    """Tokens of one micro-batch on one rank's share of the sequence."""
    return plan.micro_batch * settings.seq_len / plan.context


def samples(settings: Settings, plan: PlanNumbers) -> Number:
    """Samples in one micro-batch, at work or as they are asked for."""
    return plan.micro_batch * settings.seq_len / settings.lengths.mean


def norm_tokens(settings: Settings, plan: PlanNumbers) -> Number:
    """Tokens on which one rank computes norms and residuals: fewer under sequence parallelism."""
    return local_tokens(settings, plan) / ops.where(plan.sequence_parallel > 0.0, plan.tensor, 1.0)


def expert_tokens(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Tokens that meet one local expert on the busiest rank."""
    routed = local_tokens(settings, plan) * model.experts.per_token * plan.expert_tensor / plan.tensor
    return model.experts.load * routed * plan.expert / ops.maximum(model.experts.number, 1.0)
