r"""What RCCL expects each of its algorithms to take on AMD's GPUs: its tuning tables and what it knows of xGMI.

RCCL is NCCL with other constants (`costmodel.formulas.network.nccl` has the formulas): no limits by architecture, but the
share of the bus that each algorithm and protocol reaches, and factors on it by size. On one node these are times.
Between nodes they steer: 320 us for a hop of a ring in Simple, a tenth of its bandwidth up to 128 MiB, and then the
protocol is set by the bytes. Constants: ROCm/rccl@9e22c79 src/graph/tuning.cc; links: @08814b0 src/graph/topo.h;
which table when: @cb829d6 src/graph/rome_models.cc; thresholds on one node: @00c78b7 src/rccl_wrap.cc.
"""

from __future__ import annotations

from typing import NamedTuple

from costmodel.formulas.network.nccl import LL, LL128, SIMPLE, Algorithm, Protocols
from costmodel.formulas.quantities import Number

FAMILIES = {"cdna3": "cdna", "cdna4": "cdna"}
"""Whose measured constants an architecture shares."""
LINK, SPECIFIED = 48e9, 64e9
"""Of an xGMI link of an MI300X and direction, as RCCL reckons with it and as specified [bytes/s]. It reckons the same
for an MI355X, whose links are faster: ROCm/rccl#1210 explains the share as what CRC and headers leave."""


class Range(NamedTuple):
    """Bytes above `after` and up to `upto`."""

    after: float
    upto: float


class TuningTable(NamedTuple):
    """A tuning table; `nvlink` of its algorithms is xGMI."""

    algorithms: dict[str, Algorithm]
    shares: dict[str, Protocols]  # of the bus, on one and two nodes
    shares_of_many: dict[str, Protocols]  # of the bus, on more than two nodes
    correction: dict[str, dict[str, tuple[float, ...]]]  # of the share at 64 B, 128 B, ... 4 GiB
    ranges: dict[str, tuple[Range, Range]]  # bytes that LL and LL128 get between nodes, by operation
    ll128: bool  # enabled


_us = Protocols.microseconds
_BASE = _us(12.0, 12.0, 17.0)
_PCI = _us(2.2, 2.2, 5.7)
_LL_TREE = (*(0.1,) * 6, 1, 1, 1, 1, 1, 0.6, 1, 0.9, 1, 1, *(0.1,) * 11)
_LL_RING = (*(0.1,) * 11, 1, 0.2, 1, 0.4, 0.4, 0.1, 0.2, 0.2, *(0.1,) * 8)

PLAIN = TuningTable(
    algorithms={
        "tree": Algorithm(_BASE, _us(0.8, 1.4, 2.5), _PCI, _us(11.8, 18.2, 20.8)),
        "ring": Algorithm(_BASE, _us(0.8, 2.2, 3.6), _PCI, _us(9.5, 19.8, 15.1)),
    },
    shares={"tree": Protocols(0.04, 0.22, 0.91), "ring": Protocols(0.04, 0.34, 1.0)},
    shares_of_many={"tree": Protocols(0.04, 0.22, 0.95), "ring": Protocols(0.04, 0.34, 1.0)},
    correction={
        "tree": {
            LL: (0.1, 0.2, 0.1, 0.1, 0.9, 0.3, 0.4, 0.1, 0.2, 0.4, 0.2, 0.1, 0.3, 0.3, 0.2, 0.2, 0.2, *(0.1,) * 10),
            LL128: (0.1, 0.3, 1, 0.1, 0.5, 1, 0.9, 1, 1, 1, 0.3, 0.1, 0.4, 0.5, 0.5, 0.4, 0.4, 0.3, 0.3, *(0.2,) * 8),
            SIMPLE: (
                0.2, 1, 0.1, 0.1, 0.7, 0.2, 0.4, 0.1, 0.1, 0.3, 0.4, 0.3, 0.6, 0.8, 1, 1, 1, 1, 0.9, *(0.8,) * 5, *(0.9,) * 3,
            ),
        },
        "ring": {
            LL: (0.1, 0.1, 0.1, 0.1, 0.1, 0.2, 0.4, 0.2, 0.3, 0.5, 0.3, 0.1, 0.5, 0.5, 0.3, 0.2, 0.2, *(0.1,) * 10),
            LL128: (*(0.1,) * 9, 0.3, 1, 1, 1, 1, 1, 1, 0.8, 0.7, 0.5, 0.4, 0.4, *(0.3,) * 6),
            SIMPLE: (1, 0.8, 0.2, 1, 1, 0.3, 1, 0.1, 0.1, 0.2, 0.2, 0.1, 0.5, 1, 0.8, 0.8, 1, 0.9, *(1,) * 9),
        },
    },
    ranges={}, ll128=False,
)  # fmt: skip
"""Of a topology that RCCL doesn't recognise, such as a part of a node."""

MI300X = TuningTable(
    algorithms={
        "tree": Algorithm(_BASE, _us(0.9, 0.9, 2.3), _PCI, _us(10.5, 10.5, 25.0)),
        "ring": Algorithm(_BASE, _us(0.8, 0.8, 2.1), _PCI, _us(9.5, 9.5, 320.0)),
    },
    shares={"tree": Protocols(0.06, 0.06, 0.11), "ring": Protocols(0.08, 0.08, 1.0)},
    shares_of_many={"tree": Protocols(0.06, 0.06, 0.59), "ring": Protocols(0.08, 0.08, 1.0)},
    correction={
        "tree": {LL: _LL_TREE, LL128: _LL_TREE, SIMPLE: (*(0.1,) * 15, 0.7, 1, 1, 1, 1, 1, 0.7, 0.7, 0.5, 0.6, 0.6, 0.6)},
        "ring": {LL: _LL_RING, LL128: _LL_RING, SIMPLE: (*(0.1,) * 22, 1, 0.8, 1, 1, 1)},
    },
    ranges={
        "reduce-scatter": (Range(0, 655360), Range(131072, 3211264)),
        "all-gather": (Range(0, 98304), Range(98304, 5046272)),
        "all-reduce": (Range(0, 1048576), Range(1048576, 9437184)),
    },
    ll128=True,
)  # fmt: skip
"""Of eight MI300X or MI325X, each linked with each."""

MI355X = MI300X._replace(
    correction={
        "tree": {
            LL: _LL_TREE, LL128: (*_LL_TREE[:16], 1, 1, 1, 2, *(0.1,) * 7),
            SIMPLE: (*(0.1,) * 15, 0.7, 1, 0.1, 0.1, 0.1, 0.9, 0.9, 0.7, 0.8, 0.6, 0.6, 0.6),
        },
        "ring": {LL: _LL_RING, LL128: (*_LL_RING[:18], *(0.1,) * 9), SIMPLE: (*(0.1,) * 22, 1, 0.8, 0.8, 1, 1)},
    },
    ranges={
        "reduce-scatter": (Range(0, 131071), Range(131071, 4194304)),
        "all-gather": (Range(0, 7), Range(7, 8388608)),
        "all-reduce": (Range(0, 131071), Range(131071, 17660227)),
        "reduce": (Range(0, 16383), Range(16383, 16777216)),
        "broadcast": (Range(0, 2048), Range(2048, 16777216)),
    },
)  # fmt: skip
"""Of eight MI355X."""

TABLES = {"cdna3": MI300X, "cdna4": MI355X}
"""Table of a whole node, by architecture."""

LL_OF_A_NODE = {("cdna3", "reduce-scatter"): 352128.0, ("cdna4", "reduce-scatter"): 175488.0, ("cdna4", "all-gather"): 88448.0}
"""Bytes of a rank's part up to which LL is set on one node, by architecture and operation."""

DIRECT_GATHER = {"cdna3": (4194304.0, 0.0, 4194304.0), "cdna4": (8388608.0, 2097152.0, 75497472.0)}
"""Bytes up to which a gather is sent point to point, by architecture: on one node, for each of up to 63, on more; a part
for each node where it isn't 0, else what is last."""

LONE_LL = 1.65
"""Factor on the share of LL in a broadcast or a reduction on one node."""

LL128_OF_MANY = 3.8
"""Factor on the bytes that LL128 gets in an all-reduce on more than two nodes."""


def mesh_bandwidth(link: Number, members: Number) -> Number:
    """Bandwidth of a GPU's links to the others of its group on a fully connected node [bytes/s].

    Parameters
    ----------
    link : of one link, one direction [bytes/s]
    members : of the group on the node, at least 1

    Examples
    --------
    >>> mesh_bandwidth(48e9, 8.0)
    336000000000.0
    """
    return link * (members - 1.0)
