"""A folder for any host of files: one page for every model on every cluster, whose data are loaded when they are chosen.

Scripts and formulas are shared. What a question is about lies in three kinds of files: a framework's defaults and constants, a
cluster's figures under a framework, a model's shape. The page puts them together to what `costmodel.page.data.tables` says of a
question, tries the plans of the usual search, and works every one of them out by the printed formulas.
"""

from __future__ import annotations

import dataclasses
import functools
import shutil
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from costmodel.arithmetic.named_tuples import Row
from costmodel.arithmetic.whole_numbers import divisors
from costmodel.catalogue.calibrations import calibrated_framework, device_of_calibration, load_calibration
from costmodel.catalogue.clusters import load_cluster
from costmodel.catalogue.loader import load_model
from costmodel.catalogue.software import framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.dimensions import DIMENSIONS
from costmodel.description.framework import Framework
from costmodel.description.judgement import CHOSEN
from costmodel.description.labels import spoken
from costmodel.description.plan import FOLLOWING, Plan
from costmodel.description.question import Question
from costmodel.description.refusals import texts
from costmodel.description.transformer import Transformer
from costmodel.evaluation.error_model import constants_in_doubt, device_errors, spread_of
from costmodel.evaluation.first_contacts import bends
from costmodel.evaluation.offers import SHORTEST
from costmodel.evaluation.ranking import DRAWS, LEADERS
from costmodel.evaluation.search_space import LARGEST_MICRO_BATCH, TOKENS_OF_A_CONTEXT_RANK, Space
from costmodel.evaluation.simplicity import CLOSE, SURE, TIE
from costmodel.evaluation.single_changes import LEANER, TRAINED_LESS, in_words
from costmodel.page.arguments import nested
from costmodel.page.data import embedded, maker, static, style, tables, timeline_script
from costmodel.page.onefile import PRICE, SEQ_LEN, SEQUENCES, filled, looks
from costmodel.page.plans import MOST
from costmodel.page.question import PageQuestion, unasked
from costmodel.page.sliders import sliders
from costmodel.text.errors import CostModelError, InvalidValue

FRAMEWORKS = ("megatron-core", "fsdp2", "deepspeed")
"""Software that the page offers on every cluster."""
ANYWHERE = "dgx-h100"
"""A cluster for what is the same on all of them."""
GROWN = 64
"""As many times the GPUs are tried where no plan fits."""
STATES, ROOM = 20.0, 0.6
"""Bytes that training holds of a parameter, and share of the memory that they may take where a question says no GPUs."""
PRESETS = (
    ("llama3-8b", "dgx-h100", 8), ("llama3-70b", "dgx-h100", 64), ("mixtral-8x7b", "hgx-h200", 16), ("llama3-8b", "mi300x-8", 8),
)  # fmt: skip
"""Questions that the page offers, where it has them."""
BOOK = {"the book": "notebooks/README.html", "formulas": "formulas/index.html", "nomenclature": "nomenclature.html"}
"""Pages of the book that the page leads to, as `python -m docs site` names them."""
BACK = "what-if"
"""Folder of the book in which its pages look for this one."""
OF_MODELS = ("model", "parameters")
"""Of the formulas' arguments what a model's own file says."""


Family: TypeAlias = tuple[bool, float]
"""What of a model says how sure its estimates are: whether it has experts, and its layers' share with a state."""


class Built(NamedTuple):
    """A site."""

    models: tuple[str, ...]  # models, clusters: by name, that it has
    clusters: tuple[str, ...]
    refused: Mapping[str, str]  # those that it hasn't, and why


def build(
    folder: Path, models: Sequence[str], clusters: Sequence[str], calibrations: Sequence[str] = (), book: str = ""
) -> Built:  # fmt: skip
    """Write the site.

    Parameters
    ----------
    folder : made where it isn't there; what it holds of the same names is written anew
    models, clusters : by name; the page has each of the one on each of the other
    calibrations : files of own runs, by which clusters of their devices are priced with their frameworks
    book : address of the folder of the book, with a slash at its end, that the page leads to; none if empty

    Returns
    -------
    Built
        what it has; a cluster on which no framework runs, or a model that no page can ask about, is left out
    """
    own = {(device_of_calibration(path), calibrated_framework(path)): path for path in calibrations}
    names = tuple(dict.fromkeys((*FRAMEWORKS, *(name for _, name in own))))
    shapes = {name: load_model(name) for name in models}
    refused: dict[str, str] = {}
    kinds = _recomputed(shapes.values(), names)
    families = dict.fromkeys(map(_family, shapes.values()))
    made: dict[str, Row] = {}
    first = next(iter(shapes.values()))
    bases: dict[str, Row] = {}
    for name in clusters:
        cluster = load_cluster(name)
        cluster = cluster.with_gpus(cluster.gpus_per_node)
        of: Row = {}
        for software in names:
            path = own.get((cluster.device.name, software))
            if path is None and software not in FRAMEWORKS:
                continue
            where = cluster if path is None else load_calibration(path, cluster)
            try:
                told = _cluster(first, where, framework_on(where, software), kinds, families)
            except CostModelError as error:
                refused[f"{name} with {software}"] = str(error)
                continue
            base = bases.setdefault(software, told)
            of[software] = told if base is told else _beside(base, told)
        if of:
            made[name] = {"facts": _facts(cluster), "frameworks": of}
    _write(folder, shapes, made, bases, names, book)
    return Built(tuple(shapes), tuple(made), refused)


WHOLE = ("asked", "figures")
"""Tables that are taken whole, of one file or of another."""


def _family(model: Transformer) -> Family:
    return bool(model.experts), float(model.state_share)


def _recomputed(models: Iterable[Transformer], names: Sequence[str]) -> list[str | float]:
    """Every kind of recomputation that the page tries of any model; all software trains on the cluster that is asked for it."""
    cluster = load_cluster(ANYWHERE)
    kinds: dict[str | int, None] = {}
    for model in models:
        for name in names:
            kinds |= dict.fromkeys(_space(model, cluster, framework_on(cluster, name)).recompute)
    return list(kinds)


def _space(model: Transformer, cluster: Cluster, framework: Framework) -> Space:
    given = dict.fromkeys(field.name for field in dataclasses.fields(Plan))
    return Space(Question(model, cluster, framework), 1, 1, {**given})


def _asked(model: Transformer, cluster: Cluster, framework: Framework) -> PageQuestion:
    """A question in which nothing is said of a plan but its batch and length."""
    plan = Plan(global_batch=SEQUENCES * int(cluster.gpus or 1), seq_len=SEQ_LEN).on(cluster)
    return PageQuestion(model, cluster, framework, plan, (*unasked(), FOLLOWING))


def _cluster(
    model: Transformer, cluster: Cluster, framework: Framework, kinds: Sequence[str | float], families: Iterable[Family]
) -> Row:  # fmt: skip
    """A cluster under a framework, whatever the model: the tables of a question without what is the model's."""
    question = _asked(model, cluster, framework)
    tried = [dataclasses.replace(question.plan, recompute=kind) for kind in kinds]
    known = tables(question, PRICE, tried)
    given, device = known["given"], cluster.device
    assert isinstance(given, dict) and isinstance(known["asked"], dict) and isinstance(known["domains"], dict)
    fields, matrix = constants_in_doubt(framework)
    return {
        "tables": {
            **{name: value for name, value in known.items() if name not in ("texts", "given")},
            "asked": {name: value for name, value in known["asked"].items() if not name.startswith("model.")},
            "given": {name: value for name, value in given.items() if name not in OF_MODELS},
        },
        "space": {
            "dimensions": framework.dimensions, "schedules": framework.default_schedules,
            "zero_stages": list(dict.fromkeys(stage for stage, _ in _space(model, cluster, framework).shards(2, 1))),
            "micro_batch": LARGEST_MICRO_BATCH, "context_tokens": TOKENS_OF_A_CONTEXT_RANK, "most": MOST,
        },
        "doubts": {
            "fields": fields, "matrix": matrix,
            "device": [{"numbers": one.numbers, "error": one.error} for one in device_errors(device, question.dtype)],
        },
        "sliders": [one._asdict() for one in sliders(question, PRICE) if not one.field.startswith("model.")],
        "spreads": {_kind(*kind): _spread(framework, cluster, *kind) for kind in families},
    }  # fmt: skip


def _kind(experts: bool, states: float) -> str:
    return f"{int(experts)} {states:g}"


@functools.cache
def _doubts() -> tuple[float, ...]:
    """Standard deviations that constants leave a step's logarithm, for which the error of the step is told; lines join them."""
    return tuple(sorted({*(place / 200.0 for place in range(201)), *bends()}))


def _spread(framework: Framework, cluster: Cluster, experts: bool, states: float) -> Row:
    """How sure estimates are, by what their constants leave unknown."""
    spread = spread_of(framework, cluster.device, experts, states)
    errors = [spread.time(doubt) for doubt in _doubts()]
    return {
        "margin": spread.margin(CHOSEN), "within": spread.within, "runs": spread.rows, "calibrated": spread.calibrated,
        "halves": [error.half for error in errors], "shift": errors[0].shift,
        "margins": [spread.margin(percent / 100.0) for percent in range(round(100.0 * CHOSEN) + 1, SURE + 1)],
    }  # fmt: skip


def _facts(cluster: Cluster) -> Row:
    device = cluster.device
    return {
        "name": cluster.name, "title": device.title or device.name, "node": cluster.gpus_per_node,
        "room": float(device.usable_memory or device.memory) * ROOM,
    }  # fmt: skip


def _beside(base: Row, other: Row) -> Row:
    """What of nested tables differs from others, so that one laid over the other gives them back."""
    found: Row = {}
    for name, value in other.items():
        before = base.get(name)
        if isinstance(value, dict) and isinstance(before, dict) and name not in WHOLE:
            if inner := _beside(before, value):
                found[name] = inner
        elif name not in base or before != value:
            found[name] = value
    return found


def _common(rows: Sequence[Row]) -> Row:
    """What several nested tables all say."""
    first, *others = rows
    found: Row = {}
    for name, value in first.items():
        values: list[Any] = [other.get(name) for other in others]
        if name not in WHOLE and isinstance(value, dict) and all(isinstance(one, dict) for one in values):
            found |= {name: inner} if (inner := _common([value, *values])) else {}
        elif all(one == value for one in values):
            found[name] = value
    return found


def _model(model: Transformer, cluster: Cluster, names: Sequence[str]) -> Row:
    """A model, whatever the cluster."""
    framework = framework_on(cluster, names[0])
    question = _asked(model, cluster, framework)
    known = tables(question, PRICE)
    asked, domains = known["asked"], known["domains"]
    assert isinstance(asked, dict) and isinstance(domains, dict)
    own = [name for name in asked if name.startswith("model.")]
    return {
        "name": model.name, "billions": f"{model.parameters / 1e9:,.1f} billion", "states": float(model.parameters) * STATES,
        "asked": {name: asked[name] for name in own}, "domains": {name: domains[name] for name in own},
        "model": nested(Question(model, cluster, framework).shape), "parameters": float(model.parameters),
        "restrictions": [one._asdict() for one in model.restrictions], "texts": texts(model),
        "sliders": [one._asdict() for one in sliders(question, PRICE) if one.field.startswith("model.")],
        "heads": model.heads, "layers": model.layers, "longest": model.learned_positions,
        "experts": divisors(model.experts, model.experts) if model.experts else [1], "kind": _kind(*_family(model)),
        "recompute": {name: _space(model, cluster, framework_on(cluster, name)).recompute for name in names},
    }  # fmt: skip


def _write(
    folder: Path, models: Mapping[str, Transformer], clusters: Mapping[str, Row], bases: Mapping[str, Row], names: Sequence[str],
    book: str,
) -> None:  # fmt: skip
    from costmodel.plots.embedded import plotly_script

    catalogue = {
        "models": list(models), "clusters": list(clusters), "frameworks": [name for name in names if name in bases],
        "sequences": SEQUENCES, "length": SEQ_LEN, "price": PRICE, "presets": PRESETS, "doubts": _doubts(),
        "near": -statistics.NormalDist().inv_cdf(TIE), "close": CLOSE, "dimensions": [one.field for one in DIMENSIONS],
        "tie": TIE, "leaders": LEADERS, "draws": DRAWS, "shortest": SHORTEST, "times": GROWN,
        "beside": [(title, book + page) for title, page in BOOK.items()] if book else [],
        "less": [_offer(changes) for changes in (*TRAINED_LESS, *LEANER)],
    }  # fmt: skip
    where = load_cluster(ANYWHERE, gpus=8)
    files = {
        **{f"shared/{name}": static(name) for name in ("charts.js", "page.js", "site.js")},
        "shared/page.css": style(),
        "shared/plotly.min.js": plotly_script(),
        "shared/formulas.js": f'"use strict";\nconst modelOf = {maker()};\n',
        "shared/timeline.js": f'"use strict";\nconst timelineOf = {timeline_script()};\n',
        "shared/catalogue.js": f'"use strict";\nconst catalogue = {embedded(catalogue)}, loaded = {{}};\n',
        **{f"frameworks/{name}.js": _told(f"framework {name}", base) for name, base in bases.items()},
        **{f"clusters/{name}.js": _told(f"cluster {name}", _without(one, bases)) for name, one in clusters.items()},
        **{f"models/{name}.js": _told(f"model {name}", _model(model, where, names)) for name, model in models.items()},
        "index.html": _index(),
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _offer(changes: Row) -> Row:
    """A change that a question may fit with, and its words."""
    return {"changes": changes, "words": spoken(in_words(changes))}


def _without(cluster: Row, bases: Mapping[str, Row]) -> Row:
    """A cluster's file: what a framework's own file says is left out of it, and what all frameworks share stands there once."""
    of = {name: {} if told is bases[name] else told for name, told in cluster["frameworks"].items()}
    every = _common([*of.values()])
    return {**cluster, "every": every, "frameworks": {name: _beside(every, told) for name, told in of.items()}}


def _told(name: str, value: Row) -> str:
    return f"loaded[{embedded(name)}] = {embedded(value)};\n"


def _index() -> str:
    said = "How long a training step is, whether it fits and which plan is best: every model on every cluster of the catalogue."
    return filled({
        "brand": '<a href="index.html">costmodel</a>', "title": "costmodel: what if",
        "said": f'<meta name="description" content="{said}"><meta property="og:description" content="{said}">',
        "style": '<link rel="stylesheet" href="shared/page.css">',
        "plotly": '<script type="text/plain" id="plotly" data-src="shared/plotly.min.js"></script>',
        "model": '<script id="formulas" src="shared/formulas.js"></script>\n<script src="shared/catalogue.js"></script>',
        "timeline": '<script src="shared/timeline.js"></script>', "orders": embedded({"tables": [], "of": {}}),
        "view": embedded(looks()),
        "charts": '<script src="shared/charts.js"></script>', "page": '<script src="shared/site.js"></script>',
    })  # fmt: skip


def take_book(folder: Path, book: Path) -> str:
    """Copy a book that was built into a site, whose pages lead back to it; the address of its folder.

    Parameters
    ----------
    folder : of the site
    book : folder that ``python -m docs site`` wrote

    Raises
    ------
    InvalidValue
        where there is no such book
    """
    if missing := [page for page in BOOK.values() if not (book / page).is_file()]:
        raise InvalidValue("book", str(book), f"a folder that `python -m docs site` wrote, with {missing[0]} in it")
    if folder.resolve().is_relative_to(book.resolve()):
        raise InvalidValue("book", str(book), "a folder beside that of the site: here the site would be copied into itself")
    shutil.rmtree(folder / "book", ignore_errors=True)
    shutil.copytree(book, folder / "book", ignore=shutil.ignore_patterns(BACK))
    (folder / "book" / BACK).mkdir()
    back = '<!doctype html><meta http-equiv="refresh" content="0;url=../../index.html"><a href="../../index.html">what if</a>\n'
    (folder / "book" / BACK / "index.html").write_text(back, encoding="utf-8")
    return "book/"


def left_out(built: Built) -> Iterator[str]:
    """A line for all that has no page.

    Parameters
    ----------
    built : as `build` gives it
    """
    return (f"{name}: {why}" for name, why in built.refused.items())
