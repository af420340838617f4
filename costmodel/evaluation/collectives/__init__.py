"""How long a collective takes on a cluster, by which algorithm, and why: NCCL or RCCL as they decide, or the textbook.

>>> from costmodel import load_cluster
>>> answer = collective_time("all-reduce", 2**30, 8, load_cluster("dgx-h100"))
>>> answer.algorithm, answer.protocol, round(answer.time * 1e3, 1)
('nvls', 'simple', 4.1)
"""

from costmodel.evaluation.collectives.answer import OPERATIONS, Alternative, CollectiveTime, bus_factor, phases_of
from costmodel.evaluation.collectives.libraries import LIBRARIES, NCCL_NAMES, RCCL_NAMES, library_of
from costmodel.evaluation.collectives.place import TEXTBOOK
from costmodel.evaluation.collectives.questions import LATEST, collective_time, expected_by_nccl, expected_by_rccl

__all__ = [
    "LATEST", "LIBRARIES", "NCCL_NAMES", "OPERATIONS", "RCCL_NAMES", "TEXTBOOK", "Alternative", "CollectiveTime",
    "bus_factor", "collective_time", "expected_by_nccl", "expected_by_rccl", "library_of", "phases_of",
]  # fmt: skip
