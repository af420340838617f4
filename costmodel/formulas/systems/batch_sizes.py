r"""What a batch size costs: the gradient noise scale, and steps and samples to a given loss.

Batches are in samples (or tokens, throughout). :math:`G` is the true gradient, :math:`\Sigma` the covariance of one
sample's, :math:`H` the Hessian.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number

ARGUMENTS = {
    "batch": "B [samples]", "squared_gradient": "|G|^2", "gradient_curvature": "G^T H G", "noise": "B_noise [samples]",
    "critical": "B_crit [samples]",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""


def noise_scale(noise_curvature: Number, gradient_curvature: Number) -> Number:
    r"""Gradient noise scale [samples].

    .. math:: B_{noise} = \frac{\mathrm{tr}(H \Sigma)}{G^T H G}

    Parameters
    ----------
    noise_curvature : :math:`\mathrm{tr}(H \Sigma)`

    References
    ----------
    [mccandlish2018]_ eq. 2.8
    """
    return noise_curvature / gradient_curvature


def simple_noise_scale(variance: Number, squared_gradient: Number) -> Number:
    r"""Gradient noise scale where the Hessian is a multiple of the identity [samples].

    .. math:: B_{simple} = \frac{\mathrm{tr}\,\Sigma}{|G|^2}

    Parameters
    ----------
    variance : :math:`\mathrm{tr}\,\Sigma`, sum of the variances of one sample's gradient

    References
    ----------
    [mccandlish2018]_ eq. 2.9
    """
    return variance / squared_gradient


def optimal_rate(largest_rate: Number, batch: Number, noise: Number) -> Number:
    r"""Best learning rate of a batch.

    .. math:: \epsilon_{opt}(B) = \frac{\epsilon_{max}}{1 + B_{noise} / B}

    Parameters
    ----------
    largest_rate : with a batch without noise :math:`\epsilon_{max}`

    References
    ----------
    [mccandlish2018]_ eq. 2.6

    Examples
    --------
    >>> optimal_rate(1.0, 1000.0, 1000.0)
    0.5
    """
    return largest_rate / (1.0 + noise / batch)


def largest_rate(squared_gradient: Number, gradient_curvature: Number) -> Number:
    r"""Best learning rate without noise.

    .. math:: \epsilon_{max} = \frac{|G|^2}{G^T H G}

    References
    ----------
    [mccandlish2018]_ section 2.2
    """
    return squared_gradient / gradient_curvature


def largest_improvement(squared_gradient: Number, gradient_curvature: Number) -> Number:
    r"""Loss that one step wins without noise.

    .. math:: \Delta L_{max} = \frac{|G|^4}{2 G^T H G}

    References
    ----------
    [mccandlish2018]_ eq. 2.7
    """
    return 0.5 * squared_gradient * squared_gradient / gradient_curvature


def improvement(largest: Number, batch: Number, noise: Number) -> Number:
    r"""Loss that one step of a batch wins at its best learning rate.

    .. math:: \Delta L_{opt}(B) = \frac{\Delta L_{max}}{1 + B_{noise} / B}

    Parameters
    ----------
    largest : without noise :math:`\Delta L_{max}`

    References
    ----------
    [mccandlish2018]_ eq. 2.7
    """
    return largest / (1.0 + noise / batch)


def relative_error(batch: Number, simple_noise: Number) -> Number:
    r"""Expected squared error of a batch's gradient over the squared gradient: :math:`B_{simple} / B`.

    Parameters
    ----------
    simple_noise : :math:`B_{simple}` [samples]
    """
    return simple_noise / batch


def critical_batch(fewest_samples: Number, fewest_steps: Number) -> Number:
    r"""Batch at which a run takes twice its fewest steps and twice its fewest samples [samples].

    .. math:: B_{crit} = \frac{E_{min}}{S_{min}}

    Parameters
    ----------
    fewest_samples : :math:`E_{min}`, with a small batch [samples]
    fewest_steps : :math:`S_{min}`, with a large batch

    References
    ----------
    [mccandlish2018]_ eq. 2.12
    """
    return fewest_samples / fewest_steps


def steps(fewest_steps: Number, batch: Number, critical: Number) -> Number:
    r"""Steps to a given loss.

    .. math:: S = S_{min} \left(1 + \frac{B_{crit}}{B}\right)

    Parameters
    ----------
    fewest_steps : :math:`S_{min}`

    References
    ----------
    [mccandlish2018]_ eq. 2.11

    Examples
    --------
    >>> steps(1000.0, 15000.0, 15000.0)
    2000.0
    """
    return fewest_steps * (1.0 + critical / batch)


def samples(fewest_samples: Number, batch: Number, critical: Number) -> Number:
    r"""Samples to a given loss [samples].

    .. math:: E = E_{min} \left(1 + \frac{B}{B_{crit}}\right)

    Parameters
    ----------
    fewest_samples : :math:`E_{min}` [samples]

    References
    ----------
    [mccandlish2018]_ eq. 2.11
    """
    return fewest_samples * (1.0 + batch / critical)


def time_to_loss(fewest_steps: Number, batch: Number, critical: Number, iteration: Number) -> Number:
    """Time to a given loss [s]: steps of a batch, each of so long.

    Parameters
    ----------
    fewest_steps : with a large batch
    batch, critical : the batch, and the critical one [samples]
    iteration : time of one step with this batch [s]
    """
    return steps(fewest_steps, batch, critical) * iteration


def squared_gradient_estimate(
    small_batch: Number, large_batch: Number, small_norm: Number, large_norm: Number,
) -> Number:  # fmt: skip
    r"""Unbiased estimate of :math:`|G|^2` from squared gradient norms at two batch sizes.

    .. math:: \frac{B_2 |G_2|^2 - B_1 |G_1|^2}{B_2 - B_1}

    Parameters
    ----------
    small_batch, large_batch : :math:`B_1 < B_2` [samples]
    small_norm, large_norm : :math:`|G_1|^2, |G_2|^2`, squared norms of the gradients of such batches

    References
    ----------
    [mccandlish2018]_ appendix A.1
    """
    return (large_batch * large_norm - small_batch * small_norm) / (large_batch - small_batch)


def variance_estimate(
    small_batch: Number, large_batch: Number, small_norm: Number, large_norm: Number,
) -> Number:  # fmt: skip
    r"""Unbiased estimate of :math:`\mathrm{tr}\,\Sigma` from squared gradient norms at two batch sizes.

    .. math:: \frac{|G_1|^2 - |G_2|^2}{1 / B_1 - 1 / B_2}

    Parameters
    ----------
    small_batch, large_batch : :math:`B_1 < B_2` [samples]
    small_norm, large_norm : :math:`|G_1|^2, |G_2|^2`, squared norms of the gradients of such batches

    References
    ----------
    [mccandlish2018]_ appendix A.1
    """
    return (small_norm - large_norm) / (1.0 / small_batch - 1.0 / large_batch)


def adaptive_batch(noise: Number, exchange_rate: Number) -> Number:
    r"""Batch that follows the noise scale during a run [samples].

    .. math:: B(s) = \sqrt{r B_{noise}(s)}

    Parameters
    ----------
    noise : noise scale now :math:`B_{noise}` [samples]
    exchange_rate : samples that a step is worth :math:`r`

    References
    ----------
    [mccandlish2018]_ appendix D
    """
    return ops.sqrt(exchange_rate * noise)


def adaptive_gain(root_noise_sum: Number, fewest_steps: Number, fewest_samples: Number) -> Number:
    r"""Gain of an adaptive over the best fixed batch: share of its cost that remains.

    .. math:: \gamma = \frac{\left(\int \sqrt{B_{noise}}\, ds\right)^2}{S_{min} E_{min}}

    Parameters
    ----------
    root_noise_sum : :math:`\int \sqrt{B_{noise}}\, ds` over the noiseless run
    fewest_steps, fewest_samples : :math:`S_{min}, E_{min}`

    References
    ----------
    [mccandlish2018]_ appendix D
    """
    return root_noise_sum * root_noise_sum / (fewest_steps * fewest_samples)
