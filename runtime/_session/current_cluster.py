"""The cluster that the operator means without naming one.

A terminal has a current cluster of its own. The terminal is known by its session: the process that leads it, the boot
and the process namespace. `clusterctl` and job submission clients read the same records in the operator's state folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from runtime._system import files, settings

VARIABLE = settings.CURRENT_CLUSTER.name
_FOLDER = "terminals"
_KEPT_S = 30 * 86400.0
"""After this time, the record of a terminal of another machine, boot or container is removed."""


class By(Enum):
    """What says which cluster is meant."""

    ENVIRONMENT = "environment"
    TERMINAL = "terminal"
    ONLY_ONE = "only one"
    NOTHING = "nothing"


class Choice(NamedTuple):
    """A cluster's name, "" for none. It may be the name of a cluster that is not known any more."""

    name: str
    by: By


def choose(root: Path, known: Sequence[str]) -> Choice:
    """The cluster that CLUSTERCTL_CLUSTER names, else this terminal's, else the only one that is known.

    Args:
        root: the operator's state folder.
        known: the clusters in it.
    """
    named = settings.CURRENT_CLUSTER.get()
    if named:
        return Choice(named, By.ENVIRONMENT)
    terminal = _terminal()
    if terminal:
        try:
            return Choice((root / _FOLDER / terminal).read_text(encoding="utf-8").strip(), By.TERMINAL)
        except FileNotFoundError:
            pass
    return Choice(known[0], By.ONLY_ONE) if len(known) == 1 else Choice("", By.NOTHING)


def remember(root: Path, name: str) -> bool:
    """Makes a cluster the current one of this terminal, and removes the records of terminals that have closed.

    Returns:
        Whether there is a terminal: a process that leads a session of its own has none that outlives it.
    """
    terminal = _terminal()
    if not terminal:
        return False
    folder = root / _FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    for other in os.listdir(folder):
        if _has_closed(folder / other):
            files.remove(str(folder / other))
    draft = folder / f".{terminal}.{os.getpid()}"
    draft.write_text(name, encoding="utf-8")
    draft.replace(folder / terminal)
    return True


def _terminal() -> str:
    """The name of this process's session; "" when the process leads it itself, or its leader has ended."""
    leader = os.getsid(0)
    started = _started(leader)
    return "" if leader == os.getpid() or not started else f"{_place()}-{leader}-{started}"


def _has_closed(record: Path) -> bool:
    place, _, leader = record.name.lstrip(".").partition("-")
    pid, _, started = leader.partition("-")
    if place == _place():
        return not pid.isdigit() or _started(int(pid)) != started.partition(".")[0]
    try:
        return time.time() - record.stat().st_mtime > _KEPT_S
    except FileNotFoundError:
        return False


def _place() -> str:
    """Names the boot and the process namespace, in which alone a process id means something."""
    boot = files.read("/proc/sys/kernel/random/boot_id").strip().replace("-", "")
    return f"{boot[:12]}_{os.stat('/proc/self/ns/pid').st_ino}"


def _started(pid: int) -> str:
    """Clock ticks from boot to a process's start; "" when there is none."""
    try:
        return files.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""
