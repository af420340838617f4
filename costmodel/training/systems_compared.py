"""Ways to train one workload on one cluster side by side: time, memory, bytes, staleness and what a euro buys."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from costmodel.catalogue.clusters import ClusterLike, cluster_of
from costmodel.catalogue.server_systems import server_system
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.layers import LayerChain
from costmodel.description.transformer import Transformer
from costmodel.studies.parameter_servers.servers import Stragglers
from costmodel.text.checks import kind, listing, positive_int, real
from costmodel.text.errors import CostModelError, InvalidValue
from costmodel.text.results import RowTable, brief, figure
from costmodel.training.system_names import CALLED, rows_called
from costmodel.training.systems import System, SystemSettings

MEASURE = "all-reduce"
"""The row that stands beside those that are asked for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison(RowTable):
    """Systems side by side, the fastest that fits first.

    Parameters
    ----------
    workload : its name
    cluster : on what
    unit : of a sample: ``"sequences"`` or ``"samples"``
    systems : that can run
    refused : by name, why the others can't
    """

    workload: str
    cluster: Cluster
    unit: str
    systems: tuple[System, ...]
    refused: dict[str, str] = dataclasses.field(hash=False)

    __repr__ = brief
    plot = figure
    first_column = "system"

    def __getitem__(self, name: str) -> System:
        """The system of a name."""
        for system in self.systems:
            if system.name == name:
                return system
        raise InvalidValue("system", name, self.refused.get(name) or "one of " + ", ".join(one.name for one in self.systems))

    def to_rows(self) -> list[dict[str, object]]:
        """One flat dictionary a system, names with units."""
        return [system.to_dict() for system in self.systems]


def compare_systems(
    workload: Transformer | LayerChain,
    cluster: ClusterLike,
    *,
    global_batch: int | None = None,
    seq_len: int | None = None,
    framework: Framework | str = "megatron-core",
    servers: int | None = None,
    servers_of: str = "parameter-server",
    all_reduce_of: str | None = None,
    delay: int = 4,
    local_steps: int = 16,
    fetch_interval: int = 4,
    push_interval: int = 4,
    portions_per_gpu: int = 4,
    stragglers: Stragglers | None = None,
    gpu_hour: float | None = None,
    server_hour: float = 0.0,
    systems: Sequence[str] | None = None,
    **dimensions: object,
) -> Comparison:
    """Systems of training side by side: of replicas, of servers, of stages, of split layers, and their combinations.

    Data parallelism by an all-reduce, ZeRO, parameter servers (synchronous, with a bounded delay, asynchronous), BytePS,
    DeDLOC, local SGD, Downpour, Sandblaster, PipeDream, GPipe; of a transformer also tensor parallelism, 1F1B,
    PipeDream-2BW and the best of all combinations.

    Every system processes the same samples in a step. Synchronous systems exchange behind the backward pass where they
    can; workers that wait for servers alone exchange between their steps, as `costmodel.parameter_server` has it, and native
    servers hide nothing. A synchronous worker is a node, whose GPUs sum their gradients first; else it is a GPU.
    Replicas wait for their slowest; stages of a pipeline are taken to be regular. How many steps a system needs is not in
    here: its staleness is told, and `costmodel.StepsCurve` and `costmodel.fit_batch_scaling` go on from there.

    Parameters
    ----------
    workload : a transformer, or a chain of layers whose times are those of one GPU's minibatch
    cluster : on what; all of its GPUs work
    global_batch : sequences of a step; of a transformer only
    seq_len : tokens of a sequence; of a transformer only
    framework : software of a transformer
    servers : machines without GPUs, with the links of a node, for the systems that have servers; one a node if not given
    servers_of : the parameter servers' software, of `costmodel.catalogue.server_systems`: ``"parameter-server"`` for what was
        measured of all, ``"tensorflow-parameter-server"``, ``"mxnet-parameter-server"``, or ``"ideal"`` for links alone
    all_reduce_of : software that exchanges between nodes without servers, such as ``"horovod-2019"``, where it reaches less
        than the cluster's links do
    delay : steps that a worker may be ahead of the slowest, with bounded delay
    local_steps : steps of local SGD from one exchange to the next
    fetch_interval, push_interval : steps between two fetches and two pushes of Downpour
    portions_per_gpu : of a batch of Sandblaster, each a GPU's minibatch
    stragglers : distribution of the GPUs' times; synchronous systems wait for the slowest
    gpu_hour, server_hour : price of a GPU and of a server for an hour; without them there is no price
    systems : names of those that are wanted, such as ``["DeDLOC", "BytePS"]``, which stand beside an all-reduce; all if not
        given
    dimensions : of a transformer's plans, as `costmodel.Plan` has them: `recompute`, `dtype`, ...; `micro_batch` is the one
        by which data parallelism with sharded states is fastest and fits if not given

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    IllegalPlan
        where a transformer can't even train data-parallel, whose compute is the measure of all efficiencies

    Examples
    --------
    >>> from costmodel import load_cluster, load_device, load_network
    >>> chain = load_network("vgg-16").chain(load_device("v100-sxm-16gb"), minibatch=64)
    >>> found = compare_systems(chain, load_cluster("dgx-1v", gpus=32))
    >>> found["DeDLOC"].staleness.largest, found["parameter server, synchronous"].staleness.largest
    (1, 0)
    """
    kind("workload", workload, (Transformer, LayerChain), "load_model(name) or Network.chain")
    cluster = cluster_of(cluster)
    stragglers = Stragglers() if stragglers is None else stragglers
    kind("stragglers", stragglers, Stragglers, "Stragglers(distribution=..., spread=...)")
    gpus = int(cluster.gpus or 1)
    nodes = max(1, -(-gpus // cluster.gpus_per_node))
    settings = SystemSettings(
        servers=positive_int("servers", nodes if servers is None else servers, 100_000),
        delay=positive_int("delay", delay, 10**6), local_steps=positive_int("local_steps", local_steps, 10**6),
        fetch_interval=fetch_interval, push_interval=push_interval, stragglers=stragglers,
        portions_per_gpu=positive_int("portions_per_gpu", portions_per_gpu, 1000),
        server_system=server_system(servers_of, "servers_of"),
        all_reduce=None if all_reduce_of is None else server_system(all_reduce_of, "all_reduce_of"),
    )  # fmt: skip
    if gpu_hour is not None:
        real("gpu_hour", gpu_hour, 0.0, 1e9)
    real("server_hour", server_hour, 0.0, 1e9)
    wanted = None if systems is None else _wanted(systems)
    makers = _makers(workload, cluster, settings, {"global_batch": global_batch, "seq_len": seq_len}, framework, dimensions)
    rows, refused = _made({name: make for name, make in makers.items() if wanted is None or name in wanted})
    if gpu_hour is not None:
        rows = [dataclasses.replace(one, price_per_hour=gpu_hour * one.gpus + server_hour * one.servers) for one in rows]
    rows.sort(key=lambda one: (not one.fits, one.step_time / one.samples))
    return Comparison(
        workload=workload.name, cluster=cluster, unit="samples" if isinstance(workload, LayerChain) else "sequences",
        systems=tuple(rows), refused=refused,
    )  # fmt: skip


def _wanted(systems: Sequence[str]) -> set[str]:
    """Rows of some systems, and the one beside them."""
    found = {MEASURE}
    for name in listing("systems", systems):
        rows = rows_called(name) if isinstance(name, str) else ()
        if not rows:
            raise InvalidValue("systems", name, f"one of {', '.join(CALLED)}")
        found |= set(rows)
    return found


def _makers(
    workload: Transformer | LayerChain, cluster: Cluster, settings: SystemSettings, asked: dict[str, object],
    framework: Framework | str, dimensions: dict[str, object],
) -> dict[str, Callable[[], System]]:  # fmt: skip
    """What makes each system, by its name."""
    if isinstance(workload, LayerChain):
        from costmodel.training.compare_chains import systems_of_chain

        for field, value in (*asked.items(), *dimensions.items()):
            if value is not None:
                raise InvalidValue(field, value, "none with a chain of layers, which has its own minibatch")
        return systems_of_chain(workload, cluster, settings)
    from costmodel.training.compare_transformers import systems_of_transformer

    for field, value in asked.items():
        if value is None:
            raise InvalidValue(field, value, "a whole number, with a transformer")
    return systems_of_transformer(workload, cluster, settings, asked, framework, dimensions)


def _made(makers: dict[str, Callable[[], System]]) -> tuple[list[System], dict[str, str]]:
    systems, refused = [], {}
    for name, make in makers.items():
        try:
            systems.append(make())
        except CostModelError as error:
            refused[name] = str(error)
    return systems, refused


def rows_of(comparisons: Sequence[Comparison]) -> list[dict[str, object]]:
    """Flat rows of several comparisons, with workload and cluster."""
    return [
        {"workload": one.workload, "cluster": one.cluster.name, "cluster_gpus": one.cluster.gpus, **row}
        for one in comparisons for row in one.to_rows()
    ]  # fmt: skip
