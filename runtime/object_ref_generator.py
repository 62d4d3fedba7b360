"""The results of generators: `ObjectRefGenerator` gives one reference at a time while the task still runs,
`DynamicObjectRefGenerator` all of them at its end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NoReturn, Protocol

import msgspec

from runtime._core import ids
from runtime._ownership.released import Released
from runtime.object_ref import KnownObjects, ObjectRef

MAX_METADATA_BYTES = 64 << 10


class Polling(Protocol):
    """Handles what other processes have sent."""

    def poll_once(self) -> None:
        """Without waiting."""


class Caller(Protocol):
    """The process that called a generator."""

    @property
    def objects(self) -> KnownObjects:
        """The objects that it knows."""

    @property
    def released(self) -> Released:
        """Takes the streams that nobody reads any more."""

    @property
    def pump(self) -> Polling:
        """Brings the values."""

    def check(self) -> None:
        """Raises why the process has left the cluster, if it has."""


class Stream(Protocol):
    """What a generator has yielded so far."""

    @property
    def caller(self) -> Caller:
        """The process that reads it."""

    @property
    def completed(self) -> ObjectRef | None:
        """A reference that is ready when the task has ended."""

    @property
    def items(self) -> Collection[object]:
        """The values that have come and were not read."""

    @property
    def ended(self) -> bool:
        """Whether no value will come any more."""

    def next(self, timeout_s: float | None) -> ObjectRef | None:
        """Takes the next reference; None at the end. Raises TimeoutError."""

    def peek(self) -> ObjectRef:
        """The next reference, which may not be ready."""


class Described:
    """What a generator yields in place of a value, to send metadata along. Its caller reads the metadata without the
    value (`runtime._extension.streams.metadata_of`).

    Args:
        metadata: what MessagePack can carry: None, numbers, strings, bytes, and lists and dicts of these.
    """

    __slots__ = ("metadata", "value")

    def __init__(self, value: Any, metadata: Any) -> None:
        self.value = value
        self.metadata = metadata

    def packed(self) -> bytes:
        """The metadata as it travels.

        Raises:
            TypeError: it holds something else.
            ValueError: it is larger than `MAX_METADATA_BYTES`.
        """
        packed = msgspec.msgpack.encode(self.metadata)
        if len(packed) > MAX_METADATA_BYTES:
            raise ValueError(
                f"The metadata of an item has {len(packed)} bytes; at most {MAX_METADATA_BYTES} travel with it. "
                "Put the rest into the value."
            )
        return packed


class DynamicObjectRefGenerator:
    """The value of a call with `num_returns="dynamic"`: iterates once over the references of all yielded values."""

    def __init__(self, refs: Iterable[ObjectRef]) -> None:
        self._refs = deque(refs)

    def __iter__(self) -> Iterator[ObjectRef]:
        while self._refs:
            yield self._refs.popleft()

    def __len__(self) -> int:
        return len(self._refs)


class ObjectRefGenerator:
    """Iterates over references to the values that a generator task yields, while the task runs.

    An exception of the task is the value of the last reference. Dropping the generator frees values that were not
    read; the task runs to its end. Also an asynchronous iterator. Returned by `.remote()`; cannot be pickled.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        completed = stream.completed
        assert completed is not None
        self._generator_ref: ObjectRef = completed

    def __del__(self) -> None:
        stream = self.__dict__.get("_stream")
        if stream is not None:
            stream.caller.released.add(stream)

    def __iter__(self) -> ObjectRefGenerator:
        return self

    def __next__(self) -> ObjectRef:
        ref = self._stream.next(None)
        if ref is None:
            raise StopIteration
        return ref

    def __aiter__(self) -> ObjectRefGenerator:
        return self

    async def __anext__(self) -> ObjectRef:
        return await self._next_async()

    def completed(self) -> ObjectRef:
        """A reference that is ready when the task has ended: None, or the error that ended it from outside (its worker
        died, it was cancelled)."""
        return self._generator_ref

    def task_id(self) -> ids.TaskID:
        """The task whose values these are."""
        return self._generator_ref.task_id()

    def next_ready(self) -> bool:
        """Whether `next` would return a reference without waiting."""
        self._stream.caller.check()
        self._stream.caller.pump.poll_once()
        return bool(self._stream.items)

    def is_finished(self) -> bool:
        """Whether the task has ended and every reference was read, so that `next` raises StopIteration."""
        self._stream.caller.check()
        self._stream.caller.pump.poll_once()
        return self._stream.ended and not self._stream.items

    def send(self, value: object) -> NoReturn:
        """Not supported: the generator runs in another process."""
        raise _not_supported("send")

    def throw(self, value: object) -> NoReturn:
        """Not supported; `cancel` stops the task."""
        raise _not_supported("throw")

    def close(self) -> NoReturn:
        """Not supported; `cancel` stops the task."""
        raise _not_supported("close")

    async def asend(self, value: object) -> NoReturn:
        """Not supported: the generator runs in another process."""
        raise _not_supported("asend")

    async def athrow(self, value: object) -> NoReturn:
        """Not supported; `cancel` stops the task."""
        raise _not_supported("athrow")

    async def aclose(self) -> NoReturn:
        """Not supported; `cancel` stops the task."""
        raise _not_supported("aclose")

    def _next_sync(self, timeout_s: float | None = None) -> ObjectRef:
        """`next`, or the nil reference if no value was ready within `timeout_s` seconds (negative: no limit)."""
        try:
            ref = self._stream.next(None if timeout_s is None or timeout_s < 0 else timeout_s)
        except TimeoutError:
            return ObjectRef.nil()
        if ref is None:
            raise StopIteration
        return ref

    async def _next_async(self, timeout_s: float | None = None) -> ObjectRef:
        """The asynchronous `_next_sync`."""
        loop = asyncio.get_running_loop()
        stream = self._stream
        caller = stream.caller
        while not stream.items and not stream.ended:
            caller.check()
            came: asyncio.Future[None] = loop.create_future()

            def wake(came: asyncio.Future[None] = came) -> None:
                if not came.done():
                    came.set_result(None)

            def ready(wake: object = wake) -> None:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(wake)  # type: ignore[arg-type]

            caller.objects.when_ready(stream.peek()._entry, ready)
            if timeout_s is None or timeout_s < 0:
                await came
            else:
                try:
                    async with asyncio.timeout(timeout_s):
                        await came
                except TimeoutError:
                    return ObjectRef.nil()
        ref = stream.next(None)
        if ref is None:
            raise StopAsyncIteration
        return ref

    def _peek(self) -> ObjectRef:
        """A reference to what `next` will give; not taken by it."""
        self._stream.caller.check()
        return self._stream.peek()

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "An ObjectRefGenerator cannot be pickled: only the process that started the task may read it, so you "
            "cannot return or pass a generator to other task. Pass the references it gives, or list(generator)."
        )


def _not_supported(method: str) -> NotImplementedError:
    return NotImplementedError(f"`gen.{method}` is not supported: the generator runs in another process.")
