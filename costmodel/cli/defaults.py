"""What a question that compares takes where nothing is said of a step's work: an answer at once, and a line that says so."""

from __future__ import annotations

import argparse

from costmodel.description.transformer import Transformer
from costmodel.description.usual_work import ADAPTED_BATCH, ADAPTED_LENGTH, BATCH, LENGTH, UNSAID, no_longer


def fill_work(arguments: argparse.Namespace, model: Transformer, *, global_batch: int, seq_len: int) -> str:
    """Give a question the sequences that it doesn't say.

    Parameters
    ----------
    arguments : of the command line
    model : whose learned positions bound the length
    global_batch, seq_len : that are taken

    Returns
    -------
    str
        what was taken, as a line; empty where all was said
    """
    taken = []
    if arguments.global_batch is None:
        arguments.global_batch = global_batch
        taken.append(f"--global-batch {global_batch}")
    if arguments.seq_len is None:
        arguments.seq_len = no_longer(model, seq_len)
        taken.append(f"--seq-len {arguments.seq_len}")
    return f"Taken, as it wasn't said: {', '.join(taken)}" if taken else ""


def as_note(taken: str) -> list[str]:
    """The line of `fill_work` as a note; none where all was said."""
    return [f"{taken[0].lower()}{taken[1:]}"] if taken else []


def priced(text: str) -> dict[str, float]:
    """Prices such as ``2.5`` or ``h100=2.5,b200=5``: by names, that of all by an empty one."""
    from costmodel.cli.arguments import number

    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, price = part.rpartition("=")
        if name.strip() in found or (not name.strip() and (equals or "," in text)):
            raise argparse.ArgumentTypeError(f"{text[:80]!r} is neither a price nor NAME=PRICE,..., such as h100=2.5,b200=5")
        value = number(price)
        if not 0.0 <= value <= 1e6:
            raise argparse.ArgumentTypeError(f"{price[:80]!r} is no price from 0 to 1,000,000")
        found[name.strip()] = value
    return found


__all__ = ["ADAPTED_BATCH", "ADAPTED_LENGTH", "BATCH", "LENGTH", "UNSAID", "as_note", "fill_work", "priced"]
