"""The search of an order of passes for given times and memory, after the zero-bubble paper's heuristic."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.compilation.jit import helper, kernel

ROUNDING = 1e-9
"""Of the limit: what sums of many sizes may be above it."""
F, B, W = 0, 1, 2
"""Forward, backward by inputs, backward by weights: the codes of passes."""


class ZeroBubblePasses(NamedTuple):
    """What passes take, kinds x ranks."""

    times: NDArray[np.float64]
    sizes: NDArray[np.float64]  # what each adds to the memory held
    most: NDArray[np.float64]  # memory that each rank may hold
    transfer: float  # from rank to rank [s]


class RankState(NamedTuple):
    """How far each rank is."""

    counts: NDArray[np.int64]  # passes run, ranks x kinds
    clock: NDArray[np.float64]
    held: NDArray[np.float64]
    idle: NDArray[np.float64]  # waited since the first forward pass [s]
    ends: NDArray[np.float64]  # of each pass, kinds x ranks x micro-batches
    order: NDArray[np.int64]
    length: NDArray[np.int64]


@helper
def put(passes, state, rank, code):
    """Run the next pass of a kind on a rank."""
    number = state.counts[rank, code]
    begun = state.clock[rank]
    if code == F and rank > 0:
        begun = max(begun, state.ends[F, rank - 1, number] + passes.transfer)
    if code == B and rank < len(state.clock) - 1:
        begun = max(begun, state.ends[B, rank + 1, number] + passes.transfer)
    if state.counts[rank, F] > 0:
        state.idle[rank] += begun - state.clock[rank]
    state.clock[rank] = begun + passes.times[code, rank]
    state.ends[code, rank, number] = state.clock[rank]
    state.held[rank] += passes.sizes[code, rank]
    state.counts[rank, code] += 1
    state.order[rank, state.length[rank]] = code
    state.length[rank] += 1


@helper
def weights_left(state, rank):
    """Whether a weight pass can run on a rank."""
    return state.counts[rank, W] < state.counts[rank, B]


@helper
def lengthens(state, rank, wait):
    """Whether a wait would make a rank the one that waited longest."""
    longest = state.idle[0]
    for idle in state.idle:
        longest = max(longest, idle)
    return wait > longest - state.idle[rank]


@helper
def fill(passes, state, rank, until, greedy):
    """Put weight passes into the wait until a time: those that fit, and one more where the wait would be the longest.

    With `greedy` also where it would not.
    """
    while weights_left(state, rank) and state.clock[rank] + passes.times[W, rank] <= until:
        put(passes, state, rank, W)
    waits = weights_left(state, rank) and state.clock[rank] < until
    if waits and (greedy or lengthens(state, rank, until - state.clock[rank])):
        put(passes, state, rank, W)


@helper
def count_ahead(passes, state, micro_batches, early, ahead):
    """Fill `ahead` with the forward passes that each rank runs before its first backward pass, but for the very first."""
    times, sizes, transfer = passes.times, passes.sizes, passes.transfer
    last = len(ahead) - 1
    first = state.ends[F, last, 0] + times[B, last]
    for r in range(last - 1, -1, -1):
        after, full = state.clock[r], state.held[r]
        while state.counts[r, F] + ahead[r] < micro_batches and full + sizes[F, r] <= passes.most[r]:
            if early and after + times[F, r] > first + transfer:
                break
            if not early and after >= first + transfer:
                break
            full += sizes[F, r]
            after += times[F, r]
            ahead[r] += 1
        first = max(after, first + transfer) + times[B, r]
    for r in range(1, last + 1):
        while ahead[r] > 0 and ahead[r] >= ahead[r - 1] and state.counts[r, F] + ahead[r] < micro_batches:
            ahead[r] -= 1


@helper
def worth_waiting(passes, state, r):
    """Whether the next forward pass of a rank would delay a backward pass so much that it had better wait."""
    if state.counts[r, F] < state.counts[r + 1, F] + 2:
        return False
    returns = state.clock[r + 1] + passes.times[F, r + 1] + passes.times[B, r + 1] + passes.transfer
    if state.clock[r] >= returns:
        return True
    recycling, full, late = 0.0, state.held[r] + passes.sizes[F, r], state.counts[r, W]
    while full > passes.most[r] and late < state.counts[r, B]:
        recycling += passes.times[W, r]
        full += passes.sizes[W, r]
        late += 1
    delays = state.clock[r] + passes.times[F, r] + recycling > returns
    return delays and not lengthens(state, r, returns - state.clock[r])


@helper
def forward(passes, state, r, greedy):
    """Run a rank's next forward pass, weight passes before it to make room and to fill its wait; False without room."""
    while state.held[r] + passes.sizes[F, r] > passes.most[r]:
        if not weights_left(state, r):
            return False
        put(passes, state, r, W)
    if r > 0:
        fill(passes, state, r, state.ends[F, r - 1, state.counts[r, F]] + passes.transfer, greedy)
    put(passes, state, r, F)
    return True


@kernel
def search(micro_batches, times, sizes, limit, transfer, early, patient, greedy, order):
    """Longest span of the order found [s], -1 if the limit can't be kept; `order` holds its passes rank by rank.

    Parameters
    ----------
    micro_batches : of a step
    times : forward, backward by inputs, by weights x ranks [s]
    sizes : what each adds to the memory held, x ranks
    limit : of the memory held, by rank
    transfer : from rank to rank [s]
    early : whether the passes ahead of the first backward pass must end before it could start
    patient : whether a forward pass waits where it would delay a backward pass
    greedy : whether weight passes fill waits even where they lengthen the rank's own time
    order : filled, ranks x 3 micro-batches
    """
    ranks, m = times.shape[1], micro_batches
    passes = ZeroBubblePasses(times, sizes, limit * (1.0 + ROUNDING), transfer)
    state = RankState(
        np.zeros((ranks, 3), dtype=np.int64), np.zeros(ranks), np.zeros(ranks), np.zeros(ranks),
        np.zeros((3, ranks, m)), order, np.zeros(ranks, dtype=np.int64),
    )  # fmt: skip
    for r in range(ranks):
        if sizes[F, r] > passes.most[r]:
            return -1.0
        put(passes, state, r, F)
    ahead = np.zeros(ranks, dtype=np.int64)
    count_ahead(passes, state, m, early, ahead)
    for r in range(ranks):
        for _ in range(ahead[r]):
            put(passes, state, r, F)
    for r in range(ranks - 1, -1, -1):
        put(passes, state, r, B)
    wanted = np.zeros(ranks, dtype=np.bool_)
    for i in range(1, m):
        for r in range(ranks):
            waits = patient and r + 1 < ranks and worth_waiting(passes, state, r)
            wanted[r] = state.counts[r, F] < m and not waits
        for r in range(ranks - 2, -1, -1):
            wanted[r] = wanted[r] and wanted[r + 1]
        for r in range(ranks):
            if wanted[r] and not forward(passes, state, r, greedy):
                return -1.0
        for r in range(ranks - 1, -1, -1):
            if r + 1 < ranks:
                fill(passes, state, r, state.ends[B, r + 1, i] + transfer, greedy)
            while r == 0 and state.counts[r, F] == m and weights_left(state, r):
                put(passes, state, r, W)
            put(passes, state, r, B)
    longest = 0.0
    for r in range(ranks):
        while state.counts[r, W] < m:
            put(passes, state, r, W)
        longest = max(longest, state.clock[r] - state.ends[F, r, 0] + times[F, r])
    return longest
