"""PyTorch's caching allocator replayed over the births and deaths of storages, and what it reserves for them.

References
----------
pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp: ``round_size``, ``get_allocation_size``, ``should_split``, ``get_free_block``,
``release_cached_blocks``, ``synchronize_and_free_events``, ``try_allocate_expandable_block``
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from costmodel.text.units import MiB
from costmodel.traces.record import (
    BORN,
    DIED,
    EMPTY_CACHE,
    EVENT_RECORD,
    HOST_WAIT,
    KERNEL,
    NOWHERE,
    STREAM_WAIT,
    TRANSACTION,
    USED_ON,
    Role,
)

Floats = NDArray[np.float64]

ROUND = 512
"""Bytes to a multiple of which every request is rounded up, and of the smallest block."""
SMALL = 1 * MiB
"""The largest request that comes from the pool of small blocks, and the remainder that isn't worth a split in the other pool."""
SMALL_SEGMENT, LARGE_SEGMENT = 2 * MiB, 20 * MiB
"""Asked of the driver for a small request, and for one below `OWN_SEGMENT`; pages of expandable segments, too."""
OWN_SEGMENT = 10 * MiB
"""From this request on a segment of its own is asked for, rounded up to `SMALL_SEGMENT`."""
NEVER = float("inf")
ON_STREAMS = (KERNEL, TRANSACTION, EVENT_RECORD, STREAM_WAIT)


def rounded(nbytes: int) -> int:
    """Bytes that a request takes, without what an unsplit block adds [bytes].

    Parameters
    ----------
    nbytes : asked for [bytes]

    Examples
    --------
    >>> rounded(1), rounded(512), rounded(513)
    (512, 512, 1024)
    """
    return ROUND * max(-(-nbytes // ROUND), 1)


def segment_bytes(size: int) -> int:
    """Bytes that are asked of the driver for a request that no cached block holds [bytes].

    Parameters
    ----------
    size : rounded request [bytes]

    Examples
    --------
    >>> [segment_bytes(size) / 2**20 for size in (512, 2**20 + 512, 11 * 2**20)]
    [2.0, 20.0, 12.0]
    """
    if size <= SMALL:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < OWN_SEGMENT else SMALL_SEGMENT * -(-size // SMALL_SEGMENT)


class OutOfMemory(Exception):
    """The device has no room for a request, whatever is given back."""


@dataclasses.dataclass(slots=True, eq=False)
class Block:
    """A stretch of a segment, with its neighbours there; free, or some storage's."""

    address: int
    size: int
    pool: Pool
    free: bool
    before: Block | None = None
    after: Block | None = None


@dataclasses.dataclass(slots=True, eq=False)
class Pool:
    """Free blocks of one stream, small or large ones, by size and then by address."""

    small: bool
    blocks: list[tuple[int, int, Block]] = dataclasses.field(default_factory=list)
    last: Block | None = None
    """Of an expandable segment: its last block."""

    def put(self, block: Block) -> None:
        """A block is free."""
        block.free = True
        bisect.insort(self.blocks, (block.size, block.address, block), key=_size_and_address)

    def take(self, block: Block) -> None:
        """A free block is no more."""
        block.free = False
        place = bisect.bisect_left(self.blocks, (block.size, block.address), key=_size_and_address)
        del self.blocks[place]

    def best(self, size: int) -> Block | None:
        """The smallest free block that holds a request."""
        place = bisect.bisect_left(self.blocks, (size, -1), key=_size_and_address)
        return self.blocks[place][2] if place < len(self.blocks) else None


def _size_and_address(entry: tuple[int, int, Block] | tuple[int, int]) -> tuple[int, int]:
    return entry[0], entry[1]


class Allocator:
    """The caching allocator of one device.

    Parameters
    ----------
    capacity : of the device for it [bytes]
    expandable : ``expandable_segments:True`` of PYTORCH_CUDA_ALLOC_CONF: a segment for each pool that grows by pages

    Assumptions
    -----------
    Of an expandable segment only free pages at its end are given back to the driver.
    """

    def __init__(self, capacity: float = NEVER, expandable: bool = False):
        self.capacity, self.expandable = capacity, expandable
        self.allocated = self.reserved = 0
        self.retries = 0
        """Times that it gave all cached segments back to the driver to find room, which waits for the device."""
        self.returned = 0
        """Given back to the driver since it began [bytes]."""
        self.settle: Callable[[], None] = lambda: None
        """Gives back the blocks that other streams still use, for which it waits before it empties its cache."""
        self._pools: dict[tuple[int, bool], Pool] = {}
        self._next = 0

    def allocate(self, nbytes: int, stream: int) -> Block:
        """A block for a request; `OutOfMemory` where the device has none.

        Parameters
        ----------
        nbytes : asked for [bytes]
        stream : whose pool
        """
        size = rounded(nbytes)
        pool = self._pools.setdefault((stream, size <= SMALL), Pool(size <= SMALL))
        block = pool.best(size)
        if block is not None:
            pool.take(block)
        else:
            block = self._grown(pool, size) if self.expandable else self._segment(pool, size)
        rest = block.size - size
        if rest >= ROUND if pool.small or self.expandable else rest > SMALL:
            remainder = Block(block.address + size, rest, pool, True, block, block.after)
            if block.after is not None:
                block.after.before = remainder
            block.after, block.size = remainder, size
            pool.last = remainder if pool.last is block else pool.last
            pool.put(remainder)
        self.allocated += block.size
        return block

    def release(self, block: Block) -> None:
        """A block goes back to the cache, joined with free neighbours.

        Parameters
        ----------
        block : that `allocate` gave
        """
        self.allocated -= block.size
        pool = block.pool
        for other in (block.before, block.after):
            if other is not None and other.free:
                pool.take(other)
                _join(pool, block, other)
        pool.put(block)

    def empty(self) -> None:
        """All segments that hold nothing go back to the driver, once all streams have done what they have to do."""
        self.settle()
        for pool in self._pools.values():
            if self.expandable:
                self._shrink(pool)
                continue
            for _, _, block in list(pool.blocks):
                if block.before is None and block.after is None:
                    pool.take(block)
                    self._return(block.size)

    def _return(self, nbytes: int) -> None:
        self.reserved -= nbytes
        self.returned += nbytes

    def _make_room(self, more: int) -> None:
        """Give cached segments back where the device hasn't room for more."""
        if self.reserved + more > self.capacity:
            self.retries += 1
            self.empty()
            if self.reserved + more > self.capacity:
                raise OutOfMemory(more)
        self.reserved += more

    def _segment(self, pool: Pool, size: int) -> Block:
        length = segment_bytes(size)
        self._make_room(length)
        self._next += length
        return Block(self._next - length, length, pool, False)

    def _grown(self, pool: Pool, size: int) -> Block:
        """The end of an expandable segment, made long enough."""
        more = _pages(pool, size)
        if self.reserved + more > self.capacity:
            self.retries += 1
            self.empty()
            more = _pages(pool, size)  # what made room may have taken the end
        if self.reserved + more > self.capacity:
            raise OutOfMemory(more)
        self.reserved += more
        last = pool.last
        if last is not None and last.free:
            pool.take(last)
            last.size += more
            return last
        if last is None:
            self._next += 2**50  # each has addresses of its own
        block = Block(self._next if last is None else last.address + last.size, more, pool, False, last, None)
        if last is not None:
            last.after = block
        pool.last = block
        return block

    def _shrink(self, pool: Pool) -> None:
        last = pool.last
        if last is None or not last.free:
            return
        page = SMALL_SEGMENT if pool.small else LARGE_SEGMENT
        pages = page * (last.size // page)
        if not pages:
            return
        pool.take(last)
        self._return(pages)
        last.size -= pages
        if last.size:
            pool.put(last)
        else:
            pool.last = last.before
            if last.before is not None:
                last.before.after = None


def _pages(pool: Pool, size: int) -> int:
    """Bytes by which the end of an expandable segment must grow to hold a request."""
    page = SMALL_SEGMENT if pool.small else LARGE_SEGMENT
    have = pool.last.size if pool.last is not None and pool.last.free else 0
    return page * -(-(size - have) // page)


def _join(pool: Pool, block: Block, other: Block) -> None:
    """A free neighbour becomes part of a block."""
    if other.address < block.address:
        block.address, block.before = other.address, other.before
        if other.before is not None:
            other.before.after = block
    else:
        block.after = other.after
        if other.after is not None:
            other.after.before = block
    block.size += other.size
    if pool.last is other:
        pool.last = block


@dataclasses.dataclass(frozen=True)
class Reserved:
    """What the allocator did over a role's timeline."""

    allocated: NDArray[np.int64]  # after each row of the timeline [bytes]
    reserved: NDArray[np.int64]  # the same [bytes]
    returned: NDArray[np.int64]  # given back to the driver in each row, whatever for [bytes]
    retried_at: tuple[int, ...]  # rows at which it gave its cache back to find room
    failed_at: int  # row at which the device had no room, `NOWHERE` where it always had
    missing: int  # what was asked of the driver then [bytes]

    @property
    def retries(self) -> int:
        """Times that it gave its cache back to find room."""
        return len(self.retried_at)


def replay(
    role: Role, capacity: float = NEVER, expandable: bool = False, host: Floats | None = None, ends: Floats | None = None,
) -> Reserved:  # fmt: skip
    """Replay a role's storages through the allocator, from the start of the record.

    A block that another stream uses comes back once that stream has done what it had to do: where times are given, when the
    host has come as far; else, when the host has waited for that stream.

    Parameters
    ----------
    capacity : of the device for the allocator [bytes]
    expandable : whether its segments are expandable
    host : when the host does each row of the timeline [s]
    ends : of each row, when the stream that it is about has done all up to it [s]
    """
    played, timeline = _Replay(role, Allocator(capacity, expandable), host), role.timeline
    allocated, reserved, returned = np.zeros((3, len(timeline)), dtype=np.int64)
    failed, missing = NOWHERE, 0
    retried: list[int] = []
    rows = zip(timeline.action.tolist(), timeline.item.tolist(), timeline.stream.tolist(), strict=True)
    for row, (action, item, stream) in enumerate(rows):
        try:
            played.act(row, action, item, stream)
        except OutOfMemory as error:
            failed, missing = row, int(error.args[0])
            retried += [row] * (played.allocator.retries - len(retried))
            allocated[row:], reserved[row:] = played.allocated, played.allocator.reserved
            break
        retried += [row] * (played.allocator.retries - len(retried))
        if ends is not None and stream != NOWHERE and action in ON_STREAMS:
            played.done[stream] = float(ends[row])
        allocated[row], reserved[row], returned[row] = played.allocated, played.allocator.reserved, played.allocator.returned
    returned[failed if failed != NOWHERE else len(timeline) :] = played.allocator.returned
    return Reserved(allocated, reserved, np.diff(returned, prepend=0), tuple(retried), failed, missing)


@dataclasses.dataclass(slots=True)
class _Waiting:
    """A block that its owner gave up while other streams still use it."""

    block: Block
    streams: set[int]
    since: int
    ready: float


class _Replay:
    """Blocks of storages as a timeline goes on."""

    def __init__(self, role: Role, allocator: Allocator, host: Floats | None):
        self.allocator, self.host = allocator, host
        allocator.settle = lambda: self._return(lambda _: True)
        self.sizes, self.streams = role.storages.bytes.tolist(), role.storages.stream.tolist()
        self.blocks: dict[int, Block] = {}
        self.used: dict[int, set[int]] = {}
        self.events: dict[int, int] = {}
        self.waiting: list[_Waiting] = []
        self.done: dict[int, float] = {}

    @property
    def allocated(self) -> int:
        """Of blocks that have an owner [bytes]."""
        return self.allocator.allocated - sum(one.block.size for one in self.waiting)

    def act(self, row: int, action: int, item: int, stream: int) -> None:
        """One row of the timeline."""
        if action == BORN:
            if self.waiting and self.host is not None:
                now = float(self.host[row])
                self._return(lambda one: one.ready <= now)
            self.blocks[item] = self.allocator.allocate(self.sizes[item], self.streams[item])
        elif action == DIED:
            self._died(row, item)
        elif action == USED_ON:
            self.used.setdefault(item, set()).add(stream)
        elif action == EVENT_RECORD:
            self.events[item] = row
        elif action == HOST_WAIT and self.waiting:
            until = row if item == NOWHERE else self.events.get(item, row)
            for one in self.waiting:
                if one.since < until:
                    one.streams.difference_update(one.streams if stream == NOWHERE else (stream,))
            self._return(lambda one: not one.streams)
        elif action == EMPTY_CACHE:
            self.allocator.empty()

    def _died(self, row: int, item: int) -> None:
        block, others = self.blocks.pop(item), self.used.pop(item, set()) - {self.streams[item]}
        if not others:
            self.allocator.release(block)
            return
        ready = NEVER if self.host is None else max(self.done.get(one, 0.0) for one in others)
        self.waiting.append(_Waiting(block, others, row, ready))

    def _return(self, is_done: Callable[[_Waiting], bool]) -> None:
        for one in self.waiting:
            if is_done(one):
                self.allocator.release(one.block)
        self.waiting = [one for one in self.waiting if not is_done(one)]
