r"""Averaging gradients among unlike peers: a linear program over who averages how much, and a rule for who computes.

In a step each of :math:`C` peers that compute sends every peer that averages its part of the gradient, and gets the
average of that part back. Peer :math:`i` averages the part :math:`y_i / x`, at :math:`x` averages a second. What goes
through its connection each way, in whole gradients a second, is then

.. math::
    x + (C - 2) y_i \quad\text{if it computes}, \qquad C y_i \quad\text{if it only averages},

at most its upload and its download, and :math:`\sum_i y_i = x`. Rates here are whole gradients a second.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array, diags_array, hstack, vstack

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.float64 | np.int64]


def _maximised(matrix: csr_array, limits: Floats, total: csr_array, bounds: Floats) -> Floats:
    """Variables that make the last one largest, within the limits and with `total` of them 0."""
    cost = np.zeros(matrix.shape[1])
    cost[-1] = -1.0
    scale = float(limits.max()) or 1.0
    found = linprog(cost, A_ub=matrix, b_ub=limits / scale, A_eq=total, b_eq=[0.0], bounds=bounds, method="highs")
    if not found.success:
        raise ArithmeticError(f"HiGHS gave no answer: {found.message}")
    return np.asarray(found.x) * scale


def averaging(upload: Floats, download: Floats, computes: Flags, averages: Flags) -> tuple[float, Floats]:
    """The fastest averaging without limits between pairs, as a program with one variable a peer.

    Parameters
    ----------
    upload, download : of each peer [gradients/s]
    computes : which have a gradient, at least two of them
    averages : which can average for others

    Returns
    -------
    tuple[float, Floats]
        averages a second, and the share that each peer averages (zeros where there can be no averaging)
    """
    peers, computing = len(upload), int(computes.sum())
    each = diags_array(computing - 2.0 * computes)
    one_way = hstack([each, csr_array(computes[:, None].astype(float))])
    total = csr_array(np.append(np.ones(peers), -1.0)[None, :])
    bounds = np.zeros((peers + 1, 2))
    bounds[:peers, 1] = np.where(averages, np.inf, 0.0)
    bounds[-1, 1] = np.inf
    found = _maximised(vstack([one_way, one_way]).tocsr(), np.concatenate([upload, download]), total, bounds)
    rate = float(found[-1])
    return rate, np.maximum(found[:-1], 0.0) / rate if rate > 0.0 else np.zeros(peers)


def averaging_by_flows(
    upload: Floats, download: Floats, limits: Floats, computes: Flags, averages: Flags
) -> tuple[float, Floats]:
    r"""The fastest averaging with limits between pairs, as a program over every flow between two peers.

    Flows :math:`a_{ki}` (a part of `k`'s gradient to `i`) and :math:`g_{ij}` (an averaged part from `i` to `j`) are at
    least the rate :math:`r_i` at which `i` averages; :math:`\sum_i r_i = x`.

    Parameters
    ----------
    upload, download : of each peer [gradients/s]
    limits : from each peer (row) to each other [gradients/s]; infinite where there is none
    computes : which have a gradient, at least two of them
    averages : which can average for others

    Returns
    -------
    tuple[float, Floats]
        averages a second, and the share that each peer averages
    """
    peers = len(upload)
    senders, averagers = np.flatnonzero(computes).tolist(), np.flatnonzero(averages).tolist()
    gradients = [(k, i) for k in senders for i in averagers if k != i]
    results = [(i, k) for k, i in gradients]
    flows = gradients + results
    first, rate = peers, peers + len(flows)  # variables: averaged by each peer, flows, averages a second
    rows: list[tuple[int, int, float]] = []
    limit: list[float] = []

    def at_most(terms: Sequence[tuple[int, float]], bound: float) -> None:
        rows.extend((len(limit), column, value) for column, value in terms)
        limit.append(bound)

    for flow, (source, target) in enumerate(flows):
        averager = target if flow < len(gradients) else source
        at_most([(averager, 1.0), (first + flow, -1.0)], 0.0)
    for peer in range(peers):
        at_most([(first + flow, 1.0) for flow, (source, _) in enumerate(flows) if source == peer], upload[peer])
        at_most([(first + flow, 1.0) for flow, (_, target) in enumerate(flows) if target == peer], download[peer])
    for source, target in np.argwhere(np.isfinite(limits)).tolist():
        shared = [(first + flow, 1.0) for flow, pair in enumerate(flows) if pair == (source, target)]
        if shared:
            at_most(shared, float(limits[source, target]))
    row, column, value = (np.array(part) for part in zip(*rows, strict=True))
    matrix = coo_array((value, (row, column)), shape=(len(limit), rate + 1)).tocsr()
    total = csr_array(np.concatenate([np.ones(peers), np.zeros(len(flows)), [-1.0]])[None, :])
    bounds = np.zeros((rate + 1, 2))
    bounds[:, 1] = np.inf
    bounds[:peers, 1] = np.where(averages, np.inf, 0.0)
    found = _maximised(matrix, np.array(limit), total, bounds)
    best = float(found[-1])
    return best, np.maximum(found[:peers], 0.0) / best if best > 0.0 else np.zeros(peers)


def averages_a_second(bandwidth: Floats, computes: Flags, averages: Flags) -> float:
    """The value of `averaging`'s program without solving it: its limits are linear in the rate.

    Parameters
    ----------
    bandwidth : lesser of each peer's upload and download [gradients/s]
    computes, averages : which peers do
    """
    computing = int(computes.sum())
    if computing < 2:
        return np.inf
    alone = float(bandwidth[averages & ~computes].sum())
    both = averages & computes
    slowest = float(bandwidth[computes].min())
    return float(_rate(computing, slowest, float(bandwidth[both].sum()), int(both.sum()), alone))


def _rate(
    computing: Numbers | float, slowest: Floats | float, both_bandwidth: Floats | float, both: Numbers | float,
    alone_bandwidth: Floats | float,
) -> Floats:  # fmt: skip
    """Averages a second of sets of peers, by their sums: numbers or columns.

    Computing averagers have y_i <= (b_i - x) / (C - 2), the others y_i <= b_i / C; their sum has to reach x. Two
    computing peers of which one averages have no more to do than to send each other what they have.
    """
    others = np.maximum(computing - 2.0, 1e-12)
    total = (both_bandwidth / others + alone_bandwidth / np.maximum(computing, 1)) / (1.0 + both / others)
    return np.where(computing < 2, np.inf, np.minimum(slowest, total))


def _step_times(speed: Floats | float, rate: Floats | float, batch: float, delayed: bool) -> Floats:
    """Time of a step of sets of peers; infinite where nothing is computed or averaged."""
    with np.errstate(divide="ignore"):
        computing, exchanging = batch / np.asarray(speed, float), 1.0 / np.asarray(rate, float)
    return np.maximum(computing, exchanging) if delayed else computing + exchanging


def who_computes(
    speed: Floats, bandwidth: Floats, averages: Flags, batch: float, delayed: bool, most: int = 1
) -> list[tuple[float, Flags]]:
    """Sets of computing peers that make a step shortest without limits between pairs, best first.

    Every peer that computes has to send and receive a whole gradient in a step, so peers with too little bandwidth are
    left out; of the others the fastest compute, and the rest average. All pairs of a least bandwidth and a number of
    peers are tried; then peers are put in or taken out one by one while that helps.

    Parameters
    ----------
    speed : of each peer [samples/s]
    bandwidth : lesser of each peer's upload and download [gradients/s]
    averages : which can average for others
    batch : samples of a step
    delayed : whether averaging overlaps the computing of the next step
    most : sets to return

    Returns
    -------
    list[tuple[float, Flags]]
        step time [s] and which peers compute
    """
    able = np.flatnonzero(speed > 0.0)
    fastest = able[np.lexsort((-bandwidth[able], -speed[able]))]
    everyone = float(bandwidth[averages].sum())
    found: list[tuple[float, int, float]] = []
    for least in np.unique(bandwidth[able]):
        chosen = fastest[bandwidth[fastest] >= least]
        computing = np.arange(1, len(chosen) + 1)
        both = np.cumsum(averages[chosen])
        both_bandwidth = np.cumsum(np.where(averages[chosen], bandwidth[chosen], 0.0))
        slowest = np.minimum.accumulate(bandwidth[chosen])
        rate = _rate(computing, slowest, both_bandwidth, both, np.maximum(everyone - both_bandwidth, 0.0))
        times = _step_times(np.cumsum(speed[chosen]), rate, batch, delayed)
        kept = np.argsort(times, kind="stable")[:most]
        found.extend((float(times[i]), int(computing[i]), float(least)) for i in kept)
    sets: dict[bytes, tuple[float, Flags]] = {}
    for _, count, least in heapq.nsmallest(4 * most, found):
        computes = np.zeros(len(speed), bool)
        computes[fastest[bandwidth[fastest] >= least][:count]] = True
        time, computes = _improved(computes, speed, bandwidth, averages, batch, delayed)
        sets[computes.tobytes()] = time, computes
    return sorted(sets.values(), key=lambda entry: entry[0])[:most]


def _improved(
    computes: Flags, speed: Floats, bandwidth: Floats, averages: Flags, batch: float, delayed: bool
) -> tuple[float, Flags]:
    """A set of computing peers, changed one peer at a time while a step gets shorter."""
    able = speed > 0.0
    everyone = float(bandwidth[averages].sum())
    best = float(_step_times(speed[computes].sum(), averages_a_second(bandwidth, computes, averages), batch, delayed))
    for _ in range(len(speed)):
        sign = np.where(computes, -1.0, 1.0)
        count = computes.sum() + sign
        both = (averages & computes).sum() + sign * averages
        both_bandwidth = bandwidth[averages & computes].sum() + sign * np.where(averages, bandwidth, 0.0)
        two = np.sort(bandwidth[computes])[:2]
        lowest, second = two[0], two[1] if len(two) > 1 else np.inf
        slowest = np.where(computes, np.where(bandwidth > lowest, lowest, second), np.minimum(bandwidth, lowest))
        rate = _rate(count, slowest, both_bandwidth, both, np.maximum(everyone - both_bandwidth, 0.0))
        allowed = able & (count > 0)
        together = np.where(allowed, speed[computes].sum() + sign * speed, 0.0)
        times = np.where(allowed, _step_times(together, rate, batch, delayed), np.inf)
        index = int(np.argmin(times))
        if not times[index] < best * (1.0 - 1e-12):
            break
        best = float(times[index])
        computes = computes.copy()
        computes[index] = not computes[index]
    return best, computes


def integer_split(shares: Floats, units: int) -> NDArray[np.int64]:
    """Whole units in proportion to shares, by Hagenbach-Bischoff: quotas rounded down, then the largest quotients.

    Parameters
    ----------
    shares : at least 0, not all 0
    units : to split

    References
    ----------
    learning-at-home/hivemind hivemind/averaging/load_balancing.py does the same

    Examples
    --------
    >>> integer_split(np.array([0.5, 0.3, 0.2]), 11).tolist()
    [6, 3, 2]
    """
    split = np.floor(units * (shares / shares.sum())).astype(np.int64)
    split = np.minimum(split, units)
    given = zip(shares.tolist(), split.tolist(), strict=True)
    quotients = [(-share / (already + 1), peer) for peer, (share, already) in enumerate(given) if share > 0.0]
    heapq.heapify(quotients)
    for _ in range(units - int(split.sum())):
        _, peer = heapq.heappop(quotients)
        split[peer] += 1
        heapq.heappush(quotients, (-float(shares[peer]) / (int(split[peer]) + 1), peer))
    return split
