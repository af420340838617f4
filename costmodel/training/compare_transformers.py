"""Systems that train a transformer: plans, and what a plan can't say, by the compute of the data-parallel one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from costmodel.arithmetic.named_tuples import made
from costmodel.arithmetic.whole_numbers import divisors
from costmodel.catalogue.server_systems import between_nodes
from costmodel.catalogue.software import framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.labels import degrees
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.evaluation.plan_search import search_by_name
from costmodel.studies.parameter_servers import staleness as stale
from costmodel.studies.parameter_servers.staleness import Staleness
from costmodel.text.checks import positive_int, whole
from costmodel.text.errors import CostModelError, IllegalPlan, NotModelled
from costmodel.training.replicas import ReplicatedWorkload
from costmodel.training.systems import System, SystemSettings, waiting

GRADIENT_BYTES = 2.0
"""Of a gradient on the way to a server or a peer."""
MOST_STAGES, MOST_MICRO_BATCH = 16, 8
FREE = ("tensor_parallel", "pipeline_parallel", "data_parallel", "schedule", "virtual_stages", "zero_stage", "synchronisation")
"""Dimensions of a plan that tell the systems apart, so that no user sets them for all."""


class _Transformer(ReplicatedWorkload):
    """A transformer on a cluster, and the systems that train it."""

    def __init__(
        self, model: Transformer, cluster: Cluster, settings: SystemSettings, asked: Mapping[str, object],
        framework: Framework | str,
        dimensions: Mapping[str, object],
    ) -> None:  # fmt: skip
        super().__init__(cluster, settings)
        self.model, self.framework = model, framework
        self.reducing = cluster if settings.all_reduce is None else between_nodes(settings.all_reduce, cluster)
        self.dimensions = dict(dimensions)
        for field in FREE:
            if field in self.dimensions:
                raise NotModelled(f"{field}={self.dimensions[field]!r}: it tells the systems apart that are compared")
        self.asked = dict(asked)
        self.sharded = int(1 in framework_on(cluster, framework).zero_stages)
        if self.dimensions.get("micro_batch") is None:
            self.dimensions["micro_batch"] = self._micro_batch()
        self.alone = self.plan(zero_stage=0)
        times = self.alone.times
        self.compute = times["forward"] + times["backward"] + times["recompute"]
        self.busy = self.alone.step_time - times["gradient_exchange"] - times["parameter_exchange"]
        self.nbytes = GRADIENT_BYTES * float(model.parameters)
        self.backward = times["backward"]
        self.bandwidth = self.to_servers.bandwidth / self.to_servers.oversubscription
        self.samples = float(positive_int("global_batch", self.asked["global_batch"], 10**9))

    def _micro_batch(self) -> int:
        """Sequences of a micro-batch by which data parallelism with sharded states is fastest and fits; 1 if none does."""
        share = positive_int("global_batch", self.asked["global_batch"], 10**9) // self.gpus
        found = [self.plan(zero_stage=self.sharded, micro_batch=size) for size in divisors(max(share, 1), MOST_MICRO_BATCH)]
        fitting = [one for one in found if one.fits]
        return min(fitting, key=lambda one: one.step_time).plan.micro_batch if fitting else 1

    def plan(self, **fields: object) -> Estimate:
        """A step of a plan on all GPUs, data-parallel where the fields leave GPUs over."""
        degrees = {name: fields.get(name, 1) for name in ("tensor_parallel", "pipeline_parallel")}
        degrees["context_parallel"] = self.dimensions.get("context_parallel", 1)
        taken = math.prod(positive_int(name, degree, 10**9) for name, degree in degrees.items())
        if self.gpus % taken:
            raise IllegalPlan("world_size", f"{taken} ranks of a copy don't divide the {self.gpus} GPUs")
        plan = made(Plan, {**self.asked, **self.dimensions, **fields, "data_parallel": self.gpus // taken})
        served = fields.get("synchronisation") == "byteps"
        return estimate(self.model, self.cluster if served else self.reducing, plan, self.framework)

    def planned(self, name: str, setting: str, answer: Estimate, staleness: Staleness, servers: int = 0) -> System:
        """The row of a plan."""
        waits = waiting(self.settings.stragglers, self.compute, answer.plan.copies)
        return System(
            name=name, setting=setting, step_time=answer.step_time + waits, samples=self.samples, gpus=self.gpus,
            servers=servers, memory=float(answer.memory.total), memory_limit=answer.memory_limit,
            sent_bytes=float(answer.step.exchange_bytes), staleness=staleness, compute_time=self.compute,
        )  # fmt: skip

    def zero(self, stage: int) -> System:
        """Data parallelism, its states sharded or not."""
        name = f"ZeRO-{stage}" if stage else "all-reduce"
        answer = self.plan(zero_stage=stage) if stage else self.alone
        return self.planned(name, f"{self.gpus} replicas", answer, stale.synchronous())

    def tensor(self) -> Estimate:
        """Layers split over as many GPUs of a node as divide them."""
        return self._first({"tensor_parallel": degree} for degree in reversed(divisors(self.node, self.node)) if degree > 1)

    def piped(self, schedule: str, **fields: object) -> Estimate:
        """Stages as long as there are layers for them."""
        most = min(MOST_STAGES, self.model.layers)
        degrees = [degree for degree in reversed(divisors(self.gpus, most)) if degree > 1]
        return self._first({"pipeline_parallel": degree, "schedule": schedule, **fields} for degree in degrees)

    def _first(self, candidates: Iterable[dict[str, object]]) -> Estimate:
        """The fastest that fits of some plans, or the leanest if none does."""
        found, why = [], None
        for fields in candidates:
            try:
                found.append(self.plan(**fields))
            except CostModelError as error:
                why = error
        if not found:
            raise why or IllegalPlan("world_size", f"{self.gpus} GPUs don't split")
        fitting = [one for one in found if one.fits]
        return min(fitting, key=lambda one: one.step_time) if fitting else min(found, key=lambda one: one.memory.total)

    def pipeline(self, name: str, schedule: str, **fields: object) -> System:
        """A pipeline of a schedule."""
        answer = self.piped(schedule, **fields)
        plan = answer.plan
        staleness = stale.synchronous()
        if schedule == "pipedream":
            staleness = stale.pipedream(plan.pipeline_parallel)
        elif schedule == "pipedream-2bw":
            staleness = stale.delayed()
        setting = f"{plan.pipeline_parallel} stages x {plan.data_parallel} replicas"
        return self.planned(name, setting, answer, staleness)

    def split(self) -> System:
        """Megatron's tensor parallelism inside a node."""
        answer = self.tensor()
        return self.planned("tensor parallelism", f"{answer.plan.tensor_parallel} GPUs a replica", answer, stale.synchronous())

    def three_ways(self) -> System:
        """The fastest of all combinations that fit."""
        tried: dict[str, object] = {name: [value] for name, value in self.dimensions.items()}
        found = search_by_name(self.model, self.reducing, **self.asked, framework=self.framework, top=1, **tried)
        if not found.ranked:
            raise IllegalPlan("memory", f"no combination of degrees is legal and fits on {self.gpus} GPUs")
        plan = found.best.plan
        setting = f"{degrees(plan)}, ZeRO {plan.zero_stage}"
        return self.planned("best combination", setting, found.best, stale.synchronous())

    def synchronised(self, name: str, kind: str, staleness: Staleness, setting: str, **fields: object) -> System:
        """Replicas that agree by other means than an all-reduce."""
        answer = self.plan(zero_stage=0, synchronisation=kind, **fields)
        return self.planned(name, setting, answer, staleness, servers=whole("servers", fields.get("servers", 0), 10**9))

    def sandblaster(self) -> System:
        """Portions of a batch, dealt by a coordinator; the batch is the step's own."""
        share = self.settings.portions_per_gpu
        run = self.portions(self.busy / share)
        setting = f"L-BFGS, {share} portions a GPU"
        return self.row("Sandblaster", setting, run.batch_time, run.push_bytes, run.staleness)

    def dedloc(self) -> System:
        """Peers that average a step late."""
        step, sent = self.peers()
        return self.row("DeDLOC", "averaging delayed by a step", step.step_time, sent, stale.delayed(), served=False)

    def row(
        self, name: str, setting: str, step_time: float, sent: float, staleness: Staleness, *, copies: float = 0.0,
        served: bool = True,
    ) -> System:  # fmt: skip
        """The row of data-parallel replicas: with servers these hold the optimizer, without a second gradient waits."""
        held = float(self.alone.memory.total)
        held += -float(self.alone.memory.optimizer) if served else self.nbytes
        return System(
            name=name, setting=setting, step_time=step_time, samples=self.samples, gpus=self.gpus,
            servers=self.settings.servers if served else 0, memory=held, memory_limit=self.alone.memory_limit, sent_bytes=sent,
            staleness=staleness, compute_time=self.compute,
        )  # fmt: skip


def systems_of_transformer(
    model: Transformer, cluster: Cluster, settings: SystemSettings, asked: Mapping[str, object], framework: Framework | str,
    dimensions: Mapping[str, object],
) -> dict[str, Callable[[], System]]:  # fmt: skip
    """By name, what makes each system's row.

    Parameters
    ----------
    model, cluster, settings, framework, dimensions : as `compare_systems` has checked them
    asked : `global_batch` and `seq_len`
    """
    one = _Transformer(model, cluster, settings, asked, framework, dimensions)
    fresh, servers, named = stale.synchronous(), settings.servers, "parameter server, "
    return {
        "all-reduce": lambda: one.zero(0), "ZeRO-1": lambda: one.zero(1), "ZeRO-2": lambda: one.zero(2),
        "ZeRO-3": lambda: one.zero(3), "tensor parallelism": one.split,
        "GPipe": lambda: one.pipeline("GPipe", "gpipe"), "1F1B": lambda: one.pipeline("1F1B", "1f1b"),
        "PipeDream": lambda: one.pipeline("PipeDream", "pipedream"),
        "PipeDream-2BW": lambda: one.pipeline("PipeDream-2BW", "pipedream-2bw"),
        named + "synchronous": lambda: one.served(named + "synchronous", "bsp"),
        named + "bounded delay": lambda: one.served(named + "bounded delay", "bounded_delay"),
        named + "asynchronous": lambda: one.served(named + "asynchronous", "asynchronous"),
        "BytePS": lambda: one.synchronised(
            "BytePS", "byteps", fresh, f"{min(servers, one.nodes)} spare machines", servers=min(servers, one.nodes)
        ),
        "local SGD": lambda: one.synchronised(
            "local SGD", "local-sgd", stale.local_sgd(settings.local_steps), f"an exchange every {settings.local_steps} steps",
            local_steps=settings.local_steps,
        ),
        "DeDLOC": one.dedloc, "Downpour": one.downpour, "Sandblaster": one.sandblaster, "best combination": one.three_ways,
    }  # fmt: skip
