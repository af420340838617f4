"""Which layers have a mixture of experts, as fields of a `Transformer`."""

from __future__ import annotations

from collections.abc import Sequence


def expert_layout(sparse: Sequence[bool]) -> dict[str, int]:
    """Fields of `Transformer` that say which layers have experts: a rule where there is one, else evenly spread.

    Parameters
    ----------
    sparse : of each layer whether it has

    Examples
    --------
    >>> expert_layout([False, True, False, True]), expert_layout([False, True, True])
    ({'dense_layers': 2, 'expert_layer_step': 2}, {'dense_layers': 1})
    >>> expert_layout([True, False, True, True])
    {'dense_layers': 1, 'expert_layer_step': 0}
    """
    layers, places = len(sparse), [layer for layer, has in enumerate(sparse) if has]
    fields = {"dense_layers": layers - len(places)}
    if not places or places[0] == layers - len(places):
        return fields
    step = places[1] - places[0] if len(places) > 1 else 1
    if step == 1 and places[-1] - places[0] == len(places) - 1:
        return fields | {"first_expert_layer": places[0]}
    if places == list(range(places[0], layers, step)):
        start = {} if places[0] == step - 1 else {"first_expert_layer": places[0]}
        return fields | start | {"expert_layer_step": step}
    return fields | {"expert_layer_step": 0}
