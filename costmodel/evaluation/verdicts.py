"""Whether a plan fits, and where it doesn't the cheapest single changes after which it does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from costmodel.evaluation.estimation import Estimate, lack, title, while_loading
from costmodel.evaluation.recomputed_modules import light_modules
from costmodel.evaluation.single_changes import changes_to_fit, estimated, in_words
from costmodel.text.checks import kind
from costmodel.text.results import brief, figure
from costmodel.text.tables import headed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fix:
    """A single change after which a plan fits."""

    change: str  # in words
    estimate: Estimate  # of the changed plan
    cost: float  # seconds that the step takes longer, negative where it gets faster

    __repr__ = brief


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a plan fits, how sure that is, and what would change it.

    Parameters
    ----------
    estimate : of the plan
    fits : whether it is judged to fit
    margin : bytes to spare, negative where it doesn't
    probability : that it fits, given the error of estimates
    stage, phase : where and when most is held
    largest : parts of the fullest rank's bill [bytes], the largest first
    fixes : single changes that make it fit, the one that costs least time first; none where it fits
    """

    estimate: Estimate
    fits: bool
    margin: float
    probability: float
    stage: int
    phase: str
    largest: list[tuple[str, float]] = dataclasses.field(hash=False)
    fixes: list[Fix] = dataclasses.field(hash=False)

    plot = figure

    @property
    def judgement(self) -> str:
        """As that of the estimate."""
        return self.estimate.judgement

    def __repr__(self) -> str:
        return headed(f"Verdict: {title(self.estimate)}", str(self))

    def __str__(self) -> str:
        need, limit = self.estimate.memory.total / 2**30, self.estimate.memory_limit / 2**30
        items = ", ".join(f"{part} {held / 2**30:.1f}" for part, held in self.largest[:3])
        where = f"stage {self.stage} at its {self.phase} needs {need:.1f} of {limit:.1f} GiB ({items})"
        if self.fits:
            return f"fits with probability {self.probability:.0%}: {where}"
        tried = "; ".join(f"{fix.change} ({fix.cost / self.estimate.step_time:+.1%} time)" for fix in self.fixes[:3])
        other = self.estimate.host_memory_margin < 0.0 or while_loading(self.estimate)
        where += f"; it is {lack(self.estimate)}" if other else ""
        said = f"may run out, fits with probability {self.probability:.0%}" if self.judgement == "may run out" else self.judgement
        return f"{said}: {where}. {'Would fit: ' + tried if tried else 'No single change makes it fit.'}"


def verdict(answer: Estimate) -> Verdict:
    """Whether a plan fits; where it doesn't, the cheapest single changes after which it does.

    Parameters
    ----------
    answer : of `estimate`

    Returns
    -------
    Verdict

    Examples
    --------
    >>> from costmodel import estimate, load_cluster, load_model, Plan
    >>> answer = estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8),
    ...                   Plan(global_batch=64, seq_len=8192, data_parallel=8, micro_batch=4))
    >>> found = verdict(answer)
    >>> found.fits, found.phase, found.fixes[0].estimate.fits
    (False, 'loss', True)
    """
    kind("answer", answer, Estimate, "estimate(...)")
    fullest = answer.memory.fullest
    fixes = [] if answer.fits else sorted(_fixes(answer), key=lambda fix: fix.cost)
    return Verdict(
        estimate=answer, fits=answer.fits, margin=answer.memory_margin, probability=answer.fit_probability,
        stage=fullest.stage, phase=fullest.phase, largest=fullest.largest, fixes=fixes,
    )  # fmt: skip


def _fixes(answer: Estimate) -> Iterator[Fix]:
    for fields in changes_to_fit(answer.plan, answer.framework, light_modules(answer.model, answer.framework)):
        if (found := estimated(answer, fields)) is not None and found.fits:
            yield Fix(change=in_words(fields), estimate=found, cost=found.step_time - answer.step_time)
