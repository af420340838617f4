"""Cells of a sweep: one search each, and the rows that it leaves in a table."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.software import load_framework
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.plan_search import search
from costmodel.evaluation.price import price_per_billion_tokens
from costmodel.evaluation.search_result import SearchResult
from costmodel.text.errors import CostModelError
from costmodel.text.version import __version__

KINDS = {"int": "int64", "bool": "bool", "float": "float64", "str": "string", "str | float": "string", "Sequence[str]": "string"}
"""Types of columns by the annotation of a field of `Plan`."""
ASKED = {
    "cell": "int64", "model": "string", "cluster": "string", "gpus": "int64", "framework": "string", "global_batch": "int64",
    "seq_len": "int64", "price_per_gpu_hour": "float64",
}  # fmt: skip
FOUND = {
    "status": "string", "reason": "string", "considered": "int64", "evaluated": "int64", "fitting": "int64", "rank": "int64",
    "step_time_s": "float64", "tokens_per_second": "float64", "mfu": "float64", "peak_memory_bytes": "float64",
    "memory_limit_bytes": "float64", "fit_probability": "float64", "price_per_billion_tokens": "float64",
}  # fmt: skip
PLAN = {
    field.name: KINDS[str(field.type).removesuffix(" | None")]
    for field in dataclasses.fields(Plan) if field.name not in ASKED
}  # fmt: skip
COLUMNS = ASKED | FOUND | PLAN
"""Columns of the table and their types. ``status`` is ``ranked``, ``nothing fits``, ``no legal plan`` or ``failed``; of all but
the first ``reason`` says why in a line, and the columns of a plan are empty."""


class Definition(NamedTuple):
    """Everything that a sweep is over: its cells are every combination, the last axis the fastest.

    Parameters
    ----------
    models, clusters, frameworks, global_batches, seq_lens : the axes; clusters of every size that is asked for
    prices : of a GPU for an hour, by the cluster's name, for each of which a plan gets a row of its own
    asked : what every search is given besides
    """

    models: tuple[Transformer, ...]
    clusters: tuple[Cluster, ...]
    frameworks: tuple[Framework | str, ...]
    global_batches: tuple[int, ...]
    seq_lens: tuple[int, ...]
    prices: Mapping[str, tuple[float | None, ...]]
    asked: Mapping[str, Any]

    @property
    def axes(self) -> tuple[Sequence[Any], ...]:
        """The axes, the last one the fastest."""
        return self.models, self.clusters, self.frameworks, self.global_batches, self.seq_lens

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return math.prod(map(len, self.axes))

    def cell(self, number: int) -> tuple[Transformer, Cluster, Framework | str, int, int]:
        """Model, cluster, framework, global batch and sequence length of a cell."""
        found: list[Any] = []
        for axis in reversed(self.axes):
            number, place = divmod(number, len(axis))
            found.append(axis[place])
        model, cluster, framework, batch, length = reversed(found)
        return model, cluster, framework, batch, length

    @property
    def digest(self) -> str:
        """Tells this sweep from any other, and from the same by another version of the library.

        Names are no content: a cluster, or the file of a framework, may be changed and keep its name.
        """
        described = [load_framework(one) if isinstance(one, str) else one for one in self.frameworks]
        content = _spelled((__version__, *self, described))
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _spelled(value: object) -> object:
    """Everything that a description holds, as JSON has it: what a person is shown leaves out most of it."""
    if isinstance(value, bool | int | float | str | None):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, [[field.name, _spelled(getattr(value, field.name))] for field in dataclasses.fields(value)]]
    if isinstance(value, Mapping):
        return {"table": sorted([str(key), _spelled(inner)] for key, inner in value.items())}
    if isinstance(value, Iterable):
        return [_spelled(inner) for inner in value]
    return repr(value)


class CellRows(NamedTuple):
    """What some cells leave."""

    rows: list[Row]  # of the table, by the names of `COLUMNS`
    plans: int  # that were evaluated
    failed: int  # cells that failed


def run_cells(definition: Definition, start: int, stop: int) -> CellRows:
    """The rows of some cells; a cell that fails leaves a row that says why, and the others go on.

    Parameters
    ----------
    definition : of the sweep
    start, stop : cells from one to before the other
    """
    rows: list[Row] = []
    plans = failed = 0
    for number in range(start, stop):
        model, cluster, framework, batch, length = definition.cell(number)
        head = {
            "cell": number, "model": model.name, "cluster": cluster.name, "gpus": int(cluster.gpus or 1),
            "framework": framework if isinstance(framework, str) else framework.name, "global_batch": batch, "seq_len": length,
        }  # fmt: skip
        prices = definition.prices[cluster.name]
        try:
            result = search(model, cluster, global_batch=batch, seq_len=length, framework=framework, **definition.asked)
        except Exception as error:
            reason = str(error) if isinstance(error, CostModelError) else f"{type(error).__name__}: {error}"
            found, failed = [{"status": "failed", "reason": " ".join(reason.split())}], failed + 1
            rows += [head | {"price_per_gpu_hour": price} | row for price in prices for row in found]
            continue
        plans += result.evaluated
        rows += [head | {"price_per_gpu_hour": price} | row for price in prices for row in _found(result, price)]
    return CellRows(rows, plans, failed)


def _found(result: SearchResult, price: float | None) -> list[Row]:
    counts = {"considered": result.considered, "evaluated": result.evaluated, "fitting": result.fitting}
    if not result.ranked:
        status = "nothing fits" if result.evaluated else "no legal plan"
        return [{"status": status, "reason": result.why_none(), **counts}]
    return [{"status": "ranked", "rank": place, **counts, **_plan(found, price)} for place, found in enumerate(result.ranked, 1)]


def _plan(found: Estimate, price: float | None) -> Row:
    """The columns of a plan."""
    fields: Row = {}
    for name, kind in PLAN.items():
        value = getattr(found.plan, name)
        text = "-".join(value) if isinstance(value, tuple) else value
        fields[name] = str(text) if kind == "string" and text is not None else text
    return {
        "step_time_s": found.step_time, "tokens_per_second": found.tokens_per_second, "mfu": found.mfu,
        "peak_memory_bytes": float(found.memory.total), "memory_limit_bytes": found.memory_limit,
        "fit_probability": found.fit_probability,
        "price_per_billion_tokens": None if price is None else price_per_billion_tokens(found, price), **fields,
    }  # fmt: skip
