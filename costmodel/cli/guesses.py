"""Command lines as people type them first, in the commands' own words: ``8xh100``, ``llama 3 8b``, ``--num-gpus 8``, ``--lora``.

Only what can mean one thing is rewritten, and a note says what was taken where a word was exchanged; the rest is refused by the
parser, with the nearest word that it knows.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
from collections.abc import Callable, Sequence

from costmodel.catalogue import loader
from costmodel.catalogue.hardware_words import TIMES, SaidHardware, called_hardware, said_hardware
from costmodel.catalogue.spellings import holding
from costmodel.cli import amounts, phrases
from costmodel.cli.arguments import CommandLine, Misused, Parser, Several, plan_fields, whole
from costmodel.cli.launching import launched
from costmodel.cli.words import MOST, SAID, option_of, settings
from costmodel.text.errors import CostModelError
from costmodel.text.other_names import (
    ALGORITHMS,
    BATCHES,
    ELSEWHERE,
    FLAGS,
    HIGHEST,
    IN_TOKENS,
    OFF,
    OFFERED,
    SHARING,
    UNSURE,
    VALUED,
    WORDED,
    left_open,
    said_by_value,
    value_meant,
    without_size,
)
from costmodel.text.suggestions import MEANT, OF_A_RUN

LEADING = {"collective": 2, "write": 2}
"""Words that stand in front of the hardware and belong to the command; one, the model, where it isn't said."""
SIDE_BY_SIDE = ("compare", "cards", "gpus", "design")
"""Commands that are about several kinds of hardware."""
SEVERAL = ("--device", "--cluster", "--framework", "--gpus", "--nodes", "--global-batch", "--seq-len")
"""Their options that say several of one kind."""
MANY_MODELS = ("sweep", "read", "explain", "calibrate", "trace", "new", "show", "models", "devices", "clusters")
"""Commands whose words are left as they are: names of files, several models, or no hardware."""
OF_FILES = ("explain", "calibrate")
"""Those of them beside whose files hardware may stand."""
BETWEEN = ("on", "vs", "vs.", "versus", "against", "with", "and", "or", "of", "for", "using", "in", "a", "an", "the", "at", "my",
           "fastest", "best", "fine-tune", "finetune", "training", "model", "mfu", "cost", "throughput", "speed")
FAMILIES = ("llama3", "llama3.1", "llama3.2", "llama2", "llama", "qwen2.5")
"""Families of dense models: where a size alone is said, the first of them that has it stands for it."""
SETTINGS = re.compile(r"[a-z][a-z_-]*=[^,=]+(,[a-z][a-z_-]*=[^,=]+)+")
"""Several of a plan in one word."""
SCALED = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?x")
"""So many times what a network has."""
INSTEAD = {"--global-batch": "--minibatch", "--gbs": "--minibatch"}
"""What a command has in an option's place, of which it takes the value."""
SWITCHED, SWITCHED_ON = ("false", "no", "off", "none", "0", "true", "yes", "on", "1"), 5
"""Values of other programs' switches, those that turn one off first."""
PLAIN = re.compile(r"[0-9.]{1,12}(e-?[0-9]{1,2})?|true|false|yes|no", re.IGNORECASE)
"""Values that are nothing else: no name of a model, of hardware or of a file."""
MEMORY = re.compile(r"([0-9]{1,6}(?:[.][0-9]{1,3})?) ?(?:([gt])(i?)b?)?", re.IGNORECASE)
"""Of a GPU, in GB where no unit stands behind it."""
SOUGHT = {"--batch-size": "batch", "--global-batch": "batch", "--batch": "batch", "--bs": "batch", "--micro-batch": "micro-batch",
          "--micro-batch-size": "micro-batch", "--mbs": "micro-batch", "--seq-len": "sequence", "--seq": "sequence"}  # fmt: skip
"""Options whose largest value people ask for, and what finds it."""
RANKED_BY = ("--objective", "--sort", "--sort-by", "--optimize", "--optimise", "--optimize-for", "--metric", "--rank-by")
"""Options by which others say what the first of their plans is best in."""
MEASURES = ("time", "step-time", "speed", "throughput", "cost", "price", "mfu", "tokens/s", "tokens-per-second", "latency")
"""What is best of the same plan where all run on one cluster."""
TOLD = ("--tokens-per-second", "--throughput", "--tps", "--mfu", "--step-time", "--breakdown", "--tokens/s", "--show-memory")
"""What an answer has unasked."""
WITH_WORDS = {
    **dict.fromkeys(RANKED_BY, "left out: plans of one cluster are in the same order by time, cost and MFU"),
    **dict.fromkeys(TOLD, "left out, the answer has it"), "--strategy": "", "--gpus": "",
}  # fmt: skip
"""Options that aren't here and whose next word says what is meant; why where nothing is."""
BESIDE = "left out, the answer has time and throughput; money needs --price, such as --price h100=2.5"
"""The same of a measure where unlike hardware stands side by side."""
PER_GPU = ("--tokens-per-gpu", "--tokens-per-second-per-gpu", "--tokens-per-gpu-per-second", "--tgs", "--tok/s/gpu",
           "--tokens/s/gpu")
"""Options that say what a GPU alone gets through."""
SHORT = {"-n": "--gpus", "-g": "--gpus", "-N": "--nodes", "-k": "--top", "--gpu": "--gpus", "--node": "--nodes"}
FILE = re.compile(r"\.(json|ya?ml|toml|sh|py|log|txt|csv)$", re.IGNORECASE)


def guessed(parser: Parser, argv: Sequence[str]) -> CommandLine:
    """A command line, what can mean one thing alone in the command's own words.

    Parameters
    ----------
    parser : of the command
    argv : the command, and what was typed behind it
    """
    command, words = argv[0], list(argv[1:])
    variant = next((option for option in parser.variants if option in words), None)
    if variant is not None:
        meant_by_it = guessed(parser.variants[variant], [command, *(word for word in words if word != variant)])
        return CommandLine([command, variant, *meant_by_it.argv[1:]], meant_by_it.notes)
    known = dict(parser._option_string_actions)
    handed_on: list[str] = []  # a script's words, whatever they say
    notes: list[str] = []
    if command == "trace":
        words, handed_on, notes = launched(words, known)
    words = phrases.standing(_short(words, known, notes), parser)
    words = amounts.together(words, known, notes)
    words = _spelled(amounts.in_days(words, known), known, notes)
    words = _repeated(words, notes) if command in SIDE_BY_SIDE else words
    words = phrases.whole_options(amounts.cleaned(amounts.joined(words), known), known, notes)
    unknown = any(word.startswith("--") and word.partition("=")[0] not in known for word in words)  # it may have a value
    if command == "formula":  # whose name may be words apart
        options, plain = _apart(words, known)
        return CommandLine([command, *(["_".join(plain)] if plain else []), *options], notes)
    if unknown or command in MANY_MODELS:
        words = _beside_files(words, known) if command in OF_FILES and not unknown else words
        return CommandLine([command, *_sized(words, known), *handed_on], notes)
    options, plain = _apart(_planned(words, known, notes), known)
    apart = any({"--nodes", "--gpus"} <= set(known) and {known["--nodes"], known["--gpus"]} <= set(group._group_actions)
                for group in parser._mutually_exclusive_groups)  # fmt: skip
    if apart:  # so many GPUs say it all
        known = {**known, "--nodes": known["--gpus"]}
    leading = LEADING.get(command, 1)
    if not any(_is_file(word) for word in plain):
        plain = phrases.counted(phrases.plainly(plain), lambda word: called_hardware(word) is not None, notes)
        plain = [  # "8 h100 gpus"
            word for before, word, after in zip(["", *plain], plain, [*plain[1:], ""], strict=False)
            if word.lower() not in ("gpus", "gpu", "cards", "card") or called_hardware(before) is None or after[:1].isdigit()
        ]  # fmt: skip
        head, tail = plain[: leading - 1], plain[leading - 1 :]  # an operation, or the format of a launch file
        if "--plan" in known:
            tail, plans = _as_plans(tail, known, notes)
            options += plans
        said = settings(_nodes_of(tail), known, _is_hardware)
        options, plain, notes = [*options, *said.options], _ordered([*head, *said.rest], leading), [*notes, *said.notes]
    if command == "collective":
        plain = amounts.message(plain, notes)
    if command == "write" and plain and _is_model(plain[0]):
        plain = [_format(plain, options, notes), *plain]
    options = amounts.in_sequences(_sized(options, known), known, notes)
    if command == "compare" and "workload" not in {action.dest for action in parser._actions}:
        plain = _models(plain)
    if {"--device", "--cluster"} & set(known):
        files = [word for word in plain if _is_file(word)]
        if files and plain[0] in files:  # which stand where the model does
            others, hardware = _hardware([files[0], *(word for word in plain if word not in files)], 1, known, options)
            plain = [*files, *others[1:]]
        else:
            others, hardware = _hardware([word for word in plain if word not in files], leading, known, options)
            plain = [*others, *files]
        options += hardware
    if "model" in {action.dest for action in parser._actions}:
        plain = _of_size(plain, notes)
    return CommandLine([command, *plain, *options, *handed_on], notes)


def _beside_files(words: Sequence[str], known: dict[str, argparse.Action]) -> list[str]:
    """Hardware that stands among files, as options."""
    options, plain = _apart(words, known)
    found = {place: said_hardware(word, bare=True) for place, word in enumerate(plain) if place and not os.path.exists(word)}
    machines = {place: one for place, one in found.items() if one is not None}
    said = _as_options([*machines.values()], known)
    if not machines or not said or {"--device", "--cluster"} & {word.partition("=")[0] for word in options}:
        return list(words)
    return [*(word for place, word in enumerate(plain) if place not in machines), *options, *said]


def _short(words: Sequence[str], known: dict[str, argparse.Action], notes: list[str]) -> list[str]:
    """Numbers of GPUs and of nodes by the letters of job schedulers, or as if of one."""
    found = list(words)
    for place, (word, after) in enumerate(itertools.pairwise([*words, ""])):
        option = SHORT.get(word)
        if option in known and word not in known and after.isdigit() and called_hardware(after) is None:  # as 4090 is
            found[place] = option
            notes.append(f"{word}: taken as {option}")
    return found


def _format(plain: list[str], options: Sequence[str], notes: list[str]) -> str:
    """The format of a launch file where the model stands in its place: a word behind that, or what its software is started by."""
    from costmodel.interop.launchers.writing import formats, priced_by

    known = formats()
    said = [plain.pop(place) for place, word in [*enumerate(plain)] if word in known][:1]
    said += [value for option, value in itertools.pairwise(options) if option == "--framework"]
    found = next((one for name in said for one in known if name in (one, priced_by(one))), None)
    if found is None:
        raise Misused(f"write {plain[0][:80]}: expected FORMAT in front of the model, one of {', '.join(known)}")
    notes.append(f"taken as write {found} {plain[0][:80]}")
    return found


def _is_file(word: str) -> bool:
    return os.path.sep not in word and os.path.exists(word)


def _accumulation(words: Sequence[str]) -> int:
    """Micro-batches of a step, as some option says them; 0 where none does."""
    said = amounts.numbers_of(words)
    return next((int(said[name]) for name in said if "--gradient-accumulation" in (name, MEANT["option"].get(name))), 0)


def _spelled(words: Sequence[str], known: dict[str, argparse.Action], notes: list[str]) -> list[str]:
    """Options by their own names, and what people call some of their values."""
    found: list[str] = []
    off: list[str] = []
    implied: list[str] = []
    left = list(words)
    accumulated = _accumulation(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("--") or word == "--":
            found.append(_value(found[-1] if found else "", word, notes))
            continue
        said, name = name, _with_dashes(name, known)
        if equals and (name in FLAGS or name in WITH_WORDS) and name not in known:  # as if the value stood apart
            left.insert(0, value)
            equals, value = "", ""
        word = f"{name}{equals}{value}"
        after = left[0].lower() if left and not equals else ""
        if name in SOUGHT and (value.lower() or after) in MOST:
            raise Misused(f"{said} {value or after}: `costmodel capacity MODEL ... --find {SOUGHT[name]}` looks for it")
        other = MEANT["option"].get(name, name)
        if other == "--sequence-parallel" and (value or after) not in "01" and SAID.fullmatch(value or after):
            raise Misused(f"{said} {value or after}: expected {UNSURE[SHARING[0]]}")
        if several := _several_said(name, [value, *left] if equals else left, known):
            count, *means = several
            notes.append(f"{said} {' '.join([value, *left][not equals :][:count])}: taken as {' '.join(means)}")
            found += means
            del left[: count - bool(equals)]
            continue
        if name in known and said_by_value(name, value or after) is None:
            found.append(_value("", word, notes))
            continue
        flag = FLAGS.get(name)
        other = INSTEAD[other] if other not in known and INSTEAD.get(other) in known else other
        if name in BATCHES and (value or after).isdigit() and int(value or after) < accumulated:
            other = "--micro-batch"
        without = "--tokens" not in known or (other not in known and "--tokens" not in words)
        of_no_step = name != other and other in OF_A_RUN and without
        if (taken := _by_its_word(name, after, known)) is not None:
            why = BESIDE if name in RANKED_BY and "--top" not in known else WITH_WORDS[name]
            taken_for = f"taken as {' '.join(taken)}" if taken else why
            notes.append(f"{said}{f' {left.pop(0)}' if after and not after.startswith('-') else ''}: {taken_for}")
            found += taken
        elif (meaning := said_by_value(name, value or after)) is not None and known.keys() >= set(meaning[:1]):
            notes.append(f"{said} {value or left.pop(0)}: {' '.join(('taken as', *meaning)) if meaning else 'left out'}")
            implied += meaning
        elif flag is not None and flag[0] in known and not (flag[0] != other and after.isdigit()):
            if not (switched := _switched(said, name, flag, left, known, notes)):
                off.append(name)
            implied += switched
        elif "--set" in known and (setting := _setting(other or "", value or after)):
            notes.append(f"{said} {value or left.pop(0)}: taken as --set {setting}")
            found += ["--set", setting]
        elif name in HIGHEST and after.isdigit() and isinstance(getattr(known.get(other or ""), "type", None), Several):
            found += [str(other), ",".join(map(str, phrases.spans(f"1-{left.pop(0)}")))]
            notes.append(f"{said}: taken as {' '.join(found[-2:])}")
        elif name in PER_GPU and after and "--tokens-per-second" in known:
            found += ["--tokens-per-second", f"{left.pop(0)}/gpu"]
            notes.append(f"{said}: taken as {' '.join(found[-2:])}")
        elif other in VALUED and other in known and not of_no_step and name not in OFFERED and (
            flag is None or value or SAID.fullmatch(after)
        ):
            if name in IN_TOKENS and (counted := value or (left.pop(0) if left else "")):
                found += [other, counted if "tok" in counted else f"{counted}tokens"]
            else:
                found.append(f"{other}{equals}{value}")
            notes.append(f"{said}: taken as {other}")
        elif (match := re.fullmatch(r"(--[a-z-]+?)-?([0-9]{1,7})", word)) and option_of(match[1], known) in VALUED:
            found += [match[1], match[2]]
        elif PLAIN.fullmatch(value or after) and (of_no_step or name not in ELSEWHERE) and changes_nothing(name):
            notes.append(f"{said} {value or left.pop(0)}: left out, it changes neither time nor memory")
        else:
            found.append(word)
    pairs = set(itertools.pairwise(found))
    found += itertools.chain.from_iterable(pair for pair in zip(implied[::2], implied[1::2], strict=True) if pair not in pairs)
    for name in off:
        field = f"--{left_open(name).replace('_', '-')}"
        if field != "--" and field not in found:
            raise Misused(f"{name} that is off: expected {field} beside it, which says what is so instead")
    return found


def _several_said(name: str, words: Sequence[str], known: dict[str, argparse.Action]) -> tuple[int, str, str] | None:
    """How many words are several values of another program's option, the one option here that they say, and its values."""
    taken: list[tuple[str, ...]] = []
    count = 0
    for place, word in enumerate(words):
        if word.lower() in phrases.AGAINST:
            continue
        means = [one for part in word.split(",") if (one := said_by_value(name, part)) is not None and len(one) == 2]
        if len(means) <= word.count(","):
            break
        taken, count = [*taken, *means], place + 1
    option = taken[0][0] if len(taken) > 1 and len({one[0] for one in taken}) == 1 else ""
    several = isinstance(getattr(known.get(option), "type", None), Several)
    return (count, option, ",".join(one[1] for one in taken)) if several else None


def _setting(other: str, value: str) -> str:
    """What ``--set`` takes for an option that stands for it, with a value; empty where it can't."""
    if other == "--network":
        return f"network.bandwidth={value}" if SCALED.fullmatch(value) else ""
    path = other.removeprefix("--set ").partition("=")[0]
    if path == "device.memory" and (size := MEMORY.fullmatch(value)):
        return f"{path}={size[1]}{(size[2] or 'G').upper()}{size[3] or ''}B"
    return f"{path}={value}" if path.startswith("model.") and value.isdigit() else ""


def changes_nothing(option: str) -> bool:
    """Whether a framework has an option that changes neither time nor memory.

    Parameters
    ----------
    option : with its dashes
    """
    from costmodel.interop.launchers.dialects import DIALECTS

    key = option.removeprefix("--").replace("-", "_")
    standing = {dialect.standing(key) for dialect in DIALECTS}
    return any(key in one.irrelevant for one in DIALECTS) and {"row", "unpriced"}.isdisjoint(standing)


def _repeated(words: Sequence[str], notes: list[str]) -> list[str]:
    """Options that stand in front of each of their values, once, with commas between these."""
    found: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word in SEVERAL and word in found and left:
            place = found.index(word) + 1
            found[place] += f",{left.pop(0)}"
            notes.append(f"{word} again: taken as {word} {found[place]}")
        else:
            found.append(word)
    return found


def _by_its_word(name: str, after: str, known: dict[str, argparse.Action]) -> list[str] | None:
    """Options that one isn't, but that the word behind it says: ``--offload cpu``, ``--fsdp full_shard``, ``--strategy zero3``.

    None are needed for what an answer has unasked; None where the word says none.
    """
    if name == "--strategy" and (flag := FLAGS.get(f"--{after}", ("",)))[0] in known:
        return list(flag)
    if name == "--gpus" and "--device" in known and called_hardware(after) is not None:  # of a command that counts them
        return ["--device", after]
    if name in RANKED_BY and after in MEASURES and {"--top", "--price"} & known.keys():
        return []
    answers = {"--framework", "--zero-stage"} <= known.keys()
    return [] if name in TOLD and (not after or after.startswith("-")) and answers else None


def _switched(
    said: str, name: str, flag: tuple[str, ...], left: list[str], known: dict[str, argparse.Action], notes: list[str]
) -> list[str]:
    """What a switch of another program says, turned on or off by the next word, or with an adapter's rank behind it."""
    after = left[0].lower() if left else ""
    if flag[0] == "--adapter" and after.isdigit() and after not in SWITCHED and "--lora-rank" in known:
        flag = (*flag, "--lora-rank", left.pop(0))
    elif after in SWITCHED:  # as parsers of a dataclass have it
        left.pop(0)
        if after in SWITCHED[:SWITCHED_ON]:
            flag, said = OFF.get(name, ()), f"{said} {after}"
    notes.append(f"{said}: taken as {' '.join(flag)}" if flag else f"{said}: left out")
    return list(flag)


def _with_dashes(name: str, known: dict[str, argparse.Action]) -> str:
    """An option that programs in Python spell with underscores, by dashes, where that is one."""
    dashed = name.lower().replace("_", "-")
    return next((one for one in (dashed, without_size(dashed)) if one in known or one in ELSEWHERE), name)


def _planned(words: Sequence[str], known: dict[str, argparse.Action], notes: list[str]) -> list[str]:
    """The words, plans as answers show them, ``TP8 PP4, micro-batch 2``, or by their software, ``FSDP``, as options say them."""
    found = list(words)
    for place, (option, plan) in enumerate(itertools.pairwise(words)):
        if option != "--plan" or option not in known or "=" in plan:
            continue
        said = settings(plan.replace(",", " ").split(), known, _is_hardware)
        if said.options and not said.rest:
            pairs = zip(said.options[::2], said.options[1::2], strict=True)
            named = [f"{known[one].option_strings[-1].removeprefix('--')}={value}" for one, value in pairs]
            found[place + 1] = ",".join(named)
            notes.append(f"--plan {plan[:80]}: taken as {found[place + 1]}")
    return found


def _as_plans(words: Sequence[str], known: dict[str, argparse.Action], notes: list[str]) -> tuple[list[str], list[str]]:
    """The words without those that are whole plans, ``tp=8,pp=2``, and software beside these; and the options that say them."""
    whole = {word for word in words if SETTINGS.fullmatch(word)}
    if not whole:
        return list(words), []
    rest, plans = [], []
    for word in words:
        if word in whole or _planned(["--plan", word], known, [])[1] != word:
            plans += ["--plan", word]
            notes.append(f"{word[:80]}: taken as --plan {word[:80]}")
        else:
            rest.append(word)
    return rest, _planned(plans, known, notes)


def _value(option: str, word: str, notes: list[str]) -> str:
    """What a value is called here, of options whose values people name otherwise; any other word as it is."""
    if word.startswith("-"):
        option, equals, value = word.partition("=")
    else:
        equals, value = "", word
    kind = option.removeprefix("--")
    if kind not in WORDED or (word.startswith("-") and not equals):
        return word
    if kind == "adapter" and value.lower() in ALGORITHMS:
        raise Misused(f"{value} is no adapter: `costmodel post-train --algorithm {value.lower()}` prices a step of it")
    values = fields[kind].kind.choices if kind in (fields := plan_fields()) else ()
    names = [str(value_meant(kind, one.strip(), values)) if one.strip() else one for one in value.split(",")]
    for one, name in zip(value.split(","), names, strict=True):
        if one != name and name != "none":  # what is off is off in any word
            notes.append(f"{option} {one[:80]}: taken as {name}")
    return f"{option}={','.join(names)}" if equals else ",".join(names)


def _apart(words: Sequence[str], known: dict[str, argparse.Action]) -> tuple[list[str], list[str]]:
    """Options with their values, and the words that stand by themselves."""
    options: list[str] = []
    plain: list[str] = []
    left = iter(words)
    for word in left:
        if not word.startswith("-") or word == "-":
            plain.append(word)
            continue
        options.append(word)
        action = known.get(word)
        if action is not None and action.nargs != 0:
            options += itertools.islice(left, 1)
    return options, plain


def _sized(options: Sequence[str], known: dict[str, argparse.Action]) -> list[str]:
    """``--device 8xh100``, and ``--cluster`` or ``--gpus`` of the same, as so many GPUs of a device."""
    options = _of_their_kind(_of_kind(options), known)
    given = [word.partition("=")[0] for word in options]
    if "--gpus" in given or "--nodes" in given or not {"--gpus", "--device"} <= set(known):
        return list(options)
    found: list[str] = []
    left = iter(options)
    for word in left:
        name, equals, value = word.partition("=")
        if name not in ("--device", "--cluster"):
            found.append(word)
            continue
        value = value if equals else next(left, "")
        machines = [said_hardware(one) for one in value.split(",")]
        said = _as_options([one for one in machines if one is not None], known)
        found += said if said is not None and None not in machines else [word] if equals else [name, value]
    return found


def _of_their_kind(options: Sequence[str], known: dict[str, argparse.Action]) -> list[str]:
    """``--cluster h100`` as ``--device h100``, and ``--device dgx-h100`` as ``--cluster dgx-h100``."""
    found = list(options)
    for place, word in enumerate(options):
        name, equals, value = word.partition("=")
        value = value if equals else "".join(options[place + 1 : place + 2])
        if name not in ("--device", "--cluster") or not {"--device", "--cluster"} <= set(known) or "+" in value:
            continue
        called = [None if _is_file(one) else called_hardware(one) for one in value.split(",")]
        kinds = {None if one is None else one.kind for one in called}
        kind = kinds.pop() if len(kinds) == 1 else None
        if kind is not None:
            names = f"--{kind}={','.join(one.name for one in called if one is not None)}"
            found[place : place + (1 if equals else 2)] = [names] if equals else names.split("=", 1)
    return found


def _of_kind(options: Sequence[str]) -> list[str]:
    """``--gpus 8xa100`` as ``--device 8xa100``, where no other option says of what they are."""
    given = [word.partition("=")[0] for word in options]
    found = list(options)
    if {"--device", "--cluster"} & set(given) or "--gpus" not in given:
        return found
    place = given.index("--gpus")
    _, equals, value = options[place].partition("=")
    value = value if equals else "".join(options[place + 1 : place + 2])
    told = value.split(",")
    if all(phrases.COUNTED.match(one) or ((said := said_hardware(one)) is not None and said.gpus is not None) for one in told):
        found[place] = f"--device{equals}{value}" if equals else "--device"
    return found


def _as_options(machines: Sequence[SaidHardware], known: dict[str, argparse.Action]) -> list[str] | None:
    """Hardware as options; None where they can't say it."""
    if not machines or len({one.kind for one in machines}) > 1:
        return None
    first = machines[0]
    several = known["--gpus"].type is not whole if "--gpus" in known else False
    if several and len({one.name for one in machines}) == 1 and all(one.gpus for one in machines):
        counted = "--nodes" if first.kind == "cluster" else "--gpus"  # so many systems of their nodes
        return [f"--{first.kind}", first.name, counted, ",".join(str(one.gpus) for one in machines)]
    if len({one[2:] for one in machines}) > 1:
        if several and all(one.gpus for one in machines):  # each says how many there are
            return [f"--{first.kind}", ",".join(f"{one.gpus}x{one.name}" for one in machines)]
        return None
    if f"--{first.kind}" not in known or (first.gpus is not None and "--gpus" not in known):
        return None
    said = [f"--{first.kind}", ",".join(one.name for one in machines)]
    if first.gpus is not None:
        of_nodes = first.kind == "cluster"
        said += ["--nodes" if of_nodes else "--gpus", str(first.gpus)]
    if first.nodes is not None and first.kind == "device" and known.get("--nodes") is not known.get("--gpus"):
        said += ["--nodes", str(first.nodes)]
    return said


def _hardware(
    plain: list[str], leading: int, known: dict[str, argparse.Action], options: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The words without those that say hardware, and the options that say it; the model's own words as one."""
    if len(plain) <= leading:
        return plain, []
    words = [*plain[:leading], *(word for word in plain[leading:] if word.lower() not in BETWEEN)]
    words = _with_counts(words, leading)
    given = {word.partition("=")[0] for word in options}
    told = not given & {"--device", "--cluster"}
    for word in words[leading:] if told and "--between" in known else []:
        if joined := _joined(word):
            return _named([other for other in words if other != word], leading, _model_known), ["--cluster", joined]
    machines: list[SaidHardware] = []
    rest: list[str] = []
    for place, word in enumerate(words):
        found = said_hardware(word, bare=True) if place >= leading and told else None
        if found is None:
            rest.append(word)
        else:
            machines.append(found)
    said = _as_options(machines, known) if machines else []
    if said is None:
        counted = next((one for one in machines if one.gpus and f"--{one.kind}" in known and "--gpus" not in known), None)
        if counted is not None:
            why = f"how many {counted.name} is what is looked for" if "--days" in known else f"this is about one {counted.name}"
            raise Misused(f"{why}: say --{counted.kind} {counted.name} without a number")
        return plain, []
    if twice := given & {word for word in said if word in known}:
        raise Misused(f"{' '.join(said)} as the words say, and {twice.pop()} beside it: give one of them")
    if told and not said and leading == 1 and len(rest) > 1 and not _is_model("-".join(rest)):
        if _is_model("-".join(rest[:-1])):
            raise _no_hardware(rest[-1])
        if _is_model(rest[0]):
            raise _no_hardware(" ".join(rest[1:]))
    return _named(rest, leading, _model_known), said


def _is_hardware(word: str) -> bool:
    """Whether a word says hardware, with a number or without."""
    return said_hardware(word) is not None or called_hardware(word) is not None


def _joined(word: str) -> str:
    """Groups of unlike GPUs that a word joins, each as ``8xh100``; empty where it joins none."""
    groups = [said_hardware(part) or called_hardware(part) for part in word.split("+")]
    if len(groups) < 2 or None in groups:
        return ""
    return "+".join(one.name if one.gpus is None else f"{one.gpus}x{one.name}" for one in groups if one is not None)


def _no_hardware(word: str) -> CostModelError:
    """The error of a word that stands where hardware would, and names none."""
    held_by = {kind: holding(word, loader.names(kind)) for kind in ("device", "cluster")}
    return loader.unknown("cluster" if held_by["cluster"] and not held_by["device"] else "device", word)


def _with_counts(words: list[str], leading: int) -> list[str]:
    """``8 h100``, ``8 x h100``, ``2x8 h100``, ``rtx 4090`` and ``8xa100 80gb`` as one word."""
    found: list[str] = []
    for place, word in enumerate(words):
        before = found[-1] if place > leading and len(found) > leading else ""
        counted = re.fullmatch(rf"[0-9]{{1,7}}({TIMES}[0-9]{{1,4}})?", before) is not None and called_hardware(before) is None
        if before and re.fullmatch(TIMES, f"{word} ") and (counted or _is_hardware(before)):
            found[-1] += "x"
        elif before.endswith("x") and (before[:-1].isdigit() or word.isdigit()):
            found[-1] += word
        elif before and _together(before, word):
            found[-1] = f"{before} {word}"
        elif (counted and called_hardware(word) is not None) or (word.isdigit() and before and _is_counted(before, word)):
            found[-1] = f"{before}x{word}"
        else:
            found.append(word)
    return found


def _is_counted(name: str, number: str) -> bool:
    """Whether a number says how many there are of what stands before it, and is no name itself, as 4090 is."""
    return called_hardware(name) is not None and called_hardware(number) is None


def _nodes_of(words: Sequence[str]) -> list[str]:
    """``2 nodes of 8 h100``, and ``2 nodes of h100`` where they are as the device comes in, as ``2x8xh100``."""
    from costmodel.catalogue.machines import in_a_node

    found = list(words)
    for place in range(len(found) - 2):
        count, nodes, *after = found[place : place + 5]
        after = [word for word in after if word.lower() not in BETWEEN]
        if not count.isdigit() or nodes.lower() not in ("nodes", "node") or not after:
            continue
        told = f"{after[0]}x{after[1]}" if after[0].isdigit() and len(after) > 1 else after[0]
        kind = said_hardware(told) or called_hardware(told)
        if kind is None:
            continue
        one = kind.name if kind.kind == "cluster" else f"{kind.gpus or in_a_node(kind.name)}x{kind.name}"
        used = found.index(after[1] if told != after[0] else after[0], place + 2) + 1
        return [*found[:place], f"{count}x{one}", *found[used:]]
    return found


def _together(before: str, word: str) -> bool:
    """Whether two words name hardware together, such as ``rtx 4090`` or ``8xa100 80gb``, which one of them doesn't alone."""
    both = f"{before} {word}"
    if called_hardware(both) is not None:
        return True
    counted = before.isdigit()  # as in 8 h100
    return not counted and called_hardware(word) is None and (said_hardware(both) or called_hardware(both)) is not None


def _model_known(name: str) -> bool:
    """Whether a word is a model's name, or such names with commas between."""
    if "," in name:
        return all(map(_model_known, name.split(",")))
    return name in loader.names("model") or loader.alias("model", name) is not None


def _named(words: list[str], leading: int, is_model: Callable[[str], bool]) -> list[str]:
    """A model's name as one word, where spaces stand in it: ``llama 3 8b``."""
    if leading != 1 or len(words) < 2:
        return words
    joined = "-".join(words)
    if is_model(joined) or is_model(words[0]) or any(FILE.search(word) for word in words):
        return [joined] if is_model(joined) else words
    raise loader.unknown("model", joined)


def _ordered(words: list[str], leading: int) -> list[str]:
    """The words with the model first, where another stands before it: ``h100 b200 llama3-8b``."""
    if leading != 1 or len(words) < 2 or _model_known(words[0]) or not _is_hardware(words[0]):
        return words
    place = next((place for place, word in enumerate(words) if _model_known(word)), 0)
    return [words[place], *words[:place], *words[place + 1 :]]


def _models(words: list[str]) -> list[str]:
    """The words, models that stand side by side as one: ``llama3-8b vs qwen2.5-7b``."""
    several = [name for word in words if all(map(_is_model, word.split(","))) for name in word.split(",")]
    if len(several) < 2:
        return words
    others = [word for word in words if word.split(",")[0] not in several]
    return [",".join(_model_of_size(name) or name for name in several), *others]


def _is_model(name: str) -> bool:
    return _model_known(name) or _model_of_size(name) is not None


def _model_of_size(word: str) -> str | None:
    """The model of a size by itself, ``7b``, that `FAMILIES` name first."""
    if re.fullmatch(r"[0-9.]{1,6}[bB]", word) is None or _model_known(word):
        return None
    return next((name for family in FAMILIES if _model_known(name := f"{family}-{word.lower()}")), None)


def _of_size(words: list[str], notes: list[str]) -> list[str]:
    """The words, a size by itself being a model of it."""
    named = _model_of_size(words[0]) if len(words) == 1 else None
    if named is None:
        return words
    notes.append(f"{words[0]}: taken as {named}")
    return [named]
