"""Who is logged in to this machine, as far as its processes and its log-in records tell.

A machine of the local provider is a group of processes of its host: only what `clusterctl` started there counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import psutil

from clusterctl import processes, settings

MARK = "CLUSTERCTL_LOGIN"
"""In the environment of what a person starts with `exec` or `attach`, and of all that it starts."""
_SSHD = re.compile(r"sshd(?:-session)?: (\S+)@(\S+)")
_KEEPERS = ("tmux: server", "screen")
"""They keep sessions, and are none."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `terminal`: of its session, "" for none."""

    name: str
    title: str
    terminal: str
    environment: Mapping[str, str]


def sessions(seen: Iterable[Process], machine: str) -> list[str]:
    """Sessions of people among the processes, in words. Pure.

    Args:
        machine: the local machine that is meant; "": the whole host.
    """
    found: dict[str, None] = {}
    for process in seen:
        if machine and process.environment.get(processes.TAG) != machine:
            continue
        of_sshd = _SSHD.match(process.title)
        if of_sshd:
            found[f"{of_sshd[1]} by SSH ({of_sshd[2]})"] = None
        elif process.name.lower().startswith(_KEEPERS):
            continue
        elif MARK in process.environment:
            found[f"clusterctl ({process.name})"] = None
        elif process.terminal.startswith("/dev/pts/"):
            found[process.terminal] = None
    return list(found)


def found() -> list[str]:
    """Sessions of people on this machine now.

    Raises:
        OSError: the processes cannot be listed.
    """
    machine = settings.MACHINE.get()
    is_part_of_host = bool(settings.SHARES_HOST.get())
    out = sessions(_processes(), machine if is_part_of_host else "")
    if not is_part_of_host:
        out += [f"{user.name} on {user.terminal}" for user in psutil.users() if user.terminal]
    return out


def _processes() -> Iterable[Process]:
    for process in psutil.process_iter():
        try:
            with process.oneshot():
                title, name, terminal = process.cmdline(), process.name(), process.terminal()
            yield Process(name, " ".join(title), terminal or "", _environment(process))
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue


def _environment(process: psutil.Process) -> Mapping[str, str]:
    """Of the process; empty when it is another user's."""
    try:
        return process.environ()
    except psutil.Error:
        return {}
