"""Runs a command without showing it in a process list. A process list shows arguments to every user of a machine, but
an environment only to the process's own user. So a command reaches its shell in a variable. Pure.
"""

from __future__ import annotations

import shlex

VARIABLE = "CLUSTERCTL_COMMAND"


def evaluate(variable: str = VARIABLE) -> str:
    """Script: runs the command that a variable holds. The command does not see the variable."""
    return f'clusterctl_command=${variable}; unset {variable}; eval "$clusterctl_command"'


def in_shell(command: str) -> str:
    """A command line that runs `command` in a POSIX shell of its own."""
    return f"{VARIABLE}={shlex.quote(command)} /bin/sh -c {shlex.quote(evaluate())}"
