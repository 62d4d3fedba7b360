"""Hosts with so much of a core each, so that many of them are no slower than one: as machines of their own are."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.testbed.hosts import Host

_ONE = Path("/sys/fs/cgroup/cpu")  # cgroups of version 1
_TWO = Path("/sys/fs/cgroup")
_PERIOD_US = 50_000
_END_S = 10.0


def missing() -> str:
    """Why there can be no such limit here; "" when there can."""
    two = _TWO / "cgroup.controllers"
    if (_ONE / "cpu.cfs_quota_us").exists() or (two.exists() and "cpu" in two.read_text().split()):
        return ""
    return "no cgroup limits processors here"


@contextlib.contextmanager
def cores(hosts: Sequence[Host], each: float) -> Iterator[None]:
    """What runs on a host, and starts there, has `each` cores in all until the end of the context."""
    first = (_ONE / "cpu.cfs_quota_us").exists()
    groups = [(_ONE if first else _TWO) / f"testbed-{os.getpid()}-{host.name}" for host in hosts]
    try:
        for host, group in zip(hosts, groups, strict=True):
            group.mkdir()
            quota = int(each * _PERIOD_US)
            if first:
                (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
            for pid in _processes(host):
                with contextlib.suppress(ProcessLookupError):
                    (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for group in groups:
            _remove(group)


def _processes(host: Host) -> Iterator[int]:
    space = os.readlink(f"/proc/{host.init}/ns/pid")
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(entry / "ns" / "pid") == space:
                yield int(entry.name)


def _remove(group: Path) -> None:
    """What still runs goes back to where everything is."""
    deadline = time.monotonic() + _END_S
    while group.exists():
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (group.parent / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):  # one has been born meanwhile
            group.rmdir()
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{group} cannot be removed")
