"""What a shell makes of a text without running it: variables with their defaults, and whole-number arithmetic."""

from __future__ import annotations

import ast
import collections
import itertools
import operator
import re
from collections.abc import Callable, Mapping

LONGEST = 300
"""Characters of an arithmetic expression."""
LARGEST = 10**18
"""Magnitude up to which arithmetic goes on, about what a shell's 64 bits hold."""
NAME = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
VARIABLE = re.compile(r"`|\$\(|\$\[|\$[A-Za-z_0-9@]")
PLAIN = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*|[0-9]{1,2}):?[-=]([^${}]*)\}")
QUOTED = re.compile(r"""(["'])([^"']*)\1""")
"""A word of a default between quotation marks, which a shell takes off."""
CALCULATED = re.compile(
    r"""
    \$\(\s*+expr\s++(?P<expr>[^()`$]++)\)                                 # $(expr 2 \* 8)
    | `\s*+expr\s++(?P<tick>[^()`$]++)`                                   # `expr 2 \* 8`
    | \$\(\s*+echo\s++["']?(?P<bc>[^"'`$|]++)["']?\s*+\|\s*+bc(?:\s++-l)?\s*+\)   # $(echo "2 * 8" | bc)
    | \$\[(?P<bracket>[^\[\]`$]++)\]                                      # $[2 * 8]
    """,
    re.VERBOSE,
)
TURNS = 10
"""How deep defaults and arithmetic may lie within each other."""
WIDEST = 10_000
"""Characters of a text that is worked out; of a longer one nothing is."""
REACH = 2_000
"""Characters within which a bracket is closed."""
ROUND = re.compile(r"[()]")
BRACKETS = re.compile(r"[(){}\[\]]")
OPENING = {")": "(", "}": "{", "]": "["}
HIDDEN = str.maketrans({" ": "\ue000", "\t": "\ue001", '"': "\ue002", "'": "\ue003", "\\": "\ue004", "\n": "\ue005"})
SHOWN = {ord(code): chr(sign) for sign, code in HIDDEN.items()}
BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
COMPARED: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


def expand(text: str, variables: Mapping[str, str]) -> str:
    """A text with its variables, their defaults and its arithmetic worked out as far as everything in them is known.

    Parameters
    ----------
    text : as a script has it
    variables : by name

    Examples
    --------
    >>> expand("$(( ($NODES * 8) / (${TP:-2} * PP) ))", {"NODES": "4", "PP": "4"}), expand("$UNKNOWN", {})
    ('4', '$UNKNOWN')
    """
    given = text
    if "$" not in text and "`" not in text:
        return text
    try:
        for _ in range(TURNS):
            before = text
            text = _replaced(PLAIN, text, lambda match: _known(match, variables))
            text = _replaced(DEFAULT, text, lambda match: variables.get(match[1]) or QUOTED.sub(r"\2", match[2]))
            text = _replaced(CALCULATED, text, lambda match: _calculated(match, variables))
            text = _innermost(text, variables)
            if text == before:
                break
    except _TooWide:
        return given
    return text


def _known(match: re.Match[str], variables: Mapping[str, str]) -> str:
    """What a variable is set to; itself where it is set to what isn't known."""
    name = match[1] or match[2]
    value = variables.get(name, match[0])
    return match[0] if value == f"${{{name}}}" else value


class _TooWide(Exception):
    """A text that would grow beyond `WIDEST`."""


def _replaced(pattern: re.Pattern[str], text: str, value: Callable[[re.Match[str]], str]) -> str:
    """A text with every match replaced by its value, as long as it stays within `WIDEST`."""
    room = WIDEST - len(text)

    def fitting(match: re.Match[str]) -> str:
        nonlocal room
        found = value(match)
        room -= len(found) - len(match[0])
        if room < 0:
            raise _TooWide
        return found

    if room < 0:
        raise _TooWide
    return pattern.sub(fitting, text)


def is_variable(raw: object) -> bool:
    """Whether a value is still, or in part, a variable."""
    if isinstance(raw, list):
        return any(is_variable(one) for one in raw if isinstance(one, str))
    if not isinstance(raw, str):
        return False
    opens = raw.find("${")
    return (opens >= 0 and raw.find("}", opens) >= 0) or VARIABLE.search(raw) is not None


def _calculated(match: re.Match[str], variables: Mapping[str, str]) -> str:
    text = next(part for part in match.groups() if part is not None)
    value = calculate(text.replace("\\", "").replace('"', "").replace("'", ""), variables)
    return match[0] if value is None else str(value)


def _innermost(text: str, variables: Mapping[str, str]) -> str:
    """The text with every ``$((...))`` that holds no other replaced by its value, if that is known."""
    starts = [found.start() for found in re.finditer(r"\$\(\(", text)]
    parts, done = [], 0
    for start, following in itertools.pairwise([*starts, len(text)]):
        end = _closing(text, start + 1, following)
        if start < done or text[end - 2 : end] != "))":
            continue
        value = calculate(text[start + 3 : end - 2], variables)
        if value is not None:
            parts += [text[done:start], str(value)]
            done = end
    return "".join([*parts, text[done:]])


def _closing(text: str, start: int, most: int) -> int:
    """One past the round bracket that closes the one at ``start``; 0 where it isn't before ``most`` and within `REACH`."""
    most = min(most, start + REACH)
    if text.find(")", start, most) < 0:
        return 0
    depth = 0
    for found in ROUND.finditer(text, start, most):
        depth += 1 if found[0] == "(" else -1
        if not depth:
            return found.end()
    return 0


def closings(text: str) -> dict[int, int]:
    """Where each bracket that opens is closed, one past it, by where it opens; each kind by itself, within `REACH`.

    Parameters
    ----------
    text : with brackets ``()``, ``{}`` or ``[]``

    Examples
    --------
    >>> closings("$((1 + (2)) [")
    {7: 10, 2: 11}
    """
    ends: dict[int, int] = {}
    opened: dict[str, list[int]] = {"(": [], "{": [], "[": []}
    for found in BRACKETS.finditer(text):
        if found[0] in opened:
            opened[found[0]].append(found.start())
        elif opened[OPENING[found[0]]]:
            start = opened[OPENING[found[0]]].pop()
            if found.start() - start < REACH:
                ends[start] = found.end()
    return ends


def calculate(text: str, variables: Mapping[str, str]) -> int | None:
    """The value of an arithmetic expression of a shell; None where it isn't known, whole, or of a size that a shell holds.

    Parameters
    ----------
    text : between the brackets of ``$((...))``, names with or without ``$``
    variables : by name

    Examples
    --------
    >>> calculate("(W * 2) / (T * 4) * 8", {"W": "64", "T": "2"}), calculate("7 / 2", {}), calculate("X + 1", {})
    (128, 3, None)
    >>> calculate("W > 32 ? W / 32 : 1", {"W": "64"})
    2
    """
    plain = PLAIN.sub(lambda match: match[1] or match[2], text).replace("&&", " and ").replace("||", " or ")
    if len(plain) > LONGEST or "#" in plain:
        return None
    if choice := re.fullmatch(r"([^?:]+)\?([^?:]+):([^?:]+)", plain):
        chosen = calculate(choice[1], variables)
        return None if chosen is None else calculate(choice[2] if chosen else choice[3], variables)
    try:
        return _value(ast.parse(" ".join(plain.split()), mode="eval").body, variables, 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError, ArithmeticError):  # what a shell might read, but not this
        return None


def _value(node: ast.expr, variables: Mapping[str, str], depth: int) -> int:
    """The value of a part of an expression; ValueError where a shell has none, or too large a one."""
    if depth > TURNS:
        raise ValueError("names that stand for each other")
    if isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
    elif isinstance(node, ast.Name):
        stated = variables.get(node.id, "").strip()
        if not re.fullmatch(r"[-+]?[0-9]{1,18}", stated):
            raise ValueError(f"{node.id} is no whole number")
        value = int(stated)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _value(node.operand, variables, depth)
        value = -inner if isinstance(node.op, ast.USub) else inner
    elif isinstance(node, ast.BinOp):
        first, second = (_value(part, variables, depth) for part in (node.left, node.right))
        value = _binary(node.op, first, second)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
        first, second = (_value(part, variables, depth) for part in (node.left, node.comparators[0]))
        value = int(COMPARED[type(node.ops[0])](first, second))
    else:
        raise ValueError("no arithmetic of a shell")
    if abs(value) > LARGEST:
        raise ValueError("too large")
    return value


def _binary(kind: ast.operator, first: int, second: int) -> int:
    if isinstance(kind, ast.Div | ast.Mod):  # towards zero, as in C
        whole = abs(first) // abs(second) * (1 if (first < 0) == (second < 0) else -1)
        return whole if isinstance(kind, ast.Div) else first - whole * second
    if isinstance(kind, ast.Pow | ast.LShift | ast.RShift) and not 0 <= second <= 62:
        raise ValueError("too large")
    if isinstance(kind, ast.Pow):
        return int(first**second) if abs(first) <= 1024 or second <= 3 else _refuse()
    if type(kind) not in BINARY:
        return _refuse()
    return BINARY[type(kind)](first, second)


def _refuse() -> int:
    raise ValueError("no arithmetic of a shell")


# Words


def hide(line: str) -> str:
    """A line whose blanks and quotation marks within ``$(...)``, ``${...}``, ``$[...]`` and backticks stand as other signs.

    So that splitting it into words leaves each of them whole; `show` brings them back.
    """
    parts, place = [], 0
    ends = closings(line) if "$" in line else {}
    for found in re.finditer(r"\$[({\[]|`", line):
        start = found.start()
        if start < place:
            continue
        end = line.find("`", start + 1) + 1 if found[0] == "`" else ends.get(start + 1, 0)
        if not end:
            continue
        parts += [line[place:start], line[start:end].translate(HIDDEN)]
        place = end
    return "".join([*parts, line[place:]])


def show(word: str) -> str:
    """A word with its blanks and quotation marks as they were before `hide`."""
    return word.translate(SHOWN)


def assignments(line: str) -> str | None:
    """The part of a line of a script that sets variables, as plain assignments; None where it sets none.

    Parameters
    ----------
    line : whole, as ``export A=1``, ``let "B = A * 2"``, ``((C = 8 / B))``, ``declare -i D=A+1`` or ``: "${E:=2}"``

    Examples
    --------
    >>> assignments("export TP=2 PP=4"), assignments("let W=TP*PP"), assignments("(( N = W / 8 ))"), assignments("echo A=1")
    ('TP=2 PP=4', 'W=$((TP*PP))', 'N=$((W / 8))', None)
    """
    line = line.strip()
    if line.startswith("((") and line.rstrip("; \t").endswith("))"):
        name, equals, value = line.rstrip("; \t")[2:-2].partition("=")
        sets = equals and not value.startswith("=") and value.strip() and re.fullmatch(r"[A-Za-z_]\w*", name.strip())
        return f"{name.strip()}=$(({value.strip()}))" if sets else None
    first, _, rest = line.partition(" ")
    if first == ":":
        return " ".join(f'{name}="${{{name}:-{value}}}"' for name, value in SET_UNLESS.findall(rest)) or None
    if first == "let":
        pairs = LET.findall(rest)
        return " ".join(f"{name}=$(({value}))" for name, value in pairs) or None
    if first not in ("export", "declare", "typeset", "local", "readonly") or "=" not in rest:
        return None
    options = OPTIONS.match(f"{rest} ")
    plain = rest[options.end() :] if options else rest
    counted = options is not None and any("i" in word for word in options[0].split())
    return re.sub(r"\b([A-Za-z_]\w*+)=([^\s\"'$;]+)", r"\1=$((\2))", plain) if counted else plain


LET = re.compile(r"""["']?\b([A-Za-z_]\w*+)\s*+=(?!=)\s*+([^"'\s]+(?:\s*+[-+*/%]\s*+[^"'\s]++)*+)["']?""")
OPTIONS = re.compile(r"(?:\s*+-[A-Za-z]++\s++)++")
SET_UNLESS = re.compile(r"\$\{([A-Za-z_]\w*):?=([^{}\"']*)\}")
"""A variable that is set unless it is, behind the command that does nothing."""

LISTS = re.compile(r"^[ \t]*([A-Za-z_]\w*)=\(([^()$`=]{0,2000})\)", re.MULTILINE)
"""A list of plain words, by the name that it is given."""
SETS = re.compile(r"\b([A-Za-z_]\w*+)\+?=")
ITEMS = re.compile(r"""\$\{(!?)([A-Za-z_]\w*)\[([^\[\]{}]{1,40})\]\}""")
LOOP = re.compile(r"""^([ \t]*for\s+([A-Za-z_]\w*)\s+in\s+)["']?(?![{])([^\s"';$`*?]+)["']?(?=\s*(?:;|$))""", re.MULTILINE)
"""A loop over one word."""


def listed(text: str) -> str:
    """A script with the items of its lists in their places, and loops over one word as what they set.

    A list that is set twice, or that has several items where any of them may stand, is left as it is.
    """
    times = collections.Counter(SETS.findall(re.sub(r"(?m)^[ \t]*#.*", "", text)))
    plain = ((name, words) for name, words in LISTS.findall(text) if times[name] == 1 and "--" not in words)
    items = {name: [word.strip("\"'") for word in re.sub(r"#.*", "", words).split()] for name, words in plain}

    def item(match: re.Match[str]) -> str:
        held, place = items.get(match[2], []), match[3]
        if place.isdigit() and int(place) < len(held) and not match[1]:
            return held[int(place)]
        return match[0] if len(held) != 1 else "0" if match[1] else held[0]

    return LOOP.sub(r"\2=\3\n\1\3", ITEMS.sub(item, text))


# Slurm

SBATCH = re.compile(r"^#SBATCH([ \t].*)$", re.MULTILINE)
OPTION = re.compile(r"[ \t](?:--([a-z-]+)(?:=|[ \t]+)|-([A-Za-z])=?[ \t]*)([^\s#-][^\s#]*)")
COUNTED = re.compile(r"(?:[\w.-]+:)?(\d{1,6})")
OF_GPUS = re.compile(r"(?:^|,)(?:gres/)?gpu:((?:[\w.-]+:)?\d{1,6})(?=[(,]|$)")
"""What a list of a node's resources says of its GPUs."""


def slurm(text: str) -> dict[str, str]:
    """Variables that Slurm sets for a job by the ``#SBATCH`` lines of its script, as far as these say nodes, GPUs and tasks.

    Parameters
    ----------
    text : of the script

    Examples
    --------
    >>> slurm("#SBATCH -N 4\\n#SBATCH --gres=gpu:h100:8\\n#SBATCH --ntasks-per-node=1\\n")["SLURM_GPUS_PER_NODE"]
    '8'
    """
    options = {}
    for long, short, value in (option for line in SBATCH.findall(text) for option in OPTION.findall(line.partition(" #")[0])):
        if long == "gres":
            value = "".join(OF_GPUS.findall(value)[:1])
        if counted := COUNTED.fullmatch(value):
            options[long or {"N": "nodes", "n": "ntasks", "G": "gpus"}.get(short, short)] = int(counted[1])
    nodes, tasks = options.get("nodes"), options.get("ntasks-per-node")
    each = options.get("gpus-per-node", options.get("gres", (options.get("gpus-per-task") or 0) * (tasks or 0)))
    all_tasks = options.get("ntasks", nodes * tasks if nodes and tasks else None)
    known = {
        "SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_GPUS_PER_NODE": each, "SLURM_GPUS_ON_NODE": each,
        "SLURM_GPUS_PER_TASK": options.get("gpus-per-task"), "SLURM_NTASKS_PER_NODE": tasks, "SLURM_NTASKS": all_tasks,
        "SLURM_NPROCS": all_tasks,
    }  # fmt: skip
    return {name: str(value) for name, value in known.items() if value}
