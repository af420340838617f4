"""Systems that train a chain of layers, whose times are those of one GPU's minibatch."""

from __future__ import annotations

import functools
from collections.abc import Callable

from costmodel.catalogue.server_systems import bandwidth_of, between_nodes, server_system
from costmodel.description.cluster import Cluster
from costmodel.description.layers import LayerChain
from costmodel.formulas.network import traffic
from costmodel.formulas.pipeline import schedules
from costmodel.formulas.systems import comparison as formulas
from costmodel.studies.data_parallel import data_parallel_step
from costmodel.studies.parameter_servers import staleness as stale
from costmodel.studies.parameter_servers.byteps_cluster import NVLinkMachine, PCIeMachine, byteps
from costmodel.studies.parameter_servers.staleness import Staleness
from costmodel.studies.partitioning import partition
from costmodel.text.errors import IllegalPlan, NotModelled
from costmodel.training.replicas import ReplicatedWorkload
from costmodel.training.systems import System, SystemSettings, waiting

MOMENTUM = 3.0
"""Copies of the weights' size with SGD: weights, gradients, momentum."""


class _ChainOnCluster(ReplicatedWorkload):
    """A chain on a cluster, and the systems that train it."""

    def __init__(self, chain: LayerChain, cluster: Cluster, settings: SystemSettings) -> None:
        super().__init__(cluster, settings)
        self.chain = chain
        self.reducing = cluster if settings.all_reduce is None else between_nodes(settings.all_reduce, cluster)
        self.backward = sum(layer.backward for layer in chain.layers)
        self.busy = sum(layer.forward for layer in chain.layers) + self.backward
        self.nbytes = sum(layer.parameter_bytes for layer in chain.layers)
        self.samples = (chain.minibatch or 1) * self.gpus
        self.activations = sum(layer.kept_bytes for layer in chain.layers)
        outer = cluster.levels[1] if self.nodes > 1 and len(cluster.levels) > 1 else cluster.levels[0]
        self.bandwidth = outer.bandwidth / outer.oversubscription
        self.waits = waiting(settings.stragglers, self.busy, self.gpus)

    def system(
        self, name: str, setting: str, step_time: float, *, copies: float, sent: float, staleness: Staleness, servers: int = 0,
        memory: float | None = None, rounds: float = 1.0,
    ) -> System:  # fmt: skip
        """A row; `rounds` minibatches of every GPU in a step."""
        held = float(formulas.replica_memory(self.nbytes, self.activations, copies)) if memory is None else memory
        return System(
            name=name, setting=setting, step_time=step_time, samples=rounds * self.samples,
            gpus=self.gpus, servers=servers, memory=held,
            memory_limit=float(self.cluster.device.usable_memory or self.cluster.device.memory), sent_bytes=sent,
            staleness=staleness, compute_time=rounds * self.busy,
        )  # fmt: skip

    @property
    def reduced(self) -> float:
        """Bytes that a GPU sends in one all-reduce of the gradients."""
        return float(traffic.all_reduce_sent(self.nbytes, float(self.gpus)))

    def all_reduce(self, name: str, zero: int) -> System:
        """Data parallelism, buckets behind the backward pass, optimizer states sharded or not."""
        if zero == 3:
            raise NotModelled("ZeRO-3 of a chain of layers: gathering weights is modelled for transformers")
        step = data_parallel_step(self.chain, self.reducing, self.gpus)
        copies = MOMENTUM if not zero else 2.0 + 1.0 / self.gpus if zero == 1 else 1.0 + 2.0 / self.gpus
        return self.system(
            name, "DDP buckets of 25 MiB" if not zero else f"states over {self.gpus} GPUs", step.time + self.waits,
            copies=copies, sent=self.reduced, staleness=stale.synchronous(),
        )  # fmt: skip

    def local_sgd(self) -> System:
        """Steps of their own, then an average of the weights."""
        every = self.settings.local_steps
        step = data_parallel_step(self.chain, self.reducing, self.gpus, overlap=False)
        return self.system(
            "local SGD", f"an exchange every {every} steps", self.busy + self.waits + step.exchange / every,
            copies=MOMENTUM + 2.0, sent=self.reduced / every, staleness=stale.local_sgd(every),
        )  # fmt: skip

    def byteps(self) -> System:
        """Spare machines sum what pays; a machine without NVLink has two PCIe switches."""
        if self.nodes < 2:
            raise IllegalPlan("nodes", "BytePS: one node has no network between machines to share")
        inner, host = self.cluster.levels[0], self.cluster.device.host_bandwidth
        machine: NVLinkMachine | PCIeMachine = NVLinkMachine(nvlink_bandwidth=inner.bandwidth, cpu_bandwidth=host)
        if "nvlink" not in inner.name:
            machine = PCIeMachine(gpus_per_switch=max(1, self.node // 2), cpu_bandwidth=host, gpu_bandwidth=host)
        step = byteps(
            self.nbytes, machine=machine, gpu_machines=self.nodes, cpu_machines=min(self.settings.servers, self.nodes),
            bandwidth=bandwidth_of(server_system("byteps"), self.to_servers) * self.node, compute_time=self.busy,
            overlap=self.backward / self.busy,
        )  # fmt: skip
        return self.system(
            "BytePS", f"{min(self.settings.servers, self.nodes)} spare machines", step.step_time + self.waits, copies=MOMENTUM,
            sent=step.gpu_traffic / self.node, staleness=stale.synchronous(), servers=min(self.settings.servers, self.nodes),
        )  # fmt: skip

    def row(
        self, name: str, setting: str, step_time: float, sent: float, staleness: Staleness, *, copies: float, served: bool = True
    ) -> System:
        """The row of replicas; servers hold the optimizer."""
        servers = self.settings.servers if served else 0
        return self.system(name, setting, step_time, copies=copies, sent=sent, staleness=staleness, servers=servers)

    def dedloc(self) -> System:
        """Peers that average a step late."""
        step, sent = self.peers()
        return self.row("DeDLOC", "averaging delayed by a step", step.step_time, sent, stale.delayed(step.staleness),
                        copies=MOMENTUM + 1.0, served=False)  # fmt: skip

    def sandblaster(self) -> System:
        """Portions of a large batch, dealt by a coordinator."""
        run, rounds = self.portions(self.busy), self.settings.portions_per_gpu
        return self.system(
            "Sandblaster", f"L-BFGS on batches of {rounds} portions a GPU", run.batch_time, copies=2.0, sent=run.push_bytes,
            staleness=run.staleness, servers=self.settings.servers, rounds=rounds,
        )  # fmt: skip

    def pipedream(self) -> System:
        """Stages of replicas, each updating after every minibatch."""
        found = partition(self.chain, *self._levels())
        waits = max(waiting(self.settings.stragglers, 1.0, stage.replicas) for stage in found.pipeline)
        return self.system(
            "PipeDream", f"stages {found.configuration}", found.time * self.gpus * (1.0 + waits), copies=0.0,
            memory=max(found.memory) + 2.0 * max(stage.parameter_bytes for stage in found.pipeline),
            sent=found.sent_bytes, staleness=stale.pipedream(len(found.pipeline)),
        )  # fmt: skip

    def gpipe(self) -> System:
        """One stage a GPU, all minibatches forward, then all backward."""
        found = partition(self.chain, *self._levels(), straight=True)
        stages = float(len(found.pipeline))
        slowest = max(stage.compute_time for stage in found.pipeline)
        idle = float(schedules.bubble(schedules.GPIPE, stages, 1.0, slowest, 0.0, 0.0))
        held = max(MOMENTUM * stage.parameter_bytes + self.gpus * stage.activation_bytes for stage in found.pipeline)
        return self.system(
            "GPipe", f"{len(found.pipeline)} stages, {self.gpus} micro-batches", self.gpus * max(slowest, found.time) + idle,
            copies=0.0, memory=held, sent=self.gpus * max(2.0 * stage.output_bytes for stage in found.pipeline),
            staleness=stale.synchronous(),
        )  # fmt: skip

    # Between nodes a pipeline has all of a node's links, which its GPUs seldom use at once
    def _levels(self) -> tuple[list[int], list[float]]:
        inner = self.cluster.levels[0]
        if self.nodes == 1:
            return [self.gpus], [inner.bandwidth]
        return [self.node, self.nodes], [inner.bandwidth, self.bandwidth * self.node]


def systems_of_chain(chain: LayerChain, cluster: Cluster, settings: SystemSettings) -> dict[str, Callable[[], System]]:
    """By name, what makes each system's row.

    Parameters
    ----------
    chain, cluster, settings : as `compare_systems` has checked them
    """
    one = _ChainOnCluster(chain, cluster, settings)

    def unsplit() -> System:
        raise NotModelled("tensor parallelism of a chain of layers, whose layers have times and no shapes")

    named = "parameter server, "
    return {
        "all-reduce": lambda: one.all_reduce("all-reduce", 0),
        **{f"ZeRO-{stage}": functools.partial(one.all_reduce, f"ZeRO-{stage}", stage) for stage in (1, 2, 3)},
        named + "synchronous": lambda: one.served(named + "synchronous", "bsp"),
        named + "bounded delay": lambda: one.served(named + "bounded delay", "bounded_delay"),
        named + "asynchronous": lambda: one.served(named + "asynchronous", "asynchronous"),
        "BytePS": one.byteps, "DeDLOC": one.dedloc, "local SGD": one.local_sgd, "Downpour": one.downpour,
        "Sandblaster": one.sandblaster, "PipeDream": one.pipedream, "GPipe": one.gpipe, "tensor parallelism": unsplit,
    }  # fmt: skip
