"""Figures of a traffic ledger: how many transactions of which size, and how busy each class of links is."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from costmodel.ledger import Ledger
from costmodel.units import GB, format_bytes

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")
HATCHES = ("", "/", "x", ".", "\\", "-", "+", "|")
WIDTH = 1.12
"""Of a bar on the axis of sizes: a factor."""


class SizeBars(NamedTuple):
    """Transactions of one collective in one group.

    Parameters
    ----------
    name : of the collective and the group
    nbytes : sizes, smallest first [bytes]
    counts : on a rank in one step
    places : where the bars stand: beside each other where several are of one size [bytes]
    """

    name: str
    nbytes: tuple[float, ...]
    counts: tuple[float, ...]
    places: tuple[float, ...]


class LoadBars(NamedTuple):
    """Load of every level, innermost first.

    Parameters
    ----------
    levels : names
    busy : share of the step [%]
    nbytes : on a GPU's link in one step [GB]
    mean, peak, bandwidth : rates of the link: over the step, in its fastest transaction, its own [GB/s]
    first : place of the level that saturates first
    """

    levels: tuple[str, ...]
    busy: tuple[float, ...]
    nbytes: tuple[float, ...]
    mean: tuple[float, ...]
    peak: tuple[float, ...]
    bandwidth: tuple[float, ...]
    first: int


def size_bars(made: Ledger, stage: str | None = None) -> tuple[SizeBars, ...]:
    """What `transaction_sizes` shows.

    Parameters
    ----------
    made : a ledger
    stage : of the pipeline; the one that sends most if None
    """
    found: dict[str, list[tuple[float, float, float]]] = {}
    sizes = made.histogram(stage=stage)
    alike = Counter(size.nbytes for size in sizes)
    met: Counter[float] = Counter()
    for size in sizes:
        place = size.nbytes * WIDTH ** (met[size.nbytes] - 0.5 * (alike[size.nbytes] - 1))
        met[size.nbytes] += 1
        found.setdefault(f"{size.collective}, {size.group}", []).append((size.nbytes, size.count, place))
    return tuple(SizeBars(name, *zip(*rows, strict=True)) for name, rows in found.items())


def load_bars(made: Ledger) -> LoadBars:
    """What `link_loads` shows.

    Parameters
    ----------
    made : a ledger
    """
    loads = made.loads()
    return LoadBars(
        tuple(load.level for load in loads), tuple(100.0 * load.busy for load in loads),
        tuple(load.nbytes / GB for load in loads), tuple(load.mean_rate / GB for load in loads),
        tuple(load.peak_rate / GB for load in loads), tuple(load.bandwidth / GB for load in loads),
        max(range(len(loads)), key=lambda i: loads[i].busy),
    )  # fmt: skip


def _title(made: Ledger) -> str:
    question = made.estimate
    return f"{question.model.name} on {question.plan.gpus:,} GPUs of {question.cluster.name}, {question.framework.name}"


def transaction_sizes(made: Ledger, stage: str | None = None) -> go.Figure:
    """Histogram of the sizes of a rank's transactions in one step.

    Parameters
    ----------
    made : a ledger
    stage : of the pipeline; the one that sends most if None
    """
    figure = go.Figure()
    shown = size_bars(made, stage)
    for i, bars in enumerate(shown):
        colour, hatch = OKABE_ITO[i % len(OKABE_ITO)], HATCHES[i % len(HATCHES)]
        figure.add_bar(
            name=bars.name, x=bars.places, y=bars.counts, width=[(WIDTH - 1.0) * place for place in bars.places],
            marker={"color": colour, "line": {"color": "black", "width": 1}, "pattern": {"shape": hatch, "fgcolor": "white"}},
            customdata=[[format_bytes(nbytes), nbytes] for nbytes in bars.nbytes],
            hovertemplate=f"{bars.name}<br>%{{customdata[0]}} (%{{customdata[1]:,.0f}} bytes)<br>%{{y:,}} a step<extra></extra>",
        )  # fmt: skip
    places = [math.log10(place) for bars in shown for place in bars.places] or [0.0]
    counts = [math.log10(count) for bars in shown for count in bars.counts] or [0.0]
    figure.update_layout(
        template="plotly_white", title=f"Transactions of one rank in a step<br><sub>{_title(made)}</sub>", barmode="overlay",
        showlegend=True, legend_title="collective, group",
    )  # fmt: skip
    figure.update_xaxes(
        type="log", title="size of the buffer or message [bytes]", exponentformat="power", dtick=1,
        range=[min(places) - 0.3, max(places) + 0.3], ticks="outside",
    )  # fmt: skip
    figure.update_yaxes(
        type="log", title="transactions of a rank in one step", exponentformat="power", dtick=1,
        range=[min([0.0, *counts]) - 0.5, max(counts) + 0.3],
    )  # fmt: skip
    return figure


def link_loads(made: Ledger) -> go.Figure:
    """Share of the step in which each class of links is busy, and the rates of its links.

    Parameters
    ----------
    made : a ledger
    """
    shown = load_bars(made)
    figure = make_subplots(cols=2, rows=1, subplot_titles=("busy share of the step", "rate of a GPU's link"))
    marks = [OKABE_ITO[4] if i == shown.first else OKABE_ITO[0] for i in range(len(shown.levels))]
    texts = [
        f"{busy:.3g} %" + (" (saturates first)" if i == shown.first and busy > 0.0 else "") for i, busy in enumerate(shown.busy)
    ]
    figure.add_bar(
        name="busy", x=shown.levels, y=shown.busy, text=texts, textposition="outside", showlegend=False, cliponaxis=False,
        marker={"color": marks, "pattern": {"shape": ["/" if i == shown.first else "" for i in range(len(marks))]}},
        customdata=[[nbytes] for nbytes in shown.nbytes],
        hovertemplate="%{x}<br>busy %{y:.3g} % of the step<br>%{customdata[0]:.4g} GB a step<extra></extra>", row=1, col=1,
    )  # fmt: skip
    rates = (("mean over the step", shown.mean), ("peak, fastest transaction", shown.peak), ("bandwidth", shown.bandwidth))
    for i, (name, values) in enumerate(rates):
        figure.add_bar(
            name=name, x=shown.levels, y=values, marker={"color": OKABE_ITO[i], "pattern": {"shape": HATCHES[i]}},
            hovertemplate=f"%{{x}}<br>{name} %{{y:.4g}} GB/s<extra></extra>", row=1, col=2,
        )  # fmt: skip
    figure.update_layout(
        template="plotly_white", title=f"Load of every class of links<br><sub>{_title(made)}</sub>", barmode="group",
        margin={"t": 130}, legend={"orientation": "h", "yanchor": "top", "y": -0.12, "xanchor": "right", "x": 1.0},
    )  # fmt: skip
    figure.update_xaxes(title="level of the cluster")
    figure.update_yaxes(title="busy [%]", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title="rate [GB/s, one direction]", type="log", exponentformat="power", dtick=1, row=1, col=2)
    return figure
