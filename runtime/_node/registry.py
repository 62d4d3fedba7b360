"""The agents of this host, one small file each, so that drivers and commands find them.

A file is written when the agent is ready and removed when it ends. The agent holds a lock on it for life, so readers
know which agents were killed, and remove their files. Process ids would not do: containers may share the folder, and
neither sees the processes of the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat

import msgspec

from runtime._system import files, settings

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
    pid_namespace: str = ""  # in which `pid` counts
    locked: bool = False  # the agent holds a lock on the file: its file system has locks

    def is_here(self) -> bool:
        """Whether the agent's process runs, and this process can see it."""
        if self.pid_namespace not in ("", _pid_namespace()):
            return False
        return _process_started_s(self.pid) == self.process_started_s


class Published(msgspec.Struct):
    """A record that is on disk. The lock goes with this object's file, so with the process at the latest."""

    path: str
    file: int

    def withdraw(self) -> None:
        """Removes the record, and the directories that are empty then."""
        remove_record(self.path)
        os.close(self.file)


def base_dir() -> str:
    """The directory of this user's sessions and records, below `$CLUSTERCTL_TMPDIR` or the system's temporary one."""
    given = settings.TMPDIR.get()
    root = settings.TEMPORARY_ROOT.get() or (given if os.access(given, os.W_OK | os.X_OK) else "/tmp")
    return os.path.join(os.path.abspath(root), f"clusterctl-{os.getuid()}")


def make_private_dir(path: str) -> None:
    """Makes a directory that only this user may enter.

    Raises:
        OSError: what is there is a link or no directory, or belongs to someone else: in a folder that others can write
            to, they may have put it there.
    """
    with contextlib.suppress(FileExistsError):
        os.makedirs(path, 0o700, exist_ok=True)
    status = os.lstat(path)
    found = ""
    if stat.S_ISLNK(status.st_mode):
        found = "is a symbolic link"
    elif not stat.S_ISDIR(status.st_mode):
        found = "is no folder"
    elif status.st_uid != os.getuid():
        found = f"belongs to user {status.st_uid}"
    if found:
        raise OSError(f"{path} {found}: remove it or set CLUSTERCTL_TMPDIR")
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
        _pid_namespace(),
    )


def publish(record: NodeRecord) -> Published:
    """Writes the record where `records` finds it, whole or not at all, and locks it."""
    folder = _make_records_dir()
    draft = f"{folder}/{record.node_id[:16]}.{record.pid}.tmp"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        record = msgspec.structs.replace(record, locked=_lock(file))
        os.write(file, msgspec.json.encode(record))
        path = f"{folder}/{record.node_id[:16]}.json"
        os.rename(draft, path)
    except BaseException:
        os.close(file)
        raise
    return Published(path, file)


def publish_link(record_path: str) -> str:
    """Makes a record of another base directory known in this one. Returns the path of the link, for `remove_record`."""
    path = f"{_make_records_dir()}/{os.path.basename(record_path)}"
    os.symlink(record_path, path)
    return path


def remove_record(path: str) -> None:
    """Removes a record, and the directories that are empty then."""
    files.remove(path)
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
    """The live agents of this user on this host that this process can reach, the youngest first. Removes the records of
    agents that were killed."""
    found: list[NodeRecord] = []
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir(_records_dir())
    for path in (os.path.join(_records_dir(), name) for name in names if name.endswith(".json")):
        try:
            with open(path, "rb") as file:
                record = msgspec.json.decode(file.read(), type=NodeRecord)
                is_here = record.is_here()
                is_alive = _is_locked(file.fileno()) if record.locked else is_here
        except FileNotFoundError:
            if os.path.islink(path):
                remove_record(path)
            continue
        except msgspec.MsgspecError as error:
            log.warning("ignoring %s: %s", path, error)
            continue
        if is_alive:
            if is_here:
                found.append(record)
        else:
            if record.local:  # its one process was killed, so nobody else removes what it left
                files.remove_tree(record.session_dir)
            remove_record(path)
    return sorted(found, key=lambda record: record.started_s, reverse=True)


def _records_dir() -> str:
    return f"{base_dir()}/nodes"


def _make_records_dir() -> str:
    make_private_dir(base_dir())
    folder = _records_dir()
    make_private_dir(folder)
    return folder


def _lock(file: int) -> bool:
    """Locks a file until it is closed. False where the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        log.warning("no lock on the record of this node: %s", error)
        return False
    return True


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _process_started_s(pid: int) -> float:
    """Clock ticks from boot to the start of a process; -1 when there is none (or only a zombie)."""
    try:
        text = files.read(f"/proc/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return -1.0
    fields = text.rpartition(")")[2].split()
    return -1.0 if fields[0] in ("Z", "X") else float(fields[19])
