r"""Scaling laws: the loss of a model of so many parameters after so many tokens, and what of both is best.

Losses are in nats a token. The constants of a law belong to its data, tokenizer and architecture: they are arguments.
"""

from __future__ import annotations

from costmodel.formulas.quantities import Number


def additive_loss(
    parameters: Number, tokens: Number, floor: Number, parameter_scale: Number, token_scale: Number,
    parameter_exponent: Number, token_exponent: Number,
) -> Number:  # fmt: skip
    r"""Loss as a sum of a floor and of what model and data miss [nats a token].

    .. math:: L = E + \frac{A}{N^\alpha} + \frac{B}{D^\beta}

    Parameters
    ----------
    parameters, tokens : :math:`N, D`
    floor : entropy of the text :math:`E` [nats a token]
    parameter_scale, token_scale : :math:`A, B`
    parameter_exponent, token_exponent : :math:`\alpha, \beta`

    References
    ----------
    [hoffmann2022]_ eq. 2

    Examples
    --------
    Chinchilla itself, with the constants of that paper's third approach:

    >>> round(additive_loss(70e9, 1.4e12, 1.69, 406.4, 410.7, 0.34, 0.28), 3)
    1.937
    """
    return floor + parameter_scale / parameters**parameter_exponent + token_scale / tokens**token_exponent


def additive_tokens(
    loss: Number, parameters: Number, floor: Number, parameter_scale: Number, token_scale: Number,
    parameter_exponent: Number, token_exponent: Number,
) -> Number:  # fmt: skip
    r"""Tokens after which a model reaches a loss, by the additive law.

    .. math:: D = \left(\frac{B}{L - E - A / N^\alpha}\right)^{1 / \beta}

    Parameters
    ----------
    loss : :math:`L`, above what the model reaches with endless data [nats a token]
    parameters : :math:`N`
    floor, parameter_scale, token_scale, parameter_exponent, token_exponent : as in `additive_loss`

    References
    ----------
    [hoffmann2022]_ eq. 2, solved for the tokens
    """
    return (token_scale / (loss - floor - parameter_scale / parameters**parameter_exponent)) ** (1.0 / token_exponent)


def additive_best_parameters(
    flop: Number, parameter_scale: Number, token_scale: Number, parameter_exponent: Number,
    token_exponent: Number,
) -> Number:  # fmt: skip
    r"""Parameters of the model of lowest loss for so much computing, by the additive law.

    .. math:: N = \left(\frac{\alpha A}{\beta B}\right)^{\frac{1}{\alpha + \beta}}
        \left(\frac{C}{6}\right)^{\frac{\beta}{\alpha + \beta}}

    Parameters
    ----------
    flop : :math:`C = 6 N D`
    parameter_scale, token_scale, parameter_exponent, token_exponent : as in `additive_loss`

    References
    ----------
    [hoffmann2022]_ eq. 4
    """
    both = parameter_exponent + token_exponent
    ratio = parameter_exponent * parameter_scale / (token_exponent * token_scale)
    return ratio ** (1.0 / both) * (flop / 6.0) ** (token_exponent / both)


def joint_loss(
    parameters: Number, tokens: Number, parameter_scale: Number, token_scale: Number,
    parameter_exponent: Number, token_exponent: Number,
) -> Number:  # fmt: skip
    r"""Loss by a joint power of model and data [nats a token].

    .. math:: L = \left(\left(\frac{N_c}{N}\right)^{\alpha_N / \alpha_D} + \frac{D_c}{D}\right)^{\alpha_D}

    Parameters
    ----------
    parameters : without embeddings :math:`N`
    tokens : :math:`D`
    parameter_scale, token_scale : :math:`N_c, D_c`
    parameter_exponent, token_exponent : :math:`\alpha_N, \alpha_D`

    References
    ----------
    [kaplan2020]_ eq. 1.5

    Examples
    --------
    >>> round(joint_loss(1e9, 22e9, 6.4e13, 1.8e13, 0.076, 0.103), 2)
    2.37
    """
    model = (parameter_scale / parameters) ** (parameter_exponent / token_exponent)
    return (model + token_scale / tokens) ** token_exponent


def joint_tokens(
    loss: Number, parameters: Number, parameter_scale: Number, token_scale: Number,
    parameter_exponent: Number, token_exponent: Number,
) -> Number:  # fmt: skip
    r"""Tokens after which a model reaches a loss, by the joint law.

    .. math:: D = \frac{D_c}{L^{1 / \alpha_D} - (N_c / N)^{\alpha_N / \alpha_D}}

    Parameters
    ----------
    loss : :math:`L`, above what the model reaches with endless data [nats a token]
    parameters : without embeddings :math:`N`
    parameter_scale, token_scale, parameter_exponent, token_exponent : as in `joint_loss`

    References
    ----------
    [kaplan2020]_ eq. 1.5, solved for the tokens
    """
    model = (parameter_scale / parameters) ** (parameter_exponent / token_exponent)
    return token_scale / (loss ** (1.0 / token_exponent) - model)
