"""Launch files as flat lists of keys and values: nothing of them is run, no path that they name is opened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from costmodel.interop.launchers.conditions import ScriptBlocks, truth
from costmodel.interop.launchers.documents import documents
from costmodel.interop.launchers.manifests import job_of
from costmodel.interop.launchers.shell import (
    NAME,
    assignments,
    expand,
    hide,
    is_variable,
    listed,
    show,
    slurm,
)
from costmodel.interop.launchers.splitting import words
from costmodel.interop.launchers.trees import MAX_ENTRIES, Entry, flat, parse, read_json, resolve_tree
from costmodel.text import user_files
from costmodel.text.errors import UnreadableFile

MAX_BYTES = 1 << 20
MAX_WORDS = 100_000
MAX_TRIED = 3 << 20
"""Characters that are looked at again because a quotation goes on over the end of a line."""
MAX_EXPANDED = 4 << 20
"""Characters that a file's variables may stand for, all together."""
LAYOUTS = {
    ".json": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".args": "args", ".sh": "args", ".txt": "args",
    ".slurm": "args", ".sbatch": "args", ".bash": "args", ".cmd": "args",
}  # fmt: skip
SHELL = frozenset(["|", ">", ">>", "2>&1", "&", "&&", ";", "2>", "(", ")", "\\"])
"""Words after which a flag has no more values."""
COMMANDS = frozenset([
    "if", "elif", "else", "fi", "for", "while", "do", "done", "case", "esac", "then", "function", "return", "echo",
    "printf", "export", "set", "unset", "mkdir", "rm", "cd", "cp", "mv", "ln", "cat", "tee", "pip", "pip3",
    "source", ".", "exit", "sleep", "module", "conda", "wget", "curl", "git", "tar", "chmod", "read", "shift",
    "local", "declare", "trap", "wait", "kill", "scontrol", "hostname", "ulimit", "touch", "test", "[", "[[", "((",
])  # fmt: skip
"""Commands of a shell script that start no training."""
LINE_END = "\n"
SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
BLOCKS = {"if": 1, "for": 1, "while": 1, "until": 1, "case": 1, "fi": -1, "done": -1, "esac": -1}
"""Words that open and close what a script does only sometimes."""
CLOSES = re.compile(r"""['"`)}\]\\]""")
"""Signs without which a line closes no quotation that an earlier one opened."""
ALWAYS = "[ 1 = 1 ]"
"""The condition of what runs otherwise."""
OPENED, TURNED, CLOSED = "\n?", "\n:", "\n."
"""Signs among the words of a script: a block begins, behind it its condition; what runs of it otherwise; its end."""
PATTERN = re.compile(r"\s*+-[\w-]++(?:\s*+\|\s*+-[\w-]++)*+\s*+\)(?:(?!--)[^)])*+")
"""Flags of a ``case``, which the script itself takes."""
SEVERAL = re.compile(r"--[a-z][\w-]*\s")
"""A flag with its value in one word, which an array that is expanded without quotation marks splits again."""
LIST = re.compile(r"[A-Za-z_]\w*\+?=\((?!.*\)$)", re.DOTALL)
"""The first word of a list that a variable is set to, of several words."""
FLAGS_IN = re.compile(
    r"(?<![\w-])([A-Za-z_]\w{0,99})\+?=\(?\s{0,99}[\"']?\s{0,99}(?:\\\n\s{0,99})?(?:\$\{?\w{1,99}\}?\s{0,99})?(?:\\\n\s{0,99})?"
    r"(?:--[a-z]|[\"']?[a-z_]{1,99}\.[\w.]{1,99}=)"
)
"""Where a variable is set to flags, or to values of dotted names."""
COMMENTED = re.compile(r"(?<!\\\n)^[ \t]*#.*\\$", re.MULTILINE)  # a comment doesn't go on over the end of its line
COMMAND = re.compile(r"`|\$[(\[@0-9]")
"""What a command says, or whoever starts the script."""
ALONE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?:\[[@*]\])?\}|([A-Za-z_]\w*))")
FILLED_IN = {"ZERO_STAGE": "zero_stage"}
"""Words of a template of DeepSpeed's configuration, as Megatron-DeepSpeed's scripts replace them by ``sed``, and their flags."""

ENVIRONMENT = {"NPROC_PER_NODE": "nproc_per_node", "NNODES": "nnodes"}
"""Variables by which programs that start torchrun themselves are told its sizes, where no flag says them."""
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Variables that set PyTorch's allocator: docs/source/notes/cuda.rst."""
EXPANDABLE = re.compile(r"\bexpandable_segments:(true|false)\b", re.IGNORECASE)
JOB = {"SLURM_GPUS_PER_NODE": "nproc_per_node", "SLURM_NTASKS_PER_NODE": "nproc_per_node", "SLURM_NNODES": "nnodes"}
"""The same of a job of Slurm's, whose tasks are processes where a node has several and nothing says its GPUs."""
WORLD = {
    "_nodes": "nnodes num_nodes num_machines nodes N", "_per_node": "nproc_per_node num_gpus gpus_per_node nproc npernode",
    "_gpus": "num_processes world_size",
}  # fmt: skip
"""Flags of the program that starts the processes, which say how many there are, by what each says."""
SIZED = frozenset(" ".join(WORLD.values()).split())


PIN = re.compile(r"\b(transformers|trl|deepspeed|torchtune)\s{0,9}==\s{0,9}v?([0-9]{1,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?)", re.I)
"""A release that a file asks for, in a comment or a command that installs it."""


class Source(NamedTuple):
    """One file."""

    name: str
    layout: str
    entries: tuple[Entry, ...]
    words: tuple[str, ...]
    """Of a command line, those that belong to no flag."""
    twice: tuple[str, ...]
    """Keys of a tree that it states twice, differently."""
    variables: frozenset[str]
    """Names that its text has as variables."""
    filled_in: Mapping[str, str] = {}
    """Words of templates, with what a script's ``sed`` puts in their place."""
    pins: Mapping[str, str] = {}
    """Releases that it asks for, by package."""
    written: Mapping[str, str] = {}
    """Files that a script writes, by name."""


def is_text(path_or_text: str) -> bool:
    """Whether what was given is the content of a file rather than its name."""
    return (
        "\n" in path_or_text
        or path_or_text.lstrip().startswith(("-", "{", "["))
        or re.search(r" --|\s[A-Za-z_][\w.]*=", path_or_text) is not None
        or len(path_or_text) > 1000
    )


def load(path_or_text: str | Path, variables: Mapping[str, str]) -> Source:
    """Parse a file, or the text of one."""
    if isinstance(path_or_text, str) and is_text(path_or_text):
        name, text, layout = "text", path_or_text, sniff(path_or_text)
    else:
        path = Path(path_or_text)
        text, name = user_files.text(path_or_text, MAX_BYTES), user_files.named(path.name)
        layout = LAYOUTS.get(path.suffix.lower()) or sniff(text)
    if len(text) > MAX_BYTES:
        raise UnreadableFile(f"{name}: more than {MAX_BYTES} characters, which no launch file has")
    pins = {package.lower(): release for package, release in PIN.findall(text)}
    if layout == "args":
        script = (
            text.startswith("#!")
            or name.lower().endswith(SCRIPTS)
            or any(line.startswith("#SBATCH") for line in text.splitlines())
        )
        filled_in: dict[str, str] = {}
        held = Variables(variables, name)
        entries, loose = arguments(text, held, name, script, filled_in)
        written = documents(text, held.expand) if script else {}
        return Source(name, layout, entries, loose, (), frozenset(NAME.findall(text)), filled_in, pins, written)
    twice: list[str] = []
    tree = parse(text, layout, name, twice)
    if (job := job_of(tree)) is not None:
        entries, loose = arguments(job.line, Variables({**job.variables, **variables}, name), name, job.script)
        said = {entry.key for entry in entries}
        sizes = tuple(Entry(key, str(many), f"{key} {many} of the job") for key, many in job.sizes.items() if key not in said)
        return Source(name, "args", (*entries, *sizes), loose, (), frozenset(NAME.findall(job.line)), {}, pins)
    if isinstance(inside := tree.get("parameters"), dict) and "compute" in tree:  # a job of MosaicML's platform
        tree = inside | {"compute": tree["compute"]}
    tree = resolve_tree(tree, variables, name)
    return Source(name, layout, tuple(flat(tree, name)), (), tuple(twice), frozenset(NAME.findall(text)), {}, pins)


def sniff(text: str) -> str:
    """The layout of a text: ``"json"``, ``"toml"``, ``"args"`` or ``"yaml"``."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith(("#", "//"))]
    first = lines[0] if lines else ""
    if first.startswith("{"):
        try:
            read_json(text, [])
        except (ValueError, RecursionError):
            return "yaml"
        return "json"
    if re.fullmatch(r"\[[\w.\-\" ]+\](\s*#.*)?", first):
        return "toml"
    if re.match(r"[\w.\"' -]+:(\s|$)", first):
        return "yaml"
    if any(re.match(r"--?[A-Za-z]", line) for line in lines) or re.search(r"\s--[A-Za-z]", text):
        return "args"
    if (lines and all(re.match(r"[\w.+~]+=", line) for line in lines)) or len(re.findall(r"(?:^|\s)[\w.+~]+=\S", first)) > 1:
        return "args"
    return "yaml"


# Command lines


class Variables:
    """What a script's variables are known to be: each as it is last set, none that several branches set differently.

    One that is set to what isn't known stands for itself, so that what would be taken where it isn't set is not.
    """

    def __init__(self, given: Mapping[str, str], name: str):
        self.given = given
        self.name = name
        self.expanded = 0
        self.known = dict(given)
        self.in_branch = False
        self._sometimes: dict[str, str] = {}
        self._open: set[str] = set()

    def set(self, name: str, value: str) -> None:
        """Note an assignment; what is given stays, and so does what is set whatever happens where a branch sets it too."""
        value = self.expand(value)
        if name in self.given:
            return
        if not self.in_branch:
            self._sometimes.pop(name, None)
            self._open.discard(name)
            itself = COMMAND.search(value) or name in NAME.findall(value)
            self.known[name] = f"${{{name}}}" if is_variable(value) and itself else value
        elif self._sometimes.get(name, value) != value:
            self.known[name] = f"${{{name}}}"
            self._open.add(name)
        elif name not in self.known and name not in self._open and not is_variable(value):
            self.known[name] = self._sometimes[name] = value

    def expand(self, text: str) -> str:
        """A text with what is known put in, as long as all that was put in stays within `MAX_EXPANDED` characters."""
        if "$" not in text and "`" not in text:
            return text
        found = expand(text, self.known)
        self.expanded += max(len(text), len(found))
        if self.expanded > MAX_EXPANDED:
            raise UnreadableFile(f"{self.name}: its variables stand for more than {MAX_EXPANDED} characters")
        return found


def arguments(
    text: str, held: Variables, name: str, script: bool = False, filled_in: dict[str, str] | None = None
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Flags with their values, in order, and the words that belong to none; of a script the lines that could launch a run."""
    tokens = _tokens(listed(text) if script else text, name, script)
    assignment = re.compile(r"([A-Za-z_]\w*)=(.*)" if script else r"([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)
    job = slurm(text) if script else {}
    for variable, value in job.items():
        held.set(variable, value)
    of_flags = frozenset(FLAGS_IN.findall(text))
    blocks = ScriptBlocks()
    flags: list[tuple[str, list[str]]] = []
    entries: list[Entry] = []
    overrides: dict[int, list[str]] = {}
    loose: list[str] = []
    environment: dict[str, str] = {}
    aside = continues = launching = started = False
    for token in tokens:
        if token == LINE_END:
            continues = launching = started = False
            aside = aside or script
            continue
        if token[:2] in (OPENED, TURNED, CLOSED):
            _branch(token, blocks, held)
            continue
        if blocks.runs is False:
            continue
        before, started = started, started or not assignment.fullmatch(token)
        if _is_flag(token) and (launching or not script or token.startswith("--")):
            aside, continues, launching = False, False, True
            option, equals, value = token.partition("=")
            flags.append((option, [value] if equals else []))
            entries.append(Entry("", len(flags) - 1, ""))
        elif (assigned := assignment.fullmatch(token)) and not (before and assigned[1].islower()):
            held.set(assigned[1], assigned[2])
            environment[assigned[1]] = token
            loose.append(token)
        elif replaced := re.fullmatch(r"s([/|#])([A-Z][A-Z0-9_]*)\1([^/|#]*)\1g?", token):
            value = held.expand(replaced[3])
            if filled_in is not None:
                filled_in[replaced[2]] = value
            if replaced[2] in FILLED_IN:
                entries.append(Entry(FILLED_IN[replaced[2]], value, f"sed {token}"))
            loose.append(token)
        elif override := re.fullmatch(r"([+~]{0,2}[A-Za-z_][\w.]*)=(.*)", token, re.DOTALL):
            aside = continues = True
            key = override[1].lstrip("+~")
            overrides[len(entries)] = [held.expand(override[2])]
            entries.append(Entry(key, "", key))
        elif token in SHELL:
            aside, continues = True, False
            loose.append(token)
        elif continues and _flags_of(token, of_flags):
            continue
        elif continues and not script:
            overrides[len(entries) - 1].append(token)
        elif aside or not flags:
            loose.append(token)
        else:
            flags[-1][1].append(token)
    if len(entries) > MAX_ENTRIES:
        raise UnreadableFile(f"{name}: more than {MAX_ENTRIES} flags, which no launch file has")
    found = []
    for place, entry in enumerate(entries):
        if entry.key or not isinstance(entry.raw, int):
            found.append(entry._replace(raw=" ".join(overrides[place])) if place in overrides else entry)
            continue
        option, given = flags[entry.raw]
        values = [word for value in given for word in _words(value, held, of_flags)]
        raw = True if not values else values[0] if len(values) == 1 else values
        found.append(Entry(option.lstrip("-").replace("-", "_"), raw, option, "" if values else " ".join(given)))
    said = {entry.key for entry in found}
    for name, key in ENVIRONMENT.items():
        if name in environment and key not in said and held.known.get(name, "").isdigit():
            found.append(Entry(key, held.known[name], environment[name]))
    for name in ALLOCATOR:
        if name in environment and (segments := EXPANDABLE.search(held.known.get(name, ""))):
            found.append(Entry("expandable_segments", segments[1].lower(), environment[name]))
    for variable, key in JOB.items() if not said & SIZED else ():
        alone = "TASKS" in variable and job.get(variable) == "1"  # which starts the others
        if variable in job and not alone and key not in {entry.key for entry in found}:
            found.append(Entry(key, job[variable], f"#SBATCH {variable}={job[variable]}"))
    return tuple(found), tuple(loose)


def _words(token: str, held: Variables, of_flags: frozenset[str]) -> list[str]:
    """What a shell makes of a word: a variable's several words, or none; flags among them were read where it is set."""
    if _flags_of(token, of_flags):
        return []
    value = held.expand(token)
    if "$" not in token or not (value.strip() == "" or re.search(r"\s", value)):
        return [value]
    several = value.split()
    return several[: next((place for place, word in enumerate(several) if word.startswith("--")), len(several))]


def _flags_of(token: str, of_flags: frozenset[str]) -> bool:
    """Whether a word is a variable of flags, which were read where it is set."""
    alone = ALONE.fullmatch(token)
    return alone is not None and (alone[1] or alone[2]) in of_flags


def _is_flag(token: str) -> bool:
    if token.endswith(")") and "(" not in token:  # a pattern of ``case``
        return False
    return (token.startswith("--") and len(token) > 2) or re.fullmatch(r"-[A-Za-z]\w*(=.*)?", token, re.DOTALL) is not None


def _tokens(text: str, name: str, script: bool) -> list[str]:
    """Words as a shell splits them, line by line unless a quotation goes on; what a variable is set to is split again."""
    joined = COMMENTED.sub("", text).rstrip().removesuffix("\\").replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if not line.lstrip().startswith("#")]
    tokens: list[str] = []
    held: list[str] = []
    tried = 0
    passed = listing = False
    for line in lines:
        if script and not held:
            tokens += _blocks(line)
            if not listing and PATTERN.fullmatch(line):
                continue
            stated = assignments(line)
            if stated is None and line.split() and line.split()[0].split("(")[0] in COMMANDS:
                passed = words(hide(line), comments=True) is None  # what it says goes on over the end of the line
                if not passed:
                    continue
            line = line if stated is None else stated
        held.append(line)
        if len(held) > 1 and not CLOSES.search(line):
            continue
        whole = "\n".join(held)
        tried += len(whole) if len(held) > 1 else 0
        if tried > MAX_TRIED:
            raise UnreadableFile(f"{name}: a quotation isn't closed on the lines after it: {held[0][:60]!r}")
        split = words(hide(whole), comments=script)
        if split is None:
            continue
        held = []
        if passed:
            passed = False
            continue
        if script:  # a semicolon ends the word that it stands at
            split = [part for token in split for part in ((token[:-1], ";") if token.endswith(";") else (token,)) if part]
        for token in split:
            if listing and token != ")" and token.endswith(")") and "(" not in token:
                token = token[:-1]  # the parenthesis that closes the list isn't of its last word
                listing = False
            listing = bool(LIST.match(token)) or (listing and token != ")")
            assigned = re.fullmatch(r"[A-Za-z_]\w*\+?=(?:\((.*?)\)?|(.*))", token, re.DOTALL)
            inner = assigned[1] or assigned[2] or "" if assigned else ""
            again = None
            if SEVERAL.match(token) or re.search(r"(^|\s)(--[a-z]|[a-z_]+\.[\w.]+=)", inner):
                again = words(inner or token, comments=False) or inner.split()
            tokens += [show(word) for word in again or [token]]
        tokens.append(LINE_END)
        if len(tokens) > MAX_WORDS:
            raise UnreadableFile(f"{name}: more than {MAX_WORDS} words, which no launch file has")
    if held and not script:
        raise UnreadableFile(f"{name}: a quotation is never closed: {held[0][:60]!r}")
    return tokens


def _blocks(line: str) -> list[str]:
    """Blocks of a script that a line opens or closes, less those that it does both, or the other part of one."""
    parts = (part.split() for part in re.split(r";|&&|\|\||\bthen\b|\bdo\b|\belse\b", line))
    opened = sum(BLOCKS.get(words[0], 0) for words in parts if words)
    first, _, rest = line.strip().partition(" ")
    condition = rest.partition(";")[0] if first in ("if", "elif") else ALWAYS if first.startswith("else") else ""
    if opened > 0:
        return [OPENED + (condition if opened == 1 else "")] + [OPENED] * (opened - 1)
    return [CLOSED] * -opened if opened else [TURNED + condition] if first == "elif" or condition == ALWAYS else []


def _branch(token: str, blocks: ScriptBlocks, held: Variables) -> None:
    """Go into a block, to what runs of it otherwise, or out of it."""
    kind, condition = token[:2], token[2:]
    if kind == CLOSED:
        blocks.close()
    else:
        (blocks.open if kind == OPENED else blocks.turn)(truth(condition, held.expand, held.known))
    held.in_branch = blocks.runs is None
