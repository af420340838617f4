"""A pipeline as a picture: what each rank does over time, and below it what each holds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from costmodel.description.schedule import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, SYNC
from costmodel.plots.specification import each, filled, named, of, when
from costmodel.plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    TEMPLATE,
    VERMILLION,
    Drawing,
    hatched,
    seconds_unit,
)
from costmodel.simulation.playback import Timeline
from costmodel.text.units import format_seconds

LOOKS = {
    FORWARD: (BLUE, "", "white"), BACKWARD: (ORANGE, "/", "black"), BACKWARD_INPUT: (SKY, "/", "black"),
    BACKWARD_WEIGHT: (GREEN, ".", "black"), SYNC: (PURPLE, "x", "black"),
}  # fmt: skip
"""Colour, pattern and colour of the text of each kind of event."""
CALLED = {
    FORWARD: "forward", BACKWARD: "backward", BACKWARD_INPUT: "backward by input", BACKWARD_WEIGHT: "backward by weight",
    SYNC: "sync: gradients, optimizer, host",
}  # fmt: skip
"""What each is called beside the figure."""
LINES = (
    (BLUE, "solid"), (VERMILLION, "dash"), (GREEN, "dot"), (PURPLE, "dashdot"), (ORANGE, "longdash"),
    (SKY, "longdashdot"), (BLACK, "solid"), (BLUE, "dot"),
)  # fmt: skip
LABELLED, MOST_LINES = 1500, 8
"""Bars up to which each is labelled; ranks whose memory is drawn each by itself."""


class EventBars(NamedTuple):
    """Events of one kind."""

    kind: int
    rank: NDArray[np.int64]
    start: NDArray[np.float64]
    width: NDArray[np.float64]
    label: list[str]
    hover: list[str]
    name: str  # name, colour, pattern: of the kind
    colour: str
    pattern: str
    ink: str  # colour of the text on it

    @property
    def ranks(self) -> list[int]:
        """Which rows the bars are in."""
        return self.rank.tolist()

    @property
    def starts(self) -> list[float]:
        """Where they begin."""
        return self.start.tolist()

    @property
    def widths(self) -> list[float]:
        """How long they are."""
        return self.width.tolist()


class HeldLine(NamedTuple):
    """Micro-batches that a rank holds: from which moments [unit of the figure] how many, and how the line looks."""

    rank: int
    moments: tuple[float, ...]
    counts: tuple[float, ...]
    colour: str
    dash: str
    name: str

    @property
    def since(self) -> tuple[float, ...]:
        """The moments as hovers say them, however the axis of times is drawn."""
        return self.moments


class Boxes(NamedTuple):
    """One path around many boxes: its name, its corners, what their hovers say, how it looks."""

    name: str
    x: tuple[float | None, ...]
    y: tuple[float | None, ...]
    texts: tuple[str | None, ...] = ()
    colour: str = ""
    pattern: str = ""


class TimeMarks(NamedTuple):
    """Marks of an axis of times: where they stand, and what they say."""

    places: tuple[float, ...]
    labels: tuple[str, ...]


class Pipeline(NamedTuple):
    """What the figure shows: bars by kind [in `unit`], and for some ranks when what they hold changes, to what."""

    title: str  # of the figure
    unit: str  # of all times
    ranks: int  # how many there are
    total: float  # the whole step
    bars: list[EventBars]  # by kind
    # for some ranks the moments, and the micro-batches held from each on
    held: list[tuple[int, NDArray[np.float64], NDArray[np.float64]]]
    # rank, start and width of every pass before a change; None where there was none
    before: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]] | None = None

    @property
    def top(self) -> float:
        """Where bars begin, from the middle of their rank: lower where those before a change stand above."""
        return -0.43 if self.before is None else -0.27

    @property
    def high(self) -> float:
        """Of bars, where ranks are one apart."""
        return 0.43 - self.top

    @property
    def ghosts(self) -> list[Boxes]:
        """The passes before a change: a bar each would be slow to draw."""
        if self.before is None:
            return []
        rows = zip(*(part.tolist() for part in self.before), strict=True)
        boxes = [(rank - 0.43, begin, begin + wide) for rank, begin, wide in rows]
        x = (x for _, begin, end in boxes for x in (begin, begin, end, end, None))
        y = (y for top, _, _ in boxes for y in (top + GHOST, top, top, top + GHOST, None))
        return [Boxes("before the change", tuple(x), tuple(y))]

    @property
    def boxes(self) -> list[Boxes]:
        """The passes as a few paths, as a page draws those that it draws anew at once: here each is a bar."""
        return []

    @property
    def lines(self) -> list[HeldLine]:
        """What ranks hold."""
        return [
            HeldLine(rank, tuple(when.tolist()), tuple(count.tolist()), *LINES[place % len(LINES)], f"held by rank {rank}")
            for place, (rank, when, count) in enumerate(self.held)
        ]

    @property
    def span(self) -> tuple[float, float]:
        """Where the axis of times begins and ends: the whole step."""
        return 0.0, self.total

    @property
    def axis(self) -> str:
        """What it says."""
        return f"time [{self.unit}]"

    @property
    def marks(self) -> TimeMarks | None:
        """Its marks, where a page leaves out the middle of a step: here they are Plotly's own."""
        return None

    @property
    def rows(self) -> list[float]:
        """Where the axis of the ranks begins and ends."""
        return [self.ranks - 0.4, -0.6]

    @property
    def every(self) -> int:
        """Ranks from one mark to the next."""
        return max(1, self.ranks // 16)

    @property
    def height(self) -> int:
        """Of the figure."""
        return max(520, min(300 + 36 * self.ranks, 1400))


GHOST = 0.12
"""Height of a pass before a change, where ranks are one apart."""
ABOVE, BELOW = [0.42, 1.0], [0.0, 0.34]
"""Shares of the height for what ranks do, and for what they hold."""


TIMELINE: Drawing = {
    "data": [
        each("ghosts", {
            "type": "scatter", "mode": "lines", "name": of("it.name"), "fill": "toself", "fillcolor": GREY,
            "line": {"width": 0, "color": GREY}, "hoverinfo": "skip", "legendgroup": "passes", "x": of("it.x"), "y": of("it.y"),
        }),
        each("bars", {
            "type": "bar", "x": of("it.widths"), "base": of("it.starts"), "y": of("it.ranks"), "orientation": "h",
            "name": of("it.name"), "legendgroup": "passes", "text": of("it.label"), "textposition": "inside",
            "insidetextanchor": "middle", "textangle": 0, "hovertext": of("it.hover"), "hoverinfo": "text",
            "constraintext": "none", "width": of("high"), "offset": of("top"), "textfont": {"color": of("it.ink"), "size": 11},
            "marker": {"color": of("it.colour"), "line": {"color": "white", "width": 0.5}, "pattern": hatched(of("it.pattern"))},
        }),
        each("boxes", {
            "type": "scatter", "mode": "lines", "name": of("it.name"), "fill": "toself", "fillcolor": of("it.colour"),
            "fillpattern": hatched(of("it.pattern")), "line": {"color": "white", "width": 0.5}, "legendgroup": "passes",
            "x": of("it.x"), "y": of("it.y"), "text": of("it.texts"), "hoveron": "points", "hoverinfo": "text",
        }),
        each("lines", {
            "type": "scatter", "x": of("it.moments"), "y": of("it.counts"), "mode": "lines", "yaxis": "y2",
            "line": {"shape": "hv", "color": of("it.colour"), "dash": of("it.dash"), "width": 2},
            "name": of("it.name"), "legendgroup": "held", "customdata": of("it.since"),
            "hovertemplate": "rank {it.rank} holds %{y:.3g} micro-batches from %{customdata:.4g} {unit}<extra></extra>",
        }),
    ],
    "layout": {
        "template": TEMPLATE, "title": {"text": of("title")}, "barmode": "overlay", "bargap": 0.1, "hovermode": "closest",
        "legend": {"orientation": "v", "traceorder": "grouped", "tracegroupgap": 12}, "height": of("height"),
        "margin": {"t": 60, "l": 70, "r": 20, "b": 50},
        "xaxis": {
            "anchor": "y2", "zeroline": False, "range": of("span"), "title": {"text": of("axis")},
            "tickvals": when("marks", of("marks.places")), "ticktext": when("marks", of("marks.labels")),
        },
        "yaxis": {
            "anchor": "x", "domain": ABOVE, "title": {"text": "rank"}, "range": of("rows"), "dtick": of("every"),
            "showgrid": False, "zeroline": False,
        },
        "yaxis2": {"anchor": "x", "domain": BELOW, "title": {"text": "micro-batches<br>held"}, "rangemode": "tozero"},
    },
}  # fmt: skip
"""The chart of a `Pipeline`."""


def shown(timeline: Timeline, before: Timeline | None = None) -> Pipeline:
    """What the figure of a timeline shows.

    Parameters
    ----------
    timeline : of a step
    before : of the same plan's step before a change
    """
    schedule = timeline.schedule
    size, unit = seconds_unit(timeline.total)
    begin = timeline.end - timeline.work  # a sync begins to work when all have come
    many = int((schedule.kind <= BACKWARD).sum())
    bars = []
    for kind in LOOKS:
        chosen = np.flatnonzero((schedule.kind == kind) & (timeline.work > 0.0))
        if len(chosen):
            hover = [
                f"rank {schedule.rank[e]}: {schedule.event(int(e))}<br>{format_seconds(begin[e])} to "
                f"{format_seconds(timeline.end[e])}, {format_seconds(timeline.work[e])}"
                for e in chosen
            ]
            plain = kind == SYNC or many > LABELLED
            label = [""] * len(chosen) if plain else [str(number) for number in schedule.micro_batch[chosen]]
            bars.append(EventBars(
                kind, schedule.rank[chosen], begin[chosen] / size, timeline.work[chosen] / size, label, hover, CALLED[kind],
                *LOOKS[kind],
            ))  # fmt: skip
    drawn = np.unique(np.linspace(0, schedule.ranks - 1, min(schedule.ranks, MOST_LINES)).round().astype(int))
    held = []
    for rank in drawn:
        when, count = timeline.held_micro_batches(int(rank))
        last = np.append(np.diff(when) > 0.0, True)  # of changes at one moment
        held.append((int(rank), np.concatenate([[0.0], when[last] / size]), np.concatenate([[0.0], count[last]])))
    title = (
        f"{schedule.name}: {schedule.ranks} ranks, {schedule.micro_batches} micro-batches, "
        f"{format_seconds(timeline.total)}, bubble {100 * timeline.bubble_rate:.1f} %"
    )
    was = None
    if before is not None:
        worked = before.work > 0.0
        was = before.schedule.rank[worked], (before.end - before.work)[worked] / size, before.work[worked] / size
    return Pipeline(title, unit, schedule.ranks, timeline.total / size, bars, held, was)


def pipeline_figure(timeline: Timeline, before: Timeline | None = None) -> go.Figure:
    """Gantt chart of a timeline, and below it the micro-batches that ranks hold.

    Parameters
    ----------
    timeline : as `simulate_schedule` or `timeline` give one
    before : of the same plan before a change, drawn as a thin grey row above each rank's
    """
    return go.Figure(filled(TIMELINE, named(shown(timeline, before))))
