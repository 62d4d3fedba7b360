"""Calls of a storage: with a deadline, retries, and errors that say what to do."""

from __future__ import annotations

import concurrent.futures
import errno
import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from runtime.train._api.exceptions import StorageError

T = TypeVar("T")

ATTEMPTS = 8
"""How often a call is tried."""
FIRST_WAIT_S = 0.1
"""Before the second attempt; doubles for each further one."""
POLL_S = 0.1
"""How often a call that is under way is looked after."""

_ADVICE = {
    errno.ENOENT: "Check that the path exists and was not removed meanwhile.",
    errno.EACCES: "Check the permissions of the path for the user of the workers and of the controller.",
    errno.EPERM: "Check the permissions of the path for the user of the workers and of the controller.",
    errno.ENOSPC: "Free space on the disk, or keep fewer checkpoints (CheckpointConfig.num_to_keep).",
    errno.EDQUOT: "Free space within the quota, or keep fewer checkpoints (CheckpointConfig.num_to_keep).",
    errno.EFBIG: "The file exceeds the limit of the process or of the file system: raise it (ulimit -f), or write "
    "smaller files.",
    errno.EROFS: "The file system is read-only: choose another storage_path.",
    errno.ENOTDIR: "A part of the path is a file, not a folder: choose another storage_path.",
    errno.EEXIST: "There is a file where a folder must be made: choose another storage_path.",
    errno.EISDIR: "There is a folder where a file must be written: choose another storage_path.",
    errno.ENAMETOOLONG: "Choose shorter names for the run, the checkpoint or its files.",
}
"""What to do about errors that no retry removes."""
_ERRNO = {
    FileNotFoundError: errno.ENOENT,
    PermissionError: errno.EACCES,
    NotADirectoryError: errno.ENOTDIR,
    IsADirectoryError: errno.EISDIR,
    FileExistsError: errno.EEXIST,
}
_MISTAKES = (
    ImportError,
    TypeError,
    ValueError,
    AttributeError,
    NotImplementedError,
    LookupError,
    StorageError,
)
"""Errors of code and configuration: no retry removes them."""


class Cancelled(Exception):
    """The call was given up by its caller."""


class Watch:
    """What a call under way tells its caller, and what it is told.

    Args:
        cancelled: whether the caller gives the call up.
    """

    def __init__(self, cancelled: Callable[[], bool]) -> None:
        self._cancelled = cancelled
        self._is_given_up = False
        self._last_s = time.monotonic()

    def beat(self) -> None:
        """The call makes progress.

        Raises:
            Cancelled: it is given up.
        """
        if self._is_given_up or self._cancelled():
            raise Cancelled
        self._last_s = time.monotonic()

    def give_up(self) -> None:
        """Has the next `beat` raise."""
        self._is_given_up = True

    @property
    def silent_s(self) -> float:
        """Seconds since the last progress."""
        return time.monotonic() - self._last_s

    def retried(self, work: Callable[[], T]) -> T:
        """The result of the work, which is tried again after errors that may go away.

        Raises:
            Cancelled: the call is given up.
            Exception: of the last attempt.
        """
        for attempt in range(ATTEMPTS):
            self.beat()
            try:
                return work()
            except Cancelled:
                raise
            except Exception as error:
                if is_permanent(error) or attempt == ATTEMPTS - 1:
                    raise
            self._sleep(FIRST_WAIT_S * 2**attempt * random.uniform(0.5, 1.0))
        raise AssertionError("unreachable")

    def _sleep(self, wait_s: float) -> None:
        end_s = time.monotonic() + wait_s
        while (left_s := end_s - time.monotonic()) > 0:
            self.beat()
            time.sleep(min(left_s, POLL_S))


def watched(
    what: str,
    path: str,
    work: Callable[[Watch], T],
    stall_s: float,
    cancelled: Callable[[], bool] = lambda: False,
) -> T:
    """Does something with a storage, in a thread of its own that is left behind if the storage does not answer.

    Args:
        what: names the work in errors: "Cannot {what} {path}: ...".
        path: what it is done with.
        work: calls `Watch.beat` whenever it makes progress, and `Watch.retried` for what may fail.
        stall_s: how long it may make no progress.
        cancelled: asked while it lasts.

    Raises:
        Cancelled: it was given up.
        StorageError: it failed, or made no progress for too long.
    """
    watch = Watch(cancelled)
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
    threading.Thread(target=_fill, args=(outcome, work, watch), name="storage", daemon=True).start()
    try:
        while not outcome.done():
            concurrent.futures.wait((outcome,), POLL_S)
            if outcome.done():
                break
            if cancelled():
                raise Cancelled
            if watch.silent_s > stall_s:
                raise StorageError(
                    what,
                    path,
                    f"the storage has not answered for {stall_s:g} s",
                    "Check that the storage and the network work; RAY_TRAIN_STORAGE_TIMEOUT_S is the time limit.",
                )
        error = outcome.exception()
        if error is None:
            return outcome.result()
        if isinstance(error, Cancelled | StorageError) or not isinstance(error, Exception):
            raise error
        raise translated(what, path, error) from error
    finally:
        watch.give_up()


def _fill(outcome: concurrent.futures.Future[Any], work: Callable[[Watch], Any], watch: Watch) -> None:
    try:
        outcome.set_result(work(watch))
    except BaseException as error:
        outcome.set_exception(error)


def is_permanent(error: Exception) -> bool:
    """Whether trying again cannot help."""
    return isinstance(error, _MISTAKES) or _number(error) in _ADVICE


def translated(what: str, path: str, error: Exception) -> StorageError:
    """An error of a file system or its library as ours."""
    number = _number(error)
    named = getattr(error, "filename", None)
    where = str(named) if number != errno.ENOSPC and isinstance(named, str) and named else path
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if where != path:
        reason = f"{reason} ({where})"
    if number in _ADVICE:
        return StorageError(what, path, reason, _ADVICE[number])
    if isinstance(error, ImportError):
        return StorageError(
            what, path, str(error), "Install the library on every node, for example in worker_runtime_env."
        )
    return StorageError(
        what,
        path,
        f"{type(error).__name__}: {reason}",
        "" if is_permanent(error) else f"It was tried {ATTEMPTS} times. Check that the storage works.",
    )


def _number(error: Exception) -> int | None:
    number = getattr(error, "errno", None)
    if isinstance(number, int):
        return number
    return next((value for kind, value in _ERRNO.items() if isinstance(error, kind)), None)
