"""Many runs as columns, so that one evaluation of the formulas predicts all of them, whatever their constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodel.arithmetic.named_tuples import flat, nested
from costmodel.compilation import programs
from costmodel.description.question import Question
from costmodel.description.run import Run
from costmodel.evaluation.counted_memory import Count, counted_columns
from costmodel.evaluation.engine import unflatten
from costmodel.evaluation.own_runs_fit import Array
from costmodel.formulas.quantities import Inputs, Step


def evaluated(columns: Inputs) -> Step:
    """Every part of every run's step."""
    program = programs.every_part_of_runs()
    count = len(np.asarray(columns.model.layers))
    return unflatten(list(programs.results_of(program.parts["rows"], programs.scalars_of(program, columns), columns, count)))


def columns_of(runs: Sequence[Run]) -> Inputs:
    """Everything that formulas take, one entry a run."""
    table = [flat(Question(run.model, run.cluster, run.framework).inputs(run.plan)) for run in runs]
    return nested(Inputs, {path: np.array([row[path] for row in table], dtype=float) for path in table[0]})


def logged_memory(runs: Sequence[Run], columns: Inputs) -> Array:
    """Peak bytes as each run counted them."""
    counts = [Count(run.memory_kind, run.memory_of) for run in runs]
    return counted_columns(columns, np.asarray(columns.device.memory, dtype=float), counts)
