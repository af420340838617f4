"""Which replicas of a stage do the same at the same time, which exchange with each other, and how long each one works."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from costmodel.description.dimensions import DIMENSIONS
from costmodel.description.schedule import BACKWARD
from costmodel.evaluation.estimation import Estimate
from costmodel.formulas.network import communication
from costmodel.simulation.played_step import STREAMS, Floats, Integers
from costmodel.simulation.programs import Programs
from costmodel.text.checks import mapping, real, whole


class Replicas(NamedTuple):
    """Ranks of a stage that keep step of themselves, `count` times; which of them take part in what together."""

    many: int  # how many
    of_rank: Integers  # pipeline rank and replica of each GPU, GPUs x 2
    of_copy: Integers  # replica of each data-parallel rank
    rows: dict[tuple[str, str], int]  # of each group of the ledger and what a call goes over, the row of `labels`
    labels: Integers  # rows x replicas, the same number for replicas that exchange with each other


def _joined(left: Integers, right: Integers) -> Integers:
    """Numbers of the connected parts of a graph between two kinds of nodes, for each node on the left."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    many, others = int(left.max()) + 1, int(right.max()) + 1
    edges = coo_array((np.ones(len(left)), (left, many + right)), shape=(many + others,) * 2)
    _, labels = connected_components(edges, directed=False)
    return np.unique(labels[:many], return_inverse=True)[1]


def replicas_of(result: Estimate, symmetric: bool) -> Replicas:
    """The replicas of each stage: ranks that share tensor, context or expert groups wait for each other in every layer."""
    plan = result.plan
    numbers = plan.numbers(result.framework, result.model.layers)
    over = [(group, what) for group in ("data", "expert data") for what in ("all", "shard", "copies")]
    rows = {pair: 1 + place for place, pair in enumerate(over)}
    degrees = {one.column: int(getattr(plan, one.field)) for one in DIMENSIONS if one.splits_gpus}
    shape = [degrees[name] for name in plan.rank_order]
    places = dict(zip(plan.rank_order, np.unravel_index(np.arange(plan.gpus), shape, order="F"), strict=True))
    stage, copy = places["pipeline"], places["data"]
    if symmetric:
        same = np.zeros(plan.copies, dtype=np.int64)
        of_rank = np.stack([stage, 0 * stage], axis=1)
        return Replicas(1, of_rank, same, rows, np.zeros((1 + len(over), 1), dtype=np.int64))
    inside = stage == 0
    copies = copy[inside]
    local = np.arange(len(copies))
    block = round(numbers.expert * numbers.expert_tensor)
    of_copy = _joined(copies, local // block)
    replica = of_copy[copies]
    inner, outer = sorted(("context", "data"), key=plan.rank_order.index)
    along = (places[outer] * degrees[inner] + places[inner])[inside]
    count = int(of_copy.max()) + 1
    labels = [np.arange(count)]
    for group, what in over:
        ranks = plan.copies * plan.context_parallel if group == "data" else round(communication.expert_ranks(numbers))
        place, apart = (along, 0 * local) if group == "data" else (local // block, local % block)
        shard = round(communication.shard_group_size(float(ranks), numbers))
        part = {"all": 0 * place, "shard": place // shard, "copies": place % shard}[what]
        labels.append(_joined(replica, apart * ranks + part))
    return Replicas(count, np.stack([stage, of_copy[copy]], axis=1), of_copy, rows, np.stack(labels))


def slowness(replicas: Replicas, stages: int, slow_ranks: Mapping[int, float] | None) -> Floats:
    """Factor on the compute of each stage and replica: that of its slowest rank."""
    factor = np.ones((stages, replicas.many))
    touched: dict[tuple[int, int], list[float]] = {}
    for rank, times in mapping("slow_ranks", {} if slow_ranks is None else slow_ranks).items():
        number = whole("a rank of slow_ranks", rank, len(replicas.of_rank) - 1)
        touched.setdefault(tuple(replicas.of_rank[number].tolist()), []).append(real(f"slow_ranks[{rank}]", times, 1.0, 1e6))
    for place, values in touched.items():
        factor[place] = max(values)
    return factor


def durations(programs: Programs, replicas: Replicas, factor: Floats, jitter: float, seed: int) -> Floats:
    """Time of each replica's work by itself, replicas x entries [s]."""
    lines, line = programs.lines, programs.line
    made = np.empty((replicas.many, len(line)))
    made[:] = lines.duration[line]
    if not (jitter or (factor != 1.0).any()):
        return made
    passes = np.flatnonzero(lines.kind[line] <= BACKWARD)
    stage = np.repeat(np.arange(len(factor)), np.diff(programs.offsets))[passes]
    scale = factor[stage].T
    if jitter:
        draws = programs.draw
        drawn = np.random.default_rng(seed).standard_normal((len(replicas.of_copy), int(draws.max()) + 1))
        slowest = np.full((replicas.many, drawn.shape[1]), -np.inf)
        np.maximum.at(slowest, replicas.of_copy, drawn)
        scale = scale * np.exp(jitter * slowest - 0.5 * jitter**2)[:, draws[passes]]
    made[:, passes] += (scale - 1.0) * (lines.duration - lines.exchange - lines.host)[line[passes]]
    return made


def instances_of(programs: Programs, labels: Integers) -> tuple[Integers, Integers, Integers, Integers, Integers]:
    """Instance of each transfer and replica; transfer, members, first member and receiver of each instance."""
    moves, move = programs.moves, programs.move
    count, rows = labels.shape[1], moves.row[move]
    groups = labels.max(1) + 1
    first = np.concatenate([[0], np.cumsum(groups[rows])]).astype(np.int64)
    number = first[:-1, None] + labels[rows]
    of = np.repeat(np.arange(len(rows)), groups[rows])
    pair = (moves.stream == STREAMS.index("embedding"))[move]
    stage, other = moves.stage[move], moves.other[move]
    sizes = np.bincount(number.ravel(), minlength=int(first[-1])) * (1 + pair[of])
    places = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rank = stage[:, None] * count + np.arange(count)
    partner = other[:, None] * count + np.arange(count)
    instances = np.concatenate([number.ravel(), number[pair].ravel()])
    order = np.argsort(instances, kind="stable")
    members = np.concatenate([rank.ravel(), partner[pair].ravel()])[order].astype(np.int64)
    receiver = np.full(len(of), -1)
    receives = (other >= 0) & ~pair
    receiver[number[receives]] = partner[receives]
    return number, of, members, places, receiver
