"""Arguments of functions by what people call them: ``gpu="h100"``, ``zero=3``, ``micro_batch_size=2``, ``lora=True``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

from costmodel.catalogue.hardware_words import called_hardware, said_hardware
from costmodel.description.fields import nearest, short_names, table
from costmodel.description.plan import Plan
from costmodel.text.errors import InvalidValue
from costmodel.text.other_names import (
    ALGORITHMS,
    NODES_AND_THEIRS,
    OF_A_NODE,
    all_meant,
    argument_meant,
    argument_of,
    said_by_value,
    value_meant,
)
from costmodel.text.units import plain_number, read_count, whole_number

P = ParamSpec("P")
R = TypeVar("R")
OF_RUNS = {"tokens", "price", "days", "epochs", "steps", "samples"}
"""Arguments of a whole run, which people give a step, too."""
COUNTS = ("nodes", "gpus")
READ_HERE = (*COUNTS, "global_batch", "seq_len", "adapter", "price", "days", "mfu", "tokens_per_second")
"""Arguments whose values may be words for something else."""


class _Door(NamedTuple):
    """A function that is asked."""

    name: str
    own: tuple[str, ...]  # its arguments, those by place first
    places: int  # how many may go by their places
    open_ended: bool  # whether it takes further ones
    instead: Mapping[str, str]  # its names for arguments that other functions have


def by_other_names(**instead: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function take its arguments, and fields of a plan, by their short names and by what other programs call them.

    Parameters
    ----------
    instead : its own names for arguments that are called otherwise elsewhere, as ``device="clusters"``

    Examples
    --------
    >>> @by_other_names()
    ... def asked(model, cluster=None, **choices):
    ...     return cluster, choices
    >>> asked("llama3-8b", gpus="8xh100", zero=3, lora=True)
    ('8xh100', {'zero_stage': 3, 'adapter': 'lora'})
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        code = function.__code__
        own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        door = _Door(function.__name__, own, code.co_argcount, bool(code.co_flags & inspect.CO_VARKEYWORDS), instead)
        plain = frozenset(own).difference(READ_HERE)

        @functools.wraps(function)
        def asked(*arguments: P.args, **said: P.kwargs) -> R:
            fits = len(arguments) <= code.co_argcount  # else Python says so
            if not fits or (said.keys() <= plain and not _has_plan_for_hardware(arguments)):
                return function(*arguments, **said)
            try:
                return function(*arguments[:1], **_as_meant(door, arguments, said))  # type: ignore[arg-type]
            except InvalidValue as refused:
                if refused.expected != "a field of Plan":  # near to none of them: it may be near to an argument
                    raise
                raise InvalidValue(refused.field, refused.value, f"{refused.expected}{nearest(refused.field, own)}") from None

        return asked

    return decorated


def _has_plan_for_hardware(by_place: tuple[object, ...]) -> bool:
    """Whether a plan stands right behind the model: hardware then goes by its name."""
    return len(by_place) > 1 and isinstance(by_place[1], Plan)


def _as_meant(door: _Door, by_place: tuple[object, ...], said: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments behind the first by the names that a function has for them."""
    names = ("plan" if _has_plan_for_hardware(by_place) else door.own[1], *door.own[2 : door.places])
    found: dict[str, Any] = all_meant(said, functools.partial(_own_names, door), dict(zip(names, by_place[1:], strict=False)))
    where = "clusters" if "clusters" in door.own else "cluster"
    unsaid = found.get(where) is None and found.get("device") is None
    if unsaid and _is_hardware(found.get("gpus")):
        found[where] = found.pop("gpus")
    if "count" in said and isinstance(name := found.get(where), str) and getattr(called_hardware(name), "kind", "") == "cluster":
        found["nodes"] = found.pop("gpus")  # of instances, or of other systems of nodes
    each = next((name for name in map(argument_of, OF_A_NODE) if isinstance(found.get(name), int)), None)
    if found.get(where) is None and found.get("gpus") is None and each is not None:
        found["gpus"] = found.pop(each) * (found.get("nodes") or 1)
    elif said.keys() >= set(map(argument_of, NODES_AND_THEIRS)) and all(isinstance(found.get(one), int) for one in COUNTS):
        found["gpus"] *= found["nodes"]
    return found


def _own_names(door: _Door, name: str, value: Any) -> dict[str, Any]:
    """One argument by the names that a function has for it."""
    short = short_names(Plan)
    known = (name in door.own or name in table(Plan) or name in short) and said_by_value(name, value) is None
    meant = {short.get(name, name): value} if known else argument_meant(name, value)
    own = {*door.own, *(("samples",) if "rollouts" in door.own else ())}  # which have samples of a step
    if door.open_ended and meant.keys() & OF_RUNS - own:
        wanted = "tokens in its place" if "tokens" in door.own else f"nothing of {door.name}: time_to_train(...) takes it"
        raise InvalidValue(name, value, f"{wanted}, of a whole run")
    meant = {one: _read(one, told) for one, told in meant.items()}
    algorithm = str(meant.get("algorithm", meant.get("adapter"))).lower()
    if algorithm in ALGORITHMS and "algorithm" not in door.own:
        wanted = "an adapter" if "adapter" in meant else f"nothing of {door.name}"
        raise InvalidValue(name, value, f"{wanted}; post_training(..., algorithm={algorithm!r}) prices a step of it")
    meant = {door.instead.get(one, one): told for one, told in meant.items()}
    if not door.open_ended and not meant.keys() <= set(door.own):
        raise InvalidValue(name, value, f"an argument of {door.name}: {', '.join(door.own)}")
    return meant


def _read(name: str, value: Any) -> Any:
    """A value, or each of several, as its field has it where it is a text or another word."""
    if name in COUNTS and isinstance(value, str):
        return whole_number(value) or value
    if name in ("price", "days", "mfu") and isinstance(value, str):
        return plain_number(value)
    if name == "tokens_per_second" and isinstance(value, str):
        return read_count(name, value)
    if name not in (fields := table(Plan)):
        return value_meant(name, value)
    kind = fields[name].kind
    if isinstance(value, list | tuple) and not kind.several:
        return type(value)(kind.read(name, one) for one in value)
    return kind.read(name, value)


def _is_hardware(value: object) -> bool:
    """Whether a value that stands for a number of GPUs says of what kind they are."""
    several = value if isinstance(value, list | tuple) else [value]
    return bool(several) and all(isinstance(one, str) and (said_hardware(one) or called_hardware(one)) for one in several)
