"""What a process group answers of itself: its name, its members, the library behind it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist


class NamedGroup(dist.ProcessGroup):
    """A group that is nothing but its name and its members.

    Parameters
    ----------
    name : of the group
    rank : place of this rank in it
    ranks : members, as ranks of the world
    backend : what the program asked for
    """

    def __init__(self, name: str, rank: int, ranks: Sequence[int], backend: str):
        super().__init__(rank, len(ranks))
        self._name, self._rank, self.ranks, self._backend = name, rank, tuple(ranks), backend
        self._description = ""
        self.devices: tuple[str, ...] = ("cuda",)

    def getBackendName(self) -> str:
        """What the program asked for."""
        return self._backend

    def getRank(self) -> int:
        """Place of this rank."""
        return self._rank

    def getSize(self) -> int:
        """Members."""
        return len(self.ranks)

    def getGroupName(self) -> str:
        """Its name."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """Name it."""
        self._name = name

    def getGroupDesc(self) -> str:
        """What it is for."""
        return self._description

    def setGroupDesc(self, description: str) -> None:
        """Say what it is for."""
        self._description = description

    group_name = property(lambda self: self._name)
    group_desc = property(lambda self: self._description)
    bound_device_id = None

    def rank(self) -> int:
        """Place of this rank."""
        return self._rank

    def size(self) -> int:
        """Members."""
        return len(self.ranks)

    def name(self) -> str:
        """What the program asked for."""
        return self._backend

    def _get_backend(self, device: Any) -> Any:
        return _Backend(self)

    def _get_backend_name(self) -> str:
        return self._backend

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    def _set_default_backend(self, kind: Any) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return 0

    def _has_hooks(self) -> bool:
        return False

    def shutdown(self) -> None:
        """Nothing to end."""

    def abort(self) -> None:
        """Nothing to end."""

    def set_timeout(self, timeout: Any) -> None:
        """Nothing hangs here."""


class _Backend:
    """What a group answers of the library behind it."""

    supports_splitting = supports_coalescing = supports_time_estimate = False

    def __init__(self, group: NamedGroup):
        self._group = group
        self.options = _Options(group)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)

    def eager_connect_single_device(self, device: Any) -> None:
        """Nothing to connect."""

    def _is_initialized(self) -> bool:
        return True

    def get_error(self) -> None:
        """None."""


class _Options:
    def __init__(self, group: NamedGroup):
        self._timeout = datetime.timedelta(minutes=10)
        self.global_ranks_in_group, self.group_name, self.config = list(group.ranks), group._name, None
        self.is_high_priority_stream = False
