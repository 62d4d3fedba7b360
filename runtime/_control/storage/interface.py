"""What a back end of the control store does."""

from __future__ import annotations

from typing import Protocol


class StorageError(Exception):
    """The back end cannot be opened, read or written; the message says what to do."""


class Storage(Protocol):
    """Tables of byte strings. Writes count together from one `commit` to the next, and are seen by reads at
    once.
    """

    def get(self, table: str, key: bytes) -> bytes | None:
        """The value, or None."""

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """Writes or replaces."""

    def delete(self, table: str, key: bytes) -> bool:
        """Removes; returns whether the key was there."""

    def scan(self, table: str, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """All pairs whose key starts with `prefix`, in the order of the keys."""

    def keys(self, table: str, prefix: bytes = b"") -> list[bytes]:
        """All keys that start with `prefix`, in order."""

    @property
    def dirty(self) -> bool:
        """Whether something waits for `commit`."""

    def commit(self) -> None:
        """Returns when everything before survives the death of this process, at once or not at all.

        Raises:
            StorageError: it could not be written; it still waits.
        """

    def close(self) -> None:
        """Commits and lets go. Repeating it does nothing."""
