"""Rules by which frameworks form buckets, as numbers for formulas; `costmodel.description.buckets` plays them out by tensor."""

from __future__ import annotations

from costmodel.formulas.quantities import BucketRule
from costmodel.text.errors import InvalidValue
from costmodel.text.units import MiB

DISTRIBUTED_CAP = 25.0 * MiB
"""Of a bucket of PyTorch's DistributedDataParallel [bytes]."""
ONEFLOW_CAP = 16.0 * MiB
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
RULES = ("one", "nanotron", "ddp", "megatron", "fsdp1", "fsdp2", "deepspeed", "deepspeed-2021", "oneflow")
"""Names of the rules by which frameworks form buckets, as `Framework.buckets` has them."""


def numbers(
    name: str, gradient_bytes: float, weight_bytes: float, bucket_bytes: float | None = None, prefetch_bytes: float | None = None,
) -> BucketRule:  # fmt: skip
    """A rule as the numbers that formulas take.

    Parameters
    ----------
    name : one of `RULES`
    gradient_bytes, weight_bytes : of a gradient, of a weight on the wire [bytes]
    bucket_bytes : of a bucket of gradients [bytes]; the framework's own if None
    prefetch_bytes : of weights gathered at once at stage 3 [bytes]; the framework's own if None

    Raises
    ------
    InvalidValue
        where the rule has no buckets of that kind
    """
    one = BucketRule(
        elements=1e30, elements_per_rank=0.0, overshoot=0.0, first_stage_only=0.0, gathered_in_buckets=0.0, all_reduced=0.0,
        by_tensor=0.0, units_second=0.0, units_third=1.0, padded=0.0, edge_again=1.0, prefetched=1e30,
        held=0.0, live=0.0, updated=1e30, reused=0.0, one_by_one=0.0,
    )  # fmt: skip
    if bucket_bytes is not None and name in ("one", "nanotron"):
        raise InvalidValue("bucket_bytes", bucket_bytes, "None: the framework's buckets are not modelled, it has one")
    if prefetch_bytes is not None and not name.startswith("deepspeed"):
        raise InvalidValue("prefetch_bytes", prefetch_bytes, "None: only DeepSpeed gathers by buckets, others by layer")
    deepspeed = {
        "elements": float(DEEPSPEED_REDUCED), "overshoot": -0.5, "all_reduced": 1.0, "units_third": 0.0,
        "held": 1.0, "live": float(DEEPSPEED_LIVE), "updated": float(DEEPSPEED_UPDATED), "reused": float(DEEPSPEED_REUSED),
        "prefetched": float(DEEPSPEED_PREFETCHED) if prefetch_bytes is None else prefetch_bytes / weight_bytes,
        "one_by_one": float(name == "deepspeed"),  # in 2021 ``_allgather_params`` put them into one flat tensor
    }  # fmt: skip
    megatron = {
        "elements": float(MEGATRON_BUCKET), "elements_per_rank": float(MEGATRON_BUCKET_PER_RANK), "overshoot": 0.5,
        "first_stage_only": 1.0, "gathered_in_buckets": 1.0, "units_second": 1.0, "edge_again": 0.0,
    }  # fmt: skip
    cap = (ONEFLOW_CAP if name == "oneflow" else DISTRIBUTED_CAP) / gradient_bytes
    ddp = {"elements": cap, "overshoot": 0.5, "units_second": 1.0, "edge_again": 0.0, "padded": float(name == "fsdp2")}
    # huggingface/nanotron@2411b022 src/nanotron/optim/gradient_accumulator.py (``dist.all_reduce``), optim/zero.py
    nanotron = {"all_reduced": 1.0, "by_tensor": 1.0}
    named = {"one": {}, "nanotron": nanotron, "deepspeed": deepspeed, "deepspeed-2021": deepspeed, "megatron": megatron}
    made = one._replace(**named.get(name, ddp))
    if bucket_bytes is not None:
        made = made._replace(elements=max(bucket_bytes // gradient_bytes, 1.0), elements_per_rank=0.0)
    return made
