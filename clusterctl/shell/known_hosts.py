"""The host keys by which machines are known: a file with a line for each, as `ssh` keeps them. A last line
without its newline was never finished, for want of space or power, and counts as missing.

Of the file only the lines of the machine in question are read as keys: who enters twenty machines reads it forty times.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import paramiko


def name(host: str, port: int) -> str:
    """What a machine is called in such a file."""
    return host if port == 22 else f"[{host}]:{port}"


def load(keys: paramiko.HostKeys, file: str, machine: str) -> None:
    """Adds those of one machine, by its name there.

    Raises:
        paramiko.hostkeys.InvalidHostKey: its line is damaged.
    """
    from paramiko.hostkeys import HostKeyEntry, InvalidHostKey
    from paramiko.ssh_exception import SSHException

    with contextlib.suppress(FileNotFoundError), open(file, encoding="utf-8") as lines:
        for line in lines:
            if not line.startswith(f"{machine} ") or not line.endswith("\n"):
                continue
            try:
                entry = HostKeyEntry.from_line(line.strip())
            except SSHException as error:
                raise InvalidHostKey(line.strip(), error) from error
            if entry is not None:
                keys.add(machine, entry.key.get_name(), entry.key)


def pinning(file: str) -> paramiko.MissingHostKeyPolicy:
    """Trusts a machine that is seen for the first time, and writes down who it is."""
    import paramiko

    class Pin(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # paramiko has no types
        def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
            os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
            with open(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+") as lines:
                fcntl.flock(lines, fcntl.LOCK_EX)
                keys = paramiko.HostKeys()
                load(keys, file, hostname)
                pinned = keys.lookup(hostname)  # by another process, just now
                if pinned is None:
                    lines.seek(0)
                    whole, end, _ = lines.read().rpartition("\n")
                    lines.truncate(len(f"{whole}{end}".encode()))
                    lines.write(f"{hostname} {key.get_name()} {key.get_base64()}\n")
                elif pinned.get(key.get_name()) != key:
                    raise paramiko.BadHostKeyException(hostname, key, next(iter(pinned.values())))

    return Pin()
