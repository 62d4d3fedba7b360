"""Ends workers before the kernel does when the node runs low on memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from runtime._core.memory_policy import Holder, choose
from runtime._core.workers import Worker, WorkerState
from runtime._system import files, settings

from .config import memory_bytes

log = logging.getLogger(__name__)
THRESHOLD = 0.95
REFRESH_MS = 250
NOTICE_S = 0.05
"""The owner is notified first, so that it knows the reason when the connection breaks."""
RELIEF_S = 1.0
"""How long the node accepts no new tasks after it ended one."""
_CGROUP = "/sys/fs/cgroup"


def used_bytes() -> int:
    """Memory in use on this machine or in the control group we run in, without what the kernel can drop."""
    import psutil  # not before somebody works: the agent comes up faster

    memory = psutil.virtual_memory()
    used = int(memory.total - memory.available)
    try:
        charged = int(files.read(f"{_CGROUP}/memory.current"))
        statistics = dict(line.split() for line in files.read(f"{_CGROUP}/memory.stat").splitlines())
    except (OSError, ValueError):
        return used
    if memory_bytes() == memory.total:  # the group has no limit of its own
        return used
    return charged - int(statistics.get("inactive_file", 0))


class MemoryMonitor:
    """Looks every 250 ms (RAY_memory_monitor_refresh_ms; 0: never) while workers are busy, and ends one whenever
    more than 95 % of the memory (RAY_memory_usage_threshold) is in use and nothing else can be given back.

    Args:
        holders: the busy workers.
        end: takes the worker to end, why, and whether its work is repeated.
        give_back: ends what no work needs; whether there was anything.
        used: bytes in use.
    """

    def __init__(
        self,
        holders: Callable[[], list[Holder]],
        end: Callable[[Worker, str, bool], None],
        give_back: Callable[[], bool],
        used: Callable[[], int] = used_bytes,
    ) -> None:
        self._threshold = settings.MEMORY_THRESHOLD.get()
        self._refresh_s = settings.MEMORY_REFRESH_MS.get() / 1000
        self._total = memory_bytes()
        self._holders = holders
        self._end = end
        self._give_back = give_back
        self._used = used
        self._ending: Worker | None = None
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """A worker has become busy."""
        if self._refresh_s > 0 and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._refresh_s, self._look)

    def close(self) -> None:
        """Stops looking."""
        self._refresh_s = 0
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        holders = self._holders()
        if not holders:
            return  # the next one wakes us
        self.wake()
        if self._ending is not None and self._ending.state is not WorkerState.DEAD:
            return  # what it has is not free yet
        used = self._used()
        if used <= self._threshold * self._total or self._give_back():
            return
        victim = choose(holders)
        if victim is None:
            return
        gib = 1 << 30
        reason = (
            f"Task was killed due to the node running low on memory: {used / gib:.2f} of {self._total / gib:.2f} GiB "
            f"are in use, over the threshold of {self._threshold:.0%} (RAY_memory_usage_threshold). This worker "
            f"(pid {victim.worker.pid}) was the one that started last. Ask for `memory=` or more CPUs per task so that "
            "fewer run at once; RAY_memory_monitor_refresh_ms=0 turns this off."
        )
        log.warning("%s", reason)
        self._ending = victim.worker
        self._end(victim.worker, reason, victim.retry)
