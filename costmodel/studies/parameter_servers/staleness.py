"""Staleness in one unit: optimizer updates between the parameters that a gradient was computed on and its own update."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from costmodel.formulas.pipeline import staleness as formulas
from costmodel.text.checks import flag, positive_int, real
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief


@dataclasses.dataclass(frozen=True)
class Staleness:
    """How many optimizer updates a gradient misses, for each stage or worker (or group of them that are alike).

    An update is one change of the shared parameters: by one minibatch in PipeDream and Downpour, by the batch of all
    workers in synchronous training.

    Parameters
    ----------
    distributions : by name, probabilities of 0, 1, 2, ... updates; each adds up to one

    Raises
    ------
    InvalidValue
        where a distribution is empty, negative or doesn't add up to one

    Examples
    --------
    >>> stale = Staleness({"stage 0": (0.0, 0.0, 1.0), "stage 1": (0.0, 1.0), "stage 2": (1.0,)})
    >>> stale.mean, stale.largest, stale.by_name["stage 0"]
    (1.0, 2, 2.0)
    """

    distributions: Mapping[str, tuple[float, ...]] = dataclasses.field(hash=False)

    __repr__ = brief

    def __post_init__(self) -> None:
        if not self.distributions:
            raise InvalidValue("distributions", dict(self.distributions), "at least one distribution")
        for name, chances in self.distributions.items():
            if not chances or min(chances) < 0.0 or abs(math.fsum(chances) - 1.0) > 1e-6:
                raise InvalidValue(f"staleness of {name}", chances, "probabilities that add up to one")

    @property
    def by_name(self) -> dict[str, float]:
        """Mean updates missed by each stage or worker."""
        return {
            name: math.fsum(behind * chance for behind, chance in enumerate(chances))
            for name, chances in self.distributions.items()
        }

    @property
    def mean(self) -> float:
        """Updates missed, mean over stages or workers."""
        return math.fsum(self.by_name.values()) / len(self.distributions)

    @property
    def largest(self) -> int:
        """Most updates that any of them can miss, of distributions without end all but one in a thousand million."""
        return max(max(behind for behind, chance in enumerate(chances) if chance) for chances in self.distributions.values())

    def quantile(self, share: float) -> int:
        """Updates that this share of all gradients misses at most."""
        real("share", share, 0.0, 1.0)
        behind, reached = 0, self._below(0)
        while reached < share - 1e-12 and behind < self.largest:
            behind += 1
            reached += self._below(behind)
        return behind

    def _below(self, behind: int) -> float:
        held = [chances[behind] for chances in self.distributions.values() if behind < len(chances)]
        return math.fsum(held) / len(self.distributions)


def _always(behind: int) -> tuple[float, ...]:
    return (*(0.0,) * behind, 1.0)


def synchronous() -> Staleness:
    """Staleness of bulk-synchronous training: none."""
    return Staleness({"every worker": _always(0)})


def delayed(updates: int = 1) -> Staleness:
    """Staleness of updates that all come so many late: PipeDream-2BW and DeDLOC's delayed updates come one late.

    Parameters
    ----------
    updates : by which every gradient is late
    """
    return Staleness({"every worker": _always(0 if updates == 0 else positive_int("updates", updates, 10**6))})


def pipedream(stages: int, vertical_sync: bool = False) -> Staleness:
    """Staleness of PipeDream's stages: of n, the k-th from 1 misses n - k updates; with vertical sync all miss n - 1.

    Parameters
    ----------
    stages : of the pipeline
    vertical_sync : whether every stage takes the version that the first took

    References
    ----------
    [narayanan2019]_ section 3.3

    Examples
    --------
    >>> pipedream(4).by_name
    {'stage 0': 3.0, 'stage 1': 2.0, 'stage 2': 1.0, 'stage 3': 0.0}
    """
    positive_int("stages", stages, 100_000)
    last = stages - 1
    behind = [last if flag("vertical_sync", vertical_sync) else last - stage for stage in range(stages)]
    return Staleness({f"stage {stage}": _always(count) for stage, count in enumerate(behind)})


def local_sgd(local_steps: int) -> Staleness:
    """Staleness of local SGD: the steps of the others since the last exchange, which a worker's gradient misses.

    Parameters
    ----------
    local_steps : from one exchange to the next

    Assumes one update for each step of all workers together; the j-th step after an exchange misses j - 1.
    """
    positive_int("local_steps", local_steps, 10**6)
    return Staleness({"every worker": (1.0 / local_steps,) * local_steps})


def geometric(workers: int, tail: float) -> tuple[float, ...]:
    """Probabilities of being so many updates behind where the next push is as likely any worker's, the last of all beyond.

    Parameters
    ----------
    workers : that share the parameters, at least 2
    tail : probability of what lies beyond
    """
    most = math.ceil(math.log(tail) / math.log1p(-1.0 / workers))
    chances = [float(formulas.staleness_probability(float(behind), float(workers))) for behind in range(most)]
    return (*chances, 1.0 - math.fsum(chances))


def measured(probabilities: Sequence[float]) -> Staleness:
    """Staleness with the same probabilities of 0, 1, 2, ... missed updates for every worker.

    Parameters
    ----------
    probabilities : as `costmodel.parameter_server` and its simulation give them
    """
    return Staleness({"every worker": tuple(probabilities)})
