"""A whole training run of a plan: days, GPU-hours, money and energy, each with its range."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from costmodel.catalogue.clusters import ClusterLike
from costmodel.catalogue.keywords import by_other_names
from costmodel.evaluation.asked_step import Answer, step_of
from costmodel.evaluation.estimation import Estimate, sentence, title
from costmodel.evaluation.first_contacts import Error
from costmodel.formulas.systems import training_run as formulas
from costmodel.text.attributes import names_what_is_there
from costmodel.text.checks import kind, real
from costmodel.text.errors import InvalidValue, NotModelled
from costmodel.text.results import figure
from costmodel.text.tables import headed, table
from costmodel.text.units import counted, format_count, read_count
from costmodel.training.cost import JOULES_PER_KILOWATT_HOUR, Cost, Tariff, cost
from costmodel.training.reliability import Goodput, Reliability, goodput
from costmodel.training.scaling_laws import ScalingLaw

DAY = 86400.0


@names_what_is_there
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """What a run takes, from its first step to its last token.

    Parameters
    ----------
    estimate : of one step
    tokens : of the whole run
    steps : optimizer steps
    step_time : with the wait for the slowest replica [s]
    goodput : where the run's time goes
    tariff : the user's prices
    loss : by the scaling law asked for [nats a token]; None without one
    """

    estimate: Estimate
    tokens: float
    steps: float
    step_time: float
    goodput: Goodput
    tariff: Tariff
    loss: float | None = None

    plot = figure

    def __repr__(self) -> str:
        return headed(f"TrainingRun: {self.said()}", title(self.estimate), sentence(self.estimate))

    def _repr_html_(self) -> str:
        ends = (self.cost, *self.cost_interval)
        rows = [("days", *(f"{time / DAY:.3g}" for time in (self.time, *self.time_interval)))]
        rows.append(("GPU-hours", *(f"{one.gpu_hours:,.0f}" for one in ends)))
        if self.tariff.gpu_hour is not None:
            rows.append(("price", *(f"{one.price:,.0f}" for one in ends)))
        return table(self.said(), ("", "expected", "90 % from", "to"), rows, title(self.estimate))

    def said(self) -> str:
        """Tokens and days in a line."""
        low, high = self.time_interval
        days = f"{self.days:.3g} days, {low / DAY:.3g} to {high / DAY:.3g} with 90 % probability"
        return f"{format_count(self.tokens)} tokens on {counted(self.gpus, 'GPU')} in {days}"

    @property
    def gpus(self) -> int:
        """How many."""
        return self.estimate.plan.gpus

    @property
    def useful_time(self) -> float:
        """All steps, without failures and checkpoints [s]."""
        return self.steps * self.step_time

    @property
    def time(self) -> float:
        """The run, expected over failures [s]."""
        return self.goodput.time(self.useful_time)

    @property
    def days(self) -> float:
        """The run in days."""
        return self.time / DAY

    @functools.cached_property
    def error(self) -> Error:
        """How far the run's time may lie from what is expected: error of the step, and failures by chance."""
        return self.estimate.time_error.widened(self.goodput.deviation(self.useful_time) / self.time)

    @property
    def spread(self) -> float:
        """Standard deviation of the normal that is as wide as the 90 % interval of the logarithm of the run's time."""
        return self.error.deviation

    @property
    def time_interval(self) -> tuple[float, float]:
        """90 % interval of the run's time [s]."""
        return self.error.interval(self.time)

    @property
    def cost(self) -> Cost:
        """Of the run, expected over failures."""
        return self._cost(self.time)

    @property
    def cost_interval(self) -> tuple[Cost, Cost]:
        """90 % interval of every cost."""
        low, high = self.time_interval
        return self._cost(low), self._cost(high)

    @property
    def mfu(self) -> float:
        """Model FLOP utilisation of the whole run: the step's, times what stragglers and failures leave."""
        return self.estimate.mfu * self._share

    @property
    def hfu(self) -> float:
        """Hardware FLOP utilisation of the whole run."""
        return self.estimate.hfu * self._share

    @property
    def interruptions(self) -> float:
        """Expected failures and preemptions of the run."""
        return self.goodput.interruptions(self.useful_time)

    def to_dict(self) -> dict[str, object]:
        """Flat names with units, for JSON and frames; None where nothing tells a cost."""
        low, high = self.time_interval
        row: dict[str, object] = {
            "tokens": self.tokens, "steps": self.steps, "straggling_step_time_s": self.step_time, "goodput": self.goodput.useful,
            "interruptions": self.interruptions, "run_mfu": self.mfu, "run_hfu": self.hfu,
            "days": self.days, "days_low": low / DAY, "days_high": high / DAY,
        }  # fmt: skip
        for end, amounts in zip(("", "_low", "_high"), (self.cost, *self.cost_interval), strict=True):
            row[f"gpu_hours{end}"], row[f"price{end}"] = amounts.gpu_hours, amounts.price
            row[f"energy_kwh{end}"] = None if amounts.energy is None else amounts.energy / JOULES_PER_KILOWATT_HOUR
            row[f"co2_kg{end}"] = amounts.emissions
        return row | {"loss": self.loss}

    @property
    def _share(self) -> float:
        return self.goodput.useful * self.estimate.step_time / self.step_time

    def _cost(self, time: float) -> Cost:
        return cost(self.tariff, self.estimate.cluster.device, self.gpus, time)


def token_count(tokens: float | str) -> float:
    """Tokens of a run.

    Parameters
    ----------
    tokens : how many, or a text such as ``"300B"`` or ``"15T"``

    Examples
    --------
    >>> token_count("1.5T"), token_count(1e9)
    (1500000000000.0, 1000000000.0)
    """
    return real("tokens", read_count("tokens", tokens) if isinstance(tokens, str) else tokens, 1.0, 1e18)


@by_other_names(model="answer")
def time_to_train(
    answer: Answer,
    cluster: ClusterLike | None = None,
    tokens: float | str | None = None,
    *,
    epochs: float = 1.0,
    target_loss: float | None = None,
    law: ScalingLaw | None = None,
    reliability: Reliability | None = None,
    straggler_spread: float = 0.0,
    tariff: Tariff | None = None,
    price: float | None = None,
    **asked: Any,
) -> TrainingRun:
    """Days, GPU-hours, money and energy of training a model with a plan.

    Parameters
    ----------
    answer : of one step of the plan: an estimate, or a search, whose best plan is meant; or a model, or its name
    cluster : of a model, or what names it, as `costmodel.estimate` takes it
    tokens : of the data set, a number, or ``"15T"``; of the whole run with one epoch
    epochs : passes over the data set
    target_loss : in place of `tokens`, the loss to be reached by the scaling law [nats a token]
    law : scaling law that tells the loss, and the tokens where a loss is asked for
    reliability : failures, checkpoints and restarts; without, nothing fails and nothing is saved
    straggler_spread : standard deviation over the mean of one replica's step, beyond what the estimate's constants
        hold: the slowest of all data-parallel replicas is waited for, normally distributed
    tariff : prices and power; without, the energy follows where the device's power is known
    price : in its place, of a GPU for an hour, in any currency
    asked : of a model, as `costmodel.estimate` takes it, such as ``gpus=64, tp=2``; where no degree is given, the fastest
        plan that fits is taken, as `costmodel.search` finds it

    Returns
    -------
    TrainingRun
        whose 90 % ranges come from the error of the step time and from the chance of failures

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    NotModelled
        for a scaling law of a model with experts

    Examples
    --------
    >>> from costmodel import Plan, estimate, load_cluster, load_model
    >>> plan = Plan(global_batch=1024, seq_len=8192, tensor_parallel=8, data_parallel=8)
    >>> step = estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=64), plan)
    >>> run = time_to_train(step, tokens=1e12, price=2.0)
    >>> run.steps, run.cost.price == 2.0 * run.cost.gpu_hours
    (119210.0, True)
    >>> time_to_train("llama3-8b", "64xh100", tokens="1T").gpus
    64
    """
    if isinstance(cluster, int | float):
        raise InvalidValue("cluster", cluster, f"a cluster, of a model; tokens go by their name: tokens={cluster:g}")
    estimate = step_of(answer, cluster, asked)
    if price is not None and tariff is not None:
        raise InvalidValue("price", price, "None beside a tariff, whose gpu_hour it is")
    if price is not None:
        real("price", price, 0.0, 1e9)
    tariff = Tariff(gpu_hour=price) if tariff is None else tariff
    reliability = Reliability() if reliability is None else reliability
    kind("reliability", reliability, Reliability, "Reliability(device_mtbf=..., ...)")
    kind("tariff", tariff, Tariff, "Tariff(gpu_hour=..., ...)")
    real("straggler_spread", straggler_spread, 0.0, 1.0)
    parameters = float(estimate.model.parameters)
    if law is not None:
        kind("law", law, ScalingLaw, "ScalingLaw(...), CHINCHILLA or KAPLAN")
        if estimate.model.experts:
            raise NotModelled(f"{estimate.model.name} has experts; scaling laws are of dense models")
    counted = parameters if law is None or law.form == "additive" else _without_embeddings(estimate)
    if target_loss is not None:
        if law is None or tokens is not None:
            raise InvalidValue("target_loss", target_loss, "a scaling law beside it, and no tokens")
        tokens = law.tokens(counted, target_loss)
    if tokens is None:
        raise InvalidValue("tokens", tokens, "tokens of the run, or target_loss with a scaling law")
    seen = token_count(tokens) * real("epochs", epochs, 1e-6, 1e6)
    plan = estimate.plan
    steps = formulas.steps_of(seen, float(plan.global_batch), plan.tokens / plan.global_batch)
    waited = 1.0
    if straggler_spread > 0.0:
        from costmodel.studies.data_parallel import expected_largest  # loads NumPy

        waited += straggler_spread * expected_largest(plan.copies)
    return TrainingRun(
        estimate=estimate, tokens=seen, steps=float(steps),
        step_time=estimate.step_time * waited, goodput=goodput(reliability, plan.gpus, parameters), tariff=tariff,
        loss=None if law is None else law.loss(counted, seen),
    )  # fmt: skip


def _without_embeddings(estimate: Estimate) -> float:
    """Parameters as Kaplan et al. count them."""
    parts = estimate.model.parameters_by_part()
    return float(parts["total"] - parts["embedding"] - parts["head"])
