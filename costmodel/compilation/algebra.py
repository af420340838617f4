r"""A formula as algebra: its tape in SymPy's expressions, printed as LaTeX, or differentiated.

What is given as a number stays a number; every argument left out, and every
None, becomes a symbol, and so does every None field of a NamedTuple. A field's symbol is named by its path, as
``device.memory_bandwidth`` or ``network.node.latency``. Every value that is used more than once, and every choice,
maximum and rounding, becomes one named line, so that even a whole step is some hundreds of short lines: as one
nested expression it would be too large to write down.
"""

from __future__ import annotations

import functools
import math
import operator
import typing
from collections.abc import Callable, Iterator
from typing import NamedTuple

import sympy
from sympy.printing.pycode import PythonCodePrinter

from costmodel.compilation.javascript import javascript
from costmodel.compilation.tape import Condition, Place, Tape, Value, leaves, needed, opened
from costmodel.description.dimensions import DIMENSIONS
from costmodel.description.framework import SIZES_OF_BUCKETS
from costmodel.text.errors import InvalidValue

_NEVER_ZERO = frozenset({
    "activation", "attention_backward_efficiency", "attention_efficiency_scale", "attention_forward_efficiency", "bandwidth",
    "base_flop_rate", "base_gemm_efficiency", "compute", "context_stride", "data_stride", "element_bytes", "flop_rate",
    "gemm_efficiency", "gemm_efficiency_scale", "global_batch", "head_dim", "heads", "hidden", "host_bandwidth", "kv_heads",
    "layers", "load", "memory", "memory_bandwidth", "micro_batch", "micro_batches", "norm_vectors", "norms", "parameter",
    "pipeline_stride", "quality", "ranks", "seq_len", "shard_group", "sharding_quality", "size", "stages", "stride",
    "tensor_stride", "value_head_dim", "window", *(one.column for one in DIMENSIONS),
})  # fmt: skip
"""Fields whose symbols are positive; all others may be zero, so that ``x > 0`` stays a question."""
_MAY_BE_OPEN = frozenset({"replicated_loading", "replicated_buckets", *SIZES_OF_BUCKETS})
"""Arguments that are `costmodel.formulas.settings.OPEN`, a negative number, where nothing is said, as choices may be."""
_MAY_BE_ZERO = "experts.layers"
"""Of these fields the one of which a dense model has none."""

NOTATION = {
    "model.layers": "L", "model.hidden": "h", "model.attention.heads": "a", "model.vocabulary.size": "V", "settings.seq_len": "s",
    "plan.micro_batch": "b", "plan.tensor": "t", "plan.pipeline": "p", "plan.virtual_stages": "v",
    "nbytes": "n", "ranks": "p", "stages": "p", "micro_batches": "m", "seq_len": "s", "window": "w",
    "network.node.latency": r"\alpha_{node}", "network.leaf.latency": r"\alpha_{leaf}",
    "network.spine.latency": r"\alpha_{spine}", "network.node.bandwidth": "B_{node}",
    "network.leaf.bandwidth": "B_{leaf}", "network.spine.bandwidth": "B_{spine}",
    "latency": r"\alpha", "bandwidth": "B", "device.memory_bandwidth": "B_{mem}", "device.kernel_time": "t_0",
}  # fmt: skip
"""How LaTeX writes a symbol, after the nomenclature of `costmodel.formulas.quantities`; others by their words."""


Lines = tuple[tuple[sympy.Symbol, sympy.Expr], ...]


class AlgebraTrace(NamedTuple):
    """A formula as a straight line of algebra."""

    parameters: tuple[str, ...]  # names of the formula's arguments
    symbols: dict[str, sympy.Symbol]  # what was left open, by path
    lines: Lines  # symbol and definition of each intermediate value, in order
    result: object  # of the formula: an expression, or a tuple of them, in `symbols` and the lines' symbols

    @property
    def expression(self) -> object:
        """The result with every line put in its place: for small formulas, or with few symbols left open."""
        whole: dict[sympy.Symbol, sympy.Expr] = {}
        for symbol, definition in self.lines:
            whole[symbol] = definition.xreplace(whole)
        return _map(self.result, lambda expression: expression.xreplace(whole))

    def function(self) -> Callable[..., tuple[float, ...]]:
        """A Python function of `symbols`, in their order, that returns the result as flat tuple of floats.

        Examples
        --------
        >>> from costmodel.formulas.compute import host_wait
        >>> trace(host_wait, 0.0).function()(2.0)
        (2.0,)
        """
        given = {symbol: f"a{place}" for place, symbol in enumerate(self.symbols.values())}
        printer = _Python(given)
        body = [f"    {symbol} = {printer.doprint(definition)}" for symbol, definition in self.lines]
        result = "".join(f"{printer.doprint(expression)}, " for expression in _leaves(self.result))
        space: dict[str, Callable[..., tuple[float, ...]]] = {}
        exec("\n".join([f"def values({', '.join(given.values())}):", *body, f"    return ({result})"]), vars(math).copy(), space)
        values = space["values"]
        return lambda *given: tuple(map(float, values(*given)))


class _Python(PythonCodePrinter):  # type: ignore[misc]
    """Python source of expressions over `math`, with symbols by their names in `given`, as paths are no identifiers."""

    def __init__(self, given: dict[sympy.Symbol, str]) -> None:
        super().__init__({"fully_qualified_modules": False})
        self.given = given

    def _print_Symbol(self, symbol: sympy.Symbol) -> str:
        return self.given.get(symbol, symbol.name)


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, tuple) and not isinstance(value, sympy.Basic):
        for part in value:
            yield from _leaves(part)
    else:
        yield sympy.sympify(value)


def _map(value: object, function: Callable[[sympy.Expr], object]) -> object:
    if isinstance(value, tuple) and not isinstance(value, sympy.Basic):
        parts = [_map(part, function) for part in value]
        kind: Callable[..., object] = type(value)
        return kind(*parts) if hasattr(value, "_fields") else tuple(parts)
    return function(value)


def _open(tape: Tape, symbols: dict[str, sympy.Symbol]) -> Callable[[str, object], object]:
    """What stands for the arguments of a formula on a tape; symbols are collected by their paths."""

    def symbol(path: str, given: object) -> object:
        if given is None:
            positive = path.rpartition(".")[2] in _NEVER_ZERO and not path.endswith(_MAY_BE_ZERO)
            open_ = path.startswith("choices.") or path.rpartition(".")[2] in _MAY_BE_OPEN
            sign = "real" if open_ else "positive" if positive else "nonnegative"
            given = symbols[path] = sympy.Symbol(path, **{sign: True})
        elif isinstance(given, sympy.Expr):
            symbols.update({str(symbol): symbol for symbol in sorted(given.free_symbols, key=str)})
        elif not isinstance(given, typing.SupportsFloat):
            raise InvalidValue(path, given, "a number, a SymPy expression, or None for a symbol")
        if isinstance(given, sympy.Expr) and not given.is_number:
            return Value(tape, tape.put("input", given=given))
        return float(typing.cast(typing.SupportsFloat, given))

    return symbol


def trace(formula: Callable[..., object], *arguments: object) -> AlgebraTrace:
    """Call a formula with symbols in place of what is not given.

    Parameters
    ----------
    formula : a function of `costmodel.formulas`
    arguments : one a parameter: a number, a SymPy expression, a NamedTuple of `costmodel.formulas.quantities` with
        None where a symbol is wanted, or None for a symbol (or a NamedTuple of them); those left out are None

    Returns
    -------
    AlgebraTrace

    Raises
    ------
    InvalidValue
        for more arguments than the formula takes, or of the wrong kind

    Examples
    --------
    >>> from costmodel.formulas.network.collectives import members_inside
    >>> trace(members_inside, None, 1.0, 8.0).expression
    Min(8.0, ranks)
    >>> trace(members_inside).lines
    ((x0, Max(1.0, size/stride)), (x1, Min(ranks, x0)))
    """
    tape, symbols = Tape(), dict[str, sympy.Symbol]()
    values = opened(formula, arguments, _open(tape, symbols))
    result = formula(**values)
    algebra = _Expressions(tape, [leaf.place for leaf in leaves(result) if isinstance(leaf, Value | Condition)])
    lines, short = _fewer(algebra.lines, _map(result, algebra.expression))
    return AlgebraTrace(tuple(values), symbols, lines, short)


def operations(formula: Callable[..., object]) -> int:
    """How many operations a formula takes, before any algebra.

    Examples
    --------
    >>> from costmodel.formulas.network.collectives import members_inside
    >>> operations(members_inside)
    7
    """
    tape, symbols = Tape(), dict[str, sympy.Symbol]()
    result = formula(**opened(formula, (), _open(tape, symbols)))
    return len(needed(tape, [leaf.place for leaf in leaves(result) if isinstance(leaf, Value | Condition)]))


class _Expressions:
    """A tape in SymPy's expressions: every result that is no number gets a name and a line.

    Parameters
    ----------
    tape : the operations
    results : places of what is wanted
    """

    def __init__(self, tape: Tape, results: list[Place]) -> None:
        self.lines: dict[sympy.Symbol, sympy.Expr] = {}
        self._known: dict[sympy.Expr, sympy.Symbol] = {}
        self._found: dict[Place, sympy.Basic] = {}
        for place in needed(tape, results):
            name, operands, given = tape.operations[place]
            values = [self._found[one] for one in operands]
            made = _OPERATIONS[name](self._named, *values) if given is None else sympy.sympify(given)
            self._found[place] = self._named(made)

    def expression(self, value: object) -> sympy.Basic:
        """What stands for a part of a formula's result.

        Parameters
        ----------
        value : a number, or a value of the tape
        """
        return self._found[value.place] if isinstance(value, Value | Condition) else sympy.sympify(value)

    def _named(self, value: sympy.Basic) -> sympy.Basic:
        """An expression's symbol, a number as it is, or a comparison."""
        if not isinstance(value, sympy.Expr):
            return value
        if value.is_number:
            return sympy.Float(float(value))
        if value.is_Mul and value.args[0] == sympy.Float(1.0):
            value = sympy.Mul(*value.args[1:])
        if not value.is_Symbol and value not in self._known:
            self._known[value] = sympy.Symbol(f"_{len(self.lines)}", **{_sign(value): True})
            self.lines[self._known[value]] = value
        return self._known.get(value, value)


def _sign(value: sympy.Expr) -> str:
    """What is known of an expression's sign: of sums and products by their parts alone.

    (SymPy would go on to think about the whole, in vain as parts are symbols and numbers: a third of a trace's time.)
    """
    if isinstance(value, sympy.Add | sympy.Mul):
        if not all(part.is_nonnegative for part in value.args):
            return "real"
        positive = [part.is_positive for part in value.args]
        return "positive" if all(positive) or (value.is_Add and any(positive)) else "nonnegative"
    return "positive" if value.is_positive else "nonnegative" if value.is_nonnegative else "real"


def _extreme(kind: type[sympy.Max | sympy.Min], *values: sympy.Expr) -> sympy.Expr:
    """The greatest or least of some values: where their signs tell which it is, that one.

    (SymPy would ask of each pair in vain whether their quotient or difference has a sign: half of a trace's time.)
    """
    numbers = [value for value in values if value.is_number]
    others = [value for value in values if not value.is_number]
    if not others or len(set(values)) == 1:
        return kind(*values)
    if len(numbers) == len(others) == 1 and numbers[0] <= 0 and others[0].is_nonnegative:
        return others[0] if kind is sympy.Max else numbers[0]
    return kind(*values, evaluate=False)


_GREATEST, _LEAST = functools.partial(_extreme, sympy.Max), functools.partial(_extreme, sympy.Min)


Named = Callable[[sympy.Basic], sympy.Basic]
"""Gives an expression its name."""


def _plainly(function: Callable[..., sympy.Basic]) -> Callable[..., sympy.Basic]:
    """An operation of one step, which names nothing on its way."""
    return lambda named, *values: function(*values)


def _floor_log2(named: Named, value: sympy.Expr) -> sympy.Expr:
    whole = named(named(-named(sympy.log(value, 2))) - sympy.Float(1e-12))  # those of whole powers may fall short by a rounding
    return -named(sympy.ceiling(whole))


_OPERATIONS: dict[str, Callable[..., sympy.Basic]] = {
    **{name: _plainly(getattr(operator, name)) for name in ("add", "sub", "mul", "pow", "neg", "lt", "le", "gt", "ge")},
    "div": _plainly(operator.truediv), "max": _plainly(_GREATEST), "min": _plainly(_LEAST), "eq": _plainly(sympy.Eq),
    "and": _plainly(sympy.And), "or": _plainly(sympy.Or), "ceil": _plainly(sympy.ceiling), "sqrt": _plainly(sympy.sqrt),
    "log2": _plainly(lambda value: sympy.log(value, 2)), "floor_log2": _floor_log2,
    "select": _plainly(lambda condition, one, other: sympy.Piecewise((one, condition), (other, True))),
}  # fmt: skip
"""What an operation of a tape is in SymPy."""


def _fewer(lines: dict[sympy.Symbol, sympy.Expr], result: object) -> tuple[Lines, object]:
    """The lines that the result needs, numbered anew; sums and products used once stand where they are used."""
    uses: dict[sympy.Symbol, int] = {}

    def use(value: sympy.Expr) -> None:
        for part in sympy.preorder_traversal(value):
            if part in lines:
                uses[part] = uses.get(part, 0) + 1

    for value in _leaves(result):
        use(value)
    for symbol, value in reversed(lines.items()):
        if symbol in uses:
            use(value)
    kept: list[tuple[sympy.Symbol, sympy.Expr]] = []
    place: dict[sympy.Symbol, sympy.Expr] = {}
    for symbol, value in lines.items():
        if symbol in uses:
            short = _put(value, place)
            place[symbol] = short
            if (uses[symbol] > 1 and not short.is_Atom) or not isinstance(value, sympy.Add | sympy.Mul | sympy.Pow):
                place[symbol] = sympy.Symbol(f"x{len(kept)}", **symbol.assumptions0)
                kept.append((place[symbol], short))
    return tuple(kept), _map(result, lambda expression: expression.xreplace(place))


def _put(value: sympy.Expr, place: dict[sympy.Symbol, sympy.Expr]) -> sympy.Expr:
    """A line with its symbols replaced; an extreme is that of the replaced, as it stands."""
    if isinstance(value, sympy.Max | sympy.Min):
        return _extreme(value.func, *(part.xreplace(place) for part in value.args))
    return value.xreplace(place)


def _plain(expression: sympy.Expr) -> sympy.Expr:
    """The same with 2 for 2.0."""
    numbers = {number: float(number) for number in expression.atoms(sympy.Float)}
    whole = {number: int(value) for number, value in numbers.items() if value.is_integer() and abs(value) < 1e15}
    return expression.xreplace({number: sympy.Integer(value) for number, value in whole.items()})


def latex(formula: Callable[..., object], *arguments: object) -> object:
    r"""A formula in LaTeX: a text, or one for each part of its result.

    Parameters
    ----------
    formula, arguments : as `trace` takes them

    Examples
    --------
    >>> from costmodel.formulas.network.collectives import members_inside
    >>> print(latex(members_inside))
    \min\left(p, \max\left(1, \frac{\mathrm{size}}{\mathrm{stride}}\right)\right)
    """
    return _written(trace(formula, *arguments))


def _written(traced: AlgebraTrace) -> object:
    """The result of a trace in LaTeX, as one expression or a tuple of them."""
    taken = [NOTATION.get(path) for path in traced.symbols]
    names = {
        symbol: NOTATION[path] if taken.count(NOTATION.get(path, "")) == 1 else _words(path.rpartition(".")[2])
        for path, symbol in traced.symbols.items()
    }
    return _map(traced.expression, lambda expression: sympy.latex(_plain(expression), symbol_names=names))


def _words(field: str) -> str:
    return field if len(field) == 1 else rf"\mathrm{{{field.replace('_', chr(92) + ' ')}}}"


def derivative(formula: Callable[..., object], *arguments: object, by: str, of: str | None = None) -> AlgebraTrace:
    """How a formula's result changes with one of its symbols.

    Where the formula bends, at a maximum or a comparison, it is the slope of the branch in force; what is rounded up
    counts as constant.

    Parameters
    ----------
    formula, arguments : as `trace` takes them
    by : path of the symbol, as ``network.leaf.bandwidth``
    of : part of the result, as ``total`` or ``memory.total``, where it has several

    Returns
    -------
    AlgebraTrace
        whose result is the slope

    Raises
    ------
    InvalidValue
        for a symbol or part that there isn't

    Examples
    --------
    >>> from costmodel.formulas.compute import stream
    >>> derivative(stream, 1e9, 1.0, by="device.memory_bandwidth").expression
    -1000000000.0/device.memory_bandwidth**2
    """
    symbols: dict[str, sympy.Symbol] = {}
    opened(formula, arguments, _open(Tape(), symbols))
    if by not in symbols:
        raise InvalidValue("by", by, "one of " + ", ".join(symbols))
    traced = trace(formula, *arguments)
    part = traced.result
    for field in of.split(".") if of else ():
        if field not in getattr(part, "_fields", ()):
            raise InvalidValue("of", of, _parts(part))
        part = getattr(part, field)
    if isinstance(part, tuple):
        raise InvalidValue("of", of, _parts(part))
    lines: dict[sympy.Symbol, sympy.Expr] = {}
    slopes: dict[sympy.Symbol, sympy.Expr] = {traced.symbols[by]: sympy.Integer(1)}
    for symbol, definition in traced.lines:
        lines[symbol] = definition
        slopes[symbol] = _slope(definition, slopes)
        if not slopes[symbol].is_Atom:
            line = sympy.Symbol(f"d{symbol}", real=True)
            lines[line], slopes[symbol] = slopes[symbol], line
    kept, result = _fewer(lines, _slope(part, slopes))
    return AlgebraTrace(traced.parameters, traced.symbols, kept, result)


def _parts(result: object) -> str:
    return "one of the parts " + ", ".join(getattr(result, "_fields", ())) if hasattr(result, "_fields") else "no part"


def _slope(value: sympy.Expr, slopes: dict[sympy.Symbol, sympy.Expr]) -> sympy.Expr:
    """Slope of one line, given those of the symbols in it."""
    if isinstance(value, sympy.ceiling):
        return sympy.Integer(0)
    if isinstance(value, sympy.Piecewise):
        return sympy.Piecewise(*((_slope(arm, slopes), condition) for arm, condition in value.args))
    if isinstance(value, sympy.Max | sympy.Min):
        first, *others = value.args
        slope, extreme = _slope(first, slopes), first
        for other in others:
            ahead = other > extreme if isinstance(value, sympy.Max) else other < extreme
            slope = sympy.Piecewise((_slope(other, slopes), ahead), (slope, True))
            extreme = value.func(extreme, other)
        return slope
    inside = value.free_symbols & slopes.keys()
    return sympy.Add(*(value.diff(symbol) * slopes[symbol] for symbol in sorted(inside, key=str)))


__all__ = ["NOTATION", "AlgebraTrace", "derivative", "javascript", "latex", "trace"]
