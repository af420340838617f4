"""What follows a slider at once: the plans on show, priced in the browser by the formulas of the page that needs no server."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

from costmodel.app.answer import Answer, searched, tried, unmoved
from costmodel.app.charts import SIDE, Charts, Memories, Sizes, Timelines
from costmodel.app.state import SLIDERS, State
from costmodel.arithmetic.named_tuples import Row, changed
from costmodel.description.cluster import Cluster
from costmodel.description.fields import Spelled, table
from costmodel.description.plan import FOLLOWING, Plan
from costmodel.description.transformer import Transformer
from costmodel.evaluation.dimension_sweeps import ScalingPoint
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.factors import IMBALANCE, quantities, scaled
from costmodel.evaluation.plan_search import SearchResult
from costmodel.evaluation.sensitivity import EFFICIENCY, ranges, to_peak
from costmodel.page.data import embedded, maker, static, tables, timeline_script
from costmodel.page.onefile import looks
from costmodel.page.plans import columns
from costmodel.page.question import PageQuestion, unasked
from costmodel.page.schedules import orders
from costmodel.plots.dimension_sweeps import THROUGHPUT
from costmodel.plots.embedded import breakdown_title
from costmodel.plots.frontier import FrontierChart
from costmodel.plots.sensitivity import quantity_name
from costmodel.plots.specification import named

TWICE = 2.0
"""A factor by which quantities are tried, to see what of a page's tables follows them."""

Path = tuple[str | int, ...]
"""Of a number in nested tables."""


@functools.cache
def shared() -> str:
    """JavaScript that is the same for all questions: the formulas and the charts of the page."""
    names = (
        "view, filled, breakdown, fall, frontier, scaled, tornado, staged, changeOf, firstLines, planLabel, seconds, between, "
        "figures, gib, percentage, wholePercent, title, slim, tabulate, keyed, saveImage, pipeline, bubbleOf"
    )
    return (
        f"window.costmodelPage = (() => {{\n\"use strict\";\nconst view = {embedded(looks())};\n{static('charts.js')}\n"
        f"const modelOf = {maker()};\nconst timelineOf = {timeline_script()};\nreturn {{modelOf, timelineOf, {names}}};\n}})();\n"
    )


def first_of(found: SearchResult) -> Estimate | None:
    """The plan that a question's tables are made for: its best, or the one that comes nearest."""
    return found.best if found.ranked else found.closest_miss


def _asked(found: SearchResult, first: Estimate) -> PageQuestion:
    return PageQuestion(found.model, found.cluster, found.framework, first.plan.on(found.cluster), (*unasked(), FOLLOWING))


def live(question: State) -> Row:
    """What a browser follows the sliders of a question with; empty where no plan is legal.

    Returns
    -------
    dict
        the tables of the page, for each quantity the places of the numbers in them that it multiplies, and the quantities of
        each slider
    """
    found = searched(question)
    first = first_of(found)
    if first is None:
        return {}
    model, cluster = found.model, found.cluster
    asked, spelled = _asked(found, first), _spelled(found, first.plan)

    def told(factors: dict[str, float]) -> Row:
        model, cluster = scaled(asked.model, asked.cluster, factors)
        return tables(asked._replace(model=model, cluster=cluster), plans=spelled)

    plain = told({})
    can_be = {name: TWICE if name == IMBALANCE else 1.0 / TWICE for name in quantities(model, cluster)}  # no load below the mean
    return {
        "tables": plain, "follow": {name: list(_places(plain, told({name: factor}))) for name, factor in can_be.items()},
        "sliders": _moved(model, cluster),
        "titles": {"time": breakdown_title(model.name, cluster)}, "shift": first.time_error.shift, "tokens": first.plan.tokens,
        "margin": first.spread.margin(first.required_probability), "gpus": cluster.gpus,
        "utilisation": first.mfu * first.step_time / first.step.model_flop,
    }  # fmt: skip


def _spelled(found: SearchResult, plan: Plan) -> list[Plan]:
    """A plan with every value that the search tried of fields whose words can be joined: any may lead under moved sliders."""
    columns = {} if found.every is None else found.every.columns
    fields = (name for name, row in table(Plan).items() if isinstance(row.kind, Spelled) and name in columns)
    return [changed(plan, {name: value}) for name in fields for value in dict.fromkeys(columns[name].tolist())]


def _moved(model: Transformer, cluster: Cluster) -> dict[str, list[str]]:
    """Quantities that each slider multiplies."""
    known = quantities(model, cluster)
    levels = [level.name for level in cluster.levels]
    own = {"memory": ["device.memory"], "efficiency": ["device.efficiency"], "imbalance": [IMBALANCE],
           "latency": [f"{name}.latency" for name in levels]}  # fmt: skip
    own |= {slider: [f"{name}.bandwidth"] for slider, name in zip(SLIDERS, levels, strict=False)}
    return {slider: [name for name in names if name in known] for slider, names in own.items()}


def _places(one: object, other: object, path: Path = ()) -> Iterator[Path]:
    """Where numbers of nested tables differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one:
            yield from _places(one[name], other[name], (*path, name))
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        for place, (part, beside) in enumerate(zip(one, other, strict=True)):
            yield from _places(part, beside, (*path, place))
    elif one != other:
        yield path


def on_show(answer: Answer, drawn: Charts) -> Row:
    """What a browser needs to know of an answer to follow sliders from it: its plans, where they differ from the tables' own."""
    first = first_of(answer.before)
    if first is None:
        return {"plans": [], "question": None}
    asked = _asked(answer.before, first).fields()
    shown = [*answer.found.ranked, *([answer.found.closest_miss] if answer.found.closest_miss else [])]
    state = answer.state
    return {
        "plans": [
            {"plan": _different(one.plan, asked), "error": one.time_error.half, "tried": tried(state, one.plan)} for one in shown
        ],
        "ranked": len(answer.found), "row": state.row, "beside": state.beside, "tab": state.tab, "against": state.against,
        "side": SIDE, "question": state.question.query(), "limit": first.memory_limit * dict(state.factors).get("memory", 1.0),
        **_charted(answer, drawn, _asked(answer.before, first)),
    }  # fmt: skip


def _charted(answer: Answer, drawn: Charts, question: PageQuestion) -> Row:
    """What the chart of the open tab is made of, as far as a browser can price it anew."""
    asked = question.fields()
    if isinstance(drawn.shown, FrontierChart) and answer.found.every is not None:
        shown = drawn.shown
        every, rows = answer.found.every, [*shown.best.rows, *shown.fitting.rows, *shown.missing.rows]
        plans = [changed(plan, {"dtype": plan.dtype or asked["dtype"]}) for plan in map(every.plan, rows)]
        return {"frontier": {"columns": columns(plans, asked), "count": len(rows), "legal": len(rows) + shown.left_out,
                             "title": shown.title}}  # fmt: skip
    if isinstance(drawn.shown, Sizes):
        now, before = ([_sizes(points, asked) for points in (made.strong, made.weak)] for made in drawn.shown)
        return {"scaling": {"now": now, "before": before, "heading": THROUGHPUT}}
    if isinstance(drawn.shown, Timelines):
        return {"timeline": [{"plan": _different(plan, asked), "more": more} for plan, more in drawn.shown.plans],
                "orders": orders(question, [plan for plan, _ in drawn.shown.plans])}  # fmt: skip
    if isinstance(drawn.shown, Memories):
        return {"stages": [{name: value for name, value in named(one).items() if name != "parts"} for one in drawn.shown.stages]}
    if answer.state.tab == "sensitivity":
        return {"sensitivity": [_ranges(answer.state.question, one) for one in (answer.chosen, answer.beside) if one]}
    return {}


def _sizes(points: Sequence[ScalingPoint], asked: Row) -> list[Row]:
    """The best plans on some numbers of GPUs; of those on which nothing fits, the number alone."""
    return [
        {"gpus": one.gpus, "batch": one.global_batch, "plan": _different(one.plan, asked) | {"gpus": one.gpus},
         "error": math.log(one.high / one.low) / 2.0} if one.plan and one.low and one.high else {"gpus": one.gpus}
        for one in points
    ]  # fmt: skip


def _ranges(question: State, one: Estimate) -> list[Row]:
    """Over which factors each quantity is varied, of what it is without sliders; an imbalance is, whatever they say."""
    plain = unmoved(question, one.plan)
    return [
        {"quantity": quantity, "name": quantity_name(quantity), "factors": [low, high], "source": source,
         "whatever": quantity == IMBALANCE, "most": to_peak(plain) if quantity == EFFICIENCY else None}
        for quantity, low, high, source in ranges(plain)
    ]  # fmt: skip


def _different(plan: Plan, asked: Row) -> Row:
    """Fields of a plan that are not as they were asked, as JSON holds them."""
    found = {name: getattr(plan, name) for name in Plan.__dataclass_fields__}
    found["dtype"] = found["dtype"] or asked["dtype"]
    return {name: value for name, value in found.items() if value != asked[name]}
