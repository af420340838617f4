"""Runs that others of their source contradict: what those waited for was not in their plan."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

CONTRADICTED = 1.6
"""Time of a micro-batch over what other runs of the source take for it at most, from which on a run waited for something else.

BigScience's pages have the same plan on the same nodes at 1.4 and 1.7 times the time of another day, for the allocation it got
(bigscience-workshop/bigscience@1b92f33 experiments/gpt2.md). One in four of nanotron's runs polls for its messages, below.
"""
ONCE_A_STEP = 2.0
"""Micro-batches that the work of a whole step, exchange of gradients above all, is allowed to take."""


def contradicted(
    stages: Sequence[Hashable], micro_batches: Sequence[float], counts: Sequence[float], bubbles: Sequence[float],
    seconds: Sequence[float], polls: Sequence[float],
) -> list[bool]:  # fmt: skip
    """Which runs took far longer for a micro-batch than others of the same stages allow.

    A micro-batch that is larger takes longer, and no longer than in proportion. A run that polls for the messages of its pipeline
    takes some time more for every micro-batch, whatever its size: a plan that is there twice in nanotron's benchmark takes 19.0
    and 88.9 s, another 0.05 s a micro-batch with ZeRO-1 and 1.21 without; few on few nodes, four in five on 512 GPUs. It takes
    two runs to contradict one, where there are two others: one that is far too fast contradicts nothing.

    Parameters
    ----------
    stages : what a rank does with a micro-batch and on which machines: runs that are alike in it are compared
    micro_batches : sizes [sequences]
    counts : micro-batches of a step
    bubbles : micro-batches in which a pipeline fills and drains
    seconds : measured step times [s]
    polls : what polling takes for a micro-batch at least [s]; 0 where the source's runs don't poll

    Examples
    --------
    >>> contradicted(["a"] * 3, [1.0, 1.0, 2.0], [128.0] * 3, [0.0] * 3, [88.9, 19.0, 37.0], [0.0] * 3)
    [True, False, False]
    >>> contradicted(["a"] * 3, [1.0, 1.0, 2.0], [128.0] * 3, [0.0] * 3, [88.9, 19.0, 190.0], [0.0] * 3)
    [False, False, False]
    """
    alike: dict[Hashable, list[int]] = {}
    for run, stage in enumerate(stages):
        alike.setdefault(stage, []).append(run)

    def bound(run: int) -> float:
        """What a micro-batch of a run takes at most, by two of its twins, or by the only one [s]."""
        told = sorted(
            max(1.0, micro_batches[run] / micro_batches[twin]) * seconds[twin] / (counts[twin] + bubbles[twin])
            for twin in alike[stages[run]] if twin != run
        )  # fmt: skip
        return [float("inf"), *told][min(len(told), 2)]

    def waits(run: int) -> bool:
        """Whether a run took too long for its bound."""
        most = bound(run) * (counts[run] + bubbles[run] + ONCE_A_STEP)
        return seconds[run] > CONTRADICTED * most or bool(polls[run] and seconds[run] > most + polls[run] * counts[run])

    return [waits(run) for run in range(len(stages))]
