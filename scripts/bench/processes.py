"""What the processes of a cluster use, read from /proc: memory, CPU time, and how often they wake."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil


def rss_bytes() -> int:
    """Resident memory of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def forget_peak() -> None:
    """`peak_rss_bytes` starts anew from here."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_rss_bytes() -> int:
    """The most resident memory that this process has had."""
    return _status_number(Path("/proc/self/status"), "VmHWM") * 1024


def with_descendants(pid: int) -> list[int]:
    """A process and all that came of it."""
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def pss_bytes(pids: Iterable[int]) -> int:
    """Memory of processes; pages that several of them share are counted once."""
    total = 0
    for pid in pids:
        try:
            total += _status_number(Path(f"/proc/{pid}/smaps_rollup"), "Pss") * 1024
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended
    return total


@dataclass(frozen=True)
class Use:
    """What a process has used so far."""

    cpu_s: float
    wakes: int

    @classmethod
    def of(cls, pid: int) -> Use:
        """Raises FileNotFoundError or ProcessLookupError when it has ended."""
        cpu_s, wakes = 0.0, 0
        for task in Path(f"/proc/{pid}/task").iterdir():
            # Nanoseconds on a CPU, of each thread; the ticks in `stat` are too coarse for what hardly runs.
            cpu_s += int((task / "schedstat").read_text().split()[0]) / 1e9
            status = task / "status"
            wakes += _status_number(status, "voluntary_ctxt_switches")
            wakes += _status_number(status, "nonvoluntary_ctxt_switches")
        return cls(cpu_s, wakes)

    def __sub__(self, before: Use) -> Use:
        return Use(self.cpu_s - before.cpu_s, self.wakes - before.wakes)


def title(pid: int) -> str:
    """A short name of what the process is."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    if words[:1] and words[0].startswith("runtime"):
        return words[0]
    if "-m" in words:
        return words[words.index("-m") + 1]
    return " ".join(os.path.basename(word) for word in words[:2] if word)


def _status_number(path: Path, key: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise KeyError(f"{path} has no {key}")
