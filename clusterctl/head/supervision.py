"""Keeps the head's own daemons alive: the control store on its state file, and the head's node agent. Lets those parts
of the head itself begin anew that can."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable

from runtime._session.daemons import Daemon, DaemonError

log = logging.getLogger(__name__)

MAX_RESTARTS = 5
WITHIN_S = 60.0
_RETRY_S = 0.3
_AGAIN_S = 1.0


class GaveUp(RuntimeError):
    """A daemon ended again and again, or cannot be started any more."""


class Restarts:
    """How often a daemon may be restarted: `MAX_RESTARTS` times within `WITHIN_S`."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    def allow(self, now: float) -> bool:
        """Counts one restart; False when there were too many lately."""
        while self._times and self._times[0] < now - WITHIN_S:
            self._times.popleft()
        self._times.append(now)
        return len(self._times) <= MAX_RESTARTS


async def keep_alive(
    name: str,
    daemon: Daemon,
    restart: Callable[[], Daemon],
    on_restart: Callable[[Daemon], Awaitable[None] | None] = lambda daemon: None,
) -> None:
    """Restarts a daemon whenever it ends, until cancelled.

    Raises:
        GaveUp: it ends too often.
    """
    restarts = Restarts()
    while True:
        await ended(daemon)
        status = daemon.process.wait()
        log.error("the %s ended with status %d; restarting it", name, status)
        while True:
            if not restarts.allow(time.monotonic()):
                raise GaveUp(
                    f"the {name} ended {MAX_RESTARTS + 1} times within {WITHIN_S:g} s; see {daemon.log_path}"
                )
            try:
                daemon = await asyncio.to_thread(restart)
                break
            except (DaemonError, OSError) as error:  # the system may refuse a process or a log file
                log.error("the %s does not start: %s", name, error)
                await asyncio.sleep(_RETRY_S)
        told = on_restart(daemon)
        if told is not None:
            await told


async def keep_going(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Does work that keeps nothing of its own, until it returns or is cancelled. Whatever fails in it, it begins anew:
    the head, and all that runs on the cluster, does not end for it."""
    while True:
        try:
            await work()
            return
        except Exception:  # whatever it is, it is in the log
            log.exception("the %s failed; it begins anew", name)
        await asyncio.sleep(_AGAIN_S)


async def ended(daemon: Daemon) -> None:
    """Returns when the daemon's process has ended; a daemon may live for ever."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    descriptor = os.pidfd_open(daemon.pid)
    loop.add_reader(descriptor, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
