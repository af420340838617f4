"""Low-rank adapters as people ask for them: a rank, and the matrices that have one."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.checks import listing
from costmodel.errors import InvalidValue
from costmodel.formulas.quantities import AdapterChoice

KINDS = ("none", "lora", "qlora")
"""None trains every weight; the others train low-rank adapters, the last beside weights in 4 bits [hu2021]_ [dettmers2023]_."""
RANK = 16
TARGETS = ("query", "key", "value", "fused", "output", "gate", "up", "down")
"""Matrices of a layer; ``"fused"`` is one for queries, keys and values together, as Megatron and NeMo have it."""
GROUPS = {
    "attention": ("query", "key", "value", "output"), "mlp": ("gate", "up", "down"),
    "all": ("query", "key", "value", "output", "gate", "up", "down"),
}  # fmt: skip
NAMED = {
    "q": "query", "k": "key", "v": "value", "o": "output", "q_proj": "query", "k_proj": "key", "v_proj": "value",
    "o_proj": "output", "gate_proj": "gate", "up_proj": "up", "down_proj": "down", "qkv": "fused", "linear_qkv": "fused",
    "query_key_value": "fused", "qkv_proj": "fused", "linear_proj": "output", "linear_fc2": "down", "dense": "output",
    "wq": "query", "wk": "key", "wv": "value", "wo": "output", "w1": "gate", "w2": "down", "w3": "up", "all-linear": "all",
    "linear_fc1": "mlp-first", "gate_up_proj": "mlp-first",
}  # fmt: skip
"""As transformers' PEFT, torchtune and NeMo name them."""
FIRST = {"mlp-first": ("gate", "up")}


def targets_of(names: Sequence[str] | str) -> tuple[str, ...]:
    """The matrices that some names mean, in the order of `TARGETS`.

    Parameters
    ----------
    names : of `TARGETS`, `GROUPS` or `NAMED`; of one text parts between hyphens, commas or pluses

    Raises
    ------
    InvalidValue
        for a name that means none, or fused and separate projections together

    Examples
    --------
    >>> targets_of("q_proj,v_proj"), targets_of(["mlp"])
    (('query', 'value'), ('gate', 'up', 'down'))
    """
    given = names
    if isinstance(names, str):
        text = names if names in NAMED else names.replace("+", "-").replace(",", "-")
        names = [text] if text in NAMED else text.split("-")
    found: set[str] = set()
    for name in listing("lora_targets", names):
        known = NAMED.get(name, name) if isinstance(name, str) else name
        meant = FIRST.get(known) or GROUPS.get(known) or ((known,) if known in TARGETS else ())
        if not meant:
            raise InvalidValue("lora_targets", given, f"some of {', '.join((*GROUPS, *TARGETS))}")
        found |= set(meant)
    if not found or ("fused" in found and found & {"query", "key", "value"}):
        raise InvalidValue("lora_targets", given, "one or more, and either fused or of query, key, value")
    return tuple(name for name in TARGETS if name in found)


def choice_of(kind: str, rank: int | None, targets: Sequence[str] | None, keep_inputs: bool = False) -> AdapterChoice:
    """An adapter as the numbers that formulas take.

    Parameters
    ----------
    kind : one of `KINDS`
    rank : `RANK` if None
    targets : as `targets_of` gives them; every projection if None
    keep_inputs : products with quantised weights keep their inputs
    """
    if kind == "none":
        return AdapterChoice(*[0.0] * len(AdapterChoice._fields))
    chosen = targets_of("all") if targets is None else targets
    flags = {name: float(name in chosen) for name in TARGETS}
    quantised = kind == "qlora"
    return AdapterChoice(
        frozen=1.0, quantised=float(quantised), rank=float(RANK if rank is None else rank), **flags,
        keep_inputs=float(quantised and keep_inputs),
    )  # fmt: skip


__all__ = ["GROUPS", "KINDS", "NAMED", "RANK", "TARGETS", "choice_of", "targets_of"]
