r"""A whole run: steps, time, GPU-hours, money, energy and emissions."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number

ARGUMENTS = {"time": "of the run [s]", "devices": "how many n", "tokens": "of the run D"}
"""What arguments mean in all formulas here that say nothing else of them."""


_HOUR = 3600.0


def steps_of(tokens: Number, global_batch: Number, seq_len: Number) -> Number:
    r"""Optimizer steps of a run; the last batch is filled.

    .. math:: \left\lceil \frac{D}{B s} \right\rceil

    Parameters
    ----------
    global_batch : sequences of a step :math:`B`
    seq_len : tokens of a sequence :math:`s`

    Examples
    --------
    >>> steps_of(300e9, 1536.0, 2048.0)
    95368.0
    """
    return ops.ceil_div(tokens, global_batch * seq_len)


def time_of_flop(flop: Number, devices: Number, flop_rate: Number) -> Number:
    r"""Time of a run from the rate that each device reaches [s].

    .. math:: T = \frac{F}{n X}

    Parameters
    ----------
    flop : of the whole run :math:`F`
    flop_rate : that each reaches :math:`X` [FLOP/s]
    """
    return flop / (devices * flop_rate)


def time_of_tokens(tokens: Number, parameters: Number, devices: Number, flop_rate: Number) -> Number:
    r"""Time of a run that recomputes activations, from the rate that each device reaches [s].

    .. math:: T \approx \frac{8 D P}{n X}

    Parameters
    ----------
    parameters : of the model :math:`P`
    flop_rate : that each reaches, recomputation counted :math:`X` [FLOP/s]

    References
    ----------
    [narayanan2021]_ eq. 4

    Examples
    --------
    >>> round(time_of_tokens(300e9, 175e9, 1024, 140e12) / 86400, 1)
    33.9
    """
    return time_of_flop(8.0 * tokens * parameters, devices, flop_rate)


def device_hours(devices: Number, time: Number) -> Number:
    """Hours of all devices together.

    Examples
    --------
    >>> device_hours(1024.0, 86400.0)
    24576.0
    """
    return devices * time / _HOUR


def price(rate: Number, devices: Number, time: Number) -> Number:
    """Price of a run, in the currency of the rate.

    Parameters
    ----------
    rate : of a device for an hour

    Examples
    --------
    >>> price(2.0, 8.0, 3600.0)
    16.0
    """
    return rate * device_hours(devices, time)


def energy(power: Number, utilisation: Number, overhead: Number, devices: Number, time: Number) -> Number:
    """Energy of a run [J].

    Parameters
    ----------
    power : of a device at its limit [W]
    utilisation : mean power over that at the limit
    overhead : energy of the whole site over that of the devices: hosts, network, cooling

    Examples
    --------
    >>> energy(700.0, 0.8, 1.25, 1000.0, 3600.0) / 3.6e6
    700.0
    """
    return power * utilisation * overhead * devices * time


def emissions(energy: Number, intensity: Number) -> Number:
    """Carbon dioxide emitted [kg].

    Parameters
    ----------
    energy : of the run [J]
    intensity : carbon intensity of the electricity [kg/J]

    Examples
    --------
    A megawatt-hour at 0.4 kg a kilowatt-hour:

    >>> round(emissions(3.6e9, 0.4 / 3.6e6), 9)
    400.0
    """
    return energy * intensity
