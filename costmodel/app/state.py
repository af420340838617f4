"""What a visitor asks and looks at, written into the query of a link and read from it strictly."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from costmodel.arithmetic.named_tuples import changed, made
from costmodel.catalogue.loader import names
from costmodel.catalogue.software import framework_names
from costmodel.description.fields import Real, table
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.text.checks import choice, positive_int, real, whole
from costmodel.text.errors import CostModelError, InvalidValue, UnknownName
from costmodel.text.units import read_count, whole_number

LONGEST = 8000
"""Characters of a query."""
MOST_TOKENS = 1e18
MOST_GPUS, MOST_BATCH, MOST_LENGTH, MOST_VALUES = 131_072, 1_000_000, 4_194_304, 12
TABS = ("time", "memory", "frontier", "scaling", "sensitivity", "timeline")
SORTS = ("place", "plan", "besides", "step", "rate", "state", "memory", "fastest")
CONSTRAINTS = {row.link: name for name, row in table(Plan).items() if row.link}
"""Fields of a plan that the page can fix, by their name in a link; values with commas between them."""
SLIDERS = ("inner", "middle", "outer", "latency", "memory", "efficiency", "imbalance")
"""Factors: bandwidth of each level from the innermost, latency of all, memory, efficiency, imbalance of experts."""
LARGEST_FACTOR = 8.0


class OwnStep(NamedTuple):
    """A measured step: what was trained how, on which GPU with which framework, and how long it took."""

    model: str
    device: str
    framework: str
    plan: Plan
    seconds: float


@dataclasses.dataclass(frozen=True)
class State:
    """All that a page shows follows from it.

    Parameters
    ----------
    model : name in the catalogue, where `config` holds none
    config : fields of a model of the visitor's own, as JSON
    cluster, framework : names in the catalogue
    runs : measured steps of the visitor's own, as `write_runs` has them
    device : a GPU of the catalogue, in nodes as its clusters have, in place of the cluster; empty: the cluster's own
    against : a second cluster, or none
    gpus, batch, seq : GPUs, sequences per step, tokens of a sequence
    tokens : of the whole run; 0 where it isn't asked for
    fixed : values of fields of a plan, by the names of `CONSTRAINTS`
    factors : of `SLIDERS` that are moved
    price : of a GPU-hour, in any currency; 0 where it doesn't matter
    row, beside : places of the plan that is looked at, and of one that it is compared with, from 0; beside -1: none
    tab, sort, down : what is drawn, by what the table is sorted, and whether from the largest
    more : whether the table shows all ranked plans
    """

    model: str = "llama3-70b"
    config: str = ""
    runs: str = ""
    cluster: str = "dgx-h100"
    device: str = ""
    framework: str = "megatron-core"
    against: str = ""
    gpus: int = 64
    batch: int = 1024
    seq: int = 8192
    tokens: float = 0.0
    fixed: tuple[tuple[str, str], ...] = ()
    factors: tuple[tuple[str, float], ...] = ()
    price: float = 0.0
    row: int = 0
    beside: int = -1
    tab: str = "time"
    sort: str = "place"
    down: bool = False
    more: bool = False

    def __post_init__(self) -> None:
        if self.config:
            read_fields(self.config)
        else:
            _known("model", self.model, names("model"))
        _ = self.own_steps
        _known("cluster", self.cluster, names("cluster"))
        _known("device", self.device, ("", *names("device")))
        _known("framework", self.framework, framework_names())
        _known("cluster", self.against, ("", *names("cluster")))
        positive_int("gpus", self.gpus, MOST_GPUS)
        positive_int("batch", self.batch, MOST_BATCH)
        positive_int("seq", self.seq, MOST_LENGTH)
        for name, factor in self.factors:
            real(choice("factor", name, SLIDERS), factor, 1.0 / LARGEST_FACTOR, LARGEST_FACTOR)
        real("price", self.price, 0.0, 1e6)
        real("tokens", self.tokens, 0.0, MOST_TOKENS)
        whole("row", self.row, 99)
        whole("beside", self.beside + 1, 100)
        choice("tab", self.tab, TABS)
        choice("sort", self.sort, SORTS)
        _ = self.dimensions

    @property
    def own_steps(self) -> tuple[OwnStep, ...]:
        """Measured steps of the visitor's own."""
        try:
            rows = json.loads(self.runs or "[]")
            steps = tuple(
                OwnStep(model, device, software, made(Plan, fields), seconds) for model, device, software, fields, seconds in rows
            )
        except CostModelError:
            raise
        except (ValueError, TypeError, RecursionError):
            raise InvalidValue("runs", self.runs[:40], "measured steps, as the page writes them") from None
        for step in steps:
            _known("model", step.model, names("model"))
            real("seconds", step.seconds, 1e-6, 1e6)
        return steps

    @property
    def dimensions(self) -> dict[str, list[float | str]]:
        """What `costmodel.search` takes of the constraints."""
        found: dict[str, list[float | str]] = {}
        template = Plan(global_batch=1, seq_len=1)
        for name, text in self.fixed:
            field = CONSTRAINTS[choice("constraint", name, tuple(CONSTRAINTS))]
            values = [_value(field, part.strip()) for part in text.split(",") if part.strip()]
            if not values or len(values) > MOST_VALUES:
                raise InvalidValue(name, text, f"1 to {MOST_VALUES} values with commas between them")
            for value in values:
                changed(template, {field: value})
            found[field] = values
        return found

    @property
    def question(self) -> State:
        """The part that the first search depends on: no slider, no view."""
        plain = State()
        views = ("factors", "price", "tokens", "row", "beside", "tab", "sort", "down", "more", "against")
        kept = {name: getattr(plain, name) for name in views}
        return dataclasses.replace(self, **kept)

    def query(self) -> str:
        """The state as the query of a link; what is as it comes is left out."""
        plain, pairs = State(), []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value == getattr(plain, field.name) or (field.name == "model" and self.config):
                continue
            if field.name == "fixed":
                pairs += list(value)
            elif field.name == "factors":
                pairs += [(f"x.{name}", f"{factor:.6g}") for name, factor in value]
            else:
                pairs.append((field.name, f"{value:d}" if isinstance(value, bool) else _written(value)))
        return urlencode(pairs)


def _written(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _known(kind: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise UnknownName(kind, name[:80], known)


def _value(field: str, text: str) -> float | str:
    kind = table(Plan)[field].kind
    if isinstance(kind, Real):
        return _number(field, text)
    if kind.whole and text.isascii() and text.isdigit() and len(text) < 8:
        return int(text)
    if not kind.choices:
        raise InvalidValue(field, text[:40], "whole numbers with commas between them")
    return text[:40]


def read_state(query: str) -> State:
    """The state of a link.

    Parameters
    ----------
    query : of the link, without its question mark

    Raises
    ------
    InvalidValue
        for a query that is too long, a name that no page writes, a name that is there twice, or a bad value
    """
    if not isinstance(query, str) or len(query) > LONGEST:
        raise InvalidValue("link", f"{len(query) if isinstance(query, str) else 0} characters", f"at most {LONGEST}")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=64)
    except ValueError:
        raise InvalidValue("link", query[:60], "names and values, as the page writes them") from None
    plain = {field.name: field.default for field in dataclasses.fields(State)}
    given: dict[str, object] = {}
    fixed: dict[str, str] = {}
    factors: dict[str, float] = {}
    seen = set()
    for name, text in pairs:
        if name in seen:
            raise InvalidValue("link", name[:40], "each name once")
        seen.add(name)
        if name in CONSTRAINTS:
            if text:
                fixed[name] = text
        elif name.startswith("x."):
            factor = _number(name, text)
            if not abs(factor - 1.0) <= 1e-9:  # nan too
                factors[name[2:]] = factor
        elif name in plain and name not in ("fixed", "factors"):
            given[name] = _read(name, text, plain[name])
        else:
            raise InvalidValue("link", name[:40], "a name that the page writes")
    return made(State, {**given, "fixed": tuple(sorted(fixed.items())), "factors": tuple(sorted(factors.items()))})


def _number(name: str, text: str) -> float:
    try:
        return float(text[:40])
    except ValueError:
        raise InvalidValue(name[:40], text[:40], "a number") from None


def _read(name: str, text: str, plain: object) -> object:
    if isinstance(plain, str):
        return text
    if name == "tokens":
        return read_count(name, text)
    if isinstance(plain, float):
        return _number(name, text)
    number = whole_number(text.replace(",", "")) if text.isascii() and len(text) < 16 else None
    if number is None:
        raise InvalidValue(name, text[:40], "a whole number")
    return bool(number) if isinstance(plain, bool) else number


def write_runs(steps: Sequence[OwnStep]) -> str:
    """Measured steps as JSON, with the fields of their plans that aren't as a `Plan` comes."""
    rows = [[*step._replace(plan=_different(step.plan))] for step in steps]  # type: ignore[arg-type]
    return json.dumps(rows, separators=(",", ":"))


def _different(described: Transformer | Plan) -> dict[str, object]:
    """Fields that aren't as the class has them."""
    every = ((field, getattr(described, field.name)) for field in dataclasses.fields(described))
    return {field.name: value for field, value in every if value != field.default}


def write_fields(model: Transformer) -> str:
    """The fields of a model that differ from what a `Transformer` comes with, as JSON."""
    return json.dumps(_different(model), separators=(",", ":"))


def read_fields(text: str) -> Transformer:
    """A model from its fields as JSON.

    Parameters
    ----------
    text : as `write_fields` writes it

    Raises
    ------
    InvalidValue
        for anything else
    """
    try:
        fields = json.loads(text[:LONGEST])
    except (ValueError, RecursionError):
        raise InvalidValue("config", text[:40], "fields of a model as JSON") from None
    known = {field.name for field in dataclasses.fields(Transformer)}
    plain = (str, int, float, bool)
    if not isinstance(fields, dict) or not set(fields) <= known or not all(isinstance(v, plain) for v in fields.values()):
        raise InvalidValue("config", text[:40], "fields of a model: " + ", ".join(sorted(known)))
    try:
        return Transformer(**fields)
    except CostModelError:
        raise
    except TypeError:
        raise InvalidValue("config", text[:40], "all fields that a model needs") from None
