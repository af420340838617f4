r"""Data parallelism in bulk-synchronous steps: the iteration, its efficiency, the rate of learning that goes with it."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number


def hierarchical_all_reduce(
    nbytes: Number, gpus_per_server: Number, between: Number, latency: Number, bandwidth: Number,
) -> Number:  # fmt: skip
    r"""Time of a reduction inside each server, an all-reduce between servers and a broadcast inside each [s].

    .. math:: T = 2 \left((g - 1) \alpha + \frac{n}{B}\right) + T_{between}

    Parameters
    ----------
    nbytes : buffer :math:`n` on each GPU [bytes]
    gpus_per_server : :math:`g`
    between : time of the all-reduce of `nbytes` between servers [s]
    latency : :math:`\alpha` of one hop inside a server [s]
    bandwidth : :math:`B` of a GPU inside its server [bytes/s]

    Assumes a chain inside the server, through which the buffer passes in pieces: one buffer's time each way, where
    `costmodel.formulas.network.algorithms.hierarchical` has binomial trees of whole buffers, :math:`\lceil \log_2 g \rceil` of
    them each way.

    References
    ----------
    [goyal2017]_ section 4.1

    Examples
    --------
    >>> hierarchical_all_reduce(100e6, 8.0, 0.03, 0.0, 20e9)
    0.04
    """
    inside = (gpus_per_server - 1.0) * latency + nbytes / bandwidth
    return 2.0 * ops.where(gpus_per_server > 1.0, inside, 0.0) + between


def exposed_exchange(backward: Number, first_bucket: Number, exchange_time: Number) -> Number:
    """Exchange of gradients that the backward pass doesn't hide, where it is the exchange that never waits [s].

    Parameters
    ----------
    backward : time of the backward pass [s]
    first_bucket : time from its start until the first bucket is full [s]
    exchange_time : time of all buckets' exchange [s]

    Examples
    --------
    >>> exposed_exchange(0.125, 0.025, 0.2)
    0.1
    """
    return ops.maximum(first_bucket + exchange_time - backward, 0.0)


def exposed_equal_buckets(backward: Number, buckets: Number, exchange_time: Number) -> Number:
    r"""Exchange of gradients that stays exposed where buckets are equal and fill at an even pace [s].

    .. math:: \max\left(\frac{X}{K},\; X + \frac{B}{K} - B\right)

    The last bucket is full when the backward pass ends, so its own exchange is never hidden.

    Parameters
    ----------
    backward : time of the backward pass :math:`B` [s]
    buckets : :math:`K`
    exchange_time : of all buckets :math:`X` [s]

    Examples
    --------
    >>> exposed_equal_buckets(1.0, 4.0, 0.4), exposed_equal_buckets(1.0, 4.0, 2.0)
    (0.1, 1.25)
    """
    return ops.maximum(exchange_time / buckets, exchange_time + backward / buckets - backward)


def iteration_time(forward: Number, backward: Number, first_bucket: Number, exchange_time: Number) -> Number:
    r"""Time of one iteration of data-parallel training [s].

    .. math:: T = T_{fwd} + \max(T_{bwd},\; T_{first} + T_{exchange})

    Parameters
    ----------
    forward, backward : of one worker on its share of the minibatch [s]
    first_bucket : time from the backward pass's start until the first bucket of gradients is full [s]
    exchange_time : time to all-reduce every gradient [s]

    References
    ----------
    [goyal2017]_ section 4

    Examples
    --------
    >>> iteration_time(0.125, 0.125, 0.025, 0.05)
    0.25
    """
    return forward + backward + exposed_exchange(backward, first_bucket, exchange_time)


def throughput(workers: Number, samples: Number, iteration: Number) -> Number:
    """Samples of all workers per second.

    Parameters
    ----------
    workers : how many
    samples : of one worker in an iteration
    iteration : time of an iteration [s]
    """
    return workers * samples / iteration


def scaling_efficiency(reference: Number, iteration: Number) -> Number:
    """Throughput of a worker over that in a smaller, reference run with the same samples a worker.

    Parameters
    ----------
    reference : time of an iteration there [s]
    iteration : time of an iteration here [s]

    Examples
    --------
    >>> scaling_efficiency(0.230, 0.257)
    0.8949416342412452
    """
    return reference / iteration


def training_time(
    samples: Number, epochs: Number, workers: Number, samples_of_worker: Number, iteration: Number,
) -> Number:  # fmt: skip
    """Time of a training run [s].

    Parameters
    ----------
    samples : of the data set
    epochs : passes over it
    workers, samples_of_worker : how many, and what each takes in an iteration
    iteration : time of an iteration [s]
    """
    return epochs * samples / throughput(workers, samples_of_worker, iteration)


def bandwidth_to_hide(nbytes: Number, backward: Number) -> Number:
    r"""Bandwidth that hides an all-reduce between many servers behind the backward pass [bytes/s].

    .. math:: B = \frac{2 n}{T_{bwd}}

    Parameters
    ----------
    nbytes : gradients :math:`n` [bytes]
    backward : time of the backward pass [s]

    References
    ----------
    [goyal2017]_ section 4.3

    Examples
    --------
    >>> bandwidth_to_hide(100e6, 0.125)
    1600000000.0
    """
    return 2.0 * nbytes / backward


def linear_scaling_rate(rate: Number, minibatch: Number, reference: Number) -> Number:
    r"""Learning rate of a larger minibatch: :math:`\hat\eta = k \eta`.

    Parameters
    ----------
    rate : learning rate at the reference minibatch
    minibatch, reference : samples of both

    References
    ----------
    [goyal2017]_ section 2.1

    Examples
    --------
    >>> linear_scaling_rate(0.1, 8192.0, 256.0)
    3.2
    """
    return rate * minibatch / reference


def warmup_rate(first: Number, last: Number, iteration: Number, warmup: Number) -> Number:
    """Learning rate during a gradual warmup, which grows by the same amount in each iteration.

    Parameters
    ----------
    first, last : learning rate at the start and after the warmup
    iteration : from 0
    warmup : iterations that it takes

    References
    ----------
    [goyal2017]_ section 2.2

    Examples
    --------
    >>> warmup_rate(0.1, 3.2, 0.0, 780.0), warmup_rate(0.1, 3.2, 390.0, 780.0), warmup_rate(0.1, 3.2, 2000.0, 780.0)
    (0.1, 1.6500000000000001, 3.2)
    """
    return first + (last - first) * ops.minimum(iteration / warmup, 1.0)


def corrected_momentum(momentum: Number, rate: Number, previous: Number) -> Number:
    """Factor on the velocity of momentum SGD, kept in units of the update, when the learning rate changes.

    Parameters
    ----------
    momentum : as set
    rate, previous : learning rate of this and of the previous iteration

    References
    ----------
    [goyal2017]_ section 3
    """
    return momentum * rate / previous
