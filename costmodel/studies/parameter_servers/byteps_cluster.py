"""BytePS: what spare CPU machines do for the exchange of gradients among GPU machines."""

from __future__ import annotations

import dataclasses

from costmodel.formulas.systems import byteps_shares as formulas
from costmodel.formulas.systems.server_exchange import exposed_time
from costmodel.text.checks import flag, kind, plain, plain_fields, positive_int, real, whole
from costmodel.text.results import brief
from costmodel.text.units import format_bytes, format_seconds

MOST_MACHINES = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class PCIeMachine:
    """Inside of a GPU machine without NVLink: GPUs under PCIe switches, each switch on the CPU.

    Parameters
    ----------
    gpus_per_switch : GPUs of a switch
    cpu_bandwidth : from a switch to the CPU, each direction [bytes/s]
    gpu_bandwidth : from a GPU to its switch, each direction [bytes/s]
    optimal_split : whether part of the gradient goes straight from each GPU to the CPU, as much as is best; BytePS
        itself has none of it, for its cost in CPU memory bandwidth
    """

    gpus_per_switch: int
    cpu_bandwidth: float
    gpu_bandwidth: float
    optimal_split: bool = False

    __repr__ = brief

    def __post_init__(self) -> None:
        plain_fields(self)
        positive_int("gpus_per_switch", self.gpus_per_switch, 64)
        real("cpu_bandwidth", self.cpu_bandwidth, 1.0, 1e15)
        real("gpu_bandwidth", self.gpu_bandwidth, 1.0, 1e15)
        flag("optimal_split", self.optimal_split)

    @property
    def direct_share(self) -> float:
        """Share of the gradient that goes straight from each GPU to the CPU."""
        if not self.optimal_split or self.gpus_per_switch == 1:
            return 0.0
        return float(formulas.optimal_direct_share(float(self.gpus_per_switch), self.cpu_bandwidth, self.gpu_bandwidth))

    def time(self, nbytes: float) -> float:
        """Time to sum a gradient of every GPU in the CPU's memory and to spread it again [s]."""
        gpus = float(self.gpus_per_switch)
        return float(formulas.pcie_time(nbytes, gpus, self.direct_share, self.cpu_bandwidth, self.gpu_bandwidth))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NVLinkMachine:
    """Inside of a GPU machine with NVLink: GPUs reduce to one of them, which copies to the CPU.

    Parameters
    ----------
    nvlink_bandwidth : of a GPU to the next, one direction [bytes/s]
    cpu_bandwidth : from a PCIe switch to the CPU, each direction [bytes/s]
    shared_switch : whether the GPU that copies has the NIC on its switch; BytePS avoids that
    """

    nvlink_bandwidth: float
    cpu_bandwidth: float
    shared_switch: bool = False

    __repr__ = brief

    def __post_init__(self) -> None:
        plain_fields(self)
        real("nvlink_bandwidth", self.nvlink_bandwidth, 1.0, 1e15)
        real("cpu_bandwidth", self.cpu_bandwidth, 1.0, 1e15)
        flag("shared_switch", self.shared_switch)

    def time(self, nbytes: float) -> float:
        """Time to sum a gradient of every GPU in the CPU's memory and to spread it again [s]."""
        return float(formulas.nvlink_time(nbytes, self.nvlink_bandwidth, self.cpu_bandwidth, float(self.shared_switch)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BytePSStep:
    """What an exchange by BytePS costs, and a step with it."""

    step_time: float  # [s]
    exchange_time: float  # alone, from GPU to GPU [s]
    network_time: float  # of the links between machines [s]
    machine_time: float  # of the links inside a GPU machine [s]
    cpu_machine_bytes: float  # of the gradient that each CPU machine sums [bytes]
    gpu_machine_bytes: float  # of the gradient that each GPU machine sums [bytes]
    gpu_traffic: float  # gpu_traffic, cpu_traffic: that a GPU machine and a CPU machine send, and receive, in a step [bytes]
    cpu_traffic: float
    gain_over_all_reduce: float  # time of an all-reduce among the GPU machines over the network time
    gain_over_parameter_server: float | None  # time of servers on the CPU machines alone over the network time; None without any
    bottleneck: str  # ``"compute"``, ``"network"`` or ``"machine"``
    why: str  # in one line

    __repr__ = brief


def byteps(
    nbytes: float,
    *,
    gpu_machines: int,
    cpu_machines: int,
    bandwidth: float,
    machine: PCIeMachine | NVLinkMachine | None = None,
    compute_time: float = 0.0,
    overlap: float = 0.0,
    efficiency: float = 1.0,
    partition_bytes: float = 4e6,
) -> BytePSStep:
    """Time of a step whose gradients are summed by BytePS with the optimal shares.

    Network and inside of the machines are two stages of a pipeline through which the gradient goes in partitions.

    Parameters
    ----------
    nbytes : gradient of the model [bytes]
    gpu_machines : at least 2 for anything to cross the network
    cpu_machines : spare ones; more than the GPU machines are of no more use
    bandwidth : of every machine's link, each direction [bytes/s]
    machine : inside of a GPU machine; one GPU each, without any exchange, if not given
    compute_time : of a step [s]
    overlap : share of the computing during which the exchange can run beside it
    efficiency : share of the links' bandwidth between machines that is reached
    partition_bytes : size of the partitions [bytes]

    Returns
    -------
    BytePSStep

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected

    References
    ----------
    [jiang2020]_

    Examples
    --------
    >>> result = byteps(1e9, gpu_machines=32, cpu_machines=16, bandwidth=90e9 / 8)
    >>> round(result.network_time, 4), round(result.gain_over_all_reduce, 2), result.bottleneck
    (0.1173, 1.47, 'network')
    """
    nbytes = real("nbytes", plain(nbytes), 0.0, 1e18)
    gpu_machines = positive_int("gpu_machines", plain(gpu_machines), MOST_MACHINES)
    cpu_machines = whole("cpu_machines", plain(cpu_machines), MOST_MACHINES)
    bandwidth = real("bandwidth", plain(bandwidth), 1.0, 1e15)
    compute_time = real("compute_time", plain(compute_time), 0.0, 1e9)
    overlap = real("overlap", plain(overlap), 0.0, 1.0)
    efficiency = real("efficiency", plain(efficiency), 1e-3, 1.0)
    partition_bytes = real("partition_bytes", plain(partition_bytes), 1.0, 1e18)
    if machine is not None:
        kind("machine", machine, (PCIeMachine, NVLinkMachine), "PCIeMachine(...) or NVLinkMachine(...)")
    n, k = float(gpu_machines), float(cpu_machines)
    network = float(formulas.optimal_time(nbytes, n, k, efficiency * bandwidth))
    inside = 0.0 if machine is None else machine.time(nbytes)
    exchange = max(network, inside) + min(network, inside) / max(nbytes / partition_bytes, 1.0)
    exposed = float(exposed_time(exchange, compute_time, overlap))
    crosses = gpu_machines > 1
    on_cpu = nbytes * float(formulas.cpu_share(n, k)) if crosses and cpu_machines else 0.0
    on_gpu = nbytes * float(formulas.gpu_share(n, k)) if crosses else nbytes
    used = min(cpu_machines, gpu_machines)
    if exposed <= compute_time:
        bottleneck, why = "compute", f"a step computes {format_seconds(compute_time)}"
    elif network >= inside:
        bottleneck = "network"
        why = f"{gpu_machines} GPU and {used} CPU machines exchange {format_bytes(nbytes)} in {format_seconds(network)}"
    else:
        bottleneck, why = "machine", f"the GPUs of a machine sum {format_bytes(nbytes)} in {format_seconds(inside)}"
    return BytePSStep(
        step_time=compute_time + exposed, exchange_time=exchange, network_time=network, machine_time=inside,
        cpu_machine_bytes=on_cpu, gpu_machine_bytes=on_gpu,
        gpu_traffic=float(formulas.gpu_machine_time(nbytes, n, on_gpu / nbytes, 1.0)) if crosses and nbytes else 0.0,
        cpu_traffic=float(formulas.cpu_machine_time(nbytes, n, on_cpu / nbytes, 1.0)) if nbytes else 0.0,
        gain_over_all_reduce=float(formulas.gain_over_all_reduce(n, k)) if crosses else 1.0,
        gain_over_parameter_server=float(formulas.gain_over_parameter_server(n, k)) if crosses and used else None,
        bottleneck=bottleneck, why=why,
    )  # fmt: skip
