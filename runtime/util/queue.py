"""A first-in, first-out queue that tasks, actors and drivers share."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterable, Mapping
from typing import Any

from runtime import api


class Empty(queue.Empty):
    """The queue is empty."""


class Full(queue.Full):
    """The queue is full."""


class Queue:
    """A queue in an actor. Pass it to tasks and actors as an argument.

    Args:
        maxsize: the maximum number of items; 0: no limit.
        actor_options: options of the actor, e.g. `{"num_cpus": 1}` or a name.
    """

    def __init__(self, maxsize: int = 0, actor_options: Mapping[str, Any] | None = None) -> None:
        self.maxsize = maxsize
        self.actor: Any = api.remote(_QueueActor).options(**(actor_options or {})).remote(maxsize)

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """The number of items."""
        count: int = api.get(self.actor.qsize.remote())
        return count

    def qsize(self) -> int:
        """The number of items."""
        return self.size()

    def empty(self) -> bool:
        """Whether the queue is empty."""
        answer: bool = api.get(self.actor.empty.remote())
        return answer

    def full(self) -> bool:
        """Whether the queue is full."""
        answer: bool = api.get(self.actor.full.remote())
        return answer

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Adds an item.

        Args:
            item: any value that can be pickled.
            block: wait for room.
            timeout: seconds to wait at most; None: no limit.

        Raises:
            Full: the queue is full, or was until the timeout.
            ValueError: `timeout` is negative.
        """
        api.get(self._put(item, block, timeout))

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """`put` for async code."""
        await self._put(item, block, timeout)

    def _put(self, item: Any, block: bool, timeout: float | None) -> Any:
        if not block:
            return self.actor.put_nowait.remote(item)
        return self.actor.put.remote(item, _checked(timeout))

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Removes and returns the oldest item.

        Args:
            block: wait for an item.
            timeout: seconds to wait at most; None: no limit.

        Raises:
            Empty: the queue is empty, or was until the timeout.
            ValueError: `timeout` is negative.
        """
        return api.get(self._get(block, timeout))

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """`get` for async code."""
        return await self._get(block, timeout)

    def _get(self, block: bool, timeout: float | None) -> Any:
        if not block:
            return self.actor.get_nowait.remote()
        return self.actor.get.remote(_checked(timeout))

    def put_nowait(self, item: Any) -> None:
        """`put` that raises `Full` at once."""
        self.put(item, block=False)

    def put_nowait_batch(self, items: Iterable[Any]) -> None:
        """Adds all items or none.

        Raises:
            Full: not all items fit.
            TypeError: `items` is not iterable.
        """
        if not isinstance(items, Iterable):
            raise TypeError("Argument 'items' must be an Iterable")
        api.get(self.actor.put_nowait_batch.remote(list(items)))

    def get_nowait(self) -> Any:
        """`get` that raises `Empty` at once."""
        return self.get(block=False)

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Removes and returns `num_items` items.

        Raises:
            Empty: the queue has fewer items.
            TypeError, ValueError: `num_items` is not a whole number of at least 0.
        """
        if not isinstance(num_items, int):
            raise TypeError("Argument 'num_items' must be an int")
        if num_items < 0:
            raise ValueError("'num_items' must be nonnegative")
        items: list[Any] = api.get(self.actor.get_nowait_batch.remote(num_items))
        return items

    def shutdown(self, force: bool = False, grace_period_s: float = 5) -> None:
        """Ends the queue's actor.

        Args:
            force: end it at once; waiting calls fail.
            grace_period_s: without `force`, how long to wait for waiting calls.
        """
        actor, self.actor = self.actor, None
        if actor is None:
            return
        if not force:
            ended = api.wait([actor.__ray_terminate__.remote()], timeout=grace_period_s)[0]
            if ended:
                return
        api.kill(actor, no_restart=True)


def _checked(timeout: float | None) -> float | None:
    if timeout is not None and timeout < 0:
        raise ValueError("'timeout' must be a non-negative number")
    return timeout


class _QueueActor:
    def __init__(self, maxsize: int) -> None:
        self._maxsize = maxsize
        self._queue: asyncio.Queue[Any] = asyncio.Queue(maxsize)

    def qsize(self) -> int:
        return self._queue.qsize()

    def empty(self) -> bool:
        return self._queue.empty()

    def full(self) -> bool:
        return self._queue.full()

    async def put(self, item: Any, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._queue.put(item)
        except TimeoutError:
            raise Full from None

    async def get(self, timeout_s: float | None) -> Any:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._queue.get()
        except TimeoutError:
            raise Empty from None

    def put_nowait(self, item: Any) -> None:
        try:
            self._queue.put_nowait(item)
        except asyncio.QueueFull:
            raise Full from None

    def put_nowait_batch(self, items: list[Any]) -> None:
        if self._maxsize > 0 and len(items) + self.qsize() > self._maxsize:
            raise Full(
                f"Cannot add {len(items)} items to queue of size {self.qsize()} and maxsize {self._maxsize}."
            )
        for item in items:
            self._queue.put_nowait(item)

    def get_nowait(self) -> Any:
        try:
            return self._queue.get_nowait()
        except asyncio.QueueEmpty:
            raise Empty from None

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        if num_items > self.qsize():
            raise Empty(f"Cannot get {num_items} items from queue of size {self.qsize()}.")
        return [self._queue.get_nowait() for _ in range(num_items)]
