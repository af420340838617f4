"""Low-rank adapters as people ask for them: a rank, and the matrices that have one."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.formulas.quantities import AdapterTargets
from costmodel.formulas.transformer import adapters
from costmodel.text.checks import listing
from costmodel.text.errors import InvalidValue

RANK = int(adapters.RANK)
TARGETS = AdapterTargets._fields
"""Matrices of a layer; ``"fused"`` is one for queries, keys and values together, as Megatron and NeMo have it."""
NONE = "none"
"""What no matrix has an adapter is called: weights are frozen and gradients pass through them alone."""
GROUPS = {
    "attention": ("query", "key", "value", "output"), "mlp": ("gate", "up", "down"),
    "all": ("query", "key", "value", "output", "gate", "up", "down"),
}  # fmt: skip
NAMED = {
    "q": "query", "k": "key", "v": "value", "o": "output", "q_proj": "query", "k_proj": "key", "v_proj": "value",
    "o_proj": "output", "gate_proj": "gate", "up_proj": "up", "down_proj": "down", "qkv": "fused", "linear_qkv": "fused",
    "query_key_value": "fused", "qkv_proj": "fused", "linear_proj": "output", "linear_fc2": "down", "dense": "output",
    "wq": "query", "wk": "key", "wv": "value", "wo": "output", "w1": "gate", "w2": "down", "w3": "up", "all-linear": "all",
    "linear_fc1": "mlp-first", "gate_up_proj": "mlp-first", "output_proj": "output", "out_proj": "output",
    "c_attn": "fused", "W_pack": "fused", "dense_h_to_4h": "up", "dense_4h_to_h": "down", "fc1": "up", "fc2": "down",
    "attention_qkv": "fused", "attention_dense": "output", "mlp_fc1": "mlp-first", "mlp_fc2": "down",
}  # fmt: skip
"""As transformers' PEFT and its models, torchtune and NeMo name them."""
FIRST = {"mlp-first": ("gate", "up")}


def targets_of(names: Sequence[str] | str) -> tuple[str, ...]:
    """The matrices that some names mean, in the order of `TARGETS`.

    Parameters
    ----------
    names : of `TARGETS`, `GROUPS` or `NAMED`, or `NONE`; of one text parts between hyphens, commas or pluses

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
    if names in (NONE, (), (NONE,)):
        return ()
    if isinstance(names, str):
        text = names if names in NAMED else names.replace("+", "-").replace(",", "-")
        names = [text] if text in NAMED else text.split("-")
    found: set[str] = set()
    for name in listing("lora_targets", names):
        known = NAMED.get(name, name) if isinstance(name, str) else name
        meant = FIRST.get(known) or GROUPS.get(known) or ((known,) if known in TARGETS else ())
        if not meant:
            raise InvalidValue("lora_targets", given, f"{NONE}, or some of {', '.join((*GROUPS, *TARGETS))}")
        found |= set(meant)
    if not found or ("fused" in found and found & {"query", "key", "value"}):
        raise InvalidValue("lora_targets", given, "none, or some, and either fused or of query, key, value")
    return tuple(name for name in TARGETS if name in found)


def target_numbers(targets: Sequence[str] | None) -> AdapterTargets:
    """The matrices that have an adapter, as the numbers that formulas take.

    Parameters
    ----------
    targets : as `targets_of` gives them; every projection if None
    """
    chosen = targets_of("all") if targets is None else targets
    return AdapterTargets(*(float(name in chosen) for name in AdapterTargets._fields))
