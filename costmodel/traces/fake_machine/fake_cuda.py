"""`torch.cuda` of a rank whose GPU isn't there: it answers, and what it is told of streams and events goes into the record."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch

from costmodel.traces.fake_machine import graphs, tensors
from costmodel.traces.fake_machine.handwritten import CudaKernel
from costmodel.traces.fake_machine.recorder import Recorder
from costmodel.traces.fake_machine.replacing import replaced
from costmodel.traces.record import NOWHERE


class Stream(torch.Stream):
    """A stream that only has a number."""

    _next = 1

    def __new__(cls, device: Any = None, priority: int = 0, *, stream_id: int | None = None, **others: Any) -> Stream:
        """Make one, or name one by its number."""
        if stream_id is None:
            stream_id = Stream._next
            Stream._next += 1
        index = _machine().program.guard.costmodel_device() if device is None else _index(device)
        return torch.Stream.__new__(cls, stream_id=stream_id, device_index=index, device_type=1)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    cuda_stream = property(lambda self: self.stream_id)
    priority = 0

    def wait_event(self, event: Any) -> None:
        """What comes on this stream waits for an event."""
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        """What comes on this stream waits for all that another has to do."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Any = None) -> Any:
        """Put an event behind all that this stream has to do."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether it has done all."""
        return True

    def synchronize(self) -> None:
        """The host waits for it."""
        machine = _machine()
        machine.host_waits(stream=machine.program.numbered(self.stream_id))


class Event(torch.Event):
    """An event of a stream."""

    def __new__(cls, *_: Any, **__: Any) -> Event:
        """Make one."""
        return torch.Event.__new__(cls, device="cuda")

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        self._number = NOWHERE

    def record(self, stream: Any = None) -> None:
        """Put it behind all that a stream has to do."""
        machine = _machine()
        machine.program.engine_moves()
        number = machine.program.stream() if stream is None else machine.program.numbered(stream.stream_id)
        self._number = machine.builder.event_record(number, machine.where.line())

    def wait(self, stream: Any = None) -> None:
        """What comes on a stream waits for it."""
        if self._number != NOWHERE:
            machine = _machine()
            machine.program.engine_moves()
            number = machine.program.stream() if stream is None else machine.program.numbered(stream.stream_id)
            machine.builder.stream_wait(self._number, number, machine.where.line())

    def synchronize(self) -> None:
        """The host waits for it."""
        if self._number != NOWHERE:
            _machine().host_waits(event=self._number)

    def query(self) -> bool:
        """Whether it has come."""
        return True

    def elapsed_time(self, other: Any) -> float:
        """Milliseconds between two events: none, here."""
        _machine().builder.assumed("1 ms for times that the program measures by events.")
        return 1.0


class StreamContext:
    """Code inside runs on a stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        self.before = _machine().program.guard.costmodel_stream()
        if self.stream is not None:
            _machine().program.guard.costmodel_set_stream(self.stream.stream_id)

    def __exit__(self, *_: Any) -> None:
        _machine().program.guard.costmodel_set_stream(self.before)


class _DeviceContext:
    def __init__(self, device: Any) -> None:
        self.idx = _index(device)

    def __enter__(self) -> None:
        self.before = _machine().program.guard.costmodel_device()
        if self.idx >= 0:
            _machine().program.guard.costmodel_set_device(self.idx)

    def __exit__(self, *_: Any) -> bool:
        _machine().program.guard.costmodel_set_device(self.before)
        return False


_RECORDERS: list[Recorder] = []


def _machine() -> Recorder:
    return _RECORDERS[-1]


def _index(device: Any) -> int:
    if device is None:
        return int(_machine().program.guard.costmodel_device())
    if isinstance(device, int):
        return device
    if isinstance(device, Stream):
        return int(device.device_index)
    index = torch.device(device).index
    return int(_machine().program.guard.costmodel_device()) if index is None else index


@contextlib.contextmanager
def installed(recorder: Recorder, gpus: int, device: dict[str, Any]) -> Iterator[None]:
    """Answer for `torch.cuda` while it is entered.

    Parameters
    ----------
    recorder : of what streams and events are told
    gpus : of one server
    device : ``name``, ``memory`` [bytes], ``capability`` (two numbers), ``multiprocessors`` of each
    """
    properties = types.SimpleNamespace(
        name=device["name"], total_memory=int(device["memory"]), major=device["capability"][0], minor=device["capability"][1],
        multi_processor_count=device["multiprocessors"], is_integrated=0, is_multi_gpu_board=0, gcnArchName="",
        L2_cache_size=50 << 20, max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536,
        shared_memory_per_block=49152, warp_size=32, shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472, uuid="", pci_bus_id=0, pci_device_id=0, pci_domain_id=0,
    )  # fmt: skip
    _RECORDERS.append(recorder)
    lifted = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # lists of places in brackets go to the device by operators, which are seen
    try:
        with replaced([*_cuda(recorder, gpus, properties), *graphs.patches(recorder), *tensors.patches(recorder)]):
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(lifted)
        _RECORDERS.remove(recorder)


Answers = dict[str, Any]
"""Of `torch.cuda`, by the names of what is asked."""
OF_MEMORY = ("memory", "max_memory", "reset", "mem_get", "empty")
OF_RANDOM = (
    "get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all", "manual_seed", "manual_seed_all", "initial_seed",
)  # fmt: skip
RANDOM_STATE = 16
"""Of a device's random numbers: seed and offset [bytes]."""
OF_ACCELERATOR = {
    "is_available": "is_available", "device_count": "device_count", "current_stream": "current_stream",
    "synchronize": "synchronize", "set_stream": "set_stream", "current_device_index": "current_device",
    "set_device_index": "set_device", "memory_allocated": "memory_allocated", "memory_reserved": "memory_reserved",
    "max_memory_allocated": "max_memory_allocated", "max_memory_reserved": "max_memory_reserved",
    "memory_stats": "memory_stats", "empty_cache": "empty_cache", "reset_peak_memory_stats": "reset_peak_memory_stats",
}  # fmt: skip
"""What `torch.accelerator` is asked, and what answers it."""


def _cuda(recorder: Recorder, gpus: int, properties: Any) -> Iterator[tuple[Any, str, Any]]:
    cuda, accelerator = torch.cuda, torch.accelerator
    answers = _devices(recorder, gpus, properties) | _memory(recorder, properties) | _streams(recorder) | _random(gpus)
    for name, value in answers.items():
        yield cuda, name, value
        if name.startswith(OF_MEMORY):
            yield cuda.memory, name, value
    for name, value in {"_record_memory_history": None, "_snapshot": {}, "_dump_snapshot": None}.items():
        yield cuda.memory, name, lambda *_, value=value, **__: value
    for name in OF_RANDOM:
        yield cuda.random, name, answers[name]
    for name, other in OF_ACCELERATOR.items():
        yield accelerator, name, answers[other]
    yield accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda")
    yield cuda, "nvtx", types.SimpleNamespace(
        range_push=lambda *_: 0, range_pop=lambda *_: 0, mark=lambda *_: None, range=contextlib.nullcontext,
        range_start=lambda *_: 0, range_end=lambda *_: None,
    )  # fmt: skip
    yield cuda.nccl, "version", lambda: (2, 27, 3)
    yield cuda, "_initialized", True
    guard = recorder.program.guard
    yield torch._C, "_cuda_getCurrentRawStream", lambda device=None: guard.costmodel_stream()  # bitsandbytes asks at import
    yield torch.version, "cuda", "12.8"
    yield torch.backends.cuda, "is_built", lambda: True
    yield torch.backends.cudnn, "is_available", lambda: True
    yield torch.backends.cudnn, "version", lambda: 91002
    profiler = torch.profiler._KinetoProfile
    yield profiler, "__init__", _profiled(profiler.__init__)


def _profiled(real: Any) -> Any:
    """A profiler of the host alone: no device is there to be asked."""

    def begin(self: Any, *args: Any, activities: Any = None, **others: Any) -> None:
        kept = {torch.profiler.ProfilerActivity.CPU} if activities else None
        real(self, *args, activities=kept, **others)

    return begin


def _devices(recorder: Recorder, gpus: int, properties: Any) -> Answers:
    guard = recorder.program.guard

    def chosen(device: Any) -> None:
        if _index(device) >= 0:
            guard.costmodel_set_device(_index(device))

    return {
        "is_available": lambda: True,
        "device_count": lambda: gpus,
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "init": lambda: None,
        "_is_compiled": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "_lazy_call": lambda call, **_: None,
        "current_device": lambda: int(guard.costmodel_device()),
        "set_device": chosen,
        "device": _DeviceContext,
        "_DeviceGuard": _DeviceContext,
        "get_device_properties": lambda device=None: properties,
        "get_device_name": lambda device=None: properties.name,
        "get_device_capability": lambda device=None: (properties.major, properties.minor),
        "is_bf16_supported": lambda including_emulation=True: properties.major >= 8,
        "get_arch_list": lambda: [f"sm_{properties.major}{properties.minor}"],
        **dict.fromkeys(("utilization", "memory_usage", "temperature", "power_draw", "clock_rate"), lambda device=None: 0),
        **dict.fromkeys(
            ("_compile_kernel", "compile_kernel"), lambda kernel_source, kernel_name, *_, **__: CudaKernel(recorder, kernel_name)
        ),
        "can_device_access_peer": lambda *_: True,
        "cudart": lambda: types.SimpleNamespace(),
    }


def _memory(recorder: Recorder, properties: Any) -> Answers:
    def statistics(*_: Any, **__: Any) -> dict[str, int]:
        found = {
            f"{name}_bytes.all.{what}": value
            for name in ("allocated", "reserved", "active")
            for what, value in (("current", recorder.storages.held), ("peak", recorder.storages.fullest))
        }
        return found | {"num_alloc_retries": 0, "num_ooms": 0}

    def held(device: Any = None) -> int:
        return recorder.storages.held

    def fullest(device: Any = None) -> int:
        return recorder.storages.fullest

    def reset(*_: Any, **__: Any) -> None:
        recorder.storages.fullest = recorder.storages.held

    return {
        **dict.fromkeys(("memory_allocated", "memory_reserved", "memory_cached"), held),
        **dict.fromkeys(("max_memory_allocated", "max_memory_reserved", "max_memory_cached"), fullest),
        **dict.fromkeys(("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"), reset),
        "reset_accumulated_memory_stats": lambda device=None: None,
        "memory_stats": statistics,
        "mem_get_info": lambda device=None: (properties.total_memory - recorder.storages.held, properties.total_memory),
        "memory_summary": lambda *_, **__: "",
        "empty_cache": lambda: recorder.builder.empty_cache(recorder.where.line()),
        "ipc_collect": lambda: None,
        "set_per_process_memory_fraction": lambda *_, **__: None,
        "memory_snapshot": lambda *_, **__: [],
    }


def _streams(recorder: Recorder) -> Answers:
    guard = recorder.program.guard

    return {
        "synchronize": lambda device=None: recorder.host_waits(stream=NOWHERE),
        "Stream": Stream,
        "Event": Event,
        "stream": StreamContext,
        "StreamContext": StreamContext,
        "ExternalStream": lambda pointer, device=None: Stream(device, stream_id=int(pointer)),
        "current_stream": lambda device=None: Stream(device, stream_id=guard.costmodel_stream()),
        "default_stream": lambda device=None: Stream(device, stream_id=0),
        "set_stream": lambda stream: guard.costmodel_set_stream(stream.stream_id),
        "_sleep": lambda cycles: None,
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": lambda mode: None,
    }


def _random(gpus: int) -> Answers:
    generators = tuple(torch.Generator() for _ in range(gpus))
    return {
        "get_rng_state": lambda device=None: torch.zeros(RANDOM_STATE, dtype=torch.uint8, device="cpu"),
        "get_rng_state_all": lambda: [torch.zeros(RANDOM_STATE, dtype=torch.uint8, device="cpu") for _ in generators],
        "set_rng_state": lambda state, device=None: None,
        "set_rng_state_all": lambda states: None,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "seed": lambda: None,
        "seed_all": lambda: None,
        "initial_seed": lambda: 0,
        "default_generators": generators,
    }
