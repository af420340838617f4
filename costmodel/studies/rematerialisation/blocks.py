"""A network with branches as a chain of blocks, cut where a single output holds all that comes after."""

from __future__ import annotations

import math

from costmodel.description.layers import ChainLayer, LayerChain
from costmodel.text.checks import kind, positive_int


def articulation_points(chain: LayerChain) -> tuple[int, ...]:
    """Positions of the layers whose output alone joins what comes before with what comes after, the last one among them.

    Parameters
    ----------
    chain : layers, or a graph of them, in an order in which they can run

    Examples
    --------
    A residual block: the first layer's output goes round the second and third, so that only the sum is a cut.

    >>> layers = [ChainLayer(name=name, forward=1.0, backward=2.0, output_bytes=1.0, parameter_bytes=0.0, inputs=inputs)
    ...           for name, inputs in (("a", ()), ("b", ("a",)), ("c", ("b",)), ("sum", ("a", "c")), ("d", ("sum",)))]
    >>> articulation_points(LayerChain(name="residual", layers=layers))
    (0, 3, 4)
    """
    reach, found = -1, []
    for position in range(len(chain.layers)):
        if reach <= position:  # nobody after it takes an output of before it
            found.append(position)
        reach = max([reach, *chain.consumers[position]])
    last = len(chain.layers) - 1
    return tuple(found if found and found[-1] == last else [*found, last])


def condensed(chain: LayerChain, most_blocks: int | None = None) -> tuple[LayerChain, tuple[tuple[str, ...], ...]]:
    """A chain of the blocks between articulation points, and the names of each block's layers.

    A block takes the time of its layers, keeps what they keep, and hands on its last output. Where there are more blocks
    than asked for, neighbours are joined so that each keeps about as many bytes.

    Parameters
    ----------
    chain : layers, or a graph of them
    most_blocks : of the result; as many as there are if None

    Returns
    -------
    tuple
        a `LayerChain` in which every layer takes just the one before it, and the names of the layers of each

    Examples
    --------
    >>> from costmodel import load_device, load_network
    >>> blocks, names = condensed(load_network("resnet-50").chain(load_device("v100-sxm-16gb"), minibatch=32))
    >>> len(blocks.layers), max(map(len, names))
    (40, 11)
    """
    kind("chain", chain, LayerChain, "LayerChain(...) or Network.chain")
    ends = list(articulation_points(chain))
    if most_blocks is not None and len(ends) > positive_int("most_blocks", most_blocks, 100_000):
        ends = _joined(chain, ends, most_blocks)
    layers, names, begin = [], [], 0
    for end in ends:
        members = chain.layers[begin : end + 1]
        layers.append(
            ChainLayer(
                name=members[-1].name, forward=math.fsum(one.forward for one in members),
                backward=math.fsum(one.backward for one in members), output_bytes=members[-1].output_bytes,
                parameter_bytes=math.fsum(one.parameter_bytes for one in members),
                saved_bytes=math.fsum(one.kept_bytes for one in members),
            )
        )  # fmt: skip
        names.append(tuple(one.name for one in members))
        begin = end + 1
    return LayerChain(name=chain.name, layers=layers, minibatch=chain.minibatch), tuple(names)


def _joined(chain: LayerChain, ends: list[int], most: int) -> list[int]:
    """Ends of at most so many blocks of about as many kept bytes each."""
    kept, total = [0.0], 0.0
    for layer in chain.layers:
        total += layer.kept_bytes
        kept.append(total)
    chosen: list[int] = []
    for place, end in enumerate(ends):
        share = total * (len(chosen) + 1) / most
        if kept[end + 1] >= share or len(ends) - place <= most - len(chosen):
            chosen.append(end)
    return [*chosen[: most - 1], ends[-1]] if chosen[-1] != ends[-1] or len(chosen) > most else chosen
