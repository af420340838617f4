"""The frame of the page: the question's form and the sliders, into which Dash puts the answer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from urllib.parse import urlencode

from costmodel.app.state import CONSTRAINTS, LARGEST_FACTOR, SLIDERS, State
from costmodel.catalogue.loader import names
from costmodel.catalogue.software import framework_names
from costmodel.description.device import DTYPES
from costmodel.description.fields import table
from costmodel.description.labels import field_name
from costmodel.description.plan import Plan
from costmodel.page.onefile import SEQUENCES
from costmodel.page.site import PRESETS

DOUBLINGS = math.log2(LARGEST_FACTOR)
"""To either side of a slider's middle."""
HINTS = {
    "tp": "1,2,4,8", "cp": "all", "pp": "all", "ep": "all", "dp": "all", "mb": "1,2,4", "zero": "0 to 3",
    "recompute": "none,full",
}  # fmt: skip
ADAPTERS = [kind for kind in table(Plan)["adapter"].kind.choices if kind != "none"]
OPTIMIZERS = table(Plan)["optimizer"].kind.choices
OFFLOADS = '<option value="" selected>none</option><option value="0.5">half</option><option value="1.0">all</option>'


def _options(values: Iterable[str], chosen: str, first: str = "") -> str:
    head = f'<option value="">{escape(first)}</option>' if first else ""
    return head + "".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>{escape(value)}</option>' for value in values
    )


def _select(name: str, text: str, options: str, default: str) -> str:
    return f'<label>{text}<select name="{name}" data-default="{escape(default)}">{options}</select></label>'


def _number(name: str, text: str, value: int) -> str:
    return (
        f'<label>{text}<input name="{name}" type="text" inputmode="numeric" autocomplete="off" value="{value}" '
        f'data-default="{value}"></label>'
    )


def _form() -> str:
    plain = State()
    fixed = "".join(
        f'<label>{field_name(CONSTRAINTS[name])}<input name="{name}" type="text" placeholder="{HINTS[name]}" data-default="" '
        'autocomplete="off"></label>'
        for name in HINTS
    )  # fmt: skip
    offered = ", ".join(
        f'<a href="?{escape(urlencode({"model": model, "cluster": cluster, "gpus": gpus, "batch": SEQUENCES * gpus}))}">'
        f"{model} on {gpus} GPUs of {cluster}</a>"
        for model, cluster, gpus in PRESETS
    )
    return f"""<form class="ask" id="ask" aria-label="question"><p class="brand">costmodel <small>what if</small></p>
<details open><summary>Model</summary>{_select("model", "model", _options(names("model"), plain.model), plain.model)}
<p class="own" id="own" hidden><span></span> <button type="button" class="small" data-set="config=">remove</button></p>
{_number("seq", "sequence", plain.seq)}{_number("batch", "global batch", plain.batch)}
<label class="drop" id="drop" data-drop="config">or drop a config.json here
<input type="file" id="file" accept=".json,application/json" class="unseen"></label></details>
<details open><summary>Cluster</summary>{_select("cluster", "cluster", _options(names("cluster"), plain.cluster), plain.cluster)}
{_select("device", "GPU", _options(names("device"), plain.device, "the cluster's"), plain.device)}
{_number("gpus", "GPUs", plain.gpus)}
{_select("framework", "framework", _options(framework_names(), plain.framework), plain.framework)}
{_select("against", "compare with", _options(names("cluster"), "", "no other"), "")}</details>
<details><summary>Plan</summary>{_select("dtype", "dtype", _options(DTYPES, "", "the GPU's"), "")}
{_select("adapter", "adapter", _options(ADAPTERS, "", "none"), "")}
{_select("optimizer", "optimizer", _options(OPTIMIZERS, "", "the framework's"), "")}
{_select("oo", "optimizer offload", OFFLOADS, "")}{_select("ao", "activation offload", OFFLOADS, "")}{fixed}
<p class="hint">Empty: every value is tried. Several: commas between them.</p></details>
<details><summary>Run and cost</summary>
<label>tokens<input name="tokens" type="text" placeholder="300B or 15T" data-default="" autocomplete="off"></label>
<p class="hint">Of the whole run: how long it takes.</p>{_slider("price", 0.0, 20.0, 0.05, 0.0)}
<p class="hint">Of one GPU for an hour, in your currency.</p></details>
<details><summary>Own runs</summary><label class="drop" data-drop="logs">drop logs of the plan that is looked at
<input type="file" id="logs" multiple class="unseen"></label>
<p class="hint">Measured steps narrow the interval. They stay in this page's link; nothing is kept.</p></details>
<p class="hint">Others: {offered}</p></form>"""


def _slider(name: str, least: float, most: float, step: float, value: float) -> str:
    return (
        f'<div class="slider" data-slider="{name}"><label for="x-{name}"></label> <output for="x-{name}"></output>'
        f'<input type="range" id="x-{name}" min="{least:g}" max="{most:g}" step="{step:g}" value="{value:g}">'
        f'<button type="button" class="small reset" aria-label="reset" hidden>↺</button></div>'
    )


def template() -> str:
    """The page as a template of Dash's."""
    sliders = "".join(_slider(name, 0.0 if name == "imbalance" else -DOUBLINGS, DOUBLINGS, 0.1, 0.0) for name in SLIDERS)
    return f"""<!DOCTYPE html>
<html lang="en"><head>{{%metas%}}<title>{{%title%}}</title>{{%favicon%}}<link rel="stylesheet" href="/shared.css">{{%css%}}</head>
<body class="unanswered"><a class="unseen skip" href="#answer">to the answer</a><div class="page">{_form()}
<main class="side" id="answer">{{%app_entry%}}
<section class="strip" aria-label="what if">{sliders}</section></main></div>
<script src="/formulas.js" defer></script><footer>{{%config%}}{{%scripts%}}{{%renderer%}}</footer></body></html>"""
