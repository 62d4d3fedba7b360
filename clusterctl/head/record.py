"""What a machine remembers of the daemon that makes it a node. Imports little."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from clusterctl import processes

FILE = "daemon.json"


class DaemonRecord(msgspec.Struct, kw_only=True):
    """`<session>/daemon.json`: which process the node lives by, and what it said when it was ready."""

    pid: int
    start_ticks: int
    role: str  # head | worker
    control_address: str
    node_id: str = ""
    api_url: str = ""
    session_dir: str = ""
    secret_file: str = ""


def running(session: Path) -> DaemonRecord | None:
    """What runs in a session folder, by its record."""
    try:
        record = msgspec.json.decode((session / FILE).read_bytes(), type=DaemonRecord)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    return record if processes.is_alive(record.pid, record.start_ticks) else None


def remember(session: Path, record: DaemonRecord) -> None:
    """Writes the record, whole or not at all."""
    draft = session / f".daemon.{os.getpid()}"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(record))
    draft.replace(session / FILE)


def forget(session: Path) -> None:
    """Says that nothing is meant to run there."""
    (session / FILE).unlink(missing_ok=True)
