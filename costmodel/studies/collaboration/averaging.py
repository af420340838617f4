"""What a collaboration's averaging costs by the strategies that it is compared with: all-reduce, a server, BytePS."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from costmodel.formulas.systems import byteps_shares
from costmodel.studies.collaboration.peers import Peer
from costmodel.studies.collaboration.solver import Flags, Floats
from costmodel.studies.collaboration.study import averaging_load, collaborate
from costmodel.text.checks import listing, plain, real
from costmodel.text.results import brief


@dataclasses.dataclass(frozen=True, kw_only=True)
class AveragingStrategies:
    """Time of one averaging of all gradients by each strategy [s]; infinite where a strategy can't be had."""

    all_reduce: float  # every peer that computes averages an equal part
    parameter_server: float  # the one peer that does it fastest averages everything
    byteps: float  # peers that don't compute, and those that do, average the parts that are best where all links are alike
    adaptive: float  # each peer averages the part that is best for all (`costmodel.collaborate`)

    __repr__ = brief

    @property
    def gain(self) -> float:
        """How often faster the adaptive strategy is than an all-reduce."""
        return self.all_reduce / self.adaptive


def averaging_strategies(peers: Sequence[Peer], parameter_bytes: float) -> AveragingStrategies:
    """Time of an averaging among all peers, those with a speed computing, by each of the strategies.

    Parameters
    ----------
    peers : those that compute, and those without a speed that only average
    parameter_bytes : of all gradients on the wire [bytes]

    Returns
    -------
    AveragingStrategies

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected

    References
    ----------
    [diskin2021]_ for the strategies; [jiang2020]_ equation 5 for BytePS's shares

    Examples
    --------
    Eight servers of 1 Gbit/s and sixteen workstations of 200 Mbit/s, where an all-reduce goes at the workstations' pace:

    >>> fast, slow = 1e9 / 8, 200e6 / 8
    >>> peers = [Peer(name=f"server {i}", samples_per_second=1.0, upload=fast, download=fast) for i in range(8)]
    >>> peers += [Peer(name=f"workstation {i}", samples_per_second=1.0, upload=slow, download=slow) for i in range(16)]
    >>> round(averaging_strategies(peers, 36e6).gain, 2)
    1.92
    """
    named = [peer.name for peer in listing("peers", peers) if isinstance(peer, Peer) and peer.samples_per_second > 0.0]
    best = collaborate(peers, parameter_bytes, 1.0, computing=named or None)
    nbytes = real("parameter_bytes", plain(parameter_bytes), 1.0, 1e18)
    computes = np.array([peer.samples_per_second > 0.0 for peer in peers])
    open_ = np.array([not peer.client for peer in peers])
    rates = np.array([[peer.upload for peer in peers], [peer.download for peer in peers]]) / nbytes

    def time(shares: Floats) -> float:
        return _time(rates, computes, shares)

    servers = [time(np.arange(len(peers)) == place) for place in np.flatnonzero(open_)]
    return AveragingStrategies(
        all_reduce=time(np.where(computes, 1.0 / computes.sum(), 0.0)) if open_[computes].all() else np.inf,
        parameter_server=min(servers, default=np.inf),
        byteps=time(_byteps(computes)) if open_.all() else np.inf, adaptive=best.averaging_bound,
    )  # fmt: skip


def _time(rates: Floats, computes: Flags, shares: Floats) -> float:
    load = averaging_load(computes, np.asarray(shares, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(load > 0.0, load / rates, 0.0).max())


def _byteps(computes: Flags) -> Floats:
    """Shares of BytePS with as many machines of each kind, spare ones beyond the others unused."""
    gpus, spare = float(computes.sum()), float(min((~computes).sum(), computes.sum()))
    helping = np.cumsum(~computes) <= spare
    with_gpus = float(byteps_shares.gpu_share(gpus, spare))
    without = float(byteps_shares.cpu_share(gpus, spare)) if spare else 0.0
    return np.where(computes, with_gpus, np.where(helping, without, 0.0))
