"""What messages of the library advise in Python, as options of the command line."""

from __future__ import annotations

import re

from costmodel.cli.defaults import UNSAID

OPTIONS = (
    (r"\bmachine\('([^']+)'\)", r"--device \1"),
    (r"\bmachine\('([^']+)', gpus=(\d+), nodes=(\d+)\)", r"--device \1 --gpus \2 --nodes \3"),
    (r"\bload_network\('([^']+)'\)", r"`costmodel network \1`, and its systems `costmodel compare --systems \1`"),
    (r"\bload_cluster\('([^']+)'\)", r"--cluster \1"),
    (r"\breplace\(model, \{'(\w+)': ([^}]+)\}\)", r"--set model.\1=\2"),
    (r"\bsettings=\{'?([^':]+)'?: '?([^}']+)'?\}", r"--set \1=\2"),
    (r"\bgpus=N\b", "--gpus N"),
    (r"\bmodel=NAME\b", "--model NAME"),
)
"""Calls and arguments in messages, and the options that do the same."""
WORDS = {"True": "yes", "False": "no"}
"""Values of fields as options take them."""


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


def change_as_options(change: str) -> str:
    """A change of a question or of a plan as the options that make it.

    Parameters
    ----------
    change : fields and their values, as ``"zero_stage=2"``

    Examples
    --------
    >>> change_as_options("tensor_parallel=2, sequence_parallel=True"), change_as_options("recompute=any")
    ('--tensor-parallel 2 --sequence-parallel yes', 'no --recompute')
    """
    return " ".join(_option(*one.split("=", 1)) for one in change.split(", "))


def asked_again(change: str, software: str) -> str:
    """A change with the software that it was worked out for, where the question would be asked of another with it.

    Parameters
    ----------
    change : fields and their values
    software : name of the framework

    Examples
    --------
    >>> asked_again("adapter=lora", "megatron-core"), asked_again("optimizer=adam-8bit", "megatron-core")
    ('adapter=lora, framework=megatron-core', 'optimizer=adam-8bit')
    """
    fields = [one.partition("=")[0] for one in change.split(", ")]
    return f"{change}, framework={software}" if "adapter" in fields and software == UNSAID else change


def _option(field: str, value: str) -> str:
    name = f"--{field.replace('_', '-')}"
    return f"no {name}" if value in ("any", "None") else f"{name} {WORDS.get(value, value)}"
