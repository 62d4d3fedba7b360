"""The built parts of environments that a node keeps: those in use, and recently used others up to a size. Pure."""

from __future__ import annotations

import msgspec


class _Entry(msgspec.Struct):
    size_bytes: int
    users: int
    used_at: float


class UriCache:
    """Entries by name. The caller builds and deletes them.

    Args:
        limit_bytes: unused entries are evicted while the total size exceeds this.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._entries: dict[str, _Entry] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def size_bytes(self) -> int:
        """All entries together."""
        return sum(entry.size_bytes for entry in self._entries.values())

    def add(self, name: str, size_bytes: int, now: float) -> None:
        """Adds an entry that was built and is not yet in use."""
        self._entries[name] = _Entry(size_bytes, 0, now)

    def use(self, name: str, now: float) -> None:
        """Adds a user of the entry."""
        entry = self._entries[name]
        entry.users += 1
        entry.used_at = now

    def release(self, name: str, now: float) -> None:
        """One less does."""
        entry = self._entries[name]
        entry.users -= 1
        entry.used_at = now

    def evict(self) -> list[str]:
        """Forgets what is too much, the longest unused first; the caller deletes it."""
        evicted = []
        excess = self.size_bytes - self._limit_bytes
        unused = [(entry.used_at, name) for name, entry in self._entries.items() if not entry.users]
        for _, name in sorted(unused):
            if excess <= 0:
                break
            excess -= self._entries.pop(name).size_bytes
            evicted.append(name)
        return evicted
