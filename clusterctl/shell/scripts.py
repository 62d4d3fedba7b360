"""Pieces of shell scripts. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
VARIABLE = "CLUSTERCTL_COMMAND"
"""Holds a command for the shell that is to run it: a process list shows arguments to every user of a machine, but an
environment only to the process's own user."""


def path(text: str) -> str:
    """A word that names a file on the machine: taken literally, but for a leading `~/`, its home folder."""
    return f'"$HOME"/{shlex.quote(text[2:])}' if text.startswith("~/") else shlex.quote(text)


def in_home(text: str, home: str) -> str:
    """The path of a file on a machine whose home folder is known, where a leading `~/` means that folder."""
    return f"{home}/{text[2:]}" if text.startswith("~/") else text


def check_names(names: Iterable[str]) -> None:
    """Raises ValueError for a name that no environment variable can have."""
    for name in names:
        if not _NAME.match(name):
            raise ValueError(f"{name!r} is no name of an environment variable")


def evaluate(variable: str = VARIABLE) -> str:
    """Script: runs the command that a variable holds. The command does not see the variable."""
    return f'clusterctl_command=${variable}; unset {variable}; eval "$clusterctl_command"'


def in_shell(command: str) -> str:
    """A command line that runs `command` in a POSIX shell of its own, and shows it in no process list."""
    return f"{VARIABLE}={shlex.quote(command)} /bin/sh -c {shlex.quote(evaluate())}"


def kill_marked(name: str, mark: str) -> str:
    """Command: kills all processes whose variable `name` is `mark`, a word that nothing else has and that all inherit
    that they start, until there is none. With few processes, however many the machine has: busy machines have no time
    for more.

    The shell that runs it may have got it in a variable, so it is written such that it does not find itself."""
    pattern = shlex.quote(f"[{name[0]}]{name[1:]}={mark}")
    return (
        f'while found=$(grep -l {pattern} /proc/[0-9]*/environ 2>/dev/null); [ -n "$found" ]; do '
        'echo "$found" | while IFS=/ read -r _ _ p _; do kill -KILL "$p" 2>/dev/null; done; done'
    )
