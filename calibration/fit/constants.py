"""Which constants are fitted, what is believed of each before measuring, and where each acts among the cases."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.data.cases import Case
from calibration.validate.predictions import Columns, columns_of
from costmodel.catalogue.software import default_constants
from costmodel.formulas.quantities import DeviceNumbers, Software
from costmodel.records import flat, paths, replaced
from costmodel.solvers.fitting import Array, Constant

DEVICE_FIELDS: dict[str, tuple[float, float, float]] = {
    "gemm_efficiency": (0.1, 0.05, 0.9),
    "gemm_output": (0.7, 1e3, 3e7),
    "gemm_depth": (0.7, 1.0, 5e3),
    "attention_forward_efficiency": (0.2, 0.02, 1.0),
    "attention_backward_efficiency": (0.2, 0.02, 1.0),
    "attention_length": (0.7, 1.0, 1e5),
    "memory_bandwidth": (0.05, 1e10, 2e13),
    "kernel_time": (0.5, 1e-7, 1e-4),
}
"""Spread before measuring (of the logarithm), and bounds, of a device's constants.

No product on a GPU reaches 0.9 of the dense peak: the best of a search over shapes takes 0.51 to 0.87 of it on ten GPUs
from the A100 on (stas00/ml-engineering@744d01e compute/accelerator/README.md, table of MAMF).
"""

SHARED_EFFICIENCY = {"fp16": "bf16"}
"""Dtypes whose products have the efficiency of another: both 16-bit formats run on the same units."""
GEMM_PRIOR = {"bf16": 0.75, "fp8": 0.65, "fp8-rowwise": 0.5, "mxfp8": 0.65, "nvfp4": 0.5, "fp32": 0.8, "tf32": 0.75}
DEVICE_PRIOR = {
    "gemm_output": 5e5, "gemm_depth": 200.0, "attention_forward_efficiency": 0.6,
    "attention_backward_efficiency": 0.48, "attention_length": 600.0, "memory_bandwidth": 0.85, "kernel_time": 4e-6,
}  # fmt: skip
"""What is believed of any device before measuring; of its bandwidth, the share of the specified one."""

STACK_FIELDS: dict[str, tuple[float, float, float]] = {
    "compute_gemm_efficiency_scale": (0.12, 0.1, 1.2),
    "compute_attention_efficiency_scale": (0.4, 0.02, 2.0),
    "compute_elementwise_traffic": (0.6, 0.05, 20.0),
    "host_forward": (1.0, 1e-6, 1e-1),
    "host_backward": (1.0, 1e-6, 1e-1),
    "host_collective_launch": (0.7, 1e-6, 1e-2),
    "host_micro_batch": (1.0, 1e-6, 1.0),
    "host_step": (1.0, 1e-5, 1e1),
    "host_unfused_launches": (0.5, 0.01, 2.0),
    "host_jitter": (1.0, 1e-4, 0.5),
    "host_pipeline_jitter": (2.5, 1e-5, 3.0),
    "network_sharding_quality": (0.3, 0.05, 1.5),
    "network_latency": (0.7, 0.1, 50.0),
    "network_node_latency": (0.5, 0.1, 30.0),
    "host_straggler_time": (2.5, 1e-6, 10.0),
    "host_pressure_time": (2.5, 1e-6, 10.0),
    "network_quality": (0.3, 0.02, 1.2),
    "overlap_tensor": (0.7, 1e-3, 1.0),
    "overlap_gradients": (0.5, 1e-2, 1.0),
    "overlap_parameters": (0.5, 1e-2, 1.0),
    "overlap_context": (0.5, 1e-2, 1.0),
    "overlap_experts": (1.0, 1e-3, 1.0),
    "overlap_pipeline": (0.5, 1e-2, 1.0),
    "compute_contention": (0.7, 1e-3, 0.8),
    "compute_optimizer_traffic": (0.5, 0.3, 20.0),
}
"""The same of a framework's constants of time."""

MEMORY_FIELDS: dict[str, tuple[float, float, float]] = {
    "memory_activation_overhead": (0.1, 0.5, 3.0),
    "memory_backward_overhead": (0.5, 0.05, 4.0),
    "memory_logit_overhead": (0.3, 0.2, 4.0),
    "memory_workspace": (1.0, 1e6, 4e9),
    "memory_fixed": (0.7, 1e7, 3e10),
    "memory_library_overhead": (0.7, 0.02, 50.0),
    "memory_fragmentation": (0.7, 1e-3, 0.6),
}
"""The same of its constants of memory."""


PRIOR = default_constants()
"""What is believed of a framework before measuring."""


@dataclasses.dataclass
class Problem:
    """Cases with their unknown constants.

    Parameters
    ----------
    cases : measured runs
    columns : them as columns, at the catalogue's constants
    constants : what is unknown
    places : for each constant: tuple name, field name, rows
    """

    cases: Sequence[Case]
    columns: Columns
    constants: list[Constant]
    places: list[list[tuple[str, str, Array]]]

    @property
    def affects(self) -> list[Array]:
        """Array that depend on each constant."""
        return [np.unique(np.concatenate([rows for _, _, rows in place])) for place in self.places]

    def at(self, values: Array, rows: Array | None = None) -> Columns:
        """The columns with the constants at `values`, all rows or some."""
        columns = self.columns if rows is None else take(self.columns, rows)
        changed: dict[str, dict[str, Array]] = {"device": {}, "software": {}}
        known = {part: flat(getattr(columns, part)) for part in changed}
        for (part, field), index in self.owners.items():
            owner = index if rows is None else index[rows]
            changed[part][field] = np.where(owner >= 0, values[owner], known[part][field])
        return dataclasses.replace(
            columns,
            device=replaced(columns.device, changed["device"]),
            software=replaced(columns.software, changed["software"]),
        )

    @functools.cached_property
    def owners(self) -> dict[tuple[str, str], NDArray[np.int64]]:
        """For each column that constants fill: the constant of every row, -1 for none."""
        index: dict[tuple[str, str], NDArray[np.int64]] = {}
        for number, place in enumerate(self.places):
            for part, field, rows in place:
                index.setdefault((part, field), np.full(len(self.cases), -1))[rows] = number
        return index


def take(columns: Columns, rows: Array) -> Columns:
    """Some rows of the columns."""

    def pick(item: Any) -> Any:
        return type(item)(*(pick(field) if isinstance(field, tuple) else field[rows] for field in item))

    return Columns(*(pick(getattr(columns, field.name)) for field in dataclasses.fields(Columns)))


def memory_problem_of(cases: Sequence[Case]) -> Problem:
    """The cases and every constant of memory that at least one of them depends on."""
    columns = columns_of(cases)
    constants, places = _stack_constants(cases, columns, MEMORY_FIELDS)
    return Problem(cases, columns, constants, places)


def _stack_constants(
    cases: Sequence[Case], columns: Columns, fields: dict[str, tuple[float, float, float]]
) -> tuple[list[Constant], list[list[tuple[str, str, Array]]]]:
    """Constants of every framework on every architecture, and the rows in which each acts."""
    constants: list[Constant] = []
    places: list[list[tuple[str, str, Array]]] = []
    stacks = np.array([f"{case.framework.name}@{case.cluster.device.architecture}" for case in cases])
    for stack in sorted(set(stacks)):
        rows = np.flatnonzero(stacks == stack)
        for field, (spread, low, high) in fields.items():
            value = float(PRIOR[field])
            constants.append(Constant(stack, field, max(value, low), spread, low, high))
            places.append([("software", field, rows)])
    return constants, places


def problem_of(cases: Sequence[Case]) -> Problem:
    """The cases and every constant of time that at least one of them depends on."""
    columns = columns_of(cases)
    constants: list[Constant] = []
    places: list[list[tuple[str, str, Array]]] = []
    names = np.array([case.cluster.device.name for case in cases])
    dtypes = np.array([_efficiency_dtype(case) for case in cases])
    bases = np.array([_base_dtype(case) for case in cases])
    for device in sorted(set(names)):
        mine = names == device
        for field, (spread, low, high) in DEVICE_FIELDS.items():
            if field == "gemm_efficiency":
                for dtype in sorted({*dtypes[mine], *bases[mine]}):
                    rows, base = np.flatnonzero(mine & (dtypes == dtype)), np.flatnonzero(mine & (bases == dtype))
                    value = GEMM_PRIOR.get(dtype, GEMM_PRIOR["bf16"])
                    constants.append(Constant(device, f"gemm.{dtype}", value, spread, low, high))
                    places.append([("device", field, rows), ("device", "base_gemm_efficiency", base)])
                continue
            rows = np.flatnonzero(mine)
            specified = cases[rows[0]].cluster.device.memory_bandwidth
            value = DEVICE_PRIOR[field] * (specified if field == "memory_bandwidth" else 1.0)
            constants.append(Constant(device, field, value, spread, low, high))
            places.append([("device", field, rows)])
    more, where = _stack_constants(cases, columns, STACK_FIELDS)
    constants += more
    places += where
    return Problem(cases, columns, constants, places)


def _efficiency_dtype(case: Case) -> str:
    return SHARED_EFFICIENCY.get(case.plan.dtype, case.plan.dtype)


def _base_dtype(case: Case) -> str:
    return "bf16" if case.plan.dtype not in ("fp32", "tf32") else case.plan.dtype


assert set(DEVICE_FIELDS) <= set(DeviceNumbers._fields)
assert set(STACK_FIELDS) | set(MEMORY_FIELDS) <= set(paths(Software))
