"""Figures of answers side by side: why one step is longer than another, and cards by what they train."""

from __future__ import annotations

import plotly.graph_objects as go

from costmodel.description.labels import part_name
from costmodel.plots.style import BLUE, GREEN, GREY, TEMPLATE, VERMILLION, seconds_unit
from costmodel.training.card_table import CardTable
from costmodel.training.side_by_side import SideBySide


def difference_waterfall(made: SideBySide) -> go.Figure:
    """From the first choice's step to the last one's, part by part, for as many tokens.

    Parameters
    ----------
    made : of `costmodel.compare`
    """
    first, last = made.first, made.choices[-1]
    parts = made.why(last)
    second, unit = seconds_unit(max(first.estimate.step_time, last.against.ratio * first.estimate.step_time))
    names = [f"{first.name}: step", *(part_name(one.part) for one in parts), f"{last.name}: step"]
    values = [first.estimate.step_time / second, *(one.added / second for one in parts), 0.0]
    figure = go.Figure(go.Waterfall(
        orientation="v", measure=["absolute", *["relative"] * len(parts), "total"], x=names, y=values,
        text=[f"{value:+.3g}" if 0 < place <= len(parts) else "" for place, value in enumerate(values)],
        decreasing={"marker": {"color": GREEN}}, increasing={"marker": {"color": VERMILLION}},
        totals={"marker": {"color": BLUE}}, connector={"line": {"color": GREY, "width": 1}},
        hovertemplate="%{x}<br>%{delta:.4g} " + unit + "<extra></extra>",
    ))  # fmt: skip
    figure.update_layout(
        template=TEMPLATE, title=f"Why {last.name} differs from {first.name}", showlegend=False,
        yaxis={"title": f"step time for as many tokens [{unit}]"}, margin={"t": 60, "b": 110},
    )  # fmt: skip
    return figure


def card_bars(made: CardTable) -> go.Figure:
    """Tokens a second of every card on which a plan fits, by what is trained.

    Parameters
    ----------
    made : of `costmodel.cards`
    """
    figure = go.Figure()
    tones = dict(zip(dict.fromkeys(one.trains for one in made.fitting), (BLUE, GREEN, VERMILLION, GREY), strict=False))
    for trains, tone in tones.items():
        rows = [one for one in made.fitting if one.trains == trains]
        figure.add_bar(
            orientation="h", name=trains, marker={"color": tone}, y=[one.device for one in rows],
            x=[one.estimate.tokens_per_second for one in rows if one.estimate is not None],
            hovertemplate="%{y}<br>%{x:,.0f} tokens/s<extra>" + trains + "</extra>",
        )  # fmt: skip
    cards = len({one.device for one in made.fitting})
    figure.update_layout(
        template=TEMPLATE, title=f"Cards that train {made.model.name}", barmode="group", height=160 + 22 * max(cards, 1),
        xaxis={"title": "tokens/s"}, yaxis={"autorange": "reversed"}, margin={"l": 180, "t": 60},
    )  # fmt: skip
    return figure
