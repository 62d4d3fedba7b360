"""Keys in order of a score that changes."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Generic, TypeVar

Key = TypeVar("Key")


class Ranking(Generic[Key]):
    """Keys in ascending order of their score; equal scores in the order of their first entry."""

    def __init__(self) -> None:
        self._order: list[tuple[float, int]] = []
        self._entries: dict[Key, tuple[float, int]] = {}
        self._keys: dict[int, Key] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, position: int) -> Key:
        """The key at a position, 0 being the lowest score."""
        return self._keys[self._order[position][1]]

    def put(self, key: Key, score: float) -> None:
        """Enters a key or moves it to its new score. NaN is not allowed."""
        old = self._entries.get(key)
        if old is None:
            number, self._next = self._next, self._next + 1
            self._keys[number] = key
        else:
            number = old[1]
            del self._order[bisect_left(self._order, old)]
        self._entries[key] = score, number
        insort(self._order, (score, number))

    def discard(self, key: Key) -> None:
        """Removes a key, if it is there."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            del self._order[bisect_left(self._order, entry)]
            del self._keys[entry[1]]

    def position(self, key: Key) -> int | None:
        """How many keys rank below; None if the key is not ranked."""
        entry = self._entries.get(key)
        return None if entry is None else bisect_left(self._order, entry)
