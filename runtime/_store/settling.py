"""Asking the processes of a node what they have placed in the memory that was allotted to them.

They say so by themselves, but on connections of their own: a message of another process about the same object may be
read first. Before an object that should be here counts as missing, all processes are asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from runtime._core.allotments import Allotments

Ask = Callable[[Any, bool], Awaitable[None]]
"""Returns when a process has said all that it had to say, or cannot be asked any more. It never raises."""


class Settling:
    """One round of questions serves all who came before it began.

    Args:
        ask: asks one process, and has it give back what it does not use if the second argument says so.
    """

    def __init__(self, allotments: Allotments, ask: Ask) -> None:
        self._allotments = allotments
        self._ask = ask
        self._next: asyncio.Task[None] | None = None
        self._current: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Ends the rounds; who waits is cancelled."""
        for task in (self._next, self._current):
            if task is not None:
                task.cancel()

    async def settle(self) -> None:
        """Returns when everything is known that any process had placed by now."""
        if self._next is None:
            if not self._allotments:
                return
            self._next = asyncio.get_running_loop().create_task(self._round(self._current))
        await asyncio.shield(self._next)

    async def reclaim(self) -> None:
        """The same, and what they do not use is given back."""
        await self._ask_all(give_back=True)

    async def _round(self, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait({previous})
        self._current, self._next = self._next, None
        await self._ask_all(give_back=False)

    async def _ask_all(self, give_back: bool) -> None:
        await asyncio.gather(*[self._ask(holder, give_back) for holder in self._allotments.holders()])
