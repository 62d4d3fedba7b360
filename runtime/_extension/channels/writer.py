"""The end of a channel that writes."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from runtime._wire import serialization
from runtime._wire.serialization import Serialized as Serialized
from runtime._wire.serialization import dump_plain as dump_plain

from . import rendezvous
from .address import ChannelAddress, Place, here
from .errors import (
    ChannelClosedError,
    ChannelError,
    ChannelFailedError,
    ChannelTimeoutError,
    dump_failure,
    load_failure,
)
from .inherited import holders, opening
from .memory import Geometry
from .positions import WriterPositions
from .shared import SharedChannel
from .waiting import Ready, Waiter, deadline_of

SLOT_BYTES = 4064
"""Room in a slot by default: with the slot's head, about a page."""
Pickled = bytes | Serialized
"""A pickled value. Bytes are what `dump_plain` gives: no buffers, no references."""


def create(
    name: str,
    readers: Sequence[str],
    capacity: int = 8,
    *,
    writer: str = "writer",
    slot_bytes: int = SLOT_BYTES,
    place: Place | None = None,
    on_failure: Callable[[ChannelError], None] | None = None,
) -> Writer:
    """Makes a channel and its writing end, in this process. Values may be written before the readers come.

    Args:
        name: for errors.
        readers: the names of the ends that read, at least one, each another.
        capacity: how many values the slowest reader may be behind.
        writer: the name of this end.
        slot_bytes: values up to this size (pickled) are copied by readers; larger ones are read in place.
        place: where this process is; the default asks its cluster.
        on_failure: called once when the channel fails, as it does when a reader's process ends: a program that waits
            for something else hears of it, too. In any thread; it must not block for long.

    Raises:
        ValueError: a name occurs twice, or there is none.
        OSError: no memory, descriptors or sockets.
    """
    names = tuple(readers)
    if len(set(names)) != len(names) or not names:
        raise ValueError(f"a channel has readers of different names, not {names}")
    place = place or here()
    geometry = Geometry(capacity, max(64, slot_bytes + -slot_bytes % 32), len(names))
    with opening:
        shared = SharedChannel(os.urandom(16), name, names, geometry, on_failure)
        holders.add(shared)
    try:
        socket_name, port = rendezvous.announce(shared, place)
    except BaseException:
        shared.close_descriptors()
        raise
    address = ChannelAddress(
        shared.channel_id,
        shared.token,
        name,
        writer,
        names,
        place.node_id,
        socket_name,
        place.host,
        port,
    )
    return Writer(shared, address, place)


class Writer:
    """The writing end; made by `create`. Calls of several threads follow each other.

    Every call raises `PeerLostError` once a reader's process is gone, `ChannelFailedError` once an end has failed, and
    `ChannelClosedError` once this end is closed or a reader has closed its own.

    Attributes:
        address: what `open_reader` takes.
    """

    def __init__(self, shared: SharedChannel, address: ChannelAddress, place: Place) -> None:
        self.address = address
        self._shared = shared
        self._place = place
        self._memory = shared.memory
        self._data_fds = shared.data_fds
        self._positions = WriterPositions(shared.geometry.capacity, len(shared.readers))
        self._waiter = Waiter((*shared.taken_fds, shared.news_fd))
        self._references: deque[list[Any]] = deque(maxlen=2 * shared.geometry.capacity)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._is_closed = False

    def put(self, value: Any, timeout_s: float | None) -> None:
        """Writes a value for every reader.

        Args:
            value: anything that can be pickled. Buffers, as of numpy arrays, are copied once.
            timeout_s: how long to wait for room; None: until there is room or the channel ends.

        Raises:
            TypeError: the value cannot be pickled. Nothing was written.
            ChannelTimeoutError: the slowest reader stays `capacity` values behind. Nothing was written.
            ChannelError: see the class.
        """
        self.write(serialize(value), timeout_s)

    def write(self, pickled: Pickled, timeout_s: float | None) -> None:
        """`put` of what `serialize` gave."""
        with self._lock:
            if self._is_closed or self._shared.failure is not None:
                self._check()
            if not self._positions.room:
                deadline = deadline_of(timeout_s)
                while not self._made_room(self._waiter.wait(deadline)):
                    pass
            self._write(pickled)

    async def put_async(self, value: Any, timeout_s: float | None) -> None:
        """`put` for an event loop; one call at a time."""
        pickled = serialize(value)
        self._check()
        deadline = deadline_of(timeout_s)
        while not self._positions.room:
            ready = await self._waiter.wait_async(deadline)
            with self._lock:
                self._made_room(ready)
        with self._lock:
            self._check()
            self._write(pickled)

    @property
    def unread(self) -> int:
        """How many values the slowest reader had not taken when the writer last had to look."""
        return self._positions.written - min(self._positions.taken)

    def _check(self) -> None:
        if self._shared.failure is not None:
            raise load_failure(self._shared.failure)
        if self._is_closed:
            raise ChannelClosedError(f"Channel closed: {self.address.name!r} was closed at this end.")

    def _made_room(self, ready: Ready) -> bool:
        """Takes in what readers have told; whether there is room."""
        self._check()
        if not ready:
            raise ChannelTimeoutError(
                f"{self._behind()} of {self.address.name!r} took none of the {self._positions.capacity} values that "
                "wait for it in time."
            )
        for index, fd in enumerate(self._shared.taken_fds):
            if fd in ready:
                self._positions.took(index, os.eventfd_read(fd))
        return self._positions.room > 0

    def _behind(self) -> str:
        positions = self._positions
        slowest = [
            repr(name)
            for name, taken in zip(self.address.readers, positions.taken, strict=True)
            if positions.written - taken >= positions.capacity
        ]
        return f"The end {', '.join(slowest)}"

    def _write(self, pickled: Pickled) -> None:
        self._memory.write(self._positions.slot, pickled)
        self._positions.wrote()
        if not isinstance(pickled, bytes) and pickled.references:
            self._references.append(pickled.references)
        for fd in self._data_fds:
            os.eventfd_write(fd, 1)

    def fail(self, cause: BaseException) -> None:
        """Fails the channel: every wait at every end ends with `ChannelFailedError`. Idempotent, from any thread."""
        self._shared.fail(failure_of(self.address.writer, cause))

    def close(self) -> None:
        """Writes no more. Readers take what is left and then get `ChannelClosedError`. Idempotent, from any thread;
        does not wait for readers, so that a process that ends right after it may take values along."""
        if os.getpid() != self._pid or self._is_closed:
            return  # a forked child has nothing of it, and what was closed has no descriptors
        self._is_closed = True
        os.eventfd_write(self._shared.news_fd, 1)  # ends a wait of another thread
        self._waiter.wake()
        with self._lock:
            self._shared.close(self._positions.written)
        rendezvous.look(self._place)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # When Python ends, threads that it has stopped may hold locks for ever, and the kernel closes everything.
        if not is_ending() and not self.__dict__.get("_is_closed", True):
            self.close()


def failure_of(by: str, cause: BaseException) -> bytes:
    """What the ends of a channel raise that fails for a cause; one of ours is its own cause."""
    return dump_failure(cause if isinstance(cause, ChannelError) else ChannelFailedError(by, cause))


def serialize(value: Any) -> Pickled:
    """Pickles a value for a channel.

    Raises:
        TypeError: it cannot be pickled.
    """
    if type(value) in serialization.PLAIN:
        return dump_plain(value)
    try:
        return serialization.serialize(value)
    except TypeError as error:
        raise serialization.not_serializable("a value for a channel", error) from error
