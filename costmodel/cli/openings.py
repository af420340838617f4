"""How people begin: by a word that is no command's name, by a question in words, or by the model itself."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence

from costmodel.catalogue import loader
from costmodel.catalogue.hardware_words import called_hardware
from costmodel.cli.arguments import CommandLine
from costmodel.cli.launching import script_of, stated
from costmodel.cli.phrases import AGAINST, spans
from costmodel.cli.words import MOST
from costmodel.text.other_names import ALGORITHMS
from costmodel.text.suggestions import MEANT
from costmodel.training.system_names import CALLED

TAKEN = (
    "plan", "best", "fastest", "cost", "price", "time", "predict", "throughput", "speed", "tokens-per-second", "vram", "mem",
    "fits", "oom", "what-if", "versus", "mfu", "days", "hours", "which", "which-gpu", "card", "gpu", "finetune", "fine-tune",
    "specs", "params", "parameters", "nodes", "clusters-for", "how-many-gpus", "fit", "energy", "power", "carbon", "electricity",
    "pretrain", "pretraining", "training", "footprint", "memory-usage", "peak-memory", "gpu-memory", "tokens/s", "tok/s", "tps",
    "optimize", "optimise", "autotune", "flops", "flop", "device", "model", "cluster", "bubble", "nccl", "topology", "spec",
    "serve", "gui", "info", "describe", "time-to-train", "train-time", "training-time", "training-cost",
)  # fmt: skip
"""Words of `MEANT` that people type for a command and that mean no other."""
BARE = ("sum", "send", "recv", "p2p")
"""Names of collectives that say too little by themselves."""
ADAPTED = ("lora", "qlora")
"""Words that open a question about cards, and are an answer's adapter too."""
REACHED = {
    "batch": "batch", "max-batch": "batch", "batch-size": "batch", "length": "sequence", "seq-len": "sequence",
    "context": "sequence", "context-length": "sequence", "max-context": "sequence", "max-length": "sequence",
    "max-seq-len": "sequence", "longest-sequence": "sequence", "longest-context": "sequence", "largest-batch": "batch",
    "biggest-batch": "batch", "largest-micro-batch": "micro-batch", "max-micro-batch": "micro-batch",
}  # fmt: skip
"""Words that open one, and what it is that they ask for."""
LISTED = {"gpus": "devices", "cards": "devices", "hardware": "devices", "software": "frameworks"}
"""Words behind ``list`` whose list has another name."""
LISTABLE = (*LISTED, "models", "devices", "clusters", "frameworks", "networks")
"""Words behind it."""
SYSTEMS = ("parameter-server", "parameter-servers", "ps", "byteps", "horovod", "dedloc", "hivemind", "distbelief", "diloco")
"""Names of systems that are compared by these alone: others are schedules or frameworks, too."""
NO_SYSTEMS = ("best", "zero", "ps", "ddp")
"""Names of systems that open questions about something else, too."""
SCALED = ("scale", "scaling", "strong-scaling")
"""Words that open a comparison of several sizes of a cluster."""
OF_SWEEPS = {"-o", "--output", "--workers", "--engine", "-h", "--help", "--help-all"}
"""Options that are of a sweep into a file, and of no comparison."""
MEASURED = ("--step-time", "--mfu", "--tokens-per-second")
"""Options that say what a run was measured at."""
ASKING = ("how", "can", "does", "will", "would", "do", "which", "what", "is")
"""Words that open a question as it is spoken."""
ABOUT = (
    (("parameters", "params", "layers", "heads"), "show"), (("gpus", "nodes", "cards"), "gpus"),
    (("memory", "vram", "fit", "fits", "oom"), "memory"),
    (("long", "cost", "expensive", "days", "hours", "price", "energy", "power"), "train"),
    (("fast", "throughput", "mfu"), "estimate"),
    (("plan", "parallelism", "split"), "search"), (("gpu", "card", "device", "hardware"), "cards"),
    (("train", "finetune", "fine-tune", "run"), "memory"),
)  # fmt: skip
"""What a spoken question is about, by the first of these words that stands in it."""
FILLING = (
    *ASKING, "i", "it", "to", "train", "finetune", "fine-tune", "run", "take", "takes", "need", "needs", "needed", "we", "you",
    "be", "much", "many", "long", "fast", "fit", "fits", "plan", "best", "fastest", "cheapest", "are", "should", "required",
    "use", "enough", "parameters", "params", "layers", "heads", "has", "have", "cost", "expensive", "vram", "oom", "energy",
    "power",
)  # fmt: skip
"""Words of a spoken question that name nothing."""
LEADING = ("for", "of", "on", "a", "the", "my", "memory", "gpu", "gpus", "card", "cards", "node", "nodes", "device", "hardware",
           "days", "hours", "price", "throughput", "mfu", "parallelism", "split")  # fmt: skip
"""What such a question is about, in front of the model."""


def opened(argv: Sequence[str], commands: Collection[str]) -> CommandLine:
    """A command line, its first words as the command that they mean where they can mean one alone.

    Parameters
    ----------
    argv : as it was typed
    commands : that there are

    Examples
    --------
    >>> opened(["vram", "llama3-8b", "h100"], ["memory"]).argv
    ['memory', 'llama3-8b', 'h100']
    >>> opened("how long to train llama3-8b on 64 h100 1T tokens".split(), ["train"]).argv
    ['train', 'llama3-8b', 'on', '64', 'h100', '1T', 'tokens']
    """
    first, rest = (argv[0].lower() if argv else ""), list(argv[1:])
    if first in ("explain", "read") and (line := stated(rest)):
        if script := script_of(line):
            return CommandLine(["trace", *script], [f"{argv[0]} of a script that is started: taken as trace"])
        return CommandLine([first, *line], [])
    if found := _compared_systems(argv):
        return CommandLine(found, [f"taken as compare --systems --system {found[-1]}"])
    if first == "sweep" and not OF_SWEEPS & {word.partition("=")[0] for word in rest}:
        return CommandLine(["compare", *rest], ["sweep without a file (-o FILE.parquet): taken as compare"])
    if not first or first in commands or first.startswith("-"):
        return CommandLine(list(argv), [])
    if asked := _system(argv):
        system, others = asked
        note = f"taken as compare --systems --system {system}"
        return CommandLine(["compare", "--systems", *others, "--system", system], [note])
    command = _meant(first, argv)
    if command is None:
        return CommandLine(list(argv), [])
    if first == "list":
        rest = rest[1:]
    if first in ALGORITHMS:
        rest += ["--algorithm", first]
    elif first == "longest" and not (rest and rest[0].lower() in MEANT["find"]):
        rest += ["--find", "sequence"]
    elif first in (*ADAPTED, *MOST) or (command == "compare" and first not in (*TAKEN, *SCALED)):
        rest = list(argv)
    elif command == "collective" and first not in TAKEN:
        rest = [MEANT["op"].get(first, first), *rest]
    elif first in REACHED:
        rest = [*(rest[1:] if rest[:1] in (["size"], ["length"]) else rest), REACHED[first]]
    elif first in ASKING or first in ("best", "fastest", "cheapest"):
        rest = _without((*FILLING, "of"), rest)
        while rest and rest[0].lower() in LEADING:
            del rest[0]
    elif command == "search" and first not in TAKEN:
        rest = list(argv)
    note = f"{argv[0][:80]}: taken as {command}" if rest != list(argv) or first in ADAPTED else f"taken as {command}"
    money = "; money needs --price, such as --price h100=2.5" if first == "cheapest" else ""
    return CommandLine([command, *rest], [note + money])


def _meant(first: str, argv: Sequence[str]) -> str | None:
    """The command that the first word means; None where it can't be told."""
    words = [word.lower() for word in argv]
    if first == "cheapest":
        return "gpus" if {"days", "--days", "weeks", "months"} & set(words) else "cards"
    if first == "which" and not {"plan", "parallelism"} & set(words):
        return "cards"
    if first == "list":
        return LISTED.get(words[1], words[1]) if words[1:2] and words[1] in LISTABLE else None
    if first in SCALED:
        several = any("," in word or spans(word) for option, word in itertools.pairwise(words) if option in ("--nodes", "--gpus"))
        return "compare" if several else None
    if first == "how" and words[1:2] == ["many"] and len(words) > 2 and called_hardware(words[2]) is not None:
        return "gpus"
    if first in ASKING:
        return next((command for asked, command in ABOUT if set(asked) & set(words)), None)
    if first in ADAPTED:
        return "cards"
    if first in ALGORITHMS:
        return None if "--algorithm" in words else "post-train"
    if first in MOST or first in REACHED:
        return "capacity"
    if first in ("mfu", "why") and any(word.partition("=")[0] in MEASURED for word in words):
        return "diagnose"
    if first in ("gpu", "card") and len(words) == 2:
        return "show"
    if _squeezed(first) in map(_squeezed, {*MEANT["op"], *MEANT["op"].values()} - set(BARE)):
        return "collective"
    if set(AGAINST) & set(words) and called_hardware(first) is not None:
        return "compare"
    if first in TAKEN:
        return MEANT["command"][first]
    return "search" if _is_model(words) else None


def _compared_systems(argv: Sequence[str]) -> list[str]:
    """A comparison of classic systems with an all-reduce, whose names stand among its words; empty where none do."""
    words: list[str] = []
    for word in itertools.chain.from_iterable(re.split("[-_]vs[-_]", word) for word in argv):
        words.append(word)
        if (both := "-".join(words[-2:]).lower()) in SYSTEMS:
            words[-2:] = [both]
    plain = [word.lower().replace(" ", "-").replace("_", "-") for word in words]
    systems = [word for word in dict.fromkeys(plain) if word in SYSTEMS]
    reduced = {word for word in plain if MEANT["op"].get(word, word) == "all-reduce"}
    opening = {"compare", *AGAINST}
    if {"--systems", "--synchronisation"} & set(words) or not systems or not (reduced or plain[0] in opening):
        return []
    rest = [word for word, one in zip(words, plain, strict=True) if one not in {*systems, *reduced, *opening}]
    return ["compare", "--systems", *rest, "--system", ",".join(systems)]


def _system(argv: Sequence[str]) -> tuple[str, list[str]] | None:
    """A classic system of training that opens a question, and the other words; None where none does."""
    for count in (2, 1):
        name = "-".join(argv[:count]).lower().replace("_", "-")
        if name in CALLED and name not in NO_SYSTEMS:
            return name, list(argv[count:])
    return None


def _squeezed(word: str) -> str:
    return re.sub(r"[-_]", "", word)


def _is_model(words: Sequence[str]) -> bool:
    """Whether the first words name a model."""
    names = ("-".join(words[:count]) for count in range(1, 4))
    return any(name in loader.names("model") or loader.alias("model", name) is not None for name in names)


def _without(words: Collection[str], typed: Sequence[str]) -> list[str]:
    """What was typed, up to the first option without some words."""
    end = next((place for place, word in enumerate(typed) if word.startswith("-")), len(typed))
    return [word for place, word in enumerate(typed) if place >= end or word.lower() not in words]
