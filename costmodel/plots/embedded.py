"""What a page that draws its own figures needs: Plotly's script, and the colours and patterns of parts."""

from __future__ import annotations

from plotly.offline import get_plotlyjs

from costmodel.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, colour, hatch

TIME_LOOKS = {
    "forward": (BLUE, ""), "backward": (ORANGE, ""), "recompute": (BLUE, "/"), "tensor_exchange": (SKY, ""),
    "context_exchange": (SKY, "/"), "expert_exchange": (SKY, "x"), "pipeline_exchange": (SKY, "\\"),
    "gradient_exchange": (SKY, "."), "parameter_exchange": (SKY, "+"), "bubble": (PURPLE, ""), "optimizer": (GREEN, ""),
    "host": (GREY, ""),
}  # fmt: skip
"""Colour and pattern of each part of a step; communication has one colour."""


def memory_looks(parts: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Colour and pattern of each part of a GPU's memory.

    Parameters
    ----------
    parts : in their order
    """
    return {part: (colour(place), hatch(place)) for place, part in enumerate(parts)}


def plotly_script() -> str:
    """Plotly's own JavaScript, as the installed package has it."""
    return str(get_plotlyjs())


__all__ = ["TIME_LOOKS", "memory_looks", "plotly_script"]
