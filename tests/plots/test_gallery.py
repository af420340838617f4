"""Every figure of the library stands in the gallery."""

import importlib
import inspect
import pkgutil

import pytest

pytest.importorskip("plotly")

import plotly.graph_objects as go

from costmodel import plots
from costmodel.plots import gallery

CHEAP = ("breakdown_figure", "waterfall", "stages_figure", "roofline_figure", "tornado_figure", "measured_figure",
         "communication_figure", "iteration_times", "published_beside_predicted", "memory_figure", "link_loads")  # fmt: skip
HELPERS = ("gallery", "answers", "report", "page", "style")


def drawings():
    """Names of all functions of `costmodel.plots` that return a figure."""
    for info in pkgutil.iter_modules(plots.__path__):
        if info.name not in HELPERS:
            module = importlib.import_module(f"costmodel.plots.{info.name}")
            for name, function in vars(module).items():
                own = inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
                if own and "Figure" in str(inspect.signature(function).return_annotation):
                    yield name


def test_every_figure_stands_in_the_gallery():
    assert sorted(drawings()) == sorted(gallery.FIGURES)
    assert all(inspect.getdoc(draw) for draw in gallery.FIGURES.values())


@pytest.mark.parametrize("name", CHEAP)
def test_an_example_is_drawn_on_a_real_question(name):
    figure = gallery.FIGURES[name]()
    assert isinstance(figure, go.Figure) and figure.data and figure.layout.title.text


@pytest.mark.slow
def test_the_gallery_is_written_as_one_page(tmp_path):
    gallery.write_gallery(tmp_path / "gallery.html")
    assert (tmp_path / "gallery.html").read_text(encoding="utf-8").count('class="plotly-graph-div"') == len(gallery.FIGURES)
