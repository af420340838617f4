"""How long the passes of a step take, and what they are made of, as the formulas of `estimate` give it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costmodel.arithmetic.named_tuples import as_number, replaced
from costmodel.description.schedule import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD
from costmodel.evaluation.estimation import Estimate
from costmodel.formulas import gradients, training_step
from costmodel.formulas.network import communication
from costmodel.formulas.pipeline import layout
from costmodel.formulas.quantities import DeviceNumbers, Memory
from costmodel.formulas.stage import unsynchronised_pass
from costmodel.formulas.transformer import lengths
from costmodel.simulation.playback import kept_by_stages, stage_layers
from costmodel.simulation.played_step import Floats

_EMPTY = Memory._make([0.0] * len(Memory._fields))


class _PassParts(NamedTuple):
    """A pass by what it is made of: a layer, the embedding, the head [s each]; what of a layer, and at the embedding and the
    head, is exchange, and what is the host's; tensor, context and expert exchange of a layer, hidden or not."""

    layer: float
    embedding: float
    head: float
    layer_exchange: float
    edge_exchange: float
    layer_host: float
    moving: tuple[float, float, float]


class StagePass(NamedTuple):
    """A pass of one stage [s]: a layer, the embedding, the head, all of these; what of it is exchange, or the host's; all
    tensor, context and expert exchange, hidden or not."""

    layer: float
    embedding: float
    head: float
    duration: float
    exchange: float
    host: float
    moving: tuple[float, float, float]


class PassTimes:
    """Times of the passes, and what a step has besides, as the formulas of `estimate` give them.

    Parameters
    ----------
    result : the estimate
    stages : of the chain, the chunks of every rank counted
    """

    def __init__(self, result: Estimate, stages: int) -> None:
        self.model, asked, self.plan, self.network, self.software, device = result.inputs
        self.settings = lengths.at_work(asked, self.plan)
        self.layers = stage_layers(result.model.layers, stages, self.plan, self.model, self.settings)
        arguments = self.model, self.settings, self.plan, self.network
        one = training_step.layer_pass(*arguments, self.software, device)
        unlaunched = replaced(self.software, {"host_pace": 0.0})
        quiet = training_step.layer_pass(*arguments, unlaunched, device)
        once = communication.tensor_exchange(*arguments, self.software)
        moved = communication.layer_exchange(*arguments, self.software)
        onward = np.array([moved.tensor_forward, moved.context_forward, moved.expert_forward], dtype=float)
        back = np.array([moved.tensor_backward, moved.context_backward, moved.expert_backward], dtype=float)
        again = moved.tensor_again, self.plan.recompute_layers * moved.context_forward, moved.expert_again
        returning = back + np.array(again, dtype=float)
        # what every micro-batch gathers and sums are events, not parts of a pass; of a layer, of the embedding, of the head
        parts = unsynchronised_pass(*arguments, self.software, device, *map(as_number, np.eye(3)))
        forward, data, weight = (np.asarray(times, dtype=float).tolist() for times in parts)
        exchanged = float(one.tensor + one.context + one.expert)
        ahead, waited = float(quiet.total_forward - one.forward), float(one.total_forward - quiet.total_forward)
        behind = exchanged - ahead, float(once), float(one.host) - waited, tuple(returning.tolist())
        self.passes = {
            FORWARD: _PassParts._make([*forward, ahead, 0.0, waited, tuple(onward.tolist())]),
            BACKWARD_INPUT: _PassParts._make([*data, *behind]),
            BACKWARD_WEIGHT: _PassParts._make([*weight, 0.0, 0.0, 0.0, (0.0, 0.0, 0.0)]),
            BACKWARD: _PassParts._make([*(a + b for a, b in zip(data, weight, strict=True)), *behind]),
        }
        hide = self.settings.overlap.pipeline * self.software.overlap.pipeline
        self.exposed_send = 1.0 - float(hide)
        self.pieces = {(kind, stage): self._pieces(kind, stage) for kind in self.passes for stage in range(stages)}
        self.host = self._host(result, device)
        self.fullest = self._fullest(result, device)
        self.coding = float(gradients.summed(*arguments, self.software, device).coding)
        self.saved: Floats = kept_by_stages(result.model, self.layers, self.settings, self.plan, self.software)

    def _host(self, result: Estimate, device: DeviceNumbers) -> float:
        """What `estimate` has of the host, the allocator and offloaded activations besides the launches of layers [s]."""
        silent = {"host_micro_batch": 0.0, "host_step": 0.0, "host_pipeline_call": 0.0, "host_pressure_time": 0.0}
        settings = replaced(self.settings, {"offload_activations": 0.0})
        software = replaced(self.software, silent)
        # a step asks of memory how full it is: silent software doesn't mind
        launching = training_step.step(self.model, settings, self.plan, self.network, software, device, _EMPTY).host
        return float(max(result.step.host - launching, 0.0))

    def _fullest(self, result: Estimate, device: DeviceNumbers) -> float:
        """How long an average replica waits for the one with most tokens, as `estimate` has it [s]."""
        asked = result.inputs.settings
        if not lengths.fullest_rank(asked, self.plan, layout.micro_batches(asked, self.plan)) > 0.0:
            return 0.0
        waited, alike = (
            training_step.step(self.model, settings, self.plan, self.network, self.software, device, _EMPTY).total
            for settings in (asked, self.settings)
        )
        return float(waited - alike)

    def _pieces(self, kind: int, stage: int) -> StagePass:
        made, layers = self.passes[kind], float(self.layers[stage])
        first, last = float(stage == 0), float(stage == len(self.layers) - 1)
        embedding, head = first * made.embedding, last * made.head
        deep = layers + last * float(self.model.prediction_layers)
        edges = (first + last) * made.edge_exchange
        duration = embedding + layers * made.layer + head
        tensor, context, expert = (deep * time for time in made.moving)
        return StagePass(
            made.layer, embedding, head, duration, deep * made.layer_exchange + edges, deep * made.layer_host,
            (tensor + edges, context, expert),
        )  # fmt: skip
