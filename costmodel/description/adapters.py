"""Low-rank adapters as people ask for them: a rank, and the matrices that have one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from costmodel.formulas.quantities import AdapterChoice
from costmodel.formulas.transformer import precision
from costmodel.text.checks import listing
from costmodel.text.errors import InvalidValue

KINDS = ("none", "lora", "qlora", "gptq-lora")
"""None trains every weight; the others train low-rank adapters [hu2021]_, the last two beside weights in 4 bits: in NF4, as
bitsandbytes unpacks them [dettmers2023]_, and as AutoGPTQ does."""


class Packing(NamedTuple):
    """How weights in 4 bits are held, and what it takes to multiply them."""

    parameter: float
    """Bytes that are held of one."""
    moved: float
    """Bytes of one, as if they went over the device's memory, to unpack it."""
    launches: float
    """Kernels that unpack a matrix."""
    kept: bool
    """What the forward pass unpacked is kept for the backward pass."""


PACKED = {
    "qlora": Packing(precision.block_bytes(4.0, 8.0 + 32.0 / 256.0, 64.0), 13.6, 2.0, False),
    "gptq-lora": Packing(precision.block_bytes(4.0, 16.0 + 4.0, 128.0), 33.0, 10.0, True),
}
"""NF4 holds a block's scale in 8 bits and that of 256 scales in 32 [dettmers2023]_, unpacked by two kernels: at 150e9 parameters
a second on an A100 of 2.039e12 bytes/s, as Lightning-AI/litgpt@2685705 tutorials/resource-tables.md has 79 ms a micro-batch more
than LoRA at 7 billion parameters and 191 ms at 13, each unpacked once forward and once backward.

GPTQ holds a scale in 16 bits and a zero in 4 for 128 weights. AutoGPTQ/AutoGPTQ@9f7d370 auto_gptq/nn_modules/qlinear/
qlinear_cuda_old.py unpacks them by kernels of PyTorch, four for the zeros and six for the weights, which move 16.5 bytes of a
weight at half of what a stream reaches: 53e9 parameters a second on an A100, by the 27.4 s that QwenLM/Qwen@2df8e8a README.md
has for eight recomputed micro-batches of 256 tokens of Qwen-72B. Autograd keeps the product's operand."""
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


def choice_of(kind: str, rank: int | None, targets: Sequence[str] | None, keep_inputs: bool = False,
              dropout: bool = True) -> AdapterChoice:  # fmt: skip
    """An adapter as the numbers that formulas take.

    Parameters
    ----------
    kind : one of `KINDS`
    rank : `RANK` if None
    targets : as `targets_of` gives them; every projection if None
    keep_inputs : products with weights in NF4 keep their inputs
    dropout : inputs of adapters are dropped out
    """
    if kind == "none":
        return AdapterChoice(*[0.0] * len(AdapterChoice._fields))
    chosen = targets_of("all") if targets is None else targets
    flags = {name: float(name in chosen) for name in TARGETS}
    packing = PACKED.get(kind, Packing(0.0, 0.0, 0.0, False))
    return AdapterChoice(
        frozen=1.0, unpacked_bytes=packing.moved, unpacking_launches=packing.launches,
        keep_unpacked=float(packing.kept), rank=float(RANK if rank is None else rank), **flags,
        keep_inputs=float(kind == "qlora" and keep_inputs), dropout=float(dropout),
    )  # fmt: skip


__all__ = ["GROUPS", "KINDS", "NAMED", "PACKED", "RANK", "TARGETS", "Packing", "choice_of", "targets_of"]
