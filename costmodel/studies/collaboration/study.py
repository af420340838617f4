"""Which peers of a collaboration compute, which average, and how fast they train together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.studies.collaboration import solver as solver
from costmodel.studies.collaboration.peers import Peer
from costmodel.text.checks import flag, kind, listing, mapping, plain, positive_int, real, whole
from costmodel.text.errors import InvalidValue, NotModelled
from costmodel.text.results import brief
from costmodel.text.units import format_seconds

MOST_PEERS = 100_000
MOST_PAIRED_PEERS = 40
"""Peers up to which limits between pairs are taken: the program has a variable for every flow between two."""
SETS_TRIED = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contribution:
    """What one peer does in a step."""

    peer: Peer  # which
    computes: bool  # whether it computes gradients
    samples: float  # whose gradients it accumulates in a step, on average
    share: float  # of the parameters that it averages
    elements: int  # of the parameters that it averages, a whole number
    upload_bytes: float  # upload_bytes, download_bytes: that go through its connection in a step
    download_bytes: float

    __repr__ = brief


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collaboration:
    """How peers train together."""

    contributions: tuple[Contribution, ...]  # one for each peer, in the order given
    target_batch: float  # samples of a step
    step_time: float  # from one update of the parameters to the next [s]
    compute_time: float  # in which the peers accumulate the target batch [s]
    averaging_time: float  # in which they average their gradients [s]
    averaging_bound: float  # the same, if parameters could be split without rounding and into any small parts [s]
    staleness: int  # steps by which gradients are late: 1 with delayed updates, else 0
    bottleneck: str  # ``"compute"`` or ``"averaging"``
    why: str  # in one line

    __repr__ = brief

    @property
    def throughput(self) -> float:
        """Samples a second."""
        return self.target_batch / self.step_time

    @property
    def computing(self) -> tuple[str, ...]:
        """Names of the peers that compute."""
        return tuple(entry.peer.name for entry in self.contributions if entry.computes)

    @property
    def averaging(self) -> tuple[str, ...]:
        """Names of the peers that average."""
        return tuple(entry.peer.name for entry in self.contributions if entry.elements)


def collaborate(
    peers: Sequence[Peer],
    parameter_bytes: float,
    target_batch: float,
    *,
    delayed: bool = False,
    computing: Sequence[str] | None = None,
    pair_limits: Mapping[tuple[str, str], float] | None = None,
    element_bytes: float = 4.0,
    min_size: int = 0,
) -> Collaboration:
    """The assignment of computing and averaging to peers with the shortest step.

    Peers accumulate gradients until they have the target batch between them, each at its own pace, and then average
    by a butterfly: each averaging peer takes a part of the gradient from all that compute, and sends them the average.
    A step takes both times in turn, or the longer of the two with delayed updates. How much each peer averages is a
    linear program (HiGHS); who computes is a search over its value, which found the best of all sets in every small case
    tried. With limits between pairs the program has all flows between two peers, and the sets tried are the best ones
    without the limits, as long as one of them could still win.

    Parameters
    ----------
    peers : at least one that computes
    parameter_bytes : of all gradients on the wire [bytes]
    target_batch : samples of a step
    delayed : whether a step's averaging overlaps the computing of the next, whose gradients are then one step late
    computing : names of the peers that compute; chosen if not given
    pair_limits : from one peer to another, by their names [bytes/s]; none between other pairs
    element_bytes : of one parameter's gradient on the wire [bytes]
    min_size : elements; a peer whose share is smaller averages nothing

    Returns
    -------
    Collaboration

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected, also where the peers named can't reach each other
    NotModelled
        for limits between the pairs of too many peers

    References
    ----------
    [diskin2021]_; the program is derived from the flows, learning-at-home/hivemind load_balancing.py has it for peers
    that all compute

    Examples
    --------
    Four equal peers are a ring all-reduce, 2 (n - 1) P / (n b):

    >>> peers = [Peer(name=f"peer {i}", samples_per_second=10.0, upload=1e8, download=1e8) for i in range(4)]
    >>> result = collaborate(peers, 400e6, 256)
    >>> round(result.averaging_time, 6), round(result.step_time, 6), result.bottleneck
    (6.0, 12.4, 'compute')
    """
    peers = listing("peers", peers)
    index = _places(peers)
    parameter_bytes = real("parameter_bytes", plain(parameter_bytes), 1.0, 1e18)
    target_batch = real("target_batch", plain(target_batch), 1e-9, 1e18)
    element_bytes = real("element_bytes", plain(element_bytes), 1.0 / 8.0, parameter_bytes)
    flag("delayed", delayed)
    elements = positive_int("parameter_bytes over element_bytes", round(parameter_bytes / element_bytes), 10**18)
    min_size = whole("min_size", plain(min_size), elements)
    group = _Group(
        speed=np.array([peer.samples_per_second for peer in peers]),
        upload=np.array([peer.upload for peer in peers]) / parameter_bytes,
        download=np.array([peer.download for peer in peers]) / parameter_bytes,
        averages=np.array([not peer.client for peer in peers]),
        limits=_limits(pair_limits, index, parameter_bytes),
    )
    if not group.speed.any():
        raise InvalidValue("samples_per_second", 0.0, "more than 0 for at least one peer")
    if computing is not None:
        named = _named(computing, index)
        if not (group.speed[named] > 0.0).all():
            raise InvalidValue("computing", list(computing), "names of peers with more than 0 samples_per_second")
        sets = [(0.0, named)]
    else:
        sets = group.who_computes(target_batch, delayed)
    computes, rate, shares = group.best_of(sets, target_batch, delayed)
    if rate == 0.0:
        raise InvalidValue("computing", computing, "peers that reach each other, or one that isn't a client and averages")

    split = _split(computes, shares, elements, min_size)
    load = averaging_load(computes, split / elements)
    averaging_time, limit = group.averaging_time(computes, split / elements, load)
    compute_time = target_batch / float(group.speed[computes].sum())
    slow = averaging_time > compute_time
    link = "a limit between two peers" if limit is None else f"the {limit[0]} of {peers[limit[1]].name}"
    return Collaboration(
        contributions=_contributions(peers, computes, compute_time * group.speed, split, load * parameter_bytes, elements),
        target_batch=float(target_batch), step_time=_step_time(compute_time, averaging_time, delayed),
        compute_time=compute_time, averaging_time=averaging_time, averaging_bound=1.0 / rate, staleness=int(delayed),
        bottleneck="averaging" if slow else "compute",
        why=f"averaging takes {format_seconds(averaging_time)}, limited by {link}" if slow
        else f"{int(computes.sum())} peers compute {target_batch:g} samples in {format_seconds(compute_time)}",
    )  # fmt: skip


def _contributions(
    peers: Sequence[Peer], computes: np.ndarray, samples: np.ndarray, split: np.ndarray, nbytes: np.ndarray,
    elements: int,
) -> tuple[Contribution, ...]:
    """What each peer does in a step: split is in elements, nbytes what it averages and sends [bytes]."""
    return tuple(
        Contribution(
            peer=peer, computes=bool(computes[i]), samples=float(samples[i]) if computes[i] else 0.0,
            share=float(split[i]) / elements, elements=int(split[i]), upload_bytes=float(nbytes[i]),
            download_bytes=float(nbytes[i]),
        )
        for i, peer in enumerate(peers)
    )  # fmt: skip


def _places(peers: Sequence[Peer]) -> dict[str, int]:
    """Places of peers by their names, checked."""
    if not 1 <= len(peers) <= MOST_PEERS:
        raise InvalidValue("peers", len(peers), f"1 to {MOST_PEERS} peers")
    for peer in peers:
        kind("peers", peer, Peer, "Peer(name=..., ...)")
    index = {peer.name: i for i, peer in enumerate(peers)}
    if len(index) < len(peers):
        raise InvalidValue("peers", f"{len(peers)} of {len(index)} names", "a name of its own for each")
    return index


class _Group(NamedTuple):
    """Peers in numbers."""

    speed: solver.Floats  # samples/s
    upload: solver.Floats  # gradients/s
    download: solver.Floats
    averages: solver.Flags
    limits: solver.Floats | None  # between pairs [gradients/s]

    def who_computes(self, target_batch: float, delayed: bool) -> list[tuple[float, solver.Flags]]:
        """Sets of computing peers worth trying, each with a bound of its step time, the best bound first."""
        tried = 1 if self.limits is None else SETS_TRIED
        bandwidth = np.minimum(self.upload, self.download)
        return solver.who_computes(self.speed, bandwidth, self.averages, target_batch, delayed, tried)

    def best_of(
        self, sets: Iterable[tuple[float, solver.Flags]], target_batch: float, delayed: bool
    ) -> tuple[solver.Flags, float, solver.Floats]:
        """Of sets of computing peers the one with the shortest step: its averages a second and its shares."""
        found, shortest = None, np.inf
        for bound, computes in sets:
            if found is not None and bound >= shortest:
                break
            rate, shares = _averaged(self.upload, self.download, self.limits, computes, self.averages)
            compute_time = target_batch / float(self.speed[computes].sum())
            time = _step_time(compute_time, 1.0 / rate if rate > 0.0 else np.inf, delayed)
            if found is None or time < shortest:
                found, shortest = (computes, rate, shares), time
        assert found is not None
        return found

    def averaging_time(
        self, computes: solver.Flags, shares: solver.Floats, load: solver.Floats
    ) -> tuple[float, tuple[str, int] | None]:
        """Time of an averaging [s], and the way and the peer that limit it; None where two peers' limit does."""
        with np.errstate(invalid="ignore", divide="ignore"):
            each_way = np.stack([np.where(load > 0.0, load / way, 0.0) for way in (self.upload, self.download)])
            between = _between(computes, shares, self.limits)
        way, peer = np.unravel_index(int(each_way.argmax()), each_way.shape)
        limit = None if between > each_way.max() else (("upload", "download")[way], int(peer))
        return float(max(each_way.max(), between)), limit


def _split(computes: solver.Flags, shares: solver.Floats, elements: int, min_size: int) -> NDArray[np.int64]:
    """Elements that each peer averages; none where one computes alone."""
    if computes.sum() <= 1:
        return np.zeros(len(shares), np.int64)
    kept = np.where(shares * elements >= min_size, shares, 0.0)
    if not kept.any():
        raise InvalidValue("min_size", min_size, f"at most the largest share, {int(shares.max() * elements)} elements")
    return solver.integer_split(kept, elements)


def _step_time(compute_time: float, averaging_time: float, delayed: bool) -> float:
    return max(compute_time, averaging_time) if delayed else compute_time + averaging_time


def _averaged(
    upload: solver.Floats, download: solver.Floats, limits: solver.Floats | None, computes: solver.Flags,
    averages: solver.Flags,
) -> tuple[float, solver.Floats]:  # fmt: skip
    """Averages a second and shares; one computing peer has nothing to average."""
    if computes.sum() == 1:
        return np.inf, np.zeros(len(upload))
    if limits is None:
        return solver.averaging(upload, download, computes, averages)
    return solver.averaging_by_flows(upload, download, limits, computes, averages)


def averaging_load(computes: solver.Flags, shares: solver.Floats) -> solver.Floats:
    """Gradients that go through each peer's connection each way in one averaging."""
    count = computes.sum()
    if count == 1:
        return np.zeros(len(shares))
    return np.where(computes, 1.0 + (count - 2.0) * shares, count * shares)


def _between(computes: solver.Flags, shares: solver.Floats, limits: solver.Floats | None) -> float:
    """Time of the slowest pair of peers with a limit, for one averaging [s]."""
    if limits is None:
        return 0.0
    flows = computes[:, None] * shares[None, :] + shares[:, None] * computes[None, :]
    np.fill_diagonal(flows, 0.0)
    return float(np.where(flows > 0.0, flows / limits, 0.0).max())


def _named(names: Sequence[str], index: Mapping[str, int]) -> solver.Flags:
    chosen = np.zeros(len(index), bool)
    for name in listing("computing", names):
        if not isinstance(name, str) or name not in index:
            raise InvalidValue("computing", name, "the name of one of the peers")
        chosen[index[name]] = True
    if not chosen.any():
        raise InvalidValue("computing", list(names), "the name of at least one peer")
    return chosen


def _limits(
    pair_limits: Mapping[tuple[str, str], float] | None, index: Mapping[str, int], parameter_bytes: float
) -> solver.Floats | None:
    """Limits between pairs [gradients/s] as a table, infinite where there is none."""
    if pair_limits is None:
        return None
    named = mapping("pair_limits", pair_limits)
    if not named:
        return None
    if len(index) > MOST_PAIRED_PEERS:
        raise NotModelled(f"limits between pairs are modelled for up to {MOST_PAIRED_PEERS} peers, not {len(index)}")
    table = np.full((len(index), len(index)), np.inf)
    for pair, limit in named.items():
        names = pair if isinstance(pair, tuple) and all(isinstance(name, str) for name in pair) else ()
        if len(names) != 2 or names[0] == names[1] or not set(names) <= set(index):
            raise InvalidValue("pair_limits", pair, "pairs of two names of peers, the sender's first")
        source, target = names
        rate = real(f"pair limit {source} to {target}", plain(limit), 0.0, 1e15)
        table[index[source], index[target]] = rate / parameter_bytes
    return table
