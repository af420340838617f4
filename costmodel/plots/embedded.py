"""What a page that draws its own figures needs: Plotly's script, and the colours and patterns of parts."""

from __future__ import annotations

from plotly.offline import get_plotlyjs

from costmodel.description.schedule import KINDS
from costmodel.plots import pipeline
from costmodel.plots.dimension_sweeps import SCALING, SCALING_LOOKS, STRONG, WEAK
from costmodel.plots.frontier import FARTHEST, FRONTIER, frontier_title
from costmodel.plots.sensitivity import ENDS, TORNADO
from costmodel.plots.stages import STAGES
from costmodel.plots.step import BREAKDOWN, FALL, NOTHING, SMALL, breakdown_title
from costmodel.plots.step import LOOKS as TIME_LOOKS
from costmodel.plots.style import colour, hatch

CHARTS = {
    "time": BREAKDOWN, "difference": FALL, "stages": STAGES, "frontier": FRONTIER, "scaling": SCALING, "sensitivity": TORNADO,
    "timeline": pipeline.TIMELINE,
}  # fmt: skip
"""Charts as data, by name."""
SERIES = {
    "ends": ENDS, "scaling": [(name, *SCALING_LOOKS[name.partition(":")[0]]) for name in (STRONG, WEAK)], "held": pipeline.LINES,
}  # fmt: skip
"""What series of them are called, and how they look."""
MOST_DRAGGED = 200
"""Plans off the frontier that a page draws: anew while a slider moves."""
RULES = {"small": SMALL, "nothing": NOTHING, "farthest": FARTHEST, "most": MOST_DRAGGED}
"""What is left out of them."""


def memory_looks(parts: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Colour and pattern of each part of a GPU's memory.

    Parameters
    ----------
    parts : in their order
    """
    return {part: (colour(place), hatch(place)) for place, part in enumerate(parts)}


def pass_looks() -> dict[str, tuple[str, str, str]]:
    """What each kind of pass in a timeline is called, its colour and its pattern."""
    return {KINDS[kind]: (pipeline.CALLED[kind], fill, pattern) for kind, (fill, pattern, _) in pipeline.LOOKS.items()}


def plotly_script() -> str:
    """Plotly's own JavaScript, as the installed package has it."""
    return str(get_plotlyjs())


__all__ = [
    "CHARTS", "RULES", "SERIES", "TIME_LOOKS", "breakdown_title", "frontier_title", "memory_looks", "pass_looks", "plotly_script",
]  # fmt: skip
