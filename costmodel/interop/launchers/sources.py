"""Launch files as flat lists of keys and values: nothing of them is run, no path that they name is opened."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from costmodel.errors import CostModelError, UnreadableFile
from costmodel.interop.launchers.shell import NAME, assignments, expand, hide, is_variable, show

MAX_BYTES = 1 << 20
MAX_ENTRIES = 20_000
MAX_DEPTH = 40
LAYOUTS = {
    ".json": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".args": "args", ".sh": "args", ".txt": "args",
    ".slurm": "args", ".sbatch": "args", ".bash": "args", ".cmd": "args",
}  # fmt: skip
SHELL = frozenset(["|", ">", ">>", "2>&1", "&", "&&", ";", "2>", "(", ")", "\\"])
"""Words after which a flag has no more values."""
COMMANDS = frozenset(
    [
        "if",
        "elif",
        "else",
        "fi",
        "for",
        "while",
        "do",
        "done",
        "case",
        "esac",
        "then",
        "function",
        "return",
        "echo",
        "printf",
        "export",
        "set",
        "unset",
        "mkdir",
        "rm",
        "cd",
        "cp",
        "mv",
        "ln",
        "cat",
        "tee",
        "pip",
        "pip3",
        "source",
        ".",
        "exit",
        "sleep",
        "module",
        "conda",
        "wget",
        "curl",
        "git",
        "tar",
        "chmod",
        "read",
        "shift",
        "local",
        "declare",
        "trap",
        "wait",
        "kill",
        "scontrol",
        "hostname",
        "ulimit",
        "touch",
        "test",
        "[",
        "[[",
        "((",
    ]
)
"""Commands of a shell script that start no training."""
LINE_END = "\n"
SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
BLOCKS = {"if": 1, "for": 1, "while": 1, "until": 1, "case": 1, "fi": -1, "done": -1, "esac": -1}
"""Words that open and close what a script does only sometimes."""
IN_BRANCH, NO_BRANCH = "\n?", "\n."
"""Signs among the words of a script that what follows is set only sometimes, and that it is set whatever happens."""
FLAGS_IN = re.compile(
    r"(?<!\w)([A-Za-z_]\w{0,99})\+?=\(?\s{0,99}[\"']?\s{0,99}(?:\\\n\s{0,99})?(?:\$\{?\w{1,99}\}?\s{0,99})?(?:\\\n\s{0,99})?--[a-z]"
)
"""Where a variable is set to flags."""
ALONE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?:\[[@*]\])?\}|([A-Za-z_]\w*))")
FILLED_IN = {"ZERO_STAGE": "zero_stage"}
"""Words of a template of DeepSpeed's configuration, as Megatron-DeepSpeed's scripts replace them by ``sed``, and their flags."""


class Entry(NamedTuple):
    """One statement: its key as tables spell it, its value, and how the file shows it."""

    key: str
    raw: object
    shown: str


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


def is_text(path_or_text: str) -> bool:
    """Whether what was given is the content of a file rather than its name."""
    return (
        "\n" in path_or_text
        or path_or_text.lstrip().startswith(("-", "{", "["))
        or " --" in path_or_text
        or len(path_or_text) > 1000
    )


def load(path_or_text: str | Path, variables: Mapping[str, str]) -> Source:
    """Parse a file, or the text of one."""
    if isinstance(path_or_text, str) and is_text(path_or_text):
        name, text, layout = "text", path_or_text, sniff(path_or_text)
    else:
        path = Path(path_or_text)
        text, name = _read(path), path.name
        layout = LAYOUTS.get(path.suffix.lower()) or sniff(text)
    if len(text) > MAX_BYTES:
        raise UnreadableFile(f"{name}: more than {MAX_BYTES} characters, which no launch file has")
    if layout == "args":
        script = (
            text.startswith("#!")
            or name.lower().endswith(SCRIPTS)
            or any(line.startswith("#SBATCH") for line in text.splitlines())
        )
        filled_in: dict[str, str] = {}
        entries, loose = arguments(text, variables, name, script, filled_in)
        return Source(name, layout, entries, loose, (), frozenset(NAME.findall(text)), filled_in)
    twice: list[str] = []
    tree = _tree(text, layout, name, twice)
    if not isinstance(tree, dict):
        raise UnreadableFile(f"{name}: a {layout.upper()} table of names and values was expected")
    tree = resolve_tree(tree, variables)
    return Source(name, layout, tuple(flat(tree, name)), (), tuple(twice), frozenset(NAME.findall(text)))


def _read(path: Path) -> str:
    try:
        if path.is_dir():
            raise UnreadableFile(f"{path}: a folder; a launch file was expected")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        return content.decode("utf-8-sig")
    except UnreadableFile:
        raise
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror or 'unreadable'}") from None
    except UnicodeDecodeError:
        raise UnreadableFile(f"{path}: not a text in UTF-8") from None
    except ValueError:
        raise UnreadableFile(f"{str(path)[:80]!r}: no name of a file") from None


def sniff(text: str) -> str:
    """The layout of a text: ``"json"``, ``"toml"``, ``"args"`` or ``"yaml"``."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith(("#", "//"))]
    first = lines[0] if lines else ""
    if first.startswith("{"):
        try:
            _json(text, [])
        except (ValueError, RecursionError):
            return "yaml"
        return "json"
    if re.fullmatch(r"\[[\w.\-\" ]+\](\s*#.*)?", first):
        return "toml"
    if re.match(r"[\w.\"' -]+:(\s|$)", first):
        return "yaml"
    if any(re.match(r"--?[A-Za-z]", line) for line in lines) or re.search(r"\s--[A-Za-z]", text):
        return "args"
    if (lines and all(re.match(r"[\w.+~]+=", line) for line in lines)) or len(
        re.findall(r"(?:^|\s)[\w.+~]+=\S", first)
    ) > 1:
        return "args"
    return "yaml"


# Trees


def _tree(text: str, layout: str, name: str, twice: list[str]) -> object:
    try:
        if layout == "json":
            return _json(text, twice)
        if layout == "toml":
            return tomllib.loads(text)
        return _yaml(text, name, twice)
    except RecursionError:
        raise UnreadableFile(f"{name}: nested too deeply") from None
    except (ValueError, OverflowError) as error:
        if isinstance(error, CostModelError):
            raise
        raise UnreadableFile(f"{name}: not {layout.upper()}: {' '.join(str(error).split())[:200]}") from None


JSON_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z)|\b[A-Z][A-Z0-9_]+\b', re.DOTALL)
LAST_COMMA = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])')


def _json(text: str, twice: list[str]) -> object:
    """A text as JSON; where it is none, without comments and commas after a last element, its bare words taken for variables."""

    def read(text: str) -> object:
        return json.loads(text, object_pairs_hook=lambda pairs: _table(pairs, twice), parse_constant=_constant)

    def plain(match: re.Match[str]) -> str:
        token = match[0]
        return token if token[0] == '"' else f'"${token}"' if token[0].isalpha() else " "

    try:
        return read(text)
    except json.JSONDecodeError:
        twice.clear()
        bare = LAST_COMMA.sub(lambda match: match[0] if match[0][0] == '"' else "", JSON_TOKEN.sub(plain, text))
        if bare == text:
            raise
        return read(bare)


def _constant(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _table(pairs: Sequence[tuple[object, object]], twice: list[str]) -> dict[str, object]:
    table: dict[str, object] = {}
    for key, value in pairs:
        if str(key) in table and table[str(key)] != value:
            twice.append(f"{key}={_short(table[str(key)])} and {key}={_short(value)}")
        table[str(key)] = value
    return table


def _short(value: object) -> str:
    return repr(value)[:60]


def _yaml(text: str, name: str, twice: list[str]) -> object:
    import yaml

    if re.search(r"(?:[\[{]\s*){40}", text):
        raise UnreadableFile(f"{name}: nested deeper than {MAX_DEPTH} levels")

    loader_class: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader_class = type("Loader", (loader_class,), {"__doc__": "The safe loader, which says of a key that it comes twice."})

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[str, object]:
        loader.flatten_mapping(node)
        pairs = [
            (loader.construct_object(key, deep=True), loader.construct_object(value, deep=True))
            for key, value in node.value
        ]
        return _table(pairs, twice)

    loader_class.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    try:
        documents = [document for document in yaml.load_all(text, loader_class) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise UnreadableFile(
            f"{name}{where}: not YAML: {getattr(error, 'problem', None) or 'unreadable'}"
        ) from None
    if len(documents) > 1:
        raise UnreadableFile(f"{name}: {len(documents)} YAML documents; one was expected")
    return documents[0] if documents else {}


def flat(tree: Mapping[str, object], name: str, prefix: str = "", depth: int = 0) -> Iterator[Entry]:
    """The leaves of a tree, with dots in their keys; a list is a leaf."""
    if depth > MAX_DEPTH:
        raise UnreadableFile(f"{name}: nested deeper than {MAX_DEPTH} levels")
    counted = 0
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            entries = flat(value, name, f"{path}.", depth + 1)
        else:
            entries = iter([Entry(path, value, path)])
        for entry in entries:
            counted += 1
            if counted > MAX_ENTRIES:
                raise UnreadableFile(f"{name}: more than {MAX_ENTRIES} entries, which no launch file has")
            yield entry


def resolve_tree(tree: dict[str, object], variables: Mapping[str, str]) -> dict[str, object]:
    """Replace references such as ``${model.seq_length}`` by what they point to; those that point nowhere stay."""

    def find(path: str) -> object:
        for parts in (path.split("."), path.split(".")[1:]):
            value: object = tree
            for part in parts:
                value = value.get(part) if isinstance(value, dict) else None
            if parts and value is not None and not isinstance(value, dict):
                return value
        return None

    def value_of(text: str, place: list[str], depth: int) -> object:
        if depth > 8:
            return text
        product = re.fullmatch(r"\$\{multiply:\s*(.+?)\s*,\s*(.+?)\s*\}", text.strip())
        if product:
            first, second = (value_of(part, place, depth + 1) for part in product.groups())
            if not isinstance(first, str | int | float) or not isinstance(second, str | int | float):
                return text
            try:
                return int(first) * int(second)
            except ValueError:
                return text
        whole = re.fullmatch(r"\$\{(\.*)([\w.\-]+)\}", text.strip())
        if whole is None:
            return expand(text, variables) if "$" in text else text
        dots, path = whole.groups()
        if path in variables:
            return variables[path]
        found = find(".".join([*place[: len(place) - len(dots)], path]) if dots else path)
        return (
            value_of(found, place, depth + 1)
            if isinstance(found, str) and "${" in found
            else text
            if found is None
            else found
        )

    def walk(node: object, place: list[str]) -> object:
        if isinstance(node, dict) and len(place) < MAX_DEPTH:
            return {key: walk(value, [*place, key]) for key, value in node.items()}
        return value_of(node, place, 0) if isinstance(node, str) and "$" in node else node

    return {key: walk(value, [key]) for key, value in tree.items()}


# Command lines


class Variables:
    """What a script's variables are known to be: each as it is last set, none that several branches set differently."""

    def __init__(self, given: Mapping[str, str]):
        self.given = given
        self.known = dict(given)
        self.in_branch = False
        self._sometimes: dict[str, str] = {}
        self._open: set[str] = set()

    def set(self, name: str, value: str) -> None:
        """Note an assignment; what is given stays, and so does what is set whatever happens where a branch sets it too."""
        value = expand(value, self.known)
        if name in self.given:
            return
        if not self.in_branch:
            self._sometimes.pop(name, None)
            self._open.discard(name)
            if is_variable(value):
                self.known.pop(name, None)
            else:
                self.known[name] = value
        elif self._sometimes.get(name, value) != value:
            self.known.pop(name, None)
            self._open.add(name)
        elif name not in self.known and name not in self._open and not is_variable(value):
            self.known[name] = self._sometimes[name] = value


def arguments(
    text: str, variables: Mapping[str, str], name: str, script: bool = False, filled_in: dict[str, str] | None = None
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Flags with their values, in order, and the words that belong to none; of a script the lines that could launch a run."""
    tokens = _tokens(text, name, script)
    assignment = re.compile(r"([A-Za-z_]\w*)=(.*)" if script else r"([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)
    held = Variables(variables)
    known = held.known
    of_flags = frozenset(FLAGS_IN.findall(text))
    flags: list[tuple[str, list[str]]] = []
    entries: list[Entry] = []
    loose: list[str] = []
    aside = continues = launching = False
    for token in tokens:
        if token == LINE_END:
            continues = launching = False
            aside = aside or script
            continue
        if token in (IN_BRANCH, NO_BRANCH):
            held.in_branch = token == IN_BRANCH
            continue
        if _is_flag(token) and (launching or not script or token.startswith("--")):
            aside, continues, launching = False, False, True
            option, equals, value = token.partition("=")
            flags.append((option, [value] if equals else []))
            entries.append(Entry("", len(flags) - 1, ""))
        elif assigned := assignment.fullmatch(token):
            held.set(assigned[1], assigned[2])
            loose.append(token)
        elif replaced := re.fullmatch(r"s([/|#])([A-Z][A-Z0-9_]*)\1([^/|#]*)\1g?", token):
            value = expand(replaced[3], known)
            if filled_in is not None:
                filled_in[replaced[2]] = value
            if replaced[2] in FILLED_IN:
                entries.append(Entry(FILLED_IN[replaced[2]], value, f"sed {token}"))
            loose.append(token)
        elif override := re.fullmatch(r"([+~]{0,2}[A-Za-z_][\w.]*)=(.*)", token, re.DOTALL):
            aside = continues = True
            key = override[1].lstrip("+~")
            entries.append(Entry(key, expand(override[2], known), key))
        elif token in SHELL:
            aside, continues = True, False
            loose.append(token)
        elif continues:
            entries[-1] = entries[-1]._replace(raw=f"{entries[-1].raw} {token}")
        elif aside or not flags:
            loose.append(token)
        else:
            flags[-1][1].append(token)
    if len(entries) > MAX_ENTRIES:
        raise UnreadableFile(f"{name}: more than {MAX_ENTRIES} flags, which no launch file has")
    listed = []
    for entry in entries:
        if entry.key or not isinstance(entry.raw, int):
            listed.append(entry)
            continue
        option, values = flags[entry.raw]
        values = [word for value in values for word in _words(value, known, of_flags)]
        raw = True if not values else values[0] if len(values) == 1 else values
        listed.append(Entry(option.lstrip("-").replace("-", "_"), raw, option))
    return tuple(listed), tuple(loose)


def _words(token: str, known: Mapping[str, str], of_flags: frozenset[str]) -> list[str]:
    """What a shell makes of a word: a variable's several words, or none; flags among them were read where it is set."""
    alone = ALONE.fullmatch(token)
    if alone and (alone[1] or alone[2]) in of_flags:
        return []
    value = expand(token, known)
    if "$" not in token or not (value.strip() == "" or re.search(r"\s", value)):
        return [value]
    words = value.split()
    return words[: next((place for place, word in enumerate(words) if word.startswith("--")), len(words))]


def _is_flag(token: str) -> bool:
    return (token.startswith("--") and len(token) > 2) or re.fullmatch(
        r"-[A-Za-z]\w*(=.*)?", token, re.DOTALL
    ) is not None


def _tokens(text: str, name: str, script: bool) -> list[str]:
    """Words as a shell splits them, line by line unless a quotation goes on; what a variable is set to is split again."""
    lines = [line for line in text.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")]
    tokens: list[str] = []
    held = ""
    depth = 0
    for line in lines:
        if script and not held:
            before, depth = depth, max(0, depth + _opened(line))
            if bool(before) != bool(depth):
                tokens.append(IN_BRANCH if depth else NO_BRANCH)
            stated = assignments(line)
            if stated is None and line.split() and line.split()[0].split("(")[0] in COMMANDS:
                continue
            line = line if stated is None else stated
        held = f"{held}\n{line}" if held else line
        try:
            split = shlex.split(hide(held), comments=script)
        except ValueError:
            continue
        held = ""
        if script:  # a semicolon ends the word that it stands at
            split = [part for token in split for part in ((token[:-1], ";") if token.endswith(";") else (token,)) if part]
        for token in split:
            assigned = re.fullmatch(r"[A-Za-z_]\w*\+?=\(?(.*)", token, re.DOTALL)
            several = assigned and re.search(r"(^|\s)--[a-z]", assigned[1])
            tokens += [show(word) for word in (assigned[1].split() if assigned and several else [token])]
        tokens.append(LINE_END)
    if held and not script:
        raise UnreadableFile(f"{name}: a quotation is never closed: {held[:60]!r}")
    return tokens


def _opened(line: str) -> int:
    """Blocks of a script that a line opens, less those that it closes."""
    parts = (part.split() for part in re.split(r";|&&|\|\||\bthen\b|\bdo\b|\belse\b", line))
    return sum(BLOCKS.get(words[0], 0) for words in parts if words)
