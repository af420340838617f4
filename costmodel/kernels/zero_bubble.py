"""The search of an order of passes for given times and memory, after the zero-bubble paper's heuristic."""

from __future__ import annotations

import numpy as np

from costmodel._jit import kernel

ROUNDING = 1e-9
"""Of the limit: what sums of many sizes may be above it."""


@kernel
def put(rank, code, times, sizes, transfer, counts, clock, held, idle, ends, order, length):
    """Run the next pass of a kind on a rank: 0 forward, 1 backward by inputs, 2 backward by weights."""
    number = counts[rank, code]
    begun = clock[rank]
    if code == 0 and rank > 0:
        begun = max(begun, ends[0, rank - 1, number] + transfer)
    if code == 1 and rank < len(clock) - 1:
        begun = max(begun, ends[1, rank + 1, number] + transfer)
    if counts[rank, 0] > 0:
        idle[rank] += begun - clock[rank]
    clock[rank] = begun + times[code, rank]
    ends[code, rank, number] = clock[rank]
    held[rank] += sizes[code, rank]
    counts[rank, code] += 1
    order[rank, length[rank]] = code
    length[rank] += 1


@kernel
def fill(
    rank, until, greedy, times, sizes, transfer, counts, clock, held, idle, ends, order, length
):
    """Put weight passes into the wait until a time: those that fit, and one more where the wait would be the longest.

    With `greedy` also where it would not.
    """
    while counts[rank, 2] < counts[rank, 1] and clock[rank] + times[2, rank] <= until:
        put(rank, 2, times, sizes, transfer, counts, clock, held, idle, ends, order, length)
    waits = counts[rank, 2] < counts[rank, 1] and clock[rank] < until
    if waits and (greedy or until - clock[rank] > idle.max() - idle[rank]):
        put(rank, 2, times, sizes, transfer, counts, clock, held, idle, ends, order, length)


@kernel
def search(
    micro_batches, times, sizes, limit, transfer, early, patient, greedy, order
):
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
    counts = np.zeros((ranks, 3), dtype=np.int64)
    clock, held, idle = np.zeros(ranks), np.zeros(ranks), np.zeros(ranks)
    ends = np.zeros((3, ranks, m))
    length = np.zeros(ranks, dtype=np.int64)
    most = limit * (1.0 + ROUNDING)
    ahead = np.zeros(ranks, dtype=np.int64)
    for r in range(ranks):
        if sizes[0, r] > most[r]:
            return -1.0
        put(r, 0, times, sizes, transfer, counts, clock, held, idle, ends, order, length)
    first = ends[0, ranks - 1, 0] + times[1, ranks - 1]
    for r in range(ranks - 2, -1, -1):
        after, full = clock[r], held[r]
        while counts[r, 0] + ahead[r] < m and full + sizes[0, r] <= most[r]:
            if early and after + times[0, r] > first + transfer:
                break
            if not early and after >= first + transfer:
                break
            full += sizes[0, r]
            after += times[0, r]
            ahead[r] += 1
        first = max(after, first + transfer) + times[1, r]
    for r in range(1, ranks):
        while ahead[r] > 0 and ahead[r] >= ahead[r - 1] and counts[r, 0] + ahead[r] < m:
            ahead[r] -= 1
    for r in range(ranks):
        for _ in range(ahead[r]):
            put(r, 0, times, sizes, transfer, counts, clock, held, idle, ends, order, length)
    for r in range(ranks - 1, -1, -1):
        put(r, 1, times, sizes, transfer, counts, clock, held, idle, ends, order, length)

    for i in range(1, m):
        wanted = np.zeros(ranks, dtype=np.bool_)
        for r in range(ranks):
            if counts[r, 0] >= m:
                continue
            wanted[r] = True
            if patient and r + 1 < ranks and counts[r, 0] >= counts[r + 1, 0] + 2:
                returns = clock[r + 1] + times[0, r + 1] + times[1, r + 1] + transfer
                recycling, full, late = 0.0, held[r] + sizes[0, r], counts[r, 2]
                while full > most[r] and late < counts[r, 1]:
                    recycling += times[2, r]
                    full += sizes[2, r]
                    late += 1
                if clock[r] >= returns:
                    wanted[r] = False
                elif clock[r] + times[0, r] + recycling > returns:
                    wanted[r] = returns - clock[r] > idle.max() - idle[r]
        for r in range(ranks - 2, -1, -1):
            wanted[r] = wanted[r] and wanted[r + 1]
        for r in range(ranks):
            if wanted[r]:
                while held[r] + sizes[0, r] > most[r]:
                    if counts[r, 2] >= counts[r, 1]:
                        return -1.0
                    put(r, 2, times, sizes, transfer, counts, clock, held, idle, ends, order, length)
                if r > 0:
                    fill(
                        r, ends[0, r - 1, counts[r, 0]] + transfer, greedy, times, sizes, transfer, counts, clock, held,
                        idle, ends, order, length,
                    )  # fmt: skip
                put(r, 0, times, sizes, transfer, counts, clock, held, idle, ends, order, length)
        for r in range(ranks - 1, -1, -1):
            if r + 1 < ranks:
                fill(
                    r, ends[1, r + 1, i] + transfer, greedy, times, sizes, transfer, counts, clock, held, idle, ends, order,
                    length,
                )  # fmt: skip
            if r == 0 and counts[r, 0] == m:
                while counts[r, 2] < counts[r, 1]:
                    put(r, 2, times, sizes, transfer, counts, clock, held, idle, ends, order, length)
            put(r, 1, times, sizes, transfer, counts, clock, held, idle, ends, order, length)
    longest = 0.0
    for r in range(ranks):
        while counts[r, 2] < m:
            put(r, 2, times, sizes, transfer, counts, clock, held, idle, ends, order, length)
        longest = max(longest, clock[r] - ends[0, r, 0] + times[0, r])
    return longest
