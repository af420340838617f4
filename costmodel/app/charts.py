"""The chart of a tab: the figures of `costmodel.plots`, with the unchanged answer behind them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import plotly.io

from costmodel.app.answer import Answer, described, searched, under_sliders, unmoved
from costmodel.app.state import State
from costmodel.arithmetic.named_tuples import Row
from costmodel.description.plan import Plan
from costmodel.evaluation.dimension_sweeps import Scaling, scaling_of
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.plan_search import SearchResult
from costmodel.evaluation.sensitivity import sensitivities
from costmodel.plots.dimension_sweeps import scaling_drawing
from costmodel.plots.frontier import FRONTIER, FrontierChart, changed_frontier
from costmodel.plots.pipeline import TIMELINE
from costmodel.plots.pipeline import shown as played_out
from costmodel.plots.sensitivity import tornado_drawing
from costmodel.plots.specification import filled, named
from costmodel.plots.stages import STAGES, Stages, stages
from costmodel.plots.step import breakdown_drawing, waterfall_drawing
from costmodel.plots.style import TEMPLATE, Drawing
from costmodel.simulation.playback import timeline

SIDE = 3
"""Plans whose steps are drawn side by side: as many as have room for their names."""
MOST_POINTS = 60
"""Plans off the frontier that are drawn: a browser prices as many anew while a slider moves."""
ROUNDS, MOST_PASSES = 3, 256
"""Micro-batches that a timeline shows for each pipeline stage, where a step has more; fewer, but at least one, where these would
be more passes than a browser draws anew while a slider moves."""
MOST_TWO_LINES = 5
"""Rows of a chart for whose names two lines have room; of more, the second line is left to their hovers."""
LETTER, BOLD = 7.6, 1.15
"""Width of a letter at most, on average of a line of the page's typeface in its size [pixels]; how much wider a bold one is."""


class Sizes(NamedTuple):
    """The best plans on numbers of GPUs, and those without sliders."""

    now: Scaling
    before: Scaling


class Memories(NamedTuple):
    """Memory by stage of the chosen plan, and of the one beside it."""

    stages: tuple[Stages, ...]


class Timelines(NamedTuple):
    """Plans of no more micro-batches than are drawn, of the chosen one and the one beside it, and what is said of that."""

    plans: tuple[tuple[Plan, str], ...]


class Charts(NamedTuple):
    """One chart or two, each with a heading; of some what it shows, before it was drawn."""

    headings: tuple[str, ...]
    figures: tuple[dict[str, object], ...]
    shown: FrontierChart | Sizes | Memories | Timelines | None = None


def charts(answer: Answer) -> Charts:
    """The charts of the tab that a state has open; none where no plan fits."""
    if answer.chosen is None:
        return Charts((), ())
    shown: FrontierChart | Sizes | Memories | Timelines | None = None
    if answer.state.tab == "frontier":
        shown = changed_frontier(answer.found, answer.before if answer.moved else None, MOST_POINTS)
        figures: list[Drawing] = [filled(FRONTIER, named(shown))]
    elif answer.state.tab == "scaling":
        shown = _scaling(answer)
        figures = [scaling_drawing(shown.now, shown.before if answer.moved else None)]
    elif answer.state.tab == "memory":
        shown = _memories(answer)
        figures = [filled(STAGES, named(one)) for one in shown.stages]
    elif answer.state.tab == "timeline":
        both = [(answer.chosen, answer.unmoved), *([(answer.beside, None)] if answer.beside else [])]
        shown = Timelines(tuple(_shortened(one.plan) for one, _ in both))
        figures = [_played(*pair, *short) for pair, short in zip(both, shown.plans, strict=True)]
    else:
        figures = {"time": _time, "sensitivity": _sensitivity}[answer.state.tab](answer)
    return Charts(tuple(map(_headed, figures)), tuple(map(_fitted, figures)), shown)


def _headed(drawn: Row) -> str:
    """Take a figure's title off: the page shows it as text, which wraps."""
    title = str(drawn["layout"].pop("title", {}).get("text") or "")
    return title.replace("<br><sub>", ". ").replace("</sub>", "").replace("<br>", " ")


@functools.cache
def _template() -> Row:
    """Plotly's template as its JavaScript takes it: without names."""
    found: Row = plotly.io.templates[TEMPLATE].to_plotly_json()
    return found


def _fitted(drawn: Row) -> Row:
    """Give a figure the page's typeface and as much room as there is."""
    layout = drawn["layout"]
    layout.pop("height", None)
    layout.update(
        template=_template(), showlegend=False,  # the page shows it as text, which wraps
        margin={**layout.get("margin", {}), "t": 12, "b": 48, "r": 14}, autosize=True, paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)", font={"family": 'system-ui, "Segoe UI", Roboto, sans-serif', "size": 13},
    )  # fmt: skip
    for name, axis in layout.items():
        if name.startswith(("xaxis", "yaxis")):
            axis["ticklabeloverflow"] = "allow"  # there is room, and to look for it takes Plotly long
            if "title" in axis:
                axis["title"] = {**axis["title"], "font": {"size": 12}}
    if len(layout.get("yaxis", {}).get("ticktext", ())) > MOST_TWO_LINES:
        layout["yaxis"]["ticktext"] = [name.partition("<br>")[0] for name in layout["yaxis"]["ticktext"]]
    if names := layout.get("yaxis", {}).get("ticktext"):  # known names need not be drawn twice to learn their width
        widest = max(_width(line) for name in names for line in name.split("<br>"))
        layout["margin"]["l"], layout["yaxis"]["automargin"] = widest + 10, False
    return drawn


def _width(line: str) -> float:
    """Room for a line of text [pixels]."""
    plain = line.replace("<b>", "").replace("</b>", "")
    return LETTER * len(plain) * (1.0 if plain == line else BOLD)


def _time(answer: Answer) -> list[Drawing]:
    chosen = answer.chosen
    assert chosen is not None
    if answer.beside is not None:
        return [breakdown_drawing([chosen, answer.beside]), waterfall_drawing(chosen, answer.beside)]
    first = [chosen, *(one for one in answer.found if one.plan != chosen.plan)][:SIDE]
    if not answer.moved:
        return [breakdown_drawing(first)]
    return [breakdown_drawing(first, [unmoved(answer.state.question, one.plan) for one in first])]


def _memories(answer: Answer) -> Memories:
    assert answer.chosen is not None
    first = stages(answer.chosen, answer.unmoved)
    return Memories((first,) if answer.beside is None else (first, stages(answer.beside)))


@functools.lru_cache(maxsize=16)
def _scaled(question: State) -> Scaling:
    """Scaling without sliders, kept beside the searches that it is made of."""

    def find(pairs: Sequence[tuple[int, int]]) -> list[SearchResult]:
        return [searched(dataclasses.replace(question, gpus=gpus, batch=batch)) for gpus, batch in pairs]

    return scaling_of(find, described(question)[1], question.batch)


def _scaling(answer: Answer) -> Sizes:
    """Under the sliders, and without them."""
    asked = answer.state.question
    if not answer.moved:
        return Sizes(_scaled(asked), _scaled(asked))

    def find(pairs: Sequence[tuple[int, int]]) -> list[SearchResult]:
        here = (asked.gpus, asked.batch)
        return [
            answer.found if (gpus, batch) == here
            else under_sliders(dataclasses.replace(answer.state, gpus=gpus, batch=batch), 1, keep_evaluated=False)
            for gpus, batch in pairs
        ]  # fmt: skip

    return Sizes(scaling_of(find, answer.before.cluster, asked.batch), _scaled(asked))


def _sensitivity(answer: Answer) -> list[Drawing]:
    chosen, beside, still = answer.chosen, answer.beside, answer.unmoved
    assert chosen is not None
    before = (still, sensitivities(still)) if still is not None else None
    first = tornado_drawing(chosen, sensitivities(chosen), before)
    return [first] if beside is None else [first, tornado_drawing(beside, sensitivities(beside))]


def _shortened(plan: Plan) -> tuple[Plan, str]:
    """A plan of no more micro-batches than are drawn, and what is said of that."""
    stages = plan.pipeline_parallel
    most = stages * max(1, min(ROUNDS, MOST_PASSES // (2 * stages**2 * plan.virtual_stages)))
    if plan.micro_batches <= most:
        return plan, ""
    short = dataclasses.replace(plan, global_batch=most * plan.copies * plan.micro_batch)
    return short, f"; of {plan.micro_batches:,} micro-batches, over which the bubble weighs less"


def _played(one: Estimate, before: Estimate | None, short: Plan, more: str) -> Drawing:
    """The first micro-batches of a plan's step, with those before a change behind them."""
    now, *was = (timeline(each.model, each.cluster, short, each.framework) for each in (one, before) if each is not None)
    what = played_out(now, *was)
    plain = [bars._replace(label=[""] * len(bars.label)) for bars in what.bars]  # numbers are in the hovers
    drawn: Drawing = filled(TIMELINE, named(what._replace(bars=plain, title=what.title + more)))
    return drawn
