"""PipeDream's dynamic program over the states of a graph of layers.

A state is a set of layers that holds, with every layer, all that it takes outputs from: what lies before a cut.
States are rows of 64-bit words, a bit a layer, sorted so that a state comes after those within it; the first is empty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.compilation.lazily import kernel, kernel_of
from costmodel.formulas.pipeline.pipedream import (
    data_parallel_minibatch,
    handing_on,
    minibatches_in_flight,
    passing_on,
    placed_stage,
    replicated_stage,
    replicated_stage_2018,
    replicated_stage_code,
)

SOSP19, ARXIV2018, REFERENCE, PLACED = 0, 1, 2, 3
"""Codes of the recurrences."""


class States(NamedTuple):
    """What the layers of each state add up to, a state a place."""

    time: NDArray[np.float64]  # forward and backward of one minibatch on one machine [s]
    weights: NDArray[np.float64]  # [bytes]
    held: NDArray[np.float64]  # outputs of all layers, for one minibatch [bytes]
    sent: NDArray[np.float64]  # outputs that cross the cut after the state [bytes]


class KernelLevel(NamedTuple):
    """One level of the network and how stages on it are priced."""

    rule: int  # one of the codes above
    innermost: bool
    machines: int  # components of the level within that one component of this level has
    bandwidth: float  # [bytes/s]
    within: float  # what the published program divides a single stage's exchange by
    compression: float  # of outputs that are sent on; 0: sending is free
    straight: bool  # no replicas
    limited: bool  # whether `memory` is checked
    memory: float  # of one machine [bytes]
    downstream: float  # workers of later stages on outer levels, over `copies`
    copies: float
    spans: NDArray[np.int64]  # workers in one component of each level of links, the innermost first
    links: NDArray[np.float64]  # slowest link within one component of each [bytes/s]
    given: NDArray[np.int64]  # replicas of a stage that ends at so many machines; 0: any, -1: none ends there


def _stages_priced(level: KernelLevel, state: States, rows: int) -> float:
    """Stages that a level's program looks at, from so many start states."""
    most = 1 if level.straight else level.machines
    return len(state.time) ** 2 / 2 * most * (level.machines + 1) / 2 * rows


ONE = np.uint64(1)
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@kernel
def _place(table, states, row):
    """Slot of a row's equal in the hash table of rows, each one more than it is, or of the free place for it."""
    mask = np.uint64(table.size - 1)
    key = np.uint64(0)
    for word in range(states.shape[1]):
        key = (key ^ states[row, word]) * MULTIPLIER
        key ^= key >> np.uint64(32)
    slot = key & mask
    while table[slot] > 0:
        other = table[slot] - 1
        same = True
        for word in range(states.shape[1]):
            same &= states[other, word] == states[row, word]
        if same:
            break
        slot = (slot + ONE) & mask
    return slot


@kernel
def _members(words, members):
    """Fill `members` with the places of the bits that are set; how many there are."""
    count = 0
    for word in range(words.size):
        rest = words[word]
        place = word << 6
        while rest:
            if rest & np.uint64(0xFF) == 0:
                rest >>= np.uint64(8)
                place += 8
                continue
            if rest & ONE:
                members[count] = place
                count += 1
            rest >>= ONE
            place += 1
    return count


@kernel_of(lambda down, direct, takers, quantities, from_first, most: most * 32 * down.shape[1])
def enumerate_states(down, direct, takers, quantities, from_first, most):
    """Every state but the empty one, or none where there are more than `most`.

    Parameters
    ----------
    down : words of each layer and all before it (layers, words)
    direct, takers : words of the layers whose outputs each layer takes, and of those that take its
    quantities : to add up over a state's layers (kinds, layers); the last is the output
    from_first : begin with the first layer, and take further inputs along when a layer needs them, as the published
        program does; else any layer comes next whose inputs are there
    most : states

    Returns
    -------
    tuple
        words (states, words); sums (kinds, states); outputs that layers outside take (states)
    """
    layers, words = down.shape
    size = 64
    while size < 2 * most:
        size *= 2
    table = np.zeros(size, np.int32)
    states = np.empty((most + 2, words), np.uint64)
    edge = np.empty((most + 2, words), np.uint64)  # layers outside that take an output from inside, or none at all
    sums = np.empty((quantities.shape[0], most + 2))
    sent = np.empty(most + 2)
    added, members, near = np.empty(words, np.uint64), np.empty(layers, np.int64), np.empty(layers, np.int64)

    states[0], edge[0], sums[:, 0], sent[0] = 0, 0, 0.0, 0.0
    for layer in range(layers):
        if not np.any(direct[layer]):
            edge[0, layer >> 6] |= ONE << np.uint64(layer & 63)
    if from_first:
        states[0] = down[0]
        edge[0] = takers[0]
        sums[:, 0] = quantities[:, 0]
    table[_place(table, states, 0)] = 1
    count, done = 1, 0
    while done < count:
        outside = _members(edge[done], near)
        added[:] = 0
        for i in range(outside):
            for word in range(words):
                added[word] |= direct[near[i], word] & states[done, word]
        sent[done] = 0.0
        for i in range(_members(added, members)):
            sent[done] += quantities[-1, members[i]]
        for i in range(outside):
            layer = near[i]
            ready = True
            for word in range(words):
                ready &= direct[layer, word] & ~states[done, word] == 0
            if not (ready or from_first):
                continue
            for word in range(words):
                states[count, word] = states[done, word] | down[layer, word]
            slot = _place(table, states, count)
            if table[slot] > 0:
                continue
            if count > most:
                return states[:0], sums[:, :0], sent[:0]
            sums[:, count] = sums[:, done]
            for word in range(words):
                added[word] = down[layer, word] & ~states[done, word]
                edge[count, word] = edge[done, word]
            for k in range(_members(added, members)):
                sums[:, count] += quantities[:, members[k]]
                for word in range(words):
                    edge[count, word] |= takers[members[k], word]
            for word in range(words):
                edge[count, word] &= ~states[count, word]
            count += 1
            table[slot] = count
        done += 1
    low = 0 if from_first else 1
    return states[low:count].copy(), sums[:, low:count].copy(), sent[low:count].copy()


@kernel_of(lambda states, takers, quantities: states.size * 64)
def measure(states, takers, quantities):
    """Sums over each state's layers, and outputs that layers outside take, as `enumerate_states` has them."""
    kinds, layers = quantities.shape
    sums = np.zeros((kinds, states.shape[0]))
    sent = np.zeros(states.shape[0])
    members = np.empty(layers, np.int64)
    for row in range(states.shape[0]):
        for i in range(_members(states[row], members)):
            layer = members[i]
            sums[:, row] += quantities[:, layer]
            for word in range(states.shape[1]):
                if takers[layer, word] & ~states[row, word]:
                    sent[row] += quantities[-1, layer]
                    break
    return sums, sent


@kernel_of(lambda states, groups: states.size * 64)
def expand(states, groups):
    """States of groups of layers as states of layers: the words of the groups that each holds, together."""
    wide = np.zeros((states.shape[0], groups.shape[1]), np.uint64)
    members = np.empty(groups.shape[0], np.int64)
    for row in range(states.shape[0]):
        for i in range(_members(states[row], members)):
            wide[row] |= groups[members[i]]
    return wide


@kernel_of(lambda states, down, takers, output: down.size * len(down) + states.size * len(down))
def boundary_of_program(states, down, takers, output):
    """As `boundary`, as the published program counts: the state's last layers, and all before one of them that has
    a taker which is neither that one nor before it, though it be in the state."""
    layers, words = down.shape
    extra = np.zeros((layers, words), np.uint64)
    for last in range(layers):
        for layer in range(last):
            if down[last, layer >> 6] >> np.uint64(layer & 63) & ONE:
                for word in range(words):
                    if takers[layer, word] & ~down[last, word]:
                        extra[last, layer >> 6] |= ONE << np.uint64(layer & 63)
                        break
    sent = np.zeros(states.shape[0])
    counted = np.zeros(words, np.uint64)
    for row in range(states.shape[0]):
        counted[:] = 0
        for layer in range(layers):
            if states[row, layer >> 6] >> np.uint64(layer & 63) & ONE:
                last = True
                for word in range(words):
                    last &= takers[layer, word] & states[row, word] == 0
                if last:
                    counted[layer >> 6] |= ONE << np.uint64(layer & 63)
                    for word in range(words):
                        counted[word] |= extra[layer, word]
        for layer in range(layers):
            if counted[layer >> 6] >> np.uint64(layer & 63) & ONE:
                sent[row] += output[layer]
    return sent


@kernel_of(lambda states: states.shape[0] * states.size / 2)
def within(states):
    """Whether state i is a proper part of state j (i, j)."""
    count, words = states.shape
    inside = np.zeros((count, count), np.bool_)
    for i in range(count):
        for j in range(i + 1, count):
            part = True
            for word in range(words):
                if states[i, word] & ~states[j, word]:
                    part = False
                    break
            inside[i, j] = part
    return inside


@kernel
def _link(level, first, last):
    """Bandwidth of the slowest link between workers in a row, from one to another [bytes/s]."""
    for place in range(level.spans.size - 1):
        if first // level.spans[place] == last // level.spans[place]:
            return level.links[place]
    return level.links[-1]


@kernel
def _placed(level, compute, weights, sent_in, sent_out, used, replicas):
    """Time per minibatch of a stage on workers in a row, the last of so many, with what its links carry [s].

    What it takes, and what it gives, pass the slowest link from the worker before its first, and to the one after its last.
    """
    first, last = used - replicas, used - 1
    within = _link(level, first, last)
    if replicas == level.machines:
        return data_parallel_minibatch(compute, weights, replicas, within)
    time = placed_stage(compute, weights, replicas, within)
    if first > 0:
        time = max(time, passing_on(sent_in / level.compression, _link(level, first - 1, last)))
    return max(time, passing_on(sent_out / level.compression, _link(level, first, min(used, level.machines - 1))))


@kernel
def _cost(level, compute, weights, held, sent_in, sent_out, used, replicas, alone):
    """Time per minibatch of a stage, the last of those that use `used` machines [s]; inf if it isn't as given or doesn't fit.

    Parameters
    ----------
    level : `KernelLevel`
    compute : of one replica [s]
    weights, held : of one replica [bytes]
    sent_in, sent_out : outputs that it takes and gives; 0 where the pipeline begins or ends [bytes]
    used, replicas : machines
    alone : whether it is its pipeline's only stage so far
    """
    if level.given[used] != 0 and level.given[used] != replicas:
        return np.inf
    rest = level.machines - used
    if level.rule == REFERENCE:
        kept = np.ceil(rest / replicas)
    else:
        kept = minibatches_in_flight(level.downstream + level.copies * rest, level.copies * replicas)
    if level.limited and kept * (weights + held) > level.memory:
        return np.inf
    if level.rule == PLACED:
        return _placed(level, compute, weights, sent_in, sent_out, used, replicas)
    if level.rule == SOSP19:
        time = replicated_stage(compute, weights, replicas, level.bandwidth)
    elif level.rule == ARXIV2018:
        time = replicated_stage_2018(compute, weights, replicas, level.bandwidth)
    else:
        time = replicated_stage_code(compute, weights, replicas, level.bandwidth, level.within if alone else 1.0)
    if not alone and level.compression > 0.0:
        if level.rule == REFERENCE:
            sending = handing_on(max(sent_in, sent_out) / level.compression, replicas, level.bandwidth)
        else:
            sending = handing_on(sent_in / level.compression, 1.0, level.bandwidth)
        time = max(time, sending)
    return time


@kernel
def _improve(best, old, new, count, last):
    """Times of pipelines that one more stage ends, where they are less than those known."""
    for i in range(count):
        time = best[old + i] if best[old + i] > last else last
        best[new + i] = time if time < best[new + i] else best[new + i]


@kernel
def _needed(compute, bound):
    """Machines that so much computing needs at least, to take no longer than a bound."""
    return int(np.ceil(compute / bound - 1e-9))


@kernel_of(lambda level, below, which, state, inside, low, high, bound: _stages_priced(level, state, high - low))
def solve(level, below, which, state, inside, low, high, bound):
    """Least time per minibatch from each start state in [low, high) to each state with each number of machines.

    O(N^2 m^2) for one start state, O(N^3 m^2) for all of them; with one start state and a bound, no more than the share of it in
    which as many machines are before, in and after a stage as their work needs within the bound.

    Parameters
    ----------
    level : `KernelLevel`
    below : the level within: (variants, start states, states)
    which : variant of the level within, by machines used and replicas
    state : `States`
    inside : whether state i is a part of state j (i, j)
    low, high : start states
    bound : what takes longer doesn't count, of one start state and pipelines to the last state: those that take less are found,
        inf for all [s]

    Returns
    -------
    array
        (states, machines + 1, start states)
    """
    time, weights, held, sent = state
    count, machines, rows = time.size, level.machines, high - low
    within = level.innermost and rows == 1 and np.isfinite(bound)
    best = np.empty((count, machines + 1, rows))
    flat = best.reshape(best.size)
    for place in range(best.size):
        flat[place] = np.inf
    most = 1 if level.straight else machines
    varied = level.limited or below.shape[0] > 1 or level.links.size > 1
    for given in level.given:
        varied = varied or given != 0
    for j in range(1, count):
        sent_out = sent[j] if j < count - 1 else 0.0
        for start in range(low, min(high, j)):
            if inside[start, j] or level.rule == REFERENCE:
                weight, hold = weights[j] - weights[start], held[j] - held[start]
                for used in range(1, most + 1):
                    compute = time[j] - time[start] if level.innermost else below[which[used, used], start, j]
                    best[j, used, start - low] = _cost(level, compute, weight, hold, 0.0, sent_out, used, used, True)
        for k in range(low + 1, j):
            if not inside[k, j]:
                continue
            weight, hold = weights[j] - weights[k], held[j] - held[k]
            before, least_replicas, after = 1, 1, 0
            if within:
                before = max(1, _needed(time[k] - time[low], bound))
                least_replicas = max(1, _needed(time[j] - time[k], bound))
                after = _needed(time[count - 1] - time[j], bound)
            for replicas in range(least_replicas, min(machines, most + 1)):
                old = (k * (machines + 1) + before) * rows
                new = (j * (machines + 1) + before + replicas) * rows
                compute = time[j] - time[k] if level.innermost else below[0, k, j]
                last = _cost(level, compute, weight, hold, sent[k], sent_out, machines, replicas, False)
                if rows == 1 and not varied:
                    _improve(flat, old, new, machines - replicas - before + 1 - after, last)
                    continue
                least = compute / replicas if level.innermost else 0.0  # whatever its links and memory are
                for used in range(replicas + before, machines + 1 - after):
                    if varied:
                        if rows == 1 and max(flat[old], least) >= flat[new]:
                            old, new = old + 1, new + 1
                            continue
                        compute = time[j] - time[k] if level.innermost else below[which[used, replicas], k, j]
                        last = _cost(level, compute, weight, hold, sent[k], sent_out, used, replicas, False)
                    _improve(flat, old, new, min(high, k) - low, last)
                    old, new = old + rows, new + rows
    return best


@kernel_of(lambda best, level, below, which, state, inside, start, end: len(state.time) * (level.machines + 1) ** 2)
def trace(best, level, below, which, state, inside, start, end):
    """Stages of the best pipeline between two states, the first one first: (from, to, replicas, machines used up to it).

    Of all that are as fast but for rounding, one of the fewest stages.

    Parameters
    ----------
    best : of `solve` with this start state alone
    level, below, which, state, inside : as for `solve`
    start, end : states
    """
    time, weights, held, sent = state
    machines = level.machines
    most = 1 if level.straight else machines
    enough = best[end, machines, 0] * (1.0 + 1e-12)
    after = np.full((time.size, machines + 1), -1, np.int64)  # the stage after: its place in `reached`
    reached = np.empty((time.size * (machines + 1), 2), np.int64)  # states, with machines used up to them, from the end on
    reached[0] = end, machines
    after[end, machines] = 0
    count, done = 1, 0
    while True:
        j, used = reached[done]
        sent_out = sent[j] if j < time.size - 1 else 0.0
        if used <= most:
            compute = time[j] - time[start] if level.innermost else below[which[used, used], start, j]
            weight, hold = weights[j] - weights[start], held[j] - held[start]
            if _cost(level, compute, weight, hold, 0.0, sent_out, used, used, True) <= enough:
                break
        for k in range(start + 1, j):
            if inside[k, j]:
                weight, hold = weights[j] - weights[k], held[j] - held[k]
                for replicas in range(1, min(used, most + 1)):
                    if after[k, used - replicas] < 0 and best[k, used - replicas, 0] <= enough:
                        compute = time[j] - time[k] if level.innermost else below[which[used, replicas], k, j]
                        if _cost(level, compute, weight, hold, sent[k], sent_out, used, replicas, False) <= enough:
                            after[k, used - replicas] = done
                            reached[count] = k, used - replicas
                            count += 1
        done += 1
    stages = np.empty((machines, 4), np.int64)
    stages[0] = start, j, used, used
    count = 1
    while j != end or used != machines:
        last, total = reached[after[j, used]]
        stages[count] = j, last, total - used, total
        j, used = last, total
        count += 1
    return stages[:count].copy()


@kernel_of(lambda best, level, below, which, state, inside, start, end: len(state.time) * (level.machines + 1) ** 2)
def trace_as_program(best, level, below, which, state, inside, start, end):
    """Stages of the best pipeline between two states, the first one first: (from, to, replicas, machines used up to it).

    As in the published program, what comes before a stage is the best by itself, too, though the slowest stage may
    leave room. Where pipelines tie but for rounding, a single stage is taken before several, and the shortest last one.
    """
    time, weights, held, sent = state
    most = 1 if level.straight else level.machines
    stages = np.empty((level.machines, 4), np.int64)
    place, j, used = level.machines, end, level.machines
    while j != start:
        enough = best[j, used, 0] * (1.0 + 1e-12)
        first, chosen = start, used
        alone = np.inf
        if used <= most:
            compute = time[j] - time[start] if level.innermost else below[which[used, used], start, j]
            alone = _cost(level, compute, weights[j] - weights[start], held[j] - held[start], 0.0, 0.0, used, used, True)
        if alone > enough:
            sent_out = sent[j] if j < time.size - 1 else 0.0
            for k in range(j - 1, start, -1):
                if inside[k, j] and first == start:
                    weight, hold = weights[j] - weights[k], held[j] - held[k]
                    for replicas in range(1, min(used, most + 1)):
                        if best[k, used - replicas, 0] <= enough:
                            compute = time[j] - time[k] if level.innermost else below[which[used, replicas], k, j]
                            if _cost(level, compute, weight, hold, sent[k], sent_out, used, replicas, False) <= enough:
                                first, chosen = k, replicas
                                break
        place -= 1
        stages[place] = first, j, chosen, used
        j = first
        used -= chosen
    return stages[place:].copy()
