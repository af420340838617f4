"""Data-parallel replicas that agree by servers or as peers: the same of a chain of layers and of a transformer."""

from __future__ import annotations

import abc

from costmodel.catalogue.server_systems import bandwidth_of
from costmodel.description.cluster import Cluster
from costmodel.studies.collaboration.peers import Peer
from costmodel.studies.collaboration.study import Collaboration, collaborate
from costmodel.studies.parameter_servers import staleness as stale
from costmodel.studies.parameter_servers.downpour_sgd import downpour
from costmodel.studies.parameter_servers.sandblaster_lbfgs import Sandblaster, sandblaster
from costmodel.studies.parameter_servers.servers import parameter_server
from costmodel.studies.parameter_servers.staleness import Staleness
from costmodel.text.errors import NotModelled
from costmodel.training.systems import System, SystemSettings, waiting

PARTITION = 4e6
"""Bytes of a message of servers that don't store whole ones."""


class ReplicatedWorkload(abc.ABC):
    """A workload on a cluster, a replica on each GPU.

    Parameters
    ----------
    cluster, settings : as `compare_systems` has checked them

    Attributes
    ----------
    busy, backward : of a GPU with its part of a step, and of that in backward passes [s]
    nbytes : that a replica sends of its gradients
    samples : of a step
    bandwidth : between peers, of one GPU [bytes/s]
    to_servers : the network on which servers are
    """

    busy: float
    backward: float
    nbytes: float
    samples: float
    bandwidth: float

    def __init__(self, cluster: Cluster, settings: SystemSettings) -> None:
        self.cluster, self.settings = cluster, settings
        self.gpus = int(cluster.gpus or 1)
        self.node = min(cluster.gpus_per_node, self.gpus)
        self.nodes = -(-self.gpus // self.node)
        self.to_servers = cluster.levels[min(1, len(cluster.levels) - 1)]  # other machines, even where the GPUs share one
        self.served_bandwidth = bandwidth_of(settings.server_system, self.to_servers)

    @abc.abstractmethod
    def row(
        self, name: str, setting: str, step_time: float, sent: float, staleness: Staleness, *, copies: float, served: bool = True
    ) -> System:
        """The row of a system; of a workload that no plan describes, `copies` of its weights' size are on each GPU."""

    def served(self, name: str, consistency: str) -> System:
        """Replicas that wait for servers: all of them, for each other within a bound, or for nobody."""
        settings, software = self.settings, self.settings.server_system
        delay = settings.delay if consistency == "bounded_delay" else None
        together = self.node if consistency == "bsp" else 1  # GPUs of a synchronous worker, which sum their gradients first
        hidden = software.hidden and consistency == "bsp" and settings.stragglers.constant
        run = parameter_server(
            self.nbytes, compute_time=self.busy, workers=self.gpus // together, servers=settings.servers,
            bandwidth=self.served_bandwidth * together, server_bandwidth=self.served_bandwidth * self.node,
            latency=self.to_servers.latency, request_time=software.request_time * together / self.node,
            partition_bytes=None if software.stored else PARTITION, consistency=consistency, delay=delay,
            stragglers=settings.stragglers, overlap=self.backward / self.busy if hidden else 0.0, steps=500,
        )  # fmt: skip
        slowest = waiting(settings.stragglers, self.busy, self.gpus) - waiting(settings.stragglers, self.busy, run.workers)
        missed = stale.synchronous() if consistency == "bsp" else stale.measured(run.staleness)
        setting = f"{settings.servers} servers, exchange " + ("behind the backward pass" if hidden else "between steps")
        setting += "" if delay is None else f", at most {delay} steps ahead"
        step_time = run.step_time + (slowest if consistency == "bsp" else 0.0)
        return self.row(name, setting, step_time, run.push_bytes / together, missed, copies=2.0)

    def downpour(self) -> System:
        """Replicas that push and fetch every few steps, waiting for nobody."""
        settings = self.settings
        run = downpour(
            self.nbytes, compute_time=self.busy, replicas=self.gpus, servers=settings.servers * self.node,
            bandwidth=self.served_bandwidth, fetch_interval=settings.fetch_interval, push_interval=settings.push_interval,
            latency=self.to_servers.latency, stragglers=settings.stragglers, steps=500,
        )  # fmt: skip
        setting = f"fetch every {settings.fetch_interval}, push every {settings.push_interval} steps"
        return self.row("Downpour", setting, run.step_time, run.push_bytes, run.staleness, copies=3.0)

    def portions(self, portion_time: float) -> Sandblaster:
        """A batch in portions, dealt by a coordinator.

        Parameters
        ----------
        portion_time : of a portion on a GPU [s]
        """
        settings, share = self.settings, self.settings.portions_per_gpu
        if settings.stragglers.distribution not in ("deterministic", "exponential"):
            raise NotModelled(f"Sandblaster with {settings.stragglers.distribution} stragglers: its portions are exponential")
        return sandblaster(
            self.nbytes, portion_time=portion_time, portions=share * self.gpus, replicas=self.gpus,
            servers=settings.servers * self.node, bandwidth=self.served_bandwidth, push_portions=share,
            latency=self.to_servers.latency, straggler_spread=settings.stragglers.spread,
        )  # fmt: skip

    def peers(self) -> tuple[Collaboration, float]:
        """Each GPU a peer that averages a step late, and the most that one sends [bytes]."""
        each = self.samples / self.gpus
        peers = [
            Peer(name=f"gpu {i}", samples_per_second=each / self.busy, upload=self.bandwidth, download=self.bandwidth)
            for i in range(self.gpus)
        ]
        step = collaborate(peers, self.nbytes, float(self.samples), delayed=True)
        return step, max(one.upload_bytes for one in step.contributions)
