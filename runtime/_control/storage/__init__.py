"""Where the control store's state lives: one small protocol, one module per back end."""

from __future__ import annotations

from .interface import Storage, StorageError

__all__ = ["Storage", "StorageError", "open_storage"]


def open_storage(location: str) -> Storage:
    """Opens `:memory:` or a SQLite file.

    Raises:
        StorageError: the file cannot be opened or is not a state file.
    """
    if location == ":memory:":
        from runtime._control.storage.memory import MemoryStorage

        return MemoryStorage()
    from runtime._control.storage.sqlite import SqliteStorage

    return SqliteStorage(location)
