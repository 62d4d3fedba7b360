"""State that ends with the process: for local sessions, whose control store ends with their driver anyway."""

from __future__ import annotations


class MemoryStorage:
    """The `Storage` protocol on dictionaries."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[bytes, bytes]] = {}

    def get(self, table: str, key: bytes) -> bytes | None:
        return self._tables.get(table, {}).get(key)

    def put(self, table: str, key: bytes, value: bytes) -> None:
        self._tables.setdefault(table, {})[key] = value

    def delete(self, table: str, key: bytes) -> bool:
        return self._tables.get(table, {}).pop(key, None) is not None

    def scan(self, table: str, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        rows = self._tables.get(table, {})
        return [(key, rows[key]) for key in sorted(rows) if key.startswith(prefix)]

    def keys(self, table: str, prefix: bytes = b"") -> list[bytes]:
        return sorted(key for key in self._tables.get(table, {}) if key.startswith(prefix))

    @property
    def dirty(self) -> bool:
        return False

    def commit(self) -> None:
        """There is nothing that could outlive this process."""

    def close(self) -> None:
        """Nothing to let go of: the same tables may be opened again by a restarted control store of this
        process.
        """
