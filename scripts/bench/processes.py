"""What the processes of a cluster use, read from /proc: memory, CPU time, and how often they wake."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


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


def all_pids() -> list[int]:
    """Of everything that runs here."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def with_descendants(pid: int) -> list[int]:
    """A process and all that came of it."""
    children: dict[int, list[int]] = {}
    for each in all_pids():
        try:
            stat = Path(f"/proc/{each}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(each)
    found = [pid]
    for parent in found:
        found += children.get(parent, ())
    return found


def pss_bytes(pids: Iterable[int]) -> int:
    """Memory of processes; pages that several of them share are counted once."""
    total = 0
    for pid in pids:
        try:
            total += _status_number(Path(f"/proc/{pid}/smaps_rollup"), "Pss") * 1024
        except (FileNotFoundError, ProcessLookupError, KeyError):
            pass  # it has ended
    return total


@dataclass(frozen=True)
class Use:
    """What a process has used."""

    cpu_s: float
    wakes: int


Counters = dict[str, tuple[float, int]]
"""CPU time and context switches so far, by thread."""


def counters(pid: int) -> Counters:
    """Those of a process; empty when it has ended."""
    found: Counters = {}
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return found
    for thread in threads:
        try:
            # Nanoseconds on a CPU: the ticks in `stat` are too coarse for what hardly runs.
            cpu_s = int((thread / "schedstat").read_text().split()[0]) / 1e9
            status = thread / "status"
            switches = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
            found[thread.name] = cpu_s, sum(_status_number(status, key) for key in switches)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return found


def used_between(before: Counters, after: Counters) -> Use:
    """By the threads that are there at the end."""
    cpu_s, wakes = 0.0, 0
    for thread, (cpu_now, wakes_now) in after.items():
        cpu_before, wakes_before = before.get(thread, (0.0, 0))
        cpu_s += cpu_now - cpu_before
        wakes += wakes_now - wakes_before
    return Use(cpu_s, wakes)


def title(pid: int) -> str:
    """A short name of what the process is."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    if "-m" not in words:
        return " ".join(os.path.basename(word) for word in words[:2] if word)
    module, *rest = words[words.index("-m") + 1 :]
    return rest[0] if module == "runtime._session.supervised" else module


def _status_number(path: Path, key: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise KeyError(f"{path} has no {key}")
