"""The agents of this host, one small file each, so that drivers and commands find them.

A file is written when the agent is ready and removed when it ends; readers remove those of agents that were
killed.
"""

from __future__ import annotations

import contextlib
import logging
import os

import msgspec

from runtime import _files

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


def base_dir() -> str:
    """The directory of this user's sessions and records, below `$CLUSTERCTL_TMPDIR` or the system's temporary one."""
    given = os.environ.get("TMPDIR", "")
    root = os.environ.get("CLUSTERCTL_TMPDIR") or (given if os.access(given, os.W_OK | os.X_OK) else "/tmp")
    return os.path.join(os.path.abspath(root), f"clusterctl-{os.getuid()}")


def make_private_dir(path: str) -> None:
    """Makes a directory that only this user may enter.

    Raises:
        OSError: it exists and belongs to someone else.
    """
    os.makedirs(path, 0o700, exist_ok=True)
    status = os.stat(path)
    if status.st_uid != os.getuid():
        raise OSError(f"{path} belongs to user {status.st_uid}: remove it or set CLUSTERCTL_TMPDIR")
    if status.st_mode & 0o077:
        os.chmod(path, 0o700)


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


def publish(record: NodeRecord) -> str:
    """Writes the record where `records` finds it, whole or not at all."""
    base = base_dir()
    make_private_dir(base)
    folder = _records_dir()
    make_private_dir(folder)
    path = f"{folder}/{record.node_id[:16]}.json"
    draft = f"{folder}/{record.node_id[:16]}.{record.pid}.tmp"
    with open(draft, "wb") as file:
        file.write(msgspec.json.encode(record))
    os.rename(draft, path)
    return path


def withdraw(path: str) -> None:
    """Removes a record, and the directories that are empty then."""
    _files.remove(path)
    remove_empty(os.path.dirname(path))


def remove_empty(folder: str) -> None:
    """Removes `folder` and its parents up to the base directory as far as they are empty."""
    base = base_dir()
    while folder == base or folder.startswith(f"{base}/"):
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)


def records() -> list[NodeRecord]:
    """The live agents of this user on this host, the youngest first. Stale records are removed."""
    found: list[NodeRecord] = []
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir(_records_dir())
    for path in (os.path.join(_records_dir(), name) for name in names if name.endswith(".json")):
        try:
            with open(path, "rb") as file:
                record = msgspec.json.decode(file.read(), type=NodeRecord)
        except FileNotFoundError:
            continue
        except msgspec.MsgspecError as error:
            log.warning("ignoring %s: %s", path, error)
            continue
        if record.is_alive():
            found.append(record)
        else:
            if record.local:  # its one process was killed, so nobody else removes what it left
                _files.remove_tree(record.session_dir)
            withdraw(path)
    return sorted(found, key=lambda record: record.started_s, reverse=True)


def _records_dir() -> str:
    return f"{base_dir()}/nodes"


def _process_started_s(pid: int) -> float:
    """Clock ticks from boot to the start of a process; -1 when there is none (or only a zombie)."""
    try:
        text = _files.read(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return -1.0
    fields = text.rpartition(")")[2].split()
    return -1.0 if fields[0] in ("Z", "X") else float(fields[19])
