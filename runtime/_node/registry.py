"""The agents of this host, one small file each, so that drivers and commands find them.

A file is written when the agent is ready and removed when it ends; readers remove those of agents that were
killed.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path

import msgspec

log = logging.getLogger(__name__)


class NodeRecord(msgspec.Struct, frozen=True):
    """One live agent of this host."""

    node_id: str  # hex
    control_address: str  # host:port; "" when the control store lives inside the agent's process
    unix_path: str
    session_dir: str
    pid: int
    is_head: bool
    local: bool  # started by `runtime.init()` for one driver
    started_s: float
    process_started_s: float = 0.0  # tells a reused process id from the agent

    def is_alive(self) -> bool:
        """Whether the agent's process still runs."""
        return _process_started_s(self.pid) == self.process_started_s


def base_dir() -> Path:
    """The directory of this user's sessions and records: `$CLUSTERCTL_TMPDIR` or the system's temporary
    one."""
    root = os.environ.get("CLUSTERCTL_TMPDIR") or tempfile.gettempdir()
    return Path(root) / f"clusterctl-{os.getuid()}"


def make_private_dir(path: Path) -> None:
    """Makes a directory that only this user may enter.

    Raises:
        OSError: it exists and belongs to someone else.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.stat()
    if status.st_uid != os.getuid():
        raise OSError(f"{path} belongs to user {status.st_uid}: remove it or set CLUSTERCTL_TMPDIR")
    if status.st_mode & 0o077:
        path.chmod(0o700)


def record_of_this_process(
    node_id: bytes,
    control_address: str,
    unix_path: str,
    session_dir: str,
    *,
    is_head: bool,
    local: bool,
    now: float,
) -> NodeRecord:
    """A record for an agent that runs in this process."""
    pid = os.getpid()
    return NodeRecord(
        node_id.hex(),
        control_address,
        unix_path,
        session_dir,
        pid,
        is_head,
        local,
        now,
        _process_started_s(pid),
    )


def publish(record: NodeRecord) -> Path:
    """Writes the record where `records` finds it, whole or not at all."""
    base = base_dir()
    make_private_dir(base)
    folder = base / "nodes"
    make_private_dir(folder)
    path = folder / f"{record.node_id[:16]}.json"
    draft = path.with_suffix(f".{record.pid}.tmp")
    draft.write_bytes(msgspec.json.encode(record))
    draft.rename(path)
    return path


def withdraw(path: Path) -> None:
    """Removes a record, and the directories that are empty then."""
    path.unlink(missing_ok=True)
    remove_empty(path.parent)


def remove_empty(folder: Path) -> None:
    """Removes `folder` and its parents up to the base directory as far as they are empty."""
    base = base_dir()
    while folder == base or base in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def records() -> list[NodeRecord]:
    """The live agents of this user on this host, the youngest first. Stale records are removed."""
    found: list[NodeRecord] = []
    for path in (base_dir() / "nodes").glob("*.json"):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=NodeRecord)
        except FileNotFoundError:
            continue
        except msgspec.MsgspecError as error:
            log.warning("ignoring %s: %s", path, error)
            continue
        if record.is_alive():
            found.append(record)
        else:
            if record.local:  # its one process was killed, so nobody else removes what it left
                shutil.rmtree(record.session_dir, ignore_errors=True)
            withdraw(path)
    return sorted(found, key=lambda record: record.started_s, reverse=True)


def _process_started_s(pid: int) -> float:
    """Clock ticks from boot to the start of a process; -1 when there is none (or only a zombie)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return -1.0
    fields = text.rpartition(")")[2].split()
    return -1.0 if fields[0] in ("Z", "X") else float(fields[19])
