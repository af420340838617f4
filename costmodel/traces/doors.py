"""Tracing inside a program or a notebook: `with tracing(...)`, `trace(step)`, `memory_of(module, batch)`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from costmodel.description.cluster import Cluster
from costmodel.text.checks import choice, positive_int
from costmodel.text.errors import InvalidValue, NotModelled
from costmodel.traces.memory import TraceMemory, memory_of_trace
from costmodel.traces.record import Trace
from costmodel.traces.running import MOST_RANKS, MOST_STEPS, cluster_of_trace, device_facts, guard_folder

if TYPE_CHECKING:
    from costmodel.traces.fake_machine.launch import RunningRank

PLANS = ("single", "ddp", "fsdp2")
"""Ways to split a module's training that `memory_of` knows."""


class Recording:
    """What is recorded inside `tracing`.

    Attributes
    ----------
    trace : of what ran, once the block is left
    """

    def __init__(self) -> None:
        self._trace: Trace | None = None
        self._machine: RunningRank | None = None

    @property
    def trace(self) -> Trace:
        """What ran."""
        if self._trace is None:
            raise NotModelled("a trace before its `with` block is left")
        return self._trace

    def step_done(self) -> None:
        """Say that a step has ended, where no optimizer of PyTorch says it."""
        if self._machine is not None:
            self._machine.recorder.step_done()


def prepare_tracing() -> None:
    """Make this process ready for GPUs that aren't there: called before PyTorch is imported, which asks for its GPUs once.

    Raises
    ------
    NotModelled
        where PyTorch is missing, or was imported before, or no C++ compiler is there the first time
    """
    from costmodel.traces.fake_machine import preload

    preload.prepared(guard_folder(), 1, 0)


@contextlib.contextmanager
def tracing(cluster: Cluster | str | None = None, *, gpus: int = 1, rank: int = 0) -> Iterator[Recording]:
    """Run what is inside on a rank whose GPU isn't there, and record it.

    Parameters
    ----------
    cluster : whose GPUs the code sees, or its name; a DGX H100 unless given
    gpus : ranks of the world; torchrun's variables are set where there are several
    rank : this one's number

    Yields
    ------
    Recording
        whose `trace` is there once the block is left

    Raises
    ------
    NotModelled
        where PyTorch is missing, or was imported before `prepare_tracing` was called

    Examples
    --------
    ``with costmodel.tracing(gpus=8) as run: train()``, and then ``run.trace``
    """
    home = cluster_of_trace(cluster)
    world = positive_int("gpus", gpus, MOST_RANKS)
    if not 0 <= rank < world:
        raise InvalidValue("rank", rank, f"a rank from 0 to {world - 1}")
    server = min(home.gpus_per_node, world)
    recording = Recording()
    from costmodel.traces.fake_machine import launch, preload

    preload.prepared(guard_folder(), server, rank % server)
    with _environment(launch.torchrun(rank, world, server)):
        with launch.machine(rank, world, server, 0, device_facts(home), guard_folder(), None) as recorder:
            recording._machine = launch.RunningRank(recorder)
            yield recording
        recording._trace = launch.finished(recorder, world)


def trace(
    step: Callable[[], object], *, steps: int = 3, cluster: Cluster | str | None = None, gpus: int = 1, rank: int = 0
) -> Trace:
    """The trace of a function that makes a step, called a few times.

    Parameters
    ----------
    step : called without arguments; models that it uses are made inside it the first time, or inside `tracing`
    steps : times; the last one counts
    cluster, gpus, rank : as `tracing`

    Returns
    -------
    Trace

    Raises
    ------
    NotModelled
        as `tracing`
    """
    with tracing(cluster, gpus=gpus, rank=rank) as run:
        for number in range(1, positive_int("steps", steps, MOST_STEPS) + 1):
            step()
            if run._machine is not None and run._machine.recorder.done_steps < number:
                run.step_done()
    return run.trace


def memory_of(
    module: Any,
    batch: Sequence[Any] | Mapping[str, Any],
    optimizer: str = "AdamW",
    plan: str = "single",
    *,
    cluster: Cluster | str | None = None,
    gpus: int = 1,
    dtype: str = "float32",
) -> TraceMemory:
    """Memory that training a module needs on a GPU: its peak by kind and module, whether it fits, what would help.

    Parameters
    ----------
    module : of PyTorch, on whatever device; it is left as it is
    batch : its arguments, by place or by name
    optimizer : name of one in `torch.optim`
    plan : of `PLANS`: one GPU, replicas, or parameters that `fully_shard` spreads, child lists' entries each by itself
    cluster : whose GPU it is, or its name; a DGX H100 unless given
    gpus : ranks of the world
    dtype : that autocast computes in: "float32" for none, "bfloat16" or "float16"

    Returns
    -------
    TraceMemory

    Raises
    ------
    NotModelled
        as `tracing`
    InvalidValue
        of a plan or dtype that there isn't
    """
    choice("plan", plan, PLANS)
    choice("dtype", dtype, ("float32", "bfloat16", "float16"))
    home = cluster_of_trace(cluster)
    with tracing(home, gpus=gpus) as run:
        from costmodel.traces.fake_machine import modules

        modules.train(module, batch, optimizer, plan, dtype)
    return memory_of_trace(run.trace, home.with_gpus(gpus))


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
