"""A folder for any host of files: the page of every model on every cluster, which share their scripts."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from costmodel.catalogue.calibrations import calibrated_framework, device_of_calibration, load_calibration
from costmodel.catalogue.clusters import load_cluster
from costmodel.catalogue.loader import load_model
from costmodel.description.cluster import Cluster
from costmodel.description.transformer import Transformer
from costmodel.evaluation.estimation import sentence
from costmodel.page.data import embedded, maker, static, tables, timeline_script
from costmodel.page.onefile import SEQ_LEN, WhatIf, whatif
from costmodel.text.errors import CostModelError

STATES, ROOM = 20.0, 0.6
"""Bytes that training holds of a parameter, and share of the memory that they may take where a page starts."""
PRESETS = (("llama3-8b", "dgx-h100"), ("llama3-70b", "dgx-h100"), ("mixtral-8x7b", "hgx-h200"), ("llama3-8b", "mi300x-8"))
"""Questions that the first page offers, where it has them."""


class Built(NamedTuple):
    """One page.

    Parameters
    ----------
    model, cluster : by name
    refused : why there is none; empty where there is one
    """

    model: str
    cluster: str
    refused: str = ""

    @property
    def file(self) -> str:
        """Of the page, below the folder."""
        return f"{self.model}/{self.cluster}.html"


def build(
    folder: Path, models: Sequence[str], clusters: Sequence[str], workers: int | None = None, calibrations: Sequence[str] = (),
) -> list[Built]:  # fmt: skip
    """Write the site.

    Parameters
    ----------
    folder : made where it isn't there; what it holds of the same names is written anew
    models, clusters : by name; a page for each of the one on each of the other
    workers : processes; one a core if not given
    calibrations : files of own runs, by which clusters of their devices are priced with their frameworks

    Returns
    -------
    list of Built
        every pair, and why one has no page: a cluster whose devices lack what the model needs, a model with no legal plan
    """
    for name in models:
        (folder / name).mkdir(parents=True, exist_ok=True)
    _write_shared(folder)
    pairs = [(folder, model, cluster, tuple(calibrations)) for model in models for cluster in clusters]
    with ProcessPoolExecutor(workers or os.cpu_count()) as pool:
        built = list(pool.map(_build, pairs))
    (folder / "index.html").write_text(_index([one for one in built if not one.refused]), encoding="utf-8")
    return built


def _write_shared(folder: Path) -> None:
    from costmodel.plots.embedded import plotly_script

    shared = {
        **{name: static(name) for name in ("page.css", "charts.js", "page.js")}, "plotly.min.js": plotly_script(),
        "formulas.js": f'"use strict";\nconst modelOf = {maker()};\n',
        "timeline.js": f'"use strict";\nconst timelineOf = {timeline_script()};\n',
    }  # fmt: skip
    (folder / "shared").mkdir(exist_ok=True)
    for name, text in shared.items():
        (folder / "shared" / name).write_text(text, encoding="utf-8")


def _build(pair: tuple[Path, str, str, tuple[str, ...]]) -> Built:
    folder, name, where, calibrations = pair
    built = Built(name, where)
    try:
        model, cluster = load_model(name), load_cluster(where)
        length = min(SEQ_LEN, model.learned_positions or SEQ_LEN)
        own = next((path for path in calibrations if device_of_calibration(path) == cluster.device.name), None)
        if own is not None:
            cluster = load_calibration(own, cluster)
        software = "megatron-core" if own is None else calibrated_framework(own)
        text = _page(whatif(model, _large_enough(model, cluster), seq_len=length, framework=software))
    except CostModelError as error:
        return built._replace(refused=str(error))
    (folder / built.file).write_text(text, encoding="utf-8")
    return built


def _large_enough(model: Transformer, cluster: Cluster) -> Cluster:
    """One node, or as many more, twice and twice again, as hold what training keeps of the parameters."""
    device = cluster.device
    node = cluster.gpus_per_node * (device.usable_memory or device.memory) * ROOM
    nodes = 2 ** math.ceil(math.log2(max(1.0, model.parameters * STATES / node)))
    return cluster.with_gpus(nodes * cluster.gpus_per_node)


def _page(what: WhatIf) -> str:
    data = embedded(tables(what.question, what.price, what.candidates.plans))
    found = what.candidates.found
    said = html.escape(sentence(found.best, found.standings.plans[0].probability_fastest) if found.ranked else found.why_none())
    return what.filled({
        "brand": '<a href="../index.html">costmodel</a>',
        "said": f'<meta name="description" content="{said}"><meta property="og:description" content="{said}">',
        "style": '<link rel="stylesheet" href="../shared/page.css">',
        "plotly": '<script type="text/plain" id="plotly" data-src="../shared/plotly.min.js"></script>',
        "model": '<script id="formulas" src="../shared/formulas.js"></script>\n'
                 f'<script id="model">"use strict";\nconst costmodel = modelOf({data});\n</script>',
        "timeline": '<script src="../shared/timeline.js"></script>', "charts": '<script src="../shared/charts.js"></script>',
        "page": '<script src="../shared/page.js"></script>',
    })  # fmt: skip


def _index(pages: Sequence[Built]) -> str:
    """The first page: every model with its clusters, and a few questions to begin with."""
    have = {(one.model, one.cluster): one.file for one in pages}
    offered = [(f"{model} on {cluster}", have[model, cluster]) for model, cluster in PRESETS if (model, cluster) in have]
    models: dict[str, list[Built]] = {}
    for one in pages:
        models.setdefault(one.model, []).append(one)
    lists = [
        f"<details><summary>{html.escape(name)}</summary><p>" + " · ".join(_link((one.cluster, one.file)) for one in of)
        + "</p></details>" for name, of in models.items()
    ]  # fmt: skip
    return "".join([
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>costmodel: what if</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="shared/page.css"></head>\n<body><main>'
        "<h1>How long is a step, does it fit, which plan is best?</h1>",
        f"<p>{' · '.join(map(_link, offered))}</p>" if offered else "",
        *lists,
        "</main></body></html>\n",
    ])  # fmt: skip


def _link(named: tuple[str, str]) -> str:
    return f'<a href="{html.escape(named[1])}">{html.escape(named[0])}</a>'


def left_out(built: Sequence[Built]) -> Iterator[str]:
    """A line for each pair without a page.

    Parameters
    ----------
    built : as `build` gives it
    """
    return (f"{one.model} on {one.cluster}: {one.refused}" for one in built if one.refused)


__all__ = ["Built", "build", "left_out"]
