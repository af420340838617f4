"""What messages of the library advise in Python, as options of the command line."""

from __future__ import annotations

import re

OPTIONS = (
    (r"\bmachine\('([^']+)'\)", r"--device \1"),
    (r"\bload_cluster\('([^']+)'\)", r"--cluster \1"),
    (r"\breplace\(model, \{'(\w+)': ([^}]+)\}\)", r"--set model.\1=\2"),
    (r"\bsettings=\{'?([^':]+)'?: '?([^}']+)'?\}", r"--set \1=\2"),
    (r"\bgpus=N\b", "--gpus N"),
    (r"\bmodel=NAME\b", "--model NAME"),
)
"""Calls and arguments in messages, and the options that do the same."""


def as_options(message: str) -> str:
    """A message with options in the place of calls and arguments.

    Parameters
    ----------
    message : of an error or a note

    Examples
    --------
    >>> as_options("it is a device: machine('h100-sxm')"), as_options("give settings={'TP': 8}")
    ('it is a device: --device h100-sxm', 'give --set TP=8')
    """
    for call, option in OPTIONS:
        message = re.sub(call, option, message)
    return message


__all__ = ["OPTIONS", "as_options"]
