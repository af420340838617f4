"""Makes process groups in which one rank is there, wherever the program asks PyTorch for groups."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh
import torch.distributed.distributed_c10d as c10d

from costmodel.traces.fake_machine.fake_groups import FakeGroup
from costmodel.traces.fake_machine.mailbox import Mailbox
from costmodel.traces.fake_machine.recorder import Recorder
from costmodel.traces.fake_machine.replacing import Replacement, replaced


@dataclasses.dataclass(frozen=True)
class _Replacements:
    """What a process calls to make groups, and to send through them, here."""

    recorder: Recorder
    mailbox: Mailbox | None
    rank: int
    world: int
    init_process_group: Any = dist.init_process_group
    """PyTorch's own."""
    batch_isend_irecv: Any = c10d.batch_isend_irecv

    def made(
        self,
        group_size: int,
        group_rank: int,
        members: Sequence[int],
        backend: Any,
        store: Any,
        group_name: Any,
        backend_options: Any = None,
        timeout: Any = None,
        pg_tag: Any = None,
        device_id: Any = None,
        group_desc: Any = None,
        **_: Any,
    ) -> tuple[Any, Any]:
        """A group of some ranks."""
        if pg_tag not in (None, ""):
            existing = c10d._find_pg_by_ranks_and_tag(pg_tag, members)
            if existing:
                return existing, c10d._world.pg_map[existing][1]
        if members and self.rank not in members:
            return dist.GroupMember.NON_GROUP_MEMBER, None
        ranks = list(members) or list(range(group_size))
        config = c10d.BackendConfig(c10d.Backend(backend if backend else "undefined"))
        named = "gloo" if str(backend) == "gloo" else "nccl"
        group = FakeGroup(self.recorder, self.mailbox, str(group_name), ranks.index(self.rank), ranks, named)
        group.devices = tuple(config.get_device_backend_map())
        group._set_group_desc(group_desc or "undefined")
        tag = "" if pg_tag in (None, "") else f"user:{pg_tag}"
        how: dict[str, Any] = {"add_to_default_tag": True} if not tag else {"pg_tag": tag}
        name = str(backend) if backend and str(backend) != "undefined" else "nccl"
        c10d._register_pg_in_world(
            group, backend_name=name, store=store, group_name=group_name, backend_config=str(config), **how
        )
        return group, store

    def of_objects(self, group: Any = None) -> str:
        """Where objects that a group exchanges lie: on the host where the program named a library for it, as PyTorch has it."""
        devices = (group or c10d._get_default_group()).devices
        return "cpu" if "cpu" in devices else "cuda"

    def begun(
        self,
        backend: Any = None,
        init_method: Any = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        group_name: str = "",
        pg_options: Any = None,
        device_id: Any = None,
        **others: Any,
    ) -> None:
        """The group of all ranks."""
        self.init_process_group(
            backend=backend, timeout=timeout, world_size=self.world, rank=self.recorder.builder.rank, store=dist.HashStore(),
            group_name=group_name,
        )  # fmt: skip

    def batched(self, operations: list[Any]) -> list[Any]:
        """Messages of one launch, none of which waits for another."""
        groups = {id(one.group): one.group for one in operations if isinstance(one.group, FakeGroup)}.values()
        for group in groups:
            group._start_coalescing(None)
        try:
            works: list[Any] = self.batch_isend_irecv(operations)
        finally:
            for group in groups:
                group._end_coalescing(None)
        return works

    def listed(self) -> list[Replacement]:
        """Owner, name and what takes its place."""
        return [
            (dist, "batch_isend_irecv", self.batched),
            (c10d, "batch_isend_irecv", self.batched),
            (dist, "init_process_group", self.begun),
            (c10d, "init_process_group", self.begun),
            (device_mesh, "init_process_group", self.begun),  # a mesh makes the group of all where a program hasn't
            (c10d, "_new_process_group_helper", self.made),
            (dist, "_verify_params_across_processes", lambda *_, **__: None),
            (dist, "is_nccl_available", lambda: True),
            (c10d, "is_nccl_available", lambda: True),
            (torch.distributed.utils, "_verify_param_shape_across_processes", lambda *_, **__: None),
            (torch.nn.parallel.distributed, "_verify_param_shape_across_processes", lambda *_, **__: None),
            (dist.Logger, "set_runtime_stats_and_log", lambda self: None),
            (dist, "monitored_barrier", lambda *_, **__: None),
            (c10d, "_get_pg_default_device", lambda group=None: torch.device("cuda")),
            (c10d, "_get_object_coll_device", self.of_objects),
        ]


@contextlib.contextmanager
def installed(recorder: Recorder, mailbox: Mailbox | None, rank: int, world: int) -> Iterator[None]:
    """Make process groups of this kind while it is entered.

    Parameters
    ----------
    recorder : of what they exchange
    mailbox : to other traced ranks; None where there are none
    rank, world : of this process
    """
    recorder.world = world
    known = (one for one in _Replacements(recorder, mailbox, rank, world).listed() if hasattr(one[0], one[1]))
    with replaced(known):
        yield
