"""What a partition is: its stages, what they hold, and what they send."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from costmodel.description.layers import LayerChain
from costmodel.formulas.pipeline import pipedream
from costmodel.text.results import brief
from costmodel.text.tables import headed, table
from costmodel.text.units import format_bytes, format_seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """Layers that run together on one replica or, on an outer level of the network, on one pipeline of `inner` stages."""

    layers: tuple[str, ...]  # their names
    replicas: int  # components of the level within that hold a copy each
    compute_time: float  # of the layers on one machine, forward and backward [s]
    parameter_bytes: float  # of their weights [bytes]
    activation_bytes: float  # that they keep of one minibatch for the backward pass [bytes]
    output_bytes: float  # that the stages after this one take [bytes]
    inner: tuple[Stage, ...] = ()  # the stages of one replica on the level within; none on the innermost

    __repr__ = brief


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partition:
    """The fastest pipeline found; what it takes, holds and sends.

    Parameters
    ----------
    chain : what was split
    machines, bandwidths : of each level of the network, the innermost first [, bytes/s]
    recurrence : how it was priced
    activation_compression : of the outputs that are sent on
    time, data_parallel_time, single_time : per minibatch, of the pipeline, of data parallelism on all machines, and of
        one machine [s]
    stages : of the outermost level, or on workers in a row, in the order in which a minibatch passes them
    states : cuts that were considered
    proven : whether no other cut can be part of a faster pipeline
    """

    chain: LayerChain
    machines: tuple[int, ...]
    bandwidths: tuple[float, ...]
    recurrence: str
    activation_compression: float | None
    time: float
    data_parallel_time: float
    single_time: float
    stages: tuple[Stage, ...]
    states: int
    proven: bool

    def __repr__(self) -> str:
        return headed(*self._said())

    def _repr_html_(self) -> str:
        rows = [
            [
                str(place), f"{stage.layers[0]} to {stage.layers[-1]}" if len(stage.layers) > 1 else stage.layers[0],
                str(stage.replicas), format_seconds(stage.compute_time), format_bytes(held),
            ]
            for place, (stage, held) in enumerate(zip(self.pipeline, self.memory, strict=True))
        ]  # fmt: skip
        return table(": ".join(self._said()), ["stage", "layers", "replicas", "compute", "memory"], rows)

    def _said(self) -> tuple[str, str]:
        """What it is of, and what came out."""
        return (
            f"Partition: {len(self.chain.layers)} layers on {self.workers} machines as {self.configuration}",
            f"{format_seconds(self.time)} a minibatch, {self.speedup:.2f} times as fast as data parallelism"
        )

    @functools.cached_property
    def pipeline(self) -> tuple[Stage, ...]:
        """The innermost stages in order, each with its replicas on all levels together."""

        def flat(stages: Sequence[Stage], copies: int) -> Iterator[Stage]:
            for stage in stages:
                if stage.inner:
                    yield from flat(stage.inner, copies * stage.replicas)
                else:
                    yield dataclasses.replace(stage, replicas=copies * stage.replicas)

        return tuple(flat(self.stages, 1))

    @property
    def configuration(self) -> str:
        """Replicas of each innermost stage, as the papers write it: ``"15-1"``."""
        return "-".join(str(stage.replicas) for stage in self.pipeline)

    @property
    def workers(self) -> int:
        """Machines in all."""
        return sum(stage.replicas for stage in self.pipeline)

    @property
    def speedup(self) -> float:
        """How often faster than data parallelism on all machines."""
        return self.data_parallel_time / self.time

    @property
    def speedup_over_one(self) -> float:
        """How often faster than one machine."""
        return self.single_time / self.time

    @property
    def in_flight(self) -> int:
        """Minibatches to admit per replica of the input stage, NOAM: the fewest that keep every machine busy."""
        return self.weight_versions[0]

    @functools.cached_property
    def weight_versions(self) -> tuple[int, ...]:
        """Versions of its weights that each of `pipeline` keeps, one for each minibatch in flight on a replica."""
        downstream = self.workers
        versions = []
        for stage in self.pipeline:
            downstream -= stage.replicas
            versions.append(int(pipedream.minibatches_in_flight(float(downstream), float(stage.replicas))))
        return tuple(versions)

    @property
    def memory(self) -> tuple[float, ...]:
        """Bytes of weights and activations of the minibatches in flight, on one machine of each of `pipeline`."""
        return tuple(
            versions * (stage.parameter_bytes + stage.activation_bytes)
            for versions, stage in zip(self.weight_versions, self.pipeline, strict=True)
        )

    @property
    def staleness(self) -> tuple[int, ...]:
        """Updates that each of `pipeline` is behind with weight stashing: n - k for stage k of n.

        Vertical sync makes it that of the first stage on all of them.
        """
        return tuple(range(len(self.pipeline) - 1, -1, -1))

    @property
    def sent_bytes(self) -> float:
        """Bytes that all machines together send for one minibatch: outputs, their gradients, and weight updates."""
        compression = self.activation_compression or 1.0
        outputs = sum(2.0 * stage.output_bytes / compression for stage in self.pipeline)
        weights = (pipedream.synchronisation_bytes(stage.parameter_bytes, float(stage.replicas)) for stage in self.pipeline)
        return float(outputs + sum(weights))

    @property
    def data_parallel_sent_bytes(self) -> float:
        """Bytes that data parallelism on all machines would send for one minibatch."""
        weights = sum(stage.parameter_bytes for stage in self.pipeline)
        return float(pipedream.synchronisation_bytes(weights, float(self.workers)))


    @property
    def communication_reduction(self) -> float:
        """Share of data parallelism's bytes that the pipeline doesn't send; below 0 where it sends more, 0 on one machine."""
        whole = self.data_parallel_sent_bytes
        return 1.0 - self.sent_bytes / whole if whole else 0.0
