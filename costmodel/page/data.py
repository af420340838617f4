"""Everything a page knows: the tables, the words and the formulas, as the text of a script."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Collection
from importlib import resources

from costmodel.compilation.javascript import javascript
from costmodel.compilation.tape import arguments_of
from costmodel.description.plan import FOLLOWING, LEADING, SCHEDULES, UNDIVIDED, Plan
from costmodel.description.question import Question
from costmodel.description.refusals import texts
from costmodel.description.schedule import KINDS
from costmodel.evaluation.engine import TIMES
from costmodel.evaluation.estimation import TIME_PARTS
from costmodel.formulas import discrepancy, hardware, settings, training_step
from costmodel.formulas.legality import violations
from costmodel.formulas.network import communication
from costmodel.formulas.pipeline import layout, orders
from costmodel.formulas.stage import outside_passes, stage_pass
from costmodel.formulas.transformer import loading
from costmodel.page import kernels
from costmodel.page.arguments import arguments, nested
from costmodel.page.question import Domain, PageQuestion, domains
from costmodel.page.schedules import EVENTS, IN_TURN, MOST_EVENTS

PRINTED: tuple[Callable[..., object], ...] = (
    settings.resolved, settings.settings_of_model, settings.plan_numbers, hardware.device_numbers, hardware.level_numbers,
    violations, training_step.step, loading.device_bytes, discrepancy.correlation,
)  # fmt: skip
"""Formulas of the model: from choices to what a step takes, from that to time and memory."""
PLAYED: tuple[Callable[..., object], ...] = (
    stage_pass, outside_passes, layout.rank_shares, layout.chunks, layout.micro_batches, communication.boundary_parts,
    layout.stage_layers, layout.dealt_layers, orders.passes_in_turn, orders.pass_in_turn,
)  # fmt: skip
"""Those of a timeline."""
PRICES = Domain(bounds=(0.0, 1e6), wish="a number from 0 to 1e+06")
"""Of a GPU-hour, in any currency."""


def tables(question: PageQuestion, price: float = 0.0, plans: Collection[Plan] = ()) -> dict[str, object]:
    """What `static/model.js` reads, as JSON can hold it.

    Parameters
    ----------
    question : what was asked
    price : of a GPU-hour
    plans : whose values a field may have, too
    """
    known = domains(question, plans)
    return {
        "asked": question.fields() | {"price": price},
        "domains": {name: dataclasses.asdict(domain) for name, domain in (known | {"price": PRICES}).items()},
        "given": arguments(question, known),
        "texts": texts(question.model), "follows": {"field": FOLLOWING, "by": LEADING, "text": UNDIVIDED},
        "parameters": {formula.__name__: arguments_of(formula) for formula in PRINTED},
        "parts": TIME_PARTS, "times": TIMES, "gpus": "gpus",
        "own_factor": math.log(question.framework.own_factor),
        "own_runs": [
            {"discrepancy": run.discrepancy, "other_settings": nested(run.settings), "other_plan": nested(run.plan)}
            for run in Question(question.model, question.cluster, question.framework).own_runs
        ],
        "peak": question.cluster.device.peak(question.dtype),
    }  # fmt: skip


def embedded(value: object) -> str:
    """JSON that can stand inside a script of a page, whatever its texts hold.

    Parameters
    ----------
    value : of numbers, texts, lists and dictionaries

    Examples
    --------
    >>> embedded({"name": "</script>"})
    '{"name":"\\\\u003c/script>"}'
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _printed(formulas: tuple[Callable[..., object], ...]) -> str:
    return "".join(f"{javascript(formula)}\n" for formula in formulas)


def static(name: str) -> str:
    """The text of a file of the page."""
    return (resources.files("costmodel.page") / "static" / name).read_text(encoding="utf-8")


def style() -> str:
    """The style of the page."""
    return static("shared.css") + static("page.css")


def maker() -> str:
    """JavaScript that every model shares: an expression whose value makes one of its `tables`."""
    names = ", ".join(formula.__name__ for formula in PRINTED)
    return f"(() => {{\n{_printed(PRINTED)}{static('model.js')}\nreturn (data) => makeModel(data, {{{names}}});\n}})()"


def script(question: PageQuestion, price: float = 0.0, plans: Collection[Plan] = ()) -> str:
    """JavaScript that makes the model of a question: an expression whose value has `evaluate`."""
    return f"{maker()}({embedded(tables(question, price, plans))})"


def timeline_script() -> str:
    """JavaScript that plays a plan's timeline: an expression whose value makes one of a model and its orders."""
    names = ", ".join(formula.__name__ for formula in PLAYED)
    parameters = {formula.__name__: arguments_of(formula) for formula in PLAYED}
    turns = {name: SCHEDULES[name] for name in IN_TURN}
    facts = embedded({"parameters": parameters, "kinds": KINDS, "turns": turns, "events": EVENTS, "most": MOST_EVENTS})
    made = f"makeTimeline({facts}, {{{names}}}, {{play, PipelineProgram, PipelineState, BLOCKING, NON_BLOCKING}})"
    source = _printed(PLAYED) + kernels.javascript("pipeline_kernel", "play") + static("timeline.js")
    return f"(() => {{\n{source}\nreturn {made};\n}})()"
