"""How people write names of models, devices and clusters, and what they mean by them."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping

LONGEST = 100
"""Characters of a name that is looked up."""
VARIANTS = frozenset(("instruct", "chat", "it", "base", "pt", "hf", "meta", "deduped", "sft", "dpo", "rlvr", "thinking"))
"""Words in a model's name on the hub that leave its shape alone."""


QUANTISED = frozenset(("bnb", "4bit", "8bit", "awq", "gptq", "int4", "int8", "nf4", "gguf", "unsloth", "dynamic"))
"""Words in such a name that say in how many bits its weights are kept, of which a question says more itself."""


@functools.lru_cache(maxsize=4096)
def squeezed(name: str) -> str:
    """A name without what people write differently: case, spaces, the maker's name.

    Examples
    --------
    >>> squeezed("NVIDIA GeForce RTX 4090"), squeezed("Standard_ND96isr_H100_v5")
    ('rtx4090', 'nd96isrh100v5')
    """
    makers = r"^(nvidia|amd|intel|google|geforce|instinct|standard|azure|ml(?=[pg][0-9]))+"  # as SageMaker has it, ml.p5
    return re.sub(makers, "", re.sub(r"[\s_.-]+", "", name.lower()))


@functools.lru_cache(maxsize=4096)
def shape_name(name: str) -> str:
    """A model's name without its owner on the hub, its case and punctuation, and the words that leave its shape alone.

    Figures that stand apart stay apart, as ``llama-3-18b`` is not ``llama-3.1-8b``.

    Examples
    --------
    >>> shape_name("meta-llama/Llama-3.1-8B-Instruct"), shape_name("llama3.1-8b"), shape_name("Llama 3 8B")
    ('llama3-1-8b', 'llama3-1-8b', 'llama3-8b')
    """
    words = [word for word in re.split(r"[\s/:_.-]+", name.lower().rpartition("/")[2]) if word and word not in VARIANTS]
    joined = ""
    for word in words:
        apart = joined[-1:].isdigit() and word[0].isdigit()
        joined += f"-{word}" if apart else word
    return joined


def called(kind: str, name: str, known: Iterable[str], others: Mapping[str, str]) -> str | None:
    """The entry that a name stands for, or None where it stands for none, or for several.

    Parameters
    ----------
    kind : ``"model"``, ``"device"`` or ``"cluster"``
    name : as somebody wrote it
    known : names of the entries
    others : further names of entries, and which

    Examples
    --------
    >>> called("model", "Qwen/Qwen2.5-7B-Instruct", ["qwen2.5-7b", "qwen3-8b"], {})
    'qwen2.5-7b'
    """
    if len(name) > LONGEST:
        return None
    names = {**others, **{entry: entry for entry in known}}
    for key in _keys(kind, name):
        wanted = key(name)
        found = {entry for other, entry in names.items() if wanted and key(other) == wanted}
        if len(found) == 1:
            return found.pop()
    return None


def _keys(kind: str, name: str) -> list[Callable[[str], str]]:
    """By what names are compared, the narrowest first."""
    if kind != "model":
        return [squeezed]
    keys: list[Callable[[str], str]] = [shape_name, lambda one: shape_name(_sized_apart(one).replace(".", ""))]  # as in qwen25-7b
    alone = re.search(r"[\s_.-]", name.rpartition("/")[2]) is None  # as in llama38b
    return [*keys, lambda one: squeezed(_sized_apart(one.rpartition("/")[2]))] if alone else keys


def _sized_apart(name: str) -> str:
    """A name whose size keeps its point where others are dropped: 1.3b is no 13b."""
    return re.sub(r"(?<![0-9.])([0-9]{1,4})\.([0-9]{1,4})(?=[bm]\b)", r"\1point\2", name.lower())


def holding(name: str, known: Iterable[str]) -> list[str]:
    """Entries whose names hold every word of a name: what somebody may mean who wrote a part of it.

    A size is no part of a larger one, ``7b`` none of ``27b``, unless no entry has it by itself.

    Examples
    --------
    >>> holding("Llama 8B", ["llama3-8b", "llama3.1-8b", "llama3-70b"])
    ['llama3-8b', 'llama3.1-8b']
    >>> holding("qwen 7b", ["qwen2.5-7b", "qwen3.5-27b", "qwen3-1.7b"])
    ['qwen2.5-7b']
    """
    entries = [*known]
    words = [word for word in re.split(r"[\s/_-]+", name[:LONGEST].lower()) if word not in VARIANTS and squeezed(word)]
    found = [entry for entry in entries if words and all(squeezed(word) in squeezed(entry) for word in words)]
    if not found and QUANTISED & set(words):
        return holding(" ".join(word for word in words if word not in QUANTISED), entries)
    sizes = [re.compile(rf"(?<![\w.]){re.escape(word)}") for word in words if word[0].isdigit()]
    return [entry for entry in found if all(size.search(entry) for size in sizes)] or found


def is_hub_id(name: str) -> bool:
    """Whether a name is of the form that models have on the Hugging Face hub, ``owner/name``.

    Examples
    --------
    >>> is_hub_id("Qwen/Qwen3-8B"), is_hub_id("./config.json"), is_hub_id("qwen3-8b")
    (True, False, False)
    """
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name) is not None and not name.endswith((".json", ".toml"))


def in_hub_cache(name: str) -> str | None:
    """The ``config.json`` of a model in this machine's cache of the Hugging Face hub, or None; nothing is downloaded.

    Looked up where ``huggingface_hub`` keeps it: ``HF_HUB_CACHE``, ``HF_HOME/hub`` or ``~/.cache/huggingface/hub``.

    Parameters
    ----------
    name : ``owner/name``, whatever its case
    """
    home = os.environ.get("HF_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    wanted = f"models--{name.replace('/', '--')}"
    try:
        folders = [folder for folder in os.listdir(cache) if folder.lower() == wanted.lower()]
    except OSError:
        return None
    for folder in sorted(folders, key=lambda one: one != wanted):
        snapshots = os.path.join(cache, folder, "snapshots")
        found = []
        for snapshot in _names_in(snapshots):
            config = os.path.join(snapshots, snapshot, "config.json")
            if os.path.isfile(config):
                found.append((snapshot == _main(os.path.join(cache, folder)), os.path.getmtime(config), config))
        if found:
            return max(found)[2]
    return None


def _names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _main(folder: str) -> str:
    """The snapshot that the branch ``main`` is at."""
    try:
        with open(os.path.join(folder, "refs", "main"), encoding="utf-8") as stream:
            return stream.read(LONGEST).strip()
    except (OSError, UnicodeDecodeError):
        return ""
