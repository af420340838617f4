"""Figures one below the other in one HTML file that needs no network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go


def write_page(path: str | Path, title: str, figures: Sequence[go.Figure]) -> None:
    """Write figures to an HTML file.

    Parameters
    ----------
    path : of the file
    title : of the page
    figures : from top to bottom
    """
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=place == 0, config={"displaylogo": False})
        for place, figure in enumerate(figures)
    ]
    head = f'<head><meta charset="utf-8"><title>{html.escape(title)}</title></head>'
    Path(path).write_text(f"<!DOCTYPE html>\n<html>{head}<body>\n{''.join(parts)}\n</body></html>\n", encoding="utf-8")
