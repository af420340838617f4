"""Transformers as chains of layers that weigh differently, and the split over stages that evens them out."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from costmodel.catalogue.asking import ModelLike, ask, asked
from costmodel.catalogue.clusters import ClusterLike
from costmodel.description.framework import Framework
from costmodel.description.layers import ChainLayer, LayerChain
from costmodel.description.plan import Plan
from costmodel.formulas.network import communication
from costmodel.formulas.pipeline import layout
from costmodel.formulas.pipeline.layout import micro_batches
from costmodel.formulas.quantities import ModelNumbers
from costmodel.formulas.stage import stage_pass
from costmodel.formulas.transformer import activations, memory
from costmodel.formulas.transformer.parameters import of_kind
from costmodel.studies.partitioning.pipedream import partition
from costmodel.text.checks import kind
from costmodel.text.errors import IllegalPlan
from costmodel.text.results import brief

SENDING_FREE = 1e15
"""Bandwidth at which handing on doesn't count: it hides, or is priced apart from the stage [bytes/s]."""


def transformer_chain(
    model: ModelLike, cluster: ClusterLike, plan: Plan, framework: Framework | str = "megatron-core"
) -> LayerChain:
    """A transformer as one rank's pipeline sees it: embedding, layers, prediction modules, head, on one micro-batch.

    Times are those by the constants: what own runs say of a plan lengthens every part alike.

    Parameters
    ----------
    model, cluster, plan, framework : as for `estimate`

    Returns
    -------
    LayerChain
        times with what stays exposed of each layer's exchange; bytes of hidden states, weights and kept activations on
        one rank

    Raises
    ------
    InvalidValue, IllegalPlan
        as `estimate` does

    Assumes that dense layers come before those with experts, as in DeepSeek-V3; that a prediction module is a layer
    of the last kind and a pass through the head.

    Examples
    --------
    >>> from costmodel import load_cluster, load_model
    >>> plan = Plan(global_batch=64, seq_len=4096, tensor_parallel=8, pipeline_parallel=8)
    >>> chain = transformer_chain(load_model("llama3-70b"), load_cluster("dgx-h100", gpus=64), plan)
    >>> len(chain.layers), [layer.name for layer in chain.layers[:2]], chain.layers[-1].name
    (82, ['embedding', 'layer 0'], 'head')
    """
    kind("plan", plan, Plan, "Plan(...)")
    said = asked(model, cluster, plan, framework, {})
    model, question = said.model, ask(said.model, said.cluster, said.framework)
    plan = question.accepted(plan)
    shape, settings, degrees, network, software, device = question.inputs(plan)

    _, sent = communication.boundary(shape, settings, degrees, network, software)

    def part(model: ModelNumbers, layers: float, first: float, last: float) -> tuple[float, float, float]:
        """Forward and backward time of some layers, an embedding or a head, and the bytes of their weights."""
        forward, data, weight = stage_pass(model, settings, degrees, network, software, device, layers, first, last)
        experts = layers * model.experts.layers / model.layers
        weights = settings.widths.parameter * sum(memory.stage_parameters(model, degrees, layers, experts, first, last))
        return float(forward), float(data + weight), float(weights)

    def chained(name: str, costs: tuple[float, float, float], kept: float, output: float = sent) -> ChainLayer:
        forward, backward, weights = costs
        return ChainLayer(
            name=name, forward=forward, backward=backward, output_bytes=float(output), parameter_bytes=weights,
            saved_bytes=float(max(kept, output)),
        )  # fmt: skip

    dense, routed = of_kind(shape, 0.0), of_kind(shape, 1.0)
    bare = shape._replace(prediction_layers=0.0)
    head = part(bare, 0.0, 0.0, 1.0)
    kinds = [routed if model.has_experts(number) else dense for number in range(model.layers)]
    costs = {
        kind: (part(kind, 1.0, 0.0, 0.0), activations.kept_activations(kind, settings, degrees, software)) for kind in set(kinds)
    }
    layers = [chained("embedding", part(shape, 0.0, 1.0, 0.0), 0.0)]
    layers += [chained(f"layer {i}", *costs[kind]) for i, kind in enumerate(kinds)]
    if model.prediction_layers:
        module = routed if model.expert_layers else dense
        beside = part(module._replace(prediction_layers=1.0), 0.0, 0.0, 1.0)
        alone = beside[0] - head[0], beside[1] - head[1], beside[2] - head[2]
        kept = activations.kept_activations(module, settings, degrees, software) + memory.logits(bare, settings, degrees, 1.0)
        layers += [chained(f"prediction {i}", alone, kept) for i in range(model.prediction_layers)]
    layers.append(chained("head", head, memory.logits(bare, settings, degrees, 1.0), 0.0))
    return LayerChain(name=model.name, layers=layers, minibatch=plan.micro_batch)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageSplit:
    """Layers dealt to the model chunks of a pipeline."""

    chunks: tuple[tuple[str, ...], ...]  # names of the layers of each chunk, in the order in which a micro-batch passes them
    stages: int  # pipeline ranks; rank r runs chunks r, r + stages, ...
    times: tuple[float, ...]  # of all its chunks on one micro-batch, by rank [s]
    even_times: tuple[float, ...]  # the same where every chunk has as many layers, as the schedule's closed forms assume [s]
    micro_batches: int  # of a step

    __repr__ = brief

    @property
    def layers(self) -> tuple[int, ...]:
        """Transformer layers and prediction modules of each chunk: what a framework's layout option takes."""
        return tuple(sum(name not in ("embedding", "head") for name in chunk) for chunk in self.chunks)

    @property
    def step_time(self) -> float:
        """Seconds in which the slowest rank works through a step's micro-batches: the step without its bubble."""
        return self.micro_batches * max(self.times)

    @property
    def gain(self) -> float:
        """How much longer the even split takes, as a share."""
        return max(self.even_times) / max(self.times) - 1.0

    @property
    def bound(self) -> float:
        """Seconds a step that no split of these layers can beat: all ranks equally busy."""
        return self.micro_batches * sum(self.times) / self.stages


def balanced_stages(
    model: ModelLike, cluster: ClusterLike, plan: Plan, framework: Framework | str = "megatron-core"
) -> StageSplit:
    """The split of a transformer's layers over the plan's stages that keeps the slowest stage fastest.

    PipeDream's dynamic program without replicas makes the slowest chunk fastest, which with one chunk a rank is the
    best there is. From there, a layer is moved from a chunk to another as long as that makes the slowest ranks faster.
    With several chunks a rank that is the best where layers are alike but for the first and the last, and off by no
    more than the difference of two layers otherwise.

    Parameters
    ----------
    model, cluster, plan, framework : as for `estimate`; `plan` says how many stages, and chunks on each

    Returns
    -------
    StageSplit

    Raises
    ------
    InvalidValue, IllegalPlan
        as `estimate` does, and where there are more chunks than layers

    Examples
    --------
    >>> from costmodel import load_cluster, load_model
    >>> plan = Plan(global_batch=256, seq_len=4096, tensor_parallel=4, pipeline_parallel=8)
    >>> split = balanced_stages(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=32), plan)
    >>> split.layers, split.gain > 0.05
    ((4, 4, 4, 4, 4, 4, 5, 3), True)
    """
    kind("plan", plan, Plan, "Plan(...)")
    said = asked(model, cluster, plan, framework, {})
    chain = transformer_chain(*said)
    shape, settings, degrees, *_ = ask(said.model, said.cluster, said.framework).inputs(plan)
    ranks, count = plan.pipeline_parallel, plan.pipeline_parallel * plan.virtual_stages
    if count > len(chain.layers):
        raise IllegalPlan("pipeline_layers", f"{count} chunks for the {len(chain.layers)} layers of {chain.name!r}")
    time = [each.forward + each.backward for each in chain.layers]
    even = _even_ends([int(n) for n in layout.stage_layers(shape, settings, degrees)], plan, len(time))
    found = partition(chain, [count], [SENDING_FREE], straight=True)
    ends = list(itertools.accumulate(len(stage.layers) for stage in found.pipeline))
    ends = min(_improved(time, even, ranks), _improved(time, ends, ranks), key=lambda e: _ordered(time, e, ranks))
    return StageSplit(
        chunks=tuple(tuple(each.name for each in chain.layers[a:b]) for a, b in zip([0, *ends], ends, strict=False)),
        stages=ranks, times=_rank_times(time, ends, ranks), even_times=_rank_times(time, even, ranks),
        micro_batches=int(micro_batches(settings, degrees)),
    )  # fmt: skip


def _even_ends(shares: Sequence[int], plan: Plan, count: int) -> list[int]:
    """Where chunks end that have equal shares of the layers, but for those that the first and the last rank lack."""
    first, middle, last = shares
    ranks, chunks = plan.pipeline_parallel, plan.virtual_stages
    full = -(-max(shares) // chunks)
    sizes = [full] * (ranks * chunks)
    if chunks == 1:
        sizes = [first, *[middle] * (ranks - 2), last][:ranks] if ranks > 1 else [first]
    else:
        sizes[0] -= full * chunks - first
        sizes[-1] -= full * chunks - last
    sizes[0] += 1
    ends = list(itertools.accumulate(sizes))
    ends[-1] = count
    return ends


def _rank_times(time: Sequence[float], ends: Sequence[int], ranks: int) -> tuple[float, ...]:
    chunks = [sum(time[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
    return tuple(sum(chunks[rank::ranks]) for rank in range(ranks))


def _ordered(time: Sequence[float], ends: Sequence[int], ranks: int) -> list[float]:
    """Times of the ranks, the slowest first: what a better split has less of."""
    return sorted(_rank_times(time, ends, ranks), reverse=True)


def _improved(time: Sequence[float], ends: Sequence[int], ranks: int) -> list[int]:
    """Ends of chunks, each layer moved from one chunk to another as long as that makes the slowest ranks faster."""
    best, now = _ordered(time, ends, ranks), list(ends)
    while True:
        moves = []
        for low, high in itertools.combinations_with_replacement(range(len(now) - 1), 2):
            for step in (-1, 1):
                moved = [*now[:low], *(end + step for end in now[low : high + 1]), *now[high + 1 :]]
                if all(a < b for a, b in zip([0, *moved], moved, strict=False)):
                    moves.append((_ordered(time, moved, ranks), moved))
        order, moved = min(moves, default=(best, now))
        if not order < best or order[0] > best[0] * (1.0 + 1e-12):
            return now
        best, now = order, moved
