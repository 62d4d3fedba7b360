"""Who may write or read which slot of a ring. Pure.

Every process counts for itself. The counts travel as eventfds: the writer's "so many more values", a reader's "so many
more taken". So no position lies in shared memory, and the kernel orders the accesses to what a count is about.
"""

from __future__ import annotations


class WriterPositions:
    """The writer's side of a ring.

    Args:
        capacity: how many values the slowest reader may be behind, at least 1.
        readers: how many readers there are, at least 1.
    """

    __slots__ = ("_limit", "capacity", "taken", "written")

    def __init__(self, capacity: int, readers: int) -> None:
        if capacity < 1 or readers < 1:
            raise ValueError(f"a ring has a slot and a reader, not {capacity} and {readers}")
        self.capacity = capacity
        self.written = 0
        self.taken = [0] * readers
        self._limit = capacity

    @property
    def has_room(self) -> bool:
        """Whether a value may be written now."""
        return self.written < self._limit

    @property
    def is_drained(self) -> bool:
        """Whether every reader has taken everything."""
        return min(self.taken) == self.written

    @property
    def slot(self) -> int:
        """The index of the slot for the next value, which is the writer's while there is room."""
        return self.written % self.capacity

    def wrote(self) -> None:
        """The next value is in its slot.

        Raises:
            ValueError: there was no room.
        """
        if self.written >= self._limit:
            raise ValueError("the ring is full")
        self.written += 1

    def took(self, reader: int, count: int) -> None:
        """A reader has taken `count` more values.

        Raises:
            ValueError: it cannot have taken that many.
        """
        if count < 0 or self.taken[reader] + count > self.written:
            raise ValueError(f"reader {reader} took {count} values of a ring that has fewer")
        self.taken[reader] += count
        self._limit = min(self.taken) + self.capacity


class ReaderPositions:
    """One reader's side of a ring."""

    __slots__ = ("_final", "capacity", "published", "taken")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.published = 0
        self.taken = 0
        self._final: int | None = None

    @property
    def available(self) -> bool:
        """Whether a value is there."""
        return self.taken < self.published

    @property
    def is_over(self) -> bool:
        """Whether the writer has closed and everything was taken."""
        return self.taken == self._final

    def publish(self, count: int) -> None:
        """The writer has written `count` more values.

        Raises:
            ValueError: the ring cannot hold that many.
        """
        if count < 0 or self.published + count - self.taken > self.capacity:
            raise ValueError(f"{count} more values do not fit into the ring")
        self.published += count

    def take(self) -> int:
        """Takes the next value; returns the index of its slot, which is the reader's until the writer hears of it.

        Raises:
            ValueError: there is none.
        """
        if self.taken >= self.published:
            raise ValueError("the ring is empty")
        slot = self.taken % self.capacity
        self.taken += 1
        return slot

    def close(self, final: int) -> None:
        """The writer has closed after `final` values."""
        self._final = final
