"""Buckets of gradients and gathers of weights as the frameworks form them, and what of them the backward pass hides.

A rule takes the tensors of one rank and says which calls it makes: so many elements each, in the order in which they
are ready. The rules follow the sources named at each; gradients are taken to arrive in reverse order of registration.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.description.tensors import Integers, LocalTensors
from costmodel.formulas.bucket_rules import (
    DEEPSPEED_LIVE,
    DEEPSPEED_PREFETCHED,
    DEEPSPEED_REDUCED,
    DISTRIBUTED_CAP,
    MEGATRON_BUCKET,
    MEGATRON_BUCKET_PER_RANK,
    NEMO_BUCKET,
    ONEFLOW_CAP,
)
from costmodel.text.checks import flag, positive_int, real
from costmodel.text.errors import InvalidValue, NotModelled
from costmodel.text.units import MiB

MOST = 10**15


class Context(NamedTuple):
    """What a rule needs to know of the plan."""

    ranks: int  # that sum their gradients
    shard: int  # of them, that share one copy of what is sharded
    zero_stage: int  # 0 to 3
    gradient_bytes: float = 2.0  # of a gradient on the wire [bytes]
    overlapped: bool = True  # gradients travel beside the backward pass
    first_stage: bool = True  # of the pipeline
    chunks: int = 1  # model chunks of the stage (virtual stages)
    deferred: bool = False  # gradients that are sharded are summed once a step
    again: float = 0.0  # share of a layer's sharded weights that are gathered twice for its backward pass
    among: float = 1.0  # elements of the stage for each of those whose calls are asked for
    tied: bool = False  # the head's table is the embedding's
    edges_apart: bool = False  # embedding and head are units of their own, where they have a table each


class CollectiveCall(NamedTuple):
    """Calls of one kind of collective, in order."""

    phase: str  # ``"forward"``, ``"backward"``, ``"gradient sync"`` or ``"after step"``
    collective: str  # ``"all-reduce"``, ``"reduce-scatter"``, ``"all-gather"`` or ``"reduce"`` (to one rank)
    over: str  # ``"all"`` ranks, those that ``"shard"`` a copy, or the ``"copies"`` of a shard
    what: str  # ``"gradients"`` or ``"weights"``
    elements: Integers  # of each call
    layer: Integers  # whose backward pass completes each (0 the embedding)
    every: bool  # once a micro-batch; else once a step


class Bucketing(Protocol):
    """How a framework groups tensors into collective calls."""

    def calls(self, tensors: LocalTensors, context: Context) -> list[CollectiveCall]:
        """Every call of one step for `tensors`."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Buckets:
    """Tensors in the order in which they are ready, cut into buckets."""

    order: Integers  # places of the tensors in the order of registration
    ends: Integers  # one behind the last tensor of each bucket, in `order`
    elements: Integers  # of each bucket, padding included
    layer: Integers  # whose backward pass completes each bucket

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def tensors(self) -> Integers:
        """Tensors in each bucket."""
        return np.diff(self.ends, prepend=0)

    def summed(self) -> CollectiveCall:
        """An all-reduce of each, once a step."""
        return CollectiveCall("gradient sync", "all-reduce", "all", "gradients", self.elements, self.layer, False)

    def gathered(self, phase: str, kept: slice | NDArray[np.bool_] = slice(None), every: bool = True) -> CollectiveCall:
        """A gather of the weights of each, or of some."""
        return CollectiveCall(phase, "all-gather", "shard", "weights", self.elements[kept], self.layer[kept], every)

    def members(self) -> list[Integers]:
        """Places of each bucket's tensors in the order of registration."""
        return np.split(self.order, self.ends[:-1])


def cut_before(numel: Integers, cap: int) -> Integers:
    """Ends of buckets that are flushed before a tensor that would take them over `cap`.

    Parameters
    ----------
    numel : elements of the tensors in order
    cap : elements that a bucket holds; a larger tensor is alone in its own

    Examples
    --------
    >>> cut_before(np.array([4, 3, 5, 20, 1]), 8)
    array([2, 3, 4, 5])
    """
    total, start = np.cumsum(numel), 0
    ends: list[int] = []
    while start < len(numel):
        before = total[start - 1] if start else 0
        start = max(int(np.searchsorted(total, before + cap, side="right")), start + 1)
        ends.append(start)
    return np.array(ends, dtype=np.int64)


def cut_after(size: Integers, caps: Sequence[float], last: Integers | None = None) -> Integers:
    """Ends of buckets that are flushed as soon as they have reached the cap.

    Parameters
    ----------
    size : of the tensors in order
    caps : of the first bucket, of the second, ...; the last of them holds for the rest
    last : of the tensors where each ends a bucket, if less than `size`, which pads them for the next

    Examples
    --------
    >>> cut_after(np.array([4, 3, 5, 20, 1]), [1, 8])
    array([1, 3, 4, 5])
    """
    total, start = np.cumsum(size), 0
    reached = total if last is None else total - size + last
    ends: list[int] = []
    while start < len(size):
        before = total[start - 1] if start else 0
        cap = caps[min(len(ends), len(caps) - 1)]
        start = min(int(np.searchsorted(reached, before + cap, side="left")) + 1, len(size))
        ends.append(start)
    return np.array(ends, dtype=np.int64)


def _bucketed(tensors: LocalTensors, order: Integers, ends: Integers, numel: Integers) -> Buckets:
    """Buckets of tensors in `order`, of so many (padded) elements each."""
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
    layer = tensors.layer[order]
    return Buckets(order=order, ends=ends, elements=np.add.reduceat(numel, starts), layer=np.minimum.reduceat(layer, starts))


def _padded(numel: Integers, multiple: int) -> Integers:
    return -(-numel // multiple) * multiple


def _reversed(tensors: LocalTensors) -> Integers:
    return np.arange(len(tensors) - 1, -1, -1)


def _over_copies(buckets: Buckets, context: Context, every: bool) -> list[CollectiveCall]:
    """Reduce-scatters over the ranks that shard, and the all-reduces of the shards over their copies where there are."""
    calls = [CollectiveCall("gradient sync", "reduce-scatter", "shard", "gradients", buckets.elements, buckets.layer, every)]
    if context.shard < context.ranks:
        pieces = -(-buckets.elements // context.shard)
        calls.append(CollectiveCall("gradient sync", "all-reduce", "copies", "gradients", pieces, buckets.layer, every))
    return calls


def _launched_together(buckets: Buckets, chunk: Integers) -> Buckets:
    """Buckets of which those of a chunk behind the first are launched as one."""
    last = np.append((np.diff(chunk) != 0) | (chunk[1:] == 0), True)
    starts = np.append(0, np.flatnonzero(last)[:-1] + 1)
    return Buckets(
        order=buckets.order, ends=buckets.ends[last], elements=np.add.reduceat(buckets.elements, starts),
        layer=np.minimum.reduceat(buckets.layer, starts),
    )  # fmt: skip


def _inside(buckets: Buckets, layers: int) -> NDArray[np.bool_]:
    """Which buckets are of layers, not of what lies around them."""
    return np.asarray((buckets.layer > 0) & (buckets.layer <= layers))


def _again(buckets: Buckets, context: Context, layers: int) -> list[CollectiveCall]:
    """Gathers of what a recomputed layer's passes release between each other."""
    inside = _inside(buckets, layers)
    elements = np.rint(context.again * buckets.elements[inside]).astype(np.int64)
    if not elements.any():
        return []
    return [CollectiveCall("backward", "all-gather", "shard", "weights", elements, buckets.layer[inside], True)]


def _refuse(rule: str, context: Context, stages: str) -> None:
    raise NotModelled(f"{rule} with zero_stage={context.zero_stage}: its buckets are known for stages {stages}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneBucket:
    """No buckets: one call for all of a stage's tensors, under ZeRO-3 one for each layer; what `estimate` prices."""

    def calls(self, tensors: LocalTensors, context: Context) -> list[CollectiveCall]:
        """Every call of one step for `tensors`."""
        order = _reversed(tensors)
        if context.zero_stage < 3:
            whole = _bucketed(tensors, order, np.array([len(tensors)]), tensors.numel[order])
            if context.zero_stage == 0:
                return [whole.summed()]
            calls = _over_copies(whole, context, context.zero_stage > 1 and not context.deferred)
            return [*calls, whole.gathered("after step", every=False)]
        units = _units(tensors)
        gathers = [units.gathered(phase) for phase in ("forward", "backward")[: 1 if context.deferred else 2]]
        gathers += _again(units, context, tensors.layers)
        return gathers + _over_copies(units, context, not context.deferred)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WholeGradients:
    """nanotron's: one all-reduce of all of a stage's gradients, whole under ZeRO-1 too, whose weights are then gathered.

    References
    ----------
    huggingface/nanotron@2411b022 src/nanotron/optim/gradient_accumulator.py, ``sync_gradients_across_dp``; optim/zero.py
    """

    def calls(self, tensors: LocalTensors, context: Context) -> list[CollectiveCall]:
        """Every call of one step for `tensors`."""
        if context.zero_stage > 1:
            _refuse("WholeGradients", context, "0 and 1")
        whole = _bucketed(tensors, _reversed(tensors), np.array([len(tensors)]), tensors.numel[_reversed(tensors)])
        return [whole.summed(), whole.gathered("after step", every=False)][: 1 + context.zero_stage]


def _units(tensors: LocalTensors, numel: Integers | None = None, apart: bool = False) -> Buckets:
    """One bucket for each layer, and one for what lies around the layers, or one before and one behind them."""
    whole = not apart and (tensors.layer == 0).any()
    layer = np.where(tensors.layer > tensors.layers, 0, tensors.layer) if whole else tensors.layer
    order = np.argsort(-layer, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(layer[order])) + 1, len(order)).astype(np.int64)
    return _bucketed(tensors, order, ends, (tensors.numel if numel is None else numel)[order])


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributedDataParallel:
    """PyTorch's DistributedDataParallel after its first iteration: flushed once the cap is reached, then one all-reduce.

    References
    ----------
    pytorch/pytorch torch/csrc/distributed/c10d/reducer.cpp, ``compute_bucket_assignment_by_size``
    """

    cap: float = DISTRIBUTED_CAP  # of a bucket [bytes]
    first_cap: float = 1.0 * MiB  # of the first bucket, small so that the exchange starts early [bytes]

    def __post_init__(self) -> None:
        for field in ("cap", "first_cap"):
            real(field, getattr(self, field), 1.0, float(MOST))

    def buckets(self, tensors: LocalTensors, context: Context) -> Buckets:
        """Buckets of the gradients."""
        order = _reversed(tensors)
        numel = tensors.numel[order]
        caps = [math.ceil(cap / context.gradient_bytes) for cap in (self.first_cap, self.cap)]
        return _bucketed(tensors, order, cut_after(numel, caps), numel)

    def calls(self, tensors: LocalTensors, context: Context) -> list[CollectiveCall]:
        """Every call of one step for `tensors`."""
        if context.zero_stage:
            _refuse("DistributedDataParallel", context, "0")
        return [self.buckets(tensors, context).summed()]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Megatron:
    """Megatron-Core's contiguous buffers: a bucket is flushed once it has so many parameters.

    Only the first model chunk of the first pipeline stage has buckets, and only where gradients travel beside the
    backward pass; elsewhere one bucket holds all. Under the distributed optimizer tensors start at multiples of 64
    elements, buckets end at multiples of 128 and of the ranks, and an embedding that two stages share has its own. Those of a
    later chunk are launched as one.

    References
    ----------
    NVIDIA/Megatron-LM megatron/core/distributed/param_and_grad_buffer.py (``partition_buckets``: one group of a chunk without
    buckets), distributed_data_parallel.py
    """

    bucket_parameters: int | None = None  # a bucket's; ``max(40e6, 1e6 * ranks)`` if None

    def __post_init__(self) -> None:
        if self.bucket_parameters is not None:
            positive_int("bucket_parameters", self.bucket_parameters, MOST)

    def buckets(self, tensors: LocalTensors, context: Context) -> Buckets:
        """Buckets of the gradients, and of the weights that are gathered after the step."""
        order, sharded = _reversed(tensors), context.zero_stage > 0
        numel = tensors.numel[order]
        size = _padded(numel, 64) if sharded else numel
        chunk = np.clip((tensors.layer[order] - 1) * context.chunks // max(tensors.layers, 1), 0, context.chunks - 1)
        alone = tensors.shared[order] & sharded
        breaks = np.flatnonzero((np.diff(chunk) != 0) | alone[1:] | alone[:-1]) + 1
        cap = self.bucket_parameters or max(MEGATRON_BUCKET, MEGATRON_BUCKET_PER_RANK * context.ranks)
        ends: list[int] = []
        for start, end in zip([0, *breaks], [*breaks, len(order)], strict=True):
            bucketed = context.overlapped and context.first_stage and chunk[start] == 0
            cuts = cut_after(size[start:end], [cap], numel[start:end]) if bucketed else [end - start]
            ends += [int(start + cut) for cut in cuts]
        made = _bucketed(tensors, order, np.array(ends, dtype=np.int64), size)
        multiple = math.lcm(context.ranks, 128) if sharded else 1
        made = dataclasses.replace(made, elements=_padded(made.elements, multiple))
        return _launched_together(made, chunk[made.ends - 1])

    def calls(self, tensors: LocalTensors, context: Context) -> list[CollectiveCall]:
        """Every call of one step for `tensors`."""
        if context.zero_stage > 1:
            _refuse("Megatron", context, "0 and 1")
        made = self.buckets(tensors, context)
        if not context.zero_stage:
            return [made.summed()]
        return [*_over_copies(made, context, False), made.gathered("after step", every=False)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FullySharded:
    """PyTorch's FSDP with one unit for each layer, and one for what lies around the layers, or two.

    Weights are gathered before each forward pass and, at stage 3, again before each backward pass (but for the outer
    unit, which stays; where embedding and head are units of their own the head stays, and the embedding is gathered again,
    though its backward pass reads no weight); gradients are scattered after each backward pass. Deferred, they are scattered
    once a step, behind the last pass, and weights stay whole from a backward pass on: those of stage 2 are gathered once a step,
    those of stage 3 once a micro-batch, by whichever pass doesn't find them so.

    References
    ----------
    pytorch/pytorch torch/distributed/fsdp, [zhao2023]_ section 3; torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py,
    ``pre_backward``; pytorch/torchtitan torchtitan/distributed/fsdp.py, ``apply_fsdp_to_decoder``
    """

    by_tensor: bool = True  # every tensor is sharded along its rows and padded (FSDP2), or a unit as one flat tensor (FSDP1)
    outer_again: bool = False  # the outer unit is gathered again for the backward pass

    def __post_init__(self) -> None:
        flag("by_tensor", self.by_tensor)
        flag("outer_again", self.outer_again)

    def buckets(self, tensors: LocalTensors, context: Context) -> Buckets:
        """Units, in the order of their backward passes."""
        apart = context.edges_apart and not context.tied
        if self.by_tensor:
            columns = tensors.numel // np.maximum(tensors.rows, 1)
            return _units(tensors, _padded(tensors.rows, context.shard) * columns, apart)
        made = _units(tensors, apart=apart)
        return dataclasses.replace(made, elements=_padded(made.elements, context.shard))

    def calls(self, tensors: LocalTensors, context: Context) -> list[CollectiveCall]:
        """Every call of one step for `tensors`."""
        if context.zero_stage < 2:
            _refuse("FullySharded", context, "2 and 3")
        made = self.buckets(tensors, context)
        every = context.zero_stage == 3 or not context.deferred
        calls = [made.gathered("forward" if every else "after step", slice(None, None, -1), every)]
        if context.zero_stage == 3 and not context.deferred:
            embedding = context.edges_apart and not context.tied
            again = self.outer_again | _inside(made, tensors.layers) | (embedding & (made.layer == 0))
            calls.append(made.gathered("backward", again))
        return calls + _over_copies(made, context, not context.deferred)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeepSpeed:
    """DeepSpeed's engine (stage 0), ZeRO-1, ZeRO-2 and ZeRO-3; bucket sizes in elements.

    A bucket is flushed before a tensor that would take it over `reduce_bucket_size`, and a larger tensor is alone.
    At stages 1 and 2 a flush is one all-reduce of the bucket (so the step moves half as much again as a reduce-scatter
    would), or one reduction for every rank that owns a part of it; after the step the weights are gathered. At stage 3
    a bucket is scattered, weights are gathered ahead of use in groups that have reached `prefetch_bucket_size`, for the
    backward pass again but the last `max_live_parameters`, and tensors below
    `persistence_threshold` stay whole and are gathered after the step, one by one.

    References
    ----------
    deepspeedai/DeepSpeed deepspeed/runtime/zero/stage_1_and_2.py, stage3.py, config.py,
    partitioned_param_coordinator.py; deepspeed/runtime/utils.py
    """

    reduce_bucket_size: int = DEEPSPEED_REDUCED  # reduce_bucket_size, allgather_bucket_size: [elements]
    allgather_bucket_size: int = 500_000_000
    use_multi_rank_bucket_allreduce: bool = True  # one all-reduce a bucket, or one reduction for each destination rank
    # the slices of a tensor above the bucket size are all-reduced as soon as they exceed it, as the code does; else in one call
    split_large_tensors: bool = True
    all_gather_into_tensor: bool = True  # weights come in one call, or in calls of about `allgather_bucket_size`
    overlap_comm: bool = False  # at stage 1: reduce during the backward pass, else after it in the order of registration
    # prefetch_bucket_size, persistence_threshold, max_live_parameters: of stage 3 [elements]
    prefetch_bucket_size: int = DEEPSPEED_PREFETCHED
    persistence_threshold: int = 100_000
    max_live_parameters: int = DEEPSPEED_LIVE
    one_by_one: bool = True  # tensors that stay whole are gathered in a call each; else in one

    def __post_init__(self) -> None:
        for field in ("reduce_bucket_size", "allgather_bucket_size", "prefetch_bucket_size", "persistence_threshold",
                      "max_live_parameters"):  # fmt: skip
            positive_int(field, getattr(self, field), MOST)
        for field in ("use_multi_rank_bucket_allreduce", "split_large_tensors", "all_gather_into_tensor", "overlap_comm",
                      "one_by_one"):  # fmt: skip
            flag(field, getattr(self, field))

    def buckets(self, tensors: LocalTensors, context: Context) -> Buckets:
        """Buckets of the gradients."""
        late = context.zero_stage == 0 or (context.zero_stage == 1 and not self.overlap_comm)
        order = np.arange(len(tensors)) if late else _reversed(tensors)
        numel = tensors.numel[order]
        if context.zero_stage == 0:
            return _bucketed(tensors, order, cut_after(numel, [self.reduce_bucket_size + 1]), numel)
        return _bucketed(tensors, order, cut_before(numel, self.reduce_bucket_size), numel)

    def partition(self, tensors: LocalTensors, context: Context) -> int:
        """Elements that each rank owns at stages 1 and 2, aligned to two."""
        return -(-int(tensors.numel.sum()) // (2 * context.shard)) * 2

    def slices(self, tensors: LocalTensors, context: Context) -> list[Integers]:
        """Elements of each bucket that belong to one rank, for every rank that owns a part of the bucket."""
        made, partition = self.buckets(tensors, context), self.partition(tensors, context)
        position = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(tensors.numel)])
        found = []
        for members in made.members():
            low, high = int(position[members.min()]), int(position[members.max() + 1])
            inside = np.arange(low // partition + 1, -(-high // partition)) * partition
            found.append(np.diff(np.concatenate([[low], inside, [high]])))
        return found

    def calls(self, tensors: LocalTensors, context: Context) -> list[CollectiveCall]:
        """Every call of one step for `tensors`."""
        made = self.buckets(tensors, context)
        if context.zero_stage == 0:
            return [made.summed()]
        if context.zero_stage == 3:
            return self._third(tensors, context, made)
        every = context.zero_stage == 2
        owned, layer = [np.array([size]) for size in made.elements], made.layer
        collective = "all-reduce"
        if not self.use_multi_rank_bucket_allreduce:
            owned, collective = self.slices(tensors, context), "reduce"
        elif self.split_large_tensors and (made.elements > self.reduce_bucket_size).any():
            owned = [self._sliced(one) for one in self.slices(tensors, context)]
        layer = np.repeat(layer, [len(one) for one in owned])
        reduced = CollectiveCall("gradient sync", collective, "all", "gradients", np.concatenate(owned), layer, every)
        gathered = self._gathered(self.partition(tensors, context), context.shard)
        return [reduced, CollectiveCall("after step", "all-gather", "shard", "weights", gathered, 0 * gathered, False)]

    def _sliced(self, slices: Integers) -> Integers:
        ends = cut_after(slices, [self.reduce_bucket_size + 1])
        return np.add.reduceat(slices, np.concatenate([[0], ends[:-1]]))

    def _gathered(self, partition: int, ranks: int) -> Integers:
        """Elements of each gather of the updated weights."""
        pieces = 1 if self.all_gather_into_tensor else max(1, partition * ranks // self.allgather_bucket_size)
        piece = partition // pieces
        piece -= piece % 2
        return np.array([*[piece] * (pieces - 1), partition - piece * (pieces - 1)], dtype=np.int64) * ranks

    def _prefetched(self, tensors: LocalTensors, order: Integers, numel: Integers) -> Buckets:
        """Groups in which weights are gathered that are used in an order."""
        return _bucketed(tensors, order, cut_after(tensors.numel[order], [self.prefetch_bucket_size]), numel[order])

    def _whole(self, tensors: LocalTensors, context: Context) -> NDArray[np.bool_]:
        """Tensors that stay whole from the forward to the backward pass: fetched ahead, none of them is released before."""
        inside = (tensors.layer > 0) & (tensors.layer <= tensors.layers)
        numel = context.among * tensors.numel
        left = numel.sum() - np.cumsum(numel) + numel
        if not context.tied:
            return left <= self.max_live_parameters
        table = ~inside & (tensors.numel == tensors.numel[~inside].max(initial=0))  # the head uses it, too
        left = np.where(table, numel[inside].sum(), left + numel[table].sum())
        return left <= self.max_live_parameters

    def _third(self, tensors: LocalTensors, context: Context, made: Buckets) -> list[CollectiveCall]:
        numel = _padded(tensors.numel, context.shard)
        large = tensors.numel >= self.persistence_threshold
        calls = []
        released = large & ~self._whole(tensors, context)
        for phase, order in (("forward", np.flatnonzero(large)), ("backward", np.flatnonzero(released)[::-1])):
            if len(order):
                calls.append(self._prefetched(tensors, order, numel).gathered(phase))
        if large.any():
            calls += _again(self._prefetched(tensors, np.flatnonzero(large)[::-1], numel), context, tensors.layers)
        scattered = _bucketed(tensors, made.order, made.ends, numel[made.order])
        calls += _over_copies(scattered, context, True)
        if (~large).any():
            kept = numel[~large] if self.one_by_one else np.array([numel[~large].sum()])
            calls.append(CollectiveCall("after step", "all-gather", "shard", "weights", kept, 0 * kept, False))
        return calls


def rule_of(
    name: str, zero_stage: int, bucket: int | None = None, prefetch: int | None = None, overlapped: bool = False
) -> Bucketing:
    """The rule of a name at a stage of ZeRO.

    Parameters
    ----------
    name : one of `costmodel.formulas.bucket_rules.RULES`
    zero_stage : 0 to 3
    bucket : elements of a bucket of gradients; the framework's own if None
    prefetch : elements that are gathered at once at stage 3; the framework's own if None
    overlapped : whether gradients are exchanged beside the backward pass
    """
    if name in ("deepspeed", "deepspeed-2021"):
        usual = DeepSpeed()
        return DeepSpeed(
            reduce_bucket_size=bucket or usual.reduce_bucket_size,
            prefetch_bucket_size=prefetch or usual.prefetch_bucket_size,
            one_by_one=name == "deepspeed", overlap_comm=overlapped,
        )  # fmt: skip
    if name == "nanotron" and zero_stage < 2:
        return WholeGradients()
    if name in ("megatron", "nemo"):
        own = NEMO_BUCKET if name == "nemo" else None
        return Megatron(bucket_parameters=bucket or own) if zero_stage < 2 else FullySharded(by_tensor=False)
    if name == "oneflow" and zero_stage == 0:
        return DistributedDataParallel(cap=ONEFLOW_CAP, first_cap=ONEFLOW_CAP)
    if name in ("fsdp1", "fsdp2", "ddp") and zero_stage != 1:
        return FullySharded(by_tensor=name == "fsdp2") if zero_stage else DistributedDataParallel()
    return OneBucket()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overlap:
    """Buckets beside the backward pass; times count from its start [s]."""

    ready: NDArray[np.float64]  # ready, start, end: of each bucket's exchange
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    backward: float  # end of the backward pass

    @property
    def exchange(self) -> float:
        """Time of all exchanges [s]."""
        return float((self.end - self.start).sum())

    @property
    def exposed(self) -> float:
        """Time of the exchange after the backward pass [s]."""
        return max(float(self.end[-1]) - self.backward, 0.0) if len(self.end) else 0.0


def overlap(ready: ArrayLike, exchange: ArrayLike, backward: float) -> Overlap:
    r"""When the exchange of each bucket starts and ends, one after the other in order.

    .. math:: e_i = \max(r_i, e_{i-1}) + x_i = \max_{k \le i} \left(r_k + \sum_{j=k}^{i} x_j\right)

    Parameters
    ----------
    ready : when each bucket is full [s]
    exchange : time of each bucket's exchange [s]
    backward : time of the backward pass [s]

    Raises
    ------
    InvalidValue
        where there is not one time for each bucket

    Examples
    --------
    >>> round(overlap([0.25, 0.5, 0.75, 1.0], [0.5, 0.5, 0.5, 0.5], 1.0).exposed, 9)
    1.25
    """
    full, times = np.asarray(ready, dtype=float), np.asarray(exchange, dtype=float)
    if full.ndim != 1 or full.shape != times.shape or not (np.isfinite(full).all() and np.isfinite(times).all()):
        raise InvalidValue("exchange", exchange, f"{full.size} finite times, one for each bucket")
    real("backward", backward, 0.0, 1e9)
    total = np.cumsum(times)
    end = total + np.maximum.accumulate(full - (total - times)) if len(times) else total
    return Overlap(ready=full, start=end - times, end=end, backward=float(backward))


def ready_times(layer: Integers, head: float, layers: ArrayLike, embedding: float) -> NDArray[np.float64]:
    """When the backward pass has gone through a layer, for each of `layer` [s].

    Parameters
    ----------
    layer : 0 the embedding, the layers from 1, then the head
    head, embedding : time of their backward passes [s]
    layers : time of each layer's backward pass, first layer first [s]
    """
    backwards = np.concatenate([[embedding], np.asarray(layers, dtype=float), [head]])
    done = np.cumsum(backwards[::-1])[::-1]
    return done[layer]
