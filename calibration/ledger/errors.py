"""The error model of a first contact, set on the ledger, and how it holds where it wasn't set."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import t as student

from calibration.data.runs import quantile_of_sources, source_weights
from calibration.ledger.entries import Entry
from calibration.validate.scores import MISS
from costmodel.catalogue.software import is_framework, load_framework
from costmodel.evaluation.first_contacts import HALF, NOVELTY, TYPICAL

Array = NDArray[np.float64]
DEGREES = 4.0
LEAST, MOST = 0.06, 0.12
"""Standard deviations that constants leave a plan, between which the scale of its error follows them. Where they are better
known than usual a cluster of one's own isn't; beyond the second no new source tells the scale."""
PRIOR, SHIFT_PRIOR = 1.4, 0.2
"""Standard deviations of what is believed of slopes of the scale's logarithm and of the median before any campaign was met."""
OLDER = 0.5
"""Share of the sources on which the model is set that is tried on the others."""
TIME, MEMORY = "time", "memory"
SCALE = {TIME: ("seen", "constants"), MEMORY: ("seen",)}
"""What the logarithm of the scale follows. Whether the framework was measured on the device is in the errors of the constants,
which are any framework's where it wasn't: beside them it widens nothing further, and only moves the median."""
MEDIAN: dict[str, tuple[str, ...]] = {TIME: ("novelty",), MEMORY: ()}


class Rows(NamedTuple):
    """Residuals with what tells their scale."""

    source: NDArray[np.str_]  # of each
    residual: Array  # log(measured / predicted)
    of: Mapping[str, Array]  # columns by name

    def some(self, wanted: NDArray[np.bool_]) -> Rows:
        """Those of a mask."""
        return Rows(self.source[wanted], self.residual[wanted], {name: column[wanted] for name, column in self.of.items()})

    def met_new(self) -> Rows:
        """The same as if none of their campaigns had been seen: what a user's cluster is."""
        return self._replace(of={**self.of, "seen": np.zeros(len(self.residual))})


def rows_of(entries: Sequence[Entry], what: str) -> Rows:
    """Residuals of the ledger of which the covariates are known."""
    kept = [one for one in entries if getattr(one, what) is not None and one.novelty and one.constants is not None]
    constants = np.array([one.constants for one in kept], dtype=float)
    return Rows(
        np.array([one.source for one in kept]), np.array([getattr(one, what) for one in kept], dtype=float),
        {
            "seen": np.array([float(one.seen) for one in kept]), "novelty": np.array([NOVELTY[one.novelty] for one in kept]),
            "constants": np.log(np.clip(constants, LEAST, MOST) / TYPICAL),
        },
    )  # fmt: skip


class Model(NamedTuple):
    """Student's t of four degrees: coefficients of the logarithm of its scale and of its median, and the conformal factor."""

    what: str
    scale: Array
    median: Array
    widening: float = 1.0

    def told(self, rows: Rows) -> tuple[Array, Array]:
        """Median and half the width of the 90 % interval of each row."""
        scale = np.exp(_design(rows, SCALE[self.what]) @ self.scale)
        return _design(rows, MEDIAN[self.what]) @ self.median, HALF * self.widening * scale


def _design(rows: Rows, names: Sequence[str]) -> Array:
    return np.stack([np.ones(len(rows.residual)), *(rows.of[name] for name in names)], axis=1)


def fitted(rows: Rows, what: str) -> Model:
    """The likeliest model, before it is widened."""
    scales, medians, weight = _design(rows, SCALE[what]), _design(rows, MEDIAN[what]), source_weights(rows.source)
    count = scales.shape[1]

    def objective(at: Array) -> tuple[float, Array]:
        logarithm, median = scales @ at[:count], medians @ at[count:]
        narrow = np.exp(-logarithm)
        place = (rows.residual - median) * narrow
        pull = (DEGREES + 1.0) * place / (DEGREES + place**2)
        slopes, shifts = at[1:count] / PRIOR, at[count + 1 :] / SHIFT_PRIOR
        value = float((weight * (logarithm + 0.5 * (DEGREES + 1.0) * np.log1p(place**2 / DEGREES))).sum())
        gradient = np.concatenate([scales.T @ (weight * (1.0 - pull * place)), medians.T @ (-weight * pull * narrow)])
        gradient[1:count] += slopes / PRIOR
        gradient[count + 1 :] += shifts / SHIFT_PRIOR
        return value + 0.5 * float((slopes**2).sum() + (shifts**2).sum()), gradient

    start = np.zeros(count + medians.shape[1])
    start[0] = -1.5
    found = minimize(objective, start, jac=True, method="BFGS").x
    return Model(what, found[:count], found[count:])


def _left_out(rows: Rows, what: str) -> Array:
    """Distance of each residual from its median, in halves of the interval, by the model set without its source."""
    found = np.empty(len(rows.residual))
    for source in np.unique(rows.source):
        without = rows.source == source
        median, half = fitted(rows.some(~without), what).told(rows.some(without).met_new())
        found[without] = np.abs(rows.residual[without] - median) / half
    return found


def _conformal(rows: Rows, distance: Array) -> float:
    """By what factor nine in ten rows of new campaigns lie within, each source alike."""
    new = rows.of["seen"] == 0.0
    if not new.any():
        return 1.0
    return quantile_of_sources(distance[new], rows.source[new], 0.9)


def model_of(rows: Rows, what: str) -> Model:
    """The model as it is shipped: the likeliest, widened as its sources show when each is left out."""
    return fitted(rows, what)._replace(widening=_conformal(rows, _left_out(rows, what)))


class Held(NamedTuple):
    """How intervals held on rows that their model had not seen: means over sources."""

    coverage: float  # share of rows within
    worst: float  # of the source where fewest are
    winkler: float  # mean width of the interval, and twenty times by how much a row lies outside, in logarithms
    factor: float  # by which the interval reaches each way
    sources: Mapping[str, float]  # coverage of each


def held(rows: Rows, median: Array, half: Array) -> Held:
    """How intervals hold."""
    outside = np.maximum(np.abs(rows.residual - median) - half, 0.0)
    score, groups = 2.0 * half + MISS * outside, [(str(name), rows.source == name) for name in np.unique(rows.source)]
    coverage = {name: float((outside[of] == 0.0).mean()) for name, of in groups}

    def mean(values: Array) -> float:
        return float(np.mean([values[of].mean() for _, of in groups]))

    return Held(float(np.mean(list(coverage.values()))), min(coverage.values()), mean(score), math.exp(mean(half)), coverage)


def left_out_intervals(rows: Rows, what: str) -> tuple[Array, Array]:
    """Median and half the width of each row's interval, by the model set, and widened, without its source.

    All are told as of campaigns that nobody has seen, as users' are.
    """
    median, half = np.empty(len(rows.residual)), np.empty(len(rows.residual))
    for source in np.unique(rows.source):
        without = rows.source == source
        median[without], half[without] = model_of(rows.some(~without), what).told(rows.some(without).met_new())
    return median, half


def left_out(rows: Rows, what: str) -> tuple[Held, Held]:
    """Sources judged by the model set without them: their runs of campaigns that nobody had seen, and all of their runs."""
    median, half = left_out_intervals(rows, what)
    new = rows.of["seen"] == 0.0
    return held(rows.some(new), median[new], half[new]), held(rows, median, half)


def prequential(rows: Rows, what: str, older: Sequence[str]) -> Held:
    """The model set on some sources, judged on the others."""
    first = np.isin(rows.source, list(older))
    rest = rows.some(~first)
    return held(rest, *model_of(rows.some(first), what).told(rest.met_new()))


def older_half(entries: Sequence[Entry], rows: Rows) -> list[str]:
    """The half of the sources that were met first, in the order of the ledger."""
    order = [one for one in dict.fromkeys(entry.source for entry in entries) if one in set(rows.source.tolist())]
    return order[: math.ceil(OLDER * len(order))]


class Verdicts(NamedTuple):
    """Runs that ran and runs that ran out of memory, with how many times the estimate their device holds, as a logarithm."""

    source: NDArray[np.str_]
    room: Array
    ran: NDArray[np.bool_]


@functools.cache
def fits_device(campaign: str) -> bool:
    """Whether the compiler of a campaign's software, which its name has, fits a step to the device."""
    return any(is_framework(word) and load_framework(word).fits_device for word in campaign.split("/"))


def verdicts_of(entries: Sequence[Entry]) -> Verdicts:
    """Of the ledger, all of which it is known.

    A source that lists nothing that ran was written because it ran out: it says nothing of how many do. Nor does one whose
    compiler fits a step to the device say by how much estimates of what a plan itself keeps are off.
    """
    ran = {one.source for one in entries if one.ran}
    judged = [one for one in entries if one.ran is not None and one.room is not None]
    kept = [one for one in judged if one.source in ran and not fits_device(one.campaign)]
    return Verdicts(
        np.array([one.source for one in kept]), np.array([one.room for one in kept], dtype=float),
        np.array([one.ran for one in kept], dtype=bool),
    )


def room_of(verdicts: Verdicts) -> tuple[float, float]:
    """Median and logarithm of the scale of Student's t below whose share a plan ran.

    A source counts as the root of its rows: one that lists every configuration that it tried tells of failures, most list only
    what ran, and say little about how near the limit that was.
    """
    weight = source_weights(verdicts.source, 0.5)

    def objective(at: Array) -> float:
        place = (verdicts.room - at[0]) / math.exp(at[1])
        return -float((weight * np.where(verdicts.ran, student.logcdf(place, DEGREES), student.logsf(place, DEGREES))).sum())

    found = minimize(objective, np.array([0.0, -1.5]), method="Nelder-Mead").x
    return float(found[0]), float(found[1])


def tables(entries: Sequence[Entry]) -> dict[str, dict[str, object]]:
    """What the library reads of it: a few numbers, and beside them how the model held on sources left out."""
    found: dict[str, dict[str, object]] = {}
    for what in (TIME, MEMORY):
        rows = rows_of(entries, what)
        model = model_of(rows, what)
        table = dict(zip(("log_scale", *(f"of_{name}" for name in SCALE[what])), map(_rounded, model.scale), strict=True))
        table |= dict(zip(("shift", *(f"shift_of_{name}" for name in MEDIAN[what])), map(_rounded, model.median), strict=True))
        if what == TIME:
            table |= {"least_constants": LEAST, "most_constants": MOST}
        judged = left_out(rows, what)[0]._asdict()
        del judged["sources"]
        found[what] = {**table, "widening": _rounded(model.widening), "left_out": {k: _rounded(v) for k, v in judged.items()}}
    shift, scale = room_of(verdicts_of(entries))
    found["fits"] = {"log_scale": _rounded(scale), "shift": _rounded(shift)}
    return found


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
