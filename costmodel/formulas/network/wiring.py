r"""What a ring through some of a node's GPUs reaches, by how the node is wired.

The bandwidth of a level is what each GPU gets when all of the node take part. Through a switch, fewer get the same;
on a shared bus they get more; where every pair has links of its own they get less, and in a hybrid cube mesh as much
as rings can be laid along the links between them.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number


def bus_bandwidth_of_members(bandwidth: Number, members: Number, size: Number) -> Number:
    r"""Rate of each of `members` GPUs on a bus that all `size` share [bytes/s].

    .. math:: B \frac{n}{k}

    Parameters
    ----------
    bandwidth : of a GPU when all share the bus :math:`B` [bytes/s]
    members : in the ring :math:`k`
    size : GPUs on the bus :math:`n`

    Examples
    --------
    >>> bus_bandwidth_of_members(3.75e9, 2.0, 4.0)
    7500000000.0
    """
    return bandwidth * size / members


def mesh_bandwidth_of_members(bandwidth: Number, members: Number, size: Number) -> Number:
    r"""Rate of each of `members` GPUs whose links go to every other GPU alike: those to GPUs outside lie idle [bytes/s].

    .. math:: B \frac{k - 1}{n - 1}

    Two of eight MI300X reach 1/7 of 312.9 GB/s = 44.7 GB/s; 47.7 GB/s were measured.

    Parameters
    ----------
    bandwidth : of a GPU over all its links :math:`B` [bytes/s]
    members : in the ring :math:`k`
    size : GPUs of the mesh :math:`n`; one alone has nobody to reach, and keeps its rate

    References
    ----------
    stas00/ml-engineering network/README.md (MI300X)
    """
    return bandwidth * ops.where(size > 1.0, (members - 1.0) / ops.maximum(1.0, size - 1.0), 1.0)


CUBE_MESH_LINKS = 6.0
"""NVLinks of a V100."""
CUBE_MESH_RINGS = (0.0, 6.0, 1.0, 2.0, 4.0, 0.6, 2.0, 4.0, 6.0)
"""Rings of one link's rate through the first 0 to 8 GPUs of a hybrid cube mesh: every ring of three and more runs both ways.
Five have none along links alone; theirs goes over PCIe, at 12 of a link's 20 GB/s."""


def cube_mesh_bandwidth_of_members(bandwidth: Number, members: Number) -> Number:
    r"""Rate of a ring through the first `members` of eight V100s whose six links each form a hybrid cube mesh [bytes/s].

    .. math:: B \frac{r_k}{6}

    with :math:`r_k` rings through :math:`k` GPUs. Two have one link of six between them, four have four rings.

    Parameters
    ----------
    bandwidth : of a GPU over all its links :math:`B` [bytes/s]
    members : in the ring :math:`k`, 1 to 8, more count as 8; one alone has nobody to reach, and keeps its rate

    References
    ----------
    NVIDIA DGX-1 with Tesla V100 system architecture, figure 4 (links); NVIDIA/nccl@5067397 src/graph/topo.h (rates)

    Examples
    --------
    >>> cube_mesh_bandwidth_of_members(120e9, 2.0), cube_mesh_bandwidth_of_members(120e9, 4.0)
    (20000000000.0, 80000000000.0)
    """
    return bandwidth * ops.pick(ops.minimum(members, 8.0), CUBE_MESH_RINGS) / CUBE_MESH_LINKS
