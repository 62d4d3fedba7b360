"""Watches the shared memory that the processes of one run hold, and what they write to disk, from /proc."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Self

from processes import all_pids, pss_bytes, with_descendants

SAMPLE_S = 0.02
SAMPLES_FOR_EACH_SEARCH = 20
MEMORY_SAMPLE_S = 0.5
_MARK = "BENCH_RUN"


def mark() -> None:
    """Marks this process and what it starts from now on, so that daemons are found too."""
    os.environ[_MARK] = str(os.getpid())


class StoreWatch:
    """From entry to exit: the peak of allocated shared memory, and the bytes written to disk. `mark` comes first."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._written: dict[int, int] = {}  # by process
        self._segments: dict[tuple[int, int], str] = {}  # device and inode, path
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def disk_bytes(self) -> int:
        """Written to disk by the processes that were seen, of those that ended up to the last time."""
        return sum(self._written.values()) - self._written_before

    def __enter__(self) -> Self:
        self._search()
        self._written_before = sum(self._written.values())
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        self._search()
        self._sample()

    def _watch(self) -> None:
        turn = 0
        while not self._end.wait(SAMPLE_S):
            turn += 1
            if turn % SAMPLES_FOR_EACH_SEARCH == 0:
                self._search()
            self._sample()

    def _search(self) -> None:
        for pid in marked():
            try:
                with open(f"/proc/{pid}/io") as file:
                    self._written[pid] = int(file.read().split("\nwrite_bytes: ")[1].split()[0])
                for descriptor in os.listdir(f"/proc/{pid}/fd"):
                    path = f"/proc/{pid}/fd/{descriptor}"
                    if os.readlink(path).startswith(("/dev/shm/", "/memfd:")):
                        stat = os.stat(path)
                        self._segments.setdefault((stat.st_dev, stat.st_ino), path)
            except OSError:
                continue  # it has ended

    def _sample(self) -> None:
        total = 0
        for segment, path in list(self._segments.items()):
            try:
                stat = os.stat(path)
            except OSError:
                stat = None
            if stat is None or (stat.st_dev, stat.st_ino) != segment:
                del self._segments[segment]
            else:
                total += stat.st_blocks * 512
        self.peak_bytes = max(self.peak_bytes, total)


def marked() -> set[int]:
    """This process, its descendants, and all that inherited its mark."""
    found = set(with_descendants(os.getpid()))
    text = f"{_MARK}={os.environ[_MARK]}".encode()
    for pid in all_pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if text in file.read().split(b"\0"):
                    found.add(pid)
        except OSError:
            continue  # it has ended, or is another user's
    return found


def memory_bytes() -> int:
    """What the marked processes use now, without this one."""
    return pss_bytes(marked() - {os.getpid()})


class MemoryWatch:
    """From entry to exit: the peak of `memory_bytes`. `mark` comes first."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, memory_bytes())
            if self._end.wait(MEMORY_SAMPLE_S):
                return
