"""Whether a run is meant to be of 16 bits, and what in it is wider: products."""

from __future__ import annotations

from collections.abc import Iterator

from costmodel.text.units import counted
from costmodel.traces.faults.fault import Examined, Fault
from costmodel.traces.kernels import rates_of, signatures
from costmodel.traces.record import KERNEL, Role

NARROW = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
WIDE_SHARE = 1e-3
"""Of a step's products, from which those in 32 bits count: rotations and routers have fewer."""


def is_narrow_run(role: Role) -> bool:
    """Whether most of a role's products are of 16 bits or fewer."""
    flop = {True: 0, False: 0}
    dtypes = [set(text.split()) for text in role.texts]
    for code, count in zip(role.kernels.dtypes.tolist(), role.kernels.flop.tolist(), strict=True):
        flop[bool(dtypes[code] & set(NARROW))] += count
    return flop[True] > flop[False]


def narrow_parameters(role: Role) -> bool | None:
    """Whether most weights that train are held in 16 bits; None where the record has none."""
    parameters = role.parameters
    if not len(parameters):
        return None
    narrow = sum(
        int(count) * (1 if role.texts[dtype] in NARROW else -1)
        for dtype, count, trains in zip(parameters.dtype, parameters.elements, parameters.trainable, strict=True)
        if trains
    )
    return narrow > 0


def wide_products(asked: Examined) -> Iterator[Fault]:
    """Products in 32 bits of a run in 16."""
    made = asked.estimate
    rates = rates_of(made.trace, made.cluster.device, made.framework.numbers())
    for role in made.trace.roles:
        if not is_narrow_run(role):
            continue
        rows = role.rows(KERNEL, role.step())
        total, (kernels, which) = float(role.kernels.flop[rows].sum()), signatures(role)
        found: dict[int, list[int]] = {}
        for row in rows.tolist():
            kernel = kernels[which[row]]
            if (kernel.is_product or kernel.is_attention) and "float32" in kernel.dtypes and not set(kernel.dtypes) & set(NARROW):
                found.setdefault(int(role.kernels.line[row]), []).append(row)
        for line, products in found.items():
            flop = float(role.kernels.flop[products].sum())
            if flop < WIDE_SHARE * total:
                continue
            saved = 0.0
            for row in products:
                wide = kernels[which[row]]
                narrow = wide._replace(dtypes=("bfloat16",) * len(wide.dtypes), read=wide.read / 2.0, written=wide.written / 2.0)
                saved += rates.time(wide) - rates.time(narrow)
            yield Fault(
                kind="wide product", rank=role.rank, module=role.texts[role.kernels.module[products[0]]], line=role.texts[line],
                sentence=f"{counted(len(products), 'product')} in 32 bits, {100.0 * flop / total:.1f} % of the step's FLOP, of a "
                "run in 16",
                seconds=max(saved, 0.0),
            )  # fmt: skip
