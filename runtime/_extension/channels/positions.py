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

    Attributes:
        room: how many values may be written now.
        slot: the index of the slot for the next value, which is the writer's while there is room.
        written: how many values were written.
        taken: how many values each reader has taken.
    """

    __slots__ = ("capacity", "room", "slot", "taken", "written")

    def __init__(self, capacity: int, readers: int) -> None:
        if capacity < 1 or readers < 1:
            raise ValueError(f"a ring has a slot and a reader, not {capacity} and {readers}")
        self.capacity = capacity
        self.room = capacity
        self.slot = 0
        self.written = 0
        self.taken = [0] * readers

    @property
    def is_drained(self) -> bool:
        """Whether every reader has taken everything."""
        return min(self.taken) == self.written

    def wrote(self) -> None:
        """The next value is in its slot.

        Raises:
            ValueError: there was no room.
        """
        if self.room < 1:
            raise ValueError("the ring is full")
        self.room -= 1
        self.written += 1
        self.slot = self.written % self.capacity

    def took(self, reader: int, count: int) -> None:
        """A reader has taken `count` more values.

        Raises:
            ValueError: it cannot have taken that many.
        """
        if count < 0 or self.taken[reader] + count > self.written:
            raise ValueError(f"reader {reader} took {count} values of a ring that has fewer")
        self.taken[reader] += count
        self.room = min(self.taken) + self.capacity - self.written


class ReaderPositions:
    """One reader's side of a ring.

    Attributes:
        available: how many values are there.
        published, taken: how many values were written, and taken by this reader.
    """

    __slots__ = ("_final", "available", "capacity", "published", "taken")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.available = 0
        self.published = 0
        self.taken = 0
        self._final: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether the writer has closed and everything was taken."""
        return self.taken == self._final

    def publish(self, count: int) -> None:
        """The writer has written `count` more values.

        Raises:
            ValueError: the ring cannot hold that many.
        """
        if count < 0 or self.available + count > self.capacity:
            raise ValueError(f"{count} more values do not fit into the ring")
        self.published += count
        self.available += count

    def take(self) -> int:
        """Takes the next value; returns the index of its slot, which is the reader's until the writer hears of it.

        Raises:
            ValueError: there is none.
        """
        if self.available < 1:
            raise ValueError("the ring is empty")
        slot = self.taken % self.capacity
        self.available -= 1
        self.taken += 1
        return slot

    def close(self, final: int) -> None:
        """The writer has closed after `final` values."""
        self._final = final
