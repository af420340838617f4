r"""Memory and time of gradient checkpointing in closed form, for :math:`n` equal layers.

Bytes are those of what is kept; schedules of layers that differ, and peaks with gradients, are `costmodel.checkpoint`'s.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number

ARGUMENTS = {"layers": "n", "segments": "k", "nbytes": "output of a layer a [bytes]"}
"""What arguments mean in all formulas here that say nothing else of them."""


def segmented_bytes(layers: Number, segments: Number, nbytes: Number) -> Number:
    r"""Activations held where only the outputs of equal segments are kept [bytes].

    .. math:: \left(k + \frac{n}{k}\right) a

    The outputs of the segments, and one segment at work.

    References
    ----------
    [chen2016]_ section 4.3

    Examples
    --------
    >>> segmented_bytes(100.0, 10.0, 1.0)
    20.0
    """
    return (segments + layers / segments) * nbytes


def segmented_extra(layers: Number, segments: Number, forward: Number) -> Number:
    r"""Time of running forward again all but the last of equal segments [s].

    .. math:: n \left(1 - \frac{1}{k}\right) f

    The last segment is recorded as the forward pass goes through it. Chen et al. count it too: one forward pass.

    Parameters
    ----------
    forward : time of a layer :math:`f` [s]

    Examples
    --------
    >>> segmented_extra(100.0, 10.0, 1.0)
    90.0
    """
    return (layers - layers / segments) * forward


def square_root_segments(layers: Number) -> Number:
    r"""Number of segments that holds least: :math:`\sqrt n`, for :math:`2 \sqrt n` outputs.

    References
    ----------
    [chen2016]_ section 4.3

    Examples
    --------
    >>> square_root_segments(100.0)
    10.0
    """
    return ops.sqrt(layers)


def recursive_levels(layers: Number, checkpoints: Number) -> Number:
    r"""Levels of a chain that is cut again and again: :math:`\log_{k + 1} n`, each a forward pass of all layers.

    Parameters
    ----------
    checkpoints : :math:`k` that cut a piece

    References
    ----------
    [chen2016]_ section 4.4

    Examples
    --------
    >>> recursive_levels(1024.0, 1.0)
    10.0
    """
    return ops.log2(layers) / ops.log2(checkpoints + 1.0)


def recursive_bytes(layers: Number, checkpoints: Number, nbytes: Number) -> Number:
    r"""Activations held where every piece of a chain is cut by as many checkpoints again [bytes].

    .. math:: g(n) = k a + g\left(\frac{n}{k + 1}\right) = k a \log_{k + 1} n

    Parameters
    ----------
    checkpoints : :math:`k` that cut a piece

    References
    ----------
    [chen2016]_ section 4.4

    Examples
    --------
    >>> recursive_bytes(1024.0, 1.0, 1.0)
    10.0
    """
    return checkpoints * recursive_levels(layers, checkpoints) * nbytes


def binomial_advances(layers: Number, snapshots: Number, repetitions: Number, reach: Number) -> Number:
    r"""Forward passes of layers that Revolve runs before it records them.

    .. math:: t(n, c) = r n - \frac{r}{c + 1} \beta(c, r), \qquad \beta(c, r) = \binom{c + r}{c}

    Each layer is run once more when it is recorded, so this is also what Revolve runs beyond one forward pass.

    Parameters
    ----------
    snapshots : :math:`c`, that of the chain's input among them
    repetitions : :math:`r`, the least for which :math:`\beta(c, r) \ge n`
    reach : that :math:`\beta(c, r)`; both are found by `costmodel.studies.rematerialisation.kernel.repetitions`

    References
    ----------
    [griewank2000]_ proposition 1

    Examples
    --------
    >>> binomial_advances(10.0, 3.0, 2.0, 10.0)
    15.0
    """
    return repetitions * layers - reach * repetitions / (snapshots + 1.0)
