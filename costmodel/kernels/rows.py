"""The row loop: one plan a row, every part of its step in a column.

The loop has no branch, and rows lie in blocks of a fixed size, so that the compiler knows that no column
overlaps another and turns the loop into vector code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from costmodel._jit import kernel
from costmodel.formulas.quantities import Memory, PlanNumbers, Step
from costmodel.formulas.training_step import step, uncompressed_step

BLOCK = np.uint64(256)
FIELDS = np.uint64(len(PlanNumbers._fields))
PARTS = np.uint64(len(Step._fields) - 1 + len(Memory._fields))


def row_loop(formula: Callable[..., Step]) -> Any:
    """A kernel that evaluates a formula, `step` or one that gives the same for some options, row by row.

    Parameters
    ----------
    formula : of model, options, plan, network, software, device
    """

    @kernel
    def evaluate(model, options, plans, network, software, device, out, blocks):
        """Fill `out` with the parts of the step of `plans`, both in blocks of `BLOCK` rows.

        Parameters
        ----------
        model, options, network, software, device : tuples of floats
        plans : float array (blocks, fields of `PlanNumbers`, BLOCK), flat
        out : float array (blocks, parts of `Step` with its memory last and flat, BLOCK), flat
        blocks : how many, unsigned
        """
        for block in range(blocks):
            a = block * FIELDS * BLOCK
            b = block * PARTS * BLOCK
            for i in range(BLOCK):
                plan = PlanNumbers(
                    plans[a + np.uint64(0) * BLOCK + i],
                    plans[a + np.uint64(1) * BLOCK + i],
                    plans[a + np.uint64(2) * BLOCK + i],
                    plans[a + np.uint64(3) * BLOCK + i],
                    plans[a + np.uint64(4) * BLOCK + i],
                    plans[a + np.uint64(5) * BLOCK + i],
                    plans[a + np.uint64(6) * BLOCK + i],
                    plans[a + np.uint64(7) * BLOCK + i],
                    plans[a + np.uint64(8) * BLOCK + i],
                    plans[a + np.uint64(9) * BLOCK + i],
                    plans[a + np.uint64(10) * BLOCK + i],
                    plans[a + np.uint64(11) * BLOCK + i],
                    plans[a + np.uint64(12) * BLOCK + i],
                    plans[a + np.uint64(13) * BLOCK + i],
                    plans[a + np.uint64(14) * BLOCK + i],
                    plans[a + np.uint64(15) * BLOCK + i],
                    plans[a + np.uint64(16) * BLOCK + i],
                    plans[a + np.uint64(17) * BLOCK + i],
                    plans[a + np.uint64(18) * BLOCK + i],
                    plans[a + np.uint64(19) * BLOCK + i],
                )
                result = formula(model, options, plan, network, software, device)
                held = result.memory
                out[b + np.uint64(0) * BLOCK + i] = result.total
                out[b + np.uint64(1) * BLOCK + i] = result.forward
                out[b + np.uint64(2) * BLOCK + i] = result.backward
                out[b + np.uint64(3) * BLOCK + i] = result.recompute
                out[b + np.uint64(4) * BLOCK + i] = result.tensor_exchange
                out[b + np.uint64(5) * BLOCK + i] = result.context_exchange
                out[b + np.uint64(6) * BLOCK + i] = result.expert_exchange
                out[b + np.uint64(7) * BLOCK + i] = result.pipeline_exchange
                out[b + np.uint64(8) * BLOCK + i] = result.bubble
                out[b + np.uint64(9) * BLOCK + i] = result.gradient_exchange
                out[b + np.uint64(10) * BLOCK + i] = result.parameter_exchange
                out[b + np.uint64(11) * BLOCK + i] = result.optimizer
                out[b + np.uint64(12) * BLOCK + i] = result.host
                out[b + np.uint64(13) * BLOCK + i] = result.hidden_exchange
                out[b + np.uint64(14) * BLOCK + i] = result.exchange_bytes
                out[b + np.uint64(15) * BLOCK + i] = result.model_flop
                out[b + np.uint64(16) * BLOCK + i] = result.hardware_flop
                out[b + np.uint64(17) * BLOCK + i] = held.total
                out[b + np.uint64(18) * BLOCK + i] = held.weights
                out[b + np.uint64(19) * BLOCK + i] = held.gradients
                out[b + np.uint64(20) * BLOCK + i] = held.optimizer
                out[b + np.uint64(21) * BLOCK + i] = held.activations
                out[b + np.uint64(22) * BLOCK + i] = held.temporaries
                out[b + np.uint64(23) * BLOCK + i] = held.logits
                out[b + np.uint64(24) * BLOCK + i] = held.buffers
                out[b + np.uint64(25) * BLOCK + i] = held.overhead

    return evaluate


evaluate, evaluate_compressed = row_loop(uncompressed_step), row_loop(step)
