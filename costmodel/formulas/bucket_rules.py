"""Rules by which frameworks form buckets, a row of numbers each; `costmodel.description.buckets` plays them out by tensor."""

from __future__ import annotations

from typing import NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import WITHOUT_LIMIT, BucketRule, Number

DISTRIBUTED_CAP = 25.0 * 2**20
"""Of a bucket of PyTorch's DistributedDataParallel [bytes]."""
ONEFLOW_CAP = 16.0 * 2**20
"""Of gradients that OneFlow sums in one call [bytes]: Oneflow-Inc/libai configs/common/train.py, ``nccl_fusion_threshold_mb``."""
DEEPSPEED_REDUCED, DEEPSPEED_PREFETCHED = 500_000_000, 50_000_000
"""Of a bucket of DeepSpeed's gradients, and of weights gathered ahead at stage 3 [elements]."""
DEEPSPEED_LIVE, DEEPSPEED_UPDATED = 1_000_000_000, 1_000_000_000
"""Of DeepSpeed's weights that are whole at once at stage 3, and of a group of its shard that is updated at once [elements]:
deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/config.py, ``max_live_parameters`` and ``sub_group_size``."""
DEEPSPEED_REUSED = 1_000_000_000
"""Of other weights between two uses of one within which it stays whole at stage 3 [elements]: the same file,
``max_reuse_distance``."""
MEGATRON_BUCKET, MEGATRON_BUCKET_PER_RANK = 40_000_000, 1_000_000
"""Of a bucket of Megatron-Core, at least, and for each rank that shares it [elements]."""
NEMO_BUCKET = 128 * 1024**2
"""Of a bucket under NeMo 2 and Megatron-Bridge, which tell Megatron-Core so unless they are told otherwise [elements]:
NVIDIA-NeMo/Megatron-Bridge@0685ff5 src/megatron/bridge/training/comm_overlap.py, ``_get_optimizer_overlap_cfgs``."""


class BucketTraits(NamedTuple):
    """What is known of a rule whatever the plan: a cap of its buckets of gradients [bytes], 0 where it counts elements; and what
    `costmodel.formulas.quantities.BucketRule` says of the other fields."""

    cap: float = 0.0
    elements: float = WITHOUT_LIMIT
    elements_per_rank: float = 0.0
    overshoot: float = 0.0
    first_stage_only: float = 0.0
    gathered_in_buckets: float = 0.0
    all_reduced: float = 0.0
    by_tensor: float = 0.0
    units_second: float = 0.0
    units_third: float = 1.0
    padded: float = 0.0
    edge_again: float = 1.0
    prefetched: float = WITHOUT_LIMIT
    held: float = 0.0
    live: float = 0.0
    updated: float = WITHOUT_LIMIT
    reused: float = 0.0
    one_by_one: float = 0.0


_DISTRIBUTED = BucketTraits(cap=DISTRIBUTED_CAP, overshoot=0.5, units_second=1.0, edge_again=0.0)
_DEEPSPEED = BucketTraits(
    elements=float(DEEPSPEED_REDUCED), overshoot=-0.5, all_reduced=1.0, units_third=0.0, held=1.0, live=float(DEEPSPEED_LIVE),
    updated=float(DEEPSPEED_UPDATED), reused=float(DEEPSPEED_REUSED), prefetched=float(DEEPSPEED_PREFETCHED), one_by_one=1.0,
)  # fmt: skip
_MEGATRON = BucketTraits(
    elements=float(MEGATRON_BUCKET), elements_per_rank=float(MEGATRON_BUCKET_PER_RANK), overshoot=0.5, first_stage_only=1.0,
    gathered_in_buckets=1.0, units_second=1.0, edge_again=0.0,
)  # fmt: skip
RULES = {
    "one": BucketTraits(),
    # huggingface/nanotron@2411b022 src/nanotron/optim/gradient_accumulator.py (``dist.all_reduce``), optim/zero.py
    "nanotron": BucketTraits(all_reduced=1.0, by_tensor=1.0),
    "ddp": _DISTRIBUTED, "megatron": _MEGATRON, "nemo": _MEGATRON._replace(elements=float(NEMO_BUCKET), elements_per_rank=0.0),
    "fsdp1": _DISTRIBUTED, "fsdp2": _DISTRIBUTED._replace(padded=1.0), "deepspeed": _DEEPSPEED,
    "deepspeed-2021": _DEEPSPEED._replace(one_by_one=0.0),  # ``_allgather_params`` put them into one flat tensor
    "oneflow": _DISTRIBUTED._replace(cap=ONEFLOW_CAP),
}  # fmt: skip
"""By the names that `Framework.buckets` has."""
CODES = {name: float(code) for code, name in enumerate(RULES)}
DISTRIBUTED = CODES["ddp"]
"""PyTorch's DistributedDataParallel."""
UNLIMITED = ("one", "nanotron")
"""Rules whose buckets have no size that a plan could set."""
PREFETCHING = tuple(name for name in RULES if name.startswith("deepspeed"))
"""Rules that gather weights ahead in buckets whose size a plan can set."""
_COLUMNS = dict(zip(BucketTraits._fields, zip(*RULES.values(), strict=True), strict=True))


def rule_at(zero_stage: Number, prefetch_bytes: Number, usual: Number, replicated_buckets: Number) -> Number:
    """The code of the rule by which gradients and weights are grouped into calls at a stage of sharding.

    Parameters
    ----------
    zero_stage : 0 to 3; -1: none
    prefetch_bytes : that a plan asks to gather ahead, a choice of the code that shards; -1: none
    usual : code of the framework's rule
    replicated_buckets : of its rule where no state is sharded, if that is another's code; else -1

    Examples
    --------
    >>> rule_at(0.0, -1.0, CODES["deepspeed"], CODES["ddp"]) == CODES["ddp"]
    True
    """
    replicated = (zero_stage < 0.5) & (prefetch_bytes < 0.0) & (replicated_buckets >= 0.0)
    return ops.where(replicated, replicated_buckets, usual)


def bucket_rule(
    rule: Number, gradient_bytes: Number, weight_bytes: Number, bucket_bytes: Number, prefetch_bytes: Number
) -> BucketRule:  # fmt: skip
    """A rule with the sizes that a plan asks for, `BucketRule`.

    Parameters
    ----------
    rule : its code of `CODES`
    gradient_bytes, weight_bytes : of a gradient, of a weight on the wire [bytes]
    bucket_bytes : of a bucket of gradients [bytes]; -1: the framework's own
    prefetch_bytes : of weights gathered at once at stage 3 [bytes]; -1: the framework's own

    Examples
    --------
    >>> bucket_rule(CODES["ddp"], 4.0, 2.0, -1.0, -1.0).elements == 25 * 2**20 / 4
    True
    """
    told = {name: ops.pick(rule, column) for name, column in _COLUMNS.items()}
    cap, own = told.pop("cap"), bucket_bytes < 0.0
    elements = ops.where(cap > 0.0, cap / gradient_bytes, told["elements"])
    asked = ops.maximum(-ops.ceil(-bucket_bytes / gradient_bytes), 1.0)
    ahead = ops.where(prefetch_bytes < 0.0, told["prefetched"], prefetch_bytes / weight_bytes)
    return BucketRule(**told)._replace(
        elements=ops.where(own, elements, asked), elements_per_rank=ops.where(own, told["elements_per_rank"], 0.0),
        prefetched=ahead,
    )  # fmt: skip
