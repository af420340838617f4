"""Figures one below the other in one HTML file that needs no network, or one as an image."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from costmodel.text.errors import CostModelError

WIDTH, HEIGHT, SCALE = 1000, 460, 2.0
"""Of an image, in pixels of the page, where a figure has no size of its own; and pixels of the image for each."""

TOP = 36
"""Pixels above what is drawn where the title stands outside: for words over panels, and the buttons."""
STYLE = """
figure { margin: 0 0 24px; } figure h3 { font: 600 1rem/1.3 system-ui, sans-serif; margin: 0; }
figure .below { font: .85rem/1.3 system-ui, sans-serif; margin: 2px 0 0; }
"""
"""Of `drawing`."""
VIEWPORT = '<meta name="viewport" content="width=device-width, initial-scale=1">'


class NoBrowser(CostModelError):
    """An image was asked for where nothing can draw one."""


def write_page(path: str | Path, title: str, figures: Sequence[go.Figure]) -> None:
    """Write figures to an HTML file.

    Parameters
    ----------
    path : of the file
    title : of the page
    figures : from top to bottom
    """
    parts = [drawing(figure, place) for place, figure in enumerate(figures)]
    head = f'<head><meta charset="utf-8">{VIEWPORT}<title>{html.escape(title)}</title><style>{STYLE}</style></head>'
    Path(path).write_text(f"<!DOCTYPE html>\n<html>{head}<body>\n{''.join(parts)}\n</body></html>\n", encoding="utf-8")


def drawing(figure: go.Figure, place: int) -> str:
    """A figure as a part of a page: its title as a heading, which wraps where a figure's own would be cut, then the rest.

    Parameters
    ----------
    figure : what it shows
    place : on the page, from 0; the first brings Plotly along
    """
    shown = go.Figure(figure)
    lines = [re.sub("<[^>]*>", "", line) for line in re.split(r"<br ?/?>", shown.layout.title.text or "")]
    first, *others = map(html.escape, map(html.unescape, lines))
    heading = f"<h3>{first}</h3>" if first else ""
    small = "".join(f"<p class='below'>{line}</p>" for line in others)
    shown.update_layout(title=None, margin_t=TOP)
    drawn: str = shown.to_html(
        full_html=False, include_plotlyjs=place == 0, div_id=f"figure-{place}", config={"displaylogo": False, "responsive": True}
    )
    return f"<figure>{heading}{small}{drawn}</figure>"


def write_image(path: str | Path, figure: go.Figure) -> None:
    """Write a figure to a PNG file.

    Raises
    ------
    NoBrowser
        where kaleido (the extra ``png``) or the browser that it drives is missing
    """
    try:
        import kaleido
        from kaleido.errors import BrowserFailedError, ChromeNotFoundError
    except ImportError:
        raise NoBrowser("a PNG is drawn by kaleido, which is not installed: pip install 'costmodel[png]'") from None
    try:
        image = kaleido.calc_fig_sync(
            figure.to_dict(),
            opts={"format": "png", "width": WIDTH, "height": figure.layout.height or HEIGHT, "scale": SCALE},
            kopts={"mathjax": False},  # which would be fetched
        )  # fmt: skip
    except (ChromeNotFoundError, BrowserFailedError):
        raise NoBrowser(
            "a PNG is drawn by Chromium or Chrome, and none was found that starts: install one, or name it in BROWSER_PATH; "
            "an HTML file needs none"
        ) from None
    Path(path).write_bytes(image)
