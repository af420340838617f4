"""What commands take: how an argument is read, and what it asks about."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

from costmodel.arithmetic.named_tuples import Row
from costmodel.cli import layout
from costmodel.description.cluster import Cluster
from costmodel.description.fields import FieldRow, Flag, Rate, Real, table
from costmodel.text import units
from costmodel.text.errors import CostModelError, InvalidValue
from costmodel.text.units import ANSWERS, quantity, whole_meant, whole_number

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
"""What `argparse` gives to add commands to."""


class Misused(CostModelError):
    """Arguments that can't be understood."""


class CommandLine(NamedTuple):
    """A command line as it is understood."""

    argv: list[str]  # its words
    notes: list[str]  # what was taken for what


def spelled(name: str) -> tuple[str, ...]:
    """The option of a name, and the short one that people know.

    Parameters
    ----------
    name : of a field

    Examples
    --------
    >>> spelled("tensor_parallel"), spelled("dtype")
    (('--tensor-parallel', '--tp'), ('--dtype',))
    """
    from costmodel.description.plan import Plan

    short = table(Plan)[name].short
    return (f"--{name.replace('_', '-')}", *([f"--{short}"] if short else []))


OLD = ("--out",)
"""Spellings that are taken and not shown."""


NO_HARDWARE = "one of the arguments --cluster --device is required"
"""What `argparse` says where nothing says on what."""


class Helper(argparse.RawDescriptionHelpFormatter):
    """Shows the default of an option that has one and doesn't say so itself, and its value once, behind all its spellings.

    No line is wider than the terminal; a command goes on behind a backslash, so that it can be copied.
    """

    def __init__(self, prog: str, indent_increment: int = 2, max_help_position: int = 24, width: int | None = None):
        super().__init__(prog, indent_increment, max_help_position, layout.page_width() if width is None else width)

    def _format_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None,
    ) -> str:  # fmt: skip
        if usage is None:
            return super()._format_usage(usage, actions, groups, prefix)
        return "\n".join(layout.wrapped(f"usage: {usage % {'prog': self._prog}}", self._width, 7)) + "\n\n"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = []
        for line in text.splitlines():
            command = line.startswith(("  costmodel ", "  eval "))
            broken = layout.command(line.strip(), self._width - 2).splitlines() if command else []
            lines += [f"  {part}" for part in broken] or layout.wrapped(indent + line, self._width, 0)
        return "\n".join(lines)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(one for one in action.option_strings if one not in OLD)} {value}"

    def _get_help_string(self, action: argparse.Action) -> str | None:
        words = action.help or ""
        silent = action.default is None or action.default is argparse.SUPPRESS or isinstance(action.default, bool | list)
        return words if silent or not action.option_strings or "(default" in words else f"{words} (default: %(default)s)"


class _Once(argparse.Action):
    """Stores a value that may be given once."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option_string: str | None = None
    ) -> None:
        given: set[str] = namespace.__dict__.setdefault("given", set())
        if option_string is not None and self.dest in given:
            raise argparse.ArgumentError(self, "given more than once")
        given.add(self.dest)
        setattr(namespace, self.dest, self.const if self.nargs == 0 else values)


class _OnceTrue(_Once):
    """Stores that a switch was given, once."""

    def __init__(self, **fields: object):
        build: Callable[..., None] = super().__init__
        build(**{"default": False, **fields}, nargs=0, const=True)


class _HelpAll(argparse.Action):
    """Prints the help with the options of rare use."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option_string: str | None = None
    ) -> None:
        assert isinstance(parser, Parser)
        parser.everything = True
        parser.print_help()
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Leaves the printing of errors to `main`, refuses options given twice, and keeps those of rare use for ``--help-all``."""

    def __init__(self, *, examples: Sequence[str] = (), **fields: object):
        if examples:
            fields["epilog"] = "\n".join(["examples:", *(f"  {line}" for line in examples)])
        build: Callable[..., None] = super().__init__
        build(**{"formatter_class": Helper, "allow_abbrev": False, **fields, "add_help": False})
        self.examples = tuple(examples)
        self.short: dict[argparse.Action, str] = {}
        for name in (None, "store"):
            self.register("action", name, _Once)
        self.register("action", "store_true", _OnceTrue)
        self.rare: list[argparse.Action] = []
        self.variants: dict[str, Parser] = {}
        self.everything = False
        self.add_argument("-h", "--help", action="help", default=argparse.SUPPRESS, help="show this help and leave")

    def error(self, message: str) -> NoReturn:
        if message == NO_HARDWARE:
            message += " (such as --device h100 --gpus 8)"
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message and "MODEL" in missing.split(", "):
            message += " (MODEL is a name such as llama3-8b, or a config.json; `costmodel new model FILE` begins one)"
        choices = next((action.choices for action in self._actions if missing in action.option_strings), None)
        if (lacking := re.fullmatch(r"argument (--\S+?)(?:/\S+)?: expected one argument", message)) is not None:
            action = self._option_string_actions[lacking[1]]
            message = f"{lacking[1]} needs a value: {lacking[1]} {action.metavar or '|'.join(action.choices or ('X',))}"
        raise Misused(message + (f" (one of {', '.join(map(str, choices))})" if choices else ""))

    def variant(self, option: str, parser: Parser) -> None:
        """Have another parser read what stands beside an option: a command that asks for other things with it."""
        self.variants[option] = parser

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def,override]
        given = list(args or ())
        for option, parser in self.variants.items():
            if option in given:
                return parser.parse_known_args([one for one in given if one != option], namespace)
        return super().parse_known_args(args, namespace)

    def rarely(self, *actions: argparse.Action) -> None:
        """Leave options out of ``--help``; ``--help-all`` shows them."""
        if not self.rare:
            self.add_argument("--help-all", action=_HelpAll, nargs=0, default=argparse.SUPPRESS,
                              help="show also the options of rare use, and leave")  # fmt: skip
        self.rare += actions

    def briefly(self, action: argparse.Action, text: str) -> None:
        """Say of an option less in ``--help`` than in ``--help-all``."""
        self.short[action] = text

    def format_help(self) -> str:
        if self.everything:
            return super().format_help()
        shown = {**self.short, **dict.fromkeys(self.rare, argparse.SUPPRESS)}
        words = {action: action.help for action in shown}
        try:
            for action, text in shown.items():
                action.help = text
            return super().format_help()
        finally:
            for action, whole in words.items():
                action.help = whole


def add_output(parser: argparse.ArgumentParser, plain: str = "tables") -> argparse._ArgumentGroup:
    """The group of arguments that say in what form the answer comes; more may join it.

    Parameters
    ----------
    parser : of a command
    plain : what the answer comes as without them
    """
    group = parser.add_argument_group("output")
    form = group.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help=f"JSON instead of {plain}")
    form.add_argument("--markdown", action="store_true", help=f"Markdown instead of {plain}, to paste into a report")
    return group


def whole(text: str) -> int:
    """A whole number, or such as ``16k``, which counts by 1,024 as clusters and batches do."""
    return _whole(text, whole_number(text))


def length(text: str) -> int:
    """Tokens of a sequence: a whole number, or such as ``8k`` and ``1M``, which count by 1,024 there."""
    return _whole(text, whole_number(text, "km"))


def _whole(text: str, found: int | None) -> int:
    if found is not None:
        return found
    parts = text.split(",")
    if text.isdecimal():
        wrong = "has too many digits"
    elif len(parts) > 1 and None not in map(whole_number, parts) and not whole_meant(text):
        wrong = "is not one whole number: `costmodel compare` takes several"
    else:
        wrong = f"is not a whole number{whole_meant(text)}"
    raise argparse.ArgumentTypeError(f"{text[:80]!r} {wrong}")


def number(text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a number{_number_meant(text)}") from None


def _number_meant(text: str) -> str:
    """The plain number that a share in per cent, or an amount with a letter, stands for."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(%|[kKMBT])", text)
    powers = {"%": 1e-2, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
    return f"; did you mean {float(match[1]) * powers[match[2]]:g}?" if match else ""


TIMES = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "d": 86400.0,
    "day": 86400.0, "ms": 1e-3,
}  # fmt: skip
"""Units of a time as people write them [s]; the longer ones in the plural, too."""


def _time(text: str, usual: float, such: str) -> float:
    with contextlib.suppress(ValueError):  # a bare number, which the library judges
        return float(text)
    match = re.fullmatch(r"([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([a-z]*)", text.strip().lower())
    unit = match[2] if match else ""
    unit = unit if unit in TIMES else unit.removesuffix("s")
    if match is None or (unit and unit not in TIMES):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a time, such as {such}")
    return number(match[1]) * (TIMES[unit] / usual if unit else 1.0)


def seconds(text: str) -> float:
    """Seconds, or a time with its unit.

    Examples
    --------
    >>> seconds("90"), seconds("10min"), seconds("1 hour")
    (90.0, 600.0, 3600.0)
    """
    return _time(text, 1.0, "600, 10min or 1h")


def hours(text: str) -> float:
    """Hours, or a time with its unit.

    Examples
    --------
    >>> hours("3"), hours("90min"), hours("2 days")
    (3.0, 1.5, 48.0)
    """
    return _time(text, 3600.0, "50000, 3h or 30 days")


def rate(text: str) -> float:
    """Bytes a second, or a rate with its unit such as ``100Gbit/s``."""
    try:
        return quantity("rate", text, "bandwidth")
    except InvalidValue as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def nbytes(text: str) -> float:
    """Bytes of a size such as 4096, 25MB or 1GiB."""
    match = re.fullmatch(r"([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(?:B|(([KMGT])i?B))?", text)
    if match is None:
        short = re.fullmatch(r"([0-9.]{1,20})\s*([kKMGT])[bi]?", text)
        meant = f"; did you mean {short[1]}{short[2].upper()}B or {short[1]}{short[2].upper()}iB?" if short else ""
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a size, such as 25MB or 1GiB{meant}")
    return number(match[1]) * float(getattr(units, match[2]) if match[2] else 1.0)


def watts(text: str) -> float:
    """Watts, or a power with its unit, such as 500W or 0.5kW."""
    try:
        return quantity("power", text, "power")
    except InvalidValue as refused:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no power: expected {refused.expected}") from None


def yes(text: str) -> bool:
    """Yes or no."""
    if text.lower() not in ANSWERS:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is neither yes nor no")
    return ANSWERS[text.lower()]


def _word_or_number(text: str) -> str | float:
    if not (text.isascii() and text.replace(".", "", 1).isdigit() and len(text) < 20):
        return text
    return int(text) if text.isdigit() else float(text)


def _rate(text: str) -> bool:
    found = Rate().read("", text)
    if not isinstance(found, bool):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is neither yes nor no, nor a rate from 0 to 1")
    return found


def _order(text: str) -> tuple[str, ...]:
    return tuple(text.split("-"))


@functools.cache
def plan_fields() -> dict[str, FieldRow]:
    """Every dimension of a plan: the rows of `Plan`, but for the sizes that a question always says."""
    from costmodel.description.plan import Plan

    return {name: row for name, row in table(Plan).items() if not row.asked}


def reader(row: FieldRow) -> tuple[Callable[[str], Any], str]:
    """How an argument of a field is read, and how it is shown in the help."""
    kind = row.kind
    if isinstance(kind, Flag):
        return (_rate, "yes|no|X") if isinstance(kind, Rate) else (yes, "yes|no")
    if kind.several:
        return _order, "A-B-C-D"
    if isinstance(kind, Real):
        return (nbytes, "SIZE") if row.unit == "bytes" else (number, "X")
    if kind.choices and kind.bounds:
        return _word_or_number, "NAME|N"
    return (whole, "N") if kind.whole else (str, "NAME")


def meaning(row: FieldRow) -> str:
    """What a field means, as the help says it."""
    return row.help.replace("`", "").replace("%", "%%")


def unasked(row: FieldRow) -> str:
    """What a field is that isn't given, in words."""
    return row.unset or ("the framework's" if row.default is None else str(row.default))


@dataclasses.dataclass(frozen=True)
class Several:
    """Reads values with commas between them."""

    reader: Callable[[str], object]  # of one

    def __call__(self, text: str) -> list[object]:
        """The values that a text holds."""
        return [self.reader(part) for part in text.split(",")]


def many(reader: Callable[[str], object]) -> Several:
    """Reads values with commas between them."""
    return Several(reader)


def add_size(parser: argparse.ArgumentParser) -> None:
    """How many GPUs."""
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--nodes", type=whole, metavar="N", help="how many nodes of it")
    size.add_argument("--gpus", type=whole, metavar="N", help="how many GPUs of it")


def chosen(arguments: argparse.Namespace) -> Row:
    """Dimensions of a plan that were given."""
    return {name: getattr(arguments, name) for name in plan_fields() if getattr(arguments, name) is not None}


# What is asked about


def read_cluster(name: str) -> Cluster:
    """A cluster of the catalogue, one node of it, or of a file."""
    from costmodel.catalogue.clusters import one_node

    return one_node(name)


def sized_cluster(arguments: argparse.Namespace) -> Cluster:
    """That which was named; of a device as many nodes as were asked for, one where no number of GPUs is said."""
    from costmodel.catalogue.machines import machine, on_network

    network = getattr(arguments, "network", None)
    if arguments.device is None:
        cluster = read_cluster(arguments.cluster)
        return cluster if network is None else on_network(cluster, network)
    nodes = 1 if arguments.gpus is None and arguments.nodes is None else arguments.nodes
    cluster = machine(arguments.device, arguments.gpus, nodes, network)
    arguments.gpus, arguments.nodes = cluster.gpus, None
    return cluster


def gpus_of(arguments: argparse.Namespace, cluster: Cluster) -> int | None:
    """GPUs that were asked for, or None."""
    nodes: int | None = arguments.nodes
    gpus: int | None = arguments.gpus
    if nodes is None:
        return gpus
    if nodes < 1:
        raise InvalidValue("nodes", nodes, "a whole number from 1")
    return nodes * cluster.gpus_per_node
