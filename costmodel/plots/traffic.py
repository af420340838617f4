"""Figures of a traffic ledger: how many transactions of which size, and how busy each class of links is."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from costmodel.plots.style import BLUE, LEGEND_BELOW, TEMPLATE, VERMILLION, colour, hatch, hatched
from costmodel.simulation.transactions import Ledger, Size
from costmodel.text.units import GB, counted, format_bytes

BINS = 10
"""Of the histogram of sizes, in a decade."""


class SizeBars(NamedTuple):
    """Transactions of one collective in one group."""

    name: str  # of the collective and the group
    smallest: tuple[float, ...]  # smallest, largest: sizes in each bin, lowest bin first [bytes]
    largest: tuple[float, ...]
    counts: tuple[float, ...]  # on a rank in one step
    left: tuple[float, ...]  # left, right: of the bars, which share a bin side by side where several have it [bytes]
    right: tuple[float, ...]


class LoadBars(NamedTuple):
    """Load of every level, innermost first."""

    levels: tuple[str, ...]  # names
    busy: tuple[float, ...]  # share of the step [%]
    nbytes: tuple[float, ...]  # on a GPU's link in one step [GB]
    mean: tuple[float, ...]  # mean, peak, bandwidth: rates of the link: over the step, in its fastest transaction, its own [GB/s]
    peak: tuple[float, ...]
    bandwidth: tuple[float, ...]
    first: int  # place of the level that saturates first


def size_bars(made: Ledger, stage: str | None = None) -> tuple[SizeBars, ...]:
    """What `transaction_sizes` shows.

    Parameters
    ----------
    made : a ledger
    stage : of the pipeline; the one that sends most if None
    """
    found: dict[str, dict[int, list[Size]]] = {}
    for size in made.histogram(stage=stage):
        place = math.floor(BINS * math.log10(size.nbytes))
        found.setdefault(f"{size.collective}, {size.group}", {}).setdefault(place, []).append(size)
    alike = Counter(place for bins in found.values() for place in bins)
    met: Counter[int] = Counter()
    bars = []
    for name, bins in found.items():
        rows = []
        for place, sizes in sorted(bins.items()):
            edges = (10 ** ((place + (met[place] + side) / alike[place]) / BINS) for side in (0, 1))
            rows.append((sizes[0].nbytes, sizes[-1].nbytes, sum(size.count for size in sizes), *edges))
            met[place] += 1
        bars.append(SizeBars(name, *zip(*rows, strict=True)))
    return tuple(bars)


def load_bars(made: Ledger) -> LoadBars:
    """What `link_loads` shows."""
    loads = made.loads()
    return LoadBars(
        tuple(load.level for load in loads), tuple(100.0 * load.busy for load in loads),
        tuple(load.nbytes / GB for load in loads), tuple(load.mean_rate / GB for load in loads),
        tuple(load.peak_rate / GB for load in loads), tuple(load.bandwidth / GB for load in loads),
        max(range(len(loads)), key=lambda i: loads[i].busy),
    )  # fmt: skip


def _title(made: Ledger) -> str:
    question = made.estimate
    parts = [f"{question.model.name} on {counted(question.plan.gpus, 'GPU')} of {question.cluster.name}", question.framework.name]
    if question.plan.pipeline_parallel > 1:
        parts.append(str(question.plan.schedule))
    if question.plan.compression != "none":
        parts.append(f"compression {question.plan.compression}")
    return ", ".join(parts)


def transaction_sizes(made: Ledger, stage: str | None = None) -> go.Figure:
    """Histogram of the sizes of a rank's transactions in one step."""
    figure = go.Figure()
    shown = size_bars(made, stage)
    for i, bars in enumerate(shown):
        texts = [
            format_bytes(least) if least == most else f"{format_bytes(least)} to {format_bytes(most)}"
            for least, most in zip(bars.smallest, bars.largest, strict=True)
        ]
        figure.add_bar(
            name=bars.name, x=bars.left, y=bars.counts, offset=0, customdata=[[text] for text in texts],
            width=[right - left for left, right in zip(bars.left, bars.right, strict=True)],
            marker={"color": colour(i), "line": {"color": "black", "width": 1}, "pattern": hatched(hatch(i))},
            hovertemplate=f"{bars.name}<br>%{{customdata[0]}}<br>%{{y:,}} transactions a step<extra></extra>",
        )  # fmt: skip
    places = [math.log10(place) for bars in shown for place in (*bars.left, *bars.right)] or [0.0]
    counts = [math.log10(count) for bars in shown for count in bars.counts] or [0.0]
    figure.update_layout(
        template=TEMPLATE, barmode="overlay", showlegend=True, legend_title="collective, group",
        title=f"Transactions of a rank of the {stage or made.busiest} stage in a step<br><sub>{_title(made)}</sub>",
    )  # fmt: skip
    figure.update_xaxes(
        type="log", title="buffer or message [bytes]", exponentformat="power", dtick=1,
        range=[min(places) - 0.3, max(places) + 0.3], ticks="outside",
    )  # fmt: skip
    figure.update_yaxes(
        type="log", title="transactions of a rank in one step", exponentformat="power", dtick=1,
        range=[min([0.0, *counts]) - 0.5, max(counts) + 0.3],
    )  # fmt: skip
    return figure


def link_loads(made: Ledger) -> go.Figure:
    """Share of the step in which each class of links is busy, and the rates of its links."""
    shown = load_bars(made)
    figure = make_subplots(cols=2, rows=1, subplot_titles=("busy share of the step", "rate of a GPU's link"))
    marks = [VERMILLION if i == shown.first else BLUE for i in range(len(shown.levels))]
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
            name=name, x=shown.levels, y=values, marker={"color": colour(i), "pattern": {"shape": hatch(i)}},
            hovertemplate=f"%{{x}}<br>{name} %{{y:.4g}} GB/s<extra></extra>", row=1, col=2,
        )  # fmt: skip
    figure.update_layout(
        template=TEMPLATE, title=f"Load of every class of links<br><sub>{_title(made)}</sub>", barmode="group",
        margin={"t": 130}, legend=LEGEND_BELOW,
    )  # fmt: skip
    figure.update_xaxes(title="level of the cluster")
    figure.update_yaxes(title="busy [%]", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title="rate [GB/s, one direction]", type="log", exponentformat="power", dtick=1, row=1, col=2)
    return figure
