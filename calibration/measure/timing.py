"""Timing of single operations: warm-up, cold caches, adaptive repeats, medians.

Method on a GPU. One *sample* is a pair of device events around a number of launches; the row's ``seconds`` is
the median over the samples of the time of one launch. Before every sample a buffer larger than twice the L2
cache is written, and the launches of a sample cycle through several sets of inputs, so that inputs are not
found in the cache. A spinning kernel is queued ahead of every sample and holds the device until the host has
queued the whole sample: the host's time is therefore not part of a kernel's time, but the device's own gap
between two consecutive kernels is, as it is in a training step. Operations shorter than 0.2 ms are launched
several times per sample (``launches_per_repeat``).

Method on a CPU. Every sample is timed with ``time.perf_counter``; inputs are rotated in the same way.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy
import torch

Call = Callable[[], object]


@dataclass(frozen=True)
class Point:
    """One measurement to make."""

    parameters: dict
    run: Callable[[], dict]


def summarize(samples: Sequence[float], launches_per_repeat: int = 1) -> dict:
    """Return the fields ``seconds``, ``spread``, ``repeats`` and ``launches_per_repeat`` of a row."""
    lower, median, upper = (float(value) for value in numpy.percentile(samples, [25, 50, 75]))
    return {
        "seconds": median,
        "spread": (upper - lower) / median if median > 0 else 0.0,
        "repeats": len(samples),
        "launches_per_repeat": launches_per_repeat,
    }


class Timer:
    """Times operations on one device."""

    def __init__(self, device: torch.device, quick: bool) -> None:
        self.device = device
        self.quick = quick
        self.on_gpu = device.type == "cuda"
        self.target_seconds = (0.006 if quick else 0.015) if self.on_gpu else 0.004
        self.cache_bytes = 0
        self.cycles_per_second = 0.0
        if self.on_gpu:
            self.cache_bytes = torch.cuda.get_device_properties(device).L2_cache_size
            self.flush_buffer = torch.zeros(max(2 * self.cache_bytes, 1 << 27) // 4, dtype=torch.int32, device=device)
            self.warm_up_clocks(0.3 if quick else 1.0)
            self.cycles_per_second = self.calibrate_spinning()

    def warm_up_clocks(self, seconds: float) -> None:
        """Keep the device busy with matrix products for ``seconds`` so that its clocks rise."""
        left = torch.randn(4096, 4096, device=self.device, dtype=torch.bfloat16)
        right = torch.randn(4096, 4096, device=self.device, dtype=torch.bfloat16)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(50):
                torch.mm(left, right)
            self.synchronize()

    def calibrate_spinning(self) -> float:
        """Return how many cycles the spinning kernel counts per second."""
        cycles = 10_000_000
        torch.cuda._sleep(cycles)
        begin = self.mark()
        torch.cuda._sleep(cycles)
        end = self.mark()
        self.synchronize()
        return cycles / max(self.elapsed(begin, end), 1e-6)

    def synchronize(self) -> None:
        """Wait for all work queued on the device."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def mark(self) -> torch.cuda.Event:
        """Mark this place in the device's queue."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Return the seconds between two marks; the device must have passed both."""
        return begin.elapsed_time(end) * 1e-3

    def hold(self, seconds: float) -> None:
        """Queue a kernel that spins for ``seconds`` while the host queues what follows."""
        torch.cuda._sleep(int(min(seconds, 0.02) * self.cycles_per_second))

    def set_count(self, set_bytes: int) -> int:
        """Return how many input sets of ``set_bytes`` to rotate through, so that the cache holds none."""
        if not self.on_gpu:
            return 2
        return min(max(math.ceil(3 * self.cache_bytes / max(set_bytes, 1)), 1), 16)

    def measure(self, calls: Sequence[Call]) -> dict:
        """Time an operation.

        The calls, the same operation on different sets of inputs, are made in turn. On a GPU ``host_seconds`` is the host's time
        to queue one call.
        """
        return self.measure_on_gpu(calls) if self.on_gpu else self.measure_on_cpu(calls)

    def measure_on_cpu(self, calls: Sequence[Call]) -> dict:
        """Time an operation with the host's clock."""
        for call in calls[:2]:
            call()
        begin = time.perf_counter()
        calls[0]()
        estimate = max(time.perf_counter() - begin, 1e-7)
        launches = min(max(int(2e-4 / estimate), 1), 100)
        repeats = min(max(int(self.target_seconds / (launches * estimate)), 3), 40)
        order = itertools.cycle(calls)
        samples = []
        for _ in range(repeats):
            begin = time.perf_counter()
            for _ in range(launches):
                next(order)()
            samples.append((time.perf_counter() - begin) / launches)
        return summarize(samples, launches)

    def measure_on_gpu(self, calls: Sequence[Call]) -> dict:
        """Time an operation with device events (see the module's docstring)."""
        for call in calls:
            call()
        self.synchronize()
        host, device = self.estimate(calls[0])
        slower = max(host, device)
        order = itertools.cycle(calls)
        for _ in range(min(int(0.2 * self.target_seconds / slower), 50)):
            next(order)()
        launches = 1 if device > 1e-4 else min(math.ceil(2e-4 / device), 64, max(int(4e-3 / host), 1))
        repeats = min(max(int(self.target_seconds / (launches * slower)), 3 if slower > 0.02 else 5), 40)
        marks = []
        for _ in range(repeats):
            self.flush_buffer.fill_(1)
            self.hold(1.5 * launches * host + 3e-5)
            begin = self.mark()
            for _ in range(launches):
                next(order)()
            marks.append((begin, self.mark()))
        self.synchronize()
        samples = [self.elapsed(begin, end) / launches for begin, end in marks]
        return summarize(samples, launches) | {"host_seconds": host}

    def estimate(self, call: Call) -> tuple[float, float]:
        """Return estimates of the host's and the device's seconds for one call."""
        begin = time.perf_counter()
        call()
        host = time.perf_counter() - begin
        self.synchronize()
        wall = time.perf_counter() - begin
        if wall > 5e-3:
            return host, wall
        self.hold(6 * host + 3e-5)
        start = self.mark()
        begin = time.perf_counter()
        for _ in range(3):
            call()
        host = max((time.perf_counter() - begin) / 3, 1e-6)
        end = self.mark()
        self.synchronize()
        return host, max(self.elapsed(start, end) / 3, 1e-6)
