r"""PipeDream: stages with replicas, pipelined without flushes, each minibatch seeing one version of a stage's weights.

Minibatches go round robin to a stage's :math:`m` replicas, so a stage that takes :math:`T` for one of them gives one
every :math:`T / m`. The papers and the published program differ in what synchronising the replicas costs; the price of
links in both directions, `placed_stage`, is what an all-reduce and full-duplex links need at least.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number

ARGUMENTS = {
    "replicas": "m", "bandwidth": "B [bytes/s]", "weight_bytes": "of all its layers [bytes]",
    "compute": "of all its layers on one replica, forward and backward [s]", "output_bytes": "a [bytes]",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""


def replicated_stage(compute: Number, weight_bytes: Number, replicas: Number, bandwidth: Number) -> Number:
    r"""Time per minibatch of a replicated stage [s], as in the paper of 2019.

    .. math:: T = \frac{1}{m} \max\left(\sum_l T_l,\; \frac{2 (m - 1) \sum_l |w_l|}{B}\right)

    References
    ----------
    [narayanan2019]_ section 3.1

    Examples
    --------
    >>> replicated_stage(0.3, 100e6, 3.0, 1e9)
    0.13333333333333333
    """
    return ops.maximum(compute, 2.0 * (replicas - 1.0) * weight_bytes / bandwidth) / replicas


def replicated_stage_2018(
    compute: Number, weight_bytes: Number, replicas: Number, bandwidth: Number,
) -> Number:  # fmt: skip
    r"""Time per minibatch of a replicated stage [s], as in the paper of 2018: a parameter server split over replicas.

    .. math:: T = \frac{1}{m} \max\left(\sum_l T_l,\; \frac{4 (m - 1) \sum_l |w_l|}{m B}\right)

    References
    ----------
    [harlap2018]_ section 3.2

    Examples
    --------
    >>> replicated_stage_2018(0.3, 150e6, 3.0, 1e9)
    0.13333333333333333
    """
    return ops.maximum(compute, sharded_synchronisation(weight_bytes, replicas, bandwidth)) / replicas


def replicated_stage_code(
    compute: Number, weight_bytes: Number, replicas: Number, bandwidth: Number, within: Number,
) -> Number:  # fmt: skip
    r"""Time per minibatch of a replicated stage [s], as the published program has it: compute and exchange add up.

    .. math:: T = \frac{1}{m} \left(\sum_l T_l + \frac{4 (m - 1) \sum_l |w_l|}{m B\, n}\right)

    Parameters
    ----------
    within : :math:`n`, over which the program divides the exchange of a pipeline's only stage

    References
    ----------
    [narayanan2019]_, in the published code: ``optimizer/optimizer_graph_hierarchical.py``

    Examples
    --------
    >>> replicated_stage_code(0.3, 150e6, 3.0, 1e9, 1.0)
    0.2333333333333333
    """
    return (compute + sharded_synchronisation(weight_bytes, replicas, bandwidth) / within) / replicas


def sharded_synchronisation(weight_bytes: Number, replicas: Number, bandwidth: Number) -> Number:
    r"""Time to push gradients to, and pull weights from, a parameter server split over the replicas [s].

    .. math:: \frac{4 (m - 1) |w|}{m B}

    Parameters
    ----------
    weight_bytes : :math:`|w|` [bytes]

    References
    ----------
    [harlap2018]_ section 3.2
    """
    return 4.0 * (replicas - 1.0) * weight_bytes / (replicas * bandwidth)


def placed_stage(compute: Number, weight_bytes: Number, replicas: Number, bandwidth: Number) -> Number:
    r"""Time per minibatch of a replicated stage of a pipeline [s], whose weights a ring keeps alike behind other minibatches.

    .. math:: T = \frac{1}{m} \max\left(\sum_l T_l,\; \frac{2 (m - 1) \sum_l |w_l|}{m B}\right)

    Parameters
    ----------
    bandwidth : :math:`B` each way, of the slowest link between two neighbours of the ring [bytes/s]

    References
    ----------
    [narayanan2019]_ section 3.1 for the maximum, [patarasuk2009]_ theorem 1 for the bytes

    Examples
    --------
    >>> placed_stage(0.3, 300e6, 3.0, 1e9)
    0.13333333333333333
    """
    return ops.maximum(compute, synchronisation_bytes(weight_bytes, replicas) / bandwidth) / replicas


def data_parallel_minibatch(compute: Number, weight_bytes: Number, replicas: Number, bandwidth: Number) -> Number:
    r"""Time per minibatch of data parallelism on all workers [s]: no other minibatch hides the exchange of gradients.

    .. math:: T = \frac{1}{m} \left(\sum_l T_l + \frac{2 (m - 1) \sum_l |w_l|}{m B}\right)

    Parameters
    ----------
    compute : of all layers on one worker, forward and backward [s]
    weight_bytes : of all layers [bytes]
    bandwidth : :math:`B` each way, of the slowest link between two neighbours of the ring [bytes/s]

    Assumes that the exchange follows the backward pass, as figure 1 of [narayanan2019]_ was measured: 61 of its 75 points
    agree to 10 points with an exchange after the pass, and 41 with one behind it (``python -m experiments communication``).

    References
    ----------
    [narayanan2019]_ sections 2.1 and 2.3, [patarasuk2009]_ theorem 1

    Examples
    --------
    >>> data_parallel_minibatch(0.3, 300e6, 3.0, 1e9)
    0.2333333333333333
    """
    return (compute + synchronisation_bytes(weight_bytes, replicas) / bandwidth) / replicas


def passing_on(output_bytes: Number, bandwidth: Number) -> Number:
    r"""Time per minibatch to send an output on while the gradient of another one comes back [s].

    .. math:: \frac{a}{B}

    Parameters
    ----------
    bandwidth : :math:`B` each way [bytes/s]

    Assumes a full-duplex link, which one of the two stages has to itself.

    Examples
    --------
    >>> passing_on(1e6, 1e9)
    0.001
    """
    return output_bytes / bandwidth


def handing_on(output_bytes: Number, replicas: Number, bandwidth: Number) -> Number:
    r"""Time per minibatch to send an output on and get its gradient back [s].

    .. math:: \frac{2 a}{m B}

    Parameters
    ----------
    replicas : :math:`m` whose links share the work

    References
    ----------
    [narayanan2019]_ section 3.1
    """
    return 2.0 * output_bytes / (replicas * bandwidth)


def minibatches_in_flight(downstream: Number, replicas: Number) -> Number:
    r"""Minibatches that a replica has begun and not finished in the steady state: versions of its weights that it keeps.

    .. math:: \left\lceil \frac{d}{m} \right\rceil + 1

    For the input stage, whose :math:`d` is all workers but its replicas, this is NOAM, the number of minibatches
    to admit: workers over replicas of the input stage, rounded up.

    Parameters
    ----------
    downstream : workers of the stages after this one :math:`d`
    replicas : workers of this one :math:`m`

    References
    ----------
    [narayanan2019]_ section 3.2

    Examples
    --------
    >>> minibatches_in_flight(3.0, 1.0), minibatches_in_flight(1.0, 15.0), minibatches_in_flight(0.0, 16.0)
    (4.0, 2.0, 1.0)
    """
    return ops.ceil_div(downstream, replicas) + 1.0


def synchronisation_bytes(weight_bytes: Number, replicas: Number) -> Number:
    r"""Bytes that a stage's replicas send for every minibatch to keep their weights alike.

    .. math:: \frac{2 (m - 1)}{m} |w|

    All of them together send :math:`2 (m - 1) |w|` when each has worked through one minibatch.

    Parameters
    ----------
    weight_bytes : :math:`|w|` [bytes]

    References
    ----------
    [patarasuk2009]_ theorem 1
    """
    return 2.0 * (replicas - 1.0) * weight_bytes / replicas
