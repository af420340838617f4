"""A data-parallel step of a chain of layers: gradients exchanged bucket by bucket, behind the backward pass or after it."""

from __future__ import annotations

import dataclasses
from statistics import NormalDist
from typing import Literal, get_args

import numpy as np

from costmodel.arithmetic.named_tuples import as_number
from costmodel.catalogue.software import software_that_adds_nothing
from costmodel.description.buckets import cut_after
from costmodel.description.buckets import overlap as bucketed
from costmodel.description.cluster import Cluster
from costmodel.description.layers import LayerChain
from costmodel.formulas.network import collectives, wiring
from costmodel.formulas.quantities import NetworkNumbers
from costmodel.text.checks import choice, flag, kind, positive_int, real
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief

Wiring = Literal["switch", "bus", "mesh", "cube-mesh"]
CUBE_MESH_GPUS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataParallelStep:
    """One step of data-parallel training."""

    gpus: int  # workers
    forward: float  # forward, backward: of one worker alone [s]
    backward: float
    waiting: float  # for the slowest worker's passes [s]
    exchange: float  # sum of all all-reduces [s]
    exposed: float  # what of it comes after the passes [s]
    buckets: int  # all-reduces

    __repr__ = brief

    @property
    def time(self) -> float:
        """Of the step [s]."""
        return self.forward + self.backward + self.waiting + self.exposed

    @property
    def communication_share(self) -> float:
        """Share of the step that a worker alone would not have spent: waiting for the slowest and for gradients."""
        return (self.waiting + self.exposed) / self.time

    @property
    def efficiency(self) -> float:
        """Throughput of a worker over that of a worker alone."""
        return (self.forward + self.backward) / self.time


def expected_largest(count: int) -> float:
    """Expected largest of `count` standard normal deviates (Blom's approximation).

    References
    ----------
    [blom1958]_

    Examples
    --------
    >>> round(expected_largest(2), 2), round(expected_largest(100), 2)
    (0.59, 2.5)
    """
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


NO_TREES = 1e-3
"""Bandwidth of a library's trees where it has none [bytes/s]: so slow that rings are taken."""


def _network(cluster: Cluster, gpus: int, wired: Wiring) -> NetworkNumbers:
    network = cluster.numbers()
    size = float(cluster.gpus_per_node)
    members, bandwidth = min(float(gpus), size), network.node.bandwidth
    if members > 1.0 and wired == "bus":
        bandwidth = wiring.bus_bandwidth_of_members(bandwidth, members, size)
    elif members > 1.0 and wired == "mesh":
        bandwidth = wiring.mesh_bandwidth_of_members(bandwidth, members, size)
    elif members > 1.0 and wired == "cube-mesh":
        bandwidth = wiring.cube_mesh_bandwidth_of_members(bandwidth, members)
    # rings alone, in NCCL's protocol Simple: its trees came with release 2.4, of 2019, when the measured studies had run
    levels = (level._replace(ll_bandwidth=0.0, ll128=0.0, tree_bandwidth=NO_TREES) for level in network)
    rings = NetworkNumbers(*levels)
    return rings._replace(node=rings.node._replace(bandwidth=bandwidth))


def data_parallel_step(
    chain: LayerChain,
    cluster: Cluster,
    gpus: int,
    *,
    overlap: bool = True,
    bucket: float = 25 * 2**20,
    wiring: Wiring = "switch",
    jitter: float = 0.0,
    launch_time: float = 20e-6,
) -> DataParallelStep:
    r"""Time of one data-parallel step of a chain of layers, the minibatch of a worker fixed (weak scaling).

    Gradients become ready from the last layer to the first and fill buckets, each flushed as soon as it has reached its
    cap, and all-reduced one after another, as `costmodel.description.buckets.overlap` has it. Without overlap every bucket
    waits for the end of the backward pass.

    Parameters
    ----------
    chain : layers with their times for one worker's minibatch
    cluster : ranks fill its nodes one after another
    gpus : workers
    overlap : exchange behind the backward pass (wait-free backpropagation)
    bucket : gradients exchanged at once [bytes]; DDP's 25 MiB
    wiring : of the innermost level: ``"switch"``, ``"bus"`` that the GPUs share, ``"mesh"`` of links between pairs, or
        ``"cube-mesh"`` of eight V100s, as in a DGX-1 and on AWS p3
    jitter : standard deviation of a worker's passes over their mean; the step waits for the slowest worker
    launch_time : of an all-reduce [s]

    Returns
    -------
    DataParallelStep

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected

    Examples
    --------
    >>> from costmodel import ChainLayer, LayerChain, load_cluster
    >>> layers = [ChainLayer(name=n, forward=0.1, backward=0.2, output_bytes=1e6, parameter_bytes=1e8) for n in "ab"]
    >>> chain = LayerChain(name="two", layers=layers)
    >>> step = data_parallel_step(chain, load_cluster("dgx-1v"), 8)
    >>> step.buckets, step.exposed < step.exchange
    (2, True)
    """
    kind("chain", chain, LayerChain, "NetworkNumbers.chain")
    positive_int(f"layers of {chain.name!r}", len(chain.layers), 100_000)
    kind("cluster", cluster, Cluster, "load_cluster")
    positive_int("gpus", gpus, 10**7)
    flag("overlap", overlap)
    real("bucket", bucket, 1.0, 1e15)
    size = cluster.gpus_per_node
    if choice("wiring", wiring, get_args(Wiring)) == "cube-mesh" and size != CUBE_MESH_GPUS:
        raise InvalidValue("wiring", wiring, f"nodes of {CUBE_MESH_GPUS} GPUs, where {cluster.name!r} has {size}")
    real("jitter", jitter, 0.0, 10.0)
    real("launch_time", launch_time, 0.0, 10.0)
    if len(cluster.levels) == 1 and gpus > cluster.levels[0].size:
        raise InvalidValue("gpus", gpus, f"at most {cluster.levels[0].size} on the only level {cluster.levels[0].name}")
    forward = sum(layer.forward for layer in chain.layers)
    backward = sum(layer.backward for layer in chain.layers)
    network = _network(cluster, gpus, wiring)
    software = software_that_adds_nothing(launch_time)
    nbytes = np.array([layer.parameter_bytes for layer in reversed(chain.layers)])
    passed = np.cumsum([layer.backward for layer in reversed(chain.layers)])
    ends = cut_after(nbytes, [bucket])
    filled = np.add.reduceat(nbytes, np.concatenate([[0], ends[:-1]]))
    ready, filled = passed[ends - 1][filled > 0.0], filled[filled > 0.0]
    times = np.asarray(collectives.all_reduce(as_number(filled), float(gpus), 1.0, network, software))
    played = bucketed(ready if overlap else np.full(len(filled), backward), times, backward)
    return DataParallelStep(
        gpus=gpus, forward=forward, backward=backward, waiting=jitter * expected_largest(gpus) * (forward + backward),
        exchange=float(np.sum(times)), exposed=played.exposed, buckets=len(filled),
    )  # fmt: skip
