r"""Goodput of a long run: failures, checkpoints to storage, restarts, and the time that they cost.

Interruptions are a Poisson process of mean time between them :math:`M`. A segment is :math:`\tau` of work and
:math:`\delta` in which its checkpoint is written while the run waits; an interruption loses the segment's work so far
and costs a restart :math:`R`, which may itself be interrupted and then begins again. Every segment is alike and
independent, so a run's time is a renewal sum whose mean and variance have closed forms; they are written with
:math:`\varphi_k(x) = \sum_{j \ge 0} x^j / (j + k)!`, so that rare interruptions lose no digits.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number

_E = 2.718281828459045
_SMALL = 0.5
_LARGEST = 300.0
ARGUMENTS = {
    "mtbf": "mean time between interruptions M [s]", "interval": r"work \tau of a segment [s]",
    "write_time": r"checkpoint \delta of a segment [s]", "restart": "after an interruption R [s]",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""


def _phi_1(x: Number) -> Number:
    """First phi function, (exp(x) - 1) / x."""
    series = 1.0
    for divisor in (15.0, 14.0, 13.0, 12.0, 11.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0):
        series = 1.0 + series * ops.minimum(x, _SMALL) / divisor
    large = ops.minimum(ops.maximum(x, _SMALL), _LARGEST)
    return ops.where(x < _SMALL, series, (_E**large - 1.0) / large)


def _phi_2(x: Number) -> Number:
    """Second phi function, (exp(x) - 1 - x) / x^2."""
    series = 1.0
    for divisor in (15.0, 14.0, 13.0, 12.0, 11.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0):
        series = 1.0 + series * ops.minimum(x, _SMALL) / divisor
    return ops.where(x < _SMALL, 0.5 * series, (_phi_1(x) - 1.0) / ops.maximum(x, _SMALL))


def _phi_3(x: Number) -> Number:
    """Third phi function, (exp(x) - 1 - x - x^2 / 2) / x^3."""
    series = 1.0
    for divisor in (15.0, 14.0, 13.0, 12.0, 11.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0):
        series = 1.0 + series * ops.minimum(x, _SMALL) / divisor
    return ops.where(x < _SMALL, series / 6.0, (_phi_2(x) - 0.5) / ops.maximum(x, _SMALL))


def system_mtbf(device_mtbf: Number, devices: Number) -> Number:
    r"""Mean time between failures of a run that any device's failure stops [s].

    .. math:: M = \frac{m}{N}

    Parameters
    ----------
    device_mtbf : of one device, with its share of host and network :math:`m` [s]
    devices : :math:`N`, failing independently

    Examples
    --------
    Llama 3 405B: one interruption in 2.78 h on 16,384 GPUs, whose own mean time is 5.2 years.

    >>> round(system_mtbf(16384 * 54 * 86400 / 466, 16384) / 3600, 2)
    2.78
    """
    return device_mtbf / devices


def merged_mtbf(first: Number, second: Number) -> Number:
    r"""Mean time between interruptions of two independent causes [s].

    .. math:: \frac{1}{1 / M_1 + 1 / M_2}

    Parameters
    ----------
    first, second : mean times of each cause :math:`M_1, M_2` [s]

    Examples
    --------
    >>> merged_mtbf(3.0, 6.0)
    2.0
    """
    return first * second / (first + second)


def merged_restart(first: Number, second: Number, first_restart: Number, second_restart: Number) -> Number:
    r"""Mean restart time after an interruption of either of two causes [s].

    .. math:: \frac{R_1 M_2 + R_2 M_1}{M_1 + M_2}

    Parameters
    ----------
    first, second : mean times between interruptions of each cause :math:`M_1, M_2` [s]
    first_restart, second_restart : restart after each :math:`R_1, R_2` [s]

    Examples
    --------
    >>> merged_restart(1.0, 3.0, 100.0, 20.0)
    80.0
    """
    return (first_restart * second + second_restart * first) / (first + second)


def checkpoint_time(nbytes: Number, storage_bandwidth: Number, latency: Number) -> Number:
    r"""Time to write a checkpoint to shared storage [s].

    .. math:: \delta = \alpha + \frac{n}{B}

    Parameters
    ----------
    nbytes : of weights and optimizer states, each once :math:`n` [bytes]
    storage_bandwidth : that all writers reach together :math:`B` [bytes/s]
    latency : of gathering, opening and closing files :math:`\alpha` [s]

    Examples
    --------
    BLOOM: 2.3 TB in 40 s are 57.5 GB/s.

    >>> checkpoint_time(2.3e12, 57.5e9, 0.0)
    40.0
    """
    return latency + nbytes / storage_bandwidth


def young_interval(write_time: Number, mtbf: Number) -> Number:
    r"""Young's interval of work between checkpoints [s].

    .. math:: \tau = \sqrt{2 \delta M}

    Parameters
    ----------
    write_time : that a checkpoint stops the run :math:`\delta` [s]

    References
    ----------
    [young1974]_ eq. 1

    Examples
    --------
    >>> young_interval(50.0, 10000.0)
    1000.0
    """
    return ops.sqrt(2.0 * write_time * mtbf)


def daly_interval(write_time: Number, mtbf: Number) -> Number:
    r"""Daly's interval of work between checkpoints [s].

    .. math:: \tau = \sqrt{2 \delta M} \left(1 + \frac13 \sqrt{\frac{\delta}{2 M}} + \frac19 \frac{\delta}{2 M}\right)
        - \delta \quad\text{for } \delta < 2 M,\text{ else } M

    Parameters
    ----------
    write_time : that a checkpoint stops the run :math:`\delta` [s]

    References
    ----------
    [daly2006]_ eq. 37

    Examples
    --------
    >>> round(daly_interval(50.0, 10000.0), 1)
    966.9
    """
    ratio = write_time / (2.0 * mtbf)
    series = 1.0 + ops.sqrt(ratio) / 3.0 + ratio / 9.0
    return ops.where(write_time < 2.0 * mtbf, ops.sqrt(2.0 * write_time * mtbf) * series - write_time, mtbf)


def segment_interruptions(interval: Number, write_time: Number, mtbf: Number) -> Number:
    r"""Expected interruptions of a segment's work and checkpoint until it is done; those of restarts are not counted.

    .. math:: e^{(\tau + \delta) / M} - 1

    References
    ----------
    [daly2006]_: its complete model of the wall-clock time
    """
    x = (interval + write_time) / mtbf
    return x * _phi_1(x)


def lost_work(interval: Number, write_time: Number, mtbf: Number) -> Number:
    r"""Expected time since the last checkpoint when a segment is interrupted [s].

    .. math:: M - \frac{L}{e^{L / M} - 1}, \qquad L = \tau + \delta

    Half a segment, where interruptions are rare.

    References
    ----------
    [daly2006]_: its complete model of the wall-clock time
    """
    length = interval + write_time
    x = length / mtbf
    return length * _phi_2(x) / _phi_1(x)


def restart_time(restart: Number, mtbf: Number) -> Number:
    r"""Expected time from an interruption until work goes on [s], restarts that fail being begun again.

    .. math:: M \left(e^{R / M} - 1\right)

    Parameters
    ----------
    restart : to find the fault, replace the node, start and load the checkpoint :math:`R` [s]

    References
    ----------
    [daly2006]_: its complete model of the wall-clock time
    """
    return restart * _phi_1(restart / mtbf)


def segment_time(interval: Number, write_time: Number, restart: Number, mtbf: Number) -> Number:
    r"""Expected time of a segment of work with its checkpoint [s].

    .. math:: M e^{R / M} \left(e^{(\tau + \delta) / M} - 1\right)

    References
    ----------
    [daly2006]_: its complete model of the wall-clock time

    Examples
    --------
    >>> round(segment_time(966.9, 50.0, 600.0, 10000.0), 1)
    1136.6
    """
    interrupted = lost_work(interval, write_time, mtbf) + restart_time(restart, mtbf)
    return interval + write_time + segment_interruptions(interval, write_time, mtbf) * interrupted


def _lost_variance(length: Number, x: Number) -> Number:
    """Variance of the time at which an interrupted phase of a length is interrupted [s^2]."""
    mean = _phi_2(x) / _phi_1(x)
    return length * length * (2.0 * _phi_3(x) / _phi_1(x) - mean * mean)


def restart_variance(restart: Number, mtbf: Number) -> Number:
    r"""Variance of the time from an interruption until work goes on [s^2].

    .. math:: g\, \mathrm{Var} F + g (1 + g)\, (\mathrm{E} F)^2, \qquad g = e^{R / M} - 1

    :math:`F` is the time at which a restart that is interrupted is interrupted.

    Parameters
    ----------
    restart : :math:`R` [s]

    Assumes independent restarts; derived from the geometric number of attempts.
    """
    x = restart / mtbf
    failed = x * _phi_1(x)
    mean = restart * _phi_2(x) / _phi_1(x)
    return failed * _lost_variance(restart, x) + failed * (1.0 + failed) * mean * mean


def segment_variance(interval: Number, write_time: Number, restart: Number, mtbf: Number) -> Number:
    r"""Variance of the time of a segment of work with its checkpoint [s^2].

    .. math:: g\, (\mathrm{Var} F + \mathrm{Var} Y) + g (1 + g)\, (\mathrm{E} F + \mathrm{E} Y)^2,
        \qquad g = e^{(\tau + \delta) / M} - 1

    :math:`F` is the time at which an interrupted attempt is interrupted, :math:`Y` that of the restart.

    Assumes independent attempts; derived from their geometric number, whose mean is Daly's.
    """
    length = interval + write_time
    failed = segment_interruptions(interval, write_time, mtbf)
    spread = _lost_variance(length, length / mtbf) + restart_variance(restart, mtbf)
    mean = lost_work(interval, write_time, mtbf) + restart_time(restart, mtbf)
    return failed * spread + failed * (1.0 + failed) * mean * mean


def goodput(interval: Number, write_time: Number, restart: Number, mtbf: Number) -> Number:
    r"""Share of a run's time that is work which counts: its goodput, or effective training time.

    .. math:: \frac{\tau}{M e^{R / M} \left(e^{(\tau + \delta) / M} - 1\right)}

    References
    ----------
    [daly2006]_: its complete model of the wall-clock time

    Examples
    --------
    >>> round(goodput(966.9, 50.0, 600.0, 10000.0), 3)
    0.851
    """
    return interval / segment_time(interval, write_time, restart, mtbf)


def goodput_to_first_order(interval: Number, write_time: Number, restart: Number, mtbf: Number) -> Number:
    r"""Goodput where interruptions are rare, as it is often written.

    .. math:: 1 - \frac{\delta}{\tau} - \frac{\tau / 2 + R}{M}

    References
    ----------
    [young1974]_

    Examples
    --------
    >>> round(goodput_to_first_order(966.9, 50.0, 600.0, 10000.0), 3)
    0.84
    """
    return 1.0 - write_time / interval - (0.5 * interval + restart) / mtbf


def run_time(
    useful_time: Number, interval: Number, write_time: Number, restart: Number, mtbf: Number,
) -> Number:  # fmt: skip
    r"""Expected time of so much work in segments [s].

    Parameters
    ----------
    useful_time : that it takes without interruptions and checkpoints [s]

    Examples
    --------
    >>> round(run_time(86400.0, 966.9, 50.0, 600.0, 10000.0) / 86400, 3)
    1.176
    """
    return useful_time / goodput(interval, write_time, restart, mtbf)


def run_time_deviation(
    useful_time: Number, interval: Number, write_time: Number, restart: Number, mtbf: Number,
) -> Number:  # fmt: skip
    r"""Standard deviation of the time of so much work in segments [s].

    .. math:: \sqrt{\frac{W}{\tau} \mathrm{Var} X}

    Parameters
    ----------
    useful_time : :math:`W` that it takes without interruptions and checkpoints [s]

    Assumes segments that are independent and alike, :math:`W / \tau` of them.
    """
    return ops.sqrt(useful_time / interval * segment_variance(interval, write_time, restart, mtbf))
