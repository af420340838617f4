r"""Systems side by side: throughput, what a price buys, and what one GPU's copy of a model holds."""

from __future__ import annotations

from costmodel.formulas.quantities import Number


def throughput(samples: Number, time: Number) -> Number:
    """Samples a second.

    Parameters
    ----------
    samples : of a step
    time : of the step [s]
    """
    return samples / time


def samples_per_price(samples_per_second: Number, price_per_hour: Number) -> Number:
    """Samples for one unit of the currency.

    Parameters
    ----------
    samples_per_second : of all machines together
    price_per_hour : of all machines together

    Examples
    --------
    >>> samples_per_price(100.0, 20.0)
    18000.0
    """
    return 3600.0 * samples_per_second / price_per_hour


def replica_memory(weight_bytes: Number, activation_bytes: Number, copies: Number) -> Number:
    r"""Bytes of a GPU that holds a copy of the model.

    .. math:: c w + a

    Parameters
    ----------
    weight_bytes : of the weights :math:`w` [bytes]
    activation_bytes : kept from a forward to its backward pass :math:`a` [bytes]
    copies : of the size of the weights that it holds :math:`c`: weights, gradients, optimizer states, ...
    """
    return copies * weight_bytes + activation_bytes
