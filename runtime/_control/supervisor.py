"""The background tasks of a process: none is forgotten, none fails silently, all end with their owner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Supervisor:
    """Owns tasks that outlive the call that starts them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed = False

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Runs `work` until it ends or the supervisor closes; an exception that escapes it is logged."""
        if self.closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def __len__(self) -> int:
        return len(self._tasks)

    async def close(self) -> None:
        """Cancels what still runs and waits for it."""
        self.closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)
