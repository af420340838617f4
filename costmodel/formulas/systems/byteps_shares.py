r"""BytePS: gradients summed on spare CPU machines and on the GPU machines, each in the share that its links can bear.

:math:`n` GPU machines, each with a communication service, have the gradient :math:`M`; a summation service runs on
each of them and on :math:`k` CPU machines. All links have the same bandwidth :math:`B` in each direction.

The paper prints its equation (4) as :math:`t_c = M_{SS_{CPU}} / B`; a CPU machine hears from all GPU machines, and
its text and equation (6) need :math:`t_c = n M_{SS_{CPU}} / B`, which is used here.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number

ARGUMENTS = {
    "gpu_machines": "n", "nbytes": "gradient M [bytes]", "cpu_bandwidth": "from a switch to the CPU b_SC [bytes/s]",
    "bandwidth": "B, each direction [bytes/s]", "gpu_bandwidth": "from a GPU to its switch b_NS [bytes/s]",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""


def _balance(gpu_machines: Number, cpu_machines: Number) -> Number:
    """The paper's n^2 + k n - 2 k; 1 for a single GPU machine, which has nothing to exchange."""
    square = gpu_machines * gpu_machines + cpu_machines * (gpu_machines - 2.0)
    return ops.where(gpu_machines > 1.0, square, 1.0)


def cpu_share(gpu_machines: Number, cpu_machines: Number) -> Number:
    r"""Share of the gradient that each CPU machine sums, :math:`M_{SS_{CPU}} / M`.

    .. math:: \frac{2 (n - 1)}{n^2 + k n - 2 k}, \qquad \frac{1}{k} \text{ for } k \ge n

    Parameters
    ----------
    cpu_machines : :math:`k`, at least 1

    References
    ----------
    [jiang2020]_ equation (1); bytedance/byteps global.cc ``Hash_Mixed_Mode`` has :math:`k` times this as its ratio

    Examples
    --------
    >>> cpu_share(8.0, 8.0), cpu_share(4.0, 8.0)
    (0.125, 0.125)
    """
    used = ops.minimum(cpu_machines, gpu_machines)
    return 2.0 * (gpu_machines - 1.0) / _balance(gpu_machines, used) * used / ops.maximum(cpu_machines, 1.0)


def gpu_share(gpu_machines: Number, cpu_machines: Number) -> Number:
    r"""Share of the gradient that each GPU machine sums, :math:`M_{SS_{GPU}} / M`.

    .. math:: \frac{n - k}{n^2 + k n - 2 k}, \qquad 0 \text{ for } k \ge n

    Parameters
    ----------
    cpu_machines : :math:`k`

    References
    ----------
    [jiang2020]_ equation (2)

    Examples
    --------
    >>> gpu_share(8.0, 0.0), gpu_share(8.0, 8.0)
    (0.125, 0.0)
    """
    used = ops.minimum(cpu_machines, gpu_machines)
    return (gpu_machines - used) / _balance(gpu_machines, used)


def gpu_machine_time(nbytes: Number, gpu_machines: Number, share: Number, bandwidth: Number) -> Number:
    r"""Time of a GPU machine's link if each GPU machine sums a share of the gradient [s].

    .. math:: t_g = \frac{M + (n - 2) M_{SS_{GPU}}}{B}

    Parameters
    ----------
    share : :math:`M_{SS_{GPU}} / M`

    References
    ----------
    [jiang2020]_ equation (3)
    """
    return nbytes * (1.0 + (gpu_machines - 2.0) * share) / bandwidth


def cpu_machine_time(nbytes: Number, gpu_machines: Number, share: Number, bandwidth: Number) -> Number:
    r"""Time of a CPU machine's link if it sums a share of the gradient [s].

    .. math:: t_c = \frac{n M_{SS_{CPU}}}{B}

    Parameters
    ----------
    share : :math:`M_{SS_{CPU}} / M`

    References
    ----------
    [jiang2020]_ equation (4) with its factor :math:`n`
    """
    return nbytes * gpu_machines * share / bandwidth


def optimal_time(nbytes: Number, gpu_machines: Number, cpu_machines: Number, bandwidth: Number) -> Number:
    r"""Time of an exchange between machines with the optimal shares [s]; no assignment is faster.

    .. math:: t_{opt} = \frac{2 n (n - 1) M}{(n^2 + k n - 2 k) B}, \qquad \frac{M}{B} \text{ for } k \ge n

    Parameters
    ----------
    gpu_machines : :math:`n`; a single one has nothing to exchange
    cpu_machines : :math:`k`; more than :math:`n` are of no more use

    References
    ----------
    [jiang2020]_ equation (6)

    Examples
    --------
    Goodput of 90 Gbit/s links between 8 GPU machines and no, 4 and 8 CPU machines: the paper's figure 12.

    >>> [round(8 / 1e9 / optimal_time(1.0, 8.0, k, 90e9 / 8), 2) for k in (0.0, 4.0, 8.0)]
    [51.43, 70.71, 90.0]
    """
    used = ops.minimum(cpu_machines, gpu_machines)
    return 2.0 * gpu_machines * (gpu_machines - 1.0) * nbytes / (_balance(gpu_machines, used) * bandwidth)


def gain_over_all_reduce(gpu_machines: Number, cpu_machines: Number) -> Number:
    r"""Time of an all-reduce among the GPU machines over the optimal time.

    .. math:: \gamma_a = \frac{n^2 + k n - 2 k}{n^2}

    Parameters
    ----------
    gpu_machines : :math:`n`, at least 2
    cpu_machines : :math:`k`; more than :math:`n` are of no more use

    References
    ----------
    [jiang2020]_ equation (7)

    Examples
    --------
    >>> round(gain_over_all_reduce(32.0, 16.0), 2)
    1.47
    """
    return _balance(gpu_machines, ops.minimum(cpu_machines, gpu_machines)) / (gpu_machines * gpu_machines)


def gain_over_parameter_server(gpu_machines: Number, cpu_machines: Number) -> Number:
    r"""Time of a parameter server on the CPU machines alone over the optimal time.

    .. math:: \gamma_p = \frac{n^2 + k n - 2 k}{2 k (n - 1)}, \qquad 1 \text{ for } k \ge n

    Parameters
    ----------
    gpu_machines : :math:`n`, at least 2
    cpu_machines : :math:`k`, at least 1

    References
    ----------
    [jiang2020]_ equation (8)

    Examples
    --------
    >>> round(gain_over_parameter_server(32.0, 16.0), 2)
    1.52
    """
    used = ops.minimum(cpu_machines, gpu_machines)
    return _balance(gpu_machines, used) / (2.0 * used * (gpu_machines - 1.0))


def pcie_time(
    nbytes: Number, gpus: Number, direct: Number, cpu_bandwidth: Number, gpu_bandwidth: Number,
) -> Number:  # fmt: skip
    r"""Time inside a machine without NVLink, if part of the gradient is summed by the CPU straight from each GPU [s].

    .. math:: J(x) = M \max\left(\frac{l x + 1 - x}{b_{SC}},\; \frac{\frac{2 l - 1}{l} (1 - x) + x}{b_{NS}}\right)

    The rest is CPU-assisted aggregation: reduce-scatter under each switch, so that a switch sends the gradient to the
    CPU once. :math:`x = 0` is that alone, :math:`x = 1` the CPU alone.

    Parameters
    ----------
    nbytes : gradient :math:`M` of each GPU [bytes]
    gpus : GPUs of a PCIe switch :math:`l`
    direct : share :math:`x` that goes from each GPU to the CPU

    References
    ----------
    [jiang2020]_ section 4.2.1

    Examples
    --------
    The optimal split gains 9 % over CPU-assisted aggregation alone, for 4 GPUs a switch.

    >>> assisted = pcie_time(1e9, 4.0, 0.0, 13.1e9, 13.1e9)
    >>> round(assisted / pcie_time(1e9, 4.0, 0.2, 13.1e9, 13.1e9), 4)
    1.0938
    """
    to_cpu = (1.0 + (gpus - 1.0) * direct) / cpu_bandwidth
    among = ((2.0 * gpus - 1.0) / gpus * (1.0 - direct) + direct) / gpu_bandwidth
    return nbytes * ops.maximum(to_cpu, among)


def optimal_direct_share(gpus: Number, cpu_bandwidth: Number, gpu_bandwidth: Number) -> Number:
    r"""The share that makes `pcie_time` least: where both links take the same time, or none.

    .. math:: x^* = \max\left(0, \frac{(2 l - 1) b_{SC} - l b_{NS}}{(l - 1) (l b_{NS} + b_{SC})}\right)

    Parameters
    ----------
    gpus : GPUs of a PCIe switch :math:`l`, at least 2

    References
    ----------
    [jiang2020]_ section 4.2.1

    Examples
    --------
    >>> round(optimal_direct_share(4.0, 13.1e9, 13.1e9), 12)
    0.2
    """
    excess = (2.0 * gpus - 1.0) * cpu_bandwidth - gpus * gpu_bandwidth
    share = excess / ((gpus - 1.0) * (gpus * gpu_bandwidth + cpu_bandwidth))
    return ops.minimum(ops.maximum(share, 0.0), 1.0)


def nvlink_time(
    nbytes: Number, nvlink_bandwidth: Number, cpu_bandwidth: Number, shared_switch: Number,
) -> Number:  # fmt: skip
    r"""Time inside a machine with NVLink: reduce to one GPU, copy to the CPU, and back [s].

    .. math:: M \max\left(\frac{1}{b_{NV}}, \frac{1 + c}{b_{SC}}\right)

    Reduce and broadcast run along a chain in opposite directions, at the same time as the copies. A root whose
    PCIe switch has the NIC on it (:math:`c = 1`) shares that switch's link to the CPU with the network's traffic, so
    BytePS takes a root elsewhere.

    Parameters
    ----------
    nbytes : gradient :math:`M` of each GPU [bytes]
    nvlink_bandwidth : of a GPU to the next, one direction :math:`b_{NV}` [bytes/s]
    shared_switch : 1 if the root's switch has the NIC on it, else 0: :math:`c`

    References
    ----------
    [jiang2020]_ section 4.2.2

    Examples
    --------
    >>> nvlink_time(1e9, 25e9, 10e9, 1.0)
    0.2
    """
    return nbytes * ops.maximum(1.0 / nvlink_bandwidth, (1.0 + shared_switch) / cpu_bandwidth)
