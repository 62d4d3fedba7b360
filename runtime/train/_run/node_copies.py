"""Copies of remote folders on this machine, which all processes of a user share while one of them uses them.

A user holds a shared lock (flock) on a file beside the copy; the exclusive lock makes and removes the copy. The
operating system releases the locks of a process that ends, so a killed one leaves at most a folder that the next user
replaces.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

POLL_S = 0.05


@contextmanager
def shared(location: str, fill: Callable[[str], None]) -> Iterator[str]:
    """A folder with a copy of what is at a location.

    Args:
        location: names what is copied, on this machine.
        fill: copies it into a folder; called only if no process has a copy. A process that waits for another's copy
            waits as long as that takes.
    """
    base = os.path.join(_home(), hashlib.sha256(location.encode()).hexdigest()[:32])
    lock = _hold(base, fill)
    try:
        yield base
    finally:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass  # others use it
        else:
            shutil.rmtree(base, ignore_errors=True)
            with suppress(FileNotFoundError):
                os.remove(f"{base}.lock")
        finally:
            os.close(lock)


def _hold(base: str, fill: Callable[[str], None]) -> int:
    """Returns the descriptor that holds the shared lock; the copy is there."""
    while True:
        lock = os.open(f"{base}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _try(lock, fcntl.LOCK_EX):
                while not _try(lock, fcntl.LOCK_SH):
                    time.sleep(POLL_S)
            elif _is_current(lock, base):
                _replace(base, fill)
                fcntl.flock(lock, fcntl.LOCK_SH)  # another process may have had the lock in between
            if _is_current(lock, base) and os.path.isdir(base):
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _replace(base: str, fill: Callable[[str], None]) -> None:
    draft = f"{base}.part"
    for left in (draft, base):  # of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    try:
        os.mkdir(draft, 0o700)
        fill(draft)
        os.rename(draft, base)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _try(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_current(lock: int, base: str) -> bool:
    """Whether the locked file is still the one beside the copy."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(f"{base}.lock"))
    except FileNotFoundError:
        return False


def _home() -> str:
    """The folder of this user's copies, which nobody else can write."""
    home = os.path.join(tempfile.gettempdir(), f"train-checkpoints-{os.getuid()}")
    with suppress(FileExistsError):
        os.mkdir(home, 0o700)
    facts = os.lstat(home)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        raise PermissionError(
            f"{home} must be a folder that only its user {os.getuid()} can write. Remove it."
        )
    return home
