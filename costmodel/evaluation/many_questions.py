"""Plans of many models, clusters and frameworks at once: each estimated as by `costmodel.estimate`, in a fraction of the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from costmodel.arithmetic.named_tuples import stacked
from costmodel.description.judgement import JUDGED
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.description.run import Run
from costmodel.evaluation.engine import memory_bill, stretched
from costmodel.evaluation.error_model import slopes_of_plans
from costmodel.evaluation.estimation import Estimate, StepParts, check_length
from costmodel.formulas import training_step
from costmodel.formulas.quantities import DeviceNumbers, Inputs, Memory, Number, Software, Step
from costmodel.text.errors import CostModelError

TOGETHER = 2048
"""Plans that are evaluated at a time: their columns stay in a cache."""


_Known: TypeAlias = dict[tuple[object, ...], "Inputs | CostModelError"]
"""What plans come to, by model, framework, GPUs and the plan as resolved."""


class _Asked(NamedTuple):
    place: int
    question: Question
    plan: Plan
    inputs: Inputs


def estimates_of(
    runs: Sequence[Run], with_slopes: bool = True, fit_probability: float = JUDGED
) -> list[Estimate | CostModelError]:
    """What is estimated of each run's plan, its slopes known; or why it isn't.

    Parameters
    ----------
    runs : measured or not
    with_slopes : work out those of the constants too, which intervals of time need
    fit_probability : from which a plan is judged to fit
    """
    found: list[Estimate | CostModelError] = []
    asked: list[_Asked] = []
    questions: dict[tuple[int, int, int], Question] = {}
    known: _Known = {}
    resolved: dict[tuple[object, ...], Plan] = {}
    for place, run in enumerate(runs):
        same = id(run.model), id(run.cluster), id(run.framework)  # of which the runs keep hold
        try:
            question = questions.setdefault(same, Question(run.model, run.cluster, run.framework))
            asked.append(_asked(place, question, run, known, resolved))
            found.append(CostModelError("not yet"))
        except CostModelError as error:
            found.append(error)
    for members in _grouped(asked, TOGETHER).values():
        for one, step in zip(members, _steps([member.inputs for member in members]), strict=True):
            found[one.place] = _estimate(one, step, fit_probability)
    if with_slopes:
        _fill_slopes([one for one in found if isinstance(one, Estimate)])
    return found


def _asked(place: int, question: Question, run: Run, known: _Known, resolved: dict[tuple[object, ...], Plan]) -> _Asked:
    """A run's plan and its numbers; of plans alike on other hardware with as many GPUs, those of the plan are made once."""
    check_length(run.model, run.plan.seq_len)
    on = run.cluster.device
    same = id(run.plan), id(run.framework), run.cluster.gpus, on.usual_dtype, on.transposes  # what `Plan.resolve` reads
    if same not in resolved:
        resolved[same] = question.resolved(run.plan)
    plan = resolved[same]
    alike = id(run.model), id(run.framework), run.cluster.gpus, plan
    if alike not in known:
        known[alike] = _inputs_or_why(question, plan)
    found = known[alike]
    if isinstance(found, CostModelError):
        raise found.with_traceback(None)
    device = question.device(str(plan.dtype))
    return _Asked(place, question, plan, found._replace(network=question.network, device=device))


def _inputs_or_why(question: Question, plan: Plan) -> Inputs | CostModelError:
    try:
        plan.check(question.model, question.cluster, question.framework)
        return question.inputs(plan)
    except CostModelError as error:
        return error


def _grouped(asked: Sequence[_Asked], most: int) -> dict[tuple[bool, int], list[_Asked]]:
    """Those that one formula serves, so many at a time."""
    groups: dict[tuple[bool, int], list[_Asked]] = {}
    for number, one in enumerate(asked):
        groups.setdefault((bool(one.inputs.settings.compression.kind), number // most), []).append(one)
    return groups


def _steps(inputs: Sequence[Inputs]) -> list[Step]:
    """Every part of each step, by one evaluation over columns."""
    with np.errstate(divide="ignore", invalid="ignore"):  # the arm of `where` that is not taken
        step = training_step.step(*stacked(inputs, axes=1))
    rows = len(inputs)
    times = np.array([np.broadcast_to(np.asarray(part, dtype=float), rows) for part in step[:-1]]).T
    bills = np.array([np.broadcast_to(np.asarray(part, dtype=float), rows) for part in step.memory]).T
    return [Step._make([*row, Memory._make(bill)]) for row, bill in zip(times.tolist(), bills.tolist(), strict=True)]


def _estimate(one: _Asked, step: Step, fit_probability: float) -> Estimate:
    by = one.question.discrepancy(one.inputs.settings, one.inputs.plan)
    made = Estimate(
        question=one.question, plan=one.plan, step=StepParts.of(stretched(step, float(by)), one.question, one.plan),
        required_probability=fit_probability,
    )
    made.__dict__["inputs"] = one.inputs  # where `cached_property` looks
    return made


def _fill_slopes(estimates: Sequence[Estimate]) -> None:
    """The slopes of each, those together that have a device's and a framework's constants in common."""
    groups: dict[tuple[object, ...], list[Estimate]] = {}
    for one in estimates:
        inputs, framework = one.inputs, one.framework
        mark = (inputs.device, inputs.software, framework.owner, framework.time_error, one.cluster.device.name, one.plan.dtype,
                bool(inputs.settings.compression.kind))  # fmt: skip
        groups.setdefault(mark, []).append(one)
    for members in groups.values():
        for start in range(0, len(members), TOGETHER // 8):
            _fill_alike(members[start : start + TOGETHER // 8])


def _fill_alike(members: Sequence[Estimate]) -> None:
    columns = stacked([one.inputs for one in members], axes=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        bill = memory_bill(columns)

    def total(times: int, device: DeviceNumbers, software: Software) -> Number:
        again: Inputs = _repeated(columns, times)._replace(device=device, software=software)
        found = training_step.step(*again, _repeated(bill, times)).total
        return np.broadcast_to(np.asarray(found, dtype=float), times * len(members))  # type: ignore[return-value]

    first = members[0]
    slopes = slopes_of_plans(total, len(members), first.cluster.device, first.framework, str(first.plan.dtype))
    for one, found in zip(members, slopes, strict=True):
        one.__dict__["slopes"] = found


def _repeated(record, times):  # type: ignore[no-untyped-def]
    """Columns of a tuple, and of those in it, each entry so many times in a row."""
    return type(record)(*(
        _repeated(part, times) if isinstance(part, tuple) else np.repeat(part, times) if isinstance(part, np.ndarray) else part
        for part in record
    ))  # fmt: skip
