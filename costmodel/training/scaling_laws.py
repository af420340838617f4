"""How many tokens a model needs: published scaling laws, and those of a user's own fit."""

from __future__ import annotations

import dataclasses

from costmodel.formulas.systems import scaling_laws as formulas
from costmodel.text.checks import choice, real
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief

FORMS = ("additive", "joint")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScalingLaw:
    """Loss of a model of so many parameters after so many tokens; only as true as its data are like the user's.

    Parameters
    ----------
    name : what it is called
    form : ``"additive"`` (Hoffmann et al.) or ``"joint"`` (Kaplan et al., parameters without embeddings)
    parameter_scale, token_scale, parameter_exponent, token_exponent : constants of `costmodel.formulas.systems.scaling_laws`
    floor : loss that no model and no data pass [nats a token]; additive only

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    """

    name: str
    form: str
    parameter_scale: float
    token_scale: float
    parameter_exponent: float
    token_exponent: float
    floor: float = 0.0

    __repr__ = brief

    def __post_init__(self) -> None:
        choice("form", self.form, FORMS)
        for field in ("parameter_scale", "token_scale"):
            real(field, getattr(self, field), 1e-9, 1e30)
        for field in ("parameter_exponent", "token_exponent"):
            real(field, getattr(self, field), 1e-4, 10.0)
        real("floor", self.floor, 0.0, 0.0 if self.form == "joint" else 100.0)

    def loss(self, parameters: float, tokens: float) -> float:
        """Loss after so many tokens [nats a token]."""
        real("parameters", parameters, 1.0, 1e18)
        real("tokens", tokens, 1.0, 1e18)
        if self.form == "joint":
            return float(formulas.joint_loss(parameters, tokens, *self._scales))
        return float(formulas.additive_loss(parameters, tokens, self.floor, *self._scales))

    def tokens(self, parameters: float, loss: float) -> float:
        """Tokens after which a model reaches a loss.

        Parameters
        ----------
        parameters : of the model
        loss : to be reached [nats a token]

        Raises
        ------
        InvalidValue
            for a loss that the model doesn't reach with any number of tokens
        """
        least = self.loss(parameters, 1e18)
        real("loss", loss, 0.0, 1e3)
        if loss <= least:
            raise InvalidValue("loss", loss, f"more than the {least:.3f} of {parameters:.3g} parameters with endless data")
        if self.form == "joint":
            return float(formulas.joint_tokens(loss, parameters, *self._scales))
        return float(formulas.additive_tokens(loss, parameters, self.floor, *self._scales))

    def best(self, flop: float) -> tuple[float, float]:
        """Parameters and tokens of lowest loss for so much computing, 6 parameters x tokens.

        Parameters
        ----------
        flop : of the whole run

        Examples
        --------
        >>> [f"{amount:.2g}" for amount in CHINCHILLA.best(5.76e23)]
        ['3.2e+10', '3e+12']
        """
        real("flop", flop, 1.0, 1e40)
        if self.form == "joint":
            raise InvalidValue("form", self.form, "additive: the joint law has no best model of its own")
        parameters = float(formulas.additive_best_parameters(flop, *self._scales))
        return parameters, flop / (6.0 * parameters)

    @property
    def _scales(self) -> tuple[float, float, float, float]:
        return self.parameter_scale, self.token_scale, self.parameter_exponent, self.token_exponent


CHINCHILLA = ScalingLaw(
    name="chinchilla", form="additive", floor=1.69, parameter_scale=406.4, token_scale=410.7, parameter_exponent=0.34,
    token_exponent=0.28,
)  # fmt: skip
"""Third approach of [hoffmann2022]_, equation 10, on MassiveText."""
KAPLAN = ScalingLaw(
    name="kaplan", form="joint", parameter_scale=6.4e13, token_scale=1.8e13, parameter_exponent=0.076, token_exponent=0.103,
)  # fmt: skip
"""Equation 1.5 of [kaplan2020]_ with its table 2, on WebText2; parameters without embeddings."""
LAWS = {law.name: law for law in (CHINCHILLA, KAPLAN)}
