"""The program's side of a generator: it waits for the items of a stream and takes them. What becomes of them decides
`runtime._ownership.streams`.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from runtime._ownership.released import Released
from runtime._ownership.streams import Stream
from runtime.object_ref import ObjectRef

from .links import Links
from .objects import Objects

STREAMING, DYNAMIC = -1, -2  # Push.num_returns


class Readers:
    """What the readers of all streams share: see `runtime.object_ref_generator.Caller`."""

    def __init__(self, links: Links, released: Released, objects: Objects) -> None:
        self.links = links
        self.pump = links.pump
        self.check = links.check
        self.released = released
        self.objects = objects


class StreamReader:
    """Takes the items of one stream. See `runtime.object_ref_generator.Stream`.

    Args:
        completed: a reference that is ready when the task has ended.
    """

    __slots__ = ("_stream", "caller", "completed")

    def __init__(self, caller: Readers, stream: Stream, completed: ObjectRef) -> None:
        self.caller = caller
        self.completed = completed
        self._stream = stream

    @property
    def items(self) -> Collection[object]:
        """The items that have come and were not taken."""
        return self._stream.items

    @property
    def ended(self) -> bool:
        """Whether no item will come any more."""
        return self._stream.ended

    def ignore_errors(self) -> None:
        """Errors that nobody reads are not logged, nor those of items to come. Under the engine's lock."""
        self._stream.ignores_errors = True
        for ref in (self.completed, *self._stream.items):
            ref._entry.seen = True

    def next(self, timeout_s: float | None) -> ObjectRef | None:
        """Waits for the next item and takes it; None when the stream has ended.

        Raises:
            TimeoutError: nothing came in time.
            RaySystemError: this process is not connected any more.
        """
        stream = self._stream
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                ref: ObjectRef = stream.items.popleft()
            except IndexError:
                if stream.ended and not stream.items:
                    return None
                links = self.caller.links
                links.check()
                left = None if deadline is None else deadline - time.monotonic()
                if not links.wait(lambda: stream.items or stream.ended, left):
                    raise TimeoutError(f"no item within {timeout_s} s") from None
                continue
            if stream.waiting is not None:
                with self.caller.links.lock:
                    stream.resume()
                self.caller.pump.kick()
            return ref

    def peek(self) -> ObjectRef:
        """A reference to the next item, which may be still to come; an error if the stream has ended."""
        with self.caller.links.lock:
            self.caller.objects.note_failure()
            ref: ObjectRef = self._stream.peek()
            return ref

    def abandon(self) -> None:
        """The generator is gone. Under the lock."""
        self._stream.abandon()
