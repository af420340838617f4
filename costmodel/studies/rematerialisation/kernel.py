"""Which activations to keep: Revolve's binomial schedule, and the best schedule of a chain whose layers differ."""

from __future__ import annotations

import numpy as np

from costmodel.compilation.lazily import kernel, kernel_of

SNAPSHOT, ADVANCE, RESTORE, TURN = 0, 1, 2, 3
"""What Revolve does at a step: keep its state, run forward to another, go back to it, reverse it."""
RECORD = -1
"""A choice of `frontiers`: run the first layer once and keep all that its backward pass needs."""


@kernel_of(lambda steps, snapshots: steps)
def repetitions(steps, snapshots):
    r"""Least :math:`r` for which :math:`\beta(c, r) = \binom{c + r}{c}` steps are enough, and that :math:`\beta`.

    Parameters
    ----------
    steps : :math:`l`, at least 1
    snapshots : :math:`c`, at least 1, that of the first state among them

    References
    ----------
    [griewank2000]_ proposition 1
    """
    repeats, reach = 0, 1
    while reach < steps:
        repeats += 1
        reach = reach * (snapshots + repeats) // repeats
    return repeats, reach


@kernel_of(lambda steps, snapshots: 20 * steps)
def revolve(steps, snapshots):
    """Revolve's actions in order: rows of an action, the step that it starts from and the step that it reaches.

    A turn runs one step forward with all that its reversal needs, and reverses it. A snapshot is free again after
    the turn at its step.

    Parameters
    ----------
    steps : at least 1
    snapshots : at least 1, that of the first state among them

    References
    ----------
    [griewank2000]_ section 3
    """
    actions = np.empty((4 * steps, 3), np.int64)
    first, length, free = np.empty(steps, np.int64), np.empty(steps, np.int64), np.empty(steps, np.int64)
    first[0], length[0], free[0] = 0, steps, snapshots
    waiting, count = 1, 0
    fresh = True  # whether the part on top was only just reached, not come back to
    while waiting > 0:
        top = waiting - 1
        start = first[top]
        if fresh and length[top] > 1:
            actions[count] = (SNAPSHOT, start, start)
            count += 1
        elif not fresh:
            actions[count] = (RESTORE, start, start)
            count += 1
        if length[top] == 1:
            actions[count] = (TURN, start, start + 1)
            count += 1
            waiting -= 1
            fresh = False
            continue
        # both parts must be within reach of what is left to them, the first with one repetition less
        repeats, reach = repetitions(length[top], free[top])
        shorter = reach * repeats // (free[top] + repeats)  # beta(c, r - 1)
        least = shorter * free[top] // (free[top] + repeats - 1)  # beta(c - 1, r - 1)
        cut = min(shorter, length[top] - least)
        actions[count] = (ADVANCE, start, start + cut)
        count += 1
        first[waiting], length[waiting], free[waiting] = start + cut, length[top] - cut, free[top] - 1
        length[top] = cut
        waiting += 1
        fresh = True
    return actions[:count]


@kernel
def _merge(nbytes, times, choices, count, other_bytes, other_times, choice, others, into, tolerance):
    """Points of two frontiers that no other point beats, in `into`; their number."""
    out_bytes, out_times, out_choices = into
    i, j, kept = 0, 0, 0
    while i < count or j < others:
        if j >= others or (i < count and nbytes[i] <= other_bytes[j]):
            held, time, chosen = nbytes[i], times[i], choices[i]
            i += 1
        else:
            held, time, chosen = other_bytes[j], other_times[j], choice
            j += 1
        if kept > 0:
            if time >= out_times[kept - 1] - tolerance:
                continue
            if held == out_bytes[kept - 1]:
                kept -= 1
        out_bytes[kept], out_times[kept], out_choices[kept] = held, time, chosen
        kept += 1
    return kept


@kernel
def _within(nbytes, count, most):
    """The last of some rising numbers that is no more than another; -1 where none is: a search of NumPy's compiles longer."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if nbytes[middle] <= most:
            low = middle + 1
        else:
            high = middle
    return low - 1


@kernel
def _thin(nbytes, times, choices, count, most):
    """At most `most` points of a frontier: the fastest in each of as many equal ranges of bytes, and the ends."""
    if count <= most:
        return count
    low = nbytes[0]
    width = (nbytes[count - 1] - low) / (most - 2)
    kept = 1
    for i in range(1, count):
        if i < count - 1 and (nbytes[i] - low) // width == (nbytes[i + 1] - low) // width:
            continue
        nbytes[kept], times[kept], choices[kept] = nbytes[i], times[i], choices[i]
        kept += 1
    return kept


@kernel
def _join(nbytes, times, a, n, more, b, m, least, time, new_bytes, new_times):
    """Points of doing one part with `more` bytes beside it and then another, of n and m points at a and b; their number."""
    least = max(least, nbytes[a] + more, nbytes[b])
    i, j = 0, 0
    while i < n and nbytes[a + i] + more <= least:
        i += 1
    while j < m and nbytes[b + j] <= least:
        j += 1
    new_bytes[0] = least
    new_times[0] = time + times[a + i - 1] + times[b + j - 1]
    k = 1
    while i < n or j < m:
        if j >= m or (i < n and nbytes[a + i] + more <= nbytes[b + j]):
            new_bytes[k] = nbytes[a + i] + more
            i += 1
        else:
            new_bytes[k] = nbytes[b + j]
            j += 1
        new_times[k] = time + times[a + i - 1] + times[b + j - 1]
        k += 1
    return k


@kernel_of(lambda forward, *_: 50 * len(forward) ** 3)
def frontiers(forward, outputs, saved, gradients, most):
    """Least forward time of every part of a chain at every number of bytes that makes a difference.

    A part from layer s to layer t is done in one of three ways. It records s (runs it once, keeping what its backward
    pass needs) and goes on behind it. Or it runs s to k - 1 keeping only the last output, does k to t, and then s to
    k - 1. Or it does the same keeping the last record, so that k - 1 need not be run again. A part is *ready* where
    the record of t is there already. What is kept stays until its backward pass. Bytes count what lies beside the
    part's input, the gradient of its output included.

    Parameters
    ----------
    forward : time of each layer [s]
    outputs : of each layer [bytes], whole
    saved : record of each layer, its output included [bytes], whole
    gradients : of each layer's output [bytes], whole, with that of the chain's input in front
    most : points kept of a frontier

    Returns
    -------
    start, count : where the points of the part from s to t lie, not ready and ready: indexed [ready, s, t]
    nbytes, times, choices : of the points; bytes rise and times fall; a choice is `RECORD`, or k where the output
        of k - 1 is kept, or k and the number of layers where its record is
    exact : whether no frontier had more points than were kept

    References
    ----------
    [beaumont2019]_ theorem 1, here for all budgets at once, and with records that are kept without their inputs
    """
    layers = len(forward)
    start = np.zeros((2, layers, layers), np.int64)
    count = np.zeros((2, layers, layers), np.int64)
    pool_bytes, pool_times, pool_choices = np.empty(4096, np.int64), np.empty(4096), np.empty(4096, np.int16)
    filled, exact = 0, True
    whole = 0.0
    for layer in range(layers):
        whole += forward[layer]
    tolerance = 1e-12 * whole
    room = 4 * most + 4
    best = (np.empty(room, np.int64), np.empty(room), np.empty(room, np.int16))
    spare = (np.empty(room, np.int64), np.empty(room), np.empty(room, np.int16))
    new_bytes, new_times = np.empty(room, np.int64), np.empty(room)
    for last in range(layers):
        for first in range(last, -1, -1):
            for ready in range(2):
                # the loss, and with it the first gradient, comes after the forward pass
                held = (gradients[last + 1] if last + 1 < layers else 0) + ready * saved[last]
                working = saved[first] + gradients[first + 1] + gradients[first]
                if first == last:
                    best[0][0] = working if ready else max(working, held + saved[first])
                    best[1][0], best[2][0] = (1 - ready) * forward[first], RECORD
                    points = 1
                else:
                    least = max(working, held + saved[first])
                    a, n = start[ready, first + 1, last], count[ready, first + 1, last]
                    for i in range(n):
                        new_bytes[i] = max(least, pool_bytes[a + i] + saved[first])
                        new_times[i] = pool_times[a + i] + forward[first]
                    points = _merge(*best, 0, new_bytes, new_times, RECORD, n, spare, tolerance)
                    best, spare = spare, best
                    time, sweep, before = 0.0, 0, 0
                    for cut in range(first + 1, last + 1):
                        time += forward[cut - 1]
                        for keep in range(2 if cut > first + 1 else 1):
                            kept = saved[cut - 1] if keep else outputs[cut - 1]
                            least = max(sweep, held + before + kept)
                            a, n = start[ready, cut, last], count[ready, cut, last]
                            b, m = start[keep, first, cut - 1], count[keep, first, cut - 1]
                            fastest = time + pool_times[a + n - 1] + pool_times[b + m - 1]
                            lowest = max(least, pool_bytes[a] + kept, pool_bytes[b])
                            place = _within(best[0], points, lowest)
                            if place >= 0 and best[1][place] <= fastest + tolerance:
                                continue
                            k = _join(pool_bytes, pool_times, a, n, kept, b, m, least, time, new_bytes, new_times)
                            points = _merge(*best, points, new_bytes, new_times, cut + keep * layers, k, spare, tolerance)
                            best, spare = spare, best
                            exact = exact and points <= 2 * most
                            points = _thin(*best, points, 2 * most)
                        sweep = max(sweep, held + before + outputs[cut - 1])
                        before = outputs[cut - 1]
                    exact = exact and points <= most
                    points = _thin(*best, points, most)
                while filled + points > len(pool_bytes):
                    many = 2 * len(pool_bytes)
                    more_bytes, more_times, more_choices = np.empty(many, np.int64), np.empty(many), np.empty(many, np.int16)
                    for i in range(filled):
                        more_bytes[i], more_times[i], more_choices[i] = pool_bytes[i], pool_times[i], pool_choices[i]
                    pool_bytes, pool_times, pool_choices = more_bytes, more_times, more_choices
                start[ready, first, last], count[ready, first, last] = filled, points
                for i in range(points):
                    pool_bytes[filled + i], pool_times[filled + i], pool_choices[filled + i] = best[0][i], best[1][i], best[2][i]
                filled += points
    return start, count, pool_bytes[:filled], pool_times[:filled], pool_choices[:filled], exact
