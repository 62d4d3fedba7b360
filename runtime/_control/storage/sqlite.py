"""State in one SQLite file.

WAL with synchronous=NORMAL: a commit is in the operating system's hands before it is acknowledged, so it survives the
death of this process at any moment, and costs no disk flush. A power failure of the whole machine may take the last
moments, never the consistency (https://sqlite.org/wal.html); the machine's workers and their work are gone then in any
case.
"""

from __future__ import annotations

import os
import sqlite3

from .interface import StorageError

SCHEMA_VERSION = 1


class SqliteStorage:
    """The `Storage` protocol on one file that no other process may have open."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
            # Created by us first, so that the file is never readable by others.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None, timeout=2.0, check_same_thread=False)
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, SCHEMA_VERSION):
                raise StorageError(
                    f"{path} has state of version {version}, this program reads version {SCHEMA_VERSION}: "
                    "use the program that wrote it, or another file"
                )
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS rows (tbl TEXT, key BLOB, value BLOB, PRIMARY KEY (tbl, key)) "
                "WITHOUT ROWID"
            )
            self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise StorageError(f"{path} is in use by another control store; stop it first") from error
            raise StorageError(f"cannot open the state file {path}: {error}") from error
        self._in_transaction = False
        self._closed = False

    def get(self, table: str, key: bytes) -> bytes | None:
        row = self._db.execute("SELECT value FROM rows WHERE tbl=? AND key=?", (table, key)).fetchone()
        return None if row is None else row[0]

    def put(self, table: str, key: bytes, value: bytes) -> None:
        self._begin()
        self._execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", (table, key, value))

    def delete(self, table: str, key: bytes) -> bool:
        self._begin()
        return self._execute("DELETE FROM rows WHERE tbl=? AND key=?", (table, key)).rowcount > 0

    def scan(self, table: str, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        clause, bounds = _prefix_clause(prefix)
        return self._db.execute(
            f"SELECT key, value FROM rows WHERE tbl=?{clause} ORDER BY key", (table, *bounds)
        ).fetchall()

    def keys(self, table: str, prefix: bytes = b"") -> list[bytes]:
        clause, bounds = _prefix_clause(prefix)
        rows = self._db.execute(
            f"SELECT key FROM rows WHERE tbl=?{clause} ORDER BY key", (table, *bounds)
        ).fetchall()
        return [row[0] for row in rows]

    @property
    def dirty(self) -> bool:
        return self._in_transaction

    def commit(self) -> None:
        if self._in_transaction:
            self._execute("COMMIT", ())
            self._in_transaction = False

    def close(self) -> None:
        if not self._closed:
            self.commit()
            self._closed = True
            self._db.close()

    def _begin(self) -> None:
        if not self._in_transaction:
            self._execute("BEGIN IMMEDIATE", ())
            self._in_transaction = True

    def _execute(self, statement: str, values: tuple[object, ...]) -> sqlite3.Cursor:
        try:
            return self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise StorageError(f"cannot write the state file {self._path}: {error}") from error


def _prefix_clause(prefix: bytes) -> tuple[str, tuple[bytes, ...]]:
    """The range of keys that start with `prefix`: up to the next byte string that does not."""
    if not prefix:
        return "", ()
    end = prefix.rstrip(b"\xff")
    if not end:
        return " AND key>=?", (prefix,)
    return " AND key>=? AND key<?", (prefix, end[:-1] + bytes([end[-1] + 1]))
