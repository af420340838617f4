r"""What a formula says about itself: its page, its elasticity in each input, and where it meets another.

All of it comes from the one definition that is computed with: the page from its docstring and its trace, elasticities
from the trace by the chain rule, crossings from the traces of both.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import math
import pkgutil
import re
import tomllib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import SupportsFloat

import sympy

from costmodel import formulas
from costmodel.compilation.algebra import AlgebraTrace, _leaves, _Python, _slope, _written, operations, trace
from costmodel.text.checks import real
from costmodel.text.errors import InvalidValue, UnknownName

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
MATHEMATICS = re.compile(r":math:`([^`]*)`")
SIMPLIFIED = 8
"""Operations of a formula for each line of its algebra, at most: so many more are not worth tracing to count lines."""
MOST_NESTED = 12
"""Lines of a trace that are written as one expression."""
SAMPLES = 400
"""Places between the ends, spread evenly in the logarithm, between which a crossing is looked for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Page:
    """A formula as a page."""

    name: str  # module and function
    summary: str  # what it is, in a line
    equations: tuple[str, ...]  # in LaTeX, as its docstring has them; traced from the code where it has none
    parameters: tuple[tuple[str, str], ...]  # name and meaning, with the unit, of each argument
    assumptions: str  # within which it holds; empty where it states none
    sources: tuple[str, ...]  # papers, and where in them


@functools.cache
def formula_names() -> Mapping[str, Callable[..., object]]:
    """Every formula of the library by module and name."""
    found = {}
    for info in pkgutil.walk_packages(formulas.__path__, prefix=f"{formulas.__name__}."):
        module = importlib.import_module(info.name)
        for name, function in vars(module).items():
            own = isinstance(function, types.FunctionType) and function.__module__ == module.__name__
            if own and not name.startswith("_"):
                found[f"{info.name.removeprefix(formulas.__name__ + '.')}.{name}"] = function
    return types.MappingProxyType(found)


def find_formula(name: str) -> tuple[str, Callable[..., object]]:
    """A formula by its name, with its module or alone where one module has it.

    Parameters
    ----------
    name : such as ``"goodput.young_interval"`` or ``"young_interval"``

    Raises
    ------
    UnknownName
        for a name that there isn't
    InvalidValue
        for one that several modules have

    Examples
    --------
    >>> find_formula("young_interval")[0]
    'systems.reliability.young_interval'
    """
    known = formula_names()
    matching = [full for full in known if full == name or full.endswith(f".{name}")]
    if name in known:
        return name, known[name]
    if len(matching) > 1:
        raise InvalidValue("formula", name, "one of " + ", ".join(matching))
    if not matching:
        raise UnknownName("formula", name, [*known, *(full.rpartition(".")[2] for full in known)])
    return matching[0], known[matching[0]]


def page(name: str) -> Page:
    """The page of a formula.

    Parameters
    ----------
    name : as `find_formula` takes it

    Examples
    --------
    >>> page("young_interval").equations
    ('\\\\tau = \\\\sqrt{2 \\\\delta M}',)
    """
    full, formula = find_formula(name)
    sections = _sections(inspect.cleandoc(formula.__doc__ or ""))
    above = sections[""]
    equations = tuple(_equations(above)) or traced_equations(formula)
    assumed = [part for section in sections.values() for part in section.split("\n\n") if part.startswith("Assum")]
    return Page(
        name=full, summary=_line(above.split("\n\n")[0]), equations=equations,
        parameters=tuple(_arguments(formula, _parameters(sections.get("Parameters", "")))), assumptions=_line(" ".join(assumed)),
        sources=tuple(_sources(sections.get("References", ""))),
    )  # fmt: skip


def _sections(doc: str) -> dict[str, str]:
    """A docstring by the titles of its sections; what is above the first under an empty one."""
    parts = SECTION.split(doc)
    return {"": parts[0].strip(), **{title: text.strip() for title, text in zip(parts[1::2], parts[2::2], strict=True)}}


def _equations(text: str) -> list[str]:
    return [_line(part.removeprefix(".. math::")) for part in text.split("\n\n") if part.startswith(".. math::")]


def traced_equations(formula: Callable[..., object], most: float = math.inf) -> tuple[str, ...]:
    r"""A formula in LaTeX from its trace; a long one line by line, since nested it would fill books.

    Parameters
    ----------
    formula : a function of `costmodel.formulas`
    most : lines of its trace beyond which nothing is written

    Examples
    --------
    >>> from costmodel.formulas.systems.reliability import young_interval
    >>> print(*traced_equations(young_interval))
    1.4142135623731 \sqrt{\mathrm{mtbf}} \sqrt{\mathrm{write\ time}}
    """
    if operations(formula) > SIMPLIFIED * most:
        return ()
    traced = trace(formula)
    if len(traced.lines) > most:
        return ()
    if len(traced.lines) <= MOST_NESTED:
        written = _written(traced)
        return (written,) if isinstance(written, str) else tuple(str(part) for part in _flat(written))
    names = {symbol: _words(str(symbol)) for symbol in (*traced.symbols.values(), *(symbol for symbol, _ in traced.lines))}
    lines = [f"{names[symbol]} = {sympy.latex(value, symbol_names=names)}" for symbol, value in traced.lines]
    results = list(_leaves(traced.result))
    ends = [f"f_{{{place}}} = {sympy.latex(value, symbol_names=names)}" for place, value in enumerate(results, 1)]
    return (*lines, *ends)


def _words(name: str) -> str:
    if re.match(r"^x\d+$", name):
        return f"x_{{{name[1:]}}}"
    escaped = name.replace("_", chr(92) + "_")
    return rf"\mathrm{{{escaped}}}"


def _flat(value: object) -> list[object]:
    return [leaf for part in value for leaf in _flat(part)] if isinstance(value, tuple) else [value]


def _arguments(formula: Callable[..., object], told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each argument in its place: with what the docstring says of it, or the module of all its formulas, or a group of itself."""
    usual: dict[str, str] = formula.__globals__.get("ARGUMENTS", {})
    meanings = {name: (name, meaning) for name, meaning in usual.items()}
    meanings |= {name: (names, meaning) for names, meaning in told for name in names.split(", ")}
    for name, kind in typing.get_type_hints(formula).items():
        if name != "return" and name not in meanings:
            meanings[name] = name, f"{kind.__name__}: {_line(re.split(r'[.](?= |$)', kind.__doc__ or '', maxsplit=1)[0])}"
    return list(dict.fromkeys(meanings[name] for name in inspect.signature(formula).parameters if name in meanings))


def _parameters(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for line in text.split("\n\n")[0].splitlines():
        head, colon, meaning = line.partition(" : ")
        if colon and not line.startswith(" "):
            found.append((head, MATHEMATICS.sub(r"\1", meaning.strip())))
        elif found:
            found[-1] = found[-1][0], MATHEMATICS.sub(r"\1", f"{found[-1][1]} {line.strip()}")
    return found


def _sources(text: str) -> list[str]:
    """Citations with what they stand for."""
    if not text:
        return []
    listed = tomllib.loads((resources.files("costmodel.catalogue") / "references.toml").read_text(encoding="utf-8"))
    found = [_line(text.split("\n\n")[0])]
    for key in re.findall(r"\[([a-z]+\d{4}\w*)\]_", text):
        entry = listed[key]
        where = entry.get("venue") or (f"arXiv:{entry['arxiv']}" if "arxiv" in entry else entry.get("url", ""))
        found.append(f"[{key}] {entry['authors']}: {entry['title']}. {where} {entry['year']}")
    return found


def _line(text: str) -> str:
    return " ".join(text.split())


# Slopes


def elasticities(formula: Callable[..., object], *arguments: object, of: str | None = None) -> dict[str, float]:
    r"""Elasticity of a formula in each of its inputs: by how many per cent it grows with one per cent of the input.

    .. math:: \frac{x}{f} \frac{\partial f}{\partial x}

    One trace and one pass backwards through its lines give all of them. Where the formula bends, at a maximum or a
    comparison, it is the slope of the branch in force; what is rounded up counts as constant.

    Parameters
    ----------
    formula : of `costmodel.formulas`
    arguments : a number or a NamedTuple of numbers for each parameter
    of : part of the result, as ``total``, where it has several

    Returns
    -------
    dict[str, float]
        by path of the input, of those on which the result depends

    Raises
    ------
    InvalidValue
        for a part that there isn't, or a result of 0

    Examples
    --------
    >>> from costmodel.formulas.systems.reliability import young_interval
    >>> {name: round(value, 9) for name, value in elasticities(young_interval, 50.0, 10000.0).items()}
    {'write_time': 0.5, 'mtbf': 0.5}
    """
    traced = trace(formula, *map(_opened, arguments))
    names = tuple(inspect.signature(formula).parameters)
    values: dict[str, float] = {}
    for name, argument in zip(names, arguments, strict=False):
        values |= _paths(name, argument)
    part = _part(traced.result, of)
    value, slopes = _gradient(traced, part, values)
    if value == 0.0:
        raise InvalidValue("of", of, "a part that is not 0 here")
    return {path: slope * values[path] / value for path, slope in slopes.items() if slope}


def _opened(value: object) -> object:
    kind: Callable[..., object] = type(value)
    return kind(*map(_opened, value)) if isinstance(value, tuple) else None


def _paths(path: str, value: object) -> dict[str, float]:
    if isinstance(value, tuple):
        parts = zip(getattr(value, "_fields", ()), value, strict=True)
        return {inner: number for field, part in parts for inner, number in _paths(f"{path}.{field}", part).items()}
    if not isinstance(value, SupportsFloat):
        raise InvalidValue(path, value, "a number")
    return {path: float(value)}


def _part(result: object, of: str | None) -> sympy.Expr:
    part = result
    for field in of.split(".") if of else ():
        if field not in getattr(part, "_fields", ()):
            raise InvalidValue("of", of, "one of the parts " + ", ".join(getattr(part, "_fields", ("none",))))
        part = getattr(part, field)
    if isinstance(part, tuple):
        raise InvalidValue("of", of, "one of the parts " + ", ".join(getattr(part, "_fields", ("none",))))
    return sympy.sympify(part)


def _gradient(traced: AlgebraTrace, part: sympy.Expr, values: Mapping[str, float]) -> tuple[float, dict[str, float]]:
    """A result and its slope in every symbol, by one pass forwards and one backwards."""
    result = sympy.Symbol("_result", real=True)
    lines = [*traced.lines, (result, part)]
    symbols = [*traced.symbols.values(), *(symbol for symbol, _ in lines)]
    printer = _Python({symbol: f"v{place}" for place, symbol in enumerate(symbols)})
    known = {printer.given[symbol]: values[path] for path, symbol in traced.symbols.items()}
    functions = vars(math).copy()

    def number(expression: sympy.Expr) -> float:
        return float(eval(printer.doprint(expression), functions, known))

    for symbol, definition in lines:
        known[printer.given[symbol]] = number(definition)
    adjoint: dict[sympy.Symbol, float] = {result: 1.0}
    for symbol, definition in reversed(lines):
        weight = adjoint.get(symbol, 0.0)
        if weight == 0.0:
            continue
        for inside in definition.free_symbols:
            adjoint[inside] = adjoint.get(inside, 0.0) + weight * number(_slope(definition, {inside: sympy.Integer(1)}))
    return number(result), {path: adjoint.get(symbol, 0.0) for path, symbol in traced.symbols.items()}


# Crossings


def crossovers(
    first: Callable[..., object],
    second: Callable[..., object],
    by: str,
    low: float,
    high: float,
    given: Mapping[str, object] | None = None,
) -> list[float]:
    """Values of an input at which two formulas give the same.

    Parameters
    ----------
    first, second : of `costmodel.formulas`, each of whose parameters is `by` or in `given`
    by : parameter of at least one of them, such as ``"nbytes"``
    low, high : between which to look, above 0
    given : values of all other parameters without a default, by their names

    Returns
    -------
    list[float]
        ascending; empty where they don't meet. Two crossings within a 400th of the range in the logarithm may be missed

    Raises
    ------
    InvalidValue
        for a parameter without value, or that neither has

    Examples
    --------
    Where a ring and a binomial tree of whole buffers take as long, 16 ranks, 10 us a hop and 10 GB/s:

    >>> from costmodel.formulas.network import algorithms
    >>> given = {"ranks": 16.0, "latency": 1e-5, "bandwidth": 1e10}
    >>> [round(size) for size in crossovers(
    ...     algorithms.ring_all_reduce, algorithms.recursive_doubling_all_reduce, "nbytes", 1e2, 1e9, given)]
    [1223529]
    """
    known = dict(given or {})
    real("low", low, 1e-300, 1e300)
    real("high", high, low, 1e300)
    sides = [_of_one(formula, by, known) for formula in (first, second)]
    if not any(by in inspect.signature(formula).parameters for formula in (first, second)):
        raise InvalidValue("by", by, "a parameter of one of both formulas")

    def apart(value: float) -> float:
        return sides[0](value) - sides[1](value)

    found = []
    ratio = math.log(high / low) / SAMPLES
    places = [low * math.exp(step * ratio) for step in range(SAMPLES)] + [high]
    differences = [apart(place) for place in places]
    for left, right, before, after in zip(places, places[1:], differences, differences[1:], strict=False):
        if before == 0.0:
            found.append(left)
        elif before * after < 0.0:
            found.append(_between(apart, left, right))
    return found + ([high] if differences[-1] == 0.0 else [])


def _of_one(formula: Callable[..., object], by: str, known: Mapping[str, object]) -> Callable[[float], float]:
    """A formula as a function of one input, compiled from its trace."""
    parameters = inspect.signature(formula).parameters
    defaults = {name: one.default for name, one in parameters.items() if one.default is not inspect.Parameter.empty}
    taken = defaults | dict(known)
    for name in parameters:
        if name != by and name not in taken:
            raise InvalidValue(name, None, f"a value of this parameter of {formula.__name__}")
    traced = trace(formula, *(None if name == by else taken[name] for name in parameters))
    result = list(_leaves(traced.result))
    if len(result) != 1:
        raise InvalidValue("formula", formula.__name__, "a formula of one result")
    compiled = traced.function()
    return lambda value: compiled(*([value] if traced.symbols else []))[0]


def _between(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that changes sign between two places is 0."""
    below = function(low) < 0.0
    for _ in range(200):
        middle = math.sqrt(low * high)
        if not low < middle < high:
            break
        if (function(middle) < 0.0) == below:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def matching(word: str, names: Sequence[str]) -> list[str]:
    """Names that hold a word, or some of several: those first that hold most."""
    parts = [part for part in re.split(r"[\s_-]+", word.lower()) if part]
    held = {name: sum(part in name.lower() for part in parts) for name in names}
    return sorted((name for name in names if held[name]), key=lambda name: -held[name])
