"""What a machine remembers of the daemon that makes it a node. Imports little."""

from __future__ import annotations

import sys

import msgspec

from clusterctl import processes
from runtime._system import files

FILE = "daemon.json"
NO_BOOT_ENTRY = "none"


class DaemonRecord(msgspec.Struct, kw_only=True):
    """`<session>/daemon.json`: which process the node lives by, and what it said when it was ready."""

    pid: int
    start_ticks: int
    role: str  # head | worker
    control_address: str
    node_id: str = ""
    api_url: str = ""
    client_address: str = ""  # where remote drivers come; "": nowhere
    session_dir: str = ""
    secret_file: str = ""
    boot_id: str = ""  # of the machine when the process began: a record may outlive a reboot
    cluster_id: str = ""  # of a head
    boot_entry: str = (
        ""  # what starts a head after a reboot; NO_BOOT_ENTRY: nothing can; "": nothing is meant to
    )


def read(session: str) -> DaemonRecord | None:
    """The record of a session folder, whether its process runs or not; None: nothing is meant to run there."""
    try:
        with open(f"{session}/{FILE}", "rb") as file:
            return msgspec.json.decode(file.read(), type=DaemonRecord)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def running(session: str) -> DaemonRecord | None:
    """What runs in a session folder, by its record."""
    record = read(session)
    if record is None:
        return None
    is_of_this_boot = record.boot_id in ("", boot_id())
    return record if is_of_this_boot and processes.is_alive(record.pid, record.start_ticks) else None


def boot_id() -> str:
    """Names the time since the machine's last boot: a pid and a start time of before name nothing now."""
    try:
        return files.read("/proc/sys/kernel/random/boot_id").strip()
    except OSError:
        return ""


def remember(session: str, record: DaemonRecord) -> None:
    """Writes the record, whole or not at all."""
    files.replace(f"{session}/{FILE}", msgspec.json.encode(record))


def forget(session: str) -> None:
    """Says that nothing is meant to run there, and removes what would start it after a reboot."""
    record = read(session)
    if record is not None and record.boot_entry not in ("", NO_BOOT_ENTRY):
        from . import boot_entry

        try:
            boot_entry.remove(record.cluster_id)
        except OSError as error:  # without a record it starts nothing
            print(f"the boot entry is still there: {error}", file=sys.stderr, flush=True)
    files.remove(f"{session}/{FILE}")
