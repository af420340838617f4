r"""Waiting and staleness of workers whose computing times are random.

A worker's time has mean :math:`\mu` and standard deviation :math:`\sigma = c \mu`; workers are independent and alike.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number

_LN2 = 0.6931471805599453
_EULER = 0.5772156649015329
_SQRT3 = 1.7320508075688772


def harmonic(count: Number) -> Number:
    r"""Harmonic number :math:`H_n = \sum_{i=1}^{n} 1 / i`.

    The asymptotic series at :math:`n + 8`, exact to rounding, and carried back by the recurrence.

    Parameters
    ----------
    count : :math:`n`, at least 1

    Examples
    --------
    >>> round(harmonic(4.0), 12)
    2.083333333333
    """
    n = count + 8.0
    square = n * n
    tail = 1.0 / 12.0 - (1.0 / 120.0 - (1.0 / 252.0 - (1.0 / 240.0 - 1.0 / 132.0 / square) / square) / square) / square
    series = _LN2 * ops.log2(n) + _EULER + 0.5 / n - tail / square
    first = 1.0 / (count + 1.0) + 1.0 / (count + 2.0) + 1.0 / (count + 3.0) + 1.0 / (count + 4.0)
    second = 1.0 / (count + 5.0) + 1.0 / (count + 6.0) + 1.0 / (count + 7.0) + 1.0 / n
    return series - (first + second)


def slowest_exponential(mean: Number, spread: Number, workers: Number) -> Number:
    r"""Expected time of the slowest of the workers [s], if times are a constant plus an exponential.

    .. math:: \mu (1 - c) + \mu c H_W

    Parameters
    ----------
    mean : :math:`\mu` [s]
    spread : standard deviation over the mean :math:`c`, at most 1; 1 is the exponential distribution itself
    workers : :math:`W`

    Examples
    --------
    >>> round(slowest_exponential(1.0, 1.0, 2.0), 12)
    1.5
    """
    return mean * (1.0 - spread) + mean * spread * harmonic(workers)


def slowest_uniform(mean: Number, spread: Number, workers: Number) -> Number:
    r"""Expected time of the slowest of the workers [s], if times are uniform.

    .. math:: \mu \left(1 + \sqrt{3} c \frac{W - 1}{W + 1}\right)

    Parameters
    ----------
    mean : :math:`\mu` [s]
    spread : standard deviation over the mean :math:`c`, at most :math:`1 / \sqrt{3}`
    workers : :math:`W`

    Examples
    --------
    >>> round(slowest_uniform(1.0, 0.25, 3.0), 4)
    1.2165
    """
    return mean * (1.0 + _SQRT3 * spread * (workers - 1.0) / (workers + 1.0))


def idle_share(mean: Number, slowest: Number, exchange_time: Number) -> Number:
    r"""Share of a synchronous step during which a worker waits for the slowest.

    .. math:: \frac{t_{max} - \mu}{t_{max} + t_x}

    Parameters
    ----------
    mean : computing time of a worker :math:`\mu` [s]
    slowest : expected time of the slowest worker :math:`t_{max}` [s]
    exchange_time : :math:`t_x`, exposed [s]

    Examples
    --------
    >>> idle_share(1.0, 2.0, 0.0)
    0.5
    """
    return (slowest - mean) / (slowest + exchange_time)


def mean_staleness(workers: Number, fetch_interval: Number, push_interval: Number) -> Number:
    r"""Pushes of others between the fetch that a gradient is computed on and its own push: the mean.

    .. math:: (W - 1) \frac{n_f + n_p}{2 n_p}

    For one interval that is a multiple of the other, and workers that are alike: while a worker pushes once, each
    other one does so once on average, whatever the distribution of their times.

    Parameters
    ----------
    workers : :math:`W`, never waiting for each other
    fetch_interval : steps between two fetches :math:`n_f`
    push_interval : steps between two pushes :math:`n_p`

    References
    ----------
    [dean2012]_ section 4.1 for the intervals; the mean is derived

    Examples
    --------
    >>> mean_staleness(20.0, 1.0, 1.0), mean_staleness(20.0, 5.0, 1.0), mean_staleness(20.0, 1.0, 5.0)
    (19.0, 57.0, 11.4)
    """
    return (workers - 1.0) * (fetch_interval + push_interval) / (2.0 * push_interval)


def staleness_probability(behind: Number, workers: Number) -> Number:
    r"""Probability that so many pushes of others come between a worker's read and its write.

    .. math:: \frac{1}{W} \left(1 - \frac{1}{W}\right)^k

    Times are exponential and exchanges take no time: the next push is as likely to be any worker's.

    Parameters
    ----------
    behind : :math:`k`
    workers : :math:`W`, never waiting for each other

    Examples
    --------
    >>> staleness_probability(1.0, 2.0)
    0.25
    """
    return (1.0 - 1.0 / workers) ** behind / workers
