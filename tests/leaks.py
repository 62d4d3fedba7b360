"""Finds what a test left behind: processes, threads, descriptors, files and shared memory."""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import signal
import threading
import time
from dataclasses import dataclass
from typing import Self

SHARED_MEMORY = pathlib.Path("/dev/shm")
_HARMLESS_FDS = ("/dev/null", "/dev/urandom", "/dev/pts/", "anon_inode:", "/proc/")


@dataclass(frozen=True)
class Snapshot:
    """What exists at one moment, each thing by a key that can be compared and a text that names it."""

    processes: dict[int, str]
    threads: frozenset[threading.Thread]
    fds: dict[int, str]
    files: frozenset[str]
    segments: frozenset[str]

    @classmethod
    def take(cls, run_id: str) -> Self:
        return cls(
            processes=tagged_processes(run_id),
            threads=frozenset(thread for thread in threading.enumerate() if _counts(thread)),
            fds=_open_fds(),
            files=frozenset(_session_files()),
            segments=frozenset(_segments()),
        )


def describe_leaks(run_id: str, before: Snapshot, within_s: float) -> list[str]:
    """What is there now and was not `before`; things that are on their way out get `within_s` to go."""
    deadline = time.monotonic() + within_s
    while True:
        gc.collect()
        leaks = _compare(before, Snapshot.take(run_id))
        if not leaks or time.monotonic() > deadline:
            return leaks
        time.sleep(0.05)


def _compare(before: Snapshot, now: Snapshot) -> list[str]:
    leaks = [f"process {pid}: {line}" for pid, line in now.processes.items() if pid not in before.processes]
    leaks += [f"thread {thread.name}" for thread in now.threads - before.threads]
    leaks += [f"file {path}" for path in sorted(now.files - before.files)]
    leaks += [f"shared memory {name}" for name in sorted(now.segments - before.segments)]
    new_fds = {fd: target for fd, target in now.fds.items() if before.fds.get(fd) != target}
    if len(now.fds) > len(before.fds):
        leaks += [f"descriptor {fd}: {target}" for fd, target in sorted(new_fds.items())]
    return leaks


def tagged_processes(run_id: str) -> dict[int, str]:
    """Every live process, other than this one, that inherited the run's tag: pid -> command line."""
    tag = f"CLUSTERCTL_TEST_RUN={run_id}".encode()
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it ended while we looked, or is another user's
            if tag in (entry / "environ").read_bytes():
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(entry.name)] = line.strip() or (entry / "comm").read_text().strip()
    return found


def kill_strays(run_id: str) -> None:
    """Ends what is left of the run, so that one leak does not fail every module after it."""
    for pid in tagged_processes(run_id):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _counts(thread: threading.Thread) -> bool:
    return not thread.daemon and not thread.name.startswith("pytest_timeout")


def _open_fds() -> dict[int, str]:
    found = {}
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = os.readlink(entry)
            if not target.startswith(_HARMLESS_FDS):
                found[int(entry.name)] = target
    return found


def _session_files() -> list[str]:
    root = pathlib.Path(os.environ["CLUSTERCTL_TMPDIR"])
    return [str(path) for path in root.glob("*/*")]


def _segments() -> list[str]:
    """The engine's segments in shared memory that no process maps: nobody will ever remove those."""
    named = [path.name for path in SHARED_MEMORY.glob("clusterctl*")] if SHARED_MEMORY.is_dir() else []
    return [name for name in named if not _mapped(name)]


def _mapped(name: str) -> bool:
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if name in maps.read_text():
                return True
    return False
