"""What a launch file says, and what its framework adds."""

from __future__ import annotations

import dataclasses

from costmodel.arithmetic.named_tuples import Row
from costmodel.description.fields import table
from costmodel.description.plan import Plan
from costmodel.text.results import brief

PLAN_FIELDS = (
    *(name for name, row in table(Plan).items() if row.launched), "ulysses_parallel", "fsdp", "gradient_accumulation", "offload",
)  # fmt: skip
"""What every launch is asked for; a file can state more of `costmodel.Plan`."""
EXTRA_FIELDS = (
    *(name for name in table(Plan) if name not in PLAN_FIELDS), "recompute_every", "recompute_modules", "optimizer_states",
    "sized_by_width", "paired", "referred", "software",
)  # fmt: skip
"""Further fields of a plan, and the software that takes a framework's place, in a launch only where a file states them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Described:
    """One run as its launch files describe it: fields, not yet checked against each other or a cluster."""

    framework: str  # whose files they are
    dialect: str  # in which of its dialects
    files: tuple[str, ...]  # names of what was read
    version: str | None  # of the framework or its layout, where the file tells
    release: str | None  # month of the software that the files ask for, ``2024-09``
    # the model's name, or its shape by field (``num_layers``, ``hidden_size``, ...), or None
    model_described: str | dict[str, object] | None = dataclasses.field(hash=False)
    gpus: int | None  # world size, or None where the files don't say
    # fields of a plan with their values: what the files state, what follows from that, and the framework's defaults
    plan_fields: Row = dataclasses.field(hash=False)
    # fields that the files leave open, with the value that the default gives them, None where there is none
    assumed: dict[str, object] = dataclasses.field(hash=False)
    derived: tuple[str, ...]  # fields that follow from others
    unknown: tuple[str, ...]  # flags that were not understood
    irrelevant: tuple[str, ...]  # flags that are known and change neither time nor memory
    unpriced: tuple[str, ...]  # flags that change time or memory in a way that isn't modelled
    ineffective: tuple[str, ...]  # fields that are stated and do nothing here
    conflicts: tuple[str, ...]  # statements that can't all be true; a field that is stated twice differently is None
    unresolved: dict[str, str] = dataclasses.field(hash=False)  # flags whose value is a variable, with that value
    # fields that a file decides which is named and was not given, with how it is named
    missing: dict[str, str] = dataclasses.field(hash=False)
    notes: tuple[str, ...]  # what else a reader should know

    __repr__ = brief

    def to_dict(self) -> dict[str, object]:
        """Everything as plain lists and tables, for JSON."""
        shorter = {"plan_fields": "plan", "model_described": "model"}
        plain = {shorter.get(name, name): value for name, value in dataclasses.asdict(self).items()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
