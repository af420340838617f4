"""What tokens cost at a price of a GPU-hour."""

from __future__ import annotations

from costmodel.evaluation.estimation import Estimate
from costmodel.text.checks import kind, real

HOUR, BILLION = 3600.0, 1e9


def price_per_billion_tokens(estimate: Estimate, price: float) -> float:
    """Price of a billion trained tokens, in the currency of `price`.

    Parameters
    ----------
    estimate : of the plan
    price : of a GPU for an hour

    Returns
    -------
    float
        of all GPUs together

    Raises
    ------
    InvalidValue
        where there is no estimate, or a price is not from 0 to a million

    Examples
    --------
    >>> from costmodel import estimate, load_cluster, load_model, Plan
    >>> plan = Plan(global_batch=64, seq_len=8192, tensor_parallel=2, data_parallel=4)
    >>> made = estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), plan)
    >>> hours = 1e9 / made.tokens_per_second / 3600
    >>> abs(price_per_billion_tokens(made, 2.0) / (hours * 8 * 2.0) - 1.0) < 1e-12
    True
    """
    kind("estimate", estimate, Estimate, "estimate(...)")
    return BILLION / estimate.tokens_per_second / HOUR * estimate.plan.gpus * real("price", price, 0.0, 1e6)
