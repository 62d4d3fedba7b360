"""Processes that are known by a mark in their environment, which all that they start inherit. Pure."""

from __future__ import annotations

import shlex


def kill(name: str, mark: str) -> str:
    """Command: kills all whose variable `name` is `mark`, a word that nothing else has, until there is none. With few
    processes, however many the machine has: busy machines have no time for more.

    The shell that runs it may have got it in a variable (see `hidden`), so it is written such that it does not find
    itself."""
    pattern = shlex.quote(f"[{name[0]}]{name[1:]}={mark}")
    return (
        f'while found=$(grep -l {pattern} /proc/[0-9]*/environ 2>/dev/null); [ -n "$found" ]; do '
        'echo "$found" | while IFS=/ read -r _ _ p _; do kill -KILL "$p" 2>/dev/null; done; done'
    )
