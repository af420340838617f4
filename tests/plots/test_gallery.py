"""Every figure of the library stands in the gallery."""

import ast
import dataclasses
import importlib
import inspect
import json
import pkgutil
from pathlib import Path

import pytest

pytest.importorskip("plotly")

import plotly.graph_objects as go

from calibration.data.reference import QUOTED
from costmodel import load_framework, load_runs, plots
from costmodel.plots import gallery

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "calibration" / "reference"

CHEAP = ("breakdown_figure", "waterfall", "stages_figure", "roofline_figure", "tornado_figure", "measured_figure",
         "communication_figure", "iteration_times", "published_beside_predicted", "memory_figure", "link_loads", "traced_parts",
         "traced_streams", "traced_memory", "post_training_figure")  # fmt: skip
HELPERS = ("gallery", "answers", "kinds", "report", "page", "style")


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


def test_published_runs_are_priced_with_the_settings_that_their_source_states():
    framework = load_framework(gallery.ITERATED_BY)
    cases = [run for run in load_runs(QUOTED) if run.campaign.startswith("calculon")]
    quoted = {(case.cluster.gpus, case.plan.recompute): case for case in cases}
    for name, plan, published in gallery.published_runs():
        case = quoted[plan.gpus, plan.recompute]
        assert case.framework.name == framework.name, name
        said = case.plan.resolve(framework)
        assert said.optimizer_kernel == framework.optimizer_kernel, name
        assert plan.resolve(framework) == dataclasses.replace(said, optimizer_kernel=None), name
        assert published == case.seconds, name


def test_published_runs_lie_inside_the_intervals_that_the_figure_draws():
    (runs,) = [trace for trace in gallery.measured_figure().data if trace.error_y.array]
    bars = zip(runs.x, runs.y, runs.error_y.arrayminus, runs.error_y.array, strict=True)
    assert [predicted - below <= measured <= predicted + above for measured, predicted, below, above in bars] == [True] * 4


def calls_of_plans(text):
    """Keywords of every `Plan(...)` in a source that have literal values."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Plan":
            yield {one.arg: one.value.value for one in node.keywords if isinstance(one.value, ast.Constant)}


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_runs_of_megatron_in_the_book_have_the_dtype_and_attention_of_their_papers(notebook):
    """Both of the papers' tables were made in fp16 with fused softmax; the library's own default is bf16."""
    quoted = [run.plan for run in load_runs(QUOTED)]
    (dtype,), (attention,) = {plan.dtype for plan in quoted}, {plan.attention for plan in quoted}
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    for plan in (plan for source in sources if '"megatron-lm-2021"' in source for plan in calls_of_plans(source)):
        assert plan.get("dtype", "bf16") == dtype, plan
        assert plan.get("attention", attention) == attention, plan


@pytest.mark.slow
def test_the_gallery_is_written_as_one_page(tmp_path):
    gallery.write_gallery(tmp_path / "gallery.html")
    assert (tmp_path / "gallery.html").read_text(encoding="utf-8").count('class="plotly-graph-div"') == len(gallery.FIGURES)
