"""What outlives the head: when it is started again on an old state, jobs and packages are kept and the rest
is dropped, because no node, driver, actor or placement group of the earlier life is there any more."""

from __future__ import annotations

import os

from runtime._control.storage import open_storage
from runtime._system import files

KEPT = ("kv:jobs", "kv:packages", "kv:package_holds", "kv:job_requests")
_FILES = ("", "-wal", "-shm")
"""What SQLite keeps a state in."""


def begin_new_life(path: str) -> bool:
    """Reduces the control store's state file to what is kept; False when there is none.

    It is replaced in one step. Raises `StorageError` when the file is damaged.
    """
    if not os.path.exists(path):
        return False
    draft = f"{path}.new"
    for suffix in _FILES:  # of a start that was killed
        files.remove(draft + suffix)
    old = open_storage(path)
    new = open_storage(draft)
    for table in KEPT:
        for key, value in old.scan(table):
            new.put(table, key, value)
    new.commit()
    new.close()
    old.close()
    for suffix in _FILES[1:]:
        files.remove(path + suffix)
    os.replace(draft, path)
    return True
