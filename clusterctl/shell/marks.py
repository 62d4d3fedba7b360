"""Processes that are known by a mark in their environment, which all that they start inherit. Pure."""

from __future__ import annotations

import shlex


def kill(name: str, mark: str) -> str:
    """Command: kills all whose variable `name` is `mark`, a word that nothing else has. With two processes, however
    many the machine has: busy machines have no time for more."""
    return (
        f"grep -lF {shlex.quote(f'{name}={mark}')} /proc/[0-9]*/environ 2>/dev/null "
        '| while IFS=/ read -r _ _ p _; do kill -KILL "$p"; done'
    )
