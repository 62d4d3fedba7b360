"""The boot entry of a head: what starts its keeper again when its machine boots. It is a `@reboot` line in the crontab
of the machine's user, which runs the script `after_boot` in the node's folder.

Needs the standard library alone: a copy of this file lies beside the script, and removes the entry also where the
runtime is gone or broken (`boot_entry.py CLUSTER_ID`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

CRON = "cron"
"""The kind of the entry, as the head's record has it."""

_SCRIPT = "after_boot"
_OWN_COPY = "boot_entry.py"
_REMOVAL = "leave"  # what runs when the machine is given back
_MARK = "# clusterctl"
_OF_THE_SESSION = ("SSH_", "XDG_", "DBUS_")
_OF_THE_SHELL = frozenset({"_", "MAIL", "OLDPWD", "PWD", "SHLVL", "TERM"})
_DAEMONS = frozenset({"cron", "crond"})
_COMMAND_S = 20.0
_DAEMON_S = 20.0


def install(cluster_id: str, folder: str, command: Sequence[str], log: str, python: str) -> str:
    """Has the command run after each boot from now on, with the environment of now; returns the kind of the entry, ""
    where this machine offers no way. Repeating it replaces the entry.

    Args:
        folder: the node's private folder, for the script.
        log: the file for what the command prints.
        python: an interpreter that remains when the runtime is removed.
    """
    script = f"{folder}/{_SCRIPT}"
    try:
        before = _crontab() if _cron_runs(had_entry=os.path.exists(script)) else None
        if before is None:
            return ""
        _write(script, script_text(command, os.environ, log))
        copy = f"{folder}/{_OWN_COPY}"
        with open(__file__, encoding="utf-8") as source:
            _write(copy, source.read())
        _write(f"{folder}/{_REMOVAL}", f"{shlex.join([python, '-I', copy, cluster_id])}\n")
        _set_crontab(with_line(before, cluster_id, script))
    except OSError as error:
        print(f"no boot entry can be made: {error}", file=sys.stderr)
        return ""
    return CRON


def remove(cluster_id: str) -> None:
    """Removes the entry, if there is one.

    Raises:
        OSError: it is still there.
    """
    before = _crontab()
    if before and (after := without_line(before, cluster_id)) != before:
        _set_crontab(after)


# -- pure


def script_text(command: Sequence[str], environment: Mapping[str, str], log: str) -> str:
    """The script that runs the command with this environment, but for the variables of a log-in."""
    exports = [
        f"export {name}={shlex.quote(value)}"
        for name, value in sorted(environment.items())
        if name.isidentifier() and name not in _OF_THE_SHELL and not name.startswith(_OF_THE_SESSION)
    ]
    run = f"exec {shlex.join(command)} </dev/null >>{shlex.quote(log)} 2>&1"
    return "\n".join(["#!/bin/sh", "cd /", *exports, run, ""])


def with_line(crontab: str, cluster_id: str, script: str) -> str:
    """A crontab with the cluster's line, once, and with all other lines as they are."""
    kept = without_line(crontab, cluster_id)
    if kept and not kept.endswith("\n"):
        kept += "\n"
    command = shlex.join(["/bin/sh", script]).replace(
        "%", "\\%"
    )  # cron reads a bare % as the end of the line
    return f"{kept}@reboot {command} {_mark(cluster_id)}\n"


def without_line(crontab: str, cluster_id: str) -> str:
    """A crontab without the cluster's line."""
    mark = f" {_mark(cluster_id)}"
    return "\n".join(line for line in crontab.split("\n") if not line.endswith(mark))


# -- inside


def _mark(cluster_id: str) -> str:
    return f"{_MARK} {cluster_id}"


def _cron_runs(had_entry: bool) -> bool:
    """Whether the machine's cron daemon runs. A machine that had an entry has one, which may start later than its ssh
    server when it boots: it is waited for."""
    deadline = time.monotonic() + (_DAEMON_S if had_entry else 0.0)
    while not _daemon_is_there():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True


def _daemon_is_there() -> bool:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8") as name:
            if name.read().strip() in _DAEMONS:
                return True
    return False


def _crontab() -> str | None:
    """The user's crontab; None: the machine has no cron, or the user may not use it.

    Raises:
        OSError: it cannot be read.
    """
    try:
        ran = _run(["-l"])
    except FileNotFoundError:
        return None
    if ran.returncode == 0:
        return ran.stdout
    if "no crontab" in ran.stderr:
        return ""
    if "not allowed" in ran.stderr:
        return None
    raise OSError(f"crontab -l: {ran.stderr.strip()}")


def _set_crontab(text: str) -> None:
    ran = _run(["-"], text) if text else _run(["-r"])
    if ran.returncode:
        raise OSError(f"crontab: {ran.stderr.strip()}")


def _run(arguments: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["crontab", *arguments],
            input=text,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            env={**os.environ, "LC_ALL": "C"},
            timeout=_COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"crontab did not end within {_COMMAND_S:g} s") from error


def _write(path: str, text: str) -> None:
    """Whole or not at all: what was there may run at the next boot."""
    draft = f"{path}.new"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


if __name__ == "__main__":
    try:
        remove(sys.argv[1])
    except OSError as problem:
        sys.exit(f"the boot entry cannot be removed: {problem}")
