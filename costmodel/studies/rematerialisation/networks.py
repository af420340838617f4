"""Rematerialisation of real networks: graphs with branches and chains of a thousand layers, block by block."""

from __future__ import annotations

import dataclasses
import math

from costmodel.description.layers import LayerChain
from costmodel.studies.rematerialisation.blocks import condensed
from costmodel.studies.rematerialisation.study import Checkpointing, checkpoint
from costmodel.text.checks import choice, kind, positive_int
from costmodel.text.results import brief

METHODS = ("optimal", "sqrt", "recursive", "revolve", "selective")
MOST_BLOCKS = 64
"""Of the dynamic program, which then takes a fraction of a second."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkCheckpointing:
    """A schedule of a network's blocks."""

    network: LayerChain  # what was asked about
    blocks: tuple[tuple[str, ...], ...]  # names of the layers of each block, which are recorded, dropped and run again together
    schedule: Checkpointing  # of the chain of blocks
    whole_bytes: float  # that the network holds where nothing is dropped

    __repr__ = brief

    @property
    def peak_bytes(self) -> int:
        """Most that is held at once, weights not counted."""
        return self.schedule.peak_bytes

    @property
    def saving(self) -> float:
        """Bytes of the whole over those of the schedule."""
        return self.whole_bytes / self.peak_bytes

    @property
    def extra_time_share(self) -> float:
        """Time of repeated forward passes over that of a step without any."""
        passes = math.fsum(layer.forward + layer.backward for layer in self.network.layers)
        return self.schedule.extra_forward_time / passes if passes else 0.0


def checkpoint_network(
    network: LayerChain,
    *,
    budget: float | None = None,
    method: str = "optimal",
    count: int | None = None,
    input_bytes: float = 0.0,
    most_blocks: int = MOST_BLOCKS,
) -> NetworkCheckpointing:
    """A schedule of a network's forward and backward pass that keeps within a budget of bytes.

    The network is cut at its articulation points, where one output is all that comes after needs; blocks between them
    are recorded and run again as wholes. Long networks' blocks are joined, so that any takes less than a second.

    Parameters
    ----------
    network : layers, or a graph of them
    budget : most that may be held at once, weights not counted [bytes]; None for no limit
    method : of `costmodel.checkpoint`, on the chain of blocks: ``"optimal"``, ``"sqrt"``, ``"recursive"``, ``"revolve"``
        or ``"selective"``
    count : what the method counts
    input_bytes : of the network's input, held throughout
    most_blocks : into which it is cut

    Returns
    -------
    NetworkCheckpointing

    Raises
    ------
    InvalidValue
        naming the field; for a budget that nothing fits, with the least that the method takes

    References
    ----------
    [chen2016]_ section 4.3

    Examples
    --------
    >>> from costmodel import load_device, load_network
    >>> chain = load_network("resnet-50").chain(load_device("v100-sxm-16gb"), minibatch=32)
    >>> found = checkpoint_network(chain, method="sqrt")
    >>> len(found.blocks), found.saving > 2.0
    (40, True)
    """
    kind("network", network, LayerChain, "LayerChain(...) or Network.chain")
    choice("method", method, METHODS)
    blocks, names = condensed(network, positive_int("most_blocks", most_blocks, 128))
    schedule = checkpoint(blocks, budget=budget, method=method, count=count, input_bytes=input_bytes)
    whole = checkpoint(blocks, input_bytes=input_bytes).peak_bytes if schedule.extra_forward_time else schedule.peak_bytes
    return NetworkCheckpointing(network=network, blocks=names, schedule=schedule, whole_bytes=float(whole))
