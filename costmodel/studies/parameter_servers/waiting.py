"""Waiting times that are sums or integrals: the slowest of many workers, and workers that share what serves them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import log_ndtr

REACH = 12.0
"""Standard deviations beyond which nothing of the slowest worker's distribution is left, for any number of workers."""


def slowest_of(quantity: str, mean: float, spread: float, workers: int) -> float:
    r"""Expected time of the slowest of independent workers [s], by quadrature.

    .. math:: \int g(z)\, W \varphi(z)\, \Phi(z)^{W - 1}\, dz

    Parameters
    ----------
    quantity : ``"normal"`` or ``"lognormal"``: :math:`g(z)` is :math:`\mu + \sigma z` or its exponential
    mean : of one worker's time [s]
    spread : standard deviation over the mean
    workers : :math:`W`

    Examples
    --------
    Two normal times: the mean and :math:`\sigma / \sqrt{\pi}`.

    >>> round(slowest_of("normal", 1.0, 0.1, 2), 9), round(1.0 + 0.1 / math.sqrt(math.pi), 9)
    (1.056418958, 1.056418958)
    """
    sigma = math.sqrt(math.log1p(spread * spread))

    def density(z: float) -> float:
        log_density = math.log(workers) - 0.5 * z * z - 0.5 * math.log(2.0 * math.pi) + (workers - 1) * float(log_ndtr(z))
        if quantity == "lognormal":
            return math.exp(log_density + sigma * z - 0.5 * sigma * sigma)
        return (1.0 + spread * z) * math.exp(log_density)

    high = REACH + (sigma if quantity == "lognormal" else 0.0)
    value, _ = quad(density, -REACH, high, limit=400, epsabs=0.0, epsrel=1e-10, points=[0.0, 2.0, 4.0])
    return mean * float(value)


def shared_service(think: float, service: NDArray[np.float64]) -> tuple[float, float]:
    r"""Workers that think on their own and are then served all at once, as a closed network of two stations.

    .. math:: p_a \propto \frac{W!}{(W - a)!\, Z^a} \prod_{i=1}^{a} \frac{t_i}{i}

    This holds for any distribution of the thinking times that has a density, because all in service share it equally.

    Parameters
    ----------
    think : mean thinking time :math:`Z` [s]
    service : time :math:`t_a` in which :math:`a` workers at once are served, for 1 to :math:`W` [s]

    Returns
    -------
    tuple[float, float]
        services completed a second, and mean number of workers in service

    References
    ----------
    [baskett1975]_: stations of types 2 and 3

    Examples
    --------
    One worker alone takes both times in turn.

    >>> shared_service(1.0, np.array([3.0]))
    (0.25, 0.75)
    """
    workers = len(service)
    active = np.arange(1, workers + 1)
    rate = active / service
    steps = np.log((workers - active + 1) / think) - np.log(rate)
    logarithms = np.concatenate([[0.0], np.cumsum(steps)])
    weights = np.exp(logarithms - logarithms.max())
    probabilities = weights / weights.sum()
    return float(probabilities[1:] @ rate), float(probabilities[1:] @ active)
