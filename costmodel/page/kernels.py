"""A compiled kernel in JavaScript: its own source, statement by statement.

Kernels are written in the few statements that Numba compiles well, and those read alike in both languages.
"""

from __future__ import annotations

import ast
import functools
from importlib import resources

OPERATORS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.RShift: ">>", ast.Eq: "===", ast.NotEq: "!==", ast.Lt: "<",
    ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.And: "&&", ast.Or: "||", ast.Not: "!", ast.USub: "-",
}  # fmt: skip
ARRAYS = {"float64": "Float64Array", "int64": "Int32Array", "bool_": "Uint8Array"}
"""By NumPy's kinds; whole numbers of kernels are places in arrays, for which 32 bits are enough."""


@functools.cache
def javascript(module: str, kernel: str) -> str:
    """A kernel with what it calls, and the records and constants of its module, as JavaScript of the same names.

    Parameters
    ----------
    module : of `costmodel.simulation`
    kernel : name of its function

    Raises
    ------
    NotImplementedError
        at a statement that has no translation yet
    """
    source = (resources.files("costmodel.simulation") / f"{module}.py").read_text(encoding="utf-8")
    body = ast.parse(source).body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    needed, waiting = {kernel}, [kernel]
    while waiting:
        named = {one.id for one in ast.walk(functions[waiting.pop()]) if isinstance(one, ast.Name)}
        called = (named & functions.keys()) - needed
        needed |= called
        waiting += called
    kept = (node for node in body if not isinstance(node, ast.FunctionDef) or node.name in needed)
    return "\n".join(filter(None, map(_top, kept))) + "\n"


def _top(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef):
        return _function(node)
    if isinstance(node, ast.ClassDef):  # a NamedTuple
        fields = ", ".join(_value(one.target) for one in node.body if isinstance(one, ast.AnnAssign))
        return f"const {node.name} = ({fields}) => ({{{fields}}});"
    if isinstance(node, ast.Assign) and all(
        isinstance(one, ast.Constant) and isinstance(one.value, int) for one in getattr(node.value, "elts", [node.value])
    ):
        return f"const {_value(node.targets[0])} = {_value(node.value)};"
    return ""  # imports, types and words


def _function(node: ast.FunctionDef) -> str:
    given = [one.arg for one in node.args.args]
    stored = (one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
    own = [name for name in dict.fromkeys(stored) if name not in given]
    head = f"let {', '.join(own)};" if own else ""
    return f"function {node.name}({', '.join(given)}) {{{head}\n{_block(node.body)}\n}}"


def _block(body: list[ast.stmt]) -> str:
    return "\n".join(filter(None, map(_statement, body)))


def _statement(node: ast.stmt) -> str:
    match node:
        case ast.Expr(ast.Constant()):
            return ""  # a docstring
        case ast.Expr(value):
            return f"{_value(value)};"
        case ast.Assign():
            return f"{_value(node.targets[0])} = {_value(node.value)};"
        case ast.AugAssign():
            return f"{_value(node.target)} {OPERATORS[type(node.op)]}= {_value(node.value)};"
        case ast.Return():
            return f"return {_value(node.value)};" if node.value else "return;"
        case ast.Break():
            return "break;"
        case ast.If():
            other = f" else {{\n{_block(node.orelse)}\n}}" if node.orelse else ""
            return f"if ({_value(node.test)}) {{\n{_block(node.body)}\n}}{other}"
        case ast.While():
            return f"while ({_value(node.test)}) {{\n{_block(node.body)}\n}}"
        case ast.For(iter=ast.Call(func=ast.Name("range"), args=given)):
            return f"for ({_range(_value(node.target), given)}) {{\n{_block(node.body)}\n}}"
        case ast.For(iter=ast.Tuple()):
            return f"for ({_value(node.target)} of {_value(node.iter)}) {{\n{_block(node.body)}\n}}"
    raise NotImplementedError(f"line {node.lineno}: {ast.unparse(node)}")


def _range(name: str, given: list[ast.expr]) -> str:
    """A loop over a range whose step, if it has one, is a number."""
    ends = [ast.Constant(0), *given] if len(given) == 1 else given
    step = ast.literal_eval(ends[2]) if len(ends) == 3 else 1
    return f"{name} = {_value(ends[0])}; {name} {'<' if step > 0 else '>'} {_value(ends[1])}; {name} += {step}"


def _value(node: ast.expr) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Constant(bool()):
            return str(node.value).lower()
        case ast.Constant(int() | float()):
            return repr(node.value)
        case ast.Attribute():
            return f"{_value(node.value)}.{node.attr}"
        case ast.Subscript():
            return f"{_value(node.value)}[{_value(node.slice)}]"
        case ast.Tuple():
            return f"[{', '.join(map(_value, node.elts))}]"
        case ast.BinOp():
            return f"({_value(node.left)} {OPERATORS[type(node.op)]} {_value(node.right)})"
        case ast.UnaryOp():
            return f"({OPERATORS[type(node.op)]}{_value(node.operand)})"
        case ast.BoolOp():
            return "(" + f" {OPERATORS[type(node.op)]} ".join(map(_value, node.values)) + ")"
        case ast.Compare(ops=[ast.In()]):
            return f"{_value(node.comparators[0])}.includes({_value(node.left)})"
        case ast.Compare(ops=[one]):
            return f"({_value(node.left)} {OPERATORS[type(one)]} {_value(node.comparators[0])})"
        case ast.IfExp():
            return f"({_value(node.test)} ? {_value(node.body)} : {_value(node.orelse)})"
        case ast.Call():
            return _call(node)
    raise NotImplementedError(f"line {node.lineno}: {ast.unparse(node)}")


def _call(node: ast.Call) -> str:
    name, given = ast.unparse(node.func), [_value(one) for one in node.args]
    if name in ("np.zeros", "np.empty", "np.full"):
        kind = next((one.value.attr for one in node.keywords if isinstance(one.value, ast.Attribute)), "float64")
        made = f"new {ARRAYS[kind]}({given[0]})"
        return f"{made}.fill({given[1]})" if name == "np.full" else made
    if name == "len":
        return f"{given[0]}.length"
    return f"{'Math.max' if name == 'max' else name}({', '.join(given)})"
