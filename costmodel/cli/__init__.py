"""The command line: a question in, tables for people or JSON for machines out."""

from __future__ import annotations

import argparse
import atexit
import importlib
import itertools
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import NamedTuple, NoReturn

from costmodel.cli import codes, layout
from costmodel.cli.advice import as_options
from costmodel.cli.arguments import NO_HARDWARE, Misused, Parser
from costmodel.cli.calibrated import OPTION, not_applicable
from costmodel.cli.guesses import changes_nothing, guessed
from costmodel.cli.openings import opened
from costmodel.text import progress
from costmodel.text.errors import CostModelError, Interrupted
from costmodel.text.other_names import FLAGS, UNSURE
from costmodel.text.suggestions import MEANT, did_you_mean
from costmodel.text.version import __version__

FAMILIES = {
    "searching": ("search",), "sweeping": ("sweep",), "warming": ("warmup",), "estimating": ("estimate",), "holding": ("memory",),
    "stretching": ("capacity",), "designing": ("design",), "choosing": ("cards", "gpus"), "comparing": ("compare",),
    "diagnosing": ("diagnose",), "training": ("train", "formula"), "rollouts": ("post-train",), "towers": ("multimodal",),
    "pipelines": ("timeline", "simulate"), "communication": ("ledger", "collective"),
    "chains": ("checkpoint", "partition", "networks", "network"),
    "catalogue": ("models", "devices", "clusters", "frameworks", "accuracy", "show"), "new": ("new",),
    "launchers": ("explain", "read", "write"), "calibrating": ("calibrate",), "figures": ("report", "app"),
    "dragging": ("whatif", "site"), "serving": ("mcp",), "scripts": ("trace",), "completing": ("completion",),
}  # fmt: skip
"""Modules that add commands, in the order of the help, and the commands of each: the one that is asked for alone is loaded."""
WHERE = {"--device", "--cluster", "--help", "-h", "--help-all"}
"""Options that say on what a model is trained."""


class Elsewhere(NamedTuple):
    """A table over all hardware, which answers a command where nothing says on what."""

    command: str  # that gives the table
    usual: tuple[tuple[str, str], ...]  # options that it needs, with what is taken where they aren't said
    words: str  # for the note


ON_ALL = {
    "memory": Elsewhere("cards", (), "every card"),
    "train": Elsewhere("gpus", (("--tokens", "1T"), ("--days", "30")), "every cluster; money needs --price, such as --price 2.5"),
}
"""Commands that are about a model even where nothing says on what."""
LONGEST_MESSAGE = 1000
FEW_COMMANDS = 3
"""That are named where they have an option that another lacks."""
INTERRUPTED = "costmodel: interrupted"


def build_parser(families: Iterable[str] = FAMILIES) -> Parser:
    """The parser of some families of commands.

    Parameters
    ----------
    families : of `FAMILIES`; all of them unless given
    """
    parser = Parser(
        prog="costmodel",
        description="Which parallel plan of a training run is fastest and fits in memory.",
        epilog="`costmodel COMMAND --help` explains a command, with examples.\n"
        "Exit codes: 0 answered, 1 nothing fits (no plan, or not the one that was asked about), 2 bad input, "
        "3 not finished (the same command goes on), 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"costmodel {__version__}", help="show the version and leave")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for family in families:
        importlib.import_module(f"costmodel.cli.{family}").add(commands)
    return parser


INFERENCE = ("inference", "infer", "serving", "generate", "decode", "kv", "kv-cache", "ttft", "vllm")
"""Commands that aren't there, and won't be."""


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    typed, commands_known = argv, [*itertools.chain(*FAMILIES.values())]
    if argv and argv[0] == "help":
        argv = [*argv[1:2], "--help"]
    argv, notes = opened(argv, commands_known)
    asked = argv[0] if argv else None
    if asked is not None and asked and not asked.startswith("-") and asked not in commands_known:
        near = did_you_mean("command", asked, commands_known) or _in_python(asked)
        why = "; what is priced is training, not inference" if asked.lower() in INFERENCE else near
        raise Misused(f"unknown command {asked[:80]!r}{why} (`costmodel --help` lists the commands)")
    families = [family for family, commands in FAMILIES.items() if asked in commands] or list(FAMILIES)
    parser = build_parser([] if asked == "--version" else families)
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    if asked in commands.choices:
        meant, taken = guessed(commands.choices[asked], argv)
        if asked in ON_ALL and meant[1:] and not WHERE & {word.partition("=")[0] for word in meant}:
            return _on_all(ON_ALL[asked], argv, typed, notes, commands.choices[asked], meant)
        argv, notes = meant, [*notes, *taken]
        _refuse_unknown(commands.choices[asked], argv)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        raise Misused(f"unknown argument {unknown[0][:80]!r}{_meant(commands.choices[arguments.command], argv, unknown[0])}")
    arguments.command_line = shlex.join(["costmodel", *typed])
    arguments.notes = [*notes, *getattr(arguments, "notes", ())]
    return arguments


def _in_python(word: str) -> str:
    """What the library has under a word that is no command, such as ``parameter-server``."""
    library = importlib.import_module("costmodel")  # the package around this one, for its list of names
    name = word.lower().replace("-", "_")
    return f"; it is a function of the library: costmodel.{name}" if name in library.__all__ else ""


def _on_all(
    table: Elsewhere, argv: Sequence[str], typed: Sequence[str], notes: list[str], reading: Parser, as_asked: Sequence[str]
) -> argparse.Namespace:
    """What a model's training needs where no hardware is said: a table of all that do; refused where that can't tell."""
    parser = build_parser(["choosing"])
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    meant, taken = guessed(commands.choices[table.command], [table.command, *argv[1:]])
    known = commands.choices[table.command]._option_string_actions
    given = {word.partition("=")[0] for word in meant if word.startswith("--")}
    if not given <= known.keys():
        _refuse_unknown(reading, as_asked)
        raise Misused(f"{NO_HARDWARE} (such as --device h100 --gpus 8)")
    unsaid = [word for option, value in table.usual if option not in given for word in (option, value)]
    arguments = parser.parse_args([*meant, *unsaid])
    arguments.command_line = shlex.join(["costmodel", *typed])
    words = f"no hardware is said: {table.words if '--price' not in given else table.words.partition(';')[0]}"
    arguments.notes = [*notes, *taken, *([f"taken, as it wasn't said: {' '.join(unsaid)}"] if unsaid else []), words]
    return arguments


def _refuse_unknown(reading: Parser, argv: Sequence[str]) -> None:
    """Refuse an option that a command doesn't have, before what it lacks is asked for: the one may be meant for the other."""
    given = itertools.takewhile(lambda one: one != "--", argv[1:])
    every = {*reading._option_string_actions, *reading.variants}
    every |= {name for one in reading.variants.values() for name in one._option_string_actions}
    for option in (one.partition("=")[0] for one in given if one.startswith("--") or re.fullmatch("-[A-Za-z]", one)):
        if option == OPTION and option not in every:
            raise Misused(not_applicable(argv[0]))
        if option not in every:
            raise Misused(f"unknown argument {option[:80]!r}{_meant(reading, argv, option)}")


def _meant(reading: Parser, argv: Sequence[str], argument: str) -> str:
    """What an argument that a command doesn't have may stand for, else where its options are listed."""
    option = argument.partition("=")[0]
    meant = MEANT["option"].get(option, option)
    if meant == "--gradient-accumulation":
        return "; did you mean --global-batch? It says the sequences of a step: micro-batch x accumulation x replicas"
    if option in UNSURE and option == meant:
        return f": expected {UNSURE[option]}"
    if option in FLAGS and (holders := _elsewhere(FLAGS[option][0], reading, " ".join(FLAGS[option]))):
        return holders
    if option.startswith("--") and option == meant and changes_nothing(option):
        return ": it changes neither time nor memory, leave it out"
    known = next((one for given, one in reading.variants.items() if given in argv), reading)._option_string_actions
    if meant == "--device" and meant not in known and "--cluster" in known:
        return "; did you mean --cluster?"
    offered = [name for name in known if name not in ("-h", "--help", "--help-all")]
    near = option.startswith("-") and (meant == option or meant.partition(" ")[0] in known)  # what means something is no slip
    hint = did_you_mean("option", option, offered) if near else ""
    every = "--help-all" if "--help-all" in known else "--help"
    elsewhere = _elsewhere(meant, reading, meant if meant != option else "it")
    return hint or elsewhere or f" (`costmodel {argv[0]} {every}` lists the options)"


def _elsewhere(option: str, reading: Parser, called: str) -> str:
    """Which commands about a model have an option that one of them lacks, where few do: one of them may be meant."""
    about = {action.dest for action in reading._actions}
    if not option.startswith("--") or "model" not in about:
        return ""
    commands = next(action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    holders = [
        name for name, one in commands.choices.items() if "model" in {action.dest for action in one._actions}
        and any(option in parser._option_string_actions for parser in (one, *one.variants.values()))
    ]  # fmt: skip
    verb = "has" if len(holders) == 1 else "have"
    return f" (`costmodel {'`, `costmodel '.join(holders)}` {verb} {called})" if 0 < len(holders) <= FEW_COMMANDS else ""


def _one_line(message: str) -> str:
    line = as_options(" ".join(message.split()))
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 3] + "..."


def _shown(line: str) -> str:
    """A line for stderr, broken between words where somebody looks at it."""
    if not sys.stderr.isatty():
        return line
    return "\n".join(layout.wrapped(line, layout.page_width())).replace(layout.KEPT, " ")


def _refuse(message: str, code: int = codes.BAD_INPUT) -> int:
    if sys.stderr is not None:
        print(_shown(f"costmodel: error: {_one_line(message)}"), file=sys.stderr)
    return code


def _note(message: str) -> None:
    if sys.stderr is not None:
        print(_shown(f"costmodel: note: {_one_line(message)}"), file=sys.stderr)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _interrupt_once(_: int, frame: FrameType | None) -> NoReturn:
    """The first interruption ends the command; what comes while it unwinds is passed over."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if _importing(frame):  # modules in C report an exception in words of their own
        print(INTERRUPTED, file=sys.stderr)
        _leave(codes.INTERRUPTED)
    sys.unraisablehook = _interrupted_where_nobody_listens
    raise KeyboardInterrupt


def _interrupted_where_nobody_listens(report: sys.UnraisableHookArgs) -> None:
    """An interruption inside a destructor or a callback ends the command, too; destructors of what it left half made may fail."""
    if isinstance(report.exc_value, KeyboardInterrupt):
        print(INTERRUPTED, file=sys.stderr, flush=True)
        os._exit(codes.INTERRUPTED)


def _listen() -> None:
    """Take interruptions in hand, where the parent has not turned them off."""
    if callable(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, _interrupt_once)


def _leave(code: int) -> NoReturn:
    """Leave without the interpreter's clearing up, which takes an eighth of a second of what a search loads.

    After an interruption it is needed: one that met a class being made would have Python kill itself by the signal.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def run() -> NoReturn:
    """Answer the command line of this process and leave it."""
    _listen()
    if sys.stdout is None or sys.stderr is None:  # closed by the caller: an answer or a note would be lost
        _refuse("stdout is closed: there is nowhere to answer")
        sys.exit(codes.BAD_INPUT)
    if sys.stderr.isatty():
        progress.LISTENERS.append(_note)
    code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the answer stands
    if code != codes.INTERRUPTED and threading.active_count() > 1:
        sys.exit(code)  # which waits for them
    _leave(code)


def _drop_output() -> None:
    """Nobody reads stdout any more: let what is left of it go nowhere, also at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):
        pass


def _answered(argv: Sequence[str]) -> int:
    """The exit code of a command line that is answered, with what there is to note."""
    try:
        arguments = _parse(argv)
    except SystemExit as stop:  # --help and --version
        return int(stop.code or 0)
    code: int = arguments.run(arguments)
    for note in getattr(arguments, "notes", ()):
        _note(note)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Answer one command line.

    Parameters
    ----------
    argv : arguments; those of the process if not given

    Returns
    -------
    int
        exit code: 0 answered, 1 nothing fits, 2 bad input, 3 not finished, 130 interrupted
    """
    try:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")
        code = _answered(list(sys.argv[1:] if argv is None else argv))
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        return codes.INTERRUPTED
    except ImportError:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            raise
        print(INTERRUPTED, file=sys.stderr)  # it met a library that was being loaded, which says so in its own way
        return codes.INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return codes.PIPE_CLOSED
    except Interrupted as error:
        return _refuse(str(error), codes.UNFINISHED)
    except CostModelError as error:
        return _refuse(str(error))
    except OSError as error:
        try:
            sys.stdout.flush()
        except (OSError, AttributeError):
            _drop_output()
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror or error}")
    except ArithmeticError as error:
        return _refuse(f"numbers too large or too small to compute with ({error})")
    except MemoryError:
        return _refuse("not enough memory; try fewer values along some dimension")


__all__ = ["FAMILIES", "build_parser", "main", "run"]
