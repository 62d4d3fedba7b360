"""The host keys by which machines are known: a file with a line for each, as `ssh` keeps them. A last line
without its newline was never finished, for want of space or power, and counts as missing.

Of the file only the lines of the machine in question are read as keys: who enters twenty machines reads it forty times.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoscaler.provider import ShellAuthFailed

from .target import SshTarget

if TYPE_CHECKING:
    import paramiko


_REVOKED = "@revoked"
_RSA = "ssh-rsa"
_RSA_SIGNATURES = {"rsa-sha2-512", "rsa-sha2-256"}
"""What one key of type `ssh-rsa` can be asked for."""


def name(host: str, port: int) -> str:
    """What a machine is called in such a file."""
    return host if port == 22 else f"[{host}]:{port}"


def load(file: str, machine: str) -> list[paramiko.PKey]:
    """The keys of one machine, by its name there.

    Raises:
        paramiko.hostkeys.InvalidHostKey: its line is damaged.
    """
    from paramiko.hostkeys import HostKeyEntry, InvalidHostKey
    from paramiko.ssh_exception import SSHException

    found: list[paramiko.PKey] = []
    with contextlib.suppress(FileNotFoundError), open(file, encoding="utf-8") as lines:
        for line in lines:
            if not line.startswith(f"{machine} ") or not line.endswith("\n"):
                continue
            try:
                entry = HostKeyEntry.from_line(line.strip())
            except SSHException as error:
                raise InvalidHostKey(line.strip(), error) from error
            if entry is not None:
                found.append(entry.key)
    return found


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one machine's keys: each of them is accepted, unless it is revoked.

    Attributes:
        pinned: those of our own file. If there are any, `users` is empty.
        users: those of the user's files.
        revoked: in the user's files, in base64.
    """

    pinned: Sequence[paramiko.PKey] = ()
    users: Sequence[paramiko.PKey] = ()
    revoked: frozenset[str] = frozenset()

    @property
    def algorithms(self) -> frozenset[str]:
        """The machine is asked for keys of these first, as it may have keys that are not known."""
        names = {key.get_name() for key in (*self.pinned, *self.users)}
        return frozenset(names | (_RSA_SIGNATURES if _RSA in names else set()))


def known(target: SshTarget) -> Known:
    """What our own file and the user's files have of a machine, in the latter also where its name is hashed or a
    pattern. What cannot be read in the user's files is left out, and so are authorities, which paramiko does not know.

    Raises:
        paramiko.hostkeys.InvalidHostKey: a line of our own file is damaged.
    """
    import paramiko
    from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

    ours = name(target.host, target.port)
    pinned = load(target.known_hosts, ours)
    marks = (_REVOKED,) if pinned else ("", _REVOKED)
    found: dict[str, list[paramiko.PKey]] = {mark: [] for mark in marks}
    for _, mark, line in _lines(target.users_known_hosts, target.host_key_alias or ours):
        with contextlib.suppress(InvalidHostKey, paramiko.SSHException, ValueError):
            entry = HostKeyEntry.from_line(line)
            if entry is not None and mark in found:
                found[mark].append(entry.key)
    revoked = frozenset(key.get_base64() for key in found[_REVOKED])
    return Known(pinned, [key for key in found.get("", ()) if key.get_base64() not in revoked], revoked)


def _lines(files: Sequence[str], machine: str) -> Iterator[tuple[str, str, str]]:
    """The lines that mean a machine: the file, the mark ("" for none), and what follows it."""
    for file in files:
        with contextlib.suppress(OSError), open(file, encoding="utf-8", errors="replace") as lines:
            for line in map(str.strip, lines):
                mark, _, rest = line.partition(" ") if line.startswith("@") else ("", "", line)
                if not line.startswith("#") and _names(rest.partition(" ")[0].split(","), machine):
                    yield file, mark, rest


def _names(patterns: Sequence[str], machine: str) -> bool:
    """Whether the first word of a line means a machine."""
    import paramiko

    is_named = False
    for pattern in patterns:
        if pattern.startswith("|1|"):
            with contextlib.suppress(ValueError, AssertionError, IndexError):
                is_named |= paramiko.HostKeys.hash_host(machine, pattern) == pattern
        elif fnmatch.fnmatchcase(machine.lower(), _shell_pattern(pattern.removeprefix("!").lower())):
            if pattern.startswith("!"):
                return False
            is_named = True
    return is_named


def _shell_pattern(pattern: str) -> str:
    """The brackets of [HOST]:PORT mean themselves."""
    return pattern.replace("[", "[[]")


def removal(target: SshTarget) -> str:
    """Commands that remove a machine's host key from all files that have it."""
    ours = name(target.host, target.port)
    theirs = target.host_key_alias or ours
    files = [file for file, mark, _ in _lines(target.users_known_hosts, theirs) if not mark]
    places = [(ours, target.known_hosts), *((theirs, file) for file in dict.fromkeys(files))]
    return " && ".join(
        f"ssh-keygen -R {shlex.quote(machine)} -f {shlex.quote(file)}" for machine, file in places
    )


def pin(file: str, machine: str, key: paramiko.PKey) -> None:
    """Writes down who a machine is that is seen for the first time.

    Args:
        machine: its name there.

    Raises:
        paramiko.BadHostKeyException: another process has just written down another key.
    """
    import paramiko

    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    with open(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+") as lines:
        fcntl.flock(lines, fcntl.LOCK_EX)
        pinned = load(file, machine)
        if not pinned:
            lines.seek(0)
            whole, end, _ = lines.read().rpartition("\n")
            lines.truncate(len(f"{whole}{end}".encode()))
            lines.write(f"{machine} {key.get_name()} {key.get_base64()}\n")
        elif key not in pinned:
            raise paramiko.BadHostKeyException(machine, key, pinned[0])


def checking(target: SshTarget, known: Known) -> paramiko.MissingHostKeyPolicy:
    """Decides about the key that a machine shows. paramiko's own list of keys has to be empty: it has room for one key
    of each type."""
    import paramiko

    class Check(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # paramiko has no types
        def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
            files = " or ".join(target.users_known_hosts)
            expected = known.pinned or known.users
            if key.get_base64() in known.revoked:
                raise ShellAuthFailed(f"{target} shows a host key that is revoked in {files}")
            if expected and key not in expected:
                same = [other for other in expected if other.get_name() == key.get_name()]
                raise paramiko.BadHostKeyException(hostname, key, (*same, *expected)[0])
            if target.is_strict and not expected:
                raise ShellAuthFailed(
                    f"{target}: its host key is not in {files}, and the SSH configuration says "
                    "StrictHostKeyChecking: enter the machine once with `ssh`, or add its key there"
                )
            if not known.pinned:
                pin(target.known_hosts, hostname, key)

    return Check()
