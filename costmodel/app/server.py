"""The server of the page: one function from a link to what it shows, on loopback, with nothing kept between visitors."""

from __future__ import annotations

import dataclasses
import logging
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dash import Dash, Input, Output, State, dcc, html, no_update
from flask import Response, abort, request
from werkzeug import serving

from costmodel.app import view
from costmodel.app.answer import CALIBRATIONS, Answer, answered, command, described, difference
from costmodel.app.charts import charts
from costmodel.app.live import live, on_show, shared
from costmodel.app.page import template
from costmodel.app.state import OwnStep, read_state, write_fields, write_runs
from costmodel.arithmetic.named_tuples import changed
from costmodel.catalogue.calibrations import device_of_calibration
from costmodel.description.transformer import Transformer
from costmodel.evaluation.engine import compile_beside
from costmodel.interop.launchers import formats, read_step_times, suffix, write_launch
from costmodel.page.data import embedded, static
from costmodel.page.question import unasked
from costmodel.text.checks import choice, listing, mapping, positive_int, text
from costmodel.text.errors import CostModelError, InvalidValue, UnreadableFile

LARGEST_REQUEST = 1_200_000
"""Bytes of a request: a config.json of 1 MiB with what Dash writes around it."""
LARGEST_CONFIG = 2**20
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What a page may load: what this server has, and what stands in the page itself."""
GRAPH = {"displaylogo": False, "displayModeBar": False}
HEIGHT = {"height": "264px"}
"""Of a chart, so that the page is one screen."""


def make_app(hosts: Sequence[str] = LOOPBACK) -> Dash:
    """The page as an application.

    Parameters
    ----------
    hosts : names by which browsers may ask for it, without port

    Returns
    -------
    dash.Dash
        whose ``server`` is a Flask application
    """
    app = Dash(
        "costmodel.app", assets_folder=str(Path(__file__).parent / "assets"), title="costmodel: what if", update_title="",
        serve_locally=True, include_assets_files=True, index_string=template(), compress=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )  # fmt: skip
    app.layout = _layout()
    app.callback(Output("answer", "data"), Input("query", "data"), prevent_initial_call=True)(answer_to)
    app.clientside_callback(
        "function(answer) { return window.costmodel.answered(answer); }",
        Output("said", "children"), Output("table", "children"), Output("tabs", "children"), Output("chart", "figure"),
        Output("heading", "children"), Output("chart-beside", "figure"), Output("heading-beside", "children"),
        Output("pane-beside", "style"), Output("diff", "children"), Output("strip", "data"), Output("wrong", "children"),
        Output("panel", "style"), Input("answer", "data"), prevent_initial_call=True,
    )  # fmt: skip
    app.callback(Output("opened", "data"), Input("upload", "data"), State("query", "data"), prevent_initial_call=True)(opened)
    app.callback(
        Output("download", "data"), Output("wrong", "children", allow_duplicate=True), Input("export", "data"),
        State("query", "data"), prevent_initial_call=True,
    )(exported)  # fmt: skip
    app.clientside_callback(
        "function(strip, figure) { window.costmodel.shown(strip); return ''; }", Output("drawn", "data"), Input("strip", "data"),
        Input("chart", "figure"), prevent_initial_call=True,
    )  # fmt: skip
    app.clientside_callback(
        "function(opened) { window.costmodel.opened(opened); return ''; }", Output("taken", "data"), Input("opened", "data"),
        prevent_initial_call=True,
    )  # fmt: skip
    _guard(app, tuple(host.lower() for host in hosts))
    _followed(app)
    return app


def _followed(app: Dash) -> None:
    """What browsers follow sliders with: the formulas, once, and the numbers of each question."""

    def formulas() -> Response:
        return Response(shared(), mimetype="text/javascript")

    def numbers() -> Response:
        try:
            state = read_state(request.query_string.decode("utf-8", "replace"))
            return Response(embedded(live(state.question)), mimetype="application/json")
        except CostModelError as refused:
            abort(400, str(refused))

    def style() -> Response:
        return Response(static("shared.css"), mimetype="text/css")

    app.server.add_url_rule("/formulas.js", "formulas", formulas)
    app.server.add_url_rule("/shared.css", "style", style)
    app.server.add_url_rule("/numbers.json", "numbers", numbers)


def _layout() -> object:
    stores = [dcc.Store(id=name) for name in ("query", "answer", "strip", "upload", "opened", "export", "drawn", "taken")]
    acts = [("compare", "Compare"), ("csv", "CSV"), ("html", "Report"), ("image", "Image"), ("link", "Copy link")]
    buttons: list[object] = [html.Button(text, type="button", **{"data-do": name}) for name, text in acts]
    options = [html.Option("Launch file", value=""), *(html.Option(name, value=name) for name in formats())]
    buttons.insert(3, html.Select(options, id="launch", **{"aria-label": "launch file of the chosen plan, in the format of"}))
    graphs = [
        html.Div([
            html.Div(id=f"heading{beside}", className="heading"), html.Ul(className="legend"),
            dcc.Graph(id=f"chart{beside}", config=GRAPH, responsive=True, style=HEIGHT),
        ], id=f"pane{beside}", style={"display": "none"} if beside else {})
        for beside in ("", "-beside")
    ]  # fmt: skip
    return html.Div([
        *stores, dcc.Download(id="download"), html.P(id="wrong", className="wrong", role="alert"),
        html.Header([
            html.Div(buttons, className="acts"), html.Div(html.H1("..."), id="said", **{"aria-live": "polite"}),
        ], className="say"),
        html.Div(id="table", className="ranked"), html.Div(id="tabs", className="tabs", role="tablist"),
        html.Div(graphs, id="panel", className="chart", role="tabpanel", tabIndex=0, **{"aria-label": "chart"}),
        html.Details([
            html.Summary("The figure as a table"),
            html.Div(className="scroll", tabIndex=0, role="region", **{"aria-label": "the figure as a table"}),
        ], id="numbers"),
        html.P(id="diff", className="diff", **{"aria-live": "polite"}),
    ])  # fmt: skip


def answer_to(query: str) -> dict[str, object]:
    """What `show` gives, for the page's own script to put where it belongs, unless the sliders were moved on by then."""
    return {"query": query, "parts": [None if part is no_update else part for part in show(query)]}


def show(query: str) -> tuple[object, ...]:
    """What the page of a link shows; of a link that can't be answered, why."""
    try:
        answer = answered(read_state(query))
        drawn = charts(answer)
    except (CostModelError, ArithmeticError) as refused:
        why = str(refused) if isinstance(refused, CostModelError) else "numbers too large or too small to compute with"
        return (*[no_update] * 9, {"error": why}, why, no_update)
    empty: dict[str, object] = {"data": [], "layout": {}}
    figures, heads = drawn.figures, [html.H2(heading) for heading in drawn.headings]
    second = len(figures) > 1
    return (
        view.said(answer), view.table(answer), view.tabs(answer.state), figures[0] if figures else empty,
        heads[:1], figures[1] if second else no_update, heads[1:],  # what is hidden is not drawn anew
        {} if second else {"display": "none"}, difference(answer),
        {**view.strip(answer), "other": view.other(answer), **on_show(answer, drawn)}, "", {} if figures else {"display": "none"},
    )  # fmt: skip


def opened(upload: dict[str, object], query: str = "") -> dict[str, str]:
    """What a visitor's files put into the link, or why they can't be read.

    Parameters
    ----------
    upload : a ``config.json``, whose model is to be asked about: its ``"name"`` and its ``"text"``; or under ``"logs"`` several
        of those, of runs of the plan that is looked at
    query : of the link
    """
    try:
        if isinstance(upload, dict) and "logs" in upload:
            return {"runs": measured(listing("logs", upload["logs"]), query), "error": ""}
        return {"config": write_fields(read_upload(upload)), "error": ""}
    except CostModelError as refused:
        return {"error": str(refused)}


def measured(logs: Sequence[object], query: str) -> str:
    """The measured steps of a link with those of further logs, all of the plan that is looked at.

    Parameters
    ----------
    logs : of each file its ``"name"`` and its ``"text"``
    query : of the link

    Raises
    ------
    CostModelError
        naming the file, where no step time is in it, or one out of all proportion; where the model is no name of the catalogue
    """
    state = read_state(query)
    chosen = answered(state).chosen
    if state.config or chosen is None:
        wish = "logs are read here of a plan that fits and a model of the catalogue; `costmodel calibrate` reads those of any"
        raise CostModelError(wish)
    bare = changed(chosen.plan, dict.fromkeys(unasked()))
    usual = bare.resolve(chosen.framework)
    own = {name: value for name in unasked() if (value := getattr(chosen.plan, name)) != getattr(usual, name)}
    steps, plan = [*state.own_steps], changed(bare, own)  # a link is short that leaves to the framework what is its default
    for log in logs:
        name, content = _file(log, "run.log")
        try:
            seconds = read_step_times(f"{content}\n", chosen.plan).typical()
        except CostModelError as refused:
            raise CostModelError(f"{name}: {str(refused).removeprefix('the log: ')}") from None
        steps.append(OwnStep(state.model, chosen.cluster.device.name, state.framework, plan, seconds))
    runs = write_runs(steps)
    described(dataclasses.replace(state, runs=runs))  # which refuses what can't be a step of this plan
    return runs


def read_upload(upload: object) -> Transformer:
    """A model from the text of a ``config.json``, by the library's own reader: of its own name, or of its file's.

    Parameters
    ----------
    upload : the file's ``"name"`` and its ``"text"``

    Raises
    ------
    CostModelError
        where it is no text, too large, or no model that is known
    """
    called, given = _file(upload, "config.json")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(given, encoding="utf-8", errors="replace")
        try:
            found = Transformer.from_huggingface(file)
            return found if found.name != file.parent.name else dataclasses.replace(found, name=called)
        except UnreadableFile as refused:
            raise UnreadableFile(str(refused).replace(str(file), "config.json")) from None
        except CostModelError as refused:
            raise CostModelError(str(refused).replace(str(file), "config.json")) from None


def _file(given: object, usual: str) -> tuple[str, str]:
    """What a visitor's file is called, without its folders, and its text; `usual` is said of one without a name."""
    upload = given if isinstance(given, dict) else {}
    content, called = upload.get("text"), str(upload.get("name") or usual)
    if not isinstance(content, str) or len(content.encode("utf-8", "replace")) > LARGEST_CONFIG:
        raise UnreadableFile(f"{usual}: expected a text of at most {LARGEST_CONFIG} bytes")
    name = "".join(letter for letter in called.replace("\\", "/").rpartition("/")[2] if letter.isprintable())[:100]
    return (name if name == usual else name.removesuffix(".json")) or usual, content


def exported(kind: dict[str, object], query: str) -> tuple[object, str]:
    """A file to save, and where there is none, why: the ranked plans as CSV, the report, or the chosen plan's launch file.

    Parameters
    ----------
    kind : with ``"csv"``, ``"html"`` or ``"launch"`` under ``"kind"``, the link under ``"link"``, and of a launch file the
        format under ``"format"``
    query : of the link
    """
    try:
        mapping("export", kind)
        answer = answered(read_state(query))
        if kind.get("kind") == "csv":
            return {"content": answer.found.to_csv(), "filename": "costmodel.csv", "type": "text/csv"}, ""
        if kind.get("kind") == "launch":
            return _launch_file(answer, text("format", kind.get("format"))), ""
        from costmodel.plots.report import report_page

        content = report_page(answer.found, command(answer.state), difference(answer), text("link", kind.get("link")))
        return {"content": content, "filename": "costmodel.html", "type": "text/html"}, ""
    except CostModelError as refused:
        return no_update, str(refused)


def _launch_file(answer: Answer, dialect: str) -> dict[str, str]:
    choice("format", dialect, tuple(formats()))
    chosen = answer.chosen or answer.found.best
    content = write_launch(dialect, chosen.plan, chosen.model, cluster=chosen.cluster)
    return {"content": content, "filename": f"costmodel-{dialect}.{suffix(dialect)}", "type": "text/plain"}


def _guard(app: Dash, hosts: tuple[str, ...]) -> None:
    """Refuse requests under foreign names, from foreign pages, or too large; forbid pages to load from elsewhere."""
    server = app.server
    server.config["MAX_CONTENT_LENGTH"] = LARGEST_REQUEST

    def check() -> None:
        name = request.host.lower()
        name = name if name.endswith("]") else name.rpartition(":")[0] or name
        if name not in hosts:
            abort(403, "this page is not served under that name")
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2].lower() != request.host.lower():
            abort(403, "requests of other pages are not answered")

    def protect(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    server.before_request(check)
    server.after_request(protect)


def serve(host: str, port: int, further: Sequence[str] = (), calibrations: Sequence[str] = ()) -> None:
    """Serve the page until it is interrupted.

    Parameters
    ----------
    host : address to listen on; others than loopback are warned of
    port : to listen on
    further : names by which browsers may ask for it, beside loopback's and `host`
    calibrations : files of own runs, by which clusters of their devices are priced

    Raises
    ------
    InvalidValue
        for a port that is none, or is taken
    """
    positive_int("port", port, 65535)
    text("host", host)
    for path in calibrations:
        device_of_calibration(path)  # refused now, rather than at the first answer
    CALIBRATIONS[:] = calibrations
    if host not in ("127.0.0.1", "localhost", "::1"):
        print(
            f"costmodel: warning: {host} is reachable from the network, and whoever reaches it can use this machine to search",
            file=sys.stderr,
        )
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            raise InvalidValue("port", port, f"a port of {host} that is free ({error.strerror or error})") from None
    named = f"[{host}]" if ":" in host else host
    app = make_app((*LOOPBACK, named.lower(), *(name.lower() for name in further)))
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = serving.make_server(host, port, app.server, threaded=True)
    compile_beside()
    print(f"costmodel: http://{'localhost' if host in ('0.0.0.0', '::') else named}:{port}/ (end with Ctrl+C)", flush=True)
    server.serve_forever()
