"""Reads launch files: guesses the dialect, looks every key up in its table, and puts together what they say."""

from __future__ import annotations

import difflib
import itertools
import re
import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from costmodel.description.fields import Flag, Real, Whole, table
from costmodel.description.plan import Plan
from costmodel.interop.launchers.dialects import DIALECTS
from costmodel.interop.launchers.dialects.accelerate import ACCELERATE, LAUNCHED
from costmodel.interop.launchers.launch import EXTRA_FIELDS, PLAN_FIELDS
from costmodel.interop.launchers.pricing import Launch
from costmodel.interop.launchers.settle import settle
from costmodel.interop.launchers.shell import is_variable
from costmodel.interop.launchers.sources import LAYOUTS, WORLD, Source, is_text, load
from costmodel.interop.launchers.table import Dialect, FlagRow, LaunchReading, words
from costmodel.interop.launchers.trees import Entry
from costmodel.interop.launchers.values import (
    MOST,
    UNSTATED,
    Expected,
    Foreign,
    anything,
    flag,
    listed,
    whole,
    word,
)
from costmodel.text.checks import kind, listing, mapping
from costmodel.text.errors import CostModelError, InvalidValue, UnreadableFile

LAUNCHER = words(
    """
    node_rank master_addr master_port rdzv_id rdzv_backend rdzv_endpoint rdzv_conf standalone max_restarts
    monitor_interval start_method role log_dir redirects tee local_addr local_rank module no_python hostfile include
    exclude launcher launcher_args force_multi user ssh_port machine_rank main_process_ip main_process_port config_file
    job_name partition account time exclusive output error gres ntasks_per_node cpus_per_task mem container_image
    container_mounts no_container_mount_home mpi gpus_per_task bind_to map_by host_file extra_launch_config
    enable_elastic_training n base_rank wait kill_on_bad_exit jobid address runtime_env runtime_env_json no_wait
    entrypoint_num_cpus working_dir x
    """
)
"""Flags of torchrun, srun, mpirun, ray job submit, deepspeed, accelerate launch and colossalai run that say nothing about the
plan."""


OF_MODELS = frozenset(["model_type", "architectures", "num_hidden_layers", "n_layer", "vocab_size"])
"""Keys of a model's ``config.json``."""
NAMES = frozenset(["_name", "_checkpoint", "_deepspeed", "_accelerate", "_config_file"])
"""Fields that paths state whose last name says enough: models, and configurations."""
SPLITTING = words("tensor_model_parallel_size pipeline_model_parallel_size use_distributed_optimizer recompute_granularity "
                  "use_mcore_models transformer_impl ds_sequence_parallel_size")  # which no tree of another's sections has
SECTION = "fsdp_config"
"""Of the Trainer's arguments that which can be a file's name."""
MAX_FILES = 100
MANY, FAMILIAR = 10, 0.45
"""Keys from which on a file is no known framework's of which the nearest knows less than this share."""
SOUNDS = dict.fromkeys(words("batch_size train_batch_size micro_batch_size batch bsz bs"), "micro_batch") | dict.fromkeys(
    words("max_len max_length max_seq_len max_seq_length seq_len seq_length context_length"), "seq_len")
"""Flags of people's own scripts by the field that each may state, where no dialect knows it."""
MAX_HINTS, LONGEST_FLAG = 50, 100
"""Unknown flags of which it is looked up what may be meant, and the characters of one."""
SIZES = {
    spelling: row
    for row in (FlagRow(flags, field, whole) for field, flags in WORLD.items())
    for spelling in row.flags.split()
}
"""Flags of the program that starts the processes, which say how many there are."""
ALLOCATED = "expandable_segments"
"""What the environment says of PyTorch's allocator."""


def read_launch(
    source: str | Path | Sequence[str | Path],
    *,
    gpus: int | None = None,
    settings: Mapping[str, str] | None = None,
    dialect: str | None = None,
) -> Launch:
    """Read what a run's launch files say.

    Parameters
    ----------
    source : a file, the text of one (a command line, say), or several that belong together, such as a trainer's file and
        its DeepSpeed JSON; a file ``NAME.ds_config.json`` beside ``NAME.args`` is read with it
    gpus : world size, where the files leave it open
    settings : values for the files' variables, flags in place of the files' own, or fields of the plan
    dialect : which to read, by name; guessed from the keys if not given

    Returns
    -------
    Launch
        with everything that was assumed, not understood, or in conflict

    Raises
    ------
    UnreadableFile
        where a file is missing, too large, or not of the layout that its name promises
    InvalidValue
        where a flag has a value that it can't have
    CostModelError
        where no dialect knows the keys of a file, or a setting is nothing that they have

    Notes
    -----
    Sources are in each dialect's table. No code of a file is run and no path that it names is opened.
    """
    given = [source] if isinstance(source, str | Path) else list(listing("source", source))
    if not 1 <= len(given) <= MAX_FILES:
        raise InvalidValue("source", source, f"1 to {MAX_FILES} files")
    for one in given:
        kind("source", one, (str, Path), "pathlib.Path(name)")
    settings = {str(key): str(value) for key, value in mapping("settings", settings or {}).items()}
    sources = _in_section(_loaded(_with_companion(given), settings))
    chosen = _chosen(sources, dialect)
    first = next((place for place, one in enumerate(chosen) if not one.about.part), 0)
    order = [first, *(place for place in range(len(sources)) if place != first)]
    reading = LaunchReading(chosen[first])
    reading.files = [(one.name, dialect.name) for one, dialect in zip(sources, chosen, strict=True)]
    reading.pins = {package: release for one in sources for package, release in one.pins.items()}
    telling = {entry.key for one in sources for entry in one.entries} - SIZES.keys() - LAUNCHER - {"m"}
    if dialect is None and len(telling) == 1 and telling.isdisjoint(chosen[0].about.signature) and sources[0].layout == "args":
        reading.note(f"{min(telling)} alone tells no framework: read as {chosen[0].name}'s, unless a dialect is said (--dialect)")
    used: set[str] = set()
    for place in order:
        used |= _absorb(reading, sources[place], chosen[place], settings)
    _apply(reading, [chosen[place] for place in order], settings, used)
    if gpus is not None:
        if isinstance(gpus, bool) or not isinstance(gpus, int) or not 1 <= gpus <= 10_000_000:
            raise InvalidValue("gpus", gpus, "a whole number from 1 to 10000000")
        reading.say("_gpus", gpus, f"gpus={gpus}")
    for place in order:
        if chosen[place] not in [chosen[other] for other in order[: order.index(place)]]:
            chosen[place].rules(reading)
    if reading.launched and ACCELERATE not in chosen:
        ACCELERATE.rules(reading)
    settle(reading)
    _hint(reading, [chosen[place] for place in order])
    return _launch(reading, [one.name for one in sources])


def _chosen(sources: Sequence[Source], dialect: str | None) -> list[Dialect]:
    """The dialect of every file; a command line beside others may have no flags but those of what starts the processes."""
    files = [one.name for one in sources]
    found: list[Dialect | None] = []
    for place, one in enumerate(sources):
        inside = one.entries and all(entry.key.startswith(f"{SECTION}.") for entry in one.entries)
        line = one.layout == "args" and len(sources) > 1
        starting = [entry.key in SIZES.keys() | LAUNCHER or _names(entry, files) for entry in one.entries]
        try:
            told = _named(dialect) if dialect and place == 0 else None
            found.append(None if inside or (line and all(starting) and told is None) else told or guess(one))
        except CostModelError:
            if not line or not (one.written or any(starting)):
                raise
            found.append(None)
    other = next((one for one in found if one is not None), None) or guess(sources[0])
    return [one or other for one in found]


def _names(entry: Entry, files: Collection[str]) -> bool:
    """Whether an entry says which one of some files is read beside it."""
    raw = entry.raw[0] if isinstance(entry.raw, list) and entry.raw else entry.raw
    return isinstance(raw, str) and Path(raw).suffix != "" and Path(raw).name in files


def _in_section(sources: Sequence[Source]) -> list[Source]:
    """The files, the one that a trainer's `fsdp_config` names as that section of it."""
    named = {name for one in sources for entry in one.entries if entry.key == SECTION for name in _ends(entry.raw)}
    moved = {one.name: tuple(entry._replace(key=f"{SECTION}.{entry.key}") for entry in one.entries) for one in sources}
    return [one._replace(entries=moved[one.name]) if one.name in named and one.layout == "json" else one for one in sources]


def _loaded(given: Sequence[str | Path], settings: Mapping[str, str]) -> list[Source]:
    """Every file, those that a script writes and names behind them, templates with what a script beside them puts in."""
    sources = [load(one, settings) for one in given]
    for script in sources[:]:
        named = _ends(list(script.words)).union(*(_ends(entry.raw) for entry in script.entries)) - {one.name for one in sources}
        sources += [one for name, text in script.written.items() if name in named for one in _written(name, text, settings)]
    filled_in = {name: value for one in sources for name, value in one.filled_in.items()} | dict(settings)
    if len(filled_in) == len(settings):
        return sources
    return [
        one if one.layout == "args" else load(file, filled_in) for file, one in zip(given, sources, strict=False)
    ] + sources[len(given) :]


def _written(name: str, text: str, settings: Mapping[str, str]) -> list[Source]:
    """A file that a script writes; one that can't be read counts as not given, which is said where it matters."""
    try:
        source = load(text, settings)._replace(name=name)
        return [source] if guess(source) else []
    except CostModelError:
        return []


def _ends(raw: object) -> set[str]:
    """Names that paths end in."""
    return {one.rpartition("/")[2] for one in (raw if isinstance(raw, list) else [raw]) if isinstance(one, str)}


def _hint(reading: LaunchReading, dialects: Iterable[Dialect]) -> None:
    """Note which known flag an unknown one is close to: its field takes the default meanwhile."""
    for shown in dict.fromkeys(reading.unknown):
        field = SOUNDS.get(_plain(shown).partition("=")[0], "")
        if field and reading.plan.get(field) is None and not reading.has(field) and field not in reading.variable_fields:
            reading.note(f"unknown {shown} may say {field}, which is assumed")
    known = list(dict.fromkeys(key for dialect in dialects for key in dialect.index))
    unknown = [shown for shown in dict.fromkeys(reading.unknown) if len(shown) <= LONGEST_FLAG]
    for shown in unknown[:MAX_HINTS]:
        near = difflib.get_close_matches(_plain(shown).partition("=")[0], known, n=1, cutoff=0.87)
        if near:
            spelt = near[0].replace("_", "-") if reading.dialect.about.dashes else near[0]
            reading.note(f"unknown {shown}: did you mean {spelt}?")


def _with_companion(given: Sequence[str | Path]) -> list[str | Path]:
    found = list(given)
    if len(given) == 1 and not (isinstance(given[0], str) and is_text(given[0])):
        path = Path(given[0])
        if path.suffix == ".args" and (beside := path.with_name(f"{path.stem}.ds_config.json")).is_file():
            found.append(beside)
    return found


def _named(name: str) -> Dialect:
    found = [one for one in DIALECTS if name == one.name] or [one for one in DIALECTS if name == one.about.framework]
    if found:
        return found[0]
    raise InvalidValue("dialect", name, "one of " + ", ".join(one.name for one in DIALECTS))


def is_launch_file(path: Path, known: bool = False) -> bool:
    """Whether a path is that of a launch file, rather than a model's TOML, its ``config.json``, or a name.

    Parameters
    ----------
    path : of a file, or the name of something else
    known : whether a dialect has to know the keys of YAML and of command lines, too
    """
    if not path.is_file():
        return False
    if path.suffix.lower() not in (".json", ".toml") and not known:
        return path.suffix.lower() in LAYOUTS
    try:
        source = load(path, {})
        guess(source)
    except CostModelError:
        return False
    keys = {entry.key.rpartition(".")[2] for entry in source.entries}
    return source.layout not in ("json", "toml") or not (keys & OF_MODELS or {"layers", "hidden"} <= keys)


def guess(source: Source) -> Dialect:
    """The dialect that knows most of a file's keys, those counted more that it alone has.

    Raises
    ------
    CostModelError
        where no dialect knows a tenth of them, or of many about half
    """
    side_by_side = {" ".join(pair) for pair in itertools.pairwise(source.words)}
    if named := next((one for one in DIALECTS if side_by_side.intersection(one.about.commands)), None):
        return named
    best, most = None, 0.0
    keys = {entry.key for entry in source.entries}
    for dialect in DIALECTS:
        index, about = dialect.index, dialect.about
        if source.layout not in about.reads:
            continue
        found = [_key(dialect, key) for key in keys]
        known = sum(dialect.standing(key) != "unknown" for key in found)
        stating = sum(key in index for key in found)
        marks = sum(key in about.signature or key.split(".")[0] + ".*" in about.signature for key in found)
        alone = marks if source.layout == "args" or not about.leaves else len(SPLITTING.intersection(found))
        if not alone and (source.layout != "args" or not stating):
            continue
        score = (known + 0.5 * stating + 3.0 * marks) / (len(keys) + 3.0)
        if score > most:
            best, most = dialect, score
    dialects = ", ".join(one.name for one in DIALECTS)
    if best is None or most < 0.1:
        shown = ", ".join(" ".join(key.split()) for key in sorted(keys)[:5]) or "no key at all"
        raise CostModelError(f"{source.name}: no known framework's launch file ({shown}); known: {dialects}")
    own = {_key(best, key) for key in keys} - (SIZES.keys() | LAUNCHER)
    share = sum(best.standing(key) != "unknown" for key in own) / max(1, len(own))
    if len(own) >= MANY and share < FAMILIAR:
        raise CostModelError(f"{source.name}: no known framework's launch file: of its {len(own)} keys the nearest, {best.name}, "
                             f"knows {share:.0%}; known: {dialects}")
    return best


def _key(dialect: Dialect, key: str) -> str:
    key = key.rpartition(".")[2] if dialect.about.leaves else key
    return key.lstrip("-").replace("-", "_") if dialect.about.dashes else key


def _absorb(reading: LaunchReading, source: Source, dialect: Dialect, settings: Mapping[str, str]) -> set[str]:
    """Look up every entry of a file; returns the settings that replaced one."""
    index = dialect.index
    launched = {} if source.layout != "args" else {key: row for key, row in LAUNCHED.items() if key not in index}
    used = set(source.variables & settings.keys())
    reading.irrelevant += source.words
    for text in source.twice:
        reading.conflict(text)
    replaced = {_plain(key): value for key, value in settings.items()}
    for entry in source.entries:
        key = _key(dialect, entry.key)
        reading.keys.add(key)
        if _plain(key) in replaced and key in index:
            used |= {name for name in settings if _plain(name) == _plain(key)}
            entry = entry._replace(raw=replaced[_plain(key)])
        if key in launched:
            reading.launched = True
            raw, *others = entry.raw if isinstance(entry.raw, list) else [entry.raw]
            if launched[key].field == "_kind" and raw is not True:  # a switch has no value
                raw, others = True, [raw, *others]
            reading.irrelevant += map(str, others)  # the program and its arguments
            take(reading, entry._replace(raw=raw), key, dialect, launched, source)
        else:
            take(reading, entry, key, dialect, index, source)
    return used


def _plain(key: str) -> str:
    return key.lstrip("-").replace("-", "_")


def take(reading: LaunchReading, entry: Entry, key: str, dialect: Dialect, index: Mapping[str, FlagRow], source: Source) -> None:
    """Note what one entry states, or in which list of what isn't used it belongs."""
    if source.layout == "args" and key not in index and _launcher(reading, entry, key):
        return
    standing = "row" if key in index else dialect.standing(key)
    if standing == "unknown" and source.layout == "args" and _names(entry, [file for file, _ in reading.files]):
        standing = "irrelevant"  # what it says is read itself
    if standing == "unknown" and (entry.shown == "-m" or entry.key.lower().startswith("env_vars.")):
        standing = "irrelevant"  # a module to run, and the environment
        reading.irrelevant.append(str(entry.raw))
    if standing != "row":
        unsaid = entry.raw is None and standing == "unpriced"  # null: as if it weren't there
        getattr(reading, "irrelevant" if unsaid else standing).append(entry.shown)
        return
    row = index[key]
    if row.field in NAMES:
        entry = entry._replace(raw=_end(entry.raw))
    shown = entry.shown if entry.raw is True and source.layout == "args" else f"{entry.shown} {_short(entry.raw)}"
    raw = entry.raw
    if isinstance(raw, list) and source.layout == "args" and row.unit not in (anything, listed):
        raw, *others = raw
        if key in SIZES:  # the program and its arguments
            reading.irrelevant += map(str, others)
        else:
            reading.unknown += [f"{word} (after {entry.shown})" for word in others if not is_variable(word)]
    try:
        value = UNSTATED if is_variable(raw) else row.unit(raw)
    except Expected as wanted:
        if not entry.emptied:
            bare = "; no value stands behind it" if entry.raw is True and source.layout == "args" else ""
            raise InvalidValue(entry.shown, entry.raw, f"{wanted}{bare}") from None
        raw = value = entry.emptied
    except Foreign:
        reading.unknown.append(f"{entry.shown}={_short(entry.raw)}")
        return
    if is_variable(raw):
        reading.unresolved[entry.shown] = " ".join(raw) if isinstance(raw, list) else str(raw)
        reading.variable_fields.add(row.field)
    elif value is not UNSTATED:
        reading.say(row.field, value, shown)


def _end(raw: object) -> object:
    """Of a path in an unknown folder the name that it ends in, which says what it is."""
    end = raw.rstrip("/").rpartition("/")[2] if isinstance(raw, str) and is_variable(raw) else ""
    return end if re.search("[A-Za-z]", end) and not is_variable(end) and "}" not in end and ")" not in end else raw


def _short(raw: object) -> str:
    text = " ".join(map(_piece, raw[:60])) if isinstance(raw, list) else _piece(raw)
    return text if len(text) <= 60 else text[:57] + "..."


def _piece(raw: object) -> str:
    return reprlib.repr(raw) if isinstance(raw, list | dict) else str(raw)


def _launcher(reading: LaunchReading, entry: Entry, key: str) -> bool:
    """Whether an entry is a flag of the program that starts the processes, or of their environment; its sizes are noted."""
    if key not in SIZES and key not in LAUNCHER and key != ALLOCATED:
        return False
    raw, *others = entry.raw if isinstance(entry.raw, list) else [entry.raw]
    reading.irrelevant += map(str, others)  # the program and its arguments
    if key == ALLOCATED:
        reading.say(key, flag(raw), entry.shown)
        return True
    if row := SIZES.get(key):
        if is_variable(raw):
            reading.unresolved[entry.shown] = str(raw)
            reading.variable_fields.add(row.field)
            return True
        try:
            value = row.unit(raw)
        except Expected as wanted:
            if str(raw) in ("gpu", "auto") or ":" in str(raw):
                reading.irrelevant.append(entry.shown)
                return True
            raise InvalidValue(entry.shown, raw, str(wanted)) from None
        if value is not UNSTATED and value:
            reading.say(row.field, value, f"{entry.shown} {raw}")
        return True
    if key == "hostfile":
        reading.say("_hostfile", True, entry.shown)
    if key == "config_file" and isinstance(raw, str):
        reading.say("_accelerate", raw, entry.shown)
    reading.irrelevant.append(entry.shown)
    return True


def _apply(reading: LaunchReading, dialects: Iterable[Dialect], settings: Mapping[str, str], used: set[str]) -> None:
    """Settings that name no variable and no flag of the files: flags that they lack, or fields of the plan."""
    known: list[str] = [*PLAN_FIELDS, *EXTRA_FIELDS]
    for key, value in settings.items():
        if key in used:
            continue
        name = _plain(key)
        for dialect in dialects:
            index = dialect.index
            known += index
            if name in index:
                take(reading, Entry(name, value, key), name, dialect, index, Source("", "args", (), (), (), frozenset()))
                break
        else:
            if name not in (*PLAN_FIELDS, *EXTRA_FIELDS):
                near = difflib.get_close_matches(name, known, n=3)
                hint = f"; did you mean {', '.join(near)}?" if near else ""
                raise CostModelError(
                    f"settings={{{key[:80]!r}: ...}}: no variable or flag of the files, and no field of a plan{hint}"
                )
            reading.said.pop(name, None)
            reading.settled.add(name)
            reading.plan[name] = _field(name, value)


WORDS = ("recompute_modules", "optimizer_states")
LISTS = ("fsdp", "offload")
"""Fields of a launch that no plan has, and are no number."""


def _field(name: str, value: str) -> object:
    """A field that a setting gives, of the kind that the plan's table says."""
    row = table(Plan).get(name)
    kind = row.kind if row is not None else Whole(1, MOST)
    try:
        if name in LISTS or kind.several:
            return [part for part in value.split(",") if part]
        if name in WORDS or not (isinstance(kind, Flag | Real | Whole) or (kind.whole and value.isdigit())):
            return word(value)
        read = flag(value) if isinstance(kind, Flag) else float(value) if isinstance(kind, Real) else whole(value)
    except (Expected, ValueError):
        read = UNSTATED
    if read is UNSTATED:
        raise InvalidValue(name, value, "a value of that field of a plan")
    return read


def _launch(reading: LaunchReading, files: Sequence[str]) -> Launch:
    plan: dict[str, object] = {}
    assumed: dict[str, object] = {}
    for field in PLAN_FIELDS:
        value = reading.plan.get(field)
        if value is None:
            # what is stated twice, or by a variable, takes no default
            contested = field in reading.said or field in reading.variable_fields
            value = None if contested else reading.defaults.get(field)
            assumed[field] = value
        plan[field] = value
    plan |= {field: reading.plan[field] for field in EXTRA_FIELDS if reading.plan.get(field) is not None}
    if reading.gpus is None:
        assumed["gpus"] = reading.defaults.get("gpus")
    model: str | dict[str, object] | None = reading.model_name or (reading.model if reading.model else None)
    if model is None:
        assumed["model"] = None
    listed = ("derived", "unknown", "irrelevant", "unpriced", "ineffective", "conflicts", "notes")
    return Launch(
        framework=reading.framework, dialect=reading.dialect.name, files=tuple(files), release=_release(reading),
        version=", ".join(filter(None, (reading.version, *map(" ".join, reading.pins.items())))) or None,
        model_described=model, plan_fields=plan, assumed=assumed, unresolved=dict(reading.unresolved),
        missing=dict(reading.missing), gpus=reading.gpus if reading.gpus is not None else reading.defaults.get("gpus"),
        **{name: tuple(dict.fromkeys(getattr(reading, name))) for name in listed},
    )  # fmt: skip


def _release(reading: LaunchReading) -> str | None:
    """The month of the software that prices a launch: of its own release, or of the newest of those around it."""
    own = reading.pinned({"hf-fsdp": "transformers"}.get(reading.dialect.about.software, reading.dialect.about.software))
    return own or max(filter(None, map(reading.pinned, reading.pins)), default=None)


__all__ = ["UnreadableFile", "guess", "read_launch"]
