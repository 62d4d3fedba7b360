"""The actor through which the members of a group exchange references."""

from __future__ import annotations

import asyncio
from typing import Any


class _Round:
    """One collective operation."""

    def __init__(self) -> None:
        self.brought: dict[int, Any] = {}
        self.complete = asyncio.Event()
        self.left = 0


class Meeting:
    """The actor of one group. It moves references only; tensors go from member to member.

    Args:
        world_size: the number of members.
        timeout_s: how long to wait for other members.
    """

    def __init__(self, world_size: int, timeout_s: float) -> None:
        self._world_size = world_size
        self._timeout_s = timeout_s
        self._rounds: dict[int, _Round] = {}
        self._mail: dict[tuple[int, int, int], asyncio.Future[Any]] = {}

    async def meet(self, number: int, rank: int, brought: Any) -> list[Any]:
        """The references that the members brought to round `number`, by rank.

        Raises:
            TimeoutError: not all members joined.
        """
        round = self._rounds.setdefault(number, _Round())
        round.brought[rank] = brought
        if len(round.brought) == self._world_size:
            round.complete.set()
        try:
            async with asyncio.timeout(self._timeout_s):
                await round.complete.wait()
        except TimeoutError:
            missing = sorted(set(range(self._world_size)) - round.brought.keys())
            raise TimeoutError(
                f"Ranks {missing} did not join the collective operation within {self._timeout_s:g} s."
            ) from None
        round.left += 1
        if round.left == self._world_size:
            del self._rounds[number]
        return [round.brought[rank] for rank in range(self._world_size)]

    async def post(self, sender: int, receiver: int, number: int, brought: Any) -> None:
        """Leaves a message for one member."""
        self._box((sender, receiver, number)).set_result(brought)

    async def fetch(self, sender: int, receiver: int, number: int) -> Any:
        """The message that one member left for another.

        Raises:
            TimeoutError: no message arrived.
        """
        key = (sender, receiver, number)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(self._box(key))
        except TimeoutError:
            raise TimeoutError(f"Rank {sender} sent nothing within {self._timeout_s:g} s.") from None
        finally:
            self._mail.pop(key, None)

    def _box(self, key: tuple[int, int, int]) -> asyncio.Future[Any]:
        box = self._mail.get(key)
        if box is None:
            box = self._mail[key] = asyncio.get_running_loop().create_future()
        return box
