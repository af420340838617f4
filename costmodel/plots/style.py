"""What all figures share: colours for any kind of colour vision, a second cue beside them, a template, units of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from costmodel.text.units import GiB, KiB, MiB, TiB, microsecond, millisecond

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, YELLOW = "#E69F00", "#56B4E9", "#000000", "#F0E442"
GREY, LIGHT = "#999999", "#DDDDDD"
"""For what is neither one series nor another."""
OKABE_ITO = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK, YELLOW)
"""Okabe and Ito's colours, in the order in which series take them."""
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross", "triangle-down")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "5px 2px 1px 2px", "2px 6px")
HATCHES = ("", "/", "x", ".", "\\", "-", "+", "|")
TEMPLATE = "plotly_white"
LEGEND_BELOW = {"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0.0, "xref": "paper", "x": 0.0}
"""At the lower edge of a figure of any height: Plotly keeps room for it below the title of the axis."""
Drawing = dict[str, Any]
"""A figure as Plotly's plain data and layout, which nothing has validated yet."""


def colour(place: int) -> str:
    """Colour of the series at a place, from 0."""
    return OKABE_ITO[place % len(OKABE_ITO)]


def marker(place: int) -> str:
    """Marker of the series at a place, from 0: another in each round of the colours, so that pairs of both repeat late."""
    return MARKERS[(place + place // len(OKABE_ITO)) % len(MARKERS)]


def dash(place: int) -> str:
    """Dash of the series at a place, from 0."""
    return DASHES[place % len(DASHES)]


def hatch(place: int) -> str:
    """Pattern of the bars or areas at a place, from 0."""
    return HATCHES[place % len(HATCHES)]


def hatched(pattern: object, size: int = 6) -> dict[str, object]:
    """White lines or dots over the colour of bars.

    Parameters
    ----------
    pattern : Plotly's name of it; an entry of a specification that stands for it
    size : of what is repeated [pixels]
    """
    return {"shape": pattern, "fgcolor": "white", "size": size, "fillmode": "overlay", "solidity": 0.2}


def gaps(lows: Sequence[float], highs: Sequence[float]) -> list[float]:
    """How far each value lies above another.

    Parameters
    ----------
    lows, highs : values in pairs

    Returns
    -------
    list[float]
        in their unit
    """
    return [high - low for low, high in zip(lows, highs, strict=True)]


def whiskers(values: Sequence[float], lows: Sequence[float], highs: Sequence[float], line: str = BLACK) -> dict[str, object]:
    """Error bars of values between two bounds each.

    Parameters
    ----------
    values, lows, highs : in the unit of the figure
    line : colour
    """
    return {
        "type": "data", "symmetric": False, "array": gaps(values, highs), "arrayminus": gaps(lows, values), "color": line,
        "thickness": 1.2,
    }  # fmt: skip


def level(y: float, text: str, side: str) -> tuple[dict[str, object], dict[str, object]]:
    """A dashed line across a figure, and the words above one end of it.

    Parameters
    ----------
    y : where, in the unit of the axis
    text : what it is
    side : ``"left"`` or ``"right"``, where that is said
    """
    across = {"xref": "x domain", "yref": "y"}
    line = {"type": "line", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": {"color": BLACK, "dash": "dash", "width": 2}, **across}
    at = {"x": 1.0 if side == "right" else 0.0, "xanchor": side, "y": y, "yanchor": "bottom", "showarrow": False}
    return line, {"text": text, **at, **across}


def bytes_unit(largest: float) -> tuple[float, str]:
    """Bytes of the unit in which numbers up to `largest` [bytes] read well, and its name.

    Examples
    --------
    >>> bytes_unit(3e9)
    (1073741824, 'GiB')
    """
    units = ((TiB, "TiB"), (GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB"))
    return next((unit for unit in units if largest >= unit[0]), (1, "bytes"))


def seconds_unit(largest: float) -> tuple[float, str]:
    """Seconds of the unit in which numbers up to `largest` [s] read well, and its name.

    Examples
    --------
    >>> seconds_unit(0.02)
    (0.001, 'ms')
    """
    units = ((1.0, "s"), (millisecond, "ms"))
    return next((unit for unit in units if largest >= unit[0]), (microsecond, "us"))
