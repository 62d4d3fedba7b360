"""`ObjectRefGenerator`: the results of a streaming generator, one reference at a time."""

from __future__ import annotations

import asyncio

from runtime._worker.streaming import Stream
from runtime.object_ref import ObjectRef


class ObjectRefGenerator:
    """Iterates over the references of what a generator task yields, while it still runs."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

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
        ref = await asyncio.get_running_loop().run_in_executor(None, self._stream.next, None)
        if ref is None:
            raise StopAsyncIteration
        return ref

    def next_ready(self) -> bool:
        """Whether `next` would return at once."""
        return bool(self._stream.items)

    def is_finished(self) -> bool:
        """Whether the task has ended and every item was taken."""
        return self._stream.ended and not self._stream.items
