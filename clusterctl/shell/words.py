"""Words of shell scripts. Pure."""

from __future__ import annotations

import shlex


def path(text: str) -> str:
    """A word that names a file on the machine: taken literally, but for a leading `~/`, its home folder."""
    return f'"$HOME"/{shlex.quote(text[2:])}' if text.startswith("~/") else shlex.quote(text)


def in_home(text: str, home: str) -> str:
    """The path of a file on a machine whose home folder is known, where a leading `~/` means that folder."""
    return f"{home}/{text[2:]}" if text.startswith("~/") else text
