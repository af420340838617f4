"""How far runs lay from estimates when both first met: Student's t, with the scales that the ledger of first contacts shows."""

from __future__ import annotations

import dataclasses
import math
import statistics

from costmodel.catalogue.files import table_of

NINETY = 1.6448536269514722
"""Standard deviations on each side that hold 90 % of a normal distribution."""
TYPICAL = 0.06
"""Standard deviation that a plan's constants left it usually where the ledger was met: that of which its scales are told."""


def student_quantile(share: float) -> float:
    """Below what a share of Student's t of four degrees of freedom lies, in closed form (Shaw 2006, J. Comput. Finance 9(4)).

    Parameters
    ----------
    share : between 0 and 1

    Examples
    --------
    >>> round(student_quantile(0.95), 4)
    2.1318
    """
    root = math.sqrt(4.0 * share * (1.0 - share))
    size = 2.0 * math.sqrt(max(math.cos(math.acos(root) / 3.0) / root - 1.0, 0.0))
    return math.copysign(size, share - 0.5)


def student_share(value: float) -> float:
    """Share of Student's t of four degrees of freedom that lies below a value: the inverse of `student_quantile`.

    Examples
    --------
    >>> round(student_share(2.1318), 4)
    0.95
    """
    squared = 4.0 + value * value
    return 0.5 + 0.5 * value * (squared + 2.0) / (squared * math.sqrt(squared))


HALF = student_quantile(0.95)
"""Scales on each side that hold 90 % of Student's t of four degrees."""


@dataclasses.dataclass(frozen=True)
class Error:
    """Distribution of log(measured / predicted)."""

    scale: float  # of Student's t of four degrees; of a normal the standard deviation
    # its median. The estimate itself stays where the constants put it, so that its parts add up and plans keep their order: only
    # the interval moves
    shift: float = 0.0
    tails: bool = True  # heavy, as Student's t has them; else normal

    @property
    def half(self) -> float:
        """Half of the 90 % interval's width, in logarithms."""
        return (HALF if self.tails else NINETY) * self.scale

    @property
    def deviation(self) -> float:
        """Standard deviation of the normal whose 90 % interval is as wide."""
        return self.half / NINETY

    def widened(self, deviation: float) -> Error:
        """With an independent error of its own beside."""
        wider = math.hypot(self.deviation, deviation) / self.deviation if self.deviation else 1.0
        return dataclasses.replace(self, scale=self.scale * wider)

    def interval(self, value: float) -> tuple[float, float]:
        """The 90 % interval of an estimate.

        Examples
        --------
        >>> [round(bound, 3) for bound in Error(0.2).interval(1.0)]
        [0.653, 1.532]
        """
        return value * math.exp(self.shift - self.half), value * math.exp(self.shift + self.half)

    def probability_below(self, value: float, limit: float) -> float:
        """Probability that what is estimated stays below a limit."""
        place = (math.log(limit / value) - self.shift) / max(self.scale, 1e-9)
        return student_share(place) if self.tails else float(statistics.NormalDist().cdf(place))

    def margin(self, probability: float) -> float:
        """Share of a limit up to which an estimate may go to stay below it with a probability.

        Parameters
        ----------
        probability : between 0 and 1
        """
        place = student_quantile(probability) if self.tails else float(statistics.NormalDist().inv_cdf(probability))
        return math.exp(-self.shift - place * self.scale)


NOVELTY = {"cluster": 0.0, "device": 0.5, "framework": 1.0}
"""How much of a question is new to calibration: no more than the cluster, its device with this framework, or the framework."""


def usual_constants() -> float:
    """Standard deviation that the constants as they are shipped leave a usual plan, in logarithms.

    The ledger says how far off a plan lies whose constants are as well known as is usual. How well that is changes with each fit,
    as it holds more or fewer constants apart: so a plan's are told by the usual ones of their own fit, as the ledger's are.
    """
    return float(table_of("first_contact.toml")["time"]["usual_constants"])


def as_usual(constants: float) -> float:
    """The standard deviation that constants leave a plan, as it were if the usual ones of their fit left it `TYPICAL`."""
    return constants * TYPICAL / usual_constants()


def time_error(novelty: str, constants: float) -> Error:
    """Error of a step time on a cluster of which nothing was measured.

    Parameters
    ----------
    novelty : of the question, as `costmodel.evaluation.error_model.novelty` says it; what was never measured takes longer
    constants : standard deviation that the errors of its constants leave this very plan, in logarithms
    """
    told, new = table_of("first_contact.toml")["time"], NOVELTY[novelty]
    usual = min(max(as_usual(constants), told["least_constants"]), told["most_constants"])
    scale = told["widening"] * math.exp(told["log_scale"]) * (usual / TYPICAL) ** told["of_constants"]
    scale = max(scale, NINETY / HALF * constants)  # never surer than the constants alone
    return Error(scale, told["shift"] + told["shift_of_novelty"] * new)


def bends() -> tuple[float, float]:
    """Standard deviations that constants leave a plan below and above which the error of its time no longer follows them."""
    told, typical = table_of("first_contact.toml")["time"], usual_constants() / TYPICAL
    return typical * told["least_constants"], typical * told["most_constants"]


def memory_error() -> Error:
    """Error of a peak memory."""
    told = table_of("first_contact.toml")["memory"]
    return Error(told["widening"] * math.exp(told["log_scale"]), told["shift"])


def room_error() -> Error:
    """Error of the memory that a plan runs out at, over the estimated.

    It is told from runs that ran and runs that ran out of memory, and narrower than that of a peak: those who made them chose
    plans that they hoped to fit, and what an allocator keeps idle it gives back before memory runs out.
    """
    told = table_of("first_contact.toml")["fits"]
    return Error(math.exp(told["log_scale"]), told["shift"])
