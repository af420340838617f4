"""How the values of launch files are read: what a flag may hold, as a check that ends in the value or says what was expected."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from costmodel.text.units import ANSWERS

MOST = 10**15
NUMBER = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")


class Unstated:
    """What a flag leaves open: null, or "auto"."""


UNSTATED: Final = Unstated()
Unit = Callable[[object], object]
"""Reads a raw value; `UNSTATED` where it leaves its field open; raises `Expected`."""


class Expected(Exception):
    """A value that a flag can't have; the text says what it could."""


class Foreign(Exception):
    """A word that may be right but that the table doesn't know."""


def _open(raw: object) -> bool:
    return raw is None or (isinstance(raw, str) and raw.strip().lower() in ("", "auto", "null", "none", "~"))


def _real(raw: object, expected: str) -> float:
    if isinstance(raw, bool):
        raise Expected(expected)
    if isinstance(raw, str):
        if not NUMBER.fullmatch(raw.strip()):
            raise Expected(expected)
        raw = float(raw.strip().replace("_", "")) if len(raw) < 40 else math.inf
    if not isinstance(raw, int | float) or not abs(raw) <= MOST:  # of an integer beyond all floats, too
        raise Expected(expected)
    return float(raw)


def _integer(raw: object, least: int, expected: str) -> int | Unstated:
    """A whole number from `least`, unless it is left open."""
    if _open(raw):
        return UNSTATED
    number = _real(raw, expected)
    if number < least or number != int(number):
        raise Expected(expected)
    return int(number)


def whole(raw: object) -> int | Unstated:
    """A whole number from 0."""
    return _integer(raw, 0, "a whole number from 0")


def count(raw: object) -> int | Unstated:
    """A whole number from 1."""
    return _integer(raw, 1, "a whole number from 1")


def count_or_open(raw: object) -> int | Unstated:
    """A whole number from 1, or -1: left to the framework."""
    return UNSTATED if raw in (-1, "-1") else count(raw)


RANKS = "a whole number from 1, or -1 for the rest"


def degree(raw: object) -> int | Unstated:
    """A number of ranks; 0 and -1 leave it to the framework."""
    found = _integer(raw, -1, RANKS)
    return found if isinstance(found, int) and found > 0 else UNSTATED


def rest(raw: object) -> int | str | Unstated:
    """A number of ranks, or -1: all that are left."""
    found = _integer(raw, -1, RANKS)
    if found == 0:
        raise Expected(RANKS)
    return "rest" if found == -1 else found


def number(raw: object) -> object:
    """A finite number from 0."""
    if _open(raw):
        return UNSTATED
    value = _real(raw, "a number from 0")
    if value < 0:
        raise Expected("a number from 0")
    return value


def flag(raw: object) -> object:
    """True or false; true where a flag has no value."""
    if raw is None or (isinstance(raw, str) and raw.strip().lower() in ("", "auto", "null", "~")):
        return UNSTATED
    if isinstance(raw, bool):
        return raw
    words = ANSWERS | {"1": True, "0": False}
    if str(raw).strip().lower() not in words:
        raise Expected("true or false")
    return words[str(raw).strip().lower()]


def present(raw: object) -> object:
    """A section that is there: true unless it is null or empty."""
    return UNSTATED if raw is None or raw in ({}, [], "") else True


def word(raw: object) -> object:
    """A text."""
    if raw is None or raw == "":
        return UNSTATED
    if not isinstance(raw, str | int | float) or isinstance(raw, bool) or len(str(raw)) > 500:
        raise Expected("a text of at most 500 characters")
    return str(raw)


def anything(raw: object) -> object:
    """Whatever it is, for the dialect's rule to read."""
    return UNSTATED if raw is None else raw


def listed(raw: object) -> object:
    """Names: a list, or a text with commas or blanks between them."""
    if raw is None or raw in ("", []):
        return UNSTATED
    if isinstance(raw, str) and not re.fullmatch(r"[\w.,\s-]+", raw):
        return [raw[:100]]  # a pattern
    names = re.split(r"[,\s]+", raw) if isinstance(raw, str) else raw
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(names) > 1000:
        raise Expected("names")
    return [name[:100] for name in names if name]


class Meanings:
    """Words with what they mean, read and written.

    Parameters
    ----------
    words : as they are written, with their meaning; compared in lower case
    null : what no value means
    switch : whether the words are ``true`` and ``false``, in any of their spellings
    """

    def __init__(self, words: Mapping[str, object], null: object = UNSTATED, switch: bool = False):
        self.words, self.null, self.switch = words, null, switch
        self.known = {word.lower(): meaning for word, meaning in words.items()}

    def __call__(self, raw: object) -> object:
        """The meaning of a value."""
        if raw is None:
            return self.null
        if self.switch:
            stated = flag(raw)
            return stated if stated is UNSTATED else self.known["true" if stated else "false"]
        key = str(raw).strip().lower()
        if key in self.known:
            return self.known[key]
        if _open(raw):
            return UNSTATED
        raise Foreign(", ".join(self.words))

    def said(self, value: object) -> object:
        """The word that means a value, the first of several; None where none does."""
        word = next((word for word, meaning in self.words.items() if meaning == value), None)
        if not self.switch:
            return word
        return True if word == "true" else False if self.known["false"] is not UNSTATED and value is not None else None


def yields(value: object, otherwise: object = UNSTATED) -> Meanings:
    """A flag that stands for `value` where it is true, for `otherwise` where it is false."""
    return Meanings({"true": value, "false": otherwise}, switch=True)


def one_of(words: Mapping[str, object], null: object = UNSTATED) -> Meanings:
    """A word with its meaning; compared in lower case."""
    return Meanings(words, null)


DTYPES = {
    "bf16": "bf16", "bfloat16": "bf16", "torch.bfloat16": "bf16", "bf16-mixed": "bf16", "bf16-true": "bf16",
    "fp16": "fp16", "float16": "fp16", "half": "fp16", "16": "fp16", "16-mixed": "fp16", "16-true": "fp16",
    "torch.float16": "fp16",
    "fp32": "fp32", "float32": "fp32", "float": "fp32", "32": "fp32", "32-true": "fp32", "torch.float32": "fp32", "no": "fp32",
    "fp8": "fp8", "mxfp8": "mxfp8", "nvfp4": "nvfp4", "tf32": "tf32",
}  # fmt: skip
"""Words of the frameworks for what matrix products run in."""
ATTENTION = {
    "flash_attention_2": "flash", "flash_attention_3": "flash", "flash_attention_4": "flash", "flash": "flash", "fa2": "flash",
    "fa3": "flash", "fa4": "flash", "sdpa": "fused", "eager": "unfused", "xformers": "xformers", "flex_attention": "fused",
    "flex": "fused", "sage": "fused", "ring": "ring", "llama3_ring_attention": "ring", "auto": "auto", "disabled": "unfused",
    "kernels-community/flash-attn2": "flash", "kernels-community/flash-attn": "flash", "kernels-community/flash-attn3": "flash",
    "kernels-community/vllm-flash-attn3": "flash", "fused": "fused", "unfused": "unfused", "local": "unfused", "varlen": "flash",
    "torch": "unfused", "triton": "flash", "paged|flash_attention_2": "flash", "s2": "flash", "fp8": "fused", "none": UNSTATED,
    "autoselected": UNSTATED, "dot_product": "unfused",
}  # fmt: skip
"""Words of the frameworks for the attention kernel: what it amounts to."""


def attention(raw: object) -> object:
    """The kernel of attention that a word names; names of a kernel hub by what they contain."""
    if raw is None:
        return UNSTATED
    name = str(raw).strip().lower()
    if name in ATTENTION:
        return ATTENTION[name]
    if "flash" in name:
        return "flash"
    raise Foreign(", ".join(ATTENTION))
