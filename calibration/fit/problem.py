"""Measured runs as rows of the pooled fit: to whom each belongs, and what is predicted of it."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from calibration.data.cases import Case
from calibration.data.datasets import dataset_of, software_of
from calibration.fit.fields import CLOCKS, MEMORY, TIME, Field
from calibration.fit.pooled import Grouping, Model
from calibration.validate.predictions import columns_of, evaluated, logged_memory
from costmodel.arithmetic.named_tuples import as_number, flat, nested, replaced
from costmodel.evaluation.error_model import NINETY
from costmodel.evaluation.own_runs_fit import Array
from costmodel.formulas.quantities import DeviceNumbers, Inputs

ROWS_OF_GROUP = 40
FABRICS = {"roce": "roce", "efa": r"\befa\b", "omni-path": "omni|opa", "infiniband": r"infiniband|\bib\b|\b[hn]dr\b"}
"""Kinds of network, by what names them in lower case, in the order in which they are looked for."""
TIME_FREEDOM = 2.0
"""Degrees of freedom of the scatter of step times: of 1 to 4, those with which plans that are publicly known to be good come out
as their reports say, at errors that are alike at all distances (8.9 to 9.0 % at a new model)."""
LARGEST_PULL = 0.25
"""Log distance from the limit beyond which a run that was marked out of memory no longer pulls at the constants."""


def cluster_name(case: Case) -> str:
    """The machine that a row ran on, as far as a source tells: its device, its NICs, and the kind of network between nodes."""
    between, text = case.cluster.levels[-1].bandwidth, case.run.text
    return f"{text['dataset']}|{case.cluster.device.name}|{between:.3g}|{fabric_of(text.get('inter_node_link', ''))}"


def fabric_of(words: str) -> str:
    """Kind of network in a source's words; empty where they name none.

    Examples
    --------
    >>> fabric_of("8x HDR 200 Gb/s InfiniBand per node"), fabric_of("ROCE2; 504 GB/s"), fabric_of("n/a (single node)")
    ('infiniband', 'roce', '')
    """
    return next((kind for kind, named in FABRICS.items() if re.search(named, words.lower())), "")


def framework_owner(case: Case) -> str:
    """The owner of a framework's effects: apart is one as its own tests run it, with nothing tuned, and software that the
    catalogue hasn't, which runs by the habits of another and says nothing of it."""
    if software_of(case.run) is None:
        return case.run.text["stack"]
    return f"{case.framework.name} untuned" if dataset_of(case.run).untuned else case.framework.name


def memory_owner(case: Case) -> str:
    """The owner of a framework's effects on memory: a trainer of a source's own has its own buffers and temporaries,
    whosever schedule and kernels it runs by."""
    return dataset_of(case.run).trainer or framework_owner(case)


def model_name(case: Case) -> str:
    """The model of a row by its shape."""
    model = case.model
    width = model.expert_feed_forward if model.experts else model.feed_forward
    return f"{model.layers}x{model.hidden}x{model.heads}x{width}x{model.experts}"


def group_name(case: Case) -> str:
    """Source, model, device, dtype and release of a row."""
    text = case.run.text
    return "|".join((text["dataset"], model_name(case), case.cluster.device.name, str(case.plan.dtype), text["framework"]))


def grouping_of(cases: Sequence[Case], owner: Callable[[Case], str] = framework_owner) -> Grouping:
    """To whom each case belongs; `owner` says to which framework's effects."""
    framework = np.array([owner(case) for case in cases])
    architecture = np.array([case.cluster.device.architecture for case in cases])
    cluster = np.array([cluster_name(case) for case in cases])
    owners = {
        "field": np.full(len(cases), ""), "framework": framework, "architecture": architecture,
        "framework on architecture": np.char.add(np.char.add(framework, "@"), architecture), "cluster": cluster,
        "device": np.array([case.cluster.device.name for case in cases]),
    }  # fmt: skip
    return Grouping(
        owners, cluster, np.array([group_name(case) for case in cases]), np.array([case.run.file for case in cases])
    )


def stated_spread(words: str) -> float:
    """Standard deviation of the logarithm of a time that its source's notes say to hold within a share, taken for nine in ten.

    Examples
    --------
    >>> round(stated_spread("source: JZ results +/-40% (network variability)"), 2), stated_spread("3 runs")
    (0.24, 0.0)
    """
    said = re.search(r"results \+/-\s*(\d+) ?%", words)
    return int(said.group(1)) / 100.0 / NINETY if said else 0.0


def constants_of(fields: Sequence[Field], places: Array) -> dict[str, Array]:
    """Columns of the constants at places on their lines."""
    found = {}
    for number, field in enumerate(fields):
        place = np.clip(places[:, number], -40.0, 40.0)
        span = np.exp(place) if math.isinf(field.high) else (field.high - field.low) / (1.0 + np.exp(-place))
        found[field.path] = field.low + span
    return found


def clocked(device: DeviceNumbers, clocks: Sequence[Array | float]) -> DeviceNumbers:
    """Devices at shares of the clock of short bursts, numbers or columns, as `calibration.fit.fields.CLOCKS` orders them."""
    wide, narrow = clocks
    return device._replace(
        sustained_clock=as_number(device.sustained_clock * wide), narrow_clock=as_number(device.narrow_clock * narrow)
    )


def columns_at(columns: Inputs, fields: Sequence[Field], places: Array) -> Inputs:
    """The columns with the constants at some places."""
    constants = constants_of(fields, places)
    clocks = [constants.pop(clock) for clock in CLOCKS if clock in constants]
    device = clocked(columns.device, clocks) if clocks else columns.device
    return columns._replace(software=replaced(columns.software, constants), device=device)


def take(columns: Inputs, rows: Array) -> Inputs:
    """Some rows of the columns."""

    return nested(Inputs, {path: np.asarray(column)[rows] for path, column in flat(columns).items()})


def time_model(cases: Sequence[Case], columns: Inputs | None = None) -> Model:
    """Timed cases as a model of the logarithm of their step time."""
    known = columns or columns_of(cases)

    def predict(places: Array, rows: Array | None) -> Array:
        some = known if rows is None else take(known, rows)
        return np.log(np.asarray(evaluated(columns_at(some, TIME, places)).total))

    stated = np.array([stated_spread(case.run.text.get("notes", "")) for case in cases])
    grouping = dataclasses.replace(grouping_of(cases), stated=stated)
    return Model(TIME, grouping, np.log([float(case.seconds or math.nan) for case in cases]), predict, TIME_FREEDOM)


def memory_model(cases: Sequence[Case], columns: Inputs | None = None) -> Model:
    """Cases as a model of the logarithm of their peak memory, or, where none was measured, of the room that is left.

    The verdict on a run tells one side only: where it is judged right the row is met, whatever the constants.
    """
    known = columns or columns_of(cases)
    failed = np.array([case.run.flag("usable_oom") for case in cases])
    told = np.array([case.run.text["recompute_kind"] != "" for case in cases])
    peak = np.array([case.peak_bytes or math.nan for case in cases])

    def predict(places: Array, rows: Array | None) -> Array:
        chosen = np.arange(len(cases)) if rows is None else rows
        at = columns_at(take(known, chosen), MEMORY, places)
        bill = evaluated(at).memory
        room = np.log(np.asarray(bill.total) / at.device.memory)
        wrong = np.where(failed[chosen], np.clip(room, -LARGEST_PULL, 0.0), np.maximum(room, 0.0))
        held = np.log(logged_memory([cases[int(row)] for row in chosen], at, bill))
        return np.where(np.isnan(peak[chosen]), np.where(told[chosen], wrong, 0.0), held)

    return Model(MEMORY, grouping_of(cases, memory_owner), np.where(np.isnan(peak), 0.0, np.log(peak)), predict)


def thinned(grouping: Grouping, most: int = ROWS_OF_GROUP) -> Array:
    """Rows that are fitted: of a group with more than `most` an even draw, by a fixed seed.

    Rows of a group share their intercept, so that those beyond some tens say little more of the constants.

    Parameters
    ----------
    grouping : of all rows
    most : rows of a group
    """
    order = np.random.default_rng(11).permutation(len(grouping.group))
    seen: dict[str, int] = {}
    kept = []
    for row in order:
        name = str(grouping.group[row])
        seen[name] = seen.get(name, 0) + 1
        if seen[name] <= most:
            kept.append(row)
    return np.sort(np.array(kept))
