"""Sliders over a figure, in a notebook."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from costmodel.description.labels import label
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.evaluation.plan_search import search_by_name
from costmodel.page.question import Fields
from costmodel.page.sliders import Slider, sliders
from costmodel.text.units import format_seconds

if TYPE_CHECKING:
    import ipywidgets

    from costmodel.page.onefile import WhatIf


def answers(what: WhatIf, changes: Fields) -> dict[str, Estimate]:
    """The best plan unchanged, the same plan after changes, and the plan that is best then, by what they are.

    Parameters
    ----------
    what : the question
    changes : by field, of model and cluster
    """
    first = what.candidates.first
    asked = what.question.changed({"data_parallel": first.plan.data_parallel, **changes})
    found = {"as asked": first}
    if not changes:
        return found
    found["changed"] = estimate(asked.model, asked.cluster, first.plan, asked.framework)
    best = search_by_name(asked.model, asked.cluster, framework=asked.framework, top=1, **what.asked)
    if best.ranked and best.best.plan != first.plan:
        found["best now"] = best.best
    return found


def sentence(found: dict[str, Estimate]) -> str:
    """What became of the answer, in words.

    Parameters
    ----------
    found : as `answers` gives it
    """
    first = found["as asked"]
    words = f"{format_seconds(first.step_time)} a step"
    if changed := found.get("changed"):
        ratio = changed.step_time / first.step_time - 1.0
        fits = "" if changed.fits else ", and no longer fits"
        words += f" becomes {format_seconds(changed.step_time)} ({100 * ratio:+.1f} %){fits}"
    if best := found.get("best now"):
        words += f"; the best plan is now {label(best.plan)} at {format_seconds(best.step_time)}"
    return words


def widget(what: WhatIf) -> ipywidgets.Widget:
    """Sliders, the answer in words, and a figure that follows them (extra ``notebook``)."""
    import ipywidgets

    from costmodel.plots.change import change, change_widget, redraw

    found = answers(what, {})
    words = ipywidgets.HTML(html.escape(sentence(found)))
    figure = change_widget(change(list(found), list(found.values())))
    moving = [slider for slider in sliders(what.question, what.price) if slider.field != "price"]
    controls = {slider.field: _control(slider) for slider in moving}

    def follow(_: object) -> None:
        changes = {slider.field: controls[slider.field].value * slider.scale for slider in moving if _moved(controls, slider)}
        now = answers(what, changes)
        words.value = html.escape(sentence(now))
        redraw(figure, change(list(now), list(now.values())))

    for control in controls.values():
        control.observe(follow, "value")
    grid = ipywidgets.GridBox(list(controls.values()), layout={"grid_template_columns": "repeat(auto-fit, minmax(330px, 1fr))"})
    return ipywidgets.VBox([words, figure, grid])


def _moved(controls: Mapping[str, ipywidgets.Widget], slider: Slider) -> bool:
    start = slider.value / slider.scale
    return abs(float(controls[slider.field].value) - start) > 1e-3 * start


def _control(slider: Slider) -> ipywidgets.Widget:
    """One slider; it answers when it is let go."""
    import ipywidgets

    shown = f"{slider.label} [{slider.unit}]" if slider.unit else slider.label
    common: dict[str, object] = {
        "value": slider.value / slider.scale, "description": shown, "continuous_update": False, "readout_format": ".3g",
        "style": {"description_width": "150px"}, "layout": {"width": "auto"},
    }  # fmt: skip
    least, most = slider.least / slider.scale, slider.most / slider.scale
    if slider.logarithmic:
        return ipywidgets.FloatLogSlider(base=10, min=math.log10(least), max=math.log10(most), step=0.01, **common)
    return ipywidgets.FloatSlider(min=least, max=most, step=(most - least) / 200, **common)
