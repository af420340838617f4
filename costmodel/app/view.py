"""The parts of the page that answer: the sentence, the table with bars in its cells, the tabs, the sliders' labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlencode

from dash import html

from costmodel.app.answer import (
    PEAK,
    Answer,
    at_peak,
    called,
    ends,
    offered,
    own_steps,
    reached,
    run_of,
    taken,
    tried,
    uncalibrated,
)
from costmodel.app.state import LARGEST_FACTOR, SLIDERS, TABS, State, write_runs
from costmodel.description.labels import TIED, asked, glossary, label, part_name, spoken
from costmodel.evaluation.estimation import Estimate, lack, of_limit
from costmodel.evaluation.memory_breakdown import PARTS
from costmodel.evaluation.price import price_per_billion_tokens
from costmodel.evaluation.ranking import Rank
from costmodel.evaluation.twins import TWIN
from costmodel.page.onefile import offered_cells
from costmodel.plots.step import LOOKS
from costmodel.plots.style import BLACK, colour
from costmodel.text.units import GB, GiB, between, counted, format_count, format_seconds

FEW = 6
"""Rows that the table has unless it is asked for more, so that nothing below moves while a slider does."""
DAY = 86400.0
HEADS = (
    ("place", "#", ""), ("plan", "plan", "text"), ("besides", "step time by part", "bar text"), ("step", "s", ""),
    ("rate", "tokens/s/GPU", "wide"), ("state", "memory by part", "bar text"), ("memory", "GiB", "wide"),
    ("fastest", "P(fastest)", "wide"),
)  # fmt: skip
"""Columns: the key that they sort by, what they are called, and their class; bars by what is no pass, and what is no weight."""


def said(answer: Answer) -> list[object]:
    """The answer in a sentence, and a line about how sure it is."""
    chosen, state, before = answer.chosen, answer.state, answer.before
    question = asked(before.model, before.cluster, before.framework, work=(state.batch, state.seq))
    fixed = [spoken(f"{field}={' or '.join(map(str, values))}") for field, values in state.dimensions.items()]
    parts: list[object] = [html.Div("; ".join([question, *fixed]), className="asked")]
    if chosen is None:
        hint = html.P("Fewer constraints, more GPUs or more memory may help.")
        return [*parts, html.H1(["Nothing fits. ", html.Span(_why(answer))]), hint, *_own_runs(answer)]
    words = f" a step with {label(chosen.plan)}{tried(state, chosen.plan)}: {100 * chosen.mfu:.0f} % MFU, {of_limit(chosen)}"
    head = html.H1([html.B(between(chosen.step_time)), words])
    place = min(answer.state.row, len(answer.found) - 1)
    standing = answer.found.standings.plans[place]
    of = f"of the {answer.found.fitting:,} that fit among {answer.found.evaluated:,} legal plans"
    spread = chosen.spread
    runs = f"{spread.rows:,} measured runs of {chosen.framework.name}" if spread.rows else f"no run of {chosen.framework.name}"
    here = "" if spread.calibrated else ", none on this GPU"
    here += f"; {chosen.widest_unknown}" if chosen.widest_unknown else ""
    line = [
        f"{between(*chosen.time_interval)} with 90 % probability, number {place + 1} {of}, P(fastest) "
        f"{100 * standing.probability_fastest:.0f} % ", html.Span(runs + here, className="evidence"),
    ]  # fmt: skip
    if answer.state.price and not answer.state.tokens:
        line.append(f" {price_per_billion_tokens(chosen, answer.state.price):,.2f} per billion tokens")
    parts += [head, html.P(line), *_own_runs(answer)]
    if (run := run_of(answer)) is not None:
        paid = f", {run.cost.price:,.0f} at {answer.state.price:,.2f} a GPU-hour" if run.cost.price is not None else ""
        least, most = (_days(end) for end in run.time_interval)
        parts.append(html.P(
            f"{format_count(run.tokens)} tokens take {_days(run.time)} days, {least} to {most} with 90 % probability: "
            f"{run.cost.gpu_hours:,.0f} GPU-hours{paid}", className="run",
        ))  # fmt: skip
    if answer.state.beside >= 0 and answer.beside is None:
        parts.append(html.P("There is no second plan to compare it with.", className="beside"))
    if answer.beside is not None:
        other, share = answer.beside, 100.0 * (answer.beside.step_time / chosen.step_time - 1.0)
        named = f"{label(other.plan)} on {other.cluster.name}" if answer.state.against else label(other.plan)
        change = f"{share:+.1f} %".replace("-", "\N{MINUS SIGN}")
        hint = "" if answer.state.against else " Choose another row to compare it with."
        parts.append(html.P([
            f"Beside it {named}: {format_seconds(other.step_time)} a step, {change}.", html.Span(hint, className="hint"),
        ], className="beside"))  # fmt: skip
    return parts


def _own_runs(answer: Answer) -> list[object]:
    """What the visitor's own measured steps changed; each can be taken away."""
    steps, here = answer.state.own_steps, own_steps(answer.state, answer.before.cluster)
    if not steps:
        return []
    words: list[object] = []
    for place, step in enumerate(steps):
        rest = write_runs([*steps[:place], *steps[place + 1 :]]) if len(steps) > 1 else ""
        said = f"{format_seconds(step.seconds)} of {step.model}, {label(step.plan)}"
        remove = html.Button("remove", type="button", className="small", **{
            "data-set": urlencode({"runs": rest}), "data-anew": "1", "aria-label": f"remove {said}"})  # fmt: skip
        words += [said if step in here else f"{said} (of another GPU or framework: left out)", " ", remove, " "]
    plain = uncalibrated(answer)
    interval = f"Without own runs {between(*plain.time_interval)}." if plain else ""
    return [html.P([f"Calibrated on {counted(len(here), 'measured step')}: ", *words, interval], className="own-runs")]


def _days(seconds: float) -> str:
    days = seconds / DAY
    return f"{days:,.0f}" if days >= 100.0 else f"{days:.3g}"


def _why(answer: Answer) -> str:
    if answer.moved:
        return "No plan fits under the moved sliders."
    why = answer.found.why_none()
    return f"{why[0].upper()}{why[1:]}."


def would_fit(answer: Answer) -> list[object]:
    """Changes with which a plan would fit, each of which can be made; nothing where a plan fits as it is asked."""
    if answer.before.ranked:
        return []
    found = offered(answer.state.question)
    if not found:
        return [html.P("No change that was tried makes a plan fit: adapters, an 8-bit optimizer, offload, shorter sequences, "
                       "more GPUs.")]  # fmt: skip
    heads = (("would fit with", "text"), ("GPUs", "wide"), ("step", ""), ("tokens/s/GPU", "wide"), ("memory", ""),
             ("its best plan", "text wide"))  # fmt: skip
    rows = []
    for offer, (change, *cells) in zip(found, offered_cells(found), strict=True):
        choosing = {"data-set": urlencode(taken(offer.change)), "data-anew": "1"}
        first = html.Td(html.Button(change, type="button", className="plain plan", **choosing), className="text")
        rest = zip(cells, heads[1:], strict=True)
        rows.append(html.Tr([first, *(html.Td(cell, **({"className": kind} if kind else {})) for cell, (_, kind) in rest)]))
    head = html.Tr([html.Th(text, className=kind, scope="col") for text, kind in heads])
    caption = html.Caption("Changes with which a plan would fit; choose one to make it", className="unseen")
    return [html.Table([caption, html.Thead(head), html.Tbody(rows)], className="offers")]


def table(answer: Answer) -> object:
    """The ranked plans, sorted as the state says; below them the plan that would be faster but does not fit."""
    state, found = answer.state, answer.found
    if offers := would_fit(answer):
        return offers
    rows = list(enumerate(zip(found.ranked, found.standings.plans, strict=True)))
    either = found.alternatives
    keys: dict[str, Callable[[tuple[int, tuple[Estimate, Rank]]], float | str]] = {
        "plan": lambda row: label(row[1][0].plan),
        "besides": lambda row: row[1][0].step_time - row[1][0].times["forward"] - row[1][0].times["backward"],
        "state": lambda row: float(row[1][0].memory.total - row[1][0].memory.weights),
        "place": lambda row: row[0], "step": lambda row: row[1][0].step_time, "rate": lambda row: row[1][0].tokens_per_second,
        "memory": lambda row: row[1][0].needed_memory, "fastest": lambda row: row[1][1].probability_fastest,
    }  # fmt: skip
    miss = found.closest_miss
    few = FEW - (miss is not None)
    kept = rows if state.more else [row for row in rows if row[0] < few or row[0] in (state.row, state.beside)]
    left = len(rows) - len(kept)
    rows = kept
    rows.sort(key=keys[state.sort], reverse=state.down)
    longest = max([one.step_time for one in found.ranked] + ([miss.step_time] if miss else []), default=1.0)
    limits = [one.memory_limit for one in (*found.ranked, *([miss] if miss else []))]
    fullest = max([*limits, *([miss.needed_memory] if miss else [])], default=1.0)
    body = [_row(answer, place, one, standing, longest, fullest, either[place]) for place, (one, standing) in rows]
    if miss:
        body.append(_row(answer, -1, miss, None, longest, fullest, ""))
    head = html.Tr([_head(state, *head) for head in HEADS])
    caption = html.Caption("Ranked plans; choose one to look at it", className="unseen")
    parts: list[object] = [html.Table([caption, html.Thead(head), html.Tbody(body)])]
    words = html.Details([html.Summary("What the words mean"), html.P(glossary())], className="words")
    if left or state.more:
        text = counted(left, "more plan") if left else "fewer plans"
        more = {"data-set": f"more={int(not state.more)}", "aria-expanded": str(state.more).lower()}
        parts.append(html.Button(text, type="button", className="small more", **more))
    return [*parts, words]


def _head(state: State, key: str, text: str, kind: str) -> object:
    on = state.sort == key
    down = not state.down if on else key in ("rate", "fastest")
    arrow = ("\N{BLACK DOWN-POINTING SMALL TRIANGLE}" if state.down else "\N{BLACK UP-POINTING SMALL TRIANGLE}") if on else ""
    button = html.Button(
        [text, html.Span(arrow, **{"aria-hidden": "true"})], type="button", className="plain",
        **{"data-set": f"sort={key}&down={int(down)}", "aria-label": f"sort by {text}"},
    )  # fmt: skip
    order = {"aria-sort": "descending" if state.down else "ascending"} if on else {}
    return html.Th(button, className=kind, scope="col", **order)


def _row(answer: Answer, place: int, one: Estimate, standing: Rank | None, longest: float, fullest: float, either: str) -> object:
    state = answer.state
    on, beside = place == state.row and place >= 0, place == state.beside and place >= 0
    times = [(part, one.times[part], fill) for part, (fill, _) in LOOKS.items()]
    held = [(part, float(getattr(one.memory, part)), _seen(colour(at))) for at, part in enumerate(PARTS)]
    tied = [html.Span("\N{NO-BREAK SPACE}~", title=TIED)] if standing is not None and standing.tied and place > 0 else []
    if place >= 0:
        pairs, what = _chosen(state, place)
        first: list[object] = [html.Button(
            [label(one.plan), *tied], type="button", className="plain plan",
            **{"data-set": pairs, "aria-pressed": str(on or beside).lower(), "aria-label": f"{what} {label(one.plan)}"},
        )]  # fmt: skip
        if note := ", ".join(filter(None, [tried(state, one.plan).removeprefix(", "), either])):
            first.append(html.Small(note, className="hint"))
    else:
        first = [html.Span(label(one.plan)), " ", html.Small(lack(one), className="bad")]
    chance = f"{100 * standing.probability_fastest:.0f} %" if standing is not None else "\N{EN DASH}"
    cells = [
        html.Td(str(place + 1) if place >= 0 else "\N{EN DASH}"), html.Td(html.Div(first, className="first"), className="text"),
        html.Td(_bar(times, longest, "s"), className="bar"), html.Td(f"{one.step_time:.4g}"),
        html.Td(f"{one.tokens_per_second / one.plan.gpus:,.0f}", className="wide"),
        html.Td(_bar(held, fullest, "GiB", one.memory_limit), className="bar"),
        html.Td(f"{one.needed_memory / GiB:.1f}", className="wide"), html.Td(chance, className="wide"),
    ]  # fmt: skip
    return html.Tr(cells, className="on" if on else "beside" if beside else "off" if place < 0 else "")


def _chosen(state: State, place: int) -> tuple[str, str]:
    """What choosing a plan changes in the link, and what it does; where two are compared, it is about the second."""
    if state.beside < 0:
        return f"row={place}", "look at"
    if place == state.row:
        return "beside=-1", "look alone at"
    if place == state.beside:
        return f"row={place}&beside={state.row}", "look first at"
    return f"beside={place}", "compare with"


def _seen(fill: str) -> str:
    """A colour that is seen on dark ground too: black is as light there as the text."""
    return "var(--ink)" if fill == BLACK else fill


def _bar(parts: Sequence[tuple[str, float, str]], whole: float, unit: str, limit: float | None = None) -> object:
    """A bar of stretches in one element; what they are stands in its label."""
    factor = GiB if unit == "GiB" else 1.0
    shown = [(name, value, fill) for name, value, fill in parts if value > 0.0]
    said = ", ".join(f"{part_name(name)} {value / factor:.3g} {unit}" for name, value, _ in shown)
    stops, end = [], 0.0
    for _, value, fill in shown:
        begin, end = end, end + 100.0 * value / whole
        stops.append(f"{fill} {begin:.2f}% {end:.2f}%")
    layers = [f"linear-gradient(to right, {', '.join(stops)}, transparent {end:.2f}%)"]
    if limit is not None:
        said += f"; judged to fit up to {limit / factor:.3g} {unit}"
        at = f"{100.0 * min(limit / whole, 1.0):.2f}%"
        mark = f"transparent calc({at} - 2px), var(--ink) calc({at} - 2px) {at}, transparent {at}"
        layers.insert(0, f"linear-gradient(to right, {mark})")
    style = {"backgroundImage": ", ".join(layers)}
    return html.Div(className="stretches", role="img", title=said, style=style, **{"aria-label": said})


def tabs(state: State) -> list[object]:
    """The tabs of the chart."""
    return [
        html.Button(
            name.capitalize(), type="button", role="tab", id=f"tab-{name}", tabIndex=0 if state.tab == name else -1,
            **{"data-set": f"tab={name}", "aria-selected": str(state.tab == name).lower(), "aria-controls": "panel"},
        )
        for name in TABS
    ]  # fmt: skip


def strip(answer: Answer) -> dict[str, dict[str, object]]:
    """For each slider whether it is there, what it is called, what it stands at, and in doublings how far it goes."""
    cluster, model = answer.before.cluster, answer.before.model
    given: Mapping[str, float] = dict(answer.state.factors)
    names = called(model, cluster)
    shown: dict[str, dict[str, object]] = {
        name: {"shown": name in names, "label": names.get(name, ""), "text": ""} for name in SLIDERS
    }
    bases = {name: (level.bandwidth / level.oversubscription / GB, "GB/s")
             for name, level in zip(SLIDERS, cluster.levels, strict=False)}  # fmt: skip
    bases["memory"] = float(cluster.device.usable_memory or cluster.device.memory) / GiB, "GiB"
    for name, (base, unit) in bases.items():
        now = float(f"{base * given.get(name, 1.0):.3g}")
        shown[name] |= {"text": f"{now:,.15g} {unit}", "base": base, "unit": unit}
    shown["latency"]["text"] = _times(given.get("latency", 1.0))
    limits = ends(model, cluster)
    most = limits["efficiency"][1]
    factor, top = min(given.get("efficiency", 1.0), most), PEAK if most < LARGEST_FACTOR else ""
    of = top if at_peak(factor, most) else f"{100.0 * factor * reached(cluster):.0f} % of peak"
    shown["efficiency"] |= {"text": f"{_times(factor)}, {of}", "base": reached(cluster), "top": top}
    if "imbalance" in names:
        load = max(1.0, model.expert_imbalance * given.get("imbalance", 1.0))
        even = ", even" if load == 1.0 else ""
        shown["imbalance"] |= {"text": f"{load:.2f}{even}", "base": model.expert_imbalance}
    for name in SLIDERS:
        least, most = limits.get(name, (1.0 / LARGEST_FACTOR, LARGEST_FACTOR))
        shown[name] |= {"least": math.log2(least), "most": math.log2(most)}
    price = answer.state.price
    shown["price"] = {"shown": True, "label": "price of a GPU-hour", "text": f"{price:.2f}" if price else "not asked"}
    return shown


def _times(factor: float) -> str:
    return f"{factor:.3g}\N{MULTIPLICATION SIGN}"


def other(answer: Answer) -> int:
    """The place of the first plan that is worth comparing with the chosen one: no twin of it; -1 where there is none."""
    chosen = answer.chosen
    if chosen is None:
        return -1
    return next((
        place for place, one in enumerate(answer.found)
        if abs(one.step_time / chosen.step_time - 1.0) > TWIN
        or abs(float(one.memory.total) / float(chosen.memory.total) - 1.0) > TWIN
    ), -1)  # fmt: skip
