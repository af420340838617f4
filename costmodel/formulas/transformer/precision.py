"""Bytes of a number format and of an optimizer's state, and the steps that dynamic loss scaling skips.

What weights, gradients and optimizer states take together, sharded or not, is `costmodel.formulas.transformer.memory.states`.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number

FULL_BYTES = 4.0
"""Of a number in 32 bit: weights this wide are their own master copy."""


def optimizer_bytes(stored: Number, master: Number, moments: Number) -> Number:
    """Bytes of optimizer state per parameter: its moments, and a master copy where the weights are narrower.

    ==========================================  ======  =======  =====================
    optimizer                                   master  moments  16-bit weights, in all
    ==========================================  ======  =======  =====================
    Adam                                        4       8        12
    Adam, 16-bit remainder of the master copy   2       8        10
    Adam, 16-bit moments                        4       4        8
    Adam, 8-bit moments                         4       2        6
    Adam, 16-bit moments, no master copy        0       4        4
    SGD with momentum                           4       4        8
    RMSProp with momentum                       4       8        12
    ==========================================  ======  =======  =====================

    Parameters
    ----------
    stored : bytes of a stored weight
    master : bytes of its master copy, were there one
    moments : bytes of all moments of a parameter

    References
    ----------
    [rajbhandari2020]_ section 3.1 (K = 12), [dettmers2022]_ (8-bit moments), [huang2019]_ table 1 (RMSProp in 32 bit: 12
    bytes with the weights), NVIDIA/Megatron-LM megatron/core/optimizer/distrib_optimizer.py (the remainder)

    Examples
    --------
    >>> optimizer_bytes(2.0, 4.0, 8.0), optimizer_bytes(4.0, 4.0, 8.0)
    (12.0, 8.0)
    """
    return moments + ops.where(stored < FULL_BYTES, master, 0.0)


def block_bytes(element_bits: Number, scale_bits: Number, block: Number) -> Number:
    r"""Bytes of an element of a format in which a block of elements shares a scale.

    .. math:: \frac{1}{8} \left(w + \frac{w_s}{n}\right)

    ============================  ========  ======  =====
    format                        elements  scale   block
    ============================  ========  ======  =====
    MXFP8                         8 bit     8 bit   32
    MXFP4                         4 bit     8 bit   32
    NVFP4                         4 bit     8 bit   16
    NF4, scales in 32 bit         4 bit     32 bit  64
    ============================  ========  ======  =====

    Parameters
    ----------
    element_bits : :math:`w` [bit]
    scale_bits : :math:`w_s` [bit]
    block : elements that share a scale :math:`n`

    References
    ----------
    OCP Microscaling Formats (MX) v1.0, table 1; NVIDIA, "Pretraining LLMs with NVFP4" (2025); [dettmers2023]_ section 3

    Examples
    --------
    >>> block_bytes(4.0, 8.0, 16.0), block_bytes(8.0, 8.0, 32.0)
    (0.5625, 1.03125)
    """
    return (element_bits + scale_bits / block) / 8.0


def skipped_share(growth_interval: Number) -> Number:
    r"""Share of the steps that dynamic loss scaling skips once its scale has settled.

    .. math:: \frac{1}{g + 1}

    After :math:`g` clean steps the scale doubles; where the next step overflows, it is skipped and the scale halved.

    Parameters
    ----------
    growth_interval : clean steps before the scale grows :math:`g`: 2000 in PyTorch, 1000 in DeepSpeed

    References
    ----------
    PyTorch torch/amp/grad_scaler.py; DeepSpeed deepspeed/runtime/fp16/loss_scaler.py

    Examples
    --------
    >>> skipped_share(1999.0)
    0.0005
    """
    return 1.0 / (growth_interval + 1.0)


def settling_steps(initial_scale: Number, largest_scale: Number) -> Number:
    r"""Steps skipped at the start, until a loss scale that halves on overflow has come down to what doesn't overflow.

    .. math:: \left\lceil \log_2 \frac{S_0}{S} \right\rceil, \quad\text{at least } 0

    Parameters
    ----------
    initial_scale : :math:`S_0`: 65,536 in PyTorch
    largest_scale : that doesn't overflow :math:`S`

    Examples
    --------
    >>> settling_steps(65536.0, 1024.0)
    6.0
    """
    return ops.ceil(ops.log2(ops.maximum(initial_scale / largest_scale, 1.0)))


def steps_run(updates: Number, growth_interval: Number) -> Number:
    r"""Steps run for a number of updates, the skipped ones among them: :math:`u (1 + 1 / g)`.

    Parameters
    ----------
    updates : steps that count :math:`u`
    growth_interval : clean steps before the scale grows :math:`g`

    Examples
    --------
    >>> steps_run(100_000.0, 2000.0)
    100050.0
    """
    return updates / (1.0 - skipped_share(growth_interval))
