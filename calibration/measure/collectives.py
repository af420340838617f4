"""Family "collective": NCCL collectives between the GPUs of this node.

``nbytes`` is the size, on one rank, of the tensor reduced (all_reduce), of the whole gathered result
(all_gather), of the whole input (reduce_scatter, all_to_all), or of the message from rank 0 to rank 1
(send_recv). Values are bf16. The time is rank 0's: device time of several operations queued one after
another, divided by their number.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

from .timing import Call, summarize

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


def collective_call(op: str, nbytes: int, ranks: int, rank: int, group: dist.ProcessGroup, device: torch.device) -> Call:
    """Return a function that performs the collective once."""
    whole = torch.randn(max(nbytes // 2 // ranks, 1) * ranks, device=device).to(torch.bfloat16)
    part = torch.empty(whole.numel() // ranks, device=device, dtype=torch.bfloat16)
    if op == "all_reduce":
        return lambda: dist.all_reduce(whole, group=group)
    if op == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, part, group=group)
    if op == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(part, whole, group=group)
    if op == "all_to_all":
        result = torch.empty_like(whole)
        return lambda: dist.all_to_all_single(result, whole, group=group)
    if rank == 0:
        return lambda: dist.send(whole, 1, group=group)
    return lambda: dist.recv(whole, 0, group=group)


def time_collective(call: Call, group: dist.ProcessGroup, device: torch.device) -> dict:
    """Time a collective; every rank of the group has to call this."""
    on_gpu = device.type == "cuda"

    def repeat(count: int) -> float:
        dist.barrier(group=group)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if on_gpu else []
        if on_gpu:
            torch.cuda.synchronize(device)
            marks[0].record()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        if on_gpu:
            marks[1].record()
            torch.cuda.synchronize(device)
            return marks[0].elapsed_time(marks[1]) * 1e-3 / count
        return (time.perf_counter() - begin) / count

    repeat(2)
    estimate = torch.tensor([repeat(3)], device=device, dtype=torch.float32)
    dist.broadcast(estimate, 0, group=group)
    launches = min(max(int(2e-3 / max(estimate.item(), 1e-6)), 1), 50)
    return summarize([repeat(launches) for _ in range(5)], launches)


def work(rank: int, world: int, backend: str, sizes: list[int], seconds: float, folder: str) -> None:
    """Measure as one of ``world`` processes; rank 0 writes rows and points left out into ``folder``."""
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=world)
    end = time.perf_counter() + seconds
    record: dict[str, list] = {"rows": [], "skipped": []}
    for ranks in dict.fromkeys(count for count in (2, 4, 8, world) if count <= world):
        group = dist.new_group(list(range(ranks)))
        for nbytes, op in itertools.product(sizes if rank < ranks else (), OPERATIONS):
            if op == "send_recv" and ranks != 2:
                continue
            point = {"op": op, "ranks": ranks, "nbytes": nbytes}
            expired = torch.tensor([float(time.perf_counter() > end)], device=device)
            dist.broadcast(expired, 0, group=group)
            if expired.item():
                record["skipped"].append({"point": point, "reason": "time budget used up"})
                continue
            try:
                measured = time_collective(collective_call(op, nbytes, ranks, rank, group, device), group, device)
                record["rows"].append({"family": "collective", **point, **measured})
            except (RuntimeError, NotImplementedError, ValueError) as error:
                record["skipped"].append({"point": point, "reason": str(error).splitlines()[0][:300]})
        dist.barrier()
    if rank == 0:
        Path(folder, "record.json").write_text(json.dumps(record), encoding="utf-8")
    dist.destroy_process_group()


def measure_collectives(world: int, backend: str, quick: bool, seconds: float, skip: Callable[[object, str], None]) -> list[dict]:
    """Return the rows of family "collective", measured by ``world`` processes.

    `seconds` are the time budget once the processes have started; `skip` receives every point left out, and why.
    """
    largest = 32 if backend == "nccl" else 16
    sizes = [1 << power for power in range(10, largest + 1, 4 if quick else 2)]
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, args=(world, backend, sizes, seconds, folder), nprocs=world)
        record = json.loads(Path(folder, "record.json").read_text(encoding="utf-8"))
    for item in record["skipped"]:
        skip(item["point"], item["reason"])
    return record["rows"]
